"""Changes to a model that stay within protobuf, and break what ONNX asks for."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

Change = Callable[[ModelProto, random.Random], None]

SIZES = (
    *(0, 1, 2, 3, -1, -2, 7, 255, 4096, 2**16, 2**24 + 1, 2**31 - 1, 2**31, 2**32, 2**40),
    *(2**61, 2**62, 2**63 - 1, -(2**31), -(2**62), -(2**63)),
)
NAMES = (
    *("", "x", "y", "a", " ", "../../etc/passwd", "/", "a/b/c", "0", "None", "__class__", "{in}"),
    *("\x1b]0;INJECTED\x07", "n\nINJECTED: line", "\r\x1b[2KINJECTED", "a\x00b", "\x9b31m", "%s%n"),
    *("\u202egnp.exe", "名前", "[red]bold[/red]", "[/]", "*", "@mb0", "x#mb1", "a" * 70_000, "="),
)
_OTHER_OPS = (
    *("Loop", "If", "Scan", "Tile", "Expand", "Range", "ConstantOfShape", "Resize", "Reshape"),
    *("Identity", "Cast", "Concat", "Split", "MatMul", "Conv", "Attention", "Softmax", "Einsum"),
    *("NonZero", "TopK", "Constant", "SequenceAt", "Optional", "StringNormalizer", "DFT", "Pad"),
    *("MaxPool", "Gather", "Slice", "Where", "Squeeze", "EyeLike", "RandomNormal", "OneHot"),
    *("LSTM", "RoiAlign", "MaxUnpool", "Col2Im", "ConvTranspose", "DepthToSpace", "SpaceToDepth"),
    *("BlackmanWindow", "MelWeightMatrix", "STFT", "Upsample", "Unique", "GridSample", "Nonsense"),
)
_ATTRS = (
    *("axis", "axes", "perm", "to", "value", "shape", "body", "then_branch", "pads", "strides"),
    *("dilations", "group", "kernel_shape", "equation", "k", "keepdims", "num_heads", "scale"),
    *("kv_num_heads", "q_num_heads", "num_scan_inputs", "mode", "dtype", "epsilon", "alpha"),
    *("auto_pad", "is_causal", "allowzero", "hidden_size", "blocksize", "num_outputs", "split"),
)


def changed(model: ModelProto, rng: random.Random) -> ModelProto:
    """The model after one to five changes."""
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        with contextlib.suppress(DecodeError):  # what nests too deep to be copied stays as it is
            rng.choice(_CHANGES)(model, rng)
    return model


def changed_within(model: ModelProto, rng: random.Random) -> ModelProto:
    """The model after changes that an importer may well let pass: names, numbers, sizes."""
    for _ in range(rng.choice((1, 2, 4))):
        rng.choice(_MILD)(model, rng)
    return model


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph and the bodies in it."""
    yield graph
    for node in graph.node:
        for attr in node.attribute:
            for body in (*([attr.g] if attr.HasField("g") else []), *attr.graphs):
                yield from graphs(body)


def _graph(model: ModelProto, rng: random.Random) -> GraphProto:
    return rng.choice(list(graphs(model.graph)))


def _node(model: ModelProto, rng: random.Random) -> NodeProto:
    found = [n for g in graphs(model.graph) for n in g.node]
    found += [n for f in model.functions for n in f.node]
    return rng.choice(found) if found else model.graph.node.add()


def _tensors(model: ModelProto) -> list[TensorProto]:
    every = list(graphs(model.graph))
    found = [t for g in every for t in g.initializer]
    return found + [a.t for g in every for n in g.node for a in n.attribute if a.HasField("t")]


def _names(model: ModelProto) -> list[str]:
    every = list(graphs(model.graph))
    found = [v for g in every for n in g.node for v in (*n.input, *n.output)]
    found += [v.name for g in every for v in (*g.input, *g.initializer, *g.output)]
    return found or ["nothing"]


def _rewire(model: ModelProto, rng: random.Random) -> None:
    """An edge from anywhere: later nodes, other graphs, itself."""
    node = _node(model, rng)
    if node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(_names(model))


def _rename_output(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice([*_names(model), *NAMES])


def _rename_everywhere(model: ModelProto, rng: random.Random) -> None:
    """A valid model with a strange name."""
    old, new = rng.choice(_names(model)), rng.choice(NAMES)
    for graph in graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
            if value.name == old:
                value.name = new
        for node in graph.node:
            node.input[:] = [new if v == old else v for v in node.input]
            node.output[:] = [new if v == old else v for v in node.output]


def _strange_labels(model: ModelProto, rng: random.Random) -> None:
    """Names that mean nothing to ONNX, and reach people."""
    where = rng.randrange(6)
    name = rng.choice(NAMES)
    if where == 0:
        model.graph.name = name
    elif where == 1:
        model.producer_name = model.producer_version = name
    elif where == 2:
        model.metadata_props.add(key=rng.choice((name, "gecompiler.scope")), value=name)
    elif where == 3:
        _node(model, rng).metadata_props.add(
            key=rng.choice(("gecompiler.scope", "gecompiler.group", "gecompiler.label", name)),
            value=rng.choice(NAMES),
        )
    elif where == 4:
        _node(model, rng).doc_string = name
    else:
        for node in model.graph.node:
            node.name = rng.choice(NAMES)


def _rename_node(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    field = rng.choice(("name", "domain", "op_type", "overload"))
    others = [getattr(n, field) for n in model.graph.node]
    setattr(node, field, rng.choice([*others, *NAMES, "com.microsoft", "own", "ai.onnx.ml"]))


def _other_op(model: ModelProto, rng: random.Random) -> None:
    _node(model, rng).op_type = rng.choice(_OTHER_OPS)


def _drop(model: ModelProto, rng: random.Random) -> None:
    graph = _graph(model, rng)
    lists = [graph.node, graph.input, graph.output, graph.initializer, graph.value_info]
    lists += [model.opset_import, model.functions]
    full = [entries for entries in lists if len(entries)]
    if full:
        entries = rng.choice(full)
        del entries[rng.randrange(len(entries))]  # type: ignore[attr-defined]


def _duplicate(model: ModelProto, rng: random.Random) -> None:
    graph = _graph(model, rng)
    lists = [graph.node, graph.input, graph.output, graph.initializer, model.functions]
    full = [entries for entries in lists if len(entries)]
    if full:
        entries = rng.choice(full)
        entries.append(rng.choice(entries))  # type: ignore[attr-defined]


def _swap_nodes(model: ModelProto, rng: random.Random) -> None:
    graph = _graph(model, rng)
    nodes = [NodeProto.FromString(n.SerializeToString()) for n in graph.node]
    rng.shuffle(nodes)
    del graph.node[:]
    graph.node.extend(nodes)


def _change_arity(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    field = rng.choice((node.input, node.output))
    match rng.randrange(4):
        case 0:
            field.append(rng.choice([*_names(model), ""]))
        case 1 if field:
            field.pop()
        case 2 if field:
            field[rng.randrange(len(field))] = ""
        case _:
            field.extend([rng.choice(_names(model))] * rng.choice((1, 5, 300)))


def _resize_value(model: ModelProto, rng: random.Random) -> None:
    graph = _graph(model, rng)
    values = [*graph.input, *graph.output, *graph.value_info]
    if not values:
        return
    tensor = rng.choice(values).type.tensor_type
    match rng.randrange(6):
        case 0:
            tensor.elem_type = rng.choice(
                (0, 1, 2, 7, 8, 9, 10, 16, 17, 23, 26, 27, 99, -1, 2**31 - 1)
            )
        case 1:
            tensor.shape.dim.add().dim_value = rng.choice(SIZES)
        case 2:
            tensor.shape.dim.add().dim_param = rng.choice(
                [*NAMES, "B", "B*B", "2*(", "B" + "+1" * 500]
            )
        case 3:
            for _ in range(rng.choice((8, 40, 2000))):
                tensor.shape.dim.add().dim_value = rng.choice((1, 1, 2, 10**6))
        case 4:
            tensor.ClearField("shape")
        case _ if tensor.shape.dim:
            rng.choice(tensor.shape.dim).dim_value = rng.choice(SIZES)


def _change_type(model: ModelProto, rng: random.Random) -> None:
    graph = _graph(model, rng)
    values = [*graph.input, *graph.output]
    if not values:
        return
    type_ = rng.choice(values).type
    for _ in range(rng.choice((1, 2, 30))):
        kind = rng.choice(("sequence_type", "optional_type"))
        inner = type_.__class__.FromString(type_.SerializeToString())
        getattr(type_, kind).elem_type.CopyFrom(inner)
    if rng.random() < 0.3:
        type_.map_type.key_type = rng.choice((1, 7, 8, 99))


def _break_tensor(model: ModelProto, rng: random.Random) -> None:
    tensors = _tensors(model)
    if not tensors:
        return
    tensor = rng.choice(tensors)
    match rng.randrange(8):
        case 0:
            tensor.dims.append(rng.choice(SIZES))
        case 1 if tensor.dims:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(SIZES)
        case 2:
            tensor.raw_data = rng.randbytes(rng.choice((0, 1, 3, 8, 64, 1000)))
        case 3:
            tensor.data_type = rng.choice((*range(28), 99, -1, 2**31 - 1))
        case 4:
            tensor.string_data.append(rng.choice((b"\xff\xfe", b"x", b"")))
        case 5:
            tensor.segment.begin, tensor.segment.end = rng.choice(SIZES), rng.choice(SIZES)
        case 6:
            del tensor.int64_data[:], tensor.float_data[:]
            tensor.ClearField("raw_data")
        case _:
            tensor.dims.extend([1] * rng.choice((1, 40, 70, 3000)))


def _change_numbers(model: ModelProto, rng: random.Random) -> None:
    """Sizes, axes, repeats and trip counts that constants state."""
    found = [t for t in _tensors(model) if t.data_type == TensorProto.INT64]
    if not found:
        return
    tensor = rng.choice(found)
    count = max(1, len(tensor.int64_data) or len(tensor.raw_data) // 8)
    tensor.ClearField("raw_data")
    tensor.int64_data[:] = [rng.choice(SIZES) for _ in range(count)]


def _break_attribute(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if node.attribute and rng.random() < 0.7:
        attr = rng.choice(node.attribute)
        if rng.random() < 0.3:
            attr.type = rng.choice(range(15))  # type: ignore[assignment]
            return
        attr.CopyFrom(_attribute(attr.name, model, rng))
    else:
        node.attribute.append(_attribute(rng.choice(_ATTRS), model, rng))


def _attribute(name: str, model: ModelProto, rng: random.Random) -> AttributeProto:
    tensor = helper.make_tensor("t", TensorProto.INT64, [1], [rng.choice(SIZES)])
    values: list[object] = [
        *(rng.choice(SIZES), rng.choice((0.0, -1.5, float("nan"), float("inf"), 1e38, 5e-324))),
        *(rng.choice((*NAMES, "ij,jk->", "...i,i->", "SAME_UPPER")), tensor, b"\xff\x00"),
        *([rng.choice(SIZES) for _ in range(rng.choice((1, 2, 4, 300)))], [0.5, float("nan")]),
        [tensor, tensor],
    ]
    if rng.random() < 0.2:
        body = GraphProto.FromString(_graph(model, rng).SerializeToString())
        return helper.make_attribute(name, rng.choice((body, [body, body])))  # type: ignore[arg-type]
    attr = helper.make_attribute(name, rng.choice(values))
    if rng.random() < 0.1:
        attr.ref_attr_name = rng.choice(("f", name, "nothing"))
    return attr


def _change_versions(model: ModelProto, rng: random.Random) -> None:
    if rng.random() < 0.3:
        model.ir_version = rng.choice((*range(1, 14), *SIZES))
    elif rng.random() < 0.7 and model.opset_import:
        rng.choice(model.opset_import).version = rng.choice((*range(5, 27), *SIZES))
    else:
        model.opset_import.add(domain=rng.choice(NAMES), version=rng.choice(SIZES))


def _nest(model: ModelProto, rng: random.Random) -> None:
    """The graph within itself, a few times over."""
    for _ in range(rng.choice((1, 3, 12, 40))):
        if model.ByteSize() > 2**17:
            return
        body = GraphProto.FromString(model.graph.SerializeToString())
        name = rng.choice(("then_branch", "body"))
        if not model.graph.node:
            return
        rng.choice(model.graph.node).attribute.append(helper.make_attribute(name, body))


def _recursive_function(model: ModelProto, rng: random.Random) -> None:
    """Functions that call each other, in a circle or to a depth."""
    count = rng.choice((1, 2, 5, 70))
    for i in range(count):
        after = (i + 1) % count if rng.random() < 0.5 else i + 1
        calls = [helper.make_node(f"f{after}", ["v"], ["w"], domain="loop")]
        calls += [helper.make_node(f"f{after}", ["w"], [f"u{k}"], domain="loop") for k in range(2)]
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("loop", 1)]
        model.functions.append(helper.make_function("loop", f"f{i}", ["v"], ["w"], calls, imports))
    model.opset_import.add(domain="loop", version=1)
    node = _node(model, rng)
    node.op_type, node.domain = "f0", "loop"


def _sparse(model: ModelProto, rng: random.Random) -> None:
    sparse = _graph(model, rng).sparse_initializer.add()
    sparse.values.CopyFrom(helper.make_tensor(rng.choice(_names(model)), 1, [2], [1.0, 2.0]))
    indices = [rng.choice((0, 1, 5, -1, 2**62)) for _ in range(2)]
    sparse.indices.CopyFrom(helper.make_tensor("i", TensorProto.INT64, [2], indices))
    sparse.dims.extend(rng.choice(((4, 3), (2**40, 2**40), (-1, 4), (0, 4), (2**62,), ())))


def _external(model: ModelProto, rng: random.Random) -> None:
    """Data elsewhere: what lies there is made by the case."""
    tensors = _tensors(model)
    if not tensors:
        return
    tensor = rng.choice(tensors)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    del tensor.float_data[:], tensor.int64_data[:], tensor.external_data[:]
    places = ("w.bin", "link.bin", "out_link.bin", "hard.bin", "fifo", "/dev/zero", "sub/w.bin")
    places += (
        "../../secret.bin",
        "/etc/passwd",
        "dirlink/secret.bin",
        ".",
        "",
        "w.bin\x00",
        "zero",
    )
    places += ("sub/../w.bin", "model.onnx", "a" * 5000, "\udcff".encode(errors="replace").decode())
    entries = {"location": rng.choice(places)}
    if rng.random() < 0.7:
        entries["offset"] = str(rng.choice((0, 4, 4096, *SIZES)))
    if rng.random() < 0.7:
        entries["length"] = rng.choice((str(rng.choice(SIZES)), "1e9", "x", "\u0664", " 4"))
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)


_CHANGES: tuple[Change, ...] = (
    *(_rewire, _rewire, _rename_output, _rename_everywhere, _rename_everywhere, _strange_labels),
    *(_rename_node, _other_op, _drop, _duplicate, _swap_nodes, _change_arity, _resize_value),
    *(_resize_value, _change_type, _break_tensor, _break_tensor, _change_numbers, _change_numbers),
    *(_change_numbers, _break_attribute, _break_attribute, _break_attribute, _change_versions),
    *(_nest, _recursive_function, _sparse, _external, _external),
)


def _change_ints(model: ModelProto, rng: random.Random) -> None:
    """Another number in an attribute that holds numbers."""
    found = [a for g in graphs(model.graph) for n in g.node for a in n.attribute]
    whole = [a for a in found if a.type in (AttributeProto.INT, AttributeProto.INTS)]
    if not whole:
        return
    attr = rng.choice(whole)
    if attr.type == AttributeProto.INT:
        attr.i = rng.choice(SIZES)
    elif attr.ints:
        attr.ints[rng.randrange(len(attr.ints))] = rng.choice((*SIZES, 0, 1, 2, 3))


def _change_one_number(model: ModelProto, rng: random.Random) -> None:
    """Another number in a constant of numbers."""
    found = [t for t in _tensors(model) if t.int64_data]
    if found:
        tensor = rng.choice(found)
        tensor.int64_data[rng.randrange(len(tensor.int64_data))] = rng.choice((*SIZES, 1, 2, 3, 4))


def _change_one_size(model: ModelProto, rng: random.Random) -> None:
    """Another size, or a name, for an axis of an input, throughout."""
    inputs = [v for v in model.graph.input if v.type.tensor_type.shape.dim]
    if not inputs:
        return
    dim = rng.choice(rng.choice(inputs).type.tensor_type.shape.dim)
    old, new = (
        dim.dim_param,
        rng.choice((0, 1, 2, 5, 2**16, 2**31, "n", "n + 1", "n*m", "\x1b[31m")),
    )
    for value in (*model.graph.input, *model.graph.output):
        for other in value.type.tensor_type.shape.dim:
            if other is dim or (old and other.dim_param == old):
                other.Clear()
                if isinstance(new, int):
                    other.dim_value = new
                else:
                    other.dim_param = new
    del model.graph.value_info[:]


def _change_floats(model: ModelProto, rng: random.Random) -> None:
    """Numbers at the limits in constants and attributes."""
    hard = (0.0, -0.0, float("nan"), float("inf"), -float("inf"), 5e-324, 1e-38, 3e38, -1.0)
    found = [t for t in _tensors(model) if t.float_data]
    if found:
        tensor = rng.choice(found)
        tensor.float_data[rng.randrange(len(tensor.float_data))] = rng.choice(hard)


_MILD: tuple[Change, ...] = (
    *(_rename_everywhere, _strange_labels, _change_ints, _change_ints, _change_one_number),
    *(_change_one_number, _change_one_size, _change_one_size, _change_floats, _swap_nodes),
)
