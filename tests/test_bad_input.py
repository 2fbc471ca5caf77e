"""Bad input: each cause its own SQLSTATE with DETAIL and HINT, and nothing is written."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support import check, ingest, model, vector

DB = psycopg.Connection[Any]

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("null tenant", "MF001", {"tenant_id": None}),
    ("empty tenant", "MF001", {"tenant_id": ""}),
    ("long tenant", "MF003", {"tenant_id": "t" * 1_000_000}),
    ("null bucket", "MF003", {"bucket_id": None}),
    ("empty type", "MF003", {"memory_type": ""}),
    ("long bucket", "MF003", {"bucket_id": "b" * 1_000_000}),
    ("long session", "MF003", {"session_id": "s" * 1_000_000}),
    ("long subject", "MF003", {"subject": "s" * 513}),
    ("empty subject", "MF003", {"subject": " . "}),
    ("empty object", "MF003", {"object": ""}),
    ("long key", "MF003", {"idempotency_key": "k" * 1_000_000}),
    ("empty key", "MF003", {"idempotency_key": ""}),
    ("null content", "MF004", {"content": None}),
    ("empty content", "MF004", {"content": ""}),
    ("white content", "MF004", {"content": " \n\t\u3000"}),
    ("invisible content", "MF004", {"content": "\u200b\ufeff"}),
    ("only a stop", "MF004", {"content": "。"}),
    ("10 MB content", "MF005", {"content": "x" * 10_000_000}),
    ("negative confidence", "MF006", {"source_confidence": -0.1}),
    ("confidence over 1", "MF006", {"extractor_confidence": 1.01}),
    ("confidence NaN", "MF006", {"source_confidence": float("nan")}),
    ("metadata array", "MF007", {"metadata": "[1]"}),
    ("metadata string", "MF007", {"metadata": '"x"'}),
    ("metadata null", "MF007", {"metadata": "null"}),
    ("metadata 1 MB", "MF008", {"metadata": '{"a": "' + "x" * 1_000_000 + '"}'}),
    ("origin", "MF009", {"origin": "dreamt"}),
    ("in ten minutes", "MF010", {"observed_at": "now() + 10 min"}),
    ("for ever", "MF010", {"observed_at": "infinity"}),
    ("before all time", "MF010", {"observed_at": "-infinity"}),
    ("vector without model", "MF012", {"embedding": "[1,0,0,0]"}),
    ("unknown model", "MF013", {"embedding": "[1,0,0,0]", "embedding_model": "no such"}),
    ("wrong size", "MF014", {"embedding": "[1,0,0]", "embedding_model": "m"}),
    ("zero vector", "MF015", {"embedding": "[0,0,0,0]", "embedding_model": "m"}),
    ("null turn", "MF003", {"source_turn_ids": ["a", None]}),
    ("empty turn", "MF003", {"source_turn_ids": [""]}),
    ("long turn", "MF003", {"source_turn_ids": ["t" * 1_000_000]}),
    ("too many turns", "MF016", {"source_turn_ids": [str(i) for i in range(1001)]}),
]


def rows(db: DB) -> dict[str, int]:
    tables = db.execute(
        "select relname from pg_class where relnamespace = 'memfold'::regnamespace and relkind = 'r'"
    ).fetchall()
    return {name: db.execute(f"select count(*) from memfold.{name}").fetchone()[0] for (name,) in tables}  # type: ignore[index]


@pytest.mark.parametrize("function", ["ingest_memory", "preview_memory"])
def test_refused(db: DB, function: str) -> None:
    model(db)
    ingest(db, "User likes Vim", **vector(1.0))
    before = rows(db)
    found = {}
    for name, _, arguments in CASES:
        given = {"content": "User likes tea", **arguments}
        if given.get("observed_at") == "now() + 10 min":
            given["observed_at"] = db.execute("select now() + interval '10 minutes'").fetchone()[0]  # type: ignore[index]
        with pytest.raises(psycopg.Error) as error:
            ingest(db, given.pop("content"), function=function, **given)
        found[name] = error.value.sqlstate
        assert error.value.diag.message_detail, name
        assert error.value.diag.message_hint, name
    assert found == {name: state for name, state, _ in CASES}
    assert rows(db) == before


def test_what_postgresql_itself_refuses(db: DB) -> None:
    """NaN in a vector, broken encodings: pgvector's or the server's own error, before any function is called."""
    model(db)
    before = rows(db)
    for embedding in ("[NaN,0,0,0]", "[Infinity,0,0,0]", "[]", "x"):
        with pytest.raises(psycopg.DataError):
            ingest(db, "User likes tea", embedding=embedding, embedding_model="m")
    for statement in (
        r"select ingest_memory(E'a\u0000b', 'acme')",
        r"select ingest_memory(E'a\ud800b', 'acme')",
        r"select ingest_memory(convert_from('\xff', 'UTF8'), 'acme')",
    ):
        with pytest.raises(psycopg.Error):
            db.execute(statement)
    assert rows(db) == before


def test_limits_are_policy(db: DB) -> None:
    db.execute("select set_policy('acme', max_content_length => 10, max_metadata_size => 20)")
    with pytest.raises(psycopg.Error) as error:
        ingest(db, "eleven char")
    assert error.value.sqlstate == "MF005"
    with pytest.raises(psycopg.Error) as error:
        ingest(db, "ten chars", metadata={"key": "a long value"})
    assert error.value.sqlstate == "MF008"
    assert ingest(db, "ten chars.").action == "inserted"


@pytest.mark.parametrize(
    ("call", "state"),
    [
        ("set_policy('acme', dedup => 'maybe')", "MF017"),
        ("set_policy('acme', preset => 'none')", "MF017"),
        ("set_policy('acme', key_fields => '{object}')", "MF017"),
        ("set_policy('acme', weights => '{1,1,1}')", "MF017"),
        ("set_policy('acme', merge_threshold => 2)", "MF017"),
        ("set_policy('acme', decay_interval => '2000000000 months')", "MF017"),
        ("set_policy('acme', canonicalizer => 'poem')", "MF011"),
        ("set_policy('acme', canonicalizer => 'flat')", "MF024"),
        ("set_policy('*', canonicalizer => 'flat')", "MF024"),
        ("set_policy(null)", "MF001"),
        ("set_policy('acme', '')", "MF003"),
        ("set_predicate('acme', 'p', 'few')", "MF017"),
        ("set_predicate('acme', '')", "MF003"),
        ("register_embedding_model('m', 5)", "MF023"),
        ("register_embedding_model('n', 0)", "MF017"),
        ("register_embedding_model('n', 4, 0.5, 0.9)", "MF017"),
        ("register_embedding_model('', 4)", "MF003"),
        ("known_memory('', 'acme')", "MF004"),
        ("find_similar('acme', 'default', null, 'm')", "MF022"),
        ("find_similar('acme', 'default', '[1,0,0,0]', 'm', max_results => 0)", "MF022"),
        ("find_similar('acme', 'default', '[1,0,0]', 'm')", "MF014"),
        ("search_memories('acme', 'default', '[1,0,0,0]', 'm', 9223372036854775807)", "MF022"),
        ("attach_embedding(gen_random_uuid(), '[1,0,0,0]', 'm', 'acme')", "MF018"),
        ("attach_embedding(gen_random_uuid(), null, 'm', 'acme')", "MF022"),
        ("explain_memory(gen_random_uuid(), 'acme')", "MF018"),
        ("pending_embeddings()", "MF001"),
        ("collect_pairs('acme', null, 'm', min_age => '2000000000 months')", "MF022"),
        ("prune_memories('acme', 'default', unused_for => '2000000000 months')", "MF022"),
        ("pending_embeddings('acme', max_results => -1)", "MF022"),
    ],
)
def test_other_functions(db: DB, call: str, state: str) -> None:
    model(db)
    ingest(db, "User likes Vim")
    before = rows(db)
    with pytest.raises(psycopg.Error) as error:
        db.execute(f"select {call}")
    assert (error.value.sqlstate, bool(error.value.diag.message_hint)) == (state, True)
    assert error.value.diag.message_detail
    assert rows(db) == before


def test_what_a_call_of_a_judge_costs(db: DB) -> None:
    """Of each so little that the sum of all attempts is a number too."""
    model(db)
    ingest(db, "User likes Vim", **vector(1.0))
    ingest(db, "User likes Vi", **vector(0.9))
    judgement = db.execute("select judgement_id from judgements").fetchone()
    assert judgement is not None
    for cost in (
        "input_tokens => 9223372036854775807",
        "output_tokens => -1",
        "cost => 1e308",
        "cost => 'NaN'",
    ):
        for call in ("fail_judgement(%s, 'e'", "resolve_judgement(%s, 'distinct'"):
            with pytest.raises(psycopg.Error) as error:
                db.execute(f"select {call}, {cost}, tenant_id => 'acme')".encode(), judgement)
            assert error.value.sqlstate == "MF028", cost
    for wait in ("-1 second", "2000000000 days"):
        with pytest.raises(psycopg.Error) as error:
            db.execute(
                f"select fail_judgement(%s, 'e', retry_after => '{wait}', tenant_id => 'acme')".encode(),
                judgement,
            )
        assert error.value.sqlstate == "MF028", wait


def test_a_plain_row_is_superseded(db: DB) -> None:
    """It has no counters yet: the person's word comes before upkeep."""
    for text in ("User likes Vim", "User likes Emacs"):
        db.execute("insert into memfold.memories (tenant_id, content) values ('acme', %s)", [text])
    found = db.execute(
        "select (supersede_memory(min(memory_id::text)::uuid, max(memory_id::text)::uuid, tenant_id => 'acme'))"
        ".action from memories"
    ).fetchone()
    assert found == ("superseded",)
    check(db)


def test_next_to_nothing(db: DB) -> None:
    """The least number above 0, wherever it is allowed: a product of two would underflow, which is an error."""
    model(db)
    db.execute(
        "select set_policy('acme', rank_confidence => 4.9e-324, rank_feedback => 4.9e-324, decay_rate => 4.9e-324,"
        " decay_floor => 4.9e-324, decay_interval => '0', weights => '{1,4.9e-324,4.9e-324}')"
    )
    for confidence in (4.9e-324, 1e-200, 1.0):
        for day in ("2025-01-01", "4713-01-01 BC"):
            ingest(
                db, f"{confidence} {day}", source_confidence=confidence, extractor_confidence=confidence,
                observed_at=day, **vector(1.0),
            )  # fmt: skip
    texts = db.execute("select memory_id, confidence from current_memories('acme')").fetchall()
    assert texts
    assert all(confidence <= 1 for _, confidence in texts)
    found = db.execute(
        "select memory_id from search_memories('acme', 'default', '[1,0,0,0]', 'm')"
    ).fetchall()
    assert found
    db.execute("select count(*) from prune_memories('acme', 'default', unused_for => '0')")
    db.execute("select * from apply_decay('acme')")
    db.execute("select set_policy('acme', weights => '{4.9e-324,0,1}')")
    for memory_id, _ in texts:
        effective = db.execute("select effective_confidence(%s, tenant_id => 'acme')", [memory_id]).fetchone()
        assert effective is not None
        assert 0 <= effective[0] <= 1
    check(db)
