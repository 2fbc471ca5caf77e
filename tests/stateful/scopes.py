"""The texts that may be submitted, with their vectors and the rules of their scopes."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from tests.reference_model.records import Scope, Text

DIMENSIONS = 8
DAY = 86400.0
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def _unit(*parts: float) -> tuple[float, ...]:
    """A unit vector of these first components; the missing length goes into the axis that the last one names."""
    values = [0.0] * DIMENSIONS
    *given, axis = parts
    for i, value in enumerate(given):
        values[i] = value
    values[int(axis)] = math.sqrt(1 - sum(v * v for v in values))
    return tuple(values)


# Cosines: 1 is a paraphrase of 0, 2 unclear next to both, 3 closer than 1 but with another number in it, 9 a paraphrase
# of 3, 8 a paraphrase of 1 that is below the thresholds next to 0; 5 a paraphrase of 4, 6 unclear next to 4; 7 is alone.
VECTORS = [
    _unit(1.0, 7), _unit(0.97, 1), _unit(0.90, 2), _unit(0.985, 3), _unit(0, 0, 0, 0, 1.0, 7),
    _unit(0, 0, 0, 0, 0.95, 5), _unit(0, 0, 0, 0, 0.88, 6), _unit(0, 7), _unit(0.84, 0.53, 2),
    _unit(0.93, 0, 0, 0.165, 5),
]  # fmt: skip
WORDS = ["", "so ", "also ", "quite ", "really ", "so really ", "also really ", "quite really ", "really so very ",
         "really quite very "]  # fmt: skip
OBJECTS = ["Berlin", "Berlin", "Oslo", "Rome", " berlin ", "Oslo", None, "Rome", None, "Oslo"]


def _texts(predicate: str, objects: bool) -> tuple[Text, ...]:
    return tuple(
        Text(
            f"ann {WORDS[i]}{predicate} {'4 ' if i in (3, 9) else ''}things",
            VECTORS[i],
            kind=int(i in (3, 9)),
            object=OBJECTS[i] if objects else None,
        )
        for i in range(len(VECTORS))
    )


def _scope(
    name: str, bucket: str, *, single: bool = False, objects: bool = False, conflict: str = "newest_wins",
    on_ambiguous: str = "judge", metadata_merge: str = "merge", on_merge: str = "strengthen",
) -> Scope:  # fmt: skip
    predicate = name.split(".")[-1]
    texts = _texts(predicate, objects)
    bucket_conflict = "keep_existing" if bucket == "other" else "newest_wins"
    return Scope(
        name,
        bucket,
        predicate,
        single,
        conflict,
        bucket_conflict,
        on_ambiguous,
        metadata_merge,
        on_merge,
        texts,
    )


SCOPES = [
    _scope("likes", "default"),
    _scope("visits", "default", objects=True),
    _scope("lives", "default", single=True, objects=True),
    _scope("studies", "default", single=True),
    _scope("uses", "default", single=True, objects=True, conflict="keep_both"),
    _scope("wants", "default", single=True, objects=True, conflict="keep_existing"),
    _scope("owns", "default", single=True, objects=True, conflict="review"),
    _scope("plans", "default", conflict="keep_existing"),
    _scope("fears", "default", conflict="keep_both"),
    _scope("hopes", "default", conflict="review"),
    _scope("other.likes", "other", on_ambiguous="review", metadata_merge="newest", conflict="keep_existing"),
    _scope("other.lives", "other", single=True, objects=True, on_ambiguous="review", metadata_merge="newest",
           conflict="keep_existing"),
    _scope("third.likes", "third", on_ambiguous="insert", metadata_merge="first"),
    _scope("third.studies", "third", single=True, on_ambiguous="insert", metadata_merge="first"),
    _scope("newer.likes", "newer", on_merge="replace"),
    _scope("newer.visits", "newer", objects=True, on_merge="replace"),
    _scope("newer.lives", "newer", single=True, objects=True, on_merge="replace"),
    _scope("newer.studies", "newer", single=True, on_merge="replace"),
]  # fmt: skip
# In these row 12 decides.
OFTEN = (
    SCOPES + [s for s in SCOPES if s.single and s.texts[0].object is None and s.on_ambiguous == "judge"] * 3
)
BUCKETS = {
    "other": "on_ambiguous => 'review', metadata_merge => 'newest', conflict => 'keep_existing'",
    "third": "on_ambiguous => 'insert', metadata_merge => 'first'",
    "newer": "on_merge => 'replace'",
}
PREDICATES = [
    (s.predicate, "one" if s.single else "many", "null" if s.conflict == "newest_wins" else f"'{s.conflict}'")
    for s in SCOPES
    if s.bucket == "default"
]
