"""Hooks of the core, which contrib/citus replaces: they do nothing here, and each call reaches its own.

What they do on Citus is tested there (contrib/citus/tests/). Here a hook is replaced by one that raises.
"""

from __future__ import annotations

import psycopg
import pytest

from tests.support.queries import DB

ID = "'01a20772-f9e7-767f-bcd0-ca8d35f6f6f3'"
# The check that a call begins with, by the hook that it reaches: _authorize_pair() calls _authorize_tenant().
CHECKS = {
    "_on_tenant_node": r"memfold_internal\._authorize_(tenant|judge|queue|pair)\(",
    "_authorize_reader": r"memfold_internal\._authorize_reader\(",
    "_assert_local_shard": r"memfold_internal\._assert_local_shard\(",
}
# Public functions of a tenant that read and lock nothing of it themselves, with the reason.
NOT_CHECKED = {"rehash_bucket": "what it calls is checked", "take_up_links": "what it calls is checked"}


def replace(db: DB, hook: str) -> None:
    db.execute(
        f"create or replace function memfold_internal.{hook}(p_tenant_id text) returns void language plpgsql as"
        f" $$ begin raise exception '{hook} of %', p_tenant_id; end $$".encode()
    )


@pytest.mark.one_server
def test_each_function_of_a_tenant_begins_with_a_check(db: DB) -> None:
    found: dict[str, set[str]] = {hook: set() for hook in (*CHECKS, "")}
    for name, source in db.execute(
        "select proname, prosrc from pg_proc where pronamespace = 'memfold'::regnamespace and proname !~ '^_'"
        " and 'tenant_id' = any(proargnames[:pronargs])"
    ).fetchall():
        hooks = [
            hook
            for hook, pattern in CHECKS.items()
            if db.execute("select %s::text ~ %s", [source, pattern]).fetchone() == (True,)
        ]
        assert len(hooks) <= 1, name
        found[hooks[0] if hooks else ""].add(name)
    assert found[""] == set(NOT_CHECKED)
    assert found["_assert_local_shard"] == {"derive_scope"}
    assert found["_authorize_reader"] == {"current_memory", "current_memories", "explain_memory"}
    assert len(found["_on_tenant_node"]) > 40


@pytest.mark.one_server
@pytest.mark.parametrize(
    ("hook", "call"),
    [
        ("_on_tenant_node", "memfold.ingest_memory('User prefers dark mode', 'acme')"),
        ("_on_tenant_node", "memfold.known_memory('User prefers dark mode', 'acme')"),
        ("_on_tenant_node", f"memfold.merge_memories({ID}, {ID}, tenant_id => 'acme')"),
        ("_on_tenant_node", f"memfold.resolve_judgement({ID}, 'duplicate', tenant_id => 'acme')"),
        ("_on_tenant_node", "memfold.claim_judgements('worker', tenant_id => 'acme')"),
        ("_on_tenant_node", "memfold.retry_judgements('acme')"),
        ("_on_tenant_node", "memfold_internal._rehash_batch('acme', gen_random_uuid(), 1)"),
        ("_authorize_reader", f"memfold.current_memory({ID}, 'acme')"),
        ("_authorize_reader", "memfold.current_memories('acme')"),
        ("_authorize_reader", f"memfold.explain_memory({ID}, 'acme')"),
        ("_assert_local_shard", f"memfold.derive_scope(array[{ID}::uuid], 'acme')"),
    ],
)
def test_a_call_reaches_its_hook(db: DB, hook: str, call: str) -> None:
    replace(db, hook)
    with pytest.raises(psycopg.errors.RaiseException, match=f"{hook} of acme"):
        db.execute(f"select {call}".encode())


@pytest.mark.one_server
def test_an_application_reaches_the_hook_once_its_fast_path_is_closed(db: DB) -> None:
    """As on Citus: functions that inline _is_authorized() skip the hook if it is true."""
    call = b"select action from memfold.ingest_memory('User prefers dark mode', 'acme')"
    db.execute("set session authorization memfold_app; set memfold.tenant_id = 'acme'")
    assert db.execute(call).fetchone() == ("inserted",)
    db.execute("reset session authorization")
    replace(db, "_on_tenant_node")
    db.execute("set session authorization memfold_app")
    assert db.execute(call).fetchone() == ("merged",)
    db.execute("reset session authorization")
    db.execute(
        "create or replace function memfold_internal._is_authorized(p_tenant_id text) returns boolean"
        " language sql stable parallel safe return false"
    )
    db.execute("set session authorization memfold_app")
    with pytest.raises(psycopg.errors.RaiseException, match="_on_tenant_node of acme"):
        db.execute(call)


@pytest.mark.one_server
def test_a_hook_of_all_queues_is_for_no_tenant(db: DB) -> None:
    """Claims and retries of one tenant do not reach it; those of all do."""
    db.execute(
        "create or replace function memfold_internal._retry_all_tenants() returns bigint language sql return 42"
    )
    db.execute(
        "create or replace function memfold_internal._claim_all_tenants(p_worker text, p_max_results bigint,"
        " p_lease interval, p_review boolean, p_judgement_ids uuid[]) returns setof memfold.claimed_judgement"
        " language plpgsql as $$ begin raise exception 'all % of %', p_max_results, p_worker; end $$"
    )
    assert db.execute("select memfold.retry_judgements(null)").fetchone() == (42,)
    assert db.execute("select memfold.retry_judgements('acme')").fetchone() == (0,)
    assert db.execute("select memfold.claim_judgements('w', 'acme')").fetchall() == []
    with pytest.raises(psycopg.errors.RaiseException, match="all 7 of w"):
        db.execute("select memfold.claim_judgements('w', null, 7)")


@pytest.mark.one_server
@pytest.mark.parametrize("hook", list(CHECKS))
def test_a_hook_costs_no_call(db: DB, hook: str) -> None:
    """The planner inlines it."""
    plan = db.execute(
        f"explain (verbose, costs off) select memfold_internal.{hook}('acme')".encode()
    ).fetchall()
    assert plan == [("Result",), ("  Output: NULL::void",)]
