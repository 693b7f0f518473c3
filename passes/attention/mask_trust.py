"""Which finite numbers are masks, though scores could reach them if they were absurdly large."""

from __future__ import annotations

from dataclasses import replace

from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.limits import limits
from gecompiler.passes.attention.magnitudes import magnitude
from gecompiler.passes.attention.mask_terms import Part
from gecompiler.passes.attention.masking import Masking
from gecompiler.passes.attention.terms import Bias, Overwrite

PLAUSIBLE = 1e4
"""Scores of a row are not all below minus this."""


def settled(case: Masking) -> Masking | None:
    """The case with numbers in place of scores told to be masks; None where they are scores.

    A number that is within reach of scores still is a mask if every row keeps a key whose score
    it cannot be thought to exceed (-1e4, as older exports have it).
    """
    mild = [n for n, p in enumerate(case.parts) if isinstance(p.term, Overwrite) and not p.absorbs]
    if not mild:
        return case
    if len({case.parts[n].sentinel for n in mild}) > 1 or not all(
        _stays_apart(case, n) for n in mild
    ):
        return None
    soft = [n for n in mild if case.parts[n].strength == "soft"]
    if not soft:
        return case
    told = [replace(p, strength="min") if n in soft else p for n, p in enumerate(case.parts)]
    trusted = replace(case, parts=told)
    sure = all(case.parts[n].sentinel <= -PLAUSIBLE for n in soft)
    return trusted if sure and trusted.keeps_a_key() else None


def trusted_masks(case: Masking) -> Masking:
    """The case with low numbers that are added told to be masks, if every row keeps a key."""
    trusted = told_masks(case)
    return trusted if trusted.keeps_a_key() else case


def told_masks(case: Masking) -> Masking:
    """The case with all low numbers told to be masks."""
    told = [replace(p, strength="min") if _is_low(p) else p for p in case.parts]
    return replace(case, parts=told)


def _is_low(part: Part) -> bool:
    """Whether a mask's number is one that scores are not thought to reach."""
    low = part.fixed and part.sentinel <= -PLAUSIBLE
    return part.allowed is not None and part.strength == "soft" and low


def _stays_apart(case: Masking, index: int) -> bool:
    """Whether what else is done to the scores cannot mix them with the number in their place.

    What is added later becomes a part of it, and where a row has no other key that shows.
    """
    part = case.parts[index]
    inner, outer = case.parts[:index], case.parts[index + 1 :]
    if any(isinstance(p.term, Bias) and not p.is_mask for p in outer):
        return False
    added = [p for p in inner if isinstance(p.term, Bias) and not p.is_mask]
    return part.fixed and all(is_small(case.e, p, -part.sentinel) for p in added)


def is_small(e: Elements, part: Part, sentinel: float) -> bool:
    """Whether a bias is proven not to lift keys masked by that number above those that are not."""
    if not isinstance(part.term, Bias):
        return False
    bound = magnitude(e, part.value) * abs(part.term.factor)
    return bound <= min(limits(part.term.dtypes[0]).small, sentinel / 4)
