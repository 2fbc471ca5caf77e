"""Embedding models of sentence-transformers, from a directory of this machine. Nothing is ever downloaded.

Two routes, both of well-kept libraries: onnxruntime, where the model has an ONNX file, which loads in a fraction of the
time and memory; else sentence-transformers with torch.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Protocol

BATCH = 32
"""How many texts go through the model together."""

ONNX_FILES = ("onnx/model.onnx", "model.onnx")


class Model(Protocol):
    """A model that is loaded: ``dimensions`` of its vectors, ``route`` (onnx or sentence-transformers)."""

    dimensions: int
    route: str

    def encode(self, texts: list[str]) -> Any:
        """The vectors of some texts, in order: float32 array [texts, dimensions], each of unit length."""


def find(name: str) -> Path:
    """The directory of a model: an absolute path, or a name in MEMFOLD_MODELS or the Hugging Face cache.

    Raises LookupError, which says where it was looked for.
    """
    if name.startswith("/"):
        if Path(name).is_dir():
            return Path(name)
        raise LookupError(f"there is no directory {name}")
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name, re.ASCII):
        raise LookupError("a model's name is letters, digits, . _ and -, with at most one / in between")
    places = [place for place in os.environ.get("MEMFOLD_MODELS", "").split(os.pathsep) if place]
    for place in places:
        if (Path(place) / name).is_dir():
            return Path(place) / name
    looked = f"MEMFOLD_MODELS ({os.pathsep.join(places) or 'not set'})"
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise LookupError(f"it is not in {looked}, and there is no huggingface_hub to look into its cache") from None
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except Exception as error:
        raise LookupError(f"it is neither in {looked} nor in the Hugging Face cache") from error


def load(path: str | Path, threads: int) -> Model:
    """Load the model of a directory, to run on so many threads.

    Raises ImportError where the packages are missing, ValueError for a directory that holds no such model.
    """
    directory = Path(path)
    for file in ONNX_FILES:
        if (directory / file).is_file():
            return _OnnxModel(directory, directory / file, threads)
    return _TorchModel(directory, threads)


def _read(directory: Path, name: str) -> Any:
    try:
        return json.loads((directory / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(f"{name} of the model is no JSON") from error


class _OnnxModel:
    """transformer, pooling, unit length: what almost all models of sentence-transformers are."""

    route = "onnx"

    def __init__(self, directory: Path, file: Path, threads: int) -> None:
        import numpy
        import onnxruntime
        import tokenizers

        kinds = [module["type"].rpartition(".")[2] for module in _read(directory, "modules.json") or []]
        pooling = _read(directory, "1_Pooling/config.json") or {}
        self.numpy = numpy
        self.first = bool(pooling.get("pooling_mode_cls_token"))
        if not set(kinds) <= {"Transformer", "Pooling", "Normalize"} or not (
            self.first or pooling.get("pooling_mode_mean_tokens")
        ):
            raise ValueError(
                f"its ONNX file alone does not make its vectors (modules {', '.join(kinds) or 'unknown'}):"
                " take the file away, and it runs by sentence-transformers"
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # no thread of its own goes on spinning in a server's process when a call has ended
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self.session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
            self.tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        except Exception as error:  # each library raises its own, of any kind
            raise ValueError(str(error)) from error
        length = (_read(directory, "sentence_bert_config.json") or {}).get("max_seq_length") or 512
        padding = self.tokenizer.padding or {}
        self.tokenizer.enable_truncation(max_length=int(length))
        self.tokenizer.enable_padding(
            pad_id=padding.get("pad_id", 0), pad_token=padding.get("pad_token", "[PAD]")
        )
        self.inputs = [one.name for one in self.session.get_inputs()]
        self.output = self.session.get_outputs()[0].name
        self.dimensions = int(self.encode(["a"]).shape[1])

    def encode(self, texts: list[str]) -> Any:
        np = self.numpy
        vectors: Any = None
        # those of one length together: a short text costs what it is, not what a long one beside it is
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            encoded = self.tokenizer.encode_batch([texts[i] for i in places])
            known = {
                "input_ids": np.array([one.ids for one in encoded], dtype=np.int64),
                "attention_mask": np.array([one.attention_mask for one in encoded], dtype=np.int64),
                "token_type_ids": np.array([one.type_ids for one in encoded], dtype=np.int64),
            }
            states = self.session.run([self.output], {name: known[name] for name in self.inputs})[0]
            if self.first:
                pooled = states[:, 0]
            else:
                mask = known["attention_mask"][:, :, None].astype(np.float32)
                pooled = (states * mask).sum(axis=1) / mask.sum(axis=1)
            pooled = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
            if vectors is None:
                vectors = np.empty((len(texts), pooled.shape[1]), dtype=np.float32)
            vectors[places] = pooled
        return vectors


class _TorchModel:
    route = "sentence-transformers"

    def __init__(self, directory: Path, threads: int) -> None:
        # before the imports, which read them
        os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        import sentence_transformers
        import torch

        if not any(directory.rglob("*.safetensors")):
            raise ValueError("it has no weights in a .safetensors file, and a pickle may run anything")
        torch.set_num_threads(threads)
        try:
            self.model = sentence_transformers.SentenceTransformer(
                str(directory), device="cpu", trust_remote_code=False, local_files_only=True,
                model_kwargs={"use_safetensors": True},
            )  # fmt: skip
        except Exception as error:  # each library raises its own, of any kind
            raise ValueError(str(error)) from error
        self.dimensions = int(self.encode(["a"]).shape[1])

    def encode(self, texts: list[str]) -> Any:
        return self.model.encode(
            texts, batch_size=BATCH, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
