"""The parts of an adoption's statements: names, literals, and the expressions over a row."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, LiteralString, TypeVar

from psycopg import sql
from sqlglot import exp

from memfold.adopt import expressions as x
from memfold.adopt.definition import Definition, index_name
from memfold.adopt.expressions import Node, build, column, render, typed, wrapped

__all__ = ["SqlFragments", "composed", "dollar_quoted", "name_of", "parameter", "remembered", "rendered"]

T = TypeVar("T")


def parameter(number: int) -> exp.Parameter:
    """$1, $2 ..."""
    return exp.Parameter(this=exp.Literal.number(number))


def name_of(*parts: str) -> sql.Identifier:
    return sql.Identifier(*parts)


def composed(template: LiteralString, /, **parts: sql.Composable) -> str:
    """A statement made of quoted names, literals and rendered trees."""
    return sql.SQL(template).format(**parts).as_string(None)


def rendered(node: Node) -> sql.SQL:
    """A tree, for ``composed``: sqlglot has quoted its contents."""
    return sql.SQL(render(node))


def dollar_quoted(body: str) -> sql.SQL:
    """A function's body, in a dollar quote that it does not contain."""
    tag, number = "memfold", 0
    while f"${tag}$" in body:
        number += 1
        tag = f"memfold{number}"
    return sql.SQL(f"${tag}$\n{body}${tag}$")


def remembered(method: Callable[..., T]) -> Callable[..., T]:
    """Built once per object and arguments, because building a tree takes longer than many statements."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> T:
        known = self.__dict__.setdefault("_remembered", {})
        key = (method.__name__, args, tuple(options.items()))
        if key not in known:
            known[key] = method(self, *args, **options)
        made: T = known[key]
        return made

    return call


class SqlFragments:
    """The parts that several statements of one adoption share."""

    def __init__(self, definition: Definition) -> None:
        self.of = definition
        self.table = definition.table.node
        self.hash = definition.hash_column
        self.index = index_name(definition.table.name)
        self.path = ("pg_catalog", *definition.schemas, "pg_temp")

    def key(self, alias: str | None) -> list[Node]:
        return [column(name, alias) for name in self.of.key]

    def key_type(self, name: str) -> str:
        return self.of.table.columns[name].type

    def key_texts(self, alias: str) -> list[Node]:
        return [exp.alias_(x.as_text(column(name, alias)), name, quoted=True) for name in self.of.key]

    def hashed(self, alias: str | None) -> Node:
        """The hash of the row with that name, evaluated in place."""
        return build(
            "memfold.adopted_hash(CONTENT, PROFILE)",
            CONTENT=x.as_text(self.of.content.on(alias)),
            PROFILE=x.text(self.of.profile),
        )

    def conditions(self, alias: str | None) -> list[Node]:
        """The condition for a row with that name to have a hash."""
        asked: list[Node] = []
        if self.of.where is not None:
            asked.append(wrapped(self.of.where.on(alias)))
        for one in (self.of.tenant, self.of.bucket):
            if one is not None and not (one.is_constant and not isinstance(one.tree, exp.Null)):
                asked.append(build("X is not null", X=one.on(alias)))
        return asked

    def hash_or_null(self, alias: str | None) -> Node:
        """The hash of a row, null if it should have none."""
        asked = self.conditions(alias)
        if not asked:
            return self.hashed(alias)
        return build("case when C then H end", C=x.conjunction(asked), H=self.hashed(alias))

    def safe_hash(self, alias: str) -> Node:
        """The same by the function that returns null if an expression fails."""
        call: Node = exp.Anonymous(
            this=f"hash_{self.of.name}", expressions=[column(name, alias) for name in self.of.columns]
        )
        return exp.Dot(this=exp.to_identifier("memfold"), expression=call)

    def scope(self, alias: str) -> list[Node]:
        return [one.on(alias) for one in self.of.scope]

    def index_keys(self) -> list[Node]:
        keys = [one.on(None) for one in self.of.scope]
        keys = [one if isinstance(one, exp.Column | exp.Paren) else exp.Paren(this=one) for one in keys]
        return [*keys, column(self.hash)]

    def oldest_first(self, alias: str) -> list[Node]:
        order = [self.of.created.on(alias)] if self.of.created is not None else []
        return [*order, *self.key(alias)]

    def keyed(self, alias: str, other: str, first: int = 1) -> tuple[Node, Node]:
        """A list of keys, one text array per column from $first on, as a table with the other name; and its
        condition."""
        arrays = [typed(parameter(first + n), "text[]") for n in range(len(self.of.key))]
        names = [f"k{n}" for n in range(len(self.of.key))]
        source = exp.Unnest(
            expressions=arrays,
            alias=exp.TableAlias(
                this=exp.to_identifier(other), columns=[exp.to_identifier(one) for one in names]
            ),
        )
        return source, x.conjunction(
            [
                exp.EQ(
                    this=column(name, alias),
                    expression=typed(exp.column(names[n], table=other), self.key_type(name)),
                )
                for n, name in enumerate(self.of.key)
            ]
        )
