"""``--launch``: tasks sunk into the device, or issued one by one by the host."""

from __future__ import annotations

import json
from pathlib import Path

from command_help import Gec


def makespan(gec: Gec, model: Path, *words: str) -> float:
    code, out, _ = gec("compile", model, "--json", *words)
    assert code == 0
    found: float = json.loads(out)["schedule"]["makespan_us"]
    return found


def test_the_host_takes_longer_to_issue_a_small_model(gec: Gec, tiny_path: Path) -> None:
    sunk = makespan(gec, tiny_path, "--launch", "sunk")
    host = makespan(gec, tiny_path, "--launch", "host")
    assert host > sunk
    assert makespan(gec, tiny_path) == sunk


def test_any_other_launch_is_a_mistake(gec: Gec, tiny_path: Path) -> None:
    code, _, error = gec("compile", tiny_path, "--launch", "graph")
    assert code == 2
    assert "launch_mode" in error
