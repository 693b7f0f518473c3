"""Which dims are cut over which axes of the mesh.

- ``dp``: the samples: what the first dims of the inputs are tied to.
- ``sp``: the tokens: what the rows of an attention's queries are tied to; where these are few,
  the keys that a cache holds (`key_cut`).
- ``tp``: heads of attentions, then what is between two products of constants: the inner dim of
  an MLP. The first is cut by columns, the second by rows, which leaves one all-reduce
  (Megatron-LM, Shoeybi et al. 2019); and the columns of a product that an output ends with
  (a vocabulary).
- ``ep``: experts: the dim of stacked constants that a product goes along and a sum ends.

A choice is good when nothing that is tied to it needs it whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from gecompiler.ir.flash_attention import FLASH_ATTENTION, FlashAttention
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.parallel import Layout, Mesh, Note, Split
from gecompiler.passes.parallel.attention_cut import head_cut, straddling
from gecompiler.passes.parallel.components import Component, ConstantUse, Place, Walker
from gecompiler.passes.parallel.key_cut import CachedKeys, cached_keys
from gecompiler.passes.parallel.plan import HeadCut, ParallelOptions, Plan
from gecompiler.passes.parallel.sample_cut import samples_of
from gecompiler.passes.parallel.signature import Region, layout_of
from gecompiler.passes.parallel.weight_dims import PRODUCTS, stacks, weight_dims


class LayoutChoice:
    """Makes a `Plan` for a graph on a mesh."""

    def __init__(
        self, graph: Graph, mesh: Mesh, options: ParallelOptions, *, shared_experts: bool = False
    ) -> None:
        self._graph, self._mesh, self._options = graph, mesh, options
        self._shared_experts = shared_experts
        self._walker = Walker(graph)
        self._wishes: dict[object, list[tuple[Region, Split]]] = defaultdict(list)
        self._notes: list[Note] = []
        self._heads: dict[str, HeadCut] = {}
        self._keys_cut: dict[str, str] = {}
        self._apart: set[str] = set()
        self._samples_cut: dict[str, tuple[Layout, ...]] = {}
        self._expert_keys: set[str | tuple[str, int]] = set()
        self._shared: list[tuple[Op, Component]] = []
        self._order = graph.topological()

    def plan(self) -> Plan:
        """The plan: wishes for constants, inputs and what no op hands on; heads by attention."""
        sizes = dict(self._mesh.axes)
        if "ep" in sizes:
            self._experts()
        if "dp" in sizes or self._shared_experts:
            self._samples()
        if "sp" in sizes:
            self._tokens()
        if "tp" in sizes:
            self._attentions()
            self._note_shared_heads()
            self._inner_dims()
        return self._made()

    # ------------------------------------------------------------ samples and tokens

    def _samples(self) -> None:
        found = samples_of(self._graph, self._walker)
        if found is None:
            if "dp" in dict(self._mesh.axes):
                self._note("dp", self._graph.name, "no input has samples that stay apart")
            return
        axes = self._sample_axes(found.count)
        if axes:
            self._wish(found.component.sources, Split(axes))
        if "ep" in axes.split("+"):
            self._samples_cut = found.lying(self._graph, Split(axes))

    def _sample_axes(self, samples: int) -> str:
        """``ep`` shares out samples as well where experts are shared out, and they divide."""
        mesh, replicas = self._mesh, "dp" if self._mesh.axis_size("dp") > 1 else ""
        if not self._shared_experts or self._options.expert_tokens == "replicate":
            return replicas
        if samples % mesh.axis_size("dp+ep") == 0:
            return f"{replicas}+ep".removeprefix("+")
        ranks = mesh.axis_size("dp+ep")
        self._note(
            "ep",
            self._graph.name,
            f"{samples} samples for {ranks} ranks: every rank of ep has all tokens of its replica",
        )
        return replicas

    def _tokens(self) -> None:
        keys = cached_keys(self._graph, self._walker, self._order, self._mesh.axis_size("sp"))
        if self._options.cached_keys == "whole":
            why = dict.fromkeys(keys.cut, "asked to be whole, as for a gradient")
            keys = CachedKeys(whole={**keys.whole, **why})
        self._cached(keys)
        done = [self._walker.label(self._graph.op(n), "s") for n in keys.few]
        for op in self._of_type(FLASH_ATTENTION):
            found = self._walker.signature(op)
            if found is None or "s" not in found.sizes:
                continue
            component = self._walker.label(op, "s")
            if any(component is c for c in done) or not self._has_products(component):
                continue
            done.append(component)
            self._wish(component.sources, Split("sp"))
        if not done and not keys.cut and not keys.whole:
            self._note("sp", self._graph.name, "no attention has several queries")

    def _cached(self, keys: CachedKeys) -> None:
        """Caches are cut where they come in, and stay so where they go out."""
        for name, why in keys.whole.items():
            self._note("sp", name, f"its cached keys are not cut: {why}")
        for name, components in keys.cut.items():
            self._keys_cut[name] = "sp"
            for component in components:
                self._wish(component.constants, Split("sp"))
                self._wish(component.sources, Split("sp"))
                self._apart.update(component.outputs)

    def _has_products(self, component: Component) -> bool:
        """Whether weights are applied to what is cut: else there is little to share."""
        makers = (self._graph.producer(p.value) for p in component.places)
        return any(op is not None and op.is_(*PRODUCTS) for op in makers)

    # ------------------------------------------------------------ heads

    def _attentions(self) -> None:
        for op in self._of_type(FLASH_ATTENTION):
            found = self._walker.signature(op)
            if found is None:
                continue
            attention = FlashAttention.of(op)
            cut = head_cut(attention.q_heads, attention.kv_heads, "tp", self._mesh)
            if cut is None or attention.q_heads < 2:
                self._note("heads", op.name, straddling(attention, self._mesh.axis_size("tp")))
                continue
            queries = self._walker.label(op, "h")
            if queries.stops or not queries.sums:
                why = next(iter(queries.stops), ("what follows", ""))[0]
                self._note("heads", op.name, f"its heads are not cut: {why!r} needs them whole")
                continue
            self._heads[op.name] = cut
            self._wish(queries.constants, cut.queries)
            self._wish(queries.sources, cut.queries)
            self._keys(op, attention, cut)

    def _keys(self, op: Op, attention: FlashAttention, cut: HeadCut) -> None:
        if attention.kv_heads < 2:
            return
        keys = self._walker.label(op, "g")
        if keys.stops:
            why = next(iter(keys.stops))[0]
            self._note("heads", op.name, f"KV heads are made whole: {why!r} needs them whole")
            return
        if cut.keys.shared > 1:
            self._shared.append((op, keys))
            if self._options.kv_heads == "split":
                self._wish_evenly(keys.constants)
                return
        self._wish(keys.constants, cut.keys)
        self._wish(keys.sources, cut.keys)

    def _wish_evenly(self, uses: Iterable[ConstantUse]) -> None:
        """Equal parts that need not be heads: what they make is gathered before it is used."""
        ranks = self._mesh.axis_size("tp")
        for use in uses:
            at = use.region
            if at.length % ranks == 0:
                whole = Region(at.start, at.length, 1, at.length, 1)
                self._wish([replace(use, region=whole)], Split("tp"))

    def _note_shared_heads(self) -> None:
        """What the two ways of sharing out few KV heads cost."""
        if not self._shared:
            return
        graph, ranks = self._graph, self._mesh.axis_size("tp")
        weights = moved = 0.0
        for _, component in self._shared:
            for use in component.constants:
                op = graph.op(use.op)
                constant, made = graph.constant(op.inputs[use.index]), graph.tensor(op.outputs[0])
                if constant is None or made is None or not op.is_(*PRODUCTS):
                    continue
                share = use.region.length / constant.type.sizes[use.dim]
                weights += constant.type.bytes * share
                moved += made.bytes * share
        shared = self._heads[self._shared[0][0].name].keys.shared
        figures = {
            "attentions": len(self._shared),
            "ranks_per_head": shared,
            "replicate_weight_bytes": int(weights * shared / ranks),
            "split_weight_bytes": int(weights / ranks),
            "split_gathered_bytes": int(moved),
        }
        way = self._options.kv_heads
        self._notes.append(
            Note(
                "kv-heads",
                graph.name,
                f"{shared} ranks need each KV head ({way}): held by all of them their weights take "
                f"{figures['replicate_weight_bytes']} bytes a rank; made in parts "
                f"{figures['split_weight_bytes']}, but each rank then gathers "
                f"{figures['split_gathered_bytes']} bytes a step",
                figures,
            )
        )

    # ------------------------------------------------------------ products

    def _inner_dims(self) -> None:
        for use in weight_dims(self._graph, self._walker, self._order):
            if self._walker.known(use) is not None or self._is_cut(use):
                continue
            found = self._walker.walk([use])
            ends = bool(found.outputs) and self._options.vocabulary
            if found.stops or not (found.sums or ends) or found.sources:
                continue
            if self._taken(found):
                continue
            self._wish(found.constants, Split("tp"))

    # ------------------------------------------------------------ experts

    def _experts(self) -> None:
        """Stacked constants that a product goes along: each expert is a matrix of its own."""
        for use in stacks(self._graph, self._walker, self._order):
            if self._walker.known(use) is not None:
                continue
            component = self._walker.walk([use])
            if component.stops or not component.sums:
                why = next(iter(component.stops), ("no op sums them up",))[0]
                self._note("experts", use.op, f"experts are not shared out: {why}")
                continue
            self._shared_experts = True
            self._wish(component.constants, Split("ep"))
            self._wish(component.sources, Split("ep"))
            self._expert_keys.update((u.op, u.index) for u in component.constants)
            self._expert_keys.update(place.value for place in component.sources)
        if not self._shared_experts:
            self._note("experts", self._graph.name, "no experts to share out")

    # ------------------------------------------------------------ wishes

    def _of_type(self, op_type: str) -> Iterable[Op]:
        return (op for op in self._order if op.is_(op_type, domain=GE_DOMAIN))

    def _wish(self, places: Iterable[Place | ConstantUse], split: Split) -> None:
        for place in places:
            key = _key(place)
            entry = (place.region, split)
            if entry not in self._wishes[key]:
                self._wishes[key].append(entry)

    def _is_cut(self, use: Place | ConstantUse) -> bool:
        return bool(self._wishes.get(_key(use)))

    def _taken(self, component: Component) -> bool:
        return any(self._is_cut(use) for use in component.constants)

    def _note(self, kind: str, subject: str, message: str) -> None:
        self._notes.append(Note(kind, subject, message))

    def _made(self) -> Plan:
        plan = Plan(heads=self._heads, keys=self._keys_cut, apart=self._apart, notes=self._notes)
        if self._samples_cut:
            plan.samples, plan.experts = self._samples_cut, self._expert_keys
        for key, cuts in self._wishes.items():
            assert isinstance(key, tuple)
            *owner, dim = key
            value = owner[0] if len(owner) == 1 else self._graph.op(owner[0]).inputs[owner[1]]
            type_ = self._graph.tensor(value)
            assert type_ is not None
            layout = self._layout(value, type_.sizes[dim], cuts)
            name: object = owner[0] if len(owner) == 1 else tuple(owner)
            dims = list(plan.wishes.get(name, (None,) * len(type_.sizes)))  # type: ignore[call-overload]
            dims[dim] = layout
            plan.wishes[name] = tuple(dims)  # type: ignore[index]
        return plan

    def _layout(self, value: str, size: int, cuts: list[tuple[Region, Split]]) -> Layout:
        found = layout_of(size, cuts)
        if found is None:
            self._note("whole", value, "it would be cut in two ways, and stays whole")
        return found


def _key(place: Place | ConstantUse) -> tuple[object, ...]:
    if isinstance(place, Place):
        return (place.value, place.dim)
    return (place.op, place.index, place.dim)
