"""``gec devices``: listing, one profile, several side by side, and a profile of one's own."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from gecompiler.cli_list import devices


def run(*words: str) -> list[dict[str, str]]:
    done = CliRunner().invoke(devices, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    found: list[dict[str, str]] = json.loads(done.output)
    return found


def test_every_figure_of_one_has_a_source_and_a_kind() -> None:
    rows = run("ascend910b2")
    assert len(rows) > 50
    assert all(len(r["source"]) > 5 for r in rows)
    assert {r["kind"] for r in rows} <= {"vendor", "measured", "derived"}


def test_comparing_shows_what_differs_and_on_request_all() -> None:
    rows = run("ascend910b", "ascend910b2")
    assert {r["figure"] for r in rows} >= {"cube_frequency_mhz", "peak_f16_tflops"}
    assert all(r["ascend910b"] != r["ascend910b2"] for r in rows)
    assert len(run("ascend910b", "ascend910b2", "--all")) > len(rows)
    assert run("h100", "h100") == []


def test_a_profile_of_ones_own_is_compared_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "version: 1\nname: mine\nextends: ascend910b\nfigures:\n"
        "  l2_mib: {value: 96, kind: measured, source: half of it is reserved}\n"
    )
    assert run(str(path), "ascend910b") == [
        {"figure": "l2_mib", str(path): "96.0", "ascend910b": "192.0"}
    ]
