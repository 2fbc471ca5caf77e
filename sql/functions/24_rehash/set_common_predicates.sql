-- The starter list: predicates that models use for facts about people, with the number of values at a time.
create or replace function memfold_internal._common_predicates(out predicate text, out cardinality text) returns setof record
language sql immutable parallel safe rows 150
-- not a parsed body, whose lines a dump would break differently
as $$
    select regexp_split_to_table('lives_in home_address current_location hometown country city postal_code birthday
        date_of_birth birthplace age gender pronouns full_name first_name last_name preferred_name maiden_name marital_status
        spouse partner married_to email email_address phone phone_number emergency_contact works_at works_for employer
        job_title occupation profession manager reports_to team department salary start_date work_hours work_location
        studies_at school university major preferred_language native_language timezone diet blood_type height weight shoe_size
        clothing_size eye_color current_project current_goal deadline due_date budget project_status doctor dentist bank
        drives favorite_color favorite_food favorite_movie favorite_book favorite_band favorite_team editor operating_system
        phone_model address residence home_city boss company role works_as car relationship relationship_status
        favourite_color favourite_colour favourite_food favourite_movie favourite_book favourite_band favourite_team gym
        subscription_plan standup_time wakes_up_at bedtime wohnt_in arbeitet_bei beruf geburtstag familienstand telefonnummer
        adresse habite_à travaille_chez profession_actuelle date_de_naissance adresse_actuelle vive_en trabaja_en profesión
        cumpleaños estado_civil abita_a lavora_presso professione compleanno mora_em trabalha_em profissão aniversário 居住地
        工作单位 职业 生日 电话', E'\\s+'), 'one'
    union all
    select regexp_split_to_table('likes fond_of has possesses dislikes loves hates prefers enjoys interested_in hobby
        owns has_pet has_child has_sibling has_friend has_parent friend_of knows met speaks allergic_to takes_medication
        has_condition diagnosed_with visited traveled_to plans_to_visit plays plays_instrument uses uses_tool reads watched
        listens_to skilled_in works_on member_of attended attends bought wants needs plans plans_to goal eats drinks cooks
        collects nationality studied learned learning believes experienced mag aime le_gusta piace gosta_de 喜欢', E'\\s+'), 'many';
$$;

create or replace function memfold.set_common_predicates(tenant_id text default current_setting('memfold.tenant_id', true)) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_added text[];
begin
    perform memfold_internal._authorize_tenant(set_common_predicates.tenant_id);
    perform memfold_internal._lock_rules(set_common_predicates.tenant_id);
    with added as (
        insert into memfold.predicates as p (tenant_id, predicate, cardinality)
        select set_common_predicates.tenant_id, memfold_internal._predicate_1(c.predicate), c.cardinality
        from memfold_internal._common_predicates() as c
        on conflict do nothing
        returning p.predicate
    )
    select array_agg(a.predicate) into v_added from added as a;
    if v_added is not null then
        perform memfold_internal._take_up_rule(set_common_predicates.tenant_id, '*', jsonb_build_object('predicates', v_added,
            'for_all', nullif(set_common_predicates.tenant_id = '*', false)));
        perform memfold_internal._close_cardinality(set_common_predicates.tenant_id, v_added);
    end if;
    return coalesce(cardinality(v_added), 0);
end;
$$;
grant execute on function memfold.set_common_predicates to memfold_app;
comment on function memfold.set_common_predicates is
'Sets how many values some 190 common predicates have at a time (lives_in, works_at, birthday: one; likes, owns, speaks: many), except
those that the tenant has a rule for; returns how many it has set. Stored memories are taken up as by set_predicate(), in one run (runs,
kind predicate), which undo_run() undoes as a whole. tenant_id ''*'', for the owner of the database: for all tenants. Names for the same
relation (works_at, employer) are not linked: see link_predicate(). Raises MF001 to MF003, MF025, 55P03.';
