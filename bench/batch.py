"""What does a batch of 1,000 cost, compared with the bare statements and with 1,000 calls?"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import harness
import numpy as np
import psycopg
import reference
from pgvector.psycopg import register_vector

from memfold.client.types import Vector

ROWS = 1_000
FACTS = 4_000
SUBJECTS = 1_000
DIMENSIONS = 384

# The same columns as memfold's, with the values that the functions would compute: a client that writes these
# statements has the hashes, keys and ids already.
TABLES = """
create unlogged table bench.rows (
    batch bigint, n bigint, memory_id uuid, subject text collate "C", content text collate "C", hash bytea,
    scope_key uuid, turn text collate "C", embedding vector
);
create index on bench.rows (batch);
grant select on bench.rows to bench_app
"""

UPSERT = """
    insert into reference.memories as m
        (tenant_id, bucket_id, content, content_hash, source_confidence, extractor_confidence)
    select 'bench', 'default', r.content, r.hash, 0.5, 0.5 from bench.rows as r where r.batch = %(batch)s
    order by r.hash
    on conflict (tenant_id, bucket_id, content_hash) do update
    set repetition_count = m.repetition_count + 1,
        source_confidence = greatest(m.source_confidence, excluded.source_confidence),
        extractor_confidence = greatest(m.extractor_confidence, excluded.extractor_confidence),
        last_seen = greatest(m.last_seen, excluded.last_seen)
"""
EVENT = """
    insert into reference.events (
        tenant_id, bucket_id, action, tier, method, memory_id, observation, content, memory_type, subject,
        source_turn_ids, source_confidence, extractor_confidence, origin, metadata, observed_at, actor
    )
    select 'bench', 'default', {action}, {tier}, {method}, {memory_id}, true, r.content, 'fact', r.subject,
        array[r.turn], 0.5, 0.5, 'observed', '{{}}', now(), session_user
    from {source}
"""
THREE_WRITES = f"""
with counted as ({UPSERT} returning m.memory_id, m.content_hash),
sourced as (
    insert into reference.sources (tenant_id, source_turn_id, memory_id)
    select 'bench', r.turn, k.memory_id
    from counted as k join bench.rows as r on r.hash = k.content_hash and r.batch = %(batch)s
    on conflict do nothing
)
{EVENT.format(
    action="'merged'", tier="1", method="'hash'", memory_id="k.memory_id",
    source="counted as k join bench.rows as r on r.hash = k.content_hash and r.batch = %(batch)s",
)}
"""  # fmt: skip
NEW_FACTS = f"""
with facts as (
    insert into reference.facts (
        tenant_id, memory_id, bucket_id, memory_type, subject, content, canonicalizer, key_fields, content_hash,
        scope_key, embedding_pending
    )
    select 'bench', r.memory_id, 'default', 'fact', r.subject, r.content, 'prose/1', 'type,subject,predicate',
        r.hash, r.scope_key, r.embedding is null
    from bench.rows as r where r.batch = %(batch)s
),
vectors as (
    insert into reference.vectors (tenant_id, memory_id, model, bucket_id, scope_key, embedding)
    select 'bench', r.memory_id, 'bench', 'default', r.scope_key, r.embedding
    from bench.rows as r where r.batch = %(batch)s and r.embedding is not null
),
counters as (
    insert into reference.counters (
        tenant_id, memory_id, observations, independent, source_confidence, extractor_confidence, first_seen,
        last_seen
    )
    select 'bench', r.memory_id, 1, 1, 0.5, 0.5, now(), now() from bench.rows as r where r.batch = %(batch)s
),
sources as (
    insert into reference.sources (tenant_id, source_turn_id, memory_id)
    select 'bench', r.turn, r.memory_id from bench.rows as r where r.batch = %(batch)s
)
{EVENT.format(
    action="'inserted'", tier="null", method="null", memory_id="r.memory_id",
    source="bench.rows as r where r.batch = %(batch)s",
)}
"""  # fmt: skip
BATCH = "select count(*) from memfold.ingest_memories(%s)"
APART = "select count(*) from memfold.ingest_memories(%s, embeddings => %b)"
SINGLE = (
    "select memfold.ingest_memory(%(content)s, 'bench', subject => %(subject)s, embedding => %(embedding)s,"
    " embedding_model => %(embedding_model)s, source_turn_ids => %(source_turn_ids)s)"
)
Candidate = dict[str, Any]


@dataclass
class Kind:
    """One kind of candidates, and the bare statements that write the same rows."""

    name: str
    bare: dict[str, str]
    make: Callable[[int], list[Candidate]]
    # the lowest acceptable ratio of the faster variant to each bare statement, and to our own single calls in a
    # pipeline
    floors: dict[str, float] = field(default_factory=dict)
    pipeline: float = 5


def text(number: int) -> str:
    return f"User likes to drink cup number {number} of green tea in the morning"


def turn() -> str:
    return f"turn-{random.randrange(10**12)}"


def replays(rows: int) -> list[Candidate]:
    """Known facts, each from a new turn."""
    return [{"content": text(i), "source_turn_ids": [turn()]} for i in random.sample(range(FACTS), rows)]


def new_facts(rows: int) -> list[Candidate]:
    """New facts, about this many subjects."""
    return [
        {
            "content": text(random.randrange(10**12)),
            "subject": f"Subject {i % SUBJECTS}",
            "source_turn_ids": [turn()],
        }
        for i in range(rows)
    ]


def new_facts_with_vectors(rows: int) -> list[Candidate]:
    """The same with vectors that are near no other."""
    vectors = np.random.default_rng(random.randrange(10**9)).standard_normal(
        (rows, DIMENSIONS), dtype=np.float32
    )
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return [
        {**made, "embedding": vector, "embedding_model": harness.MODEL}
        for made, vector in zip(new_facts(rows), vectors, strict=True)
    ]


KINDS = (
    Kind("replays", {"three writes": THREE_WRITES, "bare upsert": UPSERT}, replays, {"three writes": 0.75}),
    Kind("new facts", {"bare inserts": NEW_FACTS}, new_facts, {"bare inserts": 0.55}),
    Kind(
        f"new facts, {DIMENSIONS} dimensions",
        {"bare inserts": NEW_FACTS},
        new_facts_with_vectors,
        {"bare inserts": 0.35},
        2.5,
    ),
)


class Clock:
    """Wall time and CPU time of the backend, in milliseconds."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._path = Path(f"/proc/{connection.info.backend_pid}/schedstat")

    def cpu(self) -> float:
        return int(self._path.read_text().split()[0]) / 1e6

    def time(self, work: Callable[[], object]) -> tuple[float, float]:
        cpu, begun = self.cpu(), time.perf_counter()
        work()
        return (time.perf_counter() - begun) * 1000, self.cpu() - cpu


def as_json(candidates: Sequence[Candidate]) -> str:
    """Vectors as pgvector prints them, in a string: JSON numbers would be parsed twice, first as decimals."""
    return json.dumps([
        {**made, "embedding": Vector(made["embedding"]).to_text()} if "embedding" in made else made
        for made in candidates
    ])  # fmt: skip


def apart(candidates: Sequence[Candidate]) -> tuple[str, list[Vector | None] | None]:
    """Candidates without their vectors, and the vectors, as the clients send them; null for missing ones."""
    vectors = [Vector(made["embedding"]) if "embedding" in made else None for made in candidates]
    bare = [{key: made[key] for key in made if key != "embedding"} for made in candidates]
    return json.dumps(bare), vectors if any(vector is not None for vector in vectors) else None


def fill(owner: psycopg.Connection[Any], batch: int, candidates: Sequence[Candidate]) -> None:
    """Give the bare statements the values that the functions would compute from the candidates."""
    with owner.cursor() as cursor:
        with cursor.copy(
            "copy bench.rows (batch, n, subject, content, turn, embedding) from stdin (format binary)"
        ) as sink:
            sink.set_types(["int8", "int8", "text", "text", "text", "vector"])
            for n, made in enumerate(candidates):
                sink.write_row(
                    (
                        batch,
                        n,
                        made.get("subject"),
                        made["content"],
                        made["source_turn_ids"][0],
                        made.get("embedding"),
                    )
                )
        cursor.execute(
            "update bench.rows set memory_id = memfold_internal._new_id(),"
            " hash = memfold_internal._content_hash("
            "  'fact', subject, null, content, 'prose/1', 'type,subject,predicate', null),"
            " scope_key = memfold_internal._scope_key('default', 'fact', subject, null) where batch = %s",
            [batch],
        )


def pipeline(connection: psycopg.Connection[Any], candidates: Sequence[Candidate]) -> None:
    """The same candidates as calls of ingest_memory, in one pipeline and one transaction."""
    with connection.transaction(), connection.pipeline():
        for made in candidates:
            connection.execute(
                SINGLE, {"subject": None, "embedding": None, "embedding_model": None, **made}, prepare=True
            )


def measure(server: harness.Server, kind: Kind, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds for ROWS candidates by variant: wall and cpu of every round."""
    database = "batch"
    server.install(database)
    reference.create(server, database)
    measured: dict[str, dict[str, list[float]]] = {}
    with server.connect(database) as owner:
        owner.execute(TABLES)
        register_vector(owner)
        owner.execute(BATCH, [json.dumps([{"content": text(i)} for i in range(FACTS)])])
        owner.execute(
            "insert into reference.memories"
            " (tenant_id, bucket_id, content, content_hash, source_confidence, extractor_confidence)"
            " select tenant_id, bucket_id, content, content_hash, 0.5, 0.5 from memfold.memories"
        )
        owner.execute("vacuum analyze")
        connection = psycopg.connect(
            server.dsn(database, harness.APPLICATION),
            autocommit=True,
            options=f"-c memfold.tenant_id={harness.TENANT} -c synchronous_commit=off",
        )
        register_vector(connection)
        clock = Clock(connection)

        def note(variant: str, took: tuple[float, float], turn: int) -> None:
            if turn:  # the first round warms up
                for name, value in zip(("wall", "cpu"), took, strict=True):
                    measured.setdefault(variant, {}).setdefault(name, []).append(value)

        for turn in range(rounds + 1):
            for variant, statement in kind.bare.items():
                batch = turn * 10 + list(kind.bare).index(variant)
                fill(owner, batch, kind.make(ROWS))
                note(
                    variant,
                    clock.time(
                        lambda s=statement, b=batch: connection.execute(s, {"batch": b}, prepare=True)
                    ),
                    turn,
                )
            candidates = as_json(kind.make(ROWS))
            note(
                "ingest_memories",
                clock.time(lambda c=candidates: connection.execute(BATCH, [c], prepare=True)),
                turn,
            )
            parameters = apart(kind.make(ROWS))
            note(
                "vectors apart",
                clock.time(lambda p=parameters: connection.execute(APART, p, prepare=True)),
                turn,
            )
            whole = kind.make(ROWS)
            note("pipeline", clock.time(lambda w=whole: pipeline(connection, w)), turn)
            whole = kind.make(ROWS)
            note(
                "dumps + vectors apart",
                clock.time(lambda w=whole: connection.execute(APART, apart(w), prepare=True)),
                turn,
            )
        connection.close()
    return measured


def run(server: harness.Server, *, rounds: int) -> harness.Report:
    """Measure, and compare with the target."""
    report = harness.Report("batch", f"Batches of {ROWS:,} candidates")
    data: dict[str, Any] = {}
    rows: list[list[object]] = []
    for kind in KINDS:
        measured = measure(server, kind, rounds)
        data[kind.name] = measured
        for other in kind.bare:
            row: list[object] = [f"{kind.name} / {other}"]
            row.append(f"{ROWS / median(measured[other]['wall']) * 1000:,.0f}")
            for ours in ("ingest_memories", "vectors apart"):
                row.append(f"{ROWS / median(measured[ours]['wall']) * 1000:,.0f}")
                wall = harness.ratio(measured[other]["wall"], measured[ours]["wall"])
                cpu = harness.ratio(measured[other]["cpu"], measured[ours]["cpu"])
                floor = kind.floors.get(other)
                row.append(f"{wall:.2f}" if floor is None else harness.verdict(wall, floor))
                row.append(f"{cpu:.2f}")
            rows.append(row)
    report.table(
        "Rows per second (medians), and the ratio of ours to the bare statement: by wall time, by CPU time of the backend."
        " The bare statements get precomputed hashes, keys and ids; of ours, one reads vectors in JSON, one by the parameter"
        " embeddings.",
        ["", "bare", "ingest_memories", "wall", "CPU", "vectors apart", "wall", "CPU"],
        rows,
    )
    report.table(
        "Compared with our own single calls, in one psycopg pipeline and one transaction, by wall time with the client:",
        ["", "calls/s", "batch rows/s", "times as fast"],
        [
            [
                kind.name,
                f"{ROWS / median(data[kind.name]['pipeline']['wall']) * 1000:,.0f}",
                f"{ROWS / median(data[kind.name]['dumps + vectors apart']['wall']) * 1000:,.0f}",
                harness.verdict(
                    harness.ratio(
                        data[kind.name]["pipeline"]["wall"],
                        data[kind.name]["dumps + vectors apart"]["wall"],
                    ),
                    kind.pipeline,
                ),
            ]
            for kind in KINDS
        ],
    )
    report.data = {"milliseconds": data}
    return report
