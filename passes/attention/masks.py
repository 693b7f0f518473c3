"""What the masks of one attention come to: attributes, a boolean mask, or a float one.

The decision follows what a row without any allowed key gives in the source model, which must not
change (see the table of `masked_row` in `gecompiler.ir.flash_attention`):

- all masks of strength ``inf``: NaN, or 0 behind a guard; any number of them is one condition;
- one ``min`` mask, or more of which only the innermost is added: the mean of V over all keys;
- anything else is one condition only where every row is proven to keep a key.

Where that fails, or an unproven bias is added too, the sum of all terms stays a float mask, as
the source model has it; what is proven of it is still reported, and still becomes a window where
no row can tell the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.frame import Frame
from gecompiler.passes.attention.mask_terms import Part
from gecompiler.passes.attention.predicates import Lookup, Predicate, conjunction, conjuncts
from gecompiler.passes.attention.refusal import at
from gecompiler.passes.attention.terms import Bias, Overwrite
from gecompiler.passes.attention.windows import Window, extract, never_empty

MaskedRow = Literal["nan", "zero", "mean"]


@dataclass(frozen=True, slots=True)
class MaskPlan:
    """How the masks are to be given to the fused op, and how the report names them.

    ``conditions`` make up a boolean mask (True: may attend). ``terms`` are summed into a float
    mask, innermost first. At most one of the two is there.
    """

    kind: str
    window: Window
    masked_row: MaskedRow = "nan"
    proven: str | None = None
    conditions: tuple[Predicate, ...] = ()
    parts: tuple[Part, ...] = ()
    terms: tuple[Part, ...] = ()


def plan_masks(
    e: Elements,
    frame: Frame,
    parts: Sequence[Part],
    *,
    causal: Predicate,
    guarded: bool,
    sinks: bool,
) -> MaskPlan:
    """Decides; see the module's docstring. Refusal when a mask cannot be kept exactly."""
    masks = [p for p in parts if p.is_mask]
    biases = [p for p in parts if not p.is_mask]
    for part in biases:
        if isinstance(part.term, Overwrite) and part.strength == "soft":
            raise at(part.term.op, f"replaces scores by {part.sentinel:g}, which scores may reach")
    allowed = conjunction(causal, *(p.allowed for p in masks if p.allowed is not None))
    window, rest = extract(e, frame, conjuncts(allowed))
    empty_row: MaskedRow = "zero" if guarded or sinks else "nan"
    if not biases:
        row = _masked_row(masks, empty_row, sinks, causal is not True)
        if row is None and not rest and never_empty(window, frame):
            row = empty_row
        if row is not None:
            kind = describe(e, frame, window, rest)
            beneath = window.kind or None if kind is None else None
            return MaskPlan(kind or "boolean", window, row, beneath, tuple(rest), tuple(masks))
    beneath = describe(e, frame, window, rest) or window.kind
    proven = beneath if beneath not in ("", "none") else None
    return _as_bias(e, frame, parts, causal, window, rest, proven, empty_row)


def _masked_row(
    masks: Sequence[Part], empty_row: MaskedRow, sinks: bool, causal: bool
) -> MaskedRow | None:
    """What a row without keys gives if the masks are taken as one condition; None: it varies."""
    if sinks or all(p.strength == "inf" for p in masks):
        return empty_row
    if causal or any(p.strength == "inf" for p in masks):
        return None
    added = [n for n, p in enumerate(masks) if isinstance(p.term, Bias)]
    same = len({p.sentinel for p in masks}) == 1
    floored = all(p.term.floor is not None for p in masks)
    return "mean" if same and (floored or added in ([], [0])) else None


def _as_bias(
    e: Elements,
    frame: Frame,
    parts: Sequence[Part],
    causal: Predicate,
    window: Window,
    rest: Sequence[Predicate],
    proven: str | None,
    empty_row: MaskedRow,
) -> MaskPlan:
    """A float mask, and beneath it the window where that changes no row."""
    masks = [p for p in parts if p.is_mask]
    separable = not rest and never_empty(window, frame)
    if separable and window.kind:
        biases = tuple(p for p in parts if not p.is_mask)
        return MaskPlan("additive", window, empty_row, proven, terms=biases)
    terms = _whole_terms(parts)
    if all(p.strength == "inf" for p in masks):
        return MaskPlan("additive", window, empty_row, proven, terms=terms)
    if causal is not True:
        own, left = extract(e, frame, conjuncts(causal))
        if left:
            raise at(parts[0].term.op, "adds a mask to a causality that is no window")
        return MaskPlan("additive", own, empty_row, proven, terms=terms)
    return MaskPlan("additive", Window(), empty_row, proven, terms=terms)


def _whole_terms(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts, those of one sum put together again: the model has computed it already."""
    found: dict[int, Part] = {}
    for part in parts:
        same = sum(p.term is part.term for p in parts)
        whole = part if same == 1 else replace(part, value=part.term.value, allowed=None)  # type: ignore[union-attr]
        found.setdefault(id(part.term), whole)
    return tuple(found.values())


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
