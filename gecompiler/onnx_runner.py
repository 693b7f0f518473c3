"""What the ONNX backend interface needs of the compiler: a model compiled, then run on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from onnx import ModelProto

from gecompiler.compiled import CompiledModel
from gecompiler.driver import Source, compile_source, optimise
from gecompiler.ir.bind import empty_symbols
from gecompiler.ir.errors import UnknownSizeError, UsageError
from gecompiler.option_table import Options
from gecompiler.request import Request


def compile_model(model: ModelProto, options: Mapping[str, Any]) -> OnnxRunner:
    """Compiles ``model`` as far as it goes before sizes that only a run tells are known."""
    return OnnxRunner(model, options)


class OnnxRunner:
    """A model behind ``gecompiler.backends.onnx_backend``.

    A model without symbols is compiled at once; one with them when its first inputs are known.
    """

    def __init__(self, model: ModelProto, options: Mapping[str, Any]) -> None:
        self._model = model
        self._options = dict(options)
        self._request = Request(model, options=Options(self._options))
        self._source: Source = optimise(self._request)
        self._compiled: CompiledModel | None = None
        self._replacing: dict[frozenset[str], OnnxRunner] = {}
        graph = self._source.graph
        types = (graph.tensor(name) for name in graph.inputs)
        if all(type_ is None or type_.is_static for type_ in types):
            with suppress(UnknownSizeError):  # the first run will tell
                self._compile(self._request)

    def _compile(self, request: Request) -> CompiledModel:
        found = CompiledModel(request, self._source, compile_source(self._source, request))
        self._compiled = found
        return found

    def inputs(self, count: int) -> Sequence[str]:
        """The names for ``count`` values: the inputs without a default, or all of them."""
        required = self._source.graph.inputs
        every = [value.name for value in self._model.graph.input]
        for names in (required, every):
            if len(names) == count:
                return names
        raise UsageError(
            f"{count} values for {len(required)} inputs ({', '.join(required)})", where="run"
        )

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name; values for inputs that have a default replace it."""
        graph = self._source.graph
        replaced = frozenset(v.name for v in self._model.graph.input) - set(graph.inputs)
        replaced &= frozenset(inputs)
        if replaced:
            return self._without_defaults(replaced).run(inputs)
        compiled = self._compiled
        if compiled is None:
            request = replace(self._request, arrays=dict(inputs))
            if empty_symbols(graph, inputs):
                return CompiledModel.compile(request).run(inputs)
            compiled = self._compile(request)
        return compiled.run(inputs)

    def _without_defaults(self, names: frozenset[str]) -> OnnxRunner:
        """The model with these defaults taken out, so that they are inputs like others."""
        if names not in self._replacing:
            model = ModelProto()
            model.CopyFrom(self._model)
            kept = [t for t in model.graph.initializer if t.name not in names]
            del model.graph.initializer[:]
            model.graph.initializer.extend(kept)
            self._replacing[names] = OnnxRunner(model, self._options)
        return self._replacing[names]
