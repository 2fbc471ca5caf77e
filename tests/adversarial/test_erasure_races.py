"""Every call that writes to a fact and waits while it is erased: it starts over, or fails, and leaves nothing behind."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.concurrent_calls import PATIENCE, Call
from tests.support.maintenance import storing, vim
from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB, Connect, one

FACT, ALIAS, OTHER, NEW = "Ann likes tea", "Tea is what Ann likes", "Ann has a cat", "Ann has a dog"
ERASURES = {
    "memory": "select erase_memory(%(root)s, 'acme', 'test')",
    "bucket": "select erase_bucket('acme', 'default', 'test')",
    "its only turn": "select erase_source('only', 'acme', 'test')",
}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "ingest": ("select action from ingest_memory({fact}, 'acme', source_turn_ids => '{{new}}')", {}),
    "with metadata": ("select action from ingest_memory({fact}, 'acme', metadata => '{{\"a\": 1}}')", {}),
    "with a key": ("select action from ingest_memory({fact}, 'acme', idempotency_key => 'k')", {}),
    "with validity": ("select action from ingest_memory({fact}, 'acme', valid_until => '2099-01-01')", {}),
    "late": (
        "select action from ingest_memory({fact}, 'acme', metadata => '{{\"a\": 1}}', observed_at => '2020-01-01')",
        {},
    ),
    "recalled": ("select action from ingest_memory({fact}, 'acme', origin => 'recalled')", {}),
    "batch of new": ("select action from ingest_memories({batch}, 'acme', 'abort')", {"new": True}),
    "batch": ("select action from ingest_memories({batch}, 'acme', 'abort')", {}),
    "batch with metadata": (
        "select action from ingest_memories({batch}, 'acme', 'abort')",
        {"metadata": {"a": 1}},
    ),
    "batch with turns": (
        "select action from ingest_memories({batch}, 'acme', 'abort')",
        {"source_turn_ids": ["new", "two"]},
    ),
    "batch with keys": (
        "select action from ingest_memories({batch}, 'acme', 'abort')",
        {"idempotency_key": "k"},
    ),
    "update": ("select action from update_memory({id}, 'Ann likes green tea', tenant_id => 'acme')", {}),
    "reject": ("select from reject_memory({id}, 'acme', 'test')", {}),
    "merge": ("select from merge_memories({id}, {other}, 'acme')", {}),
    "merge into": ("select from merge_memories({other}, {id}, 'acme')", {}),
    "supersede": ("select from supersede_memory({id}, {other}, 'acme')", {}),
    "undo": ("select from undo({event}, 'acme', 'test')", {}),
    "feedback": ("select from record_feedback({id}, true, 'acme')", {}),
    "vector": ("select from attach_embedding({id}, {vector}, 'm', 'acme')", {}),
    "erase": ("select from erase_memory({id}, 'acme', 'test')", {}),
}
# Those that may find the row without a lock on the scope.
ADDS = ("ingest", "recalled", "batch", "batch with turns", "undo")
OWN_ERRORS = {"MF018", "MF026", "MF029", "40001"}


@pytest.mark.one_server
@pytest.mark.parametrize(
    ("call", "text", "erasure"),
    [(call, "root", "memory") for call in CALLS]
    + [(call, "alias", "memory") for call in ADDS]
    + [(call, "root", erasure) for call in ADDS for erasure in ("bucket", "its only turn")],
)
def test_a_call_waits_while_its_fact_is_erased(
    db: DB, connect: Connect, call: str, text: str, erasure: str
) -> None:
    model(db)
    root = ingest(db, FACT, source_turn_ids=["only"])
    ingest(db, FACT, source_turn_ids=["only"])
    other = ingest(db, OTHER, source_turn_ids=["others"], session_id="s")
    if text == "alias":
        alias = ingest(db, ALIAS, source_turn_ids=["only"])
        db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [alias.memory_id, root.memory_id])
    query, more = CALLS[call]
    said = ALIAS if text == "alias" else FACT
    filled = _filled(db, query, said, other.memory_id, dict(more))

    holder, writer = connect(), connect()
    holder.execute("begin")
    holder.execute(ERASURES[erasure].encode(), {"root": root.memory_id})
    waiting = Call(db, writer, lambda c: c.execute(filled.encode()).fetchall())
    waiting.waits_for(holder)
    holder.execute("commit")
    waiting.join(PATIENCE)
    check(db)
    if waiting.error is not None:
        assert waiting.error.sqlstate in OWN_ERRORS, waiting.error
        assert waiting.error.diag.message_hint
        return
    rows = waiting.end()
    # what a call acknowledges is stored
    if rows and rows[0] and rows[0][0] in ("inserted", "merged") and call != "recalled":
        assert db.execute(
            "select count(*) from memories where content = any(%s)", [[said, "Ann likes green tea"]]
        ).fetchone() == (1,)


def _filled(db: DB, query: str, said: str, other: UUID | None, more: dict[str, Any]) -> str:
    """A call about the stored text with these words: literals, so that it can run in another thread as it is."""
    row = db.execute("select memory_id from memories where content = %s", [said]).fetchone()
    assert row is not None
    (memory,) = row
    row = db.execute(
        "select max(event_id::text) from memory_events where memory_id = %s and action = 'merged'", [memory]
    ).fetchone()
    assert row is not None
    (event,) = row
    # a text that is new makes it wait for the scope, before it looks; texts that are known, for the row
    told = NEW if more.pop("new", False) else OTHER
    candidates = [{"content": text, "source_turn_ids": ["new"], **more} for text in (told, said)]
    for candidate in candidates:
        if "idempotency_key" in more:
            candidate["idempotency_key"] = candidate["content"]
    literals = {
        "fact": said, "id": memory, "other": other, "event": event, "batch": json.dumps(candidates),
        "vector": vector(1.0)["embedding"],
    }  # fmt: skip
    return query.format(
        **{name: psycopg.sql.Literal(str(value)).as_string(db) for name, value in literals.items()}
    )


def test_undoing_a_merge_into_a_memory_being_erased(db: DB, connect: Connect) -> None:
    """The text that was merged stays and is a memory of its own: there is nothing to undo any more."""
    model(db)
    ingest(db, FACT, source_turn_ids=["only"], **vector(1.0))
    merged = ingest(db, ALIAS, source_turn_ids=["other", "third"], **vector(0.99))
    assert merged.action == "merged"
    holder = connect()
    holder.execute("begin")
    holder.execute(ERASURES["its only turn"].encode())
    undoing = Call(db, connect(), lambda c: c.execute("select from undo(%s, 'acme')", [merged.event_id]))
    undoing.waits_for(holder)
    holder.execute("commit")
    with pytest.raises(psycopg.Error, match="It is inserted") as error:
        undoing.end()
    assert error.value.sqlstate == "MF032"
    assert db.execute("select content, status from memories").fetchall() == [(ALIAS, "active")]
    check(db)


@pytest.mark.parametrize("text", ["first", "last"])
def test_consolidation_does_not_ask_about_memories_being_erased(db: DB, connect: Connect, text: str) -> None:
    model(db)
    storing(db)
    vim(db)
    erased = one(
        db,
        f"select {'min' if text == 'first' else 'max'}(memory_id::text) from memories where content ~ 'User'",
    )
    holder = connect()
    holder.execute("begin")
    holder.execute(ERASURES["memory"].encode(), {"root": erased})
    asking = Call(
        db,
        connect(),
        lambda c: c.execute("select * from consolidate('acme', 'default', dry_run => false)").fetchall(),
    )
    asking.waits_for(holder)
    holder.execute("commit")
    asking.join(PATIENCE)
    asking.end()
    # the next run asks about those that are left
    assert one(db, "select count(*) from judgements") == 0
    check(db)
