"""Endpoints of models that nobody should trust: what they send is bounded, leads nowhere, and is never repeated."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from memfold.client import _endpoint
from memfold.client._log import get_logger
from memfold.client._text import (
    MASK,
    describe_error,
    escape,
    escape_json,
    escape_line,
    format_error,
    mask_keys,
    remember_key,
)
from memfold.client.calls.core import Core
from memfold.client.calls.steps import Embed
from memfold.client.embedding import Embedder, OpenAIEmbedder
from memfold.client.embedding.openai_embedder import NUMBER_BYTES
from memfold.client.errors import EndpointError, MemfoldError
from memfold.client.judging import JudgeError, OpenAIJudge
from tests.support.chat_server import completion
from tests.support.questions import question
from tests.support.rude_endpoint import KEY, RUDE, STEERS, RudeEndpoint, bomb, running

pytestmark = pytest.mark.usefixtures("no_certificates")
MEGABYTES = 1 << 20


@pytest.fixture
def rude() -> Iterator[RudeEndpoint]:
    with running() as server:
        yield server


def judged(server: RudeEndpoint, **options: Any) -> Any:
    async def run() -> Any:
        judge = OpenAIJudge("some-model", base_url=server.url, api_key=KEY, **options)
        try:
            return await judge.judge(question())
        finally:
            await judge.close()

    return asyncio.run(run())


def embedded(server: RudeEndpoint, **options: Any) -> Any:
    return OpenAIEmbedder("small", server.url, KEY, max_retries=0, **options).embed(["a", "b"])


def embedded_async(server: RudeEndpoint, **options: Any) -> Any:
    return asyncio.run(OpenAIEmbedder("small", server.url, KEY, max_retries=0, **options).aembed(["a", "b"]))


Ask = Callable[..., Any]
ASKS = pytest.mark.parametrize("ask", [judged, embedded, embedded_async])


def fails(ask: Ask, server: RudeEndpoint) -> Any:
    with pytest.raises((JudgeError, EndpointError)) as caught:
        ask(server)
    return caught.value


# size --------------------------------------------------------------------------------------------------------


@ASKS
@pytest.mark.parametrize(
    ("mode", "layers", "says"),
    [
        ("endless", 0, "larger than"),
        ("endless_error", 0, "status 500"),
        ("gzip_bomb", 1, "larger than"),
        ("nested_bomb", 2, "compressed in a way that was not asked for"),
        ("tail", 0, "larger than"),
    ],
)
def test_a_reply_without_end_is_read_up_to_the_limit(
    rude: RudeEndpoint, ask: Ask, mode: str, layers: int, says: str
) -> None:
    rude.mode = mode
    rude.payload = bomb(128 * MEGABYTES, layers) if layers else b""
    ask_again = fails(ask, rude)  # what is loaded and cached at the first call is not part of it
    tracemalloc.start()
    try:
        error = fails(ask, rude)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert says in str(error)
    assert str(error) == str(ask_again)
    assert peak < 32 * MEGABYTES
    # the required bytes, and those in flight when the client hung up
    assert rude.sent < 64 * MEGABYTES


def test_an_endless_reply_counts_as_an_attempt_and_an_error_status_does_not(rude: RudeEndpoint) -> None:
    rude.mode = "endless"
    assert fails(judged, rude).transient is False
    rude.mode = "endless_error"
    assert fails(judged, rude).transient is True


def verdict(reason: str, **members: Any) -> bytes:
    given = {"verdict": "distinct", "confidence": 0.9, "reason": reason, "richer": None, "merged_text": None}
    return json.dumps({**completion(json.dumps(given)), **members}).encode()


def vectors(count: int, size: int, extra: int = 0) -> bytes:
    data = [{"object": "embedding", "index": n, "embedding": [0.5] * size} for n in range(count)]
    return json.dumps({"object": "list", "data": data, "model": "m", "extra": "x" * extra}).encode()


@pytest.mark.parametrize("mode", ["plain", "compressed"])
def test_the_limit_of_an_embedder_depends_on_texts_and_dimensions(rude: RudeEndpoint, mode: str) -> None:
    rude.mode = mode
    allowed = _endpoint.MAX_REPLY + 2 * 3 * NUMBER_BYTES
    bare = len(vectors(2, 3))
    rude.payload = vectors(2, 3, allowed - bare)
    assert embedded(rude, dimensions=3) == [[0.5] * 3] * 2
    rude.payload += b" "
    with pytest.raises(
        EndpointError, match=rf"embedding endpoint: the reply is larger than {allowed:,} bytes"
    ):
        embedded(rude, dimensions=3)


def test_the_limit_of_a_judge_is_a_megabyte(rude: RudeEndpoint) -> None:
    rude.mode = "plain"
    rude.payload = verdict("r")
    rude.payload += b" " * (_endpoint.MAX_REPLY - len(rude.payload))
    assert judged(rude).verdict == "distinct"
    rude.payload += b" "
    assert "larger than 1,048,576 bytes" in str(fails(judged, rude))


def test_an_embedder_learns_the_size_of_its_vectors(rude: RudeEndpoint) -> None:
    """From a few texts: the size of many of the largest vectors would be no limit."""
    rude.mode = "plain"
    embedder = OpenAIEmbedder("small", rude.url, KEY, max_retries=0)
    texts = [f"text {n}" for n in range(40)]

    def answer(count: int) -> None:
        rude.payload = vectors(count, 3)

    answer(16)
    with pytest.raises(EndpointError, match="16 vectors for 24 texts"):
        embedder.embed(texts)
    assert [len(body["input"]) for _, _, body in rude.asked] == [16, 24]
    answer(40)
    assert len(embedder.embed(texts)) == 40
    # from then on all at once, and no more than vectors of that size
    rude.payload = vectors(40, 3, _endpoint.MAX_REPLY + 40 * 3 * NUMBER_BYTES)
    with pytest.raises(EndpointError, match="larger than"):
        embedder.embed(texts)


@ASKS
def test_only_gzip_is_asked_for(rude: RudeEndpoint, ask: Ask) -> None:
    fails(ask, rude)
    assert {headers["Accept-Encoding"] for _, headers, _ in rude.asked} == {"gzip"}


def test_a_reply_that_drips_has_an_end() -> None:
    with _endpoint.limited(100, seconds=-1.0):
        body = _endpoint._Body(200, "")
    with pytest.raises(_endpoint.BadReplyError, match="took too long"):
        body.take(b"x")


@ASKS
def test_a_truncated_reply_is_reported_as_such_with_every_release_of_openai(
    rude: RudeEndpoint, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 3.0 whatever happens while a reply is read is an APIConnectionError, and tried again."""

    def cut(*_: Any, **__: Any) -> Any:
        request: Any = None
        raise openai.APIConnectionError(request=request) from _endpoint.BadReplyError("the reply is cut")

    async def acut(*_: Any, **__: Any) -> Any:
        cut()

    monkeypatch.setattr(openai.OpenAI, "post", cut)
    monkeypatch.setattr(openai.AsyncOpenAI, "post", acut)
    monkeypatch.setattr(openai.resources.Embeddings, "create", cut)
    monkeypatch.setattr(openai.resources.AsyncEmbeddings, "create", acut)
    assert str(fails(ask, rude)).endswith("endpoint: the reply is cut")


# redirects ---------------------------------------------------------------------------------------------------


@ASKS
def test_no_redirect_is_followed(rude: RudeEndpoint, ask: Ask) -> None:
    """The request contains memories."""
    with running() as other:
        rude.mode, rude.elsewhere = "redirect", f"{other.url}/elsewhere"
        error = fails(ask, rude)
        assert other.asked == []
    assert len(rude.asked) == 1
    assert "status 307: it redirects to another address" in str(error)
    rude.elsewhere = "/v1/here"
    fails(ask, rude)
    assert len(rude.asked) == 2


def test_a_client_that_is_given_follows_none_either(rude: RudeEndpoint) -> None:
    async def run() -> None:
        async with openai.AsyncOpenAI(base_url=rude.url, api_key=KEY) as given:
            await OpenAIJudge("some-model", client=given).judge(question())

    with running() as other:
        rude.mode, rude.elsewhere = "redirect", f"{other.url}/elsewhere"
        with pytest.raises(JudgeError, match="status 307"):
            asyncio.run(run())
        assert other.asked == []


# error texts -------------------------------------------------------------------------------------------------


def shown(error: BaseException) -> str:
    """Everything that printing an error could show: its text, its traceback, and memfold's form of both."""
    printed = "".join(traceback.format_exception(error))
    return "\n".join([str(error), repr(error), printed, describe_error(error), format_error(error)])


@ASKS
@pytest.mark.parametrize("mode", ["echo", "page"])
@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 200])
def test_an_endpoints_words_are_not_repeated(rude: RudeEndpoint, ask: Ask, mode: str, status: int) -> None:
    rude.mode, rude.status = mode, status
    said = shown(fails(ask, rude))
    assert KEY not in said
    assert "PWNED" not in said
    assert "Berlin" not in said
    assert not STEERS.search(said)


def test_a_judges_reason_contains_no_key(rude: RudeEndpoint) -> None:
    rude.mode = "plain"
    rude.payload = verdict(f"because {KEY}", model=f"model {KEY}")
    answer = judged(rude)
    assert (answer.reason, answer.usage.model) == (f"because {MASK}", f"model {MASK}")


def test_an_embedder_without_a_key_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(MemfoldError, match="the embedder has no API key") as caught:
        OpenAIEmbedder("small").embed(["a"])
    assert caught.value.hint


class LoudError(Exception):
    """Errors that a plugged-in embedder or judge may raise."""


def test_errors_of_plug_ins_are_masked_and_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_API_KEY", "0123456789abcdef")
    remember_key("known-to-memfold")
    text = (
        f"{RUDE} Bearer abc.def-123, 'Authorization': 'Bearer zzz999', api_key=qqqq1111 sk-live-12345678"
        " 0123456789abcdef known-to-memfold postgresql://me:hunter22@host/db end"
    )
    masked = mask_keys(text)
    for secret in (
        "abc.def-123",
        "zzz999",
        "qqqq1111",
        "sk-live-12345678",
        "0123456789abcdef",
        "known-to-memfold",
        "hunter22",
    ):
        assert secret not in masked
    assert masked.endswith("end")
    error = LoudError(text.replace("\n", " "))
    assert describe_error(error) == escape_line(mask_keys(f"LoudError: {error}"))[:500]
    assert describe_error(LoudError()) == "LoudError"
    assert mask_keys("my favourite key is C major") == "my favourite key is C major"


def test_a_traceback_describes_causes_as_it_does_errors() -> None:
    def fail() -> None:
        try:
            raise openai.OpenAIError(f"{RUDE} {KEY} cause")
        except openai.OpenAIError as error:
            raise LoudError(f"{RUDE} Bearer {KEY} effect") from error

    try:
        fail()
    except LoudError as error:
        said = format_error(error)
    assert said.count("Traceback (most recent call last)") == 2
    assert "OpenAIError" in said
    assert "LoudError: " in said
    assert "in fail" in said
    assert KEY not in said
    assert not STEERS.search(said)


def test_log_lines_are_escaped_whatever_the_handler(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("memfold.worker")
    assert get_logger("memfold.worker") is logger
    assert len(logger.filters) == 1
    with caplog.at_level(logging.DEBUG, "memfold"):
        logger.info("tenant=%s count=%d share=%.2f", f"acme{RUDE}", 3, 0.5)
        logger.warning("error=%s", LoudError(f"Bearer {KEY} {RUDE}"))
        try:
            raise openai.OpenAIError(f"{RUDE} {KEY}")
        except openai.OpenAIError:
            logger.exception("it failed")
    assert not STEERS.search(caplog.text)
    assert KEY not in caplog.text
    assert caplog.records[0].getMessage() == f"tenant={escape_line('acme' + RUDE)} count=3 share=0.50"
    assert "OpenAIError" in caplog.text


def test_a_failing_embedder_is_logged_without_what_it_said(
    rude: RudeEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    for embedder in (
        OpenAIEmbedder("small", rude.url, KEY, max_retries=0),
        Embedder(
            lambda texts: openai.OpenAI(base_url=rude.url, api_key=KEY, max_retries=0).embeddings.create(
                input=texts, model="m"
            ),
            f"mine{RUDE}",
        ),
    ):
        steps = Core("acme", embedder, False, 8, None).vectors_or_none(embedder, [f"Alice{RUDE}"])
        assert isinstance(next(steps), Embed)
        try:
            embedder.embed(["Alice"])
        except Exception as error:
            with pytest.raises(StopIteration) as end:
                steps.throw(error)
            assert end.value.value == [None]
    assert caplog.text.count("DEDUP_FAIL") == 2
    assert "EndpointError" not in caplog.text
    assert "AuthenticationError, status 401" in caplog.text
    assert "embedding endpoint: status 401: it does not accept the API key" in caplog.text
    assert KEY not in caplog.text
    assert not STEERS.search(caplog.text)


# escaping ----------------------------------------------------------------------------------------------------


def test_escapes() -> None:
    assert escape("a\x1b[2J\x9b\u202e\u2066\u200f\x7f\r\nb\tc\u2028") == (
        "a\\u001b[2J\\u009b\\u202e\\u2066\\u200f\\u007f\nb c\\u2028"
    )
    assert escape_line("a\r\nok\n") == "a\\u000d\\nok\\n"
    assert escape_line("äöü 東京 🎉\U000e0041") == "äöü 東京 🎉\\U000e0041"
    everything = "".join(map(chr, [*range(0x3400), *range(0xF000, 0x10000), *range(0xE0000, 0xE0200)]))
    assert not STEERS.search(escape(everything))
    line = json.dumps({"text": everything}, ensure_ascii=False)
    assert not STEERS.search(escape_json(line))
    assert json.loads(escape_json(line)) == {"text": everything}
