"""Where arrays come from: `FILE`, `FILE:TENSOR` or `-`, recognised by their first bytes and read in blocks."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, nearest, parameter
from pe_cli.files import READABLE, ByteInput, Reader, TensorSpec, check_memory, open_input, shown
from pe_cli.numerics.dtypes import numpy_dtype

POSITION_IDS = "position_ids"
_KEPT = 16 << 20
_MAX_AXES = 32  # what every numpy can have


class Source:
    """An open file of tensors.

    `label` is what the user typed, `format` one of npy, npz, hdf5, safetensors, gguf, torch; `tensors` are in the
    order of the file, and `named` is the one that was asked for. A pipe gives each tensor once, in that order.
    """

    def __init__(self, reader: Reader, stream: ByteInput, tensor: str | None) -> None:
        self.label = stream.label
        self.format = reader.format
        self.metadata: dict[str, str] = dict(reader.metadata)
        self.tensors: dict[str, TensorSpec] = dict(reader.tensors)
        self.links: dict[str, str] = dict(reader.links)
        self.stream = stream
        self.reader = reader
        self.named = tensor
        if tensor is not None:
            self.spec(tensor)

    @property
    def chosen(self) -> TensorSpec:
        """The tensor that was named, or the only one; an error that lists them where there are several."""
        if self.named is not None:
            return self.spec(self.named)
        self.require_tensors()
        if len(self.tensors) > 1:
            example = next(iter(self.tensors))
            raise PeError(
                f"{self.label} holds {len(self.tensors)} tensors; name one as {self.label}:{shown(example)}, "
                f"of {listing(self.tensors)}"
            )
        return next(iter(self.tensors.values()))

    def require_tensors(self) -> None:
        """An error where there is nothing to read; it says if there is something elsewhere."""
        if self.tensors:
            return
        told = ", ".join(f"{shown(name)} -> {shown(where)}" for name, where in [*self.links.items()][:3])
        elsewhere = (
            f", only links, which are not followed ({told}); name the file that they lead to" if told else ""
        )
        raise PeError(f"{self.label} holds no tensors{elsewhere}")

    def spec(self, name: str) -> TensorSpec:
        """The tensor called `name`; an error with near names where there is none."""
        if name not in self.tensors:
            if self.format == "npy":
                raise PeError(f"{self.label} is .npy, one array without a name; leave out {name!r}")
            if name in self.links:
                raise PeError(
                    f"{self.label}: {name!r} is a link to {shown(self.links[name])}, and links are not followed; name what it leads to"
                )
            if not self.tensors:
                self.require_tensors()
            best = nearest(name, self.tensors)
            near = [known for known in self.tensors if known == best or (name and name in known)]
            remedy = (
                f"did you mean {' or '.join(map(repr, near[:3]))}?"
                if near
                else f"it holds {listing(self.tensors)}"
            )
            raise PeError(f"{self.label} has no tensor {name!r}; {remedy}")
        return self.tensors[name]

    def span(self, name: str) -> tuple[int, int, np.dtype[Any]] | None:
        """(descriptor, offset, element type) where a tensor lies whole, in C order, in a regular file: for readers
        that want it in buffers of their own, from several threads. None for pipes and for all that must be unpacked.
        """
        spec = self.spec(name)
        found = self.reader.start(name) if spec.size and spec.dtype in READABLE else None
        if found is None or (offset := self.stream.absolute(found[0])) is None:
            return None
        return self.stream.fd, offset, found[1]

    def flat(self, name: str | None = None, *, items: int) -> Iterator[NDArray[Any]]:
        """The elements in C order, `items` at a time, each piece one-dimensional and in memory of its own."""
        spec = self.chosen if name is None else self.spec(name)
        self.require_readable(spec)
        if len(spec.shape) > _MAX_AXES or math.prod(filter(None, spec.shape)) >= 1 << 60:
            raise PeError(f"{self.label}: no array can have the shape {_short(spec.shape)} of {spec.called}")
        return self.reader.pieces(spec.name, max(1, items))

    def columns(self, name: str, *, items: int) -> Iterator[NDArray[Any]] | None:
        """The elements of a table that lies column after column in an `.npz`, in that order; None for all others."""
        read = getattr(self.reader, "columns", None)
        found: Iterator[NDArray[Any]] | None = read(name, items) if read else None
        return found

    def require_readable(self, spec: TensorSpec) -> None:
        """An error where the values of a tensor are of a type that pe passes through and does not read."""
        if spec.dtype not in READABLE:
            raise PeError(f"{self.label}: {spec.called} holds {spec.dtype}, whose values pe does not read")

    def blocks(self, name: str | None = None, max_bytes: int = 1 << 20) -> Iterator[NDArray[Any]]:
        """Consecutive rows of axis 0, (k, ...) each, of at most `max_bytes` but at least one row.

        A 0-d tensor comes as it is; a tensor without elements gives no blocks.
        """
        spec = self.chosen if name is None else self.spec(name)
        pieces = self.flat(spec.name, items=1)
        if not spec.shape:
            return (piece.reshape(()) for piece in pieces)
        rest = spec.shape[1:]
        row = spec.size // spec.shape[0] if spec.shape[0] else 0
        if row == 0:
            return iter(())
        row_bytes = row * numpy_dtype(spec.dtype).itemsize
        check_memory(row_bytes, f"one row of {self.label}")
        rows = max(1, max_bytes // row_bytes)
        return (piece.reshape(-1, *rest) for piece in self.flat(spec.name, items=rows * row))

    def read(self, name: str | None = None) -> NDArray[Any]:
        """The whole tensor, in memory."""
        spec = self.chosen if name is None else self.spec(name)
        pieces = self.flat(spec.name, items=1 << 20)
        check_memory(spec.nbytes, f"{self.label} of shape {spec.shape}")
        try:
            whole = np.empty(spec.size, numpy_dtype(spec.dtype))
        except MemoryError:
            raise PeError(f"{self.label} of shape {spec.shape} does not fit into memory") from None
        done = 0
        for piece in pieces:
            whole[done : done + piece.size] = piece
            done += piece.size
        return whole.reshape(spec.shape)


@contextmanager
def open_source(spec: str, *, tensor: str | None = None, again: bool = False) -> Iterator[Source]:
    """Open `FILE`, `FILE:TENSOR` or `-`; `tensor` names one as well. With `again`, what a pipe of at most 16 MiB gives can
    be read more than once.

    Errors: no such file or tensor, a format that is not recognised, a file that is broken.
    """
    path, named = split_spec(spec)
    if named is not None and tensor is not None and named != tensor:
        raise PeError(
            f"{spec!r} names the tensor {named!r}, and {parameter('tensor')} says {tensor!r}; give one of them"
        )
    with (
        open_input(path) as stream,
        reading_tensors(stream, tensor if named is None else named, again=again) as source,
    ):
        yield source


@contextmanager
def reading_tensors(stream: ByteInput, tensor: str | None = None, *, again: bool = False) -> Iterator[Source]:
    """The tensors of an input that is open already; `tensor` and `again` as in `open_source`."""
    with ExitStack() as stack:
        if again and not stream.seekable and stream.ends_within(_KEPT):
            stream, file = stream.spooled()
            stack.callback(file.close)
        reader, stream = _open_reader(stream, stack)
        try:
            yield Source(reader, stream, tensor)
        finally:
            reader.close()


def load_array(spec: str, *, tensor: str | None = None) -> NDArray[Any]:
    """One whole array from `FILE`, `FILE:TENSOR` or `-`."""
    with open_source(spec, tensor=tensor) as source:
        return source.read()


def load_positions(spec: str) -> NDArray[Any]:
    """The positions in a file: its only tensor, or `position_ids` among several, as `pe gen position-ids` writes them."""
    with open_source(spec) as source:
        return source.read(POSITION_IDS if source.named is None and POSITION_IDS in source.tensors else None)


def split_spec(spec: str) -> tuple[str, str | None]:
    """`FILE:TENSOR` as (file, tensor); the last colon with a file before it counts, unless the whole is a file."""
    if spec == "-" or os.path.exists(spec):
        return spec, None
    at = spec.rfind(":")
    while at > 0:
        head = spec[:at]
        if head == "-" or os.path.exists(head):
            return head, spec[at + 1 :]
        at = spec.rfind(":", 0, at)
    return spec, None


def without_folder(spec: str) -> str:
    """`FILE` or `FILE:TENSOR` without the folders of the file."""
    path, tensor = split_spec(spec)
    return PurePath(path).name + ("" if tensor is None else f":{tensor}")


def listing(tensors: dict[str, TensorSpec], most: int = 8) -> str:
    """Names and shapes for an error, cut after `most`."""
    first = [f"{shown(name)} {list(spec.shape)}" for name, spec in list(tensors.items())[:most]]
    return ", ".join(first) + (f" and {len(tensors) - most} more" if len(tensors) > most else "")


def _short(shape: tuple[int, ...], most: int = 60) -> str:
    text = str(shape)
    return text if len(text) <= most else f"{text[:most]}…"


def holds_tensors(first: bytes) -> bool:
    """Whether a file that begins with these (at least 16) bytes is of a format that holds tensors."""
    return first.startswith((_NPY, *_SEEKING)) or _begins_safetensors(first)


def _begins_safetensors(first: bytes) -> bool:
    """Whether these bytes are the length of a header and the brace that opens it."""
    return len(first) >= 9 and first[8:9] == b"{" and 2 <= int.from_bytes(first[:8], "little") <= 1 << 40


def _open_reader(stream: ByteInput, stack: ExitStack) -> tuple[Reader, ByteInput]:
    """The reader for what the first bytes say, and the stream it reads: a pipe is kept in a file if it must be."""
    first = stream.peek(16)
    if not first:
        raise PeError(f"{stream.label} is empty")
    if first.startswith(_NPY):
        from pe_cli.files.npy import NpyReader

        return NpyReader(stream), stream
    if _begins_safetensors(first):
        from pe_cli.files.safetensors import SafetensorsReader

        return SafetensorsReader(stream), stream
    for magic, open_reader in _SEEKING.items():
        if first.startswith(magic):
            if not stream.whole:
                stream, file = stream.spooled()
                stack.callback(file.close)
            return open_reader(stream), stream
    if stream.label.endswith(".msgpack") or (
        len(first) > 1 and first[0] in _MESSAGE_PACK_MAPS and first[1] in _MESSAGE_PACK_NAMES
    ):
        raise PeError(
            f"{stream.label} is in MessagePack, as Flax writes its weights, which pe does not read: load the model and save "
            "safetensors"
        )
    known = (what for start, what in _NO_TABLES.items() if first.lstrip().startswith(start))
    what = next(known, f"it begins with {first[:8]!r}")
    raise PeError(f"{stream.label} is none of npy, npz, HDF5, safetensors, GGUF and torch: {what}")


def _open_zip(stream: ByteInput) -> Reader:
    from pe_cli.files.npy import NpzReader, open_archive

    archive = open_archive(stream)
    if any(name.endswith("data.pkl") for name in archive.namelist()):
        from pe_cli.files.torch import TorchReader

        archive.close()
        return TorchReader(stream, zipped=True)
    return NpzReader(stream, archive)


def _open_hdf5(stream: ByteInput) -> Reader:
    from pe_cli.files.hdf5 import Hdf5Reader

    return Hdf5Reader(stream)


def _open_gguf(stream: ByteInput) -> Reader:
    from pe_cli.files.gguf import GgufReader

    return GgufReader(stream)


def _open_pickle(stream: ByteInput) -> Reader:
    from pe_cli.files.torch import TorchReader

    return TorchReader(stream, zipped=False)


_NPY = b"\x93NUMPY"
# A map of up to 15 entries, or of more, that begins with a name.
_MESSAGE_PACK_MAPS = (*range(0x81, 0x90), 0xDE, 0xDF)
_MESSAGE_PACK_NAMES = (*range(0xA1, 0xC0), 0xD9)
# What people give instead of a file of tensors, by the bytes it begins with.
_NO_TABLES: Mapping[bytes, str] = {
    b"{": "it is JSON; give the file of the weights, or for its own encoding try `pe gen model`",
    b"version https://": "it is a pointer of Git LFS to the file; fetch that with `git lfs pull`",
    b"<": "it is a web page or other markup; download the file itself",
}
# Formats whose readers need to seek, by the bytes they begin with.
_SEEKING: Mapping[bytes, Callable[[ByteInput], Reader]] = {
    b"PK\x03\x04": _open_zip,
    b"PK\x05\x06": _open_zip,
    b"\x89HDF\r\n\x1a\n": _open_hdf5,
    b"GGUF": _open_gguf,
    b"\x80\x02": _open_pickle,
}
