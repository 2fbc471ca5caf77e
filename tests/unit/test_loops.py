"""What `make check`, `make test` and `make nightly` run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import psycopg
import pytest

import mutate
from tests.support import elsewhere, second_server
from tests.support.servers import PORT, ROOT, STARTED, SUPERUSER


def collected(*options: str) -> dict[str, int]:
    """By file, how many tests a run with these options has."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-n", "0", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {file: int(n) for file, n in re.findall(r"^(tests/[\w/]+\.py): (\d+)$", done.stdout, re.M)}


def test_each_file_that_proves_a_promise_is_in_make_test() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| \d+ \|.*$", page.partition("## What proves the promises")[2], re.M)
    assert len(rows) == 12
    files = sorted({file for row in rows for file in re.findall(r"`(tests/[\w/]+\.py)`", row)})
    limit = re.search(r"^SLOW +:= ([\d.]+)", (ROOT / "Makefile").read_text(), re.M)
    assert limit is not None
    assert sorted(collected("--faster-than", limit[1], *files)) == files


def test_make_slow_runs_what_make_test_leaves_out() -> None:
    file = "tests/adversarial/test_crash.py"
    limits = ([], ["--faster-than", "2"], ["--slower-than", "2"])
    whole, fast, slow = (collected(*limit, file)[file] for limit in limits)
    assert min(fast, slow) > 0
    assert fast + slow == whole


def test_a_collection_leaves_the_servers_of_a_run_alone() -> None:
    servers = json.loads(os.environ[STARTED])
    assert servers
    collected("tests/unit/test_limits.py")
    for _, _, base, *_ in servers:
        with psycopg.connect(f"host={base} port={PORT} user={SUPERUSER} dbname=postgres") as connection:
            connection.execute("select")


def test_the_second_server_runs_existing_files() -> None:
    assert [name for name in second_server.DIFFERS if not (ROOT / name).exists()] == []
    assert second_server.runs(ROOT / "tests/install/test_dump.py")
    assert second_server.runs(ROOT / "tests/sql/test_undo.py") == second_server.NIGHTLY


def test_expected_failures_on_citus_are_tests_that_exist() -> None:
    for listed in elsewhere.expected_failures("citus"):
        file, *_, test = listed.partition("[")[0].split("::")
        assert (ROOT / file).is_file(), listed
        assert f"def {test}(" in (ROOT / file).read_text(), listed


def test_tests_of_a_changed_file() -> None:
    # itself; its mistakes; what names it, where few do
    assert "tests/sql/test_undo.py" in mutate.tests_of({"tests/sql/test_undo.py"})
    assert "tests/install/test_upgrade.py" in mutate.tests_of({"migrations/env.py"})
    assert "tests/unit/test_limits.py" in mutate.tests_of({"python_client/memfold/client/limits.py"})
    assert mutate.tests_of({"none/of_these.py"}) == ["tests/unit/test_loops.py"]


def test_several_processes_keep_the_tests_of_a_file_together(request: pytest.FixtureRequest) -> None:
    """They make the roles of the server that they need. Without the group's name, tests are handed out one by one."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    assert request.node.nodeid.endswith("together" if alone else "together@test_loops")


def test_hypothesis_has_the_settings_of_the_loop() -> None:
    """Those are the defaults when ``settings`` is called: it comes from draws.py."""
    elsewhere = re.compile(r"from hypothesis import .*\bsettings\b|hypothesis\.settings")
    found = [p.name for p in (ROOT / "tests").rglob("*.py") if elsewhere.search(p.read_text())]
    assert sorted(found) == ["draws.py", "test_loops.py"]
