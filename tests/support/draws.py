"""Hypothesis' settings for all tests: the same draws in each run but a nightly one, and no time spent on shrinking.

HYPOTHESIS_PROFILE=shrink makes an example that fails smaller, which takes up to five minutes (pytest --timeout 900).
"""

from __future__ import annotations

import os

from hypothesis import Phase, settings
from hypothesis.internal.conjecture.providers import Constants, HypothesisProvider

from tests.support.rounds import NIGHTLY

__all__ = ["settings"]

# It mixes in what it finds in source files of ours, for which it takes none below a directory called tests: the same seed
# would be another walk there.
assert hasattr(HypothesisProvider, "_local_constants")
HypothesisProvider._local_constants = Constants()

LOOP = settings(
    database=None, deadline=None, derandomize=not NIGHTLY, phases=[Phase.explicit, Phase.generate]
)
settings.register_profile("loop", LOOP)
settings.register_profile("shrink", LOOP, phases=list(Phase))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "loop"))
