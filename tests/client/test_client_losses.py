"""The Python client retries transient failures, and says so if it does not know the outcome."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memfold import AsyncMemfold, Memfold, MemfoldError
from memfold.client import errors
from memfold.client.calls.core import Core
from memfold.client.calls.steps import Pause, Transact
from memfold.client.types import IngestResult
from tests.support.queries import one
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("measured")


WAITING = """
select count(*) > 0 from pg_stat_activity
where datname = current_database() and application_name = 'memfold' and wait_event_type = 'Lock'
"""


@pytest.fixture
def collide(dsn: str, db: psycopg.Connection) -> Callable[..., list[IngestResult | BaseException]]:
    """Makes a restated fact fail with 40001: its root stops being active while the call waits for it, so that
    the call needs the scope's lock, and another has that. Once it has failed, the root is active again."""

    def run(
        call: Callable[[], IngestResult], failed: Callable[[], bool]
    ) -> list[IngestResult | BaseException]:
        outcome: list[IngestResult | BaseException] = []

        def work() -> None:
            try:
                outcome.append(call())
            except BaseException as error:
                outcome.append(error)

        lock = b"select pg_advisory_lock(memfold_internal._scope_lock(tenant_id, scope_key)) from memfold.memories"
        flag = "update memfold.memory_counters set is_additive = {}"
        thread = threading.Thread(target=work)
        with psycopg.connect(dsn) as other, psycopg.connect(dsn, autocommit=True) as holder:
            holder.execute(lock)
            other.execute(flag.format(False).encode())
            thread.start()
            until(lambda: one(db, f"{WAITING} and wait_event <> 'advisory'"))
            other.commit()
            while thread.is_alive() and not failed():
                time.sleep(0.001)
            other.execute(flag.format(True).encode())
        thread.join(20)
        return outcome

    return run


def test_a_serialization_failure_is_tried_again(
    collide: Callable[..., list[IngestResult | BaseException]],
    db: psycopg.Connection,
    plain: Memfold,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = plain.ingest("Alice has a cat.")
    with caplog.at_level(logging.DEBUG, "memfold"):
        (outcome,) = collide(
            lambda: plain.ingest("Alice has a cat."), lambda: "attempt 1 failed (40001)" in caplog.text
        )
    assert isinstance(outcome, IngestResult), outcome
    assert (outcome.action, outcome.memory_id) == ("merged", made.memory_id)
    assert "attempt 1 failed (40001), trying again" in caplog.text
    assert one(db, "select observations from memfold.memory_totals") == 2


def test_a_deadlock_is_tried_again(
    dsn: str, db: psycopg.Connection, plain: Memfold, caplog: pytest.LogCaptureFixture
) -> None:
    plain.ingest("Alice has a cat.")
    outcome: list[IngestResult] = []
    thread = threading.Thread(target=lambda: outcome.append(plain.ingest("Alice has a cat.")))
    with psycopg.connect(dsn) as other, caplog.at_level(logging.DEBUG, "memfold"):
        # The client must be the victim: it finds the deadlock first.
        other.execute("set deadlock_timeout = '1min'")
        other.execute("lock table memfold.memory_events in share mode")
        thread.start()
        until(lambda: one(db, WAITING))
        other.execute("update memfold.memory_counters set access_count = 1")
        other.commit()
        thread.join(20)
    assert [result.action for result in outcome] == ["merged"]
    assert "attempt 1 failed (40P01), trying again" in caplog.text
    assert db.execute("select observations, access_count from memfold.memory_totals").fetchone() == (2, 1)


def test_retries_come_to_an_end(
    collide: Callable[..., list[IngestResult | BaseException]], dsn: str, db: psycopg.Connection
) -> None:
    with Memfold(dsn, "t", max_attempts=1) as client:
        client.ingest("Alice has a cat.")
        (outcome,) = collide(lambda: client.ingest("Alice has a cat."), lambda: False)
        assert isinstance(outcome, errors.RetryableError), outcome
        assert outcome.sqlstate == "40001"
        assert one(db, "select observations from memfold.memory_totals") == 1
        assert client.ingest("Alice has a cat.").action == "merged"


def test_sixteen_clients_at_once(dsn: str, db: psycopg.Connection) -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with Memfold(dsn, "t") as client:
                for n in range(20):
                    client.ingest(f"fact {n % 5}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert db.execute("select observations from memfold.memory_totals").fetchall() == [(64,)] * 5


def test_threads_may_share_a_client(plain: Memfold, db: psycopg.Connection) -> None:
    threads = [threading.Thread(target=plain.ingest, args=("a fact", f"t{n}")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one(db, "select count(distinct tenant_id) from memfold.memories") == 8


TERMINATE = """
select pg_terminate_backend(pid, 60000) from pg_stat_activity
where datname = current_database() and application_name = 'memfold'
"""


def test_a_connection_lost_between_calls_is_replaced(plain: Memfold, db: psycopg.Connection) -> None:
    plain.ingest("Alice has a cat.")
    db.execute(TERMINATE)
    assert plain.ingest("Alice has a cat.").action == "merged"
    assert one(db, "select count(*) from memfold.memory_events") == 2


@pytest.fixture
def dies_at_commit(db: psycopg.Connection) -> None:
    """The first transaction that writes to the ledger loses its server process while it commits."""
    db.execute(
        """
        create sequence public.deaths;
        create function public.die() returns trigger language plpgsql security definer as $$
        begin
            if nextval('public.deaths') = 1 then
                perform pg_terminate_backend(pg_backend_pid());
            end if;
            return null;
        end $$;
        create constraint trigger die after insert on memfold.memory_events
        deferrable initially deferred for each row execute function public.die();
        """
    )


@pytest.mark.usefixtures("dies_at_commit")
def test_a_session_that_is_ended_has_written_nothing(plain: Memfold, db: psycopg.Connection) -> None:
    """The server says so, even while it commits: the call is sent again."""
    assert plain.ingest("Alice has a cat.").action == "inserted"
    assert one(db, "select count(*) from memfold.memory_events") == 1


@pytest.fixture
def answer_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call succeeds, but its answer is lost."""
    execute = psycopg.Connection.execute
    lost: list[Any] = []

    def lose(connection: Any, statement: Any, *given: Any, **named: Any) -> Any:
        cursor = execute(connection, statement, *given, **named)
        if "ingest_memory" in str(statement) and not lost:
            lost.append(statement)
            connection.pgconn.finish()
            raise psycopg.OperationalError("the connection is lost")
        return cursor

    monkeypatch.setattr(psycopg.Connection, "execute", lose)


@pytest.mark.usefixtures("answer_lost")
def test_an_answer_that_is_lost_leaves_the_outcome_open(plain: Memfold, db: psycopg.Connection) -> None:
    with pytest.raises(errors.OutcomeUnknownError, match="idempotency_key"):
        plain.ingest("Alice has a cat.")
    assert one(db, "select count(*) from memfold.memory_events") == 1
    assert plain.ingest("Alice has a cat.").action == "merged"


@pytest.mark.usefixtures("answer_lost")
def test_a_lost_answer_is_requested_again_by_its_key(plain: Memfold, db: psycopg.Connection) -> None:
    assert plain.ingest("Alice has a cat.", idempotency_key="k").action == "inserted"
    assert one(db, "select count(*) from memfold.memory_events") == 1


@pytest.mark.usefixtures("dies_at_commit")
@pytest.mark.parametrize(("retry_safe", "key"), [(True, None), (False, "k")])
def test_a_key_makes_it_safe_to_send_again(
    dsn: str, db: psycopg.Connection, retry_safe: bool, key: str | None
) -> None:
    with Memfold(dsn, "t", retry_safe=retry_safe) as client:
        assert client.ingest("Alice has a cat.", idempotency_key=key).action == "inserted"
    assert one(db, "select count(*) from memfold.memory_events") == 1
    assert one(db, "select count(*) from memfold.idempotency_keys") == 1


def test_no_key_is_written_unless_asked_for(plain: Memfold, db: psycopg.Connection) -> None:
    plain.ingest("Alice has a cat.")
    assert one(db, "select count(*) from memfold.idempotency_keys") == 0


def test_no_server(dsn: str) -> None:
    with pytest.raises(errors.ConnectionLostError):
        Memfold("postgresql://nobody@127.0.0.1:1/nothing").ingest("a fact", "t")


def test_the_client_relies_on_no_session_state(dsn: str, db: psycopg.Connection) -> None:
    """Behind a pooler every call may meet another session, and none may leave a setting behind."""
    name = one(db, "select current_database()")
    db.execute(f"alter database {name} set search_path = pg_catalog".encode())
    db.execute(f"alter database {name} set default_transaction_isolation = 'serializable'".encode())
    bare = make_conninfo(**(conninfo_to_dict(dsn) | {"options": None}))
    with Memfold(bare) as client:
        assert client.ingest("a fact", "a").action == "inserted"
        assert client.ingest("a fact", "b").action == "inserted"
        assert client._connection is not None
        setting = client._connection.execute("select current_setting('memfold.tenant_id', true) as s")
        assert setting.fetchone() in ({"s": ""}, {"s": None})
        assert client._connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_async_survives_a_lost_connection_and_a_cancelled_call(dsn: str, db: psycopg.Connection) -> None:
    async def work() -> None:
        async with AsyncMemfold(dsn, "t") as client:
            await client.ingest("Alice has a cat.")
            db.execute(TERMINATE)
            assert (await client.ingest("Alice has a cat.")).action == "merged"
            with psycopg.connect(dsn) as other:
                other.execute("select from memfold.memory_counters for update")
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(client.ingest("Alice has a cat."), 0.3)
            assert (await client.ingest("Alice has a cat.")).action == "merged"

    asyncio.run(work())
    assert one(db, "select observations from memfold.memory_totals") == 3


@pytest.mark.usefixtures("dies_at_commit")
def test_async_resends_calls_that_have_a_key(dsn: str, db: psycopg.Connection) -> None:
    async def work() -> str:
        async with AsyncMemfold(dsn, "t", retry_safe=True) as client:
            return (await client.ingest("Alice has a cat.")).action

    assert asyncio.run(work()) == "inserted"
    assert one(db, "select count(*) from memfold.memory_events") == 1


@pytest.mark.one_server
def test_a_call_interrupted_by_an_upgrade_is_sent_once_more() -> None:
    """It met functions of both versions; it failed as a whole, and nothing of it is stored."""
    steps = Core("acme", None, False, 8, None).query("select 1")
    assert isinstance(next(steps), Transact)
    assert isinstance(steps.throw(psycopg.errors.UndefinedFunction("gone")), Pause)
    assert isinstance(next(steps), Transact)
    with pytest.raises(MemfoldError, match="gone"):
        steps.throw(psycopg.errors.UndefinedFunction("gone"))
