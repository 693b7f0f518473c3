"""The developer page's example does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from attention_help import assert_close, fuse, random_feeds, run

from gecompiler.backends.execution.executor import run_reference
from gecompiler.ir import parse
from gecompiler.ir.infer import infer_types
from gecompiler.passes.attention import scores
from gecompiler.passes.attention.fuse import FuseAttention
from gecompiler.passes.equivalence.checked_pass import CheckedPass
from gecompiler.passes.pass_base import PassContext

PAGE = Path(__file__).resolve().parents[3] / "docs" / "adding_a_spelling.md"
TEXT = """graph (opset 17) {
  input %q: f32[b, 2, s, 8] input %kt: f32[b, 2, 8, t] input %v: f32[b, 2, t, 8]
  input %bias: f32[1, 2, s, t] input %mask: f32[b, 1, 1, t]
  const %half: f32[] = 0.5
  %qk = MatMul(%q, %kt)
  %sum = Sum(%bias, %qk, %mask) @the_sum
  %scaled = Mul(%sum, %half)
  %p = Softmax(%scaled) {axis = -1}
  %o = MatMul(%p, %v)
  return %o
}"""


def block(mark: str) -> str:
    found = re.search(
        rf"<!-- {mark} -->\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S
    )
    assert found is not None
    return found.group(1)


def test_the_example_is_a_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse(TEXT)
    infer_types(graph)
    (refused,) = fuse(graph.copy()) or (None,)
    assert refused is None or (not refused.fused and "the_sum" in refused.reason)

    steps = dict(scores.SCORE_STEPS)
    monkeypatch.setitem(scores.SCORE_STEPS, "Sum", None)  # type: ignore[index]
    scope = {**vars(scores)}
    exec(block("step") + block("entry"), scope)  # the page's own code
    assert scores.SCORE_STEPS["Sum"] is scope["_sum"]

    fused = graph.copy()
    (site,) = fuse(fused)
    assert (site.fused, site.scale, site.mask) == (True, 0.5, "additive")
    given = random_feeds(graph, {"b": 2, "s": 3, "t": 5})
    assert_close(run(fused, given), run(graph, given))

    context = PassContext()
    assert CheckedPass(FuseAttention(), run_reference).run(graph.copy(), context) == 1
    assert not list(context.diagnostics)
    assert "Sum" not in steps, "the page needs another example: Sum is known now"


def test_every_table_of_the_page_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for row in re.findall(r"^\|.*\|.*`[A-Z_]+`.*\|.*\.py.*\|$", text, re.M):
        names = re.findall(r"`([A-Z_]+)`", row)
        files = re.findall(r"\]\((\S+?)\)", row)
        sources = [(PAGE.parent / f).read_text(encoding="utf-8") for f in files]
        for name in names:
            assert any(re.search(rf"^{name}\b", s, re.M) for s in sources), name
