"""Lock waits: no call waits while it holds a lock that others wait for, and data read before a wait are read again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.maintenance import angle, policy, set_options, store, storing
from tests.support import check, ingest, model, status, vector

DB = psycopg.Connection[Any]
Connect = Callable[..., DB]
PATIENCE = 60.0


class Call(threading.Thread):
    """A call in a separate thread, on its own connection: its result or its error, and whom it waits for."""

    def __init__(self, db: DB, connection: DB, work: Callable[[DB], Any]) -> None:
        super().__init__(daemon=True)
        self._db, self._connection, self._work = db, connection, work
        self._pid = connection.info.backend_pid
        self.value: Any = None
        self.error: psycopg.Error | None = None
        self.start()

    def run(self) -> None:
        try:
            self.value = self._work(self._connection)
        except psycopg.Error as error:
            self.error = error

    def blockers(self) -> list[int]:
        row = self._db.execute("select pg_blocking_pids(%s)", [self._pid]).fetchone()
        assert row is not None
        found: list[int] = row[0]
        return found

    def waits_for(self, other: DB) -> Call:
        deadline = time.monotonic() + PATIENCE
        while other.info.backend_pid not in self.blockers():
            assert self.is_alive(), f"it did not wait: {self.value} {self.error}"
            assert time.monotonic() < deadline, "it waits for nobody, or for somebody else"
            time.sleep(0.01)
        return self

    def end(self) -> Any:
        self.join(PATIENCE)
        assert not self.is_alive(), f"it still waits, for {self.blockers()}"
        if self.error is not None:
            raise self.error
        return self.value

    def overtakes(self, other: DB) -> bool:
        """Whether it has ended, instead of waiting for one that has the row by now.

        When a row's holder commits a new version, all that waited are let go, and nothing says who is the first to lock
        that: mostly, not always, the one that came first.
        """
        while self.is_alive():
            if other.info.backend_pid in self.blockers():
                return False
            time.sleep(0.01)
        self.end()
        return True

    def must_retry(self) -> psycopg.Error:
        with pytest.raises(psycopg.errors.SerializationFailure) as error:
            self.end()
        assert error.value.diag.message_hint is not None
        return error.value


def fold(db: DB, memory_id: UUID | None, into_id: UUID | None) -> None:
    db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [memory_id, into_id])


def batch(db: DB, *candidates: dict[str, Any], on_error: str = "report") -> list[Any]:
    return db.execute(
        "select action, sqlstate from ingest_memories(%s, 'acme', %s) order by ordinal",
        [json.dumps(candidates), on_error],
    ).fetchall()


def test_a_plain_insert_brings_in_a_text_of_the_batch(db: DB, connect: Connect) -> None:
    """It takes no lock of memfold's: the batch finds out by the index, and may be sent again."""
    holder = connect()
    holder.execute("begin")
    holder.execute("insert into memories (tenant_id, content) values ('acme', 'Ann has a cat')")
    texts = [{"content": text} for text in ("Ann has a dog", "Ann has a cat", "Ann has a bird")]
    waiting = Call(db, connect(), lambda c: batch(c, *texts)).waits_for(holder)
    holder.execute("commit")
    assert waiting.must_retry().diag.message_primary == "a text of the batch already exists"
    assert db.execute("select count(*) from memories").fetchone() == (1,)
    assert [row[0] for row in batch(db, *texts)] == ["inserted", "merged", "inserted"]
    db.execute("select ingest_plain_rows('acme')")
    check(db)


def advisory(db: DB, holder: DB) -> int:
    row = db.execute(
        "select count(*) from pg_locks where locktype = 'advisory' and pid = %s", [holder.info.backend_pid]
    ).fetchone()
    assert row is not None
    return int(row[0])


# A row that may be an alias's ------------------------------------------------------------------------------------


HOLD = "select from memory_counters where memory_id = %s for no key update"
TURNS = 20


def test_a_replay_of_a_text_merged_in_the_meantime(db: DB, connect: Connect) -> None:
    """It holds what has become an alias, so it may not wait for the root, which those hold who want the alias."""
    root = ingest(db, "User likes tea")

    def comes_second(text: str) -> bool:
        merged = ingest(db, text)
        folder, before, other = connect(), connect(), connect()
        folder.execute("begin")
        fold(folder, merged.memory_id, root.memory_id)
        before.execute("begin")
        first = Call(db, before, lambda c: c.execute(HOLD.encode(), [merged.memory_id])).waits_for(folder)
        replay = Call(db, connect(), lambda c: ingest(c, text)).waits_for(before)
        folder.execute("commit")
        first.end()
        if replay.overtakes(before):
            before.execute("commit")
            return False
        other.execute("begin")
        ingest(other, "User likes tea")
        before.execute("commit")
        replay.must_retry()
        other.execute("commit")
        assert ingest(db, text).method == "alias"
        return True

    assert any(comes_second(f"User likes coffee {turn}") for turn in range(TURNS))
    check(db)


def test_a_batch_of_texts_merged_in_the_meantime(db: DB, connect: Connect) -> None:
    root = ingest(db, "User likes tea")
    merged = ingest(db, "User likes coffee")
    ingest(db, "User likes milk")
    folder, other, writer = connect(), connect(), connect()
    folder.execute("begin")
    fold(folder, merged.memory_id, root.memory_id)
    replays = Call(
        db, writer, lambda c: batch(c, {"content": "User likes coffee"}, {"content": "User likes milk"})
    ).waits_for(folder)
    other.execute("begin")
    ingest(other, "User likes milk")
    folder.execute("commit")
    # not for the row of the third, which comes behind that of the second
    replays.must_retry()
    other.execute("commit")
    assert batch(db, {"content": "User likes coffee"}, {"content": "User likes milk"}) == [
        ("merged", None),
        ("merged", None),
    ]
    check(db)


def test_a_replay_of_a_text_superseded_in_the_meantime(db: DB, connect: Connect) -> None:
    """It holds the row of a value that is history now, and makes it current again: not while that one is busy."""
    db.execute("select set_predicate('lives in', 'acme')")
    slot = {"subject": "Ann", "predicate": "lives in"}
    old = ingest(db, "Ann lives in Bonn", **slot)

    def comes_second(value: str) -> bool:
        newer, before, other = connect(), connect(), connect()
        newer.execute("begin")
        assert ingest(newer, value, **slot).action == "superseded"
        before.execute("begin")
        first = Call(db, before, lambda c: c.execute(HOLD.encode(), [old.memory_id])).waits_for(newer)
        replay = Call(
            db, connect(), lambda c: ingest(c, "Ann lives in Bonn", session_id="s", **slot)
        ).waits_for(before)  # fmt: skip
        newer.execute("commit")
        first.end()
        if replay.overtakes(before):
            before.execute("commit")
            return False
        other.execute("begin")
        ingest(other, value, **slot)
        before.execute("commit")
        replay.must_retry()
        other.execute("commit")
        assert ingest(db, "Ann lives in Bonn", **slot).action == "superseded"
        return True

    assert any(comes_second(f"Ann lives in Rome, house {turn}") for turn in range(TURNS))
    check(db)


# Rules that change while a call waits ------------------------------------------------------------------------------

PARAPHRASE = {"content": "The printer stands on floor two", "subject": "office"}
RULES: list[dict[str, Any]] = [
    {"scope": "bucket"},
    {"merge_threshold": 0.99},
    {"judge_threshold": 0.1},
    {"guard": "off"},
    {"on_merge": "replace"},
    {"on_ambiguous": "review"},
    {"lexical_threshold": 0.3},
    {"conflict": "keep_both"},
    {"dedup": "off"},
    {"neighbours": 3},
]


@pytest.mark.parametrize("options", RULES, ids=lambda options: next(iter(options)))
@pytest.mark.parametrize("way", ["one call", "batch"])
def test_the_policy_changes_while_a_writer_waits(
    db: DB, connect: Connect, way: str, options: dict[str, Any]
) -> None:
    model(db)
    db.execute("select set_policy('acme', 'default')")
    candidate = {**PARAPHRASE, **vector(0.999)}

    def write(connection: DB) -> str:
        if way == "batch":
            return str(batch(connection, candidate)[0][0])
        return ingest(connection, **candidate).action

    holder = connect()
    holder.execute("begin")
    policy(holder, **options)
    ingest(holder, "The printer is on floor two", subject="printer", **vector(1.0))
    waiting = Call(db, connect(), write).waits_for(holder)
    holder.execute("commit")
    waiting.must_retry()
    # what it says the second time is what preview says of the present rules
    expected = ingest(db, function="preview_memory", **candidate).action
    assert expected == ("merged" if options == {"scope": "bucket"} else "inserted")
    assert write(db) == expected
    check(db)


@pytest.mark.parametrize("embedded", [False, True])
@pytest.mark.parametrize("origin", ["observed", "inferred", "recalled"])
def test_a_text_becomes_known_while_a_writer_waits(
    db: DB, connect: Connect, origin: str, embedded: bool
) -> None:
    """The text was unknown before the lock; under the lock only the INSERT finds it, if the decision needs one."""
    model(db)
    told = vector(1.0) if embedded else {}
    holder = connect()
    holder.execute("begin")
    first = ingest(holder, "User likes tea", **told)
    waiting = Call(db, connect(), lambda c: ingest(c, "user likes TEA", origin=origin, **told)).waits_for(
        holder
    )
    holder.execute("commit")
    again = waiting.end()
    assert (again.action, again.tier, again.memory_id) == ("merged", 1, first.memory_id)
    assert db.execute("select count(*) from memories").fetchone() == (1,)
    check(db)


@pytest.mark.parametrize("scope", ["bucket", "predicate"])
def test_an_unchanged_policy_is_no_reason_to_retry(db: DB, connect: Connect, scope: str) -> None:
    db.execute("select set_policy('acme', 'default', scope => %s)", [scope])
    holder = connect()
    holder.execute("begin")
    policy(holder, scope=scope)
    waiting = Call(db, connect(), lambda c: ingest(c, "User likes tea")).waits_for(holder)
    holder.execute("commit")
    assert waiting.end().action == "inserted"


@pytest.mark.parametrize("way", ["one call", "batch"])
def test_a_predicate_becomes_single_valued_while_a_writer_waits(db: DB, connect: Connect, way: str) -> None:
    slot = {"subject": "Ann", "predicate": "lives in"}
    holder = connect()
    holder.execute("begin")
    db.execute("select set_predicate('lives in', 'acme', 'many')")
    holder.execute("select set_predicate('lives in', 'acme', 'one')")
    ingest(holder, "Ann lives in Bonn", **slot)
    candidate = {"content": "Ann lives in Rome", **slot}
    waiting = Call(
        db,
        connect(),
        lambda c: batch(c, candidate)[0][0] if way == "batch" else ingest(c, **candidate).action,
    ).waits_for(holder)
    holder.execute("commit")
    assert waiting.end() == "superseded"
    check(db)


@pytest.mark.parametrize("way", ["one call", "batch"])
def test_a_model_is_replaced_while_a_writer_waits(db: DB, connect: Connect, way: str) -> None:
    model(db)
    model(db, "n")
    holder = connect()
    holder.execute("begin")
    ingest(holder, "User likes tea")
    holder.execute(
        "update memfold.embedding_models set replaced_by = 'n', replaced_at = now() where model = 'm'"
    )
    candidate = {"content": "User likes coffee", **vector(1.0)}
    waiting = Call(
        db, connect(), lambda c: batch(c, candidate) if way == "batch" else ingest(c, **candidate)
    ).waits_for(holder)
    holder.execute("commit")
    waiting.must_retry()
    assert db.execute("select count(*) from memory_vectors").fetchone() == (0,)


def test_a_late_vector_follows_the_current_rules(db: DB, connect: Connect) -> None:
    model(db)
    ingest(db, "User likes tea", **vector(1.0))
    late = ingest(db, "The user likes tea")
    attach = "select (attach_embedding(%s, %s, 'm', 'acme')).action"
    arguments = [late.memory_id, vector(0.999)["embedding"]]
    holder = connect()
    holder.execute("begin")
    policy(holder, merge_threshold=1, judge_threshold=1)
    waiting = Call(db, connect(), lambda c: c.execute(attach.encode(), arguments).fetchone()).waits_for(
        holder
    )
    holder.execute("commit")
    assert waiting.end() == ("embedded",)
    check(db)


@pytest.mark.parametrize("change", ["replaced", "erased"])
def test_a_late_vector_of_what_is_gone(db: DB, connect: Connect, change: str) -> None:
    model(db)
    model(db, "n")
    late = ingest(db, "The user likes tea")
    holder = connect()
    holder.execute("begin")
    if change == "erased":
        holder.execute("select erase_memory(%s, 'acme', 'test')", [late.memory_id])
    else:
        ingest(holder, "User likes tea")
        holder.execute(
            "update memfold.embedding_models set replaced_by = 'n', replaced_at = now() where model = 'm'"
        )
    waiting = Call(
        db,
        connect(),
        lambda c: c.execute(
            "select attach_embedding(%s, %s, 'm', 'acme')", [late.memory_id, vector(1.0)["embedding"]]
        ),
    ).waits_for(holder)
    holder.execute("commit")
    with pytest.raises(psycopg.Error) as error:
        waiting.end()
    assert error.value.sqlstate == {"erased": "MF018", "replaced": "MF047"}[change]


@pytest.mark.parametrize("run", ["sweep", "clean", "consolidate"])
def test_the_policy_changes_while_a_run_waits(db: DB, connect: Connect, run: str) -> None:
    """It has planned by the rules of before."""
    statement = {
        "sweep": "select action from sweep_duplicates('acme', 'default', dry_run => false)",
        "clean": "select content from clean_exact_duplicates('acme', 'default', dry_run => false)",
        "consolidate": "select action from consolidate('acme', 'default', dry_run => false)",
    }[run]
    model(db)
    storing(db, dedup="off" if run == "clean" else "on")
    store(db, "User likes tea", **angle(0))
    store(db, "User likes tea" if run == "clean" else "The user likes tea", **angle(5))
    policy(db, preset="three_tier", dedup="on", conflict="newest_wins")
    holder = connect()
    holder.execute("begin")
    policy(holder, conflict="keep_both")
    waiting = Call(db, connect(), lambda c: c.execute(statement.encode()).fetchall()).waits_for(holder)
    holder.execute("commit")
    waiting.must_retry()
    assert len(db.execute(statement.encode()).fetchall()) == 1
    check(db)


def test_a_session_is_looked_at_under_the_lock(db: DB, connect: Connect) -> None:
    """It uses the rules and memories that are valid when its turn comes."""
    policy(db, preset="robotics", lexical_threshold=1)
    set_options(db, session_threshold=0.5)
    for text in (
        "grip force works for cups",
        "grip force works for small cups",
        "red objects need more force",
    ):
        store(db, text, session_id="s", memory_type="observation")
    end = "select considered, superseded_count from end_session('s', 'acme')"
    holder = connect()
    holder.execute("begin")
    set_options(holder, session_threshold=0.99)
    store(holder, "doors need a push", session_id="s", memory_type="observation")
    waiting = Call(db, connect(), lambda c: c.execute(end.encode()).fetchone()).waits_for(holder)
    holder.execute("commit")
    assert waiting.end() == (4, 0)
    check(db)


@pytest.mark.parametrize("bucket", ["default", "*"])
def test_two_set_options_of_a_bucket(db: DB, connect: Connect, bucket: str) -> None:
    """The later one keeps what the earlier one has set."""
    holder = connect()
    holder.execute("begin")
    set_options(holder, bucket, touch=True)
    waiting = Call(db, connect(), lambda c: set_options(c, bucket, decay_rate=0.1)).waits_for(holder)
    holder.execute("commit")
    waiting.end()
    row = db.execute("select touch, decay_rate from options where tenant_id = 'acme'").fetchone()
    assert row == (True, 0.1)


# What a lock covers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["one call", "batch"])
@pytest.mark.parametrize("second", ["one call", "batch"])
def test_where_the_bucket_is_compared_the_bucket_is_locked(
    db: DB, connect: Connect, first: str, second: str
) -> None:
    """Two paraphrases of different subjects, at the same time."""
    model(db)
    policy(db, scope="bucket")

    def write(connection: DB, way: str, **candidate: Any) -> str:
        if way == "batch":
            return str(batch(connection, candidate)[0][0])
        return ingest(connection, **candidate).action

    holder = connect()
    holder.execute("begin")
    text = "The printer is on floor two"
    assert write(holder, first, content=text, subject="printer", **vector(1.0)) == "inserted"
    waiting = Call(db, connect(), lambda c: write(c, second, **PARAPHRASE, **vector(0.999))).waits_for(holder)
    holder.execute("commit")
    assert waiting.end() == "merged"
    check(db)


@pytest.mark.parametrize("bucket", ["busy", "free"])
def test_a_tree_that_has_grown_across_scopes_in_the_meantime(db: DB, connect: Connect, bucket: str) -> None:
    """A manual action waits for one scope, then needs the bucket: it only tries, as others may wait for what it holds."""
    tea = ingest(db, "Ann likes tea", subject="Ann")
    drink = ingest(db, "Everyone likes tea", subject="everyone")
    holder, other = connect(), connect()
    holder.execute("begin")
    fold(holder, tea.memory_id, drink.memory_id)
    reject = "select (reject_memory(%s, 'acme', 'test')).memory_id"

    def work(connection: DB) -> Any:
        return connection.execute(reject.encode(), [tea.memory_id]).fetchone()

    waiting = Call(db, connect(), work).waits_for(holder)
    if bucket == "busy":
        # it is in the bucket at once when the holder leaves, and stays
        other.execute("begin")
        writing = Call(db, other, lambda c: ingest(c, "Bob likes coffee", subject="Bob")).waits_for(holder)
        holder.execute("commit")
        writing.end()
        waiting.must_retry()
        other.execute("commit")
        assert work(db) == (drink.memory_id,)
    else:
        holder.execute("commit")
        assert waiting.end() == (drink.memory_id,)
    check(db)


# How many locks ----------------------------------------------------------------------------------------------------

FACTS = (
    "select count(*) from generate_series(1, %s) as n, format('%s %%s', n) as fact,"
    " ingest_memory(fact, 'acme', subject => fact)"
)


def facts(connection: DB, number: int, name: str = "note") -> None:
    """This many new facts in one statement, each in a separate scope."""
    connection.execute((FACTS % (number, name)).encode())


def test_many_facts_in_one_transaction(db: DB, connect: Connect) -> None:
    """From the 65th scope on, the bucket's key stands for all of its scopes."""
    writer = connect()
    writer.execute("begin")
    facts(writer, 64)
    assert advisory(db, writer) == 65
    facts(writer, 5000, "further note")
    assert advisory(db, writer) == 66
    waiting = Call(db, connect(), lambda c: ingest(c, "another one")).waits_for(writer)
    writer.execute("commit")
    waiting.end()
    # it ends with the transaction
    writer.execute("begin")
    facts(writer, 3, "last")
    assert advisory(db, writer) == 4
    writer.execute("commit")
    check(db)


@pytest.mark.parametrize("about", ["other things", "the same things"])
def test_two_transactions_of_many_facts(db: DB, connect: Connect, about: str) -> None:
    """Neither waits for the other to leave the bucket; the error for too many locks says how to avoid them."""
    refused: list[psycopg.Error] = []

    def write(connection: DB, name: str) -> None:
        lock_bucket = about == "the same things"
        for _ in range(30):
            connection.execute("begin")
            try:
                if lock_bucket:
                    connection.execute("set local memfold.lock_bucket = on")
                for n in range(25):
                    ingest(connection, f"{name} begins", subject=f"{name} {n}")
                facts(connection, 2500, name if about == "other things" else "fact")
                connection.execute("commit")
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected) as error:
                connection.execute("rollback")
                refused.append(error)
            else:
                return
        raise psycopg.errors.SerializationFailure("thirty times in a row")

    writers = [Call(db, connect(), lambda c, name=name: write(c, name)) for name in ("one", "two")]  # type: ignore[misc]
    for writer in writers:
        writer.join(4 * PATIENCE)
        assert not writer.is_alive()
        assert writer.error is None
    number = 2 * 2525 if about == "other things" else 2 * 25 + 2500
    assert db.execute("select count(*) from memories").fetchone() == (number,)
    assert [e.sqlstate for e in refused if e.sqlstate != "40001"] == []
    for error in refused:
        assert "set local memfold.lock_bucket = on" in str(error.diag.message_hint)
    check(db)


def test_a_transaction_that_may_not_have_the_bucket(db: DB, connect: Connect) -> None:
    db.execute(
        "create or replace function memfold_internal._max_scope_locks() returns bigint"
        " language sql immutable as 'select 100::bigint'"
    )
    other, writer = connect(), connect()
    other.execute("begin")
    ingest(other, "somebody else writes")
    writer.execute("begin")
    facts(writer, 98)
    assert advisory(db, writer) == 99
    with pytest.raises(psycopg.errors.SerializationFailure) as error:
        facts(writer, 3, "too many")
    assert "ingest_memories" in str(error.value.diag.message_hint)
    writer.execute("rollback")
    # after the other one ends, the bucket is free
    writer.execute("begin")
    facts(writer, 98)
    other.execute("commit")
    facts(writer, 20, "more")
    assert advisory(db, writer) == 100
    writer.execute("commit")
    check(db)


def test_a_scope_counts_once(db: DB, connect: Connect) -> None:
    writer = connect()
    writer.execute("begin")
    for n in range(100):
        ingest(writer, f"User likes {n}", subject="user")
    assert advisory(db, writer) == 2
    facts(writer, 63)
    assert advisory(db, writer) == 65
    writer.execute("rollback")


def test_a_savepoint_that_is_rolled_back_lets_go(db: DB, connect: Connect) -> None:
    writer = connect()
    writer.execute("begin; savepoint s")
    facts(writer, 70)
    writer.execute("rollback to s")
    assert advisory(db, writer) == 0
    facts(writer, 10)
    assert advisory(db, writer) == 11
    writer.execute("commit")


@pytest.mark.parametrize("beside", [False, True])
def test_a_batch_counts_what_was_locked_before(db: DB, connect: Connect, beside: bool) -> None:
    other, writer = connect(), connect()
    other.execute("begin")
    if beside:
        ingest(other, "somebody else writes")
    writer.execute("begin")
    facts(writer, 60)
    new = [{"content": f"new {n}", "subject": f"new {n}"} for n in range(10)]
    assert batch(writer, *new) == [("inserted", None)] * 10
    assert advisory(db, writer) == (71 if beside else 62)
    more = [{"content": f"more {n}", "subject": f"more {n}"} for n in range(100)]
    # it does not wait for the bucket while it holds scopes of it
    assert batch(writer, *more) == [("inserted", None)] * 100
    assert advisory(db, writer) == (171 if beside else 62)
    writer.execute("commit")
    other.execute("rollback")
    check(db)


def test_a_batch_of_values_in_one_subtransaction(db: DB, connect: Connect) -> None:
    """Each value of a slot is decided by itself; with a sub-transaction each, 64 of them fill a backend's cache."""
    if db.info.server_version < 160000:
        pytest.skip("pg_stat_get_backend_subxact() is of version 16")
    db.execute("select set_predicate('status', 'acme')")
    writer = connect()
    writer.execute("begin")
    batch(
        writer,
        *(
            {"content": f"Server {n} is up", "subject": f"server {n}", "predicate": "status"}
            for n in range(200)
        ),
    )
    row = db.execute(
        "select s.subxact_count, s.subxact_overflowed from pg_stat_get_backend_idset() as b (id),"
        " pg_stat_get_backend_subxact(b.id) as s where pg_stat_get_backend_pid(b.id) = %s",
        [writer.info.backend_pid],
    ).fetchone()
    assert row is not None
    assert row[0] <= 3
    assert row[1] is False
    writer.execute("commit")
    check(db)


@pytest.mark.parametrize("on_error", ["report", "abort"])
def test_a_batch_that_meets_a_busy_row(db: DB, on_error: str) -> None:
    db.execute("select set_predicate('status', 'acme')")
    db.execute(
        "create or replace function memfold_internal._ingest_locked(c memfold_internal.candidate, is_new boolean)"
        " returns memfold.ingest_result language plpgsql as $$ begin raise lock_not_available; end $$"
    )
    with pytest.raises(psycopg.errors.SerializationFailure) as error:
        batch(db, {"content": "It is up", "subject": "server", "predicate": "status"}, on_error=on_error)
    assert error.value.diag.message_hint is not None
    assert db.execute("select count(*) from memories").fetchone() == (0,)


# Questions about what is erased ------------------------------------------------------------------------------------


def pair(db: DB) -> tuple[UUID, UUID]:
    model(db)
    storing(db)
    return store(db, "Cats are fine", **angle(0)), store(db, "Dogs are great", **angle(10))


def test_erasing_what_is_being_asked_about(db: DB, connect: Connect) -> None:
    older, newer = pair(db)
    asker = connect()
    asker.execute("begin")
    asked = asker.execute(
        "select action from consolidate('acme', 'default', 'm', 0.5, dry_run => false)"
    ).fetchall()
    assert asked == [("ask",)]
    erasing = Call(
        db, connect(), lambda c: c.execute("select erase_memory(%s, 'acme', 'test')", [newer])
    ).waits_for(asker)
    asker.execute("commit")
    erasing.end()
    assert db.execute("select memory_id from memories").fetchall() == [(older,)]
    assert db.execute("select count(*) from judgements").fetchone() == (0,)
    check(db)


def test_asking_about_what_is_being_erased(db: DB, connect: Connect) -> None:
    older, _ = pair(db)
    eraser = connect()
    eraser.execute("begin")
    eraser.execute("select erase_memory(%s, 'acme', 'test')", [older])
    asking = Call(
        db,
        connect(),
        lambda c: c.execute(
            "select action from consolidate('acme', 'default', 'm', 0.5, dry_run => false)"
        ).fetchall(),
    ).waits_for(eraser)
    eraser.execute("commit")
    assert asking.end() == []
    assert db.execute("select count(*) from judgements").fetchone() == (0,)
    check(db)


def test_erasing_what_a_worker_asks_again(db: DB, connect: Connect) -> None:
    """A worker that finds one side merged asks about where it leads, without a lock on the scope."""
    model(db)
    root = ingest(db, "User likes tea")
    ingest(db, "Cats are fine", **vector(1.0))
    asked = ingest(db, "Dogs are great", **vector(0.88))
    assert asked.action == "escalated"
    fold(db, asked.memory_id, root.memory_id)
    worker = connect()
    worker.execute("begin")
    worker.execute("select count(*) from claim_judgements('w', tenant_id => 'acme')")
    assert db.execute("select count(*) from judgements").fetchone() == (1,)
    erasing = Call(
        db, connect(), lambda c: c.execute("select erase_memory(%s, 'acme', 'test')", [root.memory_id])
    ).waits_for(worker)
    worker.execute("commit")
    erasing.end()
    assert db.execute("select content from memories").fetchall() == [("Cats are fine",)]
    assert db.execute("select count(*) from judgements").fetchone() == (0,)
    check(db)


def test_erasing_what_a_worker_is_about_to_ask_again(db: DB, connect: Connect) -> None:
    """While it waits for the question it holds no memory yet: the worker's new question refers to them."""
    model(db)
    policy(db, guard="off")  # signals are blanked before, by an update of the question
    root = ingest(db, "User likes tea")
    ingest(db, "Cats are fine", **vector(1.0))
    asked = ingest(db, "Dogs are great", **vector(0.88))
    fold(db, asked.memory_id, root.memory_id)
    worker = connect()
    worker.execute("begin")
    worker.execute("select from judgements where judgement_id = %s for no key update", [asked.judgement_id])
    erasing = Call(
        db, connect(), lambda c: c.execute("select erase_memory(%s, 'acme', 'test')", [root.memory_id])
    ).waits_for(worker)
    worker.execute("select count(*) from claim_judgements('w', tenant_id => 'acme')")
    worker.execute("commit")
    erasing.end()
    assert db.execute("select content from memories").fetchall() == [("Cats are fine",)]
    assert db.execute("select count(*) from judgements").fetchone() == (0,)
    check(db)


def test_answering_a_question_erased_in_the_meantime(db: DB, connect: Connect) -> None:
    model(db)
    ingest(db, "Cats are fine", **vector(1.0))
    asked = ingest(db, "Dogs are great", **vector(0.88))
    for answer in ("resolve_judgement(%s, 'distinct', tenant_id => 'acme')",):
        eraser = connect()
        eraser.execute("begin")
        eraser.execute("select erase_memory(%s, 'acme', 'test')", [asked.memory_id])
        answering = Call(
            db,
            connect(),
            lambda c, a=answer: c.execute(f"select {a}".encode(), [asked.judgement_id]),  # type: ignore[misc]
        ).waits_for(eraser)
        eraser.execute("commit")
        with pytest.raises(psycopg.Error) as error:
            answering.end()
        assert error.value.sqlstate == "MF026"


# Runs and judgements wait for writers ------------------------------------------------------------------------------


def swept(db: DB) -> UUID:
    """A run that has merged one memory."""
    model(db)
    storing(db)
    store(db, "User likes tea", **angle(0))
    store(db, "The user likes tea", **angle(5))
    policy(db, preset="three_tier")
    row = db.execute(
        "select run_id, action from sweep_duplicates('acme', 'default', dry_run => false)"
    ).fetchone()
    assert row is not None
    assert row[1] == "merge"
    run_id: UUID = row[0]
    return run_id


def test_a_sweep_waits_for_a_writer(db: DB, connect: Connect) -> None:
    model(db)
    storing(db)
    older = store(db, "User likes tea", **angle(0))
    store(db, "The user likes tea", **angle(5))
    policy(db, preset="three_tier")
    writer = connect()
    writer.execute("begin")
    ingest(writer, "Something new", subject="something else")
    sweep = Call(
        db,
        connect(),
        lambda c: c.execute(
            "select action, representative_id from sweep_duplicates('acme', 'default', dry_run => false)"
        ).fetchall(),
    ).waits_for(writer)
    writer.execute("commit")
    assert sweep.end() == [("merge", older)]
    check(db)


def test_undoing_a_run_waits_for_a_writer(db: DB, connect: Connect) -> None:
    run_id = swept(db)
    writer = connect()
    writer.execute("begin")
    ingest(writer, "Something new", subject="something else")
    undo = Call(
        db,
        connect(),
        lambda c: c.execute("select status from undo_run(%s, tenant_id => 'acme')", [run_id]).fetchall(),
    ).waits_for(writer)
    writer.execute("commit")
    assert undo.end() == [("active",), ("active",)]
    check(db)


def test_a_run_is_undone_once(db: DB, connect: Connect) -> None:
    run_id = swept(db)
    first = connect()
    first.execute("begin")
    undo = "select status from undo_run(%s, tenant_id => 'acme')"
    assert first.execute(undo.encode(), [run_id]).fetchall() == [("active",), ("active",)]
    second = Call(db, connect(), lambda c: c.execute(undo.encode(), [run_id])).waits_for(first)
    first.execute("commit")
    with pytest.raises(psycopg.Error) as error:
        second.end()
    assert error.value.sqlstate == "MF039"
    assert db.execute("select count(*) from memory_events where action = 'undone'").fetchone() == (1,)
    check(db)


@pytest.mark.parametrize("writes", ["another fact", "this fact again"])
def test_pruning_waits_for_a_writer(db: DB, connect: Connect, writes: str) -> None:
    """A restatement locks only its memory's row: pruning waits for it, and checks again."""
    old: dict[str, Any] = {"source_confidence": 0.1, "extractor_confidence": 0.1, "observed_at": "2025-01-01"}
    useless = ingest(db, "User may like jazz", **old)
    writer = connect()
    writer.execute("begin")
    if writes == "another fact":
        ingest(writer, "Something new", subject="something else")
    else:
        assert ingest(writer, "User may like jazz").action == "merged"
    prune = Call(
        db,
        connect(),
        lambda c: c.execute(
            "select memory_id from prune_memories('acme', 'default', dry_run => false)"
        ).fetchall(),
    ).waits_for(writer)
    writer.execute("commit")
    if writes == "another fact":
        assert prune.end() == [(useless.memory_id,)]
        assert status(db, useless) == "withdrawn"
    else:
        assert prune.end() == []
        assert status(db, useless) == "active"
    check(db)


def test_the_last_failure_of_a_judge_waits_for_a_writer(db: DB, connect: Connect) -> None:
    """If the newer memory replaces the older, that is a decision, under the lock of their scope."""
    model(db)
    policy(db, preset="replace_newer")
    older = ingest(db, "User likes tea", **vector(1.0))
    newer = ingest(db, "User prefers coffee", **vector(0.92))
    assert newer.action == "escalated"
    claim = "select count(*) from claim_judgements('w', tenant_id => 'acme')"
    db.execute("update judgements set attempts = 7")
    assert db.execute(claim.encode()).fetchone() == (1,)
    writer = connect()
    writer.execute("begin")
    ingest(writer, "Something new")
    failing = Call(
        db,
        connect(),
        lambda c: c.execute(
            "select fail_judgement(%s, 'no answer', tenant_id => 'acme')", [newer.judgement_id]
        ).fetchone(),
    ).waits_for(writer)
    writer.execute("commit")
    assert failing.end() == ("replaced",)
    assert (status(db, older), status(db, newer)) == ("merged", "active")
    check(db)


def test_a_batch_locks_buckets_before_scopes(db: DB, connect: Connect) -> None:
    """Whatever their keys are, a call that waits for a bucket holds no scope that others in it may want."""
    lower = db.execute(
        "select s.subject from (select 's' || n as subject from generate_series(1, 100) as n) as s"
        " where hashtextextended('acme' collate \"C\", memfold_internal._scope_key('default', 'fact', s.subject, null))"
        " < memfold_internal._bucket_key('acme', 'default')"
    ).fetchall()
    assert lower, "none of these scopes has a key below the bucket's"
    holder, writer = connect(), connect()
    holder.execute("begin")
    holder.execute("select memfold_internal._lock('acme', 'default', null, true)")
    candidate = {"content": "User likes tea", "subject": lower[0][0]}
    waiting = Call(db, writer, lambda c: batch(c, candidate)).waits_for(holder)
    assert advisory(db, writer) == 1, "the key that it waits for"
    holder.execute("commit")
    assert waiting.end() == [("inserted", None)]


def test_batches_of_one_scope_take_turns(db: DB, connect: Connect) -> None:
    """If two writers have similar facts, the second one finds what the first has stored."""
    model(db)
    first = connect()
    first.execute("begin")
    assert batch(first, {"content": "User likes tea", **vector(1.0)}) == [("inserted", None)]
    alike = {"content": "The user likes tea", **vector(0.999)}
    second = Call(db, connect(), lambda c: batch(c, alike)).waits_for(first)
    first.execute("commit")
    assert second.end() == [("merged", None)]
    check(db)


def test_a_failure_while_the_answer_is_written(db: DB, connect: Connect) -> None:
    """The first answer counts: a failure that waits for it does not open the question again."""
    asked = pair(db)
    db.execute("select consolidate('acme', 'default', 'm', 0.5, dry_run => false)")
    claim = "select judgement_id from claim_judgements('w', tenant_id => 'acme')"
    row = db.execute(claim.encode()).fetchone()
    assert row is not None
    answering = connect()
    answering.execute("begin")
    answering.execute("select resolve_judgement(%s, 'duplicate', tenant_id => 'acme')", row)
    failing = Call(
        db,
        connect(),
        lambda c: c.execute(
            "select fail_judgement(%s, 'no answer', worker => 'w', tenant_id => 'acme')", row
        ).fetchone(),
    ).waits_for(answering)
    answering.execute("commit")
    assert failing.end() == ("done",)
    assert db.execute("select status, verdict from judgements").fetchall() == [("done", "duplicate")]
    assert [status(db, memory_id) for memory_id in asked] == ["active", "merged"]
    check(db)


def test_an_answer_while_an_approval_waits(db: DB, connect: Connect) -> None:
    """The first answer counts: approving a run checks again once it holds the bucket."""
    model(db)
    storing(db)
    a = store(db, "User uses Vim", subject="User", **angle(0))
    b = store(db, "User's editor is Vim", subject="User", **angle(20))
    row = db.execute("select run_id from consolidate('acme', 'default', dry_run => false)").fetchone()
    assert row is not None
    person = connect()
    person.execute("begin")
    person.execute(
        "select resolve_judgement((select judgement_id from judgements where status = 'open'), 'distinct',"
        " tenant_id => 'acme')"
    )
    approve = "select approve_run(%s, tenant_id => 'acme')"
    approval = Call(db, connect(), lambda c: c.execute(approve.encode(), [row[0]])).waits_for(person)
    person.execute("commit")
    approval.end()
    # what the first call returns was counted before it had to wait
    assert db.execute(approve.encode(), [row[0]]).fetchone() == (0,)
    assert [status(db, a), status(db, b)] == ["active", "active"]
    assert db.execute("select status, verdict from judgements").fetchall() == [("done", "distinct")]
    check(db)


@pytest.mark.parametrize("how", ["erase_memory(%(id)s, tenant_id => 'acme')", "erase_source('turn', 'acme')"])
def test_erasure_locks_all_that_it_derives_in_order(db: DB, connect: Connect, how: str) -> None:
    """A memory that was merged with it once is derived too: its row is taken in the order of ids, as a batch takes it."""
    first = ingest(db, "User likes tea").memory_id
    second = ingest(db, "User likes milk", source_turn_ids=["turn"]).memory_id
    assert str(first) < str(second)
    fold(db, second, first)
    db.execute(
        "select undo(event_id, tenant_id => 'acme') from memory_events where tier = 3 and action = 'merged'"
    )
    row = "select from memory_counters where memory_id = %s for no key update"
    holder = connect()
    holder.execute("set search_path = memfold, public")
    holder.execute("begin")
    holder.execute(row.encode(), [first])
    erasing = Call(
        db, connect(), lambda c: c.execute(f"select memfold.{how}".encode(), {"id": second})
    ).waits_for(holder)
    holder.execute(f"{row} nowait".encode(), [second])
    holder.execute("commit")
    erasing.end()
    assert status(db, first) == "active"
    assert db.execute("select count(*) from memories").fetchone() == (1,)
    check(db)


@pytest.mark.parametrize(
    "given",
    [{"metadata": {"a": 1}}, {"subject": "Ann", "predicate": "lives_in", "object": "Rome"}],
    ids=["metadata", "slot"],
)
def test_a_late_observation_waits_for_the_scope(db: DB, connect: Connect, given: dict[str, Any]) -> None:
    """It is derived under the scope's lock, which it takes before the row's: many writers of one fact need no retry."""
    db.execute("select set_predicate('lives_in', 'acme')")
    fact = {"content": "Ann lives in Rome", **given}
    ingest(db, **fact, observed_at="2026-03-02")
    holder = connect()
    holder.execute("begin")
    holder.execute(
        "select memfold_internal._lock('acme', 'default', scope_key, true) from memories where tenant_id = 'acme'"
    )
    late = Call(db, connect(), lambda c: ingest(c, **fact, observed_at="2026-03-01")).waits_for(holder)
    # others add to the row in the meantime
    assert ingest(connect(), **fact, observed_at="2026-03-03").action == "merged"
    holder.execute("commit")
    assert late.end().action == "merged"
    assert db.execute("select observations, first_seen::date::text from memory_totals").fetchone() == (
        3,
        "2026-03-01",
    )
    check(db)
