"""Reading activations, whether of ai.onnx or ours, and making them: ai.onnx's where it can."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gecompiler.ir.block_ops import ACTIVATIONS, Activation
from gecompiler.ir.op import GE_DOMAIN, Attr, Op
from gecompiler.passes.block.region import fused
from gecompiler.passes.rewriting import Rewriter

STANDARD = ("Gelu", "Swish", "Relu", "Sigmoid", "Tanh")
"""Activations of ai.onnx that ours are made from."""

KINDS = (*STANDARD, *(f"{GE_DOMAIN}.{name}" for name in ACTIVATIONS))
"""Kinds of ops that `read_activation` reads."""


@dataclass(frozen=True, slots=True)
class ActivationInputs:
    """The inputs of an activation by name, ``""`` for one that is left out."""

    x: str
    up: str = ""
    bias: str = ""

    def listed(self, gated: bool) -> tuple[str, ...]:
        """As inputs of an `Op`."""
        found = [self.x, self.up, self.bias] if gated else [self.x, self.bias]
        while not found[-1]:
            found.pop()
        return tuple(found)


def read_activation(op: Op | None) -> tuple[Activation, ActivationInputs] | None:
    """The activation that an op is, or None."""
    if op is None:
        return None
    if op.domain == GE_DOMAIN and op.op_type in ACTIVATIONS:
        spec = Activation.of(op)
        bias = op.input(2 if spec.gated else 1)
        return spec, ActivationInputs(op.inputs[0], op.input(1) if spec.gated else "", bias)
    if op.domain or op.op_type not in STANDARD:
        return None
    if op.op_type == "Swish":
        return Activation("Silu", alpha=float(op.attr("alpha", 1.0))), ActivationInputs(
            op.inputs[0]
        )
    tanh = op.op_type == "Gelu" and op.attr("approximate") == "tanh"
    spec = Activation(op.op_type, approximate="tanh" if tanh else "none")
    return spec, ActivationInputs(op.inputs[0])


def activation_in_place(
    r: Rewriter,
    last: Op,
    members: Iterable[Op],
    spec: Activation,
    x: str,
    *,
    up: str = "",
    bias: str = "",
    named_after: Op,
) -> Op | None:
    """The activation in the place of ``last`` and ``members``; None when that may not be."""
    standard = None if bias or spec.gated else _standard(r, spec)
    if standard is not None:
        op_type, attrs = standard
        return fused(r, last, members, op_type, (x,), attrs, domain="", named_after=named_after)
    inputs = ActivationInputs(x, up, bias).listed(spec.gated)
    return fused(r, last, members, spec.op_type, inputs, spec.attrs(), named_after=named_after)


def _standard(r: Rewriter, spec: Activation) -> tuple[str, dict[str, Attr]] | None:
    """The op of ai.onnx that means the same in this graph's opset, and its attributes."""
    if spec.function == "Gelu":
        return ("Gelu", {"approximate": spec.approximate}) if r.opset >= 20 else None
    if spec.function == "Silu":
        return ("Swish", {"alpha": spec.alpha}) if r.opset >= 24 else None
    return (spec.function, {}) if spec.function in STANDARD else None
