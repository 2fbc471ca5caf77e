"""How long a step of an adoption waits for a lock: not long enough for others to queue behind it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from memfold.adopt import session as sessions
from memfold.adopt import steps
from memfold.adopt.session import Session
from tests.conftest import Connect
from tests.support.adopting import OPTIONS, TABLE, finish, make_tables, waiting
from tests.support.queries import DB, one
from tests.support.waiting import until

pytestmark = pytest.mark.one_server


class Running:
    """A command in a thread of this process."""

    def __init__(self, dsn: str, *arguments: str, code: int) -> None:
        self.said: list[str | BaseException] = []

        def work() -> None:
            try:
                self.said.append(finish(dsn, *arguments, code=code))
            except BaseException as error:
                self.said.append(error)

        self.thread = threading.Thread(target=work)
        self.thread.start()

    def ended(self) -> bool:
        return not self.thread.is_alive()

    def output(self) -> str:
        self.thread.join(60)
        (said,) = self.said
        assert isinstance(said, str), said
        return said


@contextlib.contextmanager
def holding(connect: Connect, statement: str) -> Iterator[DB]:
    holder = connect()
    holder.execute(f"begin; {statement}")
    try:
        yield holder
    finally:
        holder.execute("rollback")


def writes_while(running: Running, writer: DB, statement: str) -> int:
    """Write until the command has ended; no write waits longer than three seconds, which are thirty times the option's."""
    writer.execute("set lock_timeout = '3s'")
    until = time.monotonic() + 60
    times = 0
    while not running.ended():
        assert time.monotonic() < until, "the command waits indefinitely"
        writer.execute(statement)
        times += 1
        running.thread.join(0.02)
    return times


@pytest.mark.parametrize(
    ("steps", "command", "held"),
    [
        (0, ("run", *OPTIONS, "--step", "1"), "select count(*) from app.memories"),
        (1, ("run", *TABLE, "--step", "2"), "update app.memories set reads = 1 where id = 1"),
        (3, ("undo", *TABLE), "select count(*) from app.memories"),
    ],
    ids=["column", "trigger", "undo"],
)
def test_a_step_gives_up_before_others_wait_behind_it(
    db: DB,
    dsn: str,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    command: tuple[str, ...],
    held: str,
) -> None:
    make_tables(db, 60)
    for step in range(1, steps + 1):
        finish(dsn, "run", *OPTIONS, "--step", str(step))
    # as if each holder had begun a moment ago: then it asks for the lock instead of waiting for the holder's end
    monkeypatch.setattr(sessions, "_LONG", 1e9)
    with holding(connect, held):
        running = Running(dsn, *command, "--patience", "2", code=1)
        try:
            until(lambda: waiting(db))
            assert (
                writes_while(running, connect(), "update app.memories set reads = reads + 1 where id = 5") > 0
            )
        finally:
            db.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and application_name = 'memfold adopt'"
            )
        assert "no lock on app.memories within" in running.output()
    finish(dsn, *command)


def test_waiting_for_locked_duplicates_ends_in_time(db: DB, dsn: str, connect: Connect) -> None:
    """The rows of a batch are locked in order: a session that waits for the last one must not hold the first one."""
    make_tables(db, 0)
    db.execute(
        "insert into app.memories (tenant_id, content) values ('t', 'one'), ('t', 'ONE'), ('t', 'two'), ('t', 'TWO')"
    )
    finish(dsn, "run", *OPTIONS)
    with holding(connect, "update app.memories set reads = 1 where id = 4"):
        running = Running(dsn, "run", *TABLE, "--confirm", "--patience", "2", code=1)
        try:
            until(lambda: waiting(db))
            assert (
                writes_while(running, connect(), "update app.memories set reads = reads + 1 where id = 1") > 0
            )
        finally:
            db.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and application_name = 'memfold adopt'"
            )
        assert "rows remain locked by other transactions" in running.output()
    finish(dsn, "run", *TABLE, "--confirm")
    assert one(db, "select array_agg(id order by id) from app.memories") == [1, 3]


def test_hashes_are_set_again_after_earlier_writers_end(
    db: DB, dsn: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that began while rows got no hash may still write one without: the run waits for it before it
    looks for such rows."""
    make_tables(db, 60)
    finish(dsn, "run", *OPTIONS)
    writer = connect()
    withhold = steps._withhold

    def begin_before(session: Session, withheld: bool) -> None:
        if not withheld:
            writer.execute("begin; insert into app.memories (tenant_id, content) values ('t7', 'late')")
        withhold(session, withheld)

    def end_meanwhile(seconds: float) -> None:
        writer.execute("commit")
        time.sleep(seconds)

    monkeypatch.setattr(steps, "_withhold", begin_before)
    monkeypatch.setattr(steps, "time", SimpleNamespace(monotonic=time.monotonic, sleep=end_meanwhile))
    finish(dsn, "run", *TABLE, "--confirm")
    writer.execute("commit")
    assert one(db, "select content_hash is not null from app.memories where content = 'late'")


def test_a_restore_waits_for_a_writer_that_is_nearly_done(db: DB, dsn: str, connect: Connect) -> None:
    """It waits up to two seconds: nobody can wait for rows that are not restored yet."""
    make_tables(db, 120)
    finish(dsn, "run", *OPTIONS, "--confirm")
    assert one(db, "select count(*) from memfold.adoption_archive") > 0
    with holding(connect, "select 1 from app.links for update") as holder:
        running = Running(dsn, "undo", *TABLE, "--restore", code=0)
        until(lambda: waiting(db) or running.ended())
        holder.execute("rollback")
        assert "undone" in running.output()
    assert one(db, "select count(*) from app.memories") == 120


class Recorded(Session):
    """Sends nothing."""

    def __init__(self, lock_timeout: float) -> None:
        self.lock_timeout = lock_timeout
        self.sent: list[str] = []
        self.connection: Any = self

    @contextlib.contextmanager
    def transaction_of_its_own(self) -> Iterator[None]:
        self.sent.append("begin")
        yield
        self.sent.append("commit")

    def run(self, *made: str) -> None:
        self.sent += made


@pytest.mark.parametrize(
    ("own", "asked", "milliseconds"),
    [(0.1, None, 100), (0.05, None, 50), (0.1, 2, 2000), (0.1, 5, 5000), (1e-6, None, 1)],
)
def test_no_transaction_waits_without_end(own: float, asked: float | None, milliseconds: int) -> None:
    recorded = Recorded(own)
    recorded.connection = type("Connection", (), {"transaction": recorded.transaction_of_its_own})()
    with recorded.transaction(lock_timeout=asked):
        recorded.run("work")
    assert recorded.sent == ["begin", f"set local lock_timeout = {milliseconds}", "work", "commit"]
    if asked is None:
        assert recorded.beginning() == [("begin", ()), (f"set local lock_timeout = {milliseconds}", ())]


def test_lock_waits_are_shorter_than_deadlock_timeout(
    db: DB, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no other session is the victim of a deadlock with it."""
    made: list[Session] = []
    real = Session.__init__

    def noted(self: Session, *given: Any) -> None:
        real(self, *given)
        made.append(self)

    monkeypatch.setattr(Session, "__init__", noted)
    make_tables(db, 10)
    deadlock = float(one(db, "select extract(epoch from current_setting('deadlock_timeout')::interval)"))
    for milliseconds in (10, 10_000):
        finish(dsn, "run", *OPTIONS, "--lock-timeout", str(milliseconds), "--step", str(len(made) + 1))
    assert [one.lock_timeout for one in made] == [0.01, deadlock / 2]
