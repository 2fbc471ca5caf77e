"""Statements of steps 1, 2 and 6: the column, the triggers and the functions. sqlglot does not cover their grammar,
so psycopg composes them from quoted names and rendered trees."""

from __future__ import annotations

import re
from collections.abc import Sequence

from psycopg import sql
from sqlglot import exp

from memfold.adopt import expressions as x
from memfold.adopt.catalog import Column
from memfold.adopt.expressions import Node, build, column, render
from memfold.adopt.sql_fragments import composed, dollar_quoted, name_of, rendered
from memfold.adopt.trigger import TriggerFunction

__all__ = ["Functions"]

MADE_BY = "Made by memfold adopt"
# The last of the BEFORE triggers, which fire in order of their names, so that it hashes the final row.
TRIGGERS = ("zz_memfold_insert", "zz_memfold_update")


class Functions(TriggerFunction):
    """The objects that are created for a table, and removed again."""

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

    def step_2_functions(self, owner: str | None) -> list[str]:
        """The functions; owner: their owner, if that is a role other than the session's."""
        made = [self.hash_function(), self.trigger_function()]
        made += self._finish("hash", self.arguments(self.of.columns), owner)
        made += self._finish("fill", sql.SQL(""), owner)
        if owner is not None:
            made += [
                composed("grant usage on schema memfold to {owner}", owner=name_of(owner)),
                composed(
                    "grant execute on function memfold.adopted_hash(text, text) to {owner}",
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

    def arguments(self, columns: Sequence[str]) -> sql.Composable:
        return sql.SQL(", ").join(self._type(self.of.table.columns[one]) for one in columns)

    @staticmethod
    def _type(of: Column) -> sql.SQL:
        # as the server prints it: an argument has no length
        return sql.SQL(re.sub(r"\(\d+(,-?\d+)?\)", "", of.type))

    def triggers(self) -> list[str]:
        """An UPDATE fires the trigger only if it changes what is hashed."""
        changed = [
            build(
                "OLD is distinct from NEW",
                OLD=self._comparable(self.of.table.columns[one], "old"),
                NEW=self._comparable(self.of.table.columns[one], "new"),
            )
            for one in self.of.columns
        ]
        table, function = rendered(self.table), name_of("memfold", f"fill_{self.of.name}")
        # If other BEFORE triggers may change a row, the columns named by an UPDATE are not enough.
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

    # Step 6

    def find_functions(self, owner: str | None, grantees: Sequence[str]) -> list[str]:
        """The function that finds the row of a conflict; created before there can be one."""
        return [
            *self.drop_functions(("find",)),
            self._find_function(),
            *self._finish("find", self.arguments(self.of.columns), owner),
            *self._grants(("hash", "find"), self.of.columns, grantees),
        ]

    def insert_functions(self, owner: str | None, grantees: Sequence[str]) -> list[str]:
        """The function that inserts, or returns the existing row; grantees: the roles that may insert into the table."""
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
            *self._finish("insert", self.arguments(arguments), owner),
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
                    a=self.arguments(columns),
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
        """The columns that an INSERT may give, beginning with those that it must give because they have no default."""
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
        # The target of INTO goes before FROM or at the end of RETURNING: PL/pgSQL accepts it anywhere.
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
            "        -- the conflicting row has gone since, or is not visible\n"
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
