"""`read_graph`: a graph from a file of any format, which its first bytes tell."""

from __future__ import annotations

import os
import re
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, parameter
from pe_cli.files.inputs import open_input
from pe_cli.files.sources import holds_tensors, reading_tensors, split_spec
from pe_cli.files.text import Opened, opened, unzipped, whole_text
from pe_cli.signature import Source
from pe_cli.structures.datasets import GraphDataset, Options, dataset_of_tensors, read_folder
from pe_cli.structures.edge_lists import read_edge_list
from pe_cli.structures.forest import Forest, forest_of
from pe_cli.structures.graph import Graph, Ids, Parallel, RawGraph, assembled
from pe_cli.structures.graph6 import looks_like_graph6, read_graph6
from pe_cli.structures.graph_documents import read_gml, read_graphml, read_node_link, read_pajek
from pe_cli.structures.matrices import BANNER, from_array, from_source, read_matrix_market
from pe_cli.structures.trees import (
    HEAD_COLUMN,
    read_brackets,
    read_conllu,
    read_heads,
    read_json,
    read_python,
    sentence,
)

BOM = b"\xef\xbb\xbf"
# Readers by how a file begins, spaces and the case of letters aside; anything else is an edge list.
READERS = (
    (BANNER, read_matrix_market),
    (r"<", read_graphml),
    (r"\{", read_node_link),
    (r"\*(network|vertices)\b", read_pajek),
    (r"((#[^\n]*|creator\b[^\n]*|version\b[^\n]*)\s+)*graph\s*\[", read_gml),
)
OFFERED = "an edge list, Matrix Market, .npz, .npy, .h5, .safetensors, GraphML, GML, Pajek and node-link JSON are read"
# What is not read and could be taken for an edge list: how it begins, what it is.
ELSEWHERE = (
    (r"(strict\s+)?(di)?graph\b[^\[\n]*\{", "Graphviz (.dot)"),
    (r"((c|%|#)\b[^\n]*\n\s*)*p\s+\w+\s+\d+\s+\d+\s", "DIMACS (.col, .gr)"),
    (r"dl\s+n\s*=", "UCINET (.dl)"),
    (r"nodedef>", "GUESS (.gdf)"),
    (r"\x80", "a pickle, which is never loaded"),
    (r"par1", "Parquet"),
    (r"arrow1", "Arrow"),
    (r"matlab 5", "MATLAB (.mat)"),
    (r"sqlite format", "a database"),
)
ENDINGS = {
    ".dot": "Graphviz", ".gv": "Graphviz", ".col": "DIMACS", ".gr": "DIMACS", ".dimacs": "DIMACS", ".graph": "METIS",
    ".metis": "METIS", ".tgf": "Trivial Graph Format", ".adjlist": "a list of neighbours", ".gexf": "GEXF", ".gdf": "GUESS",
    ".nt": "RDF", ".ttl": "RDF", ".lgf": "LEMON", ".hgr": "hMETIS",
}  # fmt: skip


def read_graph(
    source: str,
    *,
    directed: bool = False,
    weights: str = "auto",
    num_nodes: int | None = None,
    ids: Ids = "auto",
    parallel: Parallel = "sum",
) -> Graph | GraphDataset:
    """Read a graph, or a dataset of graphs, from a file, from a folder, or from standard input for `-`.

    Formats, told by content: edge list (tabs, commas, semicolons or spaces; # and % comments; a header; .gz), Matrix
    Market, scipy .npz, edge_index or adjacency matrix in .npy, .npz, .h5 and .safetensors, GraphML, GML, Pajek,
    node-link JSON. Datasets: edge_index with ptr or batch as PyTorch Geometric stores them, folders of TUDataset and OGB,
    graph6 and sparse6.

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
    found = _read(source, Options(directed, weights, num_nodes, parallel), ids)
    if isinstance(found, GraphDataset):
        if ids != "auto":
            raise PeError(
                f"{parameter('ids')} {ids}: the nodes of a dataset are numbered, and rows are in their order"
            )
        return found
    raw, label = found
    return assembled(raw, label, directed=directed, num_nodes=num_nodes, ids=ids, parallel=parallel)


def _read(source: str, options: Options, ids: Ids) -> GraphDataset | tuple[RawGraph, str]:
    """A dataset, or the edges of one graph with the name of their file."""
    path, tensor = split_spec(source)
    if os.path.isdir(path):
        return read_folder(path, options)
    if path.endswith("_A.txt") and os.path.exists(f"{path.removesuffix('A.txt')}graph_indicator.txt"):
        return read_folder(os.path.dirname(path) or ".", options)
    with open_input(path) as stream:
        label = stream.label
        if holds_tensors(stream.peek(16)):
            with reading_tensors(stream, tensor) as tensors:
                dataset = dataset_of_tensors(tensors, options) if tensor in (None, "edge_index") else None
                return (from_source(tensors, options.weights), label) if dataset is None else dataset
        if tensor is not None:
            raise PeError(f"{label} is no file of tensors, so there is no {tensor!r} in it")
        with unzipped(stream) as file:
            if looks_like_graph6(file.head, label):
                return read_graph6(file, options)
            if not file.head and options.num_nodes is None:
                raise PeError(f"{label} is empty")
            return _read_text(file, options.weights, ids), label


def _read_text(file: Opened, weights: str, ids: Ids) -> RawGraph:
    """A graph in a format that is text."""
    head = file.head.removeprefix(BOM).lstrip().decode("latin-1")
    for start, reader in READERS:
        if re.match(start, head, re.IGNORECASE):
            return reader(file, weights)
    form = next((form for start, form in ELSEWHERE if re.match(start, head, re.IGNORECASE)), None)
    form = form or ENDINGS.get(PurePath(file.label.lower().removesuffix(".gz")).suffix)
    if form is not None:
        raise PeError(f"{file.label} is {form}, which is not read as a graph: {OFFERED}")
    return read_edge_list(file, weights, ids == "text")


TreeFormat: TypeAlias = Literal["auto", "brackets", "conllu", "json", "heads", "python"]

TREE_READERS = {
    "brackets": read_brackets,
    "conllu": read_conllu,
    "json": read_json,
    "heads": read_heads,
    "python": read_python,
}
OPENING = {"(": "brackets", "{": "json", "[": "json"}


Traces: TypeAlias = Literal["keep", "drop"]


def read_forest(
    source: str,
    *,
    tree_format: TreeFormat = "auto",
    skip_bad: bool = False,
    traces: Traces = "keep",
    values: bool = False,
) -> Forest:
    """Read trees from a file, or from standard input for `-`.

    Formats: Penn brackets, CoNLL-U, JSON (nested objects or lists, py150's flat list), heads (one number a node, from 1,
    0 = root), and, where the name ends in .py, Python source.

    Parameters
    ----------
    source : path, or - for standard input.
    tree_format : how the file is written; auto: Python by its name, others by content.
    skip_bad : leave out sentences that are no tree, and say how many; else they are an error.
    traces : keep or drop the leaves below -NONE-, and constituents that then hold no word.
    values : names and constants of Python source, and the `value` of JSON leaves, are leaves of their own.

    Raises
    ------
    PeError
        For a file that cannot be read or understood: with line and column, and what would work.
    """
    with opened(source) as file:
        text = whole_text(file)
        label = file.label
    name = _recognised(text, label) if tree_format == "auto" else tree_format
    found = TREE_READERS[name](text, label, values)
    return forest_of(found, label, skip_bad=skip_bad, drop_traces=traces == "drop")


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
GraphLike: TypeAlias = Annotated[Graph | GraphDataset | NDArray[Any] | list[Any], Source.GRAPH]
ForestLike: TypeAlias = Annotated[Forest | NDArray[Any] | list[Any], Source.FOREST]


def as_graph(given: GraphLike) -> Graph:
    """The graph of an edge_index (2, m) of integers, or of a square matrix of weights; a Graph is returned as it is.

    Arrays are read as a .npy file with the same numbers is: without direction (an edge that stands in both directions
    counts once, if all do), over nodes 0 to the largest id. `Graph(num_nodes, edge_index, weights, directed=True)` says
    more.
    """
    if isinstance(given, Graph):
        return given
    if isinstance(given, GraphDataset):
        return given.whole()
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
