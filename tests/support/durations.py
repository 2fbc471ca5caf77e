"""Which tests a loop has time for, by how long they took: ``--quick``, ``--faster-than`` and ``--slower-than``.

``--record`` writes the durations of a run to tests/data/durations.json: hundredths of a second, of all cases of a test
together, on the target that takes longest. A test that is not in the file takes no time, if others of its module are; of
a module that is not there, ``--quick`` runs nothing, because a test of it may take long.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "data" / "durations.json"
BUDGET = 14.0
"""Seconds of ``--quick``, of two processes together."""
NOTHING = 2
"""Hundredths of a second: what is not written to the file."""


def name(nodeid: str) -> tuple[str, str]:
    """The file and the function of a test, without its case and its group."""
    path, _, rest = nodeid.partition("::")
    return path, re.split(r"[\[@]", rest, maxsplit=1)[0]


def target(item: pytest.Item) -> str:
    """What it runs on; empty for a test without a database."""
    given = getattr(item, "callspec", None)
    return "" if given is None else str(given.params.get("target", ""))


def read() -> dict[str, dict[str, int]]:
    recorded: dict[str, dict[str, int]] = json.loads(FILE.read_text())
    return recorded


def quick(items: list[pytest.Item], main: str) -> set[pytest.Item]:
    """The fastest tests, as many as fit; of those that run with several targets, the cases of the main one."""
    recorded = read()
    tests: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if target(item) in ("", main):
            tests[name(item.nodeid)].append(item)
    costs = {test: recorded[test[0]].get(test[1], NOTHING) for test in tests if test[0] in recorded}
    kept: set[pytest.Item] = set()
    left = BUDGET * 100
    for test in sorted(costs, key=lambda test: (costs[test], test)):
        left -= costs[test]
        if left < 0:
            break
        kept.update(tests[test])
    return kept


def seconds(items: list[pytest.Item]) -> dict[pytest.Item, float]:
    """How long each case takes, on average of the cases of its test on one target."""
    recorded = read()
    cases = Counter((name(item.nodeid), target(item)) for item in items)
    return {
        item: recorded.get(path, {}).get(test, NOTHING) / 100 / cases[(path, test), target(item)]
        for item in items
        for path, test in [name(item.nodeid)]
    }


class Recorder:
    """Adds up how long the tests take, and writes it when the run ends."""

    def __init__(self, targets: list[str]) -> None:
        self.targets = targets
        self.seconds: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        case = report.nodeid.partition("[")[2]
        on = next((one for one in self.targets if one in case), "")
        self.seconds[name(report.nodeid)][on] += report.duration

    def pytest_sessionfinish(self) -> None:
        # of files that did not run, what was recorded before
        ran = {path for path, _ in self.seconds}
        found = defaultdict(dict, {path: tests for path, tests in read().items() if path not in ran})
        for (path, test), by_target in sorted(self.seconds.items()):
            found.setdefault(path, {})  # a module whose tests take no time, too
            if (longest := round(max(by_target.values()) * 100)) > NOTHING:
                found[path][test] = longest
        # a line per file, for diffs
        lines = (f"{json.dumps(path)}: {json.dumps(found[path], sort_keys=True)}" for path in sorted(found))
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
