"""Presets against the libraries that they are named after: PyTorch Geometric itself, the others by their published formulas."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from pe_cli.encodings.graph.distances import shortest_path
from pe_cli.encodings.graph.spectral import laplacian, magnetic
from pe_cli.encodings.graph.walks import random_walk, rrwp
from pe_cli.errors import PeError
from pe_cli.structures import Graph

COUNT = 200


def graphs(least=8, isolated=True):
    """Random graphs of 8 to 24 nodes, every edge in both directions, some with nodes without edges."""
    random = np.random.default_rng(0)
    for seed in range(COUNT):
        n = int(random.integers(least, 25))
        made = nx.gnm_random_graph(n, int(1.3 * n), seed=seed)
        if not isolated:
            made = nx.convert_node_labels_to_integers(
                made.subgraph(max(nx.connected_components(made), key=len))
            )
        edges = np.array(made.edges, dtype=np.int64).reshape(-1, 2).T
        yield Graph(made.number_of_nodes(), np.concatenate([edges, edges[::-1]], axis=1))


def projectors(vectors, values):
    """The sum of v v' over each group of equal eigenvalues: equal where bases differ."""
    values = np.nan_to_num(values, nan=9.0)
    groups = np.cumsum(np.diff(values, prepend=values[0]) > 1e-5)
    return [vectors[:, groups == g] @ vectors[:, groups == g].T for g in range(groups[-1] + 1)][:-1]


def normalised(graph, isolated=1.0):
    """I - D^-½ A D^-½ with degrees of at least 1, as DGL, SAN and PyTorch Geometric have it."""
    a = graph.adjacency.dense()
    d = np.maximum(a.sum(axis=1), 1) ** -0.5
    return np.eye(len(a)) - d[:, None] * a * d


@pytest.mark.slow
@pytest.mark.interop
def test_pyg():
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    from torch_geometric.data import Data
    from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE

    for graph in graphs(isolated=False):
        n = graph.num_nodes
        data = Data(edge_index=torch.from_numpy(graph.edges), num_nodes=n)
        walk = AddRandomWalkPE(7, "walk")(data.clone()).walk.numpy()
        np.testing.assert_allclose(random_walk(graph, 7, preset="pyg")["random_walk"], walk, atol=2e-6)
        k = min(5, n - 1)
        theirs = AddLaplacianEigenvectorPE(k, "lap", is_undirected=True)(data).lap.numpy().astype(float)
        ours = laplacian(graph, k, preset="pyg")
        for a, b in zip(
            projectors(ours["eigenvectors"], ours["eigenvalues"]),
            projectors(theirs, ours["eigenvalues"]),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, atol=2e-5)
    with pytest.raises(PeError, match="pad zero fills up"):
        laplacian(Graph(3, [[0, 1], [1, 2]]), 3, preset="pyg")


@pytest.mark.slow
def test_dgl():
    # dgl.transforms.functional.lap_pe: eigenvectors of I - D^-½ A D^-½ by eigenvalue, the first left out, zeros behind
    for graph in graphs():
        values, vectors = np.linalg.eigh(normalised(graph))
        k = 9
        table = laplacian(graph, k, preset="dgl", multiplet="warn")
        there = min(k, graph.num_nodes - 1)
        np.testing.assert_allclose(table["eigenvalues"][:there], values[1 : there + 1], atol=1e-12)
        assert not table["eigenvectors"][:, there:].any()
        whole = laplacian(graph, graph.num_nodes, preset="dgl")
        zeros = int(np.count_nonzero(values < 1e-9))
        for a, b in zip(
            projectors(whole["eigenvectors"][:, zeros - 1 : graph.num_nodes - 1], values[zeros:]),
            projectors(vectors[:, zeros:], values[zeros:]),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, atol=1e-10)


@pytest.mark.parametrize("preset", ["gps", "san"])
def test_gps_and_san(preset):
    # compute_posenc_stats and lap_positional_encoding: the first k eigenvectors, those of 0 too, NaN behind;
    # SAN then makes the row of each node of length 1
    for graph in graphs(least=6, isolated=False):
        values, vectors = np.linalg.eigh(normalised(graph))
        n = graph.num_nodes
        table = laplacian(graph, 8, preset=preset)
        there = min(n, 8)
        np.testing.assert_allclose(table["eigenvalues"][:there], values[:there], atol=1e-12)
        assert np.isnan(table["eigenvectors"][:, there:]).all()
        assert np.isnan(table["eigenvalues"][there:]).all()
        simple = np.diff(values, append=9.0, prepend=-1.0).min() > 0 and np.diff(values).min() > 1e-6
        if simple:
            wanted = vectors[:, :there]
            if preset == "san":
                wanted = wanted / np.maximum(np.linalg.norm(wanted, axis=1, keepdims=True), 1e-12)
            ours = table["eigenvectors"][:, :there]
            np.testing.assert_allclose(ours * np.sign((ours * wanted).sum(axis=0)), wanted, atol=1e-9)


def test_grit():
    for graph in graphs():
        a = graph.adjacency.dense()
        d = a.sum(axis=1, keepdims=True)
        walk = np.divide(a, d, out=np.zeros_like(a), where=d > 0)
        wanted = np.stack([np.linalg.matrix_power(walk, t) for t in range(5)], axis=-1)
        np.testing.assert_allclose(rrwp(graph, 5, form="dense", preset="grit")["rrwp"], wanted, atol=1e-14)


def test_graphormer():
    # algos.pyx floyd_warshall (unreachable 510) and collator.py, which adds 1 to distances and degrees
    for graph in graphs():
        a = graph.adjacency.dense() > 0
        distance = np.where(a, 1, 510)
        np.fill_diagonal(distance, 0)
        for k in range(len(a)):
            distance = np.minimum(distance, distance[:, k, None] + distance[k])
        distance = np.minimum(distance, 510)
        table = shortest_path(graph, preset="graphormer")
        assert np.array_equal(table["distance"], distance + 1)
        assert np.array_equal(table["in_degree"], a.sum(axis=0) + 1)
        front = shortest_path(graph, preset="graphormer", virtual_node=512, clip=4)["distance"]
        assert (front[0] == 512).all()
        assert (front[:, 0] == 512).all()
        assert np.array_equal(front[1:, 1:], np.where(distance == 510, 511, np.minimum(distance, 4) + 1))
    table = shortest_path(graph, preset="dgl", clip=3)["distance"]
    assert np.array_equal(table, np.where(distance == 510, 0, np.minimum(distance, 3) + 1))


def test_paths_of_graphormer():
    # algos.pyx: floyd_warshall keeps the node that was put between two others, get_all_edges and gen_edge_input follow it
    for graph in list(graphs())[:40]:
        a, n = graph.adjacency.dense() > 0, graph.num_nodes
        distance, between = np.where(a, 1, 510), np.full((n, n), -1)
        np.fill_diagonal(distance, 0)
        for k in range(n):
            better = distance > distance[:, k, None] + distance[k]
            between[better] = k
            distance = np.minimum(distance, distance[:, k, None] + distance[k])

        def way(i, j):
            k = between[i, j]  # noqa: B023
            return [] if k < 0 else [*way(i, k), k, *way(k, j)]

        arcs = list(map(tuple, graph.edges.T.tolist()))
        wanted = np.full((n, n, 3), -1)
        for i, j in np.argwhere((distance < 510) & (distance > 0)).tolist():
            taken = [arcs.index((int(u), int(v))) for u, v in pairwise([i, *way(i, j), j])][:3]
            wanted[i, j, : len(taken)] = taken
        assert np.array_equal(shortest_path(graph, preset="graphormer", paths=3)["path_edges"], wanted)
    near = shortest_path(graph, paths=3, limit=1)["path_edges"]
    assert (near[:, :, 1:] == -1).all()
    assert np.array_equal(near[..., 0], np.where(distance <= 1, wanted[..., 0], -1))


def test_paths_in_several_graphs_and_in_one_direction():
    several = Graph(7, [[4, 1, 0, 4], [5, 2, 1, 3]], ptr=[0, 3, 7])
    table = shortest_path(several, paths=2)
    assert table["path_edges"].shape == (25, 2)
    for n, number, edges in ((3, 0, [[1, 0], [2, 1]]), (4, 1, [[1, 1], [2, 0]])):
        alone = shortest_path(Graph(n, edges), paths=2)["path_edges"]
        begin, end = table["pair_ptr"][number : number + 2]
        assert np.array_equal(table["path_edges"][begin:end], alone.reshape(-1, 2))
    arcs = shortest_path(Graph(3, [[0, 1], [1, 2]], directed=True), paths=2, virtual_node=9)["path_edges"]
    assert arcs[1:, 1:].tolist() == [[[-1, -1], [0, -1], [0, 1]], [[-1, -1]] * 2 + [[1, -1]], [[-1, -1]] * 3]
    assert (arcs[0] == -1).all()
    for options, message in (({"paths": 0}, "at least 1"), ({"paths": 2, "weighted": True}, "fewest edges")):
        with pytest.raises(PeError, match=message):
            shortest_path(several, **options)


def test_a_preset_and_another_option():
    graph = Graph(3, [[0, 1], [1, 2]])
    with pytest.raises(PeError, match="preset gps means norm sym, and norm rw was given"):
        laplacian(graph, 1, preset="gps", norm="rw")
    with pytest.raises(PeError, match="no preset 'pgy'; did you mean 'pyg'"):
        laplacian(graph, 1, preset="pgy")
    with pytest.raises(PeError, match="says offset and unreachable"):
        shortest_path(graph, preset="graphormer", offset=2)
    with pytest.raises(PeError, match="preset dgl counts edges: leave out weighted"):
        shortest_path(graph, preset="dgl", weighted=True)


def test_several_potentials():
    random = np.random.default_rng(1)
    graph = Graph(12, random.integers(0, 12, (2, 30)), directed=True)
    table = magnetic(graph, 4, q=(0.1, 0.25))
    assert table["eigenvectors"].shape == (12, 2, 4)
    for place, q in enumerate((0.1, 0.25)):
        alone = magnetic(graph, 4, q=q)
        assert np.array_equal(table["eigenvectors"][:, place], alone["eigenvectors"])
        assert np.array_equal(table["eigenvalues"][place], alone["eigenvalues"])
    several = magnetic(Graph(4, [[0, 2], [1, 3]], ptr=[0, 2, 4]), 2, q=(0.1, 0.2, 0.3))
    assert several["eigenvalues"].shape == (2, 3, 2)


def test_walks_at_some_times_and_with_restarts():
    graph = Graph(9, np.random.default_rng(0).integers(0, 9, (2, 20)))
    table = random_walk(graph, times=(2, 5), ppr=(0.15,))["random_walk"]
    np.testing.assert_array_equal(table[:, :2], random_walk(graph, 5)["random_walk"][:, [1, 4]])
    a = graph.adjacency.dense()
    walk = a / np.maximum(a.sum(axis=1, keepdims=True), 1e-300)
    rank = 0.15 * np.linalg.inv(np.eye(9) - 0.85 * walk)
    np.testing.assert_allclose(table[:, 2], np.diag(rank), atol=1e-14)
    np.testing.assert_allclose(rrwp(graph, 2, ppr=(0.15,), form="dense")["rrwp"][..., 2], rank, atol=1e-14)
    for options, message in [
        ({}, "how many steps"),
        ({"steps": 2, "times": (1,)}, "give one of them"),
        ({"times": (0,)}, "from 1 on"),
        ({"ppr": (1.0,)}, "between 0 and 1"),
    ]:
        with pytest.raises(PeError, match=message):
            random_walk(graph, **options)
