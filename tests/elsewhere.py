"""The suite on several servers: what of it runs there, what is known to fail there, and why.

``contrib/<place>/tests/expected_failures.txt`` lists the expected failures of a place: a line ``# <reason>`` for each row of
the table in ``contrib/<place>/README.md``, and under it the tests that it makes fail. A listed test that passes fails the
run, unless the reason says ``(now and then)``; ``(not run)``: it would wait minutes for what never happens there.
A listed test that no longer exists stops the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import psycopg
import pytest

from tests import servers

# What makes or starts databases and servers without the place.
FIXTURES = ("make", "own_cluster", "standby")
MARKERS = ("full_server", "each_server")
# Modules that could say nothing at any such place.
NOWHERE = {
    "test_adopt": "adoption is of tables on one server",
    "test_adopt_fire": "adoption is of tables on one server",
    "test_adopt_interrupted": "adoption is of tables on one server",
    "test_adopt_peers": "adoption is of tables on one server",
    "test_import": "adoption is of tables on one server",
    "test_docs_commands": "the pages show what one server prints",
    "test_catalog": "is about the catalog of one server",
    "test_surface": "is about the catalog of one server",
    "test_hooks": "is about the catalog of one server",
    "test_modules": "is about the catalog of one server",
    "test_stateful": "would take hours: each of its many cases asks for a fresh database",
    "test_adk": "adapters are tested on one server",
    "test_adk_agent": "adapters are tested on one server",
    "test_crewai": "adapters are tested on one server",
    "test_langchain": "adapters are tested on one server",
    "test_langgraph": "adapters are tested on one server",
    "test_langgraph_facts": "adapters are tested on one server",
    "test_llamaindex": "adapters are tested on one server",
    "test_mem0": "adapters are tested on one server",
    "test_citus": "has servers of its own",
    "test_plproxy": "has servers of its own",
}
FLAKY = " (now and then)"
NOT_RUN = " (not run)"

_left_out: Counter[str] = Counter()


class Place(Protocol):
    """Servers that answer together."""

    @property
    def cluster(self) -> servers.Cluster:
        """The server that a test is led to."""

    @property
    def not_here(self) -> Mapping[str, str]:
        """Modules that could say nothing there, but for NOWHERE, and why."""

    def start_suite(self) -> None:
        """Start the servers, with a database on each to be copied for each test."""

    def stop(self) -> None: ...

    def copy(self, name: str) -> AbstractContextManager[psycopg.Connection[Any]]:
        """Databases of that name; leads to the first as its superuser."""


def expected_failures(place: str) -> dict[str, str]:
    """Which tests are expected to fail there, and why."""
    found: dict[str, str] = {}
    reason = ""
    path = servers.ROOT / "contrib" / place / "tests" / "expected_failures.txt"
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line:
            found[line] = reason
    return found


def name(place: Place, item: pytest.Item) -> str:
    """The test, by no version of a server."""
    target = f"{place.cluster.name}{place.cluster.major}-alembic"
    return item.nodeid.replace(f"[{target}]", "").replace(f"[{target}-", "[").replace(f"-{target}]", "]")


def _why_not(place: Place, item: pytest.Item) -> str | None:
    module = {**NOWHERE, **place.not_here}.get(item.path.stem)
    if module:
        return module
    fixtures = getattr(item, "fixturenames", [])
    if "db" not in fixtures:
        return "asks no database"
    if set(FIXTURES) & set(fixtures) or any(item.get_closest_marker(marker) for marker in MARKERS):
        return "makes databases or servers of its own"
    return None


def choose(place: Place, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what could say nothing there; expect the known failures."""
    known = expected_failures(place.cluster.name)
    if not any("::" in argument for argument in config.args):
        # whole files: what is listed of them is there
        files = {item.nodeid.partition("::")[0] for item in items}
        gone = {one for one in known if one.partition("::")[0] in files} - {
            name(place, item) for item in items
        }
        if gone:
            raise pytest.UsageError(f"listed as expected failures, but gone: {', '.join(sorted(gone))}")
    here, elsewhere = [], []
    for item in items:
        reason = known.get(name(place, item), "")
        why_not = reason.removesuffix(NOT_RUN) if reason.endswith(NOT_RUN) else _why_not(place, item)
        if why_not:
            _left_out[why_not] += 1
            elsewhere.append(item)
            continue
        here.append(item)
        if reason:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=not reason.endswith(FLAKY)))
    items[:] = here
    config.hook.pytest_deselected(items=elsewhere)


def summary(place: Place) -> list[str]:
    """The last lines of the run's output."""
    return [
        f"ran on {place.cluster.name}{place.cluster.major} ({place.cluster.bindir})",
        *(f"left out: {count} tests: {reason}" for reason, count in _left_out.most_common()),
    ]
