"""Several concurrent MCP servers on one tenant: one row per fact, and no statement is lost."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import pytest

from tests.support.mcp_clients import call, over_stdio, run
from tests.support.memories import check
from tests.support.queries import DB

pytestmark = pytest.mark.one_server

PROCESSES, WRITERS, FACTS = 4, 4, 6
SPELLINGS = ("User number {} likes tea.", "user number {} likes  tea", "USER NUMBER {} LIKES TEA!")


def test_four_servers_and_sixteen_writers_lose_nothing(dsn: str, db: DB) -> None:
    said: list[str] = []
    answered: Counter[str] = Counter()

    async def server(number: int) -> None:
        async with over_stdio(dsn) as client:
            await asyncio.gather(*(writer(client, number * WRITERS + place) for place in range(WRITERS)))

    async def writer(client: object, number: int) -> None:
        for fact, spelling in itertools.product(range(FACTS), SPELLINGS):
            content = spelling.format((fact + number) % FACTS)
            said.append(content)
            made = await call(client, "remember", content=content, subject="user")  # type: ignore[arg-type]
            assert made["counted"] is True
            answered[made["action"]] += 1

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(PROCESSES):
                group.create_task(server(number))

    run(work)
    calls = PROCESSES * WRITERS * FACTS * len(SPELLINGS)
    assert len(said) == calls
    assert answered == {"inserted": FACTS, "merged": calls - FACTS}
    rows = db.execute("select status, count(*) from memfold.memories group by 1").fetchall()
    assert rows == [("active", FACTS)]
    counted = db.execute("select sum(observations), max(observations) from memfold.memory_totals").fetchone()
    assert counted == (calls, calls // FACTS)
    ledger = db.execute("select content from memfold.memory_events where observation").fetchall()
    assert Counter(row[0] for row in ledger) == Counter(said)
    check(db)
