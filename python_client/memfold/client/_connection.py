"""How statements reach the server, for every sender."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Any, TypeVar

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader

C = TypeVar("C", bound=psycopg.Connection[Any] | psycopg.AsyncConnection[Any])


class _TimeLoader(Loader):
    """Reads times as ``queries.SET_FORMATS`` makes the server write them. psycopg's own loader follows the session's
    settings, which revert at commit: it refuses any DateStyle but ISO, and times that fall into the year 10000
    there."""

    def load(self, data: Buffer) -> datetime:
        return datetime.fromisoformat(bytes(data).decode())


def reading_times(connection: C) -> C:
    """The connection, on which each transaction begins with ``queries.SET_FORMATS`` or ``SET_TENANT``."""
    connection.adapters.register_loader("timestamptz", _TimeLoader)
    return connection


def is_open(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the connection is open, without asking the server, which sends an error when it ends a connection."""
    try:
        for _ in range(2):  # the server's last message, then the end of the connection
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        connection.pgconn.finish()
    return not connection.closed


def pipeline(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> Any:
    """Sends a transaction in one round trip, if libpq supports that."""
    return connection.pipeline() if psycopg.Pipeline.is_supported() else contextlib.nullcontext()
