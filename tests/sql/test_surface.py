"""The pinned SQL surface: what applications call and read, who may, and the SQLSTATEs they can get.

A change shows as a difference to tests/data/surface.txt; ``pytest tests/sql/test_surface.py --pin`` rewrites it, for
review. tests/install/test_upgrade.py says what a release may not take away.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from memfold.client import errors
from tests.support import servers
from tests.support.memories import ingest, model, vector
from tests.support.queries import one

PINNED = Path(__file__).parents[1] / "data" / "surface.txt"

SURFACE = """
with acl as (
    select r.oid, r.kind, string_agg(
        case when a.grantee = 0 then 'PUBLIC' else a.grantee::regrole::text end || ' ' || lower(a.privilege_type),
        ', ' order by a.grantee::regrole::text, a.privilege_type
    ) as granted
    from (
        select p.oid, 'f' as kind, coalesce(p.proacl, acldefault('f', p.proowner)) as acl, p.proowner as owner
        from pg_proc as p
        union all
        select c.oid, 'r', coalesce(c.relacl, acldefault('r', c.relowner)), c.relowner from pg_class as c
    ) as r
    cross join aclexplode(r.acl) as a
    where a.grantee <> r.owner
    group by r.oid, r.kind
)
select case p.prokind when 'p' then 'procedure ' else 'function ' end || p.proname
    || '(' || pg_get_function_arguments(p.oid) || ')' || coalesce(' returns ' || pg_get_function_result(p.oid), '')
    || case p.provolatile when 'i' then ' immutable' when 's' then ' stable' else ' volatile' end
    || case p.proparallel when 's' then ' parallel safe' when 'r' then ' parallel restricted' else '' end
    || case when p.prosecdef then ' security definer' else '' end
    || case when p.proisstrict then ' strict' else '' end
    || ' | ' || coalesce(acl.granted, 'nobody')
from pg_proc as p
left join acl on acl.oid = p.oid and acl.kind = 'f'
where p.pronamespace = 'memfold'::regnamespace and not exists (
    select from pg_depend as d join pg_extension as e on e.oid = d.refobjid
    where d.objid = p.oid and d.deptype = 'e' and e.extname = 'vector')
union all
select case c.relkind when 'v' then 'view ' when 'c' then 'type ' else 'table ' end || c.relname || '('
    || (
        select string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' order by a.attnum)
        from pg_attribute as a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    ) || ')' || case when c.relkind = 'c' then '' else ' | ' || coalesce(acl.granted, 'nobody') end
from pg_class as c
left join acl on acl.oid = c.oid and acl.kind = 'r'
where c.relnamespace = 'memfold'::regnamespace and c.relkind in ('r', 'v', 'c')
    -- what private functions hand to one another is nobody's to rely on
    and (c.relkind <> 'c' or exists (
        select from pg_proc as p where p.prorettype = c.reltype
            and p.pronamespace = 'memfold'::regnamespace))
union all
select 'role ' || r.rolname || case when r.rolcanlogin then ' login' else '' end
    || case when r.rolsuper or r.rolbypassrls then ' bypasses row level security' else '' end
    || coalesce(' in ' || (
        select string_agg(m.roleid::regrole::text, ', ' order by m.roleid::regrole::text)
        from pg_auth_members as m where m.member = r.oid
    ), '')
from pg_roles as r where r.rolname ~ '^memfold_'
union all
select 'setting ' || 'memfold.tenant_id'
"""


def surface(connection: psycopg.Connection[Any]) -> list[str]:
    # names of types without a schema, wherever pgvector is
    connection.execute("set search_path = memfold, public, extensions")
    return sorted(row[0] for row in connection.execute(SURFACE.encode()))


@pytest.mark.core
def test_the_surface_is_as_pinned(db: psycopg.Connection[Any], pytestconfig: pytest.Config) -> None:
    found = surface(db)
    assert len(found) > 50
    if pytestconfig.option.pin:
        PINNED.write_text("\n".join(found) + "\n")
    pinned = PINNED.read_text().splitlines()
    gone, new = sorted(set(pinned) - set(found)), sorted(set(found) - set(pinned))
    assert (gone, new) == ([], []), (
        "if it is meant: pytest tests/sql/test_surface.py --pin, and review the difference"
    )


def sql_text() -> str:
    places = (servers.ROOT / "sql", servers.ROOT / "contrib" / "citus")
    return "".join(path.read_text() for place in places for path in sorted(place.rglob("*.sql")))


def raised_by_sql() -> set[str]:
    """The codes that files of SQL raise: by _fail(code, ...), or in ERRCODE."""
    return set(re.findall(r"(?:_fail\(\s*|errcode\s*=\s*)'(MF\d{3})'", sql_text()))


def raised_by_python() -> set[str]:
    """The codes that memfold_py raises in the database."""
    text = "".join(path.read_text() for path in sorted((servers.ROOT / "plpython").rglob("*.py")))
    return set(re.findall(r'(?:Refusal\(\s*|sqlstate=)"(MF\d{3})"', text))


def test_sqlstates_are_documented_and_mapped() -> None:
    page = (servers.ROOT / "docs" / "errors.md").read_text()
    documented = dict(re.findall(r"(?m)^\| (MF\d{3}) \| `(\w+)` \|", page))
    by_client = set(re.findall(r"(?m)^\| (MF\d{3}) \| `\w+` \| raised by the client", page))
    classes = {code: cls.__name__ for code, cls in errors.CLASSES.items()}
    assert raised_by_sql() | raised_by_python() == set(documented) - by_client
    assert documented == classes
    # no file names a code that is raised nowhere
    assert set(re.findall(r"\bMF\d{3}\b", sql_text())) <= raised_by_sql() | raised_by_python()


# Functions that take a lock, and arguments with which they come to it. %(m)s, %(e)s, %(j)s: a memory, an event, a judgement.
LOCKING = {
    "ingest_memory": "'Unknown', 'acme'",
    "ingest_memories": """'[{"content": "Unknown"}]', 'acme'""",
    "attach_embedding": "%(m)s, '[0, 0, 1, 0]', 'm', 'acme'",
    "resolve_judgement": "%(j)s, 'duplicate', 'acme'",
    "fail_judgement": "%(j)s, 'no answer', 'acme'",
    "merge_memories": "%(m)s, %(n)s, 'acme'",
    "supersede_memory": "%(m)s, %(n)s, 'acme'",
    "update_memory": "%(m)s, 'Unknown', 'acme'",
    "reject_memory": "%(m)s, 'acme'",
    "undo": "%(e)s, 'acme'",
    "undo_run": "%(r)s, 'acme'",
    "undo_actor": "current_user, now() - interval '1 hour', 'acme'",
    "set_predicate": "'lives_in', 'acme'",
    "set_policy": "'acme', 'default', conflict => 'keep_both'",
    "link_subject": "'Bob', 'Robert', 'acme'",
    "link_predicate": "'job', 'works_as', 'acme'",
    "rehash_bucket": "'acme', 'default', canonicalizer => 'flat'",
    "replay_bucket": "'acme', 'default'",
    "erase_memory": "%(m)s, 'acme'",
    "erase_bucket": "'default', 'acme'",
}


def test_the_isolation_level_is_among_the_described_errors(db: psycopg.Connection[Any]) -> None:
    model(db)
    db.execute("select set_policy('acme', preset => 'replace_newer')")
    first = ingest(db, "User likes tea", **vector(1))
    ingest(db, "user likes TEA", **vector(1))
    near = ingest(db, "User enjoys a cup of tea", **vector(0.92))
    assert near.judgement_id is not None
    late = ingest(db, "User likes rye")
    merged = one(db, "select event_id from memory_events where action = 'merged'")
    run = one(db, "select link_subject('Eve', 'Eva', 'acme')")
    db.execute(
        "update judgements set status = 'leased', attempts = 8, worker = 'w', leased_until = now() + '1 hour'"
    )
    db.execute("set default_transaction_isolation = 'repeatable read'")
    given = {
        "m": late.memory_id, "n": first.memory_id, "e": merged, "j": near.judgement_id, "r": run,
    }  # fmt: skip
    undescribed = []
    for name, arguments in LOCKING.items():
        call = "call" if name == "rehash_bucket" else "select * from"
        with pytest.raises(psycopg.Error) as caught:
            db.execute(f"{call} memfold.{name}({arguments})".encode(), given)
        assert caught.value.sqlstate == "MF025", (name, caught.value)
        described = one(
            db,
            "select bool_and(obj_description(oid, 'pg_proc') like '%%MF025%%') from pg_proc"
            " where pronamespace = 'memfold'::regnamespace and proname = %s",
            name,
        )
        if not described:
            undescribed.append(name)
    assert undescribed == []
