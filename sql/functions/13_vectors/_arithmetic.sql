create or replace function memfold_internal._similarity(a vector, b vector) returns double precision
language sql immutable strict parallel safe
return pg_catalog.round(-1e6 * (a <#> b)) / 1e6;
revoke all on function memfold_internal._similarity(vector, vector) from public;
comment on function memfold_internal._similarity(vector, vector) is
'Cosine of two unit vectors, in [-1, 1], rounded to 6 decimals: single-precision noise must not decide at a threshold.';

create or replace function memfold_internal._unit(a vector) returns vector
language sql immutable strict parallel safe
return l2_normalize(a);
revoke all on function memfold_internal._unit(vector) from public;
comment on function memfold_internal._unit(vector) is 'The vector divided by its Euclidean norm.';

create or replace function memfold_internal._norm(a vector) returns double precision
language sql immutable strict parallel safe
return vector_norm(a);
revoke all on function memfold_internal._norm(vector) from public;
comment on function memfold_internal._norm(vector) is 'Euclidean norm.';

create or replace function memfold_internal._dimensions(a vector) returns integer
language sql immutable strict parallel safe
return vector_dims(a);
revoke all on function memfold_internal._dimensions(vector) from public;
comment on function memfold_internal._dimensions(vector) is 'Number of dimensions.';
