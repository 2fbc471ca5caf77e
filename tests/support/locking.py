"""A tenant with some of everything, calls that take several locks, and the locks that a waiting call holds."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from tests.support.concurrent_calls import fold
from tests.support.maintenance import angle, policy, run_consolidation, storing
from tests.support.memories import ingest, model, vector
from tests.support.queries import DB, one

Ids = dict[str, Any]


def world(db: DB) -> Ids:
    """Two buckets that share a source and a linked name, a timeline, a merge, a question, a run: their ids."""
    ids: Ids = {}
    model(db)
    model(db, "m2")
    db.execute("select set_predicate('lives_in', 'acme')")
    for bucket, all_of_it in (("a", True), ("b", False)):
        told: dict[str, Any] = {"bucket_id": bucket, "source_turn_ids": ["t1"]}
        for name, fact in {
            "bob": {"content": "Bob has a dog", "subject": "Bob"},
            "tea": {"content": "Ann likes tea", "subject": "Ann", **vector(1.0)},
            "bonn": {"content": "Ann lives in Bonn", "subject": "Ann", "predicate": "lives_in", "object": "Bonn"},
            "sings": {"content": "Annie sings", "subject": "Annie", "session_id": "s"},
            "rome": {"content": "Ann lives in Rome", "subject": "Ann", "predicate": "lives_in", "object": "Rome"},
            "green": {"content": "Ann likes green tea", "subject": "Ann", **vector(0.3)},
            "unseen": {"content": "Ann dances", "subject": "Ann"},
        }.items():  # fmt: skip
            if not all_of_it and name not in ("tea", "bonn", "sings"):
                continue
            ids[f"{name}_{bucket}"] = ingest(db, **fact, **told).memory_id
        if not all_of_it:
            continue
        asked = ingest(db, "Ann adores tea", subject="Ann", **told, **vector(0.9))
        ids |= {f"asked_{bucket}": asked.memory_id, f"judgement_{bucket}": asked.judgement_id}
        ids[f"pan_{bucket}"] = ingest(db, "Ann owns a pan", subject="Ann", **told, **vector(0.3, 3)).memory_id
        fold(db, ids[f"pan_{bucket}"], ids[f"green_{bucket}"])
        # a tree of two scopes
        ids[f"cat_{bucket}"] = ingest(db, "Cid has a cat", subject="Cid", **told).memory_id
        ids[f"dan_{bucket}"] = ingest(db, "Dan has a cat", subject="Dan", **told).memory_id
        fold(db, ids[f"cat_{bucket}"], ids[f"dan_{bucket}"])
    db.execute(
        "select link_subject('Annie', 'Ann', 'acme', '*'), link_predicate('resides', 'lives_in', 'acme', '*')"
    )
    db.execute("call take_up_links('acme')")
    merged = (
        "select event_id from memory_events where bucket_id = 'a' and memory_id = %s and action = 'merged'"
    )
    ids["merged"] = one(db, f"{merged} and tier = 3", ids["pan_a"])
    ids["link"] = one(db, "select run_id from runs where kind = 'link' and arguments::text ~ 'Annie'")
    storing(db, "c")
    for degrees, text in enumerate(
        ("Eve uses Vim", "Eve's editor is Vim", "Eve edits files in Vim", "Eve is in Vim")
    ):
        ingest(db, text, bucket_id="c", subject="Eve", session_id="s", **angle(5 * degrees))
    db.execute("select set_policy('acme', 'e', dedup => 'off')")
    for _ in range(2):
        ingest(db, "Eve uses Vim", bucket_id="e", subject="Eve")
    storing(db, "f")
    for degrees, text in enumerate(("User likes tea", "The user likes tea")):
        ingest(db, text, bucket_id="f", **angle(5 * degrees))
    policy(db, "f", preset="three_tier")
    policy(db, "g", preset="replace_newer")
    ingest(db, "Gil has a cat", bucket_id="g", **vector(1.0))
    ids["synthesis"] = ingest(db, "Gil owns some cat", bucket_id="g", **vector(0.92)).judgement_id
    ids["asked"] = run_consolidation(db, bucket="c", approval="person")
    return ids


@dataclass(frozen=True)
class Key:
    """An advisory key, its place in the order in which all calls take them, and how one comes to hold it."""

    key: int
    place: int
    name: str
    lock: str


def keys(db: DB) -> list[Key]:
    """The keys that calls take for the tenant's things.

    Only those who link take the key of '*': one at a time, before any bucket's. A scope's comes with its bucket's, SHARED.
    """
    found = [(one(db, "select memfold_internal._rules_key('acme')"), 0, "rules", "_lock_rules('acme')")]
    for place, tenant, bucket in (
        (1, "acme", "*"),
        *((2, "acme", bucket) for bucket in "abcefg"),
        (2, "globex", "b"),
    ):
        key = one(db, "select memfold_internal._bucket_key(%s, %s)", tenant, bucket)
        found.append((key, place, f"bucket {bucket}", f"_lock('{tenant}', '{bucket}', null, true)"))
    for key, bucket, scope, texts in db.execute(
        "select memfold_internal._scope_lock('acme', scope_key), bucket_id, scope_key, string_agg(content, ', ')"
        " from memfold.memories where tenant_id = 'acme' group by bucket_id, scope_key"
    ).fetchall():
        found.append((key, 3, f"scope of {texts}", f"_lock('acme', '{bucket}', '{scope}', true)"))
    return [Key(key, place, name, f"select memfold_internal.{lock}") for key, place, name, lock in found]


def texts(db: DB) -> list[Any]:
    """Memories in the order in which their counters are locked: roots by id, then aliases by id."""
    return [row[0] for row in db.execute(
        "select m.memory_id from memfold.memories as m join memfold.memory_counters using (tenant_id, memory_id)"
        " where m.tenant_id = 'acme' order by m.root_id is not null, m.memory_id"
    ).fetchall()]  # fmt: skip


def held_keys(db: DB, session: DB) -> list[int]:
    """The advisory keys that a session holds."""
    return [key for (key,) in db.execute(
        "select classid::bigint << 32 | objid::bigint from pg_locks where pid = %s and granted and locktype = 'advisory'",
        [session.info.backend_pid],
    ).fetchall()]  # fmt: skip


def locked(db: DB) -> dict[str, list[Any]]:
    """The rows that some session has locked: their memories, or judgements, by table; tables with none are left out."""
    found = {}
    for table, key in (
        ("memories", "memory_id"),
        ("memory_counters", "memory_id"),
        ("judgements", "judgement_id"),
    ):
        rows = f"select {key} from memfold.{table}"
        with db.transaction(force_rollback=True):
            free = db.execute(f"{rows} for no key update skip locked".encode()).fetchall()
        if taken := set(db.execute(rows.encode()).fetchall()).difference(free):
            found[table] = [memory_id for (memory_id,) in taken]
    return found


def takes_keys(db: DB) -> set[str]:
    """The public functions that, by what they and those below them say, may take an advisory key."""
    bodies: dict[str, str] = defaultdict(str)
    for name, body in db.execute(
        "select p.proname::text, pg_get_functiondef(p.oid) from pg_proc as p"
        " where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and p.prokind in ('f', 'p')"
    ).fetchall():
        bodies[name] += body
    found = {name for name, body in bodies.items() if re.search(r"\bpg_(try_)?advisory_", body)}
    while more := {
        name for name, body in bodies.items()
        if name not in found and not found.isdisjoint(re.findall(r"\bmemfold(?:_internal)?\.(\w+)\(", body))
    }:  # fmt: skip
        found |= more
    public = (
        "select proname::text from pg_proc where pronamespace = 'memfold'::regnamespace and provolatile = 'v'"
    )
    return found & {name for (name,) in db.execute(public).fetchall()}
