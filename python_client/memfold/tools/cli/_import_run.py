"""What all imports share: candidates are stored in batches, each once, or tried in a transaction that is rolled back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import psycopg
from psycopg.rows import dict_row

from memfold.client import queries
from memfold.client.calls import Memfold
from memfold.client.calls.steps import Transact
from memfold.client.errors import ConnectionLostError, MemfoldError, OutcomeUnknownError
from memfold.client.types import Row
from memfold.tools.cli._formats import Item

_BATCH = 500
_KNOWN = """
select k.bucket_id, k.idempotency_key from memfold.idempotency_keys as k
where k.tenant_id = %(tenant_id)s and k.idempotency_key = any(%(keys)s::text[])
"""


class Trial(Memfold):
    """A client whose calls share one transaction, which is rolled back when the client closes."""

    def _transact(self, step: Transact) -> list[Row]:
        with self._lock:
            if self._connection is None:
                options = {**self._options, "autocommit": False}
                self._connection = psycopg.connect(**options, row_factory=dict_row)
                self._connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                self._connection.execute("select")  # begins the transaction: those below are savepoints
            with self._connection.transaction(), self._connection.cursor() as cursor:
                cursor.execute(step.opening or queries.SET_TENANT, step.parameters)
                return [*cursor.execute(step.statement, step.parameters).fetchall()]


class Run:
    """One import. Iterating over it yields (name of the row, error or None) for every row."""

    def __init__(self, client: Memfold, items: Iterable[Item]) -> None:
        self._client = client
        self._items = items
        self.counts: Counter[tuple[str, int | None, str | None]] = Counter()
        self.errors = self.known = self.rows = 0

    def __iter__(self) -> Iterator[tuple[str, str | None]]:
        items = iter(self._items)
        while batch := list(islice(items, _BATCH)):
            problems = self._ingest(batch)
            self.errors += len(problems)
            self.counts["refused", None, None] += len(problems)
            for place, (shown, _) in enumerate(batch):
                self.rows += 1
                yield shown, problems.get(place)

    def _ingest(self, items: list[Item]) -> dict[int, str]:
        """Ingest a batch, by tenant; returns errors by place."""
        problems: dict[int, str] = {}
        tenants: dict[str, dict[int, dict[str, Any]]] = {}
        for place, (_, found) in enumerate(items):
            if isinstance(found, str):
                problems[place] = found
            else:
                tenants.setdefault(found["tenant_id"], {})[place] = found
        for tenant, batch in tenants.items():
            try:
                known = self._known(tenant, [one["idempotency_key"] for one in batch.values()])
                new = {
                    place: one
                    for place, one in batch.items()
                    if (one["bucket_id"], one["idempotency_key"]) not in known
                }
                stored = list(self._client.ingest_many(new.values(), tenant, batch_size=_BATCH))
            except (OutcomeUnknownError, ConnectionLostError):
                raise
            except MemfoldError as error:
                problems |= dict.fromkeys(batch, str(error))
                continue
            self.known += len(batch) - len(new)
            self.counts["replayed", None, None] += len(batch) - len(new)
            for place, item in zip(new, stored, strict=True):
                if item.result is None:
                    problems[place] = str(item.error)
                else:
                    self.counts[item.result.action, item.result.tier, item.result.method] += 1
        return problems

    def _known(self, tenant: str, keys: list[str]) -> set[tuple[str, str]]:
        """Bucket and key of those that an earlier run has imported."""
        given = {"tenant_id": tenant, "keys": keys}
        rows = self._client._drive(self._client._core.send(_KNOWN, given, reads=True))
        return {(row["bucket_id"], row["idempotency_key"]) for row in rows}

    def summary(self) -> list[list[object]]:
        """Action, tier, method and rows."""
        return [
            [action, tier if tier is not None else "-", method or "-", count]
            for (action, tier, method), count in sorted(self.counts.items(), key=lambda one: -one[1])
            if count
        ]
