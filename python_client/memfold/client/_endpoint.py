"""Model endpoints: limits on their replies, no redirects, and how their errors are described.

Nothing that an endpoint sends is trusted: not its size, its redirects or its words, which may contain memories, keys,
and characters that control a terminal.
"""

from __future__ import annotations

import contextlib
import email.utils
import math
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from memfold.client._retry import MAX_RETRY_AFTER

if TYPE_CHECKING:
    import openai

MAX_REPLY: Final = 1_048_576
"""Maximum bytes of a judge's reply, and of an embedder's apart from its numbers; counted after decompression."""
MAX_ERROR_BODY: Final = 65_536
"""Maximum bytes read of an error reply."""

# An endpoint's own words may quote the prompt or the key; only known codes are passed on.
_CODES: Final = frozenset(
    {
        "billing_hard_limit_reached",
        "content_filter",
        "content_policy_violation",
        "context_length_exceeded",
        "insufficient_quota",
        "invalid_api_key",
        "invalid_prompt",
        "model_not_found",
        "overloaded",
        "rate_limit_exceeded",
        "unsupported_parameter",
        "unsupported_value",
    }
)
_REDIRECTED: Final = (
    "it redirects to another address, which memfold does not follow; pass it as base_url if you trust it"
)
_MEANINGS: Final = {
    **dict.fromkeys((301, 302, 303, 307, 308), _REDIRECTED),
    400: "it does not accept the request",
    401: "it does not accept the API key",
    402: "its account has no credit left",
    403: "the API key is not allowed to use it",
    404: "it does not know the address or the model; check base_url and model",
    408: "it timed out",
    413: "the request is too large",
    422: "it cannot process the request",
    429: "it limits the rate of requests, or the quota is used up",
}


class BadReplyError(Exception):
    """A reply that was not read to its end. The text is memfold's. ``transient``: the next one may be complete."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


def describe_status(status: int, body: object) -> str:
    """The meaning of an error status, with the known codes of the reply."""
    named = {body.get("code"), body.get("type")} if isinstance(body, dict) else set()
    codes = sorted(_CODES & {name for name in named if isinstance(name, str)})
    text = _MEANINGS.get(status, "it has failed" if status >= 500 else "an unexpected status")
    return f"status {status}: {text}" + (f" ({', '.join(codes)})" if codes else "")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that Retry-After asks for, as a number or as a date; at most an hour."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / unit
        except ValueError:
            try:
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, OverflowError):
                continue
        if not math.isnan(seconds):
            return min(max(seconds, 0.0), MAX_RETRY_AFTER)
    return None


# --- reading ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Limit:
    size: int
    seconds: float


_USUAL: Final = _Limit(MAX_REPLY, math.inf)
_limit: ContextVar[_Limit] = ContextVar("memfold_endpoint_limit", default=_USUAL)


@contextlib.contextmanager
def limited(size: int, seconds: float = math.inf) -> Iterator[None]:
    """Limit the size of a reply in bytes, and the time for reading it."""
    token = _limit.set(_Limit(size, seconds))
    try:
        yield
    finally:
        _limit.reset(token)


class _Body:
    """A reply as it arrives, decompressed in steps that cannot exceed the limit."""

    def __init__(self, status: int, encoding: str) -> None:
        limit = _limit.get()
        self._until = time.monotonic() + limit.seconds
        self._is_error = not 200 <= status < 300
        self._size = min(limit.size, MAX_ERROR_BODY) if self._is_error else limit.size
        self._left = self._size
        self._raw = 0
        self._parts: list[bytes] = []
        self._inflate: Any = None
        if encoding in ("gzip", "x-gzip"):
            self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)
        elif encoding not in ("", "identity") and not self._is_error:
            raise BadReplyError("the reply is compressed in a way that was not asked for")

    def take(self, chunk: bytes) -> bool:
        """Whether to go on. Raises BadReplyError."""
        if time.monotonic() > self._until:
            raise BadReplyError("the reply took too long", transient=True)
        self._raw += len(chunk)
        if self._inflate is not None:
            try:
                chunk = self._inflate.decompress(chunk, self._left + 1)
            except zlib.error:
                raise BadReplyError("the reply cannot be decompressed", transient=True) from None
        self._parts.append(chunk[: self._left])
        self._left -= len(chunk)
        # ignore data after the end of a compressed reply, which zlib keeps
        if self._left >= 0 and self._raw <= self._size + MAX_ERROR_BODY:
            return True
        if self._is_error:
            return False
        raise BadReplyError(f"the reply is larger than {self._size:,} bytes")

    def whole(self) -> bytes:
        return b"".join(self._parts)


_OF_THE_WAY: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})


def _told(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Headers of the reply that apply to the part that was read."""
    return [(name, value) for name, value in headers if name.lower() not in _OF_THE_WAY]


def _encoding(headers: Mapping[str, str]) -> str:
    return headers.get("content-encoding", "").strip().lower()


# Imported where it is used, because loading it takes longer than everything else together. It is built on httpx or,
# since 3.0, on httpx2; the parts used here are the same in both.
@cache
def _clients() -> tuple[type[openai.DefaultHttpxClient], type[openai.DefaultAsyncHttpxClient]]:
    import openai

    class Client(openai.DefaultHttpxClient):
        def send(self, request: Any, **given: Any) -> Any:
            request.headers["Accept-Encoding"] = "gzip"
            response = super().send(request, **{**given, "stream": True, "follow_redirects": False})
            try:
                body = _Body(response.status_code, _encoding(response.headers))
                for chunk in response.iter_raw():
                    if not body.take(chunk):
                        break
            finally:
                response.close()
            return type(response)(
                response.status_code,
                headers=_told(response.headers.multi_items()),
                content=body.whole(),
                request=request,
            )

    class AsyncClient(openai.DefaultAsyncHttpxClient):
        async def send(self, request: Any, **given: Any) -> Any:
            request.headers["Accept-Encoding"] = "gzip"
            response = await super().send(request, **{**given, "stream": True, "follow_redirects": False})
            try:
                body = _Body(response.status_code, _encoding(response.headers))
                async for chunk in response.aiter_raw():
                    if not body.take(chunk):
                        break
            finally:
                await response.aclose()
            return type(response)(
                response.status_code,
                headers=_told(response.headers.multi_items()),
                content=body.whole(),
                request=request,
            )

    return Client, AsyncClient


def http_client() -> openai.DefaultHttpxClient:
    """For ``openai.OpenAI``: reads as much as ``limited`` allows, and follows no redirect."""
    return _clients()[0]()


def async_http_client() -> openai.DefaultAsyncHttpxClient:
    """For ``openai.AsyncOpenAI``."""
    return _clients()[1]()
