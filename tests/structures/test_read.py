"""Arrays and lists in place of graphs and trees."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli import (
    Graph,
    PeError,
    dag,
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


def test_graphs_of_libraries():
    nx, sparse = pytest.importorskip("networkx"), pytest.importorskip("scipy.sparse")
    grid = nx.grid_2d_graph(3, 4)  # its nodes are pairs of numbers, as the rows of an edge list are
    assert as_graph(grid).num_nodes == 12
    assert as_graph(grid).node_ids[0] == "[0, 0]"
    np.testing.assert_array_equal(as_graph(grid).adjacency.dense(), nx.to_numpy_array(grid))
    ring = nx.DiGraph([(0, 1), (1, 2), (2, 0)])
    assert shortest_path(ring)["distance"].tolist() == [[0, 1, 2], [2, 0, 1], [1, 2, 0]]
    weighted = nx.Graph()
    weighted.add_weighted_edges_from([(2, 0, 3.0), (0, 1, 0.5)])
    wanted = [[0, 0.5, 3], [0.5, 0, 0], [3, 0, 0]]
    assert as_graph(weighted).adjacency.dense().tolist() == wanted
    for kind in ("csr", "csc", "coo"):
        assert (
            as_graph(sparse.csr_array(np.array(wanted)).asformat(kind)).adjacency.dense().tolist() == wanted
        )
    assert as_graph(nx.empty_graph(3)).num_nodes == 3
    several = as_graph([grid, weighted])
    assert several.ptr.tolist() == [0, 12, 15]
    assert several.part(1).adjacency.dense().tolist() == wanted
    for given, message in (
        ([ring, weighted], "not both directed"),
        (sparse.csr_array((2, 3)), "square"),
        ("graph.tsv", "read_graph reads the file"),
    ):
        with pytest.raises(PeError, match=message):
            as_graph(given)


@pytest.mark.interop
def test_data_of_pytorch_geometric():
    torch = pytest.importorskip("torch")
    geometric = pytest.importorskip("torch_geometric.data")
    one = geometric.Data(
        edge_index=torch.tensor([[0, 1], [1, 2]]), edge_weight=torch.tensor([2.0, 3.0]), num_nodes=4
    )
    assert as_graph(one).adjacency.dense()[1].tolist() == [2, 0, 3, 0]
    assert as_graph(geometric.Batch.from_data_list([one, one])).ptr.tolist() == [0, 4, 8]
    assert as_graph([one, one, one]).ptr.tolist() == [0, 4, 8, 12]


def test_what_is_written_without_direction_has_no_order():
    nx = pytest.importorskip("networkx")
    with pytest.raises(PeError, match="cycle"):
        dag(nx.path_graph(3))
    assert dag(nx.DiGraph([(0, 1), (1, 2)]))["depth"].tolist() == [0, 1, 2]


@pytest.mark.interop
def test_data_of_pyg():
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").Data
    pairs = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    several = as_graph(data(edge_index=pairs, batch=torch.tensor([0, 0, 1, 1])))
    assert several.ptr.tolist() == [0, 2, 4]
    assert as_graph(data(edge_index=torch.tensor([[0, 1], [1, 2], [2, 3]]))).edges.tolist() == [
        [0, 1, 2],
        [1, 2, 3],
    ]
    assert as_graph(data(edge_index=torch.zeros(2, 0), num_nodes=2)).num_nodes == 2
    for wrong, message in [
        (data(num_nodes=3), "no edge_index"),
        (data(edge_index=pairs, batch=torch.tensor([0, 1, 0, 1])), "ascending order"),
        (data(edge_index=torch.tensor([[0.0, 1.0], [1.0, 0.0]])), "are integers"),
    ]:
        with pytest.raises(PeError, match=message):
            as_graph(wrong)
