"""Placement by the compiler: it simulates the candidates and keeps the fewest streams."""

import gecompiler as ge

ge.set_option("enable_stream_parallel", True)

model = ge.compile("llama-7b", batch=8, seq=1024)
model.report()
