"""A random model from a seed: the same seed gives the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper

from random_graphs import control
from random_graphs.arithmetic import ARITHMETIC
from random_graphs.arrays import FLOAT8, INT4, INTS, LEAST_OPSET, make
from random_graphs.builder import Names, Scope, Value, type_of
from random_graphs.motifs import MOTIFS
from random_graphs.moves import MOVES

OPSETS = (7, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24)
_SIZES = (1, 1, 2, 2, 3, 4, 4, 6)

Step = Callable[[Scope], None]


@dataclass(frozen=True)
class Case:
    """A model and arrays for its inputs; ``seed`` made it."""

    seed: int
    model: onnx.ModelProto
    inputs: Mapping[str, np.ndarray]


def generate(seed: int) -> Case:
    """The model and inputs of a seed."""
    maker = _Maker(random.Random(seed))
    return Case(seed, maker.model(f"seed{seed}"), maker.inputs)


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.opset = rng.choice(OPSETS) if rng.random() < 0.6 else rng.choice((17, 18, 20, 23))
        self.scope = Scope(rng, self.opset, Names())
        self.inputs: dict[str, np.ndarray] = {}
        self.functions: list[onnx.FunctionProto] = []
        self.odd = rng.random() < 0.25
        self.narrow = rng.random() < 0.15
        self.steps = self._weights()

    def _weights(self) -> dict[Step, float]:
        """A mood: some kinds of ops are frequent in one graph, others in the next."""
        moods = [{**MOVES}, {**ARITHMETIC}, {**MOTIFS}]
        found: dict[Step, float] = {}
        for table in moods:
            factor = self.rng.choice([0.3, 1.0, 3.0])
            found.update({step: weight * factor for step, weight in table.items()})
        found[self._branch] = found[self._loop] = found[self._scan] = self.rng.choice([0.5, 3])
        found[self._call] = found[control.layers] = 1
        return found

    def _branch(self, scope: Scope) -> None:
        control.branch(scope, self.grow)

    def _loop(self, scope: Scope) -> None:
        control.loop(scope, self.grow)

    def _scan(self, scope: Scope) -> None:
        control.scan(scope, self.grow)

    def _call(self, scope: Scope) -> None:
        control.call(scope, self.functions)

    def grow(self, scope: Scope, steps: int) -> None:
        kinds, weights = list(self.steps), list(self.steps.values())
        for step in self.rng.choices(kinds, weights, k=steps):
            step(scope)

    # ------------------------------------------------------------- the model

    def model(self, name: str) -> onnx.ModelProto:
        infos = [self._input(k) for k in range(self.rng.randint(1, 4))]
        for _ in range(self.rng.choice([0, 0, 1, 3])):  # what is computed of them can be folded
            dtype, shape = self._kind()
            odd = self.rng.random() < 0.4
            self.scope.values.append(self.scope.random_constant(dtype, shape, odd=odd))
        self.grow(self.scope, self.rng.choice([1, 3, 6, 10, 16, 25]))
        if not self.scope.nodes:
            self.scope.add("Identity", self.scope.values[0])
        graph = helper.make_graph(
            self.scope.nodes, name, infos, self._outputs(), self.scope.initializers
        )
        self._initializers_as_inputs(graph)
        opsets = [helper.make_opsetid("", self.opset)]
        if self.functions:
            opsets.append(helper.make_opsetid("own", 1))
        return helper.make_model(
            graph,
            opset_imports=opsets,
            functions=self.functions,
            ir_version=max(helper.find_min_ir_version_for(opsets[:1]), 8 if self.functions else 4),
        )

    def _input(self, position: int) -> onnx.ValueInfoProto:
        dtype, shape = self._kind()
        value = self.scope.declare(f"in{position}", dtype, shape)
        odd = self.odd and self.rng.random() < 0.7
        if not odd:
            self.scope.tame.add(value.name)
        self.inputs[value.name] = make(self.rng, dtype, shape, odd=odd)
        named = [self._dim(position, k, d) for k, d in enumerate(shape)]
        return helper.make_tensor_value_info(value.name, dtype, named)

    def _dim(self, position: int, axis: int, size: int) -> int | str:
        if self.rng.random() < 0.75 or size == 0:  # a symbol stands for at least 1
            return size
        self.scope.symbols = True
        return f"d{size}" if self.rng.random() < 0.6 else f"s{position}_{axis}"

    def _kind(self) -> tuple[int, tuple[int, ...]]:
        choice = self.rng.random()
        rank = self.rng.choice([0, 1, 2, 2, 3, 3, 3, 4])
        shape = tuple(self.rng.choice(_SIZES) for _ in range(rank))
        if self.rng.random() < 0.06 and rank:
            at = self.rng.randrange(rank)
            shape = (*shape[:at], 0, *shape[at + 1 :])
        if choice < 0.6:
            return T.FLOAT, shape
        pool = [T.DOUBLE, T.FLOAT16, *INTS, T.INT64, T.INT64, T.BOOL, T.BOOL, T.STRING]
        if self.narrow:
            pool = [t for t in (T.BFLOAT16, *FLOAT8, *INT4) if LEAST_OPSET[t] <= self.opset] or pool
        return self.rng.choice(pool), shape

    def _outputs(self) -> list[onnx.ValueInfoProto]:
        """Some values; those that nothing reads mostly are among them."""
        read = {name for node in self.scope.nodes for name in node.input}
        made = {name for node in self.scope.nodes for name in node.output}
        ends = [v for v in self.scope.values if v.name in made]
        chosen = [v for v in ends if self.rng.random() < (0.1 if v.name in read else 0.85)] or ends[
            -1:
        ]
        if not chosen:
            chosen = self.scope.values[:1]
        return [self._output(v) for v in chosen[-8:]]

    def _output(self, value: Value) -> onnx.ValueInfoProto:
        if self.scope.symbols or self.rng.random() < 0.5:
            unknown = [f"{value.name}_{k}" for k in range(value.rank)]
            return helper.make_tensor_value_info(value.name, value.dtype, unknown)
        return helper.make_value_info(value.name, type_of(value))

    def _initializers_as_inputs(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            if self.rng.random() < 0.04:
                info = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
                graph.input.append(info)
