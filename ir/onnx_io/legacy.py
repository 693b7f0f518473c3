"""Raising models of operator sets 1 to 6 to 7, the oldest that the IR has.

What changed in between (onnx/docs/Changelog.md): numpy's broadcasting took the place of
``broadcast`` and ``axis``, hints for memory went (``consumed_inputs``), and some attributes
became inputs, or other types. Training forms (``is_test = 0``) of BatchNormalization had outputs
of another meaning and are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)

from gecompiler.ir.errors import ModelError
from gecompiler.ir.onnx_io.legacy_ranks import find_ranks
from gecompiler.ir.onnx_io.order import node_title
from gecompiler.ir.onnx_io.schema import OLDEST_OPSET, domain_of

_BROADCASTING = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
_MAX_RANK = 64


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
        axis = _take(node, "axis")
        if not _take(node, "broadcast", 0) or axis is None:
            return []
        whole, part = self.rank(node.input[0]), self.rank(node.input[1])
        first = axis + whole if axis < 0 else axis
        return self.unsqueezed(node, list(range(part, whole - first)))

    def slope(self, node: NodeProto) -> list[NodeProto]:
        """PRelu's slope of rank 1 is one number, or one for each channel (axis 1)."""
        if self.ranks.get(node.input[1]) not in (1, None) or self.sizes(node.input[1]) == (1,):
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
        if not _take(node, "is_test", 0):
            self.fail("BatchNormalization in training mode (is_test = 0) has no form in opset 7")
        return []

    def cast(self, node: NodeProto) -> list[NodeProto]:
        """The type by its name before opset 6."""
        to = _take(node, "to")
        if isinstance(to, bytes):
            name = to.decode("utf-8", "replace").upper()
            if name not in TensorProto.DataType.keys():  # noqa: SIM118  (no mapping)
                self.fail(f"there is no element type {name!r}")
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
        power = _take(node, "p", 2)
        if power != int(power):
            self.fail(f"p = {power} is no whole number, which opset 7 wants")
        node.attribute.append(helper.make_attribute("p", int(power)))
        return []

    def reshape(self, node: NodeProto) -> list[NodeProto]:
        shape = _take(node, "shape")
        if shape is None:
            return []
        return self.constant(node, [int(n) for n in shape])

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
        (count,), (axis,) = self.values(node.input[1], "tiles"), self.values(node.input[2], "axis")
        rank = self.rank(node.input[0])
        if not -rank <= axis < rank:
            self.fail(f"axis {axis} is out of range for rank {rank}")
        repeats = [1] * rank
        repeats[axis] = count
        del node.input[1:]
        return self.constant(node, repeats)

    def upsample(self, node: NodeProto) -> list[NodeProto]:
        height, width = _take(node, "height_scale"), _take(node, "width_scale")
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
        name = self.fresh(f"{node.output[0]}_parameter")
        data = helper.make_tensor(name, TensorProto.INT64, [len(numbers)], numbers)
        node.input.append(name)
        return [helper.make_node("Constant", [], [name], value=data)]

    def fresh(self, stem: str) -> str:
        count = 0
        while (name := f"{stem}_raised{count or ''}") in self.taken:
            count += 1
        self.taken.add(name)
        return name

    def rank(self, name: str) -> int:
        found = self.ranks.get(name)
        if found is None:
            self.fail(f"the rank of {name!r} is needed and not told", "add it as value_info")
        if found > _MAX_RANK:
            self.fail(f"{name!r} has {found} axes, more than {_MAX_RANK}")
        return found

    def sizes(self, name: str) -> tuple[int, ...]:
        return next((tuple(t.dims) for t in self.graph.initializer if t.name == name), ())

    def values(self, name: str, what: str) -> list[int]:
        """A constant's numbers, of which there cannot be many."""
        tensors = [t for t in self.graph.initializer if t.name == name]
        tensors += [a.t for n in self.graph.node if name in n.output for a in n.attribute]
        for tensor in tensors:
            if len(tensor.dims) <= 1 and sum(tensor.dims) <= 4096:
                try:
                    return [int(n) for n in numpy_helper.to_array(tensor).reshape(-1)]
                except (ValueError, TypeError) as error:
                    self.fail(f"{name!r} cannot be read: {error}")
        self.fail(f"{what} ({name!r}) is no constant, which opset 7 wants")

    def fail(self, message: str, hint: str = "") -> NoReturn:
        raise ModelError(
            f"{message} (opset {self.version})",
            where=f"{self.where}, {self.title}",
            hint=hint or "export the model again, with a newer opset",
        )


def _take(node: NodeProto, name: str, default: Any = None) -> Any:
    """The attribute's value; afterwards it is gone."""
    for attribute in node.attribute:
        if attribute.name == name and attribute.type != AttributeProto.UNDEFINED:
            value = helper.get_attribute_value(attribute)
            _drop(node, name)
            return value
    return default


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
