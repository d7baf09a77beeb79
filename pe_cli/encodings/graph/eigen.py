"""The smallest eigenpairs of the Laplacian of a connected graph: dense, shift-invert, Lanczos.

Small graphs are solved whole by numpy. Beyond, scipy's ARPACK works on an operator whose largest eigenvalues are
the smallest of the Laplacian L: its pseudo-inverse, where the graph can be factorised cheaply (paths, trees, meshes),
else bound - L (graphs with a large gap, whose factors would fill up), or, where a few hubs make the bound large, the
pseudo-inverse by conjugate gradients. The known null vector is projected away. ARPACK can miss copies of a multiple
eigenvalue with perfect residuals: a second run, with what was found deflated, looks for them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.graph.operators import OPERATORS, Apply, Hermitian, NotConvergedError, Vectors, deflated
from pe_cli.errors import PeError
from pe_cli.memory import require_memory
from pe_cli.progress import step
from pe_cli.structures.graph import Rows, need_scipy

Solver: TypeAlias = Literal["auto", "dense", "lanczos", "shift-invert", "cg"]

WHOLE = 1000  # nodes up to which all eigenpairs are computed, which shows every multiplicity
DENSE = 2000  # nodes up to which a dense solver is used
BATCH = 1 << 22  # numbers in a stack of small matrices that are solved at once
PEELINGS = 50  # rounds of taking leaves off before the width of a graph is measured
WIDEST = 3000  # width of a separator whose factor, about width^2 numbers, takes at most some seconds
EXTRA = 4  # eigenpairs beyond those wanted, cheap with shift-invert, that speed up convergence
HUBS = 15  # times the mean degree, from which bound - L converges too slowly
# relative to the largest eigenvalue of the operator
TOLERANCE = {"shift-invert": 0.0, "lanczos": 1e-11, "cg": 1e-11}
MOST_RESTARTS = {"shift-invert": 300, "lanczos": 400, "cg": 100}
RELATIVE_TIE, ABSOLUTE_TIE = 1e-9, 1e-13  # eigenvalues this near are copies of one


class Spectrum(NamedTuple):
    """The smallest eigenpairs, the known null vector left out; `complete` where they are all there are."""

    values: NDArray[np.float64]
    vectors: Vectors
    solver: str
    complete: bool


def smallest(matrix: Hermitian, count: int, solver: Solver = "auto") -> Spectrum:
    """The `count` smallest eigenpairs of `matrix` beside its null vector, or all, where they come for free."""
    there_are = matrix.size - (matrix.null is not None)
    if solver == "auto":
        solver = _chosen(matrix)
    if solver == "dense" or count + 2 >= there_are:
        return _dense(matrix, min(count, there_are))
    found = _iterative(matrix, count, solver)
    if found is None:
        other: Solver = "shift-invert" if _width(matrix.off) <= WIDEST else "cg"
        found = _iterative(matrix, count, other) if other != solver else None
        solver = other
    if found is None:
        raise PeError(
            f"{solver} did not converge on a component of {matrix.size} nodes; try another --solver, or a smaller -k"
        )
    return Spectrum(*found, solver, False)


def small_spectra(
    matrix: Hermitian, nodes: NDArray[np.int64], place: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.float64], Vectors]]:
    """All eigenpairs of many components of one size, null vectors left out.

    `nodes` (b, size) are theirs, `place` (n,) is the place of each node in its component.
    """
    count, size = nodes.shape
    at_once = max(1, BATCH // (size * size))
    for start in range(0, count, at_once):
        part = nodes[start : start + at_once]
        stack = np.zeros((len(part), size, size), dtype=matrix.dtype)
        inner = matrix.off.block(part.ravel(), place)
        item = inner.row_numbers()
        stack[item // size, item % size, inner.columns] = inner.values
        stack[:, np.arange(size), np.arange(size)] = matrix.diagonal[part]
        if matrix.null is not None:
            null = matrix.null[part]
            null = null / np.linalg.norm(null, axis=1, keepdims=True)
            stack += 3 * matrix.bound * null[:, :, None] * null[:, None, :]
        values, vectors = np.linalg.eigh(stack)
        keep = size - (matrix.null is not None)
        step("components", start + len(part), count)
        yield from zip(values[:, :keep], vectors[:, :, :keep], strict=True)


def ties(values: NDArray[np.float64], bound: float) -> NDArray[np.int64]:
    """(r,) the number of the eigenspace of each of the ascending eigenvalues."""
    near = RELATIVE_TIE * np.abs(values[1:]) + ABSOLUTE_TIE * bound
    return np.concatenate([[0], np.cumsum(np.diff(values) > near)]).astype(np.int64)[: len(values)]


def canonical_basis(vectors: Vectors, count: int) -> Vectors:
    """(n, count) an orthonormal basis of the space of `vectors` (n, m) that depends on the space alone.

    Each column is the projection of one unit vector, made orthogonal to the columns before: that of the node
    which is nearest to the space, the first where several are. The entry of that node is real, positive and,
    of its column, the largest.
    """
    rest = vectors.copy()
    weight = np.einsum("ij,ij->i", rest, rest.conj()).real
    basis = np.empty((len(vectors), count), dtype=vectors.dtype)
    for column in range(count):
        node = int(np.argmax(weight >= weight.max() * (1 - 1e-6)))
        direction = rest[node].conj() / np.linalg.norm(rest[node])
        basis[:, column] = rest @ direction
        rest -= np.outer(basis[:, column], direction.conj())
        weight -= np.abs(basis[:, column]) ** 2
    return basis


def _chosen(matrix: Hermitian) -> Solver:
    if matrix.size <= DENSE:
        return "dense"
    need_scipy(f"a component of {matrix.size} nodes (numpy alone: up to {DENSE})")
    width = _width(matrix.off)
    if width <= min(WIDEST, max(300, 6 * matrix.size**0.5)):
        return "shift-invert"
    return "cg" if matrix.diagonal.max() > HUBS * matrix.diagonal.mean() else "lanczos"


def _dense(matrix: Hermitian, count: int) -> Spectrum:
    n = matrix.size
    require_memory(
        4 * matrix.dtype.itemsize * n * n, f"a dense solver for {n} nodes", "leave out --solver dense"
    )
    full = matrix.dense()
    keep = n - (matrix.null is not None)
    if matrix.null is not None:
        full += 3 * matrix.bound * np.outer(matrix.null, matrix.null)
    complete = n <= WHOLE or n > DENSE or count >= keep or not _has_scipy()
    if complete:
        values, vectors = np.linalg.eigh(full)
        values, vectors = values[:keep], vectors[:, :keep]
    else:
        from scipy.linalg import eigh

        values, vectors = eigh(full, subset_by_index=[0, count - 1], overwrite_a=True)
    return Spectrum(values, vectors, "dense", complete)


def _has_scipy() -> bool:
    try:
        need_scipy("a dense solver")
    except PeError:
        return False
    return True


def _iterative(matrix: Hermitian, count: int, solver: Solver) -> tuple[NDArray[np.float64], Vectors] | None:
    """The eigenpairs by ARPACK, with missing copies of multiple eigenvalues added; None without convergence."""
    n = matrix.size
    asked = count if solver == "lanczos" else min(count + EXTRA, n - 3)
    kept = max(4 * asked, 32) if solver == "lanczos" else 2 * asked + 8
    what = f"{solver} with {asked} eigenvectors of {n} nodes"
    require_memory(matrix.dtype.itemsize * n * (kept + 3 * asked), what, "use a smaller -k")
    apply, to_value = OPERATORS[solver](matrix)

    def start(attempt: int) -> NDArray[np.float64]:
        return np.random.default_rng(attempt).standard_normal(n)

    try:
        scale, vectors = _largest(apply, matrix, asked, kept, start(0), solver)
        for attempt in range(1, count + 1):
            values = to_value(scale)
            limit = values[min(count, len(values)) - 1]
            rest = deflated(apply, vectors)
            probe, _ = _largest(rest, matrix, 1, 24, start(attempt), solver, rough=True)
            if to_value(probe)[0] >= limit - RELATIVE_TIE * 10 * abs(limit) - ABSOLUTE_TIE * matrix.bound:
                break
            missing = min(2 ** (attempt - 1), 16, n - vectors.shape[1] - 2)
            _, extra = _largest(rest, matrix, missing, 24 + 2 * missing, start(attempt), solver)
            vectors = np.linalg.qr(np.column_stack([vectors, extra]))[0]
            scale, vectors = _rotated(apply, vectors)
    except (_arpack_error(), NotConvergedError):
        return None
    return to_value(scale)[:count], vectors[:, :count]


def _largest(
    apply: Apply,
    matrix: Hermitian,
    count: int,
    kept: int,
    start: Vectors,
    solver: str,
    *,
    rough: bool = False,
) -> tuple[NDArray[np.float64], Vectors]:
    """The `count` largest eigenpairs of an operator, descending."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    applied = 0

    def counted(x: Vectors) -> Vectors:
        nonlocal applied
        applied += 1
        if applied % 16 == 0:
            step(solver, applied)
        return apply(x.reshape(-1))

    n = matrix.size
    repeatable = {"rng": np.random.default_rng(1)} if "rng" in inspect.signature(eigsh).parameters else {}
    _, vectors = eigsh(
        LinearOperator((n, n), matvec=counted, dtype=matrix.dtype),
        k=count,
        which="LA",
        v0=start.astype(matrix.dtype),
        ncv=min(kept, n - 1),
        tol=max(TOLERANCE[solver], 1e-7 if rough else 0.0),
        maxiter=MOST_RESTARTS[solver],
        **repeatable,
    )
    return _rotated(apply, np.linalg.qr(vectors)[0])


def _rotated(apply: Apply, vectors: Vectors) -> tuple[NDArray[np.float64], Vectors]:
    """Rayleigh-Ritz: the best eigenpairs within the space of orthonormal `vectors`, descending."""
    applied = np.column_stack([apply(column) for column in vectors.T])
    projected = vectors.conj().T @ applied
    values, turn = np.linalg.eigh((projected + projected.conj().T) / 2)
    return values[::-1], vectors @ turn[:, ::-1]


def _arpack_error() -> type[Exception]:
    from scipy.sparse.linalg import ArpackError

    return ArpackError  # type: ignore[no-any-return]


def _width(off: Rows) -> int:
    """The widest level of a breadth-first search, leaves taken off: about the size of a separator.

    It tells paths, trees and meshes, whose factors stay sparse, from graphs that expand, whose factors fill up.
    """
    from scipy.sparse.csgraph import breadth_first_order

    matrix = off.sparse()
    matrix.data = np.ones(len(matrix.data))
    for _ in range(PEELINGS):
        degrees = np.diff(matrix.indptr)
        inner = np.flatnonzero(degrees > 1)
        if len(inner) == matrix.shape[0] or not len(inner):
            break
        matrix = matrix[inner][:, inner]
    if matrix.nnz <= 2 * (matrix.shape[0] - 1):
        return 1
    far = 0
    for _ in range(2):
        order, before = breadth_first_order(matrix, far, directed=False)
        level = _depths(before)
        far = int(order[-1])
    return int(np.bincount(level[order]).max())


def _depths(before: NDArray[Any]) -> NDArray[np.int64]:
    """The number of steps to the root for each node of a forest given by parents (negative: none)."""
    above = np.where(before < 0, np.arange(len(before)), before).astype(np.int64)
    depth = (before >= 0).astype(np.int64)
    while True:
        further = depth[above]
        if not further.any():
            return depth
        depth += further
        above = above[above]
