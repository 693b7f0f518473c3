"""ONNX's standard backend interface over the simulated NPU.

    from gecompiler.backends import onnx_backend
    outputs = onnx_backend.run_model(model, [x])

A model goes the product's whole way: import, passes, sizes, streams and syncs, memory plan,
verification, simulation; it is executed in the simulated order at the planned addresses.
(onnx/docs/ImplementingAnOnnxBackend.md; `onnx.backend.base`.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from gecompiler.backends.compiler_slot import RunnableModel, compiler
from gecompiler.backends.device_load import device_names
from gecompiler.ir.errors import UsageError
from gecompiler.ir.types import DType

HOST_DEVICES = ("CPU", "NPU")
"""Names of devices that stand for the default profile: the simulated NPU lives on the CPU."""


class NpuBackendRep(BackendRep):
    """A compiled model, to be run many times."""

    def __init__(self, model: RunnableModel) -> None:
        self._model = model

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs in the model's order, as a named tuple.

        ``inputs`` are values in the order of the model's inputs, those that have a default left
        out or given as well; a mapping by name; or one array for a model of one input. A value is
        an array, a list (sequence) or None (empty optional). GecError says what does not fit.
        """
        found = self._model.run(self._named(inputs))
        named = namedtupledict("Outputs", list(found))
        return named(*found.values())

    def _named(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            return {str(name): _plain(value) for name, value in inputs.items()}
        values = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        return dict(zip(self._model.inputs(len(values)), map(_plain, values), strict=True))


class NpuBackend(Backend):
    """`onnx.backend.base.Backend` of the simulated NPU."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether ``device`` is CPU or NPU, or the name of a device profile (``ascend910``)."""
        name = device.partition(":")[0]
        return name in HOST_DEVICES or name in device_names()

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **_: Any) -> bool:
        """Whether the device is one of ours; what a model asks for is told by `prepare`."""
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **options: Any) -> NpuBackendRep:
        """Compiles ``model`` for ``device``; ``options`` are those of ``ge.set_option``.

        GecError when the model is not valid, UsageError for a device or option that is unknown.
        """
        if not cls.supports_device(device):
            raise UsageError(
                f"device {device!r} is not supported",
                where="onnx_backend",
                hint=f"there are {', '.join((*HOST_DEVICES, *device_names()))}",
            )
        name = device.partition(":")[0]
        if name not in HOST_DEVICES:
            options = {**options, "device": name}
        return NpuBackendRep(compiler()(model, options))

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: Any, device: str = "CPU", **options: Any
    ) -> tuple[Any, ...]:
        """`prepare` and one run."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, Sequence[int]]] | None = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """Runs one node as a model of its own.

        ``inputs`` are its non-empty inputs in order, or a mapping by name; ``outputs_info`` is
        (numpy dtype, shape) of each output. ``opset_version`` is the operator set, by default
        onnx's newest.
        """
        version = options.pop("opset_version", None)
        model = _node_model(node, inputs, outputs_info, version)
        return cls.run_model(model, inputs, device, **options)


def _plain(value: Any) -> Any:
    """A TensorProto or a scalar of numpy as an array."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _node_model(
    node: NodeProto,
    inputs: Any,
    outputs_info: Sequence[tuple[Any, Sequence[int]]] | None,
    version: int | None,
) -> ModelProto:
    names = list(dict.fromkeys(name for name in node.input if name))
    if isinstance(inputs, Mapping):
        by_name = dict(inputs)
    else:
        values = inputs if isinstance(inputs, list | tuple) else [inputs]
        if len(values) != len(names):
            raise UsageError(
                f"{len(values)} values for {len(names)} inputs ({', '.join(names)})",
                where=f"node {node.name or node.op_type!r}",
            )
        by_name = dict(zip(names, values, strict=True))
    given = [_value_info(name, _plain(by_name[name])) for name in names if name in by_name]
    outputs = [name for name in node.output if name]
    if outputs_info is None:
        made = [onnx.ValueInfoProto(name=name) for name in outputs]
    else:
        made = [
            helper.make_tensor_value_info(n, DType.from_numpy(np.dtype(dtype)).code, list(shape))
            for n, (dtype, shape) in zip(outputs, outputs_info, strict=True)
        ]
    newest = onnx.defs.onnx_opset_version()
    opsets = [helper.make_opsetid("", version or newest)]
    if node.domain not in ("", "ai.onnx"):
        opsets.append(helper.make_opsetid(node.domain, _newest(node)))
    graph = helper.make_graph([node], "node", given, made)
    return helper.make_model(graph, opset_imports=opsets)


def _newest(node: NodeProto) -> int:
    """The newest version of the node's op that onnx knows, 1 where it knows none."""
    try:
        return int(onnx.defs.get_schema(node.op_type, node.domain).since_version)
    except onnx.defs.SchemaError:
        return 1


def _value_info(name: str, value: Any) -> onnx.ValueInfoProto:
    if isinstance(value, list):
        element = np.asarray(value[0]) if value else np.zeros(0, np.float32)
        code = DType.from_numpy(element.dtype).code
        return helper.make_tensor_sequence_value_info(name, code, None)
    array = np.asarray(value)
    return helper.make_tensor_value_info(name, DType.from_numpy(array.dtype).code, array.shape)


is_compatible = NpuBackend.is_compatible
prepare = NpuBackend.prepare
run_model = NpuBackend.run_model
run_node = NpuBackend.run_node
supports_device = NpuBackend.supports_device
