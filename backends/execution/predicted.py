"""The sizes of what an op is about to make, told from the values that it is given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gecompiler.backends.execution.run_inputs import Value
from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import GecError
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, TensorType, ValueType

SMALL = 4096
"""Values of so many elements are looked at: sizes, axes, repetitions."""


def predicted(graph: Graph, op: Op, values: Sequence[Value]) -> list[ValueType]:
    """The types of the op's outputs in this call, None where they depend on more than sizes."""
    if op.bodies or not all(v is None or isinstance(v, np.ndarray) for v in values):
        return [None] * len(op.outputs)
    alone = Graph("alone", dict(graph.opsets))
    taken: dict[str, str] = {}
    try:
        for place, (name, value) in enumerate(zip(op.inputs, values, strict=True)):
            if not name or value is None or name in taken:
                continue
            taken[name] = f"in{place}"
            dtype = DType.from_numpy(value.dtype)
            if value.size <= SMALL and value.dtype.kind != "O":
                alone.add_constant(taken[name], Constant.of(value, dtype))
            else:
                alone.add_input(taken[name], TensorType(dtype, value.shape))
        inputs = tuple(taken.get(name, "") for name in op.inputs)
        outputs = tuple(f"out{k}" if v else "" for k, v in enumerate(op.outputs))
        alone.add_op(Op("alone", op.op_type, inputs, outputs, op.attrs, op.domain))
        alone.set_outputs([v for v in outputs if v])
        infer_types(alone)
    except (GecError, ValueError):
        return [None] * len(op.outputs)
    return [alone.type(v) if v else None for v in outputs]
