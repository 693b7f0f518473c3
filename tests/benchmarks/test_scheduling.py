"""The benchmark of published instances: forms of the file, and the corpus to optimality."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.scheduling import instances, main, result
from gecompiler.passes.streams.search import Budget

SMALL = {
    "two_machines": {
        "processors": 2,
        "exec": [[1, 4], [4, 1]],
        "edges": [[0, 1, 3]],
        "optimal_makespan": 5,
        "heft_makespan": 5,
    },
    "projects": {
        "a": {
            "capacity": [2],
            "tasks_[dur,req,succ]": [[3, [2], [2]], [2, [1], []], [1, [1], []]],
            "optimal_makespan": 5,
        }
    },
    "machines": {
        "b": {
            "tasks_[dur,preds]": [[2, []], [2, []], [2, [0]]],
            "optimal": {"2": {"makespan": 4}, "1": {"makespan": 6}},
        },
        "c": {"tasks_[dur,preds]": [[2, []]]},
    },
}


def test_every_form_is_read_and_solved() -> None:
    rows = {i.name: result(i, Budget(200)) for i in instances(SMALL)}
    assert list(rows) == [
        "two_machines", "projects/a", "machines/b/2", "machines/b/1",
        "machines/c/2", "machines/c/4", "machines/c/8",
    ]  # fmt: skip
    assert {row["ratio"] for row in rows.values()} == {1.0}
    assert rows["machines/c/2"]["optimum"] is None
    assert rows["two_machines"]["heft"] == 5


def test_the_published_instances_are_solved(corpus: Path, capsys: pytest.CaptureFixture) -> None:
    file = corpus / "cases" / "scheduling_instances.json"
    assert main([str(file), "--plans", "2000"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 21
    assert max(row["ratio"] for row in rows.values()) <= 1.02
    assert (rows["heft10"]["makespan"], rows["heft10"]["heft"]) == (73, 80)
    assert all(row["bound"] <= row["optimum"] for row in rows.values())


@pytest.mark.parametrize(
    ("instance", "makespan"),
    [
        ({"processors": 2, "exec": [], "edges": []}, 0),
        ({"processors": 2, "exec": [[3, 3], [4, 4]], "edges": [[0, 1]]}, 7),
        ({"exec": [[3, 3], [4, 4], [0, 0]], "note": [1, {"exec": 2}]}, 4),
        ({"exec": [[3], [4], [0]], "edges": [[0, 1, 100], [1, 2, 5], [0, 1, 100]]}, 7),
        ({"capacity": [], "tasks_[dur,req,succ]": [[5, [], [1, 1]], [2, [], []]]}, 7),
        ({"capacity": [1], "tasks_[dur,req,succ]": [[5, [1], []]]}, 5),
    ],
)
def test_what_is_left_out_or_unknown_does_no_harm(instance: dict, makespan: float) -> None:
    for data in (instance, {"one": instance}, {"group": {"one": instance}}):
        (found,) = instances(data)
        assert result(found, Budget(200))["makespan"] == makespan


@pytest.mark.parametrize(
    ("instance", "word"),
    [
        ({"exec": [[3], [4]], "edges": [[0, 1, 0], [1, 0, 0]]}, "cycle"),
        ({"capacity": [1], "tasks_[dur,req,succ]": [[4, [2], []]]}, "needs 2"),
        ({"tasks_[dur,preds]": [[4, [7]]], "processors": 2}, "strange"),
    ],
)
def test_an_instance_that_makes_no_sense_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture, instance: dict, word: str
) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps({"strange": instance}))
    with pytest.raises(SystemExit) as stop:
        main([str(file)])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "instance 'strange'" in said
    assert word in said
