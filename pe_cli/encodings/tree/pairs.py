"""How two nodes of a tree stand to each other, as tables (L, L) of integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.memory import require_memory
from pe_cli.structures import Forest

NO_RELATION = np.iinfo(np.int64).min  # while a table is made: `fill` may be a number of the table too


class Family:
    """One tree by itself: parents, ranks and depths (L,), and who is above whom."""

    def __init__(
        self, parents: NDArray[np.int64], ranks: NDArray[np.int64], depths: NDArray[np.int64]
    ) -> None:
        self.parents, self.ranks, self.depths = parents, ranks, depths
        count = len(parents)
        self.above = np.zeros((count, count), dtype=bool)  # [i, j]: j is i or an ancestor of i
        for node in np.argsort(depths, kind="stable"):
            if parents[node] >= 0:
                self.above[node] = self.above[parents[node]]
            self.above[node, node] = True

    def meeting_depths(self) -> NDArray[np.int64]:
        """(L, L) the depth of the lowest common ancestor."""
        meeting = np.zeros((len(self.parents), len(self.parents)), dtype=np.int64)
        below = np.ascontiguousarray(self.above.T)
        for node in np.argsort(self.depths, kind="stable"):
            if self.parents[node] >= 0:
                meeting[node] = meeting[self.parents[node]]
            meeting[node, below[node]] = self.depths[node]
        return meeting


PairRule: TypeAlias = Callable[[Family, int], NDArray[np.int64]]


def _difference(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return values[None, :] - values[:, None]


def ancestor(family: Family, unrelated: int) -> NDArray[np.int64]:
    return np.where(family.above | family.above.T, _difference(family.depths), unrelated)


def sibling_pairs(family: Family, unrelated: int) -> NDArray[np.int64]:
    same = family.parents[:, None] == family.parents[None, :]
    return np.where(same, _difference(family.ranks), unrelated)


def distance(family: Family, unrelated: int) -> NDArray[np.int64]:
    return family.depths[:, None] + family.depths[None, :] - 2 * family.meeting_depths()


def up_down(family: Family, unrelated: int) -> NDArray[np.int64]:
    meeting = family.meeting_depths()
    return np.stack([family.depths[:, None] - meeting, family.depths[None, :] - meeting], axis=-1)


def _wang(family: Family, joined: NDArray[np.bool_]) -> NDArray[np.int64]:
    depths, order = family.depths, np.arange(len(family.depths))
    apart = np.sign(order[:, None] - order[None, :]) * (depths[:, None] + depths[None, :])
    return np.where(joined, depths[:, None] - depths[None, :], apart)


def wang_edge(family: Family, unrelated: int) -> NDArray[np.int64]:
    edge = family.parents[:, None] == np.arange(len(family.parents))[None, :]
    return _wang(family, edge | edge.T)


def wang_path(family: Family, unrelated: int) -> NDArray[np.int64]:
    return _wang(family, family.above | family.above.T)


PAIRS: dict[str, PairRule] = {
    "ancestor": ancestor,
    "sibling-pairs": sibling_pairs,
    "distance": distance,
    "up-down": up_down,
}


def _families(forest: Forest) -> Iterator[tuple[slice, Family]]:
    for start, stop in zip(forest.starts[:-1].tolist(), forest.starts[1:].tolist(), strict=True):
        own = slice(start, stop)
        parents = np.where(forest.parents[own] < 0, -1, forest.parents[own] - start)
        yield own, Family(parents, forest.ranks[own], forest.depths[own])


def pair_table(
    forest: Forest, rule: PairRule, chosen: NDArray[np.bool_], max_distance: int | None, fill: int
) -> NDArray[np.int64]:
    """(L, L, …) for one tree, (trees, L, L, …) for several, with `fill` for pairs without relation and for padding."""
    longest = int(np.diff(forest.starts).max())
    parts = 2 if rule is up_down else 1
    nbytes = 8 * parts * longest * longest * (forest.num_trees + 4)
    require_memory(
        nbytes, f"pairs of {forest.num_trees} trees of up to {longest:,} nodes", "give fewer or smaller trees"
    )
    tables = []
    for own, family in _families(forest):
        table = rule(family, NO_RELATION)
        related = table != NO_RELATION
        if max_distance is not None:
            table = np.clip(table, -max_distance, max_distance)
        table = np.where(related, table, fill)
        tables.append(table[np.ix_(chosen[own], chosen[own])])
    if len(tables) == 1:
        return tables[0]
    side = max(len(table) for table in tables)
    padded = np.full((len(tables), side, side, *tables[0].shape[2:]), fill, dtype=np.int64)
    for place, table in enumerate(tables):
        padded[place, : len(table), : len(table)] = table
    return padded
