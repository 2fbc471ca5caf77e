"""Items that a framework knows by a key of its own.

A key is a source turn of memfold's, so that one fact stored under many keys is one memory, and forgetting a key takes away
what it alone supports.
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

from memfold import errors, queries
from memfold._log import log_decision
from memfold.client.arguments import prepared_value
from memfold.client.batch import Batches
from memfold.client.core import Core
from memfold.client.steps import Steps
from memfold.integrations import _queries
from memfold.integrations._core import turn_id
from memfold.types import Embedding, IngestResult, Row

BATCH: Final = 500
MOST_FOUND: Final = 1000
"""Memories of a bucket that a search by meaning can look through: as many as search_memories() shows."""
OPERATORS: Final = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")


@dataclass(frozen=True, slots=True)
class Item:
    """What a key stands for. ``key``: of a memory that this framework has not stored, its id; ``value`` is None then.

    ``content``, ``value`` and ``ttl`` are as they were stored under the key, last; all else is the memory's.
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
    """Which buckets: that of this name and those below it (separator None: it alone); all of the tenant's if it is empty."""

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
    """What ``filters`` ask of values, under ``path``: equality, or operators such as {"$gte": 3}. Raises ValueError."""
    made = []
    for name, wanted in (filters or {}).items():
        is_operators = isinstance(wanted, Mapping) and any(str(op).startswith("$") for op in wanted)
        for op, value in wanted.items() if is_operators else [("$eq", wanted)]:
            if op not in OPERATORS:
                raise ValueError(f"unknown operator {op!r}: there are {', '.join(OPERATORS)}")
            made.append({"path": [*path, name], "op": op, "value": value})
    return made


class Items:
    """What one framework stores, by keys of its own: of a bucket, or of the tenant. Calls are steps, for ``Connections``."""

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
        """Store what a key stands for now: what it alone stated before becomes history.

        fields: further arguments of ``ingest``. embed: whether the client's embedder is asked. known: the key may be in
        use. ttl: minutes until it expires, for ``put_off``.
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
        """As ``ingest``, and whether the key has ever stated another memory: in one transaction, one a key at a time."""
        arguments = yield from core.candidate(content, None, given)
        arguments["idempotency_key"] = uuid4().hex
        ingest, is_changed = queries.call(queries.INGEST, arguments), _queries.STATED_OTHERS
        rows = yield from core.send(
            f"select i.*, {is_changed} from ({ingest}) as i",  # noqa: S608 (literals of this package)
            {**arguments, "turn": given["source_turn_ids"][0]},
            repeatable=True,
            opening=_queries.OPEN_TURN,
        )
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
        """As ``put``, of (key, content, value, fields), in batches: all of one or none. known: keys may be in use."""
        puts = list(puts)
        if len(puts) == 1:
            # a batch of one costs more than a call
            ((key, content, value, fields),) = puts
            yield from self.put(core, bucket_id, key, content, value, known=known, **fields)
            return
        batches = Batches(core, None, {}, batch_size=BATCH, wait=False, on_error="abort", progress=None)
        # of two with one key the later one counts
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
        """What keys stated before their last statement. Gives those that were forgotten, and are to be stored again."""
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
        """False: the key was forgotten."""
        for _ in range(core.max_attempts):
            given = {"turn": turn, "memory_id": memory_id, "bucket_id": bucket_id}
            others = yield from self._read(core, _queries.OTHERS_OF_TURN, given)
            if not all(row["is_sole"] for row in others):
                # what other keys state as well stays as theirs
                yield from self._erase(core, turn)
                return False
            for row in others:
                named = {
                    "memory_id": row["memory_id"],
                    "by_id": memory_id,
                    "reason": f"{turn} was put again",
                }
                # what somebody has merged, rejected or erased at this moment is no longer there to be superseded
                with contextlib.suppress(errors.MemoryStateError, errors.MemoryNotFoundError):
                    yield from core.manual_action(queries.SUPERSEDE, named, None)
            if not others:
                break
            # looked at again: of those who put the key at the same time, the last leaves one
        return True

    def get(self, core: Core, bucket_id: str, keys: Sequence[str]) -> Steps[list[Item]]:
        """What keys stand for, in their order; those that stand for nothing are left out."""
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
        """Let those with a ttl expire a ttl from now; what has been forgotten since stays so."""
        turns = [self._turn(item.bucket_id, item.key) for item in items if item.ttl is not None]
        if turns:
            given = {"tenant_id": core.tenant_id, "turns": turns}
            yield from core.send(_queries.PUT_OFF, given, repeatable=True, keep=_restated)

    def delete(self, core: Core, bucket_id: str, keys: Iterable[str]) -> Steps[int]:
        """Forget keys, with what they alone support; how many stood for something."""
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
        """Those that have an active memory, in order."""
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
    """The memory that holds what was put; None: it was refused, or had been replaced before."""
    return None if result.action in ("rejected", "historical") else result.memory_id


def _restated(rows: Sequence[Row]) -> bool:
    return all(row["action"] == "merged" for row in rows)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
