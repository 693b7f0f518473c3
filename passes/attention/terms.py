"""What is done to the scores besides the product of Q and K."""

from __future__ import annotations

from dataclasses import dataclass

from gecompiler.ir.op import Op
from gecompiler.ir.types import DType
from gecompiler.passes.attention.layout import Layout


@dataclass(frozen=True, slots=True)
class Bias:
    """``factor * value`` is added to the scores, which have ``layout`` there.

    ``dtypes`` are the element types of the scores from here to the softmax, this addition's
    first; ``floor`` is what they are raised to on that way, if they are below.
    """

    op: Op
    value: str
    layout: Layout
    factor: float
    dtypes: tuple[DType, ...]
    floor: float | None


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Scores are kept where ``condition`` is ``keep`` and are ``sentinel`` elsewhere.

    ``other`` is a tensor to be multiplied by ``sentinel`` where they are not one number.
    """

    op: Op
    condition: str
    layout: Layout
    keep: bool
    sentinel: float
    dtypes: tuple[DType, ...]
    floor: float | None
    other: str = ""


@dataclass(frozen=True, slots=True)
class Multiplier:
    """The product is multiplied by (``inverse``: divided by) a tensor that is no single number.

    ``dtypes`` and ``floor`` as in `Bias`.
    """

    op: Op
    value: str
    layout: Layout
    inverse: bool
    dtypes: tuple[DType, ...]
    floor: float | None


Term = Bias | Overwrite
