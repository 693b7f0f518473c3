"""Pipeline parallelism: stages of a model that work on one micro-batch after the other.

`orders` says which step a stage runs when, `sequence` puts the steps of all stages in one order,
and `unroll` writes the program of all micro-batches.
"""

from gecompiler.passes.pipeline_parallel.orders import ORDERS, OrderKind, PipelineShape, Step
from gecompiler.passes.pipeline_parallel.sequence import Placed, sequence
from gecompiler.passes.pipeline_parallel.unroll import unroll

__all__ = ["ORDERS", "OrderKind", "PipelineShape", "Placed", "Step", "sequence", "unroll"]
