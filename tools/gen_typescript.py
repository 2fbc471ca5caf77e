#!/usr/bin/env python3
"""Make ``docs/memfold.d.ts``, TypeScript's types of memfold's functions, from a database in which memfold is installed.

    gen_typescript.py DSN            write the file
    gen_typescript.py DSN --check    exit 1 if the file is out of date

The types are those that the package pg returns and accepts: a bigint is a string, a timestamptz a Date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import psycopg

FILE: Final = Path(__file__).resolve().parent.parent / "docs" / "memfold.d.ts"
HEAD: Final = """\
// Types of memfold's functions, as the package pg gives and takes them; made by tools/gen_typescript.py from the catalog.
// bigint and numeric arrive as strings; a vector is passed as "[0.1,0.2]". The catalog does not say what can be null.

type Json = unknown;
type Interval = string | { days?: number; hours?: number; minutes?: number; seconds?: number };

export interface Functions {
"""
# PostgreSQL types with another name in TypeScript; types in no list are strings.
NUMBERS: Final = {"integer", "smallint", "real", "double precision"}
TYPES: Final = {
    "boolean": "boolean",
    "jsonb": "Json",
    "json": "Json",
    "timestamp with time zone": "Date",
    "interval": "Interval",
    "bytea": "Uint8Array",
    "void": "null",
} | dict.fromkeys(NUMBERS, "number")

# What pg accepts for a type in addition to what it returns.
TAKEN: Final = {
    "timestamp with time zone": "Date | string",
    "bigint": "number | string",
    "numeric": "number | string",
}

# Arguments, with whether each is optional, and the columns of the result. For overloads, the longest.
FUNCTIONS: Final = """
select distinct on (p.proname) p.proname, coalesce(a.taken, '[]'), coalesce(a.given, c.given, '[]'),
    pg_catalog.format_type(p.prorettype, null)
from pg_catalog.pg_proc as p
cross join lateral (
    select
        pg_catalog.jsonb_agg(
            pg_catalog.jsonb_build_array(
                x.name, pg_catalog.format_type(x.type, null), x.place > p.pronargs - p.pronargdefaults)
            order by x.place) filter (where x.mode in ('i', 'b', 'v')) as taken,
        pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(x.name, pg_catalog.format_type(x.type, null)) order by x.place)
            filter (where x.mode in ('o', 'b', 't')) as given
    from rows from (
        pg_catalog.unnest(p.proargnames),
        pg_catalog.unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])),
        pg_catalog.unnest(coalesce(p.proargmodes, pg_catalog.array_fill('i'::"char", array[p.pronargs])))
    ) with ordinality as x (name, type, mode, place)
) as a
left join pg_catalog.pg_type as t on t.oid = p.prorettype and t.typrelid <> 0
cross join lateral (
    select pg_catalog.jsonb_agg(
        pg_catalog.jsonb_build_array(f.attname, pg_catalog.format_type(f.atttypid, null)) order by f.attnum) as given
    from pg_catalog.pg_attribute as f
    where f.attrelid = t.typrelid and f.attnum > 0 and not f.attisdropped
) as c
where p.pronamespace = 'memfold'::regnamespace and p.prokind = 'f' and p.prorettype <> 'trigger'::regtype
order by p.proname, p.pronargs desc
"""


def typed(name: str) -> str:
    """The TypeScript type of a type of PostgreSQL."""
    if name.endswith("[]"):
        return f"{typed(name[:-2])}[]"
    return TYPES.get(name, "string")


def written(db: psycopg.Connection[Any]) -> str:
    """The whole file."""
    lines = []
    for name, taken, given, returned in db.execute(FUNCTIONS):
        arguments = [
            f"{arg}{'?' if optional else ''}: {TAKEN.get(kind) or typed(kind)} | null"
            for arg, kind, optional in taken
        ]
        row = [f"{column}: {typed(kind)} | null" for column, kind in given or [[name, returned]]]
        lines += [
            f"  {name}: {{",
            "    arguments: { " + "; ".join(arguments) + " };"
            if arguments
            else "    arguments: Record<string, never>;",
            "    row: { " + "; ".join(row) + " };",
            "  };",
        ]
    return HEAD + "\n".join(lines) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dsn")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with psycopg.connect(options.dsn) as db:
        text = written(db)
    if options.check:
        if FILE.read_text() != text:
            print(f"{FILE.name} does not match the catalog: run {Path(__file__).name}", file=sys.stderr)
            return 1
        return 0
    FILE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
