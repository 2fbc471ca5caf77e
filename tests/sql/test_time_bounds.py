"""Each argument and each reader that depends on time, a microsecond before a bound, at it, and a microsecond after it.

The arguments and the readers come from the catalog: a new one without its row fails.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.support.catalog import READERS
from tests.support.memories import ingest, model, vector
from tests.support.queries import DB, one

INSTANT = timedelta(microseconds=1)
DAY = timedelta(days=1)
START = datetime(2025, 1, 1, tzinfo=UTC)
END = START + 9 * DAY

Answer = Callable[[DB, datetime], Any]


def ask(query: str) -> Answer:
    """The result of a query about a time."""

    def answer(db: DB, moment: datetime) -> Any:
        (found,) = db.execute(query, {"at": moment}).fetchone() or (None,)
        return found

    return answer


def shown(where: str) -> Answer:
    """Whether a set of memories holds the one that is valid from START until END."""
    return ask(f"select exists (select from {where} as f where f.content = 'Bo lives in Rome')")


CURRENT = "current_memories('acme', as_of => %(at)s)"
SEARCH = "search_memories('[1,0,0,0]', 'm', 'acme', as_of => %(at)s, touch => false)"
WORDS = "search_memories(query => 'Rome', tenant_id => 'acme', as_of => %(at)s, touch => false)"


def recorded_at(db: DB) -> datetime:
    moment: datetime = one(db, "select recorded_at from memory_events where content = 'Bo lives in Rome'")
    return moment


def known(db: DB, moment: datetime) -> Any:
    return one(
        db,
        "select count(*) from current_memories('acme', as_of => %s, known_at => %s) where predicate is not null",
        START,
        moment,
    )


def decayed(db: DB, moment: datetime) -> Any:
    """Whether apply_decay() changes what was used last at START; it is rolled back."""
    with db.transaction(force_rollback=True):
        return one(db, "select decayed from apply_decay('acme', as_of => %s)", moment)


def stated_until(function: str) -> Answer:
    def answer(db: DB, moment: datetime) -> Any:
        with db.transaction(force_rollback=True):
            try:
                return ingest(
                    db, "Bo is away", function=function, valid_from=START, valid_until=moment
                ).action
            except psycopg.Error as error:
                return error.sqlstate

    return answer


def stated_from(function: str) -> Answer:
    def answer(db: DB, moment: datetime) -> Any:
        with db.transaction(force_rollback=True):
            try:
                return ingest(db, "Bo is away", function=function, valid_from=moment, valid_until=END).action
            except psycopg.Error as error:
                return error.sqlstate

    return answer


def at(moment: datetime) -> Callable[[DB], datetime]:
    return lambda db: moment


UNDONE = "select count(*) from undo_actor(current_user, %(at)s, 'acme')"
# By function and argument: how it answers, the bound, and the answers before, at and after it.
BOUNDS: dict[tuple[str, str], list[tuple[Answer, Callable[[DB], datetime], tuple[Any, Any, Any]]]] = {
    ("current_memories", "as_of"): [
        (shown(CURRENT), at(START), (False, True, True)), (shown(CURRENT), at(END), (True, False, False)),
    ],
    ("current_memories", "known_at"): [(known, recorded_at, (0, 1, 1))],
    ("search_memories", "as_of"): [
        (shown(SEARCH), at(START), (False, True, True)), (shown(SEARCH), at(END), (True, False, False)),
        (shown(WORDS), at(START), (False, True, True)), (shown(WORDS), at(END), (True, False, False)),
    ],
    ("effective_confidence", "as_of"): [
        (ask("select effective_confidence(memory_id, 'acme', %(at)s) = 0.9 from memories where subject = 'Bo'"),
         at(START + DAY), (True, True, False)),
    ],
    ("apply_decay", "as_of"): [(decayed, at(START + DAY), (0, 0, 1))],
    ("undo_actor", "since"): [(ask(UNDONE), recorded_at, (1, 1, 0))],
    ("ingest_memory", "valid_from"): [(stated_from("ingest_memory"), at(END), ("inserted", "MF065", "MF065"))],
    ("ingest_memory", "valid_until"): [(stated_until("ingest_memory"), at(START), ("MF065", "MF065", "inserted"))],
    ("preview_memory", "valid_from"): [(stated_from("preview_memory"), at(END), ("inserted", "MF065", "MF065"))],
    ("preview_memory", "valid_until"): [(stated_until("preview_memory"), at(START), ("MF065", "MF065", "inserted"))],
}  # fmt: skip
# Its bound is five minutes ahead of a clock that goes on: tests/sql/test_bad_input.py.
BY_THE_CLOCK = {("ingest_memory", "observed_at"), ("preview_memory", "observed_at")}


def test_each_argument_has_its_row(db: DB) -> None:
    found = db.execute(
        "select p.proname, a.name from pg_proc as p,"
        " unnest(p.proargnames, coalesce(p.proallargtypes, p.proargtypes::oid[]), p.proargmodes) as a (name, type, mode)"
        " where p.pronamespace = 'memfold'::regnamespace and a.type = 'timestamptz'::regtype"
        " and coalesce(a.mode, 'i') in ('i', 'b')"
    ).fetchall()
    assert sorted(found) == sorted({*BOUNDS, *BY_THE_CLOCK})


@pytest.mark.parametrize("argument", BOUNDS, ids=".".join)
def test_an_argument(db: DB, argument: tuple[str, str]) -> None:
    model(db)
    db.execute("select set_policy('acme', weights => '{1,0,0}'), set_options('acme', decay_rate => 0.01)")
    ingest(
        db, "Bo lives in Rome", subject="Bo", predicate="lives_in", object="Rome", source_confidence=0.9,
        observed_at=START, valid_from=START, valid_until=END, **vector(1.0),
    )  # fmt: skip
    for answer, bound, expected in BOUNDS[argument]:
        moment = bound(db)
        assert tuple(answer(db, moment + n * INSTANT) for n in (-1, 0, 1)) == expected, moment


@pytest.mark.parametrize("moment", ["4714-11-24 BC", "294276-12-31", "-infinity", "infinity"])
def test_the_ends_of_time(db: DB, moment: Any) -> None:
    model(db)
    for answer in {answer for bounds in BOUNDS.values() for answer, *_ in bounds}:
        try:
            with db.transaction():
                answer(db, moment)
        except psycopg.Error as error:
            if not (error.sqlstate or "").startswith("MF"):
                raise


# What a reader shows now, of a memory with a validity; None where validity changes nothing: ids, texts and pairs.
NOW: dict[str, str | None] = dict.fromkeys(READERS) | {
    "current_memories": "current_memories('acme')",
    "profile": "profile('Bo', 'acme')",
    "search_memories": "search_memories('[1,0,0,0]', 'm', 'acme', touch => false)",
}


@pytest.mark.parametrize("reader", [name for name, query in NOW.items() if query])
@pytest.mark.parametrize(
    ("bound", "expected"), [("valid_from", (True, True, False)), ("valid_until", (False, False, True))]
)
def test_a_reader_now(db: DB, reader: str, bound: str, expected: tuple[bool, bool, bool]) -> None:
    """In one transaction the time stands still, so that a bound can be now."""
    model(db)
    found = []
    for n in (-1, 0, 1):
        with db.transaction(force_rollback=True):
            now: datetime = one(db, "select now()")
            ingest(
                db, "Bo lives in Rome", subject="Bo", predicate="lives_in", observed_at=now - DAY,
                **{bound: now + n * INSTANT}, **vector(1.0),
            )  # fmt: skip
            found.append(shown(str(NOW[reader]))(db, now))
    assert tuple(found) == expected
