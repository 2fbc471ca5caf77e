"""``ingest_many`` as steps for a driver, like ``memfold.client.calls.core``, one batch at a time."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import psycopg

from memfold.client import errors, queries
from memfold.client._checks import check_text
from memfold.client._log import log_decision, logger
from memfold.client.calls.arguments import check_names, wait_seconds
from memfold.client.calls.core import Core
from memfold.client.calls.entries import Entry, as_json, error_of, is_of_one, of_candidate, value_of
from memfold.client.calls.sending import translated
from memfold.client.calls.steps import CommitLostError, Steps, Together, Transact, pause_before
from memfold.client.embedding import EmbedderProtocol
from memfold.client.embedding.vectors import VectorArray, VectorBinary
from memfold.client.types import BatchItem, Candidate, IngestResult, OnError, Resolution, Row

Progress = Callable[[int, Counter[str]], object]

LARGEST = 10_000
"""The most candidates that the server accepts in one batch."""
_LONGEST = 16_000_000
_EMBEDDED_AT_ONCE = 128
_JUDGED_AT_ONCE = 10


class Batches:
    """One call of ``ingest_many``: collects candidates, and yields the steps that look up, embed and store them."""

    def __init__(
        self,
        core: Core,
        tenant_id: str | None,
        defaults: Mapping[str, Any],
        *,
        batch_size: int,
        wait: bool | float,
        on_error: OnError,
        progress: Progress | None,
    ) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int):
            raise TypeError(f"batch_size must be int, not {type(batch_size).__name__}")
        if not 1 <= batch_size <= LARGEST:
            raise _out_of_range("batch_size", batch_size, f"Pass 1 to {LARGEST:,}.")
        if on_error not in ("report", "abort"):
            raise _out_of_range("on_error", on_error, "Pass 'report' or 'abort'.")
        check_names("ingest_many", defaults, [name for name in queries.CANDIDATE if name != "content"])
        self._core = core
        self._tenant_id = _checked_tenant(core.tenant_id if tenant_id is None else tenant_id)
        self._defaults = {name: value_of(name, value) for name, value in defaults.items()}
        self._size = batch_size
        self._seconds = wait_seconds(wait)
        self._abort = on_error == "abort"
        self._progress = progress
        self._waiting: list[Entry] = []
        self._length = 0
        self._taken = 0
        self._actions: Counter[str] = Counter()
        self._embedded: dict[str, VectorBinary] = {}
        """Vectors of the last batch, which may not be stored yet when the next one is looked up."""

    def add(self, candidate: Candidate) -> bool:
        """Add a candidate; returns whether it is time to send. Raises its error if errors abort the call."""
        entry = self._entry(self._taken, candidate)
        if entry.error is not None and self._abort:
            raise of_candidate(entry)
        self._taken += 1
        self._waiting.append(entry)
        self._length += sum(len(value) for value in entry.values.values() if isinstance(value, str | bytes))
        return len(self._waiting) >= self._size or self._length >= _LONGEST

    def take(self) -> list[Entry]:
        """The candidates added since the last call."""
        entries, self._waiting, self._length = self._waiting, [], 0
        return entries

    def taken(self, candidates: Iterable[Candidate]) -> Iterator[list[Entry]]:
        """Batches of candidates, as they are read."""
        for candidate in candidates:
            if self.add(candidate):
                yield self.take()
        if entries := self.take():
            yield entries

    async def taken_async(
        self, candidates: Iterable[Candidate] | AsyncIterable[Candidate]
    ) -> AsyncIterator[list[Entry]]:
        """As ``taken``."""
        if not isinstance(candidates, AsyncIterable):
            for entries in self.taken(candidates):
                yield entries
            return
        async for candidate in candidates:
            if self.add(candidate):
                yield self.take()
        if entries := self.take():
            yield entries

    @property
    def embeds_ahead(self) -> bool:
        """Whether to embed a batch while the one before it is being stored."""
        return self._core.embedder is not None and not self._seconds

    def look_up(self, entries: list[Entry]) -> Steps[dict[str, list[Entry]]]:
        """The texts to embed: those without a vector that tier 1 does not know."""
        if self._core.embedder is None:
            return {}
        return (yield from self._missing([entry for entry in entries if entry.error is None]))

    def embed(self, missing: dict[str, list[Entry]]) -> Steps[None]:
        """Assign the vectors; equal texts share one, across the previous batch too."""
        if missing:
            assert self._core.embedder is not None  # noqa: S101 (only then is anything missing)
            yield from self._embed(self._core.embedder, missing)

    def store(self, entries: list[Entry]) -> Steps[list[BatchItem]]:
        """Store a batch; returns its items."""
        sound = [entry for entry in entries if entry.error is None]
        if sound:
            yield from self._store(sound)
            if self._seconds:
                yield from self._judge(sound)
        if entries:
            self._actions.update("error" if e.result is None else e.result.action for e in entries)
            if self._progress is not None:
                self._progress(entries[-1].index + 1, self._actions.copy())
        return [BatchItem(entry.index, entry.content, entry.result, entry.error) for entry in entries]

    # the candidates

    def _entry(self, index: int, candidate: Candidate) -> Entry:
        given: Mapping[str, Any] = {}
        if isinstance(candidate, str):
            given = {"content": candidate}
        elif isinstance(candidate, Mapping):
            given = candidate
        content = given.get("content")
        entry = Entry(index, content if isinstance(content, str) else None, {})
        try:
            if "content" not in given:
                raise TypeError(
                    f"a candidate is a text, or a mapping with content: this is {candidate!r:.80}"
                )
            if unknown := [name for name in given if name not in queries.CANDIDATE]:
                raise TypeError(f"a candidate has no {', '.join(map(str, unknown))}")
            if (tenant_id := given.get("tenant_id")) is not None and tenant_id != self._tenant_id:
                raise errors.WrongTenantError(
                    "the session is not of this tenant",
                    detail="The tenant_id of the candidate differs from that of the batch.",
                    hint="A batch belongs to one tenant: omit tenant_id in the candidates.",
                )
            entry.values = self._defaults | {name: value_of(name, value) for name, value in given.items()}
            entry.values.pop("tenant_id", None)  # the batch's
        except errors.MemfoldError as error:
            entry.error = error
        except (TypeError, ValueError, OverflowError) as error:
            entry.error = errors.InvalidCandidateError(
                "the candidate cannot be sent",
                detail=f"{str(error)[:1].upper()}{str(error)[1:]}.",
                hint="Pass the arguments of ingest.",
            )
            entry.error.__cause__ = error
        return entry

    # embedding

    def _missing(self, entries: list[Entry]) -> Steps[dict[str, list[Entry]]]:
        bare: dict[tuple[str, ...], dict[tuple[Any, ...], list[Entry]]] = {}
        for entry in entries:
            if entry.values.get("embedding") is None:
                entry.values.pop("embedding", None)
                entry.values.pop("embedding_model", None)
                named = tuple(name for name in queries.KNOWN_ARGUMENTS if name in entry.values)
                fact = tuple(entry.values[name] for name in named)
                bare.setdefault(named, {}).setdefault(fact, []).append(entry)
        missing: dict[str, list[Entry]] = {}
        for named, facts in bare.items():
            for fact in (yield from self._unknown(named, list(facts))):
                missing.setdefault(fact[named.index("content")], []).extend(facts[fact])
        return missing

    def _embed(self, embedder: EmbedderProtocol, missing: dict[str, list[Entry]]) -> Steps[None]:
        made = {text: vector for text, vector in self._embedded.items() if text in missing}
        texts = [text for text in missing if text not in made]
        for start in range(0, len(texts), _EMBEDDED_AT_ONCE):
            chunk = texts[start : start + _EMBEDDED_AT_ONCE]
            vectors = yield from self._core.vectors_or_none(embedder, chunk)
            for text, vector in zip(chunk, vectors, strict=True):
                if vector is not None:
                    yield from self._core.register(embedder, vector)
                    made[text] = vector
            if len(chunk) > 1 and vectors.count(None) == len(chunk):  # down: the rest would fail too
                logger.warning("DEDUP_FAIL: %s texts are stored without a vector", len(texts) - start)
                break
        for text, vector in made.items():
            for entry in missing[text]:
                entry.values |= {"embedding": vector, "embedding_model": embedder.model}
        self._embedded = made

    def _unknown(
        self, columns: tuple[str, ...], facts: list[tuple[Any, ...]]
    ) -> Steps[list[tuple[Any, ...]]]:
        """Those that tier 1 does not know. A candidate that cannot be looked up needs no vector either."""
        parameters: dict[str, Any] = {"tenant_id": self._tenant_id}
        for place, column in enumerate(columns):
            parameters[column] = [fact[place] for fact in facts]
        try:
            rows = yield from self._core.send(queries.known_places(columns), parameters, reads=True)
        except errors.MemfoldError as error:
            if not is_of_one(error):
                raise
            if len(facts) == 1:
                return []  # its error is reported when it is stored
            half = len(facts) // 2
            first = yield from self._unknown(columns, facts[:half])
            return first + (yield from self._unknown(columns, facts[half:]))
        known = {row["place"] for row in rows}
        return [fact for place, fact in enumerate(facts, 1) if place not in known]

    # storing

    def _store(self, entries: list[Entry]) -> Steps[None]:
        try:
            rows = yield from self._sent(entries)
        except errors.MemfoldError as error:
            if self._abort or not is_of_one(error):
                raise
            # The server could not even read them, or has too few locks for so many buckets: try smaller batches, down
            # to the one candidate that causes the error.
            if len(entries) == 1:
                entries[0].error = error
                return
            half = len(entries) // 2
            yield from self._store(entries[:half])
            yield from self._store(entries[half:])
            return
        for entry, row in zip(entries, rows, strict=True):
            if row["sqlstate"] is not None:
                entry.error = error_of(row)
            else:
                entry.result = IngestResult.from_row(row)
                log_decision(entry.content or "", entry.result)

    def _sent(self, entries: list[Entry]) -> Steps[list[Row]]:
        """The server's rows for a batch, which is stored once even if connections are lost.

        If a connection is lost during COMMIT, it is unknown whether the batch is stored, so it is sent again. One of
        its candidates has the batch's idempotency key: if the server answers it with the event of the first attempt,
        that attempt was stored, and the second one is rolled back. So a batch costs one key, not one per candidate.
        """
        vectors = yield from self._vectors(entries)
        batch_id = uuid.uuid4()
        keyless = [n for n, entry in enumerate(entries) if entry.values.get("idempotency_key") is None]
        keys = {n: str(batch_id) for n in keyless[:1]}
        unsure: list[Row] | None = None
        attempts = 0

        def stored_before(rows: list[Row]) -> bool:
            return unsure is not None and any(
                rows[n]["event_id"] is not None and rows[n]["event_id"] == unsure[n]["event_id"] for n in keys
            )

        def is_marked(rows: list[Row]) -> bool:
            """Whether the batch's key was stored, or no candidate without its own key was."""
            return any(rows[n]["event_id"] is not None for n in keys) or all(
                rows[n]["event_id"] is None for n in keyless
            )

        def refused(rows: list[Row]) -> int | None:
            return next((n for n, row in enumerate(rows) if row["sqlstate"] is not None), None)

        def keep(rows: list[Row]) -> bool:
            return (
                not stored_before(rows)
                and is_marked(rows)
                and not (self._abort and refused(rows) is not None)
            )

        while True:
            error: psycopg.Error
            try:
                rows: list[Row] = yield Transact(
                    queries.INGEST_MANY,
                    {
                        "candidates": as_json(entries, keys),
                        "embeddings": vectors,
                        "tenant_id": self._tenant_id,
                        "memfold_tenant": self._tenant_id,
                    },
                    keep,
                )
            except CommitLostError as lost:
                error, unsure = lost.error, lost.rows
            except psycopg.Error as caught:
                error = caught
            else:
                if unsure is not None and stored_before(rows):
                    return unsure
                if self._abort and (n := refused(rows)) is not None:
                    entries[n].error = error_of(rows[n])
                    raise of_candidate(entries[n])
                if is_marked(rows):
                    return rows
                if unsure is not None:
                    raise _unknown_outcome(None)
                # The candidate with the key was refused: try again, with a key for each.
                keys = {n: f"{batch_id}:{n}" for n in keyless}
                continue
            attempts += 1
            lost_connection = errors.is_connection_lost(error)
            upgraded = error.sqlstate in errors.BETWEEN_VERSIONS and attempts == 1
            enough = max(self._core.max_attempts, 2 if lost_connection or upgraded else 1)
            if attempts >= enough or not (lost_connection or upgraded or error.sqlstate in errors.RETRYABLE):
                raise (translated(error) if unsure is None else _unknown_outcome(error)) from error
            logger.debug("attempt %s of a batch failed (%s), trying again", attempts, error.sqlstate or error)
            yield pause_before(attempts)

    def _vectors(self, entries: list[Entry]) -> Steps[VectorArray | None]:
        """The parameter with the vectors; its elements name their type, which the server is asked for once."""
        vectors = [entry.values.get("embedding") for entry in entries]
        if not any(vectors):
            return None
        if self._core.vector_type is None:
            rows = yield from self._core.query(queries.VECTOR_TYPE, self._tenant_id)
            self._core.vector_type = rows[0]["oid"]
        return VectorArray(vectors, self._core.vector_type)

    # judging

    def _judge(self, entries: list[Entry]) -> Steps[None]:
        unclear: list[tuple[Entry, IngestResult]] = [
            (entry, entry.result)
            for entry in entries
            if entry.result is not None and entry.result.judgement_id is not None
        ]
        if not unclear:
            return
        calls = [self._core.waited_for(result, self._tenant_id, self._seconds) for _, result in unclear]
        resolutions: list[Resolution | None] = yield Together(calls, _JUDGED_AT_ONCE)
        for (entry, result), resolution in zip(unclear, resolutions, strict=True):
            entry.result = replace(result, resolution=resolution)


def _out_of_range(name: str, value: object, hint: str) -> errors.MemfoldError:
    return errors.InvalidArgumentError(f"{name} is out of range", detail=f"It was {value!r:.80}.", hint=hint)


def _unknown_outcome(error: psycopg.Error | None) -> errors.MemfoldError:
    return errors.OutcomeUnknownError(
        "the connection was lost during COMMIT",
        sqlstate=None if error is None else error.sqlstate,
        detail=None if error is None else str(error),
        hint="Whether the batch was written is not known: it could not be sent again.",
    )


def _checked_tenant(tenant_id: str | None) -> str:
    # now, not when the first batch is sent
    check_text("tenant_id", tenant_id)
    if not tenant_id:
        raise errors.TenantMissingError(
            "tenant_id is missing",
            detail="Neither the call nor the client names a tenant.",
            hint="Pass tenant_id to one of them.",
        )
    if len(tenant_id.encode()) > 512:
        raise errors.InvalidIdentifierError(
            "tenant_id is too long",
            detail=f"It has {len(tenant_id.encode())} bytes.",
            hint="Identifiers have at most 512 bytes of UTF-8.",
        )
    return tenant_id
