"""What does a call cost, the first one of a session, and later ones?

A short-lived program pays the first: functions are compiled and statements planned once per session.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from statistics import median

import harness
import numpy as np

SIZES = (1_000, 30_000)
FACTS = 500  # in the bucket
FIRST, LATER = 7, 20
MOST = {"replay": 5.0, "new fact": 20.0, "search": 15.0}  # ms, the first call
MOST_MERGE = 3.0  # new facts

INGEST = "select action from memfold.ingest_memory(:c, 'bench', :b, embedding => :v::vector, embedding_model => 'bench')"
STATEMENTS = {
    "replay": "select action from memfold.ingest_memory(:c, 'bench', :b)",
    "new fact": INGEST,
    "paraphrase that merges": INGEST,
    "search": "select count(*) from memfold.search_memories(:v::vector, 'bench', 'bench', :b)",
}
EXPECTED = {"replay": "merged", "new fact": "inserted", "paraphrase that merges": "merged", "search": "10"}


def _text(vector: Sequence[float]) -> str:
    return "[" + ",".join(f"{x:.5f}" for x in vector) + "]"


def _name(number: int) -> str:
    """A distinct name for each number, without a digit, which the guard would compare."""
    syllables = ["ba", "ce", "di", "fa", "gu", "la", "me", "ni", "po", "ru"]
    return "".join(syllables[int(digit)] for digit in f"{number:06}").capitalize()


def _calls(kind: str, known: list[list[float]], random: np.random.Generator) -> Iterator[harness.Call]:
    for number in count():
        call: dict[str, object] = {"b": "calls"}
        vector = random.standard_normal(384)
        if kind == "new fact":
            call["c"] = f"The user lives in {_name(900_000 + number)} with a brown dog"
        elif kind != "search":
            said = "resides" if kind.startswith("paraphrase") else "lives"
            call["c"] = f"The user {said} in {_name(number)} with a brown dog"
            vector = np.array(known[number]) + 0.15 * random.standard_normal(384)
        if kind != "replay":
            call["v"] = _text(vector.tolist())
        yield call


def _cost(
    server: harness.Server, kind: str, calls: Iterator[harness.Call]
) -> tuple[list[float], list[float]]:
    """CPU time in us of first calls, and of later ones."""
    first, later = [], []
    for _ in range(FIRST):
        session = harness.Session(server, "calls", STATEMENTS[kind])
        for number in range(LATER // 4 + 6):
            before = session.cpu()
            found = session(next(calls)).get_value(0, 0)
            assert found is not None
            assert found.decode() == EXPECTED[kind], (kind, found)
            spent = session.cpu() - before
            if number == 0:
                first.append(spent)
            elif number > 5:
                later.append(spent)
        session.close()
    return first, later


def run(server: harness.Server) -> harness.Report:
    """Measure each kind of call in a bucket of 500 facts, of a tenant with 1,000 memories, then with 30,000."""
    report = harness.Report("calls", "A call: the first one of a session, and later ones")
    data: dict[int, dict[str, tuple[list[float], list[float]]]] = {}
    for size in SIZES:
        random = np.random.default_rng(1)
        server.install("calls")
        with server.connect("calls") as connection:
            for first in range(0, size - FACTS, 5_000):
                connection.execute(
                    "select count(*) from memfold.ingest_memories((select jsonb_agg(jsonb_build_object('content',"
                    " 'Something else ' || n, 'bucket_id', 'other')) from generate_series(%s::int, %s::int) as n), 'bench')",
                    [first + 1, min(first + 5_000, size - FACTS)],
                )
        known = [random.standard_normal(384).tolist() for _ in range(FACTS)]
        session = harness.Session(server, "calls", INGEST)
        for number, vector in enumerate(known):
            session({
                "c": f"The user lives in {_name(number)} with a brown dog", "b": "calls", "v": _text(vector),
            })  # fmt: skip
        session.close()
        with server.connect("calls") as connection:
            connection.execute("vacuum analyze")
        data[size] = {
            kind: _cost(server, kind, _calls(kind, known, np.random.default_rng(2))) for kind in STATEMENTS
        }
        server.drop("calls")
    rows = []
    for kind in STATEMENTS:
        row: list[object] = [kind]
        for size in SIZES:
            first, later = (median(spent) for spent in data[size][kind])
            most = MOST.get(kind)
            row.append(harness.verdict(first / 1000, most, at_most=True) if most else f"{first / 1000:.1f}")
            row.append(f"{later:,.0f}")
            over = later / median(data[size]["new fact"][1])
            merges = kind.startswith("paraphrase")
            row.append(harness.verdict(over, MOST_MERGE, at_most=True) if merges else f"{over:.2f}")
        rows.append(row)
    report.table(
        f"CPU time of the backend, medians, `synchronous_commit = off`, in a bucket of {FACTS} facts with vectors of 384"
        " dimensions, by the memories of the tenant:",
        ["", *(f"{size:,}: {what}" for size in SIZES for what in ("first, ms", "later, us", "/ new fact"))],
        rows,
    )
    report.data = {"costs": data}
    return report
