"""Files that tests put into a system directory are removed after the run, and replaced ones are restored."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import servers
from tests.support.shared_files import InUseError, SharedFiles

KILLED = """
import os, pathlib, signal, sys
from tests.support.shared_files import SharedFiles
SharedFiles(pathlib.Path(sys.argv[1])).put(pathlib.Path(sys.argv[2]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def fill(place: Path, **files: str) -> Path:
    place.mkdir(exist_ok=True)
    for name, text in files.items():
        (place / name).write_text(text)
    return place


def state(place: Path) -> dict[str, tuple[bytes, int, int]]:
    """Everything in the directory, with times and modes."""
    return {
        str(path.relative_to(place)): (
            path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns if path.is_file() else 0,
            path.stat().st_mode,
        )
        for path in place.rglob("*")
    }  # fmt: skip


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """An extension that an administrator has installed, and others."""
    place = fill(tmp_path / "extension", vector="others", memfold="an administrator's")
    (place / "memfold").chmod(0o640)
    return place


def test_undone_as_a_run(tmp_path: Path, system: Path) -> None:
    before = state(system)
    files = SharedFiles(system)
    files.put(fill(tmp_path / "made", memfold="ours", later="ours too"))
    assert (system / "memfold").read_text() == "ours"
    assert (system / "later").read_text() == "ours too"
    assert (system / "later").stat().st_mode & 0o777 == 0o644
    files.take_back()
    assert state(system) == before
    files.take_back()
    assert state(system) == before


def test_shared_by_runs_that_want_the_same(tmp_path: Path, system: Path) -> None:
    before = state(system)
    made = fill(tmp_path / "made", memfold="ours", later="ours too")
    one, two = SharedFiles(system), SharedFiles(system)
    one.put(made)
    two.put(made)
    one.take_back()
    assert (system / "memfold").read_text() == "ours"
    two.take_back()
    assert state(system) == before


def test_other_files_do_not_break_a_run(tmp_path: Path, system: Path) -> None:
    before = state(system)
    one, two = SharedFiles(system), SharedFiles(system)
    one.put(fill(tmp_path / "made", memfold="ours"))
    other = fill(tmp_path / "other", memfold="another checkout's")
    with pytest.raises(InUseError, match="another run of the tests"):
        two.put(other)
    two.take_back()
    assert (system / "memfold").read_text() == "ours"
    one.take_back()
    assert state(system) == before
    two.put(other)
    assert (system / "memfold").read_text() == "another checkout's"
    two.take_back()
    assert state(system) == before


def test_after_a_run_that_was_killed(tmp_path: Path, system: Path) -> None:
    before = state(system)
    made = fill(tmp_path / "made", memfold="ours", later="ours too")
    done = subprocess.run([sys.executable, "-c", KILLED, system, made], cwd=servers.ROOT, check=False)
    assert done.returncode < 0
    assert (system / "later").exists()
    files = SharedFiles(system)
    files.put(fill(tmp_path / "other", memfold="of the next run"))
    assert (system / "memfold").read_text() == "of the next run"
    assert not (system / "later").exists()
    files.take_back()
    assert state(system) == before


def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        SharedFiles(tmp_path / "none").put(fill(tmp_path / "made", memfold="ours"))
