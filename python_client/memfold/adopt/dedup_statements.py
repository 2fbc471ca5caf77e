"""The statements that remove rows from a table, together with what refers to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from memfold.adopt import catalog
from memfold.adopt import expressions as x
from memfold.adopt.catalog import Child, Table
from memfold.adopt.definition import Definition
from memfold.adopt.expressions import Node, build, column, render, typed
from memfold.adopt.sql_fragments import parameter, remembered

__all__ = ["DedupStatements", "Key", "touched"]

Key = tuple[str, ...]


class DedupStatements:
    """Builds these statements for one adoption."""

    def __init__(self, connection: catalog.Connection, definition: Definition) -> None:
        self.connection = connection
        self.of = definition
        self._children: dict[int, list[Child]] = {}
        self._keys: dict[int, tuple[str, ...]] = {self.of.table.oid: self.of.key}
        self._indexes: dict[tuple[int, str], list[catalog.Index]] = {}

    def wanted(self, table: Table) -> tuple[str, ...]:
        """The key of a table, and the columns that foreign keys refer to."""
        referenced = (one for child in self.children(table) for one in child.referenced)
        return tuple(dict.fromkeys([*self.key(table), *referenced]))

    def all(self) -> Iterator[str]:
        """All of them in order, as one batch sends them."""
        yield from self._all(self.of.table, "duplicate", set())

    def _all(self, table: Table, reason: str, seen: set[int]) -> Iterator[str]:
        seen.add(table.oid)
        yield self.archive(table, self.key(table), reason)
        for child in self.children(table):
            key = self.key(child.table)
            yield self.lock(child, key)
            if child.itself:
                yield self.clear(child, key)
            for index in self.touched(child):
                yield self.collisions(child, key, index)
                yield self.rows(child.table, key, self.wanted(child.table))
                if child.table.oid not in seen:
                    yield from self._all(child.table, "child_collision", seen)
            yield self.repoint(child, key)
        yield self.delete(table, self.key(table))

    def children(self, table: Table) -> list[Child]:
        if table.oid not in self._children:
            self._children[table.oid] = catalog.children(self.connection, table.oid)
        return self._children[table.oid]

    def key(self, table: Table) -> tuple[str, ...]:
        if table.oid not in self._keys:
            # Without a key the row's ctid is enough, within a transaction that has locked it.
            self._keys[table.oid] = catalog.row_key(self.connection, table) or ("ctid",)
        return self._keys[table.oid]

    def touched(self, child: Child) -> list[catalog.Index]:
        known = (child.table.oid, child.constraint)
        if known not in self._indexes:
            self._indexes[known] = touched(self.connection, child)
        return self._indexes[known]

    def _pair_source(self, child: Child) -> tuple[Node, Node]:
        """Old and new values of a foreign key, numbered, as a table p; rows c that have the old values."""
        width = len(child.columns)
        names = [f"l{n}" for n in range(width)] + [f"n{n}" for n in range(width)]
        source = exp.Unnest(
            expressions=[typed(parameter(n + 1), "text[]") for n in range(2 * width)],
            offset=True,
            alias=exp.TableAlias(
                this=exp.to_identifier("p"), columns=[exp.to_identifier(one) for one in [*names, "i"]]
            ),
        )
        same = x.conjunction(
            [
                exp.EQ(this=column(one, "c"), expression=self._value(child, n, "l"))
                for n, one in enumerate(child.columns)
            ]
        )
        return source, same

    @staticmethod
    def _value(child: Child, number: int, prefix: str) -> Node:
        return typed(
            exp.column(f"{prefix}{number}", table="p"), child.table.columns[child.columns[number]].type
        )

    @remembered
    def archive(self, table: Table, key: Key, reason: str) -> str:
        real = key != ("ctid",)
        source, same = _keyed(table, key, "t", "p", extra=("jsonb", "text", "text", "bytea"))
        tree = build(
            "insert into memfold.adoption_archive (adoption, reason, table_schema, table_name, row_key, row_data,"
            " kept_key, tenant, bucket, content_hash)"
            " select A, B, S, N, ROWKEY, WHOLE, p.e0, p.e1, p.e2, p.e3 from T as t join P on C"
            " returning archive_id, row_key",
            A=x.text(self.of.name),
            B=x.text(reason),
            S=x.text(table.schema),
            N=x.text(table.name),
            ROWKEY=(
                build(
                    "jsonb_object(NAMES, TEXTS)",
                    NAMES=_array([x.text(one) for one in key]),
                    TEXTS=_array([x.as_text(column(one, "t")) for one in key]),
                )
                if real
                else build("jsonb_build_object('ctid', t.ctid)")
            ),
            WHOLE=_whole(table, "t", self.of.hash_column if table.oid == self.of.table.oid else None),
            T=table.node,
            P=source,
            C=same,
        )
        return render(tree)

    @remembered
    def delete(self, table: Table, key: Key) -> str:
        source, same = _keyed(table, key, "t", "p")
        tree = build(
            "with gone as (delete from T as t using P where C returning 1 as one) select count(*) as n from gone",
            T=table.node,
            P=source,
            C=same,
        )
        return render(tree)

    @remembered
    def lock(self, child: Child, key: Key) -> str:
        source, same = self._pair_source(child)
        tree = build(
            "select 1 as one from C as c join P on S order by K for update of c",
            C=child.table.node,
            P=source,
            S=same,
            K=[column(one, "c") for one in key],
        )
        return render(tree)

    @remembered
    def collisions(self, child: Child, key: Key, index: catalog.Index) -> str:
        columns = index.columns
        source, same = self._pair_source(child)
        texts = [exp.alias_(x.as_text(column(one, "c")), f"x{n}") for n, one in enumerate(key)]
        new = [
            exp.alias_(
                self._value(child, child.columns.index(one), "n")
                if one in child.columns
                else column(one, "c"),
                f"v{n}",
            )
            for n, one in enumerate(columns)
        ]
        own = [exp.alias_(column(one, "c"), f"v{n}") for n, one in enumerate(columns)]
        there = build(
            "exists (select 1 from P where S)",
            P=source,
            S=x.conjunction(
                [
                    exp.EQ(this=column(one, "c"), expression=self._value(child, n, "n"))
                    for n, one in enumerate(child.columns)
                ]
            ),
        )
        values: list[Node] = [exp.column(f"v{n}", table="u") for n in range(len(columns))]
        firsts = [
            build(
                "first_value(X) over (partition by V order by u.moved, u.x0)",
                X=exp.column(f"x{n}", table="u"),
                V=values,
            )
            for n in range(len(key))
        ]
        tree = build(
            "select D from ("
            "select F, U, u.moved, row_number() over (partition by V order by u.moved, u.x0) as place from ("
            "select X, N, 1 as moved from C as c join P on S"
            " union all select X, O, 0 as moved from C as c where THERE) as u where W) as d"
            " where d.place > 1 and d.moved = 1",
            D=[exp.column(one, table="d") for n in range(len(key)) for one in (f"x{n}", f"f{n}")],
            F=[exp.alias_(one, f"f{n}") for n, one in enumerate(firsts)],
            U=[exp.column(f"x{n}", table="u") for n in range(len(key))],
            V=values,
            X=texts,
            N=new,
            O=own,
            C=child.table.node,
            P=source,
            S=same,
            THERE=there,
            W=x.conjunction([] if index.nulls_equal else [build("X is not null", X=one) for one in values]),
        )
        return render(tree)

    @remembered
    def clear(self, child: Child, key: Key) -> str:
        source, same = _keyed(child.table, key, "c", "p", extra=("text",) * len(child.columns))
        tree = build(
            "update C as c set X = null from P where S returning R",
            C=child.table.node,
            X=column(child.columns[0]),
            R=[
                *(exp.alias_(x.as_text(column(one, "c")), f"x{n}") for n, one in enumerate(key)),
                *(exp.column(f"e{n}", table="p") for n in range(len(child.columns))),
            ],
            P=source,
            S=x.conjunction(
                [
                    same,
                    *(
                        exp.EQ(
                            this=column(one, "c"),
                            expression=typed(exp.column(f"e{n}", table="p"), child.table.columns[one].type),
                        )
                        for n, one in enumerate(child.columns)
                    ),
                ]
            ),
        )
        return render(tree)

    @remembered
    def rows(self, table: Table, key: Key, wanted: tuple[str, ...]) -> str:
        source, same = _keyed(table, key, "t", "p")
        tree = build(
            "select distinct X from T as t join P on C",
            X=[
                exp.alias_(x.as_text(column(one, "t")), f"c:{one}", quoted=True)
                for one in dict.fromkeys(wanted)
            ],
            T=table.node,
            P=source,
            C=same,
        )
        return render(tree)

    @remembered
    def repoint(self, child: Child, key: Key, *, single: bool = False) -> str:
        source, same = self._pair_source(child)
        if single:
            after = 2 * len(child.columns) + 1
            same = x.conjunction(
                [
                    same,
                    *(
                        exp.EQ(
                            this=column(one, "c"),
                            expression=typed(parameter(after + n), _type(child.table, one)),
                        )
                        for n, one in enumerate(key)
                    ),
                ]
            )
        tree = build(
            "update C as c set X = null from P where S returning R",
            C=child.table.node,
            X=column(child.columns[0]),
            P=source,
            S=same,
            R=[
                exp.column("i", table="p"),
                *(exp.alias_(x.as_text(column(one, "c")), f"x{n}") for n, one in enumerate(key)),
                *([exp.alias_(_whole(child.table, "c"), "whole")] if key == ("ctid",) else []),
            ],
        )
        tree.set(
            "expressions",
            [
                exp.EQ(this=column(one), expression=self._value(child, n, "n"))
                for n, one in enumerate(child.columns)
            ],
        )
        return render(tree)


def touched(connection: catalog.Connection, child: Child) -> list[catalog.Index]:
    """Plain unique indexes of a child table that re-pointing could violate."""
    return [
        index
        for index in catalog.unique_indexes(connection, child.table.oid)
        if index.plain and set(index.columns) & set(child.columns)
    ]


def _type(table: Table, name: str) -> str:
    return "tid" if name == "ctid" else table.columns[name].type


def _array(nodes: Sequence[Node]) -> Node:
    return typed(exp.Array(expressions=list(nodes), bracket_notation=True), "text[]")


def _whole(table: Table, alias: str, without: str | None = None) -> Node:
    """All columns of a row, each value as the server prints it."""
    names = [one for one in table.columns if one != without]
    return build(
        "jsonb_object(NAMES, TEXTS)",
        NAMES=_array([x.text(one) for one in names]),
        TEXTS=_array([x.as_text(column(one, alias)) for one in names]),
    )


def _keyed(
    table: Table, key: Sequence[str], alias: str, other: str, extra: Sequence[str] = ()
) -> tuple[Node, Node]:
    """Keys with their other values, from arrays of parameters; and the condition that a row has such a key."""
    types = [*("text" for _ in key), *extra]
    names = [*(f"k{n}" for n in range(len(key))), *(f"e{n}" for n in range(len(extra)))]
    source = exp.Unnest(
        expressions=[typed(parameter(n + 1), f"{one}[]") for n, one in enumerate(types)],
        alias=exp.TableAlias(
            this=exp.to_identifier(other), columns=[exp.to_identifier(one) for one in names]
        ),
    )
    same = x.conjunction(
        [
            exp.EQ(
                this=column(one, alias), expression=typed(exp.column(f"k{n}", table=other), _type(table, one))
            )
            for n, one in enumerate(key)
        ]
    )
    return source, same
