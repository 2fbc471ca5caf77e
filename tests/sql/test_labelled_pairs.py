"""Labelled pairs in SQL: added singly, in batches, from past decisions; calibrations applied and undone; isolation."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.calibration import SCORE
from tests.support.concurrent_calls import Call
from tests.support.judging import ask, raises, resolve
from tests.support.maintenance import policy, storing
from tests.support.memories import Result, ingest, model, vector
from tests.support.queries import DB, Connect, rows

App = Callable[..., DB]
NO_AGE = "0 days"


@pytest.fixture(autouse=True)
def registered(request: pytest.FixtureRequest) -> None:
    db = request.getfixturevalue("db")
    model(db)
    # texts are arbitrary names here: vectors alone decide
    policy(db, merge_veto=0)


def add(db: DB, a: str, b: str, label: str = "duplicate", **more: Any) -> UUID:
    if "similarities" in more:
        more["similarities"] = json.dumps(more["similarities"])
    names = "".join(f", {name} => %s" for name in more)
    row = db.execute(
        f"select memfold.add_labelled_pair(%s, %s, %s, tenant_id => 'acme'{names})".encode(),
        [a, b, label, *more.values()],
    ).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


def collect(db: DB, bucket: str | None = None, age: str = NO_AGE, **more: Any) -> dict[tuple[str, str], int]:
    found = rows(
        db,
        "select * from collect_pairs('acme', %s, 'm', %s, %s::interval)",
        bucket,
        more.get("max_results", 1000),
        age,
    )
    return {(row["evidence"], row["label"]): row["pairs"] for row in found}


def pairs(db: DB) -> list[tuple[Any, ...]]:
    return db.execute(
        "select content_a, content_b, label, origin, evidence, weak from memfold.labelled_pairs order by pair_id"
    ).fetchall()


def one(db: DB, *columns: str) -> Any:
    found = db.execute(f"select {', '.join(columns)} from memfold.labelled_pairs".encode()).fetchall()
    assert len(found) == 1
    return found[0]


# manual -----------------------------------------------------------------------------------------------------


@pytest.mark.core
def test_one_row_for_two_texts_in_either_order(db: DB) -> None:
    first = add(db, "User likes tea.", "User enjoys tea", similarities={"m": 0.9})
    again = add(db, "user enjoys TEA!", "User likes tea", "distinct", similarities={"n": 0.8})
    assert first == again
    assert one(db, "label", "similarities", "origin", "weak") == (
        "distinct",
        {"m": 0.9, "n": 0.8},
        "labelled",
        False,
    )
    other = add(db, "User likes tea", "User enjoys coffee")
    assert other != first
    db.execute("select remove_labelled_pair(%s, 'acme')", [other])
    assert one(db, "pair_id", "labelled_by") == (first, "postgres")


def test_what_is_not_a_labelled_pair(db: DB) -> None:
    for code, arguments in (
        ("MF004", {"a": " . ", "b": "x"}),
        ("MF005", {"a": "x" * 100_001, "b": "y"}),
        ("MF005", {"a": "y", "b": "x" * 100_001}),
        ("MF042", {"a": "User likes tea", "b": "user likes tea."}),
        ("MF042", {"a": "x", "b": "y", "label": "same"}),
        ("MF042", {"a": "x", "b": "y", "origin": "collected"}),
        ("MF042", {"a": "x", "b": "y", "similarities": {"m": 1.1}}),
        ("MF042", {"a": "x", "b": "y", "similarities": {"m": "0.9"}}),
        ("MF042", {"a": "x", "b": "y", "similarities": [0.9]}),
    ):
        raises(code, add, db, **arguments)
    raises("MF042", db.execute, "select remove_labelled_pair(%s, 'acme')", [uuid4()])
    assert pairs(db) == []


def add_all(db: DB, *given: Any) -> int:
    row = db.execute("select add_labelled_pairs(%s, 'acme')", [json.dumps(given)]).fetchone()
    assert row is not None
    count: int = row[0]
    return count


def test_many_at_once_all_or_none(db: DB) -> None:
    tea = {"a": "User likes tea", "b": "User enjoys tea", "label": "duplicate", "similarities": {"m": 0.9}}
    assert (
        add_all(db, tea, {**tea, "label": "refinement"}, {**tea, "b": "It rains", "label": "distinct"}) == 3
    )
    # if a pair is given twice, the last counts
    assert {row[2:] for row in pairs(db)} == {
        ("refinement", "import", None, False), ("distinct", "import", None, False),
    }  # fmt: skip
    assert add_all(db) == 0
    for wrong in (
        [1],
        [{"a": "x", "b": "y", "label": "distinct", "cosine": 1}],
        [{"a": "x", "label": "distinct"}],
    ):
        with pytest.raises(psycopg.Error) as error:
            add_all(db, {**tea, "a": "new", "b": "newer"}, *wrong)
        assert error.value.sqlstate in ("MF004", "MF042")
    raises("MF035", db.execute, "select add_labelled_pairs('{}', 'acme')")
    assert len(pairs(db)) == 2


def test_pairs_are_described(db: DB) -> None:
    """By the guard, with the antonyms of the tenant, and by the features in the order in which a score takes them."""
    db.execute("insert into memfold.antonyms (tenant_id, word, antonym) values ('acme', 'tabs', 'spaces')")
    given = [
        {"a": "We use tabs", "b": "We use spaces", "similarity": 0.9},
        {"a": "We use tabs", "b": "We use spaces"},
    ]
    call = "select ordinal, guard, features from describe_pairs(%s, %s)"
    expected = db.execute(
        "select memfold_internal._pair_feature_names(), memfold_internal._pair_features(0.9, %s, %s, %s)",
        ["We use tabs", "We use spaces", ["antonym: tabs <> spaces"]],
    ).fetchone()
    assert expected is not None
    found = db.execute(call, [json.dumps(given), "acme"]).fetchall()
    assert [row[:2] for row in found] == [(1, ["antonym: tabs <> spaces"]), (2, ["antonym: tabs <> spaces"])]
    assert [*found[0][2].items()] == [*zip(*expected, strict=True)]
    assert found[1][2] is None
    others = db.execute(call, [json.dumps(given), "*"]).fetchall()
    assert [row[1] for row in others] == [["substitution: tabs <> spaces"]] * 2
    for code, wrong, tenant in (("MF035", "{}", "*"), ("MF042", '[{"c": 1}]', "*"), ("MF001", "[]", "")):
        raises(code, db.execute, call, [wrong, tenant])


# from past decisions ----------------------------------------------------------------------------------------


def two(db: DB, cosine: float, a: str, b: str, **more: Any) -> tuple[Result, Result]:
    """Two texts in a separate scope."""
    subject = {"subject": f"{a} / {b}", **more}
    return ingest(db, a, **vector(1.0), **subject), ingest(db, b, **vector(cosine), **subject)


def label_of(db: DB, text: str) -> tuple[Any, ...]:
    found = [row[2:] for row in pairs(db) if text in row[:2]]
    assert len(found) == 1
    return found[0]


@pytest.mark.core
def test_answers_of_judges_and_persons_as_labels(db: DB) -> None:
    for verdict in ("duplicate", "refinement", "contradiction", "distinct"):
        _, newer = two(db, 0.9, f"{verdict} a", f"{verdict} b")
        resolve(db, newer.judgement_id, verdict, model="a judge")
    _, unsure = two(db, 0.9, "unsure a", "unsure b")
    resolve(db, unsure.judgement_id, "duplicate", confidence=0.5, model="a judge")
    _, newer = two(db, 0.9, "person a", "person b")
    resolve(db, newer.judgement_id, "distinct")
    # "open" is asked, "unsure" was: nobody knows
    two(db, 0.9, "open a", "open b")
    assert collect(db) == {
        ("judge", "duplicate"): 1, ("judge", "refinement"): 1, ("judge", "contradiction"): 1, ("judge", "distinct"): 1,
        ("person", "distinct"): 1,
    }  # fmt: skip
    assert label_of(db, "refinement a") == ("refinement", "collected", "judge", False)
    row = db.execute(
        "select similarities, memory_a, memory_b from labelled_pairs where 'person a' in (content_a, content_b)"
    ).fetchone()
    assert row is not None
    assert row[0] == {"m": 0.9}
    assert newer.memory_id in row[1:]


def test_merges_in_force_are_weak_labels_and_undone_ones_stronger(db: DB) -> None:
    two(db, 0.95, "stands a", "stands b")
    _, undone = two(db, 0.95, "undone a", "undone b")
    db.execute("select undo(%s, 'acme', 'no')", [undone.event_id])
    policy(db, guard="off")
    _, opposite = two(db, 0.95, "The door is open", "The door is not open")
    assert opposite.action == "merged"
    db.execute("select undo(%s, 'acme', 'no')", [opposite.event_id])
    policy(db, guard="on")
    _, judged = two(db, 0.9, "judged a", "judged b")
    event = resolve(db, judged.judgement_id, "duplicate", model="a judge").event_id
    db.execute("select undo(%s, 'acme', 'no')", [event])
    assert collect(db) == {
        ("merge", "duplicate"): 1, ("undo", "distinct"): 2, ("undo", "contradiction"): 1,
    }  # fmt: skip
    assert label_of(db, "stands a") == ("duplicate", "collected", "merge", True)
    assert label_of(db, "undone a") == ("distinct", "collected", "undo", False)
    assert label_of(db, "judged a") == ("distinct", "collected", "undo", False)
    assert label_of(db, "The door is open") == ("contradiction", "collected", "undo", False)


def test_an_undone_contradiction_says_nothing(db: DB) -> None:
    _, newer = two(db, 0.9, "contradicted a", "contradicted b")
    event = resolve(db, newer.judgement_id, "contradiction", model="a judge").event_id
    db.execute("select undo(%s, 'acme', 'no')", [event])
    assert collect(db) == {}


def test_manual_actions_and_other_values_as_labels(db: DB) -> None:
    a, b = two(db, 0.5, "manual a", "manual b")
    db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [b.memory_id, a.memory_id])
    c, d = two(db, 0.5, "retired a", "retired b")
    db.execute("select supersede_memory(%s, %s, tenant_id => 'acme')", [c.memory_id, d.memory_id])
    e, _ = two(db, 0.5, "updated a", "another b")
    db.execute("select update_memory(%s, 'updated c', tenant_id => 'acme')", [e.memory_id])
    db.execute("select set_predicate('lives_in', 'acme')")
    slot = {"subject": "Ann", "predicate": "lives_in"}
    ingest(db, "Ann lives in Rome", object="Rome", **slot, **vector(1.0))
    assert ingest(db, "Ann lives in Oslo", object="Oslo", **slot, **vector(0.97)).action == "superseded"
    assert collect(db, age="30 days") == {
        ("person", "duplicate"): 1, ("person", "contradiction"): 1, ("object", "contradiction"): 1,
    }  # fmt: skip


def test_neighbours_next_to_one_another(db: DB) -> None:
    storing(db)
    two(db, 0.8, "near a", "near b")
    two(db, 0.7, "far a", "far b")
    assert collect(db, age="1 hour") == {}
    assert collect(db) == {("neighbours", "distinct"): 1}
    assert label_of(db, "near a") == ("distinct", "collected", "neighbours", True)
    assert collect(db, bucket="another") == {}


def test_a_stronger_label_stays_and_cosines_are_added(db: DB) -> None:
    two(db, 0.95, "text a", "text b")
    add(db, "text b", "text a", "distinct", similarities={"n": 0.5})
    assert collect(db) == {("merge", "duplicate"): 1}
    row = one(db, "label", "origin", "weak", "similarities", "memory_a is not null")
    assert row == ("distinct", "labelled", False, {"m": 0.95, "n": 0.5}, True)
    db.execute("delete from labelled_pairs")
    collect(db)
    assert one(db, "label", "weak") == ("duplicate", True)
    add(db, "text a", "text b", "refinement")
    assert one(db, "label", "weak", "evidence") == ("refinement", False, None)


def test_neither_erased_nor_withdrawn_texts_nor_those_without_a_vector(db: DB) -> None:
    _, erased = two(db, 0.95, "erased a", "erased b")
    two(db, 0.95, "kept a", "kept b")
    a = ingest(db, "bare a")
    b = ingest(db, "bare b")
    resolve(db, ask(db, a, b), "distinct")
    assert collect(db) == {("merge", "duplicate"): 2}
    db.execute("delete from labelled_pairs")
    db.execute(
        "insert into memory_events (tenant_id, bucket_id, action, memory_id, actor)"
        " values ('acme', 'default', 'erased', %s, 'x')",
        [erased.memory_id],
    )
    assert collect(db) == {("merge", "duplicate"): 1}
    assert one(db, "content_a") == ("kept b",)


def test_strong_ones_first_and_at_most_so_many(db: DB) -> None:
    for i in range(3):
        two(db, 0.95, f"folded {i} a", f"folded {i} b")
    _, newer = two(db, 0.9, "judged a", "judged b")
    resolve(db, newer.judgement_id, "distinct", model="a judge")
    assert collect(db, max_results=2) == {("judge", "distinct"): 1, ("merge", "duplicate"): 1}
    raises("MF022", collect, db, max_results=0)
    raises("MF013", db.execute, "select collect_pairs('acme', null, 'unknown')")
    raises("MF012", db.execute, "select collect_pairs('acme')")


def test_the_most_informative_first(db: DB) -> None:
    """The band is 0.85 to 0.92: inside it those near an edge, then those outside by how far they are."""
    cosines = {"far": 0.76, "edge": 0.91, "middle": 0.885, "above": 0.99, "near": 0.84}
    storing(db)
    for name, cosine in cosines.items():
        two(db, cosine, f"{name} a", f"{name} b")
    collect(db)
    asked = "select split_part(content_a, ' ', 1), similarity, guard from pairs_to_label('acme', 'm', %s)"
    found = db.execute(asked, [10]).fetchall()
    assert [row[0] for row in found] == ["edge", "middle", "near", "above", "far"]
    assert found[0][1:] == (0.91, [])
    assert [row[0] for row in db.execute(asked, [1]).fetchall()] == ["edge"]
    add(db, "edge a", "edge b", "distinct")
    assert [row[0] for row in db.execute(asked, [1]).fetchall()] == ["middle"]
    raises("MF022", db.execute, asked, [0])


# calibrations -----------------------------------------------------------------------------------------------


def calibration(db: DB, merge: float, judge: float, **more: Any) -> UUID:
    columns = "".join(f", {name}" for name in more)
    row = db.execute(
        f"insert into calibrations (model, merge_threshold, judge_threshold, report, fingerprint{columns})"
        f" values ('m', %s, %s, '{{}}', ''{', %s' * len(more)}) returning calibration_id".encode(),
        [merge, judge, *more.values()],
    ).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


def goes_by(db: DB) -> Any:
    return db.execute(
        "select merge_threshold, judge_threshold, calibration_id, score_function, candidate_threshold from embedding_models"
        " where model = 'm'"
    ).fetchone()


def score_bands(db: DB) -> Any:
    return db.execute("select score_merge_threshold, score_judge_threshold from embedding_models").fetchone()


@pytest.mark.core
def test_applied_logged_and_undone(db: DB) -> None:
    before = goes_by(db)
    assert before == (0.92, 0.85, None, None, None)
    first, second = calibration(db, 0.97, 0.8), calibration(db, 0.99, 0.7)
    db.execute("select apply_calibration(%s)", [first])
    db.execute("select apply_calibration(%s)", [second])
    assert goes_by(db) == (0.99, 0.7, second, None, None)
    assert two(db, 0.95, "now a", "now b")[1].action == "escalated"
    assert db.execute("select undo_calibration('m')").fetchone() == (first,)
    assert goes_by(db) == (0.97, 0.8, first, None, None)
    assert db.execute("select undo_calibration('m')").fetchone() == (None,)
    assert goes_by(db) == before
    raises("MF043", db.execute, "select undo_calibration('m')")
    raises("MF013", db.execute, "select undo_calibration('unknown')")
    raises("MF043", db.execute, "select apply_calibration(%s)", [uuid4()])
    log = rows(db, "select * from calibration_changes order by recorded_at")
    assert [row["calibration_id"] for row in log] == [first, second, first, None]
    assert [row["undoes"] for row in log] == [None, None, log[1]["change_id"], log[0]["change_id"]]
    assert [row["before"]["merge_threshold"] for row in log] == [0.92, 0.97, 0.99, 0.97]
    assert {row["actor"] for row in log} == {"postgres"}


def test_calibrations_applied_at_once_are_undone_one_by_one(db: DB, connect: Connect) -> None:
    """The second logs as previous values those that the first has set, though both began before."""
    first, second = calibration(db, 0.97, 0.8), calibration(db, 0.99, 0.7)
    apply = "select apply_calibration(%s)"
    owner = connect()
    owner.execute("begin")
    owner.execute(apply.encode(), [first])
    waiting = Call(db, connect(), lambda c: c.execute(apply.encode(), [second])).waits_for(owner)
    owner.execute("commit")
    waiting.end()
    assert goes_by(db)[:3] == (0.99, 0.7, second)
    for before, calibrated in ((0.97, first), (0.92, None)):
        assert db.execute("select undo_calibration('m')").fetchone() == (calibrated,)
        assert goes_by(db)[0] == before


def test_an_undo_restores_thresholds_set_manually(db: DB) -> None:
    db.execute("update embedding_models set merge_threshold = 0.9, judge_threshold = 0.6")
    db.execute("select apply_calibration(%s)", [calibration(db, 0.97, 0.8)])
    db.execute("select undo_calibration('m')")
    assert goes_by(db)[:3] == (0.9, 0.6, None)
    db.execute("select apply_calibration(%s)", [calibration(db, 0.97, 0.8)])
    assert goes_by(db)[:2] == (0.97, 0.8)


def scored(db: DB, sql: str = SCORE) -> UUID:
    return calibration(db, 0.9, 0.2, score='{"format": "trees"}', candidate_threshold=0.4, score_sql=sql)


@pytest.mark.core
def test_a_score_becomes_a_function(db: DB) -> None:
    found = scored(db)
    name = f"_score_{found.hex}"
    db.execute("select apply_calibration(%s)", [found])
    # cosines are compared as before
    assert (goes_by(db), score_bands(db)) == ((0.92, 0.85, found, name, 0.4), (0.9, 0.2))
    assert db.execute(
        f"select memfold_internal.{name}('{{1,1}}') > 0.88, memfold_internal.{name}('{{0,0}}') < 0.12".encode()
    ).fetchone() == (True, True)
    assert db.execute(
        "select proowner::regrole::text, has_function_privilege('memfold_app', oid, 'execute')"
        " from pg_proc where proname = %s",
        [name],
    ).fetchone() == ("memfold_owner", False)
    db.execute("select undo_calibration('m')")
    assert (goes_by(db), score_bands(db)) == ((0.92, 0.85, None, None, None), (None, None))
    db.execute("select apply_calibration(%s)", [found])
    assert goes_by(db)[3] == name
    # a calibration of the cosine takes the score's place
    db.execute("select apply_calibration(%s)", [calibration(db, 0.97, 0.8)])
    assert (goes_by(db)[:2], goes_by(db)[3:], score_bands(db)) == ((0.97, 0.8), (None, None), (None, None))


def test_what_is_left_of_an_unregistered_model(db: DB) -> None:
    found = scored(db)
    db.execute("select apply_calibration(%s)", [found])
    db.execute(
        "select register_embedding_model('other', 2, 0.92, 0.85), replace_embedding_model('m', 'other')"
    )
    db.execute("select unregister_embedding_model('m')")
    assert db.execute("select from pg_proc where proname = %s", [f"_score_{found.hex}"]).fetchall() == []
    raises("MF013", db.execute, "select apply_calibration(%s)", [found])
    assert db.execute("select from pg_proc where proname = %s", [f"_score_{found.hex}"]).fetchall() == []
    # its calibrations remain, for when it is registered again; earlier changes are not undone
    db.execute("select register_embedding_model('m', 2, 0.92, 0.85)")
    raises("MF043", db.execute, "select undo_calibration('m')")
    assert goes_by(db) == (0.92, 0.85, None, None, None)
    db.execute("select apply_calibration(%s)", [found])
    assert goes_by(db)[3] == f"_score_{found.hex}"
    db.execute("select undo_calibration('m')")
    assert goes_by(db) == (0.92, 0.85, None, None, None)


@pytest.mark.parametrize(
    "wrong",
    [
        SCORE + "drop table memfold.labelled_pairs;\n",
        SCORE.replace("    v := v + case", "    perform pg_sleep(0);\n    v := v + case"),
        SCORE.replace("float8 '-1.5'", "(select 1)"),
        SCORE.replace("float8 '0.0'", "float8 '0.0'; delete from memfold.labelled_pairs; v := v + case"),
        SCORE.replace("float8 '0.0'", "'\n--'; delete from memfold.labelled_pairs; v := '\n'"),
        SCORE.replace("exp(", "memfold.canonicalize("),
        "select 1",
    ],
)
def test_nothing_but_a_score_is_executed(db: DB, wrong: str) -> None:
    add(db, "x", "y", "distinct")
    raises("MF045", db.execute, "select apply_calibration(%s)", [scored(db, wrong)])
    assert goes_by(db) == (0.92, 0.85, None, None, None)
    assert len(pairs(db)) == 1


def test_a_calibration_that_cannot_be(db: DB) -> None:
    for merge, judge, more in (
        (0.5, 0.6, {}), (1.1, 0.5, {}), (0.9, -0.1, {}), (0.9, 0.5, {"method": "guess"}),
        (0.9, 0.5, {"score": "{}"}), (0.9, 0.5, {"candidate_threshold": 0.4}),
    ):  # fmt: skip
        with pytest.raises(psycopg.errors.CheckViolation):
            calibration(db, merge, judge, **more)


# isolation ------------------------------------------------------------------------------------------------------


def test_pairs_are_a_tenants_own(db: DB, app: App) -> None:
    two(db, 0.95, "acme a", "acme b")
    mine, other = app("acme"), app("globex")
    assert mine.execute("select * from collect_pairs('acme', null, 'm')").fetchall() == [
        ("merge", "duplicate", 1)
    ]
    found = mine.execute("select memfold.add_labelled_pair('x', 'y', 'distinct')").fetchone()
    assert found is not None
    assert mine.execute("select count(*) from labelled_pairs").fetchone() == (2,)
    assert other.execute("select count(*) from labelled_pairs").fetchone() == (0,)
    assert other.execute("select * from pairs_to_label('globex', 'm')").fetchall() == []
    assert other.execute("select * from collect_pairs('globex', null, 'm')").fetchall() == []
    for call in (
        "collect_pairs('acme', null, 'm')", "pairs_to_label('acme', 'm')", "add_labelled_pairs('[]', 'acme')",
        "add_labelled_pair('x', 'y', 'duplicate', 'acme')", "remove_labelled_pair(gen_random_uuid(), 'acme')",
    ):  # fmt: skip
        raises("MF002", other.execute, f"select memfold.{call}")
    raises("MF042", other.execute, "select remove_labelled_pair(%s)", found)
    # labels are per tenant
    other.execute("select memfold.add_labelled_pair('x', 'y', 'duplicate')")
    assert mine.execute("select label from labelled_pairs where content_a = 'x'").fetchone() == ("distinct",)


def test_calibrations_are_the_owners(db: DB, app: App) -> None:
    found = calibration(db, 0.97, 0.8)
    mine = app("acme")
    for statement in (
        f"select apply_calibration('{found}')",
        "select undo_calibration('m')",
        "select describe_pairs('[]', 'acme')",
        "insert into calibrations (model, merge_threshold, judge_threshold, report, fingerprint)"
        " values ('m', 0.9, 0.1, '{}', '')",
        "update calibrations set score_sql = 'x'",
        "update embedding_models set score_function = 'x'",
        "delete from calibration_changes",
        "insert into labelled_pairs (tenant_id, content_a, content_b, label, origin)"
        " values ('acme', 'a', 'b', 'distinct', 'import')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            mine.execute(statement.encode())
    assert mine.execute("select count(*) from calibrations").fetchone() == (1,)
    assert mine.execute("select count(*) from calibration_changes").fetchone() == (0,)
