"""The six steps. Each can be interrupted anywhere, even by kill -9, and run again: its work is committed together
with the record of it."""

from __future__ import annotations

import threading
import time

import psycopg
from psycopg.conninfo import make_conninfo

from memfold.adopt import duplicates
from memfold.adopt.backfill import columns_of, keys_of, reasons, step_3
from memfold.adopt.catalog import Connection, fetch
from memfold.adopt.definition import Definition
from memfold.adopt.options import Options
from memfold.adopt.resolver import Resolver
from memfold.adopt.session import ANY, HOLDERS, NOT_SHARE_ROW_EXCLUSIVE, WRITERS, Batches, Session
from memfold.adopt.state import connect
from memfold.client.errors import PASSING, AdoptError

__all__ = ["absorb", "step_1", "step_2", "step_3", "step_4", "step_5", "step_6"]


def owner_of_functions(session: Session) -> str | None:
    """The owner of the functions: not a superuser, because the owner's expressions would then run as superuser."""
    return other_owner(session.connection, session.definition.table.owner)


def other_owner(connection: Connection, owner: str) -> str | None:
    """The owner of the table, if the caller is a superuser and not the owner."""
    row = fetch(
        connection,
        "select r.rolsuper as super, current_user::text as role from pg_catalog.pg_roles as r"
        " where r.rolname = current_user",
    )[0]
    return owner if row["super"] and owner != row["role"] else None


def check_owner(connection: Connection, definition: Definition, options: Options) -> None:
    """A superuser runs what the table's owner has attached to the table only if told to."""
    owner = other_owner(connection, definition.table.owner)
    if owner is not None and not options.trust_owner:
        raise AdoptError(
            f"{definition.table} belongs to {owner}, and you are a superuser",
            detail="Triggers and checks run as the role that writes, so those of its owner would run as you.",
            hint=f"Run it as {owner}; or give --trust-owner, if you know what is attached to the table.",
        )


def step_1(session: Session) -> None:
    """A nullable column: only a change of the catalog."""
    of = session.definition
    if of.hash_column in of.table.columns:
        raise AdoptError(
            f"{of.table} has a column {of.hash_column} already",
            hint="Choose another name: --hash-column memfold_hash.",
        )

    def work() -> None:
        session.save(step=1, note=session.note(1, "ended"))
        session.run(*session.statements.add_column())

    session.with_lock_timeout("step 1", ANY, work)


def step_2(session: Session) -> None:
    """From now on every row that is written gets its hash."""

    def work() -> None:
        session.save(step=2, note=session.note(2, "ended"))
        session.run(*session.statements.step_2_functions(owner_of_functions(session)))
        session.run(*session.statements.triggers())

    session.with_lock_timeout("step 2", NOT_SHARE_ROW_EXCLUSIVE, work)


def step_4(session: Session) -> Resolver:
    """Resolve the duplicates that ``duplicates.find`` has found, and later ones."""
    session.save(note=session.note(4, "began"))
    duplicates.refuse_slow(session)
    resolver = Resolver(session)
    # First the duplicates of the report, then later ones, which step 5 would find too.
    for _ in range(4):
        resolver.resolve_found()
        if not duplicates.find(session).groups:
            break
    session.save(step=4, note=session.note(4, "ended"))
    return resolver


def step_5(session: Session) -> None:
    """The unique index, built while writers continue.

    Duplicates that arrive during the build would make it fail. So rows get no hash during that time, which keeps them
    out of the partial index; afterwards they get it batch by batch, and duplicates among them are resolved as in step
    4.
    """
    made = session.statements
    with session.transaction(lock_timeout=5):
        session.save(note=session.note(5, "began"))
        session.run(*made.find_functions(owner_of_functions(session), _grantees(session)))
    for attempt in range(1, 21):
        state = _index_state(session)
        if state == "valid":
            break
        _withhold(session, True)
        _wait_for_writers(session)
        if state == "invalid":
            session.say(f"step 5: dropping the INVALID index {made.index} that an earlier run has left")
            concurrently(session, made.drop_index())
        resolver = Resolver(session)
        while duplicates.find(session).groups:
            resolver.resolve_found()
        session.pause_or_stop()
        try:
            concurrently(session, made.create_index())
        except psycopg.errors.UniqueViolation as error:
            if attempt == 20:
                raise
            session.say(
                f"step 5: duplicates slipped in ({error.diag.message_detail}); resolving them, then retrying"
            )
        except psycopg.Error as error:
            if error.sqlstate not in PASSING or attempt == 20:
                raise
    _withhold(session, False)
    _wait_for_writers(session)
    left_out = _fill_withheld(session)
    session.save(step=5, left_out=left_out, note=session.note(5, "ended"))


def _index_state(session: Session) -> str:
    """valid, invalid or missing; any other object of that name is refused."""
    found = session.fetch(
        "select i.indisvalid and i.indisready as valid, i.indisunique as is_unique,"
        " i.indrelid::bigint as relation, pg_catalog.pg_get_indexdef(i.indexrelid) as definition"
        " from pg_catalog.pg_class as c join pg_catalog.pg_namespace as n on n.oid = c.relnamespace"
        " left join pg_catalog.pg_index as i on i.indexrelid = c.oid"
        " where n.nspname = $1 and c.relname = $2",
        [session.definition.table.schema, session.statements.index],
    )
    if not found:
        return "missing"
    row = found[0]
    if row["relation"] != session.definition.table.oid or not row["is_unique"]:
        raise AdoptError(f"the name {session.statements.index} is already taken")
    return "valid" if row["valid"] else "invalid"


def _withhold(session: Session, withhold: bool) -> None:
    """Make the trigger withhold the hash, or set it again. Replacing its function locks nothing."""
    session.reload()
    if session.adoption.withheld == withhold:
        return
    with session.transaction(lock_timeout=5):
        session.save(withheld=withhold)
        session.run(session.statements.trigger_function(withhold=withhold))
    session.reload()


def _wait_for_writers(session: Session) -> None:
    """Wait until current writers of the table have finished: later ones use the new function."""
    began = told = time.monotonic()
    while True:
        # their transactions are older than this wait
        waited = time.monotonic() - began
        holders = session.fetch(HOLDERS, [session.definition.table.oid, WRITERS, waited])
        if not holders or time.monotonic() - began > session.options.patience:
            return
        if time.monotonic() - told > 5:
            told = time.monotonic()
            session.say(
                f"step 5: waiting for writers: process {', '.join(str(one['pid']) for one in holders)}"
            )
        session.pause_or_stop()
        time.sleep(0.05)


def concurrently(session: Session, statement: str) -> None:
    """Execute a statement that may wait for long transactions without blocking others, and report which."""
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(session, done), daemon=True)
    session.run("set lock_timeout = 0")
    watcher.start()
    try:
        session.run(statement)
    finally:
        done.set()
        watcher.join()


def _watch(session: Session, done: threading.Event) -> None:
    pid = session.connection.info.backend_pid
    told = ""
    if done.wait(2):
        return
    try:
        where = make_conninfo(session.connection.info.dsn, password=session.connection.info.password or None)
        with connect(where) as watcher:
            while not done.wait(1):
                rows = fetch(
                    watcher,
                    "select p.phase, p.current_locker_pid as locker,"
                    " case when p.blocks_total > 0 then p.blocks_done * 100 / p.blocks_total end as percent,"
                    " coalesce(nullif(a.application_name, ''), 'unknown') as application, a.state,"
                    " extract(epoch from pg_catalog.clock_timestamp() - a.xact_start)::bigint as age"
                    " from pg_catalog.pg_stat_progress_create_index as p"
                    " left join pg_catalog.pg_stat_activity as a on a.pid = p.current_locker_pid"
                    " where p.pid = $1",
                    [pid],
                )
                for row in rows:
                    line = f"step 5: {row['phase']}"
                    if row["locker"]:
                        line += f": process {row['locker']} ({row['application']}, {row['state']}, for {row['age']} s)"
                    elif row["percent"] is not None:
                        line += f", {row['percent'] // 10 * 10} %"
                    if line.partition(", for")[0] != told:
                        told = line.partition(", for")[0]
                        session.say(line)
    except psycopg.Error:
        return  # only for the report


def _fill_withheld(session: Session) -> dict[str, int]:
    """Give rows the withheld hash, with the index in force: a collision means a duplicate."""
    resolver = Resolver(session)
    began = time.monotonic()
    while True:
        left_out, waiting = reasons(session)
        if not waiting:
            return left_out
        keys = keys_of(session, session.fetch(session.statements.missing(), [200_000]))
        batches = Batches(session.options, start=50, most=1000)
        start = stuck = 0
        while start < len(keys):
            session.pause_or_stop()
            session.throttle_on_lag()
            some = keys[start : start + batches.size]
            started = time.monotonic()
            try:
                held = keys_of(session, session.fetch(session.statements.holders(), columns_of(some)))
                resolver.resolve(sorted({*some, *held}))
            except psycopg.Error as error:
                # locked, or a writer has inserted the same text since
                if error.sqlstate not in PASSING | {"23505"}:
                    raise
                if len(some) == 1:
                    start += 1  # the next pass finds it again
                    stuck += 1
                    time.sleep(0.02)
                batches.failed()
                continue
            batches.took(time.monotonic() - started, len(some))
            session.spend(len(some))
            start += len(some)
        if stuck and time.monotonic() - began > session.options.patience:
            raise AdoptError(
                f"step 5: {stuck} rows remain locked by other transactions",
                hint="End those transactions, and run it again.",
            )


def step_6(session: Session) -> list[str]:
    """Create the functions of step 6; returns the roles that may use them."""
    grantees = _grantees(session)
    owner = owner_of_functions(session)
    with session.transaction(lock_timeout=5):
        session.run(*session.statements.find_functions(owner, grantees))
        session.run(*session.statements.insert_functions(owner, grantees))
        if session.adoption.absorbs:
            session.run(*session.statements.absorb_functions(owner, absorb=True))
        session.save(step=6, note=session.note(6, "ended"))
    return grantees


def absorb(session: Session, wanted: bool) -> None:
    """Make step 6 create a trigger that absorbs, or not; if step 6 is done, change it now. Replacing its function
    locks nothing."""
    with session.transaction(lock_timeout=5):
        session.save(absorbs=wanted)
        if session.adoption.step == 6:
            owner = owner_of_functions(session)
            session.run(*session.statements.absorb_functions(owner, absorb=wanted))
    session.reload()


def _grantees(session: Session) -> list[str]:
    """The roles that may insert into the table, apart from its owner."""
    found = session.fetch(
        "select distinct r.rolname as role from pg_catalog.pg_class as c"
        " cross join lateral pg_catalog.aclexplode(c.relacl) as a"
        " join pg_catalog.pg_roles as r on r.oid = a.grantee"
        " where c.oid = $1::bigint::oid and a.privilege_type = 'INSERT' and a.grantee <> c.relowner order by 1",
        [session.definition.table.oid],
    )
    return [row["role"] for row in found]
