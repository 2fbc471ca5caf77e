"""The worker's connections: one that claims, some that write, and retries while the database is unavailable."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row

from memfold.client import queries
from memfold.client._connection import pipeline, reading_times
from memfold.client._dsn import read_dsn
from memfold.client._log import get_logger
from memfold.client.errors import PASSING, is_connection_lost, is_refused
from memfold.client.judging.protocol import Call

logger = get_logger("memfold.worker")

# Errors after which the same call may succeed a moment later. 55P03: lock_timeout, 57014: statement_timeout.
_SOON = PASSING | {"57014"}
_ATTEMPTS = 20
# So that it notices within about a minute if a server has disappeared without closing the connection.
_NOTICE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}


def first_line(error: psycopg.Error) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def is_passing(error: psycopg.Error) -> bool:
    """Whether the same call may succeed later: the server is unavailable, full, or a standby for now."""
    state = error.sqlstate or ""
    # the password was changed during the run: wait for the new one rather than lose a paid answer
    is_away = is_connection_lost(error) or (not state and is_refused(error))
    return is_away or state in _SOON or state.startswith("53") or state == "25006"


class Pool:
    """A few connections, opened when they are needed. They do not depend on session settings."""

    def __init__(self, connect: Callable[[], Awaitable[psycopg.AsyncConnection[DictRow]]], size: int) -> None:
        self._connect = connect
        self._turn = asyncio.Semaphore(size)
        self._idle: list[psycopg.AsyncConnection[DictRow]] = []

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection[DictRow]]:
        async with self._turn:
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                yield connection
            except psycopg.Error as error:
                if is_connection_lost(error):
                    await connection.close()
                    await self.close()  # the others are most likely lost too
                else:
                    with contextlib.suppress(psycopg.Error):
                        await connection.rollback()
                raise
            except BaseException:
                await connection.close()
                raise
            finally:
                if not connection.closed:
                    self._idle.append(connection)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()


class Database:
    """Sends calls, each in its own transaction."""

    def __init__(self, dsn: str, tenant_id: str | None, connections: int) -> None:
        self._dsn = read_dsn(dsn)
        self._tenant_id = tenant_id
        # Only one connection claims, because its session keeps the order in which tenants take turns.
        self._claims = Pool(self.connect, 1)
        self._writes = Pool(self.connect, connections - 1)
        self._away = 0

    @property
    def is_away(self) -> bool:
        return self._away > 0

    async def check(self) -> None:
        """Connect. Raises the server's error."""
        async with self._claims.connection():
            pass

    async def close(self) -> None:
        await self._claims.close()
        await self._writes.close()

    async def claim(self, call: Call) -> list[DictRow]:
        """Sent once, on the connection that claims."""
        return await self.transact(self._claims, call)

    async def write(self, call: Call) -> list[DictRow]:
        """Send until it is written or refused, however long the database is unavailable. It may be sent twice: the
        database accepts an answer once, and a returned lease only from its holder."""
        attempts = 0
        while True:
            try:
                rows = await self.transact(self._writes, call)
                self.up()
                return rows
            except psycopg.Error as error:
                attempts += 1
                if not is_passing(error) or (error.sqlstate in _SOON and attempts >= _ATTEMPTS):
                    raise
                logger.debug("attempt %d failed (%s), trying again", attempts, error.sqlstate or error)
                if error.sqlstate in _SOON:
                    await asyncio.sleep(min(0.01 * 2**attempts, 2.0) * random.uniform(0.5, 1))  # noqa: S311
                else:
                    await self.pause_for(error)

    async def transact(self, pool: Pool, call: Call) -> list[DictRow]:
        """One statement in its own transaction, in one round trip. It does not depend on the database's default
        isolation level, or on any other setting."""
        async with pool.connection() as connection:
            async with pipeline(connection):
                await connection.execute(queries.BEGIN)
                if self._tenant_id is None:
                    await connection.execute(queries.SET_FORMATS)
                else:  # an application's role must name its tenant
                    await connection.execute(queries.SET_TENANT, {"memfold_tenant": self._tenant_id})
                cursor = await connection.execute(call.statement, call.arguments)
                await connection.execute("commit")
            return await cursor.fetchall()

    async def connect(self) -> psycopg.AsyncConnection[DictRow]:
        said = conninfo_to_dict(self._dsn)
        connection = await psycopg.AsyncConnection.connect(
            self._dsn,
            autocommit=True,
            prepare_threshold=None,
            row_factory=dict_row,
            client_encoding="UTF8",
            fallback_application_name="memfold judge",
            **{name: value for name, value in _NOTICE.items() if name not in said},
        )
        return reading_times(connection)

    async def pause_for(self, error: psycopg.Error) -> None:
        """Wait before trying the database again; logs once that it is unavailable."""
        if not self._away and error.sqlstate not in _SOON:
            logger.warning("lost the database, trying again: %s", first_line(error))
        self._away += 1
        wait = min(0.05 * 2 ** min(self._away, 6), 2.0)
        await asyncio.sleep(wait * random.uniform(0.5, 1))  # noqa: S311 (jitter)

    def up(self) -> None:
        if self._away:
            logger.warning("the database is back")
        self._away = 0
