"""Shapes of ops with sliding windows: Conv and its kin, ConvTranspose, pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gecompiler.ir.dim_bounds import smallest
from gecompiler.ir.dims import Dim, ceildiv, floordiv
from gecompiler.ir.infer.node import Node, PartialShape, Rule, Shapes
from gecompiler.ir.types import Shape


@dataclass(frozen=True)
class Window:
    """A window's parameters along the spatial axes, defaults filled in."""

    kernel: tuple[Dim, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    auto_pad: str
    ceil_mode: bool = False

    def sizes(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """The number of window positions along each axis."""
        return tuple(self._size(i, d) for i, d in enumerate(shape))

    def _size(self, axis: int, size: Dim) -> Dim:
        stride = self.strides[axis]
        extent = (self.kernel[axis] - 1) * self.dilations[axis] + 1
        if self.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            return ceildiv(size, stride)
        before, after = self.pads[axis], self.pads[axis + len(self.strides)]
        room = size + before + after - extent
        if not self.ceil_mode:
            return floordiv(room, stride) + 1
        # A window that would start in the padding behind is left out.
        return smallest(ceildiv(room, stride) + 1, ceildiv(size + before, stride))


def _parameters(node: Node, kernel: Sequence[Dim]) -> Window:
    rank = len(kernel)
    window = Window(
        tuple(kernel),
        _numbers(node, "strides", (1,) * rank),
        _numbers(node, "dilations", (1,) * rank),
        _numbers(node, "pads", (0,) * (2 * rank)),
        str(node.op.attr("auto_pad", "NOTSET")),
        bool(node.op.attr("ceil_mode", 0)),
    )
    if any(s < 1 for s in (*window.strides, *window.dilations)):
        node.fail("strides and dilations must be positive")
    return window


def _numbers(node: Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    given = node.op.attrs.get(name)
    if given is None or (given == () and default):
        return default
    found = node.ints(name, len(node.op.inputs))
    if found is None or len(found) != len(default):
        node.fail(f"{name} needs {len(default)} numbers")
    return found


def _kernel(node: Node, weights: Shape | None, rank: int) -> tuple[Dim, ...] | None:
    given = node.op.attrs.get("kernel_shape")
    if isinstance(given, tuple) and given:
        return _numbers(node, "kernel_shape", (1,) * rank)
    return None if weights is None else weights[2:]


def _checked(node: Node, sizes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    if any(isinstance(d, int) and d < 1 for d in sizes):
        node.fail("the window is larger than the padded input")
    return sizes


def _convolution(node: Node, x: Shape | None, w: Shape | None) -> Shapes:
    known = x if x is not None else w
    if known is None:
        return (None,)
    if len(known) < 3 or (x is not None and w is not None and len(x) != len(w)):
        node.fail("a convolution needs input and weights of one rank, at least 3")
    unknown: PartialShape = (None,) * len(known)
    if x is not None and w is not None:
        group = int(node.op.attr("group", 1))
        node.same(x[1], w[1] * group, "input channels, and weight channels times group,")
    kernel = _kernel(node, w, len(known) - 2)
    spatial = unknown[2:]
    if kernel is not None and x is not None:
        spatial = _checked(node, _parameters(node, kernel).sizes(x[2:]))
    return ((x[0] if x is not None else None, w[0] if w is not None else None, *spatial),)


def conv(node: Node) -> Shapes:
    """(N, C, ...) and (M, C/group, ...) to (N, M, ...)."""
    return _convolution(node, node.shape(0), node.shape(1))


def qlinear_conv(node: Node) -> Shapes:
    """Conv with scales and zero points between input and weights."""
    return _convolution(node, node.shape(0), node.shape(3))


def conv_transpose(node: Node) -> Shapes:
    """(N, C, ...) and (C, M/group, ...) to (N, M, ...)."""
    x, w = node.shape(0), node.shape(1)
    if x is None or w is None:
        return (None,)
    if len(x) != len(w) or len(x) < 3:
        node.fail("a convolution needs input and weights of one rank, at least 3")
    node.same(x[1], w[0], "input and weight channels")
    channels = w[1] * int(node.op.attr("group", 1))
    given = node.op.attrs.get("output_shape")
    if isinstance(given, tuple) and given:
        return ((x[0], channels, *(int(str(d)) for d in given[-(len(x) - 2) :])),)
    window = _parameters(node, _kernel(node, w, len(x) - 2) or ())
    extra = _numbers(node, "output_padding", (0,) * (len(x) - 2))
    sizes = []
    for i, size in enumerate(x[2:]):
        stride = window.strides[i]
        if window.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            sizes.append(size * stride)
            continue
        extent = (window.kernel[i] - 1) * window.dilations[i] + 1
        pads = window.pads[i] + window.pads[i + len(window.strides)]
        sizes.append((size - 1) * stride + extent + extra[i] - pads)
    return ((x[0], channels, *_checked(node, tuple(sizes))),)


def pool(node: Node) -> Shapes:
    """(N, C, ...) with a window over each spatial axis; MaxPool may add indices."""
    x, count = node.shape(0), len(node.op.outputs)
    if x is None:
        return (None,) * count
    kernel = _kernel(node, None, len(x) - 2)
    if len(x) < 3 or kernel is None:
        node.fail("a pool needs rank 3 or more and kernel_shape")
    return ((*x[:2], *_checked(node, _parameters(node, kernel).sizes(x[2:]))),) * count


def max_unpool(node: Node) -> Shapes:
    """What MaxPool made from, as far as its parameters tell; or the shape that is given."""
    x = node.shape(0)
    if x is None:
        return (None,)
    if node.has(2):
        return (node.items(2) or (None,) * len(x),)
    window = _parameters(node, _kernel(node, None, len(x) - 2) or ())
    sizes = []
    for i, size in enumerate(x[2:]):
        pads = window.pads[i] + window.pads[i + len(window.strides)]
        sizes.append((size - 1) * window.strides[i] + window.kernel[i] - pads)
    return ((*x[:2], *_checked(node, tuple(sizes))),)


def global_pool(node: Node) -> Shapes:
    """(N, C, 1, ...)."""
    x = node.shape(0)
    if x is None:
        return (None,)
    if len(x) < 2:
        node.fail("a global pool needs rank 2 or more")
    return ((*x[:2], *(1 for _ in x[2:])),)


RULES: dict[str, Rule] = {
    "Conv": conv,
    "ConvInteger": conv,
    "DeformConv": conv,
    "QLinearConv": qlinear_conv,
    "MaxUnpool": max_unpool,
    "ConvTranspose": conv_transpose,
    "MaxPool": pool,
    "AveragePool": pool,
    "LpPool": pool,
    "GlobalAveragePool": global_pool,
    "GlobalMaxPool": global_pool,
    "GlobalLpPool": global_pool,
}
