"""Document 003, two thresholds and a newer text that replaces, replayed with its numbers.

Vectors are made to have the cosine that the document states.
"""

from __future__ import annotations

import json
import logging
import math
from typing import Any

import pytest

from memfold import Answer, Embedder, Memfold, Question
from tests.support.judging import answer
from tests.support.maintenance import policy, set_columns, store, storing
from tests.support.memories import Result, check, counters, ingest, inside, status, statuses, vector
from tests.support.queries import DB

# The tests of the functions cover each server.
pytestmark = pytest.mark.one_server


@pytest.fixture
def replace_newer(db: DB) -> DB:
    """From 0.95 on the newer text replaces, from 0.90 on a judge writes one text, below both are kept."""
    db.execute("select register_embedding_model('m', 4, 0.92, 0.85)")
    db.execute("select set_policy('acme', preset => 'replace_newer')")
    return db


def pair(db: DB, cosine: float, older: str = "Alice has a cat", newer: str = "Alice owns some cat", **more: Any) -> tuple[
    Result, Result
]:  # fmt: skip
    return ingest(db, older, **vector(1.0), **more), ingest(db, newer, **vector(cosine), **more)


def texts(db: DB) -> set[str]:
    """The current memories, as search would show them."""
    return {row[0] for row in db.execute("select content from current_memories('acme')").fetchall()}


@pytest.mark.parametrize(
    ("cosine", "action"),
    [
        (0.97, "replaced"), (0.951, "replaced"), (0.95, "replaced"), (0.9499, "escalated"),
        (0.93, "escalated"), (0.9001, "escalated"), (0.9, "escalated"), (0.8999, "inserted"), (0.5, "inserted"),
    ],
)  # fmt: skip
def test_the_thresholds(replace_newer: DB, cosine: float, action: str) -> None:
    """Exactly at a threshold counts as above it."""
    older, newer = pair(replace_newer, inside(cosine, 0.95, 0.9))
    assert newer.action == action
    if action == "replaced":
        assert (newer.tier, newer.method) == (2, "vector")
        assert statuses(replace_newer, older, newer) == ["merged", "active"]
        assert texts(replace_newer) == {"Alice owns some cat"}
        # never deleted: its text keeps answering, and leads to what took its place
        again = ingest(replace_newer, "Alice has a cat")
        assert (again.action, again.tier, again.memory_id) == ("merged", 1, newer.memory_id)
    elif action == "escalated":
        assert replace_newer.execute("select kind from judgements").fetchall() == [("synthesis",)]
        assert len(texts(replace_newer)) == 2
    else:
        assert (newer.judgement_id, len(texts(replace_newer))) == (None, 2)
    check(replace_newer)


def test_what_the_judge_writes(replace_newer: DB) -> None:
    """One text for both; the originals stay as its aliases, and their next arrival asks nobody."""
    older, newer = pair(replace_newer, 0.93, newer="Alice has a tabby named Whiskers")
    merged = "Alice has a tabby cat named Whiskers"
    found = answer(replace_newer, "refinement", 0.9, merged_text=merged)
    assert found[2] == "replaced"
    assert texts(replace_newer) == {merged}
    assert statuses(replace_newer, older, newer) == ["merged", "merged"]
    for text in ("Alice has a cat", "Alice has a tabby named Whiskers", merged):
        assert ingest(replace_newer, text).memory_id == found[3]
    assert replace_newer.execute("select count(*) from judgements").fetchone() == (1,)
    check(replace_newer)


def test_an_empty_text_discards_nothing(replace_newer: DB) -> None:
    """The document discards it and warns; here both memories stay, with the warning."""
    warnings: list[str | None] = []
    replace_newer.add_notice_handler(lambda notice: warnings.append(notice.message_primary))
    pair(replace_newer, 0.93)
    assert answer(replace_newer, "duplicate", 0.9, merged_text="")[2] == "judged"
    assert texts(replace_newer) == {"Alice has a cat", "Alice owns some cat"}
    assert len(warnings) == 1
    check(replace_newer)


def failed(db: DB, judgement_id: Any, times: int) -> list[str]:
    states = []
    for _ in range(times):
        db.execute("update judgements set next_attempt_at = now()")
        db.execute(
            "select * from claim_judgements('w', max_results => 1, lease => '1 minute', tenant_id => 'acme')"
        )
        row = db.execute(
            "select fail_judgement(%s, 'model is away', tenant_id => 'acme')", [judgement_id]
        ).fetchone()
        assert row is not None
        states.append(row[0])
    return states


@pytest.mark.parametrize(("far", "state"), [(0.93, "replaced"), (0.8, "dead")])
def test_a_cluster_that_no_judge_has_seen(replace_newer: DB, far: float, state: str) -> None:
    """The newest replaces the others if each of them is near it, not if some are."""
    storing(replace_newer)
    store(replace_newer, "Alice has a cat", **vector(far))
    store(replace_newer, "Alice owns a cat", **vector(0.95))
    store(replace_newer, "Alice owns some cat", **vector(1.0))
    rules = {"merge_threshold": 0.99, "judge_threshold": 0.9, "on_ambiguous": "synthesise"}
    policy(replace_newer, **rules)
    replace_newer.execute("select consolidate('acme', threshold => 0.75, dry_run => false)")
    ((judgement_id, members),) = replace_newer.execute(
        "select judgement_id, cardinality(member_ids) from judgements where kind = 'synthesis' and status = 'open'"
    ).fetchall()
    assert members == 3
    assert failed(replace_newer, judgement_id, 8)[-1] == state
    check(replace_newer)


def test_a_judge_that_fails_for_good(replace_newer: DB) -> None:
    """Keep the newer, fall back to replacing; the older text is not deleted. Until the last attempt both stay."""
    older, newer = pair(replace_newer, 0.93)
    assert failed(replace_newer, newer.judgement_id, 7) == ["open"] * 7
    assert statuses(replace_newer, older, newer) == ["active", "active"]
    assert failed(replace_newer, newer.judgement_id, 1) == ["replaced"]
    assert statuses(replace_newer, older, newer) == ["merged", "active"]
    event = replace_newer.execute(
        "select event_id, action, tier, method, memory_id, target_id from memory_events where tier = 3"
    ).fetchone()
    assert event is not None
    assert event[1:] == ("replaced", 3, "fallback", newer.memory_id, older.memory_id)
    assert replace_newer.execute("select status, verdict, reason from judgements").fetchone() == (
        "done", None, "the judge failed, the newer text replaces the older: model is away",
    )  # fmt: skip
    check(replace_newer)
    replace_newer.execute("select undo(%s, tenant_id => 'acme')", [event[0]])
    assert statuses(replace_newer, older, newer) == ["active", "active"]
    check(replace_newer)


def test_a_judge_that_never_came_back(replace_newer: DB) -> None:
    """Its worker died eight times: the question is dead, and maintenance decides it by the same rule."""
    older, newer = pair(replace_newer, 0.93)
    for _ in range(9):
        replace_newer.execute(
            "select * from claim_judgements('w', max_results => 1, lease => '1 second', tenant_id => 'acme')"
        )
        replace_newer.execute("update judgements set next_attempt_at = now(), leased_until = now()")
    assert replace_newer.execute("select status from judgements").fetchone() == ("dead",)
    for decided in (1, 0):
        assert replace_newer.execute("select memfold_internal._fall_back_dead('acme')").fetchone() == (
            decided,
        )
    assert statuses(replace_newer, older, newer) == ["merged", "active"]
    check(replace_newer)


def test_a_judge_that_fails_replaces_no_text_that_only_an_alias_is_near_to(replace_newer: DB) -> None:
    """Both stay: the pair was never judged, and the shown text says something else."""
    older, newer = pair(replace_newer, 0.97)
    assert newer.action == "replaced"
    # 14 degrees from the text that is shown, which has an alias on the other side
    near = ingest(replace_newer, "Alice keeps cats", **vector(0.92, axis=2))
    assert (near.action, near.similar[0]["matched_id"]) == ("escalated", str(older.memory_id))
    assert near.similarity < 0.9
    assert failed(replace_newer, near.judgement_id, 8) == ["open"] * 7 + ["dead"]
    assert statuses(replace_newer, newer, near) == ["active", "active"]
    assert replace_newer.execute("select memfold_internal._fall_back_dead('acme')").fetchone() == (0,)
    check(replace_newer)


def test_elsewhere_a_failure_keeps_both(replace_newer: DB) -> None:
    set_columns(replace_newer, "policies", on_judge_failure="keep")
    older, newer = pair(replace_newer, 0.93)
    assert failed(replace_newer, newer.judgement_id, 8) == ["open"] * 7 + ["dead"]
    assert statuses(replace_newer, older, newer) == ["active", "active"]
    assert replace_newer.execute("select memfold_internal._fall_back_dead('acme')").fetchone() == (0,)


def test_metadata_of_the_newest_and_the_largest_intensity(replace_newer: DB) -> None:
    older = ingest(
        replace_newer, "Alice has a cat", **vector(1.0), metadata={"intensity": 0.9, "mood": "happy"}
    )
    newer = ingest(
        replace_newer, "Alice owns some cat", **vector(0.97), metadata={"intensity": 0.4, "place": "home"}
    )
    assert newer.action == "replaced"

    def metadata() -> Any:
        row = replace_newer.execute(
            "select metadata from memories where memory_id = %s", [newer.memory_id]
        ).fetchone()
        assert row is not None
        return row[0]

    assert metadata() == {"intensity": 0.9, "place": "home"}
    # the fast path and a derivation give the same result
    ingest(replace_newer, "Alice owns some cat", metadata={"intensity": 0.95, "mood": "calm"})
    assert metadata() == {"intensity": 0.95, "mood": "calm"}
    ingest(replace_newer, "Alice has a cat", metadata={"intensity": "high"})
    assert metadata() == {"intensity": 0.95}
    check(replace_newer)
    assert older.memory_id != newer.memory_id


def test_an_older_statement_does_not_replace(replace_newer: DB) -> None:
    """Newer is what was observed later, not what arrived later."""
    first = ingest(replace_newer, "Alice has a cat", **vector(1.0), observed_at="2026-03-01")
    late = ingest(replace_newer, "Alice owns some cat", **vector(0.97), observed_at="2026-01-01")
    assert (late.action, late.memory_id) == ("merged", first.memory_id)
    assert texts(replace_newer) == {"Alice has a cat"}
    check(replace_newer)


def test_only_the_closest_is_replaced(replace_newer: DB) -> None:
    """Write-time: a single match. The other stays, for a sweep."""
    far = ingest(
        replace_newer, "Alice keeps a cat", embedding=json.dumps([0.8, 0.6, 0, 0]), embedding_model="m"
    )
    near = ingest(replace_newer, "Alice has a cat", embedding=json.dumps([1, 0, 0, 0]), embedding_model="m")
    newer = ingest(
        replace_newer, "Alice owns some cat", embedding=json.dumps([0.96, 0.28, 0, 0]), embedding_model="m"
    )
    assert [s["similarity"] for s in newer.similar] == [0.96]
    assert newer.action == "replaced"
    assert statuses(replace_newer, far, near, newer) == ["active", "merged", "active"]
    check(replace_newer)


def test_alice_and_bob(replace_newer: DB) -> None:
    """The document compares with the nearest memory of all; here, only with those of the same subject, if one is given."""
    alice = ingest(replace_newer, "Alice has a cat", subject="Alice", **vector(1.0))
    bob = ingest(replace_newer, "Bob has a cat", subject="Bob", **vector(0.96))
    assert (bob.action, bob.similar) == ("inserted", None)
    # without a subject, the guard distinguishes the names
    ingest(replace_newer, "Alice has a cat", **vector(1.0))
    assert ingest(replace_newer, "Bob has a cat", **vector(0.96)).action == "escalated"
    assert status(replace_newer, alice) == "active"
    check(replace_newer)


def test_fail_open(replace_newer: DB) -> None:
    """Without a vector nothing can be compared: the memory is stored, and compared when its vector comes."""
    first = ingest(replace_newer, "Alice has a cat", **vector(1.0))
    second = ingest(replace_newer, "Alice owns some cat")
    assert second.action == "inserted"
    replace_newer.execute("select set_config('memfold.tenant_id', 'acme', false)")
    late = replace_newer.execute(
        "select action, memory_id from attach_embedding(%s, %s, 'm')",
        [second.memory_id, vector(0.97)["embedding"]],
    ).fetchone()
    assert late == ("replaced", second.memory_id)
    assert statuses(replace_newer, first, second) == ["merged", "active"]
    assert counters(replace_newer, second.memory_id)["observations"] == 2
    check(replace_newer)


# Batch --------------------------------------------------------------------------------------------------------------


def fan(db: DB, *degrees: float, bucket_id: str = "default") -> list[Result]:
    """Memories that were stored before there was any dedup, as vectors at these angles."""
    db.execute("select set_policy('acme', %s, merge_threshold => 1, on_ambiguous => 'insert')", [bucket_id])
    made = [
        ingest(db, f"Alice has a cat{', there' * i}", bucket_id=bucket_id, embedding_model="m",
               embedding=json.dumps([math.cos(math.radians(d)), math.sin(math.radians(d)), 0, 0]))
        for i, d in enumerate(degrees)
    ]  # fmt: skip
    assert [m.action for m in made] == ["inserted"] * len(degrees)
    db.execute("select set_policy('acme', %s, preset => 'replace_newer')", [bucket_id])
    return made


def test_transitive_clusters(replace_newer: DB) -> None:
    """A~B and B~C make one cluster, which the document merges whole. Here each is compared with the one that it
    would go into, the newest, and none is merged by a chain.
    """
    # 0 and 16 degrees: 0.961; 16 and 32: 0.961; 0 and 32: 0.848
    a, b, c = fan(replace_newer, 0, 16, 32)
    plan = replace_newer.execute(
        "select cluster, memory_id, representative_id, round(similarity::numeric, 3)::float8, action"
        " from sweep_duplicates('acme', 'default')"
    ).fetchall()
    assert plan == [(1, b.memory_id, c.memory_id, 0.961, "replace")]
    assert len(texts(replace_newer)) == 3  # the dry run reports and does nothing
    for _ in range(2):
        replace_newer.execute("select * from sweep_duplicates('acme', 'default', dry_run => false)")
        assert statuses(replace_newer, a, b, c) == ["active", "merged", "active"]
    assert counters(replace_newer, c.memory_id)["observations"] == 2
    check(replace_newer)


def test_a_cluster_is_merged_whole(replace_newer: DB) -> None:
    memories = fan(replace_newer, 0, 8, 16)  # 0.990, 0.990, 0.961
    replace_newer.execute("select * from sweep_duplicates('acme', 'default', dry_run => false)")
    assert statuses(replace_newer, *memories) == ["merged", "merged", "active"]
    assert counters(replace_newer, memories[2].memory_id)["observations"] == 3
    check(replace_newer)


def test_the_pair_counts(replace_newer: DB) -> None:
    """The document counts pairs at 0.98, 0.95 and 0.90 before it cleans up."""
    fan(replace_newer, 0, 8, 16, 25)  # cosines 0.990, 0.990, 0.988; 0.961, 0.956; 0.906
    assert replace_newer.execute("select threshold, pairs from duplicate_pairs('acme', 'default')").fetchall() == [
        (0.98, 3), (0.95, 5), (0.9, 6),
    ]  # fmt: skip


def test_the_batch_asks_in_between(replace_newer: DB) -> None:
    """0.90 to 0.95: a judge writes one text, oldest to newest; its runs can be undone."""
    a, b = fan(replace_newer, 0, 23)  # 0.921
    run = replace_newer.execute(
        "select run_id, action from sweep_duplicates('acme', 'default', dry_run => false)"
    ).fetchone()
    assert run is not None
    assert run[1] == "ask"
    asked = replace_newer.execute("select content, other_content, kind from open_judgements").fetchone()
    assert asked == ("Alice has a cat, there", "Alice has a cat", "synthesis")
    answer(replace_newer, "duplicate", 0.9, merged_text="Alice has a cat in two parts")
    assert texts(replace_newer) == {"Alice has a cat in two parts"}
    replace_newer.execute("select undo_run(%s, tenant_id => 'acme')", [run[0]])
    assert statuses(replace_newer, a, b) == ["active", "active"]
    assert texts(replace_newer) == {"Alice has a cat", "Alice has a cat, there"}
    check(replace_newer)


class Writer:
    """A judge that writes, or fails."""

    model = "toy"

    def __init__(self, text: str | None) -> None:
        self.text = text

    async def judge(self, question: Question) -> Answer:
        if self.text is None:
            raise RuntimeError("model is away")
        return Answer("refinement", 0.9, merged_text=self.text)


def test_its_three_log_lines(replace_newer: DB, dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """DEDUP_CHECK (debug), DEDUP_MERGE (info), DEDUP_FAIL (warning)."""
    known = {"Alice has a cat": [1.0, 0, 0, 0], "Alice owns a tabby called Whiskers": [0.93, 0.36756, 0, 0]}
    embedder = Embedder(lambda asked: [known[text] for text in asked], "m", 4)
    merged = "Alice has a tabby cat named Whiskers"
    with (
        caplog.at_level(logging.DEBUG, "memfold"),
        Memfold(dsn, "acme", embedder, judge=Writer(merged)) as client,
    ):
        client.ingest("Alice has a cat")
        client.ingest("Alice owns a tabby called Whiskers", wait=True)
    lines = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "memfold"]
    check_line = 'DEDUP_CHECK: "Alice owns a tabby called Whiskers" closest match sim=0.93 -> escalated'
    assert ("DEBUG", check_line) in lines
    assert [
        text
        for level, text in lines
        if level == "INFO" and text.startswith(f'DEDUP_MERGE: 2 memories -> "{merged}"')
    ]

    caplog.clear()
    with Memfold(dsn, "globex", embedder, judge=Writer(None)) as client:
        replace_newer.execute("select set_policy('globex', preset => 'replace_newer')")
        client.ingest("Alice has a cat")
        asked = client.ingest("Alice owns a tabby called Whiskers")
        replace_newer.execute(
            "update judgements set attempts = 7 where judgement_id = %s", [asked.judgement_id]
        )
        question = client._drive(client._core.claim("globex", 60))
        assert question is not None
        client._drive(client._core._judged(question, 5))
    (warning,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert warning.startswith(f"DEDUP_FAIL: judgement {asked.judgement_id} by toy failed")
    assert warning.endswith("falling back to replace")
    check(replace_newer)
