"""replay_bucket: the results if a bucket's texts arrived again. It writes nothing."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB


def everything(db: DB) -> Any:
    """All rows of all tables."""
    tables = db.execute(
        "select relname from pg_class where relnamespace = 'memfold'::regnamespace and relkind in ('r', 'p') order by 1"
    ).fetchall()
    return {
        name: db.execute(f"select x::text from memfold.{name} as x order by 1".encode()).fetchall()
        for (name,) in tables
    }


def replay(db: DB, arguments: str = "") -> list[tuple[Any, ...]]:
    return db.execute(
        "select m.content, r.action, o.content, round(r.similarity::numeric, 2)::float8, r.guard"
        f" from memfold.replay_bucket('acme', 'default'{arguments}) as r"
        " join memfold.memories as m on m.memory_id = r.memory_id and m.tenant_id = 'acme'"
        " left join memfold.memories as o on o.memory_id = r.other_id and o.tenant_id = 'acme'"
        " order by r.memory_id".encode()
    ).fetchall()


def test_replaying_by_the_same_rules_changes_nothing(db: DB) -> None:
    """Replaying a bucket by the rules under which it was filled changes nothing."""
    model(db)
    db.execute("select memfold.set_policy('acme', 'default', neighbours => 7)")
    for text, cosine in (
        ("Runs and cycles", 1.0), ("Runs, cycles, and does yoga", 0.95), ("Runs and cycles at 5", 0.9), ("Tea", 0.5),
        ("No vector", None),
    ):  # fmt: skip
        ingest(db, text, source_turn_ids=["t"], **({} if cosine is None else vector(cosine)))
    before = everything(db)
    assert replay(db) == [
        ("Runs and cycles", "inserted", None, None, []),
        ("Runs, cycles, and does yoga", "replaced", "Runs and cycles", 0.95, []),
        ("Runs and cycles at 5", "escalated", "Runs, cycles, and does yoga", 0.99, ["numeral: 5"]),
        ("Tea", "inserted", None, None, []),
    ]
    assert everything(db) == before
    check(db)


def test_by_a_calibration_that_is_not_applied(db: DB) -> None:
    model(db)
    ingest(db, "Runs and cycles", **vector(1))
    ingest(db, "She cycles and runs", **vector(0.88))
    assert [row[1] for row in replay(db)] == ["inserted", "escalated"]
    row = db.execute(
        "insert into memfold.calibrations (model, merge_threshold, judge_threshold, method, report, fingerprint)"
        " values ('m', 0.8, 0.7, 'budget', '{}', '\\x00') returning calibration_id"
    ).fetchone()
    assert row is not None
    before = everything(db)
    assert [row[1] for row in replay(db, f", '{row[0]}'")] == ["inserted", "merged"]
    assert everything(db) == before
    assert [row[1] for row in replay(db)] == ["inserted", "escalated"]


def test_the_newest_only_and_no_vectors(db: DB) -> None:
    assert replay(db) == []
    model(db)
    for n in range(4):
        ingest(db, f"text {chr(97 + n)}", **vector(0.1 * n))
    assert [row[0] for row in replay(db, ", max_memories => 2")] == ["text c", "text d"]


@pytest.mark.parametrize("arguments", [", max_memories => 0", ", max_memories => null"])
def test_bad_input(db: DB, arguments: str) -> None:
    with pytest.raises(psycopg.Error) as error:
        replay(db, arguments)
    assert error.value.sqlstate == "MF022"
    with pytest.raises(psycopg.Error) as error:
        replay(db, ", gen_random_uuid()")
    assert error.value.sqlstate == "MF043"


def test_who_may(db: DB) -> None:
    db.execute("set role memfold_app")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        db.execute("select * from memfold.replay_bucket('acme', 'default')")
    db.execute("reset role")


def test_metadata_and_links_count(db: DB) -> None:
    """The fields of a text's identity, and the bucket's linked names, are those of its first arrival."""
    model(db)
    db.execute("select memfold.set_policy('acme', 'default', metadata_keys => '{place}', merge_veto => 0)")
    db.execute("select memfold.link_subject('Anna', 'Anna Maier', 'acme', 'default')")
    for place in ("home", "work"):
        ingest(db, "Drinks tea", metadata={"place": place}, **vector(0.99 if place == "home" else 0.5))
    ingest(db, "Drinks tea", metadata={"size": 1, "place": "home"})
    ingest(db, "Anna plays chess at the club", **vector(0.3, 2))
    ingest(db, "Anna Maier plays chess at the club", **vector(0.3, 2))
    assert [row[:3] for row in replay(db)] == [
        ("Drinks tea", "inserted", None),
        ("Drinks tea", "inserted", None),
        ("Anna plays chess at the club", "inserted", None),
        ("Anna Maier plays chess at the club", "replaced", "Anna plays chess at the club"),
    ]
    check(db)
