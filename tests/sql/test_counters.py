"""Counters of texts, and their sums in roots: what the observations in force say, after any write, undo or erasure."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.support.ledger import undo
from tests.support.memories import broken_invariants, check, ingest, model, status, vector
from tests.support.queries import DB, one
from tests.support.restatements import (
    HOT,
    TURNS,
    first_events,
    fold_two,
    merge,
    restate,
    restate_many,
    says,
    take_back,
)
from tests.support.rounds import seeds

pytestmark = pytest.mark.new_database


def reject(db: DB, rng: random.Random, _: list[str]) -> None:
    roots = [
        r[0] for r in db.execute("select memory_id from memfold.memories where status = 'active' order by 1")
    ]
    if len(roots) > 3:
        event = one(db, "select (reject_memory(%s, 'acme')).event_id", rng.choice(roots))
        undo(db, event)


def forget_turn(db: DB, rng: random.Random, _: list[str]) -> None:
    db.execute("select erase_source(%s, 'acme')", [rng.choice(TURNS[1:])])


STEPS = [restate] * 30 + [restate_many] * 6 + [fold_two] * 4 + [take_back] * 8 + [reject, forget_turn]


@pytest.mark.parametrize("seed", seeds(2, 16))
def test_any_history(db: DB, seed: int) -> None:
    """Windows and shared turns, merges, undos of either kind, batches, erasure: in random order."""
    rng = random.Random(seed)
    texts = [f"User likes {what}" for what in ("tea", "coffee", "milk", "juice", "cocoa")]
    for n in range(110):
        step = rng.choice(STEPS)
        step(db, rng, texts)
        if n % 5 == 0 or step not in (restate, restate_many):
            assert broken_invariants(db) == [], (seed, n, step.__name__)
    check(db)


@pytest.mark.parametrize("place", [0, 4, 7, 9])
def test_a_restatement_undone_wherever_it_is(db: DB, place: int) -> None:
    """The next one with its turn is evidence in its place."""
    memory = ingest(db, HOT).memory_id
    turns = ["a", "b", "c", "d", "a", "b", "b", "a", "e", "f"]
    events = [ingest(db, HOT, source_turn_ids=[turn]).event_id for turn in turns]
    assert says(db, memory) == (11, 7)
    undo(db, events[place])
    left = turns[:place] + turns[place + 1 :]
    assert says(db, memory) == (10, 1 + len(set(left)))
    assert first_events(db, memory) == {
        turn: next(e for e, t in zip(events, turns, strict=True) if t == turn and e != events[place])
        for turn in set(left)
    }
    check(db)


def test_turns_of_two_texts_count_once(db: DB) -> None:
    """In the text stated most often, only the turns of the others are looked up."""
    many = ingest(db, HOT, source_turn_ids=["a", "b"]).memory_id
    for turns in (["b", "c"], ["d"], ["e"], ["c"], ["f", "g"], ["h"]):
        ingest(db, HOT, source_turn_ids=turns)
    few = ingest(db, "User likes coffee", source_turn_ids=["e"]).memory_id
    ingest(db, "User likes coffee", source_turn_ids=["g", "x"])
    assert (says(db, many), says(db, few)) == ((7, 6), (2, 2))
    fold = merge(db, few, many)
    # e is known, x is new
    assert says(db, many) == (9, 7)
    check(db)
    undo(db, fold)
    assert (says(db, many), says(db, few)) == ((7, 6), (2, 2))
    check(db)
    # what came first counts: here the rows of the smaller text
    early = ingest(db, "User likes milk", source_turn_ids=["y"]).memory_id
    late = ingest(db, "User likes juice", source_turn_ids=["y"]).memory_id
    for turns in (["y", "z"], ["z"], []):
        ingest(db, "User likes juice", source_turn_ids=turns)
    assert says(db, late) == (4, 3)
    merge(db, early, late)
    assert says(db, late) == (5, 3)
    check(db)


def test_metadata_of_merged_texts_is_read(db: DB) -> None:
    memory = ingest(db, HOT, metadata={"x": 1}).memory_id
    for n in range(2, 9):
        ingest(db, HOT, metadata={"x": n} if n == 5 else {})
    other = ingest(db, "User likes coffee", metadata={"y": 1}).memory_id
    fold = merge(db, other, memory)
    assert one(db, "select metadata from memfold.memories where memory_id = %s", memory) == {"x": 5, "y": 1}
    undo(db, fold)
    assert one(db, "select metadata from memfold.memories where memory_id = %s", memory) == {"x": 5}
    check(db)


def test_a_rejected_memory_and_back(db: DB) -> None:
    memory = ingest(db, HOT).memory_id
    for n in range(10):
        ingest(db, HOT, source_turn_ids=[f"t{n % 4}"])
    event = one(db, "select (reject_memory(%s, 'acme')).event_id", memory)
    assert (status(db, memory), says(db, memory)) == ("rejected", (11, 5))
    undo(db, event)
    assert (status(db, memory), says(db, memory)) == ("active", (11, 5))
    check(db)


def test_an_erased_turn(db: DB) -> None:
    memory = ingest(db, HOT, source_turn_ids=["a"]).memory_id
    for turns in (["b"], ["b", "c"], ["c"], ["d"], ["b"], ["b", "d"]):
        ingest(db, HOT, source_turn_ids=turns)
    assert says(db, memory) == (7, 4)
    db.execute("select erase_source('b', 'acme')")
    assert says(db, memory) == (5, 3)
    check(db)
    db.execute("select erase_memory(%s, 'acme')", [memory])
    assert one(db, "select count(*) from memfold.memory_counters") == 0
    assert one(db, "select count(*) from memfold.memory_sources") == 0
    check(db)


def test_exported_and_imported(db: DB) -> None:
    memory = ingest(db, HOT).memory_id
    for n in range(8):
        ingest(db, HOT, source_turn_ids=[f"t{n % 3}"])
    other = ingest(db, "User likes coffee", source_turn_ids=["t1"]).memory_id
    merge(db, other, memory)
    lines = [row[0] for row in db.execute("select export_bucket('acme')").fetchall()]
    with db.transaction():
        db.execute("set local memfold.tenant_id = 'new'")
        db.execute("select import_bucket(%s, 'new')", [Jsonb(lines)])
    rows = (
        "select jsonb_agg(to_jsonb(k) - 'tenant_id' order by memory_id) from memfold.memory_counters as k"
        " where tenant_id = %s"
    )
    assert one(db, rows, "new") == one(db, rows, "acme")
    check(db)


def test_a_batch_whose_ids_are_below_those_of_its_later_rows(db: DB) -> None:
    """A candidate that takes more than an addition is written after the others, in its place."""
    memory = ingest(db, HOT, observed_at="2026-01-01").memory_id
    row = {"tenant_id": "acme", "content": HOT, "source_turn_ids": ["a"]}
    late = {**row, "metadata": {"x": 1}, "observed_at": "2025-01-01", "origin": "inferred"}
    found = db.execute(
        "select event_id from ingest_memories(%s, 'acme')",
        [Jsonb([late, row, {**row, "source_turn_ids": ["b"]}, row, row])],
    ).fetchall()
    assert [r[0] for r in found] == sorted(r[0] for r in found)
    check(db)
    merge(db, ingest(db, "User likes coffee").memory_id, memory)
    assert says(db, memory) == (7, 4)
    check(db)


READ = """
select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_xact_all_tables
where relid = any(%s::regclass[])
"""
OBSERVATIONS = ["memfold.memory_events", "memfold.memory_sources"]
STATE = [*OBSERVATIONS, "memfold.memories", "memfold.memory_counters", "memfold.memory_intervals"]


def read_by(db: DB, call: str, *arguments: Any, tables: list[str] = OBSERVATIONS) -> int:
    """How many rows of the ledger and of sources, or of these tables, a call reads."""
    with db.transaction():
        before = one(db, READ, tables)
        db.execute(call.encode(), list(arguments))
        after = one(db, READ, tables)
    found: int = after - before
    return found


@pytest.mark.parametrize("turns", ["each its own", "none", "one"])
def test_a_change_of_a_tree_does_not_read_its_observations(db: DB, turns: str) -> None:
    """Whatever is merged with a memory of 6,000 observations: far fewer rows are read than it has."""
    memory = ingest(db, HOT, source_turn_ids=["a"]).memory_id
    other = ingest(db, "User likes coffee", source_turn_ids=["t 5", "t 3000"]).memory_id
    for first in range(0, 6000, 1000):
        db.execute(
            "select ingest_memories((select jsonb_agg(jsonb_build_object('tenant_id', 'acme', 'content', %s::text,"
            " 'source_turn_ids', case %s::text when 'none' then '{}'::text[] when 'one' then '{a}'"
            " else array['t ' || n] end)) from generate_series(%s::int, %s::int) as n), 'acme')",
            [HOT, turns, first, first + 999],
        )
    merged = {"merge": read_by(db, "select merge_memories(%s, %s, 'acme')", other, memory)}
    check(db)
    fold = one(db, "select event_id from memfold.memory_events where tier = 3 and action = 'merged'")
    merged["undo of it"] = read_by(db, "select undo(%s, 'acme')", fold)
    merged["reject"] = read_by(db, "select reject_memory(%s, 'acme')", memory)
    rejection = one(db, "select event_id from memfold.memory_events where tier = 3 and action = 'rejected'")
    merged["undo of that"] = read_by(db, "select undo(%s, 'acme')", rejection)
    check(db)
    assert max(merged.values()) < 60, merged
    # a restatement that is undone is counted again from the rows of its text, once, and of no other
    newest = one(db, "select event_id from memfold.memory_events where tier = 1 order by 1 desc limit 1")
    assert 6000 < read_by(db, "select undo(%s, 'acme')", newest) < 20_000
    lone = ingest(db, "User likes coffee", source_turn_ids=["t 6"]).event_id
    assert read_by(db, "select undo(%s, 'acme')", lone) < 60
    check(db)


def test_the_undo_of_a_merge_next_to_an_alias_that_was_only_recalled(db: DB) -> None:
    """Such an alias has no counters: nothing of the memory that leaves remains in the sums."""
    model(db)
    memory = ingest(db, "User likes tea", **vector(1.0)).memory_id
    recalled = ingest(db, "User is fond of tea", origin="recalled", **vector(0.99))
    assert (recalled.action, recalled.memory_id) == ("merged", memory)
    other = ingest(db, "User has a cat").memory_id
    event = one(db, "select event_id from merge_memories(%s, %s, 'acme')", other, memory)
    db.execute("select undo(%s, 'acme')", [event])
    check(db)


@pytest.mark.parametrize("kind", ["values", "aliases"])
def test_a_call_reads_what_it_changes(db: DB, kind: str) -> None:
    """With ten times as many values of a slot, or aliases of a memory, it reads no more rows."""
    db.execute("select set_predicate('lives_in', 'acme')")
    clock = itertools.count()
    say = (
        "select memory_id from ingest_memory(%s, 'acme', subject => 'Ann', predicate => %s, object => %s,"
        " observed_at => '2025-01-01'::timestamptz + %s * interval '1 minute')"
    )
    merge = "select event_id from merge_memories(%s, %s, 'acme')"

    def stated(text: str) -> list[Any]:
        slot = ["lives_in", text] if kind == "values" else [None, None]
        return [text, *slot, next(clock)]

    root = one(db, say, *stated("text 0"))
    read: list[dict[str, int]] = []
    for texts in (range(1, 30), range(30, 300)):
        for n in texts:
            made = one(db, say, *stated(f"text {n}"))
            if kind == "aliases":
                one(db, merge, made, root)
        one(db, say, *stated("text 0"))
        found = {"stated again": read_by(db, say, *stated("text 1"), tables=STATE)}
        found["new"] = read_by(db, say, *stated(f"new {texts}"), tables=STATE)
        found["current"] = read_by(db, "select count(*) from current_memories('acme')", tables=STATE)
        other = one(db, say, *stated(f"other {texts}"))
        # not the last statement of the memory that it leaves
        one(db, say, *stated("text 1"))
        found["merged"] = read_by(db, merge, other, root, tables=STATE)
        if kind == "aliases":
            one(db, say, *stated("text 1"))
        event = one(
            db,
            "select event_id from memory_events where action = 'merged' and memory_id = %s and tier = 3",
            other,
        )
        found["undone"] = read_by(db, "select undo(%s, 'acme')", event, tables=STATE)
        read.append(found)
        check(db)
    few, many = read
    assert {name: (few[name], many[name]) for name in few if many[name] > few[name] + 15} == {}
