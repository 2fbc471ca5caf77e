"""The state model: derive_scope makes the state match the ledger, whatever that contains, in any order."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC
from typing import Any
from uuid import UUID

import pytest

from tests.support.memories import check, counters, ingest, model, status, vector
from tests.support.queries import DB
from tests.support.rounds import seeds


def take_back(db: DB, event_id: UUID | None) -> None:
    """Append the undo of an event, and derive both its memories again."""
    row = db.execute(
        "select e.memory_id, e.target_id from memory_events as e"
        " cross join lateral memfold_internal._record_undone(e.tenant_id, array[e.event_id], '{undone}', null, null)"
        " where e.event_id = %s",
        [event_id],
    ).fetchone()
    assert row is not None
    db.execute("select derive_scope(array_remove(%s::uuid[], null), 'acme')", [list(row)])


def reject(db: DB, memory_id: UUID | None) -> UUID:
    row = db.execute(
        "insert into memory_events (tenant_id, bucket_id, action, tier, method, memory_id, actor)"
        " values ('acme', 'default', 'rejected', 3, 'person', %s, 'test') returning event_id",
        [memory_id],
    ).fetchone()
    db.execute("select derive_scope(array[%s]::uuid[], 'acme')", [memory_id])
    assert row is not None
    event_id: UUID = row[0]
    return event_id


def test_a_withdrawn_observation(db: DB) -> None:
    first = ingest(db, "User likes Vim", source_turn_ids=["a"], source_confidence=0.2)
    again = ingest(db, "User likes Vim", source_turn_ids=["b"], source_confidence=0.9)
    take_back(db, again.event_id)
    found = counters(db, first.memory_id)
    assert (found["observations"], found["independent"], found["source_confidence"]) == (1, 1, 0.2)
    assert db.execute("select source_turn_id from memory_sources").fetchall() == [("a",)]
    check(db)


def test_an_undone_merge(db: DB) -> None:
    model(db)
    root = ingest(db, "User prefers dark mode", source_turn_ids=["a"], **vector(1.0))
    fold = ingest(
        db, "The user likes dark mode best", source_turn_ids=["b"], metadata={"x": 1}, **vector(0.95)
    )
    ingest(db, "The user likes dark mode best", source_turn_ids=["c"])
    assert counters(db, root.memory_id)["observations"] == 3
    take_back(db, fold.event_id)
    row = db.execute("select memory_id from memories where content like 'The user%'").fetchone()
    assert row is not None
    own = row[0]
    assert (status(db, root.memory_id), status(db, own)) == ("active", "active")
    assert (counters(db, root.memory_id)["observations"], counters(db, own)["observations"]) == (1, 2)
    assert counters(db, root.memory_id)["aliases"] == 0
    assert db.execute("select metadata from memories where memory_id = %s", [own]).fetchone() == ({"x": 1},)
    again = ingest(db, "The user likes dark mode best")
    assert (again.action, again.memory_id, again.method) == ("merged", own, "hash")
    check(db)


def test_a_tombstone(db: DB) -> None:
    model(db)
    root = ingest(db, "User prefers dark mode", **vector(1.0))
    ingest(db, "The user likes dark mode best", **vector(0.95))
    rejection = reject(db, root.memory_id)
    assert status(db, root.memory_id) == "rejected"
    for text in ("User prefers dark mode", "The user likes dark mode best"):
        result = ingest(db, text)
        assert (result.action, result.tier, result.method, result.memory_id) == (
            "rejected", 1, "tombstone", root.memory_id,
        )  # fmt: skip
    assert ingest(db, "Dark mode is what the user likes", **vector(0.97)).action == "rejected"
    take_back(db, rejection)
    assert status(db, root.memory_id) == "active"
    assert counters(db, root.memory_id)["observations"] == 2
    check(db)


def test_withdrawn_and_revived(db: DB) -> None:
    first = ingest(db, "User likes Vim")
    again = ingest(db, "User likes Vim")
    take_back(db, again.event_id)
    # the first observation made the row: only its source can be taken away, as erasure will
    db.execute("set memfold.maintenance = on; delete from memory_events where action = 'inserted'")
    db.execute("select memfold_internal._recount('acme', array[%s]::uuid[])", [first.memory_id])
    db.execute("select derive_scope(array[%s]::uuid[], 'acme')", [first.memory_id])
    assert status(db, first.memory_id) == "withdrawn"
    assert ingest(db, "User likes Vim", origin="recalled").action == "rejected"
    revived = ingest(db, "User likes Vim")
    assert (revived.action, revived.memory_id) == ("inserted", first.memory_id)
    assert status(db, first.memory_id) == "active"
    check(db)


def test_a_supersession_that_was_taken_back(db: DB) -> None:
    db.execute("select set_predicate('works_at', 'acme')")
    arguments = {"subject": "Ann", "predicate": "works_at"}
    a = ingest(db, "Ann works at VW", object="VW", observed_at="2026-01-01", **arguments)
    b = ingest(db, "Ann works at Stripe", object="Stripe", observed_at="2026-02-01", **arguments)
    assert status(db, a.memory_id) == "superseded"
    take_back(db, b.event_id)
    assert (status(db, a.memory_id), status(db, b.memory_id)) == ("active", "active")
    check(db)


@dataclass(frozen=True)
class Told:
    """One call."""

    content: str
    predicate: str
    confidence: float
    day: str
    is_tier_1: bool


@pytest.mark.parametrize("seed", seeds(3, 24))
def test_the_order_of_undos_does_not_matter(db: DB, seed: int) -> None:
    model(db)
    db.execute("select set_predicate('works_at', 'acme')")

    def history(bucket: str) -> tuple[list[UUID | None], dict[UUID | None, Told]]:
        """The events that can be undone, and their observations."""
        rnd = random.Random(seed)
        events = []
        told = {}
        for _ in range(25):
            i = rnd.randrange(8)
            content, predicate = f"{'so ' * i}Ann says it", rnd.choice(["works_at", "says"])
            turn, confidence = f"t{rnd.randrange(6)}", rnd.choice([0.3, 0.5, 0.9])
            day = f"2026-01-{rnd.randrange(1, 29):02}"
            result = ingest(
                db, content, bucket_id=bucket, subject="Ann", predicate=predicate, source_turn_ids=[turn],
                source_confidence=confidence, observed_at=f"{day} UTC",
                **vector([1, 0.97, 0.95, 0.5, 0.45, 0.1, 0.05, 0.93][i]),
            )  # fmt: skip
            told[result.event_id] = Told(content, predicate, confidence, day, result.tier == 1)
            if result.action in ("merged", "superseded", "historical"):
                events.append(result.event_id)
        return events, told

    def counted(rows: list[Any], told: list[Told]) -> None:
        """The counters of each root are those of the observations of its text and of its aliases."""
        for content, predicate, _, root, observations, _, confidence, last_seen, _ in rows:
            if root is not None:
                continue
            texts = {content} | {row[0] for row in rows if (row[3], row[1]) == (content, predicate)}
            of_it = [t for t in told if t.content in texts and t.predicate == predicate]
            assert observations == len(of_it)
            assert confidence == max(t.confidence for t in of_it)
            assert last_seen.astimezone(UTC).date().isoformat() == max(t.day for t in of_it)

    def state(bucket: str) -> list[Any]:
        return db.execute(
            "select m.content, m.predicate, m.status, r.content, k.observations, k.independent, k.source_confidence,"
            " k.last_seen, (select array_agg((valid_from, valid_to)::text order by valid_from)"
            "  from memory_intervals i where i.memory_id = m.memory_id)"
            " from memories m left join memories r on r.memory_id = m.root_id"
            " left join memory_totals k on k.memory_id = m.memory_id and m.root_id is null"
            " where m.bucket_id = %s order by 1, 2",
            [bucket],
        ).fetchall()

    states = []
    for variant in range(3):
        events, told = history(f"variant {variant}")
        order = [i for i in range(len(events)) if (i * 7 + seed) % 3 == 0]
        random.Random(variant).shuffle(order)
        for i in order:
            take_back(db, events[i])
            check(db)
        undone = {events[i] for i in order}
        states.append(state(f"variant {variant}"))
        # an observation of a known text is withdrawn; a fold's stays with its text
        counted(states[-1], [t for event, t in told.items() if event not in undone or not t.is_tier_1])
    assert states[0] == states[1] == states[2]
