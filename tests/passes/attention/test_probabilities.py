"""What stands between softmax and product with V: the sink's column, views, and refusals."""

from __future__ import annotations

import pytest
from attention_help import check, flash, fuse

from gecompiler.ir import parse
from gecompiler.passes.attention.site import AttentionSite

SIZES = {"b": 2, "s": 3}
HEAD = """
  input %q: f32[b, 4, s, 8] input %k: f32[b, 4, 6, 8] input %v: f32[b, 4, 6, 8]
  %kt = Transpose(%k) {perm = [0, 1, 3, 2]} %m = MatMul(%q, %kt)
  const %c0: i64[1] = [0] const %c1: i64[1] = [1] const %c2: i64[1] = [2] const %c3: i64[1] = [3]
  const %c6: i64[1] = [6] const %c9: i64[1] = [9223372036854775807] const %n1: i64[1] = [-1]
  const %n6: i64[1] = [-6] const %n2: i64[1] = [-2]
  const %zero: f32[] = 0.0 const %half: f32[] = 0.5
"""
BEHIND = "%joined = Concat(%m, %sink) {axis = 3}"
BEFORE = "%joined = Concat(%sink, %m) {axis = -1}"
STORED = """const %logits: f32[1, 4, 1, 1] = [[[[0.5]], [[-1.0]], [[2.0]], [[0.0]]]]
  %ms = Shape(%m) %lead = Slice(%ms, %c0, %c3) %target = Concat(%lead, %c1) {axis = 0}
  %sink = Expand(%logits, %target)"""
GIVEN = STORED.replace(
    "const %logits: f32[1, 4, 1, 1] = [[[[0.5]], [[-1.0]], [[2.0]], [[0.0]]]]",
    "input %given: f32[4] const %four: i64[4] = [1, 4, 1, 1] %logits = Reshape(%given, %four)",
)
ONE = STORED.replace(
    "const %logits: f32[1, 4, 1, 1] = [[[[0.5]], [[-1.0]], [[2.0]], [[0.0]]]]",
    "const %logits: f32[1, 1, 1, 1] = [[[[0.75]]]] const %four: i64[4] = [1, 4, 1, 1]",
)


def sites(body: str, tail: str = "%out = MatMul(%p, %v) return %out") -> AttentionSite:
    (site,) = check(f"graph (opset 17) {{ {HEAD} {body} {tail} }}", SIZES)
    return site


def softmax(body: str) -> str:
    return f"{body} %w = Softmax(%joined) {{axis = -1}}"


FIRST_SIX = [
    "%p = Slice(%w, %c0, %c6, %c3)",
    "%p = Slice(%w, %c0, %n1, %n1)",
    "const %z: i64[1] = [-7] %p = Slice(%w, %z, %n1, %c3, %c1)",
    "const %z: i64[2] = [0, 0] const %e: i64[2] = [9223372036854775807, 6]"
    " const %a: i64[2] = [2, 3] %p = Slice(%w, %z, %e, %a)",
    "const %z: i64[2] = [6, 1] %p, %rest = Split(%w, %z) {axis = 3}",
    "const %z: i64[2] = [6, 1] %p, %rest = Split(%w, %z) {axis = -1}",
]
LAST_SIX = [
    "%p = Slice(%w, %c1, %c9, %c3)",
    "%p = Slice(%w, %n6, %c9, %n1)",
    "const %z: i64[2] = [1, 6] %rest, %p = Split(%w, %z) {axis = 3}",
]


@pytest.mark.parametrize("sink", [STORED, GIVEN, ONE], ids=["stored", "given", "one"])
@pytest.mark.parametrize(
    ("joined", "taken"),
    [*((BEHIND, taken) for taken in FIRST_SIX), *((BEFORE, taken) for taken in LAST_SIX)],
)
def test_the_column_of_a_sink_is_dropped(sink: str, joined: str, taken: str) -> None:
    body = f"{softmax(f'{sink} {joined}')} {taken}"
    assert sites(body).fused
    graph = parse(f"graph (opset 17) {{ {HEAD} {body} %out = MatMul(%p, %v) return %out }}")
    fuse(graph)
    assert graph.shape(flash(graph).inputs[4]) == (4,)


@pytest.mark.parametrize(
    ("joined", "taken"),
    [
        (BEHIND, "%p = Slice(%w, %c1, %c9, %c3)"),  # drops a key and keeps the sink
        (BEFORE, "%p = Slice(%w, %c0, %c6, %c3)"),
        (BEHIND, "const %z: i64[2] = [1, 6] %rest, %p = Split(%w, %z) {axis = 3}"),
        (BEFORE, "const %z: i64[2] = [6, 1] %p, %rest = Split(%w, %z) {axis = 3}"),
    ],
)
def test_a_column_that_is_no_sink_is_not_dropped(joined: str, taken: str) -> None:
    site = sites(f"{softmax(f'{STORED} {joined}')} {taken}")
    assert not site.fused
    assert site.reason


@pytest.mark.parametrize(
    ("taken", "value", "why"),
    [
        ("%p = Slice(%w, %c1, %c6, %c3)", "%v5", "takes a part of the probabilities"),
        ("%p = Slice(%w, %c0, %c6, %c3, %c2)", "%v3", "takes a part of the probabilities"),
        ("%p = Slice(%w, %c1, %c9, %c1)", "%v7", "takes a part of the probabilities"),
        ("const %z: i64[2] = [5, 2] %p, %x = Split(%w, %z) {axis = 3}", "%v5", "splits"),
        ("const %z: i64[2] = [3, 1] %p, %x = Split(%w, %z) {axis = 1}", "%v7", "splits"),
        ("%u = Slice(%w, %c0, %c6, %c3) %p = Slice(%u, %c1, %c9, %c3)", "%v5", "twice"),
    ],
)
def test_other_parts_of_the_probabilities_are_refused(taken: str, value: str, why: str) -> None:
    rows = {"%v5": 5, "%v3": 3, "%v7": 7}[value]
    count = 3 if value == "%v7" else 4  # heads that are left
    body = f"input {value}: f32[b, {count}, {rows}, 8] {softmax(f'{STORED} {BEHIND}')} {taken}"
    (site,) = check(
        f"graph (opset 17) {{ {HEAD} {body} %out = MatMul(%p, {value}) return %out }}", SIZES
    )
    assert not site.fused
    assert why in str(site.reason)


STEPS = [
    "%p = Identity(%w)",
    "%p = Cast(%w) {to = 1}",
    "%h = Cast(%w) {to = 11} %p = Cast(%h) {to = 1}",
    "%p = Dropout(%w)",
    "%p = Slice(%w, %c0, %c9, %c3)",
    "%p = Slice(%w, %c0, %c9)",
]


@pytest.mark.parametrize("step", STEPS)
def test_steps_that_change_nothing(step: str) -> None:
    assert sites(f"%w = Softmax(%m) {{axis = -1}} {step}").fused


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ("%i = Cast(%w) {to = 7} %p = Cast(%i) {to = 1}", "something else than numbers"),
        ("%p = Add(%w, %half)", "is no product with V"),
        ("%p = Mul(%w, %w)", "takes the probabilities twice"),
        ("%g = Greater(%w, %half) %p = Where(%g, %w, %zero)", "are used by"),
        ("input %t: bool[b, 4, s, 6] %p = Where(%t, %w, %half)", "something else than 0"),
        ("%n = IsNaN(%w) %p = Where(%n, %w, %zero)", "keeps the probabilities where they are NaN"),
        ("%n = IsNaN(%w) %o = Not(%n) %p = Where(%o, %zero, %w)", "where they are NaN"),
    ],
)
def test_steps_that_are_refused(step: str, why: str) -> None:
    site = sites(f"%w = Softmax(%m) {{axis = -1}} {step}")
    assert not site.fused
    assert why in str(site.reason)


@pytest.mark.parametrize(
    "step",
    [
        "%n = IsNaN(%w) %p = Where(%n, %zero, %w)",
        "%n = IsNaN(%w) %o = Not(%n) %p = Where(%o, %w, %zero)",
    ],
)
def test_a_guard_against_nan(step: str) -> None:
    low = "input %t: bool[b, 1, s, 6] const %low: f32[] = -inf %x = Where(%t, %m, %low)"
    body = f"{low} %w = Softmax(%x) {{axis = -1}} {step}"
    assert sites(body).fused
    graph = parse(f"graph (opset 17) {{ {HEAD} {body} %out = MatMul(%p, %v) return %out }}")
    fuse(graph)
    assert flash(graph).attr("masked_row") == "zero"


def test_probabilities_that_the_model_hands_out() -> None:
    tail = "%out = MatMul(%p, %v) return %out, %p"
    site = sites("%p = Softmax(%m) {axis = -1}", tail)
    assert "are an output of the model" in str(site.reason)


@pytest.mark.parametrize(
    "clip",
    ["%x = Clip(%m, %low)", "%x = Clip(%m, %low, %high)", "%x = Clip(%m, _, %high)"],
)
def test_scores_that_are_clipped(clip: str) -> None:
    """Numbers that no score is outside of change nothing, others are refused."""
    least = "const %low: f32[] = -3.4028234663852886e38 const %high: f32[] = 3.4028234663852886e38"
    tight = "const %low: f32[] = -1.0 const %high: f32[] = 1.0"
    for bounds in (least, tight):
        sites(f"{bounds} {clip} %p = Softmax(%x) {{axis = -1}}")


LEAST = "-3.4028234663852886e38"


@pytest.mark.parametrize(
    ("opset", "clip"),
    [
        (10, f"%x = Clip(%m) {{min = {LEAST}}}"),
        (10, f"%x = Clip(%m) {{min = {LEAST}, max = {LEAST[1:]}}}"),
        (11, f"const %low: f32[] = {LEAST} %x = Clip(%m, %low)"),
        (11, f"const %low: f32[] = {LEAST} const %high: f32[] = {LEAST[1:]}"
             " %x = Clip(%m, %low, %high)"),
        (12, f"const %low: f32[] = {LEAST} %x = Max(%m, %low)"),
    ],
)  # fmt: skip
def test_a_bound_that_no_score_is_below_by_attribute_and_by_input(opset: int, clip: str) -> None:
    body = f"{clip} %p = Softmax(%x) {{axis = 3}} %out = MatMul(%p, %v) return %out"
    (site,) = check(f"graph (opset {opset}) {{ {HEAD} {body} }}", SIZES)
    assert site.fused, site.reason
    tight = clip.replace(LEAST, "-1.0")
    (site,) = check(f"graph (opset {opset}) {{ {HEAD} {body.replace(clip, tight)} }}", SIZES)
    assert not site.fused
    assert "bounds the scores" in str(site.reason)


@pytest.mark.parametrize(
    ("logits", "shape", "fits"),
    [
        ("[[[[0.5], [0.5]], [[-1.0], [-1.0]]]]", "1, 2, 2, 1", True),
        ("[[[[0.5]], [[-1.0]]]]", "1, 2, 1, 1", True),
        ("[[[[0.5], [0.5]], [[-1.0], [2.0]]]]", "1, 2, 2, 1", False),  # another for a query
        ("[[[[0.5], [0.5]], [[0.5], [0.5]]]]", "1, 2, 2, 1", True),
    ],
)
def test_stored_sinks(logits: str, shape: str, fits: bool) -> None:
    rows = 1 if "1, 1" in shape else 2
    (site,) = check(
        f"""graph (opset 17) {{ input %q: f32[1, 2, {rows}, 8] input %k: f32[1, 2, 6, 8]
        input %v: f32[1, 2, 6, 8] %kt = Transpose(%k) {{perm = [0, 1, 3, 2]}}
        %m = MatMul(%q, %kt) const %sink: f32[{shape}] = {logits}
        %joined = Concat(%m, %sink) {{axis = 3}} %w = Softmax(%joined) {{axis = -1}}
        const %z: i64[1] = [0] const %e: i64[1] = [6] const %a: i64[1] = [3]
        %p = Slice(%w, %z, %e, %a) %out = MatMul(%p, %v) return %out }}"""
    )
    assert site.fused == fits
    assert fits or "differs between batch entries or queries" in str(site.reason)
