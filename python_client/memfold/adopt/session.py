"""The session of a run: its settings, how it waits for locks, and the state that it records."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.rows import DictRow, dict_row

from memfold.adopt import catalog, statements
from memfold.adopt.catalog import Connection, fetch
from memfold.adopt.definition import Definition
from memfold.adopt.options import Options
from memfold.adopt.state import Adoption, load_adoption, running
from memfold.client.errors import PASSING, AdoptError

__all__ = ["Batches", "Paused", "Session", "check_children"]

T = TypeVar("T")

_LONG = 1.0
"""If a transaction holding a lock is older than this, in seconds, the run waits without queueing for the lock."""
_TRIES = 60
"""How often, every quarter of a second, a run tries for a table that another run works on."""

_LOCK: LiteralString = """
select pg_catalog.pg_try_advisory_lock(
    pg_catalog.hashtextextended('memfold adopt ' || $1 || '.' || $2, 0)) as locked
"""
# Who holds a lock on the table that conflicts with the one wanted, and when their transaction began.
HOLDERS: LiteralString = """
select l.pid, a.usename as role, coalesce(nullif(a.application_name, ''), 'unknown') as application, a.state,
    extract(epoch from pg_catalog.clock_timestamp() - a.xact_start)::double precision as age
from pg_catalog.pg_locks as l
join pg_catalog.pg_stat_activity as a on a.pid = l.pid
where l.locktype = 'relation' and l.relation = $1::bigint::oid and l.granted and l.mode = any($2)
    and l.database = (select d.oid from pg_catalog.pg_database as d where d.datname = current_database())
    and l.pid <> pg_catalog.pg_backend_pid()
    and a.backend_type is distinct from 'autovacuum worker'
    and a.xact_start < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $3)
order by a.xact_start
"""

WRITERS = ["RowExclusiveLock"]
NOT_SHARE_ROW_EXCLUSIVE = [
    "RowExclusiveLock", "ShareUpdateExclusiveLock", "ShareLock", "ShareRowExclusiveLock", "ExclusiveLock",
    "AccessExclusiveLock",
]  # fmt: skip
ANY = ["AccessShareLock", "RowShareLock", *NOT_SHARE_ROW_EXCLUSIVE]

_LAG: LiteralString = """
select coalesce(nullif(r.application_name, ''), r.client_addr::text, 'standby') as standby,
    r.state,
    pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), r.replay_lsn)::double precision as bytes,
    extract(epoch from r.replay_lag)::double precision as seconds,
    pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'usage') as readable
from pg_catalog.pg_stat_replication as r
where r.state is null or r.state in ('streaming', 'catchup')
"""


class Paused(Exception):  # noqa: N818 (no error)
    """Somebody has asked the run to stop between two batches."""


class Session:
    """One run's connection, with what it knows about its adoption."""

    def __init__(
        self,
        connection: Connection,
        definition: Definition,
        adoption: Adoption,
        options: Options,
        say: Callable[[str], None],
    ) -> None:
        self.connection = connection
        self.definition = definition
        self.statements = statements.Statements(definition)
        self.adoption = adoption
        self.options = options
        self.say = say
        self.stopping = False
        self._credit = 0.0
        self._spent_at = time.monotonic()
        self._lag_checked = 0.0
        for setting, value in (
            ("search_path", ", ".join(self.statements.path)),
            ("statement_timeout", f"{int(options.statement_timeout * 1000)}ms"),
            ("idle_in_transaction_session_timeout", "60s"),
            ("lock_timeout", "0"),
            # The server cancels the statement of a killed client, above all a build of the index.
            ("client_connection_check_interval", "1s"),
            # Keys and archived values are text.
            ("datestyle", "ISO, YMD"),
            ("intervalstyle", "postgres"),
            ("timezone", "UTC"),
            ("bytea_output", "hex"),
            ("extra_float_digits", "1"),
            ("standard_conforming_strings", "on"),
            ("row_security", "off"),
        ):
            fetch(connection, "select pg_catalog.set_config($1, $2, false)", [setting, value])
        found = fetch(
            connection,
            "select extract(epoch from setting::interval)::double precision as seconds"
            " from (select pg_catalog.current_setting('deadlock_timeout') as setting) as s",
        )
        self.deadlock_timeout = float(found[0]["seconds"])
        # Below this, nobody else can become the victim of a deadlock with this session.
        self.lock_timeout = min(options.lock_timeout, self.deadlock_timeout / 2)

    # Statements

    def fetch(
        self, statement: str, parameters: Sequence[Any] = (), *, prepare: bool = False
    ) -> list[DictRow]:
        return fetch(self.connection, statement, parameters, prepare=prepare)

    def fetch_all(self, sent: Sequence[tuple[str, Sequence[Any]]]) -> list[list[DictRow]]:
        """The rows of several statements, sent together, because rows stay locked while it waits for answers."""
        if not psycopg.Pipeline.is_supported():
            return [self.fetch(*one, prepare=True) if "$" in one[0] else self._run(one[0]) for one in sent]
        cursors = []
        with self.connection.pipeline():
            for statement, parameters in sent:
                cursor = psycopg.RawCursor(self.connection, row_factory=dict_row)
                cursors.append(
                    cursor.execute(statement.encode(), parameters or None, prepare=bool(parameters))
                )
        return [cursor.fetchall() if cursor.description is not None else [] for cursor in cursors]

    def _run(self, statement: str) -> list[DictRow]:
        self.run(statement)
        return []

    def run(self, *made: str) -> None:
        for statement in made:
            psycopg.RawCursor(self.connection).execute(statement.encode())

    @contextmanager
    def transaction(self, *, lock_timeout: float | None = None) -> Iterator[None]:
        """A transaction that waits for no lock longer than this."""
        limit = self.lock_timeout if lock_timeout is None else lock_timeout
        with self.connection.transaction():
            self.run(self._lock_timeout(limit))
            yield

    @staticmethod
    def _lock_timeout(seconds: float) -> str:
        return f"set local lock_timeout = {max(1, int(seconds * 1000))}"

    def beginning(self) -> list[tuple[str, Sequence[Any]]]:
        """The beginning of such a transaction, for ``fetch_all``."""
        return [("begin", ()), (self._lock_timeout(self.lock_timeout), ())]

    def with_lock_timeout(self, what: str, modes: Sequence[str], work: Callable[[], T]) -> T:
        """Execute statements that take a strong lock on the table, without queueing for it for more than a moment.

        A session that waits for a lock makes all later ones wait behind it. So while an older transaction holds a
        conflicting lock, this does not ask; otherwise it waits for a tenth of a second, and tries again after a
        random pause. An autovacuum yields to a session that has waited for deadlock_timeout: that wait comes first,
        for a weaker lock that makes only another VACUUM or DDL wait.
        """
        quiet = f"lock table {self.definition.table.quoted} in share update exclusive mode"
        began = time.monotonic()
        told = 0.0
        attempt = 0
        while True:
            attempt += 1
            holders = self.fetch(HOLDERS, [self.definition.table.oid, list(modes), _LONG])
            if not holders:
                try:
                    with self.transaction(lock_timeout=self.deadlock_timeout + 1):
                        self.run(quiet, self._lock_timeout(self.lock_timeout))
                        return work()
                except psycopg.Error as error:
                    if error.sqlstate not in PASSING:
                        raise
            waited = time.monotonic() - began
            who = "; ".join(
                f"process {one['pid']} ({one['application']}, {one['state']}, for {one['age']:.0f} s)"
                for one in holders[:3]
            )
            if waited > self.options.patience:
                raise AdoptError(
                    f"{what}: no lock on {self.definition.table} within {waited:.0f} s",
                    detail=f"Blocked by: {who}." if who else "Many short transactions blocked it.",
                    hint="This step changed nothing. End the blocking transactions, or run it again later.",
                )
            if waited - told > 5:
                told = waited
                self.say(
                    f"{what}: waiting for a lock, {waited:.0f} s so far" + (f"; held by {who}" if who else "")
                )
            self.pause_or_stop()
            time.sleep(min(0.05 * 2 ** min(attempt, 5), 1.0) * random.uniform(0.5, 1.0))  # noqa: S311

    # State

    def claim(self) -> None:
        """Make sure that this is the only run on the table."""
        schema, table = self.adoption.table_schema, self.adoption.table_name
        for attempt in range(_TRIES):
            if self.fetch(_LOCK, [schema, table])[0]["locked"]:
                self.reload()
                return
            pid = running(self.connection, self.adoption)
            # The server needs a moment to notice that a run was killed.
            if attempt == 8:
                self.say(f"waiting for process {pid}, which is working on it")
            time.sleep(0.25)
        raise AdoptError(
            f"another run is working on {self.definition.table} (process {pid})",
            hint="Stop it with: memfold adopt pause; it stops between two batches.",
        )

    def reload(self) -> None:
        """Read the state again."""
        found = load_adoption(self.connection, self.adoption.table_schema, self.adoption.table_name)
        if found is None:
            raise AdoptError("the adoption has been undone")
        self.adoption = found

    def save(self, **columns: Any) -> DictRow:
        """Write columns of the state, in the open transaction if there is one. add_...: added to a counter."""
        found = self.fetch(*self.saving(**columns))
        if not found:
            raise AdoptError("the adoption has been undone")
        return found[0]

    def saving(self, **columns: Any) -> tuple[str, Sequence[Any]]:
        """The statement of ``save``, for ``fetch_all``."""
        settings, values = [], []
        for number, (name, value) in enumerate(columns.items(), 3):
            if name.startswith("add_"):
                settings.append(f"{name[4:]} = {name[4:]} + ${number}::bigint")
            elif name == "note":
                settings.append(f"steps = steps || ${number}::jsonb")
            else:
                settings.append(f'"{name}" = ${number}')
            values.append(json.dumps(value) if isinstance(value, dict | list) else value)
        statement = (
            f"update memfold.adoptions set {', '.join(settings)}, updated_at = pg_catalog.clock_timestamp()"  # noqa: S608
            " where table_schema = $1 and table_name = $2 returning *"
        )
        return statement, [self.adoption.table_schema, self.adoption.table_name, *values]

    def note(self, step: int, what: str) -> dict[str, Any]:
        """The time at which a step began or ended, for ``save(note=...)``."""
        now = self.fetch("select pg_catalog.to_jsonb(pg_catalog.clock_timestamp()) #>> '{}' as now")[0]["now"]
        known = dict(self.adoption.row["steps"].get(str(step), {}))
        known.setdefault(what, now)  # an interrupted step began when it was first tried
        return {str(step): known}

    # Limiting the load

    def pause_or_stop(self) -> None:
        """Stop if somebody has asked for it, by memfold adopt pause or by a signal."""
        if self.stopping:
            raise Paused("stopped")
        found = load_adoption(self.connection, self.adoption.table_schema, self.adoption.table_name)
        if found is not None and found.paused:
            raise Paused("paused")

    def spend(self, rows: int) -> None:
        """After this many rows, wait as long as the limit of rows per second requires."""
        rate = self.options.rate
        if not rate:
            return
        now = time.monotonic()
        # Unused capacity counts for at most one second.
        self._credit = min(self._credit + (now - self._spent_at) * rate, rate) - rows
        self._spent_at = now
        while self._credit < 0 and not self.stopping:
            time.sleep(min(-self._credit / rate, 0.5))
            now = time.monotonic()
            self._credit += (now - self._spent_at) * rate
            self._spent_at = now
            self.pause_or_stop()

    def throttle_on_lag(self) -> None:
        """Wait while a standby is too far behind."""
        if self.options.ignore_lag or time.monotonic() - self._lag_checked < 0.2:
            return
        told = 0.0
        while True:
            self._lag_checked = time.monotonic()
            behind = self.lag()
            if not behind:
                return
            if self._lag_checked - told > 5:
                told = self._lag_checked
                self.say(f"waiting for {behind}")
            self.pause_or_stop()
            time.sleep(0.5)

    def lag(self) -> str | None:
        """Which standby is too far behind, in words."""
        for one in self.fetch(_LAG):
            if one["bytes"] is None and not one["readable"]:
                raise AdoptError(
                    "the role may not see how far behind the standbys are",
                    hint="Grant it pg_read_all_stats (or pg_monitor), or give --ignore-lag.",
                )
            if (one["bytes"] or 0) > self.options.max_lag_bytes:
                return f"{one['standby']}, which is {one['bytes'] / 1048576:,.0f} MB behind"
            # An idle standby's last figure does not change; it only means something if there are bytes left.
            if (one["seconds"] or 0) > self.options.max_lag and (one["bytes"] or 0) > 1048576:
                return f"{one['standby']}, which is {one['seconds']:.0f} s behind"
        return None


class Batches:
    """The size of a batch, adapted so that it takes about the allowed time."""

    def __init__(
        self, options: Options, *, start: int, most: int, least: int = 10, time: float = 1.0
    ) -> None:
        """time: how long a batch may take, as a fraction of the option."""
        self._least = least
        self._time = options.batch_time * time
        self._most = options.batch or most
        self.size = min(options.batch or start, self._most)
        self._fixed = options.batch is not None

    def took(self, seconds: float, rows: int) -> None:
        """Learn from a batch."""
        if self._fixed or not rows:
            return
        wanted = self.size * min(1.5, max(0.25, self._time / max(seconds, 0.001)))
        if rows >= self.size or wanted < self.size:
            self.size = int(min(max(wanted, self._least), self._most))

    def failed(self) -> None:
        """A batch met a lock: take fewer rows."""
        if not self._fixed:
            self.size = max(self.size // 4, 1)


def check_children(connection: Connection, definition: Definition) -> list[catalog.Child]:
    """The foreign keys that refer to the table; all of them can be re-pointed."""
    found = catalog.children(connection, definition.table.oid)
    for child in found:
        catalog.check_rights(connection, child)
    return found
