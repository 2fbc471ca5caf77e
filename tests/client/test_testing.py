"""memfold.testing in a project's own suite: the page's tests, run by pytest in a separate directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Target
from tests.support import servers
from tests.support.docs_pages import PAGES, blocks
from tests.support.queries import DB

pytestmark = [pytest.mark.one_server, pytest.mark.timeout(180)]

(PAGE,) = (page for page in PAGES if page.name == "testing.md")
OTHERS = """
def test_one(memfold, fake_embedder):
    memfold.ingest("Bob plays the cello.")
    near, far = fake_embedder.embed(["Bob plays the cello now.", "It rains."])
    (same,) = fake_embedder.embed(["Bob plays the cello."])
    assert sum(a * b for a, b in zip(same, near)) > 0.8 > 0.3 > sum(a * b for a, b in zip(same, far))


def test_another(memfold, memfold_server, memfold_dsn):
    assert memfold.list() == ()
    name = memfold_server.create()
    assert name not in memfold_dsn
    memfold_server.drop(name)


def test_a_judge_without_an_answer_is_down(memfold, fake_judge):
    memfold.ingest("Bob has no car.")
    asked = memfold.ingest("Bob has a car.", wait=True)
    assert len(fake_judge.questions) == 1
    assert asked.resolution.status != "done"
    assert len(memfold.list()) == 2
"""


def run(directory: Path, tests: str, *arguments: str, dsn: str = "") -> subprocess.CompletedProcess[str]:
    (directory / "pytest.ini").write_text("[pytest]\n")
    (directory / "test_app.py").write_text(tests)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PG"))}
    environment |= {
        # an entry point of another checkout may be installed, too
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join([str(servers.ROOT / "python_client"), *sys.path]),
        "MEMFOLD_TEST_DSN": dsn,
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "memfold.testing", *arguments, "."],
        cwd=directory, env=environment, capture_output=True, text=True, timeout=150,
    )  # fmt: skip


def test_the_page_on_the_embedded_server(tmp_path: Path) -> None:
    python = list(blocks(PAGE, "python"))
    (printed,) = blocks(PAGE, "text")
    done = run(tmp_path, "\n\n".join(python))
    assert done.returncode == 0, done.stdout + done.stderr
    passed = python[0].count("def test_")
    assert printed == f"{passed} passed\n"
    assert f"{passed + 1} passed" in done.stdout


def test_a_server_of_ones_own_is_left_as_it_was(tmp_path: Path, target: Target, db: DB) -> None:
    before = databases(db)
    done = run(tmp_path, OTHERS, dsn=target.cluster.dsn())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert databases(db) == before


def databases(db: DB) -> set[str]:
    rows = db.execute("select datname from pg_database where datname ~ 'memfold_test'").fetchall()
    return {str(name) for (name,) in rows}


def test_a_suite_without_memfold_starts_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "def test_nothing():\n    import sys\n    assert 'psycopg' not in sys.modules\n")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
