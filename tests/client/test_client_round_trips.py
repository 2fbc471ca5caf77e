"""The number of round trips of a call, which is what a distant client waits for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import pytest

from memfold import Embedder, Memfold
from memfold.client.errors import MemfoldError
from tests.support.memories import model
from tests.support.queries import DB, one


def round_trips(client: Memfold, call: Callable[[], Any]) -> int:
    """By libpq's own trace: after each Sync, and each simple Query, it waits for an answer."""
    assert client._connection is not None
    with tempfile.TemporaryFile("w+") as file:
        client._connection.pgconn.trace(file.fileno())
        try:
            call()
        finally:
            client._connection.pgconn.untrace()
        file.seek(0)
        # a text may go over lines
        sent = [fields for line in file if len(fields := line.split("\t")) > 3]
    return sum(line[1] == "F" and line[3].strip() in ("Sync", "Query") for line in sent)


def test_round_trips(dsn: str) -> None:
    with Memfold(dsn, "t") as client:
        known = client.ingest("Alice has a cat.")
        calls: dict[str, Callable[[], Any]] = {
            "known": lambda: client.known("Alice has a cat."),
            "preview": lambda: client.preview("Alice has a dog."),
            "get": lambda: client.get(known.memory_id),
            "list": lambda: list(client.list()),
            "explain": lambda: client.explain(known.memory_id),
        }
        reads = {name: round_trips(client, call) for name, call in calls.items()}
        writes = round_trips(client, lambda: client.ingest("Alice has a cat."))
    assert reads == dict.fromkeys(calls, 1)
    assert writes == 1


@pytest.mark.parametrize("retry_safe", [False, True])
def test_a_replay_is_one_a_new_fact_two(dsn: str, db: DB, retry_safe: bool) -> None:
    model(db)
    asked: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        asked.append(texts)
        return [[1.0, 0.0, 0.0, 0.0]] * len(texts)

    with Memfold(dsn, "t", Embedder(embed, model="m", dimensions=4), retry_safe=retry_safe) as client:
        client.ingest("Ann has a cat.")  # the first one looks up the model
        assert round_trips(client, lambda: client.ingest("Ann has a cat.")) == 1
        assert round_trips(client, lambda: client.ingest("Bob plays chess.", subject="Bob")) == 2
    assert asked == [["Ann has a cat."], ["Bob plays chess."]]
    assert one(db, "select count(*) from memfold.idempotency_keys") == (3 if retry_safe else 0)


def test_an_error_leaves_no_transaction(dsn: str) -> None:
    """COMMIT is sent along, and is not executed after an error."""
    with Memfold(dsn, "t") as client:
        memory = client.ingest("Ann has a cat.")
        for refused in (lambda: client.ingest(""), lambda: client.merge(memory.memory_id, memory.memory_id)):
            with pytest.raises(MemfoldError):
                refused()
            assert client._connection is not None
            assert client._connection.info.transaction_status.name == "IDLE"
        assert client.ingest("Ann has a cat.").action == "merged"


def test_another_isolation_level_takes_a_transaction(dsn: str, db: DB) -> None:
    """A statement that is sent alone has the level of the database, which a new text refuses."""
    db.execute(f"alter database {db.info.dbname} set default_transaction_isolation = 'serializable'".encode())
    with Memfold(dsn, "t") as client:
        assert client.ingest("Ann has a cat.").action == "inserted"
        assert round_trips(client, lambda: client.ingest("Bob plays chess.")) == 1
