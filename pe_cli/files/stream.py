"""Bytes in: one view of files and pipes, so that no reader assumes that it can seek."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.memory import size

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
