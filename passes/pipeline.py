"""A sequence of passes and its text form: ``canonicalize,fuse-attention{min-heads=2}``.

    pipeline = [ pass { "," pass } ]
    pass     = name [ "{" [ option { ("," | space) option } ] "}" ]
    option   = key "=" value | key            a key alone means true
    value    = word | JSON string | "[" [ value { "," value } ] "]"

`str` prints the shortest text that parses to an equal pipeline.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.passes.manager import Dump, PassStats, run_passes
from gecompiler.passes.pass_base import Pass, PassContext
from gecompiler.passes.pass_options import Text, build, changed_options
from gecompiler.passes.registry import PASSES, PassRegistry

_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|([^\s,{}\[\]="]+)|([,{}\[\]=]))')


@dataclass(frozen=True)
class Pipeline:
    """Passes in the order they run, and what is to happen around them.

    ``stop_after`` names the last pass to run (``name:2``: its second run), ``disabled`` those
    to leave out; ``dump(name, graph)`` is called after each. ``command`` is how the user runs
    this pipeline, for messages.
    """

    passes: tuple[Pass, ...] = ()
    stop_after: str | None = field(default=None, compare=False)
    disabled: tuple[str, ...] = field(default=(), compare=False)
    dump: Dump | None = field(default=None, compare=False)
    command: str = field(default="gec compile MODEL", compare=False)

    @staticmethod
    def parse(
        text: str,
        *,
        stop_after: str | None = None,
        disabled: Iterable[str] | None = None,
        dump: Dump | None = None,
        command: str = "gec compile MODEL",
        registry: PassRegistry = PASSES,
    ) -> Pipeline:
        """The pipeline that ``text`` spells; UsageError with the place and what was expected."""
        passes = tuple(_Parser(text, registry).pipeline())
        return Pipeline(passes, stop_after, tuple(disabled or ()), dump, command)

    def __str__(self) -> str:
        return ",".join(_spell(p) for p in self.passes)

    def run(self, graph: Graph, context: PassContext | None = None) -> list[PassStats]:
        """Runs the passes on ``graph`` in place; see `manager.run_passes`."""
        return run_passes(
            graph,
            self.passes,
            context or PassContext(),
            stop_after=self.stop_after,
            disabled=self.disabled,
            dump=self.dump,
            command=self.command,
        )


def _spell(instance: Pass) -> str:
    options = changed_options(instance)
    inner = ",".join(f"{key}={value}" for key, value in options)
    return f"{instance.name}{{{inner}}}" if inner else instance.name


class _Parser:
    """Reads a pipeline; tokens are (kind, text, column), kind one of string, word, sign, end."""

    def __init__(self, text: str, registry: PassRegistry) -> None:
        self._text = text
        self._registry = registry
        self._tokens = list(self._scan())
        self._at = 0

    def _scan(self) -> Iterable[tuple[str, str, int]]:
        position, end = 0, len(self._text.rstrip())
        while position < end:
            match = _TOKEN.match(self._text, position)
            if match is None:
                raise self._error(position, "an unfinished string")
            kind = ("string", "word", "sign")[(match.lastindex or 1) - 1]
            yield kind, match[match.lastindex or 1], match.start(match.lastindex or 1)
            position = match.end()
        yield "end", "the end", len(self._text)

    def _error(self, column: int, found: str, expected: str = "") -> UsageError:
        wanted = f"expected {expected}, found {found}" if expected else found
        return UsageError(
            f"{wanted} at column {column + 1} of {self._text!r}",
            where="pass pipeline",
            hint="for example: canonicalize,fuse-attention",
        )

    def _next(self) -> tuple[str, str, int]:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _take(self, sign: str) -> bool:
        if self._tokens[self._at][:2] != ("sign", sign):
            return False
        self._at += 1
        return True

    def _word(self, expected: str) -> str:
        kind, text, column = self._next()
        if kind != "word":
            raise self._error(column, repr(text) if kind != "end" else text, expected)
        return text

    def pipeline(self) -> Iterable[Pass]:
        if self._tokens[0][0] == "end":
            return
        while True:
            yield self._pass()
            kind, text, column = self._next()
            if kind == "end":
                return
            if text != "," or kind != "sign":
                raise self._error(column, repr(text), "',' or '{' or the end")

    def _pass(self) -> Pass:
        cls = self._registry.get(self._word("the name of a pass"))
        options: dict[str, Text] = {}
        if self._take("{"):
            while not self._take("}"):
                key = self._word("an option or '}'").replace("_", "-")
                if key in options:
                    raise UsageError(f"option {key!r} is given twice", where=f"pass {cls.name!r}")
                options[key] = self._value() if self._take("=") else "true"
                self._take(",")
        return build(cls, options)

    def _value(self) -> Text:
        if not self._take("["):
            return self._scalar()
        words: list[str] = []
        while not self._take("]"):
            words.append(self._scalar())
            self._take(",")
        return words

    def _scalar(self) -> str:
        kind, text, column = self._next()
        if kind == "string":
            return str(json.loads(text))
        if kind != "word":
            raise self._error(column, repr(text) if kind != "end" else text, "a value")
        return text
