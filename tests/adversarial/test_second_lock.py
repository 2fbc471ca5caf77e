"""A call that finds a lock taken goes on, fails at once, or waits; but not with what others may wait for.

Each public function that may take a key, by the catalog, is called while another session holds, one after the other, each
key and each row that it could want. docs/decisions/0004-advisory-locks.md has the rules: keys before rows, each in one
order. A call that waits for a key must not have written or locked a row; one that waits for a row holds only earlier ones.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from tests.support.concurrent_calls import PATIENCE, Call
from tests.support.locking import held_keys, keys, locked, takes_keys, texts, world
from tests.support.memories import check
from tests.support.queries import DB, Connect

ONES = "'[1,0,0,0]'"
NEW = """'[{"content": "Ann likes milk", "subject": "Ann", "bucket_id": "b"}, {"content": "Bob has a dog", "subject": "Bob",
 "bucket_id": "a"}, {"content": "Bob has a cow", "subject": "Bob", "bucket_id": "a"}, {"content": "Ann likes tea",
 "subject": "Ann", "bucket_id": "b"}, {"content": "Ann owns a pan", "subject": "Ann", "bucket_id": "a"}]'"""
VALUE = "subject => 'Ann', predicate => 'lives_in', object =>"
PLAIN = "insert into memories (tenant_id, bucket_id, content) values ('acme', 'b', %(new)s), ('acme', 'a', %(new)s)"
# The arguments of calls, by function.
CALLS: dict[str, list[str]] = {
    "add_embeddings": [
        f"array[%(tea_b)s]::uuid[], array['Ann likes tea'], array[{ONES}]::vector[], 'm2', 'acme', wait => true",
    ],
    "approve_run": ["%(asked)s, 'acme'"],
    "attach_embedding": [f"%(unseen_a)s, {ONES}, 'm', 'acme'"],
    "clean_exact_duplicates": ["'acme', 'e', dry_run => false"],
    "consolidate": ["'acme', 'a', threshold => 0.2, dry_run => false"],
    "end_session": ["'s', 'acme', 'c'"],
    "erase_bucket": ["'acme', 'a'"],
    "erase_memory": ["%(pan_a)s, 'acme'", "%(rome_a)s, 'acme'", "%(cat_a)s, 'acme'"],
    "erase_source": ["'t1', 'acme'"],
    "erase_tenant": ["'acme'"],
    "fail_judgement": ["%(synthesis)s, 'it broke', 'acme'"],
    "forget_memories": [
        "'acme', 'a', 'Ann', dry_run => false",
        "'acme', 'a', 'Ann', erase => true, dry_run => false",
    ],
    "import_bucket": [
        "(select jsonb_agg(e) from memfold.export_bucket('acme', 'b') as e), 'globex', 'b', rules => true"
    ],
    "ingest_memories": [f"{NEW}, 'acme'", f"{NEW}, 'acme', on_error => 'abort'"],
    "ingest_memory": [
        "'Ann likes milk', 'acme', 'a', subject => 'Ann'",
        f"'Ann enjoys tea', 'acme', 'a', subject => 'Ann', embedding => {ONES}, embedding_model => 'm'",
        f"'Ann lives in Oslo', 'acme', 'a', {VALUE} 'Oslo'",
        f"'Ann lives in Bonn', 'acme', 'a', {VALUE} 'Bonn'",
        "'Ann owns a pan', 'acme', 'a', subject => 'Ann', metadata => '{\"a\": 1}', valid_until => '2030-01-01'",
    ],
    "ingest_plain_rows": ["'acme'"],
    "link_predicate": ["'is_in', 'lives_in', 'acme', 'a'", "'is_in', 'lives_in', 'acme', '*'"],
    "link_subject": ["'Bob', 'Ann', 'acme', 'a'", "'Bob', 'Ann', 'acme', '*'"],
    "merge_memories": ["%(bob_a)s, %(green_a)s, 'acme'", "%(tea_a)s, %(green_a)s, 'acme'"],
    "prune_memories": ["'acme', 'a', max_confidence => 1, unused_for => '0 s', dry_run => false"],
    "rehash_bucket": ["'acme', 'a', 'flat'"],
    "reject_memory": ["%(rome_a)s, 'acme'"],
    "replay_bucket": ["'acme', 'a'"],
    "resolve_judgement": ["%(judgement_a)s, 'duplicate', 'acme'", "%(judgement_a)s, 'contradiction', 'acme'"],
    "run_maintenance": ["'acme'"],
    "run_maintenance_all": [""],
    "set_common_predicates": ["'acme'"],
    "set_options": ["'acme', 'a', min_confidence => 0.2", "'acme', '*', min_confidence => 0.2"],
    "set_policy": ["'acme', 'a', merge_threshold => 0.99", "'acme', '*', scope => 'bucket'"],
    "set_predicate": ["'lives_in', 'acme', 'many'"],
    "supersede_memory": ["%(tea_a)s, %(bob_a)s, 'acme'"],
    "sweep_duplicates": ["'acme', 'f', dry_run => false"],
    "take_up_links": ["'acme'"],
    "undo": ["%(merged)s, 'acme'"],
    "undo_actor": ["session_user::text, '-infinity', 'acme', dry_run => false"],
    "undo_run": ["%(link)s, 'acme'"],
    "unlink_predicate": ["'resides', 'acme', '*'"],
    "unlink_subject": ["'Annie', 'acme', '*'"],
    "update_memory": ["%(pan_a)s, 'Ann owns two pans', 'acme'"],
}
# What a call needs in order to do something.
PREPARED = {
    "ingest_plain_rows": PLAIN,
    "run_maintenance": PLAIN,
    "run_maintenance_all": PLAIN,
    "take_up_links": "select ingest_memory('sings', 'acme', b, subject => %(new)s) from unnest('{a,b}'::text[]) as b;"
    " select link_subject(%(new)s, 'Ann', 'acme', '*')",
    "fail_judgement": "update judgements set attempts = 8, status = 'leased', leased_until = 'infinity', worker = 'w'"
    " where judgement_id = %(synthesis)s",
}
PROCEDURES = {"rehash_bucket", "run_maintenance_all", "take_up_links"}
# What cannot be called here.
OTHERS = {"embed_pending": "needs memfold_py: tests/environments/test_plpython.py"}


@pytest.mark.each_server
def test_every_function_that_takes_keys_is_called(db: DB) -> None:
    assert takes_keys(db) == CALLS.keys() | OTHERS.keys(), "a row for each, in CALLS"


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        pytest.param(function, arguments, id=f"{function}{n or ''}")
        for function, calls in CALLS.items()
        for n, arguments in enumerate(calls)
    ],
)
def test_a_call_meets_a_held_lock(db: DB, connect: Connect, function: str, arguments: str) -> None:
    ids = world(db)
    holder, caller = connect(), connect()
    known = {key.key: key for key in keys(db)}
    order = texts(db)
    wrong: set[str] = set()

    def beside(lock: str) -> Iterator[Call]:
        """The call while it waits for the holder, or nothing if it does not wait."""
        made = ids | {"new": str(uuid.uuid4())}
        cursor = psycopg.ClientCursor(db)
        if function in PREPARED:
            db.execute(cursor.mogrify(PREPARED[function], made).encode())
        holder.execute("begin")
        holder.execute(lock.encode())
        if function not in PROCEDURES:
            caller.execute("begin")
        verb = "call" if function in PROCEDURES else "select count(*) from"
        statement = cursor.mogrify(f"{verb} memfold.{function}({arguments})", made).encode()
        call = Call(db, caller, lambda c: c.execute(statement))
        if waits(call, holder):
            yield call
        holder.execute("rollback")
        try:
            call.end()
        except psycopg.Error as error:
            if error.sqlstate not in ("40001", "55P03"):
                wrong.add(f"{error.sqlstate} {error}")
        if caller.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            caller.execute("rollback")

    waited = 0
    for key in known.values():
        for _ in beside(key.lock):
            waited += 1
            if rows := locked(db):
                wrong.add(f"waits for {key.name}, has locked {rows}")
            for other in held_keys(db, caller):
                if other in known and (known[other].place, other) >= (key.place, key.key):
                    wrong.add(f"waits for {key.name}, holds {known[other].name}")
    assert waited, "it takes no key"
    assert wrong == set()
    for place, memory_id in enumerate(order):
        for _ in beside(
            f"select from memfold.memory_counters where memory_id = '{memory_id}' for no key update"
        ):
            later = [
                n for n, other in enumerate(order) if n > place and other in locked(db)["memory_counters"]
            ]
            if later:
                wrong.add(f"waits for text {place}, has locked {later}")
    assert wrong == set()
    check(db)


def waits(call: Call, holder: DB) -> bool:
    """Whether the call waits for that session; false: it has ended."""
    deadline = time.monotonic() + PATIENCE
    while call.is_alive():
        if holder.info.backend_pid in call.blockers():
            return True
        assert time.monotonic() < deadline, f"it waits for {call.blockers()}"
        time.sleep(0.002)
    return False
