"""LangGraph's store: what its own stores are asked for, and what only this one does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langmem import create_manage_memory_tool, create_search_memory_tool

from memfold import Memfold, errors
from memfold.facts import Fact
from memfold.integrations.langgraph import MemfoldStore
from tests.integrations.toys import at_once, embedder, memories, run_page
from tests.support import DB, check, ingest

# Python: what the server has to do with it, the tests of the functions show on each.
pytestmark = pytest.mark.one_server

ALICE = ("memories", "alice")


@pytest.fixture
def store(dsn: str) -> Iterator[MemfoldStore]:
    made = MemfoldStore(dsn, tenant_id="acme")
    yield made
    made.close()


@pytest.fixture
def near(dsn: str) -> Iterator[MemfoldStore]:
    """One that searches by meaning."""
    made = MemfoldStore(dsn, tenant_id="acme", embedder=embedder())
    yield made
    made.close()


def keys(items: Any) -> list[str]:
    return [item.key for item in items]


# what any store does ---------------------------------------------------------------------------------------------


def test_it_is_a_store(store: MemfoldStore) -> None:
    assert isinstance(store, BaseStore)
    assert not store.supports_ttl
    with pytest.raises(NotImplementedError, match="TTL"):
        store.put(ALICE, "k", {"text": "Alice has a cat."}, ttl=1)


def test_an_item_is_put_read_changed_and_deleted(store: MemfoldStore) -> None:
    value = {"title": "Test Document", "content": "Hello, World!", "n": 1.5, "tags": ["a", None]}
    store.put(ALICE, "doc1", value)
    item = store.get(ALICE, "doc1")
    assert item is not None
    assert (item.namespace, item.key, item.value) == (ALICE, "doc1", value)
    assert item.created_at == item.updated_at
    store.put(ALICE, "doc1", {"content": "Hello, Updated!"})
    changed = store.get(ALICE, "doc1")
    assert changed is not None
    assert changed.value == {"content": "Hello, Updated!"}
    assert (changed.created_at, changed.updated_at > item.updated_at) == (item.created_at, True)
    assert store.get(("memories", "bob"), "doc1") is None
    store.delete(ALICE, "doc1")
    assert store.get(ALICE, "doc1") is None
    assert store.search(ALICE) == []
    store.delete(ALICE, "doc1")


@pytest.mark.parametrize(
    "value",
    [
        {"v": 1},
        {},
        {"": ""},
        {"text": ""},
        {"text": 3},
        {"a": {"b": [1, "x", None, True]}},
        {"content": {"a": "b"}},
    ],
    ids=str,
)
def test_a_value_without_a_text_is_a_document_of_its_key(
    store: MemfoldStore, db: DB, value: dict[str, Any]
) -> None:
    store.put(ALICE, "a", value)
    store.put(ALICE, "b", value)
    assert [store.get(ALICE, key).value for key in "ab"] == [value, value]  # type: ignore[union-attr]
    assert sorted(keys(store.search(ALICE))) == ["a", "b"]
    store.put(ALICE, "a", {"v": -1})
    assert store.get(ALICE, "a").value == {"v": -1}  # type: ignore[union-attr]
    assert store.get(ALICE, "b").value == value  # type: ignore[union-attr]
    assert len(store.search(ALICE)) == 2
    check(db)


def test_a_batch_is_carried_out_in_its_order(store: MemfoldStore) -> None:
    results = store.batch(
        [
            PutOp(ALICE, "k", {"text": "Alice has a cat."}),
            GetOp(ALICE, "k"),
            SearchOp(("memories",)),
            ListNamespacesOp(),
            PutOp(ALICE, "k", None),
            GetOp(ALICE, "k"),
        ]
    )
    assert results[0] is None
    assert results[1].value == {"text": "Alice has a cat."}  # type: ignore[union-attr]
    assert keys(results[2]) == ["k"]
    assert results[3:] == [[ALICE], None, None]


def test_filters(store: MemfoldStore) -> None:
    for key, score, tag in (("a", 4.5, "red"), ("b", 3, "red"), ("c", 10, "green")):
        store.put(ALICE, key, {"text": f"item {key}", "score": score, "tag": tag, "deep": {"er": key}})
    store.put(ALICE, "d", {"text": "item d", "score": "high", "tag": None})

    def found(**filters: Any) -> str:
        return "".join(sorted(keys(store.search(ALICE, filter=filters))))

    assert found(tag="red") == "ab"
    assert found(tag="red", score=3) == "b"
    assert found(tag=None) == "d"
    assert found(absent=None) == ""
    assert found(deep={"er": "c"}) == "c"
    assert found(tag={"$ne": "red"}) == "cd"
    # by value, not by their letters; another type is none of it
    assert found(score={"$gt": 3}) == "ac"
    assert found(score={"$gte": 3, "$lt": 10}) == "ab"
    assert found(score={"$lte": 3}) == "b"
    assert found(score={"$eq": "high"}) == "d"
    with pytest.raises(ValueError, match=r"unknown operator '\$regex': there are \$eq, "):
        found(tag={"$regex": "r.*"})


def test_pages(store: MemfoldStore, near: MemfoldStore) -> None:
    for n in range(5):
        near.put(ALICE, f"k{n}", {"text": f"item number {n}"})
    assert keys(store.search(ALICE, limit=2)) == ["k4", "k3"]
    assert keys(store.search(ALICE, limit=2, offset=2)) == ["k2", "k1"]
    assert keys(store.search(ALICE, limit=2, offset=4)) == ["k0"]
    pages = [keys(near.search(ALICE, query="item number", limit=2, offset=offset)) for offset in (0, 2, 4)]
    assert sorted([key for page in pages for key in page]) == ["k0", "k1", "k2", "k3", "k4"]
    assert [len(page) for page in pages] == [2, 2, 1]


def test_a_prefix_ends_at_a_label(store: MemfoldStore) -> None:
    for namespace in [
        ("foo",),
        ("foo", "a"),
        ("foo", "a", "b"),
        ("foobar",),
        ("foo-a",),
        ("foo_1", "a"),
        ("fooX1",),
        ("foo%",),
    ]:
        store.put(namespace, "k", {"v": 1})

    def under(*prefix: str) -> set[tuple[str, ...]]:
        return {item.namespace for item in store.search(prefix, limit=100)}

    assert under("foo") == {("foo",), ("foo", "a"), ("foo", "a", "b")}
    assert under("foo", "a") == {("foo", "a"), ("foo", "a", "b")}
    assert under("foo_1") == {("foo_1", "a")}
    assert under("foo%") == {("foo%",)}
    assert under("fooX") == set()
    assert len(under()) == 8


def test_namespaces_are_listed(store: MemfoldStore) -> None:
    for namespace in [
        ("a", "x", "end"),
        ("a", "y", "end"),
        ("a", "y", "bend"),
        ("ab", "x"),
        ("b", "x", "q", "end"),
    ]:
        store.put(namespace, "k", {"v": 1})
    store.put(("gone",), "k", {"v": 1})
    store.delete(("gone",), "k")
    assert store.list_namespaces() == [
        ("a", "x", "end"), ("a", "y", "bend"), ("a", "y", "end"), ("ab", "x"), ("b", "x", "q", "end"),
    ]  # fmt: skip
    assert store.list_namespaces(prefix=("a",)) == [("a", "x", "end"), ("a", "y", "bend"), ("a", "y", "end")]
    assert store.list_namespaces(prefix=("a", "*", "end")) == [("a", "x", "end"), ("a", "y", "end")]
    assert store.list_namespaces(suffix=("end",)) == [
        ("a", "x", "end"),
        ("a", "y", "end"),
        ("b", "x", "q", "end"),
    ]
    assert store.list_namespaces(suffix=("x", "*")) == [("a", "x", "end")]
    assert store.list_namespaces(max_depth=1) == [("a",), ("ab",), ("b",)]
    assert store.list_namespaces(max_depth=2, limit=2, offset=1) == [("a", "y"), ("ab", "x")]
    (found,) = store.batch(
        [ListNamespacesOp((MatchCondition("prefix", ("a",)), MatchCondition("suffix", ("end",))))]
    )
    assert found == [("a", "x", "end"), ("a", "y", "end")]


def test_names_of_any_kind(store: MemfoldStore) -> None:
    store.put(("users", "alice\n"), 'a"b\\:é', {"v": 1})
    store.put(("users", "alice"), 'a"b\\:é', {"v": 2})
    assert store.get(("users", "alice\n"), 'a"b\\:é').value == {"v": 1}  # type: ignore[union-attr]
    store.delete(("users", "alice"), 'a"b\\:é')
    assert [(item.namespace, item.key) for item in store.search(("users",))] == [
        (("users", "alice\n"), 'a"b\\:é')
    ]
    with pytest.raises(InvalidNamespaceError):
        store.put(("a.b",), "k", {"v": 1})
    with pytest.raises(errors.InvalidIdentifierError):
        store.put(ALICE, "k" * 600, {"text": "Alice has a cat."})


# by meaning ------------------------------------------------------------------------------------------------------


def test_search_by_meaning(near: MemfoldStore) -> None:
    near.put(ALICE, "a", {"text": "red apple", "color": "red"})
    near.put(ALICE, "b", {"text": "red car", "color": "red"})
    near.put(("memories", "bob"), "c", {"text": "green apple tree", "color": "green"})
    near.put(ALICE, "d", {"text": "red apple pie"}, index=False)
    found = near.search(("memories",), query="apple")
    assert keys(found) == ["a", "c", "b"]
    scores = [item.score for item in found]
    assert scores == sorted(scores, reverse=True)  # type: ignore[type-var]
    assert scores[0] == pytest.approx(0.7, abs=0.1)
    assert keys(near.search(("memories",), query="apple", filter={"color": "green"})) == ["c"]
    assert [item.score for item in near.search(ALICE)] == [None, None, None]
    assert len(near.search(ALICE, query="")) == 3


def test_fields_say_where_the_text_is(dsn: str, db: DB) -> None:
    store = MemfoldStore(dsn, tenant_id="acme", embedder=embedder(), fields=["note", "parts[*].text"])
    store.put(ALICE, "a", {"note": "red apple", "parts": [{"text": "sweet"}, {"text": "small"}]})
    store.put(ALICE, "b", {"note": "red apple", "title": "Blue car."}, index=["title"])
    assert set(memories(db)) == {"red apple\nsweet\nsmall", "Blue car."}
    assert keys(store.search(ALICE, query="sweet", limit=1)) == ["a"]
    store.close()


# what memfold does -----------------------------------------------------------------------------------------------


def test_one_fact_under_many_keys_is_one_memory(store: MemfoldStore, db: DB) -> None:
    store.put(ALICE, "a", {"content": "Alice has a cat.", "by": "a"})
    store.put(ALICE, "b", {"content": "alice  has a CAT", "by": "b"})
    assert memories(db) == {"Alice has a cat.": 2}
    assert [store.get(ALICE, key).value["by"] for key in "ab"] == ["a", "b"]  # type: ignore[union-attr]
    assert keys(store.search(ALICE)) == ["a"]
    store.delete(ALICE, "a")
    # the other key supports it still
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


def test_what_other_keys_state_stays_theirs(store: MemfoldStore, db: DB) -> None:
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
    # whoever stated the former one
    assert (memories(db), memories(db, "superseded")) == (
        {"Alice lives in Paris.": 1},
        {"Alice lives in Lyon.": 2},
    )
    assert keys(store.search(ALICE)) == ["c"]
    # a key keeps what was put under it
    assert store.get(ALICE, "a") is not None
    row = db.execute(
        "select subject, predicate, object from memfold.memories where status = 'active'"
    ).fetchone()
    assert row == ("Alice", "lives_in", "Paris")
    check(db)


def test_a_slot_alone_is_a_text(store: MemfoldStore, db: DB) -> None:
    store.put(ALICE, "a", {"content": {"subject": "Alice", "predicate": "lives_in", "object": "Lyon"}})
    assert memories(db) == {"Alice lives in Lyon": 1}


def test_what_a_person_rejects_is_gone_and_stays_away(store: MemfoldStore, dsn: str, db: DB) -> None:
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


def test_what_others_store_is_found_by_its_id(store: MemfoldStore, db: DB) -> None:
    memory_id = ingest(db, "Alice has a cat.", bucket_id="memories.alice").memory_id
    (item,) = store.search(ALICE)
    assert (item.key, item.value) == (str(memory_id), {"content": "Alice has a cat."})
    assert store.get(ALICE, item.key).value == item.value  # type: ignore[union-attr]
    assert store.get(("memories", "bob"), item.key) is None
    store.delete(("memories", "bob"), item.key)
    assert len(store.search(ALICE)) == 1
    store.delete(ALICE, item.key)
    assert store.search(ALICE) == []


def test_tenants_do_not_meet(store: MemfoldStore, dsn: str) -> None:
    store.put(ALICE, "a", {"text": "Alice has a cat."})
    other = MemfoldStore(dsn, tenant_id="globex")
    assert (other.get(ALICE, "a"), other.search(()), other.list_namespaces()) == (None, [], [])
    other.delete(ALICE, "a")
    assert store.get(ALICE, "a") is not None
    other.close()


def test_it_works_as_an_application(app: Any, dsn: str, db: DB) -> None:
    """A login that may do no more than memfold_app."""
    user = app().info.user
    store = MemfoldStore(f"{dsn} user={user}", tenant_id="acme", connections=2)
    store.put(ALICE, "a", {"text": "Alice has a cat."})
    store.put(ALICE, "a", {"text": "The train leaves at noon."})
    assert [item.value["text"] for item in store.search(("memories",))] == ["The train leaves at noon."]
    assert store.list_namespaces() == [ALICE]
    store.delete(ALICE, "a")
    assert store.get(ALICE, "a") is None
    store.close()


# at the same time ------------------------------------------------------------------------------------------------


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
    assert len(memories(db)) + len(memories(db, "superseded")) == 8
    check(db)


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
    until_gone = "select count(*) from pg_stat_activity where application_name = 'memfold' and datname = current_database()"
    assert psycopg.connect(dsn).execute(until_gone).fetchone() == (0,)
    check(db)


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


def test_what_is_no_memfold(db: DB, target: Any, make: Any) -> None:
    store = MemfoldStore(make(""), tenant_id="acme")
    with pytest.raises(errors.NotInstalledError):
        store.put(ALICE, str(uuid4()), {"text": "Alice has a cat."})
    store.close()
    with pytest.raises(errors.InvalidDsnError):
        MemfoldStore("postgresql://[", tenant_id="acme")


def test_the_page_prints_what_it_says(dsn: str) -> None:
    printed, said_so = run_page("LangGraph", dsn=dsn, embedder=embedder())
    assert printed == said_so
