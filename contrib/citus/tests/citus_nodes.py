"""A coordinator and workers with Citus: servers on sockets of their own, memfold on the coordinator.

Where Citus is comes from CITUS_PG_CONFIG, the pg_config of a server that has it. Nothing here builds or fetches it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
from tests.support import concurrent_calls, servers

from memfold.tools.admin import migrate

VARIABLE = "CITUS_PG_CONFIG"
# With any value, the suite runs with functions of shards.
SHARD_FUNCTIONS = "CITUS_SHARD_FUNCTIONS"
SETTINGS = {
    "shared_preload_libraries": "citus",
    "wal_level": "logical",
    "max_wal_senders": "10",
    "max_replication_slots": "10",
    "max_prepared_transactions": "200",
    "max_connections": "200",
    # one daemon per database in use
    "max_worker_processes": "60",
    # the nodes talk over sockets, where there is no TLS
    "citus.node_conninfo": "sslmode=prefer",
    "citus.show_shards_for_app_name_prefixes": "psql",
    "citus.enable_statistics_collection": "off",
}
# The processes that block a session of the coordinator, on all nodes.
BLOCKERS = """
select array(
    select citus_pid_for_gpid(w.blocking_gpid) from citus_lock_waits as w
    where w.waiting_gpid = citus_calculate_gpid(citus_nodeid_for_gpid(citus_backend_gpid()), %s)
)
"""


def bindir() -> tuple[Path | None, str]:
    """The directory of the server's programs, from CITUS_PG_CONFIG, or why there is no Citus to test on."""
    config = os.environ.get(VARIABLE)
    if not config:
        return None, f"{VARIABLE} names no server's pg_config"
    try:
        found = [
            Path(
                subprocess.run(
                    [config, f"--{what}"], capture_output=True, text=True, check=True
                ).stdout.strip()
            )
            for what in ("bindir", "sharedir")
        ]
    except (OSError, subprocess.CalledProcessError) as error:
        return None, f"{VARIABLE}={config}: {error}"
    if not (found[1] / "extension" / "citus.control").exists():
        return None, f"{VARIABLE}={config}: that server has no Citus"
    return found[0], ""


@dataclass
class Nodes:
    """A coordinator (the first node) and its workers: one directory, a port each."""

    bindir: Path
    workers: int = 2
    clusters: list[servers.Cluster] = field(init=False)
    not_here: Mapping[str, str] = field(
        default_factory=lambda: {
            "test_lock_counts": "counts locks of one server",
            "test_cardinality": "nobody is asked how many values a predicate has",
            "test_metadata_rules": "maintenance takes up a new rule, not the call that sets it",
            "test_opting_in": "maintenance takes up a new rule, not the call that sets it",
            "test_one_moment": "what stops a search in the middle is on the coordinator",
        }
    )

    def __post_init__(self) -> None:
        self.clusters = [
            servers.Cluster("citus" if number == 0 else f"citus{number}", self.bindir)
            for number in range(1 + self.workers)
        ]

    @property
    def cluster(self) -> servers.Cluster:
        return self.clusters[0]

    def start(self) -> None:
        for cluster in self.clusters:
            self.start_node(cluster)
        self.join("postgres")

    def start_node(self, cluster: servers.Cluster, **more: str) -> None:
        settings = {**SETTINGS, "citus.local_hostname": str(cluster.base)}
        sample = Path(cluster.run(self.bindir / "pg_config", "--sharedir").strip()) / "postgresql.conf.sample"
        if "output_plugin_libraries" in sample.read_text():
            # moves of shards are decoded by a library of Citus
            settings["output_plugin_libraries"] = "pgoutput, citus"
        cluster.start(extension=False, **{**settings, **more})

    def join(self, database: str) -> None:
        """Turn the databases of that name into nodes."""
        for cluster in self.clusters:
            with psycopg.connect(cluster.dsn(database), autocommit=True) as connection:
                connection.execute("create extension citus")
                connection.execute("create extension vector")
        host = self.clusters[0].base
        with psycopg.connect(self.clusters[0].dsn(database), autocommit=True) as connection:
            connection.execute("select citus_set_coordinator_host(%s, %s)", [str(host), servers.PORT])
            for cluster in self.clusters[1:]:
                connection.execute("select citus_add_node(%s, %s)", [str(cluster.base), servers.PORT])

    def stop(self) -> None:
        for cluster in self.clusters:
            cluster.stop()

    def dsn(self, node: int = 0, user: str = servers.SUPERUSER) -> str:
        return self.clusters[node].dsn(user=user)

    def connect(self, node: int = 0, user: str = servers.SUPERUSER) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn(node, user), autocommit=True)

    def install(self, database: str = "postgres") -> None:
        """As `memfold init --citus` does."""
        migrate.install(self.clusters[0].dsn(database), citus=True)

    def each(self, *statements: str) -> None:
        """Run by the superuser in the database postgres of each node."""
        for cluster in self.clusters:
            with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
                for statement in statements:
                    connection.execute(statement.encode())

    def drop(self, database: str) -> None:
        for _ in range(20):
            # Citus restarts its daemons
            with suppress(psycopg.errors.ObjectInUse):
                self.each(f"drop database if exists {database} with (force)")
                return
            time.sleep(0.2)

    def start_suite(self) -> None:
        """Each node has a database to copy: nodes know one another by address, and use databases of the same name."""
        self.start()
        # each test copies the files of all databases
        self.each("alter system set citus.shard_count = 4", "select pg_reload_conf()")
        self.each("create database distributed")
        self.join("distributed")
        self.install("distributed")
        if os.environ.get(SHARD_FUNCTIONS):
            with psycopg.connect(self.clusters[0].dsn("distributed"), autocommit=True) as connection:
                found = connection.execute("select distinct result from memfold.create_shard_functions()")
                assert found.fetchall() == [("created",)]
        self.each(
            "alter database distributed allow_connections false",
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = 'distributed'",
        )

    @contextmanager
    def copy(self, name: str) -> Iterator[psycopg.Connection[Any]]:
        """A database of that name on each node; connects to the coordinator's."""
        self.each(f"create database {name} template distributed")
        try:
            with (
                psycopg.connect(self.cluster.dsn(name), autocommit=True) as connection,
                mock.patch.object(concurrent_calls, "BLOCKERS", BLOCKERS),
            ):
                # for what a test sets in a transaction
                connection.execute("set citus.propagate_set_commands = 'local'")
                yield connection
        finally:
            self.drop(name)

    def missing(self, error: BaseException) -> str | None:
        """Nothing: a coordinator has all of memfold."""
        return None

    def workers_of(self, tenants: Sequence[str]) -> dict[str, int]:
        """The node of each tenant's shard."""
        with self.connect() as connection:
            hosts = {str(cluster.base): number for number, cluster in enumerate(self.clusters)}
            found = connection.execute(
                "select t, p.nodename from unnest(%s::text[]) as t"
                " join pg_dist_shard_placement as p"
                " on p.shardid = get_shard_id_for_distribution_column('memfold.memories', t)",
                [list(tenants)],
            ).fetchall()
        return {str(tenant): hosts[str(host)] for tenant, host in found}


def place() -> Nodes:
    """For --citus."""
    found, why_not = bindir()
    if found is None:
        raise pytest.UsageError(why_not)
    return Nodes(found)
