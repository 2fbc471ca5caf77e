"""``memfold undo``: undo one event of the ledger, or a whole maintenance run."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import click

from memfold.cli._maintenance import _call, _connected, _overview
from memfold.cli._shared import (
    dsn_option,
    json_option,
    open_client,
    report,
    show,
    show_lines,
    table_of,
    tenant_option,
)

_UNDO_RUN = "select * from memfold.undo_run(%(run)s, reason => %(reason)s)"


@click.command()
@click.argument("event_id", type=click.UUID, required=False)
@click.option("--run", "run_id", type=click.UUID, metavar="RUN_ID", help="Undo a whole run instead.")
@dsn_option
@tenant_option("The tenant of the event or run; default: the session's.")
@click.option("--reason", metavar="TEXT", help="The reason; the ledger keeps it.")
@json_option
def undo(
    event_id: UUID | None, run_id: UUID | None, dsn: str | None, tenant: str | None, reason: str | None
) -> None:
    """Undo one event, or a whole run.

    A merge, a supersession, a rejection or a restatement, no matter who made it, in any order; nothing is deleted.
    memfold explain shows the events of a memory. --run undoes everything that a run of sweep, consolidate or the like
    did. Prints the affected memories as they are now.

    \b
    memfold undo 0193b1a2-7c30-7f00-8a4e-0123456789ab --tenant acme --reason "not the same cat"
    memfold undo --run 0193b1a2-7c30-7f00-8a4e-0123456789ab --tenant acme --reason "threshold too low"
    """
    if (event_id is None) == (run_id is None):
        raise click.UsageError("give EVENT_ID or --run RUN_ID")
    if event_id is not None:
        with open_client(dsn, tenant=tenant) as client:
            memories = client.undo(event_id, reason)
        report({"memories": memories})
        rows: list[list[Any]] = [
            [one.status, one.memory_id, " ".join(one.content.split())] for one in memories
        ]
        show_lines(table_of(["status", "memory", "content"], rows))
        return
    with _connected(dsn, tenant) as connection:
        found = _call(connection, _UNDO_RUN, run=run_id, reason=reason)
        counts = Counter(row["status"] for row in found)
        show(
            ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "no memory has changed"
        )
        report({"run": _overview(connection, run_id), "memories": found})
