"""Attention over several ranks, in this process: real numbers, and every byte that is moved.

    from gecompiler import ops
    done = ops.sequence_parallel(query, key, value, head_num=64, ranks=8, algorithm="ring")
    done.out, done.sent_bytes, done.ranks[0].sent
    ops.parallel_counters("ulysses", (1, 32768, 64, 128), (1, 32768, 8, 128), head_num=64, ranks=8)

Along the sequence: keys and values on every rank, gathered, passed round a ring (Liu et al.,
"Ring Attention with Blockwise Transformers", 2023) or exchanged for heads (Jacobs et al.,
"DeepSpeed Ulysses", 2023). Along the heads: tensor parallelism (Shoeybi et al., "Megatron-LM",
2019). Ranks are lists in this process; a byte counts when it goes from one rank to another.
"""

from gecompiler.ops.parallel.counting import parallel_counters
from gecompiler.ops.parallel.result import ParallelAttention, RankReport
from gecompiler.ops.parallel.sequence import SEQUENCE_ALGORITHMS, sequence_parallel
from gecompiler.ops.parallel.tensor import tensor_parallel

__all__ = [
    "SEQUENCE_ALGORITHMS",
    "ParallelAttention",
    "RankReport",
    "parallel_counters",
    "sequence_parallel",
    "tensor_parallel",
]
