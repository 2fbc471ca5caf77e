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
'A question for a judge: do memory (the newer) and other (the older) say the same? Both as JSON: memory_id, content,
memory_type, subject, predicate, object, first_seen, last_seen, observations, sources, origin, session_id, source_turn_ids.
members: of a cluster, an array of all its memories in that form, oldest to newest; memory and other are the last and the
first of them. Null: a pair. link: of kind identity, where the question is whether two names are one: kind (subject, predicate, or beginning: of
texts without a subject that begin with the name), alias, name, score, reasons, evidence, and what is told of each (told, name_told); memory
and other are the first of these. Null: it is about memories.';

create type memfold.resolution as (
    status text,
    verdict text,
    action text,
    memory_id uuid,
    event_id uuid,
    run_id uuid
);
comment on type memfold.resolution is
'What became of an answer. status: done; open (a side has changed: the question was queued again, nothing was applied); obsolete
(there is nothing to decide any more). action: merged, replaced, superseded, rejected, escalated (to a person), judged
(both were kept) or linked; memory_id: the memory that now holds the fact; run_id: of a link its run, for undo_run().';
