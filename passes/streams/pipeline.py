"""The strategy ``pipeline``."""

from __future__ import annotations

from gecompiler.passes.streams.critical_path import CriticalPath


class Pipeline(CriticalPath):
    """Micro-batches follow each other through the streams, pipeline_depth of them in flight.

    The batch is split by `passes.micro_batch` before this strategy sees the tasks; what is left
    to do is to place the parts. They are independent, so that one part's computing runs beside
    another's memory traffic.
    """

    name = "pipeline"
