"""Errors of the Python client: each has its class, and a refused call leaves nothing."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from pgvector import Vector
from psycopg.conninfo import make_conninfo

from memfold import Embedder, Memfold, MemfoldError
from memfold.client import errors
from memfold.client.types import EmbedReport
from tests.support.counting import CAT, Counting, written
from tests.support.queries import one

pytestmark = pytest.mark.usefixtures("measured")

SQL = Path(__file__).parents[2] / "sql"


def test_every_code_of_the_server_has_a_class() -> None:
    used = set()
    for path in [*SQL.glob("schema/*.sql"), *SQL.glob("functions/**/*.sql")]:
        used |= set(re.findall(r"_fail\(\s*'(MF\d{3})'|errcode = '(MF\d{3})'", path.read_text()))
    codes = {code for pair in used for code in pair if code}
    assert len(codes) >= 20
    assert codes <= errors.CLASSES.keys()


Provoke = Callable[[Memfold], object]
LATER = datetime.now(UTC) + timedelta(days=1)
FROM_THE_CLIENT: dict[str, Provoke] = {
    "MF001": lambda c: c.ingest("a fact", ""),
    "MF003": lambda c: c.ingest("a fact", subject="x" * 1_000_000),
    "MF004": lambda c: c.ingest("\u200b"),
    "MF005": lambda c: c.ingest("x" * 10_000_000),
    "MF006": lambda c: c.ingest("a fact", source_confidence=-0.1),
    "MF007": lambda c: c.ingest("a fact", metadata=["no object"]),  # type: ignore[arg-type]
    "MF008": lambda c: c.ingest("a fact", metadata={"a": "x" * 200_000}),
    "MF009": lambda c: c.ingest("a fact", origin="dreamt"),  # type: ignore[arg-type]
    "MF010": lambda c: c.ingest("a fact", observed_at=LATER),
    "MF012": lambda c: c.ingest("a fact", embedding=CAT),
    "MF013": lambda c: c.ingest("a fact", embedding=CAT, embedding_model="unheard of"),
    "MF014": lambda c: c.ingest("a fact", embedding=[1, 2], embedding_model="toy"),
    "MF015": lambda c: c.ingest("a fact", embedding=[0, 0, 0], embedding_model="toy"),
    "MF016": lambda c: c.ingest("a fact", source_turn_ids=[str(n) for n in range(1001)]),
    "MF017": lambda c: c.register_embedding_model("none", 0),
    "MF018": lambda c: c.explain(uuid.uuid4()),
    "MF022": lambda c: c.find_similar(embedding=CAT, embedding_model="toy", threshold=5),
    "MF023": lambda c: c.register_embedding_model("toy", 4, 0.92, 0.85),
    "MF030": lambda c: c.ingest("a\0fact"),
    "MF031": lambda c: c.ingest("a fact", embedding=[1, 2, float("inf")], embedding_model="toy"),
    "MF065": lambda c: c.ingest("a fact", valid_from=LATER, valid_until=LATER),
}


@pytest.mark.parametrize("code", FROM_THE_CLIENT)
def test_a_refused_call_is_typed_and_leaves_nothing(
    plain: Memfold, db: psycopg.Connection, code: str
) -> None:
    plain.register_embedding_model("toy", 3, 0.92, 0.85)
    before = written(db)
    with pytest.raises(errors.CLASSES[code]) as caught:
        FROM_THE_CLIENT[code](plain)
    assert caught.value.sqlstate == code
    assert caught.value.message
    assert caught.value.detail
    assert caught.value.hint
    assert caught.value.message in str(caught.value)
    assert written(db) == before
    assert plain.ingest("the next call").action == "inserted"


ELSEWHERE: dict[str, str] = {
    "MF011": "select memfold.canonicalize('a', 'no such profile')",
    "MF020": "delete from memfold.memories",
    "MF021": "delete from memfold.memory_events",
    "MF024": "select memfold.set_policy('t', canonicalizer => 'flat')",
    "MF025": "begin isolation level repeatable read; select memfold.ingest_memory('another', 't')",
}


@pytest.mark.parametrize("code", ELSEWHERE)
def test_errors_of_other_statements_are_translated(plain: Memfold, db: psycopg.Connection, code: str) -> None:
    plain.ingest("a fact")
    with pytest.raises(psycopg.Error) as caught:
        db.execute(ELSEWHERE[code].encode())
    db.rollback()
    error = errors.translate(caught.value)
    assert type(error) is errors.CLASSES[code]
    assert (error.sqlstate, bool(error.detail), bool(error.hint)) == (code, True, True)


def test_a_second_vector_of_one_model(plain: Memfold) -> None:
    plain.register_embedding_model("toy", 3, 0.92, 0.85)
    made = plain.ingest("a fact", embedding=CAT, embedding_model="toy")
    assert made.memory_id is not None
    with pytest.raises(errors.EmbeddingExistsError):
        plain.attach_embedding(made.memory_id, CAT, "toy")


@pytest.fixture
def tenant_role(db: psycopg.Connection, dsn: str) -> Iterator[str]:
    """The DSN of a login role that belongs to tenant t."""
    role = f"agent_{uuid.uuid4().hex[:8]}"
    db.execute(f"create role {role} login password 'agent' in role memfold_tenant".encode())
    db.execute("insert into memfold.tenant_roles values (%s, 't')", [role])
    yield make_conninfo(dsn, user=role, password="agent")
    db.execute(f"drop role {role}".encode())


def test_the_applications_role_needs_no_more_than_its_grants(
    db: psycopg.Connection[Any], tenant_role: str, counting: Counting
) -> None:
    db.execute("select register_embedding_model('toy', 3, 0.92, 0.85)")
    with Memfold(tenant_role, "t", Embedder(counting, "toy", 3)) as client:
        made = client.ingest("Alice has a cat.")
        assert made.action == "inserted"
        assert made.memory_id is not None
        assert client.ingest("Alice owns a cat.").tier == 2
        assert client.preview("Alice owns a cat").action == "merged"
        assert "Alice owns a cat." in client.explain(made.memory_id)
        assert [bucket.observations for bucket in client.stats()] == [2]
        assert client.embed_pending() == EmbedReport()
        with pytest.raises(errors.WrongTenantError):
            client.ingest("Alice has a cat.", "another tenant")


SURROGATE = "half of a pair: \ud83d"
UNSTORABLE: dict[str, Provoke] = {
    "content": lambda c: c.ingest(SURROGATE),
    "subject": lambda c: c.ingest("a fact", subject="a\0b"),
    "tenant": lambda c: c.ingest("a fact", "t\0"),
    "bucket": lambda c: c.ingest("a fact", bucket_id=SURROGATE),
    "turn": lambda c: c.ingest("a fact", source_turn_ids=["1", "\0"]),
    "metadata value": lambda c: c.ingest("a fact", metadata={"a": [{"b": "\0"}]}),
    "metadata key": lambda c: c.ingest("a fact", metadata={SURROGATE: 1}),
    "key": lambda c: c.ingest("a fact", idempotency_key="\0"),
    "preview": lambda c: c.preview("\0"),
    "known": lambda c: c.known(SURROGATE),
    "model": lambda c: c.register_embedding_model("\0", 3, 0.92, 0.85),
}


@pytest.mark.parametrize("where", UNSTORABLE)
def test_text_that_cannot_be_stored(plain: Memfold, db: psycopg.Connection, where: str) -> None:
    with pytest.raises(errors.InvalidTextError) as caught:
        UNSTORABLE[where](plain)
    by_surrogate = where in ("content", "bucket", "metadata key", "known")
    assert ("U+D83D" if by_surrogate else "NUL") in str(caught.value)
    str(caught.value).encode()
    assert written(db) == 0


@pytest.mark.parametrize(
    "embedding",
    [
        [float("nan"), 1.0, 1.0],
        [1.0, -float("inf"), 1.0],
        [1e39, 1.0, 1.0],
        [[1.0, 2.0, 3.0]],
        ["1", "2", "3"],
        [True, False, True],
        [],
        [1.0] * 16001,
        "[1,2,3]",
        5,
        {1.0, 2.0},
        np.ones((2, 3)),
        np.array(1.0),
    ],
    ids=str,
)
def test_embeddings_that_are_not_vectors(plain: Memfold, db: psycopg.Connection, embedding: Any) -> None:
    with pytest.raises(errors.InvalidEmbeddingError) as caught:
        plain.ingest("a fact", embedding=embedding, embedding_model="toy")
    assert caught.value.sqlstate == "MF031"
    assert written(db) == 0


@pytest.mark.parametrize(
    "embedding", [CAT, tuple(CAT), np.array(CAT), np.array(CAT, dtype=np.float32), Vector(CAT)], ids=type
)
def test_embeddings_of_any_kind(plain: Memfold, db: psycopg.Connection, embedding: Any) -> None:
    plain.register_embedding_model("toy", 3, 0.92, 0.85)
    plain.ingest("a fact", embedding=embedding, embedding_model="toy")
    stored = one(db, "select embedding::text from memfold.memory_vectors")
    assert json.loads(stored) == pytest.approx([0.99503719, 0.099503719, 0], abs=1e-7)


def test_arguments_that_only_python_can_get_wrong(plain: Memfold, db: psycopg.Connection) -> None:
    with pytest.raises(TypeError, match="content must be str"):
        plain.ingest(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="source_turn_ids must be a list"):
        plain.ingest("a fact", source_turn_ids="turn-1")
    with pytest.raises(TypeError, match="source_confidence must be a number"):
        plain.ingest("a fact", source_confidence="high")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidObservedAtError, match="no time zone"):
        plain.ingest("a fact", observed_at=datetime(2025, 1, 1))
    with pytest.raises(errors.InvalidValidityError, match="valid_until has no time zone"):
        plain.ingest("a fact", valid_until=datetime(2025, 1, 1))
    with pytest.raises(errors.InvalidMetadataError, match="not JSON"):
        plain.ingest("a fact", metadata={"a": float("nan")})
    with pytest.raises(errors.InvalidMetadataError, match="not JSON"):
        plain.ingest("a fact", metadata={"a": object()})
    with pytest.raises(errors.InvalidIdentifierError, match="not a UUID"):
        plain.explain("no id")
    assert written(db) == 0


def insert(db: psycopg.Connection, content: str) -> None:
    db.execute("insert into memfold.memories (tenant_id, content) values ('t', %s)", [content])


def test_a_plain_insert_that_conflicts(client: Memfold, db: psycopg.Connection) -> None:
    made = client.ingest("Alice has a cat.")
    client.ingest("Alice owns a cat.")
    for content in ("alice has a cat", "Alice owns a cat!"):
        with pytest.raises(psycopg.errors.UniqueViolation) as caught:
            insert(db, content)
        error = client.translate_unique_violation(caught.value, content)
        assert isinstance(error, errors.MemoryHashConflict)
        assert error.existing_id == made.memory_id, "an alias leads to its root"
        assert error.sqlstate == "23505"
        assert error.content_hash is not None
        known = client.known(content)
        assert known is not None
        assert error.content_hash == known.content_hash
        assert str(made.memory_id) in str(error)


def test_another_unique_violation_is_not_a_hash_conflict(plain: Memfold, db: psycopg.Connection) -> None:
    made = plain.ingest("Alice has a cat.")
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        db.execute(
            "insert into memfold.memories (tenant_id, memory_id, content) values ('t', %s, 'x')",
            [made.memory_id],
        )
    error = plain.translate_unique_violation(caught.value, "x")
    assert type(error) is MemfoldError
    assert error.sqlstate == "23505"
