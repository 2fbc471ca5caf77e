"""The number of round trips of a call, which is what a distant client waits for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

from memfold import Embedder, Memfold


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
        # COMMIT is apart, so that a connection that is lost before it has written nothing
        writes = round_trips(client, lambda: client.ingest("Alice has a cat."))
    assert reads == dict.fromkeys(calls, 1)
    assert writes == 2


def test_round_trips_with_an_embedder(dsn: str) -> None:
    with Memfold(dsn, "t", Embedder(lambda texts: [[1.0, 0.0, 0.0] for _ in texts], "toy", 3)) as client:
        client.ingest("Alice has a cat.")
        assert round_trips(client, lambda: client.ingest("Alice has a cat.")) == 3
        assert round_trips(client, lambda: client.ingest("Bob plays chess.", subject="Bob")) == 3
