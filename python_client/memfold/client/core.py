"""What the clients do, without doing it: generators that ask for transactions, vectors and pauses.

``Memfold`` and ``AsyncMemfold`` carry out what they ask for, each in its own way. Every decision (what to
send, what to retry, what to log) is made here, once.
"""

from __future__ import annotations

import json
import math
import os
import random
import socket
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, LiteralString, NoReturn, TypeAlias, TypeVar
from uuid import UUID

import psycopg

from memfold import errors, queries
from memfold._log import log_decision, log_synthesis, logger, quoted
from memfold._text import describe_error, sanitize_text
from memfold.embedding.embedders import EmbedderProtocol, VectorBinary, checked_vectors, vector_binary
from memfold.judging import Answer, Judge, JudgeError, Question, Usage, Verdict
from memfold.judging.protocol import usage_arguments
from memfold.types import (
    BucketStats,
    CurrentMemory,
    EmbedReport,
    Feedback,
    IngestResult,
    JudgementState,
    KnownMemory,
    Resolution,
    Row,
    SimilarMemory,
    UndoneMemory,
)

T = TypeVar("T")

WAIT = 60.0
"""Seconds that ``wait=True`` stands for."""
_LONGEST_LEASE = 86_400.0
_LONGEST_RETRY = 3600.0
_NEVER_EMBEDDED = "; it has given none so far: embed takes a list of texts and gives a list of vectors"


@dataclass(frozen=True, slots=True)
class Copy:
    """Rows for a binary COPY, and the types of their columns."""

    statement: LiteralString
    types: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Transact:
    """One statement in a transaction of its own, in which memfold.tenant_id is set; gives its rows.

    copy: goes before it. keep: whether to commit, by the statement's rows.
    """

    statement: LiteralString
    parameters: Mapping[str, Any]
    copy: Copy | None = None
    keep: Callable[[list[Row]], bool] | None = None


@dataclass(frozen=True, slots=True)
class Embed:
    """The vectors of some texts, from the embedder; gives what it gave."""

    texts: list[str]


@dataclass(frozen=True, slots=True)
class Ask:
    """An answer of the judge; gives it, raises what the judge raised, and JudgeError after so many seconds.

    leased: the question is of the queue, to which it returns when its caller is cancelled.
    """

    question: Question
    seconds: float
    leased: bool = True


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds to wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Together:
    """Several calls at once, so many at a time; gives their results in order."""

    calls: Sequence[Generator[Any, Any, Any]]
    at_once: int


class CommitLostError(Exception):
    """The connection went while COMMIT was under way. Never leaves this package."""

    def __init__(self, error: psycopg.Error, rows: list[Row]) -> None:
        super().__init__(str(error))
        self.error = error
        self.rows = rows


Step: TypeAlias = Transact | Embed | Ask | Pause | Together
Steps: TypeAlias = Generator[Step, Any, T]


class Core:
    """The options of a client, and its calls as steps."""

    def __init__(
        self,
        tenant_id: str | None,
        embedder: EmbedderProtocol | None,
        retry_safe: bool,
        max_attempts: int,
        judge: Judge | None = None,
    ) -> None:
        if max_attempts < 1:
            raise ValueError("max_attempts is at least 1")
        self.tenant_id = tenant_id
        self.embedder = embedder
        self.retry_safe = retry_safe
        self.max_attempts = max_attempts
        self.judge = judge
        # A lease is the client's alone: two of one process must not take each other's for their own.
        self.worker = f"client-{socket.gethostname()[:80]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._registered = False
        self._has_embedded = False

    # the calls

    def ingest(
        self,
        content: str,
        tenant_id: str | None,
        given: Mapping[str, Any],
        *,
        preview: bool = False,
        wait: bool | float = False,
    ) -> Steps[IngestResult]:
        seconds = wait_seconds(wait)
        arguments = self._arguments({**given, "content": content}, tenant_id)
        if self.embedder is not None and arguments.get("embedding") is None:
            yield from self._embed_on_miss(self.embedder, arguments)
        if preview:
            rows = yield from self.run(queries.PREVIEW, arguments)
        else:
            if self.retry_safe and arguments.get("idempotency_key") is None:
                arguments["idempotency_key"] = uuid.uuid4().hex
            keyed = arguments.get("idempotency_key") is not None
            rows = yield from self.run(queries.INGEST, arguments, repeatable=keyed)
        result = IngestResult.from_row(rows[0])
        log_decision(content, result, preview=preview)
        if seconds and result.judgement_id is not None and not preview:
            resolution = yield from self.waited_for(result, arguments["tenant_id"], seconds)
            return replace(result, resolution=resolution)
        return result

    def known(
        self, content: str, tenant_id: str | None, given: Mapping[str, Any]
    ) -> Steps[KnownMemory | None]:
        return (yield from self._known(self._arguments({**given, "content": content}, tenant_id)))

    def find_similar(
        self,
        content: str | None,
        tenant_id: str | None,
        bucket_id: str,
        embedding: Any,
        embedding_model: str | None,
        given: Mapping[str, Any],
    ) -> Steps[tuple[SimilarMemory, ...]]:
        named: dict[str, Any] = {"bucket_id": bucket_id, "embedding_model": embedding_model}
        if embedding is None and content is not None:
            if self.embedder is None:
                raise ValueError("find_similar needs an embedding, or a client with an embedder")
            check_text("content", content)
            vectors = yield from self._vectors(self.embedder, [content])
            yield from self.register(self.embedder, vectors[0])
            named.update(embedding=vectors[0], embedding_model=self.embedder.model)
        else:
            named["embedding"] = embedding
        rows = yield from self.run(
            queries.FIND_SIMILAR, self._arguments({**named, **given}, tenant_id), repeatable=True
        )
        return tuple(SimilarMemory.from_row(row) for row in rows)

    def attach_embedding(
        self, memory_id: UUID | str, embedding: Any, embedding_model: str | None, tenant_id: str | None
    ) -> Steps[IngestResult]:
        arguments = self._arguments(
            {"memory_id": memory_id, "embedding": embedding, "embedding_model": embedding_model}, tenant_id
        )
        rows = yield from self.run(queries.ATTACH, arguments)
        result = IngestResult.from_row(rows[0])
        log_decision(f"memory {arguments['memory_id']}", result)
        return result

    def embed_pending(self, tenant_id: str | None, bucket_id: str | None, batch: int) -> Steps[EmbedReport]:
        if self.embedder is None:
            raise ValueError("embed_pending needs a client with an embedder")
        report = EmbedReport()
        passed: set[UUID] = set()
        stay = 0
        while True:
            # behind those that have been passed and are pending still: what is attached is no longer on the list
            arguments = self._arguments({"bucket": bucket_id, "max_results": batch + stay}, tenant_id)
            rows = yield from self.run(queries.PENDING, arguments, repeatable=True)
            rows = [row for row in rows if row["memory_id"] not in passed][:batch]
            if not rows:
                return report
            passed.update(row["memory_id"] for row in rows)
            vectors = yield from self.vectors_or_none(self.embedder, [row["content"] for row in rows])
            failed = vectors.count(None)
            stay += failed
            report = replace(report, failed=report.failed + failed)
            if failed == len(rows):
                return report  # the embedder is down: the rest would only fail too
            for row, vector in zip(rows, vectors, strict=True):
                if vector is None:
                    continue
                yield from self.register(self.embedder, vector)
                try:
                    result = yield from self.attach_embedding(
                        row["memory_id"], vector, self.embedder.model, tenant_id
                    )
                except errors.EmbeddingExistsError:
                    stay += 1  # somebody else was faster, or it is listed all the same
                    continue
                report = replace(
                    report,
                    attached=report.attached + 1,
                    merged=report.merged + (result.action == "merged"),
                    escalated=report.escalated + (result.action == "escalated"),
                )

    def explain(self, memory_id: UUID | str, tenant_id: str | None) -> Steps[str]:
        return "\n".join((yield from self.explain_lines(memory_id, tenant_id)))

    def explain_lines(self, memory_id: UUID | str, tenant_id: str | None) -> Steps[list[str]]:
        arguments = self._arguments({"memory_id": memory_id}, tenant_id)
        if arguments["tenant_id"] is None:
            del arguments["tenant_id"]
        rows = yield from self.run(queries.EXPLAIN, arguments, repeatable=True)
        return [row["explain_memory"] for row in rows]

    def current_memories(
        self, bucket_id: str, as_of: datetime | None, tenant_id: str | None
    ) -> Steps[tuple[CurrentMemory, ...]]:
        arguments = self._arguments({"bucket_id": bucket_id, "as_of": as_of}, tenant_id)
        if not arguments["tenant_id"]:
            raise errors.TenantMissingError(
                "tenant_id is missing",
                detail="Neither the call nor the client names a tenant.",
                hint="Pass tenant_id to one of them.",
            )
        rows = yield from self.run(queries.CURRENT, arguments, repeatable=True)
        return tuple(CurrentMemory.from_row(row) for row in rows)

    def record_feedback(self, memory_id: UUID | str, helpful: bool, tenant_id: str | None) -> Steps[Feedback]:
        arguments = self._arguments({"memory_id": memory_id, "helpful": helpful}, tenant_id)
        rows = yield from self.run(queries.FEEDBACK, arguments)
        return Feedback.from_row(rows[0])

    # a person's hand

    def undo(
        self, event_id: UUID | str, reason: str | None, tenant_id: str | None
    ) -> Steps[tuple[UndoneMemory, ...]]:
        arguments = self._arguments({"event_id": event_id, "reason": reason}, tenant_id)
        rows = yield from self.run(queries.UNDO, arguments)
        return tuple(UndoneMemory.from_row(row) for row in rows)

    def by_hand(self, function: str, given: Mapping[str, Any], tenant_id: str | None) -> Steps[IngestResult]:
        """merge_memories and the like: one decision of a person."""
        rows = yield from self.run(function, self._arguments(given, tenant_id))
        return IngestResult.from_row(rows[0])

    def update(
        self, memory_id: UUID | str, content: str, given: Mapping[str, Any], tenant_id: str | None
    ) -> Steps[IngestResult]:
        arguments = self._arguments({"memory_id": memory_id, "content": content, **given}, tenant_id)
        if arguments.get("embedding") is None and self.embedder is not None:
            yield from self._embed_or_not(self.embedder, arguments)
        rows = yield from self.run(queries.UPDATE, arguments)
        result = IngestResult.from_row(rows[0])
        log_decision(content, result)
        return result

    # tier 3

    def claim(
        self,
        tenant_id: str | None,
        lease: float,
        *,
        review: bool = False,
        judgement_ids: Sequence[UUID] | None = None,
    ) -> Steps[Question | None]:
        """One question that waits, or None. Without a tenant: of any."""
        arguments = {
            "worker": self.worker,
            "max": 1,
            "lease": timedelta(seconds=min(lease, _LONGEST_LEASE)),
            "review": review,
            "tenant_id": tenant_id,
            "judgement_ids": None if judgement_ids is None else list(judgement_ids),
        }
        rows = yield from self.run(queries.CLAIM, arguments, repeatable=True)
        return Question.from_row(rows[0]) if rows else None

    def answer_by_person(
        self,
        question: Question,
        verdict: Verdict,
        fuller: UUID | None = None,
        member_ids: Sequence[UUID] | None = None,
    ) -> Steps[Resolution]:
        arguments = {
            "judgement_id": question.judgement_id,
            "verdict": verdict,
            "fuller": fuller,
            "member_ids": None if member_ids is None else list(member_ids),
            "tenant_id": question.tenant_id,
        }
        rows = yield from self.run(queries.RESOLVE, arguments, repeatable=True)
        return Resolution.from_row(rows[0])

    def give_back(
        self,
        question: Question,
        error: str,
        *,
        counted: bool = False,
        retry_after: float | None = 0.0,
        usage: Mapping[str, Any] | None = None,
    ) -> Steps[JudgementState | Literal["replaced"]]:
        """Give a lease back without an answer; gives the judgement's state, or what the policy has done at its end."""
        arguments = {
            "judgement_id": question.judgement_id,
            "error": sanitize_text(error),
            "worker": self.worker,
            "counted": counted,
            "retry_after": None if retry_after is None else timedelta(seconds=retry_after),
            "tenant_id": question.tenant_id,
            **(usage or {}),
        }
        rows = yield from self.run(queries.FAIL, arguments, repeatable=True)
        state: JudgementState | Literal["replaced"] = rows[0]["fail_judgement"]
        return state

    def queued_again(self, question: Question) -> Steps[list[UUID]]:
        """Judgements for a person that an undo has queued about the same pair."""
        parameters = {
            "tenant_id": question.tenant_id,
            "memory_id": question.memory.memory_id,
            "other_id": question.other.memory_id,
        }
        rows = yield from self.send(queries.QUEUED_AGAIN, parameters, repeatable=True)
        return [row["judgement_id"] for row in rows]

    def events_of(self, question: Question) -> Steps[list[UUID]]:
        """What the answer to a question did and can be undone, the last first."""
        parameters = {
            "tenant_id": question.tenant_id,
            "judgement_id": question.judgement_id,
            "member_ids": [side.memory_id for side in question.sides],
        }
        rows = yield from self.send(queries.EVENTS_OF, parameters, repeatable=True)
        return [row["event_id"] for row in rows]

    def waited_for(self, result: IngestResult, tenant_id: str, seconds: float) -> Steps[Resolution | None]:
        """What came of the judgement in that time. The fact is stored: no trouble from here on is its caller's."""
        assert result.judgement_id is not None  # noqa: S101 (only then is this called)
        try:
            resolution = yield from self._settled(result.judgement_id, tenant_id, seconds)
        except Exception as error:
            logger.warning(
                "DEDUP_FAIL: judgement %s was not waited for (%s), both memories stay",
                result.judgement_id,
                describe_error(error),
            )
            return None
        if resolution is not None and resolution.action in ("judged", "escalated"):
            resolution = replace(resolution, memory_id=result.memory_id)  # both are kept
        return resolution

    def _settled(self, judgement_id: UUID, tenant_id: str, seconds: float) -> Steps[Resolution | None]:
        until = time.monotonic() + seconds
        pause = 0.05
        due = self.judge is not None
        while True:
            if due and (left := until - time.monotonic()) > 0:
                # Longer than the judge may take: nobody else is to ask what is being asked.
                question = yield from self.claim(tenant_id, left + 30, judgement_ids=[judgement_id])
                if question is not None:
                    resolution = yield from self._judged(question, left)
                    if resolution is not None:
                        return resolution
            rows = yield from self.send(
                queries.JUDGEMENT, {"judgement_id": judgement_id, "tenant_id": tenant_id}, repeatable=True
            )
            if not rows:
                return None
            row = rows[0]
            left = until - time.monotonic()
            if row["successor"] is not None and left > 0:
                judgement_id, due = row["successor"], self.judge is not None
                continue
            # What waits for a person takes longer than any call should.
            if row["state"] in ("done", "moot", "dead") or row["kind"] == "review" or left <= 0:
                return Resolution.from_row(row)
            yield Pause(min(pause, left))
            pause = min(1.5 * pause, 1.0)
            due = self.judge is not None and row["due"]

    def _judged(self, question: Question, seconds: float) -> Steps[Resolution | None]:
        """Ask the judge and apply its answer. None: somebody else was faster, or the pair has changed."""
        usage = Usage()
        try:
            answer: Answer = yield Ask(question, seconds)
            usage = answer.usage
            verdict = {
                "judgement_id": question.judgement_id,
                "verdict": answer.verdict,
                "confidence": _number("confidence", answer.confidence),
                "reason": None if answer.reason is None else sanitize_text(answer.reason),
                "merged_text": answer.merged_text,
                "fuller": answer.fuller,
                "member_ids": None if answer.member_ids is None else list(answer.member_ids),
                "tenant_id": question.tenant_id,
                **usage_arguments(self.judge, usage),
            }
            check_text("verdict", answer.verdict)
            check_text("merged_text", answer.merged_text)
            rows = yield from self.run(queries.RESOLVE, verdict, repeatable=True)
        except (errors.JudgementClosedError, errors.JudgementNotFoundError):
            return None
        except errors.ConnectionLostError:
            raise
        except Exception as error:
            return (yield from self._not_judged(question, error, usage))
        resolution = Resolution.from_row(rows[0])
        logger.info(
            "DEDUP_JUDGE: judgement %s %s by %s -> %s",
            question.judgement_id,
            resolution.verdict or answer.verdict,
            verdict["model"],
            resolution.action or resolution.state,
        )
        count = len(answer.member_ids or question.sides)
        log_synthesis(resolution.action, answer.merged_text, resolution.memory_id, count)
        return None if resolution.state == "open" else resolution

    def _not_judged(self, question: Question, error: Exception, usage: Usage) -> Steps[Resolution | None]:
        transient = isinstance(error, errors.RetryableError)
        retry_after = None
        if isinstance(error, JudgeError):
            transient, usage = error.transient, error.usage
            retry_after = error.retry_after
        used = usage_arguments(self.judge, usage)
        state = yield from self.give_back(
            question,
            describe_error(error),
            counted=not transient,
            retry_after=min(max(retry_after or 1.0, 0.0), _LONGEST_RETRY) if transient else None,
            usage=used,
        )
        logger.warning(
            "DEDUP_FAIL: judgement %s by %s failed (%s), %s",
            question.judgement_id,
            used["model"],
            describe_error(error),
            "falling back to replace" if state == "replaced" else "both memories stay",
        )
        if state == "done" or state == "moot" or state == "replaced":
            return None
        return Resolution(state)

    # the rest

    def stats(self, tenant_id: str | None, bucket_id: str | None) -> Steps[tuple[BucketStats, ...]]:
        arguments = self._arguments({"bucket_id": bucket_id}, tenant_id)
        rows = yield from self.send(queries.STATS, arguments, repeatable=True)
        return tuple(BucketStats.from_row(row) for row in rows)

    def register_embedding_model(self, model: str, dimensions: int) -> Steps[None]:
        check_text("model", model)
        yield from self.run(
            queries.REGISTER_MODEL, {"model": model, "dimensions": dimensions}, repeatable=True
        )

    def hash_conflict(
        self, error: psycopg.Error, content: str, tenant_id: str | None, given: Mapping[str, Any]
    ) -> Steps[errors.MemfoldError]:
        if not errors.is_hash_conflict(error):
            return errors.translate(error)
        # Under row level security the error has no DETAIL: what was met must be looked up.
        known = yield from self.known(content, tenant_id, given)
        if known is None:
            return errors.MemoryHashConflict(None, None)
        return errors.MemoryHashConflict(known.content_hash, known.memory_id)

    def query(self, statement: LiteralString, tenant_id: str | None = None) -> Steps[list[Row]]:
        return (yield from self.send(statement, {"tenant_id": tenant_id}, repeatable=True))

    def check_invariants(self, tenant_id: str | None) -> Steps[list[Row]]:
        return (
            yield from self.run(queries.CHECK_INVARIANTS, self._arguments({}, tenant_id), repeatable=True)
        )

    # embedding

    def _embed_on_miss(self, embedder: EmbedderProtocol, arguments: dict[str, Any]) -> Steps[None]:
        """Add the vector to the arguments where tier 1 does not know the text and a vector is to be had."""
        arguments.pop("embedding", None)
        arguments.pop("embedding_model", None)
        if (yield from self._known(arguments)) is None:
            yield from self._embed_or_not(embedder, arguments)

    def _embed_or_not(self, embedder: EmbedderProtocol, arguments: dict[str, Any]) -> Steps[None]:
        """Add the vector of the content to the arguments, where one is to be had."""
        vectors = yield from self.vectors_or_none(embedder, [arguments["content"]])
        if vectors[0] is not None:
            yield from self.register(embedder, vectors[0])
            arguments.update(embedding=vectors[0], embedding_model=embedder.model)

    def _known(self, arguments: Mapping[str, Any]) -> Steps[KnownMemory | None]:
        probe = {name: arguments[name] for name in queries.KNOWN_ARGUMENTS if name in arguments}
        rows = yield from self.run(queries.KNOWN, probe, repeatable=True)
        return KnownMemory.from_row(rows[0]) if rows else None

    def _vectors(self, embedder: EmbedderProtocol, texts: list[str]) -> Steps[list[VectorBinary]]:
        answer = yield Embed(texts)
        vectors = checked_vectors(answer, texts, embedder.dimensions)
        self._has_embedded = True
        return vectors

    def vectors_or_none(
        self, embedder: EmbedderProtocol, texts: list[str]
    ) -> Steps[list[VectorBinary | None]]:
        """A failing embedder costs no data: whoever gets None stores without a vector."""
        try:
            return list((yield from self._vectors(embedder, texts)))
        except Exception as error:
            if len(texts) == 1:
                logger.warning(
                    "DEDUP_FAIL: %s by %s failed (%s), going on without a vector%s",
                    quoted(texts[0]),
                    embedder.model,
                    describe_error(error),
                    "" if self._has_embedded else _NEVER_EMBEDDED,
                )
                return [None]
        # One text may have spoilt the batch: the others shall not wait for it. After two the embedder counts
        # as down.
        made: list[VectorBinary | None] = []
        for text in texts:
            made += yield from self.vectors_or_none(embedder, [text])
            if made == [None, None]:
                return [None] * len(texts)
        return made

    def register(self, embedder: EmbedderProtocol, vector: VectorBinary) -> Steps[None]:
        if self._registered:
            return
        dimensions = embedder.dimensions or vector.dimensions
        try:
            yield from self.register_embedding_model(embedder.model, dimensions)
        except errors.MemfoldError as error:
            if error.sqlstate != "42501":  # not permitted: then somebody else has registered it
                raise
            logger.debug("the model %s could not be registered: %s", embedder.model, error.message)
        self._registered = True

    # sending

    def _arguments(self, given: Mapping[str, Any], tenant_id: str | None) -> dict[str, Any]:
        arguments = prepared(given)
        check_text("tenant_id", tenant_id)
        arguments["tenant_id"] = self.tenant_id if tenant_id is None else tenant_id
        return arguments

    def run(
        self, function: str, arguments: Mapping[str, Any], *, repeatable: bool = False
    ) -> Steps[list[Row]]:
        return self.send(queries.call(function, arguments), arguments, repeatable=repeatable)

    def send(
        self, statement: LiteralString, arguments: Mapping[str, Any], *, repeatable: bool
    ) -> Steps[list[Row]]:
        """Send until it is through. A repeatable call may be sent again even when COMMIT was under way."""
        parameters = {**arguments, "memfold_tenant": arguments.get("tenant_id")}
        attempts = 0
        reconnected = upgraded = unsure = False
        while True:
            error: psycopg.Error
            try:
                rows: list[Row] = yield Transact(statement, parameters)
                return rows
            except CommitLostError as lost:
                unsure = True
                if not repeatable:
                    self._give_up(lost.error, unsure)
                error = lost.error
            except psycopg.Error as caught:
                error = caught
            attempts += 1
            if errors.is_connection_lost(error):
                if reconnected:
                    self._give_up(error, unsure)
                reconnected = True
            elif error.sqlstate in errors.BETWEEN_VERSIONS and not upgraded:
                upgraded = True
            elif error.sqlstate not in errors.RETRYABLE or attempts >= self.max_attempts:
                self._give_up(error, unsure)
            logger.debug("attempt %s failed (%s), trying again", attempts, error.sqlstate or error)
            yield pause_before(attempts)

    @staticmethod
    def _give_up(error: psycopg.Error, unsure: bool) -> NoReturn:
        """unsure: COMMIT was under way, now or when the same was sent before. An error of memfold's is an answer."""
        if unsure and not (error.sqlstate or "").startswith("MF"):
            raise errors.OutcomeUnknownError(
                "the connection was lost during COMMIT",
                sqlstate=error.sqlstate,
                detail=str(error),
                hint="Whether the call was written is not known. With an idempotency_key, or with"
                " Memfold(retry_safe=True), it is sent again once; with a key of yours you may repeat it yourself.",
            ) from error
        raise errors.translate(error) from error


def pause_before(attempts: int) -> Pause:
    """What lies between an attempt and the next one: longer each time, and never the same for two clients."""
    return Pause(min(0.01 * 2**attempts, 1.0) * random.uniform(0.5, 1))  # noqa: S311 (jitter)


# the judge --------------------------------------------------------------------------------------------------


def wait_seconds(wait: bool | float) -> float:
    """How long ``wait`` means, in seconds; 0: not at all."""
    if isinstance(wait, bool):
        return WAIT if wait else 0.0
    seconds = _number("wait", wait)
    if not 0 <= seconds < math.inf:
        raise errors.InvalidArgumentError(
            "wait is not a time",
            detail=f"It was {wait!r}.",
            hint=f"Pass seconds, or True for {WAIT:g} of them.",
        )
    return seconds


# arguments --------------------------------------------------------------------------------------------------


def check_text(name: str, text: Any) -> None:
    """Raise MF030 for what no text of PostgreSQL can hold."""
    if text is None:
        return
    if not isinstance(text, str):
        raise TypeError(f"{name} must be str, not {type(text).__name__}")
    if "\0" in text:
        detail = f"{name} has a NUL at position {text.index(chr(0))}."
    else:
        try:
            text.encode()
            return
        except UnicodeEncodeError as error:
            detail = (
                f"{name} has a lone surrogate (U+{ord(text[error.start]):04X}) at position {error.start}."
            )
    raise errors.InvalidTextError(
        "the text cannot be stored",
        detail=detail,
        hint="PostgreSQL stores any other character.",
    )


def _check_json(name: str, value: Any) -> None:
    if isinstance(value, str):
        check_text(name, value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str):
                check_text(f"a key of {name}", key)
            _check_json(name, item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_json(name, item)


def _json(name: str, value: Any) -> str:
    _check_json(name, value)
    try:
        return json.dumps(dict(value) if isinstance(value, Mapping) else value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.InvalidMetadataError(
            f"{name} is not JSON",
            detail=f"{str(error)[:1].upper()}{str(error)[1:]}.",
            hint="Pass a JSON object.",
        ) from error


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    return float(value)


def prepared(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as psycopg is to send them, checked for what it or the server could not say clearly."""
    return {name: prepared_value(name, value) for name, value in given.items()}


def prepared_value(name: str, value: Any) -> Any:
    if value is None:
        return None
    match name:
        case "embedding" | "query_embedding":
            return vector_binary(value)
        case "deduplicate" | "touch" | "show_collapsed" | "helpful":
            if not isinstance(value, bool):
                raise TypeError(f"{name} must be bool, not {type(value).__name__}")
            return value
        case "metadata":
            return _json(name, value)
        case "source_turn_ids":
            if isinstance(value, str | bytes) or not isinstance(value, Sequence):
                raise TypeError(f"{name} must be a list of str, not {type(value).__name__}")
            for turn in value:
                check_text(name, turn)
            return list(value)
        case (
            "source_confidence" | "extractor_confidence" | "threshold" | "min_confidence" | "dedup_threshold"
        ):
            return _number(name, value)
        case "max_results":
            return int(value)
        case "as_of":
            if not isinstance(value, datetime):
                raise TypeError(f"{name} must be a datetime, not {type(value).__name__}")
            if value.utcoffset() is None:
                raise errors.InvalidArgumentError(
                    "as_of has no time zone",
                    detail=f"It was {value.isoformat()}.",
                    hint="Pass an aware datetime, such as datetime.now(timezone.utc).",
                )
            return value
        case "observed_at":
            if not isinstance(value, datetime):
                raise TypeError(f"{name} must be a datetime, not {type(value).__name__}")
            if value.utcoffset() is None:
                raise errors.InvalidObservedAtError(
                    "observed_at has no time zone",
                    detail=f"It was {value.isoformat()}.",
                    hint="Pass an aware datetime, such as datetime.now(timezone.utc).",
                )
            return value
        case "memory_id" | "into_id" | "by_id" | "event_id":
            try:
                return value if isinstance(value, UUID) else UUID(value)
            except (ValueError, AttributeError, TypeError):
                raise errors.InvalidIdentifierError(
                    f"{name} is not a UUID",
                    detail=f"It was {value!r:.80}.",
                    hint="Pass an id that ingest gave.",
                ) from None
        case _:
            check_text(name, value)
            return value
