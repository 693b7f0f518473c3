"""The meaning of the ops that block fusion makes: norms, rotary embedding, activations.

All are in the domain ``gecompiler``, compute in float32 (float64 for float64) and round once, to
the type of X, except where said otherwise. Optional inputs are marked ``?``.

Norms, over the axes from ``axis`` to the last::

    RMSNorm, LayerNorm          X, scale?, shift?                    -> Y
    AddRMSNorm, AddLayerNorm    X, residual, scale?, shift?, bias?   -> Y, sum?

    x = X,  or  X + bias + residual, rounded to X's type    (this is ``sum``)
    c = x - mean(x)  (LayerNorm),  x  (RMSNorm)             every step in stash_type
    n = c / sqrt(mean(c * c) + epsilon)                     every step in stash_type
    Y = n * (offset + scale) + shift                        every step in scale_type

``residual`` has the shape of X, ``bias`` that of its last axis; ``scale`` and ``shift``
broadcast to the normalised axes. ``scale_type`` is Y's type where n is rounded before it is
scaled (LLaMA), the stash's where after (Gemma). Y is rounded to ``output_type``. These are
ONNX's LayerNormalization and RMSNormalization, and their residual variants of the Ascend
operator library.

Rotary embedding (Su et al. 2021) of the lanes ``start`` to ``start + dim - 1`` of the last axis;
the others pass through::

    RotaryEmbedding             X, cos, sin                          -> Y

    y_i = x_i cos_i - x_j sin_i      y_j = x_j cos_j + x_i sin_j

``style`` says which lanes are a pair: i and i + dim/2 (``half``), 2i and 2i + 1
(``interleaved``), or 2i and 2i + 1 of X and i and i + dim/2 of Y (``interleaved_to_half``).
The tables broadcast to (..., dim), or to (..., dim/2) with one number for both lanes of a pair;
they may be of another float type than X.

Activations, and those that gate another tensor (Shazeer 2020, "GLU variants")::

    Gelu, Silu, Relu, SquaredRelu, Sigmoid, Tanh    X, bias?         -> act(X + bias)
    GeluMul, SiluMul, ...                           X, up?, bias?    -> act(X + bias) * up

Gelu is exact or by ``tanh`` (``approximate``); Silu is x * sigmoid(alpha * x), which with alpha
1.702 is the quick GELU. ``bias`` has the shape of X's last axis. Without ``up`` the halves of
X + bias along the last axis are both: the gate is the ``first`` or the ``last`` of them, or its
``even`` or ``odd`` lanes.

A gated activation may clamp and shift (GPT-OSS)::

    act(min(X + bias, limit)) * (min(max(up, -limit), limit) + shift)

No ``limit`` above 0: no clamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gecompiler.ir.errors import GraphError
from gecompiler.ir.op import GE_DOMAIN, Attr, Op
from gecompiler.ir.types import DType

RMS_NORM, LAYER_NORM = "RMSNorm", "LayerNorm"
ADD_RMS_NORM, ADD_LAYER_NORM = "AddRMSNorm", "AddLayerNorm"
ROTARY_EMBEDDING = "RotaryEmbedding"
FUNCTIONS = ("Gelu", "Silu", "Relu", "SquaredRelu", "Sigmoid", "Tanh")
Gate = Literal["first", "last", "even", "odd"]
GATES: tuple[Gate, ...] = ("first", "last", "even", "odd")
"""Which lanes of what a gated activation halves are the gate."""

STYLES = ("half", "interleaved", "interleaved_to_half")

NORMS = (RMS_NORM, LAYER_NORM, ADD_RMS_NORM, ADD_LAYER_NORM)
ACTIVATIONS = (*FUNCTIONS, *(f"{name}Mul" for name in FUNCTIONS))
BLOCK_OPS = (*NORMS, ROTARY_EMBEDDING, *ACTIVATIONS)
"""The op types of block fusion in the domain ``gecompiler``."""


def is_block_op(op: Op) -> bool:
    """Whether the op is one that block fusion makes."""
    return op.domain == GE_DOMAIN and op.op_type in BLOCK_OPS


@dataclass(frozen=True, slots=True)
class Norm:
    """A norm: whether it is ``centred`` (LayerNorm), ``adds`` a residual, and its attributes."""

    centred: bool
    axis: int
    epsilon: float
    stash: DType
    scale_type: DType
    output: DType
    offset: float = 0.0
    adds: bool = False

    @property
    def op_type(self) -> str:
        """The name of the op."""
        if self.adds:
            return ADD_LAYER_NORM if self.centred else ADD_RMS_NORM
        return LAYER_NORM if self.centred else RMS_NORM

    def attrs(self) -> dict[str, Attr]:
        """As attributes of an `Op`."""
        return {
            "axis": self.axis,
            "epsilon": self.epsilon,
            "stash_type": self.stash.code,
            "scale_type": self.scale_type.code,
            "output_type": self.output.code,
            "offset": self.offset,
        }

    @staticmethod
    def of(op: Op) -> Norm:
        """The attributes of a norm; GraphError when they make no sense."""
        types = ("stash_type", "scale_type", "output_type")
        a = _Attrs(op, ("axis", "epsilon", *types, "offset"))
        stash, scale_type, output = (a.dtype(name) for name in types)
        return Norm(
            op.op_type in (LAYER_NORM, ADD_LAYER_NORM),
            a.integer("axis", -1),
            a.number("epsilon", 1e-5),
            stash,
            scale_type,
            output,
            a.number("offset", 0.0),
            op.op_type in (ADD_RMS_NORM, ADD_LAYER_NORM),
        )


@dataclass(frozen=True, slots=True)
class NormInputs:
    """The inputs of a norm by name, ``""`` for one that is left out."""

    x: str
    residual: str = ""
    scale: str = ""
    shift: str = ""
    bias: str = ""

    def listed(self, adds: bool) -> tuple[str, ...]:
        """As inputs of an `Op`."""
        found = [self.x, self.residual] if adds else [self.x]
        found += [self.scale, self.shift, self.bias]
        while not found[-1]:
            found.pop()
        return tuple(found)

    @staticmethod
    def of(op: Op) -> NormInputs:
        """The inputs of a norm."""
        first = 1 + (op.op_type in (ADD_RMS_NORM, ADD_LAYER_NORM))
        residual = op.input(1) if first == 2 else ""
        scale, shift, bias = (op.input(first + n) for n in range(3))
        return NormInputs(op.inputs[0], residual, scale, shift, bias)


@dataclass(frozen=True, slots=True)
class Rotary:
    """The attributes of a RotaryEmbedding."""

    dim: int
    start: int = 0
    style: str = "half"

    def attrs(self) -> dict[str, Attr]:
        """As attributes of an `Op`."""
        return {"dim": self.dim, "start": self.start, "style": self.style}

    @staticmethod
    def of(op: Op) -> Rotary:
        """The attributes of a RotaryEmbedding; GraphError when they make no sense."""
        a = _Attrs(op, ("dim", "start", "style"))
        found = Rotary(a.integer("dim", 0), a.integer("start", 0), a.word("style", STYLES))
        if found.dim < 2 or found.dim % 2 or found.start < 0:
            a.fail(f"rotates {found.dim} lanes from {found.start} on, expected an even number")
        return found


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation: its function, whether it is ``gated``, and its attributes."""

    function: str
    gated: bool = False
    approximate: Literal["none", "tanh"] = "none"
    alpha: float = 1.0
    gate: Gate = "first"
    limit: float = 0.0
    shift: float = 0.0

    @property
    def op_type(self) -> str:
        """The name of the op."""
        return f"{self.function}Mul" if self.gated else self.function

    def attrs(self) -> dict[str, Attr]:
        """As attributes of an `Op`: those that mean something for it."""
        found: dict[str, Attr] = {}
        if self.function == "Gelu":
            found["approximate"] = self.approximate
        if self.function == "Silu":
            found["alpha"] = self.alpha
        if self.gated:
            found["gate"] = self.gate
            found.update({n: v for n, v in (("limit", self.limit), ("shift", self.shift)) if v})
        return found

    @staticmethod
    def of(op: Op) -> Activation:
        """The attributes of an activation; GraphError when they make no sense."""
        gated = op.op_type.endswith("Mul")
        function = op.op_type.removesuffix("Mul")
        plain = Activation(function, gated)
        a = _Attrs(op, (*plain.attrs(), *(("limit", "shift") if gated else ())))
        approximate = a.word("approximate", ("none", "tanh"))
        gate = a.word("gate", GATES)
        return Activation(
            function,
            gated,
            "tanh" if approximate == "tanh" else "none",
            a.number("alpha", 1.0),
            next(g for g in GATES if g == gate),
            a.number("limit", 0.0),
            a.number("shift", 0.0),
        )


class _Attrs:
    """Attributes read by kind; GraphError for one that is unknown or of the wrong kind."""

    def __init__(self, op: Op, known: tuple[str, ...]) -> None:
        self._op = op
        self._attrs: Mapping[str, Attr] = op.attrs
        for name in op.attrs:
            if name not in known:
                self.fail(f"has no attribute {name!r}")

    def fail(self, message: str) -> None:
        raise GraphError(f"op {self._op.name!r} ({self._op.kind}) {message}")

    def integer(self, name: str, default: int) -> int:
        value = self._attrs.get(name, default)
        if type(value) is not int:
            self.fail(f"has {name} = {value!r}, expected an integer")
        return int(value)  # type: ignore[arg-type]

    def number(self, name: str, default: float) -> float:
        value = self._attrs.get(name, default)
        if not isinstance(value, (int, float)) or not abs(value) < float("inf"):
            self.fail(f"has {name} = {value!r}, expected a finite number")
        return float(value)  # type: ignore[arg-type]

    def word(self, name: str, known: tuple[str, ...]) -> str:
        value = self._attrs.get(name, known[0])
        if value not in known:
            self.fail(f"has {name} = {value!r}, expected one of {known}")
        return str(value)

    def dtype(self, name: str) -> DType:
        code = self.integer(name, DType.F32.code)
        found = next((d for d in DType if d.code == code and d.is_float), None)
        if found is None:
            self.fail(f"has {name} = {code}, expected the code of a float type")
        assert found is not None
        return found
