"""onnxruntime sessions of single ops, made once for each kind of call."""

from __future__ import annotations

import importlib
import math
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np

from gecompiler.backends.execution import loop_limit
from gecompiler.backends.execution.host_memory import current
from gecompiler.backends.execution.loop_limit import grows_unseen, may_be_endless, watched
from gecompiler.backends.execution.node_model import (
    RANDOM_OPS,
    Call,
    build,
    carried_name,
    carrier,
    fed_types,
    feeds,
    output_names,
)
from gecompiler.backends.execution.run_inputs import Value
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
        if call.op.is_(*RANDOM_OPS):  # a used session would go on drawing
            return _made(call, fixed)
        key = _key(call, fixed)
        with self._lock:
            found = self._sessions.get(key)
            if found is not None:
                self._sessions.move_to_end(key)
        if found is None:
            try:
                found = _made(call, fixed)
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
    types = fed_types(call)
    fed = {
        carried_name(name, types[name]): _outward(value, types[name])
        for name, value in feeds(call).items()
        if name not in fixed
    }
    found = iter(_run(session, fed, call))
    return [
        _inward(next(found), type_) if name else None
        for name, type_ in zip(output_names(call.op), call.output_types, strict=True)
    ]


def _run(session: Any, fed: Mapping[str, Value], call: Call) -> Sequence[Value]:
    if not grows_unseen(call):
        return list(session.run(None, fed))
    options = _runtime().RunOptions()
    options.log_severity_level = 4
    bounds, endless = current(), may_be_endless(call)
    seconds = loop_limit.SECONDS if endless else math.inf
    size = loop_limit.BYTES if endless or bounds is None else max(bounds.limit, loop_limit.BYTES)
    with watched(options, seconds, size):
        return list(session.run(None, fed, options))


def _outward(value: Value, type_: ValueType) -> Value:
    wide = carrier(type_)
    if wide is not None:
        return value.astype(wide.numpy)
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray) and value.ndim else value


def _inward(value: Value, type_: ValueType) -> Value:
    if isinstance(type_, TensorType) and carrier(type_) is not None:
        return np.asarray(value).astype(type_.dtype.numpy)
    return value if isinstance(value, list | dict) or value is None else np.asarray(value)


def _runtime() -> Any:
    return importlib.import_module("onnxruntime")  # it has no types


@lru_cache(maxsize=1)
def _options() -> Any:
    ort = _runtime()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.enable_mem_pattern = options.enable_cpu_mem_arena = False
    return options


def _made(call: Call, fixed: frozenset[str]) -> Any:
    ort = _runtime()
    model = build(call, fixed=fixed, carried=True).SerializeToString()
    return ort.InferenceSession(model, _options(), providers=["CPUExecutionProvider"])


def _key(call: Call, fixed: frozenset[str]) -> Hashable:
    """Equal for calls that the same session serves."""
    op = call.op
    if op.bodies:
        model = build(call, fixed=fixed, carried=True)
        return bytes(model.SerializeToString(deterministic=True))
    named = feeds(call)
    inputs = tuple(_signature(type_) for type_ in fed_types(call).values())
    outputs = tuple(carrier(type_) for type_ in call.output_types)
    present = (tuple(map(bool, op.inputs)), tuple(map(bool, op.outputs)))
    digests = tuple((n, Constant.of(named[n]).digest) for n in sorted(fixed))
    kind = (op.domain, op.op_type, call.version, call.opsets.get("", 0))
    return (kind, _attributes(op), present, inputs, outputs, digests)


def _signature(type_: ValueType) -> Hashable:
    if isinstance(type_, TensorType):
        return (type_.dtype, type_.rank)
    return b"" if type_ is None else type_.proto


def _attributes(op: Op) -> Hashable:
    return tuple((name, _attribute(value)) for name, value in sorted(op.attrs.items()))


def _attribute(value: Any) -> Hashable:
    if isinstance(value, Constant):
        loaded = value if value.has_data else Constant.of(value.array(), value.type.dtype)
        return loaded.digest
    if isinstance(value, tuple):
        return tuple(_attribute(v) for v in value)
    return (type(value).__name__, repr(value))
