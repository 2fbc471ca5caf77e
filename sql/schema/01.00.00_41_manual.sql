create type memfold.undone_memory as (
    event_id uuid,
    memory_id uuid,
    status text,
    content text
);
comment on type memfold.undone_memory is 'A memory after an undo, and the ledger row that the undo wrote.';
