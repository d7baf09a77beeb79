"""Random walks and shortest paths against dense numpy and networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from pe_cli.encodings import walks
from pe_cli.encodings.node_distances import shortest_path
from pe_cli.encodings.node_walks import random_walk
from pe_cli.structures import Graph


def graph(n, pairs, weights=None, **options):
    return Graph(n, np.array(pairs, dtype=np.int64).reshape(-1, 2).T, weights, **options)


def random_graph(n, degree, seed=0, **options):
    return Graph(n, np.random.default_rng(seed).integers(0, n, (2, n * degree // 2)), **options)


def returns(matrix, steps):
    degree = matrix.sum(axis=1, keepdims=True)
    walk = np.divide(matrix, degree, out=np.zeros_like(matrix), where=degree > 0)
    return np.stack([np.diag(np.linalg.matrix_power(walk, t)) for t in range(1, steps + 1)], axis=1)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 9])
@pytest.mark.parametrize("way", ["matrix", "sparse blocks", "plain blocks"])
def test_random_walk_against_dense_powers(monkeypatch, directed, steps, way):
    g = random_graph(90, 5, weights=np.random.default_rng(1).random(225) * 3, directed=directed)
    if way != "matrix":
        monkeypatch.setattr(walks, "DENSE", 1)
        monkeypatch.setattr(walks, "PILOT", 16)
        monkeypatch.setattr(walks, "FULL", 2.0 if way == "sparse blocks" else 0.0)
        monkeypatch.setattr(walks, "BLOCK", 2000)
    table = random_walk(g, steps)
    np.testing.assert_allclose(table["random_walk"], returns(g.adjacency.dense(), steps), atol=1e-14)


def test_random_walk_known_cases():
    assert not random_walk(graph(4, [(0, 1), (1, 2), (2, 3)], directed=True), 5)["random_walk"].any()
    assert random_walk(graph(3, [(0, 1)]), 3)["random_walk"].tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 0]]
    loop = graph(2, [(0, 0), (0, 1)])
    np.testing.assert_allclose(random_walk(loop, 2)["random_walk"], [[0.5, 0.75], [0, 0.5]])
    np.testing.assert_allclose(random_walk(loop, 2, loops="drop")["random_walk"], [[0, 1], [0, 1]])
    np.testing.assert_allclose(random_walk(loop, 2, space_dim=2)["random_walk"], [[0.5, 1.5], [0, 1.0]])
    light = graph(2, [(0, 1)], [0.01])
    np.testing.assert_allclose(random_walk(light, 2)["random_walk"], [[0, 1], [0, 1]])


@pytest.mark.parametrize("directed", [False, True])
def test_shortest_paths_against_networkx(monkeypatch, directed):
    monkeypatch.setattr(walks, "BLOCK", 1000)
    g = random_graph(120, 3, seed=4, directed=directed)
    made = (nx.DiGraph if directed else nx.Graph)()
    made.add_nodes_from(range(120))
    made.add_edges_from(g.edges.T.tolist())
    wanted = np.full((120, 120), -1)
    for source, reached in nx.all_pairs_shortest_path_length(made):
        wanted[source, list(reached)] = list(reached.values())
    table = shortest_path(g)
    assert np.array_equal(table["distance"], wanted)
    assert table["distance"].dtype == np.int16
    assert table.facts["largest"] == wanted.max()
    assert np.array_equal(
        shortest_path(g, limit=2, unreachable=510)["distance"],
        np.where((wanted < 0) | (wanted > 2), 510, wanted),
    )


def test_what_stands_for_no_path_may_be_a_distance_too():
    table = shortest_path(graph(5, [(0, 1), (1, 2), (2, 3)]), unreachable=2)
    assert table["distance"][0].tolist() == [0, 1, 2, 3, 2]
    assert table.facts["pairs_without_path"] == 8
    assert table.facts["largest"] == 3


@pytest.mark.parametrize("dense", [2000, 1])
def test_weighted_paths_take_the_least_of_parallel_edges(monkeypatch, dense):
    monkeypatch.setattr(walks, "DENSE", dense)
    g = graph(5, [(0, 1), (0, 1), (1, 2), (0, 2)], [4.0, 1.0, 0.5, 3.0])
    distance = shortest_path(g, weighted=True)["distance"]
    assert distance[0].tolist() == [0, 1, 1.5, -1, -1]
    assert shortest_path(g, weighted=True, limit=1)["distance"][0].tolist() == [0, 1, -1, -1, -1]
