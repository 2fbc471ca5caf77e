"""A LlamaIndex memory block over memfold. Needs ``memfold[llamaindex]``."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from memfold.agents._core import Connections, recall, turn_id
from memfold.agents._items import Items, Under
from memfold.client._extras import needs

with needs("llamaindex"):
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.base.llms.types import ChatMessage, MessageRole
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
    from llama_index.core.memory import BaseMemoryBlock
    from llama_index.core.utils import get_tokenizer

    from memfold.client.facts import Fact

__all__ = ["LlamaIndexEmbedder", "MemfoldMemoryBlock"]


@dataclass(frozen=True)
class LlamaIndexEmbedder:
    """Use a LlamaIndex model as memfold's embedder."""

    embed_model: BaseEmbedding
    dimensions: int | None = None

    @property
    def model(self) -> str:
        """The name of its vectors."""
        return str(self.embed_model.model_name)

    def embed(self, texts: list[str]) -> list[list[float]]:
        """One vector per text."""
        return self.embed_model.get_text_embedding_batch(texts)

    async def aembed(self, texts: list[str]) -> list[list[float]]:
        """As ``embed``."""
        return await self.embed_model.aget_text_embedding_batch(texts)


class MemfoldMemoryBlock(BaseMemoryBlock[str]):
    """Facts of earlier conversations, one per line, nearest to the last message first.

    ``extract`` returns the facts of some messages, with their slots: a call of a model with ``memfold.client.facts`` as its
    schema, blocking or awaited. Without it, each message of ``roles`` is a fact. A session is a source turn: what one
    session repeats is counted, but is not further evidence.
    """

    name: str = Field(default="memfold", description="The name of the block.")
    dsn: str = Field(exclude=True, repr=False, description="The database.")
    tenant_id: str = Field(description="The tenant.")
    bucket_id: str = Field(default="default", description="The bucket, such as that of one user.")
    embedder: Any = Field(
        default=None, exclude=True, description="If None, facts are found by the words of the message."
    )
    extract: Callable[[list[ChatMessage]], Iterable[Fact] | Awaitable[Iterable[Fact]]] | None = Field(
        default=None, exclude=True, description="Returns the facts of some messages."
    )
    roles: Sequence[MessageRole] = Field(
        default=(MessageRole.USER,), description="The roles whose messages are facts."
    )
    max_facts: int = Field(default=10, description="The most facts in the block.")
    _connections: Connections = PrivateAttr()

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._connections = Connections(self.dsn, self.tenant_id, self.embedder)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._connections.aclose()

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        query = next(
            (m.content for m in reversed(messages or []) if m.role == MessageRole.USER and m.content), None
        )
        if query:
            found = await self._connections.arun(
                lambda core: recall(core, query, self.bucket_id, self.max_facts)
            )
            return "\n".join(memory["content"] for memory in found)
        under = Under(self.bucket_id, None)
        items = await self._connections.arun(
            lambda core: Items("li").newest(core, under, limit=self.max_facts)
        )
        return "\n".join(item.content for item in items)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        by_session: dict[str | None, list[ChatMessage]] = {}
        for message in messages:
            if message.role in self.roles and (message.content or "").strip():
                by_session.setdefault(message.additional_kwargs.get("session_id"), []).append(message)
        for session_id, said in by_session.items():
            candidates = [{"content": message.content} for message in said]
            if self.extract is not None:
                facts = self.extract(said)
                facts = await facts if inspect.isawaitable(facts) else facts
                candidates = [fact.arguments() for fact in facts]
            turns = [] if session_id is None else [turn_id("li-session", self.bucket_id, session_id)]
            async with self._connections.client() as client:
                async for _ in client.ingest_many(
                    candidates,
                    bucket_id=self.bucket_id,
                    source_turn_ids=turns,
                    session_id=session_id,
                    on_error="abort",
                ):
                    pass

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Drop the last facts until enough tokens are free."""
        tokenizer, lines = get_tokenizer(), content.split("\n")
        while lines and tokens_to_truncate > 0:
            tokens_to_truncate -= len(tokenizer(lines.pop() + "\n"))
        return "\n".join(lines) or None
