"""Gradients of collectives, for a forward graph that is already cut over ranks.

What is differentiated is the sum of the losses of all ranks, each by its own copy of a value: the
exact derivative of the program as it is written. A loss that every rank computes alike must
thus be weighted with one over their number (`TrainingOptions.gradient_weight`), and a parameter of
which every rank holds a copy takes the sum of their gradients (`sync_gradients`). It is what
torch.distributed.nn.functional does; Megatron-LM's conjugate pairs f and g follow from it.
"""

from __future__ import annotations

from gecompiler.ir.collective_ops import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    RECV,
    REDUCE_SCATTER,
    SEND,
)
from gecompiler.ir.op import GE_DOMAIN, Attr
from gecompiler.passes.training.site import Gradients, Rule, Site


def _shared(site: Site, *names: str) -> dict[str, Attr]:
    """Attributes that stay as they are."""
    kept = ("communicator", "group_size", *names)
    return {name: site.op.attrs[name] for name in kept if name in site.op.attrs}


def _all_reduce(site: Site) -> Gradients:
    attrs = _summing(site)
    return {0: site.tape.own(ALL_REDUCE, [site.dy], site.type(0), attrs=attrs)[0]}


def _summing(site: Site, *names: str) -> dict[str, Attr]:
    """The same reduction, which must be a sum or a mean."""
    reduction = site.op.attr("reduction", "sum")
    if reduction not in ("sum", "mean"):
        site.fail(f"with reduction {reduction!r} has no gradient here")
    return {**_shared(site, *names), "reduction": reduction}


def _all_gather(site: Site) -> Gradients:
    attrs: dict[str, Attr] = {**_shared(site, "axis"), "reduction": "sum"}
    return {0: site.tape.own(REDUCE_SCATTER, [site.dy], site.type(0), attrs=attrs)[0]}


def _reduce_scatter(site: Site) -> Gradients:
    reduction, t, dy = _summing(site)["reduction"], site.tape, site.dy
    if reduction == "mean":
        dy = t.scaled(dy, 1 / int(site.op.attr("group_size", 1)))
    attrs = _shared(site, "axis")
    return {0: t.own(ALL_GATHER, [dy], site.type(0), attrs=attrs)[0]}


def _all_to_all(site: Site) -> Gradients:
    attrs = _shared(site)
    attrs["split_axis"] = site.op.attrs.get("concat_axis", 0)
    attrs["concat_axis"] = site.op.attrs.get("split_axis", 0)
    return {0: site.tape.own(ALL_TO_ALL, [site.dy], site.type(0), attrs=attrs)[0]}


def _broadcast(site: Site) -> Gradients:
    site.fail("has no gradient here: what one rank alone may use is not known to the others")
    return {}


def _send(site: Site) -> Gradients:
    """The peer sends back the gradient of what it got."""
    kind = site.type(0)
    attrs: dict[str, Attr] = {**_shared(site, "peer"), "tag": _back(site)}
    attrs.update(dtype=kind.dtype.short, shape=kind.sizes)
    return {0: site.tape.own(RECV, [], kind, attrs=attrs)[0]}


def _recv(site: Site) -> Gradients:
    """Zeros where nothing here depends on what came, since the peer waits for them."""
    attrs: dict[str, Attr] = {**_shared(site, "peer"), "tag": _back(site)}
    dy = site.grads[0] or site.tape.zeros(site.tape.type(site.op.outputs[0]))
    site.tape.own(SEND, [dy], attrs=attrs)
    return {}


def _back(site: Site) -> Attr:
    tag = site.op.attr("tag", "")
    return f"{tag}/grad" if isinstance(tag, str) else -1 - int(tag)


RULES: dict[str, Rule] = {
    f"{GE_DOMAIN}.{name}": rule
    for name, rule in (
        (ALL_REDUCE, _all_reduce),
        (ALL_GATHER, _all_gather),
        (REDUCE_SCATTER, _reduce_scatter),
        (ALL_TO_ALL, _all_to_all),
        (BROADCAST, _broadcast),
        (SEND, _send),
        (RECV, _recv),
    )
}
