"""Promises 1 to 5 and 10 after SIGKILL of a server under full load, and of a primary whose standby takes over.

``MEMFOLD_CRASHES=100`` kills a hundred times; ``MEMFOLD_SEED`` repeats a run's choices (not its timing).
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.conftest import Target
from tests.faults.accounts import Call, execute
from tests.faults.audit import NEVER, Audit, drain
from tests.faults.candidates import prepare
from tests.faults.clients import Judge, Maintenance, Writer
from tests.faults.killable import Server, killable_server, promote, standby_of
from tests.faults.promises import broken, corrupt, held
from tests.faults.world import World
from tests.support.rounds import SEED, rounds

# A separate server, with the same contents regardless of the installation method.
pytestmark = pytest.mark.one_server

CRASHES = rounds("MEMFOLD_CRASHES", 1, 20)
WRITERS = rounds("MEMFOLD_CRASH_WRITERS", 6, 16)
log = logging.getLogger(__name__)
Record = Callable[[str, object], None]


def peopled(dsn: str, seed: int, tenants: list[str]) -> World:
    world = World(dsn, seed, tenants)
    world.add(*(Writer(world, f"writer {n}") for n in range(WRITERS)))
    world.add(*(Judge(world, f"judge {n}") for n in range(2)), Maintenance(world, "maintenance"))
    return world


def told(record: Record, audit: Audit, **figures: Any) -> None:
    figures = {"seed": SEED, **figures, **audit.counts, **audit.world.seen}
    for name, figure in figures.items():
        record(name, figure)
    log.warning("%s", json.dumps(figures, default=str))


def spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"median {ordered[len(ordered) // 2]:.2f} s, longest {ordered[-1]:.2f} s" if ordered else "none"


def test_server_is_killed(target: Target, record_property: Record) -> None:
    """After each start every acknowledged call is stored once, no promise is broken, and all clients continue."""
    choice = random.Random(SEED)
    kills: Counter[str] = Counter()
    recoveries: list[float] = []
    audits: list[float] = []
    with killable_server(target.cluster.bindir) as server:
        world = peopled(server.dsn, SEED, [])
        audit = Audit(world)
        tenants: list[str] = []
        try:
            for crash in range(CRASHES):
                if crash % 10 == 0:
                    # the audit after each start stays bounded: these are audited completely, older ones in turn
                    world.tenants = [f"tenant {crash}.{n}" for n in range(5)]
                    tenants += world.tenants
                    with server.connect() as db:
                        for tenant in world.tenants:
                            prepare(db, tenant)
                    if crash == 0:
                        world.start()
                world.go()
                time.sleep(choice.uniform(0.1, 3.0))
                if choice.random() < 0.2 and server.kill_a_backend(choice):
                    kills["one backend"] += 1
                    time.sleep(choice.uniform(0, 0.3))
                kills["processes"] += server.kill()
                kills["server"] += 1
                world.halt()
                server.start()
                if choice.random() < 0.2:
                    time.sleep(choice.uniform(0, 0.2))
                    server.kill()
                    kills["server, while it recovered"] += 1
                    server.start()
                recoveries.append(server.ready())
                began = time.monotonic()
                with server.connect() as db:
                    wrong = held(db)
                    older = [choice.choice(tenants)] if crash >= 10 else []
                    wrong += audit.all(db, list({*world.tenants, *older}))
                    assert wrong == [], f"seed {SEED}, crash {crash}: {wrong}"
                    assert server.complaints() == []
                audits.append(time.monotonic() - began)
                log.info("crash %d: %s", crash, world.seen)
            # now without a crash: calls in doubt are sent again until they are answered
            world.finish()
        finally:
            world.end()
        with server.connect() as db:
            assert held(db) == []
            world.seen["drained judgements"] = drain(world, db)
            wrong = audit.all(db, tenants) + corrupt(db)
            assert wrong == [], f"seed {SEED}: {wrong}"
            assert [call for call in audit.open_calls if call.state == "doubt"] == []
            size = db.execute("select pg_size_pretty(pg_database_size('postgres'))").fetchone()
            ledger = db.execute("select count(*) from memfold.memory_events").fetchone()
        assert server.complaints() == []
    assert kills["server"] == CRASHES
    assert world.seen["acked: single"] > 10 * CRASHES
    assert audit.counts["in doubt"] > CRASHES
    told(
        record_property, audit, kills=dict(kills), recovery=spread(recoveries), audits=spread(audits), violations=0,
        database=size, ledger=ledger,
    )  # fmt: skip


def walsender(server: Server) -> int:
    with server.connect() as db:
        row = db.execute("select pid from pg_stat_replication").fetchone()
        assert row is not None
        return int(row[0])


def roll_back(audit: Audit, server: Server) -> list[str]:
    """After the failover to an asynchronous standby: it has a prefix of the acknowledged calls."""
    with server.connect() as db:
        wrong = []
        calls = audit.collect()
        audit.checked_to, audit.found = NEVER, {}
        audit.hot.clear()
        wrong += audit.read(db)
    lost = [call for call in calls if call.is_acked and not any(mark in audit.found for mark in call.marks)]
    there = [call for call in calls if any(mark in audit.found for mark in call.marks)]
    for call in calls:
        if len({len(audit.found.get(mark, [])) for mark in call.marks}) > 1:
            wrong.append(f"half of it is there: {call}")
    if lost:
        # calls sent after the first lost one was acknowledged are lost too
        first = min(lost, key=lambda call: call.acked)
        wrong += [f"{first} is lost, {call} is not" for call in there if call.sent > first.acked]
    audit.counts["acknowledged and lost"] += len(lost)
    for call in lost:
        # a client that does not know the outcome resends calls that have a key
        call.state = "doubt" if call.keyed else "never"
    audit.open_calls = calls
    return wrong


@pytest.mark.parametrize("synchronous", [True, False], ids=["synchronous", "asynchronous"])
def test_standby_takes_over(target: Target, record_property: Record, synchronous: bool) -> None:
    """Replicated calls keep the same promises; the rest was never acknowledged, or is sent again with its key."""
    choice = random.Random(SEED)
    tenants = ["first", "second", "third"]
    promotions: list[float] = []
    settings = {"fsync": "off"}  # this server is not started again
    if synchronous:
        settings["synchronous_standby_names"] = "*"
        settings["synchronous_commit"] = "local"
    for _ in range(max(1, CRASHES // 20)):
        with killable_server(target.cluster.bindir, on_disk=False, **settings) as primary:
            with primary.connect() as db:
                for tenant in tenants:
                    prepare(db, tenant)
            with standby_of(primary, "standby") as standby:
                if synchronous:
                    with primary.connect() as db:
                        db.execute("alter system set synchronous_commit = 'on'")
                        db.execute("select pg_reload_conf()")
                world = peopled(primary.dsn, choice.randrange(1 << 30), tenants)
                audit = Audit(world)
                world.start()
                world.go()
                try:
                    time.sleep(choice.uniform(0.5, 2.0))
                    if not synchronous:
                        # calls acknowledged from now on never leave the primary
                        os.kill(walsender(primary), signal.SIGSTOP)
                        time.sleep(choice.uniform(0.1, 0.4))
                    primary.kill()
                    world.halt()
                    promotions.append(promote(standby))
                    world.dsn = standby.dsn
                    if not synchronous:
                        wrong = roll_back(audit, standby)
                        # leases, answers and maintenance of the lost time are gone with it
                        for client in world.clients:
                            if isinstance(client, Writer | Judge | Maintenance):
                                client.deeds = []
                        again = [call for call in audit.open_calls if call.keyed and call.state == "doubt"]
                        assert audit.counts["acknowledged and lost"] > 0
                        with standby.connect() as db:
                            assert wrong + broken(db, tenants) == [], f"seed {SEED}"
                            for call in choice.sample(again, len(again)):
                                call.events = execute(db, call)
                                call.state = "acked"
                            audit.counts["sent again"] += len(again)
                            # send all again, also those that were never lost: each gets its first answer
                            for call in [c for c in audit.open_calls if c.keyed and c.is_acked][-300:]:
                                assert execute(db, call) == call.events
                        for client in world.clients:
                            if isinstance(client, Writer):
                                client.pending = None
                    with standby.connect() as db:
                        wrong = held(db) + audit.all(db, tenants)
                        assert wrong == [], f"seed {SEED}: {wrong}"
                    world.go()
                    time.sleep(0.5)
                    world.finish()
                finally:
                    world.end()
                with standby.connect() as db:
                    assert held(db) == []
                    drain(world, db)
                    wrong = audit.all(db, tenants) + corrupt(db)
                    assert wrong == [], f"seed {SEED}: {wrong}"
                    assert [call for call in audit.open_calls if call.state == "doubt"] == []
                assert standby.complaints() == []
                told(record_property, audit, promotion=spread(promotions), violations=0)


def test_a_broken_promise_is_seen(db: psycopg.Connection[Any]) -> None:
    """The audit finds each kind of broken promise."""
    world = World("", 1, ["acme"])
    writer = Writer(world, "writer")
    world.add(writer)
    audit = Audit(world)
    prepare(db, "acme")
    call = Call("single", "acme", [], True, [])
    for number in range(4):
        item = {"tenant_id": "acme", "bucket_id": "hot", "content": f"Hot fact number {number % 2}",
                "source_turn_ids": [f"turn-{number}"], "idempotency_key": f"key-{number}"}  # fmt: skip
        call = Call("single", "acme", [item], True, [f"turn-{number}"])
        call.events, call.state = execute(db, call), "acked"
        writer.calls.append(call)
    assert audit.all(db, ["acme"]) == []
    writer.calls = [call]
    audit.found.clear()
    assert any("acknowledged, and not there" in line for line in audit.compare(db))
    again = Call("single", "acme", [{**call.items[0], "idempotency_key": "another"}], True, call.marks)
    again.events, again.state = execute(db, again), "acked"
    db.execute("update memfold.memory_counters set observations = observations + 1")
    db.execute("delete from memfold.idempotency_keys where idempotency_key = 'key-1'")
    lines = audit.all(db, ["acme"])
    for words in (
        "an accepted call is one ledger row",
        "hot fact",
        "counters are the observations",
        "check_invariants",
    ):
        assert any(line.startswith(words) for line in lines), (words, lines)
