"""ingest_memory: tier 1, tier 2, counters, provenance, idempotency."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.support.maintenance import set_columns
from tests.support.memories import check, counters, ingest, model, vector
from tests.support.queries import DB

pytestmark = pytest.mark.core


def test_668_replays_leave_one_memory(db: DB) -> None:
    first = ingest(db, "User prefers dark mode", source_turn_ids=["turn-1"])
    before = db.execute("select confidence from memory_audit").fetchone()
    for _ in range(667):
        again = ingest(db, "user prefers  DARK mode.", source_turn_ids=["turn-1"])
        assert (again.action, again.tier, again.method) == ("merged", 1, "hash")
        assert again.memory_id == first.memory_id
    row = db.execute(
        "select repetition_count, independent_repetitions, confidence from memory_audit"
    ).fetchall()
    assert len(row) == 1
    assert row[0][:2] == (667, 0)
    assert before is not None
    assert row[0][2] == before[0]
    assert db.execute("select count(*) from memory_sources").fetchone() == (1,)
    assert db.execute(
        "select memory_id, repetition_count, independent_observations from runaway_memories"
    ).fetchall() == [(first.memory_id, 667, 1)]
    assert db.execute("select count(*) from memory_events").fetchone() == (668,)
    check(db)


@pytest.mark.parametrize(("minutes", "is_listed"), [(0.5, True), (2, False)])
def test_a_loop_without_turns_is_noticed_by_its_rate(db: DB, minutes: float, is_listed: bool) -> None:
    for n in range(25):
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=n * minutes)
        ingest(db, "User prefers dark mode", observed_at=at)
    rows = db.execute("select repetition_count, independent_observations from runaway_memories").fetchall()
    assert rows == [(24, 25)] * is_listed


def test_confidence_follows_the_formula(db: DB) -> None:
    for n in range(6):
        ingest(
            db, "User likes Vim", source_turn_ids=[f"t{n}"], source_confidence=0.5, extractor_confidence=0.8
        )
        row = db.execute("select confidence, independent_repetitions from memory_audit").fetchone()
        assert row is not None
        assert row[1] == n
        expected = 0.5 * 0.5 + 0.3 * 0.8 + 0.2 * (1 - 1 / (1 + math.log(1 + n)))
        assert row[0] == pytest.approx(expected, abs=1e-12)


def test_counters_are_aggregates(db: DB) -> None:
    ingest(
        db,
        "User likes Vim",
        source_turn_ids=["a"],
        source_confidence=0.4,
        extractor_confidence=0.9,
        observed_at="2026-01-02",
    )
    ingest(
        db,
        "User likes Vim",
        source_turn_ids=["b", "a"],
        source_confidence=0.9,
        extractor_confidence=0.1,
        observed_at="2026-01-03",
    )
    ingest(db, "User likes Vim", source_turn_ids=["b"], observed_at="2026-01-01")
    last = ingest(db, "User likes Vim")
    found = counters(db, last.memory_id)
    assert found["observations"] == 4
    assert found["independent"] == 3  # a, b, and the observation without turns
    assert (found["source_confidence"], found["extractor_confidence"]) == (0.9, 0.9)
    assert str(found["first_seen"]).startswith("2026-01-01")
    check(db)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("merge", {"a": 2, "b": 1, "c": 3}), ("first", {"a": 1, "b": 1}), ("newest", {"a": 2, "c": 3})],
)
def test_metadata_merges_by_policy(db: DB, policy: str, expected: dict[str, int]) -> None:
    db.execute("select set_policy('acme', metadata_merge => %s)", [policy])
    ingest(db, "User likes Vim", metadata={"a": 1, "b": 1}, observed_at="2026-01-01")
    ingest(db, "User likes Vim", metadata={}, observed_at="2026-01-02")
    ingest(db, "User likes Vim", metadata={"a": 2, "c": 3}, observed_at="2026-01-03")
    late = ingest(db, "User likes Vim", metadata={"a": 9, "d": 4}, observed_at="2026-01-02 12:00")
    if policy == "merge":
        expected = {**expected, "d": 4}
    assert db.execute("select metadata from memories").fetchone() == (expected,)
    assert late.action == "merged"
    check(db)


def test_type_subject_predicate_and_bucket_are_part_of_the_key(db: DB) -> None:
    made = [
        ingest(db, "User likes Python"),
        ingest(db, "User likes Python", memory_type="preference"),
        ingest(db, "User likes Python", subject="Ann"),
        ingest(db, "User likes Python", subject="Ann", predicate="likes"),
        ingest(db, "User likes Python", predicate="Ann"),
        ingest(db, "User likes Python", bucket_id="other"),
        ingest(db, "User likes Python", tenant_id="other"),
    ]
    assert {m.action for m in made} == {"inserted"}
    assert len({m.memory_id for m in made}) == 7
    # a separator inside a field does not make two keys equal
    assert ingest(db, "c", subject="a|b").action == "inserted"
    assert ingest(db, "b|c", subject="a").action == "inserted"
    # keys are compared in canonical form
    assert ingest(db, "User likes Python", subject=" ANN ").action == "merged"


def test_content_only_key(db: DB) -> None:
    db.execute("select set_policy('acme', key_fields => '{}', metadata_keys => '{source}')")
    first = ingest(db, "User likes Python", memory_type="fact", metadata={"source": "settings", "x": 1})
    same = ingest(db, "User likes Python", memory_type="note", subject="Ann", metadata={"source": "settings"})
    other = ingest(db, "User likes Python", metadata={"source": "chat"})
    assert (same.action, same.memory_id) == ("merged", first.memory_id)
    assert other.action == "inserted"
    check(db)


def test_dedup_off(db: DB) -> None:
    db.execute("select set_policy('acme', 'log', dedup => 'off')")
    model(db)
    for _ in range(3):
        result = ingest(db, "User likes Python", bucket_id="log", **vector(1.0))
        assert result.action == "inserted"
    assert db.execute("select count(*) from memories where content_hash is null").fetchone() == (3,)
    check(db)


def test_changed_rules_apply_to_known_texts_immediately(db: DB) -> None:
    ingest(db, "User likes Python, and says so often")
    db.execute("select set_policy('acme', 'default', max_content_length => 10)")
    with pytest.raises(psycopg.Error) as error:
        ingest(db, "User likes Python, and says so often")
    assert error.value.sqlstate == "MF005"
    db.execute("select set_policy('acme', 'default', max_content_length => 100000)")
    assert ingest(db, "User likes Python, and says so often").action == "merged"
    db.execute("select set_policy('acme', memory_type => 'fact', dedup => 'off')")
    assert ingest(db, "User likes Python, and says so often", bucket_id="other").action == "inserted"
    assert ingest(db, "User likes Python, and says so often", bucket_id="other").action == "inserted"
    check(db)


def test_paraphrase_becomes_an_alias_and_is_paid_once(db: DB) -> None:
    model(db)
    first = ingest(db, "User prefers dark mode", source_turn_ids=["1"], **vector(1.0))
    fold = ingest(db, "The user likes dark mode best", source_turn_ids=["2"], **vector(0.95))
    assert (fold.action, fold.tier, fold.method, fold.memory_id) == ("merged", 2, "vector", first.memory_id)
    assert fold.similarity == pytest.approx(0.95)
    again = ingest(db, "the user likes dark mode best", source_turn_ids=["2"])
    assert (again.action, again.tier, again.method, again.memory_id) == (
        "merged",
        1,
        "alias",
        first.memory_id,
    )
    found = counters(db, first.memory_id)
    assert (found["observations"], found["independent"], found["aliases"]) == (3, 2, 1)
    # an alias's vector is a neighbour too, but nothing merges by it: near the alias, far from its root
    near = ingest(db, "Dark mode is what the user likes", **vector(0.80))
    assert (near.action, near.similarity) == ("escalated", pytest.approx(0.80))
    assert near.similar[0]["memory_id"] == str(first.memory_id)
    assert near.similar[0]["matched_similarity"] > 0.92
    check(db)


@pytest.mark.parametrize(
    ("cosine", "action"), [(0.9201, "merged"), (0.92, "escalated"), (0.85, "escalated"), (0.8499, "inserted")]
)
def test_bands(db: DB, cosine: float, action: str) -> None:
    model(db)
    first = ingest(db, "User prefers dark mode", **vector(1.0))
    result = ingest(db, "The user likes dark mode best", **vector(cosine))
    assert result.action == action
    if action == "escalated":
        queued = db.execute(
            "select judgement_id, memory_id, other_id, kind, status from judgements"
        ).fetchall()
        assert queued == [(result.judgement_id, result.memory_id, first.memory_id, "write", "open")]
    assert db.execute("select count(*) from memories where status = 'active'").fetchone() == (
        1 if action == "merged" else 2,
    )
    check(db)


def test_thresholds_of_the_policy_come_first(db: DB) -> None:
    model(db)
    db.execute("select set_policy('acme', merge_threshold => 0.95, judge_threshold => 0.9)")
    set_columns(db, "policies", merge_inclusive=True, similar_threshold=0.4)
    first = ingest(db, "User prefers dark mode", **vector(1.0))
    below = ingest(db, "The user likes dark mode best", **vector(0.89))
    assert below.action == "inserted"
    assert below.similar == [{"memory_id": str(first.memory_id), "similarity": 0.89}]
    assert ingest(db, "Dark mode it is for the user", **vector(-0.95, axis=2)).action == "inserted"
    assert ingest(db, "Dark mode is what the user likes", **vector(0.95, axis=3)).action == "merged"


def test_on_ambiguous(db: DB) -> None:
    model(db)
    ingest(db, "User prefers dark mode", **vector(1.0))
    db.execute("select set_policy('acme', on_ambiguous => 'insert')")
    kept = ingest(db, "The user likes dark mode best", **vector(0.9))
    assert (kept.action, kept.judgement_id) == ("inserted", None)
    assert db.execute("select count(*) from judgements").fetchone() == (0,)
    db.execute("select set_policy('acme', on_ambiguous => 'review')")
    ingest(db, "Dark mode is what the user likes", **vector(0.9, axis=2))
    assert db.execute("select kind from judgements").fetchall() == [("review",)]


def test_scope_of_tier_2(db: DB) -> None:
    model(db)
    ingest(db, "Alice has a cat", subject="Alice", predicate="has", **vector(1.0))
    assert ingest(db, "Bob has a cat", subject="Bob", predicate="has", **vector(0.99)).action == "inserted"
    assert ingest(db, "a cat is what she has", subject="Alice", **vector(0.99)).action == "inserted"
    assert ingest(db, "a cat she has", subject="ALICE", predicate="Has", **vector(0.99)).action == "merged"
    db.execute("select set_policy('acme', 'wide', scope => 'bucket')")
    ingest(db, "user has a cat", bucket_id="wide", subject="x", **vector(1.0))
    found = ingest(db, "a cat is what user has", bucket_id="wide", predicate="y", **vector(0.99))
    assert found.action == "merged"
    check(db)


def test_vectors_are_normalised_here(db: DB) -> None:
    model(db)
    ingest(db, "User prefers dark mode", embedding="[10,0,0,0]", embedding_model="m")
    result = ingest(db, "The user likes dark mode best", embedding="[0.001,0,0,0]", embedding_model="m")
    assert (result.action, result.similarity) == ("merged", 1.0)


def test_models_are_never_compared(db: DB) -> None:
    model(db)
    model(db, "other")
    ingest(db, "User prefers dark mode", **vector(1.0))
    assert ingest(db, "The user likes dark mode best", **vector(1.0, name="other")).action == "inserted"


def test_guard_raised_neighbour_is_passed_over_for_a_clean_one(db: DB) -> None:
    model(db)
    ingest(db, "Ann has 3 dogs at home", **vector(1.0))
    clean = ingest(db, "At home Ann has some dogs", **vector(0.80))
    result = ingest(db, "Ann has some dogs at home", **vector(0.97))
    assert (result.action, result.memory_id) == ("merged", clean.memory_id)
    assert result.similarity == pytest.approx(
        0.97 * 0.80 + math.sqrt((1 - 0.97**2) * (1 - 0.80**2)), abs=1e-5
    )
    assert result.similar[0]["guard"] != []


def test_recalled_text_is_not_evidence(db: DB) -> None:
    model(db)
    first = ingest(db, "User prefers dark mode", **vector(1.0))
    hit = ingest(db, "User prefers dark mode", origin="recalled")
    fold = ingest(db, "The user likes dark mode best", origin="recalled", **vector(0.95))
    unclear = ingest(db, "Dark mode is nice", origin="recalled", **vector(0.9, axis=2))
    new = ingest(db, "User likes tea", origin="recalled")
    assert [r.action for r in (hit, fold, unclear, new)] == ["merged", "merged", "rejected", "rejected"]
    assert counters(db, first.memory_id)["observations"] == 1
    assert db.execute("select count(*) from memory_events").fetchone() == (5,)
    assert db.execute("select reason from memory_events where action = 'rejected'").fetchall() == [
        ("recalled",),
        ("recalled",),
    ]
    assert ingest(db, "The user likes dark mode best").memory_id == first.memory_id
    check(db)


def test_idempotency_key(db: DB) -> None:
    first = ingest(db, "User likes Vim", idempotency_key="k")
    again = ingest(db, "User likes Vim", idempotency_key="k")
    assert first == again
    assert db.execute("select count(*) from memory_events").fetchone() == (1,)
    assert ingest(db, "User likes Vim", bucket_id="b2", idempotency_key="k").memory_id != first.memory_id
    check(db)


def test_an_idempotency_key_belongs_to_one_candidate(db: DB) -> None:
    """Another candidate would be lost silently. Values about how the fact was obtained may differ."""
    model(db)
    told: dict[str, Any] = {
        "subject": "Ann",
        "predicate": "likes",
        "object": "tea",
        "metadata": {"a": 1, "b": [1.0]},
    }
    first = ingest(db, "Ann likes tea", idempotency_key="k", **told)
    retry = {
        **told, "metadata": {"b": [1], "a": 1.00}, "observed_at": "2025-01-01", "source_turn_ids": ["1"], "session_id": "s",
        "source_confidence": 0.9, "extractor_confidence": 0.1, **vector(1.0),
    }  # fmt: skip
    for function in ("ingest_memory", "preview_memory"):
        assert ingest(db, "Ann likes tea", function=function, idempotency_key="k", **retry) == first
        for part, changed in {
            "content": {"content": "Ann likes green tea"}, "memory_type": {"memory_type": "preference"},
            "subject": {"subject": "Bob"}, "predicate": {"predicate": None}, "object": {"object": "Tea!"},
            "metadata": {"metadata": {"a": 1, "b": [1], "c": None}},
            "content, metadata": {"content": "", "metadata": {}},
        }.items():  # fmt: skip
            other = {"content": "Ann likes tea", **told, **changed}
            with pytest.raises(psycopg.Error) as error:
                ingest(db, other.pop("content"), function=function, idempotency_key="k", **other)
            assert error.value.sqlstate == "MF062"
            assert error.value.diag.message_detail == (
                f"Key 'k' was used by event {first.event_id}; they differ in: {part}."
            )
            assert error.value.diag.message_hint
    assert db.execute("select count(*) from memory_events").fetchone() == (1,)
    check(db)


REPLAYS: list[dict[str, Any]] = [
    {},
    {"session_id": "s1"},
    {"object": "cats"},
    {"object": "Ähre"},
    {"source_turn_ids": ["t1"], "metadata": {"a": 1}},
    {"metadata": {"a": 1}},
    {"metadata": {"a": {"x": 1}}, "session_id": "s2"},
    {"metadata": {"a": {"x": 1}, "b": [2]}, "idempotency_key": "k1"},
    {"metadata": {"a": {"x": 1}, "b": [2]}, "idempotency_key": "k1"},
    {"metadata": {"b": [3]}, "observed_at": "2020-01-01"},
    {"observed_at": "2020-01-02", "idempotency_key": "k2", "object": "cats"},
    {
        "source_turn_ids": ["t1"],
        "idempotency_key": "k3",
        "session_id": "s3",
        "object": "dogs",
        "metadata": {"c": None},
    },
    {"embedding": vector(0.5)["embedding"], "embedding_model": "m"},
]


def slow_calls(db: DB) -> int:
    """How often this session has taken the slow path of a single call, with track_functions = pl."""
    row = db.execute(
        "select coalesce(sum(calls), 0)::bigint from ("
        "select calls from pg_stat_user_functions where funcname = '_ingest'"
        " union all select calls from pg_stat_xact_user_functions where funcname = '_ingest') as f"
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.core
def test_the_fast_path_writes_what_the_slow_path_does(db: DB) -> None:
    model(db)
    db.execute("set track_functions = 'pl'")
    db.execute("set stats_fetch_consistency = none")
    written = {}
    for tenant in ("fast", "slow"):
        db.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        if tenant == "slow":
            # a rule that the fast path does not know, for another bucket
            db.execute("select set_policy(bucket_id => 'other', max_session_repeats => 1000)")
        first = ingest(db, "Alice has a cat", tenant_id=tenant, metadata={"z": 1})
        slow = []
        for replay in REPLAYS:
            before = slow_calls(db)
            result = ingest(db, "alice has a cat!", tenant_id=tenant, **replay)
            slow.append(slow_calls(db) > before)
            assert (result.action, result.memory_id) == ("merged", first.memory_id)
        # not simply added: what is out of order, an identifier that is not ASCII; row 1 ends before
        expected = [
            replay.get("object") == "Ähre" or replay.get("observed_at") == "2020-01-01" for replay in REPLAYS
        ]
        if tenant == "slow":
            expected = [i != 8 for i in range(len(REPLAYS))]
        assert slow == expected
        written[tenant] = [
            db.execute(
                "select action, tier, method, observation, content, object, source_turn_ids, session_id, metadata,"
                " case when observed_at < '2021-01-01' then observed_at end from memory_events"
                " where tenant_id = %s order by event_id",
                [tenant],
            ).fetchall(),
            db.execute(
                "select content, metadata, session_id, object from memories where tenant_id = %s", [tenant]
            ).fetchall(),
            {
                k: v
                for k, v in counters(db, first.memory_id).items()
                if k not in ("memory_id", "tenant_id", "last_seen", "last_event")
            },
            db.execute(
                "select idempotency_key, e.metadata from idempotency_keys as i join memory_events as e using (event_id)"
                " where i.tenant_id = %s order by 1",
                [tenant],
            ).fetchall(),
        ]
        check(db)
    assert written["fast"] == written["slow"]


NEW_FACTS: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    (vector(1.0), True),
    ({**vector(0.0), "subject": "Ann", "source_turn_ids": ["t1"], "metadata": {"a": 1}}, True),
    ({"predicate": "likes", "object": "tea", "session_id": "s", "idempotency_key": "k"}, True),
    ({"observed_at": "2020-01-02", "source_confidence": 0.9, "extractor_confidence": 0.2}, True),
    # other than usual: many turns, a slot, what is not ASCII, what was inferred, what is near
    ({"source_turn_ids": ["t2", "t3"]}, False),
    ({"predicate": "status", "subject": "server", **vector(1.0)}, False),
    ({"subject": "Ähre"}, False),
    ({"origin": "inferred"}, False),
    (vector(0.99), False),
    (vector(0.9), False),
]


@pytest.mark.core
def test_the_fast_path_of_new_facts_writes_what_the_slow_path_does(db: DB) -> None:
    model(db)
    db.execute("set track_functions = 'pl'")
    db.execute("set stats_fetch_consistency = none")
    written = {}
    for tenant in ("fast", "slow"):
        db.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        db.execute("select set_predicate('status'), set_policy(guard => 'off')")
        if tenant == "slow":
            # a limit that the fast path does not know
            db.execute("select set_policy(max_content_length => 8000)")
        slow, actions = [], []
        for i, (fact, _) in enumerate(NEW_FACTS):
            before = slow_calls(db)
            actions.append(ingest(db, f"Fact {'abcdefghijk'[i]}", tenant_id=tenant, **fact).action)
            slow.append(slow_calls(db) > before)
        assert slow == [tenant == "slow" or not usual for _, usual in NEW_FACTS]
        assert actions == ["inserted"] * (len(NEW_FACTS) - 2) + ["merged", "escalated"]
        # ids differ, and times that were not given
        differs = (
            "{tenant_id,memory_id,event_id,root_id,merged_into,target_id,judgement_id,last_event,similar_memories,"
            "created_at,recorded_at,observed_at,first_seen,last_seen,alias_first_seen,alias_last_seen}"
        )
        written[tenant] = [
            db.execute(
                "select m.content, to_jsonb(t) - %s::text[]"
                f" from {table} as t left join memories as m using (tenant_id, memory_id)"
                " where t.tenant_id = %s order by 1, 2".encode(),
                [differs, tenant],
            ).fetchall()
            for table in ("memories", "memory_vectors", "memory_sources", "memory_counters", "memory_events")
        ]
        told = db.execute(
            "select observed_at::text from memory_events where tenant_id = %s and observed_at < '2021-01-01'"
            " union all select (first_seen, last_seen)::text from memory_totals"
            " where tenant_id = %s and first_seen < '2021-01-01'",
            [tenant, tenant],
        ).fetchall()
        assert len(told) == 2
        written[tenant].append(told)
        assert db.execute(
            "select e.content from idempotency_keys as i join memory_events as e using (tenant_id, event_id)"
            " where tenant_id = %s",
            [tenant],
        ).fetchall() == [("Fact d",)]
        check(db)
    assert written["fast"] == written["slow"]


@pytest.mark.core
def test_a_vector_of_a_known_text_is_checked(db: DB) -> None:
    model(db)
    ingest(db, "Alice has a cat")
    for embedding, name, sqlstate in (
        ("[1,0]", None, "MF012"),
        ("[1,0]", "nobody", "MF013"),
        ("[1,0,0]", "m", "MF014"),
        ("[0,0,0,0]", "m", "MF015"),
    ):
        with pytest.raises(psycopg.Error) as error:
            ingest(db, "Alice has a cat", embedding=embedding, embedding_model=name)
        assert error.value.sqlstate == sqlstate


def test_every_accepted_call_leaves_its_text(db: DB) -> None:
    ingest(db, "User likes Vim")
    ingest(
        db, "  user likes VIM!", session_id="s", metadata={"x": 1}, source_turn_ids=["t"], origin="inferred"
    )
    rows = db.execute(
        "select content, session_id, metadata, source_turn_ids, origin, actor from memory_events order by event_id"
    ).fetchall()
    assert rows[1] == ("  user likes VIM!", "s", {"x": 1}, ["t"], "inferred", "postgres")
    assert rows[0][0] == "User likes Vim"


def test_known_memory(db: DB) -> None:
    model(db)
    assert db.execute("select * from known_memory('User likes Vim', 'acme')").fetchall() == []
    first = ingest(db, "User likes Vim", **vector(1.0))
    ingest(db, "Vim is liked by the user", **vector(0.99))
    found = db.execute(
        "select memory_id, status from known_memory('vim is LIKED by the user.', 'acme')"
    ).fetchall()
    assert found == [(first.memory_id, "active")]
    assert db.execute("select count(*) from memory_events").fetchone() == (2,)


def test_find_similar(db: DB) -> None:
    model(db)
    a = ingest(db, "User likes Vim", subject="U", **vector(1.0))
    b = ingest(db, "User likes tea", subject="V", **vector(0.9))
    query = "select memory_id, similarity from find_similar('[1,0,0,0]', 'm', 'acme', 'default', %s{})"
    assert db.execute(query.format(""), [0.8]).fetchall() == [(a.memory_id, 1.0), (b.memory_id, 0.9)]
    assert db.execute(query.format(""), [0.95]).fetchall() == [(a.memory_id, 1.0)]
    assert db.execute(query.format(", 'fact', 'V'"), [0.5]).fetchall() == [(b.memory_id, 0.9)]


def test_late_vectors(db: DB) -> None:
    model(db)
    first = ingest(db, "User prefers dark mode", **vector(1.0))
    late = ingest(db, "The user likes dark mode best", source_turn_ids=["t"])
    assert db.execute("select memory_id from pending_embeddings('acme')").fetchall() == [(late.memory_id,)]
    result = db.execute(
        "select action, memory_id, tier from attach_embedding(%s, '[2,0,0,0]', 'm', 'acme')", [late.memory_id]
    ).fetchone()
    assert result == ("merged", first.memory_id, 2)
    assert db.execute("select * from pending_embeddings('acme')").fetchall() == []
    assert counters(db, first.memory_id)["observations"] == 2
    assert db.execute(
        "select memory_id, status from current_memory(%s, 'acme')", [late.memory_id]
    ).fetchone() == (first.memory_id, "active")
    check(db)


def test_late_vector_of_the_older_memory(db: DB) -> None:
    model(db)
    late = ingest(db, "User prefers dark mode")
    newer = ingest(db, "The user likes dark mode best", **vector(1.0))
    result = db.execute(
        "select action, memory_id from attach_embedding(%s, '[2,0,0,0]', 'm', 'acme')", [late.memory_id]
    ).fetchone()
    assert result == ("merged", late.memory_id)
    assert db.execute(
        "select merged_into from memories where memory_id = %s", [newer.memory_id]
    ).fetchone() == (late.memory_id,)
    check(db)


def test_late_vector_in_the_band_is_escalated(db: DB) -> None:
    model(db)
    ingest(db, "User prefers dark mode", **vector(1.0))
    late = ingest(db, "The user likes dark mode best")
    embedding = json.dumps([0.9, math.sqrt(1 - 0.81), 0, 0])
    result = db.execute(
        "select action, judgement_id is not null from attach_embedding(%s, %s, 'm', 'acme')",
        [late.memory_id, embedding],
    ).fetchone()
    assert result == ("escalated", True)
    with pytest.raises(psycopg.Error) as error:
        db.execute("select attach_embedding(%s, %s, 'm', 'acme')", [late.memory_id, embedding])
    assert error.value.sqlstate == "MF019"
    check(db)


def test_explain_memory(db: DB) -> None:
    model(db)
    first = ingest(db, "User prefers dark mode", source_turn_ids=["turn-1"], **vector(1.0))
    alias = ingest(db, "The user likes dark mode best", **vector(0.95))
    ingest(db, "User hates dark mode", **vector(0.99))
    for _ in range(40):
        ingest(db, "User prefers dark mode")
    text = "\n".join(
        r[0] for r in db.execute("select explain_memory(%s, 'acme')", [first.memory_id]).fetchall()
    )
    assert f'memory {first.memory_id}: "User prefers dark mode"' in text
    assert "said 42 times" in text
    assert "tier 2 vector, cosine 0.950" in text
    assert "antonym" in text
    assert "from turn-1" in text
    assert "13 more" in text
    alias_id = db.execute("select memory_id from memories where merged_into is not null").fetchone()
    assert alias_id is not None
    assert alias.memory_id == first.memory_id
    lines = db.execute("select explain_memory(%s, 'acme')", alias_id).fetchall()
    assert lines[0][0].startswith("alias")
    merge = db.execute("select event_id from memory_events where memory_id = %s", alias_id).fetchone()
    assert merge is not None
    db.execute("select undo(%s, 'acme')", merge)
    lines = db.execute("select explain_memory(%s, 'acme')", alias_id).fetchall()
    assert any(f" undoes {merge[0]}" in line for (line,) in lines)
    with pytest.raises(psycopg.Error) as error:
        db.execute("select explain_memory(gen_random_uuid(), 'acme')")
    assert error.value.sqlstate == "MF018"


@pytest.mark.parametrize(
    "policy", ["canonicalizer => 'exact/1'", "canonicalizer => 'code/1'", "dedup => 'off'"]
)
def test_a_text_of_signs_is_stored_if_the_buckets_canonicalizer_keeps_it(db: DB, policy: str) -> None:
    db.execute(f"select set_policy('acme', 'log', {policy})")
    assert ingest(db, " . ", bucket_id="log").action == "inserted"
    again = db.execute(
        """select action from ingest_memories('[{"content": " . ", "bucket_id": "log"}]', 'acme')"""
    ).fetchall()
    assert again == [("inserted" if "off" in policy else "merged",)]
    check(db)
    with pytest.raises(psycopg.Error) as error:
        ingest(db, " . ")
    assert error.value.sqlstate == "MF004"


def test_dedup_stats(db: DB) -> None:
    model(db)
    ingest(db, "User prefers dark mode", **vector(1.0))
    ingest(db, "User prefers dark mode")
    ingest(db, "The user likes dark mode best", **vector(0.95))
    ingest(db, "User likes tea", **vector(0.9, axis=2))
    row = db.execute(
        "select active, merged, observations, inserted, tier_1_merges, tier_2_merges, escalated, open_judgements,"
        " pending_embeddings from dedup_stats"
    ).fetchall()
    assert row == [(2, 1, 4, 1, 1, 1, 1, 1, 0)]


def test_the_statistics_count_what_was_refused_without_a_tier(db: DB) -> None:
    ingest(db, "User likes Vim")
    refused = ingest(db, "User likes Emacs", origin="recalled")
    assert (refused.action, refused.tier) == ("rejected", None)
    assert db.execute("select rejected_candidates from dedup_stats").fetchall() == [(1,)]
