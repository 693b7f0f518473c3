"""What an op does besides computing its outputs from its inputs: what passes may not assume.

ONNX ops have no side effects, but some draw random numbers, so that two of them are not one.
Ops of domains we do not know are taken to do anything; collectives meet their partners on
other ranks, so that none may vanish.
"""

from __future__ import annotations

from gecompiler.ir.collective_ops import is_collective_op
from gecompiler.ir.op import GE_DOMAIN, Op

_PURE_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft", GE_DOMAIN})

_RANDOM = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)

_COLLECTIVE_WORDS = ("AllReduce", "AllGather", "AllToAll", "ReduceScatter", "Broadcast", "Barrier")


def is_random(op: Op) -> bool:
    """Whether two runs, or two copies, may give different results."""
    if op.domain in ("", "ai.onnx"):
        if op.op_type in _RANDOM:
            return True
        if op.op_type == "Dropout" and op.input(2):
            return True  # a training mode that is not known here; no-op removal folds false ones
    bodies = op.bodies if op.attrs else ()
    return any(is_random(inner) for body in bodies for inner in body.ops)


def has_side_effects(op: Op) -> bool:
    """Whether the op must stay although nothing uses its outputs."""
    if op.domain not in _PURE_DOMAINS or _is_collective(op):
        return True
    bodies = op.bodies if op.attrs else ()
    return any(has_side_effects(inner) for body in bodies for inner in body.ops)


def is_pure(op: Op) -> bool:
    """Whether the op is a function of its inputs and nothing else."""
    return not is_random(op) and not has_side_effects(op)


def _is_collective(op: Op) -> bool:
    return is_collective_op(op) or (
        bool(op.domain) and any(word in op.op_type for word in _COLLECTIVE_WORDS)
    )
