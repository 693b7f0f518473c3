"""The simulated device: profiles, cost model, simulator, kernels, executor."""
