"""rehash_bucket: other rules for the hashes of a bucket with memories; resumable, undoable, with concurrent writers."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support import servers
from tests.support.judging import answer
from tests.support.memories import check, counters, ingest, model, status, vector
from tests.support.queries import DB, Connect
from tests.support.rehashing import History, writers
from tests.support.rounds import seeds
from tests.support.waiting import until

# All that a reader can see of memories. An alias without counters equals one with zeros.
CATALOG = """
select 'memory', m.memory_id::text, to_jsonb(m) from memfold.memories as m
union all
select 'counters', k.memory_id::text, jsonb_build_array(k.is_additive, k.on_timeline, k.aliases, k.observations,
    k.independent, k.source_confidence, k.extractor_confidence, k.first_seen, k.last_seen,
    k.access_count, k.valid_from, k.valid_until)
from memfold.memory_totals as k where k.observations > 0
union all
select 'interval', i.memory_id::text, to_jsonb(i) from memfold.memory_intervals as i
union all
select 'source', s.memory_id::text, to_jsonb(s) from memfold.memory_sources as s
union all
select 'vector', v.memory_id::text, to_jsonb(v) - 'embedding' from memfold.memory_vectors as v
order by 1, 2, 3
"""


def catalog(db: DB) -> list[Any]:
    return db.execute(CATALOG.encode()).fetchall()


def rehash(db: DB, *, bucket: str = "default", **arguments: Any) -> None:
    named = "".join(f", {name} => %s" for name in arguments)
    db.execute(f"call memfold.rehash_bucket('acme', %s{named})", [bucket, *arguments.values()])


def begin(db: DB, **arguments: Any) -> UUID:
    """Begin a rehash without processing any text."""
    given = {"canonicalizer": None, "key_fields": None, "metadata_keys": None, **arguments}
    row = db.execute(
        "select memfold_internal._rehash_begin('acme', 'default', %s, %s, %s, '*', null, 1000)",
        list(given.values()),
    ).fetchone()
    assert row is not None
    assert row[0] is not None
    return UUID(str(row[0]))


def runs(db: DB) -> list[tuple[Any, ...]]:
    return db.execute(
        "select status, report ->> 'rows', report ->> 'merged', report ->> 'parted', report ->> 'without_hash'"
        " from memfold.runs where kind = 'rehash' order by run_id"
    ).fetchall()


def states(db: DB) -> dict[str, str]:
    return dict(db.execute("select content, status from memories").fetchall())


def settled(db: DB) -> None:
    """Every text with a hash has that of the bucket's rules, and no two active memories are one text."""
    # as a value: Citus has rows of a shard
    hashed = "memfold_internal._hash_under(jsonb_populate_record(null::memfold.memories, to_jsonb(m)), p)"
    assert (
        db.execute(
            f"""
            select m.content, m.canonicalizer, p.canonicalizer from memfold.memories as m
            cross join lateral memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type) as p
            where m.content_hash is not null and m.content_hash is distinct from {hashed}
            """.encode()
        ).fetchall()
        == []
    )
    assert (
        db.execute(
            f"""
            select m.bucket_id, array_agg(m.content) from memfold.memories as m
            cross join lateral memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type) as p
            where m.status = 'active' and {hashed} is not null
            group by m.bucket_id, {hashed} having count(*) > 1
            """.encode()
        ).fetchall()
        == []
    )
    assert db.execute("select from policies where rehash_run is not null").fetchall() == []
    check(db)


def failure(db: DB, statement: str, arguments: list[Any] | None = None) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as error:
        db.execute(statement.encode(), arguments)
    return error.value


# There and back ---------------------------------------------------------------------------------------------------


def test_rehash_and_rehash_back(db: DB) -> None:
    c = ingest(db, "I use C", source_turn_ids=["t1"])
    plus = ingest(db, "I use C++", source_turn_ids=["t1", "t2"], metadata={"lang": "en"})
    ingest(db, "i use c++!", source_turn_ids=["t3"])
    ingest(db, "I use Rust")
    before = catalog(db)

    rehash(db, canonicalizer="flat")
    assert states(db) == {"I use C": "active", "I use C++": "merged", "I use Rust": "active"}
    assert counters(db, c.memory_id)["observations"] == 3
    assert counters(db, c.memory_id)["independent"] == 3
    assert runs(db) == [("done", "3", "1", "0", "0")]
    row = db.execute(
        "select memory_id, target_id, action, tier, method, reason, run_id is not null from memory_events"
        " where method = 'rehash'"
    ).fetchone()
    assert row == (plus.memory_id, c.memory_id, "merged", 2, "rehash", "equal under flat/1", True)
    settled(db)
    # two texts have become one, also on their next arrival, and nothing is done twice
    assert ingest(db, "I use C#", function="preview_memory").memory_id == c.memory_id
    rehash(db)
    assert len(runs(db)) == 1

    rehash(db, canonicalizer="prose")
    assert catalog(db) == before
    assert runs(db) == [("undone", "3", "1", "0", "0"), ("done", "2", "0", "1", "0")]
    settled(db)
    assert ingest(db, "I use C++").memory_id == plus.memory_id


@pytest.mark.parametrize("batch_size", [7, 10, 20])
def test_texts_without_a_hash_in_batches_of_any_size(db: DB, batch_size: int) -> None:
    """flat/1 leaves nothing of a text of signs; back under other rules, each gets its hash."""
    for i in range(30):
        ingest(db, "+" * (i + 1))
    rehash(db, canonicalizer="flat")
    assert db.execute("select count(*) from memories where content_hash is null").fetchone() == (30,)
    rehash(db, canonicalizer="exact", batch_size=batch_size)
    assert db.execute("select count(*) from memories where content_hash is null").fetchone() == (0,)
    settled(db)


def test_undo_by_the_run(db: DB) -> None:
    for n in range(5):
        ingest(db, f"version 1.{n}", subject=f"s{n % 2}")
        ingest(db, f"VERSION 1.{n}", subject=f"s{n % 2}", memory_type="note")
    before = catalog(db)
    rehash(db, key_fields=[])
    run = db.execute("select run_id from runs").fetchone()
    assert run is not None
    assert sorted(states(db).values()) == ["active"] * 5 + ["merged"] * 5
    settled(db)
    rehash(db, undo_run_id=run[0], batch_size=1)
    assert catalog(db) == before
    assert [row[0] for row in runs(db)] == ["undone", "done"]
    error = failure(db, "call memfold.rehash_bucket('acme', 'default', undo_run_id => %s)", [run[0]])
    assert error.sqlstate == "MF033"
    settled(db)


def test_observations_made_during_a_rehash_stay(db: DB) -> None:
    """Observations that arrive while two texts are one belong to the one that has the hash."""
    c, plus = ingest(db, "I use C"), ingest(db, "I use C++")
    rehash(db, canonicalizer="flat")
    assert ingest(db, "I use C++").memory_id == c.memory_id
    rehash(db, canonicalizer="prose")
    assert counters(db, c.memory_id)["observations"] == 2
    assert counters(db, plus.memory_id)["observations"] == 1
    settled(db)


def test_metadata_keys(db: DB) -> None:
    """A text is keyed by the metadata of its first observation, also when it is an alias."""
    model(db)
    db.execute("select set_policy('acme', 'default', guard => 'off')")
    first = ingest(db, "Hello", metadata={"lang": "en"}, **vector(1))
    ingest(db, "Hello there", metadata={"lang": "de"}, **vector(0.99))
    ingest(db, "Hello", metadata={"lang": "fr", "x": 1})
    before = catalog(db)
    rehash(db, metadata_keys=["lang"])
    assert db.execute("select content, metadata_signature from memories order by 1").fetchall() == [
        ("Hello", '{"lang": "en"}'),
        ("Hello there", '{"lang": "de"}'),
    ]
    settled(db)
    assert ingest(db, "Hello", metadata={"lang": "en"}).memory_id == first.memory_id
    assert ingest(db, "Hello", metadata={"lang": "fr"}).action == "inserted"
    db.execute("select undo(event_id, tenant_id => 'acme') from memory_events where tier = 1 and method = 'hash'"
               " and metadata ->> 'lang' = 'en'")  # fmt: skip
    rehash(db, metadata_keys=[])
    # the earlier text and the one stored since are one again
    assert db.execute("select content, status from memories order by 1, 2").fetchall() == [
        ("Hello", "active"), ("Hello", "merged"), ("Hello there", "merged"),
    ]  # fmt: skip
    assert status(db, first) == "active", "the older one"
    assert [row for row in catalog(db) if row[0] == "vector"] == [row for row in before if row[0] == "vector"]
    settled(db)


def test_through_a_third_profile(db: DB) -> None:
    """Folds of a rehash last as long as the texts are one."""
    for text in ("a-b", "a+b", "A B", "ab", "a b!"):
        ingest(db, text)
    first = catalog(db)
    rehash(db, canonicalizer="flat")
    assert sorted(states(db).values()) == ["active", "merged", "merged", "merged"]
    rehash(db, canonicalizer="exact")
    assert set(states(db).values()) == {"active"}
    settled(db)
    rehash(db, canonicalizer="prose")
    assert catalog(db) == first
    settled(db)


def test_types_with_rules_of_their_own(db: DB) -> None:
    db.execute("select set_policy('acme', '*', 'quote', canonicalizer => 'exact')")
    ingest(db, "One  Two", memory_type="quote")
    ingest(db, "one + two")
    rehash(db, canonicalizer="flat")
    assert db.execute("select memory_type, canonicalizer from memories order by 1").fetchall() == [
        ("fact", "flat/1"),
        ("quote", "exact/1"),
    ]
    assert ingest(db, "One  Two", memory_type="quote").action == "merged"
    assert ingest(db, "one  two", memory_type="quote").action == "inserted"
    rehash(db, canonicalizer="prose", memory_type="quote")
    assert {text for text, status in states(db).items() if status == "active"} == {"One  Two", "one + two"}
    settled(db)


# Refusals ---------------------------------------------------------------------------------------------------------


def test_refusals(db: DB, app: Connect) -> None:
    ingest(db, "I use C")
    error = failure(db, "select set_policy('acme', 'default', canonicalizer => 'flat')")
    assert error.sqlstate == "MF024"
    assert "rehash_bucket" in str(error.diag.message_hint)
    for call, code in (
        ("'acme', '*', 'flat'", "MF022"),
        ("'*', 'default', 'flat'", "MF022"),
        ("'acme', '', 'flat'", "MF003"),
        ("'acme', 'default', 'nonsense'", "MF011"),
        ("'acme', 'default', key_fields => '{colour}'", "MF017"),
        ("'acme', 'default', metadata_keys => '{null}'", "MF017"),
        ("'acme', 'default', metadata_keys => '{{a,b}}'", "MF017"),
        ("'acme', 'default', 'flat', batch_size => 0", "MF022"),
        ("'acme', 'default', undo_run_id => gen_random_uuid()", "MF022"),
    ):
        assert failure(db, f"call rehash_bucket({call})").sqlstate == code, call
    db.execute("begin")
    error = failure(db, "call rehash_bucket('acme', 'default', 'flat')")
    assert error.sqlstate == "25001"
    assert "autocommit" in str(error.diag.message_hint)
    db.execute("rollback")
    assert runs(db) == []
    assert failure(app("other"), "call memfold.rehash_bucket('acme', 'default', 'flat')").sqlstate == "MF002"
    app("acme").execute("call memfold.rehash_bucket('acme', 'default', 'flat')")
    assert [row[0] for row in runs(db)] == ["done"]
    settled(db)


def test_one_at_a_time(db: DB) -> None:
    ingest(db, "I use C")
    run = begin(db, canonicalizer="flat")
    error = failure(db, "call rehash_bucket('acme', 'default', 'exact')")
    assert error.sqlstate == "MF041"
    assert str(run) in str(error.diag.message_detail)
    assert failure(db, "call rehash_bucket('acme', 'default', memory_type => 'quote', canonicalizer => 'code')"
                   ).sqlstate == "MF041"  # fmt: skip
    # a preset leaves it under way
    db.execute("select set_policy('acme', 'default', merge_threshold => 0.95)")
    error = failure(db, "select set_policy('acme', 'default', preset => 'three_tier')")
    assert error.sqlstate == "MF024"
    rehash(db, canonicalizer="flat/1", key_fields=["subject", "type", "predicate"])
    assert [row[0] for row in runs(db)] == ["done"]
    assert db.execute("select merge_threshold from policies where tenant_id = 'acme'").fetchall() == [(0.95,)]
    settled(db)


def test_a_run_that_is_not_the_last(db: DB) -> None:
    ingest(db, "I use C")
    rehash(db, canonicalizer="flat")
    rehash(db, canonicalizer="exact")
    error = failure(db, "call rehash_bucket('acme', 'default',"
                    " undo_run_id => (select run_id from runs order by run_id limit 1))")  # fmt: skip
    assert error.sqlstate in ("0A000", "MF032")
    row = db.execute("select run_id from runs order by run_id limit 1").fetchone()
    assert row is not None
    assert (
        failure(db, "call rehash_bucket('acme', 'default', undo_run_id => %s)", [row[0]]).sqlstate == "MF032"
    )


def test_merges_of_a_rehash_are_undone_only_with_the_run(db: DB) -> None:
    ingest(db, "I use C")
    ingest(db, "I use C++")
    rehash(db, canonicalizer="flat")
    row = db.execute("select event_id from memory_events where method = 'rehash'").fetchone()
    assert row is not None
    error = failure(db, "select undo(%s, tenant_id => 'acme')", [row[0]])
    assert error.sqlstate == "MF032"
    assert "rehash_bucket" in str(error.diag.message_hint)


# Texts that become equal ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rejected", ["I use C", "I use C++"])
def test_a_tombstone_beside_an_active_memory(db: DB, rejected: str) -> None:
    """Neither affects the other; the active one has the hash."""
    ids = {text: ingest(db, text).memory_id for text in ("I use C", "I use C++")}
    (active,) = set(ids) - {rejected}
    db.execute("select reject_memory(%s, tenant_id => 'acme')", [ids[rejected]])
    before = catalog(db)
    rehash(db, canonicalizer="flat")
    assert states(db) == {rejected: "rejected", active: "active"}
    assert db.execute("select content from memories where content_hash is not null").fetchall() == [(active,)]
    assert db.execute(
        "select memory_id, target_id, reason from memory_events where action = 'rehashed'"
    ).fetchall() == [
        (ids[rejected], ids[active], "rejected, and equal to another text under flat/1: no hash")
    ]
    assert runs(db)[0][1:] == ("2", "0", "0", "1")
    assert ingest(db, "I use C#").memory_id == ids[active]
    db.execute(
        "select undo((select event_id from memory_events order by event_id desc limit 1), tenant_id => 'acme')"
    )
    rehash(db, canonicalizer="prose")
    assert catalog(db) == before
    assert ingest(db, rejected).action == "rejected"
    settled(db)


def test_a_rejection_that_is_undone_afterwards(db: DB) -> None:
    ids = {text: ingest(db, text).memory_id for text in ("I use C", "I use C++")}
    db.execute("select reject_memory(%s, tenant_id => 'acme')", [ids["I use C"]])
    rehash(db, canonicalizer="flat")
    db.execute(
        "select undo(event_id, tenant_id => 'acme') from memory_events where action = 'rejected' and tier = 3"
    )
    assert sorted(states(db).values()) == ["active", "merged"]
    settled(db)
    rehash(db, canonicalizer="prose")
    assert set(states(db).values()) == {"active"}
    settled(db)


def test_two_tombstones(db: DB) -> None:
    ids = [ingest(db, text).memory_id for text in ("I use C", "I use C++")]
    for memory_id in ids:
        db.execute("select reject_memory(%s, tenant_id => 'acme')", [memory_id])
    rehash(db, canonicalizer="flat")
    assert set(states(db).values()) == {"rejected"}
    assert ingest(db, "I use C#").action == "rejected"
    settled(db)
    # each rejection can be undone separately
    for memory_id, other in (ids, ids[::-1]):
        db.execute(
            "select undo(event_id, tenant_id => 'acme') from memfold.ledger where action = 'rejected' and tier = 3"
            " and memory_id = %s and not undone",
            [memory_id],
        )
        found = dict(db.execute("select memory_id, status from memories").fetchall())
        assert found == {memory_id: "active", other: "rejected"}
        assert ingest(db, "I use C", function="preview_memory").memory_id == memory_id
        settled(db)
        db.execute("select reject_memory(%s, tenant_id => 'acme')", [memory_id])


def test_an_alias_of_another_memory(db: DB) -> None:
    """Its observations move to the text that it equals now, and back."""
    model(db)
    db.execute("select set_policy('acme', 'default', guard => 'off')")
    a = ingest(db, "I use C", **vector(1, 1))
    b = ingest(db, "I program", **vector(0.2, 2))
    ingest(db, "I use C++", **vector(0.21, 2))
    assert states(db)["I use C++"] == "merged"
    before = catalog(db)
    rehash(db, canonicalizer="flat")
    assert counters(db, a.memory_id)["observations"] == 2
    assert counters(db, b.memory_id)["observations"] == 1
    settled(db)
    # the earlier merge has no effect while it is not in force
    db.execute(
        "select undo(event_id, tenant_id => 'acme') from memory_events where method = 'vector' and action = 'merged'"
    )
    assert states(db)["I use C++"] == "merged"
    settled(db)
    rehash(db, canonicalizer="prose")
    assert states(db)["I use C++"] == "active"
    db.execute("select merge_memories(memory_id, %s, tenant_id => 'acme') from memories where content = 'I use C++'",
               [b.memory_id])  # fmt: skip
    assert catalog(db) == before
    settled(db)


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("back", ["rules", "run", "half-way"])
def test_a_merge_that_comes_back_into_force(db: DB, chained: bool, back: str) -> None:
    """A text that a rehash has taken out of another tree goes back to it, and to its present root."""
    r = ingest(db, "I use C")
    m = ingest(db, "I use C++")
    c = ingest(db, "I program")
    b = ingest(db, "I work")
    db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [m.memory_id, c.memory_id])
    if chained:
        db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [c.memory_id, b.memory_id])
    root = b if chained else c
    before = catalog(db)
    rehash(db, canonicalizer="flat")
    assert counters(db, r.memory_id)["observations"] == 2
    assert counters(db, root.memory_id)["observations"] == 1 + chained
    settled(db)
    if back == "rules":
        rehash(db, canonicalizer="prose")
    elif back == "run":
        rehash(db, undo_run_id=db.execute("select run_id from runs where kind = 'rehash'").fetchone()[0])  # type: ignore[index]
    else:
        run = begin(db, canonicalizer="prose")
        for _ in range(20):
            if db.execute("select memfold_internal._rehash_batch('acme', %s, 1)", [run]).fetchone() == (
                True,
            ):
                break
            check(db)
    assert catalog(db) == before
    settled(db)
    assert ingest(db, "i use c++").memory_id == root.memory_id
    assert counters(db, root.memory_id)["observations"] == 3 + chained
    check(db)


def test_a_tree_merged_while_one_of_its_texts_was_in_another(db: DB) -> None:
    """After the return, the text follows a merge made while it was away."""
    ingest(db, "I use C")
    m = ingest(db, "I use C++")
    c = ingest(db, "I program")
    b = ingest(db, "I work")
    db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [m.memory_id, c.memory_id])
    rehash(db, canonicalizer="flat")
    db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [c.memory_id, b.memory_id])
    rehash(db, canonicalizer="prose")
    assert counters(db, b.memory_id)["observations"] == 3
    assert ingest(db, "I use C++").memory_id == b.memory_id
    settled(db)


def test_merges_that_a_rehash_has_taken_over_never_form_a_cycle(db: DB) -> None:
    """K in M in C by a person; by the rehash M is R and C is K. Where M's fold comes back first, C is not beneath itself."""
    for n in (3, 18, 21, 24):  # by their hashes a rehash meets M before C, and on its way back R before K
        subject = {"subject": f"s{n}"}
        ingest(db, "I use C", **subject)
        k = ingest(db, "I program", **subject)
        m = ingest(db, "I use C++", **subject)
        c = ingest(db, "I program!?", **subject)
        for one, into in ((k, m), (m, c)):
            db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [one.memory_id, into.memory_id])
    before = catalog(db)
    for canonicalizer in ("flat", "prose", "flat", "prose"):
        run = begin(db, canonicalizer=canonicalizer)
        for _ in range(200):
            if db.execute("select memfold_internal._rehash_batch('acme', %s, 1)", [run]).fetchone() == (
                True,
            ):
                break
            check(db)
        settled(db)
        if canonicalizer == "prose":
            assert catalog(db) == before


def test_nested_merges_are_separated_in_small_batches(db: DB) -> None:
    """Of three equal texts, the newest may have been merged into the middle one before that into the oldest."""
    db.execute("select set_policy('acme', 'default', canonicalizer => 'exact')")
    for n in range(10):  # in which order a rehash meets them is by their hashes
        for text in ("I use C!", "I use C", "I use C."):
            ingest(db, text, subject=f"s{n}")
    before = catalog(db)
    rehash(db, canonicalizer="prose")
    depths = db.execute(
        "select count(*) from memories as m join memories as p on p.memory_id = m.merged_into"
        " where p.merged_into is not null"
    ).fetchone()
    assert depths is not None
    assert depths[0] > 0
    rehash(db, canonicalizer="exact", batch_size=1)
    assert catalog(db) == before
    settled(db)


def test_an_older_text_beneath_the_newer(db: DB) -> None:
    """The newer text has replaced the older one, so the newer one has the hash."""
    a = ingest(db, "I use C")
    updated = db.execute(
        "select * from update_memory(%s, 'I use C++', tenant_id => 'acme')", [a.memory_id]
    ).fetchone()
    assert updated is not None
    before = catalog(db)
    rehash(db, canonicalizer="flat")
    assert states(db) == {"I use C": "merged", "I use C++": "active"}
    settled(db)
    db.execute("select undo(event_id, tenant_id => 'acme') from memory_events where action = 'replaced'")
    assert states(db)["I use C"] == "merged"
    settled(db)
    rehash(db, canonicalizer="prose")
    assert states(db) == {"I use C": "active", "I use C++": "withdrawn"}
    assert len(catalog(db)) == len(before)
    settled(db)


def test_a_withdrawn_text(db: DB) -> None:
    a = ingest(db, "I use C")
    db.execute("select update_memory(%s, 'I code in C', tenant_id => 'acme')", [a.memory_id])
    db.execute("select undo(event_id, tenant_id => 'acme') from memory_events where action = 'replaced'")
    b = ingest(db, "I code in C++")
    assert states(db) == {"I use C": "active", "I code in C": "withdrawn", "I code in C++": "active"}
    before = catalog(db)
    rehash(db, canonicalizer="flat")
    assert states(db) == {"I use C": "active", "I code in C": "merged", "I code in C++": "active"}
    assert counters(db, b.memory_id)["observations"] == 1
    settled(db)
    rehash(db, canonicalizer="prose")
    assert catalog(db) == before
    settled(db)


def test_values_of_a_slot(db: DB) -> None:
    """Two spellings of a value are one value of the timeline, and two again."""
    db.execute("select set_predicate('lives_in', 'acme')")
    slot = {"subject": "Ann", "predicate": "lives_in"}
    for month, place in enumerate(("Bonn", "Köln", "Bonn!?", "Ulm", "(Köln)"), 1):
        ingest(db, f"Ann lives in {place}", **slot, observed_at=f"2025-0{month}-01")
    before = catalog(db)
    rehash(db, canonicalizer="flat")
    assert states(db) == {
        "Ann lives in Bonn": "superseded", "Ann lives in Köln": "active", "Ann lives in Bonn!?": "merged",
        "Ann lives in Ulm": "superseded", "Ann lives in (Köln)": "merged",
    }  # fmt: skip
    assert db.execute("select count(*) from memory_intervals").fetchone() == (5,)
    settled(db)
    rehash(db, canonicalizer="prose")
    assert catalog(db) == before
    settled(db)


def test_a_text_whose_canonical_form_is_empty(db: DB) -> None:
    ingest(db, "+++")
    ingest(db, "C")
    before = catalog(db)
    rehash(db, canonicalizer="flat")
    assert states(db) == {"+++": "active", "C": "active"}
    assert runs(db)[0][4] == "1"
    rehash(db, canonicalizer="exact")
    assert ingest(db, "+++").action == "merged"
    db.execute(
        "select undo((select event_id from memory_events order by event_id desc limit 1), tenant_id => 'acme')"
    )
    rehash(db, canonicalizer="prose")
    assert catalog(db) == before
    settled(db)


def test_opted_out_rows_stay_out(db: DB) -> None:
    db.execute("select set_policy('acme', 'default', 'log', dedup => 'off')")
    ingest(db, "I use C", memory_type="log")
    ingest(db, "I use C", memory_type="log")
    ingest(db, "I use C++")
    rehash(db, canonicalizer="flat")
    assert set(states(db).values()) == {"active"}
    assert db.execute("select count(*) from memories where content_hash is null").fetchone() == (2,)
    rehash(db, canonicalizer="prose")
    assert db.execute("select count(*) from memories where content_hash is null").fetchone() == (2,)


# While it runs ----------------------------------------------------------------------------------------------------


def test_both_hashes_while_it_runs(db: DB) -> None:
    """A text not processed yet is found by its previous hash, if it stays the same text."""
    old = ingest(db, "I use C++")
    begin(db, canonicalizer="exact")
    assert db.execute("select memory_id, status from known_memory('I use C++', 'acme')").fetchall() == [
        (old.memory_id, "active")
    ]
    for function in ("preview_memory", "ingest_memory"):
        found = ingest(db, "I use C++", function=function)
        assert (found.action, found.tier, found.memory_id) == ("merged", 1, old.memory_id)
    # the same text by the previous rules, a different one by the current ones
    assert db.execute("select from known_memory('i use c++', 'acme')").fetchall() == []
    for function in ("preview_memory", "ingest_memory"):
        assert ingest(db, "i use c++", function=function).action == "inserted"
    rehash(db)
    assert states(db) == {"I use C++": "active", "i use c++": "active"}
    settled(db)


def test_a_hash_that_is_still_taken(db: DB) -> None:
    """A new text gets the previous hash of another one, which gives it up."""
    db.execute("select set_policy('acme', 'default', canonicalizer => 'flat')")
    plus = ingest(db, "c++")
    begin(db, canonicalizer="prose")
    for function in ("preview_memory", "ingest_memory"):
        assert ingest(db, "C", function=function).action == "inserted"
    assert db.execute("select content, canonicalizer from memories order by 1").fetchall() == [
        ("C", "prose/1"),
        ("c++", "prose/1"),
    ]
    assert ingest(db, "C++").memory_id == plus.memory_id
    rehash(db)
    settled(db)


@pytest.mark.parametrize("way", ["ingest", "update", "judge"])
def test_a_stale_alias_gives_up_its_hash(db: DB, way: str) -> None:
    """The stale text gives up the hash and is separated: the arriving text is then not new."""
    model(db)
    db.execute(
        "select set_policy('acme', 'default', canonicalizer => 'exact', on_merge => 'synthesise', guard => 'off')"
    )
    r = ingest(db, "I use C.")
    m = ingest(db, "i use c")
    x = ingest(db, "I program", **vector(1.0, 2))
    y = ingest(db, "I write programs", **vector(0.95, 2))
    assert y.action == "escalated"
    rehash(db, canonicalizer="prose")
    assert states(db)["i use c"] == "merged"
    begin(db, canonicalizer="exact")
    if way == "ingest":
        found = ingest(db, "i use c")
        assert (found.action, found.tier, found.memory_id) == ("merged", 1, m.memory_id)
    elif way == "update":
        db.execute("select update_memory(%s, 'i use c', tenant_id => 'acme')", [x.memory_id])
        assert states(db)["I program"] == "merged"
    else:
        answer(db, "duplicate", 0.9, merged_text="i use c")
        assert states(db)["I write programs"] == states(db)["I program"] == "merged"
    said = {"ingest": 2, "update": 2, "judge": 3}[way]
    assert [counters(db, one.memory_id)["observations"] for one in (r, m)] == [1, said]
    check(db)
    rehash(db)
    assert [counters(db, one.memory_id)["observations"] for one in (r, m)] == [1, said]
    settled(db)


def test_texts_that_change_places(db: DB) -> None:
    """Each has the other's future hash."""
    db.execute("select set_policy('acme', 'default', canonicalizer => 'exact', key_fields => '{subject}')")
    # by exact/1 'a b' and 'a  b' are two; no profile makes them change places, so the keys do
    ingest(db, "x", subject="s")
    ingest(db, "x", memory_type="note", subject="t")
    for fields in (["type"], ["subject"], ["type", "subject"], []):
        rehash(db, key_fields=fields)
        settled(db)
    assert sorted(states(db).values())[0] in ("active", "merged")
    rehash(db, key_fields=["subject"])
    assert db.execute("select count(*) from memories where status = 'active'").fetchone() == (2,)
    settled(db)


@pytest.mark.parametrize("bulk", [False, True])
def test_batches_while_it_runs(db: DB, bulk: bool) -> None:
    for text in ("I use C", "I use C++", "I use Go"):
        ingest(db, text)
    begin(db, canonicalizer="flat")
    texts = ["I use C", "i use c", "I use GO", "i use go!", "I use Zig", "i use (zig)", "I use C++"]
    if bulk:
        rows = db.execute(
            "select action from ingest_memories(%s, 'acme')", [json.dumps([{"content": t} for t in texts])]
        ).fetchall()
        actions = [row[0] for row in rows]
    else:
        actions = [ingest(db, text).action for text in texts]
    assert actions == ["merged", "merged", "merged", "merged", "inserted", "merged", "merged"]
    rehash(db)
    assert sorted(states(db).items()) == [
        ("I use C", "active"), ("I use C++", "merged"), ("I use Go", "active"), ("I use Zig", "active"),
    ]  # fmt: skip
    assert db.execute("select sum(observations) from memory_totals").fetchone() == (10,)
    settled(db)


def test_turning_back_half_way(db: DB) -> None:
    for n in range(30):
        ingest(db, f"I use C{'+' * (n % 3)} {n // 3}")
    before = catalog(db)
    run = begin(db, canonicalizer="flat")
    for _ in range(5):
        assert db.execute("select memfold_internal._rehash_batch('acme', %s, 3)", [run]).fetchone() == (
            False,
        )
    assert catalog(db) != before
    rehash(db, undo_run_id=run)
    assert catalog(db) == before
    assert [row[0] for row in runs(db)] == ["undone", "done"]
    settled(db)


def test_a_writer_that_waited_for_the_rules(db: DB, connect: Connect) -> None:
    """It read the policy before the rehash began, and had to wait: it gets 40001."""
    ingest(db, "I use C")
    holder, writer = connect(), connect()
    holder.execute("begin")
    begin(holder, canonicalizer="flat")
    codes: list[str | None] = []

    def write() -> None:
        try:
            ingest(writer, "I use C++")
            codes.append("done")
        except psycopg.Error as error:
            codes.append(error.sqlstate)

    thread = threading.Thread(target=write)
    thread.start()
    waits = "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    until(lambda: db.execute(waits, [writer.info.backend_pid]).fetchone() or codes, "the writer waits")
    holder.execute("commit")
    thread.join()
    assert codes == ["40001"]
    assert ingest(writer, "I use C++").action == "inserted"
    rehash(db)
    assert sorted(states(db).values()) == ["active", "merged"]
    settled(db)


def test_a_row_that_someone_holds(db: DB, connect: Connect) -> None:
    """Writers of the bucket do not wait behind an open transaction."""
    ingest(db, "I use C")
    ingest(db, "I use C++")
    holder, worker = connect(), connect()
    holder.execute("begin")
    ingest(holder, "I use C")
    thread = threading.Thread(target=rehash, args=(worker,), kwargs={"canonicalizer": "flat"})
    thread.start()
    until(lambda: runs(db), "the rehash has begun")
    for n in range(20):
        assert ingest(db, f"fact {n}").action == "inserted"
    holder.execute("commit")
    thread.join()
    assert runs(db)[0][0] == "done"
    settled(db)


# At random --------------------------------------------------------------------------------------------------------

RULES: list[dict[str, Any]] = [
    {"canonicalizer": "prose", "key_fields": ["type", "subject", "predicate"], "metadata_keys": []},
    {"canonicalizer": "flat", "key_fields": ["type", "subject", "predicate"], "metadata_keys": []},
    {"canonicalizer": "exact", "key_fields": [], "metadata_keys": []},
    {"canonicalizer": "flat", "key_fields": ["subject"], "metadata_keys": []},
    {"canonicalizer": "prose", "key_fields": [], "metadata_keys": ["k"]},
    {"canonicalizer": "flat", "key_fields": [], "metadata_keys": []},
]


class Rehashes(History):
    """Rehashes in steps between the calls."""

    def __init__(self, db: DB, seed: int, rehashes: bool) -> None:
        super().__init__(db, seed)
        self.rehashes = rehashes
        self.run: Any = None

    def step(self) -> None:
        pick = self.random.random()
        if pick < 0.6:
            self.ingest()
        elif pick < 0.7:
            self.hand(["c", "c++", "cd", "new"])
        elif pick < 0.8:
            self.undo()
        elif not self.rehashes:
            self.ingest()
        elif self.run is None:
            row = self.db.execute(
                "select memfold_internal._rehash_begin('acme', 'default', %(canonicalizer)s, %(key_fields)s,"
                " %(metadata_keys)s, '*', null, 1000)",
                self.random.choice(RULES),
            ).fetchone()
            assert row is not None
            self.run = row[0]
        else:
            row = self.db.execute(
                "select memfold_internal._rehash_batch('acme', %s, %s)",
                [self.run, self.random.choice([1, 2, 100])],
            ).fetchone()
            assert row is not None
            if row[0]:
                self.run = None

    def ingest(self) -> None:
        text = self.random.choice(["c", "C", "c++", "c#", "C.", "c d", "cd", "+", "(c)", "c  d!"])
        single = self.random.random() < 0.3
        arguments: dict[str, Any] = {
            "memory_type": self.random.choice(["fact", "fact", "note"]),
            "subject": "s" if single else self.random.choice([None, None, "s", "t"]),
            "predicate": "is" if single else None,
            "metadata": {"k": self.random.choice([1, 2])} if self.random.random() < 0.3 else {},
            "source_turn_ids": [f"t{self.random.randrange(5)}"] if self.random.random() < 0.5 else [],
            "observed_at": f"2025-01-{self.random.randrange(1, 28):02}",
        }
        if self.random.random() < 0.2:
            arguments |= vector(self.random.choice([0.3, 0.95, 0.99]), self.random.choice([1, 2]))
        self.tell(text, arguments)


@pytest.mark.parametrize("seed", seeds(4, 30))
def test_at_random(db: DB, seed: int) -> None:
    """After each history: state = ledger, one active memory a text, no observation lost; there and back is nothing."""
    model(db)
    db.execute("select set_predicate('is', 'acme')")
    history = Rehashes(db, seed, rehashes=seed % 2 == 1)
    for _ in range(40):
        history.step()
    check(db)
    rehash(db)
    settled(db)
    assert db.execute("select sum(observations) from memory_totals").fetchone() == (history.accepted,)
    before = catalog(db)
    now = db.execute(
        "select canonicalizer, key_fields from memfold_internal._policy('acme', 'default', 'fact')"
    ).fetchone()
    assert now is not None
    different = [
        rules for rules in RULES[1:] if (rules["canonicalizer"] + "/1", ",".join(rules["key_fields"])) != now
    ]
    rehash(db, **history.random.choice(different))
    settled(db)
    assert db.execute("select sum(observations) from memory_totals").fetchone() == (history.accepted,)
    undo = db.execute("select run_id from runs where kind = 'rehash' order by run_id desc limit 1").fetchone()
    assert undo is not None
    rehash(db, undo_run_id=undo[0])
    settled(db)
    if not history.rehashes:
        # (texts that an earlier rehash merged, and this one separated, are merged again by the present rules)
        assert catalog(db) == before


# With real connections --------------------------------------------------------------------------------------------


def write(db: DB, chosen: random.Random) -> int:
    """Equal and near-equal candidates."""
    text = f"fact {chosen.randrange(30)}{chosen.choice(['', '+', ' +', '-'])}"
    if chosen.random() < 0.1:
        rows = db.execute(
            "select count(*) from memfold.ingest_memories(%s, 'acme')",
            [json.dumps([{"content": text}, {"content": text.upper()}])],
        ).fetchone()
        assert rows == (2,)
        return 2
    ingest(db, text if chosen.random() < 0.5 else text.upper())
    return 1


def test_concurrent_with_writers(db: DB, connect: Connect) -> None:
    texts = [{"content": f"fact {n}{mark}"} for n in range(30) for mark in ("", "+", " -")]
    db.execute("select count(*) from ingest_memories(%s, 'acme')", [json.dumps(texts)])
    with writers([connect() for _ in range(8)], write) as written:
        for name in ("exact", "flat"):
            rehash(db, canonicalizer=name, batch_size=100)
    assert written.errors == []
    taken = written.taken
    assert taken > 0
    assert {row[0] for row in runs(db)} <= {"done", "undone"}
    settled(db)
    assert db.execute("select sum(observations) from memory_totals").fetchone() == (taken + len(texts),)
    assert db.execute("select count(*) from memories where status = 'active'").fetchone() == (30,)


def test_a_server_that_is_killed(own_cluster: servers.Cluster) -> None:
    """kill -9 in the middle, with concurrent writers: called again it continues, and no statement is lost."""
    dsn = own_cluster.dsn() + " options='-csearch_path=public,memfold'"
    texts = [{"content": f"fact {n}{mark}"} for n in range(80) for mark in ("", "+", " -")]

    def worker() -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                rehash(connection, canonicalizer="flat", batch_size=5)
        except psycopg.OperationalError:
            pass

    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(dsn, autocommit=True) as db:
        db.execute("select count(*) from ingest_memories(%s, 'acme')", [json.dumps(texts)])
        # the run cannot be done before the kill
        held = psycopg.connect(dsn)
        held.execute("select from memories order by content_hash desc limit 1 for update")
        connections = [psycopg.connect(dsn, autocommit=True) for _ in range(4)]
        begun = "select 1 from runs where (report ->> 'rows')::int > 20"
        with writers(connections, write, worker) as written:
            try:
                # without delay, or the run is done
                until(lambda: db.execute(begun).fetchone(), "the rehash is half-way", pause=0)
                own_cluster.kill()
            except BaseException:
                held.close()
                raise
    assert all(isinstance(error, psycopg.OperationalError) for error in written.errors), written.errors
    own_cluster.restart()
    with psycopg.connect(dsn, autocommit=True) as db:
        assert [row[0] for row in runs(db)] == ["open"]
        assert len(db.execute("select distinct canonicalizer from memories where content_hash is not null"
                              ).fetchall()) == 2  # fmt: skip
        rehash(db)
        assert [row[0] for row in runs(db)] == ["done"]
        settled(db)
        row = db.execute("select sum(observations) from memory_totals").fetchone()
        # a call whose answer was lost in the crash may have been committed or not
        assert row is not None
        assert len(texts) + written.taken <= row[0] <= len(texts) + written.taken + 2 * len(connections)
        assert db.execute("select count(*) from memories where status = 'active'").fetchone() == (80,)
