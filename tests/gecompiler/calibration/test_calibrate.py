from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import yaml
from capture_help import op, predicted, table, transformer, write

from gecompiler.backends.device import load_device
from gecompiler.backends.device_figures import FIGURES
from gecompiler.calibration import Calibration, calibrate, write_profile
from gecompiler.calibration.parameters import PARAMETERS
from gecompiler.ir.errors import GecError
from gecompiler.ir.types import DType

TRUE = {
    "hbm_efficiency_fraction": 0.7,
    "vector_kernel_start_us": 2.5,
    "cube_efficiency_fraction": 0.8,
    "cube_kernel_start_us": 5.0,
    "vector_bytes_per_cycle": 200.0,
    "rms_norm_efficiency_fraction": 0.6,
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    """The capture of a card whose figures are known, fitted from another profile."""
    card = dataclasses.replace(load_device("ascend910b"), name="card", **TRUE)
    path = tmp_path_factory.mktemp("capture") / "kernel_details.csv"
    write(path, table(transformer((16, 256, 1024, 4096)), card, gap_us=1.4))
    return calibrate(path, "ascend910b")


def test_every_parameter_is_a_figure_of_profiles() -> None:
    assert all(p.name in FIGURES for p in PARAMETERS)


@pytest.mark.parametrize("name", TRUE)
def test_figures_of_a_known_card_are_recovered(found: Calibration, name: str) -> None:
    assert found.fit.values[name] == pytest.approx(TRUE[name], rel=0.01)


def test_errors_vanish_also_on_what_was_held_out(found: Calibration) -> None:
    assert found.before["all"].mape > 0.15
    assert found.after["all"].mape < 0.005
    assert found.held_out["all"].mape < 0.1


def test_the_gap_between_tasks_is_read_from_their_starts(found: Calibration) -> None:
    assert found.fit.values["task_gap_us"] == pytest.approx(1.4, abs=0.01)


def test_what_the_capture_does_not_tell_is_refused_with_what_would(found: Calibration) -> None:
    refused = {r.name: r for r in found.fit.refused}
    assert "no operator" in refused["layer_norm_efficiency_fraction"].reason
    assert "layer norms" in refused["layer_norm_efficiency_fraction"].wanted
    assert "collectives" in next(r.reason for n, r in refused.items() if n.startswith("hccs"))
    assert not set(refused) & set(found.fit.values)


def test_two_figures_with_one_effect_are_not_both_fitted(tmp_path: Path) -> None:
    card = dataclasses.replace(load_device("ascend910b"), name="card", hbm_efficiency_fraction=0.6)
    ops = [op("Add", ((n << 20,), (n << 20,)), (n << 20,)) for n in (64, 80, 96, 128, 160)]
    found = calibrate(write(tmp_path / "p.csv", table(ops, card)), "ascend910b")
    assert found.fit.values["hbm_efficiency_fraction"] == pytest.approx(0.6, rel=0.01)
    refused = {r.name: r.reason for r in found.fit.refused}
    assert "hbm_efficiency_fraction" in refused["elementwise_efficiency_fraction"]


def test_noise_makes_a_figure_uncertain_and_then_refused(tmp_path: Path) -> None:
    card = load_device("ascend910b")
    ops = [
        dataclasses.replace(one, duration_us=predicted(one, card) * factor)
        for one, factor in zip(
            [op("MatMulV3", ((n, 256), (256, n)), (n, n)) for n in (64, 128, 192, 256, 320, 384)],
            (1, 3, 0.5, 2.5, 0.4, 4),
            strict=True,
        )
    ] + [op("TensorMove", ((n << 20,),), (n << 20,)) for n in (64, 128, 200, 256)]  # fmt: skip
    ops[6:] = [dataclasses.replace(one, duration_us=predicted(one, card)) for one in ops[6:]]
    found = calibrate(write(tmp_path / "p.csv", table(ops)), "ascend910b")
    assert "hbm_efficiency_fraction" in found.fit.values
    refused = {r.name: r.reason for r in found.fit.refused}
    assert (
        "uncertain" in refused["cube_kernel_start_us"] or "open" in refused["cube_kernel_start_us"]
    )


def test_rows_served_from_l2_say_nothing_of_memory(tmp_path: Path) -> None:
    card = load_device("ascend910b")
    ops = [op("TensorMove", ((n << 20,),), (n << 20,)) for n in (64, 128, 200, 256)]
    warm = dataclasses.replace(op("Relu", ((1 << 22,),), (1 << 22,)), duration_us=2.0)
    timed = [dataclasses.replace(one, duration_us=predicted(one, card)) for one in ops]
    found = calibrate(write(tmp_path / "p.csv", table([*timed, warm])), "ascend910b")
    assert found.observed.left_out["faster than memory allows: its data came from L2"] == 1
    assert found.fit.values["hbm_efficiency_fraction"] == pytest.approx(0.87, rel=0.01)


def test_the_profile_is_accepted_and_says_where_figures_come_from(
    found: Calibration, tmp_path: Path
) -> None:
    path = tmp_path / "mycard.yaml"
    write_profile(found, path)
    device = load_device(str(path))
    assert device.name == "mycard"
    assert device.cube_efficiency_fraction == pytest.approx(0.8, rel=0.01)
    figure = next(f for f in device.figures() if f.name == "cube_efficiency_fraction")
    assert figure.kind == "measured"
    assert "kernel_details.csv" in figure.source
    assert str(tmp_path) not in path.read_text()
    changed = yaml.safe_load(path.read_text())["figures"]
    base = load_device("ascend910b")
    assert all(entry["value"] != getattr(base, name) for name, entry in changed.items())


def test_a_users_own_profile_can_be_calibrated_again(found: Calibration, tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    write_profile(found, first)
    ops = [op("TensorMove", ((n << 20,),), (n << 20,)) for n in (64, 128, 200, 256)]
    card = dataclasses.replace(load_device(str(first)), hbm_efficiency_fraction=0.5)
    again = calibrate(write(tmp_path / "p.csv", table(ops, card)), str(first))
    write_profile(again, second)
    device = load_device(str(second))
    assert device.hbm_efficiency_fraction == pytest.approx(0.5, rel=0.01)
    assert device.cube_efficiency_fraction == pytest.approx(0.8, rel=0.01)


def test_real_capture_is_nearer_after_also_where_held_out(corpus: Path) -> None:
    path = corpus / "measured" / "msprof" / "kernel_details.csv"
    found = calibrate(path, "ascend910b2")
    assert found.after["all"].mape < found.before["all"].mape
    assert found.held_out["all"].mape < found.before["all"].mape
    assert {f.name for f in found.fit.fitted} <= {p.name for p in PARAMETERS}


def test_a_capture_that_determines_nothing_is_an_error_that_says_why(corpus: Path) -> None:
    with pytest.raises(GecError, match="determines no figure") as error:
        calibrate(corpus / "measured" / "msprof" / "op_summary_1.csv", "ascend910b2")
    assert "measure copies" in error.value.hint


def test_same_capture_same_bytes(tmp_path: Path) -> None:
    card = dataclasses.replace(load_device("ascend910b"), hbm_efficiency_fraction=0.6)
    ops = [op("TensorMove", ((n << 20,),), (n << 20,), DType.F32) for n in (64, 80, 100, 128)]
    texts = []
    for order in (ops, ops[::-1]):
        found = calibrate(write(tmp_path / "p.csv", table(order, card)), "ascend910b")
        write_profile(found, tmp_path / "card.yaml")
        texts.append((tmp_path / "card.yaml").read_bytes())
    assert texts[0] == texts[1]


def test_command_prints_tables_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gecompiler.cli import main

    ops = [op("TensorMove", ((n << 20,),), (n << 20,)) for n in (64, 80, 100, 128)]
    card = dataclasses.replace(load_device("ascend910b"), hbm_efficiency_fraction=0.6)
    path = write(tmp_path / "p.csv", table(ops, card))
    out = tmp_path / "card.yaml"
    for extra in ((), ("--json",)):
        with pytest.raises(SystemExit) as end:
            main(["calibrate", str(path), "--device", "ascend910b", "-o", str(out), *extra])
        assert not end.value.code
        text = capsys.readouterr().out
        if extra:
            data = json.loads(text)
            assert data["fitted"][0]["name"] == "hbm_efficiency_fraction"
            assert data["families"]["movement"]["after_mape_percent"] < 1
        else:
            assert "held out" in text
            assert "would tell" in text
    assert load_device(str(out)).hbm_efficiency_fraction == pytest.approx(0.6, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["p.csv"], 2, "--device"),
        (["none.csv", "--device", "ascend910b"], 2, "cannot be read"),
        (["p.csv", "--device", "ascend910z"], 2, "ascend910"),
        (["p.csv", "--device", "ascend910b", "-o", "card.txt"], 2, ".yaml"),
        (["p.csv", "--device", "ascend910b", "-o", "p.csv/card.yaml"], 2, "written"),
        (["bad.csv", "--device", "ascend910b"], 2, "no column"),
        (["few.csv", "--device", "ascend910b"], 1, "determines no figure"),
    ],
)
def test_mistakes_have_a_message_and_a_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    from gecompiler.cli import main

    monkeypatch.chdir(tmp_path)
    ops = [op("TensorMove", ((n << 20,),), (n << 20,)) for n in (64, 80, 100, 128)]
    write(tmp_path / "p.csv", table(ops, load_device("ascend910b")))
    write(tmp_path / "few.csv", table(ops[:1], load_device("ascend910b")))
    write(tmp_path / "bad.csv", "a,b\n1,2\n")
    with pytest.raises(SystemExit) as end:
        main(["calibrate", *arguments])
    out = capsys.readouterr()
    assert end.value.code == code
    assert said in out.err
    assert "Traceback" not in out.err
