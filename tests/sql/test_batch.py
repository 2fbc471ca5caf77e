"""Promise 10: ingest_memories does what the same candidates do one by one, in order."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.batches import STATE, Candidate, Names, at_once, state
from tests.support.concurrent_calls import together
from tests.support.judging import answer
from tests.support.maintenance import set_columns
from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB
from tests.support.rounds import rounds
from tests.support.server_statistics import function_calls, track_functions

BATCHES = rounds("MEMFOLD_BATCHES", 8, 40)


def differences(one: dict[str, list[Any]], other: dict[str, list[Any]]) -> list[Any]:
    """The first rows that differ, of each part."""
    found: list[Any] = []
    for part in STATE:
        if len(one[part]) != len(other[part]):
            found.append((part, len(one[part]), len(other[part])))
        for a, b in zip(one[part], other[part], strict=False):
            if a != b:
                found.append((part, a, {key: b[key] for key in b if b[key] != a[key]}))
                break
    return found


# The two ways -----------------------------------------------------------------------------------------------


def one_by_one(db: DB, tenant: str, candidates: list[Candidate]) -> list[list[Any]]:
    results = []
    for candidate in candidates:
        arguments = {**candidate, "tenant_id": tenant}
        if "embedding" in arguments:
            arguments["embedding"] = json.dumps(arguments["embedding"])
        if "metadata" in arguments:
            arguments["metadata"] = Jsonb(arguments["metadata"])
        call = ", ".join(f"{name} => %s" for name in arguments)
        try:
            with db.transaction():
                row = db.execute(
                    f"select * from ingest_memory({call})".encode(), list(arguments.values())
                ).fetchone()
            assert row is not None
            results.append([*row, None, None, None, None])
        except psycopg.Error as error:
            diag = error.diag
            results.append(
                [None] * 9
                + [diag.sqlstate, diag.message_primary, diag.message_detail, diag.message_hint]
            )  # fmt: skip
    return results


# Batches equal singles --------------------------------------------------------------------------------------

SUBJECTS = ["Ann", "Bob", "Émile"]
ODD: list[Candidate] = [
    {"content": ""}, {"content": " . "}, {"source_confidence": 2}, {"observed_at": "2099-01-01"},
    {"embedding": [1, 2], "embedding_model": "m"}, {"embedding": [1, 2, 3, 4], "embedding_model": "no"},
    {"embedding": [0, 0, 0, 0], "embedding_model": "m"}, {"embedding": [1, 2, 3, 4]}, {"embedding_model": "no"},
    {"subject": "..."}, {"subject": "x" * 600}, {"metadata": [1]}, {"origin": "guessed"}, {"session_id": ""},
    {"idempotency_key": ""}, {"idempotency_key": "x" * 600}, {"source_turn_ids": ["x"] * 1001},
    {"source_turn_ids": [""]}, {"bucket_id": ""}, {"memory_type": "x" * 600},
]  # fmt: skip


def candidate(rnd: random.Random) -> Candidate:
    predicate = rnd.choice([None, None, "likes", "works_at", "lives_in", "Works_At "])
    number = rnd.randrange(40)
    made: Candidate = {
        "content": rnd.choice(["", "So ", "Not that ", "Très "]) + f"Ann {predicate} thing {number % 5} and {number}"
        + rnd.choice(["", ".", " ", "!"]),
        "bucket_id": rnd.choice(
            ["default", "default", "wide", "keep", "off", "first", "content", "newer", "words", "text"]
        ),
        "subject": rnd.choice([None, *SUBJECTS]),
        "predicate": predicate,
        "observed_at": f"2026-{rnd.randrange(1, 11):02}-{rnd.randrange(1, 28):02}",
        "origin": rnd.choices(["observed", "inferred", "recalled"], [12, 1, 1])[0],
    }  # fmt: skip
    if rnd.random() < 0.5:
        made["source_turn_ids"] = [str(rnd.randrange(30)) for _ in range(rnd.randrange(4))]
    if rnd.random() < 0.3:
        made["memory_type"] = rnd.choice(["fact", "preference", "off"])
    if rnd.random() < 0.4:
        made["source_confidence"] = rnd.random()
    if predicate in ("works_at", "lives_in") and rnd.random() < 0.6:
        made["object"] = f"place {rnd.randrange(4)}"
    if rnd.random() < 0.5:
        made["embedding"] = [1.0, rnd.gauss(0, 0.5), rnd.gauss(0, 0.5), rnd.gauss(0, 0.3)]
        made["embedding_model"] = rnd.choice(["m", "m", "m2"])
    if rnd.random() < 0.3:
        # texts that differ by no more than a word, and come again
        made["content"] = f"Ann {rnd.choice(['also', 'very', 'too', 'so', 'quite'])} likes green tea"
        made["embedding"] = [1.0, rnd.gauss(0, 0.1), rnd.gauss(0, 0.1), 0.0]
        made["embedding_model"] = "m"
    if rnd.random() < 0.15:
        made["metadata"] = {rnd.choice("abc"): rnd.randrange(3)}
    if rnd.random() < 0.1:
        made["session_id"] = rnd.choice("st")
    if rnd.random() < 0.08:
        made["idempotency_key"] = str(rnd.randrange(60))
    if rnd.random() < 0.04:
        made.update(rnd.choice(ODD))
    if rnd.random() < 0.05:
        made.pop("observed_at")
    return {name: value for name, value in made.items() if value is not None}


def limited(candidates: list[Candidate]) -> None:
    """Gives some candidates a validity that the same text in another spelling does not have."""
    for i, one in enumerate(candidates):
        if one.get("content", "").endswith("!"):
            candidates[i] = {**one, ("valid_from", "valid_until")[i % 4 > 0]: f"2026-{1 + i % 9:02}-01"}


def retried(rnd: random.Random, candidates: list[Candidate], keyed: dict[Any, Candidate]) -> list[Candidate]:
    """Of the candidates with a known key, half are equal to the first one with that key."""
    for i, one in enumerate(candidates):
        if key := one.get("idempotency_key"):
            first = keyed.setdefault((one.get("bucket_id"), key), one)
            if rnd.random() < 0.5:
                candidates[i] = {**first, "source_confidence": 0.25}
    return candidates


def rules(db: DB, tenant: str) -> None:
    db.execute("select set_predicate('works_at', %s)", [tenant])
    db.execute("select set_predicate('lives_in', %s, conflict => 'review')", [tenant])
    for bucket, options in {
        "wide": "scope => 'bucket', metadata_merge => 'newest'",
        "keep": "on_ambiguous => 'insert'",
        "off": "dedup => 'off'",
        "first": "metadata_merge => 'first', metadata_keys => '{a}', canonicalizer => 'flat/1'",
        "content": "key_fields => '{type}', conflict => 'keep_existing'",
        "newer": "on_merge => 'replace', metadata_merge => 'newest'",
        "words": "scope => 'bucket', lexical_threshold => 0.5, neighbours => 2",
        "text": "on_merge => 'synthesise', on_ambiguous => 'synthesise', lexical_threshold => 0.7",
    }.items():
        db.execute(f"select set_policy(%s, %s, {options})".encode(), [tenant, bucket])
    set_columns(db, "policies", "keep", tenant, similar_threshold=0.5)
    set_columns(db, "policies", "newer", tenant, metadata_max=["a"])
    set_columns(db, "policies", "words", tenant, session_neighbours=20)
    db.execute("select set_policy(%s, 'wide', 'off', dedup => 'off')", [tenant])


def act_manually(db: DB, rnd: random.Random, tenants: list[str]) -> None:
    """Calls that create aliases, tombstones, withdrawn and superseded memories, for both tenants alike."""
    counts = [
        db.execute(
            "select (select count(*) from memories where tenant_id = %s),"
            " (select count(*) from memory_events where tenant_id = %s)",
            [tenant, tenant],
        ).fetchone()
        for tenant in tenants
    ]  # fmt: skip
    assert counts[0] == counts[1]
    assert counts[0] is not None
    memories, events = counts[0]
    if not memories:
        return
    for _ in range(4):
        kind = rnd.choice(["reject", "reject", "merge", "supersede", "undo", "undo", "update"])
        a, b, event = rnd.randrange(memories), rnd.randrange(memories), rnd.randrange(events)
        outcomes = []
        for tenant in tenants:
            memory = "(select memory_id from memories where tenant_id = %s order by 1 offset %s limit 1)"
            arguments: list[Any] = [tenant, a]
            if kind == "reject":
                call = f"reject_memory({memory}, tenant_id => %s)"
            elif kind == "update":
                call = f"update_memory({memory}, 'Updated ' || %s, tenant_id => %s)"
                arguments.append(str(event))
            elif kind == "undo":
                call = (
                    "undo((select event_id from memory_events where tenant_id = %s order by 1 offset %s limit 1),"
                    " tenant_id => %s)"
                )
                arguments = [tenant, event]
            else:
                call = f"{kind}_{'memories' if kind == 'merge' else 'memory'}({memory}, {memory}, tenant_id => %s)"
                arguments += [tenant, b]
            try:
                with db.transaction():
                    db.execute(f"select * from {call}".encode(), [*arguments, tenant])
                outcomes.append("done")
            except psycopg.Error as error:
                outcomes.append(error.sqlstate or "")
        assert outcomes[0] == outcomes[1]
        assert outcomes[0] == "done" or outcomes[0].startswith("MF")


def test_batches_equal_singles(db: DB) -> None:
    model(db)
    model(db, "m2")
    # statements without a time share one time
    db.execute(
        "create or replace function memfold_internal._clock() returns timestamptz language plpgsql stable as"
        " 'begin return pg_catalog.now(); end'"
    )
    for tenant in ("single", "batch"):
        rules(db, tenant)
    actions: Counter[str] = Counter()
    keyed: dict[Any, Candidate] = {}
    for seed in range(BATCHES):
        rnd = random.Random(seed)
        size = rnd.choice([1, 2, 40, 60, 120, 120])
        candidates = retried(rnd, [candidate(rnd) for _ in range(size)], keyed)
        if seed % 3 == 2:
            # makes the batch ingest others one by one too, so not in each batch
            limited(candidates)
        with db.transaction():  # one transaction, in which the clock does not advance
            singles = one_by_one(db, "single", candidates)
            batch = at_once(db, "batch", candidates, apart=rnd.random() < 0.5)
        expected, found = Names(db, "single"), Names(db, "batch")
        for i, (one, other) in enumerate(zip(singles, batch, strict=True)):
            assert found(other) == expected(one), f"seed {seed}, candidate {i}: {candidates[i]}"
            actions[f"{one[0]} {one[3]}" if one[0] else one[9]] += 1
        assert differences(state(db, "single"), state(db, "batch")) == [], f"seed {seed}"
        if seed % 8 == 7:
            check(db)
        with db.transaction():
            act_manually(db, rnd, ["single", "batch"])
    # each kind of decision occurred
    assert BATCHES < 20 or {
        "inserted None", "merged hash", "merged alias", "merged vector", "merged timeline", "superseded object",
            "superseded predicate", "superseded timeline", "escalated vector", "historical object",
            "rejected tombstone", "rejected None", "MF004", "MF062", "merged lexical", "replaced vector",
            "escalated lexical"} <= set(actions)  # fmt: skip


# Errors and keys --------------------------------------------------------------------------------------------


def refused(db: DB, candidates: Any, *, on_error: str = "report", tenant: str | None = "acme") -> str:
    with pytest.raises(psycopg.Error) as error:
        db.execute("select * from ingest_memories(%s, %s, %s)", [Jsonb(candidates), tenant, on_error])
    assert error.value.diag.message_detail
    assert error.value.diag.message_hint
    return f"{error.value.sqlstate} {error.value.diag.message_detail}"


def test_errors_of_candidates(db: DB) -> None:
    """Errors by position; the other candidates are ingested."""
    model(db)
    bad: list[Any] = [
        {"content": "User likes tea", "contnt": "x"}, 5, None, [], {"content": "a", "source_turn_ids": "b"},
        {"content": "a", "observed_at": "yesterday or so"}, {"content": "a", "tenant_id": "other"},
        {"content": "a", "embedding": [1, "x"], "embedding_model": "m"},
        {"content": "a", "embedding": [1, 2, 3], "embedding_model": "m"}, {"bucket_id": "b"},
    ]  # fmt: skip
    candidates: list[Any] = []
    for odd in bad:
        candidates += [{"content": f"User likes tea number {len(candidates)}", "tenant_id": "acme"}, odd]
    rows = at_once(db, "acme", candidates)
    assert [row[0] for row in rows[::2]] == ["inserted"] * len(bad)
    assert [row[9] for row in rows[1::2]] == [
        "MF036", "MF036", "MF036", "MF036", "MF036", "MF036", "MF002", "MF036", "MF014", "MF004",
    ]  # fmt: skip
    assert [row[9:] for row in rows[::2]] == [[None] * 4] * len(bad)
    assert rows[1][11] == "Unknown: 'contnt'."
    assert rows[11][11] == 'invalid input syntax for type timestamp with time zone: "yesterday or so"'
    assert db.execute("select count(*) from memories").fetchone() == (len(bad),)
    check(db)


def test_null_stands_for_the_default_but_not_of_a_bucket(db: DB) -> None:
    """As in a single call: a lost bucket_id must not put somebody's fact into the bucket 'default'."""
    nulls = {
        "origin": None,
        "metadata": None,
        "source_confidence": None,
        "source_turn_ids": None,
        "subject": None,
    }
    for others in ([], [{"content": "User likes cake"}]):
        for name in ("bucket_id", "memory_type"):
            [row, *_] = at_once(db, "acme", [{"content": "User likes tea", name: None}, *others])
            assert row[9] == "MF003", name
        [row, *_] = at_once(db, "acme", [{"content": "User likes tea", **nulls}, *others])
        assert row[0] == ("merged" if others else "inserted")
    assert db.execute(
        "select source_confidence from memory_audit where content = 'User likes tea'"
    ).fetchone() == (0.5,)
    check(db)


def test_a_memory_that_was_contradicted(db: DB) -> None:
    """It has no predicate, but it is on a timeline: restating it is not a plain addition."""
    one, other = ingest(db, "User likes tea"), ingest(db, "User hates tea")
    db.execute("select supersede_memory(%s, %s, tenant_id => 'acme')", [one.memory_id, other.memory_id])
    for content in ("User hates tea", "User likes tea", "User likes tea", "User hates tea"):
        [single] = db.execute("select (preview_memory(%s, 'acme')).action", [content]).fetchall()
        [row] = at_once(db, "acme", [{"content": content}])
        assert (row[0], row[9]) == (single[0], None), content
        check(db)


def test_the_last_candidate_is_not_there_for_those_before_it(db: DB) -> None:
    """By its own type's rules it has no neighbour, and is written first; by the others' rules it would be their nearest."""
    model(db)
    db.execute("select set_policy('acme', scope => 'bucket', merge_threshold => 1, judge_threshold => 0.8)")
    db.execute(
        "select set_policy('acme', memory_type => 'note', scope => 'bucket', merge_threshold => 1, judge_threshold => 0.995)"
    )
    stored = ingest(db, "Ann plays the piano", **vector(1.0))
    # their cosine is 0.986
    rows = at_once(
        db,
        "acme",
        [
            {"content": "Ann is a pianist", **vector(0.85)},
            {"content": "Ann has a piano", "memory_type": "note", **vector(0.75)},
        ],
    )
    assert [row[0] for row in rows] == ["escalated", "inserted"]
    assert db.execute("select other_id from judgements").fetchall() == [(stored.memory_id,)]
    check(db)


def test_abort(db: DB) -> None:
    candidates: list[Any] = [
        {"content": "User likes tea"},
        {"content": " "},
        {"content": "x", "origin": "guessed"},
    ]
    assert refused(db, candidates, on_error="abort").startswith(
        "MF004 Candidate 1: The canonical form of ' '"
    )
    assert db.execute("select count(*) from memory_events").fetchone() == (0,)
    assert [row[0] for row in at_once(db, "acme", candidates[:1], on_error="abort")] == ["inserted"]


def test_errors_of_the_call(db: DB) -> None:
    one = [{"content": "x"}]
    assert refused(db, {"content": "x"}).startswith("MF035 candidates was a JSON object")
    assert refused(db, one * 10_001).startswith("MF035 It has 10001")
    assert refused(db, one, on_error="ignore").startswith("MF022")
    assert refused(db, one, tenant=None).startswith("MF001")
    buckets = [{"content": "x", "bucket_id": f"bucket {i}"} for i in range(501)]
    assert refused(db, buckets).startswith("MF035 It has new facts for 501")
    db.execute("begin isolation level repeatable read")
    assert refused(db, one).startswith("MF025")
    db.execute("rollback")
    assert at_once(db, "acme", []) == []
    assert at_once(db, "acme", [], apart=True) == []


def test_keys(db: DB) -> None:
    """A key answers with what its first use did: in the batch, in an earlier one."""
    candidates: list[Candidate] = [
        {"content": "User likes tea", "idempotency_key": "a"},
        {"content": "User likes tea", "idempotency_key": "a", "source_turn_ids": ["1"]},
        {"content": "User likes tea", "idempotency_key": "a", "source_confidence": 2},
        {"content": "", "idempotency_key": "b"},
        {"content": "User likes cake", "idempotency_key": "b"},
        {"content": "User likes tea", "bucket_id": "other", "idempotency_key": "a"},
    ]
    first = at_once(db, "acme", candidates)
    assert first[0] == first[1] == first[2]
    assert first[3][9] == "MF004"
    assert len({row[7] for row in first}) == 4
    again = at_once(db, "acme", candidates, apart=True)
    assert [row[9] for row in again] == [None, None, None, "MF062", None, None]
    assert [*again[:3], *again[4:]] == [*first[:3], *first[4:]]
    assert db.execute("select count(*) from memory_events").fetchone() == (3,)
    check(db)


def test_a_key_belongs_to_one_candidate(db: DB) -> None:
    """Whatever else is wrong with the second candidate: in the batch, in an earlier one, and if the first error aborts."""
    candidates: list[Candidate] = [
        {"content": "User likes tea", "idempotency_key": "a", "metadata": {"n": 1}},
        {"content": "User likes coffee", "idempotency_key": "a", "metadata": {"n": 1}},
        {"content": "", "idempotency_key": "a"},
        {"content": "User likes tea", "idempotency_key": "a", "metadata": {"n": 1.0}},
    ]
    for apart in (False, True):
        found = at_once(db, "acme", candidates, apart)
        assert [row[9] for row in found] == [None, "MF062", "MF062", None]
        assert found[0] == found[3]
        assert all(row[11] and row[12] for row in found[1:3])
        by = f"event {found[0][7]}" if apart else "candidate 0 of the batch"
        assert found[1][11] == f"Key 'a' was used by {by}; they differ in: content."
        assert found[2][11] == f"Key 'a' was used by {by}; they differ in: content, metadata."
    assert refused(db, candidates[1:], on_error="abort").startswith("MF062")
    other = [{**candidate, "idempotency_key": "b"} for candidate in candidates]
    assert refused(db, other, on_error="abort").startswith("MF062")
    assert db.execute("select count(*) from memory_events").fetchone() == (1,)
    check(db)


@pytest.mark.new_database
def test_a_batch_of_one_is_a_single_call(db: DB) -> None:
    """Unless its candidate has an error to report: that is the batch's own work."""
    model(db)
    db.execute("select set_policy('acme', 'limited', max_session_repeats => 1, max_content_length => 20)")
    db.execute("select set_policy('acme', 'exact', canonicalizer => 'exact')")
    track_functions(db)
    near = {key: value for key, value in vector(0.001).items() if key != "bucket_id"}
    single: list[tuple[Candidate, str]] = [
        ({"content": "User likes tea"}, "inserted"),
        ({"content": "user likes tea!", "source_turn_ids": ["1"], "metadata": {"n": 1}}, "merged"),
        ({"content": "User likes tea", "bucket_id": "other", "idempotency_key": "a"}, "inserted"),
        ({"content": "User has a cat", **vector(0.0)}, "inserted"),
        ({"content": "User has the cat", **near}, "merged"),
        ({"content": "User is there", "embedding_model": "m"}, "inserted"),
        ({"content": "User is told", "origin": "recalled"}, "rejected"),
    ]
    batch: list[tuple[Candidate, str]] = [
        ({"content": "User likes tea", "bucket_id": "other", "idempotency_key": "a"}, "inserted"),
        ({"content": "User likes cake", "bucket_id": "other", "idempotency_key": "a"}, "MF062"),
        ({"content": "User likes a lot of tea", "bucket_id": "limited"}, "MF005"),
        ({"content": "User likes tea", "bucket_id": "exact"}, "inserted"),
        ({"content": "User is away", "valid_until": "2999-01-01"}, "inserted"),
        ({"content": "User is here", "embedding": [1, 2], "embedding_model": "m"}, "MF014"),
        ({"content": " . "}, "MF004"),
        ({"content": "User likes tea", "no": 1}, "MF036"),
    ]
    for listed, taken in ((single, 0), (batch, 1)):
        for one, expected in listed:
            for apart in (False, True) if expected == "MF014" else (False,):
                before = function_calls(db, "_ingest_batch")
                [row] = at_once(db, "acme", [one], apart)
                assert (row[0] or row[9]) == expected, one
                assert function_calls(db, "_ingest_batch") == before + taken, one
    assert refused(db, [{"content": ""}], on_error="abort").startswith("MF004")
    assert refused(db, [{"content": "User is fine"}], on_error="no").startswith("MF022")
    check(db)


def test_hits_at_any_isolation(db: DB) -> None:
    at_once(db, "acme", [{"content": "User likes tea"}])
    db.execute("begin isolation level repeatable read")
    assert at_once(db, "acme", [{"content": "user likes TEA"}] * 2)[1][0] == "merged"
    db.execute("commit")
    check(db)


# Vectors in a separate argument ------------------------------------------------------------------------------


def test_vectors_in_a_separate_argument(db: DB) -> None:
    """Element by element: null if a candidate has none; a bad one is that candidate's error."""
    model(db)
    candidates: list[Candidate] = [
        {"content": "Ann plays the piano", "embedding_model": "m"},
        {"content": "Ann has a cat"},
        {"content": "Ann is a pianist", "embedding_model": "m"},
        {"content": "Ann has a dog", "embedding_model": "m"},
        {"content": "Ann has a bird"},
        {"content": 5},
        {"content": "Ann has a fish", "embedding": [0, 1, 0, 0], "embedding_model": "m"},
        {"content": "Ann has a frog", "embedding": [0, 0, 1, 0], "embedding_model": "m"},
    ]
    given = ["[1,0,0,0]", None, "[1,0.001,0,0]", "[1,2]", "[1,0,0,0]", "[1,0,0,0]", "[0,1,0,0]", None]
    rows = db.execute(
        "select action, method, sqlstate, error, detail, hint from ingest_memories(%s, 'acme', embeddings => %s::vector[])",
        [Jsonb(candidates), given],
    ).fetchall()
    assert [row[:3] for row in rows] == [
        ("inserted", None, None), ("inserted", None, None), ("merged", "vector", None), (None, None, "MF014"),
        (None, None, "MF012"), (None, None, "MF036"), (None, None, "MF036"), ("inserted", None, None),
    ]  # fmt: skip
    assert rows[6][3:] == (
        "a candidate has two embeddings",
        "It has a key embedding, and an element of embeddings.",
        "Pass only one of them: an element of embeddings takes a tenth of the time to read.",
    )
    assert db.execute(
        "select m.content, m.embedding_pending, v.embedding::text from memories as m"
        " left join memory_vectors as v using (tenant_id, memory_id) where m.root_id is null order by 1"
    ).fetchall() == [
        ("Ann has a cat", True, None),
        ("Ann has a frog", False, "[0,0,1,0]"),
        ("Ann plays the piano", False, "[1,0,0,0]"),
    ]
    check(db)


@pytest.mark.parametrize(
    "given", [[], ["[1,0,0,0]"], ["[1,0,0,0]"] * 3, [None] * 3], ids=["none", "fewer", "more", "nulls"]
)
def test_as_many_vectors_as_candidates(db: DB, given: list[str | None]) -> None:
    model(db)
    candidates = [{"content": "a", "embedding_model": "m"}, {"content": "b", "embedding_model": "m"}]
    with pytest.raises(psycopg.Error) as error:
        db.execute(
            "select * from ingest_memories(%s, 'acme', embeddings => %s::vector[])",
            [Jsonb(candidates), given],
        )
    assert error.value.sqlstate == "MF035"
    assert error.value.diag.message_detail == f"embeddings has {len(given)} elements for 2 candidates."
    assert error.value.diag.message_hint == "Pass one element for each candidate, null if it has no vector."
    assert db.execute("select count(*) from memories").fetchone() == (0,)


def test_a_batch_is_of_the_sessions_tenant(db: DB, app: Callable[..., DB]) -> None:
    acme, globex = app("acme"), app("globex")
    with pytest.raises(psycopg.Error) as error:
        globex.execute("select * from ingest_memories('[]', 'acme')")
    assert error.value.sqlstate == "MF002"
    assert at_once(acme, "acme", [{"content": "User likes tea"}])[0][0] == "inserted"
    assert db.execute("select tenant_id from memories").fetchall() == [("acme",)]


# Many writers -----------------------------------------------------------------------------------------------


@pytest.mark.one_server
def test_replays_never_deadlock(db: DB, connect: Callable[..., DB]) -> None:
    """They lock only their memories' rows, in the order of ids, whatever the order of the batch."""
    facts: list[Candidate] = [{"content": f"User likes thing {i}"} for i in range(300)]
    at_once(db, "acme", facts)

    def work(i: int, connection: DB) -> None:
        rnd = random.Random(i)
        for _ in range(12):
            at_once(connection, "acme", rnd.sample(facts, len(facts)))

    together([connect() for _ in range(8)], work)
    assert db.execute("select distinct observations from memory_totals").fetchall() == [(1 + 8 * 12,)]


def test_writers_never_deadlock(db: DB, connect: Callable[..., DB]) -> None:
    """Overlapping facts, values of slots and paraphrases in shuffled order, with concurrent single calls."""
    model(db)
    db.execute("select set_predicate('works_at', 'acme')")
    facts: list[Candidate] = [
        {"content": f"User likes thing {i}", "source_turn_ids": ["t"]} for i in range(120)
    ]
    facts += [{"content": f"Ann {i} works at {place}", "subject": f"Ann {i}", "predicate": "works_at", "object": place}
              for i in range(8) for place in ("VW", "Stripe")]  # fmt: skip
    facts += [{"content": f"Thing {i} is {way} red", "subject": f"Thing {i}", "embedding_model": "m",
               "embedding": [1.0, 0.01 * len(way), 0.0, 0.0]} for i in range(8) for way in ("truly", "really")]  # fmt: skip
    outcomes: Counter[str] = Counter()

    def work(i: int, connection: DB) -> None:
        rnd = random.Random(i)
        for _ in range(6):
            batch = rnd.sample(facts, 60)
            parts = [batch] if i < 6 else [[one] for one in batch[:20]]
            for part in parts:
                while True:
                    if i < 6:
                        try:
                            at_once(connection, "acme", part)
                            code = None
                        except psycopg.Error as error:
                            code = error.sqlstate
                    else:
                        code = one_by_one(connection, "acme", part)[0][9]
                    outcomes[code or "done"] += 1 if code else len(part)
                    if code != "40001":
                        break

    together([connect() for _ in range(8)], work)
    assert set(outcomes) <= {"done", "40001"}
    assert outcomes["done"] == 6 * 6 * 60 + 2 * 6 * 20
    assert db.execute("select count(*) from memory_events").fetchone() == (outcomes["done"],)
    row = db.execute("select count(*), count(distinct (bucket_id, content_hash)) from memories").fetchone()
    assert row is not None
    assert row[0] == row[1] <= len(facts)
    found = db.execute(
        "select subject, count(*) filter (where status = 'active') from memories where subject is not null group by 1"
    ).fetchall()
    assert {count for _, count in found} == {1}
    check(db)


def test_the_winner_of_a_judged_contradiction_is_stated_again(db: DB) -> None:
    """It is a value of a timeline, though it has no predicate: a batch cannot simply add to it, nor wait indefinitely."""
    model(db)
    ingest(db, "The box is held", subject="box", observed_at="2025-01-01", **vector(1.0))
    winner = ingest(db, "The box is held there", subject="box", observed_at="2025-01-02", **vector(0.88))
    assert answer(db, "contradiction", 0.9)[2] == "superseded"
    texts = [
        {"content": "the box is held there", "subject": "box"},
        {"content": "The box is held", "subject": "box"},
    ]
    rows = db.execute(
        "select action, memory_id, sqlstate from memfold.ingest_memories(%s, 'acme')", [json.dumps(texts)]
    ).fetchall()
    assert [(action, sqlstate) for action, _, sqlstate in rows] == [("merged", None), ("superseded", None)]
    assert rows[0][1] == winner.memory_id
    check(db)


def test_a_replaced_model_refuses_its_own_candidates_alone(db: DB) -> None:
    """Neither a candidate that is refused for it nor a replay of one from before keeps the others out."""
    model(db)
    before = {
        "content": "Ann likes tea",
        "idempotency_key": "k",
        "embedding": [1, 0, 0, 0],
        "embedding_model": "m",
    }
    query = "select event_id, action, sqlstate from ingest_memories(%s, 'acme')"
    [first] = db.execute(query, [Jsonb([before])]).fetchall()
    model(db, "n")
    db.execute("select attach_embedding(memory_id, '[1, 0, 0, 0]', 'n', 'acme') from memories")
    db.execute("select replace_embedding_model('m', 'n')")
    refused = {**before, "content": "Ann likes coffee", "idempotency_key": "l"}
    fresh = {"content": "Ann likes cocoa", "embedding": [0, 1, 0, 0], "embedding_model": "n"}
    again, wrong, new = db.execute(query, [Jsonb([before, refused, fresh])]).fetchall()
    assert again == first
    assert wrong[1:] == (None, "MF047")
    assert new[1:] == ("inserted", None)


def test_a_turn_that_states_a_fact_twice_is_of_the_first_statement(db: DB) -> None:
    candidates = [{"content": "Bob sings", "source_turn_ids": ["t"]}] * 3
    for _ in range(2):  # new, then known
        db.execute("select from ingest_memories(%s, 'acme')", [json.dumps(candidates)])
    assert (
        db.execute("select event_id from memory_sources").fetchall()
        == db.execute("select event_id from memory_events order by event_id limit 1").fetchall()
    )
    known = [{"content": "Bob sings", "source_turn_ids": ["u"]}] * 3
    db.execute("select from ingest_memories(%s, 'acme')", [json.dumps(known)])
    assert (
        db.execute("select event_id from memory_sources where source_turn_id = 'u'").fetchall()
        == db.execute(
            "select event_id from memory_events where source_turn_ids = '{u}' order by event_id limit 1"
        ).fetchall()
    )
