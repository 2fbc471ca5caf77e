"""Embedding models inside the process: a directory in, vectors out; nothing is downloaded.

Three routes. ``onnx`` needs onnxruntime and tokenizers, and a model whose directory has an ONNX file and whose modules are
a transformer, mean or CLS pooling, and perhaps normalisation. ``numpy`` needs tokenizers, and such a model of BERT's
architecture in safetensors. ``sentence-transformers`` takes the others, and needs torch.
Weights that are pickles, and code that comes with a model, are never loaded.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from pathlib import Path
from typing import Any, Protocol

from memfold_py import bert

BATCH = 32
"""Texts per batch of the model."""

MODELS = "MEMFOLD_MODELS"
"""The environment variable that names the directories (``os.pathsep`` between them) that hold models."""

_ONNX_FILES = ("onnx/model.onnx", "model.onnx")
_FOR_BERT = ("tokenizers", "numpy", "threadpoolctl")
_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


class ModelError(Exception):
    """A model exists but cannot be used; the message says why."""


class Model(Protocol):
    """A loaded model."""

    @property
    def route(self) -> str:
        """``onnx``, ``numpy`` or ``sentence-transformers``."""

    @property
    def dimensions(self) -> int:
        """Number of dimensions."""

    def encode(self, texts: list[str]) -> Any:
        """The texts' vectors: a numpy array of float32, [len(texts), dimensions].

        Of length 1 if the model normalises. The other texts of the call determine the padding, which can change the
        last bits of a vector.
        """


def find(name: str) -> str:
    """The directory of the model ``name``.

    An absolute path to a directory; else a directory of that name in one of ``MEMFOLD_MODELS``; else a repository in
    the local Hugging Face cache. Raises LookupError, which says where it was looked for.
    """
    if not name or "\0" in name or ".." in Path(name).parts:
        raise LookupError(f"{name!r} is not the name of a model")
    if Path(name).is_absolute():
        if Path(name).is_dir():
            return name
        raise LookupError(f"there is no directory {name}")
    places = [Path(place) for place in os.environ.get(MODELS, "").split(os.pathsep) if place]
    for place in places:
        if (place / name).is_dir():
            return str(place / name)
    looked = [*map(str, places)] or [f"{MODELS} (which is not set)"]
    if _importable("huggingface_hub"):
        _offline()
        try:
            return str(
                importlib.import_module("huggingface_hub").snapshot_download(name, local_files_only=True)
            )
        except Exception:  # each of its versions has its own errors for "not in the cache"
            looked.append("the Hugging Face cache")
    raise LookupError(f"there is no model {name!r} in {', '.join(looked)}")


def load(path: str, threads: int) -> Model:
    """Load the model in the directory ``path``, to compute in ``threads`` threads.

    Raises ModuleNotFoundError with the name of what is missing, ModelError for a model that cannot be used.
    """
    directory = Path(path)
    graph = next((directory / file for file in _ONNX_FILES if (directory / file).is_file()), None)
    modules = _Modules(directory)
    config = _json(directory / "config.json", {})
    computed = modules.plain and bert.is_bert(config, directory)
    try:
        if graph is not None and modules.plain and not _missing("onnxruntime", "tokenizers", "numpy"):
            return _Onnx(directory, graph, modules, threads)
        if computed and not _missing(*_FOR_BERT):
            return _Bert(directory, config, modules, threads)
        if _importable("sentence_transformers"):
            return _SentenceTransformers(directory, modules, threads)
    except ModelError:
        raise
    except Exception as error:  # the libraries raise many types for damaged or foreign files
        raise ModelError(f"the model in {path} cannot be loaded: {type(error).__name__}: {error}") from error
    missing = "sentence_transformers"
    if graph is not None and modules.plain:
        missing = _missing("onnxruntime", "tokenizers", "numpy")
    elif computed:
        missing = _missing(*_FOR_BERT)
    raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)


class _Modules:
    """The steps after the transformer, as given by the model's own files."""

    def __init__(self, directory: Path) -> None:
        modules = _json(directory / "modules.json", [])
        self.paths = [directory / str(module["path"]) for module in modules] or [directory]
        kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in modules]
        self.normalize = "Normalize" in kinds
        pooling = {}
        if "Pooling" in kinds:
            pooling = _json(self.paths[kinds.index("Pooling")] / "config.json", {})
        # Older files have a flag for each mode, newer ones a name; without either it is the mean.
        flags = {
            key[len("pooling_mode_") :]
            for key, on in pooling.items()
            if key.startswith("pooling_mode_") and on
        }
        named = pooling.get("pooling_mode") or []
        modes = flags | ({named} if isinstance(named, str) else set(named)) or {"mean_tokens"}
        self.cls = modes <= {"cls_token", "cls"}
        prompt = _json(directory / "config_sentence_transformers.json", {}).get("default_prompt_name")
        self.plain = (
            set(kinds) <= {"Transformer", "Pooling", "Normalize"}
            and (self.cls or modes <= {"mean_tokens", "mean"})
            and prompt is None
        )


class _Tokenized:
    """Tokens before the transformer, pooling and normalisation after it, in numpy."""

    dimensions: int

    def __init__(self, directory: Path, modules: _Modules) -> None:
        self._np: Any = importlib.import_module("numpy")
        self._modules = modules
        self._tokenizer = importlib.import_module("tokenizers").Tokenizer.from_file(
            str(directory / "tokenizer.json")
        )
        self._tokenizer.enable_truncation(_longest(directory))
        padding = self._tokenizer.padding or {}
        pad_id = padding.get("pad_id", _json(directory / "config.json", {}).get("pad_token_id") or 0)
        self._tokenizer.enable_padding(
            direction=padding.get("direction", "right"),
            pad_id=pad_id,
            pad_token=padding.get("pad_token") or self._tokenizer.id_to_token(pad_id) or "[PAD]",
        )
        self.dimensions = int(self._vectors(["a"]).shape[1])

    def encode(self, texts: list[str]) -> Any:
        vectors = self._np.empty((len(texts), self.dimensions), dtype=self._np.float32)
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            vectors[chosen] = self._vectors([texts[index] for index in chosen])
        return vectors

    def _vectors(self, texts: list[str]) -> Any:
        np = self._np
        encoded = self._tokenizer.encode_batch(texts)
        given = {
            "input_ids": np.array([entry.ids for entry in encoded], dtype=np.int64),
            "attention_mask": np.array([entry.attention_mask for entry in encoded], dtype=np.int64),
            "token_type_ids": np.array([entry.type_ids for entry in encoded], dtype=np.int64),
        }
        states = self._states(given)
        if self._modules.cls:
            vectors = states[:, 0]
        else:
            mask = given["attention_mask"][:, :, None].astype(np.float32)
            vectors = (states * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1e-9)
        if self._modules.normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors.astype(np.float32)

    def _states(self, given: dict[str, Any]) -> Any:
        """A vector per token, [texts, tokens, width]."""
        raise NotImplementedError


class _Onnx(_Tokenized):
    """onnxruntime on the CPU."""

    route = "onnx"

    def __init__(self, directory: Path, graph: Path, modules: _Modules, threads: int) -> None:
        onnxruntime = importlib.import_module("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # no thread keeps spinning in a server process after a call
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        self._inputs = [entry.name for entry in self._session.get_inputs()]
        if unknown := set(self._inputs) - {"input_ids", "attention_mask", "token_type_ids"}:
            raise ModelError(
                f"the ONNX file needs {', '.join(sorted(unknown))}, which a tokenizer does not provide"
            )
        outputs = [entry.name for entry in self._session.get_outputs()]
        named = [name for name in ("last_hidden_state", "token_embeddings") if name in outputs]
        self._output = (named or outputs)[0]
        super().__init__(directory, modules)

    def _states(self, given: dict[str, Any]) -> Any:
        (states,) = self._session.run([self._output], {name: given[name] for name in self._inputs})
        if states.ndim != 3:
            raise ModelError(f"the ONNX file's {self._output} is not a vector per token")
        return states


class _Bert(_Tokenized):
    """numpy, from the weights themselves."""

    route = "numpy"

    def __init__(self, directory: Path, config: dict[str, Any], modules: _Modules, threads: int) -> None:
        self._bert = bert.Bert(directory, config, threads)
        super().__init__(directory, modules)

    def _states(self, given: dict[str, Any]) -> Any:
        return self._bert.states(given["input_ids"], given["attention_mask"], given["token_type_ids"])


class _SentenceTransformers:
    """The sentence-transformers library."""

    route = "sentence-transformers"

    def __init__(self, directory: Path, modules: _Modules, threads: int) -> None:
        for path in modules.paths:
            pickled = [file.name for pattern in _PICKLES for file in path.glob(pattern)]
            if pickled and not any(path.glob("*.safetensors")):
                raise ModelError(f"the weights are pickled ({pickled[0]}): only safetensors are loaded")
        _offline()
        sentence_transformers = importlib.import_module("sentence_transformers")
        importlib.import_module("torch").set_num_threads(threads)
        self._model: Any = sentence_transformers.SentenceTransformer(
            str(directory),
            device="cpu",
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs={"use_safetensors": True},
        )
        self.dimensions = int(self.encode(["a"]).shape[1])

    def encode(self, texts: list[str]) -> Any:
        # As the model's own modules specify; no normalization is added.
        return self._model.encode(texts, batch_size=BATCH, convert_to_numpy=True, show_progress_bar=False)


def _longest(directory: Path) -> int:
    """Maximum number of tokens; longer texts are truncated."""
    limit = _json(directory / "sentence_bert_config.json", {}).get("max_seq_length")
    limit = limit or _json(directory / "config.json", {}).get("max_position_embeddings")
    return int(limit or 512)


def _json(file: Path, missing: Any) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else missing
    except ValueError as error:
        raise ModelError(f"{file} is not JSON: {error}") from error


def _missing(*packages: str) -> str:
    """The first of them that is not installed; empty if all are."""
    return next((package for package in packages if not _importable(package)), "")


def _importable(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _offline() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when the libraries are imported
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
