-- The logins of compose.yaml, by psql -v app=PASSWORD -v judge=PASSWORD -v maintenance=PASSWORD. Can be run again.
select format('create role %I login in role %I', name, parent)
from (
    values ('agents_app', 'memfold_app'), ('agents_judge', 'memfold_judge'), ('agents_maintenance', 'memfold_owner')
) as login (name, parent)
where not exists (select from pg_roles where rolname = name) \gexec

select format('alter role %I password %L', name, password)
from (
    values ('agents_app', :'app'), ('agents_judge', :'judge'), ('agents_maintenance', :'maintenance')
) as login (name, password) \gexec
