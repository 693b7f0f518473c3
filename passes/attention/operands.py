"""Q, K and V: from what the products read back to the plainest value that holds the same.

Between a projection and the product exporters put views in any order, factors (all of the scale,
or its square root on both sides), repeats of KV heads, and casts. `chain` walks back through all
of them, keeping for each value passed its layout and the factor that lies between it and the
product. `choose` picks the value from which the operand is had with the fewest ops.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gecompiler.ir.types import DType
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention import relayout
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.layout import Axis, Factor, Layout
from gecompiler.passes.attention.noops import inference_dropout
from gecompiler.passes.attention.scalars import scaled

MAX_STEPS = 64


@dataclass(frozen=True, slots=True)
class Link:
    """A value that an operand is a view of: the operand is ``factor`` times it.

    ``casts``: the element types the value goes through on its way to the product.
    """

    value: str
    layout: Layout
    factor: float = 1.0
    casts: tuple[DType, ...] = ()


def chain(e: Elements, value: str, layout: Layout) -> list[Link]:
    """The operand itself, then what it is made of, as far back as it can be followed."""
    links = [Link(value, layout)]
    while len(links) < MAX_STEPS:
        step = _back(e, links[-1])
        if step is None:
            break
        links.append(step)
    return links


def _back(e: Elements, link: Link) -> Link | None:
    op = e.graph.producer(link.value)
    if op is None or op.domain or op.outputs[0] != link.value:
        return None
    if op.op_type == "Cast":
        before, after = e.dtype(op.inputs[0]), e.dtype(link.value)
        if before is None or after is None or not (before.is_float and after.is_float):
            return None
        return replace(link, value=op.inputs[0], casts=(after, *link.casts))
    if op.op_type == "Dropout" and inference_dropout(e, op):
        return replace(link, value=op.inputs[0])
    for way in scaled(e, op):
        if way.factor and math.isfinite(way.factor):
            return replace(link, value=way.value, factor=link.factor * way.factor)
    before_layout = lay.before(e.graph, op, link.layout)
    return (
        None if before_layout is None else replace(link, value=op.inputs[0], layout=before_layout)
    )


def factors(layout: Layout) -> dict[Factor, None]:
    """The factors of a layout, as an ordered set."""
    return dict.fromkeys(lay.flatten(layout))


def choose(e: Elements, links: Iterable[Link], target: Layout, dtype: DType) -> Link | None:
    """The link from which ``target`` is made in type ``dtype`` with the fewest ops, or None.

    Factors that stay in the graph count as well, so they are left behind where possible. Of
    equals the link furthest back wins: what lies between is then needed no more. Casts may be
    left out only where they lose nothing.
    """
    found = list(links)
    changes = [n for n in range(1, len(found)) if found[n].factor != found[n - 1].factor]
    best: tuple[tuple[int, int], Link] | None = None
    for n, link in enumerate(found):
        steps, kind = relayout.cost(link.layout, target), e.dtype(link.value)
        if (
            steps is None
            or kind is None
            or not widens(kind, *link.casts)
            or not widens(kind, dtype)
        ):
            continue
        key = (steps + int(kind is not dtype) + 8 * sum(c > n for c in changes), -n)
        if best is None or key < best[0]:
            best = (key, link)
    return None if best is None else best[1]


def widens(*dtypes: DType) -> bool:
    """Whether each type holds every number of the one before it."""
    return all(b is a or b in _WIDER.get(a, ()) for a, b in itertools.pairwise(dtypes))


_WIDER = {
    DType.F16: (DType.F32, DType.F64),
    DType.BF16: (DType.F32, DType.F64),
    DType.F32: (DType.F64,),
}


def repeats(links: Iterable[Link], heads: Axis) -> int:
    """How many of the head factors, from the minor end, are mere repeats of the KV heads."""
    fewest = min((factors(k.layout) for k in links), key=len)
    count = 0
    for factor in reversed(lay.flat(heads)):
        if factor in fewest:
            break
        count += 1
    return count
