"""Order is logical: a later statement counts as later, whatever the server's clock did in between.

MEMFOLD_SEEDS (2) random sequences of 250 calls.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import hypothesis
import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from tests.stateful.counts import COUNTS, report
from tests.stateful.machine import Machine
from tests.stateful.scopes import DAY, DIMENSIONS, FIRST_DAY
from tests.stateful.tenant import READ, STEPS
from tests.support.clock import SETTING, SHIFTED
from tests.support.draws import settings
from tests.support.memories import Result, check, counters, ingest, model, status, vector
from tests.support.queries import DB, one
from tests.support.rounds import SEED, rounds, seeds

YEARS = 5 * 365 * DAY


@pytest.fixture
def clock(db: DB) -> Any:
    """Sets the server's clock forward or back, by seconds from the true time."""
    db.execute(SHIFTED.format(shift=SETTING).encode())

    def shift(seconds: float) -> None:
        db.execute("select set_config('test.shift', %s, false)", [str(seconds)])

    shift(0)
    return shift


def lives(db: DB, town: str, **given: Any) -> Result:
    return ingest(
        db, f"Ann lives in {town}", subject="Ann", predicate="lives_in", object=town, **given
    )  # fmt: skip


def single(db: DB) -> None:
    db.execute("select memfold.set_predicate('lives_in', 'acme', cardinality => 'one')")


def in_batch(db: DB, *candidates: dict[str, Any]) -> list[Any]:
    return db.execute(
        "select action, memory_id, event_id from memfold.ingest_memories(%s, 'acme') order by ordinal",
        [json.dumps(candidates)],
    ).fetchall()


# Decisions by the order of events ---------------------------------------------------------------------------------


@pytest.mark.parametrize("back", [5, YEARS])
def test_a_pruned_memory_that_is_stated_again_while_the_clock_is_behind(
    db: DB, clock: Any, back: float
) -> None:
    text = ingest(db, "User has a fax", observed_at="2025-01-01")
    pruned = db.execute(
        "select memory_id from memfold.prune_memories('acme', 'default', max_confidence => 1, dry_run => false)"
    ).fetchall()
    assert pruned == [(text.memory_id,)]
    clock(-back)
    assert ingest(db, "User has a fax").action == "inserted"
    assert status(db, text) == "active"
    # a later restatement is later than the pruning too: it stays when the first is undone
    again = ingest(db, "User has a fax", source_turn_ids=["t1"])
    first = one(
        db,
        "select event_id from memory_events where memory_id = %s and tier = 1 order by event_id limit 1",
        text.memory_id,
    )
    assert again.event_id is not None
    assert again.event_id > first
    db.execute("select memfold.undo(%s, tenant_id => 'acme')", [first])
    assert status(db, text) == "active"
    check(db)


@pytest.mark.parametrize("back", [5, YEARS])
def test_a_person_decides_again_while_the_clock_is_behind(db: DB, clock: Any, back: float) -> None:
    single(db)
    paris = lives(db, "Paris", observed_at="2026-01-01")
    rome = lives(db, "Rome", observed_at="2026-01-02")
    db.execute("select memfold.undo(%s, tenant_id => 'acme')", [rome.event_id])
    assert (status(db, paris), status(db, rome)) == ("active", "active")
    clock(-back)
    db.execute(
        "select memfold.supersede_memory(%s, %s, tenant_id => 'acme')", [paris.memory_id, rome.memory_id]
    )
    assert (status(db, paris), status(db, rome)) == ("superseded", "active")
    check(db)


def test_the_later_of_two_merges_counts(db: DB, clock: Any) -> None:
    a, b, c = (ingest(db, f"User likes {thing}") for thing in ("tea", "coffee", "milk"))
    fold = "select event_id from memfold.merge_memories(%s, %s, tenant_id => 'acme')"
    first = one(db, fold, a.memory_id, b.memory_id)
    db.execute("select memfold.undo(%s, tenant_id => 'acme')", [first])
    clock(-5)
    one(db, fold, a.memory_id, c.memory_id)
    assert one(db, "select root_id from memories where memory_id = %s", a.memory_id) == c.memory_id
    check(db)


def test_a_slot_whose_value_gave_way_to_another_fact_while_the_clock_was_ahead(db: DB, clock: Any) -> None:
    single(db)
    oslo = lives(db, "Oslo")
    tea = ingest(db, "Ann likes tea")
    clock(YEARS)
    db.execute(
        "select memfold.supersede_memory(%s, %s, tenant_id => 'acme')", [oslo.memory_id, tea.memory_id]
    )
    clock(0)
    paris = lives(db, "Paris")
    assert status(db, paris) == "active"
    check(db)


def test_a_contested_value_comes_back_to_its_slot_while_the_clock_is_behind(db: DB, clock: Any) -> None:
    single(db)
    paris = lives(db, "Paris")
    rome = lives(db, "Rome")
    db.execute("select memfold.undo(%s, tenant_id => 'acme')", [rome.event_id])
    tea = ingest(db, "Ann likes tea")
    clock(YEARS)
    oslo = lives(db, "Oslo")
    clock(0)
    # two facts without a common slot: this is a new decision of a person about Paris
    db.execute(
        "select memfold.supersede_memory(%s, %s, tenant_id => 'acme')", [tea.memory_id, paris.memory_id]
    )
    assert (status(db, paris), status(db, oslo), status(db, tea)) == ("active", "superseded", "superseded")
    check(db)


def test_a_fact_superseded_by_a_slot_value_gets_no_slot(db: DB) -> None:
    single(db)
    for person, drink in (("Ann", "tea"), ("Bob", "milk")):
        town = {"subject": person, "predicate": "lives_in", "object": "Oslo"}
        lived = ingest(db, f"{person} lives in Oslo", **town)
        # of one scope, but not of one slot: there is no end to what they like
        likes = ingest(db, f"they like {drink}", subject="they", predicate="likes", object=drink)
        db.execute(
            "select memfold.supersede_memory(%s, %s, tenant_id => 'acme')", [lived.memory_id, likes.memory_id]
        )
        # stated again it replaces the drink, its rival, and nothing else
        again = ingest(db, f"{person} lives in Oslo", **town)
        assert again.superseded_id == likes.memory_id
    texts = db.execute("select content, status from memories order by 1").fetchall()
    assert texts == [
        ("Ann lives in Oslo", "active"), ("Bob lives in Oslo", "active"),
        ("they like milk", "superseded"), ("they like tea", "superseded"),
    ]  # fmt: skip
    check(db)


def test_a_pruned_memory_that_a_person_has_stated_is_stated(db: DB) -> None:
    fax, letter = ingest(db, "User has a fax", observed_at="2025-01-01"), ingest(db, "User writes letters")
    db.execute(
        "select memfold.prune_memories('acme', 'default', max_confidence => 1, dry_run => false)"
    ).fetchall()
    assert status(db, fax) == "withdrawn"
    said = ingest(db, "User has a fax")
    db.execute(
        "select memfold.supersede_memory(%s, %s, tenant_id => 'acme')", [letter.memory_id, fax.memory_id]
    )
    db.execute("select memfold.undo(%s, tenant_id => 'acme')", [said.event_id])
    assert (status(db, fax), status(db, letter)) == ("active", "superseded")
    check(db)


def test_a_pruned_memory_is_not_on_the_timeline_of_what_it_gave_way_to(db: DB) -> None:
    fax, letter = ingest(db, "User has a fax", observed_at="2025-01-01"), ingest(db, "User writes letters")
    db.execute(
        "select memfold.prune_memories('acme', 'default', max_confidence => 1, dry_run => false)"
    ).fetchall()
    said = ingest(db, "User has a fax")
    gone = db.execute(
        "select event_id from memfold.supersede_memory(%s, %s, tenant_id => 'acme')",
        [fax.memory_id, letter.memory_id],
    ).fetchone()
    assert gone is not None
    db.execute("select memfold.undo(%s, tenant_id => 'acme')", [said.event_id])
    assert (status(db, fax), status(db, letter)) == ("withdrawn", "active")
    check(db)
    db.execute("select memfold.undo(%s, tenant_id => 'acme')", gone)
    assert (status(db, fax), status(db, letter)) == ("withdrawn", "active")
    assert ingest(db, "User has a fax").action == "inserted"
    check(db)


def test_the_newer_of_a_pair_is_the_one_that_came_later(db: DB, clock: Any) -> None:
    model(db)
    old = ingest(db, "User prefers dark mode", **vector(1.0))
    clock(-5)
    new = ingest(db, "The user likes dark mode best")
    late = one(
        db, "select memory_id from memfold.attach_embedding(%s, %s, 'm', tenant_id => 'acme')",
        new.memory_id, vector(0.95)["embedding"],
    )  # fmt: skip
    assert late == old.memory_id
    assert (status(db, old), status(db, new)) == ("active", "merged")
    # and in a batch
    batch = in_batch(db, {"content": "User owns a red car"}, {"content": "User owns a blue boat"})
    assert [row[0] for row in batch] == ["inserted"] * 2
    ids = [old.memory_id, new.memory_id, *(row[1] for row in batch)]
    assert ids == sorted(ids)
    check(db)


def test_equal_times_are_told_apart_by_the_ledger(db: DB, clock: Any) -> None:
    single(db)
    for i, town in enumerate(["Paris", "Rome", "Paris", "Oslo", "Rome"]):
        clock(-5 * i)
        result = lives(db, town, observed_at="2026-01-01")
        assert status(db, result) == "active", (i, town)
        check(db)
    # a current value is stated again: its interval does not move
    before = db.execute("select memory_id, valid_from from memory_intervals").fetchall()
    clock(-60)
    assert lives(db, "Rome", observed_at="2026-01-01").action == "merged"
    after = db.execute("select memory_id, valid_from from memory_intervals").fetchall()
    assert after == before
    check(db)


def test_metadata_of_equal_times(db: DB, clock: Any) -> None:
    for i in range(4):
        clock(-5 * i)
        text = ingest(db, "User likes Vim", metadata={"version": i}, observed_at="2026-01-01")
        assert one(db, "select metadata from memories where memory_id = %s", text.memory_id) == {"version": i}
        check(db)


def test_the_order_of_a_batch_is_that_of_its_candidates(db: DB, clock: Any) -> None:
    single(db)
    towns = ["Paris", "Rome", "Paris", "Oslo"]
    for shift in (0, YEARS, -5):
        clock(shift)
        rows = in_batch(db, *(
            {"content": f"Ann lives in {t}", "subject": "Ann", "predicate": "lives_in", "object": t} for t in towns
        ), {"content": "User likes Vim"})  # fmt: skip
        events = [row[2] for row in rows]
        assert events == sorted(events)
        assert str(max(events)) == str(one(db, "select max(event_id::text) from memory_events"))
        assert one(db, "select content from memories where status = 'active' and predicate = 'lives_in'") == (
            "Ann lives in Oslo"
        )
        check(db)


def test_ids_after_a_given_id(db: DB) -> None:
    for after in (
        "01a208f0-97e8-7fff-ffff-ffffffffffff", "01a208f0-97ff-7fff-8000-000000000000",
        "01a208f0-ffff-7fff-bfff-ffffffffffff", "01a208ff-ffff-7fff-8123-456789abcdef",
        "01a208f0-97e8-7000-8000-000000000000", "ffffffff-ffff-7ffe-bfff-ffffffffffff",
    ):  # fmt: skip
        found: UUID = one(db, "select memfold_internal._id_after(memfold_internal._new_id(), %s)", after)
        if after.startswith("01a2"):
            found = one(
                db, "select memfold_internal._id_after('01a00000-0000-7000-a345-6789abcdef01', %s)", after
            )
            assert str(found)[19:] == "a345-6789abcdef01"
        assert found > UUID(after)
        assert found.version == 7
    assert one(db, "select memfold_internal._id_after('01a00000-0000-7000-a345-6789abcdef01', null)") == UUID(
        "01a00000-0000-7000-a345-6789abcdef01"
    )
    ids = one(db, "select memfold_internal._new_ids(50, '7fffffff-ffff-7fff-bfff-ffffffffffff')")
    assert ids == sorted(set(ids))
    assert ids[0] > UUID("7fffffff-ffff-7fff-bfff-ffffffffffff")
    ids = one(db, "select memfold_internal._new_ids(50, null)")
    assert ids == sorted(set(ids))


@pytest.mark.parametrize(
    ("damage", "invariant"),
    [
        (
            "update memory_counters set last_event = '01900000-0000-7000-8000-000000000000'",
            "order: last event",
        ),
        (
            "update memory_events set event_id = '01900000-0000-7000-8000-000000000000' where undoes is not null",
            "order: undone later",
        ),
        (
            "update memory_events set action = 'inserted', tier = null, method = null"
            " where event_id = (select undoes from memory_events where undoes is not null)",
            "ledger: what is undone can be",
        ),
    ],
)
def test_a_broken_ledger_is_noticed(db: DB, damage: str, invariant: str) -> None:
    ingest(db, "User likes Vim")
    again = ingest(db, "User likes Vim")
    db.execute("select memfold.undo(%s, tenant_id => 'acme')", [again.event_id])
    check(db)
    db.execute("set memfold.maintenance = on")
    db.execute(damage.encode())
    found = db.execute("select invariant from memfold.check_invariants('acme')").fetchall()
    assert (invariant,) in found


# Statements without a time ----------------------------------------------------------------------------------------


def preview(db: DB, town: str) -> str:
    return ingest(
        db, f"Ann lives in {town}", function="preview_memory", subject="Ann", predicate="lives_in", object=town
    ).action  # fmt: skip


def alone(db: DB, town: str) -> str:
    return lives(db, town).action


def batched(db: DB, town: str) -> str:
    rows = in_batch(
        db, {"content": f"Ann lives in {town}", "subject": "Ann", "predicate": "lives_in", "object": town}
    )  # fmt: skip
    return str(rows[0][0])


@pytest.mark.parametrize("call", [alone, batched])
def test_a_clock_that_was_ahead_makes_nothing_historical(db: DB, clock: Any, call: Any) -> None:
    single(db)
    call(db, "Paris")
    clock(YEARS)
    assert call(db, "Rome") == "superseded"
    ahead = one(db, "select max(last_seen) from memory_totals")
    clock(0)
    for town, action in [
        ("Oslo", "superseded"),
        ("Oslo", "merged"),
        ("Paris", "superseded"),
        ("Rome", "superseded"),
    ]:
        assert preview(db, town) == action
        assert call(db, town) == action
        current = db.execute("select object from memories where status = 'active'").fetchall()
        assert current == [(town,)]
        assert one(db, "select max(last_seen) from memory_totals") == ahead
        check(db)
    # a statement with a time counts at its time
    assert lives(db, "Bonn", observed_at=datetime.now(UTC)).action == "historical"
    check(db)


def test_a_restatement_comes_after_what_its_memory_has(db: DB, clock: Any) -> None:
    """The usual candidate, which has no object, takes the fast path."""
    single(db)
    said = {"subject": "Ann", "predicate": "lives_in"}
    ingest(db, "Ann lives in Rome", **said)
    clock(YEARS)
    oslo = ingest(db, "Ann lives in Oslo", **said)
    ahead = counters(db, oslo.memory_id)["last_seen"]
    clock(0)
    again = ingest(db, "Ann lives in Oslo", **said)
    assert (again.action, again.method) == ("merged", "hash")
    seen, later = one(
        db,
        "select observed_at, event_id > %s from memory_events where event_id = %s",
        oslo.event_id,
        again.event_id,
    )
    assert (seen, later) == (ahead, True)
    check(db)


def test_a_recalled_restatement_comes_after_what_its_memory_has(db: DB, clock: Any) -> None:
    clock(3600)
    rows = [ingest(db, "Ann likes tea")]
    clock(0)
    rows += [ingest(db, "Ann likes tea", origin="recalled", session_id=f"s{n}") for n in range(5)]
    found = [row[0] for row in db.execute("select event_id from memory_events order by event_id").fetchall()]
    assert found == [row.event_id for row in rows]
    check(db)


def test_a_manual_action_counts_after_a_clock_that_was_ahead(db: DB, clock: Any) -> None:
    single(db)
    clock(YEARS)
    paris, rome = lives(db, "Paris"), lives(db, "Rome")
    clock(0)
    db.execute(
        "select memfold.supersede_memory(%s, %s, tenant_id => 'acme')", [rome.memory_id, paris.memory_id]
    )
    assert (status(db, paris), status(db, rome)) == ("active", "superseded")
    oslo = lives(db, "Oslo")
    # not of the current value: of a former one
    db.execute(
        "select memfold.supersede_memory(%s, %s, tenant_id => 'acme')", [rome.memory_id, paris.memory_id]
    )
    assert (status(db, paris), status(db, oslo)) == ("active", "superseded")
    check(db)


def test_metadata_stated_now_is_the_newest(db: DB, clock: Any) -> None:
    for i, shift in enumerate([0, YEARS, 0, -5]):
        clock(shift)
        text = ingest(db, "User likes Vim", metadata={"version": i})
        assert one(db, "select metadata from memories where memory_id = %s", text.memory_id) == {"version": i}
        check(db)


@pytest.mark.parametrize("call", [alone, batched])
def test_now_is_the_time_of_the_call_not_of_the_transaction(db: DB, call: Any) -> None:
    single(db)
    with db.transaction():
        began = one(db, "select now()")
        lives(db, "Rome", observed_at=one(db, "select clock_timestamp()"))
        assert call(db, "Paris") == "superseded"
        assert call(db, "Paris") == "merged"
        times = [row[0] for row in db.execute("select observed_at from memory_events order by event_id")]
        assert times == sorted(times)
        assert times[0] > began
    assert db.execute("select object from memories where status = 'active'").fetchall() == [("Paris",)]
    check(db)


def test_a_batch_orders_statements_after_those_of_their_memory(db: DB, clock: Any) -> None:
    ingest(db, "User likes Vim")
    clock(100)
    ingest(db, "User likes Vim")
    clock(0)
    last_seen = one(db, "select last_seen from memory_totals")
    soon = one(db, "select memfold_internal._clock() + interval '3 minutes'")
    rows = in_batch(
        db, {"content": "User likes Vim"}, {"content": "User likes Emacs", "observed_at": soon.isoformat()},
        {"content": "User likes Emacs"}, {"content": "User likes Vim", "observed_at": "2026-01-01T00:00:00Z"},
    )  # fmt: skip
    seen = [one(db, "select observed_at from memory_events where event_id = %s", row[2]) for row in rows]
    assert seen == [last_seen, soon, soon, datetime(2026, 1, 1, tzinfo=UTC)]
    check(db)


# A window of turns is one observation -----------------------------------------------------------------------------


def n(db: DB, memory: Result) -> tuple[int, int]:
    found = counters(db, memory.memory_id)
    return found["observations"], found["independent"]


def test_a_window_of_turns_is_one_observation(db: DB) -> None:
    window = [f"t{i:02}" for i in range(20)]
    first = ingest(
        db, "User likes Vim", source_turn_ids=window, source_confidence=0.5, extractor_confidence=0.5
    )
    assert n(db, first) == (1, 1)
    known_window = one(db, "select confidence from memory_audit where memory_id = %s", first.memory_id)
    bare = ingest(
        db, "User likes Emacs", source_turn_ids=["t00"], source_confidence=0.5, extractor_confidence=0.5
    )
    assert known_window == one(db, "select confidence from memory_audit where memory_id = %s", bare.memory_id)
    ingest(db, "User likes Vim", source_turn_ids=window[3:9])
    assert n(db, first) == (2, 1)
    ingest(db, "User likes Vim", source_turn_ids=[*window[10:], "t20", "t21"])
    assert n(db, first) == (3, 2)
    ingest(db, "User likes Vim", source_turn_ids=["t21"])
    ingest(db, "User likes Vim")
    assert n(db, first) == (5, 3)
    check(db)


def test_windows_count_in_the_order_in_which_they_came(db: DB, clock: Any) -> None:
    """First a, then a and b: both new. The clock would reverse them."""
    text = ingest(db, "User likes Vim", source_turn_ids=["a"])
    clock(-5)
    ingest(db, "User likes Vim", source_turn_ids=["a", "b"])
    assert n(db, text) == (2, 2)
    check(db)


def turns(rnd: random.Random) -> list[str]:
    return rnd.sample("abcdefgh", rnd.choice([0, 1, 1, 2, 3, 5]))


@pytest.mark.parametrize("seed", range(4))
def test_windows_in_batches_count_as_one_by_one(db: DB, seed: int) -> None:
    model(db)
    rnd = random.Random(seed)
    texts = [
        ("User prefers dark mode", 1.0),
        ("The user likes dark mode best", 0.95),
        ("User likes Vim", 0.1),
    ]
    for turn in range(6):
        candidates = []
        for _ in range(rnd.randint(1, 12)):
            content, cosine = rnd.choice(texts)
            candidate = {"content": content, "source_turn_ids": turns(rnd), **vector(cosine)}
            candidate["embedding"] = json.loads(str(candidate["embedding"]))
            if rnd.random() < 0.3:
                candidate["metadata"] = {"a": turn}
            candidates.append(candidate)
        for tenant in ("acme", "single"):
            db.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
            if tenant == "acme":
                in_batch(db, *candidates)
                continue
            for candidate in candidates:
                ingest(db, tenant_id=tenant, **{**candidate, "embedding": json.dumps(candidate["embedding"])})
        found = [
            db.execute(
                "select m.content, m.status, k.observations, k.independent from memfold.memories m"
                " join memfold.memory_totals k using (tenant_id, memory_id)"
                " where tenant_id = %s and m.status <> 'merged' order by 1",
                [tenant],
            ).fetchall()
            for tenant in ("acme", "single")
        ]
        check(db)
        assert found[0] == found[1], (turn, candidates)


# Random calls by any clock ------------------------------------------------------------------------------------------

SHIFTS = [-5.0, -1.0, 0.0, 3.0, -DAY, YEARS, -YEARS]


class Shifting(Machine):
    """The random calls of tests/stateful, with a clock that stops, or steps forward and back."""

    # ids say what is later about the same memories; the model counts all events as they come ("at" stands by no shift)
    query = READ.replace("order by e.event_id", "order by e.recorded_at").replace(
        "e.event_id > %(last)s", "e.event_id <> all(%(known)s)"
    )

    @initialize(days=st.integers(4, 6))
    def set_clock(self, days: int) -> None:
        self.set_to(FIRST_DAY + days * DAY)

    def set_to(self, clock: float) -> None:
        self.world.clock = clock
        self.db.execute("select set_config('test.clock', %s, false)", [str(clock)])

    @rule(by=st.sampled_from(SHIFTS))
    def shift(self, by: float) -> None:
        self.script.append(f"the clock: {by:+g} s")
        COUNTS["clock: shifted"] += 1
        self.set_to(max(self.world.clock + by, FIRST_DAY - YEARS))

    def hand_in(self, scope: Any, text: Any, embedded: bool, variant: str, origin: str, day: int | None, *given: Any,
                **more: Any) -> None:  # fmt: skip
        if not self.world.clock:
            self.set_to(FIRST_DAY + 7 * DAY)
        if day is not None and (day % 2 == 0 or FIRST_DAY + day * DAY > self.world.clock):
            day = None
            COUNTS["clock: told now"] += 1
        super().hand_in(scope, text, embedded, variant, origin, day, *given, **more)

    def stated_now(self, last_seen: float) -> float:
        return max(self.world.clock, last_seen)


def test_random_sequences_by_a_clock_that_steps(db: DB) -> None:
    COUNTS.clear()
    db.execute("select memfold.register_embedding_model('m', %s, 0.92, 0.85)", [DIMENSIONS])
    moved = SHIFTED.format(shift="0").replace(
        "pg_catalog.clock_timestamp()",
        "pg_catalog.to_timestamp(pg_catalog.current_setting('test.clock')::double precision)",
    )
    db.execute(b"select set_config('test.clock', '%f', false)" % FIRST_DAY)
    db.execute(moved.encode())
    # the model numbers judgements as they come
    db.execute("create sequence public.numbers; grant usage on sequence public.numbers to public")
    db.execute(
        "alter table memfold.judgements alter judgement_id"
        " set default lpad(to_hex(nextval('public.numbers')), 32, '0')::uuid"
    )
    run_state_machine_as_test(
        hypothesis.seed(SEED)(type("Sequence", (Shifting,), {"db": db})),
        settings=settings(
            max_examples=rounds("MEMFOLD_SEQUENCES", 10, 200), stateful_step_count=STEPS, print_blob=False,
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )  # fmt: skip
    print(report(COUNTS, 0))
    # how often depends on where Hypothesis finds constants to draw: on the directories' names, too
    assert COUNTS["clock: shifted"] > 0
    assert COUNTS["clock: told now"] > 0


TOWNS = ["Paris", "Rome", "Oslo", "Bonn"]
LIKES = ["tea", "coffee", "milk"]


def step(db: DB, rnd: random.Random, done: list[Any]) -> None:
    """One call. A statement made now is current now, unless a person has decided otherwise."""
    person = rnd.choice(["Ann", "Bob"])
    what = rnd.choice(
        ["town"] * 5 + ["like"] * 4 + ["batch", "undo", "undo", "supersede", "reject", "prune", "merge"]
    )
    known = [
        row[0]
        for row in db.execute(
            "select memory_id from memories where status in ('active', 'superseded') order by content"
        )
    ]
    if what in ("town", "like", "batch"):
        thing = rnd.choice(LIKES if what == "like" else TOWNS)
        predicate = "likes" if what == "like" else "lives_in"
        candidate = {"content": f"{person} {predicate} {thing}", "subject": person, "predicate": predicate,
                     "object": thing, "source_turn_ids": turns(rnd)}  # fmt: skip
        if what == "batch":
            in_batch(db, candidate)
        else:
            done.append(ingest(db, **candidate).event_id)
        found = db.execute(
            "select r.status, r.object from memories m join memories r on r.memory_id = coalesce(m.root_id, m.memory_id)"
            " where m.content = %s",
            [candidate["content"]],
        ).fetchall()
        assert [row[0] for row in found] in (["active"], ["rejected"]), (candidate, found)
    elif what == "undo" and done:
        db.execute("select memfold.undo(%s, tenant_id => 'acme')", [done.pop(rnd.randrange(len(done)))])
    elif what == "prune":
        db.execute(
            "update memory_counters set harmful_count = 9 where memory_id = (select memory_id from memories"
            " where predicate = 'likes' and status = 'active' order by content limit 1)"
        )
        db.execute("select memfold.prune_memories('acme', 'default', max_confidence => 0, dry_run => false)")
        db.execute("update memory_counters set harmful_count = 0 where harmful_count > 0")
    elif what == "reject" and known and rnd.random() < 0.5:
        done.append(
            one(db, "select event_id from memfold.reject_memory(%s, tenant_id => 'acme')", rnd.choice(known))
        )
    elif what in ("supersede", "merge") and len(known) > 1:
        a, b = rnd.sample(known, 2)
        function = "supersede_memory" if what == "supersede" else "merge_memories"
        done.append(one(db, f"select event_id from memfold.{function}(%s, %s, tenant_id => 'acme')", a, b))
        if what == "supersede":
            assert status(db, b) == "active", (a, b)


@pytest.mark.parametrize("seed", seeds(1, 12))
def test_a_statement_made_now_is_current_by_any_clock(db: DB, clock: Any, seed: int) -> None:
    single(db)
    rnd = random.Random(seed)
    done: list[Any] = []
    for turn in range(250):
        if rnd.random() < 0.2:
            clock(rnd.choice([0, -5, -5, 5, YEARS, -YEARS]))
        try:
            step(db, rnd, done)
        except psycopg.Error as error:
            # nothing that can be undone, or two that are merged already
            if error.sqlstate not in ("MF032", "MF033", "MF034"):
                raise
        if turn % 10 == 9:
            check(db)
    check(db)


def test_the_key_of_a_batch_identifies_the_row_that_was_written(db: DB) -> None:
    """As if another call had restated the memory since the batch took its ids: the row gets a higher one."""
    ingest(db, "Ann likes tea")
    db.execute("update memory_counters set last_event = 'ffffffff-0000-7000-8000-000000000000'")
    said = {"content": "Ann likes tea", "metadata": {"a": 1}, "idempotency_key": "k"}
    for _ in range(2):
        found = db.execute(
            "select event_id from ingest_memories(%s, 'acme')", [json.dumps([said, said])]
        ).fetchall()
        assert found == [(one(db, "select event_id from memory_events where action = 'merged'"),)] * 2
    check(db)
