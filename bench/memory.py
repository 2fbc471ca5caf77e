"""How much memory do the client and its server session take, over millions of rows of ingest_many?"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import harness
import psycopg

ROWS = 5_000_000
MOST = 300
EVERY = 1.0
POINTS = 300  # samples in the plot

# A separate process that has loaded only the client. One candidate in ten restates an earlier one.
CLIENT = """
import os, sys
from memfold import Memfold

def candidates(rows):
    for i in range(rows):
        n = i // 2 if i % 10 == 9 else i
        yield {
            "content": f"User likes to drink cup number {n} of green tea in the morning",
            "subject": f"Subject {n // 20}",
            "source_turn_ids": [f"turn-{i}"],
        }

failed = 0
with Memfold(sys.argv[1], "bench") as memfold:
    print("begin", os.getpid(), flush=True)
    for item in memfold.ingest_many(candidates(int(sys.argv[2])), progress=lambda n, _: print(n, flush=True)):
        failed += item.error is not None
print("failed", failed, flush=True)
"""
BACKEND = "select pid from pg_stat_activity where datname = 'memory' and usename = %s and backend_type = 'client backend'"


def run(server: harness.Server, *, rows: int) -> harness.Report:
    """Sample both processes while the rows come in."""
    report = harness.Report(
        "memory", f"Memory of client and server session: {rows:,} rows through ingest_many"
    )
    server.install("memory")
    with server.connect("memory") as connection:
        connection.execute("alter system set autovacuum = on")
        connection.execute("select pg_reload_conf()")
        try:
            samples, seconds = _sample(server, connection, rows)
        finally:
            connection.execute("alter system reset autovacuum")
            connection.execute("select pg_reload_conf()")
        stored = _value(connection, "select count(*) from memfold.memories")
        counted = _value(connection, "select sum(observations)::bigint from memfold.memory_totals")
        size = _value(connection, "select pg_database_size('memory')")
    if counted != rows:
        raise harness.BenchError(f"{counted} of {rows} observations")
    server.drop("memory")

    client = max(sample[2] for sample in samples)
    backend = max(sample[3] for sample in samples)
    both = max(sample[2] + sample[3] for sample in samples)
    speeds = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(samples[:: max(len(samples) // 10, 1)])]
    report.table(
        f"The maximum, sampled every {EVERY:g} s, in MB: the client's resident set; the backend's without what it"
        " shares with other processes (shared buffers), text and libraries by their share. Without vectors; one candidate"
        " in ten restates an earlier one; autovacuum on.",
        ["rows", "client", "backend", "both", "rows/s", "at first", "in the end"],
        [
            [
                f"{rows:,}",
                f"{client:.0f}",
                f"{backend:.0f}",
                harness.verdict(both, MOST, at_most=True),
                f"{rows / seconds:,.0f}",
                f"{speeds[0]:,.0f}" if speeds else "",
                f"{speeds[-1]:,.0f}" if speeds else "",
            ]
        ],
    )
    shown = [sample for sample in samples[:: -(-len(samples) // POINTS)] if sample[1]]
    report.note(f"{stored:,} memories, {size / 2**30:.1f} GB on disk, {seconds / 60:.0f} minutes.")
    report.data = {
        "seconds": seconds,
        "samples (seconds, rows, client MB, backend MB)": [[round(x, 1) for x in sample] for sample in shown],
    }
    return report


def _sample(
    server: harness.Server, connection: psycopg.Connection[Any], rows: int
) -> tuple[list[tuple[float, int, float, float]], float]:
    """(seconds, rows so far, MB of the client, MB of the backend) each second, and the seconds in all."""
    said: list[str] = []
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, server.dsn("memory", harness.APPLICATION), str(rows)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = process.stdout

    def listen() -> None:
        for line in lines:
            said[:] = [line]

    listener = threading.Thread(target=listen)
    listener.start()
    samples: list[tuple[float, int, float, float]] = []
    began = time.perf_counter()
    try:
        while process.poll() is None:
            backend = connection.execute(BACKEND, [harness.APPLICATION]).fetchone()
            now = said[0] if said else ""
            if backend is not None and now.strip().isdigit():
                try:
                    sizes = _mb(process.pid, "Rss"), _mb(backend[0], "Pss_Anon", "Pss_File")
                except (FileNotFoundError, ProcessLookupError):
                    break  # it ends
                samples.append((time.perf_counter() - began, int(now), *sizes))
            time.sleep(EVERY)
        process.wait()
        seconds = time.perf_counter() - began
    finally:
        process.kill()
        listener.join()
    if process.returncode != 0 or said != ["failed 0\n"]:
        raise harness.BenchError(f"the client ended with {process.returncode}: {''.join(said)}")
    return samples, seconds


def _mb(pid: int, *keys: str) -> float:
    """The figures of /proc/PID/smaps_rollup, in MB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    kilobytes = {line.split(":")[0]: line.split()[1] for line in text.splitlines()[1:]}
    return sum(int(kilobytes[key]) for key in keys) / 1024


def _value(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]
