"""Random valid ONNX graphs, run through the compiler and compared with reference runtimes.

`generate` makes a model and its inputs from a seed, `campaign` checks a range of seeds,
`shrink` brings a failure down to the few nodes it takes.
"""
