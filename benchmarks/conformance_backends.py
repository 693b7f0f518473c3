"""The backends that are compared: ours, onnxruntime's own, and onnx's reference evaluator."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from onnx import ModelProto
from onnx.backend.base import Backend, BackendRep

NAMES = ("gecompiler", "onnxruntime", "onnx.reference")


def backend(name: str) -> type[Backend]:
    """The backend of that name, as its owners offer it."""
    if name == "gecompiler":
        from gecompiler.backends.onnx_backend import NpuBackend

        return NpuBackend
    if name == "onnxruntime":
        # By itself it skips operator sets that are not released; here it may try them all.
        os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        from onnxruntime.backend.backend import OnnxRuntimeBackend

        found: type[Backend] = OnnxRuntimeBackend
        return found
    return ReferenceBackend


class ReferenceRep(BackendRep):
    """A model in onnx's ReferenceEvaluator, fed as onnx's own test of it does."""

    def __init__(self, model: ModelProto) -> None:
        from onnx.reference import ReferenceEvaluator

        self._evaluator: Any = ReferenceEvaluator(model)

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs in the model's order."""
        values = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        names = self._evaluator.input_names
        if len(values) == len(names):
            return tuple(self._evaluator.run(None, dict(zip(names, values, strict=True))))
        feeds: dict[str, Any] = {}  # some inputs have defaults: sizes tell which
        for name, type_ in zip(names, self._evaluator.input_types, strict=True):
            sizes = tuple(d.dim_value for d in type_.tensor_type.shape.dim)
            if len(feeds) < len(values) and sizes == values[len(feeds)].shape:
                feeds[name] = values[len(feeds)]
        return tuple(self._evaluator.run(None, feeds))


class ReferenceBackend(Backend):
    """onnx's ReferenceEvaluator behind onnx's backend interface."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **_: Any) -> ReferenceRep:
        return ReferenceRep(model)
