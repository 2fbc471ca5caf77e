"""Interrupted adoptions: killed in each step and run again, paused, delayed by transactions and by standbys."""

from __future__ import annotations

import signal
import subprocess
import threading
import time

import psycopg
import pytest

from memfold.adopt import session
from tests.conftest import Connect
from tests.support.adopting import (
    OPTIONS,
    TABLE,
    catalog,
    check_adopted,
    finish,
    make_tables,
    start,
    state,
    waiting,
)
from tests.support.queries import DB, one
from tests.support.servers import Cluster
from tests.support.waiting import until

ROWS = 2000
MORE = "select coalesce(max(rows_seen), 0) from memfold.adoptions where rows_seen > %s"


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def there(db: DB) -> bool:
    query = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'memfold adopt'"
    return bool(one(db, query))


@pytest.mark.one_server
@pytest.mark.parametrize("step", [1, 2])
def test_killed_while_it_waits_for_the_table(db: DB, dsn: str, connect: Connect, step: int) -> None:
    make_tables(db, 300)
    before = state(db)
    for earlier in range(1, step):
        finish(dsn, "run", *OPTIONS, "--step", str(earlier))
    holder = connect()
    holder.execute("begin; lock table app.memories in share mode")
    process = start(dsn, "run", *OPTIONS, "--confirm")
    try:
        until(lambda: there(db))
        time.sleep(2.5)
        assert one(db, "select coalesce(max(step), 0) from memfold.adoptions") == step - 1
        kill(process)
    finally:
        process.kill()
    assert one(db, "select coalesce(max(step), 0) from memfold.adoptions") == step - 1
    holder.execute("rollback")
    finish(dsn, "run", *OPTIONS, "--confirm")
    check_adopted(db, before)


@pytest.mark.one_server
def test_killed_in_the_backfill(db: DB, dsn: str) -> None:
    """Each time at another row; together they read each row once."""
    make_tables(db, ROWS)
    before = state(db)
    seen = 0
    for _ in range(4):
        process = start(dsn, "run", *OPTIONS, "--batch", "40", "--rate", "1200")
        try:
            now = until(lambda known=seen: one(db, MORE, known))
            time.sleep(0.1)
            kill(process)
        finally:
            process.kill()
        until(lambda: not there(db))
        assert now > seen
        seen = one(db, "select rows_seen from memfold.adoptions")
        position = one(db, "select (position ->> 0)::bigint from memfold.adoptions")
        assert position == seen, "recorded progress equals the work done"
        hashed = one(
            db, "select count(*) from app.memories where content_hash is not null and id <= %s", position
        )
        assert hashed == one(db, "select rows_hashed from memfold.adoptions")
        assert one(db, "select count(*) from app.memories where content_hash is not null") == hashed
    assert seen < ROWS
    finish(dsn, "run", *TABLE, "--batch", "100", "--confirm")
    assert one(db, "select rows_seen from memfold.adoptions") == ROWS
    check_adopted(db, before)


@pytest.mark.one_server
def test_killed_while_duplicates_are_resolved(db: DB, dsn: str) -> None:
    make_tables(db, ROWS)
    before = state(db)
    finish(dsn, "run", *OPTIONS)
    archived = 0
    for _ in range(3):
        process = start(dsn, "run", *TABLE, "--confirm", "--batch", "3", "--rate", "40")
        try:
            until(lambda n=archived: one(db, "select count(*) from memfold.adoption_archive") > n)
            time.sleep(0.15)
            kill(process)
        finally:
            process.kill()
        until(lambda: not there(db))
        archived = one(db, "select count(*) from memfold.adoption_archive")
        # nothing is lost in the middle either
        for table, rows in before.items():
            gone = one(db, "select count(*) from memfold.adoption_archive where table_name = %s", table)
            assert one(db, f"select count(*) from app.{table}") + gone == len(rows)
    assert one(db, "select step from memfold.adoptions") == 3
    finish(dsn, "run", *TABLE)
    check_adopted(db, before)


def test_killed_while_the_index_is_built(db: DB, dsn: str, connect: Connect) -> None:
    """An INVALID index stays behind, and new rows have no hash; the next run fixes both."""
    make_tables(db, ROWS)
    before = state(db)
    for step in ("1", "2", "3", "4"):
        finish(dsn, "run", *OPTIONS, "--step", step, "--confirm")
    reader = connect()
    reader.execute("begin isolation level repeatable read; select count(*) from app.tags")
    process = start(dsn, "run", *TABLE)
    try:
        # It has been built, and waits for the reader's snapshot.
        until(
            lambda: one(
                db,
                "select count(*) from pg_stat_progress_create_index where phase ~ 'waiting for old snapshots'",
            )
        )
        db.execute("insert into app.memories (tenant_id, content) values ('t7', 'twin'), ('t7', 'TWIN')")
        said = finish(dsn, "status")
        assert "is running" in said
        assert "get no hash" in said
        kill(process)
    finally:
        process.kill()
    until(lambda: not there(db))
    invalid = "select count(*) from pg_index where indrelid = 'app.memories'::regclass and not indisvalid"
    assert one(db, invalid) == 1
    reader.execute("rollback")
    said = finish(dsn, "run", *TABLE)
    assert "INVALID" in said
    assert one(db, invalid) == 0
    before["memories"] += [(), ()]
    check_adopted(db, before)
    assert one(db, "select withheld from memfold.adoptions") is False


@pytest.mark.one_server
def test_killed_before_the_last_step(db: DB, dsn: str, connect: Connect) -> None:
    make_tables(db, 300)
    before = state(db)
    for step in ("1", "2", "3", "4", "5"):
        finish(dsn, "run", *OPTIONS, "--step", step, "--confirm")
    holder = connect()
    holder.execute("begin; select 1 from memfold.adoptions for update")
    process = start(dsn, "run", *TABLE)
    try:
        until(lambda: waiting(db))
        kill(process)
    finally:
        process.kill()
    holder.execute("rollback")
    until(lambda: not there(db))
    assert one(db, "select count(*) from pg_proc where proname = 'insert_app_memories'") == 0
    finish(dsn, "run", *TABLE)
    check_adopted(db, before)
    assert (
        one(db, "select deduped from memfold.insert_app_memories(tenant_id => 't9', content => 'x')") is False
    )


@pytest.mark.one_server
def test_killed_while_it_is_undone(db: DB, dsn: str) -> None:
    make_tables(db, ROWS)
    before = (catalog(db), state(db))
    finish(dsn, "run", *OPTIONS, "--confirm")
    for _ in range(2):
        process = start(dsn, "undo", *TABLE, "--restore", "--batch", "1")
        try:
            restored = one(db, "select count(*) from memfold.adoption_archive where restored_at is not null")
            until(
                lambda n=restored: one(
                    db, "select count(*) from memfold.adoption_archive where restored_at is not null"
                ) > n + 20
            )  # fmt: skip
            kill(process)
        finally:
            process.kill()
        until(lambda: not there(db))
        # neither a run nor its confirmation continues from here
        assert "its undo has begun" in (told := finish(dsn, "status"))
        assert "next: memfold adopt undo --table app.memories --restore" in told
        for more in ([], ["--confirm"]):
            assert "undo --table app.memories --restore" in finish(dsn, "run", *TABLE, *more, code=1)
    finish(dsn, "undo", *TABLE, "--restore")
    assert ([row for row in catalog(db) if row[0] != "archived"], state(db)) == before


@pytest.mark.one_server
def test_paused_and_stopped_from_another_session(db: DB, dsn: str) -> None:
    make_tables(db, ROWS)
    before = state(db)
    process = start(dsn, "run", *OPTIONS, "--batch", "20", "--rate", "100")
    try:
        until(lambda: one(db, "select coalesce(max(rows_seen), 0) from memfold.adoptions") > 0)
        assert "is running" in finish(dsn, "status")
        assert "stops after its current batch" in finish(dsn, "pause", *TABLE)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 0
        assert "paused in step 3" in err
    finally:
        process.kill()
    seen = one(db, "select rows_seen from memfold.adoptions")
    assert 0 < seen < ROWS
    # Ctrl-C does the same
    # at that rate what is left takes 20 seconds
    process = start(dsn, "run", *TABLE, "--batch", "20", "--rate", "90")
    try:
        until(lambda: one(db, "select rows_seen from memfold.adoptions") > seen)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 0, err
        assert "stopped in step 3" in err
        assert one(db, "select step from memfold.adoptions") == 2
    finally:
        process.kill()
    finish(dsn, "run", *TABLE, "--confirm")
    check_adopted(db, before)


@pytest.mark.one_server
def test_two_runs_at_once(db: DB, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # long enough to say for whom it waits; usually a quarter of a minute
    monkeypatch.setattr(session, "_TRIES", 10)
    make_tables(db, ROWS)
    process = start(dsn, "run", *OPTIONS, "--batch", "5", "--rate", "15")
    try:
        until(lambda: one(db, "select coalesce(max(rows_seen), 0) from memfold.adoptions") > 0)
        assert "another run is working on app.memories" in finish(dsn, "run", *TABLE, code=1)
        assert "another run is working on app.memories" in finish(dsn, "undo", *TABLE, code=1)
    finally:
        kill(process)


@pytest.mark.one_server
def test_the_cap_on_rows_a_second_holds(db: DB, dsn: str) -> None:
    make_tables(db, ROWS)
    for step in ("1", "2"):
        finish(dsn, "run", *OPTIONS, "--step", step)
    began = time.monotonic()
    finish(dsn, "run", *TABLE, "--step", "3", "--rate", "800")
    assert time.monotonic() - began > ROWS / 800 - 1


def test_nobody_queues_behind_a_long_transaction(db: DB, dsn: str, connect: Connect) -> None:
    """While a session holds the table, others continue: waiting for the lock would make all of them wait."""
    make_tables(db, 300)
    before = catalog(db)
    holder = connect()
    holder.execute("begin; select count(*) from app.memories")
    time.sleep(1.2)
    refused: list[str] = []
    stop = threading.Event()

    def use() -> None:
        # less than the command's patience, and much more than it waits at a time
        with psycopg.connect(dsn, autocommit=True, options="-c lock_timeout=2s") as connection:
            while not stop.is_set() and not refused:
                try:
                    connection.execute("update app.memories set reads = reads + 1 where id = 5")
                except psycopg.errors.LockNotAvailable as error:
                    refused.append(str(error))

    user = threading.Thread(target=use)
    user.start()
    try:
        said = finish(dsn, "run", *OPTIONS, "--patience", "3", code=1)
    finally:
        stop.set()
        user.join()
    assert "no lock on app.memories" in said
    assert f"process {holder.info.backend_pid}" in said
    assert refused == []
    assert [row for row in catalog(db) if row[0] != "adoption"] == before
    holder.execute("rollback")
    finish(dsn, "run", *OPTIONS, "--step", "1")


@pytest.mark.one_server
def test_locked_rows_are_skipped_and_found_again(db: DB, dsn: str, connect: Connect) -> None:
    make_tables(db, 600)
    before = state(db)
    for step in ("1", "2"):
        finish(dsn, "run", *OPTIONS, "--step", step)
    holder = connect()
    holder.execute("begin; update app.memories set reads = 1 where id in (5, 17, 300)")
    process = start(dsn, "run", *TABLE, "--confirm")
    try:
        until(lambda: one(db, "select count(*) from app.memories where content_hash is null and id not in"
                                 " (select id from app.memories where coalesce(content, ' . ') = ' . ')") == 3)  # fmt: skip
        assert one(db, "select step from memfold.adoptions") == 2
        holder.execute("commit")
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    finally:
        process.kill()
    before["memories"] = state(db)["memories"] + [()] * one(
        db, "select count(*) from memfold.adoption_archive where reason = 'duplicate'"
    )
    check_adopted(db, before)


def test_duplicates_that_slip_in_while_the_index_is_built(db: DB, dsn: str, connect: Connect) -> None:
    """A writer without the trigger (a replication slot's worker) makes the build fail, and it is repeated."""
    make_tables(db, 300)
    before = state(db)
    for step in ("1", "2", "3", "4"):
        finish(dsn, "run", *OPTIONS, "--step", step, "--confirm")
    writer = connect()
    writer.execute("begin; insert into app.memories (tenant_id, content) values ('t7', 'held')")
    process = start(dsn, "run", *TABLE, "--patience", "1")
    try:
        until(
            lambda: one(
                db, "select count(*) from pg_stat_progress_create_index where phase ~ 'waiting for writers'"
            )
        )
        db.execute(
            "set session_replication_role = 'replica';"
            " insert into app.memories (tenant_id, content, content_hash) select 't7', 'HELD ' || repeat(' ', i),"
            " memfold.adopted_hash('held', 'prose/1') from generate_series(1, 3) i;"
            " reset session_replication_role"
        )
        writer.execute("commit")
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "duplicates slipped in" in err
    finally:
        process.kill()
    before["memories"] += [()] * 4
    check_adopted(db, before)
    assert one(db, "select count(*) from app.memories where tenant_id = 't7'") == 1


# Standbys ---------------------------------------------------------------------------------------------------


@pytest.mark.each_server
def test_the_backfill_waits_for_a_standby_that_is_behind(own_cluster: Cluster, standby: str) -> None:
    dsn = own_cluster.dsn() + " options='-csearch_path=public,memfold'"
    db = psycopg.connect(dsn, autocommit=True)
    replica = psycopg.connect(standby, autocommit=True)
    # what puts the standby behind is the backfill alone
    db.execute("alter system set autovacuum = off")
    db.execute("select pg_reload_conf()")
    make_tables(db, ROWS)
    before = state(db)
    for step in ("1", "2"):
        finish(dsn, "run", *OPTIONS, "--step", step)
    lag = "select pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) from pg_stat_replication"
    until(lambda: db.execute(f"{lag} where state = 'streaming'".encode()).fetchall() == [(0,)])
    replica.execute("select pg_wal_replay_pause()")
    process = start(dsn, "run", *TABLE, "--batch", "50", "--rate", "1500", "--max-lag-mb", "0.2", "--confirm")
    try:
        until(lambda: one(db, lag) > 200_000)
        time.sleep(1.5)
        seen = one(db, "select rows_seen from memfold.adoptions")
        assert 0 < seen < ROWS
        time.sleep(1.5)
        assert one(db, "select rows_seen from memfold.adoptions") == seen, "it makes no progress"
        assert process.poll() is None
        # while it waits it can be paused, too
        finish(dsn, "pause", *TABLE)
        _, err = process.communicate(timeout=20)
        assert "waiting for walreceiver" in err
        assert "MB behind" in err
        replica.execute("select pg_wal_replay_resume()")
        finish(dsn, "run", *TABLE, "--confirm", "--max-lag-mb", "0.2")
    finally:
        process.kill()
    check_adopted(db, before)
    # without the right to see it, it does not guess
    db.execute(
        "create role dba login in role memfold_owner; create schema other authorization dba; set role dba"
    )
    for table in ("m", "n"):
        db.execute(f"create table other.{table} (id integer primary key, t text)".encode())
        db.execute(f"insert into other.{table} values (1, 'x')".encode())
    db.execute("reset role")

    def run(table: str, *more: str, code: int = 0) -> str:
        return finish(f"{dsn} user=dba", "run", "--table", table, "--content", "t", *more, code=code)

    assert "pg_read_all_stats" in run("other.m", code=1)
    run("other.m", "--ignore-lag", "--confirm")
    db.execute("grant pg_read_all_stats to dba")
    run("other.n", "--confirm")
    # the other way round: there is nothing to adopt on a standby
    assert "is a standby" in finish(standby, "plan", *OPTIONS, code=1)
    replica.close()
    db.close()
