"""Encodings of the nodes of a graph by eigenvectors: of the Laplacian, and of the magnetic Laplacian."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.graph.hermitian import (
    Axes,
    Hermitian,
    Isolated,
    Reals,
    Vectors,
    alone,
    laplacian_matrix,
    magnetic_matrix,
    one_way_pairs,
)
from pe_cli.encodings.graph.members import of_nodes, require_nodes, require_weights, unweighted
from pe_cli.encodings.graph.solvers import Solver
from pe_cli.encodings.graph.spectra import MOST_WHOLE, Finish, Integers, Multiplet, Spectra, SpectralColumns
from pe_cli.errors import PeError, counted, parameter
from pe_cli.numerics.randomness import uniform_rows
from pe_cli.signature import Floats, encoding
from pe_cli.structures import Graph, GraphLike, as_graph
from pe_cli.tensors import Tensors

Sign: TypeAlias = Literal["max-abs", "first", "random", "map", "oap"]
VectorNorm: TypeAlias = Literal["l2", "l1", "abs-max", "wavelength", "rows"]


def scaled(rows: Vectors, values: Reals, vec_norm: VectorNorm) -> Vectors:
    """Eigenvectors as rows (f, n) of length 1, of eigenvalues (f,), in the scale called `vec_norm`."""
    if vec_norm in ("l2", "rows"):
        return rows
    if vec_norm == "l1":
        return np.asarray(rows / np.abs(rows).sum(axis=1, keepdims=True))
    scale = 1 / np.abs(rows).max(axis=1)
    if vec_norm == "wavelength":
        scale *= np.pi / (2 * np.sqrt(np.where(values > 0, values, 1.0)))
    return np.asarray(rows * scale[:, None])


def signed(rows: Vectors, sign: Sign) -> Vectors:
    """Eigenvectors as rows (f, n), each positive at its largest or first entry; the first node of several equal ones."""
    size = np.abs(rows)
    share = 1e-6 if sign == "first" else 1 - 1e-6
    decisive = np.argmax(size >= share * size.max(axis=1, keepdims=True), axis=1)
    return np.asarray(rows * np.sign(rows[np.arange(len(rows)), decisive])[:, None] + 0.0)


Pad: TypeAlias = Literal["zero", "nan", "error"]
Norm: TypeAlias = Literal["sym", "rw", "none"]
Drop: TypeAlias = Literal["zeros", "first", "none"]
Parted: TypeAlias = Literal["joint", "each"]
Potential: TypeAlias = Literal["absolute", "relative"]
MagneticNorm: TypeAlias = Literal["sym", "none"]
MagneticConvention: TypeAlias = Literal["half", "unit"]
Parts: TypeAlias = Literal["complex", "split"]

LaplacianPreset: TypeAlias = Literal["pyg", "dgl", "gps", "san"]

# The conventions of libraries: AddLaplacianEigenvectorPE of PyTorch Geometric, lap_pe of DGL (`laplacian_pe`), GraphGPS
# (compute_posenc_stats, its default laplacian_norm), SAN (data/molecules.py). All but the first ignore weights.
PRESETS: dict[str, dict[str, str]] = {
    "pyg": {"norm": "sym", "drop": "first", "isolated": "one", "pad": "error"},
    "dgl": {"norm": "sym", "drop": "first", "isolated": "one", "pad": "zero"},
    "gps": {"norm": "sym", "drop": "none", "isolated": "one", "pad": "nan"},
    "san": {"norm": "sym", "drop": "none", "isolated": "one", "pad": "nan", "vec_norm": "rows"},
}
WEIGHTED_PRESETS = ("pyg",)
PADDING = {"zero": 0.0, "nan": float("nan")}
SHORTEST_ROW = 1e-12
LARGEST_Q = 1e6


@encoding
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
    preset: LaplacianPreset | None = None,
) -> Tensors:
    """The k smallest eigenvectors of the graph Laplacian, one row a node (LapPE).

    >>> laplacian([[0, 1], [1, 2]], 1)["eigenvalues"].round(9).tolist()
    [1.0]

    Tensors: eigenvectors (n, K), unit columns by default, and eigenvalues (K,), ascending. Added to the node
    features, after a linear layer, where nodes enter the network. It belongs to one graph: it does not
    extrapolate, and of other graphs only the eigenvalues can be compared.

    With A the weights and D the degrees, the Laplacian is L = D - A (none), I - D^-½ A D^-½ (sym), or
    I - D^-1 A (rw, whose eigenvectors are D^-½ times those of sym). Loops are left out. There are as many
    eigenvalues 0 as components; their vectors say only which component a node is in, and are dropped by default.

    Eigenvectors are free up to sign, and up to rotation where an eigenvalue is multiple. The basis written here
    depends on the eigenspace alone: projections of single nodes, each positive at its largest entry. So two
    runs, and different solvers, agree. Of several such nodes the first is taken; with sign map or oap nothing depends on
    the numbering of the nodes but what tensor canonical (K,), 0 or 1, says.

    Source: Dwivedi et al., "Benchmarking Graph Neural Networks", 2020 (arXiv:2003.00982), section 4; map: Ma et al.,
    "Laplacian Canonization", 2023 (arXiv:2310.18716), section 3; oap: Ma et al., "A Canonicalization Perspective on
    Invariant and Equivariant Learning", 2024 (arXiv:2405.18378).

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
    sign : make positive the largest entry, or the first that is not zero; or random by seed; or sign and basis by the axes of
        the nodes, alike in every numbering: as MAP has them, or OAP, which finds a basis of more eigenspaces.
    vec_norm : scale columns to length 1 (l2), sum 1 (l1), largest 1, or the last times pi / (2 sqrt(eigenvalue)); or rows,
        each to length 1 over its k columns.
    pad : what fills the columns that a graph of too few nodes does not have.
    solver : dense up to 2,000 nodes; beyond, needs scipy: shift-invert for paths, trees and meshes, lanczos for graphs
        that branch out, cg (conjugate gradients) for those with hubs.
    seed : key of the random signs (0).
    preset : norm, drop, isolated, pad and vec_norm as PyTorch Geometric, DGL, GraphGPS or SAN have them; equal to their
        output up to the sign of columns, and up to the basis where eigenvalues are multiple. All but pyg ignore weights.

    Returns
    -------
    Tensors
        eigenvectors and eigenvalues, with sign map or oap canonical; of several graphs eigenvalues and canonical
        (graphs, K), with ptr (graphs + 1,).

    Raises
    ------
    PeError
        For k < 1, a graph without nodes, negative weights, or more memory than there is.
    """
    graph = as_graph(graph)
    require_nodes(graph, k)
    if preset is not None:
        given = {"norm": norm, "drop": drop, "isolated": isolated, "pad": pad, "vec_norm": vec_norm}
        if preset not in WEIGHTED_PRESETS:
            graph = unweighted(graph)
        return laplacian(
            graph,
            k,
            components=components,
            multiplet=multiplet,
            sign=sign,
            solver=solver,
            seed=seed,
            **_preset(PRESETS[preset], given, laplacian, preset),
        )
    if seed is not None and sign != "random":
        raise PeError(f"{parameter('seed')} {seed}: only {parameter('sign')} random draws")
    _check_isolated(isolated, norm)
    adjacency = graph.symmetric.without_loops()
    require_weights(graph, adjacency)
    matrix = laplacian_matrix(adjacency, norm == "none", isolated)
    root = np.sqrt(np.where(alone(adjacency), 1.0, adjacency.row_sums())) if norm == "rw" else None

    axes: Axes | None = sign if sign in ("map", "oap") else None

    def finish(rows: Vectors, values: Reals, nodes: Integers) -> Vectors:
        if root is not None:
            rows = rows / root[nodes]
            rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        rows = scaled(rows, values, vec_norm)
        return rows if axes else signed(rows, sign)

    each = components == "each"
    if each and (graph.several or multiplet == "extend"):
        beside = "a dataset of graphs" if graph.several else f"{parameter('multiplet')} extend"
        raise PeError(
            f"{parameter('components')} each has k columns for every component: {beside} does not fit"
        )
    spectra = Spectra(graph, matrix, k + 1, solver, each=each)
    null = spectra.with_null_vector()
    trivial = {"zeros": null[:0], "first": _beyond_first(null, spectra), "none": null}[drop]
    spectra, columns = _columns(spectra, graph, matrix, k, trivial, multiplet, finish, axes)
    if sign == "random":
        draws = uniform_rows(graph.first + np.arange(graph.num_graphs), columns.vectors.shape[1], seed or 0)
        columns.vectors[:] *= np.sign(draws - 0.5)[graph.graph_of]
    if vec_norm == "rows":
        length = np.linalg.norm(columns.vectors, axis=1, keepdims=True)
        columns.vectors[:] /= np.maximum(length, SHORTEST_ROW)
    tensors, warnings = _filled(columns, k, pad, graph, spectra if each else None)
    facts: dict[str, Any] = {}
    if not graph.several:
        facts = _facts(columns, {"zero_eigenvalues": len(null)}, spectra, each)
        if len(trivial) >= k and not each:
            width = columns.vectors.shape[1]
            which = f"all {width} columns belong" if width > 1 else "the one column belongs"
            say = "they say" if width > 1 else "it says"
            warnings += (f"{which} to eigenvalue 0: {say} only which component a node is in",)
    else:
        facts = _counts(columns, k, spectra)
    if graph.directed:
        warnings += (
            "the graph is directed: this is the Laplacian of (A + A')/2; `magnetic` keeps directions",
        )
    return of_nodes(graph, tensors, facts, graph.doubts + warnings)


def _preset(
    values: Mapping[str, str], given: Mapping[str, str], function: Any, preset: str
) -> dict[str, Any]:
    """The options of a preset; an error for one that was given and says something else."""
    defaults = inspect.signature(function).parameters
    for name, value in given.items():
        if value != defaults[name].default and value != values.get(name, defaults[name].default):
            raise PeError(
                f"{parameter('preset')} {preset} means {parameter(name)} {values.get(name, defaults[name].default)}, "
                f"and {parameter(name)} {value} was given: leave one of them out"
            )
    return {name: values.get(name, value) for name, value in given.items()}


def _beyond_first(null: Integers, spectra: Spectra) -> Integers:
    """The components with a null vector, without the first of each graph."""
    groups = spectra.groups[null]
    return np.asarray(null[np.concatenate([[False], groups[1:] == groups[:-1]])[: len(null)]])


@encoding
def magnetic(
    graph: GraphLike,
    k: int,
    *,
    q: Floats = (0.25,),
    q_mode: Potential = "absolute",
    norm: MagneticNorm = "sym",
    convention: MagneticConvention = "half",
    isolated: Isolated = "zero",
    multiplet: Multiplet = "warn",
    pad: Pad = "zero",
    parts: Parts = "complex",
    solver: Solver = "auto",
) -> Tensors:
    """The k smallest eigenvectors of the magnetic Laplacian of a directed graph, complex.

    >>> magnetic([[0, 1, 2], [1, 2, 0]], 1)["eigenvectors"].dtype
    dtype('complex128')

    Tensors: eigenvectors (n, K), complex, or (n, K, 2) with real and imaginary part; eigenvalues (K,), ascending.
    Added to the node features after a layer; it belongs to one graph and does not extrapolate. Edges are taken as
    they are written, from first to second node, whether or not the graph is read as directed; loops are left out.

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
    q : the potential, in turns for an edge; several give eigenvectors (n, potentials, K) and eigenvalues (potentials, K).
    q_mode : relative: q divided by the number of one-way pairs, or by n if that is less.
    norm : symmetric normalised or combinatorial.
    convention : half: the mean of both directions; unit: 1 wherever there is an edge.
    isolated : normalised eigenvalue of a node without edges.
    multiplet : where k cuts an eigenspace: warn, extend to all of it, or refuse.
    pad : what fills the columns that a graph of too few nodes does not have.
    parts : one complex table, or real and imaginary part on a last axis of 2.
    solver : dense up to 2,000 nodes; beyond, needs scipy: shift-invert for paths, trees and meshes, lanczos for graphs
        that branch out, cg (conjugate gradients) for those with hubs.

    Returns
    -------
    Tensors
        eigenvectors, complex128 or with parts two float64, and eigenvalues; of several graphs with ptr (graphs + 1,).

    Raises
    ------
    PeError
        For k < 1, a graph without nodes, negative weights, a q that is not finite, or more memory than there is.
    """
    graph = as_graph(graph)
    require_nodes(graph, k)
    potentials = tuple(np.atleast_1d(np.asarray(q, dtype=np.float64)).tolist())
    if not potentials or not all(abs(one) <= LARGEST_Q for one in potentials):
        spelled = ",".join(f"{one:g}" for one in potentials)
        raise PeError(f"{parameter('q')} {spelled}: give a number of turns, at most {LARGEST_Q:g} in size")
    _check_isolated(isolated, norm)
    if len(potentials) > 1 and multiplet == "extend":
        raise PeError(
            f"{parameter('multiplet')} extend: several {parameter('q')} have the same number of columns"
        )
    arcs = graph.arcs.without_loops()
    require_weights(graph, arcs)
    one_way = one_way_pairs(arcs, graph)
    share = (
        1 / np.maximum(1, np.minimum(one_way, graph.sizes))
        if q_mode == "relative"
        else np.ones(graph.num_graphs)
    )
    found: list[dict[str, NDArray[Any]]] = []
    facts: dict[str, Any] = {"one_way_pairs": int(one_way.sum())}
    warnings: tuple[str, ...] = ()
    for one in potentials:
        turn = one * share
        matrix = magnetic_matrix(arcs, turn[graph.graph_of], norm == "none", convention == "unit", isolated)
        spectra = Spectra(graph, matrix, k + 1, solver)
        spectra, columns = _columns(spectra, graph, matrix, k, np.zeros(0, dtype=np.int64), multiplet, None)
        tensors, more = _filled(columns, k, pad, graph, None)
        if not one_way.any() or not np.any(turn):
            why = "every edge goes both ways" if not one_way.any() else "q is 0"
            more += (f"{why}: this is the ordinary Laplacian, which `laplacian` gives with real vectors",)
        warnings += more
        found.append(tensors)
        if graph.several:
            counts = _counts(columns, k, spectra)
            facts |= {name: facts.get(name, 0) + count for name, count in counts.items()}
        elif len(potentials) == 1:
            facts |= _facts(columns, {"effective_q": float(turn[0])}, spectra, False)
    tensors = found[0]
    if len(found) > 1:
        axis = 1 if graph.several else 0
        tensors = {
            "eigenvectors": np.stack([one["eigenvectors"] for one in found], axis=1),
            "eigenvalues": np.stack([one["eigenvalues"] for one in found], axis=axis),
        }
    if parts == "split":
        vectors = tensors["eigenvectors"]
        tensors["eigenvectors"] = np.stack([vectors.real, vectors.imag], axis=-1)
    return of_nodes(graph, tensors, facts, (*graph.repeats, *dict.fromkeys(warnings)))


def _columns(
    spectra: Spectra,
    graph: Graph,
    matrix: Hermitian,
    k: int,
    trivial: Integers,
    multiplet: Multiplet,
    finish: Finish | None,
    axes: Axes | None = None,
) -> tuple[Spectra, SpectralColumns]:
    """The columns; for all of the last eigenspace with more eigenpairs, then with all that there are."""
    if graph.several and multiplet == "extend":
        raise PeError(
            f"{parameter('multiplet')} extend: a dataset has the same number of columns for every graph"
        )
    columns = spectra.columns(k, trivial, multiplet, finish, axes)
    if multiplet != "extend" or not columns.open_end:
        return spectra, columns
    for count, solver in ((4 * spectra.count, spectra.solver), (spectra.count, "dense")):
        if solver == "dense" and spectra.members.sizes.max() > MOST_WHOLE:
            break
        more = Spectra(graph, matrix, count, solver)
        columns = more.columns(k, trivial, multiplet, finish, axes)
        if not columns.open_end:
            return more, columns
    raise PeError(
        f"{parameter('k')} {k} cuts an eigenspace of more than {3 * spectra.count} dimensions: "
        f"{parameter('multiplet')} warn takes a part of it"
    )


def _check_isolated(isolated: Isolated, norm: str) -> None:
    if isolated != "zero" and norm == "none":
        raise PeError(
            f"{parameter('isolated')} {isolated}: without normalisation ({parameter('norm')} none) its eigenvalue is 0"
        )


def _facts(columns: SpectralColumns, more: dict[str, Any], spectra: Spectra, each: bool) -> dict[str, Any]:
    """What there is to say of the spectrum of one graph."""
    facts: dict[str, Any] = {} if each else {"columns_found": int(columns.found[0])}
    if max(columns.multiplicities, default=1) > 1 and not each:
        known = (
            len(columns.multiplicities) - columns.open_end
        )  # more of the last eigenspace may not have been computed
        facts["multiplicities"] = columns.multiplicities[:known]
        if columns.open_end:
            facts["last_multiplicity_at_least"] = columns.multiplicities[-1]
    sizes = spectra.members.sizes
    return {
        **facts,
        **more,
        **_canonical_count(columns),
        "solver": "+".join(sorted(spectra.solvers)) or "none",
        "residual": float(f"{columns.residual:.1e}"),
        "connected_components": len(sizes),
        "isolated_nodes": int(np.count_nonzero(sizes == 1)),
    }


def _counts(columns: SpectralColumns, k: int, spectra: Spectra) -> dict[str, Any]:
    """What there is to say of the spectra of several graphs, in numbers that add up."""
    return {
        "graphs_with_fewer_columns": int(np.count_nonzero(columns.found < k)),
        "graphs_with_a_cut_eigenspace": int(np.count_nonzero(columns.cut)),
        **_canonical_count(columns),
        "connected_components": spectra.members.count,
        "isolated_nodes": int(np.count_nonzero(spectra.members.sizes == 1)),
    }


def _canonical_count(columns: SpectralColumns) -> dict[str, int]:
    """How many columns depend on the numbering of the nodes, where others were asked for."""
    if columns.canonical is None:
        return {}
    return {"columns_not_canonical": int(columns.found.sum() - np.count_nonzero(columns.canonical))}


def _filled(
    columns: SpectralColumns, k: int, pad: Pad, graph: Graph, each: Spectra | None
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """The tensors, with what stands for columns that a graph or component does not have; and what to say of it."""
    vectors, values, found = columns.vectors, columns.values, columns.found
    missing = np.arange(values.shape[1]) >= found[:, None]
    warnings: tuple[str, ...] = ()
    if columns.cut.any() and not graph.several:
        if each is not None:
            in_these = int(np.count_nonzero(columns.cut))
            warnings += (
                f"k cuts an eigenspace in {in_these} of {counted(len(found), 'component', 'components')}",
            )
        else:
            least, number = "at least " if columns.open_end else "", int(columns.cut[0])
            warnings += (
                f"k cuts an eigenspace: {least}{counted(number, 'more column shares', 'more columns share')} the eigenvalue "
                f"{values[0, found[0] - 1]:.6g}; multiplet extend takes them all",
            )
    short = int(np.count_nonzero(found < k))
    if short:
        if graph.several or each is not None:
            what = ("component", "components") if each is not None else ("graph", "graphs")
            has = "has" if short == 1 else "have"
            lacking = f"{short} of {counted(len(found), *what)} {has} fewer than {counted(k, 'eigenvector', 'eigenvectors')}"
            done = f"filled with {PADDING.get(pad, 0):g}"
        else:
            number = int(found[0])
            lacking = f"the graph has {counted(number, 'such eigenvector', 'such eigenvectors')}"
            done = f"the {counted(k - number, 'other column is', 'other columns are')} {pad}"
        if pad == "error":
            raise PeError(f"{parameter('k')} {k}: {lacking}; {parameter('pad')} zero fills up")
        if not graph.several:
            warnings += (f"{lacking}: {done}",)
        values[missing] = np.nan if graph.several else PADDING[pad]
        if pad != "zero":
            vectors[missing[graph.graph_of if each is None else each.members.labels]] = PADDING[pad]
    tensors = {"eigenvectors": vectors, "eigenvalues": values}
    if columns.canonical is not None:
        several = graph.several or each is not None
        tensors["canonical"] = (columns.canonical if several else columns.canonical[0]).astype(np.uint8)
        if _canonical_count(columns)["columns_not_canonical"]:
            which = (
                "some columns"
                if several
                else "columns " + ", ".join(map(str, np.flatnonzero(~columns.canonical[0, : found[0]])))
            )
            warnings += (
                f"{which} (where the tensor canonical is 0) are not canonical: their axes are symmetric, or fewer than the "
                "dimensions of the eigenspace; the numbering of the nodes has chosen sign or basis",
            )
    if each is not None:
        tensors["component"] = each.members.labels
    elif not graph.several:
        tensors["eigenvalues"] = values[0]
    return tensors, warnings
