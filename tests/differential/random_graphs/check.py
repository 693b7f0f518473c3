"""One case through every way, each result compared with that of the source model."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import onnx

from gecompiler.ir.errors import GecError
from random_graphs.arrays import make
from random_graphs.compare import difference
from random_graphs.generate import Case
from random_graphs.oracle import Answer, Arrays, answer
from random_graphs.precision import nudged, widened
from random_graphs.steadiness import unsteady_values
from random_graphs.subjects import SUBJECTS, NotApplicableError, Trial

OTHER_SIZES = ("straight", "canonicalize", "compile", "export")
"""The ways that are tried with a second set of sizes, where the model has symbols."""


@dataclass(frozen=True)
class Failure:
    """A way whose result differs, or that failed."""

    subject: str
    output: str
    why: str

    @property
    def kind(self) -> str:
        """What a smaller model must show to be the same failure."""
        if self.output:
            return "differs"
        plain = re.sub(r"'[^']*'|\[[^]]*\]|seed\d+|\d+", "_", self.why)
        return plain.split("inputs:")[0][:160]


@dataclass
class Outcome:
    """What checking a case came to."""

    failures: list[Failure] = field(default_factory=list)
    skipped: str = ""
    """Why nothing was compared: no runtime computes the source."""
    runtime: str = ""
    compared: int = 0
    """How many ways were compared."""


def check(case: Case, subjects: Iterable[str] = tuple(SUBJECTS)) -> Outcome:
    """Runs the case through the named ways."""
    first = check_inputs(case.model, case.inputs, case.seed, subjects)
    other = other_inputs(case)
    again = [s for s in subjects if s in OTHER_SIZES]
    if other is None or first.skipped or first.failures or not again:
        return first
    second = check_inputs(case.model, other, case.seed, again)
    first.failures += second.failures
    first.compared += second.compared
    return first


def check_inputs(
    model: onnx.ModelProto, inputs: Arrays, seed: int, subjects: Iterable[str]
) -> Outcome:
    """Runs a model with these inputs through the named ways."""
    source = answer(model, inputs)
    if isinstance(source, str):
        return Outcome(skipped=source)
    outcome = Outcome(runtime=source.runtime)
    trial = Trial(model, inputs, source.runtime, seed)
    judge = _Judge(model, inputs, source.outputs)
    for name in subjects:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # none may reach a user
                found = SUBJECTS[name](trial)
        except NotApplicableError:
            continue
        except GecError as error:
            if name != "convert-opset":  # an op may have no form in another opset
                outcome.failures.append(Failure(name, "", f"{type(error).__name__}: {error}"))
            continue
        except Exception as error:
            outcome.failures.append(Failure(name, "", f"{type(error).__name__}: {error}"))
            continue
        outcome.compared += 1
        outcome.failures += judge.failures(name, found)
    return outcome


class _Judge:
    """Compares with the source's outputs; asks how exact these are once it matters."""

    def __init__(self, model: onnx.ModelProto, inputs: Arrays, wanted: Arrays) -> None:
        self._model = model
        self._inputs = inputs
        self._wanted = wanted
        functions = frozenset(f.name for f in model.functions)
        self._unsteady = unsteady_values(model.graph.node, functions)
        kinds = model.SerializeToString()
        self._chooses = b"Where" in kinds
        self._guards = b"IsNaN" in kinds and b"Softmax" in kinds
        self._attends = b"Softmax" in kinds

    def failures(self, subject: str, found: Arrays) -> list[Failure]:
        made = []
        for name, array in found.items():
            output = name.removesuffix("@kernels")
            masked = self._attends and (name != output or subject == "compile")
            why = difference(
                np.asarray(self._wanted[output]),
                np.asarray(array),
                masked=masked,
                guarded=self._guards,
                signs=not self._chooses,
                steady=output not in self._unsteady,
                others=lambda output=output: [a[output] for a in self._others],
            )
            if why:
                made.append(Failure(subject, name, why))
        return made

    @cached_property
    def _others(self) -> list[Arrays]:
        """The outputs in float64, and with every number off by its last bit."""
        found = [answer(*widened(self._model, self._inputs))]
        found += [answer(*nudged(self._model, self._inputs, seed)) for seed in range(2)]
        return [a.outputs for a in found if isinstance(a, Answer)]


def other_inputs(case: Case) -> dict[str, np.ndarray] | None:
    """Inputs with other sizes for the symbols; None where there are none."""
    rng = random.Random(case.seed)
    sizes: dict[str, int] = {}
    found: dict[str, np.ndarray] = {}
    for info in case.model.graph.input:
        if info.name not in case.inputs:
            continue
        old = case.inputs[info.name]
        shape = []
        for dim, size in zip(info.type.tensor_type.shape.dim, old.shape, strict=True):
            symbol = dim.dim_param
            shape.append(sizes.setdefault(symbol, rng.choice((2, 3, 5))) if symbol else size)
        dtype = info.type.tensor_type.elem_type
        same = tuple(shape) == old.shape
        found[info.name] = old if same else make(rng, dtype, tuple(shape), odd=False)
    return found if sizes else None
