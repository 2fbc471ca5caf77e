-- Skips a row in which another transaction has counted without committing: two inserts of many known texts in different
-- orders would otherwise deadlock. Begins another row after every 100 counts, because each call reads all versions of the
-- row that its transaction has written. SECURITY DEFINER, like adopted_hash().
create or replace function memfold.adopted_repeat(adoption text, row_key jsonb) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
-- the table may have grown since this was planned
set enable_seqscan = off
set jit = off
as $$
declare
    -- the row that this transaction last counted in, and how often: for a thousand keys at a time
    v_hash constant bigint := memfold_internal._short_hash(convert_to(row(adoption, row_key)::text, 'UTF8'));
    v_setting constant text := 'memfold.repeats_' || (v_hash & 1023);
    v_last constant text[] := string_to_array(current_setting(v_setting, true), ' ');
    v_id uuid;
    v_repeats bigint := 0;
begin
    if num_nulls(adoption, row_key) > 0 then
        perform memfold_internal._fail('MF022', 'an argument is missing', 'adoption or row_key was null.',
            'The trigger of an adoption passes both.');
    end if;
    if v_last[1] = v_hash::text then
        v_repeats := v_last[3]::bigint;
        v_id := case when v_repeats % 100 <> 0 then v_last[2]::uuid end;
    else
        select i.repeat_id into v_id
        from memfold.adoption_repeats as i
        where i.adoption = adopted_repeat.adoption collate "C" and i.row_key = adopted_repeat.row_key
        limit 1
        for update skip locked;
    end if;
    update memfold.adoption_repeats as r
    set repeats = r.repeats + 1, last_at = clock_timestamp()
    where r.repeat_id = v_id;
    if not found then
        insert into memfold.adoption_repeats (adoption, row_key) values (adopted_repeat.adoption, adopted_repeat.row_key)
        returning repeat_id into v_id;
    end if;
    perform set_config(v_setting, v_hash || ' ' || v_id || ' ' || v_repeats + 1, true);
end;
$$;
comment on function memfold.adopted_repeat is
'Counts an absorbed insert (adoption_repeats) on the row of an adopted table that holds its text; row_key: the key of that row, by column.
Called by the trigger of an adoption that absorbs, as the owner of the table. Raises MF022.';
