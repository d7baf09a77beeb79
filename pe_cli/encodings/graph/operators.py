"""A Hermitian matrix over a graph, and operators whose largest eigenvalues are its smallest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.progress import step
from pe_cli.structures.graph import Rows, coalesced, need_scipy

Vectors: TypeAlias = NDArray[Any]  # (n, r) float64, or complex128 for a magnetic Laplacian
Apply: TypeAlias = Callable[[Vectors], Vectors]
ToValue: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]

CG_TOLERANCE, MOST_CG = 1e-13, 1000
SHIFT = 1e-6  # of the bound, where no null vector is known


@dataclass(frozen=True)
class Hermitian:
    """diag(diagonal) + off, whose eigenvalues lie in [0, bound]; `null` is the unit null vector where it is known."""

    diagonal: NDArray[np.float64]
    off: Rows  # values float64 or complex128
    bound: float
    null: NDArray[np.float64] | None = None

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


class NotConvergedError(Exception):
    """Conjugate gradients came to no end."""


def _inverted(matrix: Hermitian) -> tuple[Apply, ToValue]:
    """The pseudo-inverse, from a factor of the matrix without its best connected node; or of a shifted matrix."""
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import splu

    options = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    full, null = matrix.sparse(), matrix.null
    step("factorising", 0)
    try:
        if null is None:
            shift = SHIFT * matrix.bound
            solve = splu((full + diags_array(np.full(matrix.size, shift))).tocsc(), **options).solve
            return solve, lambda scale: np.maximum(1 / scale - shift, 0)
        keep = np.delete(np.arange(matrix.size), int(np.argmax(np.diff(matrix.off.starts))))
        solve = splu(full[keep][:, keep].tocsc(), **options).solve
    except (MemoryError, RuntimeError) as trouble:
        raise PeError(
            f"the factor of a component of {matrix.size} nodes failed ({trouble}); try --solver lanczos"
        ) from None

    project = without(null[:, None])

    def apply(x: Vectors) -> Vectors:
        y = np.zeros_like(x)
        y[keep] = solve(project(x)[keep])
        return project(y)

    return apply, lambda scale: 1 / scale


def _by_conjugate_gradients(matrix: Hermitian) -> tuple[Apply, ToValue]:
    """The pseudo-inverse by conjugate gradients, the diagonal as preconditioner: it levels hubs."""
    from scipy.sparse import diags_array

    shift = 0.0 if matrix.null is not None else SHIFT * matrix.bound
    full = (matrix.sparse() + diags_array(np.full(matrix.size, shift))).tocsr()
    weight = 1 / (matrix.diagonal + shift)
    project: Apply = (lambda x: x) if matrix.null is None else without(matrix.null[:, None])

    def apply(x: Vectors) -> Vectors:
        rest = project(x)
        found, direction, before = np.zeros_like(rest), np.zeros_like(rest), 1.0
        enough = CG_TOLERANCE * np.linalg.norm(rest)
        for _ in range(MOST_CG):
            if np.linalg.norm(rest) <= enough:
                return project(found)
            scaled = weight * rest
            now = float(np.vdot(rest, scaled).real)
            direction = scaled + (now / before) * direction
            ahead = full @ direction
            step_length = now / float(np.vdot(direction, ahead).real)
            found, rest, before = found + step_length * direction, rest - step_length * ahead, now
        raise NotConvergedError

    return apply, lambda scale: np.maximum(1 / scale - shift, 0)


def _reflected(matrix: Hermitian) -> tuple[Apply, ToValue]:
    """bound - L, in which the null vector is moved from the top to zero."""
    full, null, bound = matrix.sparse(), matrix.null, matrix.bound
    if null is None:
        return (lambda x: bound * x - full @ x), (lambda scale: np.maximum(bound - scale, 0))
    project = without(null[:, None])
    return (lambda x: bound * project(x) - full @ x), (lambda scale: bound - scale)


OPERATORS: dict[str, Callable[[Hermitian], tuple[Apply, ToValue]]] = {
    "shift-invert": _inverted,
    "cg": _by_conjugate_gradients,
    "lanczos": _reflected,
}


def deflated(apply: Apply, found: Vectors) -> Apply:
    """The operator with the space of `found` projected away, on both sides."""
    project = without(found)
    return lambda x: project(apply(project(x)))


def without(space: Vectors) -> Apply:
    """The projection away from orthonormal columns.

    einsum, since `@` hands so thin a matrix to a dozen threads of BLAS, which wait longer than they work.
    """
    rows = np.ascontiguousarray(space.T)
    conjugate = rows.conj()

    def project(x: Vectors) -> Vectors:
        return np.asarray(x - np.einsum("ji,j->i", rows, np.einsum("ji,i->j", conjugate, x)))

    return project


Isolated: TypeAlias = Literal["zero", "one"]


def laplacian_matrix(adjacency: Rows, combinatorial: bool, isolated: Isolated) -> Hermitian:
    """D - A, or I - D^-½ A D^-½, of a symmetric A without loops, with its null vector on every component."""
    degree = adjacency.row_sums()
    alone = degree == 0
    rows = adjacency.row_numbers()
    if combinatorial:
        bound = float((degree[rows] + degree[adjacency.columns]).max(initial=0.0))
        null = np.ones(adjacency.size)
        return Hermitian(degree, adjacency._replace(values=-adjacency.values), bound, null)
    root = np.sqrt(degree)
    off = adjacency._replace(values=-adjacency.values / root[rows] / root[adjacency.columns])
    own = 1.0 if isolated == "one" else 0.0
    return Hermitian(np.where(alone, own, 1.0), off, 2.0, np.where(alone, 1 - own, root))


def magnetic_matrix(
    arcs: Rows, turn: float, combinatorial: bool, unit: bool, isolated: Isolated
) -> Hermitian:
    """D - A_s ∘ exp(2 pi i turn (A - A')), or I less the normalised second term, for the arcs A without loops."""
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
    hermitian = pair._replace(values=-weight * np.exp(2j * np.pi * turn * flow))
    between = pair.row_numbers()
    degree = pair._replace(values=weight).row_sums()
    if combinatorial:
        bound = float((degree[between] + degree[pair.columns]).max(initial=0.0))
        return Hermitian(degree, hermitian, bound)
    root = np.sqrt(degree)
    scaled = hermitian._replace(values=hermitian.values / root[between] / root[pair.columns])
    own = 1.0 if isolated == "one" else 0.0
    return Hermitian(np.where(degree == 0, own, 1.0), scaled, 2.0)


def one_way_pairs(arcs: Rows) -> int:
    """The number of pairs with an edge in one direction only."""
    rows = arcs.row_numbers()
    low, high = np.minimum(rows, arcs.columns), np.maximum(rows, arcs.columns)
    pairs = len(coalesced(arcs.size, low, high, np.ones(len(low))).columns)
    return 2 * pairs - len(rows)
