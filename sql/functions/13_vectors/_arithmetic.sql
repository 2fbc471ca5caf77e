create or replace function memfold_internal._similarity(a vector, b vector) returns double precision
language sql immutable strict parallel safe
return pg_catalog.round(-1e6 * (a <#> b)) / 1e6;
comment on function memfold_internal._similarity is
'Cosine of two unit vectors, in [-1, 1], rounded to 6 decimals: single-precision noise must not decide at a threshold.';

create or replace function memfold_internal._unit(a vector) returns vector
language sql immutable strict parallel safe
return l2_normalize(a);
comment on function memfold_internal._unit is 'The vector divided by its Euclidean norm.';

create or replace function memfold_internal._norm(a vector) returns double precision
language sql immutable strict parallel safe
return vector_norm(a);
comment on function memfold_internal._norm is 'Euclidean norm.';

create or replace function memfold_internal._dimensions(a vector) returns integer
language sql immutable strict parallel safe
return vector_dims(a);
comment on function memfold_internal._dimensions is 'Number of dimensions.';
