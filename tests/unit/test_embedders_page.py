"""The code of docs/embedders.md makes embedders that embed; a stand-in answers for each model."""

from __future__ import annotations

import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from memfold import Embedder, LocalEmbedder, OpenAIEmbedder
from memfold.client.errors import MemfoldError
from tests.support.docs_pages import PAGES, blocks

(PAGE,) = (page for page in PAGES if page.name == "embedders.md")
TEXTS = [f"Bob has {number} cats." for number in range(250)]


def test_the_blocks_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def embed(texts: list[str], model: str) -> SimpleNamespace:
        asked.append(len(texts))
        return SimpleNamespace(embeddings=[[float(TEXTS.index(text)), 1.0] for text in texts])

    voyageai: Any = ModuleType("voyageai")
    voyageai.Client = lambda: SimpleNamespace(embed=embed)
    monkeypatch.setitem(sys.modules, "voyageai", voyageai)
    openai, voyage = blocks(PAGE, "python")
    names: dict[str, Any] = {"dsn": ""}
    exec(openai, names)  # noqa: S102 (a page of this repository)
    assert (names["embedder"].model, names["embedder"].dimensions) == ("text-embedding-3-large:1024", 1024)
    exec(voyage, names)  # noqa: S102
    vectors = names["embedder"].embed(TEXTS)
    assert [vector[0] for vector in vectors] == list(range(250))
    assert max(asked) <= 128


def test_the_embedders_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    shown = re.findall(r"^\| [^|]+ \| `(\w+\([^`]*\))`", PAGE.read_text(), re.M)
    names = {
        "Embedder": Embedder, "LocalEmbedder": LocalEmbedder, "OpenAIEmbedder": OpenAIEmbedder,
        "model": "m", "base_url": "http://localhost:1/v1", "api_key": "k", "function": list, "name": "n",
    }  # fmt: skip
    made = [eval(one, dict(names)) for one in shown]  # noqa: S307 (a page of this repository)
    assert [one.model for one in made] == [
        "all-MiniLM-L6-v2", "text-embedding-3-small", "nomic-embed-text", "m", "n"
    ]  # fmt: skip
    # OpenAI wants a key, a server of one's own does not
    with pytest.raises(MemfoldError, match="no API key"):
        made[1]._client_options()
    assert made[2]._client_options()["api_key"] == "none"
