"""Where the front door says how a model is compiled, for those below it that run whole models.

Imports only point down, so the backends cannot import the compiler; they state here what they
need of it, and ``gecompiler`` hands it in when it is imported, which is always before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from gecompiler.ir.errors import UsageError


class RunnableModel(Protocol):
    """A model that was compiled and can be run on the simulated device."""

    def inputs(self, count: int) -> Sequence[str]:
        """The names that ``count`` positional inputs are for; UsageError where none fit."""

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, in the model's order. Sizes may differ from run to run."""


Compile = Callable[[Any, Mapping[str, Any]], RunnableModel]
"""Compiles an onnx.ModelProto under options (by the names of ``ge.set_option``)."""

_loaders: list[Callable[[], Compile]] = []


def hand_in(loader: Callable[[], Compile]) -> None:
    """Sets what gives the compiler on first use; the last one handed in is taken."""
    _loaders[:] = [loader]


def compiler() -> Compile:
    """The compiler that was handed in; UsageError when there is none."""
    if not _loaders:
        raise UsageError(
            "no compiler was handed in", where="backends", hint="import gecompiler first"
        )
    return _loaders[0]()
