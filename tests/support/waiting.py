"""Wait for changes made by other sessions or processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], what: str = "", seconds: float = 60, pause: float = 0.01) -> T:
    """The first true answer; if there is none in time, fails and says what did not happen."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what or 'the condition'}"
        time.sleep(pause)
    return found
