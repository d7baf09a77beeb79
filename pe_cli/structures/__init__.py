"""Graphs and trees: what they are in memory, and how they are read from files."""

from pe_cli.structures.given import ForestLike, GraphLike, as_forest, as_graph
from pe_cli.structures.graph import Graph
from pe_cli.structures.graph_files import read_graph
from pe_cli.structures.tree import Forest
from pe_cli.structures.tree_files import read_forest

__all__ = [
    "Forest",
    "ForestLike",
    "Graph",
    "GraphLike",
    "as_forest",
    "as_graph",
    "read_forest",
    "read_graph",
]
