"""How two nodes of a tree stand to each other, as tables of integers, of all trees of one size at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.numerics.dtypes import smallest_integer
from pe_cli.process import require_memory
from pe_cli.structures import Forest

NO_RELATION = np.iinfo(np.int64).min  # while a table is made: `fill` may be a number of the table too
NUMBERS = 1 << 22  # in a stack of tables


class Family:
    """Trees of one size: parents, ranks and depths (b, s) within each, and who is above whom (b, s, s)."""

    def __init__(
        self, parents: NDArray[np.int64], ranks: NDArray[np.int64], depths: NDArray[np.int64]
    ) -> None:
        self.parents, self.ranks, self.depths = parents, ranks, depths
        count, size = parents.shape
        self.above = np.zeros((count, size, size), dtype=bool)  # [t, i, j]: j is i or an ancestor of i
        tree, node = np.nonzero(np.ones((count, size), dtype=bool))
        at = node
        while len(tree):
            self.above[tree, node, at] = True
            further = parents[tree, at]
            going = further >= 0
            tree, node, at = tree[going], node[going], further[going]

    def meeting_depths(self) -> NDArray[np.int64]:
        """(b, s, s) the depth of the lowest common ancestor: one less than the number of common ancestors."""
        above = self.above.astype(np.float32)
        return np.asarray((above @ above.transpose(0, 2, 1)).astype(np.int64) - 1)


PairRule: TypeAlias = Callable[[Family], NDArray[np.int64]]


def _difference(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return values[:, None, :] - values[:, :, None]


def _turned(table: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(table.transpose(0, 2, 1))


def ancestor(family: Family) -> NDArray[np.int64]:
    return np.where(family.above | _turned(family.above), _difference(family.depths), NO_RELATION)


def sibling_pairs(family: Family) -> NDArray[np.int64]:
    same = family.parents[:, :, None] == family.parents[:, None, :]
    return np.where(same, _difference(family.ranks), NO_RELATION)


def distance(family: Family) -> NDArray[np.int64]:
    return family.depths[:, :, None] + family.depths[:, None, :] - 2 * family.meeting_depths()


def up_down(family: Family) -> NDArray[np.int64]:
    meeting = family.meeting_depths()
    return np.stack([family.depths[:, :, None] - meeting, family.depths[:, None, :] - meeting], axis=-1)


def _wang(family: Family, joined: NDArray[np.bool_]) -> NDArray[np.int64]:
    depths, order = family.depths, np.arange(family.depths.shape[1])
    apart = np.sign(order[:, None] - order[None, :]) * (depths[:, :, None] + depths[:, None, :])
    return np.where(joined, -_difference(depths), apart)


def wang_edge(family: Family) -> NDArray[np.int64]:
    edge = family.parents[:, :, None] == np.arange(family.parents.shape[1])
    return _wang(family, edge | _turned(edge))


def wang_path(family: Family) -> NDArray[np.int64]:
    return _wang(family, family.above | _turned(family.above))


PAIRS: dict[str, PairRule] = {
    "ancestor": ancestor,
    "sibling-pairs": sibling_pairs,
    "distance": distance,
    "up-down": up_down,
}


def pair_table(
    forest: Forest,
    rule: PairRule,
    chosen: NDArray[np.bool_],
    max_distance: int | None,
    fill: int,
    pad: bool,
) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    """Pairs of the chosen nodes of each tree, with `fill` for those without relation.

    (L, L, …) for one tree; (pairs, …) for several, those of each tree row by row, with where each begins; with `pad`
    (trees, L, L, …), filled up. In the smallest integers that hold what trees of such a size can have.
    """
    sizes = np.diff(forest.starts)
    counts = np.bincount(forest.tree_of[chosen], minlength=forest.num_trees)
    longest, side = int(sizes.max()), int(counts.max())
    most = min(2 * (longest - 1), max_distance if max_distance is not None else 2 * longest)
    kind = np.dtype(smallest_integer(min(-most, fill), max(most, fill)))
    parts = (2,) if rule is up_down else ()
    ptr = np.concatenate([[0], np.cumsum(counts * counts)])
    rows = forest.num_trees * side * side if pad else int(ptr[-1])
    require_memory(
        rows * kind.itemsize * (parts[0] if parts else 1) + 40 * longest * longest,
        f"{rows:,} pairs of nodes of {forest.num_trees} trees",
        "give fewer or smaller trees",
    )
    table = np.full((rows, *parts), fill, dtype=kind)
    for size in np.unique(sizes).tolist():
        own = np.flatnonzero(sizes == size)
        at_once = max(1, NUMBERS // (size * size))
        for start in range(0, len(own), at_once):
            trees = own[start : start + at_once]
            nodes = forest.starts[trees][:, None] + np.arange(size)
            parents = forest.parents[nodes]
            family = Family(
                np.where(parents < 0, -1, parents - forest.starts[trees][:, None]),
                forest.ranks[nodes],
                forest.depths[nodes],
            )
            values = rule(family)
            related = values != NO_RELATION
            if max_distance is not None:
                values = np.clip(values, -max_distance, max_distance)
            values = np.where(related, values, fill)
            keep = chosen[nodes]
            tree, row, column = np.nonzero(keep[:, :, None] & keep[:, None, :])
            place = np.cumsum(keep, axis=1) - 1
            width = side if pad else counts[trees[tree]]
            first = trees[tree] * side * side if pad else ptr[trees[tree]]
            table[first + place[tree, row] * width + place[tree, column]] = values[tree, row, column]
    if pad and forest.num_trees > 1:
        return table.reshape(forest.num_trees, side, side, *parts), None
    if forest.num_trees == 1:
        return table.reshape(side, side, *parts), None
    return table, ptr
