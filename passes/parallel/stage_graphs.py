"""The graph of each stage of a pipeline, from the graph that all stages together run.

A value that a stage makes and another reads is sent by the one right after it is made, and
received by the other right before it is first read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gecompiler.ir.collective_ops import RECV, SEND
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op, OpInfo
from gecompiler.ir.parallel import Template
from gecompiler.ir.types import TensorType
from gecompiler.passes.parallel.stages import light_ops

AXIS = "pp"


def stage_templates(whole: Template, stage_of: Mapping[str, int], stages: int) -> list[Template]:
    """The template of every stage; ``stage_of`` names the stage of each op of the graph."""
    cutter = _Cutter(whole.graph, stage_of, light_ops(whole.graph), stages)
    return [cutter.template(whole, stage) for stage in range(stages)]


@dataclass
class _Cutter:
    """What crosses between stages, and the graphs without it."""

    graph: Graph
    stage_of: Mapping[str, int]
    light: set[str]
    stages: int
    needs: list[set[str]] = field(default_factory=list)
    """Ops that each stage runs."""
    takers: dict[str, list[int]] = field(default_factory=dict)
    """Values that cross, and the stages that take them."""
    tags: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order = self.graph.topological()
        outputs = set(self.graph.outputs)
        self.needs = [set() for _ in range(self.stages)]
        for op in reversed(order):
            ends = outputs.intersection(op.outputs) or not any(op.outputs)
            if op.name not in self.light or ends:
                self.needs[self.stage_of[op.name]].add(op.name)
            for needed in self.needs:
                if op.name in needed:
                    self._need_light(op, needed)
        for op in order:
            self._find_takers(op)

    def _need_light(self, op: Op, needed: set[str]) -> None:
        for value in self.graph.reads(op):
            maker = self.graph.producer(value)
            if maker is not None and maker.name in self.light:
                needed.add(maker.name)

    def _find_takers(self, op: Op) -> None:
        if op.name in self.light:
            return
        home = self.stage_of[op.name]
        for value in op.outputs:
            users = {u.name for u in self.graph.users(value)} if value else set()
            takers = [s for s in range(self.stages) if s != home and users & self.needs[s]]
            if takers:
                self.tags[value] = len(self.tags)
                self.takers[value] = takers

    def template(self, whole: Template, stage: int) -> Template:
        """What one stage runs."""
        graph = Graph(self.graph.name, self.graph.opsets)
        graph.metadata = dict(self.graph.metadata)
        graph.reserve(self.graph)
        ops = [op for op in self.graph.topological() if op.name in self.needs[stage]]
        read = {v for op in ops for v in self.graph.reads(op)}
        ends = [v for v in self.graph.outputs if self._ends(v, stage)]
        for name in self.graph.inputs:
            if name in read or name in ends:
                graph.add_input(name, self.graph.type(name))
        for name, constant in self.graph.constants.items():
            if name in read or name in ends:
                graph.add_constant(name, constant)
        for op in ops:
            for value in self.graph.reads(op):
                if not graph.has_value(value):
                    self._receive(graph, value, stage, op)
            graph.add_op(op, [self.graph.type(v) if v else None for v in op.outputs])
            for send in self._sends(op, stage):
                graph.add_op(send)
        graph.set_outputs(ends)
        graph.set_states(
            s for s in self.graph.states if s.input in graph.inputs and s.output in ends
        )
        return Template(
            graph,
            {n: c for n, c in whole.constants.items() if n in graph.constants},
            {n: w for n, w in whole.inputs.items() if n in graph.inputs},
            {n: w for n, w in whole.outputs.items() if n in ends},
        )

    def _ends(self, value: str, stage: int) -> bool:
        """Whether an output of the model is one of the stage."""
        maker = self.graph.producer(value)
        return (self.stage_of[maker.name] if maker is not None else self.stages - 1) == stage

    def _sends(self, op: Op, stage: int) -> Iterator[Op]:
        if op.name in self.light or self.stage_of[op.name] != stage:
            return
        for value in op.outputs:
            for taker in self.takers.get(value, ()):
                yield Op(
                    f"{value}/send_{taker}",
                    SEND,
                    (value,),
                    (),
                    self._attrs(value, taker - stage),
                    GE_DOMAIN,
                    OpInfo(scope=op.info.scope, phase=op.info.phase),
                )

    def _attrs(self, value: str, peer: int) -> dict[str, int | str]:
        return {
            "communicator": AXIS,
            "group_size": self.stages,
            "peer": peer,
            "tag": self.tags[value],
        }

    def _receive(self, graph: Graph, value: str, stage: int, reader: Op) -> None:
        maker = self.graph.producer(value)
        type_ = self.graph.type(value)
        assert maker is not None
        if not isinstance(type_, TensorType) or not type_.is_static:
            raise ModelError(
                f"{value!r} would have to be sent between stages, and is no tensor of known size",
                where=f"op {reader.name!r} ({reader.kind})",
                hint="compile with fewer stages",
            )
        attrs = self._attrs(value, self.stage_of[maker.name] - stage)
        info = OpInfo(scope=maker.info.scope, phase=maker.info.phase)
        shaped = {**attrs, "dtype": type_.dtype.code, "shape": type_.sizes}
        op = Op(f"{value}/recv", RECV, (), (value,), shaped, GE_DOMAIN, info)
        graph.add_op(op, [type_])
