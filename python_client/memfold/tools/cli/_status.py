"""``memfold status``: which database this is, and what is waiting in it. It does not count memories, but reads small
indexes."""

from __future__ import annotations

from typing import Any

import click

from memfold.client import queries
from memfold.client._dsn import describe_dsn
from memfold.client._version import __version__
from memfold.client.calls import Memfold
from memfold.tools.admin import queries as admin_queries
from memfold.tools.admin import server
from memfold.tools.cli._shared import (
    dsn_option,
    fail,
    json_option,
    report,
    resolve,
    say,
    show,
    show_lines,
    table_of,
    tenant_option,
)

_UNANSWERED = """
select memfold_internal._unanswered(w.waiting, w.oldest, a.latest) as told
from (
    select pg_catalog.count(*) as waiting, pg_catalog.min(j.created_at) as oldest
    from memfold.judgements as j
    where j.status in ('open', 'leased') and j.kind <> 'review'
        and (%(tenant_id)s::text is null or j.tenant_id = %(tenant_id)s)
) as w
cross join (
    select pg_catalog.max(j.resolved_at) as latest
    from memfold.judgements as j
    where j.status = 'done' and j.kind <> 'review'
        and (%(tenant_id)s::text is null or j.tenant_id = %(tenant_id)s)
) as a
"""

# Whether row-level security hides rows: then a role that gives no tenant sees none.
_LIMITED = "select pg_catalog.row_security_active('memfold.memories') as limited"
_MOST = 1000
"""The most buckets that are looked at."""


@click.command()
@dsn_option
@tenant_option("Only this tenant; roles other than superusers see only one.")
@json_option
def status(dsn: str | None, tenant: str | None) -> None:
    """Show the database, and what is waiting in it.

    It is fast. memfold stats shows what deduplication did, memfold doctor what is wrong. Exit code 1 if memfold is
    not installed.

    \b
    memfold status
    memfold status --tenant acme --json
    """
    where = resolve(dsn)
    with Memfold(where, tenant) as client:
        found = client._query(admin_queries.SERVER)[0]
        embedded = server.status()
        database = {
            "dsn": describe_dsn(where),
            "is_embedded": embedded.dsn == where,
            "role": found["role"],
            "postgresql": found["server"],
            "pgvector": found["pgvector"],
        }
        show(f"database    {database['dsn'] or 'from the environment'}, as {found['role']}")
        at = f", embedded, in {embedded.data}" if database["is_embedded"] else ""
        show(f"server      PostgreSQL {found['server']}, pgvector {found['pgvector'] or 'missing'}{at}")
        if not client._query(queries.INSTALLED)[0]["installed"]:
            report({"database": database, "memfold": {"client": __version__, "installed": None}})
            fail("memfold is not installed in this database\nHINT: Run: memfold init DSN")
        installed = f"extension {found['extension']}" if found["extension"] else "by memfold init"
        show(f"memfold     {__version__}, in the database {installed}")
        buckets = _buckets(client, tenant)
        tenants = len({one["tenant_id"] for one in buckets})
        last = client._query(admin_queries.LAST_MAINTENANCE, tenant)[0]["ended_at"]
        told = unanswered(client, tenant) if any(one["for_judge"] for one in buckets) else None
        limited = tenant is None and not buckets and bool(client._query(_LIMITED)[0]["limited"])
    more = " or more" if len(buckets) == _MOST else ""
    if limited:
        show(f"memories    {found['role']} sees those of one tenant: memfold status --tenant ID")
    else:
        of = f"{tenants:,} tenant{'s' * (tenants != 1)}, {len(buckets):,} bucket{'s' * (len(buckets) != 1)}"
        show(f"memories    of {of}{more}")
        ended = f"last ended {last:%Y-%m-%d %H:%M:%S %Z}" if last else "has never run"
        show(f"maintenance {ended}")
    waiting = [one for one in buckets if any(one[name] for name in _WAITING)]
    if waiting:
        head = ["tenant", "bucket", *_WAITING.values()]
        show_lines(
            table_of(head, [[one["tenant_id"], one["bucket_id"], *map(one.get, _WAITING)] for one in waiting])
        )
    elif buckets:
        show("nothing is waiting")
    for name, advice in _ADVICE.items():
        if any(one[name] for one in buckets):
            say(f"{_WAITING[name]}: {advice}")
    if told is not None:
        say(f"warning: {told}")
    if not buckets and not limited:
        say(no_memories(tenant))
    report(
        {
            "database": database,
            "memfold": {"client": __version__, "installed": found["extension"] or "init"},
            "tenants": tenants,
            "more_buckets": bool(more),
            "last_maintenance": last,
            "warning": told,
            "buckets": buckets,
        }
    )


_WAITING = {
    "for_judge": "for a judge",
    "for_person": "for a person",
    "dead": "dead",
    "pending_embeddings": "without vector",
    "plain_rows": "plain rows",
}
_ADVICE = {
    "for_judge": "memfold judge --model NAME",
    "for_person": "memfold review",
    "dead": "failed eight times; memfold judge --retry asks again",
    "pending_embeddings": "embed_pending() of a client with an embedder",
    "plain_rows": "stored by a plain INSERT; memfold maintenance ingests them",
}


def _buckets(client: Memfold, tenant: str | None) -> list[dict[str, Any]]:
    parameters = {"tenant_id": tenant, "most": _MOST}
    on_nodes = tenant is None and client._query(admin_queries.CITUS)[0]["is_distributed"]
    query = admin_queries.BUCKETS_WAITING_ON_NODES if on_nodes else admin_queries.BUCKETS_WAITING
    rows = client._drive(client._core.send(query, parameters, repeatable=True))
    return [dict(row) for row in rows]


def unanswered(client: Memfold, tenant: str | None) -> str | None:
    """The warning if questions wait and nothing answers; of one tenant, or of all that the role can see."""
    told: str | None = client._query(_UNANSWERED, tenant)[0]["told"]
    return told


def no_memories(tenant: str | None) -> str:
    """The message if there is nothing."""
    if tenant is None:
        return "no memories; a role that is not a superuser must give --tenant"
    return f"tenant {tenant} has no memories; is its name spelled correctly?"


def has_memories(client: Memfold, tenant: str, bucket: str | None = None) -> bool:
    """Whether the tenant, or a bucket of it, holds any memories."""
    parameters = {"tenant_id": tenant, "bucket_id": bucket}
    rows = client._drive(client._core.send(admin_queries.HAS_MEMORIES, parameters, repeatable=True))
    return bool(rows[0]["found"])


def warn_if_empty(client: Memfold, tenant: str, bucket: str | None = None) -> bool:
    """Whether the tenant, or bucket, holds no memories; says so, because a mistyped name must not look like a healthy
    state."""
    if not has_memories(client, tenant):
        say(no_memories(tenant))
        return True
    if bucket is not None and not has_memories(client, tenant, bucket):
        say(f"bucket {bucket} of tenant {tenant} has no memories; is its name spelled correctly?")
        return True
    return False
