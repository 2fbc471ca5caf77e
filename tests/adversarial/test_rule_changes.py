"""Rules that change while a call waits: the call follows those in force when it gets the lock."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.concurrent_calls import Call, batch
from tests.support.maintenance import angle, policy, set_columns, set_options, store, storing
from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB, Connect

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
    # the second answer is what preview returns by the present rules
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
def test_a_late_vector_of_a_memory_that_is_gone(db: DB, connect: Connect, change: str) -> None:
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
    """It has planned by the previous rules."""
    statement = {
        "sweep": "select action from sweep_duplicates('acme', 'default', dry_run => false)",
        "clean": "select content from clean_exact_duplicates('acme', 'default', dry_run => false)",
        "consolidate": "select action from consolidate('acme', 'default', dry_run => false)",
    }[run]
    model(db)
    storing(db, dedup="off" if run == "clean" else "on")
    store(db, "User likes tea", **angle(0))
    store(db, "User likes tea" if run == "clean" else "The user likes tea", **angle(5))
    policy(db, preset="three_tier", dedup="off" if run == "clean" else "on", conflict="newest_wins")
    holder = connect()
    holder.execute("begin")
    policy(holder, conflict="keep_both")
    waiting = Call(db, connect(), lambda c: c.execute(statement.encode()).fetchall()).waits_for(holder)
    holder.execute("commit")
    waiting.must_retry()
    assert len(db.execute(statement.encode()).fetchall()) == 1
    check(db)


def test_end_session_reads_under_the_lock(db: DB, connect: Connect) -> None:
    """It uses the rules and memories in force when it gets the lock."""
    policy(db, preset="robotics", lexical_threshold=1)
    set_columns(db, "options", "default", session_threshold=0.5)
    for text in (
        "grip force works for cups",
        "grip force works for small cups",
        "red objects need more force",
    ):
        store(db, text, session_id="s", memory_type="observation")
    end = "select considered, superseded_count from end_session('s', 'acme')"
    holder = connect()
    holder.execute("begin")
    set_columns(holder, "options", "default", session_threshold=0.99)
    store(holder, "doors need a push", session_id="s", memory_type="observation")
    waiting = Call(db, connect(), lambda c: c.execute(end.encode()).fetchone()).waits_for(holder)
    holder.execute("commit")
    assert waiting.end() == (4, 0)
    check(db)


@pytest.mark.parametrize("bucket", ["default", "*"])
def test_two_sessions_set_options_of_a_bucket(db: DB, connect: Connect, bucket: str) -> None:
    """The second call keeps what the first one has set."""
    holder = connect()
    holder.execute("begin")
    set_options(holder, bucket, touch=True)
    waiting = Call(db, connect(), lambda c: set_options(c, bucket, decay_rate=0.1)).waits_for(holder)
    holder.execute("commit")
    waiting.end()
    row = db.execute("select touch, decay_rate from options where tenant_id = 'acme'").fetchone()
    assert row == (True, 0.1)
