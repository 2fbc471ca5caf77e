"""All ways of submitting a candidate decide alike: the same outcome, the same SQLSTATE, the same rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from memfold import Memfold, MemfoldError
from tests.support.batches import at_once, state
from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB

Candidate = dict[str, Any]
# Python: the tests of the SQL functions cover each server.
pytestmark = pytest.mark.one_server

WHEN = "2025-01-01T00:00:00+00:00"
NOW = datetime.now(UTC)
NEAR, AWAY = [1.0, 0.2, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]
# times that PostgreSQL has and a datetime cannot hold
BEYOND = ("0002-01-01 00:00:00+00 BC", "10000-01-01 00:00:00+00", "-infinity", "infinity")

POLICIES = {
    "default": "on_ambiguous => 'judge'",
    "off": "dedup => 'off'",
    "flat": "canonicalizer => 'flat'",
    "code": "canonicalizer => 'code', scope => 'bucket'",
    "exact": "canonicalizer => 'exact', guard => 'off'",
    "first": "preset => 'hash_first'",
    "content": "key_fields => '{}'",
    "keys": "metadata_keys => '{v,w}'",
    "words": "lexical_threshold => 0.5, scope => 'bucket', on_ambiguous => 'insert'",
    "robot": "preset => 'robotics'",
    "newer": "preset => 'replace_newer'",
    "store": "preset => 'store_and_load'",
    "session": "max_session_repeats => 2",
    "small": "max_content_length => 20, max_metadata_size => 20",
    "long": "max_content_length => 9000",
    "review": "conflict => 'review', on_merge => 'synthesise'",
}


def numbers() -> Iterator[tuple[str, list[Candidate]]]:
    """Values for each field, at its bounds and beyond them."""
    for field in (
        "bucket_id",
        "memory_type",
        "subject",
        "predicate",
        "object",
        "session_id",
        "idempotency_key",
    ):
        values = [
            "",
            " ",
            ".",
            "*",
            "!x",
            "x" * 512,
            "x" * 513,
            "ü" * 256,
            "ü" * 257,
            "日" * 170,
            "日" * 171,
            "\u200b",
            "O'x\\",
        ]
        yield field, [{field: value} for value in values]
    yield "content", [
        {"content": content}
        for content in (
            "", " ", ".", "。", "\u200b", "x", "*", "\\", "x" * 8192, "x" * 8193, "x" * 100_000, "x" * 100_001,
            "é" * 50_000, "é" * 50_001, "a" + "\u0301" * 30, "a" + "\u0301" * 31, "a" + "\u0301\u0316" * 40, "\u0f73" * 31,
            "a\u0301" * 40, "ﷺ" * 40, "\U0001f468\u200d\U0001f469", "a\x01b", "one\ntwo\r\nthree", "10⁵", "½",
        )
    ]  # fmt: skip
    yield (
        "confidence",
        [
            {field: value}
            for field in ("source_confidence", "extractor_confidence")
            for value in (0, 1, 5e-324, -5e-324, -0.1, 1.0000001, float("nan"), float("inf"))
        ],
    )
    yield (
        "origin",
        [{"origin": origin} for origin in ("observed", "inferred", "recalled", "Observed", "", "*")],
    )
    yield "metadata", [
        {"metadata": metadata, "bucket_id": bucket}
        for bucket in ("default", "keys", "small")
        for metadata in (
            {}, {"v": 1}, {"v": 1.0}, {"v": {"a": [1.50, "1.50"]}}, {"v": {"a": [1.5, "1.50"]}}, {"w": None}, {"x": "1"},
            {"v": 1e2}, {"v": 100}, {"v": "x" * 99_980}, {"v": "x" * 99_995}, {"é": "日"},
        )
    ]  # fmt: skip
    yield "odd metadata", [{"metadata": metadata} for metadata in ([], [1], "x", 1, True)]
    yield "turns", [
        {"source_turn_ids": turns}
        for turns in (
            [], ["a"], ["a", "a"], ["b", "a", "c"], [""], ["a", ""], ["x" * 512], ["x" * 513], ["*"],
            [str(i) for i in range(1000)], [str(i) for i in range(1001)], ["a"] * 1001,
        )
    ]  # fmt: skip
    yield "times", [
        {"observed_at": when}
        for when in (
            "1970-01-01T00:00:00+00:00", "0001-01-01T00:00:00+00:00", (NOW + timedelta(minutes=4)).isoformat(),
            (NOW + timedelta(hours=1)).isoformat(), "2025-06-01T12:00:00.123456+05:45", *BEYOND,
        )
    ]  # fmt: skip
    yield "embeddings", [
        {**text, "embedding": embedding, "embedding_model": name}
        for text in ({}, {"content": "User enjoys tea"}, {"content": "User likes oolong", "subject": "Ann"})
        for name, embedding in (
            ("m", NEAR), ("m", AWAY), ("m", [0.0] * 4), ("m", [1e-38] * 4), ("m", [3e38] * 4), ("m", [1.0] * 3),
            ("m", [1.0] * 5),
            ("m", None), (None, NEAR), ("none", NEAR), ("none", None), ("old", NEAR), ("old", None), ("old", [1.0] * 3),
            ("old", [0.0] * 4), ("m2", [1.0, 0.0]), ("m2", NEAR), ("", NEAR), ("*", NEAR), ("M", NEAR),
        )
    ]  # fmt: skip


def decided() -> Iterator[tuple[str, list[Candidate]]]:
    """Candidates for buckets of every kind: the same, nearly the same, an opposite, another value."""
    for bucket in POLICIES:
        yield f"bucket {bucket}", [
            {"bucket_id": bucket, **one}
            for one in (
                {"content": "User likes tea", "embedding": NEAR, "embedding_model": "m"},
                {"content": "user LIKES tea!", "session_id": "s", "source_turn_ids": ["1"]},
                {"content": "user LIKES tea!", "session_id": "s", "source_turn_ids": ["2"], "metadata": {"v": 1.0, "a": 2}},
                {"content": "user LIKES tea!", "session_id": "s"},
                {"content": "User enjoys tea", "embedding": [1.0, 0.21, 0.0, 0.0], "embedding_model": "m"},
                {"content": "User enjoys tea", "origin": "recalled"},
                {"content": "User never likes tea", "embedding": [1.0, 0.22, 0.0, 0.0], "embedding_model": "m"},
                {"content": "Tea is liked", "embedding": [1.0, 0.7, 0.0, 0.0], "embedding_model": "m",
                "memory_type": "preference"},
                {"content": "Tea is liked", "embedding": [1.0, 0.75, 0.0, 0.0], "embedding_model": "m"},
                {"content": "Ann lives in Rome", "subject": "Ann", "predicate": "lives_in", "object": "Rome"},
                {"content": "Ann lives in Bonn", "subject": "Ann", "predicate": "lives_in", "object": "Bonn",
                 "observed_at": "2025-02-01T00:00:00+00:00"},
                {"content": "Ann lived in Oslo", "subject": "Ann", "predicate": "lives_in", "object": "Oslo",
                 "observed_at": "2024-02-01T00:00:00+00:00"},
                {"content": "Ann lives in Rome", "subject": "Ann", "predicate": "lives_in", "object": "Rome",
                 "observed_at": "2025-03-01T00:00:00+00:00"},
            )
        ]  # fmt: skip
    yield "keys", [
        {"idempotency_key": key, **one}
        for key in ("k1", "k2")
        for one in (
            {"content": "User has a key"}, {"content": "User has a key", "observed_at": "2025-05-05T00:00:00+00:00"},
            {"content": "User has a key", "embedding": NEAR, "embedding_model": "m"}, {"content": "User has a lock"},
            {"content": "User has a key", "subject": "Ann"}, {"content": ""}, {"content": "User has a key",
            "source_confidence": 2},
            {"content": "User has a key", "embedding": NEAR, "embedding_model": "old"}, {"content": "User has a key",
            "metadata": {"v": 1}},
            {"content": "User has a key", "bucket_id": "off"},
        )
    ]  # fmt: skip
    # last, because a batch with one of them is ingested one by one
    yield "validity", [
        {"content": "Ann is away", **one}
        for one in (
            {"valid_until": "2025-02-01T00:00:00+00:00"}, {},
            {"valid_until": WHEN, "valid_from": "2024-01-01T00:00:00+00:00"},
            {"origin": "recalled"}, {"valid_from": WHEN, "valid_until": WHEN},
            {"observed_at": "2024-06-01T00:00:00+00:00", "valid_from": WHEN}, {"observed_at": "2025-06-01T00:00:00+00:00"},
            *({field: when} for field in ("valid_from", "valid_until") for when in BEYOND),
            {"valid_from": "2024-01-01T00:00:00+05:45", "embedding": AWAY, "embedding_model": "m",
             "content": "Ann is at sea"},
        )
    ]  # fmt: skip


def candidates() -> list[Candidate]:
    found = []
    for part, listed in (*numbers(), *decided()):
        for number, one in enumerate(listed):
            text = one.get("content", f"{part} {number} is told")
            made = {"observed_at": WHEN, **one, "content": text}
            found.append({name: value for name, value in made.items() if value is not None})
    return found


ALL = candidates()
_LAST = next(i for i, one in enumerate(ALL) if "valid_until" in one)
BATCHES = (ALL[:_LAST], ALL[_LAST:])

# The ways -------------------------------------------------------------------------------------------------------------


def told(row: Any) -> list[Any]:
    """action, tier, method, similarity, SQLSTATE."""
    return [row[0], row[2], row[3], row[4], row[9]]


def refused(sqlstate: str | None, detail: str | None, hint: str | None) -> list[Any]:
    """An error says what was wrong and what to do."""
    assert detail, sqlstate
    assert hint, sqlstate
    return [None] * 4 + [sqlstate]


def as_argument(name: str, value: Any) -> Any:
    if name == "metadata":
        return Jsonb(value)
    return json.dumps(value) if name == "embedding" else value


def call(db: DB, function: str, tenant: str, candidate: Candidate) -> list[Any]:
    arguments = {name: as_argument(name, value) for name, value in candidate.items()}
    named = ", ".join(f"{name} => %({name})s" for name in arguments)
    try:
        with db.transaction():
            row = db.execute(
                f"select * from {function}({named}, tenant_id => %(tenant)s)".encode(),
                {**arguments, "tenant": tenant},
            ).fetchone()
    except psycopg.Error as error:
        return refused(error.sqlstate, error.diag.message_detail, error.diag.message_hint)
    assert row is not None
    return told([*row, None])


def readable(candidate: Candidate) -> Candidate:
    """JSON has no NaN, but as a string it is read."""
    return {k: str(v) if isinstance(v, float) and not -9 < v < 9 else v for k, v in candidate.items()}


def one_by_one(db: DB, tenant: str) -> list[Any]:
    """Single calls, each after its preview, which must predict the result."""
    found = []
    for number, one in enumerate(ALL):
        preview = call(db, "preview_memory", tenant, one)
        found.append(call(db, "ingest_memory", tenant, one))
        assert preview == found[-1], (number, one)
    return found


def in_batches_of_one(db: DB, tenant: str) -> list[Any]:
    return [told(at_once(db, tenant, [readable(one)])[0]) for one in ALL]


def in_batches_of_one_vectors_apart(db: DB, tenant: str) -> list[Any]:
    return [told(at_once(db, tenant, [readable(one)], apart=True)[0]) for one in ALL]


def in_a_batch(db: DB, tenant: str) -> list[Any]:
    return [told(row) for batch in BATCHES for row in at_once(db, tenant, [readable(one) for one in batch])]


def in_a_batch_vectors_apart(db: DB, tenant: str) -> list[Any]:
    return [
        told(row)
        for batch in BATCHES
        for row in at_once(db, tenant, [readable(one) for one in batch], apart=True)
    ]


TIMES = ("observed_at", "valid_from", "valid_until")
PYTHON = [n for n, one in enumerate(ALL) if not any(one.get(name) in BEYOND for name in TIMES)]


def for_python(number: int) -> Candidate:
    return {k: datetime.fromisoformat(v) if k in TIMES else v for k, v in ALL[number].items()}


def by_client(client: Memfold, tenant: str) -> list[Any]:
    found = []
    for number in PYTHON:
        try:
            r = client.ingest(tenant_id=tenant, **for_python(number))
            found.append([r.action, r.tier, r.method, r.similarity, None])
        except MemfoldError as error:
            found.append(refused(error.sqlstate, error.detail, error.hint))
    return found


def by_client_in_batches(client: Memfold, tenant: str) -> list[Any]:
    found = []
    for item in client.ingest_many(
        [for_python(number) for number in PYTHON], tenant_id=tenant, batch_size=100
    ):
        r, error = item.result, item.error
        if r is None:
            assert error is not None
            found.append(refused(error.sqlstate, error.detail, error.hint))
        else:
            found.append([r.action, r.tier, r.method, r.similarity, None])
    return found


SQL_WAYS: dict[str, Callable[[DB, str], list[Any]]] = {
    "single": one_by_one, "batches of one": in_batches_of_one, "batch": in_a_batch,
    "batches of one, vectors apart": in_batches_of_one_vectors_apart, "batch, vectors apart": in_a_batch_vectors_apart,
}  # fmt: skip
CLIENT_WAYS: dict[str, Callable[[Memfold, str], list[Any]]] = {
    "client": by_client, "client in batches": by_client_in_batches,
}  # fmt: skip


def prior(db: DB, tenant: str) -> None:
    """The initial state for every way: rules, an alias, a tombstone, a superseded memory."""
    for bucket, options in POLICIES.items():
        db.execute(f"select set_policy(%s, %s, {options})".encode(), [tenant, bucket])
    db.execute("select set_predicate('lives_in', %s)", [tenant])
    given: dict[str, Any] = {"tenant_id": tenant, "observed_at": "2024-12-01"}
    kept = ingest(db, "User likes coffee", **given, **vector(0.0))
    ingest(db, "User likes coffee a lot", **given, **vector(0.001))
    gone = ingest(db, "x", **given)
    db.execute("select reject_memory(%s, tenant_id => %s)", [gone.memory_id, tenant])
    other = ingest(db, "\\", **given)
    db.execute("select supersede_memory(%s, %s, tenant_id => %s)", [other.memory_id, kept.memory_id, tenant])


def rows(db: DB, tenant: str) -> dict[str, list[Any]]:
    """Every row of a tenant, without what the clock says."""

    def still(value: Any) -> Any:
        if isinstance(value, datetime) and value > NOW - timedelta(days=1):
            return "now"
        return value

    found = state(db, tenant)
    found.pop("keys")  # a client's batch has one of its own
    return {
        # last_event is a floor under the next id: a derivation may leave it higher than an addition does
        part: [{name: still(value) for name, value in row.items() if name != "last_event"} for row in listed]
        for part, listed in found.items()
    }


@pytest.mark.promise
def test_every_way_decides_alike(db: DB, dsn: str) -> None:
    assert len(ALL) >= 300
    model(db)
    db.execute(
        "select register_embedding_model('m2', 2, 0.92, 0.85), register_embedding_model('old', 4, 0.92, 0.85)"
    )
    db.execute("select replace_embedding_model('old', 'm')")
    found: dict[str, list[Any]] = {}
    with Memfold(dsn) as client:
        for name in (*SQL_WAYS, *CLIENT_WAYS):
            prior(db, name)
            found[name] = SQL_WAYS[name](db, name) if name in SQL_WAYS else CLIENT_WAYS[name](client, name)
    wrong = [
        (name, number, str(ALL[number])[:200], outcome, found["single"][number])
        for name in found
        for number, outcome in zip(range(len(ALL)) if name in SQL_WAYS else PYTHON, found[name], strict=True)
        if outcome != found["single"][number]
    ]
    assert wrong == []
    expected_rows = rows(db, "single")
    for name in found:
        own = rows(db, name)
        assert [len(own[part]) for part in own] == [len(expected_rows[part]) for part in own], name
        for part in own:
            assert own[part] == expected_rows[part], (name, part)
    seen = Counter(outcome[0] or outcome[4] for outcome in found["single"])
    assert set(seen) >= {
        "inserted", "merged", "replaced", "superseded", "escalated", "historical", "rejected", "MF003", "MF004", "MF005",
        "MF006", "MF007", "MF008", "MF009", "MF010", "MF012", "MF013", "MF014", "MF015", "MF016", "MF047", "MF055",
        "MF061", "MF062", "MF065",
    }  # fmt: skip
    check(db)
