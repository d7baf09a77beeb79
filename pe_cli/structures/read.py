"""`read_graph`: a graph from a file of any format, which its first bytes tell."""

from __future__ import annotations

import os
import re
import sys
from pathlib import PurePath
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, parameter
from pe_cli.files import open_input
from pe_cli.files.sources import holds_tensors, reading_tensors, split_spec
from pe_cli.files.text import Opened, unzipped
from pe_cli.process import require_memory
from pe_cli.signature import Meaning
from pe_cli.structures.datasets import EdgeOptions, GraphDataset, dataset_of_tensors, read_folder
from pe_cli.structures.formats import (
    BANNER,
    READABLE,
    collected,
    from_array,
    from_edge_index,
    from_entries,
    from_source,
    read_gml,
    read_graphml,
    read_matrix_market,
    read_node_link,
    read_pajek,
)
from pe_cli.structures.graph import Graph, Ids, Parallel, RawGraph
from pe_cli.structures.lines import (
    looks_like_conllu,
    looks_like_graph6,
    read_edge_list,
    read_enhanced,
    read_graph6,
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
    (r"\(", "a tree in brackets (`tree` encodes it)"),
    (r"\x80", "a pickle, which is never loaded"),
    (r"par1", "Parquet"),
    (r"arrow1", "Arrow"),
    (r"matlab 5", "MATLAB (.mat)"),
    (r"sqlite format", "a database"),
)
ENDINGS = {
    ".dot": "Graphviz", ".gv": "Graphviz", ".col": "DIMACS", ".gr": "DIMACS", ".dimacs": "DIMACS", ".graph": "METIS",
    ".metis": "METIS", ".tgf": "Trivial Graph Format", ".adjlist": "a list of neighbours", ".gexf": "GEXF", ".gdf": "GUESS",
    ".nt": "RDF", ".ttl": "RDF", ".lgf": "LEMON", ".hgr": "hMETIS", ".heads": "a list of heads (`tree` encodes it)",
}  # fmt: skip
BYTES_A_NODE = 64
MANY_NODES, FAR_MORE = (
    10_000_000,
    100,
)  # declared nodes are believed up to the first, or to so many times those named
SOME = 1024  # gaps are looked for in a table of flags if ids reach no further than this beyond the edges
# What encodings of graphs and of trees accept; on the command line a file is read.
GraphLike: TypeAlias = Annotated[Graph | GraphDataset | NDArray[Any] | list[Any], Meaning.GRAPH]


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

    >>> with open("edges.tsv", "w") as file:
    ...     _ = file.write("0 1\\n1 2\\n")
    >>> read_graph("edges.tsv").edges.tolist()
    [[0, 1], [1, 2]]

    Formats, told by content: edge list (tabs, commas, semicolons or spaces; # and % comments; a header; .gz), Matrix
    Market, scipy .npz, edge_index or adjacency matrix in .npy, .npz, .h5 and .safetensors, GraphML, GML, Pajek,
    node-link JSON. Datasets: edge_index with ptr or batch as PyTorch Geometric stores them, folders of TUDataset and OGB,
    graph6 and sparse6, and the enhanced dependencies of CoNLL-U from head to word, a graph for each sentence.

    Parameters
    ----------
    source : path, or - for standard input.
    directed : edges go from their first to their second node only.
    weights : auto (the third numeric column, or `weight`), none, or the name or number (from 1) of a column.
    num_nodes : nodes are 0..N-1, also those without edges.
    ids : auto (whole numbers are rows), relabel (number those that occur, in order), or text (rows as they appear).
    parallel : several edges between two nodes: sum of their weights, or the first only. Where every edge is written in
        both directions, each counts once, with the mean of its two weights; where only some are, these are summed.

    Returns
    -------
    Graph, or GraphDataset for a file or folder of many graphs, which are read in blocks.

    Raises
    ------
    PeError
        For a file that cannot be read or understood: with the line, and what would work.
    """
    found = _read(source, EdgeOptions(directed, weights, num_nodes, parallel), ids)
    if isinstance(found, GraphDataset):
        if ids != "auto":
            raise PeError(
                f"{parameter('ids')} {ids}: the nodes of a dataset are numbered, and rows are in their order"
            )
        return found
    raw, label = found
    return assembled(raw, label, directed=directed, num_nodes=num_nodes, ids=ids, parallel=parallel)


def _read(source: str, options: EdgeOptions, ids: Ids) -> GraphDataset | tuple[RawGraph, str]:
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
            if looks_like_conllu(file.head.removeprefix(BOM), label):
                return read_enhanced(file, options)
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


def as_graph(given: GraphLike) -> Graph:
    """The graph of an edge_index (2, m) of integers, of a square matrix of weights, or of an object of a library.

    >>> as_graph([[0, 1], [1, 2]]).num_nodes
    3

    Arrays and scipy matrices are read as a file with the same numbers is: without direction (an edge that stands in both
    directions counts once, if all do), over nodes 0 to the largest id. So is what has an `edge_index`, as `Data` and
    `Batch` of PyTorch Geometric, with their `edge_weight`, `num_nodes` and `ptr`. A graph of networkx has the direction
    that its class says, and its nodes are rows as `read_graph` has them. A list of graphs is a dataset. A Graph is
    returned as it is; `Graph(num_nodes, edge_index, weights, directed=True)` says more.

    Raises
    ------
    PeError
        For what is none of these.
    """
    if isinstance(given, Graph):
        return given
    if isinstance(given, GraphDataset):
        return given.whole()
    if isinstance(given, (str, os.PathLike)):
        raise PeError(f"{os.fspath(given)!r} is a name, not a graph: read_graph reads the file")
    if _is_graph(given):
        return _of_library(given)
    if isinstance(given, (list, tuple)) and given and all(map(_is_graph, given)):
        return _side_by_side([as_graph(one) for one in given])
    array = np.asarray(given)
    if not array.size:
        raise PeError(
            "an edge_index without edges does not say how many nodes there are: Graph(num_nodes, edge_index)"
        )
    raw = from_array(array, "edge_index", "auto")
    if raw.num_nodes is None:
        raw.num_nodes = int(raw.edges.max()) + 1
    return _assembled_alone(raw, "edge_index")


def _assembled_alone(raw: RawGraph, label: str) -> Graph:
    return assembled(raw, label, directed=bool(raw.directed), num_nodes=None, ids="auto", parallel="sum")


def _of(given: Any, module: str, name: str) -> bool:
    """Whether this is what the function or class `name` of a module says; a module that is not loaded made no object."""
    test = getattr(sys.modules.get(module), name, None)
    return test is not None and bool(isinstance(given, test) if isinstance(test, type) else test(given))


def _is_graph(given: Any) -> bool:
    """Whether this is a graph for itself, and not rows of numbers."""
    return (
        isinstance(given, Graph)
        or hasattr(given, "edge_index")
        or _of(given, "networkx", "Graph")
        or _of(given, "scipy.sparse", "issparse")
    )


def _of_library(given: Any) -> Graph:
    """The graph of an object of networkx, scipy or PyTorch Geometric."""
    if _of(given, "networkx", "Graph"):
        return _assembled_alone(collected("the graph", given, "auto"), "the graph")
    if _of(given, "scipy.sparse", "issparse"):
        matrix = given.tocoo()
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind not in READABLE:
            raise PeError(
                f"the matrix is {matrix.dtype} {list(matrix.shape)}: a graph is square and of real numbers"
            )
        edges = np.stack([matrix.row, matrix.col]).astype(np.int64)
        return _assembled_alone(
            from_entries(edges, matrix.data, matrix.shape[0], "the matrix", "auto"), "the matrix"
        )
    if given.edge_index is None:
        raise PeError("the graph has no edge_index")
    raw = from_edge_index(np.asarray(given.edge_index), "edge_index")
    weights, ptr, batch = (getattr(given, name, None) for name in ("edge_weight", "ptr", "batch"))
    number = getattr(given, "num_nodes", None)
    count = int(number) if number is not None else int(raw.edges.max(initial=-1)) + 1
    if ptr is None and batch is not None:
        graph_of = np.asarray(batch)
        if len(graph_of) != count or (np.diff(graph_of) < 0).any():
            raise PeError("batch gives each node its graph, in ascending order")
        ptr = np.concatenate([[0], np.cumsum(np.bincount(graph_of))])
    return Graph(count, raw.edges, None if weights is None else np.asarray(weights), ptr=ptr)


def _side_by_side(graphs: list[Graph]) -> Graph:
    """A dataset of graphs that are understood in one way."""
    first = graphs[0]
    for number, graph in enumerate(graphs):
        if graph.several:
            raise PeError(f"graph {number} of the list is a dataset: give its graphs one by one")
        if (graph.directed, graph.parallel, graph.mirrored) != (
            first.directed,
            first.parallel,
            first.mirrored,
        ):
            raise PeError(
                f"graph {number} of the list and the first are not both directed, or count parallel edges differently"
            )
    starts = np.concatenate([[0], np.cumsum([graph.num_nodes for graph in graphs])])
    weighted = any(graph.weights is not None for graph in graphs)
    weights = [np.ones(graph.num_edges) if graph.weights is None else graph.weights for graph in graphs]
    edges = [graph.edges + start for graph, start in zip(graphs, starts.tolist(), strict=False)]
    return Graph(
        int(starts[-1]),
        np.concatenate(edges, axis=1),
        np.concatenate(weights) if weighted else None,
        first.directed,
        first.parallel,
        mirrored=first.mirrored,
        ptr=starts,
    )


def assembled(
    raw: RawGraph, label: str, *, directed: bool, num_nodes: int | None, ids: Ids, parallel: Parallel
) -> Graph:
    """The graph, with nodes numbered from 0; errors for gaps between ids and for ids beyond `num_nodes`."""
    if num_nodes is not None and num_nodes < 0:
        raise PeError(f"{parameter('num_nodes')} {num_nodes}: give 0 or more")
    edges, notes = raw.edges, list(raw.notes)
    if raw.directed and not directed:
        notes.append(
            f"the file says that its edges are directed; they are read as undirected without {parameter('directed')}"
        )
    if raw.one_way and not directed:
        notes.append(
            f"the matrix is not symmetric: it is read as undirected, A + A'; {parameter('directed')} keeps its directions"
        )
    node_ids: NDArray[np.int64] | tuple[str, ...] | None = None
    if raw.names is not None:
        count = len(raw.names)
        edges, node_ids = _named(edges, raw.names, ids)
        if num_nodes is not None and num_nodes != count:
            raise PeError(f"{parameter('num_nodes')} {num_nodes}: {label} names {count} nodes")
    elif ids == "text" and edges.size:
        raise PeError(f"{parameter('ids')} text: {label} has no names, its rows are numbers; leave it out")
    elif ids == "relabel":
        known = np.unique(edges)
        edges = np.searchsorted(known, edges)
        count = len(known)
        node_ids = None if np.array_equal(known, np.arange(count)) else known
        if num_nodes is not None and num_nodes != count:
            raise PeError(
                f"{parameter('num_nodes')} {num_nodes}: with {parameter('ids')} relabel there are the {count} nodes that occur"
            )
    else:
        count = _counted(edges, raw.num_nodes, label, num_nodes)
    require_memory(
        count * BYTES_A_NODE,
        f"a graph of {count:,} nodes",
        f"give a smaller {parameter('num_nodes')} or {parameter('ids')} relabel",
    )
    # an edge without direction goes both ways, also for an encoding that looks at directions
    mirrored = raw.directed is False
    return Graph(
        count,
        edges,
        raw.weights,
        directed,
        parallel,
        node_ids,
        tuple(notes),
        mirrored,
        weighted_by=raw.weighted_by,
    )


def _named(
    edges: NDArray[np.int64], names: list[str], ids: Ids
) -> tuple[NDArray[np.int64], NDArray[np.int64] | tuple[str, ...] | None]:
    """Rows in the order of the names, but in numeric order where all names are integers."""
    if ids == "text" or not names or not all(_plain(name) for name in names):
        return edges, tuple(names)
    numbers = np.array([int(name) for name in names], dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    row = np.empty(len(names), dtype=np.int64)
    row[order] = np.arange(len(names))
    sorted_numbers = numbers[order]
    same = np.array_equal(sorted_numbers, np.arange(len(names)))
    return row[edges], None if same else sorted_numbers


def _plain(name: str) -> bool:
    digits = name[1:] if name[:1] == "-" else name
    return digits.isascii() and digits.isdecimal() and len(digits) <= 18 and str(int(name)) == name


def _counted(edges: NDArray[np.int64], declared: int | None, label: str, num_nodes: int | None) -> int:
    reach = int(edges.max()) + 1 if edges.size else 0
    if num_nodes is not None:
        if num_nodes < reach:
            raise PeError(f"{parameter('num_nodes')} {num_nodes}: {label} has nodes up to {reach - 1}")
        return num_nodes
    if declared is not None:
        named = len(np.unique(edges))
        if declared > max(MANY_NODES, FAR_MORE * named):
            raise PeError(
                f"{label} declares {declared:,} nodes, and its edges name {named:,}; if that is right, "
                f"give {parameter('num_nodes')} {declared}, else the number of nodes that there are"
            )
        return declared
    if not edges.size:
        raise PeError(f"{label} has no edges; {parameter('num_nodes')} N says how many nodes there are")
    if reach <= 8 * edges.size + SOME:
        seen = np.zeros(reach, dtype=bool)
        seen[edges] = True
        missing, first = reach - int(seen.sum()), int(np.argmin(seen))
    else:
        known = np.unique(edges)
        missing = reach - len(known)
        apart = np.flatnonzero(known != np.arange(len(known)))
        first = int(apart[0]) if apart.size else len(known)
    if missing:
        raise PeError(
            f"{label} has gaps: ids run to {reach - 1}, but {missing} below it do not occur, the first is {first}; "
            f"{parameter('num_nodes')} {reach} takes them as isolated nodes, {parameter('ids')} relabel numbers those that occur"
        )
    return reach
