"""Wait for what other sessions or processes bring about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], what: str = "", seconds: float = 60, pause: float = 0.01) -> T:
    """The first true answer; fails, and says what did not come about, if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what or 'what is waited for'}"
        time.sleep(pause)
    return found
