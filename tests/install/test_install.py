"""The path of installation that needs no file on the server: `memfold init`, and plain alembic."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import psycopg
import pytest
from alembic.script import ScriptDirectory
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memfold.client import errors
from memfold.tools.admin import migrate, server
from tests.conftest import Make
from tests.support import servers
from tests.support.installing import rows, run, works

# They install memfold themselves.
pytestmark = pytest.mark.each_server

REPOSITORY = Path(__file__).parents[2]
HEAD = ScriptDirectory(str(REPOSITORY / "migrations")).get_current_head()

# The schema's objects by oid: an object that was dropped and made again has another one.
OBJECTS = """
select 'relation', c.oid::bigint, c.relname::text, c.relacl::text from pg_class as c
where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[])
union all
select 'function', p.oid::bigint, pg_get_functiondef(p.oid), p.proacl::text from pg_proc as p
where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[])
union all
select 'constraint', c.oid::bigint, pg_get_constraintdef(c.oid), null from pg_constraint as c
where c.connamespace = any('{memfold,memfold_internal}'::regnamespace[])
union all
select 'trigger', t.oid::bigint, pg_get_triggerdef(t.oid), null from pg_trigger as t
join pg_class as c on c.oid = t.tgrelid where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[])
union all
select 'policy', p.oid::bigint, p.polname::text, null from pg_policy as p
union all
select 'type', t.oid::bigint, t.typname::text, t.typacl::text from pg_type as t
where t.typnamespace = any('{memfold,memfold_internal}'::regnamespace[])
order by 1, 2
"""


@pytest.fixture
def empty(make: Make) -> str:
    return make()


@pytest.fixture
def installed(make: Make) -> str:
    return make("alembic")


def test_install_makes_a_working_memfold(empty: str) -> None:
    assert migrate.install(empty) == HEAD
    assert rows(empty, "select version_num from memfold_internal.alembic_version") == [(HEAD,)]
    works(empty)


def test_a_second_install_changes_nothing(empty: str) -> None:
    migrate.install(empty)
    works(empty)
    before = rows(empty, OBJECTS)
    state = rows(empty, "select * from memfold.memories union all select * from memfold.memories")
    assert len(before) > 200
    assert migrate.install(empty) == HEAD
    assert rows(empty, OBJECTS) == before
    assert rows(empty, "select * from memfold.memories union all select * from memfold.memories") == state
    assert rows(empty, "select count(*) from memfold.policies") == [(1,)]
    assert rows(empty, "select count(*) from memfold.options") == [(1,)]


def test_nothing_is_made_outside_the_schemas(empty: str) -> None:
    outside = """
        select n.nspname::text from pg_namespace as n where n.nspname !~ '^pg_' union all
        select c.relname::text from pg_class as c where c.relnamespace = 'public'::regnamespace
            and not exists (select from pg_depend as d where d.objid = c.oid and d.deptype = 'e')
    """
    before = set(rows(empty, outside))
    migrate.install(empty)
    assert set(rows(empty, outside)) - before == {("memfold",), ("memfold_internal",)}


@pytest.mark.one_server
def test_plain_alembic_does_the_same(empty: str) -> None:
    alembic = [sys.executable, "-m", "alembic"]
    environment = {**os.environ, "MEMFOLD_DSN": empty}
    subprocess.run([*alembic, "current"], cwd=REPOSITORY, env=environment, check=True, capture_output=True)
    assert rows(empty, "select to_regnamespace('memfold')") == [(None,)], "alembic current installs nothing"
    subprocess.run([*alembic, "upgrade", "head"], cwd=REPOSITORY, env=environment, check=True)
    current = subprocess.run(
        [*alembic, "current"], cwd=REPOSITORY, env=environment, check=True, capture_output=True, text=True
    )
    assert current.stdout.strip() == f"{HEAD} (head)"
    works(empty)


def test_alembic_without_a_dsn_says_what_it_needs() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "MEMFOLD_DSN"}
    done = subprocess.run(
        [sys.executable, "-m", "alembic", "upgrade", "head"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "MEMFOLD_DSN" in done.stdout + done.stderr


@pytest.mark.one_server
def test_ten_processes_at_once(empty: str) -> None:
    processes = servers.install_together(*[empty] * 10)
    out, err = processes.communicate(timeout=300)
    assert (out.split(), processes.returncode) == ([HEAD] * 10, 0), err
    works(empty)


def test_two_databases_of_one_server_at_once(make: Make) -> None:
    """They share the roles, which two transactions cannot change at the same time."""
    pair = [make(), make()]
    processes = servers.install_together(*pair * 2)
    out, err = processes.communicate(timeout=300)
    # four processes write to one pipe: what one prints may come between the other's text and its end of line
    assert ("".join(out.split()), processes.returncode) == (HEAD * 4, 0), err
    for dsn in pair:
        works(dsn)


@pytest.mark.one_server
def test_threads_take_turns(make: Make) -> None:
    pair = [make(), make()]
    found: list[str] = []
    threads = [threading.Thread(target=lambda one=dsn: found.append(migrate.install(one))) for dsn in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [HEAD, HEAD]


@pytest.mark.one_server
def test_it_gives_way_and_tries_again(installed: str) -> None:
    """A session that reads a view blocks its new definition, for longer than the lock timeout."""
    with psycopg.connect(installed) as reader:
        reader.execute("select * from memfold.dedup_stats")
        timer = threading.Timer(1.5, reader.rollback)
        timer.start()
        assert migrate.install(installed) == HEAD
        assert not timer.is_alive()
        timer.join()


@pytest.mark.one_server
def test_nothing_new_locks_no_table(installed: str) -> None:
    """Writers continue, and nobody waits for them."""
    with psycopg.connect(installed) as writer:
        writer.execute("select memfold.ingest_memory('Alice has a cat.', 't')")
        writer.execute("lock table memfold.memories, memfold.memory_events in share row exclusive mode")
        assert migrate.install(installed) == HEAD


@pytest.mark.one_server
@pytest.mark.parametrize(
    ("message", "is_passing"),
    [("tuple concurrently updated", True), ("cache lookup failed for type 0", False)],
)
def test_an_internal_error_is_repeated_only_if_another_session_was_in_the_way(
    empty: str, monkeypatch: pytest.MonkeyPatch, message: str, is_passing: bool
) -> None:
    """Two installations of one server that grant the same role meet in its row, which is XX000; so are faults that stay."""
    run(
        empty,
        "create sequence attempt; create function refuse() returns event_trigger language plpgsql as $$ begin"
        f" perform nextval('public.attempt'); raise '{message}' using errcode = 'XX000'; end $$;"
        " create event trigger refuse on ddl_command_start execute function refuse()",
    )
    monkeypatch.setenv("MEMFOLD_LOCK_PATIENCE", "0.1")
    with pytest.raises(errors.MemfoldError, match=message):
        migrate.install(empty)
    [(attempts,)] = rows(empty, "select last_value from attempt")
    assert (attempts > 1) == is_passing, attempts


@pytest.mark.one_server
def test_an_installation_gives_way_and_is_not_ended(empty: str) -> None:
    """Its settings, read while it works: nobody queues behind it for as long as deadlock_timeout. And an error
    of the database keeps its code, detail and hint."""
    run(
        empty,
        "create function refuse() returns event_trigger language plpgsql as $$ begin"
        " raise 'refused' using errcode = 'P0077', hint = 'Ask.', detail = format('%s, %s', current_setting('lock_timeout'),"
        " current_setting('idle_in_transaction_session_timeout')); end $$;"
        " create event trigger refuse on ddl_command_start execute function refuse()",
    )
    run(
        empty,
        f"alter database {conninfo_to_dict(empty)['dbname']} set idle_in_transaction_session_timeout = '1min'",
    )
    with pytest.raises(errors.MemfoldError, match="refused") as caught:
        migrate.install(empty)
    assert (caught.value.sqlstate, caught.value.detail, caught.value.hint) == ("P0077", "300ms, 0", "Ask.")


def test_pgvector_in_another_schema(empty: str) -> None:
    run(empty, 'create schema "Ex tensions"')
    run(empty, 'create extension vector schema "Ex tensions"')
    migrate.install(empty)
    works(empty)
    assert migrate.drift(empty) == []


def test_pgvector_that_this_role_may_not_install(make: Make, db: psycopg.Connection) -> None:
    """If pgvector is not trusted, or PUBLIC may not create in public, an administrator must create it."""
    role = f"guest_{uuid.uuid4().hex[:8]}"
    dsn = make()
    db.execute(f"create role {role} login password 'guest'".encode())
    try:
        with pytest.raises(errors.InstallError, match="create extension vector"):
            migrate.install(make_conninfo(dsn, user=role, password="guest"))
        assert rows(dsn, "select to_regnamespace('memfold'), to_regnamespace('memfold_internal')") == [
            (None, None)
        ]
    finally:
        db.execute(f"drop role {role}".encode())


def test_an_owner_without_superuser(make: Make, db: psycopg.Connection) -> None:
    """On a server where another database has made memfold's roles: their administrator grants them."""
    role = f"owner_{uuid.uuid4().hex[:8]}"
    db.execute(f"create role {role} login createrole password 'owner'".encode())
    dsn = make(options=f"owner {role}")
    try:
        run(dsn, "create extension vector")
        db.execute(f"grant memfold_owner, memfold_queue to {role}".encode())
        own = make_conninfo(dsn, user=role, password="owner")
        assert migrate.install(own) == HEAD
        works(own)
        assert migrate.install(own) == HEAD
        assert migrate.drift(own) == []
    finally:
        run(db.info.dsn, f"drop database {conninfo_to_dict(dsn)['dbname']} with (force)")
        db.execute(f"drop owned by {role}".encode())
        db.execute(f"drop role {role}".encode())


def test_a_fresh_server_and_an_owner_without_superuser() -> None:
    """memfold's roles do not exist yet: CREATEROLE is enough."""
    place = servers.directory("memfold-test-")
    place.chmod(0o755)
    try:
        admin = server.up(place / "pg")
        run(admin, "create role agent_owner login createrole")
        run(admin, "create database agents owner agent_owner")
        run(make_conninfo(admin, dbname="agents"), "create extension vector")
        own = make_conninfo(admin, dbname="agents", user="agent_owner")
        assert migrate.install(own) == HEAD
        works(own)
        assert migrate.install(own) == HEAD
    finally:
        server.down(place / "pg", crash=True)
        shutil.rmtree(place)


def test_another_encoding_is_refused(dsn: str) -> None:
    name = f"install_{uuid.uuid4().hex[:12]}"
    run(dsn, f"create database {name} template template0 encoding 'SQL_ASCII' locale 'C'")
    try:
        own = make_conninfo(dsn, dbname=name)
        with pytest.raises(errors.InstallError, match="UTF8") as caught:
            migrate.install(own)
        made = re.search(
            "create database NAME encoding 'UTF8' locale 'C' template template0", str(caught.value)
        )
        assert made is not None, "the line that helps"
        run(dsn, made[0].replace("NAME", f"{name}_utf8"))
        assert migrate.install(make_conninfo(dsn, dbname=f"{name}_utf8")) == HEAD
    finally:
        run(dsn, f"drop database {name} with (force)")
        run(dsn, f"drop database if exists {name}_utf8 with (force)")


def test_a_database_of_the_extension_is_refused(empty: str, extension_available: bool) -> None:
    """A database belongs to one path of installation."""
    if extension_available:
        run(empty, "create extension memfold cascade")
        before = rows(empty, OBJECTS)
        with pytest.raises(errors.InstallError, match="alter extension memfold update"):
            migrate.install(empty)
        assert rows(empty, OBJECTS) == before
        assert rows(empty, "select to_regclass('memfold_internal.alembic_version')") == [(None,)]
    else:
        # this checkout's extension could not be installed on the server (another may be there): use alembic
        assert migrate.install(empty) == HEAD


def test_the_extension_where_init_was_is_refused(installed: str, extension_available: bool) -> None:
    if not extension_available:
        pytest.skip("no CREATE EXTENSION memfold on this server")
    before = rows(installed, OBJECTS)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="by memfold init") as caught:
        run(installed, "create extension memfold")
    assert "memfold init DSN" in str(caught.value.diag.message_hint)
    assert "one installation method" in str(caught.value.diag.message_detail)
    assert rows(installed, OBJECTS) == before
    works(installed)


def test_cascade_puts_pgvector_where_create_would(empty: str, extension_available: bool) -> None:
    """As README says."""
    if not extension_available:
        pytest.skip("no CREATE EXTENSION memfold on this server")
    where = "select extnamespace::regnamespace::text from pg_extension where extname = 'vector'"
    run(empty, "create extension memfold cascade")
    assert rows(empty, where) == [("public",)]
    run(empty, "drop extension memfold; drop extension vector; drop schema memfold; create schema extensions")
    run(empty, "set search_path = extensions, public; create extension memfold cascade")
    assert rows(empty, where) == [("extensions",)]


# The links between memfold's roles and the session's database.
OF_ROLES = """
select d.classid::regclass::text, d.refobjid::regrole::text from pg_shdepend as d
where d.refclassid = 'pg_authid'::regclass and d.refobjid::regrole::text like 'memfold%'
    and d.dbid = (select oid from pg_database where datname = current_database())
"""


def uninstalling() -> list[str]:
    """The statements of docs/operations.md: of pg_cron, an extension, memfold init, and of the roles."""
    text = (
        (REPOSITORY / "docs" / "operations.md")
        .read_text()
        .partition("\n## Uninstalling\n")[2]
        .partition("\n## ")[0]
    )
    return re.findall(r"```sql\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize(("way", "other"), [("alembic", "extension"), ("extension", "alembic")])
def test_uninstalled_as_the_docs_say(make: Make, extension_available: bool, way: str, other: str) -> None:
    """Nothing is left, and the other method may follow."""
    if not extension_available:
        pytest.skip("no CREATE EXTENSION memfold on this server")
    dsn = make(way)
    works(dsn)
    assert rows(dsn, OF_ROLES) != []
    _, of_extension, of_init, _ = uninstalling()
    run(dsn, of_extension if way == "extension" else of_init)
    assert rows(dsn, OF_ROLES) == []
    assert rows(dsn, "select to_regnamespace('memfold'), to_regnamespace('memfold_internal')") == [
        (None, None)
    ]
    assert rows(dsn, "select extname::text from pg_extension where extname ~ 'memfold'") == []
    outside = """
        select proname::text from pg_proc as p where pronamespace = 'public'::regnamespace
            and not exists (select from pg_depend as d where d.objid = p.oid and d.deptype = 'e')
        union all select relname::text from pg_class where relnamespace = 'public'::regnamespace
    """
    assert rows(dsn, outside) == []
    servers.load_present(dsn, other)
    works(dsn)


@pytest.mark.one_server
def test_roles_are_dropped_as_the_docs_say(own_cluster: servers.Cluster) -> None:
    _, _, of_init, of_roles = uninstalling()
    dsn = own_cluster.dsn()
    ours = "select rolname::text from pg_roles where rolname like 'memfold%' order by 1"
    run(dsn, "create role agent login in role memfold_app; create role judge login in role memfold_judge")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        run(dsn, of_roles)
    assert len(rows(dsn, ours)) == 7
    run(dsn, of_init)
    run(dsn, of_roles)
    assert rows(dsn, ours) == []
    assert rows(dsn, "select count(*) from pg_auth_members where roleid > 16383") == [(0,)]
    assert migrate.install(dsn) == HEAD
    works(dsn)


@pytest.mark.one_server
def test_unscheduled_as_the_docs_say(installed: str) -> None:
    """Without pg_cron it fails."""
    with pytest.raises(psycopg.DatabaseError, match='schema "cron" does not exist'):
        run(installed, uninstalling()[0])


@pytest.mark.one_server
def test_an_unreachable_server_is_a_clear_error(dsn: str) -> None:
    with pytest.raises(errors.MemfoldError):
        migrate.install(make_conninfo(dsn, dbname="no_such_database"))
    with pytest.raises(errors.ConnectionLostError):
        migrate.install("postgresql://nobody@127.0.0.1:1/nothing")


@pytest.mark.one_server
def test_drift_names_what_was_edited(installed: str) -> None:
    assert migrate.drift(installed) == []
    run(
        installed,
        """
        create or replace function memfold_internal._fail(p_code text, p_message text, p_detail text, p_hint text)
        returns void language plpgsql volatile parallel safe as $$ begin null; end $$
        """,
    )
    edited = rows(installed, "select pg_get_functiondef('memfold_internal._fail'::regproc)")
    assert migrate.drift(installed) == ["_fail(text,text,text,text)"]
    assert rows(installed, "select pg_get_functiondef('memfold_internal._fail'::regproc)") == edited, (
        "it only looks"
    )
    run(installed, "drop function memfold.explain_memory(uuid, text)")
    assert migrate.drift(installed) == ["_fail(text,text,text,text)", "explain_memory(uuid,text)"]
    migrate.install(installed)
    assert migrate.drift(installed) == []


@pytest.mark.one_server
def test_drift_sees_what_only_schema_files_make(installed: str) -> None:
    run(installed, "create function memfold.helper() returns integer return 1")
    run(installed, "alter function memfold_internal._new_id() stable")
    assert migrate.drift(installed) == ["_new_id()", "helper()"]


@pytest.mark.one_server
def test_drift_makes_nobody_wait(installed: str) -> None:
    """Nor does it wait for an open transaction that has written."""
    with psycopg.connect(installed) as writer:
        writer.execute("select memfold.ingest_memory('Alice has a cat.', 't')")
        writer.execute("lock table memfold.memories, memfold.memory_events in share row exclusive mode")
        assert migrate.drift(installed) == []
        assert writer.execute("select count(*) from memfold.memories").fetchone() == (1,)


@pytest.mark.one_server
def test_search_path_is_appended_once(installed: str) -> None:
    name = str(rows(installed, "select current_database()")[0][0])
    assert migrate.search_path_statement(installed) == (
        f'alter database "{name}" set search_path = "$user", "public", "memfold"'
    )
    assert migrate.set_search_path(installed) is not None
    assert rows(installed, "show search_path") == [('"$user", public, memfold',)]
    assert migrate.set_search_path(installed) is None
    assert rows(installed, "select action from ingest_memory('Alice has a cat.', 't')") == [("inserted",)]


@pytest.mark.one_server
def test_search_path_keeps_what_the_database_had(empty: str) -> None:
    run(empty, 'create schema "My, Schema"')
    name = str(rows(empty, "select current_database()")[0][0])
    with psycopg.connect(empty, autocommit=True) as connection:
        statement = sql.SQL('alter database {} set search_path = app, "My, Schema", public')
        connection.execute(statement.format(sql.Identifier(name)))
    migrate.install(empty)
    migrate.set_search_path(empty)
    assert rows(empty, "show search_path") == [('app, "My, Schema", public, memfold',)]
    assert rows(empty, "select current_schemas(false)") == [(["My, Schema", "public", "memfold"],)]


def created_in(dsn: str) -> str:
    """The schema that an unqualified CREATE TABLE leads to."""
    with psycopg.connect(dsn) as connection:
        connection.execute("create table an_application_s (id integer)")
        row = connection.execute(
            "select relnamespace::regnamespace::text from pg_class where oid = 'an_application_s'::regclass"
        ).fetchone()
        connection.rollback()
        assert row is not None
        return str(row[0])


@pytest.mark.one_server
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '"$user", public, memfold'),
        ('"$user"', '"$user", public, memfold'),
        ("memfold", "public, memfold"),
        ('memfold, "$user", public', '"$user", public, memfold'),
        ("''", "public, memfold"),
        ("app, memfold", "app, memfold"),
    ],
)
def test_tables_of_an_application_go_to_its_own_schema(installed: str, before: str, after: str) -> None:
    name = str(rows(installed, "select current_database()")[0][0])
    if before:
        run(installed, f"alter database {name} set search_path = {before}")
    run(installed, "create schema app")
    migrate.set_search_path(installed)
    assert rows(installed, "show search_path") == [(after,)]
    assert created_in(installed) == ("app" if "app" in after else "public")
    assert migrate.set_search_path(installed) is None


@pytest.mark.one_server
def test_a_role_that_is_called_like_the_schema(installed: str, db: psycopg.Connection) -> None:
    """The first entry, "$user", leads it to memfold's schema."""
    name = str(rows(installed, "select current_database()")[0][0])
    db.execute("create role memfold superuser login")
    try:
        own = make_conninfo(installed, user="memfold")
        assert created_in(own) == "memfold"
        done = migrate.set_search_path(own)
        assert done == (
            f'alter database "{name}" set search_path = "$user", "public", "memfold";\n'
            f'alter role memfold in database "{name}" set search_path = "public", "memfold"'
        )
        assert created_in(own) == "public"
        assert migrate.set_search_path(own) is None
        assert migrate.set_search_path(installed) is None
    finally:
        run(installed, f"alter role memfold in database {name} reset all")
        db.execute("drop role memfold")


def test_each_schema_file_belongs_to_one_revision() -> None:
    """A file that no revision names would be only in the extension."""
    named = "".join(path.read_text() for path in (REPOSITORY / "migrations" / "versions").glob("*.py"))
    releases = {path.name[:8] for path in (REPOSITORY / "sql" / "schema").glob("*.sql")}
    assert releases
    for release in releases:
        assert named.count(f'"{release}"') == 1, release
