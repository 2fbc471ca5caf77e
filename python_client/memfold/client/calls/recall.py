"""Search as steps: which memories the database shows as one, and a model's opinion of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias
from uuid import UUID, uuid4

from memfold.client import errors, queries
from memfold.client._checks import check_text
from memfold.client._log import logger
from memfold.client._text import describe_error
from memfold.client.calls.arguments import check_names
from memfold.client.calls.core import Core
from memfold.client.calls.steps import Ask, Steps, Together
from memfold.client.found import (
    INCOMPLETE,
    ForgetFields,
    ForgottenMemory,
    FoundMemory,
    Notice,
    Profile,
    ProfileFact,
    SearchBy,
    SearchFields,
    SearchResult,
)
from memfold.client.judging import Answer, Question, Side
from memfold.client.judging.questions import is_wordless
from memfold.client.types import Embedding, Row

_AT_ONCE = 10
_BY_WORDS = (
    "The embedder did not answer, so only the words of the query were compared.",
    "Search again when it does.",
)
Forgotten: TypeAlias = tuple[ForgottenMemory, ...]


def search(
    core: Core,
    query: str | None,
    tenant_id: str | None,
    named: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    by: SearchBy | None,
    verify: bool,
    merge_text: bool,
    judge_timeout: float,
) -> Steps[SearchResult[FoundMemory]]:
    """Memories that fit a query, each fact once."""
    if (verify or merge_text) and core.judge is None:
        raise ValueError("verify and merge_text need a client with a judge")
    check_names("search", options, (*SearchFields.__annotations__, *named))
    given = {**named, **options}
    embedding = given.pop("embedding", None)
    check_text("query", query)
    failed: Notice | None = None
    is_asked_for = by is not None
    if by is None:
        by = "words" if embedding is None and core.embedder is None and query is not None else "vector"
    if by != "words" and embedding is None and query is not None:
        try:
            embedding, given["embedding_model"] = yield from _embedded(core, query, f"search by {by}")
        except (errors.MemfoldError, ValueError):
            raise
        except Exception as error:
            if is_asked_for:
                raise
            logger.warning("the query could not be embedded (%s): searching by words", describe_error(error))
            by = "words"
            failed = Notice(INCOMPLETE, *_BY_WORDS)
    if by == "words":
        embedding = None
        if core.embedder is not None:
            # the model whose vectors decide what is shown as one
            given["embedding_model"] = core.embedder.model
    given["query_embedding"] = embedding
    if by != "vector":
        given["query"] = query
    if verify or merge_text:
        given["show_collapsed"] = True
    arguments = core.arguments(given, tenant_id)
    notices: list[Notice] = []
    rows = yield from core.run(queries.SEARCH, arguments, repeatable=True, notices=notices)
    if failed is not None:
        notices.insert(0, failed)
    if not (verify or merge_text):
        return SearchResult.of(map(FoundMemory.from_row, rows), rows, notices)

    clusters: dict[UUID, list[Row]] = {}
    for row in rows:
        clusters.setdefault(row["collapsed_into"] or row["memory_id"], []).append(row)
    where = {"tenant_id": arguments["tenant_id"], "bucket_id": arguments["bucket_id"]}
    (policy,) = yield from core.send(queries.CONFIDENCE_FLOOR, where, reads=True)
    asked = _Asked(**where, seconds=judge_timeout, merge_text=merge_text, floor=policy["confidence_floor"])
    answers: dict[UUID, Answer | None] = {}
    if verify:
        pairs = [(members[0], row) for members in clusters.values() for row in members[1:]]
        calls = [asked.answer(_side(shown), _side(row)) for shown, row in pairs]
        given_answers: list[Answer | None] = yield Together(calls, _AT_ONCE)
        answers = {row["memory_id"]: answer for (_, row), answer in zip(pairs, given_answers, strict=True)}

    found: list[FoundMemory] = []
    hidden: list[list[Row]] = []
    for shown, *collapsed in clusters.values():
        kept = [row for row in collapsed if not verify or asked.is_same(answers[row["memory_id"]])]
        found += [FoundMemory.from_row(row) for row in collapsed if row not in kept]
        hidden.append([shown, *kept])
    together = [
        replace(
            FoundMemory.from_row(shown),
            score=max(row["score"] for row in (shown, *kept)),
            collapsed_ids=tuple(row["memory_id"] for row in kept),
            collapsed_count=len(kept),
        )
        for shown, *kept in hidden
    ]
    if merge_text:
        merging = [_merged(asked, shown, kept, answers) for shown, *kept in hidden]
        merged: list[str] = yield Together(merging, _AT_ONCE)
        together = [replace(memory, display_text=text) for memory, text in zip(together, merged, strict=True)]
    found += together
    # equal scores stay in the server's order: of undecided values the newest first
    place = {row["memory_id"]: number for number, row in enumerate(rows)}
    found.sort(key=lambda memory: (-memory.score, place[memory.memory_id]))
    return SearchResult.of(found[: arguments.get("max_results") or 10], rows, notices)


_SAY_WHAT = "Pass a text to search for, or its embedding."


def _embedded(core: Core, query: str, what: str) -> Steps[tuple[Embedding, str]]:
    if core.embedder is None:
        raise ValueError(f"{what} needs an embedding, or a client with an embedder")
    if not query.strip():
        # the server's error for a query without a vector
        raise errors.InvalidArgumentError(
            "the query is missing", detail=f"query was {query!r}.", hint=_SAY_WHAT
        )
    vectors = yield from core._vectors(core.embedder, [query])
    yield from core.register(core.embedder, vectors[0])
    return vectors[0], core.embedder.model


def profile(core: Core, given: Mapping[str, Any], tenant_id: str | None) -> Steps[Profile]:
    """What is known about a subject now."""
    rows = yield from core.run(queries.PROFILE, core.arguments(given, tenant_id), repeatable=True)
    return Profile(map(ProfileFact.from_row, rows))


def forget(
    core: Core, subject: str | None, predicate: str | None, tenant_id: str | None, options: Mapping[str, Any]
) -> Steps[Forgotten]:
    """What is about a subject, or near to a query."""
    check_names("forget", options, ForgetFields.__annotations__)
    given = {
        "bucket_id": "default",
        "subject": subject,
        "predicate": predicate,
        "erase": False,
        "dry_run": True,
        **options,
    }
    query = given.pop("query", None)
    given["query_embedding"] = given.pop("embedding", None)
    check_text("query", query)
    if given["query_embedding"] is None and query is not None:
        given["query_embedding"], given["embedding_model"] = yield from _embedded(core, query, "a query")
    rows = yield from core.run(queries.FORGET, core.arguments(given, tenant_id))
    return tuple(ForgottenMemory.from_row(row) for row in rows)


class _Asked:
    """The fields that all questions of a search share."""

    def __init__(
        self, tenant_id: str, bucket_id: str, seconds: float, merge_text: bool, floor: float
    ) -> None:
        self.tenant_id = tenant_id
        self.bucket_id = bucket_id
        self.seconds = seconds
        self.kind = "synthesis" if merge_text else "write"
        self.floor = floor

    def is_same(self, answer: Answer | None) -> bool:
        """Whether the judge says so, and is as sure as the bucket's policy requires."""
        return (
            answer is not None
            and answer.verdict in ("duplicate", "refinement")
            and answer.confidence >= self.floor
        )

    def answer(self, one: Side, other: Side) -> Steps[Answer | None]:
        """The judge's answer; None: it has none. Ids are time-ordered: the larger one is newer."""
        older, newer = sorted((one, other), key=lambda side: side.memory_id)
        question = Question(
            judgement_id=uuid4(),
            tenant_id=self.tenant_id,
            bucket_id=self.bucket_id,
            kind=self.kind,
            similarity=None,
            guard=(),
            attempts=1,
            memory=newer,
            other=older,
        )
        try:
            given: Answer = yield Ask(question, self.seconds, leased=False)
        except Exception as error:
            logger.warning(
                "DEDUP_FAIL: memories %s and %s were not compared (%s), both are shown as they are",
                older.memory_id,
                newer.memory_id,
                describe_error(error),
            )
            return None
        return given


def _merged(
    asked: _Asked, shown: Row, kept: Sequence[Row], answers: Mapping[UUID, Answer | None]
) -> Steps[str]:
    """One text for all of them; the text of the shown memory if the judge gives none."""
    text: str = shown["content"]
    for place, row in enumerate(kept):
        # the earlier answer about these two already contains their text
        answer = answers.get(row["memory_id"]) if place == 0 else None
        if answer is None:
            answer = yield from asked.answer(replace(_side(shown), content=text), _side(row))
        text = (answer.merged_text or "").strip() if answer is not None and asked.is_same(answer) else ""
        if is_wordless(text):
            return str(shown["content"])
    return text


def _side(row: Row) -> Side:
    return Side(
        memory_id=row["memory_id"],
        content=row["content"],
        memory_type=row["memory_type"],
        subject=row["subject"],
        predicate=row["predicate"],
        object=row["object"],
        observations=row["repetition_count"] + 1,
        session_id=row["session_id"],
    )
