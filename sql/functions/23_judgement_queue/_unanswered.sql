-- The warning if questions have waited for a judge for more than a day and none was answered since the oldest was asked; else null.
-- For dedup_stats, memfold status and memfold doctor, which count what the caller can see.
create or replace function memfold_internal._unanswered(p_waiting bigint, p_oldest timestamptz, p_last_answer timestamptz) returns text
language plpgsql stable parallel safe set search_path = pg_catalog, pg_temp
as $$
declare
    v_days constant bigint := floor(extract(epoch from now() - p_oldest) / 86400);
begin
    return case when v_days >= 1 and coalesce(p_last_answer < p_oldest, true) then
        case p_waiting when 1 then '1 question has waited' else p_waiting || ' questions wait, the oldest' end
        || ' for ' || v_days || case v_days when 1 then ' day' else ' days' end
        || ', and none was answered in that time: run memfold judge --model NAME, memfold judge --local, or memfold review --all'
    end;
end;
$$;
