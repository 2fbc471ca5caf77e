"""A throw-away server, pgbench, CPU clocks and tables, for every question of the bench.

Nothing here is an absolute figure of anything: machines differ, and this one may be shared. Every question is
asked of all its variants in turn (A, B, C, A, B, C ...) in one run, and what is reported is the median over
the rounds of the ratio within a round.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from psycopg import pq, sql

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support import servers  # noqa: E402

from memfold.tools.admin import host, migrate  # noqa: E402

Call = Mapping[str, object]  # the parameters of one call, named as in a pgbench script

# on a disk: commits should have their real cost
PLACE = Path("/tmp")  # noqa: S108 (the server makes a directory of its own there)
RESULTS = Path(__file__).resolve().parent / "results"
APPLICATION = "bench_app"
TENANT = "bench"
MODEL = "bench"
INSTALLED = "installed"

# Like a server in use: commits reach the disk. Checkpoints and autovacuum would affect one variant and not the next;
# the benches vacuum where it matters.
SERVER = {
    "fsync": "on",
    "full_page_writes": "on",
    # a quarter of the memory, as usual: otherwise the share of reads that miss the cache would grow
    "shared_buffers": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 4 // 2**20}MB",
    "max_wal_size": "16GB",
    "min_wal_size": "2GB",
    "checkpoint_timeout": "1h",
    "autovacuum": "off",
    # for questions that turn autovacuum on: tests/support/servers.py sets a day
    "autovacuum_naptime": "1min",
    "deadlock_timeout": "1s",
    "log_min_messages": "warning",
    # for the soak, which turns it on: no other question pays for it
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",
    "compute_query_id": "off",
}

# commit_delay makes each commit wait 1 ms, as real disks do; here fsync may be far cheaper.
SETTINGS = {
    "durable": "-c synchronous_commit=on",
    "synchronous_commit=off": "-c synchronous_commit=off",
    "1 ms commits": "-c synchronous_commit=on -c commit_delay=1000 -c commit_siblings=0",
}
OFF = SETTINGS["synchronous_commit=off"]


class BenchError(Exception):
    """The bench cannot continue; the message says why."""


class _Cluster(servers.Cluster):
    def _install_extension(self) -> dict[str, str]:
        """A server without the extension: the migrations install memfold."""
        return SERVER


@dataclass(frozen=True)
class Server:
    """The running server and its programs."""

    cluster: servers.Cluster
    pgbench: Path

    def dsn(self, database: str = "postgres", user: str = servers.SUPERUSER) -> str:
        return self.cluster.dsn(database, user)

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        """A superuser's connection, which may write memfold's tables like their owner."""
        connection = psycopg.connect(self.dsn(database), autocommit=True)
        connection.execute("set memfold.tenant_id = 'bench'")
        return connection

    def create(self, database: str, template: str = "template1") -> None:
        """Create a database, replacing one with that name."""
        with self.connect() as connection:
            name = sql.Identifier(database)
            connection.execute(sql.SQL("drop database if exists {}").format(name))
            connection.execute(
                sql.SQL("create database {} template {}").format(name, sql.Identifier(template))
            )

    def drop(self, database: str) -> None:
        """Drop a database."""
        with self.connect() as connection:
            connection.execute(sql.SQL("drop database if exists {}").format(sql.Identifier(database)))

    def install(self, database: str) -> None:
        """Create a database with memfold in it, the same for all questions of a run."""
        self.create(database, INSTALLED)


@contextlib.contextmanager
def server(also: str = "") -> Iterator[Server]:
    """Start the embedded server on a separate directory; both end with the block.

    ``also`` is SQL that follows the install.
    """
    account = host.Account.choose()
    bindir = host.bindir()
    if os.geteuid() == 0 and not account.can_enter(bindir):
        bindir = host.readable_copy(bindir)
    pgbench = bindir / "pgbench"
    if not pgbench.exists():
        raise BenchError(f"no pgbench in {bindir}")
    cluster = _Cluster("bench", bindir, Path(tempfile.mkdtemp(prefix="mf-", dir=PLACE)))
    try:
        cluster.start()
        running = Server(cluster, pgbench)
        running.create(INSTALLED)
        migrate.install(running.dsn(INSTALLED))
        with running.connect(INSTALLED) as connection:
            connection.execute(f"create role {APPLICATION} login in role memfold_app")
            connection.execute("create role reference_owner nologin")
            connection.execute(f"grant set on parameter commit_delay, track_functions to {APPLICATION}")
            connection.execute(f"create schema bench; grant usage on schema bench to {APPLICATION}")
            connection.execute("select memfold.register_embedding_model(%s, 384, 0.92, 0.85)", [MODEL])
            if also:
                connection.execute(also.encode())
        yield running
    finally:
        cluster.stop()


# Measuring --------------------------------------------------------------------------------------------------


def pgbench(
    server: Server, database: str, script: str, *, options: str, clients: int, seconds: float
) -> float:
    """Transactions per second of one script, run by the application role."""
    path = server.cluster.base / "script.sql"
    path.write_text(script, encoding="utf-8")
    path.chmod(0o644)
    done = subprocess.run(
        [
            server.pgbench, "-n", "-M", "prepared", "-c", str(clients), "-j", str(min(clients, 2)),
            # less than a second: only a check that it runs
            *(("-T", str(round(seconds))) if seconds >= 1 else ("-t", "20")), "-f", path,
            "-h", server.cluster.base, "-p", str(servers.PORT), "-U", APPLICATION, database,
        ],
        env={**os.environ, "PGOPTIONS": f"-c memfold.tenant_id={TENANT} {options}"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or found is None or "ERROR" in done.stderr:
        raise BenchError(f"pgbench failed: {done.stderr[-500:]}")
    return float(found[1])


class Session:
    """A connection of the application role with one prepared statement (its parameters :name), on libpq."""

    def __init__(self, server: Server, database: str, statement: str, *, options: str = OFF) -> None:
        self.connection = psycopg.connect(
            server.dsn(database, APPLICATION),
            autocommit=True,
            options=f"-c memfold.tenant_id={TENANT} {options}",
        )
        self._pq = self.connection.pgconn
        self._names = sorted(set(re.findall(r"(?<!:):([a-z]\w*)", statement)))
        for place, name in enumerate(self._names, 1):
            statement = re.sub(rf"(?<!:):{name}\b", f"${place}", statement)
        self._check(self._pq.prepare(b"q", statement.encode()))
        self._clock = Path(f"/proc/{self._pq.backend_pid}/schedstat")

    def _check(self, result: pq.abc.PGresult) -> pq.abc.PGresult:
        if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            raise BenchError(result.error_message.decode())
        return result

    def __call__(self, parameters: Call) -> pq.abc.PGresult:
        given = [str(parameters[name]).encode() for name in self._names]
        return self._check(self._pq.exec_prepared(b"q", given))

    def cpu(self) -> float:
        """CPU time of the backend so far, in microseconds."""
        return int(self._clock.read_text().split()[0]) / 1000

    def measure(self, calls: Sequence[Call]) -> tuple[float, float]:
        """Median wall time and mean CPU time of a call, in microseconds."""
        walls = []
        before = self.cpu()
        for call in calls:
            begun = time.perf_counter_ns()
            self(call)
            walls.append((time.perf_counter_ns() - begun) / 1000)
        return median(walls), (self.cpu() - before) / len(calls)

    def close(self) -> None:
        self.connection.close()


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """The median over rounds, so that drift of the machine between rounds does not count."""
    return median(a / b for a, b in zip(over, under, strict=True))


def cpu(
    server: Server,
    database: str,
    variants: Mapping[str, str],
    calls: Callable[[], list[Call]],
    *,
    rounds: int,
) -> dict[str, list[float]]:
    """CPU time of the backend for a call, in microseconds, one client, commits not waited for; by round."""
    sessions = {name: Session(server, database, statement) for name, statement in variants.items()}
    measured: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(rounds + 1):
        for name, session in sessions.items():
            spent = session.measure(calls())[1]
            if turn:  # the first round warms up
                measured[name].append(spent)
    for session in sessions.values():
        session.close()
    return measured


# Reporting --------------------------------------------------------------------------------------------------


@dataclass
class Report:
    """The answer to one question: tables for the reader, every single round for those who want to check."""

    question: str
    title: str
    sections: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def table(self, caption: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Add a table and print it."""
        cells = [[str(cell) for cell in row] for row in (head, *rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
        lines = [
            "| "
            + " | ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            + " |"
            for row in cells
        ]
        lines.insert(
            1, "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
        )
        self.sections.append(f"{caption}\n\n" + "\n".join(lines))
        print(f"\n{caption}\n" + "\n".join(lines), flush=True)

    def note(self, text: str) -> None:
        """Add a paragraph and print it."""
        self.sections.append(text)
        print(f"\n{text}", flush=True)

    def write(self, environment: dict[str, Any]) -> None:
        """Write bench/results/<question>.md and .json."""
        RESULTS.mkdir(exist_ok=True)
        where = ", ".join(f"{key} {value}" for key, value in environment.items())
        (RESULTS / f"{self.question}.md").write_text(
            f"# {self.title}\n\n" + "\n\n".join(self.sections) + f"\n\n{where}\n", encoding="utf-8"
        )
        (RESULTS / f"{self.question}.json").write_text(
            json.dumps({"environment": environment, **self.data}, indent=1) + "\n", encoding="utf-8"
        )


def cpu_table(report: Report, measured: Mapping[str, Sequence[float]], ours: str) -> None:
    """Add the table of CPU times, with the ratio of each variant to ours (which is less noisy)."""
    report.table(
        "CPU time of the backend for a call, one client, synchronous_commit=off:",
        ["", "median us", "least us", f"its / {ours}'s"],
        [
            [name, f"{median(times):.0f}", f"{min(times):.0f}", f"{ratio(times, measured[ours]):.2f}"]
            for name, times in measured.items()
        ],
    )


def verdict(value: float, floor: float, *, at_most: bool = False) -> str:
    """Whether a ratio meets its target."""
    holds = value <= floor if at_most else value >= floor
    asked = f"{'<=' if at_most else '>='} {floor:g}"
    return f"{value:.2f} ({asked})" if holds else f"**{value:.2f}** (asked: {asked})"


def environment(server: Server, rounds: int, seconds: float) -> dict[str, Any]:
    """The environment of the figures."""
    with server.connect() as connection:
        row = connection.execute(
            "select current_setting('server_version'), default_version, current_setting('shared_buffers')"
            " from pg_available_extensions where name = 'vector'"
        ).fetchone()
    assert row is not None
    digest = hashlib.sha256()
    for path in sorted((ROOT / "sql").rglob("*.sql")):
        digest.update(path.read_bytes())
    return {
        "PostgreSQL": row[0],
        "pgvector": row[1],
        "shared_buffers": row[2],
        "memfold's SQL": digest.hexdigest()[:12],
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "rounds": rounds,
        "seconds a round": seconds,
        "date": time.strftime("%Y-%m-%d"),
    }
