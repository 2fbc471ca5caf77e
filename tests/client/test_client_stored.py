"""get, list, erase, set_predicate, set_policy of both clients, and errors that say what to do."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from memfold import AsyncMemfold, Embedder, Memfold
from memfold.client import errors
from memfold.client.types import Erasure
from tests.conftest import Connect
from tests.support.queries import DB

pytestmark = pytest.mark.usefixtures("measured")


@pytest.fixture
def client(dsn: str) -> Iterator[Memfold]:
    with Memfold(dsn, "t") as made:
        yield made


# reading ---------------------------------------------------------------------------------------------------


def test_get_a_memory_and_its_alias(client: Memfold) -> None:
    kept = client.ingest(
        "Alice has a cat.", subject="Alice", object="cat", metadata={"channel": "chat"}
    ).memory_id
    folded = client.ingest("Alice owns a cat.", subject="Alice").memory_id
    assert kept is not None
    assert folded is not None
    client.merge(folded, kept)
    found = client.get(kept)
    assert (found.content, found.status, found.subject, found.object) == (
        "Alice has a cat.",
        "active",
        "Alice",
        "cat",
    )
    assert (found.repetition_count, found.metadata, found.root_id) == (1, {"channel": "chat"}, None)
    assert 0 < (found.confidence or 0) <= 1
    alias = client.get(str(folded))
    assert (alias.status, alias.root_id, alias.repetition_count, alias.confidence) == (
        "merged",
        kept,
        0,
        None,
    )


def test_get_a_missing_memory(client: Memfold, dsn: str) -> None:
    kept = client.ingest("Alice has a cat.").memory_id
    with Memfold(dsn, "another") as other, pytest.raises(errors.MemoryNotFoundError, match="another"):
        other.get(str(kept))
    with pytest.raises(errors.MemoryNotFoundError):
        client.get(uuid.uuid4())
    with pytest.raises(errors.InvalidIdentifierError):
        client.get("no id")
    with Memfold(dsn) as nobody, pytest.raises(errors.TenantMissingError):
        nobody.get(str(kept))


def test_list_gives_pages_by_age(client: Memfold) -> None:
    ids = [client.ingest(f"Fact number {n}.", bucket_id="notes").memory_id for n in range(7)]
    client.ingest("Elsewhere.", bucket_id="other")
    assert ids[3] is not None
    client.reject(ids[3])
    pages, page = [], client.list("notes", limit=3)
    while page:
        pages.append([memory.memory_id for memory in page])
        # what is written between two pages comes at the end
        if len(pages) == 1:
            ids.append(client.ingest("A late one.", bucket_id="notes").memory_id)
        page = client.list("notes", limit=3, after=page[-1].memory_id)
    assert [one for page in pages for one in page] == [*ids[:3], *ids[4:]]
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [memory.memory_id for memory in client.list("notes", status="rejected")] == [ids[3]]
    assert len(client.list("notes", status=None)) == 8
    assert len(client.list(None)) == 8
    assert client.list("nothing") == ()


def test_list_filters_by_canonical_form(client: Memfold) -> None:
    client.ingest("Alice has a cat.", subject="Alice", predicate="has pet", memory_type="fact")
    client.ingest("Bob has a dog.", subject="Bob", predicate="has pet", memory_type="preference")
    assert [one.subject for one in client.list(subject=" ALICE")] == ["Alice"]
    assert len(client.list(predicate="Has Pet")) == 2
    assert [one.subject for one in client.list(memory_type="preference")] == ["Bob"]


def test_list_filters_by_linked_names(client: Memfold, db: DB) -> None:
    client.ingest("Alice has a cat.", subject="Alice Smith", predicate="has pet")
    db.execute(
        "select link_subject('Alice', 'Alice Smith', 't', '*'), link_predicate('owns', 'has_pet', 't')"
    )
    assert [one.subject for one in client.list(subject="ALICE", predicate="Owns")] == ["Alice Smith"]
    assert client.list(subject="Smith") == ()


def test_a_misspelt_filter_is_refused(client: Memfold) -> None:
    misspelt: dict[str, Any] = {"subject_name": "Bob"}
    for call in (client.list, lambda **given: client.known("a fact", **given)):
        with pytest.raises(TypeError, match="has no argument subject_name"):
            call(**misspelt)


@pytest.mark.parametrize("settings", [{"datestyle": "German"}, {"timezone": "Asia/Tokyo"}])
def test_times_are_read_whatever_the_session_shows(dsn: str, settings: dict[str, str]) -> None:
    """The year 9999 ends earlier in Tokyo, and psycopg reads times in no DateStyle but ISO."""
    ends = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    with Memfold(make_conninfo(dsn, options=options), "t") as client:
        stored = client.ingest("a lease for ever", valid_until=ends)
        assert stored.memory_id is not None
        assert [one.valid_until for one in client.list()] == [ends]
        assert [one.valid_to for one in client.current_memories()] == [ends]
        found = client.get(stored.memory_id)
        assert found is not None
        assert found.valid_until == ends


@pytest.mark.parametrize("given", [{"status": "alive"}, {"limit": 0}, {"limit": 1001}])
def test_list_refuses(client: Memfold, given: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        client.list(**given)
    assert caught.value.hint


# erasing ---------------------------------------------------------------------------------------------------


def test_list_takes_a_whole_number(client: Memfold) -> None:
    for limit in ("5", 1.5, True, None):
        with pytest.raises(TypeError, match="limit must be int, not "):
            client.list(limit=limit)  # type: ignore[arg-type]


@pytest.mark.parametrize("tenant_id", ["a\0b", "a\ud800b"])
def test_a_tenant_that_no_text_can_name(dsn: str, tenant_id: str) -> None:
    with pytest.raises(errors.InvalidTextError, match="tenant_id has a"):
        Memfold(dsn, tenant_id)


def test_erase_a_memory_and_a_turn(client: Memfold, db: DB) -> None:
    first = client.ingest("Alice has a cat.", source_turn_ids=["turn-1"]).memory_id
    client.ingest("Alice has a cat.", source_turn_ids=["turn-2"])
    second = client.ingest("Bob has a dog.", source_turn_ids=["turn-2"]).memory_id
    assert first is not None
    assert second is not None
    turned = client.erase(source_turn_id="turn-2", reason="asked for")
    assert (turned.erased, turned.kept, turned.remaining) == (1, 1, 0)
    assert client.get(first).repetition_count == 0
    with pytest.raises(errors.MemoryNotFoundError):
        client.get(second)
    assert client.erase(memory_id=first).erased == 1
    assert client.list(status=None) == ()
    with pytest.raises(errors.MemoryNotFoundError):
        client.erase(memory_id=first)
    assert db.execute("select count(*) from memory_events where content is not null").fetchone() == (0,)


def test_erase_a_bucket_takes_as_many_calls_as_it_needs(client: Memfold, db: DB) -> None:
    for _ in client.ingest_many([f"Fact number {n}." for n in range(250)], bucket_id="notes"):
        pass
    client.ingest("Elsewhere.", bucket_id="other")
    done = client.erase(bucket_id="notes")
    assert (done.erased, done.remaining) == (250, 0)
    assert [memory.content for memory in client.list(None, status=None)] == ["Elsewhere."]
    assert client.erase(whole_tenant=True).erased == 1
    assert client.list(None, status=None) == ()


@pytest.mark.parametrize(
    "given", [{}, {"bucket_id": "b", "source_turn_id": "turn-1"}, {"bucket_id": "b", "whole_tenant": True}]
)
def test_erase_takes_exactly_one(client: Memfold, given: dict[str, Any]) -> None:
    client.ingest("Alice has a cat.", bucket_id="b", source_turn_ids=["turn-1"])
    with pytest.raises(TypeError, match="one of memory_id"):
        client.erase(**given)
    assert len(client.list("b")) == 1


def test_erase_names_the_tenant(dsn: str, db: DB) -> None:
    with Memfold(dsn) as nobody, pytest.raises(errors.TenantMissingError):
        nobody.erase(whole_tenant=True)


# rules -----------------------------------------------------------------------------------------------------


def test_set_predicate_makes_a_slot(client: Memfold) -> None:
    client.set_predicate("lives in")
    client.ingest("Alice lives in Rome.", subject="Alice", predicate="lives in", object="Rome")
    moved = client.ingest("Alice lives in Oslo.", subject="Alice", predicate="lives in", object="Oslo")
    assert moved.action == "superseded"
    client.set_predicate("lives in", "many")
    with pytest.raises(errors.InvalidOptionError, match="one or many"):
        client.set_predicate("lives in", "two")  # type: ignore[arg-type]


def test_set_policy_passes_rules_by_name(client: Memfold, db: DB) -> None:
    made = client.set_policy(
        "notes", merge_threshold=0.95, judge_threshold=0.9, weights=[1, 0, 0], metadata_keys=["lang"],
        notify=True, on_merge=None,
    )  # fmt: skip
    assert (made["bucket_id"], made["merge_threshold"], made["metadata_keys"]) == ("notes", 0.95, ["lang"])
    stored = db.execute("select merge_threshold, notify from policies where bucket_id = 'notes'").fetchall()
    assert stored == [(0.95, True)]
    assert client.set_policy("notes", notify=False)["merge_threshold"] == 0.95


def test_set_options_does_the_same(client: Memfold, db: DB) -> None:
    assert client.set_options("notes", protected_types=["rule"], decay_rate=0.1)["protected_types"] == [
        "rule"
    ]
    assert client.set_options("notes", touch=True)["decay_rate"] == 0.1
    stored = db.execute("select touch, decay_rate from options where bucket_id = 'notes'").fetchall()
    assert stored == [(True, 0.1)]
    with pytest.raises(errors.InvalidOptionError, match="decay"):
        client.set_options(decay=0.1)


def test_set_policy_knows_the_rules_that_the_database_has(client: Memfold, db: DB) -> None:
    with pytest.raises(errors.InvalidOptionError) as caught:
        client.set_policy(merge_treshold=0.9)
    assert "merge_treshold" in caught.value.message
    assert "merge_threshold" in str(caught.value.hint)
    with pytest.raises(errors.InvalidOptionError):
        client.set_policy(**{"x => 1); drop table memories; --": 1})
    with pytest.raises(errors.InvalidOptionError):
        client.set_policy(merge_threshold=2.0)
    assert db.execute("select count(*) from policies where tenant_id = 't'").fetchone() == (0,)


def test_a_rule_that_another_version_has_is_passed_too(client: Memfold, db: DB) -> None:
    """The database's own signature decides which rules there are."""
    db.execute(
        "create function memfold.set_things(tenant_id text, bucket_id text, memory_type text, new_rule bigint)"
        " returns bigint language sql return new_rule"
    )
    steps = client._core.set_rules(
        "set_things", {"bucket_id": "*", "memory_type": "*"}, {"new_rule": 7}, None
    )
    assert client._drive(steps) == {"set_things": 7}


def test_the_asynchronous_client_does_the_same(dsn: str, db: DB) -> None:
    async def use() -> None:
        async with AsyncMemfold(dsn, "t") as client:
            await client.set_predicate("lives in", conflict="keep_existing")
            assert (await client.set_policy(notify=True))["notify"]
            assert (await client.set_options(touch=True))["touch"]
            kept = (await client.ingest("Alice has a cat.")).memory_id
            assert kept is not None
            assert (await client.get(kept)).content == "Alice has a cat."
            assert [one.memory_id for one in await client.list()] == [kept]
            assert await client.list(after=kept) == ()
            assert (await client.erase(memory_id=kept)).erased == 1

    asyncio.run(use())


def test_erasures_add_up() -> None:
    assert Erasure(1, 2, 3, 4).plus(Erasure(10, 20, 30, 0)) == Erasure(11, 22, 33, 0)


# errors that say what to do --------------------------------------------------------------------------------


@pytest.fixture
def login(db: DB, connect: Connect) -> Iterator[str]:
    role = f"login_{uuid.uuid4().hex[:8]}"
    db.execute(f"create role {role} login password 'right'".encode())
    yield role
    db.execute(f"drop role {role}".encode())


class Refusing:
    """libpq's error for a connection that the server refused, with the server's message."""

    def __init__(self, message: str) -> None:
        self.message = message

    def __call__(self, *_: object, **__: object) -> Any:
        raise psycopg.OperationalError(
            f'connection failed: connection to server at "db" failed: FATAL:  {self.message}'
        )


REFUSED = [
    'password authentication failed for user "alice"',
    'no pg_hba.conf entry for host "10.0.0.1", user "alice", database "agents", no encryption',
    'role "alice" does not exist',
    'role "alice" is not permitted to log in',
    "no password supplied",
]


@pytest.mark.parametrize("message", REFUSED)
def test_a_refused_login_is_not_a_lost_connection(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    refusing, tried = Refusing(message), []

    def connect(*given: object, **more: object) -> Any:
        tried.append(given)
        return refusing()

    monkeypatch.setattr(psycopg, "connect", connect)
    monkeypatch.setattr(psycopg.Connection, "connect", connect)
    with pytest.raises(errors.AuthenticationError) as caught:
        Memfold("host=db", "t").known("Alice has a cat.")
    assert not isinstance(caught.value, errors.ConnectionLostError)
    assert "user and password" in str(caught.value.hint)
    assert len(tried) == 1, "a refused call is not retried"


@pytest.mark.parametrize(
    "message", ['database "agents" does not exist', "the database system is starting up"]
)
def test_other_failures_are_not_reported_as_refusals(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    monkeypatch.setattr(psycopg, "connect", Refusing(message))
    with pytest.raises(errors.ConnectionLostError):
        Memfold("host=db", "t").known("Alice has a cat.")


def test_a_database_without_memfold(dsn: str, db: DB) -> None:
    name = f"empty_{uuid.uuid4().hex[:12]}"
    db.execute(f"create database {name} template template0".encode())
    empty = make_conninfo(dsn, dbname=name)
    try:
        with Memfold(empty, "t") as client:
            calls: list[Callable[[], Any]] = [
                lambda: client.ingest("Alice has a cat."),
                lambda: list(client.ingest_many(["Alice has a cat."])),
                client.stats,
                client.list,
                lambda: client.set_policy(notify=True),
            ]
            for call in calls:
                with pytest.raises(errors.NotInstalledError) as caught:
                    call()
                assert "memfold init" in str(caught.value.hint)
    finally:
        db.execute(f"drop database {name} with (force)".encode())


def test_a_database_of_another_version(client: Memfold, db: DB) -> None:
    db.execute("alter view memfold.dedup_stats rename to gone")
    with pytest.raises(
        errors.NotInstalledError, match="a version that this client does not support"
    ) as caught:
        client.stats()
    assert "memfold doctor" in str(caught.value.hint)


def test_a_role_without_privileges_is_told_which_it_needs(dsn: str, db: DB, login: str) -> None:
    with Memfold(make_conninfo(dsn, user=login, password="right"), "t") as client:
        with pytest.raises(errors.MemfoldError) as caught:
            client.ingest("Alice has a cat.")
        assert caught.value.sqlstate == "42501"
        assert "memfold_app" in str(caught.value.hint)


# embedders of one text -------------------------------------------------------------------------------------

ONE_TEXT: dict[str, Callable[[Any], Any]] = {
    "a flat vector": lambda text: [1.0, 0.0, 0.0],
    "a method of str": lambda text: [[float(len(text.lower())), 1.0, 0.0]],
    "a key": lambda text: [{"x": [1.0, 0.0, 0.0]}[text]],
}


@pytest.mark.parametrize("embed", ONE_TEXT.values(), ids=list(ONE_TEXT))
def test_an_embedder_of_one_text_fails_at_the_first_call(
    dsn: str, db: DB, embed: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with Memfold(dsn, "t", Embedder(embed, "toy", 3)) as client:
        for call in (
            lambda: client.ingest("Alice has a cat."),
            lambda: list(client.ingest_many(["Alice has a cat.", "Bob has a dog."])),
            lambda: client.search("cat"),
        ):
            with pytest.raises(errors.EmbedderError) as caught:
                call()
            assert "for text in texts" in str(caught.value.hint)
    assert caplog.records == []
    assert db.execute("select count(*) from memory_events").fetchone() == (0,)


def test_an_embedder_that_has_worked_may_fail(dsn: str, db: DB) -> None:
    """Then the embedder is usable, and a failure loses no data."""
    answers: list[Any] = [[[1.0, 0.0, 0.0]]]

    def embed(texts: list[str]) -> Any:
        if answers:
            return answers.pop()
        raise TypeError("a model that is broken")

    with Memfold(dsn, "t", Embedder(embed, "toy", 3)) as client:
        client.ingest("Alice has a cat.")
        assert client.ingest("Bob has a dog.").action == "inserted"
