"""``OpenAIJudge`` asks any endpoint with OpenAI's chat completions.

A judge only answers: the database decides and applies the effect of its verdict.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NoReturn

from memfold.client import _endpoint
from memfold.client._extras import check
from memfold.client._text import MASK, remember_key
from memfold.client.errors import MemfoldError
from memfold.client.judging.prompt import BY_MODE, Json, prompt, response_format
from memfold.client.judging.questions import (
    LETTERS,
    MAX_TOKENS,
    MERGING_KINDS,
    Answer,
    JudgeError,
    Question,
    Usage,
    is_wordless,
)
from memfold.client.judging.reading import UnreadableError, read_body, read_object

if TYPE_CHECKING:
    import openai

MAX_MERGED_TEXT: Final = 20_000
"""Longest accepted merged text, in characters, unless the memories together are longer."""
MAX_REASON: Final = 1_000

# 408, 409, 425, 429 and 5xx are temporary; 401, 402, 403, 404 and the like need somebody to fix the setup. Only these
# may concern the pair: it cannot be processed, is too long, or is not allowed.
_PAIRS_FAULT = frozenset({400, 413, 422, 451})
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class OpenAIJudge:
    """Asks a model at OpenAI, or at any server with its chat completions and structured output.

    ``input_price`` and ``output_price`` are per million tokens. It does not retry: the queue does that. Without
    ``api_key`` the environment variable OPENAI_API_KEY is used; your own server may need none.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 30.0,
        input_price: float = 0.0,
        output_price: float = 0.0,
        client: openai.AsyncOpenAI | None = None,
    ) -> None:
        check("judge", "openai")
        self.model = model
        self.timeout = timeout
        self.input_price = input_price
        self.output_price = output_price
        self._base_url = base_url
        self._api_key = client.api_key if client is not None else api_key or os.environ.get("OPENAI_API_KEY")
        if client is None and self._api_key is None:
            if base_url is None and "OPENAI_BASE_URL" not in os.environ:
                raise MemfoldError(
                    "the judge has no API key",
                    hint="Pass api_key or set OPENAI_API_KEY; a server of your own needs base_url.",
                )
            self._api_key = "none"  # the package requires one, your own server may not
        remember_key(self._api_key)
        self._given = client
        self._clients: dict[asyncio.AbstractEventLoop, openai.AsyncOpenAI] = {}
        self._format = 0

    def _client(self) -> openai.AsyncOpenAI:
        """The client for the running event loop; its connections cannot be used in another one."""
        # Imported where it is used, because loading it takes longer than everything else together.
        import openai

        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            for closed in [known for known in self._clients if known.is_closed()]:
                self._clients.pop(closed, None)
            self._clients[loop] = (
                openai.AsyncOpenAI(
                    base_url=self._base_url,
                    api_key=self._api_key,
                    timeout=self.timeout,
                    max_retries=0,
                    http_client=_endpoint.async_http_client(),
                )
                if self._given is None
                else self._given.with_options(timeout=self.timeout, max_retries=0)
            )
        return self._clients[loop]

    async def close(self) -> None:
        """Close the connections that the running event loop has, unless the client was given."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None and self._given is None:
            await client.close()

    async def judge(self, question: Question) -> Answer:
        """Ask once. Raises JudgeError."""
        system, user = prompt(question, secrets.token_hex(16))
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        # The endpoint is sent the first of these that it knows; if it knows none, only the prompt asks for JSON.
        formats: tuple[Json, ...] = (
            {"response_format": response_format(question)},
            {"response_format": BY_MODE},
            {},
        )
        for place in range(self._format, len(formats)):
            reply = await self._ask(question, messages, formats[place])
            if reply is not None:
                self._format = max(place, self._format)
                return self._answer(question, reply, len((system + user).encode()))
        raise self._error("it refuses a response_format that it was not sent", False)

    async def _ask(self, question: Question, messages: list[Json], wanted: Json) -> bytes | None:
        """The body of the reply; None if the endpoint does not know this response_format."""
        import openai

        # Lets you find the call in the endpoint's log, by the judgement and its attempt.
        request = f"{question.judgement_id}.{question.attempts}"
        try:
            # The package's timeout applies to each read, so an endpoint that sends byte by byte would never reach it.
            with _endpoint.limited(_endpoint.MAX_REPLY):
                async with asyncio.timeout(self.timeout):
                    # Not chat.completions.create(), whose check of typed arguments takes longer than everything else.
                    return await self._client().post(
                        "/chat/completions",
                        cast_to=bytes,
                        body={"model": self.model, "messages": messages, **wanted},
                        options={"headers": {"X-Client-Request-Id": request}, "follow_redirects": False},
                    )
        # from None: the causes of these errors quote requests and replies.
        except (TimeoutError, openai.APITimeoutError):
            raise self._error(f"no answer within {self.timeout:g} s", True) from None
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, _endpoint.BadReplyError):  # openai before 3.0 reports it as that
                raise self._error(str(error.__cause__), error.__cause__.transient) from None
            cause = type(error.__cause__).__name__ if error.__cause__ else "no connection"
            raise self._error(f"cannot be reached ({cause})", True) from None
        except openai.APIStatusError as error:
            status = error.status_code
            if status in (400, 422) and re.search(
                r"response_format|json_schema|json_object", str(error.body or "")
            ):
                return None
            raise self._status(status, error.body, error.response.headers) from None
        except openai.OpenAIError as error:
            raise self._error(f"{type(error).__name__}", True) from None
        except _endpoint.BadReplyError as error:
            raise self._error(str(error), error.transient) from None

    def _status(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> JudgeError:
        return self._error(
            _endpoint.describe_status(status, body),
            status not in _PAIRS_FAULT,
            retry_after=_endpoint.retry_after(headers or {}),
        )

    def _error(
        self, text: str, transient: bool, *, retry_after: float | None = None, usage: Usage | None = None
    ) -> JudgeError:
        return JudgeError(
            f"judge endpoint: {text}",
            transient=transient,
            retry_after=retry_after,
            usage=usage or Usage(model=self.model),
        )

    def _usage(self, completion: Json, sent: int, received: int) -> Usage:
        told = completion.get("usage")
        counts = told if isinstance(told, dict) else {}

        def tokens(name: str, size: int) -> int:
            """As the reply states; else a token for every three bytes, so that a reply without figures is not free."""
            count = counts.get(name)
            if isinstance(count, int) and not isinstance(count, bool) and 0 < count <= MAX_TOKENS:
                return count
            return -(-size // 3)

        named = completion.get("model")
        model = named if isinstance(named, str) and named.strip() else self.model
        given, got = tokens("prompt_tokens", sent), tokens("completion_tokens", received)
        cost = (given * self.input_price + got * self.output_price) / 1e6
        return Usage(self._without_key(_UNSTORABLE.sub("", model))[:200], given, got, cost)

    def _without_key(self, text: str) -> str:
        """The endpoint's words, without the key that it was sent."""
        key = self._api_key
        return text.replace(key, MASK) if key is not None and len(key) >= 8 else text

    def _answer(self, question: Question, body: bytes, sent: int) -> Answer:
        """The answer in a reply to a prompt of that many bytes.

        Everything is checked, because not every endpoint enforces the schema.
        """
        try:
            completion = read_body(body)
        except ValueError:
            raise self._error("the reply is not a chat completion", False) from None
        usage = self._usage(completion, sent, len(body))

        def refuse(text: str, transient: bool = False) -> NoReturn:
            raise self._error(text, transient, usage=usage)

        failed = completion.get("error")
        if isinstance(failed, dict) and not completion.get("choices"):
            # Some gateways report an error of the server behind them with status 200.
            status = failed.get("code")
            if isinstance(status, int) and 400 <= status < 600:
                raise self._status(status, failed)
            refuse("the reply is an error", True)
        choices = completion.get("choices")
        if not isinstance(choices, list) or not choices:
            refuse("the reply has no choices")
        choice = choices[0]
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            refuse("the reply has no message")
        finish = choice.get("finish_reason")
        if finish == "length":
            refuse("the answer was cut off at the limit of its length")
        if finish == "content_filter":
            refuse("the model's content filter stopped the answer")
        if message.get("refusal"):
            refuse("the model refused to answer")
        text = message.get("content")
        if not isinstance(text, str):
            refuse("the message has no text")
        try:
            given = read_object(text)
        except UnreadableError as error:
            refuse(str(error))

        # Endpoints that do not enforce the schema leave out null members; a missing reason does not matter.
        missing = [name for name in ("verdict", "confidence") if name not in given]
        if missing:
            refuse(f"the answer lacks {' and '.join(missing)}")
        verdict, confidence, richer = given["verdict"], given["confidence"], given.get("richer")
        reason, merged_text = given.get("reason"), given.get("merged_text")
        if not (isinstance(verdict, str) and verdict in question.verdicts):
            refuse(f"the verdict is none of {', '.join(question.verdicts)}")
        if (
            isinstance(confidence, bool)
            or not isinstance(confidence, int | float)
            or not 0 <= confidence <= 1
        ):
            refuse("the confidence is not a number from 0 to 1")
        names = {letter: side.memory_id for letter, side in zip(LETTERS, question.sides, strict=False)}
        if question.names is not None:
            richer = merged_text = None  # only for memories
        if not (richer is None or (isinstance(richer, str) and richer in names)):
            refuse(f"richer is neither {', '.join(names)} nor null")
        about = given.get("members") if question.members else None
        if about is not None and not (
            isinstance(about, list)
            and all(isinstance(name, str) and name in names for name in about)
            and len(about) == len(set(about)) >= 2
        ):
            refuse(f"members are neither two or more of {', '.join(names)} nor null")
        if about is not None and verdict == "refinement" and richer is not None and richer not in about:
            refuse("richer is not one of the members that the verdict is about")
        if not (reason is None or isinstance(reason, str)):
            refuse("the reason is not a text")
        if not (merged_text is None or isinstance(merged_text, str)):
            refuse("the merged text is neither a text nor null")

        same = verdict in ("duplicate", "refinement")
        if not (same and question.kind in MERGING_KINDS and merged_text and not is_wordless(merged_text)):
            merged_text = None  # not asked for, or empty
        elif _UNSTORABLE.search(merged_text):
            refuse("the merged text cannot be stored: it has a NUL or a lone surrogate")
        elif len(merged_text) > max(MAX_MERGED_TEXT, sum(len(side.content) for side in question.sides)):
            refuse(f"the merged text is too long: {len(merged_text)} characters")
        return Answer(
            verdict=verdict,
            confidence=float(confidence),
            reason=self._without_key(_UNSTORABLE.sub("", reason or "")).strip()[:MAX_REASON] or None,
            merged_text=merged_text,
            richer_memory_id=names[richer] if verdict == "refinement" and richer else None,
            usage=usage,
            member_ids=None if about is None else tuple(names[name] for name in about),
        )
