"""RMSNorm and LayerNorm in each spelling become one op, with the same numbers."""

from __future__ import annotations

import itertools

import pytest
from block_help import FUSE, Net, check, fused, kinds

from gecompiler.ir import Graph
from gecompiler.passes.canonical.canonicalize import Canonicalize
from gecompiler.passes.pass_base import PassContext

F16, F32 = 10, 1
EPSILON = 1e-5


def square(net: Net, x: str, way: str) -> str:
    if way == "mul":
        return str(net("Mul", x, x))
    return str(net("Pow", x, net.const(2.0 if way == "pow" else [2.0])))


def mean_of_square(net: Net, x: str, way: str, width: int) -> str:
    if way in ("pow", "pow1", "mul"):
        return net.mean(square(net, x, way))
    if way == "sum-square":
        return str(net("Div", net.mean(x, op="ReduceSumSquare"), net.const(float(width))))
    total = net.mean(square(net, x, "mul"), op="ReduceSum")
    if way == "sum":
        return str(net("Div", total, net.const(float(width))))
    return str(net("Mul", total, net.const(1.0 / width)))


def quotient(net: Net, x: str, radicand: str, way: str, dtype: str = "f32") -> str:
    one = net.const(1.0, dtype)
    if way == "div":
        return str(net("Div", x, net("Sqrt", radicand)))
    if way == "div-pow":
        return str(net("Div", x, net("Pow", radicand, net.const(0.5, dtype))))
    inverse = {
        "reciprocal": lambda: net("Reciprocal", net("Sqrt", radicand)),
        "one-over": lambda: net("Div", one, net("Sqrt", radicand)),
        "root-of": lambda: net("Sqrt", net("Reciprocal", radicand)),
        "pow": lambda: net("Pow", radicand, net.const(-0.5, dtype)),
    }[way]()
    return str(net("Mul", x, inverse))


def rms(net: Net, x: str, mean: str = "pow", root: str = "reciprocal", width: int = 8) -> str:
    radicand = net("Add", mean_of_square(net, x, mean, width), net.const(EPSILON))
    return quotient(net, x, radicand, root)


MEANS = ("pow", "pow1", "mul", "sum", "sum-mul", "sum-square")
ROOTS = ("div", "div-pow", "reciprocal", "one-over", "root-of", "pow")


@pytest.mark.parametrize(
    ("mean", "root"), [*itertools.product(MEANS, ROOTS[:1]), *itertools.product(["mul"], ROOTS)]
)
@pytest.mark.parametrize("opset", [12, 18])
def test_rms_norm_of_every_spelling(mean: str, root: str, opset: int) -> None:
    for swap in (False, True):
        net = Net(opset)
        net.swap = swap
        x = net.input("x", "f32[b, s, 8]")
        net.out(net("Mul", net.weight(8), rms(net, x, mean, root)))
        graph = check(net, {"RMSNorm": 1})
        (op,) = [o for o in graph.ops if o.op_type == "RMSNorm"]
        assert op.attr("axis") == -1
        assert op.attr("epsilon") == pytest.approx(EPSILON)
        assert op.inputs[0] == "x"
        assert len(op.inputs) == 2


def test_rms_norm_is_the_standard_op_where_the_opset_has_it() -> None:
    net = Net(23)
    x = net.input("x", "f32[b, s, 8]")
    net.out(net("Mul", rms(net, x), net.weight(8)))
    check(net, {"RMSNormalization": 1})


def test_rms_norm_without_a_scale() -> None:
    for opset, kind in ((17, "RMSNorm"), (23, "RMSNormalization")):
        net = Net(opset)
        net.out(rms(net, net.input("x", "f32[b, s, 8]")))
        check(net, {kind: 1})


def test_rms_norm_with_a_shift_stays_ours() -> None:
    net = Net(23)
    x = net.input("x", "f32[b, s, 8]")
    net.out(net("Add", net("Mul", rms(net, x), net.weight(8)), net.weight(8, seed=5)))
    check(net, {"RMSNorm": 1})


@pytest.mark.parametrize("place", ["inverse", "before", "over"])
def test_a_scale_may_be_multiplied_in_early(place: str) -> None:
    net = Net()
    x, w = net.input("x", "f32[b, s, 8]"), net.weight(8)
    radicand = net("Add", net.mean(net("Mul", x, x)), net.const(EPSILON))
    root = net("Sqrt", radicand)
    if place == "inverse":
        net.out(net("Mul", x, net("Mul", net("Reciprocal", root), w)))
    elif place == "before":
        net.out(net("Mul", net("Mul", x, w), net("Reciprocal", root)))
    else:
        net.out(net("Mul", x, net("Div", w, root)))
    check(net, {"RMSNorm": 1})


# ------------------------------------------------------------------ types


def wide_rms(net: Net, x: str) -> str:
    return rms(net, net.cast(x, F32))


def test_llama_rounds_before_it_scales() -> None:
    net = Net()
    x = net.input("x", "f16[b, s, 8]")
    net.out(net("Mul", net.weight(8, dtype="f16"), net.cast(wide_rms(net, x), F16)))
    graph = check(net, {"RMSNorm": 1})
    (op,) = [o for o in graph.ops if o.op_type == "RMSNorm"]
    assert (op.attr("stash_type"), op.attr("scale_type")) == (F32, F16)


def test_gemma_rounds_after_it_scales_by_one_more_than_its_weight() -> None:
    net = Net()
    x = net.input("x", "f16[b, s, 8]")
    weight = net.cast(net.input("w", "f16[8]"), F32)
    scale = net("Add", net.const(1.0), weight)
    net.out(net.cast(net("Mul", wide_rms(net, x), scale), F16))
    graph = check(net, {"RMSNorm": 1})
    (op,) = [o for o in graph.ops if o.op_type == "RMSNorm"]
    assert (op.attr("stash_type"), op.attr("scale_type"), op.attr("offset")) == (F32, F32, 1.0)
    assert op.inputs == ("x", "w")


def test_a_norm_that_stays_wide() -> None:
    net = Net()
    x = net.input("x", "f16[b, s, 8]")
    net.out(net("Mul", wide_rms(net, x), net.weight(8)))
    graph = check(net, {"RMSNorm": 1}, tolerance=1e-5)
    assert [o.attr("output_type") for o in graph.ops if o.op_type == "RMSNorm"] == [F32]


def test_a_norm_of_a_wide_residual_stream_that_ends_narrow() -> None:
    for scaled_first in (False, True):
        net = Net()
        x = net.input("x", "f32[b, s, 8]")
        if scaled_first:
            net.out(net.cast(net("Mul", rms(net, x), net.weight(8)), F16))
        else:
            net.out(net("Mul", net.cast(rms(net, x), F16), net.weight(8, dtype="f16")))
        graph = check(net, {"RMSNorm": 1})
        (op,) = [o for o in graph.ops if o.op_type == "RMSNorm"]
        assert (op.attr("scale_type") == F32, op.attr("output_type")) == (scaled_first, F16)


def test_a_norm_in_half_precision_keeps_its_roundings() -> None:
    net = Net()
    x = net.input("x", "f16[b, s, 8]")
    square = net("Mul", x, x)
    radicand = net("Add", net.mean(square), net.const(EPSILON, "f16"))
    net.out(quotient(net, x, radicand, "div", "f16"))
    graph = check(net, {"RMSNorm": 1})
    (op,) = [o for o in graph.ops if o.op_type == "RMSNorm"]
    assert op.attr("stash_type") == F16


def test_a_second_rounding_is_no_part_of_the_norm() -> None:
    net = Net()
    x = net.input("x", "f16[b, s, 8]")
    normal = net.cast(wide_rms(net, x), F16)
    net.out(net.cast(net("Mul", normal, net.weight(8, dtype="f16")), 16))
    assert kinds(fused(net.text)) == {"RMSNorm": 1, "Cast": 1}


def test_double_precision() -> None:
    net = Net(23)
    x = net.input("x", "f64[b, s, 8]")
    square = net("Mul", x, x)
    radicand = net("Add", net.mean(square), net.const(EPSILON, "f64"))
    net.out(quotient(net, x, radicand, "div", "f64"))
    check(net, {"RMSNorm": 1})


# ------------------------------------------------------------------ LayerNorm


def layer_norm(net: Net, x: str, axes: tuple[int, ...] = (-1,), root: str = "div") -> str:
    centred = net("Sub", x, net.mean(x, axes))
    variance = net.mean(net("Pow", centred, net.const(2.0)), axes)
    return quotient(net, centred, net("Add", variance, net.const(EPSILON)), root)


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize(("opset", "kind"), [(13, "LayerNorm"), (17, "LayerNormalization")])
def test_layer_norm(root: str, opset: int, kind: str) -> None:
    for swap in (False, True):
        net = Net(opset)
        net.swap = swap
        x = net.input("x", "f32[b, s, 8]")
        scaled = net("Mul", layer_norm(net, x, root=root), net.weight(8))
        net.out(net("Add", scaled, net.weight(8, seed=3)))
        check(net, {kind: 1}, tolerance=1e-5)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("opset", [13, 17])
def test_layer_norm_without_scale_or_shift(scale: bool, shift: bool, opset: int) -> None:
    net = Net(opset)
    y = layer_norm(net, net.input("x", "f32[b, s, 8]"))
    y = net("Mul", y, net.weight(8)) if scale else y
    y = net("Add", y, net.weight(8)) if shift else y
    net.out(y)
    check(net, {"LayerNorm" if opset == 13 else "LayerNormalization": 1}, tolerance=1e-5)


def test_a_scale_of_ones_is_not_made_at_any_size() -> None:
    net = Net()
    net.out(layer_norm(net, net.input("x", "f32[b, 1099511627776]")))
    assert kinds(fused(net.text)) == {"LayerNorm": 1}


def test_layer_norm_of_several_axes() -> None:
    net = Net()
    x = net.input("x", "f32[b, 3, 8]")
    net.out(net("Mul", layer_norm(net, x, (-2, -1)), net.weight(3, 8)))
    graph = check(net, {"LayerNormalization": 1}, tolerance=1e-5)
    assert [o.attr("axis") for o in graph.ops if o.op_type == "LayerNormalization"] == [-2]


def test_layer_norm_in_float32_between_casts() -> None:
    net = Net()
    x = net.input("x", "f16[b, s, 8]")
    scaled = net("Mul", layer_norm(net, net.cast(x, F32)), net.weight(8))
    net.out(net.cast(net("Add", scaled, net.weight(8, seed=4)), F16))
    check(net, {"LayerNorm": 1})


def test_the_standard_op_between_casts() -> None:
    net = Net()
    x = net.input("x", "f16[b, s, 8]")
    y = net("LayerNormalization", net.cast(x, F32), net.weight(8), net.weight(8, seed=2), axis=-1)
    net.out(net.cast(y, F16))
    check(net, {"LayerNorm": 1})


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_layer_norm_with_the_scale_multiplied_in_first(scale: bool, shift: bool) -> None:
    net = Net(13)
    x = net.input("x", "f32[b, s, 8]")
    middle = net.mean(x)
    centred = net("Sub", x, middle)
    radicand = net("Add", net.mean(net("Mul", centred, centred)), net.const(EPSILON))
    factor = net("Reciprocal", net("Sqrt", radicand))
    factor = net("Mul", factor, net.weight(8)) if scale else factor
    product, rest = net("Mul", x, factor), net("Mul", middle, factor)
    if shift:
        net.out(net("Add", product, net("Sub", net.weight(8, seed=6), rest)))
    else:
        net.out(net("Sub", product, rest))
    check(net, {"LayerNorm": 1}, tolerance=1e-5)


@pytest.mark.parametrize("op", ["RMSNormalization", "gecompiler.RMSNorm"])
def test_an_rms_norm_of_what_is_centred_is_a_layer_norm(op: str) -> None:
    net = Net(23)
    x = net.input("x", "f32[b, s, 8]")
    net.out(net(op, net("Sub", x, net.mean(x)), net.weight(8), axis=-1))
    assert kinds(fused(net.text)) == {"LayerNormalization": 1}


def test_two_scales_of_one_norm_are_two_norms() -> None:
    net = Net()
    y = rms(net, net.input("x", "f32[b, s, 8]"))
    net.out(net("Mul", y, net.weight(8)), net("Mul", net.weight(8, seed=7), y))
    check(net, {"RMSNorm": 2})


# ------------------------------------------------------------------ variances, views, other axes


def centred(net: Net, x: str, axes: tuple[int, ...] = (-1,)) -> str:
    return str(net("Sub", x, net.mean(x, axes)))


@pytest.mark.parametrize("opset", [14, 18, 23])
@pytest.mark.parametrize("shared", [False, True])
def test_a_variance_from_the_mean_of_the_square(opset: int, shared: bool) -> None:
    net = Net(opset)
    x = net.input("x", "f32[b, s, 8]")
    middle = net.mean(x)
    other = middle if shared else net.mean(x, (2,))
    variance = net("Sub", net.mean(net("Mul", x, x)), net("Mul", other, other))
    y = quotient(net, net("Sub", x, middle), net("Add", variance, net.const(EPSILON)), "div")
    net.out(net("Add", net("Mul", y, net.weight(8)), net.weight(8, seed=2)))
    check(net, {"LayerNormalization" if opset > 16 else "LayerNorm": 1}, tolerance=1e-5)


def test_such_a_variance_in_half_precision_refuses() -> None:
    net = Net()
    x = net.input("x", "f16[b, s, 8]")
    middle = net.mean(x)
    variance = net("Sub", net.mean(net("Mul", x, x)), net("Mul", middle, middle))
    radicand = net("Add", variance, net.const(EPSILON, "f16"))
    net.out(net("Div", net("Sub", x, middle), net("Sqrt", radicand)))
    refused(net)


def test_the_variance_of_another_tensor_refuses() -> None:
    net = Net()
    x, z = net.input("x", "f32[b, s, 8]"), net.input("z", "f32[b, s, 8]")
    middle = net.mean(z)
    variance = net("Sub", net.mean(net("Mul", z, z)), net("Mul", middle, middle))
    net.out(quotient(net, centred(net, x), net("Add", variance, net.const(EPSILON)), "div"))
    refused(net)


@pytest.mark.parametrize("centre", [(1,), (2,), (1, 2), (3,)])
@pytest.mark.parametrize("spread", [(1,), (2,), (1, 2), (3,)])
def test_a_mean_over_other_axes_than_the_variance(
    centre: tuple[int, ...], spread: tuple[int, ...]
) -> None:
    """Centred along one axis and scaled along another: no LayerNorm, though both look like it."""
    net = Net(18)
    y = centred(net, net.input("x", "f32[b, 4, 6, s]"), centre)
    radicand = net("Add", net.mean(net("Mul", y, y), spread), net.const(EPSILON))
    net.out(quotient(net, y, radicand, "div"))
    same, last = centre == spread, spread == (3,)
    wanted = {"LayerNorm": 1} if same else {"ReduceMean": 1, "Sub": 1, "RMSNorm": 1}
    check(net, wanted | ({} if last else {"Transpose": 2}), tolerance=1e-5)


@pytest.mark.parametrize("way", ["Unsqueeze", "Reshape"])
def test_means_whose_axis_comes_back_later(way: str) -> None:
    net = Net()
    x = net.input("x", "f32[b, s, 8]")
    first, again = centred(net, x), net("Sub", x, net.mean(x, (2,)))
    flat = net("ReduceMean", net("Mul", again, again), axes=[2], keepdims=0)
    kept = net(way, flat, net.ints(-1) if way == "Unsqueeze" else net.ints(0, 0, 1))
    net.out(quotient(net, first, net("Add", kept, net.const(EPSILON)), "div"))
    check(net, {"LayerNormalization": 1}, tolerance=1e-5)


@pytest.mark.parametrize("opset", [14, 18, 23])
@pytest.mark.parametrize("axes", [(1,), (1, 2), (-2,)])
@pytest.mark.parametrize("centring", [False, True])
def test_axes_before_the_last(opset: int, axes: tuple[int, ...], centring: bool) -> None:
    net = Net(opset)
    x = net.input("x", "f32[b, 4, 6, s]")
    y = centred(net, x, axes) if centring else x
    radicand = net("Add", net.mean(net("Mul", y, y), axes), net.const(EPSILON))
    rows = [n if i in [a % 4 for a in axes] else 1 for i, n in enumerate((1, 4, 6, 1))][1:]
    value = net("Mul", net.weight(*rows), quotient(net, y, radicand, "div"))
    if centring:
        value = net("Add", value, net.weight(*rows, seed=2))
    net.out(value)
    norm = "LayerNorm" if centring else "RMSNorm"
    norm = norm.replace("Norm", "Normalization") if opset >= (17 if centring else 23) else norm
    views = 1 + centring
    graph = check(net, {norm: 1, "Transpose": 2, "Reshape": views}, tolerance=1e-5)
    Canonicalize().run(graph, PassContext())
    assert kinds(graph) == {norm: 1, "Transpose": 2}


def test_a_row_along_other_axes_stays_behind() -> None:
    net = Net()
    x = net.input("x", "f32[b, 4, 6]")
    radicand = net("Add", net.mean(net("Mul", x, x), (1,)), net.const(EPSILON))
    net.out(net("Mul", quotient(net, x, radicand, "div"), net.weight(6)))
    check(net, {"RMSNorm": 1, "Transpose": 2, "Mul": 1})


# ------------------------------------------------------------------ refusals


def refused(net: Net) -> Graph:
    graph = fused(net.text)
    found = set(kinds(graph))
    assert not found & {"RMSNorm", "LayerNorm", "RMSNormalization", "LayerNormalization"}
    return graph


@pytest.mark.parametrize("inner", ["square", "mean", "radicand", "root", "inverse"])
def test_an_inner_value_that_is_read_elsewhere_refuses(inner: str) -> None:
    net = Net()
    x = net.input("x", "f32[b, s, 8]")
    values = {"square": net("Mul", x, x)}
    values["mean"] = net.mean(values["square"])
    values["radicand"] = net("Add", values["mean"], net.const(EPSILON))
    values["root"] = net("Sqrt", values["radicand"])
    values["inverse"] = net("Reciprocal", values["root"])
    net.out(net("Mul", x, values["inverse"]), values[inner])
    refused(net)


def test_a_mean_over_the_batch_or_parted_axes_refuses() -> None:
    for axes in ((0,), (0, 2), (0, 1)):
        net = Net()
        x = net.input("x", "f32[b, s, 8]")
        radicand = net("Add", net.mean(net("Mul", x, x), axes), net.const(EPSILON))
        net.out(quotient(net, x, radicand, "div"))
        refused(net)


def test_a_root_of_something_else_refuses() -> None:
    net = Net()
    x, y = net.input("x", "f32[b, s, 8]"), net.input("y", "f32[b, s, 8]")
    radicand = net("Add", net.mean(net("Mul", y, y)), net.const(EPSILON))
    net.out(quotient(net, x, radicand, "div"))
    refused(net)


def test_a_sum_divided_by_another_number_refuses() -> None:
    net = Net()
    x = net.input("x", "f32[b, s, 8]")
    total = net.mean(net("Mul", x, x), op="ReduceSum")
    mean = net("Div", total, net.const(7.0))
    net.out(quotient(net, x, net("Add", mean, net.const(EPSILON)), "div"))
    refused(net)


def test_a_wrong_power_refuses() -> None:
    net = Net()
    x = net.input("x", "f32[b, s, 8]")
    radicand = net("Add", net.mean(net("Pow", x, net.const(3.0))), net.const(EPSILON))
    net.out(quotient(net, x, radicand, "div"))
    refused(net)


def test_a_negative_epsilon_refuses() -> None:
    net = Net()
    x = net.input("x", "f32[b, s, 8]")
    radicand = net("Add", net.mean(net("Mul", x, x)), net.const(-EPSILON))
    net.out(quotient(net, x, radicand, "div"))
    refused(net)


def test_a_scale_for_each_row_is_no_part_of_the_norm() -> None:
    net = Net()
    x, w = net.input("x", "f32[b, s, 8]"), net.input("w", "f32[b, 1, 8]")
    net.out(net("Mul", rms(net, x), w))
    check(net, {"RMSNorm": 1, "Mul": 1})


def test_a_shift_that_is_added_in_another_type_is_no_part_of_the_norm() -> None:
    net = Net()
    x = net.input("x", "f16[b, s, 8]")
    scaled = net.cast(net("Mul", wide_rms(net, x), net.weight(8)), F16)
    net.out(net("Add", scaled, net.weight(8, dtype="f16")))
    check(net, {"RMSNorm": 1, "Add": 1})


def test_labels() -> None:
    for labels, wanted in (("a", 1), ("ab", 0)):
        net = Net()
        x = net.input("x", "f32[b, s, 8]")
        net.note = f'label "{labels[0]}"'
        squared = net("Mul", x, x)
        net.note = f'label "{labels[-1]}"'
        mean = net.mean(squared)
        net.out(quotient(net, x, net("Add", mean, net.const(EPSILON)), "div"))
        graph = fused(net.text)
        found = [o for o in graph.ops if o.op_type == "RMSNorm"]
        assert len(found) == wanted
        assert all(o.info.label == "a" for o in found)


def test_an_order_of_control_holds_the_ops_in_place() -> None:
    net = Net()
    x = net.input("x", "f32[b, s, 8]")
    net.lines.append("%held = Abs(%x) @held")
    net.lines.append("%sq = Mul(%x, %x) @sq")
    mean = net.mean("sq")
    net.out(quotient(net, x, net("Add", mean, net.const(EPSILON)), "div"), "held")
    net.lines.append("control @held -> @sq")
    refused(net)


# ------------------------------------------------------------------ metamorphic


@pytest.mark.parametrize("opset", [13, 18])
def test_identities_names_and_order_change_nothing(opset: int) -> None:
    net = Net(opset)
    net.identities = True
    x = net.input("other_name", "f32[b, s, 8]")
    first = rms(net, net.cast(x, F32))
    net.out(net("Mul", net.weight(8), first), net("Mul", layer_norm(net, x), net.weight(8)))
    net.lines.reverse()
    text = net.text
    graph = fused(text, _Both())
    assert kinds(graph)["RMSNorm"] == 1
    assert {"LayerNorm", "LayerNormalization"} & set(kinds(graph))


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("form", ["variance", "channels"])
def test_the_same_of_later_forms(form: str, swap: bool, static: bool) -> None:
    net = Net(17)
    net.identities, net.swap = True, swap
    x = net.input("other_name", "f32[b, 8, s]" if form == "channels" else "f32[b, s, 8]")
    axes = (1,) if form == "channels" else (-1,)
    middle = net.mean(x, axes)
    minus = net("Sub", x, middle)
    if form == "channels":
        variance, rows = net.mean(net("Mul", minus, minus), axes), (8, 1)
    else:
        variance, rows = net.mean(net("Mul", x, x)), (8,)
        variance = net("Sub", variance, net("Mul", middle, middle))
    y = quotient(net, minus, net("Add", variance, net.const(EPSILON)), "reciprocal")
    net.out(net("Add", net("Mul", net.weight(*rows), y), net.weight(*rows, seed=2)))
    net.lines.reverse()
    text = net.text
    if static:
        text = text.replace("[b,", "[2,").replace(" s,", " 3,").replace(" s]", " 3]")
    graph = fused(text, _Around())
    turns = {"Transpose": 2} if form == "channels" else {}
    assert kinds(graph) == {"LayerNormalization": 1, **turns}


class _Both(Canonicalize):
    """Canonical form first, then fusion."""

    def run(self, graph: Graph, context: PassContext) -> int:
        return super().run(graph, context) + FUSE.run(graph, context)


class _Around(Canonicalize):
    """Canonical form, fusion, and the canonical form of what fusion adds."""

    def run(self, graph: Graph, context: PassContext) -> int:
        return sum(p.run(graph, context) for p in (Canonicalize(), FUSE, Canonicalize()))
