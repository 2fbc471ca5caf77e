"""What `make check`, `make test` and `make nightly` run."""

from __future__ import annotations

import re

import mutate
from tests.support import durations, elsewhere, second_server
from tests.support.servers import ROOT


def test_each_promise_has_a_test_in_make_test() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| \d+ \|.*$", page.partition("## What proves the promises")[2], re.M)
    assert len(rows) == 12
    limit = re.search(r"^SLOW +:= ([\d.]+)", (ROOT / "Makefile").read_text(), re.M)
    assert limit is not None
    recorded = durations.read()
    for row in rows:
        fast = [
            test
            for file in re.findall(r"`(tests/[\w/]+\.py)`", row)
            for test in re.findall(r"^ *def (test_\w+)", (ROOT / file).read_text(), re.M)
            if recorded[file].get(test, 0) < 100 * float(limit[1])
        ]
        assert fast, row


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


def test_hypothesis_has_the_settings_of_the_loop() -> None:
    """Those are the defaults when ``settings`` is called: it comes from draws.py."""
    elsewhere = re.compile(r"from hypothesis import .*\bsettings\b|hypothesis\.settings")
    found = [p.name for p in (ROOT / "tests").rglob("*.py") if elsewhere.search(p.read_text())]
    assert sorted(found) == ["draws.py", "test_loops.py"]
