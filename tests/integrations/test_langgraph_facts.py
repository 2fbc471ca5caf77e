"""LangGraph's store: facts, concurrent writers, graphs and langmem's tools."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, TypedDict
from uuid import uuid4

import psycopg
import pytest
from langgraph.graph import START, StateGraph
from langgraph.store.base import BaseStore
from langmem import create_manage_memory_tool, create_search_memory_tool

from memfold import Memfold
from memfold.agents import _queries
from memfold.agents._core import turn_id
from memfold.agents.langgraph import MemfoldStore
from memfold.client import errors
from memfold.client.facts import Fact
from tests.integrations.toys import at_once, embedder, memories, run_page
from tests.support.memories import check, ingest
from tests.support.queries import DB
from tests.support.waiting import until

# Python: the tests of the SQL functions cover each server.
pytestmark = pytest.mark.one_server

ALICE = ("memories", "alice")


def keys(items: Any) -> list[str]:
    return [item.key for item in items]


# facts -----------------------------------------------------------------------------------------------------------


def test_one_fact_under_many_keys_is_one_memory(store: MemfoldStore, db: DB) -> None:
    store.put(ALICE, "a", {"content": "Alice has a cat.", "by": "a"})
    store.put(ALICE, "b", {"content": "alice  has a CAT", "by": "b"})
    assert memories(db) == {"Alice has a cat.": 2}
    assert [store.get(ALICE, key).value["by"] for key in "ab"] == ["a", "b"]  # type: ignore[union-attr]
    assert keys(store.search(ALICE)) == ["a"]
    store.delete(ALICE, "a")
    # the other key still supports it
    assert store.get(ALICE, "a") is None
    assert [item.value for item in store.search(ALICE)] == [{"content": "alice  has a CAT", "by": "b"}]
    store.delete(ALICE, "b")
    assert store.search(ALICE) == []
    assert db.execute("select count(*) from memfold.memories").fetchone() == (0,)
    check(db)


def test_another_text_makes_the_former_fact_history(store: MemfoldStore, db: DB) -> None:
    for text in ("Alice lives in Lyon.", "Alice moved to Paris.", "Alice lives in Lyon."):
        store.put(ALICE, "home", {"text": text})
        assert [item.value for item in store.search(ALICE)] == [{"text": text}]
    assert set(memories(db, "superseded")) == {"Alice moved to Paris."}
    check(db)
    store.delete(ALICE, "home")
    assert db.execute("select count(*) from memfold.memories").fetchone() == (0,)


def test_texts_under_other_keys_are_kept(store: MemfoldStore, db: DB) -> None:
    store.put(ALICE, "a", {"text": "Alice has a cat."})
    store.put(ALICE, "b", {"text": "Alice has a cat."})
    store.put(ALICE, "a", {"text": "The train leaves at noon."})
    assert memories(db) == {"Alice has a cat.": 1, "The train leaves at noon.": 1}
    assert sorted(keys(store.search(ALICE))) == ["a", "b"]
    store.delete(ALICE, "b")
    assert keys(store.search(ALICE)) == ["a"]
    check(db)


@pytest.mark.parametrize("nested", [False, True])
def test_a_slot_says_what_a_later_value_replaces(store: MemfoldStore, dsn: str, db: DB, nested: bool) -> None:
    with Memfold(dsn, "acme") as client:
        client.set_predicate("lives_in", "one")
    for key, city in (("a", "Lyon"), ("b", "Lyon"), ("c", "Paris")):
        fact = Fact(
            content=f"Alice lives in {city}.", subject="Alice", predicate="lives_in", object=city
        ).model_dump()
        store.put(ALICE, key, {"content": fact} if nested else fact)
    # no matter who stated the former one
    assert (memories(db), memories(db, "superseded")) == (
        {"Alice lives in Paris.": 1},
        {"Alice lives in Lyon.": 2},
    )
    assert keys(store.search(ALICE)) == ["c"]
    # a key keeps its own value
    assert store.get(ALICE, "a") is not None
    row = db.execute(
        "select subject, predicate, object from memfold.memories where status = 'active'"
    ).fetchone()
    assert row == ("Alice", "lives_in", "Paris")
    check(db)


def test_a_slot_without_a_text_is_rendered_as_one(store: MemfoldStore, db: DB) -> None:
    store.put(ALICE, "a", {"content": {"subject": "Alice", "predicate": "lives_in", "object": "Lyon"}})
    assert memories(db) == {"Alice lives in Lyon": 1}


def test_a_rejected_text_disappears_and_stays_rejected(store: MemfoldStore, dsn: str, db: DB) -> None:
    store.put(ALICE, "a", {"text": "Alice has a cat."})
    with Memfold(dsn, "acme") as client:
        (memory,) = client.list(bucket_id="memories.alice")
        event_id = client.reject(memory.memory_id, "never said so").event_id
        assert (store.get(ALICE, "a"), store.search(ALICE)) == (None, [])
        store.put(ALICE, "b", {"text": "alice has a cat"})
        assert (store.get(ALICE, "b"), store.search(ALICE)) == (None, [])
        assert event_id is not None
        client.undo(event_id)
    assert keys(store.search(ALICE)) == ["a"]
    check(db)


def test_memories_stored_by_others_are_found_by_id(store: MemfoldStore, db: DB) -> None:
    memory_id = ingest(db, "Alice has a cat.", bucket_id="memories.alice").memory_id
    (item,) = store.search(ALICE)
    assert (item.key, item.value) == (str(memory_id), {"content": "Alice has a cat."})
    assert store.get(ALICE, item.key).value == item.value  # type: ignore[union-attr]
    assert store.get(("memories", "bob"), item.key) is None
    store.delete(("memories", "bob"), item.key)
    assert len(store.search(ALICE)) == 1
    store.delete(ALICE, item.key)
    assert store.search(ALICE) == []


def test_a_memory_of_others_is_shown_under_the_first_key_merged_into_it(
    store: MemfoldStore, dsn: str, db: DB
) -> None:
    root = ingest(db, "Alice has a cat.", bucket_id="memories.alice").memory_id
    assert root is not None
    for key, text in (("a", "A cat lives with Alice."), ("b", "Alice keeps a cat.")):
        store.put(ALICE, key, {"text": text})
    with Memfold(dsn, "acme") as client:
        for item in store.search(ALICE):
            if item.key in "ab":
                (memory,) = [
                    one for one in client.list("memories.alice") if one.content == item.value["text"]
                ]
                client.merge(memory.memory_id, root)
    (item,) = store.search(ALICE)
    assert (item.key, item.value) == ("a", {"text": "A cat lives with Alice."})
    # the text is its own
    assert set(memories(db)) == {"Alice has a cat."}


def test_tenants_do_not_meet(store: MemfoldStore, dsn: str) -> None:
    store.put(ALICE, "a", {"text": "Alice has a cat."})
    other = MemfoldStore(dsn, tenant_id="globex")
    assert (other.get(ALICE, "a"), other.search(()), other.list_namespaces()) == (None, [], [])
    other.delete(ALICE, "a")
    assert store.get(ALICE, "a") is not None
    other.close()


def test_it_works_as_an_application(app: Any, dsn: str, db: DB) -> None:
    """A login with the rights of memfold_app only."""
    user = app().info.user
    store = MemfoldStore(f"{dsn} user={user}", tenant_id="acme", connections=2)
    store.put(ALICE, "a", {"text": "Alice has a cat."})
    store.put(ALICE, "a", {"text": "The train leaves at noon."})
    assert [item.value["text"] for item in store.search(("memories",))] == ["The train leaves at noon."]
    assert store.list_namespaces() == [ALICE]
    store.delete(ALICE, "a")
    assert store.get(ALICE, "a") is None
    store.close()


# concurrency -----------------------------------------------------------------------------------------------------


def test_sixteen_threads_leave_a_row_a_fact(store: MemfoldStore, db: DB) -> None:
    texts = [f"Customer number {n} pays in advance." for n in range(10)]

    def write(thread: int) -> None:
        for n, text in enumerate(texts):
            store.put(ALICE, f"{thread}-{n}", {"text": text, "thread": thread})

    at_once(16, write)
    assert memories(db) == dict.fromkeys(texts, 16)
    assert db.execute("select count(*) from memfold.memory_events").fetchone() == (160,)
    # nothing is lost: each key has its value
    for thread in (0, 7, 15):
        for n, text in enumerate(texts):
            item = store.get(ALICE, f"{thread}-{n}")
            assert item is not None
            assert item.value == {"text": text, "thread": thread}
    check(db)


def test_writers_of_one_key_leave_one_fact(store: MemfoldStore, db: DB) -> None:
    at_once(8, lambda n: store.put(ALICE, "k", {"text": f"Plan number {n} holds."}))
    (item,) = store.search(ALICE)
    assert item.key == "k"
    assert (len(memories(db)), len(memories(db, "superseded"))) == (1, 7)
    check(db)


def test_a_key_is_written_by_one_at_a_time_and_compared_by_nobody_else(dsn: str, db: DB) -> None:
    """A batch compares after its commit: with the locks of its keys' writers, so that one of the two sees the other."""
    turns = [turn_id("lg", "memories.alice", f"k{n}") for n in range(3)]
    with psycopg.connect(dsn, autocommit=True) as other, db.transaction():
        other.execute("set lock_timeout = '10ms'")
        db.execute(_queries.OPEN_TURN, {"memfold_tenant": "acme", "turn": turns[0]})
        for opening, given, tenant_id, free in (
            (_queries.OPEN_TURN, {"turn": turns[0]}, "acme", False),
            (_queries.OPEN_TURNS, {"turns": turns}, "acme", False),
            (_queries.OPEN_TURN, {"turn": turns[1]}, "acme", True),
            (_queries.OPEN_TURNS, {"turns": turns[1:]}, "acme", True),
            (_queries.OPEN_TURNS, {"turns": turns}, "globex", True),
        ):
            with contextlib.nullcontext() if free else pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute(opening, {"memfold_tenant": tenant_id, **given})


def test_tasks_of_one_loop_and_of_the_next(dsn: str, db: DB) -> None:
    store = MemfoldStore(dsn, tenant_id="acme", embedder=embedder(), connections=3)

    async def work(loop: int) -> None:
        await asyncio.gather(
            *(store.aput(ALICE, f"{loop}-{n}", {"text": f"Fact {n % 4} is so."}) for n in range(12))
        )
        assert len(await store.asearch(ALICE, query="Fact 1 is so.", limit=1)) == 1
        assert (await store.aget(ALICE, f"{loop}-5")).value == {"text": "Fact 1 is so."}  # type: ignore[union-attr]
        assert await store.alist_namespaces() == [ALICE]
        await store.adelete(ALICE, f"{loop}-0")
        await store.aclose()

    asyncio.run(work(1))
    asyncio.run(work(2))
    assert sorted(memories(db).values()) == [4, 6, 6, 6]
    # a server process ends a moment after its client
    left = "select count(*) from pg_stat_activity where application_name = 'memfold' and datname = current_database()"
    until(lambda: db.execute(left.encode()).fetchone() == (0,), "the store's connections are closed")
    check(db)


class Said(TypedDict):
    text: str
    known: list[str]


def test_a_graph_remembers_in_it(near: MemfoldStore, db: DB) -> None:
    def remember(state: Said, *, store: BaseStore) -> Said:
        found = store.search(ALICE, query=state["text"])
        store.put(ALICE, str(uuid4()), {"content": state["text"]})
        return {"text": state["text"], "known": [item.value["content"] for item in found]}

    async def aremember(state: Said, *, store: BaseStore) -> Said:
        found = await store.asearch(ALICE, query=state["text"])
        await store.aput(ALICE, str(uuid4()), {"content": state["text"]})
        return {"text": state["text"], "known": [item.value["content"] for item in found]}

    def graph(node: Any) -> Any:
        return StateGraph(Said).add_node("remember", node).add_edge(START, "remember").compile(store=near)

    assert graph(remember).invoke({"text": "Alice has a cat.", "known": []})["known"] == []
    assert graph(remember).invoke({"text": "alice has a CAT", "known": []})["known"] == ["Alice has a cat."]

    async def work() -> None:
        done = await graph(aremember).ainvoke({"text": "Alice has a cat!", "known": []})
        assert done["known"] == ["Alice has a cat."]
        await near.aclose()

    asyncio.run(work())
    assert memories(db) == {"Alice has a cat.": 3}


# langmem ---------------------------------------------------------------------------------------------------------


def test_langmem_creates_leave_one_row(near: MemfoldStore, db: DB) -> None:
    tool = create_manage_memory_tool(namespace=ALICE, store=near)
    spellings = ["Alice has a cat.", "alice has a cat", "Alice  has a CAT!"]
    at_once(8, lambda _: [tool.invoke({"content": text, "action": "create"}) for text in spellings])
    assert list(memories(db).values()) == [24]
    assert db.execute("select count(*) from memfold.memories").fetchone() == (1,)
    check(db)


def test_langmem_finds_updates_and_deletes(near: MemfoldStore, db: DB) -> None:
    manage = create_manage_memory_tool(namespace=ALICE, store=near)
    search = create_search_memory_tool(namespace=ALICE, store=near)
    key = manage.invoke({"content": "Alice has a cat.", "action": "create"}).split()[-1]
    assert key in search.invoke({"query": "cat"})
    manage.invoke({"content": "Alice has two dogs.", "action": "update", "id": key})
    assert set(memories(db)) == {"Alice has two dogs."}
    manage.invoke({"action": "delete", "id": key})
    assert search.invoke({"query": "cat"}) == "[]"
    assert memories(db) == {}


def test_langmem_with_slots(near: MemfoldStore, dsn: str, db: DB) -> None:
    with Memfold(dsn, "acme") as client:
        client.set_predicate("lives_in", "one")
    manage = create_manage_memory_tool(namespace=ALICE, store=near, schema=Fact)
    for city in ("Lyon", "Paris"):
        fact = {
            "content": f"Alice lives in {city}.",
            "subject": "Alice",
            "predicate": "lives_in",
            "object": city,
        }
        manage.invoke({"content": fact, "action": "create"})
    assert set(memories(db)) == {"Alice lives in Paris."}
    assert set(memories(db, "superseded")) == {"Alice lives in Lyon."}


def test_databases_without_memfold_and_invalid_dsns(db: DB, target: Any, make: Any) -> None:
    store = MemfoldStore(make(""), tenant_id="acme")
    with pytest.raises(errors.NotInstalledError):
        store.put(ALICE, str(uuid4()), {"text": "Alice has a cat."})
    store.close()
    with pytest.raises(errors.InvalidDsnError):
        MemfoldStore("postgresql://[", tenant_id="acme")


def test_the_page_prints_what_it_says(dsn: str) -> None:
    printed, said_so = run_page("LangGraph", dsn=dsn, embedder=embedder())
    assert printed == said_so
