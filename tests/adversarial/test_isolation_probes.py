"""Nothing that the catalog lists reads, writes or reveals another tenant's data (tests/isolation_prober)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from tests.isolation_prober.calls import functions
from tests.isolation_prober.function_probes import probe_functions, probe_names
from tests.isolation_prober.population import populate
from tests.isolation_prober.relations import PLAIN, SHARED, TEXTS, relations, secrets, snapshot
from tests.isolation_prober.sessions import Session
from tests.isolation_prober.sides import Side, sides
from tests.isolation_prober.table_probes import intruder, probe_others, probe_owner, probe_reads, probe_writes
from tests.support.memories import ingest, model
from tests.support.queries import DB, Connect

# In the caller's own schema, first in the search_path: functions that memfold's bodies would call if they looked
# there.
TRICKS = """
create function {s}.told(what text) returns void language plpgsql volatile cost 0.0001 as $$
begin
    if current_user <> session_user then
        raise notice 'SHADOW % as %', what, current_user;
    end if;
end $$;
create function {s}.leak(what text) returns boolean language plpgsql volatile cost 0.0001 as $$
begin
    raise notice '%', what;
    return true;
end $$;
create function {s}._tenant() returns text language plpgsql as $$
begin perform {s}.told('_tenant'); return 'birchwood-tenant'; end $$;
create function {s}._authorize_tenant(tenant_id text) returns void language plpgsql as $$
begin perform {s}.told('_authorize_tenant'); end $$;
create function {s}._bound_role(role name) returns name language plpgsql as $$
begin perform {s}.told('_bound_role'); return null; end $$;
create function {s}._fail(code text, message text, detail text, hint text) returns void language plpgsql as $$
begin perform {s}.told('_fail'); end $$;
create function {s}.current_setting(text, boolean) returns text language plpgsql as $$
begin perform {s}.told('current_setting'); return 'birchwood-tenant'; end $$;
create function {s}.current_setting(text) returns text language plpgsql as $$
begin perform {s}.told('current_setting'); return 'birchwood-tenant'; end $$;
create function {s}.pg_has_role(name, text, text) returns boolean language plpgsql as $$
begin perform {s}.told('pg_has_role'); return true; end $$;
create function {s}.pg_has_role(name, name, text) returns boolean language plpgsql as $$
begin perform {s}.told('pg_has_role'); return true; end $$;
create function {s}.set_config(text, text, boolean) returns text language plpgsql as $$
begin perform {s}.told('set_config'); return ''; end $$;
create function {s}.coerced(a text, b text) returns boolean language plpgsql as $$
begin perform {s}.told('='); return true; end $$;
create operator {s}.= (leftarg = text, rightarg = text, function = {s}.coerced);
create operator {s}.<> (leftarg = text, rightarg = text, function = {s}.coerced);
create function {s}.same(a uuid, b uuid) returns boolean language plpgsql as $$
begin perform {s}.told('='); return true; end $$;
create operator {s}.= (leftarg = uuid, rightarg = uuid, function = {s}.same);
create function {s}.now() returns timestamptz language plpgsql as $$
begin perform {s}.told('now'); return '2020-01-01'; end $$;
create function {s}.lower(text) returns text language plpgsql as $$
begin perform {s}.told('lower'); return ''; end $$;
create function {s}.format(text, variadic text[]) returns text language plpgsql as $$
begin perform {s}.told('format'); return ''; end $$;
create domain {s}.text as pg_catalog.text;
create domain {s}.uuid as pg_catalog.uuid;
create table {s}.memories (tenant_id pg_catalog.text, memory_id pg_catalog.uuid);
create table {s}.tenant_roles (role_name name, tenant_id pg_catalog.text);
create table {s}.policies (tenant_id pg_catalog.text);
create table {s}.pg_roles (rolname name, oid oid);
create table {s}.pg_auth_members (roleid oid);
"""
TEMPORARY = """
create temp table if not exists memories (tenant_id text, memory_id uuid);
create temp table if not exists memory_events (tenant_id text);
create temp table if not exists judgements (tenant_id text);
create temp table if not exists policies (tenant_id text);
create temp table if not exists tenant_roles (role_name name, tenant_id text);
create temp table if not exists pg_roles (rolname name, rolsuper boolean);
create temp table if not exists pg_class (oid oid);
create temp table if not exists candidate (content text);
create temp table if not exists ingest_result (action text);
"""


@dataclass
class Stage:
    """Two tenants with some of everything, and who acts for alder: a pooled role, and a login that is bound to it."""

    db: DB
    own: Side
    other: Side
    nobody: Side
    pooled: Session
    bound: Session
    forged: Session

    @property
    def sessions(self) -> list[Session]:
        return [self.pooled, self.bound, self.forged]


@pytest.fixture
def stage(db: DB, connect: Connect) -> Iterator[Stage]:
    own, other, nobody = sides()
    model(db)
    model(db, "m2")
    db.execute("select set_predicate('born_in', '*')")
    roles = {name: f"{name}_{db.info.dbname}" for name in ("pooled", "bound", "forged", "stranger")}
    for name, role in roles.items():
        db.execute(f"drop role if exists {role}".encode())
        group = "memfold_app" if name == "pooled" else "memfold_tenant"
        db.execute(f"create role {role} login in role {group}".encode())
        db.execute(f"create schema {role} authorization {role}".encode())
        db.execute(f"set role {role}".encode())
        db.execute(TRICKS.format(s=role).encode())
        db.execute("reset role")
    for side in (own, other):
        populate(db, side)
    tenants = {"bound": own, "forged": own, "stranger": other}
    for name, side in tenants.items():
        db.execute("insert into memfold.tenant_roles values (%s, %s)", [roles[name], side.tenant])
    db.execute("analyze")
    sessions = {
        "pooled": own.tenant,
        "bound": None,
        # the worst case: the setting is the other's, and names resolve to other objects
        "forged": other.tenant,
    }
    made = {}
    for name, setting in sessions.items():
        connection = connect(user=roles[name])
        path = f"public, memfold, {roles[name]}"
        if name == "forged":
            connection.execute(TEMPORARY.encode())
            path = f"{roles[name]}, pg_temp, pg_catalog, memfold, public"
        made[name] = Session(name, connection, setting, path)
    yield Stage(db, own, other, nobody, **made)
    for session in made.values():
        session.connection.close()
    for role in roles.values():
        db.execute("delete from memfold.tenant_roles where role_name = %s", [role])
        db.execute(f"drop owned by {role} cascade; drop role {role}".encode())


def test_nothing_is_read(stage: Stage) -> None:
    for session in stage.sessions:
        wrong, calls = probe_reads(stage.db, session, stage.own, stage.other)
        assert "\n".join(wrong) == ""
        assert calls > 300


def test_nothing_is_written(stage: Stage) -> None:
    before = snapshot(stage.db, stage.own.tenant, stage.other.tenant)
    for session in stage.sessions:
        wrong, calls = probe_writes(stage.db, session, stage.other)
        assert "\n".join(wrong) == ""
        assert calls > 200
    assert snapshot(stage.db, stage.own.tenant, stage.other.tenant) == before


def test_row_level_security_binds_the_functions_owner(stage: Stage) -> None:
    for probe in (probe_owner, probe_others):
        wrong, calls = probe(stage.db, stage.own, stage.other)
        assert "\n".join(wrong) == ""
        assert calls > 50


@pytest.mark.parametrize("who", ["pooled", "forged"])
def test_functions_with_the_ids_of_others(stage: Stage, who: str) -> None:
    session: Session = getattr(stage, who)
    wrong, calls = probe_functions(stage.db, session, stage.own, stage.other, stage.nobody)
    assert "\n".join(wrong) == ""
    assert calls > 1500


@pytest.mark.one_server
@pytest.mark.parametrize("who", ["pooled", "forged"])
def test_names_that_are_not_tenants(stage: Stage, who: str) -> None:
    session: Session = getattr(stage, who)
    wrong, calls = probe_names(stage.db, session, stage.own, stage.other)
    assert "\n".join(wrong) == ""
    assert calls > 1500


# What the probes detect ---------------------------------------------------------------------------------------------


@pytest.mark.one_server
def test_with_any_policy_removed_the_probe_fails(stage: Stage) -> None:
    """Each policy in turn: gone, or open to all; each table: without row-level security, or its owner exempt from it."""
    db = stage.db

    def probe(table: str) -> list[str]:
        wrong: list[str] = []
        for session in (stage.pooled, stage.bound):
            wrong += probe_reads(db, session, stage.own, stage.other, only=table, most=1)[0]
        wrong += probe_owner(db, stage.own, stage.other, only=table)[0]
        return wrong + probe_others(db, stage.own, stage.other, only=table)[0]

    policies = db.execute(
        "select tablename::text, policyname::text, cmd, array_to_string(roles, ', '), qual, with_check from pg_policies"
        " where schemaname = 'memfold' order by 1, 2"
    ).fetchall()
    isolated = db.execute(
        "select relname::text, relforcerowsecurity from pg_class"
        " where relnamespace = 'memfold'::regnamespace and relrowsecurity"
    ).fetchall()
    assert {row[0] for row in policies} == {row[0] for row in isolated}
    assert len(policies) > 50
    for table, forced in isolated:
        assert probe(table) == [], table
        for off, on in [("disable", "enable"), ("no force", "force")][: 1 + forced]:
            db.execute(f"alter table memfold.{table} {off} row level security".encode())
            # (all rows of tenant_roles are the owner's to see, forced or not)
            assert probe(table) != [] or (table, off) == ("tenant_roles", "no force"), (table, off)
            db.execute(f"alter table memfold.{table} {on} row level security".encode())
    for table, name, command, roles, qual, check in policies:
        db.execute(f"drop policy {name} on memfold.{table}".encode())
        assert probe(table) != [], (table, name)
        create = f"create policy {name} on memfold.{table} for {command} to {roles} using "
        if qual != "true":
            db.execute(f"{create} (true)".encode())
            assert probe(table) != [], (table, name, "true")
            db.execute(f"drop policy {name} on memfold.{table}".encode())
        db.execute((f"{create} ({qual})" + (f" with check ({check})" if check else "")).encode())
    for table, _ in isolated:
        assert probe(table) == [], table


MUTANTS = {
    "reads": "begin return (select m.content from memfold.memories as m where m.memory_id = mutant.memory_id); end",
    "tells": "begin if exists (select from memfold.memories as m where m.memory_id = mutant.memory_id) then"
    " raise exception 'no such memory' using errcode = 'MF018'; end if;"
    " raise exception 'there is no such memory' using errcode = 'MF018'; end",
    "mumbles": "begin raise notice '%', (select m.subject from memfold.memories as m"
    " where m.memory_id = mutant.memory_id); return null; end",
    "writes": "begin update memfold.memories as m set session_id = 'x' where m.memory_id = mutant.memory_id;"
    " return null; end",
    "counts": "begin return (select count(*) from memfold.memory_events as e where e.memory_id = mutant.memory_id); end",
    "calls back": "begin perform lower('x'); return null; end",
}


@pytest.mark.one_server
def test_a_function_that_leaks_is_found(stage: Stage) -> None:
    """One that somebody might add: it runs as its owner, a superuser, and forgets whose memory it is."""
    head = "create or replace function memfold.mutant({}) returns text language plpgsql security definer as $$ {} $$;"
    grant = "grant execute on function memfold.mutant to memfold_app"
    for name, body in MUTANTS.items():
        db = stage.db
        db.execute((head.format("memory_id uuid", body) + grant).encode())
        if name == "calls back":
            db.execute("alter function memfold.mutant owner to memfold_owner")
            db.execute("grant usage on schema " + stage.forged.connection.info.user + " to memfold_owner")
        [mutant] = [f for f in functions(db, "memfold_app") if f.name == "mutant"]
        session = stage.forged if name == "calls back" else stage.bound
        wrong, _ = probe_functions(db, session, stage.own, stage.other, stage.nobody, only=[mutant])
        assert [line for line in wrong if "refuses all" not in line] != [], name
    stage.db.execute("drop function memfold.mutant")
    stage.db.execute((head.format("colour text", "begin return null; end") + grant).encode())
    [mutant] = [f for f in functions(stage.db, "memfold_app") if f.name == "mutant"]
    wrong, _ = probe_functions(stage.db, stage.bound, stage.own, stage.other, stage.nobody, only=[mutant])
    assert wrong == ["mutant(colour text): say in tests/isolation_prober/calls.py what to pass"]


@pytest.mark.one_server
def test_every_text_holds_a_tenants_word(stage: Stage) -> None:
    """The probe's word is in every column that can hold it; a new table must belong to tenants, or be listed as nobody's."""
    for side in (stage.own, stage.other):
        for table, column, _ in stage.db.execute(TEXTS).fetchall():
            if f"{table}.{column}" not in PLAIN:
                found = stage.db.execute(
                    f"select count(*) from memfold.{table} where tenant_id = %s and {column}::text like %s".encode(),
                    [side.tenant, f"%{side.word}%"],
                ).fetchone()
                assert found != (0,), (table, column)
    columns = {f"{table}.{column}" for table, column, _ in stage.db.execute(TEXTS).fetchall()}
    assert columns >= PLAIN
    tables = [(name, isolated) for name, kind, isolated in relations(stage.db) if kind in "rp"]
    assert {name for name, isolated in tables if not isolated} <= SHARED
    assert len(secrets(stage.db, stage.other)) > 40


# Within a transaction -----------------------------------------------------------------------------------------------


def test_the_setting_changes_in_mid_transaction(stage: Stage) -> None:
    """A pooled role is trusted with the setting: each call serves the tenant that is set then, and only that."""
    mine, db = stage.pooled.connection, stage.db
    own, other = stage.own, stage.other

    def become(tenant: str) -> None:
        mine.execute("select set_config('memfold.tenant_id', %s, true)", [tenant])

    def tenants() -> set[str]:
        return {row[0] for row in mine.execute("select tenant_id from memfold.memory_events").fetchall()}

    assert tenants() == set()
    mine.execute("begin")
    become(own.tenant)
    ingest(mine, "said by alder", tenant_id=own.tenant)
    assert tenants() == {own.tenant}
    mine.execute("savepoint s")
    become(other.tenant)
    with pytest.raises(psycopg.Error) as error:
        ingest(mine, "said by alder in the wrong name", tenant_id=own.tenant)
    assert error.value.sqlstate == "MF002"
    mine.execute("rollback to s")
    assert tenants() == {own.tenant}, "the savepoint restores the setting"
    become(other.tenant)
    ingest(mine, "said by birch", tenant_id=other.tenant)
    assert tenants() == {other.tenant}
    mine.execute("release s; commit")
    assert tenants() == set(), "and so does the transaction's end"
    said = db.execute(
        "select tenant_id, content from memfold.memories where content like 'said%' order by 2"
    ).fetchall()
    assert said == [(own.tenant, "said by alder"), (other.tenant, "said by birch")]


FLIPS = (
    "select t::text from memfold.memories as t where set_config('memfold.tenant_id', 'birchwood-tenant', true) <> ''",
    "with s as materialized (select set_config('memfold.tenant_id', 'birchwood-tenant', true))"
    " select t::text from s, memfold.memories as t",
    "select set_config('memfold.tenant_id', t.tenant_id, true), e::text"
    " from (values ('alderwood-tenant'), ('birchwood-tenant')) as t (tenant_id)"
    " cross join lateral (select e::text from memfold.memory_events as e where e.tenant_id = t.tenant_id) as e",
    "select set_config('memfold.tenant_id', 'birchwood-tenant', true), memfold.explain_memory({id}::uuid)",
    "select * from memfold.explain_memory({id}, set_config('memfold.tenant_id', 'birchwood-tenant', true))",
    "select * from memfold.known_memory('birchwood prefers dark mode',"
    " set_config('memfold.tenant_id', 'birchwood-tenant', true), 'birchwood bucket', 'birchwood type', 'birchwood subject')",
    "select * from memfold.current_memory({id}, set_config('memfold.tenant_id', 'birchwood-tenant', true))",
    "set local memfold.tenant_id = 'birchwood-tenant'; select * from memfold.claim_judgements('w')",
    "set local role memfold_app; set local memfold.tenant_id = 'birchwood-tenant';"
    " select t::text from memfold.memories as t",
    "set local row_security = off; select t::text from memfold.memories as t",
    "set local session_replication_role = replica; select t::text from memfold.memories as t",
    "set local memfold.maintenance = on; update memfold.memories set content = content returning content",
    "declare c cursor for select t::text from memfold.memories as t;"
    " set local memfold.tenant_id = 'birchwood-tenant'; fetch all from c",
    "prepare p as select t::text from memfold.memories as t; execute p;"
    " set local memfold.tenant_id = 'birchwood-tenant'; execute p",
    "set local plan_cache_mode = force_generic_plan; select * from memfold.find_similar('[1,0,0,0]',"
    " 'm', 'alderwood-tenant', 'birchwood bucket', 0.1)",
)


def test_a_bound_login_cannot_flip(stage: Stage) -> None:
    """Its role decides, whatever it sets."""
    before = snapshot(stage.db, stage.other.tenant)
    theirs = stage.other.id("memory_id")
    for flip in FLIPS:
        statement = flip.replace("{id}", f"'{theirs}'")
        session = stage.bound
        outcome = session.run(statement)
        asked = {str(theirs)} | ({stage.other.word} if stage.other.word in statement else set())
        assert outcome.reveals(secrets(stage.db, stage.other) - asked) == [], flip
        session.connection.execute("deallocate all")
        # every result of several statements
        cursor = session.connection.execute(f"begin; {statement}".encode()) if outcome.state is None else None
        while cursor is not None:
            said = str(cursor.fetchall()) if cursor.description else ""
            assert "birchwood" not in said.replace("birchwood-tenant", ""), flip
            cursor = cursor if cursor.nextset() else None
        session.connection.execute("rollback; deallocate all")
    assert snapshot(stage.db, stage.other.tenant) == before


# Conflicts and waiting ----------------------------------------------------------------------------------------------


def test_tenants_neither_conflict_nor_wait(stage: Stage, connect: Connect) -> None:
    """The same text, key and id in both, uncommitted in one: proven by the locks that both hold, not by a clock."""
    first, second = stage.pooled.connection, connect(user=stage.pooled.connection.info.user)
    same = {"bucket_id": "shared", "idempotency_key": "k", "source_turn_ids": ["t"], "subject": "Ann"}
    held = {}
    for connection, side in ((first, stage.own), (second, stage.other)):
        connection.execute("begin")
        connection.execute("select set_config('memfold.tenant_id', %s, true)", [side.tenant])
        # a new text, a replay of it, and a batch; nothing is committed yet, and nobody waits for anybody
        for content in ("the same text", "the same text", "another text"):
            ingest(connection, content, tenant_id=side.tenant, **(same | {"idempotency_key": content}))
        connection.execute(
            'select memfold.ingest_memories(\'[{"content": "in a batch"}]\', %s)', [side.tenant]
        )
        held[side.word] = set(
            stage.db.execute(
                "select locktype, classid::bigint, objid::bigint, objsubid from pg_locks"
                " where pid = %s and locktype = 'advisory'",
                [connection.info.backend_pid],
            ).fetchall()
        )
        waits = stage.db.execute(
            "select count(*) from pg_locks where not granted and pid = any(%s)",
            [[first.info.backend_pid, second.info.backend_pid]],
        ).fetchone()
        assert waits == (0,)
    assert all(len(keys) >= 2 for keys in held.values())
    assert held[stage.own.word].isdisjoint(held[stage.other.word]), "the tenant is in every key"
    first.execute("commit")
    second.execute("commit")
    counts = stage.db.execute(
        "select tenant_id, count(*) from memfold.memories where bucket_id = 'shared' group by 1"
    ).fetchall()
    assert sorted(counts) == [(stage.own.tenant, 2), (stage.other.tenant, 2)]


def test_another_tenants_ids_can_be_reused(stage: Stage) -> None:
    """Every unique index leads with the tenant (tests/sql/test_catalog.py): the same memory_id twice is not a conflict."""
    stage.db.execute("begin; set local session_replication_role = replica")
    for table in ("memories", "memory_counters", "memory_events", "idempotency_keys", "judgements", "runs"):
        statement, rows = intruder(stage.db, table, stage.other)
        moved = [row.replace(stage.other.tenant, stage.own.tenant) for row in rows]
        assert stage.db.execute(statement.encode(), moved).rowcount == 1, table
    stage.db.execute("rollback")


# Statistics ---------------------------------------------------------------------------------------------------------


def test_statistics_reveal_no_texts(stage: Stage) -> None:
    """pg_stats hides rows of tables whose policies bind the reader. What EXPLAIN reveals of counts: docs/security.md."""
    known = stage.db.execute(
        "select count(*) from pg_stats where schemaname = 'memfold' and most_common_vals::text like '%birchwood%'"
    ).fetchone()
    assert known != (0,), "there are texts to hide"
    for session in stage.sessions:
        for view in ("pg_stats", "pg_stats_ext", "pg_stats_ext_exprs"):
            outcome = session.run(f"select tablename from pg_catalog.{view} where schemaname = 'memfold'")
            assert {row.strip("(',)") for row in outcome.rows} <= SHARED
        for catalog in ("pg_statistic", "pg_statistic_ext_data", "pg_authid", "pg_user_mapping"):
            outcome = session.run(f"select * from pg_catalog.{catalog}")
            assert outcome.state == "42501", catalog
        outcome = session.run(
            "explain (analyze, verbose) select * from memfold.memories as t where leak(t.content)"
        )
        assert outcome.reveals(secrets(stage.db, stage.other)) == []
