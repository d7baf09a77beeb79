"""What all formats share: the description of a tensor, the sink that takes rows, the reader that gives them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, no_such
from pe_cli.memory import require_memory
from pe_cli.numerics.dtypes import SAFETENSORS_CODES, numpy_dtype

READABLE = frozenset({*SAFETENSORS_CODES, "complex128"})


class NoSuchTypeError(PeError):
    """The format has no numbers of the type `dtype`."""

    def __init__(self, message: str, dtype: str) -> None:
        super().__init__(message)
        self.dtype = dtype


@dataclass(frozen=True)
class TensorSpec:
    """A tensor's name, element type and shape.

    `dtype` is a name of `pe_cli.numerics.dtypes`, or `complex128`; in a file that was read it can also be the file's own
    word for a type that pe passes through but does not read (`Q4_0`, `F4`), and then `stored` is its size in bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    stored: int | None = None

    @property
    def called(self) -> str:
        """The name for messages; the array of an `.npy` has none."""
        return shown(self.name) or "the table"

    @property
    def size(self) -> int:
        """Number of elements; 1 for a 0-d tensor."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * numpy_dtype(self.dtype).itemsize if self.stored is None else self.stored


class Sink(Protocol):
    """Takes the rows of the tensors that were announced.

    `specs` is the order in which the tensors lie in the file. Where `sequential` is true (a pipe, npz) they must be
    written whole in that order; elsewhere tensors and rows may come in any order, each row once.
    """

    specs: tuple[TensorSpec, ...]
    sequential: bool

    def write(self, name: str, start: int, rows: NDArray[Any]) -> None:
        """Rows `start`, `start + 1`, … of tensor `name`; a 0-d tensor is written whole at 0.

        Rows are those of axis 0, or, where `rows` has fewer axes than the tensor, those of its leading axes together:
        (heads, queries, keys) takes rows (m, keys), of which row h·queries + q belongs to head h and query q.
        """


@dataclass(frozen=True)
class Layout:
    """A file known in advance: the elements of each tensor lie at `offsets`, all else is `fixed` (offset, bytes).

    `specs` are in the order of their offsets, and the fixed parts fill what the elements leave free.
    """

    fixed: tuple[tuple[int, bytes], ...]
    offsets: Mapping[str, int]
    specs: tuple[TensorSpec, ...]

    @property
    def end(self) -> int:
        """The size of the file."""
        parts = [(offset, len(data)) for offset, data in self.fixed]
        parts += [(self.offsets[spec.name], spec.nbytes) for spec in self.specs]
        return max(offset + nbytes for offset, nbytes in parts)


NO_LINKS: Mapping[str, str] = MappingProxyType({})


class Reader(Protocol):
    """An open file of tensors, in the order of the file."""

    format: str
    metadata: Mapping[str, str]
    tensors: Mapping[str, TensorSpec]

    @property
    def links(self) -> Mapping[str, str]:
        """Names that stand for something elsewhere, which is not read, and where that is."""

    def pieces(self, name: str, items: int) -> Iterator[NDArray[Any]]:
        """The elements of one tensor in C order, `items` at a time, as one-dimensional arrays of native order."""

    def start(self, name: str) -> tuple[int, np.dtype[Any]] | None:
        """Where the elements lie in a row in C order, and how they are stored; None where they must be unpacked."""

    def close(self) -> None:
        """Give back what this reader itself opened."""


class Ledger:
    """Which elements of which tensors have been written: refuses what does not fit, is out of turn or comes twice.

    `turn` is the index of the first tensor that is not yet whole.
    """

    def __init__(self, specs: Sequence[TensorSpec], *, sequential: bool) -> None:
        self.specs = tuple(specs)
        self.sequential = sequential
        self._specs = {spec.name: spec for spec in specs}
        self._written: dict[str, list[tuple[int, int]]] = {spec.name: [] for spec in specs}
        self.turn = 0
        self._skip_complete()

    def accept(self, name: str, start: int, rows: NDArray[Any]) -> tuple[int, memoryview]:
        """Where these rows begin, in bytes from the tensor's beginning, and their bytes in C order."""
        spec = self._specs[name]
        if rows.dtype != numpy_dtype(spec.dtype) or not rows.dtype.isnative:
            raise TypeError(f"tensor {name!r} was announced as {spec.dtype}, not {rows.dtype}")
        leading = len(spec.shape) - rows.ndim + 1
        if spec.shape and (leading < 1 or rows.ndim < 1 or rows.shape[1:] != spec.shape[leading:]):
            raise ValueError(
                f"tensor {name!r} was announced as {spec.shape}; rows of shape {rows.shape} do not fit"
            )
        row_size = math.prod(rows.shape[1:])
        if not 0 <= start * row_size <= start * row_size + rows.size <= spec.size:
            raise ValueError(
                f"rows {start}..{start + len(rows)} lie outside tensor {name!r} of shape {spec.shape}"
            )
        if rows.size == 0:
            return 0, memoryview(b"")
        if self.sequential:
            self._check_turn(name, start * row_size)
        self._note(name, start * row_size, start * row_size + rows.size)
        self._skip_complete()
        return start * row_size * rows.itemsize, as_bytes(rows)

    def finish(self) -> None:
        """Raise unless every row of every tensor has been written."""
        for spec in self.specs:
            if not self._complete(spec):
                raise RuntimeError(f"tensor {spec.name!r} of shape {spec.shape} was not written whole")

    def _check_turn(self, name: str, start: int) -> None:
        expected = self.specs[self.turn].name if self.turn < len(self.specs) else None
        spans = self._written[name]
        done = spans[-1][1] if spans else 0
        if name != expected or start != done:
            raise ValueError(
                f"this sink takes tensors in order: {expected!r} element {done} is next, not {name!r} element {start}"
            )

    def _note(self, name: str, start: int, stop: int) -> None:
        spans = self._written[name]
        if any(start < b and a < stop for a, b in spans):
            raise ValueError(f"elements {start}..{stop} of tensor {name!r} overlap those already written")
        merged: list[tuple[int, int]] = []
        for span in sorted([*spans, (start, stop)]):
            if merged and merged[-1][1] == span[0]:
                merged[-1] = (merged[-1][0], span[1])
            else:
                merged.append(span)
        self._written[name] = merged

    def _complete(self, spec: TensorSpec) -> bool:
        return spec.size == 0 or self._written[spec.name] == [(0, spec.size)]

    def _skip_complete(self) -> None:
        while self.turn < len(self.specs) and self._complete(self.specs[self.turn]):
            self.turn += 1


def as_bytes(rows: NDArray[Any]) -> memoryview:
    """The bytes of `rows` in C order, copied only where they do not lie so already."""
    flat = np.ascontiguousarray(rows).reshape(-1)
    return flat.view(np.uint8).data


def default_format(path: str | Path | None, specs: Sequence[TensorSpec], given: str | None) -> str:
    """The format to write: the one `given`, else by the extension of `path`; for a pipe by the number of tensors."""
    if given is not None:
        if given not in EXTENSIONS:
            raise no_such("format", given, EXTENSIONS)
        return given
    if path is None or str(path) == "-":
        return "npy" if len(specs) == 1 else "safetensors"
    suffix = Path(path).suffix.lower()
    for name, suffixes in EXTENSIONS.items():
        if suffix in suffixes:
            return name
    known = ", ".join(s for suffixes in EXTENSIONS.values() for s in suffixes)
    raise PeError(
        f"cannot tell the format of {str(path)!r} by its extension; use one of {known}, or --format"
    )


EXTENSIONS = {
    "npy": (".npy",),
    "npz": (".npz",),
    "h5": (".h5", ".hdf5"),
    "safetensors": (".safetensors",),
}


def shown(text: str, most: int = 200) -> str:
    """Text from a file in a form that a terminal can be given: one line, no control characters."""
    return text if text.isprintable() and len(text) <= most else ascii(text[:most])


def check_memory(nbytes: int, what: str) -> None:
    """Refuse, before allocating, to hold more than the machine has."""
    require_memory(nbytes, what, "ask for fewer rows or a narrower dtype")
