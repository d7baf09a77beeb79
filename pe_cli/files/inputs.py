"""The one place that opens files to read them: one view of files and pipes, so that no reader assumes that it can seek.

Everything that pe reads is opened by `open_input`, which notes it (see `pe_cli.process`), so that no output can be laid
over an input.
"""

from __future__ import annotations

import difflib
import os
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.process import STDIN, reading, size

_BLOCK = 1 << 20


class ByteInput:
    """An open descriptor, read at offsets from where it stood; a pipe is only read forward.

    `size` is the number of bytes from there to the end of a regular file, and None for a pipe or a device.
    `whole` says that it can seek and begins with the file's first byte, as libraries that open it again need;
    `path` is the file's name, where it has one.
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
        self._ahead = b""

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
        while len(self._ahead) < count:
            more = self._read_pipe(count - len(self._ahead))
            if not more:
                break
            self._ahead += more
        return self._ahead[:count]

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
        done = min(len(self._ahead), len(view))
        if done:
            view[:done] = self._ahead[:done]
            self._ahead = self._ahead[done:]
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
        parts, held, more = [self._ahead], len(self._ahead), b"\0"
        while more and held <= most:
            more = self._read_pipe(_BLOCK)
            parts.append(more)
            held += len(more)
        self._ahead = b"".join(parts)
        return not more

    def spooled(self) -> tuple[ByteInput, IO[bytes]]:
        """All of the input as a file that can seek: an unnamed temporary file, as large as the input; close it."""
        import tempfile  # with all it brings, for nothing in most runs

        file = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
        buffer = memoryview(bytearray(_BLOCK))
        try:
            while got := self.readinto(buffer):
                file.write(buffer[:got])
            file.flush()
        except BaseException as error:
            file.close()
            if isinstance(error, OSError):
                raise PeError(
                    f"{self.label} must be kept in {tempfile.gettempdir()} to be read, which fails "
                    f"({error.strerror}); set TMPDIR to a place with room, or give a file"
                ) from error
            raise
        file.seek(0)
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
        near = difflib.get_close_matches(name, os.listdir(folder or "."), n=1, cutoff=0.7)
    except OSError:
        near = []
    hint = f"; did you mean {os.path.join(folder, near[0])!r}?" if near else ""
    return PeError(f"no file {path!r}{hint}")
