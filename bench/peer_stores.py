"""The libraries that ``peers`` measures, each used as its own documentation says; imports them all.

Nothing here waits for a model. An embedder looks vectors up. The model's double answers as a faultless model would: it
returns the fact word for word, unless a memory that the library shows it states that fact; ``Fact.same`` tells which do.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

os.environ["MEM0_TELEMETRY"] = "False"
os.environ["LANGSMITH_TRACING"] = "false"
os.environ["MEM0_DIR"] = tempfile.mkdtemp(prefix="mem0-")

import psycopg
import sqlalchemy
from langchain_classic.indexes import SQLRecordManager
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.indexing import index
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_postgres import PGEngine, PGVector, PGVectorStore
from langgraph.store.postgres import PostgresStore
from langmem import create_memory_store_manager
from mem0 import Memory
from psycopg.conninfo import conninfo_to_dict

DIMENSIONS = 384


@dataclass(frozen=True)
class Fact:
    """A fact to remember; facts with equal ``same`` say the same."""

    text: str
    vector: list[float]
    same: str
    subject: str


class Known(Embeddings):
    """The embedder and the model of all peers: answers immediately, from what is known about the facts."""

    def __init__(self, facts: Mapping[str, Fact]) -> None:
        self.facts = facts

    def embed_query(self, text: str) -> list[float]:
        # libraries embed the text together with its speaker
        return self.facts[re.sub(r"^(user: |=+ Human Message =+\s+)", "", text).strip()].vector

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed(self, text: str, *_: object) -> list[float]:
        """As mem0 asks."""
        return self.embed_query(text)

    def embed_batch(self, texts: list[str], *_: object) -> list[list[float]]:
        return self.embed_documents(texts)

    def is_stated(self, fact: Fact, shown: Sequence[str]) -> bool:
        return any(self.facts[text].same == fact.same for text in shown)


class Mem0:
    """mem0's Memory over its pgvector store (with HNSW, as it comes); its history in memory."""

    name = f"mem0ai {importlib.metadata.version('mem0ai')}"
    texts = "select payload->>'data' from mem0"
    infer = False

    def __init__(self, dsn: str, known: Known) -> None:
        self.known = known
        self.memory = Memory.from_config(
            {
                "vector_store": {
                    "provider": "pgvector",
                    "config": {
                        "connection_string": dsn,
                        "collection_name": "mem0",
                        "embedding_model_dims": DIMENSIONS,
                        "maxconn": 2,
                    },
                },
                # constructed but never called: there is no key
                "llm": {"provider": "openai", "config": {"api_key": "none"}},
                "embedder": {"provider": "openai", "config": {"api_key": "none"}},
                "history_db_path": ":memory:",
            }
        )
        self.memory.embedding_model = known
        self.memory.llm = self
        self.fact: Fact | None = None

    def add(self, fact: Fact) -> None:
        self.fact = fact
        self.memory.add(fact.text, user_id="user", infer=self.infer)

    def generate_response(self, messages: list[dict[str, str]], **_: object) -> str:
        """As mem0 asks its model for the facts of a conversation."""
        assert self.fact is not None
        found = re.search(
            r"^## Existing Memories\n(.*)\n\n## New Messages$", messages[1]["content"], re.M | re.S
        )
        assert found is not None
        shown = [memory["text"] for memory in json.loads(found[1])]
        stated = self.known.is_stated(self.fact, shown)
        return json.dumps({"memory": [] if stated else [{"id": "0", "text": self.fact.text}]})

    def close(self) -> None:
        self.memory.vector_store.connection_pool.close()
        self.memory.close()


class Mem0Infer(Mem0):
    """The same, asking its model for each fact."""

    infer = True


def _url(dsn: str) -> sqlalchemy.URL:
    parts = conninfo_to_dict(dsn)
    return sqlalchemy.URL.create(
        "postgresql+psycopg",
        username=str(parts["user"]),
        database=str(parts["dbname"]),
        query={name: str(parts[name]) for name in ("host", "port")},
    )


def as_document(fact: Fact) -> Document:
    return Document(page_content=fact.text, metadata={"user_id": "user", "subject": fact.subject})


class LangchainVector:
    """langchain-postgres' PGVector store."""

    name = f"langchain-postgres {importlib.metadata.version('langchain-postgres')}"
    texts = "select document from langchain_pg_embedding"

    def __init__(self, dsn: str, known: Known) -> None:
        self.engine = sqlalchemy.create_engine(_url(dsn))
        self.store = PGVector(
            embeddings=known, collection_name="memories", connection=self.engine, embedding_length=DIMENSIONS
        )

    def add(self, fact: Fact) -> None:
        self.add_many([fact])

    def add_many(self, facts: Sequence[Fact]) -> None:
        self.store.add_documents([as_document(fact) for fact in facts])

    def close(self) -> None:
        self.engine.dispose()


class LangchainIndex(LangchainVector):
    """The same, through the indexing API with its record manager in the same database."""

    def __init__(self, dsn: str, known: Known) -> None:
        super().__init__(dsn, known)
        self.records = SQLRecordManager("memories", engine=self.engine)
        self.records.create_schema()

    def add_many(self, facts: Sequence[Fact]) -> None:
        index([as_document(fact) for fact in facts], self.records, self.store, key_encoder="sha256")


class LangchainStore:
    """langchain-postgres' newer PGVectorStore."""

    name = LangchainVector.name
    texts = "select content from memories"

    def __init__(self, dsn: str, known: Known) -> None:
        self.engine = PGEngine.from_connection_string(_url(dsn))
        with psycopg.connect(dsn) as connection:
            made = connection.execute("select to_regclass('memories')").fetchone()
        if made == (None,):
            self.engine.init_vectorstore_table("memories", DIMENSIONS)
        self.store = PGVectorStore.create_sync(self.engine, known, "memories")

    def add(self, fact: Fact) -> None:
        self.add_many([fact])

    def add_many(self, facts: Sequence[Fact]) -> None:
        self.store.add_documents([as_document(fact) for fact in facts])

    def close(self) -> None:
        self.engine._run_as_sync(self.engine.close())


class Langgraph:
    """langgraph's PostgresStore with a vector index, to put values in."""

    name = f"langgraph-checkpoint-postgres {importlib.metadata.version('langgraph-checkpoint-postgres')}"
    texts = "select value->>'content' from store"

    def __init__(self, dsn: str, known: Known) -> None:
        self.context = PostgresStore.from_conn_string(
            dsn, index={"dims": DIMENSIONS, "embed": known, "fields": ["content"]}
        )
        self.store = self.context.__enter__()
        self.store.setup()

    def add(self, fact: Fact) -> None:
        self.store.put(("memories", "user"), str(uuid.uuid4()), {"content": fact.text})

    def close(self) -> None:
        self.context.__exit__(None, None, None)


class Canned(BaseChatModel):
    """Calls langmem's tool for its fact, unless that is shown as known."""

    known: Any
    fact: Any = None

    @property
    def _llm_type(self) -> str:
        return "canned"

    def bind_tools(self, tools: Any, **_: Any) -> Canned:
        return self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        found = re.search(r"<existing>\n(.*)\n</existing>", str(messages[0].content), re.S)
        shown = re.findall(r"<instance [^>]*>\n(.*)\n</instance>", found[1]) if found else []
        calls = []
        if not self.known.is_stated(self.fact, [ast.literal_eval(one)["content"] for one in shown]):
            calls = [{"name": "Memory", "args": {"content": self.fact.text}, "id": str(uuid.uuid4())}]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content="", tool_calls=calls))])


class Langmem:
    """langmem's store manager on langgraph's PostgresStore with a vector index."""

    name = f"langmem {importlib.metadata.version('langmem')}"
    texts = "select value->'content'->>'content' from store"

    def __init__(self, dsn: str, known: Known) -> None:
        self.context = PostgresStore.from_conn_string(
            dsn, index={"dims": DIMENSIONS, "embed": known, "fields": ["content.content"]}
        )
        store = self.context.__enter__()
        store.setup()
        self.model = Canned(known=known)
        self.manager = create_memory_store_manager(self.model, namespace=("memories", "user"), store=store)

    def add(self, fact: Fact) -> None:
        self.model.fact = fact
        self.manager.invoke({"messages": [{"role": "user", "content": fact.text}]})

    def close(self) -> None:
        self.context.__exit__(None, None, None)
