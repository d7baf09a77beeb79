"""A tree while it is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from pe_cli.errors import PeError
from pe_cli.memory import require_memory
from pe_cli.structures.tree import Forest

BYTES_A_NODE = 200
CHECKED_EVERY = 1 << 16


@dataclass
class RawTree:
    """Parents (-1 for the root) and labels; `ranks` where children are not in the order of their numbers."""

    parents: list[int] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    ranks: list[int] | None = None

    def add(self, parent: int, label: str) -> int:
        """A new node; its number."""
        self.parents.append(parent)
        self.labels.append(label)
        if len(self.parents) % CHECKED_EVERY == 0:
            require_memory(
                len(self.parents) * BYTES_A_NODE,
                f"a tree of {len(self.parents):,} nodes so far",
                "take a smaller one",
            )
        return len(self.parents) - 1

    def without_empty_top(self) -> RawTree:
        """The tree without roots that have neither a label nor more than one child."""
        children = np.bincount(np.array(self.parents[1:], dtype=np.int64), minlength=len(self.parents))
        top = 0
        while top + 1 < len(self.parents) and not self.labels[top] and children[top] == 1:
            top += 1
        if not top:
            return self
        return RawTree([max(parent - top, -1) for parent in self.parents[top:]], self.labels[top:])


def forest_of(trees: Iterable[RawTree], label: str) -> Forest:
    """The trees one after the other."""
    parents: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    ranks: list[list[int] | None] = []
    labels: list[str] = []
    starts = [0]
    for tree in trees:
        own = np.array(tree.parents, dtype=np.int64)
        parents.append(np.where(own < 0, -1, own + starts[-1]))
        ranks.append(tree.ranks)
        labels.extend(tree.labels)
        starts.append(starts[-1] + len(own))
        require_memory(
            starts[-1] * BYTES_A_NODE, f"{label} with {starts[-1]:,} nodes so far", "take a part of it"
        )
    if not parents:
        raise PeError(f"{label} holds no tree")
    forest = Forest.of(np.concatenate(parents), np.array(starts, dtype=np.int64), tuple(labels))
    for start, own_ranks in zip(starts, ranks, strict=False):
        if own_ranks is not None:
            forest.ranks[start : start + len(own_ranks)] = own_ranks
    return forest
