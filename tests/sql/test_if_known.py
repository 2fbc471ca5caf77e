"""ingest_memory(..., if_known => true): ingests what tier 1 knows, and writes nothing about anything else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.support.judging import raises
from tests.support.memories import Result, check, ingest, model, vector
from tests.support.queries import DB, Connect, one

CAT = "Ann has a cat."


def waits(db: DB, pid: int) -> bool:
    return bool(one(db, "select exists (select from pg_locks where pid = %s and not granted)", pid))


def is_empty(result: Result) -> bool:
    return all(value is None for value in vars(result).values())


def if_known(db: DB, content: str, **given: Any) -> Result:
    return ingest(db, content, if_known=True, **given)


def known(db: DB, content: str, **given: Any) -> bool:
    names = ", ".join(f"{name} => %s" for name in given)
    return bool(
        one(
            db,
            f"select exists (select from memfold.known_memory(%s, 'acme'{', ' if names else ''}{names}))",
            content,
            *given.values(),
        )
    )


def active(db: DB) -> None:
    ingest(db, CAT)


def alias(db: DB) -> None:
    model(db)
    ingest(db, "Really, Ann has a cat.", **vector(1.0))
    assert ingest(db, CAT, **vector(0.99)).action == "merged"


def rejected(db: DB) -> None:
    db.execute("select memfold.reject_memory(%s, 'acme')", [ingest(db, CAT).memory_id])


def withdrawn(db: DB) -> None:
    ingest(db, CAT)
    db.execute(
        "select from memfold.undo_actor(session_user, now() - interval '1 hour', 'acme', dry_run => false)"
    )
    assert one(db, "select status from memfold.memories") == "withdrawn"


def former(db: DB) -> None:
    db.execute("select memfold.set_predicate('has', 'acme')")
    for content, value in ((CAT, "a cat"), ("Ann has a dog.", "a dog")):
        ingest(db, content, subject="Ann", predicate="has", object=value)


def own_rules(db: DB) -> None:
    db.execute("select memfold.set_policy('acme', 'default', key_fields => '{subject}')")
    ingest(db, CAT)


def linked(db: DB) -> None:
    db.execute("select memfold.link_subject('Annie', 'Ann', 'acme')")
    ingest(db, CAT, subject="Ann")


STATES: dict[Callable[[DB], None], dict[str, Any]] = {
    active: {}, alias: {}, rejected: {}, withdrawn: {},
    former: {"subject": "Ann", "predicate": "has", "object": "a cat"},
    own_rules: {"memory_type": "event"}, linked: {"subject": "Annie"},
}  # fmt: skip


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_a_known_text_is_ingested_as_ever(db: DB, state: Callable[[DB], None]) -> None:
    state(db)
    given = STATES[state]
    with db.transaction(force_rollback=True):
        expected = ingest(db, CAT, **given)
    said = if_known(db, CAT, **given)
    assert known(db, CAT, **{name: given[name] for name in given if name != "object"})
    assert (said.action, said.memory_id, said.tier, said.method, said.superseded_id) == (
        expected.action, expected.memory_id, expected.tier, expected.method, expected.superseded_id,
    )  # fmt: skip
    assert said.action is not None
    check(db)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("key", [None, "k"])
def test_an_unknown_text_writes_nothing(db: DB, state: Callable[[DB], None], key: str | None) -> None:
    state(db)
    with db.transaction():
        assert is_empty(if_known(db, "Ben has a horse.", idempotency_key=key, **STATES[state]))
        assert one(db, "select pg_current_xact_id_if_assigned()") is None
    assert not known(db, "Ben has a horse.")


def test_the_key_is_of_the_call_that_is_answered(db: DB) -> None:
    assert is_empty(if_known(db, CAT, idempotency_key="k"))
    first = ingest(db, CAT, idempotency_key="k")
    assert first.action == "inserted"
    assert if_known(db, CAT, idempotency_key="k") == first
    again = if_known(db, CAT, idempotency_key="l")
    assert again.action == "merged"
    assert if_known(db, CAT, idempotency_key="l") == again
    assert ingest(db, CAT, idempotency_key="l") == again
    assert one(db, "select observations from memfold.memory_totals") == 2
    raises("MF062", if_known, db, "Ann has a dog.", idempotency_key="l")


@pytest.mark.parametrize("other", ["its like", "a plain call"])
def test_a_key_in_two_calls_at_once_counts_once(db: DB, connect: Connect, other: str) -> None:
    ingest(db, "Another text.")
    ingest(db, CAT)
    first = connect()
    failed: list[str | None] = []
    with first.transaction():
        ingest(first, "Another text.", idempotency_key="k", if_known=other == "its like")

        def second() -> None:
            try:
                if_known(connect(), CAT, idempotency_key="k")
            except psycopg.Error as error:
                failed.append(error.sqlstate)

        thread = threading.Thread(target=second)
        thread.start()
        end = time.monotonic() + 60
        while not one(
            db, "select exists (select from pg_locks where locktype = 'transactionid' and not granted)"
        ):
            assert time.monotonic() < end
            time.sleep(0.01)
    thread.join(60)
    assert failed == ["40001"]
    assert one(db, "select count(*) from memfold.idempotency_keys") == 1
    assert one(db, "select max(observations) from memfold.memory_totals") == 2
    check(db)


def test_bad_input_is_refused_as_ever(db: DB) -> None:
    raises("MF004", if_known, db, "")
    raises("MF003", if_known, db, CAT, bucket_id="")
    raises("MF003", if_known, db, CAT, idempotency_key="")


def test_null_is_the_default(db: DB) -> None:
    assert ingest(db, CAT, if_known=None, idempotency_key="k").action == "inserted"
