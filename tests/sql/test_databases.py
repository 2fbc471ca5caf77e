"""A test does not see what the previous one left (tests/support/databases.py): its database is clean, or a new one."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest

from tests.conftest import Target
from tests.support import databases, servers
from tests.support.queries import DB

Lend = Callable[..., AbstractContextManager[DB]]


@pytest.fixture
def lend(target: Target, request: pytest.FixtureRequest) -> Iterator[Lend]:
    """Lends databases of one name, which no other test is lent."""
    made = request.getfixturevalue(f"noproc_{target.cluster.name}_{target.way}")
    name = f"lent_{uuid.uuid4().hex[:12]}"
    where = {"host": made.host, "port": made.port, "user": made.user}

    def one(*, new: bool = False) -> AbstractContextManager[DB]:
        return databases.lend(made.template_dbname, name, new=new, **where)

    yield one
    kept = databases.KEPT.pop((made.host, name), None)
    if kept is not None:
        kept.drop()


CATALOGS = """
select relname::text from pg_class
where relkind = 'r' and relnamespace = 'pg_catalog'::regnamespace and not relisshared
"""
# Ignore where a table's files are, and what VACUUM recorded.
FILES = "relfilenode,relpages,reltuples,relallvisible,relallfrozen,relfrozenxid,relminmxid"
DIGESTS = {
    "pg_class": f"sum(hashtext((to_jsonb(t) - '{{{FILES}}}'::text[])::text))",
    # autovacuum may analyze the template between two copies
    "pg_statistic": "0",
}
SESSION = {
    "user": "select current_user::text, session_user::text",
    "settings": "select name, setting from pg_settings where source = 'session'",
    "locks": "select locktype from pg_locks where (locktype = 'advisory' or pid <> pg_backend_pid()) and database = "
    "(select oid from pg_database where datname = current_database())",
    "channels": "select pg_listening_channels()",
    "statements": "select name from pg_prepared_statements",
    "cursors": "select name from pg_cursors where name <> ''",
    "temporary": "select pg_my_temp_schema()::bigint",
    "sessions": "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
    "database": "select setconfig from pg_db_role_setting where setdatabase = (select oid from pg_database"
    " where datname = current_database())",
    "seed": "select current_setting('app.seed', true) is not null and current_setting('app.seed', true) <> ''",
}


def at(db: DB) -> str:
    return f"host={db.info.host} port={db.info.port} user={db.info.user} dbname={db.info.dbname}"


def seen(db: DB) -> dict[str, Any]:
    """Everything that a test could find: rows, catalogs, the settings of the session on both sides."""
    assert db.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    found: dict[str, Any] = {name: db.execute(query.encode()).fetchall() for name, query in SESSION.items()}
    found["client"] = (db.autocommit, db.row_factory, db.prepare_threshold, db.isolation_level)
    found["notifies"] = list(db.notifies(timeout=0))
    found["rows"] = servers.contents(at(db))
    catalogs = [str(name) for (name,) in db.execute(CATALOGS.encode())]
    digests = " union all ".join(
        f"select '{name}', count(*), {DIGESTS.get(name, 'sum(hashtext(t::text))')} from {name} as t"
        for name in catalogs
    )
    found["catalogs"] = db.execute(digests.encode()).fetchall()
    return found


ROWS = """
insert into memfold.options (tenant_id) values ('t');
insert into memfold.memory_tokens values ('t', 'b', 'word', memfold_internal._new_id());
insert into memfold.labelled_pairs (tenant_id, content_a, content_b, label, origin)
values ('t', 'a', 'b', 'distinct', 'import');
insert into memfold.runs (tenant_id, bucket_id, kind, actor) values ('t', 'b', 'sweep', 'somebody');
insert into memfold.calibrations (model, merge_threshold, judge_threshold, report, fingerprint)
values ('before', 0.9, 0.8, '{}', '');
insert into memfold.calibration_changes (model, before, actor) values ('before', '{}', 'somebody');
insert into memfold.adoptions (table_schema, table_name, name, definition) values ('s', 't', 'n', '{}');
insert into memfold.adoption_archive (adoption, reason, table_schema, table_name, row_data)
values ('n', 'duplicate', 's', 't', '{}');
insert into memfold.adoption_repeats (adoption, row_key) values ('n', '{}');
insert into memfold.adoption_claims values (1);
"""


CLEAN: dict[str, dict[str, Any]] = {}


@pytest.fixture
def clean(target: Target, lend: Lend) -> dict[str, Any]:
    """The state of a new copy of the template."""
    if str(target) not in CLEAN:
        with lend(new=True) as db:
            CLEAN[str(target)] = seen(db)
    return CLEAN[str(target)]


def some_of_everything(db: DB) -> None:
    before = servers.contents(at(db))
    servers.fill(at(db))
    db.execute("set session_replication_role = replica")
    db.execute(ROWS.encode())
    after = servers.contents(at(db))
    # (the lexicon's rows are the version's)
    assert [name for name in after if len(after[name]) == len(before[name])] == ["lexicon"]


# Sessions that a test forgot.
OPEN: dict[str, DB] = {}


def another_session(db: DB) -> None:
    """It stays open in a transaction, with a row and locks, as the test ends."""
    other = OPEN.setdefault("another", psycopg.connect(at(db)))
    other.execute("insert into memfold.predicates (tenant_id, predicate) values ('t', 'likes')")
    other.execute("select pg_advisory_lock(7)")


def client_side(db: DB) -> None:
    db.row_factory = psycopg.rows.dict_row  # type: ignore[assignment]
    db.prepare_threshold = 0
    db.execute("select %s", [1])
    db.autocommit = False
    db.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    db.execute("select 1")


def failed(db: DB) -> None:
    db.execute("begin")
    with pytest.raises(psycopg.errors.DivisionByZero):
        db.execute("select 1 / 0")


def said(statements: str) -> Callable[[DB], None]:
    def say(db: DB) -> None:
        db.execute(statements.encode())

    return say


def ended(db: DB) -> None:
    with psycopg.connect(at(db), autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 10000)", [db.info.backend_pid])


def of_database(what: str) -> Callable[[DB], None]:
    return said(f"do $$begin execute format('alter database %I {what}', current_database()); end$$")


# Changes that are undone: the database is lent again with its session.
UNDONE: dict[str, Callable[[DB], None]] = {
    "some rows in each table": some_of_everything,
    "another session": another_session,
    "what the client sets": client_side,
    "a failed transaction": failed,
    "an open transaction": said(
        "begin; insert into memfold.predicates (tenant_id, predicate) values ('t', 'likes')"
    ),
    "settings": said(
        "set work_mem = '1MB'; set search_path = memfold; set memfold.tenant_id = 't'; set app.seed = '1'"
    ),
    "a role": said("set role memfold_app"),
    "another user": said("set session authorization memfold_app"),
    "an advisory lock": said("select pg_advisory_lock(1), pg_advisory_lock_shared(2, 3)"),
    "a channel": said("listen memfold_judgements; notify memfold_judgements, 'x'"),
    "a statement": said("prepare one as select 1"),
    "a cursor": said("declare one cursor with hold for select 1"),
}
# Changes that are only noticed: the next test gets a new database.
NOTICED: dict[str, Callable[[DB], None]] = {
    "a function": said("create function memfold.f() returns integer language sql return 1"),
    "a function again": said("create function public.f() returns integer language sql return 1; drop function public.f()"),
    "a function rolled back": said("begin; create function public.f() returns integer language sql return 1; rollback"),
    "a table": said("create table public.t (n integer)"),
    "a temporary table": said("create temporary table t (n integer)"),
    "an index": said("create index on memfold.memories (content)"),
    "a policy": said("create policy p on memfold.memories"),
    "a trigger": said("alter table memfold.memories disable trigger all"),
    "a grant": said("grant select on memfold.memories to memfold_judge"),
    "a comment": said("comment on table memfold.memories is 'x'"),
    "statistics": said("analyze memfold.antonyms"),
    "a large object": said("select lo_create(0)"),
    "TRUNCATE": said("truncate memfold.idempotency_keys"),
    "a setting of the database": of_database("set work_mem = 99"),
    "a property of the database": of_database("connection limit 9"),
    "counters set back": said("select pg_stat_reset()"),
    "a row of the template, changed": said("update memfold.antonyms set language = language where ctid = '(0,1)'"),
    "a row of the template, deleted": said(
        "set session_replication_role = replica; delete from memfold.antonyms where ctid = '(0,1)'"
    ),
    "many pages": said(
        "insert into memfold.memory_tokens select 't', 'b', n::text, memfold_internal._new_id()"
        " from generate_series(1, 5000) as n"
    ),
    "a session that was closed": lambda db: db.close(),
    "a session that was ended": ended,
}  # fmt: skip


@pytest.mark.parametrize("what", UNDONE)
def test_changes_that_are_undone(lend: Lend, clean: dict[str, Any], what: str) -> None:
    with lend() as db:
        backend = db.info.backend_pid
        UNDONE[what](db)
    if "another" in OPEN:
        with pytest.raises(psycopg.OperationalError):
            OPEN.pop("another").execute("select 1")
    with lend() as db:
        assert db.info.backend_pid == backend
        assert seen(db) == clean


@pytest.mark.parametrize("what", NOTICED)
def test_changes_that_are_noticed(lend: Lend, clean: dict[str, Any], what: str) -> None:
    with lend() as db:
        backend = db.info.backend_pid
        NOTICED[what](db)
    with lend() as db:
        assert db.info.backend_pid != backend
        assert seen(db) == clean


def test_a_new_database_on_demand(lend: Lend) -> None:
    with lend() as db:
        backend = db.info.backend_pid
    with lend(new=True) as db:
        assert db.info.backend_pid != backend


def test_clean_after_a_failure_too(lend: Lend, clean: dict[str, Any]) -> None:
    def fail(db: DB) -> None:
        db.execute("insert into memfold.predicates (tenant_id, predicate) values ('t', 'likes')")
        db.execute("select 1 / 0")

    with pytest.raises(psycopg.errors.DivisionByZero), lend() as db:
        fail(db)
    with lend() as db:
        assert seen(db) == clean
