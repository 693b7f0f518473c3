"""A strategy of one's own: compute-intensive ops on Stream0, memory-intensive ones on Stream1."""

import gecompiler as ge


class MyAssignStrategy(ge.StreamAssignStrategy):
    def assign(self, op_graph):
        for op in op_graph.ops:
            if op.is_compute_intensive():
                ge.assign_to_stream(op, 0)
            elif op.is_memory_intensive():
                ge.assign_to_stream(op, 1)


ge.set_stream_strategy(MyAssignStrategy())

model = ge.compile("gpt2", batch=8, seq=512)
schedule = model.as_dict()["schedule"]
for row in model.as_dict()["streams"]["per_stream"]:
    print(f"Stream{row['id']}: {row['tasks']} tasks, busy {row['utilisation']:.0%}")
print(f"speed-up over one stream: {schedule['speedup']:.2f}x")
