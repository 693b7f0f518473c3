from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from capture_help import op as measured_op
from capture_help import table, write

import gecompiler as ge
from gecompiler.captures import MeasuredOp
from gecompiler.captures.read import Operand
from gecompiler.compiled import CompiledModel
from gecompiler.measured_target import scaled
from gecompiler.report import report_schema


@pytest.fixture(scope="module")
def model(tiny_path: Path) -> CompiledModel:
    return ge.compile(tiny_path, batch=4, seq=32, stream_strategy="single")


def _capture(model: CompiledModel, factor: float = 2.0, types: tuple[str, ...] = ()) -> str:
    return table(_rows(model, factor, types))


def _rows(model: CompiledModel, factor: float, types: tuple[str, ...]) -> Iterator[MeasuredOp]:
    graph, device = model.graph, model.compilation.device
    for op in graph.ops:
        us = device.alone_us(device.demand(graph, op))
        if us <= 0 or (types and op.op_type not in types):
            continue
        operands = [
            tuple(Operand(t.sizes, t.dtype) for t in map(graph.tensor, filter(None, values)) if t)
            for values in (op.inputs, op.outputs)
        ]
        yield MeasuredOp(op.name, op.op_type, "AI_CORE", "2", None, us * factor, None, *operands, 0)


def _compile(path: Path, capture: Path, **options: object) -> CompiledModel:
    return ge.compile(path, batch=4, seq=32, durations=str(capture), **options)  # type: ignore[arg-type]


def test_every_task_takes_what_was_measured(
    model: CompiledModel, tiny_path: Path, tmp_path: Path
) -> None:
    capture = write(tmp_path / "p.csv", _capture(model))
    found = _compile(tiny_path, capture, stream_strategy="single")
    before = {s.name: s.alone_ns for s in model.timeline.timeline.spans}
    after = {s.name: s.alone_ns for s in found.timeline.timeline.spans}
    assert before.keys() == after.keys()
    for name, ns in before.items():
        assert after[name] == pytest.approx(2 * ns, abs=2)
    durations = found.as_dict()["durations"]
    assert durations["measured_by_name"] == durations["ops"]
    assert durations["measured_share_of_time"] == pytest.approx(1.0)


def test_names_that_differ_are_found_by_type_and_shapes(
    model: CompiledModel, tiny_path: Path, tmp_path: Path
) -> None:
    text = table(dataclasses.replace(row, name="aclnn") for row in _rows(model, 3.0, ("MatMul",)))
    found = _compile(tiny_path, write(tmp_path / "p.csv", text), stream_strategy="single")
    products = sum(op.op_type == "MatMul" for op in model.graph.ops)
    assert found.as_dict()["durations"]["measured_by_shapes"] == products


def test_the_operator_librarys_matmul_is_ours_whichever_side_is_turned(
    model: CompiledModel, tiny_path: Path, tmp_path: Path
) -> None:
    one = next(op for op in model.graph.ops if op.op_type == "MatMul")
    a, b = (model.graph.tensor(v).sizes for v in one.inputs)
    rows = a[0] * a[1]
    dtype = model.graph.tensor(one.inputs[0]).dtype
    theirs = measured_op("MatMulV3", ((rows, a[-1]), b[::-1]), (rows, b[-1]), dtype, "aclnnMatmul")
    found = _compile(tiny_path, write(tmp_path / "p.csv", table([theirs])))
    assert found.as_dict()["durations"]["measured_by_shapes"] >= 1


@pytest.mark.parametrize("strategy", ["auto", "compute_overlap", "pipeline"])
def test_bounds_hold_with_measured_times(
    model: CompiledModel, tiny_path: Path, tmp_path: Path, strategy: str
) -> None:
    capture = write(tmp_path / "p.csv", _capture(model, 5.0, ("MatMul", "FlashAttention")))
    report = _compile(tiny_path, capture, stream_strategy=strategy).as_dict()
    jsonschema.validate(report, report_schema())
    schedule = report["schedule"]
    assert schedule["lower_bound_us"] <= schedule["makespan_us"] * (1 + 1e-9)
    assert schedule["lower_bound_us"] > 0


def test_a_part_of_a_measured_op_is_scaled_as_the_whole_was(
    model: CompiledModel, tiny_path: Path, tmp_path: Path
) -> None:
    capture = write(tmp_path / "p.csv", _capture(model, 4.0))
    plain = ge.compile(tiny_path, batch=4, seq=32, stream_strategy="pipeline")
    found = _compile(tiny_path, capture, stream_strategy="pipeline")
    assert found.as_dict()["streams"]["micro_batches"]
    before = {s.name: s.alone_ns for s in plain.timeline.timeline.spans}
    whole = {op.name for op in model.graph.ops}
    spans = found.timeline.timeline.spans
    parts = [s for s in spans if "#mb" in s.name and s.name.rpartition("#mb")[0] in whole]
    assert parts
    for span in parts:
        assert span.alone_ns == pytest.approx(4 * before[span.name], rel=0.01, abs=4)


def test_another_batch_is_another_op_and_says_so(
    model: CompiledModel, tiny_path: Path, tmp_path: Path
) -> None:
    capture = write(tmp_path / "p.csv", _capture(model, 2.0, ("MatMul",)))
    other = ge.compile(tiny_path, batch=3, seq=16, durations=str(capture))
    report = other.as_dict()
    assert report["durations"]["measured_by_name"] == 0
    assert any(w["code"] == "no-measured-ops" for w in report["warnings"])


def test_scaling_a_demand_scales_its_time(model: CompiledModel) -> None:
    device = model.compilation.device
    for op in model.graph.ops:
        demand = device.demand(model.graph, op)
        alone = device.alone_us(demand)
        assert device.alone_us(scaled(demand, 2.5)) == pytest.approx(2.5 * alone)


def test_command_says_how_many_ops_are_measured(
    model: CompiledModel, tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gecompiler.cli import main

    capture = write(tmp_path / "p.csv", _capture(model, 2.0, ("MatMul",)))
    common = ["compile", str(tiny_path), "--batch", "4", "--seq", "32", "--durations", str(capture)]
    for extra in ([], ["--json"]):
        with pytest.raises(SystemExit) as end:
            main([*common, *extra])
        assert not end.value.code
        out = capsys.readouterr().out
        if extra:
            assert json.loads(out)["durations"]["file"] == "p.csv"
        else:
            assert "ops as measured in p.csv" in out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("a,b\n1,2\n", "no column"),
        ("Name,Type,Duration(us)\n", "no rows"),
    ],
)
def test_mistakes_have_a_message_and_a_code(
    tiny_path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
    said: str,
) -> None:
    from gecompiler.cli import main

    path = tmp_path / "p.csv"
    if text is not None:
        write(path, text)
    with pytest.raises(SystemExit) as end:
        main(["compile", str(tiny_path), "--durations", str(path)])
    assert end.value.code == 2
    assert said in capsys.readouterr().err
