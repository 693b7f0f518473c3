"""Several ranks: the mesh they form, how tensors lie on it, and the program that they run.

    mesh = Mesh.of(tp=4, dp=2)                 ranks 0 to 7; tp neighbours are next to each other
    sharding = Sharding.of(2, {1: "tp"})       columns over tp, the same on both of dp
    sharding.local_shape((4096, 11008), mesh)  (4096, 2752)

The words are those of GSPMD (Xu et al. 2021) and of Megatron-LM (Shoeybi et al. 2019).
"""

from gecompiler.ir.parallel.layout import Layout, Product, Segments, Split
from gecompiler.ir.parallel.mesh import AXES, Mesh
from gecompiler.ir.parallel.program import Note, ParallelProgram, Template, Whole
from gecompiler.ir.parallel.sharding import Sharding

__all__ = [
    "AXES",
    "Layout",
    "Mesh",
    "Note",
    "ParallelProgram",
    "Product",
    "Segments",
    "Sharding",
    "Split",
    "Template",
    "Whole",
]
