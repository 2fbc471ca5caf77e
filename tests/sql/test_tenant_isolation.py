"""Tenant isolation: row level security, roles, and what the application may not do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB

App = Callable[..., DB]

TENANT_TABLES = {
    "memories", "memory_counters", "memory_vectors", "memory_intervals", "memory_sources",
    "memory_tokens", "memory_events", "idempotency_keys", "judgements", "labelled_pairs", "policies", "options",
    "predicates", "links", "antonyms", "runs",
}  # fmt: skip


@pytest.fixture
def two_tenants(db: DB) -> DB:
    model(db)
    for tenant in ("acme", "globex"):
        db.execute("select set_predicate('works_at', %s), link_subject('Anna', 'Ann', %s)", [tenant, tenant])
        db.execute("select set_policy(%s, 'default'), set_options(%s, 'default')", [tenant, tenant])
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
    return db


MODELS = {"embedding_models", "calibrations", "calibration_changes"}


def state(error: pytest.ExceptionInfo[psycopg.Error]) -> str | None:
    return error.value.sqlstate


@pytest.mark.core
def test_every_tenant_table_has_forced_row_level_security(db: DB) -> None:
    rows = db.execute(
        "select relname, relrowsecurity and relforcerowsecurity from pg_class c"
        " where relnamespace = 'memfold'::regnamespace and relkind = 'r' and exists ("
        " select from pg_attribute where attrelid = c.oid and attname = 'tenant_id')"
        " and relname <> 'tenant_roles'"
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
    for table in sorted(TENANT_TABLES - {"policies", "options", "antonyms"}):
        assert nobody.execute(f"select count(*) from memfold.{table}").fetchone() == (0,), table
    for table in ("policies", "options"):
        assert nobody.execute(f"select count(*) from memfold.{table}".encode()).fetchone() == (1,)
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
    "preview_memory('User prefers dark mode', 'globex')",
    "known_memory('User prefers dark mode', 'globex')",
    "find_similar('[1,0,0,0]', 'm', 'globex', 'default')",
    "attach_embedding(gen_random_uuid(), '[1,0,0,0]', 'm', 'globex')",
    "pending_embeddings('globex')",
    "set_policy('globex')",
    "set_policy('*')",
    "set_options('globex')",
    "set_options('*')",
    "set_predicate('p', 'globex')",
    "set_predicate('p', '*')",
    "check_invariants('globex')",
    "export_bucket('globex')",
    "claim_judgements('w', tenant_id => 'globex')",
    "resolve_judgement(gen_random_uuid(), 'distinct', tenant_id => 'globex')",
    "fail_judgement(gen_random_uuid(), 'e', tenant_id => 'globex')",
    "retry_judgements('globex')",
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
    mine.execute(
        "select set_predicate('works_at', 'acme'), set_policy('acme', 'b', on_ambiguous => 'insert')"
    )
    for place in ("VW", "Stripe", "VW"):
        ingest(mine, f"Ann works at {place}", subject="Ann", predicate="works_at", object=place)
    assert mine.execute("select explain_memory(%s)", [first.memory_id]).fetchall()
    assert mine.execute("select * from canonicalizer_selftest() where not ok").fetchall() == []
    assert mine.execute("select count(*) from memory_audit where confidence is not null").fetchone() == (5,)
    assert mine.execute("select active, merged from dedup_stats").fetchall() == [(4, 1)]
    assert mine.execute("select * from check_invariants()").fetchall() == []
    check(db)


@pytest.mark.parametrize("group", ["memfold_tenant", "memfold_agent"])
def test_a_role_bound_to_a_tenant(two_tenants: DB, db: DB, connect: Callable[..., DB], group: str) -> None:
    role = f"bound_{db.info.dbname}"
    db.execute(f"drop role if exists {role}")
    db.execute(f"create role {role} login in role {group}")
    try:
        login = connect(user=role)
        login.execute("set memfold.tenant_id = 'acme'")
        # without a row in tenant_roles it sees nothing
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
        if group == "memfold_agent":
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                login.execute("set role memfold_app")
        else:
            login.execute("set role memfold_app")
        login.execute("set memfold.tenant_id = 'acme'")
        assert {r[0] for r in login.execute("select tenant_id from memories").fetchall()} == {"globex"}
        with pytest.raises(psycopg.Error) as error:
            ingest(login, "User likes Vim")
        assert state(error) == "MF002"
        login.close()
    finally:
        db.execute("delete from memfold.tenant_roles")
        db.execute(f"drop role {role}")


# Two tenants with 2,000 memories each, and what belongs to them.
FILL = """
with texts as materialized (
    select t.tenant, memfold_internal._new_id() as id, n
    from (values ('acme'), ('globex')) as t (tenant), generate_series(1, 2000) as n
),
memories as (
    insert into memfold.memories (tenant_id, memory_id, content, subject, canonicalizer, key_fields, embedding_pending)
    select tenant, id, 'Fact ' || n, 'Subject ' || n % 100, 'prose/1', 'type,subject,predicate', n % 100 = 0 from texts
    returning tenant_id, memory_id, scope_key
),
counters as (
    insert into memfold.memory_counters (tenant_id, memory_id, observations, independent, first_seen, last_seen)
    select tenant, id, 1, 1, now(), now() from texts
),
vectors as (
    insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, embedding)
    select tenant_id, memory_id, 'm', 'default', scope_key, '[1,0,0,0]' from memories
),
sources as (
    insert into memfold.memory_sources select tenant, 'turn ' || n, id, id from texts
),
tokens as (
    insert into memfold.memory_tokens select tenant, 'default', 'word ' || n % 300, id from texts
),
intervals as (
    insert into memfold.memory_intervals (tenant_id, memory_id, valid_from, slot_key)
    select tenant_id, memory_id, now(), scope_key from memories
),
events as (
    insert into memfold.memory_events (tenant_id, bucket_id, action, memory_id, observation, run_id, actor)
    select tenant, 'default', 'inserted', id, true, case when n % 50 = 0 then id end, 'me' from texts
),
keys as (
    insert into memfold.idempotency_keys (tenant_id, bucket_id, idempotency_key)
    select tenant, 'default', 'k' || n from texts
)
insert into memfold.judgements (tenant_id, bucket_id, scope_key, kind, status, memory_id, other_id)
select m.tenant_id, 'default', m.scope_key, 'write', case when random() < 0.1 then 'open' else 'done' end, m.memory_id,
    (select id from texts where tenant = m.tenant_id limit 1)
from memories as m
where m.memory_id <> (select id from texts where tenant = m.tenant_id limit 1)
"""
# The statements of the functions' hot paths, and the index that each is to use.
PLANS = {
    "tier 1": (
        "select m.memory_id, m.root_id, m.status from memfold.memories as m where m.tenant_id = 'acme'"
        " and m.bucket_id = 'default' and m.content_hash >= '\\x0a' and m.content_hash <= '\\x0a'"
        " order by m.content_hash limit 1",
        "memories_content_hash_key",
    ),
    "a memory and its counters": (
        "select m.content, k.observations from memfold.memories as m join memfold.memory_counters as k"
        " on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id where m.tenant_id = 'acme' and m.memory_id = {id}",
        "memory_counters_pkey",
    ),
    "the vectors of a scope": (
        "select v.memory_id, v.embedding from memfold.memory_vectors as v"
        " where v.tenant_id = 'acme' and v.bucket_id = 'default' and v.scope_key = '{scope}' and v.model = 'm' and v.is_live"
        " order by v.memory_id desc limit 20",
        "memory_vectors_scope_idx",
    ),
    "texts of a scope": (
        "select m.memory_id from memfold.memories as m where m.tenant_id = 'acme' and m.bucket_id = 'default'"
        " and m.scope_key = '{scope}'",
        "memories_scope_idx",
    ),
    "the ledger of a memory": (
        "select e.* from memfold.memory_events as e where e.tenant_id = 'acme' and e.memory_id = {id} order by e.event_id",
        "memory_events_memory_idx",
    ),
    "what was decided of a memory": (
        "select e.* from memfold_internal._decisions as e where e.tenant_id = 'acme' and e.memory_id = {id}",
        "memory_events_decisions_idx",
    ),
    "observations after a block of sums": (
        "select e.* from memfold_internal._observed as e where e.tenant_id = 'acme'"
        " and (e.memory_id, e.event_id) > ({id}, {id})"
        " and (e.memory_id, e.event_id) <= ({id}, 'ffffffff-ffff-ffff-ffff-ffffffffffff') order by e.memory_id, e.event_id",
        "memory_events_memory_idx",
    ),
    "the ledger of a run": (
        "select e.* from memfold.memory_events as e where e.tenant_id = 'acme' and e.run_id = {id}",
        "memory_events_run_idx",
    ),
    "memories of a turn": (
        "select s.memory_id from memfold.memory_sources as s where s.tenant_id = 'acme' and s.source_turn_id = 'turn 7'",
        "memory_sources_pkey",
    ),
    "words": (
        "select t.memory_id, count(*) from memfold.memory_tokens as t where t.tenant_id = 'acme'"
        " and t.bucket_id = 'default' and t.token = 'word 7' group by 1",
        "memory_tokens_pkey",
    ),
    "the queue": (
        "select j.* from memfold.judgements as j where j.tenant_id = 'acme' and j.status in ('open', 'leased')"
        " and (j.kind = 'review') = (select false) and j.next_attempt_at <= now()"
        " order by j.next_attempt_at, j.judgement_id limit 10",
        "judgements_queue_idx",
    ),
    "judgements of a memory": (
        "select j.* from memfold.judgements as j where j.tenant_id = 'acme' and j.memory_id = {id}",
        "judgements_memory_idx",
    ),
    "a slot's intervals": (
        "select i.* from memfold.memory_intervals as i where i.tenant_id = 'acme' and i.slot_key = '{scope}'"
        " order by coalesce(i.valid_to, 'infinity') desc limit 1",
        "memory_intervals_slot_idx",
    ),
    "intervals of a memory": (
        "select i.* from memfold.memory_intervals as i where i.tenant_id = 'acme' and i.memory_id = {id}",
        "memory_intervals_pkey",
    ),
    "an idempotency key": (
        "select k.event_id from memfold.idempotency_keys as k where k.tenant_id = 'acme' and k.bucket_id = 'default'"
        " and k.idempotency_key = 'k7'",
        "idempotency_keys_pkey",
    ),
    "what waits for a vector": (
        "select m.memory_id from memfold.memories as m where m.tenant_id = 'acme' and m.embedding_pending"
        " order by m.memory_id limit 10",
        "memories_pending_idx",
    ),
}

NOT_FOR_AGENTS = (
    "set_policy('globex', merge_threshold => 0.5)", "set_options('globex', decay_floor => 0.5)",
    "set_predicate('likes', 'globex')", "link_subject('Anna', 'Ann', 'globex')", "erase_bucket('globex', 'default')",
    "erase_memory(gen_random_uuid(), tenant_id => 'globex')", "run_maintenance('globex')", "consolidate('globex')",
    "end_session('s', 'globex')", "export_bucket('globex')", "undo_run(gen_random_uuid(), tenant_id => 'globex')",
)  # fmt: skip


def test_an_agent_has_no_rules_links_maintenance_or_erasure(
    two_tenants: DB, db: DB, connect: Callable[..., DB]
) -> None:
    role = f"agent_{db.info.dbname}"
    db.execute(f"drop role if exists {role}")
    db.execute(f"create role {role} login in role memfold_agent")
    try:
        db.execute("insert into memfold.tenant_roles values (%s, 'globex')", [role])
        login = connect(user=role)
        for call in NOT_FOR_AGENTS:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                login.execute(f"select memfold.{call}".encode())
        for table in ("policies", "antonyms", "links", "memories", "memory_events"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                login.execute(f"delete from memfold.{table}".encode())
        # it may read every view
        views = db.execute(
            "select relname from pg_class where relnamespace = 'memfold'::regnamespace and relkind = 'v'"
        ).fetchall()
        for (view,) in views:
            login.execute(f"select * from memfold.{view}".encode())
        made = ingest(login, "User likes Vim a lot", tenant_id="globex")
        for call in (
            f"explain_memory('{made.memory_id}', 'globex')",
            f"update_memory('{made.memory_id}', 'User likes Emacs', tenant_id => 'globex')",
            "preview_memory('User likes Ed', 'globex')", "known_memory('User likes Ed', 'globex')",
            "search_memories(query => 'likes', tenant_id => 'globex')", "canonicalize('A', 'prose/1')",
        ):  # fmt: skip
            login.execute(f"select memfold.{call}".encode())
        login.close()
    finally:
        db.execute("delete from memfold.tenant_roles")
        db.execute(f"drop role {role}")


@pytest.mark.parametrize(
    ("group", "may"),
    [("memfold_agent", False), ("memfold_tenant", True), ("memfold_judge", True), ("memfold_owner", True)],
)
def test_who_answers_questions_about_names(db: DB, connect: Callable[..., DB], group: str, may: bool) -> None:
    """The answer links two names for the whole bucket: an agent, who may not link, may not answer either."""
    for name in ("Georg", "Georg Maier"):
        for text in ("plays chess", "has a dog"):
            ingest(db, text, subject=name)
    assert db.execute("select ask_links('acme')").fetchone() == (1,)
    (question,) = db.execute("select judgement_id from memfold.judgements").fetchone() or ()
    role = f"names_{db.info.dbname}"
    db.execute(f"drop role if exists {role}")
    db.execute(f"create role {role} login in role {group}")
    try:
        db.execute("insert into memfold.tenant_roles values (%s, 'acme')", [role])
        login = connect(user=role)
        for verdict in ("distinct", "duplicate"):
            call = "select action from memfold.resolve_judgement(%s, %s, 'acme')"
            if may and verdict == "duplicate":
                assert login.execute(call, [question, verdict]).fetchone() == ("linked",)
            elif not may:
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="about names") as error:
                    login.execute(call, [question, verdict])
                assert role in (error.value.diag.message_detail or "")
                assert "memfold_tenant" in (error.value.diag.message_hint or "")
        login.close()
        assert db.execute("select count(*) from memfold.links").fetchone() == (int(may),)
    finally:
        db.execute("delete from memfold.tenant_roles")
        db.execute(f"drop role {role}")


def nodes(plan: dict[str, Any]) -> list[tuple[str, str | None]]:
    # a tenant that is a constant is compared with the setting once, before any row is looked at
    found = [] if "One-Time Filter" in plan else [(plan["Node Type"], plan.get("Index Name"))]
    for below in plan.get("Plans", []):
        # (what a policy computes once is not part of the way to the rows)
        if below.get("Parent Relationship") not in ("InitPlan", "SubPlan"):
            found += nodes(below)
    return found


@pytest.mark.new_database
def test_policies_use_the_same_indexes(two_tenants: DB, db: DB, app: App) -> None:
    """The plans of a superuser, whom no policy binds, are those of memfold's functions and those of applications."""
    db.execute(FILL)
    db.execute("analyze")
    row = db.execute(
        "select memory_id, scope_key from memories where tenant_id = 'acme' and content = 'Fact 7'"
    ).fetchone()
    assert row is not None
    mine = app("acme")
    different = {}
    for name, (statement, index) in PLANS.items():
        query = "explain (format json) " + statement.format(id=f"'{row[0]}'::uuid", scope=row[1])
        plans = []
        for who in ("superuser", "memfold_owner", "memfold_app"):
            connection = mine if who == "memfold_app" else db
            with db.transaction():
                if who == "memfold_owner":
                    db.execute("set local role memfold_owner; set local memfold.tenant_id = 'acme'")
                answer = connection.execute(query).fetchone()
            assert answer is not None
            plans.append(nodes(answer[0][0]["Plan"]))
        if not plans[0] == plans[1] == plans[2] or index not in {used for _, used in plans[0]}:
            different[name] = plans
    assert different == {}


def test_without_row_level_security_other_tenants_are_visible(two_tenants: DB, db: DB, app: App) -> None:
    """The tests above would notice this."""
    db.execute("alter table memfold.memories disable row level security")
    seen = app("acme").execute("select distinct tenant_id from memories").fetchall()
    assert {row[0] for row in seen} == {"acme", "globex"}
