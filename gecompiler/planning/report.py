"""A plan as data, and as text for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gecompiler.lang import say
from gecompiler.lang.width import pad, pad_left
from gecompiler.planning.assess import Assessment
from gecompiler.planning.finding import Finding
from gecompiler.planning.one_card import OneCard
from gecompiler.planning.plan import Plan
from gecompiler.report_layout import resource_name
from gecompiler.units import duration, number, size

SCHEMA_VERSION = 1


def plan_as_dict(plan: Plan) -> dict[str, Any]:
    """Plain data: the ranking and what else was considered. Times in us, sizes in bytes."""
    finding = plan.finding
    return {
        "schema_version": SCHEMA_VERSION,
        "model": plan.model,
        "device": plan.device,
        "topology": plan.topology,
        "cards": plan.cards,
        "memory_bytes": plan.memory_bytes,
        "training": plan.training,
        "batch": plan.facts.batch,
        "tokens": plan.facts.seq,
        "considered": plan.considered,
        "skipped": plan.skipped,
        "variants": plan.variants,
        "variants_ruled_out": plan.ruled_out,
        "ranked": [_row(a) for a in plan.ranked],
        "too_large": [_row(a) for a in plan.too_large],
        "refused": [
            {"layout": r.layout.options(), "reason": r.reason, "memory_bytes": r.memory_bytes}
            for r in plan.refused
        ],
        "one_card": None if plan.one_card is None else _one_card(plan, plan.one_card),
        "sequence_or_tensor": None if finding is None else _finding(finding),
        "warnings": list(plan.warnings),
    }


def _one_card(plan: Plan, found: OneCard) -> dict[str, Any]:
    return {
        "time_us": found.time_us,
        "memory_bytes": found.memory_bytes,
        "speedup": found.speedup(plan.ranked[0].time_us),
    }


def _row(found: Assessment) -> dict[str, Any]:
    return {
        "layout": found.layout.options(),
        "time_us": found.time_us,
        "tokens_per_s": found.tokens_per_s,
        "samples_per_s": found.samples_per_s,
        "sent_bytes": dict(found.sent_bytes),
        "communication_us": found.communication_us,
        "exposed_us": found.exposed_us,
        "bubble": found.bubble,
        "memory_bytes": {**found.memory.as_dict(), "total": found.memory.total},
        "binding": {"kind": found.bound.kind, "name": found.bound.name, "share": found.bound.share},
        "busiest_link": {"name": found.link, "utilisation": found.link_use},
        "notes": list(found.notes),
    }


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "cards": found.cards,
        "tensor_parallel_bytes": found.tensor_bytes,
        "sequence_parallel_bytes": found.sequence_bytes,
        "sequence_moves_less": found.holds,
        "ratio": found.sequence_bytes / found.tensor_bytes if found.tensor_bytes else None,
        "ratio_by_formula": found.expected,
        "tensor_parallel_weights": found.tensor_weights,
        "sequence_parallel_weights": found.sequence_weights,
    }


# ------------------------------------------------------------------ text


def plan_text(plan: Plan, most: int = 12, model: str = "MODEL") -> str:
    """The ranking as a table, what binds, and what the numbers say of sequence parallel.

    ``model`` is how the model is named to ``gec compile``, with the options of the plan.
    """
    blocks = [_head(plan), _table(plan.ranked[:most]), _rest(plan, most), _said(plan, model)]
    texts = ["\n".join(lines) for lines in blocks]
    return "\n\n".join(text for text in texts if text)


def _head(plan: Plan) -> Iterator[str]:
    yield say(
        "{model} on {cards} x {device}, {topology}: batch {batch}, {seq} tokens a sample",
        model=plan.model,
        cards=plan.cards,
        device=plan.device,
        topology=plan.topology,
        batch=plan.facts.batch,
        seq=plan.facts.seq,
    )
    yield "  " + say(
        "{fit} of {all} layouts fit {memory} a card and were simulated",
        fit=sum(_is_layout(a) for a in plan.ranked),
        all=plan.considered,
        memory=size(plan.memory_bytes),
    )
    if plan.skipped:
        yield "  " + say("{count} more promised less and were not simulated", count=plan.skipped)
    if plan.variants:
        yield "  " + say(
            "{count} other ways to communicate were simulated, {out} promised less",
            count=plan.variants,
            out=plan.ruled_out,
        )


def _is_layout(found: Assessment) -> bool:
    """Whether it is no other way of a layout."""
    layout = found.layout
    return (layout.abreast, layout.exchange, layout.kv_heads) == (1, "gather", "replicate")


_COLUMNS = ("layout", "time", "tokens/s", "sent a card", "exposed", "bubble", "memory", "bound by")


def _table(rows: tuple[Assessment, ...]) -> Iterator[str]:
    cells = [[say(title) for title in _COLUMNS], *(_cells(row) for row in rows)]
    wide = [max(_columns(row[i]) for row in cells) for i in range(len(_COLUMNS))]
    for row in cells:
        shown = [
            pad(text, wide[i]) if i in (0, 3, 7) else pad_left(text, wide[i])
            for i, text in enumerate(row)
        ]
        yield ("  " + "  ".join(shown)).rstrip()


def _columns(text: str) -> int:
    from gecompiler.lang.width import columns

    return columns(text)


def _cells(row: Assessment) -> list[str]:
    sent = ", ".join(f"{axes} {size(n)}" for axes, n in row.sent_bytes.items() if n) or "-"
    share = row.exposed_us / row.time_us if row.time_us else 0.0
    waits = row.bound.kind == "bubble"
    name = say("waiting for other ranks") if waits else resource_name(row.bound.name)
    return [
        str(row.layout),
        duration(row.time_us),
        number(row.tokens_per_s),
        sent,
        f"{share:.0%}",
        f"{row.bubble:.0%}",
        _memory(row),
        f"{name} {row.bound.share:.0%}",
    ]


def _memory(row: Assessment) -> str:
    """The total, and what it is made of, where that is more than a hundredth."""
    found = row.memory
    parts = (
        ("w", found.weights),
        ("kv", found.kv_cache),
        ("act", found.activations),
        ("grad", found.gradients),
        ("opt", found.optimizer),
    )
    inner = " ".join(f"{name} {n / 2**30:.1f}" for name, n in parts if n > found.total / 100)
    return f"{found.total / 2**30:.1f} GiB ({inner})"


def _rest(plan: Plan, most: int) -> Iterator[str]:
    if len(plan.ranked) > most:
        yield "  " + say("and {count} slower ones (see --json)", count=len(plan.ranked) - most)
    if plan.too_large:
        best = plan.too_large[0]
        yield "  " + say(
            "{count} layouts turned out too large, the smallest {layout} with {memory}",
            count=len(plan.too_large),
            layout=str(best.layout),
            memory=size(best.memory.total),
        )
    by_memory = sum(r.memory_bytes > 0 for r in plan.refused)
    if by_memory:
        yield "  " + say("{count} layouts cannot hold the weights and cache", count=by_memory)
    for refused in [r for r in plan.refused if not r.memory_bytes][:3]:
        yield "  " + say(
            "{layout} cannot be made: {reason}", layout=str(refused.layout), reason=refused.reason
        )


def _said(plan: Plan, model: str) -> Iterator[str]:
    """The best layout in a sentence, and sequence against tensor parallel."""
    best = plan.ranked[0]
    yield say("Best: {layout}, bound by {bound}", layout=str(best.layout), bound=_cells(best)[-1])
    if best.link:
        yield "  " + say(
            "busiest link {link}, in use {share:.0%} of the time",
            link=best.link,
            share=best.link_use,
        )
    yield f"  gec compile {model} {_options(best)}"
    yield from _against_one(plan)
    found = plan.finding
    if found is None:
        if plan.facts.seq < 2:
            yield say("A step takes one token a sample: sp shares the KV cache, not a sequence.")
        return
    ratio = found.sequence_bytes / found.tensor_bytes if found.tensor_bytes else 0.0
    yield say(
        "Sequence or tensor parallel, {cards} cards: sp sends {sp} from a card, tp {tp} "
        "({ratio:.2f}x).",
        cards=found.cards,
        sp=size(found.sequence_bytes),
        tp=size(found.tensor_bytes),
        ratio=ratio,
    )
    if found.holds:
        yield "  " + say(
            "sp moves less: keys and values are {kv} elements a token and layer, tp sums twice "
            "{hidden} (by the formula {formula:.2f}x)",
            kv=plan.facts.kv_width,
            hidden=plan.facts.hidden,
            formula=found.expected,
        )
    else:
        yield "  " + say(
            "sp does not move less here: keys and values are {kv} elements a token and layer, tp "
            "sums twice {hidden} (by the formula {formula:.2f}x)",
            kv=plan.facts.kv_width,
            hidden=plan.facts.hidden,
            formula=found.expected,
        )
    yield "  " + say(
        "but with sp every card holds and reads {whole} of weights, with tp {part}",
        whole=size(found.sequence_weights),
        part=size(found.tensor_weights),
    )


def _against_one(plan: Plan) -> Iterator[str]:
    """What one card takes for the same batch, where it holds the model."""
    if plan.one_card is None:
        return
    time, cards = duration(plan.one_card.time_us), plan.cards
    speedup = plan.one_card.speedup(plan.ranked[0].time_us)
    if speedup < 1:
        yield say(
            "One card: {time}, faster than {cards} cards ({speedup:.2f}x)",
            time=time, cards=cards, speedup=speedup,
        )  # fmt: skip
        return
    yield say(
        "One card: {time}, {cards} cards are {speedup:.2f}x as fast",
        time=time, cards=cards, speedup=speedup,
    )  # fmt: skip


def _options(row: Assessment) -> str:
    """The options of the command line that ask for the layout."""
    found = [f"--{axis} {count}" for axis, count in reversed(row.layout.axes.items())]
    if row.layout.micro_batches > 1:
        found.append(f"--micro-batches {row.layout.micro_batches}")
    if row.layout.chunks > 1:
        found += [f"--pipeline-schedule interleaved --pipeline-chunks {row.layout.chunks}"]
    if row.layout.exchange != "gather":
        found.append(f"--sequence-exchange {row.layout.exchange}")
    if row.layout.kv_heads != "replicate":
        found.append(f"--shared-kv-heads {row.layout.kv_heads}")
    return " ".join(found)
