"""A router and the servers behind it, by PL/Proxy: how they are set up, and what of the suite runs through one."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from memfold import migrate
from tests import servers

sys.path.insert(0, str(servers.ROOT / "tools"))

import gen_plproxy

# What a router comes as.
LOGIN = "create role memfold_router login in role memfold_app, memfold_judge"

# Roles of the router, with the roles of the servers that they are sent as.
MAPPINGS = """
grant usage on foreign server memfold to memfold_owner, memfold_app, memfold_judge, memfold_auditor;
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
FILES = {
    "test_adopt*": "adoption is done on a server, to a table that is there",
    "test_import": "import reads another table of the server, and writes as adoption does",
    "test_crash": "kills servers of its own; tests/test_plproxy.py kills one behind a router",
    "test_cut": "cuts connections to a server, for its promise about lost ones",
    "test_dump": "a router has no data to dump",
    "test_install": "installs memfold; a router is made by a file",
    "test_upgrade": "upgrades memfold; a router is made anew",
    "test_server": "starts servers with memfold up",
    "test_catalog": "is about the catalog of memfold; tests/test_plproxy.py compares the router's",
    "test_surface": "is about the catalog of memfold; tests/test_plproxy.py compares the router's",
    "test_probes": "is about plans of statements on the tables",
    "test_plpython*": "is about functions in Python, of a server",
    "test_pgbouncer": "brings a pooler to a server",
    "test_plproxy": "brings its own router",
    "test_citus": "brings its own nodes",
}
FIXTURES = {
    "make": "makes databases of its own",
    "own_cluster": "starts a server of its own",
    "standby": "starts a server of its own",
}


def why_not(item: pytest.Function) -> str | None:
    """Why a test does not run through a router, if so."""
    for pattern, reason in FILES.items():
        if fnmatch.fnmatch(item.path.stem, pattern):
            return reason
    for fixture, reason in FIXTURES.items():
        if fixture in item.fixturenames:
            return reason
    if "db" not in item.fixturenames:
        return "asks no database"
    return None


@dataclass
class Router:
    """A server with a router and two databases with memfold, to be copied together for each test."""

    bindir: Path
    shards: int = 2

    def __post_init__(self) -> None:
        self.cluster = servers.Cluster("plproxy", self.bindir)

    def start(self) -> None:
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

    def stop(self) -> None:
        self.cluster.stop()

    def names(self, name: str) -> list[str]:
        """The database that routes, and those behind it."""
        return [name, *(f"{name}_{number}" for number in range(self.shards))]

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
            # a session of its own: PL/Proxy looks at a server's options no more than once in a while
            with psycopg.connect(self.cluster.dsn(name), autocommit=True) as db:
                yield db
        finally:
            with suppress(psycopg.Error):
                self.run(*(f"drop database if exists {n} with (force)" for n in names))
