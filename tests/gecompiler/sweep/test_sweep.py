from __future__ import annotations

import csv
import dataclasses
import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from command_help import Gec

import gecompiler as ge
from gecompiler.ir.errors import UsageError
from gecompiler.option_table import Options
from gecompiler.request import Controls
from gecompiler.sweep import Point, Row, Sweep, grid, local, run_sweep
from gecompiler.sweep.job import Job, evaluate, make_job
from gecompiler.sweep.journal import Journal
from gecompiler.sweep.output import csv_text, print_rows
from gecompiler.sweep.points import Cards, numbers
from gecompiler.sweep.row import COLUMNS, recommended, table

POINTS = grid(("ascend910",), (1, 4), (8, 32), ("auto", "single"), (1, 2))


@pytest.fixture(scope="module")
def job(tiny_path: Path) -> Job:
    return make_job(str(tiny_path), ("ascend910",), Options(), Controls(), send=False)


@pytest.fixture(scope="module")
def rows(job: Job) -> list[Row]:
    return [evaluate(job, point) for point in POINTS]


def test_a_point_is_what_compiling_it_gives(tiny_path: Path, rows: list[Row]) -> None:
    row = next(r for r in rows if r.point == Point("ascend910", 4, 32, "auto", 2))
    report = ge.compile(tiny_path, batch=4, seq=32, num_streams=2).as_dict()
    assert row.time_us == report["schedule"]["makespan_us"]
    assert row.speedup == pytest.approx(report["schedule"]["speedup"])
    assert row.used == report["streams"]["used"]
    assert row.bottleneck == report["schedule"]["binding_resource"]
    assert row.samples_per_s == pytest.approx(4e6 / report["schedule"]["period_us"])
    assert row.tokens_per_s == pytest.approx(32 * row.samples_per_s)


@pytest.mark.parametrize("workers", [1, 2])
def test_same_bytes_on_any_number_of_cores(
    job: Job, rows: list[Row], tmp_path: Path, workers: int
) -> None:
    found = run_sweep(Sweep(job, POINTS, tmp_path / "j", workers))
    assert csv_text(found) == csv_text(rows)


def test_finished_points_are_not_computed_again(
    job: Job, rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path / "j", job.key) as journal:
        for row in rows[:5]:
            journal.add(row)
    seen: list[tuple[int, int]] = []
    found = run_sweep(
        Sweep(job, POINTS, tmp_path / "j", 1), lambda done, total: seen.append((done, total))
    )
    assert seen[0] == (5, len(POINTS))
    assert len(seen) == len(POINTS) - 5 + 1
    assert csv_text(found) == csv_text(rows)


def test_interruption_loses_nothing(job: Job, rows: list[Row], tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    for workers in (1, 2):
        path = tmp_path / f"j{workers}"
        with pytest.raises(KeyboardInterrupt):
            run_sweep(Sweep(job, POINTS, path, workers), stop)
        assert len(Journal(path, job.key).rows) == 3
        assert csv_text(run_sweep(Sweep(job, POINTS, path, workers))) == csv_text(rows)


def test_half_a_line_is_dropped_and_the_rest_kept(
    job: Job, rows: list[Row], tmp_path: Path
) -> None:
    path = tmp_path / "j"
    with Journal(path, job.key) as journal:
        for row in rows[:4]:
            journal.add(row)
    whole = path.read_bytes()
    for cut in range(2, 40, 7):
        path.write_bytes(whole[:-cut])
        assert list(Journal(path, job.key).rows) == [r.point for r in rows[:3]]
    path.write_bytes(whole[:-5])
    with Journal(path, job.key) as journal:
        journal.add(rows[4])
    assert len(Journal(path, job.key).rows) == 4
    path.write_bytes(whole.replace(b'"used":1', b'"used":7', 1))
    assert len(Journal(path, job.key).rows) == 3


def test_journal_of_another_sweep_is_refused(job: Job, rows: list[Row], tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path, job.key) as journal:
        journal.add(rows[0])
    others = [
        dataclasses.replace(job, digest="another model"),
        dataclasses.replace(job, options={**job.options, "overlap_ratio": 0.1}),
        dataclasses.replace(job, devices=(("ascend910", "other figures"),)),
        dataclasses.replace(job, assignment={"MatMul": 1}),
    ]
    for other in others:
        with pytest.raises(UsageError, match="another sweep"):
            Journal(path, other.key)
        assert not Journal(path, other.key, fresh=True).rows
    (tmp_path / "text").write_text("hello\n")
    with pytest.raises(UsageError, match="not the journal"):
        Journal(tmp_path / "text", job.key)


def test_a_wider_grid_takes_over_what_is_there(job: Job, tmp_path: Path) -> None:
    path = tmp_path / "j"
    run_sweep(Sweep(job, POINTS[:4], path, 1))
    seen: list[int] = []
    run_sweep(Sweep(job, POINTS[:6], path, 1), lambda done, _: seen.append(done))
    assert seen == [4, 5, 6]


DIES_AT_ITS_THIRD_POINT = """
import os, signal, sys
from gecompiler.cli import main
from gecompiler.sweep.journal import Journal
def add(self, row, add=Journal.add, count=[]):
    add(self, row)
    count.append(row)
    if len(count) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
Journal.add = add
main(sys.argv[1:])
"""


def test_kill_loses_nothing(tiny_path: Path, tmp_path: Path, rows: list[Row]) -> None:
    arguments = [
        *("sweep", str(tiny_path), "--batch", "1,4", "--seq", "8,32", "--strategy", "auto,single"),
        *("--streams", "1,2", "--workers", "2", "--journal", "j", "-o", "s.csv", "-q"),
    ]
    dies = [sys.executable, "-c", DIES_AT_ITS_THIRD_POINT, *arguments]
    process = subprocess.run(dies, cwd=tmp_path, check=False)
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "j").read_bytes().count(b"\n") == 1 + 3
    command = [sys.executable, "-m", "gecompiler", *arguments]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert (tmp_path / "s.csv").read_text() == csv_text(rows)


def test_recommended_streams_are_the_fewest_that_are_nearly_fastest() -> None:
    def row(streams: int, us: float) -> Row:
        return Row("d", 1, 8, "auto", streams, used=streams, time_us=us, single_stream_us=100.0)

    assert list(recommended([row(2, 70.0), row(3, 68.0), row(4, 67.5)]).values()) == [2]
    assert list(recommended([row(2, 98.0)]).values()) == [1]
    assert recommended([dataclasses.replace(row(2, 1.0), error="no")]) == {}


def test_a_point_that_fails_is_a_row_and_the_others_go_on(
    gec: Gec, tiny_path: Path, tmp_path: Path
) -> None:
    figure = "memory_gib: {value: 0.001, kind: derived, source: made up}"
    (tmp_path / "small.yaml").write_text(
        f"version: 1\nname: small\nextends: ascend910\nfigures:\n  {figure}\n"
    )
    (tmp_path / "strict.yaml").write_text("options: {strict_memory: true}\n")
    given = ("--device", "small.yaml", "--assign", "strict.yaml", "--workers", 1)
    code, out, _ = gec("sweep", tiny_path, "--batch", "1,64", "--seq", 64, *given)
    assert code == 1
    assert out.count("failed") == 2  # in the table, and why below it
    assert "memory" in out
    assert list(tmp_path.glob("*.sweep-journal"))
    code, _, err = gec("sweep", "llama-7b", "--batch", 1, "--seq", 10**7, "--workers", 1, "-q")
    assert code == 1
    assert "1 point failed" in err


def test_command_writes_csv_json_and_plot(gec: Gec, tiny_path: Path, tmp_path: Path) -> None:
    arguments = ("sweep", tiny_path, "--batch", "1,2", "--seq", 16, "--streams", "1,2,auto")
    code, out, _ = gec(*arguments, "--workers", 1, "-o", "s.csv", "--plot", "s.svg", "--json")
    assert code == 0
    data = json.loads(out)
    assert [d["streams"] for d in data] == [1, 2, "auto"] * 2
    read = list(csv.DictReader(io.StringIO((tmp_path / "s.csv").read_text())))
    assert tuple(read[0]) == COLUMNS
    assert [float(r["time_us"]) for r in read] == [d["time_us"] for d in data]
    first = (tmp_path / "s.svg").read_bytes()
    assert b"<svg" in first
    assert not list(tmp_path.glob("*journal*"))
    gec(*arguments, "--workers", 1, "--plot", "s.svg", "-q")
    assert (tmp_path / "s.svg").read_bytes() == first
    gec(*arguments, "--workers", 1, "--plot", "s.png", "-q")
    assert (tmp_path / "s.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch", "1,x"], "--batch"),
        (["--batch", "0"], "--batch"),
        (["--seq", "-4"], "--seq"),
        (["--streams", "two"], "--streams"),
        (["--streams", ","], "--streams"),
        (["--strategy", "autoo"], "auto"),
        (["--device", "ascend911"], "ascend910"),
        (["--plot", "s.gif"], "plot"),
        (["--journal", "no/such\0name"], "gec"),
        (["--workers", "0"], "--workers"),
        (["--workers", "2", "--cluster", "tcp://x:1"], "--cluster"),
        (["--assign", "none.yaml"], "none.yaml"),
    ],
)
def test_mistakes_have_a_message_and_a_code(
    gec: Gec, tiny_path: Path, arguments: list[str], said: str
) -> None:
    code, _, err = gec("sweep", tiny_path, *arguments)
    assert code == 2
    assert said in err
    assert "Traceback" not in err
    assert "internal error" not in err


def test_a_model_that_is_not_there(gec: Gec) -> None:
    code, _, err = gec("sweep", "llama-8b")
    assert code == 2
    assert "llama-7b" in err


def test_lists_are_read_without_repetition() -> None:
    assert numbers("8, 1,8", "batch") == (8, 1)
    assert numbers("auto,2", "streams") == (0, 2)
    assert numbers(None, "batch") == ()


def test_a_journal_is_of_one_sweep_at_a_time(job: Job, rows: list[Row], tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path, job.key) as first:
        first.add(rows[0])
        with pytest.raises(UsageError, match="another sweep"), Journal(path, job.key):
            pass
        first.add(rows[1])
    with Journal(path, job.key) as after:
        assert list(after.rows) == [rows[0].point, rows[1].point]


@pytest.mark.parametrize("text", ["1,,8", "", ",", "1,", "0", "-1", "1-8", "1.5", "8 16", "1e3"])
def test_bad_lists_are_mistakes(text: str) -> None:
    with pytest.raises(UsageError):
        numbers(text, "batch")


def test_a_point_that_kills_its_process_fails_alone(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed workers stand in for the system's out-of-memory killer."""
    points = grid(("ascend910",), (1, 2, 3, 4, 5, 6), (8,), ("single",), (1,))
    fatal = points[1]

    def pool(job: Job, given: Sequence[Point], workers: int) -> Iterator[Row]:
        for point in given[: given.index(fatal) if fatal in given else None]:
            yield Row.at(point)
        if fatal in given:
            raise BrokenProcessPool

    monkeypatch.setattr(local, "_pool", pool)
    found = {row.point: row.error for row in local.on_cores(job, points, 2)}
    assert set(found) == set(points)
    assert [p for p, error in found.items() if error] == [fatal]


def test_what_goes_wrong_inside_is_a_row_too(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    point = grid(("ascend910",), (1,), (8,), ("single",), (1,))[0]
    for error in (MemoryError(), ZeroDivisionError("division by zero")):

        def fail(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr("gecompiler.driver.compile_source", fail)
        assert evaluate(job, point).error in (
            "out of memory",
            "internal error: ZeroDivisionError: division by zero",
        )


def test_a_decode_step_takes_one_token_of_each_sample() -> None:
    job = make_job("gpt2:decode", ("ascend910",), Options(), Controls(), send=False)
    row = evaluate(job, Point("ascend910", 4, 64, "single", 1))
    assert row.tokens == 1
    assert row.tokens_per_s == row.samples_per_s


def test_sizes_that_were_not_asked_for_are_those_it_ran_at(tiny_path: Path) -> None:
    job = make_job(str(tiny_path), ("ascend910",), Options(), Controls(), send=False)
    row = evaluate(job, Point("ascend910", 0, 0, "single", 1))
    sizes = ge.compile(tiny_path, stream_strategy="single", num_streams=1).as_dict()["model"]
    (data,) = table([row])
    assert (data["batch"], data["seq"]) == (sizes["sizes"]["batch"], sizes["sizes"]["seq"])


def test_a_bottleneck_is_named_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        Row("d", 1, 8, "auto", 1, used=1, time_us=5.0, bottleneck=name)
        for name in ("streams", "events", "cube")
    ]
    print_rows(rows)
    out = capsys.readouterr().out
    assert "work per stream" in out
    assert "dependencies, syncs" in out
    assert "cube" in out


def test_a_table_of_many_columns_breaks_no_word(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        Row(device, 8, 512, "auto", 0, cards=Cards(dp=4, tp=2), used=2, chosen="collectives_apart",
            time_us=5.0, single_stream_us=5.0, bottleneck="events")
        for device in ("ascend910", "ascend910b")
    ]  # fmt: skip
    print_rows(rows)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    for word in ("device", "strategy", "bottleneck", "recommended"):
        assert word in lines[0].split()
    assert all("auto (collectives_apart)" in line for line in lines[1:])
