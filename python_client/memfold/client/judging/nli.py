"""A model of natural language inference in this process: does one text follow from another, or contradict it?"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from memfold.client.errors import MemfoldError

_GRAPHS: Final = ("onnx/model.onnx", "model.onnx")
_FILES: Final = ("config.json", "tokenizer.json", "tokenizer_config.json")
_LONGEST: Final = 512
"""The most tokens of a pair, for models that state no limit; more would take too much time and memory."""


class Read(NamedTuple):
    """The model's answer about a pair, as log-odds: first for the pair as given, then for its reverse."""

    entails: tuple[float, float]
    contradicts: tuple[float, float] | None
    """None: the model does not know contradictions."""


class Nli:
    """A cross-encoder with two or three labels, by onnxruntime.

    ``model``: a directory, or a name at Hugging Face, whose files are downloaded unless they are in its cache. Raises
    MemfoldError for a model that is not there or cannot be used.
    """

    def __init__(self, model: str | Path, threads: int) -> None:
        import numpy as np
        import onnxruntime
        import tokenizers

        self._np: Any = np
        self._directory = Path(model) if Path(model).is_dir() else _download(str(model))
        graph = next((path for name in _GRAPHS if (path := self._directory / name).is_file()), None)
        if graph is None or not all((self._directory / name).is_file() for name in _FILES[:2]):
            self._refuse(f"It has no {', '.join(_FILES[:2])} and {' or '.join(_GRAPHS)}.")
        self._parts = [
            *sorted(graph.parent.glob(graph.name + "*")),
            *(self._directory / name for name in _FILES),
        ]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            config, more = (self._json(name) for name in ("config.json", "tokenizer_config.json"))
            self._session = onnxruntime.InferenceSession(
                str(graph), options, providers=["CPUExecutionProvider"]
            )
            # keep the padding of the model's files: some graphs have a fixed length
            self._tokenizer = tokenizers.Tokenizer.from_file(str(self._directory / "tokenizer.json"))
        except Exception as error:  # whatever the libraries raise for damaged or foreign files
            self._refuse(f"{type(error).__name__}: {error}")
        self._entailment, self._contradiction, self._labels = self._read_labels(config.get("id2label"))
        limits = [config.get("max_position_embeddings"), more.get("model_max_length")]
        limits.append((self._tokenizer.truncation or {}).get("max_length"))
        self._longest = min([_LONGEST, *(int(limit) for limit in limits if limit)])
        self._tokenizer.no_truncation()
        self._inputs = [entry.name for entry in self._session.get_inputs()]
        if unknown := set(self._inputs) - {"input_ids", "attention_mask", "token_type_ids"}:
            self._refuse(f"Its graph needs {', '.join(sorted(unknown))}, which a tokenizer does not provide.")
        try:
            self.read("a", "b")
        except MemfoldError:
            raise
        except Exception as error:
            self._refuse(f"{type(error).__name__}: {error}")

    @property
    def knows_contradictions(self) -> bool:
        return self._contradiction is not None

    def fingerprint(self) -> str:
        """A hash of the model's files."""
        digest = hashlib.sha256()
        for path in self._parts:
            if path.is_file():
                with path.open("rb") as opened:
                    digest.update(hashlib.file_digest(opened, "sha256").digest())
        return digest.hexdigest()

    def read(self, a: str, b: str) -> Read | None:
        """Both directions, in one run. None: the pair is longer than the model reads."""
        np = self._np
        encoded = self._tokenizer.encode_batch([(a, b), (b, a)])
        if max(sum(one.attention_mask) for one in encoded) > self._longest:
            return None
        given = {
            "input_ids": [one.ids for one in encoded],
            "attention_mask": [one.attention_mask for one in encoded],
            "token_type_ids": [one.type_ids for one in encoded],
        }
        feed = {name: np.array(given[name], dtype=np.int64) for name in self._inputs}
        logits = self._session.run(None, feed)[0]
        if logits.shape != (2, self._labels):
            self._refuse(f"Its graph does not return {self._labels} numbers for each pair.")

        def odds(label: int) -> tuple[float, float]:
            others = np.delete(logits, label, axis=1).astype(float)
            first, second = (logits[:, label] - np.logaddexp.reduce(others, axis=1)).tolist()
            return first, second

        return Read(
            odds(self._entailment), None if self._contradiction is None else odds(self._contradiction)
        )

    def _read_labels(self, id2label: Any) -> tuple[int, int | None, int]:
        """The places of entailment and contradiction (None: two labels), and how many labels there are."""
        labels = id2label if isinstance(id2label, dict) else {}
        names = {str(place): str(name).lower() for place, name in labels.items()}
        places = {
            start: [int(place) for place, name in names.items() if name.startswith(start)]
            for start in ("entail", "contra")
        }
        counts = (len(names), len(places["entail"]), len(places["contra"]))
        if set(names) != set(map(str, range(len(names)))) or not (
            counts[:2] == (2, 1) or counts == (3, 1, 1)
        ):
            self._refuse(
                f"The labels in its config.json are {', '.join(names.values()) or 'missing'}.",
                "They must be entailment and one other, or entailment, neutral and contradiction.",
            )
        return places["entail"][0], places["contra"][0] if len(names) == 3 else None, len(names)

    def _json(self, name: str) -> dict[str, Any]:
        path = self._directory / name
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}

    def _refuse(self, detail: str, hint: str | None = None) -> NoReturn:
        raise MemfoldError(
            f"the model in {self._directory} cannot judge",
            detail=detail,
            hint=hint or "Give a cross-encoder of natural language inference with an ONNX file.",
        ) from None


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        patterns = [*_FILES, *(f"{graph}*" for graph in _GRAPHS)]
        return Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # each of its versions has its own errors
        raise MemfoldError(
            f"there is no model {name}",
            detail=f"No such directory; from Hugging Face: {type(error).__name__}.",
            hint="Give the directory of a model, or a name at Hugging Face while it can be reached.",
        ) from None
