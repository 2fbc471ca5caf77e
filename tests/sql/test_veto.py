"""The veto: a score of the words, below which two texts do not merge by themselves."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psycopg
import pytest

from memfold.tools.calibrate.score import Score
from tests.support.maintenance import policy, set_columns, storing
from tests.support.memories import Result, check, ingest, model, vector
from tests.support.queries import DB, one, rows

# Guard-clean, whatever the guard learns; a merge_veto of 1 stops any two texts.
PAIR = ("User likes green tea", "The user likes green tea")
SAME = "The user likes green tea!!"


def tool() -> ModuleType:
    """tools/fit_veto.py, which is not part of a package."""
    path = Path(__file__).parents[2] / "tools" / "fit_veto.py"
    spec = importlib.util.spec_from_file_location("fit_veto", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def score(db: DB, a: str, b: str) -> float:
    return float(one(db, "select memfold_internal._veto_score(%s, %s)", a, b))


@pytest.fixture
def asking(db: DB) -> DB:
    """Every pair is vetoed: these tests show where the veto applies, not its quality."""
    model(db)
    policy(db, "*", merge_veto=1)
    return db


def reason(db: DB, result: Result) -> Any:
    return one(db, "select reason from memfold.memory_events where event_id = %s", result.event_id)


# the score -----------------------------------------------------------------------------------------------------------


@pytest.mark.one_server
def test_the_sql_is_what_the_model_makes(db: DB) -> None:
    fit_veto = tool()
    written = fit_veto.FILE.read_text(encoding="utf-8")
    assert fit_veto.text_of(*fit_veto.read_model(written)) == written
    assert one(db, "select memfold_internal._veto_version()") == "veto/" + fit_veto.read_model(written)[1]


def test_the_function_says_what_the_model_says(db: DB) -> None:
    known = Score.from_json(one(db, "select memfold_internal._veto_model()"))
    lot = np.random.default_rng(11)
    scale = np.array([{"similarity": 1.0}.get(name, 3.0) for name in known.names])
    table = np.concatenate(
        [lot.normal(size=(200, len(scale))) * scale, lot.integers(0, 6, size=(200, len(scale))).astype(float)]
    )
    # at every threshold, and just above and below it
    for tree in known.trees:
        for node in tree:
            if node.feature >= 0:
                around = np.repeat(table[:1], 3, axis=0)
                around[:, node.feature] = [
                    np.nextafter(node.threshold, -np.inf), node.threshold, np.nextafter(node.threshold, np.inf)
                ]  # fmt: skip
                table = np.concatenate([table, around])
    found = one(
        db,
        "select array_agg(memfold_internal._veto_trees("
        "array(select v::float8 from jsonb_array_elements_text(r.row) with ordinality as e (v, n) order by n))"
        " order by r.place)"
        " from jsonb_array_elements(%s::jsonb) with ordinality as r (row, place)",
        json.dumps(table.tolist()),
    )
    expected = known.predict(table)
    assert np.abs(np.array(found) - expected).max() < 1e-6
    assert np.ptp(expected) > 0.8


def test_it_asks_for_words_alone(db: DB) -> None:
    known = Score.from_json(one(db, "select memfold_internal._veto_model()"))
    asked = {known.names[node.feature] for tree in known.trees for node in tree if node.feature >= 0}
    assert len(asked) > 10
    assert not [name for name in asked if name.startswith(("similarity", "apart_by", "guard"))]


@pytest.mark.parametrize(
    ("a", "b"), list(itertools.permutations(["", "x", "User likes tea", "用户有3只猫", "a' \n b"], 2))
)
def test_it_is_the_same_both_ways(db: DB, a: str, b: str) -> None:
    assert 0 <= score(db, a, b) == score(db, b, a) <= 1


def test_the_same_on_every_server(db: DB) -> None:
    """Until another model is fitted, the inputs of the features must not change under this one."""
    pairs = [
        PAIR,
        ("Ida wohnt in Bonn", "Ida lebt in Bonn"),
        ("用户喜欢跑步", "用户喜欢游泳"),
        ("3 cats", "three cats"),
    ]
    assert [f"{score(db, a, b):.6f}" for a, b in pairs] == SCORES


SCORES = ["0.640941", "0.902277", "0.113210", "0.911454"]


def test_numbers_and_forms_are_not_a_difference(db: DB) -> None:
    same = score(db, "The team has 3 engineers", "The team has 3 engineers")
    assert score(db, "The team has three engineers", "The team has 3 engineers") == same
    assert same > 0.5


# the rule ------------------------------------------------------------------------------------------------------------


def test_a_vetoed_pair_is_asked_about(db: DB) -> None:
    model(db)
    veto = score(db, *PAIR) + 0.01
    policy(db, merge_veto=veto)
    old = ingest(db, PAIR[0], **vector(1))
    told = ingest(db, PAIR[1], function="preview_memory", **vector(0.97))
    new = ingest(db, PAIR[1], **vector(0.97))
    assert (new.action, new.tier, new.method, new.similarity) == ("escalated", 2, "vector", 0.97)
    assert (told.action, told.method, told.similarity) == (new.action, new.method, new.similarity)
    assert re.fullmatch(r"veto 0\.\d\d < 0\.\d+ \(veto/\d+\)", reason(db, new))
    [similar] = new.similar
    assert (similar["memory_id"], similar["guard"], similar["veto"]) == (
        str(old.memory_id),
        [],
        reason(db, new),
    )
    assert rows(db, "select kind, other_id, guard from judgements") == [
        {"kind": "write", "other_id": old.memory_id, "guard": []}
    ]
    check(db)


def test_pairs_that_pass_the_veto_merge(db: DB) -> None:
    model(db)
    ingest(db, PAIR[0], **vector(1))
    new = ingest(db, PAIR[1], **vector(0.97))
    assert (new.action, reason(db, new)) == ("merged", None)


@pytest.mark.parametrize("options", [{"merge_veto": 0}, {"merge_veto": 1, "guard": "off"}])
def test_pairs_merge_without_a_veto(db: DB, options: dict[str, Any]) -> None:
    model(db)
    policy(db, **options)
    ingest(db, PAIR[0], **vector(1))
    # (the guard says nothing of these)
    new = ingest(db, PAIR[1], **vector(0.97))
    assert (new.action, reason(db, new)) == ("merged", None)


@pytest.mark.parametrize("veto", [-0.1, 1.1, "nan"])
def test_invalid_vetoes_are_refused(db: DB, veto: Any) -> None:
    with pytest.raises(psycopg.Error) as error:
        policy(db, merge_veto=veto)
    assert error.value.sqlstate == "MF017"


def test_another_neighbour_may_merge(db: DB) -> None:
    """As if the guard had raised a signal: the next neighbour is compared."""
    model(db)
    policy(db, merge_veto=(score(db, PAIR[1], SAME) + score(db, *PAIR)) / 2)
    nearest = ingest(db, PAIR[0], **vector(0.99, 2))
    same = ingest(db, SAME, **vector(0.95, 3))
    assert same.action == "escalated"
    new = ingest(db, PAIR[1], **vector(1))
    assert (new.action, new.memory_id) == ("merged", same.memory_id)
    assert {s["memory_id"]: "veto" in s for s in new.similar} == {
        str(nearest.memory_id): True,
        str(same.memory_id): False,
    }


def test_words_alone(asking: DB) -> None:
    policy(asking, lexical_threshold=0.5, merge_veto=1)
    ingest(asking, PAIR[0])
    told = ingest(asking, PAIR[1], function="preview_memory")
    new = ingest(asking, PAIR[1])
    assert (new.action, new.method, told.action) == ("escalated", "lexical", "escalated")
    assert reason(asking, new).startswith("veto ")
    policy(asking, merge_veto=0)
    assert ingest(asking, "the user likes the green tea").action == "merged"


def test_neighbours_of_the_session(asking: DB) -> None:
    policy(asking, neighbours=1, merge_veto=1)
    set_columns(asking, "policies", "default", session_neighbours=20)
    ingest(asking, "Something else is stored here", **vector(0.99, 2))
    ingest(asking, PAIR[0], session_id="s", **vector(0.97, 3))
    new = ingest(asking, PAIR[1], session_id="s", **vector(1))
    assert (new.action, len(new.similar)) == ("escalated", 2)
    assert all("veto" in s for s in new.similar if s["guard"] == [])


def test_a_batch(asking: DB) -> None:
    made = asking.execute(
        "select action from memfold.ingest_memories(jsonb_build_array("
        "jsonb_build_object('content', %s::text, 'embedding_model', 'm'),"
        "jsonb_build_object('content', %s::text, 'embedding_model', 'm')), 'acme', embeddings => array[%s, %s]::vector[])",
        [*PAIR, vector(1)["embedding"], vector(0.97)["embedding"]],
    ).fetchall()
    assert made == [("inserted",), ("escalated",)]
    check(asking)


def test_a_vector_that_comes_later(asking: DB) -> None:
    ingest(asking, PAIR[0], **vector(1))
    late = ingest(asking, PAIR[1])
    action = one(
        asking,
        "select action from memfold.attach_embedding(%s, %s, %s, 'acme')",
        late.memory_id,
        *vector(0.97).values(),
    )
    assert action == "escalated"
    last = "select reason from memfold.memory_events order by event_id desc limit 1"
    assert one(asking, last).startswith("veto ")
    check(asking)


def test_a_sweep_asks(db: DB) -> None:
    model(db)
    storing(db)
    for text, cosine in zip(PAIR, (1, 0.97), strict=True):
        ingest(db, text, **vector(cosine))
    for veto, action in ((1, "ask"), (0, "merge")):
        policy(db, preset="three_tier", merge_veto=veto)
        plan = rows(db, "select action, guard from sweep_duplicates('acme')")
        assert plan == [{"action": action, "guard": []}]
    policy(db, preset="three_tier", merge_veto=1, on_merge="synthesise", on_ambiguous="judge")
    assert rows(db, "select action from sweep_duplicates('acme', dry_run => false)") == [{"action": "ask"}]
    # what may not merge is not a synthesis either
    assert rows(db, "select kind from judgements") == [{"kind": "consolidation"}]
    check(db)


def test_the_end_of_a_session(db: DB) -> None:
    policy(db, merge_veto=1)
    for text in (*PAIR, "Deploys run from the main branch"):  # of fewer than three nothing is merged
        ingest(db, text, session_id="s")
    for veto, merged in ((1, 0), (0, 1)):
        policy(db, merge_veto=veto)
        assert rows(db, "select superseded_count from end_session('s', 'acme')") == [
            {"superseded_count": merged}
        ]
    check(db)


def test_a_score_in_place_of_the_cosine(asking: DB) -> None:
    asking.execute(
        "create function memfold_internal._score_of_a_test(features double precision[]) returns double precision"
        " language sql immutable strict return 0.95;"
        " update memfold.embedding_models set score_function = '_score_of_a_test', candidate_threshold = 0.5,"
        " score_merge_threshold = 0.9, score_judge_threshold = 0.4"
    )
    ingest(asking, PAIR[0], **vector(1))
    new = ingest(asking, PAIR[1], **vector(0.8))
    assert (new.action, new.method) == ("escalated", "score")
    assert re.fullmatch(r"score 0\.9500; veto 0\.\d\d < 1 \(veto/\d+\)", reason(asking, new))


# cost ----------------------------------------------------------------------------------------------------------------


def calls(db: DB) -> int:
    return int(
        one(
            db,
            "select coalesce(sum(calls), 0) from pg_stat_xact_user_functions"
            " where schemaname = 'memfold_internal' and funcname = '_veto_score'",
        )
    )


@pytest.mark.parametrize(
    ("text", "cosine", "asked"),
    [
        ("User drinks green tea in Bonn", 0.5, 0),  # far
        ("User drinks green tea in Bonn", 0.9, 0),  # asked about, whatever its words
        ("User does not like green tea", 0.97, 0),  # the guard has raised
        ("The user likes green tea", 0.97, 1),
    ],
)
def test_only_pairs_that_would_merge_are_scored(db: DB, text: str, cosine: float, asked: int) -> None:
    model(db)
    for place in range(20):
        ingest(db, f"Note {place}: nothing of it is near", **vector(0.3, 1 + place % 3))
    ingest(db, PAIR[0], **vector(1))
    with db.transaction():
        db.execute("set local track_functions = 'pl'")
        ingest(db, text, **vector(cosine, 2))
        assert calls(db) == asked


# explanations --------------------------------------------------------------------------------------------------------


def test_a_veto_is_explained(asking: DB, app: Callable[[str], DB]) -> None:
    ingest(asking, PAIR[0], **vector(1))
    new = ingest(asking, PAIR[1], **vector(0.97))
    lines = [row[0] for row in app("acme").execute("select memfold.explain_memory(%s)", [new.memory_id])]
    assert any(f"reason: {reason(asking, new)}" in line for line in lines)
    [said] = [line for line in lines if line.startswith("        words: ")]
    parts = re.findall(r"(any pair|[a-z ,]+ [-\d.]+) \(([+-][\d.]+)\)", said)
    assert parts[0][0] == "any pair"
    sizes = [abs(float(size)) for _, size in parts[1:]]
    assert len(sizes) == 5
    assert sizes == sorted(sizes, reverse=True)


def test_every_feature_has_plain_words(db: DB) -> None:
    known = Score.from_json(one(db, "select memfold_internal._veto_model()"))
    asked = {known.names[node.feature] for tree in known.trees for node in tree if node.feature >= 0}
    body = one(db, "select prosrc from pg_proc where proname = '_veto_reasons'")
    assert {name for name in asked if f'"{name}": ' not in body} == set()


# presets -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "off"),
    [
        ("three_tier", False),
        ("store_and_load", False),
        ("hash_first", False),
        ("replace_newer", True),
        ("robotics", True),
    ],
)
def test_presets_that_merge_by_definition_have_none(db: DB, preset: str, off: bool) -> None:
    policy(db, preset=preset)
    assert (one(db, "select merge_veto from memfold.policies where tenant_id = 'acme'") == 0) is off


def test_a_pair_at_the_threshold_is_merged(db: DB) -> None:
    texts = ["Ann likes green tea", "Ann likes tea that is green"]
    score = one(db, "select memfold_internal._veto_score(%s, %s)", *texts)
    assert 0 < score < 1
    assert one(db, "select memfold_internal._veto(%s, %s, %s)", score, *texts) is None
    assert one(db, "select memfold_internal._veto(%s, %s, %s)", score + 1e-6, *texts) is not None
