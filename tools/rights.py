"""The matrix of privileges: which role may call, read and write what, from the catalog; a section of docs/reference.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

# Roles granted to people and programs come first.
ROLES = (
    "memfold_app", "memfold_tenant", "memfold_agent", "memfold_judge", "memfold_auditor", "memfold_owner", "memfold_queue",
)  # fmt: skip
# What a policy of row-level security shows, by its expression.
SHOWN = {
    "true": "all",
    "(tenant_id = memfold_internal._tenant())": "own",
    "(tenant_id = current_setting('memfold.tenant_id'::text, true))": "own",
    "(tenant_id = '*'::text)": "shared",
    "(role_name = memfold_internal._bound_role(CURRENT_USER))": "own",
}
NO = "–"

CALLS = """
select p.proname, array(
    select r.role from unnest(%s::text[]) as r (role) where has_function_privilege(r.role, p.oid, 'execute')
)
from pg_proc as p
where p.pronamespace = 'memfold'::regnamespace and p.prorettype <> 'trigger'::regtype
order by p.proname
"""

# Of each role: whether it may read and write, and the expressions of the policies that show it rows.
READS = """
select c.relname, c.relkind = 'v', c.relrowsecurity, array(
    select row_to_json(x) from (
        select has_table_privilege(r.role, c.oid, 'select') as reads,
            has_table_privilege(r.role, c.oid, 'insert, update, delete') as writes,
            array(
                select pg_get_expr(y.polqual, y.polrelid) from pg_policy as y
                where y.polrelid = c.oid and exists (
                    select from unnest(y.polroles) as t (role) where pg_has_role(r.role, t.role, 'usage')
                )
            ) as policies
        from unnest(%s::text[]) with ordinality as r (role, n) order by r.n
    ) as x
)
from pg_class as c
where c.relnamespace = 'memfold'::regnamespace and c.relkind in ('r', 'v') and c.relname <> 'alembic_version'
order by c.relkind, c.relname
"""

HEAD = """## Who may do what

`own`: rows of the session's tenant. `shared`: rows of tenant `*`, which are everyone's. A view shows what its tables show to
the role that reads it. For what each role is for, see [operations](operations.md#roles). Superusers may do everything."""


def scope(row_security: bool, right: dict[str, Any]) -> str:
    """The privileges of a role on a table."""
    if not right["reads"]:
        return "writes" if right["writes"] else NO
    shown = {SHOWN[expression] for expression in right["policies"]} if row_security else {"all"}
    which = "all" if "all" in shown else ", ".join(sorted(shown)) or "no row"
    return f"{which}; writes" if right["writes"] else which


def grouped(title: str, rows: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    """A table with one row for all that have the same privileges."""
    lines = [
        f"| {title} | " + " | ".join(f"`{role}`" for role in ROLES) + " |",
        "|---" * (len(ROLES) + 1) + "|",
    ]
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, rights in rows:
        groups.setdefault(rights, []).append(f"`{name}`")
    # what most roles may do comes first
    for rights, names in sorted(groups.items(), key=lambda group: group[0].count(NO)):
        lines.append(f"| {', '.join(names)} | {' | '.join(rights)} |")
    return "\n".join(lines)


def section(connection: psycopg.Connection[Any]) -> str:
    """The section, with a table of functions and one of tables and views."""
    known = connection.execute(
        "select array_agg(rolname::text) from pg_roles where rolname ~ '^memfold_' and not rolcanlogin"
    ).fetchone()
    if known is None or {*known[0]} - {"memfold_rules"} != {*ROLES}:
        raise SystemExit(f"roles differ from ROLES: {known}")
    calls = [
        (f"{name}()", tuple("yes" if role in may else NO for role in ROLES))
        for name, may in connection.execute(CALLS, [list(ROLES)])
    ]
    reads = [
        (
            name,
            tuple("read" if r["reads"] else NO for r in rights)
            if view
            else tuple(scope(rls, r) for r in rights),
        )
        for name, view, rls, rights in connection.execute(READS, [list(ROLES)])
    ]
    return "\n\n".join([HEAD, grouped("functions", calls), grouped("tables and views", reads)])
