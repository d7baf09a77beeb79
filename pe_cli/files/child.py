"""What might take the process down, done in a child process: tried there first, or done there and its result sent over."""

from __future__ import annotations

import builtins
import faulthandler
import os
import re
import signal
import struct
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.process import SIGNALS

_FRAME = struct.Struct("<cq")  # what follows, and how many bytes
_DATA, _REFUSED, _FAILED, _END = b"d", b"e", b"f", b"."


def can_fork() -> bool:
    """Whether a child process can go on with what this one has open."""
    return hasattr(os, "fork") and sys.platform != "darwin"


class Verdict(Enum):
    """What became of work that was tried in a child process."""

    DONE = 0  # an exception is an answer too
    OUT_OF_MEMORY = 3
    OUT_OF_TIME = 4
    DIED = 5


def tried(work: Callable[[], object], *, cpu_seconds: int, more_bytes: int) -> Verdict:
    """What becomes of `work` in a child process that may take so much processor time, and so much memory more than there is.

    Where processes cannot be forked safely, nothing is tried.
    """
    if not can_fork():
        return Verdict.DONE
    child = _fork()
    if child == 0:
        _work_and_exit(work, cpu_seconds, more_bytes)
    try:
        _, status = os.waitpid(child, 0)
    except BaseException:
        _stop(child)
        raise
    if os.WIFSIGNALED(status):
        return Verdict.OUT_OF_TIME if os.WTERMSIG(status) == signal.SIGXCPU else Verdict.DIED
    return Verdict.OUT_OF_MEMORY if os.WEXITSTATUS(status) == Verdict.OUT_OF_MEMORY.value else Verdict.DONE


def from_child(
    work: Callable[[], Iterator[NDArray[Any]]],
    dtype: np.dtype[Any],
    *,
    cpu_seconds: int,
    more_bytes: int,
    died: str,
) -> Iterator[NDArray[Any]]:
    """The one-dimensional arrays of `dtype` that `work` gives, made in a child process.

    Errors: what `work` raises, or a RuntimeError that names it where it is no exception of Python's own with one text;
    a PeError that says `died` if the child ends before its work, by a signal or for having
    taken more than `cpu_seconds` of processor time.
    """
    source, sink = os.pipe()
    child = _fork()
    if child == 0:
        os.close(source)
        _work_and_exit(lambda: _send(work, sink), cpu_seconds, more_bytes)
    os.close(sink)
    try:
        with open(source, "rb", buffering=0) as pipe:
            while True:
                kind, length = _FRAME.unpack(_received(pipe, _FRAME.size, died).data)
                if kind == _END:
                    return
                content = _received(pipe, length, died)
                if kind == _REFUSED:
                    raise PeError(content.tobytes().decode())
                if kind == _FAILED:
                    raise _failure(*content.tobytes().decode().split("\n", 1))
                yield content.view(dtype)
    finally:
        _stop(child)


def _send(work: Callable[[], Iterator[NDArray[Any]]], sink: int) -> None:
    with open(sink, "wb", buffering=0) as pipe:

        def put(kind: bytes, content: memoryview) -> None:
            for part in (memoryview(_FRAME.pack(kind, len(content))), content):
                while part:
                    part = part[pipe.write(part) :]

        try:
            for array in work():
                put(_DATA, np.ascontiguousarray(array).view(np.uint8).data)
        except PeError as error:
            put(_REFUSED, memoryview(_text(error)))
        except Exception as error:
            kind = MemoryError if isinstance(error, MemoryError) else type(error)  # numpy has one of its own
            put(_FAILED, memoryview(kind.__name__.encode() + b"\n" + _text(error)))
        else:
            put(_END, memoryview(b""))


def _text(error: Exception) -> bytes:
    return str(error).encode("utf-8", "backslashreplace")


def _failure(name: str, text: str) -> Exception:
    """The exception called `name`; by its name and not pickled, for what comes from a damaged process is not believed."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with suppress(TypeError):  # some want more than a text
            return kind(text)
    return RuntimeError(f"{name}: {text}")


def _received(pipe: IO[bytes], length: int, died: str) -> NDArray[np.uint8]:
    content = np.empty(length, np.uint8)
    rest = content.data
    while rest:
        count = pipe.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            raise PeError(died)
        rest = rest[count:]
    return content


def _fork() -> int:
    """Fork; in the child all signals that end `pe` do so at once, from its first line on."""
    heard = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        child = _forked()
        if child == 0:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
        return child
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)


def _forked() -> int:
    with warnings.catch_warnings():
        # Python and JAX warn of threads; those of other libraries are of no use to the child, which calls HDF5 alone.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        return os.fork()


def _stop(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _work_and_exit(work: Callable[[], object], cpu_seconds: int, more_bytes: int) -> NoReturn:
    import resource

    verdict = Verdict.DONE
    try:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # The soft limit sends SIGXCPU, by which the parent knows; the hard one is for what ignores that.
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
        _limit_memory(more_bytes)
        work()
    except MemoryError:
        verdict = Verdict.OUT_OF_MEMORY
    except PeError:
        pass  # whoever does the work himself raises it again
    except BaseException as error:
        if re.search("memory|alloc", str(error)):  # as libraries in C say it
            verdict = Verdict.OUT_OF_MEMORY
    os._exit(verdict.value)


def _limit_memory(more_bytes: int) -> None:
    """Let this process take at most so many bytes more than it has, where the system tells how many these are."""
    import resource

    with suppress(OSError, ValueError):
        held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        wanted = held + more_bytes
        resource.setrlimit(resource.RLIMIT_AS, (wanted if most < 0 else min(wanted, most), most))
