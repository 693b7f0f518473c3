"""What options are called on the command line, where errors and warnings name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

_OPTION_OF = {
    "streams": "num_streams",
    "strategy": "stream_strategy",
    "launch": "launch_mode",
    "disabled": "disable_passes",
}
"""The options behind parameters of commands that go by another name."""
_FLAGS = {"zero_stage": "--zero"}


def flag_of(name: str) -> str:
    """The flag of an option of several cards or of training."""
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


def flags_in(group: click.Group, arguments: Sequence[str]) -> dict[str, str]:
    """The flags that a command line gives, by the options they stand for."""
    names = iter(arguments)
    command = next((group.commands[a] for a in names if a in group.commands), None)
    if command is None:
        return {}
    given = {a.partition("=")[0] for a in names if a.startswith("--")}
    found: dict[str, str] = {}
    for parameter in command.params:
        flag = next((o for o in parameter.opts if o in given), None)
        if flag is not None and parameter.name is not None:
            found[_OPTION_OF.get(parameter.name, parameter.name)] = flag
    return found


def with_flags(text: str, flags: Mapping[str, str]) -> str:
    """An error's text that names options, with the flags behind them by which they were given."""
    for name, flag in flags.items():
        for word in ("option", "选项"):
            text = text.replace(f"{word} '{name}'", f"{word} '{name}' ({flag})")
    return text
