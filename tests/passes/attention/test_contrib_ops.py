"""onnxruntime's own attention ops become FlashAttention, with onnxruntime's numbers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from attention_help import Arrays, assert_close, flash, fuse, random_feeds, run
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir import Graph, parse
from gecompiler.ir.infer import infer_types
from gecompiler.passes.attention.site import AttentionSite

SIZES = {"b": 2, "s": 5, "t": 7, "p": 3}
Q = "input %q: f32[b, s, 32]"
SELF = f"{Q} input %k: f32[b, s, 32] input %v: f32[b, s, 24]"
CROSS = f"{Q} input %k: f32[b, t, 32] input %v: f32[b, t, 24]"
HEADS = "num_heads = 4"


def graph_of(body: str, opset: int = 17) -> Graph:
    graph = parse(f"graph (opset {opset}, com.microsoft 1) {{ {body} }}")
    infer_types(graph)
    return graph


def fused(
    body: str, feeds: Arrays | None = None, *, opset: int = 17, tolerance: float = 3e-5
) -> AttentionSite:
    """Fuses, and compares numbers with onnxruntime's of the op itself."""
    source, graph = graph_of(body, opset), graph_of(body, opset)
    (site,) = fuse(graph)
    assert site.fused, site.reason
    assert not any(op.domain == "com.microsoft" for op in graph.ops)
    for seed in range(2):
        given_ = random_feeds(source, SIZES, seed) | (feeds or {})
        assert_close(run(source, given_), run(graph, given_), tolerance)
    return site


# ---------------------------------------------------------------- MultiHeadAttention


@pytest.mark.parametrize("opset", [11, 13, 17, 21, 23, 24])
@pytest.mark.parametrize("operands", [SELF, CROSS])
def test_multi_head(operands: str, opset: int) -> None:
    body = f"{operands} %o = com.microsoft.MultiHeadAttention(%q, %k, %v) {{{HEADS}}} return %o"
    site = fused(body, opset=opset)
    assert (site.q_heads, site.kv_heads, site.head_dim, site.v_head_dim) == (4, 4, 8, 6)
    assert (site.scale, site.mask) == (pytest.approx(8**-0.5), "none")


def test_scale_bias_and_causality() -> None:
    body = f"""{SELF} input %bias: f32[88]
      %o = com.microsoft.MultiHeadAttention(%q, %k, %v, %bias)
      {{{HEADS}, scale = 0.25f, unidirectional = 1}} return %o"""
    site = fused(body)
    assert (site.scale, site.mask, site.window) == (0.25, "causal", (-1, 0))


@pytest.mark.parametrize("keys", ["5", "3", "n"])
@pytest.mark.parametrize("low", ["-10000.0f", "-3.4e38f"])
def test_causality_over_another_number_of_keys(keys: str, low: str) -> None:
    """The last query sees every key, as onnxruntime has it; of equal numbers that is causality."""
    body = f"""input %q: f32[b, 3, 32] input %k: f32[b, {keys}, 32] input %v: f32[b, {keys}, 32]
      input %pad: i32[b, {keys}] %o = com.microsoft.MultiHeadAttention(%q, %k, %v, _, %pad)
      {{num_heads = 4, unidirectional = 1, mask_filter_value = {low}}} return %o"""
    graph = parse(f"graph (opset 17, com.microsoft 1) {{ {body} }}")
    source = graph.copy()
    (site,) = fuse(graph)
    assert site.fused, site.reason
    for count in (3, 5) if keys == "n" else (int(keys),):
        feeds = random_feeds(source, {"b": 2, "n": count})
        feeds["pad"][:, 0] = 1
        assert_close(run(source, feeds), run(graph, feeds))


def test_heads_first_keys() -> None:
    body = f"""{Q} input %k: f32[b, 4, t, 8] input %v: f32[b, 4, t, 8]
      %o = com.microsoft.MultiHeadAttention(%q, %k, %v) {{{HEADS}}} return %o"""
    assert fused(body).mask == "none"


@pytest.mark.parametrize(
    ("shape", "low", "tolerance", "mask"),
    [
        ("b, t", "-10000.0f", 3e-3, "additive"),
        ("b, s, t", "-10000.0f", 3e-3, "additive"),
        ("b", "-10000.0f", 3e-3, "additive"),
        ("b, t", "-3.4028235e38f", 3e-5, "padding"),
    ],
)
def test_padding_of_every_shape(shape: str, low: str, tolerance: float, mask: str) -> None:
    body = f"""{CROSS} input %m: i32[{shape}]
      %o = com.microsoft.MultiHeadAttention(%q, %k, %v, _, %m)
      {{{HEADS}, mask_filter_value = {low}}} return %o"""
    feeds = {"m": np.array([7, 4], np.int32)} if shape == "b" else None
    assert fused(body, feeds, tolerance=tolerance).mask == mask


@pytest.mark.parametrize("low", ["-10000.0f", "-3.4028235e38f"])
def test_causality_beside_padding_on_rows_without_a_key(low: str) -> None:
    body = f"""{SELF} input %m: i32[b, s]
      %o = com.microsoft.MultiHeadAttention(%q, %k, %v, _, %m)
      {{{HEADS}, unidirectional = 1, mask_filter_value = {low}}} return %o"""
    feeds = {"m": np.array([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]], np.int32)}
    fused(body, feeds, tolerance=3e-3)


@pytest.mark.parametrize("lead", ["1, 1", "1, 4", "b, 1", "b, 4"])
def test_a_bias_on_scores(lead: str) -> None:
    body = f"""{CROSS} input %a: f32[{lead}, s, t]
      %o = com.microsoft.MultiHeadAttention(%q, %k, %v, _, _, %a) {{{HEADS}}} return %o"""
    assert fused(body).mask == "additive"


def test_a_past_becomes_state() -> None:
    body = f"""{Q} input %k: f32[b, s, 32] input %v: f32[b, s, 32]
      input %pk: f32[b, 4, p, 8] input %pv: f32[b, 4, p, 8]
      %o, %nk, %nv = com.microsoft.MultiHeadAttention(%q, %k, %v, _, _, _, %pk, %pv)
      {{{HEADS}, unidirectional = 1}} return %o, %nk, %nv"""
    site = fused(body)
    assert (site.mask, site.kv_cache) == ("causal", True)
    graph = graph_of(body)
    fuse(graph)
    assert flash(graph).attr("align") == "bottom_right"
    assert [(s.input, s.output, s.axis) for s in graph.states] == [("pk", "nk", 2), ("pv", "nv", 2)]


def test_packed_projections_as_their_definition_has_them() -> None:
    packed = graph_of(
        """input %x: f32[b, s, 4, 3, 8] %o = com.microsoft.MultiHeadAttention(%x) {num_heads = 4}
        return %o"""
    )
    (site,) = fuse(packed)
    assert (site.fused, site.q_heads, site.head_dim) == (True, 4, 8)
    feeds = random_feeds(packed, SIZES)
    x = feeds["x"]
    apart = {n: x[:, :, :, i].reshape(2, 5, 32) for i, n in enumerate("qkv")}
    plain = graph_of(
        f"""{Q} input %k: f32[b, s, 32] input %v: f32[b, s, 32]
        %o = com.microsoft.MultiHeadAttention(%q, %k, %v) {{{HEADS}}} return %o"""
    )
    assert_close(run(plain, apart), run(packed, feeds))


# ---------------------------------------------------------------- Attention


PROJECTED = "input %x: f32[b, s, 12] input %w: f32[12, 88] input %bias: f32[88]"
QKV = "num_heads = 4, qkv_hidden_sizes = [32, 32, 24]"


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("opset", [11, 17, 23])
def test_attention_with_its_projections(causal: int, opset: int) -> None:
    body = f"""{PROJECTED} %o = com.microsoft.Attention(%x, %w, %bias)
      {{{QKV}, unidirectional = {causal}}} return %o"""
    site = fused(body, opset=opset, tolerance=2e-4)
    assert (site.q_heads, site.head_dim, site.v_head_dim) == (4, 8, 6)
    assert site.mask == ("causal" if causal else "none")


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        ("b, s", None),
        ("b, s, s", None),
        ("b", [5, 3]),
        ("2*b", [5, 4, 0, 2]),
    ],
)
def test_mask_index(shape: str, values: list[int] | None) -> None:
    body = f"""{PROJECTED} input %m: i32[{shape}] %o = com.microsoft.Attention(%x, %w, %bias, %m)
      {{{QKV}}} return %o"""
    feeds = {} if values is None else {"m": np.array(values, np.int32)}
    assert fused(body, feeds, tolerance=2e-2).mask == "additive"


def test_attention_behind_a_past_of_both() -> None:
    body = """input %x: f32[b, s, 12] input %w: f32[12, 96] input %bias: f32[96]
      input %past: f32[2, b, 4, p, 8] %o, %n = com.microsoft.Attention(%x, %w, %bias, _, %past)
      {num_heads = 4, unidirectional = 1} return %o, %n"""
    site = fused(body, tolerance=2e-4)
    assert (site.mask, site.kv_cache) == ("causal", True)
    graph = graph_of(body)
    fuse(graph)
    assert [(s.input, s.output, s.axis) for s in graph.states] == [("past", "n", 3)]


# ---------------------------------------------------------------- GroupQueryAttention


class Grouped:
    """One GroupQueryAttention with random attributes in a random phase of generation."""

    def __init__(self, seed: int) -> None:
        draw, numbers = random.Random(seed), np.random.default_rng(seed)
        self.draw = draw
        groups, width = draw.choice([1, 2]), 16
        heads = groups * draw.choice([1, 2, 4])
        self.phase = draw.choice(["first", "first, shared", "next", "next, shared", "chunk"])
        batch = 1 if self.phase == "chunk" else draw.choice([1, 2, 3])
        rows = 1 if self.phase.startswith("next") else draw.choice([2, 5])
        past = {"first": 0, "first, shared": 9, "next": 4, "next, shared": 6, "chunk": 4}[
            self.phase
        ]
        total = rows if self.phase.startswith("first") else past + rows
        total = draw.choice([3, past]) if self.phase == "next, shared" else total
        least = total if self.phase == "chunk" else rows if past == 0 else 1
        self.lengths = numbers.integers(least if rows == 1 else 1, total + 1, batch)
        self.lengths[0] = total
        if self.phase == "chunk":
            self.lengths[:] = total
        self.batch, self.rows = batch, rows
        b, s = ("b", "s") if draw.random() < 0.5 else (str(batch), str(rows))
        self.feeds: Arrays = {}
        self.lines: list[str] = []
        self.attrs: dict[str, Any] = {"num_heads": heads, "kv_num_heads": groups}
        self.numbers = numbers
        names = self._operands(heads, groups, past, total, width, b, s)
        operands = ", ".join(f"%{n}" if n else "_" for n in names)
        attrs = ", ".join(f"{k} = {v}{'f' * isinstance(v, float)}" for k, v in self.attrs.items())
        call = f"com.microsoft.GroupQueryAttention({operands}) {{{attrs}}}"
        lines = [*self.lines, f"%o, %nk, %nv = {call}", "return %o, %nk, %nv"]
        self.body = "\n".join(lines)

    def _operands(
        self, heads: int, groups: int, past: int, total: int, width: int, b: str, s: str
    ) -> list[str]:
        """The inputs' names."""
        batch, rows = self.batch, self.rows
        packed = self.draw.random() < 0.4
        names = [""] * 12
        columns = (heads + 2 * groups) * width if packed else heads * width
        names[0] = self._input("q", (b, s, columns), (batch, rows, columns))
        for n, name in ((1, "k"), (2, "v")):
            if not packed:
                shape = (b, s, groups * width)
                names[n] = self._input(name, shape, (batch, rows, groups * width))
        for n, name in ((3, "pk"), (4, "pv")):
            if past:
                shape = (b, groups, "p" if b == "b" else past, width)
                names[n] = self._input(name, shape, (batch, groups, past, width))
        names[5] = self._whole("lengths", (self.lengths - 1).astype(np.int32), f"{b}")
        names[6] = self._whole("total", np.array(total, np.int32), "")
        self._rotate(names, b, s)
        self._change_scores(names, heads, (s, "total_length" if b == "b" else total), total)
        while not names[-1]:
            names.pop()
        return names

    def _rotate(self, names: list[str], b: str, s: str) -> None:
        if self.draw.random() < 0.5:
            self.attrs["do_rotary"] = 1
            self.attrs["rotary_interleaved"] = self.draw.choice([0, 1])
            for n, name in ((7, "cos"), (8, "sin")):
                names[n] = self._input(name, (16, 8), (16, 8))
            if self.draw.random() < 0.4:
                names[9] = "places"
                self.lines.append(f"input %places: i64[{b}, {s}]")
                places = self.numbers.integers(0, 16, (self.batch, self.rows))
                if self.phase.startswith("first"):  # of a prompt only the first place counts
                    places[:] = places[0, 0] % 8 + np.arange(self.rows)
                self.feeds["places"] = places

    def _change_scores(
        self, names: list[str], heads: int, last: tuple[Any, Any], total: int
    ) -> None:
        draw = self.draw
        if draw.random() < 0.3:
            lead = draw.choice([1, heads])
            names[10] = self._input("bias", (1, lead, *last), (1, lead, self.rows, total))
        if draw.random() < 0.2:
            names[11] = self._input("sink", (heads,), (heads,))
        elif draw.random() < 0.2:
            self.attrs["smooth_softmax"] = 1
        for name, value in (("softcap", 3.0), ("scale", 0.2), ("local_window_size", 2)):
            if draw.random() < 0.3:
                self.attrs[name] = value

    def _input(self, name: str, shape: tuple[Any, ...], sizes: tuple[int, ...]) -> str:
        self.lines.append(f"input %{name}: f32[{', '.join(map(str, shape))}]")
        self.feeds[name] = self.numbers.standard_normal(sizes).astype(np.float32)
        return name

    def _whole(self, name: str, array: Any, shape: str) -> str:
        if self.draw.random() < 0.3:
            sizes = ", ".join(map(str, array.shape))
            self.lines.append(f"const %{name}: i32[{sizes}] = {array.tolist()}")
        else:
            self.lines.append(f"input %{name}: i32[{shape}]")
            self.feeds[name] = array
        return name

    def defined(self, outputs: Arrays) -> Arrays:
        """What the op defines of its outputs, the rest 0."""
        found: Arrays = {}
        for name, array in outputs.items():
            keep = np.zeros(array.shape, bool)
            for entry, length in enumerate(self.lengths):
                if name != "o":
                    keep[entry, :, :length] = True
                elif self.phase.startswith("first"):
                    keep[entry, :length] = True
                else:
                    keep[entry] = True
            found[name] = np.where(keep, array, 0)
        return found


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([13, 17, 21, 23, 24]))
def test_grouped_queries_in_every_phase(seed: int, opset: int) -> None:
    made = Grouped(seed)
    source, graph = graph_of(made.body, opset), graph_of(made.body, opset)
    (site,) = fuse(graph)
    assert site.fused, site.reason
    assert (site.q_heads, site.kv_heads) == (made.attrs["num_heads"], made.attrs["kv_num_heads"])
    assert site.scale == pytest.approx(made.attrs.get("scale", 0.25))
    assert_close(made.defined(run(source, made.feeds)), made.defined(run(graph, made.feeds)), 5e-5)


NEW = "input %q: f32[b, s, 64] input %k: f32[b, s, 32] input %v: f32[b, s, 32]"
LENGTHS = "input %n: i32[b] input %t: i32[]"
GROUPS = "num_heads = 4, kv_num_heads = 2"


@pytest.mark.parametrize(("window", "found"), [(-1, (-1, 0)), (3, (2, 0))])
def test_a_prompt_without_a_cache_is_plain_causality(window: int, found: tuple[int, int]) -> None:
    body = f"""{NEW} {LENGTHS} %o, %nk, %nv = com.microsoft.GroupQueryAttention(%q, %k, %v, _, _,
      %n, %t) {{{GROUPS}, local_window_size = {window}}} return %o"""
    feeds = {"n": np.array([4, 4], np.int32), "t": np.array(5, np.int32)}
    site = fused(body, feeds)
    assert (site.window, site.kv_heads) == (found, 2)


def test_a_cache_of_known_room_is_written_in_place() -> None:
    body = f"""input %q: f32[b, 1, 64] input %k: f32[b, 1, 32] input %v: f32[b, 1, 32]
      input %n: i32[b] const %t: i32[] = 8
      input %pk: f32[b, 2, 16, 16] input %pv: f32[b, 2, 16, 16]
      %o, %nk, %nv = com.microsoft.GroupQueryAttention(%q, %k, %v, %pk, %pv, %n, %t)
      {{{GROUPS}}} return %o, %nk, %nv"""
    for opset, writer in ((17, "ScatterElements"), (24, "TensorScatter")):
        graph = graph_of(body, opset)
        (site,) = fuse(graph)
        assert (site.mask, site.kv_cache) == ("padding", True)
        assert [op.op_type for op in graph.ops].count(writer) == 2
        assert not any(
            op.is_("Concat") and len(graph.shape(op.outputs[0])) == 4 for op in graph.ops
        )
        assert {s.axis for s in graph.states} == {None}


REFUSED = [
    (
        f"{SELF} %o, _, _, %s = com.microsoft.MultiHeadAttention(%q, %k, %v) {{{HEADS}}} "
        "return %o, %s",
        "(com.microsoft.MultiHeadAttention) hands out its scores as 's'",
    ),
    (
        f"{SELF} input %m: i32[b, u] %o = com.microsoft.MultiHeadAttention(%q, %k, %v, _, %m) "
        f"{{{HEADS}}} return %o",
        "has a mask 'm' of shape",
    ),
    (
        f"{PROJECTED} %o = com.microsoft.Attention(%x, %w, %bias) {{{QKV}, do_rotary = 1}} "
        "return %o",
        "rotates Q and K by angles of its own",
    ),
    (
        f"{NEW} {LENGTHS} %o, %nk, %nv = com.microsoft.GroupQueryAttention(%q, %k, %v, _, _, %n, "
        f"%t) {{{GROUPS}, do_rotary = 1}} return %o",
        "rotates without tables",
    ),
    (
        "input %q: f32[n, 32] input %k: f32[n, 32] input %v: f32[n, 32] input %o: i32[b, s] "
        "input %c: i32[b + 1] %y = com.microsoft.PackedMultiHeadAttention(%q, %k, %v, _, %o, %c) "
        f"{{{HEADS}}} return %y",
        "without padding",
    ),
]


@pytest.mark.parametrize(("body", "reason"), REFUSED, ids=[r[1] for r in REFUSED])
def test_what_cannot_be_meant_is_refused_with_the_node(body: str, reason: str) -> None:
    graph = graph_of(body)
    (site,) = fuse(graph)
    assert not site.fused
    assert reason in site.reason


@pytest.mark.parametrize(
    ("start", "op", "end"),
    [
        (
            f"{Q} input %k: f32[b, s, 32] input %v: f32[b, s, 32]"
            " input %pk: f32[b, 4, p, 8] input %pv: f32[b, 4, p, 8]",
            "com.microsoft.MultiHeadAttention(%q, %k, %v, _, _, _, %pk, %pv)",
            "%nk, %nv",
        ),
        (
            "input %x: f32[b, s, 12] input %w: f32[12, 96] input %bias: f32[96]"
            " input %past: f32[2, b, 4, p, 8]",
            "com.microsoft.Attention(%x, %w, %bias, _, %past)",
            "%n",
        ),
    ],
)
def test_a_past_that_is_not_handed_on_is_attended_to(start: str, op: str, end: str) -> None:
    """onnxruntime joins past and new keys only where it hands them out (else reads beyond)."""
    attrs = "{num_heads = 4, unidirectional = 1}"
    handed_on = graph_of(f"{start} %o, {end} = {op} {attrs} return %o, {end}")
    kept = graph_of(f"{start} %o = {op} {attrs} return %o")
    feeds = random_feeds(handed_on, SIZES)
    expected = run(handed_on, feeds)["o"]
    (site,) = fuse(kept)
    assert (site.fused, site.mask, site.kv_cache) == (True, "causal", False)
    assert_close({"o": expected}, run(kept, feeds), 2e-4)


def test_packed_projections_with_a_bias() -> None:
    packed = graph_of(
        """input %x: f32[b, s, 4, 3, 8] input %bias: f32[96]
        %o = com.microsoft.MultiHeadAttention(%x, _, _, %bias) {num_heads = 4} return %o"""
    )
    feeds = random_feeds(packed, SIZES)
    (site,) = fuse(packed)
    assert site.fused
    x, bias = feeds["x"], feeds["bias"]
    apart = {n: x[:, :, :, i].reshape(2, 5, 32) + bias[32 * i :][:32] for i, n in enumerate("qkv")}
    plain = graph_of(
        f"""{Q} input %k: f32[b, s, 32] input %v: f32[b, s, 32]
        %o = com.microsoft.MultiHeadAttention(%q, %k, %v) {{{HEADS}}} return %o"""
    )
    assert_close(run(plain, apart), run(packed, feeds))


def test_one_new_query_of_a_decoder() -> None:
    """As MultiHeadAttention, whose numbers are compared: onnxruntime wants a shared buffer."""
    inputs = """input %q: f32[b, 1, 32] input %k: f32[b, 1, 32] input %v: f32[b, 1, 32]
      input %pk: f32[b, 4, p, 8] input %pv: f32[b, 4, p, 8]"""
    end = "%pk, %pv) {num_heads = 4} return %o, %nk, %nv"
    decoder = f"com.microsoft.DecoderMaskedMultiHeadAttention(%q, %k, %v, _, _, {end}"
    graph = graph_of(f"{inputs} %o, %nk, %nv = {decoder}")
    plain = graph_of(
        f"{inputs} %o, %nk, %nv = com.microsoft.MultiHeadAttention(%q, %k, %v, _, _, _, {end}"
    )
    (site,) = fuse(graph)
    assert (site.fused, site.q_heads, site.kv_cache) == (True, 4, True)
    assert [(s.input, s.output, s.axis) for s in graph.states] == [("pk", "nk", 2), ("pv", "nv", 2)]
    feeds = random_feeds(plain, SIZES)
    assert_close(run(plain, feeds), run(graph, feeds))


def test_a_decoder_whose_keys_are_another_models() -> None:
    body = """input %q: f32[b, 1, 32] input %k: f32[b, 4, s, 8] input %v: f32[b, 4, s, 8]
      %o = com.microsoft.DecoderMaskedMultiHeadAttention(%q, %k, %v) {num_heads = 4} return %o"""
    assert fused(body).q_heads == 4
