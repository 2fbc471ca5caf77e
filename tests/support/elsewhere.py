"""The suite on several servers: what runs there, what is known to fail there, and why.

``contrib/<place>/tests/expected_failures.txt`` lists the expected failures of a place: a line ``# <reason>`` for each row of
the table in ``contrib/<place>/README.md``, and under it the tests that it makes fail, with one case or all (no ``[...]``). A
listed test that passes fails the run, unless the reason says ``(now and then)``; ``(not run)``: it would wait minutes for
what never happens there. A listed test that no longer exists stops the run.

Tests that use what a place does not have (``Place.missing``) are expected failures by that rule, and must not be listed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest

from tests.support import servers

# Fixtures that make databases or start servers without the place.
FIXTURES = ("make", "own_cluster", "standby")
MARKERS = ("full_server", "each_server")
# Folders and modules that would show nothing at any such place.
NOWHERE = {
    "test_adopt": "adoption is of tables on one server",
    "test_adopt_fire": "adoption is of tables on one server",
    "test_adopt_interrupted": "adoption is of tables on one server",
    "test_adopt_peers": "adoption is of tables on one server",
    "test_import": "adoption is of tables on one server",
    "integrations": "adapters are tested on one server",
    "test_docs_commands": "the pages show what one server prints",
    "test_catalog": "is about the catalog of one server",
    "test_surface": "is about the catalog of one server",
    "test_hooks": "is about the catalog of one server",
    "test_query_plans": "is about plans on one server",
    "test_modules": "is about the catalog of one server",
    "test_stateful": "would take hours: each of its many cases asks for a fresh database",
    "test_web": "the page is of one server",
    "test_web_browser": "the page is of one server",
    "test_web_guard": "the page is of one server",
    "test_citus": "has servers of its own",
}
FLAKY = " (now and then)"
NOT_RUN = " (not run)"

_left_out: Counter[str] = Counter()


class Place(Protocol):
    """Servers that answer together."""

    @property
    def cluster(self) -> servers.Cluster:
        """The server that a test connects to."""

    @property
    def not_here(self) -> Mapping[str, str]:
        """Modules, in addition to NOWHERE, that would show nothing there, and why."""

    def start_suite(self) -> None:
        """Start the servers, with a database on each to be copied for each test."""

    def stop(self) -> None: ...

    def copy(self, name: str) -> AbstractContextManager[psycopg.Connection[Any]]:
        """Create databases of that name; returns a superuser's connection to the first."""

    def missing(self, error: BaseException) -> str | None:
        """The reason if a test failed because it uses what no such place has."""


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
    """The test, by no version of a server and no group."""
    target = f"{place.cluster.name}{place.cluster.major}-alembic"
    return (
        re.sub(r"@\w+$", "", item.nodeid)
        .replace(f"[{target}]", "")
        .replace(f"[{target}-", "[")
        .replace(f"-{target}]", "]")
    )


def _all_cases(place: Place, item: pytest.Item) -> str:
    """The test, by no parameters: for a line that lists all of its cases."""
    return name(place, item).partition("[")[0]


def _why_not(place: Place, item: pytest.Item) -> str | None:
    left_out = {**NOWHERE, **place.not_here}
    if reason := left_out.get(item.path.stem) or left_out.get(item.path.parent.name):
        return reason
    fixtures = getattr(item, "fixturenames", [])
    if "db" not in fixtures:
        return "asks no database"
    if set(FIXTURES) & set(fixtures) or any(item.get_closest_marker(marker) for marker in MARKERS):
        return "makes databases or servers of its own"
    return None


def choose(place: Place, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that would show nothing there; expect the known failures."""
    known = expected_failures(place.cluster.name)
    if not any("::" in argument for argument in config.args):
        # only for files that were collected whole
        files = {item.nodeid.partition("::")[0] for item in items}
        gone = {one for one in known if one.partition("::")[0] in files} - {
            one for item in items for one in (name(place, item), _all_cases(place, item))
        }
        if gone:
            raise pytest.UsageError(f"listed as expected failures, but gone: {', '.join(sorted(gone))}")
    here, elsewhere = [], []
    for item in items:
        reason = known.get(name(place, item)) or known.get(_all_cases(place, item), "")
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


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it came from."""
    while error is not None:
        yield error
        for one in getattr(error, "exceptions", ()):
            yield from _chain(one)
        error = error.__cause__ or error.__context__


def _behind(failure: pytest.ExceptionInfo[BaseException]) -> Iterator[BaseException]:
    """The errors that a test failed with, and those that it expected and inspected."""
    yield from _chain(failure.value)
    for step in failure.traceback:
        for value in step.frame.f_locals.values():
            if isinstance(value, pytest.ExceptionInfo):
                with suppress(AssertionError):  # nothing was raised
                    yield value.value


def _is_sent_by_a_test(error: BaseException) -> bool:
    """Whether the tests' own code raised it, or sent the statement.

    memfold itself must not use what a place does not have.
    """
    step, files = error.__traceback__, []
    while step is not None:
        files.append(Path(step.tb_frame.f_code.co_filename))
        step = step.tb_next
    inner = [
        file.relative_to(servers.ROOT).parts[0]
        for file in files
        if file.is_relative_to(servers.ROOT) and "site-packages" not in file.parts
    ]
    return inner[-1:] in (["tests"], ["contrib"])


def excuse(place: Place, item: pytest.Item, call: pytest.CallInfo[Any], report: pytest.TestReport) -> None:
    """Make expected failures of those that the rule of the place explains."""
    if call.excinfo is None or call.when == "teardown" or not (report.failed or hasattr(report, "wasxfail")):
        return
    for error in _behind(call.excinfo):
        why = place.missing(error) if _is_sent_by_a_test(error) else None
        if why is None:
            continue
        if report.failed:
            report.outcome, report.wasxfail = "skipped", f"reason: {why}"
        else:
            report.outcome = "failed"
            report.longrepr = (
                f"{name(place, item)} is listed as an expected failure, but a rule explains it: {why}"
            )
            del report.wasxfail
        return


def summary(place: Place) -> list[str]:
    """The last lines of the run's output."""
    return [
        f"ran on {place.cluster.name}{place.cluster.major} ({place.cluster.bindir})",
        *(f"left out: {count} tests: {reason}" for reason, count in _left_out.most_common()),
    ]
