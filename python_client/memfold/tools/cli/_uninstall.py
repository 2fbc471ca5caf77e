"""``memfold uninstall``: remove memfold from a database, with all its data."""

from __future__ import annotations

import click

from memfold.tools.admin.uninstall import uninstall
from memfold.tools.cli._shared import dsn_option, json_option, progress, report, resolve, say


@click.command("uninstall")
@dsn_option
@click.option(
    "--drop",
    "name",
    metavar="DATABASE",
    required=True,
    help="The name of the database, as a confirmation.",
)
@json_option
def uninstall_command(dsn: str | None, name: str) -> None:
    """Drop memfold and every memory from a database.

    Its schemas or its extension, jobs of pg_cron, its place in search_path, and the roles where no other database of the
    cluster uses them. It refuses while a table is adopted, or something of yours is built on memfold's objects. pgvector
    stays. To keep the memories, memfold export each bucket first.

    \b
    memfold uninstall --dsn postgresql://owner@db.example.com/agents --drop agents
    """
    progress("removing memfold")
    removed = uninstall(resolve(dsn), database=name)
    report(
        {"database": removed.database, "roles": list(removed.roles), "kept_roles": list(removed.kept_roles)}
    )
    say(f"memfold was removed from {removed.database}")
    if removed.kept_roles:
        why = "something else depends on them or this role may not drop them"
        say(f"its roles stay, because {why}: {', '.join(removed.kept_roles)}")
