"""memfold on Citus: a coordinator and two workers. Runs where CITUS_PG_CONFIG names a server that has Citus."""

from __future__ import annotations

import json
import math
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from tests.support import servers
from tests.support.exports import TABLES, history
from tests.support.ledger import History, same

from contrib.citus.tests import citus_nodes
from memfold import Memfold
from memfold.client.errors import MemfoldError
from memfold.tools.admin import migrate
from memfold.tools.cli import main
from memfold.tools.web.database import Place, resolve_tenant

BINDIR, WHY_NOT = citus_nodes.bindir()
pytestmark = pytest.mark.skipif(BINDIR is None, reason=WHY_NOT)

LOGINS = {"appl": "memfold_app", "judge": "memfold_judge", "bound": "memfold_tenant"}
# Public functions of a tenant that do not run on its node, with the reason.
NOT_SENT = {
    "rehash_bucket": "commits where it is called; what it calls is sent",
    "take_up_links": "commits where it is called; what it calls is sent",
    "derive_scope": "is part of other calls",
}


# Memories of 100 tenants, stored before the server becomes a coordinator.
POPULATED = int(os.environ.get("MEMFOLD_POPULATED", "10000"))


def populate(connection: psycopg.Connection[Any], tenants: range) -> None:
    for tenant in tenants:
        for batch in range(0, POPULATED // 100, 1000):
            connection.execute(
                "select count(*) from memfold.ingest_memories((select jsonb_agg(jsonb_build_object("
                " 'content', format('Fact %%s of them is so.', n), 'subject', 's' || n %% 50))"
                " from generate_series(%s::int, %s) as n), %s::text)",
                [batch + 1, min(batch + 1000, POPULATED // 100), f"from before {tenant}"],
            )


@pytest.fixture(scope="module")
def nodes() -> Iterator[citus_nodes.Nodes]:
    """A server with memories that has become three nodes."""
    assert BINDIR is not None
    made = citus_nodes.Nodes(BINDIR)
    try:
        made.start()
        migrate.install(made.dsn() + " options='-c citus.enable_ddl_propagation=off'")
        with made.connect() as connection:
            populate(connection, range(100))
        began = time.monotonic()
        made.install()
        print(f"memfold init --citus with {POPULATED:,} memories: {time.monotonic() - began:.1f} s")
        with made.connect() as connection:
            for login, role in LOGINS.items():
                connection.execute(f"create role {login} login in role {role}".encode())
            connection.execute("insert into memfold.tenant_roles values ('bound', 'acme')")
            connection.execute("select memfold.register_embedding_model('toy', 3, 0.92, 0.85)")
        yield made
    finally:
        made.stop()


def sqlstate(connection: psycopg.Connection[Any], statement: str) -> str | None:
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(statement.encode())
    return caught.value.sqlstate


def away(nodes: citus_nodes.Nodes, tenant: str) -> int:
    """The worker without the tenant's shard."""
    return 3 - nodes.workers_of([tenant])[tenant]


def test_tenants_are_spread(nodes: citus_nodes.Nodes) -> None:
    found = nodes.workers_of([f"tenant {number}" for number in range(30)])
    assert set(found.values()) == {1, 2}


def test_a_populated_server_keeps_its_memories(nodes: citus_nodes.Nodes) -> None:
    tenants = [f"from before {number}" for number in range(100)]
    assert set(nodes.workers_of(tenants).values()) == {1, 2}
    each = POPULATED // 100
    with nodes.connect() as connection:
        for table in ("memories", "memory_counters", "memory_events"):
            found = connection.execute(
                f"select count(*), count(distinct tenant_id) from memfold.{table}"
                " where tenant_id like 'from before %'".encode()
            ).fetchone()
            assert found == (POPULATED, 100)
        for tenant in tenants[:10]:
            broken = connection.execute("select * from memfold.check_invariants(%s)", [tenant]).fetchall()
            assert broken == []
            answer = connection.execute(
                "select action from memfold.ingest_memory('fact 7 of THEM is so', %s, subject => 's7')",
                [tenant],
            ).fetchone()
            assert answer == ("merged",)
            assert connection.execute(
                "select active, observations from memfold.dedup_stats where tenant_id = %s", [tenant]
            ).fetchone() == (each, each + 1)


def test_doctor_completes_its_checks(nodes: citus_nodes.Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Including queries over rows of several nodes."""

    def doctor() -> list[str]:
        done = CliRunner().invoke(main, ["doctor", "--dsn", nodes.dsn(), "--tenant", "from before 0"])
        assert done.exit_code == 0, done.output
        lines = done.output.splitlines()
        assert "ok       row-level security: no fault" in lines
        assert "ok       memories of tenant from before 0 against its ledger: no difference" in lines
        return lines

    assert "ok       search covers every bucket completely" in doctor()
    monkeypatch.setattr("memfold.tools.admin.queries.SEARCH_LIMIT", 2)
    told = doctor()
    assert any(line.startswith("warning  search by words reads the newest 2 texts of 1") for line in told), (
        told
    )


def test_status_of_every_tenant(nodes: citus_nodes.Nodes) -> None:
    with nodes.connect() as connection:
        connection.execute(
            "insert into memfold.memories (tenant_id, content) values ('of status', 'A plain row.')"
        )
    done = CliRunner().invoke(main, ["status", "--dsn", nodes.dsn(), "--json"])
    assert done.exit_code == 0, done.output
    buckets = {one["tenant_id"]: one for one in json.loads(done.stdout)["buckets"]}
    assert {f"from before {number}" for number in range(100)} <= set(buckets)
    assert buckets["of status"]["plain_rows"] == 1
    assert buckets["from before 0"]["plain_rows"] == 0


def test_each_function_with_a_tenant_is_sent_to_its_node(nodes: citus_nodes.Nodes) -> None:
    with nodes.connect() as connection:
        found = connection.execute(
            "select p.proname from pg_proc as p where p.pronamespace = 'memfold'::regnamespace"
            " and p.proname !~ '^_' and 'tenant_id' = any(p.proargnames[:p.pronargs])"
            " and p.prosrc !~ 'memfold_internal._run_on_shard\\('"
        ).fetchall()
        forced = connection.execute(
            "select o.objid::regprocedure::text from pg_dist_object as o"
            " where o.classid = 'pg_proc'::regclass and o.force_delegation"
        ).fetchall()
    assert {name for (name,) in found} == set(NOT_SENT)
    assert forced == [('memfold_internal._run_on_shard(text,text,text,text,"any")',)]


def test_nodes_have_the_same_functions(nodes: citus_nodes.Nodes) -> None:
    query = (
        "select p.oid::regprocedure::text, p.prosrc, p.proowner::regrole::text, p.prosecdef, p.proconfig,"
        " array(select (x.grantee::regrole, x.privilege_type)::text from aclexplode(p.proacl) as x order by 1)"
        " from pg_proc as p where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[])"
        " order by 1"
    )
    found = []
    for node in range(3):
        with nodes.connect(node) as connection:
            found.append(connection.execute(query.encode()).fetchall())
    assert len(found[0]) > 300
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("way", ["coordinator", "workers", "transactions"])
@pytest.mark.parametrize("kind", ["equal", "paraphrases"])
def test_sixteen_writers(nodes: citus_nodes.Nodes, kind: str, way: str) -> None:
    """Promises 1 and 2: one active memory a fact, with exact counters."""
    tenant, writers, facts, rounds = f"{kind} by {way}", 16, 4, 3
    begin = threading.Barrier(writers)
    failures: list[Exception] = []
    with nodes.connect() as connection:
        # races are between texts that would merge; which words do is the guard's and the veto's
        connection.execute("select memfold.set_policy(%s, guard => 'off')", [tenant])

    def write(number: int) -> None:
        node = {"coordinator": 0, "workers": 1 + number % 2, "transactions": number % 3}[way]
        try:
            with nodes.connect(node, "appl") as connection:
                connection.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
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
        raise AssertionError("twenty attempts failed")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with nodes.connect() as connection:
        found = connection.execute(
            "select m.subject, k.observations from memfold.memories as m join memfold.memory_totals as k"
            " on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id"
            " where m.tenant_id = %s and m.status = 'active' order by 1",
            [tenant],
        ).fetchall()
        assert found == [(f"s{fact}", writers * rounds) for fact in range(facts)]
        broken = connection.execute("select * from memfold.check_invariants(%s)", [tenant]).fetchall()
        assert broken == []


@pytest.mark.parametrize("node", [0, 1, 2])
def test_every_call_runs_on_its_tenants_node(nodes: citus_nodes.Nodes, node: int) -> None:
    """Any form of the statement, in a transaction or not, runs once, on the tenant's node."""
    tenant = f"any call {node}"
    with nodes.connect(node, "appl") as connection:
        connection.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])

        def values(statement: str) -> list[Any]:
            return [row[0] for row in connection.execute(statement.encode()).fetchall()]

        call = "(memfold.ingest_memory('Alice has a cat.', current_setting('memfold.tenant_id'))).action"
        assert values(f"select {call}, 1") == ["inserted"]
        assert values(f"select {call} from generate_series(1, 2)") == ["merged", "merged"]
        with connection.transaction():
            assert values(f"select {call}") == ["merged"]
            assert values(
                "select count(*) from memfold.current_memories((select 'any call' || ' " + str(node) + "'))"
            ) == [1]
        connection.execute(b"prepare p (text, text) as select (memfold.ingest_memory($1, $2)).action")
        for _ in range(8):
            assert values(f"execute p ('Alice has a cat.', '{tenant}')") == ["merged"]
        with connection.transaction(force_rollback=True):
            assert values(
                "select action from memfold.ingest_memory('Alice has a dog.', '" + tenant + "')"
            ) == ["inserted"]
            with pytest.raises(psycopg.Error), connection.transaction():
                values("select memfold.ingest_memory('Alice has a cow.', '" + tenant + "'), 1 / 0")
        assert sqlstate(connection, "select memfold.ingest_memory('x', null)") == "MF001"
        assert sqlstate(connection, "select memfold.ingest_memory('x', '')") == "MF001"
    with nodes.connect() as connection:
        row = connection.execute(
            "select count(*), count(*) filter (where action = 'inserted') from memfold.memory_events where tenant_id = %s",
            [tenant],
        ).fetchone()
        assert row == (12, 1)


def test_a_call_that_writes_nothing_needs_no_transaction(nodes: citus_nodes.Nodes) -> None:
    """It is the only message to the tenant's node, except in a transaction; what writes begins one there, and commits it."""
    tenant = "messages"
    with nodes.connect(away(nodes, tenant), "appl") as connection:
        connection.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        connection.execute("set citus.log_remote_commands = on")
        sent: list[str] = []
        connection.add_notice_handler(lambda notice: sent.append(notice.message_primary or ""))

        def messages(call: str) -> list[str]:
            sent.clear()
            connection.execute(f"select * from memfold.{call}".encode())
            found = (re.match(r"issuing (\w+)", message) for message in sent)
            return [match[1] for match in found if match]

        known = f"known_memory('Alice has a cat.', '{tenant}')"
        written = f"ingest_memory('Alice has a cat.', '{tenant}')"
        messages(written)
        for call in (known, f"current_memories('{tenant}')", f"export_bucket('{tenant}', 'default')"):
            assert messages(call) == ["SELECT"]
        assert messages(written) == ["BEGIN", "SELECT", "COMMIT"]
        with connection.transaction():
            assert messages(known) == ["BEGIN", "SELECT"]
            assert messages(written) == ["SELECT"]


@pytest.mark.parametrize("node", [0, 1, 2])
def test_a_statement_reads_what_it_has_written(nodes: citus_nodes.Nodes, node: int) -> None:
    """A call that writes nothing belongs to the transaction that another call of the statement has begun."""
    tenant = f"one statement {node}"
    statement = (
        "select a.action, k.status, c.content, {end} from memfold.known_memory('not this', %(t)s) as n"
        " right join memfold.ingest_memory(%(text)s, %(t)s) as a on true"
        " cross join lateral memfold.known_memory(case when a.action is not null then %(text)s end, %(t)s) as k"
        " cross join lateral memfold.current_memories(case when k.status is not null then %(t)s end) as c"
        " where c.content = %(text)s"
    )
    with nodes.connect(node, "appl") as connection:
        connection.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        for number in range(4):
            given = {"t": tenant, "text": f"Bob has bought a {('car', 'dog', 'bus', 'cat')[number]}."}
            with pytest.raises(psycopg.errors.DivisionByZero):
                connection.execute(statement.format(end="1 / (k.status <> 'active')::int").encode(), given)
            row = connection.execute(statement.format(end="1").encode(), given).fetchone()
            assert row == ("inserted", "active", given["text"], 1)


@pytest.mark.parametrize("node", [0, 1, 2])
def test_a_client_with_another_encoding(nodes: citus_nodes.Nodes, node: int) -> None:
    tenant = f"encoding {node}"
    text = "Zoë has a café."
    with nodes.connect(node, "appl") as connection:
        connection.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        connection.execute("set client_encoding = 'LATIN1'")
        assert connection.execute(
            "select action from memfold.ingest_memory(%s, %s)", [text, tenant]
        ).fetchone() == ("inserted",)
        found = connection.execute("select content from memfold.current_memories(%s)", [tenant]).fetchall()
        assert found == [(text,)]
        connection.execute("set client_encoding = 'UTF8'")
        known = connection.execute("select content from memfold.current_memories(%s)", [tenant]).fetchall()
        assert known == [(text,)]


@pytest.mark.parametrize("node", [0, 1])
def test_the_web_page_refuses_a_citus_node(nodes: citus_nodes.Nodes, node: int) -> None:
    with pytest.raises(MemfoldError, match="this is a node of Citus"):
        resolve_tenant(Place(nodes.dsn(node), "acme"))


@pytest.mark.parametrize("node", [0, 1, 2])
def test_a_session_that_asks_for_generic_plans(nodes: citus_nodes.Nodes, node: int) -> None:
    """They have no tenant by which Citus could find the node."""
    tenant = f"generic {node}"
    with nodes.connect(node, "appl") as connection:
        connection.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        connection.execute("set plan_cache_mode = force_generic_plan")
        for action in ("inserted", "merged", "merged"):
            statement = "select action from memfold.ingest_memory('Alice has a cat.', %s)"
            assert connection.execute(statement.encode(), [tenant]).fetchall() == [(action,)]
        broken = connection.execute("select * from memfold.check_invariants(%s)", [tenant]).fetchall()
        assert broken == []


def test_arguments_and_results_arrive_unchanged(nodes: citus_nodes.Nodes) -> None:
    text = 'O\'Brien said: \\ % "x" $1 ÄÖ \U0001f408'
    tenant = "it's a 'tenant' \\ %s"
    with nodes.connect(0, "appl") as connection:
        connection.execute(
            "set datestyle = 'SQL, DMY'; set extra_float_digits = -5; set intervalstyle = sql_standard"
        )
        connection.execute("set timezone = 'Asia/Kolkata'")
        connection.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        connection.execute(
            "select memfold.ingest_memory(%s, %s, source_turn_ids => %s, source_confidence => 0.1234567890123456,"
            " metadata => %s::jsonb, observed_at => '2026-02-03 04:05:06.789012+00')",
            [text, tenant, ["a'b", 'c"d,{}', "e"], '{"k": "v\'\\\\"}'],
        )
    with nodes.connect() as connection:
        row = connection.execute(
            "select content, source_turn_ids, source_confidence, metadata, observed_at at time zone 'UTC'"
            " from memfold.memory_events where tenant_id = %s",
            [tenant],
        ).fetchone()
    assert row is not None
    assert row[:4] == (text, ["a'b", 'c"d,{}', "e"], 0.1234567890123456, {"k": "v'\\"})
    assert str(row[4]) == "2026-02-03 04:05:06.789012"


def test_the_guard(nodes: citus_nodes.Nodes) -> None:
    """Functions are refused where their locks would exclude nobody."""
    call = "memfold_internal.ingest_memory('Alice has a cat.', 'acme')"
    for node in (0, away(nodes, "acme")):
        with nodes.connect(node, "appl") as connection:
            connection.execute("set memfold.tenant_id = 'acme'")
            assert sqlstate(connection, f"select {call}") == "MF060"
            assert (
                sqlstate(
                    connection, "select memfold_internal._run_on_shard('acme', 'select 1', '0', 'off', '')"
                )
                == "MF060"
            )
    with nodes.connect() as connection:
        assert connection.execute(
            "select count(*) from memfold.memory_events where tenant_id = 'acme'"
        ).fetchone() == (0,)


@pytest.mark.parametrize("node", [0, 1, 2])
def test_nobody_changes_the_ledger(nodes: citus_nodes.Nodes, node: int) -> None:
    with nodes.connect() as connection:
        connection.execute("select memfold.ingest_memory('Written.', 'ledger')")
    with nodes.connect(node) as connection:
        for table, code in (("memories", "MF020"), ("memory_events", "MF021")):
            for statement in (
                "update memfold.{} set content = 'x' where tenant_id = 'ledger'",
                "delete from memfold.{}",
            ):
                assert sqlstate(connection, statement.format(table)) == code, statement
        assert sqlstate(connection, "truncate memfold.memory_events") == "MF021"
        if node != nodes.workers_of(["ledger"])["ledger"]:
            statement = "select memfold.derive_scope(array[memfold_internal._new_id()], 'ledger')"
            assert sqlstate(connection, statement) == "MF060"


def test_tenant_isolation(nodes: citus_nodes.Nodes) -> None:
    with nodes.connect(0, "bound") as connection:
        connection.execute("select * from memfold.ingest_memory('Bound to acme.', 'acme')")
        assert sqlstate(connection, "select * from memfold.ingest_memory('x', 'globex')") == "MF002"
        assert sqlstate(connection, "select * from memfold.current_memories('globex')") == "MF002"
        found = connection.execute("select distinct tenant_id from memfold.memories").fetchall()
        assert found == [("acme",)]
    with nodes.connect(0, "appl") as connection:
        assert sqlstate(connection, "select * from memfold.ingest_memory('x', 'globex')") == "MF002"
        connection.execute("set memfold.tenant_id = 'globex'")
        connection.execute("select * from memfold.ingest_memory('Globex only.', 'globex')")
        assert sqlstate(connection, "select * from memfold.ingest_memory('x', 'acme')") == "MF002"
        # settings of this session do not reach the nodes where rows are
        assert connection.execute("select count(*) from memfold.memories").fetchone() == (0,)
        # one node's session serves one tenant after the other
        for _ in range(5):
            for tenant in ("acme", "globex"):
                connection.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
                statement = "select content from memfold.current_memories(%s)"
                texts = {text for (text,) in connection.execute(statement.encode(), [tenant])}
                assert texts
                assert ("Globex only." in texts) == (tenant == "globex")
        assert sqlstate(connection, "select * from memfold.set_policy('*', 'x')") == "MF002"


def test_plans_are_kept_until_the_tenant_changes(nodes: citus_nodes.Nodes) -> None:
    """And no longer: a plan names its tenant, even if the call that made it is rolled back."""
    homes = nodes.workers_of([f"planned {number}" for number in range(9)])
    node = homes["planned 0"]
    one, other = [tenant for tenant, home in homes.items() if home == node][:2]
    with nodes.connect(node) as connection:

        def state(tenant: str) -> str:
            query = "select action from memfold.ingest_memory('A plan for ' || %s::text, %s)"
            rows = connection.execute(query.encode(), [tenant] * 2, prepare=False).fetchall()
            return str(rows[0][0])

        def planned() -> Any:
            return connection.execute(
                "select prepare_time from pg_prepared_statements where name = 'memfold plans'", prepare=False
            ).fetchone()

        assert [state(one) for _ in range(3)] == ["inserted", "merged", "merged"]
        since = planned()
        assert since is not None
        assert state(one) == "merged"
        assert planned() == since
        with connection.transaction(force_rollback=True):
            assert [state(other) for _ in range(3)] == ["inserted", "merged", "merged"]
        assert planned() != since
        assert state(one) == "merged"
        assert [state(other) for _ in range(2)] == ["inserted", "merged"]
        found = connection.execute(
            "select tenant_id, observations from memfold.memory_totals where tenant_id = any(%s) order by 1",
            [[one, other]],
        ).fetchall()
        assert found == sorted([(one, 5), (other, 2)])


@pytest.mark.parametrize("node", [0, 1, 2])
def test_round_trip(nodes: citus_nodes.Nodes, node: int) -> None:
    """Judge, undo, manual actions, timeline, search, erasure, through every node."""
    round_trip(nodes, node, f"round trip {node}")


def round_trip(nodes: citus_nodes.Nodes, node: int, tenant: str) -> None:
    with nodes.connect(node, "appl") as app, nodes.connect(0, "judge") as judge:
        app.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])

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
            "select * from memfold.resolve_judgement(%s, 'duplicate', confidence => 0.9, tenant_id => %s)",
            [not_one[3], tenant],
        ).fetchall()
        assert len(resolved) == 1
        assert one("select count(*) from memfold.current_memories(%s)", tenant) == (1,)
        one("select * from memfold.undo(%s, tenant_id => %s)", again[2], tenant)
        assert one("select count(*) from memfold.current_memories(%s)", tenant) == (2,)
        found = one(
            "select content from memfold.search_memories('[0.9,0.1,0.4]', 'toy', %s, 'default')", tenant
        )
        assert found is not None
        one("select memfold.set_predicate('lives_in', %s)", tenant)
        for town, action in (("Rome", "inserted"), ("Oslo", "superseded"), ("Rome", "superseded")):
            done = one(
                "select action from memfold.ingest_memory(%s, %s, subject => 'Alice', predicate => 'lives_in',"
                " object => %s)",
                f"Alice lives in {town}.", tenant, town,
            )  # fmt: skip
            assert done == (action,)
        assert one("select * from memfold.check_invariants(%s)", tenant) is None
        erased = one("select erased, remaining from memfold.erase_source('t2', %s)", tenant)
        assert erased == (1, 0)
        assert one("select remaining from memfold.erase_bucket(%s, 'default')", tenant) == (0,)
        assert one("select count(*) from memfold.current_memories(%s)", tenant) == (0,)


@pytest.mark.parametrize("node", [0, 1, 2])
def test_the_client_ingests_batches(nodes: citus_nodes.Nodes, node: int) -> None:
    """As an application, from any node, with vectors in a separate argument and without."""
    with Memfold(nodes.dsn(node, "appl"), f"it's {node}") as memfold:
        texts = [f"Fact {number % 30} of a batch" for number in range(40)]
        items = list(memfold.ingest_many(texts, batch_size=20))
        assert [item.error for item in items] == [None] * 40
        assert [item.result.action for item in items if item.result] == ["inserted"] * 30 + ["merged"] * 10


def test_rules_are_on_every_node(nodes: citus_nodes.Nodes) -> None:
    with nodes.connect(2, "appl") as connection:
        connection.execute("set memfold.tenant_id = 'rules'")
        connection.execute("select * from memfold.set_policy('rules', 'b', merge_threshold => 0.97)")
    for node in range(3):
        with nodes.connect(node) as connection:
            row = connection.execute(
                "select merge_threshold from memfold.policies where tenant_id = 'rules'"
            ).fetchone()
            assert row == (0.97,)


@pytest.mark.parametrize("node", [0, 1, 2])
def test_a_bucket_with_a_policy_of_its_own_is_replayed(nodes: citus_nodes.Nodes, node: int) -> None:
    """The policy is copied to every node, and rolled back."""
    tenant = f"replayed {node}"
    with nodes.connect(node) as connection:
        connection.execute("select memfold.set_policy(%s, 'default', neighbours => 7)", [tenant])
        for text, embedding in (("Runs and cycles", "[1,0,0]"), ("Drinks tea", "[0,1,0]")):
            connection.execute(
                "select memfold.ingest_memory(%s, %s, embedding => %s, embedding_model => 'toy')",
                [text, tenant, embedding],
            )
        found = connection.execute("select action from memfold.replay_bucket(%s)", [tenant]).fetchall()
        assert found == [("inserted",), ("inserted",)]
        row = connection.execute(
            "select count(*) from memfold.policies where tenant_id = %s", [tenant]
        ).fetchone()
        assert row == (1,)
        broken = connection.execute("select * from memfold.check_invariants(%s)", [tenant]).fetchall()
        assert broken == []


class Writers:
    """Applications that keep stating facts, one tenant each; each call keeps its own key until it is answered."""

    def __init__(self, nodes: citus_nodes.Nodes, tenants: list[str]) -> None:
        self.nodes = nodes
        self.done = dict.fromkeys(tenants, 0)
        self.longest = dict.fromkeys(tenants, 0.0)
        self.errors: dict[str, list[psycopg.Error]] = {tenant: [] for tenant in tenants}
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self._write, args=(tenant,)) for tenant in tenants]

    def __enter__(self) -> Writers:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def _connect(self, tenant: str) -> psycopg.Connection[Any]:
        connection = self.nodes.connect(0, "appl")
        connection.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        return connection

    def _write(self, tenant: str) -> None:
        connection = self._connect(tenant)
        while not self.stopped.is_set():
            number = self.done[tenant]
            began = time.monotonic()
            while True:
                try:
                    connection.execute(
                        "select memfold.ingest_memory(%s, %s, subject => 's', idempotency_key => %s)",
                        [f"Fact {'abcdefgh'[number % 8]} holds", tenant, str(number)],
                    )
                    break
                except psycopg.Error as error:
                    self.errors[tenant].append(error)
                    if connection.broken:
                        connection = self._connect(tenant)
                    time.sleep(0.02)
            self.longest[tenant] = max(self.longest[tenant], time.monotonic() - began)
            self.done[tenant] += 1
        connection.close()

    def check(self) -> None:
        """Each call counts once, whatever happens."""
        with self.nodes.connect() as connection:
            for tenant, done in self.done.items():
                row = connection.execute(
                    "select (select count(*) from memfold.memory_events where tenant_id = %s and observation),"
                    " (select sum(observations) from memfold.memory_totals where tenant_id = %s),"
                    " (select count(*) from memfold.memories where tenant_id = %s and status = 'active')",
                    [tenant] * 3,
                ).fetchone()
                assert row == (done, done, min(done, 8)), tenant
                broken = connection.execute("select * from memfold.check_invariants(%s)", [tenant]).fetchall()
                assert broken == []


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_shard_moves_under_writers(nodes: citus_nodes.Nodes) -> None:
    """Logical replication makes writers wait only at its very end."""
    tenants = [f"mover {number}" for number in range(8)]
    moved = tenants[0]
    home = nodes.workers_of([moved])[moved]
    with nodes.connect() as connection, Writers(nodes, tenants) as writers:
        wait_for(lambda: min(writers.done.values()) > 10)
        before = dict(writers.done)
        began = time.monotonic()
        connection.execute(
            "select citus_move_shard_placement(get_shard_id_for_distribution_column('memfold.memories', %s::text),"
            " %s, %s, %s, %s, shard_transfer_mode => 'force_logical')",
            [
                moved,
                str(nodes.clusters[home].base),
                servers.PORT,
                str(nodes.clusters[3 - home].base),
                servers.PORT,
            ],
        )
        took = time.monotonic() - began
        after = dict(writers.done)
        wait_for(lambda: min(writers.done[tenant] - after[tenant] for tenant in tenants) > 10)
    others = max(longest for tenant, longest in writers.longest.items() if tenant != moved)
    print(
        f"a shard moved in {took:.1f} s; longest call of its tenant {writers.longest[moved]:.2f} s,"
        f" of others {others:.2f} s; {len(writers.errors[moved])} failed"
    )
    assert nodes.workers_of([moved]) == {moved: 3 - home}
    # they wrote while it moved
    assert all(after[tenant] > before[tenant] for tenant in tenants)
    # a call that was under way at the end of the move fails and leaves nothing, whatever of it was done
    assert {error.sqlstate for tenant in tenants for error in writers.errors[tenant]} <= {
        "08006",
        "MF060",
        "42501",
    }
    writers.check()


def test_the_script_can_be_run_again(nodes: citus_nodes.Nodes) -> None:
    """As after an upgrade: memfold's functions are made again on the coordinator, then on all nodes, while calls arrive."""
    with nodes.connect(1) as connection:
        connection.execute("set citus.enable_ddl_propagation = off")
        connection.execute("drop function memfold.canonicalizer_selftest()")
        connection.execute("create function memfold.gone_since() returns integer begin atomic select 1; end")
    with Writers(nodes, [f"upgraded {number}" for number in range(4)]) as writers:
        wait_for(lambda: min(writers.done.values()) > 5)
        nodes.install()
        after = dict(writers.done)
        wait_for(lambda: min(writers.done[tenant] - after[tenant] for tenant in after) > 5)
    print(f"memfold init under writers: {[str(e) for es in writers.errors.values() for e in es]}")
    assert {error.sqlstate for errors in writers.errors.values() for error in errors} <= {"40P01"}
    writers.check()
    test_nodes_have_the_same_functions(nodes)
    round_trip(nodes, 0, "after the script")


def rows(connection: psycopg.Connection[Any], tenant: str) -> dict[str, list[Any]]:
    return {
        table: connection.execute(
            f"select to_jsonb(t) from memfold.{table} as t where tenant_id = %s".encode(), [tenant]
        ).fetchall()
        for table in TABLES
    }


def test_a_tenant_moves_in(nodes: citus_nodes.Nodes) -> None:
    """From a plain server, unchanged; the other tenants stay there."""
    with nodes.connect() as connection:
        connection.execute("set citus.enable_create_database_propagation = off")
        connection.execute("create database plain")
    dsn = nodes.clusters[0].dsn("plain")
    migrate.install(dsn)
    with psycopg.connect(dsn, autocommit=True) as plain, nodes.connect(2) as connection:
        plain.execute("set search_path = public, memfold")
        history(plain)
        before = rows(plain, "acme")
        assert min(len(before[table]) for table in ("memories", "memory_events", "judgements")) > 2
        # leftovers of other tests
        connection.execute("select memfold.erase_tenant('acme')")
        already = rows(connection, "acme")
        connection.execute("select memfold.register_embedding_model('m', 4, 0.92, 0.85)")
        for (bucket,) in plain.execute(
            "select distinct bucket_id from memfold.memories where tenant_id = 'acme'"
        ).fetchall():
            lines = plain.execute("select e from memfold.export_bucket('acme', %s) as e", [bucket]).fetchall()
            connection.execute(
                "select memfold.import_bucket(tenant_id => 'acme', bucket_id => %s, lines => %s, rules => true)",
                [bucket, json.dumps([line for (line,) in lines])],
            )
        # both report the row of a plain INSERT, which has no ledger row yet
        broken = "select * from memfold.check_invariants('acme')"
        assert connection.execute(broken).fetchall() == plain.execute(broken).fetchall()
    with nodes.connect() as connection:
        after = rows(connection, "acme")
    for table, found in before.items():
        came = [row for row in after[table] if row not in already[table]]
        assert sorted(map(str, came)) == sorted(map(str, found)), table


@pytest.mark.parametrize("way", ["coordinator", "workers", "transactions"])
def test_sixteen_sessions_call_everything(nodes: citus_nodes.Nodes, way: str) -> None:
    """Ingest, answer, merge, supersede, reject, update, undo, embed, in one bucket: the ledger explains the end."""
    bucket = f"everything by {way}"
    errors: list[BaseException] = []
    done: Counter[str] = Counter()

    def live(history: History) -> None:
        for _ in range(10):
            try:
                with history.db.transaction() if way == "transactions" else nullcontext():
                    history.run(1)
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                continue
            except BaseException as error:
                errors.append(error)
        done.update(history.done)

    broken = "select * from memfold.check_invariants('acme')"
    with nodes.connect() as connection:
        before = connection.execute(broken).fetchall()
        connection.execute("select memfold.register_embedding_model('m', 4, 0.92, 0.85)")
        connection.execute("select memfold.set_predicate('works_at', 'acme')")
    histories = []
    for number in range(16):
        node = {"coordinator": 0, "workers": 1 + number % 2, "transactions": number % 3}[way]
        connection = nodes.connect(node)
        connection.execute("set search_path = public, memfold")
        histories.append(History(connection, bucket, number))
    threads = [threading.Thread(target=live, args=(history,)) for history in histories]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in histories:
        one.db.close()
    assert errors == []
    print(dict(done))
    assert done.total() > 80
    with nodes.connect() as connection:
        connection.execute("set search_path = public, memfold")
        assert len(same(connection, bucket)) > 5
        assert connection.execute(broken).fetchall() == before


def test_a_worker_is_killed(nodes: citus_nodes.Nodes) -> None:
    """Calls for its tenants fail until it is back; others succeed, and nothing is lost."""
    tenants = [f"survivor {number}" for number in range(8)]
    homes = nodes.workers_of(tenants)
    assert set(homes.values()) == {1, 2}
    with Writers(nodes, tenants) as writers:
        wait_for(lambda: min(writers.done.values()) > 10)
        nodes.clusters[1].kill()
        at_kill = dict(writers.done)
        for tenant, home in homes.items():
            if home == 1:
                wait_for(lambda tenant=tenant: len(writers.errors[tenant]) > 3)  # type: ignore[misc]
            else:
                wait_for(lambda tenant=tenant: writers.done[tenant] - at_kill[tenant] > 20)  # type: ignore[misc]
        # at most the call that was under way
        assert all(writers.done[tenant] - at_kill[tenant] <= 1 for tenant in tenants if homes[tenant] == 1)
        nodes.clusters[1].restart()
        back = dict(writers.done)
        wait_for(lambda: min(writers.done[tenant] - back[tenant] for tenant in tenants) > 10)
    for home in (1, 2):
        longest = max(writers.longest[tenant] for tenant in tenants if homes[tenant] == home)
        print(
            f"a worker killed: longest call of tenants on {'it' if home == 1 else 'the other'} {longest:.2f} s"
        )
    for tenant in tenants:
        codes = {error.sqlstate for error in writers.errors[tenant]}
        # XX000: its COMMIT was under way; its outcome is unknown
        assert codes <= ({"08006", "08003", "57P01", "XX000"} if homes[tenant] == 1 else set()), tenant
    writers.check()


def test_a_node_is_added(nodes: citus_nodes.Nodes) -> None:
    """citus_add_node, memfold init again, a rebalance: calls arrive through the new node, and on it."""
    assert BINDIR is not None
    added = servers.Cluster("citus3", BINDIR)
    try:
        nodes.clusters.append(added)
        nodes.start_node(added)
        with nodes.connect(3) as connection:
            connection.execute("create extension citus")
            connection.execute("create extension vector")
        with nodes.connect() as connection, Writers(nodes, [f"rebalanced {n}" for n in range(4)]) as writers:
            connection.execute("select citus_add_node(%s, %s)", [str(added.base), servers.PORT])
            connection.execute("select replicate_reference_tables('force_logical')")
            nodes.install()
            wait_for(lambda: min(writers.done.values()) > 10)
            # as rebalance_table_shards() does, but for a few of the shards
            for tenant in ("rebalanced 0", "from before 7"):
                home = nodes.workers_of([tenant])[tenant]
                if home == 3:  # they were in one shard
                    continue
                connection.execute(
                    "select citus_move_shard_placement(get_shard_id_for_distribution_column('memfold.memories', %s::text),"
                    " %s, %s, %s, %s, shard_transfer_mode => 'force_logical')",
                    [tenant, str(nodes.clusters[home].base), servers.PORT, str(added.base), servers.PORT],
                )
                assert nodes.workers_of([tenant]) == {tenant: 3}
            after = dict(writers.done)
            wait_for(lambda: min(writers.done[tenant] - after[tenant] for tenant in after) > 10)
        writers.check()
        for node in range(4):
            with nodes.connect(node) as connection:
                answer = connection.execute(
                    "select action from memfold.ingest_memory('Fact 9 of them is so', 'from before 7', subject => 's9')"
                ).fetchone()
                assert answer == ("merged",)
    finally:
        added.stop()
