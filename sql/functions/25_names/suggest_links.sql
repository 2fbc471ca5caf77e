-- Pairs of subjects for suggest_links(). Only reads.
create or replace function memfold_internal._suggested_subjects(p_tenant_id text, p_bucket_id text) returns setof memfold.link_suggestion
language plpgsql stable
as $$
#variable_conflict use_column
begin
    return query
    with facts as materialized (
        select * from memfold_internal._subject_facts(p_tenant_id, p_bucket_id)
    ),
    names as materialized (
        select f.subject, mode() within group (order by f.spelled) as spelled, count(*) as facts,
            memfold_internal._name_words(f.subject) as words, (array_agg(f.memory_id order by f.memory_id desc))[1:5] as ids
        from facts as f
        where f.subject is not null
        group by f.subject
    ),
    related as materialized (
        select distinct a.subject as alias, b.subject as name, memfold_internal._name_relation(a.words, b.words) as relation
        from (select n.*, w.word from names as n cross join lateral unnest(n.words) as w (word)) as a
        join (select n.*, w.word from names as n cross join lateral unnest(n.words) as w (word)) as b
            on b.word = a.word and b.subject <> a.subject and length(a.word) > 1
        where memfold_internal._name_relation(a.words, b.words) is not null
    ),
    told as materialized (
        select t.*, count(*) over (partition by t.memory_type, t.predicate, t.said) as tellers
        from (
            select distinct f.memory_id, f.memory_type, f.subject, f.predicate, s.said
            from facts as f
            cross join lateral (values (f.form), (f.canonical)) as s (said)
            where f.subject is not null
        ) as t
    ),
    same as materialized (
        select x.subject, x.other, x.memory_id, x.other_id
        from (
            select a.subject, b.subject as other, a.memory_id, b.memory_id as other_id
            from told as a
            join told as b on b.memory_type = a.memory_type and b.said = a.said and b.predicate is not distinct from a.predicate
                and b.subject > a.subject
            -- A statement about many names is not evidence.
            where a.tellers <= 20
            union
            select n.* from memfold_internal._near_facts(p_tenant_id, p_bucket_id) as n
        ) as x
    ),
    shared as materialized (
        select p.alias, p.name, count(distinct p.memory_id) as facts,
            (array_agg(array[p.memory_id::text, p.other_id::text] order by p.memory_id))[1:5] as pairs
        from (
            select s.subject as alias, s.other as name, s.memory_id, s.other_id from same as s
            union all
            select s.other, s.subject, s.other_id, s.memory_id from same as s
        ) as p
        group by p.alias, p.name
    ),
    pairs as (
        select a.subject as alias, b.subject as name, a.spelled, b.spelled as name_spelled, r.relation, coalesce(s.facts, 0) as shared,
            s.pairs, a.facts, b.facts as name_facts, a.ids, b.ids as name_ids,
            -- The number of names that the alias may abbreviate, without those that abbreviate another one themselves.
            count(*) filter (where r.relation is not null and not exists (
                select from related as o where o.alias = b.subject
            )) over (partition by a.subject) as meanings
        from (
            select r.alias, r.name from related as r
            union
            -- If neither name abbreviates the other, the rarer one is the alias.
            select s.alias, s.name
            from shared as s
            join names as a on a.subject = s.alias
            join names as b on b.subject = s.name
            where s.facts >= 2 and s.facts * 2 >= least(a.facts, b.facts)
                and (a.facts, a.subject) < (b.facts, b.subject)
                and not exists (select from related as r where (r.alias, r.name) in ((s.alias, s.name), (s.name, s.alias)))
                -- Two names that abbreviate a third one are suggested together with that one instead.
                and not exists (
                    select from related as r join related as o on o.name = r.name where r.alias = s.alias and o.alias = s.name
                )
        ) as p
        join names as a on a.subject = p.alias
        join names as b on b.subject = p.name
        left join related as r on r.alias = p.alias and r.name = p.name
        left join shared as s on s.alias = p.alias and s.name = p.name
    ),
    scored as (
        select p.*, least(1, case when p.relation is null then 0.3 else 0.6 / greatest(p.meanings, 1) end
            + 0.4 * least(1, p.shared / 2.0)) as score
        from pairs as p
    )
    select 'subject', s.spelled, s.name_spelled, s.score::double precision,
        array_remove(array[
            s.relation,
            case when s.shared > 0 then 'facts' end,
            case when s.meanings > 1 and s.relation is not null then 'ambiguous' end
        ], null),
        jsonb_build_object('facts', s.facts, 'name_facts', s.name_facts, 'shared', s.shared,
            'pairs', coalesce(to_jsonb(s.pairs), '[]'), 'memory_ids', s.ids, 'name_memory_ids', s.name_ids)
    from scored as s
    where s.score >= 0.5
        and not memfold_internal._names_clash(p_tenant_id, s.spelled, s.name_spelled, s.relation is not null)
    union all
    select 'subject', null, n.spelled, 0.7, array['beginning'],
        jsonb_build_object('facts', count(*), 'name_facts', n.facts, 'memory_ids',
            (array_agg(b.memory_id order by b.memory_id))[1:5], 'name_memory_ids', n.ids)
    from (
        select distinct on (f.memory_id) f.memory_id, n.subject
        from facts as f
        join names as n on memfold_internal._begins_with(f.form, n.subject)
        where f.subject is null
        order by f.memory_id, length(n.subject) desc
    ) as b
    join names as n on n.subject = b.subject
    group by n.subject, n.spelled, n.facts, n.ids;
end;
$$;

-- Pairs of predicates for suggest_links(). Only reads.
create or replace function memfold_internal._suggested_predicates(p_tenant_id text, p_bucket_id text) returns setof memfold.link_suggestion
language plpgsql stable
as $$
#variable_conflict use_column
begin
    return query
    with facts as materialized (
        select distinct on (f.memory_type, f.subject, f.predicate, f.value) f.*
        from (
            select o.*, coalesce(o.object, o.form) as value
            from memfold_internal._subject_facts(p_tenant_id, p_bucket_id) as o
            where o.subject is not null and o.predicate is not null
        ) as f
        order by f.memory_type, f.subject, f.predicate, f.value, f.memory_id
    ),
    names as materialized (
        select f.predicate, count(*) as facts, (array_agg(f.memory_id order by f.memory_id desc))[1:5] as ids, (
            select mode() within group (order by m.predicate) from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and m.memory_id = any(array_agg(f.memory_id))
        ) as spelled
        from facts as f
        group by f.predicate
    ),
    shared as (
        select a.predicate as alias, b.predicate as name, count(*) as facts,
            (array_agg(array[a.memory_id::text, b.memory_id::text] order by a.memory_id))[1:5] as pairs
        from facts as a
        join facts as b on b.memory_type = a.memory_type and b.subject = a.subject and b.value = a.value and b.predicate <> a.predicate
        group by a.predicate, b.predicate
    )
    select 'predicate', a.spelled::text, b.spelled::text, s.facts::double precision / a.facts, array['slots'],
        jsonb_build_object('facts', a.facts, 'name_facts', b.facts, 'shared', s.facts, 'pairs', to_jsonb(s.pairs),
            'memory_ids', a.ids, 'name_memory_ids', b.ids)
    from shared as s
    join names as a on a.predicate = s.alias
    join names as b on b.predicate = s.name
    where s.facts >= 2 and s.facts * 2 >= a.facts and (a.facts, a.predicate) < (b.facts, b.predicate)
        -- Opposite predicates ("likes", "does not like") may have the same objects too.
        and not exists (
            select from unnest(memfold_internal._guard(p_tenant_id, 'it ' || a.predicate, 'it ' || b.predicate)) as g (signal)
        );
end;
$$;

create or replace function memfold.suggest_links(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    max_results bigint default 100
) returns setof memfold.link_suggestion
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
-- In a small store, compiling these queries takes a hundred times as long as running them.
set jit = off
as $$
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
    if not coalesce(max_results between 1 and 10000, false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range', format('max_results was %s.', coalesce(max_results::text, 'null')),
            'max_results is 1 to 10000.');
    end if;
    return query
    select s.*
    from (
        select * from memfold_internal._suggested_subjects(tenant_id, bucket_id)
        union all
        select * from memfold_internal._suggested_predicates(tenant_id, bucket_id)
    ) as s
    -- Omit pairs that were answered or unlinked.
    where not exists (
        select from memfold.judgements as j
        where j.tenant_id = suggest_links.tenant_id collate "C" and j.bucket_id in (suggest_links.bucket_id collate "C", '*')
            and j.kind = 'identity' and j.status = 'done' and j.verdict <> 'unsure'
            and j.link ->> 'key' = memfold_internal._suggestion_key(s)
    )
    order by s.score desc, s.kind, s.name, s.alias
    limit max_results;
end;
$$;
grant execute on function memfold.suggest_links to memfold_app;
comment on function memfold.suggest_links is
'Suggests pairs of names of a bucket that may mean the same, for a person or a judge to check; links nothing. kind: subject or predicate.
alias, name: the arguments of link_subject() or link_predicate() (alias null: texts without a subject begin with the name). score in (0,
1], best first. reasons: contained (the words of the alias are among those of the name), initials, facts (both have the same facts, in the
same words or at the model''s merge threshold), ambiguous (other names have these words too), beginning; for predicates slots (the same
subjects and objects). evidence: how many facts each has (facts, name_facts) and both have (shared), pairs of their memory ids, and up to
five memory ids for each name (memory_ids, name_memory_ids). Omits names that the guard distinguishes ("Georg Maier", "Georg Huber"), that
a judge or a person has kept apart (ask_links), or that were unlinked. Reads the newest 50,000 active memories, and vectors only of the
newest 1,000 of them that have a subject and a vector. Raises MF001 to MF003, MF022.';
