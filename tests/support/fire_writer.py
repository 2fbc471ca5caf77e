"""One writer of test_adopt_fire: inserts, updates and reads without pause until SIGTERM, then reports its errors.

Started as a separate process, as applications are: ``python -m tests.support.fire_writer DSN SEED ROWS THINK``.
"""

from __future__ import annotations

import json
import math
import random
import signal
import sys
import time
from collections import Counter
from typing import Any

import psycopg

from memfold.adopt import conflict_of
from memfold.client.errors import MemoryHashConflict

SLOW = 0.05
SLOT = 0.25


class Writer:
    """An application that knows nothing of memfold except how to handle its conflict."""

    def __init__(self, dsn: str, seed: int, rows: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.rows = rows
        self.db = psycopg.connect(dsn, autocommit=True, application_name="fire-writer")
        self.done: Counter[str] = Counter()
        self.errors: list[str] = []
        self.slow: list[tuple[float, float, str]] = []
        self.counts: Counter[tuple[int, int]] = Counter()
        self.own: list[int] = []
        self.serial = 0
        self.stopping = False

    def text(self) -> dict[str, Any]:
        """One in twelve repeats an earlier text in another spelling."""
        self.serial += 1
        if self.random.random() < 0.08:
            spelling = self.random.choice(["fact number {}!", "Fact  NUMBER {}", " fact number {} "])
            n = 60 * self.random.randrange(max(self.rows // 240, 1)) + 12 * self.random.randrange(5)
            return {"tenant_id": f"t{n % 5}", "bucket_id": f"b{n % 3}", "content": spelling.format(n)}
        return {
            "tenant_id": f"t{self.serial % 5}",
            "bucket_id": f"b{self.serial % 3}",
            "content": f"Said by {self.seed}: {self.serial}",
        }

    def insert(self) -> None:
        """A memory and what refers to it, in one transaction."""
        row = self.text()
        try:
            with self.db.transaction():
                made = self.db.execute(
                    "insert into app.memories (tenant_id, bucket_id, content) values (%s, %s, %s) returning id",
                    list(row.values()),
                ).fetchone()
                assert made is not None
                self.db.execute("insert into app.links (memory_id, note) values (%s, 'fire')", [made[0]])
        except psycopg.errors.UniqueViolation as error:
            self.conflict(error, row)
        else:
            self.own.append(made[0])
            self.done["inserted"] += 1
            self.done["linked"] += 1

    def conflict(self, error: psycopg.Error, row: dict[str, Any]) -> None:
        """Whether it is the intended conflict and names the row; any other one is an error."""
        found = conflict_of(self.db, error, row)
        if isinstance(found, MemoryHashConflict):
            self.done["conflicts"] += 1
            self.done["conflicts that name a row"] += found.existing_id is not None
        else:
            self.errors.append(str(found))

    def touch(self) -> None:
        """Update a column other than the text."""
        self.db.execute(
            "update app.memories set reads = reads + 1 where id = %s", [self.random.randint(1, self.rows)]
        )
        self.done["touched"] += 1

    def rewrite(self) -> None:
        """The text of one of its rows."""
        if not self.own:
            return
        row = self.text()
        try:
            self.db.execute(
                "update app.memories set content = %s, tenant_id = %s, bucket_id = %s where id = %s",
                [row["content"], row["tenant_id"], row["bucket_id"], self.random.choice(self.own)],
            )
            self.done["rewritten"] += 1
        except psycopg.errors.UniqueViolation as error:
            self.conflict(error, row)

    def link(self) -> None:
        """A reference to some row, if it is still there."""
        made = self.db.execute(
            "with m as materialized (select id from app.memories where id = %s for key share)"
            " insert into app.links (memory_id, note) select id, 'later' from m returning id",
            [self.random.randint(1, self.rows)],
        ).fetchone()
        self.done["linked"] += made is not None

    def read(self) -> None:
        """Read some rows with their references."""
        self.db.execute(
            "select m.content, count(l.id) from app.memories m left join app.links l on l.memory_id = m.id"
            " where m.id between %s and %s group by m.id",
            [start := self.random.randint(1, self.rows), start + 20],
        ).fetchall()
        self.done["read"] += 1

    def run(self, think: float) -> None:
        """Until SIGTERM."""
        kinds = [self.insert, self.touch, self.touch, self.rewrite, self.link, self.read, self.read]
        while not self.stopping:
            kind = self.random.choice(kinds)
            began = time.time()
            try:
                kind()
            except psycopg.Error as error:
                self.errors.append(f"{kind.__name__}: {error.sqlstate} {error}")
                if self.db.closed:
                    break
            took = time.time() - began
            # how many calls of a quarter of a second took how long, within 5 %
            self.counts[int(began / SLOT), round(20 * math.log(max(took, 1e-6)))] += 1
            if took > SLOW:
                self.slow.append((began, took, kind.__name__))
            if think:
                time.sleep(self.random.uniform(0, 2 * think))


def main() -> None:
    """Write, and print the account."""
    dsn, seed, rows, think = sys.argv[1:]
    writer = Writer(dsn, int(seed), int(rows))

    def stop(*_: object) -> None:
        writer.stopping = True

    signal.signal(signal.SIGTERM, stop)
    print("ready", flush=True)
    writer.run(float(think))
    print(
        json.dumps(
            {
                "done": writer.done,
                "errors": writer.errors,
                "slow": writer.slow,
                "counts": [[*what, calls] for what, calls in writer.counts.items()],
            }
        )
    )


if __name__ == "__main__":
    main()
