"""Our own arithmetic: attention and the fused ops."""
