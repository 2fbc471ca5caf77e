"""How many transactions, each one round trip, a call of a client with an embedder takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memfold import Embedder, Memfold
from memfold.client.calls.blocking import running
from memfold.client.calls.steps import Transact
from tests.support.memories import model
from tests.support.queries import DB, one


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Transact]:
    made: list[Transact] = []
    transact: Callable[..., Any] = running.transact

    def counted(connection: Any, step: Transact) -> Any:
        made.append(step)
        return transact(connection, step)

    monkeypatch.setattr(running, "transact", counted)
    return made


@pytest.mark.parametrize("retry_safe", [False, True])
def test_a_replay_is_one_a_new_fact_two(dsn: str, db: DB, sent: list[Transact], retry_safe: bool) -> None:
    model(db)
    asked: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        asked.append(texts)
        return [[1.0, 0.0, 0.0, 0.0]] * len(texts)

    with Memfold(dsn, "t", Embedder(embed, model="m", dimensions=4), retry_safe=retry_safe) as client:
        client.ingest("Ann has a cat.")  # the first one looks up the model
        sent.clear()
        assert client.ingest("Ann plays the cello.").action is not None
        assert len(sent) == 2
        sent.clear()
        assert client.ingest("Ann has a cat.").action == "merged"
        assert len(sent) == 1
    assert asked == [["Ann has a cat."], ["Ann plays the cello."]]
    assert one(db, "select count(*) from memfold.idempotency_keys") == (3 if retry_safe else 0)


def test_an_error_leaves_no_transaction(dsn: str, db: DB) -> None:
    """COMMIT is sent along, and after an error it is not carried out."""
    with Memfold(dsn, "t") as client:
        with pytest.raises(Exception, match="MF004"):
            client.ingest("")
        assert client._connection is not None
        assert client._connection.info.transaction_status.name == "IDLE"
        assert client.ingest("Ann has a cat.").action == "inserted"
