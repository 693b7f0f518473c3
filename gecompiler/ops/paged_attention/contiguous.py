"""The cache that pages replace: one stretch of memory a sequence, copied to grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gecompiler.backends.device import Device
from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ops.devices import device_named
from gecompiler.ops.paged_attention.arena import Arena
from gecompiler.ops.paged_attention.config import PagedAttentionConfig, allocate
from gecompiler.ops.paged_attention.tokens import prefix, read_tokens, sequence_id
from gecompiler.ops.paged_attention.usage import (
    CacheFullError,
    CacheUsage,
    SequenceId,
    unknown,
)

GROWTHS = ("double", "exact")


class _Stretch(NamedTuple):
    """A sequence's slots and how many of them hold a token."""

    start: int
    room: int
    length: int


class ContiguousKVCache:
    """Keys and values of several sequences, each in one stretch of as much memory as all pages.

    A sequence that outgrows its stretch moves to a longer one, for which both must be there:
    twice as long (``growth="double"``), just long enough (``"exact"``: a concatenation), or
    longer by that many tokens (an integer). ``reserve``: tokens that a new sequence gets room
    for at once. Stretches are taken first fit. Nothing is shared: `fork` copies.
    """

    def __init__(
        self,
        config: PagedAttentionConfig,
        growth: str | int = "double",
        reserve: int = 0,
        device: str | Device | None = None,
    ) -> None:
        by = isinstance(growth, int | np.integer) and not isinstance(growth, bool)
        if growth not in GROWTHS and not (by and int(growth) > 0):
            hint = nearest(str(growth), GROWTHS) + "; or a number of tokens"
            raise UsageError(
                f"growth {growth!r} is not known", where="ContiguousKVCache", hint=hint
            )
        whole = isinstance(reserve, int | np.integer) and not isinstance(reserve, bool)
        if not whole or reserve < 0:
            raise UsageError(f"reserve must be at least 0, found {reserve!r}", where="KV cache")
        self.config, self.growth, self.reserve = config, growth, reserve
        lead = (config.max_tokens, config.kv_head_num)
        self._key, self._value = allocate(config, lead, device_named(device))
        self._arena = Arena(config.max_tokens)
        self._stretches: dict[SequenceId, _Stretch] = {}
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
        """Adds tokens to the ends of sequences; the arguments are `PagedKVCache.append`'s.

        CacheFullError where no stretch is long enough; nothing has changed then.
        """
        new = read_tokens(self.config, key, value, sequences, input_layout, actual_seq_len)
        grown = self._make_room(new.counts)
        done = 0
        for name, count in new.counts:
            old = self._stretches.get(name, _Stretch(0, 0, 0))
            at = self._moved(old, grown[name]) if name in grown else old
            first = at.start + at.length
            self._key[first : first + count] = new.key[done : done + count]
            self._value[first : first + count] = new.value[done : done + count]
            self._stretches[name] = at._replace(length=at.length + count)
            done += count

    def fork(self, parent: SequenceId, child: SequenceId, length: int | None = None) -> None:
        """Begins ``child`` with a copy of the first ``length`` tokens of ``parent``."""
        from_ = self._stretch(parent)
        child = sequence_id(child, "fork")
        if child in self._stretches:
            raise UsageError(f"sequence {child!r} is cached already", where="fork")
        count = prefix(parent, from_.length, length, "fork")
        to = self._make_room(((child, count),)).get(child, _Stretch(0, 0, 0))
        self._copy(from_.start, to.start, count)
        self._stretches[child] = to._replace(length=count)

    def free(self, sequence: SequenceId) -> None:
        """Drops a sequence."""
        at = self._stretch(sequence)
        self._arena.give_back(at.start, at.room)
        del self._stretches[sequence]

    @property
    def sequences(self) -> tuple[SequenceId, ...]:
        """The sequences cached, oldest first."""
        return tuple(self._stretches)

    def length(self, sequence: SequenceId) -> int:
        """Tokens of a sequence."""
        return self._stretch(sequence).length

    def tensors(self, sequence: SequenceId) -> tuple[Array, Array]:
        """Keys (1, G, T, D) and values (1, G, T, Dv), views good until the next append."""
        at = self._stretch(sequence)
        rows = slice(at.start, at.start + at.length)
        return self._key[None, rows].swapaxes(1, 2), self._value[None, rows].swapaxes(1, 2)

    def gather(self, sequence: SequenceId) -> tuple[Array, Array]:
        """Keys (T, G, D) and values (T, G, Dv) of a sequence, copied."""
        key, value = self.tensors(sequence)
        return key[0].swapaxes(0, 1).copy(), value[0].swapaxes(0, 1).copy()

    def operands(self, sequences: tuple[SequenceId, ...]) -> tuple[Array, ...]:
        """Keys and values of each sequence, as a kernel on the card is given them."""
        return tuple(array for name in sequences for array in self.tensors(name))

    def usage(self) -> CacheUsage:
        """How full the cache is. O(sequences)."""
        stored = sum(s.length for s in self._stretches.values())
        return CacheUsage(
            sequences=len(self._stretches),
            tokens=stored,
            stored=stored,
            reserved=sum(s.room for s in self._stretches.values()),
            capacity=self._arena.size,
            largest_free=self._arena.largest,
            copies=self._copies,
            copied_bytes=self._copied * self.config.token_bytes,
            token_bytes=self.config.token_bytes,
        )

    def _stretch(self, sequence: SequenceId) -> _Stretch:
        if sequence_id(sequence, "KV cache") not in self._stretches:
            unknown(sequence, self.sequences)
        return self._stretches[sequence]

    def _make_room(self, counts: tuple[tuple[SequenceId, int], ...]) -> dict[SequenceId, _Stretch]:
        """Stretches for the sequences that outgrow theirs; all of them or CacheFullError."""
        grown: dict[SequenceId, _Stretch] = {}
        for name, count in counts:
            old = self._stretches.get(name, _Stretch(0, 0, 0))
            if old.length + count <= old.room:
                continue
            room = self._room(old, old.length + count)
            start = self._arena.take(room)
            if start is None:
                largest, free = self._arena.largest, self._arena.free
                for taken in grown.values():
                    self._arena.give_back(taken.start, taken.room)
                raise CacheFullError(
                    f"sequence {name!r} needs {room} slots in a row; of {free} free ones the "
                    f"longest row is {largest}",
                    needed=room,
                    free=free,
                    hint="free() sequences that are done; pages (PagedKVCache) need no row",
                )
            grown[name] = _Stretch(start, room, old.length)
        return grown

    def _room(self, old: _Stretch, least: int) -> int:
        if not old.room:
            return max(least, self.reserve)
        if self.growth == "double":
            return max(least, 2 * old.room)
        return least if self.growth == "exact" else max(least, old.room + int(self.growth))

    def _moved(self, old: _Stretch, new: _Stretch) -> _Stretch:
        self._copy(old.start, new.start, old.length)
        self._arena.give_back(old.start, old.room)
        return new

    def _copy(self, source: int, target: int, count: int) -> None:
        if not count:
            return
        for array in (self._key, self._value):
            array[target : target + count] = array[source : source + count]
        self._copies, self._copied = self._copies + 1, self._copied + count
