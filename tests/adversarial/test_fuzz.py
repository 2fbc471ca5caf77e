"""Any input gives an answer or one of memfold's own errors. tests/fuzzing generates the input.

MEMFOLD_FUZZ calls; MEMFOLD_SEED fixes the random choices.
"""

from __future__ import annotations

import pytest

from tests.conftest import Target
from tests.fuzzing.fuzzer import Fuzzer
from tests.support.catalog import PUBLIC
from tests.support.rounds import SEED, rounds

CALLS = rounds("MEMFOLD_FUZZ", 1500, 30000)
# What a session holds: plans and catalog of all functions, and of what it was given in 100,000 calls.
MOST = 300 << 20


@pytest.mark.each_server
def test_hostile_input(dsn: str, target: Target) -> None:
    fuzzer = Fuzzer(dsn, SEED)
    try:
        report = fuzzer.run(CALLS)
    finally:
        fuzzer.close()
    print(report)
    assert not report.findings, f"MEMFOLD_SEED={SEED} on {target}\n{report}"
    assert set(report.called) == PUBLIC
    assert report.calls >= CALLS
    assert report.outcomes["success"] > report.calls / 4
    assert max(max(sizes) for sizes in report.memory.values()) < MOST, report.memory
