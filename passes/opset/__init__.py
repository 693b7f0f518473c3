"""Graphs in another version of ai.onnx.

- `forms`: whether an op means the same in both versions as it stands, by its schemas;
- `adapters`: ops whose form changed, rewritten (a new one is an entry in `ADAPTERS`);
- `fused`: ops that stand for several and came later, as the product's own, to be expanded;
- `convert`: the pass.
"""
