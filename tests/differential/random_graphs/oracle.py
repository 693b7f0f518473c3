"""What a model computes, by runtimes that do not optimise: onnxruntime, else onnx's reference."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper, inliner, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import onnxruntime_pybind11_state as states

from random_graphs.arrays import FLOAT8, numpy_type
from random_graphs.steadiness import bodies

CARRIER = {
    **dict.fromkeys((T.BFLOAT16, *FLOAT8), T.FLOAT),
    T.INT4: T.INT8,
    T.UINT4: T.UINT8,
}
"""Types that onnxruntime takes no numpy arrays of, with one that holds each of their numbers."""

Arrays = Mapping[str, np.ndarray]

NO_KERNEL = (states.NotImplemented, states.InvalidGraph)
"""What onnxruntime raises where it lacks a kernel, or knows a type not at all."""


@dataclass(frozen=True)
class Answer:
    """Outputs by name, and who computed them."""

    outputs: Arrays
    runtime: str


def answer(model: onnx.ModelProto, inputs: Arrays) -> Answer | str:
    """The outputs, or why neither runtime gives any."""
    try:
        if not _gathers_strings(model):
            return Answer(run_onnxruntime(model, inputs), "onnxruntime")
    except NO_KERNEL:
        pass
    except Exception as error:  # of its own types
        return f"onnxruntime: {type(error).__name__}: {str(error)[:200]}"
    try:
        return Answer(run_by_node(model, inputs), "by node")
    except Exception as error:
        return f"by node: {type(error).__name__}: {str(error)[:200]}"


def _gathers_strings(model: onnx.ModelProto) -> bool:
    """Whether it may: there onnxruntime copies the first string of each row alone."""
    graph = model.graph
    strings = any(i.type.tensor_type.elem_type == T.STRING for i in graph.input)
    strings |= any(t.data_type == T.STRING for t in graph.initializer)
    return strings and any(node.op_type == "Gather" for node in graph.node)


def run_onnxruntime(model: onnx.ModelProto, inputs: Arrays) -> Arrays:
    """The outputs by onnxruntime with every optimisation off; its own error when it refuses."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    carried, inward, outward = _carried(model)
    session = onnxruntime.InferenceSession(
        carried.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    fed = {
        inward.get(n, n): a.astype(numpy_type(CARRIER[_code(model, n)])) if n in inward else a
        for n, a in inputs.items()
    }
    names = [o.name for o in model.graph.output]
    found = session.run([outward.get(n, n) for n in names], fed)
    types = {o.name: o.type.tensor_type.elem_type for o in model.graph.output}
    with np.errstate(all="ignore"):
        return {
            n: a.astype(numpy_type(types[n])) if n in outward else a
            for n, a in zip(names, found, strict=True)
        }


def _code(model: onnx.ModelProto, name: str) -> int:
    return next(i.type.tensor_type.elem_type for i in model.graph.input if i.name == name)


def _carried(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, str], dict[str, str]]:
    """The model with wider types outside, and the new names of its inputs and outputs."""
    inputs = [i for i in model.graph.input if i.type.tensor_type.elem_type in CARRIER]
    constants = {t.name for t in model.graph.initializer}
    inputs = [i for i in inputs if i.name not in constants]
    outputs = [o for o in model.graph.output if o.type.tensor_type.elem_type in CARRIER]
    if not inputs and not outputs:
        return model, {}, {}
    made = onnx.ModelProto()
    made.CopyFrom(model)
    nodes = list(made.graph.node)
    del made.graph.node[:]
    for info in made.graph.input:
        code = info.type.tensor_type.elem_type
        if code in CARRIER and info.name not in constants:
            wide = f"{info.name}__wide"
            made.graph.node.append(helper.make_node("Cast", [wide], [info.name], to=code))
            info.name = wide
            info.type.tensor_type.elem_type = CARRIER[code]
    made.graph.node.extend(nodes)
    for info in made.graph.output:
        code = info.type.tensor_type.elem_type
        if code in CARRIER:
            wide = f"{info.name}__wide_out"
            node = helper.make_node("Cast", [info.name], [wide], to=CARRIER[code])
            made.graph.node.append(node)
            info.name = wide
            info.type.tensor_type.elem_type = CARRIER[code]
    return (
        made,
        {i.name: f"{i.name}__wide" for i in inputs},
        {o.name: f"{o.name}__wide_out" for o in outputs},
    )


def run_by_node(model: onnx.ModelProto, inputs: Arrays) -> Arrays:
    """The outputs node after node: each by onnxruntime, else by the reference.

    For models that hold an op for which onnxruntime has no kernel. The error of the reference,
    when it fails too.
    """
    if model.functions:
        model = inliner.inline_local_functions(model)
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    values = {**constants, **inputs}
    for node in model.graph.node:
        one = _node_model(model, node, values)
        fed = {i.name: values[i.name] for i in one.graph.input}
        try:
            way = _run_reference if _gathers_strings(one) else run_onnxruntime
            found = way(one, fed)
        except NO_KERNEL:
            if node.op_type in ("Loop", "Scan"):  # the reference collects numbers as rows
                raise
            found = _run_reference(one, fed)
        values.update(found)
    return {o.name: values[o.name] for o in model.graph.output}


def _node_model(model: onnx.ModelProto, node: onnx.NodeProto, values: Arrays) -> onnx.ModelProto:
    """The node alone."""
    names = [n for n in dict.fromkeys(names_read(node)) if n in values]
    infos = [helper.make_tensor_value_info(n, code_of(values[n]), values[n].shape) for n in names]
    outputs = [n for n in node.output if n]
    graph = helper.make_graph([node], "node", infos, [])
    made = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    known = onnx.shape_inference.infer_shapes(made, strict_mode=True, data_prop=True)
    types = {i.name: i for i in known.graph.value_info}
    made.graph.output.extend(types[n] for n in outputs)
    return made


def names_read(node: onnx.NodeProto) -> list[str]:
    """What a node reads, its bodies included."""
    found = [n for n in node.input if n]
    for body in bodies(node):
        found += [o.name for o in body.output]
        for inner in body.node:
            found += names_read(inner)
    return found


def code_of(array: np.ndarray) -> int:
    """The element type of an array."""
    kind = np.dtype(object) if array.dtype.kind in "OUS" else array.dtype
    return helper.np_dtype_to_tensor_dtype(kind)


def _run_reference(model: onnx.ModelProto, inputs: Arrays) -> Arrays:
    """The outputs by onnx's reference evaluator; its own error when it fails."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = ReferenceEvaluator(model).run(None, dict(inputs))
    outputs = [o.name for o in model.graph.output]
    return {n: np.asarray(a) for n, a in zip(outputs, found, strict=True)}
