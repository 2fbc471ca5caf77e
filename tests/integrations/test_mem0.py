"""Unmodified mem0: over memfold through its provider ``langchain``, and on its own adopted table. No model is called."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings

os.environ["MEM0_TELEMETRY"] = "False"  # read when mem0 is loaded

from mem0 import Memory

from memfold.adopt import Adopter, Options
from memfold.agents.langchain import MemfoldVectorStore
from tests.integrations.toys import DIMENSIONS, at_once, memories, run_page, vector
from tests.support.memories import check
from tests.support.queries import DB

# Python: the tests of the SQL functions cover each server.
pytestmark = pytest.mark.one_server


class Words(Embeddings):
    model = "words"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return vector(text)


@pytest.fixture(autouse=True)
def nobody_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """mem0 makes a client of its default model, with a key, and keeps its settings at home."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("MEM0_DIR", str(tmp_path))


def memory_of(provider: str, **config: Any) -> Memory:
    return Memory.from_config(
        {
            "vector_store": {"provider": provider, "config": config},
            "embedder": {"provider": "langchain", "config": {"model": Words()}},
            "history_db_path": ":memory:",
        }
    )


def add(memory: Memory, text: str, user: str = "alice") -> str:
    return str(memory.add(text, user_id=user, infer=False)["results"][0]["id"])


def test_the_page_prints_what_it_says(dsn: str) -> None:
    printed, said_so = run_page("memfold as its vector store", "mem0.md", dsn=dsn, embeddings=Words())
    assert printed == said_so


def test_sixteen_writers_over_memfold_leave_a_row_a_fact(dsn: str, db: DB) -> None:
    texts = [f"Customer number {n} pays in advance." for n in range(5)]
    store = MemfoldVectorStore(dsn, tenant_id="acme", embedding=Words(), bucket_id="alice")
    ids = at_once(16, lambda _: [add(memory_of("langchain", client=store), text) for text in texts])
    assert memories(db) == dict.fromkeys(texts, 16)
    memory = memory_of("langchain", client=store)
    assert {memory.get(key)["memory"] for key in (ids[0][3], ids[15][3])} == {texts[3]}
    store.close()
    check(db)


def test_an_id_that_is_updated_or_deleted(dsn: str, db: DB) -> None:
    store = MemfoldVectorStore(dsn, tenant_id="acme", embedding=Words(), bucket_id="alice")
    memory = memory_of("langchain", client=store)
    first, second = add(memory, "Alice has a cat."), add(memory, "alice has a CAT")
    memory.delete(first)
    assert (memory.get(first), memory.get(second)["memory"]) == (None, "alice has a CAT")
    memory.update(second, "Alice has two dogs.")
    assert set(memories(db)) == {"Alice has two dogs."}
    assert [line["event"] for line in memory.history(second)] == ["ADD", "UPDATE"]
    store.close()
    check(db)


def test_its_own_table_is_adopted_and_absorbs(dsn: str, db: DB) -> None:
    memory = memory_of(
        "pgvector", connection_string=dsn, collection_name="mem0", embedding_model_dims=DIMENSIONS
    )
    kept = add(memory, "Alice plays the cello.")
    copy = add(memory, "alice plays  the CELLO")
    with Adopter(dsn) as adopter:
        definition, known = adopter.define(
            "public.mem0",
            {
                "content": "payload->>'data'",
                "tenant": "payload->>'user_id'",
                "created": "(payload->>'created_at')::timestamptz",
            },
        )
        adopter.run(definition, known, Options(), confirm=True, absorb=True)
    assert (memory.get(kept)["memory"], memory.get(copy)) == ("Alice plays the cello.", None)
    given = [f"Alice likes tea number {n}." for n in range(45)]
    added = {text: add(memory, text) for text in [*given, *(f"  {text.upper()}" for text in given[:5])]}
    assert db.execute("select count(*) from public.mem0").fetchone() == (46,)
    assert db.execute("select sum(repeats) from memfold.adoption_repeats").fetchone() == (5,)
    # mem0 cannot know: the id of an absorbed add belongs to no row
    assert Counter(memory.get(key) is None for key in added.values()) == {False: 45, True: 5}
    with pytest.raises(ValueError, match="not found"):
        memory.update(added[f"  {given[0].upper()}"], "Alice likes coffee.")
    # users are separate; a text that was changed or deleted can be added again
    add(memory, "alice plays the cello", "bob")
    memory.update(kept, "Alice plays the harp.")
    memory.delete(add(memory, "Alice plays the cello."))
    assert memory.get(add(memory, "ALICE plays the cello"))["memory"] == "ALICE plays the cello"
    (found,) = memory.search("Alice plays the harp.", filters={"user_id": "alice"}, top_k=1)["results"]
    assert (found["id"], found["memory"]) == (kept, "Alice plays the harp.")
    assert len(memory.get_all(filters={"user_id": "alice"}, top_k=100)["results"]) == 47
