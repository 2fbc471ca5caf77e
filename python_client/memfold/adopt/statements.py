"""Every statement that an adoption sends to a table that is not ours: what ``plan`` prints is what ``run`` executes.

Functions and triggers, whose grammar is not sqlglot's, are composed by psycopg of quoted names and rendered trees.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, TypeVar

from psycopg import sql
from sqlglot import exp

from memfold.adopt import expressions as x
from memfold.adopt.catalog import Column, Table
from memfold.adopt.expressions import Expression, Node, build, column, listed, render, typed, wrapped
from memfold.errors import AdoptError

__all__ = ["Definition", "Statements"]

T = TypeVar("T")

PROFILES = {"prose": "prose/1", "flat": "flat/1", "code": "code/1", "exact": "exact/1"}
MADE_BY = "Made by memfold adopt"
# Last of the BEFORE triggers, which fire in order of their names: it hashes what the others leave.
TRIGGERS = ("zz_memfold_insert", "zz_memfold_update")


@dataclass(frozen=True)
class Definition:
    """What is adopted: a table, what in a row of it is the text, whose it is, and where the hash goes."""

    table: Table
    name: str
    hash_column: str
    key: tuple[str, ...]
    profile: str
    content: Expression
    tenant: Expression | None
    bucket: Expression | None
    created: Expression | None
    where: Expression | None
    schemas: tuple[str, ...]

    @property
    def fixed(self) -> list[Expression]:
        """The expressions that a hash or the index is made of."""
        return [one for one in (self.content, self.tenant, self.bucket, self.where) if one is not None]

    @property
    def scope(self) -> list[Expression]:
        """Tenant and bucket, as far as they tell rows apart."""
        return [one for one in (self.tenant, self.bucket) if one is not None and not one.is_constant]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the hash and its scope are made of, in the table's order."""
        used = {name for one in self.fixed for name in one.columns}
        return tuple(name for name in self.table.columns if name in used)

    def to_json(self) -> dict[str, Any]:
        """What the table of adoptions stores."""
        return {
            "hash_column": self.hash_column,
            "key": list(self.key),
            "profile": self.profile,
            "content": self.content.given,
            "tenant": self.tenant and self.tenant.given,
            "bucket": self.bucket and self.bucket.given,
            "created": self.created and self.created.given,
            "where": self.where and self.where.given,
            "schemas": list(self.schemas),
        }


def short_name(schema: str, table: str, *, unique: bool = False) -> str:
    """What the functions of an adoption are called after; with a digest where the plain name is not to be had."""
    plain = f"{schema}_{table}"
    made = re.sub("[^a-z0-9_]", "_", plain)
    if unique or made != plain or len(made) > 50:
        digest = hashlib.sha256(f"{schema}\0{table}".encode()).hexdigest()[:8]
        made = f"{made[:41]}_{digest}"
    return made


def index_name(table: str) -> str:
    """The name of the unique index; PostgreSQL cuts names at 63 bytes."""
    made = f"{table}_memfold_key"
    if len(made.encode()) > 63:
        digest = hashlib.sha256(table.encode()).hexdigest()[:8]
        made = f"{table.encode()[:42].decode(errors='ignore')}_{digest}_memfold_key"
    return made


def parameter(number: int) -> exp.Parameter:
    """$1, $2 ..."""
    return exp.Parameter(this=exp.Literal.number(number))


def name_of(*parts: str) -> sql.Identifier:
    return sql.Identifier(*parts)


def composed(template: LiteralString, /, **parts: sql.Composable) -> str:
    """A statement of quoted names, literals and rendered trees."""
    return sql.SQL(template).format(**parts).as_string(None)


def rendered(node: Node) -> sql.SQL:
    """A tree, for ``composed``: sqlglot has quoted what is in it."""
    return sql.SQL(render(node))


def dollar_quoted(body: str) -> sql.SQL:
    """A function's body, in a quotation that it does not contain."""
    tag, number = "memfold", 0
    while f"${tag}$" in body:
        number += 1
        tag = f"memfold{number}"
    return sql.SQL(f"${tag}$\n{body}${tag}$")


def remembered(method: Callable[..., T]) -> Callable[..., T]:
    """Made once for an object and arguments: building a tree takes longer than many a statement."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> T:
        known = self.__dict__.setdefault("_remembered", {})
        key = (method.__name__, args, tuple(options.items()))
        if key not in known:
            known[key] = method(self, *args, **options)
        made: T = known[key]
        return made

    return call


class Statements:
    """The statements of one adoption."""

    def __init__(self, definition: Definition) -> None:
        self.of = definition
        self.table = definition.table.node
        self.hash = definition.hash_column
        self.index = index_name(definition.table.name)
        self.path = ("pg_catalog", *definition.schemas, "pg_temp")

    # Pieces

    def key(self, alias: str | None) -> list[Node]:
        return [column(name, alias) for name in self.of.key]

    def key_type(self, name: str) -> str:
        return self.of.table.columns[name].type

    def key_texts(self, alias: str) -> list[Node]:
        return [exp.alias_(x.as_text(column(name, alias)), name, quoted=True) for name in self.of.key]

    def hashed(self, alias: str | None) -> Node:
        """The hash of the row of that name, evaluated where it stands."""
        return build(
            "memfold._adopted_hash(CONTENT, PROFILE)",
            CONTENT=x.as_text(self.of.content.on(alias)),
            PROFILE=x.text(self.of.profile),
        )

    def conditions(self, alias: str | None) -> list[Node]:
        """What a row of that name must be, to have a hash."""
        asked: list[Node] = []
        if self.of.where is not None:
            asked.append(wrapped(self.of.where.on(alias)))
        for one in (self.of.tenant, self.of.bucket):
            if one is not None and not (one.is_constant and not isinstance(one.tree, exp.Null)):
                asked.append(build("X is not null", X=one.on(alias)))
        return asked

    def hash_or_null(self, alias: str | None) -> Node:
        """The hash of a row, null where it is to have none."""
        asked = self.conditions(alias)
        if not asked:
            return self.hashed(alias)
        return build("case when C then H end", C=x.conjunction(asked), H=self.hashed(alias))

    def safe_hash(self, alias: str) -> Node:
        """The same by the function that gives null where an expression fails."""
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
        """A list of keys, one text array each from $first on, as a table of that other name; and its condition."""
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

    # Step 1

    def add_column(self) -> list[str]:
        """Metadata only: nullable, without a default."""
        made = build("alter table T add column H bytea", T=self.table, H=x.name(self.hash))
        comment = composed(
            "comment on column {column} is {text}",
            column=name_of(self.of.table.schema, self.of.table.name, self.hash),
            text=sql.Literal(
                f"{MADE_BY}: SHA-256 of the canonical text ({self.of.profile}); null: not deduplicated."
            ),
        )
        return [render(made), comment]

    def drop_column(self) -> str:
        return render(build("alter table T drop column if exists H", T=self.table, H=column(self.hash)))

    # Step 2

    def _path(self) -> sql.Composable:
        return sql.SQL(", ").join(
            name_of(one) if one != "pg_temp" else sql.SQL("pg_temp") for one in self.path
        )

    def hash_function(self) -> str:
        body = (
            "begin\n"
            f"    return {render(self.hash_or_null(f'hash_{self.of.name}'))};\n"
            "exception when others then\n"
            "    return null;  -- an expression that fails on a row: it has no hash\n"
            "end\n"
        )
        arguments = sql.SQL(", ").join(
            sql.SQL("{} {}").format(name_of(one), self._type(self.of.table.columns[one]))
            for one in self.of.columns
        )
        return composed(
            "create or replace function memfold.{name}({arguments}) returns bytea"
            " language plpgsql immutable security definer set search_path = {path} as {body}",
            name=name_of(f"hash_{self.of.name}"),
            arguments=arguments,
            path=self._path(),
            body=dollar_quoted(body),
        )

    def trigger_function(self, *, withhold: bool = False) -> str:
        if withhold:
            body = (
                "begin\n"
                "    -- the unique index is being built; the row gets its hash afterwards\n"
                f"    new.{render(x.name(self.hash))} := null;\n"
                "    return new;\n"
                "end\n"
            )
        else:
            body = (
                "begin\n"
                "    begin\n"
                f"        new.{render(x.name(self.hash))} := {render(self.hash_or_null('new'))};\n"
                "    exception when others then\n"
                f"        new.{render(x.name(self.hash))} := null;  -- the writer must not fail for it\n"
                "    end;\n"
                "    return new;\n"
                "end\n"
            )
        return composed(
            "create or replace function memfold.{name}() returns trigger"
            " language plpgsql security definer set search_path = {path} as {body}",
            name=name_of(f"fill_{self.of.name}"),
            path=self._path(),
            body=dollar_quoted(body),
        )

    def step_2_functions(self, owner: str | None) -> list[str]:
        """The functions; owner: who they are to belong to, where that is another role than the session's."""
        made = [self.hash_function(), self.trigger_function()]
        made += self._finish("hash", self._arguments(self.of.columns), owner)
        made += self._finish("fill", sql.SQL(""), owner)
        if owner is not None:
            made += [
                composed("grant usage on schema memfold to {owner}", owner=name_of(owner)),
                composed(
                    "grant execute on function memfold._adopted_hash(text, text) to {owner}",
                    owner=name_of(owner),
                ),
            ]
        return made

    def _finish(self, kind: str, arguments: sql.Composable, owner: str | None) -> list[str]:
        function = sql.SQL("memfold.{}({})").format(name_of(f"{kind}_{self.of.name}"), arguments)
        made = [
            composed("revoke all on function {f} from public", f=function),
            composed(
                "comment on function {f} is {text}",
                f=function,
                text=sql.Literal(f"{MADE_BY} for {self.of.table}."),
            ),
        ]
        if owner is not None:
            made.append(composed("alter function {f} owner to {owner}", f=function, owner=name_of(owner)))
        return made

    def _arguments(self, columns: Sequence[str]) -> sql.Composable:
        return sql.SQL(", ").join(self._type(self.of.table.columns[one]) for one in columns)

    @staticmethod
    def _type(of: Column) -> sql.SQL:
        # as the server prints it: an argument has no length
        return sql.SQL(re.sub(r"\(\d+(,-?\d+)?\)", "", of.type))

    def triggers(self) -> list[str]:
        """An update fires only where it changes what is hashed."""
        changed = [
            build(
                "OLD is distinct from NEW",
                OLD=self._comparable(self.of.table.columns[one], "old"),
                NEW=self._comparable(self.of.table.columns[one], "new"),
            )
            for one in self.of.columns
        ]
        table, function = rendered(self.table), name_of("memfold", f"fill_{self.of.name}")
        # Where other BEFORE triggers may change a row, the columns that an UPDATE names say too little.
        others = [one for one in self.of.table.triggers if one not in TRIGGERS]
        of: sql.Composable = sql.SQL("")
        if not others:
            of = sql.SQL(" of {}").format(sql.SQL(", ").join(map(name_of, self.of.columns)))
        made = [
            composed(
                "create or replace trigger {name} before insert on {table} for each row execute function {function}()",
                name=name_of(TRIGGERS[0]),
                table=table,
                function=function,
            )
        ]
        if changed:
            made.append(
                composed(
                    "create or replace trigger {name} before update{of} on {table} for each row"
                    " when ({changed}) execute function {function}()",
                    name=name_of(TRIGGERS[1]),
                    of=of,
                    table=table,
                    changed=rendered(
                        changed[0] if len(changed) == 1 else exp.or_(*changed, copy=False, wrap=False)
                    ),
                    function=function,
                )
            )
        return made

    @staticmethod
    def _comparable(of: Column, alias: str) -> Node:
        return column(of.name, alias) if of.comparable else x.as_text(column(of.name, alias))

    def drop_triggers(self) -> list[str]:
        return [
            composed(
                "drop trigger if exists {name} on {table}", name=name_of(one), table=rendered(self.table)
            )
            for one in TRIGGERS
        ]

    def drop_functions(self, kinds: Sequence[str] = ("insert", "find", "fill", "hash")) -> list[str]:
        made = [
            composed("drop function if exists memfold.{name}", name=name_of(f"{kind}_{self.of.name}"))
            for kind in kinds
        ]
        if "insert" in kinds:
            made.append(
                composed("drop type if exists memfold.{name}", name=name_of(f"inserted_{self.of.name}"))
            )
        return made

    # Step 3

    @remembered
    def next_batch(self, *, first: bool) -> str:
        """The last key of the next $n rows and how many they are; $1 to $n-1: the key after which they begin."""
        size = parameter(1 if first else len(self.of.key) + 1)
        tree = build(
            "with batch as materialized (select KEY from T as t where C order by ORDERED limit SIZE)"
            " select TEXTS, (select count(*) from batch) as n from batch as b order by LAST limit 1",
            KEY=self.key("t"),
            T=self.table,
            C=exp.true() if first else self._after(),
            ORDERED=self.key("t"),
            SIZE=size,
            TEXTS=self.key_texts("b"),
            LAST=[exp.Ordered(this=one, desc=True) for one in self.key("b")],
        )
        return render(tree)

    def _after(self) -> Node:
        low = listed(*(typed(parameter(n + 1), self.key_type(name)) for n, name in enumerate(self.of.key)))
        return exp.GT(this=listed(*self.key("t")), expression=low)

    def _until(self, first: bool) -> Node:
        skip = 0 if first else len(self.of.key)
        high = listed(
            *(typed(parameter(skip + n + 1), self.key_type(name)) for n, name in enumerate(self.of.key))
        )
        until = exp.LTE(this=listed(*self.key("t")), expression=high)
        return until if first else x.conjunction([self._after(), until])

    @remembered
    def fill_batch(self, *, first: bool) -> str:
        """Hash the rows of a batch that have no hash, note it, and find the end of the next one: one round trip.

        $1 ...: the keys after which it begins and with which it ends, its rows, and the rows of the next.
        """
        asked = [self._until(first), self._without_hash("t"), *self.conditions("t")]
        tree = build(
            "with done as (update T as t set H = HASH where C returning H as h)," + self._NOTED,  # noqa: S608 (constants)
            T=self.table,
            H=column(self.hash),
            HASH=self.hashed("t"),
            C=x.conjunction(asked),
            **self._noted(first),
        )
        return self._returning(tree)

    # What a batch is and that it is done is committed at once.
    _NOTED = (
        " noted as (update memfold.adoptions as a set position = POSITION, rows_seen = a.rows_seen + SEEN,"
        " rows_hashed = a.rows_hashed + (select count(h) from done), updated_at = clock_timestamp()"
        " where a.table_schema = SCHEMA and a.table_name = NAME returning a.paused),"
        " batch as materialized (select KEY from T as t where AFTER order by KEY limit SIZE)"
        " select (select paused from noted) as paused, (select count(*) from batch) as n, TEXTS"
        " from (select 1) as one"
        " left join lateral (select KEYS from batch as b order by LAST limit 1) as b on true"
    )

    def _noted(self, first: bool) -> dict[str, Node | Sequence[Node]]:
        width = len(self.of.key)
        low = 0 if first else width
        high = [typed(parameter(low + n + 1), self.key_type(name)) for n, name in enumerate(self.of.key)]
        return {
            "POSITION": exp.Anonymous(this="jsonb_build_array", expressions=[x.as_text(one) for one in high]),
            "SEEN": typed(parameter(low + width + 1), "bigint"),
            "SCHEMA": x.text(self.of.table.schema),
            "NAME": x.text(self.of.table.name),
            "KEY": self.key("t"),
            "KEYS": self.key("b"),
            "AFTER": exp.GT(this=listed(*self.key("t")), expression=listed(*high)),
            "SIZE": parameter(low + width + 2),
            "TEXTS": self.key_texts("b"),
            "LAST": [exp.Ordered(this=one, desc=True) for one in self.key("b")],
        }

    @remembered
    def fill_batch_carefully(self, *, first: bool) -> str:
        """The same, never waiting for a row, and without a hash where an expression fails."""
        tree = build(
            "with todo as materialized ("  # noqa: S608 (constants)
            "select KEY, HASH as memfold_h from T as t where C for no key update skip locked),"
            " done as (update T as t set H = todo.memfold_h from todo"
            " where SAME and todo.memfold_h is not null returning H as h)," + self._NOTED,
            HASH=self.safe_hash("t"),
            T=self.table,
            C=x.conjunction([self._until(first), self._without_hash("t")]),
            H=column(self.hash),
            SAME=x.conjunction(
                [exp.EQ(this=column(one, "t"), expression=column(one, "todo")) for one in self.of.key]
            ),
            **self._noted(first),
        )
        return self._returning(tree)

    def _returning(self, tree: Node) -> str:
        # RETURNING speaks of two rows in the second form: the table's is meant
        for found in tree.find_all(exp.Returning):
            if isinstance(found.expressions[0], exp.Alias):
                found.set("expressions", [exp.alias_(column(self.hash, "t"), "h")])
        return render(tree)

    def _without_hash(self, alias: str) -> Node:
        return build("H is null", H=column(self.hash, alias))

    @remembered
    def missing(self) -> str:
        """Keys of $1 rows at most that have no hash, but are to have one."""
        tree = build(
            "select TEXTS from T as t where H and HASH is not null order by KEY limit SIZE",
            TEXTS=self.key_texts("t"),
            T=self.table,
            H=self._without_hash("t"),
            HASH=self.safe_hash("t"),
            KEY=self.key("t"),
            SIZE=parameter(1),
        )
        return render(tree)

    @remembered
    def fill_keys(self) -> str:
        """Hash the rows of these keys that have none, but for rows that someone else has locked."""
        source, same = self.keyed("t", "p")
        tree = build(
            "with todo as materialized ("
            "select KEY, HASH as memfold_h from T as t join P on C where H for no key update of t skip locked),"
            " done as (update T as t set N = todo.memfold_h from todo where SAME returning N as h)"
            " select count(*) as touched, count(h) as hashed from done",
            KEY=self.key("t"),
            HASH=self.safe_hash("t"),
            T=self.table,
            P=source,
            C=same,
            H=self._without_hash("t"),
            N=column(self.hash),
            SAME=x.conjunction(
                [exp.EQ(this=column(one, "t"), expression=column(one, "todo")) for one in self.of.key]
            ),
        )
        return self._returning(tree)

    def reasons(self) -> str:
        """Rows without a hash, by reason."""
        counted: list[Node] = [exp.alias_(build("count(*)"), "without_hash")]
        earlier: list[Node] = []

        def reason(name: str, test: Node) -> None:
            tests = x.conjunction([*earlier, wrapped(test)])
            counted.append(exp.alias_(build("count(*) filter (where C)", C=tests), name, quoted=True))
            earlier.append(build("not coalesce(X, false)", X=test))

        if self.of.where is not None:
            reason("not selected by --where", build("(X) is not true", X=wrapped(self.of.where.on("t"))))
        for one, called in ((self.of.tenant, "no tenant"), (self.of.bucket, "no bucket")):
            if one is not None:
                reason(called, build("X is null", X=one.on("t")))
        reason("no content", build("X is null", X=self.of.content.on("t")))
        reason("empty in canonical form", build("H is null", H=self.hashed("t")))
        counted.append(exp.alias_(build("count(*) filter (where C)", C=x.conjunction(earlier)), "waiting"))
        tree = build("select X from T as t where H", X=counted, T=self.table, H=self._without_hash("t"))
        return render(tree)

    def without_hash(self) -> str:
        """Rows without a hash, and how many of them are to have one."""
        tree = build(
            "select count(*) as without_hash, count(HASH) as waiting from T as t where H",
            T=self.table,
            HASH=self.safe_hash("t"),
            H=self._without_hash("t"),
        )
        return render(tree)

    # Step 4

    def find_groups(self) -> list[str]:
        """Groups of rows with one hash, into two temporary tables: reads the table twice, locks nothing."""
        scope = self.scope("t")
        # a placeholder column where a constant tells nothing apart
        names = [f"s{n}" for n in range(len(scope))]
        h = column(self.hash, "t")
        groups = build(
            "create temporary table memfold_groups as"
            " select row_number() over () as group_id, count(*) as members, X from T as t"
            " where C group by G having count(*) > 1",
            X=[
                *(exp.alias_(one, name) for one, name in zip(scope, names, strict=True)),
                exp.alias_(h.copy(), "h"),
            ],
            T=self.table,
            C=build("H is not null", H=h),
            G=[*scope, h],
        )
        # An expression may fail on rows without a hash: they are left out where the table is read.
        same: list[Node] = [build("H is not null", H=h)]
        same += [
            exp.EQ(this=one, expression=exp.column(name, table="g"))
            for one, name in zip([*scope, h], [*names, "h"], strict=True)
        ]
        members = build(
            # slot: a number for each row that is not the oldest of its group, those of a group side by side
            "create temporary table memfold_members as"
            " select m.*, row_number() over (order by m.place = 1, m.group_id, m.place) as slot from ("
            "select g.group_id, row_number() over (partition by g.group_id order by O) as place, g.h,"
            " X from T as t join memfold_groups as g on C) as m",
            O=self.oldest_first("t"),
            X=[
                exp.alias_(self._scope_text(self.of.tenant, "t"), "tenant"),
                exp.alias_(self._scope_text(self.of.bucket, "t"), "bucket"),
                *(exp.alias_(x.as_text(column(one, "t")), f"k{n}") for n, one in enumerate(self.of.key)),
            ],
            T=self.table,
            C=x.conjunction(same),
        )
        return [
            "drop table if exists pg_temp.memfold_members, pg_temp.memfold_groups",
            render(groups),
            render(members),
            "create unique index on pg_temp.memfold_members (slot)",
            "create index on pg_temp.memfold_members (group_id) where place = 1",
            "analyze pg_temp.memfold_members",
        ]

    def _scope_text(self, one: Expression | None, alias: str) -> Node:
        return x.as_text(one.on(alias) if one is not None else exp.Null())

    @remembered
    def lock_rows(self) -> str:
        """Lock the rows of these keys, in order of their keys."""
        source, same = self.keyed("t", "p")
        tree = build(
            "select TEXTS from T as t join P on C order by KEY for update of t",
            TEXTS=self.key_texts("t"),
            T=self.table,
            P=source,
            C=same,
            KEY=self.key("t"),
        )
        return render(tree)

    @remembered
    def rank_rows(self, wanted: tuple[str, ...]) -> str:
        """The rows of these keys that are locked now, by group and age; wanted: columns whose text is needed."""
        source, same = self.keyed("t", "p")
        h = build("coalesce(H, S)", H=column(self.hash, "t"), S=self.safe_hash("t"))
        tree = build(
            "select dense_rank() over (order by G) as group_id, row_number() over (partition by G order by O) as place,"
            " HAS as has_hash, X from T as t join P on C where HH is not null order by 1, 2",
            G=[*self.scope("t"), h],
            O=self.oldest_first("t"),
            HAS=build("H is not null", H=column(self.hash, "t")),
            X=[
                exp.alias_(h.copy(), "memfold_h"),
                exp.alias_(self._scope_text(self.of.tenant, "t"), "memfold_tenant"),
                exp.alias_(self._scope_text(self.of.bucket, "t"), "memfold_bucket"),
                *(
                    exp.alias_(x.as_text(column(one, "t")), f"c:{one}", quoted=True)
                    for one in dict.fromkeys([*self.of.key, *wanted])
                ),
            ],
            T=self.table,
            P=source,
            C=same,
            HH=h,
        )
        return render(tree)

    @remembered
    def holders(self) -> str:
        """The keys of rows that hold the hash that the rows of these keys are to have; by the unique index."""
        source, same = self.keyed("t", "p")
        scope = [exp.alias_(one, f"s{n}") for n, one in enumerate(self.scope("t"))]
        tree = build(
            "with wanted as materialized (select X from T as t join P on C)"
            " select TEXTS from wanted as w join T as t on MATCH",
            X=[*scope, exp.alias_(self.safe_hash("t"), "h")],
            T=self.table,
            P=source,
            C=same,
            TEXTS=self.key_texts("t"),
            MATCH=x.conjunction(
                [
                    exp.EQ(this=column(self.hash, "t"), expression=exp.column("h", table="w")),
                    *(
                        exp.EQ(this=one, expression=exp.column(f"s{n}", table="w"))
                        for n, one in enumerate(self.scope("t"))
                    ),
                ]
            ),
        )
        return render(tree)

    # Step 5

    def create_index(self) -> str:
        tree = build(
            "create unique index concurrently I on T (KEYS) where H is not null",
            I=x.name(self.index),
            T=self.table,
            KEYS=self.index_keys(),
            H=column(self.hash),
        )
        return render(tree)

    def drop_index(self) -> str:
        tree = build("drop index concurrently if exists I", I=x.table(self.of.table.schema, self.index))
        return render(tree)

    # Step 6

    def find_functions(self, owner: str | None, grantees: Sequence[str]) -> list[str]:
        """What finds the row that a conflict is about; made before there can be one."""
        return [
            *self.drop_functions(("find",)),
            self._find_function(),
            *self._finish("find", self._arguments(self.of.columns), owner),
            *self._grants(("hash", "find"), self.of.columns, grantees),
        ]

    def insert_functions(self, owner: str | None, grantees: Sequence[str]) -> list[str]:
        """What inserts, or gives the row that is there; grantees: the roles that may insert into the table."""
        arguments = tuple(one.name for one in self._insertable())
        result = name_of("memfold", f"inserted_{self.of.name}")
        made = [
            *self.drop_functions(("insert",)),
            self._result_type(),
            composed(
                "comment on type {t} is {text}", t=result, text=sql.Literal(f"{MADE_BY} for {self.of.table}.")
            ),
        ]
        if owner is not None:
            made.append(composed("alter type {t} owner to {owner}", t=result, owner=name_of(owner)))
        return [
            *made,
            self._insert_function(),
            *self._finish("insert", self._arguments(arguments), owner),
            *self._grants(("insert",), arguments, grantees),
        ]

    def _grants(self, kinds: Sequence[str], columns: Sequence[str], grantees: Sequence[str]) -> list[str]:
        made = []
        for grantee in grantees:
            to = name_of(grantee)
            made.append(composed("grant usage on schema memfold to {to}", to=to))
            made += [
                composed(
                    "grant execute on function memfold.{f}({a}) to {to}",
                    f=name_of(f"{kind}_{self.of.name}"),
                    a=self._arguments(columns),
                    to=to,
                )
                for kind in kinds
            ]
        return made

    def _result_type(self) -> str:
        fields = [
            sql.SQL("{} {}").format(name_of(one), self._type(self.of.table.columns[one]))
            for one in self.of.key
        ]
        return composed(
            "create type memfold.{name} as ({fields}, deduped boolean)",
            name=name_of(f"inserted_{self.of.name}"),
            fields=sql.SQL(", ").join(fields),
        )

    def _find_function(self) -> str:
        function = f"find_{self.of.name}"
        scope = [exp.EQ(this=one.on("t"), expression=one.on(function)) for one in self.of.scope]
        tree = build(
            "select w.h, KEY from (select HASH as h) as w left join T as t on C",
            KEY=self.key("t"),
            HASH=self.safe_hash(function),
            T=self.table,
            C=x.conjunction(
                [exp.EQ(this=column(self.hash, "t"), expression=exp.column("h", table="w")), *scope]
            ),
        )
        outs = [
            sql.SQL("{} {}").format(name_of(f"existing_{one}"), self._type(self.of.table.columns[one]))
            for one in self.of.key
        ]
        arguments = [
            sql.SQL("{} {} default null").format(name_of(one), self._type(self.of.table.columns[one]))
            for one in self.of.columns
        ]
        return composed(
            "create function memfold.{name}({arguments}) returns table (content_hash bytea, {outs})"
            " language plpgsql stable set search_path = {path} as {body}",
            name=name_of(function),
            arguments=sql.SQL(", ").join(arguments),
            outs=sql.SQL(", ").join(outs),
            path=self._path(),
            body=dollar_quoted(
                "#variable_conflict use_column\nbegin\n    return query\n"
                + _indented(render(tree, pretty=True), 4)
                + ";\nend\n"
            ),
        )

    def _insertable(self) -> list[Column]:
        """The columns that an INSERT may give, those without which it fails first: they have no default."""
        columns = [
            one
            for one in self.of.table.columns.values()
            if not one.generated and not one.identity and one.name != self.hash
        ]
        if len(columns) > 100:
            needed = set(self.of.columns) | set(self.of.key)
            columns.sort(key=lambda one: (not (one.required and one.default is None), one.name not in needed))
            columns = columns[:100]
        return sorted(columns, key=lambda one: not (one.required and one.default is None))

    def _insert_function(self) -> str:
        function = f"insert_{self.of.name}"
        columns = self._insertable()
        tree = build(
            "insert into T as t (C) values (V) on conflict (K) where H is not null do nothing returning R",
            T=self.table,
            C=[x.name(one.name) for one in columns],
            V=[column(one.name, function) for one in columns],
            K=self.index_keys(),
            H=column(self.hash),
            R=[*self.key("t"), exp.false()],
        )
        held = build(
            "select EXISTING, true from FOUND as f where C",
            EXISTING=[column(f"existing_{one}", "f") for one in self.of.key],
            FOUND=exp.Table(
                this=exp.Anonymous(
                    this=f"find_{self.of.name}",
                    expressions=[column(one, function) for one in self.of.columns],
                ),
                db=exp.to_identifier("memfold"),
            ),
            C=build("X is not null", X=column(f"existing_{self.of.key[0]}", "f")),
        )
        arguments = [
            sql.SQL("{} {}{}").format(name_of(one.name), self._type(one), self._default(one))
            for one in columns
        ]
        # The target of INTO goes before FROM or at the end of RETURNING: PL/pgSQL takes it out wherever it stands.
        body = (
            "#variable_conflict use_column\n"
            "declare\n"
            f"    v_result memfold.inserted_{self.of.name};\n"
            "begin\n"
            "    for v_try in 1..10 loop\n"
            f"{_indented(render(tree, pretty=True), 8)}\n        into v_result;\n"
            "        if found then\n            return v_result;\n        end if;\n"
            f"{_indented(render(held, pretty=True), 8)}\n        into v_result;\n"
            "        if found then\n            return v_result;\n        end if;\n"
            "        -- what was in the way has gone meanwhile, or is not visible\n"
            "    end loop;\n"
            "    raise exception 'a row of the same text is being changed' using errcode = '40001', hint = 'Try again.';\n"
            "end\n"
        )
        return composed(
            "create function memfold.{name}({arguments}) returns memfold.{result}"
            " language plpgsql volatile set search_path = {path} as {body}",
            name=name_of(function),
            arguments=sql.SQL(", ").join(arguments),
            result=name_of(f"inserted_{self.of.name}"),
            path=self._path(),
            body=dollar_quoted(body),
        )

    @staticmethod
    def _default(one: Column) -> sql.Composable:
        if one.required and one.default is None:
            return sql.SQL("")
        if one.default is None:
            return sql.SQL(" default null")
        # printed by the server
        return sql.SQL(" default {}").format(sql.SQL(one.default))


def _indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.splitlines())


def define(
    table: Table,
    name: str,
    key: tuple[str, ...],
    given: Mapping[str, str | None],
    *,
    profile: str = "prose",
    hash_column: str = "content_hash",
) -> Definition:
    """The definition that these expressions give, by option without dashes; the server has still to bind them."""
    if profile not in PROFILES and profile not in PROFILES.values():
        raise AdoptError(f"there is no profile {profile}", hint=f"The profiles are {', '.join(PROFILES)}.")
    parsed: dict[str, Expression | None] = {}
    for option in ("content", "tenant", "bucket", "created", "where"):
        text = given.get(option)
        parsed[option] = None if text is None else x.parse(f"--{option}", text, table.columns, str(table))
    content = parsed["content"]
    if content is None:
        raise AdoptError(
            "--content is missing", hint="Say where the text of a row is, such as --content content."
        )
    for one in parsed.values():
        for used in one.columns if one is not None else ():
            if table.columns[used].generated:
                raise AdoptError(
                    f"{one.option if one else ''}: {used} is a generated column, which triggers cannot read",
                    hint=f"Give the expression that it is generated of: {table.columns[used].default}",
                )
            if used == hash_column:
                raise AdoptError(f"{used} is where the hash goes: it cannot be part of it")
    if content.is_constant:
        raise AdoptError(f"--content names no column: {content.given}")
    return Definition(
        table=table,
        name=name,
        hash_column=hash_column,
        key=key,
        profile=PROFILES.get(profile, profile),
        content=content,
        tenant=parsed["tenant"],
        bucket=parsed["bucket"],
        created=parsed["created"],
        where=parsed["where"],
        schemas=(),
    )
