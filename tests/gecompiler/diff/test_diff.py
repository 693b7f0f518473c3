"""Two timelines compared op by op."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gecompiler.cli import gec
from gecompiler.diff import Side, compare, comparison_text, load_side
from gecompiler.diff.matching import match
from gecompiler.diff.sides import Op
from gecompiler.ir.errors import GecError


def op(name: str, op_type: str = "Add", us: float = 1.0, start: int = 0, shapes: str = "",
       rank: int = 0) -> Op:  # fmt: skip
    return Op(name, op_type, shapes, rank, start, round(us * 1000))


def side(*ops: Op) -> Side:
    return Side("x", "captured", ops)


def test_names_go_before_shapes_and_shapes_before_types() -> None:
    before = [op("a"), op("q", "MatMul", shapes="1,2,8;8,4->2,4"), op("u", "Relu"), op("v", "Relu")]
    after = [op("w", "Relu"), op("MatMulV2_3", "MatMulV2", shapes="8,4;2,8->2,4"), op("a", us=3)]
    found = match(before, after)
    pairs = {(p.before[0].name, p.after[0].name, p.by) for p in found.pairs}
    assert pairs == {("a", "a", "name"), ("q", "MatMulV2_3", "shapes"), ("u", "w", "type")}
    assert [o.name for o in found.removed] == ["v"]
    assert not found.added


def test_known_shapes_that_differ_are_other_ops() -> None:
    found = match([op("a", shapes="2->2")], [op("b", shapes="4->4")])
    assert not found.pairs
    assert found.removed
    assert found.added


def test_another_number_of_runs_is_compared_by_means() -> None:
    found = match([op("a", us=2), op("a", us=4)], [op("a", us=6)])
    (pair,) = found.pairs
    assert pair.mean_ns == (3000, 6000)
    equal = match([op("a", us=2), op("a", us=4)], [op("a", us=2), op("a", us=5)])
    assert [p.difference_ns for p in equal.pairs] == [0, 1000]


def test_ranks_are_matched_by_place() -> None:
    found = match(
        [op("a", rank=0), op("a", rank=1, us=2)], [op("a", rank=5), op("a", rank=9, us=7)]
    )
    assert sorted(p.difference_ns for p in found.pairs) == [0, 5000]


def test_totals_of_types_are_the_sums() -> None:
    report = compare(
        side(op("a", "MatMulV2", 5), op("b", us=1)), side(op("a", "MatMul", 2), op("c", "Relu", 4))
    )
    rows = {row["type"]: row for row in report["types"]}
    assert rows["MatMul"]["difference_us"] == -3
    assert rows["Relu"]["before_us"] == 0
    assert report["ops"][0]["ratio"] == 0.4
    assert report["added_us"] == 4
    assert report["removed"][0]["name"] == "b"
    text = comparison_text(report, 5)
    assert "-3.00 us" in text
    assert "Only after: 1 op" in text


@pytest.mark.parametrize("width", [40, 60, 80, 96])
def test_names_keep_their_ends_and_lines_fit(width: int) -> None:
    long = "/model/layers.11/attention/output/LayerNorm/LayerNormalization"
    report = compare(side(op(long, us=5), op("b", us=1)), side(op(long, us=7), op("c", us=2)))
    text = comparison_text(report, 5, width)
    assert max(map(len, text.splitlines())) <= width
    assert "Normalization  " in text


def test_sides_without_a_common_op() -> None:
    text = comparison_text(compare(side(op("a", "Relu", 5)), side(op("b", "Add", 5))), 5)
    assert "No op is on both sides." in text


def test_differences_of_rounding_have_no_sign_of_a_gain() -> None:
    report = compare(side(op("a", us=5)), side(op("a", us=5)))
    report["types"][0]["difference_us"] = -0.001
    assert "-0.00" not in comparison_text(report, 5)


def test_many_ops_of_few_names_are_matched_in_order() -> None:
    many = [op(f"n{i % 977}", us=i % 13, start=i) for i in range(60_000)]
    assert len(match(many, many).pairs) == 60_000


def run(*arguments: str) -> str:
    result = CliRunner().invoke(gec, list(arguments), standalone_mode=False)
    assert result.exception is None, result.exception
    assert not result.return_value
    return result.output


def test_folders_traces_schedules_and_profiles_compare(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    model = ("bert-base", "--batch", "1", "--seq", "16", "-q")
    run("profile", *model, "-o", str(one), "--streams", "1")
    run("profile", *model, "-o", str(two), "--streams", "2", "--format", "msprof")
    for before, after in (
        (one, two),
        (one / "trace.json", two / "schedule.json"),
        (next(two.glob("PROF_*")), two),
    ):
        found = json.loads(run("diff", str(before), str(after), "--json"))
        assert found["matched"]["name"] > 0
        assert found["before"]["ops"] > 0
    same = json.loads(run("diff", str(next(two.glob("PROF_*"))), str(two), "--json"))
    assert all(row["difference_us"] == 0 for row in same["ops"])
    assert same["before"]["kind"] == "captured"
    assert not same["added"]


def test_what_is_no_timeline_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    (tmp_path / "trace.json").write_text(
        '[{"ph": "X", "args": {"task": 1}, "ts": 1, "dur": "nan"}]'
    )
    (tmp_path / "schedule.json").write_text("{}")
    for name in ("x.json", "trace.json", "schedule.json", "none"):
        with pytest.raises(GecError):
            load_side(tmp_path / name)


def test_layouts_that_cut_the_model_otherwise_are_matched_by_the_models_names() -> None:
    before = [op(f"{r}:mb{m}//l.0/MatMul", us=4, rank=r) for r in (0, 1) for m in (0, 1)]
    after = [op(f"{r}:/l.0/MatMul", us=2, rank=r) for r in range(4)]
    found = match(before, after)
    assert [(pair.by, pair.difference_ns) for pair in found.pairs] == [("name", -2000)] * 4
    single = match([op("/l.0/MatMul#mb0"), op("/l.0/MatMul#mb1")], after)
    (pair,) = single.pairs
    assert (len(pair.before), len(pair.after), pair.mean_ns) == (2, 4, (1000, 2000))
    assert match([op("/l.0/MatMul")], [op("/l.1/MatMul", "Gelu")]).pairs == ()


def test_what_layers_and_cards_say_alike_is_said_once() -> None:
    before = [op(f"{r}:/l.{n}/MatMul", us=4, rank=r) for r in (0, 1) for n in range(3)]
    after = [op(f"{r}:/l.{n}/MatMul", us=5, rank=r) for r in (0, 1) for n in range(3)]
    before += [op("0:/head", us=1), op("0:/l.0/Old", us=7), op("1:/l.1/Old", us=7, rank=1)]
    after += [op("0:/head", us=9)]
    text = comparison_text(compare(side(*before), side(*after)), 15, 96)
    lines = [line for line in text.splitlines() if "MatMul" in line or "Old" in line]
    assert len(lines) == 2
    assert "/l.#/MatMul" in lines[0]
    assert lines[0].endswith("  6 x")
    assert "/l.#/Old" in lines[1]
    assert lines[1].endswith("  2 x")
    assert "0:/head" in text
