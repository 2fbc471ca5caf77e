"""The commands that adopt a table in place: adopt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memfold import adopt as adopting
from memfold.adopt import Options
from memfold.tools.cli._shared import (
    PATH,
    F,
    dsn_option,
    json_option,
    progress,
    report,
    resolve,
    say,
    say_lines,
    show,
    show_lines,
    wants_json,
)


def _adopter(dsn: str | None) -> adopting.Adopter:
    """It reports each step; the last report stays visible, with the time."""
    where = resolve(dsn)
    tell = progress("reading the table")

    def told(line: str) -> None:
        say(line)
        tell(line)

    return adopting.Adopter(where, told)


@click.group(invoke_without_command=False)
def adopt() -> None:
    """Deduplicate a table of your own.

    Its writers continue. Six steps: 1 a nullable column, 2 writers hash (a trigger), 3 backfill, 4 duplicates, 5 a
    unique index, 6 an insert function. Each can be interrupted, even by kill -9, and run again. Run it as the table's owner.

    \b
    memfold adopt plan --table public.memories --content content --tenant tenant_id --bucket bucket_id
    memfold adopt run --table public.memories --content content --tenant tenant_id --bucket bucket_id
    memfold adopt run --table public.memories --confirm
    memfold adopt status
    """


_TABLE = click.option("--table", required=True, metavar="NAME", help="The table, such as public.memories.")
_TABLE_OR_NONE = click.option("--table", metavar="NAME", help="Only this table.")


def _definition_options(command: F) -> F:
    for option in reversed(
        [
            click.option(
                "--content", metavar="EXPR", help="The text: a column, or an expression over the row."
            ),
            click.option("--tenant", metavar="EXPR", help="The tenant; rows where it is null are left out."),
            click.option(
                "--bucket",
                metavar="EXPR",
                help="The bucket; rows where it is null are left out. Default: one bucket.",
            ),
            click.option("--id", "key", metavar="COLUMN", help="A unique column; default: the primary key."),
            click.option(
                "--created",
                metavar="EXPR",
                help="The time that decides which row is the oldest; default: its key.",
            ),
            click.option("--where", metavar="EXPR", help="Which rows are deduplicated; default: all."),
            click.option(
                "--profile",
                type=click.Choice(["prose", "flat", "code", "exact"]),
                help="How texts are compared; default: prose.",
            ),
            click.option("--hash-column", metavar="NAME", help="The new column; default: content_hash."),
        ]
    ):
        command = option(command)
    return command


def _gentle_options(command: F) -> F:
    usual = Options()
    for option in reversed(
        [
            click.option(
                "--batch-time",
                type=click.FloatRange(1, 10_000),
                default=usual.batch_time * 1000,
                metavar="MS",
                help="How long a batch may hold its locks; default: 50.",
            ),
            click.option(
                "--batch",
                type=click.IntRange(1),
                metavar="N",
                help="Rows per batch; default: by --batch-time.",
            ),
            click.option(
                "--rate", type=click.FloatRange(1), metavar="N", help="At most this many rows per second."
            ),
            click.option(
                "--max-lag",
                type=click.FloatRange(0.1),
                default=usual.max_lag,
                metavar="S",
                help="Wait while a standby is further behind, in seconds; default: 10.",
            ),
            click.option(
                "--max-lag-mb",
                type=click.FloatRange(0.1),
                default=usual.max_lag_bytes / 1048576,
                metavar="MB",
                help="The same in megabytes of WAL; default: 64.",
            ),
            click.option("--ignore-lag", is_flag=True, help="Ignore standbys."),
            click.option(
                "--lock-timeout",
                type=click.FloatRange(1, 10_000),
                default=usual.lock_timeout * 1000,
                metavar="MS",
                help="How long others may have to queue behind a lock that the run waits for; default: 100.",
            ),
            click.option(
                "--patience",
                type=click.FloatRange(1),
                default=usual.patience,
                metavar="S",
                help="How long to keep trying for a lock; default: 600.",
            ),
            click.option(
                "--statement-timeout",
                type=click.FloatRange(0),
                default=0.0,
                metavar="S",
                help="Limit for each statement, including the index build; default: none.",
            ),
            click.option(
                "--trust-owner",
                is_flag=True,
                help="As a superuser: run the triggers and checks of another role's table.",
            ),
        ]
    ):
        command = option(command)
    return command


_ABSORB = click.option(
    "--absorb/--no-absorb",
    default=None,
    help="After step 6: an INSERT of a known text succeeds without its row, and is counted. Default: it fails.",
)


def _gently(given: dict[str, Any]) -> Options:
    return Options(
        lock_timeout=given["lock_timeout"] / 1000,
        patience=given["patience"],
        batch_time=given["batch_time"] / 1000,
        batch=given["batch"],
        rate=given["rate"],
        max_lag_bytes=int(given["max_lag_mb"] * 1048576),
        max_lag=given["max_lag"],
        ignore_lag=given["ignore_lag"],
        statement_timeout=given["statement_timeout"],
        trust_owner=given["trust_owner"],
    )


_EXPRESSIONS = ("content", "tenant", "bucket", "created", "where")


@adopt.command("plan")
@dsn_option
@_TABLE
@_definition_options
@_gentle_options
@_ABSORB
@json_option
def adopt_plan(dsn: str | None, table: str, absorb: bool | None, **given: Any) -> None:
    """Print the SQL of all steps, and their locks.

    Includes an estimate of the time. Changes nothing.

    \b
    memfold adopt plan --table public.mem0 --content "payload->>'data'" --tenant "payload->>'user_id'"
    """
    with _adopter(dsn) as adopter:
        definition, known = _define(adopter, table, given)
        lines = list(adopter.plan(definition, known, _gently(given), absorb=absorb))
    for line in lines:
        show_lines(line)
    report({"table": table, "plan": lines})


def _define(adopter: adopting.Adopter, table: str, given: dict[str, Any]) -> Any:
    return adopter.define(
        table,
        {name: given[name] for name in _EXPRESSIONS},
        key=given["key"],
        profile=given["profile"],
        hash_column=given["hash_column"],
    )


@adopt.command("run")
@dsn_option
@_TABLE
@_definition_options
@_gentle_options
@click.option("--step", type=click.IntRange(1, 6), help="Only this step, which must be the next one.")
@click.option("--confirm", is_flag=True, help="Let step 4 archive duplicates, and continue.")
@click.option("--dry-run", is_flag=True, help="At step 4: report what it would do, and stop.")
@click.option(
    "--csv",
    "csv",
    type=PATH,
    metavar="FILE",
    help="At step 4: write each row to be archived to this file, with the texts.",
)
@_ABSORB
@json_option
def adopt_run(
    dsn: str | None,
    table: str,
    step: int | None,
    confirm: bool,
    dry_run: bool,
    csv: Path | None,
    absorb: bool | None,
    **given: Any,
) -> None:
    """Run the remaining steps.

    Stops at step 4 with a report of the duplicates, until you confirm it.

    Give the options that describe the table once; afterwards --table is enough.

    \b
    memfold adopt run --table public.memories --content content --tenant tenant_id --created created_at
    memfold adopt run --table public.memories --step 4 --dry-run --csv duplicates.csv
    memfold adopt run --table public.memories --confirm
    memfold adopt run --table public.memories --absorb
    """
    with _adopter(dsn) as adopter:
        definition, known = _define(adopter, table, given)
        state = adopter.run(
            definition,
            known,
            _gently(given),
            only=step,
            confirm=confirm,
            dry_run=dry_run,
            absorb=absorb,
            report=csv,
            show=say_lines if wants_json() else show_lines,
        )
        report(_standing(state, None))
        if state.step == 6:
            then = "with a plain INSERT: a known text is absorbed" if state.absorbs else "catch 23505"
            show(f"{definition.table} is adopted. Insert with memfold.insert_{state.name}(...), or {then}.")


@adopt.command("status")
@dsn_option
@_TABLE_OR_NONE
@json_option
def adopt_status(dsn: str | None, table: str | None) -> None:
    """Show the state of each adoption.

    \b
    memfold adopt status
    """
    with _adopter(dsn) as adopter:
        if table is not None:
            wanted = adopter.known(table)
        found = [
            (one, pid)
            for one, pid in adopter.status()
            if table is None or (one.table_schema, one.table_name) == (wanted.table_schema, wanted.table_name)
        ]
    report({"adoptions": [_standing(one, pid) for one, pid in found]})
    if not found:
        say("no table has been adopted")
    for one, pid in found:
        for line in one.describe(pid):
            show(line)


def _standing(one: Any, pid: int | None) -> dict[str, Any]:
    """The state of an adoption, for --json."""
    return {
        "table": f"{one.table_schema}.{one.table_name}",
        "step": one.step,
        "confirmed": one.confirmed,
        "paused": one.paused,
        "pid": pid,
        "lines": list(one.describe(pid)),
    }


@adopt.command("pause")
@dsn_option
@_TABLE
@json_option
def adopt_pause(dsn: str | None, table: str) -> None:
    """Stop the table's run between two batches.

    \b
    memfold adopt pause --table public.memories
    """
    with _adopter(dsn) as adopter:
        running = adopter.pause(table)
    report({"table": table, "running": bool(running)})
    say("the run stops after its current batch" if running else "no run is active; the next one continues")


@adopt.command("undo")
@dsn_option
@_TABLE
@_gentle_options
@click.option("--restore", is_flag=True, help="After step 4: also put the archived rows back.")
@json_option
def adopt_undo(dsn: str | None, table: str, restore: bool, **given: Any) -> None:
    """Undo an adoption.

    Removes the column, triggers, functions and index, so that everything is as it was.

    \b
    memfold adopt undo --table public.memories
    """
    with _adopter(dsn) as adopter:
        rows, references = adopter.undo(table, _gently(given), put_back=restore)
    report({"table": table, "rows": rows, "references": references})
    say("undone" + (f": {rows:,} rows are back, {references:,} references point to them" if restore else ""))
