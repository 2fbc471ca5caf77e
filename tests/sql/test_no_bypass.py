"""Promise 8: the hash cannot be forged or omitted, and nothing that the ledger names can be deleted."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.memories import check, counters, ingest
from tests.support.queries import DB

pytestmark = pytest.mark.core


def test_a_plain_insert_hits_the_same_index(db: DB) -> None:
    ingest(db, "User likes Vim")
    with pytest.raises(psycopg.errors.UniqueViolation):
        db.execute("insert into memories (tenant_id, content) values ('acme', ' user LIKES vim. ')")
    db.execute("insert into memories (tenant_id, content) values ('acme', 'User likes tea')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        db.execute("insert into memories (tenant_id, content) values ('acme', 'user likes tea')")


def test_the_policy_fills_what_the_hash_is_made_of(db: DB) -> None:
    db.execute("select set_policy('acme', 'code', canonicalizer => 'code')")
    db.execute("insert into memories (tenant_id, bucket_id, content) values ('acme', 'code', 'X := 1')")
    db.execute("insert into memories (tenant_id, bucket_id, content) values ('acme', 'code', 'x := 1')")
    assert ingest(db, "x := 1", bucket_id="code").action == "merged"
    assert db.execute("select distinct canonicalizer from memories").fetchall() == [("code/1",)]


def test_the_hash_cannot_be_given(db: DB) -> None:
    with pytest.raises(psycopg.Error) as error:
        db.execute("insert into memories (tenant_id, content, content_hash) values ('acme', 'a', '\\x00')")
    assert error.value.sqlstate == "428C9"


def test_a_plain_row_is_taken_in_at_its_first_hit(db: DB) -> None:
    db.execute(
        "insert into memories (tenant_id, content, metadata) values ('acme', 'User likes tea', '{\"a\": 1}')"
    )
    # it waits, and is not damage
    check(db)
    result = ingest(db, "User likes tea", metadata={"b": 2})
    assert (result.action, result.tier) == ("merged", 1)
    assert counters(db, result.memory_id)["observations"] == 2
    assert db.execute("select metadata from memories").fetchone() == ({"a": 1, "b": 2},)
    check(db)


@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("update memories set content = 'x'", "MF020"),
        ("update memories set memory_type = 'x', status = 'active'", "MF020"),
        ("update memories set bucket_id = 'x'", "MF020"),
        ("delete from memories", "MF020"),
        ("truncate memories cascade", "MF020"),
        ("update memory_events set content = 'x'", "MF021"),
        ("delete from memory_events", "MF021"),
        ("truncate memory_events", "MF021"),
    ],
)
def test_what_never_changes(db: DB, statement: str, state: str) -> None:
    ingest(db, "User likes Vim")
    with pytest.raises(psycopg.Error) as error:
        db.execute(statement)
    assert error.value.sqlstate == state
    assert error.value.diag.message_detail
    assert error.value.diag.message_hint
    check(db)


def test_content_that_is_empty_in_canonical_form_is_refused_here_too(db: DB) -> None:
    with pytest.raises(psycopg.Error) as error:
        db.execute("insert into memories (tenant_id, content) values ('acme', ' . ')")
    assert error.value.sqlstate == "MF004"


@pytest.mark.parametrize("column", ["bucket_id", "memory_type", "subject", "predicate", "object"])
def test_identifiers_that_are_empty_in_canonical_form_too(db: DB, column: str) -> None:
    empty = "" if column in ("bucket_id", "memory_type") else " . "
    with pytest.raises(psycopg.Error) as error:
        db.execute(f"insert into memories (tenant_id, content, {column}) values ('acme', 'a', '{empty}')")
    assert error.value.sqlstate == "MF003"


def test_a_plain_row_that_has_opted_out_says_so(db: DB) -> None:
    """Loaded from a dump, it is not processed again."""
    db.execute("select set_policy('acme', 'log', dedup => 'off')")
    db.execute("insert into memories (tenant_id, bucket_id, content) values ('acme', 'log', 'a')")
    row = db.execute(
        "select content_hash, canonicalizer, key_fields, embedding_pending from memories"
    ).fetchone()
    assert row == (None, None, "type,subject,predicate", False)
