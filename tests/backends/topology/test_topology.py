"""Topologies from YAML: what is read, what is refused, and by which links cards talk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gecompiler.backends.device import load_device
from gecompiler.backends.topology import (
    default_topology,
    load_topology,
    read_topology,
    topology_names,
)
from gecompiler.cli_topologies import topologies
from gecompiler.ir.errors import ScheduleError, UsageError

DEVICE = load_device("ascend910b")

OWN = """version: 1
name: mine
description: two servers
aliases: [twins]
cards: 8
library:
  algorithms:
    AllReduce: [ring, hierarchical]
  figures:
    copy_gb_per_s: {value: 400, kind: measured, source: "tried"}
  protocols:
    - name: small
      use: [AllReduce, AllGather]
      figures:
        start_us: {value: 5, kind: measured, source: "tried"}
      up_to_kib: {value: {2: 64, 8: 256}, kind: measured, source: "tried"}
    - name: large
      figures:
        start_us: {value: 9, kind: measured, source: "tried"}
        vector_cores: {value: 4, kind: derived, source: "guessed"}
tiers:
  - name: hccs
    span: 4
    wiring: mesh
  - name: net
    span: 8
    wiring: switch
    ports: 2
    figures:
      bandwidth_gb_per_s: {value: 12.5, kind: vendor, source: "100 Gb/s"}
      latency_us: {value: 6, kind: derived, source: "guessed"}
      efficiency_fraction: {value: 0.8, kind: derived, source: "guessed"}
    protocols:
      small:
        latency_us: {value: 3, kind: derived, source: "guessed"}
        up_to_kib: {value: 32, kind: derived, source: "guessed"}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(OWN)
    return path


def test_a_topology_of_ones_own(own: Path) -> None:
    found = load_topology(str(own), DEVICE)
    assert (found.name, found.cards, [t.name for t in found.tiers]) == ("mine", 8, ["hccs", "net"])
    assert found.route(0, 3) == ("hccs:0>3",)
    assert found.route(1, 6) == ("net:0.1>", "net:>1.0")
    assert found.route(2, 2) == ()
    assert found.tiers[0].bandwidth_gb_per_s == pytest.approx(DEVICE.hccs_gb_per_s / 3)
    assert found.link_bytes_per_us("net:0.1>") == pytest.approx(10_000)
    assert found.rate(0, 7, "small").latency_us == 3
    assert found.rate(0, 7, "small").efficiency == 0.8
    assert found.rate(0, 7, "large").latency_us == 6
    assert found.algorithms["AllReduce"] == ("ring", "hierarchical")
    assert {f.name: f.value for f in found.figures()}["net.bandwidth_gb_per_s"] == 12.5
    with pytest.raises(ScheduleError, match="no link 'nett:0>'"):
        found.link_bytes_per_us("nett:0>")


def test_protocols_switch_at_a_size_that_depends_on_the_group_and_its_links(own: Path) -> None:
    found = load_topology(str(own), DEVICE)

    def name(cards: tuple[int, ...], kib: float, op: str = "AllReduce") -> str:
        return found.protocol(op, cards, kib * 1024).name

    assert name((0, 1), 64) == "small"
    assert name((0, 1), 65) == "large"
    assert name((0, 1, 2, 3), 128) == "small"
    assert name((0, 1, 2, 3), 129) == "large"
    assert name((0, 4), 32) == "small"
    assert name((0, 4), 33) == "large"
    assert name((0, 1), 1, "Send") == "large"


@pytest.mark.parametrize("name", topology_names())
def test_every_built_in_one_is_whole(name: str) -> None:
    found = load_topology(name, DEVICE)
    assert found.name == name
    assert found.description != "-"
    for source, target in ((0, 1), (0, found.cards - 1), (found.cards - 1, 0)):
        for link in found.route(source, target):
            assert found.link_bytes_per_us(link) > 0
    for figure in found.figures():
        assert len(figure.source) > 5
        assert figure.source != "fitted"
    for alias in read_topology(name).aliases:
        assert load_topology(alias.upper(), DEVICE).name == name


def test_tiers_may_share_links_and_add_latency() -> None:
    found = load_topology("supernode384", load_device("ascend910c"))
    assert found.route(0, 1) == ("sio:0>1",)
    assert found.route(0, 5) == ("ub:0>", "ub:>5")
    assert found.route(0, 500) == ("ub:0>", "ub:>500")
    assert found.rate(0, 500, "any").latency_us > found.rate(0, 5, "any").latency_us


def test_a_device_knows_its_usual_topology() -> None:
    assert default_topology(DEVICE, 8).name == "mesh8"
    assert default_topology(load_device("h800"), 4).name == "dgx-h100"
    assert default_topology(DEVICE, 20).cards == 64


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("version: 1", "version: 2", "'version: 1' is expected"),
        ("cards: 8\nlib", "cards: 9\nlib", "joins 8 cards, and there are 9"),
        ("cards: 8\nlib", "cards: 8.5\nlib", "whole number"),
        ("wiring: mesh", "wiring: star", "wiring is 'star', expected mesh or switch"),
        ("    span: 4", "    spann: 4", "unknown key 'spann'"),
        ("    span: 8", "    span: 6", "span 6 is no multiple of 4"),
        ("ports: 2", "ports: 3", "3 ports cannot be shared evenly by 4 cards"),
        ("ports: 2", "ports: 0", "ports is 0, which is impossible"),
        ("ports: 2", "ports: null", "ports"),
        ("ports: 2", "ports: false", "ports"),
        ("ports: 2", "ports: 2.5", "whole number"),
        ("latency_us: {value: 6", "latency: {value: 6", "unknown figure 'latency'"),
        ("value: 12.5", "value: -1", "impossible"),
        ("value: 12.5", "value: fast", "expected a number"),
        ("fraction: {value: 0.8", "fraction: {value: 8", "impossible"),
        ("value: 6, kind: derived", "value: 6, kind: heard", "'heard'"),
        ("[ring, hier", "[rings, hier", "no algorithm 'rings'"),
        ("    AllReduce: [", "    AllReduced: [", "unknown key 'AllReduced'"),
        ("use: [AllReduce,", "use: [AllReduc,", "no collective 'AllReduc'"),
        ("{2: 64, 8: 256}", "{1: 64}", "has 1 ranks"),
        ("{2: 64, 8: 256}", "{}", "empty"),
        ("name: large", "name: small", "stands there twice"),
        ("      small:\n", "      smal:\n", "unknown key 'smal'"),
        ("name: net", "name: hccs", "no name of its own"),
        ("name: net", "name: hbm", "no name of its own"),
        ("kind: vendor, ", "", "has no 'kind'"),
        ("    - name: large\n", "    - name: large\n      use: [Send]\n",
         "no protocol takes AllReduce of any size"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert OWN.count(old) >= 1
    path = tmp_path / "mine.yaml"
    text = OWN.replace(old, new, 1)
    path.write_text(text)
    changed = OWN[: OWN.index(old)].count("\n") + 1
    with pytest.raises(UsageError) as error:
        load_topology(str(path), DEVICE)
    assert words in str(error.value)
    line = int(error.value.where.rpartition(":")[2])
    assert line <= len(text.splitlines())
    if "stands there twice" not in words and "joins 8" not in words and "any size" not in words:
        assert abs(line - changed) <= 4


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_topology(str(tmp_path / "none.yaml"), DEVICE)
    (tmp_path / "anchors.yaml").write_text("a: &x 1\nb: *x\n")
    with pytest.raises(UsageError, match="anchors"):
        load_topology(str(tmp_path / "anchors.yaml"), DEVICE)


def test_listing() -> None:
    run = CliRunner().invoke
    listed = json.loads(run(topologies, ["--json"]).output)
    assert [row["topology"] for row in listed] == list(topology_names())
    one = json.loads(run(topologies, ["mesh8", "--cards", "4", "--json"]).output)
    assert one["cards"] == 8
    assert {"hccs.bandwidth_gb_per_s", "hccs.latency_us"} <= {f["figure"] for f in one["figures"]}
    reduce = next(c for c in one["collectives"] if c["collective"] == "AllReduce")
    assert [t["algorithm"] for t in reduce["times"]] == ["mesh"] * 3
    assert reduce["cards"] == 4
    table = run(topologies, ["pod64"]).output
    assert "roce.bandwidth_gb_per_s" in table
    assert "AllToAll" in table
    assert run(topologies, ["mesh9"]).exit_code != 0
