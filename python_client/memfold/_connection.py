"""How statements reach the server, no matter who sends them."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg


def pipeline(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> Any:
    """Sends what a transaction begins with together with its statement, where libpq can."""
    return connection.pipeline() if psycopg.Pipeline.is_supported() else contextlib.nullcontext()
