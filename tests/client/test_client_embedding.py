"""The Python client and embedders: when they are called, and what happens to a fact without a vector."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from pgvector import Vector

from memfold import AsyncMemfold, Embedder, Memfold, OpenAIEmbedder
from memfold.client.types import EmbedReport
from tests.support.counting import CAT, Counting
from tests.support.queries import one

pytestmark = pytest.mark.usefixtures("measured")


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


def test_embed_pending_adds_the_missing_vectors(
    client: Memfold, counting: Counting, db: psycopg.Connection
) -> None:
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
    """They stay pending, ahead of the others: each call skips those it has already tried."""

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
