"""Ranks simulated together: collectives meet, share links and memory, and wait for each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.cluster import Cluster
from gecompiler.backends.collectives import collective_cost
from gecompiler.backends.device import Device, load_device
from gecompiler.ir import parse
from gecompiler.ir.collective_ops import signature
from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.ir.parallel import Mesh
from gecompiler.ir.schedule import Communicator, Demand, Schedule, Task
from gecompiler.ir.timeline import Span, Timeline

DEVICE = load_device("ascend910b")
KINDS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AllToAll")
TOPOLOGIES = ("mesh8", "pairs", "nodes2", "supernode384", "dgx-a100", "a100-servers")

GRAPH = """graph @g (opset 20) {
  input %x: f16[64, 1024]
  %r = gecompiler.AllReduce(%x) {communicator = "tp", group_size = 4, reduction = "sum"}
  %g = gecompiler.AllGather(%r) {communicator = "dp", group_size = 2, axis = 0}
  %s = gecompiler.ReduceScatter(%g) {communicator = "tp", group_size = 4, axis = 1}
  %a = gecompiler.AllToAll(%s)
    {communicator = "tp", group_size = 4, split_axis = 0, concat_axis = 1}
  gecompiler.Send(%a) @send {communicator = "dp", group_size = 2, peer = 1, tag = 7}
  %y = gecompiler.Recv()
    {communicator = "dp", group_size = 2, peer = -1, tag = 7, dtype = "f16", shape = [32, 1024]}
  return %y
}
"""


def graph() -> Graph:
    found = parse(GRAPH)
    infer_types(found, strict=True)
    return found


def schedule(cluster: Cluster, parts: Sequence[tuple[str, int, Sequence[int], Demand]]) -> Schedule:
    """Tasks by name and stream; a row a rank, with the communicator of the ranks given."""
    tasks: list[Task] = []
    groups: dict[str, Communicator] = {}
    places: dict[tuple[int, int], int] = {}
    for name, stream, ranks, demand in parts:
        for rank in ranks:
            group = f"c{'-'.join(map(str, ranks))}" if len(ranks) > 1 else ""
            if group:
                groups[group] = Communicator(group, tuple(ranks))
            place = places.get((rank, stream), 0)
            places[rank, stream] = place + 1
            tasks.append(
                Task(
                    len(tasks), f"{rank}:{name}", "collective" if group else "kernel", stream,
                    place, demand=demand, rank=rank, communicator=group,
                )
            )  # fmt: skip
    return Schedule(
        "m", cluster.name, "hand", tuple(tasks), (), (), cluster.limits,
        communicators=tuple(groups.values()),
    )  # fmt: skip


def collectives(
    cluster: Cluster, rows: Sequence[tuple[str, int, tuple[int, ...], float]], kind: str
) -> Schedule:
    """Collectives by name, stream, ranks and size."""
    whole = schedule(cluster, [(n, s, r, Demand()) for n, s, r, _ in rows])
    sizes = {name: (ranks, size) for name, _, ranks, size in rows}
    tasks = []
    for task in whole.tasks:
        ranks, size = sizes[task.name.partition(":")[2]]
        cost = cluster.collective(kind, ranks, size)
        tasks.append(dataclasses.replace(task, demand=cost.demand(ranks.index(task.rank))))
    return dataclasses.replace(whole, tasks=tuple(tasks))


def run(cluster: Cluster, plan: Schedule) -> Timeline:
    timeline = cluster.simulator()(plan)
    timeline.verify()
    return timeline


def spans(timeline: Timeline, name: str) -> list[Span]:
    return [s for s in timeline.spans if s.name.partition(":")[2] == name]


def device_of(topology: str) -> Device:
    return load_device("a100" if "a100" in topology else "ascend910b")


@given(st.sampled_from(KINDS), st.sampled_from(TOPOLOGIES), st.floats(1.0, 1e9), st.integers(2, 8))
@settings(max_examples=60, deadline=None)
def test_alone_a_collective_takes_what_it_costs(
    kind: str, topology: str, size: float, count: int
) -> None:
    cluster = Cluster.of(device_of(topology), Mesh.of(tp=8), topology)
    ranks = tuple(range(count))
    timeline = run(cluster, collectives(cluster, [("c", 0, ranks, size)], kind))
    cost = cluster.collective(kind, ranks, size)
    demands = [cost.demand(place) for place in range(count)]
    alone = max(cluster.alone_us(d) for d in demands)
    assert alone >= cost.us * 0.999999
    hbm = max((d.load_bytes + d.store_bytes) for d in demands) / cluster.device.hbm_bytes_per_us
    l2 = max(d.l2_bytes for d in demands) / cluster.device.l2_bytes_per_us
    if max(hbm, l2) <= cost.transfer_us:
        assert alone == pytest.approx(cost.us)
    for span in timeline.spans:
        assert span.duration_ns == pytest.approx(alone * 1e3, abs=2)
        assert span.alone_ns == pytest.approx(alone * 1e3, abs=2)


@given(st.sampled_from(KINDS), st.floats(1e5, 1e8))
@settings(max_examples=20, deadline=None)
def test_collectives_on_other_links_do_not_slow_each_other(kind: str, size: float) -> None:
    cluster = Cluster.of(DEVICE, Mesh.of(tp=8), "mesh8")
    one = collectives(cluster, [("a", 0, (0, 1, 2, 3), size)], kind)
    both = collectives(cluster, [("a", 0, (0, 1, 2, 3), size), ("b", 0, (4, 5, 6, 7), size)], kind)
    assert run(cluster, both).makespan_ns == run(cluster, one).makespan_ns


@pytest.mark.parametrize("topology", ["mesh8", "supernode384"])
def test_two_on_the_same_links_get_half_each(topology: str) -> None:
    cluster = Cluster.of(DEVICE, Mesh.of(tp=8), topology, algorithm="mesh")
    ranks = tuple(range(0, 8, 2))
    size = 64e6
    one = run(cluster, collectives(cluster, [("a", 0, ranks, size)], "AllReduce"))
    both = run(
        cluster,
        collectives(cluster, [("a", 0, ranks, size), ("b", 1, ranks, size)], "AllReduce"),
    )
    cost = cluster.collective("AllReduce", ranks, size)
    busy = cost.pattern.us_per_byte * size
    assert both.makespan_ns - one.makespan_ns == pytest.approx(busy * 1e3, rel=0.05)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(KINDS),
            st.integers(0, 2),
            st.sets(st.integers(0, 7), min_size=2, max_size=8),
            st.floats(1e3, 1e8),
        ),
        min_size=1,
        max_size=5,
    )
)
@settings(max_examples=40, deadline=None)
def test_links_carry_what_is_sent_and_never_more_than_they_can(
    drawn: list[tuple[str, int, set[int], float]],
) -> None:
    cluster = Cluster.of(DEVICE, Mesh.of(tp=8), "nodes2")
    tasks: list[Task] = []
    groups: dict[str, Communicator] = {}
    for number, (kind, stream, members, size) in enumerate(drawn):
        ranks = tuple(sorted(members))
        part = collectives(cluster, [(f"{kind}{number}", stream, ranks, size)], kind)
        tasks += part.tasks
        groups |= {c.name: c for c in part.communicators}
    places: dict[tuple[int, int], int] = {}
    renumbered = []
    for i, task in enumerate(tasks):
        place = places.get((task.rank, task.stream), 0)
        places[task.rank, task.stream] = place + 1
        renumbered.append(dataclasses.replace(task, id=i, order=place, stream=0))
    order = dict.fromkeys(range(8), 0)
    for i, task in enumerate(renumbered):
        renumbered[i] = dataclasses.replace(task, order=order[task.rank])
        order[task.rank] += 1
    plan = Schedule(
        "m", cluster.name, "hand", tuple(renumbered), (), (), cluster.limits,
        communicators=tuple(groups.values()),
    )  # fmt: skip
    timeline = run(cluster, plan)
    wanted: dict[str, float] = {}
    for task in plan.tasks:
        for link, amount in task.demand.link_bytes:
            wanted[link] = wanted.get(link, 0.0) + amount
    curves = {u.resource: u for u in timeline.usage}
    for link, amount in wanted.items():
        curve = curves[link]
        carried = curve.mean(timeline.makespan_ns) * timeline.makespan_ns * curve.capacity / 1e3
        assert carried == pytest.approx(amount, rel=0.01, abs=curve.capacity * 0.02)
        assert max(curve.fractions) <= 1.0
    for span in timeline.spans:
        assert span.duration_ns >= span.alone_ns - 2


def test_whoever_comes_first_waits_for_the_last_and_says_so() -> None:
    cluster = Cluster.of(DEVICE, Mesh.of(tp=4), "mesh8")
    late = schedule(cluster, [("slow", 0, (2,), Demand(fixed_us=500.0))])
    plan = collectives(cluster, [("c", 0, (0, 1, 2, 3), 1e6)], "AllReduce")
    moved = [dataclasses.replace(t, id=t.id + 1, order=1 if t.rank == 2 else 0) for t in plan.tasks]
    timeline = run(cluster, dataclasses.replace(plan, tasks=(*late.tasks, *moved)))
    last = next(s for s in timeline.spans if s.name == "2:c")
    for span in spans(timeline, "c"):
        assert span.end_ns == last.end_ns
        if span is last:
            assert span.peer is None
            assert span.peer_ns == 0
        else:
            assert span.peer == last.task
            assert span.peer_ns == last.start_ns - span.start_ns
            assert span.bound_by == "peers"


def test_a_collective_takes_memory_bandwidth_from_a_kernel_beside_it() -> None:
    narrow = dataclasses.replace(DEVICE, name="narrow", hbm_bandwidth_gb_per_s=300.0)
    cluster = Cluster.of(narrow, Mesh.of(tp=8), "mesh8")
    ranks = tuple(range(8))
    comm = collectives(cluster, [("c", 1, ranks, 200e6)], "AllReduce")
    kernel = schedule(cluster, [("k", 0, (0,), Demand(load_bytes=200e6))]).tasks[0]
    alone = narrow.alone_us(kernel.demand)
    both = dataclasses.replace(
        comm, tasks=(*comm.tasks, dataclasses.replace(kernel, id=len(comm.tasks)))
    )
    timeline = run(cluster, both)
    (span,) = spans(timeline, "k")
    assert span.duration_ns > alone * 1e3 * 1.05
    assert timeline.makespan_ns >= run(cluster, comm).makespan_ns


def test_parts_names_and_channels() -> None:
    found, cluster = graph(), Cluster.of(DEVICE, Mesh.of(tp=4, dp=2), "mesh8")
    ops = {op.op_type: op for op in found.ops}
    assert cluster.at(6).communicator(ops["AllReduce"]) == Communicator("tp:4", (4, 5, 6, 7))
    assert cluster.at(6).communicator(ops["AllGather"]) == Communicator("dp:2", (2, 6))
    sent = cluster.at(2).communicator(ops["Send"])
    assert sent == Communicator("dp:2/2>6", (2, 6))
    assert cluster.at(6).communicator(ops["Recv"]) == sent
    assert signature(found, ops["Send"]) == signature(found, ops["Recv"]) == "sent #7 f16[32, 1024]"
    assert signature(found, ops["AllReduce"]) == "AllReduce sum f16[64, 1024]"


def test_every_part_of_a_graph_has_a_demand_of_its_cost() -> None:
    found, cluster = graph(), Cluster.of(DEVICE, Mesh.of(tp=4, dp=2), "mesh8")
    for op in found.ops:
        ranks = cluster.at(3).communicator(op).ranks
        cost = cluster.at(3).cost(found, op)
        demand = cluster.at(3).demand(found, op)
        assert demand == cost.demand(ranks.index(3))
        assert cluster.alone_us(demand) == pytest.approx(cost.us)
        assert cluster.engine(op) == "DNN_HCCL"
        for link, _ in demand.link_bytes:
            assert link.split(":")[0] in cluster.capacities()


def test_receiving_links_are_those_of_a_port_and_sending_those_of_a_wire() -> None:
    mesh, ports = (Cluster.of(DEVICE, Mesh.of(tp=2), t) for t in ("mesh8", "dgx-a100"))
    a, b = (
        tuple(dict(c.collective("Send", (0, 1), 1e6).demand(1).link_bytes)) for c in (mesh, ports)
    )
    assert a == ()
    assert b == ("nvlink:>1",)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="16 are wanted"):
        Cluster.of(DEVICE, Mesh.of(tp=16), "mesh8")
    with pytest.raises(UsageError, match="no topology 'mesh9'") as error:
        Cluster.of(DEVICE, Mesh.of(tp=8), "mesh9")
    assert "mesh8" in str(error.value)
    with pytest.raises(UsageError, match="no collective algorithm"):
        Cluster.of(DEVICE, Mesh.of(tp=8), "mesh8", algorithm="rings")
    with pytest.raises(UsageError, match="no collective 'AllReduc'"):
        Cluster.of(DEVICE, Mesh.of(tp=8), "mesh8", algorithm={"AllReduc": "ring"})
    cluster = Cluster.of(DEVICE, Mesh.of(tp=8), "mesh8")
    with pytest.raises(UsageError, match="4 ranks take part along 'tp'"):
        cluster.communicator(graph().op("r"))


def test_networks_grow_with_the_mesh_and_defaults_are_those_of_the_device() -> None:
    assert Cluster.of(DEVICE, Mesh.of(tp=8, dp=16), "pod64").topology.cards == 128
    assert Cluster.of(DEVICE, Mesh.of(tp=8)).topology.name == "mesh8"
    assert Cluster.of(DEVICE, Mesh.of(tp=8, dp=4)).topology.name == "pod64"
    assert Cluster.of(load_device("ascend910c"), Mesh.of(tp=16)).topology.name == "supernode384"
    custom = dataclasses.replace(DEVICE, name="mine")
    assert Cluster.of(custom, Mesh.of(tp=4)).topology.name == "flat"


def test_an_algorithm_may_be_set_for_one_collective() -> None:
    cluster = Cluster.of(DEVICE, Mesh.of(tp=8), "mesh8", algorithm={"AllReduce": "ring"})
    assert cluster.collective("AllReduce", tuple(range(8)), 1e6).algorithm == "ring"
    assert cluster.collective("AllGather", tuple(range(8)), 1e6).algorithm == "mesh"
    topology = cluster.topology
    assert collective_cost(topology, "AllReduce", tuple(range(8)), 1e6).algorithm == "mesh"
