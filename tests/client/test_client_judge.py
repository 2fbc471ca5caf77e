"""Tier 3 through the clients: waiting for a verdict."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from memfold import Answer, AsyncMemfold, Embedder, JudgeError, Memfold, OpenAIJudge, Question, Resolution
from memfold.client import errors
from memfold.client.calls import driving, judgements
from memfold.client.judging import Usage
from memfold.client.types import IngestResult
from tests.support.chat_server import ChatServer
from tests.support.memories import check
from tests.support.queries import DB, one
from tests.support.waiting import until

# Python: the tests of the SQL functions cover each server.
pytestmark = pytest.mark.one_server
NEAR = {"User likes Vim.": [1.0, 0.0], "User is fond of Vim.": [0.9, 0.4358898944]}
VIM, FOND = NEAR
DUPLICATE = Answer("duplicate", 0.9, "the same", usage=Usage("toy-judge", 400, 40, 0.25))


class Vectors:
    """An embedder that counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.asked += texts
        return [NEAR.get(text, [0.9, -0.4358898944]) for text in texts]


class Toy:
    """A judge that counts, and gives preset answers."""

    model = "toy-judge"

    def __init__(self, answer: Any = DUPLICATE) -> None:
        self.answer = answer
        self.asked: list[Question] = []
        self.meanwhile: Callable[[], object] = lambda: None

    async def judge(self, question: Question) -> Answer:
        self.asked.append(question)
        await asyncio.to_thread(self.meanwhile)
        answer = self.answer(question) if callable(self.answer) else self.answer
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def measured(db: psycopg.Connection[Any]) -> None:
    """The thresholds of the toy model, so that no client measures them."""
    db.execute("select memfold.register_embedding_model('toy', 2, 0.92, 0.85)")


@pytest.fixture
def vectors() -> Vectors:
    return Vectors()


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
def client(dsn: str, vectors: Vectors, toy: Toy) -> Iterator[Memfold]:
    with Memfold(dsn, "t", Embedder(vectors, "toy", 2), judge=toy) as made:
        yield made


def pair(client: Memfold, **options: Any) -> tuple[IngestResult, IngestResult]:
    """Two memories that only a judge can tell apart."""
    return client.ingest(VIM), client.ingest(FOND, **options)


def open_judgement(db: DB) -> tuple[Any, ...]:
    row = db.execute("select status, attempts, last_error, model, cost from memfold.judgements").fetchone()
    assert row is not None
    return row


# waiting ---------------------------------------------------------------------------------------------------


def test_the_judge_is_asked_at_once(client: Memfold, toy: Toy, db: DB) -> None:
    first, second = pair(client, wait=True, source_turn_ids=["t9"])
    assert (second.action, second.tier) == ("escalated", 2)
    resolution = second.resolution
    assert resolution is not None
    assert (resolution.status, resolution.verdict, resolution.action) == ("done", "duplicate", "merged")
    assert resolution.memory_id == first.memory_id
    (question,) = toy.asked
    assert (question.judgement_id, question.tenant_id, question.kind) == (second.judgement_id, "t", "write")
    assert (question.memory.content, question.other.content) == (FOND, VIM)
    assert (question.memory.memory_id, question.memory.source_turn_ids) == (second.memory_id, ("t9",))
    row = db.execute(
        "select status, verdict, confidence, reason, model, input_tokens, output_tokens, cost"
        " from memfold.judgements"
    ).fetchone()
    assert row == ("done", "duplicate", 0.9, "the same", "toy-judge", 400, 40, 0.25)
    assert one(db, "select method from memfold.memory_events where tier = 3") == "judge"
    check(db)


def test_a_text_judged_a_duplicate_is_known_from_then_on(
    client: Memfold, vectors: Vectors, toy: Toy, db: DB
) -> None:
    """Must show 5: the paraphrase arrives again: tier 1, no embedding call, no model call."""
    first, _ = pair(client, wait=True)
    assert (vectors.asked, len(toy.asked)) == ([VIM, FOND], 1)
    for text in (FOND, "user is FOND of vim"):
        again = client.ingest(text, wait=True)
        assert (again.action, again.tier, again.method) == ("merged", 1, "alias")
        assert again.memory_id == first.memory_id
        assert again.resolution is None
    assert (vectors.asked, len(toy.asked)) == ([VIM, FOND], 1)
    assert one(db, "select observations from memfold.memory_totals where is_additive") == 4
    assert db.execute("select calls, avoided_by_alias from memfold.judge_costs").fetchone() == (1, 2)
    check(db)


@pytest.mark.parametrize(
    ("answer", "stored", "action", "holds"),
    [
        (Answer("distinct", 0.9), "distinct", "judged", FOND),
        (Answer("duplicate", 0.5), "unsure", "judged", FOND),
        (Answer("refinement", 0.9), "refinement", "replaced", FOND),
        (
            lambda q: Answer("refinement", 0.9, richer_memory_id=q.other.memory_id),
            "refinement",
            "merged",
            VIM,
        ),
        (Answer("contradiction", 0.9), "contradiction", "superseded", FOND),
    ],
)
def test_every_verdict(
    client: Memfold, toy: Toy, db: DB, answer: Any, stored: str, action: str, holds: str
) -> None:
    toy.answer = answer
    _, second = pair(client, wait=True)
    resolution = second.resolution
    assert resolution is not None
    assert (resolution.status, resolution.verdict, resolution.action) == ("done", stored, action)
    assert one(db, "select content from memfold.memories where memory_id = %s", resolution.memory_id) == holds
    logged = db.execute(
        "select action from memfold.memory_events where event_id = %s", [resolution.event_id]
    ).fetchall()
    assert logged == [(action,)]
    check(db)


def test_a_contradiction_left_to_a_person(client: Memfold, toy: Toy, db: DB) -> None:
    db.execute("select memfold.set_policy('t', conflict => 'review')")
    toy.answer = Answer("contradiction", 0.9)
    _, second = pair(client, wait=True)
    assert second.resolution is not None
    assert (second.resolution.action, second.resolution.memory_id) == ("escalated", second.memory_id)


def test_without_wait_nobody_is_asked(client: Memfold, toy: Toy, db: DB) -> None:
    for wait in (False, 0, 0.0):
        assert client.ingest(f"{wait!r} is a fact", wait=wait).resolution is None
    assert toy.asked == []
    assert one(db, "select count(*) from memfold.judgements where status = 'open'") > 0


def test_preview_asks_nobody(client: Memfold, toy: Toy) -> None:
    client.ingest(VIM)
    assert client.preview(FOND).action == "escalated"
    assert toy.asked == []


def test_a_wait_of_days(client: Memfold, toy: Toy) -> None:
    """No lease is longer than a day, however long the caller would wait."""
    _, second = pair(client, wait=200_000)
    assert second.resolution is not None
    assert second.resolution.action == "merged"
    assert len(toy.asked) == 1


@pytest.mark.parametrize("wait", [-1, float("nan"), float("inf")])
def test_a_wait_that_is_not_a_time(client: Memfold, db: DB, wait: float) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="wait"):
        client.ingest(VIM, wait=wait)
    with pytest.raises(TypeError, match="wait"):
        client.ingest(VIM, wait="long")  # type: ignore[arg-type]
    assert one(db, "select count(*) from memfold.memories") == 0


def test_no_transaction_is_open_while_the_judge_is_asked(client: Memfold, toy: Toy, db: DB) -> None:
    seen: list[Any] = []
    toy.meanwhile = lambda: seen.append(
        db.execute(
            "select state, (select count(*) from pg_locks as l where l.pid = a.pid and l.locktype = 'advisory')"
            " from pg_stat_activity as a where datname = current_database() and application_name = 'memfold'"
        ).fetchall()
    )
    pair(client, wait=True)
    assert seen == [[("idle", 0)]]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_asks_on_a_loop_of_its_own() -> None:
    """It inherits the loop, but not the thread that runs it."""
    background = driving.Background()
    assert background.run(asyncio.sleep(0, "parent")) == "parent"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)  # it would wait for ever
            code = background.run(asyncio.sleep(0, 42))
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42


def test_threads_of_one_client_ask_at_the_same_time(client: Memfold, toy: Toy, db: DB) -> None:
    both = threading.Barrier(2, timeout=20)
    toy.meanwhile = both.wait
    results: list[IngestResult] = []

    def work(subject: str) -> None:
        client.ingest(VIM, subject=subject)
        results.append(client.ingest(FOND, subject=subject, wait=True))

    threads = [threading.Thread(target=work, args=(subject,)) for subject in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [result.resolution and result.resolution.action for result in results] == ["merged", "merged"]
    check(db)


def test_the_blocking_client_within_a_running_loop(client: Memfold) -> None:
    async def work() -> IngestResult:
        return pair(client, wait=True)[1]

    resolution = asyncio.run(work()).resolution
    assert resolution is not None
    assert resolution.status == "done"


def test_the_applications_role_judges_its_own(db: DB, dsn: str, app: Callable[..., DB]) -> None:
    role = app().info.user
    with Memfold(dsn + f" user={role}", "t", Embedder(Vectors(), "toy", 2), judge=Toy()) as client:
        db.execute("select memfold.register_embedding_model('toy', 2, 0.92, 0.85)")
        resolution = pair(client, wait=True)[1].resolution
    assert resolution is not None
    assert resolution.action == "merged"


def test_a_model_behind_an_endpoint(dsn: str, vectors: Vectors, db: DB) -> None:
    """One judge for two blocking clients and several calls: its connections stay usable."""
    with ChatServer() as server:
        server.answer = lambda request: {
            **dict.fromkeys(("reason", "richer", "merged_text")),
            "reason": "the same",
            "verdict": "duplicate",
            "confidence": 0.9,
        }
        judge = OpenAIJudge("stand-in", base_url=server.base_url, input_price=1, output_price=2)
        for tenant in ("a", "b"):
            with Memfold(dsn, tenant, Embedder(vectors, "toy", 2), judge=judge) as client:
                for subject in ("x", "y"):
                    client.ingest(VIM, subject=subject)
                    resolution = client.ingest(FOND, subject=subject, wait=True).resolution
                    assert resolution is not None
                    assert resolution.action == "merged"
        assert server.received == 4
    assert one(db, "select sum(cost)::numeric(9, 6) = 4 * (400 * 1 + 40 * 2) / 1e6 from memfold.judgements")


# judges that fail ------------------------------------------------------------------------------------------

FAILURES: dict[str, tuple[Any, int, str, float]] = {
    # what the judge does, the attempts that count, the recorded error, the cost
    "the endpoint": (JudgeError("it is away", transient=True, retry_after=30), 0, "it is away", 0),
    "the pair": (JudgeError("nonsense", transient=False, usage=Usage("m", 1, 1, 0.5)), 1, "nonsense", 0.5),
    "any error": (RuntimeError("boom"), 1, "RuntimeError: boom", 0),
    "its own cancellation": (asyncio.CancelledError(), 1, "RuntimeError: the judge cancelled", 0),
    "no answer": ("duplicate", 1, "AttributeError", 0),
    "an unknown verdict": (Answer("maybe", 0.9, usage=Usage(cost=0.5)), 1, "MF028", 0.5),  # type: ignore[arg-type]
    "a verdict that is not a text": (Answer(["duplicate"], 0.9), 1, "TypeError", 0),  # type: ignore[arg-type]
    "an unlikely confidence": (Answer("duplicate", 1.5), 1, "MF028", 0),
    "a confidence that is none": (Answer("duplicate", "high"), 1, "TypeError", 0),  # type: ignore[arg-type]
    "a side of another pair": (Answer("refinement", 0.9, richer_memory_id=uuid4()), 1, "MF028", 0),
    "a text that cannot be stored": (Answer("duplicate", 0.9, merged_text="\0"), 1, "MF030", 0),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_judge_that_fails_costs_no_data(
    client: Memfold, toy: Toy, db: DB, caplog: pytest.LogCaptureFixture, failure: str
) -> None:
    toy.answer, attempts, noted, cost = FAILURES[failure]
    _, second = pair(client, wait=True)
    assert second.action == "escalated"
    assert second.resolution == Resolution("open")
    assert one(db, "select count(*) from memfold.memories where status = 'active'") == 2
    state, counted, last_error, _, spent = open_judgement(db)
    assert (state, counted, spent or 0) == ("open", attempts, cost)
    assert noted in last_error
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.startswith(f"DEDUP_FAIL: judgement {second.judgement_id} by ")
    assert noted in line
    # It comes back, and is answered.
    db.execute("update memfold.judgements set next_attempt_at = now()")
    toy.answer = DUPLICATE
    with Memfold(client._options["conninfo"], "t", judge=toy) as other:
        question = other._drive(other._core.claim("t", 60))
    assert question is not None
    assert question.attempts == attempts + 1
    check(db)


ABSURD = [
    Usage("m", 10**15, 2**52, math.nan),
    Usage("m", -1, 10**400, math.inf),
    Usage("m", 1.5, None, -1.0),  # type: ignore[arg-type]
    Usage(None, True, "many", "free"),  # type: ignore[arg-type]
    None,
]


@pytest.mark.parametrize("usage", ABSURD, ids=str)
def test_an_impossible_cost_does_not_block_an_answer(client: Memfold, toy: Toy, db: DB, usage: Any) -> None:
    toy.answer = Answer("duplicate", 0.9, usage=usage)
    resolution = pair(client, wait=True)[1].resolution
    assert resolution is not None
    assert (resolution.status, resolution.action) == ("done", "merged")
    spent = db.execute("select input_tokens, output_tokens, cost from memfold.judgements").fetchone()
    assert spent == (0, 0, 0.0)
    check(db)


@pytest.mark.parametrize("transient", [True, False])
@pytest.mark.parametrize("usage", ABSURD, ids=str)
def test_an_impossible_cost_does_not_hide_a_failure(
    client: Memfold, toy: Toy, db: DB, usage: Any, transient: bool
) -> None:
    toy.answer = JudgeError("nonsense", transient=transient, usage=usage, retry_after=math.nan)
    assert pair(client, wait=True)[1].resolution == Resolution("open")
    state, attempts, last_error, _, spent = open_judgement(db)
    assert (state, attempts, last_error, spent) == ("open", 0 if transient else 1, "nonsense", 0.0)
    check(db)


def test_an_endpoint_says_when_to_come_back(client: Memfold, toy: Toy, db: DB) -> None:
    toy.answer = JudgeError("slow down", transient=True, retry_after=600)
    pair(client, wait=True)
    assert one(
        db,
        "select next_attempt_at between now() + '590 s'::interval and now() + '600 s' from memfold.judgements",
    )


def test_the_eighth_failure_is_the_last(client: Memfold, toy: Toy, db: DB) -> None:
    toy.answer = JudgeError("nonsense", transient=False)
    toy.meanwhile = lambda: db.execute("update memfold.judgements set attempts = 8")
    _, second = pair(client, wait=True)
    assert second.resolution == Resolution("dead")
    (stats,) = client.stats()
    assert stats.dead_judgements == 1
    assert stats.warning is not None
    assert "retry_judgements" in stats.warning


def test_a_judge_that_hangs(client: Memfold, toy: Toy, db: DB) -> None:
    returned = threading.Event()
    toy.meanwhile = lambda: returned.wait(20)
    _, second = pair(client, wait=0.2)
    returned.set()
    assert second.resolution == Resolution("open")
    state, attempts, last_error, *_ = open_judgement(db)
    assert (state, attempts) == ("open", 0)
    assert last_error == "no answer within 0.2 s"


def test_a_reason_that_cannot_be_stored_is_not_a_failure(client: Memfold, toy: Toy, db: DB) -> None:
    toy.answer = Answer("duplicate", 0.9, "a\0b\ud800" + "x" * 5000)
    pair(client, wait=True)
    reason = one(db, "select reason from memfold.judgements where verdict = 'duplicate'")
    assert reason.startswith("a\ufffdb?")
    assert len(reason) == 2000


def test_a_database_that_goes_away_while_it_is_judged(
    client: Memfold, toy: Toy, db: DB, caplog: pytest.LogCaptureFixture
) -> None:
    toy.meanwhile = lambda: db.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and application_name = 'memfold'"
    )
    _, second = pair(client, wait=True)
    assert second.resolution is not None
    assert second.resolution.action == "merged", "the client has reconnected"


def test_errors_after_the_fact_is_stored_do_not_reach_the_caller(
    client: Memfold, db: DB, caplog: pytest.LogCaptureFixture
) -> None:
    db.execute("alter function memfold.claim_judgements rename to gone")
    _, second = pair(client, wait=True)
    assert (second.action, second.resolution) == ("escalated", None)
    assert f"DEDUP_FAIL: waiting for judgement {second.judgement_id} failed" in caplog.text


# other workers and callers ---------------------------------------------------------------------------------

RESOLVE = "select * from memfold.resolve_judgement(%s, %s, confidence => 0.9, model => 'w', tenant_id => 't')"


def claim_first(db: DB, lease: str = "1 minute") -> None:
    """From now on a worker claims every judgement as soon as it exists."""
    db.execute(
        f"""
        create function public.hold() returns trigger language plpgsql as $$
        begin
            new.status := 'leased'; new.worker := 'w'; new.attempts := 1;
            new.leased_until := clock_timestamp() + '{lease}'; new.next_attempt_at := new.leased_until;
            return new;
        end $$;
        create trigger hold before insert on memfold.judgements for each row execute function public.hold();
        """
    )


def answer_later(dsn: str, verdict: str, delay: float = 0.4) -> threading.Thread:
    def work() -> None:
        with psycopg.connect(dsn, autocommit=True) as worker:
            found = until(lambda: worker.execute("select judgement_id from memfold.judgements").fetchall())
            time.sleep(delay)
            worker.execute(RESOLVE, [found[0][0], verdict])

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("verdict", "action", "holds"),
    [("duplicate", "merged", VIM), ("refinement", "replaced", FOND), ("distinct", "judged", FOND)],
)
def test_the_client_waits_for_a_worker_that_holds_the_judgement(
    client: Memfold, toy: Toy, db: DB, dsn: str, verdict: str, action: str, holds: str
) -> None:
    claim_first(db)
    worker = answer_later(dsn, verdict)
    _, second = pair(client, wait=True)
    worker.join(20)
    resolution = second.resolution
    assert resolution is not None
    assert (resolution.status, resolution.verdict, resolution.action) == ("done", verdict, action)
    assert one(db, "select content from memfold.memories where memory_id = %s", resolution.memory_id) == holds
    assert (
        one(db, "select action from memfold.memory_events where event_id = %s", resolution.event_id) == action
    )
    assert toy.asked == []


def test_a_worker_that_takes_too_long(client: Memfold, toy: Toy, db: DB) -> None:
    claim_first(db)
    began = time.monotonic()
    _, second = pair(client, wait=0.5)
    assert time.monotonic() - began >= 0.5
    assert second.resolution == Resolution("leased")
    assert toy.asked == []


def test_a_worker_that_never_comes_back(client: Memfold, toy: Toy, db: DB) -> None:
    claim_first(db, "0.5 s")
    _, second = pair(client, wait=20)
    assert second.resolution is not None
    assert second.resolution.action == "merged"
    assert [question.attempts for question in toy.asked] == [2]


def test_a_client_without_a_judge_waits_for_a_worker(dsn: str, vectors: Vectors, db: DB) -> None:
    worker = answer_later(dsn, "contradiction")
    with Memfold(dsn, "t", Embedder(vectors, "toy", 2)) as client:
        _, second = pair(client, wait=20)
        worker.join(20)
        assert second.resolution is not None
        assert second.resolution.action == "superseded"
        client.ingest(VIM, subject="nobody judges this one")
        alone = client.ingest(FOND, subject="nobody judges this one", wait=0.2)
        assert alone.resolution == Resolution("open")


def test_the_client_does_not_wait_for_a_person(
    client: Memfold, toy: Toy, db: DB, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("select memfold.set_policy('t', on_ambiguous => 'review')")
    monkeypatch.setattr(judgements, "Pause", lambda _: pytest.fail("it waits"))
    _, second = pair(client, wait=True)
    assert second.action == "escalated"
    assert second.resolution == Resolution("open")
    assert toy.asked == []


def test_somebody_answers_while_the_judge_is_asked(client: Memfold, toy: Toy, db: DB) -> None:
    """The first verdict wins, and the caller gets that one."""
    toy.meanwhile = lambda: db.execute(RESOLVE, [toy.asked[-1].judgement_id, "refinement"])
    _, second = pair(client, wait=True)
    assert second.resolution is not None
    assert (second.resolution.verdict, second.resolution.action) == ("refinement", "replaced")
    assert second.resolution.memory_id == second.memory_id
    assert len(toy.asked) == 1
    check(db)


def test_a_side_that_changes_while_the_judge_is_asked(client: Memfold, toy: Toy, db: DB) -> None:
    """Nothing is applied to a pair that was not judged: the pair that it has become is asked."""

    def fold() -> None:
        if len(toy.asked) == 1:
            with Memfold(client._options["conninfo"], "t") as person:
                other = person.ingest("Vim it is")
                assert other.memory_id is not None
                person.merge(toy.asked[0].other.memory_id, other.memory_id)

    toy.meanwhile = fold
    _, second = pair(client, wait=True)
    asked = [{question.memory.content, question.other.content} for question in toy.asked]
    assert asked == [{VIM, FOND}, {"Vim it is", FOND}]
    assert second.resolution is not None
    assert (second.resolution.status, second.resolution.verdict) == ("done", "duplicate")
    check(db)


def test_a_side_that_is_gone_when_the_judge_answers(client: Memfold, toy: Toy, db: DB) -> None:
    def reject() -> None:
        with Memfold(client._options["conninfo"], "t") as person:
            person.reject(toy.asked[0].other.memory_id)

    toy.meanwhile = reject
    _, second = pair(client, wait=True)
    assert second.resolution == Resolution("obsolete")


def test_a_replayed_call_gets_its_result(client: Memfold, toy: Toy) -> None:
    client.ingest(VIM)
    first = client.ingest(FOND, wait=True, idempotency_key="k")
    again = client.ingest(FOND, wait=True, idempotency_key="k")
    assert again == first
    assert len(toy.asked) == 1


# the asynchronous client -----------------------------------------------------------------------------------


def test_async_does_the_same(dsn: str, vectors: Vectors, toy: Toy, db: DB) -> None:
    async def work() -> None:
        async with AsyncMemfold(dsn, "t", Embedder(vectors, "toy", 2), judge=toy) as client:
            first = await client.ingest(VIM)
            second = await client.ingest(FOND, wait=True)
            assert second.resolution is not None
            assert (second.resolution.action, second.resolution.memory_id) == ("merged", first.memory_id)
            assert second.resolution.event_id is not None
            assert (await client.ingest(FOND)).method == "alias"
            undone = await client.undo(second.resolution.event_id, "no")
            assert {memory.content: memory.status for memory in undone} == {VIM: "active", FOND: "active"}
            assert first.memory_id is not None
            assert second.memory_id is not None
            merged = await client.merge(first.memory_id, second.memory_id)
            assert (merged.action, merged.memory_id) == ("merged", second.memory_id)
            updated = await client.update(first.memory_id, "User prefers Emacs.", embedding=None)
            assert updated.action in ("replaced", "escalated")
            (current,) = await client.current_memories()
            assert current.content == "User prefers Emacs."
            other = await client.ingest("a fact of another kind", subject="x")
            assert other.memory_id is not None
            assert (await client.supersede(current.memory_id, other.memory_id)).action == "superseded"
            assert (await client.reject(other.memory_id)).action == "rejected"

    asyncio.run(work())
    check(db)


def test_async_cancelled_while_the_judge_is_asked(dsn: str, vectors: Vectors, db: DB) -> None:
    class Hanging(Toy):
        async def judge(self, question: Question) -> Answer:
            await asyncio.sleep(60)
            return DUPLICATE

    async def work() -> None:
        async with AsyncMemfold(dsn, "t", Embedder(vectors, "toy", 2), judge=Hanging()) as client:
            await client.ingest(VIM)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.ingest(FOND, wait=True), 1)
            assert (await client.ingest(FOND)).tier == 1

    asyncio.run(work())
    assert open_judgement(db)[:3] == ("open", 0, "its caller was cancelled")


def test_interrupted_while_the_judge_is_asked(client: Memfold, toy: Toy, db: DB) -> None:
    toy.meanwhile = lambda: (time.sleep(0.2), signal.raise_signal(signal.SIGINT), time.sleep(0.5))
    with pytest.raises(KeyboardInterrupt):
        pair(client, wait=True)
    assert open_judgement(db)[:3] == ("open", 0, "its caller was interrupted")


def test_async_calls_wait_side_by_side(dsn: str, vectors: Vectors, toy: Toy) -> None:
    running = most = 0

    class Slow(Toy):
        async def judge(self, question: Question) -> Answer:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.3)
            running -= 1
            return DUPLICATE

    async def work() -> list[IngestResult]:
        async with AsyncMemfold(dsn, "t", Embedder(vectors, "toy", 2), judge=Slow()) as client:
            for subject in "abcde":
                await client.ingest(VIM, subject=subject)
            return await asyncio.gather(*[client.ingest(FOND, subject=s, wait=True) for s in "abcde"])

    results = asyncio.run(work())
    assert [result.resolution and result.resolution.action for result in results] == ["merged"] * 5
    assert most == 5
