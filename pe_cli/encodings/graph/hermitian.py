"""Hermitian matrices over graphs, and eigenpairs of small ones to more digits than a solver gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.structures.graph import Graph, SparseRows, coalesced, need_scipy, spans

Reals: TypeAlias = NDArray[np.float64]
Vectors: TypeAlias = NDArray[Any]  # (n, r) float64, or complex128 for a magnetic Laplacian
Isolated: TypeAlias = Literal["zero", "one"]
Axes: TypeAlias = Literal["map", "oap"]
EPS = float(np.finfo(np.float64).eps)
SPACE_NOISE = 4096  # times eps / gap: entries of a basis of an eigenspace below are 0
MOST_NOISE = 1e-9  # that is taken for 0
SEPARATE = 1e-9  # of the norm: below it an eigenvalue may be mixed with the null vector's
SPREAD = 1e4  # of the weights of a component, from which eigenvalues are made from the incidence matrix
MOST_INCIDENCE = 10**10  # operations of that
SHARE_OF_ALL = 10.0  # of every node in the sum over a class of nodes, as in the code of Ma et al.
SPLIT = 134217729.0  # 2^27 + 1: cuts a float64 into halves of 26 bits


@dataclass(frozen=True)
class Hermitian:
    """diag(diagonal) + off, whose eigenvalues lie in [0, bound]; `null` is the unit null vector where it is known."""

    diagonal: NDArray[np.float64]
    off: SparseRows  # values float64 or complex128
    bound: float
    null: NDArray[np.float64] | None = None
    combinatorial: bool = False  # D - A, whose eigenvalues are sums over edges

    @property
    def size(self) -> int:
        return self.off.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.off.values.dtype)

    def dense(self) -> Vectors:
        matrix = np.zeros((self.size, self.size), dtype=self.dtype)
        matrix[self.off.row_numbers(), self.off.columns] = self.off.values
        np.fill_diagonal(matrix, self.diagonal)
        return matrix

    def apply(self, vector: Vectors) -> Vectors:
        """The product with one vector (n,), by numpy alone."""
        rows, terms = self.off.row_numbers(), self.off.values * vector[self.off.columns]
        product = self.diagonal * vector + np.bincount(rows, terms.real, self.size)
        return product + 1j * np.bincount(rows, terms.imag, self.size) if self.dtype.kind == "c" else product

    def sparse(self) -> Any:
        scipy = need_scipy(f"a graph of {self.size} nodes")
        return (self.off.sparse() + scipy.sparse.diags_array(self.diagonal)).tocsr()


def laplacian_matrix(adjacency: SparseRows, combinatorial: bool, isolated: Isolated) -> Hermitian:
    """D - A, or I - D^-½ A D^-½, of a symmetric A without loops, with its null vector on every component."""
    degree = adjacency.row_sums()
    lone = alone(adjacency)
    rows = adjacency.row_numbers()
    if combinatorial:
        bound = float((degree[rows] + degree[adjacency.columns]).max(initial=0.0))
        null = np.ones(adjacency.size)
        return Hermitian(degree, adjacency._replace(values=-adjacency.values), bound, null, True)
    root = np.sqrt(degree)
    off = adjacency._replace(values=-adjacency.values / root[rows] / root[adjacency.columns])
    own = 1.0 if isolated == "one" else 0.0
    return Hermitian(np.where(lone, own, 1.0), off, 2.0, np.where(lone, 1 - own, root))


def alone(adjacency: SparseRows) -> NDArray[np.bool_]:
    """(n,) whether a node has no edge to another."""
    return np.asarray(np.diff(adjacency.starts) == 0)


def laplacians(weights: Reals) -> Reals:
    """(b, n, n) D - A of symmetric weights A (b, n, n) without loops."""
    matrices, diagonal = -weights, np.arange(weights.shape[1])
    matrices[:, diagonal, diagonal] = weights.sum(axis=2)
    return matrices


def normalised_laplacians(weights: Reals) -> Reals:
    """(b, n, n) I - D^-½ A D^-½ of symmetric weights A (b, n, n) without loops; 0 for a node without edges."""
    degree, diagonal = weights.sum(axis=2), np.arange(weights.shape[1])
    root = np.divide(1, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    matrices: Reals = -weights * root[:, :, None] * root[:, None, :]
    matrices[:, diagonal, diagonal] = degree > 0
    return matrices


def magnetic_matrix(
    arcs: SparseRows, turn: Reals, combinatorial: bool, unit: bool, isolated: Isolated
) -> Hermitian:
    """D - A_s ∘ exp(2 pi i turn (A - A')), or I less the normalised second term, for the arcs A without loops.

    `turn` (n,) is the potential in the graph of each node.
    """
    rows, columns = arcs.row_numbers(), arcs.columns
    values = np.ones(len(columns)) if unit else arcs.values
    # real part: the undirected weight; imaginary part: the flow from i to j less that from j to i
    pair = coalesced(
        arcs.size,
        np.concatenate([rows, columns]),
        np.concatenate([columns, rows]),
        np.concatenate([values * (0.5 + 1j), values * (0.5 - 1j)]),
    )
    weight, flow = pair.values.real, pair.values.imag
    if unit:
        weight = np.ones(len(weight))
    between = pair.row_numbers()
    angle = 2 * np.pi * turn[between] * flow
    hermitian = pair._replace(values=-weight * (np.cos(angle) + 1j * np.sin(angle)))
    degree = pair._replace(values=weight).row_sums()
    if combinatorial:
        bound = float((degree[between] + degree[pair.columns]).max(initial=0.0))
        return Hermitian(degree, hermitian, bound)
    root = np.sqrt(degree)
    scaled = hermitian._replace(values=hermitian.values / root[between] / root[pair.columns])
    own = 1.0 if isolated == "one" else 0.0
    return Hermitian(np.where(degree == 0, own, 1.0), scaled, 2.0)


def one_way_pairs(arcs: SparseRows, graph: Graph) -> NDArray[np.int64]:
    """(graphs,) the number of pairs with an edge in one direction only."""
    rows = arcs.row_numbers()
    low, high = np.minimum(rows, arcs.columns), np.maximum(rows, arcs.columns)
    pairs = coalesced(arcs.size, low, high, np.ones(len(low)))
    one_way = pairs.row_numbers()[pairs.values == 1]
    return np.bincount(graph.graph_of[one_way], minlength=graph.num_graphs)


def noise_limit(norm: float, gap: float) -> float:
    """The size up to which an entry of an eigenvector is taken for 0: noise of a solver of a matrix of this `norm`, where
    the nearest other eigenvalue is `gap` away.
    """
    return float(min(SPACE_NOISE * EPS * norm / max(gap, EPS * norm), MOST_NOISE)) if norm else 0.0


def canonical_basis(spaces: Vectors, count: int) -> Vectors:
    """(f, n, count) an orthonormal basis of each space `spaces` (f, n, m) that depends on the space alone.

    Each column is the projection of one unit vector, made orthogonal to the columns before: that of the node
    which is nearest to the space, the first where several are. The entry of that node is real, positive and,
    of its column, the largest.
    """
    rest, item = spaces.copy(), np.arange(len(spaces))
    weight = np.einsum("fij,fij->fi", rest, rest.conj()).real
    basis = np.empty((*spaces.shape[:2], count), dtype=spaces.dtype)
    for column in range(count):
        node = np.argmax(weight >= weight.max(axis=1, keepdims=True) * (1 - 1e-6), axis=1)
        direction = rest[item, node].conj()
        length = np.linalg.norm(direction, axis=1, keepdims=True)
        direction = np.divide(direction, length, out=np.zeros_like(direction), where=length > 0)
        basis[:, :, column] = np.einsum("fim,fm->fi", rest, direction)
        if column + 1 < count:
            rest -= basis[:, :, column, None] * direction.conj()[:, None, :]
            weight -= np.abs(basis[:, :, column]) ** 2
    return basis


def axis_basis(spaces: Reals, axes: Axes) -> tuple[Reals, NDArray[np.bool_]]:
    """(f, m, n) an orthonormal basis of each space `spaces` (f, m, n) that does not depend on the numbering of the nodes,
    and (f,) whether there is one; its vectors are rows.

    Nodes of equal key are one class. With P the projector on the space, the columns are P x, made orthogonal to the columns
    before, of the classes in turn, x the sum of the nodes of a class and 10 times that of all. The key of node i is the
    length of P e_i; of `oap`, where m > 1, it is P_ii + sum_j P_ij^3. Classes come in descending order of their keys, and
    those that add no direction are passed over, which `map` does not do. Where m = 1, so that only the sign is free, both
    take the length, ascending, and the first class whose P x is not 0.

    Source: Ma, Wang and Wang, "Laplacian Canonization", 2023 (arXiv:2310.18716), algorithms 1 and 2, and Ma et al., "A
    Canonicalization Perspective on Invariant and Equivariant Learning", 2024 (arXiv:2405.18378), with order and factor of
    their code.
    """
    count, dimension, size = spaces.shape
    key = np.sqrt(np.einsum("fmi,fmi->fi", spaces, spaces))
    if dimension > 1:
        key = -key if axes == "map" else -np.stack([_cubed_key(rows) for rows in spaces])
    order = np.argsort(key, axis=1, kind="stable")
    other = np.diff(np.take_along_axis(key, order, axis=1), axis=1, prepend=-np.inf) > MOST_NOISE
    first = np.flatnonzero(other)
    in_order = np.take_along_axis(spaces, order[:, None, :], axis=2).transpose(0, 2, 1).reshape(-1, dimension)
    members = np.diff(np.append(first, count * size))
    item = first // size
    sums = np.add.reduceat(in_order, first) + SHARE_OF_ALL * spaces.sum(axis=2)[item]
    length = np.sqrt(SHARE_OF_ALL**2 * size + (2 * SHARE_OF_ALL + 1) * members)  # of x
    starts = np.searchsorted(item, np.arange(count + 1))
    basis, done = np.zeros((count, dimension, dimension)), np.zeros(count, dtype=np.int64)
    for turn in range(int(np.diff(starts).max(initial=0))):
        open_ = np.flatnonzero((done < dimension) & (starts[:-1] + turn < starts[1:]))
        if axes == "map" and dimension > 1:
            open_ = open_[done[open_] == turn]
        if not open_.size:
            break
        rest = sums[starts[open_] + turn]
        for _ in range(2):
            rest = rest - np.einsum("fab,fa->fb", basis[open_], np.einsum("fab,fb->fa", basis[open_], rest))
        norm = np.linalg.norm(rest, axis=1)
        new = norm > MOST_NOISE * length[starts[open_] + turn]
        own = open_[new]
        basis[own, done[own]] = rest[new] / norm[new, None]
        done[own] += 1
    return np.einsum("fab,fbi->fai", basis, spaces), done == dimension


def _cubed_key(rows: Reals) -> Reals:
    """(n,) P_ii + sum_j P_ij^3 of the projector P on a space with the orthonormal basis `rows` (m, n)."""
    dimension, size = rows.shape
    if dimension**2 > size:
        projector: Reals = rows.T @ rows
        return np.asarray(np.diagonal(projector) + (projector**3).sum(axis=1))
    pairs = (rows[:, None, :] * rows).reshape(-1, size)
    return np.asarray((rows**2).sum(axis=0) + np.einsum("pi,pi->i", pairs, (pairs @ rows.T) @ rows))


def quiet(rows: NDArray[Any], limit: Reals) -> Vectors:
    """The rows with 0 for what is at most `limit` (f,): noise of the solver around an entry that is 0."""
    if np.iscomplexobj(rows):
        return np.asarray(quiet(rows.real, limit) + 1j * quiet(rows.imag, limit))
    return np.where(np.abs(rows) <= limit[:, None], 0.0, rows)


def depends_on_noise(rows: Vectors, finished: Vectors, noise: Reals, zero: Reals) -> NDArray[np.bool_]:
    """(f,) whether an entry would be rounded to another float32 if it differed by `noise` (f,)."""
    if np.iscomplexobj(rows):
        return depends_on_noise(rows.real, finished.real, noise, zero) | depends_on_noise(
            rows.imag, finished.imag, noise, zero
        )
    size = np.abs(rows)
    if finished is rows:
        width: Reals = np.broadcast_to(noise[:, None], rows.shape)
    else:
        width = noise[:, None] * np.divide(np.abs(finished), size, out=np.zeros_like(size), where=size > 0)
    other = (finished - width).astype(np.float32) != (finished + width).astype(np.float32)
    return np.asarray((other & (size > zero[:, None])).any(axis=1))


def part_from_null_vector(matrices: Vectors, null: Reals, values: Reals, vectors: Vectors) -> None:
    """Make the null vectors (b, n) the first columns of all eigenpairs of `matrices` (b, n, n).

    A solver has them there, but for matrices whose next eigenvalue is as good as zero: from these the null vector is
    moved to the top of the spectrum before they are solved again.
    """
    bound = 2 * np.abs(np.diagonal(matrices, axis1=1, axis2=2)).max(axis=1)
    for item in np.flatnonzero(values[:, 1] < SEPARATE * bound):
        unit = null[item] / np.linalg.norm(null[item])
        moved = matrices[item] + 3 * bound[item] * np.outer(unit, unit)
        found, columns = np.linalg.eigh(moved)
        values[item, 1:], vectors[item, :, 1:] = found[:-1], columns[:, :-1]
        vectors[item, :, 0] = unit
    values[:, 0] = 0


def spread_weights(matrices: Vectors) -> NDArray[np.bool_]:
    """(b,) whether the weights of D - A (b, n, n) are too far apart for the small eigenvalues to survive a dense solver."""
    weights = -matrices * ~np.eye(matrices.shape[1], dtype=bool)
    least = np.where(weights > 0, weights, np.inf).min(axis=(1, 2))
    return np.asarray(weights.max(axis=(1, 2)) > SPREAD * least)


def by_incidence(matrix: Vectors) -> tuple[Reals, Vectors, Reals, Reals] | None:
    """The eigenpairs of D - A from the singular values of its incidence matrix, columns sqrt(w) (e_i - e_j).

    With how far each eigenvalue may be off, and the noise of eigenvectors. Squares of singular values keep the digits of small eigenvalues beside large
    ones, which those of the product have lost. None where it would take too long.
    """
    n = len(matrix)
    row, column = np.nonzero(np.triu(matrix, 1))
    if n * n * len(row) > MOST_INCIDENCE:
        return None
    incidence, edge, root = np.zeros((n, len(row))), np.arange(len(row)), np.sqrt(-matrix[row, column])
    incidence[row, edge], incidence[column, edge] = root, -root
    vectors, singular, _ = np.linalg.svd(incidence, full_matrices=False)
    vectors, singular = vectors[:, : n - 1][:, ::-1], singular[: n - 1][::-1]
    noise = 2 * EPS * singular * singular[-1]
    doubt = 1e-12 * singular**2 + 50 * noise
    null = np.full((n, 1), n**-0.5)
    return (
        np.concatenate([[0.0], singular**2]),
        np.concatenate([null, vectors], axis=1),
        np.concatenate([[0.0], doubt]),
        np.concatenate([[0.0], noise]),
    )


def edge_sums(matrices: Vectors, member: NDArray[np.int64], rows: Vectors) -> Reals:
    """(f,) x' (D - A) x as the sum of w (x_i - x_j)^2 over edges, for unit vectors x (f, n) of the matrices `member` (f,).

    No digit is lost to weights that are far larger than the result.
    """
    item, row, column = np.nonzero(np.triu(matrices, 1))
    starts = np.searchsorted(item, np.arange(len(matrices) + 1))
    counts = np.diff(starts)[member]
    which = np.repeat(np.arange(len(member)), counts)
    edge = spans(starts[member], counts)
    row, column, weight = row[edge], column[edge], -matrices[item, row, column][edge]
    terms = weight * (rows[which, row] - rows[which, column]) ** 2
    return np.bincount(which, weights=terms, minlength=len(member)).astype(np.float64, copy=False)


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b rounded, and what the rounding lost (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """a x b rounded, and what the rounding lost (Dekker)."""
    scaled_a, scaled_b = SPLIT * a, SPLIT * b
    high_a, high_b = scaled_a - (scaled_a - a), scaled_b - (scaled_b - b)
    low_a, low_b = a - high_a, b - high_b
    product = a * b
    return product, ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b


class _Sums:
    """Sums (n,) of many products, as if in twice the precision."""

    def __init__(self, count: int) -> None:
        self.total, self.lost = np.zeros(count), np.zeros(count)

    def add(self, rows: NDArray[np.int64], a: Reals, b: Reals) -> None:
        """Add a x b to the sums `rows`, which ascend; the first terms of all sums together, then the second, …"""
        starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]])) if rows.size else rows
        turn = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
        product, error = two_product(a, b)
        order = np.argsort(turn, kind="stable")
        bounds = np.searchsorted(turn[order], np.arange(int(turn.max(initial=-1)) + 2))
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            own = order[begin:end]
            row = rows[own]
            self.total[row], rest = two_sum(self.total[row], product[own])
            self.lost[row] += rest + error[own]

    def value(self) -> Reals:
        return self.total + self.lost


def residuals(matrices: NDArray[Any], vectors: NDArray[Any], values: Reals) -> NDArray[Any]:
    """(f, s) A x - λ x for A (f, s, s), x (f, s) and λ (f,), to the last bit."""
    count, size = vectors.shape
    item, row, column = np.nonzero(matrices)
    entries = matrices[item, row, column]
    rows, own = item * size + row, np.arange(count * size)
    shift = np.repeat(-values, size)

    def product(a: Reals, x: Reals, b: Reals | None = None, y: Reals | None = None) -> Reals:
        sums = _Sums(count * size)
        sums.add(rows, a, x[item, column])
        if b is not None and y is not None:
            sums.add(rows, b, y[item, column])
        sums.add(own, shift, x.reshape(-1))
        return sums.value().reshape(count, size)

    if not np.iscomplexobj(matrices) and not np.iscomplexobj(vectors):
        return product(entries, vectors)
    real, imaginary = np.ascontiguousarray(vectors.real), np.ascontiguousarray(vectors.imag)
    return product(entries.real, real, -entries.imag, imaginary) + 1j * product(
        entries.real, imaginary, entries.imag, real
    )


def refined(
    matrices: NDArray[Any],
    spaces: NDArray[Any],
    values: Reals,
    first: NDArray[np.int64],
    dimension: int,
    vectors: NDArray[Any],
) -> NDArray[Any]:
    """(f, s) the eigenvectors, corrected by all eigenvectors but those of their own eigenspace, at unit length.

    `spaces` (f, s, s) are all eigenvectors of the `matrices` (f, s, s), as columns, `values` (f, s) their eigenvalues. The
    eigenspace of each vector begins at column `first` (f,) and has `dimension` columns.
    """
    count, size = vectors.shape
    columns = np.arange(size)
    own = (columns >= first[:, None]) & (columns < first[:, None] + dimension)
    mean = np.where(own, values, 0).sum(axis=1) / dimension
    rest = residuals(matrices, vectors, mean)
    along = np.einsum("fij,fi->fj", spaces.conj(), rest)
    along = np.where(own, 0, along / np.where(own, 1, mean[:, None] - values))
    better = vectors + np.einsum("fij,fj->fi", spaces, along)
    parts = better.view(np.float64).reshape(count, -1)
    return np.asarray(better * (1 + (1 - _squared(parts)) / 2)[:, None])


def _squared(parts: Reals) -> Reals:
    """(f,) the sum of squares along the rows, as if in twice the precision."""
    high, low = two_product(parts, parts)
    while high.shape[1] > 1:
        half = (high.shape[1] + 1) // 2
        if high.shape[1] % 2:
            high, low = (np.concatenate([x, np.zeros((len(x), 1))], axis=1) for x in (high, low))
        total, lost = two_sum(high[:, :half], high[:, half:])
        high, low = total, low[:, :half] + low[:, half:] + lost
    return np.asarray(high[:, 0] + low[:, 0])
