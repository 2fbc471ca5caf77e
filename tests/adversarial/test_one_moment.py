"""A function reads one moment's data, whatever commits while it reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Connect
from tests.support.catalog import READERS
from tests.support.concurrent_calls import Call
from tests.support.memories import Result, check, ingest, model, vector
from tests.support.queries import DB

# what commits in between, about the first of two memories
CHANGES = {
    "merge": "select merge_memories(%(one)s, %(other)s, 'acme')",
    "supersede": "select supersede_memory(%(one)s, %(other)s, 'acme')",
    "reject": "select reject_memory(%(one)s, 'acme')",
    "update": "select update_memory(%(one)s, 'Bo has a dog called Rex', 'acme')",
    "erase": "select erase_memory(%(one)s, 'acme')",
}


def test_each_reader_uses_one_snapshot(db: DB) -> None:
    """A VOLATILE function takes a new one for each of its statements. search_memories() counts what it shows: see below."""
    found = db.execute(
        "select proname from pg_proc where pronamespace = 'memfold'::regnamespace and provolatile = 's' order by 1"
    ).fetchall()
    assert [name for (name,) in found] == sorted(READERS)


def search(db: DB) -> list[Any]:
    """A call that asks for memories near the first of the two."""
    query = "select * from search_memories(%s, 'm', 'acme', touch => false)"
    return db.execute(query, [vector(1.0)["embedding"]]).fetchall()


@pytest.fixture
def pair(db: DB) -> tuple[Result, Result]:
    model(db)
    db.execute("select set_predicate('keeps', 'acme', 'many')")
    told = {"subject": "Bo", "predicate": "keeps", "source_turn_ids": ["t1"]}
    return (
        ingest(db, "Bo has a dog", object="dog", **told, **vector(1.0)),
        ingest(db, "Bo has a cat", object="cat", **told, **vector(0.6)),
    )


@pytest.mark.parametrize("change", CHANGES)
def test_a_search_concurrent_with_a_change(
    db: DB, connect: Connect, pair: tuple[Result, Result], change: str
) -> None:
    """The search waits between two of its statements until the change has committed."""
    before = search(db)
    assert len(before) == 2
    db.execute(
        "create or replace function memfold_internal._disputes(p_tenant_id text, p_memory_ids uuid[])"
        " returns setof memfold_internal.dispute language plpgsql as"
        " $$ begin perform pg_catalog.pg_advisory_lock(1); perform pg_catalog.pg_advisory_unlock(1); return; end $$"
    )
    holder = connect()
    holder.execute("select pg_advisory_lock(1)")
    call = Call(db, connect(), search).waits_for(holder)
    db.execute(CHANGES[change].encode(), {"one": pair[0].memory_id, "other": pair[1].memory_id})
    holder.execute("select pg_advisory_unlock(1)")
    assert call.end() == before
    assert search(db) != before
    check(db)
