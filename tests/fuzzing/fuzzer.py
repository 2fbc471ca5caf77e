"""Calls everything, as everybody, tenant after tenant."""

from __future__ import annotations

import time

from psycopg import pq

from tests.fuzzing.caller import Caller
from tests.fuzzing.catalog import Function
from tests.fuzzing.hostile import BYSTANDER, DIMENSIONS
from tests.fuzzing.report import Report
from tests.fuzzing.stage import ROLES
from tests.fuzzing.values import Values

EPISODE = 600
"""Calls until a new tenant, with new models, takes its turn, so that settings do not block the rest."""
TOGETHER = 40
"""Calls between two looks for ids that calls can be about."""
IDS: dict[str, str] = {
    "memory": "select memory_id from memfold.memories where tenant_id = %s order by memory_id desc limit 150",
    "event": "select event_id from memfold.memory_events where tenant_id = %s order by event_id desc limit 40",
    "judgement": "select judgement_id from memfold.judgements where tenant_id = %s"
    " order by status <> 'open', judgement_id desc limit 40",
    "run": "select run_id from memfold.runs where tenant_id = %s order by run_id desc limit 40",
    "pair": "select pair_id from memfold.labelled_pairs where tenant_id = %s order by pair_id desc limit 40",
}
OFTEN = {
    "ingest_memory": 7.0,
    "ingest_memories": 3.0,
    "update_memory": 2.0,
    "attach_embedding": 2.0,
    "resolve_judgement": 2.0,
}
SELDOM = {
    "run_maintenance_all": 0.15,
    "create_vector_index": 0.3,
    "canonicalizer_selftest": 0.01,
    "check_invariants": 0.4,
    "set_policy": 1.0,
    "set_options": 1.0,
    "erase_tenant": 0.1,
    "erase_bucket": 0.2,
    "import_bucket": 2.0,
}
# The roles: each calls mostly what it may, and seldom what it may not.
SHARES = {"app": 12.0, "bound": 3.0, "judge": 2.0, "auditor": 1.0, "owner": 2.0, "superuser": 1.0}
TENANTS = ["acme'; --", 'a"b', "%I", "$$", "тест", "🦊\u202e", "a\\b", "{x}", "memfold_app", "pg_catalog"]


class Fuzzer(Caller):
    """Episodes of calls; each has a new tenant, with new models."""

    def begin(self) -> None:
        """A new tenant, with a hostile name."""
        number = len(self.report.tenants)
        self.tenant = f"{self.random.choice(TENANTS)} {self.report.seed}.{number}"
        self.report.tenants.append(self.tenant)
        # names are mostly hostile: quotes must be escaped, long names hashed
        strange = self.random.choice(["", " '\"; --", " $$ %I", " \\", " ж🦊"])
        models = [f"{letter}{self.report.seed}.{number}{strange}" for letter in "abc"]
        buckets = ["default", "b2", self.random.choice(["'; --", '"', "%s", "🦊", "a" * 512])]
        self.values = Values(self.random, self.tenant, buckets, models)
        for model in models:
            self.admin.execute(
                "select memfold.register_embedding_model(%s, %s, 0.92, 0.85)", [model, DIMENSIONS]
            )
        for method in ("budget", "percentile"):
            found = self._value(
                "insert into memfold.calibrations (model, merge_threshold, judge_threshold, report, fingerprint, method)"
                " values (%s, 0.9, 0.8, '{}', '', %s) returning calibration_id::text", models[0], method,
            )  # fmt: skip
            self.values.ids.setdefault("calibration", []).append(found)
        self.admin.execute("select memfold.set_predicate('lives_in', %s)", [self.tenant])
        self.admin.execute(
            "insert into memfold.tenant_roles values (%s, %s)"
            " on conflict (role_name) do update set tenant_id = excluded.tenant_id",
            [self.roles["bound"], self.tenant],
        )
        for name in ("app", "bound", "auditor", "superuser"):
            self.sessions[name].execute("select set_config('memfold.tenant_id', %s, false)", [self.tenant])
        for text in ("Plain Ann rows.", "Plain Bob runs.", "plain ann rows"):
            self.admin.execute(
                "insert into memfold.memories (tenant_id, content) values (%s, %s) on conflict do nothing",
                [self.tenant, text],
            )
        self._read_ids()

    def _read_ids(self) -> None:
        for kind, query in IDS.items():
            self.values.ids[kind] = [
                str(row[0]) for row in self.admin.execute(query.encode(), [self.tenant]).fetchall()
            ]
        self.values.ids["bystander"] = [
            str(row[0]) for row in self.admin.execute(IDS["memory"].encode(), [BYSTANDER]).fetchall()
        ]
        self.values.contents = [
            (str(row[0]), row[1])
            for row in self.admin.execute(
                "select memory_id, content from memfold.memories where tenant_id = %s order by memory_id desc limit 100",
                [self.tenant],
            ).fetchall()
        ]

    def end(self) -> None:
        """What has to hold after whatever came in; of rows of a plain INSERT once they are ingested.

        And of a bucket that is being erased once it is.
        """
        for (bucket,) in self.admin.execute(
            "select bucket_id from memfold.runs where tenant_id = %s and kind = 'erasure' and status = 'open'",
            [self.tenant],
        ).fetchall():
            erase = "erase_tenant(%s)" if bucket == "*" else "erase_bucket(%s, %s)"
            while self._value(
                f"select (memfold.{erase}).remaining", *[self.tenant, bucket][: erase.count("%s")]
            ):
                pass
        while self._value("select ingested from memfold.ingest_plain_rows(%s)", self.tenant):
            pass
        for broken in self.admin.execute(
            "select * from memfold.check_invariants(%s)", [self.tenant]
        ).fetchall():
            self.report.find(f"invariant {broken[1]}", f"{self.tenant}: {broken}")
        indexes = self.admin.execute(
            "select indexrelid::regclass::text from pg_index where indrelid = 'memfold.memory_vectors'::regclass"
            " and indexrelid::regclass::text ~ 'hnsw'"
        ).fetchall()
        for (index,) in indexes:
            self.admin.execute(f"drop index if exists {index}".encode())

    def turn(self, wanted: int) -> None:
        """A single call, or several in one transaction."""
        role = self.random.choices(ROLES, [SHARES[r] for r in ROLES])[0]
        if role in ("judge", "owner") and self.random.random() < 0.5:
            # those who may act for any tenant, and say so by the setting
            self.sessions[role].execute("select set_config('memfold.tenant_id', %s, false)", [self.tenant])
        elif role in ("judge", "owner"):
            self.sessions[role].execute("reset memfold.tenant_id")
        if self.random.random() < 0.9:
            function = self.choose(role)
            if function.name == "import_bucket":
                self.import_once(role, function)
            else:
                self.call(role, function, self.draw(function))
            return
        session = self.sessions[role]
        level = self.random.choice(
            ["", "", "", "isolation level repeatable read", "isolation level serializable", "read only"]
        )
        session.pgconn.exec_(f"begin {level}".encode())
        for _ in range(min(self.random.randint(2, 6), wanted)):
            function = self.choose(role)
            session.pgconn.exec_(b"savepoint s")
            if not self.call_in(role, function, level):
                session.pgconn.exec_(b"rollback to s")
        ended = session.pgconn.exec_(b"commit" if self.random.random() < 0.8 else b"rollback")
        if ended.status != pq.ExecStatus.COMMAND_OK:
            state = (ended.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
            self.report.outcomes[f"{state}, at COMMIT"] += 1
            self.report.find(f"{state} at COMMIT", ended.error_message.decode("utf-8", "replace"))

    def import_once(self, role: str, function: Function) -> None:
        """Invariants hold of what was exported; those who may import can forge what they like: it is not to stay."""
        session = self.sessions[role].pgconn
        session.exec_(b"begin")
        values = self.draw(function)
        genuine = values["lines"][0] == self.values.lines(hostile=False).encode()
        if self.call(role, function, values, within=True) and genuine:
            tenant = (values["tenant_id"][0] or b"").decode()
            self.sessions[role].execute("select * from memfold.ingest_plain_rows(%s, null, 100000)", [tenant])
            broken = (
                self.sessions[role].execute("select * from memfold.check_invariants(%s)", [tenant]).fetchall()
            )
            if broken:
                self.report.find(f"invariant {broken[0][1]} of a copy", f"{tenant}: {broken}")
        session.exec_(b"rollback")

    def call_in(self, role: str, function: Function, level: str) -> bool:
        values = self.draw(function)
        if level != "read only":
            # an import that may be forged does not stay
            return self.call(role, function, values, within=True) and function.name != "import_bucket"
        self.read_only = True
        try:
            return self.call(role, function, values, within=True)
        finally:
            self.read_only = False

    def choose(self, role: str) -> Function:
        allowed = self.random.random() < 0.97
        some = [f for f in self.functions if (self.roles[role] in f.roles) == allowed] or self.functions
        return self.random.choices(some, [OFTEN.get(f.name, SELDOM.get(f.name, 1.0)) for f in some])[0]

    def run(self, calls: int) -> Report:
        """Make this many calls, then check everything that must hold."""
        began = time.monotonic()
        warm = False
        if not self.tenant:
            self.begin()
            for function in self.functions:
                # all of them, however short the run
                for role in ("superuser",) if function.name in SELDOM else ("app", "superuser", "owner"):
                    self.call(role, function, self.draw(function))
        while self.report.calls < calls:
            if self.report.calls >= len(self.report.tenants) * EPISODE:
                self.end()
                self.begin()
            until = min(calls, self.report.calls + TOGETHER)
            while self.report.calls < until:
                self.turn(calls - self.report.calls)
            self._read_ids()
            if not warm and self.report.calls > calls / 2:
                warm = True
                self._weigh()
        self.end()
        self._weigh()
        for tenant in self.report.tenants:
            for broken in self.admin.execute(
                "select * from memfold.check_invariants(%s)", [tenant]
            ).fetchall():
                self.report.find(f"in the end, invariant {broken[1]}", f"{tenant}: {broken}")
        if self._digest() != self.untouched:
            self.report.find("another tenant's rows have changed", BYSTANDER)
        if self._value("select pg_postmaster_start_time()") != self.started:
            self.report.find("the server has restarted", "")
        self.report.seconds += time.monotonic() - began
        return self.report
