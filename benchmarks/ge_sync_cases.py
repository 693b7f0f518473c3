"""Cases of folding, of the rules that drop events, and of ids of alternative branches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from benchmarks.ge_network import Case, Row, chain, facts, network
from gecompiler.passes.streams.folding import fold_ineffective
from gecompiler.passes.streams.ge_events import EventScope, clean_events, needed_events


def folding_rows(case: Case) -> Iterator[Row]:
    """A row for each ``expect...``: as the nodes stand, and with some of them labelled."""
    net = chain(case["chain"]) if "chain" in case else network(list(case["nodes"]), case["edges"])
    given = [case["nodes"].get(name, -1) for name in net.names]
    for key, expected in case.items():
        if not key.startswith("expect"):
            continue
        found = re.fullmatch(r"expect_if_(\w+?)_user_label_\w+", key)
        labelled = {
            i for i, name in enumerate(net.names) if found and re.match(found[1] + r"\d*$", name)
        }
        kept = labelled | {i for i, s in enumerate(given) if s < 0}
        closed = {given[i] for i in labelled} | {-1}
        stream = fold_ineffective(net.preds, net.succs, given, kept, closed)
        yield Row(key, dict(expected), facts(net, stream, expected))


def rule_rows(case: Case) -> Iterator[Row]:
    """A row for each list of events: what the rules R1 and R2 keep of them."""
    names = [unit for units in case["streams"].values() for unit in units]
    stream = [s for s, units in enumerate(case["streams"].values()) for _ in units]
    place = [i for units in case["streams"].values() for i in range(len(units))]
    for part in case["cases"]:
        net = network(names, part["events"])
        kept = clean_events(needed_events(net.edges, stream), stream, place)
        got = sorted(f"{names[a]}>{names[b]}" for a, b in kept)
        expected = sorted(str(e) for e in part["expect_kept"])
        yield Row(" ".join(part["events"]), {"kept": expected}, {"kept": got})


def branch_rows(case: Case) -> Iterator[Row]:
    """A row for each sync primitive: ids when one of several branches runs."""
    branches = [v for k, v in case.items() if k.startswith("branch")]
    multi = any("batch_num" in str(name) for name in case["main"])
    scope = EventScope(
        _chain_events(case["main"]), tuple(EventScope(_chain_events(b)) for b in branches)
    )
    ids = scope.shared if multi else scope.total
    streams = {s for graph in (case["main"], *branches) for s in graph.values()}
    for mode in ("event", "notify"):
        expected = case.get(f"expect_{mode}_mode")
        if expected is None:
            continue
        got = {
            "streams": len(streams),
            "events_before_reuse": scope.total,
            "events": ids if mode == "event" else 0,
            "notifies": ids if mode == "notify" else 0,
        }
        yield Row(mode, dict(expected), {k: got.get(k) for k in expected})


def _chain_events(graph: Mapping[str, int]) -> int:
    """Events of a graph whose units follow each other as listed."""
    stream = list(graph.values())
    edges = [(i, i + 1) for i in range(len(stream) - 1)]
    return len(clean_events(needed_events(edges, stream), stream, range(len(stream))))
