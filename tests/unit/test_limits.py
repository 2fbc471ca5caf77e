"""When the worker may call, and how often anything is tried again: a clock that stands still, exact counts, no database."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import UUID

import psycopg
import pytest
from psycopg import errors as pg

from memfold.adopt import session as adopting
from memfold.client import queries
from memfold.client.calls import batch, recall
from memfold.client.calls.core import Core
from memfold.client.calls.steps import CommitLostError, Embed, Pause, Transact, pause_before
from memfold.client.embedding import Embedder
from memfold.client.errors import ConnectionLostError, MemfoldError, OutcomeUnknownError, RetryableError
from memfold.client.judging import Answer, JudgeError, Question, Usage, database, limits
from memfold.client.judging.limits import FAILURES_IN_A_ROW, FIRST_PAUSE, HOUR, LONGEST_PAUSE, Breaker, Budget
from memfold.client.judging.protocol import Call, usage_arguments
from memfold.client.judging.questions import clamp_usage
from memfold.client.judging.worker import Worker
from memfold.client.types import IngestResult
from memfold.tools.admin import reembed
from memfold.tools.calibrate import Pair, judged
from memfold.tools.review import Review
from tests.support.questions import NEWER, OLDER, question


@pytest.fixture
def _no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: (low + high) / 2)


# rows a second -----------------------------------------------------------------------------------------------


def test_a_cap_on_rows_saves_up_a_second_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(adopting, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    session = object.__new__(adopting.Session)
    vars(session).update(
        options=SimpleNamespace(rate=100),
        stopping=False,
        pause_or_stop=lambda: None,
        _credit=0.0,
        _spent_at=0.0,
    )
    now = 3600.0
    for rows, ends in ((50, 3600.0), (250, 3602.0), (100, 3603.0)):
        session.spend(rows)
        assert now == pytest.approx(ends)


# the breaker -------------------------------------------------------------------------------------------------


def opened(at: float = 100.0) -> Breaker:
    breaker = Breaker()
    for n in range(FAILURES_IN_A_ROW):
        tripped = breaker.failed(at, at, None)
        assert tripped is (n == FAILURES_IN_A_ROW - 1)
    return breaker


@pytest.mark.usefixtures("_no_jitter")
def test_the_third_failure_in_a_row_opens_the_breaker() -> None:
    assert FAILURES_IN_A_ROW == 3
    breaker = Breaker()
    assert (breaker.failed(1, 1, None), breaker.failed(2, 2, None)) == (False, False)
    assert (breaker.open, breaker.pause(2)) == (False, 0.0)
    assert breaker.failed(3, 3, None)
    assert (breaker.open, breaker.until, breaker.probes_failed) == (True, 3 + FIRST_PAUSE, 0)
    assert (breaker.pause(3), breaker.pause(3.75), breaker.pause(4), breaker.pause(5)) == (
        1.0,
        0.25,
        0.0,
        0.0,
    )


def test_an_answer_between_failures_starts_the_count_again() -> None:
    breaker = Breaker()
    breaker.failed(1, 1, None)
    breaker.failed(2, 2, None)
    assert breaker.answered(3, 3) is False
    assert breaker.last_answer == 3
    assert (breaker.failed(4, 4, None), breaker.failed(5, 5, None), breaker.open) == (False, False, False)
    assert breaker.failed(6, 6, None)


@pytest.mark.usefixtures("_no_jitter")
def test_pauses_double_up_to_a_minute() -> None:
    breaker = opened(100.0)
    pauses, now = [breaker.pause(100.0)], 100.0
    for n in range(1, 9):
        now += pauses[-1]
        breaker.probing = True
        assert breaker.failed(now, now, None)
        assert (breaker.probing, breaker.probes_failed) == (False, n)
        pauses.append(breaker.pause(now))
    assert pauses == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]


def test_jitter_is_a_tenth() -> None:
    random.seed(1)
    pauses = [opened().pause(100.0) for _ in range(200)]
    assert 0.9 <= min(pauses) < 0.92
    assert 1.08 < max(pauses) <= 1.1


@pytest.mark.usefixtures("_no_jitter")
def test_a_probe_that_gets_through_closes_the_breaker() -> None:
    breaker = opened(100.0)
    breaker.failed(101, 101, None)
    breaker.probing = True
    assert breaker.answered(103, 103.5)
    assert (breaker.open, breaker.probing, breaker.probes_failed, breaker.pause(103.5)) == (
        False,
        False,
        0,
        0.0,
    )
    # and the same number of failures opens it again, for the first pause
    assert [breaker.failed(104, 104, None) for _ in range(3)] == [False, False, True]
    assert breaker.pause(104) == FIRST_PAUSE


@pytest.mark.usefixtures("_no_jitter")
def test_calls_from_before_the_pause_say_nothing_new() -> None:
    breaker = opened(100.0)
    # an answer to a call that the endpoint took while it was up
    assert breaker.answered(99.9, 100.5) is False
    assert (breaker.open, breaker.until) == (True, 101.0)
    # a failure of one
    assert breaker.failed(99.9, 100.5, None) is False
    assert (breaker.until, breaker.probes_failed) == (101.0, 0)
    # but what it asks for counts
    assert breaker.failed(99.9, 100.5, 30.0) is False
    assert breaker.until == 130.5
    assert breaker.failed(99.9, 100.5, 3.0) is False
    assert breaker.until == 130.5
    # a call that began in that very moment is news
    assert breaker.answered(100.0, 101.0)


@pytest.mark.usefixtures("_no_jitter")
@pytest.mark.parametrize(
    ("asked_for", "pause"),
    [(7.0, 7.0), (0.5, 1.0), (1e9, HOUR), (math.inf, HOUR), (-5.0, None), (0.0, None), (None, None)],
)
def test_a_pause_an_endpoint_asks_for_begins_at_once(asked_for: float | None, pause: float | None) -> None:
    breaker = Breaker()
    assert breaker.failed(10, 10, asked_for) is (pause is not None)
    assert breaker.pause(10) == (pause or 0.0)


# the budget --------------------------------------------------------------------------------------------------


def test_calls_of_any_hour() -> None:
    budget = Budget(3, None)
    assert budget.left(0, 0) == 3
    for at in (0.0, 10.0, 20.0):
        budget.called(at)
    assert (budget.left(0, 20), budget.left(3, 20)) == (0, 0)
    assert budget.seconds_until_free(20) == HOUR - 20
    assert budget.left(0, HOUR - 0.001) == 0
    assert budget.left(0, HOUR) == 1  # 3,600 seconds after the first
    assert budget.seconds_until_free(HOUR) == 10
    assert budget.left(0, HOUR + 19.999) == 2
    assert budget.left(0, HOUR + 20) == 3
    assert budget.seconds_until_free(HOUR + 20) == HOUR


def test_without_a_budget_nothing_is_counted() -> None:
    budget = Budget(None, None)
    for _ in range(1000):
        budget.called(0)
        budget.paid(1e9, 0)
    assert budget.left(500, 0) == math.inf
    assert not budget._calls
    assert not budget._costs


def test_the_first_call_tells_what_one_costs() -> None:
    budget = Budget(None, 1.0)
    assert (budget.left(0, 0), budget.left(1, 0)) == (1, 0)
    budget.paid(0.1, 0)
    assert (budget.left(0, 0), budget.left(4, 0), budget.left(9, 0)) == (9, 5, 0)


def test_budgets_assume_the_most_expensive_call() -> None:
    budget = Budget(None, 1.0)
    budget.paid(0.1, 0)
    budget.paid(0.3, 100)
    # 0.6 are left, for two such calls
    assert (budget.left(0, 100), budget.left(1, 100), budget.left(2, 100)) == (2, 1, 0)
    budget.paid(0.3, 200)
    budget.paid(0.3, 300)
    assert budget.left(0, 300) == 0
    assert budget.seconds_until_free(300) == HOUR - 300
    assert budget.left(0, HOUR) == 0  # only 0.1 is free again
    assert budget.left(0, HOUR + 100) == 1


def test_money_is_spent_to_the_cent() -> None:
    budget = Budget(None, 0.3)
    for at in range(3):
        assert budget.left(0, at) >= 1, at
        budget.paid(0.1, at)
    assert budget.left(0, 3) == 0


def test_a_call_more_expensive_than_the_budget_is_made_once_an_hour() -> None:
    budget = Budget(None, 1.0)
    budget.paid(5.0, 0)
    assert budget.left(0, HOUR - 1) == 0
    assert (budget.left(0, HOUR), budget.left(1, HOUR)) == (1, 0)


def test_an_absurd_price_counts_for_an_hour_and_no_longer() -> None:
    budget = Budget(None, 1.0)
    budget.paid(1e11, 0)
    assert budget.left(0, HOUR - 1) == 0
    assert budget.left(0, HOUR) == 1
    budget.paid(0.01, HOUR)
    assert budget.left(0, HOUR) == 99


def test_free_calls_cost_nothing() -> None:
    budget = Budget(None, 1.0)
    budget.paid(0.0, 0)
    assert budget.left(7, 0) == math.inf


def test_the_tighter_of_two_budgets_counts() -> None:
    budget = Budget(5, 1.0)
    budget.called(0)
    budget.paid(0.5, 0)
    assert budget.left(0, 0) == 1
    budget = Budget(2, 100.0)
    budget.called(0)
    budget.paid(0.5, 5)
    assert budget.left(0, 5) == 1
    assert budget.seconds_until_free(10) == HOUR - 10  # the call is an hour old before its cost is


# what a call has cost ----------------------------------------------------------------------------------------

ABSURD: list[Any] = [math.nan, math.inf, -math.inf, -1, -0.5, 10**400, "many", None, True, [], 1e13, 2**53]


@pytest.mark.parametrize("absurd", ABSURD, ids=str)
def test_impossible_usage_is_dropped(absurd: Any) -> None:
    assert clamp_usage(Usage("m", absurd, 7, 0.25)) == Usage("m", 0, 7, 0.25)
    assert clamp_usage(Usage("m", 7, absurd, 0.25)) == Usage("m", 7, 0, 0.25)
    assert clamp_usage(Usage("m", 7, 8, absurd)) == Usage("m", 7, 8, 0.0)
    assert clamp_usage(absurd) == Usage()
    assert clamp_usage(Usage(absurd if not isinstance(absurd, str) else " ", 7, 8, 0.25)) == Usage(
        None, 7, 8, 0.25
    )


def test_possible_usage_is_kept() -> None:
    largest = Usage("m", 10_000_000, 10_000_000, 1e12)
    assert clamp_usage(largest) == largest
    assert clamp_usage(Usage("m", 10_000_001, 10_000_001, 1.0001e12)) == Usage("m")
    assert usage_arguments(object(), largest) == {
        "model": "m",
        "input_tokens": 10_000_000,
        "output_tokens": 10_000_000,
        "cost": 1e12,
    }
    named = type("Named", (), {"model": "n\0" + 300 * "n"})()
    assert usage_arguments(named, None)["model"] == "n\ufffd" + 197 * "n" + "…"
    assert usage_arguments(object(), Usage()) | {"model": ""} == {
        "model": "",
        "input_tokens": 0,
        "output_tokens": 0,
        "cost": 0.0,
    }
    assert usage_arguments(object(), Usage())["model"] == "object"


@pytest.mark.parametrize(
    ("given", "kept"), [(5, 5), (-5, 0), (math.inf, 3600), (math.nan, None), (None, None), ("7", None)]
)
def test_the_pause_a_judge_asks_for(given: Any, kept: float | None) -> None:
    assert JudgeError("x", transient=True, retry_after=given).retry_after == kept


# attempts of a client ----------------------------------------------------------------------------------------


def failed(error: type[psycopg.Error], *, after: Callable[..., Any], attempts: int) -> int:
    """How often a statement that always fails is sent, up to a bound."""
    steps = after()
    sent = 0
    step = next(steps)
    while sent < attempts:
        assert isinstance(step, Transact)
        sent += 1
        try:
            step = steps.throw(error("as the test wants it"))
        except MemfoldError:
            return sent
        assert isinstance(step, Pause)
        step = next(steps)
    return sent


class _Dropped(psycopg.OperationalError):
    """The connection went: no SQLSTATE."""


def sending(max_attempts: int) -> Callable[[], Any]:
    return lambda: Core("acme", None, False, max_attempts).send("select 1", {}, repeatable=True)


def batching(max_attempts: int) -> Callable[[], Any]:
    def steps() -> Any:
        core = Core("acme", None, False, max_attempts)
        batches = batch.Batches(core, None, {}, batch_size=10, wait=False, on_error="abort", progress=None)
        batches.add("Alice has a cat.")
        return batches.store(batches.take())

    return steps


SENDERS = pytest.mark.parametrize("sender", [sending, batching])


@SENDERS
@pytest.mark.parametrize("error", [pg.SerializationFailure, pg.DeadlockDetected])
@pytest.mark.parametrize("max_attempts", [1, 2, 8])
def test_a_collision_is_sent_as_often_as_allowed_and_no_more(
    sender: Any, error: type[psycopg.Error], max_attempts: int
) -> None:
    assert failed(error, after=sender(max_attempts), attempts=20) == max_attempts


@SENDERS
@pytest.mark.parametrize("max_attempts", [1, 2, 8])
@pytest.mark.parametrize(
    ("error", "single", "batch"),
    [
        (pg.UniqueViolation, 1, 1),
        (pg.LockNotAvailable, 1, 1),
        (pg.QueryCanceled, 1, 1),
        (pg.UndefinedFunction, 2, 2),
        (_Dropped, 2, 8),
        (pg.AdminShutdown, 2, 8),
    ],
)
def test_other_errors(
    sender: Any, max_attempts: int, error: type[psycopg.Error], single: int, batch: int
) -> None:
    """A lost connection and an upgrade are answered with one attempt more, even if only one is allowed."""
    sent = failed(error, after=sender(max_attempts), attempts=20)
    assert sent == (single if sender is sending else min(batch, max(max_attempts, 2)))


class _Refused(psycopg.Error):
    sqlstate = "MF018"


@pytest.mark.parametrize(("repeatable", "sent"), [(True, 2), (False, 1)])
def test_a_lost_commit_is_sent_again_only_where_that_is_safe(repeatable: bool, sent: int) -> None:
    steps = Core("acme", None, False, 8).send("select 1", {}, repeatable=repeatable)
    assert isinstance(next(steps), Transact)
    if sent == 2:
        assert isinstance(steps.throw(CommitLostError(_Dropped("gone"), [])), Pause)
        assert isinstance(next(steps), Transact)
    with pytest.raises(OutcomeUnknownError):
        steps.throw(CommitLostError(_Dropped("gone"), []))


@pytest.mark.parametrize(
    ("error", "raised"),
    [(_Refused, MemfoldError), (pg.UniqueViolation, OutcomeUnknownError), (_Dropped, OutcomeUnknownError)],
)
def test_after_a_lost_commit_only_an_answer_of_memfolds_says_that_nothing_was_written(
    error: type[psycopg.Error], raised: type[MemfoldError]
) -> None:
    steps = Core("acme", None, False, 8).send("select 1", {}, repeatable=True)
    next(steps)
    steps.throw(CommitLostError(_Dropped("gone"), []))
    next(steps)
    with pytest.raises(MemfoldError) as found:
        steps.throw(error("as the test wants it"))
    assert isinstance(found.value, OutcomeUnknownError) == (raised is OutcomeUnknownError)
    assert found.value.sqlstate == error.sqlstate


@pytest.mark.parametrize(
    ("error", "raised"), [(pg.SerializationFailure, RetryableError), (_Dropped, ConnectionLostError)]
)
def test_the_error_after_the_last_attempt(error: type[psycopg.Error], raised: type[MemfoldError]) -> None:
    steps = Core("acme", None, False, 1).send("select 1", {}, repeatable=True)
    next(steps)
    if error is _Dropped:
        steps.throw(error("gone"))
        next(steps)
    with pytest.raises(raised):
        steps.throw(error("as the test wants it"))


@pytest.mark.usefixtures("_no_jitter")
def test_pauses_between_attempts() -> None:
    assert [pause_before(n).seconds for n in (1, 2, 6, 7, 50)] == pytest.approx(
        [0.015, 0.03, 0.48, 0.75, 0.75]
    )


def test_a_client_is_tried_once_at_least() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Core("acme", None, False, 0)


# attempts of the worker --------------------------------------------------------------------------------------


class Sleeps:
    """In place of asyncio.sleep and time.sleep: records the request, returns immediately."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def asleep(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> Sleeps:
    made = Sleeps()
    monkeypatch.setattr(database.asyncio, "sleep", made.asleep)
    return made


class Nobody:
    async def judge(self, question: Question) -> Answer:
        raise AssertionError


def written(error: type[psycopg.Error], failures: int) -> tuple[int, bool]:
    """How often a worker sends what fails so often; whether it got through."""
    sent = 0

    async def transact(*_: Any) -> list[Any]:
        nonlocal sent
        sent += 1
        if sent <= failures:
            raise error("as the test wants it")
        return [{"status": "done"}]

    async def run() -> bool:
        one = Worker("", Nobody())
        one._database.transact = transact  # type: ignore[method-assign, assignment]
        try:
            return bool(await one._database.write(Call("select 1", {})))
        except psycopg.Error:
            return False

    return sent_and(asyncio.run(run()), lambda: sent)


def sent_and(through: bool, sent: Callable[[], int]) -> tuple[int, bool]:
    return sent(), through


SOON = [pg.SerializationFailure, pg.DeadlockDetected, pg.LockNotAvailable, pg.QueryCanceled]


@pytest.mark.parametrize("error", SOON)
@pytest.mark.parametrize(
    ("failures", "sent", "through"),
    [(0, 1, True), (1, 2, True), (19, 20, True), (20, 20, False), (99, 20, False)],
)
def test_an_answer_that_collides_is_written_again(
    sleeps: Sleeps, error: type[psycopg.Error], failures: int, sent: int, through: bool
) -> None:
    assert written(error, failures) == (sent, through)
    assert len(sleeps.seconds) == min(failures, sent - (not through))
    assert all(0 < seconds <= 2.0 for seconds in sleeps.seconds)


@pytest.mark.parametrize(
    "error", [_Dropped, pg.AdminShutdown, pg.TooManyConnections, pg.ReadOnlySqlTransaction]
)
def test_an_answer_outlives_a_database_that_is_away(sleeps: Sleeps, error: type[psycopg.Error]) -> None:
    assert written(error, 100) == (101, True)
    assert all(0 < seconds <= 2.0 for seconds in sleeps.seconds)


@pytest.mark.parametrize(
    "error", [pg.UniqueViolation, pg.InsufficientPrivilege, pg.InvalidTextRepresentation]
)
def test_an_answer_that_is_refused_is_sent_once(sleeps: Sleeps, error: type[psycopg.Error]) -> None:
    assert written(error, 5) == (1, False)
    assert sleeps.seconds == []


# attempts of maintenance -------------------------------------------------------------------------------------


class FakeConnection:
    """Fails so often, then gives a row."""

    def __init__(self, error: type[psycopg.Error], failures: int) -> None:
        self.error, self.failures, self.sent = error, failures, 0

    def transaction(self) -> Any:
        import contextlib

        return contextlib.nullcontext()

    def execute(self, *_: Any) -> Any:
        self.sent += 1
        if self.sent <= self.failures:
            raise self.error("as the test wants it")
        return self

    def fetchall(self) -> list[Any]:
        return [{"n": 1}]

    def fetchone(self) -> Any:
        return (1, 2, False)


def by_reembed(connection: Any) -> Any:
    return reembed._Session(connection).call("select 1")


def by_maintenance(connection: Any) -> Any:
    from memfold.tools.cli import _maintenance

    return _maintenance._call(connection, "select 1")


MAINTENANCE = pytest.mark.parametrize("call", [by_reembed, by_maintenance])


@MAINTENANCE
@pytest.mark.parametrize("error", [pg.SerializationFailure, pg.DeadlockDetected, pg.LockNotAvailable])
def test_maintenance_that_collides_is_called_five_times(call: Any, error: type[psycopg.Error]) -> None:
    for failures in (0, 1, 4):
        connection = FakeConnection(error, failures)
        assert call(connection)
        assert connection.sent == failures + 1
    connection = FakeConnection(error, 99)
    with pytest.raises(error):
        call(connection)
    assert connection.sent == 5


@MAINTENANCE
def test_maintenance_that_is_refused_is_called_once(call: Any) -> None:
    connection = FakeConnection(pg.InsufficientPrivilege, 99)
    with pytest.raises(pg.InsufficientPrivilege):
        call(connection)
    assert connection.sent == 1


# a dead embedder ---------------------------------------------------------------------------------------------


class Spoilt:
    """Embeds all texts but the bad ones; records its requests."""

    def __init__(self, spoilt: Callable[[str], bool]) -> None:
        self.spoilt = spoilt
        self.asked: list[list[str]] = []

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(texts)
        if any(map(self.spoilt, texts)):
            raise ConnectionError("gone")
        return [[1.0, 0.0] for _ in texts]


def embedded(toy: Spoilt, texts: list[str]) -> tuple[list[list[str]], int]:
    """The requests it got, and the number of texts that got a vector."""
    embedder = Embedder(toy, "toy", 2)
    steps = Core("acme", embedder, False, 1).vectors_or_none(embedder, texts)
    try:
        step = next(steps)
        while True:
            assert isinstance(step, Embed)
            try:
                made = toy(step.texts)
            except ConnectionError as error:
                step = steps.throw(error)
            else:
                step = steps.send(made)
    except StopIteration as end:
        return toy.asked, len([vector for vector in end.value if vector is not None])


def test_a_dead_embedder_is_asked_for_two_texts_more_and_no_further() -> None:
    texts = [f"fact {n}" for n in range(128)]
    assert embedded(Spoilt(lambda text: True), texts) == ([texts, texts[:1], texts[1:2]], 0)


def test_one_text_is_asked_for_once() -> None:
    assert embedded(Spoilt(lambda text: True), ["a"]) == ([["a"]], 0)


def test_a_spoilt_text_costs_the_others_nothing() -> None:
    asked, made = embedded(Spoilt(lambda text: text == "b"), ["a", "b", "c"])
    assert (asked, made) == ([["a", "b", "c"], ["a"], ["b"], ["c"]], 2)
    # the first may be the spoilt one
    asked, made = embedded(Spoilt(lambda text: text == "a"), ["a", "b", "c"])
    assert (asked, made) == ([["a", "b", "c"], ["a"], ["b"], ["c"]], 2)


def pending(toy: Spoilt, rows: int, batch: int) -> tuple[int, int]:
    """embed_pending over so many texts: how often the embedder was asked, how many texts failed."""
    embedder = Embedder(toy, "toy", 2)
    core = Core("acme", embedder, False, 1)
    steps = core.embed_pending(None, None, batch)
    waiting = [{"memory_id": UUID(int=n), "content": f"fact {n}"} for n in range(rows)]
    try:
        step = next(steps)
        while True:
            if isinstance(step, Embed):
                try:
                    made = toy(step.texts)
                except ConnectionError as error:
                    step = steps.throw(error)
                    continue
                step = steps.send(made)
            else:
                assert isinstance(step, Transact)
                assert queries.PENDING in str(step.statement)
                step = steps.send(waiting[: step.parameters["max_results"]])
    except StopIteration as end:
        return len(toy.asked), end.value.failed


def test_pending_texts_stop_at_the_first_batch_that_fails_whole() -> None:
    assert pending(Spoilt(lambda text: True), 100, 10) == (3, 10)
    assert pending(Spoilt(lambda text: True), 1, 10) == (1, 1)


def test_the_window_of_pending_texts_grows_by_what_stays_pending_alone() -> None:
    """Texts that have a vector are not read again and again."""
    bad = Spoilt(lambda text: text in ("fact 3", "fact 17"))
    steps = Core("acme", Embedder(bad, "toy", 2), False, 1).embed_pending(None, None, 10)
    waiting = [{"memory_id": UUID(int=n), "content": f"fact {n}"} for n in range(45)]
    windows: list[int] = []
    step = next(steps)
    try:
        while True:
            if isinstance(step, Embed):
                try:
                    made = bad(step.texts)
                except ConnectionError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(made)
                continue
            assert isinstance(step, Transact)
            statement, rows = (
                str(step.statement),
                [dict.fromkeys(field.name for field in fields(IngestResult))],
            )
            if queries.PENDING in statement:
                windows.append(step.parameters["max_results"])
                rows = waiting[: windows[-1]]
            elif queries.ATTACH in statement:
                waiting = [row for row in waiting if row["memory_id"] != step.parameters["memory_id"]]
                rows[0]["action"] = "embedded"
            elif queries.REGISTER_MODEL in statement:
                rows = [{queries.REGISTER_MODEL: True}]
            step = steps.send(rows)
    except StopIteration as end:
        report = end.value
    assert (report.attached, report.failed) == (43, 2)
    assert windows == [10, 11, 12, 12, 12, 12]
    assert [row["content"] for row in waiting] == ["fact 3", "fact 17"]


def test_an_embedder_that_has_never_worked_is_told_what_it_must_take(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """For instance, one that takes a single text fails each time."""
    embedded(Spoilt(lambda text: True), ["a"])
    assert "embed takes a list of texts and returns a list of vectors" in caplog.messages[-1]
    embedded(Spoilt(lambda text: text == "b"), ["a", "b"])
    assert caplog.messages[-1].endswith("continuing without a vector")


# a person's ties ---------------------------------------------------------------------------------------------


class FakeClient:
    """Records what a person does in a review."""

    def __init__(self) -> None:
        self._core = self
        self.calls: list[tuple[str, UUID, UUID]] = []

    worker: ClassVar[str] = "w"

    def manual_action(self, function: str, given: dict[str, Any], tenant_id: str) -> Any:
        self.calls.append((function, given["memory_id"], given.get("by_id") or given["into_id"]))
        yield from ()  # it asks for nothing
        return type("Result", (), {"action": "merged", "event_id": None})()

    def _drive(self, steps: Any) -> Any:
        with pytest.raises(StopIteration) as end:
            next(steps)
        return end.value.value


def manually(item: Question, verdict: Any, richer_memory_id: UUID | None = None) -> tuple[str, UUID, UUID]:
    client = FakeClient()
    Review(client)._answer_manually(item, verdict, richer_memory_id, item.sides)  # type: ignore[arg-type]
    (call,) = client.calls
    return call


def seen(older: int, newer: int) -> Question:
    from dataclasses import replace
    from datetime import UTC, datetime

    item = question()
    return replace(
        item,
        memory=replace(item.memory, last_seen=datetime(2026, 1, newer, tzinfo=UTC)),
        other=replace(item.other, last_seen=datetime(2026, 1, older, tzinfo=UTC)),
    )


@pytest.mark.parametrize(
    ("item", "loser", "winner"),
    [(seen(1, 2), OLDER, NEWER), (seen(2, 1), NEWER, OLDER), (seen(1, 1), OLDER, NEWER)],
    ids=["newer", "older", "tie"],
)
def test_the_most_recent_statement_wins_a_contradiction(item: Question, loser: UUID, winner: UUID) -> None:
    assert manually(item, "contradiction") == (queries.SUPERSEDE, loser, winner)


@pytest.mark.parametrize(
    ("older", "newer", "richer_memory_id", "loser", "winner"),
    [
        ("longer text", "text", None, NEWER, OLDER),
        ("text", "longer text", None, OLDER, NEWER),
        ("text", "TEXT", None, NEWER, OLDER),
        ("text", "longer text", OLDER, NEWER, OLDER),
    ],
    ids=["older", "newer", "tie", "said"],
)
def test_the_longer_text_of_a_refinement_stays(
    older: str, newer: str, richer_memory_id: UUID | None, loser: UUID, winner: UUID
) -> None:
    assert manually(question(older, newer), "refinement", richer_memory_id) == (queries.MERGE, loser, winner)


@pytest.mark.parametrize(
    ("older", "newer", "longer"), [("ab", "abc", "B"), ("abc", "ab", "A"), ("ab", "cd", "A")]
)
def test_the_prompt_names_the_longer_text(older: str, newer: str, longer: str) -> None:
    one = Review(FakeClient())  # type: ignore[arg-type]
    asked: list[str] = []

    class Keys:
        def ask(self, prompt: str) -> str | None:
            asked.append(prompt)
            return ""

    one._keys = Keys()  # type: ignore[assignment]
    assert one._fuller(question(older, newer), "") == ""
    assert f"Enter for the longer one ({longer})" in asked[0]


def test_the_budget_hour_is_3600_seconds() -> None:
    """Other tests make it shorter for themselves."""
    assert limits.HOUR == 3600.0


# floors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("confidence", "sure"), [(0.7499, False), (0.75, True), (0.7501, True)])
def test_a_confidence_at_the_floor_is_enough(confidence: float, sure: bool) -> None:
    answer = Answer("duplicate", confidence)
    assert recall._Asked("t", "b", 1.0, merge_text=False, floor=0.75).is_same(answer) is sure

    class Judge:
        async def judge(self, question: Question) -> Answer:
            return answer

    measured = judged.measure_judge(Judge(), [Pair("a", "b", "distinct", 0.8, "a", "b", ())])
    assert measured["by_label"]["distinct"]["unsure"] == int(not sure)
    assert measured["wrong"]["count"] == int(sure)
