"""What does consolidation take, with half of the memories about one subject, and who has to wait?"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import dataset
import harness
import load
import numpy as np
import psycopg
from pgvector.psycopg import register_vector

MEMORIES = 100_000
MERGES = 1_000
TOLD = 5_000  # memories of each of two tenants that are compared
LATER = 2_000  # of the memories that are stated again, one in three
QUIET = 3.0  # seconds of writers alone
CHECKED = 20_000
WRITERS = 8
LONGEST = 200  # ms
COSINE = 0.95  # of a variant and its first text; between two variants it is about 0.9
EVERY = 0.005
PAUSE = 0.02  # pause of a writer between two calls
DIMENSIONS = 384
# How long each writer waits for a lock, in ms, and whether it waits for the consolidating session, directly or behind
# another.
WAITS = """
with recursive waiting as (
    select l.pid, extract(epoch from clock_timestamp() - min(l.waitstart)) * 1000 as waited
    from pg_locks as l join pg_stat_activity as a using (pid)
    where not l.granted and a.usename = %(user)s and l.waitstart is not null
    group by l.pid
),
blocked (pid, by) as (
    select w.pid, b.pid from waiting as w, unnest(pg_blocking_pids(w.pid)) as b (pid)
),
chains (pid, by) as (
    select b.pid, b.by from blocked as b
    union
    select c.pid, b.by from chains as c join blocked as b on b.pid = c.by
)
select w.waited, exists (select from chains as c where c.pid = w.pid and c.by = %(backend)s)
from waiting as w where w.pid <> %(backend)s
"""
SUFFIXES = ("", ", indeed", ", as it seems", ", so they say")

HELD = """
select m.content, m.status, m.metadata, o.content as merged_into, r.content as root, k.is_additive, k.on_timeline, k.aliases,
    k.observations, k.independent, k.source_confidence, k.extractor_confidence, k.first_seen::text, k.last_seen::text,
    (select array_agg(s.source_turn_id order by s.source_turn_id) from memfold.memory_sources as s
        where s.tenant_id = m.tenant_id and s.memory_id = m.memory_id) as turns,
    (select array_agg((i.valid_from, i.valid_to)::text order by i.valid_from) from memfold.memory_intervals as i
        where i.tenant_id = m.tenant_id and i.memory_id = m.memory_id) as intervals,
    (select array_agg((v.model, v.is_live, md5(v.embedding::text))::text) from memfold.memory_vectors as v
        where v.tenant_id = m.tenant_id and v.memory_id = m.memory_id) as vectors
from memfold.memories as m
left join memfold.memory_counters as k using (tenant_id, memory_id)
left join memfold.memories as o on o.tenant_id = m.tenant_id and o.memory_id = m.merged_into
left join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = m.root_id
where m.tenant_id = %s
order by m.content, m.subject
"""


def _rows(data: dataset.Dataset, memories: int, *, others: bool = True, seed: int = 7) -> Iterator[load.Row]:
    """Half of them about "User", the others in subjects of twenty; two fifths of the texts are stated four times.

    A text is a real one with its vector; the vectors of its restatements lie around that one.
    """
    user = memories // 2 if others else memories
    subjects = [("User", user)] + [(f"Subject {n}", 20) for n in range((memories - user) // 20)]
    parts = []
    number = 0
    for subject, size in subjects:
        clusters = size // 5
        for n in range(size - 3 * clusters):
            parts += [(number, subject, k) for k in range(4 if n < clusters else 1)]
            number += 1
    # shuffled, so that a cluster's memories are far apart
    for place, which in enumerate(np.random.default_rng(seed).permutation(len(parts))):
        base, subject, copy = parts[which]
        centre = np.array(data.real_vectors[base : base + 1], dtype=np.float32)
        embedding = load.around(centre, COSINE, [seed, base, copy]) if copy else centre
        yield place, subject, data.real_texts[base] + SUFFIXES[copy], embedding[0]


@dataclass
class Watch:
    """Writers of a tenant, and how long each waits for a lock, sampled."""

    server: harness.Server
    data: dataset.Dataset
    database: str
    tenant: str
    waits: dict[str, list[float]] = field(default_factory=dict)
    calls: dict[str, list[float]] = field(default_factory=dict)
    phase: str = "before"
    stop: threading.Event = field(default_factory=threading.Event)
    backend: int = 0
    memory: float = 0

    def _write(self, number: int) -> None:
        random = np.random.default_rng([99, number])
        with psycopg.connect(
            self.server.dsn(self.database, harness.APPLICATION), autocommit=True,
            options=f"-c memfold.tenant_id={self.tenant}",
        ) as connection:  # fmt: skip
            register_vector(connection)
            for turn in itertools.count():
                if self.stop.is_set():
                    return
                began = time.perf_counter()
                phase = self.phase
                if turn % 4:
                    vector = random.standard_normal(DIMENSIONS, dtype=np.float32)
                    connection.execute(
                        "select memfold.ingest_memory(%s, %s, subject => %s, embedding => %s, embedding_model => %s)",
                        [f"Writer {number} says {turn}", self.tenant, f"Writer {number} {turn // 20}", vector,
                         harness.MODEL],
                    )  # fmt: skip
                else:
                    connection.execute(
                        "select memfold.ingest_memory(%s, %s, subject => 'User')",
                        [self.data.real_texts[int(random.integers(1000))], self.tenant],
                    )
                self.calls.setdefault(phase, []).append((time.perf_counter() - began) * 1000)
                time.sleep(PAUSE)

    def _sample(self) -> None:
        with self.server.connect(self.database) as connection:
            while not self.stop.is_set():
                rows = connection.execute(
                    WAITS, {"user": harness.APPLICATION, "backend": self.backend}
                ).fetchall()
                for waited, behind in rows:
                    phase = self.phase if behind else f"{self.phase}, for one another"
                    self.waits.setdefault(phase, []).append(float(waited))
                with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
                    text = Path(f"/proc/{self.backend}/smaps_rollup").read_text(encoding="ascii")
                    sizes = {line.split(":")[0]: line.split()[1] for line in text.splitlines()[1:]}
                    self.memory = max(self.memory, (int(sizes["Pss_Anon"]) + int(sizes["Pss_File"])) / 1024)
                time.sleep(EVERY)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._write, args=[n]) for n in range(WRITERS)]
        threads.append(threading.Thread(target=self._sample))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()

    def longest(self, phase: str) -> float:
        return max(self.waits.get(phase, []), default=0.0)

    def p99(self, phase: str) -> float:
        calls = sorted(self.calls.get(phase, [0.0]))
        return calls[int(0.99 * (len(calls) - 1))]


def tenant_session(server: harness.Server, database: str, tenant: str) -> psycopg.Connection[Any]:
    return psycopg.connect(
        server.dsn(database, harness.APPLICATION), autocommit=True, options=f"-c memfold.tenant_id={tenant}"
    )


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def run(server: harness.Server, data: dataset.Dataset, *, memories: int = MEMORIES) -> harness.Report:
    """Measure growth, a consolidation among writers, and what undo_run restores."""
    report = harness.Report("consolidation", f"Consolidation of {memories:,} memories of one tenant")
    server.install("consolidation")
    with server.connect("consolidation") as connection:
        connection.execute(
            "select memfold.register_embedding_model(%s, %s, 0.92, 0.85)", [harness.MODEL, DIMENSIONS]
        )
    _growth(server, data, report, memories // 2)
    _writers(server, data, report, memories)
    _undo(server, data, report)
    return report


def _growth(server: harness.Server, data: dataset.Dataset, report: harness.Report, largest: int) -> None:
    sizes = [largest // 4, largest // 2, largest]
    times, cpus = [], []
    for size in sizes:
        tenant = f"size-{size}"
        load.load(server, "consolidation", _rows(data, size, others=False), f"'{tenant}'")
        with tenant_session(server, "consolidation", tenant) as session:
            clock = Path(f"/proc/{session.info.backend_pid}/schedstat")
            before = int(clock.read_text().split()[0])
            began = time.perf_counter()
            session.execute(
                "select count(*) from memfold.consolidate(%s, 'default', max_operations => 1)", [tenant]
            )
            times.append(time.perf_counter() - began)
            cpus.append((int(clock.read_text().split()[0]) - before) / 1e9)
    report.table(
        "A plan (dry run) of memories of one subject, 384 dimensions, two fifths of the texts stated four times:",
        ["memories of one subject", "seconds", "CPU seconds", "CPU us a memory", "times the first", "n log n"],
        [
            [f"{size:,}", f"{times[n]:.1f}", f"{cpu:.1f}", f"{cpu / size * 1e6:.0f}", f"{cpu / cpus[0]:.2f}",
             f"{size * math.log(size) / (sizes[0] * math.log(sizes[0])):.2f}"]
            for n, (size, cpu) in enumerate(zip(sizes, cpus, strict=True))
        ],
    )  # fmt: skip
    report.data["growth"] = {"sizes": sizes, "seconds": times, "CPU seconds": cpus}


def _writers(server: harness.Server, data: dataset.Dataset, report: harness.Report, memories: int) -> None:
    load.load(server, "consolidation", _rows(data, memories), "'bench'")
    watch = Watch(server, data, "consolidation", harness.TENANT)
    with tenant_session(server, "consolidation", harness.TENANT) as session:
        watch.backend = session.info.backend_pid
        with watch.running():
            time.sleep(QUIET)
            watch.phase = "planning"
            planning, rows = _timed(
                lambda: session.execute(
                    "select run_id from memfold.consolidate('bench', 'default', approval => 'person',"
                    " max_operations => 1000000, dry_run => false)"
                ).fetchall()
            )
            run_id: UUID = rows[0][0]
            watch.phase = "approving"
            calls = []
            waiting = 1
            while waiting:
                seconds, row = _timed(
                    lambda: session.execute("select memfold.approve_run(%s)", [run_id]).fetchone()
                )
                calls.append(seconds)
                waiting = row[0]
            watch.phase = "after"
    with server.connect("consolidation") as connection:
        overview = connection.execute(
            "select merged, obsolete, report ->> 'questions' from memfold.runs_overview where run_id = %s",
            [run_id],
        ).fetchone()
        broken = (0,)
        if memories <= CHECKED:  # its time grows quadratically
            broken = (
                connection.execute("select count(*) from memfold.check_invariants('bench')").fetchone()
                or broken
            )
        together = _together(connection, data, memories)
    assert overview is not None
    if broken[0]:
        raise harness.BenchError(f"{broken[0]} invariants are broken")
    rows = []
    for phase, name, seconds in (
        ("before", "nothing", 3.0),
        ("planning", "plan and queue", planning),
        ("approving", f"{len(calls)} x approve_run", sum(calls)),
    ):
        wait = f"{watch.longest(phase):.0f}"
        if phase != "before":
            wait = harness.verdict(watch.longest(phase), LONGEST, at_most=True)
        rows.append(
            [name, f"{seconds:.0f}", wait, len(watch.calls.get(phase, [])), f"{watch.p99(phase):.0f}"]
        )
    report.table(
        f"Consolidation of {memories:,} memories, half of them about one subject, while {WRITERS} writers ingest (three new"
        " facts with vectors for one restatement each): the longest that a writer waited for a lock, in ms.",
        ["", "seconds", "longest wait", "calls of writers", "p99 of a call, ms"],
        rows,
    )
    report.note(
        f"{int(overview[2]):,} questions, {overview[0]:,} memories merged. Of the texts stated four times, a share of"
        f" {together:.3f} is one memory afterwards. The server process took {watch.memory:.0f} MB at most."
        f" An approve_run took {max(calls) * 1000:.0f} ms at most, {sorted(calls)[len(calls) // 2] * 1000:.0f} ms in"
        " the median." + (" check_invariants() is empty afterwards." if memories <= CHECKED else "")
    )
    report.data["writers"] = {
        "planning": planning, "approving": calls, "memory": watch.memory,
        "longest": {phase: watch.longest(phase) for phase in ("before", "planning", "approving")},
        "slowest": {phase: max(times) for phase, times in watch.calls.items()},
    }  # fmt: skip


def _together(connection: psycopg.Connection[Any], data: dataset.Dataset, memories: int) -> float:
    """The share of the texts stated four times that became one memory."""
    trees: dict[tuple[str, str], set[UUID]] = {}
    for content, subject, root in connection.execute(
        "select content, subject, coalesce(root_id, memory_id) from memfold.memories where tenant_id = 'bench'"
    ):
        trees.setdefault((subject, content), set()).add(root)
    found = []
    for _, subject, content, _ in _rows(data, memories):
        if content.endswith(SUFFIXES[1]):
            text = content.removesuffix(SUFFIXES[1])
            found.append(
                len(set().union(*(trees.get((subject, text + suffix), set()) for suffix in SUFFIXES))) == 1
            )
    return sum(found) / len(found)


def _undo(server: harness.Server, data: dataset.Dataset, report: harness.Report) -> None:
    """Two tenants get the same memories; one of them is consolidated, and that is undone."""
    tenants = ("control", "folded")
    for tenant in tenants:
        load.load(server, "consolidation", _rows(data, TOLD, others=False), f"'{tenant}'")
    with server.connect("consolidation") as connection:
        # with the same time for both
        connection.execute(
            "update memfold.memory_counters set first_seen = '2026-01-01', last_seen = '2026-01-01'"
            " where tenant_id in ('control', 'folded')"
        )
        connection.execute("set memfold.maintenance = on")
        connection.execute(
            "update memfold.memory_events set observed_at = '2026-01-01'"
            " where tenant_id in ('control', 'folded')"
        )
    with tenant_session(server, "consolidation", "folded") as session:
        row = session.execute(
            "select run_id from memfold.consolidate('folded', 'default', approval => 'person', max_operations => %s,"
            " dry_run => false) limit 1", [MERGES]
        ).fetchone()  # fmt: skip
        assert row is not None
        run_id = row[0]
        while (left := session.execute("select memfold.approve_run(%s)", [run_id]).fetchone()) and left[0]:
            pass
        for tenant in tenants:
            with tenant_session(server, "consolidation", tenant) as other:
                for n in range(0, LATER, 3):
                    text = data.real_texts[n] + SUFFIXES[3 if n % 2 else 0]
                    other.execute(
                        "select memfold.ingest_memory(%s, %s, subject => 'User', observed_at => '2026-02-01', "
                        " source_turn_ids => array[%s])", [text, tenant, f"later {n}"],
                    )  # fmt: skip
        with server.connect("consolidation") as connection:
            before = _differences(connection)
            seconds, _ = _timed(
                lambda: session.execute("select count(*) from memfold.undo_run(%s)", [run_id]).fetchone()
            )
            after = _differences(connection)
            merged = connection.execute(
                "select undone from memfold.runs_overview where run_id = %s", [run_id]
            ).fetchone()
            broken = connection.execute("select count(*) from memfold.check_invariants('folded')").fetchone()
    assert merged is not None
    assert broken is not None
    report.table(
        f"undo_run, with {-(-LATER // 3)} ingests between the consolidation and it: memories that differ from those of a"
        " tenant with the same statements that was never consolidated (text, status, edges, metadata, counters, sources,"
        " intervals, vectors):",
        ["merges undone", "differ before", "differ after", "seconds", "broken invariants"],
        [[merged[0], before, after, f"{seconds:.2f}", broken[0]]],
    )
    report.data["undo"] = {"folds": merged[0], "before": before, "after": after, "seconds": seconds}


def _differences(connection: psycopg.Connection[Any]) -> int:
    found = [connection.execute(HELD, [tenant]).fetchall() for tenant in ("control", "folded")]
    return sum(a != b for a, b in itertools.zip_longest(*found))
