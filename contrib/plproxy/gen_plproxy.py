#!/usr/bin/env python3
"""Make ``contrib/plproxy/plproxy.sql`` from a database in which memfold is installed.

    gen_plproxy.py DSN            write the file
    gen_plproxy.py DSN --check    exit 1, and say where, if the file is not what would be written

The file makes a router: a database without memfold, with a PL/Proxy function for each public function that can be
handed on to the server of its tenant. README.md in the same folder says how to use it.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

FILE = Path(__file__).resolve().parent / "plproxy.sql"

# The checks at the beginning of a call, taken from the catalog: their errors are the same on router and server.
CHECKS = [
    "_fail", "_actor", "_bound_role", "_bound_tenant", "_tenant", "_on_tenant_node", "_is_authorized", "_authorize_session",
    "_authorize_tenant", "_authorize_judge", "_authorize_queue_session", "_authorize_queue",
]  # fmt: skip

# Calls without a tenant, or with the tenant '*' for everyone: on every server.
EVERYWHERE = {
    "register_embedding_model", "create_vector_index", "create_text_index", "replace_embedding_model",
    "unregister_embedding_model", "set_policy", "set_options", "set_predicate",
}  # fmt: skip

# Any server can answer.
ANYWHERE = {"canonicalize", "canonicalizer_selftest"}

# Defined below: one tenant's queue, or that of all.
BY_HAND = {"claim_judgements", "retry_judgements"}

NOT_ROUTED = {
    "rehash_bucket": "a procedure that commits: PL/Proxy calls functions. Call it on the tenant's server.",
    "take_up_links": "a procedure that commits: PL/Proxy calls functions. Call it on the tenant's server.",
    "run_maintenance_all": "a procedure that commits, over the tenants of one server. Run it on each.",
    "schedule_maintenance": "the jobs of pg_cron belong to a server. Call it on each.",
    "unschedule_maintenance": "the jobs of pg_cron belong to a server. Call it on each.",
    "apply_calibration": "a calibration is a row of the server that it was measured on.",
    "undo_calibration": "a calibration is a row of the server that it was measured on.",
    "vector_index_ddl": "what it returns is to be run on the server that it is asked on.",
    "drop_vector_index_ddl": "what it returns is to be run on the server that it is asked on.",
    "text_index_ddl": "what it returns is to be run on the server that it is asked on.",
    "drop_text_index_ddl": "what it returns is to be run on the server that it is asked on.",
}

# Read through a view of the same name. True: rows of tenants; False: the same rows on every server.
VIEWS = {
    "dedup_stats": True,
    "judge_costs": True,
    "open_judgements": True,
    "memory_audit": True,
    "runs_overview": True,
    "runaway_memories": True,
    "memories": True,
    "memory_events": True,
    "judgements": True,
    "labelled_pairs": True,
    "policies": True,
    "options": True,
    "predicates": True,
    "links": True,
    "embedding_models": False,
}

# Rules of the tenant '*' are on every server: a view of all servers shows them once.
RULES = ("policies", "options", "predicates")

# How to write an argument of a type so that the server reads the same value.
AS_TEXT = {
    "timestamp with time zone": "set datestyle = 'ISO'",
    "interval": "set intervalstyle = 'postgres'",
    "double precision": "set extra_float_digits = 1",
}

FUNCTIONS = """
select
    p.oid,
    p.proname as name,
    p.prokind = 'p' as procedure,
    p.prosecdef as definer,
    p.proisstrict as strict,
    p.proretset as returns_set,
    pg_get_function_arguments(p.oid) as arguments,
    pg_get_function_identity_arguments(p.oid) as identity,
    pg_get_function_result(p.oid) as result,
    -- input arguments come first in every one of them
    (p.proargnames)[1:p.pronargs] as names,
    array(select format_type(t.type, null) from unnest(p.proargtypes::oid[]) with ordinality as t (type, place)
        order by t.place) as types,
    obj_description(p.oid, 'pg_proc') as meaning,
    array(
        select a.grantee::regrole::text from aclexplode(p.proacl) as a where a.grantee <> p.proowner order by 1
    ) as callers,
    (select c.relname from pg_class as c join pg_type as t on t.typrelid = c.oid where t.oid = p.prorettype
        and c.relkind = 'c') as composite
from pg_proc as p
where p.pronamespace = 'memfold'::regnamespace and not exists (
    select from pg_depend as d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'
        and d.refobjid = (select oid from pg_extension where extname = 'vector'))
order by p.proname
"""

COLUMNS = """
select quote_ident(a.attname) || ' ' || format_type(a.atttypid, a.atttypmod)
from pg_attribute as a
where a.attrelid = ('memfold.' || quote_ident(%s))::regclass and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""

PRIMARY_KEY = """
select string_agg(quote_ident(a.attname), ', ' order by k.place)
from pg_index as i
cross join unnest(i.indkey::smallint[]) with ordinality as k (attnum, place)
join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = k.attnum
where i.indrelid = ('memfold.' || quote_ident(%s))::regclass and i.indisprimary
"""

HEAD = """
-- A router over memfold servers: run it in the router's database, which must not contain memfold.
--
--     psql -v ON_ERROR_STOP=1 -1 -f contrib/plproxy/plproxy.sql
--
-- Then define the servers (CREATE SERVER memfold ...): contrib/plproxy/README.md. Run it again after an upgrade of memfold.
-- Generated by contrib/plproxy/gen_plproxy.py from the catalog of memfold {version}.
do $$
begin
    if to_regclass('memfold.memory_counters') is not null then
        raise exception 'memfold itself is installed in this database' using hint = 'A router is a database of its own.';
    end if;
    if current_setting('server_version_num')::integer < 150000 then
        raise exception 'memfold asks for PostgreSQL 15 or newer';
    end if;
end;
$$;

create extension if not exists plproxy;
create extension if not exists vector;
create schema if not exists memfold;
create schema if not exists memfold_internal;
comment on schema memfold is 'memfold {version}, routed by PL/Proxy: calls go to the server of their tenant.';

-- objects of an earlier run; tenant_roles has rows
do $$
declare
    -- as text before the first is gone: with one, CASCADE takes others
    v_objects constant text[] := array(
        select 'view ' || c.oid::regclass::text from pg_class as c
        where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[]) and c.relkind = 'v'
        union all
        select 'function ' || p.oid::regprocedure::text from pg_proc as p
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and not exists (
            select from pg_depend as d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
        union all
        select 'type ' || t.oid::regtype::text from pg_type as t
        join pg_class as c on c.oid = t.typrelid
        where t.typnamespace = any('{memfold,memfold_internal}'::regnamespace[]) and c.relkind = 'c'
    );
    v_object text;
begin
    foreach v_object in array v_objects loop
        execute regexp_replace(v_object, '^(\\w+) ', 'drop \\1 if exists ') || ' cascade';
    end loop;
end;
$$;

do $$
declare
    v_role text;
begin
    foreach v_role in array array[
        'memfold_owner', 'memfold_app', 'memfold_agent', 'memfold_tenant', 'memfold_judge', 'memfold_auditor'
    ] loop
        if not exists (select from pg_catalog.pg_roles where rolname = v_role) then
            execute pg_catalog.format('create role %I nologin', v_role);
        end if;
    end loop;
    if not pg_catalog.pg_has_role('memfold_tenant', 'memfold_agent', 'member') then
        grant memfold_agent to memfold_tenant;
    end if;
    if not pg_catalog.pg_has_role('memfold_tenant', 'memfold_app', 'member') then
        grant memfold_app to memfold_tenant;
    end if;
end;
$$;
grant usage on schema memfold, memfold_internal to memfold_owner, memfold_app, memfold_agent, memfold_judge, memfold_auditor;

-- the type vector, wherever pgvector is
select pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', n.nspname), true)
from pg_catalog.pg_extension as e
join pg_catalog.pg_namespace as n on n.oid = e.extnamespace
where e.extname = 'vector';

-- Tenant isolation -------------------------------------------------------------------------------------------------
--
-- The checks of memfold, made here already: a call that passes them is forwarded with its tenant. No function here is
-- SECURITY DEFINER, so that the calling role determines the user mapping.

create table if not exists memfold.tenant_roles (
    role_name name primary key,
    tenant_id text collate "C" not null check (tenant_id <> '')
);
comment on table memfold.tenant_roles is
'The tenant of each login role of this router that is a member of memfold_agent or memfold_tenant.';
alter table memfold.tenant_roles enable row level security;
grant select on memfold.tenant_roles to memfold_app, memfold_agent, memfold_judge, memfold_auditor;
grant select, insert, update, delete on memfold.tenant_roles to memfold_owner;
"""

ROUTES = """
drop policy if exists own_row on memfold.tenant_roles;
create policy own_row on memfold.tenant_roles for select to memfold_app, memfold_agent
using (role_name = memfold_internal._bound_role(current_user));
drop policy if exists owner_all on memfold.tenant_roles;
create policy owner_all on memfold.tenant_roles to memfold_owner using (true);

create function memfold_internal._shards() returns integer
language sql stable set search_path = pg_catalog, pg_temp
as $$
    select count(*)::integer
    from pg_foreign_server as s, unnest(s.srvoptions) as o (option)
    where s.srvname = 'memfold' and o.option ~ '^p(artition_)?[0-9]+='
$$;
comment on function memfold_internal._shards() is 'The number of servers of the cluster memfold.';

create function memfold_internal._route(tenant_id text) returns integer
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    return hashtext(tenant_id);
end;
$$;
comment on function memfold_internal._route(text) is
'The check of the tenant, then the hash that names the tenant''s server. Hash indexes are made of it, so PostgreSQL keeps it
from release to release. Raises MF001 to MF003.';

create function memfold_internal._route_judge(tenant_id text) returns integer
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._authorize_judge(tenant_id);
    return hashtext(tenant_id);
end;
$$;
comment on function memfold_internal._route_judge(text) is
'_route(), for calls that members of memfold_judge may make for any tenant.';

create function memfold_internal._route_read(tenant_id text) returns integer
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    if not coalesce(tenant_id <> '' and pg_has_role(memfold_internal._actor(), 'memfold_auditor', 'member'), false) then
        perform memfold_internal._authorize_tenant(tenant_id);
    end if;
    return hashtext(tenant_id);
end;
$$;
comment on function memfold_internal._route_read(text) is
'_route(), for data that members of memfold_auditor may read of any tenant.';

create function memfold_internal._route_rules(tenant_id text) returns setof integer
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    if tenant_id = '*' then
        return query select generate_series(0, memfold_internal._shards() - 1);
    else
        return next hashtext(tenant_id);
    end if;
end;
$$;
comment on function memfold_internal._route_rules(text) is
'_route(), for rules: those of the tenant ''*'' are on every server.';

create function memfold_internal._route_queue(tenant_id text, shard integer) returns integer
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce(hashtext(memfold_internal._authorize_queue(tenant_id)), shard);
end;
$$;
comment on function memfold_internal._route_queue(text, integer) is
'_route(), for the queue of one tenant, or, for roles that may work on all, the queue of the server with this number.';

create function memfold_internal._route_rows(tenant_id text) returns setof integer
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    if pg_has_role(current_user, 'memfold_auditor', 'member') then
        return query select generate_series(0, memfold_internal._shards() - 1);
    elsif tenant_id <> '' and tenant_id = memfold_internal._tenant() then
        return next hashtext(tenant_id);
    end if;
end;
$$;
comment on function memfold_internal._route_rows(text) is
'Where rows of a view are: on every server for members of memfold_auditor (superusers too), on the tenant''s for its
session, and nowhere without a tenant.';
"""

TENANTS = """
-- What `memfold maintenance` and `memfold reembed` iterate over.
create function memfold_internal._tenants() returns setof text
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on all;
    select t from memfold_internal._tenants() as t;
$$;
comment on function memfold_internal._tenants() is
'Every tenant that has memories, server after server. Only for roles that are mapped to a member of memfold_owner.';
"""

QUEUE = """
-- The judges' queue: of one tenant, or of all, server after server.

create function memfold_internal._claim_on(
    shard integer, worker text, max bigint, lease interval, review boolean, tenant_id text, judgement_ids uuid[]
) returns setof memfold.claimed_judgement
language plproxy volatile set search_path = pg_catalog, pg_temp set intervalstyle = 'postgres'
as $$
    cluster 'memfold';
    run on memfold_internal._route_queue(tenant_id, shard);
    select * from memfold.claim_judgements("worker" => $2, "max_results" => $3, "lease" => $4, "review" => $5,
        "tenant_id" => case when $6 is not null then pg_catalog.set_config('memfold.tenant_id', $6, true) end,
        "judgement_ids" => $7);
$$;
comment on function memfold_internal._claim_on(integer, text, bigint, interval, boolean, text, uuid[]) is
'claim_judgements() on one server.';

create function memfold_internal._retry_judgements_on(shard integer, tenant_id text) returns bigint
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_queue(tenant_id, shard);
    select * from memfold.retry_judgements(
        "tenant_id" => case when $2 is not null then pg_catalog.set_config('memfold.tenant_id', $2, true) end);
$$;
comment on function memfold_internal._retry_judgements_on(integer, text) is 'retry_judgements() on one server.';

create function memfold.claim_judgements({claim.arguments}) returns {claim.result}
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    v_tenant_id constant text := memfold_internal._authorize_queue(tenant_id);
    v_shards constant integer := memfold_internal._shards();
    -- each claim of a session begins after the server that the last one ended with
    v_start constant integer := coalesce(nullif(current_setting('memfold.claimed_shard', true), '')::integer, 0);
    v_left bigint := max_results;
    v_given bigint;
    v_lost integer := 0;
begin
    if v_tenant_id is not null then
        return query select * from memfold_internal._claim_on(0, worker, max_results, lease, review,
            v_tenant_id, judgement_ids);
        return;
    end if;
    for v_step in 1..v_shards loop
        begin
            return query select * from memfold_internal._claim_on((v_start + v_step) % v_shards, worker, v_left, lease,
                review, null, judgement_ids);
            get diagnostics v_given = row_count;
        -- errors of PL/Proxy itself (no connection), and of a server that is lost
        exception when internal_error or connection_exception or admin_shutdown or crash_shutdown or cannot_connect_now then
            v_lost := v_lost + 1;
            if v_lost = v_shards then
                raise;
            end if;
            -- the other servers' judgements can still be answered
            raise warning 'server % of the cluster memfold: %', (v_start + v_step) % v_shards, sqlerrm;
            v_given := 0;
        end;
        v_left := v_left - v_given;
        if v_left <= 0 then
            perform set_config('memfold.claimed_shard', ((v_start + v_step) % v_shards)::text, false);
            exit;
        end if;
    end loop;
end;
$$;

create function memfold.retry_judgements({revive.arguments}) returns {revive.result}
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    v_tenant_id constant text := memfold_internal._authorize_queue(tenant_id);
begin
    if v_tenant_id is not null then
        return memfold_internal._retry_judgements_on(0, v_tenant_id);
    end if;
    return (
        select sum(memfold_internal._retry_judgements_on(s, null))
        from generate_series(0, memfold_internal._shards() - 1) as s
    );
end;
$$;
"""


@dataclass(frozen=True)
class Function:
    """A public function or procedure."""

    oid: int
    name: str
    procedure: bool
    definer: bool
    strict: bool
    returns_set: bool
    arguments: str
    identity: str
    result: str
    names: list[str] | None
    types: list[str]
    meaning: str
    callers: list[str]
    composite: str | None

    def route(self) -> str:
        """RUN ON what."""
        if self.name in EVERYWHERE:
            return "memfold_internal._route_rules(tenant_id)" if "tenant_id" in (self.names or []) else "all"
        if self.name in ANYWHERE:
            return "any"
        if not self.definer and "memfold_auditor" in self.callers:
            return "memfold_internal._route_read(tenant_id)"
        return f"memfold_internal._route{'_judge' if 'memfold_judge' in self.callers else ''}(tenant_id)"

    def remote(self) -> str:
        """The call that a server gets. Arguments are computed before it, so it finds itself in its tenant.

        By name, so that a server of another release gets what is meant or refuses; quoted, or PL/Proxy would put
        the value in place of its name.
        """
        values = [
            f"pg_catalog.set_config('memfold.tenant_id', ${place}, true)"
            if name == "tenant_id"
            else f"${place}"
            for place, name in enumerate(self.names or [], 1)
        ]
        given = [f'"{name}" => {value}' for name, value in zip(self.names or [], values, strict=True)]
        return f"memfold.{self.name}({', '.join(given)})"

    def attributes(self) -> str:
        # PL/Proxy only accepts volatile ones
        return f"volatile{' strict' if self.strict else ''} set search_path = pg_catalog, pg_temp"

    def sending(self) -> str:
        """The attributes of functions that pass arguments on as text, which must not depend on the session's
        settings."""
        kinds = {kind.removesuffix("[]") for kind in self.types}
        pinned = [setting for kind, setting in AS_TEXT.items() if kind in kinds]
        return " ".join([self.attributes(), *pinned])

    def routed(self) -> str:
        """The statement that makes it on the router."""
        if self.name not in EVERYWHERE:
            return create(
                f"memfold.{self.name}({self.arguments})",
                self.result,
                "plproxy",
                self.sending(),
                self.body(),
            )
        names = self.names or []
        given = ", ".join(f"{name} {kind}" for name, kind in zip(names, self.types, strict=True))
        private = f"memfold_internal._all_{self.name}"
        call = f"{private}({', '.join(f'${place}' for place in range(1, len(names) + 1))})"
        body = (
            f"    perform {call};"
            if self.result == "void"
            else f"    return (select r from {call} as r limit 1);"  # noqa: S608
        )
        return "\n".join(
            [
                create(f"{private}({given})", f"setof {self.result}", "plproxy", self.sending(), self.body()),
                f"comment on function {private}({', '.join(self.types)}) is",
                f"'{self.name}() on every server that it is for.';",
                *grants(f"{private}({', '.join(self.types)})", self.callers),
                "",
                create(
                    f"memfold.{self.name}({self.arguments})", self.result, "plpgsql", self.attributes(),
                    f"begin\n{body}\nend;",
                ),
            ]
        )  # fmt: skip

    def body(self) -> str:
        return f"    cluster 'memfold';\n    run on {self.route()};\n    select * from {self.remote()};"  # noqa: S608

    def described(self) -> list[str]:
        signature = f"memfold.{self.name}({self.identity})"
        return [
            f"comment on function {signature} is\n{literal(self.meaning)};",
            *grants(f"memfold.{self.name}({self.identity})", self.callers),
        ]


def create(signature: str, result: str, language: str, attributes: str, body: str) -> str:
    return (
        f"create function {signature}\nreturns {result}\nlanguage {language} {attributes}\nas $$\n{body}\n$$;"
    )


def grants(signature: str, callers: Iterable[str]) -> list[str]:
    """To its callers, and to memfold_owner, which owns it on a server."""
    return [
        f"revoke all on function {signature} from public;",
        f"grant execute on function {signature} to {', '.join(sorted({'memfold_owner', *callers}))};",
    ]


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def view(name: str, of_tenants: bool, columns: list[str], key: str | None) -> str:
    """A view over a function that asks the servers, with one row of those with the same key. The setting is made before
    the view there starts."""
    reader = f"memfold_internal._read_{name}"
    body = f"""\
    cluster 'memfold';
    run on {"memfold_internal._route_rows(tenant)" if of_tenants else "any"};
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.{name} where s.t is not null offset 0) as v;"""  # noqa: S608
    reading = "volatile set search_path = pg_catalog, pg_temp"
    made = create(f"{reader}(tenant text)", f"table ({', '.join(columns)})", "plproxy", reading, body)
    lines = [
        made,
        f"comment on function {reader}(text) is 'The rows of {name}, from the servers.';",
        *grants(f"{reader}(text)", ["memfold_app", "memfold_agent", "memfold_auditor"]),
        f"create view memfold.{name} with (security_invoker = true) as",
        f"select {f'distinct on ({key}) ' if key else ''}* from {reader}(coalesce(memfold_internal._tenant(), ''));",  # noqa: S608
        f"comment on view memfold.{name} is 'As on a server, whole: conditions are tried here.';",
        f"grant select on memfold.{name} to memfold_owner, memfold_app, memfold_agent, memfold_auditor;",
    ]
    return "\n".join(lines)


def functions(connection: psycopg.Connection[Any]) -> dict[str, Function]:
    rows = connection.execute(FUNCTIONS.encode()).fetchall()
    found = {row[1]: Function(*row) for row in rows}
    if len(found) != len(rows):
        raise SystemExit("two public functions have one name: PL/Proxy could not tell them apart")
    return found


def routed(all_of_them: dict[str, Function]) -> list[Function]:
    """The contents of a router. Anything that is neither routed nor in NOT_ROUTED ends the run."""
    chosen = []
    for one in all_of_them.values():
        if one.name in NOT_ROUTED or one.name in BY_HAND:
            continue
        if one.procedure or not (
            one.name in EVERYWHERE or one.name in ANYWHERE or "tenant_id" in (one.names or [])
        ):
            raise SystemExit(f"{one.name}: cannot be routed; say why in NOT_ROUTED")
        chosen.append(one)
    return chosen


def make(connection: psycopg.Connection[Any]) -> str:
    """The file."""
    # the type vector without its schema, everything else with it
    connection.execute(
        "select set_config('search_path', 'pg_catalog, ' || extnamespace::regnamespace::text, true)"
        " from pg_extension where extname = 'vector'"
    )
    version = re.search(r"default_version = '(.*)'", (FILE.parents[2] / "memfold.control").read_text())
    assert version is not None  # noqa: S101
    every = functions(connection)
    chosen = routed(every)

    out = [HEAD.strip().replace("{version}", version[1])]
    for name in CHECKS:
        row = connection.execute(
            "select pg_get_functiondef(p.oid), p.oid::regprocedure::text, obj_description(p.oid, 'pg_proc')"
            " from pg_proc as p where p.pronamespace = 'memfold_internal'::regnamespace and p.proname = %s",
            [name],
        ).fetchone()
        assert row is not None  # noqa: S101
        lines = "\n".join(line.rstrip() for line in row[0].strip().splitlines())
        out.append(f"{lines};\ncomment on function {row[1]} is\n{literal(row[2])};")
    out.append(ROUTES.strip())
    # the checks reveal nothing and grant nothing
    out.append(
        "revoke all on all functions in schema memfold, memfold_internal from public;\n"
        "grant execute on all functions in schema memfold, memfold_internal"
        " to memfold_owner, memfold_app, memfold_agent, memfold_judge, memfold_auditor;"
    )

    out.append("-- Results " + "-" * 107)
    for name in sorted(
        {one.composite for one in every.values() if one.composite and one.name not in NOT_ROUTED}
    ):
        columns = [row[0] for row in connection.execute(COLUMNS, [name])]
        out.append(f"create type memfold.{name} as ({', '.join(columns)});")
    out.append("-- Views " + "-" * 109)
    for name, of_tenants in VIEWS.items():
        columns = [row[0] for row in connection.execute(COLUMNS, [name])]
        [(key,)] = connection.execute(PRIMARY_KEY, [name]).fetchall()
        out.append(view(name, of_tenants, columns, key if name in RULES else None))

    out.append("-- Functions " + "-" * 105)
    for one in chosen:
        out.append("\n".join([one.routed(), *one.described()]))
    out.append("\n".join([TENANTS.strip(), *grants("memfold_internal._tenants()", [])]))
    queue = QUEUE.strip()
    for name, key in (("claim_judgements", "claim"), ("retry_judgements", "revive")):
        queue = queue.replace("{%s.arguments}" % key, every[name].arguments)  # noqa: UP031
        queue = queue.replace("{%s.result}" % key, every[name].result)  # noqa: UP031
    out.append(queue)
    for name in sorted(BY_HAND):
        out.append("\n".join(every[name].described()))
    for private in (
        "memfold_internal._claim_on(integer, text, bigint, interval, boolean, text, uuid[])",
        "memfold_internal._retry_judgements_on(integer, text)",
    ):
        out.append("\n".join(grants(private, ["memfold_app", "memfold_judge"])))
    return "\n\n".join(out) + "\n"


def main() -> int:
    """Write or check the file."""
    parser = argparse.ArgumentParser(
        description="Make contrib/plproxy/plproxy.sql from a database with memfold in it."
    )
    parser.add_argument("dsn", help="a database in which memfold is installed; nothing in it is changed")
    parser.add_argument("--check", action="store_true", help="only say whether the file is up to date")
    given = parser.parse_args()
    with psycopg.connect(given.dsn) as connection:
        made = make(connection)
        connection.rollback()
    if not given.check:
        FILE.write_text(made, encoding="utf-8")
        return 0
    stored = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    name = "contrib/plproxy/plproxy.sql"
    differences = list(
        difflib.unified_diff(stored.splitlines(), made.splitlines(), name, "the catalog", lineterm="")
    )
    print("\n".join(differences) or f"{name} is up to date")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
