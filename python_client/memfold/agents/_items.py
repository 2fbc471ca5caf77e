"""Items that a framework knows by its own keys.

A key is one of memfold's source turns: a fact stored under many keys is one memory, and forgetting a key removes what
only that key supports.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, LiteralString
from uuid import UUID, uuid4

from memfold.agents import _queries
from memfold.agents._core import turn_id
from memfold.client import errors, queries
from memfold.client._log import log_decision
from memfold.client.calls.arguments import prepared_value
from memfold.client.calls.batch import Batches
from memfold.client.calls.core import Core
from memfold.client.calls.steps import Steps
from memfold.client.types import Embedding, IngestResult, Row

BATCH: Final = 500
MOST_FOUND: Final = 1000
"""The most memories of a bucket that a search by meaning can return: as many as search_memories() does."""
OPERATORS: Final = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")


@dataclass(frozen=True, slots=True)
class Item:
    """What a key stands for. A memory that this framework has not stored has its id as ``key``, and None as ``value``.

    ``content``, ``value`` and ``ttl`` are those last stored under the key; everything else is the memory's.
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
    ttl: float | None = None


@dataclass(frozen=True, slots=True)
class Under:
    """The buckets: the one of this name and those below it (separator None: only that one); empty: all of the tenant's."""

    prefix: str = ""
    separator: str | None = "."

    def parameters(self) -> dict[str, Any]:
        if self.separator is None:
            return {"lower": self.prefix, "upper": self.prefix, "below": None}
        if not self.prefix:
            return {"lower": "", "upper": None, "below": ""}
        name = self.prefix.removesuffix(self.separator)
        return {
            "lower": self.prefix,
            "upper": name + chr(ord(self.separator) + 1),
            "below": name + self.separator,
        }


def rules(filters: Mapping[str, Any] | None, *path: str) -> list[dict[str, Any]]:
    """The conditions of ``filters`` on values under ``path``: equality, or operators like {"$gte": 3}. Raises ValueError."""
    made = []
    for name, wanted in (filters or {}).items():
        is_operators = isinstance(wanted, Mapping) and any(str(op).startswith("$") for op in wanted)
        for op, value in wanted.items() if is_operators else [("$eq", wanted)]:
            if op not in OPERATORS:
                raise ValueError(f"unknown operator {op!r}: operators are {', '.join(OPERATORS)}")
            made.append({"path": [*path, name], "op": op, "value": value})
    return made


class Items:
    """What one framework stores, by its own keys, per bucket or per tenant. Calls are steps, run by ``Connections``."""

    def __init__(self, scheme: str, *, of_tenant: bool = False) -> None:
        self._scheme = scheme
        self._of_tenant = of_tenant

    def put(
        self,
        core: Core,
        bucket_id: str,
        key: str,
        content: str,
        value: Any,
        *,
        embed: bool = True,
        known: bool = True,
        ttl: float | None = None,
        **fields: Any,
    ) -> Steps[IngestResult]:
        """Store what a key stands for now; what only this key stated before becomes history.

        fields: further arguments of ``ingest``. embed: whether to ask the client's embedder. known: whether the key may be
        in use. ttl: minutes until it expires, for ``put_off``.
        """
        asked = core if embed else _without_embedder(core)
        given = self._given(bucket_id, key, value, fields)
        if ttl is not None:
            given["metadata"]["ttl"] = ttl
            given["valid_until"] = datetime.now(UTC) + timedelta(minutes=ttl)
        if known:
            result, is_changed = yield from self._state(asked, content, given)
            if not is_changed or (memory_id := _stated(result)) is None:
                return result
            (turn,) = given["source_turn_ids"]
            if (yield from self._retire_others_of(core, bucket_id, turn, memory_id)):
                return result
        return (yield from asked.ingest(content, None, given))

    def _state(self, core: Core, content: str, given: Mapping[str, Any]) -> Steps[tuple[IngestResult, bool]]:
        """As ``ingest``, and whether the key has ever stated another memory: in one transaction, one at a time per key."""
        arguments = core.arguments({**given, "content": content, "idempotency_key": uuid4().hex}, None)

        def send(arguments: Mapping[str, Any]) -> Steps[list[Row]]:
            ingest, is_changed = queries.call(queries.INGEST, arguments), _queries.STATED_OTHERS
            return core.send(
                f"select i.*, {is_changed} from ({ingest}) as i",  # noqa: S608 (literals of this package)
                {**arguments, "turn": given["source_turn_ids"][0]},
                repeatable=True,
                opening=_queries.OPEN_TURN,
            )

        rows = yield from core.known_or_embedded(arguments, send)
        result = IngestResult.from_row(rows[0])
        log_decision(content, result)
        return result, rows[0]["is_changed"]

    def put_many(
        self,
        core: Core,
        bucket_id: str,
        puts: Iterable[tuple[str, str, Any, Mapping[str, Any]]],
        *,
        known: bool,
    ) -> Steps[None]:
        """As ``put``, for (key, content, value, fields), in batches that are stored completely or not at all."""
        puts = list(puts)
        if len(puts) == 1:
            # a batch of one costs more than a single call
            ((key, content, value, fields),) = puts
            yield from self.put(core, bucket_id, key, content, value, known=known, **fields)
            return
        batches = Batches(core, None, {}, batch_size=BATCH, wait=False, on_error="abort", progress=None)
        # if two have one key, the later one counts
        last = {
            key: {"content": content, **self._given(bucket_id, key, value, fields)}
            for key, content, value, fields in puts
        }
        for entries in batches.taken(last.values()):
            yield from batches.embed((yield from batches.look_up(entries)))
            items = yield from batches.store(entries)
            if known:
                given = list(last.values())
                stored = [(given[item.index], item.result) for item in items if item.result is not None]
                for forgotten in (yield from self._retire_others(core, bucket_id, stored)):
                    fields = dict(forgotten)
                    yield from core.ingest(fields.pop("content"), None, fields)

    def _given(self, bucket_id: str, key: str, value: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
        turns = [self._turn(bucket_id, key)]
        return {**fields, "bucket_id": bucket_id, "source_turn_ids": turns, "metadata": {"value": value}}

    def _retire_others(
        self, core: Core, bucket_id: str, stored: Iterable[tuple[dict[str, Any], IngestResult]]
    ) -> Steps[list[dict[str, Any]]]:
        """Retire what keys stated before their last statement. Yields those that were forgotten and must be stored again."""
        by_turn = {
            given["source_turn_ids"][0]: (given, memory_id)
            for given, result in stored
            if (memory_id := _stated(result)) is not None
        }
        if not by_turn:
            return []
        asked = {"turns": list(by_turn), "memory_ids": [memory_id for _, memory_id in by_turn.values()]}
        forgotten = []
        for row in (yield from self._read(core, _queries.CHANGED_TURNS, asked, opening=_queries.OPEN_TURNS)):
            given, memory_id = by_turn[row["turn"]]
            if not (yield from self._retire_others_of(core, bucket_id, row["turn"], memory_id)):
                forgotten.append(given)
        return forgotten

    def _retire_others_of(self, core: Core, bucket_id: str, turn: str, memory_id: UUID) -> Steps[bool]:
        """Among concurrent puts of a key, the last to look sees the others, so that one stays. False: this one was
        forgotten."""
        given = {"turn": turn, "memory_id": memory_id, "bucket_id": bucket_id}
        others = yield from self._read(core, _queries.OTHERS_OF_TURN, given)
        if not all(row["is_sole"] for row in others):
            # keep what other keys also state
            yield from self._erase(core, turn)
            return False
        for row in others:
            named = {"memory_id": row["memory_id"], "by_id": memory_id, "reason": f"{turn} was put again"}
            # what was merged, rejected or erased in the meantime can no longer be superseded
            with contextlib.suppress(errors.MemoryStateError, errors.MemoryNotFoundError):
                yield from core.manual_action(queries.SUPERSEDE, named, None)
        return True

    def get(self, core: Core, bucket_id: str, keys: Sequence[str]) -> Steps[list[Item]]:
        """What keys stand for, in their order; keys that stand for nothing are omitted."""
        turns = [self._turn(bucket_id, key) for key in keys]
        rows = yield from self._read(core, _queries.GET_ITEMS, {"turns": turns})
        found = {item.key: item for item in self._items(rows)}
        for key in keys:
            if key not in found and (memory_id := _uuid(key)) is not None:
                with contextlib.suppress(errors.MemoryNotFoundError):
                    memory = yield from core.get(memory_id, None)
                    if memory.status == "active" and (self._of_tenant or memory.bucket_id == bucket_id):
                        found[key] = Item(
                            key, memory.bucket_id, memory_id, memory.content, None, memory.subject, memory.predicate,
                            memory.object, memory.created_at, memory.last_seen or memory.created_at,
                        )  # fmt: skip
        return [found[key] for key in keys if key in found]

    def put_off(self, core: Core, items: Iterable[Item]) -> Steps[None]:
        """Make those with a ttl expire one ttl from now; what has been forgotten since stays forgotten."""
        turns = [self._turn(item.bucket_id, item.key) for item in items if item.ttl is not None]
        if turns:
            given = {"tenant_id": core.tenant_id, "turns": turns}
            yield from core.send(_queries.PUT_OFF, given, repeatable=True, keep=_restated)

    def delete(self, core: Core, bucket_id: str, keys: Iterable[str]) -> Steps[int]:
        """Forget keys, with what only they support; returns how many stood for something."""
        count = 0
        for key in keys:
            gone = yield from self._erase(core, self._turn(bucket_id, key))
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
        """The items of active memories, most recently observed first; each memory once."""
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
        """The nearest items to a text, or to a vector, by cosine (``score``); each fact once."""
        vector: Any = embedding
        if query is not None:
            if core.embedder is None:
                raise ValueError("a search by meaning needs an embedder")
            (vector,) = yield from core._vectors(core.embedder, [query])
            yield from core.register(core.embedder, vector)
        elif core.embedder is not None:
            vector = prepared_value("embedding", vector)
            yield from core.register(core.embedder, vector)
        if core.embedder is not None:
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
        """The buckets that have an active memory, in order."""
        rows = yield from self._read(core, _queries.LIST_BUCKETS, under.parameters())
        return [row["bucket_id"] for row in rows]

    def _turn(self, bucket_id: str, key: str) -> str:
        return turn_id(self._scheme, "" if self._of_tenant else bucket_id, key)

    def _read(
        self,
        core: Core,
        statement: LiteralString,
        given: Mapping[str, Any],
        opening: LiteralString = queries.SET_TENANT,
    ) -> Steps[list[Row]]:
        return (
            yield from core.send(
                statement, {"tenant_id": core.tenant_id, **given}, reads=True, opening=opening
            )
        )

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


def _stated(result: IngestResult) -> UUID | None:
    """The memory that holds what was put; None: it was refused, or had already been replaced."""
    return None if result.action in ("rejected", "historical") else result.memory_id


def _restated(rows: Sequence[Row]) -> bool:
    return all(row["action"] == "merged" for row in rows)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
