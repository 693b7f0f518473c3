"""Gradients against central differences, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gecompiler.backends.execution.executor import run_reference
from gecompiler.ir import Graph, tensor
from gecompiler.ir.infer import infer_types
from gecompiler.ir.types import DType
from gecompiler.passes.training import gradients

Arrays = dict[str, np.ndarray]


def built(
    op_type: str,
    arrays: Mapping[str, np.ndarray],
    *,
    constants: Mapping[str, np.ndarray] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: int = 1,
    opset: int = 20,
    domain: str = "",
    attrs: Mapping[str, object] | None = None,
) -> Graph:
    """A graph of one op; ``arrays`` are its inputs, ``constants`` those that are constant."""
    graph = Graph("one", {"": opset, "gecompiler": 1})
    for name, array in arrays.items():
        graph.add_input(name, tensor(DType.from_numpy(array.dtype), array.shape))
    for name, array in (constants or {}).items():
        from gecompiler.ir import Constant

        graph.add_constant(name, Constant.of(array))
    names = list(inputs) if inputs is not None else [*arrays, *(constants or {})]
    graph.emit(
        op_type,
        names,
        domain=domain,
        attrs=attrs or {},  # type: ignore[arg-type]
        stem="y",
        outputs=outputs,
        types=[None] * outputs,
    )
    made = graph.ops[-1].outputs
    infer_types(graph)
    graph.set_outputs(made)
    return graph


def check(
    graph: Graph,
    arrays: Mapping[str, np.ndarray],
    wrt: Sequence[str],
    *,
    outputs: Sequence[int] = (0,),
    seed: int = 0,
    step: float = 1e-6,
    tolerance: float = 2e-6,
) -> float:
    """Compares the gradients along random directions; the largest error, which is asserted.

    The function is the sum of the outputs times random weights.
    """
    rng = np.random.default_rng(seed)
    found = run_reference(graph, arrays)
    chosen = [graph.outputs[i] for i in outputs]
    weights = {v: rng.standard_normal(found[v].shape).astype(found[v].dtype) for v in chosen}
    back = graph.copy()
    seeds = {}
    for value in weights:
        seeds[value] = back.add_input(f"d{value}", graph.type(value))
    grads = gradients(back, seeds, wrt)
    assert set(grads) == set(wrt)
    back.set_outputs([*dict.fromkeys(grads.values())])
    back.verify()
    made = run_reference(back, {**arrays, **{f"d{v}": w for v, w in weights.items()}})
    worst = 0.0
    for name in wrt:
        grad = made[grads[name]]
        assert grad.shape == arrays[name].shape
        assert grad.dtype == arrays[name].dtype
        direction = np.asarray(rng.standard_normal(arrays[name].shape))
        values = []
        for sign in (1, -1):
            moved = {**arrays, name: (arrays[name] + sign * step * direction).astype(grad.dtype)}
            out = run_reference(graph, moved)
            values.append(
                sum(float((out[v].astype(np.float64) * weights[v]).sum()) for v in chosen)
            )
        expected = (values[0] - values[1]) / (2 * step)
        exact = float((grad * direction).sum())
        scale = max(1.0, abs(expected), float(np.abs(grad).sum()))
        error = abs(expected - exact) / scale
        worst = max(worst, error)
        assert error < tolerance, f"{name}: {exact} for {expected}"
    return worst
