"""Tier 3 in SQL: the queue, who may work on it, and who sees what."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.judging import ask, call, claim, elapse, fail, flood, pair, raises, resolve, state
from tests.support.memories import Result, check, ingest, model, statuses, vector
from tests.support.queries import DB, Connect, one


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
    after = datetime.now().astimezone()
    assert (found.tenant_id, found.bucket_id, found.kind) == ("acme", "default", "write")
    assert (found.judgement_id, found.attempts) == (b.judgement_id, 1)
    assert found.similarity == pytest.approx(0.97)
    assert found.guard == ["numeral: 2 <> 1"]
    assert before <= found.leased_until - timedelta(seconds=90) <= after
    assert found.memory["memory_id"] == str(b.memory_id)
    other = found.other
    assert datetime.fromisoformat(other.pop("first_seen")).date().isoformat() == "2026-01-01"
    assert datetime.fromisoformat(other.pop("last_seen")) > before - timedelta(minutes=1)
    assert other == {
        "memory_id": str(a.memory_id), "content": "Ann drinks 1 cup of tea", "memory_type": "fact", "subject": "Ann",
        "predicate": "drinks", "object": "tea", "observations": 2, "sources": 2, "origin": "observed",
        "session_id": "s1", "source_turn_ids": ["t1", "t2"],
    }  # fmt: skip
    assert found.memory["origin"] == "inferred"
    assert m.execute("select status, worker from judgements").fetchall() == [("leased", "worker 7")]
    # unknown fields are left out
    pair(m, bucket_id="another")
    assert set(claim(m)[0].memory) & {"subject", "predicate", "object", "session_id"} == set()


def test_the_oldest_first(db: DB) -> None:
    ids = flood(db, "acme", 6)
    assert [c.judgement_id for c in claim(db, max_results=2)] == ids[:2]
    assert [c.judgement_id for c in claim(db, max_results=3, tenant_id="acme")] == ids[2:5]
    assert [c.judgement_id for c in claim(db)] == ids[5:]
    assert claim(db) == []


def test_claims_do_not_wait_for_one_another(db: DB, connect: Connect) -> None:
    ids = flood(db, "acme", 6)
    first, second = connect(), connect()
    second.execute("set lock_timeout = '2s'")
    with first.transaction():
        held = claim(first, "one", max_results=4)
        rest = claim(second, "two")
    assert ([c.judgement_id for c in held], [c.judgement_id for c in rest]) == (ids[:4], ids[4:])


def test_many_workers_get_each_judgement_once(db: DB, connect: Connect) -> None:
    ids = {*flood(db, "acme", 40), *flood(db, "globex", 40)}
    got: list[UUID] = []

    def work(connection: DB) -> None:
        while found := claim(connection, f"{connection.info.backend_pid}", max_results=3):
            got.extend(c.judgement_id for c in found)

    threads = [threading.Thread(target=work, args=(connect(),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # a caller that skipped a row that another had locked may have stopped early; none was handed out twice
    got.extend(c.judgement_id for c in claim(db, max_results=100))
    assert len(got) == len(set(got)) == 80
    assert set(got) == ids


def test_a_lease_that_ended(db: DB) -> None:
    [judgement_id] = flood(db, "acme", 1)
    assert claim(db, "one", lease="1 minute")[0].attempts == 1
    elapse(db, "59 seconds")
    assert claim(db, "two") == []
    elapse(db, "2 seconds")
    assert claim(db, "two")[0].attempts == 2
    # the first worker is late: another holds the lease
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
        before = one(db, "select clock_timestamp()")
        found = fail(db, judgement_id, f"error {attempt}")
        assert found == ("dead" if attempt == 8 else "open")
        after, available = one(db, "select clock_timestamp(), next_attempt_at from judgements")
        wait = timedelta(seconds=5 * 2 ** (attempt - 1))
        assert before + 0.8 * wait <= available <= after + 1.2 * wait
        assert claim(db) == []
        elapse(db, f"{6 * 2 ** (attempt - 1)} seconds")
    assert claim(db) == []
    assert db.execute("select status, last_error, worker from judgements").fetchall() == [
        ("dead", "error 8", None)
    ]
    assert fail(db, judgement_id) == "dead"
    # dead is not lost: it can be seen, retried, or answered
    assert db.execute("select status, attempts, last_error from open_judgements").fetchall() == [
        ("dead", 8, "error 8")
    ]
    stats = db.execute("select dead_judgements, open_judgements, warning from dedup_stats").fetchone()
    assert stats is not None
    assert stats[:2] == (1, 0)
    assert "dead judgements: 1, each failed eight times" in stats[2]
    assert call(db, "retry_judgements", "globex") == [(0,)]
    assert call(db, "retry_judgements", "acme") == [(1,)]
    assert [c.attempts for c in claim(db)] == [1]
    assert resolve(db, judgement_id, "distinct").status == "done"
    assert call(db, "retry_judgements") == [(0,)]
    assert db.execute("select warning from dedup_stats").fetchone() == (None,)


def test_a_worker_that_never_comes_back_eight_times(db: DB) -> None:
    [judgement_id] = flood(db, "acme", 1)
    for attempt in range(1, 9):
        assert [c.attempts for c in claim(db)] == [attempt]
        elapse(db, "61 seconds")
    assert claim(db) == []
    assert state(db, judgement_id) == ("dead", None, 8)
    assert db.execute("select last_error from open_judgements").fetchall() == [
        ("lease expired without an answer",)
    ]
    assert resolve(db, judgement_id, "distinct").status == "done"


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


def test_a_failure_records_error_and_cost(db: DB) -> None:
    first, second = flood(db, "acme", 2)
    claim(db, "w", max_results=1)
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
    got = claim(db, max_results=10)
    assert len(got) == 10
    assert few <= {c.judgement_id for c in got}
    flood(db, "umbrella", 3)
    assert {c.tenant_id for c in claim(db, max_results=4)} == {"acme", "umbrella"}
    db.execute("update judgements set status = 'open', next_attempt_at = now(), attempts = 0")
    served = [claim(db, max_results=1)[0].tenant_id for _ in range(8)]
    assert [served.count(t) for t in ("acme", "globex", "initech", "umbrella")] == [2, 2, 2, 2]


@pytest.mark.parametrize("most", [3, 4, 10, 14, 15, 16])
@pytest.mark.parametrize("named", [False, True])
def test_no_more_are_claimed_than_were_asked_for(db: DB, most: int, named: bool) -> None:
    """The rest, after each tenant has had its share."""
    ids = [found for tenant in ("acme", "globex", "initech") for found in flood(db, tenant, 5)]
    these = {"judgement_ids": ids} if named else {}
    assert len(claim(db, max_results=most, **these)) == min(most, 15)
    assert len(claim(db, max_results=100)) == max(0, 15 - most)


def test_judgements_for_a_person(m: DB) -> None:
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
        {"max_results": 0}, {"max_results": 1001}, {"max_results": None},
        {"lease": "0"}, {"lease": "2 days"}, {"lease": None}, {"review": None},
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
    assert call(judge, "retry_judgements") == [(0,)]
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
        "select memfold_internal._claim('w', 1, '1 minute', false, null, null)",
        "select memfold_internal._retry_judgements(null)",
        f"select memfold_internal._judged_side('initech', '{a}')",
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
    raises("MF002", call, mine, "retry_judgements", "globex")
    raises("MF026", resolve, mine, theirs, "distinct", tenant_id="acme")
    raises("MF026", fail, mine, theirs, tenant_id="acme")
    assert claim(mine, judgement_ids=[theirs]) == []
    m.execute("update judgements set status = 'dead', attempts = 8")
    assert call(mine, "retry_judgements") == [(1,)]
    assert state(m, theirs)[0] == "dead"
    # from psql: the tenant is a setting
    assert call(mine, "resolve_judgement", pairs["acme"][1].judgement_id, "distinct")[0][0] == "done"
    nobody = app()
    raises("MF001", claim, nobody)
    raises("MF002", claim, nobody, tenant_id="acme")
    assert m.execute("select tenant_id from judgements where status <> 'done'").fetchall() == [("globex",)]


def test_a_bound_login_works_for_its_own_tenant(m: DB, login: Callable[..., DB]) -> None:
    for tenant in ("acme", "globex"):
        pair(m, tenant_id=tenant)
    # a judge that is bound to a tenant judges only for that tenant
    for groups in (("memfold_tenant",), ("memfold_tenant", "memfold_judge")):
        bound = login(*groups)
        raises("MF001", claim, bound)
        raises("MF002", claim, bound, tenant_id="acme")
        m.execute("insert into memfold.tenant_roles values (%s, 'globex')", [bound.info.user])
        assert [c.tenant_id for c in claim(bound, tenant_id="globex")] == ["globex"]
        raises("MF002", claim, bound, tenant_id="acme")
        bound.execute("set memfold.tenant_id = 'acme'")
        raises("MF002", claim, bound)
        m.execute("update judgements set status = 'open', next_attempt_at = now()")


def test_an_auditor_only_reads(m: DB, login: Callable[..., DB]) -> None:
    pair(m)
    auditor = login("memfold_auditor")
    assert auditor.execute("select kind from memfold.open_judgements").fetchall() == [("write",)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        claim(auditor)


# Asked once ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confidence", [0.9, 0.1])
def test_a_judged_pair_is_not_asked_again(m: DB, confidence: float) -> None:
    """Not in reverse order either, nor merged by tier 2 alone."""
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
    """After a judge's duplicate, the text is a tier-1 hit: no vector, no call."""
    a, b = pair(m)
    resolve(m, b.judgement_id, "duplicate", confidence=0.9, model="a")
    again = ingest(m, "user enjoys  TEA.")
    assert (again.action, again.tier, again.method, again.memory_id) == ("merged", 1, "alias", a.memory_id)
    assert m.execute("select count(*) from judgements where status = 'open'").fetchone() == (0,)
    check(m)


def test_what_becomes_of_an_ambiguous_pair(m: DB) -> None:
    for what, kind in (("judge", "write"), ("review", "review"), ("insert", None)):
        m.execute("select set_policy('acme', %s, on_ambiguous => %s)", [what, what])
        ingest(m, "User likes tea", bucket_id=what, **vector(1.0))
        b = ingest(m, "User enjoys tea", bucket_id=what, **vector(0.9))
        queued = m.execute(
            "select judgement_id, kind, status from judgements where bucket_id = %s", [what]
        ).fetchall()
        if kind is None:
            assert (b.action, b.judgement_id, queued) == ("inserted", None, [])
        else:
            assert (b.action, queued) == ("escalated", [(b.judgement_id, kind, "open")])
    assert m.execute("select distinct status from memories").fetchall() == [("active",)]
    check(m)


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
    assert heard(listener, 0.1) == [""]  # listeners learn no tenant
    with m.transaction():
        pair(m, bucket_id="4")
        assert heard(listener, 0.1) == []  # not before the commit
    assert heard(listener, 0.5) == [""]
    # judgements for a person do not suppress the notification
    m.execute("select set_policy('globex', on_ambiguous => 'review')")
    resolve(m, d.judgement_id, "distinct", tenant_id="globex")
    pair(m, "User likes Vim", "User loves Vim", tenant_id="globex", subject="Vim")
    heard(listener, 0.1)
    m.execute("select set_policy('globex', on_ambiguous => 'judge')")
    pair(m, "User likes Go", "User loves Go", tenant_id="globex", subject="Go")
    assert heard(listener, 0.5) == [""]


def test_open_judgements(m: DB) -> None:
    about = {"subject": "Ann", "predicate": "drinks"}
    m.execute("select set_predicate('drinks', 'acme', 'many')")
    a = ingest(m, "Ann drinks 1 cup", object="one", **about, **vector(1.0))
    b = ingest(m, "Ann drinks 2 cups", object="two", **about, **vector(0.97))
    with m.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        [row] = cursor.execute("select * from open_judgements").fetchall()
    assert {k: row[k] for k in (
        "tenant_id", "bucket_id", "judgement_id", "kind", "status", "content", "other_content", "subject", "predicate",
        "object", "other_object", "attempts", "last_error", "memory_id", "other_id",
    )} == {
        "tenant_id": "acme", "bucket_id": "default", "judgement_id": b.judgement_id, "kind": "write", "status": "open",
        "content": "Ann drinks 2 cups", "other_content": "Ann drinks 1 cup", "subject": "Ann", "predicate": "drinks",
        "object": "two", "other_object": "one", "attempts": 0, "last_error": None, "memory_id": b.memory_id,
        "other_id": a.memory_id,
    }  # fmt: skip
    assert row["guard"]
    claim(m)
    assert m.execute("select status, attempts from open_judgements").fetchall() == [("leased", 1)]
    resolve(m, b.judgement_id, "distinct")
    assert m.execute("select count(*) from open_judgements").fetchone() == (0,)


def test_a_warning_when_nobody_judges(m: DB) -> None:
    def warning() -> str | None:
        row = m.execute("select warning from dedup_stats where bucket_id = 'default'").fetchone()
        assert row is not None
        found: str | None = row[0]
        return found

    advice = "memfold judge --model NAME, memfold judge --local, or memfold review --all"
    _, b = pair(m)
    elapse(m, "23 hours")
    assert warning() is None
    elapse(m, "1 hour")
    assert warning() == (f"1 question has waited for 1 day, and none was answered in that time: run {advice}")
    _, other = pair(m, "User drives a car", "User drives a red car", subject="car")
    elapse(m, "2 days")
    assert warning() == (
        f"2 questions wait, the oldest for 3 days, and none was answered in that time: run {advice}"
    )
    assert m.execute("select open_judgements, dead_judgements from dedup_stats").fetchone() == (2, 0)
    resolve(m, other.judgement_id, "distinct")
    assert warning() is None, "a person has answered one"
    elapse(m, "2 days")
    # somebody judges: it is busy, not absent
    c, d = ingest(m, "User likes Vim"), ingest(m, "User loves Vim")
    resolve(m, ask(m, c, d), "distinct", model="a")
    assert warning() is None
    m.execute("update judgements set resolved_at = resolved_at - interval '6 days' where status = 'done'")
    assert warning() is not None
    resolve(m, b.judgement_id, "distinct", model="a")
    assert warning() is None
    # judgements for a person do not count
    ask(m, c, ingest(m, "User hates Vim"), "review")
    elapse(m, "2 days")
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
                assert patiently(resolve, judge, b.judgement_id, verdict).status == "done"
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
        "select bucket_id, sum(k.observations), sum(k.independent) from memories join memory_totals k"
        " using (tenant_id, memory_id) where root_id is null group by bucket_id order by 1"
    ).fetchall()
    # the two first calls came without turns
    assert found == [(f"b{i}", per_bucket, per_bucket) for i in range(len(pairs))]
    assert m.execute("select verdict from judgements order by bucket_id").fetchall() == [
        (v,) for v in verdicts
    ]
    check(m)
