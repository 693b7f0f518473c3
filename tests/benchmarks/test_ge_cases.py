"""The scenario runner: all scenarios of the corpus, some restated here, and wrong ones told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchmarks.ge_cases import main, rows_of

OWN = """
- id: two_engines_in_a_chain
  units: [{a: E1}, {b: E2}, {c: E1}]
  edges: [a>b, b>c]
  expect: {a: 0, b: 0, c: 0, events_derived: 0}   # b waits, and a's stream would wait for b
- id: engines_overlap
  units: [{a: E1}, {b: E2}, {c: E1}, {d: E1}]
  edges: [a>b, a>c, b>d, c>d]
  expect: {a: 0, b: 1, c: 0, d: 0, streams: 2, events_derived: 2}
- id: caps
  units: [{a: E1}, {b: E1}, {c: E1}, {d: E1}]
  edges: [a>b, a>c, a>d]
  cap: {E1: 2}
  expect: {a: 0, b: 1, c: 0, d: 1}
- id: labels
  engines: {H: {independent: true}}
  units: [{a: E1}, {b: E1, user_label: U}, {c: H, user_label: U}, {d: H}]
  edges: [a>b, a>c, a>d]
  expect: {b: 0, c: 0, d: 1, a: 2}
- id: single
  option: {single_stream: true}
  cases:
    - {units: [{a: E1, user_label: U}], expect_error: label_conflict}
    - {also: {auto_mode: cv}, units: [{a: E1}], expect_error: mode_conflict}
- id: rules
  streams: {S0: [a, b], S1: [x, y], S2: [z]}
  cases:
    - {events: [a>x, a>y, b>y, a>z], expect_kept: [a>x, b>y, a>z]}
- id: reuse
  main: {data: 0, case(batch_num=2): 0}
  branch_0: {p: 0, q: 1, r: 0}
  branch_1: {s: 0, t: 2}
  expect_event_mode: {streams: 3, events_before_reuse: 3, events: 2}
- id: split
  cases:
    - {chain: 100 nodes, tasks_each: 20, expect: {streams: 3, events: 2, split_at_index: 49}}
    - {one relu(900 tasks) + two collectives(60 tasks each), expect: {streams: 2},
       if_single_stream: {streams: 1, huge: [0]}}
- id: dynamic
  mode: dynamic
  chain: data(LOCAL) > relu(aicore) > getnext(aicpu) > allreduce(hccl) > netoutput(LOCAL)
  priority: {aicore: 0, hccl: 1}
  expect: {relu: 0, getnext: 0, allreduce: 1, netoutput: 0, streams: 2, events: 2}
"""


@pytest.mark.parametrize("case", yaml.safe_load(OWN), ids=lambda c: c["id"])
def test_own_scenarios(case: dict) -> None:
    rows = list(rows_of(case))
    assert rows
    for row in rows:
        assert row.got == row.expected, row.name


def test_every_scenario_of_the_graph_engine(corpus: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([str(corpus / "cases" / "ge_stream_cases.yaml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 15
    assert all(line.startswith("ok ") for line in lines)


def test_a_scenario_that_differs_or_cannot_be_run_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(
        "- {id: good, units: [{a: E}], edges: [], expect: {a: 0}}\n"
        "- {id: bad, units: [{a: E}, {b: E}], edges: [], expect: {a: 0, b: 1}}\n"
        "- {id: broken, units: [{a: E}], edges: [a>b], expect: {a: 0}}\n"
    )
    assert main([str(file)]) == 1
    good, bad, broken = capsys.readouterr().out.splitlines()
    assert good.startswith("ok   good")
    assert bad.startswith("DIFF bad: all: expected {'a': 0, 'b': 1}, got {'a': 0, 'b': 0}")
    assert broken.startswith("DIFF broken: cannot be run")
