"""Encodings of the nodes of a tree: where a node stands, and how two nodes stand to each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, counted, parameter
from pe_cli.numerics.dtypes import smallest_integer
from pe_cli.process import require_memory
from pe_cli.signature import Floats, encoding
from pe_cli.structures import Forest, ForestLike, as_forest
from pe_cli.structures.forest import steps_to_root
from pe_cli.tensors import Tensors

Scheme: TypeAlias = Literal["stack", "depth", "sibling", "ancestor", "sibling-pairs", "distance", "up-down"]
Nodes: TypeAlias = Literal["all", "leaves", "internal"]
Same: TypeAlias = Literal["edge", "path"]
Wide: TypeAlias = Literal["clip", "drop", "binary", "error"]
UNRELATED = 10000
LISTED = 1000  # labels up to this many are recorded in the file
NO_RELATION = np.iinfo(np.int64).min  # while a table is made: `fill` may be a number of the table too
NUMBERS = 1 << 22  # in a stack of tables


@encoding
def tree(
    forest: ForestLike,
    *,
    scheme: Scheme = "stack",
    max_depth: int | None = None,
    max_width: int | None = None,
    p: Floats | None = None,
    model_dim: int | None = None,
    wide: Wide = "clip",
    max_distance: int | None = None,
    unrelated: int = UNRELATED,
    nodes: Nodes = "all",
    pad: bool = False,
) -> Tensors:
    """Codes of tree nodes: the path from the root, depth, place among siblings, or pairs of nodes.

    >>> tree([0, 1, 1], scheme="depth")["tree"].tolist()
    [0, 1, 1]

    Rows are the nodes in the order of the file (brackets and JSON: preorder; sentences: words). Several trees stand one
    after the other, with tree_ptr (trees + 1,) where each begins; tables of pairs are then (pairs,), those of each tree
    row by row, with pair_ptr (trees + 1,), or with pad (trees, L, L).

    stack (n, depth * width): step l of the way up, nearest first, sets feature l * width + b, b the rank of the node
    among its siblings at that step; the root is zero; steps beyond max_depth are lost at the root's side. With p each
    feature becomes len(p) features x * p^l * sqrt((1 - p^2) * model_dim / 2), index (l * width + b) * len(p) + q.
    depth (n,): steps to the root. sibling (n,): rank among siblings from 0.
    ancestor (n, n): depth of j less depth of i where one is an ancestor of the other. sibling-pairs (n, n): rank of j
    less rank of i where both have the same parent. distance (n, n): steps from i to j. up-down (n, n, 2): steps up
    from i, then down to j. The stack code is added to node features, pairs index a table of attention biases; none
    is bound to a size of tree, but a learned table reaches no further than its rows.

    Source: Shiv and Quirk, "Novel positional encodings to enable tree-based transformers", NeurIPS 2019, section 3
    (stack); Tang et al., "AST-Trans", ICSE 2022 (ancestor, sibling-pairs); Zügner et al., "Code Transformer",
    2021 (arXiv:2103.11318) (distance, up-down).

    Parameters
    ----------
    forest : trees (brackets, .conllu, .json, .heads, .py), or - for stdin.
    scheme : the code.
    max_depth : levels of the stack code, or where depth is clipped; as deep as the trees by default.
    max_width : branches of the stack code, or the number of ranks; as wide as the trees by default.
    p : parameters of the stack code, each between 0 and 1; without, the code is 0 and 1.
    model_dim : width of the model, for the factor sqrt(model_dim / 2) that goes with p.
    wide : a child beyond max_width counts as the last (clip), as none (drop), is refused (error), or all trees are
        first made binary, first child and next sibling (binary).
    max_distance : clip the numbers of pairs to -N..N.
    unrelated : what stands for pairs without relation, and for padding.
    nodes : rows for all nodes, for leaves, or for nodes with children.
    pad : tables of pairs of several trees as (trees, L, L), filled up to the largest.

    Returns
    -------
    Tensors
        tree, of several trees with tree_ptr, and pair_ptr where it holds pairs.

    Raises
    ------
    PeError
        For sizes below 1, p outside of 0 and 1, options that the scheme does not have, a child beyond max_width with
        wide error, or more memory than there is.
    """
    _check_options(scheme, max_depth, max_width, p, model_dim, wide, max_distance, unrelated, pad)
    forest = as_forest(forest)
    chosen = _chosen(forest, nodes)
    facts: dict[str, Any] = {
        "total_nodes": forest.num_nodes,
        "total_trees": forest.num_trees,
        "depth": int(forest.depths.max()),
        "width": int(forest.child_counts.max()),
    }
    warnings: tuple[str, ...] = ()
    tensors: dict[str, NDArray[Any]] = {}
    if scheme in PAIRS:
        table, pair_ptr = pair_table(forest, PAIRS[scheme], chosen, max_distance, unrelated, pad)
        if pair_ptr is not None:
            tensors["pair_ptr"] = pair_ptr
    else:
        parents, ranks = forest.parents, forest.ranks
        if wide == "binary":
            parents, ranks = _binary(forest)
        ranks, warnings = _within(ranks, max_width, wide, facts)
        if scheme == "stack":
            table, more = _stack(forest, parents, ranks, chosen, max_depth, max_width, p, model_dim, facts)
            warnings += more
        elif scheme == "sibling":
            table = ranks[chosen]
        else:
            table, more = _clipped_depth(forest.depths[chosen], max_depth, facts)
            warnings += more
    return _finished(forest, chosen, {"tree": table, **tensors}, facts, warnings)


@encoding
def dependency(
    forest: ForestLike, *, same: Same = "edge", relative: bool = True, pad: bool = False
) -> Tensors:
    """Structural positions of the words of a dependency parse.

    >>> dependency([2, 0])["relative"].tolist()
    [[0, 1], [-1, 0]]

    absolute (n,): steps from the word to the root, which is 0; encoded as positions are and joined with those.
    relative (n, n), row i, column j: absolute_i - absolute_j where the two are joined by a dependency, else
    sign(i - j) * (absolute_i + absolute_j); 0 where i = j. Clipped, it indexes a learned table as in Shaw et al.
    Several sentences stand one after the other, with tree_ptr (sentences + 1,); relative is then (pairs,), the pairs of
    each sentence row by row, with pair_ptr (sentences + 1,), or with pad (sentences, L, L). It is not bound to a length.

    Source: Wang et al., "Self-Attention with Structural Position Representations", EMNLP 2019 (arXiv:1909.00383),
    section 3; the sign is taken to be that of i - j, as the sequential distance has it.

    Parameters
    ----------
    forest : parsed sentences (.conllu, .heads), or - for stdin.
    same : words are joined by one dependency (edge), or by a path on which all are heads (path).
    relative : whether to give the table of pairs.
    pad : relative of several sentences as (sentences, L, L), filled up with 0.

    Returns
    -------
    Tensors
        absolute and relative, of several sentences with tree_ptr and pair_ptr.

    Raises
    ------
    PeError
        For same or pad without the table of pairs, or more memory than there is.
    """
    for name, value in (("same", same if same != "edge" else None), ("pad", pad)):
        if value and not relative:
            raise PeError(f"{parameter(name)} is about {parameter('relative')}, which is left out")
    forest = as_forest(forest)
    chosen = np.ones(forest.num_nodes, dtype=bool)
    tensors: dict[str, NDArray[Any]] = {"absolute": forest.depths}
    if relative:
        rule = wang_edge if same == "edge" else wang_path
        tensors["relative"], pair_ptr = pair_table(forest, rule, chosen, None, 0, pad)
        if pair_ptr is not None:
            tensors["pair_ptr"] = pair_ptr
    facts = {
        "total_nodes": forest.num_nodes,
        "total_trees": forest.num_trees,
        "depth": int(forest.depths.max()),
    }
    return _finished(forest, chosen, tensors, facts, ())


def _check_options(
    scheme: str,
    max_depth: int | None,
    max_width: int | None,
    p: Floats | None,
    model_dim: int | None,
    wide: str,
    max_distance: int | None,
    unrelated: int,
    pad: bool,
) -> None:
    given = {
        "max_depth": max_depth,
        "max_width": max_width,
        "p": p,
        "model_dim": model_dim,
        "wide": None if wide == "clip" else wide,
        "max_distance": max_distance,
        "unrelated": None if unrelated == UNRELATED else unrelated,
        "pad": pad or None,
    }
    for name, value in given.items():
        option = parameter(name)
        if value is not None and scheme not in OPTIONS[name]:
            raise PeError(
                f"{option} goes with {parameter('scheme')} {' or '.join(OPTIONS[name])}, not with {scheme}"
            )
        if (
            name in ("max_depth", "max_width", "model_dim", "max_distance")
            and isinstance(value, int)
            and value < 1
        ):
            raise PeError(f"{option} {value}: give at least 1")
    if p is not None and not (p and all(0 < value < 1 for value in p)):
        raise PeError(
            f"{parameter('p')} {','.join(map(str, p))}: parameters of the stack code lie between 0 and 1"
        )
    if model_dim is not None and p is None:
        raise PeError(
            f"{parameter('model_dim')} scales the parameters of the stack code: give {parameter('p')} too"
        )
    if wide in ("drop", "error") and max_width is None:
        raise PeError(
            f"{parameter('wide')} {wide} is about children beyond {parameter('max_width')}: give that too"
        )
    if wide == "binary" and max_width not in (None, 2):
        raise PeError(f"{parameter('max_width')} {max_width}: a tree made binary has width 2")


def _chosen(forest: Forest, nodes: Nodes) -> NDArray[np.bool_]:
    leaf: NDArray[np.bool_] = forest.child_counts == 0
    return {"all": np.ones(len(leaf), dtype=bool), "leaves": leaf, "internal": ~leaf}[nodes]


def _binary(forest: Forest) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First child and next sibling: a later child hangs, as branch 1, on the sibling before it."""
    parents, ranks = forest.parents.copy(), (forest.ranks > 0).astype(np.int64)
    order = np.lexsort((forest.ranks, forest.parents))
    later = np.flatnonzero(ranks[order] == 1)
    parents[order[later]] = order[later - 1]
    return parents, ranks


def _within(
    ranks: NDArray[np.int64], max_width: int | None, wide: Wide, facts: dict[str, Any]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Ranks below `max_width`; -1 for a branch that is dropped."""
    beyond = np.zeros(len(ranks), dtype=bool) if max_width is None else ranks >= max_width
    count = int(np.count_nonzero(beyond))
    facts["nodes_beyond_width"] = count
    if not count or max_width is None:
        return ranks, ()
    if wide == "error":
        node = int(np.argmax(beyond))
        raise PeError(
            f"node {node} is child {ranks[node]} (from 0) of its parent, {parameter('max_width')} {max_width} has no place"
        )
    done = "not marked" if wide == "drop" else "counted as the last branch"
    warning = f"{counted(count, 'node is a child', 'nodes are children')} beyond {parameter('max_width')} {max_width}: {done}"
    return np.where(beyond, -1 if wide == "drop" else max_width - 1, ranks), (warning,)


def _stack(
    forest: Forest,
    parents: NDArray[np.int64],
    ranks: NDArray[np.int64],
    chosen: NDArray[np.bool_],
    max_depth: int | None,
    max_width: int | None,
    p: Floats | None,
    model_dim: int | None,
    facts: dict[str, Any],
) -> tuple[NDArray[Any], tuple[str, ...]]:
    depths = steps_to_root(parents)
    levels = max_depth or max(1, int(depths.max()))
    width = max_width or max(1, int(ranks.max()) + 1)
    here = np.flatnonzero(chosen)
    count = len(here) * levels * width
    require_memory(
        count * (2 + 16 * len(p or ())),
        f"{len(here)} codes of {levels} x {width}",
        f"use a smaller {parameter('max_depth')}",
    )
    code = np.zeros((len(here), levels, width), dtype=np.uint8)
    at = here
    for level in range(levels):
        rows = np.flatnonzero((parents[at] >= 0) & (ranks[at] >= 0))
        code[rows, level, ranks[at[rows]]] = 1
        at = np.where(parents[at] >= 0, parents[at], at)
    deep = int(np.count_nonzero(depths[here] > levels))
    collisions = _collisions(code.reshape(len(here), -1), forest.tree_of[here])
    facts |= {
        "max_depth": levels,
        "max_width": width,
        "nodes_beyond_depth": deep,
        "nodes_colliding": collisions,
    }
    warnings: tuple[str, ...] = ()
    if deep:
        warnings += (
            f"{counted(deep, 'node lies', 'nodes lie')} deeper than {parameter('max_depth')} {levels}: the steps next to the root are lost",
        )
    if collisions:
        warnings += (
            f"{counted(collisions, 'node shares its', 'nodes share their')} code with another node of the tree",
        )
    if p is None:
        return code.reshape(len(here), -1), warnings
    powers = np.array(p)[None, :] ** np.arange(levels)[:, None]
    scale = np.sqrt((1 - np.array(p) ** 2) * (1 if model_dim is None else model_dim / 2))
    return (code[..., None] * (powers * scale)[:, None, :]).reshape(len(here), -1), warnings


def _collisions(code: NDArray[np.uint8], tree_of: NDArray[np.int64]) -> int:
    """How many nodes have a code that another node of the same tree has too."""
    packed = np.packbits(code, axis=1)
    rows = np.concatenate([tree_of.astype(np.int64)[:, None].view(np.uint8), packed], axis=1)
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1]))).reshape(-1)
    counts = np.unique(keys, return_counts=True)[1]
    return int(counts[counts > 1].sum())


def _clipped_depth(
    depths: NDArray[np.int64], max_depth: int | None, facts: dict[str, Any]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if max_depth is None:
        return depths, ()
    deep = int(np.count_nonzero(depths > max_depth))
    facts["nodes_beyond_depth"] = deep
    if not deep:
        return depths, ()
    return np.minimum(depths, max_depth), (
        f"{counted(deep, 'node lies', 'nodes lie')} deeper than {parameter('max_depth')} {max_depth}: clipped to it",
    )


def _finished(
    forest: Forest,
    chosen: NDArray[np.bool_],
    tensors: dict[str, NDArray[Any]],
    facts: dict[str, Any],
    warnings: tuple[str, ...],
) -> Tensors:
    if forest.num_trees > 1:
        counts = np.bincount(forest.tree_of[chosen], minlength=forest.num_trees)
        tensors["tree_ptr"] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if any(forest.labels) and forest.num_nodes <= LISTED:
        facts["labels"] = [forest.labels[node] for node in np.flatnonzero(chosen)]
    if forest.skipped:
        facts["skipped_trees"] = forest.skipped
    return Tensors(tensors, facts, (*forest.notes, *warnings))


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


# options by the schemes that have them
OPTIONS: dict[str, tuple[str, ...]] = {
    "max_depth": ("stack", "depth"),
    "max_width": ("stack", "sibling"),
    "p": ("stack",),
    "model_dim": ("stack",),
    "wide": ("stack", "sibling"),
    "max_distance": tuple(PAIRS),
    "unrelated": tuple(PAIRS),
    "pad": tuple(PAIRS),
}
