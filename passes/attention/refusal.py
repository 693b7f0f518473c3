"""Why an attention is left as it is."""

from __future__ import annotations

from gecompiler.ir.op import Op


class Refusal(Exception):  # noqa: N818  (a finding, caught by the pass, no error)
    """Matching stopped. The message names the node and says what was found there."""


def at(op: Op, found: str) -> Refusal:
    """A refusal at an op: ``at(op, "adds a bias inside the softcap")``."""
    return Refusal(f"{op.name} ({op.kind}) {found}")
