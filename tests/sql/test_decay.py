"""Effective confidence: computed from the last use; apply_decay, for those who want it stored."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.conftest import Connect
from tests.support.memories import check, counters, ingest, model, vector
from tests.support.queries import DB

START = datetime(2025, 1, 1, tzinfo=UTC)


@pytest.fixture
def decaying(db: DB) -> DB:
    """Confidence is the source's, and falls by a hundredth a day."""
    model(db)
    db.execute("select memfold.set_policy('acme', weights => '{1,0,0}')")
    set_options(db, decay_rate=0.01)
    return db


def set_options(db: DB, **values: Any) -> None:
    named = ", ".join(f"{name} => %s" for name in values)
    db.execute(f"select memfold.set_options('acme', {named})", [*values.values()])


def remember(db: DB, content: str = "User likes tea", days: float = 0, **fields: Any) -> UUID:
    fields = {"source_confidence": 0.9, "observed_at": START - timedelta(days=days), **fields}
    result = ingest(db, content, **fields)
    assert result.memory_id is not None
    return result.memory_id


def effective(db: DB, memory_id: UUID, days: float, start: datetime = START) -> Any:
    row = db.execute(
        "select memfold.effective_confidence(%s, 'acme', %s)", [memory_id, start + timedelta(days=days)]
    ).fetchone()
    assert row is not None
    return row[0]


def apply(db: DB, days: float, **options: Any) -> tuple[int, int]:
    """apply_decay this many days after START; returns decayed and remaining."""
    named = "".join(f", {name} => %s" for name in options)
    row = db.execute(
        f"select decayed, remaining from memfold.apply_decay('acme', as_of => %s{named})",
        [START + timedelta(days=days), *options.values()],
    ).fetchone()
    assert row is not None
    return row


def stored(db: DB) -> list[Any]:
    return db.execute(
        "select memory_id, decayed_confidence, decayed_at from memfold.memory_counters order by 1"
    ).fetchall()


# The table of the fifth source: 0.90 at 0.01 a day. Its 0.664 and 0.365 at 30 and 90 days are its own formula's
# 0.666 and 0.364, its 0.148 at 180 is 0.147; and at 365 days its floor of 0.05 comes before its 0.024.
TABLE = {0: 0.900, 7: 0.839, 30: 0.666, 90: 0.364, 180: 0.147, 365: 0.05}


def test_the_documented_values(decaying: DB) -> None:
    memory = remember(decaying)
    assert {days: round(effective(decaying, memory, days), 3) for days in TABLE} == TABLE
    for days in TABLE:
        assert effective(decaying, memory, days) == pytest.approx(max(0.9 * 0.99**days, 0.05), abs=1e-12)


def test_a_decayed_memory_is_no_longer_shown(decaying: DB) -> None:
    """109.3 days and not, as the source has it, 93 without use: 0.9 * 0.99 ^ d = 0.3."""
    memory = remember(decaying)
    assert effective(decaying, memory, 93) > 0.35
    assert effective(decaying, memory, 109.3) > 0.3 > effective(decaying, memory, 109.4)
    now = datetime.now(UTC)
    for days in (109, 110):
        ingest(
            decaying, f"User was here {days} days ago", observed_at=now - timedelta(days=days),
            source_confidence=0.9, **vector(1.0),
        )  # fmt: skip
    found = decaying.execute(
        "select content from memfold.search_memories(%s, 'm', 'acme', 'default', min_confidence => 0.3)",
        [json.dumps([1, 0, 0, 0])],
    ).fetchall()
    assert found == [("User was here 109 days ago",)]


def test_it_begins_after_the_interval_and_counts_from_the_last_use(decaying: DB) -> None:
    memory = remember(decaying)
    assert effective(decaying, memory, -5) == 0.9
    assert effective(decaying, memory, 1) == 0.9
    assert effective(decaying, memory, 1.01) == pytest.approx(0.9 * 0.99**1.01)
    set_options(decaying, decay_interval="30 days")
    assert effective(decaying, memory, 30) == 0.9
    assert effective(decaying, memory, 31) == pytest.approx(0.9 * 0.99**31)
    set_options(decaying, decay_interval="0")
    assert effective(decaying, memory, 0.5) == pytest.approx(0.9 * 0.99**0.5)


def test_the_floor_ends_decay_and_raises_nothing(decaying: DB) -> None:
    high = remember(decaying)
    low = remember(decaying, "User likes rum", source_confidence=0.04)
    assert effective(decaying, high, 100_000) == 0.05
    assert effective(decaying, low, 100_000) == 0.04
    set_options(decaying, decay_floor=0)
    assert 0 <= effective(decaying, high, 100_000) < 1e-9
    assert 0 <= effective(decaying, low, 2_900_000) < 1e-9


def test_extreme_times(decaying: DB) -> None:
    memory = remember(decaying, source_confidence=1e-320)
    set_options(decaying, decay_rate=0.999999, decay_floor=0)
    for at in ("infinity", "-infinity", "4713-01-01 BC", "294276-01-01"):
        row = decaying.execute("select memfold.effective_confidence(%s, 'acme', %s)", [memory, at]).fetchone()
        assert row is not None
        assert 0 <= row[0] <= 1e-320


def test_without_a_rate_it_is_the_confidence(db: DB) -> None:
    memory = remember(db)
    assert effective(db, memory, 10_000) == pytest.approx(0.5 * 0.9 + 0.3 * 0.5)


def test_protected_types(decaying: DB) -> None:
    set_options(decaying, protected_types=["constraint"])
    kept = remember(decaying, "Never above 15 N", memory_type="constraint")
    other = remember(decaying)
    assert effective(decaying, kept, 1000) == 0.9
    assert effective(decaying, other, 1000) == 0.05
    assert apply(decaying, 1000) == (1, 0)


def test_options_of_a_type(decaying: DB) -> None:
    decaying.execute("select memfold.set_options('acme', 'default', 'rumour', decay_rate => 0.5)")
    rumour = remember(decaying, memory_type="rumour")
    assert effective(decaying, rumour, 2) == pytest.approx(0.9 / 4)


def test_use_restarts_it(decaying: DB) -> None:
    """A memory that is stated again, or shown."""
    memory = remember(decaying, days=100, **vector(1.0))
    assert effective(decaying, memory, 0) == pytest.approx(0.9 * 0.99**100)
    remember(decaying, days=10)
    assert effective(decaying, memory, 0) == pytest.approx(0.9 * 0.99**10)
    decaying.execute(
        "select memfold.search_memories('[1,0,0,0]', 'm', 'acme', 'default', touch => true)"
    ).fetchall()
    row = decaying.execute(
        "select effective_confidence, confidence, last_accessed = greatest(last_accessed, last_seen)"
        " from memfold.memory_audit"
    ).fetchone()
    assert row == (0.9, 0.9, True)


def test_an_alias_has_its_memory_s(decaying: DB) -> None:
    root = remember(decaying)
    alias = remember(decaying, "User is fond of tea", days=50)
    decaying.execute("select memfold.merge_memories(%s, %s, tenant_id => 'acme')", [alias, root])
    assert effective(decaying, alias, 7) == effective(decaying, root, 7) == pytest.approx(0.9 * 0.99**7)
    with pytest.raises(psycopg.Error) as error:
        decaying.execute("select memfold.effective_confidence(gen_random_uuid(), tenant_id => 'acme')")
    assert error.value.sqlstate == "MF018"


def test_memory_audit_shows_it(decaying: DB) -> None:
    now = datetime.now(UTC)
    memory = remember(decaying, observed_at=now - timedelta(days=30))
    row = decaying.execute(
        "select confidence, effective_confidence, decayed_confidence, decayed_at from memfold.memory_audit"
    ).fetchone()
    assert row is not None
    assert row[0] == 0.9
    assert row[1] == pytest.approx(effective(decaying, memory, 0, datetime.now(UTC)), abs=1e-4)
    assert row[2:] == (None, None)


# Stored ---------------------------------------------------------------------------------------------------------


def test_any_number_of_runs_equals_one(decaying: DB) -> None:
    memories = [remember(decaying, f"Fact {n}", days=n) for n in range(6)]
    for day in range(1, 31):
        apply(decaying, day)
    many = stored(decaying)
    decaying.execute("update memfold.memory_counters set decayed_confidence = null, decayed_at = null")
    assert apply(decaying, 30) == (6, 0)
    assert stored(decaying) == many
    assert [row[1] for row in many] == [effective(decaying, memory, 30) for memory in memories]
    assert {row[2] for row in many} == {START + timedelta(days=30)}
    before = decaying.execute("select array_agg(xmin::text order by memory_id) from memfold.memory_counters")
    versions = before.fetchone()
    assert apply(decaying, 30) == (0, 0)
    assert apply(decaying, 30, bucket_id="default") == (0, 0)
    after = decaying.execute("select array_agg(xmin::text order by memory_id) from memfold.memory_counters")
    assert after.fetchone() == versions
    check(decaying)


def test_what_is_young_is_not_touched(decaying: DB) -> None:
    remember(decaying)
    remember(decaying, "User likes rum", days=10)
    assert apply(decaying, 0.5) == (1, 0)
    assert [row[1] is None for row in stored(decaying)] == [True, False]


def test_memories_used_again_stop_decaying(decaying: DB) -> None:
    memory = remember(decaying, days=10)
    apply(decaying, 0)
    assert counters(decaying, memory)["decayed_confidence"] == pytest.approx(0.9 * 0.99**10)
    remember(decaying, days=0)
    assert apply(decaying, 0.1) == (1, 0)
    assert stored(decaying) == [(memory, None, None)]


def test_each_call_is_limited_and_all_are_reached(decaying: DB) -> None:
    for n in range(7):
        remember(decaying, f"Fact {n}")
    assert [apply(decaying, 5, max_operations=3) for _ in range(4)] == [(3, 4), (3, 1), (1, 0), (0, 0)]
    # if time passes between calls, those that have waited longest come first
    for n in range(3):
        assert apply(decaying, 6 + n, max_operations=3) == (3, 4)
    assert [row[2] for row in stored(decaying)].count(START + timedelta(days=5)) == 0


def test_of_one_bucket_or_all(decaying: DB) -> None:
    remember(decaying)
    remember(decaying, bucket_id="other")
    remember(decaying, tenant_id="globex")
    decaying.execute("select memfold.set_options('globex', decay_rate => 0.01)")
    assert apply(decaying, 5, bucket_id="other") == (1, 0)
    assert apply(decaying, 5) == (1, 0)
    assert [row[1] is None for row in stored(decaying)] == [False, False, True]


def test_only_what_is_active_decays(decaying: DB) -> None:
    gone = remember(decaying)
    root = remember(decaying, "User likes rum")
    alias = remember(decaying, "User is fond of rum")
    decaying.execute("select memfold.reject_memory(%s, tenant_id => 'acme')", [gone])
    decaying.execute("select memfold.merge_memories(%s, %s, tenant_id => 'acme')", [alias, root])
    assert apply(decaying, 5) == (1, 0)
    assert counters(decaying, root)["decayed_confidence"] is not None


def test_decay_is_recorded_as_a_run(decaying: DB) -> None:
    remember(decaying)
    row = decaying.execute(
        "select (memfold.apply_decay('acme', 'default', %s)).run_id", [START + timedelta(days=5)]
    ).fetchone()
    run = decaying.execute(
        "select run_id, bucket_id, kind, status, (arguments->>'as_of')::timestamptz, report, ended_at >= started_at"
        " from memfold.runs"
    ).fetchall()
    assert row is not None
    assert run == [
        (
            row[0], "default", "decay", "done", START + timedelta(days=5), {"decayed": 1, "remaining": 0}, True,
        )
    ]  # fmt: skip


def test_use_while_it_runs_is_not_overwritten(decaying: DB, connect: Connect) -> None:
    """Computed again from the current values once the rows are locked."""
    memory = remember(decaying)
    mine, other = connect(), connect()
    with mine.transaction():
        mine.execute(
            "update memfold.memory_counters set last_accessed = %s where memory_id = %s",
            [START + timedelta(days=4), memory],
        )
        pid = other.info.backend_pid
        pgconn = other.pgconn
        pgconn.send_query(
            f"select memfold.apply_decay('acme', as_of => '{START + timedelta(days=5)}')".encode()
        )
        for _ in range(400):
            waits = decaying.execute(
                "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s", [pid]
            ).fetchone()
            if waits == (True,):
                break
            decaying.execute("select pg_sleep(0.02)")
        assert waits == (True,)
    while (result := pgconn.get_result()) is not None:
        assert result.error_message == b""
    assert stored(decaying) == [(memory, None, None)]


def test_bad_arguments(db: DB) -> None:
    for call, code in {
        "apply_decay('acme', max_operations => 0)": "MF022",
        "apply_decay('acme', max_operations => null)": "MF022",
        "apply_decay('acme', as_of => null)": "MF022",
        "apply_decay('acme', as_of => 'infinity')": "MF022",
        "apply_decay('acme', '')": "MF003",
        "apply_decay('')": "MF001",
    }.items():
        with pytest.raises(psycopg.Error) as error:
            db.execute(f"select memfold.{call}")
        assert error.value.sqlstate == code, call


def test_tenants(decaying: DB, app: Connect) -> None:
    memory = remember(decaying)
    theirs = app("globex")
    for call in (f"effective_confidence('{memory}')", "apply_decay('acme')"):
        with pytest.raises(psycopg.Error) as error:
            theirs.execute(f"select memfold.{call}")
        assert error.value.sqlstate in ("MF018", "MF002")
    mine = app("acme")
    row = mine.execute("select memfold.effective_confidence(%s)", [memory]).fetchone()
    assert row == (0.05,)
    audit = mine.execute("select effective_confidence from memfold.memory_audit").fetchone()
    assert audit == (0.05,)
    assert theirs.execute("select count(*) from memfold.memory_audit").fetchone() == (0,)


def test_a_protected_type_does_not_decay_in_recall_either(decaying: DB) -> None:
    set_options(decaying, protected_types=["preference"])
    for kind, text in (("preference", "User likes tea"), ("fact", "User buys tea")):
        remember(decaying, text, days=60, memory_type=kind)
    found = decaying.execute(
        "select content, confidence from memfold.search_memories(query => 'tea', tenant_id => 'acme')"
    ).fetchall()
    shown = dict(found)
    assert shown["User likes tea"] == pytest.approx(0.9)
    assert shown["User buys tea"] < 0.6


def test_memories_that_never_decayed_come_first(decaying: DB) -> None:
    """In parts and at a later time each, it reaches all."""
    for word in ("tea", "milk", "juice", "water"):
        remember(decaying, f"User drinks {word}", days=60)
    for day in range(2):
        apply(decaying, day, max_operations=2)
    assert decaying.execute(
        "select count(*) from memfold.memory_counters where decayed_at is null"
    ).fetchone() == (0,)
