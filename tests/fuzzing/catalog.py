"""Every public function with its arguments, by the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.queries import DB

CATALOG = """
select p.proname, p.prokind = 'p', coalesce(p.proargnames, '{}'), p.proargmodes::text[],
    array(select t::regtype::text from unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) as t),
    p.pronargdefaults,
    array(select r.rolname from pg_roles as r where r.rolname = any(%s) and has_function_privilege(r.oid, p.oid, 'execute'))
from pg_proc as p
where p.pronamespace = 'memfold'::regnamespace and not exists (
    select from pg_depend as d join pg_extension as x on x.oid = d.refobjid
    where d.objid = p.oid and d.deptype = 'e' and x.extname = 'vector')
order by p.oid::regprocedure::text collate "C"
"""


@dataclass(frozen=True)
class Argument:
    """One input of a function."""

    name: str
    type: str
    required: bool


@dataclass(frozen=True)
class Function:
    """One function, and which of the fuzzer's roles may call it."""

    name: str
    procedure: bool
    arguments: tuple[Argument, ...]
    roles: frozenset[str]


def functions(db: DB, roles: Sequence[str]) -> list[Function]:
    """Every public function, by the catalog."""
    found = []
    for name, procedure, names, modes, types, defaults, may in db.execute(CATALOG, [list(roles)]).fetchall():
        modes = modes or ["i"] * len(types)
        given = [(n, t) for n, t, m in zip(names, types, modes, strict=True) if m in "iobv" and m != "o"]
        first_default = len(given) - defaults
        arguments = tuple(
            Argument(n, t.rsplit(".", 1)[-1].replace('"', ""), i < first_default)
            for i, (n, t) in enumerate(given)
        )
        found.append(Function(name, procedure, arguments, frozenset(may)))
    return found
