"""Writers, judges and maintenance; each keeps its account."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from tests.faults.accounts import TURN, Call, Deed, execute
from tests.faults.candidates import MODEL, PARAPHRASES, candidate, turned
from tests.faults.world import Client, World
from tests.support.queries import DB

LEASE = 2.0


class Writer(Client):
    """Single calls with and without keys, batches with and without vectors, several calls per transaction, late vectors."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.calls: list[Call] = []
        """Since the last audit, which takes them."""
        self.deeds: list[Deed] = []
        self.vectorless: list[tuple[str, UUID, int]] = []

    def make(self) -> Call:
        choice = self.choice
        tenant = choice.choice(self.world.tenants)
        kind = choice.choices(["single", "batch", "vectors apart", "together"], [84, 5, 3, 8])[0]
        keyed = choice.random() < 0.6
        size = {"single": 1, "together": 3}.get(kind) or choice.randint(2, 10)
        items, marks = [], []
        for _ in range(size):
            number = self.world.number()
            mark = f"{TURN}{number}"
            item = {**candidate(choice, tenant, number), "source_turn_ids": [mark]}
            if keyed:
                item["idempotency_key"] = f"key-{number}"
            items.append(item)
            marks.append(mark)
        return Call(kind, tenant, items, keyed, marks)

    def work(self, db: DB) -> None:
        if self.pending is None and self.world.finishing:
            time.sleep(0.01)
            return
        if self.pending is None and self.choice.random() < 0.08:
            self.attach(db)
            return
        call = self.pending or self.make()
        if self.pending is None:
            call.sent = time.monotonic()
            self.calls.append(call)
        match self.tried(call, lambda: execute(db, call)):
            case "acked":
                call.acked = time.monotonic()
                self.pending = None
            case "doubt":
                call.doubts += 1
                # send it again once there is a server: only with keys, or it would be counted twice
                self.pending = call if call.keyed else None
            case "again":
                self.pending = call
            case _:
                self.pending = None

    def attach(self, db: DB) -> None:
        """A vector that comes late, for one of the paraphrases without one."""
        tenant = self.choice.choice(self.world.tenants)
        deed = Deed("attach", tenant, None)

        def work() -> Any:
            row = db.execute(
                "select memory_id, content from memfold.memories where tenant_id = %s and bucket_id = 'para'"
                " and embedding_pending order by random() limit 1",
                [tenant],
            ).fetchone()
            if row is None:
                return None
            deed.subject = row[0]
            vector = turned(0.02 * PARAPHRASES.index(row[1]))["embedding"]
            return db.execute(
                "select event_id from memfold.attach_embedding(%s, %s, %s, %s)",
                [deed.subject, vector, MODEL, tenant],
            ).fetchone()

        self.tried(deed, work)
        if deed.subject is not None:
            self.deeds.append(deed)


class Judge(Client):
    """Claims, then answers, fails or forgets."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.deeds: list[Deed] = []
        self.serial = 0

    def work(self, db: DB) -> None:
        deed = Deed("claim", "", None)
        self.tried(
            deed,
            lambda: db.execute(
                "select tenant_id, judgement_id from memfold.claim_judgements(%s, max_results => 4, lease => %s)",
                [self.name, f"{LEASE} seconds"],
            ).fetchall(),
        )
        if not deed.answer:
            time.sleep(0.02)
            return
        for tenant, judgement_id in deed.answer:
            dice = self.choice.random()
            if dice < 0.08 or self.db is None:
                continue
            if dice < 0.2:
                self.tried(
                    failed := Deed("fail", tenant, judgement_id),
                    lambda failed=failed: db.execute(
                        "select memfold.fail_judgement(%s, 'no answer', worker => %s, retry_after => '0.1 s',"
                        " tenant_id => %s)",
                        [failed.subject, self.name, failed.tenant],
                    ).fetchone(),
                )
                continue
            self.serial += 1
            verdict = self.choice.choice(["duplicate", "distinct", "contradiction", "refinement"])
            answer = Deed("resolve", tenant, (judgement_id, f"{self.name} {self.serial}"))
            self.deeds.append(answer)
            while (
                self.tried(
                    answer,
                    lambda answer=answer, verdict=verdict: db.execute(
                        "select status, event_id from memfold.resolve_judgement("
                        "%s, %s, confidence => 0.9, model => %s, tenant_id => %s)",
                        [answer.subject[0], verdict, answer.subject[1], answer.tenant],
                    ).fetchone(),
                )
                == "again"
            ):
                pass


class Maintenance(Client):
    """Consolidates, approves, sweeps, ends sessions, prunes; undoes events and runs."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.deeds: list[Deed] = []

    def one(self, kind: str, tenant: str, subject: Any, query: str, *arguments: Any) -> Deed:
        deed = Deed(kind, tenant, subject)
        self.deeds.append(deed)

        def work() -> Any:
            assert self.db is not None
            return self.db.execute(query.encode(), arguments).fetchall()

        while self.tried(deed, work) == "again":
            pass
        return deed

    def work(self, db: DB) -> None:
        tenant = self.choice.choice(self.world.tenants)
        kinds = ["consolidate", "sweep", "session", "prune", "undo", "undo", "undo_run", "maintenance"]
        match self.choice.choice(kinds):
            case "consolidate":
                deed = self.one(
                    "consolidate", tenant, None,
                    "select distinct run_id from memfold.consolidate(%s, 'fold', approval => 'person',"
                    " max_operations => 30, dry_run => false)", tenant,
                )  # fmt: skip
                if deed.answer:
                    run_id = deed.answer[0][0]
                    self.one(
                        "approve", tenant, run_id,
                        "select memfold.approve_run(%s, %s, 'duplicate', 20)", run_id, tenant,
                    )  # fmt: skip
            case "sweep":
                self.one(
                    "policy", tenant, None,
                    "select memfold.set_policy(%s, 'mess', merge_threshold => 0.97, judge_threshold => 0.96)", tenant,
                )  # fmt: skip
                if self.db is not None:
                    self.one(
                        "sweep", tenant, None,
                        "select distinct run_id from memfold.sweep_duplicates(%s, 'mess', dry_run => false,"
                        " max_operations => 20)", tenant,
                    )  # fmt: skip
                if self.db is not None:
                    self.one(
                        "policy", tenant, None,
                        "select memfold.set_policy(%s, 'mess', merge_threshold => 1, judge_threshold => 1,"
                        " on_ambiguous => 'insert')", tenant,
                    )  # fmt: skip
            case "session":
                session = f"session {self.world.number() // 300}"
                self.one(
                    "session", tenant, session,
                    "select run_id from memfold.end_session(%s, %s, 'fold')", session, tenant,
                )  # fmt: skip
            case "prune":
                self.one(
                    "prune", tenant, None,
                    "select distinct run_id from memfold.prune_memories(%s, 'mess', 1, '0 seconds', 3, false)", tenant,
                )  # fmt: skip
            case "undo":
                self.take_back(
                    "undo", tenant,
                    "select event_id from memfold.memory_events where tenant_id = %s and bucket_id in ('fold', 'mess')"
                    " and action = 'merged' order by event_id desc offset %s limit 1",
                    "select event_id from memfold.undo(%s, %s, 'for a try')",
                )  # fmt: skip
            case "undo_run":
                self.take_back(
                    "undo_run", tenant,
                    "select run_id from memfold.runs where tenant_id = %s and kind <> 'maintenance' and status <> 'undone'"
                    " order by run_id desc offset %s limit 1",
                    "select event_id from memfold.undo_run(%s, %s, 'for a try')",
                )  # fmt: skip
            case _:
                self.one("maintenance", tenant, None, "select memfold.run_maintenance(%s)", tenant)

    def take_back(self, kind: str, tenant: str, look: str, query: str) -> None:
        looked = Deed("look", tenant, None)
        self.tried(
            looked,
            lambda: (
                self.db.execute(look.encode(), [tenant, self.choice.randrange(20)]).fetchone()
                if self.db
                else None
            ),
        )
        if looked.answer and self.db is not None:
            self.one(kind, tenant, looked.answer[0], query, looked.answer[0], tenant)
