"""The function that a table's triggers call: it hashes written rows and, if asked to, absorbs known texts."""

from __future__ import annotations

from psycopg import sql
from sqlglot import exp

from memfold.adopt import expressions as x
from memfold.adopt.expressions import Node, build, column, render, typed
from memfold.adopt.sql_fragments import SqlFragments, composed, dollar_quoted, name_of

__all__ = ["TriggerFunction"]


class TriggerFunction(SqlFragments):
    """One function for INSERT and UPDATE. Replacing it locks nothing, so an adoption uses that to change its effect."""

    def _path(self) -> sql.Composable:
        return sql.SQL(", ").join(
            name_of(one) if one != "pg_temp" else sql.SQL("pg_temp") for one in self.path
        )

    def trigger_function(self, *, withhold: bool = False, absorb: bool = False) -> str:
        """withhold: set no hash; absorb: leave out a row whose text is known, and count it."""
        hash_column = f"new.{render(x.name(self.hash))}"
        if withhold:
            body = (
                "begin\n"
                "    -- the unique index is being built; the row gets its hash afterwards\n"
                f"    {hash_column} := null;\n"
                "    return new;\n"
                "end\n"
            )
        else:
            body = (
                "begin\n"
                "    begin\n"
                f"        {hash_column} := {render(self.hash_or_null('new'))};\n"
                "    exception when others then\n"
                f"        {hash_column} := null;  -- it must not make the writer fail\n"
                "    end;\n"
                "    return new;\n"
                "end\n"
            )
            if absorb:
                body = self._absorbing(body.removesuffix("    return new;\nend\n"), hash_column)
        return composed(
            "create or replace function memfold.{name}() returns trigger"
            " language plpgsql security definer set search_path = {path} as {body}",
            name=name_of(f"fill_{self.of.name}"),
            path=self._path(),
            body=dollar_quoted(body),
        )

    def _absorbing(self, hashing: str, hash_column: str) -> str:
        # FOR SHARE waits for a change or deletion of the row, as the unique index would: afterwards the text may be
        # gone.
        return (
            "#variable_conflict use_column\n"
            "declare\n"
            "    v_kept jsonb;\n"
            "    v_known boolean;\n"
            f"{hashing}"
            "    -- what others commit is seen by the next statement only in READ COMMITTED; else the unique index decides\n"
            f"    if {hash_column} is null or current_setting('transaction_isolation') <> 'read committed' then\n"
            "        return new;\n"
            "    end if;\n"
            "    -- once more after the claim: a concurrent insert of the same text has ended by then\n"
            "    for v_try in 1..2 loop\n"
            "        if tg_op = 'INSERT' then\n"
            f"            {render(self._held())}\n"
            "            into v_kept, v_known;\n"
            "            if found then\n"
            "                -- a row with this key exists too: leave it to ON CONFLICT, or to the error of the key\n"
            "                if v_known then\n"
            "                    return new;\n"
            "                end if;\n"
            f"                perform {render(self._counted())};\n"
            "                return null;\n"
            "            end if;\n"
            "        end if;\n"
            "        if v_try = 1 then\n"
            f"            perform {render(self._claimed())};\n"
            "        end if;\n"
            "    end loop;\n"
            "    return new;\n"
            "end\n"
        )

    def _held(self) -> Node:
        """The key of the row that holds the new row's text, and whether a row with the new row's key exists."""
        # Compare the hash first, because an expression may fail for rows without one.
        same: list[tuple[Node, Node]] = [(column(self.hash, "t"), column(self.hash, "new"))]
        same += [(one.on("t"), one.on("new")) for one in self.of.scope]
        keys = [(column(one, "k"), column(one, "new")) for one in self.of.key]
        return build(
            "select KEY, exists (select 1 from T as k where K) from T as t where C for share of t",
            KEY=exp.Anonymous(
                this="jsonb_build_object",
                expressions=[
                    part for one in self.of.key for part in (x.text(one), x.as_text(column(one, "t")))
                ],
            ),
            T=self.table,
            K=x.conjunction([exp.EQ(this=one, expression=other) for one, other in keys]),
            C=x.conjunction([exp.EQ(this=one, expression=other) for one, other in same]),
        )

    def _counted(self) -> Node:
        return build(
            "memfold.adopted_repeat(NAME, KEPT)",
            NAME=x.text(self.of.name),
            KEPT=exp.column("v_kept"),
        )

    def _claimed(self) -> Node:
        scope = [x.as_text(one.on("new")) for one in self.of.scope]
        return build(
            "memfold.adopted_claim(NAME, SCOPE, H)",
            NAME=x.text(self.of.name),
            SCOPE=typed(exp.Array(expressions=scope), "text[]"),
            H=column(self.hash, "new"),
        )

    def absorb_functions(self, owner: str | None, *, absorb: bool) -> list[str]:
        """The function with or without absorbing; owner: its owner, if that is another role."""
        made = [self.trigger_function(absorb=absorb)]
        if absorb and owner is not None:
            made.append(
                composed(
                    "grant execute on function memfold.adopted_claim(text, text[], bytea),"
                    " memfold.adopted_repeat(text, jsonb) to {owner}",
                    owner=name_of(owner),
                )
            )
        return made
