"""Parsing the text form; `text` describes it.

Statements are gathered first and put into a `Graph` after, since ops may read one another in
any order. Every error shows the place in the text.
"""

from __future__ import annotations

from collections.abc import Callable

from gecompiler.ir.errors import GraphError, nearest
from gecompiler.ir.graph import Graph, State
from gecompiler.ir.op import Op
from gecompiler.ir.text.data import read_data
from gecompiler.ir.text.lexer import Lexer, Source, Token
from gecompiler.ir.text.ops import OpText, Outputs, read_op
from gecompiler.ir.text.values import read_integer, read_static_type, read_type
from gecompiler.ir.types import ValueType

MAX_NESTING = 64
"""Most graphs within graphs."""


def parse(text: str, name: str = "text") -> Graph:
    """The graph that ``text`` spells; TextError (a GraphError) shows what is wrong where.

    ``name`` is what the text goes by in messages, such as the name of its file.
    """
    lexer = Lexer(Source(text, name))
    lexer.expect("graph")
    graph = _GraphReader(lexer, depth=1).read(None)
    if lexer.peek().kind != "end":
        raise lexer.unexpected("the end of the text")
    return graph


class _GraphReader:
    """Reads one graph, from after the word ``graph``."""

    def __init__(self, lexer: Lexer, depth: int) -> None:
        self.lexer = lexer
        self.depth = depth
        self.graph = Graph()
        self.ops: list[OpText] = []
        self.names: set[str] = set()
        self.made: dict[str, None] = {}
        self.later: list[Callable[[], None]] = []
        self.statements: dict[str, Callable[[], None]] = {
            "input": self._input,
            "outer": self._outer,
            "const": self._constant,
            "control": self._control,
            "state": self._state,
            "metadata": self._metadata,
            "return": self._return,
        }

    def read(self, opsets: dict[str, int] | None) -> Graph:
        """The graph; ``opsets`` are those of the graph around it."""
        lexer = self.lexer
        if self.depth > MAX_NESTING:
            raise lexer.error(f"graphs nest deeper than {MAX_NESTING}", lexer.position)
        if lexer.peek().kind == "op":
            self.graph.name = lexer.next().text
        if lexer.take("("):
            self.graph.opsets = self._opsets()
        elif opsets is not None:
            self.graph.opsets = dict(opsets)
        lexer.expect("{")
        while not lexer.take("}"):
            self._statement()
        self._add_ops()
        for action in self.later:
            action()
        return self.graph

    def _opsets(self) -> dict[str, int]:
        opsets: dict[str, int] = {}
        while not self.lexer.take(")"):
            if opsets:
                self.lexer.expect(",")
            token = self.lexer.peek()
            if token.kind not in ("word", "string"):
                raise self.lexer.unexpected("'opset' or a domain")
            self.lexer.next()
            domain = "" if (token.kind, token.text) == ("word", "opset") else token.text
            opsets[domain] = read_integer(self.lexer, "the opset's version")
        return opsets

    # ---------------------------------------------------------------- statements

    def _statement(self) -> None:
        token = self.lexer.peek()
        calls = token.kind in ("word", "string") and self.lexer.followed_by("(", ".")
        quoted_type = token.kind == "word" and token.text.endswith(".")
        if calls or quoted_type:
            self._op([], token)
        elif token.kind == "value" or (token.kind, token.text) == ("word", "_"):
            outputs = self._outputs()
            self.lexer.expect("=")
            self._op(outputs, token)
        elif token.kind == "word" and token.text in self.statements:
            self.lexer.next()
            self.statements[token.text]()
        else:
            raise self.lexer.unexpected("a statement or '}'", self.statements)

    def _value(self) -> Token:
        return self.lexer.expect_kind("value", "a value such as %x")

    def _new_value(self) -> Token:
        token = self._value()
        if token.text in self.made or self.graph.has_value(token.text):
            raise self.lexer.error(f"%{token.text} is defined twice", token.start)
        if not token.text:
            raise self.lexer.error("a value needs a name", token.start)
        return token

    def _optional_type(self) -> ValueType:
        return read_type(self.lexer) if self.lexer.take(":") else None

    def _input(self) -> None:
        name = self._new_value().text
        self.graph.add_input(name, self._optional_type())

    def _outer(self) -> None:
        name = self._new_value().text
        self.graph.add_outer(name, self._optional_type())

    def _constant(self) -> None:
        name = self._new_value().text
        self.lexer.expect(":")
        type_ = read_static_type(self.lexer)
        self.lexer.expect("=")
        self.graph.add_constant(name, read_data(self.lexer, type_))

    def _metadata(self) -> None:
        key = self.lexer.expect_kind("string", "a key in double quotes").text
        self.lexer.expect("=")
        value = self.lexer.expect_kind("string", "a text in double quotes").text
        self.graph.metadata[key] = value

    def _control(self) -> None:
        before = self._op_name()
        self.lexer.expect("->")
        after = self._op_name()

        def add() -> None:
            for token in (before, after):
                if token.text not in self.graph:
                    hint = nearest(token.text, (op.name for op in self.graph.ops))
                    raise self.lexer.error(f"no op @{token.text} here", token.start, hint)
            self._checked(before.start, lambda: self.graph.add_control(before.text, after.text))

        self.later.append(add)

    def _op_name(self) -> Token:
        if self.lexer.peek().kind not in ("op", "string"):
            raise self.lexer.unexpected("an op's name such as @fc")
        return self.lexer.next()

    def _state(self) -> None:
        source = self._value()
        self.lexer.expect("->")
        target = self._value()
        axis = read_integer(self.lexer, "an axis") if self.lexer.take("axis") else None
        state = State(source.text, target.text, axis)

        def add() -> None:
            states = (*self.graph.states, state)
            self._checked(source.start, lambda: self.graph.set_states(states))

        self.later.append(add)

    def _return(self) -> None:
        names: list[Token] = []
        while self.lexer.peek().kind == "value":
            names.append(self.lexer.next())
            if not self.lexer.take(","):
                break
        start = self.lexer.position

        def add() -> None:
            for token in names:
                self._require(token)
            self._checked(start, lambda: self.graph.set_outputs(t.text for t in names))

        if not self.lexer.sees("}"):
            raise self.lexer.unexpected("'}' after return")
        self.later.insert(0, add)

    # ---------------------------------------------------------------- ops

    def _outputs(self) -> Outputs:
        outputs: Outputs = []
        while True:
            if self.lexer.take("_"):
                outputs.append(("", None))
            else:
                name = self._new_value().text
                self.made[name] = None
                outputs.append((name, self._optional_type()))
            if not self.lexer.take(","):
                return outputs

    def _op(self, outputs: Outputs, first: Token) -> None:
        op = read_op(self.lexer, outputs, first.start, self._body)
        if op.name is not None:
            if not op.name.text or op.name.text in self.names:
                raise self.lexer.error(f"{op.name} is empty or names two ops", op.name.start)
            self.names.add(op.name.text)
        self.ops.append(op)

    def _body(self) -> Graph:
        return _GraphReader(self.lexer, self.depth + 1).read(self.graph.opsets)

    def _add_ops(self) -> None:
        found: list[tuple[Op, list[ValueType]]] = []
        for text in self.ops:
            for token in text.inputs:
                if token.kind == "value":
                    self._require(token)
            name = text.name.text if text.name else text.derived_name(self.names)
            self.names.add(name)
            op = text.op(name)
            self._check_captures(op, text.position)
            found.append((op, [type_ for _, type_ in text.outputs]))
        self.graph.add_ops(found)

    def _check_captures(self, op: Op, position: int) -> None:
        for body in op.bodies if op.attrs else ():
            for value in body.outer:
                if value not in self.made and not self.graph.has_value(value):
                    raise self.lexer.error(
                        f"body @{body.name} takes %{value} from this graph, which has none",
                        position,
                        nearest(value, (*self.graph.values, *self.made)),
                    )

    def _require(self, token: Token) -> None:
        if token.text not in self.made and not self.graph.has_value(token.text):
            hint = nearest(token.text, (*self.graph.values, *self.made))
            raise self.lexer.error(f"%{token.text} is not defined here", token.start, hint)

    def _checked(self, position: int, edit: Callable[[], None]) -> None:
        try:
            edit()
        except GraphError as error:
            raise self.lexer.error(error.message, position, error.hint) from None
