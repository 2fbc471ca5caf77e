"""Runs: when they end, and what ends with them."""

from __future__ import annotations

from uuid import UUID

from tests.support.maintenance import run_consolidation, run_maintenance, set_options, storing, vim
from tests.support.memories import check, model
from tests.support.queries import DB, one


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


def test_a_run_is_open_while_a_judge_holds_its_last_question(db: DB) -> None:
    model(db)
    storing(db)
    vim(db)
    run_id = run_consolidation(db)
    assert one(db, "select count(*) from claim_judgements('w', 'acme')") == 1
    # as the next part of a sweep, or the end of an approval, does
    db.execute("select memfold_internal._end_run('acme', %s, '{}')", [run_id])
    assert db.execute("select status, ended_at from runs").fetchall() == [("open", None)]
