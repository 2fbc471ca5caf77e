"""The memory service of Google's ADK: sessions of the real service, and an agent that a real runner runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from google.adk.agents import BaseAgent, InvocationContext
from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService, Session
from google.genai import types

from memfold import Memfold
from memfold.agents.adk import MemfoldMemoryService
from memfold.client import errors
from tests.integrations.toys import embedder, memories, run_page
from tests.support.memories import check
from tests.support.queries import DB

# Python: the tests of the SQL functions cover each server.
pytestmark = pytest.mark.one_server

ALICE: dict[str, Any] = {"app_name": "acme", "user_id": "alice"}


def said(text: str, author: str = "user", **more: Any) -> Event:
    parts = [types.Part(text=text)]
    return Event(id=str(uuid4()), author=author, content=types.Content(role=author, parts=parts), **more)


async def session_of(*events: Event, service: InMemorySessionService | None = None, **where: Any) -> Session:
    service = service or InMemorySessionService()  # type: ignore[no-untyped-call]
    session = await service.create_session(**{**ALICE, **where})
    for event in events:
        await service.append_event(session, event)
    return session


def run(dsn: str, work: Callable[[MemfoldMemoryService], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def whole() -> None:
        service = MemfoldMemoryService(dsn, **options)
        try:
            await work(service)
        finally:
            await service.aclose()

    asyncio.run(whole())


async def found(service: BaseMemoryService, query: str, **where: Any) -> list[str]:
    response = await service.search_memory(**{**ALICE, **where}, query=query)
    return [entry.content.parts[0].text for entry in response.memories]  # type: ignore[index, misc]


def test_a_session_is_remembered_and_counts_once(dsn: str, db: DB) -> None:
    async def work(service: MemfoldMemoryService) -> None:
        silent = Event(id="e", author="agent")
        thought = types.Part(text="The user seems to like animals.", thought=True)
        answer = Event(
            id="f",
            author="agent",
            content=types.Content(parts=[thought, types.Part(text="Nice cat, Alice!")]),
        )
        session = await session_of(
            said("Alice has a cat."), silent, answer, said("."), said("cut", partial=True)
        )
        for _ in range(3):
            await service.add_session_to_memory(session)
        assert memories(db) == {"Alice has a cat.": 1, "Nice cat, Alice!": 1}
        await service.add_events_to_memory(**ALICE, events=[said("alice has a CAT")], session_id="another")
        assert memories(db) == {"Alice has a cat.": 2, "Nice cat, Alice!": 1}
        rows = db.execute(
            "select content, origin, session_id, metadata ->> 'author' from memfold.memory_events order by event_id"
        )
        assert rows.fetchall() == [
            ("Alice has a cat.", "observed", session.id, "user"),
            ("Nice cat, Alice!", "inferred", session.id, "agent"),
            ("alice has a CAT", "observed", "another", "user"),
        ]
        check(db)

    run(dsn, work)


def test_eight_sessions_added_twice_leave_a_row_a_fact(dsn: str, db: DB) -> None:
    texts = [f"Customer number {n} pays in advance." for n in range(10)]

    async def work(service: MemfoldMemoryService) -> None:
        sessions = [await session_of(*map(said, texts)) for _ in range(8)]
        await asyncio.gather(*(service.add_session_to_memory(session) for session in sessions * 2))
        assert memories(db) == dict.fromkeys(texts, 8)
        assert db.execute("select count(*) from memfold.memory_events").fetchone() == (80,)
        check(db)

    run(dsn, work, embedder=embedder())


@pytest.mark.parametrize("means", [False, True], ids=["by words", "by meaning"])
def test_search(dsn: str, means: bool) -> None:
    async def work(service: MemfoldMemoryService) -> None:
        texts = ["Alice has a cat.", "The train leaves at noon.", "The cat sleeps.", "A cat is grey."]
        await service.add_session_to_memory(await session_of(*map(said, texts)))
        response = await service.search_memory(**ALICE, query="Which cat has Alice?")
        first = response.memories[0]
        assert first.content.parts[0].text == "Alice has a cat."  # type: ignore[index]
        assert first.custom_metadata["observations"] == 1
        assert len(response.memories) == 3
        # of another user, of another app
        assert await found(service, "cat", user_id="bob") == []
        assert await found(service, "cat", app_name="globex") == []
        if means:
            assert first.author == "user"
            assert datetime.fromisoformat(first.timestamp or "").utcoffset() == timedelta(0)

    run(dsn, work, max_results=3, embedder=embedder() if means else None)


def test_memories_are_added_with_their_slots(dsn: str, db: DB) -> None:
    with Memfold(dsn, "acme") as client:
        client.set_predicate("lives_in", "one")

    def lives_in(city: str, **more: Any) -> MemoryEntry:
        return MemoryEntry(
            content=types.Content(parts=[types.Part(text=f"Alice lives in {city}.")]),
            custom_metadata={"subject": "Alice", "predicate": "lives_in", "object": city, "source": "form"},
            **more,
        )

    async def work(service: MemfoldMemoryService) -> None:
        lyon = lives_in("Lyon", id="1", author="user", timestamp="2026-01-01T10:00:00")
        for _ in range(2):
            await service.add_memory(**ALICE, memories=[lyon], custom_metadata={"batch": 7})
        assert memories(db) == {"Alice lives in Lyon.": 1}
        await service.add_memory(**ALICE, memories=[lives_in("Paris")])
        assert (set(memories(db)), set(memories(db, "superseded"))) == (
            {"Alice lives in Paris."},
            {"Alice lives in Lyon."},
        )
        assert await found(service, "Where does Alice live?") == ["Alice lives in Paris."]
        row = db.execute(
            "select metadata, observed_at::date::text from memfold.memory_events order by event_id limit 1"
        ).fetchone()
        assert row is not None
        assert row[0] == {
            "subject": "Alice", "predicate": "lives_in", "object": "Lyon", "source": "form", "batch": 7, "author": "user",
        }  # fmt: skip
        assert row[1] in ("2025-12-31", "2026-01-01")
        # events carry slots too
        moved = said(
            "Alice lives in Rome.",
            custom_metadata={"subject": "Alice", "predicate": "lives_in", "object": "Rome"},
        )
        await service.add_session_to_memory(await session_of(moved))
        assert set(memories(db)) == {"Alice lives in Rome."}
        check(db)

    run(dsn, work)


def test_a_deleted_memory_stays_away(dsn: str, db: DB) -> None:
    async def work(service: MemfoldMemoryService) -> None:
        session = await session_of(said("Alice has a cat."), said("The train leaves at noon."))
        await service.add_session_to_memory(session)
        memory_id = (await service.search_memory(**ALICE, query="cat")).memories[0].id
        for where in ({"user_id": "bob"}, {"app_name": "globex"}):
            with pytest.raises(errors.MemoryNotFoundError):
                await service.delete_memory(**{**ALICE, **where}, memory_id=memory_id)
        with pytest.raises(ValueError, match="memory_id is None"):
            await service.delete_memory(**ALICE)
        await service.delete_memory(**ALICE, memory_id=memory_id)
        # the runner adds the session again after the next turn; another session states it too
        await service.add_session_to_memory(session)
        await service.add_session_to_memory(await session_of(said("alice has a cat")))
        assert (set(memories(db)), await found(service, "cat")) == ({"The train leaves at noon."}, [])
        check(db)

    run(dsn, work)


def test_an_erased_memory_is_gone(dsn: str, db: DB) -> None:
    async def work(service: MemfoldMemoryService) -> None:
        await service.add_session_to_memory(await session_of(said("Alice has a cat.")))
        (entry,) = (await service.search_memory(**ALICE, query="cat")).memories
        await service.delete_memory(**ALICE, memory_id=entry.id)
        assert db.execute("select count(*) from memfold.memories").fetchone() == (0,)
        assert db.execute(
            "select count(*) from memfold.memory_events where content is not null"
        ).fetchone() == (0,)

    run(dsn, work, erases=True)


def test_a_retraction_and_a_correction(dsn: str, db: DB) -> None:
    async def work(service: MemfoldMemoryService) -> None:
        await service.add_session_to_memory(
            await session_of(said("Alice has a cat."), said("Alice lives in Lyon."))
        )
        with Memfold(dsn, "acme") as client:
            cat, lyon = client.list(bucket_id="alice")
            client.reject(cat.memory_id, "never said so")
            client.update(lyon.memory_id, "Alice lives in Paris.")
        await service.add_session_to_memory(await session_of(said("Alice has a cat.")))
        assert await found(service, "Alice") == ["Alice lives in Paris."]
        assert set(memories(db)) == {"Alice lives in Paris."}

    run(dsn, work)


def test_an_event_that_cannot_be_stored_is_reported_and_the_rest_is_stored(dsn: str, db: DB) -> None:
    async def work(service: MemfoldMemoryService) -> None:
        session = await session_of(said("x " * 60_000), said("Alice has a cat."))
        with pytest.raises(errors.ContentTooLongError):
            await service.add_session_to_memory(session)
        assert set(memories(db)) == {"Alice has a cat."}

    run(dsn, work)


class Rememberer(BaseAgent):
    """Recalls, answers, and adds its session to memory, as an agent with the memory tools does."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:  # type: ignore[override]
        assert ctx.memory_service is not None
        known = await found(ctx.memory_service, "cat", user_id=ctx.user_id)
        yield said(f"I know {len(known)} of it.", self.name, invocation_id=ctx.invocation_id)
        await ctx.memory_service.add_session_to_memory(ctx.session)


def test_a_runner_runs_an_agent_with_it(dsn: str, db: DB) -> None:
    async def work(service: MemfoldMemoryService) -> None:
        sessions = InMemorySessionService()  # type: ignore[no-untyped-call]
        runner = Runner(
            app_name="acme", agent=Rememberer(name="agent"), session_service=sessions, memory_service=service
        )
        session = await session_of(service=sessions)
        answers = []
        for text in ("Alice has a cat.", "alice has a cat", "Alice has a CAT!"):
            message = types.Content(role="user", parts=[types.Part(text=text)])
            async for event in runner.run_async(user_id="alice", session_id=session.id, new_message=message):
                answers.append(event.content.parts[0].text)  # type: ignore[union-attr, index]
        assert answers == ["I know 0 of it.", "I know 1 of it.", "I know 1 of it."]
        assert memories(db) == {"Alice has a cat.": 3, "I know 0 of it.": 1, "I know 1 of it.": 2}
        check(db)

    run(dsn, work)


def test_a_past_event_keeps_its_time(dsn: str, db: DB) -> None:
    async def work(service: MemfoldMemoryService) -> None:
        await service.add_session_to_memory(
            await session_of(said("Alice has a cat.", timestamp=time.time() - 86_400))
        )
        assert db.execute(
            "select now() - last_seen > interval '23 hours' from memfold.memory_totals"
        ).fetchone() == (True,)

    run(dsn, work)


def test_the_page_prints_what_it_says(dsn: str) -> None:
    printed, said_so = run_page("Google ADK", dsn=dsn, embedder=embedder())
    assert printed == said_so
