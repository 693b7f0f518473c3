"""Which operator, at which opset, a node test is about."""

from __future__ import annotations

import re
import warnings
from typing import NamedTuple

from onnx import ModelProto


class Subject(NamedTuple):
    """An operator at the opset that a test's model imports."""

    op: str
    opset: int


def subjects() -> dict[str, Subject]:
    """The subject of every node test by its name.

    A test whose name ends in ``_expanded`` runs the operator's definition by other operators; it
    is about the same operator as the test without that.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import numpy as np
        from onnx.backend.test.loader import load_model_tests

        with np.errstate(all="ignore"):
            models = {c.name: c.model for c in load_model_tests(kind="node") if c.model}
    found: dict[str, Subject] = {}
    for name, model in sorted(models.items()):
        base = re.sub(r"_expanded(_ver\d+)?$", "", name)
        found[name] = _subject(models.get(base, model), name)
    return found


def _subject(model: ModelProto, test: str) -> Subject:
    """The node that gives the test its name, else the last one."""
    plain = test.replace("_", "").lower()
    nodes = [n for n in model.graph.node if n.op_type.lower() in plain]
    node = max(nodes, key=lambda n: len(n.op_type), default=model.graph.node[-1])
    opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}
    domain = "" if node.domain == "ai.onnx" else node.domain
    op = f"{domain}.{node.op_type}" if domain else node.op_type
    return Subject(op, opsets[domain])
