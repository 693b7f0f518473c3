"""Fusion of what surrounds attention in a transformer block: norms, rotary, activations."""
