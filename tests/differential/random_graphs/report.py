"""Counting what a campaign covered, and writing down what failed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from random_graphs.arrays import numpy_type
from random_graphs.check import Failure, Outcome, check, check_inputs, other_inputs
from random_graphs.generate import Case, generate
from random_graphs.shrink import Failing, shrink
from random_graphs.steadiness import bodies


@dataclass
class Tally:
    """What was run."""

    graphs: int = 0
    skipped: int = 0
    by_node: int = 0
    failing: int = 0
    compared: int = 0
    ops: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    opsets: Counter[int] = field(default_factory=Counter)

    def add(self, case: Case, outcome: Outcome) -> None:
        """Counts a case."""
        self.graphs += 1
        self.skipped += bool(outcome.skipped)
        self.by_node += outcome.runtime == "by node"
        self.failing += bool(outcome.failures)
        self.compared += outcome.compared
        self.opsets[case.model.opset_import[0].version] += 1
        self.ops.update(_ops(case.model.graph))
        infos = (*case.model.graph.input, *case.model.graph.output)
        self.types.update({numpy_type(i.type.tensor_type.elem_type).name for i in infos})

    def __str__(self) -> str:
        ops = ", ".join(f"{name} {count}" for name, count in sorted(self.ops.items()))
        types = ", ".join(f"{name} {count}" for name, count in sorted(self.types.items()))
        opsets = ", ".join(f"{version}: {count}" for version, count in sorted(self.opsets.items()))
        return (
            f"{self.graphs} graphs, {self.compared} comparisons, {self.failing} graphs failing; "
            f"{self.by_node} whose source was run node by node, {self.skipped} that no reference "
            f"runs\n{sum(self.ops.values())} nodes of {len(self.ops)} kinds: {ops}\n"
            f"graphs by element type of inputs and outputs: {types}\nby opset: {opsets}"
        )


def _ops(graph: onnx.GraphProto) -> Counter[str]:
    found: Counter[str] = Counter(node.op_type for node in graph.node)
    for node in graph.node:
        for body in bodies(node):
            found += _ops(body)
    return found


def check_seed(seed: int) -> tuple[Case, Outcome]:
    """Makes and checks the graph of a seed."""
    case = generate(seed)
    return case, check(case)


def write_failure(case: Case, outcome: Outcome, folder: Path) -> Path:
    """Shrinks the first failure and writes model, inputs and the reason; returns the model's path.

    The names of the files begin with the seed.
    """
    failure = outcome.failures[0]
    small = shrink(_failing(case, failure), case.seed, failure)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed{case.seed}-{failure.subject}.onnx"
    onnx.save(small.model, path)
    np.savez(path.with_suffix(".npz"), **{n: _plain(a) for n, a in small.inputs.items()})
    text = onnx.printer.to_text(small.model)
    reason = f"{failure.subject}: {failure.output} {failure.why}"
    path.with_suffix(".txt").write_text(f"{reason}\n\n{text}\n", encoding="utf-8")
    return path


def _plain(array: np.ndarray) -> np.ndarray:
    """As numpy can store it without pickling."""
    if array.dtype == object:
        return array.astype(str)
    return array if array.dtype.kind in "biuf" else array.astype(np.float32)


def _failing(case: Case, failure: Failure) -> Failing:
    """The case with those of its two sets of inputs that show the failure."""
    given = Failing(case.model, case.inputs)
    first = check_inputs(case.model, case.inputs, case.seed, [failure.subject])
    other = other_inputs(case)
    return given if first.failures or other is None else Failing(case.model, other)
