"""Servers whose every process can be killed, and their standbys."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from memfold.tools.admin import migrate
from tests.faults.patience import PATIENCE, pause_until
from tests.support import servers
from tests.support.queries import DB

PORT = 5432
# As shipped where it matters (fsync, full_page_writes, synchronous_commit); checkpoints and vacuum come often, so that
# they are killed as well.
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "checkpoint_timeout": "30s",
    "max_wal_size": "64MB",
    "autovacuum_naptime": "1s",
    "log_line_prefix": "%e %p ",
    "wal_keep_size": "256MB",
}


def children(pid: int) -> list[int]:
    """The child processes of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid:
                    found.append(int(entry.name))
    return found


def is_running(pid: int) -> bool:
    """Whether it exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Server:
    """A cluster whose postmaster is a child of ours, so that its end is known, not guessed."""

    def __init__(self, cluster: servers.Cluster, data: Path) -> None:
        self.cluster = cluster
        self.data = data
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return f"host={self.data.parent} port={PORT} user=postgres dbname=postgres connect_timeout=60"

    def start(self) -> None:
        """Start it without waiting."""
        account = self.cluster.account
        # a postmaster that was killed before it had written it: PostgreSQL leaves this one to its DBA
        lock = self.data / "postmaster.pid"
        if lock.exists() and not lock.stat().st_size:
            lock.unlink()
        other = account.uid != os.geteuid()
        with (self.data.parent / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.cluster.bindir / "postgres", "-D", self.data],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                user=account.uid if other else None,
                group=account.gid if other else None,
                extra_groups=[] if other else None,
                start_new_session=True,
                umask=0o077,
            )

    def ready(self) -> float:
        """Wait until it accepts connections; returns the seconds."""
        began = time.monotonic()
        while True:
            assert self.process is not None
            assert self.process.poll() is None, f"the server ended: {self.said()[-2000:]}"
            assert time.monotonic() - began < PATIENCE, f"no server: {self.said()[-2000:]}"
            with contextlib.suppress(psycopg.OperationalError), self.connect():
                return time.monotonic() - began
            time.sleep(0.01)

    def connect(self, **options: Any) -> DB:
        return psycopg.connect(self.dsn, autocommit=True, **options)

    def processes(self) -> list[int]:
        assert self.process is not None
        return [self.process.pid, *children(self.process.pid)]

    def kill(self) -> int:
        """SIGKILL for the postmaster and all its children; returns their number."""
        assert self.process is not None
        postmaster = self.process.pid
        # stop it from starting processes while the others are found
        os.kill(postmaster, signal.SIGSTOP)
        pids = [*children(postmaster), postmaster]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        pause_until(lambda: not any(is_running(pid) for pid in pids), f"{pids} are killed")
        return len(pids)

    def kill_a_backend(self, choice: random.Random) -> bool:
        """SIGKILL for one server process of a client: the postmaster ends all others and recovers by itself."""
        with contextlib.suppress(psycopg.Error), self.connect() as db:
            pids = [
                row[0]
                for row in db.execute(
                    "select pid from pg_stat_activity where backend_type = 'client backend'"
                    " and pid <> pg_backend_pid()"
                )
            ]
            if pids:
                os.kill(choice.choice(pids), signal.SIGKILL)
                return True
        return False

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(PATIENCE)

    def said(self) -> str:
        log = self.data.parent / "log"
        return log.read_text(errors="replace") if log.exists() else ""

    def complaints(self) -> list[str]:
        """Log lines that no intact server writes: panics, broken pages, internal errors."""
        # (after a crash a LOG says that a shared memory segment is already gone)
        serious = re.compile(r"(XX|58)\w{3} \d+ (WARNING|ERROR|FATAL)|\w{5} \d+ PANIC")
        return [line for line in self.said().splitlines() if serious.match(line)]


@contextlib.contextmanager
def killable_server(bindir: Path, *, on_disk: bool = True, **settings: str) -> Iterator[Server]:
    """A server with memfold, on a separate directory on disk, where written data last."""
    cluster = servers.Cluster("faults", bindir, servers.directory("faults-", on_disk=on_disk))
    made = Server(cluster, cluster.base / "data")
    try:
        cluster.start(extension=False)
        with (made.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{key} = '{value}'\n" for key, value in {**SETTINGS, **settings}.items())
        cluster.run(cluster.bindir / "pg_ctl", "-D", made.data, "-m", "fast", "-w", "stop")
        made.start()
        made.ready()
        migrate.install(made.dsn)
        with made.connect() as db:
            db.execute("create extension if not exists amcheck")
        yield made
    finally:
        made.stop()
        shutil.rmtree(cluster.base, ignore_errors=True)


@contextlib.contextmanager
def standby_of(primary: Server, name: str) -> Iterator[Server]:
    """A streaming standby, as an administrator sets one up, started and caught up."""
    cluster = primary.cluster
    base = cluster.base / name
    base.mkdir()
    if os.geteuid() == 0:
        os.chown(base, cluster.account.uid, cluster.account.gid)
    made = Server(cluster, base / "data")
    try:
        cluster.run(
            cluster.bindir / "pg_basebackup", "-h", primary.data.parent, "-p", str(PORT), "-U", "postgres",
            "-D", made.data, "-R", "-X", "stream", "-c", "fast",
        )  # fmt: skip
        made.data.chmod(0o700)
        with (made.data / "postgresql.auto.conf").open("a") as conf:
            conf.write(f"unix_socket_directories = '{base}'\nsynchronous_standby_names = ''\n")
        made.start()
        made.ready()
        with primary.connect() as db:
            pause_until(
                lambda: (
                    db.execute(
                        "select count(*) from pg_stat_replication where state = 'streaming'"
                    ).fetchone()
                    == (1,)
                ),
                "the standby streams",
            )
        yield made
    finally:
        made.stop()
        shutil.rmtree(base, ignore_errors=True)


def promote(standby: Server) -> float:
    """Make it the primary; returns the seconds."""
    began = time.monotonic()
    # not by a session: a new one may wait for a lock that the primary held on a catalog when it died
    pg_ctl = standby.cluster.bindir / "pg_ctl"
    standby.cluster.run(pg_ctl, "-D", standby.data, "-w", "-t", f"{PATIENCE:.0f}", "promote")
    return time.monotonic() - began
