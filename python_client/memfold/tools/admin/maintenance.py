"""`memfold maintenance`: calls run_maintenance() for each tenant until all is done or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from memfold.client._dsn import read_dsn
from memfold.client.errors import MemfoldError, translate
from memfold.tools.admin import queries

_PAUSE = 0.2
"""Seconds to wait if everything that is left is locked."""


@dataclass
class Maintenance:
    """What was done for one tenant: counts and milliseconds by task, and errors."""

    tenant_id: str
    counts: dict[str, int] = field(default_factory=dict)
    ms: dict[str, float] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)

    def add(self, report: dict[str, Any]) -> None:
        """Add the result of one call of run_maintenance(), which also says what is left."""
        for task, count in report["counts"].items():
            self.counts[task] = self.counts.get(task, 0) + count
        for task, ms in report["ms"].items():
            self.ms[task] = self.ms.get(task, 0.0) + ms
        self.errors.update(report["errors"])
        self.left = list(report["left"])


def run(
    dsn: str,
    tenant: str | None = None,
    tasks: Sequence[str] = (),
    seconds: float = 60.0,
    done: Callable[[Maintenance], None] | None = None,
    begun: Callable[[str], object] = lambda _: None,
) -> list[Maintenance]:
    """Maintenance of one tenant or (as a member of memfold_owner) of all, for about this many seconds.

    Without tasks, those that run_maintenance() does by default. Each call commits by itself. begun is called for
    each tenant when its turn comes, done when it is finished.
    """
    until = time.monotonic() + seconds
    finished: list[Maintenance] = []
    try:
        with psycopg.connect(
            read_dsn(dsn), autocommit=True, application_name="memfold maintenance"
        ) as connection:
            connection.execute("set default_transaction_isolation = 'read committed'")
            if tenant is None:
                _refresh_shard_functions(connection)
            for name in [tenant] if tenant else _tenants(connection):
                begun(name)
                one = Maintenance(name)
                # tenants whose turn comes after the time is up still get this call, so that none starves behind a
                # large one
                one.add(_call(connection, name, tasks))
                while one.left and time.monotonic() < until:
                    before = one.left
                    one.add(_call(connection, name, before))
                    if one.left == before and not any(one.counts.get(task) for task in one.left):
                        time.sleep(_PAUSE)
                finished.append(one)
                if done is not None:
                    done(one)
    except psycopg.Error as error:
        raise translate(error) from error
    return finished


def _call(connection: psycopg.Connection[Any], tenant: str, tasks: Sequence[str]) -> dict[str, Any]:
    with connection.transaction():
        connection.execute("select pg_catalog.set_config('memfold.tenant_id', %s, true)", [tenant])
        if tasks:
            cursor = connection.execute("select memfold.run_maintenance(%s, %s)", [tenant, list(tasks)])
        else:
            cursor = connection.execute("select memfold.run_maintenance(%s)", [tenant])
        row = cursor.fetchone()
    report: dict[str, Any] = row[0] if row is not None else {}
    return report


def _refresh_shard_functions(connection: psycopg.Connection[Any]) -> None:
    row = connection.execute(queries.CAN_CREATE_SHARD_FUNCTIONS).fetchone()
    if row is None or not row[0]:
        return
    ((shards, current, old),) = connection.execute(queries.SHARD_FUNCTIONS).fetchall()
    if current + old and current < shards:
        connection.execute(queries.CREATE_SHARD_FUNCTIONS)


def _tenants(connection: psycopg.Connection[Any]) -> list[str]:
    try:
        cursor = connection.cursor(row_factory=tuple_row)
        return [row[0] for row in cursor.execute("select t from memfold.tenants() as t").fetchall()]
    except psycopg.errors.InsufficientPrivilege as error:
        raise MemfoldError(
            "this role cannot see all tenants",
            hint="Name one with --tenant, or log in as a member of memfold_owner.",
        ) from error
