"""Transposes around attention become its layout, and every number stays."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parents[1] / "attention"))
from attention_help import assert_close, flash, random_feeds, run

from gecompiler.backends.execution.executor import run_reference
from gecompiler.ir import Graph, parse
from gecompiler.ir.infer import infer_types
from gecompiler.passes.fingerprint import fingerprint
from gecompiler.passes.layout.attention_layout import AbsorbLayout
from gecompiler.passes.pass_base import PassContext

HEADS = "{perm = [0, 2, 1, 3]}"
B, S, T, H, G, D = 2, 5, 7, 4, 2, 8


def absorb(text: str) -> Graph:
    """Runs the pass; its count is honest, it rests, and all outputs are as they were."""
    source, graph = parse(text), parse(text)
    for each in (source, graph):
        infer_types(each)
    before = fingerprint(graph)
    changes = AbsorbLayout().run(graph, PassContext())
    graph.verify()
    assert (fingerprint(graph) == before) == (changes == 0)
    assert AbsorbLayout().run(graph, PassContext()) == 0
    assert str(parse(str(graph))) == str(graph)
    assert graph.outputs == source.outputs
    for seed in range(2):
        feeds = random_feeds(source, {"b": B, "s": S, "t": T}, seed)
        wanted = run(source, feeds)
        assert_close(wanted, run(graph, feeds))
        assert_close(wanted, run_reference(graph, feeds))
    return graph


def transposes(graph: Graph) -> int:
    return sum(op.op_type == "Transpose" for op in graph.ops)


def attention(*lines: str, mask: str = "", results: str = "%y", more: str = "") -> str:
    """Q, K and V (B, S, N, D) as inputs; the lines define %qh, %kh, %vh, and %y of %o."""
    body = "\n".join(lines)
    masked = f", {mask}" if mask else ""
    return f"""graph @g (opset 18) {{
      input %q: f32[{B}, {S}, {H}, {D}]
      input %k: f32[{B}, {T}, {G}, {D}]
      input %v: f32[{B}, {T}, {G}, {D}]
      input %cos: f32[1, 1, {S}, {D}]
      input %sin: f32[1, 1, {S}, {D}]
      input %cosk: f32[{T}, {D}]
      input %sink: f32[{T}, {D}]
      input %m: f32[{B}, 1, {S}, {T}]
      input %sinks: f32[{H}]
      input %w: f32[{D}]
      {body}
      %o = gecompiler.FlashAttention(%qh, %kh, %vh{masked}) {{
        scale = 0.5, q_heads = {H}, kv_heads = {G}, window_right = 3, masked_row = "mean"{more}}}
      {AFTER}
      return {results}
    }}"""


AFTER = f"%y = Transpose(%o) {HEADS}"
Q, K, V = (f"%{n}h = Transpose(%{n}) {HEADS}" for n in "qkv")


def plain(text: str) -> str:
    """The same without a Transpose after the attention."""
    return text.replace(AFTER, "%y = Neg(%o)")


@pytest.mark.parametrize("mask", ["", "%m", "%m, %sinks", "_, %sinks"])
def test_all_four_become_the_layout(mask: str) -> None:
    graph = absorb(attention(Q, K, V, mask=mask))
    assert [op.op_type for op in graph.ops] == ["FlashAttention"]
    assert flash(graph).attr("layout") == "BSND"
    assert flash(graph).inputs[:3] == ("q", "k", "v")


def test_the_names_that_go_are_found_as_the_attention() -> None:
    graph = absorb(attention(*(f'{n} sources ["{n[1]}_transpose"]' for n in (Q, K, V))))
    assert set(flash(graph).info.sources) > {"q_transpose", "k_transpose", "v_transpose"}


def test_only_the_output_where_a_cache_has_heads_first() -> None:
    text = attention(Q, "%kh = Concat(%past, %kn) {axis = 2}", f"%kn = Transpose(%k) {HEADS}", V)
    text = text.replace("input %w", f"input %past: f32[{B}, {G}, 0, {D}]\n input %w")
    graph = absorb(text)
    assert flash(graph).attr("layout") == "BNSD_BSND"
    assert transposes(graph) == 3


def test_inputs_alone_are_worth_a_transpose_after() -> None:
    graph = absorb(plain(attention(Q, K, V)))
    assert flash(graph).attr("layout") == "BSND"
    assert transposes(graph) == 1


def test_one_operand_alone_is_not() -> None:
    lines = (Q, "%kh = Reshape(%k, %to)", "%vh = Reshape(%v, %to)")
    text = plain(attention(*lines)).replace(
        "input %w", f"const %to: i64[4] = [{B}, {G}, {T}, {D}]\n input %w"
    )
    graph = absorb(text)
    assert flash(graph).attr("layout") is None


def test_an_output_with_other_uses_gets_its_transpose_back() -> None:
    graph = absorb(attention(Q, K, V, results="%y, %o"))
    assert flash(graph).attr("layout") == "BSND"
    assert transposes(graph) == 1
    lines = ("%qh = Neg(%q4)", "%kh = Neg(%k4)", "%vh = Neg(%v4)")
    text = attention(*lines, results="%y, %o")
    for n, heads, rows in (("q", H, S), ("k", G, T), ("v", G, T)):
        text = text.replace(
            "input %w", f"input %{n}4: f32[{B}, {heads}, {rows}, {D}]\n input %w", 1
        )
    assert flash(absorb(text)).attr("layout") is None


ROTATED = (
    f"%qt = Transpose(%q) {HEADS}",
    f"%kt = Transpose(%k) {HEADS}",
    f"%qh = gecompiler.RotaryEmbedding(%qt, %cos, %sin) {{dim = {D}}}",
    f"%kh = gecompiler.RotaryEmbedding(%kt, %cosk, %sink) {{dim = {D}}}",
    V,
)


def test_rotation_turns_with_its_tables() -> None:
    graph = absorb(attention(*ROTATED))
    assert flash(graph).attr("layout") == "BSND"
    assert transposes(graph) == 0
    rotations = [op for op in graph.ops if op.op_type == "RotaryEmbedding"]
    tables = [graph.shape(v) for op in rotations for v in op.inputs[1:]]
    assert tables == [(1, S, 1, D)] * 2 + [(T, 1, D)] * 2


def test_constant_tables_are_turned_for_good() -> None:
    text = attention(*ROTATED)
    for name, value in (("cos", 0.5), ("sin", 0.25)):
        rows = ", ".join([f"[{', '.join([str(value)] * D)}]"] * S)
        shape = f"f32[1, 1, {S}, {D}]"
        text = text.replace(f"input %{name}: {shape}", f"const %{name}: {shape} = [[[{rows}]]]")
    graph = absorb(text)
    assert [op.op_type for op in graph.ops].count("Reshape") == 2
    shapes = [c.type.shape for c in graph.constants.values()]
    assert shapes.count((1, S, 1, D)) == 2
    assert (1, 1, S, D) not in shapes


def test_a_table_by_head_and_position_is_no_view() -> None:
    text = attention(*ROTATED).replace(f"f32[1, 1, {S}, {D}]", f"f32[1, {H}, {S}, {D}]")
    assert flash(absorb(text)).attr("layout") == "BNSD_BSND"


def test_norms_casts_slices_splits_and_joins_of_lanes() -> None:
    half = D // 2
    graph = absorb(
        attention(
            "const %at0: i64[1] = [0]",
            f"const %half: i64[1] = [{half}]",
            f"const %end: i64[1] = [{D}]",
            "const %last: i64[1] = [3]",
            f"const %halves: i64[2] = [{half}, {half}]",
            f"%q1 = Transpose(%q) {HEADS}",
            "%qh = gecompiler.RMSNorm(%q1, %w)",
            f"%k1 = Transpose(%k) {HEADS}",
            "%ka, %kb = Split(%k1, %halves) {axis = -1}",
            "%kh = Concat(%kb, %ka) {axis = 3}",
            f"%v1 = Transpose(%v) {HEADS}",
            "%va = Slice(%v1, %at0, %half, %last)",
            "%vb = Slice(%v1, %half, %end, %last)",
            "%vc = Concat(%vb, %va) {axis = -1}",
            "%vh = gecompiler.LayerNorm(%vc, %w)",
        )
    )
    assert flash(graph).attr("layout") == "BSND"
    assert transposes(graph) == 0


@pytest.mark.parametrize(
    "line",
    [
        "%kh = gecompiler.RMSNorm(%k1) {axis = 2}",
        "%kh = Softmax(%k1) {axis = 2}",
        "%kh = gecompiler.AddRMSNorm(%k1, %k1)",
    ],
)
def test_ops_that_mind_keep_their_transpose(line: str) -> None:
    graph = absorb(attention(Q, f"%k1 = Transpose(%k) {HEADS}", line, V))
    assert flash(graph).attr("layout") == "BNSD_BSND"


def test_present_keys_and_values_keep_a_transpose_of_their_own() -> None:
    graph = absorb(attention(*ROTATED, results="%y, %kh, %vh"))
    assert flash(graph).attr("layout") == "BSND"
    assert transposes(graph) == 2
    assert flash(graph).inputs[2] == "v"
    kept = {graph.producer(v).op_type for v in ("kh", "vh")}  # type: ignore[union-attr]
    assert kept == {"Transpose"}


def test_rotated_keys_with_another_reader() -> None:
    text = attention(*ROTATED, results="%y, %z").replace("return", "%z = Neg(%kh)\n return")
    graph = absorb(text)
    assert flash(graph).attr("layout") == "BSND"
    assert transposes(graph) == 1


def test_a_head_shared_by_all_needs_no_transpose() -> None:
    text = attention(
        Q,
        f"const %to: i64[4] = [{B}, 1, {T}, {D}]",
        "%kh = Reshape(%k, %to)",
        "%vh = Reshape(%v, %to)",
    )
    text = text.replace(f"{T}, {G}, {D}]", f"{T}, 1, {D}]").replace(
        f"kv_heads = {G}", "kv_heads = 1"
    )
    graph = absorb(text)
    assert flash(graph).attr("layout") == "BSND"
    assert transposes(graph) == 0


def test_keys_that_latent_attention_spreads_over_the_heads() -> None:
    text = attention(
        Q,
        f"const %one: i64[4] = [{B}, 1, {T}, {D}]",
        f"const %all: i64[4] = [{B}, {G}, {T}, {D}]",
        "%k1 = Reshape(%shared, %one)",
        "%ks = Expand(%k1, %all)",
        f"%kt = Transpose(%k) {HEADS}",
        "%kh = Concat(%kt, %ks) {axis = 3}",
        V,
    )
    text = text.replace("input %w", f"input %shared: f32[{B}, {T}, {D}]\n input %w")
    text = text.replace(
        f"input %q: f32[{B}, {S}, {H}, {D}]", f"input %q: f32[{B}, {S}, {H}, {2 * D}]"
    )
    graph = absorb(text)
    assert flash(graph).attr("layout") == "BSND"
    assert transposes(graph) == 0


@pytest.mark.parametrize(("place", "left"), [("%qh = Transpose(%q)", 3), ("%y = Transpose(%o)", 2)])
def test_what_the_user_set_apart_stays(place: str, left: int) -> None:
    text = attention(Q, K, V).replace(f"{place} {HEADS}", f'{place} {HEADS} label "a"')
    graph = absorb(text)
    assert transposes(graph) == left
    assert [op for op in graph.ops if op.op_type == "Transpose" and op.info.label == "a"]


def test_one_label_for_all_changes_nothing() -> None:
    marked = "\n".join(
        f'{line} label "a"' if HEADS in line or "masked_row" in line else line
        for line in attention(Q, K, V).splitlines()
    )
    assert transposes(absorb(marked)) == 0


def test_a_label_of_the_attention_alone_takes_along_what_has_none() -> None:
    text = attention(Q, K, V).replace('masked_row = "mean"}', 'masked_row = "mean"} label "a"')
    graph = absorb(text)
    assert transposes(graph) == 0
    assert flash(graph).info.label == "a"
    assert flash(graph).info.sources == ("o",)


def test_a_transpose_in_an_order_of_control_stays() -> None:
    graph = parse(attention(Q, K, V))
    first = graph.producer("qh")
    assert first is not None
    graph.add_control(first.name, flash(graph).name)
    assert AbsorbLayout().run(graph, PassContext()) == 1
    graph.verify()
    assert flash(graph).attr("layout") == "BNSD_BSND"


def test_a_result_that_is_also_the_mask_is_not_turned() -> None:
    same = T
    text = attention(
        f"%qh = Transpose(%q) {HEADS}",
        f"%k1 = Transpose(%k) {HEADS}",
        "%kh = gecompiler.RMSNorm(%k1, %w)",
        V,
        mask="%kh",
    )
    text = text.replace(f"[{B}, {S}, {H}, {D}]", f"[{B}, {T}, {G}, {T}]").replace(
        f"[{B}, {T}, {G}, {D}]", f"[{B}, {T}, {G}, {T}]"
    )
    text = text.replace(f"%w: f32[{D}]", f"%w: f32[{same}]").replace(
        f"q_heads = {H}", f"q_heads = {G}"
    )
    graph = absorb(text)
    assert flash(graph).attr("layout") == "BNSD_BSND"


def test_two_attentions_of_the_same_keys() -> None:
    text = attention(*ROTATED, results="%y, %y2")
    second = next(line for line in text.splitlines() if "FlashAttention" in line)
    tail = next(line for line in text.splitlines() if "masked_row" in line)
    more = f"{second.replace('%o =', '%o2 =')}\n{tail}\n%y2 = Transpose(%o2) {HEADS}\n return"
    graph = absorb(text.replace("return", more, 1))
    assert transposes(graph) == 0
    layouts = [op.attr("layout") for op in graph.ops if op.op_type == "FlashAttention"]
    assert layouts == ["BSND", "BSND"]


def test_symbols_are_kept() -> None:
    text = attention(Q, K, V)
    for dims, symbols in (
        (f"{B}, {S}, {H}, {D}", f"b, s, {H}, {D}"),
        (f"{B}, {T}, {G}, {D}", f"b, t, {G}, {D}"),
        (f"{B}, 1, {S}, {T}", "b, 1, s, t"),
    ):
        text = text.replace(f"f32[{dims}]", f"f32[{symbols}]")
    graph = absorb(text)
    assert flash(graph).attr("layout") == "BSND"
    assert str(graph.type("y")) == f"f32[b, s, {H}, {D}]"


def test_within_a_body() -> None:
    inner = f"""
      %qh = Transpose(%q) {HEADS}
      %o = gecompiler.FlashAttention(%qh, %qh, %qh) {{scale = 1.0, q_heads = 2, kv_heads = 2}}
      %y = Transpose(%o) {HEADS}
      return %y"""
    text = f"""graph @g (opset 18) {{
      input %c: bool[]
      input %q: f32[2, 3, 2, 4]
      %r = If(%c) {{
        then_branch = graph @a {{ outer %q
          {inner}
        }},
        else_branch = graph @b {{ outer %q
          %z = Neg(%q)
          return %z
        }}
      }}
      return %r
    }}"""
    graph = parse(text)
    assert AbsorbLayout().run(graph, PassContext()) == 1
    graph.verify()
    body = graph.ops[0].bodies[0]
    assert [op.op_type for op in body.ops] == ["FlashAttention"]


class Maker:
    """A random graph of one or two attentions with all kinds of ops before and after."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.outputs: list[str] = []
        self.heads, self.groups = self.draw.choice([(4, 2), (2, 2), (4, 1), (1, 1)])
        self.rows, self.keys = self.draw.choice([(5, 7), (1, 7), (5, 5), (1, 1)])

    def emit(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"%x{self.count} = {text}")
        return f"%x{self.count}"

    def operand(self, heads: int, rows: int, tables: str) -> str:
        source = self.emit(f"Neg(%in_{heads}_{rows})")
        if self.draw.random() < 0.1:
            return self.emit(f"Identity(%bn_{heads}_{rows})")
        value = self.emit(f"Transpose({source}) {HEADS}")
        for _ in range(self.draw.choice([0, 0, 1, 2, 3])):
            value = self.step(value, tables)
            if self.draw.random() < 0.15:
                self.outputs.append(value)
            if self.draw.random() < 0.15:
                self.outputs.append(self.emit(f"Abs({value})"))
        return value

    def step(self, value: str, tables: str) -> str:
        kind = self.draw.choice(["rotary", "norm", "split", "slice", "cast", "stop"])
        if kind == "rotary":
            return self.emit(
                f"gecompiler.RotaryEmbedding({value}, %c{tables}, %s{tables}) {{dim = {D}}}"
            )
        if kind == "norm":
            return self.emit(f"gecompiler.RMSNorm({value}, %w)")
        if kind == "split":
            self.count += 2
            a, b = f"%x{self.count - 1}", f"%x{self.count}"
            self.lines.append(f"{a}, {b} = Split({value}, %halves) {{axis = 3}}")
            return self.emit(f"Concat({b}, {a}) {{axis = -1}}")
        if kind == "slice":
            return self.emit(f"Slice({value}, %at0, %end, %last)")
        if kind == "cast":
            wide = self.emit(f"Cast({value}) {{to = 11}}")
            return self.emit(f"Cast({wide}) {{to = 1}}")
        return self.emit(f"Tanh({value})") if self.draw.random() < 0.2 else value

    def text(self) -> str:
        q = self.operand(self.heads, self.rows, "q")
        k = self.operand(self.groups, self.keys, "k")
        v = k if self.draw.random() < 0.1 else self.operand(self.groups, self.keys, "k")
        for _ in range(self.draw.choice([1, 1, 2])):
            mask = self.draw.choice(["", ", %m"])
            out = self.emit(
                f"gecompiler.FlashAttention({q}, {k}, {v}{mask}) {{scale = 0.4, "
                f"q_heads = {self.heads}, kv_heads = {self.groups}}}"
            )
            for _ in range(self.draw.choice([1, 1, 2])):
                if self.draw.random() < 0.8:
                    self.outputs.append(self.emit(f"Transpose({out}) {HEADS}"))
                else:
                    self.outputs.append(self.emit(f"Abs({out})"))
            if self.draw.random() < 0.1:
                self.outputs.append(out)
        head = [
            f"input %m: f32[1, {self.rows}, {self.keys}]",
            f"input %w: f32[{D}]",
            f"const %halves: i64[2] = [{D // 2}, {D // 2}]",
            "const %at0: i64[1] = [0]",
            f"const %end: i64[1] = [{D}]",
            "const %last: i64[1] = [3]",
        ]
        for heads, rows in dict.fromkeys(((self.heads, self.rows), (self.groups, self.keys))):
            head.append(f"input %in_{heads}_{rows}: f32[{B}, {rows}, {heads}, {D}]")
            head.append(f"input %bn_{heads}_{rows}: f32[{B}, {heads}, {rows}, {D}]")
        for tables, rows, heads in (("q", self.rows, self.heads), ("k", self.keys, self.groups)):
            shape = self.draw.choice(
                [f"{rows}, {D}", f"1, {rows}, {D}", f"{B}, 1, {rows}, {D}", f"{heads}, {rows}, {D}"]
            )
            head += [f"input %c{tables}: f32[{shape}]", f"input %s{tables}: f32[{shape}]"]
        body = "\n".join([*head, *self.lines])
        outputs = ", ".join(dict.fromkeys(self.outputs))
        return f"graph @g (opset 18) {{\n{body}\nreturn {outputs}\n}}"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000))
def test_any_surroundings(seed: int) -> None:
    text = Maker(seed).text()
    before, graph = parse(text), absorb(text)
    infer_types(before)
    assert moved(graph) <= moved(before)


def moved(graph: Graph) -> int:
    """Elements that Transposes move, but those that only rename axes."""
    shapes = [graph.shape(op.outputs[0]) for op in graph.ops if op.op_type == "Transpose"]
    known = [tuple(d for d in s if isinstance(d, int)) for s in shapes if s]
    return sum(int(np.prod(s)) for s in known if 1 not in s[1:3])
