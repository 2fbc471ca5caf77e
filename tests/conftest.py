"""Each test gets a clean database, made from a template that holds memfold, on every server there is (databases.py).

The suite runs on the embedded server with memfold as alembic installs it. On the full one, with CREATE EXTENSION, it
runs what may differ there (second_server.py), and in a nightly run all of it. Tests marked ``core`` run with
the other installation method as well. ``--everywhere`` runs the whole suite on all, but for tests that say that another
method (``each_server``) or another server (``one_server``) would show nothing more: those install memfold themselves, or
are about Python. What an upgrade does: tests/install/test_upgrade.py.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pytest_postgresql import factories

import memfold
from contrib.citus.tests import citus_nodes
from memfold.tools.admin import migrate
from tests.support import (
    browser,
    databases,
    durations,
    elsewhere,
    frameworks,
    npm,
    rounds,
    second_server,
    servers,
    time_limits,
)  # fmt: skip

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores it for background jobs; processes that the tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

CLUSTERS, LEFT_OUT = servers.available()
WAYS = ("alembic", "extension")
# What each server runs the whole suite with; the other way runs what is marked core.
MAIN_WAY = {"embedded": "alembic", "full": "extension"}


@dataclass(frozen=True)
class Target:
    """One server with memfold installed in one way."""

    cluster: servers.Cluster
    way: str

    def __str__(self) -> str:
        return f"{self.cluster.name}{self.cluster.major}-{self.way}"

    @property
    def available(self) -> bool:
        return self.way != "extension" or self.cluster.extension

    @property
    def python(self) -> bool:
        """Whether memfold_py works there."""
        return self.available and not self.cluster.why_no_python

    def load(self, **where: Any) -> None:
        """Install memfold in a database, in this way."""
        with self.cluster.turn():
            if self.way == "alembic":
                servers.load_alembic(**where)
            else:
                servers.load_extension(**where)


TARGETS = [Target(cluster, way) for cluster in CLUSTERS for way in WAYS]
collect_ignore = [
    f"integrations/test_{name}.py" for name, module in frameworks.LARGE.items() if find_spec(module) is None
]
# What --citus runs the suite on instead; each process of the run has its own.
ELSEWHERE: list[elsewhere.Place] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--everywhere",
        action="store_true",
        help="run the whole suite on every server, with both installation methods",
    )
    parser.addoption("--citus", action="store_true", help="run the suite on a coordinator and two workers")
    parser.addoption(
        "--quick", action="store_true", help="run the fast tests on one target (tests/support/durations.py)"
    )
    parser.addoption(
        "--faster-than", type=float, help="run tests that took less than so many seconds, or hold a promise"
    )
    parser.addoption("--slower-than", type=float, help="run the others")
    parser.addoption(
        "--record", action="store_true", help="write how long tests take to tests/data/durations.json"
    )
    parser.addoption("--pin", action="store_true", help="write tests/data/surface.txt from what there is")


def pytest_configure(config: pytest.Config) -> None:
    if not Path(memfold.__file__).is_relative_to(servers.ROOT):
        raise pytest.UsageError(
            f"these tests are of {servers.ROOT}, but memfold is that of {Path(memfold.__file__).parents[1]}:"
            " run `make setup` here, or set PYTHONPATH=python_client:plpython"
        )
    if not config.pluginmanager.is_registered(time_limits):
        config.pluginmanager.register(time_limits)
    # the order of groups is ours (pytest_collection_modifyitems)
    config.option.loadscopereorder = False
    if config.option.citus:
        ELSEWHERE.append(citus_nodes.place())
        # no other server is started
        os.environ[servers.STARTED] = servers.describe([])
        return
    if config.option.collectonly or hasattr(config, "workerinput"):
        return
    if config.option.record:
        config.pluginmanager.register(durations.Recorder([str(target) for target in TARGETS]))
    for cluster in CLUSTERS:
        cluster.start()
        config.add_cleanup(cluster.stop)
    # the processes of pytest-xdist use these servers, with separate databases
    os.environ[servers.STARTED] = servers.describe(CLUSTERS)
    if servers.pgbouncer() is None:
        LEFT_OUT.append(
            "tests/environments/test_pgbouncer.py, a transaction pooler: pgbouncer is not installed"
        )
    if servers.prometheus() is None:
        LEFT_OUT.append("contrib/metrics: prometheus and prometheus-postgres-exporter are not installed")
    if citus_nodes.bindir()[0] is None:
        LEFT_OUT.append(f"contrib/citus, a coordinator and two workers: {citus_nodes.bindir()[1]}")
    if why := npm.why_not():
        LEFT_OUT.append(f"tests/client/test_mcp.py, the official inspector: {why}")
        LEFT_OUT.append(f"tests/client/test_web_browser.py, axe-core: {why}")
    for file in collect_ignore:
        LEFT_OUT.append(f"tests/{file}: its framework is not installed: make test-frameworks")
    if why := browser.why_not():
        LEFT_OUT.append(f"tests/client/test_web_browser.py, the page in a browser: {why}")
    for cluster in CLUSTERS:
        if not cluster.extension:
            LEFT_OUT.append(f"{cluster.name} server with CREATE EXTENSION: {cluster.why_no_extension}")
        if cluster.why_no_python:
            LEFT_OUT.append(f"memfold_py on the {cluster.name} server: {cluster.why_no_python}")


def _makes_up_for(target: Target) -> bool:
    """The other installation method, if the main one of a server is unavailable."""
    main = MAIN_WAY[target.cluster.name]
    return target.way == (main if Target(target.cluster, main).available else "alembic")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" not in metafunc.fixturenames:
        return
    if ELSEWHERE:
        metafunc.parametrize("target", [Target(ELSEWHERE[0].cluster, "alembic")], ids=str, indirect=True)
        return

    def marked(name: str) -> bool:
        return metafunc.definition.get_closest_marker(name) is not None

    chosen = [t for t in TARGETS if t.available and _makes_up_for(t)]
    if marked("full_server"):
        chosen = [t for t in TARGETS if t.cluster.name == "full" and t.way == "extension" and t.python]
    elif marked("core"):
        chosen = [t for t in TARGETS if t.available]
    elif marked("one_server"):
        chosen = chosen[:1]
    elif marked("each_server"):
        pass
    elif metafunc.config.option.everywhere:
        chosen = [t for t in TARGETS if t.available]
    elif not second_server.runs(metafunc.definition.path):
        chosen = chosen[:1]
    metafunc.parametrize("target", chosen, ids=str, indirect=True)


# before that of pytest-xdist, which reads the groups
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for place in ELSEWHERE:
        elsewhere.choose(place, config, items)
    took = durations.seconds(items)
    kept = set(items)
    if config.option.quick:
        kept = durations.quick(items, str(TARGETS[0]))
    if limit := config.option.faster_than or config.option.slower_than:
        fast = {item for item in items if took[item] < limit or item.get_closest_marker("promise")}
        kept = fast if config.option.faster_than else kept - fast
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
    # Several processes: a file's tests stay together, and so do those of adoption, which minds all standbys of its server.
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        name = item.path.stem
        group = "adoption" if "adopt" in name or name in {"test_import", "test_docs_commands"} else name
        item.add_marker(pytest.mark.xdist_group(group))
        groups.setdefault(group, []).append(item)
    if hasattr(config, "workerinput"):
        # what takes longest first, so that all processes end at the same time
        ordered = sorted(groups, key=lambda group: -sum(took[item] for item in groups[group]))
        items[:] = [item for group in ordered for item in groups[group]]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    for place in ELSEWHERE:
        elsewhere.excuse(place, item, call, report)
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    terminalreporter.section("servers")
    for place in ELSEWHERE:
        for line in elsewhere.summary(place):
            terminalreporter.line(line)
    for target in TARGETS if not ELSEWHERE else []:
        if target.available:
            whole = config.option.everywhere or _makes_up_for(target)
            narrow = target.cluster is not CLUSTERS[0] and not (rounds.NIGHTLY or config.option.everywhere)
            scope = "what may differ there" if whole and narrow else "whole suite" if whole else "core tests"
            python = ", with memfold_py" if target.cluster.name == "full" and whole and target.python else ""
            terminalreporter.line(f"ran on {target} ({target.cluster.bindir}): {scope}{python}")
    if servers.pgbouncer() is not None:
        terminalreporter.line(f"pooler: {servers.pgbouncer()}")
    if servers.prometheus() is not None:
        terminalreporter.line(f"metrics: {' and '.join(servers.prometheus() or ())}")
    if rounds.NIGHTLY:
        terminalreporter.line(f"again with the same random choices: make nightly SEED={rounds.SEED}")
    else:
        LEFT_OUT.append(
            "most rounds of tests that take chances, and what no server does otherwise: make nightly"
        )
    if limit := config.option.faster_than:
        LEFT_OUT.append(f"tests that take {limit:g} s and more: make slow")
    for line in LEFT_OUT:
        terminalreporter.line(f"LEFT OUT: {line}")


def _lent(noproc: str, name: str) -> Any:
    """A fixture: a database like the template that the fixture ``noproc`` makes."""

    @pytest.fixture(name=name)
    def lent(request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
        made = request.getfixturevalue(noproc)
        with databases.lend(
            made.template_dbname,
            made.dbname,
            new=request.node.get_closest_marker("new_database") is not None,
            host=made.host,
            port=made.port,
            user=made.user,
        ) as connection:
            yield connection

    return lent


for _target in TARGETS:
    _noproc = f"noproc_{_target.cluster.name}_{_target.way}"
    globals()[_noproc] = factories.postgresql_noproc(
        host=str(_target.cluster.base),
        port=servers.PORT,
        user=servers.SUPERUSER,
        dbname=f"test_{_target.way}",
        load=[_target.load],
    )
    _name = f"db_{_target.cluster.name}_{_target.way}"
    globals()[_name] = _lent(_noproc, _name)


@pytest.fixture(scope="session")
def started_elsewhere() -> Iterator[elsewhere.Place]:
    place = ELSEWHERE[0]
    try:
        place.start_suite()
        yield place
    finally:
        place.stop()


@pytest.fixture
def db_citus_alembic(
    started_elsewhere: elsewhere.Place, request: pytest.FixtureRequest
) -> Iterator[psycopg.Connection[Any]]:
    with started_elsewhere.copy(f"test_{uuid.uuid4().hex[:12]}") as connection:
        # some wait for events that never happen there
        time_limits.allow(request.node, 120)
        yield connection


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.param
    return found


@pytest.fixture
def db(target: Target, request: pytest.FixtureRequest) -> psycopg.Connection[tuple[object, ...]]:
    """A superuser's connection to a clean database that holds memfold; autocommit."""
    connection: psycopg.Connection[tuple[object, ...]] = request.getfixturevalue(
        f"db_{target.cluster.name}_{target.way}"
    )
    time_limits.watch(connection.info.dsn)
    connection.execute("set search_path = public, memfold")
    return connection


@pytest.fixture
def dsn(db: psycopg.Connection[tuple[object, ...]], target: Target) -> str:
    """The DSN of ``db``, for further connections."""
    return target.cluster.dsn(db.info.dbname) + " options='-csearch_path=public,memfold'"


@pytest.fixture
def extension_available(target: Target) -> bool:
    """Whether CREATE EXTENSION memfold works on this server."""
    return target.cluster.extension


@pytest.fixture
def own_cluster(target: Target) -> Iterator[servers.Cluster]:
    """A server that no other test uses, of the same programs, with memfold in the database postgres."""
    cluster = servers.Cluster("own", target.cluster.bindir)
    cluster.start(extension=False)
    time_limits.watch(cluster.dsn())
    try:
        migrate.install(cluster.dsn())
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def standby(own_cluster: servers.Cluster) -> Iterator[str]:
    """A streaming standby, as an administrator sets one up, of a server that nobody else writes to; where it is."""
    cluster = own_cluster
    base = cluster.base / "standby"
    base.mkdir()
    os.chown(base, cluster.account.uid, cluster.account.gid)
    cluster.run(
        cluster.bindir / "pg_basebackup", "-h", cluster.base, "-p", "5432", "-U", "postgres", "-D", base / "data",
        "-R", "-X", "stream", "-c", "fast", "--no-sync",
    )  # fmt: skip
    (base / "data").chmod(0o700)
    with (base / "data" / "postgresql.auto.conf").open("a") as conf:
        conf.write(f"unix_socket_directories = '{base}'\nfsync = off\n")
    cluster.run(cluster.bindir / "pg_ctl", "-D", base / "data", "-l", base / "log", "-w", "start")
    try:
        yield f"host={base} port=5432 user=postgres dbname=postgres"
    finally:
        cluster.account.run([cluster.bindir / "pg_ctl", "-D", base / "data", "-m", "immediate", "stop"])


Make = Callable[..., str]


@pytest.fixture
def make(db: psycopg.Connection[tuple[object, ...]], target: Target) -> Iterator[Make]:
    """Makes databases on the server of the test: without memfold, or copies of one with it (``Cluster.template``)."""
    names: list[str] = []

    def one(way: str = "", *, options: str = "", **kind: str) -> str:
        name = f"made_{uuid.uuid4().hex[:12]}"
        template = target.cluster.template(way, **kind) if way else "template0 encoding 'UTF8'"
        db.execute(f"create database {name} template {template} {options}")
        names.append(name)
        time_limits.watch(target.cluster.dsn(name))
        return target.cluster.dsn(name)

    yield one
    for name in names:
        databases.drop(db, name)


Connect = Callable[..., psycopg.Connection[tuple[object, ...]]]


@pytest.fixture
def connect(dsn: str) -> Iterator[Connect]:
    """Opens further connections to the test's database, and closes them at its end."""
    opened: list[psycopg.Connection[tuple[object, ...]]] = []

    def open_one(**settings: str) -> psycopg.Connection[tuple[object, ...]]:
        connection = psycopg.connect(dsn, autocommit=True, **settings)
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture
def app(db: psycopg.Connection[tuple[object, ...]], connect: Connect) -> Iterator[Connect]:
    """Opens connections as an application: a login role that is only a member of memfold_app."""
    role = f"app_{db.info.dbname}"
    db.execute(f"drop role if exists {role}")
    db.execute(f"create role {role} login in role memfold_app")
    made: list[psycopg.Connection[tuple[object, ...]]] = []

    def open_one(tenant: str | None = None) -> psycopg.Connection[tuple[object, ...]]:
        connection = connect(user=role)
        made.append(connection)
        if tenant is not None:
            connection.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        return connection

    yield open_one
    for connection in made:
        connection.close()
    db.execute(f"drop role {role}")
