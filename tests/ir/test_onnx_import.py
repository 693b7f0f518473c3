"""What a model's parts become in the graph."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from gecompiler.ir import Graph, ModelError, load_onnx, symbol, tensor, to_onnx
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.onnx_io.types import MAX_DIM_TEXT
from gecompiler.ir.types import OpaqueType


def model(body: str, *, opset: int = 17, ir: int = 8, imports: str = "") -> ModelProto:
    return parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}{imports}]>\n{body}')


def load(body: str, **options: object) -> Graph:
    graph = load_onnx(model(body, **options))  # type: ignore[arg-type]
    graph.verify()
    return graph


# ---------------------------------------------------------------- types


def test_sizes_numbers_names_expressions_and_none() -> None:
    proto = model(
        "g (float[2, batch, e, f] x, float[?, 3] z) => (float[a, b, c, d] y) "
        "{ y = Relu(x) u = Relu(z) }"
    )
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    dims[2].dim_param = "2*seq + 1"
    dims[3].dim_param = "?"
    graph = load_onnx(proto)
    seq, batch = symbol("seq"), symbol("batch")
    assert graph.type("x") == tensor("f32", (2, batch, 2 * seq + 1, symbol("x_dim3")))
    assert graph.type("z") == tensor("f32", (symbol("z_dim0"), 3))


@pytest.mark.parametrize("text", ["?", "*", "-1", "None", "unk", " "])
def test_spellings_of_any_size_are_not_one_symbol(text: str) -> None:
    proto = model("g (float[a, b] x) => (float[c, d] y) { y = Relu(x) }")
    for dim in proto.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_param = text
    assert load_onnx(proto).shape("x") == (symbol("x_dim0"), symbol("x_dim1"))


def test_dims_that_would_be_costly_to_expand_are_plain_symbols() -> None:
    proto = model("g (float[a] x) => (float[b] y) { y = Relu(x) }")
    text = "*".join(["(a+b+c+d+e+f+g+h+i+j)"] * 30)
    assert len(text) > MAX_DIM_TEXT
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = text
    assert load_onnx(proto).shape("x") == (symbol(text),)


def test_stated_types_are_seeded_and_nothing_else() -> None:
    graph = load("""g (float[2, n] x) => (float[2, n] y) <float[2, n] a> {
        a = Relu(x)
        b = Relu(a)
        y = Relu(b)
    }""")
    n = symbol("n")
    assert graph.type("a") == tensor("f32", (2, n))
    assert graph.type("b") is None
    assert graph.type("y") == tensor("f32", (2, n))


def test_ranks_may_be_unknown() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.ClearField("shape")
    graph = load_onnx(proto)
    assert str(graph.type("x")) == "f32[*]"
    proto.graph.output[0].ClearField("type")
    assert load_onnx(proto).type("y") is None


def test_sequences_and_optionals_are_carried_through() -> None:
    graph = load("""g (seq(float[2, n]) s, optional(float[3]) o) => (float[2, n] y, bool h) {
        i = Constant <value_int = 0> ()
        y = SequenceAt(s, i)
        h = OptionalHasElement(o)
    }""")
    assert isinstance(graph.type("s"), OpaqueType)
    assert str(graph.type("s")) == "sequence(f32[2, n])"
    assert str(graph.type("o")) == "optional(f32[3])"


# ---------------------------------------------------------------- constants and inputs


def test_initializers_that_are_inputs_are_constants() -> None:
    text = "g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }"
    warnings = Diagnostics()
    for version, codes in ((3, []), (8, ["initializer-is-input"])):
        proto = model(text, ir=version)
        proto.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
        graph = load_onnx(proto, diagnostics=warnings)
        assert graph.inputs == ("x",)
        assert list(graph.constants) == ["w"]
        assert [w.code for w in warnings] == codes


def test_outputs_that_are_inputs_or_constants_and_one_named_twice() -> None:
    proto = model("g (float[2] x) => (float[2] x, float[2] w, float[2] y) { y = Relu(x) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    assert load_onnx(proto).outputs == ("x", "w", "y")
    proto.graph.output.append(proto.graph.output[2])
    warnings = Diagnostics()
    graph = load_onnx(proto, diagnostics=warnings)
    assert graph.outputs == ("x", "w", "y", "y_copy")
    assert [w.code for w in warnings] == ["output-twice"]
    graph.verify()


def test_training_notes_are_left_out_with_a_warning() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    proto.training_info.add()
    proto.graph.quantization_annotation.add()
    warnings = Diagnostics()
    load_onnx(proto, diagnostics=warnings)
    assert [w.code for w in warnings] == ["training-info", "quantization-annotation"]


# ---------------------------------------------------------------- ops


def test_op_names_are_unique_and_the_same_every_time() -> None:
    proto = model("""g (float[2] x) => (float[2] y) {
        a = Relu(x)
        b = Relu(a)
        c = Relu(b)
        y = Abs(c)
    }""")
    for node, name in zip(proto.graph.node, ["same", "same", "", "Relu_1"], strict=True):
        node.name = name
    graph = load_onnx(proto)
    assert [op.name for op in graph.ops] == ["same", "Relu_1_1", "Relu_2", "Relu_1"]
    assert [op.info.sources for op in graph.ops] == [("same",), ("same",), ("Relu_2",), ("Relu_1",)]


def test_optional_inputs_and_outputs_stay_left_out() -> None:
    graph = load("""g (float[2, 3] x, float hi) => (float[2, 3] y, float[2, 3] d) {
        y = Clip(x, , hi)
        d, = Dropout(y)
    }""")
    clip, dropout = graph.ops
    assert clip.inputs == ("x", "", "hi")
    assert dropout.outputs[0] == "d"


def test_attributes_become_plain_values() -> None:
    graph = load(
        """g (float[1, 4, 4, 1] x) => (float[a, b, c, d] y) {
        y = Conv <auto_pad = "SAME_UPPER", dilations = [1, 1], group = 1> (x, x)
        z = LeakyRelu <alpha = 0.5> (x)
    }"""
    )
    assert dict(graph.ops[0].attrs) == {
        "auto_pad": "SAME_UPPER",
        "dilations": (1, 1),
        "group": 1,
    }
    assert graph.ops[1].attrs["alpha"] == 0.5


def test_the_standard_domain_has_one_spelling() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    proto.graph.node[0].domain = "ai.onnx"
    proto.opset_import[0].domain = "ai.onnx"
    graph = load_onnx(proto)
    assert graph.ops[0].domain == ""
    assert graph.opsets == {"": 17}


# ---------------------------------------------------------------- subgraphs

IF = """g (bool c, float[2] x) => (float[2] y) {
    w = Abs(x)
    y = If (c) <
        then_branch = t () => (float[2] p) { p = Add(x, w) },
        else_branch = e () => (float[2] q) {
            q = If (c) <
                then_branch = t2 () => (float[2] p) { p = Neg(w) },
                else_branch = e2 () => (float[2] p) { k = Sub(w, w) p = Mul(k, w) }
            >
        }
    >
}"""


def test_bodies_take_what_they_read_from_around_them() -> None:
    graph = load(IF)
    then, other = graph.ops[1].bodies
    assert then.outer == ("x", "w")
    assert other.outer == ("c", "w")
    inner = other.ops[0].bodies
    assert [b.outer for b in inner] == [("w",), ("w",)]
    assert set(graph.captures(graph.ops[1])) == {"x", "w", "c"}
    assert graph.type("x") == then.type("x")


def test_bodies_may_shadow_names_around_them() -> None:
    graph = load("""g (bool c, float[2] x) => (float[2] y) {
        a = Abs(x)
        y = If (c) <
            then_branch = t () => (float[2] a) { a = Neg(x) },
            else_branch = e () => (float[2] x) { x = Relu(a) }
        >
    }""")
    then, other = graph.ops[1].bodies
    assert then.outer == ("x",)
    assert then.outputs == ("a",)
    assert other.outer == ("a",)
    assert other.outputs == ("x",)


def test_a_body_may_hand_on_what_is_around_it_and_name_an_output_twice() -> None:
    proto = model("""g (float[2] x) => (float[2] y, float[n, 2] s) {
        n = Constant <value_int = 3> ()
        t = Constant <value = bool {1}> ()
        y, s = Loop (n, t, x) <body = b (int64 i, bool k, float[2] v)
            => (bool k, float[2] u, float[2] u) { u = Relu(v) }>
    }""")
    graph = load_onnx(proto)
    graph.verify()
    body = graph.ops[0].bodies[0]
    assert body.outputs == ("k", "u", "u_copy")
    assert [op.op_type for op in body.ops] == ["Relu", "Identity"]


def test_unknown_sizes_in_two_bodies_are_two_symbols() -> None:
    graph = load("""g (bool c, float[n] x) => (float[m] y) {
        y = If (c) <
            then_branch = t () => (float[?] p) { p = Relu(x) },
            else_branch = e () => (float[?] p) { p = Compress(x, c) }
        >
    }""")
    then, other = graph.ops[0].bodies
    assert then.shape("p") == (symbol("If_0.then_branch.p_dim0"),)
    assert other.shape("p") == (symbol("If_0.else_branch.p_dim0"),)


def test_constants_within_bodies() -> None:
    graph = load("""g (bool c, float[2] x) => (float[2] y) {
        y = If (c) <
            then_branch = t () => (float[2] p) {
                k = Constant <value_floats = [1.0, 2.0]> ()
                p = Add(x, k)
            },
            else_branch = e () => (float[2] q) { q = Neg(x) }
        >
    }""")
    assert list(graph.ops[0].bodies[0].constants) == ["k"]


# ---------------------------------------------------------------- functions


def run(proto: ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    found: list[np.ndarray] = session.run(None, feeds)
    return found


def same_result_inlined(proto: ModelProto) -> Graph:
    graph = load_onnx(proto)
    graph.verify()
    plain = to_onnx(graph)
    assert not plain.functions
    rng = np.random.default_rng(1)
    feeds = {
        v: rng.standard_normal(graph.tensor(v).sizes).astype(graph.tensor(v).dtype.numpy)
        for v in graph.inputs
    }
    for a, b in zip(run(proto, **feeds), run(plain, **feeds), strict=True):
        np.testing.assert_array_equal(a, b)
    return graph


FUNCTIONS = """
<domain: "local", opset_import: ["": 17, "local": 1]>
outer <a, b: float = 0.25> (p, q) => (r, s) {
    t = local.inner <slope: float = @a> (p)
    u = LeakyRelu <alpha: float = @b> (q)
    r = Add(t, u)
    s = Identity(t)
}
<domain: "local", opset_import: ["": 17]>
inner <slope> (v) => (w) {
    k = Constant <value_float: float = @slope> ()
    w = Mul(v, k)
}"""


def test_functions_are_inlined_with_their_attributes() -> None:
    graph = same_result_inlined(
        model(
            """g (float[3] x, float[3] z) => (float[3] y, float[3] e) {
        a, b = local.outer <a = 3.0> (x, z)
        y, e = local.outer <a = 2.0, b = 0.5> (a, b)
        }"""
            + FUNCTIONS,
            imports=', "local": 1',
        )
    )
    assert {op.op_type for op in graph.ops} == {"Mul", "LeakyRelu", "Add", "Identity"}
    assert [op.attrs["alpha"] for op in graph.ops if op.op_type == "LeakyRelu"] == [0.25, 0.5]
    assert {op.info.sources for op in graph.ops} == {("outer_0",), ("outer_1",)}
    assert graph.outputs == ("y", "e")


def test_an_attribute_that_the_caller_leaves_out_is_left_out() -> None:
    graph = same_result_inlined(
        model(
            """g (float[3] x) => (float[3] y) { y = local.f(x) }
        <domain: "local", opset_import: ["": 17]>
        f <slope> (p) => (q) { q = LeakyRelu <alpha: float = @slope> (p) }""",
            imports=', "local": 1',
        )
    )
    assert "alpha" not in graph.ops[0].attrs


def test_function_arguments_left_out_and_outputs_not_asked_for() -> None:
    graph = load(
        """g (float[3] x) => (float[3] y) { y = local.f(x) z, = local.f(x) }
        <domain: "local", opset_import: ["": 17]>
        f (p, low, high) => (q, p2) { q = Clip(p, low, high) p2 = Neg(q) }""",
        imports=', "local": 1',
    )
    assert graph.ops[0].inputs == ("x", "", "")
    assert graph.outputs == ("y",)


def test_a_function_that_hands_an_input_on() -> None:
    proto = model(
        """g (float[3] x) => (float[3] y, float[3] z) { y, z = local.f(x) }
        <domain: "local", opset_import: ["": 17]>
        f (p) => (p, q) { q = Neg(p) }""",
        imports=', "local": 1',
    )
    graph = load_onnx(proto)
    graph.verify()
    assert graph.outputs == ("y", "z")
    assert graph.producer("y").op_type == "Identity"


def test_made_up_names_give_way_to_those_of_the_model() -> None:
    proto = model(
        """g (float[3] x) => (float[3] y) {
        a = local.f(x)
        call_t = Neg(a)
        y = Relu(call_t)
        }
        <domain: "local", opset_import: ["": 17]>
        f (p) => (q) { t = Abs(p) q = Neg(t) }""",
        imports=', "local": 1',
    )
    proto.graph.node[0].name = "call"
    proto.graph.node[1].output[0] = proto.graph.node[2].input[0] = "call/t"
    graph = same_result_inlined(proto)
    assert "call/t_1" in graph.values


def test_bodies_within_functions_read_the_callers_values() -> None:
    graph = same_result_inlined(
        model(
            """g (float[3] x, bool c) => (float[3] y) { z = Abs(x) y = local.f(z, c) }
        <domain: "local", opset_import: ["": 17]>
        f (p, cond) => (q) {
            w = Neg(p)
            q = If (cond) <
                then_branch = t () => (float[3] z) { z = Mul(p, w) },
                else_branch = e () => (float[3] z) { z = Relu(w) }
            >
        }""",
            imports=', "local": 1',
        )
    )
    then, _ = graph.ops[-1].bodies
    assert then.outer == ("z", "f_1/w")
    assert then.outputs != ("z",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            """g (float[3] x) => (float[3] y) { y = local.f(x) }
            <domain: "local", opset_import: ["local": 1]> f (p) => (q) { q = local.h(p) }
            <domain: "local", opset_import: ["local": 1]> h (p) => (q) { q = local.f(p) }""",
            "without end: local.f -> local.h -> local.f",
        ),
        (
            """g (float[3] x) => (float[3] y) { y = local.f(x) }
            <domain: "local", opset_import: ["local": 1]> f (p) => (q) { q = local.f(p) }""",
            "without end: local.f -> local.f",
        ),
        (
            """g (float[3] x) => (float[3] y) { y = local.f(x, x) }
            <domain: "local", opset_import: ["": 17]> f (p) => (q) { q = Relu(p) }""",
            "gives 2 inputs and 1 outputs to function 'local.f'",
        ),
        (
            """g (float[3] x) => (float[3] y) { y = local.f <z = 1> (x) }
            <domain: "local", opset_import: ["": 17]> f (p) => (q) { q = Relu(p) }""",
            "has no attribute 'z'",
        ),
        (
            """g (float[3] x) => (float[3] y) { y = local.f(x) }
            <domain: "local", opset_import: ["": 17]> f (p) => (q) { w = Relu(p) }""",
            "output 'q' is made by nothing",
        ),
        (
            """g (float[3] x) => (float[3] y) { y = local.f(x) }
            <domain: "local", opset_import: ["": 17]> f (p) => (q) { q = Relu(r) }""",
            "reads 'r'",
        ),
        (
            """g (float[3] x) => (float[3] y) { y = local.f(x) }
            <domain: "local", opset_import: ["": 12]>
            f (p) => (q) { k = ReduceSum <axes = [0]> (p) q = Add(p, k) }""",
            "ReduceSum differs between the two",
        ),
    ],
)
def test_functions_that_cannot_be(text: str, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_onnx(model(text, imports=', "local": 1'))
    assert words in str(caught.value)


def test_functions_of_another_opset_are_fine_where_nothing_changed() -> None:
    graph = load(
        """g (float[3] x) => (float[3] y) { y = local.f(x) }
        <domain: "local", opset_import: ["": 15]> f (p) => (q) { q = Relu(p) }""",
        imports=', "local": 1',
    )
    assert graph.opsets == {"": 17, "local": 1}


def test_a_small_file_that_spells_a_billion_ops() -> None:
    text = "g (float[3] x) => (float[3] y) { y = local.f0(x) }\n"
    for level in range(30):
        text += f"""<domain: "local", opset_import: ["": 17, "local": 1]>
            f{level} (p) => (q) {{ t = local.f{level + 1}(p) q = local.f{level + 1}(t) }}\n"""
    text += '<domain: "local", opset_import: ["": 17]> f30 (p) => (q) { q = Relu(p) }'
    with pytest.raises(ModelError, match="expand to 1073741824 ops"):
        load_onnx(model(text, imports=', "local": 1'))


def test_functions_within_functions_are_bounded() -> None:
    text = "g (float[3] x) => (float[3] y) { y = local.f0(x) }\n"
    for level in range(70):
        text += f"""<domain: "local", opset_import: ["": 17, "local": 1]>
            f{level} (p) => (q) {{ q = local.f{level + 1}(p) }}\n"""
    text += '<domain: "local", opset_import: ["": 17]> f70 (p) => (q) { q = Relu(p) }'
    with pytest.raises(ModelError, match="deep"):
        load_onnx(model(text, imports=', "local": 1'))


def test_overloads_are_told_apart() -> None:
    proto = model(
        """g (float[3] x) => (float[3] y) { a = local.f(x) y = local.f(a) }
        <domain: "local", opset_import: ["": 17]> f (p) => (q) { q = Relu(p) }
        <domain: "local", opset_import: ["": 17]> f (p) => (q) { q = Neg(p) }""",
        ir=10,
        imports=', "local": 1',
    )
    with pytest.raises(ModelError, match="defined twice"):
        load_onnx(proto)
    proto.functions[1].overload = proto.graph.node[1].overload = "second"
    assert [op.op_type for op in load_onnx(proto).ops] == ["Relu", "Neg"]


def test_graph_attributes_handed_to_a_function() -> None:
    branch = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["n"])],
        "branch",
        [],
        [helper.make_tensor_value_info("n", TensorProto.FLOAT, [3])],
    )
    proto = model(
        """g (float[3] x, bool c) => (float[3] y) { y = local.f(c) }
        <domain: "local", opset_import: ["": 17]>
        f <th> (cond) => (q) {
            q = If (cond) <then_branch: graph = @th, else_branch: graph = @th>
        }""",
        imports=', "local": 1',
    )
    proto.graph.node[0].attribute.append(helper.make_attribute("th", branch))
    graph = load_onnx(proto)
    graph.verify()
    assert [b.outer for b in graph.ops[0].bodies] == [("x",), ("x",)]
