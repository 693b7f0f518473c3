"""What collectives cost on topologies that can be worked out by hand."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.collectives import ALGORITHMS, all_costs, collective_cost
from gecompiler.backends.device import load_device
from gecompiler.backends.topology import Protocol, Rate, Tier, Topology, load_topology
from gecompiler.ir.collective_ops import COLLECTIVES
from gecompiler.ir.errors import UsageError

DEVICE = load_device("ascend910b")
RATE = {"any": Rate(2.0, 1.0)}
ANY = Protocol("any", COLLECTIVES, 10.0)


def topology(*tiers: Tier, copy: float = 1e6) -> Topology:
    return Topology("hand", "", tiers[-1].span, tiers, (ANY,), copy)


MESH = topology(Tier("hccs", 8, 1, "mesh", 10.0, RATE))
SWITCH = topology(Tier("nv", 8, 1, "switch", 10.0, RATE))
NODES = topology(
    Tier("hccs", 4, 1, "mesh", 10.0, RATE),
    Tier("roce", 8, 4, "switch", 1.0, {"any": Rate(20.0, 1.0)}),
)
EIGHT = tuple(range(8))
MB = 1e6


def test_a_mesh_reduces_in_two_steps_of_an_eighth_each() -> None:
    cost = all_costs(MESH, "AllReduce", EIGHT, 8 * MB)["mesh"]
    assert cost.latency_us == pytest.approx(10 + 2 * 2)
    assert cost.transfer_us == pytest.approx(2 * MB / 10e3 + 1e6 / 1e9, rel=1e-3)
    assert cost.sent_bytes == pytest.approx(2 * 7 * MB)


def test_a_ring_takes_a_step_for_every_other_card_twice() -> None:
    cost = all_costs(SWITCH, "AllReduce", EIGHT, 8 * MB)["ring"]
    assert cost.latency_us == pytest.approx(10 + 14 * 2)
    assert cost.transfer_us == pytest.approx(14 * MB / 10e3, rel=1e-3)


def test_links_of_a_step_are_shared_by_what_passes_them() -> None:
    direct = all_costs(SWITCH, "AllGather", EIGHT, 8 * MB)["mesh"]
    assert direct.transfer_us == pytest.approx(7 * MB / 10e3, rel=1e-3)
    assert direct.latency_us == pytest.approx(12)
    wires = all_costs(MESH, "AllGather", EIGHT, 8 * MB)["mesh"]
    assert wires.transfer_us == pytest.approx(MB / 10e3, rel=1e-2)


def test_units_first_then_across_them() -> None:
    cost = all_costs(NODES, "AllReduce", EIGHT, 8 * MB)["hierarchical"]
    inner, outer = 2 * 2 * MB / 10e3, 2 * MB / 1e3
    assert cost.transfer_us == pytest.approx(inner + outer, rel=1e-2)
    assert cost.latency_us == pytest.approx(10 + 2 * 2 + 2 * 20)
    assert collective_cost(NODES, "AllReduce", EIGHT, 8 * MB).algorithm == "hierarchical"


def test_only_those_that_wait_for_the_slow_link_have_its_latency() -> None:
    cost = all_costs(NODES, "AllGather", EIGHT, 8.0)["ring"]
    assert cost.pattern.latency_us == pytest.approx(5 * 2 + 2 * 20)


def test_small_messages_take_few_steps_and_large_ones_few_bytes() -> None:
    assert collective_cost(SWITCH, "Broadcast", EIGHT, 64.0).algorithm in ("mesh", "tree")
    assert collective_cost(NODES, "AllReduce", EIGHT, 64.0).steps <= 6
    one = collective_cost(NODES, "AllToAll", EIGHT, 64.0)
    assert one.algorithm == "mesh"


def test_messages_leave_a_card_one_after_the_other() -> None:
    slow = dataclasses.replace(ANY, issue_us=1.0)
    found = dataclasses.replace(MESH, protocols=(slow,))
    assert all_costs(found, "AllToAll", EIGHT, 8.0)["mesh"].latency_us == pytest.approx(10 + 2 + 6)


def test_an_algorithm_may_be_forced() -> None:
    forced = collective_cost(MESH, "AllReduce", EIGHT, MB, algorithm="ring")
    assert forced.algorithm == "ring"
    assert collective_cost(MESH, "AllToAll", EIGHT, MB, algorithm="ring").algorithm == "mesh"
    with pytest.raises(UsageError, match="no algorithm 'rings'") as error:
        collective_cost(MESH, "AllReduce", EIGHT, MB, algorithm="rings")
    assert "ring" in str(error.value)


def test_a_group_of_one_moves_nothing() -> None:
    cost = collective_cost(MESH, "AllReduce", (3,), MB)
    assert cost.us == 0
    assert cost.demand(0).least_us == 0
    assert not cost.demand(0).link_bytes


def test_a_card_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="card 8 is not there"):
        collective_cost(MESH, "AllReduce", (0, 8), MB)


@given(
    kind=st.sampled_from(["AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AllToAll"]),
    name=st.sampled_from(["mesh8", "pairs", "nodes2", "supernode384", "dgx-a100", "a100-servers"]),
    size=st.floats(1.0, 1e9),
    cards=st.sets(st.integers(0, 15), min_size=2, max_size=8),
)
@settings(max_examples=80, deadline=None)
def test_costs_grow_with_the_message_and_links_carry_what_is_sent(
    kind: str, name: str, size: float, cards: set[int]
) -> None:
    topology = load_topology(name, DEVICE)
    group = tuple(c % topology.cards for c in sorted(cards))
    if len(set(group)) < 2 or len(set(group)) < len(group):
        return
    for algorithm, cost in all_costs(topology, kind, group, size).items():
        assert algorithm in ALGORITHMS
        same = [c for c in (size * 1.5,) if topology.protocol(kind, group, c) is cost.protocol]
        for larger in same:
            assert all_costs(topology, kind, group, larger)[algorithm].us >= cost.us
        carried: dict[str, float] = {}
        for place in range(len(group)):
            for link, amount in cost.demand(place).link_bytes:
                carried[link] = carried.get(link, 0.0) + amount
        for link, amount in carried.items():
            assert (
                amount / topology.link_rate(link, cost.protocol.name) <= cost.transfer_us * 1.0001
            )
        sent = sum(cost.part(p).sent for p in range(len(group)))
        received = sum(cost.part(p).received for p in range(len(group)))
        assert sent == pytest.approx(received)


def test_reductions_take_vector_cores_where_the_protocol_has_some() -> None:
    cored = dataclasses.replace(ANY, vector_cores=4)
    found = dataclasses.replace(MESH, protocols=(cored,))
    cost = collective_cost(found, "AllReduce", EIGHT, 8 * MB)
    demand = cost.demand(0, vector_bytes_per_us=1e3)
    assert demand.vector_cores == 4
    assert demand.vector_us == pytest.approx(7 * MB / 1e3)
    assert collective_cost(MESH, "AllReduce", EIGHT, 8 * MB).demand(0, 1e3).vector_us == 0
