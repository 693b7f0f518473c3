"""The sizes of a cache of keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gecompiler.backends.device import Device
from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError
from gecompiler.ops.shapes import element_type

_WHERE = "PagedAttentionConfig"


@dataclass(frozen=True)
class PagedAttentionConfig:
    """A pool of ``max_num_pages`` pages of ``page_size`` tokens.

    A token's keys and values are ``kv_heads`` heads (default: ``num_heads``, the query heads) of
    ``head_dim`` elements of ``dtype``, a float type of numpy or its name, ``bf16`` too. Values
    may have another width, ``v_head_dim``. UsageError says which figure makes no sense.
    """

    num_heads: int
    head_dim: int
    page_size: int = 16
    max_num_pages: int = 2048
    dtype: DTypeLike = np.float16
    kv_heads: int | None = None
    v_head_dim: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_heads", "head_dim", "page_size", "max_num_pages"):
            _check_count(name, getattr(self, name))
        for name in ("kv_heads", "v_head_dim"):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name))
        if self.num_heads % self.kv_head_num:
            raise UsageError(
                f"{self.num_heads} query heads are no multiple of {self.kv_heads} KV heads",
                where=_WHERE,
                hint="each KV head serves num_heads / kv_heads query heads",
            )
        object.__setattr__(self, "dtype", element_type(self.dtype, _WHERE))

    @property
    def element_type(self) -> np.dtype[np.generic]:
        """``dtype`` as numpy's."""
        return np.dtype(self.dtype)

    @property
    def kv_head_num(self) -> int:
        """Heads of key and value."""
        return self.num_heads if self.kv_heads is None else self.kv_heads

    @property
    def value_dim(self) -> int:
        """Width of a head of values."""
        return self.head_dim if self.v_head_dim is None else self.v_head_dim

    @property
    def max_tokens(self) -> int:
        """Tokens that fit into all pages."""
        return self.page_size * self.max_num_pages

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's keys and values."""
        return self.kv_head_num * (self.head_dim + self.value_dim) * self.element_type.itemsize

    @property
    def pool_bytes(self) -> int:
        """Bytes of all pages."""
        return self.max_tokens * self.token_bytes


def allocate(config: PagedAttentionConfig, lead: tuple[int, ...], device: Device) -> list[Array]:
    """The arrays of keys and values, ``lead`` and then a head's width; not yet written to.

    UsageError where ``device``, or this machine, does not hold them.
    """
    there = device.memory_gib * 2**30
    hint = "fewer pages (max_num_pages), or fewer KV heads (kv_heads) than query heads"
    if config.pool_bytes > there:
        raise UsageError(
            f"{config.max_num_pages} pages of {config.page_size} tokens take "
            f"{config.pool_bytes / 2**30:.1f} GiB, {device.name} has {device.memory_gib:g}",
            where="KV cache",
            hint=hint,
        )
    try:
        widths = (config.head_dim, config.value_dim)
        return [np.empty((*lead, width), config.element_type) for width in widths]
    except (MemoryError, ValueError):
        raise UsageError(
            f"this machine has no {config.pool_bytes / 2**30:.1f} GiB for the cache",
            where="KV cache",
            hint=hint,
        ) from None


def _check_count(name: str, value: Any) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < 1:
        raise UsageError(f"{name} must be a positive integer, found {value!r}", where=_WHERE)
