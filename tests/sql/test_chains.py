"""No chains: an automatic merge compares a candidate with the text that is shown, not with earlier aliases of it.

MEMFOLD_WALKS random walks of 30 candidates, of each kind; MEMFOLD_SEED fixes the random choice.
"""

from __future__ import annotations

import json
import math
import random
from typing import Any
from uuid import UUID

import pytest

from tests.support.judging import answer
from tests.support.maintenance import angle, policy, set_columns
from tests.support.memories import Result, check, counters, ingest, model, status
from tests.support.queries import DB, rows
from tests.support.rounds import SEED, rounds

WALKS = rounds("MEMFOLD_WALKS", 4, 40)
STEPS = 30


def cosine(degrees: float) -> Any:
    return pytest.approx(math.cos(math.radians(degrees)), abs=1e-5)


def event(db: DB, result: Result) -> dict[str, Any]:
    [row] = rows(db, "select * from memory_events where event_id = %s", result.event_id)
    return row


def told(result: Result, memory_id: UUID | None) -> dict[str, Any]:
    """A result's entry for a memory in ``similar``."""
    [entry] = [entry for entry in result.similar if entry["memory_id"] == str(memory_id)]
    return dict(entry)


# The chain of nine --------------------------------------------------------------------------------------------------

VERBS = ["likes", "enjoys", "loves", "adores", "fancies", "relishes", "savours", "treasures", "cherishes"]
NINE = [(f"User {verb} tea", 22 * i) for i, verb in enumerate(VERBS)]
# 22 degrees are above the merge threshold, 44 below the judge threshold
NINE_DECIDED = [
    "inserted",
    "merged",
    "escalated",
    "merged",
    "escalated",
    "merged",
    "escalated",
    "merged",
    "escalated",
]


def shown_similarities(db: DB) -> list[float]:
    """The cosine of every alias to the text that is shown for it."""
    return [
        row["similarity"]
        for row in rows(
            db,
            "select memfold_internal._similarity(a.embedding, r.embedding) as similarity from memories as m"
            " join memory_vectors as a using (tenant_id, memory_id)"
            " join memory_vectors as r on r.tenant_id = m.tenant_id and r.memory_id = m.root_id",
        )
    ]


def test_a_chain_one_by_one(db: DB) -> None:
    model(db)
    policy(db, guard="off")
    for (text, degrees), action in zip(NINE, NINE_DECIDED, strict=True):
        preview = ingest(db, text, function="preview_memory", **angle(degrees))
        found = ingest(db, text, **angle(degrees))
        assert (found.action, preview.action, preview.similar) == (action, action, found.similar), text
    assert min(shown_similarities(db)) > 0.92
    check(db)


def test_a_chain_in_a_batch(db: DB) -> None:
    model(db)
    policy(db, guard="off")
    batch = [
        {"content": text, "embedding": json.loads(angle(degrees)["embedding"]), "embedding_model": "m"}
        for text, degrees in NINE
    ]
    done = rows(
        db, "select action, \"similar\" from ingest_memories(%s, 'acme') order by ordinal", json.dumps(batch)
    )
    assert [row["action"] for row in done] == NINE_DECIDED
    assert all(row["similar"] for row in done[1:])
    assert min(shown_similarities(db)) > 0.92
    check(db)


def test_a_chain_of_late_vectors(db: DB) -> None:
    model(db)
    policy(db, guard="off", on_ambiguous="insert")
    stored = [ingest(db, text).memory_id for text, _ in NINE]
    actions = []
    for memory_id, (_, degrees) in zip(stored, NINE, strict=True):
        [row] = rows(
            db,
            "select action from attach_embedding(%s, %s, 'm', 'acme')",
            memory_id,
            angle(degrees)["embedding"],
        )
        actions.append(row["action"])
    assert actions == [
        "embedded",
        "merged",
        "embedded",
        "merged",
        "embedded",
        "merged",
        "embedded",
        "merged",
        "embedded",
    ]
    assert min(shown_similarities(db)) > 0.92
    check(db)


def test_a_chain_of_replacements(db: DB) -> None:
    """The newer text is shown: each is compared with the one before it, which it replaces."""
    model(db)
    policy(db, guard="off", on_merge="replace")
    ingest(db, NINE[0][0], **angle(0))
    first = ingest(db, NINE[1][0], **angle(20))
    assert first.action == "replaced"
    # near to the first text, which is an alias now, and not near enough to the one that is shown
    other = ingest(db, NINE[2][0], **angle(-8))
    assert (other.action, other.similarity) == ("escalated", cosine(28))
    check(db)


def test_words_that_drift(db: DB) -> None:
    """Preset robotics: ten words, one of them another each time. Jaccard 9/11 to the last one, 8/12 to the one before."""
    # words of no language, which the guard would ask about
    db.execute("select set_policy('acme', preset => 'robotics', guard => 'off')")
    names = [f"w{chr(97 + i)}x" for i in range(24)]
    shown: dict[UUID | None, set[str]] = {}
    for i in range(15):
        words = names[i : i + 10]
        found = ingest(db, " ".join(words))
        if found.action == "merged":
            text = shown[found.memory_id]
            own = len(text & {*words}) / len(text | {*words})
            assert own > 0.7
            assert found.similarity == pytest.approx(own)
        else:
            assert found.action == "inserted"
            shown[found.memory_id] = {*words}
    assert 5 <= len(shown) <= 8
    check(db)


def test_a_synthesised_text_is_not_replaced_through_an_alias(db: DB) -> None:
    """Preset replace_newer: a text near one of the texts that the shown one was written from, but not near the shown one."""
    model(db)
    db.execute("select set_policy('acme', preset => 'replace_newer')")
    poor = ingest(db, "Eva hat eine Katze", **angle(0))
    ingest(db, "Eva hat eine Katze namens Mia", **angle(22))
    written = answer(db, "refinement", 0.9, merged_text="Eva hat eine Katze, und die Katze heisst Mia")
    assert written[2] == "replaced"
    db.execute("select attach_embedding(%s, %s, 'm', 'acme')", [written[3], angle(30)["embedding"]])
    found = ingest(db, "Eva besitzt eine Katze", **angle(5))
    assert (found.action, found.similarity) == ("escalated", cosine(25))
    entry = told(found, written[3])
    assert (entry["matched_id"], entry["matched_similarity"]) == (str(poor.memory_id), cosine(5))
    assert status(db, written[3]) == "active"
    [asked] = rows(db, "select memory_id, other_id, similarity, kind from judgements where status = 'open'")
    assert {asked["memory_id"], asked["other_id"]} == {found.memory_id, written[3]}
    assert (asked["similarity"], asked["kind"]) == (cosine(25), "synthesis")
    check(db)


# What is reported ---------------------------------------------------------------------------------------------------


def test_the_ledger_names_the_text_that_matched(db: DB) -> None:
    model(db)
    db.execute("select set_policy('acme', merge_veto => 0)")
    root = ingest(db, "User likes tea", **angle(0))
    alias = ingest(db, "User enjoys tea", **angle(20))
    [row] = rows(db, "select memory_id from memories where root_id is not null")
    alias_id = row["memory_id"]
    assert alias.similar == [{"memory_id": str(root.memory_id), "similarity": cosine(20), "guard": []}]
    # merged by the root's own text, though the alias is nearer
    both = ingest(db, "User loves tea", **angle(12))
    assert (both.action, both.memory_id, both.similarity) == ("merged", root.memory_id, cosine(12))
    assert told(both, root.memory_id) == {
        "memory_id": str(root.memory_id), "similarity": cosine(12), "guard": [],
        "matched_id": str(alias_id), "matched_similarity": cosine(8),
    }  # fmt: skip
    far = ingest(db, "User adores tea", **angle(50))
    assert (far.action, far.similarity) == ("escalated", cosine(50))
    assert told(far, root.memory_id) == {
        "memory_id": str(root.memory_id), "similarity": cosine(50), "guard": [],
        "matched_id": str(alias_id), "matched_similarity": cosine(30),
    }  # fmt: skip
    for result in (alias, both, far):
        assert event(db, result)["similar_memories"] == result.similar
        assert event(db, result)["target_id"] == root.memory_id
    [asked] = rows(db, "select memory_id, other_id, similarity from judgements")
    assert asked == {"memory_id": far.memory_id, "other_id": root.memory_id, "similarity": cosine(50)}
    lines = "\n".join(r["line"] for r in rows(db, "select explain_memory(%s, 'acme') as line", far.memory_id))
    assert f'cosine 0.6428 (0.8660 to "User enjoys tea", {alias_id})' in lines
    # no other text to be named
    lines = "\n".join(
        r["line"] for r in rows(db, "select explain_memory(%s, 'acme') as line", root.memory_id)
    )
    assert 'vector, cosine 0.9397 "User enjoys tea"' in lines
    check(db)


def test_an_erased_alias_is_no_longer_named(db: DB) -> None:
    model(db)
    root = ingest(db, "User likes tea", **angle(0))
    ingest(db, "User enjoys tea", source_turn_ids=["erased"], **angle(20))
    far = ingest(db, "User adores tea", **angle(50))
    alias_id = told(far, root.memory_id)["matched_id"]
    db.execute("select erase_source('erased', 'acme')")
    named = "select from memory_events where similar_memories::text like %s"
    assert rows(db, named, f"%{alias_id}%") == []
    # also where the memory that it leads to stays
    [left] = rows(
        db,
        "select memfold_internal._drop_similar(%s::jsonb, %s::uuid[]) as left",
        json.dumps(far.similar),
        [alias_id],
    )
    assert [set(entry) for entry in left["left"]] == [{"memory_id", "similarity", "guard"}]
    check(db)


def test_words_name_the_text_that_matched(db: DB) -> None:
    db.execute("select set_policy('acme', preset => 'robotics', guard => 'off', on_ambiguous => 'review')")
    names = [f"w{chr(97 + i)}x" for i in range(24)]
    root = ingest(db, " ".join(names[:10]))
    ingest(db, " ".join(names[1:11]))
    [row] = rows(db, "select memory_id from memories where root_id is not null")
    found = ingest(db, " ".join(names[2:12]))
    assert (found.action, found.method, found.similarity) == ("escalated", "lexical", pytest.approx(8 / 12))
    assert told(found, root.memory_id) == {
        "memory_id": str(root.memory_id), "jaccard": pytest.approx(8 / 12), "guard": [],
        "jaccard_matched_id": str(row["memory_id"]), "matched_jaccard": pytest.approx(9 / 11),
    }  # fmt: skip


def test_the_result_always_names_its_memory(db: DB) -> None:
    """Below the similarity that is reported, by a score, by words, and where nothing was compared at all."""
    model(db)
    set_columns(db, "policies", "default", similar_threshold=0.99)
    first = ingest(db, "User likes tea", **angle(0))
    merged = ingest(db, "User enjoys tea", **angle(15))
    asked = ingest(db, "User loves tea", **angle(-28))
    assert [merged.action, asked.action] == ["merged", "escalated"]
    assert [e["memory_id"] for e in merged.similar] == [str(first.memory_id)]
    assert [e["memory_id"] for e in asked.similar] == [str(first.memory_id)]
    policy(db, "words", preset="robotics", on_ambiguous="review")
    set_columns(db, "policies", "words", similar_threshold=1)
    words = "gripper closes slowly around fragile porcelain cups with force"
    first = ingest(db, f"{words} 12N", bucket_id="words")
    merged = ingest(db, f"{words} 12N exactly", bucket_id="words")
    asked = ingest(db, f"{words} 14N", bucket_id="words")
    assert [merged.action, asked.action] == ["merged", "escalated"]
    assert merged.method == asked.method == "lexical"
    assert [e["memory_id"] for e in merged.similar] == [str(first.memory_id)]
    assert [e["memory_id"] for e in asked.similar] == [str(first.memory_id)]
    db.execute("select set_predicate('lives_in', 'acme', conflict => 'review')")
    slot = {"subject": "Ann", "predicate": "lives_in", "bucket_id": "slots"}
    berlin = ingest(db, "Ann lives in Berlin", object="Berlin", **slot)
    lyon = ingest(db, "Ann lives in Lyon", object="Lyon", **slot)
    assert (lyon.action, lyon.similar) == ("escalated", [{"memory_id": str(berlin.memory_id)}])
    assert ingest(db, "Ann lives in Berlin", object="Berlin", **slot).similar is None


def test_an_escalation_by_a_score_names_its_neighbour(db: DB) -> None:
    model(db)
    db.execute(
        "create function memfold_internal._score_of_a_test(features double precision[]) returns double precision"
        " language sql immutable strict return 0.5;"
        " update memfold.embedding_models set score_function = '_score_of_a_test', candidate_threshold = 0.5,"
        " score_merge_threshold = 0.9, score_judge_threshold = 0.4"
    )
    first = ingest(db, "User likes tea", **angle(0))
    asked = ingest(db, "User enjoys tea", **angle(50))
    assert (asked.action, asked.method) == ("escalated", "score")
    assert asked.similar == [{"memory_id": str(first.memory_id), "similarity": cosine(50), "guard": []}]
    batch = [
        {
            "content": "User loves tea",
            "embedding": json.loads(angle(-50)["embedding"]),
            "embedding_model": "m",
        }
    ]
    [done] = rows(db, "select action, \"similar\" from ingest_memories(%s, 'acme')", json.dumps(batch))
    assert (done["action"], [e["memory_id"] for e in done["similar"]]) == (
        "escalated",
        [str(first.memory_id)],
    )


def test_a_score_merges_by_the_text_that_is_shown(db: DB) -> None:
    """An alias that would merge by its score is a reason to ask."""
    model(db)
    policy(db, guard="off")
    db.execute(
        "create function memfold_internal._score_of_a_test(features double precision[]) returns double precision"
        " language sql immutable strict return features[1];"
        " update memfold.embedding_models set score_function = '_score_of_a_test', candidate_threshold = 0.5,"
        " score_merge_threshold = 0.92, score_judge_threshold = 0.85"
    )
    for (text, degrees), action in zip(NINE, NINE_DECIDED, strict=True):
        found = ingest(db, text, **angle(degrees))
        assert found.action == action
    [reason] = rows(db, "select reason from memory_events where event_id = %s", found.event_id)
    assert reason["reason"] == "score 0.9272"
    check(db)


def test_the_guard_looks_at_the_text_that_is_shown(db: DB) -> None:
    """A person has merged texts that the guard distinguishes; a paraphrase of that alias is still asked about."""
    model(db)
    root = ingest(db, "Ann has 2 cats", **angle(0))
    other = ingest(db, "Ann has 3 cats", **angle(5))
    db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [other.memory_id, root.memory_id])
    found = ingest(db, "Ann keeps 3 cats", **angle(3))
    assert (found.action, event(db, found)["guard"]) == ("escalated", ["numeral: 3 <> 2"])
    assert told(found, root.memory_id)["guard"] == ["numeral: 3 <> 2"]
    # and one for which the guard is clean against the shown text, though not against the alias, merges
    assert ingest(db, "Ann keeps 2 cats", **angle(3)).action == "merged"
    check(db)


# Which memory -------------------------------------------------------------------------------------------------------


def test_the_best_own_text_wins_where_another_alias_is_nearer(db: DB) -> None:
    model(db)
    policy(db, guard="off", neighbours=1)
    crowd = ingest(db, "User likes tea", **angle(0))
    ingest(db, "User enjoys tea", **angle(20))
    best = ingest(db, "User loves tea", **angle(60))
    assert best.action == "inserted"
    # 19 degrees to the alias of the first, 21 to the other's own text
    found = ingest(db, "User adores tea", **angle(39))
    assert (found.action, found.memory_id, found.similarity) == ("merged", best.memory_id, cosine(21))
    assert [e["memory_id"] for e in found.similar] == [str(crowd.memory_id), str(best.memory_id)]
    check(db)


@pytest.mark.parametrize("scope", ["predicate", "bucket"])
def test_aliases_do_not_crowd_out_other_memories(db: DB, scope: str) -> None:
    """Eighty aliases are nearer than the root, and nearer than another memory, whose own text decides."""
    model(db)
    policy(db, guard="off", scope=scope, on_ambiguous="insert")
    root = ingest(db, "User likes tea", subject="U", **angle(0))
    for i in range(80):
        found = ingest(db, f"User likes tea {'very ' * (i + 1)}much", subject="U", **angle(10 + i / 100))
        assert (found.action, found.memory_id) == ("merged", root.memory_id)
    near = ingest(db, "User is fond of tea", subject="U", **angle(21))
    assert (near.action, near.memory_id) == ("merged", root.memory_id)
    assert near.similarity == cosine(21)
    # far from the root, near to its aliases; the other memory is beyond all of them
    other = ingest(db, "User drinks tea", subject="U", **angle(54))
    assert other.action == "inserted"
    found = ingest(db, "User sips tea", subject="U", **angle(32))
    assert (found.action, found.memory_id, found.similarity) == ("merged", other.memory_id, cosine(22))
    [named] = rows(
        db, "select count(*) as n from find_similar(%s, 'm', 'acme', 'default', 0.9)", angle(32)["embedding"]
    )
    assert named["n"] == 2
    check(db)


def test_aliases_do_not_crowd_out_other_memories_by_words(db: DB) -> None:
    """Eight aliases of another memory share more words; five (lexical_neighbours) are looked at."""
    db.execute("select set_policy('acme', preset => 'robotics', guard => 'off')")
    names = [f"w{chr(97 + i)}x" for i in range(10)]
    crowd = ingest(db, " ".join([*names[1:], "za", "zb", "zc"]))
    for i in range(8):
        found = ingest(db, " ".join([*names, "za", f"e{chr(97 + i)}y"]))
        assert (found.action, found.similarity) == ("merged", pytest.approx(10 / 14))
    best = ingest(db, " ".join(names[:9]))
    assert (best.action, told(best, crowd.memory_id)["matched_jaccard"]) == (
        "inserted",
        pytest.approx(9 / 12),
    )
    found = ingest(db, " ".join(names))
    assert (found.action, found.memory_id, found.similarity) == (
        "merged",
        best.memory_id,
        pytest.approx(9 / 10),
    )
    assert told(found, crowd.memory_id)["jaccard"] == pytest.approx(9 / 13)
    check(db)


def test_a_root_older_than_the_newest_is_found_through_its_alias(db: DB) -> None:
    """Its own vector is looked up directly, not only among the newest."""
    model(db)
    policy(db, guard="off")
    root = ingest(db, "User likes tea", **angle(0))
    ingest(db, "User enjoys tea", **angle(10))
    for i in range(5):
        ingest(db, f"User plays {'chess ' * (i + 1)}", **angle(120 + 40 * i))
    [near] = rows(
        db,
        "select root_id, similarity, matched_similarity from memfold_internal._knn_dedup('acme', 'default',"
        " memfold_internal._scope_key('default', 'fact', null, null),"
        " memfold_internal._unit(%s::vector), 'm', 6, 20, 0.8, null, null, null)",
        angle(5)["embedding"],
    )
    assert near == {"root_id": root.memory_id, "similarity": cosine(5), "matched_similarity": cosine(5)}


def test_a_session_counts_memories_too(db: DB) -> None:
    """The aliases of one memory do not take the places of the session's others."""
    model(db)
    policy(db, guard="off", neighbours=1, on_ambiguous="insert")
    set_columns(db, "policies", "default", session_neighbours=3)
    crowd = ingest(db, "User likes tea", **angle(0))
    for i in range(6):
        ingest(db, f"User likes tea {'very ' * (i + 1)}much", **angle(20 + i / 100))
    mine = ingest(db, "User drinks tea", session_id="s", **angle(58))
    decoy = ingest(db, "User sips tea", **angle(-130))
    assert [crowd.action, mine.action, decoy.action] == ["inserted"] * 3
    found = ingest(db, "User gulps tea", session_id="s", **angle(38))
    assert (found.action, found.memory_id) == ("merged", mine.memory_id)
    check(db)


@pytest.mark.parametrize(
    ("root", "alias", "compared"), [("s", "t", True), ("t", "s", True), ("s", "s", True), ("t", "t", False)]
)
def test_a_memory_is_of_the_sessions_of_its_texts(db: DB, root: str, alias: str, compared: bool) -> None:
    """Beyond the nearest, it is compared if its own text or the one that matched is of the candidate's session."""
    model(db)
    policy(db, guard="off", neighbours=1, on_ambiguous="insert")
    set_columns(db, "policies", "default", session_neighbours=3)
    near = ingest(db, "User likes tea", **angle(0))
    mine = ingest(db, "User drinks tea", session_id=root, **angle(30))
    assert ingest(db, "User sips tea", session_id=alias, **angle(29)).memory_id == mine.memory_id
    found = ingest(db, "User gulps tea", function="preview_memory", session_id="s", **angle(10))
    expected = [near, mine] if compared else [near]
    assert [entry["memory_id"] for entry in found.similar] == [str(one.memory_id) for one in expected]


def test_without_a_vector_of_its_own_a_root_is_asked_about(db: DB) -> None:
    model(db)
    root = ingest(db, "User likes tea")
    alias = ingest(db, "User enjoys tea", subject="elsewhere", **angle(0))
    db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [alias.memory_id, root.memory_id])
    slot = {"subject": "elsewhere"}
    found = ingest(db, "User loves tea", **slot, **angle(3))
    assert (found.action, found.method, found.similarity) == ("escalated", "vector", None)
    assert told(found, root.memory_id) == {
        "memory_id": str(root.memory_id), "guard": [],
        "matched_id": str(alias.memory_id), "matched_similarity": cosine(3),
    }  # fmt: skip
    [asked] = rows(db, "select similarity, status from judgements where other_id = %s", root.memory_id)
    assert asked == {"similarity": None, "status": "open"}
    assert counters(db, root.memory_id)["observations"] == 2
    # a judged paraphrase stays a tier-1 hit on its exact text
    assert ingest(db, "User enjoys tea", **slot).method == "alias"
    check(db)


def test_search_reports_both_similarities(db: DB) -> None:
    """It ranks by the nearest text of a memory; the similarity is that of the text it shows."""
    model(db)
    root = ingest(db, "User likes tea", **angle(0))
    ingest(db, "User enjoys tea", **angle(20))
    [row] = rows(db, "select memory_id from memories where root_id is not null")
    other = ingest(db, "User plays chess", **angle(60))
    found = rows(db, "select * from search_memories(%s, 'm', 'acme', 'default')", angle(40)["embedding"])
    assert [(f["memory_id"], f["similarity"], f["matched_id"], f["matched_similarity"]) for f in found] == [
        (root.memory_id, cosine(40), row["memory_id"], cosine(20)),
        (other.memory_id, cosine(20), other.memory_id, cosine(20)),
    ]
    near = rows(db, "select * from find_similar(%s, 'm', 'acme', 'default', 0.9)", angle(40)["embedding"])
    assert near == [
        {
            "memory_id": root.memory_id, "matched_id": row["memory_id"], "similarity": cosine(40),
            "content": "User likes tea", "matched_similarity": cosine(20), "matched_content": "User enjoys tea",
            "complete": True,
        },
        {
            "memory_id": other.memory_id, "matched_id": other.memory_id, "similarity": cosine(20),
            "content": "User plays chess", "matched_similarity": cosine(20), "matched_content": "User plays chess",
            "complete": True,
        },
    ]  # fmt: skip


def test_no_more_are_found_than_were_asked_for(db: DB) -> None:
    """The nearest memory by any text and the nearest by its own text differ: the nearer one counts."""
    model(db)
    far = ingest(db, "User likes tea", **angle(60))
    alias = ingest(db, "User enjoys tea", subject="elsewhere", **angle(0))
    db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [alias.memory_id, far.memory_id])
    near = ingest(db, "User plays chess", **angle(30))
    query = "select memory_id from find_similar(%s, 'm', 'acme', 'default', 0.1, max_results => %s)"
    for most in (1, 2, 3):
        found = [row["memory_id"] for row in rows(db, query, angle(0)["embedding"], most)]
        assert found == [far.memory_id, near.memory_id][:most]


# Random walks -------------------------------------------------------------------------------------------------------

Vector = tuple[float, ...]


def turned(rng: random.Random, start: Vector) -> Vector:
    """A unit vector at 2 to 35 degrees to another one, in any direction."""
    other = [rng.gauss(0, 1) for _ in start]
    along = sum(a * b for a, b in zip(start, other, strict=True))
    aside = [b - along * a for a, b in zip(start, other, strict=True)]
    norm = math.sqrt(sum(x * x for x in aside))
    by = math.radians(rng.uniform(2, 35))
    return tuple(a * math.cos(by) + x / norm * math.sin(by) for a, x in zip(start, aside, strict=True))


def vector_walk(rng: random.Random) -> list[tuple[str, Vector]]:
    walk = [("walk a", (1.0, 0.0, 0.0, 0.0))]
    for i in range(1, STEPS):
        start = rng.choice(walk[-3:]) if rng.random() < 0.8 else rng.choice(walk)
        walk.append((f"walk {'abcdefghij'[i % 10] * (i // 10 + 1)}", turned(rng, start[1])))
    return walk


def word_walk(rng: random.Random) -> list[tuple[str, None]]:
    fresh = iter(f"{a}{b}q" for a in "bcdfghjklmnpqrst" for b in "abcdefghijklmnopqrstuvwxyz")
    walk = [[next(fresh) for _ in range(10)]]
    for _ in range(1, STEPS):
        words = list(rng.choice(walk[-3:]) if rng.random() < 0.8 else rng.choice(walk))
        for place in rng.sample(range(10), rng.choice([1, 1, 2])):
            words[place] = next(fresh)
        walk.append(words)
    return [(" ".join(words), None) for words in walk]


def similarity(a: tuple[str, Vector | None], b: tuple[str, Vector | None]) -> float:
    if a[1] is not None and b[1] is not None:
        return sum(x * y for x, y in zip(a[1], b[1], strict=True))
    one, other = set(a[0].split()), set(b[0].split())
    return len(one & other) / len(one | other)


KINDS = {
    "vector": "merge_threshold => 0.92, judge_threshold => 0.85",
    "vector, kept": "merge_threshold => 0.92, judge_threshold => 0.85, on_ambiguous => 'insert', neighbours => 3",
    "vector, replaced": "preset => 'replace_newer'",
    "words": "preset => 'robotics'",
    "words, replaced": "preset => 'robotics', on_merge => 'replace'",
}
THRESHOLDS = {
    "vector": 0.92,
    "vector, kept": 0.92,
    "vector, replaced": 0.95,
    "words": 0.7,
    "words, replaced": 0.7,
}
HOW = ("single", "batch", "late")


@pytest.mark.one_server
@pytest.mark.parametrize("kind", KINDS)
def test_random_walks(db: DB, kind: str) -> None:
    """However texts drift, nothing merges automatically unless the shown text itself is as near as the policy demands."""
    model(db)
    rng = random.Random(SEED)
    merged = escalated = 0
    for number in range(WALKS):
        bucket = f"{kind} {number}"
        db.execute(f"select set_policy('acme', %s, {KINDS[kind]}, guard => 'off')".encode(), [bucket])
        walk = word_walk(rng) if kind.startswith("words") else vector_walk(rng)
        how = HOW[number % (2 if kind.startswith("words") else 3)]
        texts = dict(zip((text for text, _ in walk), walk, strict=True))
        candidates = [
            {"content": text, "bucket_id": bucket}
            | ({"embedding": list(v), "embedding_model": "m"} if v and how != "late" else {})
            for text, v in walk
        ]
        if how == "batch":
            db.execute("select ingest_memories(%s, 'acme')", [json.dumps(candidates)])
        else:
            for candidate, (_, v) in zip(candidates, walk, strict=True):
                given = {k: json.dumps(x) if k == "embedding" else x for k, x in candidate.items()}
                found = ingest(db, **given)
                if how == "late":
                    db.execute(
                        "select attach_embedding(%s, %s, 'm', 'acme')",
                        [found.memory_id, json.dumps(list(v or ()))],
                    )
        shown: set[str] = set()
        for row in rows(
            db,
            "select e.action, e.tier, e.similarity, m.content, t.content as target from memory_events as e"
            " join memories as m using (tenant_id, memory_id)"
            " left join memories as t on t.tenant_id = e.tenant_id and t.memory_id = e.target_id"
            " where e.bucket_id = %s order by e.event_id",
            bucket,
        ):
            text, target = row["content"], row["target"]
            if row["action"] in ("merged", "replaced"):
                merged += 1
                own = similarity(texts[text], texts[target])
                assert target in shown, (number, how, text, target)
                assert own >= THRESHOLDS[kind] - 1e-6, (number, how, text, target, own)
                assert row["similarity"] == pytest.approx(own, abs=2e-6)
                shown -= {text, target}
                shown.add(text if row["action"] == "replaced" else target)
            else:
                escalated += row["action"] == "escalated"
                shown.add(text)
        active = rows(db, "select content from memories where bucket_id = %s and status = 'active'", bucket)
        assert {row["content"] for row in active} == shown
    assert merged > 5 * WALKS
    assert escalated > 0 or kind not in ("vector", "vector, replaced")
    check(db)
