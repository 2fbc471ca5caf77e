"""An embedder that counts, and the rows that a call may leave."""

from __future__ import annotations

import asyncio

import psycopg

from tests.support.queries import one

CAT = [1.0, 0.1, 0.0]
DOG = [0.0, 1.0, 0.0]


class Counting:
    """An embedder that records its requests."""

    def __init__(self, vectors: dict[str, list[float]] | None = None) -> None:
        self.vectors = vectors or {}
        self.asked: list[list[str]] = []
        self.broken = False

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(texts)
        if self.broken:
            raise RuntimeError("the model is down")
        return [self.vectors.get(text, CAT) for text in texts]

    async def later(self, texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        return self(texts)


def written(db: psycopg.Connection) -> int:
    """Rows that a call of ingest could have left."""
    return int(
        one(
            db,
            "select (select count(*) from memfold.memories) + (select count(*) from memfold.memory_events)"
            " + (select count(*) from memfold.memory_vectors)"
            " + (select count(*) from memfold.idempotency_keys)",
        )
    )
