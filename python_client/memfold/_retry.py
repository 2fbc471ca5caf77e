"""Doing again what met others half-way and left nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import psycopg

from memfold.errors import PASSING

T = TypeVar("T")

ATTEMPTS: Final = 5
MAX_RETRY_AFTER: Final = 3600.0
"""Seconds that an endpoint may ask to be left alone for."""


def retry(work: Callable[[], T]) -> T:
    """What ``work`` gives, a transaction of its own; tried five times in all. Raises what the last one met."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return work()
        except psycopg.Error as error:
            if error.sqlstate not in PASSING or attempt == ATTEMPTS:
                raise
    raise AssertionError
