"""What the commands have in common: options, where the database is, how things are said."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
import psycopg

from memfold import queries
from memfold._text import escape, escape_line, format_error
from memfold.admin import server
from memfold.client import Memfold
from memfold.embedding import EmbedderProtocol
from memfold.errors import MemfoldError, translate

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False, readable=True)


class Group(click.Group):
    """Shows memfold's errors as such: message, DETAIL and HINT, and exit code 1. No error steers the terminal."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.message = escape(error.message)  # type: ignore[misc]
            raise
        except (MemfoldError, server.ServerError) as error:
            raise click.ClickException(escape(str(error))) from error
        except psycopg.Error as error:
            raise click.ClickException(escape(str(translate(error)))) from error
        except (click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:  # nobody has expected it; what it says may be an endpoint's words
            click.echo(format_error(error), err=True)
            raise SystemExit(1) from None


def dsn_option(command: F) -> F:
    return click.option(
        "--dsn",
        metavar="DSN",
        help="The database; default: MEMFOLD_DSN, else the running embedded server.",
    )(command)


def tenant_option(text: str) -> Callable[[F], F]:
    return click.option("--tenant", metavar="ID", help=text)


def resolve(dsn: str | None) -> str:
    found = dsn or os.environ.get("MEMFOLD_DSN") or server.status().dsn
    if not found:
        raise click.UsageError("no database: give --dsn, set MEMFOLD_DSN, or start one with: memfold up")
    return found


def open_client(
    dsn: str | None, embedder: EmbedderProtocol | None = None, tenant: str | None = None
) -> Memfold:
    """A client of a database in which memfold is installed."""
    where = resolve(dsn)
    client = Memfold(where, tenant, embedder)
    if not client._query(queries.INSTALLED)[0]["installed"]:
        client.close()
        raise click.ClickException("memfold is not installed in this database\nHINT: Run: memfold init DSN")
    return client


# Whatever the commands print goes through these, so that no stored text steers a terminal, or pretends to be another
# line; but for JSON and SQL that is to be used as it is.


def show(line: str) -> None:
    """Print a line."""
    click.echo(escape_line(line))


def show_lines(text: str) -> None:
    """Print several, whose texts from elsewhere are on one line each (as those of ``table_of``)."""
    click.echo(escape(text))


def say(line: str) -> None:
    """Print a line on stderr."""
    click.echo(escape_line(line), err=True)


def say_lines(text: str, begin: str = "") -> None:
    """Print several on stderr."""
    click.echo(begin + escape(text), err=True)


def fail(message: str) -> NoReturn:
    raise click.ClickException(message)


def table_of(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as they must be; numbers to the right."""
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
