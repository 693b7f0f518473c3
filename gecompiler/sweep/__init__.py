"""Sweeps: one model compiled for many sizes, streams, strategies and devices.

`run_sweep` compiles each point once, on all local cores or on a dask cluster, keeps what is
finished in a journal, and gives the same rows in the same order wherever they were computed.
"""

from gecompiler.sweep.points import Point, grid
from gecompiler.sweep.row import Row
from gecompiler.sweep.run import Sweep, run_sweep

__all__ = ["Point", "Row", "Sweep", "grid", "run_sweep"]
