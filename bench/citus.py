#!/usr/bin/env python3
"""Question: what does a call cost on Citus, and how long does a populated server take to become one? (Not part of
run.py.)

CITUS_PG_CONFIG names a server that has Citus. Without arguments: a plain server and a coordinator with two workers, all
of the same programs, called in turn from a session each as an application; medians in ms, and their ratios. With a number of
memories: a plain server is filled with that many, joined by two workers, and distributed over them.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import servers  # noqa: E402

from contrib.citus.tests import citus_nodes  # noqa: E402
from memfold.admin import migrate  # noqa: E402

CALLS = 300
ROUNDS = 5
TENANTS = 100
INGEST = "select * from memfold.ingest_memory(%s, %s, subject => %s, source_turn_ids => array[%s])"
VECTOR = (
    "select * from memfold.ingest_memory(%s, %s, subject => %s, source_turn_ids => array[%s],"
    " embedding => %s, embedding_model => 'm')"
)
QUESTIONS = {
    "replay": (INGEST, lambda n: (f"A fact, number {n % 200}", "bench", str(n % 200), str(n))),
    "new fact, without vector": (
        INGEST,
        lambda n: (f"Something new, number {n}", "bench", str(n % 200), str(n)),
    ),
    "new fact, with vector": (
        VECTOR,
        lambda n: (f"Something else, number {n}", "bench", f"s{n}", str(n), vector(n)),
    ),
    "known_memory": (
        "select * from memfold.known_memory(%s, %s, subject => %s)",
        lambda n: (f"A fact, number {n % 200}", "bench", str(n % 200)),
    ),
}
FILL = """
select count(*) from memfold.ingest_memories((
    select jsonb_agg(jsonb_build_object(
        'content', format('Fact %%s of %%s: so it has been since the year %%s, as far as anybody knows', n,
            %(tenant)s::text, n),
        'subject', 's' || n %% 100, 'source_turn_ids', array['t' || n]))
    from generate_series(%(low)s::bigint, %(high)s) as n), %(tenant)s::text)
"""


def vector(number: int) -> str:
    return str([float((number >> bit) & 1) + 0.1 for bit in range(32)])


def routing(nodes: citus_nodes.Nodes, plain: servers.Cluster) -> None:
    nodes.start()
    nodes.install()
    plain.start(extension=False)
    migrate.install(plain.dsn())
    for dsn in (plain.dsn(), nodes.dsn()):
        with psycopg.connect(dsn, autocommit=True) as db:
            db.execute("create role app login in role memfold_app")
            db.execute("select memfold.register_embedding_model('m', 32)")
    home = nodes.workers_of(["bench"])["bench"]
    ways = {
        "plain": plain.dsn(user="app"),
        "coordinator": nodes.dsn(0, "app"),
        "tenant's worker": nodes.dsn(home, "app"),
        "other worker": nodes.dsn(3 - home, "app"),
    }
    sessions = [psycopg.connect(dsn, autocommit=True) for dsn in ways.values()]
    for session in sessions:
        session.execute("set memfold.tenant_id = 'bench'")
    for session in sessions[:2]:
        for n in range(200):
            session.execute(INGEST, (f"A fact, number {n}", "bench", str(n), "0"))
    number = 0
    for question, (query, arguments) in QUESTIONS.items():
        rounds: list[list[float]] = []
        for _ in range(ROUNDS + 1):
            took: list[list[float]] = [[] for _ in sessions]
            for _ in range(CALLS):
                for session, times in zip(sessions, took, strict=True):
                    number += 1
                    given = arguments(number)
                    started = time.perf_counter()
                    session.execute(query.encode(), given)
                    times.append((time.perf_counter() - started) * 1000)
            rounds.append([median(times) for times in took])
        # the first round warms up
        print(question)
        for place, way in enumerate(ways):
            ratios = sorted(one[place] / one[0] for one in rounds[1:])
            print(
                f"    {way}: {median(one[place] for one in rounds[1:]):.2f} ms, ratio {median(ratios):.1f}"
                f" ({ratios[0]:.1f} to {ratios[-1]:.1f})"
            )


def conversion(nodes: citus_nodes.Nodes, memories: int) -> None:
    first, others = nodes.clusters[0], nodes.clusters[1:]
    for cluster in nodes.clusters:
        cluster.start(
            extension=False,
            **{**citus_nodes.SETTINGS, "citus.local_hostname": str(cluster.base), "max_wal_size": "8GB"},
        )
    migrate_plain(first, memories)
    with psycopg.connect(first.dsn(), autocommit=True) as db:

        def timed(what: str, statement: str, *arguments: object) -> Any:
            started = time.perf_counter()
            row = db.execute(statement.encode(), arguments).fetchone()
            print(f"{what}: {time.perf_counter() - started:.1f} s", flush=True)
            return row

        before = timed("counted", STATE)
        db.execute("create extension citus")
        db.execute("select citus_set_coordinator_host(%s, %s)", [str(first.base), servers.PORT])
        for cluster in others:
            with psycopg.connect(cluster.dsn(), autocommit=True) as other:
                other.execute("create extension citus; create extension vector")
            timed("worker added", "select citus_add_node(%s, %s)", str(cluster.base), servers.PORT)
        started = time.perf_counter()
        migrate.install(first.dsn(), citus=True)
        print(f"memfold init --citus: {time.perf_counter() - started:.1f} s", flush=True)
        after = timed("counted", STATE)
        assert after == before, (before, after)
        broken = 0
        for tenant in range(0, TENANTS, 10):
            broken += len(
                db.execute("select * from memfold.check_invariants(%s)", [f"tenant {tenant}"]).fetchall()
            )
        print(f"same rows; check_invariants of {TENANTS // 10} tenants: {broken} differences")


STATE = """
select (select count(*) from memfold.memories), (select sum(observations) from memfold.memory_totals),
    (select count(*) from memfold.memory_events), (select count(*) from memfold.memory_sources),
    (select sum(hashtextextended(content, 0)) from memfold.memories)
"""


def migrate_plain(cluster: servers.Cluster, memories: int) -> None:
    with psycopg.connect(cluster.dsn(), autocommit=True) as db:
        db.execute("create extension vector")
    migrate.install(cluster.dsn())
    each = memories // TENANTS
    started = time.perf_counter()
    with psycopg.connect(cluster.dsn(), autocommit=True) as db:
        for tenant in range(TENANTS):
            for low in range(0, each, 2000):
                given = {"tenant": f"tenant {tenant}", "low": low, "high": min(low + 2000, each) - 1}
                db.execute(FILL, given)
        db.execute("analyze")
    print(
        f"{memories} memories of {TENANTS} tenants stored: {time.perf_counter() - started:.0f} s", flush=True
    )


def main() -> int:
    bindir, why_not = citus_nodes.bindir()
    if bindir is None:
        print(why_not, file=sys.stderr)
        return 2
    nodes, plain = citus_nodes.Nodes(bindir), servers.Cluster("plain", bindir)
    try:
        if len(sys.argv) > 1:
            conversion(nodes, int(sys.argv[1]))
        else:
            routing(nodes, plain)
    finally:
        nodes.stop()
        plain.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
