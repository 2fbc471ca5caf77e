"""A version becomes a later one: by ALTER EXTENSION UPDATE, by alembic, and by a printed script.

From each release that is out, and from the present version as if it were, to one that is made up (tests/support/servers.py,
``make_later``): it has a new column and a new table, other signatures, a function less, another view and another trigger.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command as alembic_command
from alembic.config import Config
from alembic.util import CommandError
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memfold import Embedder, Memfold
from memfold.client import errors
from memfold.tools import cli
from memfold.tools.admin import migrate
from tests.conftest import Make, Target
from tests.support import servers
from tests.support.installing import GRANTED, MEMBERS, adopt_docs, ask, broken, catalog, run, still_adopted
from tests.support.waiting import until

# They install memfold themselves.
pytestmark = pytest.mark.each_server

# --- frozen releases ---------------------------------------------------------------------------------------------


def checksums(tree: Path) -> dict[str, str]:
    sums = tree / "sql" / "schema" / "SHA256SUMS"
    lines = sums.read_text().splitlines() if sums.exists() else []
    return {name: checksum for checksum, name in (line.split() for line in lines)}


@pytest.mark.one_server
def test_schema_files_of_a_release_never_change(target: Target) -> None:
    """Neither in this tree nor where the present version has been frozen."""
    assert checksums(target.cluster.later)
    for tree in (servers.ROOT, target.cluster.later):
        schema, frozen = tree / "sql" / "schema", checksums(tree)
        assert {name[:8] for name in frozen} <= {servers.prefix(release) for release in servers.releases()}
        for name, checksum in frozen.items():
            assert hashlib.sha256((schema / name).read_bytes()).hexdigest() == checksum, name
        # nor is one added to a release that is out
        out = {name[:8] for name in frozen}
        assert {path.name for path in schema.glob("*.sql") if path.name[:8] in out} == set(frozen)


@pytest.mark.one_server
def test_a_release_is_frozen_once(target: Target, tmp_path: Path) -> None:
    """Nor while a file of an earlier release differs."""
    tree = tmp_path / "tree"
    shutil.copytree(target.cluster.later, tree, symlinks=True)
    frozen = tree / "tests" / "data" / "released"
    assert not (frozen / f"{servers.LATER}.sql.gz").exists()
    file = tree / "sql" / "schema" / sorted(checksums(tree))[-1]
    file.write_text(file.read_text() + "-- edited\n")
    with pytest.raises(RuntimeError, match="checksum did NOT match"):
        servers.make("freeze", tree=tree)
    shutil.copy(target.cluster.later / "sql" / "schema" / file.name, file)
    servers.make("freeze", tree=tree)
    assert (frozen / f"{servers.LATER}.sql.gz").exists()
    assert {name[:8] for name in checksums(tree)} >= {servers.prefix(servers.LATER)}
    with pytest.raises(RuntimeError, match=f"{servers.LATER} is frozen already"):
        servers.make("freeze", tree=tree)


@pytest.mark.one_server
def test_a_released_schema_file_that_was_changed_is_refused(
    make: Make, target: Target, tmp_path: Path
) -> None:
    empty = make()
    for folder in ("sql", "migrations"):
        shutil.copytree(target.cluster.later / folder, tmp_path / folder)
    file = tmp_path / "sql" / "schema" / sorted(checksums(tmp_path))[-1]
    file.write_text(file.read_text() + "-- edited\n")
    config = Config()
    config.set_main_option("script_location", str(tmp_path / "migrations"))
    config.attributes["dsn"] = empty
    with pytest.raises(CommandError, match=f"{file.name} is not the file that was released"):
        alembic_command.upgrade(config, "head")
    file.unlink()
    with pytest.raises(CommandError, match="is missing"):
        alembic_command.upgrade(config, "head")
    assert ask(empty, "select to_regnamespace('memfold')") == [None]


def test_frozen_files_reproduce_the_release(make: Make, way: str) -> None:
    """`make freeze` keeps all files that make up the current version."""
    frozen = make(way, release=servers.PRESENT)
    assert sorted(set(catalog(frozen)) ^ set(catalog(make(way)))) == []


@pytest.mark.one_server
def test_what_a_later_release_adds_is_linted(target: Target, tmp_path: Path) -> None:
    """Its schema files change tables in use: some statements that the first release may contain are refused there."""
    for name in ("tools", "migrations", "sql/schema"):
        shutil.copytree(target.cluster.later / name, tmp_path / name)
    # skip the style checks, which take long
    (tmp_path / "sqlfluff").symlink_to(shutil.which("true") or "/bin/true")
    path = os.pathsep.join([str(tmp_path), sysconfig.get_path("scripts"), os.environ["PATH"]])

    def lint() -> subprocess.CompletedProcess[str]:
        command = ["bash", str(tmp_path / "tools" / "lint_sql.sh")]
        return subprocess.run(
            command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )

    done = lint()
    assert done.returncode == 0, done.stdout + done.stderr
    later = tmp_path / "sql" / "schema" / f"{servers.prefix(servers.LATER)}_21_ledger.sql"
    later.write_text(later.read_text() + "alter table memfold.memories drop column pinned;\n")
    done = lint()
    assert done.returncode != 0
    assert "ban-drop-column" in done.stdout + done.stderr
    frozen = tmp_path / "sql" / "schema" / sorted(checksums(tmp_path))[0]
    frozen.write_text(frozen.read_text() + "-- edited\n")
    done = lint()
    assert done.returncode != 0
    assert f"{frozen.name}: FAILED" in done.stdout + done.stderr
    assert "put the change into a file of the next release: sql/README.md" in done.stderr


# --- the upgrade -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector_schema", ["public", "extensions"])
@pytest.mark.parametrize("release", servers.releases())
def test_an_upgraded_database_is_like_a_new_one(
    make: Make, target: Target, way: str, release: str, vector_schema: str
) -> None:
    old = make(way, vector_schema=vector_schema, release=release)
    fresh = make(way, vector_schema=vector_schema, release=servers.LATER)
    was = servers.contents(old)
    assert all(
        len(lines) > 1 for name, lines in was.items() if name in ("memories", "judgements", "antonyms")
    )
    signatures, columns = ask(old, SIGNATURES), set(ask(old, COLUMNS))
    # other owners' objects next to ours: they do not change
    run(old, "create function memfold.helper() returns integer return 1")
    run(old, "create view public.report as select * from memfold.memory_audit")

    target.cluster.upgrade(old, way)

    assert ask(old, "select memfold.helper()") == [1]
    version = VERSION[way]
    assert ask(old, version) == ask(fresh, version) == [servers.LATER]
    with servers.package(target.cluster.later):
        assert migrate.drift(old) == ["helper()"]
    run(old, "drop view public.report; drop function memfold.helper()")
    if way == "extension":
        assert ask(old, MEMBERS) == ask(fresh, MEMBERS)
        assert "dumped: memfold.pins " in ask(old, MEMBERS)
    assert sorted(set(catalog(fresh)) - set(catalog(old))) == []
    assert sorted(set(catalog(old)) - set(catalog(fresh))) == []
    assert servers.contents(old, was) == was
    assert ask(old, "select distinct pinned from memfold.memories") == [False]
    assert broken(old) == []
    still_callable(signatures, ask(old, SIGNATURES))
    assert columns - set(ask(old, COLUMNS)) == set()
    # and it still works
    servers.fill_on(old)
    assert broken(old) == []


VERSION = {
    "extension": "select extversion from pg_extension where extname = 'memfold'",
    "alembic": "select version_num::text from memfold_internal.alembic_version",
}

# Public functions: name, arguments with defaults, result; as text that says types without a schema.
SIGNATURES = """
select p.proname::text, array(
        select coalesce(p.proargnames[n], '') || ' ' || t.typname
            || case when n > p.pronargs - p.pronargdefaults then ' default' else '' end
        from generate_series(1, p.pronargs) as n join pg_type as t on t.oid = p.proargtypes[n - 1]
        order by n
    )
from pg_proc as p
where p.pronamespace = 'memfold'::regnamespace and p.proname !~ '^_' and p.proname <> 'helper'
    and not exists (select from pg_depend as d join pg_extension as e on e.oid = d.refobjid
        where d.objid = p.oid and d.deptype = 'e' and e.extname = 'vector')
"""

# Columns of tables, views and results, with their types.
COLUMNS = """
select c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
from pg_class as c join pg_attribute as a on a.attrelid = c.oid
where c.relnamespace = 'memfold'::regnamespace and c.relkind in ('r', 'v', 'c') and a.attnum > 0 and not a.attisdropped
    and (c.relkind <> 'c' or exists (
        select from pg_proc as p where p.prorettype = c.reltype and p.pronamespace = c.relnamespace))
union
select p.proname || '() ' || case when p.proretset then 'setof ' else '' end || format_type(p.prorettype, null)
    || coalesce(' ' || p.proargnames[n] || ' ' || format_type(p.proallargtypes[n], null), '')
from pg_proc as p
left join generate_series(1, 1000) as n on p.proargmodes[n] in ('o', 't')
where p.pronamespace = 'memfold'::regnamespace and p.proname !~ '^_' and p.proname <> 'helper'
"""


def still_callable(before: list[Any], after: list[Any]) -> None:
    """The new version accepts every call by name that the old one accepted: new arguments have defaults."""
    present = dict(after)
    for name, arguments in before:
        assert name in present, f"{name} is gone"
        assert set(arguments) <= set(present[name]), f"{name} lost an argument, or its default"
        added = [one for one in present[name] if one not in arguments]
        assert all(one.endswith(" default") for one in added), f"{name} has a new argument without a default"


def test_what_the_later_release_changes(make: Make, target: Target, way: str) -> None:
    """The later release has a change of each kind, or the tests here would show nothing."""
    old = make(way, release=servers.PRESENT)
    before = set(catalog(old))
    target.cluster.upgrade(old, way)
    gone, new = before - set(catalog(old)), set(catalog(old)) - before

    def kinds(lines: set[str], name: str) -> set[str]:
        return {line.split()[0] for line in lines if re.search(rf"\b{name}\b", line)}

    assert kinds(new, "pinned") >= {"column", "view", "function"}
    assert kinds(new, "pins") >= {"relation", "index", "policy", "comment"}
    for name in ("_record", "pending_embeddings"):
        assert (kinds(gone, rf"memfold(?:_internal)?\.{name}"), kinds(new, rf"memfold(?:_internal)?\.{name}")) == (
            {"function"}, {"function"},
        )  # fmt: skip
        assert ask(old, f"select count(*) from pg_proc where proname = '{name}'") == [1]
    assert kinds(gone, "_guard_limit") >= {"function"}
    assert ask(old, "select to_regproc('memfold_internal._guard_limit')") == [None]
    assert kinds(gone, "replace_shipped") == kinds(new, "replace_shipped") == {"trigger"}
    # of a view, a column came before others
    assert {"content", "pinned", "repetition_count"} <= set(
        ask(
            old,
            "select attname::text from pg_attribute where attrelid = 'memfold.runaway_memories'::regclass",
        )
    )


def test_a_client_works_with_a_later_database(make: Make, way: str) -> None:
    """docs/stability.md: the database is upgraded first."""
    dsn = make(way, release=servers.LATER)
    run(dsn, "select memfold.register_embedding_model('toy', 3, 0.92, 0.85)")
    vectors = {"Alice has a cat.": [0.9, 0.1, 0.4], "Alice owns a cat.": [0.9, 0.1, 0.41]}
    with Memfold(dsn, "acme", Embedder(lambda texts: [vectors[one] for one in texts], "toy")) as client:
        first, second = (client.ingest(text, subject="Alice") for text in vectors)
        assert (first.action, second.action, second.method) == ("inserted", "merged", "vector")
        assert [found.content for found in client.search("Alice has a cat.")] == ["Alice has a cat."]
        again = list(client.ingest_many([{"content": text, "subject": "Alice"} for text in vectors]))
        assert [one.result.method for one in again if one.result] == ["hash", "alias"]
        assert {memory.content for memory in client.undo(second.event_id)} >= {"Alice owns a cat."}
        assert client.get(second.memory_id).repetition_count == 1
        assert client.check_invariants() == []
    question = CliRunner().invoke(cli.main, ["doctor", "--dsn", dsn])
    assert f"{servers.LATER}" in question.output
    assert "newer" in question.output


def test_upgrading_twice_changes_nothing(make: Make, target: Target, way: str) -> None:
    old = make(way, release=servers.PRESENT)
    target.cluster.upgrade(old, way)
    first = catalog(old)
    target.cluster.upgrade(old, way)
    assert catalog(old) == first


@pytest.mark.one_server
def test_a_database_of_a_newer_version_is_refused(make: Make) -> None:
    newer = make("alembic")
    run(newer, "update memfold_internal.alembic_version set version_num = '9999'")
    before = catalog(newer)
    for attempt in (migrate.install, migrate.script):
        with pytest.raises(errors.InstallError, match="newer"):
            attempt(newer)
    assert catalog(newer) == before


@pytest.mark.one_server
def test_a_partial_upgrade_is_refused(make: Make, target: Target) -> None:
    """An old schema with the present functions would be no version at all."""
    config = Config()
    config.set_main_option("script_location", str(target.cluster.later / "migrations"))
    config.attributes["dsn"] = empty = make()
    with pytest.raises(CommandError, match="head"):
        alembic_command.upgrade(config, servers.PRESENT)
    assert ask(empty, "select to_regnamespace('memfold')") == [None]


# --- objects that are not memfold's ------------------------------------------------------------------------------

# What `memfold adopt run` made, by identity, with owner and privileges.
ADOPTED = """
select p.oid::text, pg_get_functiondef(p.oid), p.proowner::regrole::text, p.proacl::text, obj_description(p.oid, 'pg_proc')
from pg_proc as p
where p.pronamespace = 'memfold'::regnamespace and obj_description(p.oid, 'pg_proc') like 'Made by memfold adopt%'
union all
select t.oid::text, t.typname::text, t.typowner::regrole::text, t.typacl::text, obj_description(t.oid, 'pg_type')
from pg_type as t
where t.typnamespace = 'memfold'::regnamespace and obj_description(t.oid, 'pg_type') like 'Made by memfold adopt%'
union all
select t.oid::text, pg_get_triggerdef(t.oid), t.tgenabled::text, null, null from pg_trigger as t
where t.tgrelid = 'app.docs_1'::regclass and not t.tgisinternal
order by 2
"""


def test_what_adopt_made_is_left_alone(stranger: str, make: Make, target: Target, way: str) -> None:
    """By memfold init, no matter how often it is called, and by the upgrade to a later version."""
    adopted = make(way)
    adopt_docs(adopted, stranger)
    was, granted = ask(adopted, ADOPTED), ask(adopted, GRANTED)
    assert [row[2] for row in was].count(stranger) == 5
    assert ("memfold.adopted_hash(text,text)", "EXECUTE") in granted
    still_adopted(adopted, stranger)
    if way == "alembic":
        migrate.install(adopted)
        assert ask(adopted, ADOPTED) == was
        assert ask(adopted, GRANTED) == granted
        assert migrate.drift(adopted) == []
        still_adopted(adopted, stranger)
    target.cluster.upgrade(adopted, way)
    assert ask(adopted, ADOPTED) == was
    assert ask(adopted, GRANTED) == granted
    with servers.package(target.cluster.later):
        assert migrate.drift(adopted) == []
    still_adopted(adopted, stranger)
    if way == "extension":
        members = ask(adopted, MEMBERS)
        assert members
        assert [one for one in members if "docs_1" in one] == []


# --- as someone who is not a superuser ------------------------------------------------------------------------------


@pytest.mark.parametrize("printed", [False, True], ids=["init", "script"])
def test_an_owner_without_superuser_upgrades(
    make: Make, db: psycopg.Connection[Any], target: Target, tmp_path: Path, printed: bool
) -> None:
    """With CREATEROLE, and pgvector where managed servers put it."""
    role = f"owner_{uuid.uuid4().hex[:8]}"
    db.execute(f"create role {role} login createrole".encode())
    admin = make(options=f"owner {role}")
    try:
        run(admin, "create schema extensions; create extension vector schema extensions")
        run(admin, f"grant usage on schema extensions to {role}")
        db.execute(f"grant memfold_owner, memfold_queue to {role}".encode())
        own = make_conninfo(admin, user=role)
        later = target.cluster.later
        servers.load_released(later, own, servers.PRESENT, "alembic", "extensions")
        servers.fill(admin)
        was = servers.contents(admin)
        with servers.package(later):
            if printed:
                psql(target, own, migrate.script(own), tmp_path)
            else:
                target.cluster.upgrade(own, "alembic")
            assert migrate.drift(own) == []
        new = make("alembic", vector_schema="extensions", release=servers.LATER)
        assert sorted(set(catalog(admin)) ^ set(catalog(new))) == []
        assert servers.contents(admin, was) == was
        servers.fill_on(admin)
        assert broken(admin) == []
    finally:
        run(db.info.dsn, f"drop database {conninfo_to_dict(admin)['dbname']} with (force)")
        db.execute(f"drop owned by {role}".encode())
        db.execute(f"drop role {role}".encode())


# --- a script for review -----------------------------------------------------------------------------------------


def psql(target: Target, dsn: str, script: str, place: Path, *, fails: str = "") -> None:
    file = place / f"{uuid.uuid4().hex}.sql"
    file.write_text(script)
    command = [str(target.cluster.bindir / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", dsn, "-f"]
    done = subprocess.run([*command, str(file)], capture_output=True, text=True)
    assert (done.returncode == 0) == (not fails), done.stderr
    assert fails in done.stderr


def test_the_printed_script_does_the_same(make: Make, target: Target, tmp_path: Path) -> None:
    installed, scripted, old = (
        make("alembic", release=servers.LATER),
        make(),
        make("alembic", release=servers.PRESENT),
    )
    with servers.package(target.cluster.later):
        script = migrate.script()
        assert script == migrate.script(scripted)
        psql(target, scripted, script, tmp_path)
        assert catalog(scripted) == catalog(installed)
        assert migrate.drift(scripted) == []

        was = catalog(old)
        psql(target, old, script, tmp_path, fails="this script is for another state of the database")
        assert catalog(old) == was
        upgrade = migrate.script(old)
        assert "create table memfold.memories (" not in upgrade
        psql(target, old, upgrade, tmp_path)
        assert set(catalog(old)) == set(catalog(installed))
        psql(
            target, old, upgrade, tmp_path,
            fails=f"It expects revision {servers.PRESENT}; the database is at {servers.LATER}",
        )  # fmt: skip
        # at head it makes the functions again, as init does
        psql(target, old, migrate.script(old), tmp_path)
        assert set(catalog(old)) == set(catalog(installed))
        assert migrate.install(old) == migrate.install(installed)
    servers.fill_on(old)
    assert broken(old) == []


@pytest.mark.one_server
def test_the_printed_script_needs_no_psql(make: Make) -> None:
    """Plain SQL: any client can run it, and a person can review it."""
    script = migrate.script()
    assert not re.search(r"(?m)^\\", script)
    assert script.startswith("-- memfold ")
    assert "-- sql/schema/01.00.00_21_ledger.sql" in script
    empty = make()
    run(empty, script)
    assert migrate.drift(empty) == []


@pytest.mark.one_server
def test_the_command_line_prints_it(make: Make) -> None:
    alembic = [sys.executable, "-m", "alembic", "upgrade", "head", "--sql"]
    by_alembic = subprocess.run(alembic, cwd=servers.ROOT, capture_output=True, text=True, check=True).stdout
    empty = make()
    for arguments in (["init", "--sql"], ["init", empty, "--sql"]):
        done = CliRunner().invoke(cli.main, arguments)
        assert done.exit_code == 0
        assert done.stdout.split("\n", 2)[2] == by_alembic
    assert ask(empty, "select to_regnamespace('memfold')") == [None], "init --sql installs nothing"
    done = CliRunner().invoke(cli.main, ["init"])
    assert done.exit_code == 2
    assert "memfold init DSN" in done.stderr


@pytest.mark.one_server
def test_plain_alembic_upgrades(make: Make, target: Target) -> None:
    old, later = make("alembic", release=servers.PRESENT), target.cluster.later

    def alembic(*arguments: str) -> str:
        command = [sys.executable, "-m", "alembic", *arguments]
        environment = {**servers.environment(later), "MEMFOLD_DSN": old}
        return subprocess.run(
            command, cwd=later, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert alembic("current") == servers.PRESENT
    alembic("upgrade", "head")
    assert alembic("current") == f"{servers.LATER} (head)"
    with servers.package(later):
        assert migrate.drift(old) == []
    assert sorted(set(catalog(old)) ^ set(catalog(make("alembic", release=servers.LATER)))) == []


def test_a_dropped_extension_can_be_installed_again(make: Make, target: Target) -> None:
    if not target.cluster.extension:
        assert target.way != "extension"
        return
    old = make("extension", release=servers.PRESENT)
    target.cluster.upgrade(old, "extension")
    run(old, "drop extension memfold")
    left = "select count(*) from pg_depend where refobjid = 'memfold'::regnamespace and deptype = 'n'"
    assert ask(old, left) == [0]
    run(old, f"create extension memfold version '{servers.LATER}'")
    assert sorted(set(catalog(old)) ^ set(catalog(make("extension", release=servers.LATER)))) == []


# --- while the database is in use --------------------------------------------------------------------------------


# undefined column and undefined function
BETWEEN_VERSIONS = ("42703", "42883")


class Writers:
    """Clients that ingest without pause, and count their calls.

    A call that is under way when the upgrade commits meets functions of both versions: PostgreSQL keeps none for it. It
    may fail then, whole, and once: see docs/operations.md. Any other error is a problem.
    """

    def __init__(self, dsn: str, count: int) -> None:
        self.dsn, self.stopped = dsn, threading.Event()
        self.calls = 0
        self.problems: list[str] = []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.work, args=(n,)) for n in range(count)]

    def __enter__(self) -> Writers:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join(60)

    def work(self, number: int) -> None:
        calls, crossed = 0, 0
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            while not self.stopped.is_set():
                # every other call is the same text from all: one row, which they queue for
                text = "Everyone says this." if calls % 2 else f"Writer {number} says {calls}."
                try:
                    connection.execute("select memfold.ingest_memory(%s, 'writers')", [text])
                    calls += 1
                    with self.lock:
                        self.calls += 1
                except psycopg.Error as error:
                    crossed += 1
                    if crossed > 1 or error.sqlstate not in BETWEEN_VERSIONS:
                        with self.lock:
                            self.problems.append(f"{error.sqlstate} {error}")
                time.sleep(0.002)


def test_ten_upgrades_while_writers_write_and_a_reader_goes_on(make: Make, target: Target) -> None:
    """An open transaction that has read blocks the upgrades: nobody queues behind them."""
    old = make("alembic", release=servers.PRESENT)
    with psycopg.connect(old) as reader, Writers(old, 2) as writers:
        reader.execute("select count(*) from memfold.memory_events, memfold.dedup_stats")
        processes = servers.install_together(*[old] * 10, tree=target.cluster.later)
        waiting = "select count(*) from pg_stat_activity where application_name = 'memfold' and datname = "
        until(lambda: ask(old, f"{waiting} current_database()") == [10], "all ten are there", pause=0.05)
        before = writers.calls
        until(lambda: writers.calls > before + 200, "writers go on")
        assert processes.poll() is None
        assert ask(old, "select version_num from memfold_internal.alembic_version") == [servers.PRESENT]
        reader.rollback()
        out, err = processes.communicate(timeout=300)
    assert ask(old, "select version_num from memfold_internal.alembic_version") == [servers.LATER]
    assert (out.split(), processes.returncode) == ([servers.LATER] * 10, 0), err
    assert writers.problems == []
    counted = "select sum(observations) from memfold.memory_totals"
    assert ask(old, f"{counted} where tenant_id = 'writers'") == [writers.calls]
    assert ask(old, "select count(*) from memfold.memory_events where tenant_id = 'writers'") == [
        writers.calls
    ]
    assert ask(old, "select invariant from memfold.check_invariants('writers')") == []
    assert broken(old) == []


def test_alter_extension_gives_way_too(make: Make, target: Target) -> None:
    if not target.cluster.extension:
        assert target.way != "extension"
        return
    old = make("extension", release=servers.PRESENT)
    before = catalog(old)
    with psycopg.connect(old) as reader, Writers(old, 2) as writers:
        reader.execute("select count(*) from memfold.memories")
        for _ in range(2):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                target.cluster.upgrade(old, "extension")
        assert catalog(old) == before
        reader.rollback()
        for _ in range(20):  # between writers' locks
            try:
                target.cluster.upgrade(old, "extension")
                break
            except psycopg.errors.LockNotAvailable:
                time.sleep(0.2)
        time.sleep(0.3)
    assert ask(old, VERSION["extension"]) == [servers.LATER]
    assert writers.problems == []
    assert ask(old, "select invariant from memfold.check_invariants('writers')") == []
    assert ask(old, "show lock_timeout") == ["0"]


@pytest.mark.one_server
def test_an_upgrade_that_gives_up_says_who_is_in_the_way(make: Make, target: Target) -> None:
    old, later = make("alembic", release=servers.PRESENT), target.cluster.later
    before = catalog(old)
    with psycopg.connect(old, application_name="nightly report") as reader:
        reader.execute("select count(*) from memfold.memories")
        done = subprocess.run(
            [sys.executable, "-m", "memfold", "init", old],
            env={**servers.environment(later), "MEMFOLD_LOCK_PATIENCE": "0.1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert f"process {reader.info.backend_pid} (postgres, nightly report)" in done.stderr
        assert "Nothing was changed" in done.stderr
        assert catalog(old) == before
    target.cluster.upgrade(old, "alembic")
    assert ask(old, VERSION["alembic"]) == [servers.LATER]


@pytest.mark.parametrize(
    "built",
    ["select memfold_internal._guard_limit() as longest", "select memory_id from memfold.runaway_memories"],
    ids=["function", "view"],
)
def test_objects_built_on_dropped_ones_are_named(make: Make, target: Target, way: str, built: str) -> None:
    """The upgrade does not drop it: it fails as a whole, and names the object in the way."""
    old = make(way, release=servers.PRESENT)
    run(old, f"create view public.mine as {built}")
    before = catalog(old)
    with pytest.raises((psycopg.Error, errors.MemfoldError), match="mine"):
        target.cluster.upgrade(old, way)
    assert catalog(old) == before
    run(old, "drop view public.mine")
    target.cluster.upgrade(old, way)
    assert ask(old, VERSION[way]) == [servers.LATER]
