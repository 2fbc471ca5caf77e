#!/usr/bin/env python3
"""What does a call cost on Citus, and how long does a populated server take to become one? (Not part of
run.py.)

CITUS_PG_CONFIG names a server that has Citus. Without arguments: a plain server and a coordinator with two workers, all
from the same programs, are called in turn, each from one session of an application: medians in ms, CPU time of the
processes that serve the call, and their ratios; on the tenant's worker also without the functions of its shard. With a
number of memories: a plain server is filled with that many, joined by two workers, and distributed over them.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support import servers  # noqa: E402

from contrib.citus.tests import citus_nodes  # noqa: E402
from memfold.tools.admin import migrate  # noqa: E402

CALLS = 100
ROUNDS = 5
TENANTS = 100
INGEST = "select * from memfold.ingest_memory(%s, %s, subject => %s, source_turn_ids => array[%s])"
VECTOR = (
    "select * from memfold.ingest_memory(%s, %s, subject => %s, source_turn_ids => array[%s],"
    " embedding => %s, embedding_model => 'm')"
)
QUESTIONS = {
    "replay": (INGEST, lambda n, tenant: (f"A fact, number {n % 200}", tenant, str(n % 200), str(n))),
    "new fact, without vector": (
        INGEST,
        lambda n, tenant: (f"Something new, number {n}", tenant, str(n % 200), str(n)),
    ),
    "new fact, with vector": (
        VECTOR,
        lambda n, tenant: (f"Something else, number {n}", tenant, f"s{n}", str(n), vector(n)),
    ),
    "known_memory": (
        "select * from memfold.known_memory(%s, %s, subject => %s)",
        lambda n, tenant: (f"A fact, number {n % 200}", tenant, str(n % 200)),
    ),
    "search_memories": (
        "select * from memfold.search_memories(tenant_id => %s, bucket_id => 'recall', query_embedding => %s::vector,"
        " embedding_model => 'm', touch => false)",
        lambda n, tenant: (tenant, apart(n % 200)),
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


# the process on the tenant's worker that works for one on another node
SERVING = """
select a.pid from pg_stat_activity as a
where a.application_name ~ ('citus_internal gpid=[0-9]+0' || %s::text || '$') and a.datname = current_database()
"""


def cpu(pids: list[int]) -> float:
    """Milliseconds that these processes have run (Linux)."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e6


def vector(number: int) -> str:
    return str([float((number >> bit) & 1) + 0.1 for bit in range(32)])


def apart(number: int) -> str:
    """Far from the vectors of other numbers, so that a search need not compare texts to collapse memories."""
    return str([random.Random(f"{number} {place}").gauss() for place in range(32)])


def routing(nodes: citus_nodes.Nodes, plain: servers.Cluster) -> None:
    nodes.start()
    # the process that serves a session on another node stays the same
    nodes.each("alter system set citus.max_cached_connection_lifetime = '1d'", "select pg_reload_conf()")
    nodes.install()
    plain.start(extension=False)
    migrate.install(plain.dsn())
    for dsn in (plain.dsn(), nodes.dsn()):
        with psycopg.connect(dsn, autocommit=True) as db:
            db.execute("create role app login in role memfold_app")
            db.execute("select memfold.register_embedding_model('m', 32, 0.92, 0.85)")
    with nodes.connect() as db:
        started = time.perf_counter()
        made = db.execute(
            "select count(*) from memfold.create_shard_functions() where result = 'created'"
        ).fetchone()
        print(
            f"functions of {made[0] if made else 0} shards: {time.perf_counter() - started:.1f} s", flush=True
        )
    home = 1
    ways = {
        "plain": plain.dsn(user="app"),
        "coordinator": nodes.dsn(0, "app"),
        "tenant's worker": nodes.dsn(home, "app"),
        "tenant's worker, through Citus": nodes.dsn(home, "app")
        + " options='-c memfold.max_session_shards=0'",
        "other worker": nodes.dsn(3 - home, "app"),
    }
    sessions = [psycopg.connect(dsn, autocommit=True) for dsn in ways.values()]
    # tenants of that worker, one per session, so that all have equally many memories
    homes = nodes.workers_of([f"bench {number}" for number in range(99)])
    tenants = [tenant for tenant, node in homes.items() if node == home][: len(sessions)]
    for session, tenant in zip(sessions, tenants, strict=True):
        session.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        for n in range(200):
            session.execute(INGEST, (f"A fact, number {n}", tenant, str(n), "0"))
            session.execute(
                "select memfold.ingest_memory(%s, %s, 'recall', embedding => %s::vector, embedding_model => 'm')",
                (f"Recalled, number {n}", tenant, apart(n)),
            )
    pids = [[session.info.backend_pid] for session in sessions]
    with nodes.connect(home) as db:
        # the processes that serve those sessions on the tenant's worker
        for place, way in enumerate(ways):
            if way in ("coordinator", "other worker"):
                found = db.execute(SERVING, [pids[place][0]]).fetchall()
                pids[place] += [pid for (pid,) in found]
                assert len(found) == 1, way
    number = 0
    for question, (query, arguments) in QUESTIONS.items():
        rounds: list[list[tuple[float, float]]] = []
        for turn in range(ROUNDS + 1):
            if turn == 1:
                # The servers run no autovacuum, and the first plans are those for small tables.
                for cluster in (plain, *nodes.clusters):
                    with psycopg.connect(cluster.dsn(), autocommit=True) as db:
                        db.execute("analyze")
            took: list[list[float]] = [[] for _ in sessions]
            used = [0.0] * len(sessions)
            for _ in range(CALLS):
                number += 1
                for place, session in enumerate(sessions):
                    given = arguments(number, tenants[place])
                    before = cpu(pids[place])
                    started = time.perf_counter()
                    session.execute(query.encode(), given)
                    took[place].append((time.perf_counter() - started) * 1000)
                    used[place] += cpu(pids[place]) - before
            rounds.append([(median(times), all_of / CALLS) for times, all_of in zip(took, used, strict=True)])
        # the first round warms up
        print(question)
        for place, way in enumerate(ways):
            ms, cpu_ms = (median(one[place][kind] for one in rounds[1:]) for kind in (0, 1))
            ratios = [sorted(one[place][kind] / one[0][kind] for one in rounds[1:]) for kind in (0, 1)]
            wall, busy = (f"{median(one):.2f} ({one[0]:.2f} to {one[-1]:.2f})" for one in ratios)
            print(f"    {way}: {ms:.2f} ms, ratio {wall}; CPU {cpu_ms:.2f} ms, ratio {busy}", flush=True)


def conversion(nodes: citus_nodes.Nodes, memories: int) -> None:
    first, others = nodes.clusters[0], nodes.clusters[1:]
    for cluster in nodes.clusters:
        nodes.start_node(cluster, max_wal_size="8GB")
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
