"""onnxruntime sessions of single ops, made once for each kind of call."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np

from gecompiler.backends.node_model import (
    CARRIER,
    Call,
    actual_type,
    build,
    carrier_name,
    feeds,
    input_names,
    output_names,
)
from gecompiler.backends.run_inputs import Value
from gecompiler.ir.constants import Constant
from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType, ValueType

MAX_SESSIONS = 2048


@dataclass
class SessionCache:
    """The sessions used last, by what the call looks like. Safe to use from several threads."""

    def __post_init__(self) -> None:
        self._lock = Lock()
        self._sessions: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, call: Call, fixed: frozenset[str]) -> Any:
        """The session for such a call; onnxruntime's error when it has none."""
        key = _key(call, fixed)
        with self._lock:
            found = self._sessions.get(key)
            if found is not None:
                self._sessions.move_to_end(key)
        if found is None:
            try:
                found = _session(build(call, fixed=fixed, carried=True).SerializeToString())
            except Exception as error:  # refused once is refused always: remember that too
                found = error.with_traceback(None)
            with self._lock:
                self._sessions[key] = found
                if len(self._sessions) > MAX_SESSIONS:
                    self._sessions.popitem(last=False)
        if isinstance(found, Exception):
            raise found
        return found


CACHE = SessionCache()


def run(call: Call, fixed: frozenset[str] = frozenset()) -> list[Value]:
    """The op's outputs, None for one left out, by onnxruntime; its own error when it refuses.

    Values named in ``fixed`` are handed over as initializers, which some kernels insist on.
    """
    session = CACHE.get(call, fixed)
    declared = dict(zip(input_names(call.op), call.input_types, strict=True))
    fed: dict[str, Value] = {}
    for name, value in feeds(call).items():
        if name not in fixed:
            type_ = actual_type(value, declared.get(name))
            fed[carrier_name(name, type_)] = _outward(value, type_)
    found = iter(session.run(None, fed))
    return [
        _inward(next(found), type_) if name else None
        for name, type_ in zip(output_names(call.op), call.output_types, strict=True)
    ]


def _outward(value: Value, type_: ValueType) -> Value:
    if isinstance(type_, TensorType) and type_.dtype in CARRIER:
        return value.astype(CARRIER[type_.dtype].numpy)
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray) and value.ndim else value


def _inward(value: Value, type_: ValueType) -> Value:
    if isinstance(type_, TensorType) and type_.dtype in CARRIER:
        return np.asarray(value).astype(type_.dtype.numpy)
    return value if isinstance(value, list | dict) or value is None else np.asarray(value)


@lru_cache(maxsize=1)
def _options() -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.enable_mem_pattern = options.enable_cpu_mem_arena = False
    return options


def _session(model: bytes) -> Any:
    import onnxruntime as ort

    return ort.InferenceSession(model, _options(), providers=["CPUExecutionProvider"])


def _key(call: Call, fixed: frozenset[str]) -> Hashable:
    """Equal for calls that the same session serves."""
    op = call.op
    if op.bodies:
        return build(call, fixed=fixed, carried=True).SerializeToString(deterministic=True)
    named = feeds(call)
    declared = dict(zip(input_names(op), call.input_types, strict=True))
    inputs = tuple(_signature(actual_type(v, declared.get(n))) for n, v in named.items())
    outputs = tuple(
        t.dtype if isinstance(t, TensorType) and t.dtype in CARRIER else None
        for t in call.output_types
    )
    present = (tuple(map(bool, op.inputs)), tuple(map(bool, op.outputs)))
    digests = tuple((n, Constant.of(named[n]).digest) for n in sorted(fixed))
    kind = (op.domain, op.op_type, call.version, call.opsets.get("", 0))
    return (kind, _attributes(op), present, inputs, outputs, digests)


def _signature(type_: ValueType) -> Hashable:
    if isinstance(type_, TensorType):
        return (type_.dtype, type_.rank)
    return None if type_ is None else type_.proto


def _attributes(op: Op) -> Hashable:
    return tuple((name, _attribute(value)) for name, value in sorted(op.attrs.items()))


def _attribute(value: Any) -> Hashable:
    if isinstance(value, Constant):
        loaded = value if value.has_data else Constant.of(value.array(), value.type.dtype)
        return loaded.digest
    if isinstance(value, tuple):
        return tuple(_attribute(v) for v in value)
    return (type(value).__name__, repr(value))
