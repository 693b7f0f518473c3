"""The paged cache of keys and values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecompiler.backends.device import Device
from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError
from gecompiler.ops.devices import device_named
from gecompiler.ops.paged_attention.config import PagedAttentionConfig
from gecompiler.ops.paged_attention.pages import PagedTensor, PagePool
from gecompiler.ops.paged_attention.tokens import (
    NewTokens,
    listed,
    prefix,
    read_tokens,
    sequence_id,
)
from gecompiler.ops.paged_attention.usage import (
    CacheFullError,
    CacheUsage,
    SequenceId,
    unknown,
)


class PagedKVCache:
    """Keys and values of several sequences in pages of a fixed size (Kwon et al., SOSP 2023).

    A sequence is named by an integer or text and holds as many pages as its tokens fill, in any
    order and anywhere in the pool. `fork` shares pages between sequences; a page that is shared
    is copied before one of its holders writes to it (copy on write). ``device`` (default: the
    session's) must hold the whole pool; UsageError where it does not.

    One thread at a time may change it.
    """

    def __init__(self, config: PagedAttentionConfig, device: str | Device | None = None) -> None:
        self.config = config
        self._pool = PagePool(config, device_named(device))
        self._tables: dict[SequenceId, list[int]] = {}
        self._lengths: dict[SequenceId, int] = {}
        self._copies = self._copied = 0

    def append(
        self,
        key: Array,
        value: Array,
        sequences: SequenceId | Sequence[SequenceId] | None = None,
        input_layout: str = "BSND",
        *,
        actual_seq_len: Sequence[int] | None = None,
    ) -> None:
        """Adds tokens to the ends of sequences; a sequence not known yet begins with them.

        ``key`` and ``value``: in ``input_layout``, S new tokens of each sequence of the batch
        (BSND, BNSD, BSH, SBH), or T tokens of one sequence, or of several whose cumulative
        lengths ``actual_seq_len`` gives (TND). ``sequences`` names them, by default 0, 1, ...
        CacheFullError where free pages do not suffice, UsageError for arrays that do not fit;
        after either nothing has changed.
        """
        new = read_tokens(self.config, key, value, sequences, input_layout, actual_seq_len)
        needed = self._pages_needed(new)
        if needed > self._pool.free:
            raise CacheFullError(
                f"{sum(n for _, n in new.counts)} tokens need {needed} pages of "
                f"{self.config.page_size}, {self._pool.free} of {self._pool.size} are free",
                needed=needed,
                free=self._pool.free,
                hint="free() sequences that are done, or more pages (max_num_pages)",
            )
        if not new.counts:
            return
        places = [self._extend(name, count) for name, count in new.counts]
        pages = np.concatenate([p for p, _ in places])
        offsets = np.concatenate([o for _, o in places])
        self._pool.key[pages, :, offsets] = new.key
        self._pool.value[pages, :, offsets] = new.value

    def fork(self, parent: SequenceId, child: SequenceId, length: int | None = None) -> None:
        """Begins ``child`` with the first ``length`` tokens of ``parent`` (default: all).

        No token is copied: both hold the same pages until one of them writes to one.
        """
        table, there = self._table(parent), self._lengths[parent]
        child = sequence_id(child, "fork")
        if child in self._tables:
            raise UsageError(f"sequence {child!r} is cached already", where="fork")
        shared = prefix(parent, there, length, "fork")
        pages = table[: self._pages(shared)]
        self._pool.hold(pages)
        self._tables[child], self._lengths[child] = pages, shared

    def truncate(self, sequence: SequenceId, length: int) -> None:
        """Drops the tokens of a sequence from ``length`` on, as rejected speculation."""
        table, there = self._table(sequence), self._lengths[sequence]
        length = prefix(sequence, there, length, "truncate")
        keep = self._pages(length)
        self._pool.drop(table[keep:])
        del table[keep:]
        self._lengths[sequence] = length

    def free(self, sequence: SequenceId) -> None:
        """Drops a sequence; pages that no other holds become free."""
        self._pool.drop(self._table(sequence))
        del self._tables[sequence], self._lengths[sequence]

    @property
    def sequences(self) -> tuple[SequenceId, ...]:
        """The sequences cached, oldest first."""
        return tuple(self._tables)

    def length(self, sequence: SequenceId) -> int:
        """Tokens of a sequence."""
        self._table(sequence)
        return self._lengths[sequence]

    def page_table(self, sequence: SequenceId) -> NDArray[np.int32]:
        """The pages of a sequence in the order of its tokens."""
        return np.array(self._table(sequence), np.int32)

    def page_tables(
        self, sequences: SequenceId | Sequence[SequenceId] | None = None
    ) -> NDArray[np.int32]:
        """The page tables of sequences (default: all), a row each, filled up with -1."""
        names = self.sequences if sequences is None else listed(sequences, "page_tables")
        tables = [self._table(name) for name in names]
        found = np.full((len(tables), max(map(len, tables), default=0)), -1, np.int32)
        for row, table in zip(found, tables, strict=True):
            row[: len(table)] = table
        return found

    def holders(self, page: int) -> int:
        """How many sequences hold a page."""
        if not isinstance(page, int | np.integer) or not 0 <= page < self._pool.size:
            raise UsageError(
                f"there are pages 0 to {self._pool.size - 1}, not {page!r}", where="KV cache"
            )
        return int(self._pool.holders[page])

    @property
    def num_free_pages(self) -> int:
        """Pages that no sequence holds."""
        return self._pool.free

    @property
    def key_pages(self) -> Array:
        """The pool of keys (pages, G, page size, D); free pages hold anything."""
        return self._pool.key

    @property
    def value_pages(self) -> Array:
        """The pool of values (pages, G, page size, Dv)."""
        return self._pool.value

    def tensors(self, sequence: SequenceId) -> tuple[Array, Array]:
        """Keys (1, G, T, D) and values (1, G, T, Dv) of a sequence, read through its table.

        Good until the sequence is truncated or freed.
        """
        table, length = self.page_table(sequence), self._lengths[sequence]
        key: Any = PagedTensor(self._pool.key, table, length)
        value: Any = PagedTensor(self._pool.value, table, length)
        return key, value

    def gather(self, sequence: SequenceId) -> tuple[Array, Array]:
        """Keys (T, G, D) and values (T, G, Dv) of a sequence, copied out of their pages."""
        key, value = (np.asarray(tensor) for tensor in self.tensors(sequence))
        return key[0].swapaxes(0, 1), value[0].swapaxes(0, 1)

    def operands(self, sequences: tuple[SequenceId, ...]) -> tuple[Array, ...]:
        """Pools and page tables, as a kernel on the card is given them."""
        return self._pool.key, self._pool.value, self.page_tables(sequences)

    def usage(self) -> CacheUsage:
        """How full the cache is. O(pages held)."""
        size, filled = self.config.page_size, np.zeros(self._pool.size, np.int64)
        for name, table in self._tables.items():
            if table:
                filled[table[:-1]] = size
                last = self._lengths[name] - size * (len(table) - 1)
                filled[table[-1]] = max(filled[table[-1]], last)
        return CacheUsage(
            sequences=len(self._tables),
            tokens=sum(self._lengths.values()),
            stored=int(filled.sum()),
            reserved=(self._pool.size - self._pool.free) * size,
            capacity=self._pool.size * size,
            largest_free=self._pool.free * size,
            copies=self._copies,
            copied_bytes=self._copied * self.config.token_bytes,
            token_bytes=self.config.token_bytes,
        )

    def _table(self, sequence: SequenceId) -> list[int]:
        if sequence_id(sequence, "KV cache") not in self._tables:
            unknown(sequence, self.sequences)
        return self._tables[sequence]

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self.config.page_size)

    def _pages_needed(self, new: NewTokens) -> int:
        """Pages for new tokens, and for copies of shared pages that they are written to."""
        needed, shared = 0, Counter[int]()
        for name, count in new.counts:
            length = self._lengths.get(name, 0)
            needed += self._pages(length + count) - self._pages(length)
            if count and length % self.config.page_size:
                shared[self._tables[name][-1]] += 1
        # The last of its holders writes to the page itself.
        return needed + sum(
            min(writers, int(self._pool.holders[page]) - 1) for page, writers in shared.items()
        )

    def _extend(self, name: SequenceId, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Makes room for tokens; returns the page of each, and its place there."""
        table, length = self._tables.setdefault(name, []), self._lengths.get(name, 0)
        size = self.config.page_size
        used = length % size
        if count and used and self._pool.holders[table[-1]] > 1:
            own = self._pool.copy(table[-1], used)
            self._pool.drop([table[-1]])
            table[-1] = own
            self._copies, self._copied = self._copies + 1, self._copied + used
        table += [self._pool.take() for _ in range(self._pages(length + count) - len(table))]
        self._lengths[name] = length + count
        first = length // size
        places = np.arange(length, length + count)
        pages = np.array(table[first:], np.int64)
        return pages[places // size - first], places % size
