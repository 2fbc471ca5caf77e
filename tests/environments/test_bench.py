"""Each question of the bench runs to its end, with minimal sizes."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import labelled_queries, servers

pytestmark = pytest.mark.one_server

BENCH = Path(__file__).parents[2] / "bench"
TEXTS = 1_200

# By module: what makes the question small.
SIZES: dict[str, dict[str, Any]] = {
    "replay": {"FACTS": 40, "CALLS": 5},
    "newfact": {"SUBJECTS": 10, "POOL": 200, "CALLS": 5},
    "growth": {"SIZES": (400, 800), "TENANT": 40, "HITS": 5, "DECISIONS": 5, "WIDE": 5, "RECALL": 5},
    "batch": {"ROWS": 20, "FACTS": 40, "SUBJECTS": 10},
    "hot": {"CALLS": 10, "WRITERS": 4, "SECONDS": 1, "CROWDS": (4,), "CROWD_SECONDS": 1},
    "slot": {"SIZES": (10, 20), "CALLS": 2},
    "calls": {"SIZES": (100, 200), "FACTS": 60, "FIRST": 2, "LATER": 4},
    "memory": {"EVERY": 0.05},
    "search": {"SMALL": (200, 400), "QUERIES": 3, "RECALL": 3},
    "recall": {"QUERIES": 3, "BUCKETS": 3, "SIZE": 50, "WRITES": 5, "EXACT": 200},
    "consolidation": {"MERGES": 20, "TOLD": 200, "LATER": 60, "QUIET": 0.2},
    "erasure": {"OTHERS": 400, "MERGES": 20, "QUIET": 0.2},
    "soak": {"FACTS": 200, "SLOTS": 20, "FAINT": 10, "SESSIONS": 2},
    "sizing": {"CALLS": 5, "BATCH": 20},
    "storage": {"DIMENSIONS": (384,), "ROWS": 50, "CALLS": 3},
    "isolation": {"CALLS": 5, "BATCHES": 1, "SEARCHES": 1},
}
ASKED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "replay": lambda ask, server, _: ask(server, rounds=1, seconds=0),
    "newfact": lambda ask, server, data: ask(server, data, rounds=1, seconds=0),
    "growth": lambda ask, server, data: ask(server, data, rounds=1, memories=800),
    "batch": lambda ask, server, _: ask(server, rounds=1),
    "hot": lambda ask, server, _: ask(server, rounds=1, merges=200),
    "slot": lambda ask, server, _: ask(server),
    "calls": lambda ask, server, _: ask(server),
    "adoption": lambda ask, server, _: ask(server, rounds=1, rows=500),
    "memory": lambda ask, server, _: ask(server, rows=3000),
    "search": lambda ask, server, data: ask(server, data, rounds=1, memories=800),
    "recall": lambda ask, server, _: ask(server, rounds=1, memories=300),
    "consolidation": lambda ask, server, data: ask(server, data, memories=400),
    "erasure": lambda ask, server, data: ask(server, data, memories=500),
    "soak": lambda ask, server, data: ask(server, data, minutes=0.03, facts=200),
    "sizing": lambda ask, server, _: ask(server, rows=40),
    "storage": lambda ask, server, _: ask(server, rounds=1),
    "isolation": lambda ask, server, data: ask(server, data, rounds=1),
}
# Questions that need servers or packages that the suite does not have.
ELSEWHERE = {"language", "peers"}


@pytest.fixture(scope="module")
def bench() -> Iterator[Callable[[str], Any]]:
    """Imports a module of the bench."""
    before = set(sys.modules)
    sys.path.insert(0, str(BENCH))
    yield importlib.import_module
    sys.path.remove(str(BENCH))
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCH)):
            del sys.modules[name]


@pytest.fixture(scope="module")
def server(bench: Callable[[str], Any]) -> Iterator[Any]:
    harness = bench("harness")
    # the cost of a commit on disk is not measured here
    harness.PLACE = servers.place()
    with harness.server() as running:
        yield running


@pytest.fixture(scope="module")
def data(bench: Callable[[str], Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("dataset")
    vectors = np.random.default_rng(1).standard_normal((TEXTS, 384), dtype=np.float32)
    np.save(place / "vectors.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    (place / "texts.txt").write_text("".join(f"tool number {n} for this and that\n" for n in range(TEXTS)))
    (place / "dataset.json").write_text(json.dumps({"model": "random"}))
    return bench("dataset").Dataset(place)


@pytest.mark.parametrize("question", ASKED)
def test_each_question_runs(
    question: str, bench: Callable[[str], Any], server: Any, data: Any, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    for module, sizes in SIZES.items():
        for name, value in sizes.items():
            monkeypatch.setattr(bench(module), name, value)
    monkeypatch.setattr(labelled_queries, "MOST", 4)
    report = ASKED[question](bench(question).run, server, data)
    monkeypatch.setattr(bench("harness"), "RESULTS", tmp_path)
    report.write({"size": "tiny"})
    assert report.sections
    assert (tmp_path / f"{report.question}.md").read_text().startswith(f"# {report.title}")
    assert json.loads((tmp_path / f"{report.question}.json").read_text())["environment"] == {"size": "tiny"}


def test_every_question_is_asked_here(bench: Callable[[str], Any]) -> None:
    helped = subprocess.run(
        [sys.executable, BENCH / "run.py", "nothing"], capture_output=True, text=True, check=False
    )
    assert helped.returncode == 2
    named = set(helped.stderr.partition("there are ")[2].strip().split(", "))
    assert named == {"adopt", *ASKED, *ELSEWHERE} - {"adoption"}


# Five lines in the form of HaluMem's stage3_2_preference_events.jsonl, but what the bench does not read.
UPDATES = [
    ("Modify", ("like", "Teas I like", "Mint and sage"), ("like", "Teas I like", "Sage and mint")),
    ("Modify", ("like", "Knots I like", "Bowline"), ("like", "Knots I like", "Sheet bend")),
    ("Modify", ("dislike", "Games I dislike", "Darts"), ("like", "Games I like", "Darts")),
    ("Modify", ("like", "Birds I like", "Robins"), ("like", "Birds I like", "Robins")),
    ("Delete", ("like", "Boats I like", "Punts"), ("like", "Boats I like", "Punts")),
]
NEAR = {"Teas I like: Mint and sage": 0, "Teas I like: Sage and mint": 15, "Knots I like: Bowline": 0}
NEAR |= {"Knots I like: Sheet bend": 60, "Games I dislike: Darts": 0, "Games I like: Darts": 28}


class Degrees:
    """Vectors of two dimensions at these angles."""

    model = "degrees"

    def embed(self, texts: list[str]) -> list[list[float]]:
        return [[math.cos(math.radians(NEAR[text])), math.sin(math.radians(NEAR[text]))] for text in texts]


def written_updates(path: Path) -> Path:
    def side(type_: str, description: str, item: str) -> dict[str, Any]:
        point = {"type": type_, "type_description": description, "specific_item": item, "reason": "It is so."}
        return {"memory_points": [point]}

    lines = []
    for number, (direction, before, after) in enumerate(UPDATES):
        event = {"event_id": 1, "preference_type": "A preference", "update_direction": direction}
        event |= {"before_preference": side(*before), "after_preference": side(*after), "changed_index": 0}
        lines.append(json.dumps({"uuid": str(number), "event_list": [event]}))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_updates_are_counted(bench: Callable[[str], Any], server: Any, tmp_path: Path) -> None:
    updates = bench("updates")
    report = updates.run(server, written_updates(tmp_path / "events.jsonl"), Degrees())
    assert report.sections[0].startswith("Extraction is given")
    assert (
        "1 where nothing takes the place of what was, 1 where only the reason changes" in report.sections[-1]
    )

    def outcomes(correct: int = 0, merged: int = 0, asked: int = 0, unnoticed: int = 0) -> dict[str, int]:
        return dict(zip(updates.OUTCOMES, (correct, merged, asked, unnoticed), strict=True))

    assert [list(found.values()) for found in report.data.values()] == [
        [outcomes(merged=1, unnoticed=1), outcomes(merged=1, unnoticed=1), outcomes(correct=2)],
        [outcomes(asked=1), outcomes(asked=1), outcomes(correct=1)],
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no update"),
        ("{}\n", "line 1: KeyError: 'event_list'"),
        ('{"event_list": []}\nnonsense\n', "line 2: JSONDecodeError"),
    ],
)
def test_updates_say_what_is_wrong(text: str, said: str, bench: Callable[[str], Any], tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(text)
    updates = bench("updates")
    with pytest.raises(updates.DataError, match=f"^events.jsonl.*{said}"):
        updates.read(path)


class Words:
    """Vectors made from a text's words: paraphrases of a fact are near it, other facts are not."""

    model = "words"

    def embed(self, texts: list[str]) -> list[list[float]]:
        made = []
        for text in texts:
            vector = [0.01] * 64
            for word in text.lower().split():
                vector[int(hashlib.sha256(word.encode()).hexdigest(), 16) % 64] += 1.0
            made.append(vector)
        return made


def test_links_bring_a_store_near_one_with_a_single_name(bench: Callable[[str], Any], server: Any) -> None:
    names = bench("names")
    report = names.run(server, Words(), sessions=30)
    seen = {store: marks[-1][0] for store, marks in report.data["stores"].items()}
    ideal, left, linked = seen["one name from the start"], seen["no links"], seen["linked at half-time"]
    assert report.data["facts"] <= ideal <= linked < left
    assert report.data["links"] > 5
    assert names.people_of("Anna") == {"Anna Schmidt", "Anna Novak"}
    assert not names.is_one("subject", "Anna", "Anna Schmidt")
    assert names.is_one("subject", "my boss", "Georg Maier")


def test_peers_say_what_they_need(bench: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    peers = bench("peers")
    monkeypatch.setattr(peers, "missing", lambda: ["mem0"])
    with pytest.raises(peers.MissingError, match=r"not installed: mem0 \(pip install mem0ai"):
        peers.run(None, None, rounds=1, facts=1)


BEFORE = """
import importlib, sys
import pgvector, pgvector.psycopg
vector = pgvector.Vector
del pgvector.Vector
import types
utils = types.ModuleType("pgvector.utils")
utils.Vector = vector
sys.modules["pgvector.utils"] = utils
sys.path.insert(0, sys.argv[1])
import run
import batch
assert batch.Vector is vector
"""


def test_with_an_older_pgvector() -> None:
    """langchain-postgres asks for one before 0.4, whose Vector is elsewhere."""
    done = subprocess.run(
        [sys.executable, "-c", BEFORE, BENCH], cwd=BENCH.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("script", ["citus", "adopting_peers"])
def test_scripts_of_their_own_are_read(script: str) -> None:
    """They need servers or packages that are missing here."""
    code = f"import sys; sys.path.insert(0, sys.argv[1]); import {script}"
    done = subprocess.run([sys.executable, "-c", code, BENCH], capture_output=True, text=True, check=False)
    needed = {"adopting_peers": ("langchain_core", "langchain_postgres", "mem0")}.get(script, ())
    lacking = next((f"No module named '{name}'" for name in needed if find_spec(name) is None), "")
    assert lacking in done.stderr
    assert (done.returncode == 0) == (not lacking), done.stderr
