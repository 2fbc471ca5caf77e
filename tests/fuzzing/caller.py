"""Draws the arguments of a call, makes it, and judges its answer."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg import pq

from tests.fuzzing.catalog import Function
from tests.fuzzing.hostile import BYSTANDER
from tests.fuzzing.stage import SECRET, Stage
from tests.fuzzing.values import Value, array_literal

DOCUMENTED = set(re.findall(r"\bMF\d{3}\b", (Path(__file__).parents[2] / "docs" / "errors.md").read_text()))
REPLACING = {"replace_embedding_model", "drop_embeddings", "unregister_embedding_model"}


class Caller(Stage):
    """Makes single calls, and records forbidden results."""

    def draw(self, function: Function) -> dict[str, Value]:
        """The arguments of one call: all valid, one hostile, or about half of them hostile."""
        mode = self.random.random()
        given = [
            a
            for a in function.arguments
            if a.required or self.random.random() < (0.2 if len(function.arguments) > 20 else 0.45)
        ]
        hostile = set()
        if mode >= 0.75:
            hostile = {a.name for a in given if self.random.random() < 0.5}
        elif mode >= 0.35 and function.arguments:
            one = self.random.choice(function.arguments)
            hostile = {one.name}
            given = [a for a in function.arguments if a in given or a is one]
        if "tenant_id" in hostile and self.random.random() < 0.7:
            hostile.discard("tenant_id")
        values = {a.name: self.values.draw(a, hostile=a.name in hostile) for a in given}
        names = {a.name for a in function.arguments}
        # what goes together
        if {"content", "embedding"} <= names and "content" not in hostile:
            fact = self.values.fact()
            if self.random.random() < 0.35:
                fact.pop("embedding")
                fact.pop("embedding_model")
            for name in ("content", "subject", "predicate", "object", "embedding", "embedding_model"):
                if name in hostile or name not in names:
                    continue
                values.pop(name, None)
                if name in fact:
                    values[name] = (fact[name].encode(), False)
        elif (
            "embedding_model" in names - hostile
            and {"embedding", "query_embedding"} & names
            and self.random.random() < 0.9
        ):
            values["embedding_model"] = (self.values.models[0].encode(), False)
        if {"memory_ids", "contents", "embeddings"} <= names and not hostile and self.values.contents:
            some = [self.random.choice(self.values.contents) for _ in range(self.random.randint(1, 4))]
            values["embedding_model"] = (self.values.models[1].encode(), False)
            values["memory_ids"] = (array_literal(one[0] for one in some).encode(), False)
            values["contents"] = (array_literal(one[1] for one in some).encode(), False)
            values["embeddings"] = (array_literal(self.values.vector() for _ in some).encode(), False)
            values.pop("run_id", None)
        if function.name == "ingest_memories" and not hostile and values.get("embeddings", (None,))[0]:
            # as many as candidates
            candidates = json.loads(values["candidates"][0] or b"[]")
            values["embeddings"] = (array_literal(self.values.vector() for _ in candidates).encode(), False)
        if function.name == "import_bucket":
            # another tenant, because a bucket can only be imported into an empty one
            if "tenant_id" not in hostile:
                values["tenant_id"] = (f"{self.tenant} copied".encode(), False)
            if "bucket_id" not in hostile and self.values.exported:
                values["bucket_id"] = (
                    json.loads(self.values.exported[0])["row"]["bucket_id"].encode(),
                    False,
                )
        if function.name in REPLACING and "embedding_model" not in hostile and self.random.random() < 0.8:
            values["embedding_model"] = (self.values.models[2].encode(), False)
        if function.name == "register_embedding_model" and not hostile:
            values["embedding_model"] = (f"new {self.random.getrandbits(40)}".encode(), False)
        return values

    def call(self, role: str, function: Function, values: dict[str, Value], *, within: bool = False) -> bool:
        """One call; says whether it succeeded. within: in a transaction block."""
        if role in ("owner", "superuser") and values.get("tenant_id", (b"", False))[0] == BYSTANDER.encode():
            # they may
            values["tenant_id"] = (self.tenant.encode(), False)
        types = {a.name: a.type for a in function.arguments}
        names = list(values)
        arguments = ", ".join(f"{name} => ${i}::{types[name]}" for i, name in enumerate(names, 1))
        statement = (
            f"{'call' if function.procedure else 'select * from'} memfold.{function.name}({arguments})"
        )
        self.notices.clear()
        began = time.monotonic()
        result = self.sessions[role].pgconn.exec_params(
            statement.encode(),
            [values[name][0] for name in names],
            None,
            [int(values[name][1]) for name in names],
        )
        self.report.took[function.name] += round((time.monotonic() - began) * 1000)
        self.report.calls += 1
        self.report.called[function.name] += 1

        def example() -> str:
            return (
                f"{role}: {function.name}(" + ", ".join(f"{n} => {_short(values[n][0])}" for n in names) + ")"
            )

        if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            self.report.outcomes["success"] += 1
            self.report.succeeded[function.name] += 1
            self._judge_result(role, function, result, example, within=within)
            return True
        code, leaks = self._judge_error(role, function, result, example, within=within)
        self.report.outcomes[code] += 1
        if leaks:
            self.report.find(f"{function.name} tells another tenant's text", example())
        return False

    def _judge_error(
        self,
        role: str,
        function: Function,
        result: pq.abc.PGresult,
        example: Callable[[], str],
        *,
        within: bool,
    ) -> tuple[str, bool]:
        def diagnostic(which: pq.DiagnosticField) -> str:
            return (result.error_field(which) or b"").decode("utf-8", "replace")

        code = diagnostic(pq.DiagnosticField.SQLSTATE)
        context = diagnostic(pq.DiagnosticField.CONTEXT)
        message = diagnostic(pq.DiagnosticField.MESSAGE_PRIMARY)
        if not code:
            raise ConnectionError(f"the connection of {role} is lost: {message} {result.status} {example()}")
        said = " ".join(
            (
                message,
                diagnostic(pq.DiagnosticField.MESSAGE_DETAIL),
                diagnostic(pq.DiagnosticField.MESSAGE_HINT),
                context,
            )
        )
        leaks = SECRET in said and role in ("app", "bound")
        if re.search(r"portal.* parameter \$\d+", context) and (code[:2] in ("22", "54") or code == "42601"):
            return f"{code}, refused by PostgreSQL's input of a type", False
        if code == "42501" and self.roles[role] not in function.roles:
            return "42501, not granted", leaks
        if code == "25006" and self.read_only:
            return code, leaks
        if code == "25001" and function.procedure and within:
            return code, leaks
        if code.startswith("MF"):
            if code not in DOCUMENTED:
                self.report.find(f"{code} is not in docs/errors.md", example())
            if not diagnostic(pq.DiagnosticField.MESSAGE_DETAIL) or not diagnostic(
                pq.DiagnosticField.MESSAGE_HINT
            ):
                self.report.find(
                    f"{code} without DETAIL or HINT in {function.name}", f"{message} {example()}"
                )
        else:  # 40001 too: there is no concurrent call
            lines = [line for line in context.splitlines() if "memfold" in line or "function" in line]
            where = re.sub(r"\s+", " ", " <- ".join(lines[:3]))[:400]
            plain = re.sub(r'"[^"]*"|\d+', "#", message)[:120]
            self.report.find(f"{code} {plain} in {function.name}", f"{example()} | {message} | {where}")
        return code, leaks

    def _judge_result(
        self,
        role: str,
        function: Function,
        result: pq.abc.PGresult,
        example: Callable[[], str],
        *,
        within: bool,
    ) -> None:
        columns = {result.fname(i): i for i in range(result.nfields)}
        ordinary = role in ("app", "bound")  # an auditor reads all tenants
        if function.name == "export_bucket" and role in ("app", "bound"):
            self.values.exported = [(result.get_value(i, 0) or b"").decode() for i in range(result.ntuples)]
        for row in range(min(result.ntuples, 200)):
            cells = [result.get_value(row, i) or b"" for i in range(result.nfields)]
            if ordinary and any(SECRET.encode() in cell for cell in cells):
                self.report.find(f"{function.name} shows another tenant's text", example())
            if b"sqlstate" in columns and cells[columns[b"sqlstate"]]:
                state = cells[columns[b"sqlstate"]].decode()
                self.report.outcomes[f"{state}, of a candidate in a batch"] += 1
                if state not in DOCUMENTED and not (self.read_only and state == "25006"):
                    self.report.find(f"{state} of a candidate in {function.name}", f"{cells} {example()}")
            if function.name == "run_maintenance":
                errors = json.loads(cells[0])["errors"]
                for task, error in errors.items():
                    if error[:5] not in DOCUMENTED:
                        self.report.find(f"maintenance task {task}: {error[:5]}", f"{error} {example()}")
        for notice in self.notices:
            if notice.startswith("maintenance failed"):
                self.report.find("run_maintenance_all failed", notice)
        if function.name == "vector_index_ddl" and not within:
            for row in range(result.ntuples):
                statement = (result.get_value(row, 0) or b"").decode()
                try:
                    self.admin.execute(statement.encode())
                except psycopg.Error as error:
                    self.report.find(
                        f"{error.sqlstate} of a statement of {function.name}", f"{statement} {error}"
                    )


def _short(value: bytes | None) -> str:
    if value is None:
        return "null"
    text = repr(value.decode("utf-8", "replace"))
    return text if len(text) < 160 else f"{text[:120]}… ({len(value)} bytes)"
