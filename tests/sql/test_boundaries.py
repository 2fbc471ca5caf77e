"""Limits and conditions, each tested at its last value and next to it."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from tests.support.judging import answer
from tests.support.maintenance import run_consolidation, run_maintenance, set_options, storing, vim
from tests.support.memories import check, ingest, model, statuses, vector
from tests.support.queries import DB, one
from tests.support.searching import search, texts

# Runs -------------------------------------------------------------------------------------------------------------


def test_judgements_that_died_are_obsolete_when_their_run_is_undone(db: DB) -> None:
    model(db)
    storing(db)
    set_options(db, max_cluster_size=2)
    vim(db)
    run_id: UUID = run_consolidation(db)
    db.execute("update memfold.judgements set status = 'dead' where judgement_id = (select min(judgement_id::text)::uuid"
               " from memfold.judgements)")  # fmt: skip
    before = db.execute("select status, count(*) from memfold.judgements group by 1 order by 1").fetchall()
    assert before == [("dead", 1), ("open", 1)]
    db.execute("select count(*) from undo_run(%s, tenant_id => 'acme')", [run_id])
    assert db.execute("select distinct status from memfold.judgements").fetchall() == [("obsolete",)]
    assert one(db, "select count(*) from memfold.retry_judgements('acme')") in (0, 1)
    assert db.execute("select distinct status from memfold.judgements").fetchall() == [("obsolete",)]
    check(db)


def test_a_run_that_has_just_begun_is_not_closed(db: DB) -> None:
    """Its judgements may not be written yet: it has a minute."""
    model(db)
    storing(db)
    vim(db)
    run_id = run_consolidation(db)
    db.execute("update memfold.judgements set status = 'obsolete'")
    for age, state in (("50 seconds", "open"), ("70 seconds", "done")):
        db.execute(
            "update memfold.runs set started_at = now() - %s::interval where run_id = %s", [age, run_id]
        )
        assert run_maintenance(db, "runs")["errors"] == {}
        assert db.execute("select status from memfold.runs where run_id = %s", [run_id]).fetchone() == (
            state,
        ), age


# Recall -----------------------------------------------------------------------------------------------------------


def test_at_the_moment_of_change_the_new_value_holds(db: DB) -> None:
    model(db)
    db.execute("select set_predicate('lives_in', 'acme')")
    slot = {"subject": "Ann", "predicate": "lives_in"}
    for place, cosine, since in (("Berlin", 1.0, "2024-01-01 UTC"), ("Munich", 0.9, "2025-01-01 UTC")):
        ingest(db, f"Ann lives in {place}", object=place, observed_at=since, **slot, **vector(cosine))
    for moment, place in (
        ("2024-01-01 UTC", "Berlin"), ("2024-12-31 23:59:59.999999 UTC", "Berlin"), ("2025-01-01 UTC", "Munich"),
    ):  # fmt: skip
        assert texts(search(db, as_of=moment)) == [f"Ann lives in {place}"], moment
        current = db.execute("select content from current_memories('acme', as_of => %s)", [moment]).fetchall()
        assert current == [(f"Ann lives in {place}",)], moment


# Batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["predicate", "bucket"])
@pytest.mark.parametrize("older", ["stored", "in the batch"])
@pytest.mark.parametrize(("threshold", "action"), [(0.5, "escalated"), (0.500001, "inserted")])
def test_in_a_batch_a_cosine_at_the_threshold_is_enough(
    db: DB, scope: str, older: str, threshold: float, action: str
) -> None:
    """As in single calls. The cosine of the two is 0.5 to the last bit."""
    model(db)
    rules = "set_policy(%s, scope => %s, judge_threshold => %s, merge_threshold => 0.9)"
    pair: list[dict[str, Any]] = [
        {"content": "User likes tea", "embedding": "[1,0,0,0]", "embedding_model": "m"},
        {"content": "The sky is blue", "embedding": "[0.5,0.5,0.5,0.5]", "embedding_model": "m"},
    ]
    for tenant in ("acme", "globex"):
        db.execute(f"select {rules}".encode(), [tenant, scope, threshold])
    assert [ingest(db, **one, tenant_id="globex").action for one in pair] == ["inserted", action]
    if older == "stored":
        ingest(db, **pair.pop(0))
    batch = "select action from ingest_memories(%s, 'acme') order by ordinal"
    assert db.execute(batch, [json.dumps(pair)]).fetchall()[-1] == (action,)
    check(db)


# Verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("subject", "action"), [("Ann", "rejected"), ("Anna", "superseded")])
def test_a_contradiction_across_scopes_follows_the_buckets_rule(db: DB, subject: str, action: str) -> None:
    """The predicate's own rule is of one subject's values."""
    model(db)
    db.execute("select set_policy('acme', scope => 'bucket', conflict => 'newest_wins')")
    db.execute("select set_predicate('likes', 'acme', cardinality => 'many', conflict => 'keep_existing')")
    old = ingest(db, "Ann likes tea", subject="Ann", predicate="likes", **vector(1.0))
    new = ingest(db, f"{subject} does not like tea", subject=subject, predicate="likes", **vector(0.97))
    assert new.action == "escalated"
    assert answer(db, "contradiction", 0.9)[2] == action
    if action == "rejected":
        assert statuses(db, old, new) == ["active", "rejected"]
    else:
        assert statuses(db, old, new) == ["superseded", "active"]
    check(db)


# Neighbours -------------------------------------------------------------------------------------------------------


def test_of_facts_about_nobody_the_newest_thousand_are_compared(db: DB) -> None:
    """Neither subject nor predicate says what they are about: such a scope has no end."""
    model(db)
    tea = ingest(db, "User likes tea", **vector(1.0))

    def others(first: int, last: int) -> None:
        db.execute(
            "select count(ingest_memory('Fact ' || n, 'acme')) from generate_series(%s::int, %s) as n",
            [first, last],
        )
        db.execute(
            "insert into memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, is_live, embedding)"
            " select m.tenant_id, m.memory_id, 'm', m.bucket_id, m.scope_key, true, '[0,0,0,1]' from memories as m"
            " where not exists (select from memory_vectors as v where v.memory_id = m.memory_id)"
        )

    def decided() -> list[Any]:
        again: dict[str, Any] = {"content": "The user likes tea", **vector(0.999)}
        preview = ingest(db, function="preview_memory", **again)
        with db.transaction(force_rollback=True):
            single = ingest(db, **again)
        with db.transaction(force_rollback=True):
            in_batch = db.execute(
                "select action from ingest_memories(%s, 'acme')", [json.dumps([again])]
            ).fetchone()
            assert in_batch is not None
        assert preview.memory_id in (tea.memory_id, None)
        return [preview.action, single.action, in_batch[0]]

    others(1, 999)
    assert decided() == ["merged"] * 3
    others(1000, 1000)
    assert decided() == ["inserted"] * 3
