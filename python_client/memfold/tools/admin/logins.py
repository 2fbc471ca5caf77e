"""The login roles of the embedded server, and their password."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

import psycopg
from psycopg import sql

from memfold.tools.admin.cluster import DATABASE, ROLE, Cluster, Postmaster

__all__ = ["LOGIN", "ensure_login", "ensure_password"]

# Not a superuser: row-level security applies to it, and none of its statements reaches beyond the database.
LOGIN = "memfold_local"


def ensure_login(cluster: Cluster, server: Postmaster) -> None:
    """The login that ``memfold up`` prints: it administers memfold, and owns what it creates, but is not a superuser."""
    cluster.patiently(server, lambda server: _make_login(cluster, server))


def _make_login(cluster: Cluster, server: Postmaster) -> None:
    with cluster.connect(server, DATABASE) as connection:
        known = connection.execute(
            "select pg_catalog.pg_has_role(r.oid, 'memfold_owner', 'member') from pg_catalog.pg_roles as r"
            " where r.rolname = %s",
            [LOGIN],
        ).fetchone()
        if known != (True,):
            with contextlib.suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
                connection.execute(f"create role {LOGIN} login")
            connection.execute(
                f"grant memfold_owner, pg_monitor to {LOGIN};"
                f" grant create on schema public to {LOGIN}; grant create on database {DATABASE} to {LOGIN}"
            )


def ensure_password(cluster: Cluster, server: Postmaster, role: str, given: str | None) -> str:
    """The file first, then the role: if a call is killed in between, the next one repairs it."""
    path = cluster.home / "password"
    stored = path.read_text() if path.exists() else None
    secret = given or stored or secrets.token_urlsafe(24)
    if secret != stored:
        handle, temporary = tempfile.mkstemp(prefix="password.", dir=cluster.home)
        with os.fdopen(handle, "w") as file:
            file.write(secret)
        Path(temporary).rename(path)
    address = {"host": "127.0.0.1", "port": str(server.port), "user": role, "dbname": DATABASE}
    try:
        psycopg.connect(**address, password=secret).close()  # type: ignore[arg-type]
    except psycopg.OperationalError:
        cluster.patiently(server, lambda server: _set_password(cluster, server, role, secret))
    return secret


def _set_password(cluster: Cluster, server: Postmaster, role: str, secret: str) -> None:
    with cluster.connect(server, DATABASE) as connection:
        # Only the verifier leaves this process, so that no log can show the password.
        encrypt = connection.pgconn.encrypt_password
        verifier = encrypt(secret.encode(), role.encode(), b"scram-sha-256").decode()
        roles = connection.execute("select rolname from pg_roles where rolname = any(%s)", [[ROLE, LOGIN]])
        for (name,) in roles.fetchall():
            # the other role can only use the socket
            given = sql.Literal(verifier if name == role else None)
            connection.execute(sql.SQL("alter role {} password {}").format(sql.Identifier(str(name)), given))
