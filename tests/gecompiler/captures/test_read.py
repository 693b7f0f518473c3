from __future__ import annotations

from pathlib import Path

import pytest
from capture_help import MSPROF, TORCH, op, table, transformer, write

from gecompiler.captures import Modelled, modelled, read_capture
from gecompiler.captures.heads import Heads, heads
from gecompiler.captures.read import MeasuredOp, Operand
from gecompiler.ir.errors import UsageError
from gecompiler.ir.types import DType


@pytest.mark.parametrize("header", [TORCH, MSPROF])
def test_both_dialects_give_the_same_operators(tmp_path: Path, header: list[str]) -> None:
    wanted = transformer((16,))
    found = read_capture(write(tmp_path / "p.csv", table(wanted, header=header)))
    assert [(o.op_type, o.inputs, o.outputs) for o in found.ops] == [
        (o.op_type, o.inputs, o.outputs) for o in wanted
    ]
    assert found.dialect == ("msprof" if header is MSPROF else "torch_npu")


def test_byte_order_mark_columns_in_any_order_and_other_units(tmp_path: Path) -> None:
    header = [c.replace("Duration(us)", "Duration(ns)") for c in reversed(TORCH)]
    text = "\ufeff" + table([op("Add", ((4,), (4,)), (4,))], header=header, unit=1.0)
    (one,) = read_capture(write(tmp_path / "p.csv", text)).ops
    assert one.duration_us == pytest.approx(1e-3)


def test_starts_are_exact_beyond_what_a_float_holds(tmp_path: Path) -> None:
    ops = [op("Add", ((4,), (4,)), (4,))] * 2
    first, second = read_capture(write(tmp_path / "p.csv", table(ops, gap_us=0.25))).ops
    assert first.start_ns is not None
    assert second.start_ns is not None
    assert second.start_ns - first.start_ns == 1250


def test_old_header_without_state_and_with_block_dim(tmp_path: Path) -> None:
    old = [c.replace("Task Start", "Start") for c in MSPROF if c not in ("Device_id", "OP State")]
    assert len(read_capture(write(tmp_path / "p.csv", table(transformer((16,)), header=old))).ops)


def test_rows_that_say_nothing_are_counted_by_reason(tmp_path: Path) -> None:
    good = table([op("Add", ((4,), (4,)), (4,))])
    row = good.splitlines()[1].split(",")
    late = TORCH.index("Duration(us)")
    shapes = TORCH.index("Input Shapes")

    def changed(column: int, text: str) -> str:
        return ",".join(text if i == column else cell for i, cell in enumerate(row))

    lines = [
        changed(late, "N/A"),
        changed(late, "abc"),
        changed(late, "-3"),
        changed(late, "0"),
        changed(late, "inf"),
        changed(shapes, "DT_BF16;DT_BF16"),
        "1,2,3",
    ]
    found = read_capture(write(tmp_path / "p.csv", good + "\n".join(lines) + "\n"))
    assert len(found.ops) == 1
    assert sum(count for _, count in found.left_out) == len(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a,b,c\n1,2,3\n", "no column 'Op Name' or 'Name'"),
        ("OP Type,Core Type,Count,Total Time(us),Avg Time(us)\n", "op_statistic.csv"),
        ("Step,Computing,Free\n", "step_trace_time.csv"),
        ("Name,Type,Duration(us)\nx,Add,3\n", "record_shapes"),
        (",".join(TORCH).replace("Duration(us)", "Duration(weeks)"), "unit 'weeks'"),
        (",".join(TORCH), "no rows"),
        (",".join(TORCH) + "\n" + ",".join(["N/A"] * len(TORCH)), "no duration"),
        (",".join(TORCH) + '\n"' + "x" * (2 << 20) + '"', "comma-separated"),
    ],
)
def test_files_that_are_none_are_refused_in_words(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        read_capture(write(tmp_path / "p.csv", text))
    assert said in str(error.value)
    assert "p.csv" in str(error.value)


def test_a_file_that_is_no_text_and_one_that_is_not_there(tmp_path: Path) -> None:
    binary = tmp_path / "p.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    for path in (binary, tmp_path / "none.csv"):
        with pytest.raises(UsageError, match="cannot be read"):
            read_capture(path)


def _case(one: MeasuredOp, *, causal: bool = False) -> Modelled:
    found = modelled(one, causal=causal)
    assert isinstance(found, Modelled), found
    return found


@pytest.mark.parametrize(
    ("a", "b", "out", "turned"),
    [
        ((32, 9216), (9216, 4096), (32, 4096), (0, 0)),
        ((32, 9216), (4096, 9216), (32, 4096), (0, 1)),
        ((32, 1000), (32, 4096), (1000, 4096), (1, 0)),
        ((4096, 32), (9216, 4096), (32, 9216), (1, 1)),
    ],
)
def test_matrices_stored_turned_are_told_by_their_sizes(
    a: tuple[int, ...], b: tuple[int, ...], out: tuple[int, ...], turned: tuple[int, int]
) -> None:
    case = _case(op("MatMulV2", (a, b), out))
    assert (case.op.attr("transA"), case.op.attr("transB")) == turned


def test_blocked_layouts_are_the_matrices_and_images_they_hold() -> None:
    nz = MeasuredOp(
        "m", "MatMulV2", "AI_CORE", "0", None, 1.0, None,
        (Operand((256, 2, 16, 16), DType.F16, "FRACTAL_NZ"), Operand((4096, 512), DType.F16)),
        (Operand((30, 512), DType.F16),), 1,
    )  # fmt: skip
    assert _case(nz).graph.tensor("x0").sizes == (32, 4096)
    image = MeasuredOp(
        "c", "Conv2D", "AI_CORE", "0", None, 1.0, None,
        (
            Operand((32, 8, 27, 27, 8), DType.F32, "NC1HWC0"),
            Operand((200, 12, 16, 8), DType.F32, "FRACTAL_Z"),
        ),
        (Operand((32, 24, 27, 27, 8), DType.F32, "NC1HWC0"),), 1,
    )  # fmt: skip
    case = _case(image)
    assert case.graph.tensor("x1").sizes == (192, 64, 25, 1)
    assert case.graph.tensor("y").sizes == (32, 192, 27, 27)


@pytest.mark.parametrize(
    ("q", "k", "outputs", "wanted"),
    [
        ((2, 32, 512, 128), (2, 8, 512, 128), (), (2, 32, 8, 512, 512)),  # BNSD, shared keys
        ((2, 512, 32, 128), (2, 512, 8, 128), (), (2, 32, 8, 512, 512)),  # BSND
        ((4, 32, 1, 128), (4, 8, 900, 128), (), (4, 32, 8, 1, 900)),  # decoding, BNSD
        ((4, 1, 32, 128), (4, 900, 8, 128), (), (4, 32, 8, 1, 900)),  # decoding, BSND
        ((2, 1024, 4096), (2, 1024, 1024), ((2, 32, 1024, 8),), (2, 32, 8, 1024, 1024)),  # BSH
        ((8192, 2, 640), (8192, 2, 640), ((655360,),), (2, 5, 5, 8192, 8192)),  # SBH
    ],
)
def test_heads_follow_from_the_shapes(
    q: tuple[int, ...], k: tuple[int, ...], outputs: tuple[tuple[int, ...], ...],
    wanted: tuple[int, ...],
) -> None:  # fmt: skip
    found = heads(q, k, k, outputs)
    assert isinstance(found, Heads)
    assert found[:5] == wanted
    assert found.head_dim == 128


def test_heads_that_nothing_tells_are_not_guessed() -> None:
    assert heads((2, 1024, 4096), (2, 1024, 1024), (2, 1024, 1024), ()) is None


def test_collectives_and_unknown_types_have_reasons() -> None:
    for op_type, reason in (("hcom_allReduce_", "collectives"), ("NLLLossGrad", "no formula")):
        found = modelled(op(op_type, ((4,),), (4,)))
        assert isinstance(found, str)
        assert reason in found
    assert _case(op("BroadcastTo", ((1, 4),), (8, 4))).family == "movement"


def test_the_real_captures_are_read(corpus: Path) -> None:
    details = read_capture(corpus / "measured" / "msprof" / "kernel_details.csv")
    summary = read_capture(corpus / "measured" / "msprof" / "op_summary_1.csv")
    assert (len(details.ops), details.dialect) == (191, "torch_npu")
    assert (len(summary.ops), summary.dialect) == (20, "msprof")
    assert sum(count for _, count in summary.left_out) == 1
    convolution = next(o for o in details.ops if o.op_type == "Conv2D")
    assert convolution.duration_us == 311.646
    assert convolution.inputs[0] == Operand((32, 1, 224, 224, 8), DType.F32, "NC1HWC0")
