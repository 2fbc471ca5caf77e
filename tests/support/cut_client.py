"""A client of test_cut that is killed: transactions of several calls, and a line before and after each COMMIT.

Started as a separate process: ``python -m tests.support.cut_client DSN SEED``. What it sends follows from the seed, so that
the one that killed it can send the same again.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import psycopg

from tests.faults.accounts import TURN, Call, ingest_one
from tests.faults.candidates import candidate


def calls(seed: str, tenant: str) -> Iterator[Call]:
    """Its transactions, in order; each has up to four calls, each with a key."""
    choice = random.Random(seed)
    number = 0
    while True:
        items, marks = [], []
        for _ in range(choice.randint(1, 4)):
            number += 1
            mark = f"{TURN}{seed}.{number}"
            item = candidate(choice, tenant, number)
            items.append({**item, "source_turn_ids": [mark], "idempotency_key": f"key {mark}"})
            marks.append(mark)
        yield Call("together", tenant, items, True, marks)


def main() -> None:
    """Go on until killed."""
    dsn, seed = sys.argv[1:]
    with psycopg.connect(dsn, autocommit=True, application_name="cut client") as db:
        for number, call in enumerate(calls(seed, "acme")):
            while True:
                try:
                    with db.transaction():
                        print(f"sent {number}", flush=True)
                        for item in call.items:
                            ingest_one(db, item)
                            print("held", flush=True)
                    break
                except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                    continue
            print(f"acknowledged {number}", flush=True)


if __name__ == "__main__":
    main()
