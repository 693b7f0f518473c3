"""A net under fusion passes: what was fused is run against what it replaced, and undone if wrong.

- `difference` finds the values that a pass made anew, by comparing the graph before and after;
- `regions` cuts out what computes such a value on either side, from the same inputs;
- `sizes` and `samples` choose sizes and numbers that bring mistakes to light;
- `widening` writes a region with wider floats, to tell rounding from mistakes;
- `comparison` runs both sides and judges; `checked_pass` repeats the pass without what differs.

Nothing here knows a fusion or an op: passes need not cooperate, but for leaving alone the ops
named in ``PassContext.left_alone``. Numbers come from an evaluator that is handed in.
"""
