"""Names: predicates that are spelled in several ways, and subjects and predicates that are linked."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tests.support.links import NAMES, link, shown, state
from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB

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


# Links ------------------------------------------------------------------------------------------------------


def told(db: DB) -> list[Any]:
    return db.execute(
        "select subject, predicate from memory_events where observation order by event_id"
    ).fetchall()


def test_an_alias_is_stored_under_its_name_and_shown_unchanged(db: DB) -> None:
    link(db, "Georg", "Georg Maier")
    first = ingest(db, "likes tea", subject="georg.")
    second = ingest(db, "likes tea", subject="Georg Maier")
    third = ingest(db, "likes tea", subject="GEORG")
    assert [r.action for r in (first, second, third)] == ["inserted", "merged", "merged"]
    assert {r.memory_id for r in (first, second, third)} == {first.memory_id}
    assert db.execute("select subject from memories").fetchall() == [("Georg Maier",)]
    assert told(db) == [("georg.", None), ("Georg Maier", None), ("GEORG", None)]
    check(db)


def test_every_entry_point_resolves(db: DB) -> None:
    model(db)
    link(db, "Georg", "Georg Maier")
    link(db, "employer", "works at", what="predicate")
    names = {"subject": "Georg", "predicate": "employer"}
    previewed = ingest(db, "at VW", function="preview_memory", **names)
    assert previewed.action == "inserted"
    single = ingest(db, "at VW", **names, **vector(1.0))
    db.execute(
        "select ingest_memories(%s, 'acme')",
        [
            json.dumps(
                [
                    {"content": "at BMW", "subject": "Georg", "predicate": "Employer"},
                    {"content": "at VW", "subject": "GEORG", "predicate": "employer"},
                    {"content": "at VW", "subject": "Georg Maier", "predicate": "worksAt"},
                ]
            )
        ],
    )
    db.execute(
        "insert into memories (tenant_id, content, subject, predicate) values ('acme', 'at Audi', 'Georg', 'employer')"
    )
    rows = db.execute("select content, subject, predicate from memories order by content").fetchall()
    assert rows == [(f"at {x}", "Georg Maier", "works at") for x in ("Audi", "BMW", "VW")]
    assert db.execute("select count(distinct scope_key) from memories").fetchone() == (1,)
    observations = db.execute(
        "select observations from memory_totals where memory_id = %s", [single.memory_id]
    ).fetchone()
    assert observations == (3,)
    # its vector is in the scope of the name
    near = ingest(db, "at Volkswagen", subject="Georg Maier", predicate="works-at", **vector(0.999))
    assert near.similar is not None
    assert near.similar[0]["memory_id"] == str(single.memory_id)
    known = "select memory_id from known_memory('AT VW', 'acme', subject => 'georg', predicate => 'employer')"
    assert db.execute(known).fetchall() == [(single.memory_id,)]
    found = db.execute(
        "select memory_id from search_memories(%s, 'm', 'acme', subject => 'Georg', predicate => 'Employer')",
        [vector(1.0)["embedding"]],
    ).fetchall()
    assert (single.memory_id,) in found
    similar = db.execute(
        "select memory_id from find_similar(%s, 'm', 'acme', memory_type => 'fact', subject => 'Georg',"
        " predicate => 'employer')",
        [vector(1.0)["embedding"]],
    ).fetchall()
    assert (single.memory_id,) in similar
    db.execute("select ingest_plain_rows('acme')")
    check(db)


def test_a_batch_with_keys_returns_the_first_answers(db: DB) -> None:
    link(db, "Georg", "Georg Maier")
    batch = (
        "select action, memory_id, sqlstate from ingest_memories("
        '\'[{"content": "likes tea", "subject": "Georg", "idempotency_key": "k"}]\', \'acme\')'
    )
    first = db.execute(batch).fetchall()
    assert db.execute(batch).fetchall() == first
    assert first[0][0] == "inserted"
    single = ingest(db, "likes tea", subject="Georg", idempotency_key="k")
    assert single.memory_id == first[0][1]


def test_links_have_no_chains(db: DB) -> None:
    link(db, "Georg", "G. Maier")
    link(db, "Schorsch", "Georg")
    run = link(db, "G. Maier", "Georg Maier")
    links = "select alias, name from links order by alias"
    assert db.execute(links).fetchall() == [
        ("g. maier", "Georg Maier"), ("georg", "Georg Maier"), ("schorsch", "Georg Maier"),
    ]  # fmt: skip
    for alias, name in (("Georg Maier", "Georg"), ("x", "X."), ("Georg", "Hans")):
        with pytest.raises(psycopg.Error) as error:
            link(db, alias, name)
        assert error.value.sqlstate == "MF063"
    # over a bucket and all buckets
    for alias, name in (("Georg Maier", "GM"), ("Hans", "Georg")):
        with pytest.raises(psycopg.Error) as error:
            link(db, alias, name, "*")
        assert error.value.sqlstate == "MF063", alias
    # repeating it is not an error, and undoing it points the others where they pointed before
    assert link(db, "G. Maier", "georg maier") == run
    db.execute("select undo_run(%s, 'acme')", [run])
    assert db.execute(links).fetchall() == [("georg", "G. Maier"), ("schorsch", "G. Maier")]
    for call in ("unlink_subject('G. Maier', 'acme')", "unlink_predicate('Georg', 'acme')"):
        with pytest.raises(psycopg.Error) as error:
            db.execute(f"select {call}".encode())
        assert error.value.sqlstate == "MF064"


def test_bucket_has_its_own_links_before_those_of_all(db: DB) -> None:
    link(db, "Georg", "Georg Maier", "*")
    link(db, "Hans", "Hans Huber", "b")
    for bucket in ("a", "b"):
        ingest(db, "likes tea", subject="Georg", bucket_id=bucket)
        ingest(db, "likes tea", subject="Hans", bucket_id=bucket)
    rows = db.execute("select bucket_id, subject from memories order by 1, 2").fetchall()
    assert rows == [("a", "Georg Maier"), ("a", "Hans"), ("b", "Georg Maier"), ("b", "Hans Huber")]


def test_text_without_subject_is_linked_by_its_beginning(db: DB) -> None:
    free = ingest(db, "Georg Maier likes tea")
    other = ingest(db, "Georg Maierhofer likes tea")
    link(db, None, "Georg Maier")
    named = ingest(db, "Georg Maier likes tea", subject="Georg Maier")
    assert (named.action, named.memory_id) == ("merged", free.memory_id)
    later = ingest(db, "Georg Maier likes jazz")
    subjects = dict(db.execute("select memory_id, subject from memories").fetchall())
    assert subjects == {free.memory_id: "Georg Maier", other.memory_id: None, later.memory_id: "Georg Maier"}
    assert db.execute("select unlink_subject(null, 'acme', subject => 'Georg Maier')").fetchone() == (2,)
    assert db.execute("select count(*) from memories where subject is not null").fetchone() == (0,)
    check(db)


# What is stored ---------------------------------------------------------------------------------------------


def tell(db: DB, names: list[str], bucket: str = "default") -> None:
    """Facts about one person under several names: repeated, with turns, in a slot, and with vectors."""
    for number in range(24):
        name = names[number % len(names)]
        arguments = {"subject": name, "bucket_id": bucket, "source_confidence": 0.4 + number / 100}
        at = f"2026-01-{number + 1:02}"
        ingest(db, f"likes {number % 4}", source_turn_ids=[f"t{number % 5}"], observed_at=at, **arguments)
        ingest(db, f"owns {number % 8}", metadata={f"k{number % 3}": number}, observed_at=at, **arguments)
        ingest(
            db,
            f"lives in {number % 7}",
            predicate="lives_in",
            object=str(number % 7),
            observed_at=at,
            **arguments,
        )


@pytest.mark.core
def test_linking_takes_up_what_is_stored_as_if_one_name_had_been_told(db: DB) -> None:
    model(db)
    db.execute("select set_predicate('lives_in', 'acme')")
    tell(db, ["Georg Maier"], "one")
    expected = shown(db, "one")
    tell(db, NAMES)
    before = state(db)
    assert len(shown(db)) > len(expected)
    runs = [link(db, name, "Georg Maier") for name in NAMES[:2]]
    assert shown(db) == expected
    check(db)
    reports = db.execute(
        "select status, report ->> 'texts' from runs where run_id = any(%s)", [runs]
    ).fetchall()
    assert [row[0] for row in reports] == ["done", "done"]
    for run in reversed(runs):
        db.execute("select undo_run(%s, 'acme')", [run])
        check(db)
    assert state(db) == before
    assert db.execute(
        "select array_agg(distinct status) from runs where run_id = any(%s)", [runs]
    ).fetchone() == (["undone"],)


def test_links_of_all_buckets_are_taken_up_bucket_by_bucket(db: DB) -> None:
    for bucket in ("a", "b"):
        tell(db, NAMES, bucket)
    tall = ingest(db, "is tall", subject="Georg", bucket_id="a")
    before = state(db)
    for name in NAMES[:2]:
        link(db, name, "Georg Maier", "*")
    # a text that is not moved yet is found by its old name: by a single call, a batch and a preview
    known = db.execute(
        "select matched_id from known_memory('is tall', 'acme', 'a', subject => 'Georg')"
    ).fetchone()
    assert known == (tall.memory_id,)
    told_again = [
        ingest(db, "is tall", subject="georg", bucket_id="a", function=function)
        for function in ("preview_memory", "ingest_memory")
    ]
    assert [(r.action, r.memory_id) for r in told_again] == [("merged", tall.memory_id)] * 2
    db.execute("select undo(%s, 'acme')", [told_again[1].event_id])
    db.execute("call take_up_links('acme', batch_size => 3)")
    assert db.execute("select distinct subject from memories").fetchall() == [("Georg Maier",)]
    check(db)
    for name in NAMES[:2]:
        db.execute("select unlink_subject(%s, 'acme', '*')", [name])
    assert state(db) == before
    check(db)


def test_predicates_are_linked_as_subjects_are(db: DB) -> None:
    db.execute("select set_predicate('works_at', 'acme'), set_predicate('employer', 'acme')")
    for number, (predicate, place) in enumerate(
        [("works_at", "VW"), ("employer", "BMW"), ("Works at", "VW"), ("employer", "Audi")]
    ):
        ingest(
            db,
            f"at {place}",
            subject="Ann",
            predicate=predicate,
            object=place,
            observed_at=f"2026-01-0{number + 1}",
        )
    before = state(db)
    run = link(db, "Employer", "works_at", what="predicate")
    active = db.execute("select content, predicate from memories where status = 'active'").fetchall()
    assert active == [("at Audi", "works_at")]
    assert db.execute("select count(*) from memory_intervals").fetchone() == (4,)
    check(db)
    assert db.execute("select unlink_predicate('employer', 'acme')").fetchone() == (2,)
    assert state(db) == before
    assert db.execute("select status from runs where run_id = %s", [run]).fetchone() == ("undone",)
    check(db)


def test_later_statements_go_back_with_their_alias(db: DB) -> None:
    ingest(db, "likes tea", subject="Georg Maier")
    link(db, "Georg", "Georg Maier")
    later = ingest(db, "likes jazz", subject="Georg")
    ingest(db, "likes tea", subject="Georg")
    assert db.execute("select unlink_subject('Georg', 'acme')").fetchone() == (1,)
    # each statement is about the name that it came with
    rows = db.execute(
        "select m.subject, m.content, k.observations from memories m join memory_totals k using (tenant_id, memory_id)"
        " order by content"
    ).fetchall()
    assert sorted(rows) == [
        ("Georg", "likes jazz", 1),
        ("Georg", "likes tea", 1),
        ("Georg Maier", "likes tea", 1),
    ]
    again = ingest(db, "likes jazz", subject="Georg")
    assert (again.action, again.memory_id) == ("merged", later.memory_id)
    check(db)


def test_rejected_and_opted_out_texts_are_taken_up(db: DB) -> None:
    refused = ingest(db, "likes tea", subject="Georg")
    db.execute("select reject_memory(%s, 'acme')", [refused.memory_id])
    kept = ingest(db, "likes tea", subject="Georg Maier")
    db.execute("select set_policy('acme', 'default', 'note', dedup => 'off')")
    for _ in range(2):
        ingest(db, "a note", subject="Georg", memory_type="note")
    before = state(db)
    link(db, "Georg", "Georg Maier")
    rows = db.execute(
        "select memory_id, status from memories where memory_type = 'fact' order by status"
    ).fetchall()
    assert rows == [(kept.memory_id, "active"), (refused.memory_id, "rejected")]
    assert db.execute("select subject, count(*) from memories group by 1").fetchall() == [("Georg Maier", 4)]
    check(db)
    db.execute("select unlink_subject('Georg', 'acme')")
    assert state(db) == before
    check(db)


def test_erasure_keeps_the_name_that_is_stored(db: DB) -> None:
    first = ingest(db, "Likes tea", subject="Georg", source_turn_ids=["t1"])
    link(db, "Georg", "Georg Maier")
    ingest(db, "likes tea.", subject="Georg", source_turn_ids=["t2"])
    db.execute("select erase_source('t1', 'acme')")
    row = db.execute("select memory_id, subject, content from memories").fetchone()
    assert row == (first.memory_id, "Georg Maier", "likes tea.")
    assert (
        db.execute("select content_hash from known_memory('likes tea', 'acme', subject => 'Georg')").rowcount
        == 1
    )
    check(db)


def test_export_has_the_links_of_all_buckets(db: DB) -> None:
    link(db, "Georg", "Georg Maier", "*")
    ingest(db, "likes tea", subject="Georg")
    lines = [row[0] for row in db.execute("select export_bucket('acme')").fetchall()]
    with db.transaction():
        db.execute("select import_bucket(%s, 'globex', 'default', true)", [json.dumps(lines)])
    assert db.execute("select bucket_id, alias, name from links where tenant_id = 'globex'").fetchall() == [
        ("*", "georg", "Georg Maier")
    ]
    again = ingest(db, "likes tea", tenant_id="globex", subject="georg")
    assert again.action == "merged"
    db.execute("select unlink_subject('Georg', 'globex', '*')")
    assert db.execute("select subject from memories where tenant_id = 'globex'").fetchall() == [("Georg",)]


def test_near_texts_of_the_names_are_left_to_the_next_sweep(db: DB) -> None:
    model(db)
    one = ingest(db, "likes tea", subject="Georg", **vector(1.0))
    other = ingest(db, "likes some tea", subject="Georg Maier", **vector(0.999))
    sweep = "select action, memory_id from sweep_duplicates('acme', dry_run => %s)"
    assert db.execute(sweep, [True]).fetchall() == []
    link(db, "Georg", "Georg Maier")
    assert db.execute("select count(*) from memories where status = 'active'").fetchone() == (2,)
    # as ingest would compare them: merged, or asked about
    assert len(db.execute(sweep, [True]).fetchall()) == 1
    found = db.execute(
        "select memory_id, collapsed_ids from search_memories(%s, 'm', 'acme', subject => 'Georg')",
        [vector(1.0)["embedding"]],
    ).fetchall()
    assert {i for memory, collapsed in found for i in (memory, *collapsed)} == {
        one.memory_id,
        other.memory_id,
    }
    asked = db.execute("select count(*) from consolidate('acme', embedding_model => 'm')").fetchone()
    assert asked is not None
    assert asked[0] >= 1
    check(db)
