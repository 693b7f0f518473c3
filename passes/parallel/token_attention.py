"""What the ways have in common in which attention sees the keys of other ranks."""

from __future__ import annotations

from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Split
from gecompiler.passes.parallel.label_choice import Cut, LabelChoice
from gecompiler.passes.parallel.local_values import LocalValues


class TokenAttention:
    """One attention whose queries are cut by tokens."""

    def __init__(self, values: LocalValues, choice: LabelChoice, op: Op, cut: Cut) -> None:
        self._values, self._local, self._choice = values, values.local, choice
        self._op, self._cut = op, cut
        self._attention = FlashAttention.of(op)
        self._rows = cut.layouts.get("s")
        self.why = ""
        """Why it does not apply though the queries are cut."""

    @property
    def applies(self) -> bool:
        """Whether this way can be gone; what it says of that is in `why`."""
        if not isinstance(self._rows, Split):
            return False
        self.why = self._refusal(self._rows)
        return not self.why

    def _refusal(self, rows: Split) -> str:
        """What is in the way, ``""`` for nothing."""
        raise NotImplementedError
