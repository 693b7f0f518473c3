"""The ``gec`` command as a user meets it: output, exit codes, one message per mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import onnxruntime
import pytest
from command_help import Gec

from gecompiler.report import report_schema


def _inputs(path: Path, batch: int = 2, seq: int = 8) -> dict[str, np.ndarray]:
    inputs = {
        "input_ids": np.arange(batch * seq).reshape(batch, seq) % 37,
        "attention_mask": np.ones((batch, seq), np.int64),
    }
    np.savez(path, **inputs)
    return inputs


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from gecompiler import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'onnx', 'onnxruntime', 'numpy', 'networkx', 'rich', 'yaml'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_report_is_valid_json_and_alone_on_stdout(gec: Gec, tiny_path: Path) -> None:
    code, out, _ = gec("compile", tiny_path, "--json", "--batch", 2, "--seq", 16)
    report = json.loads(out)
    jsonschema.validate(report, report_schema())
    assert code == 0
    assert report["attention"]["fused"] == 2
    schedule = report["schedule"]
    assert (
        0
        < schedule["lower_bound_us"]
        <= schedule["best_found_us"]
        <= schedule["makespan_us"]
        <= schedule["single_stream_us"]
    )
    assert report["model"]["sizes"] == {"batch": 2, "seq": 16}
    assert report["warnings"] == []


def test_the_same_input_gives_the_same_bytes(tiny_path: Path, tmp_path: Path) -> None:
    for seed in ("1", "2"):
        command = f"-m gecompiler compile {tiny_path} -q --batch 2 --seq 16 -o {tmp_path / seed}"
        subprocess.run(
            [sys.executable, *command.split()],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            check=True,
        )
    names = sorted(p.name for p in (tmp_path / "1").iterdir())
    assert names == ["model.onnx", "report.json", "schedule.json", "trace.json"]
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name


def test_unbound_sizes_are_said_and_stay_symbols(gec: Gec, tiny_path: Path, tmp_path: Path) -> None:
    code, out, _ = gec("compile", tiny_path, "--json", "-o", tmp_path / "out")
    report = json.loads(out)
    assert code == 0
    assert report["model"]["sizes"] == {"batch": 1, "seq": 128}
    assert [w["code"] for w in report["warnings"]] == ["unbound-sizes"]
    exported = onnx.load(tmp_path / "out" / "model.onnx")
    dims = exported.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param for d in dims] == ["batch", "seq"]


def test_the_exported_model_gives_the_same_numbers(
    gec: Gec, tiny_path: Path, tmp_path: Path
) -> None:
    inputs = _inputs(tmp_path / "in.npz")
    code, _, _ = gec("compile", tiny_path, "-q", "-o", tmp_path / "out")
    assert code == 0
    want = onnxruntime.InferenceSession(tiny_path).run(None, inputs)
    found = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx").run(None, inputs)
    np.testing.assert_allclose(found[0], want[0], rtol=1e-3, atol=1e-5)


def test_run_compares_by_name_and_exits_3_on_a_difference(
    gec: Gec, tiny_path: Path, tmp_path: Path
) -> None:
    inputs = _inputs(tmp_path / "in.npz")
    want = onnxruntime.InferenceSession(tiny_path).run(None, inputs)[0]
    np.savez(tmp_path / "right.npz", logits=want)
    np.savez(tmp_path / "wrong.npz", logits=want + 1)
    run = ("run", tiny_path, "--inputs", tmp_path / "in.npz", "--expect")
    code, out, _ = gec(*run, tmp_path / "right.npz")
    assert (code, out.splitlines()[-1].split()[0]) == (0, "PASSED")
    code, out, _ = gec(*run, tmp_path / "wrong.npz")
    assert (code, out.splitlines()[-1].split()[0]) == (3, "FAILED:")


def test_a_strategy_of_ones_own_from_a_file(gec: Gec, tiny_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "import gecompiler as ge\n"
        "class Own(ge.StreamAssignStrategy):\n"
        "    def assign(self, op_graph):\n"
        "        for i, op in enumerate(op_graph.ops):\n"
        "            ge.assign_to_stream(op, i % 2)\n"
    )
    code, out, _ = gec("compile", tiny_path, "--strategy", f"{file}:Own", "--json")
    assert code == 0
    assert json.loads(out)["streams"]["used"] == 2
    code, _, err = gec("compile", tiny_path, "--strategy", f"{file}:Other")
    assert (code, "no class 'Other'" in err) == (2, True)


def test_what_a_strategy_prints_stays_out_of_the_report(
    gec: Gec, tiny_path: Path, tmp_path: Path
) -> None:
    file = tmp_path / "loud.py"
    file.write_text(
        "import gecompiler as ge\nprint('loading')\n"
        "class Loud(ge.StreamAssignStrategy):\n"
        "    def assign(self, graph):\n        print('assigning')\n"
    )
    code, out, err = gec("compile", tiny_path, "--strategy", file, "--json")
    assert code == 0
    json.loads(out)
    assert {"loading", "assigning"} <= set(err.split())


@pytest.mark.parametrize("fault", ["sys.exit(0)", "raise GeneratorExit", "1 / 0"])
@pytest.mark.parametrize("inside", ["", "    def assign(self, graph):\n        "])
def test_a_strategy_that_ends_is_an_error(
    gec: Gec, tiny_path: Path, tmp_path: Path, fault: str, inside: str
) -> None:
    file = tmp_path / "ends.py"
    head = "import sys, gecompiler as ge\nclass Own(ge.StreamAssignStrategy):\n"
    file.write_text(head + (inside or "    pass\n") + fault + "\n")
    code, out, err = gec("compile", tiny_path, "--strategy", file, "--json")
    assert (code, out) == (2, "")
    assert err.startswith("gec: error:")
    assert "Traceback" not in err


def test_a_strategy_file_is_never_run_from_an_option_file(
    gec: Gec, tiny_path: Path, tmp_path: Path
) -> None:
    file = tmp_path / "own.py"
    file.write_text("raise RuntimeError('this ran')")
    options = tmp_path / "options.yaml"
    options.write_text(f"options: {{stream_strategy: {file}}}")
    code, _, err = gec("compile", tiny_path, "--assign", options)
    assert code == 2
    assert "no stream strategy" in err
    assert "this ran" not in err


def test_a_strategy_that_a_package_adds(
    gec: Gec, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.metadata import EntryPoint

    import gecompiler as ge
    from gecompiler.passes.streams import custom_sources

    class Alternating(ge.StreamAssignStrategy):
        """One op here, one op there."""

        def assign(self, op_graph: object) -> None:
            for i, op in enumerate(op_graph.ops):  # type: ignore[attr-defined]
                ge.assign_to_stream(op, i % 2)

    point = EntryPoint("alternating", f"{__name__}:Alternating", custom_sources.GROUP)
    monkeypatch.setattr(custom_sources, "entry_points", lambda group: [point])
    monkeypatch.setattr(EntryPoint, "load", lambda _: Alternating)
    code, out, _ = gec("compile", tiny_path, "--strategy", "alternating", "--json")
    assert (code, json.loads(out)["streams"]["used"]) == (0, 2)
    code, out, _ = gec("strategies")
    assert "alternating" in out


def test_emit_prints_the_placement_and_nothing_else(gec: Gec, tiny_path: Path) -> None:
    wanted = (tiny_path, "--strategy", "load_balance:2", "--device", "ascend910b")
    code, out, _ = gec("compile", *wanted, "--emit", "torchair")
    compile(out, "emitted", "exec")
    assert (code, out.count("def ")) == (0, 3)
    code, out, _ = gec("compile", *wanted, "--emit", "atc")
    assert (code, out.startswith("atc ")) == (0, True)
    assert gec("compile", *wanted, "--emit", "atc", "--json")[0] == 2
    code, _, err = gec("compile", tiny_path, "--strategy", "heft", "--emit", "atc")
    assert (code, "--emit torchair" in err) == (2, True)


def test_check_reads_back_what_compile_wrote(gec: Gec, tiny_path: Path, tmp_path: Path) -> None:
    gec("compile", tiny_path, "-q", "--strategy", "critical_path", "--streams", 2, "-o", tmp_path)
    path = tmp_path / "schedule.json"
    code, out, _ = gec("check", path)
    assert (code, "race-free" in out) == (0, True)
    data = json.loads(path.read_text())
    data["events"] = data["events"][1:]
    path.write_text(json.dumps(data))
    code, out, _ = gec("check", path)
    assert code == 1
    assert "add_sync_point" in out


def test_stop_after_prints_a_graph_that_parses(gec: Gec, tiny_path: Path, tmp_path: Path) -> None:
    from gecompiler.ir import parse

    code, out, _ = gec(
        "compile", tiny_path, "--stop-after", "fuse-attention", "--dump-ir", tmp_path
    )
    assert code == 0
    assert "gecompiler.FlashAttention" in str(parse(out))
    assert sorted(p.name for p in tmp_path.iterdir())[0].endswith("-import.txt")


@pytest.mark.parametrize("command", ["devices", "passes", "models", "strategies"])
def test_lists_print_something_as_text_and_as_json(gec: Gec, command: str) -> None:
    code, out, _ = gec(command)
    assert (code, bool(out.strip())) == (0, True)
    code, out, _ = gec(command, "--json")
    assert (code, len(json.loads(out)) >= 2) == (0, True)


def test_profile_shows_streams_and_writes_a_trace(
    gec: Gec, tiny_path: Path, tmp_path: Path
) -> None:
    code, out, _ = gec("profile", tiny_path, "-o", tmp_path)
    assert (code, "Stream0: [" in out) == (0, True)
    assert json.loads((tmp_path / "trace.json").read_text())


MISTAKES: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no such file": (("compile", "absent.onnx"), 1, "absent.onnx"),
    "no such model": (("compile", "llama-7c"), 2, "llama-7b"),
    "unknown strategy": (("compile", "gpt2", "--strategy", "critcal_path"), 2, "critical_path"),
    "unknown device": (("compile", "gpt2", "--device", "ascend911"), 2, "ascend910"),
    "unknown pass": (("compile", "gpt2", "--disable-pass", "fuse-atention"), 2, "fuse-attention"),
    "no such pass to stop after": (("compile", "gpt2", "--stop-after", "x"), 2, "x"),
    "streams": (("compile", "gpt2", "--streams", "none"), 2, "num_streams"),
    "unknown input": (("compile", "gpt2", "--input-shape", "input:1,8"), 2, "input_ids"),
    "bad shape": (("compile", "gpt2", "--input-shape", "input_ids=1"), 2, "input-shape"),
    "rank": (("compile", "gpt2", "--input-shape", "input_ids:1,8,3"), 2, "input_ids"),
    "batch 0": (("compile", "gpt2", "--batch", "0"), 2, "--batch"),
    "assignment file": (("compile", "gpt2", "--assign", "absent.yaml"), 2, "absent.yaml"),
    "unknown command": (("compil", "gpt2"), 2, "compil"),
    "no schedule": (("check", "absent.json"), 1, "absent.json"),
    "no inputs": (("run", "gpt2", "--inputs", "absent.npz"), 2, "absent.npz"),
}


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_a_mistake_is_one_message_with_its_exit_code(
    gec: Gec, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, expected, mentioned = MISTAKES[name]
    code, out, err = gec(*arguments)
    assert code == expected, err
    assert mentioned in err
    assert "Traceback" not in err
    assert "internal error" not in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_numbers_need_the_weights(gec: Gec, tmp_path: Path) -> None:
    np.savez(
        tmp_path / "in.npz",
        input_ids=np.zeros((1, 4), np.int64),
        attention_mask=np.ones((1, 4), np.int64),
    )
    code, _, err = gec("run", "gpt2", "--inputs", tmp_path / "in.npz")
    assert code == 1
    assert "absent" in err


def test_an_assignment_to_a_name_that_matches_nothing(gec: Gec, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("assignment: {FlashAtention: 0}\n")
    code, _, err = gec("compile", "gpt2", "--assign", path)
    assert code == 2
    assert "FlashAttention" in err


def test_more_streams_than_the_device_has_is_a_warning(gec: Gec) -> None:
    code, out, _ = gec("compile", "gpt2", "--json", "--streams", 8, "--batch", 1, "--seq", 64)
    messages = [w["message"] for w in json.loads(out)["warnings"]]
    assert code == 0
    assert any("requested 8, device has 4, using 4" in m for m in messages)


def test_an_unwritable_output_leaves_nothing(gec: Gec, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = gec("compile", "gpt2", "-q", "-o", tmp_path / "file")
    assert code == 2
    assert "cannot be written" in err or "is a file" in err
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("content", [b"", b"hello", b"\x08\x0a\x12\xff\xff\xff\x7f"])
def test_what_is_no_model_is_named(gec: Gec, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    code, _, err = gec("compile", path)
    assert code == 1
    assert "broken.onnx" in err
    assert "Traceback" not in err


def test_a_truncated_model_is_named(gec: Gec, tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(tiny_path.read_bytes()[:-1000])
    code, _, err = gec("compile", path)
    assert code == 1
    assert "cut.onnx" in err


def test_what_stop_after_leaves_out_is_refused(gec: Gec, tiny_path: Path, tmp_path: Path) -> None:
    for option in (("--json",), ("-o", tmp_path / "out")):
        code, out, err = gec("compile", tiny_path, "--stop-after", "canonicalize", *option)
        assert (code, out) == (2, "")
        assert "--stop-after" in err
    assert list(tmp_path.iterdir()) == []


def test_quiet_still_says_what_is_at_fault(gec: Gec) -> None:
    code, out, err = gec("compile", "llama-70b", "-q", "--batch", 1, "--seq", 16)
    assert (code, out) == (1, "")
    assert err.startswith("gec: error: ")


def test_a_closed_pipe_is_no_failure(tiny_path: Path) -> None:
    command = f"{sys.executable} -m gecompiler compile {tiny_path} --batch 1 --seq 8 | true"
    done = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_model_without_a_task_is_reported(gec: Gec, tmp_path: Path) -> None:
    from gecompiler.ir import parse
    from gecompiler.ir.onnx_io.exporter import save_onnx

    save_onnx(parse("graph {\n const %c: f32[2] = [1.0, 2.0]\n return %c\n}"), tmp_path / "c.onnx")
    code, out, _ = gec("compile", tmp_path / "c.onnx")
    assert (code, bool(out)) == (0, True)
    assert "Look closer" not in out
    assert "Where the time goes" not in out


@pytest.mark.parametrize("option", [("--rtol", "nan"), ("--atol", "-1")])
def test_a_tolerance_is_a_number_from_zero(
    gec: Gec, tiny_path: Path, tmp_path: Path, option: tuple[str, str]
) -> None:
    _inputs(tmp_path / "in.npz")
    code, _, err = gec("run", tiny_path, "--inputs", tmp_path / "in.npz", *option)
    assert (code, option[0] in err) == (2, True)


def test_sizes_that_contradict_each_other(gec: Gec, tiny_path: Path, tmp_path: Path) -> None:
    shape = ("--input-shape", "input_ids:1,8")
    code, _, err = gec("compile", tiny_path, *shape, "--input-shape", "input_ids:2,8")
    assert (code, "two different shapes" in err) == (2, True)
    _inputs(tmp_path / "in.npz", batch=2)
    code, _, err = gec("run", tiny_path, "--inputs", tmp_path / "in.npz", "--batch", 7)
    assert (code, "--batch 7" in err) == (2, True)


def test_more_positions_than_a_model_learned(gec: Gec) -> None:
    code, _, err = gec("compile", "gpt2", "--seq", 5000)
    assert (code, "1024" in err) == (2, True)


def test_an_error_behind_the_import_names_file_and_node(gec: Gec, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (bool c, float[2, 3] x) => (y)
        {
            y = If (c) <
                then_branch = t () => (float[2, 3] a) { a = Identity(x) },
                else_branch = e () => (float[2] b) { b = ReduceSum <keepdims = 0> (x, axes) }
            >
        }"""
    )
    model.graph.node[0].name = "either"
    axes = onnx.numpy_helper.from_array(np.array([1]), "axes")
    model.graph.initializer.append(axes)
    onnx.save(model, tmp_path / "if.onnx")
    code, _, err = gec("compile", tmp_path / "if.onnx")
    assert code == 1
    assert "if.onnx" in err
    assert "either" in err


def test_models_say_which_phases_there_are(gec: Gec) -> None:
    rows = {row["model"]: row["give as"] for row in json.loads(gec("models", "--json")[1])}
    assert rows["llama-7b"] == "llama-7b llama-7b:decode"
    assert rows["bert-base"] == "bert-base"


def test_the_next_command_explains_the_same_schedule(gec: Gec, tiny_path: Path) -> None:
    _, out, _ = gec("compile", tiny_path, "--seq", 16, "--streams", 2, "--launch", "host")
    assert "--seq 16 --launch host --streams 2 OP" in " ".join(out.split())
