"""Rows of a tenant in every table, with its word in every text."""

from __future__ import annotations

import json
import uuid
from typing import Any

from psycopg import sql

from tests.isolation_prober.relations import PLAIN, TEXTS
from tests.isolation_prober.sides import Side
from tests.support.memories import ingest, vector
from tests.support.queries import DB, one


def populate(db: DB, side: Side) -> None:
    """Write some of everything, as a superuser, with the side's word in every text."""
    tenant, bucket, say, ids = side.tenant, side.bucket, side.say, side.ids

    def told(text: str, **more: Any) -> Any:
        more = {"bucket_id": bucket, "tenant_id": tenant, "session_id": say("session"), **more}
        more.setdefault("source_turn_ids", [say("turn")])
        more.setdefault("memory_type", say("type"))
        more.setdefault("subject", say("subject"))
        return ingest(db, say(text), metadata={side.word: side.word}, **more)

    db.execute("select memfold.set_predicate(tenant_id => %s, predicate => %s)", [tenant, say("drives")])
    db.execute(
        "select memfold.set_policy(%s, %s, memory_type => %s, lexical_threshold => 0.9,"
        " on_ambiguous => 'judge')",
        [tenant, bucket, say("type")],
    )
    db.execute(
        "update memfold.policies set metadata_max = %s where tenant_id = %s and bucket_id = %s",
        [[say("key")], tenant, bucket],
    )
    db.execute(
        "select memfold.set_options(%s, %s, memory_type => %s, protected_types => %s)",
        [tenant, bucket, say("type"), [say("pet")]],
    )
    db.execute(
        "insert into memfold.antonyms values (%s, %s, %s, %s)",
        [tenant, side.word, say("not"), say("language")],
    )
    for kind, name in (("subject", "subject"), ("predicate", "drives")):
        db.execute(
            f"select memfold.link_{kind}(%s, %s, %s, %s)".encode(),
            [say("nickname"), say(name), tenant, bucket],
        )
    first = told("prefers dark mode", idempotency_key=say("key"), **vector(1.0))
    for turn in range(5):
        last = told("prefers dark mode", source_turn_ids=[say(f"turn {turn}")])
    told("likes it dark best", **vector(0.97))
    asked = told("prefers dim light", **vector(0.9))
    assert asked.action == "escalated", asked
    answer_with(db, side, asked.judgement_id, "distinct")
    waits = told("prefers grey light", **vector(0.9, axis=2))
    assert waits.action == "escalated", waits
    tried = told("prefers blue light", **vector(0.9, axis=3))
    leased = one(
        db, "select judgement_id from memfold.claim_judgements(%s, tenant_id => %s, judgement_ids => %s)",
        say("worker"), tenant, [tried.judgement_id],
    )  # fmt: skip
    assert leased == tried.judgement_id
    again = told("prefers pink light", **vector(0.89, axis=3))
    claimed = db.execute(
        "select judgement_id from memfold.claim_judgements(%s, tenant_id => %s)", [say("worker"), tenant]
    ).fetchall()
    for (judgement_id,) in claimed:
        db.execute(
            "select memfold.fail_judgement(%s, %s, model => %s, retry_after => '0 s', tenant_id => %s)",
            [judgement_id, say("error"), say("judge"), tenant],
        )
    for place in ("VW", "Fiat", "VW"):
        told(f"drives {place}", predicate=say("drives"), object=say(place))
    unseen = told("owns a boat", subject=say("boatman"))
    wrong = told("owns a plane", subject=say("pilot"))
    db.execute(
        "select memfold.reject_memory(%s, reason => %s, tenant_id => %s)",
        [wrong.memory_id, say("reason"), tenant],
    )
    ids["pair_id"] = one(
        db,
        "select memfold.add_labelled_pair(%s, %s, 'distinct', tenant_id => %s)",
        say("one"),
        say("two"),
        tenant,
    )
    ids["session_run_id"] = one(
        db, "select run_id from memfold.end_session(%s, %s, %s)", say("session"), tenant, bucket
    )
    ids["run_id"] = one(db, "select memfold.start_reembedding('m', 'm2', %s)", tenant)
    assert first.memory_id is not None
    names = {
        "kind": "subject", "alias": say("Al"), "name": say("Alan"), "key": say("key"), "told": [str(first.memory_id)],
        "name_told": [str(asked.memory_id)],
    }  # fmt: skip
    db.execute(
        "insert into memfold.judgements (tenant_id, bucket_id, scope_key, kind, link)"
        " values (%s, %s, gen_random_uuid(), 'identity', %s)",
        [tenant, bucket, json.dumps(names)],
    )
    ids |= {
        "memory_id": first.memory_id, "other_id": asked.memory_id, "unseen_id": unseen.memory_id,
        "event_id": last.event_id, "judgement_id": waits.judgement_id, "leased_id": leased,
        "failed_id": again.judgement_id or leased, "done_id": asked.judgement_id,
    }  # fmt: skip
    fill_in(db, side)


def answer_with(db: DB, side: Side, judgement_id: uuid.UUID | None, verdict: str) -> None:
    db.execute(
        "select memfold.resolve_judgement(%s, %s, confidence => 0.99, reason => %s, model => %s, tenant_id => %s)",
        [judgement_id, verdict, side.say("reason"), side.say("judge"), side.tenant],
    )


def fill_in(db: DB, side: Side) -> None:
    """Columns that no call above has filled with the word are written by the superuser, bypassing every rule."""
    db.execute("begin; set local session_replication_role = replica")
    for table, column, kind in db.execute(TEXTS).fetchall():
        if f"{table}.{column}" in PLAIN or column == "tenant_id":
            continue
        row = db.execute(
            sql.SQL(
                "select count(*) filter (where t.{c}::text like {w}), count(*) from memfold.{t} as t"
                " where tenant_id = {i}"
            )
            .format(c=sql.Identifier(column), t=sql.Identifier(table), w=f"%{side.word}%", i=side.tenant)
        ).fetchone()  # fmt: skip
        assert row is not None
        assert row[1] > 0, f"populate() writes nothing into {table}"
        if row[0]:
            continue
        value = {
            "text": side.word,
            "text[]": "{" + side.word + "}",
            "jsonb": json.dumps({side.word: side.word}),
        }[kind]
        done = db.execute(
            sql.SQL(
                "update memfold.{t} as t set {c} = {v} where t.ctid = (select min(ctid) from memfold.{t} as u"
                " where u.tenant_id = {i}) and t.tenant_id = {i}"
            ).format(c=sql.Identifier(column), t=sql.Identifier(table), v=value, i=side.tenant)
        )
        assert done.rowcount == 1, (table, column)
    db.execute("commit")
