"""The forms. Each makes one decision of a person, and redirects to a page."""

from __future__ import annotations

import time

from starlette.datastructures import FormData
from starlette.requests import Request

from memfold.client import queries
from memfold.client.errors import InvalidArgumentError
from memfold.client.judging import Verdict
from memfold.client.judging.questions import VERDICTS
from memfold.client.types import Resolution
from memfold.tools.review.answers import REASON, answer_manually, take_back, unlink
from memfold.tools.web.database import Session
from memfold.tools.web.pages import PLANS, kind_of, plan_arguments, read_question, uuid_of
from memfold.tools.web.rendering import link

ENOUGH = 10.0
"""Seconds that approving a run may take; the rest needs another click."""


def _verdict(form: FormData, allowed: tuple[Verdict, ...] = VERDICTS) -> Verdict:
    given = form.get("verdict")
    for verdict in allowed:
        if given == verdict:
            return verdict
    raise InvalidArgumentError("unknown verdict", detail=f"It was {given!r:.40}.", hint=", ".join(allowed))


def answer(session: Session, request: Request, form: FormData) -> str:
    params = request.query_params
    judgement_id = uuid_of(params.get("judgement"), "judgement")
    if judgement_id is None:
        raise InvalidArgumentError("judgement is missing")
    question, status = read_question(session, judgement_id)
    verdict = _verdict(form, question.verdicts)
    back = {"bucket": params.get("bucket"), "after": params.get("after"), "done": judgement_id}
    named = {str(given) for given in form.getlist("member")}
    about = [side for side in question.sides if str(side.memory_id) in named] if question.members else None
    if about is not None and len(about) < 2 and verdict != "distinct":
        raise InvalidArgumentError(
            "name at least two of them", hint="For a cluster, name those that the verdict is about."
        )
    richer = uuid_of(str(form.get("richer") or ""), "richer") if verdict == "refinement" else None
    if status in ("done", "obsolete") and params.get("manual") == "1":
        done = session.drive(
            answer_manually(session.core, question, verdict, richer, about or question.sides)
        )
        told = {"verdict": verdict, "action": done.action, "holds": done.memory_id}
        return link("/queue", back | told) + "".join(f"&event={event_id}" for event_id in done.event_ids)
    members = None if about is None or verdict == "distinct" else [side.memory_id for side in about]
    made: Resolution = session.drive(session.core.answer_by_person(question, verdict, richer, members))
    if made.status != "done":
        return link("/queue", back | {"status": made.status})
    told = {"verdict": verdict, "action": made.action, "holds": made.memory_id, "run": made.run_id}
    return link("/queue", back | told)


def undo_answer(session: Session, request: Request, form: FormData) -> str:
    """Undo an answer, and show its question again: the one that the undo has queued, else for a manual action."""
    params = request.query_params
    judgement_id = uuid_of(params.get("judgement"), "judgement")
    if judgement_id is None:
        raise InvalidArgumentError("judgement is missing")
    question, _ = read_question(session, judgement_id)
    run_id = uuid_of(params.get("run"), "run")
    if run_id is not None:
        session.drive(unlink(session.core, question, run_id))
        return link(
            "/queue", {"bucket": params.get("bucket"), "after": params.get("after"), "undone": judgement_id}
        )
    events = [event for given in params.getlist("event") if (event := uuid_of(given, "event")) is not None]
    if not events:
        events = session.drive(session.core.events_of(question))
    session.drive(take_back(session.core, question, events))
    queued = [] if question.members else session.drive(session.core.queued_again(question))
    back = {"bucket": params.get("bucket"), "after": params.get("after")}
    return link("/queue", {**back, "judgement": queued[0] if queued else judgement_id, "undone": True})


def undo(session: Session, request: Request, form: FormData) -> str:
    """Undo events of the ledger, in the order in which they are given."""
    params = request.query_params
    for given in params.getlist("event") or [""]:
        session.call(queries.UNDO, event_id=uuid_of(given, "event"), reason=REASON)
    return link(f"/memory/{uuid_of(params.get('memory'), 'memory')}", {"did": "undo"})


def start_run(session: Session, request: Request, form: FormData) -> str:
    """Carry out a dry run, as far as it still applies."""
    kind = kind_of(request.query_params)
    bucket_id = request.query_params.get("bucket") or "default"
    rows = session.call(PLANS[kind], **plan_arguments(kind, bucket_id, dry_run=False))
    started = next((row["run_id"] for row in rows if row["run_id"] is not None), None)
    return "/runs" if started is None else f"/runs/{started}"


def approve_run(session: Session, request: Request, form: FormData) -> str:
    """Answer all questions of a run; a call of approve_run() answers a hundred."""
    run_id = request.path_params["run_id"]
    verdict = _verdict(form)
    until = time.monotonic() + ENOUGH
    before = None
    while time.monotonic() < until:
        waiting = session.call(queries.APPROVE_RUN, run_id=run_id, verdict=verdict)[0]["approve_run"]
        if not waiting or waiting == before:
            break
        before = waiting
    return f"/runs/{run_id}"


def undo_run(session: Session, request: Request, form: FormData) -> str:
    run_id = request.path_params["run_id"]
    session.call(queries.UNDO_RUN, run_id=run_id, reason=REASON)
    return f"/runs/{run_id}"
