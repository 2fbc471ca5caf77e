"""A test that hangs fails at its time limit, whatever it hangs in, and the next one runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_server

ROOT = Path(__file__).parents[2]

CONFTEST = """
from tests.support import time_limits
time_limits.AGAIN = 1.0

def pytest_configure(config):
    config.pluginmanager.register(time_limits)
"""

HANGING = """
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.support import time_limits

DSN = {dsn!r}
pytestmark = pytest.mark.timeout(1)


@pytest.fixture
def db():
    time_limits.watch(DSN)
    with psycopg.connect(DSN, autocommit=True) as connection:
        yield connection


def hang(db):
    db.execute("select pg_sleep(600)")


@pytest.fixture
def slow_to_come(db):
    hang(db)


@pytest.fixture
def slow_to_go(db):
    yield
    hang(db)


def test_in_a_statement(db):
    hang(db)


def test_in_a_thread(db):
    thread = threading.Thread(target=hang, args=[db])
    thread.start()
    thread.join()


def test_in_a_pool(db):
    with ThreadPoolExecutor() as pool:
        pool.submit(hang, db)


def test_in_a_program():
    subprocess.run(["sleep", "600"])


def test_in_a_loop():
    while True:
        try:
            pass
        except Exception:
            pass


def test_in_setup(slow_to_come):
    pass


def test_in_teardown(slow_to_go):
    pass


def test_in_teardown_after_a_failure(slow_to_go):
    assert False


@pytest.mark.timeout(60)
def test_that_is_all_right(db):
    assert db.execute("select 1").fetchone() == (1,)
"""


def run(place: Path, *options: str) -> str:
    """The output of pytest for the tests in a directory, with the settings of this repository."""
    (place / "conftest.py").write_text(CONFTEST)
    command = [
        sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", place, "-p", "no:cacheprovider",
        "-p", "no:randomly", *options, place,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    return done.stdout + done.stderr


def test_a_test_that_hangs_fails_and_the_run_continues(tmp_path: Path, dsn: str) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING.format(dsn=dsn))
    printed = run(tmp_path, "-rA", "--tb=line")
    outcomes = set(re.findall(r"^(PASSED|FAILED|ERROR) .*::test_(\w+)", printed, re.MULTILINE))
    hung = ("in_a_statement", "in_a_thread", "in_a_pool", "in_a_program", "in_a_loop")
    assert {name for outcome, name in outcomes if outcome == "FAILED"} == {
        *hung,
        "in_teardown_after_a_failure",
    }
    assert {
        ("ERROR", "in_setup"),
        ("ERROR", "in_teardown"),
        ("ERROR", "in_teardown_after_a_failure"),
    } <= outcomes
    assert {name for outcome, name in outcomes if outcome == "PASSED"} == {"in_teardown", "that_is_all_right"}
    for phase in ("setup", "call", "teardown"):
        assert f"the test went on for more than 1 s ({phase})" in printed


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("timeout(0)", "has no time limit"),
        ("timeout(4000)", "has a time limit of 4000 s"),
        ("timeout(10, func_only=True)", "has a time limit that leaves its fixtures out"),
        ("timeout(10, method='thread')", "has a time limit by thread"),
    ],
)
def test_an_invalid_limit_is_refused(tmp_path: Path, how: str, what: str) -> None:
    (tmp_path / "test_one.py").write_text(
        f"import pytest\n\n@pytest.mark.{how}\ndef test_one():\n    pass\n\ndef test_two():\n    pass\n"
    )
    printed = run(tmp_path)
    assert f"test_one.py::test_one {what}" in printed
    assert "test_two" not in printed
    assert "passed" not in printed


def test_a_run_without_a_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one():\n    pass\n")
    assert "1 passed" in run(tmp_path)
    assert "test_one.py::test_one has no time limit" in run(tmp_path, "--timeout=0")
    assert "pytest-timeout" in run(tmp_path, "-p", "no:timeout")
