"""An order that the data does not imply; one that it implies is said to be redundant."""

import gecompiler as ge

ge.set_stream_assignment({"FlashAttention": 0, "MLP up": 1})
ge.add_sync_point(
    producer="FlashAttention",
    consumer="MLP",
    sync_type="data_ready",  # signal when the data is ready
)

model = ge.compile("gpt2", batch=4, seq=256)
report = model.as_dict()
print(f"sync points of the user kept: {report['sync']['user_points']}")
for warning in report["warnings"]:
    print(f"{warning['code']}: {warning['message']}")
print("verified:", report["verification"]["race_free"])
