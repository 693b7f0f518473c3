"""All that is done to the scores of one attention, and what its masks come to together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.frame import Frame
from gecompiler.passes.attention.mask_terms import Part
from gecompiler.passes.attention.predicates import Lookup, Predicate, conjunction, conjuncts
from gecompiler.passes.attention.windows import Window, extract, never_empty

MaskedRow = Literal["nan", "zero", "mean"]


@dataclass(frozen=True)
class Masking:
    """All that is done to the scores of one attention, and what is known of the probabilities.

    ``parts`` are innermost first. ``causal`` is a condition beside them. ``guarded``: NaN
    becomes 0; ``zeroed``: masks once more on the probabilities; ``sinks``: rows always have a key.
    """

    e: Elements
    frame: Frame
    parts: Sequence[Part]
    causal: Predicate = True
    guarded: bool = False
    zeroed: Sequence[Part] = ()
    sinks: bool = False

    @cached_property
    def masks(self) -> tuple[Part, ...]:
        """The parts that only take keys away."""
        return tuple(p for p in self.parts if p.is_mask)

    @cached_property
    def biases(self) -> tuple[Part, ...]:
        """The other parts."""
        return tuple(p for p in self.parts if not p.is_mask)

    @cached_property
    def proven(self) -> tuple[Window, list[Predicate]]:
        """The window that all masks together make, and the conditions that are not in it."""
        allowed = conjunction(self.causal, *conditions(self.masks))
        return extract(self.e, self.frame, conjuncts(allowed))

    @property
    def beside(self) -> tuple[Predicate, ...]:
        """What of ``causal`` is not in the window."""
        rest = self.proven[1]
        return tuple(c for c in conjuncts(self.causal) if c in rest)

    @property
    def empty_row(self) -> MaskedRow:
        """What a row gives whose keys are all masked by -inf."""
        return "zero" if self.guarded or self.sinks else "nan"

    def kind(self) -> str | None:
        """The name of the masks, None when they have none."""
        window, rest = self.proven
        return describe(self.e, self.frame, window, rest)

    def keeps_a_key(self) -> bool:
        """Whether every row is proven to keep a key."""
        window, rest = self.proven
        return not rest and never_empty(window, self.frame)


def conditions(parts: Sequence[Part]) -> list[Predicate]:
    """Which keys each part keeps, where that is known."""
    return [p.allowed for p in parts if p.allowed is not None]


def describe(e: Elements, frame: Frame, window: Window, rest: Sequence[Predicate]) -> str | None:
    """The kind of mask that a window and conditions make; None when it has no name."""
    if not all(_is_padding(e, frame, c) for c in rest):
        return None
    names = [window.kind] if window.kind else []
    if rest:
        names.append("padding")
    return "+".join(names) or "none"


def _is_padding(e: Elements, frame: Frame, condition: Predicate) -> bool:
    """Whether a condition is about keys of a batch entry only."""
    if not isinstance(condition, Lookup):
        return False
    used = set(e.coordinates.within(condition.coords))
    return str(frame.j) in used and used <= {str(frame.j), str(frame.b)}
