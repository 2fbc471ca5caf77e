"""How long does erasure take, is it complete, does it leave other data alone, and who has to wait?"""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import consolidation
import dataset
import harness
import load
import numpy as np
import psycopg
import search
from pgvector.psycopg import register_vector

MEMORIES = 1_000_000
OTHERS = 20_000
MERGES = 1_000
LONGEST = 200  # ms
QUIET = 3.0  # seconds of writers alone
DATABASE = "erasure"
MARK = "zebrazebra"
LETTERS = "abcdefghijklmnopqrstuvwxyz"

# Memories that the writers do not touch: the loaded ones.
UNTOUCHED = """
select md5(string_agg(x.row, ' ' order by x.row)) from (
    select m::text || k::text || v::text || e::text as row
    from memfold.memories as m
    join memfold.memory_totals as k using (tenant_id, memory_id)
    join memfold.memory_vectors as v using (tenant_id, memory_id)
    join memfold.memory_events as e using (tenant_id, memory_id)
    where m.tenant_id = 'bench' and m.subject like 'Subject %'
) as x
"""


def run(server: harness.Server, data: dataset.Dataset, *, memories: int = MEMORIES) -> harness.Report:
    """Erase a source among many merges, then a tenant, while others write."""
    report = harness.Report(
        "erasure", f"Erasure of a source among {MERGES:,} merges, and of {memories:,} memories"
    )
    server.install(DATABASE)
    with server.connect(DATABASE) as connection:
        connection.execute(
            "select memfold.register_embedding_model(%s, %s, 0.92, 0.85)",
            [harness.MODEL, consolidation.DIMENSIONS],
        )
        # a thousand wordings are one fact here, each with another word
        connection.execute("select memfold.set_policy(%s, guard => 'off')", [harness.TENANT])
    load.load(server, DATABASE, search.memories(data, OTHERS // load.SCOPE, OTHERS))
    rows = [*_source(server, data, report), *_tenant(server, data, report, memories)]
    report.table(
        f"Erasures while {consolidation.WRITERS} writers ingest (three new facts with vectors for one restatement each):"
        " the longest that a writer waited for a lock, in ms.",
        [
            "",
            "seconds",
            "longest call, ms",
            "longest wait",
            "calls of writers",
            "p99 of a call, ms",
            "texts left",
        ],
        rows,
    )
    return report


def _word(number: int) -> str:
    """A lower-case word that is not a number, negation or name."""
    digits = []
    for _ in range(4):
        number, digit = divmod(number, len(LETTERS))
        digits.append(LETTERS[digit])
    return "qu" + "".join(reversed(digits))


def _left(connection: psycopg.Connection[Any], mark: str) -> int:
    """Rows of any memfold table that contain a text, in any column."""
    tables = connection.execute(
        "select oid::regclass::text from pg_class where relnamespace = 'memfold'::regnamespace and relkind in ('r', 'p')"
    ).fetchall()
    found = 0
    for (table,) in tables:
        row = connection.execute(
            f"select count(*) from {table} as x where strpos(x::text, %s) > 0".encode(), [mark]
        ).fetchone()
        found += row[0] if row else 0
    return found


def _untouched(connection: psycopg.Connection[Any]) -> Any:
    return connection.execute(UNTOUCHED).fetchone()


def _line(watch: consolidation.Watch, phase: str, name: str, calls: list[float], left: int) -> list[object]:
    return [
        name,
        f"{sum(calls):.2f}",
        f"{max(calls) * 1000:.0f}",
        harness.verdict(watch.longest(phase), LONGEST, at_most=True),
        len(watch.calls.get(phase, [])),
        f"{watch.p99(phase):.0f}",
        left,
    ]


def _restate(
    server: harness.Server, marks: dict[int, str], stop: threading.Event, calls: list[float]
) -> None:
    """Keep restating wordings that are not erased, without pause."""
    with consolidation.tenant_session(server, DATABASE, harness.TENANT) as session:
        for turn in itertools.count():
            if stop.is_set():
                return
            mark = marks[1 + turn % (MERGES // 4)]
            began = time.perf_counter()
            session.execute(
                "select memfold.ingest_memory(%s, 'bench', subject => 'the lamp', source_turn_ids => array[%s])",
                [f"The lamp is {mark}.", f"turn {mark}"],
            )
            calls.append(time.perf_counter() - began)
            time.sleep(0.005)


def _source(server: harness.Server, data: dataset.Dataset, report: harness.Report) -> list[list[object]]:
    """One fact in a thousand wordings, each from a separate turn, in the bucket that the writers write to."""
    random = np.random.default_rng(5)
    centre = random.standard_normal(consolidation.DIMENSIONS, dtype=np.float32)
    centre /= np.linalg.norm(centre)
    near = load.around(np.repeat(centre[None], MERGES + 1, axis=0), 0.97, seed=6)
    marks = {}
    with consolidation.tenant_session(server, DATABASE, harness.TENANT) as session:
        register_vector(session)
        for number in range(MERGES + 1):
            mark = f"{MARK}{_word(number)}"
            action = session.execute(
                "select action from memfold.ingest_memory(%s, 'bench', subject => 'the lamp', embedding => %s,"
                " embedding_model => %s, source_turn_ids => array[%s], metadata => jsonb_build_object('by', %s::text))",
                [
                    f"the lamp is {mark}",
                    near[number] if number else centre,
                    harness.MODEL,
                    f"turn {mark}",
                    mark,
                ],
            ).fetchone()
            if action != ("merged" if number else "inserted",):
                raise harness.BenchError(f"wording {number} was {action}")
            marks[number] = mark
    watch = consolidation.Watch(server, data, DATABASE, harness.TENANT)
    lines = []
    with (
        server.connect(DATABASE) as connection,
        consolidation.tenant_session(server, DATABASE, harness.TENANT) as session,
    ):
        watch.backend = session.info.backend_pid
        with watch.running():
            time.sleep(QUIET)
            told = 0
            for phase, number in (
                ("one of the wordings", MERGES // 2),
                ("the first, which the others were merged into", 0),
                ("another wording, with a writer of the same fact", MERGES // 3),
            ):
                before = _untouched(connection)
                stop = threading.Event()
                restated: list[float] = []
                same = threading.Thread(target=_restate, args=[server, marks, stop, restated])
                if number == MERGES // 3:
                    same.start()
                    time.sleep(1)
                watch.phase = phase
                began = time.perf_counter()
                session.execute("select memfold.erase_source(%s, 'bench')", [f"turn {marks[number]}"])
                calls = [time.perf_counter() - began]
                watch.phase = "after"
                stop.set()
                if same.ident:
                    same.join()
                told += len(restated)
                if _untouched(connection) != before:
                    raise harness.BenchError("others have changed")
                lines.append(
                    _line(watch, phase, f"a source: {phase}", calls, _left(connection, marks[number]))
                )
        rows = connection.execute(
            "select k.observations, count(m.*) from memfold.memory_totals as k join memfold.memories as m on"
            " m.tenant_id = k.tenant_id and m.root_id = k.memory_id where m.subject = 'the lamp' group by 1"
        ).fetchall()
        broken = connection.execute("select count(*) from memfold.check_invariants('bench')").fetchone()
    if rows != [(MERGES - 2 + told, MERGES - 3)] or broken != (0,):
        raise harness.BenchError(f"what is left is {rows}, {broken} invariants are broken")
    report.note(
        f"{MERGES - 2:,} of the {MERGES + 1:,} wordings are one memory afterwards, which counts all {told:,} restatements."
        " check_invariants() is empty."
    )
    return lines


def _tenant(
    server: harness.Server, data: dataset.Dataset, report: harness.Report, memories: int
) -> list[list[object]]:
    began = time.perf_counter()
    rows = (
        (number, f"{MARK} {subject}", f"{MARK} {content}", embedding)
        for number, subject, content, embedding in search.memories(data, -(-memories // load.SCOPE), memories)
    )
    load.load(server, DATABASE, rows, f"'{MARK}'")
    loaded = time.perf_counter() - began
    watch = consolidation.Watch(server, data, DATABASE, harness.TENANT)
    with server.connect(DATABASE) as connection:
        before = _untouched(connection)
        watch.backend = connection.info.backend_pid
        calls = []
        with watch.running():
            time.sleep(QUIET)
            watch.phase = "tenant"
            remaining = 1
            while remaining:
                began = time.perf_counter()
                row = connection.execute("select remaining from memfold.erase_tenant(%s)", [MARK]).fetchone()
                calls.append(time.perf_counter() - began)
                assert row is not None
                remaining = row[0]
            watch.phase = "after"
        if _untouched(connection) != before:
            raise harness.BenchError("others have changed")
        connection.execute("vacuum (analyze)")
        # The stub and the run name the tenant.
        left = _left(connection, f"{MARK} ")
        stub = connection.execute(
            "select cause from memfold.memory_events where tenant_id = %s and action = 'erased'", [MARK]
        ).fetchall()
    report.note(
        f"Loaded in {loaded:.0f} s; {len(calls):,} calls of erase_tenant. What stays of the tenant: {stub[0][0]}."
    )
    report.data = {"calls": calls, "longest": watch.longest("tenant")}
    return [_line(watch, "tenant", f"a tenant of {memories:,} memories", calls, left)]
