"""The scenario runner: all scenarios of the corpus, some restated here, and wrong ones told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchmarks.ge_cases import main, rows_of

OWN = """
- id: two_engines_in_a_chain
  level: node
  units: [{a: E1}, {b: E2}, {c: E1}]
  edges: [a>b, b>c]
  expect: {a: 0, b: 0, c: 0, events_derived: 0}   # b waits, and a's stream would wait for b
- id: two_engines_in_a_chain_of_clusters
  units: [{a: E1}, {b: E2}, {c: E1}]
  edges: [a>b, b>c]
  expect: {a: 0, b: 1, c: 0, events_derived: 2}   # the clean-up works on nodes
- id: a_label_of_independent_units_alone_burns_its_id
  engines: {H: {independent: true}}
  units: [{a: H, label: L}, {b: E1}]
  edges: [a>b]
  expect: {a: 1, b: 2, streams: 2}
- id: independent_per_engine_and_label
  engines: {H: {independent: true}, K: {independent: true}}
  units: [{a: H}, {b: H, label: L}, {c: K}, {d: H, label: L}, {e: E1, label: L}]
  edges: [a>b, b>c, c>d, d>e]
  expect: {e: 0, a: 1, b: 2, c: 3, d: 2}
- id: engines_in_the_order_of_their_names_upper_case_first
  units: [{a: b_engine}, {b: A_engine}, {c: B_engine}]
  edges: [a>b, b>c]
  expect: {a: 2, b: 0, c: 1}
- id: sibling_of_the_predecessors_engine_comes_first
  engines: {V: {attach: true}}
  units: [{a: E1}, {v: V}, {b: E1}]
  edges: [a>v, a>b]
  cap: {E1: 10}
  expect: {a: 0, v: 1, b: 0, streams: 2}
- id: memory_priority_drops_the_sibling_rule
  option: {memory_priority: true}
  engines: {V: {attach: true}}
  units: [{a: E1}, {v: V}, {b: E1}]
  edges: [a>v, a>b]
  cap: {E1: 10}
  expect: {a: 0, v: 0, b: 0}
- id: forced_attach_asks_nobody
  units: [{a: E1}, {v: V, force_attach: true}, {b: E1}]
  edges: [a>v, a>b]
  cap: {E1: 10}
  expect: {a: 0, v: 0, b: 0}
- id: the_cheapest_donor
  engines: {D: {attach: true}, C: {cost: 1}, E: {cost: 3}}
  units: [{a: E}, {b: C}, {d: D}]
  edges: [a>d, b>d]
  expect: {a: 1, b: 0, d: 0}
- id: reuse_through_what_reuses
  engines: {V: {attach: true}}
  units: [{a: E1}, {v: V}, {b: E1}]
  edges: [a>v, v>b]
  cap: {E1: 10}
  expect: {a: 0, v: 0, b: 0}
- id: no_reuse_from_labelled_or_independent
  engines: {H: {independent: true}}
  units: [{a: E1, label: L}, {b: E1}, {h: H}, {c: H2}]
  edges: [a>b, h>c]
  expect: {a: 0, h: 1, b: 2, c: 3}
- id: skipped_without_predecessors_has_no_stream
  engines: {LOCAL: {skip: true, attach: true}}
  units: [{d: LOCAL}, {a: E1}, {n: LOCAL}]
  edges: [d>a, a>n]
  expect: {d: -1, a: 0, n: 0, events_derived: 0}
- id: balance_of_two_chains
  option: {auto_mode: "LoadBalance:2"}
  units: [{s: E1}, {a1: E1}, {a2: E1}, {b1: E1}, {b2: E1}, {t: E1}]
  edges: [s>a1, a1>a2, a2>t, s>b1, b1>b2, b2>t]
  expect: {streams: 2, equal: [[a1, a2], [b1, b2]], differ: [[a1, b1]]}
- id: labels_beyond_the_streams_of_a_mode
  option: {auto_mode: "MainStream:1"}
  units: [{a: E1}, {b: E1, user_label: L}, {c: E1}]
  edges: [a>b, b>c]
  expect: {a: 0, b: 1, c: 0, streams: 2}
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
- id: errors_by_their_codes
  cases:
    - {units: [{a: E1, user_label: U}], also: {single_stream: true}, expect_error: E10055}
    - {units: [{a: E1}], also: {single_stream: true, auto_mode: cv}, expect_error: E10056}
    - {units: [{a: E1}], also: {auto_mode: "LoadBalance:65"}, expect_error: E10001}
    - {units: [{a: E1}], also: {auto_mode: LoadBalance}, expect_error: param_invalid}
    - {units: [{a: E1}], also: {auto_mode: "cv:2"}, expect_error: param_invalid}
    - {units: [{a: E1}], also: {auto_mode: critical_path}, expect_error: param_invalid}
    - {units: [{a: E1}], also: {auto_mode: default}, expect: {a: 0}}
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
  chain: data(LOCAL) > relu(aicore) > cast(aicpu) > allreduce(hccl) > netoutput(LOCAL)
  priority: {aicore: 0, hccl: 1}
  expect: {relu: 0, cast: 0, allreduce: 1, netoutput: 0, streams: 2, events: 2}
- id: dynamic_foreign
  mode: dynamic
  chain: data(LOCAL) > relu(aicore) > get_next(aicpu) > allreduce(hccl) > netoutput(LOCAL)
  priority: {aicore: 0, hccl: 1, aicpu: 2}
  expect: {relu: 0, get_next: 2, allreduce: 1, netoutput: 0, streams: 3, events: 3}
- id: dynamic_cpu_on_its_own
  mode: dynamic
  option: {ac_parallel_enable: 1}
  units: [{d: LOCAL}, {c: aicpu}, {r: aicore}, {h: hccl}, {e: aicpu}]
  edges: [d>c, c>r, r>h, h>e]
  expect: {d: 2, r: 0, h: 1, c: 2, e: 2}
- id: dynamic_labels_mix_engines
  mode: dynamic
  units: [{r: aicore, label: L}, {h: hccl, label: L}, {s: aicore}, {t: aicore, label: K}]
  edges: [r>h, h>s, s>t]
  expect: {s: 0, t: 1, r: 2, h: 2}
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
