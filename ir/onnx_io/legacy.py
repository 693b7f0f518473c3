"""Raising models of operator sets 1 to 6 to 7, the oldest that the IR has.

What changed in between (onnx/docs/Changelog.md): numpy's broadcasting took the place of
``broadcast`` and ``axis``, hints for memory went (``consumed_inputs``), and some attributes
became inputs, or other types. Training forms (``is_test = 0``) of BatchNormalization had outputs
of another meaning and are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
)

from gecompiler.ir.errors import ModelError
from gecompiler.ir.onnx_io.data import read_tensor
from gecompiler.ir.onnx_io.legacy_ranks import find_ranks
from gecompiler.ir.onnx_io.order import node_title
from gecompiler.ir.onnx_io.schema import OLDEST_OPSET, domain_of

Kind = type | tuple[type, ...]
_BROADCASTING = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
_MAX_RANK = 64
_MOST_NUMBERS = 4096
_MOST = 2**31
"""The largest size that is believed."""


def raise_opset(model: ModelProto, where: str) -> tuple[ModelProto, int | None]:
    """A copy of the model at opset 7, and the opset it had; the model itself where that is new.

    ModelError, naming the node, for a form that opset 7 has no equal of, or whose equal takes a
    rank that the model does not tell.
    """
    old = [o.version for o in model.opset_import if domain_of(o.domain) == ""]
    if not old or not 1 <= old[0] < OLDEST_OPSET or model.functions:
        return model, None
    raised = ModelProto()
    raised.CopyFrom(model)
    for entry in raised.opset_import:
        if domain_of(entry.domain) == "":
            entry.version = OLDEST_OPSET
    pending = [raised.graph]
    while pending:
        graph = pending.pop()
        _Raising(graph, old[0], where).run()
        pending += [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
    return raised, old[0]


class _Raising:
    """One graph's nodes, rewritten in place."""

    def __init__(self, graph: GraphProto, version: int, where: str) -> None:
        self.graph = graph
        self.version = version
        self.where = where
        self.title = graph.name
        self.ranks = find_ranks(graph)
        self.taken = {name for n in graph.node for name in (*n.input, *n.output)}
        self.taken.update(v.name for v in (*graph.input, *graph.initializer))
        self.counts: dict[str, int] = {}
        self.stored = {t.name: t for t in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.output:
                self.stored.update((node.output[0], a.t) for a in node.attribute)

    def run(self) -> None:
        nodes: list[NodeProto] = []
        for index, source in enumerate(self.graph.node):
            node = NodeProto()
            node.CopyFrom(source)
            if domain_of(node.domain) == "":
                self.title = node_title(node, index)
                _drop(node, "consumed_inputs")
                rule = _RULES.get(node.op_type)
                nodes += rule(self, node) if rule is not None else ()
            nodes.append(node)
        del self.graph.node[:]
        self.graph.node.extend(nodes)

    # ---------------------------------------------------------------- rules

    def broadcast(self, node: NodeProto) -> list[NodeProto]:
        """The second operand's sizes stand at ``axis``; without one they stand at the end."""
        axis = self.take(node, "axis", int)
        if not self.take(node, "broadcast", int, 0) or axis is None or len(node.input) < 2:
            return []
        whole, part = self.rank(node.input[0]), self.rank(node.input[1])
        if not -whole <= axis < max(whole, 1):
            raise self.wrong(f"axis {axis} is out of range for rank {whole}")
        first = axis + whole if axis < 0 else axis
        return self.unsqueezed(node, list(range(part, whole - first)))

    def slope(self, node: NodeProto) -> list[NodeProto]:
        """PRelu's slope of rank 1 is one number, or one for each channel (axis 1)."""
        if len(node.input) < 2 or self.ranks.get(node.input[1]) not in (1, None):
            return []
        stored = self.stored.get(node.input[1])
        if stored is not None and tuple(stored.dims) == (1,):
            return []
        return self.unsqueezed(node, list(range(1, self.rank(node.input[0]) - 1)))

    def unsqueezed(self, node: NodeProto, axes: list[int]) -> list[NodeProto]:
        """Axes of one element put into the second operand."""
        if not axes:
            return []
        name = self.fresh(node.input[1])
        made = helper.make_node("Unsqueeze", [node.input[1]], [name], axes=axes)
        node.input[1] = name
        return [made]

    def batch_norm(self, node: NodeProto) -> list[NodeProto]:
        if not self.take(node, "is_test", int, 0):
            raise self.wrong("training mode (is_test = 0) has no form in opset 7")
        return []

    def cast(self, node: NodeProto) -> list[NodeProto]:
        """The type by its name before opset 6."""
        to = self.take(node, "to", (bytes, int))
        if isinstance(to, bytes):
            name = to.decode("utf-8", "replace").upper()
            if name not in TensorProto.DataType.keys():  # noqa: SIM118  (no mapping)
                raise self.wrong(f"there is no element type {name!r}")
            to = TensorProto.DataType.Value(name)
        node.attribute.append(helper.make_attribute("to", to if to is not None else 1))
        return []

    def concat(self, node: NodeProto) -> list[NodeProto]:
        if not any(a.name == "axis" for a in node.attribute):
            node.attribute.append(helper.make_attribute("axis", 1))
        return []

    def pad(self, node: NodeProto) -> list[NodeProto]:
        for attribute in node.attribute:
            if attribute.name == "paddings":
                attribute.name = "pads"
        return []

    def whole_power(self, node: NodeProto) -> list[NodeProto]:
        power = self.take(node, "p", (int, float), 2)
        if not float(power).is_integer():
            raise self.wrong(f"p = {power} is no whole number, which opset 7 wants")
        node.attribute.append(helper.make_attribute("p", int(power)))
        return []

    def reshape(self, node: NodeProto) -> list[NodeProto]:
        shape = self.take(node, "shape", list)
        if shape is None:
            return []
        if not all(isinstance(n, int) for n in shape):
            raise self.wrong("attribute 'shape' holds other than whole numbers")
        return self.constant(node, shape)

    def split(self, node: NodeProto) -> list[NodeProto]:
        if len(node.input) > 1:
            sizes = self.values(node.input[1], "split")
            del node.input[1:]
            node.attribute.append(helper.make_attribute("split", sizes))
        return []

    def tile(self, node: NodeProto) -> list[NodeProto]:
        """How often along which axis, before opset 6; then how often along each."""
        if len(node.input) < 3:
            return []
        counts, axes = self.values(node.input[1], "tiles"), self.values(node.input[2], "axis")
        if len(counts) != 1 or len(axes) != 1:
            raise self.wrong("tiles and axis are one number each")
        (count,), (axis,) = counts, axes
        rank = self.rank(node.input[0])
        if not -rank <= axis < rank:
            raise self.wrong(f"axis {axis} is out of range for rank {rank}")
        repeats = [1] * rank
        repeats[axis] = count
        del node.input[1:]
        return self.constant(node, repeats)

    def upsample(self, node: NodeProto) -> list[NodeProto]:
        height, width = (self.take(node, f"{n}_scale", float) for n in ("height", "width"))
        if height is not None and width is not None:
            node.attribute.append(helper.make_attribute("scales", [1.0, 1.0, height, width]))
        return []

    def selu(self, node: NodeProto) -> list[NodeProto]:
        """The defaults got more digits."""
        for name, default in (("alpha", 1.6732), ("gamma", 1.0507)) if self.version < 6 else ():
            if not any(a.name == name for a in node.attribute):
                node.attribute.append(helper.make_attribute(name, default))
        return []

    # ---------------------------------------------------------------- help

    def constant(self, node: NodeProto, numbers: list[int]) -> list[NodeProto]:
        """A constant that becomes the node's next input."""
        stem = node.output[0] if node.output else node.op_type
        name = self.fresh(f"{stem}_parameter")
        data = helper.make_tensor(name, TensorProto.INT64, [len(numbers)], numbers)
        node.input.append(name)
        return [helper.make_node("Constant", [], [name], value=data)]

    def fresh(self, stem: str) -> str:
        count = self.counts.get(stem, 0)
        while (name := f"{stem}_raised{count or ''}") in self.taken:
            count += 1
        self.counts[stem] = count + 1
        self.taken.add(name)
        return name

    def rank(self, name: str) -> int:
        found = self.ranks.get(name)
        if found is None:
            raise self.wrong(f"the rank of {name!r} is needed and not told", "add it as value_info")
        if found > _MAX_RANK:
            raise self.wrong(f"{name!r} has {found} axes, more than {_MAX_RANK}")
        return found

    def values(self, name: str, what: str) -> list[int]:
        """A constant's numbers, of which there cannot be many."""
        tensor = self.stored.get(name)
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
            raise self.wrong(f"{what} ({name!r}) is no constant, which opset 7 wants")
        found = read_tensor(tensor, name, None, self.where)
        if len(found.type.sizes) > 1 or found.size > _MOST_NUMBERS or not found.type.dtype.is_real:
            raise self.wrong(f"{what} ({name!r}) is {found.type}, which is no list of numbers")
        numbers = found.array().reshape(-1).astype(np.float64)
        if not all(n.is_integer() and abs(n) <= _MOST for n in numbers):
            raise self.wrong(f"{what} ({name!r}) holds other than whole numbers")
        return [int(n) for n in numbers]

    def take(self, node: NodeProto, name: str, kind: Kind, default: Any = None) -> Any:
        """The attribute's value, which must be of that type; afterwards it is gone."""
        found = [a for a in node.attribute if a.name == name]
        _drop(node, name)
        if not found:
            return default
        try:
            value = helper.get_attribute_value(found[0])
        except ValueError as error:
            raise self.wrong(f"attribute {name!r} cannot be read: {error}") from None
        if not isinstance(value, kind):
            raise self.wrong(f"attribute {name!r} is {value!r:.60}, of the wrong type")
        return value

    def wrong(self, message: str, hint: str = "") -> ModelError:
        return ModelError(
            f"{message} (opset {self.version})",
            where=f"{self.where}, {self.title}",
            hint=hint or "export the model again, with a newer opset",
        )


def _drop(node: NodeProto, *names: str) -> None:
    kept = [a for a in node.attribute if a.name not in names]
    if len(kept) < len(node.attribute):
        del node.attribute[:]
        node.attribute.extend(kept)


def _dropping(*names: str) -> Callable[[_Raising, NodeProto], Iterable[NodeProto]]:
    def rule(_: _Raising, node: NodeProto) -> Iterable[NodeProto]:
        _drop(node, *names)
        return ()

    return rule


_RULES: dict[str, Callable[[_Raising, NodeProto], Iterable[NodeProto]]] = {
    **dict.fromkeys(_BROADCASTING, _Raising.broadcast),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _dropping("output_sequence")),
    **dict.fromkeys(("GlobalLpPool", "LpPool"), _Raising.whole_power),
    "BatchNormalization": _Raising.batch_norm,
    "Cast": _Raising.cast,
    "Concat": _Raising.concat,
    "Dropout": _dropping("is_test"),
    "Gemm": _dropping("broadcast"),
    "PRelu": _Raising.slope,
    "Pad": _Raising.pad,
    "Reshape": _Raising.reshape,
    "Selu": _Raising.selu,
    "Split": _Raising.split,
    "Tile": _Raising.tile,
    "Upsample": _Raising.upsample,
}
