"""Retries of calls that failed because of concurrent ones and left nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import psycopg

from memfold.client.errors import PASSING

T = TypeVar("T")

ATTEMPTS: Final = 5
MAX_RETRY_AFTER: Final = 3600.0
"""The longest pause, in seconds, that an endpoint can ask for."""


def retry(work: Callable[[], T]) -> T:
    """Run ``work``, which is one transaction, up to five times in all. Raises the last error."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return work()
        except psycopg.Error as error:
            if error.sqlstate not in PASSING or attempt == ATTEMPTS:
                raise
    raise AssertionError
