"""Choosing a parallel layout: which fit the memory, how long each takes, what binds it."""
