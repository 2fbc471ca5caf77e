"""What does row-level security cost?"""

from __future__ import annotations

import random
from statistics import median

import dataset
import harness
import newfact
import reference
import replay

MOST = 1.15
FACTS = replay.FACTS
CALLS = 200
BATCHES = 6
SEARCHES = 10

# Half of a batch is new, half of it known: both ways through a batch.
BATCH = (
    "select count(*) from memfold.ingest_memories((select jsonb_agg(jsonb_build_object('content',"
    f" case when n % 2 = 0 then 'Fact ' || (:t::bigint + n) else {reference.FACT.format(number='n')} end))"
    " from generate_series(1, 200) as n), 'bench')"
)
SEARCH = (
    "select count(*) from bench.pool as p, memfold.search_memories(p.embedding, 'bench', 'bench', 'default',"
    " subject => p.subject) as r where p.id = :i"
)
KNOWN = f"select * from memfold.known_memory({reference.FACT.format(number=':i')}, 'bench')"
# rows that an application reads itself, under the policy for its own role
READ = (
    "select m.content, k.observations from bench.ids as b"
    " join memfold.memories as m on m.tenant_id = 'bench' and m.memory_id = b.memory_id"
    " join memfold.memory_totals as k on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id where b.i = :i"
)
QUESTIONS = {
    "replay": (replay.INGEST, 2 * CALLS),
    "new fact with vector": (newfact.INGEST, CALLS),
    "batch of 200": (BATCH, BATCHES),
    "search_memories": (SEARCH, SEARCHES),
    "known_memory": (KNOWN, 5 * CALLS),
    "row read by its id": (READ, 10 * CALLS),
}


def _calls(count: int) -> list[harness.Call]:
    return [
        {"i": random.randint(1, FACTS), "t": random.randint(1, 10**12)} for _ in range(count)
    ]  # fmt: skip


def run(server: harness.Server, data: dataset.Dataset, *, rounds: int) -> harness.Report:
    """Measure both databases in turn, each call of the same kind on copies of one database."""
    report = harness.Report("isolation", "Row level security, on and off: CPU and wall time of a call")
    newfact.prepare(server, data, "isolation_on")
    with server.connect("isolation_on") as connection:
        connection.execute(
            f"select count(*) from generate_series(1, {FACTS}) as n,"
            f" memfold.ingest_memory({reference.FACT.format(number='n')}, 'bench')".encode()
        )
        connection.execute(
            "create table bench.ids as select row_number() over (order by memory_id) as i, memory_id"
            " from memfold.memories where content like 'User likes to drink%'"
        )
        connection.execute(
            f"create index on bench.ids (i); grant select on bench.ids to {harness.APPLICATION}"
        )
        connection.execute("vacuum analyze")
    server.create("isolation_off", "isolation_on")
    with server.connect("isolation_off") as connection:
        tables = connection.execute(
            "select relname from pg_class where relnamespace = 'memfold'::regnamespace and relrowsecurity"
        ).fetchall()
        for (table,) in tables:
            connection.execute(f"alter table memfold.{table} disable row level security".encode())
    measured: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name, (statement, count) in QUESTIONS.items():
        sides = {"on": "isolation_on", "off": "isolation_off"}
        sessions = {side: harness.Session(server, database, statement) for side, database in sides.items()}
        measured[name] = {side: [] for side in sides}
        for turn in range(rounds + 1):
            given = _calls(count)
            # they take turns in going first, because the second finds warmer caches
            for side in sorted(sides, reverse=bool(turn % 2)):
                found = sessions[side].measure(given)
                if turn:  # the first round warms up
                    measured[name][side].append(found)
        for session in sessions.values():
            session.close()
    rows = []
    for name, by_side in measured.items():
        row: list[object] = [name]
        for which in (1, 0):
            on, off = ([found[which] for found in by_side[side]] for side in ("on", "off"))
            row += [f"{median(off):.0f}", f"{median(on):.0f}"]
            ratio = harness.ratio(on, off)
            row.append(harness.verdict(ratio, MOST, at_most=True) if which == 1 else f"{ratio:.2f}")
        rows.append(row)
    report.table(
        "As an application, one client, `synchronous_commit = off`; medians over the rounds of the mean CPU time of the"
        " backend and of the median wall time of a call, in us. Off: `alter table ... disable row level security` on all"
        f" {len(tables)} tables:",
        ["", "CPU, off", "CPU, on", "ratio", "wall, off", "wall, on", "ratio"],
        rows,
    )
    report.data = {"us": measured}
    return report
