"""Writing the optimised graph as plain ONNX that any runtime runs."""

from __future__ import annotations

from pathlib import Path

from gecompiler.ir.graph import Graph


def save_model(graph: Graph, path: Path, target_opset: int | None = None) -> None:
    """Expands the fused ops on a copy and saves it; symbols and weights stay as they are.

    ``target_opset`` is the version of ai.onnx to write (default: the graph's own); ModelError
    names an op that has no form there.

    Weights whose data lies elsewhere leave as they came, with the ops that were folded into
    them restored, so that the model finds its data file when that is there.
    """
    from gecompiler.ir.onnx_io.exporter import save_onnx
    from gecompiler.passes import PassContext, Pipeline

    plain = graph.copy()
    target = f"convert-opset{{target={target_opset}}}," if target_opset else ""
    Pipeline.parse(f"{target}expand-fused,restore-derived").run(plain, PassContext())
    save_onnx(plain, path)
