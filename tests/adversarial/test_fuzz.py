"""Any input gives an answer or one of memfold's own errors. tests/fuzzing generates the input.

MEMFOLD_FUZZ (3000) calls, half of them with a fixed seed, half with a new one; MEMFOLD_FUZZ_SEED sets the latter.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.conftest import Target
from tests.fuzzing.fuzzer import Fuzzer
from tests.support.catalog import PUBLIC

CALLS = int(os.environ.get("MEMFOLD_FUZZ", "3000"))
SEEDS = {
    "fixed": 1,
    "random": int(os.environ.get("MEMFOLD_FUZZ_SEED", random.SystemRandom().randrange(2, 10**6))),
}
# What a session holds: plans and catalog of all functions, and of what it was given in 100,000 calls.
MOST = 300 << 20


@pytest.mark.each_server
@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_input(dsn: str, target: Target, seed: str) -> None:
    fuzzer = Fuzzer(dsn, SEEDS[seed])
    try:
        report = fuzzer.run(CALLS // 2)
    finally:
        fuzzer.close()
    print(report)
    assert not report.findings, f"MEMFOLD_FUZZ_SEED={SEEDS[seed]} on {target}\n{report}"
    assert set(report.called) == PUBLIC
    assert report.calls >= CALLS // 2
    assert report.outcomes["success"] > report.calls / 4
    assert max(max(sizes) for sizes in report.memory.values()) < MOST, report.memory
