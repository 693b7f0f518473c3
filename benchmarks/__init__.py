"""Measurements against peers in the same run, as ratios. Run with ``python -m benchmarks.NAME``."""
