"""The tables of all rules, by op type. An op in none of them is left to onnx."""

from __future__ import annotations

from gecompiler.ir import (
    infer_arithmetic,
    infer_attention,
    infer_block,
    infer_elementwise,
    infer_gather,
    infer_generate,
    infer_logic,
    infer_matmul,
    infer_norm,
    infer_reduce,
    infer_reshape,
    infer_resize,
    infer_signal,
    infer_slice,
    infer_values,
    infer_window,
)
from gecompiler.ir.infer_node import Rule
from gecompiler.ir.infer_values import ValueRule
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
    ),
    "ai.onnx.preview": infer_attention.PREVIEW_RULES,
    GE_DOMAIN: _merged(infer_attention.OWN_RULES, infer_block.RULES),
}
"""Shape rules by domain and op type."""

VALUE_RULES: dict[str, ValueRule] = {
    **infer_values.RULES,
    **infer_arithmetic.RULES,
    **infer_logic.RULES,
}
"""Rules for the contents of small tensors, by op type of ai.onnx."""
