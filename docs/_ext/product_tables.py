"""Directives that list what the product has, from the tables in its code.

``{options}``, ``{devices}``, ``{passes}`` and ``{strategies}`` each give one table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gecompiler.backends.device import device_names, load_device
from gecompiler.option_table import TABLE
from gecompiler.passes.registry import BUILTIN, PASSES
from gecompiler.passes.streams.registry import STRATEGIES

Row = Sequence[str]


def options() -> Iterable[Row]:
    """Every option with its default."""
    yield "Option", "Default", "What it does"
    for option in TABLE:
        yield f"`{option.name}`", f"`{option.default!r}`", f"{option.doc} Takes {option.accepts}."


def devices() -> Iterable[Row]:
    """Every device profile with its main figures."""
    yield "Profile", "Device", "Cube cores", "Vector cores", "f16 Tflop/s", "HBM GB/s", "Streams"
    for name in device_names():
        device = load_device(name)
        keys = ("cube_cores", "vector_cores", "peak_f16_tflops", "hbm_bandwidth_gb_per_s")
        figures = [device.capabilities()[key] for key in (*keys, "max_streams")]
        yield f"`{name}`", device.description, *(f"{float(figure):.0f}" for figure in figures)


def passes() -> Iterable[Row]:
    """Every pass of the product."""
    yield "Pass", "What it does"
    for name in BUILTIN:
        yield f"`{name}`", _summary(PASSES.get(name).__doc__)


def strategies() -> Iterable[Row]:
    """Every stream strategy."""
    yield "Strategy", "What it does"
    for name, strategy in sorted(STRATEGIES.items()):
        yield f"`{name}`", _summary(strategy.__doc__)


def _summary(docstring: str | None) -> str:
    return (docstring or "").strip().split("\n\n")[0]


def _table(rows: Sequence[Row]) -> nodes.table:
    head, *body = ([_cell(text) for text in row] for row in rows)
    columns = [nodes.colspec(colwidth=1) for _ in head]
    group = nodes.tgroup("", *columns, cols=len(columns))
    group += nodes.thead("", nodes.row("", *head))
    group += nodes.tbody("", *(nodes.row("", *row) for row in body))
    return nodes.table("", group)


def _cell(text: str) -> nodes.entry:
    """Text in which what stands between backticks is code."""
    parts = text.replace("``", "`").split("`")
    inline = (nodes.literal("", p) if i % 2 else nodes.Text(p) for i, p in enumerate(parts) if p)
    return nodes.entry("", nodes.paragraph("", "", *inline))


def _directive(rows: Callable[[], Iterable[Row]]) -> type[SphinxDirective]:
    class ProductTable(SphinxDirective):
        """One of the tables."""

        def run(self) -> list[nodes.Node]:
            """The table as a node."""
            return [_table(list(rows()))]

    return ProductTable


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directives."""
    for rows in (options, devices, passes, strategies):
        app.add_directive(rows.__name__, _directive(rows))
    return {"parallel_read_safe": True}
