"""Cases of ONNX files: valid models damaged, and the folder a hostile one would lie in."""

from __future__ import annotations

import io
import os
import random
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
from fuzz_bytes import damaged
from fuzz_case import Builder
from fuzz_model import changed, changed_within
from fuzz_seeds import seed_model, seed_names
from onnx import ModelProto, helper

COMMANDS: tuple[tuple[int, list[str]], ...] = (
    (30, ["compile", "{in}/model.onnx", "-o", "{out}", "-q"]),
    (20, ["run", "{in}/model.onnx", "--inputs", "{in}/inputs.npz", "--save", "{out}/y.npz"]),
    (12, ["compile", "{in}/model.onnx"]),
    (6, ["compile", "{in}/model.onnx", "--json"]),
    (6, ["compile", "{in}/model.onnx", "--html", "{out}/report.html", "-q"]),
    (6, ["compile", "{in}/model.onnx", "--check", "--batch", "2"]),
    (5, ["compile", "{in}/model.onnx", "--stop-after", "fuse-attention"]),
    (4, ["compile", "{in}/model.onnx", "--emit", "torchair"]),
    (2, ["compile", "{in}/model.onnx", "--emit", "atc"]),
    (4, ["explain", "{in}/model.onnx", "*"]),
    (4, ["profile", "{in}/model.onnx", "-o", "{out}", "--format", "all"]),
    (3, ["compile", "{in}/model.onnx", "--streams", "3", "--batch", "4", "--seq", "8"]),
    (2, ["compile", "{in}/model.onnx", "--dump-ir", "{out}", "-o", "{out}"]),
    (2, ["compile", "{in}/model.onnx", "--target-opset", "21", "-o", "{out}", "-vv"]),
    (1, ["sweep", "{in}/model.onnx", "--streams", "1,2", "--workers", "1",
         "--journal", "{out}/journal", "-o", "{out}/table.csv"]),
)  # fmt: skip

OPTIONS: tuple[list[str], ...] = (
    *(["--batch", "0"], ["--batch", "2147483647"], ["--batch", "99999999999999999999"]),
    *(["--seq", "1"], ["--seq", "2147483647"], ["--batch", "65536", "--seq", "65536"]),
    *(["--input-shape", "x:0"], ["--input-shape", "x:?,?"], ["--input-shape", "\x1b[2J:1"]),
    *(["--streams", "64"], ["--streams", "-1"], ["--streams", "9" * 400], ["--strategy", "\x07"]),
    *(["--disable-pass", "\x1b[1m"], ["--launch", "host"], ["--strategy", "critical-path"]),
    *(["--device", "../../secret.yaml"], ["--device", "/dev/zero"], ["--assign", "/dev/zero"]),
    *(["--assign", "{in}/fifo2"], ["--durations", "/dev/zero"], ["--device", "a" * 5000]),
)


def structured(folder: Path, rng: random.Random) -> list[str]:
    """A small model changed within protobuf."""
    model = seed_model(rng.choice(seed_names()))
    _write_inputs(folder, model, rng)
    return _written(folder, changed(model, rng), rng)


def mild(folder: Path, rng: random.Random) -> list[str]:
    """A small model changed so that it may still be valid, with options that may not fit it."""
    model = seed_model(rng.choice(seed_names()))
    _write_inputs(folder, model, rng)
    command = _written(folder, changed_within(model, rng), rng)
    if command[0] in ("compile", "run", "profile") and rng.random() < 0.3:
        command += rng.choice(OPTIONS)
    return command


def bytewise(folder: Path, rng: random.Random) -> list[str]:
    """A small model's bytes damaged."""
    model = seed_model(rng.choice(seed_names()))
    _write_inputs(folder, model, rng)
    (folder / "model.onnx").write_bytes(damaged(model.SerializeToString(), rng))
    return _command(rng)


def corpus_cases(corpus: Path) -> Builder:
    """Real exports, changed either way."""
    paths = sorted(corpus.glob("models/*.onnx")) + sorted(corpus.glob("cases/attention/*.onnx"))

    def build(folder: Path, rng: random.Random) -> list[str]:
        path = rng.choice(paths)
        inputs = path.with_suffix(".inputs.npz")
        if inputs.is_file():
            (folder / "inputs.npz").write_bytes(inputs.read_bytes())
        data = _content(path)
        if rng.random() < 0.4:
            (folder / "model.onnx").write_bytes(damaged(data, rng))
            return _command(rng)
        return _written(folder, changed(ModelProto.FromString(data), rng), rng)

    return build


@cache
def _content(path: Path) -> bytes:
    return path.read_bytes()


def _written(folder: Path, model: ModelProto, rng: random.Random) -> list[str]:
    surroundings(folder)
    (folder / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    return _command(rng)


def _command(rng: random.Random) -> list[str]:
    weights = [weight for weight, _ in COMMANDS]
    return list(rng.choices(COMMANDS, weights)[0][1])


def surroundings(folder: Path) -> None:
    """What a model's external data may point at: files, links out of the folder, a pipe."""
    secret = folder.parent.parent / "secret.bin"
    if not secret.exists():
        secret.write_bytes(b"secret" * 1000)
    (folder / "w.bin").write_bytes(bytes(range(256)) * 4)
    (folder / "sub").mkdir()
    (folder / "sub" / "w.bin").write_bytes(bytes(64))
    (folder / "link.bin").symlink_to("w.bin")
    (folder / "out_link.bin").symlink_to(secret)
    (folder / "dirlink").symlink_to(secret.parent)
    (folder / "zero").symlink_to("/dev/zero")
    os.link(secret, folder / "hard.bin")
    os.mkfifo(folder / "fifo")


_ELEMENTS = {
    **{1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64, 8: np.object_},
    **{9: np.bool_, 10: np.float16, 11: np.float64},
}


def _write_inputs(folder: Path, model: ModelProto, rng: random.Random) -> None:
    """Arrays that fit the model before it was changed; one in twenty is no such file."""
    if rng.random() < 0.05:
        (folder / "inputs.npz").write_bytes(_hostile_archive(rng))
        return
    arrays = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [dim.dim_value or 2 for dim in tensor.shape.dim]
        element = _ELEMENTS.get(tensor.elem_type, np.float32)
        text = element is np.object_
        arrays[value.name] = np.full(shape, "s") if text else np.ones(shape).astype(element)
    np.savez(folder / "inputs.npz", **arrays)


def _hostile_archive(rng: random.Random) -> bytes:
    """Pickles, headers that state terabytes, archives that grow, and plain rubbish."""
    shape = rng.choice(("(1099511627776,)", "(-1,)", "(2,3)", "(4611686018427387904, 4)", "()"))
    dtype = rng.choice(("<f4", "|O", "<U4294967295", ">i8", "V16", "[('a', '<f4')]", "nonsense"))
    header = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    array += rng.choice((b"", bytes(24), b"cos\nsystem\n(S'touch INJECTED'\ntR."))
    if rng.random() < 0.2:
        array += bytes(300 * 2**20)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(rng.choice(("x.npy", "../x.npy", "x", "/x.npy", "\x1b[2J.npy")), array)
    return damaged(out.getvalue(), rng) if rng.random() < 0.3 else out.getvalue()


def node_model(nodes: list[object], inputs: list[object], outputs: list[object]) -> ModelProto:
    """A model of opset 17 from what `onnx.helper` makes."""
    graph = helper.make_graph(nodes, "g", inputs, outputs)  # type: ignore[arg-type]
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
