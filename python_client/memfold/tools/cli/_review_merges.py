"""``memfold judge --review-merges``: a judge looks at automatic merges once more, and wrong ones are undone."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import click
import psycopg

from memfold.client._text import describe_error
from memfold.client.errors import translate
from memfold.client.judging import Answer, Judge, Question, Side
from memfold.client.judging.protocol import ask
from memfold.tools.cli._maintenance import Connection, Row, _call, _connected
from memfold.tools.cli._shared import fail, progress, report, show, show_lines, table_of

# Both texts as a claimed judgement has them (newer, older), unless one was erased. Restoring an undone merge confirms it.
_MERGES = """
select e.event_id, e.tenant_id, e.bucket_id, e.similarity, s.sides, f.confidence_floor
from memfold.ledger as e
join memfold.memories as m on m.tenant_id = e.tenant_id and m.memory_id = e.memory_id
cross join lateral (
    select jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
        'memory_id', t.memory_id, 'content', t.content, 'memory_type', t.memory_type, 'subject', t.subject,
        'predicate', t.predicate, 'object', t.object, 'first_seen', k.first_seen, 'last_seen', k.last_seen,
        'observations', k.observations, 'sources', k.independent
    )) order by t.memory_id desc) as sides
    from memfold.memories as t
    left join memfold.memory_totals as k on k.tenant_id = t.tenant_id and k.memory_id = t.memory_id
    where t.tenant_id = e.tenant_id and t.memory_id in (e.memory_id, e.target_id)
) as s
cross join lateral (
    select p.confidence_floor from memfold.policies as p
    where p.tenant_id in (e.tenant_id, '*') and p.bucket_id in (e.bucket_id, '*') and p.memory_type in (m.memory_type, '*')
    order by p.tenant_id = '*', p.bucket_id = '*', p.memory_type = '*'
    limit 1
) as f
where e.tenant_id = %(tenant)s and e.tier = 2 and e.action in ('merged', 'replaced')
    and e.recorded_at >= coalesce(%(since)s::timestamptz, now() - interval '1 day')
    and e.is_undoable and e.undo_state is null and jsonb_array_length(s.sides) = 2
    and not exists (
        select from memfold.judgements as j
        where j.tenant_id = e.tenant_id and j.status = 'done' and j.verdict in ('duplicate', 'refinement')
            and j.memory_id in (e.memory_id, e.target_id) and j.other_id in (e.memory_id, e.target_id)
    )
    and not exists (
        select from memfold.labelled_pairs as l
        where l.tenant_id = e.tenant_id and l.label in ('duplicate', 'refinement')
            and coalesce(l.evidence, 'person') in ('person', 'judge')
            and array[l.content_a, l.content_b] <@ array[s.sides -> 0 ->> 'content', s.sides -> 1 ->> 'content']
    )
order by e.event_id
"""
_UNDO = "select * from memfold.undo(%(event)s, %(tenant)s, %(reason)s)"


def run(
    where: str, tenant: str | None, judge: Judge, since: str | None, dry_run: bool, slots: int, timeout: float
) -> None:
    """Look at all automatic merges, undo the wrong ones, and print them. ``timeout``: seconds that the judge has for a
    pair."""
    with _connected(where, tenant) as connection:
        (row,) = _call(connection, "select current_setting('memfold.tenant_id', true) as tenant")
        if not row["tenant"]:
            raise click.UsageError("--review-merges needs --tenant")
        tell = progress("reading merges")
        merges = _call(connection, _MERGES, tenant=row["tenant"], since=since)
        seen = asyncio.run(_look(connection, merges, judge, dry_run, slots, timeout, tell))
    counts = Counter(one["outcome"] for one in seen)
    report({"looked_at": len(seen), "dry_run": dry_run, "counts": counts, "merges": seen})
    rows = [
        [one["outcome"], one["verdict"], one["confidence"] and f"{one['confidence']:.2f}",
         one["event_id"], one["newer"][:60], one["older"][:60]]
        for one in seen
    ]  # fmt: skip
    if rows:
        show_lines(table_of(["outcome", "verdict", "confidence", "event", "newer", "older"], rows))
    show(", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "no merge to look at")
    if counts["failed"]:
        fail(f"{counts['failed']} merges were not judged or not undone; the last: {_last_failure(seen)}")


def _last_failure(seen: list[Row]) -> str:
    return next(str(one["reason"]) for one in reversed(seen) if one["outcome"] == "failed")


async def _look(
    connection: Connection,
    merges: list[Row],
    judge: Judge,
    dry_run: bool,
    slots: int,
    timeout: float,
    tell: Callable[[str], None],
) -> list[Row]:
    turns = asyncio.Semaphore(slots)
    looked_at = 0

    async def one(merge: Row) -> Row:
        nonlocal looked_at
        newer, older = map(Side.from_json, merge["sides"])
        seen: Row = {"event_id": merge["event_id"], "newer": newer.content, "older": older.content}
        question = Question(
            judgement_id=merge["event_id"], tenant_id=merge["tenant_id"], bucket_id=merge["bucket_id"],
            kind="write", similarity=merge["similarity"], guard=(), attempts=1, memory=newer, other=older,
        )  # fmt: skip
        answer: Answer | None = None
        async with turns:
            try:
                answer = await ask(judge, question, timeout)
                wrong = (
                    answer.verdict in ("distinct", "contradiction")
                    and answer.confidence >= merge["confidence_floor"]
                )
                outcome, reason = "left", answer.reason
                if wrong and not dry_run:
                    why = (
                        f"a second look by {getattr(judge, 'model', type(judge).__name__)}: {answer.verdict}"
                    )
                    undone: dict[str, Any] = {"event": merge["event_id"], "tenant": merge["tenant_id"]}
                    await asyncio.to_thread(_call, connection, _UNDO, **undone, reason=why)
                if wrong:
                    outcome = "to undo" if dry_run else "undone"
            except psycopg.Error as error:
                outcome, reason = "failed", str(translate(error))
            except Exception as error:  # whatever a plugged-in judge raises; the others are looked at
                outcome, reason = "failed", describe_error(error)
        looked_at += 1
        tell(f"{looked_at:,} of {len(merges):,} merges")
        return seen | {
            "outcome": outcome,
            "verdict": answer and answer.verdict,
            "confidence": answer and answer.confidence,
            "reason": reason,
        }

    try:
        return await asyncio.gather(*map(one, merges))
    finally:
        await close(judge)


async def close(judge: Judge) -> None:
    """Close a judge that can be closed."""
    found = getattr(judge, "close", None)
    if found is not None and inspect.iscoroutinefunction(found):
        await found()
