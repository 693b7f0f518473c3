"""Where tensors lie: layouts that kernels read and write themselves, so that nothing is copied."""
