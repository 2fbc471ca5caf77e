"""LangGraph's store: the interface of every LangGraph store, and search by meaning."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

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

from memfold.agents._items import Item, Items
from memfold.agents.langgraph import MemfoldStore
from memfold.client import errors
from memfold.client.calls.core import Core
from memfold.client.calls.steps import Transact
from tests.integrations.toys import embedder, memories
from tests.support.losses import answer_of_pipeline_lost
from tests.support.memories import check
from tests.support.queries import DB

# Python: the tests of the SQL functions cover each server.
pytestmark = pytest.mark.one_server

ALICE = ("memories", "alice")


def keys(items: Any) -> list[str]:
    return [item.key for item in items]


# the interface ---------------------------------------------------------------------------------------------------


def test_it_is_a_store(store: MemfoldStore) -> None:
    assert isinstance(store, BaseStore)
    assert store.supports_ttl
    assert store.get(ALICE, "k") is None


def test_an_item_is_not_shown_after_its_time_to_live(store: MemfoldStore, db: DB) -> None:
    value = {"text": "Alice has a cat."}
    for ttl in (60, None, -1):
        store.put(ALICE, "k", value, ttl=ttl)
        expected = [] if ttl == -1 else ["k"]
        assert (store.get(ALICE, "k") is not None) == bool(expected)
        assert keys(store.search(ALICE)) == expected
        assert store.list_namespaces() == [ALICE][: len(expected)]
    store.put(ALICE, "k", value)
    assert keys(store.search(ALICE)) == ["k"]
    assert db.execute("select count(*) from memfold.memories").fetchone() == (1,)
    check(db)


def left_of(db: DB) -> float:
    """Minutes until the memory expires."""
    row = db.execute(
        "select extract(epoch from valid_until - now()) / 60 from memfold.memory_totals"
    ).fetchone()
    assert row is not None
    return float(row[0])


def expire_in(db: DB, minutes: float) -> None:
    """Set the time left, as if it had been put earlier."""
    with db.transaction():
        db.execute("set local session_replication_role = replica")
        until = "set valid_until = now() + %s * interval '1 minute'"
        db.execute(f"update memfold.memory_events {until}", [minutes])
        db.execute(f"update memfold.memory_counters {until}", [minutes])


def test_a_time_to_live_of_the_store(dsn: str, db: DB) -> None:
    store = MemfoldStore(dsn, tenant_id="acme", ttl={"default_ttl": 60, "refresh_on_read": False})
    store.put(ALICE, "k", {"text": "Alice has a cat."})
    assert left_of(db) > 58
    expire_in(db, 2)
    assert store.get(ALICE, "k")
    assert left_of(db) < 3
    assert store.get(ALICE, "k", refresh_ttl=True)
    assert left_of(db) > 58
    store.put(ALICE, "k", {"text": "Alice has a cat."}, ttl=None)
    assert db.execute("select valid_until from memfold.memory_totals").fetchall() == [(None,)]
    store.close()


def test_reading_extends_a_time_to_live(store: MemfoldStore, db: DB) -> None:
    value = {"content": "Alice lives in Oslo.", "subject": "Alice", "predicate": "lives_in", "object": "Oslo"}
    for one in ({"state": 3}, value):
        store.put(ALICE, "k", one, ttl=60)
        before = store.get(ALICE, "k")
        assert before is not None
        for read in (
            lambda refresh: store.get(ALICE, "k", refresh_ttl=refresh),
            lambda refresh: store.search(ALICE, refresh_ttl=refresh),
        ):
            expire_in(db, 2)
            assert read(False)
            assert left_of(db) < 3
            assert read(None)
            assert left_of(db) > 58
        assert store.get(ALICE, "k") == before
        assert db.execute("select independent from memfold.memory_totals").fetchone() == (1,)
        expire_in(db, -1)
        assert store.get(ALICE, "k") is None
        assert store.search(ALICE) == []
        assert left_of(db) < 0
        store.delete(ALICE, "k")
    check(db)


def test_reading_never_shortens_a_time_to_live(store: MemfoldStore, db: DB) -> None:
    value = {"content": "Alice has a cat."}
    store.put(ALICE, "short", value, ttl=30)
    store.put(ALICE, "long", value)
    assert store.get(ALICE, "short")
    assert db.execute("select valid_until from memfold.memory_totals").fetchall() == [(None,)]
    # extending writes a ledger row: not on every read
    store.put(ALICE, "long", value, ttl=60)
    count = db.execute("select count(*) from memfold.memory_events").fetchone()
    assert [bool(store.get(ALICE, key)) for key in ("short", "long", "long")] == [True] * 3
    assert db.execute("select count(*) from memfold.memory_events").fetchone() == count


def test_a_memory_erased_while_it_is_read_stays_erased() -> None:
    now = datetime.now(UTC)
    item = Item("k", "memories.alice", uuid4(), "A cat.", None, None, None, None, now, now, ttl=30)
    step = next(Items("lg").put_off(Core("acme", None, False, 1), [item]))
    assert isinstance(step, Transact)
    assert step.keep is not None
    assert step.keep([{"action": "merged"}])
    assert not step.keep([{"action": "merged"}, {"action": "inserted"}])


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


def test_a_put_whose_answer_is_lost_is_sent_again(
    store: MemfoldStore, db: DB, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(ALICE, "k", {"text": "Alice has a cat."})
    answer_of_pipeline_lost(monkeypatch)
    store.put(ALICE, "k", {"text": "Alice has a dog."})
    item = store.get(ALICE, "k")
    assert item is not None
    assert item.value == {"text": "Alice has a dog."}
    assert db.execute("select count(*) from memfold.memory_sources").fetchone() == (2,)
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
    # compared by value, not as text; another type does not match
    assert found(score={"$gt": 3}) == "ac"
    assert found(score={"$gte": 3, "$lt": 10}) == "ab"
    assert found(score={"$lte": 3}) == "b"
    assert found(score={"$eq": "high"}) == "d"
    with pytest.raises(ValueError, match=r"unknown operator '\$regex': operators are \$eq, "):
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


def test_the_fields_option_locates_the_text(dsn: str, db: DB) -> None:
    store = MemfoldStore(dsn, tenant_id="acme", embedder=embedder(), fields=["note", "parts[*].text"])
    store.put(ALICE, "a", {"note": "red apple", "parts": [{"text": "sweet"}, {"text": "small"}]})
    store.put(ALICE, "b", {"note": "red apple", "title": "Blue car."}, index=["title"])
    assert set(memories(db)) == {"red apple\nsweet\nsmall", "Blue car."}
    assert keys(store.search(ALICE, query="sweet", limit=1)) == ["a"]
    store.close()
