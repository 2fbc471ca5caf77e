"""Questions whether two names mean one: asked on request, answered, applied, undone, erased."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.conftest import Connect
from tests.support.judging import claim, elapse, fail, resolve
from tests.support.links import link, shown, state
from tests.support.memories import check, ingest
from tests.support.queries import DB


def tell(db: DB, bucket: str = "default") -> None:
    """Two facts about Georg under his first name and under both names, two about somebody else."""
    for name in ("Georg", "Georg Maier"):
        for text in ("plays chess", "has a dog"):
            ingest(db, f"{name} {text}", subject=name, bucket_id=bucket)
            ingest(db, text, subject=name, bucket_id=bucket)
    for text in ("owns a boat", "sings well"):
        ingest(db, text, subject="Anna Schmidt", bucket_id=bucket)


def asked(db: DB, bucket: str = "default", most: int = 20) -> int:
    row = db.execute("select ask_links('acme', %s, %s)", [bucket, most]).fetchone()
    assert row is not None
    return int(row[0])


def suggested(db: DB) -> list[Any]:
    return db.execute("select alias, name from suggest_links('acme')").fetchall()


def judgements(db: DB) -> list[Any]:
    return db.execute(
        "select status, verdict, link ->> 'alias', link ->> 'name' from judgements where kind = 'identity'"
        " order by judgement_id"
    ).fetchall()


@pytest.mark.core
def test_question_is_asked_answered_and_carried_out(db: DB) -> None:
    tell(db)
    before = shown(db)
    assert asked(db) == 1
    assert shown(db) == before, "asking links nothing"
    [question] = claim(db, tenant_id="acme")
    assert (question.kind, question.similarity, question.members) == ("identity", None, None)
    assert question.link is not None
    assert {name: question.link[name] for name in ("kind", "alias", "name", "reasons")} == {
        "kind": "subject", "alias": "Georg", "name": "Georg Maier", "reasons": ["contained", "facts"]
    }  # fmt: skip
    assert "Georg plays chess" in question.link["told"]
    assert "Georg Maier plays chess" in question.link["name_told"]
    assert "told" not in question.link["evidence"]
    assert (question.memory["subject"], question.other["subject"]) == ("Georg", "Georg Maier")
    row = db.execute("select kind, content, other_content, link ->> 'alias' from open_judgements").fetchone()
    assert row == ("identity", question.memory["content"], question.other["content"], "Georg")

    found = resolve(
        db, question.judgement_id, "duplicate", confidence=0.9, reason="one man", model="m", input_tokens=300,
        output_tokens=20, cost=0.001,
    )  # fmt: skip
    assert (found.status, found.verdict, found.action, found.memory_id, found.event_id) == (
        "done", "duplicate", "linked", None, None
    )  # fmt: skip
    assert db.execute("select alias, name, run_id from links").fetchall() == [
        ("georg", "Georg Maier", found.run_id)
    ]
    assert db.execute("select kind, status from runs where run_id = %s", [found.run_id]).fetchone() == (
        "link",
        "done",
    )
    assert db.execute("select distinct subject from memories order by 1").fetchall() == [
        ("Anna Schmidt",),
        ("Georg Maier",),
    ]
    assert db.execute("select input_tokens, output_tokens, cost, duplicates from judge_costs").fetchall() == [
        (300, 20, 0.001, 1)
    ]
    assert db.execute("select run_id from judgements").fetchone() == (found.run_id,)
    check(db)


def test_a_link_that_was_answered_is_undone_and_not_asked_again(db: DB) -> None:
    tell(db)
    before = state(db)
    asked(db)
    [question] = claim(db, tenant_id="acme")
    run = resolve(db, question.judgement_id, "duplicate").run_id
    assert state(db) != before
    db.execute("select undo_run(%s, 'acme')", [run])
    assert state(db) == before
    assert (suggested(db), asked(db)) == ([], 0)
    link(db, "Georg", "Georg Maier")
    check(db)


def test_distinct_names_are_never_suggested_again_in_either_order(db: DB) -> None:
    tell(db)
    asked(db)
    [question] = claim(db, tenant_id="acme")
    assert resolve(db, question.judgement_id, "distinct").action == "judged"
    assert (suggested(db), asked(db)) == ([], 0)
    # more facts about one than about the other: the alias would be the name
    for number in range(9):
        ingest(db, f"georg has the number {number}", subject="GEORG")
    assert (suggested(db), asked(db)) == ([], 0)
    assert judgements(db) == [("done", "distinct", "Georg", "Georg Maier")]
    assert db.execute("select count(*) from links").fetchone() == (0,)
    # a person can still link them
    link(db, "Georg", "Georg Maier")


def test_an_unsure_answer_keeps_both_and_leaves_the_suggestion_to_a_person(db: DB) -> None:
    tell(db)
    asked(db)
    [question] = claim(db, tenant_id="acme")
    found = resolve(db, question.judgement_id, "duplicate", confidence=0.5, model="m")
    assert (found.verdict, found.action) == ("unsure", "judged")
    assert db.execute("select count(*) from links").fetchone() == (0,)
    assert suggested(db) == [("Georg", "Georg Maier")]
    assert asked(db) == 0


def test_names_that_were_unlinked_are_kept_apart(db: DB) -> None:
    tell(db)
    link(db, "Georg", "Georg Maier")
    db.execute("select unlink_subject('Georg', 'acme')")
    assert (suggested(db), asked(db)) == ([], 0)
    assert judgements(db) == [("done", "distinct", "georg", "Georg Maier")]


def test_a_link_made_in_the_meantime_closes_the_question(db: DB) -> None:
    tell(db)
    asked(db)
    [question] = claim(db, tenant_id="acme")
    link(db, "Georg", "Georg Maier")
    assert judgements(db) == [("obsolete", None, "Georg", "Georg Maier")]
    with pytest.raises(psycopg.Error, match="judgement is closed"):
        resolve(db, question.judgement_id, "duplicate")


def test_an_answer_that_other_links_do_not_admit(db: DB) -> None:
    """In the meantime, links of all buckets point at the alias: the links would form a chain."""
    tell(db)
    asked(db)
    [question] = claim(db, tenant_id="acme")
    link(db, "Schorsch", "Georg", "*")
    found = resolve(db, question.judgement_id, "duplicate")
    assert (found.status, found.verdict, found.action, found.run_id) == ("obsolete", None, None, None)
    reason = db.execute("select reason from judgements").fetchone()
    assert reason is not None
    assert "chain" in reason[0]


@pytest.mark.parametrize("verdict", ["refinement", "contradiction", "same", None])
def test_other_verdicts_are_refused(db: DB, verdict: str | None) -> None:
    tell(db)
    asked(db)
    [question] = claim(db, tenant_id="acme")
    with pytest.raises(psycopg.Error, match="verdict does not apply") as caught:
        resolve(db, question.judgement_id, verdict)
    assert caught.value.sqlstate == "MF028"
    assert judgements(db)[0][0] == "leased"


def test_texts_without_a_subject_and_predicates_are_asked_about(db: DB) -> None:
    for number in range(3):
        ingest(db, f"at {number}", subject=f"s{number}", predicate="works_at", object="VW")
        ingest(db, f"at {number}", subject=f"s{number}", predicate="employer", object="VW")
    ingest(db, "Georg Maier likes tea")
    ingest(db, "owns a boat", subject="Georg Maier")
    assert asked(db) == 2
    questions = {question.link["kind"]: question for question in claim(db, tenant_id="acme") if question.link}
    assert set(questions) == {"predicate", "beginning"}
    beginning = questions["beginning"].link
    assert beginning is not None
    assert (beginning["alias"], beginning["told"], beginning["name_told"]) == (
        None, ["Georg Maier likes tea"], ["owns a boat"]
    )  # fmt: skip
    for question in questions.values():
        assert resolve(db, question.judgement_id, "duplicate").action == "linked"
    assert db.execute("select kind, name from links order by 1").fetchall() == [
        ("beginning", "Georg Maier"), ("predicate", "works_at")
    ]  # fmt: skip
    assert db.execute("select distinct subject from memories where predicate is null").fetchall() == [
        ("Georg Maier",)
    ]
    check(db)


def test_a_failing_judge_costs_nothing_and_each_dead_question_comes_back(db: DB) -> None:
    tell(db)
    for name in ("Anna", "A. Schmidt"):
        for text in ("owns a boat", "sings well"):
            ingest(db, text, subject=name)
    assert asked(db) == 3
    for _ in range(8):
        for question in claim(db, tenant_id="acme"):
            fail(db, question.judgement_id)
        elapse(db, "2 hours")
    assert {row[0] for row in judgements(db)} == {"dead"}
    assert db.execute("select retry_judgements('acme')").fetchone() == (3,)
    assert {row[0] for row in judgements(db)} == {"open"}
    assert db.execute("select count(*) from links").fetchone() == (0,)


def test_as_many_as_are_asked_for_and_each_once(db: DB) -> None:
    tell(db)
    for name in ("Anna", "A. Schmidt"):
        for text in ("owns a boat", "sings well"):
            ingest(db, text, subject=name)
    assert [asked(db, most=2), asked(db, most=2), asked(db, most=2)] == [2, 1, 0]
    assert asked(db, bucket="empty") == 0
    with pytest.raises(psycopg.Error, match="max_questions was 0"):
        asked(db, most=0)


def test_erasing_a_memory_erases_its_questions(db: DB) -> None:
    """A question contains personal names: it is erased with any of the memories that it shows."""
    tell(db)
    asked(db)
    tell(db, "other")
    asked(db, "other")
    [question, _] = claim(db, tenant_id="acme")
    db.execute("select erase_memory(%s, 'acme')", [question.other["memory_id"]])
    assert len(judgements(db)) == 1
    with pytest.raises(psycopg.Error, match="no such judgement"):
        resolve(db, question.judgement_id, "duplicate")
    db.execute("select erase_bucket('acme', 'other')")
    assert judgements(db) == []
    check(db)


def test_memories_being_erased_are_not_evidence(db: DB, connect: Connect) -> None:
    tell(db)
    other = connect()
    with other.transaction():
        other.execute("select memory_id from memfold.memories where subject = 'Georg' for update")
        assert asked(db) == 0
    assert asked(db) == 1


def test_a_question_is_exported_and_restored(db: DB) -> None:
    tell(db)
    asked(db)
    [question] = claim(db, tenant_id="acme")
    lines = [row[0] for row in db.execute("select export_bucket('acme')").fetchall()]
    db.execute("select erase_bucket('acme', 'default')")
    db.execute("select import_bucket(%s, 'acme', 'default')", [psycopg.types.json.Jsonb(lines)])
    assert judgements(db) == [("leased", None, "Georg", "Georg Maier")]
    assert resolve(db, question.judgement_id, "duplicate").action == "linked"
    check(db)


def test_answers_about_names_are_not_labels_of_pairs(db: DB) -> None:
    tell(db)
    asked(db)
    [question] = claim(db, tenant_id="acme")
    resolve(db, question.judgement_id, "distinct")
    assert db.execute("select count(*) from memfold_internal._past_decisions('acme', null)").fetchone() == (
        0,
    )


# Maintenance --------------------------------------------------------------------------------------------------------


def maintain(db: DB, *tasks: str) -> Any:
    row = db.execute("select run_maintenance('acme', %s)", [list(tasks)]).fetchone()
    assert row is not None
    assert row[0]["errors"] == {}
    return row[0]


def test_maintenance_asks_where_the_options_say_so(db: DB) -> None:
    tell(db)
    maintain(db, "cycles")
    assert judgements(db) == []
    db.execute("select set_options('acme', link_interval => '1 day')")
    db.execute("delete from runs")
    assert maintain(db, "cycles")["counts"]["cycles"] == 1
    assert [row[0] for row in judgements(db)] == ["open"]
    maintain(db, "cycles")
    assert len(judgements(db)) == 1


def test_maintenance_takes_up_what_is_left_a_hundred_texts_a_call(db: DB) -> None:
    for number in range(250):
        ingest(db, f"has the number {number}", subject="Georg", bucket_id=f"b{number % 2}")
    link(db, "Georg", "Georg Maier", "*")
    left = []
    for _ in range(9):
        report = maintain(db, "links")
        left.append(report["counts"]["links"])
        if not report["left"]:
            break
    assert (sum(left), max(left)) == (250, 100)
    assert db.execute("select distinct subject from memories").fetchall() == [("Georg Maier",)]
    assert db.execute("select status, report ->> 'texts' from runs where kind = 'link'").fetchone() == (
        "done",
        "250",
    )
    assert maintain(db, "links") | {"ms": None} == {
        "counts": {"links": 0}, "ms": None, "left": [], "busy": [], "errors": {}
    }  # fmt: skip
    check(db)
