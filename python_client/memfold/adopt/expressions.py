"""Expressions over a row of a user's table, and statements built from them.

sqlglot parses what a user writes; only text that it understands as one scalar expression is used, as a tree, and
rendered again. Statements are templates of this package, also parsed by sqlglot, into whose trees names, values and
expressions are inserted as nodes: no text of a user is ever pasted into SQL. Only the server can say which functions
an expression means, and whether they are immutable: see ``memfold.adopt.catalog``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from memfold.client.errors import AdoptError

__all__ = [
    "Expression",
    "Node",
    "build",
    "column",
    "name",
    "parse",
    "parse_server",
    "render",
    "table",
    "text",
]

DIALECT = "postgres"
Node = exp.Expr
# sqlglot logs statements that it treats as opaque commands; none of the templates is one, as the tests ensure.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

_REFUSED: tuple[tuple[tuple[type[exp.Expr], ...], str], ...] = (
    ((exp.Query, exp.Subquery, exp.Exists, exp.CTE), "has a sub-query"),
    ((exp.DML, exp.DDL, exp.Command, exp.Drop, exp.Set), "is a statement"),
    ((exp.Window,), "has a window function"),
    ((exp.AggFunc,), "has an aggregate"),
    ((exp.UDTF, exp.Explode, exp.GenerateSeries), "has a function that returns a set"),
    ((exp.Placeholder, exp.Parameter, exp.SessionParameter), "has a parameter"),
    ((exp.Star,), "has a *"),
    ((exp.HexString, exp.BitString), "has a bit string"),
    ((exp.Alias, exp.Aliases), "has an alias"),
    ((exp.Tuple,), "is several values"),
    ((exp.Lambda, exp.Table), "is not a scalar expression"),
)
_LITERALS = {
    TokenType.STRING,
    TokenType.NUMBER,
    TokenType.BYTE_STRING,
    TokenType.RAW_STRING,
    TokenType.HEREDOC_STRING,
    TokenType.UNICODE_STRING,
    TokenType.NATIONAL_STRING,
    TokenType.HEX_STRING,
    TokenType.BIT_STRING,
}


@dataclass(frozen=True)
class Expression:
    """One scalar expression over the columns of a row."""

    option: str
    given: str
    tree: Node = field(compare=False, repr=False)
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return render(self.tree)

    def on(self, alias: str | None) -> Node:
        """The expression over the row with that name, for use anywhere; None: columns without a qualifier."""
        if isinstance(self.tree, exp.Column):
            return column(self.tree.name, alias)
        tree = self.tree.copy()
        for found in list(tree.find_all(exp.Column)):
            found.replace(column(found.name, alias))
        return wrapped(tree)

    @property
    def is_constant(self) -> bool:
        return not self.columns

    @property
    def is_column(self) -> bool:
        return isinstance(self.tree, exp.Column)


def parse(option: str, given: str, columns: Collection[str], relation: str = "the table") -> Expression:
    """The expression that a user gave for an option, over a table with these columns."""

    def refuse(why: str, hint: str | None = None) -> AdoptError:
        return AdoptError(
            f"{option} {why}: {given if len(given) <= 200 else given[:200] + ' ...'}",
            hint=hint or f"{option} is one scalar expression over the columns of a row of {relation}.",
        )

    if not given.strip():
        raise AdoptError(f"{option} is empty", hint=f"Give a column of {relation}, or an expression.")
    if "\x00" in given:
        raise AdoptError(f"{option} has a NUL character")
    try:
        tokens = sqlglot.tokenize(given, dialect=DIALECT)
        if any(token.token_type == TokenType.SEMICOLON for token in tokens):
            raise refuse("has a semicolon")
        found = sqlglot.parse(given, dialect=DIALECT)
    except (SqlglotError, RecursionError) as error:
        raise refuse(f"cannot be understood ({_first_line(error)})") from error
    if len(found) != 1 or found[0] is None:
        raise refuse("is not one expression")
    tree: Node = found[0]
    for kinds, why in _REFUSED:
        if tree.find(*kinds) is not None:
            raise refuse(why)
    # sqlglot's Condition is PostgreSQL's scalar expression.
    if not isinstance(tree, exp.Condition | exp.Interval | exp.Dot | exp.Bracket):
        raise refuse("is not a scalar expression")
    used = _bind(option, tree, columns, relation)
    tree = used.pop("", tree)
    for node in tree.walk():
        node.comments = None
    rendered = render(tree)
    if _literals(tokens) != _literals(sqlglot.tokenize(rendered, dialect=DIALECT)):
        raise refuse(
            f"would become {rendered}",
            f"Write {option} another way: memfold cannot reproduce this notation unchanged.",
        )
    return Expression(option, given, tree, tuple(sorted(used)))


def parse_server(given: str) -> Node:
    """An expression that the server itself has printed, for a default or an index."""
    tree = sqlglot.parse_one(given, dialect=DIALECT)
    for found in tree.find_all(exp.Identifier):
        found.set("quoted", True)
    return tree


def _bind(option: str, tree: Node, columns: Collection[str], relation: str) -> dict[str, Any]:
    """Bind every name to a column of the table, with PostgreSQL's case folding; "" is the tree itself, if it is a
    column."""
    used: dict[str, Any] = {}
    short = relation.rpartition(".")[2].strip('"')
    for found in list(tree.find_all(exp.Column)):
        identifier = found.this
        if not isinstance(identifier, exp.Identifier):
            raise AdoptError(f"{option} has a * or an unknown name: {render(found)}")
        known = identifier.name if identifier.args.get("quoted") else identifier.name.lower()
        qualifier = found.table
        if found.args.get("db") or (qualifier and qualifier.lower() != short.lower()):
            raise AdoptError(
                f"{option} names {render(found)}, which is not a column of {relation}",
                hint="Name columns without a qualifier.",
            )
        if known not in columns:
            near = [one for one in columns if one.lower() == known.lower()]
            raise AdoptError(
                f"{option}: there is no column {known} in {relation}",
                detail=f"Its columns are {', '.join(columns)}.",
                hint=f'Did you mean "{near[0]}"? Names with capitals must be quoted.' if near else None,
            )
        used[known] = None
        bound = column(known, None)
        if found is tree:
            used[""] = bound
        else:
            found.replace(bound)
    return used


def _literals(tokens: Iterable[Token]) -> list[str]:
    # sqlglot writes units of dates in capitals
    return [token.text.casefold() for token in tokens if token.token_type in _LITERALS]


def _first_line(error: BaseException) -> str:
    return str(error).split("\n")[0].rstrip(". ").replace("\x1b[4m", "").replace("\x1b[0m", "") or "too deep"


# Building ---------------------------------------------------------------------------------------------------


def name(of: str) -> exp.Identifier:
    """A name, always quoted."""
    return exp.to_identifier(of, quoted=True)


def column(of: str, alias: str | None = None) -> exp.Column:
    """A column, qualified by the name of a row if one is given."""
    return exp.Column(this=name(of), table=exp.to_identifier(alias, quoted=False) if alias else None)


def table(schema: str, of: str) -> exp.Table:
    """A table with its schema."""
    return exp.Table(this=name(of), db=name(schema))


def text(value: str) -> exp.Literal:
    """A literal of type unknown or text."""
    return exp.Literal.string(value)


def typed(value: Node, of: str) -> exp.Cast:
    """A cast to a type as format_type() prints it."""
    return exp.Cast(this=value, to=exp.DataType.build(of, dialect=DIALECT, udt=True))


def as_text(value: Node) -> Node:
    """The value as the server prints it."""
    return typed(value, "text")


def wrapped(value: Node) -> Node:
    """In parentheses, unless it does not need them."""
    return value if isinstance(value, _WHOLE) else exp.Paren(this=value)


_WHOLE = (exp.Column, exp.Paren, exp.Cast, exp.Literal, exp.Boolean, exp.Null, exp.Anonymous, exp.Coalesce)


def listed(*nodes: Node) -> Node:
    """A row constructor, or the one value itself."""
    return nodes[0] if len(nodes) == 1 else exp.Tuple(expressions=list(nodes))


def conjunction(nodes: Sequence[Node]) -> Node:
    """All of these, each in parentheses; TRUE for none."""
    kept: list[Node] = [node if isinstance(node, _PLAIN) else exp.Paren(this=node) for node in nodes]
    return (
        functools.reduce(lambda one, other: exp.And(this=one, expression=other), kept) if kept else exp.true()
    )


_PLAIN = (
    exp.Paren,
    exp.Column,
    exp.NullSafeEQ,
    exp.EQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.Is,
    exp.Not,
    exp.Boolean,
)


@functools.lru_cache(maxsize=256)
def _template(source: str) -> Node:
    tree: Node = sqlglot.parse_one(source, dialect=DIALECT)
    if isinstance(tree, exp.Command):
        raise ValueError(f"no template: {source}")
    return tree


def build(source: str, /, **nodes: Node | Sequence[Node]) -> Node:
    """The statement of a template, with its upper-case names replaced by nodes; a list of nodes replaces an item.

    ``T`` in ``from T as t`` is a table, ``X`` in ``select X from ...`` an expression or several, ``N`` in
    ``with N as`` or ``set N = ...`` a name.
    """
    tree = _template(source).copy()
    for found in list(tree.find_all(exp.Table, exp.Column, exp.Identifier)):
        if found.parent is None and found is not tree:
            continue
        known = found.name
        if known not in nodes or (isinstance(found, exp.Column) and found.table):
            continue
        node = nodes[known]
        if isinstance(found, exp.Identifier):
            if isinstance(found.parent, exp.Table | exp.Column) and not found.parent.args.get(
                "table" if isinstance(found.parent, exp.Column) else "db"
            ):
                continue  # replace its parent
            if isinstance(found.parent, exp.Schema) and not isinstance(node, exp.Expr):
                found.replace([one.copy() for one in node])
            else:
                found.replace(_one(node).copy())
        elif isinstance(found, exp.Table):
            put = _one(node).copy()
            if found.args.get("alias"):
                put.set("alias", found.args["alias"].copy())
            found.replace(put)
        elif isinstance(node, exp.Expr):
            found.replace(node.copy())
        else:
            found.replace([one.copy() for one in node])
    return tree


def _one(node: Node | Sequence[Node]) -> Node:
    if not isinstance(node, exp.Expr):
        raise TypeError("one node is wanted here")
    return node


def render(tree: Node, *, pretty: bool = False) -> str:
    """The SQL of a tree."""
    return str(tree.sql(dialect=DIALECT, pretty=pretty, normalize_functions=False, comments=False))
