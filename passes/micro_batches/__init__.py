"""A graph with its batch in parts, proven op by op."""
