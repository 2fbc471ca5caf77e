"""The worker, against real servers, real processes and endpoints that fail: no judgement lost, none paid twice."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow

from memfold.client.errors import ConnectionLostError, MemfoldError
from memfold.client.judging import Answer, JudgeError, OpenAIJudge, Question, Side, Usage, limits
from memfold.client.judging.dispatching import Claimed
from memfold.client.judging.protocol import Call
from memfold.client.judging.worker import Summary, Worker
from memfold.tools.cli import main
from tests.support.chat_server import ChatServer, completion, control, stats_of
from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB, one
from tests.support.rounds import rounds
from tests.support.servers import ROOT, Cluster
from tests.support.waiting import until
from tests.support.workers import Toy, closing, done, eventually, states, work

# Python: the tests of the SQL functions cover each server.
pytestmark = pytest.mark.one_server

JUDGEMENTS = rounds("MEMFOLD_JUDGEMENTS", 100, 2000)
"""Judgements of the throughput test; from 2,000 on, the worker must answer 45 per second."""


# what there is to judge --------------------------------------------------------------------------------------


def pairs(dsn: str, count: int, tenant: str = "acme", start: int = 0) -> None:
    """This many ambiguous pairs, each in a separate scope."""
    side = math.sqrt(1 - 0.88**2)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select memfold.register_embedding_model('m', 4, 0.92, 0.85)")
        with connection.pipeline():
            for number in range(start, start + count):
                for text, embedding in (("holds", [1, 0, 0, 0]), ("holds there", [0.88, side, 0, 0])):
                    connection.execute(
                        "select memfold.ingest_memory(%s, %s, subject => %s, embedding => %s::text::vector,"
                        " embedding_model => 'm')",
                        [f"Fact {number} {text}", tenant, f"s{number}", json.dumps(embedding)],
                    )


def answered_once(db: DB, count: int) -> None:
    """Every judgement is answered, by one row of the ledger each, and no invariant is broken."""
    assert states(db) == {"done": count}
    rows = db.execute(
        "select judgement_id, count(*) from memfold.memory_events where tier = 3 and method = 'judge' group by 1"
    ).fetchall()
    assert [number for _, number in rows] == [1] * count
    check(db)


HURRY = "update memfold.judgements set next_attempt_at = now() where status = 'open'"
"""Not in the worker's own thread: it would wait for a claim that waits for it."""


# judges ------------------------------------------------------------------------------------------------------


def once(worker: Worker) -> Summary:
    return asyncio.run(closing(worker.run(until_idle=True), worker))


@pytest.fixture
def endpoint() -> Iterator[Callable[..., str]]:
    """Starts endpoints in separate processes."""
    started: list[subprocess.Popen[str]] = []

    def start(latency: float) -> str:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.chat_server", "--latency", str(latency)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        return process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


@contextmanager
def judging(dsn: str, url: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`memfold judge` as a process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "memfold", "judge", "--dsn", dsn, "--model", "stand-in", "--base-url", url, *options],
        cwd=ROOT / "python_client", text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "OPENAI_API_KEY": "none"},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


# speed -------------------------------------------------------------------------------------------------------


class Timed(Worker):
    """Records when it claimed judgements, and when their answers were applied."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.claims: list[tuple[float, int]] = []
        self.applied: list[float] = []

        self._database.transact = self._timed(self._database.transact)  # type: ignore[method-assign]

    def _timed(self, transact: Any) -> Any:
        async def call(pool: Any, sent: Call) -> list[DictRow]:
            began = time.monotonic()
            rows: list[DictRow] = await transact(pool, sent)
            if "claim_judgements" in sent.statement and rows:
                self.claims.append((began, len(rows)))
            elif "resolve_judgement" in sent.statement:
                self.applied.append(time.monotonic())
            return rows

        return call


def test_three_pairs_take_as_long_as_one(
    dsn: str, db: DB, endpoint: Callable[..., str], record_property: Callable[[str, object], None]
) -> None:
    latency = 1.0
    url = endpoint(latency)
    worker = Timed(dsn, OpenAIJudge("stand-in", base_url=url), poll=0.05)
    ratios: list[float] = []

    async def rounds() -> None:
        # The first call of a process loads what it needs; it is not part of a call's latency.
        await asyncio.to_thread(pairs, dsn, 1)
        await eventually(lambda: done(db) == 1)
        for turn in range(2):
            db.execute("update memfold.judgements set next_attempt_at = 'infinity' where status = 'open'")
            worker.claims.clear()
            worker.applied.clear()
            with psycopg.connect(dsn) as connection:  # one transaction: they are seen together
                model(connection)
                for number in range(3):
                    scope = {"subject": f"{turn} {number}"}
                    ingest(connection, f"Fact {turn} {number} holds", **vector(1.0), **scope)
                    ingest(connection, f"Fact {turn} {number} holds there", **vector(0.88), **scope)
            await eventually(lambda: len(worker.applied) == 3)
            assert [count for _, count in worker.claims] == [3]
            ratios.append((worker.applied[-1] - worker.claims[0][0]) / latency)

    work(worker, rounds())
    # The duration is only recorded, because a busy machine takes its own time: concurrent calls make it short.
    record_property("ratio", min(ratios))
    assert stats_of(url)["max_in_flight"] == 3
    answered_once(db, 7)


def test_full_slots(dsn: str, db: DB, endpoint: Callable[..., str]) -> None:
    """All 10 slots are in use at once, and nothing is asked twice."""
    url = endpoint(0.2)
    pairs(dsn, JUDGEMENTS)
    with judging(dsn, url, "--once", "--quiet") as process:
        _, said = process.communicate(timeout=JUDGEMENTS)
        assert process.returncode == 0, said
    answered_once(db, JUDGEMENTS)
    stats = stats_of(url)
    assert stats["received"] == JUDGEMENTS
    assert stats["max_in_flight"] == 10


# nothing is lost ---------------------------------------------------------------------------------------------


def test_killed_twice(dsn: str, db: DB, endpoint: Callable[..., str]) -> None:
    count, slots = 40, 5
    url = endpoint(0.2)
    pairs(dsn, count)
    db.execute(
        """
        create sequence public.claims;
        create function public.count_claim() returns trigger language plpgsql security definer as $$
        begin
            perform nextval('public.claims');
            return null;
        end $$;
        create trigger count_claim after update on memfold.judgements
        for each row when (new.attempts > old.attempts) execute function public.count_claim();
        """
    )
    options = ["--slots", str(slots), "--timeout", "1", "--lease", "2.5", "--poll", "0.2", "--quiet"]
    in_flight = 0
    for share in (8, 20):
        with judging(dsn, url, *options) as process:
            until(lambda share=share: done(db) >= share)
            process.send_signal(signal.SIGSTOP)
            asked, written = stats_of(url)["received"], done(db)
            assert written < count
            process.kill()
        # Asked and not yet written, by this worker: what was in flight before was asked again or will be.
        in_flight += asked - written - in_flight
        assert in_flight <= 2 * 2 * slots
    with judging(dsn, url, *options) as process:
        until(lambda: done(db) == count)
        process.terminate()
        assert process.wait(20) == 0
    answered_once(db, count)
    asked_by_judgement = stats_of(url)["judgements"]
    assert len(asked_by_judgement) == count
    # Nothing is asked that was not claimed. How many claims run out depends on the machine's speed; so do timeouts, each of
    # which takes an attempt back, so that attempts are not claims.
    claimed = db.execute("select last_value from public.claims").fetchone()
    db.execute("drop trigger count_claim on memfold.judgements")
    assert claimed is not None
    assert count <= sum(asked_by_judgement.values()) <= claimed[0]
    assert states(db)["dead"] == 0


def test_the_endpoint_is_down_for_a_while(
    dsn: str,
    db: DB,
    endpoint: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    count, slots = 30, 4
    url = endpoint(0.05)
    monkeypatch.setattr(limits, "FIRST_PAUSE", 0.4)
    pairs(dsn, count)
    worker = Worker(dsn, OpenAIJudge("stand-in", base_url=url), slots=slots, poll=0.1)

    async def outage() -> None:
        await eventually(lambda: done(db) >= 8)
        await asyncio.to_thread(control, url, mode="refuse", **{"for": 1.5})

    with caplog.at_level(logging.INFO, "memfold.worker"):
        summary = work(worker, outage(), lambda: done(db) == count)
    answered_once(db, count)
    assert summary.judged == count
    assert summary.failed == summary.dead == 0
    # No churn: only the running calls, and an occasional probe.
    assert slots <= summary.given_back <= 5 * slots
    assert summary.calls <= count + 2 * slots + 4
    assert db.execute("select distinct attempts from memfold.judgements").fetchall() == [(1,)]
    said = [record.getMessage() for record in caplog.records]
    assert len([line for line in said if "endpoint is back" in line]) == 1
    assert any("endpoint is down: pause=" in line for line in said)


def test_the_endpoint_asks_for_a_pause(dsn: str, db: DB) -> None:
    pairs(dsn, 4)
    with ChatServer(retry_after="1.5") as server:
        server.script("429")  # the first of all calls
        worker = Worker(dsn, OpenAIJudge("stand-in", base_url=server.base_url), slots=1, poll=0.1)
        summary = work(worker, lambda: done(db) == 4)
        times = [asked.at for asked in server.asked]
    assert times[1] - times[0] >= 1.4
    assert len(times) == 5
    assert summary.failed == 0
    assert db.execute("select distinct attempts from memfold.judgements").fetchall() == [(1,)]


def test_a_run_with_an_end_gives_up_on_an_endpoint_that_stays_down(
    dsn: str, db: DB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(limits, "LONGEST_PAUSE", 0.1)
    pairs(dsn, 5)
    arguments = ["judge", "--dsn", dsn, "--model", "m", "--base-url", "http://127.0.0.1:1/v1", "--once"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "endpoint is down" in result.stderr
    assert "Traceback" not in result.stderr
    assert db.execute("select distinct status, attempts from memfold.judgements").fetchall() == [("open", 0)]


@pytest.mark.parametrize(("count", "pauses"), [(2, False), (12, True)])
def test_useless_answers_are_not_an_endpoint_that_is_down(
    dsn: str, db: DB, monkeypatch: pytest.MonkeyPatch, count: int, pauses: bool
) -> None:
    monkeypatch.setattr(limits, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(limits, "LONGEST_PAUSE", 0.1)
    pairs(dsn, count)
    with ChatServer(answer=lambda _: completion("I would say they are the same.")) as server:
        arguments = ["--model", "m", "--base-url", server.base_url, "--once", "--input-price", "1"]
        result = CliRunner().invoke(main, ["judge", "--dsn", dsn, *arguments])
        received = server.received
    assert result.exit_code == 3, result.stderr
    assert "endpoint is down" not in result.stderr
    assert "every judgement failed; last failure: judge endpoint: the answer is not a JSON" in result.stderr
    assert ("the judge's answers are unusable: pause=" in result.stderr) == pauses
    paid = db.execute("select sum(calls), sum(input_tokens), sum(cost) from memfold.judge_costs").fetchone()
    assert paid == (received, 400 * received, pytest.approx(0.0004 * received))
    assert received >= count
    assert states(db) == {"open": count}


def test_one_useful_answer_ends_a_series_of_useless_ones(
    dsn: str, db: DB, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(limits, "LONGEST_PAUSE", 0.1)
    pairs(dsn, 12)
    with ChatServer() as server, caplog.at_level(logging.INFO, "memfold.worker"):
        server.script(*[(200, {"content-type": "application/json"}, json.dumps(completion("yes")))] * 12)
        worker = Worker(dsn, OpenAIJudge("m", base_url=server.base_url), poll=0.1)

        async def hurry() -> None:
            while done(db) < 12:
                await asyncio.to_thread(db.execute, HURRY)
                await asyncio.sleep(0.02)

        summary = work(worker, asyncio.wait_for(hurry(), 30))
    said = [record.getMessage() for record in caplog.records]
    assert (summary.judged, summary.failed, summary.unfinished) == (12, 12, None)
    assert any(line.startswith("the judge's answers are unusable: pause=") for line in said)
    assert "the judge's answers are usable again" in said
    assert not any("endpoint is" in line for line in said)


def test_the_database_restarts(own_cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """During calls: answers are kept until they can be written, and no pair is asked twice."""
    cluster = own_cluster
    dsn = cluster.dsn() + " options='-csearch_path=public,memfold'"
    count = 18
    pairs(dsn, count)
    toy = Toy(latency=0.4)
    worker = Worker(dsn, toy, slots=4, poll=0.2, timeout=30)

    def pg_ctl(action: str) -> None:
        data = cluster.base / "data"
        cluster.run(
            cluster.bindir / "pg_ctl", "-D", data, "-l", cluster.base / "log", "-m", "fast", "-w", action
        )

    async def restart() -> None:
        await eventually(lambda: len(toy.asked) >= 10)
        await asyncio.to_thread(pg_ctl, "stop")
        await asyncio.sleep(1)  # the answers of the calls under way arrive now
        await asyncio.to_thread(pg_ctl, "start")

    with caplog.at_level(logging.INFO, "memfold.worker"):
        with psycopg.connect(dsn, autocommit=True) as before:
            assert done(before) == 0

        async def all_done() -> None:
            with psycopg.connect(dsn, autocommit=True) as after:
                await eventually(lambda: done(after) == count)

        summary = work(worker, restart(), all_done())
    with psycopg.connect(dsn, autocommit=True) as after:
        answered_once(after, count)
    assert len(toy.asked) == summary.calls == count
    assert summary.unwritten == summary.failed == 0
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "lost the database" in said
    assert "the database is back" in said


def test_a_collision_is_tried_again(dsn: str, db: DB) -> None:
    pairs(dsn, 3)
    db.execute(
        """
        create sequence public.collisions;
        create function public.collide() returns trigger language plpgsql security definer as $$
        begin
            if new.tier = 3 and nextval('public.collisions') <= 4 then
                raise 'as the test wants it'
                    using errcode = case currval('public.collisions') % 2 when 0 then '40001' else '40P01' end;
            end if;
            return new;
        end $$;
        create trigger collide before insert on memfold.memory_events
        for each row execute function public.collide();
        """
    )
    toy = Toy()
    summary = once(Worker(dsn, toy))
    db.execute("drop trigger collide on memfold.memory_events")
    assert len(toy.asked) == summary.judged == 3
    assert summary.failed == 0
    answered_once(db, 3)


def test_terminated(dsn: str, db: DB, endpoint: Callable[..., str]) -> None:
    """SIGTERM: running calls are answered and applied, judgements claimed ahead are given back unchanged."""
    count, slots = 12, 3
    url = endpoint(0.4)
    pairs(dsn, count)
    with judging(dsn, url, "--slots", str(slots)) as process:
        # In the second round judgements are claimed ahead.
        until(lambda: stats_of(url)["received"] > slots and states(db)["leased"] > slots)
        process.terminate()
        _, said = process.communicate(timeout=20)
        assert process.returncode == 0, said
    asked = stats_of(url)["received"]
    assert slots < asked <= 2 * slots
    assert states(db) == {"done": asked, "open": count - asked}
    assert f"judged {asked} ({asked} refinement)" in said
    assert "calls_under_way=" in said
    waiting = db.execute(
        "select distinct attempts, next_attempt_at <= now(), worker from memfold.judgements where status = 'open'"
    ).fetchall()
    assert waiting == [(0, True, None)]


def test_stopped_at_once(dsn: str, db: DB) -> None:
    pairs(dsn, 3)
    toy = Toy(latency=60)
    worker = Worker(dsn, toy)

    async def stop_twice() -> None:
        await eventually(lambda: len(toy.asked) == 3)
        worker.stop()
        await asyncio.sleep(0.2)
        worker.stop(now=True)

    summary = work(worker, stop_twice())
    assert summary.judged == 0, "it waited for no call"
    assert summary.given_back == 3
    assert db.execute("select distinct status, attempts from memfold.judgements").fetchall() == [("open", 0)]


# faulty judges -----------------------------------------------------------------------------------------------


def test_a_pair_that_always_fails_dies_and_is_retried(dsn: str, db: DB) -> None:
    pairs(dsn, 1)
    with ChatServer(answer=lambda _: {"verdict": "maybe"}) as server:
        worker = Worker(dsn, OpenAIJudge("stand-in", base_url=server.base_url, input_price=1.0), poll=0.02)

        async def hurry() -> None:
            while not states(db)["dead"]:
                await asyncio.to_thread(db.execute, HURRY)
                await asyncio.sleep(0.02)

        summary = work(worker, asyncio.wait_for(hurry(), 30))
        assert (summary.failed, summary.dead, summary.judged) == (8, 1, 0)
        assert server.received == 8
        row = db.execute("select attempts, input_tokens, last_error from memfold.judgements").fetchone()
        assert row is not None
        assert row[:2] == (8, 3200)
        assert row[2]
        (stats,) = db.execute("select dead_judgements, warning, active from memfold.dedup_stats").fetchall()
        assert (stats[0], stats[2]) == (1, 2)
        assert "retry_judgements" in stats[1]
        assert once(Worker(dsn, Toy())).judged == 0, "a dead judgement is not asked again"
    with ChatServer() as server:
        arguments = ["--model", "stand-in", "--base-url", server.base_url, "--once", "--retry"]
        result = CliRunner().invoke(main, ["judge", "--dsn", dsn, *arguments])
    assert result.exit_code == 0, result.stderr
    assert "reopened 1 dead judgements" in result.stderr
    assert "judged 1 (1 refinement)" in result.stderr
    answered_once(db, 1)


def test_whatever_a_judge_does_the_worker_goes_on(dsn: str, db: DB) -> None:
    pairs(dsn, 10)

    async def misbehave(question: Question) -> Answer | None:
        match question.memory.subject:
            case "s0":
                raise ZeroDivisionError("a bug")
            case "s1":
                await asyncio.sleep(60)
            case "s2":
                return "duplicate"  # type: ignore[return-value]
            case "s3":
                raise asyncio.CancelledError
            case "s4":
                return Answer("maybe", 0.9, usage=Usage("toy", 10, 1, 0.5))  # type: ignore[arg-type]
            case "s5":
                return Answer("duplicate", 0.9, "a \0 and a \ud800", usage=Usage("toy", 10, 1))
            case "s6":
                return Answer("duplicate", 0.9, usage=Usage(None, -5, 1, math.nan))
            case "s7":
                return Answer("duplicate", 0.9, usage=Usage("toy", 10**13, 2**52, 1e13))
            case "s8":
                raise JudgeError("nonsense", transient=False, usage=Usage("toy", 10**13, 2**52, math.inf))
        return None

    worker = Worker(dsn, Toy(misbehave), timeout=0.5)
    summary = work(worker, lambda: worker.summary.given_back)
    assert summary.verdicts == {"duplicate": 4}
    assert summary.failed == 5
    assert (summary.input_tokens, summary.output_tokens, summary.cost) == (30, 4, 0.5)
    assert summary.given_back == 1
    rows = db.execute(
        "select m.subject, j.status, j.attempts, j.last_error, j.cost, j.reason, j.model from memfold.judgements as j"
        " join memfold.memories as m using (tenant_id, memory_id)"
    ).fetchall()
    found = {row[0]: row[1:] for row in rows}
    assert found["s0"][:3] == ("open", 1, "ZeroDivisionError: a bug")
    assert found["s1"][:3] == ("open", 0, "no answer within 0.5 s")
    assert found["s2"][:2] == found["s3"][:2] == ("open", 1)
    assert found["s4"][1] == 1
    assert found["s4"][2].startswith("MF028")
    assert found["s4"][3] == 0.5
    assert (found["s5"][0], found["s5"][4]) == ("done", "a � and a ?")
    assert (found["s6"][0], found["s6"][3], found["s6"][5]) == ("done", 0, "Toy")
    assert (found["s7"][0], found["s7"][3]) == ("done", 0)
    assert found["s8"][:4] == ("open", 1, "nonsense", 0)
    check(db)


def test_a_pair_that_keeps_failing_while_others_get_through_counts(
    dsn: str, db: DB, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs(dsn, 1, "poison")
    pairs(dsn, 60)

    async def act(question: Question) -> Answer | None:
        if question.tenant_id == "poison":
            await asyncio.sleep(0.06)
            raise JudgeError("status 500", transient=True)
        return None

    worker = Worker(dsn, Toy(act, latency=0.02), slots=2, poll=0.02)

    async def hurry() -> None:
        while done(db) < 60:
            await asyncio.to_thread(db.execute, HURRY)
            await asyncio.sleep(0.02)

    work(worker, asyncio.wait_for(hurry(), 30))
    row = db.execute("select attempts from memfold.judgements where tenant_id = 'poison'").fetchone()
    assert row is not None
    assert row[0] >= 1


def test_somebody_else_answers_in_the_meantime(dsn: str, db: DB, caplog: pytest.LogCaptureFixture) -> None:
    pairs(dsn, 2)

    async def overtake(question: Question) -> None:
        if question.memory.subject == "s0":
            db.execute(
                "select memfold.resolve_judgement(%s, 'distinct', tenant_id => 'acme')",
                [question.judgement_id],
            )

    with caplog.at_level(logging.INFO, "memfold.worker"):
        summary = once(Worker(dsn, Toy(overtake, cost=0.25)))  # type: ignore[arg-type]
    assert (summary.judged, summary.answered_elsewhere, summary.failed) == (1, 1, 0)
    assert summary.cost == 0.5
    methods = db.execute("select method from memfold.memory_events where tier = 3 order by 1").fetchall()
    assert methods == [("judge",), ("person",)]
    assert any(line.startswith("late judgement=") for line in caplog.messages)
    check(db)


# budgets, tenants, waking ------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [{"calls_per_hour": 5}, {"calls_per_hour": 9, "cost_per_hour": 0.05}])
def test_budget(
    dsn: str,
    db: DB,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    budget: dict[str, Any],
) -> None:
    """Five calls in any hour, whether they are counted or paid for."""
    hour = 1.0
    monkeypatch.setattr(limits, "HOUR", hour)
    pairs(dsn, 12)
    toy = Toy(latency=0.02, cost=0.01)
    with caplog.at_level(logging.WARNING, "memfold.worker"):
        summary = work(Worker(dsn, toy, slots=4, poll=0.05, **budget), lambda: done(db) == 12)
    assert summary.calls == 12
    assert summary.cost == pytest.approx(0.12)
    in_any_hour = [later - sooner for sooner, later in zip(toy.at, toy.at[5:], strict=False)]
    assert min(in_any_hour) >= hour - 0.05, in_any_hour
    said = [line for line in caplog.messages if "budget" in line]
    # on a busy machine five calls may themselves take an hour of this test
    assert len(said) in (1, 2, 3), "one message per hour with a spent budget"
    assert said[0].startswith("the budget of this hour is spent: the next call in ")
    assert db.execute("select sum(attempts) from memfold.judgements").fetchone() == (12,)


def test_a_run_with_an_end_does_not_wait_for_its_budget(dsn: str, db: DB) -> None:
    pairs(dsn, 5)
    summary = once(Worker(dsn, Toy(), calls_per_hour=3))
    assert (summary.judged, summary.unfinished) == (3, "budget spent")
    assert states(db) == {"done": 3, "open": 2}


def test_no_call_is_begun_that_could_outlive_its_lease() -> None:
    """The next worker has enough time for it; the attempt does not count."""
    now = time.monotonic()
    short, long = (
        Question(uuid4(), "acme", "default", "write", None, (), 1, Side(uuid4(), text, "fact"), Side(uuid4(), text, "fact"))
        for text in ("short", "long")
    )  # fmt: skip
    given_back: list[tuple[Any, ...]] = []
    asked: list[Question] = []

    class Silent(Worker):
        async def _fail(self, judgement_id: UUID, tenant_id: str, reason: str, **said: Any) -> None:
            given_back.append((judgement_id, reason, said))

        async def _handle(self, claimed: Any) -> None:
            asked.append(claimed.question)

    async def run() -> None:
        worker = Silent("", Toy(), timeout=1000, lease=5000)
        # half of the timeout is left of the first lease, more than the timeout of the second
        worker._ready.extend([Claimed(short, now + 500), Claimed(long, now + 4000)])
        worker._start_calls()
        await asyncio.gather(*worker._tasks)

    asyncio.run(run())
    assert [question.judgement_id for question in asked] == [long.judgement_id]
    [(judgement_id, reason, said)] = given_back
    assert (judgement_id, reason) == (short.judgement_id, "waited too long for a free slot")
    assert said == {"counted": False, "retry_after": 0.0}


@pytest.mark.parametrize(("typical", "claimed"), [(None, 5), (0, 25), (99.9, 25), (100, 5), (1000, 5)])
def test_a_slow_judge_is_given_nothing_ahead(typical: float | None, claimed: int) -> None:
    """Two calls of the usual length must fit into what a lease has beyond the time limit: here, 200 s."""
    worker = Worker("", Toy(), slots=5, ahead=20, timeout=100, lease=300)
    worker._typical = typical
    assert worker._free_capacity(time.monotonic()) == claimed


def test_a_flood_of_one_tenant_starves_no_other(dsn: str, db: DB) -> None:
    pairs(dsn, 50, "flood")
    pairs(dsn, 3, "small")
    toy = Toy(latency=0.01)
    assert once(Worker(dsn, toy, slots=4)).judged == 53
    places = [place for place, question in enumerate(toy.asked) if question.tenant_id == "small"]
    assert max(places) < 24, places
    check(db)


def test_a_worker_of_one_tenant(dsn: str, db: DB, app: Callable[..., DB]) -> None:
    """An application may judge its own tenant's pairs, and no others."""
    pairs(dsn, 2, "acme")
    pairs(dsn, 2, "globex")
    as_app = make_conninfo(dsn, user=app().info.user)
    with pytest.raises(MemfoldError) as refused:
        once(Worker(as_app, Toy()))
    assert refused.value.sqlstate in ("MF001", "MF002")
    toy = Toy()
    assert once(Worker(as_app, toy, tenant_id="acme")).judged == 2
    assert {question.tenant_id for question in toy.asked} == {"acme"}
    assert states(db) == {"done": 2, "open": 2}
    check(db)


@pytest.mark.core
def test_the_judge_role_is_sufficient(dsn: str, db: DB) -> None:
    role = f"judge_{db.info.dbname}"
    db.execute(f"drop role if exists {role}".encode())
    db.execute(f"create role {role} login in role memfold_judge".encode())
    as_judge = make_conninfo(dsn, user=role)
    try:
        pairs(dsn, 3, "acme")
        pairs(dsn, 3, "globex")
        assert once(Worker(as_judge, Toy())).judged == 6
        answered_once(db, 6)
        with psycopg.connect(as_judge, autocommit=True) as connection:
            for table in ("memories", "judgements", "memory_events", "dedup_stats"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(f"select from memfold.{table}".encode())
    finally:
        db.execute(f"drop role {role}".encode())


def test_a_worker_that_may_not_answer_stops_at_the_first_answer(dsn: str, db: DB) -> None:
    """Every further answer would be refused too, and each costs a call."""
    role = f"judge_{db.info.dbname}"
    db.execute(f"drop role if exists {role}".encode())
    db.execute(f"create role {role} login in role memfold_judge".encode())
    try:
        pairs(dsn, 3, "acme")
        (function,) = one(
            db,
            "select array_agg(oid::regprocedure::text) from pg_proc"
            " where proname = 'resolve_judgement' and pronamespace = 'memfold'::regnamespace",
        )
        db.execute(f"revoke execute on function {function} from public, memfold_app, memfold_judge".encode())
        with pytest.raises(MemfoldError) as refused:
            once(Worker(make_conninfo(dsn, user=role), Toy()))
        assert refused.value.sqlstate == "42501"
        assert "done" not in states(db)
    finally:
        db.execute(f"drop role {role}".encode())


def test_a_notification_wakes_the_worker_and_polling_finds_the_rest(dsn: str, db: DB) -> None:
    db.execute("select memfold.set_policy('acme', 'default', notify => true)")
    toy = Toy()

    async def woken() -> None:
        await eventually(lambda: db.execute(LISTENING).fetchone() == (1,))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(pairs, dsn, 1)
        await eventually(lambda: done(db) == 1)

    # its next poll would come after the test's time limit
    assert work(Worker(dsn, toy, poll=3600), woken()).judged == 1

    async def found() -> None:
        await asyncio.sleep(0.3)
        await asyncio.to_thread(pairs, dsn, 1, "acme", 1)
        await eventually(lambda: done(db) == 2, 5)

    assert work(Worker(dsn, toy, poll=0.2, listen=False), found()).judged == 1


LISTENING = b"""
select count(*) from pg_stat_activity
where datname = current_database() and application_name = 'memfold judge' and query like 'listen%' and state = 'idle'
"""


def test_the_worker_relies_on_no_session_state(dsn: str, db: DB) -> None:
    """As behind a transaction pooler: other defaults, no search_path, no prepared statement."""
    pairs(dsn, 4)
    db.execute(f"alter database {db.info.dbname} set search_path = pg_catalog".encode())
    db.execute(f"alter database {db.info.dbname} set default_transaction_isolation = 'serializable'".encode())
    bare = make_conninfo(**(conninfo_to_dict(dsn) | {"options": None}))
    assert once(Worker(bare, Toy(), listen=False)).judged == 4
    answered_once(db, 4)


# the command -------------------------------------------------------------------------------------------------


def test_no_database() -> None:
    with pytest.raises(ConnectionLostError):
        once(Worker("postgresql://nobody@127.0.0.1:1/nothing", Toy()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "one of --model, --judge and --local"),
        (["--model", "m", "--judge", "a:b"], "one of --model, --judge and --local"),
        (["--local", "--judge", "a:b"], "one of --model, --judge and --local"),
        (["--local", "--since", "2026-11-28"], "need --review-merges"),
        (["--local", "--dry-run"], "need --review-merges"),
        (["--local", "--review-merges", "--retry"], "runs once"),
        (["--model", "m", "--cost-per-hour", "1"], "--input-price"),
        (
            ["--model", "m", "--base-url", "http://x", "--timeout", "5", "--lease", "5"],
            "longer than the timeout",
        ),
        (["--judge", "tests.client.test_worker"], "MODULE:NAME"),
        (["--judge", "tests.client.test_worker:nothing"], "nothing"),
        (["--judge", "tests.client.test_worker:states"], "states"),
    ],
)
def test_invalid_options_are_refused(dsn: str, options: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["judge", "--dsn", dsn, *options])
    assert result.exit_code == 2, result.output
    assert message in result.stderr


def test_a_plugged_in_judge(dsn: str, db: DB, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs(dsn, 2)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("MEMFOLD_DSN", dsn)
    result = CliRunner().invoke(main, ["judge", "--judge", "tests.client.test_worker:Toy", "--once"])
    assert result.exit_code == 0, result.output
    assert "judged 2 (2 duplicate)" in result.stderr
    lines = [line for line in result.stderr.splitlines() if " judged judgement=" in line]
    assert len(lines) == 2
    assert "tenant=acme status=done verdict=duplicate confidence=0.90 action=merged" in lines[0]
    answered_once(db, 2)


def test_one_process_judges_and_maintains(
    dsn: str, db: DB, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pairs(dsn, 1)
    db.execute("insert into memfold.memories (tenant_id, content) values ('acme', 'Bob has a dog.')")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("MEMFOLD_DSN", dsn)
    arguments = ["judge", "--judge", "tests.client.test_worker:Toy", "--once", "--maintain", "600"]
    with caplog.at_level("INFO", logger="memfold.worker"):
        result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "judged 1 (1 duplicate)" in result.stderr
    assert "maintenance of acme: plain 1" in caplog.text
    assert db.execute("select count(*) from memfold.memories where not is_ingested").fetchone() == (0,)


def test_failing_maintenance_is_logged_and_nothing_ends(
    dsn: str, db: DB, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pairs(dsn, 1)
    db.execute(
        "create or replace function memfold_internal._fall_back_dead(p_tenant_id text)"
        " returns bigint language plpgsql as $$ begin raise 'broken'; end $$"
    )
    monkeypatch.chdir(ROOT)
    arguments = [
        "judge",
        "--dsn",
        dsn,
        "--judge",
        "tests.client.test_worker:Toy",
        "--once",
        "--maintain",
        "600",
    ]
    with caplog.at_level("INFO", logger="memfold.worker"):
        result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "maintenance of acme: syntheses failed: P0001: broken" in caplog.text
    answered_once(db, 1)
