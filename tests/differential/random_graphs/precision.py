"""A model in float64, and with its numbers off by the last bit: how exact its results are."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import numpy_helper

from random_graphs.steadiness import bodies, unsteady_values

NARROW = (T.FLOAT, T.FLOAT16, T.BFLOAT16)

Arrays = Mapping[str, np.ndarray]
Change = Callable[[np.ndarray], np.ndarray]


def widened(model: onnx.ModelProto, inputs: Arrays) -> tuple[onnx.ModelProto, Arrays]:
    """A copy with float64 for all narrower floats."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    _graph(made.graph, _to_float64, retype=True)
    for function in made.functions:
        for node in function.node:
            _node(node, _to_float64, retype=True)
    return made, {n: _to_float64(a) if _is_narrow(a) else a for n, a in inputs.items()}


def nudged(model: onnx.ModelProto, inputs: Arrays, seed: int) -> tuple[onnx.ModelProto, Arrays]:
    """A copy in which every float number but 0 is the next one up or down.

    Results that ONNX does not fix bit for bit are multiplied by the number next to 1 as well, so
    that two of them may differ where their difference is taken.
    """
    rng = random.Random(seed)

    def nudge(array: np.ndarray) -> np.ndarray:
        if array.dtype not in (np.float16, np.float32):
            return array
        up = np.array([rng.random() < 0.5 for _ in range(array.size)]).reshape(array.shape)
        there = np.where(up, np.inf, -np.inf).astype(array.dtype)
        return np.where(np.isfinite(array) & (array != 0), np.nextafter(array, there), array)

    made = onnx.ModelProto()
    made.CopyFrom(model)
    _graph(made.graph, nudge, retype=False)
    _shake(made, rng)
    return made, {n: nudge(a) if _is_narrow(a) else a for n, a in inputs.items()}


def _shake(model: onnx.ModelProto, rng: random.Random) -> None:
    """Puts a Mul by ``1 + epsilon`` behind every node whose result is not fixed."""
    unsteady = unsteady_values(model.graph.node, frozenset(f.name for f in model.functions))
    infos = onnx.shape_inference.infer_shapes(model).graph
    kinds = {i.name: i.type.tensor_type.elem_type for i in (*infos.value_info, *infos.output)}
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        at = len(model.graph.node)
        model.graph.node.append(node)
        for k, name in enumerate(node.output):
            kind = kinds.get(name)
            if name not in unsteady or kind not in (T.FLOAT, T.FLOAT16):
                continue
            array = np.array(1, np.float32 if kind == T.FLOAT else np.float16)
            up = np.nextafter(array, array.dtype.type(rng.choice([0, 2])))
            factor = numpy_helper.from_array(up, f"{name}__factor")
            model.graph.initializer.append(factor)
            model.graph.node[at].output[k] = f"{name}__raw"
            inputs = [f"{name}__raw", factor.name]
            model.graph.node.append(onnx.helper.make_node("Mul", inputs, [name]))


def _to_float64(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def _is_narrow(array: np.ndarray) -> bool:
    return array.dtype.name in ("float16", "bfloat16", "float32")


def _graph(graph: onnx.GraphProto, change: Change, *, retype: bool) -> None:
    for info in (*graph.input, *graph.output, *graph.value_info):
        if retype and info.type.tensor_type.elem_type in NARROW:
            info.type.tensor_type.elem_type = T.DOUBLE
    for tensor in graph.initializer:
        _tensor(tensor, change)
    for node in graph.node:
        _node(node, change, retype=retype)


def _tensor(tensor: T, change: Change) -> None:
    if tensor.data_type in NARROW:
        changed = change(numpy_helper.to_array(tensor))
        tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))


def _node(node: onnx.NodeProto, change: Change, *, retype: bool) -> None:
    for attribute in node.attribute:
        if retype and attribute.name in ("to", "dtype") and attribute.i in NARROW:
            attribute.i = T.DOUBLE
        elif attribute.type == onnx.AttributeProto.TENSOR:
            _tensor(attribute.t, change)
    for body in bodies(node):
        _graph(body, change, retype=retype)
