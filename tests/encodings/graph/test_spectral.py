"""Graph encodings against closed forms, dense numpy, networkx and PyG."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal, localcontext

import networkx as nx
import numpy as np
import pytest

from pe_cli.encodings.graph import hermitian, solvers
from pe_cli.encodings.graph.distances import shortest_path
from pe_cli.encodings.graph.spectral import laplacian, magnetic
from pe_cli.encodings.graph.walks import random_walk
from pe_cli.errors import PeError
from pe_cli.process import watched
from pe_cli.structures import Graph


def graph(n, pairs, weights=None, **options):
    return Graph(n, np.array(pairs, dtype=np.int64).reshape(-1, 2).T, weights, **options)


def from_networkx(made):
    made = nx.convert_node_labels_to_integers(made)
    return graph(made.number_of_nodes(), list(made.edges))


def copies(made, count):
    return from_networkx(nx.disjoint_union_all([made] * count))


def random_graph(n, degree, seed=0, **options):
    return Graph(n, np.random.default_rng(seed).integers(0, n, (2, n * degree // 2)), **options)


def cosines(n, count, period):
    return 1 - np.cos(period * np.pi * np.arange(1, count + 1) / n)


N = 40
CLOSED = {  # graph, norm, all eigenvalues beyond the zeros
    "path": (nx.path_graph(N), "none", 2 * cosines(N, N - 1, 1)),
    "path normalised": (nx.path_graph(N), "sym", cosines(N - 1, N - 1, 1)),
    "cycle": (nx.cycle_graph(N), "none", 2 * cosines(N, N - 1, 2)),
    "cycle normalised": (nx.cycle_graph(N), "rw", cosines(N, N - 1, 2)),
    "star": (nx.star_graph(N - 1), "none", np.array([1.0] * (N - 2) + [N])),
    "star normalised": (nx.star_graph(N - 1), "sym", np.array([1.0] * (N - 2) + [2])),
    "complete": (nx.complete_graph(N), "none", np.full(N - 1, float(N))),
    "complete normalised": (nx.complete_graph(N), "sym", np.full(N - 1, N / (N - 1))),
    "bipartite": (nx.complete_bipartite_graph(3, 5), "none", np.array([3.0] * 4 + [5.0] * 2 + [8.0])),
    "hypercube": (nx.hypercube_graph(5), "sym", np.repeat(np.arange(1, 6) * 2 / 5, [5, 10, 10, 5, 1])),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_form_spectra(name):
    made, norm, values = CLOSED[name]
    table = laplacian(from_networkx(made), len(values), norm=norm)
    np.testing.assert_allclose(table["eigenvalues"], np.sort(values), atol=1e-13 * max(values))


@pytest.mark.parametrize("norm", ["sym", "rw", "none"])
def test_eigenvectors_are_those_of_the_matrix_that_is_named(norm):
    g = random_graph(60, 6, weights=np.random.default_rng(1).random(180))
    a = g.adjacency.without_loops().dense()
    d = a.sum(axis=1)
    matrix = {
        "none": np.diag(d) - a,
        "sym": np.eye(60) - a / np.sqrt(np.outer(d, d)),
        "rw": np.eye(60) - a / d[:, None],
    }[norm]
    table = laplacian(g, 59, norm=norm)
    vectors, values = table["eigenvectors"], table["eigenvalues"]
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=0), 1)
    np.testing.assert_allclose(values, np.sort(np.linalg.eigvals(matrix).real)[1:], atol=1e-12)
    largest = np.abs(vectors).max(axis=0)
    assert (vectors.max(axis=0) >= largest * (1 - 1e-6)).all()


HARD = {  # more nodes than a dense solver takes, and many multiple eigenvalues
    "hypercube": (nx.hypercube_graph(11), np.repeat([2 / 11, 4 / 11], [11, 1])),
    "torus": (
        nx.grid_2d_graph(50, 50, periodic=True),
        np.sort(np.add.outer(cosines(50, 50, 2), cosines(50, 50, 2)), axis=None)[1:13] / 2,
    ),
    "path": (nx.path_graph(2500), cosines(2499, 12, 1)),
    "star": (nx.star_graph(3000), np.ones(12)),
}


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["lanczos", "shift-invert", "cg"])
@pytest.mark.parametrize("name", HARD)
def test_sparse_solvers_miss_no_copy_of_a_multiple_eigenvalue(name, solver):
    made, values = HARD[name]
    table = laplacian(from_networkx(made), 12, solver=solver)
    np.testing.assert_allclose(table["eigenvalues"], values, atol=1e-11)
    np.testing.assert_allclose(table["eigenvectors"].T @ table["eigenvectors"], np.eye(12), atol=1e-11)
    assert table.facts["residual"] < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [lambda: nx.grid_2d_graph(30, 31), lambda: nx.random_regular_graph(6, 900, 1)]
)
def test_solvers_agree_to_the_sign(make):
    g = from_networkx(make())
    wanted = laplacian(g, 8, solver="dense")["eigenvectors"]
    for solver in ("lanczos", "shift-invert", "cg"):
        np.testing.assert_allclose(laplacian(g, 8, solver=solver)["eigenvectors"], wanted, atol=1e-8)


def test_the_solver_suits_the_graph():
    suited = [
        (nx.grid_2d_graph(50, 50), "shift-invert"),
        (nx.random_regular_graph(6, 2500, 0), "lanczos"),
        (nx.barabasi_albert_graph(2500, 4, seed=1), "cg"),
    ]
    for made, solver in suited:
        table = laplacian(from_networkx(made), 4, norm="none")
        assert table.facts["solver"] == solver
        assert table.facts["residual"] < 1e-10


def test_numpy_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.sparse.linalg", None)
    monkeypatch.setattr(solvers, "WHOLE", 100)
    table = laplacian(from_networkx(nx.path_graph(300)), 3)
    np.testing.assert_allclose(table["eigenvalues"], cosines(299, 3, 1), atol=1e-13)
    with pytest.raises(PeError, match=r"3000 nodes .* needs scipy: pip install 'pe-cli"):
        laplacian(from_networkx(nx.path_graph(3000)), 3)
    with pytest.raises(PeError, match="needs scipy: pip install 'pe-cli"):
        random_walk(from_networkx(nx.path_graph(3000)), 3)


TRIANGLES = copies(nx.complete_graph(3), 2)


def test_two_triangles():
    third = 1 / np.sqrt(3)
    for drop, zeros in [("zeros", []), ("first", [[0, third]]), ("none", [[third, 0], [0, third]])]:
        table = laplacian(TRIANGLES, 3, drop=drop)
        np.testing.assert_allclose(table["eigenvalues"], [0] * len(zeros) + [1.5] * (3 - len(zeros)))
        for column, parts in enumerate(zeros):
            np.testing.assert_allclose(table["eigenvectors"][:, column], np.repeat(parts, 3))
        assert "k cuts an eigenspace" in table.warnings[0]
    assert laplacian(TRIANGLES, 4).warnings == ()
    assert "say only which component" in laplacian(TRIANGLES, 2, drop="none").warnings[-1]


def test_each_component_by_itself():
    table = laplacian(TRIANGLES, 2, components="each")
    assert table["eigenvalues"].tolist() == [[1.5, 1.5], [1.5, 1.5]] or np.allclose(table["eigenvalues"], 1.5)
    assert table["component"].tolist() == [0, 0, 0, 1, 1, 1]
    np.testing.assert_allclose(table["eigenvectors"][:3], table["eigenvectors"][3:])
    one = laplacian(from_networkx(nx.complete_graph(3)), 2)
    np.testing.assert_allclose(table["eigenvectors"][:3], one["eigenvectors"])


@pytest.mark.slow
def test_sixty_components():
    table = laplacian(copies(nx.path_graph(70), 60), 60)
    np.testing.assert_allclose(table["eigenvalues"], cosines(69, 1, 1)[0], rtol=1e-10)
    assert table.facts["connected_components"] == 60
    assert np.count_nonzero(np.abs(table["eigenvectors"]).max(axis=1) > 1e-12) == 4200
    big = laplacian(copies(nx.grid_2d_graph(47, 46), 3), 6)
    one = laplacian(from_networkx(nx.grid_2d_graph(47, 46)), 2)
    np.testing.assert_allclose(big["eigenvalues"], np.repeat(one["eigenvalues"], 3), rtol=1e-9)


def eigenvalues_below(n, edges, weights, x):
    """How many eigenvalues of D - A of a tree are less than x: the negative pivots, leaves first, in 50 digits."""
    above = {b: (a, Decimal(w)) for (a, b), w in zip(edges, weights, strict=True)}
    pivots = [-x] * n
    for b, (a, w) in above.items():
        pivots[a] += w
        pivots[b] += w
    for node in range(n - 1, 0, -1):
        a, w = above[node]
        pivots[a] -= w * w / pivots[node]
    return sum(pivot < 0 for pivot in pivots)


@pytest.mark.parametrize("heaviest", [1e2, 1e4, 1e6, 1e8])
@pytest.mark.parametrize(("path", "spokes"), [(300, 4), (40, 3)])
def test_eigenvalues_beside_heavy_hubs_against_forty_digits(path, spokes, heaviest):
    n = path + spokes
    edges = [(i, i + 1) for i in range(path - 1)] + [(path // 3, path + i) for i in range(spokes)]
    weights = [1.0] * (path - 1) + [heaviest * (1 + i / 7) for i in range(spokes)]
    order = np.random.default_rng(0).permutation(n)
    own = laplacian(graph(n, order[np.array(edges)].tolist(), weights), 3, norm="none")["eigenvalues"]
    matrix = graph(n, edges, weights).adjacency.dense()
    lapack = np.linalg.eigvalsh(np.diag(matrix.sum(axis=1)) - matrix)[1:4]
    with localcontext() as context:
        context.prec = 50
        for number, (value, other) in enumerate(zip(own, lapack, strict=True), 1):
            low, high = Decimal(value) * Decimal("0.999"), Decimal(value) * Decimal("1.001")
            while high - low > Decimal("1e-30") * high:
                middle = (low + high) / 2
                low, high = (
                    (low, middle) if eigenvalues_below(n, edges, weights, middle) > number else (middle, high)
                )
            exact = (low + high) / 2
            miss = abs(Decimal(value) - exact)
            assert miss <= 10 * max(abs(Decimal(other) - exact), exact * Decimal("2e-16"))
            assert miss <= exact * Decimal("1e-12")


def test_tiny_weights():
    for norm in ("sym", "none"):
        plain, tiny = (laplacian(graph(3, [(0, 1), (1, 2)], [w, 2 * w]), 2, norm=norm) for w in (1.0, 1e-300))
        np.testing.assert_allclose(tiny["eigenvectors"], plain["eigenvectors"], atol=1e-14)
        np.testing.assert_allclose(
            tiny["eigenvalues"] * (1e300 if norm == "none" else 1), plain["eigenvalues"]
        )


@pytest.mark.parametrize("n", [1, 2, 5])
def test_small_and_edgeless_graphs_are_filled_up(n):
    for g in (graph(n, []), from_networkx(nx.path_graph(n))):
        for drop in ("zeros", "first", "none"):
            for components in ("joint", "each"):
                table = laplacian(g, 7, drop=drop, components=components)
                assert table["eigenvectors"].shape == (n, 7)
                assert table["eigenvalues"].shape[-1] == 7
                assert np.isfinite(table["eigenvectors"]).all()
        assert magnetic(g, 7)["eigenvectors"].shape == (n, 7)
    assert np.isnan(laplacian(graph(n, []), 2, pad="nan")["eigenvectors"]).all()
    with pytest.raises(PeError, match="k 7"):
        laplacian(graph(n, []), 7, pad="error")


def test_what_fills_up_components_that_have_too_few():
    g = graph(5, [(0, 1), (2, 3), (3, 4)])
    table = laplacian(g, 2, components="each", pad="nan")
    assert np.isnan(table["eigenvectors"]).tolist() == [[False, True]] * 2 + [[False, False]] * 3
    assert np.isnan(table["eigenvalues"]).tolist() == [[False, True], [False, False]]
    assert table.facts["residual"] < 1e-12
    with pytest.raises(PeError, match="k 2: 1 of 2 components has fewer"):
        laplacian(g, 2, components="each", pad="error")
    laplacian(g, 1, components="each", pad="error")


def test_isolated_nodes_by_both_conventions():
    g = graph(5, [(0, 1), (1, 2)])
    assert laplacian(g, 2)["eigenvalues"].tolist() == pytest.approx([1, 2])
    table = laplacian(g, 4, isolated="one")
    assert table["eigenvalues"].tolist() == pytest.approx([1, 1, 1, 2])
    assert table["eigenvectors"][3:, 1:3].tolist() == [[1, 0], [0, 1]]
    assert laplacian(g, 5, drop="none", isolated="one").facts["zero_eigenvalues"] == 1
    assert laplacian(g, 5, drop="none").facts["zero_eigenvalues"] == 3


@pytest.mark.slow
def test_a_cut_eigenspace():
    star = from_networkx(nx.star_graph(9))
    assert "7 more columns share the eigenvalue 1;" in laplacian(star, 1).warnings[0]
    assert laplacian(star, 1, multiplet="extend")["eigenvectors"].shape == (10, 8)
    with pytest.raises(PeError, match="multiplet extend"):
        laplacian(star, 1, multiplet="error")
    large = laplacian(from_networkx(nx.hypercube_graph(11)), 5, multiplet="extend")
    assert large["eigenvectors"].shape[1] == 11
    apart = Graph(5, [[0], [1]])  # four components, so that eigenvalue 0 has four columns
    table = laplacian(apart, 2, drop="none", multiplet="extend")
    assert table["eigenvalues"].tolist() == [0, 0, 0, 0]
    assert "all 4 columns" in table.warnings[0]
    with pytest.raises(PeError, match="k 2 cuts an eigenspace: 2 more columns share"):
        laplacian(apart, 2, drop="none", multiplet="error")
    with pytest.raises(PeError, match="k 2 cuts an eigenspace: 7 more columns share"):
        laplacian(star, 2, drop="none", multiplet="error")
    with pytest.raises(PeError, match="the same number of columns for every graph"):
        laplacian(Graph(3, [[0, 1, 2], [1, 2, 0]], ptr=[0, 3]), 1, multiplet="extend")


def test_the_basis_of_an_eigenspace_depends_on_the_space_alone():
    rng = np.random.default_rng(0)
    space = np.linalg.qr(rng.standard_normal((30, 4)) + 1j * rng.standard_normal((30, 4)))[0]
    turn = np.linalg.qr(rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4)))[0]
    one, other = (hermitian.canonical_basis(s[None], 4)[0] for s in (space, space @ turn))
    np.testing.assert_allclose(one, other, atol=1e-12)
    np.testing.assert_allclose(one.conj().T @ one, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(one @ one.conj().T, space @ space.conj().T, atol=1e-12)


def test_scales_and_signs():
    g = from_networkx(nx.path_graph(9))
    plain = laplacian(g, 3)
    vectors, values = plain["eigenvectors"], plain["eigenvalues"]
    np.testing.assert_allclose(np.abs(laplacian(g, 3, vec_norm="l1")["eigenvectors"]).sum(axis=0), 1)
    np.testing.assert_allclose(laplacian(g, 3, vec_norm="abs-max")["eigenvectors"].max(axis=0), 1)
    wave = laplacian(g, 3, vec_norm="wavelength")["eigenvectors"]
    np.testing.assert_allclose(wave.max(axis=0), np.pi / (2 * np.sqrt(values)))
    assert (laplacian(g, 3, sign="first")["eigenvectors"][0] > 0).all()
    flips = {
        tuple(np.sign(laplacian(g, 3, sign="random", seed=s)["eigenvectors"][0] * vectors[0]))
        for s in range(9)
    }
    assert len(flips) > 2


def test_directed_input_is_made_symmetric_and_said():
    pairs = [(0, 1), (1, 2), (2, 0), (2, 3)]
    table = laplacian(graph(4, pairs, directed=True), 2)
    np.testing.assert_allclose(
        table["eigenvectors"], laplacian(graph(4, pairs), 2)["eigenvectors"], atol=1e-12
    )
    assert "directed" in table.warnings[-1]


def test_the_names_of_the_nodes_come_along():
    g = Graph(3, np.array([[0, 1], [1, 2]]), node_ids=("a", "b", "c"))
    assert laplacian(g, 2).facts["node_ids"] == ["a", "b", "c"]
    g = Graph(3, np.array([[0, 1], [1, 2]]), node_ids=np.array([7, 8, 9]))
    assert random_walk(g, 2)["node_ids"].tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: laplacian(TRIANGLES, 0), "k 0: give at least 1"),
        (lambda: laplacian(graph(0, []), 1), "no nodes; num_nodes"),
        (lambda: laplacian(graph(2, [(0, 1)], [-1.0]), 1), "edge 0 - 1 has weight -1: .*weights none"),
        (lambda: laplacian(graph(3, [(0, 1), (1, 2)], [1e308, 1e308]), 1), "sum overflows"),
        (lambda: laplacian(graph(10**7, []), 10**6), "memory"),
        (lambda: laplacian(random_graph(2 * 10**5, 2), 1, solver="dense"), "memory"),
        (lambda: laplacian(TRIANGLES, 1, components="each", multiplet="extend"), "components each"),
        (lambda: laplacian(TRIANGLES, 1, norm="syn"), "no norm 'syn'; did you mean 'sym'"),
        (lambda: laplacian(TRIANGLES, 1, pad="zeros"), "no pad 'zeros'; did you mean 'zero'"),
        (lambda: laplacian(TRIANGLES, 1, sign="frist"), "did you mean 'first'"),
        (lambda: magnetic(TRIANGLES, 1, q_mode="abs"), "no q mode 'abs'"),
        (lambda: random_walk(TRIANGLES, 1, loops="kept"), "no loops 'kept'"),
        (lambda: laplacian(TRIANGLES, 1, seed=0), "seed 0: only sign random"),
        (
            lambda: laplacian(TRIANGLES, 1, norm="none", isolated="one"),
            "isolated one: without normalisation",
        ),
        (
            lambda: magnetic(TRIANGLES, 1, norm="none", isolated="one"),
            "isolated one: without normalisation",
        ),
        (lambda: random_walk(TRIANGLES, 0), "steps 0"),
        (lambda: random_walk(graph(2, [(0, 1)], [-1.0]), 1), "weight -1"),
        (lambda: magnetic(TRIANGLES, 1, q=float("inf")), "q inf"),
        (lambda: shortest_path(graph(10**6, [])), "TiB of memory, this machine has"),
        (lambda: shortest_path(TRIANGLES, limit=-1), "limit -1"),
        (lambda: shortest_path(TRIANGLES, unreachable=2**70), r"below 2\^63"),
        (lambda: shortest_path(graph(2, [(0, 1)], [0.0]), weighted=True), "lengths must be positive"),
    ],
)
def test_wrong_use(call, message):
    with pytest.raises(PeError, match=message):
        call()


@pytest.mark.parametrize("norm", ["sym", "none"])
@pytest.mark.parametrize("solver", ["dense", "lanczos", "shift-invert", "cg"])
def test_magnetic_against_the_formula(norm, solver):
    rng = np.random.default_rng(3)
    g = Graph(80, rng.integers(0, 80, (2, 300)), rng.random(300), directed=True)
    a = g.arcs.without_loops().dense()
    mean = (a + a.T) / 2
    degree = mean.sum(axis=1)
    phase = np.exp(2j * np.pi * 0.1 * (a - a.T))
    if norm == "none":
        matrix = np.diag(degree) - mean * phase
    else:
        matrix = np.eye(80) - mean / np.sqrt(np.outer(degree, degree)) * phase
    table = magnetic(g, 6, q=0.1, norm=norm, solver=solver)
    vectors, values = table["eigenvectors"], table["eigenvalues"]
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix)[:6], atol=1e-9)
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-8)
    top = vectors[np.abs(vectors).argmax(axis=0), range(6)]
    np.testing.assert_allclose(top.imag, 0, atol=1e-9)
    assert (top.real > 0).all()
    split = magnetic(g, 6, q=0.1, norm=norm, solver=solver, parts="split")["eigenvectors"]
    np.testing.assert_array_equal(split[..., 0] + 1j * split[..., 1], vectors)


def test_magnetic_conventions():
    ring = [(0, 1), (1, 2), (2, 0)]
    half = magnetic(graph(3, ring), 3, norm="none")["eigenvalues"]
    unit = magnetic(graph(3, ring), 3, norm="none", convention="unit")["eigenvalues"]
    np.testing.assert_allclose(unit, 2 * half)
    np.testing.assert_allclose(half[0], 1 - np.sqrt(3) / 2)
    relative = magnetic(graph(3, ring), 3, q=0.3, q_mode="relative")
    assert relative.facts["effective_q"] == pytest.approx(0.1)
    assert "ordinary Laplacian" in magnetic(graph(2, [(0, 1), (1, 0)]), 1).warnings[-1]
    assert "q is 0" in magnetic(graph(3, ring), 1, q=0.0).warnings[-1]


@pytest.mark.slow
def test_same_bytes_from_two_processes():
    code = (
        "import hashlib, numpy as np; from pe_cli.structures import Graph; from pe_cli.encodings.graph.spectral import laplacian, magnetic;"
        "g = Graph(2600, np.random.default_rng(0).integers(0, 2600, (2, 9000)));"
        "print([hashlib.sha256(t.tobytes()).hexdigest() for t in (*laplacian(g, 6).values(), *magnetic(g, 3).values())])"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)
    ]
    assert runs[0] == runs[1]


def test_long_work_says_how_far_it_is():
    seen = []
    with watched(lambda *step: seen.append(step)):
        random_walk(from_networkx(nx.path_graph(1500)), 4)
        laplacian(from_networkx(nx.grid_2d_graph(50, 50)), 4)
        shortest_path(from_networkx(nx.path_graph(50)))
    assert ("random walk", 1500, 1500) in seen
    assert ("breadth-first search", 50, 50) in seen
    assert any(what == "shift-invert" and total is None for what, _, total in seen)


@pytest.mark.interop
@pytest.mark.parametrize(("n", "seed"), [(30, 0), (80, 1), (150, 2), (300, 3)])
def test_against_pyg(n, seed):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    from torch_geometric.data import Data
    from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE
    from torch_geometric.utils import to_undirected

    edges = np.array(list(nx.connected_watts_strogatz_graph(n, 6, 0.5, seed=seed).edges)).T
    both = to_undirected(torch.tensor(edges), num_nodes=n)
    g = Graph(n, both.numpy())
    data = AddRandomWalkPE(12, "walk")(
        AddLaplacianEigenvectorPE(6, "lap", is_undirected=True)(Data(edge_index=both, num_nodes=n))
    )
    np.testing.assert_allclose(random_walk(g, 12)["random_walk"], data.walk.numpy(), atol=1e-6)
    ours, theirs = laplacian(g, 6)["eigenvectors"], data.lap.numpy()
    np.testing.assert_allclose(theirs * np.sign((ours * theirs).sum(axis=0)), ours, atol=1e-3)


def test_one_is_no_plural():
    path = graph(2, [(0, 1)])
    assert laplacian(path, 2).warnings[0] == ("the graph has 1 such eigenvector: the 1 other column is zero")
    assert "the one column belongs" in laplacian(path, 1, drop="none").warnings[0]
    assert "7 other columns are zero" in laplacian(path, 8).warnings[0]
