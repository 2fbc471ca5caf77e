"""The content of each page. Pages only read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, LiteralString, TypeAlias
from uuid import UUID

from starlette.datastructures import QueryParams
from starlette.requests import Request

from memfold.client import queries
from memfold.client.errors import (
    CalibrationNotFoundError,
    InvalidArgumentError,
    JudgementNotFoundError,
    MemfoldError,
    MemoryNotFoundError,
    RunNotFoundError,
)
from memfold.client.judging import Question
from memfold.client.types import Row
from memfold.tools.review.answers import describe_closed, describe_outcome, describe_undone, lettered
from memfold.tools.review.display import rows_of, titles
from memfold.tools.web import statements
from memfold.tools.web.database import NOT_PERMITTED, Session
from memfold.tools.web.timeline import drawn

Shown: TypeAlias = Mapping[str, Any]

PLANS: Final = {"consolidation": queries.CONSOLIDATE, "sweep": queries.SWEEP, "pruning": queries.PRUNE}
"""Runs with a dry run, by kind."""
UNDOABLE_RUNS: Final = frozenset(
    {"consolidation", "sweep", "session", "cleaning", "pruning", "forgetting", "link", "predicate", "undo"}
)


def uuid_of(given: str | None, name: str) -> UUID | None:
    try:
        return None if given in (None, "") else UUID(given)
    except ValueError:
        raise InvalidArgumentError(f"{name} is not a UUID", detail=f"It was {given!r:.80}.") from None


def question_of(row: Row) -> Question:
    sides = row["sides"]
    members = sides if row["member_ids"] else ()
    return Question.from_row({**row, "other": sides[0], "memory": sides[-1], "members": members})


def read_question(session: Session, judgement_id: UUID) -> tuple[Question, str]:
    """A judgement, open or closed, and its status."""
    rows = session.rows("question", statements.QUESTION, judgement_id=judgement_id)
    if not rows or not rows[0]["sides"]:
        raise JudgementNotFoundError("there is no such judgement", detail=f"judgement_id was {judgement_id}.")
    return question_of(rows[0]), rows[0]["status"]


def _outcome(session: Session, params: QueryParams) -> Shown | None:
    """The effect of the last answer, which is shown with the next question."""
    if "undone" in params:
        text = "undone, all are kept; answer it again, or skip it"
        undone = uuid_of(params["undone"], "undone")
        if undone is not None:
            text = describe_undone(read_question(session, undone)[0])
        return {"text": text, "judgement_id": None}
    done = uuid_of(params.get("done"), "done")
    if done is None:
        return None
    question, _ = read_question(session, done)
    verdict = next((one for one in question.verdicts if one == params.get("verdict")), None)
    if verdict is None:
        told = describe_closed(question, params.get("status", ""))
        return {"text": f"not applied: {told}", "judgement_id": None}
    holds = uuid_of(params.get("holds"), "holds")
    text = describe_outcome(question, verdict, params.get("action"), holds)
    run_id = uuid_of(params.get("run"), "run")
    is_undoable = question.names is None or run_id is not None
    return {
        "text": text,
        "judgement_id": done if is_undoable else None,
        "events": params.getlist("event"),
        "run": run_id,
    }


def queue(session: Session, request: Request) -> Shown:
    params = request.query_params
    after = uuid_of(params.get("after"), "after")
    asked = uuid_of(params.get("judgement"), "judgement")
    outcome = _outcome(session, params)
    waiting = session.rows("waiting", queries.WAITING)[0]
    question, status = None, ""
    if asked is not None:
        question, status = read_question(session, asked)
    else:
        rows = session.rows(
            "question", statements.NEXT_QUESTION, bucket_id=params.get("bucket") or None, after=after
        )
        if rows:
            question, status = question_of(rows[0]), rows[0]["status"]
    fields = [] if question is None or question.members else list(rows_of(question))
    # of names, every row is about one of the two
    same = [
        field for field in fields[1:] if field[0] and field[1] == field[2] and question and not question.names
    ]
    return {
        "question": question,
        "is_manual": status in ("done", "obsolete"),
        "sides": {} if question is None else lettered(question),
        "titles": ("", "") if question is None else titles(question),
        "fields": [field for field in fields if field not in same],
        "same": same,
        "waiting": waiting,
        "outcome": outcome,
        "after": after,
    }


def read_memory(session: Session, memory_id: UUID) -> Row:
    found = session.rows("memory", statements.MEMORY, memory_id=memory_id)
    if not found:
        raise MemoryNotFoundError("there is no such memory", detail=f"memory_id was {memory_id}.")
    return found[0]


def memory(session: Session, request: Request) -> Shown:
    params = request.query_params
    memory_id: UUID = request.path_params["memory_id"]
    found = read_memory(session, memory_id)
    intervals = session.rows("timeline", statements.INTERVALS, memory_id=memory_id)
    ids = list({str(memory_id), *(str(row["memory_id"]) for row in intervals)})
    said = session.rows("statements", statements.STATEMENTS, memory_ids=ids)
    ledger = session.rows("ledger", statements.LEDGER, memory_id=memory_id)
    events = {uuid_of(given, "event") for given in params.getlist("event")}
    return {
        "memory": found,
        "aliases": session.rows("aliases", statements.ALIASES, memory_id=memory_id),
        "drawn": drawn(found, intervals, said, datetime.now(UTC)),
        "said": said,
        "sources": session.rows("sources", statements.SOURCES, memory_id=memory_id),
        "ledger": ledger,
        "did": params.get("did", ""),
        "of": uuid_of(params.get("of"), "of") or memory_id,
        "undoable": [row["event_id"] for row in ledger if row["event_id"] in events and row["is_undoable"]],
    }


def _if_allowed(session: Session, name: str, statement: LiteralString, **given: Any) -> list[Row] | None:
    """A section's rows; None if the login may not read their source."""
    try:
        return session.rows(name, statement, **given)
    except MemfoldError as error:
        if error.sqlstate != NOT_PERMITTED:
            raise
        return None


def stats(session: Session, request: Request) -> Shown:
    given = {"bucket_id": request.query_params.get("bucket") or None}
    days = 90 if request.query_params.get("days") == "90" else 30
    return {
        "at": days,
        "days": _if_allowed(session, "days", statements.DAYS, days=days, **given),
        "buckets": _if_allowed(session, "buckets", queries.STATS, **given),
        "runaways": _if_allowed(session, "runaway memories", statements.RUNAWAY, **given),
    }


def runs(session: Session, request: Request) -> Shown:
    return {"runs": session.rows("runs", statements.RUNS), "kinds": list(PLANS)}


def plan_arguments(kind: str, bucket_id: str, *, dry_run: bool) -> dict[str, Any]:
    """The approval of a run: a person approves what a page starts."""
    made: dict[str, Any] = {"bucket_id": bucket_id, "dry_run": dry_run}
    return made | ({"approval": "person"} if kind == "consolidation" else {})


def kind_of(params: QueryParams) -> str:
    kind = params.get("kind", "")
    if kind not in PLANS:
        raise InvalidArgumentError(
            "unknown kind of run", detail=f"It was {kind!r:.40}.", hint=", ".join(PLANS)
        )
    return kind


def plan(session: Session, request: Request) -> Shown:
    kind = kind_of(request.query_params)
    bucket_id = request.query_params.get("bucket") or "default"
    arguments = plan_arguments(kind, bucket_id, dry_run=True)
    rows = session.rows(kind, queries.call(PLANS[kind], ["tenant_id", *arguments]), **arguments)
    actions = Counter(row.get("action", "withdraw") for row in rows)
    return {"kind": kind, "bucket_id": bucket_id, "rows": rows, "actions": sorted(actions.items())}


def run(session: Session, request: Request) -> Shown:
    run_id: UUID = request.path_params["run_id"]
    found = session.rows("run", statements.RUN, run_id=run_id)
    if not found:
        raise RunNotFoundError("there is no such run", detail=f"run_id was {run_id}.")
    waiting = session.rows("questions", statements.RUN_QUESTIONS, run_id=run_id)
    return {
        "run": found[0],
        "events": session.rows("decisions", statements.RUN_EVENTS, run_id=run_id),
        "questions": [question_of(row) for row in waiting if row["sides"]],
        "is_undoable": found[0]["kind"] in UNDOABLE_RUNS and found[0]["status"] != "undone",
    }


def calibrations(session: Session, request: Request) -> Shown:
    return {"calibrations": session.rows("calibrations", statements.CALIBRATIONS, calibration_id=None)}


def calibration(session: Session, request: Request) -> Shown:
    calibration_id: UUID = request.path_params["calibration_id"]
    found = session.rows("calibration", statements.CALIBRATIONS, calibration_id=calibration_id)
    if not found:
        raise CalibrationNotFoundError(
            "there is no such calibration", detail=f"calibration_id was {calibration_id}."
        )
    report = session.rows("report", statements.CALIBRATION_REPORT, calibration_id=calibration_id)[0]["report"]
    return {"calibration": found[0], "report": report}
