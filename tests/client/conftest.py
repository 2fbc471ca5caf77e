"""Clients of one tenant, and a model whose thresholds are known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memfold import Embedder, Memfold
from tests.support.counting import Counting
from tests.support.queries import DB


@pytest.fixture
def measured(db: DB) -> None:
    """The thresholds of the toy model, so that no client measures them."""
    db.execute("select memfold.register_embedding_model('toy', 3, 0.92, 0.85)")


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def client(dsn: str, counting: Counting) -> Iterator[Memfold]:
    with Memfold(dsn, "t", Embedder(counting, "toy", 3)) as made:
        yield made


@pytest.fixture
def plain(dsn: str) -> Iterator[Memfold]:
    with Memfold(dsn, "t") as made:
        yield made
