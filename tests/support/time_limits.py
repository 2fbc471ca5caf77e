"""No test runs indefinitely: each has a limit, ``timeout`` of pyproject.toml unless its marker ``timeout`` sets another.

pytest-timeout counts. Its alarm raises once, and only in the main thread; a test that hangs often does so in threads that
wait for the server, and those who open them wait for these as they leave. So the alarm of this plugin first ends what the
test has under way on the servers, then raises, and comes again until the test is over, through its teardown.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import psycopg
import pytest
import pytest_timeout
from psycopg.conninfo import conninfo_to_dict, make_conninfo

# The maximum for any test.
LONGEST = 3600.0
# After the first alarm, if the test still hangs.
AGAIN = 20.0

END_ALL = """
select pg_terminate_backend(pid) from pg_stat_activity
where pid <> pg_backend_pid() and (datname = %(name)s or %(name)s = 'postgres' and backend_type = 'client backend')
"""

_databases: set[str] = set()
_phase: str = ""
_deadline = pytest.StashKey[float]()


def watch(dsn: str) -> None:
    """End what runs in this database when the test's time is over; the database postgres: in its whole server."""
    _databases.add(dsn)


def problem(item: pytest.Item) -> str | None:
    """Things that keep the limit of a test from ending it."""
    limit = pytest_timeout._get_item_settings(item)
    if not limit.timeout:
        return "has no time limit"
    if limit.timeout > LONGEST:
        return f"has a time limit of {limit.timeout:.0f} s; more than {LONGEST:.0f} is none"
    if limit.func_only:
        return "has a time limit that leaves its fixtures out"
    if limit.method != "signal":
        return f"has a time limit by {limit.method}, which would end the run with it"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    found = [f"{item.nodeid} {why}" for item in items if (why := problem(item))]
    if found:
        raise pytest.UsageError("\n".join(found))


def _end_statements() -> None:
    for dsn in _databases:
        name = str(conninfo_to_dict(dsn).get("dbname"))
        with suppress(psycopg.Error):
            at = make_conninfo(dsn, dbname="postgres", connect_timeout=5, options="-cstatement_timeout=5s")
            with psycopg.connect(at, autocommit=True) as connection:
                connection.execute(END_ALL, {"name": name})


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    def alarm(_signal: int, _frame: FrameType | None) -> None:
        __tracebackhide__ = True
        # pytest itself runs between the phases; the alarm comes again
        if _phase and not pytest_timeout.is_debugging():
            faulthandler.dump_traceback(sys.__stderr__, all_threads=True)
            _end_statements()
            pytest.fail(f"the test went on for more than {item.stash[_deadline]:g} s ({_phase})")

    item.stash[_deadline] = settings.timeout
    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, AGAIN)
    return True


def allow(item: pytest.Item, seconds: float) -> None:
    """The time that a test has left."""
    item.stash[_deadline] = seconds
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool:
    # pytest-timeout would stop its clock as soon as a test has failed, and let the teardown hang
    if _deadline in item.stash and not item.config.getoption("usepdb"):
        return True
    signal.setitimer(signal.ITIMER_REAL, 0)
    return True


def pytest_runtest_logfinish(nodeid: str) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    _databases.clear()


def _during(phase: str) -> Iterator[None]:
    global _phase
    _phase = phase
    try:
        return (yield)
    finally:
        _phase = ""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Iterator[None]:
    return (yield from _during("setup"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call() -> Iterator[None]:
    return (yield from _during("call"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Iterator[None]:
    return (yield from _during("teardown"))
