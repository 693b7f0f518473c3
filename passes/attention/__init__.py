"""FlashAttention fusion: from any spelling of attention to one op, and back for export.

The way of one attention, and the file to look into (a new spelling is a few lines there):

- `anchors`: a softmax in every spelling; `sites`: which softmaxes are attention
  (`origin_kinds`);
- `probabilities`: from the softmax forward to the product with V (`PROBABILITY_STEPS`);
- `scores`: from the softmax back to the product of Q and K (`SCORE_STEPS`), `terms` and `scalars`:
  what is found on the way; `pieces`, `partials`: keys and values in pieces, put
  together before the softmax or after it;
- `contraction`: what a product is (`CONTRACTIONS`); `match`, `heads`: the roles of its axes;
- `layout` (`VIEWS`), `relayout`, `operands`: Q, K and V read back to the plainest value;
- `elements`, `element_rules` and `element_moves` (`RULES`, `MOVES`), `predicates`, `coordinates`:
  masks interpreted as formulas of (batch, head, query, key);
- `mask_terms`, `windows`, `masking`, `mask_trust`, `masks`, `magnitudes`: what masks
  come to, exactly, rows without a key included; `mask_emission`, `predicate_emission`, `sinks`:
  the tensors that remain;
- `plan`, `rewrite`, `escapes`, `remove`: the rewrite; `kv_cache`: state; `fuse`: the pass;
- `attention_op`: ops that are attention already (`ATTENTION_OPS`); `contrib_heads`,
  `contrib_grouped`, `contrib_rotation`, `contrib_operands`, `growing_cache`: those of onnxruntime;
- `expand`, `expansion`, `expand_attention`, `expand_primitives`: plain ONNX again.

Steps raise `Refusal` with the node's name and what was found there; the report shows it.
"""
