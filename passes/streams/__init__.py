"""Stream strategies, sync points, event ids."""
