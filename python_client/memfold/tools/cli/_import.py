"""The command that imports memories that are not memfold's, from a file or a table: import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memfold import adopt as adopting
from memfold.client._text import escape_line
from memfold.client.calls import Memfold
from memfold.client.errors import ConnectionLostError
from memfold.tools.cli._embedding import embed_options, make_embedder
from memfold.tools.cli._formats import FORMATS, FileSource
from memfold.tools.cli._import_run import Run, Trial
from memfold.tools.cli._shared import (
    FILE,
    dsn_option,
    fail,
    json_option,
    open_client,
    progress,
    report,
    resolve,
    say,
    say_lines,
    show_lines,
    table_of,
)

_FIELDS = {
    "content": "content",
    "created": "observed_at",
    "type": "memory_type",
    "subject": "subject",
    "predicate": "predicate",
    "object": "object",
    "session": "session_id",
    "metadata": "metadata",
    "embedding": "embedding",
    "id": "id",
}
"""Option -> the argument of ingest that the field of a file becomes."""


@click.command("import")
@click.argument("file", type=FILE, required=False)
@dsn_option
@click.option(
    "--tenant", metavar="ID", required=True, help="The tenant; with --table an expression: \"'acme'\"."
)
@click.option("--bucket", metavar="ID", help="The bucket; with --table an expression. Default: default.")
@click.option(
    "--bucket-from", metavar="FIELD", help="With FILE: the field that names the bucket, such as user_id."
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(FORMATS)),
    help="The format of FILE; default: detected.",
)
@click.option("--dry-run", is_flag=True, help="Print what would happen and change nothing.")
@click.option("--table", metavar="NAME", help="Import a table or view, such as public.memories, instead.")
@click.option("--from", "source", metavar="DSN", help="The database of the table; default: that of memfold.")
@click.option("--where", metavar="EXPR", help="Which rows of the table; default: all.")
@click.option(
    "--content", metavar="NAME", help="The text: a field; with --table, as all of these, an expression."
)
@click.option("--id", "key", metavar="NAME", help="A unique field; of a table, by default the primary key.")
@click.option("--created", metavar="NAME", help="When it was observed; default: now.")
@click.option("--type", metavar="NAME", help="The memory type; default: fact.")
@click.option("--subject", metavar="NAME", help="The subject.")
@click.option("--predicate", metavar="NAME", help="The predicate.")
@click.option("--object", metavar="NAME", help="The object.")
@click.option("--session", metavar="NAME", help="The session.")
@click.option("--metadata", metavar="NAME", help="A JSON object.")
@click.option("--embedding", metavar="NAME", help="A vector, or an array of numbers.")
@click.option(
    "--embedding-model", metavar="NAME", help="The model that made the vectors; it must be registered."
)
@embed_options
@json_option
def import_(
    file: Path | None,
    dsn: str | None,
    tenant: str,
    bucket: str | None,
    bucket_from: str | None,
    format_: str | None,
    dry_run: bool,
    table: str | None,
    source: str | None,
    where: str | None,
    key: str | None,
    embedding_model: str | None,
    embed_url: str | None,
    embed_model: str | None,
    embed_path: str | None,
    **given: str | None,
) -> None:
    """Ingest the memories of a file, or the rows of a table.

    FILE (- is stdin) is the memory file of MCP's memory server, an export or table of mem0, the items of a LangGraph store,
    facts of Zep or Graphiti, other JSON, a CSV file with a header, or one text per line. Prints what became of the
    records, and which fields are not mapped. Fields that match no argument go into the metadata.

    Each record or row is one observation that names its source. Refused ones are reported, and the run continues; the
    exit code is then 1. It can be interrupted and repeated: no row counts twice. --dry-run does everything in one
    transaction that it rolls back; until then, writers of the same buckets wait.

    \b
    memfold import memory.jsonl --tenant acme --dry-run
    memfold import mem0.json --tenant acme --bucket-from user_id --embed-model text-embedding-3-small
    memfold import notes.csv --tenant acme --content note --created written_at
    memfold import --table public.memories --content content --tenant tenant_id --created created_at
    """
    if (file is None) == (table is None):
        raise click.UsageError("give FILE or --table")
    foreign = (
        {"--from": source, "--where": where} if file else {"--bucket-from": bucket_from, "--format": format_}
    )
    if wrong := [name for name, value in foreign.items() if value is not None]:
        raise click.UsageError(f"{' and '.join(wrong)} cannot be used with {'FILE' if file else '--table'}")
    embedder = make_embedder(embed_url, embed_model, embed_path)
    if embedder is not None and embedding_model is not None:
        raise click.UsageError("give --embedding-model or a model that embeds, not both")
    database = resolve(dsn)
    found: Any
    if file is not None:
        named = {_FIELDS[name]: value for name, value in {**given, "id": key}.items() if value is not None}
        found = FileSource(
            file,
            tenant=tenant,
            format=format_,
            names=named,
            bucket=bucket or "default",
            bucket_from=bucket_from,
            model=embedding_model,
        )
        say(f"{found.name}: {FORMATS[found.format].about} (--format {found.format})")
    with open_client(dsn, embedder, kind=Trial if dry_run else Memfold) as client:
        if file is None:
            found = adopting.Rows(
                database if source is None else resolve(source),
                str(table),
                {**given, "tenant": tenant, "bucket": bucket, "where": where},
                key=key,
                embedding_model=embedding_model,
            )
        run = Run(client, found)
        of = f" of about {found.total:,.0f}" if found.total else ""
        tell = progress()
        try:
            for shown, problem in run:
                tell(f"{run.rows:,}{of} rows")
                if problem is not None:
                    say_lines(f"{escape_line(f'{found.name} {shown}')}: {problem}")
        except ConnectionLostError as error:
            fail(f"{error}\n{run.rows} rows are done. Run the same command again to continue.")
        finally:
            if file is None:
                found.close()
    unmapped = found.unmapped if file is not None else {}
    _report(run, dict(unmapped), dry_run)


def _report(run: Run, unmapped: dict[str, int], dry_run: bool) -> None:
    names = ("action", "tier", "method", "rows")
    show_lines(table_of(names, run.summary()))
    if unmapped:
        show_lines("\n" + table_of(["not mapped", "rows"], sorted(unmapped.items())))
    report(
        {
            "dry_run": dry_run,
            "rows": run.rows,
            "refused": run.errors,
            "known": run.known,
            "counts": [dict(zip(names, row, strict=True)) for row in run.summary()],
            "unmapped": unmapped,
        }
    )
    if run.known:
        say(f"{run.known:,} of {run.rows:,} rows were ingested before")
    if dry_run:
        say("nothing has changed; to import, repeat the command without --dry-run")
    if run.errors:
        fail(f"{run.errors:,} of {run.rows:,} rows were refused")
