"""The servers that the suite runs on: a throw-away cluster each, with memfold by one of its installation methods."""

from __future__ import annotations

import atexit
import functools
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import psycopg

from memfold.tools.admin import host, migrate
from tests.support import leftovers
from tests.support.shared_files import InUseError, SharedFiles

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import find_full_server  # noqa: E402

SUPERUSER = "postgres"
PORT = 5432

# Only test_crash needs durability; elsewhere it costs time.
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "shared_buffers": "128MB",
    "max_connections": "120",
    "deadlock_timeout": "200ms",
    "log_min_messages": "error",
    # It would be a session in a test's database, and write statistics there.
    "autovacuum_naptime": "1d",
}


def place() -> Path:
    """The place for directories of servers: in memory if there is space, because each database has 330 files."""
    shared, enough = Path("/dev/shm"), 6 << 30
    unused = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    roomy = os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > enough and unused > enough
    return shared if roomy else Path("/tmp")


@functools.cache
def run_directory() -> Path:
    """The directory of all processes of this run, removed at its end (leftovers.py)."""
    if STARTED not in os.environ:
        run = Path(tempfile.mkdtemp(prefix="mf-", dir=place()))
        run.chmod(0o755)
        leftovers.watch(run)
    return Path(os.environ[leftovers.RUN])


def directory(prefix: str = "mf-", *, on_disk: bool = False) -> Path:
    """A new directory for a server; in memory where there is space, if it need not be on disk."""
    run = run_directory()
    if on_disk:
        return Path(tempfile.mkdtemp(prefix=f"{run.name}.{prefix}"))
    return Path(tempfile.mkdtemp(prefix=prefix, dir=run))


@dataclass
class Cluster:
    """One throw-away server: its programs, its directory, whether CREATE EXTENSION memfold works on it."""

    name: str
    bindir: Path
    base: Path = field(default_factory=directory)
    account: host.Account = field(default_factory=host.Account.choose)
    extension: bool = False
    why_no_extension: str = ""
    why_no_python: str = ""
    templates: set[str] = field(default_factory=set)
    shared: SharedFiles | None = None

    @functools.cached_property
    def major(self) -> int:
        done = subprocess.run([self.bindir / "postgres", "-V"], capture_output=True, text=True, check=True)
        return int(re.search(r"\d+", done.stdout).group())  # type: ignore[union-attr]

    def run(self, *args: str | Path) -> str:
        code, printed = self.account.run(args)
        if code != 0:
            raise RuntimeError(f"{args[0]} failed: {printed}")
        return printed

    def start(self, *, extension: bool = True, **more: str) -> None:
        self.base.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(self.base, self.account.uid, self.account.gid)
        self.run(
            self.bindir / "initdb", "-D", self.base / "data", "-U", SUPERUSER, "-A", "trust",
            "-E", "UTF8", "--locale=C.UTF-8", "--no-sync",
        )  # fmt: skip
        settings = {**SETTINGS, "unix_socket_directories": str(self.base), "port": str(PORT), **more}
        environment = {}
        if extension:
            environment = self._install_python() if self.name == "full" else {}
            settings.update(self._install_extension())
        with (self.base / "data" / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{key} = '{value}'\n" for key, value in settings.items())
        self.run(
            "/usr/bin/env", *(f"{name}={value}" for name, value in environment.items()),
            self.bindir / "pg_ctl", "-D", self.base / "data", "-l", self.base / "log", "-w", "start",
        )  # fmt: skip

    @property
    def models(self) -> Path:
        """The directory in which a server with memfold_py looks for embedding models."""
        return self.base / "models"

    @property
    def later(self) -> Path:
        """The work tree of the release after the present one (``make_later``)."""
        return self.base / "later"

    def upgrade(self, dsn: str, way: str) -> None:
        """Upgrade a database to the later release, by its installation method."""
        if way == "extension":
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(f"alter extension memfold update to '{LATER}'".encode())
        else:
            with package(self.later):
                migrate.install(dsn)

    def _install_python(self) -> dict[str, str]:
        """Install the extension memfold_py and its requirements; returns the variables for the postmaster's
        environment."""
        done = subprocess.run(
            ["bash", ROOT / "tools" / "server_python.sh"],
            env=os.environ | {"PYTHON": sys.executable}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        try:
            if done.returncode != 0:
                raise RuntimeError(done.stderr.strip()[-300:])
            make("-C", "plpython", "install", f"SHAREDIR={self.base / 'share'}")
        except RuntimeError as error:
            self.why_no_python = str(error)
            return {}
        # this work tree's package, if the server's account can read it
        package = self.base / "python"
        shutil.copytree(ROOT / "plpython" / "memfold_py", package / "memfold_py")
        self.models.mkdir()
        for path in (package, *package.rglob("*")):
            path.chmod(0o755)
        return {
            "PYTHONPATH": f"{package}:{done.stdout.strip()}",
            "MEMFOLD_MODELS": str(self.models),
            "MEMFOLD_MODEL_SESSIONS": "2",
        }

    def _install_extension(self) -> dict[str, str]:
        """Into a directory of our own, where the server can look there (18+); else into its own, until the run is over."""
        own = self.base / "share"
        make("install-to", f"DIR={own}")
        make_later(self.later)
        make("install-to", f"DIR={self.later / 'share'}", tree=self.later)
        for script in (self.later / "share" / "extension").glob("*.sql"):
            shutil.copy(script, own / "extension")
        released_scripts(self.later, own / "extension")
        if self.major >= 18:
            self.extension = True
            return {"extension_control_path": f"{own}:$system"}
        directory = Path(self.run(self.bindir / "pg_config", "--sharedir").strip()) / "extension"
        try:
            self.shared = SharedFiles(directory)
            atexit.register(self.shared.take_back)
            self.shared.put(own / "extension")
            self.extension = True
        except InUseError as error:
            self.why_no_extension = self.why_no_python = str(error)
        except OSError as error:
            self.why_no_extension = self.why_no_python = (
                f"only the owner of {directory} may write there: {error}"
            )
        return {}

    def stop(self) -> None:
        self.account.run([self.bindir / "pg_ctl", "-D", self.base / "data", "-m", "immediate", "stop"])
        shutil.rmtree(self.base, ignore_errors=True)
        if self.shared is not None:
            self.shared.take_back()

    def kill(self) -> None:
        """Kill all its processes with SIGKILL, as in a machine crash."""
        data = self.base / "data"
        # Suspended first: a session that learns that the postmaster has gone ends by itself, and what it holds is free.
        postmaster = psutil.Process(int((data / "postmaster.pid").read_text().split()[0]))
        postmaster.suspend()
        processes = [*postmaster.children(), postmaster]
        pids = [process.pid for process in processes]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        deadline = time.monotonic() + 30
        while any(_lives(pid) for pid in pids):
            if time.monotonic() > deadline:
                raise RuntimeError("processes outlive kill -9")
            time.sleep(0.02)
        # zombies keep their process ids until they are reaped
        for lock in (data / "postmaster.pid", self.base / f".s.PGSQL.{PORT}.lock"):
            lock.unlink(missing_ok=True)

    def restart(self) -> None:
        self.run(self.bindir / "pg_ctl", "-D", self.base / "data", "-l", self.base / "log", "-w", "start")

    def dsn(self, dbname: str = "postgres", user: str = SUPERUSER) -> str:
        return f"host={self.base} port={PORT} user={user} dbname={dbname}"

    def template(self, way: str, vector_schema: str = "public", release: str = "") -> str:
        """A database to copy: the present version, the later one, or a release with what ``fill`` writes."""
        process = os.environ.get("PYTEST_XDIST_WORKER", "")
        name = f"made_{way}_{vector_schema}_{release.replace('.', '_')}_{process}"
        if name in self.templates:
            return name
        with self.turn() as connection:
            connection.execute(f"create database {name} template template0 encoding 'UTF8'".encode())
            dsn = self.dsn(name)
            with psycopg.connect(dsn) as connection:
                connection.execute(f"create schema if not exists {vector_schema}".encode())
            if release == LATER:
                with package(self.later):
                    load_present(dsn, way, vector_schema, f" version '{LATER}'")
            elif release:
                load_released(self.later, dsn, release, way, vector_schema)
                fill(dsn)
            else:
                load_present(dsn, way, vector_schema)
        self.templates.add(name)
        return name

    @contextmanager
    def turn(self) -> Iterator[psycopg.Connection[Any]]:
        """One process of the run at a time: databases of one server share memfold's roles."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute("select pg_advisory_lock(1)")
            yield connection


def _lives(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def make(*args: str, tree: Path = ROOT) -> None:
    """Make goals in a work tree."""
    done = subprocess.run(["make", "-s", *args], cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)


# --- releases that are out, and one that is to come ---------------------------------------------------------------
#
# The schema files of releases are in sql/schema/, where they never change again. What else they were made of, the functions
# of then and the tail of the extension's script, is kept in tests/data/released/ (``make freeze``), so that a clone without
# history can install them: as an extension, and as memfold init did.
#
# Upgrades are tested to a release that is made up, from each of those and from the present version, as if that were out.

PRESENT = re.search(r"default_version = '(.*)'", (ROOT / "memfold.control").read_text())[1]  # type: ignore[index]
LATER = re.sub(r"\.(\d+)\..*", lambda found: f".{int(found[1]) + 1}.0", PRESENT)
RELEASED = ROOT / "tests" / "data" / "released"


def releases() -> list[str]:
    """Those that upgrades are tested from, oldest first."""
    frozen = RELEASED.glob("*.sql.gz")
    return sorted({path.name.removesuffix(".sql.gz") for path in frozen} | {PRESENT}, key=prefix)


def prefix(release: str) -> str:
    """The beginning of the names of its schema files: 01.00.00 for 1.0.0."""
    return ".".join(f"{int(part):02}" for part in release.split("."))


# Changes of functions, views and triggers in the later release: file under sql/functions/, the old text, the new one.
LATER_FUNCTIONS = [
    # a function of the way of every write has one more argument
    ("21_ledger/_record.sql", "p_observation boolean, p_judgement_id uuid\n)",
     "p_observation boolean, p_judgement_id uuid, pinned boolean default false\n)"),
    # and so has a public one
    ("31_ingest/pending_embeddings.sql", "max_results bigint default 100\n",
     "max_results bigint default 100,\n    newest_first boolean default false\n"),
    ("31_ingest/pending_embeddings.sql", "order by m.memory_id\n",
     "order by case when newest_first then m.memory_id end desc, m.memory_id\n"),
    # a function is gone
    ("22_guard/_guard.sql", """create or replace function memfold_internal._guard_limit() returns integer
language sql immutable parallel safe
return 8192;
""", ""),
    ("22_guard/_guard.sql", "memfold_internal._guard_limit();", "8192;"),
    ("22_guard/_says_more.sql", "memfold_internal._guard_limit();", "8192;"),
    # a view has another column, not at its end
    ("51_reports/views.sql", "    k.observations - 1 as repetition_count,\n",
     "    m.pinned,\n    k.observations - 1 as repetition_count,\n"),
    # a trigger has another condition, and there is a new function and a table
    ("90_install/2_triggers.sql", "(new.tenant_id = '*') execute function memfold_internal._replace_antonym()",
     "(new.tenant_id = '*' and new.word <> '') execute function memfold_internal._replace_antonym()"),
    ("90_install/1_privileges.sql", "memfold.calibration_changes, memfold.tenant_roles,",
     "memfold.pins, memfold.calibration_changes, memfold.tenant_roles,"),
]  # fmt: skip
LATER_FUNCTION = """\
-- Whether maintenance leaves the memory alone.
create or replace function memfold_internal._is_pinned(m memfold.memories) returns boolean
language sql immutable parallel safe
return m.pinned;
"""
# And of tables. It drops objects in the way, and obsolete ones, by name and without CASCADE.
LATER_SCHEMA = """\
-- All writers begin with these tables: who holds them first meets none of them half-way, which would be a deadlock.
lock table memfold.tenant_roles, memfold.policies, memfold.memories in access exclusive mode;

-- PostgreSQL adds no column with a default to a table whose row type a parsed body uses: made again with the functions.
-- squawk-ignore ban-drop-function
drop function if exists memfold_internal._is_same_value(memfold.memories, memfold.memories);
alter table memfold.memories add column pinned boolean not null default false;
comment on column memfold.memories.pinned is 'Maintenance leaves it alone.';

create table memfold.pins (
    tenant_id text collate "C" not null,
    memory_id uuid not null,
    primary key (tenant_id, memory_id)
);
comment on table memfold.pins is 'Who pinned what.';
alter table memfold.pins enable row level security;
alter table memfold.pins force row level security;
create policy tenant_isolation on memfold.pins to memfold_owner
using (tenant_id = pg_catalog.current_setting('memfold.tenant_id', true));
create policy tenant_read on memfold.pins for select to memfold_app, memfold_agent
using (tenant_id = memfold_internal._tenant());
create policy audit_read on memfold.pins for select to memfold_auditor using (true);

-- They have one more argument, or are not needed any more.
-- squawk-ignore ban-drop-function
drop function if exists memfold_internal._record(memfold_internal.candidate, memfold_internal.decision, uuid, boolean, uuid);
-- squawk-ignore ban-drop-function
drop function if exists memfold.pending_embeddings(text, text, bigint);
-- squawk-ignore ban-drop-function
drop function if exists memfold_internal._guard_limit();
-- It has a column before others: made again.
-- squawk-ignore ban-drop-view
drop view if exists memfold.runaway_memories;
drop trigger if exists replace_shipped on memfold.antonyms;
"""

LATER_REVISION = f"""\
from alembic import context

revision, down_revision = "{LATER}", "{PRESENT}"


def upgrade() -> None:
    context.config.attributes["apply"]("{prefix(LATER)}")
"""


def make_later(tree: Path) -> None:
    """Make a work tree in which the present version is out, and the next one has changed something of everything."""
    for name in ("sql", "contrib", "migrations", "python_client", "tools", "tests/data/released"):
        if (ROOT / name).exists():
            shutil.copytree(
                ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
    for name in ("Makefile", "memfold.control", "alembic.ini", ".sqlfluff", ".sqlfluffignore"):
        shutil.copy(ROOT / name, tree / name)
    if not (tree / "tests" / "data" / "released" / f"{PRESENT}.sql.gz").exists():
        make("freeze", tree=tree)
    for name, was, will in (
        ("memfold.control", f"'{PRESENT}'", f"'{LATER}'"),
        ("python_client/memfold/client/_version.py", f'"{PRESENT}"', f'"{LATER}"'),
        ("sql/extension/tail.sql", "select pg_catalog.pg_extension_config_dump('memfold.runs', '');\n",
         "select pg_catalog.pg_extension_config_dump('memfold.runs', '');\n"
         "select pg_catalog.pg_extension_config_dump('memfold.pins', '');\n"),
        *((f"sql/functions/{name}", was, will) for name, was, will in LATER_FUNCTIONS),
    ):  # fmt: skip
        text = (tree / name).read_text()
        assert was in text, f"{name} does not say: {was}"
        (tree / name).write_text(text.replace(was, will))
    (tree / "sql" / "functions" / "60_maintenance" / "_is_pinned.sql").write_text(LATER_FUNCTION)
    (tree / "sql" / "schema" / f"{prefix(LATER)}_21_ledger.sql").write_text(LATER_SCHEMA)
    revision = tree / "migrations" / "versions" / f"{prefix(LATER).replace('.', '_')}.py"
    revision.write_text(LATER_REVISION)


@contextmanager
def package(tree: Path) -> Iterator[None]:
    """The package of another work tree, as far as it installs memfold and says which version it is."""
    found = tree / "python_client" / "memfold"
    version = re.search(r'__version__ = "(.*)"', (found / "client" / "_version.py").read_text())[1]  # type: ignore[index]
    with mock.patch.object(migrate, "_PACKAGE", found), mock.patch.object(migrate, "__version__", version):
        yield


def environment(tree: Path) -> dict[str, str]:
    """For a separate process that uses that package."""
    others = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": f"{tree / 'python_client'}{os.pathsep}{others}"}


def released_schema(tree: Path, release: str) -> str:
    """The schema files of a release and of those before it."""
    paths = sorted((tree / "sql" / "schema").glob("*.sql"), key=lambda path: path.name.encode())
    return "".join(path.read_text() for path in paths if path.name[:8] <= prefix(release))


def released_functions(tree: Path, release: str, *, tail: bool = False) -> str:
    """The functions of a release that is out, as SQL."""
    text = gzip.decompress((tree / "tests" / "data" / "released" / f"{release}.sql.gz").read_bytes()).decode()
    # the tail is for CREATE EXTENSION alone
    return text if tail else re.sub(r"(?ms)^select pg_catalog\.pg_extension_config_dump\(.*", "", text)


def released_scripts(tree: Path, directory: Path) -> None:
    """Write the extension scripts of the releases, for CREATE EXTENSION memfold VERSION '1.0.0'."""
    for release in releases():
        if release != PRESENT:
            head = (tree / "sql" / "extension" / "head.sql").read_text()
            script = head + released_schema(tree, release) + released_functions(tree, release, tail=True)
            (directory / f"memfold--{release}.sql").write_text(script)


def load_released(tree: Path, dsn: str, release: str, way: str, vector_schema: str = "public") -> None:
    """Install a release as it was installed when it came out."""
    with psycopg.connect(dsn) as connection:
        connection.execute(f"create extension if not exists vector schema {vector_schema}".encode())
        if way == "extension":
            connection.execute(f"create extension memfold version '{release}'".encode())
            return
        connection.execute("create schema memfold; create schema memfold_internal")
        connection.execute(
            f"set local search_path = memfold, memfold_internal, {vector_schema}, pg_temp".encode()
        )
        connection.execute(released_schema(tree, release).encode())
        connection.execute(released_functions(tree, release).encode())
        connection.execute(
            b"create table memfold_internal.alembic_version (version_num varchar(32) not null,"
            b" constraint alembic_version_pkc primary key (version_num))"
        )
        # a revision is called like its release
        connection.execute("insert into memfold_internal.alembic_version values (%s)", [release])


def load_present(dsn: str, way: str, vector_schema: str = "public", version: str = "") -> None:
    """Install the current version, with pgvector in that schema."""
    with psycopg.connect(dsn) as connection:
        connection.execute(f"create extension if not exists vector schema {vector_schema}".encode())
        if way == "extension":
            connection.execute(f"create extension memfold{version}".encode())
    if way != "extension":
        migrate.install(dsn)


TOGETHER = """
import os, sys, traceback
from memfold.tools.admin import migrate
migrate.script()  # imports what install() will
children = []
for dsn in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        try:
            print(migrate.install(dsn), flush=True)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def install_together(*dsns: str, tree: Path = ROOT) -> subprocess.Popen[str]:
    """Several processes install memfold concurrently; each prints the revision it finds, or its error."""
    command = [sys.executable, "-c", TOGETHER, *dsns]
    return subprocess.Popen(
        command, env=environment(tree), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


BEFORE = "before"
"""The tenant of ``fill``."""


def fill(dsn: str) -> None:
    """Write some of everything that must survive an upgrade or a dump, with functions that every release has."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set search_path = memfold, public, extensions")

        def ingest(content: str, **arguments: Any) -> None:
            arguments = {"content": content, "tenant_id": BEFORE, **arguments}
            names = ", ".join(f"{name} => %({name})s" for name in arguments)
            connection.execute(f"select memfold.ingest_memory({names})".encode(), arguments)

        connection.execute("select memfold.register_embedding_model('before', 3, 0.92, 0.85)")
        connection.execute("select memfold.set_policy(%s, 'code', canonicalizer => 'code')", [BEFORE])
        connection.execute(
            "select memfold.set_policy(%s, 'default', weights => '{0.6,0.3,0.1}', metadata_keys => '{kind}')",
            [BEFORE],
        )
        connection.execute(
            "select memfold.set_predicate('lives_in', %s), memfold.link_subject('Anna', 'Ann', %s)",
            [BEFORE, BEFORE],
        )
        connection.execute("insert into memfold.antonyms values (%s, 'vim', 'emacs', 'en')", [BEFORE])
        connection.execute("insert into memfold.tenant_roles values ('agent_before', %s)", [BEFORE])
        vector = {"embedding_model": "before", "subject": "Alice"}
        # a memory with repetitions, an alias, a judgement that the guard asked for, a copy of code, a timeline A-B-A
        ingest("Alice has a cat.", **vector, embedding="[0.9,0.1,0.4]", source_turn_ids=["t1"])
        ingest("alice has a CAT", **vector, source_turn_ids=["t2"], idempotency_key="k1")
        ingest("Alice owns a cat.", **vector, embedding="[0.88,0.12,0.41]", source_turn_ids=["t3"])
        ingest(
            "Alice has no cat.", **vector, embedding="[0.90,0.11,0.40]", metadata='{"kind": "pet", "n": 1}'
        )
        ingest("x = 1", bucket_id="code")
        ingest("X = 1", bucket_id="code")
        for day, town in enumerate(["Rome", "Oslo", "Rome", "Bern"], start=1):
            ingest(
                f"Alice lives in {town}.",
                subject="Alice",
                predicate="lives_in",
                object=town,
                observed_at=f"2025-01-{day:02} 12:00:00+00",
            )
        ingest(
            "Alice lives in Kyiv.",
            subject="Alice",
            predicate="lives_in",
            object="Kyiv",
            observed_at="2025-01-02 18:00:00+00",
        )
        ingest("Bob rows.", origin="recalled")
        ingest("Bob runs.", origin="inferred", session_id="s1", memory_type="event")


def fill_on(dsn: str) -> None:
    """Go on after ``fill``, as if nothing had happened in between: each answer is what that state demands."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set search_path = memfold, public, extensions")

        def ingest(content: str, arguments: str = "") -> tuple[Any, ...]:
            row = connection.execute(
                f"select action, tier, method from memfold.ingest_memory(%s, %s {arguments})".encode(),
                [content, BEFORE],
            ).fetchone()
            assert row is not None
            return row

        alice = ", subject => 'Alice'"
        vector = ", embedding_model => 'before', embedding => "
        cases = [
            ("Alice has a cat!", alice + """, metadata => '{"n": 2}'""", ("merged", 1, "hash")),
            ("alice owns a cat", alice, ("merged", 1, "alias")),
            ("Alice keeps a cat.", alice + vector + "'[0.89,0.1,0.4]'", ("merged", 2, "vector")),
            ("X = 1", ", bucket_id => 'code'", ("merged", 1, "hash")),
            ("x = 1", ", bucket_id => 'code'", ("merged", 1, "hash")),
            (
                "Alice lives in Oslo.",
                alice + ", predicate => 'lives_in', object => 'Oslo'",
                ("superseded", 1, "timeline"),
            ),
        ]
        for content, arguments, expected in cases:
            assert ingest(content, arguments) == expected, content
        again = connection.execute(
            "select action, event_id from memfold.ingest_memory('alice has a CAT', %s, subject => 'Alice',"
            " embedding_model => 'before', idempotency_key => 'k1')",
            [BEFORE],
        ).fetchone()
        first = connection.execute(
            "select event_id from memfold.idempotency_keys where tenant_id = %s and idempotency_key = 'k1'",
            [BEFORE],
        ).fetchone()
        assert again is not None
        assert first is not None
        assert again == ("merged", first[0])


CONTENTS = """
select c.relname::text, (
    select array_agg(a.attname::text order by a.attname::text) from pg_attribute as a
    where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
)
from pg_class as c
where c.relnamespace = 'memfold'::regnamespace and c.relkind = 'r' and c.relname <> 'alembic_version'
order by 1
"""


def contents(dsn: str, like: dict[str, list[str]] | None = None) -> dict[str, list[str]]:
    """Every row of every table, as text in order; of the tables and columns of ``like``, if it is given.

    The first line of each table is its columns.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set search_path = pg_catalog, memfold")
        tables = {str(name): list(columns) for name, columns in connection.execute(CONTENTS.encode())}
        if like is not None:
            tables = {name: lines[0].split(",") for name, lines in like.items()}
        found = {}
        for name, columns in tables.items():
            row = ", ".join(f'r."{column}"::text' for column in columns)
            query = f"select concat_ws('|', {row}) from memfold.{name} as r order by 1"
            found[name] = [",".join(columns), *(str(one[0]) for one in connection.execute(query.encode()))]
        return found


STARTED = "MEMFOLD_TEST_SERVERS"
"""The environment variable by which the processes of one run share its servers."""


def describe(clusters: list[Cluster]) -> str:
    """What other processes need in order to use these servers."""
    return json.dumps(
        [
            [c.name, str(c.bindir), str(c.base), c.extension, c.why_no_extension, c.why_no_python]
            for c in clusters
        ]
    )


def pgbouncer() -> Path | None:
    """The pooler's program, where it is installed (tools/full_server.sh installs it where root and apt can)."""
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return Path(found) if found else None


@functools.cache
def prometheus() -> tuple[str, str] | None:
    """Prometheus and its exporter for PostgreSQL, where both are installed (as pgbouncer)."""
    found = [shutil.which(name) for name in ("prometheus", "prometheus-postgres-exporter")]
    return (found[0], found[1]) if found[0] and found[1] else None


def available() -> tuple[list[Cluster], list[str]]:
    """Clusters that can be had here, not yet started, and what is left out with the reason."""
    if STARTED in os.environ:
        return [
            Cluster(
                name,
                Path(bindir),
                Path(base),
                extension=extension,
                why_no_extension=why,
                why_no_python=why_no_python,
            )
            for name, bindir, base, extension, why, why_no_python in json.loads(os.environ[STARTED])
        ], []
    account = host.Account.choose()
    embedded = host.bindir()
    if os.geteuid() == 0 and not account.can_enter(embedded):
        embedded = host.readable_copy(embedded)
    clusters = [Cluster("embedded", embedded)]
    left_out = []
    full, why = find_full_server.find()
    if full is None:
        left_out.append(f"full server (PL/Python, pgvector): {why}")
    else:
        clusters.append(Cluster("full", full))
    return clusters, left_out


def load_alembic(**where: Any) -> None:
    """Install memfold in a database, by its migrations."""
    migrate.install(_dsn(where))


def load_extension(**where: Any) -> None:
    """Install memfold in a database, by CREATE EXTENSION."""
    with psycopg.connect(_dsn(where), autocommit=True) as connection:
        connection.execute("create extension memfold cascade")


def _dsn(where: dict[str, Any]) -> str:
    return f"host={where['host']} port={where['port']} user={where['user']} dbname={where['dbname']}"
