"""preview_memory predicts ingest_memory: random candidates (MEMFOLD_CANDIDATES) over a few scopes."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

from tests.support.maintenance import set_columns
from tests.support.memories import check, ingest, model
from tests.support.queries import DB
from tests.support.rounds import rounds

CANDIDATES = rounds("MEMFOLD_CANDIDATES", 500, 3000)
SUBJECTS = ["Ann", "Bob", "Cem", "Dora", "Eli", "Fee", "Gus", "Hoa", "Ida", "Jo"]


def candidate(rnd: random.Random) -> dict[str, Any]:
    predicate = rnd.choice([None, "likes", "works_at", "lives_in"])
    number = rnd.randrange(30)
    arguments: dict[str, Any] = {
        "content": rnd.choice(["", "So ", "Not that "]) + f"Ann {predicate} thing {number % 9} and {number}",
        "bucket_id": rnd.choice(["default", "default", "wide", "keep", "newer", "newer", "words", "text"]),
        "subject": rnd.choice([None, *SUBJECTS]),
        "predicate": predicate,
        "observed_at": f"2026-{rnd.randrange(1, 11):02}-{rnd.randrange(1, 28):02}",
        "origin": rnd.choices(["observed", "inferred", "recalled"], [8, 1, 1])[0],
        "source_turn_ids": [str(rnd.randrange(50)) for _ in range(rnd.randrange(3))],
    }
    if predicate in ("works_at", "lives_in") and rnd.random() < 0.6:
        arguments["object"] = f"place {rnd.randrange(4)}"
    if rnd.random() < 0.6:
        arguments["embedding"] = json.dumps([1, rnd.gauss(0, 0.4), rnd.gauss(0, 0.4), rnd.gauss(0, 0.2)])
        arguments["embedding_model"] = "m"
    if rnd.random() < 0.2:
        arguments["metadata"] = {rnd.choice("abc"): rnd.randrange(3)}
    if rnd.random() < 0.05:
        arguments["idempotency_key"] = str(rnd.randrange(200))
    return arguments


def test_preview_equals_ingest(db: DB) -> None:
    model(db)
    db.execute(
        "select set_predicate('works_at', 'acme'), set_predicate('lives_in', 'acme', conflict => 'review')"
    )
    db.execute("select set_policy('acme', 'wide', scope => 'bucket', metadata_merge => 'newest')")
    db.execute("select set_policy('acme', 'keep', on_ambiguous => 'insert')")
    db.execute("select set_policy('acme', 'newer', on_merge => 'replace', guard => 'off')")
    db.execute(
        "select set_policy('acme', 'words', scope => 'bucket', lexical_threshold => 0.5, neighbours => 2)"
    )
    set_columns(db, "policies", "keep", similar_threshold=0.5)
    set_columns(db, "policies", "newer", metadata_max=["a"])
    set_columns(db, "policies", "words", session_neighbours=20)
    db.execute("select set_policy('acme', 'text', on_merge => 'synthesise', lexical_threshold => 0.7)")
    rnd = random.Random(20261121)
    actions: Counter[str] = Counter()
    wrong = []
    keyed: dict[tuple[str, str], dict[str, Any]] = {}
    told: list[dict[str, Any]] = []
    for i in range(CANDIDATES):
        arguments = candidate(rnd)
        if told and rnd.random() < 0.15:
            # restated: random candidates rarely are
            arguments |= rnd.choice(told)
        told.append({name: arguments[name] for name in ("content", "bucket_id", "subject", "predicate")})
        if "idempotency_key" in arguments:  # a key belongs to one candidate
            first = keyed.setdefault((arguments["bucket_id"], arguments["idempotency_key"]), dict(arguments))
            arguments = dict(first)
        content = arguments.pop("content")
        said = ingest(db, content, function="preview_memory", **arguments)
        done = ingest(db, content, **arguments)
        actions[f"{done.action} {done.method}"] += 1
        same = (said.action, said.tier, said.method, said.similarity, said.superseded_id, said.similar) == (
            done.action, done.tier, done.method, done.similarity, done.superseded_id, done.similar,
        )  # fmt: skip
        if not same or said.memory_id not in (None, done.memory_id):
            wrong.append((i, said, done))
    assert wrong == []
    # each kind of decision occurred
    assert {kind.split()[0] for kind in actions} == {
        "inserted", "merged", "replaced", "superseded", "escalated", "historical", "rejected",
    }  # fmt: skip
    assert {"merged hash", "merged alias", "merged vector", "merged timeline", "superseded object",
            "superseded predicate", "superseded timeline", "merged lexical", "replaced vector",
            "escalated vector"} <= set(actions)  # fmt: skip
    check(db)
