"""Limits on the load of an adoption."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """Seconds, rows and bytes."""

    lock_timeout: float = 0.1
    """How long others may have to queue behind a lock that the run waits for."""
    patience: float = 600.0
    """How long to keep trying for a lock."""
    batch_time: float = 0.05
    """How long a batch may hold its locks."""
    batch: int | None = None
    """Rows per batch; None: as many as the time allows."""
    rate: float | None = None
    """The most rows per second."""
    max_lag_bytes: int = 64 * 1024 * 1024
    max_lag: float = 10.0
    """The accepted lag of a standby."""
    ignore_lag: bool = False
    statement_timeout: float = 0.0
    """Limit per statement; 0: none."""
    trust_owner: bool = False
    """Whether a superuser may work on another role's table, whose triggers and checks then run as the superuser."""
