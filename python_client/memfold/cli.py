"""The command line. What it prints on stdout is for programs and people; all else goes to stderr."""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import io
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
import psycopg

from memfold import __version__, _files, migrate, queries, server
from memfold import adopt as adopting
from memfold import upkeep as upkeeping
from memfold._search_cli import search
from memfold.adopt import Options
from memfold.client import Memfold
from memfold.embedders import EmbedderProtocol, OpenAIEmbedder
from memfold.errors import ConnectionLostError, MemfoldError, translate
from memfold.judge import Judge, OpenAIJudge
from memfold.review import Review
from memfold.worker import Summary, Worker

__all__ = ["main"]

F = TypeVar("F", bound=Callable[..., Any])

_PATH = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False, readable=True)


class _Group(click.Group):
    """Shows memfold's errors as such: message, DETAIL and HINT, and exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MemfoldError as error:
            raise click.ClickException(str(error)) from error
        except server.ServerError as error:
            raise click.ClickException(str(error)) from error
        except psycopg.Error as error:
            raise click.ClickException(str(translate(error))) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
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
    memfold sweep --tenant ID         fold what is there twice already

    Commands that need a database take --dsn, else MEMFOLD_DSN, else the embedded server that runs.
    """


def _dsn_option(command: F) -> F:
    return click.option(
        "--dsn",
        metavar="DSN",
        help="The database; default: MEMFOLD_DSN, else the running embedded server.",
    )(command)


def _tenant_option(text: str) -> Callable[[F], F]:
    return click.option("--tenant", metavar="ID", help=text)


def _resolve(dsn: str | None) -> str:
    found = dsn or os.environ.get("MEMFOLD_DSN") or server.status().dsn
    if not found:
        raise click.UsageError("no database: give --dsn, set MEMFOLD_DSN, or start one with: memfold up")
    return found


def _open(dsn: str | None, embedder: EmbedderProtocol | None = None, tenant: str | None = None) -> Memfold:
    """A client of a database in which memfold is installed."""
    where = _resolve(dsn)
    client = Memfold(where, tenant, embedder)
    if not client._query(queries.INSTALLED)[0]["installed"]:
        client.close()
        raise click.ClickException("memfold is not installed in this database\nHINT: Run: memfold init DSN")
    return client


def _say(message: str) -> None:
    click.echo(message, err=True)


def _fail(message: str) -> NoReturn:
    raise click.ClickException(message)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as they must be; numbers to the right."""
    cells = [["" if value is None else str(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]

    def line(values: Sequence[str], row: Sequence[object] | None) -> str:
        placed = [
            value.rjust(width) if row is not None and isinstance(row[n], int | float) else value.ljust(width)
            for n, (value, width) in enumerate(zip(values, widths, strict=True))
        ]
        return "  ".join(placed).rstrip()

    first = rows[0] if rows else None
    lines = [line(head, first), "  ".join("-" * width for width in widths)]
    return "\n".join([*lines, *(line(cell, row) for cell, row in zip(cells, rows, strict=True))])


@main.command()
@click.option("--data", type=_PATH, metavar="DIR", help="Where the server lives; default: the user's data.")
@click.option("--port", type=click.IntRange(1, 65535), help="Listen on 127.0.0.1 too, with a password.")
def up(data: Path | None, port: int | None) -> None:
    """Start the embedded PostgreSQL, or find it running, and install or upgrade memfold in it.

    Prints one line: the DSN.

    \b
    psql "$(memfold up)" -c "select * from ingest_memory('Alice has a cat.', 'acme')"
    """
    _say("starting the server ...")
    dsn = server.up(data, port)
    _say("installing memfold ...")
    revision = migrate.install(dsn)
    migrate.set_search_path(dsn)
    _say(f"ready: memfold {__version__} (revision {revision})")
    click.echo(dsn)


@main.command()
@click.option("--data", type=_PATH, metavar="DIR", help="As for up.")
def down(data: Path | None) -> None:
    """Stop the embedded server; its data stay.

    \b
    memfold down
    """
    _say("stopped" if server.down(data) else "no server was running")


@main.command()
@click.argument("dsn", required=False)
@click.option("--set-search-path", is_flag=True, help="Append memfold to the database's search_path.")
@click.option(
    "--sql", "print_sql", is_flag=True, help="Print the SQL instead; without a DSN, for a new database."
)
def init(dsn: str | None, set_search_path: bool, print_sql: bool) -> None:
    """Install memfold in the database DSN, or bring it up to date. Safe to repeat, and from many at once.

    Needs PostgreSQL 15 or newer with pgvector 0.8 or newer, and no file on the server. It never makes others
    wait for long: where a lock is not to be had at once, it gives way and tries again, for two minutes.

    \b
    memfold init postgresql://owner@db.example.com/agents --set-search-path
    memfold init postgresql://owner@db.example.com/agents --sql > review.sql
    psql -v ON_ERROR_STOP=1 -f review.sql postgresql://owner@db.example.com/agents
    """
    if print_sql:
        click.echo(migrate.script(dsn), nl=False)
        return
    if dsn is None:
        raise click.UsageError("say which database: memfold init DSN")
    revision = migrate.install(dsn)
    _say(f"memfold {__version__} is installed (revision {revision})")
    if set_search_path:
        done = migrate.set_search_path(dsn)
        _say("memfold is on the search_path" + (" of sessions to come" if done else " already"))
    elif statement := migrate.search_path_statement(dsn):
        _say("to call its functions without the prefix memfold., run (or add --set-search-path):")
        click.echo(f"{statement};")


@main.command()
@click.argument("file", type=_FILE)
@_dsn_option
@_tenant_option("The tenant of lines that name none.")
@click.option("--bucket", metavar="ID", help="The bucket of lines that name none.")
@click.option(
    "--vectors", type=_FILE, metavar="FILE.npz", help="Vectors of the texts (arrays texts, vectors)."
)
@click.option("--model", help="The name of the model that made --vectors.")
@click.option(
    "--embed-url", metavar="URL", help="An OpenAI-compatible endpoint, such as http://host:8080/v1."
)
@click.option("--embed-model", metavar="NAME", help="The model to ask there (or at OpenAI, without a URL).")
@click.option(
    "--resume/--no-resume", default=True, help="Go on where an interrupted run stopped (the default)."
)
@click.option("--state", type=_PATH, metavar="FILE", help="Remembers that; default: FILE.memfold-state.")
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
        stored = _files.read_vectors(vectors) if vectors is not None else None
    except (ImportError, ValueError) as error:
        _fail(str(error))
    with _open(dsn, embedder, tenant) as client:
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
            _say(f"going on after line {run.start}, where an earlier run stopped")
        try:
            with click.progressbar(length=run.lines, label=file.name, file=sys.stderr) as bar:
                bar.update(run.start)
                for number, problem in run:
                    bar.update(1)
                    if problem is not None:
                        _say(f"\r{file.name}:{number}: {problem}")
        except MemfoldError as error:
            hint = f"Lines up to {run.line} are in. Run the same command again to go on."
            _fail(f"{error}\n{hint}")
    click.echo(_table(["action", "tier", "method", "lines"], run.summary()))
    if run.replayed:
        click.echo(
            f"{run.replayed} of {run.lines} lines are replays: they were in before, nothing was written"
        )
    if run.without_vector:
        _say(f"{run.without_vector} lines had no vector and wait in pending_embeddings")
    if run.errors:
        _fail(f"{run.errors} of {run.lines} lines were refused")


@main.command()
@click.argument("memory_id")
@_dsn_option
@_tenant_option("The tenant of the memory; a superuser may leave it out.")
def explain(memory_id: str, dsn: str | None, tenant: str | None) -> None:
    """Print the whole life of a memory: its text, aliases, judgements and ledger.

    \b
    memfold explain 0193b1a2-7c30-7f00-8a4e-0123456789ab --tenant acme
    """
    with _open(dsn) as client:
        click.echo(client.explain(memory_id, tenant))


@main.command()
@_dsn_option
@_tenant_option("Only this tenant; other roles than superusers see one tenant only.")
def stats(dsn: str | None, tenant: str | None) -> None:
    """Print what deduplication did, a bucket a line.

    \b
    memfold stats --tenant acme
    """
    with _open(dsn) as client:
        buckets = client.stats(tenant)
    if not buckets:
        _say("no memories" + ("" if tenant else "; a role that is no superuser must name its --tenant"))
        return
    head = ["tenant", "bucket", "observed", "active", "tier 1", "tier 2", "tier 3", "escalated", "superseded"]
    head += ["pending", "open", "folded"]
    rows: list[list[object]] = []
    for one in buckets:
        rows.append([one.tenant_id, one.bucket_id, one.observations, one.active, one.tier_1_merges])
        rows[-1] += [one.tier_2_merges, one.tier_3_merges, one.escalated, one.supersessions]
        rows[-1] += [one.pending_embeddings, one.open_judgements, f"{one.fold_rate or 0:.0%}"]
    click.echo(_table(head, rows))
    for one in buckets:
        if one.warning is not None:
            _say(f"warning: tenant {one.tenant_id}, bucket {one.bucket_id}: {one.warning}")


@main.command()
@_dsn_option
@_tenant_option("Check this tenant's memories against its ledger too.")
def doctor(dsn: str | None, tenant: str | None) -> None:
    """Check a database: versions, encoding, canonicalizer, indexes, functions and, per tenant, the ledger.

    One line a check: ok, warning or PROBLEM. Exit code 1 if there is a problem.

    \b
    memfold doctor --tenant acme
    """
    problems = 0

    def report(fine: bool, what: str, *, problem: bool = True) -> None:
        nonlocal problems
        problems += not fine and problem
        click.echo(f"{'ok' if fine else 'PROBLEM' if problem else 'warning':8} {what}")

    where = _resolve(dsn)
    with Memfold(where) as client:
        found = client._query(queries.SERVER)[0]
        report(found["server_number"] >= 150000, f"PostgreSQL {found['server']} (15 or newer)")
        version = tuple(int(part) for part in (found["pgvector"] or "0.0").split(".")[:2])
        report(version >= (0, 8), f"pgvector {found['pgvector'] or 'is not installed'} (0.8 or newer)")
        report(found["encoding"] == "UTF8", f"encoding {found['encoding']} (UTF8)")
        if not client._query(queries.INSTALLED)[0]["installed"]:
            report(False, "memfold is not installed: memfold init DSN")
            raise SystemExit(1)
        how = f"as extension {found['extension']}" if found["extension"] else "by memfold init"
        report(bool(found["extension"] or found["migrated"]), f"memfold is installed {how}")
        try:
            test = client._query(queries.SELFTEST)[0]
            wrong = f": {test['failed']} fail, such as {test['example']}" if test["failed"] else ""
            report(not test["failed"], f"canonicalizer self-test, {test['checks']} checks{wrong}")
        except MemfoldError as error:
            if error.sqlstate != "42501":
                raise
            report(False, f"canonicalizer self-test not run: {found['role']} may not", problem=False)
        invalid = [row["name"] for row in client._query(queries.INVALID_INDEXES)]
        report(not invalid, f"no invalid index{': ' + ', '.join(invalid) if invalid else ''}")
        try:
            drifted = migrate.drift(where)
            named = f", but {len(drifted)} differ: {', '.join(drifted)}" if drifted else ""
            report(not drifted, f"functions are those of memfold {__version__}{named}")
        except MemfoldError as error:
            if error.sqlstate != "42501":
                raise
            report(False, f"functions not compared: {found['role']} does not own them", problem=False)
        if tenant is not None:
            broken = client.check_invariants(tenant)
            first = f": {len(broken)} differ, first {dict(broken[0])}" if broken else ""
            report(not broken, f"memories of tenant {tenant} are what its ledger says{first}")
        open_walls = found["bypasses"] or found["owns"]
        walls = (
            "sees every tenant: connect agents as a member of memfold_app" if open_walls else "is walled in"
        )
        report(not open_walls, f"role {found['role']} {walls}", problem=False)
    if problems:
        raise SystemExit(1)


@main.command()
@click.argument("database", metavar="[DSN]", required=False)
@_dsn_option
@click.option("--model", metavar="NAME", help="The model to ask.")
@click.option(
    "--base-url", metavar="URL", help="An OpenAI-compatible endpoint; default: OPENAI_BASE_URL, else OpenAI."
)
@click.option(
    "--judge",
    "plugged_in",
    metavar="MODULE:NAME",
    help="Ask this judge instead: an object with an async method judge, or what makes one.",
)
@click.option("--slots", type=click.IntRange(1, 500), default=10, help="Calls at a time; default: 10.")
@click.option("--calls-per-hour", type=click.IntRange(1), metavar="N", help="At most so many calls an hour.")
@click.option("--cost-per-hour", type=float, metavar="X", help="At most that much money an hour.")
@click.option("--input-price", type=click.FloatRange(0), metavar="P", help="Of a million tokens of input.")
@click.option("--output-price", type=click.FloatRange(0), metavar="P", help="Of a million tokens of output.")
@_tenant_option("Judge this tenant's only; default: every tenant's, which a member of memfold_judge may.")
@click.option("--once", is_flag=True, help="End when there is nothing more to claim.")
@click.option("--revive", is_flag=True, help="First open dead judgements again.")
@click.option("--timeout", type=float, default=30.0, help="Seconds that a call may take; default: 30.")
@click.option("--lease", type=float, help="Seconds that a claim holds; default: 2 x --timeout + 32.")
@click.option("--poll", type=float, default=1.0, help="Seconds between looks at an empty queue; default: 1.")
@click.option("--quiet", is_flag=True, help="Do not log every judgement.")
def judge(
    database: str | None,
    dsn: str | None,
    model: str | None,
    base_url: str | None,
    plugged_in: str | None,
    slots: int,
    calls_per_hour: int | None,
    cost_per_hour: float | None,
    input_price: float | None,
    output_price: float | None,
    tenant: str | None,
    once: bool,
    revive: bool,
    timeout: float,
    lease: float | None,
    poll: float,
    quiet: bool,
) -> None:
    """Have a model answer the judgements that wait, until stopped.

    The model is asked through an OpenAI-compatible endpoint; OPENAI_API_KEY holds its key. Run as many as you
    like, anywhere: none answers twice. Ctrl-C or SIGTERM stops it when the calls under way are answered, a second
    one at once; nothing is lost either way. What it does is logged to stderr.

    \b
    memfold judge --model gpt-5-mini --input-price 0.25 --output-price 2 --cost-per-hour 1
    memfold judge --model llama3.1 --base-url http://localhost:11434/v1 --once
    """
    if database is not None and dsn is not None:
        raise click.UsageError("give the database once: as DSN or as --dsn")
    if (model is None) == (plugged_in is None):
        raise click.UsageError("give --model or --judge")
    if plugged_in is None and cost_per_hour is not None and not (input_price or output_price):
        raise click.UsageError("--cost-per-hour needs --input-price or --output-price")
    where = _resolve(database or dsn)
    with _open(where):
        pass
    asked: Judge
    if model is not None:
        # It takes long to load: not while leases run.
        importlib.import_module("openai")
        asked = OpenAIJudge(
            model,
            base_url=base_url,
            timeout=timeout,
            input_price=input_price or 0.0,
            output_price=output_price or 0.0,
        )
    else:
        asked = _plugged_in(str(plugged_in))
    try:
        # The judge's own limit comes first: it knows what the call has cost.
        worker = Worker(
            where,
            asked,
            slots=slots,
            timeout=timeout + 1,
            lease=lease,
            poll=poll,
            calls_per_hour=calls_per_hour,
            cost_per_hour=cost_per_hour,
            tenant_id=tenant,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("memfold.worker")
    logger.addHandler(log)
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    try:
        summary = asyncio.run(_judge(worker, asked, once=once, revive=revive))
    finally:
        logger.removeHandler(log)
    _say(str(summary))
    if summary.unfinished == "endpoint down":
        _fail("the judge's endpoint is down; what waits is judged by a later run")
    if summary.unwritten:
        _fail(f"{summary.unwritten} answers could not be written; these judgements are asked again")


@main.command()
@click.argument("database", metavar="[DSN]", required=False)
@_dsn_option
@_tenant_option("Only this tenant's; default: every tenant's, which a member of memfold_judge may.")
@click.option("--all", "everything", is_flag=True, help="Also show what waits for a model.")
def review(database: str | None, dsn: str | None, tenant: str | None, everything: bool) -> None:
    """Answer judgements yourself: two memories side by side, what differs marked, one key an answer.

    Stop when you like (q or Ctrl-C): every answer is applied at once, and what was not answered waits on. Without
    a terminal it reads one key a line.

    \b
    memfold review --tenant acme
    memfold review --tenant acme --all
    """
    if database is not None and dsn is not None:
        raise click.UsageError("give the database once: as DSN or as --dsn")
    for stream in (sys.stdout, sys.stderr):
        # Not every terminal can show every memory.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with _open(database or dsn) as client:
        Review(client, tenant, everything=everything).run()


async def _judge(worker: Worker, asked: Judge, *, once: bool, revive: bool) -> Summary:
    """Run until a signal, and end at once at the second."""
    loop = asyncio.get_running_loop()
    signals = 0

    def stop(*_: object) -> None:
        nonlocal signals
        signals += 1
        loop.call_soon_threadsafe(functools.partial(worker.stop, now=signals > 1))

    earlier = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        if revive:
            _say(f"revived {await worker.revive()} judgements")
        return await worker.run(until_idle=once)
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
        if (close := getattr(asked, "close", None)) is not None and inspect.iscoroutinefunction(close):
            await close()


def _plugged_in(name: str) -> Judge:
    """The judge that MODULE:NAME names, from the current directory too."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise click.UsageError(f"--judge is MODULE:NAME, not {name}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise click.UsageError(f"--judge {name}: {error}") from error
    finally:
        sys.path.pop(0)
    if isinstance(found, type) or not hasattr(found, "judge"):
        try:
            found = found()
        except Exception as error:
            raise click.UsageError(f"--judge {name}: {type(error).__name__}: {error}") from error
    if not callable(getattr(found, "judge", None)):
        raise click.UsageError(f"--judge {name}: {type(found).__name__} has no method judge")
    made: Judge = found
    return made


@main.group(invoke_without_command=False)
def adopt() -> None:
    """Bring deduplication to a table that is not memfold's, while its writers go on.

    Six steps: 1 a nullable column, 2 writers hash (a trigger), 3 backfill, 4 duplicates, 5 a unique index, 6 the
    catch. Each can be interrupted, by kill -9 too, and run again. Run it as the table's owner.

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
            click.option("--tenant", metavar="EXPR", help="Whose it is; rows where it is null are left out."),
            click.option(
                "--bucket", metavar="EXPR", help="Where it belongs; null: left out. Default: one bucket."
            ),
            click.option("--id", "key", metavar="COLUMN", help="A unique column; default: the primary key."),
            click.option("--created", metavar="EXPR", help="What makes a row the oldest; default: its key."),
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
                help="How long a batch is to hold its locks; default: 50.",
            ),
            click.option(
                "--batch", type=click.IntRange(1), metavar="N", help="Rows a batch; default: by --batch-time."
            ),
            click.option(
                "--rate", type=click.FloatRange(1), metavar="N", help="At most so many rows a second."
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
            click.option("--ignore-lag", is_flag=True, help="Do not look at standbys."),
            click.option(
                "--lock-timeout",
                type=click.FloatRange(1, 10_000),
                default=usual.lock_timeout * 1000,
                metavar="MS",
                help="How long anybody may have to queue behind a lock that is waited for; default: 100.",
            ),
            click.option(
                "--patience",
                type=click.FloatRange(1),
                default=usual.patience,
                metavar="S",
                help="How long to go on trying for a lock; default: 600.",
            ),
            click.option(
                "--statement-timeout",
                type=click.FloatRange(0),
                default=0.0,
                metavar="S",
                help="For each statement, the build of the index too; default: none.",
            ),
        ]
    ):
        command = option(command)
    return command


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
    )


_EXPRESSIONS = ("content", "tenant", "bucket", "created", "where")


@adopt.command("plan")
@_dsn_option
@_TABLE
@_definition_options
@_gentle_options
def adopt_plan(dsn: str | None, table: str, **given: Any) -> None:
    """Print the SQL of all steps, the locks that each takes, and an estimate. Changes nothing.

    \b
    memfold adopt plan --table public.mem0 --content "payload->>'data'" --tenant "payload->>'user_id'"
    """
    with adopting.Adopter(_resolve(dsn), _say) as adopter:
        definition, known = _define(adopter, table, given)
        for line in adopter.plan(definition, known, _gently(given)):
            click.echo(line)


def _define(adopter: adopting.Adopter, table: str, given: dict[str, Any]) -> Any:
    return adopter.define(
        table,
        {name: given[name] for name in _EXPRESSIONS},
        key=given["key"],
        profile=given["profile"],
        hash_column=given["hash_column"],
    )


@adopt.command("run")
@_dsn_option
@_TABLE
@_definition_options
@_gentle_options
@click.option("--step", type=click.IntRange(1, 6), help="Only this step, which must be the next one.")
@click.option("--confirm", is_flag=True, help="Let step 4 archive duplicates, and go on after it.")
@click.option("--dry-run", is_flag=True, help="At step 4: say what it would do, and stop.")
@click.option(
    "--csv", "report", type=_PATH, metavar="FILE", help="At step 4: write each row to archive there."
)
def adopt_run(
    dsn: str | None,
    table: str,
    step: int | None,
    confirm: bool,
    dry_run: bool,
    report: Path | None,
    **given: Any,
) -> None:
    """Walk the steps that are left. Stops at step 4 with a report of the duplicates, until it is confirmed.

    Options that say what the table means are given once; afterwards --table is enough.

    \b
    memfold adopt run --table public.memories --content content --tenant tenant_id --created created_at
    memfold adopt run --table public.memories --step 4 --dry-run --csv duplicates.csv
    memfold adopt run --table public.memories --confirm
    """
    with adopting.Adopter(_resolve(dsn), _say) as adopter:
        definition, known = _define(adopter, table, given)
        state = adopter.run(
            definition,
            known,
            _gently(given),
            only=step,
            confirm=confirm,
            dry_run=dry_run,
            report=report,
            show=click.echo,
        )
        if state.step == 6:
            click.echo(
                f"{definition.table} is adopted. Insert with memfold.insert_{state.name}(...), or catch 23505."
            )


@adopt.command("status")
@_dsn_option
@_TABLE_OR_NONE
def adopt_status(dsn: str | None, table: str | None) -> None:
    """Say where each adoption stands.

    \b
    memfold adopt status
    """
    with adopting.Adopter(_resolve(dsn), _say) as adopter:
        if table is not None:
            wanted = adopter.known(table)
        found = [
            (one, pid)
            for one, pid in adopter.status()
            if table is None or (one.table_schema, one.table_name) == (wanted.table_schema, wanted.table_name)
        ]
    if not found:
        _say("no table has been adopted")
    for one, pid in found:
        for line in one.describe(pid):
            click.echo(line)


@adopt.command("pause")
@_dsn_option
@_TABLE
def adopt_pause(dsn: str | None, table: str) -> None:
    """Have the run that works on the table stop between two batches.

    \b
    memfold adopt pause --table public.memories
    """
    with adopting.Adopter(_resolve(dsn), _say) as adopter:
        running = adopter.pause(table)
    _say("it stops after its batch" if running else "no run is at work; the next one goes on")


@adopt.command("undo")
@_dsn_option
@_TABLE
@_gentle_options
@click.option("--restore", is_flag=True, help="After step 4: put the archived rows back too.")
def adopt_undo(dsn: str | None, table: str, restore: bool, **given: Any) -> None:
    """Take the column, triggers, functions and index off again, so that everything is as it was.

    \b
    memfold adopt undo --table public.memories
    """
    with adopting.Adopter(_resolve(dsn), _say) as adopter:
        rows, references = adopter.undo(table, _gently(given), put_back=restore)
    _say("undone" + (f": {rows:,} rows are back, {references:,} references point to them" if restore else ""))


@main.command()
@_dsn_option
@_tenant_option("Only this tenant; default: all, as a member of memfold_owner.")
@click.option("--tasks", metavar="LIST", help="Comma-separated; default: " + ",".join(upkeeping.TASKS) + ".")
@click.option(
    "--seconds", type=click.FloatRange(0), default=60.0, show_default=True, help="Begin nothing after that."
)
def upkeep(dsn: str | None, tenant: str | None, tasks: str | None, seconds: float) -> None:
    """Do what is due: rows of plain INSERTs, decay, dead syntheses, staged leftovers, finished runs.

    For cron, systemd or any other scheduler; prints a line a task that did something. Further tasks: clean
    (equal texts that came while dedup was off), sweep (fold what ingest would fold now). Exit code 1 if a task
    failed.

    \b
    memfold upkeep --tenant acme --tasks plain,clean
    """
    failed = 0

    def done(one: upkeeping.Upkeep) -> None:
        nonlocal failed
        for task, count in one.counts.items():
            if count:
                more = ", more is left" if task in one.left else ""
                click.echo(f"{one.tenant_id}  {task}  {count:,} in {one.ms[task] / 1000:.2f} s{more}")
        for task, error in one.errors.items():
            failed += 1
            _say(f"{one.tenant_id}  {task}  failed: {error}")

    names = [name.strip() for name in (tasks or "").split(",") if name.strip()]
    try:
        finished = upkeeping.run(_resolve(dsn), tenant, names, seconds, done)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    _say(f"{len(finished):,} tenant{'s' * (len(finished) != 1)}")
    if failed:
        _fail(f"{failed} task{'s' * (failed != 1)} failed; the table runs has the reports")


@main.command("import")
@_dsn_option
@click.option("--from", "source", metavar="DSN", help="The database of the table; default: that of memfold.")
@click.option("--table", required=True, metavar="NAME", help="The table or view, such as public.memories.")
@click.option(
    "--content", required=True, metavar="EXPR", help="The text: a column, or an expression over the row."
)
@click.option(
    "--tenant", required=True, metavar="EXPR", help="Whose it is; a constant is quoted: \"'acme'\"."
)
@click.option("--bucket", metavar="EXPR", help="Where it belongs; default: the bucket default.")
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
@click.option("--embed-url", metavar="URL", help="An OpenAI-compatible endpoint, to embed what is new.")
@click.option("--embed-model", metavar="NAME", help="The model to ask there (or at OpenAI, without a URL).")
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
    """Hand in the rows of another table, each as one observation that names its row as its source.

    The table stays as it is. Rows that are refused are reported, and the rest goes on; exit code 1 says that there
    were some. A run that was interrupted goes on where it stopped: no row counts twice.

    \b
    memfold import --table public.memories --content content --tenant tenant_id --created created_at
    memfold import --table public.mem0 --content "payload->>'data'" --tenant "payload->>'user_id'"
    """
    if embed_url is not None and embed_model is None:
        raise click.UsageError("--embed-url needs --embed-model")
    if embed_model is not None and embedding_model is not None:
        raise click.UsageError("give --embedding or --embed-model, not both")
    where = _resolve(dsn)
    embedder = OpenAIEmbedder(embed_model, embed_url) if embed_model is not None else None
    with _open(where, embedder) as client:
        run = adopting.Import(
            client, where, source or where, table, given, key=key, embedding_model=embedding_model
        )
        try:
            told = time.monotonic()
            for shown, problem in run:
                if problem is not None:
                    _say(f"{run.table} {shown}: {problem}")
                if time.monotonic() - told > 2:
                    told = time.monotonic()
                    _say(f"{run.rows:,} rows" + (f" of about {run.total:,.0f}" if run.total else ""))
        except ConnectionLostError as error:
            _fail(f"{error}\n{run.rows} rows are through. Run the same command again to go on.")
        finally:
            run.close()
    click.echo(_table(["action", "tier", "method", "rows"], run.summary()))
    if run.known:
        _say(f"{run.known:,} of {run.rows:,} rows were in before")
    if run.errors:
        _fail(f"{run.errors:,} of {run.rows:,} rows were refused")


main.add_command(search)


if __name__ == "__main__":
    # once, under its own name: the commands in files of their own join that one
    importlib.import_module("memfold.cli").main()
else:
    from memfold import upkeep_cli as _upkeep_cli  # noqa: F401
