"""Shared code of the adapters' tests: vectors without a model, and the state of the database."""

from __future__ import annotations

import contextlib
import io
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from memfold import Embedder
from tests.support.queries import DB
from tests.support.servers import ROOT

DIMENSIONS = 64

T = TypeVar("T")


def vector(text: str) -> list[float]:
    """A bag of words: texts of the same words have the same vector."""
    values = [0.01] * DIMENSIONS
    for word, count in Counter(text.lower().replace(".", " ").replace("!", " ").split()).items():
        values[zlib.crc32(word.encode()) % DIMENSIONS] += count
    length = math.sqrt(sum(value * value for value in values))
    return [value / length for value in values]


def embedder() -> Embedder:
    return Embedder(lambda texts: [vector(text) for text in texts], "words", DIMENSIONS)


def memories(db: DB, status: str = "active") -> dict[str, int]:
    """The texts of a status, each with how often it was observed."""
    rows = db.execute(
        "select m.content, c.observations from memfold.memories as m"
        " join memfold.memory_totals as c using (tenant_id, memory_id) where m.status = %s",
        [status],
    )
    return {row[0]: row[1] for row in rows}


def at_once(threads: int, work: Callable[[int], T]) -> list[T]:
    """The results of ``work`` for 0, 1, ..., each in its own thread."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(threads)))


def run_page(section: str, page: str = "integrations.md", **names: object) -> tuple[str, str]:
    """The output of the example in a section of a page, and the output that the page shows."""
    text = (ROOT / "docs" / page).read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    code, printed = re.findall(r"^```(?:python|text)\n(.*?)^```$", text, re.M | re.S)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, dict(names))  # noqa: S102 (a page of this repository)
    return out.getvalue(), printed
