"""The fidelity benchmark: what it reads, what it leaves out, and how it splits and scores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.fidelity import COPY, as_json, main  # noqa: E402
from benchmarks.fidelity import gather as gather_rows  # noqa: E402
from benchmarks.fidelity_common import LeaveOut, device_of  # noqa: E402
from benchmarks.fidelity_fit import search  # noqa: E402
from benchmarks.fidelity_layers import gather  # noqa: E402
from benchmarks.fidelity_readers import read  # noqa: E402
from benchmarks.fidelity_score import (  # noqa: E402
    baseline,
    device_for,
    roofline_us,
    scores,
    seen_by_fits,
    was_seen,
)

GEMM = "device,dtype,m,n,k,latency_ms,physically_possible\n"


def test_the_copy_in_the_repository_meets_its_bars() -> None:
    found = read(COPY)
    scored = scores(found.rows)
    gemm = scored["aiconfigurator_gemm_ms"]
    assert gemm["gemm_over_50us"].mape_percent <= 7
    assert gemm["gemm_under_50us"].mape_percent <= 14
    assert scored["aiconfigurator_attention_ms"]["attention_prefill"].mape_percent <= 10
    assert scored["aiconfigurator_attention_ms"]["attention_decode"].mape_percent <= 15
    assert scored["llmservingsim_attention_ms"]["attention_prefill"].mape_percent <= 9
    assert scored["llmservingsim_attention_ms"]["attention_decode"].mape_percent <= 15
    assert scored["deepgemm_h800_fp8"]["gemm_over_50us"].mape_percent <= 6
    for name in ("aiconfigurator_nccl_ms", "llmcompass_measured", "vidur_network_median_ms"):
        assert scored[name]["collective_over_1mb"].mape_percent <= 12
    assert scored["aiconfigurator_nccl_ms"]["collective_under_1mb"].mape_percent <= 25
    for families in (scored["llmcompass_measured"], scored["vidur_mlp_median_ms"]):
        for family in ("norm", "elementwise", "softmax"):
            assert family not in families or families[family].mape_percent <= 17
    for families in scored.values():
        for family, score in families.items():
            if family.startswith("gemm"):
                assert score.mape_percent < score.roofline_mape_percent


def test_impossible_rows_and_unknown_devices_are_counted(tmp_path: Path) -> None:
    (tmp_path / "aiconfigurator_gemm_ms.csv").write_text(
        GEMM
        + "A100-SXM4-80GB,bfloat16,128,256,512,0.01,True\n"
        + "A100-SXM4-80GB,bfloat16,128,256,512,0.001,False\n"
        + "B200,bfloat16,128,256,512,0.01,True\n"
        + "A100-SXM4-80GB,int4,128,256,512,0.01,True\n"
    )
    (tmp_path / "unknown.csv").write_text("a,b\n1,2\n")
    found = read(tmp_path)
    assert len(found.rows) == 1
    assert found.skipped["aiconfigurator_gemm_ms"] == {
        "physically impossible": 1,
        "no profile of B200": 1,
        "element type int4": 1,
    }


def test_a_shape_is_in_one_half_whatever_its_device_and_time(tmp_path: Path) -> None:
    lines = [
        f"{device},bfloat16,{m},256,512,{ms},True\n"
        for device in ("A100-SXM4-80GB", "H100-SXM")
        for ms in (0.01, 0.2)
        for m in range(16, 416)
    ]
    (tmp_path / "aiconfigurator_gemm_ms.csv").write_text(GEMM + "".join(lines))
    halves: dict[str, set[bool]] = {}
    for row in read(tmp_path).rows:
        halves.setdefault(row.shape, set()).add(row.fitted)
    assert all(len(half) == 1 for half in halves.values())
    share = sum(half == {True} for half in halves.values()) / len(halves)
    assert 0.4 <= share <= 0.5


def test_no_family_shows_a_fit_more_than_half_of_its_shapes() -> None:
    halves: dict[tuple[str, str], tuple[set[str], set[str]]] = {}
    for row in read(COPY).rows:
        halves.setdefault((row.data_set, row.family), (set(), set()))[row.fitted].add(row.shape)
    for held, seen in halves.values():
        assert len(seen) <= len(held)
        assert not seen & held


@pytest.mark.parametrize("count", range(1, 5))
def test_few_rows_are_reported_too(tmp_path: Path, count: int) -> None:
    for first in range(8):
        lines = [
            f"h200_sxm,bfloat16,{first * 8 + m},64,64,0.01,True\n" for m in range(1, count + 1)
        ]
        (tmp_path / "aiconfigurator_gemm_ms.csv").write_text(GEMM + "".join(lines))
        found = scores(read(tmp_path).rows)["aiconfigurator_gemm_ms"]["gemm_under_50us"]
        assert found.n >= count - count // 2


def test_the_published_form() -> None:
    found = read(COPY)
    rows = [r for r in found.rows if r.data_set == "deepgemm_h800_fp8"]
    data = as_json(found, scores(rows))
    assert set(data) == {"deepgemm_h800_fp8", "skipped"}
    for family in data["deepgemm_h800_fp8"].values():
        assert set(family) == {
            "n",
            "mape_percent",
            "median_ape_percent",
            "roofline_mape_percent",
            "baseline_mape_percent",
        }
    json.dumps(data)


def test_the_baseline_finds_an_efficiency_and_a_constant() -> None:
    points = [(roof, 1.25 * roof + 4.0) for roof in (0.5, 1.0, 3.0, 10.0, 100.0, 500.0)]
    factor, constant = baseline(points)
    error = max(abs(factor * roof + constant - us) / us for roof, us in points)
    assert error < 0.2


def test_the_roofline_is_the_longest_of_three() -> None:
    row = next(r for r in read(COPY).rows if r.shape == "8192,8192,8192" or r.case.work.flop > 1e12)
    device = device_for(row.device)
    peak = device.cube_flop_per_us(row.case.work.dtype) * device.cube_cores
    assert roofline_us(row.case.work, device) == pytest.approx(row.case.work.flop / peak)


def test_the_search_finds_a_least_value_within_bounds() -> None:
    def loss(at: dict[str, float]) -> float:
        return abs(at["a"] - 3.0) + abs(at["b"] - 50.0)

    found = search(loss, {"a": 1.0, "b": 1.0}, {"a": (0.0, 10.0), "b": (0.0, 20.0)})
    assert found["a"] == pytest.approx(3.0, rel=0.05)
    assert found["b"] == pytest.approx(20.0)


@pytest.mark.slow
def test_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fidelity", "--data", str(COPY), "--json"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "skipped" in json.loads(done.stdout)


def test_files_of_other_names_are_known_by_their_columns_in_any_order(tmp_path: Path) -> None:
    rows = [(m, 256, 512) for m in (16, 64, 256, 1024)]
    known = "".join(f"H200-SXM,bfloat16,{m},{n},{k},0.01,True\n" for m, n, k in rows)
    turned = "".join(f"0.01,{k},{n},{m},H200-SXM,bfloat16\n" for m, n, k in rows)
    (tmp_path / "aiconfigurator_gemm_ms.csv").write_text(GEMM + known)
    (tmp_path / "of_my_own.csv").write_text("latency_ms,k,n,m,device,dtype\n" + turned)
    found = read(tmp_path)
    assert {r.data_set for r in found.rows} == {"aiconfigurator_gemm_ms", "of_my_own"}
    device = device_for("h200")
    times = [[r.kernels_us(device) for r in found.rows if r.data_set == d] for d in found.skipped]
    assert times[0] == times[1]
    assert len(times[0]) == len(rows)


def test_what_cannot_be_read_is_counted_and_never_an_error(tmp_path: Path) -> None:
    (tmp_path / "aiconfigurator_gemm_ms.csv").write_text(
        "device,dtype,m,n,k\nA100-SXM4-80GB,bfloat16,1,2,3\n"
    )
    (tmp_path / "deepgemm_h800_fp8.csv").write_text(
        "device,dtype,kind,groups,M,N,K,time_us\n"
        "H800_SXM,fp8,dense,1,64,128,x,9.4\nH800_SXM,fp8,dense,1,64,128,128,0\n"
        "H100 PCIe,fp8,dense,1,64,128,128,5\nA100-PCIE-40GB,fp8,dense,1,64,128,128,5\n"
    )
    (tmp_path / "empty.csv").write_text("")
    found = read(tmp_path)
    assert not found.rows
    assert found.skipped == {
        "aiconfigurator_gemm_ms": {"no column latency_ms": 1},
        "deepgemm_h800_fp8": {
            "sizes or times that are no numbers": 1,
            "no time": 1,
            "no profile of H100 PCIe": 1,
            "no profile of A100-PCIE-40GB": 1,
        },
    }


def test_marks_line_ends_and_blanks_of_other_systems(tmp_path: Path) -> None:
    lines = ["A100-SXM4-80GB,bfloat16,128,256,512,0.01,True", "", "A100,bf16,16,256.0,512,0.01,"]
    text = GEMM + "\n".join(lines) + "\n"
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / "b.csv").write_bytes(text.replace("\n", "\r\n").encode("utf-8-sig"))
    (tmp_path / "c.csv").write_text(text.replace(",", " , "))
    found = read(tmp_path)
    shapes = {name: [r.shape for r in found.rows if r.data_set == name] for name in "abc"}
    assert shapes == {key: ["128,256,512", "16,256,512"] for key in "abc"}
    assert not any(found.skipped.values())


def test_rows_of_nonsense_are_counted(tmp_path: Path) -> None:
    row = "A100,bfloat16,{},256,512,{},True"
    nonsense = [
        ("0", "1"),
        ("-1", "1"),
        ("1.5", "1"),
        ("nan", "1"),
        ("1e400", "1"),
        ("9" * 400, "1"),
    ]
    nonsense += [("8", "nan"), ("8", "inf"), ("8", "-1"), ("8", "")]
    lines = [row.format(m, ms) for m, ms in nonsense]
    lines += ["A100,bfloat16", row.format(8, 1) + ",more", "A100,fp8,8,256,512,1,True"]
    lines += [row.format(8, 1).replace("True", "false"), row.format("8\0", 1)]
    (tmp_path / "aiconfigurator_gemm_ms.csv").write_text(GEMM + "\n".join(lines) + "\n")
    long = 'device,dtype,m,n,k,latency_ms\n"' + 3 * ("A" * 90_000 + "\n")
    (tmp_path / "long.csv").write_text(long)
    (tmp_path / "folder.csv").mkdir()
    found = read(tmp_path)
    assert [r.shape for r in found.rows] == ["8,256,512"]
    assert found.skipped["aiconfigurator_gemm_ms"] == {
        "sizes or times that are no numbers": len(nonsense) - 1,
        "no time": 1,
        "another number of cells than the header": 2,
        "element type fp8": 1,
        "physically impossible": 1,
    }
    assert sum(found.skipped["long"].values()) == 1


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("h100_sxm", "h100"),
        ("NVIDIA H200", "h200"),
        ("H800_SXM", "h800"),
        ("A100x4_NVLink3", "a100"),
        ("Ascend910B2", "ascend910b2"),
        ("Ascend 910B4", "ascend910b4"),
        ("Ascend910B x8", "ascend910b2"),
        ("Ascend-A3(24 cores)", "ascend910c"),
        ("ascend310p", "ascend310p"),
        *((other, None) for other in ("A1000", "A100-PCIE-40GB", "H100 NVL", "gb200", "B200", "")),
        *(
            (other, None)
            for other in ("a100_pairwise_nvlink", "Ascend910B5", "Ascend910ProB", "MI210", "4xA100")
        ),
    ],
)
def test_devices_by_their_names(name: str, profile: str | None) -> None:
    if profile is not None:
        assert device_of(name) == profile
        return
    with pytest.raises(LeaveOut):
        device_of(name)


def test_the_roofline_of_a_gather_reads_the_rows_it_takes() -> None:
    work = gather(128_256, 4096, 8).work
    assert work.bytes == 2 * 8 * 4096 * 2 + 8 * 8


def test_a_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["fidelity", "--data", "no-such-folder"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2


def test_the_copy_does_not_report_what_fits_have_seen() -> None:
    found, seen = gather_rows(COPY), seen_by_fits()
    assert any(row.fitted for row in found.rows)
    assert not any(was_seen(row, seen) for row in found.rows if not row.fitted)
    left_out = [reasons["seen by a fit to the whole data"] for reasons in found.skipped.values()]
    assert sum(left_out) == len(read(COPY).rows) - len(found.rows)
