"""Signs and bases that do not depend on the numbering of the nodes, against the definitions of MAP and OAP."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from pe_cli.encodings.graph.hermitian import axis_basis
from pe_cli.encodings.graph.spectral import laplacian
from pe_cli.structures import Graph

RULES = ["map", "oap"]


def by_definition(space, rule):
    """(n, m) the basis of Ma et al. of the columns `space` (n, m), one projection after the other; or None."""
    n, m = space.shape
    projector = space @ space.T
    if rule == "map" or m == 1:
        keys = np.array([np.linalg.norm(projector[i]) for i in range(n)])
    else:
        keys = np.array([projector[i, i] + sum(p**3 for p in projector[i]) for i in range(n)])
    keys = keys.round(9)
    summaries = [(keys == key).astype(float) + 10 for key in sorted(set(keys), reverse=m > 1)]
    if rule == "map" and m > 1:
        summaries = summaries[:m]
    columns = []
    for summary in summaries:
        column = projector @ summary
        for other in columns:
            column = column - other * (other @ column)
        if np.linalg.norm(column) > 1e-8 * np.linalg.norm(summary):
            columns.append(column / np.linalg.norm(column))
        elif rule == "map" and m > 1:
            return None
        if len(columns) == m:
            return np.stack(columns, axis=1)
    return None


def turned(space, rng):
    m = space.shape[1]
    return space @ np.linalg.qr(rng.standard_normal((m, m)))[0]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_spaces_against_the_definition(rule, m):
    rng = np.random.default_rng(m)
    spaces = [np.linalg.qr(rng.standard_normal((12, m)))[0] for _ in range(50)]
    got, there = axis_basis(np.stack([space.T for space in spaces]), rule)
    again, _ = axis_basis(np.stack([turned(space, rng).T for space in spaces]), rule)
    assert there.all()
    np.testing.assert_allclose(again, got, atol=1e-9)
    for space, basis in zip(spaces, got, strict=True):
        np.testing.assert_allclose(basis.T, by_definition(space, rule), atol=1e-9)


def random_graphs():
    """200 graphs of all sorts, most with symmetries: (n, edges, weights)."""
    rng = np.random.default_rng(7)
    for seed in range(200):
        n = int(rng.integers(3, 18))
        tree = nx.random_labeled_tree(n, seed=seed)
        made = [
            nx.gnp_random_graph(n, 0.3, seed=seed),
            tree,
            nx.cycle_graph(n),
            nx.star_graph(n),
            nx.disjoint_union(nx.gnp_random_graph(n, 0.4, seed=seed), nx.path_graph(4)),
            nx.disjoint_union(tree, tree),
            nx.grid_2d_graph(3, 3 + seed % 3),
            nx.empty_graph(n),
        ][seed % 8]
        made = nx.convert_node_labels_to_integers(made)
        edges = np.array(list(made.edges), dtype=np.int64).reshape(-1, 2).T
        weights = rng.integers(1, 4, edges.shape[1]).astype(float) if seed % 3 == 0 else None
        yield made.number_of_nodes(), edges, weights, rng


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("norm", "drop"), [("sym", "none"), ("none", "zeros"), ("rw", "first")])
def test_numbering_the_nodes_anew_permutes_the_rows(rule, norm, drop):
    seen = set()
    for n, edges, weights, rng in random_graphs():
        order = rng.permutation(n)
        options = {"norm": norm, "drop": drop, "sign": rule}
        one = laplacian(Graph(n, edges, weights), 6, **options)
        other = laplacian(Graph(n, order[edges], weights), 6, **options)
        assert one["canonical"].tolist() == other["canonical"].tolist()
        own = one["canonical"] > 0
        seen |= set(own[: one.facts["columns_found"]].tolist())
        assert one.facts["columns_not_canonical"] == one.facts["columns_found"] - own.sum()
        assert any("are not canonical" in text for text in one.warnings) == bool(
            one.facts["columns_not_canonical"]
        )
        np.testing.assert_allclose(
            other["eigenvectors"][order][:, own], one["eigenvectors"][:, own], atol=1e-9
        )
        np.testing.assert_allclose(
            one["eigenvalues"],
            laplacian(Graph(n, edges, weights), 6, norm=norm, drop=drop)["eigenvalues"],
            atol=1e-12,
        )
    assert seen == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_graphs_against_the_definition(rule):
    for n, edges, weights, _ in random_graphs():
        graph = Graph(n, edges, weights)
        matrix = graph.adjacency.dense()
        matrix = np.diag(matrix.sum(axis=1)) - matrix
        values, vectors = np.linalg.eigh(matrix)
        table = laplacian(graph, n, norm="none", drop="none", sign=rule)
        ends = np.flatnonzero(np.diff(values) > 1e-9) + 1
        for space in np.split(np.arange(n), ends):
            wanted = by_definition(vectors[:, space], rule)
            assert (table["canonical"][space] == (wanted is not None)).all()
            if wanted is not None:
                np.testing.assert_allclose(table["eigenvectors"][:, space], wanted, atol=1e-8)


def with_a_tied_space(n, m, rng):
    """A weighted graph whose smallest eigenvalue above 0 is n, of multiplicity m; and the space of it."""
    basis = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, n - 1))]))[0]
    rest = basis[:, 1 + m :]
    matrix = n * np.eye(n) - 1 + rest @ np.diag(0.1 + rng.random(n - 1 - m)) @ rest.T
    row, column = np.triu_indices(n, 1)
    return np.stack([row, column]), -matrix[row, column], basis[:, 1 : 1 + m]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("m", [2, 3, 4])
def test_a_whole_eigenspace_has_a_basis_also_where_k_cuts_it(rule, m):
    rng = np.random.default_rng(m)
    edges, weights, space = with_a_tied_space(14, m, rng)
    order = rng.permutation(14)
    wanted = by_definition(space, rule)
    for k in (m - 1, m):
        one = laplacian(Graph(14, edges, weights), k, norm="none", sign=rule)
        other = laplacian(Graph(14, order[edges], weights), k, norm="none", sign=rule)
        assert one["canonical"].all()
        np.testing.assert_allclose(one["eigenvectors"], wanted[:, :k], atol=1e-8)
        np.testing.assert_allclose(other["eigenvectors"][order], one["eigenvectors"], atol=1e-8)


def test_oap_has_a_basis_where_the_lengths_of_map_are_too_few():
    angles = np.radians([10, 70, 130, 45, 135])  # a tight frame of the plane, whose vectors have one length
    space = np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.sqrt(2 / 5)
    np.testing.assert_allclose(space.T @ space, np.eye(2), atol=1e-12)
    assert by_definition(space, "map") is None
    assert not axis_basis(space.T[None], "map")[1][0]
    order = np.random.default_rng(0).permutation(5)
    for rows in (space, turned(space, np.random.default_rng(1))):
        basis, there = axis_basis(rows[order].T[None], "oap")
        assert there[0]
        np.testing.assert_allclose(basis[0].T, by_definition(space, "oap")[order], atol=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_what_has_no_canonical_form_is_said(rule):
    path = Graph(4, [[0, 1, 2], [1, 2, 3]])  # its columns are even or odd under the reflection
    table = laplacian(path, 3, sign=rule)
    assert table["canonical"].tolist() == [0, 1, 0]
    assert "columns 0, 2 (where the tensor canonical is 0) are not canonical" in table.warnings[0]
    np.testing.assert_allclose(
        table["eigenvectors"][:, [0, 2]], laplacian(path, 3)["eigenvectors"][:, [0, 2]]
    )
    both = laplacian(Graph(8, [[0, 1, 2, 4, 5, 6], [1, 2, 3, 5, 6, 7]]), 4, sign=rule)
    assert both["canonical"].tolist() == [0, 0, 0, 0]  # two copies cannot be told apart
    each = laplacian(Graph(8, [[0, 1, 2, 4, 5, 6], [1, 2, 3, 5, 6, 7]]), 3, sign=rule, components="each")
    assert each["canonical"].tolist() == [[0, 1, 0], [0, 1, 0]]
    assert "some columns (where the tensor canonical is 0)" in each.warnings[-1]


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_graphs_of_a_dataset_are_as_alone(rule):
    graphs = [(n, edges) for n, edges, _, _ in random_graphs()]
    starts = np.concatenate([[0], np.cumsum([n for n, _ in graphs])])
    edges = np.concatenate([e + start for (_, e), start in zip(graphs, starts[:-1], strict=True)], axis=1)
    together = laplacian(
        Graph(starts[-1], edges, ptr=np.append(starts, starts[-1])), 5, drop="none", sign=rule
    )
    assert together["canonical"].shape == (201, 5)
    missing = 0
    for number, (n, own) in enumerate(graphs):
        alone = laplacian(Graph(n, own), 5, drop="none", sign=rule)
        rows = slice(starts[number], starts[number + 1])
        assert np.array_equal(together["eigenvectors"][rows], alone["eigenvectors"])
        assert np.array_equal(together["canonical"][number], alone["canonical"])
        missing += alone.facts["columns_not_canonical"]
    assert together.facts["columns_not_canonical"] == missing > 0


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["lanczos", "shift-invert"])
def test_large_graphs(solver):
    pytest.importorskip("scipy")
    made = nx.convert_node_labels_to_integers(nx.random_labeled_tree(2500, seed=3))
    edges = np.array(list(made.edges)).T
    order = np.random.default_rng(0).permutation(2500)
    one = laplacian(Graph(2500, edges), 4, sign="oap", solver=solver)
    other = laplacian(Graph(2500, order[edges]), 4, sign="oap", solver=solver)
    assert one["canonical"].all()
    np.testing.assert_allclose(other["eigenvectors"][order], one["eigenvectors"], atol=1e-7)
