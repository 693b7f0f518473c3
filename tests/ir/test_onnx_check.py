"""Models that are not valid are refused in one message that names the node."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper, numpy_helper, parser
from onnx import TensorProto as T

from gecompiler.ir import ModelError, load_onnx
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.onnx_io.order import MAX_NESTING


def model(body: str, *, opset: int = 17, imports: str = "", ir: int = 8) -> ModelProto:
    return parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}{imports}]>\n{body}')


def refusal(source: ModelProto | str) -> str:
    with pytest.raises(ModelError) as caught:
        load_onnx(model(source) if isinstance(source, str) else source)
    assert caught.value.where.startswith("model")
    return str(caught.value)


def named(proto: ModelProto, *names: str) -> ModelProto:
    for node, name in zip(proto.graph.node, names, strict=True):
        node.name = name
    return proto


# ---------------------------------------------------------------- types and shapes


def test_a_boolean_mask_added_to_scores_names_node_inputs_and_remedy() -> None:
    proto = model("g (float[2, 3] x, bool[2, 3] mask) => (float[2, 3] y) { y = Add(x, mask) }")
    text = refusal(named(proto, "add_7"))
    assert "node 'add_7' (Add)" in text
    assert "'x' f32[2, 3], 'mask' bool[2, 3]" in text
    assert "input B is bool" in text
    assert "Where(mask, x, -inf)" in text


def test_types_of_values_in_between_are_told() -> None:
    proto = model(
        """g (float[2, 3] x, float[n, k] z) => (float[2, k] y) {
        a = Relu(x)
        b = Relu(z)
        y = MatMul(a, b)
        q = MatMul(a, a)
        }"""
    )
    text = refusal(named(proto, "r1", "r2", "good", "bad"))
    assert "node 'bad' (MatMul)" in text
    assert "'a' f32[2, 3], 'a' f32[2, 3]" in text
    assert "ncompatible dimensions" in text


def test_types_of_constants_are_told() -> None:
    proto = model("g (float[2, 3] x) => (float[a, b] y) { y = Add(x, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros(4, np.float32), "w"))
    assert "'w' f32[4]" in refusal(proto)


def test_a_stated_type_that_inference_contradicts() -> None:
    text = refusal("g (float[2, 3] x) => (int64[2, 3] y) { y = Relu(x) }")
    assert "Relu" in text
    assert "type differs" in text


def test_a_node_in_a_body_is_named_the_innermost() -> None:
    proto = model(
        """g (bool c, float[2] x) => (float[2] y) {
        y = If (c) <then_branch = t () => (float[2] a) { a = Foo2(x, c) },
                    else_branch = e () => (float[2] b) { b = Relu(x) }>
        }""".replace("Foo2", "Add")
    )
    proto.graph.node[0].name = "outer_if"
    proto.graph.node[0].attribute[0].g.node[0].name = "inner_add"
    text = refusal(proto)
    assert "node 'inner_add' (Add)" in text
    assert "'x' f32[2], 'c' bool[]" in text


def test_unnamed_nodes_are_named_by_type_and_place() -> None:
    text = refusal("g (float[2] x, bool[2] m) => (float[2] y) { z = Relu(x) y = Add(z, m) }")
    assert "node 'Add_1' (Add)" in text


# ---------------------------------------------------------------- nodes that do not fit


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("Relu(x, x)", "input size 2 not in range"),
        ("Relu <foo = 1> (x)", "Unrecognized attribute: foo"),
        ("Cast(x)", "Required attribute 'to' is missing"),
        ('Softmax <axis = "last"> (x)', "Mismatched attribute type"),
        ("Cast <to = 99> (x)", "attribute to"),
    ],
)
def test_attributes_and_counts(node: str, words: str) -> None:
    text = refusal(named(model(f"g (float[2] x) => (float[2] y) {{ y = {node} }}"), "culprit"))
    assert words.lower() in text.lower()
    assert "node 'culprit'" in text


def test_attributes_given_twice_or_of_no_kind() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = Softmax <axis = 0> (x) }")
    proto.graph.node[0].attribute.append(proto.graph.node[0].attribute[0])
    assert "attribute 'axis' twice" in refusal(proto)
    proto = model("g (float[2] x) => (float[2] y) { y = Softmax <axis = 0> (x) }")
    proto.graph.node[0].attribute[0].ClearField("type")
    assert "attribute 'axis' has the unknown kind 0" in refusal(proto)
    proto = model("g (float[2] x) => (float[2] y) { y = Softmax (x) }")
    proto.graph.node[0].attribute.add(name="axis", ref_attr_name="a", type=AttributeProto.INT)
    assert "this is no function" in refusal(proto)


# ---------------------------------------------------------------- unknown ops


def test_unknown_ops_are_gathered_over_all_nodes_with_names_and_hints() -> None:
    proto = model(
        """g (float[2] x) => (float[2] y) {
        a = Rellu(x)
        b = Rellu(a)
        c = Rellu(b)
        d = Rellu(c)
        e = Gelu(d)
        f = com.microsoft.CropAndResize(e)
        h = my.lib.Thing(f)
        y = Upsample(h)
        }""",
        imports=', "com.microsoft": 1',
    )
    text = refusal(named(proto, *"abcdefgh"))
    assert "Rellu (ai.onnx 17; 4 nodes: 'a', 'b', 'c', ...): there is no such op" in text
    assert "did you mean 'Relu'" in text
    assert "Gelu (ai.onnx 17; 1 node: 'e'): new in opset 20" in text
    assert "com.microsoft.CropAndResize (com.microsoft 1; 1 node: 'f')" in text
    assert "my.lib.Thing (no opset imported; 1 node: 'g')" in text
    assert "Upsample (ai.onnx 17; 1 node: 'h'): withdrawn in opset 10" in text


def test_of_very_many_unknown_ops_some_are_shown() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    for i in range(5000):
        proto.graph.node.add(op_type=f"Strange{i}", output=[f"v{i}"])
    text = refusal(proto)
    assert "and 4980 kinds more" in text
    assert len(text) < 5000


def test_a_contrib_op_that_has_a_standard_form_says_so() -> None:
    proto = model(
        "g (float[2] x) => (float[2] y) { y = com.microsoft.GridSample(x) }",
        imports=', "com.microsoft": 1',
    )
    assert "ai.onnx has GridSample" in refusal(proto)


def test_a_model_in_the_layout_of_one_processor_says_how_to_save_it() -> None:
    proto = model(
        "g (float[1, 8, 4, 4] x) => (float[1, 8, 4, 4] y) "
        "{ y = com.microsoft.nchwc.ReorderInput(x) }",
        imports=', "com.microsoft.nchwc": 1',
    )
    assert "ORT_ENABLE_EXTENDED" in refusal(proto)


def test_ops_of_onnxruntime_are_known_where_onnx_has_them_not_or_later() -> None:
    proto = model(
        """g (float[2, 8] x, float[8] w) => (float[2, 8] y) {
        a = SimplifiedLayerNormalization <axis = -1> (x, w)
        b = com.microsoft.SkipSimplifiedLayerNormalization (a, x, w)
        y = com.microsoft.QuickGelu (b)
        }""",
        imports=', "com.microsoft": 1',
    )
    graph = load_onnx(proto)
    assert next(iter(graph.ops)).op_type == "SimplifiedLayerNormalization"


def test_unknown_ops_in_bodies_and_functions() -> None:
    proto = model(
        """g (bool c, float[2] x) => (float[2] y) {
        z = local.f(x)
        y = If (c) <then_branch = t () => (float[2] a) { a = Nope(z) },
                    else_branch = e () => (float[2] b) { b = Relu(z) }>
        }
        <domain: "local", opset_import: ["": 17]> f (p) => (q) { q = Never(p) }""",
        imports=', "local": 1',
    )
    text = refusal(proto)
    assert "Nope" in text
    assert "'f/Never_0'" in text


def test_an_op_of_the_products_own_domain_does_not_come_in() -> None:
    proto = model(
        "g (float[2] x) => (float[2] y) { y = gecompiler.FlashAttention(x) }",
        imports=', "gecompiler": 1',
    )
    assert "gecompiler.FlashAttention" in refusal(proto)


# ---------------------------------------------------------------- names and order


def test_a_cycle_is_spelled_out() -> None:
    proto = model(
        """g (float[2] x) => (float[2] y) {
        a = Add(x, c)
        b = Relu(a)
        c = Relu(b)
        y = Relu(c)
        }"""
    )
    text = refusal(named(proto, "first", "second", "third", "out"))
    assert "cycle" in text
    for name in ("first", "second", "third"):
        assert name in text
    assert "out" not in text.split("hint")[0].split("cycle")[1]


def test_a_cycle_through_a_body() -> None:
    proto = model(
        """g (bool c, float[2] x) => (float[2] y) {
        y = If (c) <then_branch = t () => (float[2] a) { a = Relu(y) },
                    else_branch = e () => (float[2] b) { b = Relu(x) }>
        }"""
    )
    assert "cycle" in refusal(proto)


def test_a_missing_producer_names_the_reader_and_the_nearest_name() -> None:
    proto = model("g (float[2] hidden) => (float[2] y) { y = Relu(hiden) }")
    text = refusal(named(proto, "relu"))
    assert "node 'relu' (Relu)" in text
    assert "'hiden'" in text
    assert "did you mean 'hidden'" in text


def test_a_missing_producer_within_a_body() -> None:
    proto = model(
        """g (bool c, float[2] x) => (float[2] y) {
        y = If (c) <then_branch = t () => (float[2] a) { a = Relu(nothing) },
                    else_branch = e () => (float[2] b) { b = Relu(x) }>
        }"""
    )
    text = refusal(proto)
    assert "body 'then_branch'" in text
    assert "'nothing'" in text


def test_duplicate_producers_name_both() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = Relu(x) y = Abs(x) }")
    text = refusal(named(proto, "one", "two"))
    assert "node 'one' (Relu)" in text
    assert "node 'two' (Abs)" in text
    assert "an input and by node" in refusal("g (float[2] x) => (float[2] x) { x = Relu(x) }")


def test_outputs_that_nothing_makes_and_inputs_without_names_or_types() -> None:
    proto = model("g (float[2] x) => (float[2] y) { z = Relu(x) }")
    assert "output 'y' is made by nothing" in refusal(proto)
    proto = model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    proto.graph.input.add()
    assert "an input has no name" in refusal(proto)
    proto.graph.input[1].name = "untyped"
    text = refusal(proto)
    assert "'untyped'" in text
    assert "no type" in text


def test_nodes_out_of_order_are_sorted_with_a_warning() -> None:
    proto = model(
        """g (float[2] x) => (float[2] y) {
        y = Relu(b)
        b = Abs(a)
        a = Neg(x)
        }"""
    )
    warnings = Diagnostics()
    graph = load_onnx(proto, diagnostics=warnings)
    assert [op.op_type for op in graph.ops] == ["Neg", "Abs", "Relu"]
    assert [w.code for w in warnings] == ["nodes-out-of-order"]


def test_negative_sizes_are_refused_and_zero_is_legal() -> None:
    proto = model("g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }")
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -3
    text = refusal(proto)
    assert "size -3 of axis 1 is negative" in text
    assert "'x'" in text
    graph = load_onnx(model("g (float[0, 3] x) => (float[0, 3] y) { y = Relu(x) }"))
    assert graph.shape("x") == (0, 3)


def test_unknown_element_types() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    proto.graph.input[0].type.tensor_type.elem_type = 77
    assert "element type 77" in refusal(proto)


def test_an_initializer_must_agree_with_the_input_of_its_name() -> None:
    proto = model("g (float[3, 4] w) => (float[3, 4] y) { y = Relu(w) }", ir=3)
    good = numpy_helper.from_array(np.zeros((3, 4), np.float32), "w")
    proto.graph.initializer.append(good)
    assert load_onnx(proto).inputs == ()
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 7
    assert "declared f32[3, 7]" in refusal(proto)


# ---------------------------------------------------------------- depth, hostile models


def nested(depth: int) -> ModelProto:
    proto = model("g (bool c, float[2] x) => (float[2] y0) { y0 = Relu(x) }")
    node = proto.graph.node[0]
    for level in range(depth):
        node.op_type, node.input[0] = "If", "c"
        bodies = []
        for branch in ("then_branch", "else_branch"):
            attr = node.attribute.add(name=branch, type=AttributeProto.GRAPH)
            attr.g.name = f"{branch}{level}"
            info = helper.make_tensor_value_info(f"{branch}{level}_out", T.FLOAT, [2])
            attr.g.output.append(info)
            attr.g.node.add(op_type="Relu", input=["x"], output=[info.name])
            bodies.append(attr.g)
        node = bodies[0].node[0]
    return proto


def test_nesting_is_bounded() -> None:
    depth = 0
    graph = load_onnx(nested(MAX_NESTING))
    while graph.ops[0].op_type == "If":
        graph = graph.ops[0].attrs["then_branch"]  # type: ignore[assignment]
        depth += 1
    assert depth == MAX_NESTING
    assert "nest more than" in refusal(nested(MAX_NESTING + 1))
    assert "nest more than" in refusal(nested(2000))


def test_a_file_that_nests_deeper_than_protobuf_reads() -> None:
    data = GraphProto(name="leaf").SerializeToString()
    for _ in range(80):
        attr = b"\x0a\x01g" + _field(6, data) + b"\xa0\x01\x05"
        node = _field(5, attr) + _field(4, b"If")
        data = _field(1, node) + _field(2, b"g")
    whole = b"\x08\x08" + _field(7, data) + _field(8, b"\x10\x11")
    with pytest.raises(ModelError, match="nest more than 30 deep"):
        load_onnx(whole)


def _field(number: int, data: bytes) -> bytes:
    size, length = len(data), b""
    while True:
        length += bytes([size & 127 | (128 if size > 127 else 0)])
        size >>= 7
        if not size:
            return bytes([number << 3 | 2]) + length + data


@pytest.mark.parametrize(
    "node",
    [
        NodeProto(op_type="Einsum", input=["x"], output=["y"]),
        NodeProto(op_type="GatherND", input=["x", "i"], output=["y"]),
    ],
    ids=["Einsum", "GatherND"],
)
def test_models_that_crash_onnx_are_refused(
    node: NodeProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    attr = {
        "Einsum": helper.make_attribute("equation", b".b1>0*=*b"),
        "GatherND": helper.make_attribute("batch_dims", -(2**31)),
    }[node.op_type]
    proto = model("g (float[3, 4] x, int64[2, 1] i) => (float[a, b] y) { y = Relu(x) }")
    proto.graph.node[0].CopyFrom(node)
    proto.graph.node[0].attribute.append(attr)
    with monkeypatch.context() as patch:
        patch.setattr("gecompiler.ir.onnx_io.sandbox.TIME_LIMIT_S", 2.0)
        refusal(proto)
    assert len(load_onnx(model("g (float[2] x) => (float[2] y) { y = Relu(x) }"))) == 1


def test_without_a_worker_the_checks_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no processes here")

    monkeypatch.setattr("gecompiler.ir.onnx_io.sandbox._Worker.start", refuse)
    text = refusal("g (float[2] x, bool[2] m) => (float[2] y) { y = Add(x, m) }")
    assert "node 'Add_0' (Add)" in text
