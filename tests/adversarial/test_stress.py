"""All calls concurrently (tests/support/stress.py): MEMFOLD_STRESS_CALLS and MEMFOLD_STRESS_SECONDS enlarge it."""

from __future__ import annotations

import pytest

from tests.support.rounds import rounds
from tests.support.stress import SEVERAL, Stress, replays_beside_folds

CALLS = rounds("MEMFOLD_STRESS_CALLS", 250, 2500)
SECONDS = rounds("MEMFOLD_STRESS_SECONDS", 1.0, 20.0)


def test_everything_at_once(dsn: str) -> None:
    """Nothing is lost or broken, all errors are memfold's own, batches never deadlock with one another."""
    stress = Stress(dsn, writers=8, seed=CALLS)
    stress.prepare(CALLS)
    outcome = stress.run(CALLS)
    print(outcome)
    assert outcome.calls.total() >= CALLS
    assert stress.verify() == []
    # only transactions of several calls lock in an order of their own, and few of them deadlock
    assert [kind for kind in outcome.deadlocks if SEVERAL not in kind] == []
    assert outcome.deadlocks.total() <= 10 + outcome.calls[SEVERAL] // 20


@pytest.mark.parametrize("batches", [0, 8])
def test_replays_concurrent_with_merges_and_undos(dsn: str, batches: int) -> None:
    """24 writers of three texts, some in batches, and one who merges and undoes them: not one deadlock."""
    outcome = replays_beside_folds(dsn, SECONDS, writers=24, texts=3, batches=batches)
    print(outcome)
    assert outcome.folds > 0
    assert outcome.replays > 0
    assert outcome.deadlocks == 0
    assert outcome.broken == []
