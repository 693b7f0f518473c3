"""Whether ops fit the schemas that onnx has of them: arity, attributes, element types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from gecompiler.ir.errors import GraphError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer.contrib import is_contrib
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, TensorType
from gecompiler.ir.verify.attrs import check_attr_kinds, fits, kind_of

if TYPE_CHECKING:
    from onnx.defs import OpSchema

SINGLE, VARIADIC = "single", "variadic"
_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")
"""The domains whose every op onnx describes."""


@dataclass(frozen=True, slots=True)
class Formal:
    """A formal input or output. ``variable`` binds its element type to that of its namesakes."""

    name: str
    option: str
    variable: str
    allowed: frozenset[DType]
    tensors_only: bool

    def __str__(self) -> str:
        return ", ".join(d.short for d in DType if d in self.allowed) or "no tensor"


@dataclass(frozen=True, slots=True)
class Signature:
    """What the verifier asks of an op at one version of its domain."""

    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    arity: tuple[int, int]
    output_arity: tuple[int, int]
    attrs: Mapping[str, str]
    """The kind of every attribute, as onnx names kinds: INT, FLOATS, GRAPH."""
    required: tuple[str, ...]


def check_op(graph: Graph, op: Op) -> None:
    """Raises GraphError when the op does not fit its schema; unknown domains are not judged."""
    if op.attrs:
        check_attr_kinds(graph, op)
    if op.domain not in _DOMAINS:
        return
    version = graph.opsets.get(op.domain)
    if version is None:
        raise GraphError(
            f"op {op.name!r} ({op.kind}) is of domain {op.domain or 'ai.onnx'!r}, whose version "
            f"the graph does not say",
            where=graph.name,
            hint="add the domain to the graph's opsets",
        )
    found = signature(op.op_type, op.domain, version)
    if isinstance(found, str):
        if is_contrib(op.domain, op.op_type):
            return
        raise GraphError(
            f"op {op.name!r}: {op.kind} is no op of {op.domain or 'ai.onnx'} {version}",
            where=graph.name,
            hint=found,
        )
    _check_arity(graph, op, "input", op.inputs, found.arity, found.inputs)
    _check_arity(graph, op, "output", op.outputs, found.output_arity, found.outputs)
    _check_attrs(graph, op, found)
    bound: dict[str, tuple[str, DType]] = {}
    _check_types(graph, op, "input", op.inputs, found.inputs, bound)
    _check_types(graph, op, "output", op.outputs, found.outputs, bound)


def _check_arity(
    graph: Graph,
    op: Op,
    what: str,
    values: Sequence[str],
    arity: tuple[int, int],
    formals: tuple[Formal, ...],
) -> None:
    least, most = arity
    if not least <= len(values) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        wanted = f"at least {least}" if most >= 2**31 - 1 else wanted
        found = f"{len(values)} {what}{'' if len(values) == 1 else 's'}"
        raise GraphError(
            f"op {op.name!r} ({op.kind}) has {found}, expected {wanted}",
            where=graph.name,
        )
    for value, formal in zip(values, formals, strict=False):
        if not value and formal.option == SINGLE:
            raise GraphError(
                f"op {op.name!r} ({op.kind}) leaves out its {what} {formal.name!r}, which is "
                "not optional",
                where=graph.name,
            )


def _check_attrs(graph: Graph, op: Op, found: Signature) -> None:
    for name, value in op.attrs.items():
        wanted = found.attrs.get(name)
        if wanted is None:
            if name.startswith("_"):  # private to whoever put it there, as onnx's checker has it
                continue
            raise GraphError(
                f"op {op.name!r} ({op.kind}) has no attribute {name!r}",
                where=graph.name,
                hint=nearest(name, found.attrs),
            )
        if not fits(value, wanted):
            raise GraphError(
                f"op {op.name!r} ({op.kind}): attribute {name!r} is {kind_of(value)}, "
                f"expected {wanted}",
                where=graph.name,
            )
    for name in found.required:
        if name not in op.attrs:
            raise GraphError(
                f"op {op.name!r} ({op.kind}) lacks its attribute {name!r}", where=graph.name
            )


def _check_types(
    graph: Graph,
    op: Op,
    what: str,
    values: Sequence[str],
    formals: tuple[Formal, ...],
    bound: dict[str, tuple[str, DType]],
) -> None:
    types, last = graph.types, len(formals) - 1
    for i, value in enumerate(values):
        type_ = types.get(value)
        if type_ is None:
            continue
        formal = formals[min(i, last)]
        if not isinstance(type_, TensorType):
            if formal.tensors_only:
                raise GraphError(
                    f"op {op.name!r} ({op.kind}): {what} {value!r} is {type_}, expected a tensor",
                    where=graph.name,
                )
            continue
        dtype = type_.dtype
        if dtype not in formal.allowed:
            raise GraphError(
                f"op {op.name!r} ({op.kind}): {what} {value!r} is {type_}, expected {formal}",
                where=graph.name,
            )
        if formal.variable:
            other, expected = bound.setdefault(formal.variable, (value, dtype))
            if dtype is not expected:
                raise GraphError(
                    f"op {op.name!r} ({op.kind}): {what} {value!r} is {type_}, expected "
                    f"{expected.short} as {other!r} is",
                    where=graph.name,
                )


# -------------------------------------------------------------------- schemas


@lru_cache(maxsize=4096)
def signature(op_type: str, domain: str, version: int) -> Signature | str:
    """The op's signature at that version, or a hint why there is none."""
    from onnx import defs

    try:
        schema = defs.get_schema(op_type, version, domain)
    except defs.SchemaError:
        return _why_unknown(op_type, domain)
    if schema.deprecated:
        return f"it was withdrawn in version {schema.since_version}"
    return Signature(
        tuple(_formal(schema, f) for f in schema.inputs),
        tuple(_formal(schema, f) for f in schema.outputs),
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        {name: str(attr.type).rpartition(".")[2] for name, attr in schema.attributes.items()},
        tuple(sorted(name for name, attr in schema.attributes.items() if attr.required)),
    )


def _formal(schema: OpSchema, formal: OpSchema.FormalParameter) -> Formal:
    option = str(formal.option).rpartition(".")[2].lower()
    names = frozenset(formal.types)
    is_variable = any(c.type_param_str == formal.type_str for c in schema.type_constraints)
    free = option == VARIADIC and not formal.is_homogeneous
    return Formal(
        formal.name,
        option,
        formal.type_str if is_variable and not free else "",
        frozenset(d for name, d in _tensor_names().items() if name in names),
        all(name.startswith("tensor(") for name in names),
    )


@lru_cache(maxsize=1)
def _tensor_names() -> Mapping[str, DType]:
    """Element types by the names that schemas have for tensors of them."""
    from onnx import TensorProto

    known = set(TensorProto.DataType.values())
    return {
        f"tensor({TensorProto.DataType.Name(d.code).lower()})": d for d in DType if d.code in known
    }


def _why_unknown(op_type: str, domain: str) -> str:
    from onnx import defs

    schemas = [s for s in defs.get_all_schemas_with_history() if s.domain == domain]
    versions = sorted(s.since_version for s in schemas if s.name == op_type)
    if versions:
        return f"it is new in version {versions[0]}"
    return nearest(op_type, (s.name for s in schemas))
