"""Graphs and trees that Python callers give as arrays and lists in place of files."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.signature import Source
from pe_cli.structures.graph import Graph
from pe_cli.structures.matrices import from_array
from pe_cli.structures.raw import assembled
from pe_cli.structures.raw_trees import forest_of
from pe_cli.structures.syntax_files import sentence
from pe_cli.structures.tree import Forest

# What encodings of graphs and of trees accept; on the command line a file is read.
GraphLike: TypeAlias = Annotated[Graph | NDArray[Any] | list[Any], Source.GRAPH]
ForestLike: TypeAlias = Annotated[Forest | NDArray[Any] | list[Any], Source.FOREST]


def as_graph(given: GraphLike) -> Graph:
    """The graph of an edge_index (2, m) of integers, or of a square matrix of weights; a Graph is returned as it is.

    Arrays are read as a .npy file with the same numbers is: without direction (an edge that stands in both directions
    counts once, if all do), over nodes 0 to the largest id. `Graph(num_nodes, edge_index, weights, directed=True)` says
    more.
    """
    if isinstance(given, Graph):
        return given
    array = np.asarray(given)
    if not array.size:
        raise PeError(
            "an edge_index without edges does not say how many nodes there are: Graph(num_nodes, edge_index)"
        )
    raw = from_array(array, "edge_index", "auto")
    if raw.num_nodes is None:
        raw.num_nodes = int(raw.edges.max()) + 1
    return assembled(raw, "edge_index", directed=False, num_nodes=None, ids="auto", parallel="sum")


def as_forest(given: ForestLike) -> Forest:
    """The tree of a list of heads, counted from 1 and 0 for the root, or the trees of a list of such lists.

    As the lines of a .heads file; a Forest is returned as it is.
    """
    if isinstance(given, Forest):
        return given
    trees = list(given)
    if not trees:
        raise PeError("heads are empty: give the head of each node, counted from 1, and 0 for the root")
    if np.ndim(trees[0]) == 0:
        trees = [trees]
    return forest_of(
        (sentence(_heads(tree, number), "heads") for number, tree in enumerate(trees, 1)), "heads"
    )


def _heads(tree: Any, number: int) -> list[tuple[int, str, int]]:
    heads = np.asarray(tree)
    if heads.ndim != 1 or heads.dtype.kind not in "iu" or (heads < 0).any():
        raise PeError(
            f"heads of tree {number} are {heads.dtype} {list(heads.shape)}: whole numbers from 1 are needed, 0 for the root"
        )
    return [(number, "", int(head)) for head in heads]
