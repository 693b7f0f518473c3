"""Reading dims back from the text that `str` of a dim gives, or that an exporter wrote."""

from __future__ import annotations

import ast
from collections.abc import Callable

from gecompiler.ir.dims import FUNCTIONS, Dim, floordiv, mod, symbol


def parse_dim(text: str) -> Dim:
    """The dim that ``text`` spells: ``8``, ``batch``, ``2*s + 1``, ``floordiv(s, 2)``.

    A spelling that is no expression is a symbol of that very name, since exporters write
    names such as ``MatMullogits_dim_0`` or ``unk__3`` and some write arbitrary text.
    """
    try:
        return _evaluate(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError, ZeroDivisionError):
        return symbol(text)


_BINARY: dict[type[ast.operator], Callable[[Dim, Dim], Dim]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}


def _evaluate(node: ast.expr) -> Dim:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return symbol(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        function = FUNCTIONS.get(node.func.id)
        if function is not None and node.args and not node.keywords:
            return function(*(_evaluate(a) for a in node.args))
    raise ValueError("not a dim expression")
