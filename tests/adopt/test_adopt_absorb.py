"""An adoption that absorbs: an INSERT of an existing text succeeds without a row, and is counted instead."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo

from memfold.tools.cli import main
from tests.conftest import Connect
from tests.support.adopting import CHILDREN, OPTIONS, TABLE, catalog, drop_roles, make_tables
from tests.support.queries import DB, one
from tests.support.waiting import until

INSERT = "insert into app.memories (tenant_id, content) values ('t9', %s)"
REPEATS = "select coalesce(sum(repeats), 0)::bigint from memfold.adoption_repeats"
COUNTED = """
select m.content, sum(r.repeats)::bigint from app.memories as m
join memfold.adoption_repeats as r on r.adoption = 'app_memories' and (r.row_key ->> 'id')::bigint = m.id
group by 1 order by 1
"""
Run = Callable[..., str]


@pytest.fixture
def run(dsn: str) -> Run:
    def invoke(*arguments: str, code: int = 0) -> str:
        result = CliRunner(env={"MEMFOLD_DSN": dsn}).invoke(main, ["adopt", *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == code, result.output
        return result.output

    return invoke


@pytest.fixture
def absorbing(db: DB, run: Run) -> None:
    make_tables(db, 60)
    run("run", *OPTIONS, "--confirm", "--absorb")


class Waiting:
    """A statement of another session, from the moment at which it waits for a lock."""

    def __init__(self, db: DB, other: DB, statement: str, parameters: Any = None) -> None:
        self.error: psycopg.Error | None = None
        self.rows = -1
        self._thread = threading.Thread(target=self._run, args=(other, statement, parameters), daemon=True)
        self._thread.start()
        until(
            lambda: one(
                db,
                "select count(*) from pg_stat_activity where pid = %s and wait_event_type = 'Lock'",
                other.info.backend_pid,
            )
        )

    def _run(self, other: DB, statement: str, parameters: Any) -> None:
        try:
            self.rows = other.execute(statement.encode(), parameters).rowcount
        except psycopg.Error as error:
            self.error = error

    def end(self) -> int:
        """The rows of the statement; raises what it raised."""
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.rows


@pytest.mark.core
def test_a_thousand_texts_with_a_tenth_of_duplicates(db: DB, absorbing: None) -> None:
    """One by one, in one statement, by executemany and by COPY."""
    ways: list[Callable[[list[str]], int]] = [
        lambda texts: sum(db.execute(INSERT, [text]).rowcount for text in texts),
        lambda texts: (
            db.execute(
                "insert into app.memories (tenant_id, content) select 't9', unnest(%s::text[])", [texts]
            ).rowcount
        ),
        lambda texts: executed(db, texts),
        lambda texts: copied(db, texts),
    ]
    for n, way in enumerate(ways):
        texts = [f"Way {n} likes tea {i}." for i in range(900)]
        texts += [f"  way {n} LIKES tea {i % 90}" for i in range(90)] + [f"way {n} likes tea 0"] * 10
        random.Random(n).shuffle(texts)
        before = one(db, REPEATS)
        assert way(texts) == 900
        assert one(db, REPEATS) - before == 100
        rows = db.execute(COUNTED.encode()).fetchall()
        counted = {content.lower().strip(" ."): count for content, count in rows if f"ay {n}" in content}
        assert len(counted) == 90
        assert counted[f"way {n} likes tea 0"] == 11
        assert counted[f"way {n} likes tea 1"] == 1
    assert one(db, "select count(*) from app.memories where tenant_id = 't9'") == 3600
    assert one(db, "select count(*) from memfold.adoption_claims") == 0


def executed(db: DB, texts: list[str]) -> int:
    with db.cursor() as cursor:
        cursor.executemany(INSERT, [[text] for text in texts])
        return cursor.rowcount


def copied(db: DB, texts: list[str]) -> int:
    with db.cursor() as cursor:
        with cursor.copy("copy app.memories (tenant_id, content) from stdin") as copy:
            for text in texts:
                copy.write_row(["t9", text])
        return cursor.rowcount


def test_the_second_of_two_concurrent_inserts_is_absorbed(db: DB, absorbing: None, connect: Connect) -> None:
    first, second = connect(), connect()
    first.execute("begin")
    assert first.execute(INSERT, ["A new fact."]).rowcount == 1
    waiting = Waiting(db, second, INSERT, ["a NEW fact"])
    first.execute("commit")
    assert waiting.end() == 0
    assert db.execute(COUNTED.encode()).fetchall() == [("A new fact.", 1)]
    # and if the first one rolls back, the second one is inserted
    first.execute("begin")
    assert first.execute(INSERT, ["Another fact."]).rowcount == 1
    waiting = Waiting(db, second, INSERT, ["another FACT"])
    first.execute("rollback")
    assert waiting.end() == 1
    assert one(db, REPEATS) == 1
    # even if it was a part of a transaction that goes on
    first.execute("begin; savepoint s")
    first.execute(INSERT, ["A third fact."])
    waiting = Waiting(db, second, INSERT, ["a third FACT"])
    first.execute("rollback to s")
    assert waiting.end() == 1
    first.execute("commit")


def test_another_text_and_another_tenant_do_not_wait(db: DB, absorbing: None, connect: Connect) -> None:
    holder, other = connect(), connect()
    holder.execute("begin")
    holder.execute(INSERT, ["A new fact."])
    other.execute("set lock_timeout = '3s'")
    assert other.execute(INSERT, ["A newer fact."]).rowcount == 1
    assert other.execute(INSERT.replace("'t9'", "'t8'"), ["A new fact."]).rowcount == 1
    holder.execute("rollback")


def test_known_texts_in_another_order_do_not_deadlock(db: DB, absorbing: None, connect: Connect) -> None:
    """They do not without memfold either: a writer that repeats an existing text waits for nobody."""
    for text in ("x", "y", "X", "Y"):
        db.execute(INSERT, [text])
    first, second = connect(), connect()
    for session in (first, second):
        session.execute("set lock_timeout = '3s'; begin")
    for session, text in ((first, "X"), (second, "Y"), (first, "Y!"), (second, "X!")):
        assert session.execute(INSERT, [text]).rowcount == 0
    first.execute("commit")
    second.execute("commit")
    assert db.execute(COUNTED.encode()).fetchall() == [("x", 3), ("y", 3)]


def test_a_row_deleted_in_the_meantime_does_not_lose_the_text(
    db: DB, absorbing: None, connect: Connect
) -> None:
    first, second = connect(), connect()
    for change in ("delete from app.memories where content = 'A fact.'",
                   "update app.memories set content = 'Something else' where content = 'A fact.'"):  # fmt: skip
        db.execute(INSERT, ["A fact."])
        first.execute(f"begin; {change}".encode())
        waiting = Waiting(db, second, INSERT, ["a FACT"])
        first.execute("commit")
        assert waiting.end() == 1
        assert one(db, "select count(*) from app.memories where content = 'a FACT'") == 1
        db.execute("delete from app.memories where content in ('a FACT', 'Something else')")
    assert one(db, REPEATS) == 0
    # deleted and stated again in one transaction, concurrently with a writer of the same
    db.execute(INSERT, ["A fact."])
    first.execute("begin; delete from app.memories where content = 'A fact.'")
    assert first.execute(INSERT, ["a FACT"]).rowcount == 1
    waiting = Waiting(db, second, INSERT, ["A  fact"])
    first.execute("commit")
    assert waiting.end() == 0
    assert db.execute(COUNTED.encode()).fetchall() == [("a FACT", 1)]


def test_an_update_still_raises(db: DB, absorbing: None, connect: Connect) -> None:
    db.execute(INSERT, ["One."])
    db.execute(INSERT, ["Two."])
    with pytest.raises(psycopg.errors.UniqueViolation):
        db.execute("update app.memories set content = 'ONE' where content = 'Two.'")
    # but one that is under way is waited for
    first, second = connect(), connect()
    first.execute("begin; update app.memories set content = 'Three.' where content = 'Two.'")
    waiting = Waiting(db, second, INSERT, ["three"])
    first.execute("commit")
    assert waiting.end() == 0
    assert one(db, REPEATS) == 1


@pytest.mark.core
def test_an_upsert_by_key(db: DB, absorbing: None) -> None:
    upsert = (
        "insert into app.memories (id, tenant_id, content, reads) values (%s, 't9', %s, %s)"
        " on conflict (id) do update set content = excluded.content, reads = excluded.reads"
    )
    assert db.execute(upsert, [901, "One.", 1]).rowcount == 1
    assert db.execute(upsert, [902, "Two.", 1]).rowcount == 1
    assert db.execute(upsert, [903, "ONE", 1]).rowcount == 0, "a new key with a known text"
    assert db.execute(upsert, [901, "one!", 2]).rowcount == 1, "the row itself"
    assert db.execute(upsert, [901, "Uno.", 3]).rowcount == 1
    with pytest.raises(psycopg.errors.UniqueViolation):
        db.execute(upsert, [901, "two", 4])
    with pytest.raises(psycopg.errors.UniqueViolation) as error:
        db.execute("insert into app.memories (id, tenant_id, content) values (901, 't9', 'two')")
    assert error.value.diag.constraint_name == "memories_pkey"
    rows = "select id, content, reads from app.memories where tenant_id = 't9' order by id"
    assert db.execute(rows).fetchall() == [(901, "Uno.", 3), (902, "Two.", 1)]
    assert one(db, REPEATS) == 1
    # memfold's own function says which row it is, and counts it
    call = "select * from memfold.insert_app_memories(tenant_id => 't9', content => 'TWO')"
    assert db.execute(call).fetchone() == (902, True)
    assert one(db, REPEATS) == 2


def test_in_other_isolation_levels_the_index_decides(db: DB, absorbing: None, connect: Connect) -> None:
    db.execute(INSERT, ["A fact."])
    other = connect()
    for level in ("repeatable read", "serializable"):
        other.execute(f"begin isolation level {level}".encode())
        with pytest.raises(psycopg.errors.UniqueViolation):
            other.execute(INSERT, ["a FACT"])
        other.execute("rollback")
    assert one(db, REPEATS) == 0


def test_a_large_insert_takes_no_lock_per_row(db: DB, absorbing: None) -> None:
    many = "insert into app.memories (tenant_id, content) select 't9', 'Fact ' || i %% %s from generate_series(1, %s) as i"
    with db.transaction():
        assert db.execute(many, [5000, 10_000]).rowcount == 5000
        assert one(db, "select count(*) from pg_locks where pid = pg_backend_pid()") < 60
    assert one(db, REPEATS) == 5000
    # always the same text
    assert db.execute(many, [1, 2000]).rowcount == 0
    assert db.execute(COUNTED).fetchall()[:2] == [("Fact 0", 2001), ("Fact 1", 1)]


def test_repeating_a_text_reads_no_more_pages_each_time(db: DB, absorbing: None) -> None:
    """Constant, although its own transaction has written the previous version of the count."""
    db.execute(INSERT, ["Fact"])
    many = "insert into app.memories (tenant_id, content) select 't9', 'Fact' from generate_series(1, %s)"
    each = []
    for count in (1000, 5000):
        plan = one(db, f"explain (analyze, buffers, format json) {many % count}")[0]["Plan"]
        each.append((plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]) / count)
    assert each[1] < 1.2 * each[0]
    assert db.execute(COUNTED).fetchall() == [("Fact", 6000)]
    # part of a transaction that is undone
    with db.transaction():
        db.execute(INSERT, ["Fact"])
        with db.transaction(force_rollback=True):
            db.execute(many % 150)
        db.execute(many % 250)
    assert db.execute(COUNTED).fetchall() == [("Fact", 6251)]


def test_eight_writers_of_the_same_texts(db: DB, absorbing: None, connect: Connect) -> None:
    """No insert fails, each text is stored once, and each insert is a row or a repeat."""
    sessions = [connect() for _ in range(8)]
    errors: list[Exception] = []

    def write(session: DB, seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(60):
                # in one order, as for any unique index
                texts = sorted(f"Fact {chance.randrange(120)}" for _ in range(5))
                session.execute(
                    "insert into app.memories (tenant_id, content) select 't9', unnest(%s::text[])", [texts]
                )
                if chance.random() < 0.2:
                    gone = f"Fact {chance.randrange(120)}"
                    session.execute(
                        "delete from app.memories where tenant_id = 't9' and content = %s", [gone]
                    )
                    session.execute("insert into app.memories (tenant_id, content) values ('t9', %s)", [gone])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(one, n)) for n, one in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    twice = "select content from app.memories where tenant_id = 't9' group by 1 having count(*) > 1"
    assert db.execute(twice).fetchall() == []
    assert one(db, REPEATS) > 1000
    assert one(db, "select count(*) from memfold.adoption_claims") == 0


# The walk ---------------------------------------------------------------------------------------------------


def test_switched_on_and_off(db: DB, run: Run) -> None:
    make_tables(db, 60)
    before = catalog(db)
    assert "adoption_repeats" not in run("plan", *OPTIONS)
    planned = run("plan", *OPTIONS, "--absorb")
    assert "adoption_repeats" in planned
    assert "memfold.adopted_claim('app_memories'" in planned
    # said once, whatever happens in between
    run("run", *OPTIONS, "--absorb", "--step", "1")
    assert "absorbed after step 6" in run("status")
    assert "memfold.adopted_claim('app_memories'" in run("plan", *TABLE)
    done = run("run", *TABLE, "--confirm")
    assert "or with a plain INSERT: a known text is absorbed." in done
    db.execute(INSERT, ["A fact."])
    for text in ("a FACT", "a fact!"):
        assert db.execute(INSERT, [text]).rowcount == 0
    said = run("status")
    assert "an INSERT of a known text is absorbed\n" in said
    assert "inserts absorbed 2, for the texts of 1 rows" in said
    run("run", *TABLE, "--no-absorb")
    with pytest.raises(psycopg.errors.UniqueViolation):
        db.execute(INSERT, ["a FACT"])
    assert "inserts absorbed 2" in run("status")
    run("run", *TABLE, "--absorb")
    assert db.execute(INSERT, ["a FACT"]).rowcount == 0
    run("run", *TABLE)
    assert db.execute(INSERT, ["a FACT"]).rowcount == 0, "a run without the option leaves it"
    run("undo", *TABLE, "--restore")
    assert one(db, "select count(*) from memfold.adoption_repeats") == 0
    assert [row for row in catalog(db) if row[0] != "archived"] == before
    assert db.execute(INSERT, ["a FACT"]).rowcount == 1


def test_a_writer_and_an_owner_without_rights(db: DB, run: Run, connect: Connect, dsn: str) -> None:
    """A superuser adopts: the function runs as the table's owner, who may only call its parts."""
    owner, writer = f"owner_{db.info.dbname}", f"writer_{db.info.dbname}"
    make_tables(db, 60)
    for role in (owner, writer):
        db.execute(f"drop role if exists {role}")
        db.execute(f"create role {role} login")
    try:
        db.execute(f"alter schema app owner to {owner}")
        for table in ("memories", *CHILDREN):
            db.execute(f"alter table app.{table} owner to {owner}")
        db.execute(f"grant usage on schema app to {writer}; grant insert on app.memories to {writer}")
        run("run", *OPTIONS, "--confirm", "--absorb", "--trust-owner")
        may = f"select has_function_privilege('{writer}', oid, 'execute') from pg_proc where proname = 'insert_app_memories'"
        assert one(db, may), "a role that may insert may call the insert function"
        app = connect(user=writer)
        assert app.execute(INSERT, ["A fact."]).rowcount == 1
        assert app.execute(INSERT, ["a FACT"]).rowcount == 0
        for refused in ("select memfold.adopted_repeat('app_memories', '{}')",
                        "select * from memfold.adoption_repeats"):  # fmt: skip
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                app.execute(refused.encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connect(user=owner).execute("select * from memfold.adoption_repeats")
        assert one(db, REPEATS) == 1
        # and where the owner adopts
        run("undo", *TABLE, "--restore", "--trust-owner")
        db.execute(f"delete from app.memories where tenant_id = 't9'; grant memfold_owner to {owner}")
        run("run", *OPTIONS, "--dsn", make_conninfo(dsn, user=owner), "--confirm", "--absorb")
        assert app.execute(INSERT, ["A fact."]).rowcount == 1
        assert app.execute(INSERT, ["a FACT"]).rowcount == 0
    finally:
        drop_roles(db, owner, writer)
