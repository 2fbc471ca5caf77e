"""Where should vectors be stored, and as which type?"""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import median
from typing import Any

import harness
import load
import numpy as np
from pgvector.psycopg import register_vector
from psycopg.errors import ProgramLimitExceeded

DIMENSIONS = (384, 768, 1536, 3072)
SCOPES = (5, 20, 50)
ROWS = 1_000  # per size of scope
CALLS = 150
DATABASE = "storage"
# Otherwise only the smallest scopes would be planned again at each call.
OPTIONS = f"{harness.OFF} -c plan_cache_mode=force_generic_plan"

DECISION = """**Decision: a separate table (*beside*), MAIN, `vector`** (`memory_vectors`).

- *Beside*: a replay, the most frequent call, then writes a narrow row. In one row with the counters the vector is in the
  way: up to 768 dimensions the space that a HOT update needs nearly doubles the table; beyond that a replay writes the
  whole row again, with its index entries, or the vector goes to TOAST, which slows scans. Without the vector, memories
  stay narrow for everything that reads no vector, and a scan reads nothing but vectors.
- *MAIN*: like PLAIN it keeps a vector in the row as long as that fits into a page (about 2,000 dimensions); unlike PLAIN
  it accepts larger ones. EXTERNAL, pgvector's default, moves out values above 2 kB (about 500 dimensions), which is one
  more read for each neighbour. At 384 dimensions all three are equal; above 2,000, MAIN and EXTERNAL are.
- *vector*: halfvec takes half the bytes, and above 384 dimensions its scans are faster, but cosines would differ from the
  application's own within six decimals, and memfold would not return the same vectors that it was given."""


@dataclass(frozen=True)
class Layout:
    """Separate: facts, counters and vectors each in their own table. Otherwise all in one row."""

    name: str
    beside: bool
    storage: str
    type: str = "vector"

    @property
    def vectors(self) -> str:
        return f"{self.schema}.{'vectors' if self.beside else 'facts'}"

    @property
    def counters(self) -> str:
        return f"{self.schema}.{'counters' if self.beside else 'facts'}"

    @property
    def schema(self) -> str:
        return self.name.replace(", ", "_").replace(" ", "_").lower()


LAYOUTS = (
    Layout("beside, MAIN", True, "main"),
    Layout("beside, PLAIN", True, "plain"),
    Layout("beside, EXTERNAL", True, "external"),
    Layout("beside, MAIN, halfvec", True, "main", "halfvec"),
    Layout("in the row, MAIN", False, "main"),
    Layout("in the row, EXTERNAL", False, "external"),
)
CHOSEN = LAYOUTS[0]

KEY = 'tenant_id text collate "C" not null, memory_id uuid not null'
PLACE = 'bucket_id text collate "C" not null, scope_key bigint not null'
# The columns of memory_counters that a replay writes; the vector's row has the index that finds a scope.
COUNTERS = "observations bigint not null default 1, last_seen timestamptz not null default now()"
FACTS = f"{KEY}, {PLACE}, content text not null, content_hash bytea not null, created_at timestamptz not null"


def _tables(layout: Layout) -> str:
    made = f"create schema {layout.schema}; "
    vector = f"embedding {layout.type} not null"
    if layout.beside:
        made += (
            f"create table {layout.schema}.facts ({FACTS}, primary key (tenant_id, memory_id));"
            f"create table {layout.schema}.counters ({KEY}, {COUNTERS}, primary key (tenant_id, memory_id))"
            " with (fillfactor = 50);"
            f"create table {layout.vectors} ({KEY}, {PLACE}, {vector}, primary key (tenant_id, memory_id));"
        )
    else:
        # updated rows need room for the new version
        made += (
            f"create table {layout.vectors} ({FACTS}, {COUNTERS}, {vector}, primary key (tenant_id, memory_id))"
            " with (fillfactor = 50);"
        )
    return (
        f"{made} create unique index on {layout.schema}.facts (tenant_id, bucket_id, content_hash);"
        f"create index on {layout.vectors} (tenant_id, bucket_id, scope_key, memory_id);"
        f"alter table {layout.vectors} alter embedding set storage {layout.storage};"
        f"grant usage on schema {layout.schema} to {harness.APPLICATION};"
        f"grant select, insert, update on all tables in schema {layout.schema} to {harness.APPLICATION}"
    )


def _insert(layout: Layout, source: str) -> str:
    fact = "'bench', s.memory_id, 'default', s.scope_key, s.content, sha256(convert_to(s.content, 'UTF8')), now()"
    vector = f"s.embedding::{layout.type}"
    if not layout.beside:
        return f"insert into {layout.vectors} select {fact}, 1, now(), {vector} from {source} as s"
    return (
        f"with s as materialized (select * from {source} as s),"
        f" facts as (insert into {layout.schema}.facts select {fact} from s),"
        f" counters as (insert into {layout.counters} select 'bench', s.memory_id from s)"
        f" insert into {layout.vectors} select 'bench', s.memory_id, 'default', s.scope_key, {vector} from s"
    )


def _scan(layout: Layout) -> str:
    return (
        f"select v.memory_id, v.embedding <#> (select embedding::{layout.type} from bench.rows where n = :p)"
        f" from {layout.vectors} as v where v.tenant_id = 'bench' and v.bucket_id = 'default'"
        " and v.scope_key = :s::bigint order by 2 limit 20"
    )


def _replay(layout: Layout) -> str:
    return (
        f"update {layout.counters} set observations = observations + 1, last_seen = now()"
        " where tenant_id = 'bench' and memory_id = (select memory_id from bench.rows where n = :p)"
    )


NEW = (
    "(select uuidv7() as memory_id, 0 as scope_key, 'New fact ' || nextval('bench.made') as content, embedding"
    " from bench.rows where n = :p::bigint)"
)


def prepare(server: harness.Server, dimensions: int) -> list[Layout]:
    """The same rows in all layouts, with those of a scope far apart; returns the layouts that can hold them."""
    server.create(DATABASE, harness.INSTALLED)
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((ROWS * len(SCOPES), dimensions), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scopes = [size * 100_000 + i % (ROWS // size) for size in SCOPES for i in range(ROWS)]
    random.Random(1).shuffle(scopes)
    possible = []
    with server.connect(DATABASE) as connection:
        register_vector(connection)
        connection.execute(
            "create table bench.rows (n bigint primary key, memory_id uuid default uuidv7(), scope_key bigint,"
            " content text, embedding vector); create sequence bench.made;"
            f" grant select on bench.rows to {harness.APPLICATION};"
            f" grant usage on sequence bench.made to {harness.APPLICATION}"
        )
        with (
            connection.cursor() as cursor,
            cursor.copy(
                "copy bench.rows (n, scope_key, content, embedding) from stdin (format binary)"
            ) as sink,
        ):
            sink.set_types(["int8", "int8", "text", "vector"])
            for n, (scope, vector) in enumerate(zip(scopes, vectors, strict=True)):
                sink.write_row(
                    (n, scope, f"User likes to drink cup number {n} of green tea in the morning", vector)
                )
        for layout in LAYOUTS:
            connection.execute(_tables(layout).encode())
            try:
                connection.execute(_insert(layout, "bench.rows").encode())
            except ProgramLimitExceeded:
                continue
            possible.append(layout)
        connection.execute("vacuum analyze")
    return possible


def measure(server: harness.Server, dimensions: int, rounds: int) -> dict[str, dict[str, Any]]:
    """CPU time of scans and replays in us, bytes of WAL of a replay and an insert, bytes per row; by layout."""
    measured: dict[str, dict[str, Any]] = {}
    layouts = prepare(server, dimensions)
    with server.connect(DATABASE) as connection:

        def one(query: str) -> int:
            row = connection.execute(query.encode()).fetchone()
            assert row is not None
            return int(row[0])

        def written() -> int:
            return one("select pg_current_wal_insert_lsn() - '0/0'")

        def places(size: int) -> list[harness.Call]:
            return [
                {
                    "p": random.randrange(ROWS * len(SCOPES)),
                    "s": size * 100_000 + random.randrange(ROWS // size),
                }
                for _ in range(CALLS)
            ]

        for layout in layouts:
            size = one(
                "select sum(pg_total_relation_size(oid)) from pg_class where relkind = 'r'"
                f" and relnamespace = '{layout.schema}'::regnamespace"
            )
            measured[layout.name] = {"bytes a row": size / ROWS / len(SCOPES)}
        for turn in range(rounds + 1):
            for place in range(len(layouts)):
                layout = layouts[
                    (place + turn) % len(layouts)
                ]  # so that no layout always runs after the same one
                statements = {f"scan of {size}": (_scan(layout), size) for size in SCOPES}
                statements |= {"replay": (_replay(layout), 5), "insert": (_insert(layout, NEW), 5)}
                for name, (statement, size) in statements.items():
                    session = harness.Session(server, DATABASE, statement, options=OPTIONS)
                    session.measure(places(size)[:10])  # the session's own caches
                    before = written()
                    spent = session.measure(places(size))[1]
                    wal = (written() - before) / CALLS
                    session.close()
                    if turn:  # the first round warms up
                        measured[layout.name].setdefault(name, []).append(spent)
                        measured[layout.name].setdefault(f"WAL, {name}", []).append(wal)
    return measured


def run(server: harness.Server, *, rounds: int) -> harness.Report:
    """Measure, and report the conclusion."""
    report = harness.Report("storage", "Where vectors lie")
    timed = [*(f"scan of {size}" for size in SCOPES), "replay", "insert"]
    plotted: dict[str, list[float]] = {layout.name: [] for layout in LAYOUTS}
    for dimensions in DIMENSIONS:
        measured = measure(server, dimensions, rounds)
        report.data[str(dimensions)] = measured
        chosen = measured[CHOSEN.name]
        rows: list[list[object]] = []
        for layout in LAYOUTS:
            found = measured.get(layout.name)
            plotted[layout.name].append(median(found["scan of 20"]) if found else 0)
            if found is None:
                rows.append([layout.name, "refused: larger than a page", *[""] * (len(timed) + 2)])
                continue
            ratios = [harness.ratio(found[name], chosen[name]) for name in timed]
            rows.append(
                [
                    layout.name,
                    *(
                        f"{median(found[name]):,.0f} us" if layout is CHOSEN else f"{ratio:.2f}"
                        for name, ratio in zip(timed, ratios, strict=True)
                    ),
                    *(f"{median(found[f'WAL, {name}']):,.0f}" for name in ("replay", "insert")),
                    f"{found['bytes a row']:,.0f}",
                ]
            )
        report.table(
            f"{dimensions:,} dimensions. CPU time of a call (the first line; the others as its multiples), bytes of WAL"
            " of a replay and of an insert, bytes a row with TOAST and indexes:",
            ["", *timed, "WAL, replay", "WAL, insert", "bytes a row"],
            rows,
        )
    report.data["cosine, halfvec"] = moved = halved()
    report.note(
        "Scans, replays and inserts read the candidate's vector or id from a table, which is part of their time."
        f" Half precision moves a cosine near 0.9 by up to {moved:.0e} (384 dimensions, 10,000 pairs)."
    )
    report.note(DECISION)
    return report


def halved() -> float:
    """The maximum change of a cosine near the thresholds by half precision."""
    centre = np.random.default_rng(1).standard_normal((10_000, 384), dtype=np.float32)
    centre /= np.linalg.norm(centre, axis=1, keepdims=True)
    near = load.around(centre, 0.9, seed=2)
    half = [rows.astype(np.float16).astype(np.float32) for rows in (centre, near)]
    return float(np.abs((centre * near).sum(axis=1) - (half[0] * half[1]).sum(axis=1)).max())
