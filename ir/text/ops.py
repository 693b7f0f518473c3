"""Ops in the text form: what stands behind the outputs of a statement."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import NO_ATTRS, NO_INFO, Attr, Op, OpInfo
from gecompiler.ir.text.lexer import Lexer, Token
from gecompiler.ir.text.values import AttrReader
from gecompiler.ir.types import ValueType

Outputs = list[tuple[str, ValueType]]
"""Names and types; ``""`` and None for an optional output left out."""


@dataclass
class OpText:
    """An op as written, with the places of what it names."""

    position: int
    outputs: Outputs
    inputs: list[Token] = field(default_factory=list)
    op_type: str = ""
    domain: str = ""
    name: Token | None = None
    attrs: dict[str, Attr] = field(default_factory=dict)
    info: dict[str, object] = field(default_factory=dict)

    def op(self, name: str) -> Op:
        """The op under that name."""
        inputs = tuple(token.text if token.kind == "value" else "" for token in self.inputs)
        outputs = tuple(value for value, _ in self.outputs)
        info = OpInfo(**self.info) if self.info else NO_INFO  # type: ignore[arg-type]
        attrs = self.attrs or NO_ATTRS
        return Op(name, self.op_type, inputs, outputs, attrs, self.domain, info)

    def derived_name(self, taken: Container[str]) -> str:
        """The name where none is written: the first output's, else the type's, numbered."""
        stem = next((value for value, _ in self.outputs if value), self.op_type) or "op"
        name, count = stem, 0
        while name in taken:
            count += 1
            name = f"{stem}_{count}"
        return name


def read_op(
    lexer: Lexer, outputs: Outputs, position: int, read_body: Callable[[], Graph]
) -> OpText:
    """The op that comes next: type, inputs, then name, attributes and notes in any order."""
    op = OpText(position, outputs)
    op.domain, op.op_type = _read_kind(lexer)
    lexer.expect("(")
    while not lexer.take(")"):
        if op.inputs:
            lexer.expect(",")
        left_out = lexer.take("_")
        op.inputs.append(left_out or lexer.expect_kind("value", "a value such as %x"))
    reader = AttrReader(lexer, read_body)
    while True:
        token = lexer.peek()
        if token.kind == "op" and op.name is None:
            op.name = lexer.next()
        elif token.text == "{" and token.kind == "sign" and not op.attrs:
            op.attrs = reader.attrs()
        elif not reader.info(op.info):
            return op


def _read_kind(lexer: Lexer) -> tuple[str, str]:
    """Domain and op type: ``Add``, ``com.microsoft.Gelu``, ``"odd domain"."odd.Op"``."""
    token = lexer.peek()
    if token.kind not in ("word", "string"):
        raise lexer.unexpected("an op type")
    lexer.next()
    if token.kind == "word" and not token.text.endswith("."):
        domain, _, op_type = token.text.rpartition(".")
        return domain, op_type
    if token.kind == "word":
        return token.text[:-1], lexer.expect_kind("string", "an op type").text
    if not lexer.take("."):
        return "", token.text
    if lexer.peek().kind not in ("word", "string"):
        raise lexer.unexpected("an op type")
    return token.text, lexer.next().text
