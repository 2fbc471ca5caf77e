"""What the adapters of frameworks share: connections, and items that frameworks know by a key of theirs.

A key is a source turn of memfold's, so that one fact stored under many keys is one memory, and forgetting a key takes away
what it alone supports. Each call is written once, as the steps of ``memfold.client``; ``run`` and ``arun`` carry them out.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

from memfold import errors, queries
from memfold._dsn import read_dsn
from memfold.client import AsyncMemfold, Memfold
from memfold.client.arguments import prepared_value
from memfold.client.core import Core
from memfold.client.recall import search
from memfold.client.steps import Steps
from memfold.embedding import EmbedderProtocol
from memfold.integrations import _queries
from memfold.types import Embedding, IngestResult, Row

T = TypeVar("T")

CONNECTIONS: Final = 8
MOST_FOUND: Final = 1000
"""Memories of a bucket that a search by meaning can look through: as many as search_memories() shows."""
OPERATORS: Final = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")

SLOT: Final = ("subject", "predicate", "object")


class Connections:
    """A few clients of one database: for all threads together, and for each event loop. Opened when they are needed."""

    def __init__(
        self,
        dsn: str,
        tenant_id: str | None = None,
        embedder: EmbedderProtocol | None = None,
        *,
        connections: int = CONNECTIONS,
    ) -> None:
        self.embedder = embedder
        # A call whose COMMIT was lost is sent again under its key: nothing is lost, and nothing counted twice.
        self._options: dict[str, Any] = {"tenant_id": tenant_id, "embedder": embedder, "retry_safe": True}
        self._dsn = read_dsn(dsn)
        self._connections = connections
        self._turn = threading.BoundedSemaphore(connections)
        self._idle: list[Memfold] = []
        self._loops: WeakKeyDictionary[Any, tuple[asyncio.Semaphore, list[AsyncMemfold]]] = (
            WeakKeyDictionary()
        )

    def run(self, work: Callable[[Core], Steps[T]]) -> T:
        """Carry out a call in this thread."""
        with self._blocking_client() as client:
            return client._drive(work(client._core))

    async def arun(self, work: Callable[[Core], Steps[T]]) -> T:
        """Carry out a call in the running event loop."""
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
        """Close what threads have opened; another call opens it again."""
        while self._idle:
            self._idle.pop().close()

    async def aclose(self) -> None:
        """Close what threads and the running event loop have opened."""
        self.close()
        _, idle = self._loops.get(asyncio.get_running_loop(), (None, []))
        while idle:
            await idle.pop().close()


@dataclass(frozen=True, slots=True)
class Item:
    """What a key stands for. ``key``: of a memory that this framework has not stored, its id; ``value`` is None then.

    ``content`` and ``value`` are as they were stored under the key, last; all else is the memory's.
    """

    key: str
    bucket_id: str
    memory_id: UUID
    content: str
    value: Any
    subject: str | None
    predicate: str | None
    object: str | None
    created_at: datetime
    updated_at: datetime
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Under:
    """Which buckets: that of this name and those below it (``separator``); all of the tenant's if it is empty."""

    prefix: str = ""
    separator: str = "."

    def parameters(self) -> dict[str, Any]:
        if not self.prefix:
            return {"lower": "", "upper": None, "below": ""}
        following = chr(ord(self.separator) + 1)
        return {
            "lower": self.prefix,
            "upper": self.prefix + following,
            "below": self.prefix + self.separator,
        }


def rules(filters: Mapping[str, Any] | None, *path: str) -> list[dict[str, Any]]:
    """What ``filters`` ask of values, under ``path``: equality, or operators such as {"$gte": 3}. Raises ValueError."""
    made = []
    for name, wanted in (filters or {}).items():
        is_operators = isinstance(wanted, Mapping) and any(str(op).startswith("$") for op in wanted)
        for op, value in wanted.items() if is_operators else [("$eq", wanted)]:
            if op not in OPERATORS:
                raise ValueError(f"unknown operator {op!r}: there are {', '.join(OPERATORS)}")
            made.append({"path": [*path, name], "op": op, "value": value})
    return made


def slot_of(*places: object) -> dict[str, str]:
    """Subject, predicate and object, from the first mapping that has the former two."""
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
    """Memories by their meaning, or by the query's words where there is no embedder."""
    if core.embedder is None:
        given = {
            "tenant_id": core.tenant_id if tenant_id is None else tenant_id,
            "bucket_id": bucket_id,
            "query": query,
            "max_results": limit,
            "subject": None,
            "as_of": None,
        }
        return [dict(row) for row in (yield from core.send(_queries.RECALL_BY_WORDS, given, reads=True))]
    found = yield from search(
        core,
        query,
        tenant_id,
        {"bucket_id": bucket_id},
        {"max_results": limit},
        verify=False,
        merge_text=False,
        judge_timeout=0,
    )
    return [{name: getattr(memory, name) for name in memory.__slots__} for memory in found]


def turn_id(scheme: str, *parts: str) -> str:
    """A source turn by which ``erase_source()`` and the ledger know what a framework has stored."""
    return f"{scheme}:{json.dumps(parts, ensure_ascii=False)}"


class Items:
    """What one framework stores, by keys of its own. Its calls are steps, for ``Connections``."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme

    def put(
        self,
        core: Core,
        bucket_id: str,
        key: str,
        content: str,
        value: Any,
        *,
        embed: bool = True,
        **fields: Any,
    ) -> Steps[IngestResult]:
        """Store what a key stands for now: what it alone stated before becomes history.

        fields: further arguments of ``ingest``. embed: whether the client's embedder is asked.
        """
        turn = turn_id(self._scheme, bucket_id, key)
        given = {**fields, "bucket_id": bucket_id, "source_turn_ids": [turn], "metadata": {"value": value}}
        asked = core if embed else _without_embedder(core)
        result = yield from asked.ingest(content, None, given)
        if result.action in ("rejected", "historical") or result.memory_id is None:
            return result
        for _ in range(core.max_attempts):
            others = yield from self._read(
                core, _queries.OTHERS_OF_TURN, {"turn": turn, "memory_id": result.memory_id}
            )
            if not all(row["is_sole"] for row in others):
                break
            for row in others:
                named = {
                    "memory_id": row["memory_id"],
                    "by_id": result.memory_id,
                    "reason": f"{turn} was put again",
                }
                # what somebody has merged, rejected or erased at this moment is no longer there to be superseded
                with contextlib.suppress(errors.MemoryStateError, errors.MemoryNotFoundError):
                    yield from core.manual_action(queries.SUPERSEDE, named, None)
            if not others:
                return result
            # looked at again: of those who put the key at the same time, the last leaves one
        else:
            return result
        # What other keys state as well stays as theirs.
        yield from self._erase(core, turn)
        return (yield from asked.ingest(content, None, given))

    def get(self, core: Core, bucket_id: str, keys: Sequence[str]) -> Steps[list[Item]]:
        """What keys stand for, in their order; those that stand for nothing are left out."""
        turns = [turn_id(self._scheme, bucket_id, key) for key in keys]
        rows = yield from self._read(core, _queries.GET_ITEMS, {"turns": turns})
        found = {item.key: item for item in self._items(rows)}
        for key in keys:
            if key not in found and (memory_id := _uuid(key)) is not None:
                with contextlib.suppress(errors.MemoryNotFoundError):
                    memory = yield from core.get(memory_id, None)
                    if (memory.bucket_id, memory.status) == (bucket_id, "active"):
                        found[key] = Item(
                            key, bucket_id, memory_id, memory.content, None, memory.subject, memory.predicate,
                            memory.object, memory.created_at, memory.last_seen or memory.created_at,
                        )  # fmt: skip
        return [found[key] for key in keys if key in found]

    def delete(self, core: Core, bucket_id: str, keys: Iterable[str]) -> Steps[int]:
        """Forget keys, with what they alone support; how many stood for something."""
        count = 0
        for key in keys:
            gone = yield from self._erase(core, turn_id(self._scheme, bucket_id, key))
            if not gone and _uuid(key) is not None and (yield from self.get(core, bucket_id, [key])):
                with contextlib.suppress(errors.MemoryNotFoundError):
                    yield from core.erase({"memory_id": key}, whole_tenant=False, reason=None, tenant_id=None)
                    gone = True
            count += gone
        return count

    def newest(
        self,
        core: Core,
        under: Under,
        filters: Sequence[Mapping[str, Any]] = (),
        limit: int = 10,
        offset: int = 0,
    ) -> Steps[list[Item]]:
        """The items of active memories, those that were observed last first; each memory once."""
        given = {**under.parameters(), **self._page(filters, limit, offset)}
        return self._items((yield from self._read(core, _queries.LIST_ITEMS, given)))

    def find(
        self,
        core: Core,
        under: Under,
        query: str | None,
        filters: Sequence[Mapping[str, Any]] = (),
        limit: int = 10,
        offset: int = 0,
        *,
        embedding: Embedding | None = None,
        embedding_model: str | None = None,
    ) -> Steps[list[Item]]:
        """Those nearest to a text, or to a vector, by cosine (``score``); each fact once."""
        vector: Any = embedding
        if query is not None:
            if core.embedder is None:
                raise ValueError("a search by meaning needs an embedder")
            (vector,) = yield from core._vectors(core.embedder, [query])
            yield from core.register(core.embedder, vector)
            embedding_model = core.embedder.model
        given = {
            **under.parameters(),
            **self._page(filters, limit, offset),
            "query_embedding": prepared_value("embedding", vector),
            "embedding_model": embedding_model,
            "max_results": MOST_FOUND if filters else max(1, min(limit + offset, MOST_FOUND)),
        }
        return self._items((yield from self._read(core, _queries.FIND_ITEMS, given)))

    def buckets(self, core: Core, under: Under) -> Steps[list[str]]:
        """Those that have an active memory, in order."""
        rows = yield from self._read(core, _queries.LIST_BUCKETS, under.parameters())
        return [row["bucket_id"] for row in rows]

    def _read(self, core: Core, statement: Any, given: Mapping[str, Any]) -> Steps[list[Row]]:
        return (yield from core.send(statement, {"tenant_id": core.tenant_id, **given}, repeatable=True))

    def _erase(self, core: Core, turn: str) -> Steps[bool]:
        given = {"source_turn_id": turn}
        done = yield from core.erase(given, whole_tenant=False, reason=None, tenant_id=None)
        return done.erased + done.kept + done.events > 0

    def _page(self, filters: Sequence[Mapping[str, Any]], limit: int, offset: int) -> dict[str, Any]:
        return {
            "scheme": f"{self._scheme}:",
            "filters": json.dumps(list(filters)),
            "max_items": limit,
            "skipped": offset,
        }

    def _items(self, rows: Iterable[Row]) -> list[Item]:
        return [
            Item(**{
                **{name: value for name, value in row.items() if name != "turn"},
                "key": json.loads(row["turn"].removeprefix(f"{self._scheme}:"))[1] if row["turn"] else str(row["memory_id"]),
            })
            for row in rows
        ]  # fmt: skip


def _without_embedder(core: Core) -> Core:
    asked = copy.copy(core)
    asked.embedder = None
    return asked


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
