"""Answers that are lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import psycopg
import pytest

from memfold.client import queries


def answer_lost(monkeypatch: pytest.MonkeyPatch, which: Callable[[int], bool] = lambda n: n == 1) -> None:
    """The first COMMIT, or the named ones, succeeds, but nobody gets the answer."""
    commits: list[int] = []
    commit, later = psycopg.Connection.commit, psycopg.AsyncConnection.commit

    def lose(connection: Any) -> NoReturn:
        connection.pgconn.finish()
        raise psycopg.OperationalError("the connection is lost")

    def blocking(connection: Any) -> None:
        commits.append(1)
        commit(connection)
        if which(len(commits)):
            lose(connection)

    async def asynchronous(connection: Any) -> None:
        commits.append(1)
        await later(connection)
        if which(len(commits)):
            lose(connection)

    monkeypatch.setattr(psycopg.Connection, "commit", blocking)
    monkeypatch.setattr(psycopg.AsyncConnection, "commit", asynchronous)


def answer_of_pipeline_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first COMMIT that is sent together with its statements succeeds, but nobody gets the answer."""
    execute = psycopg.Connection.execute
    lost: list[Any] = []

    def lose(connection: Any, statement: Any, *given: Any, **named: Any) -> Any:
        cursor = execute(connection, statement, *given, **named)
        if statement == queries.COMMIT and not lost:
            lost.append(statement)
            with connection.pipeline() as pipeline:
                pipeline.sync()
            connection.pgconn.finish()
            raise psycopg.OperationalError("the connection is lost")
        return cursor

    monkeypatch.setattr(psycopg.Connection, "execute", lose)
