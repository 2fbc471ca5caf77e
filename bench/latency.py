"""Question 3: does the latency of a call depend on how many memories the tenant has?"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from statistics import median

import dataset
import harness
import load
import numpy as np

SMALL = 10_000
HITS = 300
DECISIONS = 100  # a round and kind
MOST = 1.3
KINDS = ("hit", "paraphrase", "new")
TITLES = {
    "hit": "tier 1, known text",
    "paraphrase": "tier 2, paraphrase that merges",
    "new": "tier 2, new fact",
}
HIT = (
    "select r.* from bench.pool as p, memfold.ingest_memory(p.content, 'bench', subject => p.subject,"
    " source_turn_ids => array['turn-' || p.id]) as r where p.id = :i::bigint"
)
DECISION = (
    "select r.* from bench.pool as p, memfold.ingest_memory(p.content, 'bench', subject => p.subject,"
    " embedding => p.embedding, embedding_model => 'bench', source_turn_ids => array['turn-' || p.id]) as r"
    " where p.id = :i::bigint"
)
SETTINGS = {name: harness.SETTINGS[name] for name in ("durable", "synchronous_commit=off")}


class Plan:
    """Which candidate is asked when: each once, so that nothing is warm that would not be in use.

    A round of the small tenant is a copy of it and asks each of its 500 subjects at most once. The large
    tenant has subjects enough for all rounds.
    """

    def __init__(self, data: dataset.Dataset, memories: int, rounds: int, per_round_copy: bool) -> None:
        self.data = data
        self.memories = memories
        self.subjects = memories // load.SCOPE
        self.rounds = rounds + 1  # one warms up
        self.copied = per_round_copy
        self.cells = [(setting, kind) for setting in SETTINGS for kind in KINDS]
        self.ids: dict[tuple[int, str, str], range] = {}

    def pool(self) -> Iterator[load.Row]:
        """The candidates, and with them ``ids``."""
        shuffled = random.Random(7)
        rows: list[load.Row] = []
        count = len(self.data.real_texts)
        free: list[int] = []
        for turn in range(self.rounds):
            if self.copied or not free:
                free = shuffled.sample(range(self.subjects), self.subjects)
            for setting, kind in self.cells:
                first = len(rows)
                if kind == "hit":
                    for n in shuffled.sample(range(self.memories), HITS):
                        turn_of, i = divmod(n, self.subjects)
                        text = self.data.real_texts[i] + (f" (variant {turn_of})" if turn_of else "")
                        rows.append((len(rows), f"Subject {i}", text, None))
                else:
                    chosen = [free.pop() for _ in range(DECISIONS)]
                    near = 0.97 if kind == "paraphrase" else 0.7
                    vectors = load.around(np.array(self.data.real_vectors[chosen]), near, seed=len(rows))
                    for i, vector in zip(chosen, vectors, strict=True):
                        text = (
                            f"{self.data.real_texts[i]}, as we know"
                            if kind == "paraphrase"
                            else self.data.real_texts[(i + self.subjects // 2) % count]
                        )
                        rows.append((len(rows), f"Subject {i}", text, vector))
                self.ids[turn, setting, kind] = range(first, len(rows))
        yield from rows


def prepare(server: harness.Server, database: str, plan: Plan) -> float:
    """Load a tenant and its candidates; gives the seconds that it took."""
    begun = time.monotonic()
    server.install(database)
    load.load(server, database, load.variants(plan.data, plan.subjects, plan.memories))
    with server.connect(database) as connection:
        connection.execute(load.POOL)
        load.copy(connection, "bench.pool", plan.pool())
        connection.execute("vacuum analyze bench.pool")
    return time.monotonic() - begun


def run(server: harness.Server, data: dataset.Dataset, *, rounds: int, memories: int) -> harness.Report:
    """Measure, and say how it compares with what was asked for."""
    if len(data.real_texts) * load.SCOPE < memories:
        raise dataset.DatasetError(f"{memories:,} memories need {memories // load.SCOPE:,} real texts")
    report = harness.Report(
        "latency",
        f"Latency with {SMALL:,} and with {memories:,} memories in the tenant, {load.SCOPE} in a scope",
    )
    plans = {
        "small": Plan(data, SMALL, rounds, per_round_copy=True),
        "large": Plan(data, memories, rounds, per_round_copy=False),
    }
    seconds = {name: prepare(server, name, plan) for name, plan in plans.items()}
    wall: dict[str, dict[str, list[float]]] = {}
    cpu: dict[str, dict[str, list[float]]] = {}
    actions: dict[str, int] = {}
    for turn in range(rounds + 1):
        server.create("small_copy", "small")
        for setting, options in SETTINGS.items():
            for kind in KINDS:
                for name, plan in plans.items():
                    session = harness.Session(
                        server,
                        "small_copy" if name == "small" else name,
                        HIT if kind == "hit" else DECISION,
                        options=options,
                    )
                    ids = [{"i": i} for i in plan.ids[turn, setting, kind]]
                    warm, counted = ids[: len(ids) // 5], ids[len(ids) // 5 :]
                    session.measure(warm)  # the session's own caches: plans, catalog
                    taken, spent = session.measure(counted)
                    session.close()
                    if turn:
                        cell = f"{TITLES[kind]}, {setting}"
                        wall.setdefault(cell, {}).setdefault(name, []).append(taken)
                        cpu.setdefault(cell, {}).setdefault(name, []).append(spent)
    with server.connect("large") as connection:
        actions = dict(
            connection.execute(
                "select concat_ws(' ', action, 'tier ' || tier), count(*) from memfold.memory_events"
                " where source_turn_ids[1] like 'turn-%' group by 1 order by 1"
            ).fetchall()
        )
    rows = []
    for cell, measured in wall.items():
        small, large = median(measured["small"]), median(measured["large"])
        rows.append(
            [
                cell,
                f"{small:.0f}",
                f"{large:.0f}",
                harness.verdict(harness.ratio(measured["large"], measured["small"]), MOST, at_most=True),
                f"{median(cpu[cell]['small']):.0f}",
                f"{median(cpu[cell]['large']):.0f}",
                f"{harness.ratio(cpu[cell]['large'], cpu[cell]['small']):.2f}",
            ]
        )
    report.table(
        "Median latency of a call and CPU time of the backend, in us, one client:",
        ["", f"{SMALL:,}", f"{memories:,}", "ratio", f"CPU {SMALL:,}", f"CPU {memories:,}", "ratio"],
        rows,
    )
    report.note(
        f"Loaded in {seconds['small']:.0f} s and {seconds['large']:.0f} s. Decided in the large tenant: "
        + ", ".join(f"{n} {action}" for action, n in actions.items())
        + "."
    )
    report.data = {"wall_us": wall, "cpu_us": cpu, "load_seconds": seconds, "actions": actions}
    return report
