-- Calibration: labelled pairs of texts, and the thresholds and scores of embedding models fitted to them.
--
-- Pairs come from people and imports (add_labelled_pair) or from past decisions (collect_pairs); pairs_to_label() returns
-- those that a person should look at. memfold calibrate reads them, fits thresholds and a score outside of the database,
-- and stores a calibration; apply_calibration() puts it in force for all tenants, undo_calibration() takes it out again,
-- and replay_bucket() shows its effect beforehand. The last three are for members of memfold_owner.
--
-- Pairs belong to a tenant; models and calibrations to all. What must stay true: a pair has one label, the strongest; a
-- score is SQL text that is executed, so it must be pure arithmetic over its argument (_is_score); every change of a
-- model is logged in calibration_changes; no stored memory changes.

-- The rank of a label by its origin and evidence. If a pair has two labels, the higher rank prevails; of equal ones, the later label.
create or replace function memfold_internal._pair_strength(p_origin text, p_evidence text) returns integer
language sql immutable parallel safe
return case
    when p_origin in ('import', 'labelled') then 4
    when p_evidence in ('person', 'undo') then 3
    when p_evidence in ('judge', 'object') then 2
    else 1
end;

-- Stores valid labelled pairs and returns their ids, by position. An existing pair, in either order, gets the new label
-- unless its own is stronger (_pair_strength), and the new cosines in addition to its own.
create or replace function memfold_internal._add_pairs(
    p_tenant_id text, p_contents_a text[], p_contents_b text[], p_labels text[], p_origin text, p_evidences text[],
    p_similarities jsonb[], p_memories_a uuid[], p_memories_b uuid[]
) returns uuid[]
language plpgsql volatile
as $$
declare
    v_now constant timestamptz := clock_timestamp();
    v_actor constant text := memfold_internal._actor();
    v_ids uuid[] := array_fill(null::uuid, array[coalesce(cardinality(p_contents_a), 0)]);
    v_id uuid;
    l memfold.labelled_pairs;
    v_pair record;
begin
    for v_pair in
        select p.*
        from unnest(p_contents_a, p_contents_b, p_labels, p_evidences, p_similarities, p_memories_a, p_memories_b)
            with ordinality as p (content_a, content_b, label, evidence, similarities, memory_a, memory_b, place)
        -- In the order of the key, so that two calls with the same pairs do not deadlock.
        order by memfold_internal._pair_key(p.content_a, p.content_b), p.place
    loop
        insert into memfold.labelled_pairs as n (
            tenant_id, content_a, content_b, label, origin, evidence, weak, similarities, memory_a, memory_b, labelled_at,
            labelled_by
        ) values (
            p_tenant_id, v_pair.content_a, v_pair.content_b, v_pair.label, p_origin, v_pair.evidence,
            coalesce(v_pair.evidence in ('merge', 'neighbours'), false), coalesce(v_pair.similarities, '{}'),
            v_pair.memory_a, v_pair.memory_b, v_now, v_actor
        )
        on conflict do nothing
        returning n.pair_id into v_id;
        if v_id is null then
            select o.* into strict l
            from memfold.labelled_pairs as o
            where o.tenant_id = p_tenant_id collate "C"
                and o.pair_key = memfold_internal._pair_key(v_pair.content_a, v_pair.content_b)
            for no key update;
            v_id := l.pair_id;
            l.similarities := l.similarities || coalesce(v_pair.similarities, '{}');
            l.memory_a := coalesce(l.memory_a, v_pair.memory_a);
            l.memory_b := coalesce(l.memory_b, v_pair.memory_b);
            if memfold_internal._pair_strength(p_origin, v_pair.evidence)
                >= memfold_internal._pair_strength(l.origin, l.evidence)
            then
                l.label := v_pair.label;
                l.origin := p_origin;
                l.evidence := v_pair.evidence;
                l.weak := coalesce(v_pair.evidence in ('merge', 'neighbours'), false);
                l.labelled_at := v_now;
                l.labelled_by := v_actor;
            end if;
            update memfold.labelled_pairs as o
            set label = l.label, origin = l.origin, evidence = l.evidence, weak = l.weak, similarities = l.similarities,
                memory_a = l.memory_a, memory_b = l.memory_b, labelled_at = l.labelled_at, labelled_by = l.labelled_by
            where o.tenant_id = l.tenant_id and o.pair_id = l.pair_id;
        end if;
        v_ids[v_pair.place] := v_id;
    end loop;
    return v_ids;
end;
$$;

-- Raises MF035, MF042, unless it is an array of at most 10,000 objects with no other keys than p_keys.
create or replace function memfold_internal._check_pairs(p_pairs jsonb, p_keys text[]) returns void
language plpgsql stable
as $$
declare
    v_pair record;
begin
    if coalesce(jsonb_typeof(p_pairs), '') <> 'array' or jsonb_array_length(p_pairs) > 10000 then
        perform memfold_internal._fail('MF035', 'the batch is not an array, or is too large',
            format('It is a JSON %s.', coalesce(jsonb_typeof(p_pairs), 'null')
                || case when jsonb_typeof(p_pairs) = 'array' then ' of ' || jsonb_array_length(p_pairs) else '' end),
            'Pass a JSON array of at most 10,000 pairs.');
    end if;
    for v_pair in select e.element, e.place from jsonb_array_elements(p_pairs) with ordinality as e (element, place) loop
        if jsonb_typeof(v_pair.element) <> 'object' or v_pair.element - p_keys <> '{}' then
            perform memfold_internal._fail('MF042', 'a pair is not an object, or has an unknown key',
                format('Pair %s is %s.', v_pair.place, left(v_pair.element::text, 200)),
                format('The keys are %s.', array_to_string(p_keys, ', ')));
        end if;
    end loop;
end;
$$;

-- Raises MF004 (a text is empty), MF005 (too long) or MF042 (equal texts, an unknown label, a similarity that is not a cosine).
create or replace function memfold_internal._check_labelled_pair(
    p_content_a text, p_content_b text, p_label text, p_similarities jsonb
) returns void
language plpgsql stable
as $$
declare
    v_a constant text := memfold_internal._prose_1(p_content_a);
    v_b constant text := memfold_internal._prose_1(p_content_b);
begin
    if coalesce(v_a, '') = '' or coalesce(v_b, '') = '' then
        perform memfold_internal._fail('MF004', 'the content is empty',
            'The canonical form of a text of the pair is empty.', 'Pass the texts of two facts.');
    elsif greatest(octet_length(p_content_a), octet_length(p_content_b)) > 100000 then
        perform memfold_internal._fail('MF005', 'the content is too long',
            format('It has %s bytes.', greatest(octet_length(p_content_a), octet_length(p_content_b))),
            'A text of a labelled pair has at most 100,000 bytes.');
    elsif v_a = v_b then
        perform memfold_internal._fail('MF042', 'the two texts are equal',
            'They have the same canonical form.', 'Label two texts that tier 1 does not recognize as equal.');
    elsif not coalesce(p_label in ('duplicate', 'refinement', 'contradiction', 'distinct'), false) then
        perform memfold_internal._fail('MF042', 'unknown label', format('label was %s.', quote_nullable(p_label)),
            'A label is duplicate, refinement, contradiction or distinct.');
    elsif p_similarities is not null and (
        jsonb_typeof(p_similarities) <> 'object' or jsonb_path_exists(p_similarities,
            '$.* ? (@.type() != "number" || @ < -1 || @ > 1)')
    ) then
        perform memfold_internal._fail('MF042', 'a similarity is not a cosine', format('similarities was %s.', p_similarities),
            'Pass an object with a number from -1 to 1 for each embedding model.');
    end if;
end;
$$;

create or replace function memfold.add_labelled_pair(
    content_a text,
    content_b text,
    label text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    similarities jsonb default '{}',
    origin text default 'labelled'
) returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_ids uuid[];
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_labelled_pair(content_a, content_b, label, similarities);
    if not coalesce(origin in ('import', 'labelled'), false) then
        perform memfold_internal._fail('MF042', 'unknown origin of a pair', format('origin was %s.', quote_nullable(origin)),
            'origin is labelled or import; only collect_pairs() writes collected.');
    end if;
    v_ids := memfold_internal._add_pairs(tenant_id, array[content_a], array[content_b], array[label], origin, array[null::text],
        array[similarities], array[null::uuid], array[null::uuid]);
    return v_ids[1];
end;
$$;
grant execute on function memfold.add_labelled_pair to memfold_app;
comment on function memfold.add_labelled_pair is
'Records how two texts relate, for calibration: duplicate, refinement, contradiction or distinct. Returns the id of the pair. An existing
pair, in either order, gets the new label. similarities: their cosine, by embedding model, such as {"m": 0.91}; existing ones of other
models are kept. origin: labelled (a person was shown the pair) or import. Raises MF001 to MF005, MF042.';

create or replace function memfold.add_labelled_pairs(
    pairs jsonb,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_pairs(pairs, '{a,b,label,similarities}');
    perform memfold_internal._check_labelled_pair(e.element ->> 'a', e.element ->> 'b', e.element ->> 'label', e.element -> 'similarities')
    from jsonb_array_elements(pairs) as e (element);
    perform memfold_internal._add_pairs(tenant_id, array_agg(e.element ->> 'a' order by e.place),
        array_agg(e.element ->> 'b' order by e.place), array_agg(e.element ->> 'label' order by e.place), 'import',
        array_agg(null::text), array_agg(e.element -> 'similarities' order by e.place), array_agg(null::uuid),
        array_agg(null::uuid))
    from jsonb_array_elements(pairs) with ordinality as e (element, place)
    having count(*) > 0;
    return jsonb_array_length(pairs);
end;
$$;
grant execute on function memfold.add_labelled_pairs to memfold_app;
comment on function memfold.add_labelled_pairs is
'Records many labelled pairs at once, all or none: an array of at most 10,000 objects with the keys a, b (the texts), label, and
similarities as in add_labelled_pair(). Their origin is import. Returns the number of pairs given. Raises MF001 to MF005, MF035, MF042.';

create or replace function memfold.remove_labelled_pair(
    pair_id uuid,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    delete from memfold.labelled_pairs as l
    where l.tenant_id = remove_labelled_pair.tenant_id collate "C" and l.pair_id = remove_labelled_pair.pair_id;
    if not found then
        perform memfold_internal._fail('MF042', 'there is no such pair', format('pair_id was %s.', coalesce(pair_id::text, 'null')),
            'The table labelled_pairs lists them; set memfold.tenant_id to their tenant.');
    end if;
end;
$$;
grant execute on function memfold.remove_labelled_pair to memfold_app;
comment on function memfold.remove_labelled_pair is
'Deletes a labelled pair. If it comes from past decisions, collect_pairs() finds it again. Raises MF001, MF002, MF042.';
