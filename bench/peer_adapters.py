"""memfold behind the interfaces of the frameworks that ``peers`` measures; imports them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import harness
from peer_stores import DIMENSIONS, Fact, Known, as_document
from peers import Ours

from memfold.agents.langchain import LangChainEmbedder, MemfoldVectorStore
from memfold.agents.langgraph import MemfoldStore


class InLangchain(Ours):
    """``MemfoldVectorStore``, which is LangChain's VectorStore."""

    def __init__(self, dsn: str, known: Known) -> None:
        self.store = MemfoldVectorStore(
            dsn, tenant_id=harness.TENANT, embedding=known, embedding_model=harness.MODEL
        )

    def add(self, fact: Fact) -> None:
        self.add_many([fact])

    def add_many(self, facts: Sequence[Fact]) -> None:
        self.store.add_documents([as_document(fact) for fact in facts])

    def close(self) -> None:
        self.store.close()


class InLanggraph(Ours):
    """``MemfoldStore``, which is LangGraph's BaseStore."""

    def __init__(self, dsn: str, known: Known) -> None:
        embedder = LangChainEmbedder(known, harness.MODEL, DIMENSIONS)
        self.store = MemfoldStore(dsn, tenant_id=harness.TENANT, embedder=embedder)

    def add(self, fact: Fact) -> None:
        self.store.put(("memories", "user"), str(uuid.uuid4()), {"content": fact.text})

    def close(self) -> None:
        self.store.close()
