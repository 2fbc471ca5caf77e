"""How gently an adoption goes about it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """Seconds, rows and bytes."""

    lock_timeout: float = 0.1
    """How long anybody may have to queue behind a lock that is waited for."""
    patience: float = 600.0
    """How long to go on trying for a lock."""
    batch_time: float = 0.05
    """How long a batch may hold its locks."""
    batch: int | None = None
    """Rows of a batch; None: as many as the time allows."""
    rate: float | None = None
    """Rows a second at most."""
    max_lag_bytes: int = 64 * 1024 * 1024
    max_lag: float = 10.0
    """How far behind a standby may be."""
    ignore_lag: bool = False
    statement_timeout: float = 0.0
    """Of each statement; 0: none."""
