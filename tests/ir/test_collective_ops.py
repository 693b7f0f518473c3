"""The ops by which ranks talk: shapes, text, and that no pass drops, merges or exports them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gecompiler.ir import parse
from gecompiler.ir.collective_ops import COLLECTIVES, is_collective_op, message_bytes, signature
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.ir.onnx_io.exporter import save_onnx
from gecompiler.ir.schedule import Demand, Limits, Schedule, Task
from gecompiler.passes import Pipeline
from gecompiler.passes.effects import has_side_effects, is_pure

GROUP = 'communicator = "tp", group_size = 4'


def graph(body: str, result: str = "%y") -> Graph:
    return parse(
        f"graph @g (opset 20) {{\n  input %x: f16[8, 64]\n  {body}\n  return {result}\n}}\n"
    )


def inferred(body: str) -> Graph:
    found = graph(body)
    infer_types(found, strict=True)
    return found


@pytest.mark.parametrize(
    ("text", "type_", "moved"),
    [
        (f'AllReduce(%x) {{{GROUP}, reduction = "mean"}}', "f16[8, 64]", 1024),
        (f"AllGather(%x) {{{GROUP}, axis = 1}}", "f16[8, 256]", 4096),
        (f"AllGather(%x) {{{GROUP}, axis = -2}}", "f16[32, 64]", 4096),
        (f'ReduceScatter(%x) {{{GROUP}, axis = 0, reduction = "sum"}}', "f16[2, 64]", 1024),
        (f"Broadcast(%x) {{{GROUP}, root = 3}}", "f16[8, 64]", 1024),
        (f"AllToAll(%x) {{{GROUP}, split_axis = 1, concat_axis = 0}}", "f16[32, 16]", 1024),
        (f"AllToAll(%x) {{{GROUP}, split_axis = 0, concat_axis = 0}}", "f16[8, 64]", 1024),
        (f'Recv() {{{GROUP}, peer = -1, tag = 0, dtype = "bf16", shape = [3, 5]}}',
         "bf16[3, 5]", 30),
    ],
)  # fmt: skip
def test_shapes(text: str, type_: str, moved: int) -> None:
    found = inferred(f"%y = gecompiler.{text}")
    assert str(found.type("y")) == type_
    op = found.producer("y")
    assert op is not None
    assert is_collective_op(op)
    assert message_bytes(found, op) == moved
    assert op.op_type in COLLECTIVES
    assert type_.split("[", maxsplit=1)[0] in signature(found, op)
    assert str(parse(str(found))) == str(found)


def test_symbols_are_multiplied_and_divided() -> None:
    found = parse(
        "graph @g (opset 20) {\n  input %x: f16[b, 64]\n"
        f"  %y = gecompiler.AllGather(%x) {{{GROUP}, axis = 0}}\n"
        f"  %z = gecompiler.ReduceScatter(%y) {{{GROUP}, axis = 0}}\n  return %z\n}}\n"
    )
    infer_types(found)
    assert str(found.type("y")) == "f16[4*b, 64]"
    assert str(found.type("z")) == "f16[b, 64]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"AllGather(%x) {{{GROUP}, axis = 2}}", "axis 2 is out of range"),
        (f"ReduceScatter(%x) {{{GROUP.replace('4', '3')}, axis = 0}}", "shared evenly by 3"),
        (f'AllReduce(%x) {{{GROUP}, reduction = "sums"}}', "reduction 'sums' is not known"),
        (f"Broadcast(%x) {{{GROUP}, root = 4}}", "root is 4"),
        (f"AllToAll(%x) {{{GROUP.replace('4', '7')}, split_axis = 0, concat_axis = 1}}", "by 7"),
        ("AllReduce(%x) {group_size = 4}", "communicator is not given"),
        ('AllReduce(%x) {communicator = "tp"}', "group_size is None"),
        ('AllReduce(%x) {communicator = "tp", group_size = 0}', "group_size is 0"),
        (f'Recv() {{{GROUP}, dtype = "f17", shape = [1]}}', "dtype 'f17' is not known"),
        (f'Recv() {{{GROUP}, dtype = "f16", shape = [-1]}}', "shape is"),
        (f"AllReduce(%x, %x) {{{GROUP}}}", "1 inputs"),
    ],
)
def test_what_no_rank_could_run_is_refused(text: str, words: str) -> None:
    with pytest.raises(ModelError) as error:
        inferred(f"%y = gecompiler.{text}")
    assert words in str(error.value)


PROGRAM = f"""%a = gecompiler.AllReduce(%x) {{{GROUP}, reduction = "sum"}}
  %b = gecompiler.AllReduce(%x) {{{GROUP}, reduction = "sum"}}
  gecompiler.Send(%a) @send {{{GROUP}, peer = 1, tag = 0}}
  %unused = gecompiler.Recv() {{{GROUP}, peer = -1, tag = 0, dtype = "f16", shape = [8, 64]}}
  %also = gecompiler.Recv() {{{GROUP}, peer = -1, tag = 1, dtype = "f16", shape = [8, 64]}}
  %same = gecompiler.Recv() {{{GROUP}, peer = -1, tag = 1, dtype = "f16", shape = [8, 64]}}
  %y = Add(%a, %b)"""


def test_no_pass_drops_or_merges_a_collective() -> None:
    found = inferred(PROGRAM)
    before = [op.name for op in found.ops if is_collective_op(op)]
    for op in found.ops:
        assert has_side_effects(op) == is_collective_op(op)
        assert is_pure(op) != is_collective_op(op)
    for spec in ("fuse-attention,canonicalize,fuse-block,canonicalize", "attention-layout"):
        Pipeline.parse(spec).run(found)
    found.verify()
    assert sorted(op.name for op in found.ops if is_collective_op(op)) == sorted(before)
    assert [op.attr("tag") for op in found.ops if op.op_type == "Recv"] == [0, 1, 1]


def test_collectives_do_not_leave_in_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="collectives") as error:
        save_onnx(inferred(PROGRAM), tmp_path / "model.onnx")
    assert "one card" in str(error.value)
    assert not (tmp_path / "model.onnx").exists()


def test_a_part_goes_through_json() -> None:
    task = Task(
        0, "0:ar", "collective", 0, 0, op_type="AllReduce", communicator="",
        signature="AllReduce sum f16[4]", demand=Demand(fixed_us=3.0, least_us=12.5),
    )  # fmt: skip
    limits = Limits(4, 8, 100, 1 << 20, 8, 16)
    whole = Schedule("m", "d", "hand", (task,), (), (), limits)
    assert Schedule.from_json(whole.to_json()) == whole
