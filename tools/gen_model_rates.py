"""Writes a model's row of the section of docs/error-rates.md that compares embedding models.

    python tools/gen_model_rates.py --dsn DSN --embedder MODULE:NAME MODEL PAIRS.jsonl

EMBEDDER takes a list of texts and returns their vectors. PAIRS.jsonl as in gen_error_rates.py. Any new database with
memfold is enough. Each pair is stated in a bucket of its own, by ingest_memory(), with the thresholds that memfold ships
for the model or that the anchors give: what is counted is what the database did. The page contains numbers, no texts.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from memfold import Embedder, Memfold
from memfold.client.embedding.anchors import ANCHORS, read_anchors

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "error-rates.md"
BEGIN, END = "<!-- begin: tools/gen_model_rates.py -->", "<!-- end: tools/gen_model_rates.py -->"
SWAPS = "pawsx"
BATCH = 256
MERGES = ("merged", "replaced")
HEAD = """\
## Other embedding models

A model's thresholds are [matched on the anchors](calibration.md) to those of `all-MiniLM-L6-v2`. The cells are false merges
/ duplicates merged / questions, in per cent: of the public pairs, of these without texts of the same words in another order,
and of the half of the anchors that chose no threshold. The veto is on; it was fitted to a fifth of the public pairs and to
the other half of the anchors. *Stream* is each text of the English anchors once, in random order, in one bucket, per 100
texts: known to tier 1 / merged by tier 2 / merged into a text that is labelled a contradiction or distinct / asked about.
Nearly every text has a near paraphrase or opposite in the stream, so far more is asked than about what people say.

| model | merge / judge | public pairs | without word swaps | anchors, English | other languages | stream |
|---|---|---|---|---|---|---|
"""
MERGED = """
select m.content, r.content as root from memfold.memories as m
join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = m.merged_into
where m.tenant_id = 'rates' and m.bucket_id = 'stream'
"""

Pair = dict[str, Any]


def fates(client: Memfold, model: str, pairs: Sequence[Pair], cosines: Sequence[float]) -> list[str]:
    """What ingest_memory() does to each pair, in two dimensions, in which they have the same cosine."""
    found = []
    for place, (pair, cosine) in enumerate(zip(pairs, cosines, strict=True)):
        bucket = f"{model}-{place}"
        client.ingest(pair["a"], bucket_id=bucket, embedding=[1.0, 0.0], embedding_model=f"{model}:2")
        cosine = float(np.clip(cosine, -1, 1))
        near = [cosine, float(np.sqrt(1 - cosine**2))]
        found.append(
            client.ingest(pair["b"], bucket_id=bucket, embedding=near, embedding_model=f"{model}:2").action
        )
    return found


def cosines_of(embed: Callable[[list[str]], Any], pairs: Sequence[Pair]) -> list[float]:
    texts = sorted({pair[side] for pair in pairs for side in ("a", "b")})
    made = np.vstack([np.asarray(embed(texts[at : at + BATCH])) for at in range(0, len(texts), BATCH)])
    units = dict(zip(texts, made / np.linalg.norm(made, axis=1, keepdims=True), strict=True))
    return [float(units[pair["a"]] @ units[pair["b"]]) for pair in pairs]


def stream(client: Memfold, model: str, embed: Callable[[list[str]], Any], pairs: Sequence[Pair]) -> str:
    """The anchors' texts, one after the other."""
    texts = sorted({pair[side] for pair in pairs for side in ("a", "b")})
    random.Random(5).shuffle(texts)  # noqa: S311 (an order, not a secret)
    found: Counter[str] = Counter()
    for at in range(0, len(texts), BATCH):
        part = texts[at : at + BATCH]
        for text, vector in zip(part, np.asarray(embed(part)).tolist(), strict=True):
            made = client.ingest(text, bucket_id="stream", embedding=vector, embedding_model=model)
            found[f"tier {made.tier}" if made.action in MERGES else made.action] += 1
    labels = {frozenset((pair["a"], pair["b"])): pair["label"] for pair in pairs}
    merged = [labels.get(frozenset((row["content"], row["root"]))) for row in client._query(MERGED)]
    wrong = sum(label in ("contradiction", "distinct") for label in merged)
    counts = (found["tier 1"], found["tier 2"], wrong, found["escalated"])
    return " / ".join(f"{100 * count / len(texts):.1f}" for count in counts)


def rates(pairs: Sequence[Pair], actions: Sequence[str], part: Callable[[Pair], bool]) -> str:
    of = [
        (pair["label"] == "duplicate", action)
        for pair, action in zip(pairs, actions, strict=True)
        if part(pair)
    ]

    def share(some: Callable[[bool, str], bool], among: Callable[[bool], bool]) -> str:
        whole = [(same, action) for same, action in of if among(same)]
        return f"{100 * sum(some(*each) for each in whole) / len(whole):.1f}"

    return " / ".join((
        share(lambda _, action: action in MERGES, lambda same: not same),
        share(lambda _, action: action in MERGES, lambda same: same),
        share(lambda _, action: action == "escalated", lambda _: True),
    ))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--embedder", required=True, help="MODULE:NAME of a function of a list of texts")
    given = parser.parse_args()
    embed = resolve_name(given.embedder)
    pairs = [
        json.loads(line)
        for path in (given.pairs, ANCHORS)
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    with Memfold(given.dsn, "rates", Embedder(embed, given.model)) as client:
        client.ingest("A first text registers the model.")
        [row] = client._query(
            "select merge_threshold, judge_threshold from memfold.embedding_models where merge_threshold is not null"
        )
        client.register_embedding_model(f"{given.model}:2", 2, row["merge_threshold"], row["judge_threshold"])
        streamed = stream(client, given.model, embed, read_anchors())
        actions = fates(client, given.model, pairs, cosines_of(embed, pairs))
    columns = [
        f"{row['merge_threshold']:.3f} / {row['judge_threshold']:.3f}",
        *(
            rates(pairs, actions, part)
            for part in (
                lambda pair: "source" in pair,
                lambda pair: "source" in pair and not pair["source"].startswith(SWAPS),
                lambda pair: pair.get("split") == "test" and pair["language"] == "en",
                lambda pair: pair.get("split") == "test" and pair["language"] != "en",
            )
        ),
        streamed,
    ]
    line = f"| {given.model} | " + " | ".join(columns) + " |"
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    inside, _, after = rest.partition(END)
    others = [
        old
        for old in re.findall(r"^\| .*\d.*\|$", inside, re.MULTILINE)
        if not old.startswith(f"| {given.model} |")
    ]
    table = "\n".join(sorted([*others, line]))
    PAGE.write_text(f"{before.rstrip()}\n\n{BEGIN}\n{HEAD}{table}\n{END}\n{after.lstrip()}", encoding="utf-8")
    print(line)


if __name__ == "__main__":
    main()
