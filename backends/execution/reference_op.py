"""An op computed by onnx's reference evaluator: slow, and it knows every standard op."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from gecompiler.backends.execution.node_model import Call, build, feeds
from gecompiler.backends.execution.run_inputs import Value


def run(call: Call) -> list[Value]:
    """The op's outputs, None for one left out; the evaluator's own error when it fails."""
    from onnx.reference import ReferenceEvaluator

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        evaluator: Any = ReferenceEvaluator(build(call))
        found = iter(evaluator.run(None, feeds(call)))
    return [_value(next(found)) if name else None for name in call.op.outputs]


def _value(value: Value) -> Value:
    return value if value is None or isinstance(value, list | dict) else np.asarray(value)
