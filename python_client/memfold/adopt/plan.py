"""The plan of an adoption: the SQL of all steps, its locks, and an estimate of the time. Only reads."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
from sqlglot import exp

from memfold.adopt.catalog import Connection, fetch
from memfold.adopt.dedup_statements import DedupStatements
from memfold.adopt.definition import Definition
from memfold.adopt.expressions import build, render, text
from memfold.adopt.options import Options
from memfold.adopt.state import Adoption
from memfold.adopt.statements import Statements

__all__ = ["kept", "write"]

_SAMPLE = 500


def write(
    connection: Connection,
    definition: Definition,
    adoption: Adoption | None,
    options: Options,
    *,
    absorb: bool | None = None,
) -> Iterator[str]:
    """The lines of the plan."""
    if absorb is None:
        absorb = adoption is not None and adoption.absorbs
    made = Statements(definition)
    table = definition.table
    lock = f"lock_timeout {options.lock_timeout * 1000:.0f} ms, retried for {options.patience:.0f} s"
    dedup = DedupStatements(connection, definition)
    children = dedup.children(table)
    role = fetch(
        connection,
        "select r.rolsuper as super, current_user::text as role from pg_catalog.pg_roles as r"
        " where r.rolname = current_user",
    )[0]
    owner = table.owner if role["super"] and table.owner != role["role"] else None
    done = adoption.step if adoption is not None else 0

    yield f"Adoption of {table} in database {connection.info.dbname}" + (f", at step {done}" if done else "")
    yield ""
    yield from _shown(definition)
    yield ""
    yield from _estimates(connection, definition, made)
    yield ""
    yield from _sample(connection, definition)

    def step(number: int, name: str, lines: list[str], sql: list[str]) -> Iterator[str]:
        yield ""
        yield f"-- Step {number}: {name}" + (" (done)" if done >= number else "")
        for one in lines:
            yield f"--   {one}"
        for one in sql:
            yield f"{one};"

    yield from step(
        1,
        "add the column",
        [
            "Locks: ACCESS EXCLUSIVE on the table, for a change of the catalog alone (milliseconds); no row is read or",
            f"written. {lock}; while a transaction older than a second",
            "holds a lock on it, it does not even try, so that nobody queues behind it. First: SHARE UPDATE EXCLUSIVE, to",
            "which an autovacuum gives way; readers and writers do not wait for that lock.",
        ],
        made.add_column(),
    )
    others = [one for one in table.triggers if not one.startswith("zz_memfold_")]
    yield from step(
        2,
        "writers hash",
        [
            "Locks: SHARE ROW EXCLUSIVE on the table, for a change of the catalog alone (milliseconds);",
            "readers do not wait.",
            f"{lock}.",
            "From then on an INSERT, and an UPDATE of what is hashed, computes the hash: about 10 microseconds per row.",
            *(
                [
                    f"Other BEFORE triggers ({', '.join(others)}) may change a row: every UPDATE compares what is hashed."
                ]
                if others
                else []
            ),
        ],
        [*made.step_2_functions(owner), *made.triggers()],
    )
    size = options.batch or f"as many rows as take {options.batch_time * 1000:.0f} ms"
    yield from step(
        3,
        "backfill",
        [
            f"Per batch ({size}), each in its own transaction:",
            "Locks: the rows of the batch, FOR NO KEY UPDATE, until it commits; readers and foreign keys do not wait.",
            f"It waits {options.lock_timeout * 1000:.0f} ms at most for a row, then skips",
            "what is locked, and returns to it at the end.",
            "$1: the last key of the previous batch; then the last key of this one. The first batch has no lower bound.",
            *([f"At most {options.rate:,.0f} rows per second."] if options.rate else []),
            f"Waits while a standby is more than {options.max_lag_bytes // 1048576} MB or {options.max_lag:g} s behind."
            if not options.ignore_lag
            else "Standbys are ignored.",
        ],
        [made.next_batch(first=False), made.fill_batch(first=False), made.reasons()],
    )
    yield from step(
        4,
        "duplicates",
        [
            "The report reads the table twice (no lock but ACCESS SHARE). Resolving, which must be confirmed,",
            "proceeds per batch of groups, each in its own transaction:",
            "Locks: the rows of the groups and what refers to them, FOR UPDATE, until it commits.",
            kept(definition),
            "The others go to memfold.adoption_archive.",
            *(
                f"Re-pointed: {one.table} ({', '.join(one.columns)}), {one.constraint}"
                + (
                    ""
                    if one.indexed
                    else "; IT HAS NO INDEX: create index concurrently on "
                    f"{one.table} ({', '.join(one.columns)})"
                )
                for one in children
            ),
            *(["No foreign key refers to the table."] if not children else []),
        ],
        [
            *made.find_groups()[1:3],
            made.lock_rows(),
            made.rank_rows(dedup.wanted(table)),
            *dedup.all(),
        ],
    )
    yield from step(
        5,
        "unique index",
        [
            "Locks: SHARE UPDATE EXCLUSIVE on the table while the index is built; readers and writers do not wait.",
            "It waits for older transactions without blocking others. While it is built, new rows get no",
            "hash (the trigger's function is replaced, which locks nothing); afterwards they are hashed in batches.",
            "From then on a writer of a duplicate gets 23505, unique_violation"
            + (", until step 6 is done." if absorb else "."),
        ],
        [
            *made.find_functions(owner, []),
            made.trigger_function(withhold=True),
            made.create_index(),
            made.trigger_function(),
        ],
    )
    yield from step(
        6,
        "insert function",
        [
            "Locks: none on the table.",
            f"memfold.insert_{definition.name}(...) inserts, and returns (key, deduped) instead of an error.",
            *(
                [
                    "From then on a plain INSERT of a known text succeeds without its row, and is counted in",
                    "memfold.adoption_repeats: about 90 microseconds more per row. RETURNING returns nothing for it.",
                ]
                if absorb
                else []
            ),
        ],
        [*made.insert_functions(owner, []), *(made.absorb_functions(owner, absorb=True) if absorb else [])],
    )


def _shown(definition: Definition) -> Iterator[str]:
    rows = [
        ("content", definition.content),
        ("tenant", definition.tenant or "(one)"),
        ("bucket", definition.bucket or "(one)"),
        ("created", definition.created or "(by key)"),
        ("where", definition.where or "(all rows)"),
        ("key", ", ".join(definition.key)),
        ("canonicalizer", definition.profile),
        ("hash column", definition.hash_column),
        ("functions", f"memfold.insert_{definition.name}, memfold.find_{definition.name}"),
    ]
    for name, value in rows:
        yield f"  {name:14} {value}"


_AGELESS = ("uuid", "text", "character varying", "character", "bytea")


def kept(definition: Definition) -> str:
    """Which row of a text step 4 keeps, and whether it is the oldest."""
    if definition.created is not None:
        return f"For each text the oldest row stays, by {definition.created}, then by key."
    key = ", ".join(definition.key)
    types = {definition.table.columns[one].type.partition("(")[0] for one in definition.key}
    ageless = sorted(types & set(_AGELESS))
    return f"For each text the row with the lowest key ({key}) stays" + (
        f": ANY ROW, not the oldest: a key of type {' and '.join(ageless)} need not grow with time."
        " To keep the oldest: memfold adopt undo, then start again with --created."
        if ageless
        else ": the oldest, if keys grow with time. Else undo, and start again with --created."
    )


def _estimates(connection: Connection, definition: Definition, made: Statements) -> Iterator[str]:
    table = definition.table
    if table.rows < 0:
        yield f"  rows           unknown: the table was never analyzed ({_size(table.bytes)}); run: analyze {table}"
        return
    yield f"  rows           about {table.rows:,.0f}, {_size(table.bytes)}"
    width = table.bytes / table.rows if table.rows else 0
    yield (
        f"  disk           step 3 rewrites each row: up to {_size(int(table.bytes + 33 * table.rows))} more until"
        f" VACUUM makes the space reusable; index about {_size(int(table.rows * 80))}"
    )
    tree = build(
        "select count(HASH) as n from (select * from T as t limit N) as t",
        HASH=made.hashed("t"),
        T=table.node,
        N=exp.Literal.number(_SAMPLE),
    )
    try:
        started = time.monotonic()
        with connection.transaction(force_rollback=True):
            connection.execute(f"set local search_path = {', '.join(made.path)}".encode())
            fetch(connection, render(tree))
        each = (time.monotonic() - started) / min(max(table.rows, 1), _SAMPLE)
    except psycopg.Error as error:
        yield f"  time           unknown: an expression fails on a row ({error.diag.message_primary})"
        return
    # writing a row costs about as much as hashing it, and more if it is wider
    seconds = table.rows * (each + 12e-6 + width * 4e-9)
    yield (
        f"  time           step 3 about {_span(seconds)} unthrottled;"
        f" the hash of a row takes {each * 1e6:.0f} microseconds here"
    )
    if definition.content.is_column:
        stats = fetch(
            connection,
            "select s.n_distinct::double precision as n,"
            " coalesce(greatest(t.last_analyze, t.last_autoanalyze)::timestamp(0)::text, 'at some time') as at"
            " from pg_catalog.pg_stats as s left join pg_catalog.pg_stat_all_tables as t"
            " on t.schemaname = s.schemaname and t.relname = s.tablename"
            " where s.schemaname = $1 and s.tablename = $2 and s.attname = $3",
            [table.schema, table.name, definition.content.columns[0]],
        )
        if stats:
            n = stats[0]["n"]
            distinct = n if n > 0 else -n * table.rows
            yield (
                f"  duplicates     perhaps {max(table.rows - distinct, 0):,.0f} rows; step 4 counts them. An estimate from"
                f" the sample that ANALYZE took ({stats[0]['at']}): about {distinct:,.0f} distinct texts,"
                " compared letter by letter, in all tenants and buckets together"
            )
            return
    yield "  duplicates     unknown: there are no statistics for the expression; step 4 counts them"


def _sample(connection: Connection, definition: Definition) -> Iterator[str]:
    """The values of the expressions for some rows."""
    made = Statements(definition)
    parts = [("content", definition.content), ("tenant", definition.tenant), ("bucket", definition.bucket)]
    tree = build(
        "select X from T as t limit 3",
        X=[
            *(
                exp.alias_(exp.Cast(this=one.on("t"), to=exp.DataType.build("text")), name)
                for name, one in parts
                if one is not None
            ),
            exp.alias_(
                build(
                    "memfold.canonicalize(C, P)",
                    C=exp.Cast(this=definition.content.on("t"), to=exp.DataType.build("text")),
                    P=text(definition.profile),
                ),
                "canonical",
            ),
        ],
        T=definition.table.node,
    )
    yield "  some rows, with the values of the expressions:"
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(f"set local search_path = {', '.join(made.path)}".encode())
            rows = fetch(connection, render(tree))
    except psycopg.Error as error:
        yield f"    (an expression fails: {error.diag.message_primary})"
        return
    for row in rows:
        shown = (f"{name} {_cut(value)}" for name, value in row.items())
        yield f"    {', '.join(shown)}"
    if not rows:
        yield "    (the table is empty)"


def _cut(value: str | None) -> str:
    if value is None:
        return "null"
    return repr(value if len(value) <= 48 else value[:45] + "...")


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 10240 or unit == "GB":
            return f"{count:,.0f} {unit}"
        count /= 1024
    return ""


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
