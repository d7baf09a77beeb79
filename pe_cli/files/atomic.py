"""Files that appear whole or not at all.

Where the system can (Linux, most file systems) the bytes go to a file without a name that is linked into place when
it is complete, so that even a killed process leaves nothing behind; elsewhere to a hidden file beside the target.
An existing file is replaced by a rename, after fsync: a crash leaves the old or the new one. Without `force` the last
step fails if the target has appeared meanwhile, so two writers cannot overwrite each other.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeAlias

from pe_cli.errors import PeError, parameter
from pe_cli.files import ByteInput, truncated
from pe_cli.process import SIGNALS, STDOUT, refuse_input, size

# What is written at once. Two buffers of that size stay in the cache of a core; and where file systems keep what is
# written in folios as large as the write (ext4 since Linux 6.16), it took three times as long in pieces of 1 MiB.
PIECE = 1 << 18
Move: TypeAlias = Callable[..., int]  # os.splice or os.copy_file_range


@dataclass
class OpenOutput:
    """An open descriptor to write to.

    `start` is where the first byte comes to lie in a file that takes bytes in any order; None where they follow each
    other. `whole` says that the output appears at its end or not at all. `end` is how far it was written.
    """

    fd: int
    label: str
    start: int | None
    whole: bool = False
    end: int = 0
    _growing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def seekable(self) -> bool:
        """Whether bytes may come in any order, also from several threads."""
        return self.start is not None

    def at(self, offset: int) -> int | None:
        """`offset` as one in the descriptor's file; None where bytes follow each other."""
        return None if self.start is None else self.start + offset

    def reserve(self, nbytes: int) -> None:
        """Ask the file system for room at once: faster, and a full disk is known before any work is done."""
        if self.start is None or nbytes <= 0 or not hasattr(os, "posix_fallocate"):
            return
        try:
            os.posix_fallocate(self.fd, self.start, nbytes)
        except OSError as error:
            if error.errno in _FULL:
                raise cannot_write(self.label, error, nbytes) from error

    def put(self, data: memoryview, offset: int) -> None:
        """Write all of `data`: at `offset`, or next where bytes follow each other."""
        while data:
            piece, place = data[: PIECE - offset % PIECE], self.at(offset)
            try:
                done = os.write(self.fd, piece) if place is None else os.pwrite(self.fd, piece, place)
            except BlockingIOError:
                select.select([], [self.fd], [])
                continue
            except OSError as error:
                raise cannot_write(self.label, error, whole=self.whole) from error
            data, offset = data[done:], offset + done
            self.reached(offset)

    def draw(self, move: Move, source: int, begin: int | None, most: int, offset: int) -> int:
        """Let the kernel `move` up to `most` bytes from `begin` of the descriptor `source`; how many it moved."""
        done = move(source, self.fd, most, offset_src=begin, offset_dst=self.at(offset))
        self.reached(offset + done)
        return done

    def reached(self, offset: int) -> None:
        """Note that bytes were written up to `offset`."""
        with self._growing:
            self.end = max(self.end, offset)


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def cannot_write(
    label: str, error: OSError, nbytes: int | None = None, *, whole: bool = True
) -> OSError | PeError:
    """What to raise for a failed write: a closed pipe stays what it is, all else is the user's to mend.

    `whole` says that the output appears at its end or not at all, which pipes and devices do not.
    """
    if isinstance(error, BrokenPipeError):
        return error
    needs = f"; {size(nbytes)} are needed" if nbytes is not None else ""
    left = "nothing was written" if whole else "what was written is not complete"
    return PeError(f"cannot write {label}: {error.strerror or error}{needs}; {left}")


@contextmanager
def open_output(path: str | Path | None, *, force: bool = False) -> Iterator[OpenOutput]:
    """Open `path` for writing (None or `-`: standard output); it appears when the block ends without an exception.

    A symbolic link stays, and what it points to is written. A device, a named pipe or `/dev/stdout` is written straight.

    Errors: an existing file without `force`, a file that is being read, a folder, a place that cannot be written.
    """
    with _cleanup_on_terminate():
        if path is None or str(path) == "-":
            refuse_input(STDOUT, "standard output")
            yield from _standard()
        else:
            yield from _open_named(path, force)


def _open_named(path: str | Path, force: bool) -> Iterator[OpenOutput]:
    label = str(path)
    if label.endswith(os.sep):
        raise PeError(f"{label} is the name of a folder; give that of a file")
    target = os.path.realpath(path)
    try:
        status = os.stat(path)
    except FileNotFoundError:
        status = None
    except OSError as error:
        raise cannot_write(label, error) from error
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise PeError(f"{label} is a folder; give the name of a file in it")
    refuse_input(path, label)
    if status is not None and not stat.S_ISREG(status.st_mode):
        yield from _straight(label)
    elif status is not None and not force:
        raise already_there(label)
    else:
        yield from _whole(label, target, status, force)


def already_there(label: str) -> PeError:
    """The target exists, and `force` was not given."""
    return PeError(f"{label} exists and is not overwritten; add {parameter('force')} to replace it")


def _standard() -> Iterator[OpenOutput]:
    """Standard output; a file that the shell has opened keeps no room that was reserved and not written.

    What the shell writes next into that file follows what was written here.
    """
    try:
        before = os.fstat(STDOUT)
        appends = fcntl.fcntl(STDOUT, fcntl.F_GETFL) & os.O_APPEND
        start = os.lseek(STDOUT, 0, os.SEEK_CUR) if stat.S_ISREG(before.st_mode) and not appends else None
    except OSError:
        start = None
    output = OpenOutput(STDOUT, "standard output", start)
    try:
        yield output
    finally:
        if start is not None:
            with suppress(OSError):
                os.ftruncate(STDOUT, max(before.st_size, start + output.end))
                os.lseek(STDOUT, start + output.end, os.SEEK_SET)


def _straight(label: str) -> Iterator[OpenOutput]:
    try:
        fd = os.open(label, os.O_WRONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise cannot_write(label, error) from error
    try:
        yield OpenOutput(fd, label, None)
    finally:
        os.close(fd)


def _whole(label: str, target: str, replaced: os.stat_result | None, force: bool) -> Iterator[OpenOutput]:
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".pe-{os.urandom(8).hex()}.tmp")
    try:
        with _open_temporary(label, folder, temporary) as (fd, named):
            yield OpenOutput(fd, label, 0, whole=True)
            try:
                if replaced is None:
                    try:
                        _appear(fd, temporary, target, named)
                    except FileExistsError:
                        if not force:
                            raise
                        replaced = os.stat(target)  # another writer was faster
                if replaced is not None:
                    _replace(fd, temporary, target, named, replaced)
            except FileExistsError as error:
                raise already_there(label) from error
            except OSError as error:
                raise cannot_write(label, error) from error
    finally:
        # Whether or not the name is in use: an interrupt can come between any two lines.
        with suppress(OSError):
            os.unlink(temporary)


@contextmanager
def _open_temporary(label: str, folder: str, temporary: str) -> Iterator[tuple[int, bool]]:
    """A descriptor, and whether the file has the name `temporary`."""
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    fd, named = None, True
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        with suppress(OSError):
            fd, named = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666), False
    try:
        fd = os.open(temporary, flags, 0o666) if fd is None else fd
    except FileNotFoundError as error:
        raise PeError(f"cannot write {label}: there is no folder {folder}; make it first") from error
    except OSError as error:
        raise cannot_write(label, error) from error
    try:
        yield fd, named
    finally:
        os.close(fd)


def _link(fd: int, temporary: str, target: str, named: bool) -> None:
    if named:
        os.link(temporary, target)
    else:
        # Only with a folder descriptor does Python ask for the link to be followed to the file itself.
        os.link(f"/proc/self/fd/{fd}", target, src_dir_fd=fd, follow_symlinks=True)


def _appear(fd: int, temporary: str, target: str, named: bool) -> None:
    """Give the finished file its name, which must be free."""
    try:
        _link(fd, temporary, target, named)
    except FileExistsError:
        raise
    except OSError:
        if not named:
            raise
        # A file system without links (FAT): check, then rename.
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
        os.rename(temporary, target)


def _replace(fd: int, temporary: str, target: str, named: bool, replaced: os.stat_result) -> None:
    """Put the finished file in the place of an older one, with its owner, group and permissions as far as that may be."""
    take_over(fd, replaced)
    os.fsync(fd)
    if not named:
        _link(fd, temporary, temporary, named)
    os.replace(temporary, target)


def take_over(new: int | str | os.PathLike[str], replaced: os.stat_result) -> None:
    """Give a new file or folder the owner, group and permissions of the one that it replaces, as far as that may be."""
    own = os.stat(new)
    for owner, group in ((replaced.st_uid, -1), (-1, replaced.st_gid)):
        if (owner, group) not in ((own.st_uid, -1), (-1, own.st_gid)):
            with suppress(OSError):
                os.chown(new, owner, group)
    with suppress(OSError):  # last, since a change of owner takes permissions away
        os.chmod(new, stat.S_IMODE(replaced.st_mode))


@contextmanager
def _cleanup_on_terminate() -> Iterator[None]:
    """Let signals that would end the process do so through its `finally` blocks, where nobody else has a handler."""
    fatal = [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread() or not fatal:
        yield
        return
    for number in fatal:
        signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number in fatal:
            signal.signal(number, signal.SIG_DFL)


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + signum)


_NOT_INSIDE = frozenset(
    {errno.EINVAL, errno.ENOSYS, errno.EBADF, errno.EXDEV, errno.EOPNOTSUPP, errno.EPERM}
)  # a terminal, a file that is appended to, two file systems, an older kernel


class Copier:
    """Copies ranges of an input to an output: inside the kernel where it can, which is cheaper, else through one buffer."""

    def __init__(self, stream: ByteInput, output: OpenOutput) -> None:
        self._stream, self._output = stream, output
        self._buffer = memoryview(bytearray(PIECE))
        self._move: Move | None = getattr(
            os, "splice" if _widened_pipes(stream.fd, output.fd) else "copy_file_range", None
        )

    def copy(self, begin: int, to: int, count: int | None = None) -> None:
        """Copy `count` bytes (None: all that follow) from offset `begin` to offset `to`.

        On a pipe the offsets are where reading and writing have come to, or further on in what is read.
        """
        self._stream.seek(begin)
        done = 0
        while count is None or done < count:
            most = PIECE - (to + done) % PIECE
            most = most if count is None else min(most, count - done)
            # What was read ahead is not in the pipe any more.
            inside = None if self._stream.ahead else self._move
            got = self._inside(inside, to + done, most) if inside else self._through_memory(to + done, most)
            if got == 0 and count is not None:
                raise truncated(self._stream.label, count - done)
            if got == 0:
                return
            done += got or 0

    def _through_memory(self, to: int, most: int) -> int:
        got = self._stream.readinto(self._buffer[:most])
        self._output.put(self._buffer[:got], to)
        return got

    def _inside(self, move: Move, to: int, most: int) -> int | None:
        """How many bytes were moved, 0 at the end of the input; None where it is to be tried again, or by way of memory."""
        stream, output = self._stream, self._output
        try:
            got = output.draw(move, stream.fd, stream.absolute(stream.position), most, to)
        except BlockingIOError:
            select.select([stream.fd], [], [])
            select.select([], [output.fd], [])
            return None
        except OSError as error:
            if error.errno in _NOT_INSIDE:
                self._move = None
                return None
            raise cannot_write(output.label, error, whole=output.whole) from error
        stream.position += got
        return got


def _widened_pipes(*fds: int) -> bool:
    """Whether one of these is a pipe; each holds a piece at least, for fewer switches, where the system lets it."""
    pipes = [fd for fd in fds if stat.S_ISFIFO(os.fstat(fd).st_mode)]
    for fd in pipes:
        with suppress(OSError, AttributeError):
            if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) < PIECE:
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIECE)
    return bool(pipes)
