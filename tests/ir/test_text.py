"""The text form: exact both ways, pleasant to write, and precise about mistakes."""

from __future__ import annotations

import random
import string
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from growth import growth_of_calls, growth_of_time
from hypothesis import given, settings
from hypothesis import strategies as st

import gecompiler.ir.text as text_module
from gecompiler.ir import Constant, Graph, GraphError, Op, OpInfo, State, parse, tensor
from gecompiler.ir.dims import Dim, floordiv, maximum, symbol
from gecompiler.ir.errors import MissingDataError
from gecompiler.ir.text import TextError, print_graph
from gecompiler.ir.types import DType, OpaqueType, TensorType

# ---------------------------------------------------------------- an equality of its own


def shown(value: object) -> object:
    """An attribute or constant as plain data that compares bit by bit."""
    if isinstance(value, Graph):
        return structure(value)
    if isinstance(value, tuple):
        return tuple(map(shown, value))
    if isinstance(value, float):
        return ("float", "nan" if np.isnan(value) else value.hex())
    if isinstance(value, Constant):
        if value.data is None:
            return (value.type, None if value.source is None else value.source.describe())
        if value.type.dtype is DType.STRING:
            return (value.type, value.data.tolist())
        return (value.type, value.data.dtype, value.data.tobytes())
    return (type(value), value)


def structure(graph: Graph) -> object:
    return (
        graph.name,
        list(graph.opsets.items()),
        list(graph.metadata.items()),
        [(v, graph.type(v)) for v in (*graph.inputs, *graph.outer)],
        (graph.inputs, graph.outputs, graph.outer),
        [(name, shown(c)) for name, c in graph.constants.items()],
        [
            (
                op.name,
                op.kind,
                op.inputs,
                [(v, graph.type(v) if v else None) for v in op.outputs],
                [(k, shown(v)) for k, v in op.attrs.items()],
                op.info,
            )
            for op in graph.topological()
        ],
        graph.controls,
        graph.states,
    )


def check_round_trip(graph: Graph) -> None:
    text = str(graph)
    back = parse(text)
    assert structure(back) == structure(graph)
    assert str(back) == text


# ---------------------------------------------------------------- random graphs

names = st.one_of(
    st.sampled_from(["x", "y.1", "0", "_", "input", "return", "inf", "/m/x", "a b", "", "批", '"']),
    st.text(max_size=6),
)
words = st.one_of(st.sampled_from(["Add", "input", "graph", "label", "nan", "a.b", "."]), names)
sizes: st.SearchStrategy[Dim] = st.one_of(
    st.integers(-1, 5),
    st.builds(symbol, st.text(min_size=1, max_size=5)),
    st.sampled_from(
        [symbol("s") * 2 - 1, floordiv(symbol("odd name"), 2), maximum(symbol("a"), -symbol("b"))]
    ),
)
dtypes = st.sampled_from(list(DType))
types = st.one_of(
    st.none(),
    st.builds(TensorType, dtypes, st.none()),
    st.builds(TensorType, dtypes, st.lists(sizes, max_size=3).map(tuple)),
    st.builds(OpaqueType, st.text(max_size=5), st.binary(max_size=5)),
)
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@st.composite
def constants(draw: st.DrawFn) -> Constant:
    dtype, shape = draw(dtypes), draw(shapes)
    if draw(st.integers(0, 5)) == 0:
        return Constant.absent(TensorType(dtype, shape))
    count = int(np.prod(shape))
    if dtype is DType.STRING:
        items = draw(st.lists(st.text() | st.binary(max_size=3), min_size=count, max_size=count))
        data = np.empty(count, object)
        data[:] = items
    elif dtype is DType.BOOL or dtype.bits < 8:
        raw = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
        data = np.array(raw, np.int8).astype(dtype.numpy)
    else:
        size = count * dtype.numpy.itemsize
        data = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype.numpy)
        data = data.copy()
    return Constant(TensorType(dtype, shape), data.reshape(shape))


floats = st.floats() | st.floats(width=32)
integers = st.integers(-(2**63), 2**63 - 1)


def attributes(depth: int) -> st.SearchStrategy[Any]:
    scalars: list[st.SearchStrategy[Any]] = [
        integers,
        floats,
        st.text(max_size=5),
        st.binary(max_size=5),
        constants(),
        st.builds(OpaqueType, st.text(max_size=5), st.binary(max_size=5)),
    ]
    if depth < 2:
        scalars.append(graphs(depth + 1))
    lists = [st.lists(s, max_size=3).map(tuple) for s in scalars]
    return st.one_of(*scalars, *lists)


infos = st.builds(
    OpInfo,
    scope=st.sampled_from(["", "/model/fc"]) | names,
    group=names,
    label=st.none() | names,
    priority=st.integers(-1, 2),
    cube_cores=st.none() | st.integers(0, 3),
    vector_cores=st.none() | st.integers(0, 3),
    sources=st.lists(names, max_size=2).map(tuple),
    data_sized=st.booleans(),
    phase=st.sampled_from(("", "forward", "backward")),
)


@st.composite
def graphs(draw: st.DrawFn, depth: int = 0) -> Graph:
    graph = Graph(draw(names), {"": 17, "com.microsoft": 1})
    if draw(st.booleans()):
        graph.opsets = draw(st.dictionaries(words | st.just("opset"), st.integers(0, 30)))
    graph.metadata = draw(st.dictionaries(names, names, max_size=2))
    fresh = iter(draw(st.lists(names.filter(bool), unique=True, min_size=10, max_size=14)))
    for _ in range(draw(st.integers(0, 2))):
        graph.add_input(next(fresh), draw(types))
    for _ in range(draw(st.integers(0, 2))):
        graph.add_constant(next(fresh), draw(constants()))
    for name in draw(st.lists(names.filter(bool), unique=True, max_size=3)):
        inputs = draw(st.lists(st.sampled_from([*graph.values, ""]), max_size=3))
        outputs = tuple(next(fresh) if draw(st.booleans()) else "" for _ in range(2))
        op = Op(
            name,
            draw(words),
            tuple(inputs),
            outputs[: draw(st.integers(0, 2))],
            draw(st.dictionaries(words, attributes(depth), max_size=2)),
            draw(st.sampled_from(["", "com.microsoft", "odd one", "a.", "1"])),
            draw(st.just(OpInfo()) | infos),
        )
        graph.add_op(op, [draw(types) for _ in op.outputs])
    if graph.values:
        graph.set_outputs(draw(st.lists(st.sampled_from(graph.values), unique=True, max_size=3)))
    for before, after in zip(graph.ops, graph.ops[1:], strict=False):
        if draw(st.booleans()):
            graph.add_control(before.name, after.name)
    common = [v for v in graph.inputs if v in graph.outputs]
    if common:
        graph.set_states([State(common[0], common[0], draw(st.none() | st.integers(-2, 3)))])
    return graph


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_printing_and_parsing_are_inverse(graph: Graph) -> None:
    check_round_trip(graph)


@settings(max_examples=300, deadline=None)
@given(constants())
def test_data_keeps_every_bit(constant: Constant) -> None:
    graph = Graph()
    graph.add_constant("c", constant)
    check_round_trip(graph)


@pytest.mark.parametrize("dtype", list(DType))
def test_large_data_of_every_type(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    if dtype is DType.STRING:
        data = np.array(list(string.printable), object)
    else:
        data = rng.integers(0, 2, 100).astype(dtype.numpy)
    graph = Graph()
    graph.add_constant("c", Constant.of(data, dtype))
    check_round_trip(graph)
    assert ("base64" in str(graph)) == (dtype is not DType.STRING)


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        (DType.F16, np.array([0x7E01, 0xFE00, 0x8000], np.uint16)),
        (DType.BF16, np.array([0x7FC1, 0xFFC0, 0x8000], np.uint16)),
        (DType.F32, np.array([0x7FC00001, 0xFFC00000, 0x80000000], np.uint32)),
        (DType.F64, np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64)),
        (DType.C64, np.array([0x7FC00001, 0x80000000], np.uint32)),
        (DType.F8E5M2, np.arange(32, dtype=np.uint8) + 0xE8),
    ],
)
def test_odd_bits_survive(dtype: DType, bits: np.ndarray) -> None:
    graph = Graph()
    graph.add_constant("c", Constant.of(bits.view(dtype.numpy)))
    check_round_trip(graph)


def test_captures_and_nesting() -> None:
    text = """\
    graph @outer (opset 17) {
      input %c: bool[]
      input %x: f32[n]
      %y: f32[n] = If(%c) {then_branch = graph @then {
        outer %x: f32[n]
        outer %c: bool[]
        %t: f32[n] = If(%c) {then_branch = graph @inner {
          outer %x: f32[n]
          return %x
        }, else_branch = graph @inner2 (opset 9) {
          outer %x: f32[n]
          %z: f32[n] = Neg(%x)
          return %z
        }} scope "/deep"
        return %t
      }, else_branch = graph @else {
        outer %x: f32[n]
        return %x
      }}
      return %y
    }
    """
    graph = parse(textwrap.dedent(text))
    assert str(graph) == textwrap.dedent(text)
    assert graph.captures(graph.op("y")) == ("x", "c")
    inner = graph.op("y").bodies[0].op("t").bodies
    assert [body.opsets for body in inner] == [{"": 17}, {"": 9}]


# ---------------------------------------------------------------- writing by hand


def test_the_example_of_the_documentation() -> None:
    documentation = text_module.__doc__ or ""
    start, end = documentation.index("    graph @sample"), documentation.index("Names that")
    graph = parse(textwrap.dedent(documentation[start:end]))
    assert graph.op("/fc/MatMul").attr("alpha") == np.float32(0.1)
    assert graph.states == (State("past", "present", 1),)
    check_round_trip(graph)


def test_what_may_be_left_out() -> None:
    graph = parse("graph { input %x %y = Relu(%x) Print(%y) %a, %b = Split(%y, _) return %b, }")
    assert (graph.name, graph.opsets) == ("graph", {"": 20})
    assert [op.name for op in graph.ops] == ["y", "Print", "a"]
    assert graph.op("a").inputs == ("y", "")
    assert graph.type("y") is None
    assert graph.outputs == ("b",)


def test_names_of_ops_are_derived_around_the_written_ones() -> None:
    graph = parse("graph { input %x %y = Relu(%x) %z = Relu(%x) @y Sink(%x) Sink(%x) _ = A(%x) }")
    assert [op.name for op in graph.ops] == ["y_1", "y", "Sink", "Sink_1", "A"]
    check_round_trip(graph)


def test_ops_may_be_used_before_they_are_written() -> None:
    graph = parse("graph { input %x  %z = Neg(%y)  %y = Relu(%x)  return %z }")
    assert [op.name for op in graph.ops] == ["z", "y"]
    assert str(graph).index("%y =") < str(graph).index("%z =")


def test_a_cycle_prints_and_parses() -> None:
    text = "graph (opset 20) {\n  %a = Neg(%b)\n  %b = Neg(%a)\n  return %a\n}\n"
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-9223372036854775808", -(2**63)),
        ("1.0", 1.0),
        ("1e5", 1e5),
        ("0.1f", float(np.float32(0.1))),
        ("-inf", -np.inf),
        ("inf", np.inf),
        ("3f", 3.0),
        ('"a\\n\\u00e9"', "a\né"),
        ('b"\\x00\\n\\"z"', b'\x00\n"z'),
        ("[]", ()),
        ("[1, 2]", (1, 2)),
        ("[1, 2.5]", (1.0, 2.5)),
        ('["a", b"\\xff"]', ("a", b"\xff")),
    ],
)
def test_attributes(text: str, value: object) -> None:
    graph = parse(f"graph {{ A() {{v = {text}}} }}")
    assert shown(graph.op("A").attr("v")) == shown(value)


def test_nan_is_an_attribute_too() -> None:
    assert np.isnan(parse("graph { A() {v = nan} }").op("A").attr("v"))


@pytest.mark.parametrize(
    ("type_", "data", "expected"),
    [
        ("f32[]", "1", np.float32(1)),
        ("f32[2]", "[1, -inf]", np.array([1, -np.inf], np.float32)),
        ("f16[1, 2]", "[[0.1, 2]]", np.array([[0.1, 2]], np.float16)),
        ("i64[2, 2]", "[1, 2, 3, 4]", np.array([[1, 2], [3, 4]])),
        ("bool[2]", "[true, 0]", np.array([True, False])),
        ("c64[2]", "[(1, 2), 3]", np.array([1 + 2j, 3], np.complex64)),
        ("f32[0, 3]", "[]", np.zeros((0, 3), np.float32)),
        ("f32[2, 0]", "[[], []]", np.zeros((2, 0), np.float32)),
        ("u64[1]", "[18446744073709551615]", np.array([2**64 - 1], np.uint64)),
        ("i8[2]", 'base64 "/wE="', np.array([-1, 1], np.int8)),
    ],
)
def test_data(type_: str, data: str, expected: Any) -> None:
    array = parse(f"graph {{ const %c: {type_} = {data} }}").constants["c"].array()
    assert array.dtype == expected.dtype
    assert array.shape == expected.shape
    assert array.tolist() == expected.tolist()
    assert not array.flags.writeable


def test_external_data_stays_where_it_is() -> None:
    class File:
        def load(self, type_: TensorType) -> np.ndarray:
            raise AssertionError("printing reads no data")

        def describe(self) -> str:
            return 'weights "a".bin at byte 16'

    graph = Graph()
    graph.add_constant("w", Constant(tensor("f32", (1000, 1000)), source=File()))
    back = parse(str(graph))
    assert str(back) == str(graph)
    with pytest.raises(MissingDataError, match="at byte 16, not in the text form"):
        back.constants["w"].array()


def test_sparse_data_stays_sparse() -> None:
    graph = parse("graph { const %s: f32[3, 4] = sparse 2 [0, 7] [1.0, 2.5] }")
    dense = np.zeros((3, 4), np.float32)
    dense[0, 0], dense[1, 3] = 1, 2.5
    assert graph.constants["s"].array().tolist() == dense.tolist()
    assert "sparse 2 [0, 7] [1.0, 2.5]" in str(graph)
    check_round_trip(graph)


def test_big_data_can_be_left_out_for_people() -> None:
    graph = Graph()
    graph.constant_of("big", np.zeros(100, np.float32))
    graph.constant_of("small", np.zeros(2, np.float32))
    graph.emit("A", [], attrs={"t": Constant.of(np.zeros(100)), "n": 1})
    text = print_graph(graph, max_data_bytes=64)
    assert "const %big: f32[100] = absent // 400 bytes left out" in text
    assert "const %small: f32[2] = [0.0, 0.0]" in text
    assert not parse(text).constants["big"].has_data


# ---------------------------------------------------------------- mistakes

MISTAKES = [
    ("graph { input %x: f32[2] %y = Relu(%z) }", 1, 36, "%z is not defined here", "x, y"),
    ("graph {\n  input %x\n  input %x\n}", 3, 9, "%x is defined twice", ""),
    ("graph {\n  inptu %x\n}", 2, 3, "expected a statement or '}', found 'inptu'", "'input'"),
    ("graph { input %x: float[2] }", 1, 19, "expected a type", "known: f32"),
    ("graph { input %x: f32[2 }", 1, 25, "expected ',', found '}'", ""),
    ("graph { input %x: f32[2 +] }", 1, 26, "expected a size", ""),
    ("graph { input %x: f32[foo(n)] }", 1, 23, "no function of sizes is named 'foo'", ""),
    ("graph { %y = Relu(%y }", 1, 22, "expected ',', found '}'", ""),
    ('graph { %y = Relu("x") }', 1, 19, "expected a value such as %x, found the string 'x'", ""),
    ("graph { %a = A() @n %b = B() @n }", 1, 30, "'@n' is empty or names two ops", ""),
    ("graph { return %q }", 1, 16, "%q is not defined here", "nothing is known"),
    ("graph { input %q return %q, %q }", 1, 31, "an output is named twice", ""),
    ("graph { A() control @A -> @B }", 1, 27, "no op @B here", "known: A"),
    ("graph { A() control @A -> @A }", 1, 21, "cannot wait for itself", ""),
    ("graph { input %p state %p -> %q }", 1, 24, "must pair an input with an output", ""),
    ("graph { const %c: f32[2] = [1.0] }", 1, 28, "f32[2] has 2 elements, found 1", ""),
    ("graph { const %c: f32[2, 2] = [[1, 2], [3]] }", 1, 40, "axis 1 of f32[2, 2] has 2", ""),
    ("graph { const %c: i8[1] = [300] }", 1, 27, "300 does not lie in -128 to 127", ""),
    ("graph { const %c: i8[1] = [1.5] }", 1, 28, "expected an integer, found '1.5'", ""),
    ("graph { const %c: f16[1] = [1e9] }", 1, 28, "it cannot hold 1000000000.0", ""),
    ("graph { const %c: f64[1] = [1e999] }", 1, 29, "'1e999' is too large", ""),
    ("graph { const %c: f32[n] = absent }", 1, 19, "only numbers for sizes", ""),
    ("graph { const %c: f32[-2] = absent }", 1, 19, "no tensor has the type f32[-2]", ""),
    (f"graph {{ const %c: f32[{2**62}] = absent }}", 1, 19, "no tensor has the type", ""),
    ('graph { const %c: f32[2] = base64 "AAA" }', 1, 35, "bad base64", ""),
    ('graph { const %c: f32[2] = base64 "AAAA" }', 1, 35, "f32[2] takes 8 bytes, found 3", ""),
    ("graph { const %c: f32[2] = sparse 1 [2] [1.0] }", 1, 37, "a position lies outside", ""),
    ("graph { A() {x = 1, x = 2} }", 1, 21, "attribute 'x' is given twice", ""),
    ('graph { A() {x = [1, "a"]} }', 1, 18, "a list holds values of one kind", ""),
    ("graph { A() {x = 99999999999999999999} }", 1, 18, "does not fit in 64 bits", ""),
    ("graph { A() {x = yes} }", 1, 18, "expected a number, a string", ""),
    ("graph { A() {x = [[1]]} }", 1, 19, "expected a number, a string", ""),
    ('graph { metadata "a\\q" = "b" }', 1, 20, "bad escape in a string", "JSON"),
    ('graph { metadata "a = b }', 1, 18, "this string does not end on its line", ""),
    ('graph { A() {x = b"\\q"} }', 1, 18, "bad escape in bytes", "known escapes"),
    ("graph { % }", 1, 9, "expected a name after '%'", ""),
    ("graph { ; }", 1, 9, "unexpected character ';'", ""),
    ("graph { A()", 1, 12, "found the end of the text", ""),
    ("graph { } }", 1, 11, "expected the end of the text", ""),
    ("grpah { }", 1, 1, "expected 'graph', found 'grpah'", ""),
    ("graph { return A() }", 1, 16, "expected '}' after return", ""),
    ("graph { A() {b = graph { outer %v }} }", 1, 9, "takes %v from this graph", ""),
    ("graph (opset x) { }", 1, 14, "expected the opset's version, found 'x'", ""),
]


@pytest.mark.parametrize(("text", "line", "column", "message", "hint"), MISTAKES)
def test_mistakes_are_shown_where_they_are(
    text: str, line: int, column: int, message: str, hint: str
) -> None:
    with pytest.raises(TextError) as caught:
        parse(text, "my.txt")
    error = caught.value
    assert message in error.message
    assert (error.line, error.column) == (line, column)
    assert error.where == f"my.txt:{line}:{column}"
    assert hint in error.hint
    source, caret = error.message.split("\n")[-2:]
    assert source.strip() == text.split("\n")[line - 1].strip()[:100]
    assert caret.index("^") == source.index(text.split("\n")[line - 1]) + column - 1


def test_the_excerpt_of_a_long_line_is_cut() -> None:
    text = f'graph {{ metadata "{"a" * 5000}" = 1 }}'
    with pytest.raises(TextError) as caught:
        parse(text)
    assert max(map(len, str(caught.value).split("\n"))) < 200
    source, caret = caught.value.message.split("\n")[-2:]
    assert source[caret.index("^")] == "1"


def test_nesting_is_bounded() -> None:
    def nested(depth: int) -> str:
        return "graph { A() {b = " * depth + "graph { }" + "} }" * depth

    assert len(parse(nested(63)))
    for text in (
        nested(64),
        nested(100_000),
        "graph { const %c: f32[1] = " + "[" * 100_000,
        "graph { input %x: f32[" + "(" * 100_000,
        "graph { input %x: f32[" + "1," * 100_000 + "1] }",
        "graph { A() {x = " + "[" * 100_000,
    ):
        with pytest.raises(TextError):
            parse(text)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_damaged_text_is_refused_or_parsed_but_never_crashes(seed: int) -> None:
    rng = random.Random(seed)
    documentation = text_module.__doc__ or ""
    text = documentation[documentation.index("    graph @sample") : documentation.index("Names th")]
    for _ in range(rng.randrange(1, 4)):
        place, length = rng.randrange(len(text)), rng.randrange(3)
        piece = rng.choice(
            ["", "{", "]", '"', "%x", "-", "9", "//", "f32", "=", "b", ",", "\\", "."]
        )
        text = text[:place] + piece + text[place + length :]
    try:
        graph = parse(text)
    except GraphError:
        return
    assert str(parse(str(graph))) == str(graph)


def printing_and_parsing(count: int) -> Callable[[], object]:
    graph = Graph()
    value = graph.add_input("x", tensor("f32", (symbol("batch"), 2)))
    for i in range(count):
        value = graph.emit(
            "Add", [value, value], graph.type("x"), attrs={"axis": i}, info=OpInfo(scope=f"/m/{i}")
        )
    graph.set_outputs([value])
    return lambda: parse(str(graph))


def test_printing_and_parsing_take_work_that_grows_with_the_ops() -> None:
    assert growth_of_calls(printing_and_parsing, 100, 800) < 8 * 1.2


@pytest.mark.slow
def test_printing_and_parsing_take_time_that_grows_with_the_ops() -> None:
    assert growth_of_time(printing_and_parsing, 1_250, 10_000) < 8 * 3
