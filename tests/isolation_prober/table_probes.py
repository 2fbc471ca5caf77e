"""Probes by tables and views."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.isolation_prober.relations import full, relations, secrets, tenant_tables
from tests.isolation_prober.sessions import Session
from tests.isolation_prober.sides import Side
from tests.support.queries import DB, one

READS = (
    "select t::text from {r} as t",
    "select t::text, tableoid, ctid, xmin from only {r} as t",
    "select t::text from {r} as t where leak(t::text)",
    "select t::text from {r} as t tablesample bernoulli (100) where leak(t::text)",
    "select string_agg(t::text, '|') from {r} as t",
    "select max(t::text), min(t::text) from {r} as t",
    "copy {r} to stdout",
    "copy (select t::text from {r} as t) to stdout",
    "select t::text from {r} as t for key share",
    "select t::text from {r} as t cross join lateral (select leak(t::text) offset 0) as l",
    "select a::text, b::text from {r} as a full join {r} as b on a::text operator(pg_catalog.=) b::text",
    "select query_to_xml('select * from {r}', true, false, '')::text",
    "select t::text from {r} as t where length(t::text) / 0 > 0",
    "select (t::text)::integer from {r} as t",
)
WRITES = (
    "insert into {r} default values",
    "insert into {r} ({c}) select {c} from {r}",
    "update {r} set {c} = {c}",
    "delete from {r}",
    "truncate {r}",
    "lock table {r} in share mode",
    "alter table {r} disable row level security",
    "alter table {r} owner to current_user",
    "create policy mine on {r} using (true)",
    "create index on {r} ({c})",
    "create trigger mine before update on {r} for each row execute function suppress_redundant_updates_trigger()",
    "drop table {r}",
)


def probe_reads(
    db: DB, session: Session, own: Side, other: Side, *, only: str | None = None, most: int = 99
) -> tuple[list[str], int]:
    """Read every relation in every way; only the session's own rows come back."""
    wrong: list[str] = []
    calls = 0
    hidden = secrets(db, other)
    user = session.connection.info.user
    counts = owned(db, own, only)
    if only in (None, "tenant_roles"):
        counts["tenant_roles"] = one(
            db,
            "select count(*) from memfold.tenant_roles where role_name = %s and role_name !~ '^pooled'",
            user,
        )
    for relation, kind, isolated in relations(db):
        if only not in (None, relation):
            continue
        readable = one(db, "select has_table_privilege(%s, %s::text, 'select')", user, full(relation))
        if isolated and kind in "rp" and not readable:
            wrong.append(f"{session.name}: {relation} is not to be read")
        for n, read in enumerate(READS[:most]):
            outcome = session.run(read.format(r=full(relation)))
            calls += 1
            wrong += [
                f"{session.name}: {read.format(r=full(relation))}: reveals {s}"
                for s in outcome.reveals(hidden)
            ]
            if not readable and outcome.state is None:
                wrong.append(f"{session.name}: {relation} is read without a right to")
            if n == 0 and readable and len(outcome.rows) != counts.get(relation, len(outcome.rows)):
                seen = len(outcome.rows)
                wrong.append(f"{session.name}: {relation} has {counts[relation]} rows for it, it sees {seen}")
        if isolated:
            outcome = session.run(
                f"select t::text from {full(relation)} as t where tenant_id operator(pg_catalog.=) %s",
                [other.tenant],
            )
            calls += 1
            if outcome.rows:
                wrong.append(
                    f"{session.name}: {relation} where the tenant is the other: {len(outcome.rows)} rows"
                )
    return wrong, calls


def owned(db: DB, own: Side, only: str | None = None) -> dict[str, int]:
    """How many rows of each isolated table a tenant sees: its own and those of '*'."""
    return {
        table: one(
            db, f"select count(*) from memfold.{table} where tenant_id = %s or tenant_id = '*'", own.tenant
        )
        for table in tenant_tables(db)
        if table != "tenant_roles" and only in (None, table)
    }


def intruder(db: DB, relation: str, other: Side) -> tuple[str, list[str]]:
    """An INSERT of one of the other's rows."""
    columns = one(
        db,
        "select string_agg(quote_ident(attname), ', ') from pg_attribute where attrelid = %s::text::regclass"
        " and attnum > 0 and not attisdropped and attgenerated = ''",
        full(relation),
    )
    row = one(db, f"select to_jsonb(t) from {full(relation)} as t where tenant_id = %s limit 1", other.tenant)
    return (
        f"insert into {full(relation)} ({columns}) select {columns}"
        f" from jsonb_populate_record(null::{full(relation)}, %s)",
        [json.dumps(row)],
    )


def probe_writes(db: DB, session: Session, other: Side) -> tuple[list[str], int]:
    """Only the owner's functions write tables, whatever their rows."""
    wrong: list[str] = []
    calls = 0
    user = session.connection.info.user
    for relation, kind, isolated in relations(db):
        if kind not in "rp":
            continue
        column = one(
            db,
            "select attname::text from pg_attribute where attrelid = %s::text::regclass and attnum = 1",
            full(relation),
        )
        may = one(db, "select has_any_column_privilege(%s, %s::text, 'insert')", user, full(relation))
        for write in WRITES:
            outcome = session.run(write.format(r=full(relation), c=column))
            calls += 1
            if outcome.state != "42501" and not (may and write.startswith("insert") and outcome.state):
                done = outcome.state or "done"
                wrong.append(f"{session.name}: {write.format(r=full(relation), c=column)}: {done}")
        if isolated and may:
            # writable tables (staging) accept only the session's own tenant; the same row again is not a conflict
            outcome = session.run(*intruder(db, relation, other))
            calls += 1
            if outcome.state != "MF002":
                wrong.append(
                    f"{session.name}: a row of the other's into {relation}: {outcome.state or 'done'}"
                )
    return wrong, calls


@contextmanager
def acting(db: DB, role: str, tenant: str | None) -> Iterator[Session]:
    """Switch the superuser's connection to a role without login, and back."""
    db.execute("set role " + role)
    session = Session(role, db, tenant)
    try:
        yield session
    finally:
        db.remove_notice_handler(session._hear)
        db.execute("reset role")


def probe_owner(db: DB, own: Side, other: Side, *, only: str | None = None) -> tuple[list[str], int]:
    """The second defence: the functions' own role, with the setting of one tenant, cannot reach the other's rows."""
    wrong: list[str] = []
    calls = 0
    hidden = secrets(db, other)
    counts = owned(db, own, only)
    for relation in tenant_tables(db):
        if only not in (None, relation) or relation == "tenant_roles":
            continue
        intrusion = intruder(db, relation, other)
        with acting(db, "memfold_owner", own.tenant) as owner:
            outcome = owner.run(f"select t::text from {full(relation)} as t")
            calls += 1
            wrong += [f"owner: {relation}: reveals {secret}" for secret in outcome.reveals(hidden)]
            if len(outcome.rows) != counts[relation]:
                wrong.append(
                    f"owner: {relation} has {counts[relation]} rows for it, it sees {len(outcome.rows)}"
                )
            for statement in (
                f"update {full(relation)} set tenant_id = tenant_id where tenant_id = %s returning 1",
                f"delete from {full(relation)} where tenant_id = %s returning 1",
            ):
                outcome = owner.run(statement, [other.tenant])
                calls += 1
                # (what never changes is refused before that: MF020, MF021)
                if outcome.rows or outcome.state not in (None, "MF020", "MF021"):
                    wrong.append(f"owner: {statement}: {outcome.state or outcome.rows}")
            outcome = owner.run(*intrusion)
            calls += 1
            if outcome.state != "42501":
                wrong.append(f"owner: a row of the other's into {relation}: {outcome.state or 'done'}")
    return wrong, calls


def probe_others(db: DB, own: Side, other: Side, *, only: str | None = None) -> tuple[list[str], int]:
    """Roles that should see all tenants do, and only read; roles that should read no table do not."""
    wrong: list[str] = []
    calls = 0
    for relation, kind, _ in relations(db):
        if only not in (None, relation) or kind not in "rp":
            continue
        total = one(db, f"select count(*) from {full(relation)}")
        for role in ("memfold_auditor", "memfold_queue", "memfold_judge", "memfold_owner"):
            may = one(db, "select has_table_privilege(%s, %s::text, 'select')", role, full(relation))
            if role == "memfold_owner" and relation != "tenant_roles":
                continue
            with acting(db, role, None) as session:
                outcome = session.run(f"select t::text from {full(relation)} as t")
                calls += 1
            if may and len(outcome.rows) != total:
                wrong.append(f"{role}: {relation} has {total} rows, it sees {len(outcome.rows)}")
            if not may and outcome.state != "42501":
                wrong.append(f"{role}: {relation}: {outcome.state or 'read'}")
            if role == "memfold_judge" and may:
                wrong.append(f"{role}: may read {relation}")
            if role in ("memfold_auditor", "memfold_judge"):
                with acting(db, role, None) as session:
                    found, done = probe_writes_as(db, session, relation)
                wrong += found
                calls += done
    return wrong, calls


def probe_writes_as(db: DB, session: Session, relation: str) -> tuple[list[str], int]:
    wrong = []
    for write in ("insert into {r} default values", "delete from {r}", "truncate {r}"):
        outcome = session.run(write.format(r=full(relation)))
        if outcome.state != "42501":
            wrong.append(f"{session.name}: {write.format(r=full(relation))}: {outcome.state or 'done'}")
    return wrong, 3
