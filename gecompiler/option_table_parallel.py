"""The options of several cards."""

from __future__ import annotations

from gecompiler import option_checks as checks
from gecompiler.option import Option

MOST_RANKS = 1 << 16
CHUNKS = 2
"""Pieces of the model a stage has under ``interleaved``, where nothing else is asked for."""

AXIS_DOCS = {
    "tp": "Tensor parallel: cards that share each layer, by attention heads and MLP columns.",
    "sp": "Sequence parallel: cards that share the tokens of a sequence.",
    "dp": "Data parallel: cards that each take a part of the batch.",
    "pp": "Pipeline parallel: stages, each with a part of the layers.",
    "ep": "Expert parallel: cards that share the experts of a mixture-of-experts model.",
}

PARALLEL_OPTIONS: tuple[Option, ...] = (
    *(
        Option(name, 1, f"a number from 1 to {MOST_RANKS}", doc, checks.whole(1, MOST_RANKS))
        for name, doc in AXIS_DOCS.items()
    ),
    Option(
        "topology",
        None,
        "name of a topology, path of a YAML file, or 'none'",
        "How the cards are linked; none: as cards of the device are by default.",
        checks.text_or_none,
    ),
    Option(
        "collective_algorithm",
        "auto",
        "name of an algorithm (ring, mesh, ...) or 'auto'",
        "By which algorithm collectives are carried out (auto: the cheapest).",
        checks.text,
    ),
    Option(
        "micro_batches",
        None,
        "a number from 1 to 4096, or 'auto'",
        "Parts of the batch that follow each other through the stages of a pipeline (auto: up to "
        "four a stage, as far as the batch divides), or go through cards without stages side by "
        "side or in turn (auto: as few as hide communication best).",
        checks.or_auto(checks.whole(1, 4096)),
    ),
    Option(
        "pipeline_schedule",
        "1f1b",
        "'gpipe', '1f1b' or 'interleaved'",
        "The order in which a stage takes micro-batches, forwards and backwards.",
        checks.one_of("gpipe", "1f1b", "interleaved"),
    ),
    Option(
        "pipeline_chunks",
        CHUNKS,
        "a number from 1 to 64",
        "interleaved: how many pieces of the model each stage has.",
        checks.whole(1, 64),
    ),
    Option(
        "sequence_exchange",
        "gather",
        "'gather', 'ring' or 'all-to-all'",
        "sp: how queries see the keys of other cards: these are gathered, go round from card to "
        "card, or heads are exchanged for tokens and back. Where one cannot be, keys are gathered.",
        checks.one_of("gather", "ring", "all-to-all"),
    ),
    Option(
        "shared_kv_heads",
        "replicate",
        "'replicate' or 'split'",
        "tp: KV heads that are fewer than the cards: held by several of them, or made in equal "
        "parts by all and gathered.",
        checks.one_of("replicate", "split"),
    ),
    Option(
        "embeddings",
        "replicate",
        "'replicate' or 'split'",
        "tp: tables of embeddings: whole on every card, or cut by words, which costs an "
        "all-reduce of what is looked up.",
        checks.one_of("replicate", "split"),
    ),
    Option(
        "expert_tokens",
        "split",
        "'split' or 'replicate'",
        "ep: samples are cut over the cards of ep as over those of dp, and go to their experts "
        "and back, or each of these cards has all tokens of its replica.",
        checks.one_of("split", "replicate"),
    ),
)
