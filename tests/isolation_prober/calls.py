"""Every function by the catalog, and what calls hand in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.isolation_prober.sessions import Outcome, Session
from tests.isolation_prober.sides import Side
from tests.support.queries import DB


@dataclass(frozen=True)
class Argument:
    name: str
    kind: str
    optional: bool


@dataclass(frozen=True)
class Function:
    oid: int
    name: str
    procedure: bool
    arguments: tuple[Argument, ...]

    @property
    def full_name(self) -> str:
        return f"memfold{'_internal' if self.name.startswith('_') else ''}.{self.name}"


def functions(db: DB, role: str) -> list[Function]:
    """The functions of memfold that the role may execute."""
    rows = db.execute(
        "select p.oid, p.proname::text, p.prokind = 'p', coalesce(p.proargnames[:p.pronargs], '{}'),"
        " array(select format_type(t, null) from unnest(p.proargtypes::oid[]) with ordinality as u (t, n) order by n),"
        " p.pronargdefaults"
        " from pg_proc as p where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[])"
        " and p.prorettype <> 'trigger'::regtype"
        " and has_function_privilege(%s, p.oid, 'execute') and not exists ("
        "  select from pg_depend d join pg_extension x on x.oid = d.refobjid"
        "  where d.objid = p.oid and d.deptype = 'e' and x.extname = 'vector')"
        " order by 2, 1",
        [role],
    ).fetchall()
    return [
        Function(oid, name, procedure, tuple(
            Argument(argument, kind, n >= len(names) - defaults)
            for n, (argument, kind) in enumerate(zip(names, kinds, strict=True))
        ))
        for oid, name, procedure, names, kinds, defaults in rows
    ]  # fmt: skip


Give = Callable[[Side], Any]


def _id(name: str) -> Give:
    return lambda side: side.id(name)


def _word(text: str) -> Give:
    return lambda side: side.say(text)


# What calls pass, by the name of the argument (function.argument where one name means two things). Of a side:
SIDED: dict[str, Give] = {
    "tenant_id": lambda side: side.tenant,
    "bucket_id": _word("bucket"),
    "memory_id": _id("memory_id"),
    "id": _id("memory_id"),
    "attach_embedding.memory_id": _id("unseen_id"),
    "into_id": _id("other_id"),
    "by_id": _id("other_id"),
    "after": _id("memory_id"),
    "richer_memory_id": _id("memory_id"),
    "root_id": _id("other_id"),
    "memory_ids": lambda side: [side.id("memory_id"), side.id("unseen_id")],
    "event_id": _id("event_id"),
    "judgement_id": _id("judgement_id"),
    "undo_run.run_id": _id("session_run_id"),
    "update_memory.content": _word("prefers it bright"),
    "judgement_ids": lambda side: [side.id("judgement_id"), side.id("failed_id")],
    "run_id": _id("run_id"),
    "into_run": _id("run_id"),
    "undo_run_id": _id("run_id"),
    "pair_id": _id("pair_id"),
    "content": _word("prefers dark mode"),
    "other_content": _word("prefers dim light"),
    "contents": lambda side: [side.say("prefers dark mode"), side.say("owns a boat")],
    "content_a": _word("one"),
    "content_b": _word("two"),
    "merged_text": _word("prefers it dark"),
    "subject": _word("subject"),
    "predicate": _word("drives"),
    "object": _word("VW"),
    "memory_type": _word("type"),
    "session_id": _word("session"),
    "source_turn_ids": lambda side: [side.say("turn")],
    "source_turn_id": _word("turn"),
    "idempotency_key": _word("key"),
    "alias": _word("nickname"),
    "metadata": lambda side: json.dumps({side.word: side.word}),
    "pairs": lambda side: json.dumps([{"a": side.say("one"), "b": side.say("two"), "label": "distinct"}]),
    "candidates": lambda side: json.dumps([{
        "content": side.say("prefers dark mode"), "bucket_id": side.bucket, "memory_type": side.say("type"),
        "subject": side.say("subject"), "idempotency_key": side.say("key"), "source_turn_ids": [side.say("turn")],
    }]),
    "link": lambda side: json.dumps({
        "told": [str(side.id("memory_id"))], "name_told": [str(side.id("other_id"))], "name": side.say("nickname"),
    }),
    "role": lambda side: f"{side.word}_role",
}  # fmt: skip
# And what is of no side.
NEUTRAL: dict[str, Any] = {
    "embedding": "[1,0,0,0]", "query_embedding": "[1,0,0,0]", "embeddings": ["[1,0,0,0]", "[0,1,0,0]"],
    "embedding_model": "m", "from_model": "m", "to_model": "m2", "add_embeddings.embedding_model": "m2",
    "threshold": 0.1, "confidence": 0.9, "verdict": "distinct",
    "resolve_judgement.verdict": "refinement", "label": "distinct", "error": "it broke",
    "helpful": True, "thresholds": [0.1, 0.5], "profile": "prose/1", "name": "x", "code": "MF022", "message": "m",
    "detail": "d", "hint": "h", "guard": "on", "_explain_pair.guard": ["negation"], "score": None, "similarity": 0.9,
    "_effective.confidence": 0.5, "last_used": "2025-01-01", "at": "2025-06-01", "decay_rate": 0.1, "decay_floor": 0.1,
    "decay_interval": "1 day", "source_confidence": 0.5, "extractor_confidence": 0.5, "independent": 3,
    "weight_source": 0.5, "weight_extractor": 0.3, "weight_repetition": 0.2, "batch_size": 10, "canonicalizer": "flat",
    "key_fields": None, "metadata_keys": None, "cardinality": "one", "dry_run": False, "approval": "judge",
    "feature": "it", "reason": "because", "worker": "a worker", "min_age": "0 s", "unused_for": "0 s",
    "_rehash_batch.batch_size": 10, "_is_undoable.action": "merged", "tier": 2, "observation": False,
    "text_search": "simple",
    "_take_up_batch.kind": "subject", "as_of": None, "known_at": None, "of_tenant": "x", "of_bucket": "x",
    "capitals": "A", "fold_from": "A", "fold_to": "a", "_vector_index_name.model": "m", "words": ["tea"],
    "_unanswered.waiting": 3, "_unanswered.oldest": "2025-01-01", "_unanswered.last_answer": None,
    "actor": "postgres", "since": "2025-01-01",
    "_veto_reasons.a": "one", "_veto_reasons.b": "two", "_vector_index.model": "m",
}  # fmt: skip
# Given although there is a default: a call without these would find nothing.
GIVEN = {
    "find_similar.threshold", "search_memories.embedding_model", "consolidate.threshold", "collect_pairs.min_age",
    "prune_memories.unused_for", "consolidate.embedding_model", "sweep_duplicates.embedding_model",
}  # fmt: skip


# (dry_run is left to its default, which is to do nothing, and passed as well)


class UnknownError(Exception):
    """CALLS has no value for an argument."""


def value(function: Function, argument: Argument, side: Side) -> Any:
    plain = argument.name.removeprefix("p_")
    for name in (f"{function.name}.{plain}", plain):
        if name in SIDED:
            return SIDED[name](side)
        if name in NEUTRAL:
            return NEUTRAL[name]
    raise UnknownError(
        f"{function.name}({argument.name} {argument.kind}): say in tests/isolation_prober/calls.py what to pass"
    )


def sided(function: Function) -> list[Argument]:
    return [a for a in function.arguments if f"{function.name}.{a.name}" not in NEUTRAL and a.name in SIDED]


def call(session: Session, function: Function, given: dict[str, Any], *, commit: bool = False) -> Outcome:
    kinds = {argument.name: argument.kind for argument in function.arguments}
    listed = ", ".join(f'"{name}" => %({name})s::{_typed(kinds[name])}' for name in given)
    if function.procedure:
        # it commits by itself: no transaction around it
        setting = session._bind("set memfold.tenant_id = %s", [session.setting or ""])
        session.connection.execute(f"set search_path = {session.path}; {setting}".encode())
        outcome = session.listen(session._bind(f"call {function.full_name}({listed})", given))
        session.connection.execute("reset memfold.tenant_id; reset search_path")
        return outcome
    return session.run(f"select * from {function.full_name}({listed})", given, commit=commit)


def _typed(kind: str) -> str:
    """pgvector may be in any schema, and a hostile search_path does not lead there."""
    return re.sub(r"^(\w+\.)?vector\b", "public.vector", kind)


def base(function: Function, side: Side, *, everything: bool = False) -> dict[str, Any]:
    """Arguments of a call for the side: all of its own, and required ones of the others."""
    own = {a.name for a in sided(function)}
    given = {}
    for argument in function.arguments:
        known = value(function, argument, side) if not argument.optional or argument.name in own else None
        if argument.name in own or not argument.optional or f"{function.name}.{argument.name}" in GIVEN:
            given[argument.name] = known if known is not None else value(function, argument, side)
        elif everything and (argument.name in NEUTRAL or f"{function.name}.{argument.name}" in NEUTRAL):
            given[argument.name] = value(function, argument, side)
    return given


def owns(function: Function, side: Side) -> list[dict[str, Any]]:
    """Calls of the side for its own: with everything, with little, so that one of them goes through."""
    full = base(function, side)
    core = {a.name for a in function.arguments if not a.optional} | {"tenant_id", "bucket_id"}
    calls = [
        full,
        base(function, side, everything=True),
        {name: given for name, given in full.items() if name not in ("predicate", "object")},
        {name: given for name, given in full.items() if name in core or f"{function.name}.{name}" in GIVEN},
    ]
    if "undo_run_id" in full:
        calls.append(full | {"undo_run_id": None})
    return [given for n, given in enumerate(calls) if given not in calls[:n]]


# Functions that refuse every call: by nature, without a rehash under way, or without memfold_py.
REFUSING = {
    "_fail", "_unknown_profile", "_other_profile", "_require_python", "_rehash_batch", "_require_autocommit",
    "_bound_role",
}  # fmt: skip


def arrangements(function: Function, own: Side, other: Side) -> Iterator[tuple[str, dict[str, Any]]]:
    """Calls that name the other's things: one of them, all of them, with either tenant's name or none."""
    names = [a.name for a in sided(function)]
    for name in names:
        argument = next(a for a in function.arguments if a.name == name)
        yield f"{name} of the other", base(function, own) | {name: value(function, argument, other)}
        minimal = {a.name: value(function, a, own) for a in function.arguments if not a.optional}
        if "tenant_id" in names and name != "tenant_id":
            minimal["tenant_id"] = own.tenant
        yield f"{name} of the other, little else", minimal | {name: value(function, argument, other)}
    if names:
        yield "all of the other", base(function, other)
    if "tenant_id" in names:
        yield "all of the other, in own name", base(function, other) | {"tenant_id": own.tenant}
        yield "own, in the other's name", base(function, own) | {"tenant_id": other.tenant}
        tenant = next(a for a in function.arguments if a.name == "tenant_id")
        if tenant.optional:
            rest = base(function, other)
            del rest["tenant_id"]
            yield "all of the other, in nobody's name", rest


def passed(given: dict[str, Any]) -> str:
    return json.dumps([str(v) for v in given.values()]).lower()
