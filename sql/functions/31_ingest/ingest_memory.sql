create or replace function memfold.ingest_memory(
    content text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    memory_type text default 'fact',
    subject text default null,
    predicate text default null,
    object text default null,
    embedding vector default null,
    embedding_model text default null,
    source_turn_ids text[] default '{}',
    source_confidence double precision default 0.5,
    extractor_confidence double precision default 0.5,
    session_id text default null,
    origin text default 'observed',
    metadata jsonb default '{}',
    observed_at timestamptz default null,
    valid_from timestamptz default null,
    valid_until timestamptz default null,
    idempotency_key text default null,
    if_known boolean default false
) returns memfold.ingest_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    c memfold_internal.candidate;
    v_attempt memfold_internal.attempt;
    r memfold.ingest_result;
    v_event_id uuid;
    v_if_known constant boolean := coalesce(if_known, false);
begin
    if memfold_internal._is_authorized(tenant_id) is not true then
        perform memfold_internal._authorize_tenant(tenant_id);
    end if;
    c := memfold_internal._candidate(content, tenant_id, bucket_id, memory_type, subject, predicate, object, embedding, embedding_model,
        source_turn_ids, source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, valid_from, valid_until,
        idempotency_key);
    if idempotency_key is not null then
        -- row 1: a second call with the key waits here for the first to commit
        perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
        perform memfold_internal._check_identifier('idempotency_key', idempotency_key, true);
        loop
            if not v_if_known then
                -- with the id that the event usually gets, so that the row is written once
                insert into memfold.idempotency_keys as i (tenant_id, bucket_id, idempotency_key, event_id)
                values (ingest_memory.tenant_id, ingest_memory.bucket_id, ingest_memory.idempotency_key, memfold_internal._new_id())
                on conflict do nothing
                returning i.event_id into v_event_id;
                exit when found;
            end if;
            select i.event_id into v_event_id
            from memfold.idempotency_keys as i
            where i.tenant_id = ingest_memory.tenant_id collate "C"
                and i.bucket_id = ingest_memory.bucket_id collate "C"
                and i.idempotency_key = ingest_memory.idempotency_key collate "C";
            if found then
                perform memfold_internal._check_same_candidate(c, v_event_id);
                return memfold_internal._event_result(tenant_id, v_event_id);
            end if;
            -- it expired in between: treated as a new call
            exit when v_if_known;
        end loop;
    end if;
    if origin = 'observed' and memfold_internal._is_plainly_valid(c)
        -- The default canonicalizer may leave nothing of a text that the bucket's own one keeps. One letter shows in 0.3 us that
        -- something is left (Latin, Cyrillic, kana, Han, Hangul; for other scripts it is computed, in 5 us).
        and (
            content ~ E'[0-9A-Za-z\\u0400-\\u0481\\u3041-\\u3096\\u30A1-\\u30FA\\u4E00-\\u9FFF\\uAC00-\\uD7A3]' collate "C"
            or memfold_internal._prose_1(content) <> ''
        )
    then
        c.content_hash := memfold_internal._content_hash(
            memory_type, subject, predicate, content, 'prose/1', 'type,subject,predicate', null);
        -- A candidate with a vector is usually a new fact: clients embed unknown texts.
        if embedding is null and embedding_model is null then
            v_attempt := memfold_internal._ingest_known(c, v_event_id);
        end if;
        if (v_attempt.result).action is null and v_attempt.progress is distinct from 'row held'
            and memfold_internal._is_usual_text(c)
        then
            if not v_if_known then
                v_attempt := memfold_internal._ingest_new(c, v_event_id);
            elsif v_attempt.progress = 'unknown' and not memfold_internal._has_links(tenant_id) then
                return null;
            end if;
            if v_attempt.progress = 'known' then
                v_attempt := memfold_internal._ingest_known(c, v_event_id);
            end if;
        end if;
    end if;
    r := v_attempt.result;
    if r.action is null then
        r := memfold_internal._ingest(memfold_internal._validate(c),
            case when v_if_known and v_attempt.progress is distinct from 'row held' then 'if known' else v_attempt.progress end);
    end if;
    if v_if_known then
        -- The key is written last, because a text that is not known writes nothing.
        if idempotency_key is not null and r.action is not null then
            insert into memfold.idempotency_keys as i (tenant_id, bucket_id, idempotency_key, event_id)
            values (ingest_memory.tenant_id, ingest_memory.bucket_id, ingest_memory.idempotency_key, r.event_id)
            on conflict do nothing;
            if not found then
                raise exception 'another call with this idempotency_key has just been answered' using
                    errcode = 'serialization_failure',
                    detail = format('idempotency_key: %s', idempotency_key),
                    hint = 'Retry the call, with the same idempotency_key: it returns that answer.';
            end if;
        end if;
    elsif r.event_id <> v_event_id then
        update memfold.idempotency_keys as i
        set event_id = r.event_id
        where i.tenant_id = ingest_memory.tenant_id collate "C"
            and i.bucket_id = ingest_memory.bucket_id collate "C"
            and i.idempotency_key = ingest_memory.idempotency_key collate "C";
    end if;
    return r;
end;
$$;
grant execute on function memfold.ingest_memory to memfold_app;
comment on function memfold.ingest_memory is
'Ingests one candidate memory and decides atomically whether its fact is new, known, changed or unclear. Returns (action, memory_id, tier,
method, similarity, superseded_id, judgement_id, event_id, similar): write select * from ingest_memory(...), because of
(ingest_memory(...)).* PostgreSQL makes nine calls, one for each column. action is inserted, merged, replaced, superseded, escalated,
historical or rejected; memory_id is the memory that now holds the fact. embedding: the vector of the content, from a registered
embedding_model (it is normalized here); without one, tier 2 waits for attach_embedding(). source_turn_ids: at most 1,000. Confidences in
[0, 1]. origin: observed, inferred or recalled. observed_at: from the year 1 to 5 minutes ahead; null: now, later than every earlier
statement about the same. valid_from, valid_until (exclusive, in the years 1 to 9999): recall shows the memory only in between; null: no
bound; the latest observation decides.
idempotency_key: a second call with the same key returns the result of the first, and raises MF062 if it is about another candidate
(content, type, subject, predicate, object or metadata). if_known: ingests the text only if tier 1 knows it, so that no vector is needed;
otherwise it writes nothing and every field of the result is null: embed the text and call again. Bad input raises MF001 to MF016, MF061
or MF065 and changes nothing. A call may raise 40001 or 40P01: retry it with the same key. Raises MF025
at other levels than READ COMMITTED, unless the text is known.';
