"""Plots as files: matplotlib where it is installed, and the same bytes for the same figures."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gecompiler.files import whole_file
from gecompiler.ir.errors import UsageError
from gecompiler.lang import language, say, use_language

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_log = logging.getLogger(__name__)

PLOT_SUFFIXES = (".svg", ".png", ".pdf")

BOUND_COLOURS = {
    "cube": "#0072b2",
    "vector": "#e69f00",
    "hbm": "#009e73",
    "l2": "#56b4e9",
    "fixed": "#b9c1ca",
    "peers": "#f0e442",
    "memory": "#8c6bb1",
}
"""Okabe and Ito's colours, told apart with any kind of colour vision; as in the HTML report."""
LINK_COLOUR = "#cc79a7"
CRITICAL_COLOUR = "#d55e00"

CHINESE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "Microsoft YaHei",
    "PingFang SC",
    "Heiti SC",
    "Hiragino Sans GB",
    "SimHei",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Noto Sans CJK JP",
    "Noto Serif CJK SC",
    "Noto Serif CJK JP",
    "Droid Sans Fallback",
    "AR PL UMing CN",
    "SimSun",
    "Arial Unicode MS",
)
"""Fonts that have Chinese letters, by what systems bring; the best to read first. Files of
several faces go by the name of the first one, so that the Japanese names stand for all."""

_SAMPLE = "时间加速比流批图例受限关键路径"
"""Letters of our labels."""

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


def chinese_font() -> str | None:
    """The name of an installed font that has our Chinese labels' letters; None without one."""
    return _listed_font() or (_listed_font() if _look_again() else None)


def _listed_font() -> str | None:
    from matplotlib import font_manager

    paths: dict[str, list[str]] = {}
    for entry in font_manager.fontManager.ttflist:
        paths.setdefault(entry.name, []).append(entry.fname)
    for name in CHINESE_FONTS:
        if any(map(_has_sample, sorted(paths.get(name, ())))):
            return name
    return None


def _look_again() -> bool:
    """Lists fonts that were installed since matplotlib wrote its list; whether there are any."""
    from matplotlib import font_manager

    manager = font_manager.fontManager
    known = {entry.fname for entry in manager.ttflist}
    found = sorted(set(font_manager.findSystemFonts()) - known)
    for path in found:
        try:
            manager.addfont(path)
        except (OSError, RuntimeError, ValueError):  # no font, or one that it cannot read
            continue
    return bool(found)


def _has_sample(path: str) -> bool:
    from matplotlib import font_manager

    try:
        font = font_manager.get_font(path)
    except (OSError, RuntimeError):  # listed once, and gone or broken since
        return False
    return all(font.get_char_index(ord(letter)) for letter in _SAMPLE)


@contextmanager
def label_language() -> Iterator[None]:
    """Labels made and saved within are readable: Chinese ones have a font, or they are English.

    Where Chinese is asked for and no font here has it, that is told by the log.
    """
    import matplotlib as mpl

    if language() != "zh":
        yield
        return
    font = chinese_font()
    if font is None:
        _log.warning(say("no font with Chinese letters was found: the plot is labelled in English"))
        with use_language("en"):
            yield
        return
    families = [*mpl.rcParams["font.family"], font]
    with mpl.rc_context({"font.family": families, "axes.unicode_minus": False}):
        yield
