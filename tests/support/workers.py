"""A judge without an endpoint, and a worker that runs until a condition holds."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from memfold.client.judging import Answer, OpenAIJudge, Question, Usage
from memfold.client.judging.worker import Summary, Worker
from tests.support.queries import DB


def states(db: DB) -> Counter[str]:
    """How many judgements there are of each status."""
    return Counter(row[0] for row in db.execute("select status from memfold.judgements").fetchall())


def done(db: DB) -> int:
    """How many judgements are answered."""
    return states(db)["done"]


@dataclass
class Toy:
    """A judge without an endpoint: records its questions, and what to do then."""

    act: Callable[[Question], Awaitable[Answer | None]] | None = None
    latency: float = 0.0
    cost: float = 0.0
    asked: list[Question] = field(default_factory=list)
    at: list[float] = field(default_factory=list)

    async def judge(self, question: Question) -> Answer:
        self.asked.append(question)
        self.at.append(time.monotonic())
        await asyncio.sleep(self.latency)
        if self.act is not None:
            answer = await self.act(question)
            if answer is not None:
                return answer
        return Answer("duplicate", 0.9, "a toy", usage=Usage("toy", 10, 1, self.cost))


async def eventually(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait until it is so, while the event loop goes on."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never became true"
        await asyncio.sleep(0.02)


def work(worker: Worker, *conditions: Callable[[], object] | Awaitable[object]) -> Summary:
    """Run the worker until each condition has become true in turn, then stop it."""

    async def run() -> Summary:
        running = asyncio.create_task(worker.run())
        try:
            for condition in conditions:
                await (eventually(condition) if callable(condition) else condition)
                assert not running.done() or running.result()
        finally:
            worker.stop()
        return await closing(running, worker)

    return asyncio.run(run())


async def closing(running: Awaitable[Summary], worker: Worker) -> Summary:
    """What the worker returns; its judge is closed."""
    try:
        return await running
    finally:
        if isinstance(worker._judge, OpenAIJudge):
            await worker._judge.close()
