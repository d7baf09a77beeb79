"""Encodings of the nodes of a graph by eigenvectors: of the Laplacian, and of the magnetic Laplacian."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.graph import spectra
from pe_cli.encodings.graph.results import of_nodes, require_nodes, require_weights
from pe_cli.encodings.graph.solvers import (
    Isolated,
    Solver,
    Vectors,
    laplacian_matrix,
    magnetic_matrix,
    one_way_pairs,
)
from pe_cli.encodings.graph.spectra import Multiplet, Spectra, SpectralColumns
from pe_cli.errors import PeError, counted, parameter
from pe_cli.numerics.randomness import uniform_rows
from pe_cli.signature import Tensors, require_named
from pe_cli.structures import GraphLike, as_graph

Sign: TypeAlias = Literal["max-abs", "first", "random"]
VectorNorm: TypeAlias = Literal["l2", "l1", "abs-max", "wavelength"]
NO_WAVE = 1e-8  # eigenvalues up to this have no wavelength


def scaled(vectors: Vectors, values: NDArray[np.float64], vec_norm: VectorNorm) -> Vectors:
    """The unit columns (n, k) of eigenvalues (k,) in the scale called `vec_norm`."""
    if vec_norm == "l2" or not vectors.size:
        return vectors
    if vec_norm == "l1":
        return np.asarray(vectors / np.abs(vectors).sum(axis=0))
    scale = 1 / np.abs(vectors).max(axis=0)
    if vec_norm == "wavelength":
        scale *= np.pi / (2 * np.sqrt(np.where(values > NO_WAVE, values, 1.0)))
    return np.asarray(vectors * scale)


def signed(vectors: Vectors, sign: Sign, seed: int) -> Vectors:
    """The columns (n, k), each positive at its largest or first entry, or with random signs."""
    if not vectors.size:
        return vectors
    size = np.abs(vectors)
    share = 1e-6 if sign == "first" else 1 - 1e-6
    decisive = np.argmax(size >= share * size.max(axis=0), axis=0)
    signs = np.sign(vectors[decisive, np.arange(vectors.shape[1])])
    if sign == "random":
        signs *= np.sign(uniform_rows(np.arange(vectors.shape[1]), 1, seed)[:, 0] - 0.5)
    return np.asarray(vectors * signs + 0.0)


Pad: TypeAlias = Literal["zero", "nan", "error"]
Norm: TypeAlias = Literal["sym", "rw", "none"]
Drop: TypeAlias = Literal["zeros", "first", "none"]
Parted: TypeAlias = Literal["joint", "each"]
Potential: TypeAlias = Literal["absolute", "relative"]
MagneticNorm: TypeAlias = Literal["sym", "none"]
Convention: TypeAlias = Literal["half", "unit"]
Parts: TypeAlias = Literal["complex", "split"]

PADDING = {"zero": 0.0, "nan": float("nan")}
LARGEST_Q = 1e6


def laplacian(
    graph: GraphLike,
    k: int,
    *,
    norm: Norm = "sym",
    drop: Drop = "zeros",
    components: Parted = "joint",
    isolated: Isolated = "zero",
    multiplet: Multiplet = "warn",
    sign: Sign = "max-abs",
    vec_norm: VectorNorm = "l2",
    pad: Pad = "zero",
    solver: Solver = "auto",
    seed: int | None = None,
) -> Tensors:
    """The k smallest eigenvectors of the graph Laplacian, one row a node (LapPE).

    Tensors: eigenvectors (n, K), unit columns by default, and eigenvalues (K,), ascending. Added to the node
    features, after a linear layer, where nodes enter the network. It belongs to one graph: it does not
    extrapolate, and of other graphs only the eigenvalues can be compared.

    With A the weights and D the degrees, the Laplacian is L = D - A (none), I - D^-½ A D^-½ (sym), or
    I - D^-1 A (rw, whose eigenvectors are D^-½ times those of sym). Loops are left out. There are as many
    eigenvalues 0 as components; their vectors say only which component a node is in, and are dropped by default.

    Eigenvectors are free up to sign, and up to rotation where an eigenvalue is multiple. The basis written here
    depends on the eigenspace alone: projections of single nodes, each positive at its largest entry. So two
    runs, and different solvers, agree.

    Source: Dwivedi et al., "Benchmarking Graph Neural Networks", 2020 (arXiv:2003.00982), section 4.

    Parameters
    ----------
    graph : edge list, Matrix Market, scipy .npz, edge_index .npy or .npz, GraphML, node-link JSON; or - for stdin.
        One that is directed is made symmetric.
    k : number of columns.
    norm : the Laplacian: symmetric normalised, random walk, or combinatorial.
    drop : trivial columns to leave out: all of eigenvalue zero, only the first, or none.
    components : the k smallest of the whole graph, or of each component by itself (eigenvalues (components, k)).
    isolated : normalised eigenvalue of a node without edges: zero as in scipy, one as in PyG and DGL.
    multiplet : where k cuts an eigenspace: warn, extend to all of it, or refuse.
    sign : make positive the largest entry, or the first that is not zero; or random by --seed.
    vec_norm : scale columns to length 1 (l2), sum 1 (l1), largest 1, or the last times pi / (2 sqrt(eigenvalue)).
    pad : what fills the columns that a graph of too few nodes does not have.
    solver : dense up to 2,000 nodes; beyond, needs scipy: shift-invert for paths, trees and meshes, lanczos for graphs
        that branch out, cg (conjugate gradients) for those with hubs.
    seed : key of the random signs (0).

    Raises
    ------
    PeError
        For k < 1, a graph without nodes, negative weights, or more memory than there is.
    """
    graph = as_graph(graph)
    require_nodes(graph, k)
    require_named(Norm, norm=norm)
    require_named(Drop, drop=drop)
    require_named(Parted, components=components)
    _check_choices(isolated, multiplet, pad, solver)
    require_named(Sign, sign=sign)
    require_named(VectorNorm, vec_norm=vec_norm)
    if seed is not None and sign != "random":
        raise PeError(f"{parameter('seed')} {seed}: only {parameter('sign')} random draws")
    _check_isolated(isolated, norm)
    adjacency = graph.symmetric.without_loops()
    require_weights(graph, adjacency)
    matrix = laplacian_matrix(adjacency, norm == "none", isolated)
    half_degree = np.sqrt(np.where(matrix.diagonal > 0, adjacency.row_sums(), 1)) if norm == "rw" else None

    def finish(vectors: Vectors, values: NDArray[np.float64], nodes: Any = slice(None)) -> Vectors:
        if half_degree is not None:
            vectors = vectors / half_degree[nodes, None]
            vectors = vectors / np.linalg.norm(vectors, axis=0)
        return signed(scaled(vectors, values, vec_norm), sign, seed or 0)

    solved = Spectra(matrix, k + 1, solver)
    trivial = solved.with_null_vector()
    tensors: dict[str, NDArray[Any]]
    if components == "each":
        kept = trivial if drop == "none" else trivial[:0]
        found = spectra.of_each(solved, k, kept, multiplet, finish, PADDING.get(pad))
        tensors = {"eigenvectors": found.vectors, "eigenvalues": found.values, "component": solved.labels}
        facts: dict[str, Any] = {}
    else:
        kept = {"zeros": trivial[:0], "first": trivial[1:], "none": trivial}[drop][:k]
        found = spectra.of_all(matrix, solved, k, kept, multiplet, solver)
        tensors = {"eigenvectors": finish(found.vectors, found.values), "eigenvalues": found.values}
        facts = _columns(found)
    warnings = graph.doubts + found.warnings
    if len(kept) >= k and components == "joint":
        which = f"all {k} columns belong" if k > 1 else "the one column belongs"
        say = "they say" if k > 1 else "it says"
        warnings += (f"{which} to eigenvalue 0: {say} only which component a node is in",)
    facts["zero_eigenvalues"] = len(trivial)
    if graph.directed:
        warnings += (
            "the graph is directed: this is the Laplacian of (A + A')/2; `magnetic` keeps directions",
        )
    warnings += _filled(tensors, k, pad)
    return of_nodes(graph, tensors, facts | _solution(solved, found), warnings)


def magnetic(
    graph: GraphLike,
    k: int,
    *,
    q: float = 0.25,
    q_mode: Potential = "absolute",
    norm: MagneticNorm = "sym",
    convention: Convention = "half",
    isolated: Isolated = "zero",
    multiplet: Multiplet = "warn",
    pad: Pad = "zero",
    parts: Parts = "complex",
    solver: Solver = "auto",
) -> Tensors:
    """The k smallest eigenvectors of the magnetic Laplacian of a directed graph, complex.

    Tensors: eigenvectors (n, K), complex, or (n, K, 2) with real and imaginary part; eigenvalues (K,), ascending.
    Added to the node features after a layer; it belongs to one graph and does not extrapolate. Edges are taken as
    they are written, from first to second node, with or without --directed.

    L = D - A_s ∘ exp(i Θ) (none) or I - (D^-½ A_s D^-½) ∘ exp(i Θ) (sym), Θ = 2 pi q (A - A'), D the degrees of
    A_s = (A + A')/2 (half). With convention unit A_s and A are 1 wherever there is an edge. The phase says how
    many steps along and against the edges lie between two nodes; with q = 0.25 it comes round after four.
    Each column is free up to a phase: the entry of largest modulus is made real and positive.

    Source: Zhang et al., "MagNet", 2021 (arXiv:2102.11391), section 2; convention unit and relative q: Geisler et
    al., "Transformers Meet Directed Graphs", 2023 (arXiv:2302.00049), section 3.

    Parameters
    ----------
    graph : edge list, Matrix Market, scipy .npz, edge_index .npy or .npz, GraphML, node-link JSON; or - for stdin.
    k : number of columns; none is dropped.
    q : the potential, in turns for an edge.
    q_mode : relative: q divided by the number of one-way pairs, or by n if that is less.
    norm : symmetric normalised or combinatorial.
    convention : half: the mean of both directions; unit: 1 wherever there is an edge.
    isolated : normalised eigenvalue of a node without edges.
    multiplet : where k cuts an eigenspace: warn, extend to all of it, or refuse.
    pad : what fills the columns that a graph of too few nodes does not have.
    parts : one complex table, or real and imaginary part on a last axis of 2.
    solver : dense up to 2,000 nodes; beyond, needs scipy: shift-invert for paths, trees and meshes, lanczos for graphs
        that branch out, cg (conjugate gradients) for those with hubs.

    Raises
    ------
    PeError
        For k < 1, a graph without nodes, negative weights, a q that is not finite, or more memory than there is.
    """
    graph = as_graph(graph)
    require_nodes(graph, k)
    require_named(Potential, q_mode=q_mode)
    require_named(MagneticNorm, norm=norm)
    require_named(Convention, convention=convention)
    require_named(Parts, parts=parts)
    _check_choices(isolated, multiplet, pad, solver)
    if not abs(q) <= LARGEST_Q:
        raise PeError(f"{parameter('q')} {q:g}: give a number of turns, at most {LARGEST_Q:g} in size")
    _check_isolated(isolated, norm)
    arcs = graph.arcs.without_loops()
    require_weights(graph, arcs)
    one_way = one_way_pairs(arcs)
    turn = q / max(1, min(one_way, graph.num_nodes)) if q_mode == "relative" else q
    matrix = magnetic_matrix(arcs, turn, norm == "none", convention == "unit", isolated)
    solved = Spectra(matrix, k + 1, solver)
    found = spectra.of_all(matrix, solved, k, np.zeros(0, dtype=np.int64), multiplet, solver)
    warnings = found.warnings
    if not one_way or turn == 0:
        why = "every edge goes both ways" if not one_way else "q is 0"
        warnings += (f"{why}: this is the ordinary Laplacian, which `laplacian` gives with real vectors",)
    vectors = found.vectors
    tensors = {"eigenvectors": vectors, "eigenvalues": found.values}
    facts = _columns(found)
    facts |= {"one_way_pairs": one_way, "effective_q": turn} | _solution(solved, found)
    warnings += _filled(tensors, k, pad)
    if parts == "split":
        vectors = tensors["eigenvectors"]
        tensors["eigenvectors"] = np.stack([vectors.real, vectors.imag], axis=-1)
    return of_nodes(graph, tensors, facts, warnings)


def _check_choices(isolated: Isolated, multiplet: Multiplet, pad: Pad, solver: Solver) -> None:
    require_named(Isolated, isolated=isolated)
    require_named(Multiplet, multiplet=multiplet)
    require_named(Pad, pad=pad)
    require_named(Solver, solver=solver)


def _check_isolated(isolated: Isolated, norm: str) -> None:
    if isolated != "zero" and norm == "none":
        raise PeError(
            f"{parameter('isolated')} {isolated}: without normalisation ({parameter('norm')} none) its eigenvalue is 0"
        )


def _columns(found: SpectralColumns) -> dict[str, Any]:
    facts: dict[str, Any] = {"columns_found": len(found.values)}
    if max(found.multiplicities, default=1) > 1:
        facts["multiplicities"] = found.multiplicities
    return facts


def _solution(solved: Spectra, found: SpectralColumns) -> dict[str, Any]:
    return {
        "solver": "+".join(sorted(solved.solvers)) or "none",
        "residual": float(f"{found.residual:.1e}"),
        "connected_components": len(solved.sizes),
        "isolated_nodes": int(np.count_nonzero(solved.sizes == 1)),
    }


def _filled(tensors: dict[str, NDArray[Any]], k: int, pad: Pad) -> tuple[str, ...]:
    """Add the columns that the graph does not have to `tensors`; returns what there is to say of it."""
    found = tensors["eigenvectors"].shape[1]
    if found >= k:
        return ()
    there = counted(found, "such eigenvector", "such eigenvectors")
    if pad == "error":
        raise PeError(f"{parameter('k')} {k}: the graph has {there}; {parameter('pad')} zero fills up")
    for name in ("eigenvectors", "eigenvalues"):
        tensors[name] = spectra.padded(tensors[name], k, PADDING[pad])
    others = counted(k - found, "other column is", "other columns are")
    return (f"the graph has {there}: the {others} {pad}",)
