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

from gecompiler.passes.attention.magnitudes import is_plausible
from gecompiler.passes.attention.mask_terms import Part
from gecompiler.passes.attention.mask_trust import is_small, settled, told_masks, trusted_masks
from gecompiler.passes.attention.masking import MaskedRow, Masking, conditions
from gecompiler.passes.attention.predicates import Predicate, conjunction, conjuncts
from gecompiler.passes.attention.refusal import at
from gecompiler.passes.attention.terms import Bias, Overwrite
from gecompiler.passes.attention.windows import Window, extract


@dataclass(frozen=True, slots=True)
class MaskPlan:
    """How the masks are to be given to the fused op, and how the report names them.

    ``conditions`` make up a boolean mask (True: may attend). ``terms`` are summed into a float
    mask, innermost first, which is -inf where the conditions fail. ``parts`` are the tensors that
    make up the conditions together with those ``beside``, which no tensor of the graph says.
    ``doubled``: there is a second set of keys, all 0, whose scores are numbers in place of scores.
    """

    kind: str
    window: Window
    masked_row: MaskedRow = "nan"
    proven: str | None = None
    conditions: tuple[Predicate, ...] = ()
    parts: tuple[Part, ...] = ()
    terms: tuple[Part, ...] = ()
    beside: tuple[Predicate, ...] = ()
    doubled: bool = False


def plan_masks(case: Masking) -> MaskPlan:
    """Decides; see the module's docstring. Refusal when a mask cannot be kept exactly."""
    if case.zeroed:
        return _as_zeroed(case)
    apart = settled(case)
    if apart is None:
        return _as_doubled(case)
    case = trusted_masks(apart)
    if not case.biases:
        row = _masked_row(case)
        if row is not None:
            return _as_condition(case, row)
    return _as_bias(case)


def _as_condition(case: Masking, row: MaskedRow) -> MaskPlan:
    """A window, and a boolean mask for what is not in it."""
    window, rest = case.proven
    kind = case.kind()
    beneath = window.kind if kind is None and window.kind else None
    kind = kind or "boolean"
    return MaskPlan(kind, window, row, beneath, tuple(rest), case.masks, beside=case.beside)


def _as_zeroed(case: Masking) -> MaskPlan:
    """The same mask once more on the probabilities: a row without keys becomes 0.

    So no row shows what number masked it, and one well below scores is as good as -inf. Biases
    stay beside the mask; none of them may be a mask of its own.
    """
    op = case.zeroed[0].term.op
    case = told_masks(case)
    scores = conjunction(case.causal, *conditions(case.masks))
    weights = conjunction(*conditions(case.zeroed))
    if set(conjuncts(scores)) != set(conjuncts(weights)):
        raise at(op, "zeroes other probabilities than those of masked scores")
    for part in case.biases:
        if isinstance(part.term, Overwrite) or not is_plausible(case.e, part.value):
            raise at(op, f"zeroes masked probabilities, but {part.value!r} may be a mask as well")
    lost = any(op.is_("Mul") for op in (p.term.op for p in case.zeroed))
    nan = lost and not case.guarded and any(p.strength == "inf" for p in case.masks)
    row: MaskedRow = "nan" if nan else "zero"
    if not case.biases:
        return _as_condition(case, row)
    window, rest = case.proven
    beneath = case.kind() or window.kind
    proven = beneath if beneath not in ("", "none") else None
    return MaskPlan(
        "additive", window, row, proven, tuple(rest), case.masks, case.biases, case.beside
    )


def _as_doubled(case: Masking) -> MaskPlan:
    """All terms, with numbers that stand in place of scores as scores of keys of their own."""
    part = next(p for p in case.parts if isinstance(p.term, Overwrite) and not p.absorbs)
    floored = any(p.term.floor is not None for p in case.parts)
    if case.causal is not True or case.sinks or floored:
        raise at(part.term.op, "replaces scores by a number that scores may reach")
    window = case.proven[0]
    beneath = case.kind() or window.kind
    proven = beneath if beneath not in ("", "none") else None
    terms = _whole_terms(case.parts)
    return MaskPlan("additive", Window(), case.empty_row, proven, terms=terms, doubled=True)


def _masked_row(case: Masking) -> MaskedRow | None:
    """What a row without keys gives if the masks are taken as one condition; None: it varies."""
    masks = case.masks
    if case.sinks or case.keeps_a_key() or all(p.strength == "inf" for p in masks):
        return case.empty_row
    if case.causal is not True or any(p.strength == "inf" for p in masks):
        return None
    added = [n for n, p in enumerate(masks) if isinstance(p.term, Bias)]
    same = len({p.sentinel for p in masks}) == 1
    floored = all(p.term.floor is not None for p in masks)
    return "mean" if same and (floored or added in ([], [0])) else None


def _as_bias(case: Masking) -> MaskPlan:
    """A float mask, and beneath it the window where that changes no row."""
    e, window = case.e, case.proven[0]
    beneath = case.kind() or window.kind
    proven = beneath if beneath not in ("", "none") else None
    if window.kind and case.keeps_a_key() and _apart(case):
        return MaskPlan("additive", window, case.empty_row, proven, terms=case.biases)
    terms = _whole_terms(case.parts)
    if all(p.strength == "inf" for p in case.masks):
        return MaskPlan("additive", window, case.empty_row, proven, terms=terms, beside=case.beside)
    own, left = extract(e, case.frame, conjuncts(case.causal))
    return MaskPlan("additive", own, case.empty_row, proven, terms=terms, beside=tuple(left))


def _apart(case: Masking) -> bool:
    """Whether no row can be masked by a finite mask and a bias together."""
    finite = [-p.sentinel for p in case.masks if p.strength != "inf"]
    return not finite or all(is_small(case.e, p, min(finite)) for p in case.biases)


def _whole_terms(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts, those of one sum put together again: the model has computed it already."""
    found: dict[int, Part] = {}
    for part in parts:
        same = sum(p.term is part.term for p in parts)
        whole = part if same == 1 else replace(part, value=part.term.value, allowed=None)  # type: ignore[union-attr]
        found.setdefault(id(part.term), whole)
    return tuple(found.values())
