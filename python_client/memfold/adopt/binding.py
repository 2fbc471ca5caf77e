"""What an expression means to the server, and whether it can be used for a hash and an index."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import LiteralString

import psycopg
from sqlglot import exp

from memfold.adopt import expressions as x
from memfold.adopt.catalog import Connection, Table, fetch
from memfold.client.errors import AdoptError

# A view's parse tree names every function that the server has resolved an expression to.
_NODES = re.compile(r":(funcid|opfuncid|aggfnoid|winfnoid) (\d+)")

_VIEW_TREE: LiteralString = """
select r.ev_action::text as tree, r.oid::bigint as rule
from pg_catalog.pg_rewrite as r where r.ev_class = $1::regclass
"""

_FUNCTIONS: LiteralString = """
select p.oid::bigint as oid, p.oid::regprocedure::text as name, p.provolatile::text as volatility,
    p.prokind::text as kind, p.proretset as is_set
from pg_catalog.pg_proc as p where p.oid = any($1::bigint[]::oid[])
order by 2
"""

# Schemas of the objects that the expressions name; built-in ones are not recorded.
_SCHEMAS: LiteralString = """
select distinct n.nspname as schema
from pg_catalog.pg_depend as d
left join pg_catalog.pg_proc as p on d.refclassid = 'pg_catalog.pg_proc'::regclass and p.oid = d.refobjid
left join pg_catalog.pg_operator as o on d.refclassid = 'pg_catalog.pg_operator'::regclass and o.oid = d.refobjid
left join pg_catalog.pg_type as t on d.refclassid = 'pg_catalog.pg_type'::regclass and t.oid = d.refobjid
left join pg_catalog.pg_collation as c on d.refclassid = 'pg_catalog.pg_collation'::regclass and c.oid = d.refobjid
join pg_catalog.pg_namespace as n
    on n.oid = coalesce(p.pronamespace, o.oprnamespace, t.typnamespace, c.collnamespace)
where d.classid = 'pg_catalog.pg_rewrite'::regclass and d.objid = $1::bigint::oid and n.nspname <> 'pg_catalog'
order by 1
"""

_PROBE: LiteralString = "memfold_adopt_probe"


def bind(
    connection: Connection, table: Table, fixed: Sequence[x.Expression], loose: Iterable[x.Expression] = ()
) -> tuple[str, ...]:
    """Ask the server what the expressions mean; returns the schemas in addition to pg_catalog that they need.

    Fixed expressions must be immutable, because a hash and an index are computed from them; loose ones, which only
    order rows, must not be volatile. Everything happens in a transaction that is rolled back.
    """
    everything = [*fixed, *loose]
    schemas: tuple[str, ...] = ()
    with connection.transaction(force_rollback=True):
        try:
            connection.execute("set local lock_timeout = '2s'")
            for number, one in enumerate(everything):
                schemas += _look_up(connection, table, one, f"{_PROBE}_{number}", one in fixed)
            if fixed:
                _probe(connection, table, fixed)
        except psycopg.errors.InsufficientPrivilege as error:
            if "temporary" not in str(error):
                raise AdoptError(str(error.diag.message_primary)) from error
            raise AdoptError(
                f"the role may not create temporary tables ({error.diag.message_primary})",
                hint="Expressions are tried on an empty one: grant temporary on database ... to the role.",
            ) from error
    return tuple(dict.fromkeys(schemas))


def _look_up(
    connection: Connection, table: Table, one: x.Expression, view: str, fixed: bool
) -> tuple[str, ...]:
    made = x.build(
        "create temporary view V as select X as c from T as t",
        V=exp.Table(this=x.name(view)),
        X=one.on("t"),
        T=table.node,
    )
    try:
        with connection.transaction():
            connection.execute(x.render(made).encode())
    except psycopg.errors.InsufficientPrivilege:
        raise
    except psycopg.Error as error:
        raise AdoptError(
            f"{one.option}: {error.diag.message_primary or error}",
            detail=f"The server was asked for: {x.render(made)}",
            hint=error.diag.message_hint,
        ) from error
    rule = fetch(connection, _VIEW_TREE, [view])[0]
    named = [(kind, int(oid)) for kind, oid in _NODES.findall(rule["tree"])]
    for function in fetch(connection, _FUNCTIONS, [[oid for _, oid in named]]):
        if function["kind"] in {"a", "w"} or function["is_set"]:
            what = (
                "an aggregate or window function"
                if function["kind"] != "f"
                else "a function that returns a set"
            )
            raise AdoptError(f"{one.option} has {what}, {function['name']}: {one.given}")
        if function["volatility"] == "v":
            raise AdoptError(
                f"{one.option} has a volatile function, {function['name']}: {one.given}",
                detail="It may return a different value each time, so the same row would not keep its hash or order.",
                hint="Use columns and immutable functions.",
            )
        if function["volatility"] == "s" and fixed:
            raise AdoptError(
                f"{one.option} has a function that depends on settings, {function['name']}: {one.given}",
                detail="It is STABLE, not IMMUTABLE: sessions with other settings would compute another hash for the row.",
                hint="Use columns and immutable functions; of a timestamp, for instance,"
                " extract(epoch from ...) rather than its text.",
            )
    return tuple(row["schema"] for row in fetch(connection, _SCHEMAS, [rule["rule"]]))


def _probe(connection: Connection, table: Table, fixed: Sequence[x.Expression]) -> None:
    """The requirements are those of an index: immutable in every part, including casts."""
    probe = exp.Table(this=x.name(_PROBE))
    made = x.build("create temporary table P (like T)", P=probe, T=table.node)
    connection.execute(x.render(made).encode())
    for one in fixed:
        values: list[x.Node] = [exp.Is(this=x.as_text(one.on(None)), expression=exp.Null())]
        if one.option in {"--tenant", "--bucket"} and not one.is_constant:
            values.append(one.on(None))
        elif one.option == "--where":
            values = [exp.Is(this=x.wrapped(one.on(None)), expression=exp.Boolean(this=True))]
        for value in values:
            statement = x.build("create index on P (X)", P=probe, X=exp.Paren(this=value))
            try:
                with connection.transaction():
                    connection.execute(x.render(statement).encode())
            except psycopg.Error as error:
                detail = error.diag.message_primary or str(error)
                hint = "Use columns and immutable functions."
                if error.sqlstate == "42704":
                    hint = "A tenant or bucket has a type that can be compared, such as text or uuid."
                elif error.sqlstate == "42804" and one.option == "--where":
                    hint = "--where is a condition."
                raise AdoptError(
                    f"{one.option} cannot be used: {one.given}", detail=detail, hint=hint
                ) from error
