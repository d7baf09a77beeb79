"""Graphs and trees: what they are in memory, and how they are read from files."""

from pe_cli.structures.datasets import GraphDataset
from pe_cli.structures.forest import Forest
from pe_cli.structures.graph import Graph
from pe_cli.structures.read import GraphLike, as_graph, read_graph
from pe_cli.structures.trees import ForestLike, as_forest, read_forest

__all__ = [
    "Forest",
    "ForestLike",
    "Graph",
    "GraphDataset",
    "GraphLike",
    "as_forest",
    "as_graph",
    "read_forest",
    "read_graph",
]
