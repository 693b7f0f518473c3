"""Which language is spoken, and what is left alone by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gecompiler.cli import main
from gecompiler.ir.errors import UsageError
from gecompiler.lang import error_text, language, set_language, use_language
from gecompiler.lang.choice import from_environment

MODEL = ["bert-base", "--seq", "16", "--streams", "1"]


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh"}, "zh"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_TW", "LC_MESSAGES": "en_US"}, "en"),
        ({"LANG": "en_US", "LC_MESSAGES": "zh_CN"}, "zh"),
        ({"LANG": "zh_CN", "LC_ALL": "C"}, "en"),
        ({"LC_ALL": "", "LANG": "zh_CN"}, "zh"),
        ({"LC_ALL": "zh_CN", "GEC_LANG": "en"}, "en"),
        ({"LC_ALL": "C", "GEC_LANG": "zh"}, "zh"),
        ({"LANG": "Chinese (Simplified)_China.936"}, "zh"),
    ],
)
def test_the_environment_chooses(environ: dict[str, str], wanted: str) -> None:
    assert from_environment(environ) == wanted


def test_a_language_is_set_for_a_while_or_for_good() -> None:
    with use_language("zh"):
        assert language() == "zh"
    assert language() == "en"
    set_language("zh")
    assert language() == "zh"
    with pytest.raises(UsageError, match="no texts in 'fr'"):
        set_language("fr")


def _gec(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


@pytest.mark.parametrize("place", [0, 1, 99])
def test_the_option_stands_anywhere(capsys: pytest.CaptureFixture[str], place: int) -> None:
    words = ["strategies"]
    words[place:place] = ["--lang", "zh"]
    code, out, _ = _gec(capsys, *words)
    assert code == 0
    assert "策略" in out
    assert _gec(capsys, "strategies")[1].startswith("strategy")


def test_help_comes_in_the_language(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _gec(capsys, "compile", "--help", "--lang=zh")
    assert code == 0
    assert out.startswith("用法：gec compile")
    assert "显示本帮助并退出。" in out
    assert "[default" not in out
    for line in out.splitlines():
        assert sum(1 + (ord(c) > 0x2E80) for c in line) <= 100


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compile"], "缺少参数"),
        (["compiel"], "没有命令"),
        (["compile", "x", "--nonsense"], "没有选项"),
        (["compile", "x", "--batch", "none"], "不是有效的"),
        (["compile", "x", "--batch", "0"], "不在范围"),
        (["compile", "x", "--emit", "y"], "不是其中之一"),
        (["compile", "x", "--batch"], "需要一个值"),
        (["profile"], "请给出 MODEL"),
    ],
)
def test_mistakes_of_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code, out, err = _gec(capsys, "--lang", "zh", *arguments)
    assert code == 2
    assert out == ""
    assert said in err
    assert "错误：" in err
    code, _, err = _gec(capsys, *arguments)
    assert "Error: " in err


def test_an_unknown_language_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = _gec(capsys, "models", "--lang", "fr")
    assert code == 2
    assert "'fr' is not one of 'en', 'zh'" in err
    assert _gec(capsys, "models", "--lang")[0] == 2


def test_an_error_has_its_place_and_hint(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = _gec(capsys, "compile", "bert-bas", "--lang", "zh")
    assert code == 2
    assert err.startswith(
        "gec：错误：bert-bas：既不是文件，也不是模型名\n  提示：是不是 'bert-base'？"
    )
    with use_language("zh"):
        text = error_text(UsageError("no such option", where="option 'x'", hint="the default is 1"))
    assert text == "选项 'x'：没有这个选项\n  提示：默认为 1"


def test_data_stay_english_to_the_byte(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["compile", *MODEL, "--json"]
    assert _gec(capsys, *words, "--lang", "zh") == _gec(capsys, *words)
    for name in ("zh", "en"):
        _gec(capsys, "compile", *MODEL, "-q", "-o", str(tmp_path / name), "--lang", name)
    for file in ("report.json", "schedule.json", "trace.json"):
        assert (tmp_path / "zh" / file).read_bytes() == (tmp_path / "en" / file).read_bytes()
    for command in ("strategies", "passes", "options", "devices", "models"):
        zh = _gec(capsys, command, "--json", "--lang", "zh")
        assert zh == _gec(capsys, command, "--json")
        json.loads(zh[1])


def test_chinese_goes_to_streams_of_other_encodings() -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "GEC_LANG": "zh"}
    run = subprocess.run(
        [sys.executable, "-m", "gecompiler", "strategies"], capture_output=True, env=env, check=True
    )
    assert "策略" in run.stdout.decode("utf-8")
