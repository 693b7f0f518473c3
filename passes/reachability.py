"""Which nodes of a DAG come before which, by bitsets computed when first asked for.

Nodes are 0..n-1 in a topological order. One Python int per node holds its ancestors, so that a
question is one shift; building all of them costs O(V * E / 64) word operations. Beyond
`BITSET_NODES` nodes the quadratic memory is not worth it, and each question walks the graph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cached_property

BITSET_NODES = 30_000
"""Up to this many nodes all bitsets are kept (n * n / 8 bytes, 112 MB at most)."""


class Reachability:
    """Answers whether one node leads to another. ``preds[v]`` are the direct predecessors."""

    def __init__(self, preds: Sequence[Sequence[int]]) -> None:
        self._preds = preds

    @cached_property
    def _succs(self) -> list[list[int]]:
        succs: list[list[int]] = [[] for _ in self._preds]
        for node, before in enumerate(self._preds):
            for pred in before:
                succs[pred].append(node)
        return succs

    @cached_property
    def _ancestors(self) -> list[int]:
        found: list[int] = []
        for before in self._preds:
            bits = 0
            for pred in before:
                bits |= found[pred] | (1 << pred)
            found.append(bits)
        return found

    def reaches(self, a: int, b: int) -> bool:
        """Whether a path of at least one edge leads from ``a`` to ``b``."""
        if a >= b:
            return False
        if len(self._preds) <= BITSET_NODES:
            return bool(self._ancestors[b] >> a & 1)
        return self.path(a, b) != ()

    def maximal(self, nodes: Sequence[int]) -> list[int]:
        """Those of the nodes that lead to no other of them (all, where bitsets are too big)."""
        if len(self._preds) > BITSET_NODES:
            return list(nodes)
        covered = 0
        for node in nodes:
            covered |= self._ancestors[node]
        return [node for node in nodes if not covered >> node & 1]

    def minimal(self, nodes: Sequence[int]) -> list[int]:
        """Those of the nodes that no other of them leads to (all, likewise)."""
        if len(self._preds) > BITSET_NODES:
            return list(nodes)
        mask = 0
        for node in nodes:
            mask |= 1 << node
        return [node for node in nodes if not self._ancestors[node] & mask]

    def ancestors(self, node: int) -> list[int]:
        """All nodes that lead to ``node``, ascending. O(V + E)."""
        return self._walk(node, self._preds)

    def descendants(self, node: int) -> list[int]:
        """All nodes that ``node`` leads to, ascending. O(V + E)."""
        return self._walk(node, self._succs)

    def _walk(self, node: int, edges: Sequence[Sequence[int]]) -> list[int]:
        seen, todo = {node}, [node]
        while todo:
            for other in edges[todo.pop()]:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        seen.discard(node)
        return sorted(seen)

    def path(self, a: int, b: int) -> tuple[int, ...]:
        """A shortest path from ``a`` to ``b``, both included; empty when there is none."""
        came_from: dict[int, int] = {a: a}
        todo = deque([a])
        while todo and b not in came_from:
            node = todo.popleft()
            for after in self._succs[node]:
                if after <= b and after not in came_from:
                    came_from[after] = node
                    todo.append(after)
        if a == b or b not in came_from:
            return ()
        steps = [b]
        while steps[-1] != a:
            steps.append(came_from[steps[-1]])
        return tuple(reversed(steps))
