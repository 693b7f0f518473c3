"""What a user can do about it: short remedies, each from a figure of the report."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gecompiler.lang import translate

if TYPE_CHECKING:
    from gecompiler.driver import Compilation


@dataclass(frozen=True, slots=True)
class Remedy:
    """One remedy in the languages there are."""

    en: str
    zh: str


Rule = Callable[["Compilation", dict[str, Any]], Remedy | None]


def advice(
    compilation: Compilation, report: dict[str, Any], lang: Literal["en", "zh"] = "en"
) -> list[str]:
    """The remedies that apply, the most telling first."""
    found = (rule(compilation, report) for rule in RULES)
    return [remedy.zh if lang == "zh" else remedy.en for remedy in found if remedy is not None]


def host_bound(compilation: Compilation, report: dict[str, Any]) -> Remedy | None:
    """The host issues tasks one by one, and the device waits for it."""
    host, makespan = report["latency"]["host_us"], report["schedule"]["makespan_us"]
    share = host / makespan if makespan else 0.0
    if share < 0.2:
        return None
    return Remedy(
        f"the device waits for the host, which issues tasks one by one, {share:.0%} of the time: "
        "let the device issue them (--launch sunk), or fewer, larger ops; streams do not help",
        f"{share:.0%} 的时间里设备在等待 Host 逐个下发任务：改为整图下沉（--launch sunk），"
        "或减少算子数、合并成更大的算子；增加流没有用",
    )


def launch_bound(compilation: Compilation, report: dict[str, Any]) -> Remedy | None:
    """Small tasks: the time goes into starting them, and into the gaps between them."""
    latency, makespan = report["latency"], report["schedule"]["makespan_us"]
    spent = latency["running_us"].get("fixed", 0.0) + latency["between_us"]
    share = spent / makespan if makespan else 0.0
    if share < 0.3 or host_bound(compilation, report) is not None:
        return None
    streams, ops = report["streams"]["used"], report["model"]["ops_compiled"]
    return Remedy(
        f"{share:.0%} of the time goes into starting tasks and the gaps between them "
        f"({streams} stream(s), {ops} ops): a larger batch or fewer, larger ops help; "
        "more streams only while the tasks are independent",
        f"{share:.0%} 的时间花在启动任务和任务间隔上（{streams} 条流，{ops} 个算子）："
        "加大 batch，或减少算子数、合并成更大的算子；只有任务彼此独立时，增加流才有用",
    )


def memory_bound(compilation: Compilation, report: dict[str, Any]) -> Remedy | None:
    """HBM is busy most of the time."""
    used = report["resources"]["hbm_utilisation"]
    if used < 0.6:
        return None
    return Remedy(
        f"HBM is busy {used:.0%} of the time: two memory-bound kernels side by side gain "
        "nothing; a larger batch (weights are read once for all), smaller element types or "
        "more fusion help",
        f"HBM 有 {used:.0%} 的时间在忙：两个访存受限的算子并行没有收益；"
        "加大 batch（权重只读一次）、使用更小的数据类型或更多融合才有效",
    )


def compute_bound(compilation: Compilation, report: dict[str, Any]) -> Remedy | None:
    """The cube cores are busy most of the time."""
    used = report["resources"]["cube_utilisation"]
    if used < 0.7:
        return None
    return Remedy(
        f"the cube cores are busy {used:.0%} of the time: streams can hide at most the rest; "
        "only less arithmetic (smaller element types, sparsity, a smaller batch) is faster",
        f"cube 核有 {used:.0%} 的时间在忙：多流最多只能掩盖剩余部分；"
        "只有减少计算量（更小的数据类型、稀疏、更小的 batch）才能更快",
    )


def unfused(compilation: Compilation, report: dict[str, Any]) -> Remedy | None:
    """Attention that was not fused, and why."""
    refused = [s for s in report["attention"]["sites"] if s["status"] == "refused"]
    if not refused:
        return None
    first = refused[0]
    return Remedy(
        f"{len(refused)} attention(s) not fused; {first['name']}: {first['reason']}",
        f"{len(refused)} 处注意力未融合；{first['name']}：{translate(first['reason'], 'zh')}",
    )


def streams_help(compilation: Compilation, report: dict[str, Any]) -> Remedy | None:
    """Whether further streams are worth having, where several were tried."""
    schedule, used = report["schedule"], report["streams"]["used"]
    tried = max((row["streams"] for row in schedule["candidates"]), default=1)
    if tried < 2 or used < 1:
        return None
    speedup = schedule["speedup"]
    if "parallel" in report and speedup < 1.005:
        return None
    if used == 1:
        return Remedy(
            "a second stream is not worth its syncs here: nothing on more streams was enough "
            "faster than one",
            "这里用第二条流抵不过同步开销：多流方案都没有比单流快到值得采用",
        )
    if "parallel" in report:
        return Remedy(
            f"talk beside the computing makes it {speedup:.2f}x as fast as one after the other",
            f"通信与计算并行，是先后执行的 {speedup:.2f} 倍速",
        )
    return Remedy(
        f"streams help: {used} are {speedup:.2f}x as fast as one (by streams, above)",
        f"多流有效：{used} 条流是单流的 {speedup:.2f} 倍速（见上面的“各流数”）",
    )


def more_streams(compilation: Compilation, report: dict[str, Any]) -> Remedy | None:
    """A faster schedule was found than the one chosen."""
    schedule = report["schedule"]
    if not schedule["best_found_us"]:
        return None  # a model without a task
    gain = schedule["makespan_us"] / schedule["best_found_us"] - 1
    if gain < 0.005:
        return None
    rows = [*schedule["by_streams"], *schedule["candidates"]]
    best = min(rows, key=lambda row: (row["makespan_us"] or math.inf, row["streams"]))["streams"]
    if best < report["streams"]["used"]:
        return Remedy(
            f"a schedule {gain:.1%} faster was found on {best} stream(s): give --streams {best}",
            f"用 {best} 条流可以快 {gain:.1%}：指定 --streams {best}",
        )
    return Remedy(
        f"a schedule {gain:.1%} faster was found on more streams; auto prefers fewer below "
        "auto_min_gain (set it lower, or give --streams)",
        f"用更多的流可以快 {gain:.1%}；收益低于 auto_min_gain 时 auto 选择较少的流"
        "（可调低该值，或指定 --streams）",
    )


def idle_streams(compilation: Compilation, report: dict[str, Any]) -> Remedy | None:
    """A stream that does next to nothing."""
    rows = report["streams"]["per_stream"]
    idle = [row for row in rows if row["utilisation"] < 0.1]
    if len(rows) < 2 or not idle or "parallel" in report:
        return None
    names = ", ".join(f"Stream{row['id']} ({row['utilisation']:.0%})" for row in idle)
    return Remedy(
        f"{names} nearly idle: its work depends on the others; fewer streams do as well",
        f"{names} 几乎空闲：其任务依赖其他流；减少流数效果相同",
    )


def _shown_where(parallel: dict[str, Any]) -> str:
    """The link that binds, or, where something else does, the axes whose talk shows most."""
    if parallel["binding"]["kind"] == "link":
        return str(parallel["binding"]["name"])
    row = max(parallel["per_rank"], key=lambda row: row["exposed_us"])
    by_axes: dict[str, float] = row["exposed_by"]
    return max(by_axes, key=lambda axes: by_axes[axes])


def links_bind(compilation: Compilation, report: dict[str, Any]) -> Remedy | None:
    """Cards that talk, or wait for each other, much of the time."""
    from gecompiler.cards.batch_cut import BATCH_OF_ONE

    found = report.get("parallel")
    makespan = report["schedule"]["makespan_us"]
    if found is None or not makespan:
        return None
    exposed = found["exposed_us"] / makespan
    if exposed >= max(0.25, found["bubble"]):
        where = _shown_where(found)
        if found["uncut"] == BATCH_OF_ONE:
            return Remedy(
                f"communication shows {exposed:.0%} of the time ({where}): with a batch of 2 or "
                "more, that of one half could hide behind the computing of the other (--batch)",
                f"暴露的通信占 {exposed:.0%} 的时间（{where}）：batch 为 2 或更多时，"
                "一半的通信可以藏在另一半的计算之后（--batch）",
            )
        return Remedy(
            f"communication shows {exposed:.0%} of the time ({where}): another "
            "layout may move less ('gec plan' ranks them), or a larger batch or sequence",
            f"暴露的通信占 {exposed:.0%} 的时间（{where}）：换一种并行布局可能"
            "通信更少（gec plan 会排序比较），或加大 batch、序列",
        )
    if found["bubble"] >= 0.25 and found["mesh"].get("pp", 1) > 1:
        return Remedy(
            f"cards wait for each other {found['bubble']:.0%} of the time: more micro-batches "
            "(--micro-batches), fewer stages, or --pipeline-schedule interleaved",
            f"各卡互相等待占 {found['bubble']:.0%} 的时间：增加微批"
            "（--micro-batches）、减少流水级，或使用 --pipeline-schedule interleaved",
        )
    return None


RULES: tuple[Rule, ...] = (
    unfused,
    links_bind,
    host_bound,
    launch_bound,
    memory_bound,
    compute_bound,
    streams_help,
    more_streams,
    idle_streams,
)
