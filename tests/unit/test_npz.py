"""Vectors of a file: what numpy writes is read, anything else is named."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memfold.tools.cli._npz import read_vectors

TEXTS = np.array(["a", "\u732b \U0001f408", ""])


@pytest.mark.parametrize("kind", ["<f2", "<f4", "<f8", ">f4"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_written_by_numpy(tmp_path: Path, kind: str, save: Any) -> None:
    vectors = np.array([[1, 0.1], [-2.5, 1e-3], [0, 3]]).astype(kind)
    for texts in (TEXTS, TEXTS.astype(">U5")):
        save(tmp_path / "v.npz", texts=texts, vectors=vectors)
        read = read_vectors(tmp_path / "v.npz")
        assert list(read) == TEXTS.tolist()
        assert [vector.tolist() for vector in read.values()] == vectors.tolist()


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"texts": TEXTS}, "not an .npz file with the arrays"),
        ({"texts": TEXTS, "vectors": np.ones((2, 2))}, r"not <U3\(3,\) and float64\(2, 2\)"),
        ({"texts": TEXTS, "vectors": np.ones(3)}, "n rows of floating point numbers"),
        ({"texts": TEXTS, "vectors": np.ones((3, 2), dtype=np.int64)}, "not .* and int64"),
        ({"texts": np.arange(3), "vectors": np.ones((3, 2))}, "n strings"),
        ({"texts": TEXTS.astype(object), "vectors": np.ones((3, 2))}, "not an .npz file with the arrays"),
    ],
)
def test_invalid_arrays(tmp_path: Path, arrays: dict[str, Any], why: str) -> None:
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(ValueError, match=why):
        read_vectors(tmp_path / "v.npz")


def test_damaged_files(tmp_path: Path) -> None:
    whole = io.BytesIO()
    np.save(whole, np.ones((3, 2)))
    file = tmp_path / "v.npz"
    file.write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"v\.npz is not an \.npz file"):
        read_vectors(file)
    for part in (b"", whole.getvalue()[:60], whole.getvalue()[:-1], b"\x93NUMPY\1\0\xff\xff{}"):
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("texts.npy", part)
            archive.writestr("vectors.npy", part)
        with pytest.raises(ValueError, match=r"v\.npz is not an \.npz file"):
            read_vectors(file)
