"""What an op asks of a device: one formula per op family."""
