"""The ways through the compiler that are tried: every pass alone, and the whole of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

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
    graph = load_onnx(trial.model)
    infer_types(graph)
    return run_reference(graph, fed(graph, trial.inputs))


def fed(graph: Graph, inputs: Arrays) -> dict[str, np.ndarray]:
    """The inputs that the graph has: an initializer that may be overridden is a constant."""
    return {name: inputs[name] for name in graph.inputs}


def alone(name: str) -> Subject:
    """One registered pass."""

    def subject(trial: Trial) -> Arrays:
        graph = load_onnx(trial.model)
        infer_types(graph)
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
    """Compiled, scheduled by a strategy that the seed chooses, executed in simulated order."""
    model = _compile(trial)
    return model.run(fed(model.symbolic_graph, trial.inputs))


def written(trial: Trial) -> Arrays:
    """Compiled, and the optimised model run elsewhere."""
    return exported(trial, _compile(trial).symbolic_graph)


def _compile(trial: Trial) -> ge.CompiledModel:
    names = [n for n in STRATEGIES if n not in _LESS_OFTEN or trial.seed % 8 == 0]
    shapes = {n: a.shape for n, a in trial.inputs.items() if a.size}
    return ge.Session().compile(
        trial.model,
        input_shapes=shapes,
        stream_strategy=names[trial.seed % len(names)],
        num_streams=1 + trial.seed // 7 % 4,
        solver_seconds=1,
    )


SUBJECTS: Mapping[str, Subject] = {
    "import": imported,
    "straight": straight,
    **{name: alone(name) for name in PASSES.names()},
    "compile": compiled,
    "export": written,
}
"""Every way, by name."""
