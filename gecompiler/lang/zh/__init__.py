"""The Chinese texts, a dictionary a part: the English template to the Chinese one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

PARTS = (
    "report",
    "explain",
    "tables",
    "commands",
    "listings",
    "clauses",
    "usage",
    "devices",
    "models",
    "graphs",
    "attention",
    "streams",
    "findings",
    "profiles",
    "training",
    "parallel",
    "plots",
    "system",
)


def messages() -> Mapping[str, str]:
    """All of them."""
    found: dict[str, str] = {}
    for part in PARTS:
        found |= import_module(f"gecompiler.lang.zh.{part}").TEXTS
    return found
