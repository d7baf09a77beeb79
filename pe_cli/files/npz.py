"""`.npz`, read: a zip of `.npy` members, inflated in blocks and with distrust of what expands to more than it could be."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.files import npy
from pe_cli.files.base import NO_LINKS, TensorSpec, shown
from pe_cli.files.inputs import ByteInput, truncated
from pe_cli.process import size

_MAX_RATIO = 200
_RATIO_FROM = 1 << 30
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    KeyError,
    OverflowError,
    IndexError,
)


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
        self._ahead = b""

    def readinto(self, view: memoryview) -> int:
        done = 0
        while done < len(view):
            try:
                chunk = self._file.read(min(len(view) - done, 1 << 20))
            except _DAMAGED as error:
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
        info = self._members[name]
        _refuse_bomb(info, self._stream.label)
        with self._open(info) as file:
            member = _Member(file, f"{self._stream.label}:{shown(name)}")
            found = npy.read_header(member, member.label)
            count = self.tensors[name].size
            raw = member.elements(found.start, found.stored, count, items)
            yield from npy.reordered(raw, found, items, member.label) if found.fortran else raw

    def start(self, name: str) -> tuple[int, np.dtype[Any]] | None:
        """Nowhere: the elements must be unpacked."""
        return None

    def close(self) -> None:
        """Forget the archive; the stream is not ours."""
        with suppress(Exception):
            self._zip.close()

    def _open(self, info: zipfile.ZipInfo) -> IO[bytes]:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
            raise PeError(
                f"{self._stream.label}: {info.filename!r} is encrypted or not stored or deflated as numpy does"
            )
        try:
            return self._zip.open(info)
        except _DAMAGED as error:
            raise _broken(self._stream.label, error) from error

    def _describe(self, name: str, info: zipfile.ZipInfo) -> TensorSpec:
        label = f"{self._stream.label}:{shown(name)}"
        with self._open(info) as file:
            found = npy.read_header(_Member(file, label), label)
        spec = found.spec(name)
        if found.start + spec.nbytes > info.file_size:
            raise truncated(label, found.start + spec.nbytes - info.file_size)
        return spec


def open_archive(stream: ByteInput) -> zipfile.ZipFile:
    """The zip in `stream`; whether it is npz or torch's, its members tell."""
    try:
        return zipfile.ZipFile(cast(IO[bytes], _View(stream)))
    except _DAMAGED as error:
        raise _broken(stream.label, error) from error


def _broken(label: str, error: BaseException) -> PeError:
    if isinstance(error, PeError):
        return error
    return PeError(
        f"{label} cannot be read as .npz ({shown(str(error), 100) or type(error).__name__}); it may be damaged or cut off"
    )
