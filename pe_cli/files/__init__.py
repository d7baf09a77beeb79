"""Files of tensors: streamed in, streamed out, whole or not at all; a module a format.

Here is what all formats share: the description of a tensor, the sink that takes rows, the reader that gives them, and the
one place that opens files to read them.

Everything that pe reads is opened by `open_input`, which notes it (see `pe_cli.process`), so that no output can be laid
over an input. It gives one view of files and pipes, so that no reader assumes that it can seek.
"""

from __future__ import annotations

import math
import os
import select
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, nearest, no_such, parameter
from pe_cli.numerics.dtypes import SAFETENSORS_CODES, numpy_dtype
from pe_cli.process import STDIN, reading, require_memory, size

READABLE = frozenset({*SAFETENSORS_CODES, "complex128"})
_BLOCK = 1 << 20  # bytes
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
        f"cannot tell the format of {str(path)!r} by its extension; use one of {known}, or {parameter('format')}"
    )


EXTENSIONS = {
    "npy": (".npy",),
    "npz": (".npz",),
    "h5": (".h5", ".hdf5"),
    "safetensors": (".safetensors",),
    "csv": (".csv",),  # written, not read
}


def shown(text: str, most: int = 200) -> str:
    """Text from a file in a form that a terminal can be given: one line, no control characters."""
    return text if text.isprintable() and len(text) <= most else ascii(text[:most])


def check_memory(nbytes: int, what: str) -> None:
    """Refuse, before allocating, to hold more than the machine has."""
    require_memory(nbytes, what, "ask for fewer rows or a narrower dtype")


class ByteInput:
    """An open descriptor, read at offsets from where it stood; a pipe is only read forward.

    `size` is the number of bytes from there to the end of a regular file, and None for a pipe or a device.
    `whole` says that it can seek and begins with the file's first byte, as libraries that open it again need;
    `path` is the file's name, where it has one; `ahead` holds what was read of a pipe and is still to be given.
    """

    def __init__(self, fd: int, label: str, path: str | None = None) -> None:
        self.fd = fd
        self.label = label
        self.path = path
        status = os.fstat(fd)
        self.seekable = stat.S_ISREG(status.st_mode)
        self._base = os.lseek(fd, 0, os.SEEK_CUR) if self.seekable else 0
        self.size: int | None = max(0, status.st_size - self._base) if self.seekable else None
        self.whole = self.seekable and self._base == 0
        self.position = 0
        self.ahead = b""

    def named(self) -> str:
        """A path by which a library can open the same file again."""
        return self.path or f"/{'proc/self' if os.path.isdir('/proc/self/fd') else 'dev'}/fd/{self.fd}"

    def absolute(self, offset: int) -> int | None:
        """`offset` as one in the descriptor's file, for `os.preadv`; None for a pipe."""
        return self._base + offset if self.seekable else None

    def peek(self, count: int) -> bytes:
        """Up to `count` of the next bytes, which stay to be read."""
        if self.seekable:
            here = self.position
            data = self.read(count)
            self.position = here
            return data
        while len(self.ahead) < count:
            more = self._read_pipe(count - len(self.ahead))
            if not more:
                break
            self.ahead += more
        return self.ahead[:count]

    def read(self, count: int) -> bytes:
        """Exactly `count` bytes, or fewer at the end of the input."""
        if self.size is not None:
            count = min(count, max(0, self.size - self.position))
        parts: list[bytes] = []
        while count > 0:
            buffer = bytearray(min(count, _BLOCK))
            got = self.readinto(memoryview(buffer))
            parts.append(bytes(buffer[:got]))
            if got < len(buffer):
                break
            count -= got
        return b"".join(parts)

    def readinto(self, view: memoryview) -> int:
        """Fill `view` from the present position; fewer bytes only at the end of the input."""
        done = min(len(self.ahead), len(view))
        if done:
            view[:done] = self.ahead[:done]
            self.ahead = self.ahead[done:]
        while done < len(view):
            try:
                if self.seekable:
                    got = os.preadv(self.fd, [view[done:]], self._base + self.position + done)
                else:
                    got = os.readv(self.fd, [view[done:]])
            except BlockingIOError:
                select.select([self.fd], [], [])
                continue
            except OSError as error:
                raise PeError(f"cannot read {self.label}: {error.strerror}") from error
            if got == 0:
                break
            done += got
        self.position += done
        return done

    def seek(self, offset: int) -> None:
        """Go to `offset`; on a pipe only forward, by reading what lies between."""
        if self.seekable:
            self.position = offset
            return
        if offset < self.position:
            raise PeError(
                f"{self.label} is a pipe and can be read once, from front to back; save it to a file first"
            )
        scratch = memoryview(bytearray(min(_BLOCK, offset - self.position)))
        while self.position < offset:
            wanted = min(len(scratch), offset - self.position)
            if self.readinto(scratch[:wanted]) < wanted:
                raise truncated(self.label, offset - self.position)

    def fill(self, offset: int, view: memoryview) -> None:
        """Fill `view` with the bytes at `offset`, or say that the input is truncated."""
        self.seek(offset)
        got = self.readinto(view)
        if got < len(view):
            raise truncated(self.label, len(view) - got)

    def elements(self, offset: int, stored: np.dtype[Any], count: int, items: int) -> Iterator[NDArray[Any]]:
        """`count` elements that lie in a row at `offset`, `items` at a time, in native byte order."""
        for first in range(0, count, max(items, 1)):
            block = np.empty(min(items, count - first), stored)
            self.fill(offset + first * stored.itemsize, block.view(np.uint8).data)
            yield block if stored.isnative else block.astype(stored.newbyteorder("="))

    def ends_within(self, most: int) -> bool:
        """Whether the input, a pipe, holds at most `most` bytes; they are read ahead to know it."""
        parts, held, more = [self.ahead], len(self.ahead), b"\0"
        while more and held <= most:
            more = self._read_pipe(_BLOCK)
            parts.append(more)
            held += len(more)
        self.ahead = b"".join(parts)
        return not more

    def spooled(self) -> tuple[ByteInput, IO[bytes]]:
        """All of the input as a file that can seek: an unnamed temporary file, as large as the input; close it."""
        import tempfile  # with all it brings, for nothing in most runs

        from pe_cli.files.atomic import Copier, OpenOutput

        try:
            file = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
        except OSError as error:
            raise PeError(
                f"{self.label} must be kept in a temporary file to be read, for which there is no place "
                f"({error.strerror}); set TMPDIR to one, or give a file"
            ) from error
        label = f"a copy of {self.label} into {tempfile.gettempdir()} (TMPDIR names another place)"
        try:
            Copier(self, OpenOutput(file.fileno(), label, 0, whole=True)).copy(self.position, 0)
        except BaseException:
            file.close()
            raise
        return ByteInput(file.fileno(), self.label), file

    def _read_pipe(self, count: int) -> bytes:
        while True:
            try:
                return os.read(self.fd, count)
            except BlockingIOError:
                select.select([self.fd], [], [])
            except OSError as error:
                raise PeError(f"cannot read {self.label}: {error.strerror}") from error


def truncated(label: str, missing: int) -> PeError:
    """The input ends before its own header says."""
    return PeError(f"{label} is truncated: at least {size(missing)} are missing at its end; fetch it again")


@contextmanager
def open_input(path: str | os.PathLike[str]) -> Iterator[ByteInput]:
    """The bytes of a file, or of standard input for `-`; while it is open it counts as an input."""
    path = os.fspath(path)
    if path == "-":
        stream = _standard_input()
        with reading(STDIN, stream.label):
            yield stream
        return
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        raise _cannot_open(path, error) from error
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise PeError(f"{path} is a folder, not a file{_offer_inside(path)}")
        with reading(fd, path):
            yield ByteInput(fd, path, path)
    finally:
        os.close(fd)


def _offer_inside(folder: str) -> str:
    """What to name instead of a folder: the first file of tensors in it."""
    kinds = (".safetensors", ".npy", ".npz", ".h5", ".hdf5", ".gguf", ".bin", ".pt")
    found = sorted(name for name in os.listdir(folder) if name.lower().endswith(kinds))
    return f"; name a file in it, such as {os.path.join(folder, found[0])}" if found else ""


def _standard_input() -> ByteInput:
    try:
        if os.isatty(STDIN):
            raise PeError("standard input is a terminal; pipe a file into it, or name one")
        return ByteInput(STDIN, "standard input")
    except OSError as error:
        raise PeError("standard input is closed; pipe a file into it, or name one") from error


def _cannot_open(path: str, error: OSError | ValueError) -> PeError:
    if not isinstance(error, FileNotFoundError):
        return PeError(f"cannot read {path!r}: {getattr(error, 'strerror', None) or error}")
    folder, name = os.path.split(path.split(":")[0])
    try:
        near = nearest(name, os.listdir(folder or "."))
    except OSError:
        near = None
    hint = f"; did you mean {os.path.join(folder, near)!r}?" if near else ""
    return PeError(f"no file {path!r}{hint}")
