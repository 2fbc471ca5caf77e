-- Vectors: arithmetic, embedding models and the checks of embeddings, the stored texts nearest to a vector, the approximate index, and
-- vectors that the database computes with memfold_py. Ingest, batches, decisions and recall call it. It reads memory_vectors, memories and
-- embedding_models, and writes only the last; no function takes a lock except create_vector_index(), on memory_vectors. pgvector may live
-- in any schema: the small functions below bind its operators when they are created.
--
-- What must stay true: only vectors of one model are compared, and stored vectors have norm 1. Up to 10,000 vectors are
-- compared one by one, because an approximate index misses duplicates. Every text whose memory is not withdrawn is a
-- neighbour (is_live), so decisions also find what was superseded or rejected.

-- Cosine of two unit vectors, in [-1, 1], rounded to 6 decimals so that single-precision noise decides nothing.
create or replace function memfold_internal._similarity(a vector, b vector) returns double precision
language sql immutable strict parallel safe
return pg_catalog.round(-1e6 * (a <#> b)) / 1e6;

-- The vector divided by its Euclidean norm.
create or replace function memfold_internal._unit(a vector) returns vector
language sql immutable strict parallel safe
return l2_normalize(a);

-- The Euclidean norm of a vector.
create or replace function memfold_internal._norm(a vector) returns double precision
language sql immutable strict parallel safe
return vector_norm(a);

-- The number of dimensions of a vector.
create or replace function memfold_internal._dimensions(a vector) returns integer
language sql immutable strict parallel safe
return vector_dims(a);
