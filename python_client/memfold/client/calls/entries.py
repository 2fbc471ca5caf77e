"""Candidates of ``ingest_many`` on their way to the server, and their results."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memfold.client import errors
from memfold.client.calls.arguments import prepared_value
from memfold.client.embedding.vectors import vector_binary
from memfold.client.types import IngestResult, Row


@dataclass(slots=True)
class Entry:
    """A candidate on its way: its arguments, then its result."""

    index: int
    content: str | None
    values: dict[str, Any]
    result: IngestResult | None = None
    error: errors.MemfoldError | None = None


def value_of(name: str, value: Any) -> Any:
    """A value as the server receives it: metadata as JSON, an embedding as bytes."""
    if value is None:
        return None
    if name == "embedding":
        return vector_binary(value)
    made = prepared_value(name, value)
    if isinstance(made, datetime):
        return made.isoformat()
    # JSON has no such number, but float8 reads it from a string
    return str(made) if isinstance(made, float) and not math.isfinite(made) else made


def as_json(entries: Sequence[Entry], keys: Mapping[int, str]) -> str:
    """The candidates for the server; keys: for those without their own, by position."""
    made = []
    for n, entry in enumerate(entries):
        values = entry.values | {"idempotency_key": keys[n]} if n in keys else entry.values.copy()
        values.pop("embedding", None)
        metadata = values.pop("metadata", None)
        text = json.dumps(values, ensure_ascii=False)
        made.append(text if metadata is None else f'{text[:-1]}, "metadata": {metadata}}}')
    return f"[{','.join(made)}]"


def is_of_one(error: errors.MemfoldError) -> bool:
    """Whether the error may concern only some of the candidates."""
    state = error.sqlstate or ""
    return state[:2] in ("22", "54") or (state[:2] == "MF" and state not in ("MF001", "MF002", "MF025"))


def error_of(row: Row) -> errors.MemfoldError:
    cls = errors.CLASSES.get(row["sqlstate"], errors.MemfoldError)
    return cls(row["error"], sqlstate=row["sqlstate"], detail=row["detail"], hint=row["hint"])


def of_candidate(entry: Entry) -> errors.MemfoldError:
    """The candidate's error, with its index, which nothing else reports."""
    error = entry.error
    assert error is not None  # noqa: S101 (only then is this called)
    error.detail = (
        f"Candidate {entry.index}: {error.detail}" if error.detail else f"It is candidate {entry.index}."
    )
    return error
