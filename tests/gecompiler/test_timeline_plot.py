"""``--plot``: the timeline as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_help import Gec

import gecompiler as ge
from gecompiler.ir.timeline import Span, Timeline
from gecompiler.plotting import CRITICAL_COLOUR, bound_colour
from gecompiler.timeline_plot import timeline_figure, write_timeline_plot

pytest.importorskip("matplotlib")

SPANS = (
    Span(0, "a", "MatMul", 0, 0, 0, 400_000, 400_000, bound_by="cube"),
    Span(1, "b", "Gelu", 0, 1, 0, 100_000, 100_000, bound_by="vector"),
    Span(2, "c", "Add", 0, 1, 401_000, 600_000, 199_000, 300_000, 0, "event", "hbm"),
    Span(3, "d", "Send", 0, 0, 401_000, 402_000, 1_000, 0, 0, "stream", "hccs:0-1"),
)
TIMELINE = Timeline(SPANS, model="m", events=((0, 2), (1, 3)))


def test_a_bar_for_every_task_in_the_colour_of_what_limits_it() -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_hex
    from matplotlib.quiver import Quiver

    figure = timeline_figure(TIMELINE, "", {(0, 1): "copies"})
    (axes,) = figure.axes
    bars = [c for c in axes.collections if type(c).__name__ != "Quiver"]
    found: dict[str, list[tuple[float, float]]] = {}
    for collection in bars:
        assert isinstance(collection, PolyCollection)
        colour = to_hex(collection.get_facecolor()[0])
        for path in collection.get_paths():
            x = path.vertices[:, 0]
            found.setdefault(colour, []).append((x.min(), x.max()))
    assert found[bound_colour("cube")] == [(0, 400)]
    assert found[bound_colour("vector")] == [(0, 100)]
    assert found[bound_colour("hbm")] == [(401, 600)]
    assert found[bound_colour("hccs:0-1")] == [(401, 402)]
    assert sorted(found[CRITICAL_COLOUR]) == [(0, 400), (401, 600)]
    (arrows,) = [c for c in axes.collections if isinstance(c, Quiver)]
    assert list(zip(arrows.X, arrows.X + arrows.U, strict=True)) == [(400, 401), (100, 401)]
    colours = [to_hex(c) for c in arrows.get_facecolor()]
    assert colours[0] != colours[1]  # c started upon a's end; d did not upon b's
    assert [t.get_text() for t in axes.get_yticklabels()] == ["Stream0", "copies"]
    assert {t.get_text() for t in axes.texts} == {"MatMul", "Gelu", "Add"}
    assert axes.get_title() == "m: 600.0 us"


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_the_same_timeline_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    write_timeline_plot(TIMELINE, str(first))
    write_timeline_plot(TIMELINE, str(second))
    assert first.read_bytes() == second.read_bytes()


def test_an_empty_timeline_and_names_with_signs(tmp_path: Path) -> None:
    write_timeline_plot(Timeline(()), str(tmp_path / "empty.svg"), "nothing")
    odd = Span(0, "$x_{<&", "$x_{<&", 0, 0, 0, 10_000, 10_000)
    write_timeline_plot(Timeline((odd,)), str(tmp_path / "odd.svg"), "a $_{^ and another $ <b>")
    ElementTree.parse(tmp_path / "odd.svg")


def test_the_command_draws_what_the_model_draws(gec: Gec, tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "command.svg"
    code, out, _ = gec("compile", tiny_path, "--batch", 2, "--seq", 64, "--plot", path)
    assert code == 0
    assert f"written to {path}" in out
    ge.Session().compile(tiny_path, batch=2, seq=64).save_plot(tmp_path / "model.svg")
    assert path.read_bytes() == (tmp_path / "model.svg").read_bytes()
    code, out, _ = gec(
        "profile", tiny_path, "--batch", 2, "--seq", 64, "--plot", path, "-o", tmp_path / "p"
    )
    assert (code, f"written to {path}" in out) == (0, True)
    assert path.read_bytes() == (tmp_path / "model.svg").read_bytes()


def test_mistakes_are_told_before_anything_is_compiled(
    gec: Gec, tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in ("compile", "profile"):
        code, out, error = gec(command, tiny_path, "--plot", tmp_path / "x.gif")
        assert (code, out) == (2, "")
        assert "no kind of plot" in error
    assert gec("compile", tiny_path, "--plot", "x.svg", "--stop-after", "canonicalize")[0] == 2
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, error = gec("compile", tiny_path, "--plot", tmp_path / "x.svg")
    assert (code, out) == (2, "")
    assert "pip install 'gecompiler[plot]'" in error


def test_a_recorded_run_is_drawn(gec: Gec, corpus: Path, tmp_path: Path) -> None:
    folder = corpus / "measured" / "msprof"
    path = tmp_path / "run.svg"
    code, _, error = gec("profile", "--from", folder, "--plot", path, "-q")
    assert (code, error) == (0, "")
    ElementTree.parse(path)
