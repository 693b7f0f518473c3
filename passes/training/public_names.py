"""The outputs of a training step have names that users can count on.

    loss                 the loss of the step
    updated/<state>      what the next step begins with: a parameter ``w``, its ``w/m``, ``w/v``
                         and ``w/master``, and the count ``optimizer/step``
    grad/<parameter>     without an optimiser

They are the same on one card and on several, whatever is shared out between these.
"""

from __future__ import annotations

from collections.abc import Mapping

from gecompiler.ir.graph import Graph
from gecompiler.passes.training.names import UPDATED


def name_outputs(graph: Graph, wanted: Mapping[str, str]) -> dict[str, str]:
    """Gives values, by the names that they are to have, these names; how each is called now.

    A value that is to have two is copied by an Identity. What has such a name already makes room,
    but an input keeps it: then a number is put behind.
    """
    taken: dict[str, str] = {}
    for name, made in wanted.items():
        value = made
        if made in taken.values() or graph.producer(made) is None:
            value = graph.emit("Identity", [made], graph.type(made), stem=f"{name}/copy")
        if value != name and graph.producer(name) is not None:
            graph.rename_value(name, graph.fresh(f"{name}/model"))
        taken[name] = name if value == name or not graph.has_value(name) else graph.fresh(name)
        if value != name:
            graph.rename_value(value, taken[name])
    return taken


def updated(state: str) -> str:
    """What the next value of a state is called."""
    return f"{UPDATED}{state}"
