"""The commands that answer judgements: judge, review."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import importlib
import io
import logging
import signal
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memfold.client.errors import MemfoldError
from memfold.client.judging import Judge, LocalJudge, OpenAIJudge
from memfold.client.judging.local_judge import DEFAULT_MODEL
from memfold.tools.cli import _review_merges
from memfold.tools.cli._shared import (
    LogHandler,
    dsn_option,
    fail,
    json_option,
    open_client,
    progress,
    report,
    resolve,
    say,
    tenant_option,
)

if TYPE_CHECKING:
    from memfold.client.judging.worker import Summary, Worker


class AnswersUselessError(click.ClickException):
    """The endpoint is not down, but none of its answers was usable."""

    exit_code = 3


@click.command()
@dsn_option
@click.option("--model", metavar="NAME", help="The model to ask.")
@click.option(
    "--base-url", metavar="URL", help="An OpenAI-compatible endpoint; default: OPENAI_BASE_URL, else OpenAI."
)
@click.option(
    "--judge",
    "plugged_in",
    metavar="MODULE:NAME",
    help="Ask this judge instead: an object with an async method judge, or a callable that returns one.",
)
@click.option(
    "--local",
    metavar="[MODEL]",
    is_flag=False,
    flag_value=DEFAULT_MODEL,
    help="Judge in this process instead, without a key: a directory, or a name at Hugging Face; default: "
    f"{DEFAULT_MODEL}. Needs memfold[judge-local].",
)
@click.option("--slots", type=click.IntRange(1, 500), default=10, help="Concurrent calls; default: 10.")
@click.option(
    "--calls-per-hour", type=click.IntRange(1), metavar="N", help="At most this many calls per hour."
)
@click.option("--cost-per-hour", type=float, metavar="X", help="At most this much money per hour.")
@click.option("--input-price", type=click.FloatRange(0), metavar="P", help="Price of a million input tokens.")
@click.option(
    "--output-price", type=click.FloatRange(0), metavar="P", help="Price of a million output tokens."
)
@tenant_option("Judge only for this tenant; default: for every tenant, as a member of memfold_judge.")
@click.option("--once", is_flag=True, help="Stop when there is nothing more to claim.")
@click.option("--retry", is_flag=True, help="First reopen dead judgements.")
@click.option("--timeout", type=float, default=30.0, help="Seconds that a call may take; default: 30.")
@click.option("--lease", type=float, help="Seconds that a claim lasts; default: 2 x --timeout + 32.")
@click.option("--poll", type=float, default=1.0, help="Seconds between checks of an empty queue; default: 1.")
@click.option(
    "--maintain",
    type=click.FloatRange(1),
    metavar="SECONDS",
    help="Also run maintenance at this interval; then no other process is needed.",
)
@click.option(
    "--review-merges",
    is_flag=True,
    help="Look again at automatic merges instead, and undo those that the judge calls wrong.",
)
@click.option(
    "--since",
    metavar="TIME",
    help="With --review-merges: merges from when on, such as 2026-11-28T09:00Z; default: a day ago.",
)
@click.option("--dry-run", is_flag=True, help="With --review-merges: undo nothing.")
@click.option("--quiet", is_flag=True, help="Do not log every judgement.")
@json_option
def judge(
    dsn: str | None,
    model: str | None,
    base_url: str | None,
    plugged_in: str | None,
    local: str | None,
    slots: int,
    calls_per_hour: int | None,
    cost_per_hour: float | None,
    input_price: float | None,
    output_price: float | None,
    tenant: str | None,
    once: bool,
    retry: bool,
    timeout: float,
    lease: float | None,
    poll: float,
    maintain: float | None,
    review_merges: bool,
    since: str | None,
    dry_run: bool,
    quiet: bool,
) -> None:
    """Let a model answer waiting judgements.

    It runs until stopped. The model is asked through an OpenAI-compatible endpoint; OPENAI_API_KEY holds its key. You
    can run as many as you like, anywhere: each judgement is answered once. With --maintain, a small installation
    needs only this one process; it then also needs the privileges of memfold maintenance, or --tenant.

    Ctrl-C or SIGTERM stops it after the running calls are answered, a second one immediately; nothing is lost either
    way. It logs to stderr.

    With --review-merges it asks about the texts of each automatic merge (tier 2) that is in force and that no person or
    judge has confirmed, undoes those that are distinct or contradict each other, if the confidence is at least the
    bucket's confidence_floor, and ends. It needs a member of memfold_app, and a tenant, as memfold undo does.

    Exit code 1: the endpoint is down, or answers could not be written. 3: the endpoint answers, but no answer was
    usable.

    \b
    memfold judge --model gpt-5-mini --input-price 0.25 --output-price 2 --cost-per-hour 1
    memfold judge --model llama3.1 --base-url http://localhost:11434/v1 --once
    memfold judge --local --once
    memfold judge --local --review-merges --tenant acme --dry-run
    """
    if [model, plugged_in, local].count(None) != 2:
        raise click.UsageError("give one of --model, --judge and --local")
    if review_merges and (retry or maintain or calls_per_hour or cost_per_hour):
        raise click.UsageError("--review-merges runs once: without --retry, --maintain and budgets")
    if (since or dry_run) and not review_merges:
        raise click.UsageError("--since and --dry-run need --review-merges")
    if model is not None and cost_per_hour is not None and not (input_price or output_price):
        raise click.UsageError("--cost-per-hour needs --input-price or --output-price")
    from memfold.client.judging.worker import Worker  # no other command needs it

    where = resolve(dsn)
    with open_client(where):
        pass
    with _logging(quiet):
        asked: Judge
        if model is not None:
            asked = OpenAIJudge(  # says what is missing, the package too
                model,
                base_url=base_url,
                timeout=timeout,
                input_price=input_price or 0.0,
                output_price=output_price or 0.0,
            )
            # It takes long to load, so load it before leases run.
            importlib.import_module("openai")
        else:
            asked = LocalJudge(local) if local is not None else plugged_in_judge(str(plugged_in))
        if review_merges:
            _review_merges.run(where, tenant, asked, since, dry_run, slots, timeout + 1)
            return
        try:
            # The judge's own timeout comes first, because the judge knows what the call has cost.
            worker = Worker(
                where,
                asked,
                slots=slots,
                timeout=timeout + 1,
                lease=lease,
                poll=poll,
                calls_per_hour=calls_per_hour,
                cost_per_hour=cost_per_hour,
                tenant_id=tenant,
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        work = _judge(worker, asked, once=once, retry=retry)
        progress(lambda: f"{worker.summary.judged:,} judged")
        summary = asyncio.run(_maintaining(work, where, tenant, maintain) if maintain else work)
    report({**dataclasses.asdict(summary), "judged": summary.judged})
    say(str(summary))
    if summary.unfinished == "endpoint down":
        fail("the judge's endpoint is down; a later run judges what is waiting")
    if summary.unwritten:
        fail(f"{summary.unwritten} answers could not be written; these judgements will be asked again")
    if summary.unfinished == "answers useless" or (summary.failed and not summary.answers):
        text = "the judge's answers are unusable" if summary.answers else "every judgement failed"
        raise AnswersUselessError(f"{text}; last failure: {summary.last_failure}")


@click.command()
@dsn_option
@tenant_option("Only for this tenant; default: for every tenant, as a member of memfold_judge.")
@click.option("--all", "everything", is_flag=True, help="Also show judgements that wait for a model.")
@click.option("--label", is_flag=True, help="Label pairs for memfold calibrate instead; no memory changes.")
@click.option(
    "--embedding-model", metavar="NAME", help="With --label: the embedding model that is to be calibrated."
)
def review(
    dsn: str | None,
    tenant: str | None,
    everything: bool,
    label: bool,
    embedding_model: str | None,
) -> None:
    """Answer judgements yourself, one key each.

    Shows two memories side by side, with the differences marked. Stop at any time (q or Ctrl-C): every answer is
    applied immediately, and unanswered judgements keep waiting. Without a terminal it reads one key per line.

    With --label it shows pairs that were merged or kept apart and that nobody has looked at, beginning with those
    that say most about where the thresholds of --embedding-model should be, and asks how they relate. Your answers are
    stored for calibration.

    \b
    memfold review --tenant acme
    memfold review --tenant acme --all
    memfold review --tenant acme --label --embedding-model text-embedding-3-small
    """
    if label != (embedding_model is not None) or (label and (tenant is None or everything)):
        raise click.UsageError("--label needs --embedding-model and --tenant, and cannot be used with --all")
    for stream in (sys.stdout, sys.stderr):
        # Not every terminal can show every memory.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    from memfold.tools.review import Labelling, Review  # no other command needs them

    with open_client(dsn) as client:
        if tenant is not None and embedding_model is not None:
            Labelling(client, tenant, embedding_model).run()
        else:
            Review(client, tenant, everything=everything).run()


@contextlib.contextmanager
def _logging(quiet: bool) -> Iterator[None]:
    """Log what the worker and the judge do to stderr."""
    log = LogHandler(sys.stderr)
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    loggers = [logging.getLogger(name) for name in ("memfold.judge", "memfold.worker")]
    for logger in loggers:
        logger.addHandler(log)
        logger.setLevel(logging.WARNING if quiet else logging.INFO)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(log)


async def _maintaining(
    work: Coroutine[Any, Any, Summary], where: str, tenant: str | None, seconds: float
) -> Summary:
    """Run this work, and maintenance alongside: immediately, and then at this interval."""
    from memfold.tools.admin import maintenance

    log = logging.getLogger("memfold.worker")

    def once() -> None:
        try:
            for one in maintenance.run(where, tenant):
                done = ", ".join(f"{task} {count:,}" for task, count in one.counts.items() if count)
                if done:
                    log.info("maintenance of %s: %s", one.tenant_id, done)
                for task, error in one.errors.items():
                    log.warning("maintenance of %s: %s failed: %s", one.tenant_id, task, error)
        except MemfoldError as error:
            log.warning("maintenance failed: %s", error)

    async def again_and_again() -> None:
        while True:
            await asyncio.to_thread(once)
            await asyncio.sleep(seconds)

    beside = asyncio.create_task(again_and_again())
    try:
        return await work
    finally:
        beside.cancel()


async def _judge(worker: Worker, asked: Judge, *, once: bool, retry: bool) -> Summary:
    """Run until a signal; a second one ends it immediately."""
    loop = asyncio.get_running_loop()
    signals = 0

    def stop(*_: object) -> None:
        nonlocal signals
        signals += 1
        loop.call_soon_threadsafe(functools.partial(worker.stop, now=signals > 1))

    earlier = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        if retry:
            say(f"reopened {await worker.retry()} dead judgements")
        return await worker.run(until_idle=once)
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
        await _review_merges.close(asked)


def plugged_in_judge(name: str) -> Judge:
    """The judge named by MODULE:NAME, also in the current directory."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise click.UsageError(f"--judge is MODULE:NAME, not {name}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise click.UsageError(f"--judge {name}: {error}") from error
    finally:
        sys.path.pop(0)
    if isinstance(found, type) or not hasattr(found, "judge"):
        try:
            found = found()
        except Exception as error:
            raise click.UsageError(f"--judge {name}: {type(error).__name__}: {error}") from error
    if not callable(getattr(found, "judge", None)):
        raise click.UsageError(f"--judge {name}: {type(found).__name__} has no method judge")
    made: Judge = found
    return made
