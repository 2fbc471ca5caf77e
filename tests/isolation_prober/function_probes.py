"""Probes by the functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.isolation_prober.calls import (
    REFUSING,
    Function,
    UnknownError,
    arrangements,
    base,
    call,
    functions,
    owns,
    passed,
    sided,
)
from tests.isolation_prober.relations import full, relations, secrets, snapshot
from tests.isolation_prober.sessions import Session
from tests.isolation_prober.sides import Side
from tests.support.queries import DB, one


def probe_functions(
    db: DB, session: Session, own: Side, other: Side, nobody: Side, *, only: Sequence[Function] | None = None
) -> tuple[list[str], int]:
    """Call every function that the role may execute with the other's things; returns findings and the number of calls."""
    wrong: list[str] = []
    calls = 0
    hidden = secrets(db, other)
    asked: list[tuple[Function, dict[str, Any]]] = []
    # first calls that are rolled back, so that all see one state
    for function in only or functions(db, session.connection.info.user):
        try:
            found = list(arrangements(function, own, other))
            unasked = dict(arrangements(function, own, nobody))
            own_calls = owns(function, own)
        except UnknownError as error:
            wrong.append(str(error))
            continue
        for label, given in found:
            where = f"{session.name}: {function.name}, {label}"
            asked.append((function, given))
            if function.procedure:
                continue
            outcome = call(session, function, given)
            missing = call(session, function, unasked[label])
            calls += 2
            known = passed(given)
            for secret in outcome.reveals({s for s in hidden if s.lower() not in known}):
                wrong.append(f"{where}: reveals {secret}")
            if outcome.shape() != missing.shape():
                wrong.append(f"{where}: {outcome.shape()!r}, but for nobody's: {missing.shape()!r}")
            if (
                given.get("tenant_id") == other.tenant
                and any(map(_tells, outcome.rows))
                and function.name not in ANYBODY
            ):
                wrong.append(f"{where}: is answered {outcome.rows}")
        asked += [(function, given) for given in own_calls]
        outcomes = [call(session, function, given) for given in own_calls]
        for outcome in outcomes if not function.procedure else []:
            wrong += [
                f"{session.name}: {function.name}, its own: reveals {s}" for s in outcome.reveals(hidden)
            ]
        if all(outcome.state for outcome in outcomes) and function.name not in REFUSING:
            wrong.append(
                f"{session.name}: {function.name} refuses all ({outcomes[0].state}):"
                " say in tests/isolation_prober/calls.py what to pass"
            )
        calls += len(own_calls)
    # then what is kept, which must change nothing of the other; last what leaves little to work on
    asked.sort(key=lambda one: one[0].name.startswith("erase"))
    before = snapshot(db, other.tenant)
    for n, (function, given) in enumerate(asked):
        outcome = call(session, function, given, commit=True)
        calls += 1
        known = passed(given)
        # (not the word: by now the caller has said it)
        for secret in outcome.reveals({s for s in hidden - {other.word} if s.lower() not in known}):
            wrong.append(f"{session.name}: {function.name}, {given}: reveals {secret}")
        if n + 1 == len(asked) or asked[n + 1][0] is not function:
            after = snapshot(db, other.tenant)
            wrong += [
                f"{session.name}: {function.name} changes {t} of the other"
                for t in after
                if after[t] != before[t]
            ]
            before = after
    return wrong, calls


# Functions that answer any caller, for any tenant: from their arguments and the rules of '*' alone.
ANYBODY = {"_decay", "_options", "_policy", "_specificity", "_explain_pair", "_shown_link"}


def _tells(row: str) -> bool:
    return row not in ("(None,)", "('',)")


HOSTILE = [
    "", "*", "%", "_" * 16, "' or true --", "'; select 1; --", "\\", "\\x00", "\\000", "\u2400", "null", "NULL", '"', "$$",
    "birchwood-tenan%", "BIRCHWOOD-TENANT", "birchwood-tenant ", " birchwood-tenant", "birchwood-tenant\n",
    "birchwood-tenant' or '1'='1", "birchwood-tenant\u200b", "\uff42irchwood-tenant", "{birchwood-tenant,alderwood-tenant}",
]  # fmt: skip


def probe_names(db: DB, session: Session, own: Side, other: Side) -> tuple[list[str], int]:
    """Invalid tenant names, in the call and in the setting: both tenants stay isolated."""
    wrong: list[str] = []
    calls = 0
    before = snapshot(db, own.tenant, other.tenant)
    hidden = secrets(db, other)
    bound = one(db, "select pg_has_role(%s, 'memfold_tenant', 'member')", session.connection.info.user)
    everything = hidden if bound else hidden | secrets(db, own)
    kept = session.setting
    for function in functions(db, session.connection.info.user):
        names = [a.name for a in sided(function)]
        if "tenant_id" not in names or function.procedure:
            continue
        for name in HOSTILE:
            given = base(function, other) | {"tenant_id": name}
            outcome = call(session, function, given)
            calls += 1
            known = passed(given)
            found = outcome.reveals({s for s in hidden if s.lower() not in known})
            wrong += [
                f"{session.name}: {function.name}, tenant {name!r}: reveals {secret}" for secret in found
            ]
    for name in [None, *HOSTILE]:
        session.setting = name
        for function in functions(db, session.connection.info.user):
            names = [a.name for a in sided(function)]
            if "tenant_id" not in names or function.procedure:
                continue
            given = base(function, other)
            del given["tenant_id"]
            for more in ({}, {"tenant_id": other.tenant}):
                if not more and not next(a for a in function.arguments if a.name == "tenant_id").optional:
                    continue
                outcome = call(session, function, given | more)
                calls += 1
                known = passed(given | more)
                found = outcome.reveals({s for s in everything if s.lower() not in known and s != own.word})
                wrong += [f"setting {name!r}: {function.name}{more}: reveals {secret}" for secret in found]
        for relation, _, _ in relations(db):
            outcome = session.run(f"select t::text from {full(relation)} as t")
            calls += 1
            wrong += [
                f"setting {name!r}: {relation}: reveals {secret}" for secret in outcome.reveals(everything)
            ]
    session.setting = kept
    after = snapshot(db, own.tenant, other.tenant)
    wrong += [f"{session.name}: {table} has changed" for table in after if after[table] != before[table]]
    return wrong, calls
