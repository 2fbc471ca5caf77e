"""`memfold import`: rows of a user's table become candidates, and so memories.

Each row is one observation, whose source turn and metadata name the row. Its idempotency key is made of the table and
the row's key, so that no row counts twice, however often a run is interrupted or repeated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
from psycopg.rows import DictRow
from sqlglot import exp

from memfold.adopt import binding, catalog, state
from memfold.adopt import expressions as x
from memfold.adopt.catalog import fetch
from memfold.adopt.expressions import Expression, Node, build, column, listed, render, typed
from memfold.adopt.sql_fragments import parameter
from memfold.client.errors import AdoptError, translate

__all__ = ["FIELDS", "Rows"]

# Option to the argument of ingest that it fills, and the type that it is read as.
FIELDS: Mapping[str, tuple[str, str]] = {
    "content": ("content", "text"),
    "tenant": ("tenant_id", "text"),
    "bucket": ("bucket_id", "text"),
    "created": ("observed_at", "timestamptz"),
    "type": ("memory_type", "text"),
    "subject": ("subject", "text"),
    "predicate": ("predicate", "text"),
    "object": ("object", "text"),
    "session": ("session_id", "text"),
    "metadata": ("metadata", "jsonb"),
    "embedding": ("embedding", "jsonb"),
}
_BATCH = 500
_KEY_BYTES = 400


class Rows:
    """A table as candidates. Iterating over it yields the key of each row, with its candidate or what is wrong with it."""

    def __init__(
        self,
        source: str,
        table: str,
        given: Mapping[str, str | None],
        *,
        key: str | None = None,
        embedding_model: str | None = None,
    ) -> None:
        """source: the database of the table."""
        self._model = embedding_model
        try:
            self._source = state.connect(source)
            with self._source.transaction():
                self._source.execute("set local timezone = 'UTC'")
            self.table = catalog.find(self._source, table, write=False)
            self._key = self._key_columns(key)
            self._given: dict[str, Expression] = {
                name: x.parse(f"--{name}", text, self.table.columns, str(self.table))
                for name, text in given.items()
                if text is not None
            }
            binding.bind(self._source, self.table, [], self._given.values())
            self._source.execute(
                "set timezone = 'UTC'; set datestyle = 'ISO, YMD'; set extra_float_digits = 1"
            )
        except psycopg.Error as error:
            raise translate(error) from error
        for required in ("content", "tenant"):
            if required not in self._given:
                raise AdoptError(
                    f"--{required} is missing", hint="A constant is quoted: --tenant \"'acme'\"."
                )
        if ("embedding" in self._given) != (embedding_model is not None):
            raise AdoptError("--embedding and --embedding-model go together")
        self.name = str(self.table)
        self.total = max(self.table.rows, 0)

    def close(self) -> None:
        """Close the connection."""
        self._source.close()

    def _key_columns(self, key: str | None) -> tuple[str, ...]:
        if self.table.kind in {"r", "p"}:
            return catalog.key_of(self._source, self.table, key)
        if key is None:
            raise AdoptError(
                f"{self.table} has no usable key",
                hint="For a view, name the column that identifies its rows with --id.",
            )
        found = [x.parse("--id", part, self.table.columns, str(self.table)) for part in key.split(",")]
        if not all(one.is_column for one in found):
            raise AdoptError(f"--id must be a column, or several separated by commas, not {key}")
        return tuple(one.columns[0] for one in found)

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any] | str]]:
        after: list[str] | None = None
        while True:
            try:
                rows = fetch(self._source, self._statement(first=after is None), [*(after or []), _BATCH])
            except psycopg.Error as error:
                raise translate(error) from error
            if not rows:
                return
            after = [rows[-1][f"k{n}"] for n in range(len(self._key))]
            for row in rows:
                candidate: dict[str, Any] | str
                try:
                    candidate = self._candidate(row)
                except (TypeError, ValueError) as error:
                    candidate = str(error)
                yield ", ".join(str(row[f"k{n}"]) for n in range(len(self._key))), candidate

    def _statement(self, *, first: bool) -> str:
        keys: list[Node] = [column(one, "t") for one in self._key]
        low = listed(
            *(typed(parameter(n + 1), self.table.columns[one].type) for n, one in enumerate(self._key))
        )
        asked: list[Node] = []
        if not first:
            asked.append(exp.GT(this=listed(*keys), expression=low))
        if "where" in self._given:
            asked.append(self._given["where"].on("t"))
        tree = build(
            "select X from T as t where C order by O limit N",
            X=[
                *(exp.alias_(x.as_text(one), f"k{n}") for n, one in enumerate(keys)),
                *(
                    exp.alias_(self._value(name, self._given[name]), name, quoted=True)
                    for name in FIELDS
                    if name in self._given
                ),
            ],
            T=self.table.node,
            C=x.conjunction(asked),
            O=keys,
            N=parameter(1 if first else len(self._key) + 1),
        )
        return render(tree)

    @staticmethod
    def _value(name: str, one: Expression) -> Node:
        if FIELDS[name][1] == "jsonb":
            # an array or a vector; the text of a vector is JSON
            return build("to_jsonb(X)", X=one.on("t"))
        return typed(one.on("t"), FIELDS[name][1])

    def _name(self, row: DictRow) -> tuple[str, str, str]:
        """Tenant, bucket and idempotency key of a row."""
        key = json.dumps([row[f"k{n}"] for n in range(len(self._key))], ensure_ascii=False)
        made = f"import:{self.table.schema}.{self.table.name}:{key}"
        if len(made.encode()) > _KEY_BYTES:
            made = f"import:{hashlib.sha256(made.encode()).hexdigest()}"
        return str(row["tenant"]), str(row.get("bucket") or "default"), made

    def _candidate(self, row: DictRow) -> dict[str, Any]:
        """The arguments of ingest, from a row. Raises TypeError or ValueError if they cannot be built."""
        tenant, bucket, made = self._name(row)
        candidate: dict[str, Any] = {
            FIELDS[name][0]: row[name] for name in self._given if name in FIELDS and row[name] is not None
        }
        if "tenant_id" not in candidate:
            raise ValueError("the tenant is null")
        if candidate.get("content") is None:
            raise ValueError("the content is null")
        key = {one: row[f"k{n}"] for n, one in enumerate(self._key)}
        name = f"{self.table.schema}.{self.table.name}"
        metadata = candidate.get("metadata", {})
        if isinstance(metadata, str):
            metadata = json.loads(metadata)
        if not isinstance(metadata, dict):
            raise ValueError("the metadata is not a JSON object")
        turn = f"{name}:{','.join(map(str, key.values()))}"
        if (vector := candidate.get("embedding")) is not None:
            candidate["embedding"] = json.loads(vector) if isinstance(vector, str) else vector
            candidate["embedding_model"] = self._model
        return candidate | {
            "tenant_id": tenant,
            "bucket_id": bucket,
            "idempotency_key": made,
            "metadata": {**metadata, "imported_from": {"table": name, "key": key}},
            "source_turn_ids": [turn if len(turn.encode()) <= _KEY_BYTES else made],
        }
