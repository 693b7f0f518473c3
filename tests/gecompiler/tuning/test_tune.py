from __future__ import annotations

import json
from pathlib import Path

import pytest

import gecompiler as ge
from gecompiler.assign_file import load_assignment
from gecompiler.backends.device import load_device
from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import tensor
from gecompiler.models import build_spec
from gecompiler.tuning import Tuning, options_text, tune
from gecompiler.tuning.blocks import DEFAULT, search_blocks


@pytest.fixture(scope="module")
def found(tiny_path: Path) -> Tuning:
    return tune(str(tiny_path), "ascend910", batch=4, seq=512, workers=1)


def test_options_are_accepted_and_give_the_time_that_was_promised(
    found: Tuning, tiny_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "options.yaml"
    path.write_text(options_text(found))
    options, _ = load_assignment(path)
    model = ge.compile(tiny_path, batch=4, seq=512, **{
        name: value for name, value in options.as_dict().items() if value is not None
    })  # fmt: skip
    makespan = model.as_dict()["schedule"]["makespan_us"]
    assert makespan == pytest.approx(found.choices[-1].after_us, rel=0.02)


def test_each_choice_says_what_it_gains(found: Tuning) -> None:
    blocks, placement = found.choices
    assert blocks.after_us == placement.before_us
    assert blocks.gain >= 0
    assert placement.gain >= 0
    assert placement.after_us <= min(row.time_us for row in found.placements) / 0.95


def test_blocks_stay_within_the_buffers(found: Tuning) -> None:
    chosen = (found.options["attention_block_q"], found.options["attention_block_k"])
    assert next(row for row in found.blocks if row.blocks == chosen).fits
    assert any(not row.fits for row in found.blocks)
    assert min(row.us for row in found.blocks if row.fits) == next(
        row.us for row in found.blocks if row.blocks == chosen
    )
    assert any(row.blocks == DEFAULT for row in found.blocks)


def test_a_model_without_attention_has_no_block_sizes() -> None:
    graph = Graph("plain")
    x = graph.add_input("x", tensor("f32", (64, 64)))
    graph.add_op(Op("relu", "Relu", (x,), ("y",)), [tensor("f32", (64, 64))])
    assert search_blocks(load_device("ascend910"), graph) == ()


@pytest.mark.parametrize("side", [64, 256])
def test_block_options_reach_the_cost(tiny_path: Path, side: int) -> None:
    options = {"attention_block_q": side, "num_streams": 1}
    model = ge.compile(tiny_path, batch=1, seq=2048, **options)
    codes = {w["code"] for w in model.as_dict()["warnings"]}
    assert ("attention-blocks-overflow" in codes) == (side == 256)


def test_larger_blocks_help_until_they_overflow() -> None:
    spec = {
        "name": "wide", "family": "llama", "description": "one layer", "source": "made up",
        "hidden": 512, "layers": 1, "heads": 4, "kv_heads": 4, "intermediate": 64,
        "vocabulary": 37, "max_positions": 4096, "dtype": "f16",
    }  # fmt: skip
    graph = build_spec(spec)
    times = {
        side: ge.compile(graph, batch=8, seq=4096, num_streams=1, attention_block_q=side)
        for side in (64, 128, 256)
    }
    us = {side: m.as_dict()["schedule"]["makespan_us"] for side, m in times.items()}
    assert us[128] < us[64]
    assert us[256] > us[128]


def test_command_writes_options_and_json(
    tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gecompiler.cli import main

    out = tmp_path / "options.yaml"
    common = ["tune", str(tiny_path), "--batch", "2", "--seq", "64", "--workers", "1"]
    with pytest.raises(SystemExit) as end:
        main([*common, "-o", str(out), "--json"])
    assert not end.value.code
    data = json.loads(capsys.readouterr().out)
    assert {c["name"] for c in data["choices"]} == {"attention blocks", "streams and strategy"}
    load_assignment(out)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.onnx"], "none.onnx"),
        (["llama-8b"], "llama-7b"),
        (["llama-7b", "--device", "ascend911"], "ascend910"),
        (["llama-7b", "--batch", "0"], "--batch"),
        (["llama-7b", "--workers", "0"], "--workers"),
    ],
)
def test_mistakes_have_a_message_and_a_code(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    from gecompiler.cli import main

    with pytest.raises(SystemExit) as end:
        main(["tune", *arguments])
    out = capsys.readouterr()
    assert end.value.code in (1, 2)
    assert said in out.err
    assert "internal error" not in out.err


@pytest.mark.parametrize("name", ["attention_block_q", "attention_block_k"])
@pytest.mark.parametrize("value", [0, 8, 5000, "x", True, 1.5])
def test_bad_block_sizes_are_refused(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=name):
        ge.Session(**{name: value})
