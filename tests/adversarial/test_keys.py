"""Keys that identify or lock: no name can be crafted to collide with another's."""

from __future__ import annotations

import pytest

from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB

# made in 40 seconds of one core: PostgreSQL's own hash of it, in bucket default and of type fact, is that of alice
SUBJECT = "vjznigj0jp1dlo9nsjdmkx6w"
# and of this bucket of acme, that of bucket default of globex
BUCKET = "zg74jxgmo9obv|u'65a~)^#~"


@pytest.mark.core
def test_a_crafted_subject_does_not_collide(db: DB) -> None:
    db.execute("select set_predicate('lives_in', 'acme')")
    model(db)
    ingest(db, "Lives in Berlin", subject="Alice", predicate="lives_in", object="Berlin")
    ingest(db, "Is allergic to penicillin", subject="Alice", predicate="health", **vector(1.0))
    value = ingest(db, "Lives in Lyon", subject=SUBJECT, predicate="lives_in", object="Lyon")
    near = ingest(db, "Has an allergy to penicillin", subject=SUBJECT, predicate="health", **vector(0.999))
    assert (value.action, near.action) == ("inserted", "inserted")
    found = db.execute(
        "select content from find_similar(%s, 'm', 'acme', subject => %s, predicate => 'health', memory_type => 'fact')",
        [vector(1.0)["embedding"], SUBJECT],
    ).fetchall()
    assert found == [("Has an allergy to penicillin",)]
    check(db)


def test_a_crafted_bucket_has_its_own_lock(db: DB) -> None:
    keys = db.execute(
        "select memfold_internal._bucket_key('acme', %s), memfold_internal._bucket_key('globex', 'default')",
        [BUCKET],
    ).fetchone()
    assert keys is not None
    assert keys[0] != keys[1]


def test_no_part_of_a_key_runs_into_the_next(db: DB) -> None:
    """Names that are equal as one string, and a bucket that is named like the bytes of a scope."""
    names = [
        ("ab", "c", "d", "e"), ("a", "bc", "d", "e"), ("abc", "d", "e", None), ("ab", "c", "de", None),
        ("ab", "c", None, "de"), ("ab", "c", "d e", None), ("ab", "c", None, None),
    ]  # fmt: skip
    keys = {
        db.execute("select memfold_internal._scope_key(%s, %s, %s, %s)", name).fetchone() for name in names
    }
    assert len(keys) == len(names)
    locks = db.execute(
        "select memfold_internal._bucket_key('a', 'bc'), memfold_internal._bucket_key('ab', 'c'),"
        " memfold_internal._bucket_key('a', '0123456789abcdef'), memfold_internal._rules_key('abc'),"
        " memfold_internal._scope_lock('a', encode('0123456789abcdef', 'hex')::uuid)"
    ).fetchone()
    assert locks is not None
    assert len(set(locks)) == 5


def test_no_key_comes_from_a_hash_that_can_be_inverted(db: DB) -> None:
    """The two that are left are no keys: words are compared after their number, and a wrong setting costs a second look."""
    left = db.execute(
        "select proname from pg_proc where pronamespace in ('memfold'::regnamespace, 'memfold_internal'::regnamespace)"
        " and coalesce(prosrc, '') || coalesce(pg_get_function_sqlbody(oid), '') ~ '\\mhash(text|bytea|int|_array|_record)'"
        " order by 1"
    ).fetchall()
    # contrib/citus has some for its owner's lock
    assert [name for (name,) in left if "shard" not in name] == ["_is_large_bucket", "_word_keys"]
