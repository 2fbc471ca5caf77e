"""CrewAI's storage backend: the interface of its own backends, and a real ``Memory`` on top."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from crewai.memory.storage.backend import StorageBackend
from crewai.memory.storage.factory import set_memory_storage_factory
from crewai.memory.types import MemoryRecord
from crewai.memory.unified_memory import Memory

from memfold import Memfold
from memfold.agents.crewai import MemfoldStorage
from tests.integrations.toys import at_once, embedder, memories, run_page, vector
from tests.support.memories import check, ingest
from tests.support.queries import DB

# Python: the tests of the SQL functions cover each server.
pytestmark = pytest.mark.one_server


@pytest.fixture
def storage(dsn: str) -> Iterator[MemfoldStorage]:
    made = MemfoldStorage(dsn, tenant_id="acme", embedding_model="words")
    yield made
    made.close()


def record(content: str, **fields: Any) -> MemoryRecord:
    return MemoryRecord(content=content, embedding=vector(content), **fields)


def texts(records: list[MemoryRecord]) -> list[str]:
    return [one.content for one in records]


def found(storage: MemfoldStorage, query: str, **options: Any) -> list[str]:
    return [one.content for one, _ in storage.search(vector(query), **options)]


def test_it_implements_the_storage_backend(storage: MemfoldStorage) -> None:
    assert isinstance(storage, StorageBackend)
    assert (storage.search(vector("cat")), storage.list_records(), storage.count()) == ([], [], 0)
    assert (storage.list_scopes(), storage.list_categories(), storage.get_record("none")) == ([], {}, None)


def test_a_record_is_saved_read_updated_and_deleted(storage: MemfoldStorage, db: DB) -> None:
    cat = record(
        "Alice has a cat.", scope="/users/alice", categories=["pets"], metadata={"n": 1}, importance=0.9, source="s",
        private=True,
    )  # fmt: skip
    storage.save([cat])
    read = storage.get_record(cat.id)
    assert read is not None
    assert read.model_dump() == cat.model_dump()
    storage.update(
        cat.model_copy(update={"content": "Alice has two dogs.", "embedding": vector("Alice has two dogs.")})
    )
    assert texts(storage.list_records()) == ["Alice has two dogs."]
    assert set(memories(db, "superseded")) == {"Alice has a cat."}
    # into another scope
    storage.update(cat.model_copy(update={"scope": "/users/bob"}))
    assert [(one.id, one.scope) for one in storage.list_records()] == [(cat.id, "/users/bob")]
    assert storage.delete(record_ids=[cat.id, "none"]) == 1
    assert storage.get_record(cat.id) is None
    assert db.execute("select count(*) from memfold.memories").fetchone() == (0,)
    check(db)


def test_search(storage: MemfoldStorage) -> None:
    storage.save([
        record("Alice has a cat.", scope="/users/alice", categories=["pets"], metadata={"n": 1}),
        record("Bob has a cat and a dog.", scope="/users/bob", categories=["pets", "dogs"], metadata={"n": 2}),
        record("The train leaves at noon.", scope="/", categories=["travel"]),
    ])  # fmt: skip
    hits = storage.search(vector("Alice has a cat."))
    assert [one.content for one, _ in hits][:2] == ["Alice has a cat.", "Bob has a cat and a dog."]
    assert hits[0][1] == pytest.approx(1, abs=1e-3)
    assert found(storage, "cat", scope_prefix="/users/bob") == ["Bob has a cat and a dog."]
    assert len(found(storage, "cat", scope_prefix="/users/")) == 2
    assert found(storage, "cat", scope_prefix="/user") == []
    assert found(storage, "cat", categories=["dogs", "travel"], limit=1) == ["Bob has a cat and a dog."]
    assert found(storage, "cat", metadata_filter={"n": 1}) == ["Alice has a cat."]
    assert found(storage, "Alice has a cat.", min_score=0.99) == ["Alice has a cat."]


def test_scopes_categories_and_counts(storage: MemfoldStorage, db: DB) -> None:
    ingest(db, "It rains.", bucket_id="default")
    storage.save([
        record("Alice has a cat.", scope="/users/alice/pets", categories=["pets"], created_at=datetime(2026, 1, 1)),
        record("Alice is tall.", scope="/users/alice", categories=["looks", "people"], created_at=datetime(2026, 1, 2)),
        record("Bob has a dog.", scope="users/bob/", categories=["pets"]),
        record("The train leaves at noon."),
    ])  # fmt: skip
    assert storage.list_scopes() == ["/users"]
    assert storage.list_scopes("/users") == ["/users/alice", "/users/bob"]
    assert storage.list_scopes("/users/alice/") == ["/users/alice/pets"]
    assert storage.list_categories() == {"pets": 2, "looks": 1, "people": 1}
    assert storage.list_categories("/users/bob") == {"pets": 1}
    assert [storage.count(scope) for scope in (None, "/", "/users", "/users/alice", "/other")] == [
        4,
        4,
        3,
        2,
        0,
    ]
    info = storage.get_scope_info("/users/alice")
    assert (info.record_count, info.categories) == (2, ["looks", "people", "pets"])
    assert (info.oldest_record, info.newest_record) == (datetime(2026, 1, 1), datetime(2026, 1, 2))
    assert info.child_scopes == ["/users/alice/pets"]
    assert len(storage.list_records("/users", limit=2, offset=2)) == 1
    storage.reset("/users/alice")
    assert storage.count() == 2
    storage.reset()
    assert (storage.count(), set(memories(db))) == (0, {"It rains."})
    check(db)


def test_one_fact_is_one_record_and_is_deleted_as_one(storage: MemfoldStorage, db: DB) -> None:
    same = [
        record(text, categories=["pets"])
        for text in ("Alice has a cat.", "alice has a CAT", "Alice  has a cat!")
    ]
    storage.save([*same, record("The train leaves at noon.")])
    assert memories(db) == {"Alice has a cat.": 3, "The train leaves at noon.": 1}
    assert storage.count() == 2
    # deleting an id forgets what that id stated
    assert storage.delete(record_ids=[same[0].id]) == 1
    assert storage.count() == 2
    assert storage.delete(categories=["pets"]) == 2
    assert texts(storage.list_records()) == ["The train leaves at noon."]
    check(db)


def test_old_records_are_deleted(storage: MemfoldStorage) -> None:
    old, new = (
        record("Alice has a cat.", created_at=datetime(2026, 1, 1)),
        record("The train leaves at noon."),
    )
    storage.save([old, new])
    assert storage.delete(older_than=datetime(2025, 1, 1)) == 0
    assert storage.delete(record_ids=[new.id], older_than=datetime(2026, 2, 1)) == 0
    assert storage.delete(older_than=datetime(2026, 2, 1)) == 1
    assert texts(storage.list_records()) == ["The train leaves at noon."]


def test_slots(storage: MemfoldStorage, dsn: str, db: DB) -> None:
    with Memfold(dsn, "acme") as client:
        client.set_predicate("lives_in", "one")
    for days, city in ((2, "Lyon"), (1, "Paris")):
        slot = {"subject": "Alice", "predicate": "lives_in", "object": city}
        storage.save(
            [record(f"Alice lives in {city}.", metadata=slot, created_at=datetime.utcnow() - timedelta(days))]
        )
    assert texts(storage.list_records()) == ["Alice lives in Paris."]
    assert set(memories(db, "superseded")) == {"Alice lives in Lyon."}


def test_records_of_others_are_shown(storage: MemfoldStorage, db: DB) -> None:
    memory_id = ingest(db, "Alice has a cat.", bucket_id="/").memory_id
    (shown,) = storage.list_records()
    assert (shown.id, shown.content, shown.scope) == (str(memory_id), "Alice has a cat.", "/")
    assert storage.get_record(shown.id) == shown
    assert storage.delete(record_ids=[shown.id]) == 1
    assert storage.count() == 0


def test_threads_and_loops(storage: MemfoldStorage, db: DB) -> None:
    at_once(8, lambda _: storage.save([record(f"Customer number {n} pays in advance.") for n in range(5)]))
    assert set(memories(db).values()) == {8}

    async def work() -> None:
        await storage.asave([record("Alice has a cat.")])
        assert [one.content for one, _ in await storage.asearch(vector("cat"), limit=1)] == [
            "Alice has a cat."
        ]
        assert await storage.adelete(metadata_filter={"none": 1}) == 0
        assert await storage.adelete() == 41
        await storage._connections.aclose()

    asyncio.run(work())
    assert memories(db) == {}
    check(db)


class Silent:
    """A model that must not be called."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_a_memory_remembers_recalls_and_forgets(storage: MemfoldStorage, db: DB) -> None:
    set_memory_storage_factory(lambda spec: storage if spec == "memfold" else None)
    try:
        memory = Memory(
            storage="memfold", embedder=lambda asked: [vector(text) for text in asked], llm=Silent(),
            consolidation_threshold=1.0,
        )  # fmt: skip
    finally:
        set_memory_storage_factory(None)
    given: dict[str, Any] = {"scope": "/alice", "categories": ["pets"], "metadata": {}, "importance": 0.5}
    for text in ("Alice has a cat.", "alice has a CAT", "The train leaves at noon."):
        memory.remember(text, **given)
    assert memories(db) == {"Alice has a cat.": 2, "The train leaves at noon.": 1}
    matches = memory.recall("Alice cat", scope="/alice", limit=1, depth="shallow")
    assert [match.record.content for match in matches] == ["Alice has a cat."]
    assert memory.list_scopes("/") == ["/alice"]
    assert memory.forget(scope="/alice") == 3
    assert memories(db) == {}
    memory.close()


def test_the_page_prints_what_it_says(dsn: str) -> None:
    printed, said_so = run_page("CrewAI", dsn=dsn, embedder=embedder())
    assert printed == said_so
