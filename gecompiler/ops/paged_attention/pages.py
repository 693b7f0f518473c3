"""A pool of pages, counted by how many sequences hold each, and a tensor that lies in pages."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecompiler.backends.device import Device
from gecompiler.ir.constants import Array
from gecompiler.ops.paged_attention.config import PagedAttentionConfig, allocate


class PagePool:
    """Pages and who holds them; a page that nobody holds is free.

    ``key`` (pages, G, page size, D), ``value`` (pages, G, page size, Dv): a page is one stretch
    of memory. Pages freed last are taken first.
    """

    def __init__(self, config: PagedAttentionConfig, device: Device) -> None:
        self.size = config.max_num_pages
        lead = (config.max_num_pages, config.kv_head_num, config.page_size)
        self.key, self.value = allocate(config, lead, device)
        self.holders: NDArray[np.int64] = np.zeros(self.size, np.int64)
        self._returned: list[int] = []
        self._untouched = 0

    @property
    def free(self) -> int:
        """Pages that nobody holds."""
        return self.size - self._untouched + len(self._returned)

    def take(self) -> int:
        """A free page, held once. There must be one."""
        if self._returned:
            page = self._returned.pop()
        else:
            page, self._untouched = self._untouched, self._untouched + 1
        self.holders[page] = 1
        return page

    def hold(self, pages: list[int]) -> None:
        """One more holder for each; a page is named once."""
        self.holders[pages] += 1

    def drop(self, pages: list[int]) -> None:
        """One holder less for each; a page is named once."""
        if not pages:
            return
        self.holders[pages] -= 1
        left = self.holders[pages]
        self._returned += [page for page, n in zip(pages[::-1], left[::-1], strict=True) if n == 0]

    def copy(self, source: int, tokens: int) -> int:
        """A new page with the first ``tokens`` of another."""
        page = self.take()
        self.key[page, :, :tokens] = self.key[source, :, :tokens]
        self.value[page, :, :tokens] = self.value[source, :, :tokens]
        return page


class PagedTensor:
    """Keys or values (1, G, T, D) of one sequence, read through its page table.

    It is indexed as the kernel indexes arrays, by slices of batch, KV heads and tokens; only
    the pages of those tokens are read. `numpy.asarray` gathers all of it.
    """

    ndim = 4

    def __init__(self, pool: Array, table: NDArray[np.int32], length: int) -> None:
        self._pool, self._table = pool, table
        self.shape = (1, pool.shape[1], length, pool.shape[3])
        self.dtype = pool.dtype

    def __getitem__(self, index: tuple[slice, slice, slice]) -> Array:
        batch, groups, tokens = index
        first, last, _ = tokens.indices(self.shape[2])
        size = self._pool.shape[2]
        start = first // size
        pages = self._table[start : -(-max(first, last) // size)]
        part = self._pool[pages, groups]
        joined = part.swapaxes(0, 1).reshape(part.shape[1], -1, part.shape[3])
        found: Array = joined[None, :, first - start * size : max(first, last) - start * size]
        return found[batch]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        whole = slice(None)
        found: Array = np.array(self[whole, whole, whole], dtype)
        return found
