"""A storage backend of CrewAI's memory over memfold. Needs ``memfold[crewai]``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from memfold.agents._core import CONNECTIONS, Connections, slot_of
from memfold.agents._items import Item, Items, Under, rules
from memfold.client._extras import needs
from memfold.client.calls.arguments import prepared_value
from memfold.client.calls.core import Core
from memfold.client.calls.steps import Steps
from memfold.client.embedding import Embedder

with needs("crewai"):
    from crewai.memory.types import MemoryRecord, ScopeInfo

__all__ = ["MemfoldStorage"]

Found = list[tuple[MemoryRecord, float]]

ALL = 1_000_000
PAGE = 500


class MemfoldStorage:
    """The records of one tenant: a scope is a bucket, a record's id a source turn, each fact one record.

    CrewAI embeds; ``embedding_model`` names its model, because only vectors of one name are compared. Subject, predicate
    and object in a record's metadata are the fact's slot. ``Memory(storage=MemfoldStorage(...))``, or
    ``set_memory_storage_factory(lambda spec: MemfoldStorage(...))``. A record that is shown stands for all that say the
    same: deleting by criteria deletes those too, deleting an id only forgets that id.
    """

    def __init__(
        self, dsn: str, *, tenant_id: str, embedding_model: str, connections: int = CONNECTIONS
    ) -> None:
        self._connections = Connections(dsn, tenant_id, connections=connections)
        self._model = Embedder(embed=_never, model=embedding_model)
        self._items = Items("crew", of_tenant=True)

    def close(self) -> None:
        """Close its connections, except those of event loops."""
        self._connections.close()

    def save(self, records: list[MemoryRecord]) -> None:
        """Store records, 500 of a scope per transaction."""
        self._connections.run(self._saving(records))

    async def asave(self, records: list[MemoryRecord]) -> None:
        """As ``save``."""
        await self._connections.arun(self._saving(records))

    def search(
        self, query_embedding: list[float], scope_prefix: str | None = None, categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None, limit: int = 10, min_score: float = 0.0,
    ) -> Found:  # fmt: skip
        """The nearest facts, with their cosines."""
        found = self._connections.run(
            self._finding(query_embedding, scope_prefix, categories, metadata_filter, limit)
        )
        return _scored(found, min_score)

    async def asearch(
        self, query_embedding: list[float], scope_prefix: str | None = None, categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None, limit: int = 10, min_score: float = 0.0,
    ) -> Found:  # fmt: skip
        """As ``search``."""
        found = await self._connections.arun(
            self._finding(query_embedding, scope_prefix, categories, metadata_filter, limit)
        )
        return _scored(found, min_score)

    def delete(
        self, scope_prefix: str | None = None, categories: list[str] | None = None, record_ids: list[str] | None = None,
        older_than: datetime | None = None, metadata_filter: dict[str, Any] | None = None,
    ) -> int:  # fmt: skip
        """Forget records that meet all criteria; returns their number."""
        return self._connections.run(
            self._deleting(scope_prefix, categories, record_ids, older_than, metadata_filter)
        )

    async def adelete(
        self, scope_prefix: str | None = None, categories: list[str] | None = None, record_ids: list[str] | None = None,
        older_than: datetime | None = None, metadata_filter: dict[str, Any] | None = None,
    ) -> int:  # fmt: skip
        """As ``delete``."""
        return await self._connections.arun(
            self._deleting(scope_prefix, categories, record_ids, older_than, metadata_filter)
        )

    def update(self, record: MemoryRecord) -> None:
        """Make an id stand for this record; what it stated before becomes history."""
        self._connections.run(self._updating(record))

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """What an id stands for."""
        found = self._connections.run(lambda core: self._items.get(core, "/", [record_id]))
        return _record(found[0]) if found else None

    def list_records(
        self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0
    ) -> list[MemoryRecord]:
        """The facts of a scope and those below it, most recently stated first."""
        under = _under(scope_prefix)
        return [
            _record(item)
            for item in self._connections.run(
                lambda core: self._items.newest(core, under, limit=limit, offset=offset)
            )
        ]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """The number of facts of a scope, their categories and times, and the scopes in it."""
        records = self.list_records(scope, ALL)
        times = sorted(record.created_at for record in records)
        return ScopeInfo(
            path=scope,
            record_count=len(records),
            categories=sorted({category for record in records for category in record.categories}),
            oldest_record=times[0] if times else None,
            newest_record=times[-1] if times else None,
            child_scopes=self.list_scopes(scope),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        """The scopes directly below one."""
        base = "/" + parent.strip("/")
        scopes = self._connections.run(lambda core: self._items.buckets(core, _under(base)))
        base = base.rstrip("/") + "/"
        return sorted(
            {base + scope.removeprefix(base).split("/")[0] for scope in scopes if len(scope) > len(base)}
        )

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """The number of facts of a scope in each category."""
        records = self.list_records(scope_prefix, ALL)
        return dict(Counter(category for record in records for category in record.categories))

    def count(self, scope_prefix: str | None = None) -> int:
        """The number of facts of a scope."""
        return len(self.list_records(scope_prefix, ALL))

    def reset(self, scope_prefix: str | None = None) -> None:
        """Erase a scope and those below it. This cannot be undone."""

        def steps(core: Core) -> Steps[None]:
            for bucket_id in (yield from self._items.buckets(core, _under(scope_prefix))):
                yield from core.erase(
                    {"bucket_id": bucket_id}, whole_tenant=False, reason=None, tenant_id=None
                )

        self._connections.run(steps)

    # the steps

    def _saving(self, records: Iterable[MemoryRecord]) -> Callable[[Core], Steps[None]]:
        def steps(core: Core) -> Steps[None]:
            by_scope: dict[str, list[tuple[str, str, Any, Mapping[str, Any]]]] = {}
            for record in records:
                fields = yield from self._fields(core, record)
                put = (record.id, record.content, _value(record), fields)
                by_scope.setdefault(_bucket(record.scope), []).append(put)
            for bucket_id, puts in by_scope.items():
                yield from self._items.put_many(core, bucket_id, puts, known=False)

        return steps

    def _updating(self, record: MemoryRecord) -> Callable[[Core], Steps[None]]:
        def steps(core: Core) -> Steps[None]:
            fields = yield from self._fields(core, record)
            value = _value(record)
            yield from self._items.put(
                core, _bucket(record.scope), record.id, record.content, value, **fields
            )

        return steps

    def _fields(self, core: Core, record: MemoryRecord) -> Steps[dict[str, Any]]:
        fields: dict[str, Any] = {**slot_of(record.metadata), "observed_at": _aware(record.created_at)}
        if record.embedding is not None:
            vector = prepared_value("embedding", record.embedding)
            yield from core.register(self._model, vector)
            fields.update(embedding=vector, embedding_model=self._model.model)
        return fields

    def _finding(
        self, vector: list[float], scope: str | None, categories: list[str] | None, metadata: dict[str, Any] | None,
        limit: int,
    ) -> Callable[[Core], Steps[list[Item]]]:  # fmt: skip
        filters = _filters(categories, metadata)

        def steps(core: Core) -> Steps[list[Item]]:
            asked = prepared_value("embedding", vector)
            yield from core.register(self._model, asked)
            return (
                yield from self._items.find(
                    core,
                    _under(scope),
                    None,
                    filters,
                    limit,
                    embedding=asked,
                    embedding_model=self._model.model,
                )
            )

        return steps

    def _deleting(
        self, scope: str | None, categories: list[str] | None, record_ids: list[str] | None, older_than: datetime | None,
        metadata: dict[str, Any] | None,
    ) -> Callable[[Core], Steps[int]]:  # fmt: skip
        filters = _filters(categories, metadata)

        def steps(core: Core) -> Steps[int]:
            if record_ids is not None and not filters and scope is None and older_than is None:
                return (yield from self._items.delete(core, "/", record_ids))
            deleted = offset = 0
            while True:
                # a fact reappears under its next key until no key supports it
                items = yield from self._items.newest(core, _under(scope), filters, PAGE, offset)
                if not items:
                    return deleted
                keys = [
                    item.key
                    for item in items
                    if (older_than is None or _created(item) < _aware(older_than))
                    and (record_ids is None or item.key in record_ids)
                ]
                deleted += yield from self._items.delete(core, "/", keys)
                offset += len(items) - len(keys)

        return steps


def _never(texts: list[str]) -> Any:
    raise NotImplementedError("CrewAI embeds")


def _bucket(scope: str) -> str:
    return "/" + scope.strip("/")


def _under(scope: str | None) -> Under:
    return Under(_bucket(scope or "/"), "/")


def _filters(categories: list[str] | None, metadata: dict[str, Any] | None) -> list[dict[str, Any]]:
    wanted = [{"path": ["categories"], "op": "$any", "value": categories}] if categories else []
    return wanted + rules(metadata, "metadata")


def _aware(time: datetime) -> datetime:
    """CrewAI's times are UTC, without a time zone."""
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _value(record: MemoryRecord) -> dict[str, Any]:
    return record.model_dump(mode="json", exclude={"id", "content", "scope", "embedding"})


def _record(item: Item) -> MemoryRecord:
    value = item.value
    if value is None:
        times = {"created_at": item.created_at, "last_accessed": item.updated_at}
        value = {name: time.astimezone(UTC).replace(tzinfo=None) for name, time in times.items()}
    return MemoryRecord(id=item.key, content=item.content, scope=item.bucket_id, **value)


def _created(item: Item) -> datetime:
    return _aware(_record(item).created_at)


def _scored(items: Iterable[Item], min_score: float) -> Found:
    return [
        (_record(item), item.score) for item in items if item.score is not None and item.score >= min_score
    ]
