"""Some order of the calls explains every answer, whatever is killed and cut, and after a failover.

``MEMFOLD_CALLS=20000`` makes so many calls; ``MEMFOLD_SEED`` repeats a run's choices (not its timing).
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.conftest import Target
from tests.faults.histories import LOST, NEVER, Call, Fact, explain
from tests.faults.killable import PORT, Server, killable_server, promote, standby_of
from tests.faults.patience import PATIENCE
from tests.faults.proxy import Plans, Proxy
from tests.support.memories import check
from tests.support.rounds import SEED, rounds

pytestmark = pytest.mark.one_server

CALLS = rounds("MEMFOLD_CALLS", 600, 6000)
CLIENTS = 8
# of one text: enough to be entangled, few enough to be searched
CALLS_PER_TEXT = 40
TENANT = "acme"
log = logging.getLogger(__name__)

STATEMENTS = {
    "state": "select action, event_id, memory_id from memfold.ingest_memory(%s, %s, idempotency_key => %s)",
    "reject": "select action, event_id, memory_id from memfold.reject_memory(%s, %s)",
    "undo": "select 'undone', event_id, null from memfold.undo(%s, %s) limit 1",
    "read": (
        "select k.status, t.observations from memfold.known_memory(%s, %s) as k"
        " join memfold.memory_totals as t on t.tenant_id = %s and t.memory_id = k.memory_id"
    ),
}
RETRIED = ("40001", "40P01", "55P03")


class History:
    """What all clients called and were answered."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.calls: defaultdict[int, list[Call]] = defaultdict(list)
        self.number = 0
        self.events: defaultdict[int, list[tuple[int, UUID]]] = defaultdict(list)
        self.memories: dict[int, UUID] = {}
        self.counts: Counter[str] = Counter()

    def choose(self) -> tuple[int, int, str, tuple[int, UUID] | None] | None:
        """A number, a text, what to do with it, and for an undo of which call; None: enough."""
        with self.lock:
            if self.number >= CALLS:
                return None
            self.number += 1
            text = self.number // CALLS_PER_TEXT + self.random.randrange(4)
            what = self.random.choices(["state", "read", "reject", "undo"], [50, 20, 10, 20])[0]
            if what == "reject" and text not in self.memories:
                what = "state"
            if what == "undo" and not self.events[text]:
                what = "read"
            # more often of a recent one
            of = self.random.choice(self.events[text][-6:]) if what == "undo" else None
            return self.number, text, what, of

    def record(self, text: int, call: Call, event: UUID | None, memory: UUID | None) -> None:
        with self.lock:
            self.calls[text].append(call)
            self.counts[f"{call.what}: {'read' if call.what == 'read' else call.answer}"] += 1
            # (a statement that is refused leaves an event that decides nothing)
            if event is not None and (call.what, call.answer) != ("state", "rejected"):
                self.events[text].append((call.number, event))
            if memory is not None:
                self.memories[text] = memory


class Client(threading.Thread):
    """Makes one call after the other, and repeats one that may be repeated until it is answered."""

    def __init__(self, history: History, proxy: Proxy) -> None:
        super().__init__(daemon=True)
        self.history = history
        self.proxy = proxy
        self.connection: psycopg.Connection[Any] | None = None
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            while (chosen := self.history.choose()) is not None:
                self.call(*chosen)
        except BaseException as error:
            self.failed = error
        finally:
            if self.connection is not None:
                self.connection.close()

    def connected(self) -> psycopg.Connection[Any]:
        end = time.monotonic() + PATIENCE
        while self.connection is None:
            assert time.monotonic() < end
            try:
                self.connection = psycopg.connect(self.proxy.dsn(), autocommit=True)
            except psycopg.OperationalError:
                time.sleep(0.02)
        return self.connection

    def call(self, number: int, text: int, what: str, of: tuple[int, UUID] | None) -> None:
        said = f"Fact number {text} of the team"
        given: dict[str, list[Any]] = {
            "state": [random.choice([said, said.upper(), f"  {said}."]), TENANT, str(uuid4())],
            "reject": [self.history.memories.get(text), TENANT],
            "undo": [of and of[1], TENANT],
            "read": [said, TENANT, TENANT],
        }
        began = time.monotonic()
        answer: Any
        row: Any = None
        while True:
            connection = self.connected()
            try:
                row = connection.execute(STATEMENTS[what].encode(), given[what]).fetchone()
                answer = ((None, 0) if row is None else tuple(row)) if what == "read" else row and row[0]
                break
            except psycopg.Error as error:
                if error.sqlstate in RETRIED:
                    continue
                if (error.sqlstate or "").startswith("MF"):
                    answer = error.sqlstate
                    break
                if not isinstance(error, psycopg.OperationalError):
                    raise
                # a read changes nothing, and a statement has its key; the outcome of others is unknown
                with contextlib.suppress(psycopg.Error):
                    connection.close()
                self.connection = None
                if what in ("reject", "undo"):
                    answer = LOST
                    break
        ended = NEVER if answer == LOST else time.monotonic()
        event, memory = row[1:] if row is not None and what != "read" else (None, None)
        self.history.record(text, Call(number, what, began, ended, answer, of and of[0]), event, memory)


def disturb(history: History, server: Server, choice: random.Random, kills: int) -> None:
    """Kill the server, or one of its processes, now and then, until the calls are made."""
    for kill in range(kills):
        while history.number < CALLS * (kill + 1) // (kills + 2):
            time.sleep(0.01)
        if choice.random() < 0.5:
            server.kill()
            server.start()
            server.ready()
            history.counts["servers killed"] += 1
        elif server.kill_a_backend(choice):
            history.counts["processes killed"] += 1


def test_some_order_explains_every_answer(target: Target, record_property: Any) -> None:
    choice = random.Random(SEED)
    history = History(choice.randrange(1 << 30))
    settings = {"synchronous_standby_names": "*", "synchronous_commit": "local"}
    with (
        killable_server(target.cluster.bindir, **settings) as primary,
        standby_of(primary, "standby") as standby,
    ):
        with primary.connect() as db:
            db.execute("alter system set synchronous_commit = 'on'")
            db.execute("select pg_reload_conf()")
        plans = Plans(choice.randrange(1 << 30), share=0.3)
        proxy = Proxy(primary.data.parent, plans)
        clients = [Client(history, proxy) for _ in range(CLIENTS)]
        try:
            for client in clients:
                client.start()
            disturb(history, primary, choice, kills=max(2, CALLS // 1000))
            while history.number < CALLS * 3 // 4:
                time.sleep(0.01)
            primary.kill()
            promote(standby)
            proxy.upstream = f"{standby.data.parent}/.s.PGSQL.{PORT}"
            history.counts["failovers"] += 1
            for client in clients:
                client.join(PATIENCE)
                assert not client.is_alive()
                assert client.failed is None, client.failed
        finally:
            history.number = CALLS
            plans.ended = True
            proxy.close()
        figures = {"seed": SEED, "calls": CALLS, "cuts": proxy.cuts.total(), **history.counts}
        for name, figure in figures.items():
            record_property(name, figure)
        log.warning("%s", figures)
        for text, calls in sorted(history.calls.items()):
            verdict = explain(calls)
            assert verdict.explained, f"seed {SEED}, text {text}: {verdict}"
        with standby.connect() as db:
            db.execute("set search_path = memfold, public")
            check(db)
        assert history.counts["failovers"] == 1
        for happened in (
            history.counts["undo: undone"],
            history.counts["reject: rejected"],
            proxy.cuts.total(),
        ):
            assert happened > 0


def at(number: int, what: str, answer: Any, began: float, ended: float, of: int | None = None) -> Call:
    return Call(number, what, began, ended, answer, of)


STATED = [at(1, "state", "inserted", 0, 1), at(2, "state", "merged", 2, 3)]
REJECTED = [*STATED, at(3, "reject", "rejected", 4, 5)]
UNDONE = [*REJECTED, at(4, "undo", "undone", 6, 7, 3)]


@pytest.mark.parametrize(
    ("calls", "holds"),
    [
        ([*STATED, at(3, "read", ("active", 2), 4, 5)], True),
        ([*STATED, at(3, "read", ("active", 1), 4, 5)], False),  # lost
        ([*STATED, at(3, "read", ("active", 3), 4, 5)], False),  # doubled
        ([at(1, "state", "inserted", 0, 1), at(2, "state", "inserted", 2, 3)], False),
        ([at(1, "state", "merged", 0, 9), at(2, "state", "inserted", 2, 3)], True),  # at the same time
        ([at(1, "state", "merged", 0, 1), at(2, "state", "inserted", 2, 3)], False),
        ([*REJECTED, at(4, "state", "rejected", 6, 7)], True),
        ([*REJECTED, at(4, "state", "merged", 6, 7)], False),
        ([*REJECTED, at(4, "reject", "MF034", 6, 7)], True),
        ([*UNDONE, at(5, "read", ("active", 2), 8, 9)], True),
        ([*UNDONE, at(5, "undo", "MF033", 8, 9, 3)], True),
        ([*UNDONE, at(5, "undo", "undone", 8, 9, 3)], False),
        ([*UNDONE, at(5, "undo", "undone", 8, 9, 4), at(6, "read", ("rejected", 2), 10, 11)], True),
        ([*STATED, at(3, "undo", "undone", 4, 5, 2), at(4, "read", ("active", 1), 6, 7)], True),
        ([*STATED, at(3, "undo", "MF032", 4, 5, 1)], True),
        # an answer that was lost: the call took effect once, at any time since, or never
        ([*STATED, at(3, "reject", LOST, 4, NEVER), at(4, "read", ("active", 2), 6, 7)], True),
        ([*STATED, at(3, "reject", LOST, 4, NEVER), at(4, "read", ("rejected", 2), 6, 7)], True),
        (
            [
                *STATED,
                at(3, "reject", LOST, 4, NEVER),
                at(4, "read", ("rejected", 2), 6, 7),
                at(5, "read", ("active", 2), 8, 9),
            ],
            False,
        ),
    ],
)
def test_the_checker_finds_impossible_histories(calls: list[Call], holds: bool) -> None:
    assert explain(calls).explained is holds
    # in whatever order they are told
    assert explain(calls[::-1]).explained is holds
    moved = [replace(call, number=call.number + 5, of=call.of and call.of + 5) for call in calls]
    assert explain(moved).explained is holds


def test_a_fact_that_nobody_has_stated() -> None:
    assert Fact().status is None
    assert explain([]).explained
