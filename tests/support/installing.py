"""Install and upgrade by DSN: run, ask, use, and look at what an installation consists of."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from memfold.tools import cli
from tests.support import servers
from tests.support.catalog import plain, snapshot


def rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def run(dsn: str, statement: str) -> None:
    """Execute statements."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def works(dsn: str) -> None:
    """Ingest a fact with a vector, and again."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select memfold.register_embedding_model('m', 3, 0.92, 0.85)")
        call = b"""
            select action from memfold.ingest_memory('Alice has a cat.', 't', embedding => '[1,2,3]',
                embedding_model => 'm')
        """
        assert connection.execute(call).fetchone() == ("inserted",)
        assert connection.execute(call).fetchone() == ("merged",)


# What the extension consists of, and which tables' rows are dumped with it.
MEMBERS = """
select pg_describe_object(d.classid, d.objid, 0) from pg_depend as d
join pg_extension as e on e.oid = d.refobjid
where d.refclassid = 'pg_extension'::regclass and d.deptype = 'e' and e.extname = 'memfold'
union all
select 'dumped: ' || c.oid::regclass::text || ' ' || c.condition from pg_extension as e
cross join unnest(e.extconfig, e.extcondition) as c (oid, condition) where e.extname = 'memfold'
order by 1
"""


def ask(dsn: str, query: str) -> list[Any]:
    """The rows of a query; of one column, its values."""
    return [row[0] if len(row) == 1 else row for row in rows(dsn, query)]


def catalog(dsn: str) -> list[str]:
    """What of the catalog is alike in all databases."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return plain(snapshot(connection))


def broken(dsn: str) -> list[Any]:
    """Invariants that do not hold, and what is left in the schema of an upgrade that failed."""
    return ask(dsn, f"select invariant || ' ' || memory_id from memfold.check_invariants('{servers.BEFORE}')")


# To others than memfold's roles.
GRANTED = """
select r.name, a.privilege_type from (
    select 'schema', nspacl, nspowner from pg_namespace where nspname in ('memfold', 'memfold_internal')
    union all
    select p.oid::regprocedure::text, p.proacl, p.proowner from pg_proc as p
    where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and p.proname !~ '_app_docs_1$'
    union all
    select c.oid::regclass::text, c.relacl, c.relowner from pg_class as c
    where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[])
) as r (name, acl, owner)
cross join aclexplode(r.acl) as a
where a.grantee <> r.owner and a.grantee::regrole::text !~ '^memfold_'
order by 1, 2
"""


def adopt_docs(dsn: str, owner: str, *options: str) -> None:
    """Adopt a table of another role, with a duplicate in it; the table's name ends like a canonicalizer's part."""
    run(
        dsn,
        "create schema app; create table app.docs_1 (id bigint generated always as identity primary key, text text);"
        " insert into app.docs_1 (text) values ('A fact.'), ('a  FACT'), ('Another.');"
        f" grant usage, create on schema app to {owner}; alter table app.docs_1 owner to {owner}",
    )
    arguments = [
        "run",
        "--table",
        "app.docs_1",
        "--content",
        "text",
        "--confirm",
        "--trust-owner",
        "--dsn",
        dsn,
    ]
    done = CliRunner().invoke(cli.main, ["adopt", *arguments, *options])
    assert done.exit_code == 0, done.output
    assert ask(dsn, "select count(*) from memfold.adoption_archive") == [1]


def still_adopted(dsn: str, owner: str, *, absorbs: bool = False) -> None:
    """Its owner writes to the table and finds what is there; a new text is new."""
    with psycopg.connect(dsn) as connection:
        connection.execute(f"set local role {owner}".encode())
        call = "select deduped from memfold.insert_app_docs_1(text => %s)"
        found = [connection.execute(call.encode(), [text]).fetchone() for text in ("a fact!", "New.", "new")]
        assert found == [(True,), (False,), (True,)]
        known = "insert into app.docs_1 (text) values ('ANOTHER')"
        if absorbs:
            assert connection.execute(known.encode()).rowcount == 0
        else:
            with pytest.raises(psycopg.errors.UniqueViolation):
                connection.execute(known.encode())
        connection.rollback()
