"""ingest_many of the clients: the same as ingest for each, in batches, exactly once, whatever happens on the way."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import time
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import psycopg
import pytest
from pgvector import Vector

from memfold import Answer, AsyncMemfold, BatchItem, Embedder, Memfold, MemfoldError, Question
from memfold.client import errors
from memfold.client.calls import batch
from memfold.client.embedding.vectors import vector_binary
from memfold.client.judging import Usage
from tests.support.losses import answer_lost
from tests.support.memories import check
from tests.support.queries import DB, one

# Python: the tests of the SQL functions cover each server.
pytestmark = [pytest.mark.one_server, pytest.mark.usefixtures("measured")]
CAT, DOG = [1.0, 0.1, 0.0], [0.0, 1.0, 0.0]
TWO = "Alice has 2 cats."
DUPLICATE = Answer("duplicate", 0.9, "the same", usage=Usage("toy-judge", 400, 40, 0.25))


class Vectors:
    """An embedder that records its requests."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.spoilt: Callable[[list[str]], bool] = lambda texts: False

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(texts)
        if self.spoilt(texts):
            raise RuntimeError("the model is down")
        return [DOG if "dog" in text else CAT if "cat" in text else [0.0, 0.0, 1.0] for text in texts]


@pytest.fixture
def vectors() -> Vectors:
    return Vectors()


@pytest.fixture
def client(dsn: str, vectors: Vectors) -> Iterator[Memfold]:
    with Memfold(dsn, "t", Embedder(vectors, "toy", 3)) as made:
        yield made


def rows(db: DB, table: str) -> int:
    return int(one(db, f"select count(*) from memfold.{table}"))


def told(item: BatchItem) -> Any:
    """The result for a candidate, without ids."""
    if item.error is not None:
        return item.error.sqlstate, item.error.message
    assert item.result is not None
    r = item.result
    return r.action, r.tier, r.method, r.similarity, len(r.similar), r.judgement_id is None


def actions(items: Any) -> list[str]:
    return [item.error.sqlstate if item.result is None else item.result.action for item in items]


# the same as one by one ------------------------------------------------------------------------------------

EARLY = datetime(2024, 3, 1, tzinfo=UTC)
LIVES: dict[str, Any] = {"subject": "Alice", "predicate": "lives_in"}
MIXED: list[Any] = [
    "Alice has a cat.",
    "alice has a CAT",
    {"content": "Alice owns a cat.", "source_turn_ids": ["1", "2"], "source_confidence": 1},
    {"content": "Alice owns a cat", "source_turn_ids": ("2", "3"), "extractor_confidence": 0.5},
    {"content": TWO, "session_id": "s", "metadata": {"mood": ["good", 1.5, None], "ключ": True}},
    {"content": "Bob has a dog.", "subject": "Bob", "idempotency_key": "k"},
    {"content": "Bob has a dog.", "subject": "Bob", "idempotency_key": "k"},
    {"content": "Bob has a dog!", "subject": "Bob", "idempotency_key": "k"},
    {"content": "Alice lives in Paris.", "object": "Paris", **LIVES},
    {"content": "Alice lives in Rome.", "object": "Rome", **LIVES},
    {"content": "Alice lived in Oslo.", "object": "Oslo", "observed_at": EARLY, **LIVES},
    {"content": "", "subject": "nobody"},
    {"content": "recalled", "origin": "recalled"},
    {"content": "A cat of Carol's.", "bucket_id": "b", "memory_type": "preference"},
    {"content": "Dan's vector is his own.", "embedding": np.array(DOG), "embedding_model": "toy"},
    {"content": "Dan's is not.", "embedding": [1.0, 2.0], "embedding_model": "toy"},
    "Zoë likes 'tea' & %s \\ 100 %\t\n",
]
KEPT = """
select m.content, m.bucket_id, m.memory_type, m.subject, m.predicate, m.object, m.status, m.metadata, r.content,
    k.observations, k.independent, k.source_confidence, k.extractor_confidence, k.is_additive, v.model,
    array(select s.source_turn_id from memfold.memory_sources as s where s.memory_id = m.memory_id order by 1)
from memfold.memories as m
left join memfold.memories as r on r.memory_id = m.root_id
left join memfold.memory_totals as k on k.memory_id = m.memory_id and k.observations > 0
left join memfold.memory_vectors as v on v.memory_id = m.memory_id
where m.tenant_id = %s order by m.memory_id
"""
LEDGER = """
select content, action, tier, method, session_id, origin, source_turn_ids, metadata,
    case when observed_at < '2025-01-01' then observed_at end
from memfold.memory_events where tenant_id = %s order by event_id
"""


def one_by_one(client: Memfold, tenant: str) -> list[Any]:
    made = []
    for index, candidate in enumerate(MIXED):
        fields = {"content": candidate} if isinstance(candidate, str) else candidate
        try:
            made.append(told(BatchItem(index, None, client.ingest(tenant_id=tenant, **fields))))
        except MemfoldError as error:
            made.append(told(BatchItem(index, None, error=error)))
    return made


@pytest.mark.core
def test_the_same_as_one_by_one(client: Memfold, db: DB) -> None:
    client.register_embedding_model("toy", 3, 0.92, 0.85)
    db.execute("select memfold.set_predicate('lives_in', '*', 'one')")
    expected = one_by_one(client, "singles")
    again = one_by_one(client, "singles")
    for tenant, size in (("in one", 500), ("in several", 3), ("of one each", 1)):
        for wanted in (expected, again):
            items = list(client.ingest_many(iter(MIXED), tenant, batch_size=size))
            assert [item.index for item in items] == list(range(len(MIXED)))
            assert [item.content for item in items][:2] == MIXED[:2]
            assert [told(item) for item in items] == wanted
        for query in (KEPT, LEDGER):
            assert db.execute(query, [tenant]).fetchall() == db.execute(query, ["singles"]).fetchall()
    check(db)


def test_arguments_shared_by_all_candidates(plain: Memfold, db: DB) -> None:
    candidates = [
        "a",
        {"content": "b", "subject": None},
        {"content": "c", "subject": "Bob", "bucket_id": "c"},
    ]
    items = list(plain.ingest_many(candidates, "u", subject="Alice", bucket_id="b", metadata={"run": 1}))
    assert actions(items) == ["inserted"] * 3
    found = db.execute(
        "select content, tenant_id, subject, bucket_id, metadata from memfold.memories order by memory_id"
    ).fetchall()
    assert found == [
        ("a", "u", "Alice", "b", {"run": 1}),
        ("b", "u", None, "b", {"run": 1}),
        ("c", "u", "Bob", "c", {"run": 1}),
    ]
    [lost] = plain.ingest_many([{"content": "d", "bucket_id": None}], "u", bucket_id="b")
    assert lost.error is not None
    assert lost.error.sqlstate == "MF003"


def test_an_empty_batch(plain: Memfold) -> None:
    assert list(plain.ingest_many([])) == []


def test_the_source_is_read_one_batch_at_a_time(plain: Memfold, db: DB) -> None:
    read = 0

    def source() -> Iterator[str]:
        nonlocal read
        for read in range(1, 11):
            yield f"fact {read}"

    items = plain.ingest_many(source(), batch_size=4)
    assert read == 0
    for n, item in enumerate(items):
        assert item.index == n
        assert read == min(10, 4 * (n // 4 + 1))
        assert rows(db, "memories") == read


def test_texts_that_are_long_make_smaller_batches(plain: Memfold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_LONGEST", 150)
    seen: list[int] = []
    list(plain.ingest_many(("y" * 90 + str(n) for n in range(3)), progress=lambda n, _: seen.append(n)))
    assert seen == [2, 3]


def test_progress(plain: Memfold) -> None:
    seen: list[tuple[int, Counter[str]]] = []
    texts = ["a", "b", "A", "", "c", "\0"]
    items = list(plain.ingest_many(texts, batch_size=4, progress=lambda n, so_far: seen.append((n, so_far))))
    assert seen == [(4, Counter(inserted=2, merged=1, error=1)), (6, Counter(inserted=3, merged=1, error=2))]
    assert Counter(["error" if item.error else "done" for item in items]) == {"done": 4, "error": 2}


def private_memory(pid: int) -> int:
    """Bytes that a process has to itself; not the server's shared memory, of which it touches more and more."""
    total, shared = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if mapping := re.match(r"[0-9a-f]+-[0-9a-f]+ ...([sp])", line):
            shared = mapping[1] == "s"
        elif line.startswith("Private_") and not shared:
            total += 1024 * int(line.split()[1])
    return total


def test_memory_stays_flat(plain: Memfold, target: Any) -> None:
    """Over 20,000 texts, of which most are known: the client's memory and the session's. (bench/ looks at millions.)"""
    if target.cluster.name != "embedded":
        return  # once is enough: it takes a while
    seen: list[tuple[int, int]] = []

    def look(done: int, _: Counter[str]) -> None:
        assert plain._connection is not None
        if done in (5_000, 20_000):
            seen.append(
                (tracemalloc.get_traced_memory()[1], private_memory(plain._connection.info.backend_pid))
            )
            tracemalloc.reset_peak()

    texts = (f"fact {n // 10_000} {n % 1000}" for n in range(20_000))
    tracemalloc.start()
    try:
        done = Counter(actions(plain.ingest_many(texts, batch_size=2500, progress=look)))
    finally:
        tracemalloc.stop()
    assert done == {"inserted": 2000, "merged": 18_000}
    (client_then, session_then), (client_now, session_now) = seen
    assert client_now < client_then + 2_000_000
    assert client_now < 30_000_000
    assert session_now < session_then + 10_000_000


# candidates that are refused -------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, str]] = {
    "no text": (5, "MF036"),
    "None": (None, "MF036"),
    "no content": ({"subject": "x"}, "MF036"),
    "an unknown field": ({"content": "x", "colour": "black"}, "MF036"),
    "content of another type": ({"content": 5}, "MF036"),
    "a number of another type": ({"content": "x", "source_confidence": "high"}, "MF036"),
    "turns of another type": ({"content": "x", "source_turn_ids": "turn-1"}, "MF036"),
    "NUL": ("a\0b", "MF030"),
    "half a pair": ({"content": "x", "subject": "\ud83d"}, "MF030"),
    "NaN": ({"content": "x", "embedding": [float("nan"), 1.0], "embedding_model": "toy"}, "MF031"),
    "beyond float4": ({"content": "x", "embedding": [1e39, 1.0, 1.0], "embedding_model": "toy"}, "MF031"),
    "no vector": ({"content": "x", "embedding": "[1,2,3]", "embedding_model": "toy"}, "MF031"),
    "no JSON": ({"content": "x", "metadata": {"a": object()}}, "MF007"),
    "a list": ({"content": "x", "metadata": [1]}, "MF007"),
    "no time zone": ({"content": "x", "observed_at": datetime(2025, 1, 1)}, "MF010"),
    "another tenant": ({"content": "x", "tenant_id": "u"}, "MF002"),
    # by the server
    "null": ({"content": None}, "MF004"),
    "empty": ("\u200b", "MF004"),
    "too long": ("x" * 100_001, "MF005"),
    "a long subject": ({"content": "x", "subject": "x" * 100_000}, "MF003"),
    "unlikely": ({"content": "x", "source_confidence": 2}, "MF006"),
    "an unknown origin": ({"content": "x", "origin": "dreamt"}, "MF009"),
    "an unknown model": ({"content": "x", "embedding": CAT, "embedding_model": "unheard of"}, "MF013"),
    "another size": ({"content": "x", "embedding": [1.0], "embedding_model": "toy"}, "MF014"),
    "zeros": ({"content": "x", "embedding": [0.0] * 3, "embedding_model": "toy"}, "MF015"),
}


@pytest.mark.parametrize("embedding", [False, True], ids=["plain", "with an embedder"])
def test_a_bad_candidate_does_not_sink_the_others(
    dsn: str, plain: Memfold, client: Memfold, db: DB, embedding: bool
) -> None:
    plain.register_embedding_model("toy", 3, 0.92, 0.85)
    candidates: list[Any] = []
    for name, (candidate, _) in REFUSED.items():
        candidates += [f"before {name}", candidate]
    items = list((client if embedding else plain).ingest_many([*candidates, "the last"]))
    for index, (name, (_, code)) in enumerate(REFUSED.items()):
        before, bad = items[2 * index : 2 * index + 2]
        assert (before.content, before.error) == (f"before {name}", None)
        assert bad.index == 2 * index + 1
        assert bad.result is None
        assert bad.error is not None
        assert (type(bad.error), bad.error.sqlstate) == (errors.CLASSES[code], code), name
        assert bad.error.message, name
        assert bad.error.detail, name
        assert bad.error.hint, name
    assert (items[-1].content, items[-1].error) == ("the last", None)
    assert rows(db, "memory_events") == len(REFUSED) + 1
    assert one(db, "select count(*) from memfold.pending_embeddings('t')") == (
        0 if embedding else len(REFUSED) + 1
    )


@pytest.mark.parametrize("bad", ["a\0b", "", {"content": "x", "origin": "dreamt"}])
def test_abort(plain: Memfold, db: DB, bad: Any) -> None:
    items = plain.ingest_many(["a", "b", "c", bad, "d"], batch_size=2, on_error="abort")
    assert [next(items).content, next(items).content] == ["a", "b"]
    with pytest.raises(MemfoldError) as caught:
        next(items)
    assert caught.value.sqlstate in ("MF030", "MF004", "MF009")
    assert "andidate 3" in str(caught.value)
    assert rows(db, "memories") == 2
    assert plain.ingest("c").action == "inserted"


def test_more_buckets_than_the_server_locks_at_once(plain: Memfold, db: DB) -> None:
    items = plain.ingest_many(
        ({"content": "a fact", "bucket_id": f"b{n}"} for n in range(501)), batch_size=501
    )
    assert Counter(actions(items)) == {"inserted": 501}


@pytest.mark.parametrize("size", [1, 10_000])
def test_the_smallest_and_the_largest_batch(plain: Memfold, size: int) -> None:
    assert actions(plain.ingest_many(["a", "b"], batch_size=size)) == ["inserted"] * 2


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"batch_size": 0}, "MF022"),
        ({"batch_size": 10_001}, "MF022"),
        ({"on_error": "ignore"}, "MF022"),
        ({"wait": -1}, "MF022"),
        ({"tenant_id": ""}, "MF001"),
        ({"tenant_id": "t" * 513}, "MF003"),
        ({"tenant_id": "a\0b"}, "MF030"),
        ({"metadata": {"a": object()}}, "MF007"),
    ],
)
def test_options_are_checked_immediately(plain: Memfold, options: dict[str, Any], code: str) -> None:
    with pytest.raises(errors.CLASSES[code]):
        plain.ingest_many(["a"], **options)
    for wrong in ({"batch_size": "many"}, {"colour": "black"}, {"content": "a"}, {"tenant_id": 5}):
        with pytest.raises(TypeError):
            plain.ingest_many(["a"], **wrong)  # type: ignore[arg-type]


def test_an_error_that_concerns_no_candidate(dsn: str, db: DB) -> None:
    """It is raised, not reported for each candidate."""
    role = f"agent_{db.info.dbname}"
    db.execute(f"drop role if exists {role}")
    db.execute(f"create role {role} login in role memfold_app")
    try:
        with Memfold(f"{dsn} user={role}", "t") as client:
            assert actions(client.ingest_many(["a", "b"])) == ["inserted"] * 2
            assert actions(client.ingest_many(["a", "b"], "u")) == ["inserted"] * 2
            db.execute("revoke execute on function memfold.ingest_memories from memfold_app")
            with pytest.raises(MemfoldError) as caught:
                list(client.ingest_many(["c", "d"]))
            assert caught.value.sqlstate == "42501"
        db.execute(f"revoke memfold_app from {role}; grant memfold_tenant to {role}")
        db.execute("grant execute on function memfold.ingest_memories to memfold_app")
        db.execute("insert into memfold.tenant_roles values (%s, 't')", [role])
        with Memfold(f"{dsn} user={role}") as client:
            assert actions(client.ingest_many(["a", "e"], "t")) == ["merged", "inserted"]
            with pytest.raises(errors.WrongTenantError):
                list(client.ingest_many(["a", "b"], "u"))
    finally:
        db.execute(f"drop owned by {role}; drop role {role}")


@pytest.mark.parametrize(
    "embedding", [CAT, tuple(CAT), np.array(CAT, dtype=np.float32), Vector(CAT), [1, 0, 0]]
)
def test_vectors_of_any_kind(plain: Memfold, db: DB, embedding: Any) -> None:
    values = embedding.to_list() if isinstance(embedding, Vector) else list(embedding)
    assert vector_binary(embedding) == Vector(values).to_binary()
    plain.register_embedding_model("toy", 3, 0.92, 0.85)
    for content, how in (
        ("one", plain.ingest),
        ("many", lambda *a, **k: list(plain.ingest_many([a[0]], **k))),
    ):
        how(content, subject=content, embedding=embedding, embedding_model="toy")
    assert one(db, "select count(distinct embedding::text) = 1 from memfold.memory_vectors")


# embedding -------------------------------------------------------------------------------------------------


def test_only_unknown_texts_are_embedded_each_once(client: Memfold, vectors: Vectors, db: DB) -> None:
    client.ingest("Alice has a cat.", subject="Alice")
    vectors.asked.clear()
    candidates: list[Any] = [
        {"content": "alice has a CAT", "subject": "Alice"},  # known
        "Alice has a cat.",
        {"content": "Alice has a cat.", "subject": "Bob"},
        {"content": "Alice has a cat.", "metadata": {}},
        "A dog.",
        {"content": "A vector of its own.", "embedding": DOG, "embedding_model": "toy", "subject": "Carol"},
    ]
    items = list(client.ingest_many(candidates))
    assert actions(items) == ["merged", "inserted", "inserted", "merged", "inserted", "inserted"]
    assert vectors.asked == [["Alice has a cat.", "A dog."]]
    assert one(db, "select count(*) from memfold.pending_embeddings('t')") == 0
    assert actions(client.ingest_many(candidates)) == ["merged"] * 6
    assert len(vectors.asked) == 1
    check(db)


def test_many_texts_are_embedded_in_parts(
    client: Memfold, vectors: Vectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_EMBEDDED_AT_ONCE", 4)
    list(client.ingest_many(f"fact {n}" for n in range(10)))
    assert [len(texts) for texts in vectors.asked] == [4, 4, 2]


def test_one_text_that_cannot_be_embedded(client: Memfold, vectors: Vectors, db: DB) -> None:
    vectors.spoilt = lambda texts: "bad" in texts
    assert actions(client.ingest_many(["a cat", "bad", "a dog"])) == ["inserted"] * 3
    assert vectors.asked == [["a cat", "bad", "a dog"], ["a cat"], ["bad"], ["a dog"]]
    pending = db.execute("select content from memfold.pending_embeddings('t')").fetchall()
    assert pending == [("bad",)]


def test_one_text_alone_that_cannot_be_embedded(
    client: Memfold, vectors: Vectors, caplog: pytest.LogCaptureFixture
) -> None:
    """That proves nothing about the embedder: only the text is reported."""
    vectors.spoilt = lambda texts: "bad" in texts
    assert actions(client.ingest_many(["bad"])) == ["inserted"]
    [said] = [line for line in caplog.messages if "DEDUP_FAIL" in line]
    assert "bad" in said


def test_an_embedder_that_is_down_costs_no_data(
    client: Memfold, vectors: Vectors, db: DB, caplog: pytest.LogCaptureFixture
) -> None:
    vectors.spoilt = lambda texts: True
    assert actions(client.ingest_many(f"fact {n}" for n in range(300))) == ["inserted"] * 300
    assert len(vectors.asked) == 3
    assert "DEDUP_FAIL: 300 texts are stored without a vector" in caplog.text
    assert one(db, "select count(*) from memfold.pending_embeddings('t', max_results => 1000)") == 300


def told_of(dsn: str, stored: list[int]) -> Callable[[list[str]], bool]:
    """For an embedder: from its second call on it waits until more is stored, and notes how much."""

    def wait(texts: list[str]) -> bool:
        with psycopg.connect(dsn, autocommit=True) as connection:
            until = time.monotonic() + 30
            while time.monotonic() < until:
                found = rows(connection, "memories")
                if found > (stored[-1] if stored else -1):
                    break
                time.sleep(0.01)
        stored.append(found)
        return False

    return wait


FACTS: list[Any] = ["a cat", "a dog", "a dog", "a bird", "a bird", {"content": "a fish", "subject": "Bob"}]


def test_a_batch_is_embedded_while_the_one_before_is_stored(
    dsn: str, client: Memfold, vectors: Vectors, db: DB
) -> None:
    """Texts that the two have in common are embedded once."""
    stored: list[int] = []
    vectors.spoilt = told_of(dsn, stored)
    assert actions(client.ingest_many(FACTS, batch_size=2)) == [
        "inserted", "inserted", "merged", "inserted", "merged", "inserted"
    ]  # fmt: skip
    assert vectors.asked == [["a cat", "a dog"], ["a bird"], ["a fish"]]
    assert stored[:2] == [0, 2]
    check(db)


def test_async_embeds_while_the_batch_before_is_stored(dsn: str, vectors: Vectors, db: DB) -> None:
    stored: list[int] = []
    vectors.spoilt = told_of(dsn, stored)

    async def work() -> list[BatchItem]:
        async with AsyncMemfold(dsn, "t", Embedder(vectors, "toy", 3)) as client:
            return [item async for item in client.ingest_many(FACTS[:4], batch_size=2)]

    assert actions(asyncio.run(work())) == ["inserted", "inserted", "merged", "inserted"]
    assert (vectors.asked, stored) == ([["a cat", "a dog"], ["a bird"]], [0, 2])
    check(db)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "async"])
@pytest.mark.parametrize("where", ["source", "candidate", "embedder"])
def test_an_error_ahead_is_raised_after_the_batch_before(
    dsn: str, client: Memfold, vectors: Vectors, db: DB, where: str, asynchronous: bool
) -> None:
    def source() -> Iterator[str]:
        yield from ("a cat", "a dog", "a bird")
        if where == "source":
            raise KeyError("the source is broken")
        yield "" if where == "candidate" else "a fish"

    def embed(texts: list[str]) -> list[list[float]]:
        if "a fish" in texts:
            raise errors.EmbedderError("no embedder")
        return vectors(texts)

    wrong: dict[str, type[Exception]] = {
        "source": KeyError,
        "candidate": errors.EmptyContentError,
        "embedder": errors.EmbedderError,
    }
    embedder = Embedder(embed, "toy", 3)
    seen: list[str] = []

    async def work() -> None:
        async with AsyncMemfold(dsn, "t", embedder) as other:
            async for item in other.ingest_many(source(), batch_size=2, on_error="abort"):
                seen.extend(actions([item]))

    def blocking() -> None:
        with Memfold(dsn, "t", embedder) as other:
            for item in other.ingest_many(source(), batch_size=2, on_error="abort"):
                seen.extend(actions([item]))

    with pytest.raises(wrong[where]):
        asyncio.run(work()) if asynchronous else blocking()
    assert seen == ["inserted"] * 2
    assert rows(db, "memories") == 2


# judging ---------------------------------------------------------------------------------------------------


class Slow:
    """A judge that counts its concurrent questions."""

    model = "toy-judge"

    def __init__(self, at_once: int = 1) -> None:
        """Answers once ``at_once`` questions have been open at the same time, and not before ``seconds`` have passed."""
        self.running = self.most = self.asked = 0
        self.at_once = at_once
        self.seconds = 0.2

    async def judge(self, question: Question) -> Answer:
        self.asked += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            while self.most < self.at_once:
                await asyncio.sleep(0.01)
            await asyncio.sleep(self.seconds)
        finally:
            self.running -= 1
        if question.memory.subject == "s3":
            raise RuntimeError("no idea")
        return DUPLICATE


def pairs(count: int) -> Iterator[Mapping[str, Any]]:
    for n in range(count):
        yield {"content": "Alice has a cat.", "subject": f"s{n}"}
        yield {"content": TWO, "subject": f"s{n}"}


def resolved(items: list[BatchItem]) -> list[Any]:
    return [item.result.resolution and item.result.resolution.action for item in items if item.result]


def test_ten_judgements_are_under_way_at_once(dsn: str, vectors: Vectors, db: DB) -> None:
    judge = Slow(at_once=10)
    with Memfold(dsn, "t", Embedder(vectors, "toy", 3), judge=judge) as client:
        items = list(client.ingest_many(pairs(15), wait=True))
    assert (judge.most, judge.asked) == (10, 15)
    assert actions(items) == ["inserted", "escalated"] * 15
    expected: list[Any] = [None, "merged"] * 15
    expected[7] = None  # the judge failed: nothing else is lost
    assert resolved(items) == expected
    assert items[7].result is not None
    assert items[7].result.resolution is not None
    assert items[7].result.resolution.status == "open"
    check(db)


def test_without_wait_nobody_is_asked(dsn: str, vectors: Vectors) -> None:
    judge = Slow()
    with Memfold(dsn, "t", Embedder(vectors, "toy", 3), judge=judge) as client:
        assert resolved(list(client.ingest_many(pairs(2)))) == [None] * 4
    assert judge.asked == 0


def test_interrupted_while_judges_are_asked(dsn: str, vectors: Vectors, db: DB) -> None:
    judge = Slow()
    judge.seconds = 20

    class Interrupting(Slow):
        async def judge(self, question: Question) -> Answer:
            if self.asked == 1:
                asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGINT)
            return await super().judge(question)

    judge = Interrupting()
    judge.seconds = 20
    with (
        Memfold(dsn, "t", Embedder(vectors, "toy", 3), judge=judge) as client,
        pytest.raises(KeyboardInterrupt),
    ):
        list(client.ingest_many(pairs(3), wait=True))
    found = db.execute("select status, attempts, last_error from memfold.judgements").fetchall()
    assert found == [("open", 0, "its caller was cancelled")] * 3
    assert rows(db, "memories") == 6


# lost connections ------------------------------------------------------------------------------------------

TEXTS = [f"fact {n}" for n in range(40)]
FAIL_ONCE = """
create sequence public.fails;
create function public.fail() returns trigger language plpgsql security definer as $$
begin
    if nextval('public.fails') = 7 then
        {what};
    end if;
    return null;
end $$;
create constraint trigger fail after insert on memfold.memory_events {when} for each row execute function public.fail();
"""
DIE = "perform pg_terminate_backend(pg_backend_pid())"
AT_COMMIT = "deferrable initially deferred"


def counted_once(db: DB, observations: int = 40) -> None:
    assert one(db, "select array_agg(distinct observations) from memfold.memory_totals") == [1]
    assert rows(db, "memory_events") == observations
    check(db)


@pytest.mark.parametrize(
    ("what", "when"),
    [
        (DIE, ""),
        (DIE, AT_COMMIT),
        ("raise 'no' using errcode = '40001'", ""),
        ("raise 'no' using errcode = '40P01'", AT_COMMIT),
    ],
    ids=["in the middle", "before the commit", "40001", "40P01"],
)
def test_a_batch_that_is_lost_is_sent_again(plain: Memfold, db: DB, what: str, when: str) -> None:
    db.execute(FAIL_ONCE.format(what=what, when=when).encode())
    assert actions(plain.ingest_many(TEXTS, batch_size=10)) == ["inserted"] * 40
    counted_once(db)


def test_the_connection_is_lost_between_two_batches(plain: Memfold, db: DB) -> None:
    done: list[BatchItem] = []
    for item in plain.ingest_many(TEXTS, batch_size=10):
        done.append(item)
        if item.index % 10 == 4:
            db.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and application_name = 'memfold'"
            )
    assert actions(done) == ["inserted"] * 40
    counted_once(db)


CANDIDATES: dict[str, list[Any]] = {
    "texts": list(TEXTS),
    "the first is refused": ["", *TEXTS],
    "keys of their own": [{"content": text, "idempotency_key": text} for text in TEXTS],
    "some with keys": [{"content": t, "idempotency_key": t if n % 2 else None} for n, t in enumerate(TEXTS)],
    "a key, and one that is refused": [{"content": "fact 0", "idempotency_key": "k"}, "", *TEXTS[1:]],
    "all are refused": ["", "\u200b"],
}


@pytest.mark.parametrize("which", CANDIDATES)
def test_a_batch_that_was_stored_is_not_counted_again(
    plain: Memfold, db: DB, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    candidates = CANDIDATES[which]
    expected = ["MF004" if c in ("", "\u200b") else "inserted" for c in candidates]
    answer_lost(monkeypatch)
    items = list(plain.ingest_many(candidates, batch_size=20))
    assert actions(items) == expected
    if "inserted" in expected:
        counted_once(db)
    for item in items:
        if item.result is not None:
            assert one(
                db, "select content from memfold.memory_events where event_id = %s", item.result.event_id
            ) == (item.content)


def test_a_batch_costs_one_key(plain: Memfold, db: DB) -> None:
    list(plain.ingest_many(TEXTS, batch_size=10))
    assert rows(db, "idempotency_keys") == 4
    list(plain.ingest_many(["", "refused, so that each has one", "and another"], "u"))
    assert one(db, "select count(*) from memfold.idempotency_keys where tenant_id = 'u'") == 2


def test_an_unknown_outcome(dsn: str, db: DB, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memfold(dsn, "t", max_attempts=2) as client:
        answer_lost(monkeypatch)
        connect = psycopg.connect

        def refuse(*args: Any, **options: Any) -> NoReturn:
            raise psycopg.OperationalError("no server")

        def once(*args: Any, **options: Any) -> Any:
            monkeypatch.setattr(psycopg, "connect", refuse)
            return connect(*args, **options)

        monkeypatch.setattr(psycopg, "connect", once)
        with pytest.raises(errors.OutcomeUnknownError, match="during COMMIT"):
            list(client.ingest_many(["a", "b"]))


def test_clients_at_once(dsn: str, db: DB) -> None:
    """Overlapping facts in several orders: nothing is lost, no deadlock reaches a caller."""

    async def work(n: int) -> None:
        async with AsyncMemfold(dsn, "t") as client:
            texts = TEXTS[n:] + TEXTS[:n]
            done = [item async for item in client.ingest_many(texts * 2, batch_size=16)]
            assert Counter(actions(done)).keys() <= {"inserted", "merged"}

    async def all_of_them() -> None:
        await asyncio.gather(*[work(n) for n in range(0, 40, 10)])

    asyncio.run(all_of_them())
    assert one(db, "select array_agg(distinct observations) from memfold.memory_totals") == [8]
    check(db)


# the asynchronous client, the log --------------------------------------------------------------------------


def test_async_does_the_same(dsn: str, db: DB, vectors: Vectors, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Slow(at_once=10)
    seen: list[int] = []

    async def source() -> AsyncIterator[Any]:
        for candidate in pairs(12):
            await asyncio.sleep(0)
            yield candidate
        yield ""

    async def work() -> list[BatchItem]:
        async with AsyncMemfold(dsn, "t", Embedder(vectors, "toy", 3), judge=judge) as client:
            await client.register_embedding_model("toy", 3, 0.92, 0.85)
            assert client._connection is not None
            client._connection.pgconn.finish()  # lost before the look at tier 1, and after the batch
            answer_lost(monkeypatch, lambda n: n == 2)
            items = client.ingest_many(
                source(), batch_size=20, wait=True, progress=lambda n, _: seen.append(n)
            )
            done = [item async for item in items]
            assert actions([item async for item in client.ingest_many(["Alice has a cat."])]) == ["inserted"]
            with pytest.raises(errors.EmptyContentError, match="Candidate 1:"):
                _ = [item async for item in client.ingest_many(["a", ""], on_error="abort")]
            return done

    items = asyncio.run(work())
    assert actions(items) == ["inserted", "escalated"] * 12 + ["MF004"]
    expected: list[Any] = [None, "merged"] * 12
    expected[7] = None
    assert resolved(items) == expected
    assert (judge.most, seen) == (10, [20, 25])
    assert vectors.asked == [["Alice has a cat.", TWO], ["Alice has a cat."], ["a"]]
    check(db)


def test_async_cancelled_while_judges_are_asked(dsn: str, vectors: Vectors, db: DB) -> None:
    judge = Slow()
    judge.seconds = 20

    async def work() -> None:
        async with AsyncMemfold(dsn, "t", Embedder(vectors, "toy", 3), judge=judge) as client:

            async def run() -> None:
                async for _ in client.ingest_many(pairs(2), wait=True):
                    pass

            task = asyncio.create_task(run())
            while judge.running < 2:
                assert not task.done()
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(work())
    found = db.execute("select status, attempts, last_error from memfold.judgements").fetchall()
    assert found == [("open", 0, "its caller was cancelled")] * 2


def test_log_lines(plain: Memfold, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "memfold"):
        list(plain.ingest_many(["Alice has a cat.", "alice has a cat"]))
    lines = [record.getMessage() for record in caplog.records if "DEDUP" in record.msg]
    assert lines[:2] == [
        'DEDUP_CHECK: "Alice has a cat." no match -> inserted',
        'DEDUP_CHECK: "alice has a cat" tier 1 hash -> merged',
    ]
    assert lines[2].startswith('DEDUP_MERGE: "alice has a cat" -> memory ')
