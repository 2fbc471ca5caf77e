"""A forgotten fact does not come back in other words, by any call; and the rejection can be undone."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.conftest import Connect
from tests.support.judging import answer
from tests.support.memories import Result, check, ingest, model, vector
from tests.support.queries import DB

SALARY = {"subject": "Bo", "predicate": "salary", "object": "82,000"}


@pytest.fixture
def forgotten(db: DB) -> Result:
    """A memory with a vector and a value, rejected by a person: the result of the rejection."""
    model(db)
    told = ingest(db, "Bo earns 82,000 euros a year", **SALARY, **vector(1.0))
    rejected = reject(db, told)
    check(db)
    return rejected


def reject(db: DB, told: Result) -> Result:
    rows = db.execute("select * from reject_memory(%s, 'acme', 'forget it')", [told.memory_id]).fetchall()
    return Result(*rows[0])


def statuses(db: DB) -> dict[str, str]:
    return dict(db.execute("select content, status from memories where tenant_id = 'acme'").fetchall())


def batch(db: DB, content: str, **more: Any) -> Result:
    """As one of a batch; the other is about something else."""
    if "embedding" in more:
        more["embedding"] = json.loads(more["embedding"])
    rows = db.execute(
        'select action, memory_id, tier, method, similarity, superseded_id, judgement_id, event_id, "similar"'
        " from ingest_memories(%s, 'acme') where ordinal = 0",
        [Jsonb([{"content": content, **more}, {"content": "Ida has a cat"}])],
    ).fetchall()
    return Result(*rows[0])


def preview(db: DB, content: str, **more: Any) -> Result:
    return ingest(db, content, function="preview_memory", **more)


WAYS = {"single": ingest, "batch": batch, "preview": preview}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "more", [SALARY, vector(0.95), {**SALARY, **vector(0.2)}], ids=["value", "vector", "far away"]
)
def test_a_forgotten_fact_is_refused_in_other_words(
    db: DB, forgotten: Result, way: str, more: dict[str, Any]
) -> None:
    """With the same subject, predicate and object, or with a vector at which it would merge."""
    scope = {"subject": "Bo", "predicate": "salary"}
    again = WAYS[way](db, "Bo's salary is 82,000 euros a year", **{**scope, **more})
    assert (again.action, again.tier, again.method, again.memory_id) == (
        "rejected", 2, "tombstone", forgotten.memory_id,
    )  # fmt: skip
    assert again.similar is not None
    note = {"memory_id": str(forgotten.memory_id), "note": "forgotten", "event_id": str(forgotten.event_id)}
    assert note.items() <= again.similar[0].items()
    assert statuses(db).get("Bo's salary is 82,000 euros a year") is None
    check(db)


@pytest.mark.parametrize("way", WAYS)
def test_the_same_words_are_refused_and_say_how_to_take_it_back(db: DB, forgotten: Result, way: str) -> None:
    again = WAYS[way](db, "bo earns 82,000 euros a year.", **SALARY)
    assert (again.action, again.tier, again.method) == ("rejected", 1, "tombstone")
    assert again.similar is not None
    db.execute("select undo(%s, 'acme')", [again.similar[0]["event_id"]])
    assert ingest(db, "Bo earns 82,000 euros a year", **SALARY).action == "merged"
    check(db)


@pytest.mark.parametrize("way", ["single", "batch"])
@pytest.mark.parametrize(
    ("verdict", "then"), [("duplicate", "merged"), ("refinement", "merged"), ("distinct", "active"),
                          ("contradiction", "active")],
)  # fmt: skip
def test_an_unclear_paraphrase_of_a_forgotten_fact_is_asked_about(
    db: DB, forgotten: Result, way: str, verdict: str, then: str
) -> None:
    """It is stored until the answer; what says the same is forgotten as well, whichever is longer."""
    told = WAYS[way](
        db, "Bo is paid 82,000 euros in a year of work", subject="Bo", predicate="salary", **vector(0.88)
    )
    assert (told.action, told.tier) == ("escalated", 2)
    kinds = db.execute("select kind, memory_id, other_id from judgements").fetchall()
    assert kinds == [("forgotten", told.memory_id, forgotten.memory_id)]
    check(db)
    claimed = db.execute("select kind, other ->> 'content' from claim_judgements('w', 'acme')").fetchall()
    assert claimed == [("forgotten", "Bo earns 82,000 euros a year")]
    answer(db, verdict, 0.9)
    check(db)
    assert statuses(db)["Bo is paid 82,000 euros in a year of work"] == then
    # the answer can be undone, and is not asked about again
    row = db.execute(
        "select event_id from memory_events where tier = 3 order by event_id desc limit 1"
    ).fetchone()
    assert row is not None
    db.execute("select undo(%s, 'acme')", row)
    check(db)
    assert statuses(db)["Bo is paid 82,000 euros in a year of work"] == "active"
    assert db.execute("select count(*) from judgements where status = 'open'").fetchone() == (0,)


def test_a_policy_that_asks_nobody_keeps_it(db: DB, forgotten: Result) -> None:
    db.execute("select set_policy('acme', on_ambiguous => 'insert')")
    told = ingest(db, "Bo is paid well", subject="Bo", predicate="salary", **vector(0.88))
    assert (told.action, told.judgement_id) == ("inserted", None)


def test_the_guard_asks(db: DB, forgotten: Result) -> None:
    told = ingest(db, "Bo earns 28,000 euros a year", subject="Bo", predicate="salary", **vector(0.99))
    assert told.action == "escalated"
    assert db.execute("select kind from judgements").fetchall() == [("forgotten",)]


@pytest.mark.parametrize("cosine", [0.95, 0.88])
def test_a_late_vector(db: DB, forgotten: Result, cosine: float) -> None:
    """It becomes an alias of what was forgotten, also where that is the newer one; in between it is asked about."""
    scope = {"subject": "Bo", "predicate": "salary"}
    late = ingest(db, "Bo's salary is 82,000 euros a year", **scope)
    assert late.action == "inserted"
    attached = db.execute(
        "select action, tier, method from attach_embedding(%s, %s, 'm', 'acme')",
        [late.memory_id, vector(cosine)["embedding"]],
    ).fetchone()
    merges = cosine > 0.92
    assert attached == (("merged", 2, "tombstone") if merges else ("escalated", 2, "vector"))
    assert statuses(db)["Bo's salary is 82,000 euros a year"] == ("merged" if merges else "active")
    check(db)
    if merges:
        again = ingest(db, "Bo's salary is 82,000 euros a year", **scope)
        assert (again.action, again.tier, again.method) == ("rejected", 1, "tombstone")
        row = db.execute(
            "select event_id from memory_events where method = 'tombstone' and tier = 2"
        ).fetchone()
        assert row is not None
        db.execute("select undo(%s, 'acme')", row)
        assert statuses(db)["Bo's salary is 82,000 euros a year"] == "active"
        check(db)


def test_a_late_vector_of_what_somebody_has_told_apart(db: DB) -> None:
    """It stays, and its row names the vector as the method, not the tombstone."""
    model(db)
    old = ingest(db, "Bo earns 82,000 euros a year", **SALARY, **vector(1.0))
    new = ingest(db, "Bo's salary is 82,000 euros a year", **SALARY)
    db.execute("select supersede_memory(%s, %s, 'acme')", [old.memory_id, new.memory_id])
    reject(db, old)
    attached = db.execute(
        "select action, tier, method from attach_embedding(%s, %s, 'm', 'acme')",
        [new.memory_id, vector(0.95)["embedding"]],
    ).fetchone()
    assert attached == ("embedded", 2, "vector")
    assert statuses(db)["Bo's salary is 82,000 euros a year"] == "active"
    check(db)


def test_a_persons_text_is_asked_about(db: DB, forgotten: Result) -> None:
    told = ingest(db, "Bo has a salary", subject="Bo", predicate="salary", **vector(0.1))
    db.execute(
        "select update_memory(%s, 'Bo''s salary is 82,000 euros a year', 'acme', embedding => %s, embedding_model => 'm')",
        [told.memory_id, vector(0.95)["embedding"]],
    )
    assert statuses(db)["Bo's salary is 82,000 euros a year"] == "active"
    assert db.execute("select kind from judgements").fetchall() == [("forgotten",)]
    check(db)


def test_a_question_ends_with_the_rejection(db: DB, forgotten: Result) -> None:
    """It is then one between two memories."""
    told = ingest(db, "Bo is paid 82,000 euros", subject="Bo", predicate="salary", **vector(0.88))
    db.execute("select undo(%s, 'acme')", [forgotten.event_id])
    answer(db, "duplicate", 0.9)
    assert statuses(db) == {"Bo earns 82,000 euros a year": "active", "Bo is paid 82,000 euros": "merged"}
    reject(db, told)
    check(db)
    assert set(statuses(db).values()) == {"rejected", "merged"}


def test_both_forgotten_leave_no_question(db: DB, forgotten: Result) -> None:
    told = ingest(db, "Bo is paid 82,000 euros", subject="Bo", predicate="salary", **vector(0.88))
    reject(db, told)
    answer(db, "duplicate", 0.9)
    assert db.execute("select status from judgements").fetchall() == [("obsolete",)]
    check(db)


def test_another_memory_with_the_value_is_no_tombstone(db: DB) -> None:
    """Of two texts of a value one was rejected: the value is not."""
    model(db)
    first = ingest(db, "Bo earns 82,000", **SALARY)
    ingest(db, "Bo gets 82,000", **SALARY)
    reject(db, first)
    assert ingest(db, "Bo makes 82,000", **SALARY).action == "inserted"
    assert ingest(db, "Bo makes 83,000", **{**SALARY, "object": "83,000"}).action == "inserted"


@pytest.mark.parametrize(
    "other", [{"subject": "Al"}, {"predicate": "bonus"}, {"bucket_id": "b"}, {"memory_type": "t"}]
)
def test_a_rejection_applies_only_to_its_scope(db: DB, forgotten: Result, other: dict[str, str]) -> None:
    assert ingest(db, "Bo's salary is 82,000 euros a year", **{**SALARY, **other}).action == "inserted"


def test_recalled_text_is_refused_as_forgotten(db: DB, forgotten: Result) -> None:
    again = ingest(db, "Bo's salary is 82,000 euros a year", origin="recalled", **SALARY)
    assert (again.action, again.method) == ("rejected", "tombstone")


def test_a_writer_beside_the_rejection(db: DB, connect: Connect) -> None:
    """A writer that has not seen the rejection waits for it."""
    model(db)
    told = ingest(db, "Bo earns 82,000 euros a year", **SALARY)
    other = connect()
    with other.transaction():
        reject(other, told)
        db.execute("set lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            ingest(db, "Bo's salary is 82,000 euros a year", **SALARY)
    assert ingest(db, "Bo's salary is 82,000 euros a year", **SALARY).action == "rejected"
    check(db)


def forget(db: DB, **given: Any) -> list[tuple[Any, ...]]:
    """(action, content), and similarity if there is one."""
    names = ", ".join(f"{name} => %s" for name in given)
    rows = db.execute(
        f"select action, content, similarity from forget_memories('acme', {names})".encode(),
        list(given.values()),
    ).fetchall()
    return [row if row[2] is not None else row[:2] for row in rows]


@pytest.fixture
def homes(db: DB) -> DB:
    model(db)
    db.execute("select set_predicate('lives_in', 'acme')")
    for day, (place, cosine) in enumerate((("Lyon", 1.0), ("Paris", 0.9), ("Rome", 0.5)), 1):
        where = {"subject": "Bo", "predicate": "lives_in", "object": place}
        ingest(db, f"Bo lives in {place}", observed_at=f"2026-01-0{day}", **where, **vector(cosine))
    ingest(db, "Bo has a cat", subject="Bo", predicate="pet", **vector(0.3, axis=2))
    ingest(db, "Ida has a cat", subject="Ida", **vector(0.2, axis=2))
    return db


def run_of(db: DB) -> Any:
    row = db.execute("select run_id from runs where kind = 'forgetting'").fetchone()
    assert row is not None
    return row[0]


def test_a_slot_is_forgotten_with_its_history_and_one_undo(homes: DB) -> None:
    before = statuses(homes)
    told = {"subject": "bo", "predicate": "livesIn"}
    places = [("rejected", f"Bo lives in {place}") for place in ("Lyon", "Paris", "Rome")]
    assert forget(homes, **told) == places
    assert statuses(homes) == before, "a preview"
    assert forget(homes, **told, dry_run=False) == places
    assert {text for text, status in statuses(homes).items() if status == "active"} == {
        "Bo has a cat",
        "Ida has a cat",
    }
    assert homes.execute("select status, report from runs where kind = 'forgetting'").fetchall() == [
        ("done", {"rejected": 3})
    ]
    check(homes)
    homes.execute("select undo_run(%s, 'acme')", [run_of(homes)])
    assert statuses(homes) == before
    check(homes)


def test_all_about_a_subject(homes: DB) -> None:
    assert len(forget(homes, subject="Bo", dry_run=False)) == 4
    assert statuses(homes)["Ida has a cat"] == "active"
    assert forget(homes, subject="Bo", dry_run=False) == []
    assert homes.execute("select count(*) from runs where kind = 'forgetting'").fetchone() == (1,)
    check(homes)


def test_by_an_alias_of_its_name(homes: DB) -> None:
    homes.execute("select link_subject('Bob', 'Bo', 'acme')")
    assert len(forget(homes, subject="Bob")) == 4


def test_a_topic_is_forgotten_and_the_receipt_names_what_is_current_again(homes: DB) -> None:
    """The nearest first, by the best of a memory's texts."""
    query = {"query_embedding": vector(0.5)["embedding"], "embedding_model": "m"}
    assert forget(homes, **query, min_similarity=0.999) == [
        ("rejected", "Bo lives in Rome", pytest.approx(1))
    ]
    made = forget(homes, **query, min_similarity=0.999, dry_run=False)
    assert made[1:] == [("current again", "Bo lives in Paris")]
    check(homes)
    homes.execute("select undo_run(%s, 'acme')", [run_of(homes)])
    assert forget(homes, subject="Ida", **query, min_similarity=0.99) == []
    # two values in one run: the one in between is not named
    made = forget(homes, subject="Bo", predicate="lives_in", **query, min_similarity=0.8, dry_run=False)
    assert [row[:2] for row in made] == [
        ("rejected", "Bo lives in Rome"), ("rejected", "Bo lives in Paris"), ("current again", "Bo lives in Lyon"),
    ]  # fmt: skip
    check(homes)


def test_a_topic_is_erased(homes: DB) -> None:
    query = {"query_embedding": vector(0.5)["embedding"], "embedding_model": "m", "min_similarity": 0.999}
    made = forget(homes, **query, erase=True, dry_run=False)
    assert [row[:2] for row in made] == [
        ("erased", "Bo lives in Rome"),
        ("current again", "Bo lives in Paris"),
    ]
    assert "Bo lives in Rome" not in statuses(homes)
    assert homes.execute("select count(*) from runs where kind = 'forgetting'").fetchone() == (0,)
    check(homes)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"predicate": "lives_in"},
        {"query_embedding": "[1,0,0,0]", "embedding_model": "m"},
        {"min_similarity": 0.5},
        {"subject": "Bo", "min_similarity": 0.5},
        {"query_embedding": "[1,0,0,0]", "embedding_model": "m", "min_similarity": 1.5},
        {"subject": "Bo", "erase": None},
    ],
)
def test_ambiguous_arguments_are_refused(homes: DB, given: dict[str, Any]) -> None:
    names = "".join(f", {name} => %s" for name in given)
    with pytest.raises(psycopg.Error) as caught:
        homes.execute(f"select forget_memories('acme'{names})".encode(), list(given.values()))
    assert caught.value.sqlstate == "MF022"


def test_too_much_at_once_changes_nothing(db: DB) -> None:
    db.execute("select ingest_memories(jsonb_agg(jsonb_build_object('content', 'n ' || n, 'subject', 'Bo')), 'acme')"
               " from generate_series(1, 1001) as n")  # fmt: skip
    with pytest.raises(psycopg.Error) as caught:
        db.execute("select forget_memories('acme', subject => 'Bo', dry_run => false)")
    assert caught.value.sqlstate == "MF022"
    assert set(statuses(db).values()) == {"active"}


@pytest.mark.parametrize("kind", ["reject", "erase"])
def test_the_receipt_of_one_memory_names_what_is_current_again(homes: DB, kind: str) -> None:
    (rome,) = homes.execute("select memory_id from memories where content = 'Bo lives in Rome'").fetchall()[0]
    (paris,) = homes.execute("select memory_id from memories where content = 'Bo lives in Paris'").fetchall()[
        0
    ]
    if kind == "reject":
        row = homes.execute("select \"similar\" from reject_memory(%s, 'acme')", [rome]).fetchone()
        assert row == ([{"memory_id": str(paris), "note": "current again"}],)
    else:
        row = homes.execute("select current_again from erase_memory(%s, 'acme')", [rome]).fetchone()
        assert row == ([paris],)
    check(homes)


def test_writers_beside_a_run(homes: DB, connect: Connect) -> None:
    """Concurrent statements wait, and are refused if they restate what is forgotten."""
    other = connect()
    with other.transaction():
        forget(other, subject="Bo", predicate="lives_in", dry_run=False)
        homes.execute("set lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            ingest(homes, "Bo is in Rome", subject="Bo", predicate="lives_in", object="Rome")
    again = ingest(homes, "Bo is in Rome", subject="Bo", predicate="lives_in", object="Rome")
    assert (again.action, again.method) == ("rejected", "tombstone")
    assert (
        ingest(homes, "Bo is in Oslo", subject="Bo", predicate="lives_in", object="Oslo").action == "inserted"
    )
    check(homes)


@pytest.mark.parametrize("way", ["single", "batch"])
@pytest.mark.parametrize("more", [SALARY, vector(0.95)], ids=["value", "vector"])
def test_a_refused_text_is_erased_with_the_memory_it_restates(
    db: DB, forgotten: Result, way: str, more: dict[str, Any]
) -> None:
    """Its ledger row has the text in other words: no row of the ledger keeps it."""
    scope = {"subject": "Bo", "predicate": "salary"}
    WAYS[way](db, "Bo's salary is 82,000 euros a year", **{**scope, **more})
    told = db.execute("select explain_memory(%s, 'acme')", [forgotten.memory_id]).fetchall()
    assert any("Bo's salary is 82,000 euros a year" in line for (line,) in told)
    db.execute("select erase_memory(%s, 'acme')", [forgotten.memory_id])
    left = db.execute("select content from memory_events where content like '%%82,000%%'").fetchall()
    assert left == []
    check(db)


def test_a_refused_text_is_erased_with_its_own_turn(db: DB, forgotten: Result) -> None:
    """The tombstone stays."""
    ingest(db, "Bo's salary is 82,000 euros a year", source_turn_ids=["t9"], **SALARY)
    db.execute("select erase_source('t9', 'acme')")
    rows = db.execute("select content from memory_events where content like '%%salary is%%'").fetchall()
    assert rows == []
    assert statuses(db) == {"Bo earns 82,000 euros a year": "rejected"}
    assert ingest(db, "Bo makes 82,000 euros", **SALARY).method == "tombstone"
    check(db)


def test_aliases_of_a_forgotten_memory_are_refused_too(db: DB, forgotten: Result) -> None:
    """The ledger's row names the folded memory as the one, what was forgotten as the other."""
    kept = ingest(db, "Bo has a cat", **vector(0.0))
    folded = ingest(db, "Bo has one cat", **vector(0.05))
    assert folded.action == "merged"
    reject(db, kept)
    refused = ingest(db, "Bo has one cat")
    row = db.execute(
        "select content, memory_id = %s, target_id = %s from memory_events where event_id = %s",
        [kept.memory_id, kept.memory_id, refused.event_id],
    ).fetchone()
    assert (refused.action, refused.method, row) == ("rejected", "tombstone", ("Bo has one cat", False, True))
    check(db)


def test_a_refusal_that_is_sent_again_is_the_same(db: DB, forgotten: Result) -> None:
    given = {"idempotency_key": "k", **SALARY, **vector(0.95)}
    first = ingest(db, "Bo's salary is 82,000 euros a year", **given)
    assert ingest(db, "Bo's salary is 82,000 euros a year", **given) == first


@pytest.mark.parametrize("kept", ["the tombstone", "what was refused"])
def test_one_of_two_turns_is_erased(db: DB, kept: str) -> None:
    """The turn that had said it first, or that which was refused: the other's words stay, or the fact is gone."""
    model(db)
    told = ingest(db, "Bo earns 82,000 euros a year", source_turn_ids=["t1"], **SALARY)
    reject(db, told)
    ingest(db, "Bo's salary is 82,000 euros a year", source_turn_ids=["t2"], **SALARY)
    db.execute("select erase_source(%s, 'acme')", ["t2" if kept == "the tombstone" else "t1"])
    check(db)
    contents = [
        row[0] for row in db.execute("select content from memory_events where content is not null").fetchall()
    ]
    if kept == "the tombstone":
        assert contents == ["Bo earns 82,000 euros a year"]
        assert list(statuses(db)) == contents
    else:
        assert "Bo earns 82,000 euros a year" not in [*contents, *statuses(db)]
