#!/usr/bin/env python3
"""Question: what does a PL/Proxy router cost? (Not part of run.py, because it needs PL/Proxy.)

Starts a router and a memfold server, both of the programs that tests/servers.py finds, and calls either in turn, call by
call, from one session as an application. Prints medians in ms and their ratio.
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

from memfold.admin import migrate  # noqa: E402

CALLS = 1000
ROUNDS = 5
INGEST = "select * from memfold.ingest_memory(%s, %s, subject => %s, source_turn_ids => array[%s])"
QUESTIONS = {
    "replay": (INGEST, lambda n: (f"A fact, number {n % 200}", "bench", str(n % 200), str(n))),
    "new fact": (INGEST, lambda n: (f"Something new, number {n}", "bench", str(n % 200), str(n))),
    "known_memory": (
        "select * from memfold.known_memory(%s, %s, subject => %s)",
        lambda n: (f"A fact, number {n % 200}", "bench", str(n % 200)),
    ),
}
ROUTE = """
create server memfold foreign data wrapper plproxy options (p0 'dbname=postgres host={0} port={1}');
grant usage on foreign server memfold to memfold_app;
create user mapping for public server memfold options (user 'memfold_router')
"""


def measure(router: servers.Cluster, server: servers.Cluster) -> None:
    migrate.install(server.dsn())
    with psycopg.connect(server.dsn(), autocommit=True) as db:
        db.execute(
            "create role memfold_router login in role memfold_app; create role app login in role memfold_app"
        )
    with psycopg.connect(router.dsn(), autocommit=True) as db:
        db.execute((ROOT / "contrib" / "plproxy" / "plproxy.sql").read_bytes())
        db.execute(ROUTE.format(server.base, servers.PORT).encode())
        db.execute("create role app login in role memfold_app")
    sessions: list[psycopg.Connection[Any]] = []
    for cluster in (server, router):
        session = psycopg.connect(cluster.dsn(user="app"), autocommit=True, prepare_threshold=1)
        session.execute("set memfold.tenant_id = 'bench'")
        sessions.append(session)
    number = 0
    for n in range(200):
        sessions[0].execute(INGEST, (f"A fact, number {n}", "bench", str(n), "0"))
    # plans of two sessions, made while the tables were small, age differently
    admin = psycopg.connect(server.dsn(), autocommit=True)
    for question, (query, arguments) in QUESTIONS.items():
        ratios, shown = [], []
        for _ in range(ROUNDS + 1):
            admin.execute("vacuum analyze")
            took: list[list[float]] = [[], []]
            for _ in range(CALLS):
                for session, times in zip(sessions, took, strict=True):
                    number += 1
                    given = arguments(number)
                    started = time.perf_counter()
                    session.execute(query, given)
                    times.append((time.perf_counter() - started) * 1000)
            direct, routed = median(took[0]), median(took[1])
            ratios.append(routed / direct)
            shown.append((direct, routed))
        # the first round warms up
        direct, routed = shown[1:][ratios[1:].index(sorted(ratios[1:])[ROUNDS // 2])]
        print(f"{question}: direct {direct:.3f} ms, routed {routed:.3f} ms, ratio {median(ratios[1:]):.2f}")
        print("    rounds: " + ", ".join(f"{ratio:.2f}" for ratio in ratios[1:]))


def main() -> int:
    bindir = servers.plproxy()
    if bindir is None:
        print("no server with PL/Proxy and pgvector is installed", file=sys.stderr)
        return 2
    clusters = [servers.Cluster("plproxy", bindir) for _ in range(2)]
    try:
        for cluster in clusters:
            cluster.start(extension=False)
        measure(*clusters)
    finally:
        for cluster in clusters:
            cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
