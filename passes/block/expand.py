"""The ops of block fusion as plain ONNX again, for export."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gecompiler.ir.block_ops import ACTIVATIONS, NORMS, ROTARY_EMBEDDING
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.block.expand_activation import expand_activation
from gecompiler.passes.block.expand_norm import expand_norm
from gecompiler.passes.block.expand_rotary import expand_rotary

Expansion = Callable[[Builder, Op, bool], tuple[str, ...]]
"""Emits what an op is made of and returns a value for each of its outputs.

The flag asks for primitive ops, whatever the graph's opset has.
"""

EXPANSIONS: Mapping[str, Expansion] = {
    **dict.fromkeys((f"{GE_DOMAIN}.{name}" for name in NORMS), expand_norm),
    f"{GE_DOMAIN}.{ROTARY_EMBEDDING}": expand_rotary,
    **dict.fromkeys((f"{GE_DOMAIN}.{name}" for name in ACTIVATIONS), expand_activation),
}
"""How each kind of op is expanded."""
