"""The process that `pe` runs in: standard streams that may be closed or full, signals that may come at any moment, which
files it reads (so that no output is laid over one of them), how much memory it may use, and who watches its progress.

It is imported before most else, and so it imports little.
"""

from __future__ import annotations

import io
import os
import signal
import stat
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeAlias

from pe_cli.errors import PeError
from pe_cli.first import SIGNALS as SIGNALS
from pe_cli.first import heard

DONE, DIFFERENT, TROUBLE, INTERRUPTED = 0, 1, 2, 130
STDIN, STDOUT, STDERR = 0, 1, 2
# A closed stream would give its number to the next file that is opened. These make reading and writing fail as before,
# but for what would be said on stderr, which nobody wants to hear.
PLUGS = {STDIN: os.O_WRONLY, STDOUT: os.O_RDONLY, STDERR: os.O_WRONLY}

_ended: list[int] = []  # the exit code that a signal asked for


class _Stdout(io.FileIO):
    """Standard output that says so when it cannot be written."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, "cannot write standard output") from None


class _Stderr(io.FileIO):
    """Standard error that ignores write errors, so that a closed stderr never fails the command."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def prepare() -> None:
    """Make the streams safe, and let signals end the process through its `finally` blocks."""
    # Threads of OpenBLAS wait for each other more than they work on matrices of our size (eigenvectors took 100 times
    # as long on a busy machine), they slow the start, and they make the last bit of a sum depend on their number.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for fd, mode in PLUGS.items():
        try:
            os.fstat(fd)
        except OSError:
            os.dup2(os.open(os.devnull, mode), fd)
    sys.stdout = _text(_Stdout(STDOUT, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Stderr(STDERR, "w", closefd=False), sys.stderr, at_once=True)
    if not os.environ.get("PE_DEBUG"):
        # What is raised while an object is thrown away or in a thread: a signal is raised again, and the thread whose
        # work is missed says so itself.
        sys.unraisablehook = _raise_again
        threading.excepthook = lambda *_: None
    if not sys.warnoptions and not os.environ.get("PE_DEBUG"):
        warnings.simplefilter("ignore")  # they are for programmers


def tidy_up_first() -> None:
    """Let a signal end the process by an exception, through its `finally` blocks; those that follow are not heard."""
    for number in heard():
        signal.signal(number, _on_signal)


def ignore_signals() -> None:
    """Hear no signal any more."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def ended() -> int | None:
    """The exit code that a signal asked for, whatever became of its exception on the way."""
    return _ended[0] if _ended else None


def leave(code: int) -> NoReturn:
    """End the process with what is in the buffers, if it can be written."""
    ignore_signals()
    try:
        if ended():  # whoever reads may wait for ever
            os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
        sys.stdout.flush()
    except OSError:
        # Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
    sys.exit(code)


def _text(raw: io.FileIO, given: Any, *, at_once: bool = False) -> io.TextIOWrapper:
    errors = getattr(given, "errors", None)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(given, "encoding", None) or "utf-8",
        errors=errors if errors in ("replace", "ignore", "xmlcharrefreplace") else "backslashreplace",
        line_buffering=at_once or raw.isatty(),
    )


def _on_signal(number: int, frame: FrameType | None) -> NoReturn:
    code = SIGNALS[number]
    _ended.append(code)
    ignore_signals()  # a second one must not disturb the tidying
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(code)


def _raise_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Python drops an exception from the throwing away of an object: let that of a signal come again."""
    if isinstance(unraisable.exc_value, (KeyboardInterrupt, SystemExit)) and _ended:
        number = _ended.pop() - 128
        signal.signal(number, _on_signal)
        again = threading.Timer(0.01, os.kill, (os.getpid(), number))  # once this function has ended
        again.daemon = True
        again.start()


_Identity = tuple[int, int]
_open: list[_Identity] = []  # the files that are open for reading
_commands: list[set[_Identity]] = []  # what each command under way has read so far


@contextmanager
def one_command() -> Iterator[None]:
    """Whatever is read until the block ends counts as its input, also when it is closed again.

    Outside of such a block a file is an input only as long as it is open.
    """
    _commands.append(set())
    try:
        yield
    finally:
        _commands.pop()


def in_command() -> bool:
    """Whether a command line is being run, and not a function of the package by a program."""
    return bool(_commands)


@contextmanager
def reading(fd: int, label: str) -> Iterator[None]:
    """Note that the file of descriptor `fd` is read.

    Raises PeError if the shell has made it the standard output or error of a command (`pe … FILE >> FILE`).
    """
    identity = _identity(fd)
    if identity is None:
        yield
        return
    for command in _commands:
        command.add(identity)
    _open.append(identity)
    try:
        if _commands:
            _refuse_streams(identity, label)
        yield
    finally:
        _open.remove(identity)


def refuse_input(output: str | os.PathLike[str] | int, label: str) -> None:
    """Raise PeError if `output` (a path or a descriptor) is one of the inputs, under whatever name."""
    identity = _identity(output)
    if identity is not None and (identity in _open or any(identity in command for command in _commands)):
        raise _also_input(label)


def _refuse_streams(identity: _Identity, label: str) -> None:
    if identity == _identity(STDERR):
        # The message itself would be appended to the input.
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDERR)
        raise _also_input("standard error")
    if identity == _identity(STDOUT):
        raise _also_input(f"standard output, {label},")


def _also_input(label: str) -> PeError:
    return PeError(f"{label} is also the input; write to another file and move it there afterwards")


def _identity(file: str | os.PathLike[str] | int) -> _Identity | None:
    """Device and number of a file that keeps what is written; None for pipes, terminals, and what is not there."""
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return None
    keeps = stat.S_ISREG(status.st_mode) or stat.S_ISBLK(status.st_mode)
    return (status.st_dev, status.st_ino) if keeps else None


_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def machine_memory() -> int | None:
    """Bytes of memory that this process may use: the machine's, its container's or its own limit; None where unknown."""
    known = []
    with suppress(AttributeError, ValueError, OSError):
        known.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):
            known.append(int(limit.read_text()))
    with suppress(ImportError, OSError):
        import resource  # not on Windows

        own = resource.getrlimit(resource.RLIMIT_AS)[0]
        if own != resource.RLIM_INFINITY:
            known.append(own)
    return min(known, default=None)


def require_memory(nbytes: int, what: str, remedy: str) -> None:
    """Refuse `what` if it needs more memory than there is; `remedy` says what to do instead."""
    there_is = machine_memory()
    if there_is is not None and nbytes > there_is:
        raise PeError(f"{what} needs {size(nbytes)} of memory, this machine has {size(there_is)}: {remedy}")


def size(nbytes: float) -> str:
    """`7.3 TiB`"""
    unit = 0
    while nbytes >= 1024 and unit + 1 < len(_UNITS):
        nbytes /= 1024
        unit += 1
    return f"{nbytes:.3g} {_UNITS[unit]}" if nbytes < 1000 else f"{nbytes:.0f} {_UNITS[unit]}"


Watcher: TypeAlias = Callable[[str, int, "int | None"], None]

_WATCHER: ContextVar[Watcher | None] = ContextVar("pe_progress", default=None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Call `watcher(what, done, total)` at each step made inside the block."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def step(what: str, done: int, total: int | None = None) -> None:
    """Say that `done` of `total` steps of `what` are over."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher(what, done, total)
