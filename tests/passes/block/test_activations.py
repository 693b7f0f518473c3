"""GELU and SiLU in each spelling, with what stands around them, become one op."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from block_help import FUSE, Net, check, evaluate, feeds_of, fused, kinds
from rewriting_help import run

from gecompiler.ir import Graph, parse
from gecompiler.ir.infer import infer_types
from gecompiler.passes.block.fuse import FuseBlock
from gecompiler.passes.canonical.canonicalize import Canonicalize
from gecompiler.passes.pass_base import PassContext

ROOT, CUBE = math.sqrt(2 / math.pi), 0.044715


class ActNet(Net):
    dtype = "f32"

    def num(self, value: float) -> str:
        return self.const(value, self.dtype)

    def times(self, value: str, number: float) -> str:
        return str(self("Mul", value, self.num(number)))

    def plus(self, value: str, number: float) -> str:
        return str(self("Add", value, self.num(number)))


def erf(n: ActNet, x: str) -> str:
    return n.plus(n("Erf", n("Div", x, n.num(math.sqrt(2)))), 1.0)


def inner(n: ActNet, x: str, way: str) -> str:
    if way == "power":
        return n.times(n("Add", x, n.times(n("Pow", x, n.num(3.0)), CUBE)), ROOT)
    if way == "products":
        cube = n("Mul", n("Mul", x, x), x)
        return n.times(n("Add", x, n.times(cube, CUBE)), ROOT)
    factored = n.plus(n("Mul", n.times(x, CUBE), x), 1.0)
    return str(n("Mul", n.times(x, ROOT), factored))


def tanh(way: str) -> Callable[[ActNet, str], str]:
    return lambda n, x: n.plus(n("Tanh", inner(n, x, way)), 1.0)


GELUS: dict[str, Callable[[ActNet, str], str]] = {
    "half x first": lambda n, x: n("Mul", n.times(x, 0.5), erf(n, x)),
    "half last": lambda n, x: n.times(n("Mul", x, erf(n, x)), 0.5),
    "half in the gate": lambda n, x: n("Mul", x, n.times(erf(n, x), 0.5)),
    "halved": lambda n, x: n("Mul", n("Div", x, n.num(2.0)), erf(n, x)),
    "sum of halves": lambda n, x: n(
        "Mul", x, n.plus(n.times(n("Erf", n.times(x, math.sqrt(0.5))), 0.5), 0.5)
    ),
    "erfc": lambda n, x: n(
        "Mul",
        n.times(x, 0.5),
        n("Sub", n.num(1.0), n("Erf", n.times(n("Neg", x), math.sqrt(0.5)))),
    ),
    "minus one": lambda n, x: n(
        "Mul", n.times(x, -0.5), n("Sub", n("Erf", n.times(x, -math.sqrt(0.5))), n.num(1.0))
    ),
    "tanh, power": lambda n, x: n("Mul", n.times(x, 0.5), tanh("power")(n, x)),
    "tanh, products": lambda n, x: n.times(n("Mul", x, tanh("products")(n, x)), 0.5),
    "tanh, factored": lambda n, x: n("Mul", n.times(x, 0.5), tanh("factored")(n, x)),
    "tanh, by sigmoid": lambda n, x: n("Mul", x, n("Sigmoid", n.times(inner(n, x, "power"), 2.0))),
}
SILUS: dict[str, Callable[[ActNet, str], str]] = {
    "silu": lambda n, x: n("Mul", x, n("Sigmoid", x)),
    "quick gelu": lambda n, x: n("Mul", x, n("Sigmoid", n.times(x, 1.702))),
    "logistic": lambda n, x: n("Div", x, n.plus(n("Exp", n("Neg", x)), 1.0)),
}


def net_of(spell: Callable[[ActNet, str], str], opset: int, kind: str = "f32[b, s, 8]") -> ActNet:
    net = ActNet(opset)
    net.dtype = kind[:3]
    net.out(spell(net, net.input("x", kind)))
    return net


@pytest.mark.parametrize("name", GELUS)
@pytest.mark.parametrize("swap", [False, True])
def test_gelu(name: str, swap: bool) -> None:
    for opset in (13, 20):
        net = ActNet(opset)
        net.swap = swap
        net.out(GELUS[name](net, net.input("x", "f32[b, s, 8]")))
        graph = check(net, {"Gelu": 1}, tolerance=2e-6)
        (op,) = [o for o in graph.ops if o.op_type == "Gelu"]
        assert op.domain == ("gecompiler" if opset == 13 else "")
        assert op.attr("approximate") == ("tanh" if "tanh" in name else "none")


@pytest.mark.parametrize("name", SILUS)
def test_silu(name: str) -> None:
    for swap in (False, True):
        net = ActNet(13)
        net.swap = swap
        net.out(SILUS[name](net, net.input("x", "f32[b, s, 8]")))
        graph = check(net, {"Silu": 1})
        (op,) = [o for o in graph.ops if o.op_type == "Silu"]
        assert op.attr("alpha") == pytest.approx(1.702 if "quick" in name else 1.0)


def test_silu_is_the_standard_op_where_the_opset_has_it() -> None:
    net = net_of(SILUS["silu"], 24)
    graph = fused(net.text)
    assert kinds(graph) == {"Swish": 1}


@pytest.mark.parametrize("name", [*GELUS, *SILUS])
def test_half_precision(name: str) -> None:
    net = net_of({**GELUS, **SILUS}[name], 13, "f16[b, s, 8]")
    check(net, {"Gelu" if name in GELUS else "Silu": 1}, tolerance=1e-2)


@pytest.mark.parametrize("name", ["half x first", "tanh, power"])
def test_double_precision(name: str) -> None:
    graph = fused(net_of(GELUS[name], 13, "f64[b, s, 8]").text)
    assert kinds(graph) == {"Gelu": 1}
    feeds = feeds_of(graph, {"b": 2, "s": 3})
    exact = [gelu(float(x), "tanh" in name) for x in feeds["x"].reshape(-1)]
    assert abs(evaluate(graph, feeds)["out0"].reshape(-1) - exact).max() < 1e-14


def gelu(x: float, by_tanh: bool) -> float:
    if by_tanh:
        return 0.5 * x * (1 + math.tanh(ROOT * (x + CUBE * x**3)))
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def test_x_may_be_computed_by_products_itself() -> None:
    net = ActNet(13)
    a, b = net.input("a", "f32[b, s, 8]"), net.input("b", "f32[b, s, 8]")
    net.out(GELUS["half x first"](net, net("Mul", a, b)))
    net.out(GELUS["tanh, power"](net, net.times(a, 3.0)))
    check(net, {"Mul": 2, "Gelu": 2})


# ------------------------------------------------------------------ what stands around


@pytest.mark.parametrize("name", ["half x first", "tanh, power", "silu"])
@pytest.mark.parametrize("opset", [13, 20])
def test_a_bias_before(name: str, opset: int) -> None:
    for first in (False, True):
        net = ActNet(opset)
        x, bias = net.input("x", "f32[b, s, 8]"), net.weight(8)
        net.out({**GELUS, **SILUS}[name](net, net("Add", *((bias, x) if first else (x, bias)))))
        graph = check(net, {"Silu" if name == "silu" else "Gelu": 1})
        assert all(o.domain == "gecompiler" for o in graph.ops if o.op_type != "Identity")


@pytest.mark.parametrize("op", ["Relu", "Tanh", "Sigmoid"])
def test_a_bias_before_a_plain_activation(op: str) -> None:
    net = Net()
    net.out(net(op, net("Add", net.input("x", "f32[b, s, 8]"), net.weight(1, 8))))
    check(net, {op: 1})


@pytest.mark.parametrize("name", ["half x first", "tanh, products", "silu", "quick gelu"])
@pytest.mark.parametrize("swap", [False, True])
def test_gates(name: str, swap: bool) -> None:
    net = ActNet(20)
    net.swap = swap
    x, up = net.input("x", "f32[b, s, 8]"), net.input("up", "f32[b, s, 8]")
    net.out(net("Mul", {**GELUS, **SILUS}[name](net, x), up))
    graph = check(net, {"GeluMul" if name in GELUS else "SiluMul": 1})
    (op,) = [o for o in graph.ops if o.op_type.endswith("Mul")]
    assert op.inputs[:2] == ("x", "up")


@pytest.mark.parametrize("op", ["Relu", "Sigmoid", "Tanh"])
def test_gates_by_plain_activations(op: str) -> None:
    net = Net()
    x, up = net.input("x", "f32[b, s, 8]"), net.input("up", "f32[b, s, 8]")
    net.out(net("Mul", up, net(op, net("Add", x, net.weight(8)))))
    check(net, {f"{op}Mul": 1})


@pytest.mark.parametrize("way", ["product", "power"])
@pytest.mark.parametrize("around", ["", "bias", "gate"])
def test_the_square_of_a_relu(way: str, around: str) -> None:
    net = Net()
    x, up = net.input("x", "f32[b, s, 8]"), net.input("up", "f32[b, s, 8]")
    y = net("Relu", net("Add", x, net.weight(8)) if around == "bias" else x)
    y = net("Mul", y, y) if way == "product" else net("Pow", y, net.const(2.0))
    net.out(net("Mul", y, up) if around == "gate" else y)
    check(net, {"SquaredReluMul" if around == "gate" else "SquaredRelu": 1})


@pytest.mark.parametrize("gate", ["first", "last"])
@pytest.mark.parametrize("way", ["split", "slice"])
@pytest.mark.parametrize("bias", [False, True])
def test_both_halves_of_one_product(gate: str, way: str, bias: bool) -> None:
    net = ActNet(13)
    x = net.input("x", "f32[b, s, 8]")
    x = net("Add", x, net.weight(8)) if bias else x
    if way == "split":
        a, b = net("Split", x, net.ints(4, 4), outputs=2, axis=2)
    else:
        a, b = net.cut(x, 0, 4), net.cut(x, 4, 8)
    a, b = (a, b) if gate == "first" else (b, a)
    net.out(net("Mul", SILUS["silu"](net, a), b))
    graph = check(net, {"SiluMul": 1})
    (op,) = [o for o in graph.ops if o.op_type == "SiluMul"]
    assert op.attr("gate") == gate
    assert op.input(0) == "x"
    assert bool(op.input(2)) == bias


def lanes(n: ActNet, z: str, way: str) -> tuple[str, str]:
    """The even lanes and the odd ones of the last axis, which are 8 together."""
    if way == "slice":
        return n.cut(z, 0, 8, 2), n.cut(z, 1, 2**62, 2)
    if way == "gather":
        even, odd = (n("Gather", z, n.ints(*range(k, 8, 2)), axis=2) for k in (0, 1))
        return even, odd
    pairs = n("Reshape", z, n.ints(0, 0, 4, 2))
    even, odd = (n("Gather", pairs, n.const(k, "i64"), axis=3) for k in (0, 1))
    return even, odd


@pytest.mark.parametrize("opset", [11, 17, 24])
@pytest.mark.parametrize("way", ["slice", "gather", "pairs"])
@pytest.mark.parametrize("gate", ["even", "odd"])
@pytest.mark.parametrize("swap", [False, True])
def test_gates_between_what_they_gate(opset: int, way: str, gate: str, swap: bool) -> None:
    net = ActNet(opset)
    net.swap = swap
    z = net.input("z", "f32[b, s, 8]")
    halves = lanes(net, net("Add", z, net.weight(8)), way)
    a, up = halves if gate == "even" else halves[::-1]
    net.out(net("Mul", SILUS["silu"](net, a), up))
    graph = check(net, {"SiluMul": 1})
    (op,) = [o for o in graph.ops if o.op_type == "SiluMul"]
    assert op.attrs["gate"] == gate


def held(n: ActNet, x: str, low: float | None, high: float | None, way: str) -> str:
    """The value between two numbers."""
    if way == "clip" and n.opset >= 11:
        bounds = ["" if b is None else n.num(b) for b in (low, high)]
        return str(n("Clip", x, *(bounds if bounds[1] else bounds[:1])))
    if way == "clip":
        limits = {"min": low, "max": high}
        return str(n("Clip", x, **{k: v for k, v in limits.items() if v is not None}))
    for op, bound in (("Min", high), ("Max", low)):
        x = x if bound is None else n(op, x, n.num(bound))
    return x


@pytest.mark.parametrize("opset", [8, 17, 24])
@pytest.mark.parametrize("way", ["clip", "min"])
@pytest.mark.parametrize("packed", ["", "even", "last"])
@pytest.mark.parametrize("swap", [False, True])
def test_clamped_gates(opset: int, way: str, packed: str, swap: bool) -> None:
    """GPT-OSS: both sides held within a limit, and 1 added to what is gated."""
    net = ActNet(opset)
    net.swap = swap
    if packed and opset < 10:
        pytest.skip("no slices of constant bounds")
    if packed == "even":
        a, up = lanes(net, net.input("z", "f32[b, s, 8]"), "slice")
    elif packed:
        z = net.input("z", "f32[b, s, 8]")
        up, a = net.cut(z, 0, 4), net.cut(z, 4, 8)
    else:
        a, up = net.input("a", "f32[b, s, 8]"), net.input("up", "f32[b, s, 8]")
    a, up = held(net, a, None, 1.25, way), held(net, up, -1.25, 1.25, way)
    squashed = net("Sigmoid", net.times(a, 1.702))
    net.out(net("Mul", net.plus(up, 1.0), net("Mul", a, squashed)))
    graph = check(net, {"SiluMul": 1})
    (op,) = [o for o in graph.ops if o.op_type == "SiluMul"]
    found = {k: op.attrs.get(k) for k in ("limit", "shift")}
    assert found == {"limit": 1.25, "shift": 1.0}


@pytest.mark.parametrize("bounds", [(None, 1.25, -1.0, 1.25), (-1.25, 1.25, -1.25, 1.25)])
def test_other_bounds_stay_apart(bounds: tuple[float | None, ...]) -> None:
    net = ActNet()
    a, up = net.input("a", "f32[b, s, 8]"), net.input("up", "f32[b, s, 8]")
    a, up = held(net, a, *bounds[:2], "clip"), held(net, up, *bounds[2:], "clip")
    net.out(net("Mul", up, net("Mul", a, net("Sigmoid", a))))
    check(net, {"Clip": 2, "SiluMul": 1})


def test_what_is_clamped_after_the_shift_stays_apart() -> None:
    net = ActNet()
    a, up = net.input("a", "f32[b, s, 8]"), net.input("up", "f32[b, s, 8]")
    a = held(net, a, None, 1.25, "clip")
    up = held(net, net.plus(up, 1.0), -1.25, 1.25, "clip")
    net.out(net("Mul", up, net("Mul", a, net("Sigmoid", a))))
    check(net, {"Add": 1, "SiluMul": 1})


def test_parts_that_are_no_halves_stay_apart() -> None:
    net = ActNet(13)
    x = net.input("x", "f32[b, s, 12]")
    parts = net("Split", x, net.ints(4, 4, 4), outputs=3, axis=2)
    net.out(net("Mul", SILUS["silu"](net, parts[0]), parts[1]), parts[2])
    check(net, {"Split": 1, "SiluMul": 1})


@pytest.mark.parametrize("gated", [False, True])
def test_casts_around(gated: bool) -> None:
    net = ActNet(13)
    x, up = (net.cast(net.input(n, "f16[b, s, 8]"), 1) for n in ("x", "up"))
    y = GELUS["tanh, power"](net, x)
    y = net("Mul", y, up) if gated else y
    net.out(net.cast(y, 10), *([] if gated else [up]))
    check(net, {"GeluMul": 1} if gated else {"Gelu": 1, "Cast": 1})


# ------------------------------------------------------------------ refusals


def refused(net: Net) -> None:
    found = set(kinds(fused(net.text)))
    assert not found & {"Gelu", "Silu", "GeluMul", "SiluMul", "Swish"}


@pytest.mark.parametrize(
    "spell",
    [
        lambda n, x: n("Mul", n.times(x, 0.5), n.plus(n("Erf", x), 1.0)),
        lambda n, x: n("Mul", n.times(x, 0.4), erf(n, x)),
        lambda n, x: n("Mul", n.times(x, 0.5), n.plus(n("Erf", n.times(x, 0.7071)), 1.0)),
        lambda n, x: n("Mul", n.times(x, 0.5), n.plus(n("Tanh", n.times(x, ROOT)), 1.0)),
        lambda n, x: n("Mul", n.times(x, 0.5), n.plus(n("Tanh", inner(n, x, "power")), 0.5)),
        lambda n, x: n("Mul", x, n("Sigmoid", n.plus(x, 1.0))),
        lambda n, x: n("Mul", x, n("Sigmoid", n("Mul", x, x))),
        lambda n, x: n("Div", x, n.plus(n("Exp", n("Neg", x)), 2.0)),
        lambda n, x: n("Div", x, n.plus(n("Exp", x), 1.0)),
    ],
)
def test_other_numbers_refuse(spell: Callable[[ActNet, str], str]) -> None:
    refused(net_of(spell, 20))


def test_two_different_tensors_refuse() -> None:
    net = ActNet(20)
    x, y = net.input("x", "f32[b, s, 8]"), net.input("y", "f32[b, s, 8]")
    net.out(net("Mul", net.times(x, 0.5), erf(net, y)))
    refused(net)


def test_an_inner_value_that_is_read_elsewhere_refuses() -> None:
    net = ActNet(20)
    x = net.input("x", "f32[b, s, 8]")
    gate = erf(net, x)
    net.out(net("Mul", net.times(x, 0.5), gate), gate)
    refused(net)


def test_a_bias_that_is_read_elsewhere_stays_apart() -> None:
    net = ActNet(20)
    biased = net("Add", net.input("x", "f32[b, s, 8]"), net.weight(8))
    net.out(GELUS["half last"](net, biased), biased)
    check(net, {"Add": 1, "Gelu": 1})


def test_a_bias_for_each_row_stays_apart() -> None:
    net = ActNet(20)
    biased = net("Add", net.input("x", "f32[b, s, 8]"), net.input("y", "f32[b, 1, 8]"))
    net.out(GELUS["half last"](net, biased))
    check(net, {"Add": 1, "Gelu": 1})


def test_a_gate_that_broadcasts_stays_apart() -> None:
    net = ActNet(20)
    x, up = net.input("x", "f32[b, 1, 8]"), net.input("up", "f32[b, s, 8]")
    net.out(net("Mul", SILUS["silu"](net, x), up))
    check(net, {"Silu": 1, "Mul": 1})


def test_labels_that_differ_refuse() -> None:
    net = ActNet(20)
    x = net.input("x", "f32[b, s, 8]")
    net.note = 'label "a"'
    squashed = net("Sigmoid", x)
    net.note = ""
    net.out(net("Mul", x, squashed))
    refused(net)


def test_the_option_leaves_activations_alone() -> None:
    net = net_of(SILUS["silu"], 20)
    assert kinds(fused(net.text, FuseBlock(activations=False))) == {"Sigmoid": 1, "Mul": 1}


# ------------------------------------------------------------------ metamorphic


class _Both(Canonicalize):
    def run(self, graph: Graph, context: PassContext) -> int:
        return super().run(graph, context) + FUSE.run(graph, context)


@pytest.mark.parametrize("name", [*GELUS, *SILUS])
def test_identities_names_and_order_change_nothing(name: str) -> None:
    net = ActNet(13)
    net.identities = True
    net.out({**GELUS, **SILUS}[name](net, net.input("other", "f32[b, s, 8]")))
    net.lines.reverse()
    graph, source = fused(net.text, _Both()), parse(net.text)
    assert kinds(graph) == {"Gelu" if name in GELUS else "Silu": 1}
    infer_types(source)
    feeds = feeds_of(source, {"b": 2, "s": 3})
    difference = evaluate(graph, feeds)["out0"] - run(source, feeds)["out0"]
    assert abs(difference).max() < 1e-5
