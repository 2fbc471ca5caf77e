"""The cluster of one directory: its processes, files, database and password. ``server.py`` has the layout."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from memfold.client._extras import needs
from memfold.tools.admin import host
from memfold.tools.admin.host import Account, ServerError, bindir

with needs("server"):
    import platformdirs
    import psutil

DATABASE = "memfold"
# Not memfold: "$user" is first in the search_path, and would put the caller's tables into memfold's schema.
ROLE = "postgres"

_SOCKET_PORT = 5432
# 108 bytes on Linux, 104 elsewhere, including the final zero.
_SOCKET_PATH_MAX = 100
# An id that no process has.
_NO_PROCESS = 2147483646
# The messages that a client gets while the server restarts after the death of one of its processes. (An error before
# the connection is established has no SQLSTATE.)
_PASSING = {"57P01", "57P02", "57P03"}
_PASSING_WORDS = ("the database system is", "server closed the connection", "terminating connection")

# Settings for a laptop's server beyond the defaults. TCP is off unless ``up`` gets a port.
_SETTINGS = {
    "shared_buffers": "256MB",
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "random_page_cost": "1.1",
    "logging_collector": "on",
    "log_filename": "postgresql-%a.log",
    "log_truncate_on_rotation": "on",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
    "log_line_prefix": "%m [%p] %q%u@%d ",
    # A client that died, or forgot its transaction, holds locks no longer than this.
    "client_connection_check_interval": "10s",
    "idle_in_transaction_session_timeout": "1h",
}


def default_data_dir() -> Path:
    """The user's data directory; for root, whose own directory other accounts may not enter, one under /var/lib."""
    if os.geteuid() == 0:
        return host.SYSTEM_DIR / "pg18"
    return Path(platformdirs.user_data_dir("memfold", appauthor=False)) / "pg18"


@dataclass(frozen=True)
class Postmaster:
    pid: int
    port: int
    socket_dir: str
    tcp: bool
    ready: bool

    def dsn(self, role: str = ROLE) -> str:
        # Name the port, because otherwise PGPORT in a client's environment would decide.
        return f"postgresql://{role}@/{DATABASE}?host={quote(self.socket_dir, safe='/')}&port={self.port}"


class Cluster:
    """The cluster of one directory. All methods but ``running`` are called under the directory's lock."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.data = home / "data"
        # In the title of every process of the cluster, in case their working directory cannot be read.
        self.tag = "memfold-" + hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
        if not self.data.exists():
            self.account = Account.choose()
            return
        # The account that created the cluster keeps running it, even if accounts have been added or removed since.
        found = self.data.stat()
        self.account = Account.of(found.st_uid, found.st_gid)
        if found.st_uid == 0 or os.geteuid() not in (0, found.st_uid):
            raise ServerError(
                f"{self.data} belongs to {self.account.name}, who cannot run it from here",
                "Give it back to the account that created it, or run memfold as that account.",
            )

    def running(self) -> Postmaster | None:
        """The postmaster of this cluster, if its process is alive: the file alone proves nothing."""
        lines = self._pid_file()
        pid = _number(lines, 0)
        try:
            if pid <= 0 or not self._is_member(psutil.Process(pid)):
                return None
        except psutil.Error:
            return None
        lines += [""] * 8
        return Postmaster(
            pid=pid,
            port=_number(lines, 3),
            socket_dir=lines[4],
            tcp=bool(lines[5].strip()),
            ready=lines[7].startswith("ready"),
        )

    def wait_until_ready(self, server: Postmaster) -> Postmaster:
        deadline = time.monotonic() + host.PATIENCE
        while not server.ready:
            time.sleep(0.02)
            found = self.running()
            if found is None or time.monotonic() > deadline:
                raise self._failure("the server did not become ready")
            server = found
        return server

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ServerError(
                f"cannot read {self.data}: {error.strerror}", "Run memfold as its owner."
            ) from error

    def _is_member(self, process: psutil.Process) -> bool:
        """Whether this is a process of this cluster: the process id may have been reused since."""
        if not is_alive(process) or process.uids().real != self.account.uid:
            return False
        words = process.cmdline()
        if not words or not (Path(words[0]).name == "postgres" or words[0].startswith("postgres: ")):
            return False
        with contextlib.suppress(psutil.AccessDenied, OSError):
            if where := process.cwd():
                return Path(where).samefile(self.data)
        # We may not see it (root in a container), or its directory has been removed.
        return any(self.tag in word for word in words)

    def start(self, port: int | None) -> Postmaster:
        programs = self._programs()
        self._initialise(programs)
        # While the server was down, clients may have sent the password to any program that listened on the port.
        (self.home / "password").unlink(missing_ok=True)
        run = self._socket_dir(port or _SOCKET_PORT)
        options = ["-k", str(run), "-p", str(port or _SOCKET_PORT)]
        options += ["-c", f"listen_addresses={'127.0.0.1' if port else ''}", "-c", f"cluster_name={self.tag}"]
        # Relative paths: pg_ctl puts them into a shell command between plain double quotes.
        command: list[str | Path] = [
            programs / "pg_ctl",
            "-D",
            "data",
            "-l",
            "data/startup.log",
            "-o",
            shlex.join(options),
        ]
        command += ["-w", "-t", f"{host.PATIENCE:.0f}", "start"]
        printed = ""
        for _ in range(3):
            self._clear_leftovers(run)
            _, printed = self.account.run(command, cwd=self.home)
            server = self.running()
            # Also if pg_ctl failed: an earlier call that was killed may have left a starting server.
            if server is not None:
                return server
            if not self._pid_file():
                break
        raise self._failure("the server did not start", printed)

    def _initialise(self, programs: Path) -> None:
        # Left by a killed call. Its initdb may continue for a moment; then the next start finds it.
        for leftover in self.home.glob("data.init-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        if self.data.exists():
            self._check_version(programs)
            return
        # Created elsewhere and renamed, so that a cluster is complete or absent.
        work = Path(tempfile.mkdtemp(prefix="data.init-", dir=self.home))
        os.chown(work, self.account.uid, self.account.gid)
        command: list[str | Path] = [programs / "initdb", "-D", work.name, "-U", ROLE, "--data-checksums"]
        command += ["--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--lc-messages=C"]
        # The builtin provider sorts and folds case the same on every machine, regardless of its C library.
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        for name, value in _SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        code, printed = self.account.run([*command, "--locale=C.UTF-8"], cwd=self.home)
        if code != 0 and "invalid locale name" in printed:
            code, printed = self.account.run([*command, "--locale=C"], cwd=self.home)
        if code != 0:
            shutil.rmtree(work, ignore_errors=True)
            raise ServerError(f"initdb failed in {self.home}", printed or f"exit code {code}")
        work.rename(self.data)
        handle = os.open(self.home, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _check_version(self, programs: Path) -> None:
        try:
            made_by = (self.data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            raise ServerError(
                f"{self.data} is not a PostgreSQL cluster: PG_VERSION is missing",
                "Restore it, or give another --data directory.",
            ) from None
        printed = self.account.run([programs / "postgres", "-V"])[1]
        found = re.search(r"\d+", printed)
        ours = found.group() if found else printed
        if made_by != ours:
            raise ServerError(
                f"{self.home} was created by PostgreSQL {made_by}; this memfold includes PostgreSQL {ours}",
                f"Dump it with a memfold that includes PostgreSQL {made_by}, or give another --data directory.",
            )

    def _clear_leftovers(self, run: Path) -> None:
        """Remove what a killed server leaves behind. ``running`` has shown that there is no postmaster."""
        orphans = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if self._is_member(process):
                    process.send_signal(signal.SIGQUIT)
                    orphans.append(process)
        for process in psutil.wait_procs(orphans, timeout=10)[1]:
            with contextlib.suppress(psutil.Error):
                process.kill()
                process.wait(10)
        stale = _number(self._pid_file(), 0)
        if stale > 0 and psutil.pid_exists(stale):
            # PostgreSQL takes any process with that id for our server. The rest of the file stays, because it shows
            # PostgreSQL whether the shared memory is in use. Written as the account, not as root.
            change = f'sed "1s/.*/{_NO_PROCESS}/" postmaster.pid >pid.new && mv pid.new postmaster.pid'
            self.account.run(["/bin/sh", "-c", change], cwd=self.data)
        for socket in run.glob(".s.PGSQL.*"):
            socket.unlink(missing_ok=True)

    def _programs(self) -> Path:
        """The server's programs, at a path that the account can read and pg_ctl can quote."""
        programs = bindir()
        quotable = re.search(r'["$`\\\n]', str(programs)) is None
        if os.geteuid() != 0:
            if not quotable:
                raise ServerError(f"pg_ctl cannot run from {programs}", "Install memfold under a plain path.")
            return programs
        if not self.account.can_enter(self.home):
            raise ServerError(
                f"the account {self.account.name}, which runs the server for root, cannot enter {self.home}",
                f"Omit --data (then it is {default_data_dir()}), give a directory whose parents that"
                " account may enter, or run memfold as an ordinary user.",
            )
        if quotable and self.account.can_enter(programs.parent / "share" / "extension"):
            with contextlib.suppress(OSError):
                if self.account.run([programs / "initdb", "--version"])[0] == 0:
                    return programs
        return host.readable_copy(programs)

    def _socket_dir(self, port: int) -> Path:
        """DIR/run or, if that is too long for a socket, a private directory named after DIR."""
        if os.geteuid() == 0:
            bases = ["/run", "/tmp"]  # noqa: S108 (private_dir refuses what others made)
        else:
            bases = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"]  # noqa: S108
        own = [Path(base) / f"{self.tag}-{self.account.uid}" for base in bases if base]
        for directory in (self.home / "run", *own):
            # A comma would mean two sockets to the server, and two hosts to libpq.
            short = len(os.fsencode(directory / f".s.PGSQL.{port}")) <= _SOCKET_PATH_MAX
            if short and not set(str(directory)) & set(',"\\'):
                with contextlib.suppress(OSError):
                    host.private_dir(directory, self.account)
                    return directory
        raise ServerError(
            f"no private directory with a short name is available for the socket of {self.home}",
            "Give a --data directory with a shorter name.",
        )

    def _failure(self, message: str, printed: str = "") -> ServerError:
        """An error that shows the end of the server's log."""
        logs = [path for path in (*self.data.glob("log/*.log"), self.data / "startup.log") if path.is_file()]
        logs.sort(key=lambda path: path.stat().st_mtime)
        tail = [line for path in logs[-2:] for line in path.read_text(errors="replace").splitlines()[-6:]]
        return ServerError(
            f"{message} ({self.home})", "\n".join([printed, *tail]).strip() or "It left no log."
        )

    def connect(self, server: Postmaster, database: str) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host=server.socket_dir,
            port=server.port,
            user=ROLE,
            dbname=database,
            autocommit=True,
            connect_timeout=30,
        )

    def patiently(self, server: Postmaster, work: Callable[[Postmaster], None]) -> None:
        """Retry while the server recovers from the death of one of its processes."""
        deadline = time.monotonic() + host.PATIENCE
        while True:
            try:
                return work(server)
            except psycopg.OperationalError as error:
                passing = error.sqlstate in _PASSING or any(words in str(error) for words in _PASSING_WORDS)
                if not passing or self.running() is None or time.monotonic() > deadline:
                    where = shlex.quote(str(self.home))
                    raise ServerError(
                        f"the server in {self.home} does not answer: {error}",
                        f"Restart it: memfold down --data {where}; memfold up --data {where}",
                    ) from error
            time.sleep(0.05)

    def ensure_database(self, server: Postmaster) -> None:
        self.patiently(server, self._make_database)

    def _make_database(self, server: Postmaster) -> None:
        # The server may still execute what a killed call had sent: then these wait for it, and find it done.
        done = (
            psycopg.errors.DuplicateDatabase,
            psycopg.errors.DuplicateObject,
            psycopg.errors.UniqueViolation,
        )
        with self.connect(server, "postgres") as connection, contextlib.suppress(*done):
            if not connection.execute("select 1 from pg_database where datname = %s", [DATABASE]).fetchone():
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))
        with self.connect(server, DATABASE) as connection, contextlib.suppress(*done):
            query = (
                "select installed_version, default_version from pg_available_extensions where name = 'vector'"
            )
            installed, offered = connection.execute(query).fetchone() or (None, None)
            if installed is None:
                connection.execute("create extension if not exists vector")
            elif installed != offered:
                connection.execute("alter extension vector update")


def _number(lines: Sequence[str], index: int) -> int:
    try:
        return int(lines[index])
    except (IndexError, ValueError):
        return 0


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
