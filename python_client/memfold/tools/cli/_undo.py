"""``memfold undo``: undo one event of the ledger, a whole run, or what one role has done."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import click

from memfold.tools.cli._maintenance import _call, _connected, _overview
from memfold.tools.cli._shared import (
    dsn_option,
    json_option,
    open_client,
    progress,
    report,
    show,
    show_lines,
    table_of,
    tenant_option,
)

_UNDO_RUN = "select * from memfold.undo_run(%(run)s, reason => %(reason)s)"
_UNDO_ACTOR = (
    "select * from memfold.undo_actor(%(actor)s, %(since)s, dry_run => not %(yes)s, reason => %(reason)s)"
)


@click.command()
@click.argument("event_id", type=click.UUID, required=False)
@click.option("--run", "run_id", type=click.UUID, metavar="RUN_ID", help="Undo a whole run instead.")
@click.option("--actor", metavar="ROLE", help="Undo what this role has stated, decided and undone.")
@click.option("--since", metavar="TIME", help="With --actor: from when on, such as 2026-11-28T09:00Z.")
@click.option("--yes", is_flag=True, help="With --actor: do it, do not only show it.")
@dsn_option
@tenant_option("The tenant of the event or run; default: the session's.")
@click.option("--reason", metavar="TEXT", help="The reason; the ledger keeps it.")
@json_option
def undo(
    event_id: UUID | None,
    run_id: UUID | None,
    actor: str | None,
    since: str | None,
    yes: bool,
    dsn: str | None,
    tenant: str | None,
    reason: str | None,
) -> None:
    """Undo one event, a whole run, or what one role has done.

    An event is a merge, a supersession, a rejection or a restatement. Undo events in any order: nothing is deleted, and
    an undo can be undone. memfold explain shows the events of a memory. --run undoes everything that a run of sweep,
    consolidate or the like did, or an earlier undo of many. --actor undoes all that a role has done since a time.
    Prints the affected memories as they are now.

    \b
    memfold undo 0193b1a2-7c30-7f00-8a4e-0123456789ab --tenant acme --reason "not the same cat"
    memfold undo --run 0193b1a2-7c30-7f00-8a4e-0123456789ab --tenant acme --reason "threshold too low"
    memfold undo --actor acme_agent --since 2026-11-28T09:00Z --tenant acme
    """
    if (
        [event_id, run_id, actor].count(None) != 2
        or (actor is None) != (since is None)
        or (yes and not actor)
    ):
        raise click.UsageError("give EVENT_ID, or --run RUN_ID, or --actor ROLE --since TIME")
    if event_id is not None:
        with open_client(dsn, tenant=tenant) as client:
            memories = client.undo(event_id, reason)
        report({"memories": memories})
        rows: list[list[Any]] = [
            [one.status, one.memory_id, " ".join(one.content.split())] for one in memories
        ]
        show_lines(table_of(["status", "memory", "content"], rows))
        return
    progress("undoing")
    with _connected(dsn, tenant) as connection:
        if actor is not None:
            found = _call(connection, _UNDO_ACTOR, actor=actor, since=since, yes=yes, reason=reason)
            run_id = found[0]["run_id"] if found else None
        else:
            found = _call(connection, _UNDO_RUN, run=run_id, reason=reason)
        counts = Counter(row["status"] for row in found)
        show(
            ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "no memory has changed"
        )
        if actor is not None and found and not yes:
            show("nothing has changed yet; to do it, repeat the command with --yes")
        report({"run": _overview(connection, run_id) if run_id else None, "memories": found})
