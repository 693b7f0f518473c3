"""Plots as files: matplotlib where it is installed, and the same bytes for the same figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gecompiler.files import whole_file
from gecompiler.ir.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOT_SUFFIXES = (".svg", ".png", ".pdf")

BOUND_COLOURS = {
    "cube": "#0072b2",
    "vector": "#e69f00",
    "hbm": "#009e73",
    "l2": "#56b4e9",
    "fixed": "#8d97a3",
    "peers": "#f0e442",
    "memory": "#8c6bb1",
}
"""Okabe and Ito's colours, told apart with any kind of colour vision; as in the HTML report."""
LINK_COLOUR = "#cc79a7"
CRITICAL_COLOUR = "#d55e00"

_NO_DATE: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def bound_colour(resource: str) -> str:
    """The colour of what limits a task; all links have one."""
    return BOUND_COLOURS.get(resource, LINK_COLOUR if resource else BOUND_COLOURS["fixed"])


def check_plot(path: str, option: str = "--plot") -> None:
    """UsageError where a plot could not be written there: kind of file, or no matplotlib."""
    if Path(path).suffix.lower() not in PLOT_SUFFIXES:
        raise UsageError(
            f"{path!r} is no kind of plot", where=option, hint=f"end it in {PLOT_SUFFIXES}"
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UsageError(
            "needs matplotlib, which is not installed",
            where=option,
            hint="pip install 'gecompiler[plot]'",
        ) from None


def save_figure(figure: Figure, path: str) -> None:
    """Writes it whole or not at all, with no date and no random ids in it."""
    import matplotlib as mpl

    suffix = Path(path).suffix.lower()
    with mpl.rc_context({"svg.hashsalt": "gecompiler"}), whole_file(Path(path)) as part:
        figure.savefig(part, format=suffix[1:], metadata=_NO_DATE.get(suffix, {}))
