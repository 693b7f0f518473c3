"""Bringing a failure down to the few nodes it takes.

Nodes are removed one after the other, the last first: what they made becomes an input of the
model that holds the numbers they gave, or what reads them reads one of their inputs instead.
A smaller model counts where the same way through the compiler fails in the same manner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, inliner

from random_graphs.check import Failure, check_inputs
from random_graphs.oracle import code_of, names_read, run_by_node, run_onnxruntime
from random_graphs.steadiness import bodies

MAX_TRIES = 600


@dataclass(frozen=True)
class Failing:
    """A model and inputs with which something fails."""

    model: onnx.ModelProto
    inputs: Mapping[str, np.ndarray]


Holds = Callable[[Failing], bool]


def shrink(failing: Failing, seed: int, failure: Failure) -> Failing:
    """The smallest model found that fails in the way that ``failure`` does."""

    def holds(candidate: Failing) -> bool:
        try:
            onnx.checker.check_model(candidate.model)
        except Exception:
            return False
        outcome = check_inputs(candidate.model, candidate.inputs, seed, [failure.subject])
        return any(f.kind == failure.kind for f in outcome.failures)

    return smallest(failing, holds)


def smallest(failing: Failing, holds: Holds) -> Failing:
    """The smallest model found of which ``holds`` is true."""
    left = MAX_TRIES
    while True:
        for candidate in _smaller(failing):
            left -= 1
            if left <= 0:
                return failing
            if _size(candidate) < _size(failing) and holds(candidate):
                failing = candidate
                break
        else:
            return failing


def _size(failing: Failing) -> tuple[int, ...]:
    graph = failing.model.graph
    symbols = sum(bool(d.dim_param) for i in graph.input for d in i.type.tensor_type.shape.dim)
    inner = sum(len(b.node) for n in graph.node for b in bodies(n))
    return (len(graph.output), len(graph.node) + inner, len(failing.model.functions), symbols,
            sum(len(n.input) for n in graph.node), len(graph.input))  # fmt: skip


def _smaller(failing: Failing) -> Iterator[Failing]:
    yield from _one_output(failing)
    if failing.model.functions:
        yield Failing(inliner.inline_local_functions(failing.model), failing.inputs)
    yield from _cut(failing)
    yield from _bypassed(failing)
    yield from _without_body_nodes(failing)
    yield _static(failing)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    return made


def _one_output(failing: Failing) -> Iterator[Failing]:
    outputs = failing.model.graph.output
    if len(outputs) < 2:
        return
    for output in outputs:
        made = _copy(failing.model)
        del made.graph.output[:]
        made.graph.output.add().CopyFrom(output)
        yield pruned(Failing(made, failing.inputs))


def _cut(failing: Failing) -> Iterator[Failing]:
    """Without one node whose results become inputs."""
    numbers = _intermediate(failing)
    outputs = {o.name for o in failing.model.graph.output}
    for at in reversed(range(len(failing.model.graph.node))):
        node = failing.model.graph.node[at]
        names = [n for n in node.output if n]
        if outputs.intersection(names) or not all(n in numbers for n in names):
            continue
        made = _copy(failing.model)
        del made.graph.node[at]
        for name in names:
            array = numbers[name]
            info = helper.make_tensor_value_info(name, code_of(array), array.shape)
            made.graph.input.append(info)
        yield pruned(Failing(made, {**failing.inputs, **{n: numbers[n] for n in names}}))


def _intermediate(failing: Failing) -> dict[str, np.ndarray]:
    """Every value that a node of the main graph makes."""
    made = _copy(failing.model)
    del made.graph.output[:]
    names = [n for node in made.graph.node for n in node.output if n]
    try:
        types = onnx.shape_inference.infer_shapes(made).graph.value_info
        known = {i.name: i for i in types}
        made.graph.output.extend(known[n] for n in names if n in known)
        return dict(run_onnxruntime(made, failing.inputs))
    except Exception:
        try:
            return dict(run_by_node(made, failing.inputs))
        except Exception:
            return {}


def _bypassed(failing: Failing) -> Iterator[Failing]:
    """Without one node whose readers read its input instead."""
    for at in reversed(range(len(failing.model.graph.node))):
        node = failing.model.graph.node[at]
        for source in dict.fromkeys(n for n in node.input if n):
            made = _copy(failing.model)
            del made.graph.node[at]
            _renamed(made.graph, node.output[0], source)
            made_by_node = {n for m in made.graph.node for n in m.output}
            if source not in made_by_node and any(o.name == source for o in made.graph.output):
                continue
            yield pruned(Failing(made, failing.inputs))


def _renamed(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for k, name in enumerate(node.input):
            if name == old:
                node.input[k] = new
        for body in bodies(node):
            _renamed(body, old, new)
    for output in graph.output:
        if output.name == old:
            output.name = new
            output.type.tensor_type.ClearField("shape")


def _without_body_nodes(failing: Failing) -> Iterator[Failing]:
    """Without one node of a body, bypassed."""
    for at, node in enumerate(failing.model.graph.node):
        for which, body in enumerate(bodies(node)):
            for inner in reversed(range(len(body.node))):
                sources: Sequence[str] = [n for n in body.node[inner].input if n]
                for source in (*dict.fromkeys(sources), None):
                    made = _copy(failing.model)
                    small = list(bodies(made.graph.node[at]))[which]
                    old = small.node[inner].output[0]
                    del small.node[inner]
                    if source is not None:
                        _renamed(small, old, source)
                    yield pruned(Failing(made, failing.inputs))


def _static(failing: Failing) -> Failing:
    made = _copy(failing.model)
    for info in made.graph.input:
        if info.name in failing.inputs:
            sizes = failing.inputs[info.name].shape
            for dim, size in zip(info.type.tensor_type.shape.dim, sizes, strict=True):
                dim.dim_value = size
    return Failing(made, failing.inputs)


def pruned(failing: Failing) -> Failing:
    """Without what no output depends on."""
    graph = failing.model.graph
    needed = {o.name for o in graph.output}
    for at in reversed(range(len(graph.node))):
        node = graph.node[at]
        if needed.isdisjoint(node.output):
            del graph.node[at]
            continue
        needed.update(names_read(node))
    for tensors in (graph.initializer, graph.input, graph.value_info):
        for at in reversed(range(len(tensors))):
            if tensors[at].name not in needed:
                del tensors[at]
    names = {i.name for i in graph.input}
    return Failing(failing.model, {n: a for n, a in failing.inputs.items() if n in names})
