"""Which labels of a signature are the rows of a value, and which dims have these labels."""

from __future__ import annotations

from gecompiler.passes.parallel.signature import Operand, Runs, Signature


def labels_between(operand: Operand | None, first: int, last: int) -> tuple[str, ...] | None:
    """The labels of those dims in row-major order; None where runs are among them."""
    if operand is None:
        return None
    found: list[str] = []
    for spec in operand[first:last]:
        if isinstance(spec, Runs):
            return None
        found += spec
    return tuple(found)


def place_of(operand: Operand | None, labels: tuple[str, ...]) -> tuple[int, int] | None:
    """The dims that are just those labels."""
    if operand is None:
        return None
    has = [i for i, s in enumerate(operand) if not isinstance(s, Runs) and set(s) & set(labels)]
    if not has or labels_between(operand, has[0], has[-1] + 1) != labels:
        return None
    return has[0], has[-1] + 1


def keeps_apart(found: Signature, labels: tuple[str, ...]) -> bool:
    """Whether no such label is summed over, or has to be whole."""
    return not any(label in found.reduced or label in found.whole for label in labels)
