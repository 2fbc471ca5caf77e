"""ADK from end to end: its runner, its sessions, its agent with its tools, and a model that follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import ToolContext, load_memory
from google.genai import types

from memfold import Memfold
from memfold.agents.adk import MemfoldMemoryService
from tests.integrations.toys import embedder, memories
from tests.support.memories import check
from tests.support.queries import DB

# Python: the tests of the SQL functions cover each server.
pytestmark = pytest.mark.one_server


class Scripted(BaseLlm):
    """Calls the tool named before the user's colon, with the text after it; answers with the tool's result."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        (last,) = llm_request.contents[-1].parts or []
        if last.function_response is not None:
            part = types.Part(text=f"Found: {texts_of(last.function_response.response or {})}")
        else:
            tool, _, query = (last.text or "").rpartition(": ")
            call = types.Part.from_function_call(name=tool, args={"query": query})
            part = call if tool in llm_request.tools_dict else types.Part(text="Noted.")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def texts_of(response: dict[str, Any]) -> list[str]:
    found = response["result"].memories if "result" in response else []
    return [entry.content.parts[0].text for entry in found]


async def forget(query: str, tool_context: ToolContext) -> dict[str, Any]:
    """Retract the nearest fact."""
    found = await tool_context.search_memory(query)
    await tool_context.delete_memory(found.memories[0].id)
    return {}


async def move(query: str, tool_context: ToolContext) -> dict[str, Any]:
    """State where Alice lives."""
    slot = {"subject": "Alice", "predicate": "lives_in", "object": query}
    content = types.Content(parts=[types.Part(text=f"Alice lives in {query}.")])
    await tool_context.add_memory(memories=[MemoryEntry(content=content, custom_metadata=slot)])
    return {}


async def remember(callback_context: CallbackContext) -> None:
    await callback_context.add_session_to_memory()


def test_eight_sessions_of_an_agent(dsn: str, db: DB) -> None:
    with Memfold(dsn, "acme") as client:
        client.set_predicate("lives_in", "one")

    async def work() -> None:
        service, sessions = MemfoldMemoryService(dsn, embedder=embedder()), InMemorySessionService()  # type: ignore[no-untyped-call]
        agent = LlmAgent(
            name="agent", model=Scripted(model="scripted"), tools=[load_memory, forget, move], after_agent_callback=remember
        )  # fmt: skip
        runner = Runner(app_name="acme", agent=agent, session_service=sessions, memory_service=service)

        async def talk(*texts: str) -> tuple[str, list[str]]:
            """Run a separate session; returns its id, and the agent's answers."""
            session = await sessions.create_session(app_name="acme", user_id="alice")
            answers = []
            for text in texts:
                said = types.Content(role="user", parts=[types.Part(text=text)])
                async for event in runner.run_async(user_id="alice", session_id=session.id, new_message=said):
                    if event.is_final_response():
                        answers.append(event.content.parts[0].text)  # type: ignore[union-attr, index]
            return session.id, answers

        # each session is added after each of its turns, and once more at its end
        ended = await asyncio.gather(
            *(talk("Alice has a cat.", "The train leaves at noon.") for _ in range(8))
        )
        for session_id, _ in ended:
            session = await sessions.get_session(app_name="acme", user_id="alice", session_id=session_id)
            assert session is not None
            await service.add_session_to_memory(session)
        assert memories(db) == {"Alice has a cat.": 8, "The train leaves at noon.": 8, "Noted.": 16}
        assert db.execute("select count(*) from memfold.memory_events").fetchone() == (32,)

        # an update, by its slot
        for city in ("Lyon", "Paris"):
            await talk(f"move: {city}")
        _, (answer,) = await talk("load_memory: Where Alice lives")
        assert ("Alice lives in Paris." in answer, "Alice lives in Lyon." in answer) == (True, False)
        assert set(memories(db, "superseded")) == {"Alice lives in Lyon."}

        # a retraction holds, no matter who states the fact again
        await talk("forget: Alice has a cat")
        assert list(memories(db, "rejected")) == ["Alice has a cat."]
        await talk("alice has a CAT")
        assert not {text for text in memories(db) if text.lower().startswith("alice has a cat")}
        await service.aclose()

    asyncio.run(work())
    check(db)
