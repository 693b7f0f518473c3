"""The options of several cards that compile, run and profile have in common."""

from __future__ import annotations

from typing import Any

import click

from gecompiler.cli_options import F, with_options

NAMES = (
    *("tp", "sp", "dp", "pp", "ep"),
    *("topology", "micro_batches", "pipeline_schedule", "pipeline_chunks"),
    *("sequence_exchange", "shared_kv_heads", "embeddings", "expert_tokens"),
)

_OPTIONS = (
    click.option("--tp", type=click.IntRange(1), help="Cards that share each layer's heads."),
    click.option("--sp", type=click.IntRange(1), help="Cards that share a sequence's tokens."),
    click.option("--dp", type=click.IntRange(1), help="Cards that share the batch."),
    click.option("--pp", type=click.IntRange(1), help="Stages of a pipeline."),
    click.option("--ep", type=click.IntRange(1), help="Cards that share the experts."),
    click.option(
        "--topology", metavar="NAME|FILE",
        help="How the cards are linked (see 'gec topologies'; default: the device's).",
    ),
    click.option(
        "--micro-batches", metavar="N|auto", help="Parts of the batch that follow each other."
    ),
    click.option(
        "--pipeline-schedule", type=click.Choice(["gpipe", "1f1b", "interleaved"]),
        help="The order in which a stage takes micro-batches (default: 1f1b).",
    ),
    click.option(
        "--pipeline-chunks", type=click.IntRange(1),
        help="Pieces of the model a stage has, interleaved (default: 2).",
    ),
    click.option(
        "--sequence-exchange", type=click.Choice(["gather", "ring", "all-to-all"]),
        help="How queries see the keys of other cards, with --sp (default: gather).",
    ),
    click.option(
        "--shared-kv-heads", type=click.Choice(["replicate", "split"]),
        help="KV heads that are fewer than the cards of --tp (default: replicate).",
    ),
    click.option(
        "--embeddings", type=click.Choice(["replicate", "split"]),
        help="Tables of embeddings on the cards of --tp (default: replicate).",
    ),
    click.option(
        "--expert-tokens", type=click.Choice(["split", "replicate"]),
        help="Samples on the cards of --ep: cut over them, or all on each (default: split).",
    ),
)  # fmt: skip


def cards_options(command: F) -> F:
    """Adds the options of several cards."""
    return with_options(command, _OPTIONS)


def take_cards(values: dict[str, Any]) -> dict[str, Any]:
    """Takes these options out of a command's keyword arguments; None where not given."""
    return {name: values.pop(name) for name in NAMES}
