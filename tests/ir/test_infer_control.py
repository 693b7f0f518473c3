"""Types through If, Loop, Scan and SequenceMap."""

from __future__ import annotations

import pytest

from gecompiler.ir import Graph, ModelError, infer_types, parse


def graph_of(body: str, opset: int = 20) -> Graph:
    return parse(f"graph (opset {opset}) {{\n{body}\n}}")


def type_of(graph: Graph, value: str) -> str:
    return str(graph.type(value))


IF = """
  input %x: f32[b, 1, s]
  {condition}
  %y = If(%c) {{then_branch = graph @then {{
    outer %x
    const %axes: i64[1] = [1]
    %t = Squeeze(%x, %axes)
    return %t
  }}, else_branch = graph @else {{
    outer %x
    %e = {other}
    return %e
  }}}}
  return %y
"""


def test_branches_that_agree_give_their_type() -> None:
    text = IF.format(condition="input %c: bool[]", other="ReduceMax(%x, %a) {keepdims = 0}")
    text = text.replace("outer %x\n    %e", "outer %x\n    const %a: i64[1] = [1]\n    %e")
    graph = graph_of(text)
    infer_types(graph)
    assert type_of(graph, "y") == "f32[b, s]"


def test_branches_of_different_rank_leave_it_open() -> None:
    graph = graph_of(IF.format(condition="input %c: bool[]", other="Identity(%x)"))
    facts = infer_types(graph)
    assert type_of(graph, "y") == "f32[*]"
    assert facts.unknown == ("y",)


def test_a_known_condition_takes_its_branch() -> None:
    """TorchScript asks at run time whether an axis is 1 before it squeezes it."""
    condition = "const %one: i64[] = 1\n%n = Shape(%x)\n%d = Gather(%n, %one)\n%c = Equal(%d, %one)"
    graph = graph_of(IF.format(condition=condition, other="Identity(%x)"))
    infer_types(graph, strict=True)
    assert type_of(graph, "y") == "f32[b, s]"


def test_the_branch_not_taken_may_be_wrong() -> None:
    condition = "const %c: bool[] = true"
    graph = graph_of(IF.format(condition=condition, other="MatMul(%x, %k)").replace(
        "outer %x\n    %e", "outer %x\n    const %k: f32[2, 2] = absent\n    %e"
    ).replace("f32[b, 1, s]", "f32[b, 1, 3]"))  # fmt: skip
    infer_types(graph)
    assert type_of(graph, "y") == "f32[b, 3]"


def test_branches_of_different_element_types_are_refused() -> None:
    graph = graph_of(IF.format(condition="input %c: bool[]", other="Cast(%x) {to = 10}"))
    with pytest.raises(ModelError, match="branches") as caught:
        infer_types(graph)
    assert caught.value.where == "node 'y' (If)"


def test_bodies_get_types_and_copies_of_the_graph_do_not_change() -> None:
    graph = graph_of(IF.format(condition="input %c: bool[]", other="Identity(%x)"))
    twin = graph.copy()
    infer_types(graph)
    (then, _) = graph.op("y").bodies
    assert str(then.type("t")) == "f32[b, s]"
    assert str(then.type("x")) == "f32[b, 1, s]"
    (before, _) = twin.op("y").bodies
    assert before.type("t") is None


LOOP = """
  input %x: f32[b, 8]
  const %m: i64[] = 5
  const %go: bool[] = true
  %last, %all = Loop(%m, %go, %x) {{body = graph @body {{
    input %i: i64[]
    input %cond: bool[]
    input %state
    {step}
    %again = Identity(%cond)
    return %again, %next, %next2
  }}}}
  return %last, %all
"""


def test_a_loop_keeps_sizes_and_stacks_what_it_scans() -> None:
    graph = graph_of(LOOP.format(step="%next = Relu(%state)\n%next2 = Neg(%state)"))
    facts = infer_types(graph)
    assert type_of(graph, "last") == "f32[b, 8]"
    assert type_of(graph, "all") == "f32[5, b, 8]"
    assert not facts.fresh


def test_a_size_that_grows_is_open_after_the_loop() -> None:
    step = "%next = Concat(%state, %state) {axis = 0}\n%next2 = Neg(%state)"
    graph = graph_of(LOOP.format(step=step))
    facts = infer_types(graph)
    assert type_of(graph, "last") == "f32[last_dim0, 8]"
    assert type_of(graph, "all") == "f32[5, all_dim1, 8]"
    (body,) = graph.op("last").bodies
    assert str(body.type("state")) == "f32[state_dim0, 8]"
    assert str(body.type("next")) == "f32[2*state_dim0, 8]"
    assert {"state_dim0", "last_dim0", "all_dim1"} == set(facts.fresh)


def test_a_rank_that_grows_is_open() -> None:
    step = "const %z: i64[1] = [0]\n%next = Unsqueeze(%state, %z)\n%next2 = Neg(%state)"
    graph = graph_of(LOOP.format(step=step))
    infer_types(graph)
    assert type_of(graph, "last") == "f32[*]"


def test_a_loop_that_a_condition_ends_has_at_most_that_many_rounds() -> None:
    step = "%next = Relu(%state)\n%next2 = Neg(%state)"
    text = LOOP.format(step=step).replace("%again = Identity(%cond)", "%again = Not(%cond)")
    graph = graph_of(text)
    facts = infer_types(graph)
    assert type_of(graph, "all") == "f32[all_dim0, b, 8]"
    assert facts.fresh["all_dim0"].bound == 5


def test_loops_within_loops_end() -> None:
    text = "%n5 = Concat(%s5, %s5) {axis = 0}"
    for depth in range(4, -1, -1):
        text = f"""%n{depth} = Loop(%m, _, %s{depth}) {{body = graph @b{depth} {{
          input %i{depth + 1}: i64[]
          input %c{depth + 1}: bool[]
          input %s{depth + 1}
          {"outer %m" if depth < 4 else ""}
          {text}
          %g{depth + 1} = Identity(%c{depth + 1})
          return %g{depth + 1}, %n{depth + 1}
        }}}}"""
    graph = graph_of(f"input %s0: f32[b]\nconst %m: i64[] = 2\n{text}\nreturn %n0")
    infer_types(graph)
    assert type_of(graph, "n0") == "f32[*]"


def test_scan_slices_its_inputs_and_stacks_its_outputs() -> None:
    graph = graph_of("""
      input %h: f32[b, 8]
      input %x: f32[b, s, 8]
      %last, %all = Scan(%h, %x) {num_scan_inputs = 1, scan_input_axes = [1],
          scan_output_axes = [-1], body = graph @body {
        input %state
        input %part
        %next = Add(%state, %part)
        %out = Neg(%next)
        return %next, %out
      }}
      return %last, %all""")
    infer_types(graph)
    assert type_of(graph, "last") == "f32[b, 8]"
    assert type_of(graph, "all") == "f32[b, 8, s]"


def test_sequence_map_gives_sequences() -> None:
    graph = graph_of("""
      input %x: f32[b, 8]
      %q = SequenceConstruct(%x, %x)
      %y = SequenceMap(%q) {body = graph @body {
        input %e
        %c = Cast(%e) {to = 10}
        return %c
      }}
      return %y""")
    infer_types(graph)
    assert type_of(graph, "y") == "sequence(f16[*])"


def test_what_a_body_assumes_stays_in_it() -> None:
    graph = graph_of(
        IF.format(condition="input %c: bool[]\ninput %w: f32[k, 2]", other="Identity(%x)")
        .replace("outer %x\n    %e", "outer %x\n    outer %w\n    %e")
        .replace("Identity(%x)", "MatMul(%x, %w)")
    )
    facts = infer_types(graph)
    assert facts.assumptions == ()
