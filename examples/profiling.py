"""Run with real numbers, then look at the timeline of that run."""

from pathlib import Path

import numpy as np

import gecompiler as ge
from gecompiler.models import build_spec

tiny = build_spec(Path(__file__).parent / "tiny-llama.yaml", weights="random")
model = ge.compile(tiny, batch=2, seq=16, num_streams=2, stream_strategy="critical_path")
x = {
    "input_ids": np.arange(32).reshape(2, 16) % 37,
    "attention_mask": np.ones((2, 16), np.int64),
}

# switch execution analysis on
ge.enable_profiling()

# run the inference
output = model.forward(x)
print("logits", output.shape)

# look at the timeline
timeline = ge.get_execution_timeline()
timeline.print()
