-- Cosine of two unit vectors, in [-1, 1], rounded to 6 decimals: single-precision noise must not decide at a threshold.
create or replace function memfold_internal._similarity(a vector, b vector) returns double precision
language sql immutable strict parallel safe
return pg_catalog.round(-1e6 * (a <#> b)) / 1e6;

-- The vector divided by its Euclidean norm.
create or replace function memfold_internal._unit(a vector) returns vector
language sql immutable strict parallel safe
return l2_normalize(a);

-- Euclidean norm.
create or replace function memfold_internal._norm(a vector) returns double precision
language sql immutable strict parallel safe
return vector_norm(a);

-- Number of dimensions.
create or replace function memfold_internal._dimensions(a vector) returns integer
language sql immutable strict parallel safe
return vector_dims(a);
