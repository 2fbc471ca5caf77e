"""The tools' access to memfold: one tenant, one bucket, a few connections, without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Concatenate, Final, LiteralString, ParamSpec, Self, TypeVar
from uuid import UUID, uuid4

from memfold.agents.mcp.queries import CURRENT_OF, KIND_OF_QUESTION, OPEN_QUESTIONS
from memfold.client import queries
from memfold.client._log import get_logger
from memfold.client._text import describe_error
from memfold.client.calls import AsyncMemfold
from memfold.client.embedding import EmbedderProtocol
from memfold.client.errors import (
    ConnectionLostError,
    EndpointError,
    InstallError,
    MemfoldError,
    OutcomeUnknownError,
    RetryableError,
    TenantMissingError,
)
from memfold.client.found import ForgottenMemory, FoundMemory, Profile, SearchBy, SearchFields, SearchResult
from memfold.client.judging import protocol
from memfold.client.types import CandidateFields, Erasure, IngestResult, Origin, Row, UndoneMemory

logger = get_logger("memfold.mcp")

CONNECTIONS = 4

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True)
class Place:
    """Tenant, bucket and database, which callers cannot choose."""

    dsn: str
    tenant_id: str | None = None
    """None: the login's."""
    bucket_id: str = "default"
    embedder: EmbedderProtocol | None = None


def _apart(
    call: Callable[Concatenate[Store, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    """Run it in a separate task, which is cancelled once if its caller is.

    The SDK cancels again at every await. That would interrupt psycopg while it cancels the statement: the server would
    continue with it, on a connection that is no longer counted.
    """

    @functools.wraps(call)
    async def run(store: Store, /, *args: P.args, **given: P.kwargs) -> T:
        task = asyncio.create_task(call(store, *args, **given))
        store._working.add(task)
        task.add_done_callback(store._working.discard)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            task.cancel()
            raise
        return task.result()

    return run


class Store:
    """The memories of one tenant and bucket; a context manager."""

    def __init__(self, place: Place) -> None:
        self.bucket_id = place.bucket_id
        self.embedder = place.embedder
        self._place = place
        self._tenant_id = place.tenant_id
        # The session of what this process states: a policy may limit how often a session repeats itself.
        self._session_id = f"mcp-{uuid4()}"
        self._turn = asyncio.Semaphore(CONNECTIONS)
        self._idle: list[AsyncMemfold] = []
        self._embedding: asyncio.Task[None] | None = None
        self._working: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        """Connect. Raises an error if the database, login or tenant is unusable."""
        async with self._connect() as client:
            await self._check(client)
        if self.embedder is not None:
            self._embedding = asyncio.create_task(self._embed_pending())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._working] if self._embedding is None else [*self._working, self._embedding]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in self._idle:
            await client.close()

    async def _check(self, client: AsyncMemfold) -> None:
        if not (await client._drive(client._core.query(queries.INSTALLED)))[0]["installed"]:
            raise InstallError("memfold is not installed in this database", hint="Run: memfold init DSN")
        if self._tenant_id is None:
            found = await client._drive(client._core.query(queries.TENANTS_OF_LOGIN))
            if len(found) != 1:
                raise TenantMissingError(
                    "no tenant",
                    detail=f"The login belongs to {len(found)} tenants." if found else None,
                    hint="Set MEMFOLD_TENANT, or bind the login to one tenant (docs/security.md).",
                )
            self._tenant_id = found[0]["tenant_id"]
        await client.known("Does this login belong to the tenant?", self._tenant_id, bucket_id=self.bucket_id)

    async def _embed_pending(self) -> None:
        """Add missing vectors: without them memories are not recalled by meaning."""
        try:
            async with self._client() as client:
                report = await client.embed_pending(bucket_id=self.bucket_id)
        except Exception as error:
            logger.warning("memories remain without a vector: %s", describe_error(error))
        else:
            if report.attached or report.failed:
                logger.info("vectors attached: %s, failed: %s", report.attached, report.failed)

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[AsyncMemfold]:
        async with self._turn:
            client = self._idle.pop() if self._idle else self._connect()
            try:
                yield client
            finally:
                self._idle.append(client)

    def _connect(self) -> AsyncMemfold:
        # A call whose COMMIT was lost is sent again with its key: nothing is lost or counted twice.
        return AsyncMemfold(self._place.dsn, self._tenant_id, self.embedder, retry_safe=True)

    @_apart
    async def _query(self, statement: LiteralString, parameters: Mapping[str, Any]) -> list[Row]:
        arguments = {"tenant_id": self._tenant_id, "bucket_id": self.bucket_id, **parameters}
        async with self._client() as client:
            return await client._drive(client._core.send(statement, arguments, repeatable=True))

    # what the tools ask for

    @_apart
    async def remember(
        self, content: str, origin: Origin, turn_id: str | None, fields: Mapping[str, Any]
    ) -> IngestResult:
        given: CandidateFields = {
            "bucket_id": self.bucket_id,
            "origin": origin,
            "session_id": self._session_id,
            "source_turn_ids": [] if turn_id is None else [turn_id],
            **fields,  # type: ignore[typeddict-item]
        }
        async with self._client() as client:
            return await client.ingest(content, **given)

    @_apart
    async def recall(
        self, query: str, limit: int, subject: str | None, as_of: datetime | None, by: SearchBy
    ) -> SearchResult[FoundMemory]:
        """Raises what the embedder raises; it is not asked for a search by words."""
        options: SearchFields = {"max_results": limit}
        if subject is not None:
            options["subject"] = subject
        if as_of is not None:
            options["as_of"] = as_of
        async with self._client() as client:
            return await client.search(query, bucket_id=self.bucket_id, by=by, **options)

    @_apart
    async def correct(
        self, memory_id: UUID, content: str, value: str | None, reason: str | None
    ) -> IngestResult:
        async with self._client() as client:
            return await client.update(memory_id, content, value, reason)

    @_apart
    async def reject(self, memory_id: UUID, reason: str | None) -> IngestResult:
        async with self._client() as client:
            return await client.reject(memory_id, reason)

    @_apart
    async def erase(self, memory_id: UUID, reason: str | None) -> Erasure:
        async with self._client() as client:
            return await client.erase(memory_id=memory_id, reason=reason)

    @_apart
    async def forgettable(
        self, subject: str | None, predicate: str | None, about: str | None, min_similarity: float | None
    ) -> tuple[ForgottenMemory, ...]:
        async with self._client() as client:
            return await client.forget(
                subject, predicate, query=about, min_similarity=min_similarity, bucket_id=self.bucket_id
            )

    async def current_of(self, memory_ids: Sequence[UUID]) -> list[Row]:
        return await self._query(CURRENT_OF, {"memory_ids": list(memory_ids)})

    @_apart
    async def profile(self, subject: str, limit: int) -> Profile:
        async with self._client() as client:
            return await client.profile(subject, bucket_id=self.bucket_id, max_results=limit)

    @_apart
    async def undo(self, event_id: UUID, reason: str | None) -> tuple[UndoneMemory, ...]:
        async with self._client() as client:
            return await client.undo(event_id, reason)

    @_apart
    async def explain(self, memory_id: UUID) -> str:
        async with self._client() as client:
            return await client.explain(memory_id)

    async def open_questions(self, limit: int) -> list[Row]:
        return await self._query(OPEN_QUESTIONS, {"max_results": limit})

    async def kind_of_question(self, judgement_id: UUID) -> str | None:
        """None: no open question has that id in this bucket."""
        rows = await self._query(KIND_OF_QUESTION, {"judgement_id": judgement_id})
        return rows[0]["kind"] if rows else None

    @_apart
    async def answer(self, answer: Mapping[str, Any]) -> Row:
        async with self._client() as client:
            call = protocol.resolve_question({**answer, "tenant_id": self._tenant_id})
            # The first answer counts, so it may be sent twice.
            rows = await client._drive(client._core.send(call.statement, call.arguments, repeatable=True))
        return rows[0]


# Errors that the calling model can correct itself, in terms of its tools: the database's own hints name SQL functions.
# None: the database's hint names none.
_FOR_THE_MODEL: Final[Mapping[str, str | None]] = {
    "MF003": None,
    "MF004": None,
    "MF005": "A memory is one fact: split the text.",
    "MF010": None,
    "MF018": "remember, recall and open_questions return memory ids. An erased memory has none.",
    "MF026": "open_questions lists the open ones.",
    "MF027": "The first answer counts. undo(event_id) reverses what it did.",
    "MF028": None,
    "MF029": "remember, correct, forget and answer return event ids; explain shows those of a memory.",
    "MF030": None,
    "MF032": "undo reverses a merge, a replaced value, a correction, a forget, an answer, a restatement. To remove a new"
    " fact, use forget with its memory_id.",
    "MF033": "explain shows what is undone.",
    "MF034": "explain says by which event; undo that event.",
    "MF065": None,
    "MF066": "Tell the user: too much was changed within an hour. A person has to look at it.",
}
_FOR_OTHERS: Final = "No other arguments can change that. Tell the user to look at the log of memfold mcp."


def plain(error: Exception) -> str:
    """An error for the caller, in memfold's own words, never with a DSN. Errors that the caller cannot fix are logged."""
    if isinstance(error, MemfoldError) and (state := error.sqlstate or "") in _FOR_THE_MODEL:
        logger.info("a call failed: %s", describe_error(error))
        hint = _FOR_THE_MODEL[state] or error.hint
        return str(MemfoldError(error.message, sqlstate=error.sqlstate, detail=error.detail, hint=hint))
    logger.warning("a call failed: %s", describe_error(error))
    if isinstance(error, OutcomeUnknownError):
        return (
            "the connection to the database was lost before it answered\n"
            "HINT: It is unknown whether it was written: check before you repeat it."
        )
    if isinstance(error, ConnectionLostError):
        return "the database cannot be reached; nothing was written\nHINT: Try again later."
    if isinstance(error, RetryableError):
        return f"{error.sqlstate}: {error.message}; nothing was written\nHINT: Try again."
    if isinstance(error, MemfoldError) and (error.sqlstate is not None or isinstance(error, EndpointError)):
        return str(
            MemfoldError(error.message, sqlstate=error.sqlstate, detail=error.detail, hint=_FOR_OTHERS)
        )
    return f"the database or its driver failed\nHINT: {_FOR_OTHERS}"
