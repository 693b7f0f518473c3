"""``--lang`` of every command, and help and mistakes of usage in the language in use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import click

from gecompiler.lang import LANGUAGES, language, set_language, translate
from gecompiler.lang.choice import make_writable
from gecompiler.lang.width import columns, pad, wrap

MOST_LEFT = 32
"""Columns that the names of options may take before their help begins on a line of its own."""


def language_option() -> click.Option:
    """``--lang``: read before all others, so that the help comes in the language as well."""
    return click.Option(
        ["--lang"],
        type=click.Choice(LANGUAGES),
        expose_value=False,
        help="Language of what is printed (default: $GEC_LANG, else the locale's).",
    )


def choose_language(arguments: Sequence[str]) -> None:
    """Speaks what ``--lang`` asks for, wherever it stands; click refuses what is wrong with it."""
    given = [*arguments, ""]
    wanted = None
    for here, after in pairwise(given):
        if here == "--":
            break
        name, equals, value = here.partition("=")
        if name == "--lang":
            wanted = value if equals else after
    set_language(wanted if wanted in LANGUAGES else None)
    if language() == "zh":
        make_writable()


class Formatter(click.HelpFormatter):
    """Click's help; where it is not English, translated and broken into lines by columns."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """The line that shows how the command is called."""
        super().write_usage(prog, args, None if language() == "en" else "用法：")

    def write_heading(self, heading: str) -> None:
        """The title of a section."""
        mark = ":" if language() == "en" else "："
        self.write(f"{'':>{self.current_indent}}{translate(heading)}{mark}\n")

    def write_text(self, text: str) -> None:
        """Paragraphs of help."""
        if language() == "en":
            super().write_text(text)
            return
        indent = " " * self.current_indent
        paragraphs = [
            "\n".join(wrap(translate(" ".join(part.split())), self.width, indent, indent))
            for part in text.split("\n\n")
        ]
        self.write("\n\n".join(paragraphs) + "\n")

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Names and what they are."""
        rows = list(rows)
        if language() == "en":
            super().write_dl(rows, col_max, col_spacing)
            return
        indent = " " * self.current_indent
        left = min(MOST_LEFT, max((columns(name) for name, _ in rows), default=0)) + 2
        rest = indent + " " * left
        for name, text in rows:
            first = indent + pad(name, left)
            if columns(name) > left - 2:
                self.write(f"{indent}{name}\n")
                first = rest
            self.write("\n".join(wrap(help_text(text), self.width, first, rest)) + "\n")


class Context(click.Context):
    """A context whose help speaks the language in use."""

    formatter_class = Formatter


def prepare(commands: Iterable[click.Command]) -> None:
    """Gives commands the option and the help in both languages."""
    for command in commands:
        command.context_class = Context
        command.params.append(language_option())
        command.short_help = first_sentence(command.help or "")


def first_sentence(text: str) -> str:
    """What the list of commands says of one, whole: click would cut it at the line's end."""
    line = " ".join(text.split("\n\n", 1)[0].split())
    return line.split(". ", 1)[0].rstrip(".") + "."


def help_text(text: str) -> str:
    """An option's help with what click adds to it, or a command's first sentence."""
    body, bracket, extra = text.partition("  [")
    found = translate(body)
    if not bracket:
        return found
    for english, chinese in (("default: ", "默认："), ("required", "必需")):
        extra = extra.replace(english, chinese)
    return f"{found}  [{extra}"


def show_mistake(error: click.ClickException) -> None:
    """What click says of a wrong option, in the language in use."""
    if language() == "en":
        error.show()
        return
    context = getattr(error, "ctx", None)
    if context is not None:
        click.echo(context.get_usage(), err=True)
        if context.command.get_help_option(context) is not None:
            click.echo(f"用 '{context.command_path} --help' 查看帮助。\n", err=True)
    click.echo(f"错误：{translate(error.format_message())}", err=True)
