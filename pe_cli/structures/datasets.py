"""Datasets of many graphs, read block by block: batches of PyTorch Geometric, TUDataset and OGB folders."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, counted, parameter
from pe_cli.files.sources import Source
from pe_cli.files.text import numbers_of, opened
from pe_cli.process import require_memory
from pe_cli.structures.formats import number_of_nodes, weights_name
from pe_cli.structures.graph import Graph, Parallel, check_ptr

Integers = NDArray[np.int64]

IN_MEMORY = 64 << 20  # bytes of an array from which it is read from its file, block by block
EDGES_AT_ONCE = 1 << 18
AT_ONCE = 1 << 20  # numbers copied from an archive at once
LINES_AT_ONCE = 1 << 18
NUMBERS = "iu"
LISTS = ("num_nodes_list", "num_edges_list")
BEGINS = ("ptr", "batch")


class EdgeOptions(NamedTuple):
    """How edges are understood, as in `read_graph`."""

    directed: bool
    weights: str
    num_nodes: int | None
    parallel: Parallel


class ColumnSource(Protocol):
    """Numbers (rows, m), of which ranges of columns are read."""

    count: int

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """(rows, stop - start)"""


class ColumnsInMemory:
    """An array (rows, m) in memory."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array, self.count = array, array.shape[1]

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return np.asarray(self.array[:, start:stop])


class _ColumnsInFile:
    """An array (rows, m) in a file, row after row, or with the `rows` numbers of a column together."""

    def __init__(
        self, fd: int, offset: int, dtype: np.dtype[Any], rows: int, count: int, *, together: bool = False
    ) -> None:
        self.count, self._rows, self._together = count, rows, together
        self._fd, self._offset, self._dtype = os.dup(fd), offset, dtype

    def __del__(self) -> None:
        os.close(self._fd)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        if self._together:
            return np.asarray(self._range(start * self._rows, stop * self._rows).reshape(-1, self._rows).T)
        return np.stack(
            [self._range(row * self.count + start, row * self.count + stop) for row in range(self._rows)]
        )

    def _range(self, start: int, stop: int) -> NDArray[Any]:
        size = self._dtype.itemsize
        data, at, end = bytearray((stop - start) * size), 0, (stop - start) * size
        while at < end:
            got = os.preadv(self._fd, [memoryview(data)[at:]], self._offset + start * size + at)
            if not got:
                raise PeError("the file of the dataset became shorter while it was read")
            at += got
        return np.frombuffer(data, dtype=self._dtype)


class GraphDataset:
    """Many graphs in a file, of which blocks are read.

    `sizes` (graphs,) are their numbers of nodes; the edges of graph g are `edge_starts[g]` to `edge_starts[g + 1] - 1`,
    between nodes numbered through all graphs or, where `local`, from 0 in each. `mirrored` says that each edge goes both
    ways, also for what looks at directions.
    """

    def __init__(
        self,
        label: str,
        sizes: Integers,
        edges: ColumnSource,
        options: EdgeOptions,
        *,
        weights: ColumnSource | None = None,
        edge_starts: Integers | None = None,
        local: bool = False,
        mirrored: bool = False,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.label, self.sizes, self.notes = label, sizes, notes
        self.ptr: Integers = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._edges, self._weights, self._local = edges, weights, local
        self.mirrored = mirrored
        self.directed, self._parallel = options.directed, options.parallel
        if options.num_nodes not in (None, self.num_nodes):
            raise PeError(
                f"{parameter('num_nodes')} {options.num_nodes}: the graphs of {label} have {self.num_nodes:,} nodes together"
            )
        if weights is not None and weights.count != edges.count:
            raise PeError(f"{label} has {weights.count:,} weights for {edges.count:,} edges")
        self._digest = hashlib.sha256()
        self.edge_starts = self._scanned(edge_starts)
        self.fingerprint = f"sha256 {self._digest.hexdigest()[:16]}"

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        return f"GraphDataset({len(self)} graphs, {self.num_nodes} nodes, {self.num_edges} edges, {kind}, {self.fingerprint})"

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def num_nodes(self) -> int:
        return int(self.ptr[-1])

    @property
    def num_edges(self) -> int:
        return self._edges.count

    @property
    def largest(self) -> int:
        return int(self.sizes.max(initial=0))

    def block(self, first: int, last: int) -> Graph:
        """The graphs `first` to `last - 1` side by side, with `ptr`."""
        start, stop = self.edge_starts[[first, last]].tolist()
        edges = self._edges.read(start, stop).astype(np.int64)
        if self._local:
            counts = np.diff(self.edge_starts[first : last + 1])
            edges += np.repeat(self.ptr[first:last] - self.ptr[first], counts)
        else:
            edges -= self.ptr[first]
        weights = None if self._weights is None else self._weights.read(start, stop)[0].astype(np.float64)
        ptr = self.ptr[first : last + 1] - self.ptr[first]
        return Graph(
            int(ptr[-1]),
            edges,
            weights,
            self.directed,
            self._parallel,
            remarks=self.notes,
            mirrored=self.mirrored,
            ptr=ptr,
            first=first,
            largest=self.largest,
        )

    def whole(self) -> Graph:
        """All graphs side by side, in memory."""
        require_memory(64 * (self.num_nodes + self.num_edges), f"all of {self.label}", "take a shard of it")
        return self.block(0, len(self))

    def _scanned(self, given: Integers | None) -> Integers:
        """Where the edges of each graph begin; errors for edges that do not lie within one graph."""
        counts = np.zeros(len(self), dtype=np.int64)
        self._digest.update(np.ascontiguousarray(self.sizes, dtype="<i8").data)
        grouped, before = True, 0
        for start in range(0, self._edges.count, EDGES_AT_ONCE):
            stop = min(start + EDGES_AT_ONCE, self._edges.count)
            edges = np.ascontiguousarray(self._edges.read(start, stop), dtype="<i8")
            self._digest.update(edges.data)
            if self._weights is not None:
                self._digest.update(np.ascontiguousarray(self._weights.read(start, stop), dtype="<f8").data)
            if given is not None:
                which = np.searchsorted(given, np.arange(start, stop), side="right") - 1
                self._check(edges, start, self.sizes[which], which)
                continue
            self._check(edges, start, np.array(self.num_nodes), None)
            which = np.searchsorted(self.ptr, edges[0], side="right") - 1
            apart = (edges[1] < self.ptr[which]) | (edges[1] >= self.ptr[which + 1])
            if apart.any():
                at = int(np.argmax(apart))
                raise PeError(
                    f"{self.label}: edge {start + at} joins node {edges[0, at]} of graph {which[at]} and node "
                    f"{edges[1, at]}, which is in another graph"
                )
            grouped = grouped and int(which[0]) >= before and bool((np.diff(which) >= 0).all())
            before = int(which[-1])
            counts += np.bincount(which, minlength=len(self))
        if given is not None:
            return given
        if not grouped:
            self._group()
        return np.concatenate([[0], np.cumsum(counts)])

    def _check(self, edges: Integers, start: int, limit: Integers, which: Integers | None) -> None:
        wrong = ((edges < 0) | (edges >= limit)).any(axis=0)
        if wrong.any():
            at = int(np.argmax(wrong))
            most = int(np.broadcast_to(limit, wrong.shape)[at])
            where = f"{self.label}" if which is None else f"graph {which[at]} of {self.label}"
            raise PeError(
                f"edge {start + at} joins nodes {edges[0, at]} and {edges[1, at]}; {where} has the nodes 0 to {most - 1}"
            )

    def _group(self) -> None:
        """Put the edges of each graph together, in memory."""
        require_memory(
            64 * self.num_edges, f"sorting {self.num_edges:,} edges", "write the edges graph by graph"
        )
        edges = self._edges.read(0, self._edges.count).astype(np.int64)
        order = np.argsort(np.searchsorted(self.ptr, edges[0], side="right"), kind="stable")
        self._edges = ColumnsInMemory(edges[:, order])
        if self._weights is not None:
            self._weights = ColumnsInMemory(self._weights.read(0, self._weights.count)[:, order])


def dataset_of_tensors(source: Source, options: EdgeOptions) -> GraphDataset | None:
    """The dataset of a file of tensors with edge_index and ptr, batch, or the lists of OGB; None for anything else."""
    names = source.tensors
    if "edge_index" not in names:
        return None
    local = any(name in names for name in LISTS)
    if not local and not any(name in names for name in BEGINS):
        return None
    edges = _stored(source, "edge_index", 2, NUMBERS)
    weights, notes = _weights(source, options)
    if local:
        missing = [name for name in LISTS if name not in names]
        if missing:
            there = next(name for name in LISTS if name in names)
            raise PeError(f"{source.label} has {there} but no {missing[0]}, so its edges have no graph")
        sizes, lengths = (_vector(source, name) for name in LISTS)
        starts = _edge_starts(lengths, len(sizes), edges.count, source.label)
        return GraphDataset(
            source.label, sizes, edges, options, weights=weights, edge_starts=starts, local=True, notes=notes
        )
    sizes = _sizes(source)
    notes += _gaps(sizes) if "ptr" not in names else ()
    if "num_nodes" in names and (said := number_of_nodes(source)) != sizes.sum():
        raise PeError(
            f"{source.label} says num_nodes {said:,}; by ptr or batch there are {sizes.sum():,} nodes"
        )
    return GraphDataset(source.label, sizes, edges, options, weights=weights, notes=notes)


def _sizes(source: Source) -> Integers:
    """The number of nodes of each graph from ptr or batch; both, where both are there, must agree."""
    sizes = None
    if "ptr" in source.tensors:
        ptr = _vector(source, "ptr")
        check_ptr(ptr, int(ptr[-1]) if ptr.size else 0)
        sizes = np.diff(ptr)
    if "batch" in source.tensors:
        counts = np.zeros(0 if sizes is None else len(sizes), dtype=np.int64)
        before = 0
        for piece in source.flat("batch", items=AT_ONCE):
            if piece.dtype.kind not in NUMBERS:
                raise PeError(
                    f"{source.label}:batch holds {piece.dtype}; the number of each node's graph is an integer"
                )
            if piece[0] < before or (np.diff(piece) < 0).any():
                raise PeError(
                    f"{source.label}:batch does not ascend; the nodes of a graph must stand together"
                )
            before = int(piece[-1])
            require_memory(16 * (before + 1), f"{before + 1:,} graphs", "number the graphs from 0")
            found = np.bincount(piece.astype(np.int64), minlength=len(counts))
            counts = found + np.pad(counts, (0, len(found) - len(counts)))
        if sizes is not None and not np.array_equal(sizes, counts):
            raise PeError(f"{source.label}: ptr and batch do not say the same of where graphs begin")
        sizes = counts
    assert sizes is not None
    return sizes


def _gaps(sizes: Integers) -> tuple[str, ...]:
    """What to say where the numbers of the nodes' graphs leave some out."""
    empty = np.flatnonzero(sizes == 0)
    if not empty.size:
        return ()
    return (
        f"{counted(len(empty), 'graph', 'graphs')} of {len(sizes)} without a node, the first is {empty[0]}: graphs are "
        "numbered from 0",
    )


def _weights(source: Source, options: EdgeOptions) -> tuple[ColumnSource | None, tuple[str, ...]]:
    name = weights_name(source, options.weights)
    if name is None:
        return None, ()
    said = (f"{name} holds the weights of the edges",) if options.weights == "auto" else ()
    return _stored(source, name, 1, NUMBERS + "f"), said


def _vector(source: Source, name: str) -> Integers:
    array = source.read(name).reshape(-1)
    if array.dtype.kind not in NUMBERS:
        raise PeError(f"{source.label}:{name} holds {array.dtype}; these are whole numbers")
    array = array.astype(np.int64)
    if array.size and array.min() < 0:
        raise PeError(f"{source.label}:{name} has a negative number")
    return array


def _stored(source: Source, name: str, rows: int, kinds: str) -> ColumnSource:
    """The tensor (rows, m), in memory if it is small, else where it lies in its file."""
    spec = source.spec(name)
    source.require_readable(spec)
    shape = spec.shape if rows > 1 else (1, spec.size)
    if len(shape) != 2 or shape[0] != rows:
        raise PeError(f"{source.label}:{name} has shape {list(spec.shape)}, expected [{rows}, edges]")
    if spec.nbytes <= IN_MEMORY:
        array = source.read(name).reshape(shape)
        _require_kind(array.dtype, f"{source.label}:{name}", kinds)
        return ColumnsInMemory(array)
    span = source.span(name)
    if span is not None:
        _require_kind(span[2], f"{source.label}:{name}", kinds)
        return _ColumnsInFile(*span, rows, shape[1])
    columns = source.columns(name, items=AT_ONCE)
    with tempfile.TemporaryFile() as file:
        dtype = None
        for piece in source.flat(name, items=AT_ONCE) if columns is None else columns:
            dtype = piece.dtype
            file.write(np.ascontiguousarray(piece).data)
        file.flush()
        assert dtype is not None
        _require_kind(dtype, f"{source.label}:{name}", kinds)
        return _ColumnsInFile(file.fileno(), 0, dtype, rows, shape[1], together=columns is not None)


def _require_kind(dtype: np.dtype[Any], name: str, kinds: str) -> None:
    if dtype.kind not in kinds:
        raise PeError(f"{name} holds {dtype}; {'numbers' if 'f' in kinds else 'whole numbers'} are needed")


def _edge_starts(lengths: Integers, graphs: int, edges: int, label: str) -> Integers:
    if len(lengths) != graphs or int(lengths.sum()) != edges:
        raise PeError(
            f"{label} lists {counted(graphs, 'graph', 'graphs')} by nodes, {len(lengths)} by edges, with {lengths.sum():,} "
            f"edges together; there are {edges:,}"
        )
    return np.concatenate([[0], np.cumsum(lengths)])


# Folders


def read_folder(path: str, options: EdgeOptions) -> GraphDataset:
    """A TUDataset folder (NAME_A.txt, NAME_graph_indicator.txt) or a raw folder of OGB; also one that has it in `raw`."""
    for folder in (Path(path), Path(path) / "raw"):
        lists = sorted(folder.glob("*_graph_indicator.txt"))
        if len(lists) > 1:
            raise PeError(
                f"{folder} holds {len(lists)} datasets: {', '.join(file.name for file in lists[:4])}"
            )
        if lists:
            return _read_tu(folder, lists[0].name.removesuffix("_graph_indicator.txt"), options)
        if _with_gz(folder / "num-node-list.csv") is not None:
            return _read_ogb(folder, options)
    raise PeError(
        f"{path} is a folder with neither NAME_A.txt and NAME_graph_indicator.txt (TUDataset) nor edge.csv.gz and "
        "num-node-list.csv.gz (OGB)"
    )


def _read_tu(folder: Path, name: str, options: EdgeOptions) -> GraphDataset:
    label = str(folder / f"{name}_A.txt")
    which = _column(folder / f"{name}_graph_indicator.txt") - 1
    if which.size and (which.min() < 0 or (np.diff(which) < 0).any()):
        raise PeError(
            f"{folder / name}_graph_indicator.txt must ascend from 1: the nodes of a graph stand together"
        )
    edges = _table(folder / f"{name}_A.txt", 2, one_based=True)
    weights = None
    if options.weights not in ("auto", "none"):
        weights = ColumnsInMemory(
            _column(_asked(folder / f"{name}_{options.weights}.txt", options), np.float64)[None]
        )
    sizes = np.bincount(which)
    return GraphDataset(label, sizes, edges, options, weights=weights, notes=_gaps(sizes))


def _read_ogb(folder: Path, options: EdgeOptions) -> GraphDataset:
    sizes = _column(_needed(folder / "num-node-list.csv"))
    lengths = _column(_needed(folder / "num-edge-list.csv"))
    edges = _table(_needed(folder / "edge.csv"), 2)
    label = str(folder)
    weights = None
    if options.weights not in ("auto", "none"):
        file = _with_gz(folder / f"{options.weights}.csv")
        weights = ColumnsInMemory(
            _column(_asked(file or folder / f"{options.weights}.csv", options), np.float64)[None]
        )
    starts = _edge_starts(lengths, len(sizes), edges.count, label)
    return GraphDataset(label, sizes, edges, options, weights=weights, edge_starts=starts, local=True)


def _with_gz(path: Path) -> Path | None:
    zipped = path.with_name(f"{path.name}.gz")
    return next((file for file in (zipped, path) if file.exists()), None)


def _needed(path: Path) -> Path:
    found = _with_gz(path)
    if found is None:
        raise PeError(f"{path.parent} has no {path.name}.gz")
    return found


def _asked(path: Path, options: EdgeOptions) -> Path:
    if not path.exists():
        raise PeError(f"{parameter('weights')} {options.weights}: there is no {path}")
    return path


def _column(path: Path, dtype: Any = np.int64) -> NDArray[Any]:
    return np.concatenate([block[:, 0] for block in _blocks(path, 1, dtype)] or [np.zeros(0, dtype=dtype)])


def _table(path: Path, columns: int, *, one_based: bool = False) -> ColumnSource:
    """(columns, m) whole numbers of a text file, in a temporary file where they are many."""
    blocks: list[NDArray[Any]] = []
    with tempfile.TemporaryFile() as file:
        held = count = 0
        for block in _blocks(path, columns, np.int64):
            blocks.append(block - 1 if one_based else block)
            held += block.nbytes
            count += len(block)
            if held > IN_MEMORY:
                for part in blocks:
                    file.write(np.ascontiguousarray(part).data)
                blocks, held = [], 0
        if not file.tell():
            return ColumnsInMemory(
                np.concatenate(blocks).T if blocks else np.zeros((columns, 0), dtype=np.int64)
            )
        for part in blocks:
            file.write(np.ascontiguousarray(part).data)
        file.flush()
        return _ColumnsInFile(file.fileno(), 0, np.dtype(np.int64), columns, count, together=True)


def _blocks(path: Path, columns: int, dtype: Any) -> Iterator[NDArray[Any]]:
    """The rows of a text file of numbers, joined by commas, `LINES_AT_ONCE` at a time."""
    done = 0
    try:
        with opened(str(path)) as found, io.TextIOWrapper(found.stream, encoding="utf-8") as file:
            while lines := list(islice(file, LINES_AT_ONCE)):
                if any(line.strip() for line in lines):
                    yield _numbers(lines, columns, dtype)
                done += len(lines)
    except UnicodeDecodeError:
        raise PeError(f"{path} is not text") from None
    except PeError:
        raise
    except ValueError as trouble:
        raise _wrong_line(path, lines, done, columns, dtype, trouble) from None


def _numbers(lines: list[str], columns: int, dtype: Any) -> NDArray[Any]:
    """(lines, columns) the numbers of the lines, which have no other columns."""
    found = numbers_of(lines, dtype=dtype, delimiter=",", ndmin=2)
    if found.size and found.shape[1] != columns:
        raise ValueError
    return found.reshape(-1, columns)


def _wrong_line(
    path: Path, lines: list[str], done: int, columns: int, dtype: Any, trouble: ValueError
) -> PeError:
    what = (
        "a number" if dtype is np.float64 else f"{columns} whole numbers" if columns > 1 else "a whole number"
    )
    for number, line in enumerate(lines, done + 1):
        try:
            if line.partition("#")[0].strip():
                _numbers([line], columns, dtype)
        except ValueError:
            return PeError(f"{path} line {number}: {line.strip()[:40]!r} is not {what}")
    return PeError(f"{path}: {trouble}")
