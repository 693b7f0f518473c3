"""The fewest paths that cover a DAG, along its own edges: n minus a maximum matching.

Hopcroft, Karp: An n^(5/2) algorithm for maximum matchings in bipartite graphs, SIAM J. Comput.
2(4), 1973. Written without recursion, which networkx's is: an augmenting path is as long as the
deepest model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


def minimum_path_cover(succs: Sequence[Sequence[int]]) -> list[list[int]]:
    """Paths that hold each node once, as few as there can be, by their first nodes.

    Nodes are in a topological order. O(E * sqrt(V)).
    """
    after = maximum_matching(succs)
    follows = {node for node in after if node >= 0}
    paths: list[list[int]] = []
    for first in range(len(succs)):
        if first in follows:
            continue
        path = [first]
        while after[path[-1]] >= 0:
            path.append(after[path[-1]])
        paths.append(path)
    return paths


def maximum_matching(edges: Sequence[Sequence[int]]) -> list[int]:
    """The right node each left node is matched with, -1 for none; both sides are 0..n-1."""
    match = [-1] * len(edges)
    taken = [-1] * len(edges)
    for left, rights in enumerate(edges):  # greedily first: chains are done with that
        for right in rights:
            if taken[right] < 0:
                match[left], taken[right] = right, left
                break
    while True:
        layer = _layers(edges, match, taken)
        position = [0] * len(edges)
        grown = False
        for left in range(len(edges)):
            if match[left] < 0 and _augment(left, edges, match, taken, layer, position):
                grown = True
        if not grown:
            return match


def _layers(edges: Sequence[Sequence[int]], match: list[int], taken: list[int]) -> list[int]:
    """Distance of left nodes from the free ones, along alternating paths."""
    layer = [0 if right < 0 else -1 for right in match]
    queue = deque(left for left, right in enumerate(match) if right < 0)
    while queue:
        left = queue.popleft()
        for right in edges[left]:
            owner = taken[right]
            if owner >= 0 and layer[owner] < 0:
                layer[owner] = layer[left] + 1
                queue.append(owner)
    return layer


def _augment(
    start: int,
    edges: Sequence[Sequence[int]],
    match: list[int],
    taken: list[int],
    layer: list[int],
    position: list[int],
) -> bool:
    """Turns over one shortest augmenting path from ``start``, if there is one left."""
    path = [start]
    while path:
        left = path[-1]
        if position[left] == len(edges[left]):
            path.pop()
            continue
        right = edges[left][position[left]]
        position[left] += 1
        owner = taken[right]
        if owner < 0:
            for node in reversed(path):
                match[node], right = right, match[node]
                taken[match[node]] = node
            return True
        if layer[owner] == layer[left] + 1:
            path.append(owner)
    return False
