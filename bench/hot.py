"""Does a hot memory stay as cheap to write and to change, and do all its writers get a share?"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from statistics import mean, median
from typing import Any

import harness
import psycopg
import reference
from tests.support import servers

CALLS = 1_000
WRITERS = 64
SECONDS = 60
LOADERS = 8
MOST = 1.2
SHARE = 0.5
# One fact compared with one fact per writer, alternating; by setting and number of writers.
CROWDS = (8, 32, 64)
CROWD_SECONDS = 10
# A change of the hot memory's tree, and how long another writer waits for it, in ms.
CHANGE_MOST = 50
# From this number on, each writer has its own fact.
OWN = 2 * 10**9
# A fact that nobody has stated.
NEW = OWN - 1
# Random turns, none of them twice; facts by number.
STATEMENT = (
    f"select memfold.ingest_memory({reference.FACT.format(number=':i')}, 'bench',"
    " source_turn_ids => array['turn-' || :t::bigint])"
)
SETTINGS = {name: harness.SETTINGS[name] for name in ("durable", "synchronous_commit=off")}
HOT = 1
STATISTICS = """
select c.relname::text, pg_total_relation_size(c.oid), s.n_tup_upd, s.n_tup_hot_upd, s.n_dead_tup, s.autovacuum_count
from pg_class as c join pg_stat_user_tables as s on s.relid = c.oid
where c.oid in ('memfold.memory_counters'::regclass, 'memfold.memory_sources'::regclass, 'memfold.memory_events'::regclass)
order by 1
"""


class _Turns:
    """Turns that nobody else uses."""

    def __init__(self) -> None:
        self._last = 10**15

    def calls(self, fact: int, count: int) -> list[harness.Call]:
        first = self._last + 1
        self._last += count
        return [{"i": fact, "t": turn} for turn in range(first, self._last + 1)]


def run(server: harness.Server, *, rounds: int, merges: int) -> harness.Report:
    """Measure, and compare with the target."""
    report = harness.Report("hot", f"A hot memory: {merges:,} merges into one")
    server.install("hot")
    with server.connect("hot") as connection:
        # As on a server in use: dead versions of a constantly updated row are part of the question.
        connection.execute("alter system set autovacuum = on")
        connection.execute("select pg_reload_conf()")
        try:
            _grow(server, connection, report, rounds, merges)
            _crowds(server, connection, report, rounds)
            _share(server, connection, report)
            _changes(server, connection, report, rounds)
        finally:
            connection.execute("alter system reset autovacuum")
            connection.execute("select pg_reload_conf()")
    return report


def _grow(
    server: harness.Server,
    connection: psycopg.Connection[Any],
    report: harness.Report,
    rounds: int,
    merges: int,
) -> None:
    turns = _Turns()
    fresh = HOT  # the fact last used as a new one
    measured: dict[str, dict[int, list[tuple[float, float]]]] = {name: {} for name in SETTINGS}
    pairs: dict[str, list[tuple[tuple[float, float], tuple[float, float]]]] = {name: [] for name in SETTINGS}
    sessions = {
        name: harness.Session(server, "hot", STATEMENT, options=options) for name, options in SETTINGS.items()
    }
    for session in sessions.values():
        session.measure(turns.calls(10**9, 200))  # warm up plans and caches on another fact
    began = time.perf_counter()
    steps = [0]
    while steps[-1] < merges:
        steps.append(min(max(steps[-1] * 10, 10_000), merges))
    for step in steps:
        have = _merges(connection)
        wanted = step - (CALLS * len(sessions) if step == merges else 0) - have
        if wanted > 0:
            _load(server, wanted)
        for name, session in sessions.items():
            measured[name][step] = [session.measure(turns.calls(HOT, CALLS))]
    took = time.perf_counter() - began
    after = connection.execute(STATISTICS.encode()).fetchall()
    for _ in range(rounds):
        for name, session in sessions.items():
            fresh += 1
            new = session.measure(turns.calls(fresh, CALLS))
            hot = session.measure(turns.calls(HOT, CALLS))
            pairs[name].append((new, hot))
    for session in sessions.values():
        session.close()
    _check(connection)

    rows = []
    for name in SETTINGS:
        first, last = (measured[name][step][0] for step in (0, merges))
        cells: list[object] = [name]
        for which in (0, 1):
            cells += [
                f"{first[which]:.0f}",
                f"{last[which]:.0f}",
                harness.verdict(last[which] / first[which], MOST, at_most=True),
            ]
        rows.append(cells)
    head = ["", "first, us", "last, us", "ratio", "CPU first, us", "CPU last, us", "CPU ratio"]
    report.table(
        f"The first and the last {CALLS:,} calls of {merges:,}, one client: median wall time of a call, mean CPU time of"
        f" the backend. In between, {LOADERS} clients ran for {took / 60:.0f} minutes, autovacuum on:",
        head,
        rows,
    )
    report.table(
        f"Then in turn {CALLS:,} calls for a new fact and {CALLS:,} more for the hot one, in the same tables (medians of"
        f" {rounds} rounds):",
        ["", "new, us", "hot, us", "ratio", "CPU new, us", "CPU hot, us", "CPU ratio"],
        [
            [
                name,
                *(
                    cell
                    for which in (0, 1)
                    for cell in (
                        f"{median(new[which] for new, _ in pairs[name]):.0f}",
                        f"{median(hot[which] for _, hot in pairs[name]):.0f}",
                        harness.verdict(
                            harness.ratio(
                                [hot[which] for _, hot in pairs[name]], [new[which] for new, _ in pairs[name]]
                            ),
                            MOST,
                            at_most=True,
                        ),
                    )
                ),
            ]
            for name in SETTINGS
        ],
    )
    report.table(
        "After the last of them:",
        ["table", "MB", "updates", "HOT, %", "dead rows", "autovacuums"],
        [
            [
                table,
                f"{size / 1048576:,.1f}",
                f"{updates:,}",
                f"{100 * hot / updates:.1f}" if updates else "",
                dead,
                runs,
            ]
            for table, size, updates, hot, dead, runs in after
        ],
    )
    report.data = {"us": measured, "pairs_us": pairs, "minutes": took / 60, "tables": after}


def _crowds(
    server: harness.Server, connection: psycopg.Connection[Any], report: harness.Report, rounds: int
) -> None:
    """Writers of one fact, and the same writers on separate facts."""
    for writer in range(max(CROWDS)):
        connection.execute(
            f"select memfold.ingest_memory({reference.FACT.format(number=OWN + writer)}, 'bench')".encode()
        )
    turn = "\\set t random(1, 1000000000000000)\n"
    scripts = {
        "hot": f"\\set i {HOT}\n{turn}{STATEMENT};\n",
        "own": f"\\set i {OWN} + :client_id\n{turn}{STATEMENT};\n",
    }
    rows: list[list[object]] = []
    report.data["crowds"] = {}
    for setting, options in SETTINGS.items():
        for writers in CROWDS:
            rates: dict[str, list[float]] = {name: [] for name in scripts}
            for _ in range(rounds):
                for name, script in scripts.items():
                    rates[name].append(
                        harness.pgbench(
                            server, "hot", script, options=options, clients=writers, seconds=CROWD_SECONDS
                        )
                    )
            report.data["crowds"][f"{setting}, {writers}"] = rates
            share = harness.ratio(rates["hot"], rates["own"])
            rows.append(
                [
                    setting,
                    writers,
                    f"{median(rates['hot']):,.0f}",
                    f"{median(rates['own']):,.0f}",
                    f"{share:.2f}",
                ]
            )
            _check(connection)
    report.table(
        f"Writers of the hot fact, and the same number on separate facts, in turn, {CROWD_SECONDS} s each (medians of"
        f" {rounds} rounds); counters equal the ledger after each:",
        ["", "writers", "hot, calls/s", "own, calls/s", "hot / own"],
        rows,
    )


def _share(server: harness.Server, connection: psycopg.Connection[Any], report: harness.Report) -> None:
    """Writers that all want the same row, durably."""
    before = _merges(connection)
    counts = _pgbench(server, WRITERS, ["-T", str(SECONDS)], SETTINGS["durable"], log=True)
    done = [counts[writer] for writer in range(WRITERS)]
    if _merges(connection) - before != sum(done):
        raise harness.BenchError(f"{sum(done)} calls, {_merges(connection) - before} merges")
    _check(connection)
    report.table(
        f"{WRITERS} writers on the hot fact for {SECONDS} s, durable; the calls of each:",
        ["calls/s in all", "mean", "least", "most", "least / mean"],
        [
            [
                f"{sum(done) / SECONDS:,.0f}",
                f"{mean(done):,.0f}",
                f"{min(done):,}",
                f"{max(done):,}",
                harness.verdict(min(done) / mean(done), SHARE),
            ]
        ],
    )
    report.data["writers"] = done


class _Writer:
    """A session that keeps stating the hot fact."""

    def __init__(self, server: harness.Server) -> None:
        self._session = server.connect("hot")
        self._calls: list[tuple[float, float]] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        call = f"select memfold.ingest_memory({reference.FACT.format(number=HOT)}, 'bench')"
        while not self._ends.wait(0.002):
            began = time.perf_counter()
            self._session.execute(call.encode())
            self._calls.append((began, time.perf_counter()))

    def longest(self, since: float, until: float) -> float:
        """The longest call of those that ran in between, in ms."""
        time.sleep(0.05)
        return 1000 * max(
            (end - began for began, end in self._calls if began < until and end > since), default=0
        )

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        self._session.close()


def _changes(
    server: harness.Server, connection: psycopg.Connection[Any], report: harness.Report, rounds: int
) -> None:
    """Changes beyond additions: merges, undos and a rejection of the hot memory."""
    state = "select (memfold.ingest_memory({}, 'bench')).memory_id"
    facts = (reference.FACT.format(number=number) for number in (HOT, NEW, OWN))
    hot, few, many = (_one(connection, state.format(fact)) for fact in facts)
    said = connection.execute(
        f"select event_id from memfold.memory_events where memory_id = '{hot}' and tier = 1 order by event_id".encode()
    ).fetchall()
    # the result of the writers on separate facts, for one of the facts
    size = _one(connection, f"select observations from memfold.memory_totals where memory_id = '{many}'")
    measured: dict[str, list[tuple[float, float]]] = {}
    writer = _Writer(server)

    def measure(name: str, call: str, *ids: Any) -> Any:
        began = time.perf_counter()
        row = connection.execute(f"select {call}".encode(), ids).fetchone()
        took = time.perf_counter() - began
        measured.setdefault(name, []).append((1000 * took, writer.longest(began, began + took)))
        assert row is not None
        return row[0]

    undo = "count(*) from memfold.undo(%s, 'bench')"
    try:
        for n in range(rounds):
            merge = "(memfold.merge_memories(%s, %s, 'bench')).event_id"
            for said_of, other in (("a new memory", few), (f"a memory of {size:,} observations", many)):
                fold = measure(f"a merge of {said_of} into it", merge, other, hot)
                measure(f"its undo, {said_of}", undo, fold)
            for name, place in (("oldest", n), ("middle", len(said) // 2 + n), ("newest", -1 - n)):
                measure(f"undo of a restatement, the {name}", undo, said[place][0])
            rejection = measure("a rejection", "(memfold.reject_memory(%s, 'bench')).event_id", hot)
            measure("undo of the rejection", undo, rejection)
    finally:
        writer.close()
    wrong = connection.execute("select count(*) from memfold.check_invariants('bench')").fetchone()
    if wrong != (0,):
        raise harness.BenchError(f"check_invariants finds {wrong}")
    report.table(
        f"Changes of the tree of the hot memory, of {len(said):,} restatements, while another session states it (medians of"
        f" {rounds} rounds; the longest wait of the other):",
        ["", "ms", "other writer waited, ms"],
        [
            [
                name,
                harness.verdict(median(took for took, _ in times), CHANGE_MOST, at_most=True),
                f"{max(waited for _, waited in times):.0f}",
            ]
            for name, times in measured.items()
        ],
    )
    report.data["changes_ms"] = measured


def _merges(connection: psycopg.Connection[Any]) -> int:
    return int(
        _one(
            connection,
            "select coalesce(max(observations), 0) from memfold.memory_totals as k join memfold.memories as m"
            f" using (tenant_id, memory_id) where m.content = {reference.FACT.format(number=HOT)}",
        )
    )


def _one(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def _check(connection: psycopg.Connection[Any]) -> None:
    """Check that every call is in the ledger and counted, each turn once."""
    row = connection.execute(
        "select k.observations, k.independent, (select count(*) from memfold.memory_events as e"
        " where e.tenant_id = k.tenant_id and e.memory_id = k.memory_id)"
        " from memfold.memory_totals as k order by 1 desc limit 1"
    ).fetchone()
    if row is None or len(set(row)) != 1:
        raise harness.BenchError(f"observations, independent ones and events differ: {row}")


def _load(server: harness.Server, calls: int) -> None:
    _pgbench(server, LOADERS, ["-t", str(-(-calls // LOADERS))], SETTINGS["synchronous_commit=off"])


def _pgbench(
    server: harness.Server, clients: int, length: list[str], options: str, *, log: bool = False
) -> Counter[int]:
    """Calls for the hot fact; how many each client made, if that is logged."""
    path = server.cluster.base / "hot.sql"
    path.write_text(f"\\set i {HOT}\n\\set t random(1, 1000000000000000)\n{STATEMENT};\n", encoding="utf-8")
    logs = server.cluster.base / "hot_log"
    logged = ["-l", "--log-prefix", str(logs)] if log else []
    done = subprocess.run(
        [
            server.pgbench, "-n", "-M", "prepared", "-c", str(clients), "-j", "2", *length, *logged, "-f", path,
            "-h", server.cluster.base, "-p", str(servers.PORT), "-U", harness.APPLICATION, "hot",
        ],
        env={**os.environ, "PGOPTIONS": f"-c memfold.tenant_id={harness.TENANT} {options}"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    if done.returncode != 0 or "ERROR" in done.stderr:
        raise harness.BenchError(f"pgbench failed: {done.stderr[-500:]}")
    counts: Counter[int] = Counter()
    for file in Path(server.cluster.base).glob("hot_log.*"):
        with file.open(encoding="ascii") as lines:
            counts.update(int(line.split(" ", 1)[0]) for line in lines)
        file.unlink()
    return counts
