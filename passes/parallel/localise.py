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

from dataclasses import replace

from gecompiler.ir.errors import GraphError, ModelError
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.graph import Graph, reading
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Mesh, Note, Sharding, Split, Template, Whole
from gecompiler.ir.parallel.layout import axes_in
from gecompiler.ir.types import TensorType, ValueType
from gecompiler.passes.parallel.attention_cut import local_attention
from gecompiler.passes.parallel.dim_rules import signature
from gecompiler.passes.parallel.dim_site import NoSignatureError
from gecompiler.passes.parallel.head_exchange import HeadExchange
from gecompiler.passes.parallel.key_parts import KeyParts
from gecompiler.passes.parallel.label_choice import Cut, LabelChoice
from gecompiler.passes.parallel.local_graph import LocalGraph
from gecompiler.passes.parallel.local_ops import adapted
from gecompiler.passes.parallel.local_values import LocalValues
from gecompiler.passes.parallel.plan import ParallelOptions, Plan
from gecompiler.passes.parallel.reshard import reshard
from gecompiler.passes.parallel.ring_attention import RingAttention
from gecompiler.passes.parallel.signature import Signature


class Localiser:
    """Makes a template of a graph; see the module's docstring.

    After `run`: ``made_for`` names the op of the whole model that each local op was made for,
    ``row_offsets`` the attentions whose window counts rows that are cut: over which axes, and the
    row offset at each place. ``notes`` tells what was not cut.
    """

    def __init__(self, whole: Graph, mesh: Mesh, plan: Plan, options: ParallelOptions) -> None:
        self._whole, self._mesh, self._options = whole, mesh, options
        graph = Graph(whole.name, whole.opsets)
        graph.metadata = dict(whole.metadata)
        graph.reserve(whole)
        self._local = LocalGraph(graph, mesh)
        self._values = LocalValues(whole, self._local, plan)
        self._choice = LabelChoice(self._values)
        self.made_for: dict[str, str] = {}
        self.row_offsets: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.notes: list[Note] = []

    def run(self) -> Template:
        """The template; its graph has the whole graph's inputs and outputs."""
        graph = self._local.graph
        inputs = {name: self._input(name) for name in self._whole.inputs}
        for op in self._whole.topological():
            self._op(op)
            self._sign(op.name)
        outputs = {name: self._output(name) for name in self._whole.outputs}
        graph.set_outputs(list(outputs))
        self._sign(None)
        graph.set_states(self._whole.states)
        return Template(
            graph,
            self._local.constants,
            inputs,
            {n: w for n, w in outputs.items() if w is not None},
        )

    def _sign(self, name: str | None) -> None:
        """Notes for which op of the whole model the newest local ops were made."""
        graph = self._local.graph
        for op in graph.newest(len(graph) - len(self.made_for)):
            maker = name
            if maker is None:  # at an output: for what made the value
                before = self._local.graph.predecessors(op)
                maker = self.made_for[before[0].name] if before else next(iter(self.made_for), "")
            self.made_for[op.name] = maker

    # ------------------------------------------------------------ inputs and outputs

    def _input(self, name: str) -> Whole:
        type_ = self._whole.tensor(name)
        if type_ is None or not type_.is_static:
            raise ModelError(
                f"is {self._whole.type(name)}: ranks share out tensors whose sizes are bound",
                where=f"input {name!r}",
                hint="bind its sizes (--input-shape), or run the model on one card",
            )
        sharding = self._values.wished(name, self._values.whole_of(name))
        local = TensorType(type_.dtype, sharding.local_shape(type_.sizes, self._mesh))
        self._local.graph.add_input(name, local)
        self._values.made(name, sharding, name)
        return Whole(type_, sharding)

    def _output(self, name: str) -> Whole | None:
        type_ = self._whole.tensor(name)
        if type_ is None or not type_.is_static:
            return None
        if self._values.is_constant(name):
            self._values.name(name, None)
            return Whole(type_, self._values.whole_of(name))
        want = self._output_sharding(name)
        value = self._values.name(name, want)
        if value != name:
            self._call(value, name)
        return Whole(type_, want)

    def _output_sharding(self, name: str) -> Sharding:
        """As the state that it is the next of; else its home, put together where asked for.

        What a cache has grown by lies as it is made: `key_cut` says where.
        """
        home = self._values.home[name]
        for state in self._whole.states:
            if state.output == name and state.input in self._values.home:
                dims = list(self._values.home[state.input].dims)
                if state.axis is not None and dims[state.axis] is not None:
                    dims[state.axis] = home.dims[state.axis]
                return Sharding(tuple(dims))
        if name in self._whole.inputs or name in self._values.plan.apart:
            return Sharding(home.dims)
        apart, lies = set(self._options.gather_outputs), self._values.scattered(name)
        return Sharding(tuple(None if apart & set(axes_in(d)) else d for d in lies))

    def _call(self, value: str, name: str) -> None:
        """Lets ``value`` be the output of that name."""
        graph = self._local.graph
        if not graph.has_value(name):
            copy = Op(graph.fresh(f"{name}_copy"), "Identity", (value,), (name,))
            graph.add_op(copy, [graph.type(value)])
            return
        outputs = graph.outputs
        graph.set_outputs([*outputs, name])
        graph.rename_output(name, value)
        graph.set_outputs(outputs)

    # ------------------------------------------------------------ ops

    def _op(self, op: Op) -> None:
        self._local.phase = op.info.phase
        try:
            found = signature(self._whole, op)
        except (NoSignatureError, GraphError) as error:
            self._replicated(op, str(error))
            return
        self._cut(op, found)

    def _replicated(self, op: Op, why: str) -> None:
        """With all inputs whole, as in the whole model."""
        homes = self._values.home
        if any(v in homes and not homes[v].is_whole for v in self._whole.reads(op)):
            self.notes.append(Note("whole", op.name, f"{op.kind} runs whole on every rank: {why}"))
        local = op
        for value in self._whole.captures(op):
            local = reading(local, value, self._values.name(value, None))
        inputs = tuple(self._values.name(v, None) if v else "" for v in op.inputs)
        types: list[ValueType] = [self._whole.type(v) if v else None for v in op.outputs]
        self._local.graph.add_op(local.with_(inputs=inputs), types)
        for value, type_ in zip(op.outputs, types, strict=True):
            if isinstance(type_, TensorType) and type_.is_static:
                home = self._summed(value, self._values.whole_of(value))
                self._values.made(value, home, value)

    def _summed(self, value: str, home: Sharding) -> Sharding:
        """The home of a value, which may be the rank's part of a sum as it is."""
        axes = self._values.plan.sums.get(value)
        if axes is None:
            return home
        every = {a for joined in (*home.partial, axes) for a in joined.split("+")}
        return replace(home, partial=(self._local.joined(sorted(every)),))

    def _cut(self, op: Op, found: Signature) -> None:
        cut = self._choice.choose(op, found)
        if found.adapt == "heads" and self._exchanged(op, cut):
            return
        inputs = [
            self._values.name(value, self._choice.wanted(op, i, cut)) if value else ""
            for i, value in enumerate(op.inputs)
        ]
        homes = [self._choice.home(o, cut) if o is not None else None for o in found.outputs]
        shapes = [
            home.local_shape(self._values.sizes(v), self._mesh) if v and home else ()
            for v, home in zip(op.outputs, homes, strict=True)
        ]
        if found.adapt == "heads":
            local = self._attention(op, cut, inputs)
        else:
            local = adapted(self._local, op, found, cut.layouts, inputs, shapes)
        types: list[ValueType] = []
        for value, shape in zip(op.outputs, shapes, strict=True):
            whole = self._whole.tensor(value) if value else None
            types.append(TensorType(whole.dtype, tuple(shape)) if whole is not None else None)
        self._local.graph.add_op(local, types)
        for value, home in zip(op.outputs, homes, strict=True):
            if value and home is not None:
                self._finish(value, self._summed(value, home), cut)

    def _exchanged(self, op: Op, cut: Cut) -> bool:
        """Whether an attention on tokens that are cut was made by the way that is asked for."""
        way: HeadExchange | RingAttention
        if cut.layouts.get("t") is not None:
            name, sharding = KeyParts(self._values, self._choice, op, cut).run()
            self._values.made(op.outputs[0], sharding, name)
            return True
        if self._options.sequence == "gather":
            return False
        kind = HeadExchange if self._options.sequence == "all-to-all" else RingAttention
        way = kind(self._values, self._choice, op, cut)
        if not way.applies:
            if way.why:
                self.notes.append(Note("sp", op.name, way.why))
            return False
        name, sharding = way.run()
        self._values.made(op.outputs[0], sharding, name)
        if isinstance(way, RingAttention) and isinstance(rows := cut.layouts["s"], Split):
            self.row_offsets.update((n, (rows.axes, o)) for n, o in way.offsets.items())
        return True

    def _finish(self, value: str, home: Sharding, cut: Cut) -> None:
        """Declares an output: reduced where its op compares or averages over a cut dim."""
        name = value
        for label, how in cut.found.reduced.items():
            axes = axes_in(cut.layouts.get(label))
            if how != "sum" and axes:
                name = self._local.reduce(name, self._local.joined(axes), how)
        wished = self._values.wished(value, home)
        if wished != home:
            name = reshard(self._local, name, self._values.sizes(value), home, wished)
        self._values.made(value, wished, name)

    def _attention(self, op: Op, cut: Cut, inputs: list[str]) -> Op:
        """The op, for the first ranks where a window counts rows: see ``row_offsets``."""
        attention = FlashAttention.of(op)
        rows = cut.layouts.get("s")
        if isinstance(rows, Split) and (attention.window_left, attention.window_right) != (-1, -1):
            count = rows.count(cut.found.sizes["s"], self._mesh)
            places = range(self._mesh.axis_size(rows.axes))
            first = attention.offset(cut.found.sizes.get("s", 1), cut.found.sizes.get("t", 1))
            self.row_offsets[op.name] = (rows.axes, tuple(first + n * count for n in places))
            op = op.with_(attrs=replace(attention, align="top_left", row_offset=first).attrs())
        return local_attention(self._local, op, inputs)
