"""memfold on Citus: a coordinator and two workers. Runs where CITUS_PG_CONFIG names a server that has Citus."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests import citus_nodes

BINDIR, WHY_NOT = citus_nodes.bindir()
pytestmark = pytest.mark.skipif(BINDIR is None, reason=WHY_NOT)

LOGINS = {"appl": "memfold_app", "judge": "memfold_judge", "bound": "memfold_tenant"}
# What Citus cannot send by tenant_id, with the reason.
NOT_SENT = {
    "claim_judgements": "goes from tenant to tenant",
    "revive_judgements": "goes from tenant to tenant",
    "derive_scope": "is called by functions that were sent",
    "schedule_upkeep": "is about pg_cron's jobs",
    "unschedule_upkeep": "is about pg_cron's jobs",
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[citus_nodes.Nodes]:
    assert BINDIR is not None
    made = citus_nodes.Nodes(BINDIR)
    try:
        made.start()
        made.install()
        with made.connect() as connection:
            for login, role in LOGINS.items():
                connection.execute(f"create role {login} login in role {role}".encode())
            connection.execute("insert into memfold.tenant_roles values ('bound', 'acme')")
            connection.execute("select memfold.register_embedding_model('toy', 3)")
        yield made
    finally:
        made.stop()


def sqlstate(connection: psycopg.Connection[Any], statement: str) -> str | None:
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(statement.encode())
    return caught.value.sqlstate


def away(nodes: citus_nodes.Nodes, tenant: str) -> int:
    """The worker that is not the tenant's."""
    return 3 - nodes.workers_of([tenant])[tenant]


def test_tenants_are_spread(nodes: citus_nodes.Nodes) -> None:
    found = nodes.workers_of([f"tenant {number}" for number in range(30)])
    assert set(found.values()) == {1, 2}


def test_each_function_with_a_tenant_is_sent(nodes: citus_nodes.Nodes) -> None:
    with nodes.connect() as connection:
        found = connection.execute(
            "select p.proname from pg_proc as p where p.pronamespace = 'memfold'::regnamespace"
            " and p.proname !~ '^_' and 'tenant_id' = any(p.proargnames[:p.pronargs]) and not exists ("
            " select from pg_dist_object as o where o.classid = 'pg_proc'::regclass and o.objid = p.oid"
            " and o.distribution_argument_index is not null)"
        ).fetchall()
    assert {name for (name,) in found} == set(NOT_SENT)


def test_nodes_have_the_same_functions(nodes: citus_nodes.Nodes) -> None:
    query = (
        "select p.oid::regprocedure::text, p.prosrc, p.proowner::regrole::text, p.prosecdef, p.proconfig,"
        " array(select (x.grantee::regrole, x.privilege_type)::text from aclexplode(p.proacl) as x order by 1)"
        " from pg_proc as p where p.pronamespace = 'memfold'::regnamespace order by 1"
    )
    found = []
    for node in range(3):
        with nodes.connect(node) as connection:
            found.append(connection.execute(query.encode()).fetchall())
    assert len(found[0]) > 300
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("way", ["coordinator", "transactions", "workers", "mixed"])
@pytest.mark.parametrize("kind", ["equal", "paraphrases"])
def test_sixteen_writers(nodes: citus_nodes.Nodes, kind: str, way: str) -> None:
    """Promises 1 and 2: one active memory a fact, with exact counters."""
    tenant, writers, facts, rounds = f"{kind} by {way}", 16, 4, 3
    begin = threading.Barrier(writers)
    failures: list[Exception] = []

    def write(number: int) -> None:
        node = {"coordinator": 0, "transactions": 0, "workers": 1 + number % 2, "mixed": number % 3}[way]
        try:
            with nodes.connect(node, "appl") as connection:
                begin.wait()
                for turn in range(rounds):
                    for fact in range(facts):
                        ingest(connection, number, (fact + number) % facts, turn)
        except Exception as failure:
            failures.append(failure)

    def ingest(connection: psycopg.Connection[Any], number: int, fact: int, turn: int) -> None:
        arguments: dict[str, Any] = {
            "tenant": tenant,
            "subject": f"s{fact}",
            "embedding": None,
            "model": None,
        }
        arguments["content"] = f"Fact {'abcd'[fact]} holds"
        if kind == "paraphrases":
            words = "".join(chr(97 + int(digit)) for digit in f"{number:02}{turn}")
            angle = fact + 0.02 * ((number + turn) % 7) / 7
            arguments["content"] += f", says {words}"
            arguments["embedding"] = str([math.cos(angle), math.sin(angle), 0])
            arguments["model"] = "toy"
        statement = (
            "select action from memfold.ingest_memory(%(content)s, %(tenant)s, subject => %(subject)s,"
            " embedding => %(embedding)s, embedding_model => %(model)s)"
        )
        for _ in range(20):
            try:
                if way == "transactions":
                    with connection.transaction():
                        connection.execute(statement.encode(), arguments)
                else:
                    connection.execute(statement.encode(), arguments)
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                continue
            return
        raise AssertionError("twenty times in vain")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with nodes.connect() as connection:
        found = connection.execute(
            "select m.subject, k.observations from memfold.memories as m join memfold.memory_counters as k"
            " on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id"
            " where m.tenant_id = %s and m.status = 'active' order by 1",
            [tenant],
        ).fetchall()
        assert found == [(f"s{fact}", writers * rounds) for fact in range(facts)]
        broken = connection.execute("select * from memfold.check_invariants(%s)", [tenant]).fetchall()
        assert broken == []


def test_a_call_away_from_home_is_refused(nodes: citus_nodes.Nodes) -> None:
    call = "memfold.ingest_memory('Alice has a cat.', 'acme')"
    with nodes.connect(0, "appl") as connection:
        # none of these does Citus send to the tenant's node
        assert sqlstate(connection, f"select {call}, 1") == "MF060"
        assert sqlstate(connection, "select memfold.ingest_memory('x', (select 'acme'))") == "MF060"
        assert sqlstate(connection, f"select * from generate_series(1, 2), {call}") == "MF060"
        connection.execute("set memfold.tenant_id = 'acme'")
        assert sqlstate(connection, "select * from memfold.apply_decay()") == "MF060"
    with nodes.connect(away(nodes, "acme"), "appl") as connection:
        assert connection.execute(f"select action from {call}".encode()).fetchall() == [("inserted",)]
        with pytest.raises(psycopg.Error) as caught, connection.transaction():
            connection.execute(f"select action from {call}".encode())
        assert caught.value.sqlstate == "MF060"
    with nodes.connect() as connection:
        row = connection.execute(
            "select count(*), min(action) from memfold.memory_events where tenant_id = 'acme'"
        ).fetchone()
        assert row == (1, "inserted")


def test_walls(nodes: citus_nodes.Nodes) -> None:
    with nodes.connect(0, "bound") as connection:
        connection.execute("select * from memfold.ingest_memory('Bound to acme.', 'acme')")
        assert sqlstate(connection, "select * from memfold.ingest_memory('x', 'globex')") == "MF002"
        assert sqlstate(connection, "select * from memfold.current_memories('globex')") == "MF002"
        found = connection.execute("select distinct tenant_id from memfold.memories").fetchall()
        assert found == [("acme",)]
    with nodes.connect(0, "appl") as connection:
        connection.execute("select * from memfold.ingest_memory('Globex only.', 'globex')")
        # settings of this session do not reach the nodes where rows are
        assert connection.execute("select count(*) from memfold.memories").fetchone() == (0,)
        # one node's session serves one tenant after the other
        for _ in range(5):
            for tenant in ("acme", "globex"):
                statement = "select content from memfold.current_memories(%s)"
                texts = {text for (text,) in connection.execute(statement.encode(), [tenant])}
                assert texts
                assert ("Globex only." in texts) == (tenant == "globex")
        assert sqlstate(connection, "select * from memfold.set_policy('*', 'x')") == "MF002"


@pytest.mark.parametrize("node", [0, 1, 2])
def test_round_trip(nodes: citus_nodes.Nodes, node: int) -> None:
    """Judge, undo, hand, timeline, search, erasure, through every node."""
    tenant = f"round trip {node}"
    with nodes.connect(node, "appl") as app, nodes.connect(0, "judge") as judge:

        def one(statement: str, *arguments: object) -> Any:
            rows = app.execute(statement.encode(), arguments).fetchall()
            return rows[0] if rows else None

        ingest = (
            "select action, memory_id, event_id, judgement_id from memfold.ingest_memory(%s, %s, subject => %s,"
            " embedding => %s, embedding_model => 'toy', source_turn_ids => array[%s])"
        )
        first = one(ingest, "Alice has a cat.", tenant, "Alice", "[0.9,0.1,0.4]", "t1")
        again = one(ingest, "Alice owns a cat.", tenant, "Alice", "[0.88,0.12,0.41]", "t2")
        not_one = one(ingest, "Alice has no cat.", tenant, "Alice", "[0.90,0.11,0.40]", "t3")
        assert (first[0], again[0], not_one[0]) == ("inserted", "merged", "escalated")
        claimed = judge.execute(
            "select tenant_id, judgement_id from memfold.claim_judgements('w')"
        ).fetchall()
        assert claimed == [(tenant, not_one[3])]
        resolved = judge.execute(
            "select * from memfold.resolve_judgement(%s, 'duplicate', 0.9, tenant_id => %s)",
            [not_one[3], tenant],
        ).fetchall()
        assert len(resolved) == 1
        assert one("select count(*) from memfold.current_memories(%s)", tenant) == (1,)
        one("select * from memfold.undo(%s, tenant_id => %s)", again[2], tenant)
        assert one("select count(*) from memfold.current_memories(%s)", tenant) == (2,)
        found = one(
            "select content from memfold.search_memories(%s, 'default', '[0.9,0.1,0.4]', 'toy')", tenant
        )
        assert found is not None
        one("select memfold.set_predicate(%s, 'lives_in')", tenant)
        for town, action in (("Rome", "inserted"), ("Oslo", "superseded"), ("Rome", "superseded")):
            done = one(
                "select action from memfold.ingest_memory(%s, %s, subject => 'Alice', predicate => 'lives_in',"
                " object => %s)",
                f"Alice lives in {town}.", tenant, town,
            )  # fmt: skip
            assert done == (action,)
        assert one("select * from memfold.check_invariants(%s)", tenant) is None
        erased = one("select erased, remaining from memfold.erase_source(%s, 't2')", tenant)
        assert erased == (1, 0)
        assert one("select remaining from memfold.erase_bucket(%s, 'default')", tenant) == (0,)
        assert one("select count(*) from memfold.current_memories(%s)", tenant) == (0,)


def test_rules_are_on_every_node(nodes: citus_nodes.Nodes) -> None:
    with nodes.connect(2, "appl") as connection:
        connection.execute("select * from memfold.set_policy('rules', 'b', merge_threshold => 0.97)")
    for node in range(3):
        with nodes.connect(node) as connection:
            row = connection.execute(
                "select merge_threshold from memfold.policies where tenant_id = 'rules'"
            ).fetchone()
            assert row == (0.97,)


def test_the_script_may_run_again(nodes: citus_nodes.Nodes) -> None:
    """As after an upgrade: memfold's functions are made anew on the coordinator, then distributed anew."""
    nodes.install()
    test_nodes_have_the_same_functions(nodes)
    test_round_trip(nodes, 0)
