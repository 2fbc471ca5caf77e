"""The memory service of Google's Agent Development Kit over memfold. Needs ``memfold[adk]``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from memfold.agents._core import CONNECTIONS, Connections, recall, slot_of, turn_id
from memfold.client import errors
from memfold.client._extras import needs
from memfold.client.embedding import EmbedderProtocol

with needs("adk"):
    from google.adk.events.event import Event
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.adk.sessions.session import Session
    from google.genai import types

__all__ = ["MemfoldMemoryService"]


class MemfoldMemoryService(BaseMemoryService):
    """Memories of an app's users: the app is the tenant, the user the bucket.

    Each event with text is one candidate. Its source turn and idempotency key are made of its session and id, so adding a
    session again changes nothing. What the user says is observed, what an agent says is inferred. Subject,
    predicate and object in the ``custom_metadata`` of an event or a memory are the fact's slot. Without an embedder,
    memories are found by the words of the query.

    ``delete_memory`` rejects: the memory is no longer found, even if it is stated again, until ``undo``. With
    ``erases=True`` it erases: nothing is left, so adding a session again stores it again.
    """

    def __init__(
        self,
        dsn: str,
        *,
        embedder: EmbedderProtocol | None = None,
        max_results: int = 10,
        erases: bool = False,
        connections: int = CONNECTIONS,
    ) -> None:
        self._connections = Connections(dsn, None, embedder, connections=connections)
        self._max_results = max_results
        self._erases = erases

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._connections.aclose()

    async def add_session_to_memory(self, session: Session) -> None:
        """Store the session's events. Raises the first event's error after the others are stored."""
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """As ``add_session_to_memory``, for some events."""
        candidates = []
        for event in events:
            if event.partial or not (text := _text(event.content)):
                continue
            own = event.custom_metadata or {}
            candidates.append(
                {
                    "content": text,
                    **_provenance(user_id, session_id or "", event.id),
                    "origin": "observed" if event.author == "user" else "inferred",
                    "observed_at": datetime.fromtimestamp(event.timestamp, UTC),
                    "session_id": session_id or None,
                    "metadata": {**(custom_metadata or {}), **own, "author": event.author},
                    **slot_of(own),
                }
            )
        await self._ingest(app_name, user_id, candidates)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store facts. A fact with an id counts once, no matter how often it is added."""
        candidates = []
        for entry in memories:
            metadata = {**(custom_metadata or {}), **entry.custom_metadata}
            if entry.author is not None:
                metadata["author"] = entry.author
            candidate: dict[str, Any] = {
                "content": _text(entry.content),
                **_provenance(user_id, "", entry.id),
                "metadata": metadata,
                **slot_of(entry.custom_metadata),
            }
            if entry.timestamp is not None:
                # without a time zone it is local time, as ADK writes it
                candidate["observed_at"] = datetime.fromisoformat(entry.timestamp).astimezone()
            candidates.append(candidate)
        await self._ingest(app_name, user_id, candidates)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Each fact once, best first."""
        found = await self._connections.arun(
            lambda core: recall(core, query, user_id, self._max_results, app_name)
        )
        return SearchMemoryResponse(memories=[_entry(memory) for memory in found])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Reject a memory, or erase it with all its texts. Raises MemoryNotFoundError; ValueError without an id."""
        if memory_id is None:
            raise ValueError(
                "memory_id is None: pass the memory to delete; erase_bucket() deletes all of a user's"
            )
        async with self._connections.client() as client:
            memory = await client.get(memory_id, app_name)
            if memory.bucket_id != user_id:
                raise errors.MemoryNotFoundError(
                    "unknown memory", detail=f"{memory_id} does not belong to {user_id!r}."
                )
            if self._erases:
                await client.erase(memory_id=memory_id, tenant_id=app_name)
            else:
                await client.reject(memory_id, "deleted by ADK", app_name)

    async def _ingest(self, app_name: str, user_id: str, candidates: Iterable[Mapping[str, Any]]) -> None:
        failed: errors.MemfoldError | None = None
        async with self._connections.client() as client:
            async for item in client.ingest_many(candidates, app_name, bucket_id=user_id):
                # "." says nothing that could be remembered
                if not isinstance(item.error, errors.EmptyContentError):
                    failed = failed or item.error
        if failed is not None:
            raise failed


def _text(content: types.Content | None) -> str:
    parts = content.parts if content is not None and content.parts else []
    return " ".join(part.text.strip() for part in parts if part.text and not part.thought).strip()


def _provenance(user_id: str, session_id: str, key: str | None) -> dict[str, Any]:
    if not key:
        return {}
    turn = turn_id("adk", user_id, session_id, key)
    return {"source_turn_ids": [turn], "idempotency_key": turn}


def _entry(memory: Mapping[str, Any]) -> MemoryEntry:
    said = {"confidence": memory["confidence"], "observations": memory["repetition_count"] + 1}
    slot = {name: memory[name] for name in ("subject", "predicate", "object") if memory[name] is not None}
    last_seen = memory.get("last_seen")
    return MemoryEntry(
        id=str(memory["memory_id"]),
        content=types.Content(role="user", parts=[types.Part(text=memory["content"])]),
        author=memory.get("metadata", {}).get("author"),
        timestamp=None if last_seen is None else last_seen.isoformat(),
        custom_metadata={**slot, **said},
    )
