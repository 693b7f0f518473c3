"""Graph to Graph, then Graph to Schedule: the passes and their manager."""
