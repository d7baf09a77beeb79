"""`.npy`: one array, and `.npz`: a zip of them, inflated in blocks. Elements that numpy lacks are raw bytes, as numpy itself
writes them.

bfloat16 is `<V2`; both float8 types are `<V1`, and a comment in the header, which numpy skips, tells them apart.
`numpy.load` opens all of them; `.view(ml_dtypes.bfloat16)` gives the values.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.files import (
    MOST_TENSORS,
    NO_LINKS,
    READABLE,
    ByteInput,
    FileLayout,
    TensorSpec,
    check_memory,
    shown,
    truncated,
)
from pe_cli.numerics.dtypes import NOT_IN_NUMPY, numpy_dtype
from pe_cli.process import size

if TYPE_CHECKING:
    import zipfile

MAGIC = b"\x93NUMPY"
_MAX_HEADER = 10_000  # numpy's own bound: literal_eval of more may take the interpreter down
# What an .npz member may expand to: so many times its size in the file, beyond the first GiB.
_MAX_RATIO = 200
_RATIO_FROM = 1 << 30
_RAW_BYTE = ("float8_e4m3fn", "float8_e5m2")
_LONGEST_TAIL = (1 << 16) + 128  # of a zip: a comment and what tells where its list of members lies
_STORED, _DEFLATED = 0, 8  # the ways in which numpy packs the members of an .npz
# How numpy writes float8_e5m2 of ml_dtypes, which it cannot read again.
_E5M2 = re.compile(rb"(?<='descr': )'[<|=]?f1'")


def header(spec: TensorSpec) -> bytes:
    """The bytes before the elements, a multiple of 64."""
    dtype = numpy_dtype(spec.dtype)
    descr = f"<V{dtype.itemsize}" if spec.dtype in NOT_IN_NUMPY else dtype.str
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {spec.shape!r}, }}"
    if spec.dtype in _RAW_BYTE:
        text += f"  # {spec.dtype}"
    length = -(-(10 + len(text) + 1) // 64) * 64 - 10
    if length < 1 << 16:
        return MAGIC + b"\x01\x00" + length.to_bytes(2, "little") + text.ljust(length - 1).encode() + b"\n"
    raise PeError(f"an array of {len(spec.shape)} dimensions does not fit into .npy; use .safetensors")


def layout(specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> FileLayout:
    """Where the elements go; `.npy` has no room for metadata."""
    if len(specs) != 1:
        names = ", ".join(spec.name for spec in specs)
        raise PeError(
            f".npy holds one array, and there are {len(specs)} ({names}); use .safetensors, .npz or .h5"
        )
    prefix = header(specs[0])
    return FileLayout(((0, prefix),), {specs[0].name: len(prefix)}, tuple(specs))


class NpyHeader:
    """A header that was read: where the elements begin, how they are stored, and what they mean."""

    def __init__(
        self, shape: tuple[int, ...], stored: np.dtype[Any], dtype: str, fortran: bool, start: int
    ) -> None:
        self.shape = shape
        self.stored = stored
        self.dtype = dtype
        self.fortran = fortran
        self.start = start

    def spec(self, name: str) -> TensorSpec:
        """The array, called `name`; elements that pe does not read keep their size."""
        nbytes = math.prod(self.shape) * self.stored.itemsize
        return TensorSpec(name, self.dtype, self.shape, None if self.dtype in READABLE else nbytes)


def read_header(stream: ByteInput, label: str) -> NpyHeader:
    """Read and check a header at the present position of `stream`.

    Errors: not `.npy`, truncated, object arrays and other elements that are not numbers, a shape that is none.
    """
    start = stream.read(8)
    if len(start) < 8 or not start.startswith(MAGIC):
        raise PeError(f"{label} is not a .npy file: it does not begin with \\x93NUMPY")
    width = 2 if start[6] == 1 else 4
    if start[6] not in (1, 2, 3):
        raise PeError(f"{label} is .npy version {start[6]}.{start[7]}; versions 1 to 3 are known")
    raw = stream.read(width)
    length = int.from_bytes(raw, "little")
    if length > _MAX_HEADER:
        raise PeError(f"{label} has a .npy header of {length} bytes; more than {_MAX_HEADER} are not read")
    text = stream.read(length)
    if len(raw) < width or len(text) < length:
        raise truncated(label, length - len(text) or 1)
    shape, fortran, stored = _parsed(start[6], raw + text, label)
    dtype = _element_type(stored, text, label)
    if math.prod(shape) * stored.itemsize >= 1 << 63:
        raise PeError(f"{label} declares an array of shape {shape}, which no machine can hold")
    if dtype in NOT_IN_NUMPY:
        stored = numpy_dtype(dtype)
    return NpyHeader(shape, stored, dtype, fortran, 8 + width + length)


def _parsed(version: int, header: bytes, label: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, Fortran order and element type, as numpy reads them from the bytes behind the version."""
    if _E5M2.search(header):
        return _parsed(version, _E5M2.sub(lambda found: b"'|V1'" + b" " * (len(found[0]) - 5), header), label)
    read = np.lib.format.read_array_header_1_0 if version == 1 else np.lib.format.read_array_header_2_0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shape, fortran, stored = read(io.BytesIO(header), max_header_size=_MAX_HEADER)
    except Exception as error:  # numpy passes on whatever its own parsers raise on a header that is none
        reason = shown(str(error).partition("\n")[0], 80)
        raise PeError(f"{label} has a broken .npy header ({reason})") from None
    return _checked_shape(shape, label), fortran, stored


def _element_type(stored: np.dtype[Any], text: bytes, label: str) -> str:
    """pe's name of the element type, or numpy's where pe does not read the values."""
    if stored.hasobject:
        raise PeError(f"{label} holds Python objects (a pickle), which are never loaded; save it as numbers")
    if stored.str == "|V2":
        return "bfloat16"
    if stored.str == "|V1":
        comment = re.search(rb"#\s*(float8_\w+)", text)
        if comment and comment[1].decode() in _RAW_BYTE:
            return comment[1].decode()
        if _E5M2.search(text):
            return "float8_e5m2"
        if b"'<V1'" in text:  # what numpy writes for ml_dtypes' float8_e4m3fn
            return "float8_e4m3fn"
        return "bytes, of which float8 type is not known"
    return stored.name if stored.name in READABLE else str(stored)


def _checked_shape(value: Any, label: str) -> tuple[int, ...]:
    if len(value) <= 64 and all(type(n) is int and 0 <= n < 1 << 63 for n in value):
        return tuple(value)
    raise PeError(f"{label} has a .npy header whose shape is {repr(value)[:60]}, not a tuple of sizes")


class NpyReader:
    """An open `.npy`; its tensor has the name given by the caller, usually empty."""

    format = "npy"
    links = NO_LINKS

    def __init__(self, stream: ByteInput, name: str = "") -> None:
        self._stream = stream
        self._header = read_header(stream, stream.label)
        spec = self._header.spec(name)
        if stream.size is not None and self._header.start + spec.nbytes > stream.size:
            raise truncated(stream.label, self._header.start + spec.nbytes - stream.size)
        self.metadata: Mapping[str, str] = {}
        self.tensors: Mapping[str, TensorSpec] = {name: spec}

    def pieces(self, name: str, items: int) -> Iterator[NDArray[Any]]:
        found, count = self._header, self.tensors[name].size
        raw = self._stream.elements(found.start, found.stored, count, items)
        return reordered(raw, found, items, self._stream.label) if found.fortran else raw

    def start(self, name: str) -> tuple[int, np.dtype[Any]] | None:
        """Where the elements begin; None in Fortran order."""
        return None if self._header.fortran else (self._header.start, self._header.stored)

    def close(self) -> None:
        """Nothing of its own."""


def reordered(
    raw: Iterator[NDArray[Any]], found: NpyHeader, items: int, label: str
) -> Iterator[NDArray[Any]]:
    """Fortran order turned into C order; the whole array is held for that."""
    count = math.prod(found.shape)
    check_memory(2 * count * found.stored.itemsize, f"turning {label} from Fortran order")
    whole = np.concatenate([*raw]) if count else np.empty(0, found.stored)
    flat = whole.reshape(found.shape, order="F").reshape(-1)
    for first in range(0, count, items):
        yield flat[first : first + items]


def _refuse_bomb(info: zipfile.ZipInfo, label: str) -> None:
    """Refuse a member that would expand enormously, before it does."""
    if info.file_size > _RATIO_FROM and info.file_size > _MAX_RATIO * info.compress_size:
        name = info.filename.removesuffix(".npy")
        raise PeError(
            f"{label}: {name!r} would expand from {size(info.compress_size)} to "
            f"{size(info.file_size)}, more than {_MAX_RATIO} times; unpack it yourself if you trust it"
        )


class _View(io.RawIOBase):
    """A seekable ByteInput as a file for zipfile."""

    def __init__(self, stream: ByteInput) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._stream.position, io.SEEK_END: self._stream.size or 0}[
            whence
        ]
        if base + offset < 0:
            raise OSError("negative seek")
        self._stream.seek(base + offset)
        return self._stream.position

    def tell(self) -> int:
        return self._stream.position

    def readinto(self, buffer: Any) -> int:
        return self._stream.readinto(memoryview(buffer).cast("B"))


class _Member(ByteInput):
    """The inflated bytes of one member, as an input that only goes forward."""

    def __init__(self, file: IO[bytes], label: str) -> None:
        self._file = file
        self.label = label
        self.seekable = False
        self.size = None
        self.position = 0
        self.ahead = b""

    def readinto(self, view: memoryview) -> int:
        done = 0
        while done < len(view):
            try:
                chunk = self._file.read(min(len(view) - done, 1 << 20))
            except Exception as error:  # zipfile raises whatever a damaged file makes it meet
                raise _broken(self.label, error) from error
            if not chunk:
                break
            view[done : done + len(chunk)] = chunk
            done += len(chunk)
        self.position += done
        return done


class NpzReader:
    """An open `.npz`; tensors are called as numpy calls them, without `.npy`."""

    format = "npz"
    links = NO_LINKS

    def __init__(self, stream: ByteInput, archive: zipfile.ZipFile) -> None:
        self._stream = stream
        self._zip = archive
        self._members: dict[str, zipfile.ZipInfo] = {}
        for info in archive.infolist():
            if info.filename.endswith(".npy"):
                name = info.filename[: -len(".npy")]
                if name in self._members:
                    raise PeError(f"{stream.label} holds two members {info.filename!r}")
                self._members[name] = info
        if not self._members:
            raise PeError(f"{stream.label} is a zip without .npy members")
        self.metadata: Mapping[str, str] = {}
        self.tensors: Mapping[str, TensorSpec] = {
            name: self._describe(name, info) for name, info in self._members.items()
        }

    def pieces(self, name: str, items: int) -> Iterator[NDArray[Any]]:
        return self._pieces(name, items, as_stored=False)

    def columns(self, name: str, items: int) -> Iterator[NDArray[Any]] | None:
        """The elements of an array in Fortran order as they lie, `items` at a time; None for one in C order."""
        with self._open(self._members[name]) as file:
            fortran = read_header(_Member(file, self._stream.label), self._stream.label).fortran
        return self._pieces(name, items, as_stored=True) if fortran else None

    def _pieces(self, name: str, items: int, *, as_stored: bool) -> Iterator[NDArray[Any]]:
        info = self._members[name]
        _refuse_bomb(info, self._stream.label)
        with self._open(info) as file:
            member = _Member(file, f"{self._stream.label}:{shown(name)}")
            found = read_header(member, member.label)
            raw = member.elements(found.start, found.stored, self.tensors[name].size, items)
            yield from reordered(raw, found, items, member.label) if found.fortran and not as_stored else raw

    def start(self, name: str) -> tuple[int, np.dtype[Any]] | None:
        """Nowhere: the elements must be unpacked."""
        return None

    def close(self) -> None:
        """Forget the archive; the stream is not ours."""
        with suppress(Exception):
            self._zip.close()

    def _open(self, info: zipfile.ZipInfo) -> IO[bytes]:
        if info.compress_type not in (_STORED, _DEFLATED) or info.flag_bits & 1:
            raise PeError(
                f"{self._stream.label}: {info.filename!r} is encrypted or not stored or deflated as numpy does"
            )
        try:
            return self._zip.open(info)
        except Exception as error:
            raise _broken(self._stream.label, error) from error

    def _describe(self, name: str, info: zipfile.ZipInfo) -> TensorSpec:
        label = f"{self._stream.label}:{shown(name)}"
        with self._open(info) as file:
            found = read_header(_Member(file, label), label)
        spec = found.spec(name)
        if found.start + spec.nbytes > info.file_size:
            raise truncated(label, found.start + spec.nbytes - info.file_size)
        return spec


def open_archive(stream: ByteInput) -> zipfile.ZipFile:
    """The zip in `stream`; whether it is npz or torch's, its members tell."""
    import zipfile  # with all it brings, for this format alone

    _refuse_many(stream)
    try:
        return zipfile.ZipFile(cast(IO[bytes], _View(stream)))
    except Exception as error:
        raise _broken(stream.label, error) from error


def _refuse_many(stream: ByteInput) -> None:
    """Refuse a zip of more members than a file of tensors has: zipfile would first make an object of each.

    They are counted by the marks in the list at the end, whose place and size the last bytes of the file tell.
    """
    end = stream.size or 0
    tail_start = max(0, end - _LONGEST_TAIL)
    stream.seek(tail_start)
    tail = stream.read(end - tail_start)
    at = tail.rfind(b"PK\x05\x06")
    begin, count = tail_start + max(at, 0), 0
    length = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
    if length == 0xFFFFFFFF:  # then it is told before, in 64 bits
        at = tail.rfind(b"PK\x06\x06")
        begin = tail_start + max(at, 0)
        length = int.from_bytes(tail[at + 40 : at + 48], "little") if at >= 0 else 0
    stream.seek(max(0, begin - length))
    while stream.position < begin and count <= MOST_TENSORS:
        part = stream.read(min(1 << 20, begin - stream.position))
        if stream.position < begin:  # a mark may lie across two parts
            stream.seek(stream.position - 3)
        count += part.count(b"PK\x01\x02")
    if count > MOST_TENSORS:
        raise PeError(f"{stream.label} has more than {MOST_TENSORS:,} members, which no loader is made for")


def _broken(label: str, error: Exception) -> Exception:
    if isinstance(error, (PeError, MemoryError)):
        return error
    return PeError(
        f"{label} cannot be read as .npz ({shown(str(error), 100) or type(error).__name__}); it may be damaged or cut off"
    )
