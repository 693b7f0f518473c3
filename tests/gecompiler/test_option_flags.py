"""Errors name the flag that was given and the option it stands for."""

from __future__ import annotations

import pytest

from gecompiler.cli import gec, main
from gecompiler.cli_cards import NAMES as CARDS
from gecompiler.cli_train import NAMES as TRAINING
from gecompiler.option_flags import flag_of, flags_in, with_flags
from gecompiler.option_table import TABLE


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--zero", "2"), "option 'zero_stage' (--zero): is of training steps"),
        (("--streams", "0"), "option 'num_streams' (--streams): expected"),
        (("--streams=0",), "option 'num_streams' (--streams): expected"),
        (("--strategy", "fastest"), "option 'stream_strategy' (--strategy): no stream strategy"),
        (("--launch", "late"), "option 'launch_mode' (--launch): expected"),
        (("--tp", "99999999"), "option 'tp' (--tp): expected a number from 1 to 65536, found"),
        (("--micro-batches", "x"), "option 'micro_batches' (--micro-batches): expected"),
        (("--lang", "zh", "--zero", "2"), "选项 'zero_stage' (--zero)"),
    ],
)
def test_an_error_names_flag_and_option(
    arguments: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compile", "gpt2", *arguments])
    assert ended.value.code == 2
    assert named in capsys.readouterr().err


def test_flags_that_were_not_given_are_not_named() -> None:
    found = flags_in(gec, ["compile", "m.onnx", "--streams", "2", "--zero=1"])
    assert found == {"num_streams": "--streams", "zero_stage": "--zero"}
    assert with_flags("option 'seed': expected", found) == "option 'seed': expected"
    assert flags_in(gec, ["--help"]) == {}


def test_flags_of_cards_and_training_stand_for_options() -> None:
    options = {option.name for option in TABLE}
    flags = {o for p in gec.commands["compile"].params for o in p.opts}
    for name in (*CARDS, *TRAINING):
        assert name in options
        assert flag_of(name) in flags
    given = [o for p in gec.commands["compile"].params for o in p.opts if o.startswith("--")]
    named = set(flags_in(gec, ["compile", *given]))
    assert {"num_streams", "stream_strategy", "launch_mode", "disable_passes"} <= named & options
