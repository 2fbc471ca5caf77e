"""Names: predicates that are spelled in several ways, and subjects and predicates that are linked."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support import ingest

DB = psycopg.Connection[Any]

SPELLINGS = ["works_at", "Works at", "works-at", "worksAt", "WORKS_AT"]


@pytest.mark.parametrize("spelling", SPELLINGS[1:])
def test_predicate_however_spelled_is_one(db: DB, spelling: str) -> None:
    first = ingest(db, "Ann works at VW", subject="Ann", predicate="works_at")
    second = ingest(db, "Ann works at VW", subject="Ann", predicate=spelling)
    assert (second.action, second.memory_id, second.method) == ("merged", first.memory_id, "hash")


def test_predicate_however_spelled_is_one_slot(db: DB) -> None:
    db.execute("select set_predicate('worksAt', 'acme')")
    for number, spelling in enumerate(SPELLINGS):
        ingest(db, f"Ann works at {number}", subject="Ann", predicate=spelling, object=str(number))
    active = db.execute("select content from memories where status = 'active'").fetchall()
    assert active == [(f"Ann works at {len(SPELLINGS) - 1}",)]
    scopes = db.execute("select count(distinct scope_key) from memories").fetchone()
    assert scopes == (1,)


def test_predicate_filter_takes_any_spelling(db: DB) -> None:
    known = ingest(db, "Ann works at VW", subject="Ann", predicate="works_at")
    for spelling in SPELLINGS:
        found = db.execute(
            "select memory_id from known_memory('Ann works at VW', 'acme', subject => 'ann', predicate => %s)",
            [spelling],
        ).fetchall()
        assert found == [(known.memory_id,)]
