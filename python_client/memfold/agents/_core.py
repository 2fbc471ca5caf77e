"""Shared parts of the framework adapters: connections, slots, source turns, recall.

Each call of an adapter is written once, as steps of ``memfold.client.calls``; ``run`` and ``arun`` execute them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from memfold.client._dsn import read_dsn
from memfold.client.calls import AsyncMemfold, Memfold
from memfold.client.calls.core import Core
from memfold.client.calls.recall import search
from memfold.client.calls.steps import Steps
from memfold.client.embedding import EmbedderProtocol

T = TypeVar("T")

CONNECTIONS: Final = 8

SLOT: Final = ("subject", "predicate", "object")


class Connections:
    """A few clients of one database: shared by all threads, and separate for each event loop. Opened when needed."""

    def __init__(
        self,
        dsn: str,
        tenant_id: str | None = None,
        embedder: EmbedderProtocol | None = None,
        *,
        connections: int = CONNECTIONS,
    ) -> None:
        self.embedder = embedder
        # A call whose COMMIT was lost is sent again with its key: nothing is lost or counted twice.
        self._options: dict[str, Any] = {"tenant_id": tenant_id, "embedder": embedder, "retry_safe": True}
        self._dsn = read_dsn(dsn)
        self._connections = connections
        self._turn = threading.BoundedSemaphore(connections)
        self._idle: list[Memfold] = []
        self._loops: WeakKeyDictionary[Any, tuple[asyncio.Semaphore, list[AsyncMemfold]]] = (
            WeakKeyDictionary()
        )

    def run(self, work: Callable[[Core], Steps[T]]) -> T:
        """Execute a call in this thread."""
        with self._blocking_client() as client:
            return client._drive(work(client._core))

    async def arun(self, work: Callable[[Core], Steps[T]]) -> T:
        """Execute a call in the running event loop."""
        async with self.client() as client:
            return await client._drive(work(client._core))

    @contextlib.contextmanager
    def _blocking_client(self) -> Iterator[Memfold]:
        with self._turn:
            client = self._idle.pop() if self._idle else Memfold(self._dsn, **self._options)
            try:
                yield client
            finally:
                self._idle.append(client)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[AsyncMemfold]:
        """A client of the running event loop, for one caller at a time."""
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops[loop] = asyncio.Semaphore(self._connections), []
        turn, idle = self._loops[loop]
        async with turn:
            client = idle.pop() if idle else AsyncMemfold(self._dsn, **self._options)
            try:
                yield client
            finally:
                idle.append(client)

    def close(self) -> None:
        """Close the clients of threads; another call opens them again."""
        while self._idle:
            self._idle.pop().close()

    async def aclose(self) -> None:
        """Close the clients of threads and of the running event loop."""
        self.close()
        _, idle = self._loops.get(asyncio.get_running_loop(), (None, []))
        while idle:
            await idle.pop().close()


def slot_of(*places: object) -> dict[str, str]:
    """Subject, predicate and object, from the first mapping that has the first two."""
    for place in places:
        if isinstance(place, Mapping):
            slot = {
                name: place[name] for name in SLOT if isinstance(place.get(name), str) and place[name].strip()
            }
            if "subject" in slot and "predicate" in slot:
                return slot
    return {}


def recall(
    core: Core, query: str, bucket_id: str, limit: int, tenant_id: str | None = None
) -> Steps[list[dict[str, Any]]]:
    """Memories by meaning, or by the words of the query if there is no embedder."""
    found = yield from search(
        core,
        query,
        tenant_id,
        {"bucket_id": bucket_id},
        {"max_results": limit},
        by=None,
        verify=False,
        merge_text=False,
        judge_timeout=0,
    )
    return [{name: getattr(memory, name) for name in memory.__slots__} for memory in found]


def turn_id(scheme: str, *parts: str) -> str:
    """The source turn that identifies what a framework has stored, for ``erase_source()`` and the ledger."""
    return f"{scheme}:{json.dumps(parts, ensure_ascii=False)}"
