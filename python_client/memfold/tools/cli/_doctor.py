"""The command that checks a database: doctor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from memfold.client import queries
from memfold.client._version import __version__
from memfold.client.calls import Memfold
from memfold.client.errors import MemfoldError, ServerPackageError, ServerVersionError
from memfold.tools.admin import migrate
from memfold.tools.admin import queries as admin_queries
from memfold.tools.cli._shared import dsn_option, json_option, progress, report, resolve, show, tenant_option
from memfold.tools.cli._status import has_memories, no_memories, unanswered


def _exemption(found: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether the role bypasses row-level security, and the line about it."""
    why = None
    if found["is_superuser"]:
        why = "is a superuser"
    elif found["bypasses"]:
        why = "has BYPASSRLS"
    elif found["owns"]:
        why = "is a member of memfold_owner"
    elif "memfold_queue" in found["groups"]:
        why = "is a member of memfold_queue"
    elif "memfold_auditor" in found["groups"]:
        why = "is a member of memfold_auditor"
    if why is not None:
        return (
            True,
            f"{why} and sees every tenant: connect agents as a member of memfold_app or memfold_agent",
        )
    if "memfold_agent" in found["groups"]:
        return False, "is bound to one tenant, by tenant_roles"
    if "memfold_judge" in found["groups"]:
        return False, "is a judge: it receives the questions of every tenant, and cannot read tables"
    return False, "is subject to row-level security"


def _dump(found: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether this role's dump would contain every row of every table, and the line about it."""
    bypasses = found["is_superuser"] or found["bypasses"]
    if found["reads_all"] and bypasses:
        return True, f"pg_dump as {found['role']} is complete"
    if found["reads_all"] and found["audits"]:
        return True, f"pg_dump --enable-row-security as {found['role']} is complete"
    needs = [] if bypasses or found["audits"] else ["memfold_auditor"]
    needs += [] if found["reads_all"] else ["pg_read_all_data"]
    return False, f"a dump as {found['role']} would miss rows, or fail: it needs {' and '.join(needs)}"


def _revision(client: Memfold) -> str | None:
    """The revision that `memfold init` has installed; None if this role may not read it."""
    try:
        return str(client._query(admin_queries.REVISION)[0]["version_num"])
    except MemfoldError as error:
        if error.sqlstate != "42501":
            raise
        return None


# The number of differing functions to name, so that the line stays readable.
_NAMED = 10


def _compare_functions(where: str, role: str, check: Callable[..., None]) -> None:
    try:
        drifted = migrate.drift(where)
        more = f" and {len(drifted) - _NAMED} more" if len(drifted) > _NAMED else ""
        named = f", but {len(drifted)} differ: {', '.join(drifted[:_NAMED])}{more}" if drifted else ""
        check(not drifted, f"functions are those of memfold {__version__}{named}")
    except MemfoldError as error:
        if error.sqlstate != "42501":
            raise
        check(False, f"functions not compared: {role} does not own them", problem=False)


@click.command()
@dsn_option
@tenant_option("Also check this tenant's memories against its ledger.")
@json_option
def doctor(dsn: str | None, tenant: str | None) -> None:
    """Check a database, and the ledger of a tenant.

    Checks versions, encoding, canonicalizer, indexes, functions and tenant isolation. Run it as the application's role:
    the last line says whether row-level security applies to it. Prints one line per check: ok, warning or PROBLEM. Exit
    code 1 if there is a problem. A tenant without memories is a warning, because its name may be mistyped.

    \b
    memfold doctor --tenant acme
    """
    checks: list[dict[str, str]] = []

    def check(fine: bool, what: str, *, problem: bool = True) -> None:
        found = "ok" if fine else "PROBLEM" if problem else "warning"
        checks.append({"status": found.lower(), "check": what})
        show(f"{found:8} {what}")

    where = resolve(dsn)
    progress("checking")
    with Memfold(where) as client:
        _examine(client, where, tenant, check)
    is_fine = all(one["status"] != "problem" for one in checks)
    report({"ok": is_fine, "checks": checks})
    if not is_fine:
        raise SystemExit(1)


def _check_search(client: Memfold, check: Callable[..., None]) -> None:
    """Whether every search covers its whole bucket; if not, what to run."""
    try:
        limit = f"{admin_queries.SEARCH_LIMIT:,}"
        missing, [of_words] = (
            client._drive(
                client._core.send(query, {"limit": admin_queries.SEARCH_LIMIT, "tenant_id": None}, reads=True)
            )
            for query in (admin_queries.MISSING_VECTOR_INDEXES, admin_queries.LARGE_BUCKETS)
        )
        large = of_words["buckets"]
    except MemfoldError as error:
        if error.sqlstate != "42501":
            raise
        return
    for row in missing:
        model = str(row["model"]).replace("'", "''")
        what = f"search is not complete in {row['buckets']} buckets of more than {limit} vectors of {row['model']}"
        check(
            False, f"{what}: run in psql: select memfold.vector_index_ddl('{model}') \\gexec", problem=False
        )
    if large:
        what = f"search by words reads the newest {limit} texts of {large} larger buckets"
        check(False, f"{what}: run in psql: select memfold.text_index_ddl() \\gexec", problem=False)
    if not missing and not large:
        check(True, "search covers every bucket completely")


def _check_judge(client: Memfold, tenant: str | None, check: Callable[..., None]) -> None:
    try:
        told = unanswered(client, tenant)
    except MemfoldError as error:
        if error.sqlstate != "42501":
            raise
        return
    if told is not None:
        check(False, told, problem=False)


def _check_shard_functions(client: Memfold, check: Callable[..., None]) -> None:
    found = client._query(admin_queries.SHARD_FUNCTIONS)[0]
    lacking = int(found["shards"]) - int(found["current"])
    if not lacking:
        check(True, "each shard has functions of its own")
        return
    old = f" ({found['old']} have old ones)" if found["old"] else ""
    what = f"{lacking} of {found['shards']} shards have no functions of their own{old}: calls take several times as long"
    check(False, f"{what}: select memfold.create_shard_functions()", problem=False)


def _examine(client: Memfold, where: str, tenant: str | None, check: Callable[..., None]) -> None:
    """All checks, one after another; stops if the rest would be meaningless."""
    found = client._query(admin_queries.SERVER)[0]
    check(found["server_number"] >= 150000, f"PostgreSQL {found['server']} (15 or newer)")
    version = tuple(int(part) for part in (found["pgvector"] or "0.0").split(".")[:2])
    check(version >= (0, 8), f"pgvector {found['pgvector'] or 'is not installed'} (0.8 or newer)")
    check(found["encoding"] == "UTF8", f"encoding {found['encoding']} (UTF8)")
    if not client._query(queries.INSTALLED)[0]["installed"]:
        check(False, "memfold is not installed: memfold init DSN")
        return
    how = f"as extension {found['extension']}" if found["extension"] else "by memfold init"
    check(bool(found["extension"] or found["migrated"]), f"memfold is installed {how}")
    revision = _revision(client) if found["migrated"] else None
    if advice := migrate.other_version(found["extension"], revision):
        # the remaining checks would compare it with this version
        check(False, advice)
        return
    try:
        test = client._query(admin_queries.SELFTEST)[0]
        wrong = f": {test['failed']} fail, such as {test['example']}" if test["failed"] else ""
        check(not test["failed"], f"canonicalizer self-test, {test['checks']} checks{wrong}")
    except MemfoldError as error:
        if error.sqlstate in (ServerPackageError.code, ServerVersionError.code):
            check(False, f"canonicalizer self-test not run: {error.message}: {error.detail}")
        elif error.sqlstate == "42501":
            check(
                False, f"canonicalizer self-test not run: {found['role']} lacks the privilege", problem=False
            )
        else:
            raise
    invalid = [row["name"] for row in client._query(admin_queries.INVALID_INDEXES)]
    check(not invalid, f"invalid indexes: {', '.join(invalid) or 'none'}")
    if client._query(admin_queries.CITUS)[0]["is_distributed"]:
        nodes = client._query(admin_queries.OTHER_NODES)
        others = [str(row["node"]) for row in nodes if not row["same"]]
        named = f", but different ones, or none, on {', '.join(others)}" if others else ""
        check(not others, f"distributed by Citus: the same functions on {len(nodes)} workers{named}")
        _check_shard_functions(client, check)
    else:
        _compare_functions(where, str(found["role"]), check)
    unmeasured = [str(row["model"]) for row in client._query(admin_queries.UNMEASURED_MODELS)]
    if unmeasured:
        what = f"no thresholds are known for {', '.join(unmeasured)}, so tier 2 merges nothing by it"
        check(False, f"{what}: memfold calibrate --anchors {unmeasured[0]}", problem=False)
    _check_search(client, check)
    _check_judge(client, tenant, check)
    if tenant is not None:
        if not has_memories(client, tenant):
            check(False, no_memories(tenant), problem=False)
        broken = client.check_invariants(tenant)
        first = f"{len(broken)} differ, first {dict(broken[0])}" if broken else "no difference"
        check(not broken, f"memories of tenant {tenant} against its ledger: {first}")
        waiting = client._query(admin_queries.PLAIN_ROWS, tenant)[0]["waiting"]
        if waiting:
            what = (
                f"{waiting} rows of tenant {tenant} came by a plain INSERT and wait for ingest_plain_rows()"
            )
            check(False, f"{what}, which memfold maintenance calls", problem=False)
        shared = client._query(queries.SHARED_SLOTS, tenant)
        if shared:
            what = f"{len(shared)} slots of tenant {tenant} have several current values, because a person said so"
            named = "first {subject} {predicate} with {number}".format(**shared[0])
            check(False, f"{what}: {named}; the next value closes them all", problem=False)
    faults = [str(row["fault"]) for row in client._query(admin_queries.ISOLATION_FAULTS)]
    check(not faults, f"row-level security: {'; '.join(faults) or 'no fault'}")
    is_exempt, said = _exemption(found)
    if is_exempt:
        # nobody makes a dump as an agent
        is_whole, dump = _dump(found)
        check(is_whole, dump, problem=False)
    others = [f"{row['role']} ({row['sessions']})" for row in client._query(admin_queries.BYPASSING_SESSIONS)]
    if others:
        check(False, f"also connected, and bypassing row-level security: {', '.join(others)}", problem=False)
    check(not is_exempt, f"role {found['role']} {said}", problem=False)
