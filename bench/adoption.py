"""How long does the backfill of `memfold adopt` take, compared with one bare UPDATE of the whole table?"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import harness
from psycopg.conninfo import make_conninfo

from memfold.adopt import Adopter, Options

MOST = 1.6
ROWS = 300_000

# As wide as typical memories: a sentence, some JSON. Random keys are scattered over the table.
TABLES = {
    "bigint key": "id bigint primary key",
    "random uuid key": "id uuid primary key",
}
FILL = """
insert into bench.memories (id, tenant_id, content, meta)
select {key}, 't' || i % 50, 'The user, number ' || i || ', said on some day that tea is better than coffee in the morning.',
    jsonb_build_object('source', 'chat', 'turn', 'turn-' || i, 'score', i % 100 / 100.0)
from generate_series(1, {rows}) as i
"""
KEYS = {"bigint key": "i", "random uuid key": "gen_random_uuid()"}
VARIANTS = ("one bare UPDATE", "memfold adopt, step 3")


def run(server: harness.Server, *, rounds: int, rows: int) -> harness.Report:
    """Time and WAL of both, on fresh copies of the same table."""
    report = harness.Report("adopt", "Backfill of someone else's table, against one bare UPDATE of it")
    report.note(
        f"{rows:,} rows, fresh for each variant and round, vacuumed, right after a checkpoint. Both compute the same"
        " hash by the same function. The UPDATE is one statement in one transaction, which locks every row until it is"
        " over; step 3 goes in batches of 50 ms, unthrottled, and ends with a look for rows that are missing."
    )
    lines: list[list[object]] = []
    for kind in TABLES:
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
        for turn in range(rounds + 1):
            for name in VARIANTS:
                found = _once(server, kind, rows, name)
                if turn:  # the first round warms up
                    measured[name].append(found)
        times = {name: [one[0] for one in found] for name, found in measured.items()}
        wal = {name: [one[1] for one in found] for name, found in measured.items()}
        bare, ours = VARIANTS
        for name in VARIANTS:
            lines.append(
                [
                    f"{kind}: {name}",
                    f"{median(times[name]):.1f}",
                    f"{rows / median(times[name]):,.0f}",
                    f"{median(wal[name]) / 1048576:,.0f}",
                    f"{median(wal[name]) / rows:,.0f}",
                ]
            )
        lines.append(
            [
                f"{kind}: ratio",
                harness.verdict(harness.ratio(times[ours], times[bare]), MOST, at_most=True),
                "",
                f"{harness.ratio(wal[ours], wal[bare]):.2f}",
                "",
            ]
        )
        report.data[kind] = {"seconds": times, "wal": wal}
    report.table("", ["", "seconds", "rows per second", "WAL, MB", "WAL a row, bytes"], lines)
    return report


def _once(server: harness.Server, kind: str, rows: int, variant: str) -> tuple[float, float]:
    """Seconds, and bytes of WAL."""
    server.install("adopt")
    with server.connect("adopt") as connection:
        connection.execute(
            f"create table bench.memories ({TABLES[kind]}, tenant_id text not null, content text not null,"
            " meta jsonb not null, created_at timestamptz not null default now())"
        )
        connection.execute(FILL.format(key=KEYS[kind], rows=rows).encode())
        adopter = Adopter(make_conninfo(server.dsn("adopt")))
        options = Options(ignore_lag=True)
        with adopter:
            asked = {"content": "content", "tenant": "tenant_id"}
            if variant != VARIANTS[0]:
                for step in (1, 2):
                    adopter.run(*adopter.define("bench.memories", asked), options, only=step)
            else:
                connection.execute("alter table bench.memories add column content_hash bytea")
            connection.execute("vacuum analyze bench.memories")
            connection.execute("checkpoint")
            before = _value(connection, "select pg_current_wal_insert_lsn()")
            began = time.perf_counter()
            if variant != VARIANTS[0]:
                adopter.run(*adopter.define("bench.memories", asked), options, only=3)
            else:
                connection.execute(
                    "update bench.memories set content_hash = memfold.adopted_hash(content, 'prose/1')"
                    " where tenant_id is not null"
                )
            took = time.perf_counter() - began
        wal = _value(connection, f"select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '{before}')::float8")
        hashed = _value(connection, "select count(content_hash) from bench.memories")
    if hashed != rows:
        raise harness.BenchError(f"{variant}: {hashed} of {rows} rows have a hash")
    server.drop("adopt")
    return took, float(wal)


def _value(connection: Any, query: str) -> Any:
    return connection.execute(query.encode()).fetchone()[0]
