"""What a cache of keys and values has in common with any other, and how full it is."""

from __future__ import annotations

from typing import NamedTuple, NoReturn, Protocol

from gecompiler.ir.constants import Array
from gecompiler.ir.errors import GecError, UsageError, nearest
from gecompiler.ops.paged_attention.config import PagedAttentionConfig

SequenceId = int | str


class CacheFullError(GecError):
    """There is no room for what was to be cached; the cache is as it was before.

    ``needed`` and ``free`` are pages of a paged cache, tokens of a contiguous one.
    """

    def __init__(self, message: str, *, needed: int, free: int, hint: str) -> None:
        self.needed, self.free = needed, free
        super().__init__(message, where="KV cache", hint=hint)


class CacheUsage(NamedTuple):
    """How full a cache is, in tokens; a slot is room for one token."""

    sequences: int
    tokens: int
    """Of all sequences, shared ones counted for each."""
    stored: int
    """Slots that hold a token of some sequence."""
    reserved: int
    """Slots taken, whether they hold a token or not."""
    capacity: int
    """Slots there are."""
    largest_free: int
    """The longest sequence that could be cached now."""
    copies: int
    """Times that cached tokens were copied: to grow, or before a write to a shared page."""
    copied_bytes: int
    token_bytes: int

    @property
    def utilisation(self) -> float:
        """Share of the slots taken that hold a token; 1 when none is taken."""
        return self.stored / self.reserved if self.reserved else 1.0

    @property
    def fragmentation(self) -> float:
        """Share of the slots taken that hold none (internal fragmentation)."""
        return 1.0 - self.utilisation

    @property
    def external_fragmentation(self) -> float:
        """Share of the free slots that the next sequence could not use; 0 of pages."""
        free = self.capacity - self.reserved
        return 1.0 - self.largest_free / free if free else 0.0

    @property
    def occupancy(self) -> float:
        """Share of all slots that are taken."""
        return self.reserved / self.capacity

    @property
    def sharing(self) -> float:
        """Tokens per slot that holds one: above 1 where sequences share a prefix."""
        return self.tokens / self.stored if self.stored else 1.0

    @property
    def reserved_bytes(self) -> int:
        """Device memory of the slots taken."""
        return self.reserved * self.token_bytes


class KVCache(Protocol):
    """A cache that attention can read."""

    @property
    def config(self) -> PagedAttentionConfig:
        """Its sizes."""
        ...

    @property
    def sequences(self) -> tuple[SequenceId, ...]:
        """The sequences it holds."""
        ...

    def length(self, sequence: SequenceId) -> int:
        """Tokens of a sequence."""
        ...

    def tensors(self, sequence: SequenceId) -> tuple[Array, Array]:
        """Keys (1, G, T, D) and values (1, G, T, Dv) as the kernel reads them, tile by tile."""
        ...

    def operands(self, sequences: tuple[SequenceId, ...]) -> tuple[Array, ...]:
        """The arrays that a kernel on the card is given."""
        ...


def unknown(sequence: object, known: tuple[SequenceId, ...]) -> NoReturn:
    """Raises the UsageError for a sequence that is not cached."""
    if not known:
        raise UsageError(
            f"sequence {sequence!r} is not cached",
            where="KV cache",
            hint="nothing is cached yet: append() begins a sequence",
        )
    names = [str(name) for name in known]
    raise UsageError(
        f"sequence {sequence!r} is not cached", where="KV cache", hint=nearest(str(sequence), names)
    )
