"""Files in a directory that is not ours, such as a server's extension directory: put there for a run, then removed.

Before 18, PostgreSQL finds an extension only in its own directory. Files that were there before are kept, and restored when
the last run that uses the files has ended; of a run that was killed, when the next one begins. Runs that want the same
files, such as two of one checkout, share them; one that wants others, while they are in use, does without.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

KEPT = ".memfold-tests"


class InUseError(RuntimeError):
    """Another run has different files with these names there."""


class SharedFiles:
    """The files of ``source`` in ``directory``, from ``put`` to ``take_back``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._kept = directory / KEPT
        self._mine: Path | None = None
        self._pid = os.getpid()

    def put(self, source: Path) -> None:
        """Raises OSError where the directory may not be written, InUseError where another run has other files there."""
        files = sorted(path for path in source.iterdir() if path.is_file())
        digest = hashlib.sha256(repr([(f.name, f.read_bytes()) for f in files]).encode()).hexdigest()
        with self._locked():
            users = self._users()
            if self._kept.exists() and not users:
                self._restore()
            if not users:
                self._keep([file.name for file in files], digest)
            elif (self._kept / "digest").read_text() != digest:
                raise InUseError(f"another run of the tests has other files in {self.directory}")
            process = psutil.Process()
            self._mine = self._kept / "users" / f"{process.pid}-{process.create_time()}-{id(self)}"
            self._mine.touch()
            if not users:
                for file in files:
                    _copy(file, self.directory / file.name)

    def take_back(self) -> None:
        # not in a forked process
        if self._mine is None or os.getpid() != self._pid:
            return
        with self._locked():
            self._mine.unlink(missing_ok=True)
            self._mine = None
            if not self._users():
                self._restore()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        handle = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _users(self) -> list[Path]:
        """Live runs; records of dead ones are removed."""
        found = []
        for path in (self._kept / "users").glob("*"):
            pid, created, _ = path.name.split("-")
            with suppress(psutil.NoSuchProcess):
                if psutil.Process(int(pid)).create_time() == float(created):
                    found.append(path)
                    continue
            path.unlink()
        return found

    def _keep(self, names: list[str], digest: str) -> None:
        """Back up existing files with these names before they are overwritten, completely or not at all if it is
        killed."""
        work = self.directory / f"{KEPT}.new"
        shutil.rmtree(work, ignore_errors=True)
        for part in ("before", "users"):
            (work / part).mkdir(parents=True)
        for name in names:
            if (self.directory / name).exists():
                shutil.copy2(self.directory / name, work / "before" / name)
        (work / "names").write_text("\n".join(names))
        (work / "digest").write_text(digest)
        work.rename(self._kept)

    def _restore(self) -> None:
        if not self._kept.exists():
            return
        for name in (self._kept / "names").read_text().split("\n"):
            before = self._kept / "before" / name
            if before.exists():
                _copy(before, self.directory / name)
            else:
                (self.directory / name).unlink(missing_ok=True)
        shutil.rmtree(self._kept)


def _copy(source: Path, target: Path) -> None:
    """Under its name there is the old file or the new one, at any time: another server may be reading it."""
    work = target.with_name(f"{target.name}.memfold-tests")
    shutil.copy2(source, work)
    if source.parent.name != "before":
        work.chmod(0o644)
    work.rename(target)
