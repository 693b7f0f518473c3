"""A small LLaMA that divides over cards in many ways, and tokens for it."""

from __future__ import annotations

from typing import Any

import numpy as np

SPEC: dict[str, Any] = {
    "name": "tiny", "family": "llama", "description": "small", "source": "this test",
    "hidden": 32, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 8, "intermediate": 64,
    "vocabulary": 50, "max_positions": 64, "norm_epsilon": 1e-5, "rope_theta": 10000.0,
    "dtype": "f32",
}  # fmt: skip


def tokens(batch: int, seq: int) -> dict[str, Any]:
    """Inputs of the model in its prefill, none of them padding."""
    ids = np.random.default_rng(7).integers(0, SPEC["vocabulary"], (batch, seq))
    return {"input_ids": ids, "attention_mask": np.ones((batch, seq), np.int64)}
