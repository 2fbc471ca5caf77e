"""Spans of calls, transactions, embedders and judges: their attributes, and that they contain no text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.metadata import entry_points
from uuid import UUID

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memfold import AsyncMemfold, Memfold, MemfoldError
from memfold.client import tracing
from memfold.client.judging import Answer, Question
from memfold.client.judging.worker import Worker
from tests.support.memories import ingest, model, vector
from tests.support.queries import DB
from tests.support.web_pages import persons

pytestmark = pytest.mark.one_server


class Embedder:
    model = "m"

    def embed(self, texts: list[str]) -> list[list[float]]:
        return [[1.0, 0.1 * (len(text) % 7), 0.0, 0.0] for text in texts]


class Apart:
    """A judge that answers distinct to everything."""

    model = "apart"

    async def judge(self, question: Question) -> Answer:
        return Answer("distinct", 0.9)


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    (found,) = entry_points(group="opentelemetry_instrumentor", name="memfold")
    instrumentor = found.load()()
    instrumentor.instrument(tracer_provider=provider)
    yield exporter
    instrumentor.uninstrument()


def tree(exporter: InMemorySpanExporter) -> list[tuple[str, str | None]]:
    """Each span with its parent, in the order in which they ended."""
    done = exporter.get_finished_spans()
    names = {one.context.span_id: one.name for one in done}
    return [(one.name, names.get(one.parent.span_id) if one.parent else None) for one in done]


def named(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    return next(one for one in exporter.get_finished_spans() if one.name == name)


def test_a_call_is_a_span_with_its_steps_in_it(db: DB, dsn: str, spans: InMemorySpanExporter) -> None:
    model(db)
    with Memfold(dsn, "acme", Embedder()) as memfold:
        memfold.ingest("Alice has a cat.")
        spans.clear()
        memfold.ingest("Bob has a dog.", subject="Bob")
    steps = tree(spans)
    assert steps[-1] == ("memfold.ingest", None)
    assert ("memfold.embed", "memfold.ingest") in steps
    assert ("memfold.transact", "memfold.ingest") in steps
    attributes = named(spans, "memfold.ingest").attributes
    assert attributes is not None
    assert attributes["memfold.action"] == "inserted"
    assert dict(named(spans, "memfold.embed").attributes or {}) == {"memfold.texts": 1}
    assert "Bob" not in "".join(one.to_json() for one in spans.get_finished_spans())


def test_an_error_is_recorded_by_class_and_sqlstate(db: DB, dsn: str, spans: InMemorySpanExporter) -> None:
    with Memfold(dsn, "acme") as memfold, pytest.raises(MemfoldError):
        memfold.undo(UUID(int=7))
    failed = named(spans, "memfold.undo")
    attributes = failed.attributes
    assert attributes is not None
    assert dict(attributes) == {"error.type": "EventNotFoundError", "db.response.status_code": "MF029"}
    assert failed.status.description is None
    assert not failed.status.is_ok
    assert failed.events == ()
    assert str(UUID(int=7)) not in failed.to_json()


def test_spans_of_batches_and_of_coroutines_are_in_those_of_their_callers(
    db: DB, dsn: str, spans: InMemorySpanExporter
) -> None:
    model(db)
    tracer = TracerProvider().get_tracer("test")
    texts = [f"Person number {number} keeps bees." for number in range(6)]

    async def at_once() -> None:
        async with AsyncMemfold(dsn, "acme") as memfold:
            await asyncio.gather(*(memfold.known(text) for text in texts))

    with tracer.start_as_current_span("outer") as outer:
        with Memfold(dsn, "acme", Embedder()) as memfold:
            list(memfold.ingest_many(texts, batch_size=3))
        asyncio.run(at_once())
    done = [one for one in spans.get_finished_spans() if one.parent is not None]
    assert len(done) == len(spans.get_finished_spans())
    assert {one.context.trace_id for one in done} == {outer.get_span_context().trace_id}
    top = [one.name for one in done if one.parent and one.parent.span_id == outer.get_span_context().span_id]
    assert top.count("memfold.store") == 2
    assert top.count("memfold.known") == 6


def test_a_question_is_a_span_of_the_worker(db: DB, dsn: str, spans: InMemorySpanExporter) -> None:
    persons(db)
    db.execute("select memfold.set_policy('acme', on_ambiguous => 'judge')")
    ingest(db, "Bob has a dog.", subject="Bob", **vector(1))
    ingest(db, "Bob has got a dog at home.", subject="Bob", **vector(0.9))
    asyncio.run(Worker(dsn, Apart()).run(until_idle=True))
    asked = named(spans, "memfold.ask")
    assert dict(asked.attributes or {}) == {"memfold.kind": "write", "memfold.verdict": "distinct"}
    assert "Bob" not in asked.to_json()


def test_without_being_asked_for_nothing_is_traced(db: DB, dsn: str, spans: InMemorySpanExporter) -> None:
    tracing.disable()
    with Memfold(dsn, "acme") as memfold:
        memfold.ingest("Alice has a cat.")
    assert spans.get_finished_spans() == ()
