"""The smallest eigenpairs of the Laplacian of a connected graph: dense, shift-invert, Lanczos.

Small graphs are solved whole by numpy. Beyond, scipy's ARPACK works on an operator whose largest eigenvalues are
the smallest of the Laplacian L: its pseudo-inverse, where the graph can be factorised cheaply (paths, trees, meshes),
else bound - L (graphs with a large gap, whose factors would fill up), or, where a few hubs make the bound large, the
pseudo-inverse by conjugate gradients. The known null vector is projected away. ARPACK can miss copies of a multiple
eigenvalue with perfect residuals: a second run, with what was found deflated, looks for them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.graph.hermitian import SEPARATE, Hermitian, Reals, Vectors, part_from_null_vector
from pe_cli.errors import PeError, parameter
from pe_cli.process import require_memory, step
from pe_cli.structures.forest import steps_to_root
from pe_cli.structures.graph import SparseRows, need_scipy

Apply: TypeAlias = Callable[[Vectors], Vectors]
ToValue: TypeAlias = Callable[[Reals], Reals]
CG_TOLERANCE, MOST_CG = 1e-13, 1000
SHIFT = 1e-6  # of the bound, where no null vector is known


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
            f"the factor of a component of {matrix.size} nodes failed ({trouble}); try {parameter('solver')} lanczos"
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


Solver: TypeAlias = Literal["auto", "dense", "lanczos", "shift-invert", "cg"]
WHOLE = 1000  # nodes up to which all eigenpairs are computed, which shows every multiplicity
DENSE = 2000  # nodes up to which a dense solver is used
PEELINGS = 50  # rounds of taking leaves off before the width of a graph is measured
WIDEST = 3000  # width of a separator whose factor, about width^2 numbers, takes at most some seconds
EXTRA = 4  # eigenpairs beyond those wanted, cheap with shift-invert, that speed up convergence
HUBS = 15  # times the mean degree, from which bound - L converges too slowly
# relative to the largest eigenvalue of the operator
TOLERANCE = {"shift-invert": 0.0, "lanczos": 1e-11, "cg": 1e-11}
MOST_RESTARTS = {"shift-invert": 300, "lanczos": 400, "cg": 100}
# Eigenvalues are copies of one where a solver cannot tell them apart: relative to the norm, and of iterative ones.
TIE, RELATIVE_TIE = 2e-13, 1e-9


class Eigenpairs(NamedTuple):
    """The smallest eigenpairs, the known null vector left out; `complete` where they are all there are."""

    values: NDArray[np.float64]
    vectors: Vectors
    solver: str
    complete: bool


def smallest(matrix: Hermitian, count: int, solver: Solver = "auto") -> Eigenpairs:
    """The `count` smallest eigenpairs of `matrix` beside its null vector; of a dense solver all that it computes."""
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
            f"{solver} did not converge on a component of {matrix.size} nodes; try another {parameter('solver')}, or a smaller {parameter('k')}"
        )
    return Eigenpairs(*found, solver, False)


def _chosen(matrix: Hermitian) -> Solver:
    if matrix.size <= DENSE:
        return "dense"
    need_scipy(f"a component of {matrix.size} nodes (numpy alone: up to {DENSE})")
    width = _width(matrix.off)
    if width <= min(WIDEST, max(300, 6 * matrix.size**0.5)):
        return "shift-invert"
    return "cg" if matrix.diagonal.max() > HUBS * matrix.diagonal.mean() else "lanczos"


def _dense(matrix: Hermitian, count: int) -> Eigenpairs:
    n = matrix.size
    require_memory(
        4 * matrix.dtype.itemsize * n * n,
        f"a dense solver for {n} nodes",
        f"leave out {parameter('solver')} dense",
    )
    skipped = int(matrix.null is not None)
    complete = n <= WHOLE or n > DENSE or count >= n - skipped or not _has_scipy()
    if complete:
        full = matrix.dense()
        values, vectors = np.linalg.eigh(full)
    else:
        from scipy.linalg import eigh

        values, vectors = eigh(matrix.dense(), subset_by_index=[0, count + skipped - 1])
    if matrix.null is not None:
        if complete:
            part_from_null_vector(full[None], matrix.null[None], values[None], vectors[None])
        elif values[1] < SEPARATE * matrix.bound:
            moved = matrix.dense() + 3 * matrix.bound * np.outer(matrix.null, matrix.null)
            values, vectors = eigh(moved, subset_by_index=[0, count - 1])
            skipped = 0
    return Eigenpairs(values[skipped:], vectors[:, skipped:], "dense", complete)


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
    require_memory(matrix.dtype.itemsize * n * (kept + 3 * asked), what, f"use a smaller {parameter('k')}")
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
            if to_value(probe)[0] >= limit - RELATIVE_TIE * 10 * abs(limit) - TIE * matrix.bound:
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


def _width(off: SparseRows) -> int:
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
        level = steps_to_root(before)
        far = int(order[-1])
    return int(np.bincount(level[order]).max())
