"""Does a call take longer if there are more memories?

Measured for one tenant that holds them all, and for many that hold 100 each: replays, paraphrases and new facts in
scopes of 20; then searches of the whole bucket: its newest 10,000 vectors one by one, and through HNSW.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import dataset
import harness
import load
import numpy as np

SIZES = (10_000, 100_000, 1_000_000, 5_000_000)
TENANT = 100  # memories of each of many tenants
HITS = 300  # per round and kind
DECISIONS = 100
WIDE = 60
RECALL = 500
NEIGHBOURS = 20
SCOPED = {"hit": "replay", "paraphrase": "paraphrase that merges", "new": "new fact"}
# A paraphrase, by what is searched: each its own text.
SAID = {"scope": "as we know", "exact": "as was said", "hnsw": "as you said"}
MOST, MOST_WIDE = 1.2, 2.0
SETTINGS = {name: harness.SETTINGS[name] for name in ("durable", "synchronous_commit=off")}

POOL = """
create table bench.pool (
    id bigint primary key, tenant text collate "C", subject text, content text, embedding vector
);
grant select on bench.pool to bench_app
"""
# Set the session's tenant first, because the call depends on it.
CALL = (
    "select r.action from bench.pool as p"
    " cross join lateral (select set_config('memfold.tenant_id', p.tenant, false) as tenant offset 0) as t"
    " cross join lateral memfold.ingest_memory(p.content, t.tenant, subject => p.subject,"
    " {embedding} source_turn_ids => array['turn-' || p.id]) as r where p.id = :i::bigint"
)
HIT = CALL.format(embedding="")
DECISION = CALL.format(embedding="embedding => p.embedding, embedding_model => 'bench',")
FIND = (
    "select memory_id, matched_similarity from memfold.find_similar(%b, 'bench', '{tenant}', 'default', -1,"
    f" max_results => {NEIGHBOURS})"
)
# A second tenant, a fortieth of the size of the largest one: most near vectors belong to the other.
BESIDE = 40

Pool = tuple[str, int, str, str, Any]


@dataclass
class Plan:
    """One database, and the order of the candidates: each is used once, so that no cache is warmer than in use.

    The smallest size has enough subjects for only one round, so each of its rounds uses a copy.
    """

    data: dataset.Dataset
    many: bool
    memories: int
    rounds: int
    cells: dict[tuple[int, str, str], range] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{'many' if self.many else 'one'}_{self.memories}"

    @property
    def subjects(self) -> int:
        return self.memories // load.SCOPE

    @property
    def copied(self) -> bool:
        return self.memories == SIZES[0]

    def kinds(self) -> dict[tuple[str, str], int]:
        """How many candidates a round has, by setting and kind."""
        kinds = {(s, k): HITS if k == "hit" else DECISIONS for s in SETTINGS for k in SCOPED}
        if not self.many:
            kinds |= {(search, k): WIDE for search in ("exact", "hnsw") for k in SCOPED if k != "hit"}
        return kinds

    def tenant(self, subject: int) -> str:
        return f"tenant {subject * load.SCOPE // TENANT}" if self.many else harness.TENANT

    def pool(self) -> Iterator[Pool]:
        """The candidates, and with them ``cells``."""
        shuffled = random.Random(7)
        count = len(self.data.real_texts)
        number = 0
        free: dict[str, list[int]] = {}
        for turn in range(self.rounds + 1):  # one warms up
            if self.copied:
                free = {}
            for (setting, kind), size in self.kinds().items():
                self.cells[turn, setting, kind] = range(number, number + size)
                if kind == "hit":
                    for n in shuffled.sample(range(self.memories), size):
                        again, i = divmod(n, self.subjects)
                        text = self.data.real_texts[i] + (f" (variant {again})" if again else "")
                        yield self.tenant(i), number, f"Subject {i}", text, None
                        number += 1
                    continue
                # bucket-wide measurements start on a separate copy
                search = setting if setting in SAID else "scope"
                stock = free.setdefault(search, [])
                if len(stock) < size:
                    stock[:] = shuffled.sample(range(self.subjects), self.subjects)
                chosen = [stock.pop() for _ in range(size)]
                near = 0.97 if kind == "paraphrase" else 0.7
                vectors = load.around(np.array(self.data.real_vectors[chosen]), near, seed=number)
                for i, vector in zip(chosen, vectors, strict=True):
                    text = (
                        f"{self.data.real_texts[i]}, {SAID[search]}"
                        if kind == "paraphrase"
                        else f"{self.data.real_texts[(i + self.subjects // 2) % count]} ({setting})"
                    )
                    yield self.tenant(i), number, f"Subject {i}", text, vector
                    number += 1

    def prepare(self, server: harness.Server, beside: int) -> float:
        """Load memories and candidates; returns the seconds."""
        begun = time.monotonic()
        server.install(self.name)
        tenant = f"'tenant ' || s.id % {self.subjects} * {load.SCOPE} / {TENANT}"
        load.load(
            server,
            self.name,
            load.variants(self.data, self.subjects, self.memories),
            tenant if self.many else f"'{harness.TENANT}'",
        )
        if beside:
            load.load(
                server, self.name, load.variants(self.data, beside // load.SCOPE, beside, seed=2), "'beside'"
            )
        with server.connect(self.name) as connection:
            connection.execute(POOL)
            load.copy(connection, "bench.pool", self.pool(), {"tenant": "text", **load.COLUMNS})
            connection.execute("vacuum analyze bench.pool")
        return time.monotonic() - begun


Measured = dict[str, dict[str, list[float]]]  # by question and plan, one figure per round


WARM = """
create extension if not exists pg_prewarm;
select pg_prewarm(c.oid) from pg_class as c
where c.relnamespace in ('memfold'::regnamespace, 'bench'::regnamespace) and c.relkind in ('r', 'i')
"""


class Rounds:
    """All plans in turn, round by round."""

    def __init__(self, server: harness.Server, plans: Sequence[Plan], rounds: int) -> None:
        self.server, self.plans, self.rounds = server, plans, rounds
        self.wall: Measured = {}
        self.cpu: Measured = {}

    def run(self, cells: Mapping[tuple[str, str], str], plans: Sequence[Plan]) -> None:
        """Measure these cells (setting and kind, and their names) of these plans."""
        for turn in range(self.rounds + 1):
            for plan in plans:
                database = "copy" if plan.copied else plan.name
                if plan.copied:
                    self.server.create(database, plan.name)
                # The same conditions for all: pages are in shared_buffers, as after copying and on a server in use; and
                # the first change of a page after a checkpoint writes the whole page to the log.
                with self.server.connect(database) as connection:
                    connection.execute(WARM)
                    connection.execute("checkpoint")
                for (setting, kind), title in cells.items():
                    session = harness.Session(
                        self.server,
                        database,
                        HIT if kind == "hit" else DECISION,
                        options=SETTINGS.get(setting, harness.OFF),
                    )
                    calls = [{"i": i} for i in plan.cells[turn, setting, kind]]
                    warm, counted = calls[: len(calls) // 5], calls[len(calls) // 5 :]
                    session.measure(warm)  # the session's own caches: plans, catalog
                    taken, spent = session.measure(counted)
                    session.close()
                    if turn:
                        self.wall.setdefault(title, {}).setdefault(plan.name, []).append(taken)
                        self.cpu.setdefault(title, {}).setdefault(plan.name, []).append(spent)
                if plan.copied:
                    self.server.drop("copy")


def build(server: harness.Server, plan: Plan) -> tuple[float, int]:
    """Create the index and the policy that uses it; returns the seconds and the bytes."""
    with server.connect(plan.name) as connection:
        connection.execute("set maintenance_work_mem = '6GB'")
        begun = time.monotonic()
        connection.execute("select memfold.create_vector_index('bench')")
        taken = time.monotonic() - begun
        row = connection.execute(
            "select pg_relation_size(memfold_internal._vector_index('bench'))"
        ).fetchone()
    assert row is not None
    return taken, row[0]


def policy(server: harness.Server, plan: Plan) -> None:
    """Make tier 2 look at the whole bucket."""
    with server.connect(plan.name) as connection:
        connection.execute("select memfold.set_policy('bench', 'default', scope => 'bucket')")


@dataclass
class Asked:
    """Queries with known true best neighbours among a tenant's loaded vectors."""

    plan: Plan
    tenant: str
    near: float
    queries: dataset.Floats
    best: Any  # the highest cosine so far, by query


def questions(data: dataset.Dataset, plan: Plan, tenant: str, subjects: int) -> list[Asked]:
    """Vectors like those of paraphrases and of new facts."""
    asked = []
    for near in (0.97, 0.7):
        chosen = random.Random(11).sample(range(subjects), min(RECALL, subjects))
        queries = load.around(np.array(data.real_vectors[chosen]), near, seed=99)
        asked.append(Asked(plan, tenant, near, queries, np.full(len(queries), -1.0)))
    return asked


def compare(data: dataset.Dataset, asked: Sequence[Asked], subjects: int, memories: int, seed: int) -> None:
    """Fill in ``best``, by comparing all."""
    for turn in range(memories // subjects):
        rows = load.variant(data, subjects, turn, seed)
        for one in asked:
            one.best = np.maximum(one.best, (one.queries @ rows.T).max(axis=1))


def recall(server: harness.Server, one: Asked) -> tuple[float, float]:
    """The share of queries whose best neighbour is among the first N, and the median microseconds of a call."""
    from pgvector.psycopg import register_vector

    hits, walls = 0, []
    with server.connect(one.plan.name) as connection:
        connection.execute("select set_config('memfold.tenant_id', %s, false)", [one.tenant])
        register_vector(connection)
        connection.execute("set role memfold_app")
        for query, best in zip(one.queries, one.best, strict=True):
            begun = time.perf_counter()
            found = connection.execute(FIND.format(tenant=one.tenant), [query], prepare=True).fetchall()
            walls.append((time.perf_counter() - begun) * 1e6)
            # vectors added by the rounds may be nearer still; similarities have six decimals
            hits += bool(found) and max(row[1] for row in found) >= best - 2e-6
    return hits / len(one.queries), median(walls)


def run(server: harness.Server, data: dataset.Dataset, *, rounds: int, memories: int) -> harness.Report:
    """Measure, and compare with the target."""
    if len(data.real_texts) * load.SCOPE < memories:
        raise dataset.DatasetError(f"{memories:,} memories need {memories // load.SCOPE:,} real texts")
    sizes = [size for size in SIZES if size <= memories]
    report = harness.Report(
        "growth", f"Latency with {sizes[0]:,} to {sizes[-1]:,} memories, {load.SCOPE} in a scope"
    )
    plans = [Plan(data, many, size, rounds) for many in (False, True) for size in sizes]
    seconds = {}
    beside = sizes[-1] // BESIDE // load.SCOPE * load.SCOPE
    for plan in plans:
        seconds[plan.name] = plan.prepare(server, 0 if plan.many or plan.memories != sizes[-1] else beside)
        print(f"loaded {plan.name} in {seconds[plan.name]:.0f} s", flush=True)
    one = plans[: len(sizes)]
    measured = Rounds(server, plans, rounds)

    measured.run({(s, k): f"{title}, {s}" for s in SETTINGS for k, title in SCOPED.items()}, plans)
    for many in (False, True):
        names = [plan.name for plan in plans if plan.many == many]
        titles = [f"{title}, {s}" for s in SETTINGS for title in SCOPED.values()]
        whose = f"{TENANT} memories in each of many tenants" if many else "One tenant that holds all memories"
        table(
            report,
            f"{whose}: median latency of a call, in us, one client.",
            measured,
            titles,
            names,
            sizes,
            MOST,
        )

    wide = {"paraphrase": "paraphrase that merges", "new": "new fact"}
    names = [plan.name for plan in one]
    for plan in one:
        policy(server, plan)
    exact = {("exact", k): f"{title}, newest 10,000" for k, title in wide.items()}
    measured.run(exact, one)
    built = {}
    for plan in one:
        built[plan.name] = build(server, plan)
        print(f"index of {plan.name} made in {built[plan.name][0]:.0f} s", flush=True)
    hnsw = {("hnsw", k): f"{title}, HNSW" for k, title in wide.items()}
    measured.run(hnsw, one)
    table(
        report,
        "Bucket-wide tier 2, one tenant, synchronous_commit=off: median latency of a call, in us, one client.",
        measured, [*exact.values(), *hnsw.values()], names, sizes, MOST_WIDE,
    )  # fmt: skip

    asked = []
    for plan in one:
        own = questions(data, plan, harness.TENANT, plan.subjects)
        compare(data, own, plan.subjects, plan.memories, seed=1)
        asked += own
    small = questions(data, one[-1], "beside", beside // load.SCOPE)
    compare(data, small, beside // load.SCOPE, beside, seed=2)
    asked += small
    shares = []
    for question in asked:
        share, taken = recall(server, question)
        shares.append((question, share, taken))
    report.table(
        f"Recall of the true best neighbour among the {NEIGHBOURS} found, by comparing all:",
        ["", "vector is asked for", "queries", "recall", "us"],
        [
            [
                f"{q.plan.memories:,}" if q.tenant != "beside" else f"{beside:,} beside {q.plan.memories:,}",
                f"at cosine {q.near:.2f} from a memory",
                len(q.queries),
                harness.verdict(share, 0.99).replace(f"{share:.2f}", f"{share:.3f}", 1),
                f"{taken:.0f}",
            ]
            for q, share, taken in shares
        ],
    )
    report.note(
        "Loaded in "
        + ", ".join(f"{taken:.0f} s ({name.replace('_', ' ')})" for name, taken in seconds.items())
        + ". Indexes made in "
        + ", ".join(f"{taken:.0f} s ({size / 1e6:,.0f} MB)" for taken, size in built.values())
        + "."
    )
    with server.connect(one[-1].name) as connection:
        actions = dict(
            connection.execute(
                "select concat_ws(' ', action, 'tier ' || tier), count(*) from memfold.memory_events"
                " where source_turn_ids[1] like 'turn-%' group by 1 order by 1"
            ).fetchall()
        )
    report.note(
        f"Decided in the largest tenant: {', '.join(f'{n} {action}' for action, n in actions.items())}."
    )
    report.data = {
        "wall_us": measured.wall,
        "cpu_us": measured.cpu,
        "load_seconds": seconds,
        "index": built,
        "recall": [[q.plan.name, q.tenant, q.near, share, taken] for q, share, taken in shares],
        "actions": actions,
    }
    return report


def table(
    report: harness.Report,
    caption: str,
    measured: Rounds,
    titles: Sequence[str],
    names: Sequence[str],
    sizes: Sequence[int],
    most: float,
) -> None:
    """Add a table of medians, and of the ratios of a million memories (or the largest size) to the smallest."""
    over = names[sizes.index(1_000_000) if 1_000_000 in sizes else -1]
    report.table(
        caption,
        ["", *(f"{size:,}" for size in sizes), "ratio", "ratio of CPU times"],
        [
            [
                title,
                *(f"{median(measured.wall[title][name]):.0f}" for name in names),
                harness.verdict(
                    harness.ratio(measured.wall[title][over], measured.wall[title][names[0]]),
                    most,
                    at_most=True,
                ),
                f"{harness.ratio(measured.cpu[title][over], measured.cpu[title][names[0]]):.2f}",
            ]
            for title in titles
        ],
    )
