"""Degrees, cycles, DAGs, potentials, singular vectors and projectors against networkx, brute force and dense numpy."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from pe_cli.encodings.graph.structure import cycles, dag, degree, eigenspaces, electrostatic, svd
from pe_cli.errors import PeError
from pe_cli.structures import Graph


def graph(made, **options):
    return Graph(made.number_of_nodes(), np.array(made.edges, dtype=np.int64).reshape(-1, 2).T, **options)


@pytest.mark.parametrize("seed", range(4))
def test_cycles_against_all_simple_cycles(seed):
    made = nx.gnp_random_graph(9, 0.5, seed=seed)
    wanted = np.zeros((9, 3), dtype=int)
    for cycle in nx.simple_cycles(made, length_bound=5):
        wanted[cycle, len(cycle) - 3] += 1
    assert cycles(graph(made))["cycles"].tolist() == wanted.tolist()
    assert cycles(graph(made), longest=4)["cycles"].tolist() == wanted[:, :2].tolist()
    with pytest.raises(PeError, match="longest 6"):
        cycles(graph(made), longest=6)


def test_degrees():
    made = nx.gnp_random_graph(20, 0.2, seed=1, directed=True)
    table = degree(graph(made, directed=True), offset=1)
    assert table["in_degree"].tolist() == [d + 1 for _, d in made.in_degree]
    assert table["out_degree"].tolist() == [d + 1 for _, d in made.out_degree]
    assert degree(graph(made, directed=True), clip=2)["in_degree"].max() == 2


@pytest.mark.parametrize("seed", range(3))
def test_depth_and_reachability(seed):
    made = nx.DiGraph(
        (a, b) for a, b in nx.gnp_random_graph(30, 0.1, seed=seed, directed=True).edges if a < b
    )
    made.add_nodes_from(range(30))
    made = nx.relabel_nodes(made, dict(enumerate(np.random.default_rng(seed).permutation(30).tolist())))
    table = dag(graph(made), reachable=True)
    for level, nodes in enumerate(nx.topological_generations(made)):
        assert (table["depth"][nodes] == level).all()
    wanted = np.eye(30, dtype=int)
    for a in range(30):
        wanted[a, list(nx.descendants(made, a))] = 1
    assert table["reachable"].tolist() == wanted.tolist()
    with pytest.raises(PeError, match="node 0 lies on or behind a cycle"):
        dag([[0, 1], [1, 0]])


@pytest.mark.parametrize("pieces", [1, 2])
def test_potentials_by_their_definition(pieces):
    torch = pytest.importorskip("torch")
    made = nx.disjoint_union_all([nx.gnp_random_graph(7, 0.6, seed=s) for s in range(pieces)])
    matrix = torch.tensor(nx.laplacian_matrix(made).toarray().astype(float))
    potential = torch.pinverse(matrix)
    potential = potential - potential.diag()
    share = (torch.diag(matrix) ** -1)[:, None] * (torch.diag(torch.diag(matrix)) - matrix)
    wanted = torch.stack(
        [
            potential.min(dim=0)[0], potential.max(dim=0)[0], potential.mean(dim=0), potential.std(dim=0),
            potential.min(dim=1)[0], potential.max(dim=0)[0], potential.mean(dim=1), potential.std(dim=1),
            (share * potential).sum(dim=0), (share * potential).sum(dim=1),
        ],
        dim=1,
    ).numpy()  # fmt: skip
    np.testing.assert_allclose(electrostatic(graph(made))["electrostatic"], wanted, atol=1e-12)
    wanted[:, 5] = potential.max(dim=1)[0].numpy()
    np.testing.assert_allclose(electrostatic(graph(made))["electrostatic"], wanted, atol=1e-12)
    assert np.isfinite(electrostatic(Graph(1, [[], []]))["electrostatic"]).all()


def test_singular_vectors_give_the_matrix_again():
    made = nx.gnp_random_graph(12, 0.3, seed=2, directed=True)
    table = svd(graph(made, directed=True), 12)
    left, right = table["svd"][:, :12], table["svd"][:, 12:]
    np.testing.assert_allclose(left @ right.T, nx.to_numpy_array(made), atol=1e-12)
    assert (left.max(axis=0) >= np.abs(left).max(axis=0) * (1 - 1e-6)).all()
    assert svd(graph(nx.path_graph(2)), 4)["svd"].shape == (2, 8)


@pytest.mark.parametrize(
    "made", [nx.cycle_graph(9), nx.star_graph(6), nx.disjoint_union(nx.path_graph(4), nx.path_graph(4))]
)
def test_projectors(made):
    table = eigenspaces(graph(made), 3, form="pairs")
    laplacian = nx.normalized_laplacian_matrix(made, nodelist=range(len(made))).toarray()
    for place in range(int(np.count_nonzero(table["dimensions"]))):
        projector = table["projectors"][:, :, place]
        np.testing.assert_allclose(projector @ projector, projector, atol=1e-12)
        np.testing.assert_allclose(laplacian @ projector, table["eigenvalues"][place] * projector, atol=1e-12)
        assert round(np.trace(projector)) == table["dimensions"][place]
    diagonals = eigenspaces(graph(made), 3)["projectors"]
    np.testing.assert_allclose(diagonals, np.diagonal(table["projectors"]).T, atol=1e-15)
    renamed = nx.relabel_nodes(
        made, dict(enumerate(np.random.default_rng(0).permutation(len(made)).tolist()))
    )
    order = np.array([list(renamed.nodes)[i] for i in range(len(made))])
    again = eigenspaces(graph(renamed), 3)["projectors"]
    np.testing.assert_allclose(again[order], diagonals, atol=1e-12)


def test_several_graphs_at_once():
    parts = [nx.gnp_random_graph(n, 0.5, seed=n) for n in (4, 7, 4)]
    union = graph(nx.disjoint_union_all(parts), ptr=[0, 4, 11, 15])
    for encode in (cycles, degree, electrostatic, lambda g: svd(g, 2), lambda g: eigenspaces(g, 2)):
        table = encode(union)
        for number in range(3):
            for key, array in encode(union.part(number)).items():
                rows = (
                    table[key][number]
                    if len(table[key]) == 3
                    else table[key][union.ptr[number] : union.ptr[number + 1]]
                )
                assert np.array_equal(rows, array, equal_nan=array.dtype.kind == "f")


def rotated(columns, values, chance):
    """The columns (n, m), those of equal values in another basis, with the noise that another processor has."""
    turned = columns.copy()
    for value in np.unique(np.round(values, 9)):
        same = np.flatnonzero(np.abs(values - value) < 1e-8)
        turned[:, same] = columns[:, same] @ np.linalg.qr(chance.normal(size=(len(same), len(same))))[0]
    return turned + chance.normal(size=turned.shape) * 1e-16


@pytest.mark.parametrize("made", ["petersen", "grid", "star", "complete", "arcs"])
def test_the_same_bytes_from_every_basis_that_a_solver_may_give(made, monkeypatch):
    graph = {
        "petersen": nx.petersen_graph(),
        "grid": nx.convert_node_labels_to_integers(nx.grid_2d_graph(4, 4)),
        "star": nx.star_graph(6),
        "complete": nx.complete_graph(5),
        "arcs": nx.gnp_random_graph(15, 0.2, seed=3, directed=True),
    }[made]
    edges = np.array(graph.edges).T
    decompose, solve, chance = np.linalg.svd, np.linalg.eigh, np.random.default_rng(0)

    def other_svd(matrices):
        left, values, right = decompose(matrices)
        return np.stack([rotated(*one, chance) for one in zip(left, values, strict=True)]), values, right

    def other_eigh(matrices):
        values, vectors = solve(matrices)
        return values, np.stack([rotated(*one, chance) for one in zip(vectors, values, strict=True)])

    def tables():
        return [
            svd(edges, 4)["svd"],
            *eigenspaces(edges, 3).values(),
            *eigenspaces(edges, 3, form="pairs").values(),
        ]

    before = [table.astype(np.float32).tobytes() for table in tables()]
    monkeypatch.setattr(np.linalg, "svd", other_svd)
    monkeypatch.setattr(np.linalg, "eigh", other_eigh)
    for _ in range(3):
        assert [table.astype(np.float32).tobytes() for table in tables()] == before
