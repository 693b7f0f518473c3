"""One of a thing in English: ``{count} ranks`` with a count of 1 is ``1 rank``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NOUNS = {
    "buckets": "bucket",
    "cards": "card",
    "dependencies": "dependency",
    "elements": "element",
    "entries": "entry",
    "event ids": "event id",
    "events": "event",
    "heads": "head",
    "kinds": "kind",
    "launches": "launch",
    "layouts": "layout",
    "micro-batches": "micro-batch",
    "notifies": "notify",
    "operators": "operator",
    "ops": "op",
    "parameters": "parameter",
    "points": "point",
    "ranks": "rank",
    "rows": "row",
    "sizes": "size",
    "stages": "stage",
    "streams": "stream",
    "tasks": "task",
    "tensors": "tensor",
    "times": "time",
    "tokens": "token",
    "waits": "wait",
}
_COUNTED = re.compile(
    r"\{(\w+)\} ((?:KV |more |physical |other )?)("
    + "|".join(sorted(_NOUNS, key=len, reverse=True))
    + r")\b(?!-)"
)


def counted(template: str, values: Mapping[str, Any]) -> str:
    """The English template with nouns as its counts need them; a hole's words stay its own."""

    def form(found: re.Match[str]) -> str:
        count, kind, noun = found.groups()
        one = values.get(count) in (1, "1") and values.get(count) is not True
        return f"{{{count}}} {kind}{_NOUNS[noun] if one else noun}"

    return _COUNTED.sub(form, template)
