"""The command line. Results go to stdout, for programs and people; everything else goes to stderr."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import click

from memfold.client._dsn import environment_dsn
from memfold.client._text import escape_line
from memfold.client._version import __version__
from memfold.client.errors import MemfoldError
from memfold.tools.admin import migrate, server
from memfold.tools.cli import _files, _status
from memfold.tools.cli._embedding import embed_options, make_embedder
from memfold.tools.cli._npz import read_vectors
from memfold.tools.cli._shared import (
    FILE,
    PATH,
    Group,
    dsn_option,
    fail,
    file_name,
    is_stdin,
    json_option,
    one_stdin,
    open_client,
    progress,
    report,
    resolve,
    say,
    say_lines,
    show,
    show_lines,
    table_of,
    tenant_option,
    wants_json,
)

__all__ = ["main"]


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="memfold")
def main() -> None:
    """Fold duplicate memories of AI agents into one, inside PostgreSQL.

    \b
    memfold up                        start the embedded server, install memfold in it, print its DSN
    memfold ingest memories.jsonl     ingest candidates, one JSON object per line
    memfold judge --model NAME        let a model answer unclear cases
    memfold review                    answer them yourself
    memfold search QUERY              what an agent would be shown
    memfold explain MEMORY_ID         the complete history of a memory
    memfold mcp                       serve memories to agents that speak MCP
    memfold web                       view memories, judge and undo, in a browser
    memfold sweep --tenant ID         merge duplicates that are already stored
    memfold calibrate MODEL           thresholds from labelled pairs and an error budget

    Commands that need a database use --dsn, else MEMFOLD_DSN, else PGHOST and the like (PGSERVICE, PGDATABASE), else the
    running embedded server. A DSN is a URI, which may name an SQLAlchemy driver, or host=... dbname=...
    """


vector_index_option = click.option(
    "--vector-index",
    metavar="MODEL",
    multiple=True,
    help="Create the index of this embedding model, for buckets of more than 10,000 vectors. Can be repeated.",
)


def _make_indexes(dsn: str, models: tuple[str, ...]) -> None:
    for model in models:
        made = migrate.create_vector_index(dsn, model)
        say(f"index of {escape_line(model)}: " + ("created" if made else "already exists"))


@main.command()
@click.option("--data", type=PATH, metavar="DIR", help="Directory; default: in the user's data directory.")
@click.option("--port", type=click.IntRange(1, 65535), help="Also listen on 127.0.0.1, with a password.")
@click.option("--superuser", is_flag=True, help="Print the DSN of the superuser.")
@vector_index_option
@json_option
def up(data: Path | None, port: int | None, superuser: bool, vector_index: tuple[str, ...]) -> None:
    """Start the embedded PostgreSQL, with memfold in it.

    Uses a server that runs; installs or upgrades memfold, in a new database with the starter list of predicates. Prints
    one line, the DSN of a login that administers memfold, but is not a superuser; with --port it has the password.

    \b
    psql "$(memfold up)" -c "select * from ingest_memory('Alice has a cat.', 'acme')"
    """
    say("starting the server ...")
    admin = server.start(data, port)
    revision = migrate.keep_current(admin, say)
    migrate.set_search_path(admin)
    _make_indexes(admin, vector_index)
    dsn = server.login(data, port)
    dsn = server.login(data, port, role=server.ROLE) if superuser else dsn
    say(f"ready: memfold {__version__} (revision {revision})")
    report({"dsn": dsn, "version": __version__, "revision": revision})
    if not wants_json():
        click.echo(dsn)  # to be used unchanged


@main.command()
@click.option("--data", type=PATH, metavar="DIR", help="As for up.")
@json_option
def down(data: Path | None) -> None:
    """Stop the embedded server; its data is kept.

    \b
    memfold down
    """
    stopped = server.down(data)
    report({"stopped": stopped})
    say("stopped" if stopped else "no server was running")


@main.command()
@click.argument("database", metavar="[DSN]", required=False)
@dsn_option
@click.option(
    "--citus",
    is_flag=True,
    help="Distribute memfold over the nodes of this Citus coordinator (contrib/citus/README.md).",
)
@click.option("--set-search-path", is_flag=True, help="Append memfold to the database's search_path.")
@click.option(
    "--sql", "print_sql", is_flag=True, help="Print the SQL instead; without a DSN, for a new database."
)
@vector_index_option
@click.option(
    "--predicates", type=click.Choice(["common"]), help="Set rules for common predicates, for all tenants."
)
@json_option
def init(
    database: str | None,
    dsn: str | None,
    citus: bool,
    set_search_path: bool,
    print_sql: bool,
    vector_index: tuple[str, ...],
    predicates: str | None,
) -> None:
    """Install memfold in a database, or bring it up to date.

    Safe to repeat, and to run from many places at the same time. Needs PostgreSQL 15 or newer with pgvector 0.8 or newer,
    and no files on the server. It never blocks other sessions for long: if it cannot get a lock immediately, it gives
    way and retries for two minutes.

    \b
    memfold init postgresql://owner@db.example.com/agents --set-search-path
    memfold init postgresql://owner@db.example.com/agents --sql > review.sql
    psql -v ON_ERROR_STOP=1 -f review.sql postgresql://owner@db.example.com/agents
    """
    if database is not None and dsn is not None:
        raise click.UsageError("give the database once: as DSN or as --dsn")
    given = database or dsn
    if print_sql:
        if citus:
            raise click.UsageError("--sql is for one server: psql -f contrib/citus/citus.sql distributes it")
        if wants_json():
            raise click.UsageError("--json cannot be used with --sql")
        if vector_index or predicates:
            raise click.UsageError("--vector-index and --predicates cannot be used with --sql")
        script = migrate.script(None if given is None else resolve(given))
        click.echo(script.encode(), nl=False)  # SQL, to be run unchanged
        return
    if given is None and environment_dsn() is None:
        # the embedded server's database has it, from memfold up
        raise click.UsageError("no database: memfold init DSN")
    where = resolve(given)
    progress("installing")
    revision = migrate.install(where, citus=citus)
    done = None
    say(f"memfold {__version__} is installed (revision {revision})")
    _make_indexes(where, vector_index)
    if predicates is not None:
        say(f"predicates set: {migrate.set_common_predicates(where)}")
    if set_search_path:
        done = migrate.set_search_path(where)
        say("memfold is " + ("on the search_path of new sessions" if done else "already on the search_path"))
        statement = None
    elif statement := migrate.search_path_statement(where):
        say("to call its functions without the prefix memfold., run (or add --set-search-path):")
        show(f"{statement};")
    report({"version": __version__, "revision": revision, "search_path_set": bool(done), "to_run": statement})


@main.command()
@click.argument("file", type=FILE)
@dsn_option
@tenant_option("The tenant of lines that do not name one.")
@click.option("--bucket", metavar="ID", help="The bucket of lines that do not name one.")
@click.option(
    "--vectors", type=FILE, metavar="FILE.npz", help="Vectors of the texts (arrays texts, vectors)."
)
@click.option("--embedding-model", metavar="NAME", help="The name of the model that made --vectors.")
@embed_options
@click.option(
    "--source",
    metavar="NAME",
    help="The source of the lines: a line counts once per source. Default: the file's full path.",
)
@click.option(
    "--resume/--no-resume", default=True, help="Continue where an interrupted run stopped (the default)."
)
@click.option(
    "--state", type=PATH, metavar="FILE", help="The file that records it; default: FILE.memfold-state."
)
@json_option
def ingest(
    file: Path,
    dsn: str | None,
    tenant: str | None,
    bucket: str | None,
    vectors: Path | None,
    embedding_model: str | None,
    embed_url: str | None,
    embed_model: str | None,
    embed_path: str | None,
    source: str | None,
    resume: bool,
    state: Path | None,
) -> None:
    """Ingest candidates, one JSON object per line.

    Reads FILE, or stdin (-). The fields are the arguments of ingest_memory. Refused lines are reported with their
    number, and the run continues; the exit code is then 1. Every line gets an idempotency key made of its source, its
    text and the number of equal lines before it: no line counts twice, however often a run is interrupted or repeated,
    and added or corrected lines count. All of stdin is one source, unless --source names another.

    \b
    memfold ingest memories.jsonl --tenant acme --embed-model text-embedding-3-small
    memfold ingest memories.jsonl --tenant acme --vectors vectors.npz --embedding-model all-MiniLM-L6-v2
    tail -n 100 today.jsonl | memfold ingest - --tenant acme --source today.jsonl
    """
    if (vectors is None) != (embedding_model is None):
        raise click.UsageError("--vectors and --embedding-model go together")
    embedder = make_embedder(embed_url, embed_model, embed_path)
    if vectors is not None and embedder is not None:
        raise click.UsageError("give --vectors or an embedding model, not both")
    if is_stdin(file) and state is not None:
        raise click.UsageError("--state needs a file: a run over stdin cannot be resumed")
    one_stdin(file, vectors)
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
            model=embedding_model,
            source=source,
            state=None if is_stdin(file) else state or file.with_name(file.name + ".memfold-state"),
            resume=resume,
        )
        if run.start:
            say(f"resuming after line {run.start}, where an earlier run stopped")
        name = escape_line(file_name(file))
        try:
            of = "" if run.lines is None else f" of {run.lines:,}"
            tell = progress()
            for number, problem in run:
                tell(f"{number:,}{of} lines")
                if problem is not None:
                    say_lines(f"{name}:{number}: {problem}")
        except MemfoldError as error:
            hint = f"Lines up to {run.line} are stored. Run the same command again to continue."
            fail(f"{error}\n{hint}")
    show_lines(table_of(["action", "tier", "method", "lines"], run.summary()))
    report(
        {
            "lines": run.line,
            "refused": run.errors,
            "replayed": run.replayed,
            "without_vector": run.without_vector,
            "counts": [
                {"action": action, "tier": tier, "method": method, "lines": count}
                for (action, tier, method), count in run.counts.items()
            ],
        }
    )
    if run.replayed:
        show(
            f"{run.replayed} of {run.line} lines are replays: they were ingested before; nothing was written"
        )
    if run.without_vector:
        say(f"{run.without_vector} lines had no vector and are in pending_embeddings")
    if run.errors:
        fail(f"{run.errors} of {run.line} lines were refused")


@main.command()
@click.argument("memory_id", type=click.UUID)
@dsn_option
@tenant_option("The tenant of the memory; a superuser can omit it.")
@json_option
def explain(memory_id: UUID, dsn: str | None, tenant: str | None) -> None:
    """Print the complete history of a memory.

    Shows its text, aliases, judgements and ledger.

    \b
    memfold explain 0193b1a2-7c30-7f00-8a4e-0123456789ab --tenant acme
    """
    with open_client(dsn) as client:
        lines = client._drive(client._core.explain_lines(memory_id, tenant))
    for line in lines:
        show(line)
    report({"memory_id": memory_id, "lines": lines})


@main.command()
@dsn_option
@tenant_option("Only this tenant; roles other than superusers see only one.")
@json_option
def stats(dsn: str | None, tenant: str | None) -> None:
    """Print what deduplication did, one line per bucket.

    \b
    memfold stats --tenant acme
    """
    progress("counting")
    with open_client(dsn) as client:
        buckets = client.stats(tenant)
    report({"buckets": buckets})
    if not buckets:
        say(_status.no_memories(tenant))
        return
    head = ["tenant", "bucket", "observed", "active", "tier 1", "tier 2", "tier 3", "escalated", "superseded"]
    head += ["pending", "open", "merged"]
    rows: list[list[object]] = []
    for one in buckets:
        rows.append([one.tenant_id, one.bucket_id, one.observations, one.active, one.tier_1_merges])
        rows[-1] += [one.tier_2_merges, one.tier_3_merges, one.escalated, one.supersessions]
        rows[-1] += [one.pending_embeddings, one.open_judgements, f"{one.merge_rate or 0:.0%}"]
    show_lines(table_of(head, rows))
    for one in buckets:
        if one.warning is not None:
            say(f"warning: tenant {one.tenant_id}, bucket {one.bucket_id}: {one.warning}")


def _commands() -> Iterator[click.Command]:
    """The commands in the modules of this folder, without subcommands."""
    for found in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{found.name}")
        here = [one for one in vars(module).values() if isinstance(one, click.Command)]
        nested = [sub for one in here if isinstance(one, click.Group) for sub in one.commands.values()]
        yield from (one for one in here if one not in nested)


for _command in _commands():
    main.add_command(_command)
