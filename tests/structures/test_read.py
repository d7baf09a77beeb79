"""Arrays and lists in place of graphs and trees."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli import (
    Graph,
    PeError,
    dependency,
    laplacian,
    magnetic,
    random_walk,
    read_graph,
    shortest_path,
    tree,
)
from pe_cli.structures import as_forest, as_graph, read_forest

PATH = np.array([[0, 1], [1, 2]])
BOTH = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])


@pytest.mark.parametrize("edges", [PATH, BOTH, BOTH.astype(np.uint8), BOTH.tolist(), BOTH.T])
def test_encodings_of_graphs_take_an_edge_index(edges):
    given = Graph(3, PATH)
    for made, wanted in (
        (laplacian(edges, 2), laplacian(given, 2)),
        (random_walk(edges, 3), random_walk(given, 3)),
        (shortest_path(edges), shortest_path(given)),
    ):
        for name, array in wanted.items():
            assert np.array_equal(made[name], array), name
    assert magnetic(PATH, 2)["eigenvectors"].dtype == np.complex128


def test_it_is_read_as_the_file_is(tmp_path):
    some = np.array([[0, 1, 1], [1, 0, 2]])
    weights = np.array([[0, 2.0], [2.0, 0]])
    for array in (PATH, BOTH, some, weights):
        np.save(tmp_path / "e.npy", array)
        read, given = read_graph(str(tmp_path / "e.npy")), as_graph(array)
        assert np.array_equal(given.adjacency.dense(), read.adjacency.dense())
        assert given.doubts == read.doubts
    assert laplacian(some, 1).warnings[0].startswith("1 of 2 edges is also")


def test_nodes_without_edges_are_nodes():
    assert as_graph([[0, 3], [3, 4]]).num_nodes == 5


def test_trees_are_lists_of_heads(tmp_path):
    (tmp_path / "t.heads").write_text("2 0 2\n0 1\n")
    read, given = read_forest(str(tmp_path / "t.heads")), as_forest([[2, 0, 2], [0, 1]])
    assert np.array_equal(read.parents, given.parents)
    assert np.array_equal(read.starts, given.starts)
    assert tree([2, 0, 2], scheme="depth")["tree"].tolist() == [1, 0, 1]
    assert dependency(np.array([2, 0, 2]))["absolute"].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: laplacian(np.zeros((3, 5)), 1), r"edge_index is float64 \[3, 5\]"),
        (lambda: laplacian([[0, -1], [1, 2]], 1), "negative id"),
        (lambda: laplacian([], 1), "without edges"),
        (lambda: tree([]), "heads are empty"),
        (lambda: tree([1.5]), "whole numbers"),
        (lambda: tree([2, 1]), "run in a circle"),
        (lambda: tree([[0], [0, 0]]), "a second root"),
    ],
)
def test_what_makes_no_graph_or_tree(call, message):
    with pytest.raises(PeError, match=message):
        call()
