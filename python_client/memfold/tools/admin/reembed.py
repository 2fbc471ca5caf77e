"""`memfold reembed`: gives memories vectors of a new embedding model, then drops those of the old one.

Each call is its own transaction, which holds locks that writers wait for no longer than about 50 ms. However a run
ends, the next one continues where it stopped: texts that have their vector are not embedded again.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from memfold.client._dsn import read_dsn
from memfold.client._retry import retry
from memfold.client.embedding import EmbedderProtocol
from memfold.client.embedding.embedders import dimensions_of, is_async
from memfold.client.embedding.vectors import VectorBinary, checked_vectors
from memfold.client.errors import EmbeddingsMissingError, MemfoldError, translate
from memfold.tools.admin import maintenance

__all__ = ["Progress", "Status", "cut_over", "drop", "fill", "status"]

Row = dict[str, Any]
Connection = psycopg.Connection[Row]

_START = "select memfold.start_reembedding(%(old)s, %(new)s, %(tenant)s) as run_id"
_MISSING = "select * from memfold.missing_embeddings(%(old)s, %(new)s, %(tenant)s, %(after)s, %(max)s)"
_ADD = (
    "select * from memfold.add_embeddings(%(ids)s::uuid[], %(texts)s::text[], %(vectors)s, %(new)s, %(tenant)s,"
    " %(run)s::uuid, %(wait)s)"
)
_END = "select memfold.end_reembedding(%(run)s, %(tenant)s) as missing"
_STATUS = "select * from memfold.reembed_status(%(old)s, %(new)s, %(tenant)s)"
_DROP = "select * from memfold.drop_embeddings(%(old)s, %(tenant)s, %(after)s::uuid, %(max)s, %(run)s::uuid)"
_MODEL = "select m.dimensions from memfold.embedding_models as m where m.model = %(model)s"

_ATTEMPTS = 5
_BUSY = 0.02
"""Seconds to wait if everything that is left belongs to scopes that others write to."""


@dataclass
class Progress:
    """What has been done for a tenant: vectors added or dropped, what is left, and how long it took."""

    tenant_id: str
    added: int = 0
    dropped: int = 0
    missing: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    """Seconds of the longest call that held locks."""


@dataclass(frozen=True)
class Status:
    """A tenant's row of ``reembed_status``."""

    tenant_id: str
    old_vectors: int
    new_vectors: int
    missing: int
    pending: int
    own_thresholds: int


Told = Callable[[Progress], None]


class _Throttle:
    """Limits the texts per second, and pauses after each batch."""

    def __init__(self, per_second: float | None, pause: float) -> None:
        self._each = 1 / per_second if per_second else 0.0
        self._pause = pause
        self._next = time.monotonic()

    def passed(self, texts: int) -> None:
        self._next = max(self._next + texts * self._each, time.monotonic() + self._pause)
        if (wait := self._next - time.monotonic()) > 0:
            time.sleep(wait)


class _Session:
    """A connection, and calls for any tenant; it does not depend on session settings."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def call(self, statement: LiteralString, tenant: str | None = None, **given: object) -> list[Row]:
        def once() -> list[Row]:
            with self.connection.transaction():
                if tenant is not None:
                    self.connection.execute(
                        "select pg_catalog.set_config('memfold.tenant_id', %s, true)", [tenant]
                    )
                return self.connection.execute(statement, {**given, "tenant": tenant}).fetchall()

        return retry(once)

    def tenants(self, tenant: str | None) -> list[str]:
        if tenant is not None:
            return [tenant]
        return maintenance._tenants(self.connection)


@contextmanager
def _connected(dsn: str) -> Iterator[_Session]:
    try:
        with psycopg.connect(
            read_dsn(dsn), autocommit=True, row_factory=dict_row, application_name="memfold reembed"
        ) as connection:
            connection.execute("set default_transaction_isolation = 'read committed'")
            yield _Session(connection)
    except psycopg.Error as error:
        raise translate(error) from error


def fill(
    dsn: str,
    old: str,
    new: str,
    embedder: EmbedderProtocol,
    tenant: str | None = None,
    *,
    batch: int = 100,
    per_second: float | None = None,
    pause: float = 0.0,
    told: Told | None = None,
) -> list[Progress]:
    """Embed texts that have a vector of the model ``old`` but none of ``new``, for one tenant or all (as the owner).

    Nothing is compared, merged or asked. Texts written during the run are included as far as possible: ``missing``
    says how many are left. An unregistered model is registered, if the role may: measure its thresholds (memfold
    calibrate --anchors) before anybody uses it. ``told`` is called for each batch.
    """
    if is_async(embedder):
        raise TypeError("a coroutine function cannot be awaited here: give a plain one")
    throttle = _Throttle(per_second, pause)
    finished = []
    with _connected(dsn) as session:
        _register(session, new, embedder)
        for name in session.tenants(tenant):
            finished.append(_fill(session, old, new, embedder, name, batch, throttle, told))
    return finished


def _register(session: _Session, model: str, embedder: EmbedderProtocol) -> None:
    if session.call(_MODEL, model=model):
        return
    size = (
        dimensions_of(embedder)
        or checked_vectors(embedder.embed(["memfold"]), ["memfold"], None)[0].dimensions
    )
    session.call(
        "select memfold.register_embedding_model(%(model)s, %(size)s::bigint)", model=model, size=size
    )


def _fill(
    session: _Session,
    old: str,
    new: str,
    embedder: EmbedderProtocol,
    tenant: str,
    batch: int,
    throttle: _Throttle,
    told: Told | None,
) -> Progress:
    models = {"old": old, "new": new}
    one = Progress(tenant)
    started = time.monotonic()
    one.missing = session.call(_STATUS, tenant, **models)[0]["missing"]
    if one.missing:
        run = session.call(_START, tenant, **models)[0]["run_id"]
        before = one.missing + 1
        # Texts written during the run are embedded in rounds, each smaller than the last; if they arrive faster than
        # they are embedded, this would never end, so they are left to another run.
        while 0 < one.missing < before:
            before = one.missing
            _round(session, models, embedder, batch, throttle, told, one, run, started)
            one.missing = session.call(_END, tenant, run=run)[0]["missing"]
    one.seconds = time.monotonic() - started
    return one


def _round(
    session: _Session,
    models: dict[str, str],
    embedder: EmbedderProtocol,
    batch: int,
    throttle: _Throttle,
    told: Told | None,
    one: Progress,
    run: UUID,
    started: float,
) -> None:
    """Embed the texts that are missing now, oldest first."""
    left = one.missing
    after: UUID | None = None
    while left > 0:
        rows = session.call(_MISSING, one.tenant_id, **models, after=after, max=min(batch, left))
        if not rows:
            return
        left -= len(rows)
        after = rows[-1]["memory_id"]
        texts = [row["content"] for row in rows]
        vectors = checked_vectors(embedder.embed(texts), texts, dimensions_of(embedder))
        _store(session, models["new"], one.tenant_id, run, rows, vectors, one)
        one.seconds = time.monotonic() - started
        if told is not None:
            told(one)
        throttle.passed(len(rows))


def _store(
    session: _Session,
    new: str,
    tenant: str,
    run: UUID,
    rows: list[Row],
    vectors: list[VectorBinary],
    one: Progress,
) -> None:
    left = {
        row["memory_id"]: (row["content"], _text(vector)) for row, vector in zip(rows, vectors, strict=True)
    }
    idle = 0
    while left:
        # if its scopes are busy again and again, wait for a turn, with one memory and no other lock held
        wait = idle >= _ATTEMPTS
        ids = list(left)[: 1 if wait else None]
        literals = ",".join(f'"{left[memory_id][1]}"' for memory_id in ids)
        called = time.monotonic()
        statuses = session.call(
            _ADD, tenant, new=new, ids=ids, texts=[left[memory_id][0] for memory_id in ids],
            vectors=f"{{{literals}}}", run=run, wait=wait,
        )  # fmt: skip
        one.longest = max(one.longest, time.monotonic() - called)
        done = [row for row in statuses if row["status"] not in ("busy", "later")]
        for row in done:
            del left[row["memory_id"]]
            one.added += row["status"] == "added"
        idle = 0 if done else idle + 1
        if left and not done:
            time.sleep(_BUSY)


def _text(vector: VectorBinary) -> str:
    """As text for pgvector: an array of binary vectors would need the type's name, and the type may be in any schema."""
    return "[" + ",".join(f"{x:.9g}" for x in struct.unpack_from(f">{vector.dimensions}f", vector, 4)) + "]"


def status(dsn: str, old: str, new: str, tenant: str | None = None) -> list[Status]:
    """The progress of each tenant."""
    with _connected(dsn) as session:
        found = []
        for name in session.tenants(tenant):
            row = session.call(_STATUS, name, old=old, new=new)[0]
            names = ("old_vectors", "new_vectors", "missing", "pending", "own_thresholds")
            found.append(Status(name, **{one: row[one] for one in names}))
        return found


def cut_over(
    dsn: str,
    old: str,
    new: str,
    embedder: EmbedderProtocol | None = None,
    *,
    told: Told | None = None,
    **throttle: Any,
) -> None:
    """Close the old model for all tenants: from then on its vectors are refused (MF047).

    With an embedder, missing vectors are added before, and again after for concurrent writes. Raises MF046 if any are
    missing. Only for members of memfold_owner.
    """
    for attempt in range(_ATTEMPTS):
        if embedder is not None:
            fill(dsn, old, new, embedder, told=told, **throttle)
        try:
            with _connected(dsn) as session:
                session.call("select memfold.replace_embedding_model(%(old)s, %(new)s)", old=old, new=new)
            break
        except EmbeddingsMissingError:
            # somebody wrote a moment ago
            if embedder is None or attempt == _ATTEMPTS - 1:
                raise
    if embedder is not None:
        fill(dsn, old, new, embedder, told=told, **throttle)


def drop(
    dsn: str, old: str, *, batch: int = 1000, pause: float = 0.0, told: Told | None = None
) -> list[Progress]:
    """Drop the index and the vectors of a model that has been replaced, of all tenants, and unregister it."""
    finished = []
    with _connected(dsn) as session:
        # check first: the index must not be dropped while the model is in use
        known = session.call(
            "select m.replaced_by from memfold.embedding_models as m where m.model = %(old)s", old=old
        )
        if not known:
            names = session.call("select m.model from memfold.embedding_models as m order by m.model")
            raise MemfoldError(
                "unknown embedding model",
                sqlstate="MF013",
                detail=f"Registered: {', '.join(row['model'] for row in names) or 'none'}.",
                hint="Name one of these.",
            )
        if known[0]["replaced_by"] is None:
            raise MemfoldError(
                "the embedding model has not been replaced",
                sqlstate="MF048",
                hint="Cut over first: memfold reembed --from OLD --to NEW --cut-over.",
            )
        for row in session.call("select s as ddl from memfold.vector_index_ddl(%(old)s, true) as s", old=old):
            session.connection.execute(row["ddl"].encode())
        for name in session.tenants(None):
            finished.append(_drop(session, old, name, batch, pause, told))
        session.call("select memfold.unregister_embedding_model(%(old)s)", old=old)
    return finished


def _drop(session: _Session, old: str, tenant: str, batch: int, pause: float, told: Told | None) -> Progress:
    one = Progress(tenant)
    started = time.monotonic()
    after: UUID | None = None
    run: UUID | None = None
    while True:
        called = time.monotonic()
        row = session.call(_DROP, tenant, old=old, after=after, max=batch, run=run)[0]
        one.longest = max(one.longest, time.monotonic() - called)
        one.dropped += row["dropped"]
        one.seconds = time.monotonic() - started
        if told is not None and row["dropped"]:
            told(one)
        if row["dropped"] < batch:
            return one
        after, run = row["last_id"], row["run_id"]
        time.sleep(pause)
