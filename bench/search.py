"""What does load-time dedup add to a search, and does the search find the nearest memories?

One bucket is searched through HNSW by the same queries with and without it, as the application's role.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import dataset
import harness
import load
import numpy as np

SMALL = (1_000, 10_000)  # searched exactly
QUERIES = 60  # per round and variant
RECALL = 200
RESULTS = 10
NEAR = (0.97, 0.7)
MOST, LEAST = 1.3, 0.95
CROWDED = 0.6  # preset store_and_load's
SAID = ("{}", "{}, as we know", "we know: {}")
PARAPHRASE = 0.95

POOL = """
create table bench.pool (id bigint primary key, embedding vector);
grant select on bench.pool to bench_app
"""
SEARCH = (
    "select r.* from bench.pool as p cross join lateral"
    " memfold.search_memories(p.embedding, 'bench', '{tenant}', 'default', {options}) as r where p.id = :i::bigint"
)
FIND = (
    "select r.* from bench.pool as p cross join lateral"
    " memfold.find_similar(p.embedding, 'bench', '{tenant}', 'default', -1, max_results => 30) as r"
    " where p.id = :i::bigint"
)
VARIANTS = {
    "without": SEARCH.format(tenant=harness.TENANT, options="deduplicate => false"),
    "with dedup": SEARCH.format(tenant=harness.TENANT, options="deduplicate => true"),
    f"with dedup at {CROWDED}": SEARCH.format(tenant=harness.TENANT, options=f"dedup_threshold => {CROWDED}"),
}


def memories(data: dataset.Dataset, subjects: int, count: int, seed: int = 1) -> Iterator[load.Row]:
    """For each subject three texts that say the same, near one another, and seventeen others farther away."""
    n = 0
    for turn in range(-(-count // subjects)):
        some = min(subjects, count - n)
        for i, embedding in enumerate(vectors(data, some, turn, seed)):
            text = data.real_texts[i]
            said = SAID[turn].format(text) if turn < len(SAID) else f"{text} (variant {turn})"
            yield n, f"Subject {i}", said, embedding
            n += 1


def vectors(data: dataset.Dataset, count: int, turn: int, seed: int) -> dataset.Floats:
    """The first vectors of a turn."""
    if 0 < turn < len(SAID):
        return load.around(np.array(data.real_vectors[:count]), PARAPHRASE, [seed, turn])
    return load.variant(data, count, turn, seed)


def best(data: dataset.Dataset, queries: dataset.Floats, subjects: int, count: int) -> dataset.Floats:
    """The cosine of each query's RESULTS-th best, by comparing all."""
    top = np.full((len(queries), 0), -1.0, dtype=np.float32)
    for turn in range(-(-count // subjects)):
        rows = vectors(data, min(subjects, count - turn * subjects), turn, 1)
        top = np.sort(np.hstack([top, queries @ rows.T]), axis=1)[:, -RESULTS:]
    return np.asarray(top[:, 0])


def similarities(session: harness.Session, i: int) -> list[float]:
    """Figures for the memories that a search shows."""
    found = session({"i": i})
    column = [found.fname(c) for c in range(found.nfields)].index(b"similarity")
    return [float(found.get_value(row, column) or b"") for row in range(found.ntuples)]


def answer(session: harness.Session, i: int) -> list[bytes | None]:
    """All of it."""
    found = session({"i": i})
    return [found.get_value(row, c) for row in range(found.ntuples) for c in range(found.nfields)]


def run(server: harness.Server, data: dataset.Dataset, *, rounds: int, memories: int) -> harness.Report:
    """Measure, and compare with the target."""
    subjects = -(-memories // load.SCOPE)
    if len(data.real_texts) < subjects:
        raise dataset.DatasetError(f"{memories:,} memories need {subjects:,} real texts")
    report = harness.Report("search", f"Search of {memories:,} memories, with and without load-time dedup")
    seconds, built, size = prepare(server, data, subjects, memories, rounds)

    walls: dict[str, dict[str, list[float]]] = {}
    cpus: dict[str, dict[str, list[float]]] = {}
    number = itertools.count()
    for near in NEAR:
        sessions = {name: harness.Session(server, "search", said) for name, said in VARIANTS.items()}
        wall, cpu = walls.setdefault(str(near), {}), cpus.setdefault(str(near), {})
        for turn in range(rounds + 1):
            calls = [{"i": next(number)} for _ in range(QUERIES)]
            for session in sessions.values():
                session.measure(calls)  # the pages that these queries read
            for name, session in sessions.items():
                taken, spent = session.measure(calls)
                if turn:
                    wall.setdefault(name, []).append(taken)
                    cpu.setdefault(name, []).append(spent)
        for session in sessions.values():
            session.close()
    report.table(
        f"The {RESULTS} best of {memories:,}, through HNSW: median latency of a call, in us, one client.",
        ["", *(f"query at cosine {near:.2f}" for near in NEAR), "ratio", "ratio of CPU times"],
        [
            [
                name,
                *(f"{median(walls[str(near)][name]):.0f}" for near in NEAR),
                " / ".join(said(walls[str(near)], name) for near in NEAR),
                " / ".join(f"{over(cpus[str(near)], name):.2f}" for near in NEAR),
            ]
            for name in VARIANTS
        ],
    )

    shares, alike, collapsed = {}, 0, 0
    first = harness.Session(server, "search", VARIANTS["without"])
    again = [harness.Session(server, "search", VARIANTS["with dedup"]) for _ in range(2)]
    count = again[0].connection.execute
    for k, near in enumerate(NEAR):
        queries, ids = asked(data, subjects, near, rounds, k)
        least = best(data, queries, subjects, memories)
        hits = sum(
            sum(one >= bound - 2e-6 for one in similarities(first, i))
            for i, bound in zip(ids, least, strict=True)
        )
        shares[near] = hits / len(ids) / RESULTS
        alike += sum(answer(again[0], i) == answer(again[0], i) == answer(again[1], i) for i in ids)
    row = count(
        "select avg(r.collapsed) from bench.pool as p cross join lateral ("
        " select sum(s.collapsed_count) as collapsed from memfold.search_memories("
        f" p.embedding, 'bench', '{harness.TENANT}', 'default') as s) as r where p.id = any(%s)",
        [ids],
    ).fetchone()
    collapsed = row[0] if row else 0
    report.table(
        f"Recall of the {RESULTS} best, by comparing all {memories:,}, of {RECALL} queries each:",
        ["query at cosine", "recall"],
        [
            [f"{near:.2f}", harness.verdict(share, LEAST).replace(f"{share:.2f}", f"{share:.3f}", 1)]
            for near, share in shares.items()
        ],
    )
    report.note(
        f"Identical answers to {alike} of {RECALL * len(NEAR)} queries, each asked twice in one session and once in"
        f" another. A search with dedup hides {float(collapsed):.1f} memories behind the {RESULTS} that it shows."
    )
    small = exact(server, data, rounds, number)
    report.table(
        "Small buckets, searched exactly: median latency of a call, in us.",
        ["", *(f"{count:,}" for count in SMALL)],
        [[name, *(f"{median(times):.0f}" for times in row)] for name, row in small.items()],
    )
    report.note(f"Loaded in {seconds:.0f} s; index made in {built:.0f} s ({size / 1e6:,.0f} MB).")
    report.data = {
        "wall_us": walls, "cpu_us": cpus, "recall": {str(n): s for n, s in shares.items()}, "identical": alike,
        "exact_us": small, "load_seconds": seconds, "index_seconds": built,
    }  # fmt: skip
    return report


def over(measured: dict[str, list[float]], name: str) -> float:
    """The ratio of a variant to the same query without dedup."""
    return harness.ratio(measured[name], measured["without"])


def said(measured: dict[str, list[float]], name: str) -> str:
    """The ratio, and whether it meets its target if there is one."""
    value = over(measured, name)
    return harness.verdict(value, MOST, at_most=True) if name == "with dedup" else f"{value:.2f}"


def asked(
    data: dataset.Dataset, subjects: int, near: float, rounds: int, k: int
) -> tuple[dataset.Floats, list[int]]:
    """Queries for recall, with their ids in the pool."""
    chosen = random.Random(11).sample(range(subjects), min(RECALL, subjects))
    queries = load.around(np.array(data.real_vectors[chosen]), near, seed=99)
    begin = len(NEAR) * (rounds + 1) * QUERIES + k * len(chosen)
    return queries, list(range(begin, begin + len(chosen)))


def prepare(
    server: harness.Server, data: dataset.Dataset, subjects: int, count: int, rounds: int
) -> tuple[float, float, int]:
    """Load memories and queries and create the index; returns the seconds of both, and its bytes."""
    begun = time.monotonic()
    server.install("search")
    load.load(server, "search", memories(data, subjects, count))
    for size in SMALL:
        load.load(server, "search", memories(data, size // load.SCOPE, size, seed=2), f"'small {size}'")
    with server.connect("search") as connection:
        connection.execute(POOL)
        load.copy(
            connection, "bench.pool", pool(data, subjects, rounds), {"id": "int8", "embedding": "vector"}
        )
        connection.execute("vacuum analyze bench.pool")
        seconds = time.monotonic() - begun
        print(f"loaded in {seconds:.0f} s", flush=True)
        begun = time.monotonic()
        connection.execute("set maintenance_work_mem = '6GB'")
        connection.execute("select memfold.create_vector_index('bench')")
        row = connection.execute(
            "select pg_relation_size(memfold_internal._vector_index('bench'))"
        ).fetchone()
        assert row is not None
        built = time.monotonic() - begun
        print(f"index made in {built:.0f} s", flush=True)
        connection.execute("create extension if not exists pg_prewarm")
        connection.execute(
            "select pg_prewarm(c.oid) from pg_class as c where c.relkind in ('r', 'i')"
            " and c.relnamespace = 'memfold'::regnamespace and c.relname !~ 'events|sources'"
        )
    return seconds, built, row[0]


def pool(data: dataset.Dataset, subjects: int, rounds: int) -> Iterator[tuple[int, Any]]:
    """The queries: of the rounds at each cosine, then for recall, then of the small buckets."""
    number = itertools.count()
    shuffled = random.Random(7)
    for near in NEAR:
        chosen = shuffled.choices(range(subjects), k=QUERIES * (rounds + 1))
        yield from zip(
            itertools.islice(number, len(chosen)),
            load.around(np.array(data.real_vectors[chosen]), near, seed=5),
            strict=True,
        )
    for k, near in enumerate(NEAR):
        queries, ids = asked(data, subjects, near, rounds, k)
        next(itertools.islice(number, len(ids) - 1, None))
        yield from zip(ids, queries, strict=True)


def exact(
    server: harness.Server, data: dataset.Dataset, rounds: int, number: Iterator[int]
) -> dict[str, list[list[float]]]:
    """Buckets that are searched exactly, and the time of find_similar for as many."""
    measured: dict[str, list[list[float]]] = {}
    for size in SMALL:
        tenant = f"small {size}"
        for name, statement in {
            "find_similar, the 30 best": FIND.format(tenant=tenant),
            "search without dedup": SEARCH.format(tenant=tenant, options="deduplicate => false"),
            "search with dedup": SEARCH.format(tenant=tenant, options="deduplicate => true"),
        }.items():
            session = harness.Session(server, "search", statement)
            session.connection.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
            calls = [{"i": i} for i in range(QUERIES)]
            session.measure(calls)
            measured.setdefault(name, []).append([session.measure(calls)[0] for _ in range(rounds)])
            session.close()
    return measured
