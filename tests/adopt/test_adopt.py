"""`memfold adopt` on a server: the six steps, refusals, undo."""

from __future__ import annotations

import csv
import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb

from memfold.adopt import conflict_of, conflict_of_async
from memfold.adopt import expressions as x
from memfold.client.errors import AdoptError, MemfoldError, MemoryHashConflict
from memfold.tools.admin import migrate
from memfold.tools.cli import main
from tests.conftest import Connect
from tests.support.adopting import (
    CHILDREN,
    OPTIONS,
    TABLE,
    catalog,
    check_adopted,
    check_children,
    drop_roles,
    make_tables,
    state,
)
from tests.support.queries import DB, one

Run = Callable[..., Result]


@pytest.fixture
def run(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("MEMFOLD_DSN", dsn)

    def invoke(*arguments: str | Path, code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["adopt", *(str(argument) for argument in arguments)])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == code, result.output
        return result

    return invoke


# Expressions, without a server ------------------------------------------------------------------------------

COLUMNS = ["content", "payload", "id", 'Odd "name', "tags"]


@pytest.mark.parametrize(
    ("given", "made", "columns"),
    [
        ("content", '"content"', ("content",)),
        ("CONTENT", '"content"', ("content",)),
        ("memories.content", '"content"', ("content",)),
        ('"Odd ""name"', '"Odd ""name"', ('Odd "name',)),
        ("payload->>'data'", "\"payload\" ->> 'data'", ("payload",)),
        ("payload->'a'->>'b.c'", "\"payload\" -> 'a' ->> 'b.c'", ("payload",)),
        ("payload #>> '{a,b}'", "\"payload\" #>> '{a,b}'", ("payload",)),
        ("payload->>'it''s; 100 %'", "\"payload\" ->> 'it''s; 100 %'", ("payload",)),
        (
            "coalesce(content, '') || id::text",
            'coalesce("content", \'\') || CAST("id" AS TEXT)',
            ("content", "id"),
        ),
        ("pg_catalog.lower(content)", 'pg_catalog.lower("content")', ("content",)),
        ("'acme'", "'acme'", ()),
        ("content -- a comment", '"content"', ("content",)),
        ("case when id > 3 then content end", 'CASE WHEN "id" > 3 THEN "content" END', ("content", "id")),
    ],
)
def test_expressions_are_rendered_again(given: str, made: str, columns: tuple[str, ...]) -> None:
    found = x.parse("--content", given, COLUMNS, "public.memories")
    assert re.sub("COALESCE", "coalesce", str(found)) == made
    assert found.columns == columns


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("nope", "no column nope"),
        ("other.content", "not a column of"),
        ("a.b.content", "not a column of"),
        ("memories.*", "has a *"),
        ("*", "has a *"),
        ("(select content)", "sub-query"),
        ("content || (select 'x')", "sub-query"),
        ("id in (select 1)", "sub-query"),
        ("exists (select 1)", "sub-query"),
        ("content || (with x as (delete from memories returning 1) select 1 from x)", "sub-query"),
        ("select 1", "sub-query"),
        ("content;", "semicolon"),
        ("content; drop table memories", "semicolon"),
        ("1; select 2", "semicolon"),
        ("drop table memories", "statement"),
        ("insert into memories values (1)", "statement"),
        ("max(content)", "aggregate"),
        ("string_agg(content, ',')", "aggregate"),
        ("count(*) filter (where id > 1)", "aggregate"),
        ("row_number() over ()", "window"),
        ("unnest(tags)", "returns a set"),
        ("generate_series(1, 3)", "returns a set"),
        ("$1", "parameter"),
        ("%s", "parameter"),
        (":x", "parameter"),
        ("content as c", "alias"),
        ("content, id", "cannot be understood"),
        ("(content, id)", "several values"),
        ("content from memories", "cannot be understood"),
        ("content) from memories --", "cannot be understood"),
        ("content ||", "cannot be understood"),
        ("'unfinished", "cannot be understood"),
        ("x'1F'", "bit string"),
        ("content\x00", "NUL"),
        ("(" * 2000 + "content" + ")" * 2000, "cannot be understood"),
    ],
)
def test_only_scalar_expressions_are_accepted(given: str, why: str) -> None:
    with pytest.raises(AdoptError) as error:
        x.parse("--content", given, COLUMNS, "public.memories")
    assert why in str(error.value)
    assert "--content" in str(error.value)
    assert len(str(error.value)) < 1000


# The walk ---------------------------------------------------------------------------------------------------


def test_the_six_steps(db: DB, run: Run, tmp_path: Path) -> None:
    make_tables(db, 3000)
    before = state(db)
    run("plan", *OPTIONS)
    file = tmp_path / "duplicates.csv"
    first = run("run", *OPTIONS, "--csv", file)
    assert file.stat().st_mode & 0o777 == 0o600
    surplus = one(
        db,
        "select count(*) - count(distinct (tenant_id, bucket_id, memfold.canonicalize(content, 'prose/1')))"
        " from app.memories where memfold.canonicalize(content, 'prose/1') <> ''",
    )
    assert surplus > 100
    assert f"{surplus} would be archived" in first.stdout
    assert "app.links (memory_id): " in first.stdout
    assert "collide" in first.stdout
    assert "--confirm" in first.stdout
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == surplus
    assert list(rows[0]) == [
        "tenant", "bucket", "content_hash", "kept_id", "archived_id", "kept_content", "archived_content",
    ]  # fmt: skip
    contents = "select content from app.memories where id = %s"
    for row in rows[:50]:
        assert row["kept_content"] == one(db, contents, row["kept_id"])
        assert row["archived_content"] == one(db, contents, row["archived_id"])
    assert 'For each text the oldest row stays, by "created_at", then by key.' in first.stdout
    assert {table: len(rows) for table, rows in state(db).items()} == {t: len(r) for t, r in before.items()}
    assert "step 3 of 6 is done" in run("status").stdout
    assert "no content" in run("status").stdout

    dry = run("run", *TABLE, "--step", "4", "--dry-run")
    assert "dry run: nothing was changed" in dry.stdout
    assert {table: len(rows) for table, rows in state(db).items()} == {t: len(r) for t, r in before.items()}

    done = run("run", *TABLE, "--confirm")
    assert "is adopted" in done.stdout
    check_adopted(db, before)
    assert one(db, "select count(*) from memfold.adoption_archive where reason = 'duplicate'") == surplus
    assert one(db, "select count(*) from memfold.adoption_archive where reason = 'child_collision'") > 0
    assert "step 6 of 6 is done" in run("status", *TABLE).stdout
    (shown,) = json.loads(run("status", *TABLE, "--json").stdout)["adoptions"]
    assert (shown["step"], shown["confirmed"], shown["paused"]) == (6, True, False)
    again = catalog(db)
    run("run", *TABLE)
    assert catalog(db) == again, "a finished adoption does nothing"


@pytest.mark.one_server
def test_the_plan_states_its_assumptions(db: DB, run: Run) -> None:
    """The plan says how it guessed the number of duplicates, and warns before confirmation that the lowest key is not
    an age."""
    db.execute(
        "create table public.notes (id uuid primary key default gen_random_uuid(), content text);"
        " insert into public.notes (content) select 'Fact ' || i % 250 from generate_series(1, 500) as i"
    )
    said = run("plan", "--table", "public.notes", "--content", "content").stdout
    assert "never analyzed" in said
    db.execute("analyze public.notes")
    said = run("plan", "--table", "public.notes", "--content", "content").stdout
    guess = re.search(
        r"duplicates +perhaps 250 rows; step 4 counts them. An estimate from the sample that ANALYZE took \(20[-: 0-9]+\):"
        " about 250 distinct texts, compared letter by letter",
        said,
    )
    assert guess, said
    ageless = "the lowest key (id) stays: ANY ROW, not the oldest: a key of type uuid need not grow with time"
    assert ageless in said
    reported = run("run", "--table", "public.notes", "--content", "content").stdout
    assert (
        reported.index("250 would be archived")
        < reported.index(ageless)
        < reported.index("Nothing was changed")
    )
    run("undo", "--table", "public.notes")
    db.execute("alter table public.notes add n bigint generated always as identity unique")
    said = run("plan", "--table", "public.notes", "--content", "content", "--id", "n").stdout
    assert "the lowest key (n) stays: the oldest, if keys grow with time." in said


def test_what_plan_prints_is_what_run_does(db: DB, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tables(db, 600)
    before = (catalog(db), state(db), one(db, "select pg_current_wal_lsn()"))
    plan = run("plan", *OPTIONS).stdout
    assert (catalog(db), state(db)) == before[:2]
    sent: list[str] = []
    execute = psycopg.RawCursor.execute

    def record(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        sent.append(query.decode() if isinstance(query, bytes) else query)
        return execute(self, query, *arguments, **options)

    monkeypatch.setattr(psycopg.RawCursor, "execute", record)
    run("run", *OPTIONS, "--confirm", "--batch", "100")
    # every statement that touches the table or creates something for it
    ours = re.compile(
        r"alter table|create (unique )?index|create or replace|create function|create type|trigger", re.I
    )
    changes = {given for given in sent if ours.match(given) and "pg_temp.memfold" not in given}
    assert len(changes) >= 10
    assert [given for given in changes if given not in plan] == []
    indexes = [given.lower() for given in changes if re.match(r"create (unique )?index", given, re.I)]
    assert indexes
    assert [given for given in indexes if "concurrently" not in given] == []
    rows = [
        given
        for given in sent
        if re.search(r'(FROM|UPDATE|INTO|JOIN) "app"', given) and "COUNT(*)" not in given.partition("WITH")[0]
    ]
    assert len(rows) > 20
    # the first batch has no lower bound, and locked rows are found differently
    missing = {given for given in rows if given not in plan}
    assert {given[:20] for given in missing} <= {"WITH batch AS MATERI", "WITH done AS (UPDATE"}, missing
    assert len(missing) <= 2
    assert "ACCESS EXCLUSIVE" in plan
    assert "SHARE ROW EXCLUSIVE" in plan
    assert "about 600" in plan


@pytest.mark.one_server
def test_planned_sql_contains_no_opaque_command(db: DB, run: Run) -> None:
    """Every statement over rows of the table is a tree that sqlglot understands, not a text it passes on."""
    make_tables(db, 60)
    plan = run("plan", *OPTIONS).stdout
    statements = [
        line
        for line in plan.split(";\n")
        if re.match(r"(?s)(--.*?\n|\n)*(WITH|SELECT|UPDATE|ALTER TABLE|CREATE UNIQUE)", line)
    ]
    assert len(statements) >= 6
    for line in statements:
        made = re.sub(r"(?m)^--.*$", "", line).strip()
        assert type(x.sqlglot.parse_one(made, dialect="postgres")).__name__ != "Command"


@pytest.mark.one_server
def test_undo_before_step_4_leaves_everything_as_it_was(db: DB, run: Run) -> None:
    make_tables(db, 600)
    before = (catalog(db), state(db))
    for last in ("1", "2", "3"):
        for step in range(1, int(last) + 1):
            run("run", *OPTIONS, "--step", str(step))
        assert catalog(db) != before[0]
        run("undo", *TABLE)
        assert (catalog(db), state(db)) == before, last
    run("undo", *TABLE, code=1)


def test_undo_after_step_4_puts_every_row_back(db: DB, run: Run) -> None:
    make_tables(db, 1500)
    before = (catalog(db), state(db))
    run("run", *OPTIONS, "--confirm")
    refused = run("undo", *TABLE, code=1)
    assert "--restore" in refused.stderr
    assert one(db, "select count(*) from app.memories") < len(before[1]["memories"])
    run("undo", *TABLE, "--restore")
    archived = [row for row in catalog(db) if row[0] == "archived"]
    assert (([row for row in catalog(db) if row[0] != "archived"]), state(db)) == before
    assert archived, "archived rows stay on record"
    # and once more from the start, on the same table
    run("run", *OPTIONS, "--confirm")
    check_adopted(db, before[1])


@pytest.mark.one_server
def test_steps_one_by_one_and_out_of_order(db: DB, run: Run) -> None:
    make_tables(db, 300)
    refused = run("run", *OPTIONS, "--step", "3", code=1)
    assert "step 3 comes after step 1" in refused.stderr
    for step in range(1, 7):
        run("run", *TABLE, "--step", str(step), "--confirm")
        assert one(db, "select step from memfold.adoptions") == step
    check_adopted(db, {"memories": [()] * 300} | {t: [()] * _with_archive(db, t) for t in CHILDREN})


def _with_archive(db: DB, table: str) -> int:
    archived = one(db, "select count(*) from memfold.adoption_archive where table_name = %s", table)
    return int(one(db, f"select count(*) from app.{table}") + archived)


@pytest.mark.one_server
def test_options_that_differ_from_the_recorded_ones_are_refused(db: DB, run: Run) -> None:
    make_tables(db, 60)
    run("run", *OPTIONS, "--step", "1")
    for other in (
        ["--content", "bucket_id"],
        ["--profile", "flat"],
        ["--hash-column", "x"],
        ["--id", "tenant_id"],
    ):
        refused = run("run", *TABLE, *other, code=1)
        assert "has begun with another" in refused.stderr, other
    run("run", *OPTIONS, "--profile", "prose", "--hash-column", "content_hash", "--id", "id", "--step", "2")


# Writers ----------------------------------------------------------------------------------------------------


def test_writers_hash_from_step_2_on(db: DB, run: Run) -> None:
    make_tables(db, 60)
    run("run", *OPTIONS, "--step", "1")
    run("run", *TABLE, "--step", "2")
    made = one(
        db,
        "insert into app.memories (tenant_id, content) values ('t9', 'Some  TEXT.')"
        " returning content_hash = memfold.adopted_hash('some text', 'prose/1')",
    )
    assert made is True
    assert one(
        db,
        "update app.memories set content = 'other' where tenant_id = 't9'"
        " returning content_hash = memfold.adopted_hash('other', 'prose/1')",
    )
    assert (
        one(db, "update app.memories set content = null where tenant_id = 't9' returning content_hash")
        is None
    )
    # an update of something else does not call the function: it would hash the row
    assert (
        one(db, "update app.memories set reads = 1, meta = '{}' where id = 1 returning content_hash") is None
    )
    assert one(db, "update app.memories set content = content where id = 1 returning content_hash") is None
    # and nobody can forge it in an INSERT
    forged = (
        "insert into app.memories (tenant_id, content, content_hash) values ('t9', 'x', 'forged') returning"
    )
    assert one(db, f"{forged} content_hash = memfold.adopted_hash('x', 'prose/1')")


@pytest.mark.one_server
def test_an_unrelated_update_never_calls_the_trigger(db: DB, run: Run, connect: Connect) -> None:
    make_tables(db, 300)
    run("run", *OPTIONS, "--confirm")
    writer = connect()
    writer.execute("set track_functions = 'all'")
    writer.execute("update app.memories set reads = reads + 1")
    writer.execute("update app.memories set content = content, reads = reads + 1")
    writer.execute("insert into app.memories (tenant_id, content) values ('t8', 'new')")
    writer.close()
    calls = "select calls from pg_stat_user_functions where funcname = 'fill_app_memories'"
    db.execute("select pg_sleep(1.1)")
    assert one(db, calls) == 1


@pytest.mark.one_server
def test_other_before_triggers_are_respected(db: DB, run: Run) -> None:
    make_tables(db, 60)
    db.execute(
        "create function app.trim() returns trigger language plpgsql as"
        " $$ begin new.content := 'told: ' || new.reads; return new; end $$;"
        " create trigger trim before insert or update on app.memories for each row execute function app.trim()"
    )
    run("run", *OPTIONS, "--step", "1")
    run("run", *TABLE, "--step", "2")
    hashed = "returning content_hash = memfold.adopted_hash(content, 'prose/1'), content"
    assert db.execute(
        f"insert into app.memories (tenant_id, reads) values ('t9', 7) {hashed}"
    ).fetchone() == (True, "told: 7")
    # the update names no column that is hashed, the other trigger changes one
    assert db.execute(f"update app.memories set reads = 8 where reads = 7 {hashed}").fetchone() == (
        True,
        "told: 8",
    )


@pytest.mark.core
def test_owner_without_superuser_and_a_writer_without_rights(
    db: DB, run: Run, connect: Connect, dsn: str
) -> None:
    """The owner may record memfold's state; the writer may write to the table, and knows nothing of memfold."""
    owner, writer = f"owner_{db.info.dbname}", f"writer_{db.info.dbname}"
    make_tables(db, 600)
    for role in (owner, writer):
        db.execute(f"drop role if exists {role}")
        db.execute(f"create role {role} login")
    try:
        db.execute(f"alter schema app owner to {owner}")
        for table in ("memories", *CHILDREN):
            db.execute(f"alter table app.{table} owner to {owner}")
        db.execute(f"grant usage on schema app to {writer}")
        db.execute(f"grant select, insert, update on app.memories to {writer}")
        as_owner = make_conninfo(dsn, user=owner)
        refused = run("run", *OPTIONS, "--dsn", as_owner, code=1)
        assert f"grant memfold_owner to {owner}" in refused.stderr
        db.execute(f"grant memfold_owner to {owner}")
        not_owner = run("run", *OPTIONS, "--dsn", make_conninfo(dsn, user=writer), code=1)
        assert "HINT" in not_owner.stderr
        before = state(db)
        run("run", *OPTIONS, "--dsn", as_owner, "--confirm")
        check_adopted(db, before)
        app = connect(user=writer)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            app.execute("select memfold.adopted_hash('x', 'prose/1')")
        insert = "insert into app.memories (tenant_id, content) values ('t9', %s) returning id, content_hash"
        made = app.execute(insert, ["A fact."]).fetchone()
        assert made is not None
        assert made[1] is not None
        with pytest.raises(psycopg.errors.UniqueViolation) as error:
            app.execute(insert, ["a  FACT"])
        conflict = conflict_of(app, error.value, {"tenant_id": "t9", "bucket_id": "b", "content": "a  FACT"})
        assert isinstance(conflict, MemoryHashConflict)
        assert (conflict.existing_id, conflict.content_hash) == (made[0], made[1])
        call = "select * from memfold.insert_app_memories(tenant_id => 't9', content => %s)"
        assert app.execute(call, ["A FACT"]).fetchone() == (made[0], True)
        new = app.execute(call, ["Another fact."]).fetchone()
        assert new is not None
        assert new[1] is False
        row = app.execute("select bucket_id, meta from app.memories where id = %s", [new[0]]).fetchone()
        assert row == ("b", {}), "a column that is left out gets its default"
        # an upgrade leaves the functions their owner, and finds nothing that is not memfold's
        if db.execute("select to_regclass('memfold_internal.alembic_version')").fetchone() != (None,):
            migrate.install(dsn)
        assert (
            one(db, "select proowner::regrole::text from pg_proc where proname = 'fill_app_memories'")
            == owner
        )
        assert migrate.drift(dsn) == []
    finally:
        drop_roles(db, owner, writer)


@pytest.mark.one_server
def test_functions_that_a_superuser_makes_belong_to_the_tables_owner(db: DB, run: Run) -> None:
    role = f"owner_{db.info.dbname}"
    make_tables(db, 60)
    db.execute(f"drop role if exists {role}; create role {role}")
    db.execute(f"grant usage, create on schema app to {role}; alter table app.memories owner to {role}")
    try:
        db.execute(
            "create table app.who (role text); create function app.spy() returns trigger language plpgsql as"
            " 'begin insert into app.who values (current_user); return new; end';"
            " create trigger spy before update on app.memories for each row execute function app.spy()"
        )
        told = run("run", *OPTIONS, code=1)
        assert f"app.memories belongs to {role}, and you are a superuser" in told.stderr
        assert "--trust-owner" in told.stderr
        assert db.execute("select * from app.who").fetchall() == []
        assert db.execute("select * from memfold.adoptions").fetchall() == []
        run("run", *OPTIONS, "--confirm", "--trust-owner")
        assert "belongs to" in run("undo", *TABLE, "--restore", code=1).stderr
        assert db.execute("select distinct role from app.who").fetchall() == [(db.info.user,)]
        owners = db.execute(
            "select distinct proowner::regrole::text from pg_proc where proname ~ '_app_memories$'"
        ).fetchall()
        assert owners == [(role,)]
        db.execute(f"set role {role}")
        assert one(
            db, "insert into app.memories (tenant_id, content) values ('t9', 'x') returning content_hash"
        )
        db.execute("reset role")
    finally:
        drop_roles(db, role)


# The insert function --------------------------------------------------------------------------------------------------


async def _async_conflict(dsn: str, error: psycopg.Error, row: dict[str, Any]) -> MemfoldError:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        return await conflict_of_async(connection, error, row)


@pytest.mark.one_server
def test_the_conflict_names_the_row(db: DB, run: Run, dsn: str) -> None:
    import asyncio

    make_tables(db, 120)
    run("run", *OPTIONS, "--confirm")
    kept = one(db, "select id from app.memories where content ~* 'fact +number 13$'")
    row = {"tenant_id": "t3", "bucket_id": "b1", "content": "FACT number 13", "reads": 4, "meta": Jsonb({})}
    with pytest.raises(psycopg.errors.UniqueViolation) as error:
        db.execute(
            "insert into app.memories (tenant_id, bucket_id, content, reads, meta) values (%s, %s, %s, %s, %s)",
            list(row.values()),
        )
    for conflict in (conflict_of(db, error.value, row), asyncio.run(_async_conflict(dsn, error.value, row))):
        assert isinstance(conflict, MemoryHashConflict)
        assert conflict.existing_id == kept
        assert conflict.content_hash == one(db, "select memfold.adopted_hash('fact number 13', 'prose/1')")
        assert str(kept) in str(conflict)
    # a conflict with another unique index is a plain error
    with pytest.raises(psycopg.errors.UniqueViolation) as other:
        db.execute("insert into app.memories (id, tenant_id, content) values (1, 't3', 'quite new')")
    assert not isinstance(conflict_of(db, other.value, {"content": "quite new"}), MemoryHashConflict)
    # the row that held it has gone since
    db.execute("delete from app.links where memory_id = %s", [kept])
    db.execute("delete from app.memories where id = %s", [kept])
    gone = conflict_of(db, error.value, row)
    assert isinstance(gone, MemoryHashConflict)
    assert gone.existing_id is None


# References to the table ------------------------------------------------------------------------------------


@pytest.mark.one_server
def test_a_large_group_goes_in_many_batches(db: DB, run: Run) -> None:
    make_tables(db, 60)
    db.execute(
        "insert into app.memories (tenant_id, content) select 'big', 'the same' from generate_series(1, 500)"
    )
    db.execute("insert into app.links (memory_id) select id from app.memories where tenant_id = 'big'")
    before = state(db)
    run("run", *OPTIONS, "--confirm", "--batch", "40")
    check_adopted(db, before)
    assert one(db, "select count(*) from app.memories where tenant_id = 'big'") == 1
    assert (
        one(db, "select count(distinct archived_at) from memfold.adoption_archive where tenant = 'big'") >= 13
    )
    assert one(
        db, "select count(*) from app.links l join app.memories m on m.id = l.memory_id where tenant_id = 'big'"
    ) == 500  # fmt: skip


INDEXED = {
    "flags": """
        id integer generated always as identity primary key, memory_id bigint references app.memories, flag text
    );
    create index on app.flags (memory_id);
    create unique index flags_key on app.flags (memory_id, lower(flag)) where flag is not null;
    insert into app.flags (memory_id, flag) select id, case when id % 24 = 0 then 'RED' when id % 36 = 0 then null
        else 'red' end from app.memories where id % 12 = 0""",
    "spans": """
        id integer generated always as identity primary key,
        memory_id bigint not null references app.memories, span int4range,
        exclude using gist (int8range(memory_id, memory_id, '[]') with =, span with &&)
    );
    create index on app.spans (memory_id);
    insert into app.spans (memory_id, span) select id, int4range(1, 5) from app.memories where id % 12 = 0""",
    "ranks": """
        memory_id bigint not null references app.memories deferrable initially deferred, rank integer,
        primary key (memory_id, rank) deferrable initially deferred
    );
    insert into app.ranks select id, 1 from app.memories where id % 12 = 0""",
}


@pytest.mark.parametrize("table", INDEXED)
def test_indexes_that_are_more_than_a_list_of_columns(db: DB, run: Run, table: str) -> None:
    """Partial and expression indexes, exclusion constraints and deferred keys of a child: found out row by row."""
    make_tables(db, 240)
    db.execute(f"create table app.{table} ({INDEXED[table]}".encode())
    rows = one(db, f"select count(*) from app.{table}")
    before = state(db)
    run("run", *OPTIONS, "--confirm")
    check_adopted(db, before)
    archived = one(db, "select count(*) from memfold.adoption_archive where table_name = %s", table)
    assert archived > 0
    assert one(db, f"select count(*) from app.{table}") + archived == rows
    assert (
        one(db, f"select count(*) from app.{table} where memory_id not in (select id from app.memories)") == 0
    )
    run("undo", *TABLE, "--restore")
    assert one(db, f"select count(*) from app.{table}") == rows
    assert state(db) == before


@pytest.mark.one_server
def test_a_large_child_without_an_index_is_refused_before_anything_is_archived(db: DB, run: Run) -> None:
    make_tables(db, 240)
    db.execute(
        "create table app.bare (memory_id bigint references app.memories);"
        " insert into app.bare select 1 + i % 200 from generate_series(1, 12000) i; analyze app.bare"
    )
    before = state(db)
    assert "IT HAS NO INDEX" in run("plan", *OPTIONS).stdout
    refused = run("run", *OPTIONS, "--confirm", code=1)
    assert "create index concurrently on app.bare (memory_id)" in refused.stderr
    assert len(state(db)["memories"]) == len(before["memories"])
    assert one(db, "select count(*) from memfold.adoption_archive") == 0
    assert "last error: step 4" in run("status").stdout
    db.execute("create index on app.bare (memory_id)")
    run("run", *TABLE, "--confirm")
    check_adopted(db, before)
    assert one(db, "select count(*) from app.bare where memory_id not in (select id from app.memories)") == 0


# Rows of all kinds ------------------------------------------------------------------------------------------


@pytest.mark.one_server
def test_rows_that_are_left_out_are_counted(db: DB, run: Run) -> None:
    db.execute("""
        create schema app;
        create table app.memories (
            id integer primary key, tenant_id text, bucket_id text, content text, kind text, created_at timestamptz
        );
        insert into app.memories select i, case when i % 10 = 0 then null else 't' end,
            case when i % 10 = 1 then null else 'b' end,
            case i % 10 when 2 then null when 3 then ' . ' else 'text ' || i % 20 end,
            case when i % 10 = 4 then 'x' else 'f' end
        from generate_series(1, 200) i;
    """)
    run("run", *OPTIONS, "--where", "kind = 'f'", "--confirm")
    status = run("status").stdout
    for reason in (
        "not selected by --where",
        "no tenant",
        "no bucket",
        "no content",
        "empty in canonical form",
    ):
        assert re.search(rf"without a hash 20: {reason}", status), status
    assert one(db, "select count(*) from app.memories where content_hash is null") == 100
    assert one(db, "select count(*) from app.memories where content_hash is not null") == 10


@pytest.mark.one_server
def test_an_expression_that_fails_on_a_row_does_not_fail_its_writer(db: DB, run: Run) -> None:
    db.execute("""
        create schema app;
        create table app.memories (id integer primary key, payload jsonb);
        insert into app.memories select i, jsonb_build_object('data', 'text ' || i % 50, 'user',
            case when i % 7 = 0 then 'nobody' else i % 3 || '' end) from generate_series(1, 2000) i;
    """)
    options = [
        "--table",
        "app.memories",
        "--content",
        "payload->>'data'",
        "--tenant",
        "(payload->>'user')::integer",
    ]
    result = run("run", *options, "--confirm")
    assert "an expression fails" in result.stderr
    left = one(db, "select count(*) from app.memories where content_hash is null")
    assert left == 285
    assert one(db, "select count(*) from app.memories where payload ->> 'user' = 'nobody'") == 285
    assert one(db, "select count(*) from app.memories where content_hash is not null") == 150
    db.execute("""insert into app.memories values (9001, '{"data": "x", "user": "nobody"}')""")
    db.execute("""insert into app.memories values (9002, '{"data": "x", "user": "4"}')""")
    rows = db.execute("select content_hash is null from app.memories where id > 9000 order by id").fetchall()
    assert rows == [(True,), (False,)]


def test_names_of_all_kinds(db: DB, run: Run) -> None:
    db.execute("""
        create schema "My Schema";
        create table "My Schema"."Mem""o%ries $memfold$" (
            "the key" uuid, "Odd ""name" varchar(200), "select" text, "a%b" char(3), n numeric(5, 2), j json, "ü" text[],
            primary key ("a%b", "the key")
        );
        insert into "My Schema"."Mem""o%ries $memfold$"
        select gen_random_uuid(), 'it''s 100 % of $memfold$ ' || i % 20, 'x', 'k' || i % 2, i, '{"a":  1}', '{a,b}'
        from generate_series(1, 100) i;
    """)
    name = '"My Schema"."Mem""o%ries $memfold$"'
    options = [
        "--content",
        '"Odd ""name" || \'$memfold$ % %s\'',
        "--tenant",
        '"select"',
        "--bucket",
        "j->>'a'",
    ]
    assert "is adopted" in run("run", "--table", name, *options, "--confirm").stdout
    assert one(db, f"select count(*) from {name}".replace("%", "%")) == 20
    run("undo", "--table", name, "--restore")
    assert one(db, f"select count(*) from {name}") == 100
    assert one(db, f"select count(*) from {name} where j::text = '{{\"a\":  1}}'") == 100, (
        "unchanged, to the byte"
    )


@pytest.mark.one_server
def test_default_names_do_not_collide(db: DB, run: Run) -> None:
    db.execute("create schema a_b; create schema a; create table a_b.c (id integer primary key, t text);"
               " create table a.b_c (id integer primary key, t text)")  # fmt: skip
    for table in ("a_b.c", "a.b_c"):
        run("run", "--table", table, "--content", "t", "--confirm")
        assert one(db, f"insert into {table} values (1, 'x') returning content_hash") is not None
    names = [
        row[0] for row in db.execute("select name from memfold.adoptions order by created_at").fetchall()
    ]
    assert names[0] == "a_b_c"
    assert names[1].startswith("a_b_c_")
    row = {"id": 2, "t": "X"}
    for table in ("a_b.c", "a.b_c"):
        with pytest.raises(psycopg.errors.UniqueViolation) as error:
            db.execute(f"insert into {table} values (2, 'X')")
        conflict = conflict_of(db, error.value, row)
        assert isinstance(conflict, MemoryHashConflict)
        assert conflict.existing_id == 1


# What is refused --------------------------------------------------------------------------------------------

SETUP = """
create schema app;
create table app.memories (id integer primary key, tenant_id text, content text, payload jsonb, at timestamptz,
    doc json, made text generated always as (upper(content)) stored);
create table app.nokey (tenant_id text, content text);
create table app.nullable (id integer unique, content text);
create table app.deferred (id integer not null unique deferrable, content text);
create table app.taken (id integer primary key, content text, content_hash text);
create view app.shown as select * from app.memories;
create materialized view app.kept as select * from app.memories;
create table app.parts (id integer, content text, primary key (id)) partition by range (id);
create table app.part partition of app.parts for values from (0) to (10);
create table app.parent (id integer primary key, content text);
create table app.heir () inherits (app.parent);
create table app.ruled (id integer primary key, content text);
create rule r as on insert to app.ruled do also select 1;
create sequence app.numbers;
create function app.volatile(text) returns text language sql volatile as 'select $1';
create function app.set_of(text) returns setof text language sql immutable as 'select $1';
create aggregate app.joined(text) (sfunc = textcat, stype = text);
"""
REFUSED = [
    ("app.memories --content nope", "no column nope"),
    ("app.memories", "--content is missing"),
    ("app.memories --content (select|1)", "sub-query"),
    ("app.memories --content content;", "semicolon"),
    ("app.memories --content content --tenant 1;drop|table|app.memories", "semicolon"),
    ("app.memories --content max(content)", "aggregate"),
    ("app.memories --content app.joined(content)", "aggregate"),
    ("app.memories --content row_number()|over|()", "window"),
    ("app.memories --content app.set_of(content)", "returns a set"),
    ("app.memories --content app.volatile(content)", "volatile function, app.volatile(text)"),
    ("app.memories --content content||random()", "volatile function, random()"),
    ("app.memories --content content||clock_timestamp()", "volatile function"),
    ("app.memories --content content --tenant at::text", "IMMUTABLE"),
    ("app.memories --content content --tenant at", "IMMUTABLE"),
    ("app.memories --content content||now()", "depends on settings"),
    ("app.memories --content content||current_user", "IMMUTABLE"),
    ("app.memories --content content --tenant doc", "type that can be compared"),
    ("app.memories --content content --bucket doc", "type that can be compared"),
    ("app.memories --content content --where content", "--where is a condition"),
    ("app.memories --content content --where at>now()", "IMMUTABLE"),
    ("app.memories --content content --created random()", "volatile"),
    ("app.memories --content nofunction(content)", "function nofunction(text) does not exist"),
    ("app.memories --content content::nosuchtype", "does not exist"),
    ("app.memories --content 'constant'", "names no column"),
    ("app.memories --content made", "generated column"),
    ("app.memories --content content --id nope", "no column nope"),
    ("app.memories --content content --id tenant_id", "not a usable key"),
    ("app.memories --content content --id lower(content)", "must be a column"),
    ("app.memories --content content --hash-column content", "is the column of the hash"),
    ("app.memories --content content --hash-column payload", "has a column payload already"),
    ("app.taken --content content", "--hash-column"),
    ("app.nokey --content content", "no usable key"),
    ("app.nullable --content content", "no usable key"),
    ("app.nullable --content content --id id", "not a usable key"),
    ("app.deferred --content content", "no usable key"),
    ("app.shown --content content", "is a view"),
    ("app.kept --content content", "is a materialized view"),
    ("app.parts --content content", "is a partitioned table"),
    ("app.part --content content", "is a partition"),
    ("app.parent --content content", "inheritance"),
    ("app.heir --content content", "inheritance"),
    ("app.ruled --content content", "rewrite rules"),
    ("app.numbers --content content", "is a sequence"),
    ("app.memories_pkey --content content", "is an index"),
    ("app.nothing --content content", "there is no table app.nothing"),
    ("nowhere.nothing --content content", "there is no table"),
    ("a.b.c.d.e --content content", "not the name of a table"),
    ("app.'x --content content", "no"),
    ("pg_catalog.pg_class --content relname", "not a table of an application"),
    ("memfold.memories --content content", "not a table of an application"),
]  # fmt: skip


@pytest.fixture
def odd_tables(db: DB) -> DB:
    db.execute(SETUP)
    return db


def test_bad_input_is_a_clear_error_and_changes_nothing(odd_tables: DB, run: Run) -> None:
    before = catalog(odd_tables)
    for words, why in REFUSED:
        arguments = [word if "||" in word else word.replace("|", " ") for word in words.split(" ")]
        for command in ("plan", "run"):
            result = run(command, "--table", *arguments, code=1)
            assert why in result.stderr, (words, result.stderr)
            assert result.stderr.startswith("Error: ")
            assert "Traceback" not in result.output
    assert catalog(odd_tables) == before


@pytest.mark.one_server
def test_tables_of_others_and_hidden_rows_are_refused(db: DB, run: Run, dsn: str, connect: Connect) -> None:
    make_tables(db, 60)
    role = f"dba_{db.info.dbname}"
    db.execute(f"drop role if exists {role}; create role {role} login in role memfold_owner")
    try:
        where = ["--dsn", make_conninfo(dsn, user=role)]
        before = catalog(db)
        result = run("run", *OPTIONS, *where, code=1)
        assert "the role may not look up app.memories" in result.stderr
        db.execute(f"grant usage on schema app to {role}; grant select on all tables in schema app to {role}")
        assert "does not own app.memories" in run("run", *OPTIONS, *where, code=1).stderr
        db.execute(f"alter table app.memories owner to {role}")
        # its children are someone else's
        assert "may not change app.links" in run("run", *OPTIONS, *where, code=1).stderr
        for table in CHILDREN:
            db.execute(f"alter table app.{table} owner to {role}")
        db.execute(
            "alter table app.memories enable row level security; alter table app.memories force row level security"
        )
        assert "row level security hides" in run("run", *OPTIONS, *where, code=1).stderr
        db.execute("alter table app.memories no force row level security")
        db.execute(
            "alter table app.tags enable row level security; alter table app.tags force row level security"
        )
        assert "hides rows of app.tags" in run("run", *OPTIONS, *where, code=1).stderr
        assert [row for row in catalog(db) if row[0] != "function"] == [
            row for row in before if row[0] != "function"
        ]
        db.execute("alter table app.tags no force row level security")
        db.execute(f"grant create on schema app to {role}")
        run("run", *OPTIONS, *where, "--confirm")
    finally:
        drop_roles(db, role)


@pytest.mark.one_server
def test_without_memfold_and_without_a_table(db: DB, run: Run, dsn: str) -> None:
    name = f"adopt_{uuid.uuid4().hex[:12]}"
    db.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
    try:
        result = run("plan", *OPTIONS, "--dsn", make_conninfo(dsn, dbname=name), code=1)
        assert "memfold init" in result.stderr
    finally:
        db.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
    assert "no adoption" in run("pause", *TABLE, code=1).stderr
    assert "no table has been adopted" in run("status").stderr


# Errors in mid-step -----------------------------------------------------------------------------------------


@pytest.fixture
def failing(db: DB) -> Iterator[Callable[[str, int], None]]:
    """Makes updates of a row of the table fail with an error of the server's own, such as a full disk."""

    def arm(state: str, key: int) -> None:
        db.execute(
            "create or replace function app.fail() returns trigger language plpgsql as $$ begin"
            f" if new.id = {key} then raise exception 'no space left on device' using errcode = '{state}'; end if;"
            " return new; end $$;"
            " create or replace trigger fail before update on app.memories for each row execute function app.fail()"
        )

    yield arm
    db.execute("drop function if exists app.fail() cascade")


@pytest.mark.one_server
def test_a_full_disk_in_the_backfill(db: DB, run: Run, failing: Callable[[str, int], None]) -> None:
    make_tables(db, 600)
    before = state(db)
    failing("53100", 400)
    result = run("run", *OPTIONS, "--batch", "50", code=1)
    assert "step 3: no space left on device" in result.stderr
    assert "53100" in result.stderr
    assert "continues where it stopped" in result.stderr
    row = db.execute("select step, position, rows_seen, last_error from memfold.adoptions").fetchone()
    assert row is not None
    assert row[:3] == (2, ["350"], 350)
    assert "no space left" in row[3]
    assert one(db, "select max(id) from app.memories where content_hash is not null") <= 350
    db.execute("drop function app.fail() cascade")
    result = run("run", *TABLE, "--batch", "50", "--confirm")
    check_adopted(db, before)
    assert one(db, "select rows_seen from memfold.adoptions") == 600, "no row was read twice"
    assert one(db, "select last_error from memfold.adoptions") is None


@pytest.mark.one_server
def test_a_full_disk_while_duplicates_are_resolved(db: DB, run: Run) -> None:
    make_tables(db, 1200)
    before = state(db)
    run("run", *OPTIONS)
    db.execute(
        "create function app.fail() returns trigger language plpgsql as $$ begin"
        " if (select count(*) from memfold.adoption_archive) > 40 then"
        " raise exception 'no space left on device' using errcode = '53100'; end if; return old; end $$;"
        " create trigger fail before delete on app.memories for each row execute function app.fail()"
    )
    result = run("run", *TABLE, "--confirm", "--batch", "10", code=1)
    assert "step 4: no space left on device" in result.stderr
    archived = one(db, "select count(*) from memfold.adoption_archive where table_name = 'memories'")
    assert one(db, "select count(*) from app.memories") + archived == 1200, "whole batches only"
    assert 0 < archived <= 40
    check_children(db)
    db.execute("drop function app.fail() cascade")
    run("run", *TABLE)
    check_adopted(db, before)


def test_a_statement_timeout_while_the_index_is_built(db: DB, run: Run, connect: Connect) -> None:
    make_tables(db, 300)
    before = state(db)
    for step in ("1", "2", "3", "4"):
        run("run", *OPTIONS, "--step", step, "--confirm")
    holder = connect()
    holder.execute("begin; insert into app.memories (tenant_id, content) values ('t7', 'held')")
    result = run("run", *TABLE, "--step", "5", "--statement-timeout", "0.7", "--patience", "1", code=1)
    assert "57014" in result.stderr
    assert "run it again" in result.stderr
    assert one(db, "select step from memfold.adoptions") == 4
    assert one(db, "select withheld from memfold.adoptions") is True
    assert "get no hash" in run("status").stdout
    holder.execute("commit")
    # written while the run was paused
    db.execute("insert into app.memories (tenant_id, content) values ('t7', 'HELD'), ('t7', 'alone')")
    run("run", *TABLE)
    before["memories"] += [()] * 3
    check_adopted(db, before)


@pytest.mark.parametrize("command", sorted(main.commands["adopt"].commands))  # type: ignore[attr-defined]
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    result = CliRunner().invoke(main, ["adopt", command, "--help"])
    assert result.exit_code == 0
    assert f"memfold adopt {command}" in result.output.partition("\n")[2]
