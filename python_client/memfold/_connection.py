"""How statements reach the server, for every sender."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg


def pipeline(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> Any:
    """Sends the beginning of a transaction together with its statement, if libpq supports that."""
    return connection.pipeline() if psycopg.Pipeline.is_supported() else contextlib.nullcontext()
