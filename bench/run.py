"""Asks the questions of the bench: ``python bench/run.py [QUESTION ...]``; see bench/README.md.

Starts its own server in its own directory, installs memfold by its migrations, measures, prints
tables and writes bench/results/QUESTION.md and .json.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import adoption
import batch
import calls
import consolidation
import dataset
import erasure
import growth
import harness
import hot
import isolation
import language
import memory
import newfact
import peers
import recall
import replay
import search
import sizing
import slot
import soak
import storage

LARGE = {"memory", "consolidation", "erasure", "soak", "language"}
"""Questions that need much time or space, or another server: only when they are named."""


def main() -> int:
    """Run the named questions; returns 2 if one could not be run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "questions",
        nargs="*",
        metavar="QUESTION",
        help="replay, newfact, growth, batch, hot, adopt, search, recall, sizing, slot, calls, storage, isolation, peers,"
        " memory, consolidation, erasure, soak or language (default: all but the last five)",
    )
    parser.add_argument("--seconds", type=float, default=3, help="length of a pgbench run (default: 3)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count, at least 5 (default: 5)")
    parser.add_argument(
        "--memories",
        type=int,
        help="the largest size of growth, and of search (default: 1,000,000), of recall (default: 100,000)",
    )
    parser.add_argument(
        "--rows",
        type=int,
        help=f"of adopt's table (default: {adoption.ROWS:,}), of memory (default: {memory.ROWS:,}), memories of"
        f" consolidation (default: {consolidation.MEMORIES:,}), erasure (default: {erasure.MEMORIES:,}), facts of soak"
        f" (default: {soak.FACTS:,})",
    )
    parser.add_argument("--minutes", type=float, default=30, help="of soak")
    parser.add_argument("--facts", type=int, default=1_000, help="unique facts of peers (default: 1000)")
    parser.add_argument("--merges", type=int, default=1_000_000, help="of hot's memory")
    parser.add_argument(
        "--data", type=Path, default=dataset.DEFAULT_DIRECTORY, help="what bench/dataset.py has built"
    )
    parser.add_argument(
        "--also", type=Path, help="SQL to run after the install: what would change it be worth?"
    )
    given = parser.parse_args()

    def data() -> dataset.Dataset:
        return dataset.Dataset(given.data)

    questions: dict[str, Callable[[harness.Server], harness.Report]] = {
        "replay": lambda server: replay.run(server, rounds=given.rounds, seconds=given.seconds),
        "newfact": lambda server: newfact.run(server, data(), rounds=given.rounds, seconds=given.seconds),
        "growth": lambda server: growth.run(
            server, data(), rounds=given.rounds, memories=given.memories or 1_000_000
        ),
        "batch": lambda server: batch.run(server, rounds=given.rounds),
        "hot": lambda server: hot.run(server, rounds=given.rounds, merges=given.merges),
        "adopt": lambda server: adoption.run(server, rounds=given.rounds, rows=given.rows or adoption.ROWS),
        "memory": lambda server: memory.run(server, rows=given.rows or memory.ROWS),
        "search": lambda server: search.run(
            server, data(), rounds=given.rounds, memories=given.memories or 1_000_000
        ),
        "recall": lambda server: recall.run(
            server, rounds=given.rounds, memories=given.memories or recall.EXACT
        ),
        "consolidation": lambda server: consolidation.run(
            server, data(), memories=given.rows or consolidation.MEMORIES
        ),
        "erasure": lambda server: erasure.run(server, data(), memories=given.rows or erasure.MEMORIES),
        "soak": lambda server: soak.run(
            server, data(), minutes=given.minutes, facts=given.rows or soak.FACTS
        ),
        "sizing": lambda server: sizing.run(server),
        "slot": lambda server: slot.run(server),
        "calls": lambda server: calls.run(server),
        "storage": lambda server: storage.run(server, rounds=given.rounds),
        "language": lambda _: language.run(rounds=given.rounds),
        "isolation": lambda server: isolation.run(server, data(), rounds=given.rounds),
        "peers": lambda server: peers.run(server, data(), rounds=given.rounds, facts=given.facts),
    }
    if unknown := set(given.questions) - set(questions):
        parser.error(f"no such question: {', '.join(sorted(unknown))}; there are {', '.join(questions)}")
    asked = given.questions or [name for name in questions if name not in LARGE]
    if not given.questions and (lacking := peers.missing()):
        asked.remove("peers")
        print(f"peers is left out, without: {', '.join(lacking)} ({peers.NEEDS})")
    left_out = []
    also = given.also.read_text(encoding="utf-8") if given.also else ""
    with harness.server(also) as server:
        environment = harness.environment(server, given.rounds, given.seconds)
        for name in asked:
            print(f"\n=== {name}, {time.strftime('%H:%M:%S')}", flush=True)
            try:
                report = questions[name](server)
            except (dataset.DatasetError, peers.MissingError) as error:
                left_out.append(f"{name}: {error}")
                continue
            if also:
                continue  # a package that is not installed gives no result
            report.write(environment)
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    return 2 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
