"""Small, normal and large work, each with the stream configuration it is usually given."""

import gecompiler as ge

# small batch, short sequence: one stream
config_small = {
    "num_streams": 1,
    "stream_strategy": "default",
}

# normal inference: two streams
config_normal = {
    "num_streams": 2,
    "stream_strategy": "compute_overlap",
    "overlap_ratio": 0.7,  # computation and data movement overlap by 70%
}

# large batch, long sequence: three to four streams
config_large = {
    "num_streams": 4,
    "stream_strategy": "pipeline",
    "pipeline_depth": 3,  # three stages in flight
}

print("batch    seq  strategy         streams   one stream    scheduled  speed-up")
for batch, seq, config in (
    (1, 512, config_small),
    (8, 1024, config_normal),
    (32, 2048, config_large),
):
    ge.configure(**config)
    model = ge.compile("llama-7b", batch=batch, seq=seq)
    report = model.as_dict()
    schedule, streams = report["schedule"], report["streams"]
    print(
        f"{batch:5} {seq:6}  {streams['strategy']:<16} {streams['used']:7} "
        f"{schedule['single_stream_us'] / 1000:9.1f} ms {schedule['makespan_us'] / 1000:9.1f} ms "
        f"{schedule['speedup']:8.2f}x"
    )
