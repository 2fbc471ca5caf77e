"""Tenants are walls: row level security, roles, and what the application may not do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.support import check, ingest, model, vector

DB = psycopg.Connection[Any]
App = Callable[..., DB]

TENANT_TABLES = {
    "memories", "memory_counters", "memory_vectors", "memory_intervals", "memory_sources", "memory_tokens",
    "memory_events", "idempotency_keys", "judgements", "labelled_pairs", "policies", "predicates", "antonyms",
    "runs", "memory_events_archive", "archive_positions",
}  # fmt: skip


@pytest.fixture
def two_tenants(db: DB) -> DB:
    model(db)
    for tenant in ("acme", "globex"):
        db.execute("select set_predicate(%s, 'works_at')", [tenant])
        db.execute("select set_policy(%s, 'default')", [tenant])
        ingest(
            db,
            "User prefers dark mode",
            tenant_id=tenant,
            source_turn_ids=["t"],
            idempotency_key="k",
            **vector(1.0),
        )
        ingest(db, "User likes tea", tenant_id=tenant, **vector(0.9))
        ingest(db, "Ann works at VW", tenant_id=tenant, subject="Ann", predicate="works_at", object="VW")
        db.execute("select end_session('a session', %s)", [tenant])
        for _ in range(3):
            ingest(db, "User likes tea", tenant_id=tenant)
        # one position and one archived row at least
        db.execute("select archive_events(clock_timestamp(), 1000, %s)", [tenant])
    return db


MODELS = {"embedding_models", "calibrations", "calibration_changes"}


def state(error: pytest.ExceptionInfo[psycopg.Error]) -> str | None:
    return error.value.sqlstate


@pytest.mark.core
def test_every_tenant_table_is_walled(db: DB) -> None:
    rows = db.execute(
        "select relname, relrowsecurity and relforcerowsecurity from pg_class c"
        " where relnamespace = 'memfold'::regnamespace and relkind = 'r' and exists ("
        " select from pg_attribute where attrelid = c.oid and attname = 'tenant_id')"
        # staged_candidates: COPY is refused where there is row level security; nobody reads it (tests/test_batch.py), and
        # a constraint keeps who writes it to its own tenant (test_candidates_are_staged_for_ones_own_tenant)
        " and relname not in ('tenant_roles', 'staged_candidates')"
    ).fetchall()
    assert dict(rows) == dict.fromkeys(TENANT_TABLES, True)


def test_the_application_sees_its_tenant_only(two_tenants: DB, app: App) -> None:
    mine = app("acme")
    for table in sorted(TENANT_TABLES - {"memory_tokens", "labelled_pairs"}):
        tenants = {
            row[0] for row in mine.execute(f"select distinct tenant_id from memfold.{table}").fetchall()
        }
        assert tenants - {"*"} <= {"acme"}, table
        assert tenants, table
    for view in ("memory_audit", "dedup_stats", "open_judgements", "judge_costs", "runaway_memories"):
        assert {row[0] for row in mine.execute(f"select tenant_id from {view}").fetchall()} <= {"acme"}
    other = two_tenants.execute("select memory_id from memories where tenant_id = 'globex'").fetchone()
    assert other is not None
    for call in ("explain_memory(%s)", "explain_memory(%s, 'globex')"):
        with pytest.raises(psycopg.Error) as error:
            mine.execute(f"select {call}", other)
        assert state(error) == "MF018"
    assert mine.execute("select * from current_memory(%s)", other).fetchall() == []
    assert mine.execute("select * from current_memory(%s, 'globex')", other).fetchall() == []


@pytest.mark.core
def test_without_a_tenant_there_is_nothing(two_tenants: DB, app: App) -> None:
    nobody = app()
    for table in sorted(TENANT_TABLES - {"policies", "antonyms"}):
        assert nobody.execute(f"select count(*) from memfold.{table}").fetchone() == (0,), table
    assert nobody.execute("select count(*) from memfold.policies").fetchone() == (1,)
    with pytest.raises(psycopg.Error) as error:
        ingest(nobody, "User likes Vim")
    assert state(error) == "MF002"
    # after SET LOCAL the setting is an empty text, not null
    nobody.execute("begin; set local memfold.tenant_id = 'acme'; commit")
    assert nobody.execute("select count(*) from memories").fetchone() == (0,)


CALLS = [
    "add_labelled_pair('a', 'b', 'distinct', 'globex')",
    "add_labelled_pairs('[]', 'globex')",
    "collect_pairs('globex', null, 'm')",
    "pairs_to_label('globex', 'm')",
    "remove_labelled_pair(gen_random_uuid(), 'globex')",
    "ingest_memory('User likes Vim', 'globex')",
    "ingest_memories('[]', 'globex')",
    "ingest_staged(gen_random_uuid(), 'globex')",
    "preview_memory('User prefers dark mode', 'globex')",
    "known_memory('User prefers dark mode', 'globex')",
    "find_similar('globex', 'default', '[1,0,0,0]', 'm')",
    "attach_embedding(gen_random_uuid(), '[1,0,0,0]', 'm', 'globex')",
    "pending_embeddings('globex')",
    "set_policy('globex')",
    "set_policy('*')",
    "set_predicate('globex', 'p')",
    "set_predicate('*', 'p')",
    "check_invariants('globex')",
    "export_bucket('globex')",
    "claim_judgements('w', tenant_id => 'globex')",
    "resolve_judgement(gen_random_uuid(), 'distinct', tenant_id => 'globex')",
    "fail_judgement(gen_random_uuid(), 'e', tenant_id => 'globex')",
    "revive_judgements('globex')",
    "undo(gen_random_uuid(), tenant_id => 'globex')",
    "reject_memory(gen_random_uuid(), tenant_id => 'globex')",
    "merge_memories(gen_random_uuid(), gen_random_uuid(), tenant_id => 'globex')",
    "supersede_memory(gen_random_uuid(), gen_random_uuid(), tenant_id => 'globex')",
    "update_memory(gen_random_uuid(), 'x', tenant_id => 'globex')",
]


@pytest.mark.parametrize("call", CALLS)
def test_the_argument_must_be_the_setting(two_tenants: DB, app: App, call: str) -> None:
    mine = app("acme")
    with pytest.raises(psycopg.Error) as error:
        mine.execute(f"select {call}")
    assert state(error) == "MF002"
    assert "globex" not in str(error.value)


def test_nobody_sets_the_rules_of_all(two_tenants: DB, app: App) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        app("acme").execute("select register_embedding_model('mine', 4, 0, 0)")
    star = app("*")
    with pytest.raises(psycopg.Error) as error:
        star.execute("select set_policy('*', dedup => 'off')")
    assert state(error) == "MF002"


def test_the_application_cannot_write_tables(two_tenants: DB, app: App) -> None:
    mine = app("acme")
    for table in sorted(TENANT_TABLES | MODELS | {"tenant_roles"}):
        for statement in (
            f"insert into memfold.{table} default values",
            f"update memfold.{table} set {'model' if table in MODELS else 'tenant_id'} = 'x'",
            f"delete from memfold.{table}",
            f"truncate memfold.{table}",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                mine.execute(statement)


@pytest.mark.core
def test_the_application_can_work(db: DB, app: App) -> None:
    model(db)
    mine = app("acme")
    first = ingest(mine, "User prefers dark mode", **vector(1.0))
    assert ingest(mine, "The user likes dark mode best", **vector(0.95)).memory_id == first.memory_id
    assert ingest(mine, "User likes tea", **vector(0.9, axis=2)).action == "escalated"
    late = ingest(mine, "User hates tea")
    mine.execute("select attach_embedding(%s, '[0,0,0,1]', 'm')", [late.memory_id])
    mine.execute("select set_predicate('acme', 'works_at'), set_policy('acme', 'b', on_ambiguous => 'keep')")
    for place in ("VW", "Stripe", "VW"):
        ingest(mine, f"Ann works at {place}", subject="Ann", predicate="works_at", object=place)
    assert mine.execute("select explain_memory(%s)", [first.memory_id]).fetchall()
    assert mine.execute("select * from canonicalizer_selftest() where not ok").fetchall() == []
    assert mine.execute("select count(*) from memory_audit where confidence is not null").fetchone() == (5,)
    assert mine.execute("select active, merged from dedup_stats").fetchall() == [(4, 1)]
    assert mine.execute("select * from check_invariants()").fetchall() == []
    check(db)


def test_a_role_bound_to_a_tenant(two_tenants: DB, db: DB, connect: Callable[..., DB]) -> None:
    role = f"bound_{db.info.dbname}"
    db.execute(f"drop role if exists {role}")
    db.execute(f"create role {role} login in role memfold_tenant")
    try:
        login = connect(user=role)
        login.execute("set memfold.tenant_id = 'acme'")
        # without a row it reaches nothing
        assert login.execute("select count(*) from memories").fetchone() == (0,)
        with pytest.raises(psycopg.Error) as error:
            ingest(login, "User likes Vim")
        assert state(error) == "MF002"
        db.execute("insert into memfold.tenant_roles values (%s, 'globex')", [role])
        with pytest.raises(psycopg.Error) as error:
            ingest(login, "User likes Vim")
        assert state(error) == "MF002"
        assert {r[0] for r in login.execute("select tenant_id from memories").fetchall()} == {"globex"}
        login.execute("reset memfold.tenant_id")
        assert ingest(login, "User likes Vim", tenant_id="globex").action == "inserted"
        assert login.execute("select role_name from memfold.tenant_roles").fetchall() == [(role,)]
        # another role does not unbind the login
        login.execute("set role memfold_app; set memfold.tenant_id = 'acme'")
        assert {r[0] for r in login.execute("select tenant_id from memories").fetchall()} == {"globex"}
        with pytest.raises(psycopg.Error) as error:
            ingest(login, "User likes Vim")
        assert state(error) == "MF002"
        login.close()
    finally:
        db.execute("delete from memfold.tenant_roles")
        db.execute(f"drop role {role}")


def test_candidates_are_staged_for_ones_own_tenant(db: DB, app: App, connect: Callable[..., DB]) -> None:
    row = "insert into staged_candidates (tenant_id, batch_id, ordinal, content) values (%s, gen_random_uuid(), 0, 'a')"
    role = f"bound_{db.info.dbname}"
    db.execute(f"drop role if exists {role}; create role {role} login in role memfold_tenant")
    db.execute("insert into memfold.tenant_roles values (%s, 'acme')", [role])
    try:
        mine, nobody, bound = app("acme"), app(), connect(user=role)
        bound.execute("set memfold.tenant_id = 'globex'")
        for connection in (mine, bound):
            connection.execute(row, ["acme"])
            connection.execute(
                "insert into staged_candidates (batch_id, ordinal) values (gen_random_uuid(), 0)"
            )
        bound.execute("set role memfold_app")
        bound.execute(row, ["acme"])
        db.execute(row, ["globex"])  # a restore
        for connection in (mine, nobody, bound):
            for tenant in ("globex", "*", ""):
                with pytest.raises(psycopg.Error) as error:
                    connection.execute(row, [tenant])
                assert state(error) == "MF002"
                with (
                    pytest.raises(psycopg.Error) as error,
                    connection.cursor().copy(
                        "copy staged_candidates (tenant_id, batch_id, ordinal) from stdin"
                    ) as copy,
                ):
                    copy.write_row((tenant, "00000000-0000-0000-0000-000000000000", 0))
                assert state(error) == "MF002"
        bound.close()
    finally:
        db.execute("delete from memfold.tenant_roles")
        db.execute(f"drop role {role}")


def test_walls_use_the_same_indexes(two_tenants: DB, db: DB, app: App) -> None:
    db.execute(
        "insert into memories (tenant_id, content) select 'acme', 'text ' || i from generate_series(1, 3000) i"
    )
    db.execute("analyze memfold.memories")
    mine = app("acme")
    query = (
        "explain select memory_id from memfold.memories where tenant_id = 'acme' and bucket_id = 'default'"
        " and content_hash = '\\x00'"
    )
    for connection in (db, mine):
        plan = "\n".join(row[0] for row in connection.execute(query).fetchall())
        assert "memories_content_hash_key" in plan


def test_with_a_policy_removed_the_wall_is_down(two_tenants: DB, db: DB, app: App) -> None:
    """The tests above would notice: this is what they look for."""
    db.execute("alter table memfold.memories disable row level security")
    seen = app("acme").execute("select distinct tenant_id from memories").fetchall()
    assert {row[0] for row in seen} == {"acme", "globex"}
