"""A BERT-like encoder of many layers, small sizes and random weights, as TorchScript spells it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

HIDDEN, HEADS, WIDE = 32, 4, 48


class _Net:
    """Gathers nodes and weights."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self._draw = np.random.default_rng(0)

    def op(self, op_type: str, *inputs: str, **attrs: object) -> str:
        name = f"/{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [f"{name}_out"], name=name, **attrs))
        return f"{name}_out"

    def const(self, value: object, name: str = "") -> str:
        name = name or f"c{len(self.weights)}"
        self.weights[name] = np.asarray(value)
        return name

    def linear(self, x: str, rows: int, columns: int) -> str:
        weight = self.const(self._draw.standard_normal((rows, columns)).astype(np.float32) * 0.1)
        return self.op(
            "Add", self.const(np.zeros(columns, np.float32)), self.op("MatMul", x, weight)
        )

    def norm(self, x: str) -> str:
        scale, shift = np.ones(HIDDEN, np.float32), np.zeros(HIDDEN, np.float32)
        return self.op(
            "LayerNormalization", x, self.const(scale), self.const(shift), axis=-1, epsilon=1e-12
        )


def _layer(net: _Net, x: str, mask: str) -> str:
    width = HIDDEN // HEADS
    split = net.const(np.array([0, 0, HEADS, width], np.int64))
    q, k, v = (
        net.op("Transpose", net.op("Reshape", net.linear(x, HIDDEN, HIDDEN), split), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = net.op("Div", net.op("MatMul", q, k), net.const(np.float32(width**0.5)))
    weights = net.op("Softmax", net.op("Add", scores, mask), axis=-1)
    context = net.op("Transpose", net.op("MatMul", weights, v), perm=[0, 2, 1, 3])
    merged = net.op("Reshape", context, net.const(np.array([0, 0, HIDDEN], np.int64)))
    x = net.norm(net.op("Add", net.linear(merged, HIDDEN, HIDDEN), x))
    up = net.linear(x, HIDDEN, WIDE)
    erf = net.op("Erf", net.op("Div", up, net.const(np.float32(2**0.5))))
    gelu = net.op("Mul", up, net.op("Add", erf, net.const(np.float32(1))))
    gelu = net.op("Mul", gelu, net.const(np.float32(0.5)))
    return net.norm(net.op("Add", net.linear(gelu, WIDE, HIDDEN), x))


def save_bert(path: Path, layers: int) -> int:
    """Writes the model and returns how many nodes it has."""
    net = _Net()
    table = np.random.default_rng(1).standard_normal((37, HIDDEN)).astype(np.float32)
    x = net.norm(net.op("Gather", net.const(table), "input_ids", axis=0))
    four = net.op("Unsqueeze", "attention_mask", net.const(np.array([1, 2], np.int64)))
    kept = net.op("Cast", four, to=TensorProto.FLOAT)
    hidden = net.op("Sub", net.const(np.float32(1)), kept)
    mask = net.op("Mul", hidden, net.const(np.float32(np.finfo(np.float32).min)))
    for _ in range(layers):
        x = _layer(net, x, mask)
    shape = ["batch", "seq"]
    graph = helper.make_graph(
        net.nodes,
        f"bert-{layers}-layers",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, shape)
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [*shape, HIDDEN])],
        [numpy_helper.from_array(value, name) for name, value in net.weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return len(net.nodes)
