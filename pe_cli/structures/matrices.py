"""Graphs as arrays: Matrix Market, scipy's .npz, and edge_index or adjacency in any file of tensors."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, needs, parameter
from pe_cli.files.sources import Source, listing
from pe_cli.files.text import Opened, decoded, whole_bytes
from pe_cli.numerics.dtypes import NOT_IN_NUMPY
from pe_cli.process import require_memory
from pe_cli.structures.graph import BYTES_AN_EDGE, RawGraph

BANNER = "%%matrixmarket"
FIELDS = ("real", "integer", "pattern")
SYMMETRIES = ("general", "symmetric")
READABLE = "bifu"
EDGE_INDEX = "edge_index"
WEIGHTS = ("edge_weight", "edge_weights", "weights")
LONGEST_WORD = 64
SMALLEST_ENTRY = {"array": 2, "coordinate": 4}  # bytes: `1\n` and `1 1\n`


def read_matrix_market(file: Opened, weights: str) -> RawGraph:
    """A square matrix of the NIST format, read by scipy; of a symmetric one each stored entry is an edge.

    What the size line declares is believed only as far as the file can hold it.
    """
    _unnamed(weights, file.label)
    content = whole_bytes(file)
    form, symmetric, size = _declared(file.label, content)
    if form == "coordinate" and symmetric:
        # Else scipy would give each entry in both directions.
        line = content[: content.index(b"\n")]
        words = [b"%%MatrixMarket", *line.lower().replace(b"symmetric", b"general").split()[1:]]
        content = b" ".join(words) + content[len(line) :]
    try:
        from scipy.io import mmread
    except ImportError:
        raise needs(f"{file.label} is a Matrix Market file, and reading it", "scipy", "graph") from None
    try:
        matrix = mmread(io.BytesIO(content))
    except Exception as trouble:  # of its own kinds, for whatever it does not like
        raise PeError(f"{file.label} is not read as Matrix Market: {str(trouble).strip()[:120]}") from None
    if form == "array":
        raw = _from_dense(np.tril(matrix) if symmetric else matrix, file.label, weights)
    else:
        edges = np.stack([matrix.row, matrix.col]).astype(np.int64)
        raw = _from_entries(edges, matrix.data, size, file.label, weights)
    raw.directed = False if symmetric else None
    return raw


def _declared(label: str, content: bytes) -> tuple[str, bool, int]:
    """Form, symmetry and size of the matrix; an error for more entries than the file can hold."""
    at, number, form, symmetric = 0, 0, "", False
    while at < len(content):
        end = content.find(b"\n", at) + 1 or len(content)
        line = decoded(content[at:end], label, number + 1)
        at, number = end, number + 1
        if number == 1:
            form, _, symmetry = _banner(label, line)
            symmetric = symmetry == "symmetric"
        elif line.strip() and not line.startswith("%"):
            sizes = _sizes(f"{label} line {number}", line, form)
            side = sizes[0]
            count = sizes[2] if form == "coordinate" else side * (side + 1) // 2 if symmetric else side * side
            most = (len(content) - at + 1) // SMALLEST_ENTRY[form]
            if count > most:
                raise PeError(
                    f"{label} declares {count:,} entries, and has room for {most:,} at most: it is cut off or wrong"
                )
            if form == "array":
                require_memory(
                    32 * side * side, f"a dense matrix of {side:,} rows", "store it by coordinates"
                )
            return form, symmetric, side
    raise PeError(f"{label} ends before the line with the size of the matrix")


def _banner(label: str, line: str) -> tuple[str, str, str]:
    words = line.lower().split()
    if (
        len(words) != 5
        or words[0] != BANNER
        or words[1] != "matrix"
        or words[2] not in ("coordinate", "array")
    ):
        raise PeError(
            f"{label} line 1: expected '%%MatrixMarket matrix coordinate real symmetric' or the like"
        )
    if words[3] not in FIELDS or words[4] not in SYMMETRIES:
        raise PeError(
            f"{label} line 1: a graph is {', '.join(FIELDS)} and {' or '.join(SYMMETRIES)}, not {' '.join(words[3:])[:40]}"
        )
    return words[2], words[3], words[4]


def _sizes(where: str, line: str, form: str) -> list[int]:
    expected = 2 if form == "array" else 3
    try:
        sizes = [int(word) for word in line.split()]
    except ValueError:
        sizes = []
    if len(sizes) != expected or min(sizes) < 0:
        raise PeError(f"{where}: {line.strip()[:40]!r} is not the size of a matrix")
    if sizes[0] != sizes[1]:
        raise PeError(f"{where}: the matrix is {sizes[0]} x {sizes[1]}; an adjacency matrix is square")
    return sizes


def from_source(source: Source, weights: str) -> RawGraph:
    """scipy.sparse.save_npz, or edge_index with edge_weight and num_nodes, or the one array that there is or was named."""
    known, label = source.tensors, source.label
    if source.named is None and {"format", "shape"} <= known.keys():
        _unnamed(weights, label)
        return _from_scipy(source, weights)
    if source.named is not None or EDGE_INDEX not in known:
        if source.named is None and len(known) > 1:
            raise PeError(
                f"{label} holds {listing(source.tensors)}: neither a matrix of scipy.sparse.save_npz nor {EDGE_INDEX}; "
                f"{label}:NAME says which tensor is the graph"
            )
        _unnamed(weights, label)
        return _from_tensor(source, source.chosen.name, weights)
    raw = _from_tensor(source, EDGE_INDEX, weights)
    name = next((n for n in WEIGHTS if n in known), None) if weights == "auto" else weights
    if name not in (None, "none"):
        if name not in known:
            raise PeError(f"{parameter('weights')} {weights}: {label} holds {', '.join(known)}")
        values = source.read(name).reshape(-1)
        if values.dtype.kind not in READABLE or len(values) != raw.edges.shape[1]:
            raise PeError(f"{label}:{name} is not one number for each of the {raw.edges.shape[1]} edges")
        raw.weights, raw.weighted_by = values.astype(np.float64), name
    if "num_nodes" in known:
        raw.num_nodes = int(source.read("num_nodes").reshape(-1)[0])
        if raw.edges.size and raw.edges.max() >= raw.num_nodes:
            raise PeError(f"{label} says num_nodes {raw.num_nodes} and has a node {raw.edges.max()}")
    return raw


def _from_tensor(source: Source, name: str, weights: str) -> RawGraph:
    spec = source.spec(name)
    label = f"{source.label}:{name}" if name else source.label
    source.require_readable(spec)
    _require_graph(spec.shape, spec.dtype, label)
    return from_array(source.read(name), label, weights)


def _unnamed(weights: str, label: str) -> None:
    if weights not in ("auto", "none"):
        raise PeError(
            f"{parameter('weights')} {weights}: the values of {label} have no names; give auto or none"
        )


def _word(source: Source, name: str) -> str:
    """A short text that numpy stores as an array without axes."""
    spec = source.tensors[name]
    if spec.shape or not 0 < spec.nbytes <= LONGEST_WORD:
        return f"{spec.dtype} {list(spec.shape)}"
    value = next(source.reader.pieces(name, 1)).item()
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def _from_scipy(source: Source, weights: str) -> RawGraph:
    """The members of scipy.sparse.save_npz."""
    label, member = source.label, source.read
    kind = _word(source, "format")
    shape = [int(side) for side in member("shape").reshape(-1)]
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 0:
        raise PeError(f"{label} has shape {shape}: an adjacency matrix is square")
    data = member("data")
    if data.dtype.kind not in READABLE or data.ndim != 1:
        raise PeError(f"{label} has values of type {data.dtype}: weights are real numbers")
    if kind == "coo":
        edges = np.stack([member("row"), member("col")]).astype(np.int64)
    elif kind in ("csr", "csc"):
        starts, indices = member("indptr").astype(np.int64), member("indices").astype(np.int64)
        counts = np.diff(starts)
        if len(counts) != shape[0] or (counts < 0).any() or counts.sum() != len(indices):
            raise PeError(f"{label} has an indptr that does not fit its indices")
        rows = np.repeat(np.arange(shape[0]), counts)
        edges = np.stack([rows, indices] if kind == "csr" else [indices, rows])
    else:
        raise PeError(f"{label} is stored as {kind!r}; save it as csr, csc or coo")
    if edges.shape[1] != len(data) or (edges.size and not (edges.min() >= 0 and edges.max() < shape[0])):
        raise PeError(f"{label} has indices outside its shape {shape}, or not one for each value")
    return _from_entries(edges, data, shape[0], label, weights)


def _require_graph(shape: tuple[int, ...], dtype: str, label: str) -> bool:
    """Whether the array is square; an error for one that is no graph."""
    square = len(shape) == 2 and shape[0] == shape[1]
    if dtype.startswith("complex") or not (square or (len(shape) == 2 and 2 in shape)):
        raise PeError(
            f"{label} is {dtype} {list(shape)}: a graph is edge_index (2, m) of integers, or a square matrix of weights"
        )
    return square


def from_array(array: NDArray[Any], label: str, weights: str) -> RawGraph:
    """The edges of an edge_index (2, m) or (m, 2), or of a square matrix of weights; `label` is for messages."""
    if array.dtype.name in NOT_IN_NUMPY:
        array = array.astype(np.float32)
    if array.dtype.kind not in READABLE + "c":
        raise PeError(f"{label} holds {array.dtype}: a graph is of numbers")
    square = _require_graph(array.shape, array.dtype.name, label)
    if square and not (array.shape == (2, 2) and array.dtype.kind in "iu"):
        if not np.isfinite(array).all():
            raise PeError(f"{label} has values that are not finite")
        return _from_dense(array, label, weights)
    if array.dtype.kind not in "iu":
        raise PeError(f"{label} is {array.dtype} {list(array.shape)}: ids in edge_index are integers")
    edges = (array if array.shape[0] == 2 else array.T).astype(np.int64)
    if edges.size and edges.min() < 0:
        column = int(np.argmin(edges.min(axis=0)))
        raise PeError(f"{label} has a negative id in edge {column}; ids count from 0")
    return RawGraph(np.ascontiguousarray(edges))


def _from_entries(
    edges: NDArray[np.int64], values: NDArray[Any], size: int, label: str, weights: str
) -> RawGraph:
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise PeError(f"{label} has values that are not finite")
    ones = weights == "none" or bool((values == 1).all())
    return RawGraph(edges, None if ones else values, num_nodes=size)


def _from_dense(matrix: NDArray[Any], label: str, weights: str) -> RawGraph:
    """A square matrix, in which 0 is no edge."""
    count = int(np.count_nonzero(matrix))
    require_memory(
        matrix.nbytes + count * BYTES_AN_EDGE, f"a matrix with {count:,} edges", "take a smaller one"
    )
    edges = np.stack(np.nonzero(matrix)).astype(np.int64)
    return _from_entries(edges, matrix[edges[0], edges[1]], len(matrix), label, weights)
