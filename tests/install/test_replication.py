"""Logical replication to a subscriber, as docs/backups.md says: every table is equal, and the subscriber takes over."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from memfold.tools.admin import migrate
from tests.conftest import Target
from tests.support import servers
from tests.support.installing import rows, run
from tests.support.waiting import until

SHIPPED = "truncate memfold.antonyms, memfold.lexicon, memfold.options, memfold.policies"
# the subscriber is another database of the same server, where the slot has to be there first
SUBSCRIBE = (
    "create subscription copy connection '{}' publication memfold"
    " with ({}create_slot = false, slot_name = 'copy')"
)
# PostgreSQL 15 has no such option, and always does so
AS_OWNER = "run_as_owner = true, "


@pytest.fixture
def cluster(target: Target) -> Iterator[servers.Cluster]:
    cluster = servers.Cluster("own", target.cluster.bindir)
    cluster.start(extension=False, wal_level="logical")
    try:
        yield cluster
    finally:
        cluster.stop()


def test_subscriber_has_every_row_and_takes_over(cluster: servers.Cluster) -> None:
    """From a publisher with writers, whose rows are stated, merged, superseded, rehashed and erased."""
    run(cluster.dsn(), "create database copy template template0")
    source, copy = cluster.dsn(), cluster.dsn("copy")
    for dsn in (source, copy):
        migrate.install(dsn)
    servers.fill(source)
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(source, autocommit=True) as connection:
            count = 0
            while not stop.is_set():
                count += 1
                said = [f"Fact {count % 40}", [f"turn {count}"]]
                connection.execute("select memfold.ingest_memory(%s, 'busy', source_turn_ids => %s)", said)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        run(source, "create publication memfold for tables in schema memfold")
        run(source, "create role replicator login replication bypassrls in role pg_read_all_data")
        run(source, "select pg_create_logical_replication_slot('copy', 'pgoutput')")
        run(copy, SHIPPED)
        as_owner = AS_OWNER if cluster.major >= 16 else ""
        run(copy, SUBSCRIBE.format(cluster.dsn(user="replicator"), as_owner))
        until(
            lambda: not rows(copy, "select from pg_subscription_rel where srsubstate <> 'r'"),
            "the first copy",
        )
        servers.fill_on(source)
        run(source, "select memfold.erase_source('t3', 'before', 'request 17')")
        run(source, "call memfold.rehash_bucket('busy', 'default', canonicalizer => 'flat')")
        # what only the publisher's triggers fill in
        run(source, "insert into memfold.memories (tenant_id, content) values ('busy', 'A plain row')")
    finally:
        stop.set()
        writer.join()
    ((end,),) = rows(source, "select pg_current_wal_lsn()::text")
    behind = f"select from pg_replication_slots where confirmed_flush_lsn < '{end}'"
    until(lambda: not rows(source, behind), "the rest", pause=0.1)
    was = servers.contents(source)
    assert servers.contents(copy) == was
    published = rows(source, "select tablename from pg_publication_tables where pubname = 'memfold'")
    # who has claimed a text is gone with its transaction: an unlogged table
    assert {name for (name,) in published} == {*was} - {"adoption_claims"}
    assert rows(source, "select * from pg_sequences where schemaname ~ '^memfold'") == []
    run(copy, "alter subscription copy disable; alter subscription copy set (slot_name = none)")
    run(copy, "drop subscription copy")
    for tenant in ("before", "busy"):
        assert rows(copy, f"select * from memfold.check_invariants('{tenant}')") == []
    found = rows(
        copy,
        "select action, tier, method from memfold.ingest_memory('fact  7', 'busy', source_turn_ids => '{last}')",
    )
    assert found == [("merged", 1, "hash")]
    assert rows(copy, "select * from memfold.check_invariants('busy')") == []
    # a new id is above all replicated ones
    above = (
        "select memory_id::text = max(memory_id::text) over () from memfold.memories where tenant_id = 'busy'"
    )
    run(copy, "select memfold.ingest_memory('The last of all', 'busy')")
    assert rows(copy, f"{above} order by content = 'The last of all' desc limit 1") == [(True,)]
