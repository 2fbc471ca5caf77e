"""Looking up: the buckets of a tenant, the memories of a bucket, and the search over both. Only reads."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

from starlette.datastructures import QueryParams
from starlette.requests import Request

from memfold.client import queries
from memfold.client._text import describe_error
from memfold.client.errors import MemfoldError
from memfold.client.types import Row
from memfold.tools.web import statements
from memfold.tools.web.database import Session

SIZE: Final = 50
"""Rows on a page."""
STATUSES: Final[Mapping[str, tuple[str, ...]]] = {
    "current": ("active",),
    "current and former": ("active", "superseded"),
    "all": ("active", "superseded", "rejected", "withdrawn"),
}
"""What a bucket's page can show, by the words of its form."""
KINDS: Final = ("review", "write", "synthesis", "consolidation", "forgotten", "identity", "cardinality")
"""The kinds of questions, as in the table of judgements."""
_MOST_BUCKETS = 1000
"""Buckets that one search covers."""


def _at(params: QueryParams) -> int:
    """The number of the page, from 1 on."""
    given = params.get("page", "")
    return max(int(given), 1) if given.isdecimal() and len(given) < 8 else 1


def _paged(params: QueryParams, rows: list[Row]) -> dict[str, Any]:
    return {"at": _at(params), "size": SIZE, "total": rows[0]["total"] if rows else 0}


def buckets(session: Session, request: Request) -> dict[str, Any]:
    params = request.query_params
    name = params.get("name", "").strip()
    sort = params.get("sort", "")
    if sort not in statements.BUCKETS:
        sort = "bucket"
    given = {"part": name, "size": SIZE, "skipped": SIZE * (_at(params) - 1)}
    rows = session.rows("buckets", statements.BUCKETS[sort], **given)
    return {"buckets": rows, "part": name, "sort": sort, **_paged(params, rows)}


def bucket(session: Session, request: Request) -> dict[str, Any]:
    """The memories of a bucket by subject."""
    params = request.query_params
    show = params.get("show", "")
    if show not in STATUSES:
        show = "current and former"
    text = params.get("text", "").strip()
    bucket_id = params.get("bucket") or "default"
    rows = session.rows(
        "memories",
        statements.MEMORIES,
        bucket_id=bucket_id,
        statuses=list(STATUSES[show]),
        text=text,
        size=SIZE,
        skipped=SIZE * (_at(params) - 1),
    )
    erased = params.get("erased", "")
    return {
        "bucket_id": bucket_id,
        "subjects": [(subject, list(found)) for subject, found in groupby(rows, lambda row: row["subject"])],
        "show": show,
        "shows": list(STATUSES),
        "text": text,
        "erased": int(erased) if erased.isdecimal() and len(erased) < 8 else 0,
        **_paged(params, rows),
    }


def questions(session: Session, request: Request) -> dict[str, Any]:
    """The queue as a list."""
    params = request.query_params
    sort = params.get("sort", "")
    if sort not in statements.QUESTIONS:
        sort = "oldest"
    kind = params.get("kind", "")
    text = params.get("text", "").strip()
    rows = session.rows(
        "questions",
        statements.QUESTIONS[sort],
        bucket_id=params.get("bucket") or None,
        kind=kind or None,
        text=text,
        size=SIZE,
        skipped=SIZE * (_at(params) - 1),
    )
    return {
        "questions": rows,
        "kind": kind,
        "kinds": KINDS,
        "text": text,
        "sort": sort,
        "sorts": list(statements.QUESTIONS),
        **_paged(params, rows),
    }


def _searched(session: Session, bucket: str) -> tuple[dict[str, Any], bool]:
    """Where to search, and whether that leaves buckets out. Given is a name, the beginning of names with * or nothing."""
    if bucket.endswith("*") and len(bucket) > 1:
        return {"bucket_prefix": bucket[:-1]}, False
    if bucket and bucket != "*":
        return {"bucket_id": bucket}, False
    found = [row["bucket_id"] for row in session.rows("buckets", statements.RECENT_BUCKETS)]
    return {"bucket_ids": found[:_MOST_BUCKETS]}, len(found) > _MOST_BUCKETS


def search(session: Session, request: Request) -> dict[str, Any]:
    params = request.query_params
    query = params.get("q", "").strip()
    shown: dict[str, Any] = {
        "query": query,
        "rows": [],
        "by_meaning": False,
        "trouble": "",
        "is_partial": False,
    }
    if not query:
        return shown
    where, shown["is_partial"] = _searched(session, params.get("bucket", "").strip())
    given: dict[str, Any] = {**where, "query": query, "max_results": 20, "touch": False}
    embedder = session.core.embedder
    if embedder is not None:
        try:
            vectors = session.drive(session.core._vectors(embedder, [query]))
        except MemfoldError:
            raise
        except Exception as error:
            shown["trouble"] = describe_error(error)
        else:
            given |= {"query_embedding": vectors[0], "embedding_model": embedder.model}
            shown["by_meaning"] = True
    statement = queries.call(queries.SEARCH, ["tenant_id", *given])
    return shown | {"rows": session.rows("memories", statement, **given)}
