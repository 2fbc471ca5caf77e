"""How long random tests run: a few fixed rounds in ``make test``; many new ones in ``make nightly``.

MEMFOLD_SEED repeats a run's choices, and the variable of a test's own docstring sets its number of rounds.
"""

from __future__ import annotations

import os
from typing import TypeVar

NIGHTLY = bool(os.environ.get("MEMFOLD_NIGHTLY"))
SEED = int(os.environ.get("MEMFOLD_SEED", "1"))
Number = TypeVar("Number", int, float)


def rounds(variable: str, few: Number, many: Number) -> Number:
    """The value of an environment variable, or the default of the loop."""
    return type(few)(os.environ.get(variable, many if NIGHTLY else few))


def seeds(few: int, many: int) -> range:
    """One after the other, for ``pytest.mark.parametrize``."""
    return range(SEED, SEED + rounds("MEMFOLD_SEEDS", few, many))
