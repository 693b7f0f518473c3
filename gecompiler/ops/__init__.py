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
    "attention_counters": "gecompiler.ops.attention",
    "flash_attention": "gecompiler.ops.attention",
    "flash_attention_backward": "gecompiler.ops.attention",
}

__all__ = sorted(_HOME)  # noqa: PLE0605

if TYPE_CHECKING:
    from gecompiler.backends.counters import AttentionCounters as AttentionCounters
    from gecompiler.ops.attention import AttentionGradients as AttentionGradients
    from gecompiler.ops.attention import attention_counters as attention_counters
    from gecompiler.ops.attention import flash_attention as flash_attention
    from gecompiler.ops.attention import flash_attention_backward as flash_attention_backward


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'gecompiler.ops' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
