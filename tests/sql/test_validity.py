"""valid_from and valid_until: when recall shows a memory, by its latest observation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.concurrent_calls import Call, batch
from tests.support.maintenance import store
from tests.support.memories import Result, check, counters, ingest, model, status, vector
from tests.support.queries import DB, rows
from tests.support.searching import search, texts

TEXT = "The pool is closed"
FAR = "2999-01-01"


def day(number: int) -> datetime:
    return datetime(2025, 1, number, tzinfo=UTC)


def shown(db: DB, as_of: datetime | None = None) -> list[str]:
    """By current_memories(); search by words and by vector must show the same."""
    found = sorted(
        r["content"] for r in rows(db, "select * from current_memories('acme', as_of => %s)", as_of)
    )
    words = (
        "select * from search_memories(query => %s, tenant_id => 'acme', as_of => %s, deduplicate => false)"
    )
    by_words = {r["content"] for r in rows(db, words, " ".join(found) or TEXT, as_of)}
    assert by_words == set(found)
    return found


def validity(db: DB, memory: Result) -> tuple[datetime | None, datetime | None]:
    (found,) = rows(
        db, "select valid_from, valid_until from memory_totals where memory_id = %s", memory.memory_id
    )
    return found["valid_from"], found["valid_until"]


def test_recall_shows_a_memory_while_it_is_valid(db: DB) -> None:
    model(db)
    made = ingest(db, TEXT, observed_at=day(1), valid_from=day(3), valid_until=day(5), **vector(1.0))
    other = ingest(db, "The sauna is open", observed_at=day(1), valid_until=FAR)
    assert (made.action, other.action) == ("inserted", "inserted")
    assert validity(db, made) == (day(3), day(5))
    assert shown(db) == ["The sauna is open"]
    assert [TEXT in shown(db, day(n)) for n in (1, 2, 3, 4, 5, 6)] == [False, False, True, True, False, False]
    near = "select * from search_memories(%s, 'm', 'acme', as_of => %s)"
    query = vector(1.0)["embedding"]
    assert [r["content"] for r in rows(db, near, query, day(4))] == [TEXT]
    assert rows(db, near, query, None) == []
    assert [r["content"] for r in rows(db, "select * from find_similar(%s, 'm', 'acme')", query)] == [TEXT]
    (row,) = rows(db, "select * from current_memories('acme', as_of => %s) where content = %s", day(4), TEXT)
    assert (row["valid_from"], row["valid_to"]) == (day(3), day(5))
    assert status(db, made) == "active"
    check(db)


def test_a_validity_that_begins_later_is_not_shown_yet(db: DB) -> None:
    ingest(db, TEXT, valid_from=FAR)
    assert shown(db) == []
    check(db)


@pytest.mark.parametrize("how", ["single", "batch", "alias", "paraphrase", "with turns"])
def test_a_restatement_without_validity_revives(db: DB, how: str) -> None:
    model(db)
    made = ingest(db, TEXT, observed_at=day(1), valid_until=day(2), **vector(1.0))
    if how == "alias":
        said = ingest(db, "Closed is the pool", observed_at=day(1), valid_until=day(2))
        db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [said.memory_id, made.memory_id])
    assert shown(db) == []
    if how == "batch":
        again = [{"content": TEXT}, {"content": "the pool is closed."}]
        told = rows(db, "select * from ingest_memories(%s, 'acme')", Jsonb(again))
        assert [(r["action"], r["memory_id"]) for r in told] == [("merged", made.memory_id)] * 2
    elif how == "paraphrase":
        # it says more, so that it leads; the other is its alias
        richer = ingest(db, "The swimming pool is closed", **vector(0.97))
        assert (richer.action, status(db, made)) == ("replaced", "merged")
        made = richer
    else:
        text = "closed is the pool" if how == "alias" else TEXT
        turns = ["t"] if how == "with turns" else []
        result = ingest(db, text, source_turn_ids=turns)
        assert (result.action, result.tier, result.memory_id) == ("merged", 1, made.memory_id)
    assert shown(db) == ["The swimming pool is closed" if how == "paraphrase" else TEXT]
    assert validity(db, made) == (None, None)
    check(db)
    # from here on a restatement is an addition
    assert ingest(db, TEXT).action == "merged"
    assert validity(db, made) == (None, None)
    check(db)


def test_the_latest_observation_determines_validity(db: DB) -> None:
    made = ingest(db, TEXT, observed_at=day(5), valid_until=day(9))
    late = ingest(db, TEXT, observed_at=day(3), valid_until=day(4))
    assert validity(db, made) == (None, day(9))
    ingest(db, TEXT, observed_at=day(4))
    assert validity(db, made) == (None, day(9))
    tied = ingest(db, TEXT, observed_at=day(5), valid_from=day(2))
    assert validity(db, made) == (day(2), None)
    plain = ingest(db, TEXT, observed_at=day(5))
    assert validity(db, made) == (None, None)
    check(db)
    for event, left in ((plain, (day(2), None)), (tied, (None, day(9))), (late, (None, day(9)))):
        db.execute("select undo(%s, tenant_id => 'acme')", [event.event_id])
        assert validity(db, made) == left
        check(db)


def test_recalled_text_changes_no_validity(db: DB) -> None:
    made = ingest(db, TEXT, valid_until=FAR)
    assert ingest(db, TEXT, origin="recalled").action == "merged"
    ingest(db, TEXT, origin="recalled", valid_until=day(2))
    assert validity(db, made)[1] == datetime(2999, 1, 1, tzinfo=UTC)
    check(db)


def test_a_merge_and_its_undo(db: DB) -> None:
    one = ingest(db, TEXT, observed_at=day(1), valid_until=day(8))
    other = ingest(db, "Nobody swims here", observed_at=day(2), valid_until=day(9))
    event = db.execute(
        "select (merge_memories(%s, %s, tenant_id => 'acme')).event_id", [other.memory_id, one.memory_id]
    ).fetchone()
    assert event is not None
    assert validity(db, one) == (None, day(9))
    check(db)
    db.execute("select undo(%s, tenant_id => 'acme')", [event[0]])
    assert (validity(db, one), validity(db, other)) == ((None, day(8)), (None, day(9)))
    check(db)
    changed = rows(db, "select * from update_memory(%s, 'The pool stays closed', 'acme')", one.memory_id)
    assert counters(db, changed[0]["memory_id"])["valid_until"] == day(8)
    check(db)


def test_when_a_value_has_expired_the_one_before_it_is_back(db: DB) -> None:
    db.execute("select set_predicate('lives_in', 'acme')")
    slot: dict[str, Any] = {"subject": "Ann", "predicate": "lives_in"}
    ingest(db, "Ann lives in Rome", object="Rome", observed_at=day(1), **slot)
    made = ingest(
        db,
        "Ann lives in Oslo",
        object="Oslo",
        observed_at=day(3),
        valid_from=day(5),
        valid_until=day(7),
        **slot,
    )
    assert (made.action, status(db, made)) == ("superseded", "active")
    assert [shown(db, day(n)) for n in (2, 4, 6, 8)] == [
        ["Ann lives in Rome"], ["Ann lives in Rome"], ["Ann lives in Oslo"], ["Ann lives in Rome"],
    ]  # fmt: skip
    # said again, without an end: current, as of then
    ingest(db, "Ann lives in Oslo", object="Oslo", observed_at=day(8), **slot)
    assert shown(db) == ["Ann lives in Oslo"]
    check(db)


@pytest.mark.parametrize("way", ["single", "batch"])
def test_a_restatement_that_has_waited_for_a_validity_revives(
    db: DB, connect: Callable[..., DB], way: str
) -> None:
    def restate(c: DB) -> Any:
        return ingest(c, TEXT) if way == "single" else batch(c, {"content": TEXT})

    made = ingest(db, TEXT)
    holder = connect()
    holder.execute("begin")
    ingest(holder, TEXT, valid_until=FAR)
    # there was no validity when it looked for the text
    again = Call(db, connect(), restate).waits_for(holder)
    holder.execute("commit")
    again.join(60)
    if again.error is not None:
        again.must_retry()
        assert validity(db, made)[1] is not None
        restate(db)
    else:
        again.end()
    assert validity(db, made) == (None, None)
    check(db)


def test_the_last_of_many_statements_decides(db: DB) -> None:
    made = ingest(db, TEXT, observed_at=day(1))
    for n in range(9):
        ingest(
            db, TEXT, observed_at=day(2), valid_until=day(20) if n == 4 else None, source_turn_ids=[f"t{n}"]
        )
    assert validity(db, made) == (None, None)
    # at one time with the others, and after them
    ingest(db, TEXT, observed_at=day(2), valid_until=day(25))
    assert validity(db, made) == (None, day(25))
    check(db)


def test_erasing_its_source_removes_the_validity(db: DB) -> None:
    made = ingest(db, TEXT, observed_at=day(1), source_turn_ids=["a"])
    ingest(db, TEXT, observed_at=day(2), valid_until=day(3), source_turn_ids=["b"])
    assert shown(db) == []
    db.execute("select erase_source('b', 'acme')")
    assert validity(db, made) == (None, None)
    assert shown(db) == [TEXT]
    check(db)


def test_expired_memories_are_pruned(db: DB) -> None:
    sure: dict[str, Any] = {"source_confidence": 1, "extractor_confidence": 1, "observed_at": day(1)}
    gone = store(db, TEXT, valid_until=day(2), **sure)
    store(db, "The sauna is open", valid_until=FAR, **sure)
    plan = rows(db, "select * from prune_memories('acme', unused_for => '1 day')")
    assert [(r["memory_id"], r["reason"]) for r in plan] == [(gone, "expired since 2025-01-02")]
    assert rows(db, "select * from prune_memories('acme', unused_for => '900 years')") == []
    rows(db, "select * from prune_memories('acme', dry_run => false)")
    assert status(db, gone) == "withdrawn"
    check(db)
    assert ingest(db, TEXT).memory_id == gone
    assert shown(db) == sorted([TEXT, "The sauna is open"])
    check(db)


def test_validity_is_reported(db: DB) -> None:
    made = ingest(db, TEXT, observed_at=day(1), valid_from=day(2), valid_until=day(3))
    (audit,) = rows(db, "select valid_from, valid_until from memory_audit")
    assert (audit["valid_from"], audit["valid_until"]) == (day(2), day(3))
    lines = [r[0] for r in db.execute("select explain_memory(%s, 'acme')", [made.memory_id]).fetchall()]
    assert [
        line for line in lines if line.startswith("    valid from 2025-01-02") and line.endswith(": expired")
    ]
    assert "valid until 2025-01-03" in lines[-1]


@pytest.mark.parametrize(
    ("valid_from", "valid_until"),
    [
        (day(2), day(2)),
        (day(3), day(2)),
        ("infinity", None),
        (None, "infinity"),
        (None, "-infinity"),
        ("-infinity", None),
    ],
)
@pytest.mark.parametrize("function", ["ingest_memory", "preview_memory"])
def test_an_empty_or_endless_validity_is_refused(
    db: DB, function: str, valid_from: Any, valid_until: Any
) -> None:
    with pytest.raises(psycopg.Error) as refused:
        ingest(db, TEXT, function=function, valid_from=valid_from, valid_until=valid_until)
    assert refused.value.sqlstate == "MF065"
    assert (
        refused.value.diag.message_hint
        == "valid_from must be earlier than valid_until, both in the years 1 to 9999 (UTC);"
        " for no bound use null, not infinity."
    )
    assert rows(db, "select * from memories") == []


def test_at_the_moment_of_change_the_new_value_holds(db: DB) -> None:
    model(db)
    db.execute("select set_predicate('lives_in', 'acme')")
    slot = {"subject": "Ann", "predicate": "lives_in"}
    for place, cosine, since in (("Berlin", 1.0, "2024-01-01 UTC"), ("Munich", 0.9, "2025-01-01 UTC")):
        ingest(db, f"Ann lives in {place}", object=place, observed_at=since, **slot, **vector(cosine))
    for moment, place in (
        ("2024-01-01 UTC", "Berlin"), ("2024-12-31 23:59:59.999999 UTC", "Berlin"), ("2025-01-01 UTC", "Munich"),
    ):  # fmt: skip
        assert texts(search(db, as_of=moment)) == [f"Ann lives in {place}"], moment
        current = db.execute("select content from current_memories('acme', as_of => %s)", [moment]).fetchall()
        assert current == [(f"Ann lives in {place}",)], moment
