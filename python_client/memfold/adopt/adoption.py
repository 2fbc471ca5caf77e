"""The adoption as a whole, as the command line calls it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import sql

from memfold.adopt import binding, catalog, duplicates, plan, session, state, statements, steps, undo
from memfold.adopt import definition as definitions
from memfold.adopt.definition import Definition
from memfold.adopt.options import Options
from memfold.adopt.session import Paused, Session
from memfold.adopt.state import Adoption
from memfold.client._text import escape_line
from memfold.client.errors import AdoptError, MemfoldError, translate

__all__ = ["Adopter"]

LAST = 6


class Adopter:
    """Adopts tables of one database."""

    def __init__(self, dsn: str, say: Callable[[str], None] = lambda _: None) -> None:
        self.say = say
        self.connection = state.connect(dsn)
        try:
            state.installed(self.connection)
        except BaseException:
            self.connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(psycopg.Error):
            self.connection.close()

    # Definitions

    def define(
        self,
        table: str,
        given: Mapping[str, str | None],
        *,
        key: str | None = None,
        profile: str | None = None,
        hash_column: str | None = None,
    ) -> tuple[Definition, Adoption | None]:
        """The definition of an adoption, from the options or, if it has begun, from its record.

        Writes nothing. Raises ``AdoptError`` if the table cannot be adopted.
        """
        with _clear("reading the catalog"):
            found = catalog.find(self.connection, table)
            known = state.load_adoption(self.connection, found.schema, found.name)
            asked = {name: value for name, value in given.items() if value is not None}
            if known is not None:
                self._refuse_other_options(known, asked, key, profile, hash_column)
                stored = known.definition
                asked = {name: stored[name] for name in ("content", "tenant", "bucket", "created", "where")}
                key, profile, hash_column = (
                    ",".join(map(_quoted, stored["key"])),
                    stored["profile"],
                    stored["hash_column"],
                )
            columns = catalog.key_of(self.connection, found, key)
            definition = definitions.define(
                found,
                known.name if known is not None else self._free_name(found),
                columns,
                asked,
                profile=profile or "prose",
                hash_column=hash_column or "content_hash",
            )
            if known is None and definition.hash_column in found.columns:
                raise AdoptError(
                    f"{found} has a column {definition.hash_column} already",
                    hint="Choose another name for memfold's: --hash-column memfold_hash.",
                )
            if known is not None:
                definition = replace(definition, schemas=tuple(known.definition["schemas"]))
            else:
                loose = [definition.created] if definition.created is not None else []
                definition = replace(
                    definition, schemas=binding.bind(self.connection, found, definition.fixed, loose)
                )
            session.check_children(self.connection, definition)
        return definition, known

    def _refuse_other_options(
        self,
        known: Adoption,
        asked: Mapping[str, str],
        key: str | None,
        profile: str | None,
        hash_column: str | None,
    ) -> None:
        """Refuse options that differ from the recorded ones: rows would be hashed in two ways."""
        stored = known.definition
        given: dict[str, Any] = dict(asked)
        if profile is not None:
            given["profile"] = definitions.PROFILES.get(profile, profile)
        if hash_column is not None:
            given["hash_column"] = hash_column
        for name, value in given.items():
            if stored[name] != value:
                raise AdoptError(
                    f"the adoption of {known.table_schema}.{known.table_name} has begun with another"
                    f" --{name.replace('_', '-')}: {stored[name]}",
                    hint="Omit the option to continue, or undo the adoption first: memfold adopt undo.",
                )
        if key is not None and sorted(part.strip().strip('"') for part in key.split(",")) != sorted(
            stored["key"]
        ):
            raise AdoptError(f"the adoption has begun with another --id: {', '.join(stored['key'])}")

    def _free_name(self, table: catalog.Table) -> str:
        name = definitions.short_name(table.schema, table.name)
        taken = {one.name for one in state.list_adoptions(self.connection)}
        return name if name not in taken else definitions.short_name(table.schema, table.name, unique=True)

    # Commands

    def plan(
        self, definition: Definition, known: Adoption | None, options: Options, *, absorb: bool | None = None
    ) -> Iterator[str]:
        """The lines of the plan; changes nothing."""
        with _clear("plan"):
            yield from plan.write(self.connection, definition, known, options, absorb=absorb)

    def begin(self, definition: Definition) -> Adoption:
        """Record that the adoption has begun."""
        table = definition.table
        catalog.fetch(
            self.connection,
            "insert into memfold.adoptions (table_schema, table_name, name, definition) values ($1, $2, $3, $4)"
            " on conflict (table_schema, table_name) do nothing returning 1 as one",
            [table.schema, table.name, definition.name, json.dumps(definition.to_json())],
        )
        known = state.load_adoption(self.connection, table.schema, table.name)
        assert known is not None  # noqa: S101 (it was just written)
        return known

    def session(self, definition: Definition, known: Adoption, options: Options) -> Session:
        """The session of a run; no other run has one for this table at the same time."""
        made = Session(self.connection, definition, known, options, self.say)
        made.claim()
        return made

    def run(
        self,
        definition: Definition,
        known: Adoption | None,
        options: Options,
        *,
        only: int | None = None,
        confirm: bool = False,
        dry_run: bool = False,
        absorb: bool | None = None,
        report: Path | None = None,
        show: Callable[[str], None] = lambda _: None,
    ) -> Adoption:
        """Run the remaining steps, or one of them. Stops before step 4 changes anything, until it is confirmed.

        absorb: whether, after all steps, an INSERT of a known text succeeds without its row, and is counted; None:
        unchanged (initially it fails).
        """
        steps.check_owner(self.connection, definition, options)
        if known is not None and known.undoing:
            raise AdoptError(
                f"the undo of the adoption of {definition.table} was interrupted",
                hint=f"Run: memfold adopt undo --table {definition.table} --restore",
            )
        adoption = known or self.begin(definition)
        current = self.session(definition, adoption, options)
        if current.adoption.paused:
            current.save(paused=False)
            current.reload()
        step = current.adoption.step + 1
        with _stopping(current):
            try:
                if absorb is not None:
                    with _clear("absorb"):
                        steps.absorb(current, absorb)
                while step <= LAST and (only is None or step <= only):
                    if only is not None and step < only:
                        raise AdoptError(
                            f"step {only} comes after step {step}, which is not finished",
                            hint=f"Run: memfold adopt run --table {definition.table} --step {step}",
                        )
                    if step == 4 and not self._step_4(current, confirm, dry_run, report, show):
                        break
                    if step != 4:
                        self.say(f"step {step}: {state.NAMES[step]}")
                    with _clear(f"step {step}"):
                        _STEPS[step](current)
                    current.reload()
                    # what the step has changed in the table
                    fresh, _ = catalog.load(self.connection, definition.table.oid)
                    current.definition = replace(definition, table=fresh)
                    current.statements = statements.Statements(current.definition)
                    current.save(last_error=None)
                    self.say(f"step {step}: done")
                    step += 1
            except Paused as stop:
                self.say(f"{stop} in step {step}; run it again to continue where it stopped")
            except MemfoldError as error:
                with suppress(psycopg.Error, AdoptError):
                    current.save(last_error=f"step {step}: {error.message}"[:2000])
                raise
        current.reload()
        return current.adoption

    def _step_4(
        self,
        current: Session,
        confirm: bool,
        dry_run: bool,
        path: Path | None,
        show: Callable[[str], None],
    ) -> bool:
        """Print the report; returns whether the step may continue."""
        self.say("step 4: looking for duplicates")
        with _clear("step 4"):
            report = duplicates.find(current)
            confirmed = confirm or current.adoption.confirmed
            show(
                f"duplicates: {report.groups:,} groups of {report.rows:,} rows;"
                f" {report.surplus:,} would be archived"
                if not confirmed or dry_run
                else f"duplicates: {report.groups:,} groups of {report.rows:,} rows; {report.surplus:,} to archive"
            )
            for row in report.buckets[:10]:
                name = (
                    " / ".join(
                        escape_line(str(row[one])) for one in ("tenant", "bucket") if row[one] is not None
                    )
                    or "(all)"
                )
                show(
                    f"  {name}: {row['groups']:,} groups, {row['rows']:,} rows, {row['surplus']:,} to archive"
                )
            if len(report.buckets) > 10:
                show(f"  and {len(report.buckets) - 10:,} more buckets")
            if path is not None:
                written = duplicates.write_csv(current, path)
                show(f"{path}: {written:,} lines, one for each row to archive")
            if dry_run or not confirmed:
                for child, rows, collisions in duplicates.dry_run(current):
                    show(
                        f"  {child.table} ({', '.join(child.columns)}): {rows:,} references to re-point"
                        + (f", of which {collisions:,} collide and would be archived" if collisions else "")
                    )
                show(plan.kept(current.definition))
            if dry_run:
                show("dry run: nothing was changed")
                return False
            if not confirmed:
                show(
                    "Nothing was changed. To archive these rows and continue:\n"
                    f"  memfold adopt run --table {current.definition.table} --confirm\n"
                    "To undo everything:\n"
                    f"  memfold adopt undo --table {current.definition.table}"
                )
                return False
            if not current.adoption.confirmed:
                now = current.fetch("select pg_catalog.clock_timestamp() as now")[0]["now"]
                current.save(confirmed_at=now)
                current.reload()
        return True

    def pause(self, table: str) -> bool:
        """Make a run stop between two batches; returns whether one was running."""
        known = self.known(table)
        with _clear("pause"):
            catalog.fetch(
                self.connection,
                "update memfold.adoptions set paused = true where table_schema = $1 and table_name = $2 returning 1 as one",
                [known.table_schema, known.table_name],
            )
            return state.running(self.connection, known) is not None

    def known(self, table: str) -> Adoption:
        """The adoption of a table that may no longer exist or be adoptable."""
        with _clear("reading the state"):
            for one in state.list_adoptions(self.connection):
                if table in {one.name, one.table_name, f"{one.table_schema}.{one.table_name}"}:
                    return one
            with suppress(AdoptError):
                found = catalog.find(self.connection, table)
                if (recorded := state.load_adoption(self.connection, found.schema, found.name)) is not None:
                    return recorded
        raise AdoptError(f"no adoption of {table} has begun", hint="See: memfold adopt status")

    def status(self) -> list[tuple[Adoption, int | None]]:
        """All adoptions, each with the process that works on it."""
        with _clear("status"):
            return [
                (one, state.running(self.connection, one)) for one in state.list_adoptions(self.connection)
            ]

    def undo(self, table: str, options: Options, *, put_back: bool = False) -> tuple[int, int]:
        """Restore everything as it was; after step 4 this includes the archived rows. Returns the numbers of rows and
        references."""
        known = self.known(table)
        if known.confirmed and not put_back:
            raise AdoptError(
                f"duplicates of {known.table_schema}.{known.table_name} have been archived (step 4 is confirmed)",
                detail=f"{known.row['rows_archived']:,} rows are in memfold.adoption_archive.",
                hint="To put them back, with the references to them, and undo everything else: add --restore.",
            )
        definition, _ = self.define(f"{_quoted(known.table_schema)}.{_quoted(known.table_name)}", {})
        steps.check_owner(self.connection, definition, options)
        current = self.session(definition, known, options)
        with _stopping(current), _clear("undo"):
            try:
                if not known.confirmed:
                    undo.undo(current)
                    return 0, 0
                undo.undo(current, forget_it=False)
                restored = undo.restore(current)
                undo.forget(current)
            except Paused as stop:
                raise AdoptError(f"{stop}; run it again to continue") from stop
            return restored


_STEPS: dict[int, Callable[[Session], object]] = {
    1: steps.step_1,
    2: steps.step_2,
    3: steps.step_3,
    4: steps.step_4,
    5: steps.step_5,
    6: steps.step_6,
}


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string(None)


@contextmanager
def _clear(what: str) -> Iterator[None]:
    """Raise errors of the database as memfold's, with what was being done and what to do."""
    try:
        yield
    except psycopg.Error as error:
        known = translate(error)
        hint = known.hint
        if (known.sqlstate or "").startswith("53"):
            hint = "What was committed is kept; once there is space again, run it again: it continues where it stopped."
        elif known.sqlstate == "57014":
            hint = "A timeout was exceeded, or someone cancelled it. Nothing is half done: run it again to continue."
        elif known.sqlstate is None or known.sqlstate.startswith(("08", "57P")):
            hint = "Nothing is half done: run it again to continue where it stopped."
        raise type(known)(
            f"{what}: {known.message}", sqlstate=known.sqlstate, detail=known.detail, hint=hint
        ) from error


@contextmanager
def _stopping(current: Session) -> Iterator[None]:
    """Ctrl-C and SIGTERM end a run between two batches; a second one ends it immediately."""

    def stop(number: int, _: object) -> None:
        if current.stopping:
            signal.default_int_handler(number, None)
        current.stopping = True

    try:
        earlier = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
