"""Placing tasks on streams: strategies, syncs, event ids, bounds, and what users decide."""

from __future__ import annotations

from collections.abc import Mapping


def strategy_table() -> Mapping[str, type[object]]:
    """The strategies by name; the first line of each docstring says what it does."""
    from gecompiler.passes.streams.registry import STRATEGIES

    return dict(STRATEGIES)


__all__ = ["strategy_table"]
