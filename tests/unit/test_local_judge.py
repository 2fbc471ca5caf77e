"""The local judge: how it reads a model's answers, and which models it accepts. The models are tiny and real."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memfold import Answer, LocalJudge, MemfoldError, MissingExtraError, Question
from memfold.client.judging import Names, local_judge
from tests.support import nli_onnx
from tests.support.questions import NEWER, OLDER, question, side

THREE = ("entailment", "neutral", "contradiction")
# How the tiny model understands English: tests/support/nli_onnx.py.
PAIRS = [
    ("Tea {}", "Tea {}, yes", "duplicate"),
    ("Tea {}", "Tea {}, more", "refinement"),
    ("Tea {}", "Not tea {}", "contradiction"),
    ("Tea {}, not more", "Tea {} and more, not more", "duplicate"),
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "memfold"


@pytest.fixture
def anchors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Labelled pairs on which the tiny model is right, so that its verdicts are believed."""
    file = tmp_path / "anchors.jsonl"
    given = [
        {"a": a.format(n), "b": b.format(n), "label": label, "language": "en", "cosine": 0.9}
        for a, b, label in [*PAIRS, ("Tea {} not", "Tea {} more", "contradiction")]
        for n in range(20)
    ]
    file.write_text("".join(json.dumps(pair) + "\n" for pair in given))
    monkeypatch.setattr(local_judge, "ANCHORS", file)
    return file


def judged(judge: LocalJudge, older: str, newer: str, **fields: Any) -> Answer:
    return asyncio.run(judge.judge(question(older, newer, **{"guard": (), **fields})))


@pytest.mark.parametrize("types", [True, False])
@pytest.mark.parametrize("labels", [THREE, ("CONTRADICTION", "ENTAILMENT", "NEUTRAL")])
@pytest.mark.usefixtures("anchors")
def test_three_labels_in_any_order(tmp_path: Path, labels: Sequence[str], types: bool) -> None:
    judge = LocalJudge(nli_onnx.make(tmp_path / "some-model", labels, types=types))
    assert judge.model == "some-model"
    same = judged(judge, "Tea", "Tea indeed")
    assert (same.verdict, same.richer_memory_id) == ("duplicate", None)
    assert same.confidence > 0.75
    for older, newer, richer in (("Tea", "Tea and more", NEWER), ("Tea and more", "Tea", OLDER)):
        answer = judged(judge, older, newer)
        assert (answer.verdict, answer.richer_memory_id) == ("refinement", richer)
        assert answer.confidence > 0.75
    against = judged(judge, "Tea", "Not tea")
    assert (against.verdict, against.confidence > 0.75) == ("contradiction", True)
    assert "Tea" not in str(same.reason)


@pytest.mark.usefixtures("anchors")
def test_two_labels(tmp_path: Path) -> None:
    judge = LocalJudge(nli_onnx.make(tmp_path / "m", ("not_entailment", "entailment")))
    assert judged(judge, "Tea", "Tea indeed").verdict == "duplicate"
    assert judged(judge, "Tea", "Tea and more").richer_memory_id == NEWER
    # it has no word for a contradiction: of those among the anchors, this verdict is right
    apart = judged(judge, "Tea", "Not tea")
    assert (apart.verdict, apart.confidence > 0.75) == ("distinct", True)


@pytest.mark.usefixtures("anchors")
def test_pairs_that_it_does_not_decide(tmp_path: Path) -> None:
    judge = LocalJudge(nli_onnx.make(tmp_path / "m", longest=16))

    def refused(asked: Question) -> tuple[str, float, str]:
        answer = asyncio.run(judge.judge(asked))
        return answer.verdict, answer.confidence, str(answer.reason)

    plain = question("Tea", "Tea indeed", guard=())
    assert judged(judge, "Tea", "Tea indeed").confidence > 0.75
    # 6 + 7 words and three marks are 16 tokens
    assert judged(judge, "a b c d e f", "a b c d e f g").confidence > 0.75
    long = question("a b c d e f", "a b c d e f g h", guard=())
    one, other = side(OLDER, "Tea"), side(NEWER, "Tea")
    for asked, verdict, reason in (
        (long, "distinct", "longer than the model reads"),
        (replace(plain, guard=("numeral: 1 <> 2",)), "distinct", "the guard sees a difference"),
        (replace(plain, kind="synthesis"), "distinct", "only compares two texts"),
        (replace(plain, members=(one, other, plain.memory)), "distinct", "only compares two texts"),
        (
            replace(plain, kind="cardinality", names=Names("cardinality", None, "likes")),
            "many",
            "only compares",
        ),
        (replace(plain, memory=replace(other, subject="Ann")), "distinct", "different subjects"),
    ):
        answered = refused(asked)
        assert answered[:2] == (verdict, 0.0)
        assert reason in answered[2]
    # what the guard sees does not matter to the other verdicts
    assert judged(judge, "Tea", "Not tea", guard=("negation: not",)).confidence > 0.75


def test_a_model_is_measured_once(
    tmp_path: Path,
    cache: Path,
    anchors: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = nli_onnx.make(tmp_path / "m")
    with caplog.at_level(logging.INFO, "memfold.judge"):
        first = LocalJudge(directory)
        assert "judge model=m is new: measuring it on 100 labelled pairs" in caplog.text
        assert "judge model=m measured right=100 wrong=0 unsure=0" in caplog.text
        (file,) = cache.iterdir()
        caplog.clear()
        with monkeypatch.context() as patch:
            patch.setattr(local_judge, "measure", None)
            again = LocalJudge(directory)
        assert "is new" not in caplog.text
        assert "measured right=100" in caplog.text
    assert again._scale == first._scale
    # a file that is not whole, other anchors, another model
    file.write_text("{")
    assert LocalJudge(directory)._scale == first._scale
    anchors.write_text(anchors.read_text().replace('"duplicate"', '"distinct"'))
    doubtful = LocalJudge(directory)
    assert judged(doubtful, "Tea", "Tea indeed").confidence < 0.25
    LocalJudge(nli_onnx.make(tmp_path / "other", types=False))
    assert len(list(cache.iterdir())) == 3
    # no place for a cache
    shutil.rmtree(cache)
    cache.write_text("")
    assert LocalJudge(directory)._scale == doubtful._scale


def test_a_model_that_knows_nothing_is_not_believed(tmp_path: Path) -> None:
    """With the pairs that come with memfold: the tiny model calls nearly all duplicates, and most are none."""
    assert len(local_judge.in_band()) == 200
    judge = LocalJudge(nli_onnx.make(tmp_path / "m"))
    assert judged(judge, "Tea", "Tea indeed").confidence < 0.5
    scale = judge._scale
    assert scale.right + scale.wrong + scale.unsure == 200
    assert scale.unsure > 150


def test_models_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    unlabelled = nli_onnx.make(tmp_path / "unlabelled")
    (unlabelled / "config.json").write_text("{}")
    damaged = nli_onnx.make(tmp_path / "damaged")
    (damaged / "onnx" / "model.onnx").write_bytes(b"none")
    wider = nli_onnx.make(tmp_path / "wider")
    (wider / "config.json").write_text('{"id2label": {"0": "entailment", "1": "other"}}')
    for directory, detail in (
        (tmp_path / "empty", "It has no config.json, tokenizer.json and onnx/model.onnx or model.onnx"),
        (unlabelled, "labels in its config.json are missing"),
        (nli_onnx.make(tmp_path / "stars", ("1 star", "2 stars")), "are 1 star, 2 stars"),
        (nli_onnx.make(tmp_path / "four", (*THREE, "x")), "are entailment, neutral, contradiction, x"),
        (damaged, "INVALID_PROTOBUF|InvalidProtobuf"),
        (wider, "does not return 2 numbers"),
    ):
        with pytest.raises(
            MemfoldError, match=rf"(?s)the model in .*{directory.name} cannot judge.*({detail})"
        ):
            LocalJudge(directory)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else found(name)
    )
    with pytest.raises(MissingExtraError, match=r"(?s)onnxruntime.*pip install 'memfold\[judge-local\]'"):
        LocalJudge(tmp_path)


def test_a_name_is_found_in_the_cache_of_hugging_face(tmp_path: Path) -> None:
    stored = tmp_path / "hub" / "models--some--nli"
    nli_onnx.make(stored / "snapshots" / "1234")
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text("1234")

    def load(name: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", f"import memfold; print(memfold.LocalJudge({name!r}).model)"],
            env=os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"},
            capture_output=True, text=True,
        )  # fmt: skip

    done = load("some/nli")
    assert (done.returncode, done.stdout) == (0, "some/nli\n"), done.stderr
    done = load("other/nli")
    assert done.returncode == 1
    assert "there is no model other/nli\nDETAIL: No such directory; from Hugging Face: " in done.stderr
