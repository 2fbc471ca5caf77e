"""Half an hour of everything at once: what grows, and is the last minute as fast as the first?"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import dataset
import harness
import load
import memory
import numpy as np
import psycopg
from pgvector.psycopg import register_vector

FACTS = 20_000
"""Texts that are stated again and again: apart from ledger rows, what they leave behind is bounded."""
TURNS = 2  # a fact comes from one of this many turns
SLOTS = 2_000
TOWNS = ("Rome", "Oslo", "Bern")
FAINT = 500  # facts with low confidence, which pruning withdraws and the next statement brings back
SESSIONS = 50
BATCH = 50
FRESH = 4.0
"""New texts per second: without any, nothing would be compared, merged, indexed or asked after the first minutes."""
MOST = 1.2
PER_ROW = 1.05
WRITERS = 4
# The buckets of facts: subjects of twenty; then compared by words; then with the whole bucket, by the index.
BUCKETS = ("default", "default", "default", "lexical", "wide")
EXPECTED = {
    # another worker was faster: already rejected, undone or answered
    "MF027", "MF032", "MF033", "MF034", "MF039",
}  # fmt: skip
RETRY = {"40001", "40P01", "55P03"}
TABLES = """
select s.relname::text, s.n_live_tup, s.n_dead_tup, pg_table_size(s.relid), pg_indexes_size(s.relid), s.autovacuum_count
from pg_stat_user_tables as s where s.schemaname = 'memfold' and pg_table_size(s.relid) > 16384 order by 1
"""
# Of each function, so far: calls, and pages read, from memory or disk. They do not depend on how busy the machine is.
PAGES = r"""
select q.name, sum(s.calls)::bigint, sum(s.shared_blks_hit + s.shared_blks_read)::bigint
from pg_stat_statements as s
cross join lateral (select (regexp_match(s.query,
    '\m(ingest_memory|ingest_memories|known_memory|record_feedback|reject_memory|undo|claim_judgements|resolve_judgement'
    '|search_memories|run_maintenance|consolidate|sweep_duplicates|prune_memories|apply_decay|end_session)\('
))[1] || case when s.query ~ 'event_id, tier' then ', new text' else '' end as name) as q
where s.toplevel and q.name is not null
group by q.name
"""
KEYS_KEPT = "3 minutes"
FORGET_KEYS = f"""
delete from memfold.idempotency_keys where ctid = any(array(
    select k.ctid from memfold.idempotency_keys as k where k.recorded_at < now() - interval '{KEYS_KEPT}' limit 10000))
"""
# Why a table may grow although the facts do not.
GROWS = {
    "memory_events": "a row per call: the ledger",
    "idempotency_keys": f"a row per call that carries a key, for {KEYS_KEPT} (docs/operations.md, Retention)",
    "runs": "a row per run; those of run_maintenance and decay are deleted after 30 days",
    "memory_intervals": "a row a change of a value: the timeline",
    "memories": "new texts only", "memory_counters": "new texts only", "memory_vectors": "new texts only",
    "memory_tokens": "new texts only", "memory_sources": "a row a fact and turn, of which there are few",
    "judgements": "a row per pair that is asked about: new texts only",
}  # fmt: skip


@dataclass
class _Sample:
    """The state at one moment."""

    minute: float
    tables: dict[str, tuple[int, ...]]
    ledger: int
    megabytes: dict[str, float]
    pages: dict[str, tuple[int, int]]


@dataclass
class _Soak:
    """The workers, and their measurements."""

    server: harness.Server
    data: dataset.Dataset
    minutes: float
    facts: int
    latencies: dict[tuple[str, int], array[float]] = field(
        default_factory=lambda: defaultdict(lambda: array("f"))
    )
    retries: int = 0
    passed: int = 0
    pids: dict[str, int] = field(default_factory=dict)
    samples: list[_Sample] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    errors: list[BaseException] = field(default_factory=list)
    began: float = 0.0
    fresh: Iterator[int] = field(default_factory=itertools.count)
    keys: Iterator[int] = field(default_factory=itertools.count)

    # what is told

    def bucket(self, fact: int) -> str:
        return BUCKETS[fact % len(BUCKETS)]

    def candidate(self, fact: int, rng: random.Random, *, embedded: bool = False) -> dict[str, Any]:
        """A known fact, restated."""
        told: dict[str, Any] = {
            "content": self.data.real_texts[fact],
            "bucket_id": self.bucket(fact),
            "subject": f"Subject {fact // 100}",
            "source_turn_ids": [f"turn-{fact}-{rng.randrange(TURNS)}"],
            "source_confidence": 0.02 if fact < FAINT else 0.6,
            "extractor_confidence": 0.02 if fact < FAINT else 0.5,
        }
        if self.bucket(fact) == "lexical":
            told["session_id"] = f"session {fact % SESSIONS}"
        elif embedded:
            told["embedding"] = self.data.real_vectors[fact]
            told["embedding_model"] = harness.MODEL
        return told

    def new(self, rng: random.Random) -> dict[str, Any]:
        """A new text: a paraphrase, something unclear, or something else."""
        number = next(self.fresh)
        fact = rng.randrange(self.facts)
        told = self.candidate(fact, rng)
        cosine = (0.97, 0.88, 0.5)[number % 3]
        told["content"] = (
            f"{told['content']}, {('indeed', 'or so', 'not as it was')[number % 3]}, they say in {number}"
        )
        if self.bucket(fact) != "lexical":
            centre = np.array(self.data.real_vectors[fact : fact + 1], dtype=np.float32)
            told["embedding"] = load.around(centre, cosine, [5, number])[0]
            told["embedding_model"] = harness.MODEL
        return told

    # calls

    def connect(self, name: str) -> psycopg.Connection[Any]:
        connection = psycopg.connect(
            self.server.dsn("soak", harness.APPLICATION),
            autocommit=True,
            prepare_threshold=1,
            options=f"-c memfold.tenant_id={harness.TENANT} -c search_path=memfold,public",
        )
        register_vector(connection)
        self.pids[name] = connection.info.backend_pid
        return connection

    def timed(
        self, connection: psycopg.Connection[Any], kind: str, query: str, *parameters: Any
    ) -> list[Any]:
        """One call, repeated as often as necessary; its time counts from the first attempt."""
        begun = time.perf_counter()
        attempts = 0
        while True:
            try:
                rows = connection.execute(query.encode(), parameters).fetchall()
                break
            except psycopg.Error as error:
                if error.sqlstate in EXPECTED:
                    self.passed += 1
                    return []
                if error.sqlstate not in RETRY:
                    raise
                self.retries += 1
                attempts += 1
                if attempts == 1000:
                    raise
        if self.began:
            self.latencies[kind, int((time.monotonic() - self.began) / 60 * self.parts)].append(
                (time.perf_counter() - begun) * 1000
            )
        return rows

    @property
    def parts(self) -> float:
        """Samples per minute: thirty in all, however short the run is."""
        return 30 / self.minutes

    def ingest(self, connection: psycopg.Connection[Any], kind: str, told: dict[str, Any]) -> list[Any]:
        names = "".join(f", {name} => %s" for name in told)
        # New texts come at a fixed rate, all others as fast as the machine allows: counted together, the pages of a call
        # would depend on it. The statistics distinguish statements by their columns.
        more = ", tier" if kind == "new" else ""
        return self.timed(
            connection,
            kind,
            f"select action, memory_id, event_id{more} from ingest_memory(tenant_id => 'bench'{names})",
            *told.values(),
        )

    # workers

    def writer(self, connection: psycopg.Connection[Any], rng: random.Random) -> None:
        kind = rng.choices(
            (
                "replay",
                "embedded",
                "slot",
                "batch",
                "keyed",
                "recalled",
                "lexical",
                "feedback",
                "reject and undo",
            ),
            (40, 10, 8, 2, 8, 8, 10, 6, 1),
        )[0]
        fact = rng.randrange(self.facts)
        if kind == "lexical":
            fact = fact // len(BUCKETS) * len(BUCKETS) + BUCKETS.index("lexical")
        if kind in ("replay", "embedded", "lexical"):
            self.ingest(connection, kind, self.candidate(fact, rng, embedded=kind == "embedded"))
        elif kind == "slot":
            who, town = f"Person {rng.randrange(SLOTS)}", rng.choice(TOWNS)
            told = {
                "content": f"{who} lives in {town}",
                "subject": who,
                "predicate": "lives_in",
                "object": town,
            }
            self.ingest(connection, kind, {**told, "source_turn_ids": [f"turn-{who}-{town}"]})
        elif kind == "batch":
            some = [self.candidate(rng.randrange(self.facts), rng) for _ in range(BATCH)]
            self.timed(
                connection, kind, "select count(*) from ingest_memories(%s::text::jsonb)", json.dumps(some)
            )
        elif kind == "keyed":
            key = {"idempotency_key": f"key {next(self.keys)}"}
            self.ingest(connection, kind, {**self.candidate(fact, rng), **key})
        elif kind == "recalled":
            self.ingest(connection, kind, {**self.candidate(fact, rng), "origin": "recalled"})
        elif kind == "feedback":
            [(found,)] = connection.execute(
                "select (select memory_id from known_memory(%s, 'bench', %s, subject => %s))",
                [self.data.real_texts[fact], self.bucket(fact), f"Subject {fact // 100}"],
            ).fetchall()
            if found is not None:
                self.timed(connection, kind, "select record_feedback(%s, %s)", found, rng.random() < 0.7)
        else:
            [(found,)] = connection.execute(
                "select (select memory_id from known_memory(%s, 'bench', %s, subject => %s))",
                [self.data.real_texts[fact], self.bucket(fact), f"Subject {fact // 100}"],
            ).fetchall()
            done = self.timed(connection, "reject", "select event_id from reject_memory(%s)", found)
            if done and done[0][0] is not None:
                self.timed(connection, "undo", "select count(*) from undo(%s)", done[0][0])

    def teller(self, connection: psycopg.Connection[Any], rng: random.Random) -> None:
        self.ingest(connection, "new", self.new(rng))
        self.stop.wait(1 / FRESH)

    def judge(self, connection: psycopg.Connection[Any], rng: random.Random) -> None:
        claimed = self.timed(
            connection,
            "claim",
            "select judgement_id from claim_judgements('soak', max_results => 5, tenant_id => 'bench')",
        )
        for (judgement,) in claimed:
            verdict = rng.choice(("duplicate", "refinement", "contradiction", "distinct", "distinct"))
            self.timed(
                connection,
                "resolve",
                "select status from resolve_judgement(%s, %s, confidence => 0.9)",
                judgement,
                verdict,
            )
        if not claimed:
            self.stop.wait(0.5)

    def searcher(self, connection: psycopg.Connection[Any], rng: random.Random) -> None:
        fact = rng.randrange(self.facts)
        kind = "search" if fact % 2 else "search by the index"
        self.timed(
            connection, kind, "select memory_id from search_memories(tenant_id => 'bench', bucket_id => %s,"
                " query_embedding => %s, embedding_model => %s, touch => true)",
            "default" if fact % 2 else "wide", self.data.real_vectors[fact], harness.MODEL,
        )  # fmt: skip

    def maintainer(self, connection: psycopg.Connection[Any], rng: random.Random) -> None:
        session = f"session {rng.randrange(SESSIONS)}"
        for kind, call in {
            "maintenance": "run_maintenance('bench')",
            "consolidate": "consolidate('bench', 'default', 'bench', dry_run => false, max_judgements => 20)",
            "sweep": "sweep_duplicates('bench', 'wide', 'bench', dry_run => false)",
            "prune": "prune_memories('bench', 'default', 0.3, '0', dry_run => false)",
            "decay": "apply_decay('bench')",
            "end_session": f"end_session('{session}', 'bench', 'lexical')",
        }.items():
            self.timed(connection, kind, f"select count(*) from {call}")
            if self.stop.wait(1):
                return

    def work(
        self, name: str, step: Callable[[psycopg.Connection[Any], random.Random], None], seed: int
    ) -> None:
        try:
            with self.connect(name) as connection:
                rng = random.Random(seed)
                while not self.stop.is_set():
                    step(connection, rng)
        except BaseException as error:
            self.errors.append(error)
            self.stop.set()

    # the run

    def fill(self) -> None:
        """Ingest every fact once, and each value of each slot once."""
        with self.connect("loader") as connection:
            connection.execute("set synchronous_commit = off")
            rng = random.Random(1)
            for start in range(0, self.facts, 500):
                told = [self.candidate(fact, rng, embedded=True) for fact in range(start, start + 500)]
                for one in told:
                    if "embedding" in one:
                        one["embedding"] = str(one["embedding"].tolist())
                connection.execute(
                    "select count(*) from ingest_memories(%s::text::jsonb)", [json.dumps(told)]
                )
            for start in range(0, SLOTS, 200):
                slots = [
                    {
                        "content": f"Person {i} lives in {t}",
                        "subject": f"Person {i}",
                        "predicate": "lives_in",
                        "object": t,
                    }
                    for i in range(start, start + 200)
                    for t in TOWNS
                ]
                connection.execute(
                    "select count(*) from ingest_memories(%s::text::jsonb)", [json.dumps(slots)]
                )
        del self.pids["loader"]

    def sample(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(FORGET_KEYS.encode())
        tables = {name: tuple(figures) for name, *figures in connection.execute(TABLES.encode()).fetchall()}
        row = connection.execute("select count(*) from memfold.memory_events").fetchone()
        assert row is not None
        # the workers add theirs at the same time
        sizes = {name: memory._mb(pid, "Pss_Anon", "Pss_File") for name, pid in list(self.pids.items())}
        pages = {name: (calls, read) for name, calls, read in connection.execute(PAGES.encode()).fetchall()}
        self.samples.append(_Sample((time.monotonic() - self.began) / 60, tables, row[0], sizes, pages))
        seen = self.samples[-1]
        print(
            f"minute {seen.minute:.1f}: {seen.ledger:,} ledger rows, {sum(seen.megabytes.values()):.0f} MB in"
            f" {len(seen.megabytes)} sessions, {sum(t[1] for t in seen.tables.values()):,} dead rows",
            flush=True,
        )

    def run(self, connection: psycopg.Connection[Any]) -> None:
        workers = [(f"writer {i}", self.writer) for i in range(WRITERS)]
        workers += [("teller", self.teller), ("judge 1", self.judge), ("judge 2", self.judge)]
        workers += [("searcher", self.searcher), ("maintenance", self.maintainer)]
        threads = [
            threading.Thread(target=self.work, args=(name, step, seed))
            for seed, (name, step) in enumerate(workers)
        ]
        connection.execute("select pg_stat_statements_reset()")
        self.began = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            for number in range(1, 31):
                if self.stop.wait(max(0.0, self.began + number * 60 / self.parts - time.monotonic())):
                    break
                self.sample(connection)
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()
        if self.errors:
            raise self.errors[0]


# Thirtieths of the run: the second to the seventh minute of half an hour, and the last five.
FIRST = range(2, 7)
LAST = range(25, 30)


def run(server: harness.Server, data: dataset.Dataset, *, minutes: float, facts: int) -> harness.Report:
    """Fill, soak, and report what has grown."""
    report = harness.Report("soak", f"Everything at once for {minutes:g} minutes, {facts:,} facts")
    server.install("soak")
    soak = _Soak(server, data, minutes, facts)
    with server.connect("soak") as connection:
        for setting in (
            "autovacuum = on",
            "checkpoint_timeout = '5min'",
            "max_wal_size = '4GB'",
            "compute_query_id = on",
            "pg_stat_statements.track = top",
        ):
            connection.execute(f"alter system set {setting}".encode())
        connection.execute("select pg_reload_conf()")
        connection.execute("create extension pg_stat_statements")
        try:
            connection.execute("select memfold.set_predicate('lives_in', 'bench')")
            connection.execute(
                "select memfold.set_options('bench', decay_rate => 0.01, decay_interval => '1 hour')"
            )
            connection.execute("select memfold.set_policy('bench', 'lexical', lexical_threshold => 0.8)")
            connection.execute("select memfold.set_policy('bench', 'wide', scope => 'bucket')")
            connection.execute("select memfold.create_vector_index(%s)", [harness.MODEL])
            begun = time.monotonic()
            soak.fill()
            print(f"filled in {time.monotonic() - begun:.0f} s", flush=True)
            connection.execute("vacuum analyze")
            soak.run(connection)
            broken = connection.execute("select * from memfold.check_invariants('bench')").fetchall()
        finally:
            for setting in (
                "autovacuum",
                "checkpoint_timeout",
                "max_wal_size",
                "compute_query_id",
                "pg_stat_statements.track",
            ):
                connection.execute(f"alter system reset {setting}".encode())
            connection.execute("select pg_reload_conf()")
    if broken:
        raise harness.BenchError(f"broken invariants: {broken[:5]}")
    _latencies(report, soak)
    _pages(report, soak)
    _sizes(report, soak)
    return report


def _window(soak: _Soak, kind: str, parts: range) -> list[float]:
    return [ms for part in parts for ms in soak.latencies.get((kind, part), ())]


def _latencies(report: harness.Report, soak: _Soak) -> None:
    kinds = sorted({kind for kind, _ in soak.latencies})
    rows: list[list[object]] = []
    for kind in kinds:
        first, last = _window(soak, kind, FIRST), _window(soak, kind, LAST)
        calls = sum(len(times) for (name, _), times in soak.latencies.items() if name == kind)
        if min(len(first), len(last)) < 10:
            rows.append([kind, f"{calls:,}", *[""] * 6])
            continue
        (a, c), (b, d) = (np.percentile(x, [50, 99]) for x in (first, last))
        rows.append(
            [kind, f"{calls:,}", f"{a:.2f}", f"{b:.2f}", harness.verdict(b / a, MOST, at_most=True), f"{c:.1f}",
             f"{d:.1f}", f"{d / c:.2f}"]
        )  # fmt: skip
    report.table(
        "Latency of a call, in ms, with its retries: in minutes 2 to 7 of 30 (for a shorter run, in proportion), and in the"
        " last 5.",
        ["", "calls", "p50 first", "p50 last", "ratio", "p99 first", "p99 last", "ratio"],
        rows,
    )
    report.note(
        f"{soak.retries:,} calls were sent again (40001, 40P01); {soak.passed:,} came second to another."
    )


def _pages(report: harness.Report, soak: _Soak) -> None:
    rows: list[list[object]] = []
    for name in sorted(soak.samples[-1].pages):
        a, b = (_pages_a_call(soak, name, parts) for parts in (FIRST, LAST))
        if a and b:
            rows.append([name, f"{a:,.0f}", f"{b:,.0f}", harness.verdict(b / a, MOST, at_most=True)])
    report.table(
        "Pages that a call reads, from memory or disk, with all that it calls:",
        ["", "first", "last", "ratio"],
        rows,
    )


def _pages_a_call(soak: _Soak, name: str, parts: range) -> float | None:
    begin, end = (soak.samples[part].pages.get(name, (0, 0)) for part in (parts[0] - 1, parts[-1]))
    return (end[1] - begin[1]) / (end[0] - begin[0]) if end[0] - begin[0] >= 3 else None


def _sizes(report: harness.Report, soak: _Soak) -> None:
    samples = soak.samples
    first, last = samples[FIRST[-1]], samples[-1]

    def per_row(s: _Sample) -> float:
        return sum(s.tables["memory_events"][2:4]) / s.ledger

    report.table(
        "Memory of the sessions, in MB, without what they share:",
        ["", "minute 7 of 30", "most in the last 5", "ratio"],
        [
            [
                name,
                f"{first.megabytes[name]:.1f}",
                f"{(most := max(samples[p].megabytes[name] for p in LAST)):.1f}",
                harness.verdict(most / first.megabytes[name], MOST, at_most=True),
            ]
            for name in first.megabytes
        ],
    )
    rows: list[list[object]] = []
    for name in sorted(last.tables):
        a, b = first.tables.get(name, (0, 0, 0, 0, 0)), last.tables[name]
        rows.append(
            [
                name,
                f"{a[0]:,}", f"{b[0]:,}", f"{sum(a[2:4]) / 2**20:.1f}", f"{sum(b[2:4]) / 2**20:.1f}",
                f"{max(samples[p].tables.get(name, (0, 0))[1] for p in FIRST):,}",
                f"{max(samples[p].tables.get(name, (0, 0))[1] for p in LAST):,}",
                b[4],
                GROWS.get(name, ""),
            ]
        )  # fmt: skip
    report.table(
        "Tables with their indexes: after minute 7 of 30, and at the end; dead rows are the maximum in minutes 2 to 7 and"
        " in the last 5.",
        [
            "",
            "rows",
            "in the end",
            "MB",
            "in the end",
            "dead",
            "in the end",
            "autovacuums",
            "what it grows by",
        ],
        rows,
    )
    report.table(
        "Bytes of a ledger row, with its indexes:",
        ["rows", "in the end", "bytes", "in the end", "ratio"],
        [
            [
                f"{first.ledger:,}",
                f"{last.ledger:,}",
                f"{per_row(first):.0f}",
                f"{per_row(last):.0f}",
                harness.verdict(per_row(last) / per_row(first), PER_ROW, at_most=True),
            ]
        ],
    )
    report.data = {
        "samples": [
            {"minute": round(s.minute, 2), "ledger": s.ledger, "MB": {k: round(v, 1) for k, v in s.megabytes.items()},
             "tables (live, dead, heap, indexes, autovacuums)": s.tables, "calls, pages": s.pages}
            for s in samples
        ],
        "median ms": {
            kind: [round(float(np.median(soak.latencies.get((kind, p)) or [0])), 3) for p in range(30)]
            for kind in sorted({kind for kind, _ in soak.latencies})
        },
    }  # fmt: skip
