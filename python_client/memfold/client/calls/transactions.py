"""Runs a step of a call as its own transaction, on a blocking or an async connection."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
from psycopg.rows import DictRow

from memfold.client import queries
from memfold.client._connection import pipeline
from memfold.client.calls.steps import CommitLostError, Transact
from memfold.client.errors import is_connection_lost
from memfold.client.found import Notice
from memfold.client.types import Row


@contextlib.contextmanager
def hearing(
    connection: psycopg.Connection[DictRow] | psycopg.AsyncConnection[DictRow], step: Transact
) -> Iterator[None]:
    """Collect the server's notices, for a step that wants them."""
    if (notices := step.notices) is None:
        yield
        return
    notices.clear()  # from an earlier attempt

    def hear(said: psycopg.errors.Diagnostic) -> None:
        notices.append(Notice(said.sqlstate, said.message_detail, said.message_hint))

    connection.add_notice_handler(hear)
    try:
        yield
    finally:
        connection.remove_notice_handler(hear)


def transact(connection: psycopg.Connection[DictRow], step: Transact) -> list[Row]:
    """Send it, and commit. Raises CommitLostError if it is unknown whether that succeeded."""
    try:
        with pipeline(connection):
            connection.execute(queries.BEGIN)
            connection.execute(step.opening, step.parameters)
            cursor = connection.execute(step.statement, step.parameters)
            if step.reads:
                connection.execute(queries.COMMIT)
        rows: list[Row] = [*cursor.fetchall()]
        if step.reads:
            return rows
        if step.keep is not None and not step.keep(rows):
            connection.rollback()
            return rows
    except BaseException as error:
        try:
            if not isinstance(error, psycopg.Error):
                raise psycopg.OperationalError("interrupted")
            connection.rollback()
        except psycopg.Error:
            connection.close()
        raise
    try:
        connection.commit()
    except psycopg.Error as error:
        connection.close()
        if is_connection_lost(error):
            raise CommitLostError(error, rows) from error
        raise
    return rows


async def transact_async(connection: psycopg.AsyncConnection[DictRow], step: Transact) -> list[Row]:
    """As ``transact``."""
    try:
        async with pipeline(connection):
            await connection.execute(queries.BEGIN)
            await connection.execute(step.opening, step.parameters)
            cursor = await connection.execute(step.statement, step.parameters)
            if step.reads:
                await connection.execute(queries.COMMIT)
        rows: list[Row] = [*await cursor.fetchall()]
        if step.reads:
            return rows
        if step.keep is not None and not step.keep(rows):
            await connection.rollback()
            return rows
    except BaseException as error:
        try:
            if not isinstance(error, psycopg.Error):
                raise psycopg.OperationalError("interrupted")
            await connection.rollback()
        except psycopg.Error:
            await connection.close()
        raise
    try:
        await connection.commit()
    except psycopg.Error as error:
        await connection.close()
        if is_connection_lost(error):
            raise CommitLostError(error, rows) from error
        raise
    return rows
