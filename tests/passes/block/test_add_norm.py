"""A residual sum and the norm behind it become one op with one or two results."""

from __future__ import annotations

import pytest
from block_help import FUSE, Net, check, fused, kinds
from test_norms import layer_norm, rms

from gecompiler.ir import parse
from gecompiler.passes import Pipeline
from gecompiler.passes.block.fuse import FuseBlock


def inputs(net: Net, dtype: str = "f32") -> tuple[str, str]:
    return net.input("x", f"{dtype}[b, s, 8]"), net.input("r", f"{dtype}[b, s, 8]")


@pytest.mark.parametrize("opset", [13, 17, 23])
@pytest.mark.parametrize("used", [False, True])
def test_rms_norm_of_a_sum(opset: int, used: bool) -> None:
    for swap in (False, True):
        net = Net(opset)
        net.swap = swap
        total = net("Add", *inputs(net))
        net.out(net("Mul", rms(net, total), net.weight(8)), *([net("Neg", total)] if used else []))
        graph = check(net, {"AddRMSNorm": 1, **({"Neg": 1} if used else {})}, tolerance=1e-5)
        (op,) = [o for o in graph.ops if o.op_type == "AddRMSNorm"]
        assert len(op.outputs) == 1 + used


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("side", [0, 1])
def test_layer_norm_of_a_sum_with_a_bias(used: bool, side: int) -> None:
    net = Net()
    x, r = inputs(net)
    operands = [net("Add", x, net.weight(8)), r]
    total = net("Add", *(operands if side else operands[::-1]))
    y = net("LayerNormalization", total, net.weight(8), net.weight(8, seed=2), axis=-1)
    net.out(y, *([total] if used else []))
    graph = check(net, {"AddLayerNorm": 1}, tolerance=1e-5)
    (op,) = [o for o in graph.ops if o.op_type == "AddLayerNorm"]
    assert op.inputs[:2] == ("x", "r")
    assert len(op.inputs) == 5


def test_the_sum_may_be_an_output_of_the_model() -> None:
    net = Net()
    total = net("Add", *inputs(net))
    net.outputs.append(total)
    net.out(rms(net, total))
    graph = check(net, {"AddRMSNorm": 1})
    assert graph.outputs[0] == total


def test_half_precision_normalises_the_rounded_sum() -> None:
    net = Net()
    total = net("Add", *inputs(net, "f16"))
    normal = net.cast(rms(net, net.cast(total, 1)), 10)
    net.out(net("Mul", net.weight(8, dtype="f16"), normal), total)
    check(net, {"AddRMSNorm": 1})


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("view", [False, True])
def test_a_wide_residual_stream_and_a_narrow_norm(used: bool, view: bool) -> None:
    net = Net()
    total = net("Add", *inputs(net))
    value = net("Reshape", total, net.ints(-1, 8)) if view else total
    net.out(net("Mul", net.cast(rms(net, value), 10), net.weight(8, dtype="f16")))
    net.out(*([net("Neg", total)] if used else []))
    wanted = {"AddRMSNorm": 1, **({"Neg": 1} if used else {}), **({"Reshape": 1} if view else {})}
    check(net, wanted)


@pytest.mark.parametrize("used", [False, True])
def test_a_view_between_sum_and_norm(used: bool) -> None:
    net = Net()
    total = net("Add", *inputs(net))
    flat = net("Reshape", total, net.ints(-1, 8))
    net.out(layer_norm(net, flat), *([net("Neg", total), net("Abs", flat)] if used else []))
    wanted = {"AddLayerNorm": 1, "Reshape": 1}
    if used:
        wanted |= {"Neg": 1, "Abs": 1, "Reshape": 2}
    check(net, wanted, tolerance=1e-5)


def test_a_view_that_cuts_the_normalised_axis_stays_between() -> None:
    net = Net()
    total = net("Add", *inputs(net))
    heads = net("Reshape", total, net.ints(0, 0, 2, 4))
    net.out(rms(net, heads, width=4))
    check(net, {"Add": 1, "Reshape": 1, "RMSNorm": 1})


def test_a_sum_that_broadcasts_stays_apart() -> None:
    net = Net()
    x, r = net.input("x", "f32[b, s, 8]"), net.input("r", "f32[1, s, 8]")
    net.out(rms(net, net("Add", x, r)))
    check(net, {"Add": 1, "RMSNorm": 1})


def test_sizes_that_are_not_proven_equal_stay_apart() -> None:
    net = Net()
    x, r = net.input("x", "f32[b, s, 8]"), net.input("r", "f32[c, s, 8]")
    net.out(rms(net, net("Add", x, r)))
    check(net, {"Add": 1, "RMSNorm": 1}, {"b": 2, "c": 2, "s": 3})


def test_a_scale_that_is_computed_from_the_sum_stays_apart() -> None:
    net = Net()
    total = net("Add", *inputs(net))
    row = net("ReduceMax", total, axes=[0, 1], keepdims=0)
    net.out(net("Mul", rms(net, total), row))
    check(net, {"Add": 1, "RMSNorm": 1, "ReduceMax": 1})


def test_two_norms_of_one_sum() -> None:
    net = Net()
    total = net("Add", *inputs(net))
    net.out(net("Mul", rms(net, total), net.weight(8)), layer_norm(net, total))
    check(net, {"AddRMSNorm": 1, "LayerNormalization": 1}, tolerance=1e-5)


def test_a_bias_that_is_read_elsewhere_stays_apart() -> None:
    net = Net()
    x, r = inputs(net)
    biased = net("Add", x, net.weight(8))
    net.out(rms(net, net("Add", biased, r)), net("Neg", biased))
    check(net, {"Add": 1, "AddRMSNorm": 1, "Neg": 1})


def test_labels_that_differ_refuse() -> None:
    net = Net()
    net.note = 'label "a"'
    total = net("Add", *inputs(net))
    net.note = ""
    net.out(rms(net, total))
    assert kinds(fused(net.text)) == {"Add": 1, "RMSNorm": 1}


def test_groups_and_sources_of_the_parts() -> None:
    net = Net()
    net.note = 'scope "/layer" sources ["sum"]'
    total = net("Add", *inputs(net))
    net.note = 'scope "/layer/norm" group "LayerNorm" sources ["norm"]'
    net.out(rms(net, total), total)
    (op,) = [o for o in fused(net.text).ops if o.op_type == "AddRMSNorm"]
    assert (op.info.scope, op.info.group) == ("/layer/norm", "LayerNorm")
    assert set(op.info.sources) == {"sum", "norm"}


def test_an_order_of_control_refuses() -> None:
    net = Net()
    x, r = inputs(net)
    net.lines += [f"%held = Abs(%{x}) @held", f"%total = Add(%{x}, %{r}) @total"]
    net.out(rms(net, "total"), "held")
    net.lines.append("control @held -> @total")
    assert kinds(fused(net.text)) == {"Abs": 1, "Add": 1, "RMSNorm": 1}


def test_options_leave_sums_or_norms_alone() -> None:
    net = Net()
    net.out(rms(net, net("Add", *inputs(net))))
    assert kinds(fused(net.text, FuseBlock(residuals=False))) == {"Add": 1, "RMSNorm": 1}
    assert "RMSNorm" not in kinds(fused(net.text, FuseBlock(norms=False)))
    assert kinds(fused(net.text, FUSE)) == {"AddRMSNorm": 1}


def test_a_norm_that_nothing_reads_is_left_to_dead_code() -> None:
    net = Net()
    total = net("Add", *inputs(net))
    rms(net, total)
    net.out(net("Neg", total))
    graph = parse(net.text)
    Pipeline.parse("fuse-block").run(graph)
    assert "AddRMSNorm" not in kinds(graph)
