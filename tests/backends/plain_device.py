"""A device of round figures, for tests that reckon times by hand."""

from __future__ import annotations

import dataclasses

from gecompiler.backends.device import load_device

DEVICE = dataclasses.replace(
    load_device("ascend910b"),
    hccs_efficiency_fraction=1.0,
    hidden_fraction=1.0,
    task_gap_us=1.0,
    event_record_us=0.5,
    event_wait_us=0.25,
    hbm_bandwidth_gb_per_s=1000.0,
    hbm_efficiency_fraction=1.0,
    hccs_gb_per_s=100.0,
)
