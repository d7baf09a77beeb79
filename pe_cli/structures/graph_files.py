"""`read_graph`: a graph from a file of any format, which its first bytes tell."""

from __future__ import annotations

from pe_cli.errors import PeError
from pe_cli.formats.npy import MAGIC as NPY
from pe_cli.formats.npz import MAGIC as NPZ
from pe_cli.structures.edge_lists import read_edge_list
from pe_cli.structures.graph import Graph, Parallel
from pe_cli.structures.graph_documents import read_graphml, read_node_link
from pe_cli.structures.matrices import BANNER, read_matrix_market, read_npy, read_npz
from pe_cli.structures.opening import opened
from pe_cli.structures.raw import Ids, assembled

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
