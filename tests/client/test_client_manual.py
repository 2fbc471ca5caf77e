"""Manual actions through the clients, their errors, and what was believed when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from memfold import Embedder, Memfold, Question
from memfold.client import errors
from tests.support.memories import check
from tests.support.queries import DB, one

# Python: the tests of the SQL functions cover each server.
pytestmark = pytest.mark.one_server
VIM = "User likes Vim."


@pytest.fixture
def measured(db: psycopg.Connection[Any]) -> None:
    """The thresholds of the toy model, so that no client measures them."""
    db.execute("select memfold.register_embedding_model('toy', 2, 0.92, 0.85)")


@pytest.fixture
def enter() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def ids(client: Memfold, *contents: str, **fields: Any) -> list[UUID]:
    made = [client.ingest(content, **fields).memory_id for content in contents]
    return [memory_id for memory_id in made if memory_id is not None]


def test_merge_and_undo(plain: Memfold, db: DB) -> None:
    one_id, other_id = ids(plain, "Alice has a cat.", "Alice owns a cat.")
    result = plain.merge(one_id, str(other_id), "the same cat")
    assert (result.action, result.tier, result.method) == ("merged", 3, "person")
    assert (result.memory_id, result.similar) == (other_id, ())
    assert plain.ingest("Alice has a cat.").memory_id == other_id
    assert result.event_id is not None
    undone = plain.undo(str(result.event_id), "two cats")
    assert [(memory.memory_id, memory.status) for memory in undone] == [
        (one_id, "active"),
        (other_id, "active"),
    ]
    assert {memory.event_id for memory in undone} != {result.event_id}
    rows = db.execute("select action, reason from memfold.memory_events where reason <> ''").fetchall()
    assert rows == [("merged", "the same cat"), ("undone", "two cats")]
    check(db)


def test_reject_and_undo(plain: Memfold, db: DB) -> None:
    (memory_id,) = ids(plain, "Alice has a cat.")
    result = plain.reject(memory_id, "a lie")
    assert (result.action, result.memory_id) == ("rejected", memory_id)
    assert plain.current_memories() == ()
    assert plain.ingest("Alice has a cat.").method == "tombstone"
    assert result.event_id is not None
    plain.undo(result.event_id)
    assert [memory.content for memory in plain.current_memories()] == ["Alice has a cat."]
    check(db)


def test_supersede_and_what_was_believed_when(plain: Memfold, db: DB) -> None:
    then = datetime.now(UTC) - timedelta(days=10)
    (old,) = ids(plain, "Alice lives in Paris.", observed_at=then)
    (new,) = ids(plain, "Alice lives in Rome.", observed_at=then + timedelta(days=5))
    result = plain.supersede(old, new)
    assert (result.action, result.memory_id, result.superseded_id) == ("superseded", new, old)
    (current,) = plain.current_memories()
    assert (current.content, current.memory_type, current.subject) == ("Alice lives in Rome.", "fact", None)
    assert (current.valid_to, current.repetition_count) == (None, 0)
    assert 0 < current.confidence < 1
    (believed,) = plain.current_memories(as_of=then + timedelta(days=1))
    assert (believed.content, believed.valid_from) == ("Alice lives in Paris.", then)
    assert believed.valid_to is not None
    assert plain.current_memories(as_of=then - timedelta(days=1)) == ()
    assert plain.current_memories("another bucket") == ()
    assert plain.current_memories(tenant_id="another tenant") == ()
    check(db)


@pytest.mark.usefixtures("measured")
def test_update_embeds_the_new_text(dsn: str, db: DB, enter: ExitStack) -> None:
    asked: list[str] = []

    def embed(texts: list[str]) -> list[list[float]]:
        asked.extend(texts)
        return [[1.0, 0.0] if text == VIM else [0.9, -0.4358898944] for text in texts]

    client = enter.enter_context(Memfold(dsn, "t", Embedder(embed, "toy", 2)))
    (memory_id,) = ids(client, VIM)
    result = client.update(memory_id, "User prefers Emacs.", object="Emacs", reason="asked her")
    assert result.action == "replaced"
    assert asked == [VIM, "User prefers Emacs."]
    (current,) = client.current_memories()
    assert (current.content, current.object, current.memory_id) == (
        *("User prefers Emacs.", "Emacs", result.memory_id),
    )
    assert one(db, "select count(*) from memfold.pending_embeddings('t')") == 0
    assert client.ingest(VIM).memory_id == result.memory_id
    assert result.event_id is not None
    client.undo(result.event_id)
    assert [memory.content for memory in client.current_memories()] == [VIM]
    check(db)


def test_update_without_a_vector(plain: Memfold, db: DB) -> None:
    (memory_id,) = ids(plain, VIM)
    assert plain.update(memory_id, "User prefers Emacs.").action == "replaced"
    pending = db.execute("select content from memfold.pending_embeddings('t')").fetchall()
    assert ("User prefers Emacs.",) in pending


@pytest.mark.usefixtures("measured")
def test_update_with_an_embedder_that_fails(
    dsn: str, db: DB, plain: Memfold, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(texts: list[str]) -> list[list[float]]:
        raise RuntimeError("the model is down")

    (memory_id,) = ids(plain, VIM)
    with Memfold(dsn, "t", Embedder(broken, "toy", 2)) as client:
        assert client.update(memory_id, "User prefers Emacs.").action == "replaced"
    assert "DEDUP_FAIL" in caplog.text


def provoke(client: Memfold, code: str) -> object:
    memory_id, other_id = ids(client, "Alice has a cat.", "Bob has a dog.")
    core = client._core
    match code:
        case "MF026":
            question = Question(uuid4(), "t", "default", "write", None, (), 1, None, None)  # type: ignore[arg-type]
            return client._drive(core.give_back(question, "none"))
        case "MF027":
            question = client._drive(core.claim("t", 60, review=True))
            assert question is not None
            client._drive(core.answer_by_person(question, "distinct"))
            return client._drive(core.answer_by_person(question, "distinct"))
        case "MF028":
            return client._drive(core.claim("t", 0.1))
        case "MF029":
            return client.undo(uuid4())
        case "MF032":
            event_id = client.ingest("Carla has a fish.").event_id
            assert event_id is not None
            return client.undo(event_id)
        case "MF033":
            event_id = client.merge(memory_id, other_id).event_id
            assert event_id is not None
            client.undo(event_id)
            return client.undo(event_id)
        case "MF034":
            return client.merge(memory_id, memory_id)
        case _:
            raise AssertionError(code)


CLASSES = {
    "MF026": errors.JudgementNotFoundError,
    "MF027": errors.JudgementClosedError,
    "MF028": errors.InvalidAnswerError,
    "MF029": errors.EventNotFoundError,
    "MF032": errors.NotUndoableError,
    "MF033": errors.AlreadyUndoneError,
    "MF034": errors.MemoryStateError,
}


@pytest.mark.parametrize("code", CLASSES)
def test_errors_are_typed(plain: Memfold, db: DB, code: str) -> None:
    if code == "MF027":
        a, b = ids(plain, "Alice has no cat.", "Alice has cats.")
        db.execute(
            "insert into memfold.judgements (tenant_id, bucket_id, scope_key, kind, memory_id, other_id)"
            " select tenant_id, bucket_id, scope_key, 'review', greatest(memory_id, %(b)s), least(memory_id, %(b)s)"
            " from memfold.memories where memory_id = %(a)s",
            {"a": a, "b": b},
        )
    with pytest.raises(CLASSES[code]) as caught:
        provoke(plain, code)
    assert caught.value.sqlstate == code
    assert caught.value.detail
    assert caught.value.hint
    check(db)


def test_arguments_that_only_python_can_get_wrong(plain: Memfold) -> None:
    for call in (
        lambda: plain.undo("no id"),
        lambda: plain.merge(uuid4(), "no id"),
        lambda: plain.supersede(uuid4(), "no id"),
        lambda: plain.reject("no id"),
        lambda: plain.update("no id", "text"),
    ):
        with pytest.raises(errors.InvalidIdentifierError, match="not a UUID"):
            call()
    with pytest.raises(errors.MemoryNotFoundError):
        plain.reject(uuid4())
    with pytest.raises(errors.InvalidTextError):
        plain.reject(uuid4(), "\0")
    with pytest.raises(errors.InvalidArgumentError, match="no time zone"):
        plain.current_memories(as_of=datetime(2025, 1, 1))
    with pytest.raises(TypeError, match="as_of"):
        plain.current_memories(as_of="now")  # type: ignore[arg-type]


def test_a_tenant_is_needed(dsn: str, plain: Memfold) -> None:
    with Memfold(dsn) as client:
        with pytest.raises(errors.TenantMissingError):
            client.current_memories()
        with pytest.raises(errors.TenantMissingError):
            client.reject(uuid4())
