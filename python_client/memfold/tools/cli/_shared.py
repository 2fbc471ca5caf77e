"""Shared parts of the commands: options, finding the database, printing."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar

import click
import psycopg

from memfold.client import queries
from memfold.client._dsn import environment_dsn, read_dsn
from memfold.client._text import describe_error, escape, escape_json, escape_line, format_error, mask_keys
from memfold.client.calls import Memfold
from memfold.client.embedding import EmbedderProtocol
from memfold.client.errors import MemfoldError, translate
from memfold.tools.admin import server

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False, readable=True, allow_dash=True)
"""An input file; - is stdin. ``open_file`` opens it."""

_JSON = "memfold.json"


class Group(click.Group):
    """Shows memfold's errors as message, DETAIL and HINT, with exit code 1. No error can control the terminal."""

    def invoke(self, ctx: click.Context) -> Any:
        with contextlib.suppress(AttributeError, ValueError):  # it is closed, or replaced by another stream
            # rather than fail where the locale lacks a character
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.message = escape(mask_keys(error.message))  # type: ignore[misc]
            raise
        except (MemfoldError, server.ServerError) as error:
            raise click.ClickException(escape(mask_keys(str(error)))) from error
        except psycopg.Error as error:
            raise click.ClickException(escape(mask_keys(str(translate(error))))) from error
        except (click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except UnicodeEncodeError as error:  # from an argument, as the shell passed it
            raise click.ClickException(
                "an argument is not valid UTF-8\nHINT: Names and texts are UTF-8 in every locale."
            ) from error
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:  # a full disk, a port in use
                _give_up_stdout()
                raise click.ClickException(describe_error(error)) from error
            # unexpected; its text may be an endpoint's words
            click.echo(format_error(error), err=True)
            raise SystemExit(1) from None


def _give_up_stdout() -> None:
    """If stdout cannot be written, drop what it holds: flushing it fails again at exit, which makes the exit code 120."""
    with contextlib.suppress(AttributeError, ValueError):  # it is closed, or replaced by another stream
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def dsn_option(command: F) -> F:
    return click.option(
        "--dsn",
        metavar="DSN",
        help="The database; default: MEMFOLD_DSN, else PGHOST and the like, else the running embedded server.",
    )(command)


def json_option(command: F) -> F:
    """--json, for a command that calls ``report``: then it prints nothing else on stdout."""

    def note(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.meta[_JSON] = value

    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=note,
        help="Print one JSON document instead; everything else goes to stderr.",
    )(command)


def tenant_option(text: str) -> Callable[[F], F]:
    return click.option("--tenant", metavar="ID", help=text)


def resolve(dsn: str | None) -> str:
    """The database in libpq's form. Empty: from libpq's environment variables."""
    found = dsn or environment_dsn()
    if found is None:
        found = server.status().dsn
    if found is None:
        raise click.UsageError("no database: give --dsn, set MEMFOLD_DSN, or start one with: memfold up")
    return read_dsn(found)


@contextlib.contextmanager
def open_file(file: Path) -> Iterator[BinaryIO]:
    """A file of type ``FILE``, or stdin."""
    if is_stdin(file):
        if sys.stdin is None:
            raise click.UsageError("stdin is closed: there is nothing to read")
        yield sys.stdin.buffer
    else:
        with file.open("rb") as opened:
            yield opened


def is_stdin(file: Path | None) -> bool:
    return file is not None and str(file) == "-"


def file_name(file: Path) -> str:
    """Its name in messages."""
    return "stdin" if is_stdin(file) else file.name


def one_stdin(*files: Path | None) -> None:
    """Refuse - if it is given twice."""
    if sum(map(is_stdin, files)) > 1:
        raise click.UsageError("stdin (-) can be read only once")


def seekable(file: Path) -> Path | BinaryIO:
    """The file, for readers that seek in it."""
    if not is_stdin(file):
        return file
    with open_file(file) as stream:
        return io.BytesIO(stream.read())


def open_client(
    dsn: str | None,
    embedder: EmbedderProtocol | None = None,
    tenant: str | None = None,
    kind: type[Memfold] = Memfold,
) -> Memfold:
    """A client of a database in which memfold is installed."""
    where = resolve(dsn)
    client = kind(where, tenant, embedder)
    if not client._query(queries.INSTALLED)[0]["installed"]:
        client.close()
        raise click.ClickException("memfold is not installed in this database\nHINT: Run: memfold init DSN")
    return client


# Everything that the commands print goes through these, so that no stored text can control a terminal or pose as
# another line; except JSON and SQL for use by programs. With --json, stdout gets what report() prints, without it everything
# else.


def wants_json() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON))


def report(document: Mapping[str, Any]) -> None:
    """With --json, print the result of the command."""
    if wants_json():
        show_json(json.dumps(_plain(document), ensure_ascii=False, allow_nan=False))


def show_json(document: str) -> None:
    """Print JSON, as UTF-8 in any locale."""
    with _LINE:
        click.echo(escape_json(document).encode())


def _plain(value: Any) -> Any:
    """The value as JSON types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, Sequence | Set) and not isinstance(value, str | bytes):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return _plain(float(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if hasattr(value, "item"):  # a numpy number
        return _plain(value.item())
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


class _Line:
    """The last line of stderr, which says how far a command is. In `with _LINE`, other output is above it."""

    after = 2.0
    """Seconds before it appears: most commands end sooner."""
    pause = 0.2
    """Seconds before it changes again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._shown = False

    def show(self, text: str) -> None:
        with self._lock:
            click.echo(f"\r\x1b[K{escape_line(text)}", nl=False, err=True)
            self._shown = True

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._shown = False

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_LINE = _Line()


class LogHandler(logging.StreamHandler[Any]):
    """Logs to stderr, above the line of ``progress``."""

    def emit(self, record: logging.LogRecord) -> None:
        with _LINE:
            super().emit(record)


Text = str | Callable[[], str]


def progress(text: Text = "") -> Callable[[Text], None]:
    """Show how far the command is, and how long it has run; returns a function that changes the text.

    Only on a terminal, and only if it takes long. The time also advances during a long call of the server.
    """
    visible = sys.stderr is not None and sys.stderr.isatty()
    began, ended = time.monotonic(), threading.Event()
    due = began + _LINE.after

    def tell(now: Text) -> None:
        nonlocal text, due
        text = now
        if visible and text and time.monotonic() >= due:
            due = time.monotonic() + _LINE.pause
            _LINE.show(f"{text if isinstance(text, str) else text()}, {time.monotonic() - began:.0f} s")

    def tick() -> None:
        while not ended.wait(0.25):
            tell(text)

    def end() -> None:
        ended.set()
        ticking.join()
        with _LINE:
            pass

    if visible:
        ticking = threading.Thread(target=tick, daemon=True)
        ticking.start()
        click.get_current_context().call_on_close(end)
        tell(text)
    return tell


def show(line: str) -> None:
    """Print a line."""
    if not wants_json():
        with _LINE:
            click.echo(escape_line(line))


def show_lines(text: str) -> None:
    """Print several lines, with each stored text on one line, as ``table_of`` returns them."""
    if not wants_json():
        with _LINE:
            click.echo(escape(text))


def say(line: str) -> None:
    """Print a line on stderr."""
    with _LINE:
        click.echo(escape_line(line), err=True)


def say_lines(text: str) -> None:
    """Print several lines on stderr."""
    with _LINE:
        click.echo(escape(text), err=True)


def fail(message: str) -> NoReturn:
    raise click.ClickException(message)


def table_of(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as necessary; numbers are right-aligned."""
    head = [escape_line(name) for name in head]
    cells = [["" if value is None else escape_line(str(value)) for value in row] for row in rows]
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
