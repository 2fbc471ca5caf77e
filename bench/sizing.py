"""What does a memory take on disk, by kind, and a session in memory?"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import harness
import numpy as np
import psycopg
from memory import _mb

ROWS = 2_000
BATCH = 1_000
CALLS = 1_000
DIMENSIONS = 384
EVERY = 0.02

Candidate = dict[str, Any]


def _text(kind: str, n: int) -> Candidate:
    # of about 60 bytes, as people state facts
    return {
        "content": f"Person {n} has told us of their {kind} with number {n:05} of all",
        "subject": f"Person {n}",
        "source_turn_ids": [f"turn {kind} {n}"],
        "bucket_id": kind,
    }


def _kinds(rows: int) -> Iterator[tuple[str, str, Callable[[], Iterator[Candidate]]]]:
    """One measurement: its name, a preparatory statement, the candidates."""
    random = np.random.default_rng(7)
    vectors = random.standard_normal((rows, DIMENSIONS)).astype(np.float32)
    # a merge by vector and a question: both sides of one subject
    near = vectors + 0.02 * random.standard_normal(vectors.shape).astype(np.float32)
    unsure = vectors + 0.55 * random.standard_normal(vectors.shape).astype(np.float32)

    def with_vector(candidate: Candidate, vector: Any, **more: Any) -> Candidate:
        values = f"[{','.join(f'{value:.6g}' for value in vector)}]"
        return {**candidate, "embedding": values, "embedding_model": harness.MODEL, **more}

    yield "a new fact, with a subject and a source turn", "", lambda: (_text("fact", n) for n in range(rows))
    yield (
        "a restatement from a new source turn",
        "",
        lambda: ({**_text("fact", n), "source_turn_ids": [f"again {n}"]} for n in range(rows)),
    )
    yield (
        "the same, with an idempotency key of 36 bytes",
        "",
        lambda: (
            {**_text("fact", n), "source_turn_ids": [f"third {n}"], "idempotency_key": f"{n:036}"}
            for n in range(rows)
        ),
    )
    yield (
        "a restatement from the same turn, as of a loop",
        "",
        lambda: ({**_text("fact", n), "source_turn_ids": [f"third {n}"]} for n in range(rows)),
    )
    cardinality = "select set_predicate('lives_in', 'bench', cardinality => 'one')"
    for name, before, town in (
        ("a value of a slot", cardinality, "old"),
        ("a value that supersedes it", "", "new"),
    ):
        yield (
            name,
            before,
            lambda town=town: (  # type: ignore[misc]
                {
                    **_text("slot", n),
                    "content": f"Person {n} lives in the {town} town with number {n:05} of all",
                    "predicate": "lives_in",
                    "object": f"{town} town {n}",
                }
                for n in range(rows)
            ),
        )
    yield (
        "a new fact in a bucket with the lexical tier (8 words)",
        "select set_policy('bench', 'words', lexical_threshold => 0.9)",
        lambda: (
            # rare words, because common ones cost time, not space
            {**_text("words", n), "content": " ".join(f"word{8 * n + i}" for i in range(8))}
            for n in range(rows)
        ),
    )
    yield (
        f"a new fact with a vector of {DIMENSIONS} dimensions",
        "",
        lambda: (with_vector(_text("vector", n), vectors[n]) for n in range(rows)),
    )
    yield (
        "a paraphrase that merges by its vector",
        "",
        lambda: (
            with_vector(_text("vector", n), near[n], content=f"We were told of the vector {n:05} by Person {n}, as they say")
            for n in range(rows)
        ),
    )  # fmt: skip
    yield (
        "a new fact with a vector, and a question about it",
        "",
        lambda: (
            with_vector(_text("vector", n), unsure[n], content=f"Person {n} may have said vector {n:05}, or a similar one")
            for n in range(rows)
        ),
    )  # fmt: skip


def run(server: harness.Server, *, rows: int = ROWS) -> harness.Report:
    """Ingest some of each kind, and measure how the tables grow; then watch sessions at work."""
    report = harness.Report("sizing", "What a memory takes on disk, and a session in memory")
    server.install("sizing")
    found: list[tuple[str, float, dict[str, float], dict[str, int]]] = []
    with server.connect("sizing") as connection:
        connection.execute("set search_path = memfold, public")
        connection.execute("select register_embedding_model(%s, %s, 0.92, 0.85)", [harness.MODEL, DIMENSIONS])
        for name, before, candidates in _kinds(rows):
            if before:
                connection.execute(before.encode())
            sizes = _sizes(connection)
            actions = _ingest(connection, list(candidates()))
            grown = {table: size - sizes[table] for table, size in _sizes(connection).items()}
            found.append(
                (name, sum(grown.values()) / rows, {t: g / rows for t, g in grown.items() if g}, actions)
            )
        indexes = []
        for call, what, count in (
            (f"create_vector_index('{harness.MODEL}')", "vector", "memory_vectors"),
            ("create_text_index()", "text", "memories"),
        ):
            sizes = _sizes(connection)
            connection.execute(f"select {call}".encode())
            (number,) = connection.execute(f"select count(*) from {count}".encode()).fetchone() or (0,)
            grown_by = sum(_sizes(connection).values()) - sum(sizes.values())
            indexes.append((f"`{call.split('(')[0]}`, a {what}", grown_by / number))
    report.table(
        f"Bytes, with indexes and TOAST, after VACUUM; {rows:,} of each, texts of about 60 bytes:",
        ["what is stored", "bytes each", "of these, by table"],
        [
            [name, f"{size:,.0f}", ", ".join(f"{t} {g:,.0f}" for t, g in sorted(by.items(), key=lambda x: -x[1])[:4])]
            for name, size, by, _ in found
        ],
    )  # fmt: skip
    report.table(
        "Indexes created on request:", ["index", "bytes each"], [[n, f"{b:,.0f}"] for n, b in indexes]
    )
    watched = _sessions(server, rows)
    report.table(
        "MB of a server session, without what it shares with others (shared buffers), text and libraries by their share:",
        ["a session that has", "in the end", "at most"],
        [[name, f"{end:.0f}", f"{most:.0f}"] for name, end, most in watched],
    )
    report.data = {
        "bytes": {name: {"all": size, "tables": by, "actions": actions} for name, size, by, actions in found},
        "indexes": dict(indexes),
        "sessions (MB)": {name: [end, most] for name, end, most in watched},
    }
    server.drop("sizing")
    return report


def _ingest(connection: psycopg.Connection[Any], candidates: Sequence[Candidate]) -> dict[str, int]:
    """In batches, as an import does; what became of them."""
    actions: dict[str, int] = {}
    for at in range(0, len(candidates), BATCH):
        answers = connection.execute(
            "select action, count(*) from ingest_memories(%s, 'bench') group by 1",
            [json.dumps(candidates[at : at + BATCH])],
        )
        for action, count in answers:
            actions[str(action)] = actions.get(str(action), 0) + count
    return actions


def _sizes(connection: psycopg.Connection[Any]) -> dict[str, int]:
    connection.execute("vacuum analyze")
    return dict(
        connection.execute(
            "select relname::text, pg_total_relation_size(oid) from pg_class"
            " where relnamespace = 'memfold'::regnamespace and relkind = 'r'"
        ).fetchall()
    )


def _sessions(server: harness.Server, rows: int) -> list[tuple[str, float, float]]:
    """Memory of new sessions that each do one kind of work: MB at the end, and the maximum."""
    vector = f"[{','.join(['0.1'] * DIMENSIONS)}]"

    def batch(size: int) -> str:
        return json.dumps([_text("batch", n) for n in range(size)])

    call = "select ingest_memory(%s, 'bench', 'fact', subject => %s, source_turn_ids => %s)"
    batches = "select count(*) from ingest_memories(%s, 'bench')"
    words = "search_memories(query => 'told number 77', tenant_id => 'bench', bucket_id => 'fact')"
    meaning = "search_memories(%s, 'bench', 'bench', 'vector')"
    works: list[tuple[str, list[tuple[str, list[Any]]]]] = [
        ("connected", [("select", [])]),
        (
            f"restated {CALLS:,} facts",
            [(call, [_text("fact", n)["content"], f"Person {n}", [f"s {n}"]]) for n in range(CALLS)],
        ),
        (
            f"stated {CALLS:,} new facts",
            [(call, [f"Something new {n}", f"Person {n}", [f"s {n}"]]) for n in range(CALLS)],
        ),
        ("ingested one batch of 1,000", [(batches, [batch(BATCH)])]),
        (f"ingested one batch of {3 * rows:,}", [(batches, [batch(3 * rows)])]),
        (f"searched {rows:,} texts by words", [(f"select count(*) from {words}", [])] * 10),
        (f"searched {3 * rows:,} vectors", [(f"select count(*) from {meaning}", [vector])] * 10),
        ("run maintenance", [("select run_maintenance('bench')", [])]),
        ("checked the invariants", [("select count(*) from check_invariants('bench')", [])]),
    ]
    found = []
    for name, calls in works:
        with server.connect("sizing") as connection:
            connection.execute("set search_path = memfold, public")
            pid, most, end = connection.info.backend_pid, [0.0], threading.Event()

            def watch(pid: int = pid, most: list[float] = most, end: threading.Event = end) -> None:
                while not end.is_set():
                    most[0] = max(most[0], _mb(pid, "Pss_Anon", "Pss_File"))
                    time.sleep(EVERY)

            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                for statement, arguments in calls:
                    connection.execute(statement.encode(), arguments)
            finally:
                end.set()
                watcher.join()
            last = _mb(pid, "Pss_Anon", "Pss_File")
        found.append((name, last, max(last, most[0])))
    return found
