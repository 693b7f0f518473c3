"""The search over block sizes and the counters of a call are one implementation."""

from __future__ import annotations

import numpy as np
import pytest

import gecompiler as ge
from gecompiler.attention_blocks import attention_of
from gecompiler.backends.cost.attention import fits
from gecompiler.backends.device import load_device
from gecompiler.ir import parse
from gecompiler.tuning.blocks import search_blocks

TEXT = """graph (opset 20) {{
  input %q: f16[2, 8, 512, 64] input %k: f16[2, 2, 768, 64] input %v: f16[2, 2, 768, 64]
  input %m: {mask}[512, 768]
  %y: f16[2, 8, 512, 64] = gecompiler.FlashAttention(%q, %k, %v{given}) {{
    scale = 0.125, q_heads = 8, kv_heads = 2{attributes}}}
  return %y
}}"""


@pytest.mark.parametrize("device", ["ascend910", "ascend910b", "a100"])
@pytest.mark.parametrize(
    ("attributes", "mask", "options"),
    [
        ("", None, {}),
        (", softcap = 30.0", None, {"softcap": 30.0}),
        (
            ", window_left = 100, window_right = 0, align = 'bottom_right'",
            None,
            {"window": (100, 0), "causal_align": "bottom_right"},
        ),
        ("", "bool", {"attn_mask": np.ones((512, 768), bool)}),
        ("", "f16", {"attn_mask": np.zeros((512, 768), np.float16)}),
    ],
)
def test_the_time_tuned_for_is_the_time_counted(device, attributes, mask, options):
    text = TEXT.format(
        attributes=attributes.replace("'", '"'), mask=mask or "f16", given=", %m" if mask else ""
    )
    graph = parse(text)
    profile = load_device(device)
    rows = search_blocks(profile, graph)
    (problem,) = [a for a in (attention_of(graph, op) for op in graph.ops) if a]
    assert len(rows) > 10
    for row in rows:
        counted = ge.ops.attention_counters(
            (2, 8, 512, 64), (2, 2, 768, 64), head_num=8, input_layout="BNSD", device=device,
            block_size_q=row.blocks.queries, block_size_k=row.blocks.keys, **options,
        )  # fmt: skip
        assert counted.time_us == pytest.approx(row.us, rel=1e-12)
        assert (not counted.overflows) == row.fits == fits(profile, problem, row.blocks)
