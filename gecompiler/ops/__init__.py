"""Attention operators on numpy arrays, with the counters that a profiler on the card shows.

    from gecompiler import ops
    out = ops.flash_attention(query, key, value, head_num=64, kv_head_num=8, is_causal=True)

Numbers are real, from the kernel that compiled models run; times are the device's model's.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "AttentionCounters": "gecompiler.backends.counters",
    "AttentionGradients": "gecompiler.ops.attention",
    "ContiguousKVCache": "gecompiler.ops.paged_attention",
    "PagedAttentionConfig": "gecompiler.ops.paged_attention",
    "PagedKVCache": "gecompiler.ops.paged_attention",
    "ParallelAttention": "gecompiler.ops.parallel",
    "attention_counters": "gecompiler.ops.attention",
    "flash_attention": "gecompiler.ops.attention",
    "flash_attention_backward": "gecompiler.ops.attention",
    "flash_attention_with_paged_kv": "gecompiler.ops.paged_attention",
    "parallel_counters": "gecompiler.ops.parallel",
    "sequence_parallel": "gecompiler.ops.parallel",
    "tensor_parallel": "gecompiler.ops.parallel",
}

_MODULES = ("paged_attention", "parallel")
"""Modules that are loaded on first use."""

__all__ = sorted([*_HOME, *_MODULES])  # noqa: PLE0605

if TYPE_CHECKING:
    from gecompiler.backends.counters import AttentionCounters as AttentionCounters
    from gecompiler.ops import paged_attention as paged_attention
    from gecompiler.ops import parallel as parallel
    from gecompiler.ops.attention import AttentionGradients as AttentionGradients
    from gecompiler.ops.attention import attention_counters as attention_counters
    from gecompiler.ops.attention import flash_attention as flash_attention
    from gecompiler.ops.attention import flash_attention_backward as flash_attention_backward
    from gecompiler.ops.paged_attention import ContiguousKVCache as ContiguousKVCache
    from gecompiler.ops.paged_attention import PagedAttentionConfig as PagedAttentionConfig
    from gecompiler.ops.paged_attention import PagedKVCache as PagedKVCache
    from gecompiler.ops.paged_attention import (
        flash_attention_with_paged_kv as flash_attention_with_paged_kv,
    )
    from gecompiler.ops.parallel import ParallelAttention as ParallelAttention
    from gecompiler.ops.parallel import parallel_counters as parallel_counters
    from gecompiler.ops.parallel import sequence_parallel as sequence_parallel
    from gecompiler.ops.parallel import tensor_parallel as tensor_parallel


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'gecompiler.ops' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
