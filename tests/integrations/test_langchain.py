"""LangChain's vector store: LangChain's own test suite, and what only this store does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import VectorStoreIntegrationTests

from memfold import Memfold
from memfold.agents import _items, _queries
from memfold.agents.langchain import LangChainEmbedder, MemfoldVectorStore
from memfold.agents.langgraph import MemfoldStore
from memfold.client import errors, queries
from memfold.client.calls.steps import Transact
from tests.integrations.toys import at_once, memories, run_page, vector
from tests.support.memories import check, ingest
from tests.support.queries import DB

# Python: the tests of the SQL functions cover each server.
pytestmark = pytest.mark.one_server


class Words(Embeddings):
    """A model that counts how often it is asked."""

    model = "words"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked += texts
        return [vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return vector(text)


@pytest.fixture
def store(dsn: str) -> Iterator[MemfoldVectorStore]:
    made = MemfoldVectorStore(dsn, tenant_id="acme", embedding=Words(), bucket_id="docs")
    yield made
    made.close()


class TestMemfoldVectorStore(VectorStoreIntegrationTests):
    """All of LangChain's own tests."""

    @pytest.fixture
    def vectorstore(self, dsn: str) -> Iterator[VectorStore]:  # type: ignore[override]
        made = MemfoldVectorStore(dsn, tenant_id="acme", embedding=self.get_embeddings())
        yield made
        made.close()


def found(documents: list[Document]) -> list[tuple[str | None, str]]:
    return [(document.id, document.page_content) for document in documents]


def test_one_fact_under_many_ids_is_found_once(store: MemfoldVectorStore, db: DB) -> None:
    store.add_texts(
        ["Alice has a cat.", "The train leaves at noon."], [{"page": 1}, {"page": 2}], ids=["a", "b"]
    )
    store.add_texts(["alice has a CAT", "alice has a CAT"], [{"page": 3}, {"page": 4}], ids=["c", "d"])
    assert memories(db) == {"Alice has a cat.": 3, "The train leaves at noon.": 1}
    assert found(store.similarity_search("cat", k=2)) == [
        ("a", "Alice has a cat."),
        ("b", "The train leaves at noon."),
    ]
    assert [one.metadata for one in store.get_by_ids(["d", "none", "a"])] == [{"page": 4}, {"page": 1}]
    store.delete(["a"])
    assert found(store.similarity_search("cat", k=1)) == [("c", "alice has a CAT")]
    check(db)


def test_known_texts_are_not_embedded(store: MemfoldVectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_items, "BATCH", 50)
    asked = store.embeddings.asked  # type: ignore[attr-defined]
    store.add_texts([f"Customer number {n} pays in advance." for n in range(120)])
    assert len(asked) == 120
    store.add_texts(
        [f"customer number {n} pays in advance" for n in range(120)] + ["The train leaves at noon."]
    )
    assert asked[120:] == ["The train leaves at noon."]


def test_an_id_that_is_added_again_stands_for_the_new_text(store: MemfoldVectorStore, db: DB) -> None:
    store.add_texts(["Alice has a cat.", "Bob has a dog."], ids=["a", "b"])
    # the later of two texts with one id counts
    store.add_texts(
        ["Alice has a horse.", "The train leaves at noon.", "Bob has a dog."], ids=["a", "a", "c"]
    )
    assert memories(db) == {"Bob has a dog.": 2, "The train leaves at noon.": 1}
    assert set(memories(db, "superseded")) == {"Alice has a cat."}
    # texts of other ids stay
    store.add_texts(["It rains."], ids=["b"])
    assert {document.id for document in store.similarity_search("it", k=9)} == {"a", "b", "c"}
    check(db)


def test_slots_filters_and_scores(store: MemfoldVectorStore, dsn: str, db: DB) -> None:
    with Memfold(dsn, "acme") as client:
        client.set_predicate("lives_in", "one")
    slots = [
        {"subject": "Alice", "predicate": "lives_in", "object": city, "n": n}
        for n, city in enumerate(["Lyon", "Paris"])
    ]
    store.add_texts([f"Alice lives in {slot['object']}." for slot in slots], slots)
    assert set(memories(db)) == {"Alice lives in Paris."}
    store.add_texts(["Bob lives in Rome.", "The train leaves at noon."], [{"n": 5}, {"n": 7}])
    ((document, score), *rest) = store.similarity_search_with_score("Alice lives in Paris.", k=3)
    assert (document.page_content, score) == ("Alice lives in Paris.", pytest.approx(1, abs=1e-3))
    assert [cosine for _, cosine in rest] == sorted((cosine for _, cosine in rest), reverse=True)
    assert store.similarity_search_with_relevance_scores("Alice lives in Paris.", k=1)[0][1] == pytest.approx(
        1, abs=1e-3
    )
    assert [one.metadata["n"] for one in store.similarity_search("in", filter={"n": {"$gte": 5}})] == [5, 7]
    assert [one.metadata["n"] for one in store.similarity_search_by_vector(vector("noon"), k=1)] == [7]
    retriever = store.as_retriever(search_kwargs={"k": 1, "filter": {"n": 7}})
    assert [one.metadata["n"] for one in retriever.invoke("Alice")] == [7]


def test_an_opposite_vector_has_relevance_zero(store: MemfoldVectorStore) -> None:
    """LangChain wants relevance in [0, 1]; a cosine may be negative."""
    relevance = store._select_relevance_score_fn()
    assert (relevance(-0.25), relevance(0.25), relevance(1.0)) == (0.0, 0.25, 1.0)


def test_a_search_by_vector_gives_scores(store: MemfoldVectorStore) -> None:
    """mem0's provider for LangChain's stores looks for a method of this name."""
    store.add_texts(
        ["Alice has a cat.", "The train leaves at noon."], [{"page": 1}, {"page": 2}], ids=["a", "b"]
    )
    scored = store.similarity_search_with_score_by_vector(vector("Alice has a cat."), k=2)
    assert scored == store.similarity_search_with_score("Alice has a cat.", k=2)
    assert [document.id for document, _ in scored] == ["a", "b"]
    assert scored[0][1] == pytest.approx(1)
    filtered = store.similarity_search_with_score_by_vector(vector("Alice has a cat."), filter={"page": 2})
    assert [document.id for document, _ in filtered] == ["b"]


@pytest.mark.parametrize(
    "search", ["max_marginal_relevance_search", "max_marginal_relevance_search_by_vector"]
)
def test_mmr_is_refused_with_what_to_use(store: MemfoldVectorStore, search: str) -> None:
    with pytest.raises(NotImplementedError, match="use similarity_search"):
        getattr(store, search)("cat", k=1)
    with pytest.raises(NotImplementedError, match="use similarity_search"):
        asyncio.run(getattr(store, f"a{search}")("cat", k=1))


def test_texts_of_others_are_found(store: MemfoldVectorStore, db: DB) -> None:
    store.add_texts(["Alice has a cat."])
    memory_id = ingest(
        db,
        "Bob has a dog.",
        bucket_id="docs",
        embedding=str(vector("Bob has a dog.")),
        embedding_model="words",
    ).memory_id
    assert found(store.similarity_search("dog", k=1)) == [(str(memory_id), "Bob has a dog.")]
    assert found(store.get_by_ids([str(memory_id)])) == [(str(memory_id), "Bob has a dog.")]
    # not of another bucket, even one below it by name
    for bucket in ("docs.old", "other"):
        ingest(db, "It rains.", bucket_id=bucket, embedding=str(vector("It rains.")), embedding_model="words")
    assert {one.page_content for one in store.similarity_search("rains", k=9)} == {
        "Alice has a cat.",
        "Bob has a dog.",
    }


def test_a_batch_is_not_stored_if_one_candidate_cannot_be(store: MemfoldVectorStore, db: DB) -> None:
    with pytest.raises(errors.EmptyContentError):
        store.add_texts(["Alice has a cat.", "."])
    assert memories(db) == {}
    with pytest.raises(ValueError, match="ids is None"):
        store.delete()


def test_sixteen_threads_leave_a_row_a_fact(store: MemfoldVectorStore, db: DB) -> None:
    texts = [f"Customer number {n} pays in advance." for n in range(20)]
    ids = at_once(16, lambda _: store.add_texts(texts))
    assert memories(db) == dict.fromkeys(texts, 16)
    assert [one.page_content for one in store.get_by_ids(ids[7])] == texts
    check(db)


def test_from_texts(dsn: str) -> None:
    with pytest.raises(errors.InvalidDsnError):
        MemfoldVectorStore.from_texts(["x"], Words(), dsn="postgresql://[", tenant_id="acme")
    store = MemfoldVectorStore.from_texts(
        ["Alice has a cat."], Words(), [{"n": 1}], ids=["a"], dsn=dsn, tenant_id="acme"
    )
    assert found(store.similarity_search("cat")) == [("a", "Alice has a cat.")]
    store.close()

    async def work() -> None:
        made = await MemfoldVectorStore.afrom_texts(["Bob has a dog."], Words(), dsn=dsn, tenant_id="acme")
        assert len(await made.asimilarity_search("dog")) == 2
        assert len(await made.asimilarity_search_by_vector(vector("dog"), k=1)) == 1
        await made.aclose()

    asyncio.run(work())


def test_its_models_embed_for_the_other_adapters(dsn: str) -> None:
    class Nameless(Words):
        model: Any = None

    assert LangChainEmbedder(Words()).model == "words"
    assert LangChainEmbedder(Words(), "mine").model == "mine"
    assert LangChainEmbedder(Nameless()).model == "Nameless"
    store = MemfoldStore(dsn, tenant_id="acme", embedder=LangChainEmbedder(Words()))
    store.put(("a",), "k", {"text": "Alice has a cat."})
    assert [item.key for item in store.search((), query="cat")] == ["k"]
    store.close()


def test_the_page_prints_what_it_says(dsn: str) -> None:
    printed, said_so = run_page("LangChain", dsn=dsn, embeddings=Words())
    assert printed == said_so


def test_adding_texts_takes_few_transactions(
    store: MemfoldVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    transact = Memfold._transact

    def counted(driver: Memfold, step: Transact) -> Any:
        sent.append(step.statement)
        return transact(driver, step)

    monkeypatch.setattr(Memfold, "_transact", counted)
    store.add_texts(["Alice has a cat.", "Zoe skis."])  # statements that a connection runs once

    def statements(texts: list[str], ids: list[str] | None = None) -> int:
        sent.clear()
        store.add_texts(texts, ids=ids)
        return len(sent)

    assert statements(["Bob has a dog."]) == 2
    assert queries.INGEST_MANY not in sent
    assert statements(["Carol sails on Sundays.", "Dave plays the organ."]) == 2
    # keys of the caller: one check for all whether they are in use
    assert statements(["Eve reads Kafka.", "Frank lives in Oslo."], ["e", "f"]) == 3
    assert statements(["Grace brews beer."], ["g"]) == 2
    assert _queries.OTHERS_OF_TURN not in sent
    assert statements(["Grace keeps bees."], ["g"]) > 3
    assert _queries.OTHERS_OF_TURN in sent
