"""A router over two memfold servers by PL/Proxy: what it answers is what a server answers (contrib/plproxy/README.md)."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests import servers
from tests.support import check, counters, ingest, model, vector

from contrib.plproxy import gen_plproxy
from contrib.plproxy.tests import plproxy_nodes
from memfold import Memfold, MemfoldError
from memfold.admin import migrate

DB = psycopg.Connection[Any]
WRITERS = 16
NOBODY = UUID(int=0)
# said in the last lines of the run too (LEFT OUT)
pytestmark = pytest.mark.skipif(
    servers.plproxy() is None, reason="no server with PL/Proxy and pgvector is installed"
)


@dataclass
class Routed:
    """A router and its two servers, and a third server that is called directly, for comparison."""

    router: servers.Cluster
    shards: list[servers.Cluster]
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def connect(self, user: str = servers.SUPERUSER, tenant: str | None = None) -> DB:
        connection = psycopg.connect(self.router.dsn(user=user), autocommit=True)
        if tenant is not None:
            connection.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        return connection

    def shard(self, number: int) -> DB:
        return psycopg.connect(self.shards[number].dsn(), autocommit=True)

    def plain(self) -> DB:
        return psycopg.connect(self.shards[0].dsn("plain"), autocommit=True)

    def tenant(self, number: int | None = None) -> str:
        """A new tenant, of this server."""
        with self.connect() as db:
            while True:
                name = f"tenant {next(self.numbers)}"
                row = db.execute("select hashtext(%s) & 1", [name]).fetchone()
                if number is None or row == (number,):
                    return name


@pytest.fixture(scope="module")
def routed() -> Iterator[Routed]:
    bindir = servers.plproxy()
    assert bindir is not None
    clusters = [servers.Cluster("plproxy", bindir) for _ in range(3)]
    router, *shards = clusters
    try:
        for cluster in clusters:
            cluster.start(extension=False)
        with psycopg.connect(shards[0].dsn(), autocommit=True) as db:
            db.execute("create database plain")
        for dsn in (shards[0].dsn(), shards[1].dsn(), shards[0].dsn("plain")):
            migrate.install(dsn)
        for shard in shards:
            with psycopg.connect(shard.dsn(), autocommit=True) as db:
                db.execute(plproxy_nodes.LOGIN)
                db.execute("create role memfold_router_auditor login in role memfold_auditor")
        with psycopg.connect(router.dsn(), autocommit=True) as db:
            plproxy_nodes.make_router(
                db, [f"dbname=postgres host={shard.base} port={servers.PORT}" for shard in shards]
            )
        for cluster in (router, shards[0]):
            with psycopg.connect(cluster.dsn(), autocommit=True) as db:
                db.execute(
                    "create role app login in role memfold_app; create role bound login in role memfold_tenant;"
                    "create role judge login in role memfold_judge; create role auditor login in role memfold_auditor"
                )
        with psycopg.connect(router.dsn(), autocommit=True) as db:
            db.execute(
                "create user mapping for auditor server memfold options (user 'memfold_router_auditor')"
            )
            model(db)
        made = Routed(router, shards)
        with made.plain() as db:
            model(db)
        yield made
    finally:
        for cluster in clusters:
            cluster.stop()


def together(*jobs: Callable[[], None]) -> None:
    """All at once; the first error of any is raised."""
    errors: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=[job]) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def one(db: DB, query: str, *arguments: Any) -> Any:
    row = db.execute(query.encode(), arguments).fetchone()
    assert row is not None
    return row[0] if len(row) == 1 else row


# What there is ------------------------------------------------------------------------------------------------------


def test_the_file_is_as_generated(routed: Routed) -> None:
    """If not: contrib/plproxy/gen_plproxy.py DSN."""
    with psycopg.connect(routed.shards[0].dsn()) as db:
        assert gen_plproxy.make(db) == gen_plproxy.FILE.read_text()


def test_every_public_function_is_routed_or_has_a_reason(routed: Routed) -> None:
    with routed.shard(0) as db:
        db.execute("set search_path = pg_catalog, public")
        there = gen_plproxy.functions(db)
    with routed.connect() as db:
        db.execute("set search_path = pg_catalog, public")
        here = gen_plproxy.functions(db)
    assert here.keys() | gen_plproxy.NOT_ROUTED.keys() == there.keys()
    assert not here.keys() & gen_plproxy.NOT_ROUTED.keys()
    page = (servers.ROOT / "contrib" / "plproxy" / "README.md").read_text()
    assert [name for name in gen_plproxy.NOT_ROUTED if f"`{name}" not in page] == []
    for name, routed_one in here.items():
        original = there[name]
        assert routed_one.arguments == original.arguments
        assert routed_one.result == original.result
        assert routed_one.returns_set == original.returns_set
        assert routed_one.strict == original.strict
        assert routed_one.meaning == original.meaning
        assert routed_one.callers == sorted({*original.callers, "memfold_owner"})


def test_results_have_the_same_columns(routed: Routed) -> None:
    query = (
        "select c.relname, a.attname, format_type(a.atttypid, a.atttypmod) from pg_class as c"
        " join pg_attribute as a on a.attrelid = c.oid where c.relnamespace = 'memfold'::regnamespace"
        " and a.attnum > 0 and not a.attisdropped and c.relname = any(%s) order by 1, a.attnum"
    )
    with routed.connect() as db, routed.shard(0) as shard:
        types = "select relname from pg_class where relnamespace = 'memfold'::regnamespace and relkind in ('c', 'v')"
        names = [name for (name,) in db.execute(types)]
        assert db.execute(query, [names]).fetchall() == shard.execute(query, [names]).fetchall()
        assert {"ingest_result", "claimed_judgement", *gen_plproxy.VIEWS} <= {*names}


def test_the_file_can_be_run_again(routed: Routed) -> None:
    tenant = routed.tenant()
    with routed.connect() as db:
        db.execute("insert into memfold.tenant_roles values ('kept', 'acme')")
        db.execute(gen_plproxy.FILE.read_text().encode())
        assert one(db, "select tenant_id from memfold.tenant_roles where role_name = 'kept'") == "acme"
        db.execute("delete from memfold.tenant_roles")
    with routed.connect("app", tenant) as db:
        assert ingest(db, "still here", tenant_id=tenant).action == "inserted"


def test_rules_explain_what_a_router_does_not_have_and_nothing_else(routed: Routed) -> None:
    """The suite's expected failures: plproxy_nodes.Router.missing."""
    with routed.connect(tenant=routed.tenant()) as db:
        for statement, why in (
            ("select memfold_internal._guard('acme', 'a', 'b')", plproxy_nodes.PRIVATE),
            ("call memfold.rehash_bucket('acme', 'default')", plproxy_nodes.PRIVATE),
            ("truncate memfold.memories", plproxy_nodes.TABLES),
            ("select memfold.ingest_memorise('a', 'acme')", None),
            ("select memfold.set_policy('*', 'b', merge_threshold => 7)", None),
        ):
            with pytest.raises(psycopg.Error) as error:
                db.execute(statement.encode())
            assert plproxy_nodes.Router.missing(error.value) == why, statement
        with plproxy_nodes.plain_errors():
            assert not (error.value.diag.message_detail or "Remote").startswith("Remote")
            assert "REMOTE ERROR" not in str(error.value)
        assert "REMOTE ERROR" in str(error.value)
    assert plproxy_nodes.Router.missing(AssertionError()) is None


def test_a_database_with_memfold_is_refused(routed: Routed) -> None:
    with routed.plain() as db, pytest.raises(psycopg.Error, match="memfold itself is installed"):
        db.execute(gen_plproxy.FILE.read_text().encode())


def test_every_function_answers_as_a_server_does(routed: Routed) -> None:
    """Called with nulls, in a tenant that has nothing: the call arrives, and the answer comes back."""
    tenant = routed.tenant()

    def answer(db: DB, name: str, names: list[str], types: list[str]) -> Any:
        given = ", ".join(
            "%s::text" if n == "tenant_id" else f"null::{t}" for n, t in zip(names, types, strict=True)
        )
        try:
            rows = db.execute(
                f"select * from memfold.{name}({given})".encode(), [tenant for n in names if n == "tenant_id"]
            ).fetchall()
        except psycopg.Error as error:
            return error.sqlstate
        return len(rows)

    asked = 0
    with routed.connect() as db, routed.plain() as plain:
        for connection in (db, plain):
            connection.execute("set search_path = pg_catalog, public")
            connection.add_notice_handler(lambda _: None)
        for name, function in gen_plproxy.functions(db).items():
            names = function.names or []
            if name == "canonicalizer_selftest":
                continue
            found = [answer(connection, name, names, function.types) for connection in (db, plain)]
            assert found[0] == found[1], name
            asked += 1
    assert asked == 70


# A tenant's life ----------------------------------------------------------------------------------------------------


def life(db: DB, tenant: str, *, superuser: bool) -> list[Any]:
    """What a tenant does, and what it is told, without ids and times."""
    told: list[Any] = []

    def say(content: str, **arguments: Any) -> Any:
        result = ingest(db, content, tenant_id=tenant, **arguments)
        told.append((content, result.action, result.tier, result.method, result.similarity))
        return result

    db.execute("select memfold.set_predicate('lives_in', %s)", [tenant])
    first = say(
        "Alice has a cat.", subject="Alice", source_turn_ids=["1"], metadata={"a": [1, None]}, **vector(1.0)
    )
    again = say("  alice has a CAT", subject="Alice", source_turn_ids=["2"])
    assert again.memory_id == first.memory_id
    paraphrase = say("Alice owns a cat.", subject="Alice", **vector(0.97))
    unclear = say("Alice has no cat.", subject="Alice", **vector(0.95))
    assert unclear.judgement_id is not None
    assert isinstance(unclear.similar, list)
    say(
        "Alice lives in Berlin.",
        subject="Alice",
        predicate="lives_in",
        object="Berlin",
        observed_at="2025-03-01",
    )
    say(
        "Alice lives in Lyon.", subject="Alice", predicate="lives_in", object="Lyon", observed_at="2025-09-01"
    )

    claimed = db.execute("select * from memfold.claim_judgements('w', tenant_id => %s)", [tenant]).fetchall()
    told.append([(row[3], row[5], row[8]["content"], row[9]["content"]) for row in claimed])
    told.append(
        one(
            db,
            "select status, verdict, action from memfold.resolve_judgement(%s, 'contradiction',"
            " confidence => 0.9, model => 'j',"
            " tenant_id => %s)",
            unclear.judgement_id, tenant,
        )
    )  # fmt: skip
    told.append(
        db.execute(
            "select content, round(score::numeric, 3), similarity, collapsed_count, metadata"
            " from memfold.search_memories("
            "tenant_id => %s, bucket_id => 'default', query_embedding => %s, embedding_model => 'm')",
            [tenant, vector(1.0)["embedding"]],
        ).fetchall()
    )
    told.append(
        db.execute(
            "select content, status from memfold.undo(%s, %s, 'no')", [paraphrase.event_id, tenant]
        ).fetchall()
    )
    told.append(
        [
            (row[0], row[1], row[4])
            for row in db.execute(
                "select ordinal, action, memory_id, tier, method from memfold.ingest_memories("
                """'[{"content": "Bob"}, {"content": "bob", "metadata": {}}, {"contents": 1}]', %s)""",
                [tenant],
            )
        ]
    )
    told.append(
        db.execute(
            "select content, status, repetition_count from memfold.memory_audit where tenant_id = %s order by 1, 2",
            [tenant],
        ).fetchall()
    )
    told.append(
        db.execute(
            "select active, superseded, observations, tier_1_merges, tier_2_merges, open_judgements, fold_rate"
            " from memfold.dedup_stats where tenant_id = %s",
            [tenant],
        ).fetchall()
    )
    told.append(
        one(
            db,
            "select helpful_count, harmful_count from memfold.record_feedback(%s, true, %s)",
            first.memory_id,
            tenant,
        )
    )
    lines = [
        line for (line,) in db.execute("select memfold.explain_memory(%s, %s)", [first.memory_id, tenant])
    ]
    told.append(len(lines))
    told.append(one(db, "select erased, kept, remaining from memfold.erase_source('1', %s)", tenant))
    told.append(
        one(db, "select erased > 0, kept, remaining from memfold.erase_bucket(%s, 'default')", tenant)
    )
    told.append(db.execute("select * from memfold.memories where tenant_id = %s", [tenant]).fetchall())
    told.append(db.execute("select * from memfold.check_invariants(%s)", [tenant]).fetchall())
    if superuser:
        told.append(one(db, "select memfold.erase_tenant(%s)::text", tenant))
    return told


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("user", ["app", "postgres"])
def test_a_tenants_life_is_that_of_a_server(routed: Routed, number: int, user: str) -> None:
    tenant = routed.tenant(number)
    with (
        routed.connect(user, tenant) as db,
        psycopg.connect(routed.shards[0].dsn("plain", user), autocommit=True) as plain,
    ):
        plain.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        told = [life(connection, tenant, superuser=user == "postgres") for connection in (db, plain)]
    assert told[0] == told[1]
    actions = [step[1] for step in told[0][:6]]
    assert actions == ["inserted", "merged", "merged", "escalated", "inserted", "superseded"]


def test_errors_are_those_of_a_server(routed: Routed) -> None:
    """SQLSTATE, DETAIL and HINT; the server's are prefixed by PL/Proxy, the check's are the router's own."""
    tenant = routed.tenant()
    calls: list[tuple[str, bool]] = [
        ("memfold.ingest_memory('', %(tenant)s)", True),
        ("memfold.ingest_memory('x', %(tenant)s, source_confidence => 2)", True),
        ("memfold.ingest_memory('x', %(tenant)s, metadata => '[]')", True),
        ("memfold.ingest_memory('x', %(tenant)s, embedding => '[1,2]', embedding_model => 'm')", True),
        ("memfold.ingest_memory('x', %(tenant)s, embedding => '[1,2,3,4]', embedding_model => 'none')", True),
        ("memfold.reject_memory('00000000-0000-0000-0000-000000000000', tenant_id => %(tenant)s)", True),
        ("memfold.undo('00000000-0000-0000-0000-000000000000', tenant_id => %(tenant)s)", True),
        (
            "memfold.resolve_judgement('00000000-0000-0000-0000-000000000000', 'distinct', tenant_id => %(tenant)s)",
            True,
        ),
        ("memfold.claim_judgements('w', max_results => 0)", True),
        ("memfold.set_policy(%(tenant)s, conflict => 'guess')", True),
        ("memfold.set_options(%(tenant)s, decay_rate => 1)", True),
        ("memfold.ingest_memory('x', null)", False),
        ("memfold.ingest_memory('x', '')", False),
        ("memfold.ingest_memory('x', 'someone else')", False),
        ("memfold.set_policy('*', conflict => 'review')", False),
        ("memfold.set_options('*', decay_rate => 0.1)", False),
        ("memfold.claim_judgements('w', tenant_id => 'someone else')", False),
        ("memfold.register_embedding_model('x', 3)", False),
        ("memfold.ingest_memory('x', %(tenant)s, metadata => 'no json')", False),
    ]
    with (
        routed.connect("app", tenant) as db,
        psycopg.connect(routed.shards[0].dsn("plain", "app"), autocommit=True) as plain,
    ):
        plain.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        for call, remote in calls:
            with pytest.raises(psycopg.Error) as here:
                db.execute(f"select * from {call}".encode(), {"tenant": tenant})
            with pytest.raises(psycopg.Error) as there:
                plain.execute(f"select * from {call}".encode(), {"tenant": tenant})
            got, meant = here.value.diag, there.value.diag
            assert got.sqlstate == meant.sqlstate, call
            if remote:
                assert got.message_primary is not None
                assert got.message_primary.endswith(f"REMOTE ERROR: {meant.message_primary}")
                assert got.message_detail == f"Remote detail: {meant.message_detail}"
                assert got.message_hint == f"Remote hint: {meant.message_hint}"
            else:
                assert (got.message_primary, got.message_detail, got.message_hint) == (
                    meant.message_primary, meant.message_detail, meant.message_hint,
                )  # fmt: skip


def test_tenant_id_may_be_left_to_the_setting(routed: Routed) -> None:
    tenant = routed.tenant()
    with routed.connect("app", tenant) as db:
        memory_id = ingest(db, "of the setting", tenant_id=tenant).memory_id
        assert one(db, "select action from memfold.reject_memory(%s)", memory_id) == "rejected"
        db.execute("reset memfold.tenant_id")
        with pytest.raises(psycopg.Error) as error:
            db.execute("select * from memfold.reject_memory(%s)", [memory_id])
        assert error.value.sqlstate == "MF001"


def test_settings_of_the_session_change_no_argument(routed: Routed) -> None:
    """PL/Proxy sends arguments as text: 3 January must not become 1 March."""
    tenant = routed.tenant(1)
    with routed.connect("app", tenant) as db, routed.shard(1) as shard:
        db.execute(
            "set datestyle = 'SQL, DMY'; set timezone = 'Asia/Tokyo'; set intervalstyle = 'sql_standard';"
            "set extra_float_digits = -15; set bytea_output = 'escape'; set client_encoding = 'latin1'"
        )
        ingest(
            db, "été", tenant_id=tenant, observed_at="2025-01-03 04:05:06.789012+00",
            source_confidence=0.12345678901234566, metadata={"n": 0.1}, **vector(0.3),
        )  # fmt: skip
        query = (
            "select content, first_seen = '2025-01-03 04:05:06.789012+00', source_confidence = 0.12345678901234566,"
            " metadata from memfold.memory_audit where tenant_id = %s"
        )
        assert one(shard, query, tenant) == ("été", True, True, {"n": 0.1})
        assert one(db, query, tenant) == ("été", True, True, {"n": 0.1})
        assert one(shard, "select embedding from memfold.memory_vectors where tenant_id = %s", tenant) == one(
            shard, "select %s::vector", vector(0.3)["embedding"]
        )
        known = "select content_hash from memfold.known_memory(%s, %s)"
        shard.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        assert one(db, known, "été", tenant) == one(shard, known, "ÉTÉ", tenant)
        # an answer about the other text would be JSON in latin1, which psycopg takes for UTF-8
        db.execute("select memfold.set_policy(%s, guard => 'off')", [tenant])
        ingest(db, "Ete", tenant_id=tenant, **vector(0.25))
        db.execute("select memfold.set_options(%s, decay_interval => '1 day 2 hours')", [tenant])
        assert one(
            shard,
            "select decay_interval = '1 day 2 hours' from memfold.options where tenant_id = %s",
            tenant,
        )


def test_the_client(routed: Routed) -> None:
    tenant = routed.tenant()
    with Memfold(routed.router.dsn(user="app"), tenant) as client:
        first = client.ingest("tea is hot", idempotency_key="k")
        assert client.ingest("Tea is HOT.").memory_id == first.memory_id
        assert "tea is hot" in client.explain(first.memory_id)
        assert [row.observations for row in client.stats(tenant)] == [2]
        with pytest.raises(MemfoldError) as error:
            client.ingest("")
        assert error.value.sqlstate == "MF004"
        # it takes a transaction that reaches the server
        with pytest.raises(MemfoldError) as error:
            list(client.ingest_many(["a", "b"]))
        assert error.value.sqlstate == "42P01"
        assert client.stats(tenant)[0].observations == 2


# Where tenants are --------------------------------------------------------------------------------------------------


def test_tenants_are_spread_and_each_is_whole(routed: Routed) -> None:
    tenants = [routed.tenant() for _ in range(64)]
    with routed.connect() as db:
        for tenant in tenants:
            ingest(db, "a fact", tenant_id=tenant)
            ingest(db, "another", tenant_id=tenant)
        hashed = {tenant: one(db, "select hashtext(%s) & 1", tenant) for tenant in tenants}
        query = "select tenant_id, count(*) from memfold.memories where tenant_id = any(%s) group by 1"
        found = []
        for number in (0, 1):
            with routed.shard(number) as shard:
                rows = shard.execute(query, [tenants]).fetchall()
            assert {count for _, count in rows} == {2}
            assert {hashed[tenant] for tenant, _ in rows} == {number}
            found.append(len(rows))
        assert sum(found) == 64
        assert min(found) > 16
        # and the router's view has them all for a role that may see all
        assert len(db.execute(query, [tenants]).fetchall()) == 64


def test_what_is_everyones_is_on_every_server(routed: Routed) -> None:
    tenant = routed.tenant(1)
    with routed.connect() as db:
        db.execute("select memfold.register_embedding_model('everywhere', 3)")
        assert (
            one(db, "select (memfold.set_policy('*', 'b', merge_threshold => 0.97)).merge_threshold") == 0.97
        )
        db.execute("select memfold.set_predicate('born_in', '*')")
        db.execute("select memfold.set_policy(%s, merge_threshold => 0.98)", [tenant])
        assert one(db, "select count(*) from memfold.embedding_models where model = 'everywhere'") == 1
        # a superuser's view is of all servers
        assert one(db, "select count(*) from memfold.policies where tenant_id = '*' and bucket_id = 'b'") == 1
        assert (
            one(db, "select count(*) from memfold.predicates where tenant_id = '*' and predicate = 'born in'")
            == 1
        )
        assert one(db, "select count(*) from memfold.options where tenant_id = '*'") == 1
        for number in (0, 1):
            with routed.shard(number) as shard:
                assert (
                    one(shard, "select count(*) from memfold.embedding_models where model = 'everywhere'")
                    == 1
                )
                assert (
                    one(
                        shard,
                        "select merge_threshold from memfold.policies where tenant_id = '*' and bucket_id = 'b'",
                    )
                    == 0.97
                )
                assert (
                    one(
                        shard,
                        "select count(*) from memfold.predicates where tenant_id = '*' and predicate = 'born in'",
                    )
                    == 1
                )
                assert (
                    one(shard, "select count(*) from memfold.policies where tenant_id = %s", tenant) == number
                )
        db.execute("select memfold.replace_embedding_model('everywhere', 'm')")
        db.execute("select memfold.unregister_embedding_model('everywhere')")


# Isolation --------------------------------------------------------------------------------------------------------------


def test_walls_of_the_router(routed: Routed) -> None:
    mine, other = routed.tenant(0), routed.tenant(0)
    with routed.connect() as db:
        for tenant in (mine, other):
            ingest(db, f"of {tenant}", tenant_id=tenant)
        db.execute("insert into memfold.tenant_roles values ('bound', %s)", [mine])

    def refused(db: DB, query: str, *arguments: Any, code: str = "MF002") -> None:
        with pytest.raises(psycopg.Error) as error:
            db.execute(query.encode(), arguments)
        assert error.value.sqlstate == code

    def seen(db: DB) -> set[str]:
        views = [name for name, of_tenants in gen_plproxy.VIEWS.items() if of_tenants]
        rules = ("policies", "options", "predicates")
        found = set()
        for name in views:
            for (tenant,) in db.execute(f"select tenant_id from memfold.{name}".encode()).fetchall():
                assert tenant != "*" or name in rules
                found.add(tenant)
        return found - {"*"}

    with routed.connect("app", mine) as db:
        assert seen(db) == {mine}
        refused(db, "select memfold.ingest_memory('x', %s)", other)
        refused(db, "select memfold.current_memories(%s)", other)
        refused(db, "select memfold.set_policy('*', conflict => 'review')")
        refused(db, "select memfold.resolve_judgement(%s, 'distinct', tenant_id => %s)", NOBODY, other)
        refused(db, "select memfold.fail_judgement(%s, 'no', tenant_id => %s)", NOBODY, other)
        refused(db, "select memfold.retry_judgements(%s)", other)
        # what the functions here are made of is behind the check too
        refused(db, "select memfold_internal._claim_on(0, 'w', 10, '1 minute', false, %s, null)", other)
        refused(db, "select memfold_internal._retry_judgements_on(0, %s)", other)
        refused(db, "select memfold_internal._all_set_predicate(%s, 'p', 'one', null)", other)
        assert db.execute("select * from memfold_internal._read_memories(%s)", [other]).fetchall() == []
        assert (
            db.execute(
                "select * from memfold_internal._claim_on(1, 'w', 10, '1 minute', false, null, null)"
            ).fetchall()
            == []
        )
        refused(db, "select memfold.erase_tenant(%s)", mine, code="42501")
        refused(db, "select memfold.register_embedding_model('x', 3)", code="42501")
        refused(db, "create function pg_temp.f() returns int language plproxy as 'run on any;'", code="42501")
        assert (
            db.execute("select umoptions from pg_user_mappings where umoptions is not null").fetchall() == []
        )
        db.execute("reset memfold.tenant_id")
        assert seen(db) == set()
    with routed.connect("bound", other) as db:
        assert seen(db) == {mine}
        refused(db, "select memfold.ingest_memory('x', %s)", other)
        db.execute("select set_config('memfold.tenant_id', %s, false)", [mine])
        assert ingest(db, "of the bound one", tenant_id=mine).action == "inserted"
    with routed.connect("judge") as db:
        refused(db, "select memfold.ingest_memory('x', %s)", mine, code="42501")
        refused(db, "select * from memfold.memories", code="42501")
    with routed.connect("auditor") as db:
        assert seen(db) >= {mine, other}
        assert one(db, "select count(*) from memfold.current_memories(%s)", other) == 1
        refused(db, "select memfold.ingest_memory('x', %s)", mine, code="42501")
    with routed.connect() as db:
        db.execute("delete from memfold.tenant_roles")


def test_a_tenant_is_bound_for_its_call_alone(routed: Routed) -> None:
    """One session of the router has one connection to a server, for all tenants."""
    tenants = [routed.tenant(0) for _ in range(2)]
    with routed.connect() as admin:
        admin.execute(
            "create function public.left_over() returns text language plproxy as $$ cluster 'memfold'; run on 0;"
            " select coalesce(current_setting('memfold.tenant_id', true), ''); $$"
        )
    with routed.connect("app") as db:
        for tenant in tenants * 3:
            db.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
            ingest(db, "what both say", tenant_id=tenant)
            assert db.execute("select tenant_id, content from memfold.memories").fetchall() == [
                (tenant, "what both say")
            ]
            assert one(db, "select observations from memfold.dedup_stats") > 0
            assert one(db, "select public.left_over()") == ""
    with routed.shard(0) as shard:
        rows = shard.execute(
            "select observations from memfold.dedup_stats where tenant_id = any(%s)", [tenants]
        ).fetchall()
        assert rows == [(3,), (3,)]


# The queue ----------------------------------------------------------------------------------------------------------


def test_a_judge_works_on_the_queue_of_all_servers(routed: Routed) -> None:
    tenants = [routed.tenant(number) for number in (0, 0, 1, 1)]
    with routed.connect() as db:
        for tenant in tenants:
            ingest(db, "User prefers dark mode", tenant_id=tenant, **vector(1.0))
            assert ingest(db, "User likes it dark", tenant_id=tenant, **vector(0.9)).judgement_id is not None
    with routed.connect("judge") as db:
        claim = "select tenant_id, judgement_id from memfold.claim_judgements('w', max_results => %s)"
        # never more than asked for, and of either server within two turns
        turns = [db.execute(claim, [1]).fetchall() for _ in range(2)]
        assert [len(turn) for turn in turns] == [1, 1]
        assert {tenants.index(turn[0][0]) // 2 for turn in turns} == {0, 1}
        rest = db.execute(claim, [3]).fetchall()
        claimed = [*turns[0], *turns[1], *rest]
        assert sorted(tenant for tenant, _ in claimed) == sorted(tenants)
        assert db.execute(claim, [10]).fetchall() == []
        for tenant, judgement in claimed[:3]:
            assert (
                one(
                    db,
                    "select status from memfold.resolve_judgement(%s, 'duplicate', tenant_id => %s)",
                    judgement,
                    tenant,
                )
                == "done"
            )
        tenant, judgement = claimed[3]
        for number in (0, 1):
            with routed.shard(number) as shard:
                shard.execute(
                    "update memfold.judgements set status = 'dead' where judgement_id = %s", [judgement]
                )
        assert one(db, "select memfold.retry_judgements()") == 1
        assert one(db, "select memfold.retry_judgements(%s)", tenant) == 0
        assert [row[1] for row in db.execute(claim, [10])] == [judgement]
        assert (
            one(
                db,
                "select memfold.fail_judgement(%s, 'no', worker => 'w', tenant_id => %s)",
                judgement,
                tenant,
            )
            == "open"
        )
    with routed.connect() as db:
        assert one(
            db, "select sum(judgements) from memfold.judge_costs where tenant_id = any(%s)", tenants
        ) in (3, None)
        db.execute("select memfold.erase_tenant(t) from unnest(%s::text[]) as t", [tenants])


# Promises -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1])
def test_equal_candidates_of_concurrent_writers(routed: Routed, number: int) -> None:
    tenant, calls = routed.tenant(number), 40
    actions: list[str] = []

    def writer(i: int) -> None:
        with routed.connect("app", tenant) as db:
            for call in range(calls):
                spelling = "User likes fact number {}" if (i + call) % 2 else "  USER likes fact number {}."
                # in and out of transaction blocks
                if call % 3 == 0:
                    db.execute("begin")
                result = ingest(
                    db, spelling.format(call % 5), tenant_id=tenant, source_turn_ids=[f"turn-{i * call % 7}"]
                )
                db.execute("commit")
                actions.append(result.action)

    together(*[lambda i=i: writer(i) for i in range(WRITERS)])  # type: ignore[misc]
    assert actions.count("inserted") == 5
    assert actions.count("merged") == WRITERS * calls - 5
    with routed.shard(number) as shard:
        rows = shard.execute(
            "select status, repetition_count + 1 from memfold.memory_audit where tenant_id = %s", [tenant]
        ).fetchall()
        assert len(rows) == 5
        assert {status for status, _ in rows} == {"active"}
        assert sum(count for _, count in rows) == WRITERS * calls
        assert (
            one(shard, "select count(*) from memfold.memory_events where tenant_id = %s", tenant)
            == WRITERS * calls
        )
        check(shard)


def test_paraphrases_of_concurrent_writers(routed: Routed) -> None:
    """16 texts of one fact at once, any two of them within the merge threshold, on both servers."""
    tenants = [routed.tenant(number) for number in (0, 1)]
    words = ["likes", "loves", "enjoys", "prefers", "wants", "favours", "picks", "chooses"]
    forms = ["The user {} a dark screen", "A dark screen is what the user {}"]
    texts = [form.format(word) for word in words for form in forms]
    start = threading.Barrier(WRITERS)
    for number, tenant in enumerate(tenants):
        with routed.shard(number) as shard:
            shard.execute("select memfold.set_policy(%s, guard => 'off')", [tenant])

    def writer(i: int) -> None:
        with routed.connect("app") as db:
            for turn in range(10):
                tenant = tenants[turn % 2]
                db.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
                start.wait(60)
                ingest(
                    db, texts[i], tenant_id=tenant, bucket_id=f"round {turn}", subject="user",
                    **vector(math.cos(0.02 * i)),
                )  # fmt: skip

    together(*[lambda i=i: writer(i) for i in range(WRITERS)])  # type: ignore[misc]
    for number, tenant in enumerate(tenants):
        with routed.shard(number) as shard:
            found = shard.execute(
                "select count(*) filter (where status = 'active'), max(repetition_count)"
                " from memfold.memory_audit where tenant_id = %s group by bucket_id",
                [tenant],
            ).fetchall()
            assert found == [(1, WRITERS - 1)] * 5
            check(shard)


def test_a_rollback_of_the_router_undoes_nothing(routed: Routed) -> None:
    """Each call is a transaction of the server's. With an idempotency key it can be repeated."""
    tenant = routed.tenant(1)
    with routed.connect("app", tenant) as db:
        with db.transaction(force_rollback=True):
            first = ingest(db, "rolled back", tenant_id=tenant, idempotency_key="k")
        assert one(db, "select content from memfold.memories") == "rolled back"
        again = ingest(db, "rolled back", tenant_id=tenant, idempotency_key="k")
        assert again == first
        assert one(db, "select observations from memfold.dedup_stats") == 1
        ingest(db, "rolled back", tenant_id=tenant)
        assert one(db, "select observations from memfold.dedup_stats") == 2


def test_a_killed_server(routed: Routed) -> None:
    """Its tenants' calls fail and say so, others go on; it comes back with all that it had."""
    lost, other = routed.tenant(1), routed.tenant(0)
    with (
        routed.connect("app", lost) as db,
        routed.connect("app", other) as elsewhere,
        routed.connect("judge") as judge,
        routed.connect() as admin,
    ):
        kept = ingest(db, "kept", tenant_id=lost)
        ingest(elsewhere, "User prefers dark mode", tenant_id=other, **vector(1.0))
        ingest(elsewhere, "User likes it dark", tenant_id=other, **vector(0.9))
        judge.execute("select memfold.claim_judgements('w', tenant_id => %s, judgement_ids => '{}')", [other])
        routed.shards[1].kill()
        try:
            codes = set()
            for _ in range(5):
                with pytest.raises(psycopg.Error) as error:
                    ingest(db, "not kept", tenant_id=lost)
                codes.add(error.value.sqlstate)
                message = str(error.value)
                time.sleep(0.05)
            assert codes <= {"XX000", "57P01", "57P02", "57P03", "08006"}
            assert "PQconnectStart" in message
            assert str(routed.shards[1].base) in message
            assert ingest(elsewhere, "goes on", tenant_id=other).action == "inserted"
            assert one(elsewhere, "select active from memfold.dedup_stats") == 3
            # the queue too, with a warning; a rule of everyone's is refused as long as it cannot be everywhere
            warnings: list[Any] = []
            judge.add_notice_handler(lambda d: warnings.append((d.severity, d.message_primary)))
            claimed = judge.execute("select tenant_id from memfold.claim_judgements('w')").fetchall()
            assert (other,) in claimed
            assert next(m for severity, m in warnings if severity == "WARNING").startswith(
                "server 1 of the cluster"
            )
            with pytest.raises(psycopg.Error):
                admin.execute("select memfold.register_embedding_model('half', 3)")
        finally:
            routed.shards[1].restart()
        assert ingest(db, "kept", tenant_id=lost).memory_id == kept.memory_id
        admin.execute("select memfold.register_embedding_model('half', 3)")
    for number in (0, 1):
        with routed.shard(number) as shard:
            assert one(shard, "select count(*) from memfold.embedding_models where model = 'half'") == 1
            check(shard)
    with routed.shard(1) as shard:
        assert counters(shard, kept.memory_id)["observations"] == 2
        assert one(shard, "select count(*) from memfold.memories where content = 'not kept'") == 0


def test_a_call_that_is_cancelled_is_cancelled_there(routed: Routed) -> None:
    tenant = routed.tenant(0)
    with routed.connect("app", tenant) as db, psycopg.connect(routed.shards[0].dsn()) as blocker:
        ingest(db, "before", tenant_id=tenant)
        blocker.execute("lock table memfold.memories in exclusive mode")
        db.execute("set statement_timeout = '300ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            ingest(db, "waits", tenant_id=tenant)
        blocker.rollback()
        db.execute("reset statement_timeout")
        deadline = time.monotonic() + 10
        waiting = (
            "select count(*) from pg_stat_activity"
            " where state = 'active' and query ~ '^select . from memfold.ingest_memory'"
        )
        with routed.shard(0) as shard:
            while one(shard, waiting):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert one(shard, "select count(*) from memfold.memories where content = 'waits'") == 0
        assert ingest(db, "waits", tenant_id=tenant).action == "inserted"
