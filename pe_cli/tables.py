"""An encoding with its arguments, as tensors whose shapes are known at once and whose rows come in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, option_name
from pe_cli.files import TensorSpec
from pe_cli.numerics.dtypes import numpy_dtype, round_to
from pe_cli.positions import LIMIT, Positions
from pe_cli.tensors import Tensors

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

    @abstractmethod
    def sample(self, rows: int) -> dict[str, NDArray[Any]]:
        """At most about `rows` evenly spaced rows of each tensor, for a picture."""


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

    def sample(self, rows: int) -> dict[str, NDArray[Any]]:
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
            raise PeError(f"--prefix-rows {self.prefix}: these are more than 2^63 rows, ask for fewer")
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

    def sample(self, rows: int) -> dict[str, NDArray[Any]]:
        count = self._end - self._begin
        chosen = np.unique(
            np.linspace(self._begin, max(self._end - 1, self._begin), min(rows, count)).astype(int)
        )
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
            raise PeError(f"a single row takes {row_bytes / 2**20:.0f} MiB: ask for a smaller --dim")
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

    def sample(self, rows: int) -> dict[str, NDArray[Any]]:
        samples = {label: table.sample(rows) for label, table in self._tables.items()}
        return {joined: samples[label][name] for joined, (label, name) in self._own.items()}


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
