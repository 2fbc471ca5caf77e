"""Metadata follows the policy in force, also that of memories stored before it was set."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.support.memories import check, ingest
from tests.support.queries import DB


def metadata(db: DB, content: str = "Bo has a dog") -> Any:
    rows = db.execute("select metadata from memories where content = %s", [content]).fetchall()
    return rows[0][0]


@pytest.mark.parametrize("tenant", ["acme", "*"])
def test_a_new_rule_applies_to_what_is_stored(db: DB, tenant: str) -> None:
    ingest(db, "Bo has a dog", metadata={"a": 1, "size": 7}, observed_at="2026-01-01")
    ingest(db, "Bo has a dog", metadata={"b": 2, "size": 3}, observed_at="2026-01-02")
    other = ingest(db, "Bo owns a dog")
    for rule, expected in (
        ("metadata_merge => 'newest'", {"b": 2, "size": 3}),
        ("metadata_merge => 'first'", {"a": 1, "size": 7}),
        ("preset => 'replace_newer'", {"b": 2, "size": 3}),
        ("metadata_merge => 'merge'", {"a": 1, "b": 2, "size": 3}),
    ):
        db.execute(f"select set_policy(%s, {rule})".encode(), [tenant])
        assert metadata(db) == expected, rule
        check(db)
        merged = db.execute(
            "select event_id from merge_memories(%s,"
            " (select memory_id from memories where content = 'Bo has a dog'), 'acme')",
            [other.memory_id],
        ).fetchone()
        db.execute("select undo(%s, 'acme')", merged)
        assert metadata(db) == expected, rule
        check(db)


def test_largest_numbers_are_found_again(db: DB) -> None:
    for day, intensity in (1, 3), (2, 8), (3, 5):
        ingest(db, "Bo has a dog", metadata={"intensity": intensity}, observed_at=f"2026-01-0{day}")
    assert metadata(db) == {"intensity": 5}
    db.execute("select set_policy('acme', preset => 'replace_newer')")
    assert metadata(db) == {"intensity": 8}
    check(db)


def test_maintenance_processes_the_remaining_memories(db: DB) -> None:
    for part in {"a": 1}, {"b": 2}:
        told = [{"content": f"Bo has dog {n}", "metadata": part} for n in range(1_002)]
        for start in 0, 501:
            db.execute("select * from ingest_memories(%s, 'acme')", [Jsonb(told[start : start + 501])])
    db.execute("select set_policy('acme', metadata_merge => 'newest')")
    found = "select metadata, count(*) from memories group by 1 order by 2"
    assert db.execute(found).fetchall() == [({"a": 1, "b": 2}, 2), ({"b": 2}, 1_000)]
    # what waits is not damage
    check(db)
    db.execute("select run_maintenance('acme')")
    assert db.execute(found).fetchall() == [({"b": 2}, 1_002)]
    assert db.execute("select status from runs where kind = 'predicate'").fetchall() == [("done",)]
    check(db)
