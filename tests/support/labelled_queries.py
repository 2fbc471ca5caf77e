"""Does recall find what a query is about? 208 queries over the texts of ``tests/data/pairs.jsonl``, in five words or fifty.

Each query names one text of what it is about. All texts that pairs link with it, paraphrases, refinements and
contradictions, are right: the question is whether the topic is found among 52, not which of its versions holds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.support.queries import DB

DATA = Path(__file__).resolve().parents[1] / "data"
sys.path.insert(0, str(DATA.parents[1] / "demo"))

import make_vectors  # noqa: E402

MODEL = "all-MiniLM-L6-v2"
DEPTH = 5
# How many of the queries are asked; null: all.
MOST: int | None = None
WAYS = {"words": {"query"}, "vector": {"query_embedding"}, "both": {"query", "query_embedding"}}


def _lines(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def topics() -> dict[str, str]:
    """Each text, and one that stands for all that pairs link it with."""
    root: dict[str, str] = {}

    def find(text: str) -> str:
        while root.setdefault(text, text) != text:
            text = root[text]
        return text

    for pair in _lines("pairs.jsonl"):
        root[find(pair["a"])] = find(pair["b"])
    return {text: find(text) for text in root}


def _texts(name: str) -> dict[str, str]:
    return {
        text: json.dumps([float(x) for x in v]) for text, v in make_vectors.load_vectors(DATA / name).items()
    }


def load(db: DB) -> None:
    """Store the texts of the pairs as separate memories of tenant acme."""
    vectors = _texts("pairs.npz")
    db.execute("select memfold.register_embedding_model(%s, 384)", [MODEL])
    db.execute("select memfold.set_policy('acme', on_ambiguous => 'insert', merge_threshold => 1)")
    for text in topics():
        db.execute(
            "select memfold.ingest_memory(%s, 'acme', embedding => %s, embedding_model => %s)",
            [text, vectors[text], MODEL],
        )


def hits(db: DB, way: str, depth: int = DEPTH) -> float:
    """The share of queries of which one of the first memories that a search shows is about the same."""
    about = topics()
    vectors = _texts("queries.npz")
    queries = _lines("queries.jsonl")[:MOST]
    found = 0
    for line in queries:
        given: dict[str, Any] = {"query": line["content"], "query_embedding": vectors[line["content"]]}
        named = "".join(f", {name} => %({name})s" for name in WAYS[way])
        rows = db.execute(
            "select content, collapsed_ids from memfold.search_memories(tenant_id => 'acme', embedding_model => %(model)s,"
            f" max_results => %(depth)s{named})".encode(),
            {"model": MODEL, "depth": depth, **given},
        ).fetchall()
        found += any(about[content] == about[line["about"]] for content, _ in rows)
    return found / len(queries)
