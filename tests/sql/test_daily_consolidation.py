"""Consolidation by maintenance: once a day where something is new, within a budget of questions."""

from __future__ import annotations

import json

import pytest

from tests.support.judging import elapse
from tests.support.maintenance import angle, at, consolidate, policy, set_options, store
from tests.support.memories import check, model
from tests.support.queries import DB, one, rows

SILENT = 36.0
"""Degrees between two texts that ingest leaves alone (a cosine of 0.81)."""


def pair(db: DB, subject: str, degrees: float = SILENT, **arguments: str) -> None:
    """Two facts that ingest keeps, without a question."""
    store(db, f"{subject} reads at night", subject=subject, **arguments, **angle(0))
    store(db, f"{subject} has a book before bed", subject=subject, **arguments, **angle(degrees))


def waiting(db: DB, tenant: str = "acme", bucket: str = "default") -> list[tuple[str, str]]:
    """Subject and kind of the open questions, as they were asked."""
    return db.execute(
        "select subject, kind from open_judgements where tenant_id = %s and bucket_id = %s order by judgement_id",
        [tenant, bucket],
    ).fetchall()


def answer(db: DB, verdict: str = "distinct") -> None:
    db.execute(
        "select resolve_judgement(judgement_id, %s, tenant_id => 'acme') from open_judgements", [verdict]
    )


def nothing_new(db: DB) -> None:
    """Make every memory older than the last run by more than it allows for."""
    db.execute("update runs set started_at = started_at + interval '2 hours' where kind = 'consolidation'")


def runs(db: DB) -> list[dict[str, int]]:
    found = db.execute("select report from runs where kind = 'consolidation' order by run_id").fetchall()
    return [report for (report,) in found]


@pytest.fixture
def m(db: DB) -> DB:
    model(db)
    return db


def test_a_pass_asks_what_ingest_left_silent_once_a_day(m: DB) -> None:
    pair(m, "Ann")
    pair(m, "Bob", 45)  # 0.71
    pair(m, "Cleo", bucket_id="other")
    assert waiting(m) == []
    at(m, "2026-03-01 10:00")
    assert waiting(m) == [("Ann", "consolidation")]
    assert waiting(m, bucket="other") == [("Cleo", "consolidation")]
    answer(m)
    pair(m, "Dave")
    assert at(m, "2026-03-01 23:59") == {"cycles": 0}
    assert waiting(m) == [], "it is the same day"
    at(m, "2026-03-02 00:00")
    assert waiting(m) == [("Dave", "consolidation")], "what was answered is not asked again"
    check(m)


def test_nothing_is_planned_where_nothing_is_new(m: DB) -> None:
    pair(m, "Ann")
    at(m, "2026-03-01 10:00")
    answer(m)
    [(first,)] = m.execute("select run_id from runs where kind = 'consolidation'").fetchall()
    nothing_new(m)
    assert at(m, "2026-03-02 10:00") == {"cycles": 0}
    assert m.execute("select run_id from runs where kind = 'consolidation'").fetchall() == [(first,)]
    store(m, "Ann sells books", subject="Ann", **angle(90))
    m.execute("update runs set started_at = now() - interval '1 hour' where kind = 'consolidation'")
    at(m, "2026-03-03 10:00")
    assert [report["asked"] for report in runs(m)] == [1, 0], "planned again without questions"
    store(m, "Ann binds books", subject="Ann", **angle(-90))
    at(m, "2026-03-04 10:00")
    assert [report["asked"] for report in runs(m)] == [1, 0], "a run with questions replaces no other"


def test_nothing_is_planned_without_vectors(m: DB) -> None:
    store(m, "Ann reads at night", subject="Ann")
    store(m, "Ann has a book before bed", subject="Ann")
    at(m, "2026-03-01 10:00")
    assert runs(m) == []


@pytest.mark.parametrize("bucket", ["default", "*"])
def test_it_is_switched_off_by_an_interval_of_0(m: DB, bucket: str) -> None:
    set_options(m, bucket, consolidate_interval="0")
    pair(m, "Ann")
    pair(m, "Bob", bucket_id="other")
    at(m, "2026-03-01 10:00")
    assert waiting(m) == []
    assert waiting(m, bucket="other") == ([] if bucket == "*" else [("Bob", "consolidation")])


def test_the_budget_takes_the_nearest_first_and_the_rest_later(m: DB) -> None:
    set_options(m, consolidate_budget=2)
    for n, subject in enumerate(("Ann", "Bob", "Cleo", "Dave", "Eve")):
        pair(m, subject, 40 - 2 * n)
    at(m, "2026-03-01 10:00")
    assert [subject for subject, _ in waiting(m)] == ["Eve", "Dave"]
    assert [report["left_out"] for report in runs(m)] == [3]
    answer(m)
    nothing_new(m)
    at(m, "2026-03-02 10:00")
    assert [subject for subject, _ in waiting(m)] == ["Cleo", "Bob"], "without a new memory"
    [(eldest,)] = m.execute("select judgement_id from open_judgements where subject = 'Cleo'").fetchall()
    m.execute("select resolve_judgement(%s, 'distinct', tenant_id => 'acme')", [eldest])
    nothing_new(m)
    at(m, "2026-03-03 10:00")
    assert [subject for subject, _ in waiting(m)] == ["Bob", "Ann"], "as many as the budget allows"
    check(m)


@pytest.mark.parametrize("status", ["open", "dead"])
def test_a_queue_that_nobody_answers_stops_growing(m: DB, status: str) -> None:
    for day in range(1, 5):
        for n in range(3):
            pair(m, f"Ann {day} {n}")
        at(m, f"2026-03-0{day} 10:00")
        m.execute("update judgements set status = %s where status = 'open'", [status])
        elapse(m, "1 day")
    assert len(waiting(m)) == 5


def test_questions_of_ingest_count_if_nobody_answers_them(m: DB) -> None:
    for n in range(6):
        pair(m, f"Bob {n}", 25)  # 0.906
    assert {kind for _, kind in waiting(m)} == {"write"}
    pair(m, "Ann")
    at(m, "2026-03-01 10:00")
    assert waiting(m)[6:] == [("Ann", "consolidation")], "a judge may run once a day"
    pair(m, "Cleo")
    elapse(m, "1 day")
    at(m, "2026-03-02 10:00")
    assert len(waiting(m)) == 7


@pytest.mark.parametrize(
    ("on_ambiguous", "kinds"),
    [("judge", ["consolidation"]), ("synthesise", ["synthesis"]), ("review", ["review"]), ("insert", [])],
)
def test_it_asks_whom_the_policy_asks(m: DB, on_ambiguous: str, kinds: list[str]) -> None:
    policy(m, on_ambiguous=on_ambiguous)
    pair(m, "Ann")
    at(m, "2026-03-01 10:00")
    assert [kind for _, kind in waiting(m)] == kinds
    assert len(consolidate(m, approval="policy")) == 0
    answer(m)


def test_other_tenants_are_left_alone(m: DB) -> None:
    m.execute("select set_options('globex', consolidate_interval => '0', consolidate_budget => 1)")
    pair(m, "Ann", tenant_id="globex")
    pair(m, "Ann")
    pair(m, "Bob")
    at(m, "2026-03-01 10:00")
    assert [subject for subject, _ in waiting(m)] == ["Ann", "Bob"]
    assert waiting(m, "globex") == []
    assert one(m, "select count(*) from runs where tenant_id = 'globex'") == 0


def test_only_these_memories(m: DB) -> None:
    pair(m, "Ann")
    pair(m, "Bob")
    ids = [row["memory_id"] for row in rows(m, "select memory_id from memories where subject = 'Ann'")]
    found = consolidate(m, memory_ids=[*ids, *ids])
    assert [row["content"][:3] for row in found] == ["Ann"]
    assert consolidate(m, memory_ids=ids[:1]) == consolidate(m, memory_ids=[]) == []


def test_a_large_bucket_is_compared_in_part(m: DB) -> None:
    """5,000 memories; a subject with many does not keep out the others."""
    pair(m, "Ann")
    fill = (
        "insert into memories (tenant_id, content, subject) select 'acme', 'note ' || n, %s || n %% %s"
        " from generate_series(%s::integer, %s) as n"
    )
    m.execute(fill, ["Bob", 1, 1, 5000])
    at(m, "2026-03-01 10:00")
    assert waiting(m) == [("Ann", "consolidation")]
    pair(m, "Cleo")
    m.execute(fill, ["Dave", 50, 5001, 10000])
    pair(m, "Eve")
    at(m, "2026-03-02 10:00")
    assert [subject for subject, _ in waiting(m)] == ["Ann", "Eve"]


def test_a_step_of_maintenance_writes_in_one_bucket(m: DB) -> None:
    """Its bucket stays locked until the call ends."""
    pair(m, "Ann")
    pair(m, "Cleo", bucket_id="other")
    after = None
    for bucket in ("default", "other"):
        number, is_left, after = one(
            m,
            "select number, is_left, after from memfold_internal._maintain_cycles('acme', %s::jsonb)",
            after,
        )
        assert (number, is_left, json.loads(after)["bucket_id"]) == (1, True, bucket)
    assert sorted(waiting(m) + waiting(m, bucket="other")) == [
        ("Ann", "consolidation"),
        ("Cleo", "consolidation"),
    ]
