"""Random sequences of calls, compared after every step with the model of tests/reference_model.

MEMFOLD_SEQUENCES sequences of MEMFOLD_STEPS (30) calls; MEMFOLD_SEED fixes the random choices. HYPOTHESIS_PROFILE=shrink
shortens one that fails, for up to five minutes.
To run many in several processes, each with its own seed, on a database with memfold (its tenants are new each time):

    python -m tests.adversarial.test_stateful DSN SEQUENCES STEPS FIRST_SEED PROCESSES
"""

from __future__ import annotations

import math
import multiprocessing
import sys
import time
from collections import Counter

import hypothesis
import psycopg
import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.reference_model.records import JUDGE, MERGE
from tests.stateful.counts import COUNTS, report
from tests.stateful.machine import Machine
from tests.stateful.scopes import DIMENSIONS, VECTORS
from tests.stateful.tenant import STEPS
from tests.support.draws import settings
from tests.support.queries import DB
from tests.support.rounds import SEED, rounds

SEQUENCES = rounds("MEMFOLD_SEQUENCES", 12, 300)


def run(db: DB, sequences: int, steps: int, seed: int) -> None:
    for i, text in enumerate(VECTORS):
        cosines = [sum(x * y for x, y in zip(text, other, strict=True)) for other in VECTORS[:i]]
        assert all(abs(c - t) > 1e-3 for c in cosines for t in (MERGE, JUDGE)), (i, cosines)
    db.execute("select memfold.register_embedding_model('m', %s, 0.92, 0.85)", [DIMENSIONS])
    machine = hypothesis.seed(seed)(type("Sequence", (Machine,), {"db": db}))
    chosen = settings(
        max_examples=sequences, stateful_step_count=steps, print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.promise
def test_random_sequences(db: DB) -> None:
    COUNTS.clear()
    start = time.monotonic()
    run(db, SEQUENCES, STEPS, SEED)
    print(report(COUNTS, time.monotonic() - start))
    assert COUNTS["sequences"] > 0


def _process(dsn: str, sequences: int, steps: int, seed: int) -> tuple[Counter[str], str | None]:
    with psycopg.connect(dsn, autocommit=True) as db:
        try:
            run(db, sequences, steps, seed)
        except AssertionError as error:
            return COUNTS, f"seed {seed}: {error}"
    return COUNTS, None


def main(
    dsn: str, sequences: str = "2000", steps: str = "30", first_seed: str = "1", processes: str = "1"
) -> int:
    start = time.monotonic()
    n = int(processes)
    work = [(dsn, math.ceil(int(sequences) / n), int(steps), int(first_seed) + i) for i in range(n)]
    with multiprocessing.Pool(n) as pool:
        results = pool.starmap(_process, work)
    print(report(sum((c for c, _ in results), Counter()), time.monotonic() - start))
    failures = [failure for _, failure in results if failure]
    print("\n".join(failures) or "no difference")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
