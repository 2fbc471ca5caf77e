"""What a calibration would do to a bucket's own stream: its texts, ingested again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from memfold.tools.calibrate import queries
from memfold.tools.calibrate.pairs import DB
from memfold.tools.calibrate.run import connected

MERGED = ("merged", "replaced")


@dataclass(frozen=True)
class Replayed:
    """The result for a text: its ``action``, and the text that it was compared with."""

    memory_id: UUID
    action: str
    similarity: float | None
    guard: tuple[str, ...]
    reason: str | None
    content: str
    other: str | None

    @property
    def outcome(self) -> str:
        """merged, asked or kept."""
        return "merged" if self.action in MERGED else "asked" if self.action == "escalated" else "kept"


@dataclass(frozen=True)
class Replay:
    """A bucket's stream under the current rules, and under the calibration."""

    bucket_id: str
    now: Sequence[Replayed]
    then: Sequence[Replayed]

    def counts(self) -> dict[str, dict[str, int]]:
        """How many texts are merged, asked about and kept, under either."""
        return {
            name: {"texts": len(rows), **Counter(row.outcome for row in rows)}
            for name, rows in (("now", self.now), ("then", self.then))
        }

    def to_read(self, outcome: str, most: int = 30, seed: int = 0) -> list[Replayed]:
        """At most this many texts of an outcome of the calibration, chosen at random, in order."""
        found = [row for row in self.then if row.outcome == outcome]
        lot = np.random.default_rng(seed).permutation(len(found))[:most]
        return [found[place] for place in sorted(lot)]


def replay(
    where: str | DB,
    tenant_id: str,
    bucket_id: str,
    embedding_model: str,
    calibration_id: UUID | None,
    max_memories: int = 10_000,
) -> Replay:
    """Ingest the newest ``max_memories`` texts of a bucket again, by the current rules and by a calibration.

    Everything is rolled back. No judge is asked: both texts of an escalated pair stay. Needs a member of
    memfold_owner.
    """

    def by(calibration: UUID | None) -> list[Replayed]:
        rows = connection.execute(
            queries.REPLAY_BUCKET,
            {
                "tenant_id": tenant_id,
                "bucket_id": bucket_id,
                "calibration_id": calibration,
                "model": embedding_model,
                "max_memories": max_memories,
            },
        ).fetchall()
        return [
            Replayed(memory_id, action, similarity, tuple(guard or ()), reason, content, other)
            for memory_id, action, similarity, guard, reason, content, other in rows
        ]

    with connected(where) as connection:
        return Replay(bucket_id, by(None), by(calibration_id))
