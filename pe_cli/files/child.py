"""What might take the process down, done in a child process: tried there first, or done there and its result sent over."""

from __future__ import annotations

import builtins
import faulthandler
import os
import signal
import struct
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
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


def survives(work: Callable[[], object], *, cpu_seconds: int) -> bool:
    """Whether a child process does `work` without being killed by a signal, in `cpu_seconds` of processor time.

    An exception is an answer too. Where processes cannot be forked safely, nothing is tried.
    """
    if not can_fork():
        return True
    child = _fork()
    if child == 0:
        _work_and_exit(work, cpu_seconds)
    try:
        _, status = os.waitpid(child, 0)
    except BaseException:
        _stop(child)
        raise
    return not os.WIFSIGNALED(status)


def from_child(
    work: Callable[[], Iterator[NDArray[Any]]], dtype: np.dtype[Any], *, cpu_seconds: int, died: str
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
        _work_and_exit(lambda: _send(work, sink), cpu_seconds)
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


def _work_and_exit(work: Callable[[], object], cpu_seconds: int) -> NoReturn:
    import resource

    with suppress(BaseException):
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        work()
    os._exit(0)
