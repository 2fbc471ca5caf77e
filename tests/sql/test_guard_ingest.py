"""The guard in the pipeline: pairs on which it raises never merge, whatever the cosine; true paraphrases merge."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB

PAIRS = [json.loads(line) for line in (Path(__file__).parents[1] / "data" / "guard_pairs.jsonl").open()]


def test_pairs_at_cosine_099(db: DB) -> None:
    model(db)
    # the veto may still ask about pairs that pass the guard, and the richer text may replace
    db.execute("select set_policy('acme', merge_veto => 0, on_refinement => 'merge')")
    wrong = []
    actions: Counter[tuple[str, str]] = Counter()
    for i, pair in enumerate(PAIRS):
        for side, (a, b) in enumerate([(pair["a"], pair["b"]), (pair["b"], pair["a"])]):
            bucket = f"{i} {side}"
            first = ingest(db, a, bucket_id=bucket, **vector(1.0))
            result = ingest(db, b, bucket_id=bucket, **vector(0.99))
            actions[pair["expect"], result.action] += 1
            if pair["expect"] == "raise" and (result.action != "escalated" or result.judgement_id is None):
                wrong.append((pair["id"], result))
            if pair["expect"] == "clean" and (result.action, result.memory_id) != ("merged", first.memory_id):
                wrong.append((pair["id"], result))
    assert wrong == []
    assert set(actions) == {("raise", "escalated"), ("clean", "merged")}
    assert min(actions.values()) >= 2 * 60
    assert len({p["language"] for p in PAIRS if p["expect"] == "raise"}) >= 6
    check(db)


def test_objects_are_guarded(db: DB) -> None:
    model(db)
    ingest(db, "Ann likes it there", subject="Ann", object="Berlin", **vector(1.0))
    result = ingest(db, "Ann likes it much there", subject="Ann", object="Rome", **vector(0.99))
    assert result.action == "escalated"
    assert db.execute("select guard from judgements").fetchall() == [(["object: rome <> berlin"],)]


def test_the_guard_can_be_switched_off(db: DB) -> None:
    model(db)
    db.execute("select set_policy('acme', guard => 'off')")
    ingest(db, "Ann has 3 cats", **vector(1.0))
    assert ingest(db, "Ann has 4 cats", **vector(0.99)).action == "merged"
