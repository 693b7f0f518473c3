"""The tables of all rules, by op type. An op in none of them is left to onnx."""

from __future__ import annotations

from gecompiler.ir.infer import arithmetic as infer_arithmetic
from gecompiler.ir.infer import attention as infer_attention
from gecompiler.ir.infer import block as infer_block
from gecompiler.ir.infer import collectives as infer_collectives
from gecompiler.ir.infer import contrib as infer_contrib
from gecompiler.ir.infer import elementwise as infer_elementwise
from gecompiler.ir.infer import gather as infer_gather
from gecompiler.ir.infer import generate as infer_generate
from gecompiler.ir.infer import logic as infer_logic
from gecompiler.ir.infer import matmul as infer_matmul
from gecompiler.ir.infer import norm as infer_norm
from gecompiler.ir.infer import reduce as infer_reduce
from gecompiler.ir.infer import reshape as infer_reshape
from gecompiler.ir.infer import resize as infer_resize
from gecompiler.ir.infer import signal as infer_signal
from gecompiler.ir.infer import slice as infer_slice
from gecompiler.ir.infer import training as infer_training
from gecompiler.ir.infer import values as infer_values
from gecompiler.ir.infer import window as infer_window
from gecompiler.ir.infer.node import Rule
from gecompiler.ir.infer.values import ValueRule
from gecompiler.ir.op import GE_DOMAIN


def _merged(*tables: dict[str, Rule]) -> dict[str, Rule]:
    """One table; a rule given twice is a bug of ours."""
    result: dict[str, Rule] = {}
    for table in tables:
        twice = result.keys() & table.keys()
        if twice:
            raise RuntimeError(f"two rules for {sorted(twice)}")
        result.update(table)
    return result


SHAPE_RULES: dict[str, dict[str, Rule]] = {
    "": _merged(
        infer_elementwise.RULES,
        infer_matmul.RULES,
        infer_reshape.RULES,
        infer_slice.RULES,
        infer_gather.RULES,
        infer_reduce.RULES,
        infer_norm.RULES,
        infer_window.RULES,
        infer_resize.RULES,
        infer_generate.RULES,
        infer_signal.RULES,
        infer_attention.RULES,
        infer_contrib.ONNX_RULES,
    ),
    infer_contrib.CONTRIB_DOMAIN: infer_contrib.RULES,
    "ai.onnx.preview": infer_attention.PREVIEW_RULES,
    GE_DOMAIN: _merged(
        infer_attention.OWN_RULES,
        infer_block.RULES,
        infer_training.RULES,
        infer_collectives.RULES,
    ),
}
"""Shape rules by domain and op type."""

VALUE_RULES: dict[str, ValueRule] = {
    **infer_values.RULES,
    **infer_arithmetic.RULES,
    **infer_logic.RULES,
}
"""Rules for the contents of small tensors, by op type of ai.onnx."""
