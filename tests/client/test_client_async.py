"""The asynchronous client does what the blocking one does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psycopg
import pytest

from memfold import AsyncMemfold, Embedder
from memfold.client import errors
from memfold.client.types import EmbedReport, IngestResult
from tests.support.counting import Counting
from tests.support.queries import one

pytestmark = pytest.mark.usefixtures("measured")


def test_async_does_the_same(dsn: str, db: psycopg.Connection, counting: Counting) -> None:
    async def work() -> None:
        async with AsyncMemfold(dsn, "t", Embedder(counting.later, "toy", 3)) as client:
            made = await client.ingest("Alice has a cat.", subject="Alice")
            assert made.action == "inserted"
            assert made.memory_id is not None
            assert (await client.ingest("Alice has a cat!", subject="Alice")).tier == 1
            assert counting.asked == [["Alice has a cat."]]
            assert (await client.preview("Alice has 2 cats.", subject="Alice")).action == "escalated"
            known = await client.known("Alice has a cat.", subject="Alice")
            assert known is not None
            assert known.memory_id == made.memory_id
            assert len(await client.find_similar("Alice's cat")) == 1
            assert "said twice" in await client.explain(made.memory_id)
            assert [bucket.observations for bucket in await client.stats()] == [2]
            assert await client.check_invariants() == []
            counting.broken = True
            late = await client.ingest("Alice owns a cat.", subject="Alice")
            assert late.action == "inserted"
            counting.broken = False
            assert await client.embed_pending() == EmbedReport(attached=1, merged=1)
            with pytest.raises(psycopg.errors.UniqueViolation) as caught:
                db.execute(
                    "insert into memfold.memories (tenant_id, content, subject)"
                    " values ('t', 'Alice has a cat', 'Alice')"
                )
            error = await client.translate_unique_violation(caught.value, "Alice has a cat", subject="Alice")
            assert isinstance(error, errors.MemoryHashConflict)
            assert error.existing_id == made.memory_id
            with pytest.raises(errors.EmptyContentError):
                await client.ingest("")

    asyncio.run(work())


def test_async_tasks_share_a_client(dsn: str, db: psycopg.Connection, counting: Counting) -> None:
    async def work() -> Sequence[IngestResult]:
        # A blocking callable runs in a thread; the event loop goes on.
        async with AsyncMemfold(dsn, "t", Embedder(counting, "toy", 3)) as client:
            return await asyncio.gather(*[client.ingest(f"fact {n % 4}", subject="x") for n in range(20)])

    assert len(asyncio.run(work())) == 20
    assert one(db, "select sum(observations) from memfold.memory_totals where is_additive") == 20
