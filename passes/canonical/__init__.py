"""The canonical form: folding, shape arithmetic, no-ops, merging."""
