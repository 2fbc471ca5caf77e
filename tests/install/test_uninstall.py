"""`memfold uninstall`: nothing of memfold is left, in the database or the cluster; nothing else is gone."""

from __future__ import annotations

import json
import uuid
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict

from memfold.client import errors
from memfold.tools.admin import migrate
from memfold.tools.admin.uninstall import ROLES, uninstall
from memfold.tools.cli import main
from tests.conftest import Make
from tests.support import servers
from tests.support.installing import rows, run, works


@pytest.fixture
def installed(make: Make) -> str:
    return make("alembic")


# Everything in the database and the cluster that memfold could leave behind.
LEFT = """
select 'namespace', nspname::text from pg_namespace
union all select 'extension', extname::text from pg_extension
union all select 'relation', oid::regclass::text from pg_class where relnamespace = 'public'::regnamespace
union all select 'function', oid::regprocedure::text from pg_proc where pronamespace = 'public'::regnamespace
union all select 'setting', setrole::regrole::text || ' ' || array_to_string(setconfig, ';') from pg_db_role_setting
    where setdatabase = (select oid from pg_database where datname = current_database())
union all select 'default', defaclrole::text || defaclobjtype::text from pg_default_acl
union all select 'trigger', evtname::text from pg_event_trigger
union all select 'role', rolname::text from pg_roles
union all select 'publication', pubname::text from pg_publication
"""


@pytest.mark.one_server
def test_uninstall_leaves_nothing(own_cluster: servers.Cluster) -> None:
    """In a separate cluster: it is as before, including roles and search_path."""
    dsn = own_cluster.dsn()
    first = CliRunner().invoke(main, ["uninstall", "--dsn", dsn, "--drop", "postgres", "--json"])
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["roles"] == sorted(set(ROLES) - {"memfold_rules"})
    run(dsn, "create role agent login")
    before = sorted(rows(dsn, LEFT))
    servers.load_present(dsn, "alembic")
    migrate.set_search_path(dsn)
    works(dsn)
    run(
        dsn,
        "grant memfold_app to agent; alter role agent in database postgres set search_path = memfold, public;"
        " create role alone login; alter role alone in database postgres set search_path = memfold",
    )
    assert uninstall(dsn, database="postgres").kept_roles == ()
    after = rows(dsn, LEFT)
    assert [line for line in after if "memfold" in str(line[1])] == []
    # the role "alone" has no search_path left
    assert [name for kind, name in after if kind == "setting"] == [
        '- search_path="$user", public', "agent search_path=public",
    ]  # fmt: skip
    run(dsn, "alter role agent in database postgres reset search_path; drop role alone")
    run(dsn, "alter database postgres reset search_path")
    assert sorted(rows(dsn, LEFT)) == before


@pytest.mark.parametrize("way", ["alembic", "extension"])
def test_uninstall_keeps_roles_of_other_databases(make: Make, extension_available: bool, way: str) -> None:
    if not extension_available:
        pytest.skip("no CREATE EXTENSION memfold on this server")
    first, second = make(way), make("alembic")
    removed = uninstall(first, database=conninfo_to_dict(first)["dbname"])  # type: ignore[arg-type]
    assert {"memfold_owner", "memfold_tenant"} <= {*removed.kept_roles}
    assert removed.roles == ()
    assert [line for line in rows(first, LEFT) if "memfold" in str(line[1]) and line[0] != "role"] == []
    works(second)
    with pytest.raises(errors.InstallError, match="memfold is not installed in"):
        uninstall(first, database=removed.database)


@pytest.mark.one_server
def test_second_owner_in_one_cluster(make: Make, db: psycopg.Connection[Any]) -> None:
    """Two databases, two owners without superuser: uninstalling one leaves the other unchanged."""
    one, two = (f"{name}_{uuid.uuid4().hex[:8]}" for name in ("anna", "bert"))
    for role in (one, two):
        db.execute(f"create role {role} login createrole".encode())
    first, second = (f"{make(options=f'owner {role}')} user={role}" for role in (one, two))
    names = [str(conninfo_to_dict(dsn)["dbname"]) for dsn in (first, second)]
    try:
        for role, name, dsn in zip((one, two), names, (first, second), strict=True):
            run(f"{dsn} user=postgres", "create extension vector")
            run(dsn, f"revoke connect on database {name} from public")
            with pytest.raises(errors.MemfoldError, match="is not a member") as raised:
                migrate.install(dsn)
            assert f"grant memfold_owner, memfold_queue to {role}" in (raised.value.hint or "")
            db.execute(f"grant memfold_owner, memfold_queue to {role}".encode())
            migrate.install(dsn)
        # members of memfold_owner in every database: only CONNECT keeps them out of the other's
        with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
            rows(f"{first} dbname={names[1]}", "select")
        works(second)
        was = servers.contents(f"{second} user=postgres")
        assert "memfold_owner" in uninstall(first, database=names[0]).kept_roles
        assert [line for line in rows(first, LEFT) if "memfold" in str(line[1]) and line[0] != "role"] == []
        assert servers.contents(f"{second} user=postgres") == was
        assert migrate.drift(second) == []
        found = rows(second, "select action from memfold.ingest_memory('Alice has a cat.', 't')")
        assert found == [("merged",)]
        assert rows(second, "select * from memfold.check_invariants('t')") == []
    finally:
        for name in names:
            db.execute(f"drop database {name} with (force)".encode())
        for role in (one, two):
            db.execute(f"drop owned by {role}".encode())
            db.execute(f"drop role {role}".encode())


def test_uninstall_refuses(installed: str) -> None:
    """The wrong database, an adopted table, or others' dependent objects: nothing is dropped."""
    name = str(conninfo_to_dict(installed)["dbname"])
    with pytest.raises(errors.InstallError, match=f"this database is {name}, not agents"):
        uninstall(installed, database="agents")
    for make_one, drop, said in (
        (
            "create view public.ours as select count(*) from memfold.memories",
            "drop view public.ours",
            "rule _RETURN on view ours",
        ),
        (
            "create table public.ours (t text default memfold.canonicalize('A', 'prose'))",
            "drop table public.ours",
            "default value for column t of table ours",
        ),
        (
            "create function public.ours(m memfold.memories) returns int language sql return 1",
            "drop function public.ours",
            "function ours(memfold.memories)",
        ),
    ):
        run(installed, make_one)
        with pytest.raises(
            errors.InstallError, match="objects that are not memfold's depend on it"
        ) as raised:
            uninstall(installed, database=name)
        assert said in str(raised.value)
        run(installed, drop)
    run(
        installed,
        "insert into memfold.adoptions (table_schema, table_name, name, definition) values ('public', 'facts', 'f', '{}')",
    )
    with pytest.raises(errors.InstallError, match="1 tables are adopted"):
        uninstall(installed, database=name)
    works(installed)
