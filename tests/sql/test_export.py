"""A bucket that is exported and imported again is the same: every row of every table, and what is called next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from memfold.tools.cli import main
from tests.conftest import Make, Target
from tests.support import servers
from tests.support.exports import TABLES, exported, history, imported
from tests.support.memories import GENERIC_PLANS, ingest, model, vector
from tests.support.queries import DB

NOBODY = "tenant_id <> '*'"


def check(db: DB) -> None:
    """No invariant is broken; a row of a plain INSERT has no ledger row yet."""
    for (tenant,) in db.execute("select distinct tenant_id from memfold.memories").fetchall():
        broken = (
            "select c.* from memfold.check_invariants(%s) c left join memfold.memories m"
            " on m.tenant_id = %s and m.memory_id = c.memory_id where m.is_ingested is not false"
        )
        assert db.execute(broken, [tenant, tenant]).fetchall() == []


def everything(db: DB) -> dict[str, list[Any]]:
    return {
        table: db.execute(
            f"select to_jsonb(t) from memfold.{table} t where {NOBODY} order by to_jsonb(t)::text".encode()
        ).fetchall()
        for table in TABLES
    }


EXPORTS = servers.ROOT / "tests" / "data" / "exports"


@pytest.mark.one_server
def test_exports_of_earlier_versions_are_read(
    db: DB, make: Make, target: Target, pytestconfig: pytest.Config
) -> None:
    """A file for each release, and the present version's until `make freeze`: --pin writes that one again."""
    present = EXPORTS / f"{servers.PRESENT}.jsonl"
    if pytestconfig.option.pin and not (servers.RELEASED / f"{servers.PRESENT}.sql.gz").exists():
        history(db)
        present.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in exported(db)))
    assert {path.stem for path in EXPORTS.glob("*.jsonl")} == set(servers.releases())
    for path in EXPORTS.glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert {line["table"] for line in lines} - {"header", "rules", "embedding_models", "end"} == set(
            TABLES
        )
        with psycopg.connect(make(target.way), autocommit=True) as other:
            other.execute("set search_path = public, memfold; set timezone = 'UTC'")
            model(other)
            imported(other, lines)
            check(other)
            if path == present:
                # no table, column or value is new, or gone
                header, *rows = exported(other)
                assert rows == lines[1:]
                assert header["row"].keys() == lines[0]["row"].keys()
            assert ingest(other, "User prefers dark mode").action == "merged"


@pytest.mark.core
def test_round_trip(db: DB, target: Target, make: Make) -> None:
    first = history(db)
    # other settings of the session change nothing
    db.execute("set extra_float_digits = -5; set bytea_output = escape; set timezone = 'Asia/Kathmandu'")
    lines = exported(db)
    db.execute("set extra_float_digits = 1; set bytea_output = hex; set timezone = 'UTC'")
    before = {
        table: [row for row in rows if row[0].get("bucket_id", "default") in ("default", "*")]
        for table, rows in everything(db).items()
    }
    other_ids = {
        row[0]
        for row in db.execute("select memory_id::text from memories where bucket_id = 'other'").fetchall()
    }
    for table in ("memory_counters", "memory_vectors", "memory_sources"):
        before[table] = [row for row in before[table] if row[0]["memory_id"] not in other_ids]
    assert {table for table, rows in before.items() if not rows} == set()
    header = lines[0]["row"]
    assert header["counts"]["memories"] == len(before["memories"])
    with psycopg.connect(make(target.way), autocommit=True) as other:
        other.execute("set search_path = public, memfold; set timezone = 'UTC'")
        model(other)
        assert imported(other, lines) == len(
            [x for x in lines if x["table"] not in ("header", "end", "rules", "embedding_models")]
        )
        after = everything(other)
        for table in TABLES:
            assert after[table] == before[table], table
        assert exported(other)[1:] == lines[1:]
        check(other)
        # what is called next
        kept = {"score": 0.1, "nested": {"ä": [1, None, "\\"]}}
        again = ingest(other, "User prefers dark mode", idempotency_key="k", metadata=kept)
        assert again.event_id == first.event_id
        for connection in (db, other):
            connection.execute("set memfold.tenant_id = 'acme'")
        search = "select to_jsonb(f) from search_memories('[1,0,0,0]', 'm', 'acme', 'default') f"
        assert other.execute(search.encode()).fetchall() == db.execute(search.encode()).fetchall()
        for connection in (db, other):
            assert ingest(connection, "user prefers dark mode!").action == "merged"
        check(other)
        assert refused(other, lines).startswith("MF053")


def test_into_another_tenant(db: DB) -> None:
    history(db)
    lines = exported(db)
    imported(db, lines, 10_000, tenant="globex")
    check(db)
    ours, theirs = (
        [{k: v for k, v in row[0].items() if k != "tenant_id"} for row in db.execute(
            "select to_jsonb(t) from memory_events t where tenant_id = %s and bucket_id = 'default' order by event_id", [t]
        ).fetchall()]
        for t in ("acme", "globex")
    )  # fmt: skip
    assert ours == theirs
    assert ingest(db, "User prefers dark mode", tenant_id="globex").action == "merged"


def test_values_that_a_run_has_not_taken_up_yet(db: DB) -> None:
    """The run is the tenant's, not the bucket's, and so not in the export."""
    for day, place in enumerate(("VW", "Stripe")):
        given = {
            "subject": "Ann",
            "predicate": "works_at",
            "object": place,
            "observed_at": f"2026-01-0{day + 1}",
        }
        ingest(db, f"Ann works at {place}", **given)
    db.execute(
        "insert into predicates (tenant_id, predicate, cardinality) values ('acme', 'works at', 'one');"
        "insert into runs (tenant_id, bucket_id, kind, status, actor, arguments)"
        " values ('acme', '*', 'predicate', 'open', 'test', '{\"predicate\": \"works at\"}')"
    )
    imported(db, exported(db), tenant="globex")
    for tenant in ("acme", "globex"):
        assert db.execute("select * from check_invariants(%s)", [tenant]).fetchall() == []
        db.execute("select run_maintenance(%s, '{links}')", [tenant])
        rows = db.execute("select content from current_memories(%s)", [tenant]).fetchall()
        assert rows == [("Ann works at Stripe",)]
    check(db)


@pytest.mark.parametrize(
    ("table", "row", "rule"),
    [
        (
            "policies",
            {"bucket_id": "*", "memory_type": "*", "guard": "off"},
            "set_policy('globex', guard => 'off')",
        ),
        ("predicates", {"predicate": "likes", "cardinality": "one"}, "set_predicate('likes', 'globex')"),
        (
            "links",
            {"bucket_id": "*", "kind": "subject", "alias": "bob", "name": "Alice"},
            "link_subject('Bob', 'Alice', 'globex', '*')",
        ),
    ],
)
def test_rules_for_other_buckets_are_added_if_they_are_asked_for(
    db: DB, table: str, row: dict[str, Any], rule: str
) -> None:
    ingest(db, "User likes tea")
    lines = exported(db)
    place = next(i for i, line in enumerate(lines) if line["table"] == "rules")
    crafted = [*lines[:place], {"table": table, "row": row}, *lines[place:]]
    with pytest.raises(psycopg.Error) as error:
        imported(db, crafted, tenant="globex", rules=False)
    assert error.value.sqlstate == "MF054"
    assert f"which this tenant does not have: {table}, " in str(error.value.diag.message_detail)
    found = f"select count(*) from memfold.{table} where tenant_id = 'globex'"
    assert db.execute(found.encode()).fetchone() == (0,)
    # what the tenant has already is no change
    db.execute(f"select {rule}".encode())
    assert imported(db, crafted, tenant="globex", rules=False) > 0
    assert db.execute(found.encode()).fetchone() == (1,)
    check(db)


def refused(
    db: DB, lines: list[Any], size: int = 10_000, tenant: str = "acme", bucket: str = "default"
) -> str:
    before = everything(db)
    with pytest.raises(psycopg.Error) as error:
        imported(db, lines, size, tenant, bucket)
    assert everything(db) == before
    assert error.value.diag.message_hint
    return f"{error.value.sqlstate} {error.value.diag.message_detail}"


def changed(lines: list[Any], table: str, **values: Any) -> list[Any]:
    place = next(i for i, line in enumerate(lines) if line["table"] == table)
    return [*lines[:place], {"table": table, "row": {**lines[place]["row"], **values}}, *lines[place + 1 :]]


def test_lines_that_are_not_an_export(db: DB) -> None:
    history(db)
    lines = exported(db)
    assert refused(db, lines).startswith("MF053 Bucket 'default'")
    tenant = "globex"
    for wrong, said in (
        (lines[1:], "MF054 The first line is not a header"),
        ([*lines[:5], 7], "MF054 Element 5 is 7."),
        ([*lines[:5], {"table": "tenant_roles", "row": {}}], "MF054 Element 5 is"),
        (changed(lines, "header", format=2), "MF054 Its format is 2"),
        (changed(lines, "header", bucket_id="b"), "MF054 It belongs to bucket 'b'."),
        (changed(lines, "memories", content="forged"), "MF054 Memory"),
        (
            changed(lines, "memories", new_column=1),
            "MF054 memories has no column 'new_column' in this version.",
        ),
        (changed(lines, "memories", memory_id="x"), "MF054 invalid input syntax for type uuid"),
        (changed(lines, "memories", status="dead"), "MF054 new row for relation"),
        (changed(lines, "memories", bucket_id="b"), "MF054 A row of memories belongs to another bucket."),
        (changed(lines, "memory_counters", observations=1_000_000), "MF054 Its ledger does not explain what"),
        (changed(lines, "memory_counters", source_confidence=1), "MF054 Its ledger does not explain what"),
        (changed(lines, "memories", metadata={"forged": 1}), "MF054 Its ledger does not explain what"),
        (changed(lines, "memory_vectors", embedding="[1,2]"), "MF054 The vector of memory"),
        (
            changed(lines, "embedding_models", dimensions=5),
            "MF054 Embedding model 'm' of 5 dimensions is not registered.",
        ),
        (changed(lines, "rules", canonicalizer="exact/1"), "MF054 Type 'fact' was hashed by"),
        (
            [x for x in lines if x["table"] != "memory_events"],
            "MF054 Lines are missing or too many: memory_events: 0 instead",
        ),
        ([lines[0], *lines[20:]], "MF054 "),
    ):
        assert refused(db, wrong, tenant=tenant).startswith(said), said
    # a header of another transaction does not count, nor of another bucket
    with db.transaction():
        imported(db, [lines[0]], tenant=tenant)
    assert refused(db, lines[1:], tenant=tenant).startswith("MF054 The first line is not a header")
    for bad in ("{}", "[]", "7", None):
        with pytest.raises(psycopg.Error) as error:
            db.execute("select import_bucket(%s::jsonb, 'globex', 'default')", [bad])
        assert error.value.sqlstate == "MF022"


MALFORMED: list[Any] = [None, "x", -1, 1e300, ["x", None], {"a": [None]}, "[1,2"]


@pytest.mark.one_server
def test_malformed_rows(db: DB) -> None:
    """For each table: each column with another type, missing or unknown, or an empty row: always one of memfold's
    errors."""
    history(db)
    lines = exported(db)
    header = lines[0]
    tables = list(dict.fromkeys(line["table"] for line in lines))
    assert {*TABLES, "header", "rules", "embedding_models", "end"} - set(tables) <= {"runs", "memory_tokens"}
    raw = set()
    count = 0
    db.execute("begin")
    for table in (*tables, "runs", "memory_tokens"):
        good: dict[str, Any] = next((line["row"] for line in lines if line["table"] == table), {})
        rows: list[Any] = [
            {}, {"no such column": 1}, {**good, "no such column": None}, {"tenant_id": "other"},
            {"content_hash": "x"}, None, 7, [],
            *({**good, column: value} for column in good for value in MALFORMED),
            *({name: good[name] for name in good if name != column} for column in good),
            dict.fromkeys(good),
        ]  # fmt: skip
        for row in rows:
            line = {"table": table, "row": row}
            sent = [line, *lines[1:3]] if table == "header" else [header, line]
            db.execute("savepoint one")
            try:
                db.execute("select import_bucket(%s::jsonb, 'globex', 'default')", [json.dumps(sent)])
            except psycopg.Error as error:
                if not (error.sqlstate or "").startswith("MF") or not error.diag.message_hint:
                    raw.add((table, str(row)[-90:], error.sqlstate, str(error)[:90]))
                count += 1
            db.execute("rollback to one")
    db.execute("rollback")
    assert raw == set()
    assert count > 500
    assert (
        refused(db, [header, {"table": "runs", "row": {}}], tenant="globex")
        == "MF054 A row of runs is empty."
    )


def test_who_may(db: DB, app: Any) -> None:
    history(db)
    lines = exported(db)
    mine = app("acme")
    assert [row[0] for row in mine.execute("select export_bucket('acme')").fetchall()][1:] == lines[1:]
    assert len(mine.execute("select export_bucket('acme', 'nothing')").fetchall()) == len(
        [x for x in lines if x["table"] in ("header", "predicates", "antonyms", "end")]
        + [
            x
            for x in lines
            if x["table"] in ("policies", "options", "links") and x["row"]["bucket_id"] == "*"
        ]
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        mine.execute("select import_bucket('[]', 'acme', 'b')")


def test_without_statistics_each_row_is_read_a_few_times(db: DB) -> None:
    """Joined, a plan made on empty tables read 92,000 rows of memory_counters for 303 memories."""
    model(db)
    db.execute(GENERIC_PLANS)
    assert db.execute("select count(*) from export_bucket('acme')").fetchone() is not None
    for i in range(200):
        ingest(db, f"User has dog {i}", subject=f"s{i}", source_turn_ids=[f"t{i}"], **vector(0.5))

    def reads(table: str) -> int:
        # the transaction's, and those of earlier ones that the session has not reported yet
        return db.execute(
            "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_xact_all_tables"
            " where schemaname = 'memfold' and relname = %s",
            [table],
        ).fetchone()[0]  # type: ignore[index]

    read = {}
    for table in ("memories", "memory_counters", "memory_sources", "memory_vectors"):
        with db.transaction():
            before = reads(table)
            db.execute("select count(*) from export_bucket('acme')")
            read[table] = (reads(table) - before) / 200
    assert min(read.values()) >= 1
    assert max(read.values()) <= 20, read


@pytest.mark.one_server
def test_by_the_command_line(db: DB, dsn: str, target: Target, make: Make, tmp_path: Path) -> None:
    history(db)
    runner = CliRunner()
    done = runner.invoke(main, ["export", "--tenant", "acme", "--dsn", dsn])
    assert done.exit_code == 0, done.output
    file = tmp_path / "acme.jsonl"
    file.write_text(done.stdout)
    elsewhere = make(target.way)
    assert "MF054" in runner.invoke(main, ["restore", str(file), "--dsn", elsewhere]).output
    with psycopg.connect(elsewhere, autocommit=True) as other:
        other.execute("set search_path = public, memfold")
        model(other)
        cut = tmp_path / "cut.jsonl"
        cut.write_text("\n".join(done.stdout.splitlines()[:-1]))
        assert "--rules" in runner.invoke(main, ["restore", str(cut), "--dsn", elsewhere]).output
        assert (
            "has no end" in runner.invoke(main, ["restore", str(cut), "--rules", "--dsn", elsewhere]).output
        )
        cut.write_text("hello\n")
        assert (
            "does not begin like an export"
            in runner.invoke(main, ["restore", str(cut), "--dsn", elsewhere]).output
        )
        assert other.execute("select count(*) from memories").fetchone() == (0,)
        back = runner.invoke(main, ["restore", str(file), "--rules", "--dsn", elsewhere])
        assert back.exit_code == 0, back.output
        assert back.stdout.startswith("tenant acme, bucket default: ")
        check(other)
        assert runner.invoke(main, ["restore", str(file), "--dsn", elsewhere]).exit_code == 1
