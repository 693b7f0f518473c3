"""How many streams the device has; more than that gives the maximum, and a warning."""

import gecompiler as ge

max_streams = ge.get_device_capability("max_streams")
print(f"Device supports {max_streams} streams")

model = ge.compile("gpt2", batch=1, seq=128, num_streams=8, stream_strategy="critical_path")
for warning in model.as_dict()["warnings"]:
    print(f"warning {warning['code']}: {warning['message']}")
