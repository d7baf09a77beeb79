"""Graphs as arrays: Matrix Market, scipy's .npz, and edge_index or adjacency in .npy and .npz."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.files.npz import refuse_bomb
from pe_cli.files.text import Opened, blocks, decoded, whole_bytes
from pe_cli.memory import require_memory
from pe_cli.structures.graph import RawGraph

BANNER = "%%matrixmarket"
FIELDS = ("real", "integer", "pattern")
SYMMETRIES = ("general", "symmetric")
READABLE = "bifu"
BROKEN = (
    ValueError, EOFError, OSError, KeyError, IndexError, OverflowError, SyntaxError, NotImplementedError,
    RuntimeError, RecursionError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
EDGE_INDEX = "edge_index"
WEIGHTS = ("edge_weight", "edge_weights", "weights")


def read_matrix_market(file: Opened, weights: str) -> RawGraph:
    """A square matrix of the NIST format; of a symmetric one each stored entry is an edge."""
    first, lines = True, []
    _unnamed(weights, file.label)
    header: tuple[str, str, str] | None = None
    sizes: list[int] | None = None
    parts: list[NDArray[np.float64]] = []
    for number, block in blocks(file):
        lines = decoded(block, file.label, number).splitlines()
        start = 0
        if first:
            header = _banner(file.label, lines[0])
            first = False
            start = 1
        if sizes is None:
            while start < len(lines) and (not lines[start].strip() or lines[start].startswith("%")):
                start += 1
            if start == len(lines):
                continue
            sizes = _sizes(f"{file.label} line {number + start}", lines[start], header)
            start += 1
        parts.append(_numbers(file.label, number + start, lines[start:]))
    if header is None or sizes is None:
        raise PeError(f"{file.label} ends before the line with the size of the matrix")
    rows = [part for part in parts if part.size]
    width = {part.shape[1] for part in rows}
    expected = 1 if header[0] == "array" else 2 if header[1] == "pattern" else 3
    if width - {expected}:
        raise PeError(f"{file.label} has {width.pop()} numbers on a line, expected {expected}")
    table = np.concatenate(rows) if rows else np.zeros((0, expected))
    if header[0] == "array":
        return _array_market(file.label, table[:, 0], sizes[0], header[2] == "symmetric", weights)
    if len(table) != sizes[2]:
        raise PeError(f"{file.label} declares {sizes[2]} entries and has {len(table)}")
    edges = table[:, :2].T.astype(np.int64) - 1
    if edges.size and not (edges.min() >= 0 and edges.max() < sizes[0]):
        raise PeError(f"{file.label} has an index outside 1..{sizes[0]}")
    values = None if expected == 2 or weights == "none" else table[:, 2].copy()
    return RawGraph(edges, values, num_nodes=sizes[0], directed=False if header[2] == "symmetric" else None)


def read_npy(file: Opened, weights: str) -> RawGraph:
    """edge_index (2, m) or (m, 2), or a square adjacency matrix."""
    _unnamed(weights, file.label)
    array = _npy(io.BytesIO(whole_bytes(file)), file.label)
    return from_array(array, file.label, weights)


def read_npz(file: Opened, weights: str) -> RawGraph:
    """scipy.sparse.save_npz, or edge_index with edge_weight and num_nodes, or one array."""
    data = whole_bytes(file)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            known = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}

            def member(name: str) -> NDArray[Any]:
                info = known[name]
                refuse_bomb(info, file.label)
                require_memory(info.file_size, f"{file.label}:{name}", "take a smaller file")
                with archive.open(info) as stream:
                    return _npy(stream, f"{file.label}:{name}")

            return _from_members(known, member, file.label, weights)
    except PeError:
        raise
    except BROKEN as trouble:
        raise PeError(f"{file.label} is a broken .npz file: {trouble}") from None


def _unnamed(weights: str, label: str) -> None:
    if weights not in ("auto", "none"):
        raise PeError(f"--weights {weights}: the values of {label} have no names; give auto or none")


def _from_members(
    known: Mapping[str, Any], member: Callable[[str], NDArray[Any]], label: str, weights: str
) -> RawGraph:
    if {"format", "shape"} <= known.keys():
        return _scipy(member, label, weights)
    if EDGE_INDEX in known:
        raw = from_array(member(EDGE_INDEX), f"{label}:{EDGE_INDEX}", weights)
        name = next((n for n in WEIGHTS if n in known), None) if weights == "auto" else weights
        if name not in (None, "none"):
            if name not in known:
                raise PeError(f"--weights {weights}: {label} holds {', '.join(known)}")
            values = member(name).reshape(-1)
            if values.dtype.kind not in READABLE or len(values) != raw.edges.shape[1]:
                raise PeError(f"{label}:{name} is not one number for each of the {raw.edges.shape[1]} edges")
            raw.weights = values.astype(np.float64)
        if "num_nodes" in known:
            raw.num_nodes = int(member("num_nodes").reshape(-1)[0])
            if raw.edges.size and raw.edges.max() >= raw.num_nodes:
                raise PeError(f"{label} says num_nodes {raw.num_nodes} and has a node {raw.edges.max()}")
        return raw
    if len(known) == 1:
        _unnamed(weights, label)
        name = next(iter(known))
        return from_array(member(name), f"{label}:{name}", weights)
    raise PeError(
        f"{label} holds {', '.join(list(known)[:8])}: neither a matrix of scipy.sparse.save_npz nor {EDGE_INDEX}"
    )


def _scipy(member: Callable[[str], NDArray[Any]], label: str, weights: str) -> RawGraph:
    _unnamed(weights, label)
    kind = member("format").item()
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    shape = [int(side) for side in member("shape").reshape(-1)]
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 0:
        raise PeError(f"{label} has shape {shape}: an adjacency matrix is square")
    require_memory(64 * shape[0], f"a graph of {shape[0]:,} nodes", "take a smaller one")
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
    return _from_entries(edges, data, shape[0], weights)


def from_array(array: NDArray[Any], label: str, weights: str) -> RawGraph:
    """The edges of an edge_index (2, m) or (m, 2), or of a square matrix of weights; `label` is for messages."""
    square = array.ndim == 2 and array.shape[0] == array.shape[1]
    if array.dtype.kind not in READABLE or array.ndim != 2 or not (square or 2 in array.shape):
        raise PeError(
            f"{label} is {array.dtype} {list(array.shape)}: a graph is edge_index (2, m) of integers, "
            "or a square matrix of weights"
        )
    if square and not (array.shape == (2, 2) and array.dtype.kind in "iu"):
        if not np.isfinite(array).all():
            raise PeError(f"{label} has values that are not finite")
        edges = np.stack(np.nonzero(array)).astype(np.int64)
        return _from_entries(edges, array[edges[0], edges[1]], len(array), weights)
    if array.dtype.kind not in "iu":
        raise PeError(f"{label} is {array.dtype} {list(array.shape)}: ids in edge_index are integers")
    edges = (array if array.shape[0] == 2 else array.T).astype(np.int64)
    if edges.size and edges.min() < 0:
        column = int(np.argmin(edges.min(axis=0)))
        raise PeError(f"{label} has a negative id in edge {column}; ids count from 0")
    return RawGraph(np.ascontiguousarray(edges))


def _from_entries(edges: NDArray[np.int64], values: NDArray[Any], size: int, weights: str) -> RawGraph:
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise PeError("the matrix has values that are not finite")
    stored = values != 0
    ones = weights == "none" or bool((values[stored] == 1).all())
    return RawGraph(edges[:, stored], None if ones else values[stored], num_nodes=size)


def _npy(stream: Any, label: str) -> NDArray[Any]:
    """An array of the .npy format, if it is of plain numbers or text and as long as it says."""
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
        if dtype.hasobject:
            raise PeError(f"{label} holds Python objects, which are not loaded: save arrays of numbers")
        count = int(np.prod(np.array(shape, dtype=object)))
        require_memory(count * dtype.itemsize, label, "the file is broken, or too large")
        data = stream.read(count * dtype.itemsize)
        array = np.frombuffer(data, dtype=dtype, count=count).reshape(shape[::-1] if fortran else shape)
    except PeError:
        raise
    except BROKEN as trouble:
        raise PeError(f"{label} is a broken .npy array: {trouble}") from None
    return array.T if fortran else array


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


def _sizes(where: str, line: str, header: tuple[str, str, str] | None) -> list[int]:
    expected = 2 if header is not None and header[0] == "array" else 3
    try:
        sizes = [int(word) for word in line.split()]
    except ValueError:
        sizes = []
    if len(sizes) != expected or min(sizes) < 0:
        raise PeError(f"{where}: {line.strip()[:40]!r} is not the size of a matrix")
    if sizes[0] != sizes[1]:
        raise PeError(f"{where}: the matrix is {sizes[0]} x {sizes[1]}; an adjacency matrix is square")
    return sizes


def _numbers(label: str, first: int, lines: list[str]) -> NDArray[np.float64]:
    try:
        table = np.loadtxt(lines, comments="%", ndmin=2) if any(map(str.strip, lines)) else np.zeros((0, 1))
    except ValueError as trouble:
        for number, line in enumerate(lines, first):
            try:
                [float(word) for word in line.partition("%")[0].split()]
            except ValueError:
                raise PeError(f"{label} line {number}: {line.strip()[:40]!r} is not an entry") from None
        raise PeError(f"{label} after line {first}: {trouble}") from None
    if not np.isfinite(table).all():
        raise PeError(f"{label} has a value that is not finite, after line {first}")
    return table


def _array_market(
    label: str, values: NDArray[np.float64], size: int, symmetric: bool, weights: str
) -> RawGraph:
    require_memory(16 * size * size, f"a dense matrix of {size:,} rows", "store it by coordinates")
    rows, columns = np.tril_indices(size) if symmetric else np.indices((size, size)).reshape(2, -1)
    if symmetric:
        order = np.lexsort((rows, columns))
        rows, columns = rows[order], columns[order]
    else:
        rows, columns = columns, rows
    if len(values) != len(rows):
        raise PeError(f"{label} declares {len(rows)} values and has {len(values)}")
    raw = _from_entries(np.stack([rows, columns]).astype(np.int64), values, size, weights)
    raw.directed = False if symmetric else None
    return raw
