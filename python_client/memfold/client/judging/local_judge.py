"""``LocalJudge`` asks a small model in this process: no key, no endpoint.

The model says whether one text follows from another. Both directions make a verdict; how often such a verdict is right is
measured on labelled pairs that come with memfold.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from memfold.client._extras import check
from memfold.client._log import get_logger
from memfold.client.embedding.anchors import ANCHORS, read_anchors
from memfold.client.judging.nli import Nli, Read
from memfold.client.judging.questions import MERGING_KINDS, Answer, Question, Verdict

DEFAULT_MODEL: Final = "cross-encoder/nli-deberta-v3-xsmall"
"""English, 0.3 GB, licence Apache-2.0."""

_BAND: Final = (0.85, 0.92)
"""The cosines that ingest asks about by default."""
_MOST: Final = 200
_FLOOR: Final = 0.75
"""For the log only: the default confidence_floor, below which the database counts an answer as unsure."""
_PROCEDURE: Final = 1
"""Part of the cache key: increment it when anything that determines a Scale changes."""
_RIDGE: Final = 1.0

logger = get_logger("memfold.judge")


class Said(NamedTuple):
    """A verdict about two texts."""

    verdict: Verdict
    margin: float
    """How far the model is from another verdict, in log-odds; positive."""
    richer: int | None = None
    """For a refinement, which text says more: 0 or 1."""


@dataclass(frozen=True)
class Scale:
    """How often verdicts are right, by their margin: a logistic curve, shifted for each verdict."""

    slope: float
    offsets: dict[str, float]
    right: int
    wrong: int
    unsure: int

    def confidence(self, said: Said) -> float:
        """0 for a verdict that was never measured."""
        offset = self.offsets.get(said.verdict)
        return 0.0 if offset is None else 1 / (1 + math.exp(-(self.slope * said.margin + offset)))


class LocalJudge:
    """Judges pairs with a cross-encoder of natural language inference, in a thread of its own, one at a time.

    ``model``: a directory with ``config.json``, ``tokenizer.json`` and ``onnx/model.onnx`` or ``model.onnx``; or a name
    at Hugging Face, whose files are downloaded once. ``config.json`` must name two labels (entailment and another) or
    three (entailment, neutral, contradiction). ``threads``: the number of threads that compute.

    Loads the model. A new one is first measured, for up to a minute; the result is kept in the user's cache directory.
    Clusters, names, questions that want a new text, texts that are too long for the model, and duplicates between which
    the guard sees a difference get confidence 0, which the database stores as ``unsure``. Raises MissingExtraError
    without ``memfold[judge-local]``, MemfoldError if there is no such model or it cannot be used.
    """

    def __init__(self, model: str | Path = DEFAULT_MODEL, *, threads: int = 1) -> None:
        for module in ("huggingface_hub", "numpy", "onnxruntime", "tokenizers"):
            check("judge-local", module)
        self.model = Path(model).absolute().name if Path(model).is_dir() else str(model)
        self._nli = Nli(model, threads)
        self._scale = self._known_scale()
        self._thread = ThreadPoolExecutor(1, "memfold-judge")

    async def judge(self, question: Question) -> Answer:
        """Ask once."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._answer, question)

    def _answer(self, question: Question) -> Answer:
        older, newer = question.other, question.memory
        if question.members or question.names or question.kind in MERGING_KINDS:
            return _unsure(question, "this model only compares two texts")
        if older.subject and newer.subject and older.subject != newer.subject:
            return _unsure(question, "the memories have different subjects, which the model does not see")
        read = self._nli.read(older.content, newer.content)
        if read is None:
            return _unsure(question, "the texts are longer than the model reads")
        said = compare(read)
        forth, back = (1 / (1 + math.exp(-odds)) for odds in read.entails)
        reason = (
            f"the newer text follows from the older by {forth:.2f}, the older from the newer by {back:.2f}"
        )
        if said.verdict == "duplicate" and question.guard:
            return _unsure(question, f"{reason}, but the guard sees a difference")
        return Answer(
            said.verdict,
            self._scale.confidence(said),
            reason,
            richer_memory_id=None if said.richer is None else (older, newer)[said.richer].memory_id,
        )

    def _known_scale(self) -> Scale:
        """From the cache, else measured."""
        parts = [self._nli.fingerprint(), hashlib.sha256(ANCHORS.read_bytes()).hexdigest(), str(_PROCEDURE)]
        key = hashlib.sha256(" ".join(parts).encode()).hexdigest()
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser(), "memfold")
        file = cache / f"local-judge-{key[:32]}.json"
        try:
            scale = Scale(**json.loads(file.read_text()))
        except (OSError, ValueError, TypeError):  # missing or incomplete
            anchors = in_band()
            logger.info("judge model=%s is new: measuring it on %d labelled pairs", self.model, len(anchors))
            scale = measure(self._nli, anchors)
            with contextlib.suppress(OSError):  # without a cache it is measured at each start
                cache.mkdir(parents=True, exist_ok=True)
                beside = file.with_suffix(f".{os.getpid()}")
                beside.write_text(json.dumps(asdict(scale)))
                beside.replace(file)
        logger.info(
            "judge model=%s measured right=%d wrong=%d unsure=%d",
            self.model, scale.right, scale.wrong, scale.unsure,
        )  # fmt: skip
        return scale


def _unsure(question: Question, reason: str) -> Answer:
    # the last verdict is the one that changes nothing, even where the floor is 0
    return Answer(question.verdicts[-1], 0.0, reason)


def compare(read: Read) -> Said:
    """The verdict about two texts."""
    forth, back = read.entails
    against = -math.inf if read.contradicts is None else sum(read.contradicts) / 2
    if against > 0:
        return Said("contradiction", against)
    if min(forth, back) > 0:
        return Said("duplicate", min(forth, back))
    if max(forth, back) > 0:  # the text that implies the other says more
        return Said("refinement", min(max(forth, back), -min(forth, back)), 0 if forth > back else 1)
    return Said("distinct", min(-max(forth, back), -against))


def in_band() -> list[dict[str, Any]]:
    """About 200 English anchors with cosines that are asked about, evenly from the file."""
    found = [pair for pair in read_anchors(ANCHORS) if _BAND[0] <= pair["cosine"] <= _BAND[1]]
    count = min(_MOST, len(found))
    return [found[place * len(found) // count] for place in range(count)]


def measure(nli: Nli, anchors: Sequence[dict[str, Any]]) -> Scale:
    """Ask about the anchors, and fit how often verdicts are right."""
    import numpy as np

    found: list[tuple[Said, bool]] = []
    for pair in anchors:
        if (read := nli.read(pair["a"], pair["b"])) is not None:
            # a model without the label contradiction can only call these distinct
            apart = pair["label"] == "contradiction" and not nli.knows_contradictions
            said = compare(read)
            found.append((said, said.verdict == ("distinct" if apart else pair["label"])))
    verdicts = sorted({said.verdict for said, _ in found})
    inputs = np.array(
        [[said.margin, *(said.verdict == each for each in verdicts)] for said, _ in found], float
    )
    right = np.array([is_right for _, is_right in found], float)
    weights = np.zeros(1 + len(verdicts))
    for _ in range(25):  # Newton's method
        guess = 1 / (1 + np.exp(-inputs @ weights))
        curvature = inputs.T @ (inputs * (guess * (1 - guess))[:, None]) + _RIDGE * np.eye(len(weights))
        weights += np.linalg.solve(curvature, inputs.T @ (right - guess) - _RIDGE * weights)
    slope, *offsets = weights.tolist()
    scale = Scale(slope, dict(zip(verdicts, offsets, strict=True)), 0, 0, 0)
    counts = Counter(
        "unsure" if scale.confidence(said) < _FLOOR else "right" if is_right else "wrong"
        for said, is_right in found
    )
    return Scale(scale.slope, scale.offsets, counts["right"], counts["wrong"], counts["unsure"])
