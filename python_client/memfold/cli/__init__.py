"""The command line. What it prints on stdout is for programs and people; all else goes to stderr."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from memfold._text import escape_line
from memfold._version import __version__
from memfold.admin import migrate, server
from memfold.cli import (
    _adopt,
    _calibrate,
    _doctor,
    _export,
    _files,
    _judge,
    _maintenance,
    _mcp,
    _reembed,
    _search,
)
from memfold.cli._npz import read_vectors
from memfold.cli._shared import (
    FILE,
    PATH,
    Group,
    dsn_option,
    fail,
    open_client,
    say,
    say_lines,
    show,
    show_lines,
    table_of,
    tenant_option,
)
from memfold.embedding import OpenAIEmbedder
from memfold.errors import MemfoldError

__all__ = ["main"]


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="memfold")
def main() -> None:
    """Fold duplicate memories of AI agents into one, inside PostgreSQL.

    \b
    memfold up                        start the embedded server, install memfold in it, print its DSN
    memfold ingest memories.jsonl     hand in candidates, one JSON object a line
    memfold judge --model NAME        have a model answer what is unclear
    memfold review                    answer it yourself
    memfold search QUERY              what an agent would be shown
    memfold explain MEMORY_ID         the whole life of a memory
    memfold mcp                       serve memories to agents that speak MCP
    memfold sweep --tenant ID         fold what is there twice already
    memfold calibrate MODEL           thresholds from labelled pairs and an error budget

    Commands that need a database take --dsn, else MEMFOLD_DSN, else the embedded server that runs.
    """


@main.command()
@click.option("--data", type=PATH, metavar="DIR", help="Where the server lives; default: the user's data.")
@click.option("--port", type=click.IntRange(1, 65535), help="Listen on 127.0.0.1 too, with a password.")
def up(data: Path | None, port: int | None) -> None:
    """Start the embedded PostgreSQL, or find it running, and install or upgrade memfold in it.

    Prints one line: the DSN.

    \b
    psql "$(memfold up)" -c "select * from ingest_memory('Alice has a cat.', 'acme')"
    """
    say("starting the server ...")
    dsn = server.up(data, port)
    say("installing memfold ...")
    revision = migrate.install(dsn)
    migrate.set_search_path(dsn)
    say(f"ready: memfold {__version__} (revision {revision})")
    click.echo(dsn)  # to be used as it is


@main.command()
@click.option("--data", type=PATH, metavar="DIR", help="As for up.")
def down(data: Path | None) -> None:
    """Stop the embedded server; its data stay.

    \b
    memfold down
    """
    say("stopped" if server.down(data) else "no server was running")


@main.command()
@click.argument("dsn", required=False)
@click.option(
    "--citus",
    is_flag=True,
    help="Distribute memfold over the nodes of this Citus coordinator (contrib/citus/README.md).",
)
@click.option("--set-search-path", is_flag=True, help="Append memfold to the database's search_path.")
@click.option(
    "--sql", "print_sql", is_flag=True, help="Print the SQL instead; without a DSN, for a new database."
)
def init(dsn: str | None, citus: bool, set_search_path: bool, print_sql: bool) -> None:
    """Install memfold in the database DSN, or bring it up to date. Safe to repeat, and from many at once.

    Needs PostgreSQL 15 or newer with pgvector 0.8 or newer, and no file on the server. It never makes others
    wait for long: where a lock is not to be had at once, it gives way and tries again, for two minutes.

    \b
    memfold init postgresql://owner@db.example.com/agents --set-search-path
    memfold init postgresql://owner@db.example.com/agents --sql > review.sql
    psql -v ON_ERROR_STOP=1 -f review.sql postgresql://owner@db.example.com/agents
    """
    if print_sql:
        if citus:
            raise click.UsageError("--sql is for one server: psql -f contrib/citus/citus.sql distributes it")
        click.echo(migrate.script(dsn), nl=False)  # SQL, to be run as it is
        return
    if dsn is None:
        raise click.UsageError("say which database: memfold init DSN")
    revision = migrate.install(dsn, citus=citus)
    say(f"memfold {__version__} is installed (revision {revision})")
    if set_search_path:
        done = migrate.set_search_path(dsn)
        say("memfold is on the search_path" + (" of sessions to come" if done else " already"))
    elif statement := migrate.search_path_statement(dsn):
        say("to call its functions without the prefix memfold., run (or add --set-search-path):")
        show(f"{statement};")


@main.command()
@click.argument("file", type=FILE)
@dsn_option
@tenant_option("The tenant of lines that name none.")
@click.option("--bucket", metavar="ID", help="The bucket of lines that name none.")
@click.option(
    "--vectors", type=FILE, metavar="FILE.npz", help="Vectors of the texts (arrays texts, vectors)."
)
@click.option("--model", help="The name of the model that made --vectors.")
@click.option(
    "--embed-url", metavar="URL", help="An OpenAI-compatible endpoint, such as http://host:8080/v1."
)
@click.option("--embed-model", metavar="NAME", help="The model to ask there (or at OpenAI, without a URL).")
@click.option(
    "--resume/--no-resume", default=True, help="Go on where an interrupted run stopped (the default)."
)
@click.option("--state", type=PATH, metavar="FILE", help="Remembers that; default: FILE.memfold-state.")
def ingest(
    file: Path,
    dsn: str | None,
    tenant: str | None,
    bucket: str | None,
    vectors: Path | None,
    model: str | None,
    embed_url: str | None,
    embed_model: str | None,
    resume: bool,
    state: Path | None,
) -> None:
    """Hand in candidates from FILE: one JSON object a line, its fields the arguments of ingest_memory.

    Lines that are refused are reported with their number, and the rest goes on; exit code 1 says that there
    were some. Every line carries an idempotency key made of the file and its number, so that no line counts
    twice, however often a run is interrupted or repeated.

    \b
    memfold ingest memories.jsonl --tenant acme --embed-model text-embedding-3-small
    memfold ingest memories.jsonl --tenant acme --vectors vectors.npz --model all-MiniLM-L6-v2
    """
    if (vectors is None) != (model is None):
        raise click.UsageError("--vectors and --model go together")
    if vectors is not None and embed_model is not None:
        raise click.UsageError("give --vectors or --embed-model, not both")
    if embed_url is not None and embed_model is None:
        raise click.UsageError("--embed-url needs --embed-model")
    embedder = OpenAIEmbedder(embed_model, embed_url) if embed_model is not None else None
    try:
        stored = read_vectors(vectors) if vectors is not None else None
    except ValueError as error:
        fail(str(error))
    with open_client(dsn, embedder, tenant) as client:
        run = _files.Ingestion(
            client,
            file,
            tenant=tenant,
            bucket=bucket,
            vectors=stored,
            model=model,
            state=state or file.with_name(file.name + ".memfold-state"),
            resume=resume,
        )
        if run.start:
            say(f"going on after line {run.start}, where an earlier run stopped")
        try:
            with click.progressbar(length=run.lines, label=escape_line(file.name), file=sys.stderr) as bar:
                bar.update(run.start)
                for number, problem in run:
                    bar.update(1)
                    if problem is not None:
                        say_lines(f"{escape_line(file.name)}:{number}: {problem}", begin="\r")
        except MemfoldError as error:
            hint = f"Lines up to {run.line} are in. Run the same command again to go on."
            fail(f"{error}\n{hint}")
    show_lines(table_of(["action", "tier", "method", "lines"], run.summary()))
    if run.replayed:
        show(f"{run.replayed} of {run.lines} lines are replays: they were in before, nothing was written")
    if run.without_vector:
        say(f"{run.without_vector} lines had no vector and wait in pending_embeddings")
    if run.errors:
        fail(f"{run.errors} of {run.lines} lines were refused")


@main.command()
@click.argument("memory_id")
@dsn_option
@tenant_option("The tenant of the memory; a superuser may leave it out.")
def explain(memory_id: str, dsn: str | None, tenant: str | None) -> None:
    """Print the whole life of a memory: its text, aliases, judgements and ledger.

    \b
    memfold explain 0193b1a2-7c30-7f00-8a4e-0123456789ab --tenant acme
    """
    with open_client(dsn) as client:
        for line in client._drive(client._core.explain_lines(memory_id, tenant)):
            show(line)


@main.command()
@dsn_option
@tenant_option("Only this tenant; other roles than superusers see one tenant only.")
def stats(dsn: str | None, tenant: str | None) -> None:
    """Print what deduplication did, a bucket a line.

    \b
    memfold stats --tenant acme
    """
    with open_client(dsn) as client:
        buckets = client.stats(tenant)
    if not buckets:
        say("no memories" + ("" if tenant else "; a role that is no superuser must name its --tenant"))
        return
    head = ["tenant", "bucket", "observed", "active", "tier 1", "tier 2", "tier 3", "escalated", "superseded"]
    head += ["pending", "open", "folded"]
    rows: list[list[object]] = []
    for one in buckets:
        rows.append([one.tenant_id, one.bucket_id, one.observations, one.active, one.tier_1_merges])
        rows[-1] += [one.tier_2_merges, one.tier_3_merges, one.escalated, one.supersessions]
        rows[-1] += [one.pending_embeddings, one.open_judgements, f"{one.fold_rate or 0:.0%}"]
    show_lines(table_of(head, rows))
    for one in buckets:
        if one.warning is not None:
            say(f"warning: tenant {one.tenant_id}, bucket {one.bucket_id}: {one.warning}")


for _command in (
    _adopt.adopt,
    _adopt.import_,
    _calibrate.calibrate,
    _doctor.doctor,
    _export.archive,
    _export.export,
    _export.restore,
    _judge.judge,
    _judge.review,
    _mcp.mcp,
    _reembed.reembed_command,
    _search.search,
    _maintenance.approve,
    _maintenance.consolidate,
    _maintenance.sweep,
    _maintenance.undo_run,
    _maintenance.maintenance,
):
    main.add_command(_command)
