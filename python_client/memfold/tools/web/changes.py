"""What a person changes about one memory. The page shows the result of a rolled-back call before the call is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request

from memfold.client import queries
from memfold.client.calls.steps import Steps
from memfold.client.errors import InvalidArgumentError, MemfoldError
from memfold.client.types import Row
from memfold.tools.review.answers import REASON
from memfold.tools.web import statements
from memfold.tools.web.database import Session
from memfold.tools.web.pages import read_memory, uuid_of
from memfold.tools.web.rendering import link

CHANGES: Final = {
    "correct": queries.UPDATE,
    "merge": queries.MERGE,
    "forget": queries.REJECT,
    "erase": queries.ERASE["memory_id"],
}
"""The function of each change."""


def _kind(request: Request) -> str:
    kind: str = request.path_params["kind"]
    if kind not in CHANGES:
        raise HTTPException(404, "Not Found")
    return kind


def _given(kind: str, memory_id: UUID, fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of the change; None while the text, or the other memory, is missing."""
    # browsers end the lines of a text with CRLF
    texts = {
        name: str(fields.get(name) or "").replace("\r\n", "\n").strip()
        for name in ("content", "object", "reason")
    }
    given: dict[str, Any] = {"memory_id": memory_id, "reason": texts["reason"] or REASON}
    if kind == "correct":
        given["content"] = texts["content"]
        if texts["object"]:
            given["object"] = texts["object"]
        return given if texts["content"] else None
    if kind == "merge":
        given["into_id"] = uuid_of(str(fields.get("into") or ""), "into")
        return given if given["into_id"] is not None else None
    return given


def _arguments(session: Session, kind: str, given: Mapping[str, Any]) -> Steps[dict[str, Any]]:
    core = session.core
    arguments = core.arguments(given, session.tenant_id)
    if kind == "correct" and core._is_to_embed(arguments):
        yield from core._embed_or_not(arguments)
    return arguments


def preview(session: Session, request: Request) -> Mapping[str, Any]:
    """A change before it is made: what it needs, then what will happen."""
    kind = _kind(request)
    memory_id: UUID = request.path_params["memory_id"]
    fields: Mapping[str, Any] = getattr(request.state, "form", request.query_params)
    memory = read_memory(session, memory_id)
    given = _given(kind, memory_id, fields)
    shown: dict[str, Any] = {
        "kind": kind,
        "memory": memory,
        "aliases": session.rows("aliases", statements.ALIASES, memory_id=memory_id),
        "given": {name: str(fields.get(name) or "") for name in ("content", "object", "reason")},
        "result": None,
        "other": None,
        "again": [],
        "trouble": None,
        "candidates": [],
        "query": str(fields.get("q") or "").strip(),
    }
    if given is not None:
        try:
            arguments = session.drive(_arguments(session, kind, given))
            result = session.dry_run(kind, CHANGES[kind], arguments)[0]
        except MemfoldError as error:
            if not (error.sqlstate or "").startswith("MF"):
                raise
            shown["trouble"] = error
        else:
            again = result.get("current_again") or [
                one["memory_id"] for one in result.get("similar") or () if one.get("note") == "current again"
            ]
            found = _texts(session, [result.get("memory_id"), *again])
            shown |= {"result": result, "again": [found[one] for one in map(str, again) if one in found]}
            # that of a correction exists already if the bucket knows the text, else the call has made it
            if kind in ("correct", "merge"):
                shown["other"] = found.get(str(result["memory_id"]))
    if kind == "merge" and shown["result"] is None:
        shown["candidates"] = _candidates(session, memory, shown["query"])
    return shown


def _texts(session: Session, ids: list[Any]) -> dict[str, Row]:
    wanted = [str(one) for one in ids if one is not None]
    return {
        str(row["memory_id"]): row
        for row in (session.rows("texts", statements.TEXTS, memory_ids=wanted) if wanted else ())
    }


def _candidates(session: Session, memory: Row, query: str) -> list[Row]:
    """Memories of the bucket that may say the same: those with most of the words."""
    words = query or " ".join(filter(None, (memory["subject"], memory["content"])))[:1000]
    given = {
        "bucket_id": memory["bucket_id"],
        "query": words,
        "max_results": 21,
        "deduplicate": False,
        "touch": False,
    }
    rows = session.rows("candidates", queries.call(queries.SEARCH, ["tenant_id", *given]), **given)
    return [row for row in rows if row["memory_id"] not in (memory["memory_id"], memory["root_id"])][:20]


def apply(session: Session, request: Request, form: FormData) -> str:
    """Make the change, and redirect to the memory that then holds the fact, with an undo."""
    kind = _kind(request)
    memory_id: UUID = request.path_params["memory_id"]
    given = _given(kind, memory_id, form)
    if given is None:
        raise InvalidArgumentError(
            "nothing is given", detail="The new text, or the other memory, is missing."
        )
    if kind == "erase" and form.get("confirmed") != "yes":
        raise InvalidArgumentError(
            "the erasure is not confirmed",
            hint="It cannot be undone: go back, and tick the box above the button.",
        )
    bucket_id = read_memory(session, memory_id)["bucket_id"]
    arguments = session.drive(_arguments(session, kind, given))
    result = session.drive(session.core.run(CHANGES[kind], arguments))[0]
    if kind == "erase":
        return link("/bucket", {"bucket": bucket_id, "erased": result["erased"]})
    events = [result["event_id"]]
    if kind == "correct":
        # If the new text says the same as another memory, the result is about that.
        corrected = [
            row["event_id"] for row in session.rows("event", statements.CORRECTED, memory_id=memory_id)
        ]
        events = list(dict.fromkeys([*(events if result["action"] == "merged" else []), *corrected]))
    path = link(f"/memory/{result['memory_id']}", {"did": kind, "of": memory_id})
    return path + "".join(f"&event={event_id}" for event_id in events)
