"""A model for several cards: tensor, sequence, data, expert and pipeline parallel.

program = parallelise(graph, Mesh.of(tp=4, dp=2))
"""

from gecompiler.passes.parallel.parallelise import parallelise
from gecompiler.passes.parallel.plan import ParallelOptions

__all__ = ["ParallelOptions", "parallelise"]
