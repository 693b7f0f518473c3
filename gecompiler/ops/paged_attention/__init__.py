"""Attention over keys and values cached in pages, as PagedAttention does it.

    from gecompiler.ops import paged_attention
    config = paged_attention.PagedAttentionConfig(
        num_heads=64, head_dim=128, page_size=16, max_num_pages=2048, dtype="float16", kv_heads=8
    )
    kv_cache = paged_attention.PagedKVCache(config=config)
    kv_cache.append(key, value)
    output = paged_attention.flash_attention_with_paged_kv(query, kv_cache, head_num=64)

Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention"
(SOSP 2023): the cache is a pool of pages of a few tokens each, a sequence is a table of pages,
and sequences with a common prefix share its pages until one of them writes there.
`ContiguousKVCache` is what it replaces: one stretch of memory a sequence, copied to grow.
"""

from gecompiler.ops.paged_attention.attention import flash_attention_with_paged_kv
from gecompiler.ops.paged_attention.cache import PagedKVCache
from gecompiler.ops.paged_attention.config import PagedAttentionConfig
from gecompiler.ops.paged_attention.contiguous import ContiguousKVCache
from gecompiler.ops.paged_attention.usage import CacheFullError, CacheUsage, KVCache

__all__ = [
    "CacheFullError",
    "CacheUsage",
    "ContiguousKVCache",
    "KVCache",
    "PagedAttentionConfig",
    "PagedKVCache",
    "flash_attention_with_paged_kv",
]
