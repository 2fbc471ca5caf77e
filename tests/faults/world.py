"""The clients of a server: they stop when it goes down and continue when it is back."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg

from tests.faults.accounts import AGAIN, REFUSED, Call, Deed, lost
from tests.faults.patience import PATIENCE
from tests.support.queries import DB

MOST = 100
"""How often a call may get 40001 or 40P01 before it counts as failed."""


class World:
    """The clients, the server that they talk to at present, and what they noticed."""

    def __init__(self, dsn: str, seed: int, tenants: list[str]) -> None:
        self.dsn = dsn
        self.seed = seed
        self.tenants = tenants
        self.numbers = iter(range(1, 1 << 60))
        self.lock = threading.Lock()
        self.gate = threading.Condition()
        self.open = False
        self.stopping = False
        self.finishing = False
        self.parked: set[Client] = set()
        self.clients: list[Client] = []
        self.faults: list[str] = []
        self.seen: Counter[str] = Counter()

    def add(self, *clients: Client) -> None:
        self.clients += clients

    def start(self) -> None:
        for client in self.clients:
            client.start()

    def number(self) -> int:
        with self.lock:
            return next(self.numbers)

    def go(self) -> None:
        with self.gate:
            self.open = True
            self.parked.clear()
            self.gate.notify_all()

    def halt(self) -> None:
        """Wait until each has finished or lost its current call."""
        with self.gate:
            self.open = False
            done = self.gate.wait_for(lambda: len(self.parked) == self.alive(), PATIENCE)
            frames = sys._current_frames()
            stuck = [
                f"{client.name}: {''.join(traceback.format_stack(frames.get(client.ident or 0))[-4:])}"
                for client in self.clients
                if client not in self.parked and client.is_alive()
            ]
        assert done, f"stuck: {stuck}"

    def finish(self) -> None:
        """Resend calls in doubt, and no new ones, until all are acknowledged; then halt."""
        self.finishing = True
        end = time.monotonic() + PATIENCE
        while True:
            # running calls may have been lost since: only stopped clients know
            self.halt()
            if self.faults or all(c.pending is None or not c.is_alive() for c in self.clients):
                return
            assert time.monotonic() < end, "not all calls are acknowledged"
            self.go()
            time.sleep(0.1)

    def alive(self) -> int:
        return sum(client.is_alive() for client in self.clients)

    def park(self, client: Client) -> None:
        with self.gate:
            while not self.open and not self.stopping:
                self.parked.add(client)
                self.gate.notify_all()
                self.gate.wait(1)

    def end(self) -> None:
        with self.gate:
            self.stopping = True
            self.open = True
            self.gate.notify_all()
        for client in self.clients:
            if client.is_alive():
                client.join(PATIENCE)


class Client(threading.Thread):
    """Works while the gate is open; a lost connection leaves the outcome of the running call unknown."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.world = world
        self.choice = random.Random(f"{world.seed} {name}")
        self.db: DB | None = None
        self.pending: Call | None = None
        """Sent without an answer: a writer sends it again."""

    def connected(self) -> DB | None:
        if self.db is None or self.db.closed:
            try:
                self.db = psycopg.connect(
                    self.world.dsn, autocommit=True, application_name=self.name, prepare_threshold=None
                )
                self.db.execute(f"set statement_timeout = '{PATIENCE:.0f}s'")
            except psycopg.OperationalError:
                self.drop()
                time.sleep(0.02)
                return None
        return self.db

    def drop(self) -> None:
        if self.db is not None:
            with contextlib.suppress(psycopg.Error):
                self.db.close()
        self.db = None

    def run(self) -> None:
        try:
            while not self.world.stopping:
                self.world.park(self)
                if self.world.stopping:
                    break
                if (db := self.connected()) is not None:
                    self.work(db)
        except BaseException as error:
            self.world.faults.append(f"{self.name}: {type(error).__name__}: {error}")
        finally:
            self.drop()
            with self.world.gate:
                self.world.gate.notify_all()

    def work(self, db: DB) -> None:
        raise NotImplementedError

    def tried(self, deed: Call | Deed, work: Callable[[], Any]) -> str:
        """acked, doubt, refused (nothing was written, and never will be by this), or again (the same)."""
        try:
            answer = work()
        except psycopg.Error as error:
            if lost(error):
                self.drop()
                deed.state = "doubt"
                self.world.seen[f"in doubt: {deed.kind}"] += 1
                return "doubt"
            if error.sqlstate in AGAIN:
                self.world.seen[f"again: {error.sqlstate}"] += 1
                deed.agains += 1
                if deed.agains >= MOST:
                    self.world.faults.append(
                        f"{self.name}: in vain, {MOST} times: {deed} {error.sqlstate} {error}: {error.diag.context}"
                    )
                    deed.state = "refused"
                    return "refused"
                time.sleep(self.choice.uniform(0, min(0.001 * 2**deed.agains, 0.1)))
                return "again"
            deed.state = "refused"
            if error.sqlstate not in REFUSED:
                self.world.faults.append(f"{self.name} {deed.kind}: {error.sqlstate} {error}")
            self.world.seen[f"refused: {error.sqlstate}"] += 1
            return "refused"
        if isinstance(deed, Call):
            deed.events = answer
        else:
            deed.answer = answer
        deed.state = "acked"
        self.world.seen[f"acked: {deed.kind}"] += 1
        return "acked"
