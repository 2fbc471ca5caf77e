"""Compares the accounts of the clients with what the database holds."""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg

from tests.faults.accounts import Call, Deed
from tests.faults.candidates import BUCKETS
from tests.faults.clients import Judge, Maintenance, Writer
from tests.faults.patience import PATIENCE
from tests.faults.promises import broken
from tests.faults.world import World
from tests.support.queries import DB

NEVER = UUID(int=0)


@dataclass
class Audit:
    """Compare the accounts with the database, since the beginning."""

    world: World
    found: dict[str, list[UUID]] = field(default_factory=dict)
    """Each mark's ledger rows."""
    known: dict[str, Call] = field(default_factory=dict)
    checked_to: UUID = NEVER
    counts: Counter[str] = field(default_factory=Counter)
    open_calls: list[Call] = field(default_factory=list)
    hot: Counter[tuple[str, int]] = field(default_factory=Counter)

    def collect(self) -> list[Call]:
        """The calls that the last audit left open and those since."""
        calls = self.open_calls
        for client in self.world.clients:
            if isinstance(client, Writer):
                calls += client.calls
                client.calls = []
        self.open_calls = []
        for call in calls:
            for mark in call.marks:
                self.known[mark] = call
        return calls

    def read(self, db: DB) -> list[str]:
        """The ledger since the last audit: ids of rows are in order of time."""
        wrong = []
        upto = db.execute("select memfold_internal._new_id()").fetchone()
        assert upto is not None
        for tenant, event_id, mark, content in db.execute(
            "select tenant_id, event_id, t.turn, case when bucket_id = 'hot' then content end"
            " from memfold.memory_events, unnest(source_turn_ids) as t (turn) where event_id > %s",
            [self.checked_to],
        ):
            self.found.setdefault(mark, []).append(event_id)
            if content is not None:
                number = re.search(r"\d+", content)
                assert number is not None
                self.hot[tenant, int(number[0])] += 1
            if mark not in self.known:
                wrong.append(f"nobody has sent {mark}")
            elif self.known[mark].tenant != tenant:
                wrong.append(f"{mark} was sent for {self.known[mark].tenant}, it is of {tenant}")
        self.checked_to = upto[0]
        return wrong

    def compare(self, db: DB) -> list[str]:
        """Every acknowledged call is stored once, one in doubt once or not at all, and completely."""
        calls = self.collect()
        wrong = self.read(db)
        for call in calls:
            rows = [self.found.get(mark, []) for mark in call.marks]
            numbers = {len(row) for row in rows}
            told = f"{call.kind} {call.marks[0]} ({call.state}, keyed: {call.keyed})"
            if max(numbers) > 1:
                wrong.append(f"counted twice: {told}")
            if len(numbers) > 1:
                wrong.append(f"half of it is there: {told} {sorted(numbers)}")
            there = 1 in numbers
            match call.state:
                case "acked":
                    self.counts["acknowledged"] += 1
                    if not there:
                        wrong.append(f"acknowledged, and not there: {told}")
                    elif [row[0] for row in rows] != call.events:
                        wrong.append(f"another ledger row than was said: {told}")
                case "doubt" | "new":
                    if call.state == "doubt":
                        self.counts["in doubt"] += 1
                        self.counts["in doubt, found"] += there
                    elif there:
                        wrong.append(f"never sent, and there: {told}")
                    if call.keyed or call.state == "new":
                        self.open_calls.append(call)  # it will be sent again
                    else:
                        call.state = "found" if there else "never"
                case _:
                    if there:
                        wrong.append(f"refused, and there: {told}")
        wrong += self.keys(db, calls)
        wrong += self.deeds(db)
        self.world.seen["observations"] = len(self.found)
        return wrong

    def keys(self, db: DB, calls: list[Call]) -> list[str]:
        """A key leads to its call's ledger row, and is there if and only if that is."""
        wrong = []
        expected: dict[tuple[str, str], UUID | None] = {}
        for call in calls:
            for item, mark in zip(call.items, call.marks, strict=True):
                if call.keyed:
                    rows = self.found.get(mark, [])
                    expected[call.tenant, item["idempotency_key"]] = rows[0] if rows else None
        rows = db.execute(
            "select tenant_id, idempotency_key, event_id from memfold.idempotency_keys"
            " where tenant_id = any(%s) and bucket_id = any(%s) and idempotency_key = any(%s)",
            [list({tenant for tenant, _ in expected}), BUCKETS, [key for _, key in expected]],
        ).fetchall()
        there = {(tenant, key): event_id for tenant, key, event_id in rows}
        for where, event_id in expected.items():
            if there.get(where) != event_id:
                wrong.append(f"key {where}: {there.get(where)}, and the ledger row is {event_id}")
        return wrong

    def deeds(self, db: DB) -> list[str]:
        """Calls that were acknowledged to judges and maintenance are stored."""
        wrong = []
        deeds: list[Deed] = []
        for client in self.world.clients:
            if isinstance(client, Writer | Judge | Maintenance):
                deeds += client.deeds
                client.deeds = []

        def one(query: str, *arguments: Any) -> Any:
            return db.execute(query.encode(), arguments).fetchone()

        for deed in deeds:
            self.counts[f"{deed.state}: judge, maintenance, attach"] += 1
            if deed.state != "acked":
                continue
            right = True
            match deed.kind:
                case "attach" if deed.answer is not None:
                    right = one(
                        "select 1 from memfold.memory_vectors where tenant_id = %s and memory_id = %s",
                        deed.tenant, deed.subject,
                    ) is not None  # fmt: skip
                case "resolve":
                    state, event_id = deed.answer
                    row = one(
                        "select j.status, j.model, exists (select from memfold.memory_events as e"
                        "  where e.tenant_id = j.tenant_id and e.event_id = %s and e.judgement_id = j.judgement_id)"
                        " from memfold.judgements as j where j.tenant_id = %s and j.judgement_id = %s",
                        event_id, deed.tenant, deed.subject[0],
                    )  # fmt: skip
                    right = row == (
                        "done" if state == "done" else "obsolete",
                        deed.subject[1],
                        state == "done",
                    )
                case "undo":
                    right = one(
                        "select 1 from memfold.memory_events where tenant_id = %s and undoes = %s",
                        deed.tenant, deed.subject,
                    ) is not None  # fmt: skip
                case "undo_run":
                    # (a run of kind undo may have restored it since)
                    right = one(
                        "select from memfold.runs where tenant_id = %s and (run_id = %s and status = 'undone'"
                        " or kind = 'undo' and arguments ->> 'undoes' = %s) limit 1",
                        deed.tenant, deed.subject, str(deed.subject),
                    ) is not None  # fmt: skip
                case "consolidate" | "sweep" | "session" | "prune":
                    runs = [row[0] for row in deed.answer if row[0] is not None]
                    right = one(
                        "select count(*) from memfold.runs where tenant_id = %s and run_id = any(%s)",
                        deed.tenant, runs,
                    ) == (len(runs),)  # fmt: skip
            if not right:
                wrong.append(f"acknowledged, and not so: {deed}")
        return wrong

    def hot_counters(self, db: DB) -> list[str]:
        """For texts that are neither merged nor undone, the counter is the number of calls."""
        shown = {
            (tenant, int(text.rpartition(" ")[2])): observations
            for tenant, text, observations in db.execute(
                "select m.tenant_id, memfold.canonicalize(m.content, 'prose/1'), k.observations from memfold.memories as m"
                " join memfold.memory_totals as k using (tenant_id, memory_id) where m.bucket_id = 'hot'"
            )
        }
        return [
            f"hot fact {where}: {shown.get(where)} observations, {self.hot[where]} calls"
            for where in {*shown, *self.hot}
            if shown.get(where) != self.hot[where]
        ]

    def all(self, db: DB, tenants: list[str]) -> list[str]:
        """Everything that must hold once all writers have stopped."""
        wrong = [*self.world.faults, *self.compare(db), *self.hot_counters(db), *broken(db, tenants)]
        self.world.faults.clear()
        return wrong


def drain(world: World, db: DB) -> int:
    """Answer all open judgements as leases end; returns how many. None is stuck: leases end, dead ones are retried."""
    answered = 0
    end = time.monotonic() + PATIENCE
    db.execute("select memfold.retry_judgements(%s)", [None])
    while True:
        claimed = db.execute(
            "select tenant_id, judgement_id from memfold.claim_judgements('the last', max_results => 100,"
            " lease => '1 minute')"
        ).fetchall()
        for tenant, judgement_id in claimed:
            with contextlib.suppress(psycopg.errors.SerializationFailure):
                db.execute(
                    "select memfold.resolve_judgement("
                    "%s, 'distinct', confidence => 0.9, model => 'the last', tenant_id => %s)",
                    [judgement_id, tenant],
                )
                answered += 1
        row = db.execute(
            "select count(*) from memfold.judgements where status in ('open', 'leased') and kind <> 'review'"
        ).fetchone()
        if row == (0,):
            return answered
        assert time.monotonic() < end, f"{row} judgements are stuck"
        if not claimed:
            time.sleep(0.05)
