"""Each bias and mask on the scores as a predicate over (batch, head, query, key), or as opaque.

A `Part` is what one tensor does to the scores: keys where ``allowed`` is false get ``sentinel``,
by addition or in place of the score; ``allowed`` None marks a bias of which nothing is known.
Sums of tensors (a position bias with the mask added to it once for all layers) are taken apart.

Three strengths of sentinel are told apart, because a row with no allowed key shows them:

- ``inf``: -inf, such a row is NaN (or 0 behind a guard);
- ``min``: so low that adding it swallows any score: the row is the plain mean;
- ``soft``: anything else (-1e4): scores survive it, and it is no mask but a bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gecompiler.ir.types import DType
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention.element_logic import leaves, lift
from gecompiler.passes.attention.elements import Element, Elements, Truth, number_of
from gecompiler.passes.attention.frame import Frame
from gecompiler.passes.attention.layout import Layout
from gecompiler.passes.attention.limits import limits
from gecompiler.passes.attention.predicates import Predicate, negate
from gecompiler.passes.attention.refusal import at
from gecompiler.passes.attention.terms import Bias, Multiplier, Overwrite, Term

Strength = Literal["inf", "min", "soft"]


@dataclass(frozen=True, slots=True)
class Part:
    """See the module's docstring. ``value`` has ``layout`` (that of the scores it is added to)."""

    term: Term
    value: str
    layout: Layout
    allowed: Predicate | None = None
    sentinel: float = 0.0
    strength: Strength = "soft"
    passing: float = 0.0
    """What a tensor that is added holds (times its factor) for allowed keys."""
    idle: bool = False
    """Whether it is a stored table per head that holds one number only."""

    @property
    def fixed(self) -> bool:
        """Whether keys that are taken away get one number."""
        return not (isinstance(self.term, Overwrite) and self.term.other)

    @property
    def absorbs(self) -> bool:
        """Whether a score plus the sentinel is the sentinel again, as far as rounding shows."""
        return self.fixed and self.sentinel <= -limits(self.term.dtypes[0]).absorbing

    @property
    def is_mask(self) -> bool:
        """Whether all it does is to take keys away."""
        return self.allowed is not None and self.strength != "soft"


def parts(
    e: Elements, frame: Frame, terms: Sequence[Term], softcap: float, product: DType | None = None
) -> list[Part]:
    """The parts of all terms, innermost first; those that do nothing are left out.

    ``product`` is the type that the product of Q and K is made in, which bounds scores as well.
    """
    found: list[Part] = []
    for term in reversed(terms):
        if isinstance(term, Overwrite):
            found.append(_overwrite(e, frame, term, softcap, product))
        else:
            found += _bias(e, frame, term, term.value, depth=0)
    found = _joined([p for p in found if p.allowed is not True])
    # A table of zeros beside a mask is a placeholder (T5's cross attention). Alone it is there
    # to be filled: a bias, though not trained yet (Swin).
    return [p for p in found if not p.idle] or found


def _joined(found: Sequence[Part]) -> list[Part]:
    """``b * x - 1e4 * (1 - b)``: a number in place of scores and one added to it are one."""
    joined: list[Part] = []
    for part in found:
        last = joined[-1] if joined else None
        added = isinstance(part.term, Bias) and part.allowed is not None
        if last is None or not added or last.allowed != part.allowed:
            joined.append(part)
        elif isinstance(last.term, Overwrite) and last.fixed and math.isfinite(last.sentinel):
            sentinel = last.sentinel + part.sentinel
            strength = _strength_in_place(sentinel, last.term, 0.0, None)
            joined[-1] = replace(last, sentinel=sentinel, strength=strength)
        else:
            joined.append(part)
    return joined


def _overwrite(
    e: Elements, frame: Frame, term: Overwrite, softcap: float, product: DType | None
) -> Part:
    element = _flags(frame.element(e, term.condition, term.layout))
    allowed: Predicate | None = None
    if element is not None:
        allowed = element.predicate if term.keep else negate(element.predicate)
    if term.other:
        return Part(term, term.condition, term.layout, allowed, math.nan)
    sentinel = term.sentinel if term.floor is None else max(term.sentinel, term.floor)
    strength = _strength_in_place(sentinel, term, softcap, product)
    return Part(term, term.condition, term.layout, allowed, sentinel, strength)


def _strength_in_place(
    sentinel: float, term: Overwrite, softcap: float, product: DType | None
) -> Strength:
    """How strong a sentinel is that stands in place of scores."""
    strength = _strength(sentinel, term.dtypes)
    # Scores within [-c, c] are out of reach of a sentinel well below that.
    types = [term.dtypes[0], *([product] if product is not None else [])]
    beyond = -min(limits(dtype).replacing for dtype in types)
    enough = -2 * softcap - 200 if softcap else beyond
    return "min" if strength == "soft" and sentinel <= max(enough, beyond) else strength


def masking_factors(
    e: Elements, frame: Frame, factors: Sequence[Multiplier]
) -> tuple[tuple[Overwrite, ...], tuple[Multiplier, ...]]:
    """Factors that are only 1 or 0, as 0 in place of scores, and the other factors."""
    masks: list[Overwrite] = []
    others: list[Multiplier] = []
    for x in factors:
        element = None if x.inverse else frame.element(e, x.value, x.layout)
        if element is not None and _flags(element) is not None:
            masks.append(Overwrite(x.op, x.value, x.layout, True, 0.0, x.dtypes, x.floor))
        else:
            others.append(x)
    return tuple(masks), tuple(others)


def zeroed(e: Elements, frame: Frame, term: Overwrite) -> Part:
    """Which probabilities a mask on them keeps; Refusal when that is not known."""
    element = _flags(frame.element(e, term.condition, term.layout))
    if element is None:
        raise at(term.op, "weights the probabilities")
    allowed = element.predicate if term.keep else negate(element.predicate)
    return Part(term, term.condition, term.layout, allowed)


def _flags(element: Element | None) -> Truth | None:
    """A boolean, or a number that is 1 or 0, as a boolean; None for anything else."""
    if element is not None and not isinstance(element, Truth):
        element = lift(lambda x: _as_flag(number_of(x)), element)
    return element if isinstance(element, Truth) else None


def _as_flag(number: float | None) -> Element | None:
    return Truth(number == 1) if number in (0, 1) else None


def _bias(e: Elements, frame: Frame, term: Bias, value: str, depth: int) -> list[Part]:
    opaque = Part(term, value, term.layout)
    element = frame.element(e, value, term.layout)
    if element is None:
        return [opaque]
    number = number_of(element)
    exact = limits(term.dtypes[0]).exact
    if number is not None and abs(number * term.factor) <= exact:
        # The same for every key, which a softmax does not see; a large one rounds scores off.
        return [replace(opaque, idle=True)] if _is_table(e, frame, opaque) else []
    masked = _as_mask(element, term)
    if masked is not None:
        allowed, sentinel, passing = masked
        strength = _strength(sentinel, term.dtypes)
        return [Part(term, value, term.layout, allowed, sentinel, strength, passing)]
    op = e.graph.producer(value)
    if op is None or not op.is_("Add") or depth >= 8:
        return [opaque]
    both = [_bias(e, frame, term, name, depth + 1) for name in op.inputs]
    pieces = [*both[0], *both[1]]
    return pieces if any(p.is_mask for p in pieces) else [opaque]


def _is_table(e: Elements, frame: Frame, part: Part) -> bool:
    """Whether a bias is stored with an entry per head, as learnt biases are."""
    value, heads = part.value, set(lay.flat(frame.heads))
    while (op := e.graph.producer(value)) is not None and op.is_("Identity"):
        value = op.inputs[0]
    layout = kept_layout(e, part) or ()
    per_head = any(heads & set(lay.flat(axis)) for axis in layout)
    return per_head and e.graph.constant(value) is not None


def _as_mask(element: Element, term: Bias) -> tuple[Predicate, float, float] | None:
    """A bias that is one number for allowed keys, another for the rest: (which, rest, allowed).

    The number that the rest gets is told relative to what allowed keys get.
    """
    values = [number_of(x) for x in leaves(element)]
    numbers = {v * term.factor for v in values if v is not None}
    if None in values or len(numbers) != 2 or any(map(math.isnan, numbers)):
        return None
    low, high = sorted(numbers)
    if not abs(high) <= limits(term.dtypes[0]).exact:
        return None  # it does something to keys that are allowed, too
    passes = lift(lambda x: Truth(_value(x) * term.factor == high), element)
    if not isinstance(passes, Truth):
        return None
    sentinel = low - high
    sentinel = sentinel if term.floor is None else max(sentinel, term.floor)
    return passes.predicate, sentinel, high


def _value(element: Element) -> float:
    found = number_of(element)
    assert found is not None  # leaves that are no numbers were sent away before
    return found


def _strength(sentinel: float, dtypes: Sequence[DType]) -> Strength:
    """How strong a sentinel is that is added in the first type and cast to the others."""
    if sentinel < -min(limits(d).largest for d in dtypes):
        return "inf"
    return "min" if sentinel <= -limits(dtypes[0]).swallowing else "soft"


def kept_layout(e: Elements, part: Part) -> Layout | None:
    """The layout of a part's own tensor: that of the scores, () where it broadcasts."""
    shape = e.shape(part.value)
    if shape is None or len(shape) > len(part.layout):
        return None
    found: list[lay.Axis] = []
    for dim, axis in zip(shape, part.layout[len(part.layout) - len(shape) :], strict=True):
        if dim != 1 and dim != lay.size(axis) and not e.agree(dim, lay.size(axis)):
            return None
        found.append(() if dim == 1 else axis)
    return tuple(found)
