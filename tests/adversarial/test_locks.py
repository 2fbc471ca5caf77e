"""Lock waits: no call waits while it holds a lock that others wait for, and data read before a wait are read again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.concurrent_calls import Call, advisory, batch, fold
from tests.support.maintenance import policy
from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB, Connect


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


# For a row that may be an alias.
HOLD = "select from memory_counters where memory_id = %s for no key update"
TURNS = 20


def test_a_replay_of_a_text_merged_in_the_meantime(db: DB, connect: Connect) -> None:
    """It holds a row that has become an alias, so it must not wait for the root, whose holder may wait for the alias."""
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
    """It holds the row of a value that has become history, and makes it current again only if nobody holds the current
    value's row."""
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
    paraphrase = {"content": "The printer stands on floor two", "subject": "office", **vector(0.999)}
    waiting = Call(db, connect(), lambda c: write(c, second, **paraphrase)).waits_for(holder)
    holder.execute("commit")
    assert waiting.end() == "merged"
    check(db)


UNDO = "select undo(event_id, 'acme') from memory_events where tier = 3 and action = 'merged'"


@pytest.mark.parametrize("bucket", ["busy", "free"])
@pytest.mark.parametrize("way", ["reject", "batch", "erase"])
def test_a_tree_that_has_grown_across_scopes_in_the_meantime(
    db: DB, connect: Connect, bucket: str, way: str
) -> None:
    """It waits for one scope, then needs the bucket: it only tries, as others may wait for what it holds."""
    tea = ingest(db, "Ann likes tea", subject="Ann")
    drink = ingest(db, "Everyone likes tea", subject="everyone")
    holder, other = connect(), connect()
    holder.execute("begin")
    fold(holder, tea.memory_id, drink.memory_id)
    if way == "erase":
        # what it was merged with once is derived again too
        holder.execute(UNDO)

    def work(connection: DB) -> Any:
        if way == "batch":
            # two: one would be a single call
            told = {"content": "Ann likes tea", "subject": "Ann", "metadata": {"a": 1}}
            return batch(connection, told, {"content": "Ann sings", "subject": "Ann"})
        query = (
            "(reject_memory(%s, 'acme')).memory_id"
            if way == "reject"
            else "(erase_memory(%s, 'acme')).erased"
        )
        return connection.execute(f"select {query}".encode(), [tea.memory_id]).fetchall()

    expected = {
        "reject": [(drink.memory_id,)],
        "batch": [("merged", None), ("inserted", None)],
        "erase": [(1,)],
    }[way]
    waiting = Call(db, connect(), work).waits_for(holder)
    if bucket == "busy":
        # it is in the bucket at once when the holder leaves, and stays
        other.execute("begin")
        writing = Call(db, other, lambda c: ingest(c, "Bob likes coffee", subject="Bob")).waits_for(holder)
        holder.execute("commit")
        writing.end()
        waiting.must_retry()
        other.execute("commit")
        assert work(db) == expected
    else:
        holder.execute("commit")
        assert waiting.end() == expected
    check(db)


def test_a_batch_locks_buckets_before_scopes(db: DB, connect: Connect) -> None:
    """Whatever their keys are, a call that waits for a bucket holds no scope that others in it may want."""
    lower = db.execute(
        "select s.subject from (select 's' || n as subject from generate_series(1, 100) as n) as s"
        " where memfold_internal._scope_lock('acme', memfold_internal._scope_key('default', 'fact', s.subject, null))"
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
