"""``OpenAIEmbedder`` calls any endpoint that is compatible with OpenAI's ``/v1/embeddings``."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from memfold.client import _endpoint
from memfold.client._extras import check
from memfold.client._text import remember_key
from memfold.client.embedding.vectors import MAX_DIMENSIONS
from memfold.client.errors import EndpointError, MemfoldError

if TYPE_CHECKING:
    import openai


NUMBER_BYTES = 40
"""Bytes allowed for each number of an embedder's reply: 25 for the number, the rest for white space."""
_PROBE = 16
"""Texts per request until the size of the vectors is known."""


class OpenAIEmbedder:
    """Vectors from ``/v1/embeddings`` of OpenAI or any compatible server.

    ``dimensions`` is sent to models that can shorten their vectors; ``name`` registers the vectors under a name other
    than ``model``, which vectors of another size need. Without ``api_key`` the environment variable OPENAI_API_KEY is
    used; your own server may need none.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        dimensions: int | None = None,
        *,
        name: str | None = None,
        timeout: float = 30.0,
        max_retries: int = 2,
    ) -> None:
        check("openai", "openai")
        self.model = name or model
        self.dimensions = dimensions
        self._request: dict[str, Any] = {"model": model, "encoding_format": "float"}
        if dimensions is not None:
            self._request["dimensions"] = dimensions
        self._options: dict[str, Any] = {"base_url": base_url, "timeout": timeout, "max_retries": max_retries}
        self._api_key = api_key
        self._size = dimensions
        remember_key(api_key)

    def _client_options(self) -> dict[str, Any]:
        import os

        key = self._api_key or os.environ.get("OPENAI_API_KEY")
        if key is None:
            if self._options["base_url"] is None and "OPENAI_BASE_URL" not in os.environ:
                raise MemfoldError(
                    "the embedder has no API key",
                    hint="Pass api_key or set OPENAI_API_KEY; a server of your own needs base_url.",
                )
            key = "none"  # the package requires one, your own server may not
        return {**self._options, "api_key": key}

    # Imported where it is used, because loading it takes longer than everything else together.
    @functools.cached_property
    def _client(self) -> openai.OpenAI:
        import openai

        return openai.OpenAI(**self._client_options(), http_client=_endpoint.http_client())

    @functools.cached_property
    def _async_client(self) -> openai.AsyncOpenAI:
        import openai

        return openai.AsyncOpenAI(**self._client_options(), http_client=_endpoint.async_http_client())

    def embed(self, texts: list[str]) -> list[list[float]]:
        """One request for all texts; two if there are many and the size of the vectors is not known yet."""
        vectors: list[list[float]] = []
        while part := self._next_part(texts, len(vectors)):
            with self._asking(len(part)):
                response = self._client.embeddings.create(input=part, **self._request)
                vectors += self._in_order(response, len(part))
        return vectors

    async def aembed(self, texts: list[str]) -> list[list[float]]:
        """The same, without blocking the event loop."""
        vectors: list[list[float]] = []
        while part := self._next_part(texts, len(vectors)):
            with self._asking(len(part)):
                response = await self._async_client.embeddings.create(input=part, **self._request)
                vectors += self._in_order(response, len(part))
        return vectors

    def _next_part(self, texts: list[str], done: int) -> list[str]:
        return texts[done : done + _PROBE] if self._size is None else texts[done:]

    @contextlib.contextmanager
    def _asking(self, texts: int) -> Iterator[None]:
        """Reads no more than this many vectors can take. Raises EndpointError, in memfold's own words."""
        limit = _endpoint.MAX_REPLY + texts * (self._size or MAX_DIMENSIONS) * NUMBER_BYTES
        seconds = float(self._options["timeout"])
        try:
            with _endpoint.limited(limit, seconds):
                yield
        except MemfoldError:
            raise
        # from None: the causes of these errors quote requests and replies.
        except _endpoint.BadReplyError as error:
            raise EndpointError(f"embedding endpoint: {error}") from None
        except Exception as error:
            raise EndpointError(f"embedding endpoint: {_told(error, seconds)}") from None

    def _in_order(self, response: openai.types.CreateEmbeddingResponse, texts: int) -> list[list[float]]:
        vectors = [item.embedding for item in sorted(response.data, key=lambda item: item.index)]
        if len(vectors) != texts:
            raise _endpoint.BadReplyError(f"{len(vectors)} vectors for {texts} texts")
        if self._size is None:
            self._size = min(len(vectors[0]), MAX_DIMENSIONS)
        return vectors


def _told(error: Exception, seconds: float) -> str:
    import openai

    if isinstance(
        error.__cause__, _endpoint.BadReplyError
    ):  # openai before 3.0 reports it as a failed connection
        return str(error.__cause__)
    if isinstance(error, openai.APITimeoutError):
        return f"no answer within {seconds:g} s"
    if isinstance(error, openai.APIConnectionError):
        return f"cannot be reached ({type(error.__cause__ or error).__name__})"
    if isinstance(error, openai.APIStatusError):
        return _endpoint.describe_status(error.status_code, error.body)
    if isinstance(error, openai.OpenAIError):
        return type(error).__name__
    return "the reply is not a list of vectors"
