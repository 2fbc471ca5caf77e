"""Predicates declare themselves: another value is noticed, asked about once per predicate, answered, undone, erased."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from memfold.client.facts import EXTRACTION_PROMPT
from tests.conftest import Connect
from tests.support.judging import claim, resolve
from tests.support.memories import Result, check, ingest, model, vector
from tests.support.queries import DB, one


def say(db: DB, content: str, value: str | None, predicate: str = "lives_in", **more: Any) -> Result:
    given = {"subject": "Alice", "predicate": predicate, "object": value, **more}
    return ingest(db, content, **given)


def homes(db: DB, **more: Any) -> tuple[Result, Result]:
    return say(db, "Alice lives in Lyon.", "Lyon", **more), say(db, "Alice lives in Paris.", "Paris", **more)


def current(db: DB, bucket: str = "default") -> list[str]:
    rows = db.execute("select content from current_memories('acme', %s) order by memory_id", [bucket])
    return [row[0] for row in rows]


def questions(db: DB) -> list[Any]:
    return db.execute(
        "select bucket_id, status, verdict, link ->> 'name' from judgements where kind = 'cardinality'"
        " order by judgement_id"
    ).fetchall()


@pytest.mark.core
def test_another_value_is_noticed_asked_about_and_becomes_history(db: DB) -> None:
    lyon, paris = homes(db)
    assert (lyon.action, lyon.judgement_id, lyon.similar) == ("inserted", None, None)
    assert paris.action == "inserted"
    assert paris.similar == [{"memory_id": str(lyon.memory_id), "note": "another value"}]
    assert len(current(db)) == 2, "asking changes nothing"
    [question] = claim(db, tenant_id="acme")
    assert (question.judgement_id, question.kind) == (paris.judgement_id, "cardinality")
    assert question.link == {
        "kind": "cardinality", "name": "lives_in", "told": ["Alice lives in Paris."],
        "name_told": ["Alice lives in Lyon."],
    }  # fmt: skip
    assert (question.memory["object"], question.other["object"]) == ("Paris", "Lyon")
    found = resolve(db, question.judgement_id, "one", reason="a home", model="m", input_tokens=9)
    assert (found.status, found.verdict, found.action) == ("done", "one", "declared")
    assert current(db) == ["Alice lives in Paris."]
    assert say(db, "Alice lives in Rome.", "Rome").action == "superseded"
    db.execute("select undo_run(%s, 'acme')", [found.run_id])
    assert len(current(db)) == 3
    assert db.execute("select count(*) from predicates where tenant_id = 'acme'").fetchone() == (0,)
    check(db)


def test_many_is_not_asked_again_and_no_longer_noticed(db: DB) -> None:
    homes(db)
    [question] = claim(db, tenant_id="acme")
    assert resolve(db, question.judgement_id, "many").action == "declared"
    rome = say(db, "Alice lives in Rome.", "Rome")
    assert (rome.action, rome.judgement_id, rome.similar) == ("inserted", None, None)
    assert len(current(db)) == 3
    assert db.execute("select cardinality from predicates where tenant_id = 'acme'").fetchall() == [("many",)]


def test_each_predicate_is_asked_about_once_whatever_bucket_and_spelling(db: DB) -> None:
    homes(db)
    assert say(db, "Alice lives in Rome.", "Rome", "Lives In").judgement_id is None
    _, paris = homes(db, bucket_id="other")
    assert (paris.judgement_id, len(paris.similar or ())) == (None, 1), "noticed in each bucket"
    say(db, "Alice works at VW.", "VW", "works_at")
    assert say(db, "Alice works at Bosch.", "Bosch", "works_at").judgement_id is not None
    assert questions(db) == [("default", "open", None, "lives_in"), ("default", "open", None, "works_at")]


@pytest.mark.parametrize("missing", ["subject", "predicate", "object"])
def test_without_all_three_nothing_is_noticed(db: DB, missing: str) -> None:
    for home in ("Lyon", "Paris"):
        given = {"subject": "Alice", "predicate": "lives_in", "object": home, missing: None}
        assert ingest(db, f"Alice lives in {home}.", **given).similar is None
    assert questions(db) == []


@pytest.mark.parametrize(
    "policy", [{"conflict": "keep_both"}, {"dedup": "off"}, {"on_ambiguous": "insert"}], ids=str
)
def test_a_policy_that_would_not_use_the_answer_does_not_ask(db: DB, policy: dict[str, str]) -> None:
    [(name, value)] = policy.items()
    db.execute(f"select set_policy('acme', 'default', {name} => %s)", [value])
    _, paris = homes(db)
    assert (paris.judgement_id, questions(db)) == (None, [])
    assert (paris.similar is not None) == (name == "on_ambiguous")


def test_the_same_value_in_other_words_is_not_another_value(db: DB) -> None:
    say(db, "Alice lives in Paris.", "Paris")
    again = say(db, "Alice's home is Paris.", " PARIS ")
    assert (again.similar, questions(db)) == (None, [])


def test_recalled_text_is_no_evidence(db: DB) -> None:
    say(db, "Alice lives in Lyon.", "Lyon")
    assert say(db, "Alice lives in Paris.", "Paris", origin="recalled").action == "rejected"
    assert questions(db) == []


def test_a_pair_that_is_asked_about_is_other_value_too(db: DB) -> None:
    """Row 11: its judgement stays that of the pair, and the predicate is asked about next to it."""
    model(db)
    lyon = say(db, "Alice lives in Lyon.", "Lyon", **vector(1))
    paris = say(db, "Alice lives in Paris.", "Paris", **vector(0.95))
    assert paris.action == "escalated"
    [near] = paris.similar or ()
    assert (near["memory_id"], near["note"]) == (str(lyon.memory_id), "another value")
    assert near["similarity"] == pytest.approx(0.95, abs=1e-6)
    kinds = db.execute("select kind, judgement_id = %s from judgements order by 1", [paris.judgement_id])
    assert kinds.fetchall() == [("cardinality", False), ("write", True)]


def test_preview_says_the_same_and_asks_nothing(db: DB) -> None:
    say(db, "Alice lives in Lyon.", "Lyon")
    seen = say(db, "Alice lives in Paris.", "Paris", function="preview_memory")
    assert questions(db) == []
    made = say(db, "Alice lives in Paris.", "Paris")
    assert (seen.action, seen.similar) == (made.action, made.similar)
    assert len(questions(db)) == 1


def test_a_batch_notices_what_its_single_calls_would(db: DB) -> None:
    said = [("Lyon", 1), ("Paris", 2), ("Paris", 3), ("Lyon", 4), ("Rome", 5)]
    candidates = [
        {
            "content": f"In year {year} Alice lives in {home}.", "subject": "Alice", "predicate": "lives_in",
            "object": home, "bucket_id": "batch",
        }
        for home, year in said
    ]  # fmt: skip
    single = [
        say(db, str(one["content"]), str(one["object"]), bucket_id="single", tenant_id="single")
        for one in candidates
    ]
    rows = db.execute(
        "select action, \"similar\", judgement_id from ingest_memories(%s, 'acme') order by ordinal",
        [psycopg.types.json.Jsonb(candidates)],
    ).fetchall()
    assert [row[0] for row in rows] == [one.action for one in single]
    contents = dict(db.execute("select memory_id::text, content from memories").fetchall())

    def named(near: Any) -> list[Any]:
        return [(contents[one["memory_id"]], one["note"]) for one in near or ()]

    assert [named(row[1]) for row in rows] == [named(one.similar) for one in single]
    assert [row[2] is not None for row in rows] == [one.judgement_id is not None for one in single]
    assert [bool(row[1]) for row in rows] == [False, True, True, True, True]
    assert questions(db)[0][0] == "batch" or questions(db)[1][0] == "batch"
    check(db)


def test_a_declaration_closes_the_question(db: DB) -> None:
    homes(db)
    [question] = claim(db, tenant_id="acme")
    db.execute("select set_predicate('Lives-In', 'acme')")
    assert questions(db) == [("default", "obsolete", None, "lives_in")]
    with pytest.raises(psycopg.Error) as refused:
        resolve(db, question.judgement_id, "many")
    assert refused.value.sqlstate == "MF027"
    assert current(db) == ["Alice lives in Paris."]
    assert db.execute("select cardinality from predicates where tenant_id = 'acme'").fetchall() == [("one",)]


def test_an_unsure_answer_declares_nothing_and_is_not_asked_again(db: DB) -> None:
    homes(db)
    [question] = claim(db, tenant_id="acme")
    found = resolve(db, question.judgement_id, "one", confidence=0.5, model="m")
    assert (found.verdict, found.action, found.run_id) == ("unsure", "judged", None)
    assert len(current(db)) == 2
    assert say(db, "Alice lives in Rome.", "Rome").judgement_id is None
    assert [row[0] for row in db.execute("select predicate from suggest_predicates('acme')")] == ["lives_in"]


@pytest.mark.parametrize("verdict", ["duplicate", "distinct", "refinement", "unsure", None])
def test_other_verdicts_do_not_apply(db: DB, verdict: str | None) -> None:
    homes(db)
    [question] = claim(db, tenant_id="acme")
    with pytest.raises(psycopg.Error, match="does not apply") as refused:
        resolve(db, question.judgement_id, verdict)
    assert refused.value.sqlstate == "MF028"
    assert questions(db)[0][1] == "leased"


def test_erasing_an_example_erases_the_question(db: DB) -> None:
    lyon, _ = homes(db)
    db.execute("select erase_memory(%s, 'acme')", [lyon.memory_id])
    assert questions(db) == []
    assert say(db, "Alice lives in Lyon.", "Lyon").judgement_id is not None, "asked again"


def test_the_question_is_the_tenants_and_not_exported_with_a_bucket(db: DB) -> None:
    """The other tenant may have asked already, and the next value asks again."""
    homes(db)
    homes(db, tenant_id="globex", bucket_id="other")
    lines = [row[0] for row in db.execute("select export_bucket('acme')").fetchall()]
    assert "judgements" not in {line["table"] for line in lines}
    db.execute("select import_bucket(%s, 'globex')", [psycopg.types.json.Jsonb(lines)])
    rows = db.execute("select tenant_id, bucket_id from judgements order by 1").fetchall()
    assert rows == [("acme", "default"), ("globex", "other")]
    check(db)


@pytest.mark.parametrize("role", ["memfold_judge", "memfold_app", "memfold_tenant", "memfold_agent"])
def test_who_may_answer(db: DB, role: str) -> None:
    """An agent may not: the answer is a rule."""
    homes(db)
    [question] = claim(db, tenant_id="acme")
    db.execute("insert into tenant_roles values (%s, 'acme')", [role])
    db.execute("set memfold.tenant_id = 'acme'")
    db.execute(f"set role {role}".encode())
    try:
        if role == "memfold_agent":
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="question about names"):
                resolve(db, question.judgement_id, "one")
        else:
            assert resolve(db, question.judgement_id, "one").action == "declared"
    finally:
        db.execute("reset role; reset memfold.tenant_id")
    assert len(current(db)) == (2 if role == "memfold_agent" else 1)


def test_two_calls_at_once_ask_once_and_do_not_wait_for_one_another(db: DB, connect: Connect) -> None:
    """The question of the first is not committed yet: the second neither waits for it nor asks again."""
    for subject in ("Alice", "Bo"):
        say(db, f"{subject} lives in Lyon.", "Lyon", subject=subject)
    first, second = connect(), connect()
    for session in (first, second):
        session.autocommit = False
        session.execute("set local statement_timeout = '20s'")
    asked = say(first, "Alice lives in Paris.", "Paris", subject="Alice")
    other = say(second, "Bo lives in Paris.", "Paris", subject="Bo")
    second.commit()
    first.commit()
    assert (asked.judgement_id is not None, other.judgement_id) == (True, None)
    assert len(questions(db)) == 1


def test_suggestions_rank_what_changes_above_what_adds_up(db: DB) -> None:
    for number, person in enumerate(("Alice", "Bo", "Cid")):
        for session, home in enumerate(("Lyon", "Paris")):
            say(db, f"{person} lives in {home}.", home, subject=person, session_id=f"s{number}{session}")
        for thing in ("tea", "jazz", "chess"):
            say(db, f"{person} likes {thing}.", thing, "likes", subject=person, session_id=f"s{number}")
    rows = db.execute(
        "select predicate, score, subjects, changed, most_values, returned, together,"
        " array(select object from unnest(memory_ids) with ordinality as i (id, n)"
        " join memories as m on m.memory_id = i.id order by n)"
        " from suggest_predicates('acme')"
    ).fetchall()
    assert rows == [
        ("lives_in", pytest.approx(4 / 5), 3, 3, 2, 0, 0, ["Paris", "Lyon"]),
        ("likes", pytest.approx(1 / 5), 3, 3, 3, 0, 3, ["chess", "jazz"]),
    ]
    db.execute("select set_predicate('likes', 'acme', 'many')")
    assert [row[0] for row in db.execute("select predicate from suggest_predicates('acme')")] == ["lives_in"]


def test_a_value_that_comes_back_counts_against_one_at_a_time(db: DB) -> None:
    homes(db)
    say(db, "Alice lives in Lyon.", "Lyon")
    row = db.execute("select returned, score from suggest_predicates('acme')").fetchone()
    assert row == (1, pytest.approx(1 / 3))


def test_only_the_newest_hundred_of_a_scope_are_looked_at(db: DB) -> None:
    """A call's cost does not depend on the number of texts of one value."""
    say(db, "Alice lives in Lyon.", "Lyon")
    for number in range(99):
        say(db, f"Alice lives in Paris, report {number}.", "Paris")
    assert say(db, "Alice lives in Paris, report 99.", "Paris").similar is not None
    assert say(db, "Alice lives in Paris, report 100.", "Paris").similar is None


def test_the_starter_list(db: DB) -> None:
    """For all tenants; a tenant's own rule stays; what is stored is taken up; nobody is asked about what is listed."""
    homes(db)
    db.execute("select set_predicate('works_at', 'acme', 'many')")
    number = one(db, "select set_common_predicates('*')")
    assert number == one(db, "select count(*) from predicates where tenant_id = '*'") > 150
    assert one(db, "select set_common_predicates('*')") == 0
    assert len(current(db)) == 1
    assert one(db, "select status from judgements") == "obsolete"
    rules = "select memfold_internal._cardinality(%s, %s)"
    for tenant, predicate, cardinality in (
        ("acme", "livesIn", "one"), ("acme", "works_at", "many"), ("globex", "works-at", "one"),
        ("globex", "likes", "many"), ("globex", "geburtstag", "one"), ("globex", "居住地", "one"),
    ):  # fmt: skip
        assert one(db, rules, tenant, predicate) == cardinality
    say(db, "Ida likes tea.", "tea", subject="Ida", predicate="likes")
    told = say(db, "Ida likes rum.", "rum", subject="Ida", predicate="likes")
    assert told.similar is None
    # of one tenant
    assert one(db, "select set_common_predicates('globex')") == number
    check(db)


def test_the_prompts_names_are_listed(db: DB) -> None:
    """What the extraction prompt names has a rule."""
    named = re.search(r"where one fits: (.*?)\.\n", EXTRACTION_PROMPT, re.DOTALL)
    assert named is not None
    names = re.findall(r"\w+", named[1])
    listed = {
        row[0] for row in db.execute("select predicate from memfold_internal._common_predicates()").fetchall()
    }
    assert len(names) > 25
    assert set(names) <= listed


def test_the_starter_list_is_one_run_and_undone_as_one(db: DB) -> None:
    """It reads the stored memories once, not once per name; later settings stay."""
    homes(db)
    say(db, "Ida drives a Fiat.", "Fiat", subject="Ida", predicate="drives")
    assert one(db, "select set_common_predicates('acme')") > 150
    assert one(db, "select set_common_predicates('acme')") == 0
    runs = db.execute(
        "select run_id, status, report ->> 'memories' from runs where kind = 'predicate'"
    ).fetchall()
    assert [run[1:] for run in runs] == [("done", "3")]
    assert one(db, "select status from judgements") == "obsolete"
    assert len(current(db)) == 2
    db.execute("select set_predicate('drives', 'acme', 'many')")
    db.execute("select undo_run(%s, 'acme')", [runs[0][0]])
    assert db.execute("select predicate, cardinality from predicates").fetchall() == [("drives", "many")]
    assert len(current(db)) == 3
    check(db)
    with pytest.raises(psycopg.Error) as caught:
        db.execute("select undo_run(%s, 'acme')", [runs[0][0]])
    assert caught.value.sqlstate == "MF039"
