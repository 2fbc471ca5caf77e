"""Answers as real endpoints give them: each is read, or its failure says why. Meaning is never guessed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from memfold.client.judging import Answer, JudgeError, OpenAIJudge, Question
from memfold.client.judging.reading import UnreadableError, read_object
from tests.support.chat_server import ChatServer, Json, Reply, completion, error_reply, honest_model
from tests.support.questions import GOOD, OLDER, question

GOOD_TEXT = json.dumps(GOOD)
SHORT = '{"verdict": "duplicate", "confidence": 0.9}'
OTHER = json.dumps(GOOD | {"verdict": "distinct"})


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as started:
        yield started


def ask(server: ChatServer, item: Question | None = None, times: int = 1) -> list[Answer]:
    async def run() -> list[Answer]:
        judge = OpenAIJudge("some-model", base_url=server.base_url, input_price=1.0, output_price=2.0)
        try:
            return [await judge.judge(item or question()) for _ in range(times)]
        finally:
            await judge.close()

    return asyncio.run(run())


# What models were seen to answer with: the text of the message, and what it is read as.
READABLE: dict[str, str] = {
    "as asked": GOOD_TEXT,
    "without null members": SHORT,
    "in a fence": f"```json\n{json.dumps(GOOD, indent=2)}\n```",
    "in a fence without a language": f"```\n{GOOD_TEXT}\n```\n",
    "prose around": f"Sure! Comparing A and B:\n\n{GOOD_TEXT}\n\nHope this helps!",
    "prose with braces": f"The set {{A, B}} is one claim. {GOOD_TEXT}",
    "reasoning before": f"<think>\nA says {{x}}, perhaps {OTHER}?\nNo.\n</think>\n\n{GOOD_TEXT}",
    "reasoning without its beginning": f"Perhaps {OTHER}? No.\n</think>\n{GOOD_TEXT}",
    "reasoning, then a fence": f"<thinking>hm</thinking>\n```json\n{GOOD_TEXT}\n```",
    "a channel before": f"<|channel|>analysis<|message|>We compare.<|end|><|channel|>final<|message|>{GOOD_TEXT}",
    "extra members": json.dumps(GOOD | {"explanation": "x", "score": 3, "nested": {"verdict": "distinct"}}),
    "an array of one": f"[{GOOD_TEXT}]",
    "said twice": f"{GOOD_TEXT}\n\nFinal answer: {GOOD_TEXT}",
    "reason null": json.dumps(GOOD | {"reason": None}),
    "a tag in the reason": json.dumps(GOOD | {"reason": "B has a </think> in it"}),
}

UNREADABLE: dict[str, tuple[str | Json, str]] = {
    "a refusal in prose": (
        "I'm sorry, but I can't help with that.",
        "is not a JSON object, and contains none",
    ),
    "a refusal": (completion(None, refusal="I cannot."), "refused"),
    "nothing": ("", "contains none"),
    "cut off": (GOOD_TEXT[:40], "breaks off"),
    "cut off behind an object within": ('{"a": {"verdict": "duplicate", "confidence": 1}, "b', "breaks off"),
    "cut off, as it says": (completion(GOOD_TEXT, finish_reason="length"), "cut off"),
    "cut off in its reasoning": (f"<think>Perhaps {GOOD_TEXT}", "ends within its reasoning"),
    "nothing behind its reasoning": (f"<think>{GOOD_TEXT}</think>", "contains none"),
    "single quotes": ("{'verdict': 'duplicate', 'confidence': 0.9}", "JSON is not valid"),
    "no quotes": ("{verdict: duplicate, confidence: 0.9}", "JSON is not valid"),
    "no quotes around an object": (f"{{answer: {GOOD_TEXT}}}", "JSON is not valid"),
    "a comma too many": (GOOD_TEXT[:-1] + ",}", "JSON is not valid"),
    "NaN": (SHORT.replace("0.9", "NaN"), "JSON is not valid"),
    "two answers": (f"{GOOD_TEXT}\n{OTHER}", "different JSON objects"),
    "an array of two": (f"[{GOOD_TEXT}, {OTHER}]", "different JSON objects"),
    "an array of one that breaks off": (f"[{GOOD_TEXT}, {OTHER[:30]}", "breaks off"),
    "the data again": (f'{{"A": {{"content": "x"}}}}\n{GOOD_TEXT}', "different JSON objects"),
    "a member twice": (SHORT[:-1] + ', "verdict": "distinct"}', "a member twice"),
    "within a member": (f'{{"answer": {GOOD_TEXT}}}', "lacks verdict and confidence"),
    "JSON in JSON": (json.dumps(GOOD_TEXT), "contains none"),
    "no confidence": ('{"verdict": "duplicate"}', "lacks confidence"),
    "no verdict": ('{"confidence": 0.9, "reason": "duplicate"}', "lacks verdict"),
    "a verdict of its own": (SHORT.replace("duplicate", "same"), "none of duplicate, refinement"),
    "a confidence in words": (SHORT.replace("0.9", '"high"'), "not a number from 0 to 1"),
    "a confidence in per cent": (SHORT.replace("0.9", "90"), "not a number from 0 to 1"),
    "a wrong type": (SHORT.replace('"duplicate"', '["duplicate"]'), "none of duplicate, refinement"),
    "nested too deep": ('{"a":' * 100_000, "nested too deep"),
}


@pytest.mark.parametrize("text", READABLE.values(), ids=READABLE)
def test_readable_answers_are_read(server: ChatServer, text: str) -> None:
    server.answer = lambda _: completion(text)
    (answer,) = ask(server)
    assert (answer.verdict, answer.confidence) == ("duplicate", 0.9)
    assert (answer.richer_memory_id, answer.merged_text) == (None, None)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (400, 40)


@pytest.mark.parametrize(("given", "cause"), UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_answer_says_why_and_is_billed(
    server: ChatServer, given: str | Json, cause: str
) -> None:
    server.answer = lambda _: completion(given) if isinstance(given, str) else given
    with pytest.raises(JudgeError) as caught:
        ask(server)
    assert cause in str(caught.value)
    assert not caught.value.transient, "the endpoint is not down"
    usage = caught.value.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cost) == (400, 40, pytest.approx(0.00048))
    assert server.received == 1


def test_a_refinement_without_null_members_leaves_the_longest_text(server: ChatServer) -> None:
    server.answer = lambda _: {"verdict": "refinement", "confidence": 0.8}
    assert ask(server)[0].richer_memory_id is None
    server.answer = lambda _: {"verdict": "refinement", "confidence": 0.8, "richer": "A"}
    assert ask(server)[0].richer_memory_id == OLDER


@pytest.mark.parametrize(
    ("known", "tried"),
    [
        (("json_object", "text"), ["json_schema", "json_object", "json_object"]),
        ((), ["json_schema", "json_object", None, None]),
    ],
    ids=["json mode", "none"],
)
@pytest.mark.parametrize("status", [400, 422])
def test_an_endpoint_without_response_format_is_asked_without_it(
    server: ChatServer, status: int, known: tuple[str, ...], tried: list[str | None]
) -> None:
    def answer(request: Json) -> Json | Reply:
        wanted = request.get("response_format", {}).get("type", "text")
        if wanted not in (*known, "text"):
            return error_reply(status, "body -> response_format: Extra inputs are not permitted")
        return honest_model(request)

    server.answer = answer
    assert [one.verdict for one in ask(server, times=2)] == ["duplicate", "duplicate"]
    formats = [request.get("response_format", {}).get("type") for request in server.requests]
    assert formats == tried
    assert all(request["messages"][0]["content"].count("JSON object") for request in server.requests)


def test_errors_quote_nothing_of_the_answer() -> None:
    secret = "Zanzibar"
    for text in (f"{secret}", f'{{"{secret}": ', f"{{'{secret}'}}", f'{{"a": "{secret}"}}{{"b": 1}}'):
        with pytest.raises(UnreadableError) as caught:
            read_object(text)
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["{" * 500_000, "{ " * 250_000, '{"a": 1}' * 60_000, "<think>" * 70_000, "{a" * 250_000, "</think>{}" * 50_000],
    ids=["braces", "blanks", "objects", "tags", "words", "both"],
)  # fmt: skip
@pytest.mark.timeout(20)
def test_hostile_texts_are_read_in_linear_time(text: str) -> None:
    made: Any
    try:
        made = read_object(text)
    except UnreadableError:
        made = None
    assert made in (None, {}, {"a": 1})
