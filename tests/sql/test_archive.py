"""Retention: archived ledger rows change no state, are found again, and come back when something depends on them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import hypothesis
import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from tests.concurrent_calls import together
from tests.stateful.counts import COUNTS, report
from tests.stateful.ingest_steps import GIVEN
from tests.stateful.machine import Machine
from tests.stateful.scopes import DIMENSIONS
from tests.support import Result, check, counters, ingest, model, vector

DB = psycopg.Connection[Any]
Connect = Callable[..., DB]


DAYS = st.lists(st.integers(0, 6), min_size=3, max_size=6)


class Archiving(Machine):
    """The random calls of tests/stateful; the model that they are compared with knows no archive."""

    @precondition(lambda self: self.world.memories)
    @rule(max_events=st.sampled_from([1000, 1000, 1000, 3, 8]))
    def archive(self, max_events: int) -> None:
        self.script.append(f"archive_events({max_events})")
        for _ in range(1000):
            row = self.db.execute(
                "select (a).archived, (a).summaries, (a).is_left"
                " from memfold.archive_events(clock_timestamp(), max_events => %s, tenant_id => %s) as a",
                [max_events, self.tenant],
            ).fetchone()
            assert row is not None
            COUNTS["archived: rows"] += row[0]
            COUNTS["archived: rows for many"] += row[1]
            if not row[2]:
                break
        else:
            raise AssertionError(f"it has no end\n{self.told()}")
        self.read(True)
        assert not self.held["events"]
        assert not self.held["invariants"], (self.told(), self.held["invariants"])
        assert not self.compare(), self.told()

    def again(self, memory: int, days: list[int], given: dict[str, Any]) -> None:
        m = self.world.memories[self.choose(memory)]
        for day in days:
            self.hand_in(m.scope, m.text, True, **{**given, "day": day, "origin": "observed", "key": None})

    @precondition(lambda self: self.world.memories)
    @rule(memory=st.integers(0, 29), days=DAYS, **GIVEN)
    def restate_often(self, memory: int, days: list[int], **given: Any) -> None:
        self.again(memory, days, given)

    @precondition(lambda self: self.world.memories)
    @rule(memory=st.integers(0, 29), days=DAYS, max_events=st.just(1000), **GIVEN)
    def restate_and_archive(self, memory: int, days: list[int], max_events: int, **given: Any) -> None:
        self.again(memory, days, {**given, "metadata": {}})
        self.archive(max_events=max_events)


def archiving(db: DB, sequences: int, steps: int, seed: int) -> None:
    db.execute("select memfold.register_embedding_model('m', %s)", [DIMENSIONS])
    run_state_machine_as_test(
        hypothesis.seed(seed)(type("Sequence", (Archiving,), {"db": db})),
        settings=hypothesis.settings(
            max_examples=sequences, stateful_step_count=steps, deadline=None, database=None, print_blob=False,
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )  # fmt: skip


@pytest.mark.slow
def test_random_sequences(db: DB) -> None:
    COUNTS.clear()
    archiving(
        db,
        int(os.environ.get("MEMFOLD_SEQUENCES", "30")),
        int(os.environ.get("MEMFOLD_STEPS", "30")),
        # other sequences on each server
        int(os.environ.get("MEMFOLD_SEED", "1" if db.info.server_version >= 180000 else "2")),
    )
    print(report(COUNTS, 0))
    assert COUNTS["archived: rows"] > 25
    assert COUNTS["archived: rows for many"] > 5


def archive(db: DB, max_events: int = 1000, tenant: str = "acme") -> tuple[int, int]:
    """Archive all old rows, in as many calls as necessary; returns the rows moved, and the rows that stand for many
    created or enlarged."""
    archived = summaries = 0
    for _ in range(10_000):
        row = db.execute(
            "select (a).* from (select archive_events(clock_timestamp(), max_events => %s, tenant_id => %s) as a) as x",
            [max_events, tenant],
        ).fetchone()
        assert row is not None
        archived, summaries = archived + row[0], summaries + row[1]
        assert row[0] <= max_events
        if not row[2]:
            return archived, summaries
    raise AssertionError("it has no end")


def one(db: DB, query: str, *arguments: Any) -> Any:
    row = db.execute(query.encode(), arguments).fetchone()
    assert row is not None
    return row[0] if len(row) == 1 else row


SHOWN = [
    "select to_jsonb(a) - 'effective_confidence' from memory_audit a order by memory_id",
    "select to_jsonb(s) from dedup_stats s order by bucket_id",
    "select to_jsonb(c) from judge_costs c order by day",
    "select to_jsonb(r) from runaway_memories r order by memory_id",
    "select to_jsonb(o) from runs_overview o order by run_id",
    "select to_jsonb(s) from memory_sources s order by memory_id, source_turn_id",
    "select to_jsonb(i) from memory_intervals i order by memory_id, valid_from",
    "select to_jsonb(f) from search_memories('[1,0,0,0]', 'm', 'acme', 'default') f",
]


def shown(db: DB) -> list[Any]:
    return [db.execute(query).fetchall() for query in SHOWN]


def history(db: DB) -> list[Result]:
    """Something of everything that is archived, and of what is not."""
    model(db)
    db.execute("select set_predicate('works_at', 'acme')")
    db.execute(
        "select set_policy('acme', 'default', metadata_max => array['score'], metadata_merge => 'newest')"
    )
    made = [ingest(db, "User prefers dark mode", source_turn_ids=["t0"], **vector(1.0))]
    made.append(ingest(db, "The user likes dark mode best", **vector(0.95)))
    for i in range(30):
        made.append(
            ingest(
                db,
                ("User prefers dark mode", "The user likes dark mode best")[i % 2],
                source_turn_ids=[f"t{i % 7}"] if i % 3 else [],
                source_confidence=0.1 + i / 50,
                metadata={"score": i % 5} if i % 4 == 0 else {},
                observed_at=f"2026-01-{1 + (i * 7) % 28:02}",
                idempotency_key=f"k{i}",
            )
        )
    for place in ("VW", "Stripe", "VW", "VW", "VW"):
        made.append(
            ingest(
                db,
                f"Ann works at {place}",
                subject="Ann",
                predicate="works_at",
                object=place,
                idempotency_key=f"w {place}",
            )
        )
    tea = ingest(db, "User likes tea", source_confidence=0.0, extractor_confidence=0.0)
    for _ in range(3):
        ingest(db, "User likes tea", origin="recalled")
        ingest(db, "User likes tea", source_confidence=0.0, observed_at="2025-01-01")
    ingest(db, "Nobody has said this", origin="recalled", idempotency_key="refused")
    rejected = ingest(db, "User is a dog")
    db.execute("select reject_memory(%s, tenant_id => 'acme')", [rejected.memory_id])
    for _ in range(3):
        assert ingest(db, "User is a dog").action == "rejected"
    db.execute("select record_feedback(%s, false, 'acme') from generate_series(1, 5)", [tea.memory_id])
    db.execute("select undo(%s, tenant_id => 'acme')", [made[9].event_id])
    return made


def test_what_is_shown_stays(db: DB) -> None:
    made = history(db)
    db.execute("set memfold.tenant_id = 'acme'")
    pruned = db.execute(
        "select memory_id from prune_memories('acme', 'default', 1, '0', dry_run => false)"
    ).fetchall()
    assert pruned
    before = shown(db)
    answers = [
        db.execute("select * from memfold_internal._event_result('acme', %s)", [m.event_id]).fetchone()
        for m in made
    ]
    rows = one(db, "select count(*) from memory_events")
    archived, summaries = archive(db)
    assert archived >= 30
    assert summaries >= 2
    assert one(db, "select count(*) from memory_events_archive") == archived
    assert one(db, "select count(*) from memory_events") == rows - archived + summaries
    assert shown(db) == before
    check(db)
    assert [
        db.execute("select * from memfold_internal._event_result('acme', %s)", [m.event_id]).fetchone()
        for m in made
    ] == answers
    # and again: nothing is left to do
    assert archive(db) == (0, 0)
    # derived again, from what is left
    db.execute("select derive_scope(array(select memory_id from memories), 'acme')")
    assert shown(db) == before
    check(db)
    # a pruned memory that is stated again comes back, and what was archived does not make it so
    again = ingest(db, "User likes tea")
    assert again.memory_id in {row[0] for row in pruned}
    check(db)
    db.execute("select memfold_internal._unarchive('acme', array(select memory_id from memories))")
    assert one(db, "select count(*) from memory_events where method = 'archived'") == 0
    assert one(db, "select count(*) from memory_events_archive where memory_id is not null") == 0
    check(db)


def test_a_repeated_call_is_answered_from_the_archive(db: DB) -> None:
    history(db)

    def again() -> list[Result]:
        return [
            ingest(
                db,
                "User prefers dark mode",
                metadata={"score": i % 5} if i % 4 == 0 else {},
                idempotency_key=f"k{i}",
            )
            for i in (2, 8, 28)
        ]

    first = again()
    refused = ingest(db, "Nobody has said this", origin="recalled", idempotency_key="refused")
    archive(db)
    assert one(db, "select count(*) from memory_events where event_id = %s", refused.event_id) == 0
    assert first == again()
    assert refused == ingest(db, "Nobody has said this", origin="recalled", idempotency_key="refused")
    check(db)


def test_undo_finds_what_is_archived(db: DB) -> None:
    said = [ingest(db, "User likes tea", source_turn_ids=[f"t{i}"]) for i in range(8)]
    db.execute("select undo(%s, tenant_id => 'acme')", [said[3].event_id])
    # the undone row and the row that undid it are archived as well
    assert archive(db) == (8, 1)
    assert [
        row[0] for row in db.execute("select method from memory_events order by event_id").fetchall()
    ] == [
        None,
        "archived",
    ]
    with pytest.raises(psycopg.Error, match="already undone") as error:
        db.execute("select undo(%s, tenant_id => 'acme')", [said[3].event_id])
    assert error.value.sqlstate == "MF033"
    assert one(db, "select count(*) from memory_events_archive") == 8
    # the last one's id is that of the row which stands for all
    for which in (7, 5):
        db.execute("select undo(%s, tenant_id => 'acme')", [said[which].event_id])
        assert one(db, "select count(*) from memory_events_archive") == 0
        check(db)
        archive(db)
        check(db)
    assert counters(db, said[0].memory_id)["observations"] == 5
    assert [r[0] for r in db.execute("select source_turn_id from memory_sources order by 1").fetchall()] == [
        "t0", "t1", "t2", "t4", "t6",
    ]  # fmt: skip


def test_metadata_stay_though_their_rows_are_undone(db: DB) -> None:
    """Of equal metadata the first and the last row stay in the ledger; when one of them goes, the others count again."""
    for policy in ("merge", "newest", "first"):
        db.execute("select set_policy('acme', %s, metadata_merge => %s)", [policy, policy])
        said = [
            ingest(
                db, "User likes tea", bucket_id=policy, metadata={"k": i % 2}, observed_at=f"2026-01-{30 - i}"
            )
            for i in range(10)
        ]
        archive(db)
        assert (
            one(
                db,
                "select observations from memory_events where bucket_id = %s and method = 'archived'",
                policy,
            )
            == 5
        )
        check(db)
        for gone in (said[9], said[8], said[1]):
            db.execute("select undo(%s, tenant_id => 'acme')", [gone.event_id])
            check(db)
            archive(db)
            check(db)


def test_many_turns_are_many_rows(db: DB) -> None:
    for i in range(26):
        ingest(db, "User likes tea", source_turn_ids=[f"t{i}-{k}" for k in range(200)])
    archive(db)
    held = db.execute(
        "select observations, cardinality(source_turn_ids) from memory_events where method = 'archived' order by event_id"
    ).fetchall()
    assert sum(n for n, _ in held) == 25
    assert len(held) == 3
    assert max(turns for _, turns in held) <= 2200
    check(db)


def test_batches_are_bounded(db: DB) -> None:
    for i in range(40):
        for _ in range(5):
            ingest(db, f"Fact {i}", metadata={"i": i})
    ages = "select count(*) from memory_events where method is distinct from 'archived'"
    before = one(db, ages)
    for wrong in (0, 10_001, None):
        with pytest.raises(psycopg.Error) as error:
            db.execute("select archive_events(now(), 'acme', %s)", [wrong])
        assert error.value.sqlstate == "MF022"
    with pytest.raises(psycopg.Error) as error:
        db.execute("select archive_events(now() + interval '1 hour', 'acme', 10)")
    assert error.value.sqlstate == "MF022"
    # nothing is as old as that
    assert archive_before(db, "2020-01-01") == 0
    archived, _ = archive(db, 7)
    # of four restatements with equal metadata the first and the last stay
    assert archived <= 80
    assert one(db, ages) == before - archived
    check(db)
    # what a small window has left, the next pass finds
    assert archived + archive(db)[0] == 80
    check(db)


def archive_before(db: DB, before: str) -> int:
    return int(one(db, "select (archive_events(%s, 'acme', 1000)).archived", before))


def test_explain_says_what_was_archived(db: DB) -> None:
    memory, *_ = [
        ingest(db, "User likes tea", source_turn_ids=[f"t{i}"], observed_at=f"2026-01-{i + 1:02}")
        for i in range(9)
    ]
    archive(db)
    lines = [row[0] for row in db.execute("select explain_memory(%s, 'acme')", [memory.memory_id]).fetchall()]
    assert "    said 9 times, 9 of them independent; first 2026-01-01" in "\n".join(lines)
    assert "ledger (2 rows and 8 in memory_events_archive; undo(event_id) reverses one)" in lines
    assert lines[-1].startswith("    8 restatements, archived: observed from 2026-01-02")
    assert lines[-1].endswith(", from 8 source turns")


def test_writers_in_the_meantime(db: DB, connect: Connect) -> None:
    """Restatements, new facts, folds and undos while two archive: nothing is counted twice or lost."""
    model(db)
    calls, writers = 60, 6
    observed = [0] * (writers + 2)
    done = threading.Event()

    def work(i: int, connection: DB) -> None:
        if i >= writers:
            while not done.is_set():
                connection.execute("select archive_events(clock_timestamp(), 'acme', 50)")
            return
        mine = []
        try:
            for call in range(calls):
                try:
                    said = ingest(
                        connection, f"User likes fact {(i + call) % 4}", source_turn_ids=[f"t{call % 9}"],
                        metadata={"k": call % 3} if call % 5 == 0 else {}, idempotency_key=f"{i}-{call}",
                    )  # fmt: skip
                    observed[i] += 1
                    if said.action == "merged":
                        mine.append(said)
                    if call % 7 == 6:
                        connection.execute("select undo(%s, tenant_id => 'acme')", [mine.pop(0).event_id])
                        observed[i] -= 1
                except psycopg.errors.SerializationFailure:
                    continue
        finally:
            finished.append(i)
            if len(finished) == writers:
                done.set()

    finished: list[int] = []
    together([connect() for _ in range(writers + 2)], work)
    check(db)
    archive(db)
    check(db)
    assert one(db, "select sum(observations)::bigint from memory_totals") == sum(observed)
    assert one(db, "select count(*) from memory_events_archive") > 100


def test_a_restatement_does_not_wait_for_it(db: DB, connect: Connect) -> None:
    first = ingest(db, "User likes tea")
    for _ in range(5):
        ingest(db, "User likes tea")
    other = connect()
    other.execute("begin; select archive_events(clock_timestamp(), 'acme', 1000)")
    db.execute("set lock_timeout = '2s'")
    assert ingest(db, "User likes tea").memory_id == first.memory_id
    assert ingest(db, "User likes coffee", subject="another scope").action == "inserted"
    db.execute("set lock_timeout = '50ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        ingest(db, "User likes milk")
    other.execute("commit")
    check(db)


LEDGER = ("memory_events", "memory_events_archive", "archive_positions")
FORGERIES = [
    "insert into memfold.{} select * from memfold.{} limit 1",
    "update memfold.{} set tenant_id = 'globex'",
    "delete from memfold.{}",
    "truncate memfold.{}",
    "merge into memfold.{} as t using (values (1)) as v on true when matched then delete",
]


@pytest.mark.core
@pytest.mark.parametrize(
    "group", ["memfold_app", "memfold_judge", "memfold_auditor", "memfold_tenant", "memfold_queue"]
)
def test_nobody_writes_the_ledger(db: DB, connect: Connect, group: str) -> None:
    """Nor with the setting by which memfold's own functions do."""
    history(db)
    archive(db)
    role = f"{group}_{db.info.dbname}"[:60]
    groups = "memfold_app, memfold_tenant" if group == "memfold_tenant" else group
    db.execute(f"drop role if exists {role}; create role {role} login in role {groups}".encode())
    try:
        if group == "memfold_tenant":
            db.execute("insert into tenant_roles (role_name, tenant_id) values (%s, 'acme')", [role])
        held = [
            one(db, f"select count(*), md5(string_agg(t::text, '' order by t::text)) from memfold.{t} t")
            for t in LEDGER
        ]
        forger = connect(user=role)
        forger.execute("set memfold.tenant_id = 'acme'")
        for maintenance in ("off", "on"):
            forger.execute(f"set memfold.maintenance = '{maintenance}'".encode())
            for table in LEDGER:
                for statement in FORGERIES:
                    with pytest.raises(psycopg.Error) as error:
                        forger.execute(statement.format(table, table).encode())
                    assert error.value.sqlstate in ("42501", "42601"), (table, statement)
            for call in (
                "memfold_internal._archive('acme', array[]::uuid[], null)",
                "memfold_internal._unarchive('acme', array[]::uuid[])", "memfold_internal._maintain(true)",
                "memfold.archive_events(now(), 'acme', 10)",
            ):  # fmt: skip
                with pytest.raises(psycopg.Error) as error:
                    forger.execute(f"select {call}".encode())
                assert error.value.sqlstate == "42501", call
        if "app" in groups:
            # what it may do does not do more with it
            forger.execute("select memfold.ingest_memory('User is a forger', 'acme')")
            forger.execute(
                "select memfold.reject_memory(memory_id, tenant_id => 'acme') from memfold.memories limit 1"
            )
            assert one(forger, "select current_setting('memfold.maintenance')") == "on"
            assert one(db, "select count(*) from memory_events where content = 'User is a forger'") == 1
        else:
            assert held == [
                one(db, f"select count(*), md5(string_agg(t::text, '' order by t::text)) from memfold.{t} t")
                for t in LEDGER
            ]
        forger.close()
    finally:
        db.execute("delete from tenant_roles where role_name = %s", [role])
        db.execute(f"drop role {role}".encode())
    check(db)


@pytest.mark.core
def test_the_owner_needs_the_setting_too(db: DB) -> None:
    """Only what memfold does itself changes rows of the ledger or of the archive."""
    history(db)
    archive(db)
    for table in LEDGER[:2]:
        for statement in (
            "update memfold.{} set content = 'x'",
            "delete from memfold.{}",
            "truncate memfold.{}",
        ):
            with pytest.raises(psycopg.Error) as error:
                db.execute(statement.format(table).encode())
            assert error.value.sqlstate == "MF021"


def test_walls(db: DB, app: Any) -> None:
    history(db)
    archive(db)
    assert one(app("acme"), "select count(*) > 0 from memory_events_archive") is True
    assert one(app("globex"), "select count(*) from memory_events_archive") == 0
    assert one(app(), "select count(*) from memory_events_archive") == 0
    assert one(app("acme"), "select observations from dedup_stats") > 30
    mine = app("acme")
    with pytest.raises(psycopg.Error):
        mine.execute("select * from archive_events(now())")
