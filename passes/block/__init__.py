"""Fusion of what surrounds attention in a transformer block: norms, rotary, activations.

Small rules, each from one valid graph to the next; `region` sees to it that none hides a value.

- `norm_core` finds the quotient that ends a norm, `norm_parts` has the spellings of its parts
  (a new one goes there), `norm_factored` TensorFlow's order, `norm_tail` takes in scale, shift
  and the cast back, `norm_turned` handles axes before the last, `add_norm` the residual sum;
  `norm_op` reads and makes norms.
- `rotary` looks at ops that may end a rotation; `lane_reader` turns what they compute into the
  normal form of `lanes` (an op that moves lanes is one entry in `lane_moves`), `rotary_form`
  recognises it, `rotary_tables` and `columns` make the tables, `rotary_op` the op.
- `activations` knows which numbers make which activation, `polynomial` reads them off; `gated`
  takes in biases, gates and casts; `activation_op` reads and makes activations.
- `contrib`, `contrib_embed` and `contrib_moves` read the ops that onnxruntime's optimizer writes.
- `rotary_broadcast`: tables that are copied for the batch are one table again.
- `expand` and its three helpers write the ops as plain ONNX again.
"""
