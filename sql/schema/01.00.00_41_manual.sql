create type memfold.undone_memory as (
    event_id uuid,
    memory_id uuid,
    status text,
    content text,
    run_id uuid
);
comment on type memfold.undone_memory is
'A memory after an undo, and the ledger row that the undo wrote. run_id: the run of undo_run() or undo_actor(), which undo_run() undoes;
null: from undo(), or a preview.';

create type memfold.forgotten_memory as (
    run_id uuid,
    memory_id uuid,
    action text,
    subject text,
    predicate text,
    content text,
    similarity double precision
);
comment on type memfold.forgotten_memory is
'A memory that forget_memories() removes (action rejected or erased), or that became current as a result (current again). run_id: for
undo_run(); null: a preview, or erased. similarity: the best cosine of its texts to the query; null: there is none.';
