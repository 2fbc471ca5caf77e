"""The command that imports the rows of a table that is not memfold's: import."""

from __future__ import annotations

import time

import click

from memfold import adopt as adopting
from memfold.client._text import escape_line
from memfold.client.embedding import OpenAIEmbedder
from memfold.client.errors import ConnectionLostError
from memfold.tools.cli._shared import (
    dsn_option,
    fail,
    json_option,
    open_client,
    report,
    resolve,
    say,
    say_lines,
    show_lines,
    table_of,
)


@click.command("import")
@dsn_option
@click.option("--from", "source", metavar="DSN", help="The database of the table; default: that of memfold.")
@click.option("--table", required=True, metavar="NAME", help="The table or view, such as public.memories.")
@click.option(
    "--content", required=True, metavar="EXPR", help="The text: a column, or an expression over the row."
)
@click.option("--tenant", required=True, metavar="EXPR", help="The tenant; a constant is quoted: \"'acme'\".")
@click.option("--bucket", metavar="EXPR", help="The bucket; default: default.")
@click.option("--id", "key", metavar="COLUMN", help="A unique column; default: the primary key.")
@click.option("--created", metavar="EXPR", help="When it was observed; default: now.")
@click.option("--where", metavar="EXPR", help="Which rows; default: all.")
@click.option("--type", metavar="EXPR", help="The memory type; default: fact.")
@click.option("--subject", metavar="EXPR", help="The subject.")
@click.option("--predicate", metavar="EXPR", help="The predicate.")
@click.option("--object", metavar="EXPR", help="The object.")
@click.option("--session", metavar="EXPR", help="The session.")
@click.option("--metadata", metavar="EXPR", help="A JSON object.")
@click.option("--embedding", metavar="EXPR", help="A vector, or an array of numbers.")
@click.option(
    "--embedding-model", metavar="NAME", help="The model that made --embedding; it must be registered."
)
@click.option("--embed-url", metavar="URL", help="An OpenAI-compatible endpoint that embeds new texts.")
@click.option("--embed-model", metavar="NAME", help="The model to ask there (or at OpenAI, without a URL).")
@json_option
def import_(
    dsn: str | None,
    source: str | None,
    table: str,
    key: str | None,
    embedding_model: str | None,
    embed_url: str | None,
    embed_model: str | None,
    **given: str | None,
) -> None:
    """Ingest the rows of another table.

    Each is one observation that names its row as its source. The table does not change. Refused rows are reported, and
    the run continues; the exit code is then 1. An interrupted run continues where it stopped: no row counts twice.

    \b
    memfold import --table public.memories --content content --tenant tenant_id --created created_at
    memfold import --table public.mem0 --content "payload->>'data'" --tenant "payload->>'user_id'"
    """
    if embed_url is not None and embed_model is None:
        raise click.UsageError("--embed-url needs --embed-model")
    if embed_model is not None and embedding_model is not None:
        raise click.UsageError("give --embedding or --embed-model, not both")
    where = resolve(dsn)
    embedder = OpenAIEmbedder(embed_model, embed_url) if embed_model is not None else None
    with open_client(where, embedder) as client:
        run = adopting.Import(
            client,
            where,
            where if source is None else resolve(source),
            table,
            given,
            key=key,
            embedding_model=embedding_model,
        )
        try:
            told = time.monotonic()
            for shown, problem in run:
                if problem is not None:
                    say_lines(f"{escape_line(f'{run.table} {shown}')}: {problem}")
                if time.monotonic() - told > 2:
                    told = time.monotonic()
                    say(f"{run.rows:,} rows" + (f" of about {run.total:,.0f}" if run.total else ""))
        except ConnectionLostError as error:
            fail(f"{error}\n{run.rows} rows are done. Run the same command again to continue.")
        finally:
            run.close()
    show_lines(table_of(["action", "tier", "method", "rows"], run.summary()))
    names = ("action", "tier", "method", "rows")
    report(
        {
            "rows": run.rows,
            "refused": run.errors,
            "known": run.known,
            "counts": [dict(zip(names, row, strict=True)) for row in run.summary()],
        }
    )
    if run.known:
        say(f"{run.known:,} of {run.rows:,} rows were ingested before")
    if run.errors:
        fail(f"{run.errors:,} of {run.rows:,} rows were refused")
