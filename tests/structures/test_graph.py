"""A graph as arrays: adjacency, direction, components."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from pe_cli.errors import PeError, option_name, spelled
from pe_cli.structures import Graph
from pe_cli.structures.graph import components


def graph(n, pairs, weights=None, **options):
    return Graph(n, np.array(pairs).reshape(-1, 2).T, weights, **options)


def test_parallel_edges_are_summed_and_loops_count_once():
    a = graph(3, [(0, 1), (1, 0), (0, 1), (2, 2), (1, 2)]).adjacency.dense()
    assert a.tolist() == [[0, 3, 0], [3, 0, 1], [0, 1, 1]]


def test_the_first_of_parallel_edges():
    pairs, weights = [(0, 1), (1, 0), (0, 1), (1, 2)], [2.0, 5.0, 7.0, 1.0]
    a = graph(3, pairs, weights, parallel="first").adjacency.dense()
    assert a.tolist() == [[0, 2, 0], [2, 0, 1], [0, 1, 0]]


def test_edges_written_in_both_directions_count_once():
    g = graph(3, [(0, 1), (1, 0), (1, 2), (2, 1)])
    assert g.both_directions
    assert g.adjacency.dense().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert not graph(3, [(0, 1), (1, 0), (1, 2)]).both_directions


def test_two_weights_of_an_edge_that_all_are_written_twice_come_to_their_mean():
    pairs = [(0, 1), (1, 0), (1, 2), (2, 1)]
    g = graph(3, pairs, [1.0, 1.0, 2.0, 3.0])
    assert g.adjacency.dense().tolist() == [[0, 1, 0], [1, 0, 2.5], [0, 2.5, 0]]
    assert "the mean of its two" in g.doubts[0]
    assert not graph(3, pairs, [1.0, 1.0, 2.0, 2.0]).doubts
    first = graph(3, pairs, [1.0, 1.0, 2.0, 3.0], parallel="first")
    assert first.adjacency.dense().tolist() == [[0, 1, 0], [1, 0, 2], [0, 2, 0]]
    assert not first.doubts
    assert graph(3, pairs, [1.0, 1.0, 2.0, 3.0], directed=True).arcs.dense()[2].tolist() == [0, 3, 0]


def test_some_edges_written_twice_are_told():
    g = graph(3, [(0, 1), (1, 0), (1, 2)])
    assert [spelled(said, option_name) for said in g.doubts] == [
        "1 of 2 edges is also there the other way round: their weights are summed; --parallel first takes one"
    ]
    assert not graph(3, [(0, 1), (1, 0), (1, 2)], parallel="first").doubts
    assert not graph(3, [(0, 1), (1, 0), (1, 2)], directed=True).doubts
    assert not graph(3, [(0, 1), (1, 2), (2, 2)]).doubts


def test_edges_written_more_than_once_are_told():
    for directed in (False, True):
        g = graph(3, [(0, 1), (0, 1), (1, 2)], directed=directed)
        assert g.adjacency.dense()[0, 1] == 2
        assert "more than once: their weights are summed" in g.doubts[0]
        assert not graph(3, [(0, 1), (0, 1), (1, 2)], directed=directed, parallel="first").doubts
    assert not graph(3, [(0, 1), (1, 2), (1, 2)], [1.0, 2.0, 0.0], directed=True).doubts


def test_direction():
    g = graph(2, [(0, 1)], directed=True)
    assert g.adjacency.dense().tolist() == [[0, 1], [0, 0]]
    assert g.symmetric.dense().tolist() == [[0, 0.5], [0.5, 0]]


def test_undirected_adjacency_is_symmetric_to_the_last_bit():
    rng = np.random.default_rng(0)
    g = Graph(20, rng.integers(0, 20, (2, 400)), rng.random(400))
    a = g.adjacency.dense()
    assert np.array_equal(a, a.T)


@pytest.mark.parametrize("seed", range(4))
def test_components_against_networkx(seed):
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, 200, (2, 60 + 40 * seed))
    other = nx.Graph()
    other.add_nodes_from(range(200))
    other.add_edges_from(edges.T.tolist())
    labels = components(Graph(200, edges).adjacency)
    found = sorted(sorted(np.flatnonzero(labels == c).tolist()) for c in range(labels.max() + 1))
    assert found == sorted(sorted(part) for part in nx.connected_components(other))
    assert labels[np.unique(labels, return_index=True)[1]].tolist() == list(range(labels.max() + 1))


def test_components_of_a_long_path():
    n = 5000
    order = np.random.default_rng(1).permutation(n)
    assert not components(Graph(n, np.stack([order[:-1], order[1:]])).adjacency).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, [[0], [2]]), "outside 0..1"),
        ((2, [[0], [1]], [1.0, 2.0]), "2 weights for 1 edges"),
        ((2, [[0], [1]], [float("nan")]), "not a finite number"),
        ((-1, [[], []]), "-1 nodes"),
    ],
)
def test_what_is_no_graph(arguments, message):
    with pytest.raises(PeError, match=message):
        Graph(*arguments)


def test_the_record_says_which_graph():
    one, other = graph(3, [(0, 1)]), graph(3, [(0, 2)])
    assert repr(one).startswith("Graph(3 nodes, 1 edge, undirected, sha256 ")
    assert repr(one) != repr(other)


@pytest.mark.parametrize(
    "edges", [[[0, 1], [1, 2], [2, 0]], [[0.5, 1.0], [1.0, 2.0]], [0, 1, 1, 2], [0, 1, 2]]
)
def test_edges_that_are_no_two_rows_of_whole_numbers_are_refused(edges):
    with pytest.raises(PeError, match=r"edges are .* \[.*\]: give whole numbers \(2, m\)"):
        Graph(3, edges)


def test_numbers_of_numpy_are_numbers():
    g = Graph(np.int32(3), np.array([[0.0, 1.0], [1.0, 2.0]]))
    assert g.adjacency.dense().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert type(g.num_nodes) is int
