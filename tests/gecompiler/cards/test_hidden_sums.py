"""Two parts of a batch side by side, constructed so that what shows can be worked out by hand.

Each of L layers is two products of A us together, and an all-reduce of C us. Two parts compute on
one stream, and their sums go one after the other on another. The first products have nothing
beside them, the last sum neither. Where C <= A every other sum hides behind the other part's
products: exposed is C. Where C >= A the sums go on without a break from the end of the first
products: they end at A + 2 L C, of which the products cover 2 L A, so that 2 L C - (2 L - 1) A
shows. Beside that lie the gaps between tasks.
"""

from __future__ import annotations

from bisect import bisect_left

import pytest

from gecompiler.backends.cluster import Cluster
from gecompiler.backends.device import load_device
from gecompiler.cards.schedule import CardsResult, schedule_cards
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.parallel import Mesh, ParallelProgram, Template
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.pipeline_parallel import PipelineShape

LAYERS, CARDS, WIDTH, ROWS, STEP = 4, 4, 1024, 4096, 64
MESH = Mesh.of(tp=CARDS)


def program(inner: int) -> ParallelProgram:
    """Layers of ``ROWS x WIDTH``, whose products go through ``inner`` columns."""
    graph = Graph("layers", {"": 20, GE_DOMAIN: 1})
    whole = TensorType(DType.F16, (ROWS, WIDTH))
    value = graph.add_input("x", whole)
    for n in range(LAYERS):
        up = graph.add_input(f"u{n}", TensorType(DType.F16, (WIDTH, inner)))
        down = graph.add_input(f"d{n}", TensorType(DType.F16, (inner, WIDTH)))
        middle = TensorType(DType.F16, (ROWS, inner))
        graph.add_op(Op(f"up{n}", "MatMul", (value, up), (f"h{n}",)), [middle])
        graph.add_op(Op(f"down{n}", "MatMul", (f"h{n}", down), (f"y{n}",)), [whole])
        attrs = {"communicator": "tp", "group_size": CARDS, "reduction": "sum"}
        total = Op(f"ar{n}", "AllReduce", (f"y{n}",), (f"z{n}",), attrs, GE_DOMAIN)
        graph.add_op(total, [whole])
        value = f"z{n}"
    graph.set_outputs([value])
    return ParallelProgram(MESH, (Template(graph),), (0,) * CARDS)


def cluster() -> Cluster:
    return Cluster.of(load_device("ascend910b"), MESH, "mesh8")


def times(inner: int) -> tuple[float, float]:
    """A and C: the products of a layer with the gap between them, and its sum, each alone."""
    own, graph = cluster(), program(inner).templates[0].graph
    up, down, total = (
        own.alone_us(own.demand(graph, graph.op(name))) for name in ("up0", "down0", "ar0")
    )
    return up + down + own.task_gap_us, total


def equal_inner() -> int:
    """The width with which products take as long as the sum, as closely as widths allow."""
    widths = range(STEP, 64 * WIDTH, STEP)
    return widths[bisect_left(widths, True, key=lambda n: times(n)[0] >= times(n)[1])]


def run(inner: int) -> CardsResult:
    shape = PipelineShape(1, 2, training=False, abreast=2)
    return schedule_cards(program(inner), cluster(), shape)


@pytest.mark.parametrize("kind", ["shorter", "equal", "longer"])
def test_what_shows_is_what_is_worked_out_by_hand(kind: str) -> None:
    equal = equal_inner()
    inner = {"shorter": 2 * equal, "equal": equal, "longer": equal // 4}[kind]
    compute, total = times(inner)
    if kind == "equal":
        assert compute == pytest.approx(total, rel=0.02)
    by_hand = max(total, 2 * LAYERS * total - (2 * LAYERS - 1) * compute)
    found, own = run(inner), cluster()
    gaps = 2 * LAYERS * 2 * (own.task_gap_us + own.event_us)
    for figures in found.figures:
        assert by_hand - gaps <= figures.exposed_us <= by_hand + gaps
    makespan = found.timeline.makespan_ns / 1000
    whole = 2 * LAYERS * compute + by_hand
    assert whole - gaps <= makespan <= whole + 3 * gaps
    assert found.schedule.findings() == []


def test_whole_and_one_after_the_other_hide_nothing() -> None:
    inner = equal_inner()
    _, total = times(inner)
    in_turn = schedule_cards(
        program(inner), cluster(), PipelineShape(1, 2, training=False), memory=False
    )
    for figures in in_turn.figures:
        assert figures.exposed_us == pytest.approx(2 * LAYERS * total, rel=0.02)
