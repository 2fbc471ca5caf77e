"""The servers that the suite runs on: a throw-away cluster each, with memfold by one of its ways in."""

from __future__ import annotations

import atexit
import functools
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from memfold.admin import host, migrate
from tests.shared_files import InUseError, SharedFiles

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import find_full_server  # noqa: E402

SUPERUSER = "postgres"
PORT = 5432

# Durability is what test_crash asks for; elsewhere it only costs time.
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "shared_buffers": "128MB",
    "max_connections": "120",
    "deadlock_timeout": "200ms",
    "log_min_messages": "error",
}


def place() -> Path:
    """Where directories of servers are: in memory where there is room, for each test makes and drops 330 files."""
    shared, enough = Path("/dev/shm"), 6 << 30
    unused = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    roomy = os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > enough and unused > enough
    return shared if roomy else Path("/tmp")


def directory(prefix: str = "mf-") -> Path:
    return Path(tempfile.mkdtemp(prefix=prefix, dir=place()))


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
        """Where the server looks for embedding models, with memfold_py."""
        return self.base / "models"

    def _install_python(self) -> dict[str, str]:
        """The extension memfold_py and what it asks for; gives what the postmaster's environment has to say."""
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
        # this work tree's, where the server's account can read it
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
        released_scripts(own / "extension")
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
        """All of it at once, by -9, as when a machine goes."""
        data = self.base / "data"
        with psycopg.connect(self.dsn(), autocommit=True) as db:
            own = db.info.backend_pid
            pids = [pid for (pid,) in db.execute("select pid from pg_stat_activity") if pid != own]
        pids.insert(0, int((data / "postmaster.pid").read_text().split()[0]))
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while any(_lives(pid) for pid in pids):
            if time.monotonic() > deadline:
                raise RuntimeError("processes outlive kill -9")
            time.sleep(0.02)
        # where nobody takes notice of the dead, their process ids stay taken
        for lock in (data / "postmaster.pid", self.base / f".s.PGSQL.{PORT}.lock"):
            lock.unlink(missing_ok=True)

    def restart(self) -> None:
        self.run(self.bindir / "pg_ctl", "-D", self.base / "data", "-l", self.base / "log", "-w", "start")

    def dsn(self, dbname: str = "postgres", user: str = SUPERUSER) -> str:
        return f"host={self.base} port={PORT} user={user} dbname={dbname}"

    def template(self, way: str, vector_schema: str = "public", release: str = "") -> str:
        """A database to copy: the present version, or a release with what ``fill`` writes."""
        process = os.environ.get("PYTEST_XDIST_WORKER", "")
        name = f"made_{way}_{vector_schema}_{release.replace('.', '_')}_{process}"
        if name in self.templates:
            return name
        with self.turn() as connection:
            connection.execute(f"create database {name} template template0 encoding 'UTF8'".encode())
            dsn = self.dsn(name)
            with psycopg.connect(dsn) as connection:
                connection.execute(f"create schema if not exists {vector_schema}".encode())
            if release:
                load_released(dsn, release, way, vector_schema)
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


def make(*args: str) -> None:
    done = subprocess.run(["make", "-s", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)


# --- releases that are out ---------------------------------------------------------------------------------------
#
# Their schema files are in sql/schema/, where they never change again. What else they were made of, the functions of
# then and the tail of the extension's script, is kept in tests/data/released/, so that a clone without history can
# install them: as an extension, and as memfold init did.

RELEASED = ROOT / "tests" / "data" / "released"
REVISIONS = {"0.1.0": "0001"}
PRESENT = re.search(r"default_version = '(.*)'", (ROOT / "memfold.control").read_text())[1]  # type: ignore[index]


def releases() -> list[str]:
    return sorted(path.name.removesuffix(".sql.gz") for path in RELEASED.glob("*.sql.gz"))


def prefix(release: str) -> str:
    """What the names of its schema files begin with: 00.01.00 of 0.1.0."""
    return ".".join(f"{int(part):02}" for part in release.split("."))


def released_schema(release: str) -> str:
    """The schema files of a release and of those before it."""
    paths = sorted((ROOT / "sql" / "schema").glob("*.sql"), key=lambda path: path.name.encode())
    return "".join(path.read_text() for path in paths if path.name[:8] <= prefix(release))


def released_functions(release: str, *, tail: bool = False) -> str:
    text = gzip.decompress((RELEASED / f"{release}.sql.gz").read_bytes()).decode()
    # the tail is for CREATE EXTENSION alone
    return text if tail else re.sub(r"(?ms)^select pg_catalog\.pg_extension_config_dump\(.*", "", text)


def released_scripts(directory: Path) -> None:
    """Write the extension scripts of the releases, for CREATE EXTENSION memfold VERSION '0.1.0'."""
    for release in releases():
        script = released_schema(release) + released_functions(release, tail=True)
        (directory / f"memfold--{release}.sql").write_text(script)
    # as the update from the present version to a later one will be
    sql = ROOT / "sql"
    functions = sorted((sql / "functions").rglob("*.sql"), key=lambda path: path.as_posix().encode())
    paths = [sql / "extension" / "update_head.sql", *functions, sql / "extension" / "tail.sql"]
    later = "".join(path.read_text() for path in paths)
    (directory / f"memfold--{PRESENT}--later.sql").write_text(later)


def load_released(dsn: str, release: str, way: str, vector_schema: str = "public") -> None:
    """Install a release as it was installed when it came out."""
    with psycopg.connect(dsn) as connection:
        connection.execute(f"create extension if not exists vector schema {vector_schema}".encode())
        if way == "extension":
            connection.execute(f"create extension memfold version '{release}'".encode())
            return
        connection.execute("create schema memfold")
        connection.execute(f"set local search_path = memfold, {vector_schema}, pg_temp".encode())
        connection.execute(released_schema(release).encode())
        connection.execute(released_functions(release).encode())
        connection.execute(
            b"create table memfold.alembic_version (version_num varchar(32) not null,"
            b" constraint alembic_version_pkc primary key (version_num))"
        )
        connection.execute("insert into memfold.alembic_version values (%s)", [REVISIONS[release]])


def load_present(dsn: str, way: str, vector_schema: str = "public") -> None:
    """Install the present version, beside pgvector in that schema."""
    with psycopg.connect(dsn) as connection:
        connection.execute(f"create extension if not exists vector schema {vector_schema}".encode())
        if way == "extension":
            connection.execute("create extension memfold")
    if way != "extension":
        migrate.install(dsn)


TOGETHER = """
import os, sys, traceback
from memfold.admin import migrate
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


def install_together(*dsns: str) -> subprocess.Popen[str]:
    """A process each installs memfold, all at once; each prints the revision it finds, or what went wrong."""
    command = [sys.executable, "-c", TOGETHER, *dsns]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def upgrade(dsn: str, way: str, *, later: bool = False) -> None:
    """Bring a database up to date, as its way of installation has it; later: a database that is so already."""
    if way == "extension":
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("alter extension memfold update" + (" to 'later'" if later else ""))
    else:
        migrate.install(dsn)


BEFORE = "before"
"""The tenant of ``fill``."""


def fill(dsn: str) -> None:
    """Write some of everything, by functions that every release has: for what has to survive an upgrade or a dump."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set search_path = memfold, public, extensions")

        def ingest(content: str, **arguments: Any) -> None:
            arguments = {"content": content, "tenant_id": BEFORE, **arguments}
            names = ", ".join(f"{name} => %({name})s" for name in arguments)
            connection.execute(f"select memfold.ingest_memory({names})".encode(), arguments)

        connection.execute("select memfold.register_embedding_model('before', 3)")
        connection.execute("select memfold.set_policy(%s, 'code', canonicalizer => 'code')", [BEFORE])
        connection.execute(
            "select memfold.set_policy(%s, 'default', weights => '{0.6,0.3,0.1}', metadata_keys => '{kind}')",
            [BEFORE],
        )
        connection.execute("select memfold.set_predicate(%s, 'lives_in')", [BEFORE])
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
def plproxy() -> Path | None:
    """The programs of a server that has PL/Proxy and pgvector (tools/full_server.sh installs PL/Proxy as pgbouncer)."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for bindir in [*find_full_server.candidates(), *installed]:
        if not (bindir / "pg_config").is_file() or not (bindir / "postgres").is_file():
            continue
        asked = subprocess.run(
            [bindir / "pg_config", "--sharedir"], capture_output=True, text=True, check=False
        )
        extensions = Path(asked.stdout.strip()) / "extension"
        if all((extensions / f"{name}.control").is_file() for name in ("plproxy", "vector")):
            return bindir
    return None


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
    migrate.install(_dsn(where))


def load_extension(**where: Any) -> None:
    with psycopg.connect(_dsn(where), autocommit=True) as connection:
        connection.execute("create extension memfold cascade")


def load_upgraded(way: str, **where: Any) -> None:
    """A database that was 0.1.0, with data, was then upgraded and went on; emptied, for tests count what there is.

    What the upgrade does to data: tests/test_upgrade.py.
    """
    dsn = _dsn(where)
    load_released(dsn, "0.1.0", way)
    fill(dsn)
    upgrade(dsn, way)
    fill_on(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        broken = connection.execute("select * from memfold.check_invariants(%s)", [BEFORE]).fetchall()
        assert broken == []
        connection.execute("set session_replication_role = replica")
        for name, lines in contents(dsn).items():
            if "tenant_id" in lines[0].split(","):
                connection.execute(f"delete from memfold.{name} where tenant_id = %s".encode(), [BEFORE])
        connection.execute("delete from memfold.embedding_models")


def _dsn(where: dict[str, Any]) -> str:
    return f"host={where['host']} port={where['port']} user={where['user']} dbname={where['dbname']}"
