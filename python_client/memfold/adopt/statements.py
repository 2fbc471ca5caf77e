"""Every statement that an adoption sends to a user's table: ``plan`` prints what ``run`` executes.

This module has those for rows: the backfill, the duplicates, the index.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from memfold.adopt import expressions as x
from memfold.adopt.expressions import Expression, Node, build, column, listed, render, typed, wrapped
from memfold.adopt.functions import Functions
from memfold.adopt.sql_fragments import parameter, remembered

__all__ = ["Statements"]


class Statements(Functions):
    """The statements of one adoption."""

    # Step 3

    @remembered
    def next_batch(self, *, first: bool) -> str:
        """The last key of the next $n rows and their number; $1 to $n-1: the key after which they begin."""
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
        """Hash the rows of a batch that have no hash, record it, and find the end of the next one: one round trip.

        $1 ...: the keys after which it begins and with which it ends, its number of rows, and that of the next.
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

    # The batch and the record that it is done are committed together.
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
        """The same, without waiting for locked rows, and without a hash if an expression fails."""
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
        # in the second form RETURNING could mean two rows: name that of the table
        for found in tree.find_all(exp.Returning):
            if isinstance(found.expressions[0], exp.Alias):
                found.set("expressions", [exp.alias_(column(self.hash, "t"), "h")])
        return render(tree)

    def _without_hash(self, alias: str) -> Node:
        return build("H is null", H=column(self.hash, alias))

    @remembered
    def missing(self) -> str:
        """Keys of at most $1 rows that have no hash but should have one."""
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
        """Hash the rows with these keys that have none, except rows locked by others."""
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
        """Rows without a hash, and how many of them should have one."""
        tree = build(
            "select count(*) as without_hash, count(HASH) as waiting from T as t where H",
            T=self.table,
            HASH=self.safe_hash("t"),
            H=self._without_hash("t"),
        )
        return render(tree)

    # Step 4

    def find_groups(self) -> list[str]:
        """Put groups of rows with one hash into two temporary tables: reads the table twice, locks nothing."""
        scope = self.scope("t")
        # a placeholder column if a constant distinguishes nothing
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
        # An expression may fail for rows without a hash, so they are left out when the table is read.
        same: list[Node] = [build("H is not null", H=h)]
        same += [
            exp.EQ(this=one, expression=exp.column(name, table="g"))
            for one, name in zip([*scope, h], [*names, "h"], strict=True)
        ]
        members = build(
            # slot: numbers the rows that are not the oldest of their group, with those of one group adjacent
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
        """The locked rows with these keys, by group and age; wanted: columns whose text is needed."""
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
        """The keys of rows that hold the hash that the rows with these keys should get; by the unique index."""
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
