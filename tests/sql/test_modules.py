"""The modules of sql/functions/: each calls only earlier modules in the load order, or itself.

The load order is that of the paths (sql/README.md). The calls are read from the catalog of an installed database: what
bodies and views name. Not read: which trigger an INSERT fires (90_install makes the triggers), calls whose name is put
together at run time (a calibration's score), and what constraints, generated columns and policies of tables call: the schema
files make those, before there is any module. A function that a schema file has to make, for that reason, belongs to the
module which the file is named after.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support import servers
from tests.support.queries import DB

FUNCTIONS = servers.ROOT / "sql" / "functions"
SCHEMA = servers.ROOT / "sql" / "schema"
# Schema files not named after a module: words of the guard, tables of the client, row-level security of all tables.
OTHER_FILES = {"22_lexicon", "80_adopt", "90_tenant_isolation"}

# A call into a later module that cannot be avoided, with its reason: {("_caller", "_called"): "why"}.
EXCEPTIONS: dict[tuple[str, str], str] = {}

MADE = re.compile(r"(?m)^ *create (?:or replace )?(?:function|procedure|view) memfold(?:_internal)?\.(\w+)")

# What writes the ledger apart from 21_ledger/_record.sql, and why: the statement needs data that is only known there.
LEDGER_WRITERS = {
    "24_rehash/_rehash.sql": "the fold of a text whose hash the same function has just assigned",
    "31_ingest/attach_embedding.sql": "what tier 2 says of a stored root, and what that undoes",
    "50_search/_believed_memories.sql": "a copy of what was known, which is rolled back",
    "60_maintenance/prune_memories.sql": "all rows of a run at once",
    "70_lifecycle/_erase.sql": "erasure",
    "70_lifecycle/_erase_events.sql": "erasure",
    "70_lifecycle/erase_bucket.sql": "erasure",
}
WRITES_LEDGER = re.compile(r"\binsert\s+into\s+memfold\.memory_events\b(?!_)")

# Names in full: search_path is pg_catalog alone when this runs.
OBJECTS = """
select p.proname::text, pg_get_functiondef(p.oid)
from pg_proc as p
where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and p.prokind in ('f', 'p') and not exists (
    select from pg_depend as d join pg_extension as e on e.oid = d.refobjid
    where d.objid = p.oid and d.deptype = 'e' and e.extname <> 'memfold')
union all
select c.relname, 'view ' || pg_get_viewdef(c.oid)
from pg_class as c
where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[]) and c.relkind = 'v'
"""


def files() -> list[str]:
    return sorted(path.relative_to(FUNCTIONS).as_posix() for path in FUNCTIONS.rglob("*.sql"))


def homes() -> dict[str, set[str]]:
    """Function or view -> the modules that make it."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in files():
        for name in MADE.findall((FUNCTIONS / file).read_text()):
            found[name].add(Path(file).parent.as_posix())
    for path in SCHEMA.glob("*.sql"):
        for name in MADE.findall(path.read_text()):
            found[name].add(path.stem[9:])
    return found


def calls(db: DB) -> dict[str, set[str]]:
    """Function or view -> the functions and views that it names."""
    with db.transaction():
        db.execute("set local search_path = pg_catalog")
        objects = db.execute(OBJECTS).fetchall()
    names = {name for name, _ in objects}
    found: dict[str, set[str]] = {name: set() for name in names}
    for name, definition in objects:
        said = re.sub(r"--[^\n]*", "", definition)
        found[name] |= {
            one for one in re.findall(r"\bmemfold(?:_internal)?\.(\w+)", said) if one in names and one != name
        }
    return found


def wrong(called: dict[str, set[str]], at: dict[str, set[str]]) -> list[str]:
    """Calls into a later module. A name that is made twice may be called from the first on, and may call as the last."""
    lines = []
    for caller, others in sorted(called.items()):
        for other in sorted(others):
            if min(at[other]) > max(at[caller]) and (caller, other) not in EXCEPTIONS:
                lines.append(f"{caller} ({max(at[caller])}) calls {other} ({min(at[other])})")
    return lines


def test_every_file_is_in_a_module() -> None:
    strange = [file for file in files() if not re.fullmatch(r"\d\d_[a-z_]+/[a-z0-9_]+\.sql", file)]
    assert len(files()) > 100
    assert strange == []
    numbers = [path.name[:2] for path in FUNCTIONS.iterdir()]
    assert len(set(numbers)) == len(numbers), "two modules with one number"


def test_schema_files_are_named_after_a_release_and_a_module() -> None:
    modules = {path.name for path in FUNCTIONS.iterdir()} | OTHER_FILES
    names = [re.fullmatch(r"\d\d\.\d\d\.\d\d_(.*)\.sql", path.name) for path in SCHEMA.glob("*.sql")]
    assert names
    assert {found[1] if found else None for found in names} <= modules


def test_the_map_names_every_module_in_load_order() -> None:
    text = (servers.ROOT / "sql" / "README.md").read_text()
    assert re.findall(r"(?m)^\| `(\d\d_[a-z_]+)` \|", text) == sorted(
        path.name for path in FUNCTIONS.iterdir()
    )
    named = set(re.findall(r"`(\d\d_[a-z_]+/\w+)`", text))
    assert named
    assert {f"{name}.sql" for name in named} - set(files()) == set()


def test_files_are_short() -> None:
    long = {file for file in files() if (FUNCTIONS / file).read_text().count("\n") > 400}
    assert long == set()


def test_long_functions_say_why() -> None:
    """A body of more than 150 lines has its reason in the line above; nothing else has such a line."""
    body = re.compile(
        r"(?ms)^(-- Longer than 150 lines: [^\n]+\n)?create or replace (?:function|procedure) memfold\w*\.(\w+)\("
        r"(?:(?!^create or replace).)*?^(?:as )?\$\$\n(.*?)^\$\$;"
    )
    found = [match for file in files() for match in body.finditer((FUNCTIONS / file).read_text())]
    long = {match[2] for match in found if match[3].count("\n") > 150}
    assert len(found) > 300
    assert {match[2] for match in found if match[1]} == long


# Who counts, derives, locks, moves or erases: all others read memory_totals, which adds a root's sum to its own row.
COUNTING = {
    "12_locks/_row_locks.sql", "21_ledger/_counters.sql", "21_ledger/_trees.sql", "21_ledger/check_invariants.sql",
    "21_ledger/_check_times.sql", "21_ledger/_lock_memories.sql", "21_ledger/_moved.sql", "21_ledger/_regrouped.sql",
    "21_ledger/_slots.sql", "21_ledger/derive_scope.sql", "31_ingest/_apply.sql",
    "32_batch/_batch_locks.sql", "70_lifecycle/_erase.sql",
    "70_lifecycle/_erase_texts.sql", "70_lifecycle/export_bucket.sql",
}  # fmt: skip


def test_counters_are_read_with_their_sums() -> None:
    """Others touch the bare row only to lock it, or to write what is no sum: feedback, decay."""
    reads = re.compile(r"(?:from|join) memfold\.memory_counters as (\w+)([^;]*)")
    found = {file: reads.findall((FUNCTIONS / file).read_text()) for file in files()}
    assert {file for file in COUNTING if found[file]} == COUNTING
    bare = [
        (file, rest)
        for file, matches in found.items()
        for _, rest in matches
        if file not in COUNTING and not re.search("for (no key update|update|key share)", rest)
    ]
    assert bare == []


def test_the_ledger_is_written_by_the_record_module() -> None:
    """A statement that writes ledger rows is a rule about them: each outside 21_ledger has its reason above."""
    found = {file for file in files() if WRITES_LEDGER.search((FUNCTIONS / file).read_text().lower())}
    assert found == LEDGER_WRITERS.keys() | {"21_ledger/_record.sql"}


@pytest.mark.one_server
def test_a_module_calls_only_earlier_modules(db: DB) -> None:
    at, called = homes(), calls(db)
    assert sorted(called.keys() - at.keys()) == [], "functions or views that no file under sql/ makes"
    assert sorted(at.keys() - called.keys()) == [], "made by a file, and not in the catalog"
    assert sum(len(others) for others in called.values()) > 1000
    assert wrong(called, at) == []
    assert [pair for pair in EXCEPTIONS if pair[1] not in called.get(pair[0], set())] == []


@pytest.mark.one_server
def test_a_call_into_a_later_module_is_found(db: DB) -> None:
    db.execute(
        "create or replace function memfold_internal._clock() returns timestamptz language plpgsql stable as $$ begin"
        " -- not a call: memfold.run_maintenance()\n"
        " perform memfold_internal._policy('t', 'b', 'fact'); return pg_catalog.now(); end $$"
    )
    db.execute("create function memfold_internal._stray() returns integer return 1")
    at, called = homes(), calls(db)
    assert wrong({name: called[name] for name in at}, at) == [
        "_clock (10_platform) calls _policy (20_policy)"
    ]
    assert called.keys() - at.keys() == {"_stray"}
