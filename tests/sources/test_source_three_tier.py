"""Document 000, three tiers of deduplication, replayed with its numbers (where those were wrong: corrected).

Vectors are made to have the cosine that the document states.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.support.judging import answer
from tests.support.memories import Result, check, confidence, counters, ingest, inside, statuses, vector
from tests.support.queries import DB

# The tests of the functions cover each server.
pytestmark = pytest.mark.one_server


@pytest.fixture
def three_tier(db: DB) -> DB:
    """Above 0.92 merges, from 0.85 on a judge, below keeps; 0.75 is the judge's floor."""
    db.execute("select register_embedding_model('m', 4, 0.92, 0.85)")
    db.execute("select set_policy('acme', preset => 'three_tier')")
    return db


def test_three_inputs_of_one_fact(three_tier: DB) -> None:
    """Case and white space fold; the trailing period folds in prose, and stays in the document's own rule (flat)."""
    for bucket, canonicalizer, folds in (("prose", "prose", True), ("flat", "flat", False)):
        three_tier.execute("select set_policy('acme', %s, canonicalizer => %s)", [bucket, canonicalizer])
        first = ingest(three_tier, "User works at Volkswagen AG", bucket_id=bucket)
        second = ingest(three_tier, "  user  WORKS at  Volkswagen AG ", bucket_id=bucket)
        third = ingest(three_tier, "User works at Volkswagen AG.", bucket_id=bucket)
        assert (second.action, second.memory_id) == ("merged", first.memory_id)
        assert (third.memory_id == first.memory_id) is folds
    assert three_tier.execute(
        "select canonicalize('  user  WORKS at  Volkswagen AG ', 'flat/1')"
    ).fetchone() == ("userworksatvolkswagenag",)
    assert three_tier.execute("select canonicalize('User works at Volkswagen AG.', 'flat/1')").fetchone() == (
        "userworksatvolkswagenag.",
    )
    check(three_tier)


def test_what_the_key_keeps_apart(three_tier: DB) -> None:
    """A fact and a preference of the same text, and two people, are different memories."""
    first = ingest(three_tier, "User likes Python")
    assert ingest(three_tier, "User likes Python", memory_type="preference").action == "inserted"
    assert ingest(three_tier, "User likes Python", bucket_id="user b").action == "inserted"
    for subject in ("Georgian", "Priya"):
        assert ingest(three_tier, "runs Datakynd", subject=subject, predicate="runs").action == "inserted"
    # the same grammar about another person never enters the comparison, at whatever cosine
    ingest(
        three_tier, "Georgian works at Volkswagen", subject="Georgian", predicate="employer", **vector(1.0)
    )
    other = ingest(three_tier, "Priya works at Google", subject="Priya", predicate="employer", **vector(0.86))
    assert (other.action, other.similar) == ("inserted", None)
    assert ingest(three_tier, "User likes Python").memory_id == first.memory_id
    check(three_tier)


def test_668_copies(three_tier: DB) -> None:
    """The counter ends at 668 observations; the same turn 668 times is not new evidence, so confidence does not
    change."""
    three_tier.execute(
        "select count(ingest_memory('User prefers Vim', 'acme', source_turn_ids => '{turn 1}'))"
        " from generate_series(1, 667)"
    )
    last = ingest(three_tier, "User prefers Vim", source_turn_ids=["turn 1"])
    assert confidence(three_tier, last) == (667, 0, pytest.approx(0.4))
    assert three_tier.execute("select count(*) from memories").fetchone() == (1,)
    assert three_tier.execute("select repetition_count from runaway_memories").fetchall() == [(667,)]
    check(three_tier)


AT_0_93 = [
    ("Georgian runs Datakynd, a freelance consultancy", "Georgian owns a freelance business named Datakynd"),
    ("User prefers dark mode", "User likes dark themes"),
    ("User prefers dark mode", "User always uses dark themes"),
]
AT_0_88 = [
    ("Georgian works at Volkswagen", "Georgian is employed by VW"),
    ("User writes Python", "User's primary language is Python"),
    ("The meeting is Monday at 3pm", "The standup is scheduled for Monday"),
]
AT_0_84 = [
    ("Georgian works at Volkswagen", "Georgian's team at Volkswagen"),
    ("User likes Python", "User's team uses Python"),
    ("The Berlin office is large", "The Munich office is large"),
]


def test_the_three_zones(three_tier: DB) -> None:
    """0.93 merges by itself, 0.88 goes to the judge, 0.84 is kept and costs nothing."""
    zones = (
        ("zone 0.93", 0.93, AT_0_93, "merged"),
        ("zone 0.88", 0.88, AT_0_88, "escalated"),
        ("zone 0.84", 0.84, AT_0_84, "inserted"),
    )
    for name, cosine, pairs, action in zones:
        for i, (old, new) in enumerate(pairs):
            first = ingest(three_tier, old, bucket_id=f"{name} {i}", **vector(1.0))
            second = ingest(three_tier, new, bucket_id=f"{name} {i}", **vector(cosine))
            assert second.action == action, (old, new)
            if action == "merged":
                assert (second.memory_id, second.similarity) == (first.memory_id, pytest.approx(cosine))
    assert three_tier.execute("select count(*) from judgements").fetchone() == (len(AT_0_88),)
    # "Alice reports to Bob" and "Alice is Bob's direct report" is the same at 0.93: names in the same order
    ingest(three_tier, "Alice reports to Bob", bucket_id="reports", **vector(1.0))
    turned = ingest(three_tier, "Bob reports to Alice", bucket_id="reports", **vector(0.986))
    assert turned.action == "escalated"  # reversed it is another fact, at a higher cosine
    check(three_tier)


@pytest.mark.parametrize(
    ("cosine", "action"), [(0.9201, "merged"), (0.92, "escalated"), (0.85, "escalated"), (0.8499, "inserted")]
)
def test_the_thresholds_themselves(three_tier: DB, cosine: float, action: str) -> None:
    """sim > 0.92 merges, 0.85 <= sim <= 0.92 escalates, below keeps. At the edges: the very number in the vector."""
    ingest(three_tier, "User uses Vim", embedding="[1,0,0,0]", embedding_model="m")
    below = 1e-6 if cosine == 0.92 else 0.0
    assert ingest(three_tier, "User works with Vim", **vector(inside(cosine, 0.85) - below)).action == action


def test_only_the_best_neighbour_is_judged(three_tier: DB) -> None:
    """Three memories in the band, one call."""
    for i, text in enumerate(["User likes tea", "User enjoys tea", "User drinks tea"]):
        values = [0.0] * 4
        values[0], values[i + 1] = math.sqrt(0.79), math.sqrt(0.21)
        ingest(three_tier, text, embedding=json.dumps(values), embedding_model="m")
    assert three_tier.execute("select count(*) from judgements").fetchone() == (0,)
    near = [0.9991, -0.03, 0.03, 0]
    asked = ingest(three_tier, "User is fond of tea", embedding=json.dumps(near), embedding_model="m")
    assert asked.action == "escalated"
    assert [s["similarity"] for s in asked.similar] == pytest.approx([0.902, 0.888, 0.874], abs=0.001)
    assert three_tier.execute(
        "select content from memories where memory_id = %s", [asked.similar[0]["memory_id"]]
    ).fetchone() == ("User enjoys tea",)
    assert three_tier.execute("select count(*) from judgements").fetchone() == (1,)


@pytest.mark.parametrize(("sure", "verdict", "expected"), [
    (0.75, "duplicate", ["active", "merged"]),
    (0.74, "unsure", ["active", "active"]),
])  # fmt: skip
def test_the_datakynd_pair(three_tier: DB, sure: float, verdict: str, expected: list[str]) -> None:
    """The judge is asked "same?": from 0.75 on the candidate is merged, at 0.74 both are kept."""
    about = {"subject": "Georgian", "predicate": "business"}
    old = ingest(three_tier, "Georgian runs Datakynd, a freelance consultancy", **about, **vector(1.0),
                 source_turn_ids=["t1"], source_confidence=0.5)  # fmt: skip
    new = ingest(three_tier, "Georgian owns a freelance business named Datakynd", **about, **vector(0.9),
                 source_turn_ids=["t2"], source_confidence=0.95)  # fmt: skip
    assert new.action == "escalated"
    found = answer(three_tier, "duplicate", sure, reason="same fact, other words")
    assert found[:2] == ("done", verdict)
    assert statuses(three_tier, old, new) == expected
    if verdict == "duplicate":
        # nothing is lost: one repetition, both turns, the stronger source
        assert found[2:4] == ("merged", old.memory_id)
        assert confidence(three_tier, old) == (
            1,
            1,
            pytest.approx(0.5 * 0.95 + 0.3 * 0.5 + 0.2 * 0.409, abs=1e-4),
        )
        assert three_tier.execute("select count(*) from memory_sources").fetchone() == (2,)
    check(three_tier)


@pytest.mark.parametrize("cardinality", ["one", "many"])
def test_datakynd_was_sold(three_tier: DB, cardinality: str) -> None:
    """Not the same (0.91): a transition. The judge calls it a contradiction, and the old fact becomes history."""
    three_tier.execute("select set_predicate('business', 'acme', cardinality => %s)", [cardinality])
    about = {"subject": "User", "predicate": "business"}
    old = ingest(three_tier, "User runs Datakynd", **about, observed_at="2025-03-01", **vector(1.0))
    sold = ingest(three_tier, "User recently sold Datakynd and started a new consultancy", **about,
                  observed_at="2026-03-01", **vector(0.87))  # fmt: skip
    assert (sold.action, sold.similarity) == ("escalated", pytest.approx(0.87))
    reason = "Memory B describes a transition that Memory A does not mention"
    found = answer(three_tier, "contradiction", 0.91, reason=reason)
    assert found[:4] == ("done", "contradiction", "superseded", sold.memory_id)
    assert statuses(three_tier, old, sold) == ["superseded", "active"]
    for as_of, content in (("2025-06-01", old), ("2026-06-01", sold)):
        assert three_tier.execute(
            "select memory_id from current_memories('acme', as_of => %s)", [as_of]
        ).fetchall() == [(content.memory_id,)]
    # kept for audit
    assert three_tier.execute("select verdict, confidence, reason from judgements").fetchall() == [
        ("contradiction", 0.91, reason)
    ]
    check(three_tier)


def test_merge_and_supersede(three_tier: DB) -> None:
    """The same claim merges at 0.93; another value of the same predicate supersedes, whatever the cosine."""
    likes = {"subject": "User", "predicate": "theme"}
    old = ingest(three_tier, "User prefers dark mode", **likes, **vector(1.0))
    new = ingest(three_tier, "User always uses dark themes", **likes, **vector(0.93))
    assert (new.action, new.memory_id) == ("merged", old.memory_id)
    assert counters(three_tier, old.memory_id)["observations"] == 2
    three_tier.execute("select set_predicate('employer', 'acme')")
    works = {"subject": "User", "predicate": "employer"}
    january = ingest(three_tier, "User works at Volkswagen", **works, object="Volkswagen", observed_at="2026-01-10",
                     **vector(1.0))  # fmt: skip
    july = ingest(three_tier, "User now works at Stripe", **works, object="Stripe", observed_at="2026-07-10",
                  **vector(0.95))  # fmt: skip
    assert (july.action, july.superseded_id) == ("superseded", january.memory_id)
    assert statuses(three_tier, january, july) == ["superseded", "active"]
    editor = {"subject": "User", "predicate": "editor"}
    three_tier.execute("select set_predicate('editor', 'acme')")
    vim = ingest(three_tier, "User uses Vim", **editor, object="Vim", **vector(1.0))
    helix = ingest(three_tier, "User switched to Helix", **editor, object="Helix", **vector(0.7))
    assert (helix.action, helix.superseded_id) == ("superseded", vim.memory_id)
    check(three_tier)


def r(n: int) -> float:
    return 1 - 1 / (1 + math.log(1 + n))


def test_the_repetition_counter(three_tier: DB) -> None:
    """r(n) by its formula: 0.409, 0.523, 0.581, 0.642 (the document prints 0.307, 0.478, 0.535, 0.625)."""
    assert [round(r(n), 3) for n in (0, 1, 2, 3, 5)] == [0, 0.409, 0.523, 0.581, 0.642]
    expected = {0: 0.0, 1: 0.0819, 2: 0.1047, 3: 0.1162, 4: 0.1234, 5: 0.1284}
    last = ingest(
        three_tier, "User likes Vim", source_turn_ids=["0"], source_confidence=0.5, extractor_confidence=0.5
    )
    for n, boost in expected.items():
        if n:
            last = ingest(three_tier, "User likes Vim", source_turn_ids=[str(n)])
        assert confidence(three_tier, last) == (n, n, pytest.approx(0.4 + boost, abs=1e-4))
    # three independent merges carry a borderline memory over the retrieval floor of 0.5
    assert 0.4 + expected[3] > 0.5
    # the same turn again (a retried worker) counts as a repetition, and is no evidence
    again = ingest(three_tier, "User likes Vim", source_turn_ids=["3"])
    assert confidence(three_tier, again) == (6, 5, pytest.approx(0.4 + expected[5], abs=1e-4))
    check(three_tier)


def test_the_stronger_source_is_adopted(three_tier: DB) -> None:
    """Weak inference (0.50), then the user's own words (0.95), then a weak one again."""
    for source, expected in ((0.5, 0.5), (0.95, 0.95), (0.3, 0.95)):
        last = ingest(three_tier, "User likes Vim", source_confidence=source)
        assert counters(three_tier, last.memory_id)["source_confidence"] == expected


def vim(db: DB, n: int, **more: Any) -> list[Result]:
    """Mentions that each survived write-time dedup: the same predicate never came twice."""
    return [
        ingest(db, f"User mentions Vim in month {chr(97 + i)}", memory_type="preference", subject="User",
               predicate=f"editor in month {i}", source_turn_ids=[str(i)], observed_at=f"2025-{i % 12 + 1:02}-01",
               **vector(0.9 + i / 1000), **more) for i in range(n)
    ]  # fmt: skip


def test_eighteen_months_of_vim(three_tier: DB) -> None:
    """18 mentions, folded by a consolidation and its judge: repetition_count 17, n 17 (the first is not a repetition)."""
    memories = vim(three_tier, 18)
    assert [m.action for m in memories] == ["inserted"] * 18
    dry = three_tier.execute("select run_id, content, action from consolidate('acme', 'default')").fetchall()
    assert len(dry) == 16
    assert three_tier.execute("select count(*) from judgements").fetchone() == (0,)
    # two clusters, because a question is about ten at most; then the two that are left: three calls, not seventeen
    for sizes in ([10, 8], [2], []):
        three_tier.execute("select * from consolidate('acme', 'default', dry_run => false)")
        waiting = three_tier.execute(
            "select judgement_id, coalesce(cardinality(member_ids), 2) from judgements where status = 'open'"
            " order by 2 desc"
        ).fetchall()
        assert [size for _, size in waiting] == sizes
        for judgement_id, _ in waiting:
            three_tier.execute(
                "select resolve_judgement(%s, 'duplicate', confidence => 0.9, model => 'a judge', tenant_id => 'acme')",
                [judgement_id],
            )
    assert confidence(three_tier, memories[0]) == (17, 17, pytest.approx(0.4 + 0.2 * r(17)))
    assert three_tier.execute("select count(*) from current_memories('acme')").fetchone() == (1,)
    check(three_tier)


def test_predicate_drift(three_tier: DB) -> None:
    """Write time never compares them (other predicates); consolidation does, by subject and type, from 0.75 on."""
    about = {"subject": "Georgian"}
    one = ingest(
        three_tier, "Georgian's employer is Volkswagen", predicate="employer", **about, **vector(1.0)
    )
    two = ingest(three_tier, "Georgian works for the Volkswagen group", predicate="employer_of_record", **about,
                 **vector(0.8))  # fmt: skip
    ingest(three_tier, "Priya works at Google", subject="Priya", predicate="employer", **vector(0.79))
    ingest(three_tier, "Georgian likes Volkswagen", memory_type="preference", **about, **vector(0.78))
    assert two.action == "inserted"
    plan = three_tier.execute(
        "select memory_id, representative_id, similarity from consolidate('acme', 'default')"
    ).fetchall()
    assert plan == [(two.memory_id, one.memory_id, pytest.approx(0.8))]


@pytest.mark.parametrize(("cosine", "proposed"), [(0.7501, 1), (0.75, 1), (0.7499, 0)])
def test_the_consolidation_threshold(three_tier: DB, cosine: float, proposed: int) -> None:
    ingest(three_tier, "User uses Vim", subject="User", predicate="uses", **vector(1.0))
    ingest(
        three_tier,
        "User works with Vim",
        subject="User",
        predicate="works with",
        **vector(inside(cosine, 0.75)),
    )
    found = three_tier.execute("select count(*) from consolidate('acme', 'default')").fetchone()
    assert found == (proposed,)


def test_a_person_reviews_the_proposals(three_tier: DB) -> None:
    """Proposed to a person, approved in one call, and undone in one call."""
    memories = vim(three_tier, 4)
    run = three_tier.execute(
        "select distinct run_id from consolidate('acme', 'default', approval => 'person', dry_run => false)"
    ).fetchone()
    assert run is not None
    three_tier.execute("select set_config('memfold.tenant_id', 'acme', false)")
    assert three_tier.execute("select approve_run(%s)", run).fetchone() == (0,)
    assert statuses(three_tier, *memories) == ["active", "merged", "merged", "merged"]
    assert confidence(three_tier, memories[0])[:2] == (3, 3)
    three_tier.execute("select undo_run(%s)", run)
    assert statuses(three_tier, *memories) == ["active"] * 4
    check(three_tier)


def test_the_retrieval_floor(three_tier: DB) -> None:
    """min_confidence 0.5: three independent merges carry a borderline memory over it."""
    three_tier.execute("select set_options('acme', min_confidence => 0.5)")
    query = json.dumps([1, 0, 0, 0])
    for n in range(4):
        ingest(three_tier, "User likes Vim", source_turn_ids=[str(n)], **vector(1.0))
        shown = three_tier.execute(
            "select count(*) from search_memories(%s, 'm', 'acme', 'default')", [query]
        ).fetchone()
        # 0.4, 0.482, 0.505, 0.516
        assert shown == (int(n >= 2),)
