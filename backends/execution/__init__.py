"""Real numbers in simulated order, at planned addresses."""
