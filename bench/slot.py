"""Does a call in a slot, or about a memory, stay as cheap with many values, or aliases?"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from statistics import median
from typing import Any

import harness

SIZES = (10, 1_000, 10_000)
MOST = 1.5
CALLS = 12
# Values are stated minute by minute, each with its object. Aliases are texts that a person has merged into one; they have no
# vectors, because an exact search among 10,000 is another question.
SAY = (
    "select event_id, memory_id from memfold.ingest_memory('value ' || :v || ' of a slot', 'bench', :b, subject => 'Ida',"
    " predicate => 'lives_in', object => :v, observed_at => timestamptz '2024-01-01' + (:t)::int * interval '1 minute')"
)
ALIAS = (
    "select event_id, memory_id from memfold.ingest_memory('text ' || :v || ' of one fact', 'bench', :b, subject => 'Ida',"
    " source_turn_ids => array['turn ' || :t], observed_at => timestamptz '2024-01-01' + (:t)::int * interval '1 minute')"
)
MERGE = "select event_id from memfold.merge_memories(:a, :i, 'bench')"
UNDO = "select count(*) from memfold.undo(:e, 'bench')"
READ = "select count(*) from memfold.current_memories('bench', :b)"
BOTH = ("values of a slot", "aliases of a memory")


class _Calls:
    """Statements of one session, by their text, and what each costs: CPU time in us, WAL in bytes."""

    def __init__(self, server: harness.Server, database: str) -> None:
        self._server, self._database = server, database
        self._sessions: dict[str, harness.Session] = {}
        self._wal = server.connect(database)

    def __call__(self, statement: str, **given: Any) -> tuple[Any, float, float]:
        if statement not in self._sessions:
            self._sessions[statement] = harness.Session(self._server, self._database, statement)
        session = self._sessions[statement]
        wal, cpu = self._position(), session.cpu()
        row = session(given)
        spent = session.cpu() - cpu
        values = [row.get_value(0, i) for i in range(row.nfields)] if row.ntuples else []
        return [v.decode() if v else None for v in values], spent, self._position() - wal

    def _position(self) -> float:
        row = self._wal.execute("select pg_current_wal_insert_lsn() - '0/0'").fetchone()
        assert row is not None
        return float(row[0])

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._wal.close()


def _measure(
    call: _Calls, statement: str, given: Callable[[], dict[str, Any]]
) -> tuple[float, float, list[Any]]:
    """Medians of CPU time and WAL over the calls, after two that warm up; and their results."""
    made = [call(statement, **given()) for _ in range(CALLS + 2)]
    return median(m[1] for m in made[2:]), median(m[2] for m in made[2:]), [m[0] for m in made]


def _one(call: _Calls, kind: str, size: int) -> dict[str, tuple[float, float]]:
    bucket, times, new, known = f"{kind} {size}", count(), count(size), count()
    values = kind == BOTH[0]
    say = SAY if values else ALIAS
    root = None
    for number in range(size):
        made = call(say, v=number, b=bucket, t=next(times))[0][1]
        if not values and root is not None:
            call(MERGE, a=made, i=root)
        root = root or made
    cost = {}
    if values:
        cost["a new one"] = _measure(call, say, lambda: {"v": next(new), "b": bucket, "t": next(times)})
        cost["one that comes back"] = _measure(
            call, say, lambda: {"v": next(known) % 8, "b": bucket, "t": next(times)}
        )
    cost["a restatement"] = _measure(call, say, lambda: {"v": 3, "b": bucket, "t": next(times)})
    others = count(10**6)

    def other() -> dict[str, Any]:
        """Another value of the slot, or another memory."""
        return {"a": call(say, v=f"other {next(others)}", b=bucket, t=next(times))[0][1], "i": root}

    merged = _measure(call, MERGE, other)
    cost["a merge"] = merged
    events = iter(row[0] for row in merged[2][::-1])
    cost["its undo"] = _measure(call, UNDO, lambda: {"e": next(events)})
    cost["current_memories"] = _measure(call, READ, lambda: {"b": bucket})
    return {name: (cpu, wal) for name, (cpu, wal, _) in cost.items()}


def run(server: harness.Server) -> harness.Report:
    """Measure one slot with 10 to 10,000 values, and one memory with as many aliases."""
    report = harness.Report("slot", "A slot with 10 to 10,000 values, a memory with as many aliases")
    server.install("slot")
    with server.connect("slot") as connection:
        connection.execute("select memfold.set_predicate('lives_in', 'bench')")
    call = _Calls(server, "slot")
    found = {kind: {size: _one(call, kind, size) for size in SIZES} for kind in BOTH}
    call.close()
    for kind, by_size in found.items():
        rows = []
        for name in by_size[SIZES[0]]:
            row: list[object] = [name]
            for which in (0, 1):
                costs = [by_size[size][name][which] for size in SIZES]
                row += [f"{cost:,.0f}" for cost in costs]
                row.append(harness.verdict(costs[-1] / costs[0], MOST, at_most=True) if costs[0] else "")
            rows.append(row)
        sizes = [f"{size:,}" for size in SIZES]
        report.table(
            f"By the number of {kind}: CPU time of the backend in us, then WAL in bytes; one client,"
            f" `synchronous_commit = off`, medians of {CALLS} calls:",
            ["", *(f"CPU, {size}" for size in sizes), "ratio", *(f"WAL, {size}" for size in sizes), "ratio"],
            rows,
        )
    report.data = {"costs": found}
    return report
