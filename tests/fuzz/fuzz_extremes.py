"""Models made to hurt: each one extreme, and none of them random."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from fuzz_case import Builder
from fuzz_onnx_cases import surroundings
from onnx import AttributeProto, ModelProto, TensorProto, helper, parser

_I64, _F32 = TensorProto.INT64, TensorProto.FLOAT
_HEAD = '<ir_version: 8, opset_import: ["": 17]>'
_LARGE = (2**31, 2**40, 2**62, 2**63 - 1)

Maker = Callable[[], "ModelProto | bytes"]


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _file(graph: bytes) -> bytes:
    """A model of opset 17 around a serialised graph."""
    return b"\x08\x08" + _field(7, graph) + _field(8, b"\x10\x11")


def deep_bodies(depth: int = 10_000) -> bytes:
    """If within If, deeper than protobuf reads."""
    graph = b""
    for _ in range(depth):
        attribute = _field(1, b"then_branch") + _field(6, graph) + b"\xa0\x01\x05"
        graph = _field(1, _field(2, b"y") + _field(4, b"If") + _field(5, attribute))
    return _file(graph)


def deep_types(depth: int = 10_000) -> bytes:
    """A sequence of sequences, deeper than protobuf reads."""
    type_ = b""
    for _ in range(depth):
        type_ = _field(4, _field(1, type_))
    return _file(_field(11, _field(1, b"x") + _field(2, type_)))


def _value(name: bytes) -> bytes:
    shape = _field(2, _field(1, b"\x08\x02"))
    return _field(1, name) + _field(2, _field(1, b"\x08\x01" + shape))


def chain(count: int = 1_000_000, op: bytes = b"Neg") -> bytes:
    """That many ops in a row."""
    nodes = (
        _field(1, _field(1, b"v%d" % i) + _field(2, b"v%d" % (i + 1)) + _field(4, op))
        for i in range(count)
    )
    ends = _field(11, _value(b"v0")) + _field(12, _value(b"v%d" % count))
    return _file(b"".join(nodes) + ends)


def many_initializers(count: int = 500_000) -> bytes:
    """That many small constants that nothing reads."""
    tensors = (
        _field(5, b"\x08\x01\x10\x01" + _field(8, b"c%d" % i) + _field(9, bytes(4)))
        for i in range(count)
    )
    return _file(b"".join(tensors) + _field(11, _value(b"v0")) + _field(12, _value(b"v0")))


def wide_op(count: int = 50_000) -> bytes:
    """An op of that many inputs, all the same."""
    node = _field(1, b"v0") * count + _field(2, b"y") + _field(4, b"Sum")
    return _file(_field(1, node) + _field(11, _value(b"v0")) + _field(12, _value(b"y")))


def _sized(text: str, **sizes: int) -> Maker:
    for name, size in sizes.items():
        text = text.replace(f"${name}", str(size))
    return lambda: parser.parse_model(f"{_HEAD} {text}")


def growing_functions(depth: int = 40) -> ModelProto:
    """Functions that call the next one twice: 2**40 ops when spelled out."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = []
    for i in range(depth):
        kind, domain = (f"f{i + 1}", "own") if i + 1 < depth else ("Neg", "")
        calls = [helper.make_node(kind, [a], [b], domain=domain) for a, b in ("xm", "my")]
        functions.append(helper.make_function("own", f"f{i}", ["x"], ["y"], calls, imports))
    graph = helper.make_graph(
        [helper.make_node("f0", ["x"], ["y"], domain="own")],
        "g",
        [helper.make_tensor_value_info("x", _F32, [2])],
        [helper.make_tensor_value_info("y", _F32, [2])],
    )
    return helper.make_model(graph, functions=functions, opset_imports=imports, ir_version=8)


def nested_loops(depth: int, trips: int) -> ModelProto:
    """Loops within each other."""
    body = "co = Identity(c{n})  w{n} = Neg(v{n})"
    text = ""
    for n in reversed(range(depth)):
        inner = text or body.format(n=n)
        if text:
            inner = f"co = Identity(c{n})  {text}"
        text = (
            (
                f"w{n - 1} = Loop<body = b{n} (int64 i{n}, bool c{n}, float[2] v{n}) => "
                f"(bool co, float[2] w{n}) {{ {inner} }}>(trips, go, v{n - 1})"
            )
            .replace("v-1", "x")
            .replace("w-1", "y")
        )
        text = text.replace("(bool co,", f"(bool co{n},").replace("co = ", f"co{n} = ", 1)
    return parser.parse_model(
        f"{_HEAD} g (float[2] x) => (float[2] y) <int64 trips = {{{trips}}}, bool go = {{1}}> "
        f"{{ {text} }}"
    )


def deep_expression(depth: int = 4000, width: int = 2) -> ModelProto:
    """Sizes that grow out of each other: a symbol doubled again and again."""
    nodes = [helper.make_node("Concat", [f"v{i}"] * width, [f"v{i + 1}"], axis=0)
             for i in range(depth)]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("v0", _F32, ["n"])],
        [helper.make_tensor_value_info(f"v{depth}", _F32, None)],
    )
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def symbol_products(depth: int = 200) -> ModelProto:
    """Sizes that are polynomials of ever more terms."""
    inputs = [
        helper.make_tensor_value_info(f"x{i}", _F32, [f"a{i}", f"b{i}"]) for i in range(depth)
    ]
    nodes = [helper.make_node("Flatten", [f"x{i}"], [f"f{i}"], axis=0) for i in range(depth)]
    nodes.append(helper.make_node("Concat", [f"f{i}" for i in range(depth)], ["y"], axis=1))
    nodes.append(helper.make_node("MatMul", ["y", "y"], ["z"]))
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("z", _F32, None)])
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def long_dim_text() -> ModelProto:
    """A size spelled as an expression of a megabyte, and a power tower."""
    model = parser.parse_model(f"{_HEAD} g (float[2] x) => (float[2] y) {{ y = Neg(x) }}")
    for text in ("(" * 500_000 + "n" + ")" * 500_000, "n^16^16", "*".join(["(n+m)"] * 30)):
        value = model.graph.value_info.add()
        value.name = "y"
        value.type.tensor_type.elem_type = 1
        value.type.tensor_type.shape.dim.add().dim_param = text
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "*".join(["(n+m)"] * 30)
    return model


def sparse(dims: list[int], indices: list[int]) -> Maker:
    """A sparse constant of that shape."""

    def make() -> ModelProto:
        model = parser.parse_model(f"{_HEAD} g (float[2] x) => (float[N] y) {{ y = Add(x, s) }}")
        found = model.graph.sparse_initializer.add()
        found.values.CopyFrom(helper.make_tensor("s", _F32, [len(indices)], [1.0] * len(indices)))
        found.indices.CopyFrom(helper.make_tensor("", _I64, [len(indices)], indices))
        found.dims.extend(dims)
        return model

    return make


def external(location: str, offset: str = "0", length: str = "", elements: int = 4) -> Maker:
    """A constant whose data is said to lie elsewhere."""

    def make() -> ModelProto:
        model = parser.parse_model(f"{_HEAD} g (float[4] x) => (float[N] y) {{ y = Add(x, w) }}")
        tensor = model.graph.initializer.add(name="w", data_type=_F32, dims=[elements])
        tensor.data_location = TensorProto.EXTERNAL
        entries = {"location": location, "offset": offset, "length": length}
        for key, value in entries.items():
            if value:
                tensor.external_data.add(key=key, value=value)
        return model

    return make


def huge_name(length: int = 50_000_000) -> ModelProto:
    """A name of many megabytes, of a value, an op and a size."""
    model = parser.parse_model(f"{_HEAD} g (float[n] x) => (float[n] y) {{ y = Neg(x) }}")
    name = "a" * length
    model.graph.node[0].name = model.graph.node[0].output[0] = model.graph.output[0].name = name
    return model


def _attribute(name: str, value: object) -> AttributeProto:
    return helper.make_attribute(name, value)


_UP = "int64[1] u = {$n}"
_ALL: dict[str, Maker] = {
    "deep-bodies": deep_bodies,
    "bodies-31": lambda: deep_bodies(31),
    "bodies-200": lambda: deep_bodies(200),
    "deep-types": deep_types,
    "types-60": lambda: deep_types(30),
    "million-ops": chain,
    "million-unknown": lambda: chain(1_000_000, b"Nothing"),
    "many-constants": many_initializers,
    "wide-op": wide_op,
    "growing-functions": growing_functions,
    "deep-expression": deep_expression,
    "long-numbers": lambda: deep_expression(50, 9000),
    "symbol-products": symbol_products,
    "long-dim-text": long_dim_text,
    "huge-name": huge_name,
    "loops-3": lambda: nested_loops(3, 2**20),
    "loops-8": lambda: nested_loops(8, 2**40),
    **{f"loop-{n}": (lambda n=n: nested_loops(1, n)) for n in (10**7, *_LARGE)},
    **{
        f"{name}-{size}": _sized(text, n=size)
        for size in _LARGE
        for name, text in {
            "tile": f"g (float[1] x) => (float[N] y) <{_UP}> {{ y = Tile(x, u) }}",
            "expand": f"g (float[1] x) => (float[N] y) <{_UP}> {{ y = Expand(x, u) }}",
            "fill": f"g (float[1] x) => (float[N] y) <{_UP}> {{ y = ConstantOfShape(u) }}",
            "fill-fold": f"g (float[1] x) => (float[N] y) <{_UP}> "
            "{ f = ConstantOfShape(u)  k = Add(f, f)  y = Add(k, x) }",
            "range": "g (int64[1] x) => (int64[N] y) <int64 a = {0}, int64 u = {$n}, int64 b = {1}>"
            " { r = Range(a, u, b)  y = Add(r, x) }",
            "pad": "g (float[1] x) => (float[N] y) <int64[2] u = {0, $n}> { y = Pad(x, u) }",
            "pad-attr": "g (float[1] x) => (float[N] y) <int64[2] u = {$n, $n}> { y = Pad(x, u) }",
            "resize": "g (float[1, 1, 1] x) => (float[1, 1, N] y) <int64[3] u = {1, 1, $n}>"
            " { y = Resize(x, , , u) }",
            "onehot": "g (int64[1] x) => (float[1, N] y) <int64 u = {$n}, float[2] v = {0, 1}>"
            " { y = OneHot(x, u, v) }",
            "reshape": f"g (float[1] x) => (float[N] y) <{_UP}> {{ y = Reshape(x, u) }}",
            "eye": "g (float[1] x) => (float[N, M] y) <int64[2] u = {$n, $n}>"
            " { z = ConstantOfShape(u)  e = EyeLike(z)  y = Identity(e) }",
            "input": "g (float[$n] x) => (float[N] y) { y = Neg(x) }",
            "outer": "g (float[$n, 1] x, float[1, $n] z) => (float[N, M] y) { y = MatMul(x, z) }",
            "topk": f"g (float[4] x) => (float[N] y) <{_UP}> {{ y, i = TopK(x, u) }}",
            "split": "g (float[4] x) => (float[N] y) <int64[2] u = {$n, 1}>"
            " { y, z = Split<axis = 0>(x, u) }",
            "conv": "g (float[1, 1, 8] x, float[1, 1, 2] w) => (float[1, 1, N] y)"
            " { y = Conv<pads = [$n, $n]>(x, w) }",
            "dilated": "g (float[1, 1, 8] x, float[1, 1, 2] w) => (float[1, 1, N] y)"
            " { y = Conv<dilations = [$n]>(x, w) }",
            "pool": "g (float[1, 1, 8] x) => (float[1, 1, N] y)"
            " { y = MaxPool<kernel_shape = [$n], pads = [1, 1]>(x) }",
            "window": "g (float[1] x) => (float[N] y) <int64 u = {$n}>"
            " { w = HannWindow(u)  y = Add(w, x) }",
            "random": "g (float[1] x) => (float[N] y)"
            " { r = RandomNormal<shape = [$n]>()  y = Add(r, x) }",
        }.items()
    },
    "sparse-beyond": sparse([4], [0, 9]),
    "sparse-negative": sparse([4], [-1, 2]),
    "sparse-large": sparse([2**40], [0, 2**39]),
    "sparse-huge": sparse([2**62, 2**62], [0, 5]),
    "sparse-rank": sparse([1] * 500, [0, 0]),
    **{
        f"data-{number}": external(*entry)
        for number, entry in enumerate(
            [
                *(("w.bin",), ("sub/w.bin",), ("sub/../w.bin",), ("link.bin",), ("hard.bin",)),
                *(("out_link.bin",), ("dirlink/secret.bin",), ("../../secret.bin",), ("zero",)),
                *(("/etc/passwd",), ("/dev/zero",), ("fifo",), (".",), ("sub",), ("absent",)),
                *(
                    ("model.onnx",),
                    ("w.bin\x00x",),
                    ("a" * 5000,),
                    ("x/" * 3000,),
                    ("\\\\host\\x",),
                ),
                *(("w.bin", "1020"), ("w.bin", str(2**62)), ("w.bin", "-4"), ("w.bin", "0x0")),
                *(("w.bin", "0", "15"), ("w.bin", "0", str(2**63)), ("w.bin", "0", "-1")),
                *(("w.bin", "0", "", 2**40), ("w.bin", "1", "", 4), ("w.bin", str(2**63 - 4))),
                *(("C:\\w.bin",), ("~/w.bin",), ("$HOME/w.bin",), ("file:///etc/passwd",)),
            ]
        )
    },
}

_SLOW = ("million-ops", "million-unknown", "many-constants", "wide-op", "huge-name")
_COMMANDS = (
    ["compile", "{in}/model.onnx", "-o", "{out}", "-q"],
    ["run", "{in}/model.onnx", "--inputs", "{in}/inputs.npz", "--save", "{out}/y.npz"],
    ["compile", "{in}/model.onnx", "--check"],
    ["compile", "{in}/model.onnx", "--html", "{out}/r.html"],
)


QUICK = (
    *("deep-bodies", "bodies-31", "deep-types", "growing-functions", "symbol-products", "loops-3"),
    *("tile-4611686018427387904", "fill-1099511627776", "range-9223372036854775807"),
    *("resize-2147483648", "outer-1099511627776", "sparse-huge", "data-5", "data-8", "data-11"),
)
"""Some that take little time."""


def extremes(names: Collection[str] = ()) -> Iterator[tuple[str, Builder]]:
    """Every model, or those named, with every command."""
    for name in names or _ALL:
        make = _ALL[name]
        for command in _COMMANDS[:2] if name in _SLOW else _COMMANDS:
            yield f"{name}-{command[0]}{_COMMANDS.index(command)}", _builder(make, command)


@lru_cache(maxsize=2)
def _made(make: Maker) -> ModelProto | bytes:
    """The model, made once for all its commands."""
    return make()


def _builder(make: Maker, command: list[str]) -> Builder:
    def build(folder: Path, _rng: random.Random) -> list[str]:
        surroundings(folder)
        made = _made(make)
        data = made if isinstance(made, bytes) else made.SerializeToString()
        (folder / "model.onnx").write_bytes(data)
        np.savez(folder / "inputs.npz", **_inputs(made))
        return list(command)

    return build


def _inputs(
    model: ModelProto | bytes,
) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    if isinstance(model, bytes):
        return {"v0": np.ones(2, np.float32)}
    found = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [min(d.dim_value or 2, 4) for d in tensor.shape.dim]
        found[value.name] = np.ones(shape, np.int64 if tensor.elem_type == _I64 else np.float32)
    return found
