"""Connections lost at any byte, clients that are killed or stopped, judges that never answer.

No call is counted twice if its client repeats it with the same idempotency key, even when the outcome is unknown; no
lease or lock is left. ``MEMFOLD_CUTS=200`` cuts two hundred times; ``MEMFOLD_SEED`` repeats a run's choices.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import psycopg
import pytest

from memfold import AsyncMemfold, Memfold
from memfold.client import errors
from tests.conftest import Target
from tests.faults.accounts import Call, execute
from tests.faults.audit import Audit, drain
from tests.faults.candidates import PAIRS, prepare
from tests.faults.clients import Judge, Maintenance, Writer
from tests.faults.patience import PATIENCE, pause_until
from tests.faults.proxy import Cut, Plans, Proxy
from tests.faults.world import World
from tests.support import cut_client
from tests.support.memories import check, ingest, model
from tests.support.queries import DB, Connect
from tests.support.rounds import SEED, rounds
from tests.support.servers import ROOT

Record = Callable[[str, object], None]
pytestmark = pytest.mark.one_server

CUTS = rounds("MEMFOLD_CUTS", 10, 100)
CLIENTS = 8
TENANT = "acme"
log = logging.getLogger(__name__)


@contextlib.contextmanager
def proxy(target: Target, plan: Callable[[], Cut | None]) -> Iterator[Proxy]:
    made = Proxy(target.cluster.base, plan)
    try:
        yield made
    finally:
        made.close()


def nothing_is_held(db: DB) -> None:
    """The locks of this database: pg_locks shows those of all."""
    queries = (
        "select pid, mode from pg_locks where locktype = 'advisory'"
        " and database = (select oid from pg_database where datname = current_database())",
        "select pid, state, query from pg_stat_activity where datname = current_database()"
        " and pid <> pg_backend_pid() and state <> 'idle'",
    )
    pause_until(
        lambda: not any(db.execute(query.encode()).fetchall() for query in queries), "nothing is held"
    )


def settled(db: DB, world: World, audit: Audit) -> None:
    """No lock is held, every promise holds, no outcome is in doubt."""
    nothing_is_held(db)
    wrong = audit.all(db, [TENANT])
    assert wrong == [], f"seed {SEED}: {wrong}"
    assert [call for call in audit.open_calls if call.state == "doubt"] == []


def told(record: Record, audit: Audit | None = None, **figures: Any) -> None:
    figures = {"seed": SEED, **figures, **(audit.counts | audit.world.seen if audit else {})}
    for name, figure in figures.items():
        record(name, figure)
    log.warning("%s", json.dumps(figures, default=str))


def test_connections_are_cut(target: Target, db: DB, record_property: Record) -> None:
    """Writers, judges and maintenance over connections that are cut, while their sessions are terminated."""
    prepare(db, TENANT)
    plans = Plans(SEED)
    terminated = 0
    with proxy(target, plans) as wire:
        world = World(wire.dsn(db.info.dbname), SEED, [TENANT])
        world.add(*(Writer(world, f"writer {n}") for n in range(CLIENTS)))
        world.add(*(Judge(world, f"judge {n}") for n in range(2)), Maintenance(world, "maintenance"))
        audit = Audit(world)
        world.start()
        world.go()
        try:
            end = time.monotonic() + 5 * PATIENCE
            while wire.cuts.total() + terminated < CUTS:
                assert time.monotonic() < end
                assert world.faults == [], f"seed {SEED}"
                time.sleep(0.1)
                if plans.choice.random() < 0.3:
                    row = db.execute(
                        "select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity"
                        " where datname = current_database() and application_name ~ '^(writer|judge|maintenance)'"
                        " order by random() limit 1) as a"
                    ).fetchone()
                    assert row is not None
                    terminated += row[0]
            plans.ended = True
            # calls in doubt are sent again, over a connection that is not cut
            world.finish()
        finally:
            world.end()
    world.seen["drained judgements"] = drain(world, db)
    # calls in doubt without a pending retry have no key: each is stored once, or not at all
    for call in audit.collect():
        audit.open_calls.append(call)
    settled(db, world, audit)
    assert audit.counts["in doubt"] + sum(n for k, n in world.seen.items() if k.startswith("in doubt")) > 0
    told(record_property, audit, cuts=dict(wire.cuts), terminated=terminated, connections=wire.connections)


@contextlib.contextmanager
def client(dsn: str, seed: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.cut_client", dsn, seed],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'python_client'}"},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def account(said: str, seed: str) -> list[Call]:
    """The calls of a killed client: its output before and after each."""
    lines = said.splitlines()
    sent = sum(line.startswith("sent ") for line in lines)
    acked = {int(line.split()[1]) for line in lines if line.startswith("acknowledged ")}
    numbers = {int(line.split()[1]) for line in lines if line.startswith("sent ")}
    assert sent >= len(numbers)
    calls = list(islice(cut_client.calls(seed, TENANT), max(numbers, default=-1) + 1))
    for number, call in enumerate(calls):
        call.state = "acked" if number in acked else "doubt"
    return calls


def test_clients_are_killed(dsn: str, db: DB, record_property: Record) -> None:
    """In the middle of a transaction of several calls, some while they hold a lock that another one waits for."""
    prepare(db, TENANT)
    choice = random.Random(SEED)
    world = World(dsn, SEED, [TENANT])
    writer = Writer(world, "writer")
    world.add(writer)
    audit = Audit(world)
    counts: Counter[str] = Counter()
    number = 0
    rounds = max(2, CUTS // 20)
    for _ in range(rounds):
        seeds = [f"{SEED}-{number + n}" for n in range(3)]
        number += len(seeds)
        with contextlib.ExitStack() as stack:
            processes = [(seed, stack.enter_context(client(dsn, seed))) for seed in seeds]
            said = {}
            for seed, process in processes:
                assert process.stdout is not None
                said[seed] = process.stdout.readline()  # it is under way
                assert said[seed], "the client did not start"
            for seed, process in processes:
                time.sleep(choice.uniform(0, 0.15))
                if choice.random() < 0.5:
                    process.send_signal(signal.SIGSTOP)
                    counts["stopped, then killed"] += 1
                    time.sleep(choice.uniform(0, 0.1))
                process.kill()
                counts["killed"] += 1
                process.wait()
                assert process.stdout is not None
                said[seed] += process.stdout.read()
        for seed, _ in processes:
            writer.calls += account(said[seed], seed)
        nothing_is_held(db)
        calls = list(writer.calls)
        for call in calls:
            if call.is_acked:
                call.events = execute(db, call)  # the same answer again: nothing is counted
        wrong = audit.compare(db)
        assert wrong == [], f"seed {SEED}: {wrong}"
        for call in calls:
            if call.state == "doubt":
                call.events = execute(db, call)
                call.state = "acked"
    settled(db, world, audit)
    assert audit.counts["in doubt"] > 0
    told(record_property, audit, **counts)


def waits(db: DB, pid: int) -> bool:
    return db.execute(
        "select count(*) > 0 from pg_locks where not granted and pid = %s", [pid]
    ).fetchone() == (True,)


def test_killing_a_stopped_client_releases_its_locks(dsn: str, db: DB, connect: Connect) -> None:
    """A session that waits for its lock continues, and finds no trace of it."""
    for turn in range(max(2, CUTS // 20)):
        item = {"content": f"Fact of turn {turn}", "subject": "Ann", "tenant_id": TENANT}
        program = (
            "import sys, time, psycopg\n"
            "db = psycopg.connect(sys.argv[1], autocommit=True)\n"
            "db.execute('begin')\n"
            "db.execute('select memfold.ingest_memory(%s, %s, subject => %s, idempotency_key => %s)', sys.argv[2:])\n"
            "print('held', flush=True)\n"
            "time.sleep(600)\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program, dsn, item["content"], TENANT, "Ann", f"key {turn}"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == "held\n"
            process.send_signal(signal.SIGSTOP)
            impatient = connect()
            impatient.execute("set lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                ingest(impatient, "Something else", subject="Ann")
            waiting = connect()
            answers: list[Any] = []
            thread = threading.Thread(
                target=lambda w=waiting, a=answers, t=turn, i=item: a.append(
                    ingest(w, i["content"], subject="Ann", idempotency_key=f"key {t}")
                )
            )
            thread.start()
            pause_until(lambda pid=waiting.info.backend_pid: waits(db, pid), "it waits")
            process.kill()
            process.wait()
        thread.join(PATIENCE)
        assert [answer.action for answer in answers] == ["inserted"]
    assert db.execute("select sum(observations) from memfold.memory_totals").fetchone() == (turn + 1,)
    nothing_is_held(db)
    check(db)


def test_judges_are_cut(target: Target, db: DB, record_property: Record) -> None:
    """A lease ends by time; then the question is asked again, and answered once."""
    model(db)
    count = max(12, CUTS // 4)
    for number in range(count):
        for word in ("holds", "holds there"):
            ingest(db, f"The box {word}", subject=f"box {number}", embedding=json.dumps(PAIRS[word]),
                   embedding_model="m")  # fmt: skip
    plans = Plans(SEED, 1, 3000, (b"", b"memfold.claim_", b"memfold.resolve_", b"memfold.resolve_"))
    with proxy(target, plans) as wire:
        world = World(wire.dsn(db.info.dbname), SEED, [TENANT])
        judges = [Judge(world, f"judge {n}") for n in range(4)]
        world.add(*judges)
        audit = Audit(world)
        world.start()
        world.go()
        try:
            pause_until(
                lambda: world.faults
                or db.execute(
                    "select count(*) from memfold.judgements where status in ('open', 'leased')"
                ).fetchone() == (0,),
                "all are answered",
            )  # fmt: skip
            world.halt()
        finally:
            world.end()
    nothing_is_held(db)
    drain(world, db)  # after eight leases without an answer it is dead until it is retried
    assert db.execute(
        "select status, count(*) from memfold.judgements where kind = 'write' group by 1"
    ).fetchall() == [("done", count)]
    answered = db.execute(
        "select count(*), count(distinct judgement_id) from memfold.memory_events"
        " where tier = 3 and judgement_id is not null"
    ).fetchone()
    assert answered == (count, count)
    wrong = audit.all(db, [TENANT])
    assert wrong == [], f"seed {SEED}: {wrong}"
    told(record_property, audit, cuts=dict(wire.cuts), judgements=count)


class Outcomes:
    """What the Python clients report about a call over a cut connection, and what is stored afterwards."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.calls: list[tuple[str, bool, str]] = []

    def add(self, text: str, keyed: bool, outcome: str) -> None:
        self.counts[f"{'with' if keyed else 'without'} a key: {outcome}"] += 1
        self.calls.append((text, keyed, outcome))

    def hold(self, db: DB) -> None:
        """Each exception means what docs/errors.md says."""
        observed = dict(
            db.execute(
                "select content, count(*) from memfold.memory_events where observation group by 1"
            ).fetchall()
        )
        for text, keyed, outcome in self.calls:
            count = observed.get(text, 0)
            told = f"seed {SEED}: {text}, keyed: {keyed}, {outcome}, there {count} times"
            if outcome == "answered":
                assert count == 1, told
            elif outcome == "ConnectionLostError":
                assert count == 0, told
            else:
                assert outcome == "OutcomeUnknownError", told
                assert count <= 1, told


def test_the_client_is_cut(target: Target, db: DB, record_property: Record) -> None:
    """Answered: there once. ConnectionLostError: not there. OutcomeUnknownError: once or not, and again by its key."""
    plans = Plans(SEED, share=1, longest=2000)
    outcomes = Outcomes()
    with proxy(target, plans) as wire, Memfold(wire.dsn(db.info.dbname), TENANT) as memfold:
        for number in range(10 * CUTS):
            if wire.cuts.total() >= CUTS:
                break
            text, keyed = f"Fact {number} by itself", number % 2 == 0
            key = {"idempotency_key": text} if keyed else {}
            try:
                memfold.ingest(text, subject=f"thing {number}", **key)
                outcomes.add(text, keyed, "answered")
            except errors.MemfoldError as error:
                outcomes.add(text, keyed, type(error).__name__)
        outcomes.hold(db)
        plans.ended = True
        again = [text for text, keyed, outcome in outcomes.calls if keyed and outcome != "answered"]
        for text in again:
            memfold.close()  # its connection may have a cut before it
            memfold.ingest(
                text, subject=text.replace("Fact", "thing").replace(" by itself", ""), idempotency_key=text
            )
    rows = db.execute("select content, count(*) from memfold.memory_events group by 1").fetchall()
    assert {count for _, count in rows} == {1}
    assert {text for text, keyed, _ in outcomes.calls if keyed} <= {text for text, _ in rows}
    nothing_is_held(db)
    check(db)
    told(record_property, None, cuts=dict(wire.cuts), **outcomes.counts)


def test_a_lost_commit_stays_unknown(target: Target, db: DB) -> None:
    """The first connection is lost before the answer, the second at once: a client that has the key may send it again."""
    plans = iter([Cut("close", True, 1, word=b"memfold.ingest_"), Cut("close", True, 1)])
    with (
        proxy(target, lambda: next(plans, None)) as wire,
        Memfold(wire.dsn(db.info.dbname), TENANT) as memfold,
    ):
        with pytest.raises(errors.OutcomeUnknownError, match="idempotency_key"):
            memfold.ingest("Alice has a cat.", idempotency_key="k")
        events = "select from memfold.memory_events"
        pause_until(lambda: db.execute(events).fetchall(), "it is stored")
        assert memfold.ingest("Alice has a cat.", idempotency_key="k").action == "inserted"
    assert db.execute("select count(*) from memfold.memory_events").fetchone() == (1,)


def test_the_asynchronous_client_is_cut(target: Target, db: DB, record_property: Record) -> None:
    """The same with AsyncMemfold, several at the same time, singles and batches; ``retry_safe`` generates keys."""
    plans = Plans(SEED, share=1, longest=2500)
    outcomes = Outcomes()

    async def one(wire: Proxy, lane: int, retry_safe: bool) -> None:
        async with AsyncMemfold(wire.dsn(db.info.dbname), TENANT, retry_safe=retry_safe) as memfold:
            for number in range(10 * CUTS):
                if wire.cuts.total() >= CUTS:
                    return
                text = f"Fact {number} of lane {lane}"
                try:
                    if number % 5 == 4:
                        texts = [f"{text}, part {part}" for part in range(4)]
                        batch = [{"content": t, "subject": t, "idempotency_key": t} for t in texts]
                        async for item in memfold.ingest_many(batch):
                            assert item.error is None, item.error
                            outcomes.add(texts[item.index], True, "answered")
                    else:
                        await memfold.ingest(text, subject=text)
                        outcomes.add(text, retry_safe, "answered")
                except errors.MemfoldError as error:
                    if number % 5 == 4:
                        for t in texts:
                            outcomes.add(t, True, type(error).__name__)
                    else:
                        outcomes.add(text, retry_safe, type(error).__name__)

    async def all_lanes(wire: Proxy) -> None:
        await asyncio.gather(*(one(wire, lane, lane % 2 == 0) for lane in range(4)))

    with proxy(target, plans) as wire:
        asyncio.run(all_lanes(wire))
    nothing_is_held(db)
    outcomes.hold(db)
    check(db)
    told(record_property, None, cuts=dict(wire.cuts), **outcomes.counts)
