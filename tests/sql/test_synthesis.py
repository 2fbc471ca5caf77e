"""One text for several memories: the prompt, and the path from the question to the memory with the text."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from memfold import Answer, Memfold, Question
from memfold.client.judging import OpenAIJudge, Side
from memfold.client.judging.prompt import prompt
from memfold.client.judging.questions import LETTERS, is_wordless
from memfold.client.judging.worker import Worker
from tests.support.chat_server import ChatServer, read_members, writing_model
from tests.support.maintenance import angle, policy, store, storing
from tests.support.memories import check, counters, ingest
from tests.support.queries import DB, rows

# Python: the tests of the SQL functions cover each server.
pytestmark = pytest.mark.one_server

COFFEE = (
    "User likes coffee, flat white usually",
    "They are a coffee enthusiast, favorite coffee is flatwhite",
    "User loves coffee, especially flat white",
)
BROKEN = "User broke their pour-over set"


def sides(*texts: str) -> tuple[Side, ...]:
    return tuple(
        Side(UUID(int=n), text, "fact", last_seen=datetime(2026, 1, 1 + n, tzinfo=UTC))
        for n, text in enumerate(texts)
    )


def question(*texts: str, kind: str = "synthesis") -> Question:
    made = sides(*texts)
    return Question(
        UUID(int=99), "acme", "default", kind, 0.9, (), 1, made[-1], made[0], made if len(made) > 2 else ()
    )


# --- the prompt -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("texts", [COFFEE[:2], COFFEE])
def test_the_rubric_of_a_synthesis(texts: tuple[str, ...]) -> None:
    """Overlapping texts should be combined: the prompt has nothing of the pairs' rubric, by which they would be
    distinct."""
    system, user = prompt(question(*texts), "n")
    assert "wherever they are about the same thing and overlap" in system
    assert "facts that overlap and each say something of their own" not in system.replace("\n", " ")
    for rule in (
        "Combine all distinct information of",
        "in order of time",
        "where they conflict, prefer the newer",
        "be concise but complete",
        "preserve whom they speak of",
    ):
        assert rule in system
    # the sources' own examples, the last of which is not to be merged
    for text in (*COFFEE, "User is a coffee enthusiast who prefers flat white", "User likes flat white", BROKEN,
                 "Alice has a cat", "Alice has a tabby cat named Whiskers", "a rescue cat in 2023"):  # fmt: skip
        assert text in system
    places = [user.index(text) for text in texts]
    assert places == sorted(places)
    for letter, side in zip("ABC", sides(*texts), strict=False):
        assert f'"{letter}": {{"content": "{side.content}"' in user
        assert side.last_seen is not None
        assert side.last_seen.isoformat() in user


@pytest.mark.parametrize("kind", ["write", "consolidation", "review"])
def test_other_questions_have_the_rubric_of_pairs(kind: str) -> None:
    system, _ = prompt(question(*COFFEE[:2], kind=kind), "n")
    assert "facts that overlap and each say something of their own" in system.replace("\n", " ")
    assert '"merged_text": null.' in system
    assert '"members"' not in system
    system, _ = prompt(question(*COFFEE, kind=kind), "n")
    assert "You compare 3 memories" in system
    assert '"members": the letters of those that the verdict is about' in system
    assert '"richer": "A" or "B" or "C"' in system


def answers(question: Question, given: dict[str, Any]) -> Answer:
    asked: list[Any] = []

    def model(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return {
            "verdict": "duplicate", "confidence": 0.9, "reason": "r", "richer": None, "merged_text": None, **given,
        }  # fmt: skip

    async def run(server: ChatServer) -> Answer:
        judge = OpenAIJudge("m", base_url=server.base_url)
        try:
            return await judge.judge(question)
        finally:
            await judge.close()

    with ChatServer(model) as server:
        answer = asyncio.run(run(server))
    schema = asked[0]["response_format"]["json_schema"]["schema"]
    letters = list(LETTERS[: len(question.sides)])
    if question.members:
        assert schema["properties"]["members"]["anyOf"][0]["items"]["enum"] == letters
        assert schema["required"] == list(schema["properties"])
    assert schema["properties"]["richer"]["anyOf"][0]["enum"] == letters
    return answer


def test_what_the_model_may_answer_about_a_cluster() -> None:
    asked = question(*COFFEE, BROKEN, kind="consolidation")
    ids = [side.memory_id for side in asked.sides]
    assert answers(asked, {"members": None}).member_ids is None
    assert answers(asked, {}).member_ids is None
    found = answers(asked, {"verdict": "refinement", "members": ["C", "A"], "richer": "C"})
    assert (found.member_ids, found.richer_memory_id) == ((ids[2], ids[0]), ids[2])
    for wrong in (["A"], ["A", "A"], ["A", "B", "B"], ["A", "E"], "AB", [1, 2], []):
        with pytest.raises(Exception, match="members are neither two or more of A, B, C, D nor null"):
            answers(asked, {"members": wrong})
    with pytest.raises(Exception, match="richer is neither A, B, C, D nor null"):
        answers(asked, {"verdict": "refinement", "richer": "E"})
    with pytest.raises(Exception, match="richer is not one of the members"):
        answers(asked, {"verdict": "refinement", "members": ["A", "B"], "richer": "C"})


@pytest.mark.parametrize("text", ["", " ", ".", "...", "?!", "—", "。", "\u200b", '"…"', "($)"])
def test_a_text_without_a_word(text: str) -> None:
    assert is_wordless(text)
    assert answers(question(*COFFEE[:2]), {"merged_text": text}).merged_text is None


@pytest.mark.parametrize("text", ["C", "C++", "7", "茶", "👍", "no."])
def test_a_text_with_a_word(text: str) -> None:
    assert not is_wordless(text)
    assert answers(question(*COFFEE[:2]), {"merged_text": text}).merged_text == text


# --- from the question to the memory ----------------------------------------------------------------------------


def work(dsn: str, server: ChatServer) -> None:
    async def run() -> None:
        judge = OpenAIJudge("m", base_url=server.base_url)
        try:
            summary = await Worker(dsn, judge, listen=False).run(until_idle=True)
            assert (summary.failed, summary.unwritten) == (0, 0)
        finally:
            await judge.close()

    asyncio.run(run())


def current(db: DB) -> list[str]:
    return [r["content"] for r in rows(db, "select content from current_memories('acme') order by content")]


def fan(db: DB, preset: str, *texts: str) -> list[UUID]:
    """Memories stored without dedup, near enough to be asked about and too far apart to merge."""
    db.execute("select register_embedding_model('m', 4, 0.92, 0.85)")
    storing(db)
    made = [
        store(db, text, observed_at=f"2026-01-{n + 1:02}", metadata={"intensity": 0.9 - 0.1 * n, "n": n}, **angle(12 * n))
        for n, text in enumerate(texts)
    ]  # fmt: skip
    policy(db, preset=preset, merge_threshold=1, guard="off")
    return made


@pytest.mark.parametrize("function", ["consolidate", "sweep_duplicates"])
@pytest.mark.parametrize("preset", ["replace_newer", "store_and_load"])
def test_a_cluster_becomes_one_text_with_the_details_of_all(
    db: DB, dsn: str, preset: str, function: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = fan(db, preset, "Alice has a cat", "Alice has a tabby", "Alice has a pet named Whiskers")
    run_id = rows(db, f"select * from {function}('acme', 'default', dry_run => false)")[0]["run_id"]
    with ChatServer(writing_model) as server, caplog.at_level(logging.INFO, "memfold"):
        work(dsn, server)
        assert server.received == 1
    text = "Alice has a cat tabby pet named Whiskers"
    assert current(db) == [text]
    assert f'DEDUP_MERGE: 3 memories -> "{text}"' in caplog.text
    [fact] = rows(db, "select memory_id, metadata from memories where status = 'active'")
    assert counters(db, fact["memory_id"])["observations"] == 3
    # metadata of the newest, and the largest intensity: as the preset says
    assert fact["metadata"]["n"] == 2
    assert fact["metadata"]["intensity"] == pytest.approx(0.9 if preset == "replace_newer" else 0.7)
    aliases = rows(db, "select memory_id from memories where root_id = %s order by 1", fact["memory_id"])
    assert [a["memory_id"] for a in aliases] == made
    for original in ("Alice has a cat", "alice has a tabby"):
        again = ingest(db, original)
        assert (again.tier, again.memory_id) == (1, fact["memory_id"])
    check(db)
    rows(db, "select * from undo_run(%s, tenant_id => 'acme')", run_id)
    assert current(db) == ["Alice has a cat", "Alice has a pet named Whiskers", "Alice has a tabby"]
    check(db)


def test_two_details_at_ingest(db: DB, dsn: str) -> None:
    """A pair of one detail each, by the client and its judge: was distinct by the rubric of pairs."""
    db.execute("select register_embedding_model('m', 4, 0.92, 0.85)")
    db.execute("select set_policy('acme', preset => 'replace_newer')")
    with ChatServer(writing_model) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        with Memfold(dsn, "acme", judge=judge) as client:
            vectors = [json.loads(angle(n)["embedding"]) for n in (0, 21)]
            client.ingest("Alice has a tabby cat", embedding=vectors[0], embedding_model="m")
            found = client.ingest(
                "Alice has a cat named Whiskers", embedding=vectors[1], embedding_model="m", wait=True
            )
    assert found.resolution is not None
    assert (found.resolution.verdict, found.resolution.action) == ("refinement", "replaced")
    assert current(db) == ["Alice has a tabby cat named Whiskers"]
    check(db)


def test_the_clients_judge_may_answer_a_cluster(db: DB, dsn: str) -> None:
    """A question about a cluster, handed to any judge in Python, and its answer about some of it."""
    made = fan(db, "three_tier", "tea", "tea!?", "coffee")
    rows(db, "select * from consolidate('acme', 'default', dry_run => false)")

    class Some:
        async def judge(self, question: Question) -> Answer:
            assert [side.content for side in question.members] == ["tea", "tea!?", "coffee"]
            ids = [side.memory_id for side in question.members]
            return Answer("duplicate", 0.9, member_ids=(ids[0], ids[1]))

    asyncio.run(Worker(dsn, Some(), listen=False).run(until_idle=True))
    assert current(db) == ["coffee", "tea"]
    assert rows(db, "select root_id from memories where memory_id = %s", made[1]) == [{"root_id": made[0]}]
    check(db)


def test_two_facts_stay_two(db: DB, dsn: str) -> None:
    fan(db, "store_and_load", "User likes flat white", BROKEN)
    rows(db, "select * from consolidate('acme', 'default', dry_run => false)")
    with ChatServer(writing_model) as server:
        work(dsn, server)
        assert [list(read_members(request)) for request in server.requests] == [["A", "B"]]
    assert current(db) == [BROKEN, "User likes flat white"]
