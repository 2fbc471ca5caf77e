"""How long tests of faults wait for anything."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 240.0
"""Seconds after which something counts as stuck; nothing is asserted to be faster."""


def pause_until(true: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Look until it is so."""
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, f"waited {patience:.0f} s: {what}"
        time.sleep(0.01)
