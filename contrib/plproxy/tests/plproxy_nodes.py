"""A router and the servers behind it, by PL/Proxy: how they are set up, and what of the suite runs through one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
from tests import servers
from tests.concurrent_calls import DidNotWaitError

from contrib.plproxy import gen_plproxy
from memfold.admin import migrate

# What a router comes as.
LOGIN = "create role memfold_router login in role memfold_app, memfold_judge"

# Roles of the router, with the roles of the servers that they are sent as.
MAPPINGS = """
grant usage on foreign server memfold to memfold_owner, memfold_app, memfold_agent, memfold_judge, memfold_auditor;
create user mapping for public server memfold options (user 'memfold_router');
create user mapping for postgres server memfold options (user 'postgres')
"""


def make_router(db: psycopg.Connection[Any], places: Sequence[str]) -> None:
    """Make a router of an empty database, to servers that are at these places."""
    db.execute(gen_plproxy.FILE.read_text().encode())
    options = ", ".join(f"p{number} '{place}'" for number, place in enumerate(places))
    db.execute(f"create server memfold foreign data wrapper plproxy options ({options})".encode())
    db.execute(MAPPINGS.encode())


# --- the suite through a router: pytest --plproxy -----------------------------------------------------------------

# What could say nothing there.
NOT_HERE = {
    "test_adopt_absorb": "adoption is of tables on one server",
    "test_adopt_locks": "adoption is of tables on one server",
    "test_crash": "kills servers of its own",
    "test_connection_loss": "cuts connections to one server",
    "test_dump": "a router has no rows to dump",
    "test_install": "installs memfold on one server",
    "test_upgrade": "installs memfold on one server",
    "test_server": "installs memfold on one server",
    **dict.fromkeys(
        ("test_erasure_races", "test_lock_counts", "test_locks", "test_rule_changes", "test_run_waits"),
        "is about locks, which a routed call does not hold for its caller",
    ),
    "test_isolation_probes": "is about the catalog of one server",
    "test_reference": "is about the catalog of one server",
    "test_guard": "is about private functions, which are on the servers",
    "test_guard_languages": "is about private functions, which are on the servers",
    "test_guard_turned": "is about private functions, which are on the servers",
    "test_rehash": "is about rehash_bucket, which is called on the server",
    "test_veto": "is about private functions, which are on the servers",
    "test_metrics": "exporters ask each server",
    "test_plpython": "is about functions of one server",
    "test_plpython_package": "is about functions of one server",
    "test_pgbouncer": "is about a pooler of one server",
}

# The tests look at tables, and write into them, which a router does not have. For the tests alone it gets foreign tables for
# those that it has no view of, and what writes into either goes to the tenant's server.
WRITE = """
create extension postgres_fdw;
create extension dblink;
create function public.server_of_this_test(number integer) returns text
language plpgsql as $$
declare
    v_maintenance constant text := coalesce(nullif(current_setting('memfold.maintenance', true), ''), 'off');
    -- a connection for the session: a test may write thousands of rows
    v_name constant text := number || v_maintenance;
begin
    if array_position(public.dblink_get_connections(), v_name) is null then
        perform public.dblink_connect(v_name, format(
            'user=postgres host=%L port=%s dbname=%L options=-cmemfold.maintenance=%s',
            current_setting('unix_socket_directories'), current_setting('port'), current_database() || '_' || number,
            v_maintenance));
    end if;
    return v_name;
end;
$$;
create function public.write_on_its_server() returns trigger
language plpgsql as $$
declare
    v_server integer;
    v_old constant jsonb := to_jsonb(old);
    v_row constant jsonb := coalesce(to_jsonb(new), v_old);
    v_columns text;
    v_call text;
    v_done jsonb;
    -- what each server has of its own in rows that are on all
    v_own constant text[] := case when v_row ? 'tenant_id' then '{}' else '{registered_at,replaced_at}' end;
begin
    select string_agg(quote_ident(e.key), ', ') into v_columns
    from jsonb_each(v_row) as e where e.value is distinct from coalesce(v_old -> e.key, 'null');
    if tg_op = 'UPDATE' and v_columns is null then
        return new;
    end if;
    v_call := case tg_op
        -- a trigger does not see ON CONFLICT, and most that insert here say DO NOTHING
        when 'INSERT' then 'insert into memfold.%1$I as t (%2$s) select %2$s'
            ' from jsonb_populate_record(null::memfold.%1$I, %3$L)'
            || case when tg_table_name <> 'memories' then ' on conflict do nothing' else '' end
        when 'DELETE' then 'delete from memfold.%1$I as t where to_jsonb(t) - %5$L::text[] = %4$L::jsonb - %5$L::text[]'
        else 'update memfold.%1$I as t set (%2$s) = (select %2$s from jsonb_populate_record(null::memfold.%1$I, %3$L))'
            ' where to_jsonb(t) - %5$L::text[] = %4$L::jsonb - %5$L::text[]'
    end || ' returning to_jsonb(t)';
    for v_server in
        select s from generate_series(0, 1) as s
        where v_row ->> 'tenant_id' is null or v_row ->> 'tenant_id' = '*' or s = hashtext(v_row ->> 'tenant_id') & 1
    loop
        select d.done into v_done
        from public.dblink(
            public.server_of_this_test(v_server),
            format(v_call, tg_table_name, v_columns, v_row, v_old, v_own)) as d (done jsonb);
    end loop;
    if tg_when = 'INSTEAD OF' and v_done is not null then
        return jsonb_populate_record(coalesce(new, old), v_done);
    end if;
    return null;
end;
$$;
-- what tests of tenant isolation need in their fixture
create function memfold_internal._stripe(tenant_id text, root_id uuid) returns setof void language plproxy as $$
    cluster 'memfold';
    run on hashtext(tenant_id);
$$
"""
# A function of memfold that a test replaces, such as its clock, is replaced on the servers.
REPLACE = """
create function public.replace_on_the_servers() returns event_trigger
language plpgsql as $$
declare
    v_function text;
begin
    select pg_get_functiondef(c.objid) into v_function from pg_event_trigger_ddl_commands() as c
    where c.schema_name in ('memfold', 'memfold_internal') and c.command_tag in ('CREATE FUNCTION', 'CREATE PROCEDURE');
    if v_function is not null then
        perform public.dblink_exec(public.server_of_this_test(s), v_function) from generate_series(0, 1) as s;
    end if;
end;
$$;
create event trigger replace_on_the_servers on ddl_command_end execute function public.replace_on_the_servers()
"""
RELATIONS = """
select c.relname, c.relkind::text, c.relnamespace::regnamespace::text from pg_class as c
where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[]) and c.relname <> 'alembic_version'
    and c.relkind in ('r', 'p', 'v') and not c.relispartition
"""
# Those that have the same rows on each server.
RULES = ("embedding_models", "calibrations", "antonyms", "lexicon")


# What PL/Proxy adds to a server's error: test_plproxy.py is about it, the suite compares errors without it.
ADDED = re.compile(
    r"^(DETAIL:  |HINT:  |CONTEXT:  )?(?:[\w.]+\(\d+\): \[[^\]\n]*\] REMOTE [A-Z]+: |Remote (?:detail|hint|context): )",
    re.MULTILINE,
)
# Of the router itself, when a statement uses what is on the servers alone.
UNDEFINED = re.compile(r"(?:function|procedure) \"?(?:memfold\.|memfold_internal\.)?(\w+)\b.* does not exist")
PRIVATE = "a function that begins with _, or that is not routed, is on the servers alone"
LOCKS = "a call is committed when it returns, and holds no locks"
TABLES = "a router has no tables, and no row-level security"


@contextmanager
def plain_errors() -> Iterator[None]:
    """Read errors without what PL/Proxy adds."""
    field = psycopg.errors.Diagnostic._error_message

    def plain(text: str | None) -> str | None:
        return text and ADDED.sub(r"\1", text)

    with (
        mock.patch.object(
            psycopg.errors.Diagnostic, "_error_message", lambda self, name: plain(field(self, name))
        ),
        mock.patch.object(psycopg.Error, "__str__", lambda self: plain(Exception.__str__(self))),
    ):
        yield


@dataclass
class Router:
    """A server with a router and two databases with memfold, to be copied together for each test."""

    bindir: Path

    not_here = NOT_HERE

    def __post_init__(self) -> None:
        self.cluster = servers.Cluster("plproxy", self.bindir)

    def start_suite(self) -> None:
        self.cluster.start(extension=False)
        names = self.names("template")
        self.run(*(f"create database {name}" for name in names))
        router, *shards = names
        for name in shards:
            migrate.install(self.cluster.dsn(name))
        with psycopg.connect(self.cluster.dsn(shards[0]), autocommit=True) as db:
            db.execute(LOGIN)
        with psycopg.connect(self.cluster.dsn(router), autocommit=True) as db:
            make_router(db, self.places("template"))
            self.make_tables(db, shards)

    def make_tables(self, db: psycopg.Connection[Any], shards: Sequence[str]) -> None:
        with psycopg.connect(self.cluster.dsn(shards[0]), autocommit=True) as shard:
            tables = {name: of for name, *of in shard.execute(RELATIONS.encode())}
        views = {name: kind for name, kind, _ in db.execute(RELATIONS.encode())}
        db.execute(WRITE.encode())
        statements = []
        for number, name in enumerate(shards):
            statements += [
                f"create server server_{number} foreign data wrapper postgres_fdw"
                f" options (host '{self.cluster.base}', port '{servers.PORT}', dbname '{name}')",
                f"create user mapping for public server server_{number}"
                " options (user 'postgres', password_required 'false')",
                f"create schema server_{number}",
                *(
                    f"import foreign schema {schema} except ({', '.join(views)}) from server server_{number}"
                    f" into server_{number} options (import_default 'false', import_generated 'false')"
                    for schema in ("memfold", "memfold_internal")
                ),
            ]
        for name, (kind, schema) in tables.items():
            if name not in views:
                statements.append(f"create table {schema}.{name} (like server_0.{name})")
                statements += [
                    f"alter foreign table server_{number}.{name} inherit {schema}.{name}"
                    for number in range(1 if name in RULES else len(shards))
                ]
            if kind != "v" and views.get(name) != "r":
                when = "instead of insert or update or delete" if name in views else "before insert"
                statements.append(
                    f"create trigger write_on_its_server {when} on {schema}.{name}"
                    " for each row execute function public.write_on_its_server()"
                )
        for statement in [*statements, REPLACE]:
            db.execute(statement.encode())

    def stop(self) -> None:
        self.cluster.stop()

    def names(self, name: str) -> list[str]:
        """The database that routes, and those behind it."""
        return [name, *(f"{name}_{number}" for number in range(2))]

    def places(self, name: str) -> list[str]:
        return [
            f"dbname={shard} host={self.cluster.base} port={servers.PORT}" for shard in self.names(name)[1:]
        ]

    def run(self, *statements: str) -> None:
        """By the superuser in the database postgres."""
        with psycopg.connect(self.cluster.dsn(), autocommit=True) as db:
            for statement in statements:
                db.execute(statement.encode())

    @contextmanager
    def copy(self, name: str) -> Iterator[psycopg.Connection[Any]]:
        """A router over servers of its own; leads there as a superuser, who is one on the servers."""
        names = self.names(name)
        templates = self.names("template")
        try:
            self.run(*(f"create database {n} template {t}" for n, t in zip(names, templates, strict=True)))
            with psycopg.connect(self.cluster.dsn(name), autocommit=True) as db:
                options = ", ".join(f"set p{number} '{p}'" for number, p in enumerate(self.places(name)))
                db.execute(f"alter server memfold options ({options})".encode())
                for number, shard in enumerate(names[1:]):
                    db.execute(f"alter server server_{number} options (set dbname '{shard}')".encode())
            # a session of its own: PL/Proxy looks at a server's options no more than once in a while
            with plain_errors(), closing(psycopg.connect(self.cluster.dsn(name), autocommit=True)) as db:
                yield db
        finally:
            with suppress(psycopg.Error):
                self.run(*(f"drop database if exists {n} with (force)" for n in names))

    @staticmethod
    def missing(error: BaseException) -> str | None:
        if isinstance(error, DidNotWaitError):
            return LOCKS
        if not isinstance(error, psycopg.Error):
            return None
        said = str(error.args[0]) if error.args else ""
        if "REMOTE ERROR" in said:
            return None
        if error.sqlstate == "42883":
            found = UNDEFINED.match(said)
            if found and (found[1].startswith("_") or found[1] in gen_plproxy.NOT_ROUTED):
                return PRIVATE
        if error.sqlstate == "42809":
            return TABLES
        return None


def place() -> Router:
    """For --plproxy."""
    found = servers.plproxy()
    if found is None:
        raise pytest.UsageError("no server with PL/Proxy and pgvector is installed")
    return Router(found)
