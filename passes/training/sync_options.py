"""How gradients are summed over replicas, and what these share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gecompiler.ir.errors import UsageError

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that hold copies of a parameter: axes of the mesh, and how many there are."""

    communicator: str
    size: int


@dataclass(frozen=True)
class SyncOptions:
    """Options of `sync_gradients`.

    ``replicas`` are the ranks that run the step on other samples. ``others`` names, by parameter,
    further ranks that hold copies of it, over which its gradient is a sum still to be made.
    ``unlike`` are parameters of which each replica has a part of its own (cut along the batch).
    ``bucket_bytes`` of gradients are sent at once (25 MiB as in DDP, Li et al. 2020).

    ``zero_stage`` (Rajbhandari et al. 2020): with 1 and 2 each replica updates its part of a
    bucket and keeps the moments of that alone; the gradients are reduced to these parts, so
    that none is kept whole. With 3 of the parameters, too, only the part is kept, and the whole is
    gathered before it is used, in the forward and again in the backward pass.

    ``reduction``: ``mean`` for losses of the replicas' own, ``sum`` where each is weighted.
    """

    replicas: Group
    others: dict[str, Group] = field(default_factory=dict)
    unlike: frozenset[str] = frozenset()
    bucket_bytes: float = 25 * MIB
    zero_stage: int = 0
    reduction: Literal["mean", "sum"] = "mean"

    def __post_init__(self) -> None:
        if not 0 <= self.zero_stage <= 3:
            raise UsageError(f"expected 0 to 3, found {self.zero_stage}", where="zero_stage")
        if not self.bucket_bytes > 0:
            raise UsageError("expected bytes above 0", where="bucket_bytes")
