"""Random sequences of calls, compared after every step with the model of tests/reference_model.

MEMFOLD_SEQUENCES (40) sequences of MEMFOLD_STEPS (30) calls; MEMFOLD_SEED fixes the random choices. No sequence begins
after MEMFOLD_SECONDS (120; with more sequences: inf), and a failing one is shortened for MEMFOLD_SHRINK_SECONDS (15).
To run many in several processes, each with its own seed, on a database with memfold (its tenants are new each time):

    python -m tests.adversarial.test_stateful DSN SEQUENCES STEPS FIRST_SEED PROCESSES
"""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
import time
from collections import Counter

import hypothesis
import psycopg
from hypothesis.internal.conjecture import engine
from hypothesis.stateful import run_state_machine_as_test

from tests.reference_model.records import JUDGE, MERGE
from tests.stateful.counts import COUNTS, report
from tests.stateful.machine import Machine
from tests.stateful.scopes import DIMENSIONS, VECTORS
from tests.stateful.tenant import STEPS
from tests.support.queries import DB

SEQUENCES = int(os.environ.get("MEMFOLD_SEQUENCES", "40"))
SECONDS = float(os.environ.get("MEMFOLD_SECONDS", "120" if SEQUENCES <= 40 else "inf"))
SHRINK_SECONDS = int(os.environ.get("MEMFOLD_SHRINK_SECONDS", "15"))


def run(db: DB, sequences: int, steps: int, seed: int | None, seconds: float = math.inf) -> None:
    for i, text in enumerate(VECTORS):
        cosines = [sum(x * y for x, y in zip(text, other, strict=True)) for other in VECTORS[:i]]
        assert all(abs(c - t) > 1e-3 for c in cosines for t in (MERGE, JUDGE)), (i, cosines)
    db.execute("select memfold.register_embedding_model('m', %s, 0.92, 0.85)", [DIMENSIONS])
    machine = type("Sequence", (Machine,), {"db": db, "until": time.monotonic() + seconds})
    assert engine.MAX_SHRINKING_SECONDS
    engine.MAX_SHRINKING_SECONDS = SHRINK_SECONDS
    if seed is not None:
        machine = hypothesis.seed(seed)(machine)
    settings = hypothesis.settings(
        max_examples=sequences, stateful_step_count=steps, deadline=None, database=None, print_blob=seed is None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=settings)


def test_random_sequences(db: DB) -> None:
    COUNTS.clear()
    # The same ones in every run of the suite; MEMFOLD_SEED=random looks for others.
    seed = os.environ.get("MEMFOLD_SEED", "1")
    start = time.monotonic()
    run(db, SEQUENCES, STEPS, None if seed == "random" else int(seed), SECONDS)
    print(report(COUNTS, time.monotonic() - start))
    assert COUNTS["sequences"] >= min(SEQUENCES, 10)


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
