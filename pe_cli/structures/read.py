"""`read_graph`: a graph from a file of any format, which its first bytes tell."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, parameter
from pe_cli.files.npy import MAGIC as NPY
from pe_cli.files.npz import MAGIC as NPZ
from pe_cli.files.text import opened, whole_text
from pe_cli.signature import Source
from pe_cli.structures.edge_lists import read_edge_list
from pe_cli.structures.graph import Graph, Ids, Parallel, assembled
from pe_cli.structures.graph_documents import read_graphml, read_node_link
from pe_cli.structures.matrices import BANNER, from_array, read_matrix_market, read_npy, read_npz
from pe_cli.structures.trees import (
    HEAD_COLUMN,
    Forest,
    forest_of,
    read_brackets,
    read_conllu,
    read_heads,
    read_json,
    read_python,
    sentence,
)

BOM = b"\xef\xbb\xbf"
ELSEWHERE = {
    b"graph [": "GML: save it as GraphML (networkx.write_graphml)",
    b"\x80": "a pickle, which is not loaded: save an edge list, .npz or GraphML",
    b"\x89HDF": "HDF5: save edge_index as .npy or .npz",
}
# readers by the bytes that a file begins with, spaces aside; anything else is an edge list
READERS = {
    NPY: read_npy,
    NPZ: read_npz,
    BANNER.encode(): read_matrix_market,
    b"<": read_graphml,
    b"{": read_node_link,
}


def read_graph(
    source: str,
    *,
    directed: bool = False,
    weights: str = "auto",
    num_nodes: int | None = None,
    ids: Ids = "auto",
    parallel: Parallel = "sum",
) -> Graph:
    """Read a graph from a file, or from standard input for `-`.

    Formats, told by content: edge list (tabs, commas, semicolons or spaces; # and % comments; a header; .gz), Matrix
    Market, scipy .npz, edge_index or adjacency matrix in .npy and .npz, GraphML, node-link JSON.

    Parameters
    ----------
    source : path, or - for standard input.
    directed : edges go from their first to their second node only.
    weights : auto (the third numeric column, or `weight`), none, or the name or number (from 1) of a column.
    num_nodes : nodes are 0..N-1, also those without edges.
    ids : auto (whole numbers are rows), relabel (number those that occur, in order), or text (rows as they appear).
    parallel : several edges between two nodes: sum of their weights, or the first only. Where every edge is written in
        both directions, each counts once, with the mean of its two weights; where only some are, these are summed.

    Raises
    ------
    PeError
        For a file that cannot be read or understood: with the line, and what would work.
    """
    with opened(source) as file:
        head = file.head.removeprefix(BOM).lstrip()
        lower = head[:32].lower()
        if not file.head and num_nodes is None:
            raise PeError(f"{file.label} is empty")
        for start, remedy in ELSEWHERE.items():
            if head.startswith(start):
                raise PeError(f"{file.label} is {remedy}")
        reader = next((reader for start, reader in READERS.items() if lower.startswith(start.lower())), None)
        raw = reader(file, weights) if reader else read_edge_list(file, weights, ids == "text")
        label = file.label
    return assembled(raw, label, directed=directed, num_nodes=num_nodes, ids=ids, parallel=parallel)


TreeFormat: TypeAlias = Literal["auto", "brackets", "conllu", "json", "heads", "python"]

TREE_READERS = {
    "brackets": read_brackets,
    "conllu": read_conllu,
    "json": read_json,
    "heads": read_heads,
    "python": read_python,
}
OPENING = {"(": "brackets", "{": "json", "[": "json"}


def read_forest(source: str, *, tree_format: TreeFormat = "auto") -> Forest:
    """Read trees from a file, or from standard input for `-`.

    Formats: Penn brackets, CoNLL-U, JSON (nested objects or lists, py150's flat list), heads (one number a node, from 1,
    0 = root), and, where the name ends in .py, Python source.

    Parameters
    ----------
    source : path, or - for standard input.
    tree_format : how the file is written; auto: Python by its name, others by content.

    Raises
    ------
    PeError
        For a file that cannot be read or understood: with line and column, and what would work.
    """
    with opened(source) as file:
        text = whole_text(file)
        label = file.label
    name = _recognised(text, label) if tree_format == "auto" else tree_format
    return forest_of(TREE_READERS[name](text, label), label)


def _recognised(text: str, label: str) -> str:
    if label.endswith((".py", ".py.gz")):
        return "python"
    start = text.lstrip()
    if not start:
        raise PeError(f"{label} is empty")
    if start[0] in OPENING:
        return OPENING[start[0]]
    line = next((line for line in start.split("\n") if line.strip() and not line.startswith("#")), "")
    if all(word.isdecimal() for word in line.replace(",", " ").split()):
        return "heads"
    if len(line.split()) > HEAD_COLUMN and line.split()[0][0].isdecimal():
        return "conllu"
    raise PeError(
        f"{label} begins with {line.strip()[:30]!r}: none of {', '.join(TREE_READERS)} by its looks; {parameter('tree_format')} says which"
    )


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
