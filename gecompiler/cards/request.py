"""What a compilation for several cards is asked for: the mesh, its links, its pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gecompiler.ir.errors import UsageError
from gecompiler.ir.parallel import Mesh
from gecompiler.passes.parallel import ParallelOptions
from gecompiler.passes.pipeline_parallel import PipelineShape

if TYPE_CHECKING:
    from gecompiler.passes.pipeline_parallel import OrderKind

ROUNDS = 4
"""Micro-batches a stage, where their number is left to us."""


@dataclass(frozen=True)
class CardsRequest:
    """The options of several cards, together."""

    mesh: Mesh
    topology: str | None = None
    algorithm: str = "auto"
    micro_batches: int | None = None
    pipeline_schedule: OrderKind = "1f1b"
    chunks: int = 1
    cutting: ParallelOptions = field(default_factory=ParallelOptions)

    @property
    def stages(self) -> int:
        """Of the pipeline."""
        return self.mesh.axis_size("pp")

    @property
    def pieces(self) -> Mesh:
        """The mesh with a place for each piece of the model along ``pp``."""
        sizes = {**dict(self.mesh.axes), "pp": self.stages * self.chunks}
        return Mesh.of(**sizes)

    def batch_parts(self, batch: int) -> int:
        """The micro-batches that a batch is cut into; UsageError where it does not divide.

        Where the number is open: the most that leave replicas (``dp``) equal parts, up to four a
        stage, in whole rounds of one a stage where they can be. ``ep`` shares samples as well where
        parts enough for the stages are left.
        """
        asked = self.micro_batches
        if asked is not None:
            if batch % asked:
                raise UsageError(
                    f"a batch of {batch} cannot be cut into {asked} micro-batches",
                    where="option 'micro_batches'",
                    hint=f"its divisors are {_listed(_divisors(batch))}",
                )
            return asked
        if self.stages == 1 and self.chunks == 1:
            return 1
        replicas = self.mesh.axis_size("dp+ep")
        fit = [n for n in _divisors(batch) if batch // n % replicas == 0] or [1]
        if max(fit) < self.stages:
            replicas = self.mesh.axis_size("dp")
            fit = [n for n in _divisors(batch) if batch // n % replicas == 0] or [1]
        few = [n for n in fit if n <= ROUNDS * self.stages]
        rounds = [n for n in few if n % self.stages == 0]
        return max(rounds if self.chunks > 1 and rounds else few)

    def uneven(self, batch: int, parts: int) -> bool:
        """Whether some replica has samples that it only computes for others' sake."""
        return batch // parts % self.mesh.axis_size("dp") != 0

    def shape(self, micro_batches: int, *, training: bool) -> PipelineShape:
        """The pipeline of so many micro-batches."""
        order = self.pipeline_schedule
        return PipelineShape(self.stages, micro_batches, order, self.chunks, training)


def several_asked(values: Mapping[str, Any]) -> bool:
    """Whether the options are of more than one card."""
    return any(values[axis] > 1 for axis in ("pp", "dp", "ep", "sp", "tp"))


def cards_request(values: Mapping[str, Any]) -> CardsRequest | None:
    """The request that the options make; None where they are of one card.

    UsageError for options of a pipeline where there is none.
    """
    mesh = Mesh.of(**{name: values[name] for name in ("pp", "dp", "ep", "sp", "tp")})
    order = values["pipeline_schedule"]
    if order == "interleaved" and values["pp"] == 1:
        raise UsageError(
            "the interleaved order is of a pipeline, and there is one stage",
            where="option 'pipeline_schedule'",
            hint="give the number of stages (--pp)",
        )
    if mesh.size == 1 and not (values["micro_batches"] or 1) > 1:
        return None
    return CardsRequest(
        mesh,
        values["topology"],
        values["collective_algorithm"],
        values["micro_batches"],
        order,
        values["pipeline_chunks"] if order == "interleaved" else 1,
        ParallelOptions(
            sequence=values["sequence_exchange"],
            kv_heads=values["shared_kv_heads"],
            embeddings=values["embeddings"],
            expert_tokens=values["expert_tokens"],
        ),
    )


def _divisors(count: int) -> list[int]:
    return [n for n in range(1, count + 1) if count % n == 0]


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
