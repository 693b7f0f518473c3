"""How tests run the command line."""

from __future__ import annotations

from collections.abc import Callable

Gec = Callable[..., tuple[int, str, str]]
"""Takes the words of a command; gives its exit code, stdout and stderr."""
