"""Measures the judge: it is asked about labelled pairs, and its answers are compared with the labels."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import numpy as np

from memfold.client.judging import Judge, JudgeError, Question, Side
from memfold.tools.calibrate.bounds import Rate
from memfold.tools.calibrate.calibration import Calibration
from memfold.tools.calibrate.pairs import LABELS, Pair

FLOOR = 0.75
"""Below it an answer is ``unsure`` and both memories are kept (the policies' confidence_floor)."""


def in_band(made: Calibration) -> list[Pair]:
    """The pairs that the calibration would have asked about."""
    clean = np.array([not (made.guard and pair.guard) for pair in made.pairs], dtype=np.bool_)
    asked = (made.scores >= made.bands.judge) & ~((made.scores > made.bands.merge) & clean)
    return [pair for pair, wanted in zip(made.pairs, asked, strict=True) if wanted]


def a_share(pairs: Sequence[Pair], most: int, seed: int = 0) -> list[Pair]:
    """At most this many of them, chosen at random."""
    if len(pairs) <= most:
        return list(pairs)
    chosen = np.random.default_rng(seed).choice(len(pairs), most, replace=False)
    return [pairs[int(place)] for place in sorted(chosen)]


def question_of(pair: Pair) -> Question:
    """The question as ingest would ask it, but with only the two texts."""
    now = datetime.now(UTC)

    def side(content: str) -> Side:
        return Side(uuid4(), content, "fact", first_seen=now, last_seen=now)

    return Question(
        judgement_id=uuid4(),
        tenant_id=pair.tenant_id,
        bucket_id="calibration",
        kind="write",
        similarity=pair.cosine,
        guard=pair.guard,
        attempts=1,
        memory=side(pair.b),
        other=side(pair.a),
    )


async def _answers(
    judge: Judge, pairs: Sequence[Pair], slots: int, timeout: float
) -> list[tuple[str, float] | None]:
    turns = asyncio.Semaphore(slots)

    async def one(pair: Pair) -> tuple[str, float] | None:
        async with turns:
            try:
                answer = await asyncio.wait_for(judge.judge(question_of(pair)), timeout)
            except (JudgeError, TimeoutError):
                return None
            return answer.verdict, answer.confidence

    try:
        return await asyncio.gather(*map(one, pairs))
    finally:
        close = getattr(judge, "close", None)
        if close is not None and asyncio.iscoroutinefunction(close):
            await close()


def measure_judge(
    judge: Judge, pairs: Sequence[Pair], *, slots: int = 10, floor: float = FLOOR, timeout: float = 60.0
) -> dict[str, Any]:
    """Ask, and count. For each class: how many of the answers that memfold would act on were wrong.

    An answer below the floor is ``unsure`` and not an error, because both memories are kept; a missing one is
    ``failed``.
    """
    answers = asyncio.run(_answers(judge, pairs, slots, timeout))
    confusion: dict[str, Counter[str]] = {label: Counter() for label in LABELS}
    for pair, answer in zip(pairs, answers, strict=True):
        said = "failed" if answer is None else answer[0] if answer[1] >= floor else "unsure"
        confusion[pair.label][said] += 1
    by_label: dict[str, Any] = {}
    total, merged = Rate(0, 0), Rate(0, 0)
    for label, counts in confusion.items():
        if not counts:
            continue
        sure = sum(counts[verdict] for verdict in LABELS)
        wrong = Rate(sure - counts[label], sure)
        total += wrong
        if label in ("contradiction", "distinct"):
            merged += Rate(counts["duplicate"] + counts["refinement"], sure)
        by_label[label] = {
            "wrong": wrong.to_json(),
            "unsure": counts["unsure"],
            "failed": counts["failed"],
            "verdicts": {verdict: counts[verdict] for verdict in LABELS if counts[verdict]},
        }
    return {
        "model": getattr(judge, "model", type(judge).__name__),
        "asked": len(pairs),
        "wrong": total.to_json(),
        "merged_wrongly": merged.to_json(),
        "by_label": by_label,
    }


__all__ = ["FLOOR", "a_share", "in_band", "measure_judge", "question_of"]
