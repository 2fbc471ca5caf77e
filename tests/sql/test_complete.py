"""Recall looks at all of a bucket, or says that it has not: in each row, and by a NOTICE that names the statement."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import psycopg
import pytest

from tests.conftest import Connect
from tests.support.memories import model
from tests.support.queries import DB
from tests.support.searching import search
from tests.support.server_statistics import function_calls, track_functions
from tests.support.vectors import LIMIT, Scans, limit, load, noise, text, unit

pytestmark = pytest.mark.new_database

DIMENSIONS = 16
FACTS = 10_401


class Notice(NamedTuple):
    sqlstate: str | None
    message: str | None
    detail: str
    hint: str


class Notices:
    """The notices that a connection received."""

    def __init__(self, db: DB) -> None:
        self.db = db
        self.told: list[Notice] = []

    def _hear(self, one: psycopg.errors.Diagnostic) -> None:
        # it is gone once this returns
        self.told.append(
            Notice(one.sqlstate, one.message_primary, one.message_detail or "", one.message_hint or "")
        )

    def __enter__(self) -> list[Notice]:
        self.db.add_notice_handler(self._hear)
        return self.told

    def __exit__(self, *_: object) -> None:
        self.db.remove_notice_handler(self._hear)


def near(db: DB, query: str, *, threshold: float = -1, **given: Any) -> list[tuple[Any, ...]]:
    named = "".join(f", {name} => %s" for name in given)
    return db.execute(
        "select memory_id, complete from memfold.find_similar(tenant_id => 'acme', bucket_id => 'wide',"
        f" embedding => %s, embedding_model => 'm', threshold => %s{named})".encode(),
        [query, threshold, *given.values()],
    ).fetchall()


@pytest.fixture
def large(db: DB) -> DB:
    db.execute("select register_embedding_model('m', %s, 0.92, 0.85)", [DIMENSIONS])
    return db


def test_the_first_of_10_401_facts_is_found(large: DB, app: Connect) -> None:
    """By the exact text's vector, under the default policy and without an index."""
    vectors = unit(noise(FACTS, 1))
    ids = load(large, "acme", vectors)
    mine = app("acme")
    with Notices(mine) as told:
        found = search(mine, text(vectors[0]), bucket="wide", max_results=3)
        similar = near(mine, text(vectors[0]))
    assert found[0]["memory_id"] == similar[0][0] == ids[0]
    assert all(row["complete"] for row in found)
    assert all(complete for _, complete in similar)
    assert told == []


def test_an_incomplete_search_says_so(large: DB, app: Connect) -> None:
    vectors = unit(noise(120, 1))
    limit(large)
    ids = load(large, "acme", vectors)
    mine = app("acme")
    statement = "select memfold.vector_index_ddl('m') \\gexec"
    with Notices(mine) as told:
        found = search(mine, text(vectors[0]), bucket="wide")
        assert ids[0] not in [row["memory_id"] for row in found]
        assert {row["complete"] for row in found} == {False}
        assert {complete for _, complete in near(mine, text(vectors[0]))} == {False}
        # an empty result says so too
        assert search(mine, text(vectors[0]), bucket="wide", metadata={"no": "such"}) == []
    assert [one.sqlstate for one in told] == ["01M01"] * 3
    assert {one.message for one in told} == {"the search is not complete"}
    assert all(statement in one.hint for one in told)
    assert all("more than 50 vectors" in one.detail for one in told)
    assert large.execute("select warning from dedup_stats where bucket_id = 'wide'").fetchone() == (
        "search is not complete: more than 50 vectors and no index of m: run vector_index_ddl()",
    )
    # as an application sees it
    assert mine.execute("select warning from dedup_stats").fetchone() != (None,)

    large.execute("select create_vector_index('m')")
    with Notices(mine) as told:
        found = search(mine, text(vectors[0]), bucket="wide")
        assert found[0]["memory_id"] == ids[0]
        assert {row["complete"] for row in found} == {True}
        assert near(mine, text(vectors[0]))[0] == (ids[0], True)
    assert told == []
    assert large.execute("select warning from dedup_stats").fetchone() == (None,)


def test_a_scan_of_the_index_that_ends_early_says_so(large: DB, app: Connect) -> None:
    """Fewer pass the filters than were asked for: whether the scan has given up before is not known."""
    vectors = unit(noise(120, 1))
    limit(large)
    ids = load(large, "acme", vectors)
    large.execute("select create_vector_index('m')")
    large.execute("update memfold.memories set metadata = '{\"rare\": true}' where memory_id = %s", [ids[0]])
    mine = app("acme")
    with Notices(mine) as told:
        found = search(mine, text(vectors[0]), bucket="wide", metadata={"rare": True})
    assert [(row["memory_id"], row["complete"]) for row in found] == [(ids[0], False)]
    [one] = told
    assert one.hint == "Search with fewer filters, or one session: those are searched completely."


def test_the_index_is_read_on_past_what_recall_may_not_show(large: DB, app: Connect) -> None:
    """The nearest have expired: as many as were asked for are found behind them."""
    vectors = unit(noise(120, 1))
    limit(large)
    ids = load(large, "acme", vectors)
    large.execute("select create_vector_index('m')")
    order = np.argsort(-(vectors @ vectors[0]))
    large.execute(
        "update memfold.memory_counters set on_timeline = true where memory_id = any(%s)",
        [[ids[n] for n in order[:40]]],
    )
    mine = app("acme")
    with Notices(mine) as told:
        found = search(mine, text(vectors[0]), bucket="wide", max_results=3, deduplicate=False)
    assert [row["memory_id"] for row in found] == [ids[n] for n in order[40:43]]
    assert all(row["complete"] for row in found)
    assert told == []


def test_neighbours_by_an_index_whose_scan_ends_early(large: DB, app: Connect) -> None:
    """Nearly all that is near is another tenant's; whether the rest would have come is not known."""
    limit(large)
    load(large, "globex", unit(noise(60, 1)))
    ids = load(large, "acme", unit(noise(LIMIT + 5, 2)))
    large.execute("select create_vector_index('m')")
    mine = app("acme")
    with Notices(mine) as told:
        found = near(mine, text(unit(noise(1, 3))[0]), max_results=40)
        # an empty result says so too
        assert near(mine, text(unit(noise(1, 3))[0]), max_results=40, threshold=1) == []
    assert len(found) == 40
    assert {row[0] for row in found} <= set(ids)
    assert {complete for _, complete in found} == {False}
    assert [one.sqlstate for one in told] == ["01M01"] * 2
    assert all("the newest 50 vectors were compared as well" in one.detail for one in told)
    assert told[0].hint == "Pass a memory_type to search one scope."
    # as many as it looks for
    with Notices(mine) as told:
        assert {complete for _, complete in near(mine, text(unit(noise(1, 3))[0]), max_results=10)} == {True}
    assert told == []


def test_at_the_limit(large: DB, app: Connect) -> None:
    """A bucket with as many texts as are compared is complete; with one more it is not."""
    vectors = unit(noise(51, 1))
    limit(large)
    ids = load(large, "acme", vectors[:50])
    mine = app("acme")
    found = search(mine, text(vectors[0]), bucket="wide")
    assert (found[0]["memory_id"], found[0]["complete"]) == (ids[0], True)
    assert near(mine, text(vectors[0]))[0] == (ids[0], True)
    load(large, "acme", vectors[50:])
    mine = app("acme")  # a session remembers for a minute how large the bucket is
    assert not search(mine, text(vectors[0]), bucket="wide")[0]["complete"]
    assert not near(mine, text(vectors[0]))[0][1]
    # what is searched from memories to vectors is, however large
    assert search(mine, text(vectors[0]), bucket="wide", as_of="now()")[0]["complete"]
    # a scope is read by itself
    scope = {"memory_type": "fact", "subject": "no one", "predicate": "likes"}
    with Notices(mine) as told:
        assert search(mine, text(vectors[0]), bucket="wide", **scope) == []
        assert near(mine, text(vectors[0]), **scope) == []
    assert told == []


def test_a_large_bucket_is_counted_once_a_minute(large: DB) -> None:
    """Per session and bucket; one that has shrunk in the meantime is searched completely."""
    vectors = unit(noise(60, 1))
    limit(large)
    large.execute("select set_config('memfold.tenant_id', 'acme', false)")
    ids = load(large, "acme", vectors)
    load(large, "acme", unit(noise(12, 2)), bucket="small")
    large.execute("select create_vector_index('m')")
    track_functions(large)

    def counted(bucket: str = "wide") -> int:
        before = function_calls(large, "_exceeds_exact_limit")
        found.append(search(large, text(vectors[0]), bucket=bucket, deduplicate="false"))
        return function_calls(large, "_exceeds_exact_limit") - before

    found: list[list[dict[str, Any]]] = []
    assert [counted() for _ in range(3)] == [1, 0, 0]
    assert [counted("small") for _ in range(2)] == [1, 0]
    for again in found[:3]:
        assert again[0]["memory_id"] == ids[0]
        assert all(row["complete"] for row in again)
    large.execute(
        "update memory_vectors set is_live = false where bucket_id = 'wide' and memory_id <> all(%s)",
        [ids[:5]],
    )
    with Scans(large) as scans:
        counted()
    assert scans.count > 0
    assert {row["memory_id"] for row in found[-1]} == set(ids[:5])
    assert all(row["complete"] for row in found[-1])
    large.execute(
        "create or replace function memfold_internal._clock() returns timestamptz language plpgsql stable as"
        " $$ begin return pg_catalog.clock_timestamp() + interval '61 s'; end $$"
    )
    with Scans(large) as scans:
        assert counted() == 1
    assert scans.count == 0
    assert {row["memory_id"] for row in found[-1]} == set(ids[:5])


def test_a_scope_beyond_the_limit(large: DB, app: Connect) -> None:
    vectors = unit(noise(120, 1))
    limit(large)
    ids = load(large, "acme", vectors)
    large.execute("set session_replication_role = replica")
    large.execute("update memfold.memories set subject = 'Ann', predicate = 'said'")
    large.execute(
        "update memfold.memory_vectors as v set scope_key = m.scope_key from memfold.memories as m"
        " where m.memory_id = v.memory_id"
    )
    mine = app("acme")
    scope = {"memory_type": "fact", "subject": "Ann", "predicate": "said"}
    found = search(mine, text(vectors[0]), bucket="wide", **scope)
    assert ids[0] not in [row["memory_id"] for row in found]
    assert {row["complete"] for row in found} == {False}
    large.execute("select create_vector_index('m')")
    found = search(mine, text(vectors[0]), bucket="wide", **scope)
    assert (found[0]["memory_id"], found[0]["complete"]) == (ids[0], True)


def test_words_of_a_large_bucket(db: DB, app: Connect) -> None:
    model(db)
    limit(db, 5)
    for n in range(8):
        db.execute("select ingest_memory(%s, 'acme')", [f"Ann keeps bees, hive {n}"])
    mine = app("acme")

    def found(**given: Any) -> list[tuple[str, bool]]:
        rows = mine.execute(
            "select content, complete from search_memories(query => 'hive 0', tenant_id => 'acme')"
        ).fetchall()
        return [(content, complete) for content, complete in rows]

    with Notices(mine) as told:
        assert ("Ann keeps bees, hive 0", False) not in found()
        assert {complete for _, complete in found()} == {False}
    assert "select memfold.text_index_ddl('simple') \\gexec" in told[0].hint
    db.execute("select create_text_index()")
    with Notices(mine) as told:
        assert found()[0] == ("Ann keeps bees, hive 0", True)
    assert told == []
