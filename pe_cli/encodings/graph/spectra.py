"""From a Hermitian matrix over a graph to the columns of a spectral encoding.

Each connected component is solved by itself: the spectrum of a graph is the union of those of its components,
each of which has exactly one null vector, known beforehand. So no number of components leads a solver astray.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.graph import solvers
from pe_cli.encodings.graph.solvers import Hermitian, Solver, Vectors
from pe_cli.errors import PeError, counted, parameter
from pe_cli.memory import require_memory
from pe_cli.structures.graph import components

Multiplet: TypeAlias = Literal["warn", "extend", "error"]

MOST_WHOLE = 6000  # nodes of a component up to which all eigenpairs are computed if need be
SMALL = 64  # nodes up to which components of one size are solved together


@dataclass
class Piece:
    """A connected component with its smallest eigenpairs, the null vector left out; ascending."""

    nodes: NDArray[np.int64]
    values: NDArray[np.float64]
    vectors: Vectors
    complete: bool = True


class ChosenColumns(NamedTuple):
    """Chosen eigenpairs: values (K,), vectors (n, K), the size of each eigenspace, how many columns are cut off."""

    values: NDArray[np.float64]
    vectors: Vectors
    multiplicities: list[int]
    cut: int


class SpectralColumns(NamedTuple):
    """The columns of an encoding with what there is to say about them."""

    values: NDArray[np.float64]
    vectors: Vectors
    multiplicities: list[int]
    warnings: tuple[str, ...]
    residual: float


class Spectra:
    """The components of a Hermitian matrix and their smallest eigenpairs."""

    def __init__(self, matrix: Hermitian, count: int, solver: Solver) -> None:
        self.matrix = matrix
        self.labels = components(matrix.off)
        self.sizes = np.bincount(self.labels)
        self.solvers: set[str] = set()
        self.count = count
        self._order = np.argsort(self.labels, kind="stable")
        self._starts = np.concatenate([[0], np.cumsum(self.sizes)])
        self._place = np.empty(matrix.size, dtype=np.int64)
        self._place[self._order] = np.arange(matrix.size) - self._starts[self.labels[self._order]]
        held = 2 * matrix.dtype.itemsize * int(np.minimum(self.sizes, count + SMALL) @ self.sizes)
        require_memory(
            held, f"{count} eigenvectors of {matrix.size} nodes", f"use a smaller {parameter('k')}"
        )
        self.pieces = self._solved(count, solver)

    def nodes(self, component: int) -> NDArray[np.int64]:
        return self._order[self._starts[component] : self._starts[component + 1]]

    def null_vector(self, component: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        assert self.matrix.null is not None
        nodes = self.nodes(component)
        part = self.matrix.null[nodes]
        return nodes, part / np.linalg.norm(part)

    def with_null_vector(self) -> NDArray[np.int64]:
        """The components that have a null vector, in order."""
        assert self.matrix.null is not None
        return np.flatnonzero(self.matrix.null[self._order[self._starts[:-1]]])

    def _solved(self, count: int, solver: Solver) -> dict[int, Piece]:
        pieces: dict[int, Piece] = {}
        for size in np.unique(self.sizes[(self.sizes > 1) & (self.sizes <= SMALL)]):
            chosen = np.flatnonzero(self.sizes == size)
            nodes = self._order[self._starts[chosen][:, None] + np.arange(size)]
            for component, members, found in zip(
                chosen, nodes, solvers.small_spectra(self.matrix, nodes, self._place), strict=True
            ):
                pieces[int(component)] = Piece(members, *found)
            self.solvers.add("dense")
        for component in np.flatnonzero(self.sizes > SMALL).tolist():
            nodes = self.nodes(component)
            part = self._part(nodes, component)
            solution = solvers.smallest(part, count, solver)
            pieces[component] = Piece(nodes, solution.values, solution.vectors, solution.complete)
            self.solvers.add(solution.solver)
        return pieces

    def _part(self, nodes: NDArray[np.int64], component: int) -> Hermitian:
        matrix = self.matrix
        off = matrix.off if len(nodes) == matrix.size else matrix.off.block(nodes, self._place)
        null = None if matrix.null is None else self.null_vector(component)[1]
        return Hermitian(matrix.diagonal[nodes], off, matrix.bound, null)

    def chosen(self, wanted: int, multiplet: Multiplet, component: int | None = None) -> ChosenColumns:
        """The `wanted` smallest eigenpairs beside the null vectors, of the whole graph or of one component."""
        candidates = self._candidates(wanted, component)
        rows = self.matrix.size if component is None else int(self.sizes[component])
        vectors = np.zeros((rows, 0), dtype=self.matrix.dtype)
        if not candidates or not wanted:
            return ChosenColumns(np.zeros(0), vectors, [], 0)
        values = np.concatenate([piece.values for piece in candidates])
        owner = np.repeat(np.arange(len(candidates)), [len(piece.values) for piece in candidates])
        by_value = np.argsort(values, kind="stable")
        space = np.empty(len(values), dtype=np.int64)
        space[by_value] = solvers.ties(values[by_value], self.matrix.bound)
        order = np.lexsort((np.arange(len(values)), owner, space))
        last = space[order[min(wanted, len(order)) - 1]]
        whole = int(np.count_nonzero(space <= last))
        cut = max(0, whole - wanted)
        if cut and multiplet == "error":
            raise PeError(
                f"{parameter('k')} {wanted} cuts an eigenspace: {counted(cut, 'more column shares', 'more columns share')} the last eigenvalue; {parameter('multiplet')} extend"
            )
        order = order[: whole if multiplet == "extend" else wanted]
        vectors = np.zeros((rows, len(order)), dtype=self.matrix.dtype)
        self._fill(vectors, candidates, owner, space, order)
        sizes = np.bincount(space)[np.unique(space[order])].tolist()
        return ChosenColumns(values[order], vectors, sizes, 0 if multiplet == "extend" else cut)

    def _candidates(self, wanted: int, component: int | None) -> list[Piece]:
        """The components that take part; single nodes too, where they have an eigenvector beside a null vector."""
        members = (
            sorted(self.pieces) if component is None else [component] if component in self.pieces else []
        )
        alone = np.flatnonzero(self.sizes == 1) if component is None else np.array([component])
        nodes = self._order[self._starts[alone[self.sizes[alone] == 1]]]
        if self.matrix.null is not None:
            nodes = nodes[self.matrix.null[nodes] == 0]
        one = np.ones((1, 1), dtype=self.matrix.dtype)
        # beyond wanted + 1 of them there is only more of the same
        single = [Piece(node[None], self.matrix.diagonal[node][None], one) for node in nodes[: wanted + 1]]
        return [*(self.pieces[member] for member in members), *single]

    def _fill(
        self,
        vectors: Vectors,
        candidates: list[Piece],
        owner: NDArray[np.int64],
        space: NDArray[np.int64],
        order: NDArray[np.int64],
    ) -> None:
        """Write the basis of each eigenspace: the part of each component by itself, in the order of `order`."""
        first = np.concatenate([[0], np.cumsum(np.bincount(owner))])
        column = 0
        while column < len(order):
            member, which = owner[order[column]], space[order[column]]
            piece = candidates[member]
            own = np.flatnonzero(space[first[member] : first[member + 1]] == which)
            taken = int(np.count_nonzero((space[order] == which) & (owner[order] == member)))
            rows = piece.nodes if len(vectors) == self.matrix.size else slice(None)
            vectors[rows, column : column + taken] = solvers.canonical_basis(piece.vectors[:, own], taken)
            column += taken


def of_all(
    matrix: Hermitian,
    solved: Spectra,
    k: int,
    trivial: NDArray[np.int64],
    multiplet: Multiplet,
    solver: Solver,
) -> SpectralColumns:
    """The null vectors of the components `trivial`, then the smallest other eigenpairs of the whole graph; k in all."""
    wanted = k - len(trivial)
    columns = solved.chosen(wanted, multiplet)
    if multiplet == "extend" and _goes_on(solved, columns):
        solved, columns = _extended(matrix, solved, wanted, solver)
    vectors = np.zeros((matrix.size, len(trivial) + columns.vectors.shape[1]), dtype=matrix.dtype)
    for column, component in enumerate(trivial):
        nodes, null = solved.null_vector(int(component))
        vectors[nodes, column] = null
    vectors[:, len(trivial) :] = columns.vectors
    warnings: tuple[str, ...] = ()
    if columns.cut:
        least = "at least " if _goes_on(solved, columns) else ""
        warnings = (
            f"k cuts an eigenspace: {least}{counted(columns.cut, 'more column shares', 'more columns share')} the eigenvalue "
            f"{columns.values[-1]:.6g}; --multiplet extend takes them all",
        )
    values = np.concatenate([np.zeros(len(trivial)), columns.values])
    sizes = ([len(solved.with_null_vector())] if len(trivial) else []) + columns.multiplicities
    return SpectralColumns(values, vectors, sizes, warnings, residual(matrix, vectors, values))


Finish: TypeAlias = Callable[[Vectors, NDArray[np.float64], NDArray[np.int64]], Vectors]


def of_each(
    solved: Spectra,
    k: int,
    trivial: NDArray[np.int64],
    multiplet: Multiplet,
    finish: Finish,
    missing: float | None,
) -> SpectralColumns:
    """The k smallest eigenpairs of each component: values (components, k) and vectors (n, k).

    `missing` fills the columns of components that have fewer; None makes them an error.
    """
    if multiplet == "extend":
        raise PeError(
            f"{parameter('components')} each has k columns for every component: {parameter('multiplet')} extend does not fit"
        )
    size = solved.matrix.size
    values, vectors = np.zeros((len(solved.sizes), k)), np.zeros((size, k), dtype=solved.matrix.dtype)
    with_null = np.isin(np.arange(len(solved.sizes)), trivial)
    filled, cut = np.zeros(len(solved.sizes), dtype=np.int64), 0
    for component in range(len(solved.sizes)):
        columns = solved.chosen(k - int(with_null[component]), multiplet, component)
        own_values, own = columns.values, columns.vectors
        nodes = solved.nodes(component)
        if with_null[component]:
            own = np.column_stack([solved.null_vector(component)[1], own])
            own_values = np.concatenate([[0.0], own_values])
        vectors[nodes, : own.shape[1]] = own
        values[component, : len(own_values)] = own_values
        filled[component] = own.shape[1]
        cut += columns.cut > 0
    warnings: tuple[str, ...] = ()
    short = int(np.count_nonzero(filled < k))
    if short:
        has = "has" if short == 1 else "have"
        lacking = f"{short} of {counted(len(solved.sizes), 'component', 'components')} {has} fewer than {counted(k, 'eigenvector', 'eigenvectors')}"
        if missing is None:
            raise PeError(f"{parameter('k')} {k}: {lacking}; {parameter('pad')} zero fills up")
        warnings += (f"{lacking}: filled with {missing:g}",)
    if cut:
        warnings += (
            f"k cuts an eigenspace in {cut} of {counted(len(solved.sizes), 'component', 'components')}",
        )
    found = residual(solved.matrix, vectors, values[solved.labels].T)
    for component in range(len(solved.sizes)):
        nodes = solved.nodes(component)
        width = filled[component]
        vectors[nodes, :width] = finish(vectors[nodes, :width], values[component, :width], nodes)
        if missing is not None:
            vectors[nodes, width:] = values[component, width:] = missing
    return SpectralColumns(values, vectors, [], warnings, found)


def _extended(
    matrix: Hermitian, solved: Spectra, wanted: int, solver: Solver
) -> tuple[Spectra, ChosenColumns]:
    """All of the last eigenspace: with more eigenpairs, then with all that there are."""
    for count, way in ((4 * solved.count, solver), (solved.count, "dense")):
        if way == "dense" and solved.sizes.max() > MOST_WHOLE:
            break
        more = Spectra(matrix, count, way)
        columns = more.chosen(wanted, "extend")
        if not _goes_on(more, columns):
            return more, columns
    raise PeError(
        f"{parameter('k')} {wanted} cuts an eigenspace of more than {3 * solved.count} dimensions: {parameter('multiplet')} warn takes a part of it"
    )


def residual(matrix: Hermitian, vectors: Vectors, values: NDArray[np.float64]) -> float:
    """The largest norm of L v - λ v, relative to the bound of the spectrum; `values` (K,) or (K, n)."""
    misses = [
        np.linalg.norm(matrix.apply(vector) - value * vector)
        for vector, value in zip(vectors.T, values, strict=True)
    ]
    return float(max(misses, default=0.0)) / (matrix.bound or 1.0)


def _goes_on(solved: Spectra, columns: ChosenColumns) -> bool:
    """Whether the last eigenspace may have more dimensions than were computed."""
    if not columns.values.size:
        return False
    near = columns.values[-1] * (1 + solvers.RELATIVE_TIE) + solvers.ABSOLUTE_TIE * solved.matrix.bound
    return any(not piece.complete and piece.values[-1] <= near for piece in solved.pieces.values())


def padded(array: NDArray[Any], width: int, value: float) -> NDArray[Any]:
    """`array` with columns of `value` up to `width` on its last axis."""
    missing = width - array.shape[-1]
    if missing <= 0:
        return array
    return np.concatenate([array, np.full((*array.shape[:-1], missing), value, dtype=array.dtype)], axis=-1)
