"""The Python client, blocking and asynchronous, against a real server."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psycopg
import pytest
from pgvector import Vector
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memfold import AsyncMemfold, Embedder, Memfold, MemfoldError, OpenAIEmbedder
from memfold.client import errors
from memfold.client.calls.core import Core
from memfold.client.calls.steps import Pause, Transact
from memfold.client.types import EmbedReport, IngestResult
from tests.support.queries import one
from tests.support.waiting import until

SQL = Path(__file__).parents[2] / "sql"
CAT = [1.0, 0.1, 0.0]
DOG = [0.0, 1.0, 0.0]


class Counting:
    """An embedder that remembers what it was asked for."""

    def __init__(self, vectors: dict[str, list[float]] | None = None) -> None:
        self.vectors = vectors or {}
        self.asked: list[list[str]] = []
        self.broken = False

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(texts)
        if self.broken:
            raise RuntimeError("the model is down")
        return [self.vectors.get(text, CAT) for text in texts]

    async def later(self, texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        return self(texts)


@pytest.fixture(autouse=True)
def measured(db: psycopg.Connection[Any]) -> None:
    """The thresholds of the toy model, so that no client measures them."""
    db.execute("select memfold.register_embedding_model('toy', 3, 0.92, 0.85)")


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def client(dsn: str, counting: Counting) -> Iterator[Memfold]:
    with Memfold(dsn, "t", Embedder(counting, "toy", 3)) as made:
        yield made


@pytest.fixture
def plain(dsn: str) -> Iterator[Memfold]:
    with Memfold(dsn, "t") as made:
        yield made


def written(db: psycopg.Connection) -> int:
    """Rows that a call of ingest could have left."""
    return int(
        one(
            db,
            "select (select count(*) from memfold.memories) + (select count(*) from memfold.memory_events)"
            " + (select count(*) from memfold.memory_vectors)"
            " + (select count(*) from memfold.idempotency_keys)",
        )
    )


# results ---------------------------------------------------------------------------------------------------


def test_a_new_fact_and_its_replay(plain: Memfold) -> None:
    first = plain.ingest("Alice has a cat.", subject="Alice", source_turn_ids=["turn-1"])
    again = plain.ingest("alice has a CAT", subject="Alice", source_turn_ids=("turn-1",))
    assert (first.action, first.tier, first.method, first.similar) == ("inserted", None, None, ())
    assert (again.action, again.tier, again.method) == ("merged", 1, "hash")
    assert again.memory_id == first.memory_id
    assert isinstance(first.memory_id, uuid.UUID)
    assert first.event_id != again.event_id


def test_an_escalation_tells_of_the_neighbour(client: Memfold) -> None:
    first = client.ingest("Alice has a cat.", subject="Alice")
    second = client.ingest("Alice has 2 cats.", subject="Alice")
    assert (second.action, second.tier, second.method) == ("escalated", 2, "vector")
    assert second.judgement_id is not None
    assert second.similarity == pytest.approx(1, abs=1e-6)
    assert [similar.memory_id for similar in second.similar] == [first.memory_id]
    assert second.similar[0].guard
    assert all(isinstance(signal, str) for signal in second.similar[0].guard)


def test_a_supersession_names_what_it_replaced(plain: Memfold, db: psycopg.Connection) -> None:
    db.execute("select memfold.set_predicate('lives_in', 't', 'one')")
    fields: dict[str, Any] = {"subject": "Alice", "predicate": "lives_in"}
    paris = plain.ingest("Alice lives in Paris.", object="Paris", **fields)
    rome = plain.ingest("Alice lives in Rome.", object="Rome", **fields)
    assert (rome.action, rome.superseded_id) == ("superseded", paris.memory_id)


def test_every_argument_arrives(plain: Memfold, db: psycopg.Connection) -> None:
    plain.register_embedding_model("toy", 3, 0.92, 0.85)
    when = datetime(2025, 3, 1, 12, tzinfo=UTC)
    result = plain.ingest(
        "Zoë likes 'tea' & %s \\ 100 %",
        "other",
        bucket_id="b",
        memory_type="preference",
        subject="Zoë",
        predicate="likes",
        object="tea",
        embedding=np.array([1, 2, 3], dtype=np.float32),
        embedding_model="toy",
        source_turn_ids=["2", "1"],
        source_confidence=1,
        extractor_confidence=0.25,
        session_id="s",
        origin="inferred",
        metadata={"mood": ["good", 1.5, None], "ключ": True},
        observed_at=when,
        valid_from=when,
        valid_until=LATER,
        idempotency_key="k",
    )
    row = db.execute(
        "select tenant_id, bucket_id, memory_type, content, subject, predicate, object, source_turn_ids,"
        " source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, valid_from, valid_until"
        " from memfold.memory_events where event_id = %s",
        [result.event_id],
    ).fetchone()
    assert row == (
        *("other", "b", "preference", "Zoë likes 'tea' & %s \\ 100 %", "Zoë", "likes", "tea", ["1", "2"]),
        *(1.0, 0.25, "s", "inferred", {"mood": ["good", 1.5, None], "ключ": True}, when),
        *(when, LATER),
    )
    assert one(db, "select model from memfold.memory_vectors") == "toy"
    assert one(db, "select idempotency_key from memfold.idempotency_keys") == "k"


def test_an_unknown_argument_is_a_type_error(plain: Memfold) -> None:
    with pytest.raises(TypeError, match="colour"):
        plain.ingest("Alice has a cat.", colour="black")  # type: ignore[call-arg]


def test_preview_agrees_and_writes_nothing(client: Memfold, db: psycopg.Connection) -> None:
    client.ingest("Alice has a cat.", subject="Alice")
    before = written(db)
    for content in ("Alice has a cat!", "Alice has 3 cats.", "Alice owns a cat."):
        seen = client.preview(content, subject="Alice")
        assert written(db) == before
        done = client.ingest(content, subject="Alice")
        before = written(db)
        assert (seen.action, seen.tier, seen.method, seen.similarity) == (
            *(done.action, done.tier, done.method, done.similarity),
        )


def test_known_finds_the_text_and_nothing_else(client: Memfold) -> None:
    assert client.known("Alice has a cat.") is None
    made = client.ingest("Alice has a cat.")
    folded = client.ingest("Alice owns a cat.")
    assert (folded.action, folded.tier) == ("merged", 2)
    found = client.known("alice owns a cat")
    assert found is not None
    assert found.memory_id == made.memory_id
    assert found.matched_id != made.memory_id
    assert (found.status, len(found.content_hash)) == ("active", 32)
    assert client.known("Alice has a cat.", subject="Alice") is None
    assert client.known("Alice has a cat.", bucket_id="other") is None


def test_find_similar(client: Memfold, counting: Counting) -> None:
    counting.vectors["Bob has a dog."] = DOG
    cat = client.ingest("Alice has a cat.")
    client.ingest("Bob has a dog.")
    by_text = client.find_similar("Alice's cat")
    by_vector = client.find_similar(embedding=CAT, embedding_model="toy", threshold=0.5, max_results=5)
    assert [found.memory_id for found in by_text] == [cat.memory_id]
    assert by_text == by_vector
    assert (by_text[0].content, by_text[0].similarity) == ("Alice has a cat.", 1.0)
    assert client.find_similar("Alice's cat", subject="nobody", memory_type="fact") == ()


def test_explain_and_stats(plain: Memfold) -> None:
    made = plain.ingest("Alice has a cat.")
    plain.ingest("Alice has a cat.")
    text = plain.explain(str(made.memory_id))
    assert text.splitlines()[0] == f'memory {made.memory_id}: "Alice has a cat."'
    assert "said twice" in text
    (stats,) = plain.stats()
    assert (stats.tenant_id, stats.bucket_id, stats.active, stats.observations) == ("t", "default", 1, 2)
    assert (stats.tier_1_merges, stats.fold_rate, stats.pending_embeddings) == (1, 0.5, 1)
    assert plain.stats(bucket_id="none") == ()
    assert plain.check_invariants() == []


# embedding -------------------------------------------------------------------------------------------------


def test_a_replay_and_an_alias_cost_no_embedding(client: Memfold, counting: Counting) -> None:
    client.ingest("Alice has a cat.")
    client.ingest("Alice has a cat!")
    assert counting.asked == [["Alice has a cat."]]
    assert client.ingest("Alice owns a cat.").tier == 2
    assert client.ingest("Alice owns a cat.").method == "alias"
    assert counting.asked == [["Alice has a cat."], ["Alice owns a cat."]]


def test_a_vector_of_the_callers_own_needs_no_embedder(client: Memfold, counting: Counting) -> None:
    client.register_embedding_model("own", 2, 0.92, 0.85)
    client.ingest("Alice has a cat.", embedding=[3, 4], embedding_model="own")
    assert counting.asked == []


def test_the_model_is_registered_at_its_first_use(client: Memfold, db: psycopg.Connection) -> None:
    client.ingest("Alice has a cat.")
    assert db.execute("select model, dimensions from memfold.embedding_models").fetchall() == [("toy", 3)]


@pytest.mark.parametrize(
    "answer",
    [
        lambda texts: 1 / 0,
        lambda texts: [],
        lambda texts: [[1.0, float("nan"), 0.0]],
        lambda texts: [[1.0, 2.0]],
        lambda texts: [[0.0, 0.0, 0.0]],
        lambda texts: ["nonsense"],
        lambda texts: None,
    ],
    ids=["raises", "no vector", "NaN", "wrong size", "zeros", "no numbers", "nothing"],
)
def test_a_failing_embedder_costs_no_data(
    dsn: str, db: psycopg.Connection, caplog: pytest.LogCaptureFixture, answer: Callable[[list[str]], Any]
) -> None:
    with Memfold(dsn, "t", Embedder(answer, "toy", 3)) as client:
        result = client.ingest("Alice has a cat.")
    assert result.action == "inserted"
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.name == "memfold"
    assert record.getMessage().startswith('DEDUP_FAIL: "Alice has a cat." by toy failed (')
    pending = db.execute("select memory_id, content from memfold.pending_embeddings('t')").fetchall()
    assert pending == [(result.memory_id, "Alice has a cat.")]


def test_an_embedder_need_not_tell_its_dimensions(dsn: str, db: psycopg.Connection) -> None:
    embedder = SimpleNamespace(model="toy", embed=lambda texts: [CAT for _ in texts])
    with Memfold(dsn, "t", embedder) as client:  # type: ignore[arg-type]
        client.ingest("Alice has a cat.")
    assert db.execute("select model, dimensions from memfold.embedding_models").fetchall() == [("toy", 3)]
    assert db.execute("select count(*) from memfold.pending_embeddings('t')").fetchone() == (0,)


@pytest.mark.parametrize("name", ["model", "embed"])
def test_an_embedder_that_lacks_something_is_refused(dsn: str, name: str) -> None:
    embedder = SimpleNamespace(model="toy", embed=lambda texts: [CAT for _ in texts])
    delattr(embedder, name)
    with pytest.raises(TypeError, match=f"the embedder has no {name}"):
        Memfold(dsn, "t", embedder)  # type: ignore[arg-type]


def test_embed_pending_makes_up_for_it(client: Memfold, counting: Counting, db: psycopg.Connection) -> None:
    counting.broken = True
    for content in ("Alice has a cat.", "Alice owns a cat.", "Alice has 2 cats."):
        client.ingest(content, subject="Alice")
    assert client.embed_pending() == EmbedReport(failed=3)
    counting.broken = False
    assert client.embed_pending(batch=2) == EmbedReport(attached=3, merged=1, escalated=1)
    assert client.embed_pending() == EmbedReport()
    assert one(db, "select count(*) from memfold.pending_embeddings('t')") == 0
    assert client.check_invariants() == []


def test_one_bad_text_does_not_hold_up_the_others(dsn: str, db: psycopg.Connection) -> None:
    def picky(texts: list[str]) -> list[list[float]]:
        if any("bad" in text for text in texts):
            raise ValueError("I do not like it")
        return [[1.0, float(len(text)), 0.0] for text in texts]

    with Memfold(dsn, "t") as plain:
        for content in ("one", "a bad one", "three", "a fourth one"):
            plain.ingest(content, subject=content)
    with Memfold(dsn, "t", Embedder(picky, "toy", 3)) as client:
        assert client.embed_pending() == EmbedReport(attached=3, failed=1)
    assert one(db, "select content from memfold.pending_embeddings('t')") == "a bad one"


def test_bad_texts_do_not_fill_the_window(dsn: str, db: psycopg.Connection) -> None:
    """They stay pending, before the others: each call looks past those that it has had."""

    def picky(texts: list[str]) -> list[list[float]]:
        if any("bad" in text for text in texts):
            raise ValueError("I do not like it")
        return [[1.0, float(len(text)), 0.0] for text in texts]

    texts = ("a bad one", "two", "a worse bad one", "four", "a fifth one", "a very bad one", "seven it is")
    with Memfold(dsn, "t") as plain:
        for content in texts:
            plain.ingest(content, subject=content)
    with Memfold(dsn, "t", Embedder(picky, "toy", 3)) as client:
        assert client.embed_pending(batch=2) == EmbedReport(attached=4, failed=3)
    assert one(db, "select count(*) from memfold.pending_embeddings('t')") == 3


def test_attach_embedding(plain: Memfold) -> None:
    plain.register_embedding_model("toy", 3, 0.92, 0.85)
    first = plain.ingest("Alice has a cat.", embedding=CAT, embedding_model="toy")
    late = plain.ingest("Alice owns a cat.")
    assert late.memory_id is not None
    result = plain.attach_embedding(late.memory_id, Vector(CAT), "toy")
    assert (result.action, result.memory_id) == ("merged", first.memory_id)


def test_a_coroutine_function_is_for_the_asynchronous_client(dsn: str, counting: Counting) -> None:
    with pytest.raises(TypeError, match="AsyncMemfold"):
        Memfold(dsn, "t", Embedder(counting.later, "toy", 3))


class _Handler(BaseHTTPRequestHandler):
    """Speaks /v1/embeddings; answers out of order, as the API allows."""

    requests: list[dict[str, Any]]
    status: int

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        owner: Any = self.server
        owner.requests.append({"path": self.path, "authorization": self.headers["Authorization"], **body})
        data = [
            {"object": "embedding", "index": index, "embedding": [1.0, float(index), 0.0]}
            for index in range(len(body["input"]))
        ]
        answer: dict[str, Any] = {"object": "list", "model": body["model"], "data": data[::-1]}
        answer["usage"] = {"prompt_tokens": 1, "total_tokens": 1}
        payload = json.dumps(answer if owner.status == 200 else {"error": {"message": "no"}}).encode()
        self.send_response(owner.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *args: Any) -> None:
        pass


class Endpoint(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.status = 200
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_openai_compatible_endpoint(dsn: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    embedder = OpenAIEmbedder("small", endpoint.url, dimensions=3, name="small:3")
    assert embedder.embed(["a", "b"]) == [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    with Memfold(dsn, "t", embedder) as client:
        client.register_embedding_model("small:3", 3, 0.92, 0.85)
        client.ingest("Alice has a cat.")
        client.ingest("Alice has a cat.")
        assert len(client.find_similar("Alice's cat")) == 1
    assert [request["input"] for request in endpoint.requests] == [
        ["a", "b"],
        ["Alice has a cat."],
        ["Alice's cat"],
    ]
    assert {request["path"] for request in endpoint.requests} == {"/v1/embeddings"}
    assert {(request["model"], request["dimensions"]) for request in endpoint.requests} == {("small", 3)}


def test_an_endpoint_that_fails(
    dsn: str, endpoint: Endpoint, db: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.status = 500
    with Memfold(dsn, "t", OpenAIEmbedder("small", endpoint.url, "secret", max_retries=0)) as client:
        assert client.ingest("Alice has a cat.").action == "inserted"
    assert endpoint.requests[0]["authorization"] == "Bearer secret"
    assert "DEDUP_FAIL" in caplog.text
    assert "secret" not in caplog.text
    assert one(db, "select count(*) from memfold.pending_embeddings('t')") == 1


# errors ----------------------------------------------------------------------------------------------------


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


# retries ---------------------------------------------------------------------------------------------------


WAITING = """
select count(*) > 0 from pg_stat_activity
where datname = current_database() and application_name = 'memfold' and wait_event_type = 'Lock'
"""


@pytest.fixture
def collide(dsn: str, db: psycopg.Connection) -> Callable[..., list[IngestResult | BaseException]]:
    """Makes a restated fact fail with 40001: its root stops being active while the call waits for it, so that
    the call needs the scope's lock, and another has that. Once it has failed, the root is active again."""

    def run(
        call: Callable[[], IngestResult], failed: Callable[[], bool]
    ) -> list[IngestResult | BaseException]:
        outcome: list[IngestResult | BaseException] = []

        def work() -> None:
            try:
                outcome.append(call())
            except BaseException as error:
                outcome.append(error)

        lock = b"select pg_advisory_lock(memfold_internal._scope_lock(tenant_id, scope_key)) from memfold.memories"
        flag = "update memfold.memory_counters set is_additive = {}"
        thread = threading.Thread(target=work)
        with psycopg.connect(dsn) as other, psycopg.connect(dsn, autocommit=True) as holder:
            holder.execute(lock)
            other.execute(flag.format(False).encode())
            thread.start()
            until(lambda: one(db, f"{WAITING} and wait_event <> 'advisory'"))
            other.commit()
            while thread.is_alive() and not failed():
                time.sleep(0.001)
            other.execute(flag.format(True).encode())
        thread.join(20)
        return outcome

    return run


def test_a_serialization_failure_is_tried_again(
    collide: Callable[..., list[IngestResult | BaseException]],
    db: psycopg.Connection,
    plain: Memfold,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = plain.ingest("Alice has a cat.")
    with caplog.at_level(logging.DEBUG, "memfold"):
        (outcome,) = collide(
            lambda: plain.ingest("Alice has a cat."), lambda: "attempt 1 failed (40001)" in caplog.text
        )
    assert isinstance(outcome, IngestResult), outcome
    assert (outcome.action, outcome.memory_id) == ("merged", made.memory_id)
    assert "attempt 1 failed (40001), trying again" in caplog.text
    assert one(db, "select observations from memfold.memory_totals") == 2


def test_a_deadlock_is_tried_again(
    dsn: str, db: psycopg.Connection, plain: Memfold, caplog: pytest.LogCaptureFixture
) -> None:
    plain.ingest("Alice has a cat.")
    outcome: list[IngestResult] = []
    thread = threading.Thread(target=lambda: outcome.append(plain.ingest("Alice has a cat.")))
    with psycopg.connect(dsn) as other, caplog.at_level(logging.DEBUG, "memfold"):
        # The client is to be the one that is told: it finds the deadlock first.
        other.execute("set deadlock_timeout = '1min'")
        other.execute("lock table memfold.memory_events in share mode")
        thread.start()
        until(lambda: one(db, WAITING))
        other.execute("update memfold.memory_counters set access_count = 1")
        other.commit()
        thread.join(20)
    assert [result.action for result in outcome] == ["merged"]
    assert "attempt 1 failed (40P01), trying again" in caplog.text
    assert db.execute("select observations, access_count from memfold.memory_totals").fetchone() == (2, 1)


def test_retries_come_to_an_end(
    collide: Callable[..., list[IngestResult | BaseException]], dsn: str, db: psycopg.Connection
) -> None:
    with Memfold(dsn, "t", max_attempts=1) as client:
        client.ingest("Alice has a cat.")
        (outcome,) = collide(lambda: client.ingest("Alice has a cat."), lambda: False)
        assert isinstance(outcome, errors.RetryableError), outcome
        assert outcome.sqlstate == "40001"
        assert one(db, "select observations from memfold.memory_totals") == 1
        assert client.ingest("Alice has a cat.").action == "merged"


def test_sixteen_clients_at_once(dsn: str, db: psycopg.Connection) -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with Memfold(dsn, "t") as client:
                for n in range(20):
                    client.ingest(f"fact {n % 5}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert db.execute("select observations from memfold.memory_totals").fetchall() == [(64,)] * 5


def test_threads_may_share_a_client(plain: Memfold, db: psycopg.Connection) -> None:
    threads = [threading.Thread(target=plain.ingest, args=("a fact", f"t{n}")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one(db, "select count(distinct tenant_id) from memfold.memories") == 8


TERMINATE = """
select pg_terminate_backend(pid, 60000) from pg_stat_activity
where datname = current_database() and application_name = 'memfold'
"""


def test_a_connection_lost_between_calls_is_replaced(plain: Memfold, db: psycopg.Connection) -> None:
    plain.ingest("Alice has a cat.")
    db.execute(TERMINATE)
    assert plain.ingest("Alice has a cat.").action == "merged"
    assert one(db, "select count(*) from memfold.memory_events") == 2


@pytest.fixture
def dies_at_commit(db: psycopg.Connection) -> None:
    """The first transaction that writes to the ledger loses its server process while it commits."""
    db.execute(
        """
        create sequence public.deaths;
        create function public.die() returns trigger language plpgsql security definer as $$
        begin
            if nextval('public.deaths') = 1 then
                perform pg_terminate_backend(pg_backend_pid());
            end if;
            return null;
        end $$;
        create constraint trigger die after insert on memfold.memory_events
        deferrable initially deferred for each row execute function public.die();
        """
    )


@pytest.mark.usefixtures("dies_at_commit")
def test_a_session_that_is_ended_has_written_nothing(plain: Memfold, db: psycopg.Connection) -> None:
    """The server says so, even while it commits: the call is sent again."""
    assert plain.ingest("Alice has a cat.").action == "inserted"
    assert one(db, "select count(*) from memfold.memory_events") == 1


@pytest.fixture
def answer_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call is carried out, but nobody gets the answer."""
    execute = psycopg.Connection.execute
    lost: list[Any] = []

    def lose(connection: Any, statement: Any, *given: Any, **named: Any) -> Any:
        cursor = execute(connection, statement, *given, **named)
        if "ingest_memory" in str(statement) and not lost:
            lost.append(statement)
            connection.pgconn.finish()
            raise psycopg.OperationalError("the connection is lost")
        return cursor

    monkeypatch.setattr(psycopg.Connection, "execute", lose)


@pytest.mark.usefixtures("answer_lost")
def test_an_answer_that_is_lost_leaves_the_outcome_open(plain: Memfold, db: psycopg.Connection) -> None:
    with pytest.raises(errors.OutcomeUnknownError, match="idempotency_key"):
        plain.ingest("Alice has a cat.")
    assert one(db, "select count(*) from memfold.memory_events") == 1
    assert plain.ingest("Alice has a cat.").action == "merged"


@pytest.mark.usefixtures("answer_lost")
def test_with_a_key_a_lost_answer_is_asked_for_again(plain: Memfold, db: psycopg.Connection) -> None:
    assert plain.ingest("Alice has a cat.", idempotency_key="k").action == "inserted"
    assert one(db, "select count(*) from memfold.memory_events") == 1


@pytest.mark.usefixtures("dies_at_commit")
@pytest.mark.parametrize(("retry_safe", "key"), [(True, None), (False, "k")])
def test_a_key_makes_it_safe_to_send_again(
    dsn: str, db: psycopg.Connection, retry_safe: bool, key: str | None
) -> None:
    with Memfold(dsn, "t", retry_safe=retry_safe) as client:
        assert client.ingest("Alice has a cat.", idempotency_key=key).action == "inserted"
    assert one(db, "select count(*) from memfold.memory_events") == 1
    assert one(db, "select count(*) from memfold.idempotency_keys") == 1


def test_no_key_is_written_unless_asked_for(plain: Memfold, db: psycopg.Connection) -> None:
    plain.ingest("Alice has a cat.")
    assert one(db, "select count(*) from memfold.idempotency_keys") == 0


def test_no_server(dsn: str) -> None:
    with pytest.raises(errors.ConnectionLostError):
        Memfold("postgresql://nobody@127.0.0.1:1/nothing").ingest("a fact", "t")


def test_nothing_of_the_session_is_relied_upon(dsn: str, db: psycopg.Connection) -> None:
    """Behind a pooler every call may meet another session, and none may leave a setting behind."""
    name = one(db, "select current_database()")
    db.execute(f"alter database {name} set search_path = pg_catalog".encode())
    db.execute(f"alter database {name} set default_transaction_isolation = 'serializable'".encode())
    bare = make_conninfo(**(conninfo_to_dict(dsn) | {"options": None}))
    with Memfold(bare) as client:
        assert client.ingest("a fact", "a").action == "inserted"
        assert client.ingest("a fact", "b").action == "inserted"
        assert client._connection is not None
        setting = client._connection.execute("select current_setting('memfold.tenant_id', true) as s")
        assert setting.fetchone() in ({"s": ""}, {"s": None})
        assert client._connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


# the log ---------------------------------------------------------------------------------------------------


def test_log_lines(client: Memfold, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "memfold"):
        first = client.ingest("Alice has a cat.")
        client.ingest("Alice has 2 cats.")
        client.ingest("Alice has a cat.")
        client.preview("Alice has a cat.")
    lines = [(record.levelname, record.getMessage()) for record in caplog.records if "DEDUP" in record.msg]
    assert lines == [
        ("DEBUG", 'DEDUP_CHECK: "Alice has a cat." no match -> inserted'),
        ("DEBUG", 'DEDUP_CHECK: "Alice has 2 cats." closest match sim=1.00 -> escalated'),
        ("DEBUG", 'DEDUP_CHECK: "Alice has a cat." tier 1 hash -> merged'),
        ("INFO", f'DEDUP_MERGE: "Alice has a cat." -> memory {first.memory_id} (tier 1 hash)'),
        ("DEBUG", 'DEDUP_CHECK: "Alice has a cat." tier 1 hash -> merged'),
    ]


def test_a_log_line_is_one_short_line(plain: Memfold, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "memfold"):
        plain.ingest("first\nsecond " + "x" * 1000)
    (line,) = [record.getMessage() for record in caplog.records if "DEDUP" in record.msg]
    assert "\n" not in line
    assert len(line) < 160


# the asynchronous client -----------------------------------------------------------------------------------


def test_async_does_the_same(dsn: str, db: psycopg.Connection, counting: Counting) -> None:
    async def work() -> None:
        async with AsyncMemfold(dsn, "t", Embedder(counting.later, "toy", 3)) as client:
            made = await client.ingest("Alice has a cat.", subject="Alice")
            assert made.action == "inserted"
            assert made.memory_id is not None
            assert (await client.ingest("Alice has a cat!", subject="Alice")).tier == 1
            assert counting.asked == [["Alice has a cat."]]
            assert (await client.preview("Alice has 2 cats.", subject="Alice")).action == "escalated"
            known = await client.known("Alice has a cat.", subject="Alice")
            assert known is not None
            assert known.memory_id == made.memory_id
            assert len(await client.find_similar("Alice's cat")) == 1
            assert "said twice" in await client.explain(made.memory_id)
            assert [bucket.observations for bucket in await client.stats()] == [2]
            assert await client.check_invariants() == []
            counting.broken = True
            late = await client.ingest("Alice owns a cat.", subject="Alice")
            assert late.action == "inserted"
            counting.broken = False
            assert await client.embed_pending() == EmbedReport(attached=1, merged=1)
            with pytest.raises(psycopg.errors.UniqueViolation) as caught:
                db.execute(
                    "insert into memfold.memories (tenant_id, content, subject)"
                    " values ('t', 'Alice has a cat', 'Alice')"
                )
            error = await client.translate_unique_violation(caught.value, "Alice has a cat", subject="Alice")
            assert isinstance(error, errors.MemoryHashConflict)
            assert error.existing_id == made.memory_id
            with pytest.raises(errors.EmptyContentError):
                await client.ingest("")

    asyncio.run(work())


def test_async_tasks_share_a_client(dsn: str, db: psycopg.Connection, counting: Counting) -> None:
    async def work() -> Sequence[IngestResult]:
        # A blocking callable runs in a thread; the event loop goes on.
        async with AsyncMemfold(dsn, "t", Embedder(counting, "toy", 3)) as client:
            return await asyncio.gather(*[client.ingest(f"fact {n % 4}", subject="x") for n in range(20)])

    assert len(asyncio.run(work())) == 20
    assert one(db, "select sum(observations) from memfold.memory_totals where is_additive") == 20


def test_async_survives_a_lost_connection_and_a_cancelled_call(dsn: str, db: psycopg.Connection) -> None:
    async def work() -> None:
        async with AsyncMemfold(dsn, "t") as client:
            await client.ingest("Alice has a cat.")
            db.execute(TERMINATE)
            assert (await client.ingest("Alice has a cat.")).action == "merged"
            with psycopg.connect(dsn) as other:
                other.execute("select from memfold.memory_counters for update")
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(client.ingest("Alice has a cat."), 0.3)
            assert (await client.ingest("Alice has a cat.")).action == "merged"

    asyncio.run(work())
    assert one(db, "select observations from memfold.memory_totals") == 3


def test_async_openai_compatible_endpoint(dsn: str, endpoint: Endpoint) -> None:
    async def work() -> None:
        async with AsyncMemfold(dsn, "t", OpenAIEmbedder("small", endpoint.url)) as client:
            await client.register_embedding_model("small", 3, 0.92, 0.85)
            await client.ingest("Alice has a cat.")
            assert (await client.ingest("Alice owns a cat.")).tier == 2

    asyncio.run(work())
    assert [request["input"] for request in endpoint.requests] == [
        ["Alice has a cat."],
        ["Alice owns a cat."],
    ]


@pytest.mark.usefixtures("dies_at_commit")
def test_async_sends_again_what_has_a_key(dsn: str, db: psycopg.Connection) -> None:
    async def work() -> str:
        async with AsyncMemfold(dsn, "t", retry_safe=True) as client:
            return (await client.ingest("Alice has a cat.")).action

    assert asyncio.run(work()) == "inserted"
    assert one(db, "select count(*) from memfold.memory_events") == 1


@pytest.mark.one_server
def test_a_call_that_an_upgrade_overtakes_is_sent_once_more() -> None:
    """It met functions of both versions, as a whole, and nothing of it is there."""
    steps = Core("acme", None, False, 8, None).query("select 1")
    assert isinstance(next(steps), Transact)
    assert isinstance(steps.throw(psycopg.errors.UndefinedFunction("gone")), Pause)
    assert isinstance(next(steps), Transact)
    with pytest.raises(MemfoldError, match="gone"):
        steps.throw(psycopg.errors.UndefinedFunction("gone"))
