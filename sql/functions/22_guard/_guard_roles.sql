-- The guard: names that change roles.

-- The capitalised names of a text in their order: name, the marker of its role (a preposition before it, 's after it), the number of
-- the coordination ("Alice, Bob and Carol") it belongs to, and what the preposition belongs to ("born in"), separated by U+001F.
create or replace function memfold_internal._guard_names(p_tokens text[], p_marked text[], p_classes text[])
returns text[]
language plpgsql
immutable
parallel safe
as $function$
declare
    v_names text[] := '{}'::text[];
    v_group integer := 0;
    v_last integer := -1;
    v_back integer;
    v_joined boolean;
    v_ending constant text := '(?<=[а-я]{2})(?:ами|ой|ою|ей|ом|ем|ах|ам|ов|[аяуюеыийь])$';
    v_mark text;
    v_head text;
begin
    for v_at in 1..cardinality(p_tokens) loop
        if p_marked[v_at] <> p_tokens[v_at] and (p_classes[v_at] is null or left(p_classes[v_at], 1) in ('S', 'u', '$')) then
            v_back := v_at - 1;
            v_joined := v_back = v_last;
            while v_back > v_last and left(p_classes[v_back], 1) in ('&', 's') and p_tokens[v_back] <> '.' loop
                v_joined := v_joined or p_classes[v_back] = '&';
                v_back := v_back - 1;
            end loop;
            if v_last < 1 or v_back > v_last or not v_joined then
                v_group := v_group + 1;
                v_back := v_at - 1;
                while v_back > 0 and (left(p_classes[v_back], 1) = 's' and p_tokens[v_back] not in ('.', '''s')) loop
                    v_back := v_back - 1;
                end loop;
                v_mark := case when left(p_classes[v_back], 1) in ('p', 't') then p_tokens[v_back] else '' end;
                v_head := case when v_mark <> '' and coalesce(left(p_classes[v_back - 1], 1) in ('S', 'N'), true)
                    then p_tokens[v_back - 1] end;
            end if;
            v_names := v_names || (regexp_replace(p_tokens[v_at] collate "C", v_ending, '') || E'\x1f'
                || case when p_tokens[v_at + 1] = '''s' then '''s' else v_mark end || E'\x1f' || v_group || E'\x1f'
                || coalesce(v_head, ''));
            v_last := v_at;
        end if;
    end loop;
    return v_names;
end;
$function$;

-- The names (_guard_names) that changed roles: those that both texts have once, in another order and with different markers; or two
-- that changed places by what their marker belongs to ("born in Oslo, works in Rome" / "born in Rome, works in Oslo").
create or replace function memfold_internal._guard_role_change(a text[], b text[])
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    -- (on a page only the first names; the search is quadratic)
    v_names_a text[] := '{}'::text[];
    v_names_b text[] := '{}'::text[];
    v_moved_a text[] := '{}'::text[];
    v_moved_b text[] := '{}'::text[];
    v_kept text[] := '{}'::text[];
    v_a text collate "C";
    v_b text collate "C";
    v_name text collate "C";
    v_other integer;
begin
    foreach v_a in array a[:40] loop
        v_names_a := v_names_a || split_part(v_a, E'\x1f', 1);
    end loop;
    foreach v_b in array b[:40] loop
        v_names_b := v_names_b || split_part(v_b, E'\x1f', 1);
    end loop;
    for v_at in 1..cardinality(v_names_a) loop
        v_name := v_names_a[v_at];
        v_other := array_position(v_names_b, v_name);
        continue when v_other is null or array_position(v_names_b, v_name, v_other + 1) is not null
            or array_position(v_names_a, v_name) < v_at or array_position(v_names_a, v_name, v_at + 1) is not null;
        v_a := a[v_at];
        v_b := b[v_other];
        if split_part(v_a, E'\x1f', 2) <> split_part(v_b, E'\x1f', 2) or split_part(v_a, E'\x1f', 2) = '' then
            v_moved_a := v_moved_a || (lpad(split_part(v_a, E'\x1f', 3), 9) || v_name);
            v_moved_b := v_moved_b || (lpad(split_part(v_b, E'\x1f', 3), 9) || v_name);
        else
            -- name, marker, what it belongs to in either text
            v_kept := v_kept || (v_name || E'\x1f' || split_part(v_a, E'\x1f', 2) || E'\x1f' || split_part(v_a, E'\x1f', 4)
                || E'\x1f' || split_part(v_b, E'\x1f', 4));
        end if;
    end loop;
    if cardinality(v_moved_a) > 1 then
        v_a := array_to_string(array(select substr(x.x, 10) from unnest(v_moved_a) as x(x) order by x.x collate "C"), ', ');
        v_b := array_to_string(array(select substr(x.x, 10) from unnest(v_moved_b) as x(x) order by x.x collate "C"), ', ');
        if v_a <> v_b then
            return v_a || ' <> ' || v_b;
        end if;
    end if;
    if cardinality(v_kept) > 1 then
        foreach v_a in array v_kept loop
            continue when split_part(v_a, E'\x1f', 3) = '' or split_part(v_a, E'\x1f', 4) = ''
                or split_part(v_a, E'\x1f', 3) = split_part(v_a, E'\x1f', 4);
            foreach v_b in array v_kept loop
                if split_part(v_a, E'\x1f', 2) = split_part(v_b, E'\x1f', 2)
                    and split_part(v_a, E'\x1f', 3) = split_part(v_b, E'\x1f', 4)
                    and split_part(v_a, E'\x1f', 4) = split_part(v_b, E'\x1f', 3)
                then
                    return split_part(v_a, E'\x1f', 1) || ' <> ' || split_part(v_b, E'\x1f', 1);
                end if;
            end loop;
        end loop;
    end if;
    return null;
end;
$function$;
