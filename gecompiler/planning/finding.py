"""Whether sequence parallel moves less than tensor parallel, with the numbers of this model.

A token of a layer, on n cards, sends from a card

    tensor parallel     4 (n-1)/n x hidden               two all-reduces: behind attention and MLP
    sequence parallel   2 KV heads x head dim (n-1)/n    one all-gather of keys, one of values

elements, so that sequence parallel moves less where KV heads x head dim < 2 x hidden (keys and
values of one width), and by the more the fewer KV heads there are: 1/16 with the 8 KV heads of a
Llama 2 70B, 1/2 with as many KV heads as query heads of hidden / heads. It does not where
attention is wider than twice the layer (T5 11B: 128 heads of 128 over 1024); and what it moves
less it pays for elsewhere: every card holds and reads all weights, a training step must sum the
gradients of all weights besides, and a decode step has one token to share.

Sources: Shoeybi et al. 2019, Megatron-LM, section 3 (the all-reduces); Korthikanti et al. 2022,
Reducing Activation Recomputation, section 4.2 (sequence parallel); Thakur et al. 2005 (bytes of
collectives). The numbers are counted in the programs, not taken from the formula; what the model
hands out stays where it is made (logits cut by tokens or by the vocabulary).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gecompiler.ir.errors import GecError
from gecompiler.passes.rank_schedules import volume_by_axes
from gecompiler.planning.layouts import Layout, tp_fits

if TYPE_CHECKING:
    from gecompiler.ir.parallel import ParallelProgram
    from gecompiler.planning.assess import Assessor
    from gecompiler.planning.facts import ModelFacts


@dataclass(frozen=True)
class Finding:
    """Bytes that a card sends in a run of the whole batch, by the one and by the other."""

    cards: int
    tensor_bytes: float
    sequence_bytes: float
    tensor_weights: int
    """Bytes of weights on a card under tensor parallel."""
    sequence_weights: int
    kv_width: int
    """Elements of keys and values of a token and layer."""
    hidden: int

    @property
    def holds(self) -> bool:
        """Whether sequence parallel moves less."""
        return self.sequence_bytes < self.tensor_bytes

    @property
    def expected(self) -> float:
        """Sequence over tensor parallel by the formula of layers alone; 0 where not known."""
        return self.kv_width / (4 * self.hidden) if self.hidden else 0.0


def sequence_finding(assessor: Assessor, facts: ModelFacts, cards: int) -> Finding | None:
    """The finding for the largest group of the cards that both can use; None without one."""
    for count in range(cards, 1, -1):
        if cards % count or not tp_fits(facts, count) or facts.seq < 2 or facts.seq % count:
            continue
        try:
            tensor = assessor.layers(Layout(tp=count))
            sequence = assessor.layers(Layout(sp=count))
        except GecError:
            return None
        return Finding(
            count,
            _sent(tensor, "tp"),
            _sent(sequence, "sp"),
            _weights(tensor),
            _weights(sequence),
            facts.kv_width,
            facts.hidden,
        )
    return None


def _sent(program: ParallelProgram, axis: str) -> float:
    return max(volume_by_axes(t.graph).get(axis, 0.0) for t in program.templates)


def _weights(program: ParallelProgram) -> int:
    """Bytes of weights on the card that holds most."""
    return max(sum(c.type.bytes for c in t.graph.constants.values()) for t in program.templates)
