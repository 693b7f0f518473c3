"""Layouts over several cards as axes of a sweep."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from command_help import Gec

import gecompiler as ge
from gecompiler.option_table import Options
from gecompiler.request import Controls
from gecompiler.sweep import Point, Row, Sweep, grid, run_sweep
from gecompiler.sweep.job import evaluate, make_job
from gecompiler.sweep.output import csv_text
from gecompiler.sweep.points import ONE_CARD, Cards, layouts
from gecompiler.sweep.row import CARD_COLUMNS, COLUMNS, table

SIZES = {"batch": 4, "seq": 16}


def test_every_combination_is_a_point() -> None:
    found = layouts([(1, 2), (1,), (1,), (1, 2), (1,)], ("", "mesh8"), (0,))
    assert len(found) == len(set(found)) == 8
    assert [str(c) for c in found[:4]] == ["1 card", "1 card on mesh8", "pp2", "pp2 on mesh8"]
    points = grid(["d"], [1], [8], ["auto"], [0], found)
    assert [p.cards for p in points] == list(found)
    assert len({p.group for p in points}) == 8
    assert str(points[-1]) == "d, batch 1, seq 8, tp2 pp2 on mesh8, auto, streams auto"


def test_a_row_says_what_compiling_does(tmp_path: Path) -> None:
    job = make_job("gpt2", ("ascend910b",), Options(), Controls(), send=False)
    cards = Cards(tp=2, pp=2, topology="mesh8", micro_batches=2)
    point = Point("ascend910b", 4, 16, "heft", 0, cards)
    row = evaluate(job, point)
    report = ge.compile(
        "gpt2", **SIZES, device="ascend910b", stream_strategy="heft", tp=2, pp=2,
        topology="mesh8", micro_batches=2,
    ).as_dict()  # fmt: skip
    part = report["parallel"]
    assert row.error == ""
    assert row.point == point
    assert row.time_us == report["schedule"]["makespan_us"]
    assert (row.communication_us, row.exposed_us) == (part["communication_us"], part["exposed_us"])
    assert (row.bubble, row.topology, row.micro_batches) == (part["bubble"], "mesh8", 2)
    assert row.sent_bytes == sum(part["sent_bytes"].values())
    assert row.tokens == 16
    assert Row.from_dict(json.loads(json.dumps(row.as_dict()))) == row
    (data,) = table([row])
    assert tuple(data) == (*COLUMNS, *CARD_COLUMNS)
    assert (data["tp"], data["pp"], data["dp"]) == (2, 2, 1)
    read = list(csv.DictReader(io.StringIO(csv_text([row]))))
    assert read[0]["exposed_us"] == str(data["exposed_us"])
    again = Sweep(job, (point,), tmp_path / "j", workers=1)
    assert run_sweep(again) == run_sweep(again) == [row]


def test_one_card_has_the_columns_that_it_had() -> None:
    job = make_job("gpt2", ("ascend910b",), Options(), Controls(), send=False)
    row = evaluate(job, Point("ascend910b", 4, 16, "single", 0))
    assert row.cards == ONE_CARD
    assert tuple(table([row])[0]) == COLUMNS


def test_marks_hold_for_all_points() -> None:
    limits = Controls(core_limits={"MatMul": (1, None), "Gemm": (1, None)})
    plain, limited = (
        make_job("gpt2", ("ascend910b",), Options(), controls, send=False)
        for controls in (Controls(), limits)
    )
    assert plain.key != limited.key
    point = Point("ascend910b", 4, 16, "single", 0)
    assert evaluate(limited, point).time_us > evaluate(plain, point).time_us


def test_the_command(gec: Gec, tmp_path: Path) -> None:
    arguments = ["sweep", "gpt2", "--batch", 4, "--seq", 16, "--device", "ascend910b"]
    arguments += ["--workers", 1, "--tp", "1,2", "--micro-batches", "1"]
    code, out, _ = gec(*arguments, "-o", tmp_path / "s.csv")
    assert code == 0
    assert "exposed" in out
    assert "tp2" in out
    code, out, _ = gec(*arguments, "--json")
    assert [row["tp"] for row in json.loads(out)] == [1, 2]
    code, out, _ = gec(*arguments, "--topology", "mesh9", "--json")
    assert code == 1
    assert "no topology 'mesh9'" in out


@pytest.mark.parametrize(
    ("option", "value"), [("--tp", "0"), ("--pp", "x"), ("--micro-batches", "two"), ("--ep", ",")]
)
def test_wrong_values_are_named(gec: Gec, option: str, value: str) -> None:
    code, _, err = gec("sweep", "gpt2", option, value)
    assert code == 2
    assert option in err


def test_options_of_the_assignment_file_are_kept(gec: Gec, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("options: {tp: 2, micro_batches: 1}\n")
    given = ["--batch", 4, "--seq", 16, "--assign", tmp_path / "a.yaml", "--workers", 1]
    code, out, _ = gec("sweep", "gpt2", *given, "--json")
    assert code == 0
    assert [row["tp"] for row in json.loads(out)] == [2]
