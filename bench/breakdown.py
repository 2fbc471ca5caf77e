"""Question 4: where does the time of a replay go?"""

from __future__ import annotations

from statistics import median
from typing import Any

import harness
import reference
import replay

CALLS = 2_000


def run(server: harness.Server, *, rounds: int) -> harness.Report:
    """Count the functions of a replay, with their total time and their own time."""
    report = harness.Report("profile", "Where the time of a replay goes")
    database = "profile"
    replay.prepare(server, database)
    session = harness.Session(
        server, database, replay.INGEST, options=f"{harness.OFF} -c track_functions=all"
    )
    session.measure(replay.calls(CALLS))  # plans and caches
    with server.connect(database) as connection:
        # Functions of one call are read together; separate rounds show how steady they are.
        seen: dict[str, list[tuple[float, float, float]]] = {}
        walls = []
        for _ in range(rounds):
            session.connection.execute("select pg_stat_force_next_flush()")
            before = _counts(connection)
            walls.append(session.measure(replay.calls(CALLS))[0])
            session.connection.execute("select pg_stat_force_next_flush()")
            for name, now in _counts(connection).items():
                then = before.get(name, (0.0, 0.0, 0.0))
                delta = tuple((a - b) / CALLS for a, b in zip(now, then, strict=True))
                if delta[0] > 0.001:
                    seen.setdefault(name, []).append((delta[0], delta[1] * 1000, delta[2] * 1000))
    session.close()

    middle = {name: [median(column) for column in zip(*times, strict=True)] for name, times in seen.items()}
    total = middle["ingest_memory"][1]
    by_self = sorted(middle.items(), key=lambda item: -item[1][2])
    report.table(
        "Functions of one replay, by what they take themselves (inlined SQL functions, and the statements"
        f" inside a function, count for the function that they are in); {total:.0f} us in all,"
        f" {median(walls):.0f} us for the client, with track_functions=all, which costs time itself:",
        ["function", "calls", "total us", "self us", "self %"],
        [
            [name, f"{n:.1f}", f"{whole:.1f}", f"{own:.1f}", f"{100 * own / total:.0f}"]
            for name, (n, whole, own) in by_self
        ],
    )
    cpu = harness.cpu(
        server,
        database,
        {
            "nothing": "select :i::bigint, :t::bigint",
            "bare upsert": reference.BARE_UPSERT,
            "three writes": reference.THREE_WRITES,
            "ingest_memory": replay.INGEST,
        },
        replay.calls,
        rounds=rounds,
    )
    harness.cpu_table(report, cpu, "ingest_memory")
    report.data = {
        "functions": {
            name: dict(zip(("calls", "total_us", "self_us"), times, strict=True))
            for name, times in middle.items()
        },
        "cpu_us": cpu,
    }
    return report


def _counts(connection: Any) -> dict[str, tuple[float, float, float]]:
    rows = connection.execute(
        "select funcname, calls, total_time, self_time from pg_stat_user_functions"
    ).fetchall()
    return {name: (float(calls), total, own) for name, calls, total, own in rows}
