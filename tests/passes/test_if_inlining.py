"""Branches that are known to be taken."""

from __future__ import annotations

from rewriting_help import check, kinds, rewritten


def branches(condition: str, control: str = "") -> str:
    return f"""graph @g (opset 18) {{
      input %k: bool[]
      input %x: f32[b, 4]
      const %yes: bool[] = true
      const %no: bool[] = false
      const %i0: i64[] = 0
      %v = Cos(%x)
      {condition}
      %y: f32[b, 4], %w: f32[b, 4] = If(%c) @choice {{
        then_branch = graph @t {{
          outer %x: f32[b, 4]
          outer %v: f32[b, 4]
          const %two: f32[] = 2.0
          %v_1: f32[b, 4] = Mul(%x, %two)
          return %v_1, %v
        }},
        else_branch = graph @e {{
          outer %x: f32[b, 4]
          %v_1: f32[b, 4] = Abs(%x)
          %v_2: f32[b, 4] = Neg(%v_1)
          return %v_1, %v_2
        }}
      }}
      {control}
      %z = Sin(%y) @after
      return %z, %w
    }}"""


def test_the_branch_taken_stands_in_the_graph() -> None:
    assert kinds(check(branches("%c = Identity(%yes)"), {"b": 2})) == {"Cos": 1, "Mul": 1, "Sin": 1}
    found = check(branches("%c = Identity(%no)"), {"b": 2})
    assert kinds(found) == {"Abs": 1, "Neg": 1, "Sin": 1}


def test_a_condition_that_sizes_decide_is_known() -> None:
    text = branches("%d = Shape(%x) const %i1: i64[] = 1 %n = Gather(%d, %i1) "
                    "const %four: i64[] = 4 %c = Equal(%n, %four)")  # fmt: skip
    assert "If" not in kinds(check(text, {"b": 2}))


def test_a_condition_that_is_computed_stays() -> None:
    assert "If" in kinds(check(branches("%c = Not(%k)"), {"b": 2}))


def test_an_if_held_in_an_order_stays() -> None:
    found = rewritten(branches("%c = Identity(%yes)", "control @choice -> @after"))
    assert "If" in kinds(found)


def test_bodies_are_brought_into_canonical_form() -> None:
    text = """graph @g (opset 18) {
      input %k: bool[]
      input %x: f32[b, 4]
      %y: f32[b, 4] = If(%k) {
        then_branch = graph @t {
          outer %x: f32[b, 4]
          const %one: f32[] = 1.0
          %a: f32[b, 4] = Mul(%x, %one)
          %b: f32[b, 4] = Identity(%a)
          %c: f32[b, 4] = Cos(%b)
          %dead: f32[b, 4] = Sin(%b)
          return %c
        },
        else_branch = graph @e {
          outer %x: f32[b, 4]
          %a: f32[b, 4] = Neg(%x)
          %b: f32[b, 4] = Neg(%a)
          %c: f32[b, 4] = Abs(%b)
          return %c
        }
      }
      return %y
    }"""
    (choice,) = check(text, {"b": 3}).ops
    assert [[op.op_type for op in body.ops] for body in choice.bodies] == [["Cos"], ["Abs"]]


def test_a_loop_body_keeps_its_outputs_in_order() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[2]
      const %n: i64[] = 3
      const %go: bool[] = true
      %y: f32[2], %all: f32[3, 2] = Loop(%n, %go, %x) {
        body = graph @b {
          input %i: i64[]
          input %cond: bool[]
          input %v: f32[2]
          const %one: f32[] = 1.0
          %same: bool[] = Identity(%cond)
          %w: f32[2] = Mul(%v, %one)
          %u: f32[2] = Add(%w, %one)
          %s: f32[2] = Identity(%u)
          return %same, %u, %s
        }
      }
      return %y, %all
    }"""
    (loop,) = check(text).ops
    (body,) = loop.bodies
    assert len(body.outputs) == 3
    assert kinds(body) == {"Identity": 2, "Add": 1}
