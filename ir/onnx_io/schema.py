"""Which ops and opsets are known, and what to say of those that are not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

import onnx
from onnx import AttributeProto, NodeProto, OperatorSetIdProto
from onnx.defs import OpSchema

from gecompiler.ir.errors import ModelError, nearest, shown_name
from gecompiler.ir.infer.contrib import is_contrib

OLDEST_OPSET = 7
_SHOWN_NODES = 3
_SHOWN_KINDS = 20


def newest_opset() -> int:
    """The newest version of ai.onnx that the installed onnx knows."""
    return onnx.defs.onnx_opset_version()


def domain_of(name: str) -> str:
    """The domain with ``ai.onnx`` spelled ``""``."""
    return "" if name == "ai.onnx" else name


def schema(op_type: str, domain: str, version: int) -> OpSchema | None:
    """The schema in force at that opset version, None where there is none."""
    try:
        return _schema(op_type, domain, version)
    except onnx.defs.SchemaError:
        return None  # and not remembered: one may be registered yet


@lru_cache(maxsize=4096)
def _schema(op_type: str, domain: str, version: int) -> OpSchema:
    return onnx.defs.get_schema(op_type, version, domain)


def attribute_kinds(op_type: str, domain: str, version: int) -> Mapping[str, int]:
    """The kind of every attribute (`onnx.AttributeProto.AttributeType`), by name."""
    found = schema(op_type, domain, version)
    return {} if found is None else _kinds(op_type, domain, version)


@lru_cache(maxsize=4096)
def _kinds(op_type: str, domain: str, version: int) -> Mapping[str, int]:
    found: Any = _schema(op_type, domain, version)  # onnx's stubs omit `value`
    return {name: attr.type.value for name, attr in found.attributes.items()}


def body_defaults(op_type: str, domain: str, version: int) -> tuple[AttributeProto, ...]:
    """The attributes with their defaults, of an op that is defined by a body of other ops."""
    found = schema(op_type, domain, version)
    return () if found is None else _defaults(op_type, domain, version)


@lru_cache(maxsize=4096)
def _defaults(op_type: str, domain: str, version: int) -> tuple[AttributeProto, ...]:
    found: Any = _schema(op_type, domain, version)
    if not found.has_function:
        return ()
    return tuple(a.default_value for a in found.attributes.values() if a.default_value.type)


def read_opsets(imports: Iterable[OperatorSetIdProto], where: str) -> dict[str, int]:
    """Opset versions by domain; ModelError for one that is too old, too new or contradictory."""
    opsets: dict[str, int] = {}
    for entry in imports:
        domain = domain_of(entry.domain)
        if opsets.setdefault(domain, entry.version) != entry.version:
            raise ModelError(
                f"domain {domain or 'ai.onnx'!r} is imported at versions {opsets[domain]} and "
                f"{entry.version}",
                where=where,
                hint="a model has one version of each opset",
            )
    _check_version(opsets.get(""), where)
    return opsets


def _check_version(version: int | None, where: str) -> None:
    newest = onnx.defs.onnx_opset_version()
    if version is None or OLDEST_OPSET <= version <= newest:
        return
    if version < OLDEST_OPSET:
        hint = "export it again, or raise it with onnx.version_converter.convert_version"
        oldest = OLDEST_OPSET if version > 0 else 1  # 1 to 6 come here with functions only
        raise ModelError(
            f"opset {version} is too old, the oldest supported is {oldest}",
            where=where,
            hint=hint,
        )
    raise ModelError(
        f"opset {version} is too new, onnx {onnx.__version__} knows up to {newest}",
        where=where,
        hint="install a newer onnx, or export with an older opset",
    )


class UnknownOps:
    """Gathers the nodes of a model whose ops are not known, for one message about all."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int | None], list[str]] = {}

    def check(self, node: NodeProto, name: str, opsets: Mapping[str, int]) -> None:
        """Notes the node if its op is not known at the opset that is imported."""
        domain = domain_of(node.domain)
        version = opsets.get(domain)
        known = None if version is None else schema(node.op_type, domain, version)
        if known is None and version is not None and is_contrib(domain, node.op_type):
            return
        if known is None or known.deprecated:
            self._found.setdefault((domain, node.op_type, version), []).append(name)

    def raise_if_any(self, where: str) -> None:
        """Raises the ModelError that lists them."""
        if not self._found:
            return
        lines, hints = [], []
        for (domain, op_type, version), nodes in islice(self._found.items(), _SHOWN_KINDS):
            title = shown_name(f"{domain}.{op_type}" if domain else op_type)
            shown = ", ".join(repr(n) for n in nodes[:_SHOWN_NODES])
            shown += ", ..." if len(nodes) > _SHOWN_NODES else ""
            count = f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}"
            at = (
                f"{shown_name(domain or 'ai.onnx')} {version}"
                if version is not None
                else "no opset imported"
            )
            reason, hint = _explain(op_type, domain, version)
            lines.append(f"{title} ({at}; {count}: {shown}): {reason}")
            hints.append(f"{title}: {hint}")
        if len(self._found) > _SHOWN_KINDS:
            lines.append(f"and {len(self._found) - _SHOWN_KINDS} kinds more")
        listed = "\n  ".join(lines)
        raise ModelError(
            f"the model has ops that are not known:\n  {listed}",
            where=where,
            hint="; ".join(dict.fromkeys(hints)),
        )


def _explain(op_type: str, domain: str, version: int | None) -> tuple[str, str]:
    """Why the op is not known, and what to try."""
    schemas = _all_schemas()
    history = sorted(
        (s for s in schemas if s.name == op_type and s.domain == domain),
        key=lambda s: s.since_version,
    )
    if version is None and history:
        return "no opset of its domain is imported", "add the domain to opset_import"
    if version is not None and history:
        current = schema(op_type, domain, version)
        if current is not None:
            return (
                f"withdrawn in opset {current.since_version}",
                "export again: newer opsets have another op for it",
            )
        first = history[0].since_version
        return f"new in opset {first}", f"export with opset {first} or newer"
    if domain == "com.microsoft.nchwc":
        return (
            "a layout for the processor that onnxruntime optimised the model on",
            "save the optimised model at level extended (ORT_ENABLE_EXTENDED), not all",
        )
    domains = {s.domain for s in schemas}
    if domain in domains:
        names = {s.name for s in schemas if s.domain == domain}
        return "there is no such op", nearest(op_type, names)
    standard = {s.name for s in schemas if not s.domain}
    hint = (
        f"ai.onnx has {op_type}: export with ops of ai.onnx only"
        if op_type in standard
        else "export without custom ops, or give the op as a function of the model"
    )
    return f"domain {domain!r} is not known", hint


def _all_schemas() -> tuple[OpSchema, ...]:
    return tuple(onnx.defs.get_all_schemas_with_history())
