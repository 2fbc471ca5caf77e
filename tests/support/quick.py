"""The fast tests (``--quick``): those that fit together in half a minute on two cores, by recorded durations.

``--record`` writes the durations of a run to tests/data/durations.json: hundredths of a second, of all cases of a test
together on one target. A test that is not in the file takes no time, if others of its module are; a module that is not
has never been recorded, and none of its tests is among them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "data" / "durations.json"
BUDGET = 14.0
"""Seconds, of two processes together."""
NOTHING = 2
"""Hundredths of a second: what is not written to the file."""


def name(nodeid: str) -> tuple[str, str]:
    """The file and the function of a test, without its case."""
    path, _, rest = nodeid.partition("::")
    return path, rest.partition("[")[0]


def choose(config: pytest.Config, items: list[pytest.Item], target: str) -> None:
    """Keep the fastest tests, as many as fit; of those that run with several targets, the cases of one."""
    recorded: dict[str, dict[str, int]] = json.loads(FILE.read_text())
    tests: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        given = getattr(item, "callspec", None)
        if given is None or str(given.params.get("target", target)) == target:
            tests[name(item.nodeid)].append(item)
    costs = {test: recorded[test[0]].get(test[1], NOTHING) for test in tests if test[0] in recorded}
    kept: set[pytest.Item] = set()
    left = BUDGET * 100
    for test in sorted(costs, key=lambda test: (costs[test], test)):
        left -= costs[test]
        if left < 0:
            break
        kept.update(tests[test])
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


class Recorder:
    """Adds up how long the tests take, and writes it when the run ends."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.seconds: dict[tuple[str, str], float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        case = report.nodeid.partition("[")[2]
        if self.target in case or not any(way in case for way in ("-alembic", "-extension")):
            self.seconds[name(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        # of files that did not run, what was recorded before
        ran = {path for path, _ in self.seconds}
        recorded: dict[str, dict[str, int]] = json.loads(FILE.read_text())
        found = defaultdict(dict, {path: tests for path, tests in recorded.items() if path not in ran})
        for (path, test), seconds in sorted(self.seconds.items()):
            found.setdefault(path, {})  # a module whose tests take no time, too
            if round(seconds * 100) > NOTHING:
                found[path][test] = round(seconds * 100)
        FILE.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")
