"""The pass manager: figures, hooks, and who is to blame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from gecompiler.ir import Graph, GraphError, ModelError, Op, UsageError, parse, tensor
from gecompiler.passes import Pass, PassContext, PassError, Pipeline
from gecompiler.passes.canonical.canonicalize import Canonicalize
from gecompiler.passes.canonical.dead_code import DeadCode
from gecompiler.passes.fingerprint import fingerprint

TEXT = """graph @g {
  input %x: f32[4]
  %a = Identity(%x)
  %b = Relu(%a)
  %dead = Neg(%a)
  return %b
}"""


@dataclass(frozen=True)
class Does(Pass):
    """A pass that does one thing, told by its name."""

    name: ClassVar[str] = "does"
    what: str = ""

    def run(self, graph: Graph, context: PassContext) -> int:
        if self.what == "lies upward":
            return 1
        if self.what == "lies downward":
            graph.emit("Neg", ["x"], graph.type("x"))
            return 0
        if self.what == "raises":
            raise KeyError("oops")
        if self.what == "blames the user":
            raise ModelError("your model", where="node 'b'")
        if self.what == "edits wrongly":
            graph.remove_op("a")
        if self.what == "breaks the graph":
            graph.replace_op("a", graph.op("a").with_(inputs=("b",)))
            return 1
        return 0


def run(*passes: Pass, **hooks: object) -> tuple[Graph, list[str]]:
    graph = parse(TEXT)
    stats = Pipeline(passes, **hooks).run(graph)  # type: ignore[arg-type]
    return graph, [s.name for s in stats]


def test_each_pass_is_counted_and_timed() -> None:
    graph = parse(TEXT)
    stats = Pipeline((DeadCode(), Canonicalize(), Canonicalize())).run(graph)
    assert [(s.name, s.ops_before, s.ops_after) for s in stats] == [
        ("dead-code", 3, 2),
        ("canonicalize", 2, 1),
        ("canonicalize", 1, 1),
    ]
    assert stats[0].changes == 1
    assert stats[1].changes > 0
    assert stats[2].changes == 0
    assert all(s.ms >= 0 for s in stats)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("lies upward", "claims 1 changes but left the graph as it was"),
        ("lies downward", "claims 0 changes but changed the graph"),
        ("raises", "crashed: KeyError: 'oops'"),
        ("edits wrongly", "an edit that the graph refuses"),
        ("breaks the graph", "left an invalid graph"),
    ],
)
def test_a_failing_pass_is_named_with_a_way_to_reproduce_it(what: str, message: str) -> None:
    with pytest.raises(PassError) as caught:
        run(DeadCode(), Does(), Does(what), command="gec compile m.onnx")
    error = caught.value
    assert message in str(error)
    assert error.name == "does"
    assert error.before == ("dead-code", "does")
    assert "gec compile m.onnx --stop-after does:2" in str(error)


def test_a_message_for_the_user_passes_through() -> None:
    with pytest.raises(ModelError, match="your model"):
        run(Does("blames the user"))


def test_a_graph_that_is_wrong_before_is_not_blamed_on_a_pass() -> None:
    graph = parse(TEXT)
    graph.replace_op("a", graph.op("a").with_(inputs=("b",)))
    with pytest.raises(GraphError):
        Pipeline((Does(),)).run(graph)


@pytest.mark.parametrize(
    ("stop_after", "ran"),
    [
        (None, ["dead-code", "does", "does"]),
        ("dead-code", ["dead-code"]),
        ("does", ["dead-code", "does"]),
        ("does:1", ["dead-code", "does"]),
        ("does:2", ["dead-code", "does", "does"]),
    ],
)
def test_stop_after(stop_after: str | None, ran: list[str]) -> None:
    assert run(DeadCode(), Does(), Does(), stop_after=stop_after)[1] == ran


def test_disabled_passes_are_left_out() -> None:
    graph, ran = run(DeadCode(), Does(), disabled=("dead-code", "canonicalize"))
    assert ran == ["does"]
    assert len(graph) == 3


@pytest.mark.parametrize("hook", [{"stop_after": "dead-cod"}, {"disabled": ("dead-cod",)}])
def test_a_hook_that_names_no_pass_is_an_error(hook: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="did you mean 'dead-code'"):
        run(DeadCode(), **hook)


def test_the_graph_is_dumped_after_each_pass() -> None:
    seen: list[tuple[str, int]] = []
    run(Does(), DeadCode(), dump=lambda name, graph: seen.append((name, len(graph))))
    assert seen == [("does", 3), ("dead-code", 2)]


def test_passes_share_what_they_find() -> None:
    context = PassContext()
    text = """graph @g {
      input %x: f32[4]
      const %r: f32[] = 0.5
      const %t: bool[] = true
      %y = Dropout(%x, %r, %t)
      %z = Relu(%y)
      return %z
    }"""
    Pipeline((Canonicalize(),)).run(parse(text), context)
    assert [w.code for w in context.diagnostics] == ["training-mode"]


def test_a_changed_attribute_of_a_body_counts_as_a_change() -> None:
    text = """graph @g {
      input %c: bool[]
      input %x: f32[2]
      %y: f32[2] = If(%c) {
        then_branch = graph @t { outer %x: f32[2] %a: f32[2] = Neg(%x) return %a },
        else_branch = graph @e { outer %x: f32[2] %b: f32[2] = Abs(%x) return %b }
      }
      return %y
    }"""

    class Edit(Pass):
        name: ClassVar[str] = "edit"

        def run(self, graph: Graph, context: PassContext) -> int:
            (op,) = graph.ops
            body = op.attr("then_branch").copy()
            body.replace_op("a", body.op("a").with_(op_type="Relu"))
            graph.replace_op(op.name, op.with_(attrs={**op.attrs, "then_branch": body}))
            return 1

    assert Pipeline((Edit(),)).run(parse(text))[0].changes == 1


def test_types_are_no_part_of_the_graph_that_is_compared() -> None:
    class Refine(Pass):
        name: ClassVar[str] = "refine"

        def run(self, graph: Graph, context: PassContext) -> int:
            graph.set_type("a", graph.type("x"))
            return 0

    assert Pipeline((Refine(),)).run(parse(TEXT))[0].changes == 0


def test_constants_are_part_of_it() -> None:
    class Leave(Pass):
        name: ClassVar[str] = "leave"

        def run(self, graph: Graph, context: PassContext) -> int:
            graph.constant_of("c", np.zeros(2, np.float32))
            return 0

    with pytest.raises(PassError, match="changed the graph"):
        Pipeline((Leave(),)).run(parse(TEXT))


def test_an_op_by_another_name_is_a_change() -> None:
    class Rename(Pass):
        name: ClassVar[str] = "rename"

        def run(self, graph: Graph, context: PassContext) -> int:
            old = graph.op("a")
            graph.replace_op("a", Op("other", old.op_type, old.inputs, old.outputs))
            return 1

    assert Pipeline((Rename(),)).run(parse(TEXT))[0].changes == 1


def test_types_inferred_within_a_body_are_no_change() -> None:
    graph = parse(
        "graph (opset 18) { input %x: f32[b, 4] const %n: i64[] = 2 %y = Loop(%n, _, %x) "
        "{ body = graph @b { input %i: i64[] input %g: bool[] input %v: f32[4, 4] "
        "%w = Neg(%v) return %g, %w } } return %y }"
    )
    before = fingerprint(graph)
    (loop,) = graph.ops
    body = loop.bodies[0].copy()
    body.set_type("v", tensor("f32", (2, 4)))
    graph.replace_op(loop.name, loop.with_(attrs={"body": body}))
    assert fingerprint(graph) == before
    body = body.copy()
    body.replace_op(body.ops[0].name, body.ops[0].with_(op_type="Abs"))
    graph.replace_op(loop.name, loop.with_(attrs={"body": body}))
    assert fingerprint(graph) != before
