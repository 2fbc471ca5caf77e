create or replace function memfold_internal._check_merge(
    tenant_id text, bucket_id text, policy memfold.policies, content text, other_content text, object text, other_object text,
    inout guard text[], inout mergeable boolean, out veto text
)
language plpgsql stable
as $$
declare
    v_texts record;
begin
    if policy.guard = 'off' then
        guard := '{}';
    elsif guard is null then
        guard := memfold_internal._guard_pair(tenant_id, content, other_content, object, other_object, bucket_id);
    end if;
    mergeable := mergeable and guard = '{}';
    -- with the guard off, vectors alone decide
    if mergeable and policy.guard = 'on' then
        veto := memfold_internal._veto(policy.merge_veto, content, other_content);
        if veto is not null then
            v_texts := memfold_internal._under_one_name(tenant_id, bucket_id, content, other_content);
            if v_texts.is_changed then
                veto := memfold_internal._veto(policy.merge_veto, v_texts.content, v_texts.other_content);
            end if;
        end if;
        mergeable := veto is null;
    end if;
end;
$$;
comment on function memfold_internal._check_merge is
'Whether two texts that are near enough merge automatically: they need a clean guard, and a score of their words that the policy''s
merge_veto accepts; if the policy has the guard off, neither. Both treat names that the bucket has linked as equal. mergeable: whether
they are near enough; on return, whether they merge. guard: the guard''s signals, if known. veto: the reason against, if it is the score,
which is computed only for texts that would otherwise merge.';
