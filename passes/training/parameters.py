"""Which constants of a model are its parameters.

A file does not say which initializers were trained. Floats of more than one element are, where
they are used as weights are: as an operand of a product, a table that is looked up in, a scale,
a shift or a bias, also behind views, casts and transposes. Not so tables of a rotary embedding,
what a sine or cosine is taken of, masks (numbers no weight has), bounds, exponents and such, and
what was folded of sizes and numbers alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np

from gecompiler.ir.block_ops import ACTIVATIONS, NORMS, ROTARY_EMBEDDING
from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op

_THROUGH = frozenset(
    (
        *("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Transpose", "Cast", "Expand"),
        *("Split", "Slice", "Concat", "Tile", "Pad", "Neg", "Dropout"),
    )
)
"""Ops that give a weight in another form."""

_ANY = tuple(range(64))
_SLOTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("MatMul", "Gemm", "Einsum", "Add", "Sub", "Mul", "Div"), _ANY),
    **dict.fromkeys(("Conv", "ConvTranspose", "PRelu"), (1, 2)),
    **dict.fromkeys(("Gather", "GatherND"), (0,)),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "BatchNormalization"), (1, 2)),
    **{f"{GE_DOMAIN}.{name}": (1, 2, 3, 4) for name in (*NORMS, *ACTIVATIONS)},
    f"{GE_DOMAIN}.FlashAttention": (4,),
    "Where": (1, 2),
    "ScatterND": (0, 2),
}
"""Inputs that weights are used as."""

LEAST = -1e4
"""Numbers at and below this are those of masks."""

_PERIODIC = ("Sin", "Cos")


def parameters(
    graph: Graph, patterns: Sequence[str] = (), wholes: Mapping[str, Constant] | None = None
) -> tuple[str, ...]:
    """The names of the constants that are trained, in the order of the graph's constants.

    ``patterns`` are names or globs of constants to train instead of those found by their use.
    ``wholes`` are the model's constants where the graph has a rank's part of them: two biases
    cut in two are a number each, and trained. UsageError for a pattern that matches no float
    constant of a whole model; a rank may have none that it matches.
    """
    known = {**graph.constants, **(wholes or {})}
    floats = {
        n: known[n] for n, c in graph.constants.items() if c.type.dtype.is_float and graph.uses(n)
    }
    if patterns:
        if wholes is None:
            _check_patterns(floats, patterns)
        return tuple(n for n in floats if any(fnmatchcase(n, p) for p in patterns))
    angles = _before(graph, _angle_inputs(graph))
    return tuple(
        name
        for name, constant in floats.items()
        if constant.size > 1
        and not constant.computed
        and name not in angles
        and _is_weight(graph, name, constant)
    )


def _check_patterns(floats: Iterable[str], patterns: Sequence[str]) -> None:
    names = list(floats)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UsageError(
                f"{pattern!r} matches no float constant of the model",
                where="train_parameters",
                hint=nearest(pattern, names),
            )


def _is_weight(graph: Graph, name: str, constant: Constant) -> bool:
    if _is_mask(constant):
        return False
    seen, todo = {name}, [name]
    while todo:
        value = todo.pop()
        for use in graph.uses(value):
            op = graph.op(use.op)
            if use.slot in _SLOTS.get(op.kind, ()) and _fits(graph, op, use.slot):
                return True
            if op.op_type in _THROUGH and not op.domain and (use.slot == 0 or op.is_("Concat")):
                todo += [v for v in op.outputs if v and v not in seen]
                seen.update(op.outputs)
    return False


def _fits(graph: Graph, op: Op, slot: int) -> bool:
    """Whether a product or sum has it as a weight: not as a factor of as many axes as positions."""
    if op.kind not in ("Mul", "Div"):
        return True
    shape = graph.shape(op.inputs[slot]) or ()
    return sum(1 for d in shape if d != 1) <= 1


def _is_mask(constant: Constant) -> bool:
    found = constant.small_array(1 << 20)
    return found is not None and not bool((np.asarray(found, np.float64) > LEAST).all())


def _angle_inputs(graph: Graph) -> list[str]:
    found: list[str] = []
    for op in graph.ops:
        if op.is_(*_PERIODIC):
            found.append(op.inputs[0])
        elif op.is_(ROTARY_EMBEDDING, domain=GE_DOMAIN):
            found += op.inputs[1:3]
    return found


def _before(graph: Graph, values: Iterable[str]) -> set[str]:
    """The values and all that they are computed from."""
    found: set[str] = set()
    todo = list(values)
    while todo:
        value = todo.pop()
        if value in found or not value:
            continue
        found.add(value)
        maker = graph.producer(value)
        if maker is not None:
            todo += maker.inputs
    return found
