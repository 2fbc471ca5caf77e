"""A tiny model of natural language inference, whose answer depends on its words: no knowledge, but a real ONNX file.

A pair is [CLS] a [SEP] b [SEP]. "more" in a text is what the other does not say, "not" what contradicts: `b` follows from
`a` unless it says "more" and `a` does not; they contradict if only one says "not". The rest of the words is ignored, so
texts of a test say what they like.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

WORDS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "more", "not")
CLS, SEP, MORE, NOT = 1, 2, 4, 5


def make(
    directory: Path,
    labels: Sequence[str] = ("entailment", "neutral", "contradiction"),
    *,
    types: bool = True,
    longest: int = 64,
) -> Path:
    """Write a model with these labels, in this order, into ``directory``; ``types``: its graph reads token_type_ids."""
    (directory / "onnx").mkdir(parents=True)
    config = {"id2label": dict(enumerate(labels)), "max_position_embeddings": longest}
    (directory / "config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = Lowercase(), Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    model = graph(labels, types)
    checker.check_model(model)
    save(model, directory / "onnx" / "model.onnx")
    return directory


def graph(labels: Sequence[str], types: bool) -> Any:
    """The graph. The second text is where token_type_ids are 1; without them, after the first [SEP]."""
    nodes: list[Any] = []
    constants: dict[str, Any] = {}

    def constant(name: str, value: Any, kind: type = np.float32) -> str:
        constants[name] = numpy_helper.from_array(np.array(value, dtype=kind), name)
        return name

    def node(kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        output = output or f"{kind}_{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def to_float(value: str) -> str:
        return node("Cast", value, to=TensorProto.FLOAT)

    one, last = constant("one", 1), constant("last", [1], np.int64)
    if types:
        second = to_float("token_type_ids")
    else:
        ends = to_float(node("Equal", "input_ids", constant("sep", SEP, np.int64)))
        second = node("Clip", node("CumSum", ends, constant("axis", 1, np.int64)), constant("zero", 0), one)
    first = node("Sub", one, second)

    def says(token: int, part: str) -> str:
        """1 if that part has the token, else 0; [texts, 1]."""
        found = to_float(node("Equal", "input_ids", constant(f"token_{token}", token, np.int64)))
        return node("ReduceMax", node("Mul", node("Mul", found, part), to_float("attention_mask")), last)

    more = node("Relu", node("Sub", says(MORE, second), says(MORE, first)))
    against = node("Abs", node("Sub", says(NOT, second), says(NOT, first)))
    # log-odds of 6 for its label, far from the others
    follows = node("Sub", one, node("Max", more, against))
    neutral = node("Relu", node("Sub", more, against))
    scores = {"entail": follows, "contra": against}
    if len(labels) == 2:
        neutral = node("Sub", one, follows)
    columns = [scores.get(label.lower()[:6], neutral) for label in labels]
    node("Mul", node("Concat", *columns, axis=1), constant("sure", 6), output="logits")
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in names]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(labels)])
    made = helper.make_graph(nodes, "nli", inputs, [output], list(constants.values()))
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
