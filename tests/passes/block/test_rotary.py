"""Rotary embedding in each spelling becomes one op, with the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from block_help import FUSE, Net, check, expanded, feeds_of, fused, kinds
from rewriting_help import run

from gecompiler.ir import Graph, parse
from gecompiler.ir.infer import infer_types
from gecompiler.passes.canonical.canonicalize import Canonicalize
from gecompiler.passes.pass_base import PassContext

X = "f32[b, 2, s, 8]"


def angles(net: Net, dim: int = 8, way: str = "half") -> str:
    """(1, 1, S, dim): each angle twice, for both lanes of its pair."""
    place = net.input("place", "f32[1, 1, s, 1]")
    angle = net("Mul", place, net.const((1.0 / 3 ** np.arange(dim // 2)).round(4)))
    if way == "half":
        return str(net("Concat", angle, angle, axis=-1))
    if way == "single":
        return str(angle)
    pair = net.unsqueezed(angle)
    if way == "stack":
        both = net("Concat", pair, pair, axis=-1)
    else:
        both = net("Expand", pair, net.ints(1, 1, 1, 1, 2))
    return str(net("Reshape", both, net.ints(1, 1, -1, dim)))


def tables(net: Net, dim: int = 8, way: str = "half") -> tuple[str, str]:
    angle = angles(net, dim, way)
    return net("Cos", angle), net("Sin", angle)


class RotaryNet(Net):
    def unsqueezed(self, value: str) -> str:
        return str(self("Unsqueeze", value, self.ints(-1)))


def halves(net: Net, x: str, way: str, dim: int = 8, start: int = 0) -> tuple[str, str]:
    half = dim // 2
    if way == "split":
        a, b = net("Split", x, net.ints(half, half), outputs=2, axis=-1)
        return a, b
    if way == "gather":
        a, b = (net("Gather", x, net.ints(*range(n, n + half)), axis=-1) for n in (0, half))
        return a, b
    return net.cut(x, start, start + half), net.cut(x, start + half, start + dim)


def rotate_half(net: Net, x: str, way: str, dim: int = 8, start: int = 0) -> str:
    a, b = halves(net, x, way, dim, start)
    return str(net("Concat", net("Neg", b), a, axis=-1))


def turned(net: Net, x: str, cos: str, sin: str, way: str = "slice") -> str:
    return str(net("Add", net("Mul", x, cos), net("Mul", rotate_half(net, x, way), sin)))


def rotary(graph: Graph) -> dict[str, object]:
    (op,) = [o for o in graph.ops if o.op_type == "RotaryEmbedding"]
    return dict(op.attrs)


def table_widths(graph: Graph) -> list[object]:
    (op,) = [o for o in graph.ops if o.op_type == "RotaryEmbedding"]
    return [(graph.shape(v) or ())[-1] for v in op.inputs[1:3]]


MADE = {"Mul": 1, "Cos": 1, "Sin": 1, "RotaryEmbedding": 1}
"""With tables computed once for each pair."""


@pytest.mark.parametrize("way", ["slice", "split", "gather"])
@pytest.mark.parametrize("swap", [False, True])
def test_rotate_half(way: str, swap: bool) -> None:
    for kind in (X, "f32[b, s, 2, 8]"):
        net = RotaryNet()
        net.swap = swap
        x = net.input("x", kind)
        cos, sin = tables(net)
        if kind != X:
            cos, sin = (net("Transpose", t, perm=[0, 2, 1, 3]) for t in (cos, sin))
        net.out(turned(net, x, cos, sin, way))
        wanted = {**MADE, **({"Squeeze": 2, "Unsqueeze": 2} if kind != X else {})}
        graph = check(net, wanted)
        assert rotary(graph) == {"dim": 8, "start": 0, "style": "half"}
        assert table_widths(graph) == [4, 4]


def test_halves_computed_apart() -> None:
    net = RotaryNet()
    x = net.input("x", X)
    cos, sin = tables(net, way="single")
    a, b = halves(net, x, "split")
    first = net("Sub", net("Mul", a, cos), net("Mul", b, sin))
    second = net("Add", net("Mul", b, cos), net("Mul", a, sin))
    net.out(net("Concat", first, second, axis=-1))
    graph = check(net, MADE)
    assert rotary(graph)["style"] == "half"


def test_halves_with_halves_of_whole_tables() -> None:
    net = RotaryNet()
    x, cos, sin = net.input("x", X), net.input("c", "f32[1, 1, s, 8]"), net.input("t", "f32[s, 8]")
    a, b = halves(net, x, "slice")
    cosines, sines = halves(net, cos, "split"), halves(net, sin, "slice")
    first = net("Sub", net("Mul", a, cosines[0]), net("Mul", sines[0], b))
    second = net("Add", net("Mul", b, cosines[1]), net("Mul", a, sines[1]))
    net.out(net("Concat", first, second, axis=3))
    graph = check(net, {"RotaryEmbedding": 1})
    assert table_widths(graph) == [8, 8]


def test_one_table_that_holds_cos_and_sin() -> None:
    net = RotaryNet()
    x, cache = net.input("x", X), net.input("cache", "f32[s, 8]")
    cos, sin = halves(net, cache, "split")
    a, b = halves(net, x, "split")
    first = net("Sub", net("Mul", a, cos), net("Mul", b, sin))
    second = net("Add", net("Mul", b, cos), net("Mul", a, sin))
    net.out(net("Concat", first, second, axis=-1))
    graph = check(net, {"Split": 1, "RotaryEmbedding": 1})
    assert table_widths(graph) == [4, 4]


# ------------------------------------------------------------------ interleaved


def pairs(net: Net, x: str, way: str) -> tuple[str, str]:
    if way == "step":
        return net.cut(x, 0, 8, 2), net.cut(x, 1, 8, 2)
    split = net("Reshape", x, net.ints(0, 0, 0, 4, 2))
    if way == "gather":
        a, b = (net("Gather", split, net.const(n, "i64"), axis=-1) for n in (0, 1))
        return a, b
    parts = net("Split", split, net.ints(1, 1), outputs=2, axis=-1)
    a, b = (net("Squeeze", p, net.ints(-1)) for p in parts)
    return a, b


def stacked(net: RotaryNet, a: str, b: str) -> str:
    both = net("Concat", net.unsqueezed(a), net.unsqueezed(b), axis=-1)
    return str(net("Reshape", both, net.ints(0, 0, 0, 8)))


@pytest.mark.parametrize("way", ["step", "gather", "split"])
def test_interleaved_as_complex_numbers(way: str) -> None:
    net = RotaryNet()
    x = net.input("x", X)
    cos, sin = tables(net, way="single")
    a, b = pairs(net, x, way)
    real = net("Sub", net("Mul", a, cos), net("Mul", b, sin))
    imaginary = net("Add", net("Mul", a, sin), net("Mul", b, cos))
    net.out(stacked(net, real, imaginary))
    graph = check(net, MADE)
    assert rotary(graph)["style"] == "interleaved"
    assert table_widths(graph) == [4, 4]


@pytest.mark.parametrize("way", ["step", "gather", "split"])
@pytest.mark.parametrize("table", ["stack", "expand"])
def test_interleaved_with_repeated_tables(way: str, table: str) -> None:
    net = RotaryNet()
    x = net.input("x", X)
    cos, sin = tables(net, way=table)
    a, b = pairs(net, x, way)
    other = stacked(net, net("Neg", b), a)
    net.out(net("Add", net("Mul", x, cos), net("Mul", other, sin)))
    graph = check(net, MADE)
    assert rotary(graph)["style"] == "interleaved"
    assert table_widths(graph) == [4, 4]


def test_interleaved_in_and_halves_out() -> None:
    net = RotaryNet()
    x = net.input("x", X)
    cos, sin = tables(net)
    split = net("Reshape", x, net.ints(0, 0, 0, 4, 2))
    moved = net("Transpose", split, perm=[0, 1, 2, 4, 3])
    net.out(turned(net, net("Reshape", moved, net.ints(0, 0, 0, 8)), cos, sin))
    graph = check(net, MADE)
    assert rotary(graph)["style"] == "interleaved_to_half"


# ------------------------------------------------------------------ parts of lanes


@pytest.mark.parametrize("first", [True, False])
def test_partial_rotation(first: bool) -> None:
    net = RotaryNet()
    x = net.input("x", "f32[b, 2, s, 12]")
    cos, sin = tables(net)
    sizes = net.ints(*((8, 4) if first else (4, 8)))
    parts = net("Split", x, sizes, outputs=2, axis=-1)
    one = turned(net, parts[0 if first else 1], cos, sin)
    net.out(net("Concat", *((one, parts[1]) if first else (parts[0], one)), axis=-1))
    graph = check(net, MADE)
    assert rotary(graph) == {"dim": 8, "start": 0 if first else 4, "style": "half"}


def test_lanes_of_a_packed_projection() -> None:
    net = RotaryNet()
    x = net.input("x", "f32[b, 2, s, 24]")
    cos, sin = tables(net)
    for start in (0, 8):
        part = net.cut(x, start, start + 8)
        other = rotate_half(net, x, "slice", 8, start)
        net.out(net("Add", net("Mul", part, cos), net("Mul", other, sin)))
    check(net, {**MADE, "Slice": 2, "RotaryEmbedding": 2})


def test_a_rotation_beside_another_tensor() -> None:
    net = RotaryNet()
    x, rest = net.input("x", X), net.input("rest", "f32[b, 2, s, 6]")
    cos, sin = tables(net, way="single")
    a, b = halves(net, x, "split")
    first = net("Sub", net("Mul", a, cos), net("Mul", b, sin))
    second = net("Add", net("Mul", b, cos), net("Mul", a, sin))
    net.out(net("Concat", rest, first, second, axis=-1))
    check(net, {**MADE, "Concat": 1})


def test_two_heads_side_by_side_before_they_are_split() -> None:
    net = RotaryNet()
    flat = net.input("x", "f32[b, s, 16]")
    heads = net("Reshape", flat, net.ints(0, 0, 2, 8))
    cos, sin = (net.input(n, "f32[1, s, 1, 8]") for n in ("c", "t"))
    net.out(turned(net, heads, cos, sin))
    check(net, {"Reshape": 1, "RotaryEmbedding": 1})


@pytest.mark.parametrize("first", [True, False])
def test_the_standard_op_with_lanes_that_pass_through(first: bool) -> None:
    net = RotaryNet(23)
    x = net.input("x", "f32[b, 2, s, 12]")
    cos, sin = (net.input(n, "f32[b, s, 4]") for n in ("c", "t"))
    sizes = net.ints(*((8, 4) if first else (4, 8)))
    parts = net("Split", x, sizes, outputs=2, axis=-1)
    one = net("RotaryEmbedding", parts[0 if first else 1], cos, sin, num_heads=2)
    net.out(net("Concat", *((one, parts[1]) if first else (parts[0], one)), axis=-1))
    graph = check(net, {"RotaryEmbedding": 1, **({} if first else {"Unsqueeze": 2})})
    (op,) = [o for o in graph.ops if o.op_type == "RotaryEmbedding"]
    assert (op.domain == "") == first


# ------------------------------------------------------------------ tables


def test_constant_tables_are_halved_where_both_halves_are_equal() -> None:
    for doubled in (True, False):
        net = RotaryNet()
        x = net.input("x", "f32[b, 2, 3, 8]")
        angle = np.arange(12).reshape(3, 4) * 0.3
        both = np.concatenate([angle, angle if doubled else angle + 0.1], -1)
        cos, sin = (net.const(f(both).round(4)) for f in (np.cos, np.sin))
        net.out(turned(net, x, cos, sin))
        graph = check(net, {"RotaryEmbedding": 1})
        assert table_widths(graph) == ([4, 4] if doubled else [8, 8])


def test_tables_gathered_by_position_are_halved() -> None:
    net = RotaryNet()
    x = net.input("x", X)
    places = net("Cast", net("Floor", net("Abs", net.input("p", "f32[b, s]"))), to=7)
    angle = np.arange(32 * 4).reshape(32, 4) * 0.1
    caches = [net.const(f(np.concatenate([angle, angle], -1)).round(4)) for f in (np.cos, np.sin)]
    cos, sin = (net("Unsqueeze", net("Gather", cache, places), net.ints(1)) for cache in caches)
    net.out(turned(net, x, cos, sin))
    graph = check(
        net, {"Abs": 1, "Floor": 1, "Cast": 1, "Gather": 2, "Unsqueeze": 2, "RotaryEmbedding": 1}
    )
    assert table_widths(graph) == [4, 4]


def test_tables_of_another_type_between_casts() -> None:
    net = RotaryNet()
    x = net.cast(net.input("x", X.replace("f32", "f16")), 1)
    cos, sin = tables(net)
    net.out(net.cast(turned(net, x, cos, sin), 10))
    check(net, MADE)


def test_parts_that_are_widened_one_by_one() -> None:
    """OLMo turns halves in half precision and multiplies in float32."""
    net = RotaryNet()
    x = net.input("x", X.replace("f32", "f16"))
    cos, sin = tables(net)
    other = net.cast(rotate_half(net, x, "split"), 1)
    sum_ = net("Add", net("Mul", net.cast(x, 1), cos), net("Mul", other, sin))
    net.out(net.cast(sum_, 10))
    check(net, MADE)


def test_half_precision() -> None:
    net = RotaryNet()
    x = net.input("x", X.replace("f32", "f16"))
    cos, sin = (net.cast(t, 10) for t in tables(net))
    net.out(turned(net, x, cos, sin))
    check(net, {**MADE, "Cast": 2})


def test_tables_that_get_their_other_axes_and_their_pairs_at_once() -> None:
    """GPT-J: one gather of sin and cos, cut, an axis of heads and one of pairs, tiled."""
    net = RotaryNet()
    x = net.input("x", "f32[b, s, 2, 8]")
    both = net.input("both", "f32[1, s, 8]")
    sin, cos = (net.cut(both, n, n + 4) for n in (0, 4))
    tables = [
        net(
            "Reshape",
            net("Tile", net("Unsqueeze", t, net.ints(2, 4)), net.ints(1, 1, 1, 1, 2)),
            net.ints(1, -1, 1, 8),
        )
        for t in (cos, sin)
    ]
    other = stacked(net, net("Neg", net.cut(x, 1, 8, 2)), net.cut(x, 0, 8, 2))
    net.out(net("Add", net("Mul", x, tables[0]), net("Mul", other, tables[1])))
    graph = check(net, {"Slice": 2, "Unsqueeze": 2, "RotaryEmbedding": 1})
    assert rotary(graph)["style"] == "interleaved"
    assert table_widths(graph) == [4, 4]


def test_a_turn_backward() -> None:
    net = RotaryNet()
    x = net.input("x", X)
    cos, sin = tables(net)
    net.out(net("Sub", net("Mul", x, cos), net("Mul", rotate_half(net, x, "split"), sin)))
    kinds_before = kinds(fused(net.text))
    assert "RotaryEmbedding" not in kinds_before  # a difference ends no rotation that models have
    net = RotaryNet()
    x = net.input("x", X)
    cos, sin = tables(net)
    a, b = halves(net, x, "split")
    other = net("Concat", b, net("Neg", a), axis=-1)
    net.out(net("Add", net("Mul", x, cos), net("Mul", other, sin)))
    check(net, {**MADE, "Neg": 1})


def test_export_broadcasts_the_tables_over_the_batch() -> None:
    net = RotaryNet(23)
    x = net.input("x", X)
    cos, sin = tables(net)
    net.out(turned(net, x, cos, sin))
    graph = check(net, MADE)
    plain = expanded(graph)
    assert kinds(plain)["RotaryEmbedding"] == 1
    assert kinds(plain)["Expand"] == 2


def test_partial_rotation_is_exported_by_the_standard_op() -> None:
    net = RotaryNet(23)
    x = net.input("x", "f32[b, 2, s, 12]")
    cos, sin = tables(net)
    parts = net("Split", x, net.ints(8, 4), outputs=2, axis=-1)
    net.out(net("Concat", turned(net, parts[0], cos, sin), parts[1], axis=-1))
    assert kinds(expanded(check(net, MADE)))["RotaryEmbedding"] == 1


# ------------------------------------------------------------------ refusals


def refused(net: Net) -> None:
    assert "RotaryEmbedding" not in kinds(fused(net.text))


@pytest.mark.parametrize("inner", ["straight", "other", "turned"])
def test_an_inner_value_that_is_read_elsewhere_refuses(inner: str) -> None:
    net = RotaryNet()
    x = net.input("x", X)
    cos, sin = tables(net)
    values = {"straight": net("Mul", x, cos), "turned": rotate_half(net, x, "split")}
    values["other"] = net("Mul", values["turned"], sin)
    net.out(net("Add", values["straight"], values["other"]), net("Abs", values[inner]))
    refused(net)


def test_views_of_x_may_be_read_elsewhere() -> None:
    net = RotaryNet()
    x = net.input("x", X)
    cos, sin = tables(net)
    a, b = halves(net, x, "split")
    other = net("Concat", net("Neg", b), a, axis=-1)
    net.out(net("Add", net("Mul", x, cos), net("Mul", other, sin)), net("Abs", a))
    check(net, {**MADE, "Split": 1, "Abs": 1})


@pytest.mark.parametrize("wrong", ["halves", "lanes", "root"])
def test_what_is_no_rotation_refuses(wrong: str) -> None:
    net = RotaryNet()
    x, y = net.input("x", X), net.input("y", X)
    cos, sin = (net.input(n, "f32[1, 1, s, 8]") for n in ("c", "t"))
    a, b = halves(net, y if wrong == "root" else x, "split")
    first, second = (a, net("Neg", b)) if wrong == "halves" else (net("Neg", b), a)
    if wrong == "lanes":
        first = net.cut(first, 0, 4, 1)
        first = net("Gather", first, net.ints(1, 0, 2, 3), axis=-1)
    other = net("Concat", first, second, axis=-1)
    product = net("Mul", other, sin)
    net.out(net("Add", net("Mul", x, cos), product))
    refused(net)


# ------------------------------------------------------------------ tables put together

TABLES = (("c", "f32[1, 1, s, 8]"), ("t", "f32[1, 1, s, 8]"))


def test_a_sign_within_the_table_moves_there() -> None:
    """``x * cos + roll(x) * (-sin, sin)``: any numbers may stand in the table."""
    net = RotaryNet()
    x = net.input("x", X)
    cos, sin = (net.input(*t) for t in TABLES)
    a, b = halves(net, x, "split")
    other = net("Mul", net("Concat", b, a, axis=-1), sin)
    net.out(net("Add", net("Mul", x, cos), other))
    check(net, {"RotaryEmbedding": 1, "Mul": 1, "Gather": 1})


def test_one_table_for_each_half() -> None:
    net = RotaryNet()
    x = net.input("x", X)
    cos = net.input(*TABLES[0])
    p, q = (net.input(n, "f32[1, 1, s, 4]") for n in "pq")
    a, b = halves(net, x, "split")
    product = net("Concat", net("Mul", net("Neg", b), p), net("Mul", a, q), axis=-1)
    net.out(net("Add", net("Mul", x, cos), product))
    check(net, {"RotaryEmbedding": 1, "Gather": 1, "Concat": 1})


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("dims", [["b", "s"], [2, 3]])
def test_rotation_matrices(constant: bool, dims: list[object]) -> None:
    """Flux: a 2 by 2 matrix for each pair, times the pair's lanes, of heads that are split off."""
    net = RotaryNet()
    x = net.input("x", f"f32[{dims[0]}, {dims[1]}, 16]")
    angle = np.outer(np.arange(3), [1.0, 0.3, 0.1, 0.03])
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], -1)
    turn = turn.reshape(3, 1, 4, 2, 2).round(3)
    length = 3 if constant else dims[1]
    table = net.const(turn) if constant else net.input("turn", f"f32[{length}, 1, 4, 2, 2]")
    if constant and dims[1] == "s":
        pytest.skip("a table of three rows and symbolic rows do not go together")
    pairs = net("Reshape", x, net.ints(0, 0, 2, 4, 1, 2))
    parts = []
    for n in (0, 1):
        row = net("Gather", table, net.const(n, "i64"), axis=-1)
        lane = net("Gather", pairs, net.const(n, "i64"), axis=-1)
        parts.append(net("Mul", row, lane))
    net.out(net("Reshape", net("Add", *parts), net.ints(0, 0, 2, 8)))
    graph = fused(net.text)
    assert kinds(graph)["RotaryEmbedding"] == 1
    assert rotary(graph) == {"dim": 8, "start": 0, "style": "interleaved"}
    check(net, kinds(graph))


@pytest.mark.parametrize("packed", [False, True])
def test_pairs_as_complex_numbers(packed: bool) -> None:
    """``view_as_complex(x) * e``: products of the parts, e's parts with one axis for pairs."""
    net = RotaryNet()
    x = net.input("x", f"f32[b, s, {48 if packed else 16}]")
    c, t = (net.input(n, "f32[s, 1, 4, 1]") for n in "ct")
    if packed:  # heads of q, k and v beside one another: k of each
        heads = net("Reshape", x, net.ints(0, 0, 2, 3, 8))
        x = net("Gather", heads, net.const(1, "i64"), axis=3)
    pairs = net("Reshape", x, net.ints(0, 0, 2, 4, 2))
    real, imaginary = net("Split", pairs, net.ints(1, 1), outputs=2, axis=-1)
    first = net("Sub", net("Mul", real, c), net("Mul", imaginary, t))
    second = net("Add", net("Mul", real, t), net("Mul", imaginary, c))
    net.out(net("Reshape", net("Concat", first, second, axis=-1), net.ints(0, 0, 2, 8)))
    graph = fused(net.text)
    assert kinds(graph)["RotaryEmbedding"] == 1
    assert table_widths(graph) == [4, 4]
    check(net, kinds(graph))


def test_heads_that_read_unevenly_refuse() -> None:
    net = RotaryNet()
    x = net.input("x", "f32[b, s, 16]")
    cos, sin = (net.input(n, "f32[s, 1, 8]") for n in "ct")
    heads = net("Reshape", x, net.ints(0, 0, 2, 8))
    mixed = net("Gather", heads, net.ints(1, 1), axis=2)
    pairs = net("Reshape", mixed, net.ints(0, 0, 2, 4, 2))
    real, imaginary = net("Split", pairs, net.ints(1, 1), outputs=2, axis=-1)
    other = net("Concat", net("Neg", imaginary), real, axis=-1)
    other = net("Reshape", other, net.ints(0, 0, 2, 8))
    net.out(net("Add", net("Mul", heads, cos), net("Mul", other, sin)))
    refused(net)


def test_a_table_that_makes_x_larger_refuses() -> None:
    net = RotaryNet()
    x = net.input("x", "f32[1, 2, s, 8]")
    cos, sin = (net.input(n, "f32[b, 1, s, 8]") for n in ("c", "t"))
    net.out(turned(net, x, cos, sin))
    refused(net)


def test_labels_that_differ_refuse() -> None:
    net = RotaryNet()
    x = net.input("x", X)
    cos, sin = tables(net)
    net.note = 'label "a"'
    straight = net("Mul", x, cos)
    net.note = ""
    net.out(net("Add", straight, net("Mul", rotate_half(net, x, "split"), sin)))
    refused(net)


# ------------------------------------------------------------------ metamorphic


class _Both(Canonicalize):
    def run(self, graph: Graph, context: PassContext) -> int:
        return super().run(graph, context) + FUSE.run(graph, context)


@pytest.mark.parametrize("static", [False, True])
def test_identities_names_order_and_sizes_change_nothing(static: bool) -> None:
    net = RotaryNet()
    net.identities = True
    x = net.input("q", X)
    cos, sin = tables(net)
    net.out(turned(net, x, cos, sin))
    net.lines.reverse()
    text = net.text
    if static:
        text = text.replace("[b,", "[2,").replace(" s,", " 3,")
    graph, source = fused(text, _Both()), parse(text)
    assert kinds(graph)["RotaryEmbedding"] == 1
    infer_types(source)
    feeds = feeds_of(source, {"b": 2, "s": 3})
    before, after = run(source, feeds), run(expanded(graph), feeds)
    np.testing.assert_allclose(after["out0"], before["out0"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("swap", [False, True])
def test_the_same_of_rotation_matrices(swap: bool, static: bool) -> None:
    net = RotaryNet()
    net.identities, net.swap = True, swap
    x, table = net.input("other", "f32[b, s, 16]"), net.input("turn", "f32[s, 1, 4, 2, 2]")
    pairs = net("Reshape", x, net.ints(0, 0, 2, 4, 1, 2))
    parts = []
    for n in (0, 1):
        row = net("Gather", table, net.const(n, "i64"), axis=-1)
        parts.append(net("Mul", row, net("Gather", pairs, net.const(n, "i64"), axis=-1)))
    net.out(net("Reshape", net("Add", *parts), net.ints(0, 0, 2, 8)))
    net.lines.reverse()
    text = net.text
    if static:
        text = text.replace("[b,", "[2,").replace(" s,", " 3,").replace("[s,", "[3,")
    graph, source = fused(text, _Around()), parse(text)
    assert kinds(graph)["RotaryEmbedding"] == 1
    infer_types(source)
    feeds = feeds_of(source, {"b": 2, "s": 3})
    before, after = run(source, feeds), run(expanded(graph), feeds)
    np.testing.assert_allclose(after["out0"], before["out0"], rtol=1e-5, atol=1e-5)


class _Around(Canonicalize):
    """Canonical form, fusion, and the canonical form of what fusion adds."""

    def run(self, graph: Graph, context: PassContext) -> int:
        return sum(p.run(graph, context) for p in (Canonicalize(), FUSE, Canonicalize()))
