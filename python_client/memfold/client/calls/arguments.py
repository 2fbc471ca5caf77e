"""Converts the arguments of a call for psycopg, and reports errors that psycopg or the server would not report
clearly."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from memfold.client import errors
from memfold.client._checks import check_text, checked_number
from memfold.client.embedding.vectors import vector_binary

WAIT = 60.0
"""Seconds for ``wait=True``."""
_WITHOUT_ZONE = {
    "observed_at": errors.InvalidObservedAtError,
    "valid_from": errors.InvalidValidityError,
    "valid_until": errors.InvalidValidityError,
}


def wait_seconds(wait: bool | float) -> float:
    """The value of ``wait`` in seconds; 0: do not wait."""
    if isinstance(wait, bool):
        return WAIT if wait else 0.0
    seconds = checked_number("wait", wait)
    if not 0 <= seconds < math.inf:
        raise errors.InvalidArgumentError(
            "wait is not a time",
            detail=f"It was {wait!r}.",
            hint=f"Pass seconds, or True for {WAIT:g} of them.",
        )
    return seconds


def _check_json(name: str, value: Any) -> None:
    if isinstance(value, str):
        check_text(name, value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str):
                check_text(f"a key of {name}", key)
            _check_json(name, item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_json(name, item)


def _json(name: str, value: Any) -> str:
    _check_json(name, value)
    try:
        return json.dumps(dict(value) if isinstance(value, Mapping) else value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.InvalidMetadataError(
            f"{name} is not JSON",
            detail=f"{str(error)[:1].upper()}{str(error)[1:]}.",
            hint="Pass a JSON object.",
        ) from error


# Names that other libraries use for these.
_ALSO_CALLED = {
    **dict.fromkeys(("limit", "k", "top_k", "n", "n_results"), "max_results"),
    **dict.fromkeys(("user_id", "namespace", "collection"), "bucket_id"),
    **dict.fromkeys(("threshold", "score_threshold"), "min_similarity"),
    "vector": "embedding",
    "filter": "metadata",
    "timestamp": "observed_at",
}


def check_names(function: str, given: Iterable[str], names: Collection[str]) -> None:
    """Raise TypeError for an unknown argument, and suggest the nearest: a misspelt filter would widen the result."""
    for name in given:
        if name not in names:
            near = [_ALSO_CALLED[name]] if _ALSO_CALLED.get(name) in names else None
            near = near or difflib.get_close_matches(name, names, 1, 0.5)
            raise TypeError(
                f"{function} has no argument {name}" + (f"; did you mean {near[0]}?" if near else "")
            )


def prepared(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as psycopg sends them, after checks that it or the server would not report clearly."""
    return {name: prepared_value(name, value) for name, value in given.items()}


def prepared_value(name: str, value: Any) -> Any:
    if value is None:
        return None
    match name:
        case "embedding" | "query_embedding":
            return vector_binary(value)
        case "deduplicate" | "touch" | "show_collapsed" | "helpful" | "erase" | "dry_run":
            if not isinstance(value, bool):
                raise TypeError(f"{name} must be bool, not {type(value).__name__}")
            return value
        case "metadata":
            return _json(name, value)
        case "source_turn_ids" | "bucket_ids":
            if isinstance(value, str | bytes) or not isinstance(value, Sequence):
                raise TypeError(f"{name} must be a list of str, not {type(value).__name__}")
            for turn in value:
                check_text(name, turn)
            return list(value)
        case (
            "source_confidence"
            | "extractor_confidence"
            | "threshold"
            | "min_confidence"
            | "min_similarity"
            | "dedup_threshold"
        ):
            return checked_number(name, value)
        case "max_results" | "max_questions" | "batch_size":
            return int(value)
        case "as_of" | "known_at" | "observed_at" | "valid_from" | "valid_until":
            if not isinstance(value, datetime):
                raise TypeError(f"{name} must be a datetime, not {type(value).__name__}")
            if value.utcoffset() is None:
                raise _WITHOUT_ZONE.get(name, errors.InvalidArgumentError)(
                    f"{name} has no time zone",
                    detail=f"It was {value.isoformat()}.",
                    hint="Pass an aware datetime, such as datetime.now(timezone.utc).",
                )
            return value
        case "memory_id" | "into_id" | "by_id" | "event_id" | "run_id":
            try:
                return value if isinstance(value, UUID) else UUID(value)
            except (ValueError, AttributeError, TypeError):
                raise errors.InvalidIdentifierError(
                    f"{name} is not a UUID",
                    detail=f"It was {value!r:.80}.",
                    hint="Pass an id that ingest returned.",
                ) from None
        case _:
            check_text(name, value)
            return value
