"""Computing one op: by our own kernel, by onnxruntime, or by onnx's reference evaluator."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gecompiler.backends.execution import ort_session, reference_op
from gecompiler.backends.execution.control_flow import control_op, holds_own_ops
from gecompiler.backends.execution.host_memory import current
from gecompiler.backends.execution.loop_limit import EndlessLoopError
from gecompiler.backends.execution.node_model import CARRIER, RANDOM_OPS, Call, input_names
from gecompiler.backends.execution.own_ops import own_op
from gecompiler.backends.execution.run_inputs import Value
from gecompiler.ir.errors import GecError, ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_io.schema import schema
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, TensorType, ValueType

LOG = logging.getLogger("gecompiler.backends")

Way = Callable[[Call], list[Value]]


def run_op(
    graph: Graph, op: Op, values: Sequence[Value], captures: Mapping[str, Value]
) -> list[Value]:
    """The op's outputs in order, None for one left out.

    ``values`` are its inputs in order (None where left out), ``captures`` the values its bodies
    take. ModelError names the node when nothing can compute it, with what each way said.
    """
    bounds = current()
    if bounds is not None:
        bounds.before(graph, op, values)
    call = Call(
        op,
        graph.opsets,
        tuple(values),
        captures,
        tuple(graph.type(v) if v else None for v in op.inputs),
        tuple(graph.type(v) if v else None for v in op.outputs),
        _trains(graph, op, values),
    )
    if any(_is_narrow(_type_of(v)) for v in values):
        call = replace(call, output_types=tuple(stated_or_schema(call)))
    own = own_op(call)
    if op.attrs and op.bodies and holds_own_ops(op):
        own = _by_bodies
    return _attempt(op, own, call) if own is not None else _borrowed(adapted(call))


def _by_bodies(call: Call) -> list[Value]:
    if not call.op.attrs or not call.op.bodies:
        raise _NoDifferenceError
    found = control_op(call, run_body)
    if found is None:
        raise ModelError("the bodies of If, Loop and Scan alone are run op by op")
    wanted = [*found, *(None for _ in call.op.outputs[len(found) :])]
    return [v if name else None for v, name in zip(wanted, call.op.outputs, strict=False)]


def run_body(graph: Graph, seen: Mapping[str, Value]) -> list[Value]:
    """A graph's outputs in order, op after op, from the values that it can see."""
    values = dict(seen)

    def read(name: str) -> Value:
        if name and name not in values:
            values[name] = graph.constants[name].array()
        return values[name] if name else None

    for op in graph.topological():
        captured = {name: read(name) for name in graph.captures(op)}
        results = run_op(graph, op, [read(name) for name in op.inputs], captured)
        values.update((v, r) for v, r in zip(op.outputs, results, strict=True) if v)
    return [read(name) for name in graph.outputs]


def _trains(graph: Graph, op: Op, values: Sequence[Value]) -> bool:
    """Whether a value of this run, no constant of the model, puts a Dropout in training mode."""
    if not op.is_("Dropout") or not op.input(2) or graph.constant(op.input(2)) is not None:
        return False
    return bool(np.any(values[2]))


def _attempt(op: Op, way: Way, call: Call) -> list[Value]:
    try:
        return way(call)
    except GecError as error:
        message = f"{error.where}: {error.message}" if error.where else error.message
        raise ModelError(message, where=_where(op), hint=error.hint) from error
    except (ValueError, IndexError, np.exceptions.AxisError) as error:
        raise ModelError(f"cannot be computed: {error}", where=_where(op)) from error


def _borrowed(call: Call) -> list[Value]:
    """By the first of the runtimes that takes it."""
    said: list[str] = []
    for name, way in _WAYS[3:] if onnxruntime_errs(call) else _WAYS:
        try:
            return way(call)
        except _NoDifferenceError:
            continue
        except EndlessLoopError as error:  # no other way would find an end
            raise ModelError(error.message, where=_where(call.op), hint=error.hint) from None
        except Exception as error:  # each runtime has error types of its own
            said.append(f"{name}: {_first_line(error)}")
            LOG.debug("%s refuses %s: %s", name, call.op.name, error)
    raise ModelError(
        "cannot be computed: " + "; ".join(said),
        where=_where(call.op),
        hint="check the sizes and types of its inputs; "
        + ", ".join(_described(v) for v in call.values),
    )


def onnxruntime_errs(call: Call) -> bool:
    """Whether onnxruntime is known to give other numbers than ONNX says.

    Attention's scores are given out before the mask where they are asked for after it;
    MaxUnpool counts its indices in the input's size where an output size is given; Resize with
    aligned corners takes the output's size for the input's times the scale. Dropout in training
    draws by a generator of its own, where ONNX's reference has numpy's. Gather of strings copies
    the first of each row alone.
    """
    op = call.op
    if op.is_("Gather"):
        return isinstance(call.values[0], np.ndarray) and call.values[0].dtype.kind == "O"
    if op.is_("Attention"):
        return len(op.outputs) > 3 and bool(op.outputs[3])
    if op.is_("Resize"):
        return _scales_unevenly(call)
    return call.trains or (op.is_("MaxUnpool") and bool(op.input(2)))


def _scales_unevenly(call: Call) -> bool:
    """Whether Resize with aligned corners has scales that make no whole sizes."""
    if call.op.attr("coordinate_transformation_mode") != "align_corners":
        return False
    scales = call.values[2] if len(call.values) > 2 else None
    if scales is None or not scales.size:
        return False
    axes = call.op.attr("axes") or range(call.values[0].ndim)
    lengths = [call.values[0].shape[a] * float(s) for a, s in zip(axes, scales, strict=False)]
    return any(abs(n - round(n)) > 1e-4 for n in lengths)


class _NoDifferenceError(Exception):
    """The way makes no difference to this call."""


def _with_constants(call: Call) -> list[Value]:
    """Small inputs as initializers: some kernels read axes, pads or zero points only once."""
    small = frozenset(
        name
        for name, value in zip(input_names(call.op)[1:], call.values[1:], strict=True)
        if isinstance(value, np.ndarray) and value.size <= 4096 and value.dtype.kind != "O"
    )
    if not small or call.op.bodies:
        raise _NoDifferenceError
    return ort_session.run(call, small)


def _in_float32(call: Call) -> list[Value]:
    """Narrow floats computed in float32 and rounded once at the end, as hardware does it."""
    if not any(_is_narrow(t) for t in (*map(_type_of, call.values), *call.output_types)):
        raise _NoDifferenceError
    widened = replace(
        call,
        values=tuple(_widened(v) for v in call.values),
        captures={k: _widened(v) for k, v in call.captures.items()},
        output_types=tuple(_wide_type(t) for t in call.output_types),
    )
    found = ort_session.run(widened)
    return [
        v.astype(t.dtype.numpy) if isinstance(t, TensorType) and _is_narrow(t) else v
        for v, t in zip(found, call.output_types, strict=True)
    ]


_WAYS: tuple[tuple[str, Way], ...] = (
    ("onnxruntime", ort_session.run),
    ("onnxruntime, with constants", _with_constants),
    ("onnxruntime, in float32", _in_float32),
    ("op by op", _by_bodies),
    ("onnx's reference", reference_op.run),
)
"""What computes an op, tried in this order.

Bodies go op by op before they go to ONNX's reference, whose Loop collects numbers as rows.
"""


def stated_or_schema(call: Call) -> list[ValueType]:
    """The outputs' types; where the graph states none, that of the input that must share it."""
    known = schema(call.op.op_type, call.op.domain, call.version)
    if known is None or not known.outputs:
        return list(call.output_types)
    by_variable: dict[str, ValueType] = {}
    for k, value in enumerate(call.values):
        variable = known.inputs[min(k, len(known.inputs) - 1)].type_str
        by_variable.setdefault(variable, _type_of(value))
    variables = [o.type_str for o in known.outputs]
    return [
        type_ if type_ is not None else by_variable.get(variables[min(k, len(variables) - 1)])
        for k, type_ in enumerate(call.output_types)
    ]


def _type_of(value: Value) -> ValueType:
    if not isinstance(value, np.ndarray):
        return None
    return TensorType(DType.from_numpy(value.dtype), value.shape)


def _is_narrow(type_: ValueType) -> bool:
    return isinstance(type_, TensorType) and CARRIER.get(type_.dtype) is DType.F32


def _widened(value: Value) -> Value:
    return value.astype(np.float32) if _is_narrow(_type_of(value)) else value


def _wide_type(type_: ValueType) -> ValueType:
    if isinstance(type_, TensorType) and _is_narrow(type_):
        return TensorType(DType.F32, type_.shape)
    return type_


def adapted(call: Call) -> Call:
    """The call as onnxruntime takes it and as every run gives the same.

    Random ops without a seed get one from their name. RotaryEmbedding gets the broadcast of its
    tables over the batch, which exporters rely on and onnxruntime refuses.
    """
    op = call.op
    if (op.is_(*RANDOM_OPS) or call.trains) and op.attr("seed") is None:
        drawn = zlib.crc32(op.name.encode()) % 2**20
        seed: float = drawn if call.trains else float(drawn)
        return replace(call, op=op.with_(attrs={**op.attrs, "seed": seed}))
    if not op.is_("RotaryEmbedding") or len(call.values) < 3 or op.input(3):
        return call
    x, *tables = call.values[:3]
    if any(t.ndim != 3 or t.shape[0] not in (1, x.shape[0]) for t in tables):
        return call
    full = [np.broadcast_to(t, (x.shape[0], *t.shape[1:])) for t in tables]
    return replace(call, values=(x, *full, *call.values[3:]))


def _where(op: Op) -> str:
    return f"node {op.name!r} ({op.kind})"


def _first_line(error: Exception) -> str:
    text = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text[:300]}"


def _described(value: Value) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return "none" if value is None else type(value).__name__
