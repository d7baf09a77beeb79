"""From a Hermitian matrix over a graph to the columns of a spectral encoding.

Each connected component is solved by itself: the spectrum of a graph is the union of those of its components, each of
which has exactly one null vector, known beforehand. So no number of components leads a solver astray, and a heavy
component does not spoil the digits of another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.graph import solvers
from pe_cli.encodings.graph.hermitian import (
    EPS,
    MOST_NOISE,
    SPACE_NOISE,
    Axes,
    Hermitian,
    Reals,
    Vectors,
    by_incidence,
    canonical_basis,
    depends_on_noise,
    edge_sums,
    part_from_null_vector,
    quiet,
    refined,
    spread_weights,
)
from pe_cli.encodings.graph.members import Members, Spaces, Stack
from pe_cli.encodings.graph.solvers import Solver
from pe_cli.errors import PeError, counted, parameter
from pe_cli.process import require_memory
from pe_cli.structures import Graph

Multiplet: TypeAlias = Literal["warn", "extend", "error"]
Integers: TypeAlias = NDArray[np.int64]
# SpectralColumns (f, s) of unit length, their eigenvalues (f,) and nodes (f, s) to columns in the scale that is asked for.
Finish: TypeAlias = Callable[[Vectors, Reals, Integers], Vectors]

MOST_WHOLE = 6000  # nodes of a component up to which all eigenpairs are computed if need be
SMALL = 64  # nodes up to which a component is solved whole, whatever solver is asked for
ROUND = 8  # times eps / gap: by so much may an entry differ from one processor to another
NOISE = 64  # times eps / gap: entries of a single column below are 0
NEAR = 1e-12  # eps / gap above which columns are always refined


@dataclass
class SolvedStack:
    """The smallest eigenpairs of components of one size, null vectors left out; ascending.

    Column `skipped + j` of `vectors` (b, s, r) belongs to `values` (b, j). Where these are all eigenvectors, `matrices`
    are what they were made from. `doubt` (b, j) is how far an eigenvalue may be off, and `unit` (b, j) the noise of the
    solver: an eigenvector may be off by about that over its distance to the nearest other eigenvalue.
    """

    stack: Stack
    values: Reals
    vectors: Vectors
    skipped: int
    doubt: Reals
    unit: Reals
    matrices: Vectors | None
    complete: bool = True


class SpectralColumns(NamedTuple):
    """The columns of an encoding, with what there is to say about them.

    `values` (graphs, K), `vectors` (n, K) and `found` (graphs,), the number of columns that there are. `multiplicities`
    are the sizes of the eigenspaces of a single graph, `cut` (graphs,) how many dimensions of the last one are left out.
    `canonical` (graphs, K) tells, where `axes` are asked for, which columns do not depend on the numbering of the nodes.
    """

    values: Reals
    vectors: Vectors
    found: NDArray[np.int64]
    multiplicities: list[int]
    cut: NDArray[np.int64]
    open_end: bool
    residual: float
    canonical: NDArray[np.bool_] | None


class Spectra:
    """The components of a Hermitian matrix and their smallest eigenpairs."""

    def __init__(
        self, graph: Graph, matrix: Hermitian, count: int, solver: Solver, *, each: bool = False
    ) -> None:
        self.matrix, self.count, self.solver, self._graph = matrix, count, solver, graph
        self.each = each
        self.members = Members(matrix.off)
        sizes = self.members.sizes
        self.groups = (
            np.arange(len(sizes)) if each else graph.graph_of[self.members.first_nodes]
        )  # of each component: its graph, or itself
        self.group_count = len(sizes) if each else graph.num_graphs
        held = 2 * matrix.dtype.itemsize * int(np.minimum(sizes, count + SMALL) @ sizes)
        require_memory(
            held, f"{count} eigenvectors of {matrix.size} nodes", f"use a smaller {parameter('k')}"
        )
        self.solvers: set[str] = set()
        most = solvers.WHOLE if solver in ("auto", "dense") else SMALL
        self.solved = [self._stack(stack) for stack in self.members.stacks(most, "components")]
        self.solved += [self._large(stack) for stack in self.members.larger(most)]

    def with_null_vector(self) -> Integers:
        """The components that have a null vector, in order."""
        assert self.matrix.null is not None
        return np.flatnonzero(self.matrix.null[self.members.first_nodes])

    def unit_null(self, nodes: Integers) -> Reals:
        """The null vector of the component with these nodes."""
        assert self.matrix.null is not None
        return np.asarray(self.matrix.null[nodes] / np.linalg.norm(self.matrix.null[nodes]))

    def _stack(self, stack: Stack) -> SolvedStack:
        nodes, size = stack.nodes, stack.size
        diagonal = self.matrix.diagonal[nodes]
        null = None if self.matrix.null is None else self.matrix.null[nodes]
        skipped = int(null is not None and bool(null[0, 0]))
        norm = 2 * np.abs(diagonal).max(axis=1, keepdims=True)
        if size == 1:
            one = np.ones((len(nodes), 1, 1), dtype=self.matrix.dtype)
            values = diagonal[:, skipped:]
            return SolvedStack(
                stack, values, one, skipped, np.zeros_like(values), np.zeros_like(values), None
            )
        self.solvers.add("dense")
        matrices = self.members.dense(self.matrix.off, nodes)
        matrices[:, np.arange(size), np.arange(size)] = diagonal
        values, vectors = np.linalg.eigh(matrices)
        if null is not None:
            part_from_null_vector(matrices, null, values, vectors)
        else:
            values[np.abs(values) <= solvers.TIE * norm] = 0
        doubt, unit = (np.repeat(share * norm, size, axis=1) for share in (solvers.TIE, EPS))
        if self.matrix.combinatorial:
            for item in np.flatnonzero(spread_weights(matrices)):
                found = by_incidence(matrices[item])
                if found is not None:
                    values[item], vectors[item], doubt[item], unit[item] = found
        return SolvedStack(
            stack, values[:, skipped:], vectors, skipped, doubt[:, skipped:], unit[:, skipped:], matrices
        )

    def _large(self, stack: Stack) -> SolvedStack:
        nodes = stack.nodes[0]
        null = None if self.matrix.null is None else self.matrix.null[nodes]
        if null is not None:
            null = null / np.linalg.norm(null)
        diagonal = self.matrix.diagonal[nodes]
        bound = min(self.matrix.bound, 2 * float(np.abs(diagonal).max()))
        part = Hermitian(
            diagonal, self.members.block(self.matrix.off, nodes), bound, null, self.matrix.combinatorial
        )
        pairs = solvers.smallest(part, self.count, self.solver)
        self.solvers.add(pairs.solver)
        doubt = solvers.RELATIVE_TIE * np.abs(pairs.values) + solvers.TIE * bound
        return SolvedStack(
            stack,
            pairs.values[None],
            pairs.vectors[None],
            0,
            doubt[None],
            np.full((1, len(pairs.values)), EPS * bound),
            None,
            pairs.complete,
        )

    def columns(
        self,
        k: int,
        trivial: Integers,
        multiplet: Multiplet,
        finish: Finish | None = None,
        axes: Axes | None = None,
    ) -> SpectralColumns:
        """The null vectors of the components `trivial`, then the smallest other eigenpairs; k in all of each graph."""
        spaces = None if axes is None else self._spaces(trivial)
        rank = _ranks(self.groups[trivial])
        if multiplet == "error" and rank.max(initial=0) >= k:
            raise _cuts(k, int(rank.max()) + 1 - k)
        if multiplet != "extend":
            trivial, rank = trivial[rank < k], rank[rank < k]
        before = np.bincount(self.groups[trivial], minlength=self.group_count)
        choice = _Choice(self, k, before, multiplet, whole=axes is not None)
        found = before + choice.taken
        width = max(k, int(found.max(initial=0))) if multiplet == "extend" else k
        values = np.zeros((self.group_count, width))
        vectors = np.zeros((self.matrix.size, width), dtype=self.matrix.dtype)
        for component, place in zip(trivial.tolist(), rank.tolist(), strict=True):
            nodes = self.members.nodes(component)
            unit = self.unit_null(nodes)[None]
            vectors[nodes, place] = (finish(unit, np.zeros(1), nodes[None]) if finish else unit)[0]
        miss = 0.0
        for own in choice.by_stack(before):
            rows, exact = own.rows(finish, self.matrix.combinatorial)
            nodes = own.solved.stack.nodes[own.member]
            if not self._graph.several:
                miss = max(miss, self._residual(nodes, rows, exact))
            if spaces is not None:
                own.into(spaces, rows, exact)
            else:
                vectors[nodes, own.rank[:, None]] = finish(rows, exact, nodes) if finish else rows
            shown = own.rank < width
            values[own.group[shown], own.rank[shown]] = exact[shown]
        canonical = None
        if spaces is not None and axes is not None and finish is not None:
            canonical = spaces.into(vectors, found, finish, axes)
        return SpectralColumns(
            values,
            vectors,
            found,
            choice.multiplicities(trivial.size > 0, self),
            choice.cut,
            choice.open_end,
            miss / (self.matrix.bound or 1.0),
            canonical,
        )

    def _spaces(self, trivial: Integers) -> Spaces:
        """The whole eigenspaces of each graph, or of each component; at first those of 0 that `trivial` is of."""
        graph, members = self._graph, self.members
        groups = members if self.each else Members(self.matrix.off, graph.graph_of)
        spaces = Spaces(groups)
        null = self.with_null_vector()
        shown, there = (np.bincount(self.groups[c], minlength=self.group_count) for c in (trivial, null))
        for component, turn in zip(null.tolist(), _ranks(self.groups[null]).tolist(), strict=True):
            own, nodes = self.groups[component], members.nodes(component)
            if shown[own]:
                first = shown[own] - there[own]  # -1 where one is dropped
                spaces.add(nodes[None], self.unit_null(nodes)[None], -1 - own, turn, first, 0.0, 0.0, True)
        return spaces

    def _residual(self, nodes: Integers, rows: Vectors, values: Reals) -> float:
        """The largest norm of L v - λ v."""
        misses = [0.0]
        for own, row, value in zip(nodes, rows, values.tolist(), strict=True):
            vector = np.zeros(self.matrix.size, dtype=rows.dtype)
            vector[own] = row
            misses.append(float(np.linalg.norm(self.matrix.apply(vector) - value * vector)))
        return max(misses)


class _Choice:
    """Which eigenpairs of which components are the smallest of each graph.

    Candidates are sorted by graph, by eigenspace, and within that by component: an eigenspace of a graph is the sum of
    those of its components, and each keeps its own.
    """

    def __init__(
        self, spectra: Spectra, k: int, before: Integers, multiplet: Multiplet, *, whole: bool
    ) -> None:
        self._solved, wanted = spectra.solved, k - before
        pieces: list[tuple[NDArray[Any], ...]] = []
        most = int(wanted.max(initial=0))
        all_pairs = not spectra._graph.several or multiplet != "warn"
        for number, solved in enumerate(self._solved):
            keep = _kept(solved, solved.values.shape[1] if all_pairs else most)
            member, place = np.nonzero(keep)
            pieces.append(
                (
                    np.full(len(member), number),
                    member,
                    place,
                    solved.stack.components[member],
                    solved.values[member, place],
                    solved.doubt[member, place],
                )
            )
        empty = (np.zeros(0, dtype=np.int64),) * 4 + (np.zeros(0),) * 2
        which, member, place, component, value, doubt = (
            (np.concatenate(parts) for parts in zip(*pieces, strict=True)) if pieces else empty
        )
        group = spectra.groups[component] if len(component) else component
        by_value = np.lexsort((value, group))
        apart = np.diff(value[by_value]) > np.maximum(doubt[by_value][1:], doubt[by_value][:-1])
        space = np.empty(len(value), dtype=np.int64)
        space[by_value] = np.cumsum(
            np.concatenate([[0], apart | (np.diff(group[by_value]) != 0)])[: len(value)]
        )
        order = np.lexsort((place, component, space))
        self.which, self.member, self.place = which[order], member[order], place[order]
        self.group, self.space, self.value = group[order], space[order], value[order]
        self.component = component[order]
        self.rank = _ranks(self.group)
        last = np.zeros(int(space.max(initial=-1)) + 1, dtype=bool)
        taken = self.rank < wanted[self.group]
        last[self.space[taken]] = True
        whole_spaces = last[self.space]
        beyond = whole_spaces & ~taken
        self.cut = np.bincount(self.group[beyond], minlength=spectra.group_count)
        if multiplet == "error" and self.cut.any():
            raise _cuts(k, int(self.cut.max()))
        if multiplet == "extend":
            taken = whole_spaces
            self.cut = np.zeros_like(self.cut)
        self._chosen = whole_spaces if whole else taken
        self.taken = np.bincount(self.group[taken], minlength=spectra.group_count)
        self.open_end = self._goes_on()

    def _goes_on(self) -> bool:
        """Whether the last eigenspace may have more dimensions than were computed."""
        if not self._chosen.any() or all(solved.complete for solved in self._solved):
            return False
        largest = self.value[self._chosen].max()
        return any(
            not solved.complete and bool((solved.values[:, -1] <= largest + solved.doubt[:, -1]).any())
            for solved in self._solved
        )

    def multiplicities(self, trivial: bool, spectra: Spectra) -> list[int]:
        """The sizes of the eigenspaces of a single graph."""
        if spectra._graph.several:
            return []
        sizes = np.bincount(self.space)[np.unique(self.space[self._chosen])].tolist()
        return [*([len(spectra.with_null_vector())] if trivial else []), *sizes]

    def by_stack(self, before: Integers) -> list[_Part]:
        """The chosen columns of each stack, parted by the dimension of the eigenspace within the component."""
        joint = np.flatnonzero(
            np.concatenate([[True], (np.diff(self.space) != 0) | (np.diff(self.component) != 0)])
        )[: max(len(self.space), 0)]
        lengths = np.diff(np.append(joint, len(self.space)))
        first = np.repeat(self.place[joint], lengths)
        dimension = np.repeat(lengths, lengths)
        chosen = np.flatnonzero(self._chosen)
        order = chosen[np.lexsort((dimension[chosen], self.which[chosen]))]
        within = _ranks(self.space)
        keys = self.which[order] * (int(dimension.max(initial=0)) + 1) + dimension[order]
        ends = np.diff(keys, prepend=-1, append=-1) != 0 if keys.size else keys != 0
        parts = []
        for begin, end in pairwise(np.flatnonzero(ends).tolist()):
            own = order[begin:end]
            parts.append(
                _Part(
                    self._solved[self.which[own[0]]],
                    self.member[own],
                    self.place[own],
                    first[own],
                    int(dimension[own[0]]),
                    self.group[own],
                    self.rank[own] + before[self.group[own]],
                    self.space[own],
                    within[own],
                )
            )
        return parts


@dataclass
class _Part:
    """Chosen columns of one stack, all of eigenspaces of one dimension that begin at `first` (f,)."""

    solved: SolvedStack
    member: Integers
    place: Integers
    first: Integers
    dimension: int
    group: Integers
    rank: Integers
    space: Integers  # of the graph
    column: Integers  # within that space

    def rows(self, finish: Finish | None, combinatorial: bool) -> tuple[Vectors, Reals]:
        """(f, s) the unit columns as rows, without the noise of the solver; and their eigenvalues (f,)."""
        solved, nodes = self.solved, self.solved.stack.nodes[self.member]
        values = solved.values[self.member, self.place]
        if solved.stack.size == 1:
            ones = np.ones((len(self.member), 1), dtype=solved.vectors.dtype)
            return ones, values
        noise = self._noise()
        rows = self._single(noise, finish, nodes, values) if self.dimension == 1 else self._bases(noise)
        if solved.matrices is not None and combinatorial:
            values = edge_sums(solved.matrices, self.member, rows)
        return rows, values

    def _noise(self) -> Reals:
        """(f,) eps / gap: by about so much the solver's noise turns a column into others."""
        values = self.solved.values
        low = np.where(
            self.first > 0,
            values[self.member, np.maximum(self.first - 1, 0)],
            0.0 if self.solved.skipped else -np.inf,
        )
        end = self.first + self.dimension
        high = np.where(
            end < values.shape[1], values[self.member, np.minimum(end, values.shape[1] - 1)], np.inf
        )
        low_gap = values[self.member, self.first] - low
        high_gap = high - values[self.member, np.minimum(end, values.shape[1]) - 1]
        gap = np.minimum(low_gap, high_gap)
        unit = self.solved.unit[self.member, self.place]
        return np.asarray(np.divide(unit, gap, out=np.ones_like(unit), where=gap > unit), dtype=np.float64)

    def into(self, spaces: Spaces, rows: Vectors, values: Reals) -> None:
        """Add the columns `rows` (f, s) to the spaces of their graphs.

        They are sharp where all of the space is known, and told so well from others that entries of one size are seen.
        """
        solved, noise = self.solved, self._noise()
        left = ROUND * noise * (1.0 if solved.matrices is None else noise)
        inside = (
            solved.complete
            or solved.values[self.member, self.place]
            < (solved.values[:, -1] - solved.doubt[:, -1])[self.member]
        )
        spaces.add(
            solved.stack.nodes[self.member],
            rows,
            self.space,
            self.column,
            self.rank - self.column,
            values,
            np.minimum(SPACE_NOISE * noise, MOST_NOISE),
            (left < MOST_NOISE) & inside,
        )

    def _columns(self, which: Integers, offset: int = 0) -> Vectors:
        column = self.solved.skipped + self.first[which] + offset
        return np.asarray(self.solved.vectors[self.member[which], :, column])

    def _refined(self, which: Integers, rows: Vectors) -> Vectors:
        solved = self.solved
        if solved.matrices is None:
            return rows
        own = self.member[which]
        values = solved.values[own]
        if solved.skipped:
            values = np.concatenate([np.zeros((len(own), 1)), values], axis=1)
        return refined(
            solved.matrices[own],
            solved.vectors[own],
            values,
            self.first[which] + solved.skipped,
            self.dimension,
            rows,
        )

    def _single(self, noise: Reals, finish: Finish | None, nodes: Integers, values: Reals) -> Vectors:
        # a complex column has its phase before its noise is looked at
        rows = canonical_basis(self._columns(np.arange(len(self.member)))[:, :, None], 1)[:, :, 0]
        near = noise > NEAR
        limit = np.minimum(np.where(near, NOISE * (EPS + noise * noise), NOISE * noise), MOST_NOISE)
        doubtful = near | depends_on_noise(
            rows, finish(rows, values, nodes) if finish else rows, ROUND * noise, limit
        )
        which = np.flatnonzero(doubtful)
        if which.size:
            rows[which] = self._refined(which, np.ascontiguousarray(rows[which]))
        rows = canonical_basis(quiet(rows, limit)[:, :, None], 1)[:, :, 0]
        return quiet(rows, np.maximum(limit, NOISE * EPS))

    def _bases(self, noise: Reals) -> Vectors:
        """The canonical basis of each eigenspace, as many of its columns as are chosen."""
        spaces, inverse = np.unique(np.stack([self.member, self.first], axis=1), axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        one = np.zeros(len(spaces), dtype=np.int64)
        one[inverse] = np.arange(len(self.member))
        vectors = np.stack([self._columns(one, column) for column in range(self.dimension)], axis=2)
        for column in range(self.dimension):
            vectors[:, :, column] = self._refined(one, np.ascontiguousarray(vectors[:, :, column]))
        turn = self.place - self.first
        basis = canonical_basis(vectors, int(turn.max()) + 1)
        return quiet(np.asarray(basis[inverse, :, turn]), np.minimum(SPACE_NOISE * noise, MOST_NOISE))


def _cuts(k: int, more: int) -> PeError:
    return PeError(
        f"{parameter('k')} {k} cuts an eigenspace: "
        f"{counted(more, 'more column shares', 'more columns share')} the last eigenvalue; {parameter('multiplet')} extend"
    )


def _kept(solved: SolvedStack, most: int) -> NDArray[np.bool_]:
    """(b, j) the first `most` eigenpairs of each component, and all further ones of the same eigenspace."""
    keep = np.zeros_like(solved.values, dtype=bool)
    keep[:, :most] = True
    if 0 < most < keep.shape[1]:
        tied = np.diff(solved.values[:, most - 1 :], axis=1) <= solved.doubt[:, most:]
        keep[:, most:] = np.logical_and.accumulate(tied, axis=1)
    return keep


def _ranks(groups: Integers) -> Integers:
    """The place of each entry within its group; `groups` ascend."""
    if not groups.size:
        return np.zeros(0, dtype=np.int64)
    first = np.flatnonzero(np.concatenate([[True], np.diff(groups) != 0]))
    return np.arange(len(groups)) - np.repeat(first, np.diff(np.append(first, len(groups))))
