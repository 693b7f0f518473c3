"""What is emitted for several cards: a placement for each rank, or one error that says why not."""

from __future__ import annotations

import ast
from typing import Any

import pytest

import gecompiler as ge
from gecompiler.cli import main
from gecompiler.emit_atc import emit_atc
from gecompiler.emit_torchair import emit_torchair
from gecompiler.ir.errors import UsageError
from gecompiler.request import Controls


def emitted(**options: Any) -> tuple[Any, str]:
    compiled = ge.compile("gpt2", batch=2, seq=16, device="ascend910b", **options)
    return compiled, emit_torchair(compiled.compilation)


def labels_of(text: str) -> dict[int, dict[str, str]]:
    """The stream label of each op, by rank, read off the text."""
    tree = ast.parse(text)
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    table = next(
        n.value for n in tree.body
        if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "TEMPLATES"
    )  # fmt: skip
    assert isinstance(table, ast.Dict)
    found = {}
    for key, value in zip(table.keys, table.values, strict=True):
        assert key is not None
        labels = next(
            n.value for n in functions[ast.unparse(value)].body
            if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "STREAM_LABELS"
        )  # fmt: skip
        found[ast.literal_eval(key)] = ast.literal_eval(labels)
    return found


@pytest.mark.parametrize("layout", [{"tp": 2}, {"tp": 2, "pp": 2}, {"dp": 2}], ids=str)
def test_every_rank_gets_its_placement(layout: dict[str, int]) -> None:
    compiled, text = emitted(stream_strategy="heft", micro_batches=1, **layout)
    labels = labels_of(text)
    cards = compiled.compilation.cards
    assert list(labels) == list(range(cards.program.mesh.size))
    for rank, found in labels.items():
        part = cards.parts[cards.program.template_of[rank]]
        wanted = {
            op.removeprefix("mb0/"): f"gec_stream_{task.stream}"
            for task in part.schedule.tasks
            for op in task.ops
        }
        assert found == (wanted if len(set(wanted.values())) > 1 else {})
    compile(text, "placement.py", "exec")


def test_stages_have_placements_of_their_own() -> None:
    _, text = emitted(stream_strategy="heft", micro_batches=1, pp=2)
    first, second = labels_of(text).values()
    names = [next(n for n in found if "h.11/attn" in n or "h.0/attn" in n) for found in
             (first, second)]  # fmt: skip
    assert names[0] not in second
    assert names[1] not in first


def test_micro_batches_are_graphs_of_their_own() -> None:
    with pytest.raises(UsageError, match="in 2 micro-batches") as error:
        emitted(pp=2, micro_batches=2)
    assert "--micro-batches 1" in error.value.hint


def test_atc_compiles_for_one_card() -> None:
    compiled = ge.compile("gpt2", batch=2, seq=16, device="ascend910b", tp=2)
    with pytest.raises(UsageError, match="what one card runs"):
        emit_atc(compiled.compilation, "gpt2", Controls())


def test_the_command_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["compile", "gpt2", "--batch", "2", "--seq", "16", "--device", "ascend910b"]
    cards = ["--tp", "2", "--micro-batches", "1", "--strategy", "heft"]
    with pytest.raises(SystemExit) as ended:
        main([*common, *cards, "--emit", "torchair"])
    assert not ended.value.code
    assert capsys.readouterr().out == emitted(stream_strategy="heft", micro_batches=1, tp=2)[1]
    with pytest.raises(SystemExit) as ended:
        main([*common, *cards, "--emit", "atc"])
    assert ended.value.code == 2
    assert "use --emit torchair" in capsys.readouterr().err
