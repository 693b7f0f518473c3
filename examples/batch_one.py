"""Streams only where the batch is worth it."""

import gecompiler as ge

for batch_size in (1, 8):
    if batch_size > 1:
        ge.set_option("enable_stream_parallel", True)
    else:
        ge.set_option("enable_stream_parallel", False)
    report = ge.compile("gpt2", batch=batch_size, seq=512).as_dict()
    print(
        f"batch {batch_size}: {report['streams']['used']} stream(s), "
        f"{report['schedule']['makespan_us'] / 1000:.2f} ms"
    )
