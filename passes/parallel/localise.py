"""A graph of the whole model made local, op by op, in topological order.

Every value has a home, the layout in which its op makes it. An op's signature says how the cuts
of its inputs go together; where they do not, an input is moved first (gathered, taken, summed),
and an op without a signature gets all of its inputs whole: slower, never wrong. Sums over a cut
dim stay sums still to be made for as long as ops are linear, so that a row of products makes
one all-reduce.

Source: GSPMD (Xu et al. 2021), propagation and per-op partitioning; Megatron-LM (Shoeybi et al.
2019) for what is cut.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field, replace

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import GraphError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Layout, Mesh, Note, Sharding, Split, Template, Whole
from gecompiler.ir.parallel.layout import axes_in, is_exact
from gecompiler.ir.types import TensorType, ValueType
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.passes.parallel.attention_cut import local_attention
from gecompiler.passes.parallel.dim_rules import signature
from gecompiler.passes.parallel.dim_site import NoSignatureError
from gecompiler.passes.parallel.local_graph import LocalGraph, reshard
from gecompiler.passes.parallel.local_ops import adapted
from gecompiler.passes.parallel.plan import ParallelOptions, Plan
from gecompiler.passes.parallel.signature import Operand, Signature, compose, decompose

LOG = logging.getLogger("gecompiler.passes.parallel")


@dataclass
class Localiser:
    """Makes a template of a graph; see the module's docstring."""

    whole: Graph
    mesh: Mesh
    plan: Plan
    options: ParallelOptions
    row_steps: dict[str, tuple[str, int]] = field(default_factory=dict, init=False)
    """Attentions whose window counts rows that are cut: over which axes, how many a rank has."""

    def run(self) -> Template:
        """The template; its graph has the whole graph's inputs and outputs."""
        graph = Graph(self.whole.name, self.whole.opsets)
        graph.metadata = dict(self.whole.metadata)
        graph.reserve(self.whole)
        self.local = LocalGraph(graph, self.mesh)
        self.home: dict[str, Sharding] = {}
        self.at: dict[str, dict[Sharding, str]] = {}
        self._signatures: dict[str, Signature | None] = {}
        self.notes: list[Note] = []
        self.made_for: dict[str, str] = {}
        inputs = {name: self._input(name) for name in self.whole.inputs}
        for op in self.whole.topological():
            self._op(op)
            self._sign(op.name)
        outputs = {name: self._output(name) for name in self.whole.outputs}
        graph.set_outputs(list(outputs))
        self._sign(None)
        self._states(graph)
        found = {n: w for n, w in inputs.items() if w is not None}
        return Template(
            graph,
            self.local.constants,
            found,
            {n: w for n, w in outputs.items() if w is not None},
        )

    def _sign(self, name: str | None) -> None:
        """Notes for which op of the whole model the newest local ops were made."""
        ops = self.local.graph.ops
        for op in ops[len(self.made_for) :]:
            maker = name
            if maker is None:  # at an output: for what made the value
                before = self.local.graph.predecessors(op)
                maker = self.made_for[before[0].name] if before else next(iter(self.made_for), "")
            self.made_for[op.name] = maker

    # ------------------------------------------------------------ ends

    def _input(self, name: str) -> Whole | None:
        type_ = self.whole.tensor(name)
        if type_ is None or not type_.is_static:
            self.local.graph.add_input(name, self.whole.type(name))
            return None
        sharding = Sharding(self._wish(name, type_))
        local = TensorType(type_.dtype, sharding.local_shape(type_.sizes, self.mesh))
        self.local.graph.add_input(name, local)
        self._made(name, sharding, name)
        return Whole(type_, sharding)

    def _output(self, name: str) -> Whole | None:
        type_ = self.whole.tensor(name)
        if type_ is None or name not in self.home:
            return None
        state = next((s for s in self.whole.states if s.output == name), None)
        if state is not None and state.input in self.home:
            want = self.home[state.input]
        else:
            home = self.home[name] if name not in self.whole.constants else self._whole_of(name)
            apart = set(self.options.gather_outputs)
            dims = tuple(None if apart & set(axes_in(d)) else d for d in home.dims)
            want = Sharding(dims)
        value = self.value(name, want)
        if value != name:
            self._rename(value, name)
        return Whole(type_, want)

    def _whole_of(self, value: str) -> Sharding:
        return Sharding((None,) * len(self._sizes(value)))

    def _rename(self, value: str, name: str) -> None:
        """Lets ``value`` be the output of that name."""
        graph = self.local.graph
        if graph.has_value(name):
            graph.set_outputs([*graph.outputs, name])
            graph.rename_output(name, value)
            graph.set_outputs([n for n in graph.outputs if n != name])
            self.at[name] = {}
            return
        graph.add_op(Op(graph.fresh(f"{name}_copy"), "Identity", (value,), (name,)),
                     [graph.type(value)])

    def _states(self, graph: Graph) -> None:
        kept = [s for s in self.whole.states if s.input in graph.inputs]
        graph.set_states(kept)

    def _wish(self, name: str, type_: TensorType) -> tuple[Layout, ...]:
        return self.plan.wishes.get(name) or (None,) * len(type_.sizes)

    def _sizes(self, value: str) -> tuple[int, ...]:
        type_ = self.whole.tensor(value)
        assert type_ is not None
        return type_.sizes

    # ------------------------------------------------------------ values

    def _made(self, value: str, sharding: Sharding, name: str) -> None:
        self.home.setdefault(value, sharding)
        self.at.setdefault(value, {})[sharding] = name

    def value(self, value: str, want: Sharding | None) -> str:
        """The local value that lies so (None: whole whatever it is), made where it is not yet."""
        constant = self.whole.constant(value)
        if constant is not None:
            return self._constant(value, want)
        if value not in self.home:  # a sequence, or a tensor of no known rank: always whole
            return value
        want = want or self._whole_of(value)
        have = self.at[value]
        if want not in have:
            home = self.home[value]
            start = home
            summed = Sharding(home.dims)
            if home.partial and not want.partial and summed in have:
                start = summed
            elif home.partial and not want.partial:
                have[summed] = reshard(self.local, have[home], self._sizes(value), home, summed)
                start = summed
            if want not in have:
                have[want] = reshard(self.local, have[start], self._sizes(value), start, want)
        return have[want]

    def _constant(self, value: str, want: Sharding | None) -> str:
        have = self.at.setdefault(value, {})
        constant = self.whole.constants[value]
        want = want or self._whole_of(value)
        if want not in have:
            graph = self.local.graph
            if not have and want.is_whole:
                have[want] = graph.add_constant(value, constant)
            elif not have:
                have[want] = self._share_named(value, want)
            else:
                have[want] = self.local.share(value, constant, want)
        return have[want]

    def _share_named(self, value: str, want: Sharding) -> str:
        """Under its own name where that is free: `fresh` keeps off names of the whole graph."""
        graph, constant = self.local.graph, self.whole.constants[value]
        local = TensorType(constant.type.dtype, want.local_shape(constant.type.sizes, self.mesh))
        self.local.constants[value] = (constant, want)
        return graph.add_constant(value, Constant.absent(local))

    # ------------------------------------------------------------ ops

    def _op(self, op: Op) -> None:
        self.local.phase = op.info.phase
        try:
            found = signature(self.whole, op)
        except (NoSignatureError, GraphError) as error:
            self._replicated(op, str(error))
            return
        self._cut(op, found)

    def _replicated(self, op: Op, why: str) -> None:
        """With all inputs whole, as in the whole model."""
        cut = [v for v in self.whole.reads(op) if v in self.home and not self.home[v].is_whole]
        if cut:
            self.notes.append(Note("whole", op.name, f"{op.kind} runs whole on every rank: {why}"))
        inputs = tuple(self.value(v, None) if v else "" for v in op.inputs)
        for outer in self.whole.captures(op):
            self._captured(outer)
        types: list[ValueType] = [self.whole.type(v) if v else None for v in op.outputs]
        self.local.graph.add_op(op.with_(inputs=inputs), types)
        for value, type_ in zip(op.outputs, types, strict=True):
            if isinstance(type_, TensorType) and type_.is_static:
                self._made(value, Sharding((None,) * len(type_.sizes)), value)

    def _captured(self, value: str) -> None:
        """A body takes values by name: the whole value must bear it."""
        name = self.value(value, None)
        if name == value:
            return
        raise GraphError(
            f"a body takes {value!r}, which lies on several ranks", where=self.whole.name
        )

    def _cut(self, op: Op, found: Signature) -> None:
        cut = self._chosen(op, found)
        inputs = []
        for i, (value, operand) in enumerate(zip(op.inputs, found.inputs, strict=True)):
            inputs.append(self.value(value, self._wanted(op, i, operand, cut)) if value else "")
        homes = [self._home(spec, cut) for spec in found.outputs]
        shapes = [
            home.local_shape(self._sizes(v), self.mesh) if v and home else ()
            for v, home in zip(op.outputs, homes, strict=True)
        ]
        if found.adapt == "heads":
            local = self._attention(op, cut, inputs)
        else:
            local = adapted(self.local, op, found, cut.layouts, inputs, shapes)
        types: list[ValueType] = []
        for value, shape in zip(op.outputs, shapes, strict=True):
            whole = self.whole.tensor(value) if value else None
            types.append(TensorType(whole.dtype, tuple(shape)) if whole is not None else None)
        self.local.graph.add_op(local, types)
        for value, home in zip(op.outputs, homes, strict=True):
            if value and home is not None:
                self._finish(value, home, cut)

    def _chosen(self, op: Op, found: Signature) -> _Cut:
        """The layout of each label: from activations first, large before small."""
        kept = self._kept_sums(op, found)
        used = {a for joined in kept for a in joined.split("+")}
        cut = _Cut(found, {}, kept, used)
        if found.adapt == "heads":
            self._choose_heads(op, cut)
        for i in sorted(range(len(op.inputs)), key=lambda i: self._weight(op.inputs[i])):
            operand, value = found.inputs[i], op.inputs[i]
            if not value or operand is None:
                continue
            for spec, layout in zip(operand, self._cut_of(op, i), strict=True):
                labels = decompose(spec, layout, found.sizes, self.mesh) or {}
                for label, sub in labels.items():
                    if sub is not None and self._may_cut(op, label, sub, cut):
                        cut.layouts[label] = sub
                        cut.used.update(axes_in(sub))
        return cut

    def _weight(self, value: str) -> tuple[bool, int]:
        type_ = self.whole.tensor(value) if value else None
        size = math.prod(type_.sizes) if type_ is not None and type_.is_static else 0
        return value in self.whole.constants, -size

    def _cut_of(self, op: Op, index: int) -> tuple[Layout, ...]:
        value = op.inputs[index]
        if value in self.home:
            return self.home[value].dims
        return self.plan.wishes.get((op.name, index)) or (None,) * len(self._sizes(value))

    def _may_cut(self, op: Op, label: str, layout: Layout, cut: _Cut) -> bool:
        found = cut.found
        if label in cut.layouts or label in found.whole or label in cut.fixed:
            return False
        if self._collides(label, layout, cut):
            return False
        how = found.reduced.get(label)
        if how in (None, "max", "min") or is_exact(layout, found.sizes[label], self.mesh):
            return not (how == "sum" and found.adapt == "bias" and self._has_moving_bias(op))
        return how == "sum" and any(
            value in self.whole.constants and operand is not None and (label,) in operand
            for value, operand in zip(op.inputs, found.inputs, strict=True)
        ) and not (found.adapt == "bias" and self._has_moving_bias(op))

    def _collides(self, label: str, layout: Layout, cut: _Cut) -> bool:
        """Whether an axis of the layout cuts something else that the op has beside the label."""
        axes = set(axes_in(layout))
        if not cut.used & axes:
            return False
        if axes & {a for joined in cut.kept for a in joined.split("+")}:
            return True
        return any(
            axes.intersection(axes_in(sub)) and not cut.found.apart(label, other)
            for other, sub in cut.layouts.items()
        )

    def _has_moving_bias(self, op: Op) -> bool:
        return bool(op.input(2)) and op.input(2) not in self.whole.constants

    def _kept_sums(self, op: Op, found: Signature) -> tuple[str, ...]:
        """Axes over which the inputs are sums still to be made, and the output may be too."""
        sums = {
            i: self.home[v].partial
            for i, v in enumerate(op.inputs)
            if v in self.home and self.home[v].partial
        }
        if not sums or not found.linear or len(set(sums.values())) > 1:
            return ()
        axes = next(iter(sums.values()))
        names = {a for joined in axes for a in joined.split("+")}
        for i, v in enumerate(op.inputs):
            if i in sums or not v or found.inputs[i] is None:
                continue
            if found.linear == "sum" and v not in self.whole.constants:
                return ()
            if names & {a for layout in self._cut_of(op, i) for a in axes_in(layout)}:
                return ()
        if found.linear == "first" and set(sums) != {0}:
            return ()
        if found.linear == "product" and len(sums) > 1:
            return ()
        sizes = [math.prod(self._sizes(v)) for v in (op.inputs[min(sums)], op.outputs[0])]
        return axes if sizes[1] <= sizes[0] else ()

    def _wanted(self, op: Op, index: int, operand: Operand | None, cut: _Cut) -> Sharding | None:
        if operand is None:
            return None
        found, value = cut.found, op.inputs[index]
        dims = tuple(compose(spec, found.sizes, cut.layouts) for spec in operand)
        if value in self.whole.constants:
            inexact = {
                k
                for k, how in found.reduced.items()
                if how == "sum" and not is_exact(cut.layouts.get(k), found.sizes[k], self.mesh)
            }
            once = tuple(n for n, spec in enumerate(operand) if spec and spec[0] in inexact) \
                if inexact else ()
            partial = cut.kept if found.linear == "sum" else ()
            if found.adapt == "bias" and index == 2:
                partial = self._sums(cut)
            return Sharding(dims, partial, once)
        partial = cut.kept if value in self.home and self.home[value].partial == cut.kept else ()
        return Sharding(dims, partial)

    def _sums(self, cut: _Cut) -> tuple[str, ...]:
        """The axes over which the outputs are sums still to be made."""
        axes = {a for joined in cut.kept for a in joined.split("+")}
        for label, how in cut.found.reduced.items():
            if how == "sum":
                axes.update(axes_in(cut.layouts.get(label)))
        return (self.local.joined(sorted(axes)),) if axes else ()

    def _home(self, spec: Operand | None, cut: _Cut) -> Sharding | None:
        if spec is None:
            return None
        dims = tuple(compose(s, cut.found.sizes, cut.layouts) for s in spec)
        return Sharding(dims, self._sums(cut))

    def _finish(self, value: str, home: Sharding, cut: _Cut) -> None:
        """Declares an output, reduced where its op compares or averages over a cut dim, and cut
        where the plan wishes so."""
        name = value
        for label, how in cut.found.reduced.items():
            axes = axes_in(cut.layouts.get(label))
            if how != "sum" and axes:
                name = self.local.reduce(name, self.local.joined(axes), how)
        wished = self._wished(value, home)
        if wished != home:
            name = reshard(self.local, name, self._sizes(value), home, wished)
        self._made(value, wished, name)

    def _wished(self, value: str, home: Sharding) -> Sharding:
        wish = self.plan.wishes.get(value)
        if wish is None or home.partial:
            return home
        dims, used = list(home.dims), set(home.axes)
        for n, layout in enumerate(wish):
            axes = set(axes_in(layout))
            if dims[n] is None and axes and not axes & used:
                dims[n] = layout
                used |= axes
        return Sharding(tuple(dims))

    # ------------------------------------------------------------ attention

    def _choose_heads(self, op: Op, cut: _Cut) -> None:
        heads = self.plan.heads.get(op.name)
        cut.fixed.update("hg")
        if heads is None or cut.used.intersection(heads.queries.axes.split("+")):
            return
        cut.layouts["h"], cut.layouts["g"] = heads.queries, heads.keys
        cut.used.update(heads.queries.axes.split("+"))

    def _attention(self, op: Op, cut: _Cut, inputs: list[str]) -> Op:
        """The op, for the first ranks where a window counts rows: see `row_steps`."""
        attention = FlashAttention.of(op)
        rows = cut.layouts.get("s")
        if isinstance(rows, Split) and (attention.window_left, attention.window_right) != (-1, -1):
            self.row_steps[op.name] = (rows.axes, rows.count(cut.found.sizes["s"], self.mesh))
        return local_attention(self.local, op, inputs)


@dataclass
class _Cut:
    """How the labels of an op are cut; over the axes ``kept`` its inputs are sums to be made."""

    found: Signature
    layouts: dict[str, Layout]
    kept: tuple[str, ...]
    used: set[str]
    fixed: set[str] = field(default_factory=set)
