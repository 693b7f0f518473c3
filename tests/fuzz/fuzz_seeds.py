"""Small valid models that the fuzzer starts from; between them they have what passes act on."""

from __future__ import annotations

from functools import cache

from onnx import ModelProto, parser

_OPSET = '<ir_version: 8, opset_import: ["": 17]>'
_NEW = '<ir_version: 10, opset_import: ["": 23]>'

TEXTS: dict[str, str] = {
    "chain": f"""{_OPSET} g (float[B, 8] x) => (float[B, 8] y) {{
        a = Relu(x)  b = Neg(a)  c = Exp(b)  d = Add(c, x)  y = Identity(d) }}""",
    "linear": f"""{_OPSET} g (float[B, 4] x) => (float[B, 3] y)
        <float[4, 3] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, float[3] b = {{1, 2, 3}}> {{
        m = MatMul(x, w)  n = Add(m, b)  s = Softmax<axis = -1>(n)  y = Mul(s, n) }}""",
    "attention": f"""{_OPSET} g (float[B, S, 8] x, float[B, 1, S, S] mask) => (float[B, S, 8] y)
        <int64[4] heads = {{0, 0, 2, 4}}, int64[3] flat = {{0, 0, 8}}, float scale = {{0.5}}> {{
        r = Reshape(x, heads)  q = Transpose<perm = [0, 2, 1, 3]>(r)
        k = Transpose<perm = [0, 2, 3, 1]>(r)  p = MatMul(q, k)  d = Mul(p, scale)
        m = Add(d, mask)  s = Softmax<axis = -1>(m)  o = MatMul(s, q)
        t = Transpose<perm = [0, 2, 1, 3]>(o)  y = Reshape(t, flat) }}""",
    "sizes": f"""{_OPSET} g (float[B, 6] x) => (float[M, N] y, float[K] z)
        <int64[2] n = {{3, 2}}, int64 zero = {{0}}, int64 one = {{1}}, int64[1] many = {{7}}> {{
        s = Shape(x)  b = Gather(s, zero)  r = Range(zero, b, one)  f = Cast<to = 1>(r)
        c = ConstantOfShape(many)  z = Add(c, c)  e = Expand(x, s)  y = Tile(e, n) }}""",
    "windows": f"""{_OPSET} g (float[1, 2, 8, 8] x) => (float[1, C, H, W] y)
        <float[2, 2, 3, 3] w = {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
        int64[8] p = {{0, 0, 1, 1, 0, 0, 1, 1}}, float[4] up = {{1, 1, 2, 2}}> {{
        c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w)
        m = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)  d = Pad(m, p)
        y = Resize(d, , up) }}""",
    "slices": f"""{_OPSET} g (float[4, 6] x, int64[2] i) => (float[A, C] y, int64[R, D] nz)
        <int64[1] a = {{0}}, int64[1] b = {{3}}, int64[1] ax = {{1}}, int64[2] sp = {{2, 4}},
        int64[1] k = {{2}}> {{
        s = Slice(x, a, b, ax)  g1 = Gather<axis = 0>(s, i)  u, v = Split<axis = 1>(x, sp)
        t, ti = TopK(v, k)  nz = NonZero(t)  y = Concat<axis = 1>(g1, g1) }}""",
    "branch": f"""{_OPSET} g (bool c, float[3] x) => (float[N] y) {{
        y = If<then_branch = t () => (float[3] a) {{ a = Relu(x) }},
               else_branch = e () => (float[3] b) {{ u = Neg(x)  b = Exp(u) }}>(c) }}""",
    "loop": f"""{_OPSET} g (float[3] x) => (float[3] y, float[T, 3] all)
        <int64 trips = {{4}}, bool go = {{1}}> {{
        y, all = Loop<body = body (int64 i, bool ci, float[3] v) => (bool co, float[3] w,
            float[3] o) {{ co = Identity(ci)  w = Add(v, x)  o = Mul(w, v) }}>(trips, go, x) }}""",
    "scan": f"""{_OPSET} g (float[3] h, float[T, 3] x) => (float[3] y, float[T, 3] all) {{
        y, all = Scan<num_scan_inputs = 1, body = body (float[3] a, float[3] b) =>
            (float[3] c, float[3] d) {{ c = Add(a, b)  d = Identity(c) }}>(h, x) }}""",
    "function": """<ir_version: 9, opset_import: ["": 17, "own": 1]>
        g (float[2, 3] x) => (float[2, 3] y) {
            a = own.twice<f = 2.0>(x)  y = own.twice<f = 3.0>(a) }
        <domain: "own", opset_import: ["": 17, "own": 1]>
        twice <f>(v) => (w) { c = Constant<value_float: float = @f>()  s = own.once(v)
            w = Mul(s, c) }
        <domain: "own", opset_import: ["": 17]>
        once (v) => (w) { w = Add(v, v) }""",
    "types": f"""{_NEW} g (float16[2, 3] h, bfloat16[2, 3] b, int32[2, 3] i, string[2] s)
        => (float[2, 3] y, string[2] t, bool[2, 3] q) {{
        f = Cast<to = 1>(h)  g1 = Cast<to = 1>(b)  j = Cast<to = 1>(i)  u = Add(f, g1)
        y = Add(u, j)  t = Identity(s)  q = Greater(y, u) }}""",
    "quantized": f"""{_OPSET} g (float[2, 4] x) => (float[2, 4] y)
        <float sc = {{0.1}}, uint8 zp = {{128}}> {{
        q = QuantizeLinear(x, sc, zp)  y = DequantizeLinear(q, sc, zp) }}""",
    "norm": f"""{_OPSET} g (float[B, 4] x) => (float[B, 4] y)
        <float[4] w = {{1, 1, 1, 1}}, float[4] b = {{0, 0, 0, 0}}, float two = {{2}},
        float eps = {{0.00001}}> {{
        l = LayerNormalization(x, w, b)  p = Pow(l, two)  m = ReduceMean<axes = [-1]>(p)
        e = Add(m, eps)  r = Sqrt(e)  y = Div(l, r) }}""",
    "fused": f"""{_NEW} g (float[1, 2, 5, 4] q, float[1, 2, 5, 4] k) => (float[1, 2, 5, 4] y) {{
        a = Attention<is_causal = 1>(q, k, k)  y = Gelu(a) }}""",
    "einsum": f"""{_OPSET} g (float[2, 3] x, float[3, 4] z) => (float[2, 4] y, int64 n) {{
        y = Einsum<equation = "ij,jk->ik">(x, z)  n = Size(y) }}""",
    "sequence": f"""{_OPSET} g (float[2, 3] x) => (float[N, M] y) <int64 at = {{1}}> {{
        s = SequenceConstruct(x, x)  e = SequenceAt(s, at)
        y = ConcatFromSequence<axis = 0>(s) }}""",
    "indexed": f"""{_OPSET} g (float[3, 4] x, int64[2, 1] i) => (float[3, 4] y, float[2, 4] z)
        <int64[2, 1] at = {{0, 2}}, float[2, 4] new = {{1, 2, 3, 4, 5, 6, 7, 8}},
        int64 depth = {{3}}, float[2] onoff = {{0, 1}}> {{
        y = ScatterND(x, at, new)  z = GatherND(x, i)  h = OneHot(at, depth, onoff)
        cs = CumSum(x, depth) }}""",
    "folding": f"""{_OPSET} g (float[2] x) => (float[A] y)
        <int64[1] a = {{2}}, int64[1] b = {{3}}> {{
        c = Mul(a, b)  d = Add(c, b)  e = ConstantOfShape<value = float[1] {{1}}>(a)
        f = Concat<axis = 0>(a, b)  h = ReduceProd<keepdims = 1>(f)  k = Div(h, b)
        m = Mod(d, a)  r = Expand(e, k)  y = Add(r, x) }}""",
}  # fmt: skip


@cache
def _serialised(name: str) -> bytes:
    model = parser.parse_model(TEXTS[name])
    for index, node in enumerate(model.graph.node):
        node.name = f"/layer.{index // 3}/{node.op_type}_{index}"
    return bytes(model.SerializeToString(deterministic=True))


def seed_names() -> list[str]:
    """The names of the models, in order."""
    return list(TEXTS)


def seed_model(name: str) -> ModelProto:
    """A model of its own under that name."""
    return ModelProto.FromString(_serialised(name))
