"""Questions and answers that wait: for an erasure, for a writer, for an approval."""

from __future__ import annotations

from uuid import UUID

import psycopg
import pytest

from tests.support.concurrent_calls import Call, fold
from tests.support.maintenance import angle, policy, store, storing
from tests.support.memories import check, ingest, model, status, vector
from tests.support.queries import DB, Connect


def pair(db: DB) -> tuple[UUID, UUID]:
    model(db)
    storing(db)
    return store(db, "Cats are fine", **angle(0)), store(db, "Dogs are great", **angle(10))


def test_erasing_a_memory_that_is_being_asked_about(db: DB, connect: Connect) -> None:
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


def test_asking_about_a_memory_that_is_being_erased(db: DB, connect: Connect) -> None:
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


def test_writers_go_on_while_questions_are_queued(db: DB, connect: Connect) -> None:
    """A run that queued 21,000 questions held up the bucket for 3.2 s. Other rules have to wait."""
    pair(db)
    asker = connect()
    asker.execute("begin")
    asked = asker.execute(
        "select action from consolidate('acme', 'default', 'm', 0.5, dry_run => false)"
    ).fetchall()
    assert asked == [("ask",)]
    writer = connect()
    writer.execute("set lock_timeout = '10s'")
    assert ingest(writer, "Cats are fine").action == "merged"
    assert ingest(writer, "Birds sing", **angle(80)).action == "inserted"
    changing = Call(db, connect(), lambda c: policy(c, conflict="keep_both")).waits_for(asker)
    asker.execute("commit")
    changing.end()
    assert db.execute("select status from judgements").fetchall() == [("open",)]
    check(db)


def test_erasing_what_a_worker_asks_again(db: DB, connect: Connect) -> None:
    """A worker that finds one side merged asks about its root, without a lock on the scope."""
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
    worker.execute(
        "select from judgements where tenant_id = 'acme' and judgement_id = %s for no key update",
        [asked.judgement_id],
    )
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
