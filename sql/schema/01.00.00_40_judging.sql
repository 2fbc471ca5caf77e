create type memfold.claimed_judgement as (
    tenant_id text,
    judgement_id uuid,
    bucket_id text,
    kind text,
    similarity double precision,
    guard text[],
    attempts bigint,
    leased_until timestamptz,
    memory jsonb,
    other jsonb,
    members jsonb,
    link jsonb
);
comment on type memfold.claimed_judgement is
'A question for a judge: do memory (the newer) and other (the older) say the same? Both as JSON: memory_id, content, memory_type, subject,
predicate, object, first_seen, last_seen, observations, sources, origin, session_id, source_turn_ids. members: for a cluster, an array of
all its memories in that form, oldest to newest; memory and other are the last and the first of them. Null: a pair. link: for kind
identity, which asks whether two names mean the same: kind (subject, predicate, or beginning: texts without a subject that begin with the
name), alias, name, score, reasons, evidence, and statements about each (told, name_told); memory and other are the first of these. Null:
the question is about memories.';

create type memfold.resolution as (
    status text,
    verdict text,
    action text,
    memory_id uuid,
    event_id uuid,
    run_id uuid
);
comment on type memfold.resolution is
'Result of an answer. status: done; open (a side has changed: the question was queued again, nothing was applied); obsolete (nothing is
left to decide). action: merged, replaced, superseded, rejected, escalated (to a person), judged (both were kept) or linked; memory_id:
the memory that now holds the fact; run_id: for a link its run, for undo_run().';
