"""The graph engine's engines, and how each takes part in stream allocation.

From CANN GE, ``engine_conf.json`` and ``engine_manager.cc`` (behaviour only).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Engine:
    """How the units of an engine get their streams.

    ``independent``: a stream of their own, shared with no other engine; ``skip``: need no
    stream; ``attach``: may ride on a predecessor's stream whatever its engine; ``cost``: of
    several predecessors whose stream may be reused the one of least cost is taken.
    """

    independent: bool = False
    skip: bool = False
    attach: bool = False
    cost: int = 2


ENGINES: dict[str, Engine] = {
    "AIcoreEngine": Engine(cost=1),
    "VectorEngine": Engine(),
    "DSAEngine": Engine(),
    "DNN_HCCL": Engine(independent=True),
    "DNN_VM_AICPU": Engine(attach=True, cost=3),
    "DNN_VM_AICPU_ASCEND": Engine(attach=True, cost=4),
    "DNN_VM_DVPP": Engine(attach=True, cost=5),
    "DNN_VM_RTS": Engine(attach=True),
    "DNN_VM_GE_LOCAL": Engine(skip=True, attach=True, cost=9),
    "DNN_VM_HOST_CPU": Engine(skip=True, attach=True, cost=10),
    "DNN_VM_CUSTOM": Engine(cost=0),
}

UNKNOWN = Engine()
