"""LLaMA-7B on one to eight streams: the article's configurations and its table of advice."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.articles_table import Section, percent, ratio
from gecompiler.backends.device import Device, load_device
from gecompiler.ir.types import DType
from gecompiler.models import spec
from gecompiler.option_table import Options
from gecompiler.request import Controls
from gecompiler.sweep import Point, Row, Sweep, run_sweep
from gecompiler.sweep.job import make_job
from gecompiler.sweep.row import recommended

MODEL, DEVICE = "llama-7b", "ascend910"


class Published(NamedTuple):
    """A row of the article: milliseconds, samples a second as it says, and its speed-up."""

    batch: int
    seq: int
    streams: int
    latency_ms: float | None
    throughput: float | None
    speedup: float | None


PUBLISHED = (
    Published(8, 1024, 1, 4.2, 1250, 1.0),
    Published(8, 1024, 2, 2.8, 1780, 1.42),
    Published(8, 1024, 3, 2.2, 2100, 1.68),
    Published(8, 1024, 4, 2.0, 2200, 1.76),
    Published(8, 1024, 8, None, None, None),
    Published(32, 2048, 1, 18.5, 820, None),
    Published(32, 2048, 4, 9.2, 1450, 1.77),
    Published(1, 512, 1, None, None, None),
    Published(1, 512, 4, None, None, None),
)

STORY = (Published(8, 1024, 1, 4.2, None, None), Published(16, 1024, 1, 8.8, None, None))

ADVICE = (
    ("small batch, short sequence", 1, 512, "1", "compute"),
    ("standard inference", 8, 1024, "2", "memory"),
    ("large batch, long sequence", 32, 2048, "3-4", "bandwidth"),
)
"""What, batch, sequence, recommended streams, and the bottleneck it names."""

SIZES = {
    (1, 512): (1, 4, 0),
    (8, 1024): (1, 2, 3, 4, 8, 0),
    (16, 1024): (1, 2, 4),
    (32, 2048): (1, 4, 0),
}
"""Numbers of streams for each batch and sequence; 0 is automatic."""

Rows = Mapping[Point, Row]


def stream_sections(workers: int = 0) -> list[Section]:
    """All sections, for kernels as measured and for kernels that hide nothing."""
    device = load_device(DEVICE)
    with hides_nothing() as drawn:
        names = {device.hidden_fraction: DEVICE, 0.0: drawn}
        found = _compute(MODEL, tuple(names.values()), SIZES, workers)
        decode = _compute(f"{MODEL}:decode", (DEVICE,), {(1, 1024): (1, 4, 0)}, workers)
    sections = []
    for hidden, name in sorted(names.items(), reverse=True):
        sections += [curve(device, found, name, hidden), story(found, name, hidden)]
    return [disagreement(device), *sections, advice(found, decode)]


@contextmanager
def hides_nothing() -> Iterator[str]:
    """The device as the article draws it: its kernels hide none of their loads and stores."""
    figure = '{value: 0.0, kind: derived, source: "as the article draws a kernel"}'
    text = f"version: 1\nname: {DEVICE}-drawn\nextends: {DEVICE}\nfigures:\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.yaml"
        path.write_text(f"{text}  hidden_fraction: {figure}\n", encoding="utf-8")
        yield str(path)


def _compute(
    model: str,
    devices: tuple[str, ...],
    sizes: Mapping[tuple[int, int], tuple[int, ...]],
    workers: int,
) -> Rows:
    job = make_job(model, devices, Options(), Controls(), send=False)
    points = tuple(
        Point(device, batch, seq, "auto", count)
        for device in devices
        for (batch, seq), counts in sizes.items()
        for count in counts
    )
    with tempfile.TemporaryDirectory() as folder:
        rows = run_sweep(Sweep(job, points, Path(folder) / "journal", workers))
    failed = next((row for row in rows if row.error), None)
    if failed is not None:
        raise RuntimeError(f"{failed.point}: {failed.error}")
    return {row.point: row for row in rows}


def disagreement(device: Device) -> Section:
    """The article against itself, and against the least time its arithmetic needs."""
    rows = []
    single = {(p.batch, p.seq): p for p in PUBLISHED if p.streams == 1}
    for p in PUBLISHED:
        if p.latency_ms is None or p.throughput is None:
            continue
        base = single[p.batch, p.seq]
        implied = p.batch / p.latency_ms * 1000
        by_time = ratio(base.latency_ms or 0.0, p.latency_ms)
        by_rate = ratio(p.throughput, base.throughput or 1.0)
        floor = least_ms(device, p.batch, p.seq)
        rows.append(
            (f"{p.batch}x{p.seq}", p.streams, p.latency_ms, p.throughput, round(implied),
             by_time, by_rate, p.speedup, round(floor, 1), f"{floor / p.latency_ms:.0f}x")
        )  # fmt: skip
    return Section(
        "The first article against itself and against arithmetic",
        ("batch x seq", "streams", "ms", "throughput", "batch / ms", "speed-up by ms",
         "by throughput", "as printed", "least ms", "short by"),
        tuple(rows),
        (
            "The article's latencies and throughputs disagree with each other: batch / latency is "
            "1.5 to 2.4 times the printed throughput, and speed-ups by latency (1.50, 1.91, 2.10) "
            "are not those printed, which are ratios of its throughputs.",
            "Nor are they reachable: a whole 7B model computes 2 operations a parameter and token, "
            f"which at this device's peak takes 'least ms' at least ({parameters() / 1e9:.2f} G "
            "parameters, attention not counted). The latencies fit about one hundredth of it.",
            "So only ratios and the shape of the curve are compared below.",
        ),
    )  # fmt: skip


def parameters() -> float:
    """Weights that every token is multiplied with: all but the embedding's table."""
    s = spec(MODEL)
    layer = s.hidden * (2 * s.hidden + 2 * s.kv_heads * (s.hidden // s.heads))
    layer += 3 * s.hidden * s.intermediate
    return float(s.layers * layer + s.hidden * s.vocabulary)


def least_ms(device: Device, batch: int, seq: int) -> float:
    """The matrix products' time at the peak of all cores."""
    peak = device.cube_flop_per_us(DType.F16) * device.cube_cores
    return 2.0 * parameters() * batch * seq / peak / 1000


def curve(device: Device, found: Rows, name: str, hidden: float) -> Section:
    """The stream curve beside the published ratios."""
    rows = []
    for p in PUBLISHED:
        row = found[Point(name, p.batch, p.seq, "auto", p.streams)]
        rows.append(
            (f"{p.batch}x{p.seq}", p.streams, row.used, p.latency_ms, p.speedup,
             round(row.time_us / 1000, 2), round(row.speedup, 3), round(row.samples_per_s, 1),
             row.bottleneck, " ".join(row.warnings))
        )  # fmt: skip
    most = max(r.single_stream_us / r.lower_bound_us for pt, r in found.items()
               if pt.device == name and pt.streams == 4 and pt.group[1:] == (8, 1024))  # fmt: skip
    return Section(
        f"Streams of {MODEL}, kernels that hide {hidden:.0%} of their loads and stores "
        f"(hidden_fraction {hidden:g})",
        ("batch x seq", "streams", "used", "published ms", "published", "ms", "speed-up",
         "samples/s", "bound by", "warnings"),
        tuple(rows),
        (
            f"At 8x1024 no schedule is faster than {most:.2f} times one stream: the lower bound "
            "of the binding resource. The article's 1.42, 1.68 and 1.76 would need kernels that "
            "leave more of the device idle than the profile's do."
            if hidden
            else "With nothing hidden a kernel's loads leave the cores idle, which another "
            f"stream fills: up to {most:.2f} times at 8x1024. This is the figure that decides.",
            f"{device.name} has {device.max_streams} queues: 8 streams are {device.max_streams}, "
            "with a warning.",
        ),
    )  # fmt: skip


def story(found: Rows, name: str, hidden: float) -> Section:
    """Twice the batch: how much longer, on one stream and on several."""
    rows: list[tuple[object, ...]] = [
        ("published, one stream", STORY[0].latency_ms, STORY[1].latency_ms,
         ratio(STORY[1].latency_ms or 0.0, STORY[0].latency_ms or 1.0))
    ]  # fmt: skip
    for streams in (1, 2, 4):
        small, large = (found[Point(name, b, 1024, "auto", streams)] for b in (8, 16))
        rows.append(
            (f"modelled, {streams} stream(s)", round(small.time_us / 1000, 2),
             round(large.time_us / 1000, 2), ratio(large.time_us, small.time_us))
        )  # fmt: skip
    return Section(
        f"The opening story: batch 8 against 16 (hidden_fraction {hidden:g})",
        ("", "batch 8, ms", "batch 16, ms", "times"),
        tuple(rows),
        (
            "Twice the batch is twice the arithmetic, so twice the time is what one should "
            "expect of a model bound by it; the article's 2.10 is near, and streams do not "
            "change it. Less than twice needs a batch so small that weights bind.",
        ),
    )


def advice(found: Rows, decode: Rows) -> Section:
    """The table of recommended streams."""
    best = recommended(list(found.values()))
    rows: list[tuple[object, ...]] = []
    for what, batch, seq, published, bottleneck in ADVICE:
        chosen = found[Point(DEVICE, batch, seq, "auto", 0)]
        fastest = min((r for r in found.values() if r.point.group == (DEVICE, batch, seq)),
                      key=lambda r: r.time_us)  # fmt: skip
        rows.append(
            (what, f"{batch}x{seq}", published, best[DEVICE, batch, seq], chosen.used,
             percent(1 - fastest.time_us / fastest.single_stream_us), bottleneck,
             fastest.bottleneck)
        )  # fmt: skip
    chosen = decode[Point(DEVICE, 1, 1024, "auto", 0)]
    fastest = min(decode.values(), key=lambda r: r.time_us)
    rows.append(
        ("streaming generation", "1x1, 1024 past", "3",
         recommended(list(decode.values()))[DEVICE, 1, 1024], chosen.used,
         percent(1 - fastest.time_us / fastest.single_stream_us), "IO", fastest.bottleneck)
    )  # fmt: skip
    return Section(
        "Recommended streams",
        ("use", "batch x seq", "published", "recommended", "auto takes", "most gain",
         "published bottleneck", "bound by"),
        tuple(rows),
        ("Recommended are the fewest streams within 5% of the fastest schedule found.",),
    )  # fmt: skip
