"""Random walks and shortest paths against dense numpy and networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy.linalg import expm

from pe_cli.encodings.graph import distances, walks
from pe_cli.encodings.graph.distances import resistance_distance, shortest_path
from pe_cli.encodings.graph.structure import electrostatic
from pe_cli.encodings.graph.walks import heat_kernel, random_walk, rrwp
from pe_cli.errors import PeError
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
    with pytest.raises(PeError, match="space_dim 2 is about steps"):
        random_walk(loop, ppr=(0.2,), space_dim=2)
    with pytest.raises(PeError, match="space_dim 500 and times 100"):
        random_walk(loop, times=(1, 100), space_dim=500)
    light = graph(2, [(0, 1)], [0.01])
    np.testing.assert_allclose(random_walk(light, 2)["random_walk"], [[0, 1], [0, 1]])


@pytest.mark.parametrize("directed", [False, True])
def test_shortest_paths_against_networkx(monkeypatch, directed):
    monkeypatch.setattr(distances, "BLOCK", 1000)
    g = random_graph(120, 3, seed=4, directed=directed)
    made = (nx.DiGraph if directed else nx.Graph)()
    made.add_nodes_from(range(120))
    made.add_edges_from(g.edges.T.tolist())
    wanted = np.full((120, 120), -1)
    for source, reached in nx.all_pairs_shortest_path_length(made):
        wanted[source, list(reached)] = list(reached.values())
    table = shortest_path(g)
    assert np.array_equal(table["distance"], wanted)
    assert table["distance"].dtype == np.int8
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
    monkeypatch.setattr(distances, "DENSE", dense)
    g = graph(5, [(0, 1), (0, 1), (1, 2), (0, 2)], [4.0, 1.0, 0.5, 3.0])
    distance = shortest_path(g, weighted=True)["distance"]
    assert distance[0].tolist() == [0, 1, 1.5, -1, -1]
    assert shortest_path(g, weighted=True, limit=1)["distance"][0].tolist() == [0, 1, -1, -1, -1]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("way", ["matrix", "sparse blocks"])
def test_relative_walks_against_dense_powers(monkeypatch, directed, way):
    weights = np.random.default_rng(1).random(120) * 3
    g = random_graph(60, 4, weights=weights, directed=directed)
    g = Graph(
        80, 2 + g.edges + g.edges // 20, weights, directed=directed
    )  # with nodes between that no edge joins
    if way != "matrix":
        monkeypatch.setattr(walks, "DENSE", 1)
        monkeypatch.setattr(walks, "BLOCK", 2000)
    matrix = g.adjacency.dense()
    degree = matrix.sum(axis=1, keepdims=True)
    walk = np.divide(matrix, degree, out=np.zeros_like(matrix), where=degree > 0)
    wanted = np.stack([np.linalg.matrix_power(walk, t) for t in range(5)], axis=-1)
    np.testing.assert_allclose(rrwp(g, 5, form="dense")["rrwp"], wanted, atol=1e-14)
    found = rrwp(g, 5)
    np.testing.assert_allclose(found["rrwp"], np.diagonal(wanted).T, atol=1e-14)
    row, column = np.nonzero(wanted.any(axis=2))
    assert np.array_equal(found["rrwp_index"], [column, row])
    np.testing.assert_allclose(found["rrwp_val"], wanted[row, column], atol=1e-14)


def test_relative_walks_begin_one_step_before_returns():
    g = random_graph(30, 4)
    np.testing.assert_array_equal(rrwp(g, 1)["rrwp"], np.ones((30, 1)))
    np.testing.assert_allclose(rrwp(g, 6)["rrwp"][:, 1:], random_walk(g, 5)["random_walk"], atol=1e-15)


def test_resistances_against_networkx_and_closed_forms():
    weights = np.random.default_rng(3).random(250) + 0.1
    g = random_graph(50, 10, seed=3, weights=weights)
    made = nx.Graph()
    made.add_nodes_from(range(50))
    for (a, b), weight in zip(g.edges.T.tolist(), weights, strict=True):
        if a != b:
            made.add_edge(a, b, weight=weight + (made[a][b]["weight"] if made.has_edge(a, b) else 0))
    assert nx.is_connected(made)
    theirs = nx.resistance_distance(made, weight="weight", invert_weight=False)
    wanted = [[theirs[a][b] for b in range(50)] for a in range(50)]
    np.testing.assert_allclose(resistance_distance(g)["resistance"], wanted, atol=1e-12)

    path = graph(6, [(i, i + 1) for i in range(5)])
    apart = np.abs(np.arange(6)[:, None] - np.arange(6))
    np.testing.assert_allclose(resistance_distance(path)["resistance"], apart, atol=1e-13)
    np.testing.assert_allclose(resistance_distance(path, commute=True)["resistance"], 10 * apart, atol=1e-12)
    complete = graph(7, [(i, j) for i in range(7) for j in range(i)])
    np.testing.assert_allclose(resistance_distance(complete)["resistance"][0, 1:], 2 / 7)


@pytest.mark.parametrize("unit", [1e-300, 1e-17, 1e-12, 1e12, 1e17, 1e300])
def test_resistances_do_not_depend_on_the_unit(unit):
    path = graph(4, [(0, 1), (1, 2), (2, 3)], np.full(3, unit))
    apart = np.abs(np.arange(4)[:, None] - np.arange(4))
    np.testing.assert_allclose(resistance_distance(path)["resistance"] * unit, apart, atol=1e-13)


@pytest.mark.parametrize("weights", [[1e300, 1.0], [1.0, 1e-30], [1e8, 1e-12]])
def test_resistances_beside_far_larger_ones_keep_their_digits(weights):
    a, b = 1 / np.array(weights)
    np.testing.assert_allclose(
        resistance_distance(graph(3, [(0, 1), (1, 2)], weights))["resistance"],
        [[0, a, a + b], [a, 0, b], [a + b, b, 0]],
        rtol=1e-9,
    )


def test_resistances_of_a_tree_with_heavy_edges_are_sums():
    n = 60
    random = np.random.default_rng(0)
    edges = [(int(random.integers(0, node)), node) for node in range(1, n)]
    weights = 10.0 ** random.uniform(0, 10, n - 1)
    tree = nx.Graph()
    tree.add_weighted_edges_from([(a, b, 1 / w) for (a, b), w in zip(edges, weights, strict=True)])
    wanted = dict(nx.all_pairs_dijkstra_path_length(tree))
    np.testing.assert_allclose(
        resistance_distance(graph(n, edges, weights))["resistance"],
        [[wanted[a][b] for b in range(n)] for a in range(n)],
        rtol=1e-8,
    )


@pytest.mark.parametrize("encode", [resistance_distance, electrostatic])
def test_weights_too_far_apart_are_refused(encode):
    with pytest.raises(PeError, match="too far for resistances in float64"):
        encode(graph(3, [(0, 1), (1, 2)], [1e-300, 1e300]))


def test_there_is_no_way_for_current_between_components():
    two = resistance_distance(graph(5, [(0, 1), (2, 3), (3, 4)], [1.0, 2.0, 0.0]))["resistance"]
    wanted = np.full((5, 5), np.inf)
    np.fill_diagonal(wanted, 0)
    wanted[0, 1] = wanted[1, 0] = 1
    wanted[2, 3] = wanted[3, 2] = 0.5
    np.testing.assert_allclose(two, wanted)


@pytest.mark.parametrize("norm", ["none", "sym"])
def test_heat_against_the_exponential_of_the_matrix(norm):
    g = random_graph(40, 3, seed=2, weights=np.random.default_rng(1).random(60))
    laplacian = nx.laplacian_matrix if norm == "none" else nx.normalized_laplacian_matrix
    made = nx.from_numpy_array(g.adjacency.without_loops().dense())
    matrix = laplacian(made).toarray()
    found = heat_kernel(g, (0.5, 3.0), norm=norm, drop="none")["heat_kernel"]
    wanted = np.stack([np.diag(expm(-t * matrix)) for t in (0.5, 3.0)], axis=1)
    np.testing.assert_allclose(found, wanted, atol=1e-13)


def test_what_never_decays_is_left_out():
    pair = graph(3, [(0, 1)])
    found = heat_kernel(pair, (0.25, 1.0), space_dim=2)["heat_kernel"]
    wanted = 0.5 * np.exp([-0.5, -2.0]) * [0.25, 1]
    np.testing.assert_allclose(found, [wanted, wanted, [0, 0]], atol=1e-15)
    with pytest.raises(PeError, match="times 0"):
        heat_kernel(pair, (0.0,))
