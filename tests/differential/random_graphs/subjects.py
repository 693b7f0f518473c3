"""The ways through the compiler that are tried: every pass alone, and the whole of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx

import gecompiler as ge
from gecompiler.backends.execution.executor import run_reference
from gecompiler.ir import Graph, infer_types, load_onnx, to_onnx
from gecompiler.ir.op import GE_DOMAIN
from gecompiler.passes import PassContext, Pipeline
from gecompiler.passes.registry import PASSES
from gecompiler.passes.streams.registry import STRATEGIES
from random_graphs.oracle import NO_KERNEL, Arrays, run_by_node, run_onnxruntime

BEFORE = {
    "attention-layout": "canonicalize,fuse-attention",
    "expand-fused": "fuse-attention,fuse-block",
    "restore-derived": "canonicalize",
}
"""What runs before a pass that alone has nothing to do."""

TARGETS = (11, 13, 17, 18, 20, 21, 23)
_LESS_OFTEN = ("optimal", "auto")


class NotApplicableError(Exception):
    """The way does not lead anywhere for this model, and rightly so."""


@dataclass(frozen=True)
class Trial:
    """A model, its inputs, and whose runtime said what comes out."""

    model: onnx.ModelProto
    inputs: Arrays
    runtime: str
    seed: int

    @cached_property
    def graph(self) -> Graph:
        """The model imported, with its types; to be copied before it is changed."""
        graph = load_onnx(self.model)
        infer_types(graph)
        return graph

    @cached_property
    def compiled(self) -> ge.CompiledModel:
        """The model compiled by a strategy, for a number of streams, that the seed chooses."""
        names = [n for n in STRATEGIES if n not in _LESS_OFTEN or self.seed % 8 == 0]
        return ge.Session().compile(
            self.model,
            input_shapes={n: a.shape for n, a in self.inputs.items() if a.size},
            stream_strategy=names[self.seed % len(names)],
            num_streams=1 + self.seed // 7 % 4,
            solver_seconds=1,
        )

    def run(self, model: onnx.ModelProto) -> Arrays:
        """Another model's outputs, by the runtime that the source's came from."""
        if self.runtime == "by node":
            return run_by_node(model, self.inputs)
        try:
            return run_onnxruntime(model, self.inputs)
        except NO_KERNEL:
            return run_by_node(model, self.inputs)


Subject = Callable[[Trial], Mapping[str, np.ndarray]]


def imported(trial: Trial) -> Arrays:
    """Read and written again."""
    return trial.run(to_onnx(load_onnx(trial.model)))


def straight(trial: Trial) -> Arrays:
    """Op after op by the executor, nothing optimised."""
    return run_reference(trial.graph, fed(trial.graph, trial.inputs))


def fed(graph: Graph, inputs: Arrays) -> dict[str, np.ndarray]:
    """The inputs that the graph has: an initializer that may be overridden is a constant."""
    return {name: inputs[name] for name in graph.inputs}


def alone(name: str) -> Subject:
    """One registered pass."""

    def subject(trial: Trial) -> Arrays:
        graph = trial.graph.copy()
        if name in BEFORE:
            Pipeline.parse(BEFORE[name]).run(graph, PassContext())
        options = ""
        if name == "convert-opset":
            options = f"{{target={TARGETS[trial.seed % len(TARGETS)]}}}"
        stats = Pipeline.parse(name + options).run(graph, PassContext())
        if not sum(s.changes for s in stats):
            raise NotApplicableError
        return _numbers(trial, graph)

    return subject


def _numbers(trial: Trial, graph: Graph) -> Arrays:
    """By our kernels where there are fused ops, and as exported."""
    if any(op.domain == GE_DOMAIN for op in graph.ops):
        own = run_reference(graph, fed(graph, trial.inputs))
        return {**{f"{n}@kernels": a for n, a in own.items()}, **exported(trial, graph)}
    return exported(trial, graph)


def exported(trial: Trial, graph: Graph) -> Arrays:
    """The graph as plain ONNX, run by the source's runtime."""
    plain = graph.copy()
    Pipeline.parse("expand-fused,restore-derived").run(plain, PassContext())
    return trial.run(to_onnx(plain))


def compiled(trial: Trial) -> Arrays:
    """Compiled, scheduled, executed in simulated order."""
    model = trial.compiled
    return model.run(fed(model.symbolic_graph, trial.inputs))


def written(trial: Trial) -> Arrays:
    """Compiled, and the optimised model run elsewhere."""
    return exported(trial, trial.compiled.symbolic_graph)


SUBJECTS: Mapping[str, Subject] = {
    "import": imported,
    "straight": straight,
    **{name: alone(name) for name in PASSES.names()},
    "compile": compiled,
    "export": written,
}
"""Every way, by name."""
