"""Tier 3 in SQL alone: the queue, and what an answer does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support import Result, check, counters, ingest, model, vector

DB = psycopg.Connection[Any]
Connect = Callable[..., DB]


@dataclass(frozen=True)
class Claimed:
    """A row of claim_judgements."""

    tenant_id: str
    judgement_id: UUID
    bucket_id: str
    kind: str
    similarity: float | None
    guard: list[str] | None
    attempts: int
    leased_until: datetime
    memory: dict[str, Any]
    other: dict[str, Any]


@dataclass(frozen=True)
class Resolution:
    """A row of resolve_judgement."""

    state: str
    verdict: str | None
    action: str | None
    memory_id: UUID | None
    event_id: UUID | None


def call(db: DB, function: str, /, *arguments: Any, **named: Any) -> list[tuple[Any, ...]]:
    places = ["%s"] * len(arguments) + [f"{name} => %s" for name in named]
    return db.execute(
        f"select * from memfold.{function}({', '.join(places)})", [*arguments, *named.values()]
    ).fetchall()


def claim(db: DB, worker: str = "w", **arguments: Any) -> list[Claimed]:
    return [Claimed(*row) for row in call(db, "claim_judgements", worker, **arguments)]


def resolve(db: DB, judgement_id: UUID | None, verdict: str | None, **arguments: Any) -> Resolution:
    return Resolution(
        *call(db, "resolve_judgement", judgement_id, verdict, **{"tenant_id": "acme", **arguments})[0]
    )


def fail(db: DB, judgement_id: UUID, error: str = "timeout", **arguments: Any) -> str:
    found: str = call(db, "fail_judgement", judgement_id, error, **{"tenant_id": "acme", **arguments})[0][0]
    return found


def ask(db: DB, a: Result, b: Result, kind: str = "write", tenant: str = "acme") -> UUID:
    """Queue the question about a pair, as consolidation will."""
    row = db.execute(
        "insert into judgements (tenant_id, bucket_id, scope_key, kind, memory_id, other_id, similarity)"
        " select tenant_id, bucket_id, scope_key, %s, greatest(%s::uuid, %s), least(%s::uuid, %s), 0.8"
        " from memories where tenant_id = %s and memory_id = %s returning judgement_id",
        [kind, a.memory_id, b.memory_id, a.memory_id, b.memory_id, tenant, a.memory_id],
    ).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


def pair(
    db: DB, older: str = "User likes tea", newer: str = "User enjoys tea", **more: Any
) -> tuple[Result, Result]:
    """Two memories of one scope with a cosine of 0.9, and the judgement about them."""
    a = ingest(db, older, **{**vector(1.0), **more})
    b = ingest(db, newer, **{**vector(0.9), **more})
    assert (b.action, b.judgement_id is not None) == ("escalated", True)
    return a, b


def state(db: DB, judgement_id: UUID | None) -> Any:
    row = db.execute(
        "select state, verdict, attempts from judgements where judgement_id = %s", [judgement_id]
    ).fetchone()
    assert row is not None
    return row


def status(db: DB, memory: Result | UUID | None) -> str:
    memory_id = memory.memory_id if isinstance(memory, Result) else memory
    row = db.execute("select status from memories where memory_id = %s", [memory_id]).fetchone()
    assert row is not None
    return str(row[0])


def statuses(db: DB, *memories: Result) -> list[str]:
    return [status(db, m) for m in memories]


def event(db: DB, event_id: UUID | None) -> Any:
    row = db.execute(
        "select action, tier, method, memory_id, target_id, verdict, judgement_id, observation from memory_events"
        " where event_id = %s",
        [event_id],
    ).fetchone()
    assert row is not None
    return row


def elapse(db: DB, interval: str) -> None:
    """Let time pass for every judgement."""
    db.execute(
        "update judgements set next_attempt_at = next_attempt_at - %s::interval,"
        " leased_until = leased_until - %s::interval, created_at = created_at - %s::interval",
        [interval] * 3,
    )


def flood(db: DB, tenant: str, size: int) -> list[UUID]:
    """Judgements about pairs of a few memories; their ids in order."""
    for i in range(20):
        if i * (i - 1) // 2 < size:
            ingest(db, f"{tenant} says {'so ' * i}", tenant_id=tenant)
    db.execute(
        "insert into judgements (tenant_id, bucket_id, scope_key, kind, memory_id, other_id)"
        " select a.tenant_id, a.bucket_id, a.scope_key, 'write', a.memory_id, b.memory_id"
        " from memories a join memories b on a.tenant_id = b.tenant_id and a.memory_id > b.memory_id"
        " where a.tenant_id = %s order by a.memory_id, b.memory_id limit %s",
        [tenant, size],
    )
    found = db.execute(
        "select judgement_id from judgements where tenant_id = %s order by judgement_id", [tenant]
    ).fetchall()
    assert len(found) == size
    return [row[0] for row in found]


def raises(code: str, action: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    with pytest.raises(psycopg.Error) as error:
        action(*arguments, **named)
    assert error.value.sqlstate == code
    assert error.value.diag.message_detail
    assert error.value.diag.message_hint


@pytest.fixture
def m(db: DB) -> DB:
    model(db)
    return db


# The queue ----------------------------------------------------------------------------------------------------------


@pytest.mark.core
def test_a_claim_hands_out_the_question(m: DB) -> None:
    about = {"subject": "Ann", "predicate": "drinks", "object": "tea", "session_id": "s1"}
    a = ingest(m, "Ann drinks 1 cup of tea", **about, **vector(1.0), source_turn_ids=["t1", "t2"],
               observed_at="2026-01-01 12:00:00+00")  # fmt: skip
    ingest(m, "Ann drinks 1 cup of tea", subject="Ann", predicate="drinks", source_turn_ids=["t3"])
    b = ingest(m, "Ann drinks 2 cups of tea", **about, **vector(0.97), origin="inferred")
    assert claim(m, tenant_id="globex") == []
    before = datetime.now().astimezone()
    [found] = claim(m, "worker 7", lease="90 seconds")
    assert (found.tenant_id, found.bucket_id, found.kind) == ("acme", "default", "write")
    assert (found.judgement_id, found.attempts) == (b.judgement_id, 1)
    assert found.similarity == pytest.approx(0.97)
    assert found.guard == ["numeral: 2 <> 1"]
    assert timedelta(seconds=89) < found.leased_until - before < timedelta(seconds=120)
    assert found.memory["memory_id"] == str(b.memory_id)
    other = found.other
    assert datetime.fromisoformat(other.pop("first_seen")).date().isoformat() == "2026-01-01"
    assert datetime.fromisoformat(other.pop("last_seen")) > before - timedelta(minutes=1)
    assert other == {
        "memory_id": str(a.memory_id), "content": "Ann drinks 1 cup of tea", "memory_type": "fact", "subject": "Ann",
        "predicate": "drinks", "object": "tea", "observations": 2, "sources": 3, "origin": "observed",
        "session_id": "s1", "source_turn_ids": ["t1", "t2"],
    }  # fmt: skip
    assert found.memory["origin"] == "inferred"
    assert m.execute("select state, worker from judgements").fetchall() == [("leased", "worker 7")]
    # what is not known is left out
    pair(m, bucket_id="another")
    assert set(claim(m)[0].memory) & {"subject", "predicate", "object", "session_id"} == set()


def test_the_oldest_first(db: DB) -> None:
    ids = flood(db, "acme", 6)
    assert [c.judgement_id for c in claim(db, max=2)] == ids[:2]
    assert [c.judgement_id for c in claim(db, max=3, tenant_id="acme")] == ids[2:5]
    assert [c.judgement_id for c in claim(db)] == ids[5:]
    assert claim(db) == []


def test_claims_do_not_wait_for_one_another(db: DB, connect: Connect) -> None:
    ids = flood(db, "acme", 6)
    first, second = connect(), connect()
    second.execute("set lock_timeout = '2s'")
    with first.transaction():
        held = claim(first, "one", max=4)
        rest = claim(second, "two")
    assert ([c.judgement_id for c in held], [c.judgement_id for c in rest]) == (ids[:4], ids[4:])


def test_many_workers_get_each_judgement_once(db: DB, connect: Connect) -> None:
    ids = {*flood(db, "acme", 40), *flood(db, "globex", 40)}
    got: list[UUID] = []

    def work(connection: DB) -> None:
        while found := claim(connection, f"{connection.info.backend_pid}", max=3):
            got.extend(c.judgement_id for c in found)

    threads = [threading.Thread(target=work, args=(connect(),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # whoever skipped a row that another had locked may have stopped early; none was handed out twice
    got.extend(c.judgement_id for c in claim(db, max=100))
    assert len(got) == len(set(got)) == 80
    assert set(got) == ids


def test_a_lease_that_ended(db: DB) -> None:
    [judgement_id] = flood(db, "acme", 1)
    assert claim(db, "one", lease="1 minute")[0].attempts == 1
    elapse(db, "59 seconds")
    assert claim(db, "two") == []
    elapse(db, "2 seconds")
    assert claim(db, "two")[0].attempts == 2
    # the first one is late: the lease is not its own any more
    assert fail(db, judgement_id, worker="one") == "leased"
    assert claim(db, "three") == []
    assert fail(db, judgement_id, worker="two") == "open"
    # a real second
    db.execute("update judgements set next_attempt_at = now()")
    assert claim(db, "one", lease="1 second")[0].attempts == 3
    deadline = time.monotonic() + 5
    while not claim(db, "two", judgement_ids=[judgement_id]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert state(db, judgement_id)[2] == 4


def test_attempts_and_back_off(db: DB) -> None:
    [judgement_id] = flood(db, "acme", 1)
    for attempt in range(1, 9):
        assert [c.attempts for c in claim(db)] == [attempt]
        found = fail(db, judgement_id, f"error {attempt}")
        assert found == ("dead" if attempt == 8 else "open")
        row = db.execute(
            "select extract(epoch from next_attempt_at - clock_timestamp()) from judgements"
        ).fetchone()
        assert row is not None
        wait = 5 * 2 ** (attempt - 1)
        assert 0.8 * wait - 1 < row[0] < 1.2 * wait
        assert claim(db) == []
        elapse(db, f"{1.2 * wait} seconds")
    assert claim(db) == []
    assert db.execute("select state, last_error, worker from judgements").fetchall() == [
        ("dead", "error 8", None)
    ]
    assert fail(db, judgement_id) == "dead"
    # dead is not lost: seen, revived, or answered
    assert db.execute("select state, attempts, last_error from open_judgements").fetchall() == [
        ("dead", 8, "error 8")
    ]
    stats = db.execute("select dead_judgements, open_judgements, warning from dedup_stats").fetchone()
    assert stats is not None
    assert stats[:2] == (1, 0)
    assert "dead judgements: 1, each failed eight times" in stats[2]
    assert call(db, "revive_judgements", "globex") == [(0,)]
    assert call(db, "revive_judgements", "acme") == [(1,)]
    assert [c.attempts for c in claim(db)] == [1]
    assert resolve(db, judgement_id, "distinct").state == "done"
    assert call(db, "revive_judgements") == [(0,)]
    assert db.execute("select warning from dedup_stats").fetchone() == (None,)


def test_a_worker_that_never_comes_back_eight_times(db: DB) -> None:
    [judgement_id] = flood(db, "acme", 1)
    for attempt in range(1, 9):
        assert [c.attempts for c in claim(db)] == [attempt]
        elapse(db, "61 seconds")
    assert claim(db) == []
    assert state(db, judgement_id) == ("dead", None, 8)
    assert resolve(db, judgement_id, "distinct").state == "done"


def test_a_failure_that_does_not_count(db: DB) -> None:
    [judgement_id] = flood(db, "acme", 1)
    for _ in range(10):
        assert claim(db)[0].attempts == 1
        assert fail(db, judgement_id, counted=False, retry_after="0 seconds") == "open"
    claim(db)
    assert fail(db, judgement_id, retry_after="1 hour") == "open"
    elapse(db, "59 minutes")
    assert claim(db) == []
    elapse(db, "1 minute")
    assert claim(db)[0].attempts == 2


def test_what_a_failure_keeps(db: DB) -> None:
    first, second = flood(db, "acme", 2)
    claim(db, "w", max=1)
    assert fail(db, first, "x" * 3000, worker="another", model="a", input_tokens=1) == "leased"
    assert (
        fail(db, first, "x" * 3000, worker="w", model="b", input_tokens=10, output_tokens=5, cost=0.5)
        == "open"
    )
    assert fail(db, second) == "open"  # nobody has claimed it: it stays as it is
    assert state(db, second) == ("open", None, 0)
    assert db.execute(
        "select length(last_error), model, input_tokens, output_tokens, cost from judgements where judgement_id = %s",
        [first],
    ).fetchone() == (1000, "b", 11, 5, 0.5)
    resolve(db, first, "distinct", model="b", input_tokens=100, cost=0.25)
    assert db.execute(
        "select input_tokens, output_tokens, cost from judgements where judgement_id = %s", [first]
    ).fetchone() == (111, 5, 0.75)
    assert fail(db, first) == "done"
    unknown = UUID(int=0)
    raises("MF026", fail, db, unknown)
    for wrong in ({"input_tokens": -1}, {"output_tokens": -1}, {"cost": -0.1}, {"cost": float("nan")}):
        raises("MF028", fail, db, second, **wrong)


def test_a_flood_of_one_tenant(db: DB) -> None:
    flood(db, "acme", 60)
    few = {*flood(db, "globex", 2), *flood(db, "initech", 2)}
    got = claim(db, max=10)
    assert len(got) == 10
    assert few <= {c.judgement_id for c in got}
    flood(db, "umbrella", 3)
    assert {c.tenant_id for c in claim(db, max=4)} == {"acme", "umbrella"}
    db.execute("update judgements set state = 'open', next_attempt_at = now(), attempts = 0")
    served = [claim(db, max=1)[0].tenant_id for _ in range(8)]
    assert [served.count(t) for t in ("acme", "globex", "initech", "umbrella")] == [2, 2, 2, 2]


def test_what_waits_for_a_person(m: DB) -> None:
    m.execute("select set_policy('acme', 'people', on_ambiguous => 'review')")
    _, b = pair(m)
    _, c = pair(m, bucket_id="people")
    assert [x.judgement_id for x in claim(m, review=True)] == [c.judgement_id]
    assert [(x.judgement_id, x.kind) for x in claim(m)] == [(b.judgement_id, "write")]
    assert m.execute("select kind from judgements where judgement_id = %s", [c.judgement_id]).fetchone() == (
        "review",
    )


def test_only_these(db: DB) -> None:
    ids = flood(db, "acme", 5)
    assert [c.judgement_id for c in claim(db, judgement_ids=ids[3:], tenant_id="acme")] == ids[3:]
    assert claim(db, judgement_ids=ids[3:]) == []
    assert [c.judgement_id for c in claim(db, judgement_ids=ids[:1])] == ids[:1]
    assert claim(db, judgement_ids=[]) == []


def test_claims_that_are_not_possible(db: DB) -> None:
    for arguments in (
        {"max": 0}, {"max": 1001}, {"max": None}, {"lease": "0"}, {"lease": "2 days"}, {"lease": None}, {"review": None},
    ):  # fmt: skip
        raises("MF028", claim, db, **arguments)
    for worker in (None, "", "w" * 600):
        raises("MF003", claim, db, worker)


# Roles --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def login(db: DB, connect: Connect) -> Iterator[Callable[..., DB]]:
    """Opens a connection of a login role that is a member of these roles."""
    made: list[tuple[str, DB]] = []

    def open_one(*groups: str) -> DB:
        role = f"r{len(made)}_{db.info.dbname}"
        db.execute(f"drop role if exists {role}")
        db.execute(f"create role {role} login in role {', '.join(groups)}")
        connection = connect(user=role)
        made.append((role, connection))
        return connection

    yield open_one
    for role, connection in made:
        connection.close()
        db.execute("delete from memfold.tenant_roles where role_name = %s", [role])
        db.execute(f"drop role {role}")


@pytest.mark.core
def test_a_judge_works_for_every_tenant_and_sees_nothing_else(m: DB, login: Callable[..., DB]) -> None:
    pairs = {tenant: pair(m, tenant_id=tenant) for tenant in ("acme", "globex", "initech")}
    judge = login("memfold_judge")
    found = {c.tenant_id: c for c in claim(judge)}
    assert found.keys() == pairs.keys()
    assert found["globex"].memory["content"] == "User enjoys tea"
    for tenant, verdict, action in (
        ("acme", "duplicate", "merged"),
        ("globex", "contradiction", "superseded"),
    ):
        assert (
            resolve(judge, found[tenant].judgement_id, verdict, model="a", tenant_id=tenant).action == action
        )
    assert fail(judge, found["initech"].judgement_id, tenant_id="initech") == "open"
    assert call(judge, "revive_judgements") == [(0,)]
    raises("MF026", resolve, judge, found["initech"].judgement_id, "distinct", tenant_id="acme")
    raises("MF001", resolve, judge, found["initech"].judgement_id, "distinct", tenant_id=None)
    assert m.execute("select actor from memory_events where tier = 3 limit 1").fetchone() == (
        judge.info.user,
    )
    a = pairs["initech"][0].memory_id
    for forbidden in (
        "select * from memfold.memories", "select * from memfold.judgements", "select * from memfold.open_judgements",
        "select * from memfold.memory_events", "select * from memfold.dedup_stats", "select * from memfold.judge_costs",
        "select memfold.ingest_memory('User likes Vim', 'initech')", "select memfold.set_policy('initech')",
        f"select memfold.reject_memory('{a}', tenant_id => 'initech')",
        f"select memfold.undo('{a}', tenant_id => 'initech')",
        f"select memfold.update_memory('{a}', 'x', tenant_id => 'initech')",
        "select * from memfold.current_memories('initech')", f"select memfold.explain_memory('{a}', 'initech')",
        "select memfold.check_invariants('initech')", "update memfold.judgements set verdict = 'duplicate'",
        "select memfold._claim('w', 1, '1 minute', false, null, null)", "select memfold._revive(null)",
        f"select memfold._judged_side('initech', '{a}')",
    ):  # fmt: skip
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            judge.execute(forbidden)
    check(m)


def test_an_application_works_for_its_own_tenant(m: DB, app: Connect) -> None:
    pairs = {tenant: pair(m, tenant_id=tenant) for tenant in ("acme", "globex")}
    mine = app("acme")
    assert [c.tenant_id for c in claim(mine)] == ["acme"]
    raises("MF002", claim, mine, tenant_id="globex")
    for view in ("open_judgements", "judge_costs", "dedup_stats"):
        seen = mine.execute(f"select distinct tenant_id from memfold.{view}").fetchall()
        assert seen == ([] if view == "judge_costs" else [("acme",)])
    theirs = pairs["globex"][1].judgement_id
    assert theirs is not None
    raises("MF002", resolve, mine, theirs, "distinct", tenant_id="globex")
    raises("MF002", fail, mine, theirs, tenant_id="globex")
    raises("MF002", call, mine, "revive_judgements", "globex")
    raises("MF026", resolve, mine, theirs, "distinct", tenant_id="acme")
    raises("MF026", fail, mine, theirs, tenant_id="acme")
    assert claim(mine, judgement_ids=[theirs]) == []
    m.execute("update judgements set state = 'dead', attempts = 8")
    assert call(mine, "revive_judgements") == [(1,)]
    assert state(m, theirs)[0] == "dead"
    # from psql: the tenant is a setting
    assert call(mine, "resolve_judgement", pairs["acme"][1].judgement_id, "distinct")[0][0] == "done"
    nobody = app()
    raises("MF001", claim, nobody)
    raises("MF002", claim, nobody, tenant_id="acme")
    assert m.execute("select tenant_id from judgements where state <> 'done'").fetchall() == [("globex",)]


def test_a_bound_login_works_for_its_own_tenant(m: DB, login: Callable[..., DB]) -> None:
    for tenant in ("acme", "globex"):
        pair(m, tenant_id=tenant)
    # bound to a tenant, a judge is a judge of that tenant alone
    for groups in (("memfold_tenant",), ("memfold_tenant", "memfold_judge")):
        bound = login(*groups)
        raises("MF001", claim, bound)
        raises("MF002", claim, bound, tenant_id="acme")
        m.execute("insert into memfold.tenant_roles values (%s, 'globex')", [bound.info.user])
        assert [c.tenant_id for c in claim(bound, tenant_id="globex")] == ["globex"]
        raises("MF002", claim, bound, tenant_id="acme")
        bound.execute("set memfold.tenant_id = 'acme'")
        raises("MF002", claim, bound)
        m.execute("update judgements set state = 'open', next_attempt_at = now()")


def test_an_auditor_only_reads(m: DB, login: Callable[..., DB]) -> None:
    pair(m)
    auditor = login("memfold_auditor")
    assert auditor.execute("select kind from memfold.open_judgements").fetchall() == [("write",)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        claim(auditor)


# Asked once ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confidence", [0.9, 0.1])
def test_a_judged_pair_is_not_asked_again(m: DB, confidence: float) -> None:
    """Not in the other order either, nor folded by tier 2 alone."""
    model(m, "second")
    model(m, "third")
    a, b = pair(m)
    assert resolve(m, b.judgement_id, "distinct", confidence=confidence).verdict in ("distinct", "unsure")
    for name, cosine in (("second", 0.9), ("third", 0.99)):
        late_b = vector(cosine, name=name)
        call(m, "attach_embedding", b.memory_id, late_b["embedding"], name, tenant_id="acme")
        late_a = vector(1.0, name=name)
        asked = Result(
            *call(m, "attach_embedding", a.memory_id, late_a["embedding"], name, tenant_id="acme")[0]
        )
        assert (asked.action, asked.judgement_id) == ("embedded", None)
    assert m.execute("select count(*) from judgements").fetchone() == (1,)
    assert statuses(m, a, b) == ["active", "active"]
    check(m)


def test_a_queued_pair_is_not_queued_twice(m: DB) -> None:
    model(m, "second")
    a, b = pair(m)
    for memory, cosine in ((b, 0.9), (a, 1.0)):
        late = vector(cosine, name="second")
        assert (
            call(m, "attach_embedding", memory.memory_id, late["embedding"], "second", tenant_id="acme")[0][6]
            is None
        )
    assert m.execute("select count(*) from judgements").fetchone() == (1,)


def test_the_paraphrase_arrives_again(m: DB) -> None:
    """What a judge called a duplicate is a tier-1 hit: no vector, no call."""
    a, b = pair(m)
    resolve(m, b.judgement_id, "duplicate", confidence=0.9, model="a")
    again = ingest(m, "user enjoys  TEA.")
    assert (again.action, again.tier, again.method, again.memory_id) == ("merged", 1, "alias", a.memory_id)
    assert m.execute("select count(*) from judgements where state = 'open'").fetchone() == (0,)
    check(m)


def test_what_becomes_of_an_ambiguous_pair(m: DB) -> None:
    for what, kind in (("judge", "write"), ("review", "review"), ("keep", None)):
        m.execute("select set_policy('acme', %s, on_ambiguous => %s)", [what, what])
        ingest(m, "User likes tea", bucket_id=what, **vector(1.0))
        b = ingest(m, "User enjoys tea", bucket_id=what, **vector(0.9))
        queued = m.execute(
            "select judgement_id, kind, state from judgements where bucket_id = %s", [what]
        ).fetchall()
        if kind is None:
            assert (b.action, b.judgement_id, queued) == ("inserted", None, [])
        else:
            assert (b.action, queued) == ("escalated", [(b.judgement_id, kind, "open")])
    assert m.execute("select distinct status from memories").fetchall() == [("active",)]
    check(m)


# Verdicts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["write", "review"])
def test_duplicate(m: DB, kind: str) -> None:
    """Folds the newer into the older, even where the newer says more."""
    m.execute("select set_policy('acme', on_ambiguous => %s)", ["judge" if kind == "write" else "review"])
    a, b = pair(m, newer="User enjoys tea every day")
    r = resolve(m, b.judgement_id, "duplicate", confidence=0.8, reason="same claim", model="a", input_tokens=200,
                output_tokens=20, cost=0.001)  # fmt: skip
    assert (r.state, r.verdict, r.action, r.memory_id) == ("done", "duplicate", "merged", a.memory_id)
    assert event(m, r.event_id) == (
        "merged", 3, "judge", b.memory_id, a.memory_id, "duplicate", b.judgement_id, False,
    )  # fmt: skip
    assert statuses(m, a, b) == ["active", "merged"]
    assert counters(m, a.memory_id)["observations"] == 2
    assert m.execute(
        "select kind, state, verdict, confidence, reason, model, input_tokens, output_tokens, cost,"
        " resolved_at between created_at and clock_timestamp() from judgements"
    ).fetchall() == [(kind, "done", "duplicate", 0.8, "same claim", "a", 200, 20, 0.001, True)]
    check(m)


LONG = "User likes tea with milk"
SHORT = "User likes tea"


@pytest.mark.parametrize("kind", ["write", "review", "consolidation"])
def test_refinement(m: DB, kind: str) -> None:
    """The fuller text becomes active: as the judge says, else the longer one."""
    for older, newer, fuller, keeps in (
        (SHORT, LONG, None, "newer"),
        (LONG, SHORT, None, "older"),
        (LONG, SHORT, "newer", "newer"),
        (SHORT, LONG, "older", "older"),
    ):
        bucket = f"{older}, {fuller}"
        a, b = ingest(m, older, bucket_id=bucket), ingest(m, newer, bucket_id=bucket)
        sides = {"older": a, "newer": b}
        r = resolve(m, ask(m, a, b, kind), "refinement", fuller=sides[fuller].memory_id if fuller else None)
        kept = sides.pop(keeps).memory_id
        [folded] = sides.values()
        assert (r.action, r.memory_id) == ("replaced" if keeps == "newer" else "merged", kept)
        assert event(m, r.event_id)[:5] == (r.action, 3, "person", b.memory_id, a.memory_id)
        assert [status(m, kept), status(m, folded)] == ["active", "merged"]
        assert {ingest(m, text, bucket_id=bucket).memory_id for text in (older, newer)} == {kept}
    check(m)


def test_distinct(m: DB) -> None:
    for kind in ("write", "review", "consolidation", "synthesis"):
        a, b = ingest(m, "User likes tea", bucket_id=kind), ingest(m, "User likes to eat", bucket_id=kind)
        asked = ask(m, a, b, kind)
        r = resolve(m, asked, "distinct", merged_text="User likes tea and to eat")
        assert (r.state, r.verdict, r.action) == ("done", "distinct", "judged")
        assert event(m, r.event_id) == (
            "judged",
            3,
            "person",
            b.memory_id,
            a.memory_id,
            "distinct",
            asked,
            False,
        )
        assert statuses(m, a, b) == ["active", "active"]
    assert m.execute("select count(*) from memories").fetchone() == (8,)
    check(m)


def test_the_confidence_floor(m: DB) -> None:
    """0.75 by default: below it the answer is only a lean."""
    for floor, confidence, verdict in (
        (None, 0.74, "unsure"), (None, 0.75, "duplicate"), (0.9, 0.89, "unsure"), (0.9, 0.9, "duplicate"),
        (0, 0, "duplicate"),
    ):  # fmt: skip
        bucket = f"{floor} {confidence}"
        if floor is not None:
            m.execute("select set_policy('acme', %s, confidence_floor => %s)", [bucket, floor])
        a, b = pair(m, bucket_id=bucket)
        r = resolve(m, b.judgement_id, "duplicate", confidence=confidence, reason="maybe")
        assert r.verdict == verdict
        assert event(m, r.event_id)[5] == verdict
        kept = m.execute(
            "select verdict, confidence, reason from judgements where judgement_id = %s", [b.judgement_id]
        ).fetchone()
        if verdict == "unsure":
            assert (r.action, statuses(m, a, b)) == ("judged", ["active", "active"])
            assert kept == ("unsure", confidence, "duplicate: maybe")
        else:
            assert (r.action, statuses(m, a, b)) == ("merged", ["active", "merged"])
            assert kept == ("duplicate", confidence, "maybe")
    check(m)


@pytest.mark.parametrize("verdict", ["duplicate", "refinement"])
def test_a_merged_text(m: DB, verdict: str) -> None:
    about = {"subject": "User", "predicate": "likes"}
    a = ingest(
        m, "User likes tea", source_turn_ids=["a"], source_confidence=0.3, metadata={"x": 1, "y": 1}, **about
    )
    b = ingest(
        m, "User likes milk in tea", source_turn_ids=["b"], source_confidence=0.9, metadata={"y": 2}, **about
    )
    r = resolve(m, ask(m, a, b, "synthesis"), verdict, merged_text="User likes tea with milk", model="a")
    assert (r.action, statuses(m, a, b)) == ("replaced", ["merged", "merged"])
    assert m.execute(
        "select content, subject, predicate, status, embedding_pending, metadata from memories where memory_id = %s",
        [r.memory_id],
    ).fetchone() == ("User likes tea with milk", "User", "likes", "active", True, {"x": 1, "y": 2})
    found = counters(m, r.memory_id)
    assert (found["observations"], found["independent"], found["aliases"]) == (2, 2, 2)
    assert found["source_confidence"] == 0.9
    assert event(m, r.event_id)[0] == "replaced"
    assert ingest(m, "User likes tea", **about).memory_id == r.memory_id
    check(m)


def test_a_merged_text_that_is_there_already(m: DB) -> None:
    a, b, c = (ingest(m, text) for text in ("User likes tea", "User likes milk", "User likes tea with milk"))
    r = resolve(m, ask(m, a, b, "synthesis"), "duplicate", merged_text="user likes tea with milk.")
    assert (r.action, r.memory_id) == ("replaced", c.memory_id)
    assert statuses(m, a, b, c) == ["merged", "merged", "active"]
    assert counters(m, c.memory_id)["observations"] == 3
    # the text of one side
    d = ingest(m, "User drinks tea")
    r = resolve(m, ask(m, c, d, "synthesis"), "duplicate", merged_text="User drinks tea")
    assert (r.memory_id, statuses(m, c, d)) == (d.memory_id, ["merged", "active"])
    # the text of an alias of one side
    e = ingest(m, "User is a tea drinker")
    r = resolve(m, ask(m, d, e, "synthesis"), "duplicate", merged_text="User likes milk")
    assert (r.memory_id, statuses(m, d, e)) == (d.memory_id, ["active", "merged"])
    assert counters(m, d.memory_id)["observations"] == 5
    assert m.execute("select count(*) from memories").fetchone() == (5,)
    check(m)


def test_a_merged_text_that_a_person_rejected(m: DB) -> None:
    a, b, c = (ingest(m, text) for text in ("User likes tea", "User likes milk", "User likes tea with milk"))
    call(m, "reject_memory", c.memory_id, tenant_id="acme")
    r = resolve(m, ask(m, a, b, "synthesis"), "duplicate", merged_text="User likes tea with milk")
    assert (r.state, r.action) == ("done", "judged")
    assert statuses(m, a, b, c) == ["active", "active", "rejected"]
    check(m)


@pytest.mark.parametrize("empty", ["", None])
def test_an_empty_merged_text(m: DB, empty: str | None) -> None:
    """A synthesis that says nothing keeps both and warns; where no text was asked for, none is missing or used."""
    warnings: list[str | None] = []
    m.add_notice_handler(lambda d: warnings.append(d.message_primary))
    a, b = ingest(m, "User likes tea"), ingest(m, "User enjoys tea")
    judgement_id = ask(m, a, b, "synthesis")
    r = resolve(m, judgement_id, "duplicate", merged_text=empty)
    assert (r.action, statuses(m, a, b)) == ("judged", ["active", "active"])
    assert len(warnings) == 1
    assert warnings[0] is not None
    assert str(judgement_id) in warnings[0]
    r = resolve(
        m, ask(m, a, b, "consolidation"), "duplicate", merged_text=empty or "User likes and enjoys tea"
    )
    assert (r.action, statuses(m, a, b)) == ("merged", ["active", "merged"])
    assert len(warnings) == 1
    check(m)


def test_a_merged_text_that_cannot_be(m: DB) -> None:
    """It is no better than what a caller hands in: the answer is refused, and the question stays."""
    a, b = ingest(m, "User likes tea"), ingest(m, "User enjoys tea")
    judgement_id = ask(m, a, b, "synthesis")
    with pytest.raises(psycopg.Error) as error:
        resolve(m, judgement_id, "duplicate", merged_text=" . ")
    assert error.value.sqlstate in ("MF004", "MF028")
    assert state(m, judgement_id)[0] == "open"
    assert statuses(m, a, b) == ["active", "active"]


# Contradictions -----------------------------------------------------------------------------------------------------


CONFLICTS = {
    "newest_wins": ("superseded", ["superseded", "active"]),
    "keep_existing": ("rejected", ["active", "rejected"]),
    "keep_both": ("judged", ["active", "active"]),
    "review": ("escalated", ["active", "active"]),
}


@pytest.mark.parametrize("by", ["bucket", "predicate"])
def test_a_contradiction(m: DB, by: str) -> None:
    m.execute("select set_policy('acme', conflict => 'keep_both')")
    for conflict, (action, after) in CONFLICTS.items():
        if by == "bucket":
            m.execute("select set_policy('acme', %s, conflict => %s)", [conflict, conflict])
        else:
            m.execute(
                "select set_predicate('acme', 'likes', cardinality => 'many', conflict => %s)", [conflict]
            )
        about = {"bucket_id": conflict, "subject": "User", "predicate": "likes"}
        a, b = pair(m, "User likes tea", "User likes no tea", **about)
        r = resolve(m, b.judgement_id, "contradiction", model="a")
        assert (r.verdict, r.action) == ("contradiction", action)
        assert statuses(m, a, b) == after
        reviews = m.execute(
            "select kind, state, memory_id, other_id from judgements where bucket_id = %s and judgement_id <> %s",
            [conflict, b.judgement_id],
        ).fetchall()
        assert reviews == ([("review", "open", b.memory_id, a.memory_id)] if conflict == "review" else [])
        if conflict == "newest_wins":
            assert event(m, r.event_id)[:6] == (
                "superseded",
                3,
                "judge",
                b.memory_id,
                a.memory_id,
                "contradiction",
            )
            assert r.memory_id == b.memory_id
        elif conflict == "keep_existing":
            assert event(m, r.event_id)[:4] == ("rejected", 3, "judge", b.memory_id)
            assert r.memory_id == a.memory_id
            again = ingest(m, "User likes no tea", **about)
            assert (again.action, again.method) == ("rejected", "tombstone")
        else:
            assert event(m, r.event_id)[0] == "judged"
    check(m)


@pytest.mark.parametrize("conflict", ["review", "keep_existing", "keep_both"])
def test_a_person_decides_a_contradiction(m: DB, conflict: str) -> None:
    """To answer a review judgement is to decide: the newest wins, whatever the policy."""
    m.execute("select set_policy('acme', conflict => %s)", [conflict])
    a, b = pair(m, "User likes tea", "User likes no tea")
    if conflict == "review":
        resolve(m, b.judgement_id, "contradiction", model="a")
        judgement_id: UUID | None = claim(m, review=True)[0].judgement_id
    else:
        m.execute("update judgements set kind = 'review'")
        judgement_id = b.judgement_id
    r = resolve(m, judgement_id, "contradiction")
    assert (r.action, r.memory_id) == ("superseded", b.memory_id)
    assert statuses(m, a, b) == ["superseded", "active"]
    assert m.execute("select count(*) from judgements where state = 'open'").fetchone() == (0,)
    check(m)


def test_the_newest_is_who_was_stated_last(m: DB) -> None:
    a, b = pair(m, "User likes tea", "User likes no tea", observed_at="2026-01-01")
    ingest(m, "User likes tea", observed_at="2026-02-01")
    r = resolve(m, b.judgement_id, "contradiction")
    assert (r.action, r.memory_id) == ("superseded", a.memory_id)
    assert event(m, r.event_id)[3:5] == (a.memory_id, b.memory_id)
    assert statuses(m, a, b) == ["active", "superseded"]
    check(m)


def test_ties_go_by_ledger_order(m: DB) -> None:
    a, b = pair(m, "User likes tea", "User likes no tea", observed_at="2026-01-01")
    ingest(m, "User likes tea", observed_at="2026-01-01")
    assert resolve(m, b.judgement_id, "contradiction").memory_id == a.memory_id
    check(m)


def intervals(db: DB) -> list[tuple[str, str, str | None]]:
    return db.execute(
        "select content, to_char(valid_from, 'MM-DD'), to_char(valid_to, 'MM-DD')"
        " from memory_intervals join memories using (tenant_id, memory_id) order by valid_from, from_event"
    ).fetchall()


@pytest.mark.parametrize(
    "about", [{}, {"subject": "User", "predicate": "likes", "object": "tea"}], ids=["plain", "many"]
)
def test_a_timeline_of_their_own(m: DB, about: dict[str, str]) -> None:
    """A judged contradiction where many values are allowed: A, B, A again; a stranger of the scope is not touched."""
    m.execute("select set_policy('acme', guard => 'off', merge_threshold => 0.999)")
    says = {**about, "observed_at": "2026-01-01"}
    stranger = ingest(m, "User likes long walks", **says, **vector(0.1, axis=3))
    a, b = pair(m, "User likes tea", "User likes no tea", **about, observed_at="2026-01-05")
    assert intervals(m) == []
    resolve(m, b.judgement_id, "contradiction", model="a")
    assert statuses(m, stranger, a, b) == ["active", "superseded", "active"]
    assert intervals(m) == [("User likes tea", "01-05", "01-05"), ("User likes no tea", "01-05", None)]
    back = ingest(m, "User likes tea", **{**about, "observed_at": "2026-02-01"})
    assert (back.action, back.tier, back.method) == ("superseded", 1, "timeline")
    assert (back.memory_id, back.superseded_id) == (a.memory_id, b.memory_id)
    late = ingest(m, "User likes no tea", **{**about, "observed_at": "2026-01-20"})
    assert (late.action, late.method) == ("merged", "timeline")
    assert statuses(m, stranger, a, b) == ["active", "active", "superseded"]
    assert intervals(m) == [
        ("User likes tea", "01-05", "01-05"), ("User likes no tea", "01-05", "02-01"), ("User likes tea", "02-01", None),
    ]  # fmt: skip
    check(m)


def test_two_contradictions_of_one_scope(m: DB) -> None:
    """They are two questions: one does not disturb the other. A value tied to one of them joins it."""
    a = ingest(m, "User likes tea", observed_at="2026-01-01")
    b = ingest(m, "User likes no tea", observed_at="2026-01-02")
    c = ingest(m, "User lives in Rome", observed_at="2026-01-03")
    d = ingest(m, "User has left Rome", observed_at="2026-01-04")
    resolve(m, ask(m, a, b), "contradiction")
    resolve(m, ask(m, c, d), "contradiction")
    assert statuses(m, a, b, c, d) == ["superseded", "active", "superseded", "active"]
    ingest(m, "User likes tea", observed_at="2026-01-05")
    assert statuses(m, a, b, c, d) == ["active", "superseded", "superseded", "active"]
    # a third value of the first question
    e = ingest(m, "User only likes green tea", observed_at="2026-01-06")
    resolve(m, ask(m, a, e), "contradiction")
    assert statuses(m, a, b, c, d, e) == ["superseded", "superseded", "superseded", "active", "active"]
    assert intervals(m) == [
        ("User likes tea", "01-01", "01-02"), ("User likes no tea", "01-02", "01-05"),
        ("User lives in Rome", "01-03", "01-04"), ("User has left Rome", "01-04", None),
        ("User likes tea", "01-05", "01-06"), ("User only likes green tea", "01-06", None),
    ]  # fmt: skip
    check(m)
    back = ingest(m, "User likes no tea", observed_at="2026-01-07")
    assert (back.action, back.superseded_id) == ("superseded", e.memory_id)
    assert statuses(m, a, b, c, d, e) == ["superseded", "active", "superseded", "active", "superseded"]
    check(m)


def test_the_objects_may_be_equal(m: DB) -> None:
    """What a judge called a contradiction stands for itself, whatever its object says."""
    about = {"subject": "Ann", "predicate": "likes", "object": "tea"}
    a = ingest(m, "Ann likes tea", **about, observed_at="2026-01-01")
    b = ingest(m, "Ann has gone off tea", **about, observed_at="2026-01-02")
    resolve(m, ask(m, a, b), "contradiction")
    assert statuses(m, a, b) == ["superseded", "active"]
    check(m)


def test_a_contradiction_in_a_single_valued_slot(m: DB) -> None:
    m.execute("select set_predicate('acme', 'works_at')")
    about = {"subject": "Ann", "predicate": "works_at"}
    v = ingest(m, "Ann works at VW", **about, object="VW", observed_at="2026-01-01", **vector(0.1, axis=3))
    a = ingest(m, "Ann works at Stripe", **about, observed_at="2026-02-01", object="Stripe", **vector(1.0))
    b = ingest(m, "Ann worked at Stripe", **about, observed_at="2026-03-01", object="Stripe", **vector(0.9))
    assert (a.action, b.action) == ("superseded", "escalated")
    r = resolve(m, b.judgement_id, "contradiction", model="a")
    assert (r.action, statuses(m, v, a, b)) == ("superseded", ["superseded", "superseded", "active"])
    assert m.execute(
        "select on_timeline from memory_events where event_id = %s", [r.event_id]
    ).fetchone() == (True,)
    assert intervals(m) == [
        ("Ann works at VW", "01-01", "02-01"), ("Ann works at Stripe", "02-01", "03-01"),
        ("Ann worked at Stripe", "03-01", None),
    ]  # fmt: skip
    check(m)
    back = ingest(m, "Ann works at VW", **about, object="VW", observed_at="2026-04-01")
    assert (back.action, statuses(m, v, a, b)) == ("superseded", ["active", "superseded", "superseded"])
    check(m)


# The answer meets another state than the question -------------------------------------------------------------------


def test_a_side_was_folded_meanwhile(m: DB) -> None:
    """The question is asked anew about where the two lead now; nothing is applied."""
    a, b = pair(m)
    [asked] = claim(m)
    c = ingest(m, "Tea is what the user likes", subject="tea")
    call(m, "merge_memories", b.memory_id, c.memory_id, tenant_id="acme")
    r = resolve(m, asked.judgement_id, "duplicate", confidence=0.9, model="a", input_tokens=7)
    assert (r.state, r.action, r.event_id) == ("open", None, None)
    assert statuses(m, a, b, c) == ["active", "merged", "active"]
    assert m.execute("select count(*) from memory_events where tier = 3").fetchone() == (1,)
    [again] = claim(m)
    assert (again.memory["memory_id"], again.other["memory_id"]) == (str(c.memory_id), str(a.memory_id))
    assert again.attempts == 1
    assert resolve(m, again.judgement_id, "duplicate", model="a").action == "merged"
    assert statuses(m, a, b, c) == ["active", "merged", "merged"]
    assert m.execute("select sum(input_tokens) from judgements").fetchone() == (7,)
    check(m)


def test_the_claim_looks_again(m: DB) -> None:
    a, b = pair(m)
    c = ingest(m, "Tea is what the user likes", subject="tea")
    call(m, "merge_memories", b.memory_id, c.memory_id, tenant_id="acme")
    d, e = pair(m, "User likes Vim", "User loves Vim", bucket_id="other")
    call(m, "merge_memories", e.memory_id, d.memory_id, tenant_id="acme")
    [asked] = claim(m)
    assert (asked.memory["memory_id"], asked.other["memory_id"]) == (str(c.memory_id), str(a.memory_id))
    assert state(m, e.judgement_id)[0] == "moot"
    check(m)


def test_a_late_answer_is_not_applied_to_another_pair(m: DB) -> None:
    """The lease of one ended, the pair was rewritten for the next: what the first says is not about that pair."""
    a, b = pair(m)
    [first] = claim(m, "one")
    elapse(m, "61 seconds")
    c = ingest(m, "User likes coffee", subject="coffee")
    call(m, "merge_memories", b.memory_id, c.memory_id, tenant_id="acme")
    [second] = claim(m, "two")
    assert second.memory["memory_id"] == str(c.memory_id)
    assert second.judgement_id != first.judgement_id
    raises("MF027", resolve, m, first.judgement_id, "duplicate", model="a")
    assert fail(m, first.judgement_id, worker="one") == "moot"
    assert statuses(m, a, b, c) == ["active", "merged", "active"]
    # and where the second one's answer came first
    d = ingest(m, "User likes cocoa", subject="cocoa")
    call(m, "merge_memories", c.memory_id, d.memory_id, tenant_id="acme")
    assert resolve(m, second.judgement_id, "distinct", model="a").state == "open"
    raises("MF027", resolve, m, second.judgement_id, "duplicate", model="a")
    [third] = claim(m)
    assert third.memory["memory_id"] == str(d.memory_id)
    check(m)


@pytest.mark.parametrize("how", ["rejected", "superseded", "folded", "withdrawn"])
def test_the_question_is_gone(m: DB, how: str) -> None:
    a, b = pair(m, subject="User", predicate="likes")
    [asked] = claim(m)
    if how == "rejected":
        call(m, "reject_memory", a.memory_id, tenant_id="acme")
    elif how == "superseded":
        call(m, "supersede_memory", b.memory_id, a.memory_id, tenant_id="acme")
    elif how == "folded":
        call(m, "merge_memories", b.memory_id, a.memory_id, tenant_id="acme")
    else:
        # as erasure will
        m.execute("set memfold.maintenance = on")
        m.execute("delete from memory_events where memory_id = %s and observation", [b.memory_id])
        m.execute("reset memfold.maintenance")
        m.execute("select derive_scope('acme', array[%s]::uuid[])", [b.memory_id])
    before = m.execute("select count(*) from memory_events").fetchone()
    r = resolve(m, asked.judgement_id, "duplicate", model="a")
    assert (r.state, r.verdict, r.action, r.event_id) == ("moot", None, None, None)
    assert m.execute("select count(*) from memory_events").fetchone() == before
    found = m.execute(
        "select state, verdict, reason is not null, resolved_at is not null from judgements"
    ).fetchall()
    assert found == [("moot", None, True, True)]
    raises("MF027", resolve, m, asked.judgement_id, "duplicate")
    assert claim(m) == []
    check(m)


def test_a_second_answer(m: DB) -> None:
    a, b = pair(m)
    resolve(m, b.judgement_id, "distinct")
    raises("MF027", resolve, m, b.judgement_id, "duplicate")
    assert statuses(m, a, b) == ["active", "active"]
    assert state(m, b.judgement_id)[:2] == ("done", "distinct")


def test_two_answers_at_once(m: DB, connect: Connect) -> None:
    """The first verdict wins; the second is told so."""
    answered = 0
    workers = [connect() for _ in range(4)]
    for turn in range(10):
        bucket = f"round {turn}"
        _, b = pair(m, bucket_id=bucket)
        barrier = threading.Barrier(len(workers))
        outcomes: list[str] = []

        def work(
            i: int, b: Result = b, barrier: threading.Barrier = barrier, outcomes: list[str] = outcomes
        ) -> None:
            barrier.wait()
            verdict = ["duplicate", "refinement", "contradiction", "distinct"][i]
            try:
                found = resolve(workers[i], b.judgement_id, verdict, confidence=0.9)
                outcomes.append(f"{found.state} {found.verdict}")
            except psycopg.Error as error:
                outcomes.append(error.sqlstate or "")

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(workers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes)[:3] == ["MF027"] * 3, outcomes
        assert sorted(outcomes)[3] == f"done {state(m, b.judgement_id)[1]}"
        answered += 1
        assert m.execute(
            "select count(*) from memory_events where bucket_id = %s and tier = 3", [bucket]
        ).fetchone() == (1,)
    assert answered == 10
    check(m)


def test_answers_that_are_refused(m: DB) -> None:
    a, b = pair(m)
    refused: list[tuple[str | None, dict[str, Any]]] = [
        ("same", {}), (None, {}), ("unsure", {}), ("", {}),
        ("duplicate", {"confidence": -0.01}), ("duplicate", {"confidence": 1.01}), ("duplicate", {"confidence": None}),
        ("duplicate", {"confidence": float("nan")}), ("duplicate", {"fuller": a.memory_id}),
        ("refinement", {"fuller": UUID(int=1)}), ("duplicate", {"input_tokens": -1}), ("duplicate", {"cost": -1}),
    ]  # fmt: skip
    for verdict, arguments in refused:
        raises("MF028", resolve, m, b.judgement_id, verdict, **arguments)
    assert state(m, b.judgement_id) == ("open", None, 0)
    assert statuses(m, a, b) == ["active", "active"]


def test_a_judgement_that_is_not_there(m: DB) -> None:
    _, b = pair(m)
    raises("MF026", resolve, m, UUID(int=0), "distinct")
    raises("MF026", resolve, m, None, "distinct")
    raises("MF026", resolve, m, b.judgement_id, "distinct", tenant_id="globex")


# Notifications and views --------------------------------------------------------------------------------------------


def heard(connection: DB, wait: float = 0.0) -> list[str]:
    return [n.payload for n in connection.notifies(timeout=wait, stop_after=None)]


def test_notifications(m: DB, connect: Connect) -> None:
    listener = connect()
    listener.execute("listen memfold_judgements")
    pair(m, bucket_id="1")
    assert heard(listener, 0.1) == []  # not by default
    m.execute("select set_policy('acme', notify => true)")
    pair(m, bucket_id="2")
    assert heard(listener, 0.1) == []  # the queue was not empty
    for c in claim(m):
        pair(m, bucket_id=f"3 {c.judgement_id}")
        resolve(m, c.judgement_id, "distinct")
    assert heard(listener, 0.1) == []  # leased ones count
    for c in claim(m):
        resolve(m, c.judgement_id, "distinct")
    m.execute("select set_policy('globex', notify => true)")
    _, d = pair(m, tenant_id="globex")
    assert heard(listener, 0.1) == ["globex"]
    with m.transaction():
        pair(m, bucket_id="4")
        assert heard(listener, 0.1) == []  # not before the commit
    assert heard(listener, 0.5) == ["acme"]
    # what waits for a person does not keep a judge asleep
    m.execute("select set_policy('globex', on_ambiguous => 'review')")
    resolve(m, d.judgement_id, "distinct", tenant_id="globex")
    pair(m, "User likes Vim", "User loves Vim", tenant_id="globex", subject="Vim")
    heard(listener, 0.1)
    m.execute("select set_policy('globex', on_ambiguous => 'judge')")
    pair(m, "User likes Go", "User loves Go", tenant_id="globex", subject="Go")
    assert heard(listener, 0.5) == ["globex"]


def test_open_judgements(m: DB) -> None:
    about = {"subject": "Ann", "predicate": "drinks"}
    a = ingest(m, "Ann drinks 1 cup", object="one", **about, **vector(1.0))
    b = ingest(m, "Ann drinks 2 cups", object="two", **about, **vector(0.97))
    with m.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        [row] = cursor.execute("select * from open_judgements").fetchall()
    assert {k: row[k] for k in (
        "tenant_id", "bucket_id", "judgement_id", "kind", "state", "content", "other_content", "subject", "predicate",
        "object", "other_object", "attempts", "last_error", "memory_id", "other_id",
    )} == {
        "tenant_id": "acme", "bucket_id": "default", "judgement_id": b.judgement_id, "kind": "write", "state": "open",
        "content": "Ann drinks 2 cups", "other_content": "Ann drinks 1 cup", "subject": "Ann", "predicate": "drinks",
        "object": "two", "other_object": "one", "attempts": 0, "last_error": None, "memory_id": b.memory_id,
        "other_id": a.memory_id,
    }  # fmt: skip
    assert row["guard"]
    claim(m)
    assert m.execute("select state, attempts from open_judgements").fetchall() == [("leased", 1)]
    resolve(m, b.judgement_id, "distinct")
    assert m.execute("select count(*) from open_judgements").fetchone() == (0,)


def test_a_warning_when_nobody_judges(m: DB) -> None:
    def warning() -> str | None:
        row = m.execute("select warning from dedup_stats where bucket_id = 'default'").fetchone()
        assert row is not None
        found: str | None = row[0]
        return found

    _, b = pair(m)
    assert warning() is None
    elapse(m, "11 minutes")
    assert "nobody judges" in (warning() or "")
    assert m.execute("select open_judgements, dead_judgements from dedup_stats").fetchone() == (1, 0)
    # somebody judges: it is busy, not absent
    c, d = ingest(m, "User likes Vim"), ingest(m, "User loves Vim")
    resolve(m, ask(m, c, d), "distinct", model="a")
    assert warning() is None
    m.execute("update judgements set resolved_at = resolved_at - interval '11 minutes' where state = 'done'")
    assert warning() is not None
    resolve(m, b.judgement_id, "distinct", model="a")
    assert warning() is None
    # what waits for a person is no judge's fault
    ask(m, c, ingest(m, "User hates Vim"), "review")
    elapse(m, "1 day")
    assert warning() is None


def test_judge_costs(m: DB) -> None:
    m.execute("set timezone = 'UTC'")
    verdicts = ["duplicate", "refinement", "contradiction", "distinct", "distinct"]
    for i, verdict in enumerate(verdicts):
        _, b = pair(m, "User likes tea", "User enjoys green tea", bucket_id=f"b{i}")
        [c] = claim(m)
        if i == 0:
            fail(
                m,
                c.judgement_id,
                "nonsense",
                retry_after="0 s",
                model="a",
                input_tokens=50,
                output_tokens=1,
                cost=0.5,
            )
            claim(m)
        resolve(m, b.judgement_id, verdict, model="a", confidence=0.9 if i < 4 else 0.5, input_tokens=100,
                output_tokens=10, cost=0.25)  # fmt: skip
    pair(m, bucket_id="dead")
    [c] = claim(m)
    m.execute("update judgements set attempts = 8 where judgement_id = %s", [c.judgement_id])
    fail(m, c.judgement_id, model="a", input_tokens=5)
    # a person costs nothing
    _, b = pair(m, bucket_id="person")
    resolve(m, b.judgement_id, "duplicate")
    # avoided: a hash, an alias, a vector
    ingest(m, "User likes tea", bucket_id="b0")
    ingest(m, "User enjoys green tea", bucket_id="b0")
    ingest(m, "User is fond of tea", bucket_id="b0", **vector(0.999, axis=2))
    # a new fact avoids nothing
    ingest(m, "User likes Vim", bucket_id="b0")
    with m.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        [row] = cursor.execute("select * from judge_costs").fetchall()
    day = row.pop("day")
    assert m.execute("select (now() at time zone 'UTC')::date = %s", [day]).fetchone() == (True,)
    assert row == {
        "tenant_id": "acme", "judgements": 5, "calls": 6 + 8, "input_tokens": 50 + 500 + 5, "output_tokens": 1 + 50,
        "cost": 0.5 + 1.25, "duplicates": 1, "refinements": 1, "contradictions": 1, "distincts": 1, "unsure": 1,
        "dead": 1, "avoided_by_hash": 1, "avoided_by_alias": 1, "avoided_by_vector": 1,
    }  # fmt: skip


# Under load ---------------------------------------------------------------------------------------------------------


def test_answers_while_both_sides_are_restated(m: DB, connect: Connect) -> None:
    """8 writers restate both sides of pairs that are judged at the same time: nothing is lost, nothing deadlocks."""
    verdicts = ["duplicate", "refinement", "contradiction", "distinct"] * 2
    pairs = [
        pair(
            m,
            "User likes tea",
            "User enjoys tea so much",
            bucket_id=f"b{i}",
            subject="User",
            predicate="drinks",
        )
        for i in range(len(verdicts))
    ]
    texts = ["User likes tea", "User enjoys tea so much"]
    writers = [connect() for _ in range(8)]
    judge = connect()
    errors: list[BaseException] = []
    start = threading.Barrier(len(writers) + 1)
    calls = 32

    def patiently(action: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        while True:
            try:
                return action(*arguments, **named)
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                continue

    def write(w: int) -> None:
        try:
            start.wait()
            for i in range(calls):
                bucket = f"b{(i // 2) % len(pairs)}"
                patiently(ingest, writers[w], texts[(i + w) % 2], bucket_id=bucket, subject="User", predicate="drinks",
                          source_turn_ids=[f"t{w}-{i}"])  # fmt: skip
        except BaseException as error:
            errors.append(error)

    def judge_all() -> None:
        try:
            start.wait()
            for (_, b), verdict in zip(pairs, verdicts, strict=True):
                assert patiently(resolve, judge, b.judgement_id, verdict).state == "done"
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(w,)) for w in range(len(writers))]
    threads.append(threading.Thread(target=judge_all))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    per_bucket = 2 + len(writers) * calls // len(pairs)
    found = m.execute(
        "select bucket_id, sum(k.observations), sum(k.independent) from memories join memory_counters k"
        " using (tenant_id, memory_id) where root_id is null group by bucket_id order by 1"
    ).fetchall()
    # the two first calls came without turns
    assert found == [(f"b{i}", per_bucket, per_bucket) for i in range(len(pairs))]
    assert m.execute("select verdict from judgements order by bucket_id").fetchall() == [
        (v,) for v in verdicts
    ]
    check(m)
