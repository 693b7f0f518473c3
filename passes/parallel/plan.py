"""What is decided before a graph is made local: which dims are cut where they begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gecompiler.ir.parallel import Layout, Note, Split
from gecompiler.passes.parallel.rank_rows import RankRows
from gecompiler.passes.parallel.stages import Cost

SequenceWay = Literal["gather", "ring", "all-to-all"]
SEQUENCE_WAYS: tuple[SequenceWay, ...] = ("gather", "ring", "all-to-all")

KvHeads = Literal["replicate", "split"]
KV_HEADS: tuple[KvHeads, ...] = ("replicate", "split")

ExpertTokens = Literal["split", "replicate"]
EXPERT_TOKENS: tuple[ExpertTokens, ...] = ("split", "replicate")

CachedKeyParts = Literal["split", "whole"]

Embeddings = Literal["replicate", "split"]
EMBEDDINGS: tuple[Embeddings, ...] = ("replicate", "split")


@dataclass(frozen=True)
class ParallelOptions:
    """How `parallelise` goes about it.

    ``sequence``: how keys and values reach queries that are cut by tokens: ``gather``, ``ring``
    from rank to rank (Liu et al. 2023), or ``all-to-all`` to heads and back (Jacobs et al. 2023).
    Where one cannot be, keys are gathered, and a note tells why.
    ``gather_outputs``: mesh axes over which outputs are put together on every rank; the others
    stay cut (vocabulary-parallel logits, samples of a batch).
    ``vocabulary``: whether the head of a language model is cut by words over ``tp``, and its
    logits with it.
    ``kv_heads``: what becomes of KV heads that are fewer than the ranks of ``tp``: neighbours hold
    the same (``replicate``), or they are made in equal parts by all and gathered (``split``).
    ``embeddings``: whether ranks of ``tp`` each hold a part of the words' rows (``split``), which
    costs an all-reduce of what is looked up, or all of them (``replicate``).
    ``expert_tokens``: whether samples are cut over ``ep`` too (``split``: experts get the tokens of
    their group and give back to each rank its own), or every rank of ``ep`` has all of them.
    ``cached_keys``: whether ranks of ``sp`` each hold a part of a KV cache (``split``) where there
    are few queries, or all of it (``whole``), as training needs: attention over parts of its keys
    has no gradient here.
    ``cost``: how long an op of the whole model takes, by which stages are balanced; by default
    multiply-adds and bytes.
    """

    sequence: SequenceWay = "gather"
    gather_outputs: tuple[str, ...] = ("sp",)
    vocabulary: bool = True
    kv_heads: KvHeads = "replicate"
    embeddings: Embeddings = "replicate"
    expert_tokens: ExpertTokens = "split"
    cached_keys: CachedKeyParts = "split"
    cost: Cost | None = None


@dataclass(frozen=True)
class HeadCut:
    """How the heads of an attention are shared out: of the queries, and of keys and values."""

    queries: Split
    keys: Split


@dataclass
class Plan:
    """What is cut where it begins.

    ``wishes`` are layouts of inputs and of values that no op hands on cut, by name; of constants
    by the op that reads them and the index of the input. ``heads`` goes by attention. ``keys`` are
    attentions whose keys are cut, and over which axes; ``apart`` are outputs that stay cut whatever
    is gathered. ``rows`` and ``sums`` are those of a `RankGraph`.

    Where ranks of ``ep`` have tokens of their own: ``samples`` says how values would lie that are
    cut with the tokens, ``experts`` which wishes are for experts and go before those for tokens,
    and ``barred`` over which axes an op may not be cut, since ranks have different constants.
    """

    wishes: dict[str | tuple[str, int], tuple[Layout, ...]] = field(default_factory=dict)
    heads: dict[str, HeadCut] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    apart: set[str] = field(default_factory=set)
    samples: dict[str, tuple[Layout, ...]] = field(default_factory=dict)
    experts: set[str | tuple[str, int]] = field(default_factory=set)
    barred: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    rows: Mapping[str, RankRows] = field(default_factory=dict)
    sums: Mapping[str, str] = field(default_factory=dict)
