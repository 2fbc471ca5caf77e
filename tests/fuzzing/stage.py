"""The calling roles with their sessions, and a bystander tenant."""

from __future__ import annotations

import json
import random
from typing import Any

import psycopg
from psycopg import sql

from tests.fuzzing.catalog import functions
from tests.fuzzing.hostile import BYSTANDER, DIMENSIONS
from tests.fuzzing.report import Report
from tests.fuzzing.values import Values
from tests.support.queries import DB

SECRET = "the bystander keeps a secret"
ROLES = ("app", "bound", "judge", "auditor", "owner", "superuser")


class Stage:
    """The roles, a session for each, and the bystander's rows."""

    def __init__(self, dsn: str, seed: int) -> None:
        self.report = Report(seed)
        self.random = random.Random(seed)
        self.admin = psycopg.connect(dsn, autocommit=True)
        self.admin.execute("set search_path = pg_catalog, public")
        self.roles = {name: f"fuzz_{name}_{self.admin.info.dbname}"[:63] for name in ROLES}
        self._make_roles()
        self.functions = functions(self.admin, list(self.roles.values()))
        self.sessions = {name: self._session(dsn, name) for name in ROLES}
        self.notices: list[str] = []
        self.read_only = False
        self.started = self._value("select pg_postmaster_start_time()")
        self._bystander()
        self.untouched = self._digest()
        self.tenant = ""
        self.values = Values(self.random, "", [], [])

    def _value(self, query: str, *parameters: Any) -> Any:
        row = self.admin.execute(query.encode(), parameters or None).fetchone()
        assert row is not None
        return row[0]

    def _make_roles(self) -> None:
        groups = {
            "app": "memfold_app",
            "bound": "memfold_tenant",
            "judge": "memfold_judge",
            "auditor": "memfold_auditor",
            "owner": "memfold_owner",
        }
        for name, role in self.roles.items():
            known = self.admin.execute("select from pg_roles where rolname = %s", [role]).fetchone()
            if known is None:
                self.admin.execute(sql.SQL("create role {} login {}").format(
                    sql.Identifier(role), sql.SQL("superuser" if name == "superuser" else "")
                ))  # fmt: skip
                if name in groups:
                    self.admin.execute(
                        sql.SQL("grant {} to {}").format(sql.Identifier(groups[name]), sql.Identifier(role))
                    )

    def _session(self, dsn: str, name: str) -> DB:
        """A superuser's session that has become another role: at the end its memory can be read."""
        session = psycopg.connect(dsn, autocommit=True)
        session.execute("set statement_timeout = '60s'")
        session.execute("set search_path = pg_catalog, public")
        session.execute("set client_min_messages = warning")
        session.execute(sql.SQL("set session authorization {}").format(sql.Identifier(self.roles[name])))
        session.add_notice_handler(lambda diagnostic: self.notices.append(diagnostic.message_primary or ""))
        return session

    def _bystander(self) -> None:
        """A tenant that no call is about."""
        self.admin.execute("select memfold.register_embedding_model('bystander', 4, 0.92, 0.85)")
        for i in range(DIMENSIONS):
            self.admin.execute(
                "select memfold.ingest_memory(%s, %s, subject => 'x', embedding => %s, embedding_model => 'bystander',"
                " source_turn_ids => '{t}')",
                [
                    f"{SECRET} {'I' * i}",
                    BYSTANDER,
                    json.dumps([float(i == axis) for axis in range(DIMENSIONS)]),
                ],
            )
        self.admin.execute("select memfold.set_predicate('lives_in', %s)", [BYSTANDER])
        self.admin.execute(
            "select memfold.set_policy(%s, 'default'), memfold.set_options(%s, 'default')", [BYSTANDER] * 2
        )

    def _digest(self) -> dict[str, Any]:
        """All of the bystander's rows; run_maintenance_all() leaves a row in runs."""
        tables = self.admin.execute(
            "select c.relname from pg_class as c join pg_attribute as a on a.attrelid = c.oid and a.attname = 'tenant_id'"
            " where c.relnamespace = 'memfold'::regnamespace and c.relkind = 'r' and c.relname <> 'runs'"
        ).fetchall()
        return {
            name: self._value(
                f"select array_agg(md5(t::text) order by md5(t::text)) from memfold.{name} as t where t.tenant_id = %s",
                BYSTANDER,
            )
            for (name,) in tables
        }

    def _weigh(self) -> None:
        """How much memory each session holds between two calls."""
        for name, session in self.sessions.items():
            session.execute("reset session authorization")
            row = session.execute(
                "select sum(total_bytes)::bigint from pg_backend_memory_contexts"
            ).fetchone()
            assert row is not None
            self.report.memory.setdefault(name, []).append(int(row[0]))
            session.execute(sql.SQL("set session authorization {}").format(sql.Identifier(self.roles[name])))

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()
        for role in self.roles.values():
            self.admin.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
        self.admin.close()
