"""Lets the tests of this folder import the package `benchmarks`, which is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
