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
from pe_cli.numerics.dtypes import SAFETENSORS_CODES, numpy_dtype
from pe_cli.process import require_memory

READABLE = frozenset({*SAFETENSORS_CODES, "complex128"})
MOST_TENSORS = 1 << 18  # in a file; the description of each takes some hundred bytes


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
class FileLayout:
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
