"""Every text for the user in the source: what `say` is given, and what is raised or warned of."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("ir", "passes", "backends", "models", "gecompiler")

PYTHON_ONLY = (
    "backends/compiler_slot.py",
    "backends/kernels/",
    "backends/onnx_backend.py",
    "gecompiler/__init__.py",
    "gecompiler/lang/",
    "gecompiler/ops/",
    "gecompiler/profiler/",
    "gecompiler/session.py",
    "ir/__init__.py",
    "ir/graph",
    "ir/text/",
    "ir/verify/",
    "models/__init__.py",
    "passes/__init__.py",
)
"""What only Python's callers meet, as exceptions, which are English: `gec` prints none of it."""

CALLS = {
    *(
        "tell",
        "warn",
        "Finding",
        "Refused",
        "Remark",
        "at",
        "fail",
        "_fail",
        "error",
        "_error",
        "refuse",
    ),
    *("BadParameter", "Refusal"),
}
NAMES = {"message", "hint", "hints", "why", "reason", "fix", "note", "_HINT", "HINT"}
NOT_SHOWN = {"where", "code", "param_hint", "param"}


def templates(node: ast.expr) -> list[str]:
    """All texts that an expression may give, as templates; none where it gives something else."""
    match node:
        case ast.Constant(value=str(text)):
            return [text.replace("{", "{{").replace("}", "}}")]
        case ast.JoinedStr(values=values):
            found = [""]
            for value in values:
                parts = (templates(value) or ["{}"]) if _is_known(value) else ["{}"]
                found = [text + part for text in found for part in parts]
            return found
        case ast.FormattedValue(value=ast.IfExp() as choice):
            return templates(choice)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            first, second = templates(left), templates(right)
            if not first and not second:
                return []
            return [a + b for a in first or ["{}"] for b in second or ["{}"]]
        case ast.IfExp(body=body, orelse=other):
            return [*templates(body), *templates(other)]
    return []


def _is_known(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) or (
        isinstance(value, ast.FormattedValue) and isinstance(value.value, ast.IfExp)
    )


@lru_cache
def said() -> dict[str, str]:
    """The templates that `say` is given, and where."""
    return {
        text: place
        for place, node in _nodes()
        if isinstance(node, ast.Call) and _name(node) == "say" and node.args
        for text in _plain(node.args[0])
    }


def _plain(node: ast.expr) -> list[str]:
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


@lru_cache
def raised() -> dict[str, str]:
    """The templates of messages, hints, findings and refusals, and where they are made."""
    found: dict[str, str] = {}
    for place, node in _nodes():
        if not place.startswith(PYTHON_ONLY):
            found |= {text: place for text in _made(node) if _is_message(text)}
    return found


def _made(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call):
        name = _name(node)
        if name in CALLS or (name.endswith("Error") and not name.startswith("_")):
            shown = [k.value for k in node.keywords if k.arg not in NOT_SHOWN]
            for value in (*node.args, *shown):
                yield from templates(value)
    elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in NAMES:
        yield from templates(node.value)


def _is_message(text: str) -> bool:
    """Not a code, a name or a value: at least two words, or a word beside a hole."""
    bare = text.replace("{}", "").strip(" .,:;()'\"")
    return " " in text and len(bare) >= 4 and any(char.isalpha() for char in bare)


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func).rsplit(".", 1)[-1]


@lru_cache
def _nodes() -> tuple[tuple[str, ast.AST], ...]:
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, (ast.Call, ast.Assign)):
                    line = getattr(node, "lineno", 0)
                    found.append((f"{place}:{line}", node))
    return tuple(found)


def without_chinese() -> dict[str, str]:
    """The templates that have no Chinese text, and where they stand."""
    from gecompiler.lang.zh import messages

    known = messages()
    return {text: place for text, place in {**said(), **raised()}.items() if text not in known}


if __name__ == "__main__":
    for text, place in without_chinese().items():
        print(f"{place}: {text!r}")  # noqa: T201  (make messages)
