"""What must hold in the database, whatever was killed."""

from __future__ import annotations

import psycopg

from tests.faults.clients import LEASE
from tests.support.queries import DB

# each must return no row; a row is a broken promise
PROMISES = {
    "one row per text": """
        select tenant_id, bucket_id, encode(content_hash, 'hex'), count(*) from memfold.memories
        where tenant_id = any(%(tenants)s) and content_hash is not null group by 1, 2, 3 having count(*) > 1""",
    "one active memory a canonical text and scope": """
        select tenant_id, bucket_id, scope_key, memfold.canonicalize(content, 'prose/1'), count(*)
        from memfold.memories where tenant_id = any(%(tenants)s) and status = 'active'
        group by 1, 2, 3, 4 having count(*) > 1""",
    "one active memory of all paraphrases": """
        select v.tenant_id, v.scope_key, count(distinct coalesce(m.root_id, m.memory_id))
        from memfold.memory_vectors as v join memfold.memories as m using (tenant_id, memory_id)
        where v.tenant_id = any(%(tenants)s) and v.bucket_id = 'para' and v.is_live group by 1, 2
        having count(distinct coalesce(m.root_id, m.memory_id)) > 1""",
    "one value a slot": """
        select tenant_id, scope_key, count(*) from memfold.memories
        where tenant_id = any(%(tenants)s) and bucket_id = 'slots' and status = 'active' group by 1, 2
        having count(*) <> 1""",
    "a slot's intervals meet": """
        select * from (
            select i.tenant_id, i.slot_key, i.valid_to,
                lead(i.valid_from) over (partition by i.tenant_id, i.slot_key order by i.valid_from) as next
            from memfold.memory_intervals as i join memfold.memories as m using (tenant_id, memory_id)
            where i.tenant_id = any(%(tenants)s) and m.bucket_id = 'slots'
        ) as i where valid_to is distinct from next""",
    "counters are the observations of the tree": """
        select k.tenant_id, k.memory_id, k.observations, o.observations
        from memfold.memory_totals as k
        join memfold.memories as m on m.tenant_id = k.tenant_id and m.memory_id = k.memory_id and m.root_id is null
        cross join lateral (
            select count(*) as observations from memfold.memories as t
            join memfold.memory_events as e on e.tenant_id = t.tenant_id and e.memory_id = t.memory_id and e.observation
            where t.tenant_id = m.tenant_id and (t.memory_id = m.memory_id or t.root_id = m.memory_id)
                and not (e.tier = 1 and exists (
                    select from memfold.memory_events as u where u.tenant_id = e.tenant_id and u.undoes = e.event_id))
        ) as o
        where k.tenant_id = any(%(tenants)s) and k.observations <> o.observations""",
    "an accepted call is one ledger row": """
        select tenant_id, t.turn, count(*) from memfold.memory_events, unnest(source_turn_ids) as t (turn)
        where tenant_id = any(%(tenants)s) group by 1, 2 having count(*) > 1""",
    "no pair is asked twice": """
        select tenant_id, least(memory_id, other_id), greatest(memory_id, other_id), count(*),
            array_agg(kind || ' ' || status)
        from memfold.judgements where tenant_id = any(%(tenants)s) and status <> 'obsolete' and kind <> 'review'
        group by 1, 2, 3 having count(*) > 1""",
    "no pair waits twice": """
        select tenant_id, least(memory_id, other_id), greatest(memory_id, other_id), count(*)
        from memfold.judgements where tenant_id = any(%(tenants)s) and status in ('open', 'leased')
        group by 1, 2, 3 having count(*) > 1""",
    # (an undo writes down that the pair is distinct: its ledger row is the undo's)
    "a verdict is one ledger row": """
        select j.tenant_id, j.judgement_id, j.status, count(e.event_id) from memfold.judgements as j
        left join memfold.memory_events as e on e.tenant_id = j.tenant_id and e.judgement_id = j.judgement_id and e.tier = 3
        -- (of a cluster each of its memories has one)
        where j.tenant_id = any(%(tenants)s) and j.kind <> 'synthesis' and j.member_ids is null and j.status <> 'part'
            and j.cluster_id is null and not (j.kind = 'review' and j.verdict = 'distinct' and j.reason ~ '^undone')
        group by 1, 2, 3 having count(e.event_id) <> (j.status = 'done')::integer""",
    "a lease has an end": f"""
        select tenant_id, judgement_id, leased_until from memfold.judgements
        where status = 'leased' and coalesce(leased_until > clock_timestamp() + interval '{LEASE} s'
            or next_attempt_at > leased_until, true)""",
    "an undo is one row": """
        select u.tenant_id, u.undoes, u.event_id from (
            select e.*, lag(e.action, 1, 'restored') over (partition by e.tenant_id, e.undoes order by e.event_id) as before
            from memfold.memory_events as e where e.tenant_id = any(%(tenants)s) and e.undoes is not null
        ) as u where u.action = u.before""",
    "an undone run has nothing in force": """
        select r.tenant_id, r.run_id, e.event_id from memfold.runs as r
        join memfold.ledger as e on e.tenant_id = r.tenant_id and e.run_id = r.run_id
        where r.tenant_id = any(%(tenants)s) and r.status = 'undone' and e.action in ('merged', 'replaced', 'pruned')
        and not e.undone""",
    "sides, edges and turns exist": """
        select j.tenant_id, j.judgement_id, null::uuid from memfold.judgements as j
        where j.tenant_id = any(%(tenants)s) and (select count(*) from memfold.memories as m
            where m.tenant_id = j.tenant_id and m.memory_id in (j.memory_id, j.other_id)) <> 2
        union all
        select m.tenant_id, m.memory_id, r.memory_id from memfold.memories as m
        left join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = m.root_id
        where m.tenant_id = any(%(tenants)s) and m.status = 'merged' and (r.memory_id is null or r.root_id is not null)""",
}
HELD = {
    "no advisory lock": "select pid, mode, objid from pg_locks where locktype = 'advisory'",
    "nobody idles in a transaction": """
        select pid, state, application_name, query from pg_stat_activity
        where state like 'idle in transaction%%' and pid <> pg_backend_pid()""",
    "no prepared transaction": "select gid from pg_prepared_xacts",
    "nothing waits for a lock": "select pid, locktype, mode from pg_locks where not granted",
}


def held(db: DB) -> list[str]:
    """Locks and transactions left by sessions that are gone."""
    return [
        f"{name}: {rows[:3]}"
        for name, query in HELD.items()
        if (rows := db.execute(query.encode()).fetchall())
    ]


def broken(db: DB, tenants: list[str]) -> list[str]:
    """The promises that do not hold, of some tenants."""
    found = []
    for name, query in PROMISES.items():
        if rows := db.execute(query.encode(), {"tenants": tenants}).fetchall():
            found.append(f"{name}: {len(rows)}, such as {rows[:2]}")
    for tenant in tenants:
        if rows := db.execute("select * from memfold.check_invariants(%s)", [tenant]).fetchall():
            found.append(f"check_invariants({tenant}): {len(rows)}, such as {rows[:3]}")
    return found


def corrupt(db: DB) -> list[str]:
    """amcheck's findings for every index and table of memfold."""
    found = []
    relations = db.execute(
        "select c.oid, c.oid::regclass::text, a.amname from pg_class as c left join pg_am as a on a.oid = c.relam"
        " where c.relnamespace = 'memfold'::regnamespace and c.relkind in ('r', 'i') and c.relpersistence = 'p'"
    ).fetchall()
    for oid, name, method in relations:
        try:
            if method == "btree":
                db.execute("select bt_index_check(%s::oid::regclass, true)", [oid])
            elif method == "heap":
                found += [
                    f"{name}: {row}"
                    for row in db.execute("select * from verify_heapam(%s::oid::regclass)", [oid]).fetchall()
                ]
        except psycopg.Error as error:
            found.append(f"{name}: {error}")
    return found
