-- Whether two texts that are near enough merge automatically: the guard must find no difference, and the score of their
-- words must satisfy merge_veto; with the guard off, neither is asked. Linked names count as equal. mergeable: near
-- enough; on return, whether they merge. guard: the signals, if known. veto: the reason against, if it is the score.
create or replace function memfold_internal._check_merge(
    p_tenant_id text, p_bucket_id text, p_policy memfold.policies, p_content text, p_other_content text, p_object text, p_other_object text,
    inout guard text[], inout mergeable boolean, out veto text
)
language plpgsql stable
as $$
declare
    v_texts record;
begin
    if p_policy.guard = 'off' then
        guard := '{}';
    elsif guard is null then
        guard := memfold_internal._guard_pair(p_tenant_id, p_content, p_other_content, p_object, p_other_object, p_bucket_id);
    end if;
    mergeable := mergeable and guard = '{}';
    -- with the guard off, vectors alone decide
    if mergeable and p_policy.guard = 'on' then
        veto := memfold_internal._veto(p_policy.merge_veto, p_content, p_other_content);
        if veto is not null then
            v_texts := memfold_internal._under_one_name(p_tenant_id, p_bucket_id, p_content, p_other_content);
            if v_texts.is_changed then
                veto := memfold_internal._veto(p_policy.merge_veto, v_texts.content, v_texts.other_content);
            end if;
        end if;
        mergeable := veto is null;
    end if;
end;
$$;
