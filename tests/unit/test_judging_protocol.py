"""Claim, ask, resolve, fail: what the worker, the clients and a person send. No database."""

from __future__ import annotations

import asyncio
import math
import re
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from memfold.client.errors import InvalidTextError
from memfold.client.judging import Answer, JudgeError, Question, Usage, protocol
from tests.support import servers
from tests.support.questions import question

PACKAGE = servers.ROOT / "python_client" / "memfold"


def test_statements_about_judgements_have_one_home() -> None:
    """And nobody but the protocol sends them."""
    text = {
        path.relative_to(PACKAGE).as_posix(): path.read_text()
        for path in PACKAGE.rglob("*.py")
        if not {"sql", "migrations"} & set(path.relative_to(PACKAGE).parts)
    }
    for function in ("claim_judgements", "resolve_judgement", "fail_judgement", "retry_judgements"):
        found = re.compile(rf"memfold\.{function}\b|\"{function}\"[,)]")
        assert [name for name, source in text.items() if found.search(source)] == ["client/queries.py"], (
            function
        )
    sent = re.compile(r"queries\.(?:CLAIM|RESOLVE|FAIL|RETRY)\b")
    assert [name for name, source in text.items() if sent.search(source)] == ["client/judging/protocol.py"]


def test_a_claim_names_what_it_wants() -> None:
    made = protocol.claim("w", 10**6, tenant_id=None)
    assert dict(made.arguments) == {
        "worker": "w", "max_results": 1, "lease": timedelta(days=1), "review": False, "tenant_id": None,
    }  # fmt: skip
    assert "judgement_ids" not in made.statement
    only = [uuid4()]
    made = protocol.claim("w", 60, tenant_id="acme", most=7, review=True, judgement_ids=only)
    assert (made.arguments["max_results"], made.arguments["judgement_ids"]) == (7, only)
    assert "judgement_ids => %(judgement_ids)s" in made.statement


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer("duplicate", 0.9, merged_text="a\0b"), InvalidTextError),
        (Answer("duplicate\ud800", 0.9), InvalidTextError),  # type: ignore[arg-type]
        (Answer(None, 0.9, merged_text=1), TypeError),  # type: ignore[arg-type]
        (Answer("duplicate", "high"), TypeError),  # type: ignore[arg-type]
        (Answer("duplicate", True), TypeError),
    ],
    ids=["NUL", "surrogate", "no text", "no number", "bool"],
)
def test_values_that_the_server_cannot_read_are_not_sent(answer: Answer, error: type[Exception]) -> None:
    with pytest.raises(error):
        protocol.resolve(None, question(), answer)


def test_an_answer_is_sent_with_what_it_cost() -> None:
    members = (UUID(int=1), UUID(int=2))
    answer = Answer(
        "refinement",
        1,
        "a\0b",
        richer_memory_id=members[0],
        member_ids=members,
        usage=Usage("m", 5, -1, math.nan),
    )
    made = protocol.resolve(object(), question(), answer)
    assert made.arguments["reason"] == "a\ufffdb"
    assert made.arguments["member_ids"] == list(members)
    assert [made.arguments[name] for name in ("model", "input_tokens", "output_tokens", "cost")] == [
        "m",
        5,
        0,
        0.0,
    ]
    assert all(f"{name} => %({name})s" in made.statement for name in made.arguments)


def test_a_persons_answer_has_no_model_and_no_confidence() -> None:
    made = protocol.resolve_by_person(question(), "distinct", None, None)
    assert not {"model", "cost", "confidence"} & made.arguments.keys()


@pytest.mark.parametrize(("asked", "sent"), [(None, None), (-1.0, 0.0), (5.0, 5.0), (10**6, 3600.0)])
def test_a_failure_may_ask_for_a_pause(asked: float | None, sent: float | None) -> None:
    made = protocol.fail("w", uuid4(), "acme", "x\0" + 3000 * "x", counted=False, retry_after=asked)
    assert made.arguments["retry_after"] == (None if sent is None else timedelta(seconds=sent))
    assert made.arguments["error"].startswith("x\ufffd")
    assert len(made.arguments["error"]) == 2000
    assert "model" not in made.statement
    used = protocol.usage_arguments(None, Usage("m", 1, 2, 3.0))
    made = protocol.fail("w", uuid4(), "acme", "x", counted=True, retry_after=None, usage=used)
    assert used.items() <= made.arguments.items()


class Slow:
    async def judge(self, question: Question) -> Answer:
        await asyncio.sleep(60)
        raise AssertionError


class Raises:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def judge(self, question: Question) -> Answer:
        raise self.error


def test_a_judge_answers_in_time_or_not_at_all() -> None:
    with pytest.raises(JudgeError, match=r"^no answer within 0\.02 s$") as caught:
        asyncio.run(protocol.ask(Slow(), question(), 0.02))
    assert caught.value.transient


@pytest.mark.parametrize(
    ("raised", "seen"),
    [(TimeoutError(), TimeoutError), (ValueError(), ValueError), (asyncio.CancelledError(), RuntimeError)],
)
def test_errors_raised_by_a_judge(raised: Any, seen: type[Exception]) -> None:
    with pytest.raises(seen):
        asyncio.run(protocol.ask(Raises(raised), question(), 60))


def test_a_caller_that_is_cancelled_stays_cancelled() -> None:
    async def run() -> None:
        task = asyncio.create_task(protocol.ask(Slow(), question(), 60))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
