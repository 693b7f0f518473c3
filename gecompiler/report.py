"""The report as data: what ``report.json`` and ``--json`` hold (schema_version 1).

`REPORT_SCHEMA` is the JSON Schema that ships with the package.
"""

from __future__ import annotations

import json
import math
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gecompiler.latency import latency_split
from gecompiler.report_certificate import certificate_part
from gecompiler.report_parts import memory_part, physical_part, sync_part
from gecompiler.training import training_part

if TYPE_CHECKING:
    from gecompiler.driver import Compilation
    from gecompiler.ir.timeline import Timeline
    from gecompiler.passes.attention.site import AttentionSite

SCHEMA_VERSION = 1


def report_schema() -> dict[str, Any]:
    """The JSON Schema of the report."""
    text = files("gecompiler").joinpath("report.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def build_report(compilation: Compilation, *, timings: bool = False) -> dict[str, Any]:
    """The report of a compilation as plain data.

    The time each pass took is a fact of the machine and not of the model; it is left null
    unless ``timings`` is set, so that the same input gives the same bytes.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "model": _model(compilation),
        "device": compilation.device.name,
        "passes": _passes(compilation, timings),
        "attention": _attention(compilation),
        "streams": _streams(compilation),
        "sync": sync_part(compilation),
        "schedule": _schedule(compilation),
        "latency": latency_split(compilation.result.timeline).as_dict(),
        "resources": _resources(compilation),
        "verification": _verification(compilation),
        **_durations(compilation),
        **_cards(compilation),
        **training_part(compilation),
        "warnings": [
            {"code": w.code, "message": w.message, "hint": w.hint} for w in compilation.diagnostics
        ],
    }


def _model(compilation: Compilation) -> dict[str, Any]:
    source = compilation.source
    return {
        "name": source.graph.name,
        "opset": source.opset,
        "ops_imported": source.ops_imported,
        "ops_compiled": compilation.ops_compiled,
        "parameters": source.parameters,
        "sizes": dict(sorted(compilation.binding.items())),
    }


def _passes(compilation: Compilation, timings: bool) -> list[dict[str, Any]]:
    stats = [*compilation.source.passes, *compilation.passes]
    return [
        {"name": s.name, "changes": s.changes, "ms": round(s.ms, 3) if timings else None}
        for s in stats
    ]


def _attention(compilation: Compilation) -> dict[str, Any]:
    sites = compilation.source.sites
    fused = sum(site.fused for site in sites)
    return {
        "fused": fused,
        "refused": len(sites) - fused,
        "sites": [_site(site, compilation.binding) for site in sites],
    }


def _site(site: AttentionSite, binding: dict[str, int]) -> dict[str, Any]:
    from gecompiler.ir.dims import substitute

    def size(dim: Any) -> Any:
        bound = None if dim is None else substitute(dim, binding)
        return bound if bound is None or isinstance(bound, int) else str(bound)

    return {
        "name": site.name,
        "status": "fused" if site.fused else "refused",
        "reason": site.reason,
        "q_heads": size(site.q_heads),
        "kv_heads": size(site.kv_heads),
        "head_dim": size(site.head_dim),
        "v_head_dim": size(site.v_head_dim),
        "scale": site.scale,
        "softcap": site.softcap,
        "mask": site.mask,
        "window": list(site.window),
        "proven": site.proven,
        "kv_cache": site.kv_cache,
    }


def _streams(compilation: Compilation) -> dict[str, Any]:
    result = compilation.result
    timeline = result.timeline
    makespan = timeline.makespan_ns
    several = compilation.cards is not None
    rows = [
        {
            **({"rank": rank} if several else {}),
            "id": stream,
            "tasks": len(spans),
            "busy_us": timeline.busy_ns(rank, stream) / 1000,
            "utilisation": timeline.busy_ns(rank, stream) / makespan if makespan else 0.0,
        }
        for (rank, stream), spans in timeline.streams.items()
    ]
    return {
        "strategy": result.strategy,
        "chosen": result.chosen,
        "requested": result.requested,
        "used": max((stream + 1 for _, stream in timeline.streams), default=0)
        if several
        else len(rows),
        "per_stream": rows,
        "micro_batches": list(result.micro_batches),
        "physical": physical_part(compilation),
    }


def _schedule(compilation: Compilation) -> dict[str, Any]:
    result = compilation.result
    makespan = result.makespan_us
    return {
        "makespan_us": makespan,
        "best_found_us": result.best_found_us,
        "period_us": result.period_us,
        "single_stream_us": result.single_stream_us,
        "speedup": result.single_stream_us / makespan if makespan else 1.0,
        "critical_path_us": result.critical_path_us,
        "lower_bound_us": result.lower_bound_us,
        "bounds": dict(sorted(result.bounds.items())),
        "binding_resource": result.binding_resource,
        "overlap": result.timeline.overlap,
        **certificate_part(result),
    }


def _resources(compilation: Compilation) -> dict[str, Any]:
    result = compilation.result
    means = _mean_uses(result.timeline)
    demands = [task.demand for task in result.schedule.tasks]
    return {
        "cube_utilisation": means.get("cube", 0.0),
        "vector_utilisation": means.get("vector", 0.0),
        "hbm_utilisation": means.get("hbm", 0.0),
        "hbm_bytes": round(math.fsum(d.load_bytes + d.store_bytes for d in demands)),
        **memory_part(compilation),
    }


def _mean_uses(timeline: Timeline) -> dict[str, float]:
    """The mean use of each resource; of several cards, the mean over the cards."""
    found: dict[str, list[float]] = {}
    for usage in timeline.usage:
        rank, colon, name = usage.resource.partition(":")
        own = name if colon and rank.isdigit() else usage.resource
        found.setdefault(own, []).append(usage.mean(timeline.makespan_ns))
    return {name: math.fsum(uses) / len(uses) for name, uses in found.items()}


def _durations(compilation: Compilation) -> dict[str, Any]:
    """What goes by measured times; nothing where none were given."""
    found = compilation.measured
    if found is None:
        return {}
    return {
        "durations": {
            "file": found.file,
            "ops": found.ops,
            "measured_by_name": found.by_name,
            "measured_by_shapes": found.by_shapes,
            "measured_share_of_time": found.share,
        }
    }


def _cards(compilation: Compilation) -> dict[str, Any]:
    """What is particular to several cards; nothing where there is one."""
    if compilation.cards is None:
        return {}
    from gecompiler.cards.report import cards_part

    return {"parallel": cards_part(compilation.cards)}


def _verification(compilation: Compilation) -> dict[str, Any]:
    findings = compilation.findings
    kinds = {finding.category for finding in findings}
    return {
        "race_free": "race" not in kinds,
        "deadlock_free": "deadlock" not in kinds,
        "within_limits": "limit" not in kinds,
        "findings": [f.as_dict() for f in findings],
    }
