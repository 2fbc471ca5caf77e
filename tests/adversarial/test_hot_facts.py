"""Hot facts: many writers of one memory take turns, and every reader sees exact counters at any moment."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.conftest import Target
from tests.faults.killable import killable_server
from tests.support.clock import SETTING, SHIFTED
from tests.support.concurrent_calls import Call, batch, fold
from tests.support.memories import Result, check, ingest, model, vector
from tests.support.queries import DB, Connect, one
from tests.support.rounds import SEED, rounds

HOT = "User likes tea"
SECONDS = rounds("MEMFOLD_HOT_SECONDS", 2.0, 60.0)
WRITERS = 32


def hot(db: DB, **given: Any) -> Result:
    """A memory with many concurrent writers."""
    return ingest(db, HOT, **given)


def totals(db: DB, memory_id: UUID | None) -> tuple[int, int]:
    found: tuple[int, int] = one(
        db, "select observations, independent from memfold.memory_totals where memory_id = %s", memory_id
    )
    return found


@pytest.fixture
def writing(connect: Connect) -> Iterator[Callable[..., DB]]:
    """Connections in a transaction that has stated the hot fact, and has not committed."""
    opened: list[DB] = []

    def write(**given: Any) -> DB:
        other = connect()
        other.execute("begin")
        assert ingest(other, HOT, **given).method == "hash"
        opened.append(other)
        return other

    yield write
    for other in opened:
        other.close()


# Who sees which counters -----------------------------------------------------------------------------------------


def test_every_reader_is_exact(db: DB, writing: Callable[..., DB]) -> None:
    """In the writing transaction and in others, by every way to read counters."""
    model(db)
    memory = hot(db, source_turn_ids=["a"], **vector(1.0)).memory_id
    reading = (
        "select repetition_count from memory_audit where memory_id = %(id)s",
        "select repetition_count from current_memories('acme') where memory_id = %(id)s",
        "select repetition_count from search_memories('[1,0,0,0]', 'm', 'acme', touch => false)"
        " where memory_id = %(id)s",
        "select (x.line #>> '{row,observations}')::bigint - 1 from export_bucket('acme') as x (line)"
        " where x.line ->> 'table' = 'memory_counters' and %(id)s is not null",
        "select observations - 1 from memory_totals where memory_id = %(id)s",
    )

    def read(connection: DB) -> set[int]:
        return {connection.execute(q.encode(), {"id": memory}).fetchone()[0] for q in reading}  # type: ignore[index]

    writer = writing(source_turn_ids=["b"], source_confidence=0.9)
    ingest(writer, HOT, source_turn_ids=["a"])
    assert read(writer) == {2}
    assert read(db) == {0}
    confidence = "select round(confidence::numeric, 3), independent_repetitions from memory_audit"
    before = one(db, confidence)
    writer.execute("commit")
    assert read(db) == {2}
    assert one(db, confidence)[1] == 1
    assert one(db, confidence)[0] > before[0]
    check(db)


# Concurrently with derivations --------------------------------------------------------------------------------------------


def test_a_derivation_waits_for_an_uncommitted_restatement(
    db: DB, connect: Connect, writing: Callable[..., DB]
) -> None:
    """A merge while an observation of either side is uncommitted: it is counted in the resulting root."""
    other = ingest(db, "User likes milk")
    memory = hot(db)
    writer = writing(source_turn_ids=["a"])
    merge = Call(db, connect(), lambda c: fold(c, memory.memory_id, other.memory_id)).waits_for(writer)
    # a call that arrives now waits for the merge: by then the root is an alias
    late = Call(db, connect(), lambda c: ingest(c, HOT, source_turn_ids=["b"]))
    writer.execute("commit")
    merge.end()
    assert late.end().method in ("hash", "alias")
    assert totals(db, other.memory_id) == (4, 4)
    check(db)


def test_a_restatement_waits_for_an_uncommitted_derivation(db: DB, connect: Connect) -> None:
    older = ingest(db, "User likes milk")
    memory = hot(db)
    deriving = connect()
    deriving.execute("begin")
    fold(deriving, memory.memory_id, older.memory_id)
    late = Call(db, connect(), lambda c: ingest(c, HOT)).waits_for(deriving)
    deriving.execute("commit")
    assert late.end().method == "alias"
    assert totals(db, older.memory_id) == (3, 3)
    check(db)


def test_an_alias_with_the_same_turn(db: DB, connect: Connect, writing: Callable[..., DB]) -> None:
    """A turn counts once in a tree: a call that adds a text to it waits for calls that add turns."""
    model(db)
    memory = hot(db, subject="user", **vector(1.0))
    opened = connect()
    opened.execute("begin")
    ingest(opened, HOT, subject="user", source_turn_ids=["a"])
    paraphrase = Call(
        db, connect(), lambda c: ingest(c, "The user enjoys tea", subject="user", source_turn_ids=["a"], **vector(0.999))
    ).waits_for(opened)  # fmt: skip
    opened.execute("commit")
    assert paraphrase.end().memory_id == memory.memory_id
    assert totals(db, memory.memory_id) == (3, 2)
    check(db)


@pytest.mark.parametrize("turns", [["a"], ["a", "b"], ["b", "c", "a"]])
def test_two_calls_state_the_same_turn_at_once(
    db: DB, connect: Connect, writing: Callable[..., DB], turns: list[str]
) -> None:
    """The first call in the order of the ledger counts as independent: single calls and batches."""
    memory = hot(db).memory_id
    writer = writing(source_turn_ids=["a"])
    second = Call(db, connect(), lambda c: ingest(c, HOT, source_turn_ids=turns)).waits_for(writer)
    writer.execute("commit")
    second.end()
    check(db)
    writer = writing(source_turn_ids=["x"])
    again = ["x" + turn for turn in turns]
    third = Call(
        db, connect(), lambda c: batch(c, {"content": HOT, "source_turn_ids": ["x", *again]})
    ).waits_for(writer)  # fmt: skip
    fourth = Call(db, connect(), lambda c: ingest(c, HOT, source_turn_ids=["y"]))
    writer.execute("commit")
    assert third.end() == [("merged", None)]
    fourth.end()
    assert totals(db, memory)[0] == 6
    check(db)


def test_sessions_take_turns_while_the_clock_is_set_back(db: DB, connect: Connect) -> None:
    """Sessions take turns: a later statement has a higher id and a later time."""
    db.execute(SHIFTED.format(shift=SETTING).encode())
    memory = hot(db)
    sessions = [connect() for _ in range(4)]
    events = []
    for turn, shift in enumerate((3600, 0, -3600, 60, -60, 0, 30, -7200)):
        session = sessions[turn % 4]
        session.execute("select set_config('test.shift', %s, false)", [str(shift)])
        events.append(ingest(session, HOT, source_turn_ids=[f"turn {turn % 3}"]).event_id)
    assert events == sorted(events, key=str)
    seen = [
        row[0]
        for row in db.execute(
            "select observed_at from memory_events where event_id = any(%s) order by event_id", [events]
        )
    ]
    assert seen == sorted(seen)
    # an undo comes after them, and so do later statements
    undone = one(db, "select event_id from memfold.undo(%s, tenant_id => 'acme')", events[-1])
    assert str(undone) > str(events[-1])
    last = [ingest(session, HOT).event_id for session in sessions]
    last.append(ingest(db, HOT).event_id)
    last += [one(db, "select event_id from memory_events order by event_id desc limit 1")]
    assert [undone, *last] == sorted([undone, *last], key=str)
    assert totals(db, memory.memory_id)[0] == 1 + 8 - 1 + 5
    check(db)


def test_a_call_with_several_turns_counts_after_the_call_it_waited_for(db: DB, connect: Connect) -> None:
    """The ledger's order decides which of two is independent: also with several turns, and a clock that is behind."""
    db.execute(SHIFTED.format(shift=SETTING).encode())
    memory = hot(db).memory_id
    first, second = connect(), connect()
    first.execute("begin")
    ingest(first, HOT, source_turn_ids=["a"])
    second.execute("select set_config('test.shift', '-3600', false)")
    waiting = Call(db, second, lambda c: ingest(c, HOT, source_turn_ids=["a", "b"])).waits_for(first)
    first.execute("commit")
    waiting.end()
    assert totals(db, memory) == (3, 3)
    check(db)


def test_a_supersession_and_its_undo_concurrent_with_restatements(
    db: DB, connect: Connect, writing: Callable[..., DB]
) -> None:
    """A person states the newer value: recounting it must include what others state at that moment."""
    older = ingest(db, "User likes milk")
    memory = hot(db)
    events: list[UUID] = []
    for call in (
        lambda c: one(
            c,
            "select event_id from memfold.supersede_memory(%s, %s, tenant_id => 'acme')",
            older.memory_id,
            memory.memory_id,
        ),
        lambda c: one(c, "select count(*) from memfold.undo(%s, tenant_id => 'acme')", events[0]),
    ):
        writer = writing()
        person = Call(db, connect(), call).waits_for(writer)
        writer.execute("commit")
        events.append(person.end())
    assert totals(db, memory.memory_id) == (3, 3)
    check(db)


def test_pruning_sees_concurrent_restatements(db: DB, connect: Connect, writing: Callable[..., DB]) -> None:
    hot(db, observed_at="2020-01-01", source_confidence=0.0, extractor_confidence=0.0)
    writer = writing()
    pruning = Call(
        db,
        connect(),
        lambda c: c.execute(
            "select count(*) from memfold.prune_memories('acme', max_confidence => 1, dry_run => false)"
        ).fetchone(),
    ).waits_for(writer)
    writer.execute("commit")
    assert pruning.end() == (0,)
    assert one(db, "select status from memories") == "active"
    check(db)


# All at once ---------------------------------------------------------------------------------------------------------


class Load:
    """Writers of one fact, and sessions that change it at the same time; refusals are not faults."""

    def __init__(self, connect: Callable[[], DB], until: float) -> None:
        self.connect, self.until = connect, until
        self.faults: list[BaseException] = []
        self.acknowledged = 0
        self.deadlocks: list[str] = []
        self.lock = threading.Lock()
        self.threads: list[threading.Thread] = []

    def run(self, work: Callable[[DB, random.Random], object]) -> None:
        number = len(self.threads)

        def calls() -> None:
            choice = random.Random(SEED + number)
            db: DB | None = None
            try:
                while time.monotonic() < self.until:
                    try:
                        db = db if db is not None and not db.closed else self.connect()
                        done = work(db, choice)
                        if isinstance(done, int):
                            with self.lock:
                                self.acknowledged += done
                    except psycopg.errors.DeadlockDetected as error:
                        with self.lock:
                            self.deadlocks.append(f"{error.diag.message_detail}\n{error.diag.context}")
                    except (psycopg.errors.SerializationFailure, psycopg.OperationalError):
                        pass
                    except psycopg.Error as error:
                        # undone or erased by a person since
                        if not (error.sqlstate or "").startswith("MF"):
                            raise
            except BaseException as error:  # handed to the test
                self.faults.append(error)
            finally:
                if db is not None:
                    db.close()

        self.threads.append(threading.Thread(target=calls, daemon=True))

    def end(self) -> None:
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join(self.until - time.monotonic() + 60)
        assert [thread for thread in self.threads if thread.is_alive()] == []
        if self.faults:
            raise self.faults[0]


def write(db: DB, choice: random.Random) -> int:
    turns = [f"turn {choice.randrange(400)}" for _ in range(choice.choice((0, 1, 1, 1, 3)))]
    given: dict[str, Any] = {"session_id": "s"} if choice.random() < 0.2 else {}
    ingest(db, HOT, source_turn_ids=turns, **given)
    return 1


def write_batch(db: DB, choice: random.Random) -> int:
    turns = [[f"turn {choice.randrange(400)}" for _ in range(choice.randrange(3))] for _ in range(8)]
    texts = [HOT, *(f"User likes drink {choice.randrange(5)}" for _ in turns[1:])]
    told = batch(db, *({"content": text, "source_turn_ids": t} for text, t in zip(texts, turns, strict=True)))
    return sum(action is not None for action, _ in told)


def pair(db: DB, choice: random.Random) -> list[UUID]:
    """Two active memories, the hot one more often than not."""
    ids = [
        row[0]
        for row in db.execute(
            "select memory_id from memories where status = 'active' order by content <> %s, random() limit 3",
            [HOT],
        )
    ]
    while len(ids) < 2:
        ids.append(ingest(db, f"User likes drink {choice.randrange(10**9)}").memory_id)
    return choice.sample(ids, 2)


def take_back(db: DB, event: UUID) -> None:
    """Undo it, as often as necessary: a memory that stays rejected or superseded is no longer hot."""
    while True:
        with contextlib.suppress(psycopg.errors.SerializationFailure):
            db.execute("select count(*) from memfold.undo(%s, tenant_id => 'acme')", [event])
            return


def merge_and_undo(db: DB, choice: random.Random) -> None:
    event = one(
        db, "select event_id from memfold.merge_memories(%s, %s, tenant_id => 'acme')", *pair(db, choice)
    )
    time.sleep(0.02)
    take_back(db, event)


def supersede_and_undo(db: DB, choice: random.Random) -> None:
    event = one(
        db, "select event_id from memfold.supersede_memory(%s, %s, tenant_id => 'acme')", *pair(db, choice)
    )
    take_back(db, event)


def reject_and_undo(db: DB, choice: random.Random) -> None:
    event = one(
        db, "select event_id from memfold.reject_memory(%s, tenant_id => 'acme')", pair(db, choice)[0]
    )
    take_back(db, event)
    time.sleep(0.05)


def undo_one(db: DB, choice: random.Random) -> None:
    db.execute(
        "select count(*) from (select event_id from memory_events where tier = 1 and action = 'merged'"
        " order by event_id desc offset %s limit 1) as e, memfold.undo(e.event_id, tenant_id => 'acme')",
        [choice.randrange(10)],
    )


def erase_turn(db: DB, choice: random.Random) -> None:
    db.execute("select memfold.erase_source(%s, 'acme')", [f"turn {choice.randrange(400)}"])
    time.sleep(0.05)


def maintain(db: DB, choice: random.Random) -> None:
    # of sessions killed before they could
    for (event,) in db.execute(
        "select event_id from memory_events as e where action = 'rejected' and tier = 3"
        " and recorded_at < clock_timestamp() - interval '1 second'"
        " and not exists (select from memory_events as u where u.undoes = e.event_id)"
    ).fetchall():
        take_back(db, event)
    time.sleep(0.01)


def equal_to_the_ledger(db: DB) -> None:
    """In addition to check_invariants(): by an independent sum."""
    assert db.execute(
        "select m.memory_id, t.observations, e.n from memories as m"
        " left join memory_totals as t on t.memory_id = m.memory_id"
        " cross join lateral (select count(*) as n from memory_events as e join memories as o using (memory_id)"
        "  where coalesce(o.root_id, o.memory_id) = m.memory_id and e.observation and not (e.tier = 1 and exists"
        "   (select from memory_events as u where u.undoes = e.event_id)) is true) as e"
        " where m.root_id is null and coalesce(t.observations, 0) <> e.n"
    ).fetchall() == []  # fmt: skip


def test_every_call_concurrent_with_a_hot_fact(db: DB, target: Target, connect: Connect) -> None:
    """32 writers of one fact, some killed, while others change it: counters equal the ledger, no deadlock."""
    for drink in range(5):
        ingest(db, f"User likes drink {drink}")
    hot(db)
    load = Load(connect, time.monotonic() + SECONDS)
    for _ in range(WRITERS - 1):
        load.run(write)
    for other in (
        write_batch,
        merge_and_undo,
        supersede_and_undo,
        reject_and_undo,
        undo_one,
        erase_turn,
        maintain,
    ):
        load.run(other)

    def kill(_: DB, choice: random.Random) -> None:
        time.sleep(0.1)
        db.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
            " and pid <> pg_backend_pid() and state = 'active' order by random() limit 1"
        )

    load.run(kill)
    load.end()
    assert load.acknowledged > 0
    assert load.deadlocks == [], f"seed {SEED}"
    equal_to_the_ledger(db)
    check(db)


def test_writers_alone_lose_nothing(db: DB, connect: Connect) -> None:
    memory = hot(db).memory_id
    load = Load(connect, time.monotonic() + SECONDS / 2)
    for _ in range(WRITERS):
        load.run(lambda c, choice: (ingest(c, HOT), 1)[1])
    load.end()
    assert load.deadlocks == []
    assert totals(db, memory) == (1 + load.acknowledged, 1 + load.acknowledged)
    check(db)


@pytest.mark.one_server
def test_a_server_that_is_killed_under_it(target: Target) -> None:
    with killable_server(target.cluster.bindir) as server:
        with server.connect() as db:
            hot(db)
        load = Load(server.connect, time.monotonic() + SECONDS / 2)
        for _ in range(WRITERS):
            load.run(write)
        killer = threading.Timer(SECONDS / 4, server.kill)
        killer.start()
        load.end()
        killer.join()
        server.start()
        server.ready()
        with server.connect() as db:
            observed = one(db, "select observations from memfold.memory_totals")
            # unacknowledged calls may be stored
            assert 1 + load.acknowledged <= observed <= 1 + load.acknowledged + WRITERS
            assert one(db, "select count(*) from memfold.memory_events where observation") == observed
            assert db.execute("select * from memfold.check_invariants('acme')").fetchall() == []


def test_the_slow_path_keeps_the_last_id(db: DB) -> None:
    """A call that becomes an addition under the scope's lock takes an id below that of the next one."""
    made = ingest(db, HOT)
    event = one(
        db,
        "select (memfold_internal._ingest_under_locks(memfold_internal._validate(memfold_internal._candidate(%s, 'acme',"
        " p_source_turn_ids => '{a,b}')))).event_id",
        HOT,
    )
    assert one(db, "select last_event from memory_counters where memory_id = %s", made.memory_id) == event
    check(db)
