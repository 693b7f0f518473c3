"""One attention of the source model, put together from its parts.

`match` joins the walks of the scores and the probabilities: which operand of the first product is
Q and which K, which axes are queries, keys, heads and batch. It decides by the roles that axes
play in the two products and in the softmax, never by their positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, Shape
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention.anchors import Anchor
from gecompiler.passes.attention.contraction import Contraction
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.frame import Frame
from gecompiler.passes.attention.heads import beside, heads_of_rows, split_heads
from gecompiler.passes.attention.layout import Axis, Layout
from gecompiler.passes.attention.operands import Link, chain
from gecompiler.passes.attention.predicates import Predicate
from gecompiler.passes.attention.probabilities import Probabilities, follow
from gecompiler.passes.attention.refusal import Refusal, at
from gecompiler.passes.attention.scores import Scores, peel
from gecompiler.passes.attention.sites import Origins
from gecompiler.passes.attention.terms import Multiplier, Overwrite, Term


@dataclass(frozen=True, slots=True)
class Sibling:
    """Another product with the same probabilities: its V, and its result."""

    v: tuple[Link, ...]
    value_width: Axis
    out: str
    out_layout: Layout
    op: Op


@dataclass(frozen=True, slots=True)
class Match:
    """An attention: operands as chains of links, its axes, and what happens to the scores.

    ``causal`` is a condition on keys that is no tensor of the graph (an attention op's own
    attribute). ``guarded``: a row without any key gives 0, not NaN. ``zeroed`` are masks on the
    probabilities. ``ops`` are what the fused
    op replaces; ``out`` with ``out_layout`` and ``out_dtype`` is their result; ``also`` pairs
    further results with the values that stand for them; ``siblings`` are further products.
    """

    op: Op
    q: tuple[Link, ...]
    k: tuple[Link, ...]
    v: tuple[Link, ...]
    batch: Axis
    heads: Axis
    queries: Axis
    keys: Axis
    width: Axis
    value_width: Axis
    out: str
    out_layout: Layout
    out_dtype: DType
    ops: tuple[Op, ...]
    alpha: float = 1.0
    softcap: float = 0.0
    terms: tuple[Term, ...] = ()
    multipliers: tuple[Multiplier, ...] = ()
    sinks: tuple[str, Layout, float] | None = None
    causal: Callable[[Elements, Frame], Predicate] | None = None
    guarded: bool = False
    zeroed: tuple[Overwrite, ...] = ()
    also: tuple[tuple[str, str], ...] = ()
    siblings: tuple[Sibling, ...] = ()

    @property
    def results(self) -> tuple[str, ...]:
        """The values that are computed anew."""
        return (self.out, *(s.out for s in self.siblings), *(old for old, _ in self.also))


def match(e: Elements, origins: Origins, anchor: Anchor) -> Match:
    """The attention around a softmax; Refusal says why it is none that can be fused."""
    after = follow(e, anchor)
    before = peel(e, anchor, after, origins.leads)
    first, second = before.product, after.product
    assert first is not None
    assert second is not None
    if origins.is_projection(first):
        raise at(first.op, "mixes scores by a stored matrix")
    if (before.sink_column is None) != (after.first_key is None):
        raise at(anchor.op, "has a column more before than after it, or the other way round")
    if before.sink_column is not None:
        _same_column(anchor, before, after)
    roles = _roles(anchor, before)
    width = _axis(e, first, roles.query, first.summed[roles.query])
    q = _operand(e, first, roles.query, before.layout, width)
    k = _operand(e, first, 1 - roles.query, before.layout, width)
    v, value_width, out = _values(e, anchor, after)
    chains = [tuple(chain(e, value, layout)) for value, layout in (q, k, v)]
    if after.others:
        _check_apart(origins, anchor, after)
    siblings = tuple(_sibling(e, anchor, after, n) for n in range(len(after.others)))
    others = [s.op for s in siblings]
    queries = () if roles.queries is None else before.layout[roles.queries]
    batch, heads = _shared(anchor, before, after, roles, chains[0], width)
    heads, queries = heads_of_rows(heads, queries, (k.layout for k in chains[0]))
    dtype = e.dtype(second.output)
    if dtype is None:
        raise at(second.op, "has an output of unknown type")
    return Match(
        op=anchor.op,
        q=chains[0],
        k=chains[1],
        v=chains[2],
        batch=batch,
        heads=heads,
        queries=queries,
        keys=before.keys,
        width=width,
        value_width=value_width,
        out=after.out or second.output,
        out_layout=out,
        out_dtype=dtype,
        ops=(first.op, *reversed(before.ops), *anchor.ops, *after.ops, second.op, *others),
        alpha=before.alpha * first.alpha,
        softcap=before.softcap,
        terms=tuple(before.terms),
        multipliers=tuple(before.multipliers),
        sinks=before.sinks,
        guarded=after.guarded,
        zeroed=tuple(after.zeroed),
        siblings=siblings,
    )


def _check_apart(origins: Origins, anchor: Anchor, after: Probabilities) -> None:
    """No V may be made with the probabilities: products would wait for one another."""
    assert after.product is not None
    for product, name in ((after.product, after.value), *after.others):
        values = product.operands[1 - product.operands.index(name)]
        if origins.depends(values, anchor.op):
            raise at(product.op, "multiplies the probabilities by what is made with them")


def _sibling(e: Elements, anchor: Anchor, after: Probabilities, n: int) -> Sibling:
    """A further product, with V of the same batch, heads and keys."""
    product, name = after.others[n]
    own = replace(after, product=product, value=name)
    v, value_width, layout = _values(e, anchor, own)
    if after.out or e.dtype(product.output) is not e.dtype(after.product.output):  # type: ignore[union-attr]
        raise at(product.op, "multiplies the same probabilities by V of another type")
    return Sibling(tuple(chain(e, *v)), value_width, product.output, layout, product.op)


def known_shape(e: Elements, value: str) -> Shape:
    """A value's shape; Refusal when not even its rank is known."""
    found = e.shape(value)
    if found is None:
        raise Refusal(f"the rank of {value!r} is not known")
    return found


def _same_column(anchor: Anchor, before: Scores, after: Probabilities) -> None:
    """The column that is dropped must be the sink's; the keys' axis then is one and the same."""
    first = 1 if before.sink_column == 0 else 0
    if after.first_key != first or lay.size(before.keys) != lay.size(after.keys):
        raise at(anchor.op, "is followed by dropping a column that is not the sink's")
    after.layout = tuple(before.keys if a == after.keys else a for a in after.layout)
    after.keys = before.keys


@dataclass(frozen=True, slots=True)
class _Roles:
    query: int
    """Which operand of the first product is Q."""
    queries: int | None
    """Which axis of the product runs over the queries."""
    keys: int
    """Which axis of the product runs over the keys."""


def _shared(
    anchor: Anchor,
    before: Scores,
    after: Probabilities,
    roles: _Roles,
    q: tuple[Link, ...],
    width: Axis,
) -> tuple[Axis, Axis]:
    """Batch and heads: told by the product, the softmax, or what Q is a view of."""
    own = (roles.queries, roles.keys)
    product = tuple(a for n, a in enumerate(before.layout) if n not in own)
    queries = () if roles.queries is None else before.layout[roles.queries]
    softmax = tuple(a for n, a in enumerate(after.start) if n != anchor.axis)
    places = [product, beside(softmax, queries)]
    places += [beside(k.layout, width, queries) for k in q if queries]
    whole = lay.flat(f for axis in product for f in axis)
    return split_heads(whole, places)


def _roles(anchor: Anchor, before: Scores) -> _Roles:
    product = before.product
    assert product is not None
    keys = [n for n, axis in enumerate(before.layout) if lay.same_axis(axis, before.keys)]
    if len(keys) != 1:
        raise at(anchor.op, "normalises something else than one axis of the product of Q and K")
    owners = [n for n in (0, 1) if product.sources[n][keys[0]] is not None]
    if len(owners) != 1:
        raise at(anchor.op, "normalises an axis that is no axis of keys")
    query = 1 - owners[0]
    own = [
        n
        for n, source in enumerate(product.sources[query])
        if source is not None and product.sources[1 - query][n] is None
    ]
    return _Roles(query, own[-1] if own else None, keys[0])


def _axis(e: Elements, product: Contraction, operand: int, axis: int) -> Axis:
    """A new axis for one that only operands have."""
    return lay.fresh(known_shape(e, product.operands[operand]))[axis]


def _operand(
    e: Elements, product: Contraction, operand: int, out: Layout, inner: Axis
) -> tuple[str, Layout]:
    """An operand's layout from that of the product; size 1 where it broadcasts."""
    value = product.operands[operand]
    shape, whole = known_shape(e, value), known_shape(e, product.output)
    axes: list[Axis | None] = [None] * len(shape)
    axes[product.summed[operand]] = inner
    for position, source in enumerate(product.sources[operand]):
        if source is not None:
            grows = shape[source] == 1 and whole[position] != 1
            if (
                not grows
                and shape[source] != whole[position]
                and not e.agree(shape[source], whole[position])
            ):
                raise at(product.op, f"has {value!r} of a size that may broadcast")
            axes[source] = () if grows else out[position]
    return value, tuple(a or () for a in axes)


def _values(
    e: Elements, anchor: Anchor, after: Probabilities
) -> tuple[tuple[str, Layout], Axis, Layout]:
    """V with its layout, the axis of one value, and the layout of the result."""
    product, own = after.product, after.operand
    assert product is not None
    if not lay.same_axis(after.layout[product.summed[own]], after.keys):
        raise at(product.op, "does not sum over the axis that the softmax normalises")
    only = [n for n, source in enumerate(product.sources[own]) if source is None]
    if len(only) != 1:
        raise at(product.op, "has more axes of V than one beside keys and batch")
    whole, given = known_shape(e, product.output), known_shape(e, after.value)
    width = lay.fresh(whole)[only[0]]
    out = tuple(
        width if source is None else after.layout[source] for source in product.sources[own]
    )
    for source, dim in zip(product.sources[own], whole, strict=True):
        if source is not None and given[source] != dim and not e.agree(given[source], dim):
            raise at(product.op, "has more batches of V than of probabilities")
    return _operand(e, product, 1 - own, out, after.keys), width, out
