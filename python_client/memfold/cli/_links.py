"""``memfold links``: shows names of a bucket that may mean the same, or asks a judge or a person about them."""

from __future__ import annotations

import click

from memfold.cli._shared import (
    dsn_option,
    json_option,
    open_client,
    report,
    say,
    show,
    show_lines,
    table_of,
    tenant_option,
)
from memfold.cli._status import warn_if_empty


@click.command()
@dsn_option
@tenant_option("The tenant of the bucket; default: the session's.")
@click.option("--bucket", metavar="ID", default="default", help="The bucket; default: default.")
@click.option("--ask", is_flag=True, help="Queue them as questions, for memfold judge, review --all or web.")
@click.option(
    "--max", "most", type=click.IntRange(1, 1000), default=20, show_default=True, help="At most this many."
)
@json_option
def links(dsn: str | None, tenant: str | None, bucket: str, ask: bool, most: int) -> None:
    """Print names that may mean the same.

    Subjects and predicates, best first: the alias, and the name that would be stored in its place. Nothing is linked:
    link_subject() and link_predicate() do that, or the answer to a question (--ask). A pair is asked about once.

    \b
    memfold links --tenant acme --bucket notes
    memfold links --tenant acme --bucket notes --ask
    """
    with open_client(dsn, tenant=tenant) as client:
        if ask:
            asked = client.ask_links(bucket, max_questions=most)
            show(f"{asked} question{'s' * (asked != 1)} queued")
            report({"asked": asked})
            return
        found = client.suggest_links(bucket, max_results=most)
        if not found:
            say("no names that may mean the same")
            if tenant is not None:
                warn_if_empty(client, tenant, bucket)
    report({"links": found})
    head = ["kind", "alias", "name", "score", "shared facts", "why"]
    rows: list[list[object]] = [
        [
            one.kind,
            one.alias or "(no subject)",
            one.name,
            f"{one.score:.2f}",
            one.evidence.get("shared"),
            ", ".join(one.reasons),
        ]
        for one in found
    ]
    if rows:
        show_lines(table_of(head, rows))
