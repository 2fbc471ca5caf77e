"""Bad input: each cause its own SQLSTATE with DETAIL and HINT, and nothing is written."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tests.conftest import Connect
from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("null tenant", "MF001", {"tenant_id": None}),
    ("empty tenant", "MF001", {"tenant_id": ""}),
    ("long tenant", "MF003", {"tenant_id": "t" * 1_000_000}),
    ("everyone's tenant", "MF003", {"tenant_id": "*"}),
    ("any bucket", "MF003", {"bucket_id": "*"}),
    ("any type", "MF003", {"memory_type": "*"}),
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
    ("before Christ", "MF010", {"observed_at": "0002-01-01 BC"}),
    ("an empty validity", "MF065", {"valid_from": "2025-01-02", "valid_until": "2025-01-02"}),
    ("valid for ever", "MF065", {"valid_until": "infinity"}),
    ("valid beyond 9999", "MF065", {"valid_until": "10000-01-01 00:00:00+00"}),
    ("valid before Christ", "MF065", {"valid_from": "4713-01-01 BC"}),
    ("vector without model", "MF012", {"embedding": "[1,0,0,0]"}),
    ("unknown model", "MF013", {"embedding": "[1,0,0,0]", "embedding_model": "no such"}),
    ("wrong size", "MF014", {"embedding": "[1,0,0]", "embedding_model": "m"}),
    ("replaced model", "MF047", {"embedding": "[1,0,0,0]", "embedding_model": "replaced"}),
    ("replaced model alone", "MF047", {"embedding_model": "replaced"}),
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
def test_bad_candidates_are_refused(db: DB, function: str) -> None:
    model(db)
    model(db, "replaced")
    db.execute("select replace_embedding_model('replaced', 'm')")
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


@pytest.mark.parametrize(
    "statement",
    [
        "select ingest_memory('x', %(tenant)s)",
        """select action from ingest_memories('[{"content": "x"}]', %(tenant)s)""",
        "select count(*) from search_memories(query => 'x', tenant_id => %(tenant)s)",
        "insert into memfold.memories (tenant_id, content) values (%(tenant)s, 'x')",
    ],
)
def test_a_long_tenant_is_refused_by_every_function(db: DB, app: Connect, statement: str) -> None:
    """Even if an application has set it: nothing could maintain or erase such rows."""
    tenant = "t" * 512
    session = db if "insert" in statement else app(tenant)
    session.execute("set search_path = memfold, public")
    session.execute(statement.encode(), {"tenant": tenant})
    longer = db if "insert" in statement else app(tenant + "t")
    longer.execute("set search_path = memfold, public")
    with pytest.raises(psycopg.Error) as refused:
        longer.execute(statement.encode(), {"tenant": tenant + "t"})
    assert (refused.value.sqlstate, refused.value.diag.message_primary) == ("MF003", "tenant_id is too long")
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute(
            "insert into memories (tenant_id, content, key_fields) values (%s, 'x', 'type')", [tenant + "t"]
        )


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


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    ("told", "state"),
    [
        ({"observed_at": "0002-01-01 BC"}, "MF010"),
        ({"valid_from": "4713-01-01 BC"}, "MF065"),
        ({"valid_until": "10000-01-01 00:00:00+00"}, "MF065"),
    ],
)
def test_years_that_clients_cannot_read_in_a_batch(
    db: DB, told: dict[str, str], state: str, number: int
) -> None:
    made = [{"content": f"Fact {n}", **told} for n in range(number)]
    found = db.execute("select sqlstate from ingest_memories(%s, 'acme')", [json.dumps(made)]).fetchall()
    assert found == [(state,)] * number


def test_limits_are_policy_in_a_batch(db: DB) -> None:
    """Each follows its own limit, whatever the other one allows."""
    limits = {"long": (30, 20), "large": (20, 30)}
    made: list[dict[str, Any]] = []
    expected: list[str | None] = []
    for bucket, (length, size) in limits.items():
        db.execute(
            "select set_policy('acme', %s, max_content_length => %s, max_metadata_size => %s)",
            [bucket, length, size],
        )
        for n in (20, 21, 30, 31):
            made.append({"content": "x" * n, "bucket_id": bucket})
            expected.append("MF005" if n > length else None)
            value = "x" * (n - len('{"key": ""}'))
            made.append({"content": f"Fact {n}", "bucket_id": bucket, "metadata": {"key": value}})
            expected.append("MF008" if n > size else None)
    found = db.execute(
        "select sqlstate from ingest_memories(%s, 'acme') order by ordinal", [json.dumps(made)]
    )
    assert [row[0] for row in found] == expected


@pytest.mark.parametrize(
    ("call", "state"),
    [
        ("set_policy('acme', dedup => 'maybe')", "MF017"),
        ("set_policy('acme', preset => 'none')", "MF017"),
        ("set_policy('acme', key_fields => '{object}')", "MF017"),
        ("set_policy('acme', weights => '{1,1,1}')", "MF017"),
        ("set_policy('acme', weights => '{1,null,null}')", "MF017"),
        ("set_policy('acme', weights => '[0:2]={0.5,0.3,0.2}')", "MF017"),
        ("set_policy('acme', weights => '{{0.5,0.3,0.2}}')", "MF017"),
        ("set_policy('acme', 'other', metadata_keys => '{null}')", "MF017"),
        ("set_policy('acme', 'other', metadata_keys => '{{a,b}}')", "MF017"),
        ("set_options('acme', protected_types => '{preference,null}')", "MF017"),
        ("set_options('acme', protected_types => '{{preference}}')", "MF017"),
        ("set_policy('acme', merge_threshold => 2)", "MF017"),
        ("set_options('acme', decay_interval => '2000000000 months')", "MF017"),
        ("set_policy('acme', canonicalizer => 'poem')", "MF011"),
        ("set_policy('acme', canonicalizer => 'flat')", "MF024"),
        ("set_policy('*', canonicalizer => 'flat')", "MF024"),
        ("set_policy(null)", "MF001"),
        ("set_policy('acme', '')", "MF003"),
        ("set_predicate('p', 'acme', 'few')", "MF017"),
        ("set_predicate('', 'acme')", "MF003"),
        ("register_embedding_model('m', 5)", "MF023"),
        ("register_embedding_model('n', 0)", "MF017"),
        ("register_embedding_model('n', 4, 0.5, 0.9)", "MF017"),
        ("set_policy('acme', merge_threshold => 0.8, judge_threshold => 0.9)", "MF017"),
        ("set_policy('acme', merge_threshold => 0.8)", "MF017"),
        ("set_policy('acme', judge_threshold => 0.95)", "MF017"),
        ("set_policy('acme', preset => 'replace_newer', merge_threshold => 0.85)", "MF017"),
        ("import_bucket('[]', 'acme', '*')", "MF003"),
        ("register_embedding_model('', 4)", "MF003"),
        ("known_memory('', 'acme')", "MF004"),
        ("find_similar(null, 'm', 'acme', 'default')", "MF022"),
        ("find_similar('[1,0,0,0]', 'm', 'acme', 'default', max_results => 0)", "MF022"),
        ("find_similar('[1,0,0]', 'm', 'acme', 'default')", "MF014"),
        ("find_similar('[1,0,0,0]', 'm', 'acme', subject => 'Ann')", "MF022"),
        ("find_similar('[1,0,0,0]', 'm', 'acme', predicate => 'likes')", "MF022"),
        ("find_similar('[1,0,0,0]', 'm', 'acme', memory_type => '')", "MF003"),
        ("find_similar('[1,0,0,0]', 'm', 'acme', memory_type => 'fact', subject => '')", "MF003"),
        ("current_memories('acme', null)", "MF003"),
        ("current_memories('acme', '')", "MF003"),
        ("pending_embeddings('acme', '')", "MF003"),
        ("embed_pending('acme', '')", "MF003"),
        ("erase_source('', 'acme')", "MF003"),
        ("search_memories('[1,0,0,0]', 'm', 'acme', 'default', 9223372036854775807)", "MF022"),
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
    """Each is small enough that the sum of all attempts is a number too."""
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
    """It has no counters yet: a person acts before maintenance does."""
    for text in ("User likes Vim", "User likes Emacs"):
        db.execute("insert into memfold.memories (tenant_id, content) values ('acme', %s)", [text])
    found = db.execute(
        "select (supersede_memory(min(memory_id::text)::uuid, max(memory_id::text)::uuid, tenant_id => 'acme'))"
        ".action from memories"
    ).fetchone()
    assert found == ("superseded",)
    check(db)


def test_the_smallest_positive_numbers(db: DB) -> None:
    """The least number above 0, wherever it is allowed: a product of two would underflow, which is an error."""
    model(db)
    db.execute(
        "select set_options('acme', rank_confidence => 4.9e-324, rank_feedback => 4.9e-324, decay_rate => 4.9e-324,"
        " decay_floor => 4.9e-324, decay_interval => '0'), set_policy('acme', weights => '{1,4.9e-324,4.9e-324}')"
    )
    for confidence in (4.9e-324, 1e-200, 1.0):
        for day in ("2025-01-01", "0001-01-01 00:00:00+00"):
            ingest(
                db, f"{confidence} {day}", source_confidence=confidence, extractor_confidence=confidence,
                observed_at=day, **vector(1.0),
            )  # fmt: skip
    texts = db.execute("select memory_id, confidence from current_memories('acme')").fetchall()
    assert texts
    assert all(confidence <= 1 for _, confidence in texts)
    found = db.execute(
        "select memory_id from search_memories('[1,0,0,0]', 'm', 'acme', 'default')"
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


def test_thresholds_that_a_policy_inherits(db: DB) -> None:
    """One rule for values that a policy sets, inherits, or leaves to the embedding model."""

    def refused(call: str) -> str:
        with pytest.raises(psycopg.Error) as error:
            db.execute(f"select {call}".encode())
        assert error.value.sqlstate == "MF017"
        assert error.value.diag.message_hint
        return error.value.diag.message_detail or ""

    both = "merge_threshold is 0.8, judge_threshold 0.9."
    assert refused("set_policy('acme', merge_threshold => 0.8, judge_threshold => 0.9)") == both
    assert refused("register_embedding_model('n', 4, 0.8, 0.9)") == both
    db.execute("select set_policy('acme', merge_threshold => 0.8, judge_threshold => 0.7)")
    assert refused("set_policy('acme', 'b', judge_threshold => 0.9)") == both
    db.execute("select set_policy('acme', 'b', judge_threshold => 0.8)")
    # one alone: the other is the model's
    db.execute("select set_policy('globex', merge_threshold => 0.8)")
    model(db)
    assert refused("set_policy('initech', merge_threshold => 0.8)") == (
        "merge_threshold is '0.8', judge_threshold NULL; embedding model 'm' has 0.92 and 0.85."
    )
    assert refused("set_policy('initech', judge_threshold => 0.93)") == (
        "merge_threshold is NULL, judge_threshold '0.93'; embedding model 'm' has 0.92 and 0.85."
    )
    db.execute("select set_policy('initech', judge_threshold => 0.92)")
    db.execute("select set_policy('umbrella', merge_threshold => 0.85)")


def test_a_star_is_not_a_name(db: DB) -> None:
    """'*' means any in rules and calls of maintenance, which would not find memories in a bucket of that name."""
    for column in ("tenant_id", "bucket_id", "memory_type"):
        with pytest.raises(psycopg.Error) as error:
            db.execute(
                f"insert into memfold.memories (content, {column}) values ('x', '*')".encode()
                if column == "tenant_id"
                else f"insert into memfold.memories (tenant_id, content, {column}) values ('acme', 'x', '*')".encode()
            )
        assert error.value.sqlstate == "MF003"
    for candidate in ('{"content": "x", "bucket_id": "*"}', '{"content": "x", "memory_type": "*"}'):
        assert db.execute(
            "select sqlstate from ingest_memories(%s, 'acme')", [f"[{candidate}]"]
        ).fetchall() == [("MF003",)]
    with pytest.raises(psycopg.Error) as error:
        db.execute("select * from ingest_memories('[]', '*')")
    assert error.value.sqlstate == "MF003"
    assert db.execute("select count(*) from memories").fetchone() == (0,)


def test_numbers_in_metadata_keys(db: DB) -> None:
    """Equal numbers are one key, at any depth; strings are what they are."""
    db.execute("select set_policy('acme', metadata_keys => '{v}')")
    first = ingest(db, "Disk usage is high", metadata={"v": 1})
    same = ('{"v": 1.0}', '{"v": 1.000}', '{"v": 1e0}', '{"v": 10e-1, "w": 2}')
    for metadata in same:
        for function in ("preview_memory", "ingest_memory"):
            again = ingest(db, "Disk usage is high", metadata=metadata, function=function)
            assert (again.action, again.memory_id) == ("merged", first.memory_id), metadata
    batch = "[" + ",".join(f'{{"content": "Disk usage is high", "metadata": {m}}}' for m in same) + "]"
    assert db.execute("select distinct memory_id from ingest_memories(%s, 'acme')", [batch]).fetchall() == [
        (first.memory_id,)
    ]
    known = db.execute(
        "select memory_id from known_memory('Disk usage is high', 'acme', metadata => '{\"v\": 1.00}')"
    ).fetchone()
    assert known == (first.memory_id,)
    for other in ('{"v": "1.0"}', '{"v": 1.01}', '{"v": [1]}', '{"v": 10}', '{"v": 100.0}', "{}"):
        assert ingest(db, "Disk usage is high", metadata=other).action == "inserted", other
    deep = ingest(
        db, "deep", metadata='{"v": {"a": [1.50, {"b": -0.0, "c": "2.0", "1.0": null}], "d": 1.10}}'
    )
    assert (
        ingest(
            db, "deep", metadata='{"v": {"d": 1.1, "a": [1.5, {"c": "2.0", "b": 0, "1.0": null}]}}'
        ).memory_id
        == deep.memory_id
    )
    assert (
        ingest(db, "deep", metadata='{"v": {"d": 1.1, "a": [1.5, {"c": "2", "b": 0, "1.0": null}]}}').action
        == "inserted"
    )
    check(db)


def test_texts_of_a_batch_are_strings(db: DB) -> None:
    """JSON true is not the text "true"."""
    wrong = []
    fields = ("content", "bucket_id", "memory_type", "subject", "predicate", "object", "embedding_model",
    "session_id", "origin",
              "observed_at", "idempotency_key", "tenant_id", "source_turn_ids")  # fmt: skip
    for field in fields:
        for value in ("true", "1", "20250101", "[1]", "{}", '["a"]'):
            if field == "source_turn_ids" and value == '["a"]':
                continue
            batch = (
                f'[{{"content": "User likes tea", "{field}": {value}}}, {{"content": "User likes juice"}}]'
            )
            if field == "content":
                batch = f'[{{"content": {value}}}, {{"content": "User likes juice"}}]'
            found = db.execute(
                "select sqlstate, detail, hint from ingest_memories(%s, 'acme')", [batch]
            ).fetchall()
            if found[0][0] != "MF036" or not all(found[0]) or found[1][0] is not None:
                wrong.append((field, value, found))
    assert wrong == []
    found = db.execute(
        "select sqlstate from ingest_memories(%s, 'acme')",
        ['[{"content": "x", "source_turn_ids": ["a", "b"], "subject": null, "metadata": {"a": [1]}}]'],
    ).fetchall()
    assert found == [(None,)]
