"""Captures as a card of a given profile would have written them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from gecompiler.backends.device import Device
from gecompiler.captures import MeasuredOp, Modelled, modelled
from gecompiler.captures.read import Operand
from gecompiler.ir.types import DType

_TORCH = (
    "Step Id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),"
    "Duration(us),Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,"
    "Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,"
    "Context ID"
)
_MSPROF = (
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,"
    "Task Start Time(us),Task Duration(us),Task Wait Time(us),Block Num,Mix Block Num,"
    "HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
    "Output Data Types,Output Formats,Context ID"
)
TORCH, MSPROF = _TORCH.split(","), _MSPROF.split(",")
_SPELLED = {
    **{DType.F32: "FLOAT", DType.F16: "FLOAT16", DType.BF16: "DT_BF16"},
    **{DType.I64: "INT64", DType.I32: "INT32", DType.BOOL: "BOOL"},
}


def op(op_type: str, inputs: Iterable[tuple[int, ...]], output: tuple[int, ...],
       dtype: DType = DType.F16, name: str = "") -> MeasuredOp:  # fmt: skip
    """A measured operator whose time is still to be filled in."""
    operands = tuple(Operand(shape, dtype) for shape in inputs)
    return MeasuredOp(
        name or op_type, op_type, "AI_CORE", "2", None, 1.0, None, operands,
        (Operand(output, dtype),), 0,
    )  # fmt: skip


def table(
    ops: Iterable[MeasuredOp],
    device: Device | None = None,
    header: list[str] = TORCH,
    gap_us: float = 1.0,
    unit: float = 1.0,
) -> str:
    """The operators as a table; with a device, their times are those it predicts."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(header)
    now = 1736412474730135222  # ns: beyond what a float holds
    for index, one in enumerate(ops):
        us = one.duration_us if device is None else predicted(one, device)
        row = {
            **{"Name": one.name, "Op Name": one.name, "Type": one.op_type, "OP Type": one.op_type},
            **{"Stream ID": one.stream, "Task ID": index, "OP State": "dynamic"},
            **{"Accelerator Core": one.core, "Task Type": one.core},
            **{"Input Shapes": _shapes(one.inputs), "Output Shapes": _shapes(one.outputs)},
            **{"Input Data Types": _types(one.inputs), "Output Data Types": _types(one.outputs)},
            **{"Input Formats": _formats(one.inputs), "Output Formats": _formats(one.outputs)},
        }
        for column in header:
            if "Duration" in column:
                row[column] = f"{us / unit:.6f}"
            elif "Start" in column:
                row[column] = f"{now // 1000}.{now % 1000:03d}\t" if unit == 1.0 else str(now)
            elif "Wait" in column:
                row[column] = f"{gap_us / unit:.3f}"
        writer.writerow([row.get(column, "N/A") for column in header])
        now += round(1000 * (us + gap_us))
    return out.getvalue()


def predicted(one: MeasuredOp, device: Device) -> float:
    case = modelled(one)
    assert isinstance(case, Modelled), case
    return device.alone_us(device.demand(case.graph, case.op))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _shapes(operands: Iterable[Operand | None]) -> str:
    shapes = ";".join(",".join(map(str, o.shape)) if o else "" for o in operands)
    return f'"{shapes}"'


def _types(operands: Iterable[Operand | None]) -> str:
    return ";".join(_SPELLED[o.dtype] if o else "" for o in operands)


def _formats(operands: Iterable[Operand | None]) -> str:
    return ";".join(o.layout if o else "" for o in operands)


def transformer(sizes: Iterable[int]) -> list[MeasuredOp]:
    """What a language model's layers are made of, in a few sizes each."""
    found: list[MeasuredOp] = []
    for tokens in sizes:
        wide = (tokens, 4096)
        found += [op("MatMulV3", (wide, (4096, n)), (tokens, n)) for n in (1024, 4096, 11008)]
        found += [op("Add", (wide, wide), wide), op("Mul", (wide, wide), wide)]
        found += [op("RmsNorm", (wide, (4096,)), wide), op("SoftmaxV2", (wide,), wide)]
        found += [op("Cast", (wide,), wide), op("TensorMove", (wide,), wide)]
        found += [op("Pow", (wide, (1,)), wide), op("SwiGlu", ((tokens, 22016),), (tokens, 11008))]
        heads = (1, 32, tokens, 128)
        found.append(op("FlashAttentionScore", (heads, heads, heads), heads))
    found += [op("Add", ((n,), (n,)), (n,)) for n in (1, 8, 64, 512, 4096)]
    found += [op("TensorMove", ((n << 20,),), (n << 20,)) for n in (64, 128, 200, 256)]
    return found
