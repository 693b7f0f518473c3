"""What single ops become when their inputs are cut, in the text form."""

from __future__ import annotations

import re

import pytest

from gecompiler.ir import parse
from gecompiler.ir.parallel import Layout, Mesh, Product, Segments, Split, Template
from gecompiler.passes.parallel import ParallelOptions
from gecompiler.passes.parallel.localise import Localiser
from gecompiler.passes.parallel.plan import HeadCut, Plan
from gecompiler.passes.parallel.signature import Region, Runs, decompose, places_of, regions_of

TP = Split("tp")
Wishes = dict[str | tuple[str, int], tuple[Layout, ...]]


def localised(body: str, wishes: Wishes, mesh: Mesh | None = None, **plan: object) -> Template:
    """The template of a graph in the text form, ``op`` being its op."""
    graph = parse("graph @g (opset 20, gecompiler 1) {\n" + body + "\n}")
    options = ParallelOptions(gather_outputs=())
    found = Localiser(graph, mesh or Mesh.of(tp=2), Plan(wishes, **plan), options).run()
    found.graph.verify()
    return found


def ops_of(template: Template) -> list[str]:
    """The ops and the shapes they make, in order: ``MatMul 2x4``."""
    found = []
    for op in template.graph.topological():
        shape = "x".join(str(n) for n in template.graph.types[op.outputs[0]].sizes)
        found.append(f"{op.op_type} {shape}")
    return found


PRODUCT = """
  input %x: f32[4, 6]
  const %w: f32[6, 8] = absent
  %y: f32[4, 8] = MatMul(%x, %w) @op
  return %y
"""


def test_columns_of_a_product() -> None:
    found = localised(PRODUCT, {("op", 1): (None, TP)})
    assert ops_of(found) == ["MatMul 4x4"]
    assert found.outputs["y"].sharding.dims == (None, TP)
    assert found.graph.constants["w"].type.sizes == (6, 4)


def test_rows_of_a_product_leave_a_sum() -> None:
    found = localised(PRODUCT, {"x": (None, TP), ("op", 1): (TP, None)})
    assert ops_of(found) == ["MatMul 4x8", "AllReduce 4x8"]
    assert found.graph.constants["w"].type.sizes == (3, 8)


def test_rows_that_do_not_divide_hold_zeros() -> None:
    found = localised(PRODUCT, {"x": (None, TP)}, Mesh.of(tp=4))
    assert ops_of(found) == ["MatMul 4x8", "AllReduce 4x8"]
    ((_, sharding),) = found.constants.values()
    assert sharding.once == (0,)


def test_one_axis_cuts_one_dim() -> None:
    found = localised(PRODUCT, {"x": (TP, None), ("op", 1): (None, TP)})
    assert ops_of(found) == ["MatMul 2x8"]
    assert found.outputs["y"].sharding.dims == (TP, None)


def test_two_axes_cut_two_dims() -> None:
    mesh = Mesh.of(dp=2, tp=2)
    found = localised(PRODUCT, {"x": (Split("dp"), None), ("op", 1): (None, TP)}, mesh)
    assert ops_of(found) == ["MatMul 2x4"]


CASES = {
    "what is whole is taken from": (
        "input %x: f32[4, 6]\n input %z: f32[4, 6]\n %y: f32[4, 6] = Add(%x, %z) @op",
        {"x": (TP, None)},
        ["Gather 2x6", "Add 2x6"],
    ),
    "a constant is cut for nothing": (
        "input %x: f32[4, 6]\n const %c: f32[4, 6] = absent\n %y: f32[4, 6] = Add(%x, %c) @op",
        {"x": (TP, None)},
        ["Add 2x6"],
    ),
    "a softmax needs its row": (
        "input %x: f32[4, 6]\n %y: f32[4, 6] = Softmax(%x) @op {axis = -1}",
        {"x": (None, TP)},
        ["AllGather 4x6", "Softmax 4x6"],
    ),
    "but not its column": (
        "input %x: f32[4, 6]\n %y: f32[4, 6] = Softmax(%x) @op {axis = -1}",
        {"x": (TP, None)},
        ["Softmax 2x6"],
    ),
    "heads are a dim of their own": (
        "input %x: f32[2, 12]\n const %n: i64[3] = [2, 4, 3]\n"
        " %y: f32[2, 4, 3] = Reshape(%x, %n) @op",
        {"x": (None, Product(((4, TP), (3, None))))},
        ["Reshape 2x2x3"],
    ),
    "a cut through heads is gathered": (
        "input %x: f32[2, 12]\n const %n: i64[3] = [2, 3, 4]\n"
        " %y: f32[2, 3, 4] = Reshape(%x, %n) @op",
        {"x": (None, TP)},
        ["AllGather 2x12", "Reshape 2x3x4"],
    ),
    "tokens and samples in one dim": (
        "input %x: f32[4, 6]\n const %n: i64[1] = [24]\n %y: f32[24] = Reshape(%x, %n) @op",
        {"x": (None, TP)},
        ["Reshape 12"],
    ),
    "runs are cut each by itself": (
        "input %x: f32[2, 8]\n const %n: i64[2] = [4, 4]\n"
        " %y: f32[2, 4], %z: f32[2, 4] = Split(%x, %n) @op {axis = 1}",
        {"x": (None, Segments(((4, TP), (4, TP))))},
        ["Split 2x2"],
    ),
    "a cut across runs is gathered": (
        "input %x: f32[2, 8]\n const %n: i64[2] = [4, 4]\n"
        " %y: f32[2, 4], %z: f32[2, 4] = Split(%x, %n) @op {axis = 1}",
        {"x": (None, TP)},
        ["AllGather 2x8", "Split 2x4"],
    ),
    "a slice of cut runs": (
        "input %x: f32[2, 8]\n const %s: i64[1] = [4]\n const %e: i64[1] = [8]\n"
        " const %a: i64[1] = [1]\n %y: f32[2, 4] = Slice(%x, %s, %e, %a) @op",
        {"x": (None, Segments(((4, TP), (4, TP))))},
        ["Slice 2x2"],
    ),
    "halves of a gate": (
        "input %x: f32[2, 8]\n"
        ' %y: f32[2, 4] = gecompiler.SiluMul(%x) @op {alpha = 1.0, gate = "first"}',
        {"x": (None, Segments(((4, TP), (4, TP))))},
        ["SiluMul 2x2"],
    ),
    "a sum over what is cut": (
        "input %x: f32[4, 6]\n const %a: i64[1] = [0]\n"
        " %y: f32[6] = ReduceSum(%x, %a) @op {keepdims = 0}",
        {"x": (TP, None)},
        ["ReduceSum 6", "AllReduce 6"],
    ),
    "a sum over copies is made whole first": (
        "input %x: f32[3, 6]\n const %a: i64[1] = [0]\n"
        " %y: f32[6] = ReduceSum(%x, %a) @op {keepdims = 0}",
        {"x": (TP, None)},
        ["AllGather 4x6", "Slice 3x6", "ReduceSum 6"],
    ),
    "copies do not change a maximum": (
        "input %x: f32[3, 6]\n const %a: i64[1] = [0]\n"
        " %y: f32[6] = ReduceMax(%x, %a) @op {keepdims = 0}",
        {"x": (TP, None)},
        ["ReduceMax 6", "AllReduce 6"],
    ),
    "an op without a rule runs whole": (
        "input %x: f32[4, 6]\n %y: f32[4, 6] = Trilu(%x) @op",
        {"x": (TP, None)},
        ["AllGather 4x6", "Trilu 4x6"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_op(name: str) -> None:
    body, wishes, expected = CASES[name]
    outputs = re.findall(r"%([yz]): [^=]*(?:=| ,)", body)
    ends = "%y, %z" if "Split(" in body else "%y"
    assert outputs
    assert ops_of(localised(f"{body}\n return {ends}", wishes)) == expected


def test_a_cut_moves_to_another_dim_by_all_to_all() -> None:
    body = """
      input %x: f32[4, 6]
      input %z: f32[4, 6]
      %y: f32[4, 6] = Add(%x, %z) @op
      return %y
    """
    found = localised(body, {"x": (TP, None), "z": (None, TP)})
    assert ops_of(found) == ["AllToAll 2x6", "Add 2x6"]


def test_sums_meet_before_they_are_made() -> None:
    """Attention and MLP side by side: one all-reduce for both."""
    body = """
      input %x: f32[4, 6]
      const %v: f32[6, 8] = absent
      const %w: f32[6, 8] = absent
      const %b: f32[8] = absent
      %a: f32[4, 8] = MatMul(%x, %v) @a
      %c: f32[4, 8] = MatMul(%x, %w) @c
      %d: f32[4, 8] = Add(%a, %c) @d
      %e: f32[4, 8] = Add(%d, %b) @e
      %y: f32[4, 8] = Tanh(%e) @f
      return %y
    """
    found = localised(body, {"x": (None, TP)})
    assert [o.split()[0] for o in ops_of(found)] == [
        *("MatMul", "MatMul", "Add", "Add", "AllReduce", "Tanh")
    ]
    assert found.constants["b"][1].partial == ("tp",), "the bias counts once"


ATTENTION = """
  input %q: f32[2, 4, 6, 8]
  input %k: f32[2, 2, 6, 8]
  input %v: f32[2, 2, 6, 8]
  %y: f32[2, 4, 6, 8] = gecompiler.FlashAttention(%q, %k, %v) @op {scale = 1.0, q_heads = 4, kv_heads = 2, softcap = 0.0, window_left = -1, window_right = 0, align = "top_left", masked_row = "nan"}
  return %y
"""  # noqa: E501


def test_neighbours_take_the_kv_head_that_they_share() -> None:
    heads = HeadCut(Split("tp"), Split("tp", 1, 2))
    wishes: Wishes = {"q": (None, TP, None, None)}
    found = localised(ATTENTION, wishes, Mesh.of(tp=4), heads={"op": heads})
    assert ops_of(found) == ["Gather 2x1x6x8", "Gather 2x1x6x8", "FlashAttention 2x1x6x8"]
    op = found.graph.op("op")
    assert (op.attr("q_heads"), op.attr("kv_heads")) == (1, 1)


def test_keys_of_all_tokens_are_gathered() -> None:
    rows = (None, None, Split("sp"), None)
    found = localised(ATTENTION, dict.fromkeys("qkv", rows), Mesh.of(sp=2))
    assert ops_of(found) == ["AllGather 2x2x6x8", "AllGather 2x2x6x8", "FlashAttention 2x4x3x8"]


def test_labels_of_layouts_and_back() -> None:
    sizes, mesh = {"h": 4, "d": 8}, Mesh.of(tp=2)
    assert decompose(("h", "d"), Product(((4, TP), (8, None))), sizes, mesh) == {
        "h": TP, "d": None,
    }  # fmt: skip
    assert decompose(("h", "d"), TP, sizes, mesh) == {"h": TP, "d": None}, "2 heads of 8 a rank"
    assert decompose(("h", "d"), TP, sizes, Mesh.of(tp=8)) is None, "half a head a rank"
    runs = Runs((("h",), ("d",)))
    assert decompose(runs, Segments(((4, TP), (8, None))), sizes, mesh) == {"h": TP}
    assert decompose(runs, TP, sizes, mesh) is None


def test_regions_go_to_labels_and_back() -> None:
    sizes = {"h": 4, "d": 8}
    heads = Region(0, 32, 1, 4, 8)
    assert regions_of(("h", "d"), heads, sizes) == ("h", Region.all_of(4))
    assert list(places_of(("h", "d"), "h", Region.all_of(4), sizes)) == [heads]
    assert regions_of(("h", "d"), Region.all_of(32), sizes) is None
    runs = Runs((("d",), ("h",)))
    assert regions_of(runs, Region(8, 4, 1, 4, 1), sizes) == ("h", Region.all_of(4))
    assert list(places_of(runs, "h", Region.all_of(4), sizes)) == [Region(8, 4, 1, 4, 1)]


def test_a_body_takes_whole_values() -> None:
    body = """
      input %x: f32[4, 6]
      const %c: bool[] = true
      %n: f32[4, 6] = Neg(%x) @neg
      %y: f32[4, 6] = If(%c) @op {
        then_branch = graph @then { outer %n: f32[4, 6]
          %t: f32[4, 6] = Trilu(%n) @t
          return %t
        },
        else_branch = graph @else { outer %n: f32[4, 6]
          return %n
        }
      }
      return %y
    """
    found = localised(body, {"x": (TP, None)})
    assert [o.split()[0] for o in ops_of(found)] == ["Neg", "AllGather", "If"]
    (outer,) = {v for b in found.graph.op("op").bodies for v in b.outer}
    assert found.graph.types[outer].sizes == (4, 6)


@pytest.mark.parametrize(("batch", "index"), [(0, "3, 2"), (1, "4, 3, 1")])
def test_gathering_points_leaves_what_they_do_not_reach(batch: int, index: str) -> None:
    """Lanes of what is gathered stay cut; so do rows of points, and the samples of a batch."""
    made = "3, 8" if batch == 0 else "4, 3, 8"
    body = f"""
  input %x: f32[4, 5, 8]
  input %i: i64[{index}]
  %y: f32[{made}] = GatherND(%x, %i) {{batch_dims = {batch}}} @op
  return %y
"""
    lanes = localised(body, {"x": (None, None, TP)})
    assert ops_of(lanes) == ["GatherND " + made.replace(", ", "x").replace("8", "4")]
    if batch:
        found = localised(body, {"x": (TP, None, None), "i": (TP, None, None)})
        assert ops_of(found) == ["GatherND 2x3x8"]
    else:
        found = localised(body, {"x": (TP, None, None)})
        assert ops_of(found) == ["AllGather 4x5x8", "GatherND 3x8"]
