"""Vectors from an .npz file. Needs numpy (the extra ``memfold[embed]``)."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from memfold.client._extras import needs
from memfold.tools.cli._shared import seekable


def read_vectors(path: Path) -> dict[str, Any]:
    """The arrays ``texts`` and ``vectors`` of an .npz file, as a mapping from text to vector. Raises ValueError."""
    with needs("embed"):
        import numpy as np
    try:
        with np.load(seekable(path), allow_pickle=False) as arrays:
            texts, vectors = arrays["texts"], arrays["vectors"]
            # a member that is not an .npy file is returned as bytes
            if not (isinstance(texts, np.ndarray) and isinstance(vectors, np.ndarray)):
                raise ValueError("an array is not an .npy file")
    except (KeyError, OSError, ValueError, EOFError, IndexError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not an .npz file with the arrays texts and vectors: {error}") from error
    if (
        vectors.ndim != 2
        or texts.shape != vectors.shape[:1]
        or texts.dtype.kind != "U"
        or vectors.dtype.kind != "f"
    ):
        raise ValueError(
            f"{path}: texts must be n strings and vectors n rows of floating point numbers, not"
            f" {texts.dtype}{texts.shape} and {vectors.dtype}{vectors.shape}"
        )
    return dict(zip(texts.tolist(), vectors, strict=True))
