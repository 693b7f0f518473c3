"""Ops placed on streams by name: type, group from the model's module paths, or exact name."""

import gecompiler as ge

ge.set_stream_assignment(
    {
        "FlashAttention": 0,  # Stream0
        "LayerNorm": 0,  # the same stream: strong dependency
        "MLP gate": 1,  # Stream1
        "MLP up": 1,
        "MLP down": 0,  # back to Stream0: it waits for gate and up
    }
)

model = ge.compile("llama-7b", batch=8, seq=1024)
for (_, stream), tasks in model.schedule.streams.items():
    groups = sorted({task.group for task in tasks if task.group})
    print(f"Stream{stream}: {len(tasks)} tasks: {', '.join(groups)}")
sync = model.as_dict()["sync"]
print(f"{sync['events']} waits for {sync['cross_stream_dependencies']} dependencies")
for warning in model.as_dict()["warnings"]:
    print(f"warning {warning['code']}: {warning['message']}")
