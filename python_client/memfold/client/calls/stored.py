"""Stored memories as steps: read by id, erase; and setting rules."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, LiteralString
from uuid import UUID

from memfold.client import errors, queries
from memfold.client._checks import check_text
from memfold.client.calls.arguments import check_names
from memfold.client.calls.sending import Sending
from memfold.client.calls.steps import Steps
from memfold.client.types import MEMORY_STATUSES, Erasure, ListFields, Memory, Row

_SCOPED = ("tenant_id", "bucket_id", "memory_type")


class Stored(Sending):
    """A client's calls about memories by their ids, and about rules."""

    def get(self, memory_id: UUID | str, tenant_id: str | None) -> Steps[Memory]:
        arguments = self._of_a_tenant({"memory_id": memory_id}, tenant_id)
        rows = yield from self.send(queries.GET, arguments, reads=True)
        if not rows:
            raise errors.MemoryNotFoundError(
                "unknown memory",
                detail=f"memory_id was {arguments['memory_id']}.",
                hint=f"Pass an id that ingest returned to this tenant ({arguments['tenant_id']})."
                " An erased memory has none.",
            )
        return Memory.from_row(rows[0])

    def list(
        self, given: Mapping[str, Any], after: UUID | str | None, limit: int, tenant_id: str | None
    ) -> Steps[tuple[Memory, ...]]:
        status = given.get("status")
        if status is not None and status not in MEMORY_STATUSES:
            raise errors.InvalidArgumentError(
                "unknown status",
                detail=f"It was {status!r}.",
                hint=f"A status is {', '.join(MEMORY_STATUSES)}, or None for any.",
            )
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise TypeError(f"limit must be int, not {type(limit).__name__}")
        if not 1 <= limit <= 1000:
            raise errors.InvalidArgumentError(
                "limit is out of range",
                detail=f"It was {limit}.",
                hint="limit is 1 to 1000; pass after for more.",
            )
        check_names("list", given, ("bucket_id", "status", *ListFields.__annotations__))
        filters = dict.fromkeys(ListFields.__annotations__) | dict(given)
        arguments = self._of_a_tenant({**filters, "memory_id": after}, tenant_id) | {"max_results": limit}
        rows = yield from self.send(queries.LIST, arguments, reads=True)
        return tuple(Memory.from_row(row) for row in rows)

    def erase(
        self, given: Mapping[str, Any], *, whole_tenant: bool, reason: str | None, tenant_id: str | None
    ) -> Steps[Erasure]:
        named = {name: value for name, value in given.items() if value is not None}
        if len(named) + whole_tenant != 1:
            raise TypeError(
                "erase takes one of memory_id, source_turn_id, bucket_id and whole_tenant=True, by keyword"
            )
        function = queries.ERASE[next(iter(named), "tenant_id")]
        arguments = self._of_a_tenant({**named, "reason": reason}, tenant_id)
        total = Erasure()
        while True:
            # a second call for an erased memory would fail with MF018
            rows = yield from self.run(function, arguments, repeatable="memory_id" not in named)
            done = Erasure.from_row(rows[0])
            total = total.plus(done)
            if not done.remaining or function == queries.ERASE["memory_id"]:
                return total

    def set_predicate(
        self, predicate: str, cardinality: str, conflict: str | None, tenant_id: str | None
    ) -> Steps[UUID | None]:
        given = {"predicate": predicate, "cardinality": cardinality, "conflict": conflict}
        rows = yield from self.run(queries.SET_PREDICATE, self.arguments(given, tenant_id), repeatable=True)
        run_id: UUID | None = rows[0]["set_predicate"]
        return run_id

    def set_rules(
        self,
        function: LiteralString,
        scope: Mapping[str, Any],
        rules: Mapping[str, Any],
        tenant_id: str | None,
    ) -> Steps[Row]:
        """Call a function that sets rules with the given ones, by the names that the database uses."""
        rows = yield from self.send(queries.SIGNATURE, {"function": function}, reads=True)
        names: list[str] = rows[0]["names"] if rows else []
        if not names:
            raise errors.NotInstalledError(
                f"the database has no function {function}",
                hint="memfold is not installed there, or another version: memfold init DSN",
            )
        for name in rules:
            if name not in names or name in _SCOPED:
                known = sorted(set(names) - set(_SCOPED))
                near = difflib.get_close_matches(name, known, 3)
                raise errors.InvalidOptionError(
                    f"{function} has no rule {name!r}",
                    detail=f"Its rules are {', '.join(known)}.",
                    hint=f"Did you mean {' or '.join(near)}?" if near else "Pass rules by these names.",
                )
        arguments = self.arguments(scope, tenant_id)
        arguments.update({name: _rule(name, value) for name, value in rules.items() if value is not None})
        if arguments["tenant_id"] is None:
            del arguments["tenant_id"]
        # the names are those of the catalog
        named = ", ".join([f"{name} => %({name})s" for name in arguments])
        statement: Any = f"select * from memfold.{function}({named})"  # noqa: S608
        made = yield from self.send(statement, arguments, repeatable=True)
        return made[0]

    def _of_a_tenant(self, given: Mapping[str, Any], tenant_id: str | None) -> dict[str, Any]:
        """The arguments of statements that read tables or erase, which name the tenant themselves."""
        arguments = self.arguments(given, tenant_id)
        if not arguments["tenant_id"]:
            raise errors.TenantMissingError(
                "tenant_id is missing",
                detail="Neither the call nor the client names a tenant.",
                hint="Pass tenant_id to one of them.",
            )
        return arguments


def _rule(name: str, value: Any) -> Any:
    """The value of a rule, checked for characters that PostgreSQL cannot store; the server checks its type."""
    if isinstance(value, str):
        check_text(name, value)
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_rule(name, one) for one in value]
    return value
