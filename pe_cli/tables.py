"""An encoding with its arguments, as tensors whose shapes are known at once and whose rows come in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from tempfile import TemporaryFile
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, option_name, parameter
from pe_cli.files import Sink, TensorSpec, as_bytes
from pe_cli.numerics.dtypes import numpy_dtype, round_to
from pe_cli.positions import LIMIT, Positions
from pe_cli.process import step
from pe_cli.tensors import Tensors

Choose: TypeAlias = Callable[[int], NDArray[np.int64]]

BLOCK_BYTES = 2 << 20
BLOCK_ROWS = 512
LARGEST_ROW = 16 << 20  # bytes as they are stored; computing them takes up to eight times as many
SMALL_RANGE = frozenset({"float16", "float8_e4m3fn", "float8_e5m2"})


class Block:
    """`rows` of tensor `name`, of which the first is row `start`."""

    __slots__ = ("name", "rows", "start")

    def __init__(self, name: str, start: int, rows: NDArray[Any]) -> None:
        self.name, self.start, self.rows = name, start, rows


class Table(ABC):
    """Named tensors with facts and warnings; the rows are computed when they are asked for."""

    specs: dict[str, TensorSpec]
    facts: dict[str, Any]
    warnings: tuple[str, ...]
    run: Callable[..., Iterator[Any]] = (
        map  # what applies a function to blocks of rows: here, or in other processes
    )
    _not_finite: Counter[str]

    def _count(self, name: str, stored: NDArray[Any]) -> None:
        if stored.dtype.kind in "fcV" and stored.size:
            self._not_finite[name] += stored.size - int(np.count_nonzero(np.isfinite(stored)))

    def _warn(self, name: str) -> None:
        count, spec = self._not_finite.pop(name, 0), self.specs[name]
        if count:
            narrow = f": too large for {spec.dtype}?" if spec.dtype in SMALL_RANGE else ""
            self.warnings += (f"{count} of the values of {name} are NaN or infinite{narrow}",)

    @property
    def nbytes(self) -> int:
        return sum(spec.nbytes for spec in self.specs.values())

    @property
    def holds_integers(self) -> bool:
        return all(numpy_dtype(spec.dtype).kind in "iub" for spec in self.specs.values())

    @abstractmethod
    def blocks(self, names: tuple[str, ...]) -> Iterator[Block]:
        """Consecutive blocks of the tensors `names`, each in its dtype and C order."""

    def write(self, sink: Sink) -> None:
        """Stream every tensor into a file that was opened for `specs`."""
        names = tuple(spec.name for spec in sink.specs)
        done = 0
        for group in [(name,) for name in names] if sink.sequential else [names]:
            for block in self.blocks(group):
                sink.write(block.name, block.start, block.rows)
                done += block.rows.nbytes
                step("bytes written", done, self.nbytes)

    @abstractmethod
    def pick(self, choose: Choose) -> dict[str, NDArray[Any]]:
        """The rows `choose(n)` of each tensor that has n of them; tensors that are computed whole come whole."""

    def sample(self, rows: int) -> dict[str, NDArray[Any]]:
        """At most `rows` evenly spaced rows of each tensor, the first and the last among them."""
        return self.pick(lambda n: np.unique(np.linspace(0, max(n - 1, 0), min(rows, n)).astype(np.int64)))


@dataclass(frozen=True)
class Request:
    """A table that was asked for: `origins` says where a parameter came from, where that is not the command line.

    `more` are fields of `--json` that a command adds.
    `title` says what the table is in a line, and `ledger` lists the parameters with their origins for stderr, each line
    with the indent of its continuation; a summary has both itself. `notes` are told either way. All of it comes when
    the table is out, so that nothing is said of one that cannot be.
    """

    encoding: str
    table: Table
    command: str
    parameters: Mapping[str, Any]
    origins: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    title: str = ""
    ledger: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


class WholeTable(Table):
    """Tensors that are computed at once, since their rows depend on one another."""

    def __init__(self, tensors: Tensors, dtype: str | None, key: str | None = None) -> None:
        names = renamed(tensors.to_dict(), key)
        self._tensors = {names[name]: array for name, array in tensors.items()}
        self.facts, self.warnings = tensors.facts, tensors.warnings_for(option_name)
        self._not_finite = Counter()
        self.specs = {
            name: TensorSpec(name, stored_dtype(array.dtype, dtype), array.shape)
            for name, array in self._tensors.items()
        }

    def blocks(self, names: tuple[str, ...]) -> Iterator[Block]:
        for name in names:
            array = self._tensors[name]
            target = numpy_dtype(self.specs[name].dtype)
            step = max(1, BLOCK_BYTES * len(array) // max(1, array.nbytes)) if array.ndim else 1
            for start in range(0, len(array), step) if array.ndim else (0,):
                rows = array[start : start + step] if array.ndim else array
                stored = np.ascontiguousarray(round_to(rows, target)).reshape(rows.shape)
                self._count(name, stored)
                yield Block(name, start, stored)
            self._warn(name)

    def pick(self, choose: Choose) -> dict[str, NDArray[Any]]:
        return self._tensors


@dataclass
class RowTable(Table):
    """An encoding whose rows are functions of their positions: `prefix` zero rows, then rows [begin, end).

    The function is called with consecutive blocks of positions, and once with none to learn the shapes.
    """

    function: Callable[..., Tensors]
    arguments: Mapping[str, Any]
    positions: Positions
    dtype: str | None
    key: str | None = None
    prefix: int = 0
    shard: tuple[int, int] = (0, 1)
    specs: dict[str, TensorSpec] = field(init=False)
    facts: dict[str, Any] = field(init=False)
    warnings: tuple[str, ...] = field(init=False)
    constants: dict[str, NDArray[Any]] = field(init=False)

    def __post_init__(self) -> None:
        index, count = self.shard
        total = self.prefix + len(self.positions)
        if total >= LIMIT:
            raise PeError(
                f"{parameter('prefix_rows')} {self.prefix}: these are more than 2^63 rows, ask for fewer"
            )
        self._begin, self._end = total * index // count, total * (index + 1) // count
        empty = self._call(0, 0)
        self.facts, self.warnings = empty.facts, empty.warnings_for(option_name)
        self._not_finite = Counter()
        rowwise = {name: array for name, array in empty.items() if array.ndim and not len(array)}
        self._names = renamed(empty.to_dict(), self.key)
        self.constants = {self._names[n]: array for n, array in empty.items() if n not in rowwise}
        self.specs = {}
        for n, array in empty.items():
            shape = (self._end - self._begin, *array.shape[1:]) if n in rowwise else array.shape
            self.specs[self._names[n]] = TensorSpec(
                self._names[n], stored_dtype(array.dtype, self.dtype), shape
            )

    def blocks(self, names: tuple[str, ...]) -> Iterator[Block]:
        for name in names:
            if name in self.constants:
                yield Block(name, 0, self._stored(name, self.constants[name]))
        wanted = [name for name in names if name not in self.constants]
        if not wanted:
            return
        step = self._rows_per_block(wanted)
        starts = range(self._begin, self._end, step)
        spans = ((start, min(start + step, self._end)) for start in starts)
        for start, block in zip(starts, self.run(self._rows, spans), strict=True):
            for name, rows in block.items():
                if name not in wanted:
                    continue
                if self.specs[name].dtype in SMALL_RANGE:
                    # In others it would take as long as the table itself.
                    self._count(name, rows)
                yield Block(name, start - self._begin, rows)
        for name in wanted:
            self._warn(name)

    def pick(self, choose: Choose) -> dict[str, NDArray[Any]]:
        chosen = choose(self._end - self._begin) + self._begin
        parts = [self._rows((int(row), int(row) + 1)) for row in chosen]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
        return {**self.constants, **joined}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "run"}

    def _rows(self, span: tuple[int, int]) -> dict[str, NDArray[Any]]:
        start, end = span
        zeros = max(0, min(end, self.prefix) - start)
        tensors = self._call(max(start - self.prefix, 0), max(end - self.prefix, 0))
        rows = {}
        for own_name, array in tensors.items():
            name = self._names[own_name]
            if name not in self.constants:
                array = self._stored(name, array)
                front = [np.zeros((zeros, *array.shape[1:]), array.dtype)] if zeros else []
                rows[name] = np.concatenate([*front, array]) if front else array
        return rows

    def _stored(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        return round_to(array, numpy_dtype(self.specs[name].dtype))

    def _call(self, begin: int, end: int) -> Tensors:
        return self.function(self.positions.block(begin, end), **self.arguments)

    def _rows_per_block(self, names: list[str]) -> int:
        count = max(1, self._end - self._begin)
        row_bytes = max(1, sum(self.specs[name].nbytes for name in names) // count)
        if row_bytes > LARGEST_ROW:
            raise PeError(
                f"a single row takes {row_bytes / 2**20:.0f} MiB: ask for a smaller {parameter('dim')}"
            )
        rows = BLOCK_BYTES // row_bytes
        return max(1, rows - rows % BLOCK_ROWS or rows)


class JoinedTables(Table):
    """Several tables in one file: the tensors of `tables["a"]` are called `a.NAME`."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = dict(tables)
        self.facts = {label: table.facts for label, table in tables.items()}
        self._own = {
            f"{label}.{name}": (label, name) for label, table in tables.items() for name in table.specs
        }
        self.specs = {
            joined: replace(tables[label].specs[name], name=joined)
            for joined, (label, name) in self._own.items()
        }

    @property
    def warnings(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(f"{label}: {said}" for label, table in self._tables.items() for said in table.warnings)

    def blocks(self, names: tuple[str, ...]) -> Iterator[Block]:
        for label, table in self._tables.items():
            wanted = tuple(own for joined, (of, own) in self._own.items() if of == label and joined in names)
            for block in table.blocks(wanted) if wanted else ():
                yield Block(f"{label}.{block.name}", block.start, block.rows)

    def pick(self, choose: Choose) -> dict[str, NDArray[Any]]:
        picked = {label: table.pick(choose) for label, table in self._tables.items()}
        return {joined: picked[label][name] for joined, (label, name) in self._own.items()}


@dataclass
class PairTable(Table):
    """An encoding of pairs of `queries` (q,) with `keys` (k,), which count up by one: computed in blocks of queries.

    Which axis of a tensor is that of the queries is learned from a call without any. Tensors (q, …) come in blocks of
    rows. Of tensors (heads, q, k) a file is filled head by head: what `by_distance` says depends on the distance alone
    is computed once for every distance there is, and each head is read off it; all else is computed for a block of
    queries at a time and laid into place through a temporary file.
    """

    function: Callable[..., Tensors]
    arguments: Mapping[str, Any]
    queries: NDArray[np.int64]
    keys: NDArray[np.int64]
    by_distance: bool
    dtype: str | None
    key: str | None = None
    specs: dict[str, TensorSpec] = field(init=False)
    facts: dict[str, Any] = field(init=False)
    warnings: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        empty = self._call(self.queries[:0])
        if all(array.size for array in empty.values()):
            empty = self._call(self.queries)  # the same for every query, if these are the ones it can have
        self.facts, self.warnings = empty.facts, empty.warnings_for(option_name)
        self._not_finite = Counter()
        self._names = renamed(empty.to_dict(), self.key)
        self._axes: dict[str, int] = {}
        self.specs = {}
        self._constants: dict[str, NDArray[Any]] = {}
        for own, array in empty.items():
            name, shape = self._names[own], list(array.shape)
            if 0 in shape:
                self._axes[name] = shape.index(0)
                shape[shape.index(0)] = len(self.queries)
            else:
                self._constants[name] = array
            self.specs[name] = TensorSpec(name, stored_dtype(array.dtype, self.dtype), tuple(shape))

    def blocks(self, names: tuple[str, ...]) -> Iterator[Block]:
        for name in names:
            if not self.specs[name].size:  # a shard that no query is left for
                continue
            if name in self._constants:
                constant = self._constants[name]
                yield Block(name, 0, round_to(constant, numpy_dtype(self.specs[name].dtype)))
            elif self._axes[name] == 0:
                yield from self._rows(name)
            elif self.by_distance:
                yield from self._heads_by_distance(name)
            else:
                yield from self._heads(name)
            self._warn(name)

    def pick(self, choose: Choose) -> dict[str, NDArray[Any]]:
        small = self.nbytes <= LARGEST_ROW
        chosen = self.queries if small else self.queries[choose(len(self.queries))]
        return {self._names[own]: array for own, array in self._call(chosen).items()}

    def _call(self, queries: NDArray[np.int64]) -> Tensors:
        return self.function(queries=queries, keys=self.keys, **self.arguments)

    def _steps(self, row_bytes: int) -> Iterator[tuple[int, int]]:
        """The blocks of queries, of about `BLOCK_BYTES` each."""
        step = max(1, BLOCK_BYTES // max(1, row_bytes))
        for start in range(0, len(self.queries), step):
            yield start, min(start + step, len(self.queries))

    def _block(self, name: str, start: int, end: int) -> NDArray[Any]:
        """Tensor `name` for the queries [start, end)."""
        made = self._call(self.queries[start:end])
        rows = next(array for own, array in made.items() if self._names[own] == name)
        return self._stored(name, rows)

    def _stored(self, name: str, rows: NDArray[Any]) -> NDArray[Any]:
        stored = np.ascontiguousarray(round_to(rows, numpy_dtype(self.specs[name].dtype)))
        self._count(name, stored)
        return stored

    def _rows(self, name: str) -> Iterator[Block]:
        spec = self.specs[name]
        for start, end in self._steps(spec.nbytes // max(1, len(self.queries))):
            yield Block(name, start, self._block(name, start, end))

    def _heads_by_distance(self, name: str) -> Iterator[Block]:
        """Rows of one head after the other: the row of query q is a run of the values by distance, which q shifts."""
        spec = self.specs[name]
        first, last = int(self.keys[0] - self.queries.max()), int(self.keys[-1] - self.queries.min())
        if last - first >= len(self.queries) * len(self.keys):  # far fewer pairs than distances between them
            yield from self._heads(name)
            return
        made = self.function(distances=np.arange(first, last + 1), **self.arguments)
        made_values = next(array for own, array in made.items() if self._names[own] == name)
        values = np.ascontiguousarray(round_to(made_values, numpy_dtype(spec.dtype)))
        finite = values.dtype.kind not in "fcV" or bool(np.isfinite(values).all())
        plain = values.view(
            f"V{values.itemsize}"
        )  # numpy makes no views of runs of types that are not its own
        for head, by_distance in enumerate(plain.reshape(-1, last - first + 1)):
            runs = np.lib.stride_tricks.sliding_window_view(by_distance, len(self.keys))
            for start, end in self._steps(len(self.keys) * values.itemsize):
                shifts = int(self.keys[0]) - self.queries[start:end] - first
                rows = runs[shifts].view(values.dtype)
                if not finite:
                    self._count(name, rows)
                yield Block(name, head * len(self.queries) + start, rows)

    def _heads(self, name: str) -> Iterator[Block]:
        spec, count = self.specs[name], len(self.queries)
        heads, row = spec.shape[0], spec.nbytes // (spec.shape[0] * count)
        with TemporaryFile() as store:
            for start, end in self._steps(heads * row):
                for head, rows in enumerate(self._block(name, start, end)):
                    store.seek((head * count + start) * row)
                    store.write(as_bytes(rows))
            store.seek(0)
            step = max(1, BLOCK_BYTES // row)
            for start in range(0, heads * count, step):
                rows = min(step, heads * count - start)
                values = np.frombuffer(store.read(rows * row), numpy_dtype(spec.dtype))
                yield Block(name, start, values.reshape(rows, *spec.shape[2:]))


def renamed(tensors: Mapping[str, Any], key: str | None) -> dict[str, str]:
    """The names in the file: `key` for the only tensor, `key.cos` and so on where there are several."""
    if key is None:
        return {name: name for name in tensors}
    return {name: key if len(tensors) == 1 else f"{key}.{name}" for name in tensors}


def stored_dtype(computed: np.dtype[Any], asked: str | None) -> str:
    """The dtype in the file: `asked` (default float32) for real tables computed in float64.

    Integers, booleans and what the encoding rounded itself stay as they are.
    """
    if computed == np.float64:
        return asked or "float32"
    if computed == np.complex128:
        return "complex128" if asked == "float64" else "complex64"
    return str(computed.name)
