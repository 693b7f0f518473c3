"""What an option is; `option_table` has them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``check`` returns the value in its final form or raises ValueError."""

    name: str
    default: Any
    accepts: str
    doc: str
    check: Callable[[Any], Any]
