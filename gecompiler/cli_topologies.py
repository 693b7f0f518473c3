"""``gec topologies``: how cards may be linked, and what collectives cost there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from gecompiler.cli_list import in_language, show

if TYPE_CHECKING:
    from gecompiler.backends.device import Device
    from gecompiler.backends.topology import Topology

SIZES = (1e3, 1e6, 1e8)
"""Messages whose times are listed, in bytes."""
_SHOWN = {1e3: "1 kB", 1e6: "1 MB", 1e8: "100 MB"}
_KINDS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AllToAll", "Send")


@click.command()
@click.argument("name", required=False, metavar="[NAME|TOPOLOGY.yaml]")
@click.option("--device", default="ascend910b", help="Device profile of the cards.")
@click.option("--cards", type=click.IntRange(2, 4096), help="How many cards take part.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def topologies(name: str | None, device: str, cards: int | None, as_json: bool) -> None:
    """List the topologies; of one every figure with its source, and what collectives cost.

    A topology of one's own is given as its YAML file, which is checked on the way.
    """
    from gecompiler.backends.device import load_device
    from gecompiler.backends.topology import load_topology, topology_names

    profile = load_device(device)
    if name is None:
        found = [load_topology(n, profile) for n in topology_names()]
        rows = [
            (
                t.name,
                in_language(t.description, as_json),
                str(t.cards),
                ", ".join(f"{tier.name} {tier.span} {tier.wiring}" for tier in t.tiers),
            )
            for t in found
        ]
        show(("topology", "what", "cards", "tiers"), rows, as_json)
        return
    topology = load_topology(name, profile)
    if cards is not None:
        topology = topology.at_least(cards)
    count = min(cards or 8, topology.cards)
    figures = _figures(topology, profile)
    costs = _costs(topology, count)
    if as_json:
        columns = ("figure", "value", "kind", "source")
        data: dict[str, Any] = {
            "name": topology.name,
            "device": profile.name,
            "cards": topology.cards,
            "figures": [dict(zip(columns, row, strict=True)) for row in figures],
            "collectives": costs,
        }
        click.echo(json.dumps(data, indent=2))
        return
    show(("figure", "value", "kind", "source"), figures, False)
    click.echo()
    rows = [
        (
            cost["collective"],
            *(f"{t['us']:.1f} us {t['algorithm']}" for t in cost["times"]),
        )
        for cost in costs
    ]
    show((f"{count} cards", *(_SHOWN[size] for size in SIZES)), rows, False)


def _figures(topology: Topology, device: Device) -> list[tuple[str, str, str, str]]:
    """Those of the file, then those that the device's figures stand in for."""
    rows: list[tuple[str, str, str, str]] = [
        (f.name, f"{f.value:g}" if isinstance(f.value, float) else str(f.value), f.kind, f.source)
        for f in topology.figures()
    ]
    given = {row[0] for row in rows}
    for tier in topology.tiers:
        first = next(iter(tier.rates.values()))
        for name, value in (
            ("bandwidth_gb_per_s", tier.bandwidth_gb_per_s),
            ("efficiency_fraction", first.efficiency),
            ("latency_us", first.latency_us),
        ):
            own = any(g.startswith(f"{tier.name}.") and g.endswith(name) for g in given)
            if not own and not (tier.through and name != "latency_us"):
                text = f"the hccs figures of device {device.name}"
                rows.append((f"{tier.name}.{name}", f"{value:g}", "derived", text))
    return rows


def _costs(topology: Topology, count: int) -> list[dict[str, Any]]:
    from gecompiler.backends.collectives import collective_cost

    found: list[dict[str, Any]] = []
    for kind in _KINDS:
        group = (0, count - 1) if kind == "Send" else tuple(range(count))
        times = []
        for size in SIZES:
            cost = collective_cost(topology, kind, group, size)
            times.append(
                {
                    "bytes": int(size),
                    "us": round(cost.us, 3),
                    "algorithm": cost.algorithm,
                    "protocol": cost.protocol.name,
                    "steps": cost.steps,
                    "busiest_link": cost.busiest_link,
                }
            )
        found.append({"collective": kind, "cards": count, "times": times})
    return found
