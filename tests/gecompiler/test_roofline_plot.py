"""``--roofline``: work per byte under what the device can."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_help import Gec

import gecompiler as ge
from gecompiler.backends.device import load_device
from gecompiler.roofline_plot import Roof, Spot, graph_work, op_spots, roofs, write_roofline

pytest.importorskip("matplotlib")


def test_a_roof_is_the_lower_of_memory_and_compute() -> None:
    roof = Roof("r", flop_per_us=100e6, bytes_per_us=1e6)
    assert roof.tflops(10) == 10
    assert roof.tflops(100) == 100
    assert roof.tflops(1000) == 100


def test_the_roofs_are_the_devices_own() -> None:
    device = load_device("ascend910b")
    figures = device.capabilities()
    first = roofs(device)[0]
    assert first.flop_per_us / 1e6 == pytest.approx(figures["peak_f16_tflops"], rel=1e-3)
    assert first.bytes_per_us == device.capacities()["hbm"]


def test_no_op_of_a_model_is_above_its_roof(tiny_path: Path) -> None:
    model = ge.Session(device="ascend910b").compile(tiny_path, batch=4, seq=64)
    spots = op_spots(model.compilation)
    whole, *rest = spots
    assert whole.flops == sum(s.flops for s in rest) == graph_work(model.graph) > 0
    assert whole.us == model.compilation.result.makespan_us
    assert {s.label for s in rest} >= {"MatMul", "FlashAttention"}
    roof = roofs(model.compilation.device)[0]
    for spot in spots:
        if spot.flops and spot.hbm_bytes:
            assert spot.tflops <= roof.tflops(spot.intensity)


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_the_same_spots_give_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    spots = [Spot("a $_{^", 1e9, 1e6, 10, "s $_{^"), Spot("moves", 0, 1e6, 3, "t")]
    lines = roofs(load_device("ascend910"))
    for name in "ab":
        write_roofline(spots, lines, str(tmp_path / f"{name}.{suffix}"), "t $_{^")
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
    write_roofline([], lines, str(tmp_path / "none.svg"), "nothing")


def test_the_commands_draw_it(gec: Gec, tiny_path: Path, tmp_path: Path) -> None:
    path, sizes = tmp_path / "r.svg", ("--batch", 2, "--seq", 16)
    code, out, _ = gec("compile", tiny_path, *sizes, "--roofline", path)
    assert (code, f"written to {path}" in out) == (0, True)
    journal = tmp_path / "j"
    words = ("--streams", "1,2", "--workers", 1, "-q", "--journal", journal)
    path = tmp_path / "s.svg"
    assert gec("sweep", tiny_path, *sizes, *words, "--roofline", path)[0] == 0
    first = path.read_bytes()
    assert gec("sweep", tiny_path, *sizes, *words, "--roofline", path)[0] == 0  # from the journal
    assert path.read_bytes() == first
    for command in ("compile", "sweep"):
        code, _, error = gec(command, tiny_path, "--roofline", "r.gif")
        assert (code, "--roofline" in error) == (2, True)
