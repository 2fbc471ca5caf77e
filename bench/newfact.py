"""What does a new fact with a vector cost, in a scope of 20 neighbours?"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from statistics import median

import dataset
import harness
import load
import reference

SUBJECTS = 1_000
POOL = 10_000
CALLS = 200

# Each candidate once: a repeated vector would have an identical neighbour.
INGEST = (
    "select r.* from bench.pool as p, memfold.ingest_memory(p.content || ' ' || :t::bigint, 'bench',"
    " subject => p.subject, embedding => p.embedding, embedding_model => 'bench',"
    " source_turn_ids => array['turn-' || :t::bigint]) as r"
    f" where p.id = (select nextval('bench.ingested') % {POOL})"
)
INSERT = reference.NEW_FACT.replace(":next", f"(select nextval('bench.inserted') % {POOL})")
READ = (
    "select p.content || ' ' || :t::bigint, p.subject, p.embedding from bench.pool as p"
    f" where p.id = (select nextval('bench.read') % {POOL})"
)
VARIANTS = {"ingest_memory": INGEST, "bare insert": INSERT}
FLOORS = {"1 ms commits": 0.75}

TO_REFERENCE = """
insert into reference.facts select * from memfold.memories;
insert into reference.counters select * from memfold.memory_counters;
insert into reference.vectors select * from memfold.memory_vectors;
insert into reference.sources select * from memfold.memory_sources;
insert into reference.events select * from memfold.memory_events;
"""


def pool(data: dataset.Dataset) -> Iterator[load.Row]:
    """New texts of their subjects, with vectors near the subject's but below the judge threshold."""
    i = 0
    while i < POOL:
        for subject, vector in enumerate(load.around(data.real_vectors[:SUBJECTS], 0.7, seed=i)):
            yield i, f"Subject {subject}", data.real_texts[SUBJECTS + i], vector
            i += 1


def prepare(server: harness.Server, data: dataset.Dataset, database: str) -> None:
    """Create a database with the same memories on both sides."""
    server.install(database)
    load.load(server, database, load.variants(data, SUBJECTS, SUBJECTS * load.SCOPE))
    reference.create(server, database)
    with server.connect(database) as connection:
        connection.execute(load.POOL)
        for name in ("ingested", "inserted", "read"):
            connection.execute(f"create sequence bench.{name}")
        connection.execute(f"grant usage on all sequences in schema bench to {harness.APPLICATION}")
        load.copy(connection, "bench.pool", pool(data))
        connection.execute(TO_REFERENCE)
        connection.execute("vacuum analyze")


def calls(count: int = CALLS) -> list[harness.Call]:
    """Parameters of this many new facts."""
    return [{"t": random.randint(1, 10**12)} for _ in range(count)]


def run(server: harness.Server, data: dataset.Dataset, *, rounds: int, seconds: float) -> harness.Report:
    """Measure, and compare with the target."""
    report = harness.Report("newfact", f"A new fact with a vector, in a scope of {load.SCOPE} neighbours")
    prepare(server, data, "newfact")
    head = "\\set t random(1, 1000000000000)\n"
    rows = []
    throughput: dict[str, dict[str, list[float]]] = {}
    for setting, options in harness.SETTINGS.items():
        for clients in (8, 1):
            measured: dict[str, list[float]] = {name: [] for name in VARIANTS}
            for turn in range(rounds + 1):
                # Each round begins with scopes of 20, on a copy that is already on disk before a commit would wait
                # for that.
                server.create("newfact_copy", "newfact")
                os.sync()
                for name, statement in VARIANTS.items():
                    tps = harness.pgbench(
                        server,
                        "newfact_copy",
                        f"{head}{statement};\n",
                        options=options,
                        clients=clients,
                        seconds=seconds if turn else min(seconds, 1),
                    )
                    if turn:  # the first round warms up
                        measured[name].append(tps)
            throughput[f"{setting}, {clients} clients"] = measured
            value = harness.ratio(measured["ingest_memory"], measured["bare insert"])
            floor = FLOORS.get(setting) if clients == 8 else None
            rows.append(
                [f"{setting}, {clients} client{'s'[: clients - 1]}"]
                + [f"{median(measured[name]):,.0f}" for name in VARIANTS]
                + [f"{value:.2f}" if floor is None else harness.verdict(value, floor)]
            )
    report.table(
        "Transactions a second (medians), and the ratio to the bare insert of the same rows:",
        ["", *VARIANTS, "ratio"],
        rows,
    )
    server.create("newfact_copy", "newfact")
    cpu = harness.cpu(
        server, "newfact_copy", {**VARIANTS, "reading the candidate alone": READ}, calls, rounds=rounds
    )
    harness.cpu_table(report, cpu, "ingest_memory")
    with server.connect("newfact_copy") as connection:
        actions = connection.execute(
            "select action, count(*) from memfold.memory_events where source_turn_ids[1] like 'turn-%'"
            " group by 1 order by 2 desc"
        ).fetchall()
    report.note("What ingest_memory decided: " + ", ".join(f"{n} {action}" for action, n in actions) + ".")
    report.data = {"tps": throughput, "cpu_us": cpu, "actions": dict(actions)}
    return report
