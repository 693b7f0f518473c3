"""Compiling and running for several cards, as users do."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from tiny_cards import SPEC, tokens

import gecompiler as ge
from gecompiler.advice import advice, links_bind
from gecompiler.backends.device import load_device
from gecompiler.backends.simulator import Simulator
from gecompiler.cards.report_text import cards_lines
from gecompiler.cards.request import cards_request
from gecompiler.cli import gec
from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.schedule import Link, Schedule
from gecompiler.ir.schedule_json import schema
from gecompiler.models import build_spec
from gecompiler.option_table import Options
from gecompiler.report import report_schema

LAYOUTS: tuple[dict[str, Any], ...] = (
    {"tp": 2},
    {"sp": 2},
    {"dp": 2},
    {"pp": 2},
    {"pp": 2, "tp": 2, "dp": 2},
    {"pp": 2, "pipeline_schedule": "interleaved"},
    {"dp": 3},
    {"pp": 3, "dp": 3, "micro_batches": 4, "pipeline_schedule": "interleaved"},
    {"pp": 4, "micro_batches": 2, "pipeline_schedule": "gpipe"},
    {"sp": 2, "tp": 2, "sequence_exchange": "ring", "embeddings": "split"},
    {"sp": 2, "sequence_exchange": "all-to-all"},
    {"tp": 4, "shared_kv_heads": "split"},
)


@cache
def model() -> Graph:
    return build_spec(SPEC, weights="random")


@cache
def inputs() -> dict[str, Any]:
    return tokens(8, 16)


@cache
def expected() -> Any:
    return ge.compile(model(), batch=8, seq=16).forward(inputs())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_ranks_compute_what_one_card_does(layout: dict[str, Any]) -> None:
    compiled = ge.compile(model(), batch=8, seq=16, **layout)
    np.testing.assert_allclose(compiled.forward(inputs()), expected(), rtol=1e-4, atol=1e-5)
    assert compiled.compilation.findings == ()
    report = compiled.as_dict()
    jsonschema.validate(report, report_schema())
    part = report["parallel"]
    assert part["ranks"] == np.prod(list(part["mesh"].values()))
    assert len(part["per_rank"]) == part["simulated_ranks"] == part["ranks"]
    assert {row["rank"] for row in report["streams"]["per_stream"]} == set(range(part["ranks"]))


def test_keys_that_go_round_need_streams() -> None:
    """On one stream all cards would send and none receive."""
    with pytest.raises(UsageError, match="need 4 streams a card, found 3"):
        ge.compile(model(), batch=8, seq=16, sp=2, sequence_exchange="ring", num_streams=3)
    ge.compile(model(), batch=8, seq=16, sp=2, sequence_exchange="ring", num_streams=4)


def test_other_sizes_are_compiled_on_the_way() -> None:
    compiled = ge.compile(model(), batch=4, seq=8, tp=2, pp=2)
    np.testing.assert_allclose(compiled.forward(inputs()), expected(), rtol=1e-4, atol=1e-5)


def test_a_training_step_of_several_cards() -> None:
    compiled = ge.compile(model(), batch=8, seq=16, train=True, dp=2, pp=2)
    assert compiled.compilation.findings == ()
    part = compiled.as_dict()["parallel"]
    assert part["pipeline"]["in_flight"] == [2, 1]
    assert set(part["sent_bytes"]) == {"dp", "pp"}


def test_training_gathers_keys_that_would_go_round() -> None:
    asked = {"batch": 4, "seq": 16, "train": True, "sp": 2, "optimizer": "sgd"}
    ring = ge.compile(model(), sequence_exchange="ring", **asked)
    assert [w.code for w in ring.compilation.diagnostics] == ["parallel-sequence"]
    gathered = ge.compile(model(), **asked)
    assert ring.as_dict()["schedule"] == gathered.as_dict()["schedule"]


def test_the_report_tells_of_the_cards() -> None:
    report = ge.compile(model(), batch=8, seq=16, tp=2, pp=2).as_dict()
    text = "\n".join(cards_lines(report))
    assert "4 (pp 2 x tp 2)" in text
    assert "2 stages, 8 micro-batches" in text
    assert text.count("computes") == 2  # ranks that do alike share a line
    assert "rank 2-3  pp1 tp0-1 " in text


def test_ranks_that_share_a_line_are_placed_on_every_axis() -> None:
    report = ge.compile(model(), batch=8, seq=16, tp=2, dp=2).as_dict()
    text = "\n".join(cards_lines(report))
    assert "rank 0-3  dp0-1 tp0-1 " in text


def test_every_card_is_in_the_files(tmp_path: Path) -> None:
    compiled = ge.compile(model(), batch=8, seq=16, tp=2)
    compiled.save(tmp_path / "out")
    compiled.save_html(tmp_path / "page.html")
    trace = json.loads((tmp_path / "out" / "trace.json").read_text())
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert {name.split(":")[0] for name in names} >= {"rank 0", "rank 1"}
    schedule = json.loads((tmp_path / "out" / "schedule.json").read_text())
    assert {task["rank"] for task in schedule["tasks"]} == {0, 1}
    assert "rank" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pp": 2, "micro_batches": 3}, "cannot be cut into 3 micro-batches"),
        ({"pipeline_schedule": "interleaved"}, "there is one stage"),
        ({"tp": 2, "topology": "mesh9"}, "no topology 'mesh9'"),
        ({"tp": 16, "topology": "mesh8"}, "8 cards"),
        ({"tp": 2, "collective_algorithm": "rong"}, "no collective algorithm 'rong'"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ge.compile(model(), batch=8, seq=16, **options)


def test_a_batch_that_replicas_cannot_share_evenly_is_warned_of() -> None:
    compiled = ge.compile(model(), batch=8, seq=16, dp=3)
    assert "uneven-batch" in [w["code"] for w in compiled.as_dict()["warnings"]]


@pytest.mark.parametrize(
    ("sizes", "batch", "parts"),
    [
        ({"pp": 2}, 3, 3),
        ({"pp": 2, "dp": 2}, 8, 4),
        ({"pp": 4}, 64, 16),
        ({"pp": 2, "dp": 2}, 3, 1),
    ],
    ids=str,
)
def test_the_usual_number_of_micro_batches(sizes: dict[str, int], batch: int, parts: int) -> None:
    asked = cards_request({**Options().as_dict(), **sizes})
    assert asked is not None
    assert asked.batch_parts(batch) == parts


def test_options_of_one_card_ask_for_none() -> None:
    assert cards_request(Options().as_dict()) is None


def test_the_command_compiles_and_runs(tmp_path: Path) -> None:
    compiled = ge.compile(model(), batch=8, seq=16)
    compiled.save(tmp_path / "one")
    np.savez(tmp_path / "in.npz", **inputs())
    np.savez(tmp_path / "out.npz", logits=expected())
    file = str(tmp_path / "one" / "model.onnx")
    given = ["--inputs", str(tmp_path / "in.npz"), "--expect", str(tmp_path / "out.npz")]
    cards = ["--tp", "2", "--dp", "2"]
    found = CliRunner().invoke(gec, ["run", file, *given, *cards], standalone_mode=False)
    assert found.return_value == 0, found.output
    asked = ["compile", file, "--batch", "8", "--seq", "16", *cards, "--json"]
    found = CliRunner().invoke(gec, asked, standalone_mode=False)
    assert json.loads(found.stdout)["parallel"]["mesh"] == {"dp": 2, "tp": 2}
    found = CliRunner().invoke(gec, [*asked[:-1], "--emit", "atc"])
    assert isinstance(found.exception, UsageError)


@pytest.mark.parametrize("topology", ["mesh8", "quads", "nodes2"])
def test_a_schedule_that_was_kept_takes_as_long(topology: str) -> None:
    """Its file has the links that it was made for, which are not the device's own."""
    compiled = ge.compile(
        model(), batch=8, seq=16, tp=4, pp=2, topology=topology, device="ascend910b"
    )
    result = compiled.compilation.result
    data = json.loads(json.dumps(result.schedule.to_json()))
    jsonschema.validate(data, schema())
    loaded = Schedule.from_json(data)
    assert loaded.links == result.schedule.links != ()
    simulate = Simulator(load_device("ascend910b"))
    assert simulate(loaded).makespan_ns == result.timeline.makespan_ns
    slow = replace(loaded, links=(Link("hccs", 1.0), *loaded.links[1:]))
    assert simulate(slow).makespan_ns > 2 * result.timeline.makespan_ns


SMALL = """
version: 1
name: small
description: a card with little memory
extends: ascend910b
figures:
  memory_gib: {{value: {gib}, kind: derived, source: this test}}
"""


def test_memory_is_told_of_the_rank_that_needs_most(tmp_path: Path) -> None:
    """The last stage has what the projection to the vocabulary gives; the first would fit."""
    large = build_spec({**SPEC, "vocabulary": 5000})
    fit = ge.compile(large, batch=8, seq=16, pp=2, micro_batches=1)
    needs = [row["memory"]["total"] for row in fit.as_dict()["parallel"]["per_rank"]]
    assert needs[0] < needs[1]
    limit = (needs[0] + needs[1]) / 2 / 2**30
    device = tmp_path / "small.yaml"
    device.write_text(SMALL.format(gib=limit))
    compiled = ge.compile(large, batch=8, seq=16, pp=2, micro_batches=1, device=str(device))
    (warning,) = [w for w in compiled.compilation.diagnostics if w.code == "out-of-memory"]
    assert warning.message.startswith("rank 1 (pp1): ")
    assert "--pp" in warning.hint


TRAINED: tuple[dict[str, Any], ...] = (
    {"dp": 2},
    {"sp": 2, "tp": 2},
    {"dp": 2, "micro_batches": 2, "zero_stage": 1},
    {"micro_batches": 2},
    {"dp": 2, "micro_batches": 4, "zero_stage": 2},
    {"dp": 2, "tp": 2, "micro_batches": 2, "zero_stage": 2},
    {"dp": 2, "micro_batches": 2, "zero_stage": 3},
    {"dp": 2, "pp": 2, "zero_stage": 3},
    {"pp": 2, "dp": 2},
    {"pp": 2, "tp": 2, "pipeline_schedule": "interleaved"},
    {"pp": 2, "pipeline_chunks": 3, "pipeline_schedule": "interleaved"},
)


@cache
def labelled() -> dict[str, Any]:
    return {**inputs(), "labels": np.random.default_rng(3).integers(0, 50, (8, 16))}


@cache
def trained_by_one() -> dict[str, Any]:
    step = ge.compile(model(), batch=8, seq=16, train=True, optimizer="sgd")
    return step.run(labelled())


@pytest.mark.parametrize("layout", TRAINED, ids=str)
def test_ranks_make_the_step_that_one_card_makes(layout: dict[str, Any]) -> None:
    compiled = ge.compile(model(), batch=8, seq=16, train=True, optimizer="sgd", **layout)
    assert compiled.compilation.findings == ()
    found, one = compiled.run(labelled()), trained_by_one()
    losses = found["loss"], one["loss"]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert set(found) == set(one)
    for name, array in found.items():
        np.testing.assert_allclose(array, one[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": None}, "'labels': missing; expected i64[8, 16]"),
        ({"labels": np.zeros((4, 16), np.int64)}, "'labels'"),
        ({"input_ids": np.zeros((4, 16), np.int64), "attention_mask": np.ones((4, 16), np.int64)},
         "[4, 16], the step is compiled for [8, 16]"),
        ({"learning_rate": np.float32(1)}, "'learning_rate': the model has no such input"),
    ],
)  # fmt: skip
def test_a_step_says_what_it_lacks(changed: dict[str, Any], message: str) -> None:
    compiled = ge.compile(model(), batch=8, seq=16, train=True, dp=2)
    given = {n: a for n, a in {**labelled(), **changed}.items() if a is not None}
    with pytest.raises(UsageError) as caught:
        compiled.run(given)
    assert message in str(caught.value)


def test_micro_batches_of_one_card_say_what_they_lack() -> None:
    compiled = ge.compile(model(), batch=8, seq=16, train=True, micro_batches=2)
    short = {n: a[:6] for n, a in labelled().items()}
    with pytest.raises(UsageError, match=r"\[6, 16\], the step is compiled for \[8, 16\]"):
        compiled.run(short)


def test_a_loss_without_labels_takes_none() -> None:
    compiled = ge.compile(model(), batch=8, seq=16, train=True, dp=2, train_loss="sum")
    assert "loss" in compiled.run(inputs())
    with pytest.raises(UsageError, match="has no labels"):
        compiled.run(labelled())


@pytest.mark.parametrize(("ranks", "grown"), [(16, False), (20, True)])
def test_a_network_that_grows_is_told(ranks: int, grown: bool) -> None:
    compiled = ge.compile(model(), batch=ranks, seq=4, dp=ranks, topology="nodes2")
    told = [w.message for w in compiled.compilation.diagnostics if w.code == "topology-grown"]
    said = "nodes2 has 16 cards, 20 are used: its last tier (roce) is taken to join 24"
    assert told == ([said] if grown else [])


def test_advice_on_talk_names_who_talks() -> None:
    """Starting tasks binds here, which is no place where talk shows."""
    compiled = ge.compile(model(), batch=8, seq=16, tp=4, device="ascend910b", topology="mesh8")
    report = compiled.as_dict()
    assert report["parallel"]["exposed_us"] > 0.25 * report["schedule"]["makespan_us"]
    bound = {"kind": "resource", "name": "fixed", "share": 0.6}
    report["parallel"]["binding"] = bound
    remedy = links_bind(compiled.compilation, report)
    assert remedy is not None
    assert "of the time (tp): " in remedy.en


def test_advice_on_fewer_streams_holds_when_followed() -> None:
    """Where nothing hides behind a collective, the syncs of its own stream only cost."""
    compiled = ge.compile(model(), batch=1, seq=16, tp=2)
    report = compiled.as_dict()
    told = [line for line in advice(compiled.compilation, report) if "faster was found" in line]
    assert len(told) == 1
    assert told[0].endswith("on 1 stream(s): give --streams 1")
    followed = ge.compile(model(), batch=1, seq=16, tp=2, num_streams=1).as_dict()
    best = report["schedule"]["best_found_us"]
    assert followed["schedule"]["makespan_us"] == pytest.approx(best)


def test_stages_are_not_advised_where_there_are_none() -> None:
    compiled = ge.compile(model(), batch=8, seq=16, tp=2)
    report = compiled.as_dict()
    report["parallel"]["bubble"] = 0.9
    remedy = links_bind(compiled.compilation, report)
    assert remedy is None or "stages" not in remedy.en


def test_kernels_that_talk_at_once_have_the_cores_they_want() -> None:
    """NCCL's kernels hold 24 cores each; of 48 cards have, two streams of talk may ask at once."""
    compiled = ge.compile(
        model(), batch=8, seq=16, tp=2, sp=2, dp=2, train=True, topology="dgx-a100",
        device="ascend910b",
    )  # fmt: skip
    assert compiled.compilation.findings == ()
    talking = [t for t in compiled.schedule.tasks if t.kind == "collective"]
    assert {t.demand.vector_cores for t in talking} == {24}
    assert len({t.stream for t in talking}) == 2


def test_the_best_found_is_no_slower_than_one_stream(tiny_path: Path) -> None:
    schedule = ge.compile(tiny_path, batch=2, seq=16, tp=2).as_dict()["schedule"]
    assert schedule["lower_bound_us"] <= schedule["best_found_us"] <= schedule["makespan_us"]
    assert schedule["best_found_us"] <= schedule["single_stream_us"]
