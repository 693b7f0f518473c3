"""Specifications of small models of each family, for tests: two layers, four heads."""

from __future__ import annotations

BASE = {
    "name": "tiny",
    "description": "for tests",
    "source": "none",
    "hidden": 32,
    "layers": 2,
    "heads": 4,
    "intermediate": 48,
    "vocabulary": 37,
    "max_positions": 16,
}
FAMILIES = {
    "llama": {**BASE, "family": "llama", "kv_heads": 2},
    "gpt2": {**BASE, "family": "gpt2"},
    "bert": {**BASE, "family": "bert", "token_types": 2},
}
