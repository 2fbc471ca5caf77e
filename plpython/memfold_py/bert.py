"""BERT in numpy, from its weights in safetensors: models without an ONNX file run without torch.

It is worthwhile for small models only: all-MiniLM-L6-v2 takes a few milliseconds per sentence, in a process that needs
neither a compiler nor files other than the weights. The vectors are those of torch to 1e-6.
"""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from typing import Any

_KINDS = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}


def is_bert(config: dict[str, Any], directory: Path) -> bool:
    """Whether the model in the directory is one that ``Bert`` computes."""
    return (
        config.get("model_type") == "bert"
        and config.get("hidden_act") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and (directory / "model.safetensors").is_file()
    )


class Bert:
    """The model's last hidden state."""

    def __init__(self, directory: Path, config: dict[str, Any], threads: int) -> None:
        self._np: Any = importlib.import_module("numpy")
        # Matrices are small: threads that wait for each other cost more than they save, a hundredfold on a busy machine.
        self._blas: Any = importlib.import_module("threadpoolctl").ThreadpoolController()
        self._threads = threads
        self._heads = int(config["num_attention_heads"])
        self._epsilon = float(config["layer_norm_eps"])
        self._layers = int(config["num_hidden_layers"])
        self._weights = _read(directory / "model.safetensors", self._np)

    def states(self, ids: Any, mask: Any, types: Any) -> Any:
        """Token ids, attention mask and token types, [texts, tokens], to [texts, tokens, width]."""
        with self._blas.limit(limits=self._threads, user_api="blas"):
            return self._states(ids, mask, types)

    def _states(self, ids: Any, mask: Any, types: Any) -> Any:
        np = self._np
        weight = self._weights
        state = (
            weight["embeddings.word_embeddings.weight"][ids]
            + weight["embeddings.token_type_embeddings.weight"][types]
            + weight["embeddings.position_embeddings.weight"][: ids.shape[1]]
        )
        state = self._norm(state, "embeddings.LayerNorm")
        hidden = np.where(mask[:, None, None, :] == 0, np.float32(-1e30), np.float32(0))
        for layer in range(self._layers):
            state = self._layer(state, hidden, f"encoder.layer.{layer}")
        return state

    def _layer(self, state: Any, hidden: Any, name: str) -> Any:
        np = self._np
        texts, tokens, width = state.shape
        size = width // self._heads

        def by_head(part: str) -> Any:
            made = self._linear(state, f"{name}.attention.self.{part}")
            return made.reshape(texts, tokens, self._heads, size).transpose(0, 2, 1, 3)

        scores = (
            by_head("query") @ by_head("key").transpose(0, 1, 3, 2) / np.float32(math.sqrt(size)) + hidden
        )
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        read = (scores @ by_head("value")).transpose(0, 2, 1, 3).reshape(texts, tokens, width)
        state = self._norm(
            self._linear(read, f"{name}.attention.output.dense") + state, f"{name}.attention.output.LayerNorm"
        )
        inner = self._gelu(self._linear(state, f"{name}.intermediate.dense"))
        return self._norm(self._linear(inner, f"{name}.output.dense") + state, f"{name}.output.LayerNorm")

    def _linear(self, value: Any, name: str) -> Any:
        return value @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, value: Any, name: str) -> Any:
        value = value - value.mean(axis=-1, keepdims=True)
        value /= self._np.sqrt((value * value).mean(axis=-1, keepdims=True) + self._np.float32(self._epsilon))
        return value * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]

    def _gelu(self, value: Any) -> Any:
        """GELU, with erf by Abramowitz and Stegun 7.1.26, accurate to 1.5e-7: numpy has no erf."""
        np = self._np
        scaled = np.abs(value) * np.float32(math.sqrt(0.5))
        part = 1 / (1 + np.float32(0.3275911) * scaled)
        series = np.zeros_like(part)
        for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
            series = (series + np.float32(factor)) * part
        erf = 1 - series * np.exp(-scaled * scaled)
        return value * (1 + np.copysign(erf, value)) * np.float32(0.5)


def _read(file: Path, np: Any) -> dict[str, Any]:
    """The tensors of a safetensors file as float32: the length of the head, the head as JSON, the numbers."""
    data = np.memmap(file, dtype=np.uint8, mode="r")  # shared by all processes that read it
    size = int.from_bytes(data[:8].tobytes(), "little")
    if not 2 <= size <= len(data) - 8:
        raise ValueError(f"{file} is not a safetensors file")
    head: dict[str, Any] = json.loads(data[8 : 8 + size].tobytes())
    tensors = {}
    for name, entry in head.items():
        if name == "__metadata__" or entry["dtype"] not in _KINDS:
            continue
        begin, end = (8 + size + int(place) for place in entry["data_offsets"])
        numbers = np.asarray(data[begin:end]).view(_KINDS[entry["dtype"]]).reshape(entry["shape"])
        tensors[name.removeprefix("bert.")] = np.require(
            numbers, np.float32, "A"
        )  # BLAS copies what is not aligned
    return tensors
