"""What does a replay, a known fact from a new conversation turn, cost?"""

from __future__ import annotations

import random
from statistics import median

import harness
import reference

FACTS = 4_000
CALLS = 300

INGEST = (
    f"select memfold.ingest_memory({reference.FACT.format(number=':i')}, 'bench',"
    " source_turn_ids => array['turn-' || :t::bigint])"
)
VARIANTS = {
    "ingest_memory": INGEST,
    "three writes": reference.THREE_WRITES,
    "bare upsert": reference.BARE_UPSERT,
}
# (setting, reference): the target ratio at 8 clients
FLOORS = {
    ("durable", "three writes"): 0.6,
    ("synchronous_commit=off", "three writes"): 0.45,
    ("1 ms commits", "bare upsert"): 0.9,
}


def prepare(server: harness.Server, database: str) -> None:
    """Create a database in which both sides know the facts."""
    server.install(database)
    reference.create(server, database)
    with server.connect(database) as connection:
        connection.execute(
            f"select count(*) from generate_series(1, {FACTS}) as n,"
            f" memfold.ingest_memory({reference.FACT.format(number='n')}, 'bench')"
        )
        connection.execute(
            "insert into reference.memories"
            " (tenant_id, bucket_id, content, content_hash, source_confidence, extractor_confidence)"
            " select 'bench', 'default', f, sha256(convert_to(lower(f), 'UTF8')), 0.5, 0.5"
            f" from generate_series(1, {FACTS}) as n, concat({reference.FACT.format(number='n')}) as f"
        )
        connection.execute("vacuum analyze")


def calls(count: int = CALLS) -> list[harness.Call]:
    """Parameters of this many replays."""
    return [{"i": random.randint(1, FACTS), "t": random.randint(1, 10**12)} for _ in range(count)]


def run(server: harness.Server, *, rounds: int, seconds: float) -> harness.Report:
    """Measure, and compare with the target."""
    report = harness.Report("replay", f"Replay of one of {FACTS:,} known facts, each from a new source turn")
    prepare(server, "replay")
    head = f"\\set i random(1, {FACTS})\n\\set t random(1, 1000000000000)\n"
    rows = []
    throughput: dict[str, dict[str, list[float]]] = {}
    for setting, options in harness.SETTINGS.items():
        for clients in (8, 1):
            measured: dict[str, list[float]] = {name: [] for name in VARIANTS}
            for turn in range(rounds + 1):
                for name, statement in VARIANTS.items():
                    tps = harness.pgbench(
                        server,
                        "replay",
                        f"{head}{statement};\n",
                        options=options,
                        clients=clients,
                        seconds=seconds if turn else min(seconds, 1),
                    )
                    if turn:  # the first round warms up
                        measured[name].append(tps)
            throughput[f"{setting}, {clients} clients"] = measured
            row = [f"{setting}, {clients} client{'s'[: clients - 1]}"]
            row += [f"{median(measured[name]):,.0f}" for name in VARIANTS]
            for other in ("three writes", "bare upsert"):
                value = harness.ratio(measured["ingest_memory"], measured[other])
                floor = FLOORS.get((setting, other)) if clients == 8 else None
                row.append(f"{value:.2f}" if floor is None else harness.verdict(value, floor))
            rows.append(row)
    report.table(
        "Transactions a second (medians), and the ratio of ingest_memory to either statement:",
        ["", *VARIANTS, "/ three writes", "/ bare upsert"],
        rows,
    )
    cpu = harness.cpu(server, "replay", VARIANTS, calls, rounds=rounds)
    harness.cpu_table(report, cpu, "ingest_memory")
    report.data = {"tps": throughput, "cpu_us": cpu}
    return report
