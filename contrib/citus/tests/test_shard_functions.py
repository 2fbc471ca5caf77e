"""Functions of a shard, on Citus: answers, tenant isolation, moves. Runs where CITUS_PG_CONFIG names a server with Citus."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from tests.support import servers

from contrib.citus.tests import citus_nodes
from memfold.tools.admin import maintenance
from memfold.tools.cli import main

BINDIR, WHY_NOT = citus_nodes.bindir()
pytestmark = pytest.mark.skipif(BINDIR is None, reason=WHY_NOT)

Connection = psycopg.Connection[Any]
SHARDS = 6
INGEST = "select action, tier, method from memfold.ingest_memory(%s, %s, subject => %s, source_turn_ids => array[%s])"


@pytest.fixture(scope="module")
def nodes() -> Iterator[citus_nodes.Nodes]:
    assert BINDIR is not None
    made = citus_nodes.Nodes(BINDIR)
    try:
        made.start()
        made.each(f"alter system set citus.shard_count = {SHARDS}", "select pg_reload_conf()")
        made.install()
        with made.connect() as connection:
            connection.execute("create role appl login in role memfold_app")
            connection.execute("select memfold.register_embedding_model('toy', 3, 0.92, 0.85)")
            connection.execute("select memfold.set_predicate('*', 'lives in', cardinality => 'one')")
        yield made
    finally:
        made.stop()


@pytest.fixture(autouse=True)
def spread(nodes: citus_nodes.Nodes) -> None:
    """Half of the shards on each worker, each with its functions."""
    with nodes.connect() as connection:
        for node in (1, 2):
            found = connection.execute(
                "select array_agg(p.shardid order by p.shardid) from pg_dist_shard_placement as p"
                " join pg_dist_shard as s on s.shardid = p.shardid"
                " where p.nodename = %s and s.logicalrelid = 'memfold.memories'::regclass",
                [str(nodes.clusters[node].base)],
            ).fetchone()
            assert found is not None
            for shard in (found[0] or [])[SHARDS // 2 + 1 :]:
                move_shard(nodes, shard, node)
    clean_up(nodes)
    create(nodes)


def create(nodes: citus_nodes.Nodes, node: int = 0) -> list[str]:
    with nodes.connect(node) as connection:
        found = connection.execute("select * from memfold.create_shard_functions()").fetchall()
    results = [result for _, _, result in found]
    assert set(results) <= {"created", "updated", "unchanged"}, results
    return results


def shards_of(nodes: citus_nodes.Nodes, names: list[str]) -> dict[str, int]:
    with nodes.connect() as connection:
        found = connection.execute(
            "select t, get_shard_id_for_distribution_column('memfold.memories', t) from unnest(%s::text[]) as t",
            [names],
        ).fetchall()
    return {str(name): int(shard) for name, shard in found}


def tenants(nodes: citus_nodes.Nodes, prefix: str, node: int = 1) -> list[list[str]]:
    """Tenants of that worker, grouped by shard."""
    names = [f"{prefix} {number}" for number in range(60)]
    homes, shards = nodes.workers_of(names), shards_of(nodes, names)
    groups: dict[int, list[str]] = {}
    for name in names:
        if homes[name] == node:
            groups.setdefault(shards[name], []).append(name)
    return list(groups.values())


@contextmanager
def session(
    nodes: citus_nodes.Nodes, node: int, tenant: str | None = None, limit: int | None = None
) -> Iterator[Connection]:
    """An application's session; limit: the maximum number of shards whose functions it uses."""
    with nodes.connect(node, "appl") as connection:
        if tenant is not None:
            use(connection, tenant)
        if limit is not None:
            connection.execute("select set_config('memfold.max_session_shards', %s, false)", [str(limit)])
        yield connection


def use(connection: Connection, tenant: str) -> None:
    connection.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])


def ingest(connection: Connection, tenant: str, content: str, turn: str = "t", subject: str = "s") -> str:
    row = connection.execute(INGEST.encode(), [content, tenant, subject, turn]).fetchone()
    assert row is not None
    return str(row[0])


def used(connection: Connection) -> str:
    """The shards whose functions the session has used."""
    row = connection.execute("select current_setting('memfold.session_shards', true)").fetchone()
    assert row is not None
    return row[0] or ""


def observations(nodes: citus_nodes.Nodes, tenant: str) -> int:
    with nodes.connect() as connection:
        row = connection.execute(
            "select coalesce(sum(observations), 0)::bigint from memfold.memory_totals where tenant_id = %s",
            [tenant],
        ).fetchone()
        broken = connection.execute("select * from memfold.check_invariants(%s)", [tenant]).fetchall()
    assert row is not None
    assert broken == []
    return int(row[0])


def move(nodes: citus_nodes.Nodes, tenant: str, mode: str = "block_writes") -> None:
    """Move the tenant's shard to the other worker."""
    move_shard(nodes, shards_of(nodes, [tenant])[tenant], nodes.workers_of([tenant])[tenant], mode)


def move_shard(nodes: citus_nodes.Nodes, shard: int, source: int, mode: str = "block_writes") -> None:
    bases = [str(cluster.base) for cluster in nodes.clusters]
    with nodes.connect() as connection:
        connection.execute(
            "select citus_move_shard_placement(%s, %s, %s, %s, %s, shard_transfer_mode => %s)",
            [shard, bases[source], servers.PORT, bases[3 - source], servers.PORT, mode],
        )


def clean_up(nodes: citus_nodes.Nodes) -> None:
    """Drop the leftovers of a move."""
    with nodes.connect() as connection:
        connection.execute("call citus_cleanup_orphaned_resources()")


def schemas(nodes: citus_nodes.Nodes, node: int) -> list[str]:
    with nodes.connect(node) as connection:
        found = connection.execute(
            "select nspname from pg_namespace where nspname ~ '^memfold_[0-9a-f]{8}_' order by 1"
        )
        return [str(name) for (name,) in found.fetchall()]


def test_each_shard_gets_its_functions_once(nodes: citus_nodes.Nodes) -> None:
    assert create(nodes, 1) == ["unchanged"] * SHARDS
    assert schemas(nodes, 0) == []
    assert len(schemas(nodes, 1)) + len(schemas(nodes, 2)) == SHARDS


def test_the_schema_name_is_inlined(nodes: citus_nodes.Nodes) -> None:
    """Otherwise each call would parse and plan the function that returns it: a tenth of known_memory()."""
    with nodes.connect() as connection:
        plan = connection.execute(
            "explain (verbose) select memfold_internal._shard_schema_name(n) from generate_series(1, 9) as n"
        ).fetchall()
    assert "_shard_schema_name" not in str(plan)


def test_shard_functions_use_nothing_that_citus_plans(nodes: citus_nodes.Nodes) -> None:
    """No distributed table or view, none of its row types, no function that is not theirs and uses one."""
    with nodes.connect(1) as connection:
        distributed = {
            str(name).removeprefix("memfold.")
            for (name,) in connection.execute(
                "select logicalrelid::regclass::text from pg_dist_partition"
            ).fetchall()
        }
        views = {
            str(name)
            for (name,) in connection.execute(
                "select relname from pg_class where relkind = 'v'"
                " and relnamespace = any('{memfold,memfold_internal}'::regnamespace[])"
            ).fetchall()
        }
        original = {
            str(name): str(source)
            for name, source in connection.execute(
                "select proname, string_agg(pg_get_functiondef(oid), ' ') from pg_proc where prokind <> 'a'"
                " and pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) group by proname"
            ).fetchall()
        }
        schema = schemas(nodes, 1)[0]
        own = {
            str(name): str(source)
            for name, source in connection.execute(
                "select p.proname, string_agg(pg_get_functiondef(p.oid), ' ') from pg_proc as p"
                " where p.pronamespace = %s::regnamespace group by p.proname",
                [schema],
            ).fetchall()
        }
        types = connection.execute(
            "select count(*) from pg_class where relkind in ('c', 'v') and relnamespace = %s::regnamespace",
            [schema],
        ).fetchone()
    assert {"ingest_memory", "ingest_memories", "known_memory", "search_memories", "derive_scope"} <= set(own)
    assert types is not None
    assert types[0] >= 6
    named = re.compile(r"\b(?:memfold|memfold_internal)\.(\w+)")
    uses = {
        name: {
            word for word in named.findall(source) if word in original or word in distributed or word in views
        }
        for name, source in original.items()
    }
    # what each function that goes through Citus reaches
    reaching = distributed | views
    while more := {name for name, words in uses.items() if name not in reaching and words & reaching}:
        reaching |= more
    # these read only the catalog, although they name a table; the next ones name it only in hints
    reaching -= {"_vector_index", "_text_index"}
    reaching -= {"register_embedding_model", "vector_index_ddl", "text_index_ddl"}
    found = {
        (name, word) for name, source in own.items() for word in named.findall(source) if word in reaching
    }
    assert found == set()


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("ingest_memory", {"content": "Alice has a cat.", "source_turn_ids": ["a"]}),
    ("ingest_memory", {"content": "alice HAS a cat", "source_turn_ids": ["b"]}),
    (
        "ingest_memory",
        {"content": "Alice lives in Rome.", "subject": "Alice", "predicate": "lives in", "object": "Rome"},
    ),
    (
        "ingest_memory",
        {"content": "Alice lives in Oslo.", "subject": "Alice", "predicate": "lives in", "object": "Oslo"},
    ),
    (
        "ingest_memory",
        {"content": "Alice lives in Rome.", "subject": "Alice", "predicate": "lives in", "object": "Rome"},
    ),
    (
        "ingest_memory",
        {"content": "Bob likes tea.", "subject": "Bob", "embedding": "[1,0,0]", "embedding_model": "toy"},
    ),
    (
        "ingest_memory",
        {
            "content": "Bob likes the tea.",
            "subject": "Bob",
            "embedding": "[1,0.01,0]",
            "embedding_model": "toy",
        },
    ),
    (
        "ingest_memory",
        {
            "content": "Bob dislikes tea.",
            "subject": "Bob",
            "embedding": "[1,0.02,0]",
            "embedding_model": "toy",
        },
    ),
    ("ingest_memory", {"content": "Once.", "idempotency_key": "k"}),
    ("ingest_memory", {"content": "Once.", "idempotency_key": "k"}),
    ("ingest_memory", {"content": "Twice.", "idempotency_key": "k"}),
    ("ingest_memory", {"content": "..."}),
    ("ingest_memory", {"content": "Alice has a cat.", "embedding": "[1,0]", "embedding_model": "toy"}),
    ("ingest_memory", {"content": "Alice has a cat.", "embedding": "[1,0,0]", "embedding_model": "none"}),
    (
        "ingest_memories",
        {
            "candidates": '[{"content": "Carol has a dog."}, {"content": "carol has a dog"}, {"content": 7},'
            ' {"content": "Alice has a cat.", "source_turn_ids": ["c"]},'
            ' {"content": "Alice lives in Bern.", "subject": "Alice", "predicate": "lives in", "object": "Bern"}]'
        },
    ),
    ("known_memory", {"content": "ALICE has a cat"}),
    ("known_memory", {"content": "Alice has a cow."}),
    ("search_memories", {"query": "Alice cat"}),
    ("search_memories", {"query_embedding": "[1,0,0]", "embedding_model": "toy"}),
    ("search_memories", {"query_embedding": "[1,0,0]", "embedding_model": "none"}),
]


def answers(connection: Connection, tenant: str) -> list[Any]:
    """The results of the calls: ids numbered by first appearance, no times."""
    ids: dict[str, int] = {}

    def plain(value: object) -> str:
        text = re.sub(r"\d{4}-\d\d-\d\d[ T][\d:.+]+|datetime\([^)]*\)", "<time>", repr(value))
        return re.sub(
            r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
            lambda m: f"id {ids.setdefault(m[0], len(ids))}",
            text,
        ).replace(tenant, "<tenant>")

    found: list[Any] = []
    for name, given in CALLS:
        arguments = ", ".join(
            f"{key} => %({key})s"
            + {"candidates": "::jsonb", "embedding": "::vector", "query_embedding": "::vector"}.get(key, "")
            for key in given
        )
        try:
            rows = connection.execute(
                f"select r::text from memfold.{name}(tenant_id => %(tenant)s, {arguments}) as r".encode(),
                {"tenant": tenant, **given},
            ).fetchall()
            found.append([plain(row) for row in rows])
        except psycopg.Error as error:
            found.append(
                (error.sqlstate, plain(error.diag.message_primary), plain(error.diag.message_detail))
            )
    return found


def test_shard_functions_return_what_citus_returns(nodes: citus_nodes.Nodes) -> None:
    mine = [group[0] for group in tenants(nodes, "alike")][:2]
    other, away = tenants(nodes, "as well")[0][:2]
    with session(nodes, 1, mine[0], limit=0) as connection:
        wanted = answers(connection, mine[0])
        assert used(connection) == ""
    assert [one[0] if isinstance(one, tuple) else len(one) for one in wanted[10:14]] == [
        "MF062",
        1,
        "MF014",
        "MF013",
    ]
    with session(nodes, 1, other) as connection:
        assert answers(connection, other) == wanted
        assert used(connection) == f"/{shards_of(nodes, [other])[other]}/"
    with session(nodes, 0, away) as connection:
        assert answers(connection, away) == wanted
        assert used(connection) == ""
    # one session, both ways
    with session(nodes, 1, mine[1], limit=0) as connection:
        connection.execute("begin")
        for turn, limit in enumerate("0808"):
            connection.execute("select set_config('memfold.max_session_shards', %s, false)", [limit])
            assert ingest(connection, mine[1], "Dan has a fish.", str(turn)) == (
                "merged" if turn else "inserted"
            )
        connection.execute("commit")
    assert observations(nodes, mine[1]) == 4


@pytest.mark.parametrize("node", [0, 1, 2])
def test_a_transaction_is_atomic_across_nodes(nodes: citus_nodes.Nodes, node: int) -> None:
    """Tenants of two nodes in one transaction: all of it is written, or nothing."""
    pair = [tenants(nodes, f"both {node}", worker)[0][0] for worker in (1, 2)]
    with nodes.connect(node) as connection:
        for end, wanted in (("rollback", "inserted"), ("commit", "inserted"), ("commit", "merged")):
            connection.execute("begin")
            for tenant in pair:
                assert ingest(connection, tenant, "Eve has a bird.") == wanted
            connection.execute(end.encode())
    assert [observations(nodes, tenant) for tenant in pair] == [2, 2]


def test_tenants_of_one_shard_are_isolated(nodes: citus_nodes.Nodes) -> None:
    """They share functions, and plans: row-level security is that of one server."""
    first, second = next(group for group in tenants(nodes, "apart") if len(group) > 1)[:2]
    with session(nodes, 1) as connection:
        for turn in range(3):
            for tenant in (first, second):
                use(connection, tenant)
                assert ingest(connection, tenant, f"Only {tenant} knows.", str(turn)) == (
                    "merged" if turn else "inserted"
                )
                found = connection.execute(
                    "select content from memfold.search_memories(query => 'knows', tenant_id => %s)", [tenant]
                ).fetchall()
                assert found == [(f"Only {tenant} knows.",)]
        assert used(connection) == f"/{shards_of(nodes, [first])[first]}/"
        for call in (
            "ingest_memory('x', %s)",
            "known_memory('x', %s)",
            "search_memories(query => 'x', tenant_id => %s)",
        ):
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(f"select * from memfold.{call}".encode(), [first])
            assert caught.value.sqlstate == "MF002"
        shard = shards_of(nodes, [first])[first]
        # the application may execute only functions that check the session, as on one server
        open_to_it = connection.execute(
            "select p.proname from pg_proc as p where p.pronamespace::regnamespace::text ~ %s"
            " and has_function_privilege(p.oid, 'execute') and p.prosecdef order by 1",
            [f"^memfold_.*_{shard}$"],
        ).fetchall()
        assert [name for (name,) in open_to_it] == sorted(
            ["ingest_memory", "ingest_memories", "known_memory", "search_memories"]
        )
    with nodes.connect(1) as connection:
        found = connection.execute(
            "select distinct pg_get_expr(polqual, polrelid) from pg_policy as p"
            " join memfold_internal._shard_tables(%s) as t on t.shard::regclass = p.polrelid"
            " where polname = 'tenant_isolation'",
            [shard],
        ).fetchall()
        assert found == [("(tenant_id = current_setting('memfold.tenant_id'::text, true))",)]


def test_other_transactions_go_through_citus(nodes: citus_nodes.Nodes) -> None:
    """An older snapshot would miss that the shard has moved."""
    tenant = tenants(nodes, "repeatable")[0][0]
    for level in ("repeatable read", "serializable"):
        with session(nodes, 1, tenant) as connection:
            connection.execute(f"begin isolation level {level}".encode())
            found = connection.execute(
                "select memory_id from memfold.known_memory('x', %s)", [tenant]
            ).fetchall()
            assert found in ([], [(None,)])
            connection.execute("commit")
            assert used(connection) == ""


def test_a_session_uses_a_limited_number_of_shards(nodes: citus_nodes.Nodes) -> None:
    groups = tenants(nodes, "limit")[:3]
    assert len(groups) > 1
    with session(nodes, 1, limit=1) as connection:
        for turn in range(2):
            for group in groups:
                use(connection, group[0])
                assert ingest(connection, group[0], "Fay has a frog.", str(turn)) == (
                    "merged" if turn else "inserted"
                )
        assert used(connection) == f"/{shards_of(nodes, [groups[0][0]])[groups[0][0]]}/"


def without_lock(nodes: citus_nodes.Nodes) -> str:
    """Let calls go on without the lock; returns the function as it was."""
    with nodes.connect() as connection:
        row = connection.execute(
            "select pg_get_functiondef('memfold_internal._shard_schema(text)'::regprocedure)"
        ).fetchone()
    assert row is not None
    lock = "perform lock_shard_metadata(5, array[v_shard]);"
    assert lock in row[0]
    nodes.each("set citus.enable_ddl_propagation = off; " + row[0].replace(lock, ""))
    return "set citus.enable_ddl_propagation = off; " + str(row[0])


@pytest.mark.parametrize("locks", [True, False])
def test_a_move_waits_for_a_call(nodes: citus_nodes.Nodes, locks: bool) -> None:
    """Without the shard-metadata lock an acknowledged call is lost: its row was written where the shard no longer is."""
    tenant = tenants(nodes, f"moved {locks}")[0][0]
    restore = None if locks else without_lock(nodes)
    try:
        with session(nodes, 1, tenant) as connection:
            assert ingest(connection, tenant, "Guy has a goat.") == "inserted"
            connection.execute("begin")
            assert ingest(connection, tenant, "Guy has a goat.", "2") == "merged"
            mover = threading.Thread(target=move, args=(nodes, tenant))
            mover.start()
            if locks:
                wait_until(nodes, "select true from pg_locks where not granted and locktype = 'advisory'")
                assert mover.is_alive()
                connection.execute("commit")
                mover.join()
            else:
                mover.join()
                connection.execute("commit")
            assert nodes.workers_of([tenant])[tenant] == 2
            assert ingest(connection, tenant, "Guy has a goat.", "3") == "merged"
        assert observations(nodes, tenant) == (3 if locks else 2)
    finally:
        if restore is not None:
            nodes.each(restore)


def wait_until(nodes: citus_nodes.Nodes, query: str) -> None:
    with nodes.connect(1) as connection:
        for _ in range(600):
            if connection.execute(query.encode()).fetchone():
                return
            time.sleep(0.05)
    raise AssertionError(f"never true: {query}")


@contextmanager
def writers(nodes: citus_nodes.Nodes, tenant: str, allowed: tuple[str, ...] = ()) -> Iterator[list[int]]:
    """Four sessions, on all nodes, that state facts of a tenant; counts the acknowledged calls of each."""
    stop = threading.Event()
    counts = [0] * 4
    failures: list[Exception] = []

    def write(number: int) -> None:
        try:
            with session(nodes, (0, 1, 2, 1)[number], tenant) as connection:
                turn = 0
                while not stop.is_set():
                    turn += 1
                    try:
                        ingest(connection, tenant, f"Hal has {turn % 10} hens.", f"{number} {turn}")
                        counts[number] += 1
                    except psycopg.Error as error:
                        if error.sqlstate not in allowed:
                            raise
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        while not all(counts) and not failures:
            time.sleep(0.05)
        yield counts
        before = list(counts)
        while any(now == then for now, then in zip(counts, before, strict=True)) and not failures:
            time.sleep(0.05)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []


def test_a_move_under_writers_loses_nothing(nodes: citus_nodes.Nodes) -> None:
    tenant = tenants(nodes, "writers move")[0][0]
    # calls through Citus that fail as the shard moves have written nothing
    with writers(nodes, tenant, allowed=("MF060", "08006", "0A000", "40P01")) as counts:
        for mode in ("force_logical", "block_writes", "force_logical"):
            move(nodes, tenant, mode)
            clean_up(nodes)
            create(nodes)
    assert observations(nodes, tenant) == sum(counts)


def test_functions_left_behind_by_a_move_are_not_used(nodes: citus_nodes.Nodes) -> None:
    """The shard is away and back: some of its functions were dropped with its tables."""
    tenant = tenants(nodes, "half")[0][0]
    shard = shards_of(nodes, [tenant])[tenant]
    for _ in range(2):
        move(nodes, tenant)
        clean_up(nodes)
    with nodes.connect(1) as connection:
        left = connection.execute(
            "select count(*) from pg_proc where pronamespace::regnamespace::text ~ %s",
            [f"^memfold_.*_{shard}$"],
        ).fetchone()
        assert left is not None
        assert left[0] > 50
    with session(nodes, 1, tenant) as connection:
        assert ingest(connection, tenant, "Ian has an ibis.") == "inserted"
        assert used(connection) == ""
        assert sorted(create(nodes)) == ["created"] + ["unchanged"] * (SHARDS - 1)
        assert ingest(connection, tenant, "Ian has an ibis.", "2") == "merged"
        assert used(connection) == f"/{shard}/"
    move(nodes, tenant)
    clean_up(nodes)
    create(nodes)
    # and nothing is left behind
    assert [name for name in schemas(nodes, 1) if name.endswith(f"_{shard}")] == []
    assert [name for name in schemas(nodes, 2) if name.endswith(f"_{shard}")] != []


def test_shard_functions_are_created_and_dropped_under_writers(nodes: citus_nodes.Nodes) -> None:
    """As by another release, with hot writers of the same shard: a call may have to be repeated (40P01), none is lost."""
    tenant = tenants(nodes, "hot")[0][0]
    with nodes.connect() as connection:
        row = connection.execute(
            "select pg_get_functiondef('memfold_internal._shard_schema_name(bigint)'::regprocedure)"
        ).fetchone()
    assert row is not None
    now = "set citus.enable_ddl_propagation = off; " + str(row[0])
    other = re.sub("memfold_[0-9a-f]{8}_", "memfold_01234567_", now)
    assert other != now
    # calls go through Citus and through shard functions at the same time
    with writers(nodes, tenant, allowed=("40P01",)) as counts:
        for definition in (other, now):
            nodes.each(definition)
            assert create(nodes) == ["created"] * SHARDS
        with nodes.connect(2) as connection:
            assert connection.execute("select memfold.drop_shard_functions()").fetchone() == (SHARDS,)
        assert schemas(nodes, 1) == schemas(nodes, 2) == []
        create(nodes)
    assert observations(nodes, tenant) == sum(counts)


def test_a_tenant_gets_a_shard_of_its_own(nodes: citus_nodes.Nodes) -> None:
    tenant, neighbour = next(group for group in tenants(nodes, "isolated") if len(group) > 1)[:2]
    before = shards_of(nodes, [tenant])[tenant]
    with session(nodes, 1) as connection:
        for name in (tenant, neighbour):
            use(connection, name)
            ingest(connection, name, "Joe has a jay.")
        assert used(connection) == f"/{before}/"
        with nodes.connect() as coordinator:
            coordinator.execute(
                "select isolate_tenant_to_new_shard('memfold.memories', %s::text, 'CASCADE', 'block_writes')",
                [tenant],
            )
        clean_up(nodes)
        assert "unchanged" in create(nodes)
        after = shards_of(nodes, [tenant, neighbour])
        assert before not in after.values()
        assert [name for name in schemas(nodes, 1) if name.endswith(f"_{before}")] == []
        for name in (tenant, neighbour):
            use(connection, name)
            assert ingest(connection, name, "Joe has a jay.", "2") == "merged"
        assert used(connection) == f"/{before}//{after[tenant]}//{after[neighbour]}/"
    assert [observations(nodes, name) for name in (tenant, neighbour)] == [2, 2]


def test_doctor_init_and_maintenance(nodes: citus_nodes.Nodes) -> None:
    """Once they exist, an upgrade and maintenance create what is missing; doctor says what is."""

    def doctor() -> str:
        return CliRunner().invoke(main, ["doctor", "--dsn", nodes.dsn()]).output

    assert "each shard has functions of its own" in doctor()
    with nodes.connect(1) as connection:
        lost = schemas(nodes, 1)[0]
        connection.execute(f"drop schema {lost} cascade".encode())
    assert "shards have no functions of their own" in doctor()
    maintenance.run(nodes.dsn())
    assert "each shard has functions of its own" in doctor()
    with nodes.connect(1) as connection:
        connection.execute(f"drop schema {lost} cascade".encode())
    nodes.install()
    assert lost in schemas(nodes, 1)
    with nodes.connect() as connection:
        connection.execute("select memfold.drop_shard_functions()")
    # without any, calls go through Citus
    maintenance.run(nodes.dsn())
    nodes.install()
    assert schemas(nodes, 1) == schemas(nodes, 2) == []
