"""Numbers as people read them."""

from __future__ import annotations


def duration(us: float) -> str:
    """Microseconds as us, ms or s with three or four digits."""
    if us < 1000:
        return f"{us:.2f} us" if us < 100 else f"{us:.1f} us"
    if us < 1_000_000:
        return f"{us / 1000:.2f} ms" if us < 100_000 else f"{us / 1000:.1f} ms"
    return f"{us / 1_000_000:.2f} s"


def size(count: float) -> str:
    """Bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} TiB"


def number(count: float) -> str:
    """A count with K, M or G."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "K")):
        if count >= limit:
            scaled = count / (1e3 if unit == "K" else limit)
            return f"{scaled:.2f} {unit}" if scaled < 100 else f"{scaled:.0f} {unit}"
    return f"{count:,.0f}"
