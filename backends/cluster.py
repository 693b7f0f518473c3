"""Several cards of one device, linked as a topology says: the Target of a parallel program.

With ``cluster = Cluster.of(load_device("ascend910b"), Mesh.of(tp=8), "mesh8")``, rank 3 asks for
``cluster.at(3).demand(graph, op)``, a collective by its cheapest algorithm;
``cluster.communicator(op)`` says who takes part under which name, and
``cluster.simulator()(schedule)`` runs all ranks in one timeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from gecompiler.backends.collectives import AUTO, CHOICES, Cost, collective_cost
from gecompiler.backends.device import Device
from gecompiler.backends.simulator import Simulator
from gecompiler.backends.simulator.fluid import LinkRate, phases
from gecompiler.backends.topology import Topology, default_topology, load_topology
from gecompiler.ir.collective_ops import (
    COLLECTIVES,
    POINT_TO_POINT,
    SEND,
    channel,
    is_collective_op,
    message_bytes,
    message_value,
)
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Mesh
from gecompiler.ir.schedule import Communicator, Demand, Limits, Link


@dataclass(frozen=True)
class Cluster:
    """See the module's docstring; implements `Target` for the tasks of one ``rank``.

    Rank r lies on card r. ``algorithm`` is ``auto`` or one of the algorithms, for all
    collectives or by op type; where the one named does not make a collective, the cheapest does.
    """

    device: Device
    topology: Topology
    mesh: Mesh
    rank: int = 0
    algorithm: str | Mapping[str, str] = field(default=AUTO, hash=False)

    def __post_init__(self) -> None:
        if self.mesh.size > self.topology.cards:
            raise UsageError(
                f"{self.mesh} are {self.mesh.size} ranks, and {self.topology.name} has "
                f"{self.topology.cards} cards",
                where="topology",
                hint="a larger topology, or fewer ranks",
            )
        chosen = self.algorithm
        for name in (chosen,) if isinstance(chosen, str) else chosen.values():
            if name not in CHOICES:
                raise UsageError(
                    f"no collective algorithm {name!r}",
                    where="collective_algorithm",
                    hint=nearest(name, CHOICES),
                )
        for op_type in () if isinstance(chosen, str) else chosen:
            if op_type not in COLLECTIVES:
                raise UsageError(
                    f"no collective {op_type!r}",
                    where="collective_algorithm",
                    hint=nearest(op_type, COLLECTIVES),
                )

    @staticmethod
    def of(
        device: Device,
        mesh: Mesh,
        topology: str | Topology | None = None,
        *,
        algorithm: str | Mapping[str, str] = AUTO,
    ) -> Cluster:
        """A cluster with a topology by name or file, by default what is usual for the device.

        Where the topology has fewer cards than the mesh has ranks, its last tier grows if it is
        a network. UsageError when it does not.
        """
        if topology is None:
            topology = default_topology(device, mesh.size)
        elif isinstance(topology, str):
            topology = load_topology(topology, device)
        return Cluster(device, topology.at_least(mesh.size), mesh, 0, algorithm)

    def at(self, rank: int) -> Cluster:
        """The same as another rank sees it."""
        return self if rank == self.rank else replace(self, rank=rank)

    # ------------------------------------------------------------------ Target

    @property
    def name(self) -> str:
        """The device's name."""
        return self.device.name

    @property
    def limits(self) -> Limits:
        """Those of one card."""
        return self.device.limits

    @property
    def task_gap_us(self) -> float:
        """Time between two tasks of one stream."""
        return self.device.task_gap_us

    @property
    def event_us(self) -> float:
        """Time from a task's end to the start of a task of another stream waiting for it."""
        return self.device.event_us

    def engine(self, op: Op) -> str:
        """GE's engine for the op; of collectives DNN_HCCL, which has a stream of its own."""
        return self.device.engine(op)

    def demand(self, graph: Graph, op: Op) -> Demand:
        """What the rank's task of the op asks; of a collective its part, by `cost`."""
        if not is_collective_op(op):
            return self.device.demand(graph, op)
        ranks = self.communicator(op).ranks
        found = graph.tensor(message_value(op))
        bits = found.dtype.bits if found is not None else 16
        adding = self.device.vector_lanes_per_us(bits) * max(bits, 8) / 8
        return self.cost(graph, op).demand(ranks.index(self.rank), adding)

    def alone_us(self, demand: Demand) -> float:
        """How long a task takes with nothing beside it, its peers being there."""
        return demand.fixed_us + sum(p.us for p in phases(self.device, demand, self._link_rate))

    def capacities(self) -> dict[str, float]:
        """Units of work per microsecond of each resource; links by their tier's name."""
        tiers = {name: self.topology.link_bytes_per_us(name) for name in self.topology.link_names}
        return {**self.device.capacities(), **tiers}

    def links(self) -> tuple[Link, ...]:
        """What the topology's links carry, for a schedule to keep."""
        rate = self.topology.link_bytes_per_us
        return tuple(Link(name, rate(name)) for name in self.topology.link_names)

    def work(self, demand: Demand) -> dict[str, float]:
        """The task's work on each resource, in the units of `capacities`; links by own name."""
        return self.device.work(demand)

    # ------------------------------------------------------------- collectives

    def communicator(self, op: Op) -> Communicator:
        """Who takes part in the rank's collective: the group along the op's axes, in order.

        Of a Send or Recv the two ranks, sender first, under a name of their own.
        """
        axes = str(op.attr("communicator"))
        group = self.mesh.group(axes, self.rank)
        name = self.mesh.communicator(axes, self.rank)
        size = op.attr("group_size", len(group))
        if size != len(group):
            raise UsageError(
                f"{size} ranks take part along {axes!r}, and the mesh has {len(group)} there",
                where=f"op {op.name!r}",
            )
        if op.op_type not in POINT_TO_POINT:
            return Communicator(name, group)
        other = group[(group.index(self.rank) + int(op.attr("peer", 1))) % len(group)]
        pair = (self.rank, other) if op.op_type == SEND else (other, self.rank)
        return Communicator(channel(name, *pair), pair)

    def cost(self, graph: Graph, op: Op) -> Cost:
        """What the collective costs, with its algorithm, protocol and links."""
        return self.collective(
            op.op_type,
            self.communicator(op).ranks,
            float(message_bytes(graph, op)),
            root=int(op.attr("root", 0)),
        )

    def collective(
        self, op_type: str, ranks: tuple[int, ...], size_bytes: float, *, root: int = 0
    ) -> Cost:
        """What such a collective among those ranks costs; sizes as in `collective_cost`."""
        chosen = self.algorithm
        name = chosen if isinstance(chosen, str) else chosen.get(op_type, AUTO)
        return collective_cost(self.topology, op_type, ranks, size_bytes, root=root, algorithm=name)

    def simulator(self, *, launch: str | None = None) -> Simulator:
        """What runs schedules of all ranks, with the topology's links."""
        return Simulator(self.device, launch=launch, topology=self.topology)

    @cached_property
    def _link_rate(self) -> LinkRate:
        return partial(self.topology.link_or_device, self.device)
