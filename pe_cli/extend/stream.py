"""A safetensors checkpoint rewritten around its changed tensors: header first, every other byte as it was.

All sizes are known from the old header and the plan, so the new header is written before any data is read. What does
not change is copied in ranges through one reused buffer, from file to file by two threads where it is much; only
the changed tensors are ever in memory.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.extend.plan import Change, ExtensionPlan
from pe_cli.extend.report import TableReport
from pe_cli.extend.table import TableChange
from pe_cli.files.atomic import OpenOutput, cannot_write, open_output
from pe_cli.files.base import ByteInput, as_bytes, check_memory
from pe_cli.files.safetensors import Header, TensorEntry, stored_dtype, write_header
from pe_cli.numerics.dtypes import SAFETENSORS_CODES, numpy_dtype
from pe_cli.process import step

BUFFER = 1 << 20
TWO_THREADS_FROM = 256 << 20
HEAD = 4096


@dataclass(frozen=True)
class Copy:
    """`count` bytes from offset `begin` of the input to offset `to` of the output."""

    begin: int
    to: int
    count: int


@dataclass(frozen=True)
class Made:
    """A changed tensor: the bytes of `entry` are read at `begin`, and what becomes of them goes to `to`."""

    entry: TensorEntry
    begin: int
    to: int
    change: Change


Part: TypeAlias = Copy | Made


def new_header(header: Header, plan: ExtensionPlan, metadata: Mapping[str, str]) -> tuple[bytes, list[Part]]:
    """The new header's bytes, and the parts of the output in order; `metadata` is added to what there was."""
    placed: dict[str, TensorEntry] = {}
    begin = 0
    for name, entry in header.tensors.items():
        change = plan.change(name)
        spec = entry.spec if change is None else plan.new_spec(entry.spec)
        if spec is None:
            continue
        count = entry.nbytes if change is None else spec.nbytes
        code = entry.code if change is None else SAFETENSORS_CODES[spec.dtype]
        placed[name] = TensorEntry(name, code, spec.shape, begin, begin + count)
        begin += count
    about = {"format": "pt"} | (header.metadata or {}) | dict(metadata)
    text = write_header([placed[name] for name in header.names if name in placed], about)
    parts: list[Part] = []
    for name, entry in header.tensors.items():
        if name not in placed:
            continue
        source, target = header.data_start + entry.begin, len(text) + placed[name].begin
        change = plan.change(name)
        if change is not None:
            parts.append(Made(entry, source, target, change))
        elif parts and isinstance(last := parts[-1], Copy) and last.begin + last.count == source:
            parts[-1] = replace(last, count=last.count + entry.nbytes)
        else:
            parts.append(Copy(source, target, entry.nbytes))
    return text, parts


def rewrite(
    stream: ByteInput,
    header: Header,
    plan: ExtensionPlan,
    path: str | Path | None,
    *,
    metadata: Mapping[str, str],
    force: bool = False,
) -> list[TableReport]:
    """Write the checkpoint at `stream` (just behind its header) to `path` (None or `-`: standard output).

    From a file to a pipe all changes are made before anything is written, so that a failing one leaves nothing
    behind; from a pipe each is made when its bytes arrive. Geometry is measured while the rest is copied.
    """
    text, parts = new_header(header, plan, metadata)
    largest = max([change.old.nbytes + change.new.nbytes for change in plan.tables.values()], default=0)
    check_memory(largest, f"{stream.label}: the table before and after")
    measured = _Measured()
    ready: dict[str, NDArray[Any]] = {}
    made = [part for part in parts if isinstance(part, Made)]
    to_file = path is not None and str(path) != "-"
    if stream.seekable and not to_file:
        ready = {part.entry.name: _make(stream, part, measured) for part in made}
    with open_output(path, force=force) as output:
        output.reserve(max([len(text), *(part.to + _size(part) for part in parts)]))
        output.put(memoryview(text), 0)
        if stream.seekable and output.seekable:
            with _Copier(stream, output, [part for part in parts if isinstance(part, Copy)]) as copier:
                for part in made:
                    output.put(as_bytes(_make(stream, part, measured)), part.to)
                measured.finish()
                copier.help()
        else:
            _widen_pipes(stream, output)
            _in_turn(stream, output, parts, ready, measured)
            measured.finish()
    return [measured.reports[name] for name in plan.tables]


class _Measured:
    """Reports of tables, made in a thread while bytes are copied."""

    def __init__(self) -> None:
        self.reports: dict[str, TableReport] = {}
        self._waiting: list[tuple[str, Callable[[], TableReport]]] = []
        self._thread: threading.Thread | None = None

    def add(self, name: str, report: Callable[[], TableReport]) -> None:
        """Note a report to be made."""
        self._waiting.append((name, report))

    def start(self) -> None:
        """Begin to make what is noted, if nothing is being made."""
        if self._waiting and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run, name="pe-report", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait for the thread, and make what is left."""
        if self._thread is not None:
            self._thread.join()
        self._run()

    def _run(self) -> None:
        while self._waiting:
            name, report = self._waiting[0]
            self.reports[name] = report()
            del self._waiting[0]


def _size(part: Part) -> int:
    return part.count if isinstance(part, Copy) else part.change.new.nbytes


def _make(stream: ByteInput, part: Made, measured: _Measured) -> NDArray[Any]:
    spec = part.entry.spec
    pieces = stream.elements(part.begin, stored_dtype(spec.dtype), spec.size, spec.size)
    array = next(pieces, np.empty(0, numpy_dtype(spec.dtype))).reshape(spec.shape)
    if isinstance(part.change, TableChange):
        made, report = part.change.run(array)
        measured.add(spec.name, report)
    else:
        assert part.change.make is not None
        made = part.change.make(array)
    return np.ascontiguousarray(made).astype(stored_dtype(part.change.new.dtype), copy=False)


def _in_turn(
    stream: ByteInput,
    output: OpenOutput,
    parts: Sequence[Part],
    ready: dict[str, NDArray[Any]],
    measured: _Measured,
) -> None:
    """Front to back, where one side is a pipe."""
    total, done = sum(map(_size, parts)), 0
    pump = _Pump(stream, output)
    for part in parts:
        if isinstance(part, Made):
            made = ready.pop(part.entry.name) if part.entry.name in ready else _make(stream, part, measured)
            output.put(as_bytes(made), part.to)
            del made
            measured.start()
        else:
            for begin, count in _blocks(part.begin, part.count):
                pump.move(begin, begin - part.begin + part.to, count)
                step("copying", done + begin - part.begin, total)
        done += _size(part)


class _Pump:
    """Moves bytes of the input to the end of the output, inside the kernel where that can be done."""

    def __init__(self, stream: ByteInput, output: OpenOutput) -> None:
        self._stream, self._output = stream, output
        self._buffer = memoryview(bytearray(BUFFER))
        self._base = os.lseek(stream.fd, 0, os.SEEK_CUR) if stream.seekable else 0
        self._splices = hasattr(os, "splice") and sys.platform == "linux"

    def move(self, begin: int, to: int, count: int) -> None:
        """Write `count` (at most a buffer of) bytes from offset `begin` to offset `to`, which on a pipe is next."""
        done = 0
        if self._splices:
            # What was read ahead is in memory, not in the pipe any more: an ordinary read takes that first.
            done = min(count, HEAD)
            self._through_memory(begin, to, done)
            done += self._splice(begin + done, to + done, count - done)
        if done < count:
            self._through_memory(begin + done, to + done, count - done)

    def _through_memory(self, begin: int, to: int, count: int) -> None:
        self._stream.fill(begin, self._buffer[:count])
        self._output.put(self._buffer[:count], to)

    def _splice(self, begin: int, to: int, count: int) -> int:
        """How many bytes were moved; fewer than `count` where the system does not splice these, or the input ends."""
        moved = 0
        while moved < count:
            places: dict[str, Any] = {
                "offset_src": self._base + begin + moved if self._stream.seekable else None,
                "offset_dst": to + moved if self._output.seekable else None,
            }
            try:
                got = os.splice(self._stream.fd, self._output.fd, count - moved, **places)
            except BlockingIOError:
                select.select([self._stream.fd], [], [])
                select.select([], [self._output.fd], [])
                continue
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.ENOSYS, errno.EBADF):
                    self._splices = False  # no pipe on either side, or a file that is appended to
                    return moved
                raise cannot_write(self._output.label, error) from error
            if got == 0:
                return moved
            moved += got
            self._stream.position += 0 if self._stream.seekable else got
        return moved


def _blocks(begin: int, count: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, BUFFER):
        yield begin + start, min(BUFFER, count - start)


class _Copier:
    """Copies ranges from file to file: a thread from the start where they are large, and whoever calls `help`."""

    def __init__(self, stream: ByteInput, output: OpenOutput, copies: Sequence[Copy]) -> None:
        self._stream, self._output = stream, output
        self._total = sum(copy.count for copy in copies)
        self._done = 0
        self._blocks = (
            (begin, copy.to - copy.begin, count)
            for copy in copies
            for begin, count in _blocks(copy.begin, copy.count)
        )
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._stopped = False
        self._thread = (
            threading.Thread(target=self._beside, name="pe-copy") if self._total >= TWO_THREADS_FROM else None
        )

    def __enter__(self) -> _Copier:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stopped = True
        if self._thread is not None:
            self._thread.join()

    def help(self) -> None:
        """Copy along until all is done; raises what went wrong in the thread."""
        self._work()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _beside(self) -> None:
        try:
            self._work()
        except BaseException as error:  # handed to the caller, whatever it is
            self._error = error

    def _work(self) -> None:
        # A view of its own on the same descriptor: reading is by offset, and only the position is remembered.
        stream = ByteInput(self._stream.fd, self._stream.label)
        buffer = memoryview(bytearray(BUFFER))
        while not self._stopped and self._error is None:
            with self._lock:
                block = next(self._blocks, None)
                if block is None:
                    return
                self._done += block[2]
                step("copying", self._done, self._total)
            begin, shift, count = block
            stream.fill(begin, buffer[:count])
            self._output.put(buffer[:count], begin + shift)


def _widen_pipes(stream: ByteInput, output: OpenOutput) -> None:
    """Larger pipes, fewer switches between processes; where the system refuses, they stay as they are."""
    import fcntl

    widen = getattr(fcntl, "F_SETPIPE_SZ", None)
    for fd in (stream.fd, output.fd):
        with suppress(OSError):
            if widen is not None:
                fcntl.fcntl(fd, widen, BUFFER)
