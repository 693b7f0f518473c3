"""The recommended options as the YAML file that ``--assign`` takes."""

from __future__ import annotations

import json

from gecompiler.tuning.tune import Tuning


def options_text(tuning: Tuning) -> str:
    """The file's text, with what each choice gains as comments."""
    sizes = ", ".join(f"{name} {value}" for name, value in sorted(tuning.sizes.items()))
    lines = [f"# gec tune: {tuning.model} on {tuning.device}" + (f" ({sizes})" if sizes else "")]
    lines += [f"# {c.name}: {c.value}, {c.gain:.1%} less time" for c in tuning.choices]
    options = {"device": tuning.device, **tuning.options}
    lines += ["options:", *(f"  {name}: {json.dumps(value)}" for name, value in options.items())]
    return "\n".join(lines) + "\n"
