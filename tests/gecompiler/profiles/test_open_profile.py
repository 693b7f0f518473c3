"""Profiles of real cards as timelines: figures, waits, broken and hostile files."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from gecompiler.backends.trace import trace_files
from gecompiler.cli import gec
from gecompiler.ir.errors import UsageError
from gecompiler.profiles import Profile, open_profile
from gecompiler.profiles.report import profile_report, step_rows
from gecompiler.profiles.report_text import profile_text

EPOCH = 1736412474000000000
MSPROF = "Device_id,Task ID,Stream ID,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us),Task Wait Time(us),Block Num,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats"  # noqa: E501
TORCH = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,Stream ID"  # noqa: E501
STEPS = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,Communication(Not Overlapped and Exclude Receive),Preparing"  # noqa: E501


def us(ns: int) -> str:
    at = EPOCH + ns
    return f"{at // 1000}.{at % 1000:03d}"


def msprof(rows: Sequence[tuple[str, str, int, int]], device: int = 0) -> str:
    """(name, stream, start, duration): names that begin with hcom are collectives."""
    lines = [MSPROF]
    for i, (name, stream, start, length) in enumerate(rows):
        core = "COMMUNICATION" if name.startswith("hcom") else "AI_CORE"
        on = stream if core == "AI_CORE" else "N/A"
        kind = name.rstrip("0123456789")
        lines.append(
            f"{device},{i},{on},{name},{kind},{core},{us(start)}\t,{length / 1000},0,20,"
            '"""2,8;8,4""",FLOAT16;FLOAT16,ND;ND,"""2,4""",FLOAT16,ND'
        )
    return "\n".join(lines) + "\n"


def torch(rows: Sequence[tuple[str, str, str, int, int]]) -> str:
    lines = [TORCH]
    for step, name, stream, start, length in rows:
        core = "HCCL" if name.startswith("hcom") else "AI_VECTOR_CORE"
        lines.append(f"{step},{name},{name[:3]},{core},{us(start)}\t,{length / 1000},0,4,{stream}")
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def lengths(found: Profile) -> list[tuple[int, str, int, int, int, int]]:
    return [
        (s.device, s.step, s.computing, s.communication, s.overlapped, s.free) for s in found.steps
    ]


# ------------------------------------------------------------------ real captures


def test_the_real_capture_agrees_with_the_vendors_own_figures(corpus: Path) -> None:
    found = open_profile(corpus / "measured" / "msprof")
    (row,) = step_rows(found)
    assert row["step"] == "50"
    assert row["agrees"]
    for part in ("computing", "communication", "overlapped", "not_overlapped", "free", "stage"):
        assert row[f"{part}_us"] == pytest.approx(row["vendor"][f"{part}_us"], abs=0.25)
    assert row["preparing_us"] == 17483.75
    assert not found.left_out
    found.timeline.verify()
    waits = profile_report(found)["waits"]["longest"]
    assert waits[0]["waited_for"] == "hcom_allReduce__271_0_1"
    kinds = {row["type"]: row for row in profile_report(found)["op_types"]}
    import csv

    with (corpus / "measured" / "msprof" / "op_statistic.csv").open() as file:
        for line in csv.DictReader(file):
            ours = [r for r in kinds.values() if r["type"] == line["OP Type"]]
            assert sum(r["total_us"] for r in ours) == pytest.approx(
                float(line["Total Time(us)"]), abs=0.05
            )


@pytest.mark.parametrize("name", ["op_summary_1.csv", "kernel_details.csv", "trace_view.cut.json"])
def test_single_files_open(corpus: Path, name: str) -> None:
    found = open_profile(corpus / "measured" / "msprof" / name)
    found.timeline.verify()
    assert profile_text(found)
    assert found.timeline.makespan_ns > 100_000_000


def test_a_capture_written_in_every_dialect_reads_back_the_same(
    corpus: Path, tmp_path: Path
) -> None:
    first = open_profile(corpus / "measured" / "msprof")
    for dialect in ("chrome", "msprof", "kineto"):
        for path, text in trace_files(first.recording, dialect).items():
            write(tmp_path / dialect / path, text)
    again = open_profile(tmp_path / "msprof")
    assert [s.duration_ns for s in again.timeline.spans if s.op_type != "MEMCPY_ASYNC"] == [
        s.duration_ns for s in first.timeline.spans if s.op_type != "MEMCPY_ASYNC"
    ]
    (row,) = step_rows(again)
    assert row["agrees"]
    assert row["largest_difference_us"] == 0


# ------------------------------------------------------------------ figures


def test_overlap_is_reckoned_per_step_and_what_lies_between_is_no_ones(tmp_path: Path) -> None:
    rows = [
        ("1", "Add0", "2", 0, 10_000),
        ("1", "hcom_allReduce_", "N/A", 5_000, 10_000),
        ("1", "Add1", "2", 20_000, 5_000),
        ("2", "Mul0", "2", 100_000, 10_000),
        ("2", "hcom_receive_1", "N/A", 110_000, 30_000),
    ]
    found = open_profile(write(tmp_path / "kernel_details.csv", torch(rows)))
    assert lengths(found) == [
        (0, "1", 15_000, 10_000, 5_000, 5_000),
        (0, "2", 10_000, 30_000, 0, 0),
    ]
    first, second = found.steps
    assert first.stage == 25_000
    assert second.bubble == 30_000
    assert second.stage == 40_000 - 30_000


def test_the_end_of_a_step_on_the_host_gives_it_the_gap_that_follows(tmp_path: Path) -> None:
    rows = [("1", "Add0", "2", 0, 10_000), ("2", "Add1", "2", 50_000, 10_000)]
    write(tmp_path / "kernel_details.csv", torch(rows))
    steps = [
        {"ph": "X", "name": f"ProfilerStep#{n}", "pid": 1, "tid": 1, "ts": us(at), "dur": 20.0}
        for n, at in ((1, -5_000), (2, 30_000))
    ]
    write(tmp_path / "trace_view.json", json.dumps(steps))
    found = open_profile(tmp_path)
    assert lengths(found) == [(0, "1", 10_000, 0, 0, 40_000), (0, "2", 10_000, 0, 0, 0)]
    assert [s.preparing for s in found.steps] == [5_000, 20_000]


def test_figures_that_differ_from_the_vendors_are_said_so(tmp_path: Path) -> None:
    write(tmp_path / "kernel_details.csv", torch([("7", "Add0", "2", 0, 10_000)]))
    write(
        tmp_path / "step_trace_time.csv", STEPS + "\n7,10,0,0,0,0,10,0,0,0\n8,1,0,0,0,0,1,0,0,0\n"
    )
    text = profile_text(open_profile(tmp_path))
    assert "the same" in text
    assert "not in the tasks" in text
    write(tmp_path / "step_trace_time.csv", STEPS + "\n7,99,0,0,0,0,99,0,0,0\n")
    assert "DIFFER by up to 89.00 us" in profile_text(open_profile(tmp_path))


def test_ranks_in_folders_of_their_own_keep_their_numbers(tmp_path: Path) -> None:
    for rank in (3, 1):
        folder = tmp_path / f"host_{rank}_ascend_pt"
        write(folder / f"profiler_info_{rank}.json", "{}")
        rows = [("1", "Add0", "2", rank * 1000, 10_000)]
        write(folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", torch(rows))
        write(folder / "PROF_1" / "mindstudio_profiler_output" / "op_summary_1.csv", "rubbish")
        write(folder / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv",
              f"Device_id,{STEPS}\n{rank},1,10,0,0,0,0,10,0,0,0\n")  # fmt: skip
    found = open_profile(tmp_path)
    assert [(s.rank, s.start_ns) for s in found.timeline.spans] in (
        [(1, 0), (3, 2000)],
        [(3, 2000), (1, 0)],
    )
    assert all(row["agrees"] for row in step_rows(found))


def test_several_devices_in_one_table_are_several_ranks(tmp_path: Path) -> None:
    first = msprof([("Add0", "1", 0, 5_000)], 4)
    second = msprof([("Add0", "1", 1_000, 7_000)], 6).partition("\n")[2]
    found = open_profile(
        write(tmp_path / "PROF_1" / "op_summary_20250101000000.csv", first + second)
    )
    assert lengths(found) == [(4, "", 5_000, 0, 0, 0), (6, "", 7_000, 0, 0, 0)]


def test_old_folders_by_device_are_ranks(tmp_path: Path) -> None:
    for device in (0, 1):
        old = msprof([("Add0", "1", 0, 5_000)]).replace("Device_id,", "").replace("\n0,", "\n")
        old = old.replace("Task Start Time", "Start Time").replace("Block Num", "Block Dim")
        write(tmp_path / "PROF_1" / f"device_{device}" / "summary" / "op_summary_0_1.csv", old)
    assert {s.rank for s in open_profile(tmp_path).timeline.spans} == {0, 1}


# ------------------------------------------------------------------ waits


def test_a_wait_names_the_task_of_the_other_stream(tmp_path: Path) -> None:
    rows = [("Add0", "1", 0, 50_000), ("Mul0", "2", 0, 5_000), ("Mul1", "2", 51_000, 5_000),
            ("Mul2", "2", 90_000, 5_000)]  # fmt: skip
    spans = open_profile(write(tmp_path / "op_summary_1.csv", msprof(rows))).timeline.spans
    by_name = {s.name: s for s in spans}
    waiting = by_name["Mul1"]
    assert (waiting.wait_ns, waiting.wait_cause) == (46_000, "event")
    assert waiting.waited_for == by_name["Add0"].task
    assert by_name["Mul2"].wait_cause == "resource", "nothing ended just before it"


def test_a_launch_by_the_host_and_a_recorded_wait_decide(tmp_path: Path) -> None:
    rows = [("Add0", "1", 0, 50_000), ("Mul0", "2", 0, 5_000), ("Mul1", "2", 51_000, 5_000),
            ("Mul2", "2", 90_000, 5_000)]  # fmt: skip
    write(tmp_path / "op_summary_1.csv", msprof(rows))
    meta = {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "Ascend Hardware"}}
    flow = {"cat": "HostToDevice", "name": "x", "id": "7"}
    wait = {"ph": "X", "name": "EVENT_WAIT", "pid": 9, "tid": 2, "ts": us(57_000), "dur": 30,
            "args": {"Task Type": "EVENT_WAIT_SQE"}}  # fmt: skip
    events = [
        meta, wait, {**flow, "ph": "s", "ts": us(49_000)}, {**flow, "ph": "f", "ts": us(51_000)}
    ]  # fmt: skip
    write(tmp_path / "msprof_1.json", json.dumps(events))
    by_name = {s.name: s for s in open_profile(tmp_path).timeline.spans}
    assert by_name["Mul1"].wait_cause == "resource", "the host issued it late"
    assert by_name["Mul2"].wait_cause == "event"


def test_tasks_of_one_stream_that_overlap_get_lanes_and_rounding_does_not(tmp_path: Path) -> None:
    rows = [("Add0", "1", 0, 10_003), ("Add1", "1", 10_000, 5_000), ("Add2", "1", 12_000, 9_000)]
    found = open_profile(write(tmp_path / "op_summary_1.csv", msprof(rows)))
    found.timeline.verify()
    assert [s.stream for s in found.timeline.spans] == [1, 1, 2]
    assert found.stream_names[0, 2] == "Stream 1 +1"
    assert found.steps[0].computing == 21_000


def test_kernels_without_a_stream_take_the_timelines_or_one_of_their_own(tmp_path: Path) -> None:
    short = "Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim\n"
    short += f"Add0,Add,AI_CORE,{us(0)},5,0,1\nhcom_x_,hcom_x_,HCCL,{us(0)},9,0,0\n"
    write(tmp_path / "kernel_details.csv", short)
    found = open_profile(tmp_path)
    assert set(found.stream_names.values()) == {"Computing", "Communication"}
    event = {"ph": "X", "name": "Add0", "args": {"Task Type": "AI_CORE"}, "ts": us(0), "dur": 5,
             "pid": 1, "tid": 11}  # fmt: skip
    write(tmp_path / "trace_view.json", json.dumps([event]))
    assert set(open_profile(tmp_path).stream_names.values()) == {"Stream 11", "Communication"}


# ------------------------------------------------------------------ broken and hostile


def test_broken_rows_are_counted_by_reason(tmp_path: Path) -> None:
    good = msprof([("Add0", "1", 0, 5_000)] * 8).splitlines()
    at = MSPROF.split(",").index("Task Duration(us)")

    def changed(line: str, column: int, text: str) -> str:
        cells = line.split(",")
        return ",".join([*cells[:column], text, *cells[column + 1 :]])

    bad = [changed(good[1], at, t) for t in ("nan", "inf", "-1", "1e999999999", "x", "")]
    bad += [changed(good[1], at - 1, t) for t in ("-5", "NaN", "9" * 400)] + ["0,1,2"]
    text = "\n".join([*good[:2], *bad, "", ",,,,"]) + "\n"
    found = open_profile(write(tmp_path / "op_summary_1.csv", text))
    assert len(found.timeline.spans) == 1
    assert dict(found.left_out) == {
        "the duration is no time": 5,
        "no duration": 1,
        "the start is no time": 3,
        "the row is cut off": 1,
    }
    assert "5 x the duration is no time" in profile_text(found)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("op_summary_1.csv", "", "is empty"),
        ("op_summary_1.csv", MSPROF + "\n", "no operator in it can be used"),
        ("op_summary_1.csv", "a,b\n1,2\n", "no column"),
        ("op_summary_1.csv", 'Op Name,OP Type,Task Duration(us)\n"a,b,1\n', "no column of start"),
        ("op_summary_1.csv", "x" * (5 << 20), "characters"),
        ("trace_view.json", "{}", "no traceEvents"),
        ("trace_view.json", "", "no trace"),
        ("trace_view.json", "[" * 100_000, "no JSON"),
        ("trace_view.json", '[{"ph": "X", nonsense ' + " " * 200 + "}]", "no JSON"),
        ("trace_view.json", "[]", "no operator in it can be used"),
        ("trace_view.json", '{"a": {"b": 1}, "traceEvents": 7}', "no traceEvents"),
        ("kernel_details.bin", "", "no profile"),
    ],
)
def test_files_that_are_none_say_so(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        open_profile(write(tmp_path / name, text))
    assert said in str(error.value)
    with pytest.raises(UsageError):
        open_profile(tmp_path)


def test_broken_files_beside_the_operators_are_told_and_no_more(tmp_path: Path) -> None:
    table = msprof([("Add0", "1", 0, 5_000), ("Add1", "1", 9_000, 5_000)]).encode()
    (tmp_path / "op_summary_1.csv").write_bytes(table.replace(b"Add1,", b"A\xff1,", 1))
    (tmp_path / "communication.json").write_bytes(b"\xff{")
    write(tmp_path / "step_trace_time.csv", "")
    write(tmp_path / "profiler_info.json", "[[[")
    found = open_profile(tmp_path)
    assert len(found.timeline.spans) == 2
    assert len(found.left_out) == 3


def test_places_that_are_not_there_say_so(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path / "a\0b", tmp_path):
        with pytest.raises(UsageError):
            open_profile(path)
    loop = tmp_path / "PROF_1"
    loop.mkdir()
    (loop / "again").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="holds no profile"):
        open_profile(tmp_path)


def test_events_with_odd_fields_do_no_harm(tmp_path: Path) -> None:
    odd = [
        None, 7, "x", [], {"ph": "X"}, {"ph": "X", "args": {"Task Type": "AI_CORE"}, "ts": None},
        {"ph": "X", "args": {"Task Type": "AI_CORE"}, "ts": "1e99999", "dur": 1},
        {"ph": "X", "args": {"Task Type": ["AI_CORE"]}, "ts": 5, "dur": 1, "pid": {}, "tid": []},
        {"ph": "M", "name": "process_name", "pid": [], "args": []},
        {"ph": "M", "name": "process_labels", "pid": 1, "args": {"labels": "NPU 99999999999999"}},
        {"ph": "s", "cat": "HostToDevice", "id": {"a": 1}, "ts": "x"},
        {"ph": "X", "name": "Add_1", "args": {"Task Type": "AI_CORE"}, "ts": "5.5\t", "dur": 2,
         "pid": 1, "tid": 2**70},
    ]  # fmt: skip
    found = open_profile(write(tmp_path / "trace_view.json", json.dumps(odd)))
    assert [s.name for s in found.timeline.spans] == ["Add_1"]
    assert found.left_out


def test_a_trace_that_was_cut_off_gives_what_is_there(tmp_path: Path) -> None:
    event = {"ph": "X", "name": "Add_1", "args": {"Task Type": "AI_CORE"}, "ts": "5.5", "dur": 2,
             "pid": 1, "tid": 2}  # fmt: skip
    text = json.dumps([event, {**event, "ts": "9.5"}])
    found = open_profile(write(tmp_path / "trace_view.json", text[: -len(text) // 4]))
    assert len(found.timeline.spans) == 1


def test_large_traces_are_read_across_chunks(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "name": f"Add_{i}", "pid": 1, "tid": i % 3, "ts": us(i * 2_000), "dur": 1.5,
         "args": {"Task Type": "AI_CORE", "text": 'ä"\\' * (i % 90)}}
        for i in range(12_000)
    ]  # fmt: skip
    path = write(tmp_path / "trace_view.json", json.dumps({"a": [1], "traceEvents": events}))
    assert path.stat().st_size > 3 << 20
    found = open_profile(path)
    assert len(found.timeline.spans) == 12_000
    assert found.steps[0].computing == 12_000 * 1_500


def test_many_tasks_that_all_overlap_take_no_quadratic_time(tmp_path: Path) -> None:
    rows = [("Add0", "1", 0, 0)] * 4_000 + [("Add1", "1", i, 10_000_000) for i in range(4_000)]
    found = open_profile(write(tmp_path / "op_summary_1.csv", msprof(rows)))
    assert len(found.timeline.streams) >= 4_000


def test_random_rows_keep_the_identities(tmp_path: Path) -> None:
    rng = random.Random(4)
    for case in range(20):
        rows = []
        for i in range(40):
            name = rng.choice(["Add", "hcom_allReduce_", "Mul"])
            rows.append(
                (f"{name}{i}", str(rng.randrange(3)), rng.randrange(10**6), rng.randrange(10**5))
            )
        found = open_profile(write(tmp_path / f"{case}" / "op_summary_1.csv", msprof(rows)))
        found.timeline.verify()
        (step,) = found.steps
        assert step.communication == step.overlapped + step.not_overlapped
        assert step.stage == step.computing + step.not_overlapped + step.free
        busy = set()
        for row in rows:
            if row[0].startswith("hcom"):
                busy.update(range(row[2] // 100, (row[2] + row[3]) // 100))
        assert step.communication == pytest.approx(100 * len(busy), abs=100 * 40 * 2)


# ------------------------------------------------------------------ the command


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(gec, list(arguments), standalone_mode=False)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return int(result.return_value or 0), result.output


def test_the_command_reports_and_writes(tmp_path: Path) -> None:
    source = write(tmp_path / "in" / "op_summary_1.csv", msprof([("Add0", "1", 0, 5_000)]))
    code, text = run("profile", "--from", str(source.parent))
    assert code == 0
    assert "Steps" in text
    code, text = run("profile", "--from", str(source), "--json")
    assert json.loads(text)["tasks"] == 1
    out, page = tmp_path / "out", tmp_path / "page.html"
    run("profile", "--from", str(source), "-o", str(out), "--format", "all", "--html", str(page))
    assert (out / "trace.json").is_file()
    assert list(out.glob("PROF_*/mindstudio_profiler_output/op_summary_*.csv"))
    assert list(out.glob("kineto/*.json"))
    assert "<title>op_summary_1.csv" in page.read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["m.onnx", "--from", "x"],
        ["--from", "x", "--batch", "4"],
        ["--from", "x", "--format", "chrome"],
        ["m.onnx", "--format", "perfetto"],
    ],
)
def test_wrong_usage_is_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(gec, ["profile", *arguments])
    assert result.exit_code == 2


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_step_is_a_list_where_the_terminal_is_narrow(tmp_path: Path, width: int) -> None:
    write(tmp_path / "kernel_details.csv", torch([("7", "Add0", "2", 0, 10_000)]))
    write(tmp_path / "step_trace_time.csv", STEPS + "\n7,10,0,0,0,0,10,0,0,0\n")
    text = profile_text(open_profile(tmp_path), width)
    steps = text[text.index("\nSteps") : text.index("\nStreams")]
    assert ("computing 10.00 us" in steps) == (width < 78)
    assert "own figures: the same" in steps
    if width == 80:
        assert max(map(len, steps.splitlines())) <= width


def test_simulated_ranks_agree_with_the_figures_written_beside_them(tmp_path: Path) -> None:
    import gecompiler as ge
    from gecompiler.trace_facts import compilation_recording

    options = {"device": "ascend910b", "topology": "mesh8"}
    model = ge.compile("gpt2", batch=2, seq=8, tp=2, pp=2, micro_batches=2, **options)
    for name, text in trace_files(compilation_recording(model.compilation), "msprof").items():
        write(tmp_path / name, text)
    rows = step_rows(open_profile(tmp_path))
    assert [row["rank"] for row in rows] == [0, 1, 2, 3]
    assert all(row["agrees"] for row in rows)
