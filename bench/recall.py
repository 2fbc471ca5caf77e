"""What does recall find by words, by vector and by both, how fast, and what does its index cost writers?

Compared with hand-written statements on a plain table: full-text search by a GIN index, a scan by distance, and both by
reciprocal rank. The texts consist of the pairs' words, with natural frequencies: the nth word occurs 1 / n times as
often as the first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from statistics import median
from typing import Any

import harness
import load
import numpy as np
import psycopg
from tests.support import labelled_queries

QUERIES = 8  # per round and statement
BUCKETS, SIZE = 50, 1_000
WRITES = 400  # per round
MOST, COST = 1.5, 1.05
EXACT = 100_000
"""Above this number, both search vectors by an index."""
BEAM = 400
"""hnsw.ef_search of the plain statements, as in memfold."""

PLAIN = """
create table bench.plain (id bigint primary key, content text, embedding vector(384));
create index plain_words_idx on bench.plain using gin (to_tsvector('simple', content));
grant select on bench.plain to bench_app;
create table bench.pool (id bigint primary key, query text, ored tsquery, embedding vector);
grant select on bench.pool to bench_app
"""
OURS = (
    "select r.* from bench.pool as p cross join lateral memfold.search_memories({arguments},"
    " embedding_model => 'bench', tenant_id => 'bench', deduplicate => false) as r where p.id = :i::bigint"
)
WORDS = (
    "select c.id, row_number() over () as rank from (select c.id from bench.plain as c"
    " where to_tsvector('simple', c.content) @@ p.ored"
    " order by ts_rank(to_tsvector('simple', c.content), p.ored) desc limit {n}) as c"
)
VECTOR = (
    "select c.id, row_number() over () as rank from (select c.id from bench.plain as c"
    " order by c.embedding <#> p.embedding limit {n}) as c"
)
FETCH = (
    "select c.* from bench.pool as p cross join lateral ({found}) as f join bench.plain as c on c.id = f.id"
    " where p.id = :i::bigint"
)
BOTH = (
    "select f.id, sum(1.0 / (60 + f.rank)) as score from ("
    + f"({WORDS.format(n=30)}) union all ({VECTOR.format(n=30)})) as f"
    + " group by f.id order by score desc limit 10"
)
WAYS = {
    "words": (OURS.format(arguments="query => p.query"), FETCH.format(found=WORDS.format(n=10))),
    "vector": (OURS.format(arguments="query_embedding => p.embedding"), FETCH.format(found=VECTOR.format(n=10))),
    "both": (
        OURS.format(arguments="query => p.query, query_embedding => p.embedding"), FETCH.format(found=BOTH),
    ),
}  # fmt: skip
MANY = (
    "select r.* from bench.pool as p cross join lateral memfold.search_memories(query_embedding => p.embedding,"
    " embedding_model => 'bench', tenant_id => 'bench', {where}) as r where p.id = :i::bigint"
)


def memories(count: int, seed: int) -> Iterator[load.Row]:
    """Texts of nine words and a number, each with a vector around that of a real text."""
    words = sorted({word.strip(".,").lower() for text in labelled_queries.topics() for word in text.split()})
    real = np.array(
        [*labelled_queries.make_vectors.load_vectors(labelled_queries.DATA / "pairs.npz").values()]
    )
    random = np.random.default_rng(seed)
    random.shuffle(words)
    share = 1 / np.arange(1, len(words) + 1)
    for begin in range(0, count, 10_000):
        some = min(10_000, count - begin)
        vectors = load.around(
            real[random.integers(0, len(real), some)].astype(np.float32), 0.7, seed=[seed, begin]
        )
        chosen = random.choice(len(words), (some, 9), p=share / share.sum())
        for n in range(some):
            text = " ".join(words[word] for word in chosen[n])
            yield begin + n, "Subject", f"{text} n{begin + n}", vectors[n]


def quality(db: psycopg.Connection[Any], report: harness.Report) -> dict[str, list[float]]:
    """The share of the labelled queries whose topic is among the first."""
    db.execute("select set_config('memfold.tenant_id', 'acme', false)")
    labelled_queries.load(db)
    found: dict[str, list[float]] = {}
    for name, way, text_search in (
        ("words", "words", "simple"), ("words, english", "words", "english"), ("vector", "vector", "simple"),
        ("both", "both", "simple"), ("both, english", "both", "english"),
    ):  # fmt: skip
        db.execute("select memfold.set_options('acme', text_search => %s)", [text_search])
        found[name] = [labelled_queries.hits(db, way, depth) for depth in (1, 3, 5)]
    report.table(
        "Share of 208 queries for which one of the first memories is about the same topic, among 472 texts on 52 topics:",
        ["", "hit@1", "hit@3", "hit@5"],
        [[name, *(f"{share:.3f}" for share in shares)] for name, shares in found.items()],
    )
    return found


def run(server: harness.Server, *, rounds: int, memories: int) -> harness.Report:
    """Measure, and compare with the target."""
    report = harness.Report("recall", f"Recall of {memories:,} memories by words, by vector and by both")
    server.install("recall")
    prepare(server, memories)
    with server.connect("recall") as db:
        found = quality(db, report)
    calls = itertools.cycle([{"i": n} for n in range(QUERIES)])
    walls: dict[str, dict[str, list[float]]] = {}
    for way, (ours, plain) in WAYS.items():
        sessions = {
            "memfold": harness.Session(server, "recall", ours),
            "plain": harness.Session(server, "recall", plain),
        }
        for turn in range(rounds + 1):
            asked = list(itertools.islice(calls, QUERIES))
            for name, session in sessions.items():
                taken, _ = session.measure(asked)
                if turn:
                    walls.setdefault(way, {}).setdefault(name, []).append(taken)
        for session in sessions.values():
            session.close()
    report.table(
        f"The 10 best of {memories:,}: median latency of a call, in ms, one client. By words with an index, by vector "
        + ("all compared." if memories <= EXACT else f"through HNSW, hnsw.ef_search {BEAM}."),
        ["", "memfold", "plain PostgreSQL", "ratio"],
        [
            [
                way,
                *(f"{median(one[name]) / 1000:.1f}" for name in ("memfold", "plain")),
                harness.verdict(harness.ratio(one["memfold"], one["plain"]), MOST, at_most=True),
            ]
            for way, one in walls.items()
        ],
    )
    many = buckets(server, rounds, report)
    cost = writers(server, rounds, report)
    report.data = {"hits": found, "wall_us": walls, "buckets_us": many, "write_cpu_us": cost}
    return report


def prepare(server: harness.Server, count: int) -> None:
    """The same memories in memfold and in a table, in one bucket, and BUCKETS others of SIZE; queries of three words."""
    load.load(server, "recall", memories(count, 1))
    with server.connect("recall") as db:
        db.execute(PLAIN)
        rows = ((n, text, vector) for n, _, text, vector in memories(count, 1))
        load.copy(db, "bench.plain", rows, {"id": "int8", "content": "text", "embedding": "vector"})
        for n, _, text, vector in memories(QUERIES, 2):
            db.execute(
                "insert into bench.pool select %s, q.said,"
                " replace(plainto_tsquery('simple', q.said)::text, '&', '|')::tsquery, %s from (select %s) as q (said)",
                [n, vector, " ".join(text.split()[1:9:3])],
            )
        db.execute("select memfold.create_text_index()")
        if count > EXACT:
            db.execute("set maintenance_work_mem = '6GB'")
            db.execute("select memfold.create_vector_index('bench')")
            db.execute("create index plain_vectors_idx on bench.plain using hnsw (embedding vector_ip_ops)")
            db.execute(f"alter database recall set hnsw.ef_search = {BEAM}")
        for bucket in range(BUCKETS):
            fill_bucket(db, f"user:{bucket}", bucket)
        db.execute("vacuum analyze")


def fill_bucket(db: psycopg.Connection[Any], bucket: str, seed: int) -> None:
    """SIZE memories of a bucket, as load.load() loads those of 'default'."""
    db.execute(
        "create temp table staged (id bigint, content text, embedding vector, memory_id uuid default uuidv7())"
    )
    rows = ((n, text, vector) for n, _, text, vector in memories(SIZE, 100 + seed))
    load.copy(db, "staged", rows, {"id": "int8", "content": "text", "embedding": "vector"})
    db.execute("set session_replication_role = replica")
    db.execute(
        "insert into memfold.memories (tenant_id, memory_id, bucket_id, content, canonicalizer, key_fields, is_ingested)"
        " select 'bench', memory_id, %s, content, 'prose/1', 'type,subject,predicate', true from staged",
        [bucket],
    )
    db.execute(
        "insert into memfold.memory_counters (tenant_id, memory_id, observations, independent, first_seen, last_seen)"
        " select 'bench', memory_id, 1, 1, now(), now() from staged"
    )
    db.execute(
        "insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, embedding)"
        " select 'bench', m.memory_id, 'bench', m.bucket_id, m.scope_key, s.embedding"
        " from staged as s join memfold.memories as m on m.tenant_id = 'bench' and m.memory_id = s.memory_id"
    )
    db.execute("set session_replication_role = origin")
    db.execute("drop table staged")


def buckets(server: harness.Server, rounds: int, report: harness.Report) -> dict[str, list[float]]:
    """One search of BUCKETS buckets, and one search of each."""
    together = harness.Session(server, "recall", MANY.format(where="bucket_prefix => 'user:'"))
    apart = [
        harness.Session(server, "recall", MANY.format(where=f"bucket_id => 'user:{n}'"))
        for n in range(BUCKETS)
    ]
    measured: dict[str, list[float]] = {"one search": [], f"{BUCKETS} searches": []}
    for turn in range(rounds + 1):
        asked = [{"i": n} for n in range(5)]
        one = together.measure(asked)[0]
        each = sum(session.measure(asked)[0] for session in apart)
        if turn:
            measured["one search"].append(one)
            measured[f"{BUCKETS} searches"].append(each)
    for session in (together, *apart):
        session.close()
    report.table(
        f"{BUCKETS} buckets of {SIZE:,} memories each, by vector, with dedup: median latency, in ms.",
        ["", "ms"],
        [[name, f"{median(times) / 1000:.1f}"] for name, times in measured.items()],
    )
    return measured


def writers(server: harness.Server, rounds: int, report: harness.Report) -> dict[str, list[float]]:
    """New facts with vectors, in a bucket of SIZE, with an index of words and without."""
    measured: dict[str, list[float]] = {}
    sessions = {}
    for name in ("without an index", "with an index of words"):
        database = f"recall_{len(sessions)}"
        server.install(database)
        total = (rounds + 1) * WRITES
        with server.connect(database) as db:
            db.execute(load.POOL)
            load.copy(db, "bench.pool", memories(total, 3))
            if sessions:
                db.execute("select memfold.create_text_index()")
        sessions[name] = harness.Session(
            server, database,
            "select r.* from bench.pool as p cross join lateral memfold.ingest_memory(p.content || ' ' || p.id, 'bench',"
            " subject => 'Subject ' || p.id % 100, embedding => p.embedding, embedding_model => 'bench') as r"
            " where p.id = :i::bigint",
        )  # fmt: skip
    for turn in range(rounds + 1):
        for name, session in sessions.items():
            spent = session.measure([{"i": n} for n in range(turn * WRITES, (turn + 1) * WRITES)])[1]
            if turn:
                measured.setdefault(name, []).append(spent)
    for session in sessions.values():
        session.close()
    without, with_index = measured.values()
    report.table(
        "A new fact with its vector: CPU time of the backend, in us.",
        ["", "us", "ratio"],
        [
            ["without an index", f"{median(without):.0f}", "1.00"],
            [
                "with an index of words",
                f"{median(with_index):.0f}",
                harness.verdict(harness.ratio(with_index, without), COST, at_most=True),
            ],
        ],
    )
    return measured
