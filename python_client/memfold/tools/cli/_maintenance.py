"""The commands of maintenance: maintenance, sweep, consolidate, approve.

They call functions of memfold's schema repeatedly until nothing is left, each time in a separate transaction: a
writer of the bucket waits for at most one call.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click
import psycopg
from psycopg.rows import dict_row

from memfold.client._retry import retry
from memfold.tools.admin import maintenance as maintaining
from memfold.tools.cli._shared import (
    dsn_option,
    fail,
    json_option,
    open_client,
    progress,
    report,
    resolve,
    say,
    show,
    show_lines,
    table_of,
    tenant_option,
)
from memfold.tools.cli._status import warn_if_empty

Row = dict[str, Any]
Connection = psycopg.Connection[Row]

_SWEEP = "select * from memfold.sweep_duplicates(%(tenant)s, %(bucket)s, %(model)s, %(dry_run)s, %(max)s, %(ids)s, %(run)s)"
_PAIRS = "select * from memfold.duplicate_pairs(%(tenant)s, %(bucket)s, %(model)s)"
_CONSOLIDATE = (
    "select * from memfold.consolidate(%(tenant)s, %(bucket)s, %(model)s, %(threshold)s, %(approval)s, %(max)s,"
    " %(max_judgements)s, %(dry_run)s)"
)
_OVERVIEW = "select * from memfold.runs_overview where run_id = %(run)s"

_AT_ONCE = 100  # merges per call: writers of the bucket wait about 0.1 s
_SHOWN = 20


@click.command()
@dsn_option
@tenant_option("Only this tenant; default: all, as a member of memfold_owner.")
@click.option("--tasks", metavar="LIST", help="Comma-separated; default: all but clean and sweep.")
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="Start nothing after this time.",
)
@json_option
def maintenance(dsn: str | None, tenant: str | None, tasks: str | None, seconds: float) -> None:
    """Do the maintenance that is due, for every tenant.

    For cron, systemd or any other scheduler; prints one line per task that did something. Exit code 1 if a task failed.

    \b
    plain      ledger rows and counters of rows of plain INSERTs
    decay      confidence, where options have a decay_rate
    syntheses  the fallback of dead questions that ask for one text
    keys       removes old idempotency keys
    runs       closes runs whose questions are all answered
    embed      vectors that the database makes
    links      moves texts stored under the alias of a link to its name
    cycles     what options have an interval for
    clean      merges equal texts stored while dedup was off
    sweep      merges what ingest would merge now

    \b
    memfold maintenance --tenant acme --tasks plain,clean
    """
    failed = 0

    def done(one: maintaining.Maintenance) -> None:
        nonlocal failed
        for task, count in one.counts.items():
            if count:
                more = ", more is left" if task in one.left else ""
                show(f"{one.tenant_id}  {task}  {count:,} in {one.ms[task] / 1000:.2f} s{more}")
        for task, error in one.errors.items():
            failed += 1
            say(f"{one.tenant_id}  {task}  failed: {error}")

    names = [name.strip() for name in (tasks or "").split(",") if name.strip()]
    tell = progress("maintenance")
    finished = maintaining.run(
        resolve(dsn), tenant, names, seconds, done, lambda name: tell(f"maintenance of {name}")
    )
    report({"tenants": finished})
    say(f"{len(finished):,} tenant{'s' * (len(finished) != 1)}")
    if failed:
        fail(f"{failed} task{'s' * (failed != 1)} failed; see their reports in the table runs")


@contextlib.contextmanager
def _connected(dsn: str | None, tenant: str | None, bucket: str | None = None) -> Iterator[Connection]:
    with open_client(dsn) as client:
        if tenant is not None:
            warn_if_empty(client, tenant, bucket)
    with psycopg.connect(resolve(dsn), autocommit=True, row_factory=dict_row) as connection:
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        if tenant is not None:
            connection.execute("select pg_catalog.set_config('memfold.tenant_id', %s, false)", [tenant])
        yield connection


def _call(connection: Connection, statement: str, **given: object) -> list[Row]:
    """One call, which is retried if it conflicted with another and left nothing behind."""
    return retry(lambda: connection.execute(statement.encode(), given).fetchall())


def _overview(connection: Connection, run: object) -> Row:
    """Print the result of a run; returns its row."""
    found = _call(connection, _OVERVIEW, run=run)[0]
    names = (
        "merged",
        "replaced",
        "superseded",
        "rejected",
        "judged",
        "obsolete",
        "dead",
        "waiting",
        "undone",
    )
    counts = ", ".join(f"{name} {found[name]}" for name in names if found[name])
    show(f"run {run}: {found['status']}{': ' + counts if counts else ''}")
    return found


def _plan(rows: Sequence[Row]) -> None:
    """Print the beginning of a plan, side by side, and its totals."""
    if rows:
        head = ["cluster", "cosine", "action", "memory", "into", "guard"]
        shown = [
            [row["cluster"], f"{row['similarity']:.3f}", row["action"], row["content"][:60],
             row["representative_content"][:60], ", ".join(row["guard"])[:40]]
            for row in rows[:_SHOWN]
        ]  # fmt: skip
        show_lines(table_of(head, shown))
    if len(rows) > _SHOWN:
        show(f"... and {len(rows) - _SHOWN} more")
    counts = Counter(row["action"] for row in rows)
    show(", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "nothing to do")


def _bucket_options(command: Any) -> Any:
    for option in (
        click.option("--dry-run", is_flag=True, help="Print the plan and change nothing."),
        click.option(
            "--embedding-model",
            metavar="NAME",
            help="The embedding model to compare by; default: the most used.",
        ),
        click.option("--bucket", metavar="ID", default="default", help="The bucket; default: default."),
        click.option("--tenant", metavar="ID", required=True, help="The tenant of the bucket."),
        json_option,
        dsn_option,
    ):
        command = option(command)
    return command


def _parts(plan: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """The plan in one part per call; no part ends within a cluster that is one question."""
    begin = 0
    while begin < len(plan):
        end = min(begin + _AT_ONCE, len(plan))
        while (
            end < len(plan)
            and plan[end]["action"] == "ask"
            and plan[end]["cluster"] == plan[end - 1]["cluster"]
        ):
            end += 1
        yield plan[begin:end]
        begin = end


@click.command()
@_bucket_options
def sweep(dsn: str | None, tenant: str, bucket: str, embedding_model: str | None, dry_run: bool) -> None:
    """Merge duplicates that are already stored.

    Does to stored memories what ingest would do if they arrived now, by the policy's thresholds, scope and guard: similar
    pairs with a clean guard are merged, unclear ones are queued for a judge. All of it belongs to one run, which memfold
    undo --run undoes.

    \b
    memfold sweep --tenant acme --bucket notes --dry-run
    memfold sweep --tenant acme --bucket notes
    """
    given: dict[str, object] = {"tenant": tenant, "bucket": bucket, "model": embedding_model}
    run: object = None
    done: Counter[str] = Counter()
    tell = progress("looking for duplicates")
    with _connected(dsn, tenant, bucket) as connection:
        while True:
            plan = _call(connection, _SWEEP, **given, dry_run=True, max=1_000_000, ids=None, run=None)
            if dry_run:
                _plan(plan)
                pairs = _call(connection, _PAIRS, **given)
                for row in pairs:
                    show(f"pairs at or above {row['threshold']:g}: {row['pairs']}")
                report({"plan": plan, "pairs": pairs})
                return
            plan = [row for row in plan if row["action"] != "keep"]
            before = done.total()
            for part in _parts(plan):
                ids = sorted({row[name] for row in part for name in ("memory_id", "representative_id")})
                for row in _call(connection, _SWEEP, **given, dry_run=False, max=1000, ids=ids, run=run):
                    run = row["run_id"]
                    done[row["action"]] += row["action"] != "keep"
                tell(f"{done.total():,} of {before + len(plan):,} memories")
            # the remaining memories may now be near one another
            if done.total() == before:
                break
        if run is None:
            show("nothing to do")
        report({"run": None if run is None else _overview(connection, run)})


@click.command()
@_bucket_options
@click.option(
    "--threshold", type=click.FloatRange(0, 1), help="Cosine of a cluster; default: the policy's (0.75)."
)
@click.option(
    "--approval", type=click.Choice(["judge", "person"]), default="judge", help="Who answers; default: judge."
)
@click.option(
    "--max", "most", type=click.IntRange(1, 1_000_000), default=1000, help="Pairs per run; default: 1000."
)
@click.option(
    "--max-judgements",
    type=click.IntRange(1, 1_000_000),
    default=1000,
    help="Pairs for a model; default: 1000.",
)
def consolidate(
    dsn: str | None,
    tenant: str,
    bucket: str,
    embedding_model: str | None,
    dry_run: bool,
    threshold: float | None,
    approval: str,
    most: int,
    max_judgements: int,
) -> None:
    """Ask about similar memories of one subject.

    Their predicates may differ. Prints the run, whose questions are answered by memfold judge, or (--approval person)
    by memfold review, or all together by memfold web and approve_run().

    \b
    memfold consolidate --tenant acme --dry-run
    memfold consolidate --tenant acme --approval person
    """
    progress("comparing memories")
    with _connected(dsn, tenant, bucket) as connection:
        rows = _call(
            connection, _CONSOLIDATE, tenant=tenant, bucket=bucket, model=embedding_model, threshold=threshold,
            approval=approval, max=most, max_judgements=max_judgements, dry_run=dry_run,
        )  # fmt: skip
        if dry_run or not rows:
            _plan(rows)
            report({"plan": rows} if dry_run else {"run": None})
        else:
            report({"run": _overview(connection, rows[0]["run_id"])})
