"""LlamaIndex's memory block, in a real ``Memory`` that flushes to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.memory import Memory

from memfold import Memfold
from memfold.agents.llamaindex import LlamaIndexEmbedder, MemfoldMemoryBlock
from memfold.client import errors
from memfold.client.facts import Fact
from tests.integrations.toys import embedder, memories, run_page
from tests.support.memories import check
from tests.support.queries import DB

# Python: the tests of the SQL functions cover each server.
pytestmark = pytest.mark.one_server


def said(text: str, role: MessageRole = MessageRole.USER) -> ChatMessage:
    return ChatMessage(role=role, content=text)


def run(dsn: str, work: Callable[[MemfoldMemoryBlock], Coroutine[Any, Any, None]], **fields: Any) -> None:
    async def whole() -> None:
        block = MemfoldMemoryBlock(dsn=dsn, tenant_id="acme", bucket_id="alice", **fields)
        try:
            await work(block)
        finally:
            await block.aclose()

    asyncio.run(whole())


@pytest.mark.parametrize("means", [False, True], ids=["by words", "by meaning"])
def test_messages_are_put_and_found(dsn: str, db: DB, means: bool) -> None:
    async def work(block: MemfoldMemoryBlock) -> None:
        assert await block.aget() == ""
        answer = said("Nice cat!", MessageRole.ASSISTANT)
        await block.aput(
            [said("Alice has a cat."), answer, said("The train leaves at noon."), said(" ")], session_id="s1"
        )
        await block.aput([said("alice has a CAT")], session_id="s2")
        assert memories(db) == {"Alice has a cat.": 2, "The train leaves at noon.": 1}
        rows = db.execute(
            "select distinct source_turn_ids, session_id from memfold.memory_events order by 2"
        ).fetchall()
        assert rows == [(['li-session:["alice", "s1"]'], "s1"), (['li-session:["alice", "s2"]'], "s2")]
        found = await block.aget([said("Which cat has Alice?"), answer])
        assert found.split("\n")[0] == "Alice has a cat."
        assert await block.aget() == "Alice has a cat.\nThe train leaves at noon."
        await block.aput([said("not this")], from_short_term_memory=True)
        check(db)

    run(dsn, work, embedder=embedder() if means else None, max_facts=2, accept_short_term_memory=False)
    assert "not this" not in memories(db)


@pytest.mark.parametrize("awaited", [False, True])
def test_facts_are_extracted_with_their_slots(dsn: str, db: DB, awaited: bool) -> None:
    with Memfold(dsn, "acme") as client:
        client.set_predicate("lives_in", "one")

    def extract(messages: list[ChatMessage]) -> list[Fact]:
        cities = [str(message.content).split()[-1] for message in messages]
        return [
            Fact(content=f"Alice lives in {city}.", subject="Alice", predicate="lives_in", object=city)
            for city in cities
        ]

    async def extract_later(messages: list[ChatMessage]) -> list[Fact]:
        return extract(messages)

    async def work(block: MemfoldMemoryBlock) -> None:
        await block.aput([said("I live in Lyon"), said("I have moved to Paris")])
        assert await block.aget([said("Where does Alice live?")]) == "Alice lives in Paris."
        assert set(memories(db, "superseded")) == {"Alice lives in Lyon."}

    run(dsn, work, extract=extract_later if awaited else extract)


def test_it_is_truncated_by_facts(dsn: str) -> None:
    async def work(block: MemfoldMemoryBlock) -> None:
        content = "Alice has a cat.\nThe train leaves at noon."
        assert await block.atruncate(content, 1) == "Alice has a cat."
        assert await block.atruncate(content, 0) == content
        assert await block.atruncate(content, 1000) is None

    run(dsn, work)


def test_a_memory_flushes_to_it_and_shows_it(dsn: str, db: DB) -> None:
    async def work(block: MemfoldMemoryBlock) -> None:
        memory = Memory.from_defaults(
            session_id="s1",
            token_limit=40,
            chat_history_token_ratio=0.5,
            token_flush_size=10,
            memory_blocks=[block],
        )
        for n in range(8):
            await memory.aput(said(f"Customer number {n} pays in advance."))
        assert memories(db)["Customer number 0 pays in advance."] == 1
        shown = await memory.aget()
        assert "<memory>" in str(shown[0].content)
        assert "pays in advance" in str(shown[0].content)

    run(dsn, work, max_facts=2)


def test_a_refused_message_is_reported(dsn: str) -> None:
    async def work(block: MemfoldMemoryBlock) -> None:
        with pytest.raises(errors.ContentTooLongError):
            await block.aput([said("x " * 60_000)])

    run(dsn, work)
    with pytest.raises(errors.InvalidDsnError):
        MemfoldMemoryBlock(dsn="postgresql://[", tenant_id="acme")


def test_its_models_embed(dsn: str) -> None:
    async def work(block: MemfoldMemoryBlock) -> None:
        assert block.embedder.model == "unknown"
        await block.aput([said("Alice has a cat.")])
        assert await block.aget([said("cat")]) == "Alice has a cat."
        assert "host=" not in repr(block) + block.model_dump_json()

    run(dsn, work, embedder=LlamaIndexEmbedder(MockEmbedding(embed_dim=8)))
    assert len(LlamaIndexEmbedder(MockEmbedding(embed_dim=8)).embed(["a", "b"])) == 2


def test_the_page_prints_what_it_says(dsn: str) -> None:
    printed, said_so = run_page("LlamaIndex", dsn=dsn, embedder=embedder())
    assert printed == said_so
