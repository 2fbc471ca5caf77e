"""LangGraph's ``BaseStore`` over memfold: one fact under many keys is one memory. Needs ``memfold[langgraph]``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from memfold.agents._core import CONNECTIONS, Connections, slot_of
from memfold.agents._items import Item, Items, Under, rules
from memfold.client._extras import needs
from memfold.client.calls.core import Core
from memfold.client.calls.steps import Steps
from memfold.client.embedding import EmbedderProtocol

with needs("langgraph"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        get_text_at_path,
        tokenize_path,
    )
    from langgraph.store.base import Item as StoredItem

__all__ = ["MemfoldStore"]


class MemfoldStore(BaseStore):
    """A store of one tenant: a namespace is a bucket (``memories.alice``), a key a source turn.

    The fact is the text at ``content.content``, ``content`` or ``text`` of a value, or at ``fields`` (as in LangGraph's
    ``IndexConfig``; a call's ``index`` takes precedence). If subject and predicate are next to it, they and the object are
    the fact's slot. A value without such a text is stored as JSON, as a document that belongs to its key.

    When a key is put again with another text, its former fact becomes history, unless other keys state it. ``delete``
    forgets a key; a fact that other keys state stays. ``search`` returns each fact once, under its first key; without an
    embedder it ignores a query, as LangGraph's own stores do.

    ``ttl`` minutes after a put, or after a ``get`` or ``search`` that showed it (unless ``refresh_ttl`` is false), a fact
    and its keys are no longer shown. A later put shows it again, permanently without a ``ttl``: if several keys have one
    fact, the last put counts. The store's ``ttl`` (``TTLConfig``) uses only ``default_ttl`` and ``refresh_on_read``:
    expired facts are never shown, so nothing needs to sweep them.
    """

    supports_ttl = True
    __slots__ = ("_connections", "_fields", "_items", "ttl_config")

    def __init__(
        self,
        dsn: str,
        *,
        tenant_id: str,
        embedder: EmbedderProtocol | None = None,
        fields: Sequence[str] | None = None,
        ttl: TTLConfig | None = None,
        connections: int = CONNECTIONS,
    ) -> None:
        self._connections = Connections(dsn, tenant_id, embedder, connections=connections)
        self._fields = fields
        self.ttl_config = ttl
        self._items = Items("lg")

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute the operations one after the other, in order."""
        return self._connections.run(self._all_of(ops))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As ``batch``."""
        return await self._connections.arun(self._all_of(ops))

    def close(self) -> None:
        """Close its connections, except those of event loops."""
        self._connections.close()

    async def aclose(self) -> None:
        """Close its connections, including those of the running event loop."""
        await self._connections.aclose()

    def _all_of(self, ops: Iterable[Op]) -> Callable[[Core], Steps[list[Result]]]:
        def work(core: Core) -> Steps[list[Result]]:
            results = []
            for op in ops:
                results.append((yield from self._carry_out(core, op)))
            return results

        return work

    def _carry_out(self, core: Core, op: Op) -> Steps[Result]:
        match op:
            case GetOp():
                found = yield from self._items.get(core, ".".join(op.namespace), [op.key])
                if op.refresh_ttl:
                    yield from self._items.put_off(core, found)
                return StoredItem(**_fields_of(found[0])) if found else None
            case PutOp(value=None):
                yield from self._items.delete(core, ".".join(op.namespace), [op.key])
                return None
            case PutOp():
                yield from self._put(core, op)
                return None
            case SearchOp():
                under, filters = Under(".".join(op.namespace_prefix)), rules(op.filter)
                if op.query and core.embedder is not None:
                    items = yield from self._items.find(core, under, op.query, filters, op.limit, op.offset)
                else:
                    items = yield from self._items.newest(core, under, filters, op.limit, op.offset)
                if op.refresh_ttl:
                    yield from self._items.put_off(core, items)
                return [SearchItem(**_fields_of(item), score=item.score) for item in items]
            case ListNamespacesOp():
                return (yield from self._namespaces(core, op))
        raise TypeError(f"unknown operation {type(op).__name__}")

    def _put(self, core: Core, op: PutOp) -> Steps[None]:
        assert op.value is not None  # noqa: S101 (else it deletes)
        fields = op.index if isinstance(op.index, list) else self._fields
        slot = slot_of(op.value, op.value.get("content"))
        text = _text(op.value, fields) or " ".join(slot.values()).replace("_", " ")
        if not text:
            # a state, not a fact: no other key's document can say the same
            text = json.dumps(op.value, ensure_ascii=False)
            if not any(character.isalnum() for character in text):
                text = f"{op.key}: {text}"
            slot = {"memory_type": "document", "subject": op.key}
        given: dict[str, Any] = {"embed": op.index is not False, "ttl": op.ttl, **slot}
        namespace = ".".join(op.namespace)
        yield from self._items.put(core, namespace, op.key, text, op.value, **given)

    def _namespaces(self, core: Core, op: ListNamespacesOp) -> Steps[list[tuple[str, ...]]]:
        conditions = op.match_conditions or ()
        buckets = yield from self._items.buckets(core, Under(_common_prefix(conditions)))
        found = [tuple(bucket.split(".")) for bucket in buckets]
        found = [namespace for namespace in found if all(_matches(namespace, one) for one in conditions)]
        cut = sorted({namespace[: op.max_depth] for namespace in found})
        return cut[op.offset : op.offset + op.limit]


def _text(value: Mapping[str, Any], fields: Sequence[str] | None) -> str:
    if fields is not None:
        texts = [text for path in fields for text in get_text_at_path(value, tokenize_path(path))]
        return "\n".join(text for text in texts if isinstance(text, str)).strip()
    content = value.get("content")
    inner = content.get("content") if isinstance(content, Mapping) else content
    return next((text for text in (inner, value.get("text")) if isinstance(text, str) and text.strip()), "")


def _fields_of(item: Item) -> dict[str, Any]:
    return {
        "namespace": tuple(item.bucket_id.split(".")),
        "key": item.key,
        "value": {"content": item.content} if item.value is None else item.value,
        "created_at": item.created_at,
        "updated_at": item.updated_at,
    }


def _common_prefix(conditions: Sequence[MatchCondition]) -> str:
    """The buckets to search, according to a prefix."""
    paths = [one.path for one in conditions if one.match_type == "prefix" and "*" not in one.path]
    return max((".".join(path) for path in paths), key=len, default="")


def _matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    part = (
        namespace[: len(path)]
        if condition.match_type == "prefix"
        else namespace[len(namespace) - len(path) :]
    )
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))
