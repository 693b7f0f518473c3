"""What is decided before a graph is made local: which dims are cut where they begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gecompiler.ir.parallel import Layout, Split

SequenceWay = Literal["gather", "all-to-all"]
SEQUENCE_WAYS: tuple[SequenceWay, ...] = ("gather", "all-to-all")


@dataclass(frozen=True)
class ParallelOptions:
    """How `parallelise` goes about it.

    ``sequence``: how keys and values reach queries that are cut by tokens: ``gather``, or
    ``all-to-all`` to heads and back (Jacobs et al. 2023).
    ``gather_outputs``: mesh axes over which outputs are put together on every rank; the others
    stay cut (vocabulary-parallel logits, samples of a batch).
    ``vocabulary``: whether the embedding and the head of a language model are cut over ``tp``.
    ``virtual_stages``: pieces of the pipeline on each of its ranks (interleaved 1F1B).
    """

    sequence: SequenceWay = "gather"
    gather_outputs: tuple[str, ...] = ("sp",)
    vocabulary: bool = True
    virtual_stages: int = 1


@dataclass(frozen=True)
class HeadCut:
    """How the heads of an attention are shared out: of the queries, and of keys and values."""

    queries: Split
    keys: Split


@dataclass
class Plan:
    """Layouts wished for: of inputs and of values that no op hands on cut, by name; of constants
    by the op that reads them and the index of the input.

    ``heads`` by the name of the attention.
    """

    wishes: dict[str | tuple[str, int], tuple[Layout, ...]] = field(default_factory=dict)
    heads: dict[str, HeadCut] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


@dataclass(frozen=True)
class Note:
    """Something that a user should know: an op that runs whole on all ranks, and why."""

    kind: str
    subject: str
    message: str
    figures: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}: {self.message}"
