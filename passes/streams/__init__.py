"""Placing tasks on streams: strategies, syncs, event ids, bounds, and what users decide."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress


def strategy_table() -> Mapping[str, type[object]]:
    """The strategies by name; the first line of each docstring says what it does.

    Those of other packages follow, where they can be loaded.
    """
    from gecompiler.ir.errors import UsageError
    from gecompiler.passes.streams.custom_sources import custom_strategies, load_custom
    from gecompiler.passes.streams.registry import STRATEGIES

    found: dict[str, type[object]] = dict(STRATEGIES)
    for name in custom_strategies():
        with suppress(UsageError):
            found.setdefault(name, type(load_custom(name)))
    return found


__all__ = ["strategy_table"]
