"""Stores of LangGraph; and what LangChain's suite needs: tests that are coroutines, and its markers."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.integrations.toys import DIMENSIONS, embedder
from tests.support.queries import DB

if TYPE_CHECKING:
    # not in the environments of other frameworks
    from memfold.agents.langgraph import MemfoldStore


def pytest_configure(config: pytest.Config) -> None:
    for marker in ("benchmark", "vcr"):
        config.addinivalue_line("markers", f"{marker}: of langchain-tests")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(autouse=True)
def measured(db: DB) -> None:
    """The thresholds of the toy model, so that no client measures them."""
    db.execute("select memfold.register_embedding_model('words', %s, 0.92, 0.85)", [DIMENSIONS])


@pytest.fixture
def store(dsn: str) -> Iterator[MemfoldStore]:
    from memfold.agents.langgraph import MemfoldStore

    made = MemfoldStore(dsn, tenant_id="acme")
    yield made
    made.close()


@pytest.fixture
def near(dsn: str) -> Iterator[MemfoldStore]:
    """One that searches by meaning."""
    from memfold.agents.langgraph import MemfoldStore

    made = MemfoldStore(dsn, tenant_id="acme", embedder=embedder())
    yield made
    made.close()
