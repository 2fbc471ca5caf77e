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
    """Reads what ``queries.SET_FORMATS`` makes the server write. psycopg's own goes by the session's settings, which
    are others again after the commit: it refuses any DateStyle but ISO, and times that are in the year 10000 there."""

    def load(self, data: Buffer) -> datetime:
        return datetime.fromisoformat(bytes(data).decode())


def reading_times(connection: C) -> C:
    """The connection, on which each transaction begins with ``queries.SET_FORMATS`` or ``SET_TENANT``."""
    connection.adapters.register_loader("timestamptz", _TimeLoader)
    return connection


def is_open(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the connection lives, as far as one knows without asking the server: one that ended it has said so."""
    try:
        for _ in range(2):  # what it said, then the end
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        connection.pgconn.finish()
    return not connection.closed


def pipeline(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> Any:
    """Sends a transaction in one round trip, if libpq supports that."""
    return connection.pipeline() if psycopg.Pipeline.is_supported() else contextlib.nullcontext()
