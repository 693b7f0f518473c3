"""The state of a step over ranks: how it lies on them, and the whole of it from their parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from gecompiler.ir.constants import Array, Constant
from gecompiler.ir.parallel import Mesh, Sharding, Template
from gecompiler.ir.parallel.program import Whole
from gecompiler.ir.types import TensorType
from gecompiler.passes.parallel.rank_rows import Stacked
from gecompiler.passes.training.buckets import Pieces


def state_wholes(template: Template, initial: Mapping[str, Constant]) -> dict[str, Whole]:
    """For each state of a step, what it is of the whole model's, and how that lies on the ranks.

    ``template`` is of the forward pass; moments lie as their parameters do.
    """
    found: dict[str, Whole] = {}
    for name, constant in initial.items():
        whole, sharding = template.constants.get(base_of(name, template), (None, None))
        rank = len(constant.type.sizes)
        if whole is None or sharding is None or len(sharding.dims) != rank:
            found[name] = Whole(constant.type, Sharding((None,) * rank))
        else:
            found[name] = Whole(TensorType(constant.type.dtype, whole.type.shape), sharding)
    return found


def twins(template: Template) -> list[dict[str, tuple[Constant, Sharding]]]:
    """Constants that are one of the model's in several cuts, one of which may be the whole."""
    alike: dict[int, dict[str, tuple[Constant, Sharding]]] = {}
    for name, own in template.graph.constants.items():
        uncut = Sharding((None,) * len(own.type.sizes))
        whole, sharding = template.constants.get(name, (own, uncut))
        if own.type.dtype.is_float and whole.size > 1:
            alike.setdefault(id(whole), {})[name] = whole, sharding
    return [names for names in alike.values() if len(names) > 1]


def base_of(name: str, template: Template) -> str:
    """The parameter that a state belongs to, which may be itself: one may be called ``w/1``."""
    own = name in template.constants or name in template.graph.constants
    return name if own else name.rpartition("/")[0]


def joined(whole: Whole, parts: Mapping[int, Array], mesh: Mesh) -> Array:
    """The whole of a state from what ranks hold, by rank.

    Of one that is there on one rank and zeros on the others, which they stay, what that rank has.
    """
    lies = whole.sharding
    first = {
        rank: part
        for rank, part in parts.items()
        if not any(mesh.place(axes, rank) for axes in lies.partial)
    }
    return replace(lies, partial=()).join(first, whole.type.sizes, mesh)


def states_in(parts: list[Array], pieces: Pieces) -> Iterator[tuple[str, Array]]:
    """The states that lie in what replicas have parts of, each as a rank would have it whole."""
    flat, place = np.concatenate(parts), 0
    for name, sizes in pieces:
        count = int(np.prod(sizes, dtype=np.int64))
        yield name, flat[place : place + count].reshape(sizes)
        place += count


def model_states(name: str, array: Array, template: Template) -> Iterator[tuple[str, Array]]:
    """A whole state by the names that the model has for it: several where it is a table of them."""
    base = base_of(name, template)
    whole = template.constants.get(base, (None, None))[0]
    source = None if whole is None else whole.source
    if isinstance(source, Stacked) and source.names:
        rows = np.split(array, len(source.names))
        for own, part in zip(source.names, rows, strict=True):
            yield own + name[len(base) :], part
    else:
        yield name, array
