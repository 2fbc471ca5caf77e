"""The values of a slot over time, in percent of the width of a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from memfold.client.types import Row


@dataclass
class Value:
    """A memory's part of the drawing."""

    memory_id: UUID
    content: str
    status: str
    intervals: list[tuple[datetime, datetime | None]] = field(default_factory=list)
    bars: list[tuple[float, float]] = field(default_factory=list)
    """Begin and width of each interval."""
    dots: list[tuple[float, Row]] = field(default_factory=list)
    """When it was said."""


@dataclass(frozen=True)
class Drawing:
    """Values, the one that was current first on top."""

    values: Sequence[Value]
    begin: datetime
    end: datetime


def drawn(memory: Row, intervals: Sequence[Row], said: Sequence[Row], now: datetime) -> Drawing | None:
    """A memory without intervals is current from its first observation on."""
    values: dict[UUID, Value] = {}
    for row in intervals:
        value = values.setdefault(row["memory_id"], Value(row["memory_id"], row["content"], row["status"]))
        value.intervals.append((row["valid_from"], row["valid_to"]))
    if not values and memory["first_seen"] is not None:
        one = Value(memory["memory_id"], memory["content"], memory["status"])
        one.intervals = [(memory["first_seen"], None)] if memory["status"] == "active" else []
        values[one.memory_id] = one
    shown = [row for row in said if row["memory_id"] in values]
    times = [row["observed_at"] for row in shown]
    times += [
        time for value in values.values() for pair in value.intervals for time in pair if time is not None
    ]
    if not times:
        return None
    begin: datetime = min(times)
    end: datetime = max(now, *times)
    whole = (end - begin).total_seconds() or 1.0

    def place(time: datetime) -> float:
        return round(100 * (time - begin).total_seconds() / whole, 2)

    for value in values.values():
        value.bars = [
            (place(since), max(round(place(until or end) - place(since), 2), 0.3))
            for since, until in value.intervals
        ]
    for row in shown:
        values[row["memory_id"]].dots.append((place(row["observed_at"]), row))
    return Drawing(list(values.values()), begin, end)
